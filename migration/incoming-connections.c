/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination's connections: which one is which, and what happens to those that nobody needs. */

/*
 * A source that uses multifd while we do not, or that has more channels than we, must not end well: pages in
 * a channel that we do not read are lost, and neither the main stream nor the other channels tell.  All
 * channels are connected before the first page is sent; so when the main stream has ended, every one of them
 * is in the listener's queue or has been accepted, and whoever says multifd among those that we have no use
 * for fails the migration.  Anybody else is closed, with a line in the log.
 */
#include "migration/context.h"

#include "migration/stream-format.h"
#include "util/error.h"

/* Connections that may be waiting to say what they are; the oldest goes when there are more. */
#define PROBES_MAX (256 + 64)      /* a source may open 256 before it says a word on any */

/* How long the guest may wait for a main thread that is too busy to look at new connections. */
#define DRAIN_US (1000 * 1000)

/* At least how long one that nobody needs may take to say that it is a multifd channel. */
#define EXTRA_MS 500

static void refuse_extra(Incoming *in)
{
    migration_host_log(&in->ctx->host, "Extra incoming migration connection; ignoring");
}

static void refuse_waiting(Incoming *in)
{
    for (guint i = 0; i < in->probes->len; i++) {
        refuse_extra(in);
    }
    g_ptr_array_set_size(in->probes, 0);
}

/* Nobody else is expected. */
static bool all_channels(const Incoming *in)
{
    return in->channel && (!in->multifd || multifd_recv_full(in->multifd));
}

static gboolean extra_timeout(gpointer opaque)
{
    Incoming *in = opaque;

    if (!in->probes->len || all_channels(in)) {
        in->extra_source = 0;
        refuse_waiting(in);
        return G_SOURCE_REMOVE;
    }
    return G_SOURCE_CONTINUE;       /* a channel's own thread finds out whether it is the last */
}

static void limit_extras(Incoming *in)
{
    if (in->channel && in->probes->len && !in->extra_source) {
        in->extra_source = g_timeout_add(EXTRA_MS, extra_timeout, in);
    }
}

void incoming_close_connections(Incoming *in, bool log)
{
    if (in->extra_source) {
        g_source_remove(in->extra_source);
        in->extra_source = 0;
    }
    if (log) {
        refuse_waiting(in);
    } else if (in->probes) {
        g_ptr_array_set_size(in->probes, 0);
    }
    listener_free(g_steal_pointer(&in->listener));
    rdma_listener_free(g_steal_pointer(&in->rdma_listener));
}

/* The load thread finds it when its stream ends, now or by itself. */
static void fail_mismatch(Incoming *in)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&in->ctx->lock);
    if (in->mismatch) {
        return;
    }
    in->mismatch = in->multifd
        ? g_error_new(GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                      "the source has more multifd channels than the %u expected here",
                      in->options->p.multifd_channels)
        : g_error_new(GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "the source uses multifd, which is not on here");
    if (in->channel) {
        channel_shutdown(in->channel);
    }
}

static void known_multifd(Incoming *in, Channel *channel)
{
    if (!in->multifd || !multifd_recv_add_channel(in->multifd, channel)) {
        fail_mismatch(in);
    }
}

static void known_other(Incoming *in, Channel *channel, uint32_t magic)
{
    const MigrationHost *host = &in->ctx->host;

    if (in->channel) {
        refuse_extra(in);
    } else if (magic != STREAM_MAGIC && in->multifd) {
        migration_host_log(host, "unknown channel magic: %u; ignoring", magic);
    } else {
        if (magic != STREAM_MAGIC) {
            /* The load thread finds the same, and fails the migration with its own words. */
            migration_host_log(host, "unknown channel magic: %u", magic);
        }
        incoming_begin_load(in, channel_ref(channel));
    }
}

static void connection_known(ChannelProbe *probe, uint32_t magic, const GError *error, void *opaque)
{
    Incoming *in = opaque;
    g_autoptr(Channel) channel = channel_ref(channel_probe_channel(probe));

    g_ptr_array_remove(in->probes, probe);
    if (error) {
        migration_host_log(&in->ctx->host, "Failed to peek at channel: %s", error->message);
        return;
    }
    incoming_fix_options(in);
    if (magic == MULTIFD_MAGIC && (in->multifd || in->channel)) {
        known_multifd(in, channel);
    } else {
        known_other(in, channel, magic);
    }
    limit_extras(in);
}

void incoming_connection_accepted(Listener *listener, Channel *accepted, void *opaque)
{
    Incoming *in = opaque;
    g_autoptr(Channel) channel = accepted;

    if (!channel_has_feature(channel, CHANNEL_FEATURE_PEEK) || channel_poll_fd(channel) < 0) {
        if (in->channel) {
            refuse_extra(in);
        } else {
            incoming_begin_load(in, g_steal_pointer(&channel));
        }
        return;
    }
    if (in->probes->len == PROBES_MAX) {
        refuse_extra(in);
        g_ptr_array_remove_index(in->probes, 0);
    }
    g_ptr_array_add(in->probes, channel_probe_new(channel, connection_known, in));
    limit_extras(in);
}

/* ---- before the end ---- */

/*
 * Runs at a low priority: GLib calls the listener and the probes before it as long as they have something to
 * do.
 */
static gboolean connections_seen(gpointer opaque)
{
    Incoming *in = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&in->ctx->lock);
    in->connections_seen = true;
    g_cond_broadcast(&in->ctx->cond);
    return G_SOURCE_REMOVE;
}

bool incoming_drain_connections(Incoming *in, GError **errp)
{
    if (!in->listens) {
        return true;
    }
    GSource *source = g_idle_source_new();
    g_source_set_priority(source, G_PRIORITY_LOW);
    g_source_set_callback(source, connections_seen, in, NULL);
    g_source_attach(source, NULL);

    int64_t until = g_get_monotonic_time() + DRAIN_US;
    g_mutex_lock(&in->ctx->lock);
    while (!in->connections_seen && !in->stopping &&
           g_cond_wait_until(&in->ctx->cond, &in->ctx->lock, until)) {
    }
    bool ok = !in->stopping && !in->mismatch;
    g_mutex_unlock(&in->ctx->lock);
    g_source_destroy(source);
    g_source_unref(source);
    if (!ok) {
        /* The mismatch, if there is one, takes the place of this. */
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "load of migration failed: stopped");
    }
    return ok;
}
