/* SPDX-License-Identifier: BSD-2-Clause */
/* What all virtio devices have: life, pause and resume, interrupts, the section in which they travel. */
#include "hw/virtio/virtio.h"

#include "util/error.h"

void virtio_device_init(VirtioDevice *v, const VirtioDeviceOps *ops, Machine *m, uint64_t features)
{
    v->ops = ops;
    v->machine = m;
    v->features = features | VIRTIO_F_VERSION_1;
    v->paused = true;
    v->state.device_id = ops->id;
    g_mutex_init(&v->lock);
    g_cond_init(&v->idle);
}

void virtio_device_clear(VirtioDevice *v)
{
    if (v->entry.vmsd) {
        save_entry_list_remove(&v->machine->save_entries, &v->entry);
    }
    if (v->entry.vmsd && v->kind_entry.vmsd) {
        save_entry_list_remove(&v->machine->save_entries, &v->kind_entry);
    }
    g_mutex_clear(&v->lock);
    g_cond_clear(&v->idle);
}

void virtio_device_free(VirtioDevice *v)
{
    if (v) {
        v->ops->free(v);
    }
}

void virtio_device_register(VirtioDevice *v, unsigned slot)
{
    v->slot = slot;
    v->entry = (SaveEntry){
        .idstr = virtio_vmsd.name, .instance_id = slot, .vmsd = &virtio_vmsd, .opaque = v,
    };
    save_entry_list_add(&v->machine->save_entries, &v->entry);
    if (v->kind_entry.vmsd) {
        v->kind_entry.idstr = v->kind_entry.vmsd->name;
        v->kind_entry.instance_id = slot;
        v->kind_entry.opaque = v;
        save_entry_list_add(&v->machine->save_entries, &v->kind_entry);
    }
}

/* Without the lock a device kind has at most one request in flight, which ends by itself. */
void virtio_device_pause(VirtioDevice *v)
{
    g_mutex_lock(&v->lock);
    v->paused = true;
    while (v->in_flight) {
        g_cond_wait(&v->idle, &v->lock);
    }
    g_mutex_unlock(&v->lock);
}

void virtio_device_resume(VirtioDevice *v)
{
    g_mutex_lock(&v->lock);
    v->paused = false;
    if (v->ops->resumed) {
        v->ops->resumed(v);
    }
    for (unsigned q = 0; q < v->ops->n_queues; q++) {
        if (virtqueue_usable(v, q)) {
            v->ops->notify(v, q);
        }
    }
    g_mutex_unlock(&v->lock);
}

void virtio_device_reset(VirtioDevice *v)
{
    virtio_mmio_write(v, VIRTIO_MMIO_STATUS, 4, 0);
}

void virtio_device_interrupt(VirtioDevice *v, uint32_t what)
{
    v->state.interrupt_status |= what;
    bool level = v->state.interrupt_status != 0;

    if (level != v->raised) {
        v->raised = level;
        if (v->set_irq) {
            v->set_irq(v->irq_opaque, level);
        }
    }
}

void virtio_device_break(VirtioDevice *v, const char *why)
{
    if (v->state.status & VIRTIO_STATUS_NEEDS_RESET) {
        return;
    }
    g_info("%s %u: the guest's driver has broken it: %s", v->ops->driver, v->slot, why);
    v->state.status |= VIRTIO_STATUS_NEEDS_RESET;
    if (v->state.status & VIRTIO_STATUS_DRIVER_OK) {
        virtio_device_interrupt(v, VIRTIO_INTERRUPT_CONFIG);
    }
}

/* ---- its section ---- */

static bool pre_save(void *opaque, GError **errp)
{
    VirtioDevice *v = opaque;

    g_mutex_lock(&v->lock);
    v->wire = v->state;
    g_mutex_unlock(&v->lock);
    return true;
}

static bool check_wire(const VirtioDevice *v, GError **errp)
{
    const VirtioState *w = &v->wire;

    if (w->device_id != v->ops->id) {
        return error_set_protocol(errp, "the guest has virtio device %u in slot %u, here is %u (%s)",
                                  w->device_id, v->slot, v->ops->id, v->ops->driver);
    }
    if (w->status > UINT8_MAX || w->interrupt_status > (VIRTIO_INTERRUPT_QUEUE | VIRTIO_INTERRUPT_CONFIG)) {
        return error_set_protocol(errp, "status 0x%x or interrupt status 0x%x has bits that do not exist",
                                  w->status, w->interrupt_status);
    }
    if ((w->status & VIRTIO_STATUS_FEATURES_OK) && (w->driver_features & ~v->features)) {
        return error_set_protocol(errp, "%s %u: the guest uses features 0x%" G_GINT64_MODIFIER
                                        "x, which are not offered here",
                                  v->ops->driver, v->slot, w->driver_features & ~v->features);
    }
    for (unsigned q = 0; q < VIRTIO_QUEUES_MAX; q++) {
        if (w->queues[q].ready && (w->queues[q].ready > 1 || q >= v->ops->n_queues)) {
            return error_set_protocol(errp, "queue %u of %s cannot be ready", q, v->ops->driver);
        }
    }
    return true;
}

static bool post_load(void *opaque, int version, GError **errp)
{
    VirtioDevice *v = opaque;
    bool ok = true;

    if (!check_wire(v, errp)) {
        return false;
    }
    g_mutex_lock(&v->lock);
    v->state = v->wire;
    for (unsigned q = 0; q < v->ops->n_queues && ok; q++) {
        /* A guest that has broken its device has no queues that are looked at. */
        if (v->state.queues[q].ready && !(v->state.status & VIRTIO_STATUS_NEEDS_RESET)) {
            ok = virtqueue_map(v, q);
        }
    }
    /* Whatever the line is at: a load before this one may have failed. */
    v->raised = !v->state.interrupt_status;
    virtio_device_interrupt(v, 0);
    g_mutex_unlock(&v->lock);
    return ok ||
           error_set_protocol(errp, "a queue of %s %u is in no possible place", v->ops->driver, v->slot);
}

#define QUEUE(_name, _type) VMSTATE_FIELD(_name, _type, VirtQueueState)

static const VMStateField queue_fields[] = {
    QUEUE(size, VMSTATE_UINT16),
    QUEUE(ready, VMSTATE_UINT8),
    QUEUE(desc, VMSTATE_UINT64),
    QUEUE(driver, VMSTATE_UINT64),
    QUEUE(device, VMSTATE_UINT64),
    QUEUE(next_available, VMSTATE_UINT16),
    QUEUE(next_used, VMSTATE_UINT16),
    VMSTATE_END
};

static const VMStateDescription queue_vmsd = {
    .name = "virtqueue", .version = 1, .minimum_version = 1, .fields = queue_fields,
};

#define FIELD(_name, _type) \
    { .name = #_name, .type = (_type), .offset = offsetof(VirtioDevice, wire._name), \
      .size = sizeof(((VirtioDevice *)0)->wire._name) }

const VMStateField virtio_fields[] = {
    FIELD(device_id, VMSTATE_UINT32),
    FIELD(status, VMSTATE_UINT32),
    FIELD(interrupt_status, VMSTATE_UINT32),
    FIELD(device_features_sel, VMSTATE_UINT32),
    FIELD(driver_features_sel, VMSTATE_UINT32),
    FIELD(queue_sel, VMSTATE_UINT32),
    FIELD(driver_features, VMSTATE_UINT64),
    { .name = "queues", .type = VMSTATE_STRUCT, .offset = offsetof(VirtioDevice, wire.queues),
      .size = sizeof(VirtQueueState), .array_len = VIRTIO_QUEUES_MAX, .vmsd = &queue_vmsd },
    VMSTATE_END
};

const VMStateDescription virtio_vmsd = {
    .name = "virtio-mmio", .version = 1, .minimum_version = 1, .fields = virtio_fields,
    .pre_save = pre_save, .post_load = post_load,
};
