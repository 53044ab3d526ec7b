/* SPDX-License-Identifier: BSD-2-Clause */
/* Machine type pico: what it is made of and what its few odd ports do. */
#include "hw/pico.h"

#include <string.h>

#include "pico.h"
#include "util/error.h"

#define SERIALS_MAX 4
#define PORT_KEYBOARD 0x64      /* command 0xfe pulls the reset line */
#define PORT_DEBUG_EXIT 0xf4    /* ends the process with status 2 * value + 1 */

typedef struct Pico {
    Kvm *kvm;
    PicoBoot boot;
    PicoSerial *serials[SERIALS_MAX];
} Pico;

static const struct {
    uint16_t base;
    unsigned irq;
} serial_places[SERIALS_MAX] = { { 0x3f8, 4 }, { 0x2f8, 3 }, { 0x3e8, 4 }, { 0x2e8, 3 } };

/* Nothing to read, ready to write: a guest that asks goes on at once. */
static uint64_t keyboard_read(void *opaque, uint64_t offset, unsigned size)
{
    return 0;
}

static void keyboard_write(void *opaque, uint64_t offset, unsigned size, uint64_t value)
{
    Pico *p = opaque;
    if ((value & 0xff) == 0xfe) {
        kvm_guest_request(p->kvm, MACHINE_REQUEST_RESET, 0);
    }
}

static void debug_exit_write(void *opaque, uint64_t offset, unsigned size, uint64_t value)
{
    Pico *p = opaque;
    kvm_guest_request(p->kvm, MACHINE_REQUEST_EXIT, (int)((value << 1 | 1) & 0xff));
}

static bool pico_reset(Machine *m, KvmEntry *entry, GError **errp)
{
    Pico *p = kvm_machine_data(m);

    for (unsigned i = 0; i < SERIALS_MAX; i++) {
        if (p->serials[i]) {
            pico_serial_reset(p->serials[i]);
        }
    }
    return pico_boot_load(&p->boot, m, entry, errp);
}

static void pico_free(Pico *p)
{
    for (unsigned i = 0; i < SERIALS_MAX; i++) {
        pico_serial_free(p->serials[i]);
    }
    pico_boot_close(&p->boot);
    g_free(p);
}

static void pico_destroy(Machine *m)
{
    pico_free(kvm_machine_data(m));
}

static const KvmMachineOps pico_ops = { .reset = pico_reset, .destroy = pico_destroy };

static void add_devices(Machine *m, Pico *p)
{
    kvm_add_io(p->kvm, &(KvmIo){
        .port = true, .base = PORT_KEYBOARD, .len = 1, .read = keyboard_read, .write = keyboard_write,
        .opaque = p,
    });
    kvm_add_io(p->kvm, &(KvmIo){
        .port = true, .base = PORT_DEBUG_EXIT, .len = 4, .write = debug_exit_write, .opaque = p,
    });
    for (unsigned i = 0; i < m->serials->len; i++) {
        p->serials[i] = pico_serial_new(m, p->kvm, g_ptr_array_index(m->serials, i), serial_places[i].base,
                                        serial_places[i].irq, i);
    }
}

static bool check(const Machine *m, GError **errp)
{
    if (m->accel && strcmp(m->accel, "kvm") != 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Machine pico needs -accel kvm, not %s",
                    m->accel);
        return false;
    }
    if (m->serials->len > SERIALS_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Machine pico has room for %d -serial",
                    SERIALS_MAX);
        return false;
    }
    return true;
}

static bool pico_init(Machine *m, GError **errp)
{
    if (!check(m, errp)) {
        return false;
    }
    Pico *p = g_new0(Pico, 1);
    if (!pico_boot_open(&p->boot, m, errp) || !(p->kvm = kvm_new(m, &pico_ops, p, errp))) {
        pico_free(p);
        return false;
    }
    add_devices(m, p);
    return true;
}

static const char *const pico_properties[] = { "x-slot-pages", NULL };

const MachineType pico_machine_type = {
    .name = "pico",
    .desc = "small x86-64 machine on KVM: a kernel, serial ports, no firmware",
    .max_cpus = KVM_ACCEL_VCPUS_MAX,
    .default_ram_size = 128 << 20,
    .properties = pico_properties,
    .init = pico_init,
};
