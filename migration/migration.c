/* SPDX-License-Identifier: BSD-2-Clause */
/* The migration context: what the VMM calls, and the life of outgoing migrations. */

/*
 * Who runs, who owns what
 *
 * Main thread: everything in include/migration/migration.h that does not say "any thread".  It makes the
 * Migration and Incoming objects, starts their threads, and joins a thread only when that thread is known to
 * be past its last step (or, in migration_context_free(), has been told to end).  It never waits for a peer,
 * a disk or a vCPU.
 *
 * Migration thread (precopy.c): one for each outgoing migration, from connecting to the final state.  It owns
 * the RamSave, the stream writer, the section writer and the dirty log of its migration.  Nobody else touches
 * guest state for it: it stops the guest and, unless the migration completes, lets it run again.
 *
 * Return path thread (source-return-path.c): reads the destination's messages and leaves the result in the
 * Migration.  Started and joined by the migration thread.
 *
 * Load thread (incoming.c): one for each incoming stream; owns the LoadVM.
 *
 * Locks
 *
 * state.step_lock, one for each direction: makes a step of the state and its event one thing.  Held while the
 * host's event_status runs.  Taken first.
 * ctx->lock: whatever the structs in context.h mark so.  Never held while the host or a channel is called
 * (channel_shutdown() apart, which does not block).
 *
 * How a running migration is ended from outside: under the lock a flag is set, the main channel is shut down,
 * the cancellable of a pending connect is cancelled and the condition is broadcast; so whatever the thread is
 * doing returns at once, and it looks at the flag.  What a cancelled or failed migration means for the guest
 * is decided in one place, the end of the migration thread; there a migration that has been handed over
 * completely counts as completed even if somebody has cancelled it in the meantime, because then the guest
 * runs on the destination.
 */
#include "migration/migration.h"

#include "migration/context.h"
#include "migration/precopy.h"
#include "util/error.h"

#include <string.h>

/* ---- context ---- */

static void send_status_event(MigrationContext *ctx, MigrationStatus status)
{
    if (migration_capability(ctx->options, MIGRATION_CAPABILITY_EVENTS)) {
        ctx->host.ops->event_status(ctx->host.opaque, status);
    }
}

static void status_changed(void *opaque, MigrationStatus status)
{
    send_status_event(opaque, status);
}

MigrationContext *migration_context_new(const MigrationHostOps *ops, void *opaque)
{
    MigrationContext *ctx = g_new0(MigrationContext, 1);
    ctx->host = (MigrationHost){ ops, opaque };
    ctx->options = migration_option_store_new();
    migration_option_store_set_dirty_limiter(ctx->options, ops->dirty_limiter(opaque) != NULL);
    ctx->blockers = g_array_new(FALSE, FALSE, sizeof(MigrationBlocker));
    g_mutex_init(&ctx->lock);
    g_cond_init(&ctx->cond);
    migration_state_init(&ctx->outgoing_state, MIGRATION_OUTGOING, &ctx->lock, &ctx->cond, status_changed,
                         ctx);
    migration_state_init(&ctx->incoming_state, MIGRATION_INCOMING, &ctx->lock, &ctx->cond, status_changed,
                         ctx);
    return ctx;
}

/* The thread has ended or is about to. */
static void outgoing_free(Migration *m)
{
    if (!m) {
        return;
    }
    if (m->thread) {
        g_thread_join(m->thread);
    }
    g_clear_error(&m->error);
    g_clear_object(&m->cancellable);
    qapi_free_SocketAddress(m->connect_to);
    qapi_free_InetSocketAddress(m->rdma);
    channel_unref(m->channel);
    g_clear_pointer(&m->multifd_channels, g_ptr_array_unref);
    g_free(m->multifd);
    qapi_free_DirtyLogProviderStatsList(m->figures.dirty_log);
    migration_options_free(m->options);
    g_free(m);
}

void migration_context_free(MigrationContext *ctx)
{
    if (!ctx) {
        return;
    }
    migration_cancel(ctx, NULL);
    outgoing_free(ctx->outgoing);
    incoming_free(ctx->incoming);
    for (guint i = 0; i < ctx->blockers->len; i++) {
        g_free(g_array_index(ctx->blockers, MigrationBlocker, i).reason);
    }
    g_array_unref(ctx->blockers);
    migration_state_clear(&ctx->outgoing_state);
    migration_state_clear(&ctx->incoming_state);
    g_cond_clear(&ctx->cond);
    g_mutex_clear(&ctx->lock);
    migration_option_store_free(ctx->options);
    g_free(ctx);
}

MigrationOptionStore *migration_options(MigrationContext *ctx)
{
    return ctx->options;
}

bool migration_is_active(const MigrationContext *ctx)
{
    return migration_status_is_running(migration_state_get(&ctx->outgoing_state));
}

void migration_update_busy(MigrationContext *ctx, bool outgoing, bool incoming)
{
    migration_option_store_set_busy(ctx->options, outgoing, incoming);
}

/* ---- blockers ---- */

unsigned migration_add_blocker(MigrationContext *ctx, const char *reason)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&ctx->lock);
    MigrationBlocker b = { ++ctx->last_blocker, g_strdup(reason) };
    g_array_append_val(ctx->blockers, b);
    return b.id;
}

void migration_del_blocker(MigrationContext *ctx, unsigned id)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&ctx->lock);
    for (guint i = 0; i < ctx->blockers->len; i++) {
        MigrationBlocker *b = &g_array_index(ctx->blockers, MigrationBlocker, i);
        if (b->id == id) {
            g_free(b->reason);
            g_array_remove_index(ctx->blockers, i);
            return;
        }
    }
}

/* ---- starting ---- */

#define MEMORY_LOST "Guest memory is incomplete: the file it was saved to could not be read"

static bool refuse_start(GError **errp, const char *text)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, "%s", text);
    return false;
}

static bool may_start(MigrationContext *ctx, bool resume, GError **errp)
{
    RunState state = ctx->host.ops->run_state(ctx->host.opaque);

    if (resume) {
        return refuse_start(errp, "Cannot resume if there is no paused migration");
    }
    if (migration_is_active(ctx)) {
        return refuse_start(errp, "There's a migration process in progress");
    }
    if (state == RUN_STATE_INMIGRATE) {
        return refuse_start(errp, "Guest is waiting for an incoming migration");
    }
    if (state == RUN_STATE_POSTMIGRATE) {
        return refuse_start(errp, "Can't migrate the vm that was paused due to previous migration");
    }
    if (migration_state_get(&ctx->incoming_state) == MIGRATION_STATUS_POSTCOPY_ACTIVE) {
        return refuse_start(errp, "Guest memory is still being read from the file it was saved to");
    }
    if (ctx->incoming && ctx->incoming->memory_lost) {
        return refuse_start(errp, MEMORY_LOST);
    }
    if (ctx->blockers->len > 0) {
        return refuse_start(errp, g_array_index(ctx->blockers, MigrationBlocker, 0).reason);
    }
    return true;
}

static Migration *outgoing_new(MigrationContext *ctx, MigrationOptions *options)
{
    Migration *m = g_new0(Migration, 1);
    m->ctx = ctx;
    m->options = options;
    m->pages.fd = -1;
    m->cancellable = g_cancellable_new();
    m->return_path = options->caps[MIGRATION_CAPABILITY_RETURN_PATH] ||
                     options->caps[MIGRATION_CAPABILITY_POSTCOPY_RAM];
    m->acks_pending =
        options->caps[MIGRATION_CAPABILITY_SWITCHOVER_ACK] && options->props.switchover_ack_legacy;
    m->figures.start_us = g_get_monotonic_time();
    m->figures.expected_downtime_ms = (int64_t)options->p.downtime_limit;
    m->figures.xbzrle_cache_size = options->p.xbzrle_cache_size;
    return m;
}

/* From here on queries see the new migration. */
DirtyLimiter *migration_dirty_limiter(const Migration *m)
{
    const MigrationHost *host = &m->ctx->host;
    return m->options->caps[MIGRATION_CAPABILITY_DIRTY_LIMIT] ? host->ops->dirty_limiter(host->opaque) : NULL;
}

static void replace_outgoing(MigrationContext *ctx, Migration *m)
{
    Migration *old = ctx->outgoing;
    g_mutex_lock(&ctx->lock);
    ctx->outgoing = m;
    g_mutex_unlock(&ctx->lock);
    outgoing_free(old);
    migration_update_busy(ctx, true, false);
    migration_state_set(&ctx->outgoing_state, MIGRATION_STATUS_SETUP);
}

/* The transport could not even be opened: told both to the caller and by the state. */
static void fail_at_once(Migration *m, const GError *error)
{
    MigrationContext *ctx = m->ctx;
    g_mutex_lock(&ctx->lock);
    m->error = g_error_copy(error);
    g_mutex_unlock(&ctx->lock);
    migration_state_set(&ctx->outgoing_state, MIGRATION_STATUS_FAILING);
    migration_update_busy(ctx, false, false);
    migration_state_set(&ctx->outgoing_state, MIGRATION_STATUS_FAILED);
}

/* The channel is there at once, so that it can be shut down; connecting it takes time. */
static bool open_rdma(Migration *m, const InetSocketAddress *addr, GError **errp)
{
    m->rdma = qapi_clone_InetSocketAddress(addr);
    RdmaSourceConfig config = { m->rdma, m->options, m->return_path, &m->rdma_counters };
    m->channel = rdma_channel_new(&config, errp);
    return m->channel != NULL;
}

/* With mapped-ram another descriptor of the file comes with it, for the pages. */
static bool open_file(Migration *m, const MigrationAddress *addr, GError **errp)
{
    const MigrationHost *host = &m->ctx->host;
    const FileMigrationArgs *file = addr->u.file;

    if (m->return_path) {
        /* Who has the capability on for his live migrations can save a guest all the same. */
        migration_host_log(host, "a file has no return path: capability return-path is ignored");
        m->return_path = false;
        m->acks_pending = 0;
    }
    m->is_file = true;
    m->file_offset = file->offset;
    return migration_open_outgoing(host, addr, false, &m->channel, errp) &&
           (!m->options->caps[MIGRATION_CAPABILITY_MAPPED_RAM] ||
            page_file_open(&m->pages, host, file->filename, m->channel, m->options->p.direct_io, errp));
}

static bool open_channel(Migration *m, const MigrationAddress *addr, GError **errp)
{
    switch (addr->transport) {
    case MIGRATION_ADDRESS_TYPE_RDMA:
        return open_rdma(m, addr->u.rdma, errp);
    case MIGRATION_ADDRESS_TYPE_FILE:
        return open_file(m, addr, errp);
    default:
        return migration_open_outgoing(&m->ctx->host, addr, m->return_path, &m->channel, errp);
    }
}

static bool open_and_run(Migration *m, const MigrationAddress *addr, GError **errp)
{
    g_autoptr(GError) error = NULL;
    if (!open_channel(m, addr, &error)) {
        fail_at_once(m, error);
        g_propagate_error(errp, g_steal_pointer(&error));
        return false;
    }
    if (m->channel) {
        channel_set_name(m->channel, MIGRATION_MAIN_CHANNEL);
    } else {
        m->connect_to = qapi_clone_SocketAddress(addr->u.socket);
    }
    m->thread = g_thread_new("migration", migration_thread, m);
    return true;
}

bool migration_start(MigrationContext *ctx, const char *uri, const MigrationChannelList *channels,
                     bool resume, GError **errp)
{
    g_autoptr(MigrationAddress) addr = migration_main_address(uri, channels, errp);
    if (!addr) {
        return false;
    }
    MigrationOptions *options = migration_options_snapshot(ctx->options);
    if (!migration_check_transport(addr, options, ctx->host.ops->ram(ctx->host.opaque), errp) ||
        !may_start(ctx, resume, errp)) {
        migration_options_free(options);
        return false;
    }
    Migration *m = outgoing_new(ctx, options);
    replace_outgoing(ctx, m);
    return open_and_run(m, addr, errp);
}

/* ---- steering ---- */

void migration_shutdown_channels(Migration *m)
{
    if (m->channel) {
        channel_shutdown(m->channel);
    }
    for (guint i = 0; m->multifd_channels && i < m->multifd_channels->len; i++) {
        channel_shutdown(g_ptr_array_index(m->multifd_channels, i));
    }
}

bool migration_cancel(MigrationContext *ctx, GError **errp)
{
    Migration *m = ctx->outgoing;

    if (!migration_state_set(&ctx->outgoing_state, MIGRATION_STATUS_CANCELLING)) {
        return true;    /* nothing runs, or it is about to end anyway */
    }
    g_cancellable_cancel(m->cancellable);
    g_mutex_lock(&ctx->lock);
    m->cancel_requested = true;
    migration_shutdown_channels(m);
    g_cond_broadcast(&ctx->cond);
    g_mutex_unlock(&ctx->lock);
    return true;
}

bool migration_continue(MigrationContext *ctx, MigrationStatus state, GError **errp)
{
    MigrationStatus now = migration_state_get(&ctx->outgoing_state);

    if (now != MIGRATION_STATUS_PRE_SWITCHOVER || state != now) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, "Migration not in expected state: %s",
                    MigrationStatus_str(now));
        return false;
    }
    g_mutex_lock(&ctx->lock);
    ctx->outgoing->continue_requested = true;
    g_cond_broadcast(&ctx->cond);
    g_mutex_unlock(&ctx->lock);
    return true;
}

bool migration_pause(MigrationContext *ctx, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE,
                "migrate-pause is currently only supported during postcopy-active or postcopy-recover state");
    return false;
}

void migration_yank(MigrationContext *ctx)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&ctx->lock);
    if (ctx->outgoing) {
        g_cancellable_cancel(ctx->outgoing->cancellable);
        migration_shutdown_channels(ctx->outgoing);
    }
    if (ctx->incoming && ctx->incoming->channel) {
        ctx->incoming->cut = true;
        channel_shutdown(ctx->incoming->channel);
    }
    if (ctx->incoming && ctx->incoming->multifd) {
        multifd_recv_interrupt(ctx->incoming->multifd);
    }
}

bool migration_can_yank(MigrationContext *ctx)
{
    return migration_is_active(ctx) ||
           migration_status_is_running(migration_state_get(&ctx->incoming_state));
}

bool migration_allows_start(MigrationContext *ctx, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&ctx->lock);
    if (ctx->incoming && ctx->incoming->memory_lost) {
        return refuse_start(errp, MEMORY_LOST);
    }
    if (!ctx->outgoing || !ctx->outgoing->guest_stopped) {
        return true;
    }
    return refuse_start(errp, "Migration is not finalized yet");
}
