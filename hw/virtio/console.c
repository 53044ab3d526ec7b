/* SPDX-License-Identifier: BSD-2-Clause */
/* virtio-console with its one port, on a character device. */

/*
 * The queues belong to the device's lock.  Requests stay in the transmit queue while the front end of the
 * character device is full; what is received stays there until the guest offers buffers.
 */
#include "hw/virtio/virtio.h"

#include "hw/char-frontend.h"

#define CONSOLE_QUEUE_SIZE 64
#define RECEIVE 0u
#define TRANSMIT 1u
/* A longer request breaks the device. */
#define REQUEST_MAX (1u << 20)

typedef struct VirtioConsole {
    VirtioDevice device;
    CharFrontend frontend;      /* its lock is the device's, as @request's */
    VirtRequest request;
} VirtioConsole;

/* ---- what the guest sends ---- */

/* Lock held. */
static void transmit(VirtioConsole *c)
{
    VirtioDevice *v = &c->device;
    const VirtRequest *r = &c->request;

    /* A guest that adds requests all the while cannot keep us here. */
    for (unsigned i = 0; i < CONSOLE_QUEUE_SIZE; i++) {
        if (char_frontend_full(&c->frontend) || !virtqueue_pop(v, TRANSMIT, &c->request)) {
            return;
        }
        if (r->read_len > REQUEST_MAX) {
            virtio_device_break(v, "a request of a console is too long");
            return;
        }
        virtrequest_read(r, 0, char_frontend_send(&c->frontend, r->read_len), r->read_len);
        virtqueue_push(v, TRANSMIT, r, 0);
    }
}

/* Goes on with the queue, also after requests of nothing. */
static void sent(void *opaque, bool was_full)
{
    transmit(opaque);
}

/* ---- what the guest receives ---- */

/* Lock held: into the guest's buffers, as far as there are any. */
static void deliver(VirtioConsole *c)
{
    const CharReceived *rx = &c->frontend.rx;

    for (unsigned i = 0; i < CONSOLE_QUEUE_SIZE; i++) {
        if (!rx->count || !virtqueue_pop(&c->device, RECEIVE, &c->request)) {
            return;
        }
        size_t n = virtrequest_write(&c->device, &c->request, 0, rx->bytes, rx->count);
        char_frontend_consume(&c->frontend, (uint32_t)n);
        virtqueue_push(&c->device, RECEIVE, &c->request, (uint32_t)n);
    }
}

static void received(void *opaque)
{
    deliver(opaque);
}

static const CharFrontendOps frontend_ops = { .received = received, .sent = sent };

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

    char_frontend_consume(&c->frontend, c->frontend.rx.count);
}

static void console_free(VirtioDevice *v)
{
    VirtioConsole *c = (VirtioConsole *)v;

    char_frontend_clear(&c->frontend);
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
    char_frontend_save(&c->frontend);
    g_mutex_unlock(&c->device.lock);
    return true;
}

static bool console_post_load(void *opaque, int version, GError **errp)
{
    VirtioConsole *c = opaque;

    if (!char_frontend_check(&c->frontend, errp)) {
        return false;
    }
    g_mutex_lock(&c->device.lock);
    char_frontend_load(&c->frontend);
    g_mutex_unlock(&c->device.lock);
    return true;
}

static const VMStateField console_fields[] = {
    CHAR_FRONTEND_FIELDS(VirtioConsole, frontend),
    VMSTATE_END
};

static const VMStateDescription console_vmsd = {
    .name = "virtio-console", .version = 1, .minimum_version = 1, .fields = console_fields,
    .pre_save = console_pre_save, .post_load = console_post_load,
};

VirtioDevice *virtio_console_new(Machine *m)
{
    VirtioConsole *c = g_new0(VirtioConsole, 1);

    virtio_device_init(&c->device, &console_ops, m, 0);
    char_frontend_init(&c->frontend, &frontend_ops, c, &c->device.lock);
    c->device.kind_entry.vmsd = &console_vmsd;
    return &c->device;
}

bool virtio_console_attach(VirtioDevice *v, Chardev *chr)
{
    VirtioConsole *c = (VirtioConsole *)v;

    if (v->ops != &console_ops || c->frontend.chr) {
        return false;
    }
    char_frontend_connect(&c->frontend, chr);
    return true;
}
