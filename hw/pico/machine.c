/* SPDX-License-Identifier: BSD-2-Clause */
/* Machine type pico: what it is made of and what its few odd ports do. */
#include "hw/pico.h"

#include <string.h>

#include "pico.h"
#include "util/error.h"

#define SERIALS_MAX 4
#define PORT_DEBUG_EXIT 0xf4    /* ends the process with status 2 * value + 1 */

/* A serial port and its line. */
typedef struct Port {
    Kvm *kvm;
    unsigned irq;
    PicoSerial *serial;         /* or NULL: there is none here */
} Port;

typedef struct Pico {
    Kvm *kvm;
    PicoBoot boot;
    Port ports[SERIALS_MAX];
    PicoVirtio *virtio;
    PicoAcpi acpi;
    SaveEntry acpi_entry;
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
    if ((value & 0xff) == PICO_RESET_VALUE) {
        kvm_guest_request(p->kvm, MACHINE_REQUEST_RESET, 0);
    }
}

static void debug_exit_write(void *opaque, uint64_t offset, unsigned size, uint64_t value)
{
    Pico *p = opaque;
    kvm_guest_request(p->kvm, MACHINE_REQUEST_EXIT, (int)((value << 1 | 1) & 0xff));
}

/* Status: no event ever happens.  Enable: as written, which guests look for. */
static uint64_t pm1_event_read(void *opaque, uint64_t offset, unsigned size)
{
    const Pico *p = opaque;
    return offset == 2 ? p->acpi.pm1_enable : 0;
}

static void pm1_event_write(void *opaque, uint64_t offset, unsigned size, uint64_t value)
{
    Pico *p = opaque;
    if (offset == 2) {
        p->acpi.pm1_enable = (uint16_t)value;
    }
}

static const VMStateField acpi_fields[] = {
    VMSTATE_FIELD(pm1_enable, VMSTATE_UINT16, PicoAcpi),
    VMSTATE_END
};

const VMStateDescription pico_acpi_vmsd = {
    .name = "pico-acpi", .version = 1, .minimum_version = 1, .fields = acpi_fields,
};

#define PM1_SCI_EN 1
#define PM1_SLP_TYP(value) ((value) >> 10 & 7)
#define PM1_SLP_EN 0x2000

static uint64_t pm1_control_read(void *opaque, uint64_t offset, unsigned size)
{
    return offset ? 0 : PM1_SCI_EN;
}

static void pm1_control_write(void *opaque, uint64_t offset, unsigned size, uint64_t value)
{
    Pico *p = opaque;
    if (!offset && size >= 2 && (value & PM1_SLP_EN) && PM1_SLP_TYP(value) == PICO_SLEEP_TYPE_OFF) {
        kvm_guest_request(p->kvm, MACHINE_REQUEST_EXIT, 0);
    }
}

static bool pico_reset(Machine *m, KvmEntry *entry, GError **errp)
{
    Pico *p = kvm_machine_data(m);

    for (unsigned i = 0; i < SERIALS_MAX; i++) {
        if (p->ports[i].serial) {
            pico_serial_reset(p->ports[i].serial);
        }
    }
    pico_virtio_reset(p->virtio);
    p->acpi.pm1_enable = 0;
    return pico_boot_load(&p->boot, m, entry, errp);
}

static void pico_free(Pico *p)
{
    for (unsigned i = 0; i < SERIALS_MAX; i++) {
        pico_serial_free(p->ports[i].serial);
    }
    pico_virtio_free(p->virtio);
    pico_boot_close(&p->boot);
    g_free(p);
}

static void pico_destroy(Machine *m)
{
    Pico *p = kvm_machine_data(m);

    save_entry_list_remove(&m->save_entries, &p->acpi_entry);
    pico_free(p);
}

static const KvmMachineOps pico_ops = { .reset = pico_reset, .destroy = pico_destroy };

static void set_irq(void *opaque, bool level)
{
    const Port *port = opaque;

    kvm_set_irq(port->kvm, port->irq, level);
}

static void add_serial(Machine *m, Pico *p, unsigned i)
{
    Port *port = &p->ports[i];

    port->kvm = p->kvm;
    port->irq = serial_places[i].irq;
    port->serial = pico_serial_new(m, i, g_ptr_array_index(m->serials, i), kvm_device_lock(p->kvm), set_irq,
                                   port);
    kvm_add_io(p->kvm, &(KvmIo){
        .port = true, .base = serial_places[i].base, .len = PICO_SERIAL_PORTS, .read = pico_serial_read,
        .write = pico_serial_write, .opaque = port->serial,
    });
}

static void add_devices(Machine *m, Pico *p)
{
    kvm_add_io(p->kvm, &(KvmIo){
        .port = true, .base = PICO_PORT_RESET, .len = 1, .read = keyboard_read, .write = keyboard_write,
        .opaque = p,
    });
    kvm_add_io(p->kvm, &(KvmIo){
        .port = true, .base = PICO_PM1A_EVENT, .len = 4, .read = pm1_event_read, .write = pm1_event_write,
        .opaque = p,
    });
    kvm_add_io(p->kvm, &(KvmIo){
        .port = true, .base = PICO_PM1A_CONTROL, .len = 2, .read = pm1_control_read,
        .write = pm1_control_write, .opaque = p,
    });
    kvm_add_io(p->kvm, &(KvmIo){
        .port = true, .base = PORT_DEBUG_EXIT, .len = 4, .write = debug_exit_write, .opaque = p,
    });
    for (unsigned i = 0; i < m->serials->len; i++) {
        add_serial(m, p, i);
    }
    p->acpi_entry = (SaveEntry){
        .idstr = pico_acpi_vmsd.name, .vmsd = &pico_acpi_vmsd, .opaque = &p->acpi,
    };
    save_entry_list_add(&m->save_entries, &p->acpi_entry);
    pico_virtio_connect(p->virtio, p->kvm);
}

static GByteArray *acpi_tables(const Machine *m, const PicoVirtio *virtio)
{
    PicoVirtioPlace places[PICO_VIRTIO_SLOTS];
    unsigned n = pico_virtio_places(virtio, places);

    return pico_acpi_build(m->cpus, places, n);
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

/* The virtio devices have theirs already. */
static bool check_serials(const Machine *m, GError **errp)
{
    for (unsigned i = 0; i < m->serials->len; i++) {
        Chardev *chr = g_ptr_array_index(m->serials, i);
        guint first;

        g_ptr_array_find(m->serials, chr, &first);
        if (chr && (chardev_has_front_end(chr) || first != i)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, "Device '%s' is in use", chardev_label(chr));
            return false;
        }
    }
    return true;
}

static bool pico_init(Machine *m, GError **errp)
{
    if (!check(m, errp)) {
        return false;
    }
    Pico *p = g_new0(Pico, 1);
    if (!pico_boot_open(&p->boot, m, errp) || !(p->virtio = pico_virtio_new(m, errp)) ||
        !check_serials(m, errp) || !(p->kvm = kvm_new(m, &pico_ops, p, errp))) {
        pico_free(p);
        return false;
    }
    p->boot.acpi = acpi_tables(m, p->virtio);
    add_devices(m, p);
    return true;
}

static const char *const pico_properties[] = { "x-slot-pages", NULL };

const MachineType pico_machine_type = {
    .name = "pico",
    .desc = "small x86-64 machine on KVM: a kernel, serial ports, virtio devices, no firmware",
    .max_cpus = KVM_ACCEL_VCPUS_MAX,
    .default_ram_size = 128 << 20,
    .properties = pico_properties,
    .init = pico_init,
};
