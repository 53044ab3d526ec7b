/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination: listening, telling connections apart, loading, and letting the guest run. */

/*
 * Life of an Incoming
 *
 * 1. Main thread: listens; watches each new connection until its first four bytes say what it is; hands the
 *    main channel to the load thread; closes whatever else comes.
 * 2. Load thread: reads the stream; on success lets the guest run and tells the source, on failure
 *    does not touch the run state; sets the final state, closes the channel, and posts an idle callback.
 * 3. Main thread, idle: joins the load thread, stops listening, tells the VMM.
 *
 * A connection that is closed before its fourth byte, or stays silent, costs a log line, not the migration.
 */
#include "migration/context.h"

#include "migration/migration.h"
#include "migration/stream-format.h"
#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

/* Threads that read a file with mapped-ram, unless multifd says how many. */
#define READERS_MAX 4

/* Everything that runs on behalf of @in is gone afterwards; its address and error stay to be queried. */
static void incoming_stop(Incoming *in)
{
    g_mutex_lock(&in->ctx->lock);
    in->stopping = true;
    g_cond_broadcast(&in->ctx->cond);
    if (in->channel) {
        channel_shutdown(in->channel);
    }
    g_mutex_unlock(&in->ctx->lock);
    if (in->multifd) {
        multifd_recv_stop(in->multifd);
    }
    if (in->thread) {
        g_thread_join(in->thread);
        in->thread = NULL;
    }
    if (in->end_source) {
        g_source_remove(in->end_source);
        in->end_source = 0;
    }
    incoming_close_connections(in, false);
}

void incoming_free(Incoming *in)
{
    if (!in) {
        return;
    }
    incoming_stop(in);
    multifd_recv_free(in->multifd);
    mapped_ram_load_free(in->mapped);
    page_file_close(&in->pages);
    g_clear_pointer(&in->probes, g_ptr_array_unref);
    channel_unref(in->channel);
    qapi_free_SocketAddressList(in->addresses);
    g_clear_error(&in->mismatch);
    g_clear_error(&in->error);
    migration_options_free(in->options);
    g_free(in);
}

/* ---- load thread ---- */

static bool set_run_state(const MigrationHost *host, RunState state, GError **errp)
{
    g_autoptr(GError) error = NULL;
    if (host->ops->set_run_state(host->opaque, state, &error)) {
        return true;
    }
    migration_host_log(host, "cannot take over run state %s: %s", RunState_str(state), error->message);
    return host->ops->set_run_state(host->opaque, RUN_STATE_PAUSED, errp);
}

/* What the guest does after its arrival: what it did before, unless it is to wait here. */
static bool start_guest(const MigrationHost *host, const GlobalState *g, GError **errp)
{
    if (fault_point("incoming-start-guest", errp)) {
        return false;
    }
    if (!globalstate_is_live(g)) {
        return set_run_state(host, g->state, errp);
    }
    if (!host->ops->autostart(host->opaque)) {
        return set_run_state(host, RUN_STATE_PAUSED, errp);
    }
    if (globalstate_is_suspended(g)) {
        return set_run_state(host, RUN_STATE_SUSPENDED, errp);
    }
    return host->ops->start(host->opaque, errp);
}

/* Main thread: the load thread has posted this as its last act. */
static gboolean load_ended(gpointer opaque)
{
    Incoming *in = opaque;
    const MigrationHost *host = &in->ctx->host;

    g_mutex_lock(&in->ctx->lock);
    in->end_source = 0;     /* it goes with this return */
    g_mutex_unlock(&in->ctx->lock);
    g_thread_join(in->thread);
    in->thread = NULL;
    incoming_close_connections(in, true);
    if (!in->error || (in->exit_on_error && !in->memory_lost)) {
        host->ops->incoming_ended(host->opaque, in->error);
    } else {
        migration_host_log(host, "%s", in->error->message);
    }
    return G_SOURCE_REMOVE;
}

/*
 * The hand-over.  The source gives its guest up when it reads SHUT 0; where that cannot be sent, its guest
 * goes on, so ours must not run.
 */
static bool hand_over(const MigrationHost *host, LoadVM *l, GError **errp)
{
    if (loadvm_shut_return_path(l, true, errp)) {
        return true;
    }
    if (host->ops->run_state(host->opaque) == RUN_STATE_RUNNING) {
        host->ops->stop(host->opaque, RUN_STATE_PAUSED, NULL);
    }
    return false;
}

/* The source's guest goes on as soon as it hears of it: before that the devices let go of what they share. */
static void let_go(const MigrationHost *host)
{
    for (SaveEntry *e = host->ops->save_entries(host->opaque)->first; e; e = e->next) {
        if (e->vmsd->load_failed) {
            e->vmsd->load_failed(e->opaque);
        }
    }
}

static void end_load(Incoming *in, LoadVM *l, bool ok, GError *error)
{
    MigrationContext *ctx = in->ctx;
    g_autoptr(GError) late = NULL;

    if (ok) {
        ok = hand_over(&ctx->host, l, &error);
        if (!ok) {
            let_go(&ctx->host);
        }
    } else {
        let_go(&ctx->host);
        loadvm_shut_return_path(l, false, NULL);
    }
    page_file_close(&in->pages);        /* who deletes the file wants its room back */
    g_mutex_lock(&ctx->lock);
    in->error = error;
    in->downtime = *loadvm_downtime(l);
    g_mutex_unlock(&ctx->lock);
    trace_incoming_downtime(in->downtime.phase_us[DOWNTIME_RECEIVE], in->downtime.phase_us[DOWNTIME_LOAD],
                            in->downtime.phase_us[DOWNTIME_START]);
    migration_update_busy(ctx, false, false);
    migration_state_set(&ctx->incoming_state, ok ? MIGRATION_STATUS_COMPLETED : MIGRATION_STATUS_FAILED);
    if (!ok) {
        channel_shutdown(in->channel);      /* a command that still writes is not waited for */
    }
    channel_close(in->channel, &late);      /* all has been read: how a command ends is not our business */

    g_mutex_lock(&ctx->lock);
    in->end_source = g_idle_add(load_ended, in);
    g_mutex_unlock(&ctx->lock);
}

/* What is wrong with another channel is the cause; that the main stream ended then is what followed. */
static void prefer_channel_error(Incoming *in, GError **error)
{
    g_mutex_lock(&in->ctx->lock);
    GError *cause = in->mismatch ? g_error_copy(in->mismatch) : NULL;
    g_mutex_unlock(&in->ctx->lock);
    if (!cause && in->multifd) {
        cause = multifd_recv_error(in->multifd);
    }
    if (cause) {
        g_prefix_error(&cause, "load of migration failed: ");
        g_clear_error(error);
        *error = cause;
    }
}

static bool load_stream(Incoming *in, LoadVM *l, GError **errp)
{
    g_autoptr(GError) error = NULL;

    const MigrationHost *host = &in->ctx->host;

    if (in->multifd) {
        ram_load_set_source(loadvm_ram(l), multifd_recv_source(in->multifd));
    } else if (in->mapped) {
        ram_load_set_source(loadvm_ram(l), mapped_ram_load_source(in->mapped));
        if (!mapped_ram_load_check(in->mapped, errp)) {
            g_prefix_error(errp, "load of migration failed: ");
            return false;
        }
    } else if (in->rdma) {
        ram_load_set_source(loadvm_ram(l),
                            rdma_source_new(in->channel, host->ops->ram(host->opaque), in->options));
    }
    bool ok = loadvm_run(l, &error) && incoming_drain_connections(in, &error);
    if (!ok) {
        prefer_channel_error(in, &error);
        g_propagate_error(errp, g_steal_pointer(&error));
    }
    if (in->multifd) {
        multifd_recv_stop(in->multifd);     /* the guest's memory is the guest's from now on */
    }
    return ok;
}

/* It has run on memory that will not come: it is not to run on. */
static void stop_broken_guest(void *opaque)
{
    Incoming *in = opaque;
    const MigrationHost *host = &in->ctx->host;
    g_autoptr(GError) error = NULL;

    g_mutex_lock(&in->ctx->lock);
    in->memory_lost = true;
    g_mutex_unlock(&in->ctx->lock);
    if (host->ops->run_state(host->opaque) == RUN_STATE_RUNNING &&
        !host->ops->stop(host->opaque, RUN_STATE_INTERNAL_ERROR, &error)) {
        migration_host_log(host, "the guest could not be stopped: %s", error->message);
    }
}

/* x-mapped-ram-lazy: the guest runs; what it has not touched is read now. */
static bool finish_memory(Incoming *in, GError **errp)
{
    if (!in->mapped || !mapped_ram_load_is_lazy(in->mapped)) {
        return true;
    }
    migration_state_set(&in->ctx->incoming_state, MIGRATION_STATUS_POSTCOPY_ACTIVE);
    if (mapped_ram_load_finish(in->mapped, stop_broken_guest, in, errp)) {
        return true;
    }
    g_prefix_error(errp, "The guest has been stopped, its memory is incomplete: ");
    return false;
}

static gpointer load_thread(gpointer opaque)
{
    Incoming *in = opaque;
    const MigrationHost *host = &in->ctx->host;
    g_autoptr(LoadVM) l = loadvm_new(host, in->options, in->channel);
    GError *error = NULL;

    loadvm_wait(l);
    migration_state_set(&in->ctx->incoming_state, MIGRATION_STATUS_ACTIVE);
    bool ok = load_stream(in, l, &error);
    downtime_phase_ended(loadvm_downtime(l), DOWNTIME_LOAD);
    ok = ok && start_guest(host, loadvm_global_state(l), &error);
    downtime_phase_ended(loadvm_downtime(l), DOWNTIME_START);
    if (ok) {
        ok = finish_memory(in, &error);
    } else if (in->mapped) {
        mapped_ram_load_abandon(in->mapped);
    }
    end_load(in, l, ok, error);
    return NULL;
}

/* ---- beginning to load, main thread ---- */

/* A multifd channel's thread: the load thread need not wait for what will not come. */
static void multifd_failed(const GError *error, void *opaque)
{
    Incoming *in = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&in->ctx->lock);
    if (in->channel) {
        channel_shutdown(in->channel);
    }
}

void incoming_fix_options(Incoming *in)
{
    const MigrationHost *host = &in->ctx->host;

    if (in->options) {
        return;
    }
    in->options = migration_options_snapshot(in->ctx->options);
    if (in->options->caps[MIGRATION_CAPABILITY_MULTIFD] && in->listener) {
        MultifdRecv *multifd = multifd_recv_new(host->ops->ram(host->opaque), in->options,
                                                host->ops->uuid(host->opaque), multifd_failed, in);
        g_mutex_lock(&in->ctx->lock);
        in->multifd = multifd;
        g_mutex_unlock(&in->ctx->lock);
    }
}

void incoming_begin_load(Incoming *in, Channel *channel)
{
    channel_set_name(channel, MIGRATION_MAIN_CHANNEL);
    incoming_fix_options(in);
    g_mutex_lock(&in->ctx->lock);
    in->channel = channel;
    if (in->mismatch) {
        channel_shutdown(channel);
    }
    g_mutex_unlock(&in->ctx->lock);
    in->thread = g_thread_new("incoming", load_thread, in);
}

/* ---- starting ---- */

void migration_incoming_expect(MigrationContext *ctx)
{
    ctx->incoming_expected = true;
}

static bool may_listen(MigrationContext *ctx, GError **errp)
{
    MigrationStatus status = migration_state_get(&ctx->incoming_state);

    if (!ctx->incoming_expected) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE,
                    "'-incoming' was not specified on the command line");
        return false;
    }
    bool again = status == MIGRATION_STATUS_FAILED && !ctx->incoming->exit_on_error &&
                 !ctx->incoming->memory_lost;
    if (status != MIGRATION_STATUS_NONE && !again) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE,
                    "The incoming migration has already been started");
        return false;
    }
    return true;
}

static MigrationAddress *checked_address(MigrationContext *ctx, const char *uri,
                                         const MigrationChannelList *channels, GError **errp)
{
    g_autoptr(MigrationAddress) addr = migration_main_address(uri, channels, errp);
    if (!addr) {
        return NULL;
    }
    MigrationOptions *options = migration_options_snapshot(ctx->options);
    bool ok = migration_check_transport(addr, options, ctx->host.ops->ram(ctx->host.opaque), errp);
    migration_options_free(options);
    return ok ? g_steal_pointer(&addr) : NULL;
}

static Incoming *incoming_new(MigrationContext *ctx, bool exit_on_error, Listener *listener)
{
    Incoming *in = g_new0(Incoming, 1);
    in->ctx = ctx;
    in->pages.fd = -1;
    in->exit_on_error = exit_on_error;
    in->listener = listener;
    in->listens = listener != NULL;
    in->probes = g_ptr_array_new_with_free_func((GDestroyNotify)channel_probe_free);
    if (listener) {
        in->addresses = qapi_clone_SocketAddressList(listener_addresses(listener));
    }
    return in;
}

/* Any thread of the load. */
static bool is_interrupted(void *opaque)
{
    Incoming *in = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&in->ctx->lock);
    return in->stopping || in->cut;
}

/* Without multifd there is nothing that says how many threads may read; more than these do not help. */
static unsigned count_readers(const MigrationOptions *options)
{
    return options->caps[MIGRATION_CAPABILITY_MULTIFD] ? options->p.multifd_channels
                                                       : MIN(g_get_num_processors(), READERS_MAX);
}

/* With mapped-ram pages come from the file by themselves. */
static bool prepare_mapped_ram(Incoming *in, const MigrationAddress *addr, Channel *channel, GError **errp)
{
    const MigrationHost *host = &in->ctx->host;

    incoming_fix_options(in);
    if (!in->options->caps[MIGRATION_CAPABILITY_MAPPED_RAM]) {
        return true;
    }
    if (!page_file_open(&in->pages, host, addr->u.file->filename, channel, in->options->p.direct_io, errp)) {
        return false;
    }
    MappedRamLoadConfig config = {
        .file = channel,
        .offset = addr->u.file->offset,
        .pages = &in->pages,
        .readers = count_readers(in->options),
        .host = host,
        .interrupted = is_interrupted,
        .opaque = in,
    };
    in->mapped = mapped_ram_load_new(host->ops->ram(host->opaque), in->options, &config);
    return true;
}

/* ---- RDMA ---- */

static void rdma_connected(RdmaListener *listener, Channel *channel, void *opaque)
{
    incoming_begin_load(opaque, channel);
}

static void rdma_log(const char *message, void *opaque)
{
    Incoming *in = opaque;
    migration_host_log(&in->ctx->host, "%s", message);
}

/* What an Incoming begins with: one of them is not NULL. */
typedef struct IncomingOpening {
    Channel *channel;
    Listener *listener;
    RdmaListener *rdma_listener;
} IncomingOpening;

static bool open_incoming(MigrationContext *ctx, const MigrationAddress *addr, IncomingOpening *o,
                          GError **errp)
{
    *o = (IncomingOpening){ 0 };
    if (addr->transport == MIGRATION_ADDRESS_TYPE_RDMA) {
        o->rdma_listener = rdma_listener_new(addr->u.rdma, errp);
        return o->rdma_listener != NULL;
    }
    return migration_open_incoming(&ctx->host, addr, &o->channel, &o->listener, errp);
}

static void begin_rdma(Incoming *in, RdmaListener *listener)
{
    const MigrationHost *host = &in->ctx->host;

    migration_option_store_set_rdma(in->ctx->options,
                                    migration_first_shared_block(host->ops->ram(host->opaque)));
    in->rdma = true;
    in->rdma_listener = listener;
    in->addresses = qapi_clone_SocketAddressList(rdma_listener_addresses(listener));
    rdma_listener_start(listener, in->ctx->options, rdma_connected, rdma_log, in);
}

bool migration_incoming_start(MigrationContext *ctx, const char *uri, const MigrationChannelList *channels,
                              bool exit_on_error, GError **errp)
{
    if (!may_listen(ctx, errp)) {
        return false;
    }
    g_autoptr(MigrationAddress) addr = checked_address(ctx, uri, channels, errp);
    if (!addr) {
        return false;
    }
    if (ctx->incoming) {
        incoming_stop(ctx->incoming);   /* it may be listening on the same address still */
    }
    IncomingOpening o;
    if (!open_incoming(ctx, addr, &o, errp)) {
        return false;
    }

    Incoming *old = ctx->incoming;
    Incoming *in = incoming_new(ctx, exit_on_error, o.listener);
    if (o.channel && !prepare_mapped_ram(in, addr, o.channel, errp)) {
        channel_unref(o.channel);
        incoming_free(in);
        return false;
    }
    g_mutex_lock(&ctx->lock);
    ctx->incoming = in;
    g_mutex_unlock(&ctx->lock);
    incoming_free(old);
    migration_update_busy(ctx, false, true);
    migration_state_set(&ctx->incoming_state, MIGRATION_STATUS_SETUP);
    if (o.channel) {
        incoming_begin_load(in, o.channel);
    } else if (o.rdma_listener) {
        begin_rdma(in, o.rdma_listener);
    } else {
        listener_start(o.listener, incoming_connection_accepted, in);
    }
    return true;
}
