/* SPDX-License-Identifier: BSD-2-Clause */
/* What is this new connection for? */

/*
 * A descriptor with one to three bytes waiting is readable for ever, so the watch on it cannot tell when
 * more has come; then a timer looks again.
 */
#include "migration/channel-probe.h"

#include "util/be.h"
#include "util/error.h"

#include <glib-unix.h>
#include <poll.h>

#define MAGIC_SIZE 4
#define RETRY_MS 50

struct ChannelProbe {
    Channel *channel;
    ChannelProbeFunc func;
    void *opaque;
    guint source;           /* the watch, or the timer; 0 after the verdict */
};

static void verdict(ChannelProbe *p, uint32_t magic, const GError *error)
{
    p->source = 0;
    p->func(p, magic, error, p->opaque);
}

/* True if the peer will send nothing more. */
static bool peer_has_closed(ChannelProbe *p)
{
    struct pollfd fd = { .fd = channel_poll_fd(p->channel), .events = POLLRDHUP };
    return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static gboolean look_again(gpointer opaque);

/* The descriptor is readable: this does not block. */
static void look(ChannelProbe *p)
{
    uint8_t buf[MAGIC_SIZE];
    g_autoptr(GError) error = NULL;
    bool closed = peer_has_closed(p);
    ssize_t n = channel_peek(p->channel, buf, sizeof(buf), &error);

    if (n == MAGIC_SIZE) {
        verdict(p, load_be32(buf), NULL);
    } else if (n < 0) {
        verdict(p, 0, error);
    } else if (n == 0 || closed) {
        g_set_error(&error, GODWIT_ERROR, GODWIT_ERROR_EOF, "it was closed after %zd bytes", n);
        verdict(p, 0, error);
    } else {
        p->source = g_timeout_add(RETRY_MS, look_again, p);
    }
}

static gboolean look_again(gpointer opaque)
{
    look(opaque);
    return G_SOURCE_REMOVE;
}

static gboolean readable(gint fd, GIOCondition condition, gpointer opaque)
{
    look(opaque);
    return G_SOURCE_REMOVE;
}

static void watch(ChannelProbe *p)
{
    p->source = g_unix_fd_add(channel_poll_fd(p->channel), G_IO_IN | G_IO_HUP | G_IO_ERR, readable, p);
}

ChannelProbe *channel_probe_new(Channel *channel, ChannelProbeFunc func, void *opaque)
{
    ChannelProbe *p = g_new0(ChannelProbe, 1);
    p->channel = channel_ref(channel);
    p->func = func;
    p->opaque = opaque;
    watch(p);
    return p;
}

void channel_probe_free(ChannelProbe *p)
{
    if (!p) {
        return;
    }
    if (p->source) {
        g_source_remove(p->source);
    }
    channel_unref(p->channel);
    g_free(p);
}

Channel *channel_probe_channel(ChannelProbe *p)
{
    return p->channel;
}
