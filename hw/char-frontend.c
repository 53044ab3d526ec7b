/* SPDX-License-Identifier: BSD-2-Clause */
/* The front end of a character device, common to the serial port and the virtio console. */
#include "hw/char-frontend.h"

#include <string.h>

#include "util/error.h"

/* How much may wait in the character device; beyond it we look again after a while. */
#define PENDING_MAX (1u << 20)
#define RETRY_MS 10

/* ---- what is sent ---- */

/* Main loop. */
static gboolean drain_tx(gpointer opaque)
{
    CharFrontend *f = opaque;
    g_autoptr(GByteArray) bytes = NULL;

    g_mutex_lock(f->lock);
    if (f->chr && chardev_pending(f->chr) > PENDING_MAX) {
        f->tx_source = g_timeout_add(RETRY_MS, drain_tx, f);
        g_mutex_unlock(f->lock);
        return G_SOURCE_REMOVE;
    }
    bool was_full = char_frontend_full(f);
    bytes = f->tx;
    f->tx = g_byte_array_new();
    f->tx_source = 0;
    f->ops->sent(f->opaque, was_full);
    g_mutex_unlock(f->lock);
    if (f->chr) {
        chardev_write(f->chr, bytes->data, bytes->len);
    }
    return G_SOURCE_REMOVE;
}

bool char_frontend_full(const CharFrontend *f)
{
    return f->tx->len >= CHAR_TX_FULL;
}

uint8_t *char_frontend_send(CharFrontend *f, size_t len)
{
    guint before = f->tx->len;

    g_byte_array_set_size(f->tx, before + (guint)len);
    if (!f->tx_source) {
        f->tx_source = g_idle_add_full(G_PRIORITY_DEFAULT, drain_tx, f, NULL);
    }
    return f->tx->data + before;
}

/* ---- what is received ---- */

static bool half_full(const CharFrontend *f)
{
    return f->rx.count >= CHAR_RX_SIZE / 2;
}

/* Main loop. */
static gboolean resume_rx(gpointer opaque)
{
    CharFrontend *f = opaque;

    g_mutex_lock(f->lock);
    f->rx_source = 0;
    bool paused = f->rx_paused = half_full(f);
    g_mutex_unlock(f->lock);
    chardev_pause_receive(f->chr, paused);
    return G_SOURCE_REMOVE;
}

void char_frontend_put(CharFrontend *f, const uint8_t *bytes, size_t len)
{
    len = MIN(len, CHAR_RX_SIZE - f->rx.count);
    memcpy(f->rx.bytes + f->rx.count, bytes, len);
    f->rx.count += (uint32_t)len;
}

void char_frontend_consume(CharFrontend *f, uint32_t count)
{
    f->rx.count -= count;
    memmove(f->rx.bytes, f->rx.bytes + count, f->rx.count);
    if (f->rx_paused && !half_full(f) && !f->rx_source) {
        f->rx_source = g_idle_add(resume_rx, f);
    }
}

static void receive(void *opaque, const uint8_t *buf, size_t len, int *fds, size_t n_fds)
{
    CharFrontend *f = opaque;

    g_mutex_lock(f->lock);
    char_frontend_put(f, buf, len);
    f->ops->received(f->opaque);
    bool paused = half_full(f);
    f->rx_paused |= paused;
    g_mutex_unlock(f->lock);
    if (paused) {
        chardev_pause_receive(f->chr, true);
    }
}

static void nothing(void *opaque)
{
    /* a guest is not told of peers */
}

static const ChardevHandlers handlers = { .opened = nothing, .closed = nothing, .receive = receive };

/* ---- what travels ---- */

void char_frontend_save(CharFrontend *f)
{
    f->wire = f->rx;
}

bool char_frontend_check(const CharFrontend *f, GError **errp)
{
    if (f->wire.count > CHAR_RX_SIZE) {
        return error_set_protocol(errp, "rx_count is %u, at most %u bytes can have been received",
                                  f->wire.count, CHAR_RX_SIZE);
    }
    return true;
}

void char_frontend_load(CharFrontend *f)
{
    f->rx = f->wire;
    f->rx_paused = f->chr != NULL;
    if (f->chr && !f->rx_source) {
        f->rx_source = g_idle_add(resume_rx, f);
    }
}

/* ---- life ---- */

void char_frontend_init(CharFrontend *f, const CharFrontendOps *ops, void *opaque, GMutex *lock)
{
    f->ops = ops;
    f->opaque = opaque;
    f->lock = lock;
    f->tx = g_byte_array_new();
}

void char_frontend_connect(CharFrontend *f, Chardev *chr)
{
    f->chr = chr;
    chardev_set_handlers(chr, &handlers, f);
}

void char_frontend_clear(CharFrontend *f)
{
    if (f->chr) {
        chardev_set_handlers(f->chr, NULL, NULL);
        chardev_write(f->chr, f->tx->data, f->tx->len);
    }
    g_clear_handle_id(&f->tx_source, g_source_remove);
    g_clear_handle_id(&f->rx_source, g_source_remove);
    g_byte_array_unref(f->tx);
}
