/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: the stream as QEMU_FILE messages: one connection in each direction behind one Channel. */

/*
 * Each connection is used by one thread: that which writes to (source) or reads from (destination) the main
 * stream has the first one, that which reads (source) or writes (destination) return path messages has the
 * second.  Any thread may shut both down.
 *
 * Writing puts bytes into the queue of the connection, where they wait for a READY; the writer's thread sends
 * them when it comes by again, at the latest in RamSinkOps.settle or in close.  A read asks for a message
 * only when all of the last one has been read, and returns what came: the bytes behind a hook marker are a
 * command, and nobody may have asked for them as stream bytes.
 */
#include "migration/rdma/rdma-channel.h"

#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

/* Messages that may wait before the writer does. */
#define QUEUE_MAX 3

typedef struct RdmaChannel {
    Channel base;
    const InetSocketAddress *address;   /* source; with options and return_path fixed */
    const MigrationOptions *options;
    bool wants_return_path;
    bool is_source;
    RdmaConnection *main;               /* fixed */
    RdmaConnection *back;               /* destination: set once, under the lock; source: fixed */
    bool hook_open;                     /* the writer's thread */
    bool closed;

    GMutex lock;
    GCond cond;
    bool down;                          /* [lock] */

    /* The reader's thread: what is left of the last message; whether it has asked for one yet. */
    bool asked;
    const uint8_t *bytes;
    size_t n_bytes;
} RdmaChannel;

/* ---- who reads and writes which ---- */

static RdmaConnection *reader(RdmaChannel *r)
{
    return r->is_source ? g_atomic_pointer_get(&r->back) : r->main;
}

/* The destination's second connection may still be on its way. */
static RdmaConnection *wait_back(RdmaChannel *r, GError **errp)
{
    int64_t until = g_get_monotonic_time() + RDMA_LIMIT_RETURN_PATH * 1000;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);

    while (!r->back && !r->down && g_cond_wait_until(&r->cond, &r->lock, until)) {
    }
    if (!r->back) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO,
                    "RDMA ERROR: the source has made no connection for its return path");
    }
    return r->back;
}

static RdmaConnection *writer(RdmaChannel *r, GError **errp)
{
    return r->is_source ? r->main : wait_back(r, errp);
}

/*
 * A QEMU posts the first receive of its second connection only after that is established, which it is here
 * before, and it allows no retry: a READY sent at once can end the connection.
 */
static void before_first_ready(RdmaChannel *r)
{
    bool patient = r->asked || !r->is_source || reader(r)->private_data.godwit;
    int64_t until = g_get_monotonic_time() + RDMA_FIRST_READY * 1000;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);

    while (!patient && !r->down && g_cond_wait_until(&r->cond, &r->lock, until)) {
    }
    r->asked = true;
}

/* ---- operations ---- */

static ssize_t rdma_readv(Channel *channel, const struct iovec *iov, int n, GError **errp)
{
    RdmaChannel *r = (RdmaChannel *)channel;
    g_autoptr(GError) error = NULL;
    size_t done = 0;

    if (!reader(r)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "RDMA ERROR: there is no return path");
        return -1;
    }
    if (!r->n_bytes) {
        RdmaHeader header;
        before_first_ready(r);
        if (!rdma_connection_receive(reader(r), &header, &r->bytes, &error)) {
            if (!error) {
                return 0;
            }
            g_propagate_error(errp, g_steal_pointer(&error));
            return -1;
        }
        if (header.type != RDMA_CONTROL_QEMU_FILE) {
            error_set_protocol(errp, "Was expecting a QEMU_FILE (3) control message, but got: %s (%u)",
                               rdma_control_name(header.type), header.type);
            return -1;
        }
        r->n_bytes = header.length;
    }
    for (int i = 0; i < n && r->n_bytes; i++) {
        size_t len = MIN(iov[i].iov_len, r->n_bytes);
        memcpy(iov[i].iov_base, r->bytes, len);
        r->bytes += len;
        r->n_bytes -= len;
        done += len;
    }
    return (ssize_t)done;
}

static size_t gather(uint8_t *to, size_t room, const struct iovec *iov, int n)
{
    size_t done = 0;

    for (int i = 0; i < n && done < room; i++) {
        size_t len = MIN(iov[i].iov_len, room - done);
        if (len) {
            memcpy(to + done, iov[i].iov_base, len);
        }
        done += len;
    }
    return done;
}

static ssize_t rdma_writev(Channel *channel, const struct iovec *iov, int n, const int *fds, int n_fds,
                           unsigned flags, GError **errp)
{
    RdmaChannel *r = (RdmaChannel *)channel;
    RdmaConnection *c = writer(r, errp);
    size_t total = 0;

    if (!c) {
        return -1;
    }
    if (r->hook_open) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED,
                    "RDMA ERROR: stream bytes between a hook marker and the end of its commands");
        return -1;
    }
    for (int i = 0; i < n; i++) {
        total += iov[i].iov_len;
    }
    total = MIN(total, RDMA_PAYLOAD_MAX);
    if (!total) {
        return 0;
    }
    g_autofree uint8_t *bytes = g_malloc(total);
    gather(bytes, total, iov, n);
    /* The destination's last message gives it the guest: whether it has arrived is to be known. */
    if (!r->is_source) {
        rdma_connection_queue(c, RDMA_CONTROL_QEMU_FILE, 1, bytes, total, NULL);
        return rdma_connection_deliver(c, errp) ? (ssize_t)total : -1;
    }
    bool ok = rdma_connection_queue(c, RDMA_CONTROL_QEMU_FILE, 1, bytes, total, errp) &&
              rdma_connection_flush(c, QUEUE_MAX, errp);
    return ok ? (ssize_t)total : -1;
}

static void rdma_shutdown(Channel *channel)
{
    RdmaChannel *r = (RdmaChannel *)channel;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);

    r->down = true;
    rdma_connection_notify(r->main, RDMA_FLAG_SHUTDOWN);
    if (r->back) {
        rdma_connection_notify(r->back, RDMA_FLAG_SHUTDOWN);
    }
    g_cond_broadcast(&r->cond);
}

/* The last bytes have to arrive.  If they have, a shutdown that came meanwhile came too late. */
static bool finish(RdmaConnection *c, GError **errp)
{
    return c->error || !rdma_connection_has(c, RDMA_FLAG_ESTABLISHED)
        ? rdma_connection_check(c, errp)
        : rdma_connection_arrived(c, errp);
}

static bool rdma_close(Channel *channel, GError **errp)
{
    RdmaChannel *r = (RdmaChannel *)channel;
    bool failed, ok = true;

    if (r->closed) {
        return true;
    }
    r->closed = true;
    g_mutex_lock(&r->lock);
    failed = r->down;
    RdmaConnection *back = r->back;
    g_mutex_unlock(&r->lock);
    if (r->is_source) {
        ok = finish(r->main, errp);
    } else if (!failed) {
        ok = !back || finish(back, errp);
        rdma_connection_await_end(r->main);
    }
    /* Who fails at the destination shuts the channel down before. */
    failed = failed || (r->is_source && (!ok || r->main->error));
    if (back) {
        rdma_connection_close(back, false);
    }
    rdma_connection_close(r->main, failed);
    return ok;
}

static void rdma_free(Channel *channel)
{
    RdmaChannel *r = (RdmaChannel *)channel;

    rdma_connection_free(r->back);
    rdma_connection_free(r->main);
    g_mutex_clear(&r->lock);
    g_cond_clear(&r->cond);
    g_free(r);
}

static int rdma_poll_fd(Channel *channel)
{
    return -1;
}

static const ChannelOps rdma_channel_ops = {
    .kind = "RDMA connection",
    .readv = rdma_readv,
    .writev = rdma_writev,
    .shutdown = rdma_shutdown,
    .close = rdma_close,
    .poll_fd = rdma_poll_fd,
    .free = rdma_free,
};

static RdmaChannel *channel_new(RdmaConnection *main, bool is_source)
{
    RdmaChannel *r = g_new0(RdmaChannel, 1);

    r->base.ops = &rdma_channel_ops;
    r->base.ref_count = 1;
    r->base.features = CHANNEL_FEATURE_READ | CHANNEL_FEATURE_WRITE;
    r->main = main;
    r->is_source = is_source;
    g_mutex_init(&r->lock);
    g_cond_init(&r->cond);
    return r;
}

/* ---- source ---- */

bool rdma_available(GError **errp)
{
    struct rdma_event_channel *events = fault_point("rdma-open", errp) ? NULL : rdma_create_event_channel();

    if (events) {
        rdma_destroy_event_channel(events);
    } else if (errp && !*errp) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "RDMA ERROR: could not create CM channel");
    }
    return events != NULL;
}

Channel *rdma_channel_new(const RdmaSourceConfig *config, GError **errp)
{
    g_autoptr(GError) error = NULL;

    if (!*config->address->host) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "RDMA ERROR: RDMA hostname has not been set");
        return NULL;
    }
    if (!rdma_available(&error)) {
        g_propagate_error(errp, g_steal_pointer(&error));
        return NULL;
    }
    RdmaChannel *r = channel_new(rdma_connection_new(RDMA_SENDER, config->counters), true);
    r->address = config->address;
    r->options = config->options;
    r->wants_return_path = config->return_path;
    if (config->return_path) {
        r->back = rdma_connection_new(RDMA_RECEIVER, NULL);
    }
    return &r->base;
}

bool rdma_channel_connect(Channel *channel, GCancellable *cancellable, GError **errp)
{
    RdmaChannel *r = (RdmaChannel *)channel;
    RdmaPrivate ask = {
        .version = RDMA_VERSION, .pin_all = r->options->caps[MIGRATION_CAPABILITY_RDMA_PIN_ALL],
        .godwit = true, .batches = true, .chunk_shift = r->options->p.x_rdma_chunk_shift,
    };

    if (!rdma_connection_connect(r->main, r->address, &ask, RDMA_LIMIT_CONNECT, cancellable, errp)) {
        return false;
    }
    if (!r->wants_return_path) {
        return true;
    }
    if (!rdma_connection_connect(r->back, r->address, &ask, RDMA_LIMIT_RETURN_PATH, cancellable, errp)) {
        g_prefix_error(errp, "return path: ");
        return false;
    }
    if (!r->back->private_data.godwit) {
        rdma_control_first_is_free(&r->back->control);
    }
    return true;
}

RdmaConnection *rdma_channel_main(Channel *channel)
{
    return ((RdmaChannel *)channel)->main;
}

void rdma_channel_set_hook(Channel *channel, bool open)
{
    ((RdmaChannel *)channel)->hook_open = open;
}

/* ---- destination ---- */

Channel *rdma_channel_accepted(RdmaConnection *c)
{
    return &channel_new(c, false)->base;
}

void rdma_channel_set_return_path(Channel *channel, RdmaConnection *c)
{
    RdmaChannel *r = (RdmaChannel *)channel;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);

    r->back = c;
    if (r->down) {
        rdma_connection_notify(c, RDMA_FLAG_SHUTDOWN);
    }
    g_cond_broadcast(&r->cond);
}

bool rdma_channel_has_bytes(Channel *channel)
{
    return ((RdmaChannel *)channel)->n_bytes > 0;
}
