/* SPDX-License-Identifier: BSD-2-Clause */
/* -device and -drive: which virtio devices the machine has, and where. */
#include "pico.h"

#include <string.h>

#include "hw/virtio/virtio.h"
#include "system/keyval.h"
#include "util/error.h"

typedef struct Drive {
    KeyVal *options;
    const char *id;
    bool readonly;
    bool used;
} Drive;

typedef struct Slot {
    PicoVirtio *owner;
    VirtioDevice *device;
    uint32_t line;
} Slot;

struct PicoVirtio {
    Machine *machine;
    Kvm *kvm;
    GArray *drives;             /* of Drive */
    Slot slots[PICO_VIRTIO_SLOTS];
    unsigned n_slots;
};

/* ---- -drive ---- */

static const char *const drive_keys[] = { "if", "id", "file", "format", "readonly", "read-only", NULL };

static Drive *find_drive(PicoVirtio *v, const char *id)
{
    for (unsigned i = 0; i < v->drives->len; i++) {
        Drive *d = &g_array_index(v->drives, Drive, i);
        if (strcmp(d->id, id) == 0) {
            return d;
        }
    }
    return NULL;
}

static bool check_drive(PicoVirtio *v, const Drive *d, GError **errp)
{
    const char *interface = keyval_get(d->options, "if"), *format = keyval_get(d->options, "format");

    if (!interface || strcmp(interface, "none") != 0) {
        return error_set_invalid(errp,
                                 "only if=none is supported, with a -device virtio-blk-device,drive=ID");
    }
    if (format && strcmp(format, "raw") != 0) {
        return error_set_invalid(errp, "format '%s' is not supported, only raw", format);
    }
    if (!d->id || !keyval_check_id(d->id, NULL)) {
        return error_set_invalid(errp, "Parameter 'id' expects an identifier");
    }
    if (!keyval_get(d->options, "file")) {
        return error_set_invalid(errp, "Parameter 'file' is missing");
    }
    if (find_drive(v, d->id)) {
        return error_set_invalid(errp, "Duplicate ID '%s' for drive", d->id);
    }
    return true;
}

static bool add_drive(PicoVirtio *v, const char *text, GError **errp)
{
    g_autoptr(KeyVal) options = keyval_parse(text, NULL, KEYVAL_OPTS, errp);

    if (!options) {
        return false;
    }
    Drive d = { .options = options, .id = keyval_get(options, "id") };
    if (!keyval_check_keys(options, drive_keys, errp) ||
        !keyval_get_bool(options, "readonly", &d.readonly, errp) ||
        !keyval_get_bool(options, "read-only", &d.readonly, errp) || !check_drive(v, &d, errp)) {
        return false;
    }
    options = NULL;     /* the array's now */
    g_array_append_val(v->drives, d);
    return true;
}

/* ---- -device ---- */

/* Puts @device, which may be NULL for an error, into the next slot. */
static bool put_in_slot(PicoVirtio *v, VirtioDevice *device)
{
    if (device) {
        v->slots[v->n_slots++].device = device;
    }
    return device != NULL;
}

static bool add_rng(PicoVirtio *v, const KeyVal *options, GError **errp)
{
    return put_in_slot(v, virtio_rng_new(v->machine));
}

static bool add_blk(PicoVirtio *v, const KeyVal *options, GError **errp)
{
    const char *id = keyval_get(options, "drive");
    Drive *d = id ? find_drive(v, id) : NULL;

    if (!id) {
        return error_set_invalid(errp, "drive property not set");
    }
    if (!d) {
        return error_set_invalid(errp, "Property 'virtio-blk-device.drive' can't find value '%s'", id);
    }
    if (d->used) {
        return error_set_invalid(errp, "drive '%s' is already in use by another device", id);
    }
    d->used = true;
    const VirtioBlkConfig config = {
        .id = id, .file = keyval_get(d->options, "file"), .serial = keyval_get(options, "serial"),
        .readonly = d->readonly, .incoming = v->machine->incoming,
    };
    return put_in_slot(v, virtio_blk_new(v->machine, &config, errp));
}

static bool add_serial(PicoVirtio *v, const KeyVal *options, GError **errp)
{
    return put_in_slot(v, virtio_console_new(v->machine));
}

/* On the first virtio-serial-device whose port is free. */
static bool add_console(PicoVirtio *v, const KeyVal *options, GError **errp)
{
    const char *id = keyval_get(options, "chardev");
    Chardev *chr = id ? chardev_find(id) : NULL;

    if (!id) {
        return error_set_invalid(errp, "chardev property not set");
    }
    if (!chr) {
        return error_set_invalid(errp, "Property 'virtconsole.chardev' can't find value '%s'", id);
    }
    if (chardev_has_front_end(chr)) {
        return error_set_invalid(errp, "chardev '%s' is already in use", id);
    }
    for (unsigned i = 0; i < v->n_slots; i++) {
        if (virtio_console_attach(v->slots[i].device, chr)) {
            return true;
        }
    }
    return error_set_invalid(errp, "there is no virtio-serial-device before it that has its port free");
}

static const struct {
    const char *name;
    bool has_slot;
    const char *const *keys;
    bool (*add)(PicoVirtio *v, const KeyVal *options, GError **errp);
} drivers[] = {
    { "virtconsole", false, (const char *const[]){ "driver", "id", "chardev", NULL }, add_console },
    { "virtio-blk-device", true, (const char *const[]){ "driver", "id", "drive", "serial", NULL }, add_blk },
    { "virtio-rng-device", true, (const char *const[]){ "driver", "id", NULL }, add_rng },
    { "virtio-serial-device", true, (const char *const[]){ "driver", "id", NULL }, add_serial },
};

static bool add_device(PicoVirtio *v, const char *text, GError **errp)
{
    g_autoptr(KeyVal) options = keyval_parse(text, "driver", KEYVAL_OPTS, errp);

    if (!options) {
        return false;
    }
    const char *name = keyval_get(options, "driver");
    for (size_t i = 0; name && i < G_N_ELEMENTS(drivers); i++) {
        if (strcmp(name, drivers[i].name) != 0) {
            continue;
        }
        if (drivers[i].has_slot && v->n_slots == PICO_VIRTIO_SLOTS) {
            return error_set_invalid(errp, "machine pico has room for %d virtio devices", PICO_VIRTIO_SLOTS);
        }
        return keyval_check_keys(options, drivers[i].keys, errp) && drivers[i].add(v, options, errp);
    }
    return error_set_invalid(errp, "'%s' is not a valid device model name", name ? name : "");
}

static bool add_all(PicoVirtio *v, GPtrArray *texts, const char *option,
                    bool (*add)(PicoVirtio *v, const char *text, GError **errp), GError **errp)
{
    for (unsigned i = 0; i < texts->len; i++) {
        const char *text = g_ptr_array_index(texts, i);
        if (!add(v, text, errp)) {
            g_prefix_error(errp, "-%s %s: ", option, text);
            return false;
        }
    }
    return true;
}

PicoVirtio *pico_virtio_new(Machine *m, GError **errp)
{
    PicoVirtio *v = g_new0(PicoVirtio, 1);

    v->machine = m;
    v->drives = g_array_new(false, false, sizeof(Drive));
    if (!add_all(v, m->drives, "drive", add_drive, errp) ||
        !add_all(v, m->devices, "device", add_device, errp)) {
        pico_virtio_free(v);
        return NULL;
    }
    return v;
}

/* ---- life in the machine ---- */

static void set_irq(void *opaque, bool level)
{
    const Slot *slot = opaque;

    kvm_set_irq(slot->owner->kvm, slot->line, level);
}

/* No request is in flight in a state in which the guest does not run. */
static void run_state_changed(Machine *m, RunState old_state, RunState new_state, void *opaque)
{
    PicoVirtio *v = opaque;

    for (unsigned i = 0; i < v->n_slots; i++) {
        if (new_state == RUN_STATE_RUNNING) {
            virtio_device_resume(v->slots[i].device);
        } else if (old_state == RUN_STATE_RUNNING) {
            virtio_device_pause(v->slots[i].device);
        }
    }
}

unsigned pico_virtio_places(const PicoVirtio *v, PicoVirtioPlace *places)
{
    for (unsigned i = 0; i < v->n_slots; i++) {
        places[i] = (PicoVirtioPlace){
            .slot = (uint8_t)i, .base = PICO_VIRTIO_BASE + i * PICO_VIRTIO_SIZE, .line = PICO_VIRTIO_LINE + i,
        };
    }
    return v->n_slots;
}

void pico_virtio_connect(PicoVirtio *v, Kvm *kvm)
{
    PicoVirtioPlace places[PICO_VIRTIO_SLOTS];

    v->kvm = kvm;
    pico_virtio_places(v, places);
    for (unsigned i = 0; i < v->n_slots; i++) {
        Slot *slot = &v->slots[i];

        slot->owner = v;
        slot->line = places[i].line;
        slot->device->set_irq = set_irq;
        slot->device->irq_opaque = slot;
        kvm_add_io(kvm, &(KvmIo){
            .base = places[i].base, .len = PICO_VIRTIO_SIZE, .read = virtio_mmio_read,
            .write = virtio_mmio_write, .opaque = slot->device,
        });
        virtio_device_register(slot->device, i);
    }
    machine_add_run_state_listener(v->machine, run_state_changed, v);
}

void pico_virtio_reset(PicoVirtio *v)
{
    for (unsigned i = 0; i < v->n_slots; i++) {
        virtio_device_reset(v->slots[i].device);
    }
}

void pico_virtio_free(PicoVirtio *v)
{
    if (!v) {
        return;
    }
    for (unsigned i = 0; i < v->n_slots; i++) {
        virtio_device_free(v->slots[i].device);
    }
    for (unsigned i = 0; i < v->drives->len; i++) {
        keyval_free(g_array_index(v->drives, Drive, i).options);
    }
    g_array_unref(v->drives);
    g_free(v);
}
