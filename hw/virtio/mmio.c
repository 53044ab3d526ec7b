/* SPDX-License-Identifier: BSD-2-Clause */
/* The registers of virtio over memory-mapped I/O, version 2 (virtio 1.2, section 4.2.2). */
#include "hw/virtio/virtio.h"

#include <string.h>

/* The queue that QueueSel means, or NULL: there is none of this number. */
static VirtQueueState *selected(VirtioDevice *v)
{
    return v->state.queue_sel < v->ops->n_queues ? &v->state.queues[v->state.queue_sel] : NULL;
}

/* ---- reading ---- */

static uint32_t read_register(VirtioDevice *v, uint64_t offset)
{
    const VirtQueueState *q = selected(v);

    switch (offset) {
    case VIRTIO_MMIO_MAGIC:
        return VIRTIO_MMIO_MAGIC_VALUE;
    case VIRTIO_MMIO_VERSION:
        return 2;
    case VIRTIO_MMIO_DEVICE_ID:
        return v->ops->id;
    case VIRTIO_MMIO_VENDOR_ID:
        return VIRTIO_MMIO_VENDOR;
    case VIRTIO_MMIO_DEVICE_FEATURES:
        return v->state.device_features_sel > 1
                   ? 0 : (uint32_t)(v->features >> 32 * v->state.device_features_sel);
    case VIRTIO_MMIO_QUEUE_NUM_MAX:
        return q ? v->ops->queue_size_max : 0;
    case VIRTIO_MMIO_QUEUE_READY:
        return q ? q->ready : 0;
    case VIRTIO_MMIO_INTERRUPT_STATUS:
        return v->state.interrupt_status;
    case VIRTIO_MMIO_STATUS:
        return v->state.status;
    default:
        /* No shared memory: the length of a region that is not there is all ones. */
        return offset >= VIRTIO_MMIO_SHM_LEN_LOW && offset <= VIRTIO_MMIO_SHM_BASE_HIGH ? UINT32_MAX : 0;
    }
}

uint64_t virtio_mmio_read(void *device, uint64_t offset, unsigned size)
{
    VirtioDevice *v = device;
    uint64_t value = 0;

    g_mutex_lock(&v->lock);
    if (offset >= VIRTIO_MMIO_CONFIG) {
        uint64_t bytes = 0;
        if (v->ops->read_config) {
            v->ops->read_config(v, offset - VIRTIO_MMIO_CONFIG, &bytes, MIN(size, sizeof(bytes)));
        }
        value = GUINT64_FROM_LE(bytes);
    } else if (size == 4 && offset % 4 == 0) {
        value = read_register(v, offset);
    }
    g_mutex_unlock(&v->lock);
    return value;
}

/* ---- writing ---- */

static void write_driver_features(VirtioDevice *v, uint32_t value)
{
    unsigned shift = v->state.driver_features_sel * 32;

    if (v->state.driver_features_sel <= 1 && !(v->state.status & VIRTIO_STATUS_FEATURES_OK)) {
        v->state.driver_features &= ~((uint64_t)UINT32_MAX << shift);
        v->state.driver_features |= (uint64_t)value << shift;
    }
}

/* What is being worked on is finished first: after this the memory of the queue is the guest's. */
static void wait_idle(VirtioDevice *v)
{
    v->held = true;
    while (v->in_flight) {
        g_cond_wait(&v->idle, &v->lock);
    }
    v->held = false;
}

static void write_ready(VirtioDevice *v, VirtQueueState *q, uint32_t value)
{
    bool ready = value & 1;

    if (ready == (bool)q->ready) {
        return;
    }
    if (!ready) {
        wait_idle(v);
        q->ready = 0;
        return;
    }
    if (!(v->state.status & VIRTIO_STATUS_NEEDS_RESET) && virtqueue_map(v, v->state.queue_sel)) {
        q->next_available = q->next_used = 0;
        q->ready = 1;
    }
}

static void notify(VirtioDevice *v, uint32_t q)
{
    if (q < v->ops->n_queues && virtqueue_usable(v, q)) {
        v->ops->notify(v, q);
    }
}

static void write_status(VirtioDevice *v, uint32_t value)
{
    uint32_t old = v->state.status;

    if (!value) {
        wait_idle(v);
        v->state = (VirtioState){ .device_id = v->ops->id };
        if (v->ops->reset) {
            v->ops->reset(v);
        }
        virtio_device_interrupt(v, 0);
        return;
    }
    /* Only the device says that it needs a reset, and only a reset takes bits away. */
    value = (value & 0xff & ~(uint32_t)VIRTIO_STATUS_NEEDS_RESET) | old;
    if (!(old & VIRTIO_STATUS_FEATURES_OK) && (value & VIRTIO_STATUS_FEATURES_OK) &&
        ((v->state.driver_features & ~v->features) || !(v->state.driver_features & VIRTIO_F_VERSION_1))) {
        value &= ~(uint32_t)VIRTIO_STATUS_FEATURES_OK;
    }
    if (!(value & VIRTIO_STATUS_FEATURES_OK)) {
        value &= ~(uint32_t)VIRTIO_STATUS_DRIVER_OK;
    }
    v->state.status = value;
    if (!(old & VIRTIO_STATUS_DRIVER_OK) && (value & VIRTIO_STATUS_DRIVER_OK)) {
        for (unsigned q = 0; q < v->ops->n_queues; q++) {
            notify(v, q);
        }
    }
}

static void put_half(uint64_t *to, bool high, uint32_t value)
{
    *to = high ? (*to & UINT32_MAX) | (uint64_t)value << 32 : (*to & ~(uint64_t)UINT32_MAX) | value;
}

/* Registers of the selected queue. */
static void write_queue(VirtioDevice *v, uint64_t offset, uint32_t value)
{
    VirtQueueState *q = selected(v);
    bool high = offset & 4;

    if (!q) {
        return;
    }
    if (offset == VIRTIO_MMIO_QUEUE_READY) {
        write_ready(v, q, value);
        return;
    }
    if (q->ready) {
        return;     /* the layout of a queue in use is fixed */
    }
    switch (offset) {
    case VIRTIO_MMIO_QUEUE_NUM:
        q->size = (uint16_t)MIN(value, UINT16_MAX);
        break;
    case VIRTIO_MMIO_QUEUE_DESC_LOW:
    case VIRTIO_MMIO_QUEUE_DESC_HIGH:
        put_half(&q->desc, high, value);
        break;
    case VIRTIO_MMIO_QUEUE_DRIVER_LOW:
    case VIRTIO_MMIO_QUEUE_DRIVER_HIGH:
        put_half(&q->driver, high, value);
        break;
    case VIRTIO_MMIO_QUEUE_DEVICE_LOW:
    case VIRTIO_MMIO_QUEUE_DEVICE_HIGH:
        put_half(&q->device, high, value);
        break;
    default:
        break;
    }
}

static void write_register(VirtioDevice *v, uint64_t offset, uint32_t value)
{
    switch (offset) {
    case VIRTIO_MMIO_DEVICE_FEATURES_SEL:
        v->state.device_features_sel = value;
        break;
    case VIRTIO_MMIO_DRIVER_FEATURES:
        write_driver_features(v, value);
        break;
    case VIRTIO_MMIO_DRIVER_FEATURES_SEL:
        v->state.driver_features_sel = value;
        break;
    case VIRTIO_MMIO_QUEUE_SEL:
        v->state.queue_sel = value;
        break;
    case VIRTIO_MMIO_QUEUE_NOTIFY:
        notify(v, value);
        break;
    case VIRTIO_MMIO_INTERRUPT_ACK:
        v->state.interrupt_status &= ~value;
        virtio_device_interrupt(v, 0);
        break;
    case VIRTIO_MMIO_STATUS:
        write_status(v, value);
        break;
    default:
        write_queue(v, offset, value);
        break;
    }
}

void virtio_mmio_write(void *device, uint64_t offset, unsigned size, uint64_t value)
{
    VirtioDevice *v = device;

    if (offset >= VIRTIO_MMIO_CONFIG || size != 4 || offset % 4) {
        return;     /* nothing in a configuration space here can be written */
    }
    g_mutex_lock(&v->lock);
    write_register(v, offset, (uint32_t)value);
    g_mutex_unlock(&v->lock);
}
