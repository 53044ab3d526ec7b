/* SPDX-License-Identifier: BSD-2-Clause */
/* virtio-console with its one port, on a character device. */

/*
 * The queues belong to the device's lock; the character device to the main thread.  Between them:
 *
 *   transmit queue -> tx -> main loop -> character device    requests stay in the queue while tx is full
 *   receive queue  <- rx <- main loop <- character device    the device is not read while rx is half full
 *
 * What is in rx travels with the guest.  What is in tx has left the guest: the source sends it on.
 */
#include "hw/virtio/virtio.h"

#include <string.h>

#include "system/vmstate.h"
#include "util/error.h"

#define CONSOLE_QUEUE_SIZE 64
#define RECEIVE 0u
#define TRANSMIT 1u
/* A longer request breaks the device. */
#define REQUEST_MAX (1u << 20)
/* Twice what the character device delivers at once: what arrives while it is half full has room. */
#define RX_SIZE 32768u
#define TX_FULL 65536u
/* How much may wait in the character device; beyond it we look again after a while. */
#define PENDING_MAX (1u << 20)
#define RETRY_MS 10

typedef struct Received {
    uint32_t count;             /* bytes at the start of @bytes */
    uint8_t bytes[RX_SIZE];
} Received;

typedef struct VirtioConsole {
    VirtioDevice device;
    Chardev *chr;               /* or NULL: what is sent vanishes.  Main thread */

    /* The device's lock. */
    VirtRequest request;
    GByteArray *tx;
    Received rx;
    guint tx_source;            /* of the main loop, or 0 */
    guint rx_source;
    bool rx_paused;

    Received wire;              /* of the thread that saves or loads */
} VirtioConsole;

/* ---- what the guest sends ---- */

static void transmit(VirtioConsole *c);

/* Main loop. */
static gboolean drain_tx(gpointer opaque)
{
    VirtioConsole *c = opaque;
    g_autoptr(GByteArray) bytes = NULL;

    g_mutex_lock(&c->device.lock);
    if (c->chr && chardev_pending(c->chr) > PENDING_MAX) {
        c->tx_source = g_timeout_add(RETRY_MS, drain_tx, c);
        g_mutex_unlock(&c->device.lock);
        return G_SOURCE_REMOVE;
    }
    bytes = c->tx;
    c->tx = g_byte_array_new();
    c->tx_source = 0;
    transmit(c);
    g_mutex_unlock(&c->device.lock);
    if (c->chr) {
        chardev_write(c->chr, bytes->data, bytes->len);
    }
    return G_SOURCE_REMOVE;
}

/* Lock held. */
static void transmit(VirtioConsole *c)
{
    VirtioDevice *v = &c->device;
    const VirtRequest *r = &c->request;

    /* A guest that adds requests all the while cannot keep us here. */
    for (unsigned i = 0; i < CONSOLE_QUEUE_SIZE; i++) {
        if (c->tx->len >= TX_FULL || !virtqueue_pop(v, TRANSMIT, &c->request)) {
            return;
        }
        if (r->read_len > REQUEST_MAX) {
            virtio_device_break(v, "a request of a console is too long");
            return;
        }
        guint len = c->tx->len;
        g_byte_array_set_size(c->tx, len + (guint)r->read_len);
        virtrequest_read(r, 0, c->tx->data + len, r->read_len);
        virtqueue_push(v, TRANSMIT, r, 0);
        /* Something to do in the main loop also for requests of nothing: it goes on with the queue. */
        if (!c->tx_source) {
            c->tx_source = g_idle_add_full(G_PRIORITY_DEFAULT, drain_tx, c, NULL);
        }
    }
}

/* ---- what the guest receives ---- */

/* Main loop. */
static gboolean resume_rx(gpointer opaque)
{
    VirtioConsole *c = opaque;

    g_mutex_lock(&c->device.lock);
    c->rx_source = 0;
    c->rx_paused = c->rx.count >= RX_SIZE / 2;
    bool paused = c->rx_paused;
    g_mutex_unlock(&c->device.lock);
    chardev_pause_receive(c->chr, paused);
    return G_SOURCE_REMOVE;
}

/* Lock held: into the guest's buffers, as far as there are any. */
static void deliver(VirtioConsole *c)
{
    for (unsigned i = 0; i < CONSOLE_QUEUE_SIZE; i++) {
        if (!c->rx.count || !virtqueue_pop(&c->device, RECEIVE, &c->request)) {
            break;
        }
        size_t n = virtrequest_write(&c->device, &c->request, 0, c->rx.bytes, c->rx.count);
        c->rx.count -= (uint32_t)n;
        memmove(c->rx.bytes, c->rx.bytes + n, c->rx.count);
        virtqueue_push(&c->device, RECEIVE, &c->request, (uint32_t)n);
    }
    if (c->rx_paused && c->rx.count < RX_SIZE / 2 && !c->rx_source) {
        c->rx_source = g_idle_add(resume_rx, c);
    }
}

static void receive(void *opaque, const uint8_t *buf, size_t len, int *fds, size_t n_fds)
{
    VirtioConsole *c = opaque;

    g_mutex_lock(&c->device.lock);
    size_t n = MIN(len, RX_SIZE - c->rx.count);
    memcpy(c->rx.bytes + c->rx.count, buf, n);
    c->rx.count += (uint32_t)n;
    deliver(c);
    bool paused = c->rx.count >= RX_SIZE / 2;
    c->rx_paused |= paused;
    g_mutex_unlock(&c->device.lock);
    if (paused) {
        chardev_pause_receive(c->chr, true);
    }
}

static void nothing(void *opaque)
{
    /* the guest is not told of peers */
}

static const ChardevHandlers handlers = { .opened = nothing, .closed = nothing, .receive = receive };

/* ---- as a device ---- */

static void console_notify(VirtioDevice *v, unsigned q)
{
    VirtioConsole *c = (VirtioConsole *)v;

    if (q == TRANSMIT) {
        transmit(c);
    } else {
        deliver(c);
    }
}

/* What was typed was for the guest that has gone. */
static void console_reset(VirtioDevice *v)
{
    VirtioConsole *c = (VirtioConsole *)v;

    c->rx.count = 0;
    deliver(c);
}

static void console_free(VirtioDevice *v)
{
    VirtioConsole *c = (VirtioConsole *)v;

    if (c->chr) {
        chardev_set_handlers(c->chr, NULL, NULL);
        chardev_write(c->chr, c->tx->data, c->tx->len);
    }
    g_clear_handle_id(&c->tx_source, g_source_remove);
    g_clear_handle_id(&c->rx_source, g_source_remove);
    g_byte_array_unref(c->tx);
    virtio_device_clear(v);
    g_free(c);
}

static const VirtioDeviceOps console_ops = {
    .id = VIRTIO_ID_CONSOLE,
    .driver = "virtio-serial-device",
    .n_queues = 2,
    .queue_size_max = CONSOLE_QUEUE_SIZE,
    .notify = console_notify,
    .reset = console_reset,
    .free = console_free,
};

/* ---- its section ---- */

/* The main thread may be receiving. */
static bool console_pre_save(void *opaque, GError **errp)
{
    VirtioConsole *c = opaque;

    g_mutex_lock(&c->device.lock);
    c->wire = c->rx;
    g_mutex_unlock(&c->device.lock);
    return true;
}

static bool console_post_load(void *opaque, int version, GError **errp)
{
    VirtioConsole *c = opaque;

    if (c->wire.count > RX_SIZE) {
        return error_set_protocol(errp, "rx_count is %u, at most %u bytes can have been received",
                                  c->wire.count, RX_SIZE);
    }
    g_mutex_lock(&c->device.lock);
    c->rx = c->wire;
    c->rx_paused = c->chr != NULL;
    if (c->chr && !c->rx_source) {
        c->rx_source = g_idle_add(resume_rx, c);
    }
    g_mutex_unlock(&c->device.lock);
    return true;
}

static const VMStateField console_fields[] = {
    { .name = "rx_count", .type = VMSTATE_UINT32, .offset = offsetof(VirtioConsole, wire.count),
      .size = sizeof(uint32_t) },
    { .name = "rx", .type = VMSTATE_BUFFER, .offset = offsetof(VirtioConsole, wire.bytes), .size = RX_SIZE },
    VMSTATE_END
};

static const VMStateDescription console_vmsd = {
    .name = "virtio-console", .version = 1, .minimum_version = 1, .fields = console_fields,
    .pre_save = console_pre_save, .post_load = console_post_load,
};

VirtioDevice *virtio_console_new(Machine *m)
{
    VirtioConsole *c = g_new0(VirtioConsole, 1);

    c->tx = g_byte_array_new();
    virtio_device_init(&c->device, &console_ops, m, 0);
    c->device.kind_entry.vmsd = &console_vmsd;
    return &c->device;
}

bool virtio_console_attach(VirtioDevice *v, Chardev *chr)
{
    VirtioConsole *c = (VirtioConsole *)v;

    if (v->ops != &console_ops || c->chr) {
        return false;
    }
    c->chr = chr;
    chardev_set_handlers(chr, &handlers, c);
    return true;
}
