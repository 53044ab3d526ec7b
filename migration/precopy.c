/* SPDX-License-Identifier: BSD-2-Clause */
/* The migration thread: connect, set up, iterate, switch over, hand over, and clean up whatever happened. */
#include "migration/precopy.h"

#include "io/transport.h"
#include "migration/mapped-ram.h"
#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

/* How quickly a new bandwidth limit ends a sleep for the old one. */
#define SLEEP_SLICE_US 10000

/* How long to sleep when there is nothing to send but the destination is not ready. */
#define WAIT_US 10000

/* With auto-converge or dirty-limit the guest's rate is looked at this often, however long a round takes. */
#define THROTTLE_SYNC_US (5 * 1000 * 1000)

/* ---- waiting and being interrupted ---- */

void migration_set_error(Migration *m, GError *error)
{
    g_mutex_lock(&m->ctx->lock);
    if (!m->error) {
        m->error = g_steal_pointer(&error);
        g_cond_broadcast(&m->ctx->cond);
    }
    g_mutex_unlock(&m->ctx->lock);
    g_clear_error(&error);
}

/* The lock is held. */
static bool interrupted(const Migration *m)
{
    return m->cancel_requested || m->error;
}

bool migration_interrupted(const Migration *m, GError **errp)
{
    if (m->error) {
        g_propagate_error(errp, g_error_copy(m->error));
    } else {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "cancelled");
    }
    return false;
}

static bool check_interrupt(Migration *m, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&m->ctx->lock);
    return !interrupted(m) || migration_interrupted(m, errp);
}

/* False: the step is not allowed any more, because the migration has been cancelled. */
static bool enter(Migration *m, MigrationStatus status, GError **errp)
{
    if (migration_state_set(&m->ctx->outgoing_state, status)) {
        return true;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "cancelled");
    return false;
}

/* Ends early if the migration is interrupted or the condition is broadcast for some other reason. */
static void sleep_until(Migration *m, int64_t until_us)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&m->ctx->lock);
    if (!interrupted(m)) {
        g_cond_wait_until(&m->ctx->cond, &m->ctx->lock, until_us);
    }
}

/* Parameters may be changed while the migration runs; these are the ones that count at once. */
static void refresh_live(Migration *m)
{
    qapi_free_MigrationParameters(m->live);
    m->live = migration_get_parameters(m->ctx->options);
    if (m->ram && m->live->xbzrle_cache_size != ram_save_xbzrle_cache_size(m->ram)) {
        ram_save_set_xbzrle_cache_size(m->ram, m->live->xbzrle_cache_size);
        g_mutex_lock(&m->ctx->lock);
        m->figures.xbzrle_cache_size = m->live->xbzrle_cache_size;
        g_mutex_unlock(&m->ctx->lock);
    }
}

/* ---- connecting and setting up ---- */

/* Channels to a file are threads of the sink; only their counters are kept here. */
static void count_file_channels(Migration *m)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&m->ctx->lock);
    m->n_multifd = m->options->p.multifd_channels;
    m->multifd = g_new0(MultifdCounters, m->n_multifd);
}

/*
 * The main channel is first, so that a destination that goes by the order recognises it.  Each has said its
 * first bytes before the next is connected: the main loop of QEMU 10.0 and 11.1 waits for those of one
 * connection before it takes the next, and only as many as it expects find room meanwhile.
 */
static bool connect_multifd(Migration *m, GError **errp)
{
    const MigrationHost *host = &m->ctx->host;

    if (!m->options->caps[MIGRATION_CAPABILITY_MULTIFD]) {
        return true;
    }
    if (!m->connect_to) {
        count_file_channels(m);
        return true;
    }
    g_mutex_lock(&m->ctx->lock);
    m->multifd_channels = g_ptr_array_new_with_free_func((GDestroyNotify)channel_unref);
    m->n_multifd = m->options->p.multifd_channels;
    m->multifd = g_new0(MultifdCounters, m->n_multifd);
    g_mutex_unlock(&m->ctx->lock);
    for (unsigned i = 0; i < m->n_multifd; i++) {
        if (fault_point("multifd-connect", errp)) {
            return false;
        }
        Channel *channel = channel_socket_connect(m->connect_to, m->cancellable, errp);
        if (!channel) {
            return false;
        }
        g_autofree char *name = g_strdup_printf("migration-multifd-%u", i);
        channel_set_name(channel, name);
        g_mutex_lock(&m->ctx->lock);
        g_ptr_array_add(m->multifd_channels, channel);
        g_mutex_unlock(&m->ctx->lock);
        if (!multifd_send_hello(channel, host->ops->uuid(host->opaque), (uint8_t)i, errp)) {
            return false;
        }
    }
    return check_interrupt(m, errp);
}

static bool connect_channel(Migration *m, GError **errp)
{
    if (fault_point("migration-connect", errp)) {
        return false;
    }
    if (m->connect_to) {
        Channel *channel = channel_socket_connect(m->connect_to, m->cancellable, errp);
        if (!channel) {
            return false;
        }
        channel_set_name(channel, MIGRATION_MAIN_CHANNEL);
        g_mutex_lock(&m->ctx->lock);
        m->channel = channel;
        g_mutex_unlock(&m->ctx->lock);
    }
    if (m->rdma && !rdma_channel_connect(m->channel, m->cancellable, errp)) {
        return false;
    }
    if (m->is_file && !migration_truncate_file(m->channel, m->file_offset, errp)) {
        return false;
    }
    return check_interrupt(m, errp);
}

/* A channel's thread: whatever the migration thread waits for, it waits no more. */
static void multifd_failed(const GError *error, void *opaque)
{
    Migration *m = opaque;

    migration_set_error(m, g_error_copy(error));
    g_mutex_lock(&m->ctx->lock);
    migration_shutdown_channels(m);
    g_mutex_unlock(&m->ctx->lock);
}

/* Any thread of the sink. */
static bool is_interrupted(void *opaque)
{
    return !check_interrupt(opaque, NULL);
}

static RamSink *make_mapped_ram(Migration *m, RamSave *ram, GError **errp)
{
    MappedRamSaveConfig config = {
        .file = m->channel,
        .pages = &m->pages,
        .channels = m->n_multifd,
        .counters = m->multifd,
        .interrupted = is_interrupted,
        .opaque = m,
    };
    RamSink *sink = mapped_ram_save_new(ram, &config, errp);

    if (sink) {
        const char *engine = mapped_ram_save_backend(sink);
        g_mutex_lock(&m->ctx->lock);
        m->figures.file_engine = engine;
        g_mutex_unlock(&m->ctx->lock);
        migration_host_log(&m->ctx->host, "mapped-ram: pages are written by %s%s", engine,
                           m->pages.direct ? " with O_DIRECT" : "");
    }
    return sink;
}

/* How pages are to travel. */
static RamSink *make_sink(Migration *m, RamSave *ram, GError **errp)
{
    if (m->options->caps[MIGRATION_CAPABILITY_MAPPED_RAM]) {
        return make_mapped_ram(m, ram, errp);
    }
    if (m->rdma) {
        return rdma_sink_new(ram, m->channel, errp);
    }
    if (!m->multifd) {
        return ram_sink_stream_new(ram);
    }
    MultifdSendConfig config = {
        .channels = m->multifd_channels,
        .counters = m->multifd,
        .on_error = multifd_failed,
        .opaque = m,
    };
    return multifd_send_new(ram, &config, errp);
}

static bool make_ram_save(Migration *m, GError **errp)
{
    const MigrationHost *host = &m->ctx->host;
    RamList *list = host->ops->ram(host->opaque);
    RamSave *ram = ram_save_new(list, host->ops->dirty_log(host->opaque), m->options, errp);
    uint64_t total = 0;

    if (!ram) {
        return false;
    }
    RAMLIST_FOREACH(block, list) {
        if (!m->options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] || !block->shared) {
            total += block->used_length;
        }
    }
    g_mutex_lock(&m->ctx->lock);
    m->ram = ram;
    m->figures.ram_total = total;
    g_mutex_unlock(&m->ctx->lock);
    return true;
}

static bool connect_sink(Migration *m, GError **errp)
{
    RamSink *sink = connect_multifd(m, errp) ? make_sink(m, m->ram, errp) : NULL;
    if (!sink) {
        return false;
    }
    ram_save_set_sink(m->ram, sink);
    migration_record_rounds(m);
    return true;
}

static uint64_t bytes_sent(const Migration *m)
{
    return ram_stats_get(&ram_save_stats(m->ram)->transferred);
}

static uint64_t pages_sent(const Migration *m)
{
    const RamStats *s = ram_save_stats(m->ram);
    return ram_stats_get(&s->normal_pages) + ram_stats_get(&s->zero_pages) + ram_stats_get(&s->xbzrle_pages);
}

/* What the rate limit is about: sent, or given to channels that have not come to it yet. */
static uint64_t bytes_committed(const Migration *m)
{
    return bytes_sent(m) + ram_save_in_flight(m->ram);
}

static bool set_up(Migration *m, GError **errp)
{
    if (m->connect_to && !multifd_send_check(m->channel, m->options, errp)) {
        return false;
    }
    if (m->return_path) {
        migration_return_path_start(m);
    }
    if (!make_ram_save(m, errp)) {
        return false;
    }
    m->writer = stream_writer_new(m->channel);
    m->save = savevm_new(&m->ctx->host, m->options, m->ram, m->writer);
    if (!savevm_start(m->save, m->return_path, errp) || !connect_sink(m, errp)) {
        return false;
    }
    g_mutex_lock(&m->ctx->lock);
    m->setup_pong_pending = savevm_pings_after_setup(m->save);
    g_mutex_unlock(&m->ctx->lock);
    if (!savevm_setup(m->save, errp)) {
        return false;
    }

    int64_t now = g_get_monotonic_time();
    policy_window_start(&m->window, now, bytes_sent(m), pages_sent(m));
    m->window_committed = bytes_committed(m);
    throttle_start(&m->throttle, now, bytes_sent(m));
    m->last_sync_us = now;
    m->dirty_bytes_at_sync = ram_save_pending(m->ram);
    g_mutex_lock(&m->ctx->lock);
    m->figures.setup_done_us = now;
    g_mutex_unlock(&m->ctx->lock);
    return enter(m, MIGRATION_STATUS_ACTIVE, errp);
}

/* ---- iterating ---- */

static void set_throttle(Migration *m, unsigned percent)
{
    const MigrationHost *host = &m->ctx->host;
    trace_migration_throttle(percent);
    g_mutex_lock(&m->ctx->lock);
    m->figures.throttle_percent = percent;
    g_mutex_unlock(&m->ctx->lock);
    host->ops->throttle(host->opaque, percent);
}

static bool auto_converges(const Migration *m)
{
    const MigrationHost *host = &m->ctx->host;
    return m->options->caps[MIGRATION_CAPABILITY_AUTO_CONVERGE] && host->ops->has_vcpus(host->opaque);
}

static void auto_converge(Migration *m, uint64_t dirtied)
{
    ThrottleLimits limits = {
        .trigger_threshold = m->live->throttle_trigger_threshold,
        .initial = m->live->cpu_throttle_initial,
        .increment = m->live->cpu_throttle_increment,
        .max = m->live->max_cpu_throttle,
        .tailslow = m->live->cpu_throttle_tailslow,
    };
    if (throttle_after_sync(&m->throttle, &limits, m->last_sync_us, dirtied, bytes_sent(m))) {
        set_throttle(m, m->throttle.percent);
    }
}

/* @mb_per_s 0: no limit any more. */
static bool set_dirty_limit(Migration *m, uint64_t mb_per_s, GError **errp)
{
    DirtyLimiter *limiter = migration_dirty_limiter(m);

    if (m->dirty_limit == mb_per_s) {
        return true;
    }
    trace_migration_dirty_limit(mb_per_s);
    m->dirty_limit = mb_per_s;
    return dirty_limiter_set(limiter, DIRTY_LIMIT_MIGRATION, DIRTY_LIMIT_ALL_VCPUS, mb_per_s, errp);
}

/* Once a limit is in force it follows the parameter. */
static bool limit_dirtying(Migration *m, uint64_t dirtied, GError **errp)
{
    bool due = throttle_is_due(&m->throttle, m->live->throttle_trigger_threshold, m->last_sync_us, dirtied,
                               bytes_sent(m));

    dirty_limiter_set_period(migration_dirty_limiter(m), (unsigned)m->live->x_vcpu_dirty_limit_period);
    return (!due && !m->dirty_limit) || set_dirty_limit(m, m->live->vcpu_dirty_limit, errp);
}

/* The last sync found @dirtied new bytes. */
static bool converge(Migration *m, uint64_t dirtied, GError **errp)
{
    if (migration_dirty_limiter(m)) {
        return limit_dirtying(m, dirtied, errp);
    }
    if (auto_converges(m)) {
        auto_converge(m, dirtied);
    }
    return true;
}

/* One exact query: fetch the dirty log and count again. */
static bool sync_dirty(Migration *m, GError **errp)
{
    const MigrationHost *host = &m->ctx->host;
    uint64_t before = ram_save_pending(m->ram);

    if (!ram_save_settle(m->ram, errp) || !ram_save_sync(m->ram, false, errp)) {
        return false;
    }
    m->exact = true;
    m->last_sync_us = g_get_monotonic_time();
    m->dirty_bytes_at_sync = ram_save_pending(m->ram);
    uint64_t pass = ram_stats_get(&ram_save_stats(m->ram)->dirty_sync_count);
    trace_migration_sync(pass, m->dirty_bytes_at_sync);
    if (m->options->caps[MIGRATION_CAPABILITY_EVENTS]) {
        host->ops->event_pass(host->opaque, (int64_t)pass);
    }
    return converge(m, m->dirty_bytes_at_sync - before, errp);
}

static void update_window(Migration *m)
{
    if (!policy_window_update(&m->window, g_get_monotonic_time(), bytes_sent(m), pages_sent(m))) {
        return;
    }
    m->window_committed = bytes_committed(m);
    double bandwidth = policy_expected_bandwidth(&m->window, m->live->avail_switchover_bandwidth);
    bool recompute = ram_stats_get(&ram_save_stats(m->ram)->dirty_pages_rate) > 0;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&m->ctx->lock);
    m->figures.mbps = m->window.mbps;
    m->figures.pages_per_second = m->window.pages_per_second;
    if (recompute) {
        m->figures.expected_downtime_ms = policy_expected_downtime(m->dirty_bytes_at_sync, bandwidth);
    }
}

static uint64_t budget_left(const Migration *m)
{
    uint64_t budget = policy_window_budget(m->live->max_bandwidth);
    /* Pages that were in flight when the window began, and turned out to be zero, say, make it negative. */
    int64_t used = (int64_t)(bytes_committed(m) - m->window_committed);
    return used < 0 ? budget : (uint64_t)used < budget ? budget - (uint64_t)used : 0;
}

/* The window's bytes are used up: sleeps until its end, or until the limit is raised. */
static bool wait_for_window(Migration *m, GError **errp)
{
    int64_t end = m->window.start_us + POLICY_WINDOW_MS * 1000;

    if (!ram_save_settle(m->ram, errp)) {
        return false;
    }
    for (int64_t now = g_get_monotonic_time(); now < end; now = g_get_monotonic_time()) {
        sleep_until(m, MIN(now + SLEEP_SLICE_US, end));
        refresh_live(m);
        if (!check_interrupt(m, errp)) {
            return false;
        }
        if (budget_left(m) > 0) {
            break;
        }
    }
    return true;
}

static bool send_part(Migration *m, GError **errp)
{
    uint64_t budget = budget_left(m);
    bool done;

    if (budget == 0) {
        return wait_for_window(m, errp);
    }
    m->exact = false;
    return savevm_iterate(m->save, budget, &done, errp);
}

static bool wait_for_ack(Migration *m, GError **errp)
{
    if (!ram_save_settle(m->ram, errp)) {
        return false;
    }
    sleep_until(m, g_get_monotonic_time() + WAIT_US);
    m->exact = false;
    return true;
}

static PolicyStep next_step(Migration *m)
{
    const MigrationHost *host = &m->ctx->host;
    int64_t since_sync = g_get_monotonic_time() - m->last_sync_us;
    double bandwidth = policy_expected_bandwidth(&m->window, m->live->avail_switchover_bandwidth);

    g_mutex_lock(&m->ctx->lock);
    unsigned acks = m->acks_pending + m->setup_pong_pending;
    g_mutex_unlock(&m->ctx->lock);
    /* The estimate of the bandwidth is of no use before there is one, given by the user or not. */
    uint64_t threshold =
        m->window.bytes_per_ms > 0 ? policy_threshold(bandwidth, m->live->downtime_limit) : 0;
    PolicyState state = {
        .pending = ram_save_pending(m->ram) + ram_save_in_flight(m->ram),
        .threshold = threshold,
        .exact = m->exact,
        .switchover_allowed = acks == 0 || host->ops->run_state(host->opaque) != RUN_STATE_RUNNING,
        .sync_due = (auto_converges(m) || migration_dirty_limiter(m)) && since_sync > THROTTLE_SYNC_US,
    };
    return policy_next_step(&state);
}

static bool iterate(Migration *m, GError **errp)
{
    for (;;) {
        bool ok;
        refresh_live(m);
        if (!check_interrupt(m, errp)) {
            return false;
        }
        switch (next_step(m)) {
        case POLICY_ITERATE:
            ok = send_part(m, errp);
            break;
        case POLICY_SYNC:
            ok = sync_dirty(m, errp);
            break;
        case POLICY_WAIT:
            ok = wait_for_ack(m, errp);
            break;
        default:
            return true;
        }
        if (!ok) {
            return false;
        }
        update_window(m);
    }
}

/* ---- switching over ---- */

static bool stop_guest(Migration *m, GError **errp)
{
    const MigrationHost *host = &m->ctx->host;

    if (fault_point("migration-stop-guest", errp)) {
        return false;
    }
    g_mutex_lock(&m->ctx->lock);
    m->guest_stopped = true;    /* first, so that nobody starts it again in between */
    downtime_begin(&m->figures.downtime);
    g_mutex_unlock(&m->ctx->lock);
    m->old_run_state = host->ops->run_state(host->opaque);
    trace_migration_stop_guest(RunState_str(m->old_run_state));
    if (!host->ops->stop(host->opaque, RUN_STATE_FINISH_MIGRATE, errp)) {
        return false;
    }
    migration_downtime_phase(m, DOWNTIME_STOP);
    return true;
}

/* The management has the guest to itself until it says migrate-continue. */
static bool pause_before_switchover(Migration *m, GError **errp)
{
    if (!ram_save_settle(m->ram, errp) || !enter(m, MIGRATION_STATUS_PRE_SWITCHOVER, errp)) {
        return false;
    }
    g_mutex_lock(&m->ctx->lock);
    while (!interrupted(m) && !m->continue_requested) {
        g_cond_wait(&m->ctx->cond, &m->ctx->lock);
    }
    g_mutex_unlock(&m->ctx->lock);
    migration_downtime_phase(m, DOWNTIME_PAUSE);
    return check_interrupt(m, errp);
}

static bool switch_over(Migration *m, GError **errp)
{
    if (!stop_guest(m, errp)) {
        return false;
    }
    if (m->options->caps[MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER] && !pause_before_switchover(m, errp)) {
        return false;
    }
    if (!enter(m, MIGRATION_STATUS_DEVICE, errp) || !ram_save_sync(m->ram, true, errp)) {
        return false;
    }
    migration_downtime_phase(m, DOWNTIME_SYNC);
    if (!savevm_complete_ram(m->save, errp)) {
        return false;
    }
    migration_downtime_phase(m, DOWNTIME_TRANSFER);
    if (!savevm_complete_devices(m->save, m->old_run_state, errp)) {
        return false;
    }
    migration_downtime_phase(m, DOWNTIME_DEVICE_STATE);
    return true;
}

/* Where it is asked for, a guest in a file is not given up before it is on the disk. */
static bool sync_file(Migration *m, GError **errp)
{
    bool wanted = m->options->p.x_file_fsync && channel_has_feature(m->channel, CHANNEL_FEATURE_SEEKABLE);

    return !wanted || (!fault_point("migration-file-sync", errp) && channel_file_sync(m->channel, errp));
}

/* A guest that runs on is not to be found in a file as well: without EOF nobody takes it for one. */
static void spoil_file(Migration *m, off_t end)
{
    if (end > 0) {
        channel_file_truncate(m->channel, end);
    }
}

/* All has been sent: what the destination made of it counts for more than what the transport says of it. */
static bool settle_the_end(Migration *m, GError **errp)
{
    g_autoptr(GError) error = NULL;
    bool failed = m->return_path && fault_point("migration-settle", &error);

    if (!failed && ram_save_settle(m->ram, &error)) {
        return true;
    }
    if (m->return_path && migration_return_path_linger(m)) {
        migration_host_log(&m->ctx->host, "after the migration: %s", error->message);
        return true;
    }
    g_propagate_error(errp, g_steal_pointer(&error));
    return false;
}

/* The end of the stream, and what makes it last. */
static bool end_stream(Migration *m, GError **errp)
{
    off_t end = m->is_file ? channel_seek(m->channel, 0, SEEK_CUR, NULL) : -1;

    if (savevm_end(m->save, errp) && settle_the_end(m, errp) &&
        (m->return_path || sync_file(m, errp))) {
        return true;
    }
    spoil_file(m, end);
    return false;
}

/*
 * The last bytes.  Success here means that the guest is the destination's, so nothing after it may fail: with
 * a return path that is its verdict, without one the moment when the transport has taken everything (for a
 * command: has ended well).
 */
static bool hand_over(Migration *m, GError **errp)
{
    if (fault_point("migration-handover", errp) || !end_stream(m, errp)) {
        return false;
    }
    if (!m->return_path) {
        bool ok = channel_close(m->channel, errp);
        migration_downtime_phase(m, DOWNTIME_HAND_OVER);
        return ok;
    }
    if (!migration_return_path_wait(m, errp)) {
        return false;
    }
    migration_downtime_phase(m, DOWNTIME_HAND_OVER);
    migration_return_path_stop(m);
    g_autoptr(GError) late = NULL;
    if (!channel_close(m->channel, &late)) {
        migration_host_log(&m->ctx->host, "after the migration: %s", late->message);
    }
    return true;
}

/* ---- the end ---- */

/* Whatever failed, the guest goes on where it was; nothing of this may be skipped. */
static void restore_guest(Migration *m)
{
    const MigrationHost *host = &m->ctx->host;
    g_autoptr(GError) error = NULL;

    if (!m->guest_stopped || host->ops->run_state(host->opaque) != RUN_STATE_FINISH_MIGRATE) {
        return;
    }
    bool ok = m->old_run_state == RUN_STATE_RUNNING
        ? host->ops->start(host->opaque, &error)
        : host->ops->set_run_state(host->opaque, m->old_run_state, &error);
    if (!ok) {
        migration_host_log(host, "the guest could not go on after the migration: %s", error->message);
    }
}

static void release(Migration *m)
{
    if (m->figures.throttle_percent) {
        set_throttle(m, 0);
    }
    if (migration_dirty_limiter(m)) {
        set_dirty_limit(m, 0, NULL);
        dirty_limiter_set_period(migration_dirty_limiter(m), DIRTY_LIMIT_PERIOD_MS);
    }
    savevm_free(g_steal_pointer(&m->save));
    stream_writer_free(g_steal_pointer(&m->writer));

    g_mutex_lock(&m->ctx->lock);
    RamSave *ram = m->ram;
    if (ram) {
        migration_keep_ram_stats(m);
    }
    m->ram = NULL;
    m->closing = g_steal_pointer(&m->channel);
    GPtrArray *multifd_channels = g_steal_pointer(&m->multifd_channels);
    g_mutex_unlock(&m->ctx->lock);
    if (ram) {
        ram_round_remove_notifier(ram, &m->round_notifier);
    }
    ram_save_free(ram);
    page_file_close(&m->pages);
    g_clear_pointer(&multifd_channels, g_ptr_array_unref);
    qapi_free_MigrationParameters(g_steal_pointer(&m->live));
}

static void end_well(Migration *m)
{
    const MigrationHost *host = &m->ctx->host;
    g_autoptr(GError) error = NULL;

    const int64_t *us = m->figures.downtime.phase_us;   /* nobody changes it any more */
    trace_migration_downtime(us[DOWNTIME_STOP], us[DOWNTIME_PAUSE], us[DOWNTIME_SYNC], us[DOWNTIME_TRANSFER],
                             us[DOWNTIME_DEVICE_STATE], us[DOWNTIME_HAND_OVER]);
    release(m);
    if (!host->ops->set_run_state(host->opaque, RUN_STATE_POSTMIGRATE, &error)) {
        migration_host_log(host, "after the migration: %s", error->message);
    }
}

static void end_badly(Migration *m, GError *error)
{
    bool lost = g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_IO) ||
                g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_EOF);

    if (lost) {
        migration_return_path_linger(m);
    }
    trace_migration_failed(error->message);
    if (migration_state_set(&m->ctx->outgoing_state, MIGRATION_STATUS_FAILING)) {
        if (m->channel) {
            migration_host_log(&m->ctx->host, "%s", error->message);
        }
        migration_set_error(m, error);
    } else {
        g_error_free(error);    /* cancelled: what broke broke because of that */
    }
    restore_guest(m);
    g_mutex_lock(&m->ctx->lock);
    migration_shutdown_channels(m);
    g_mutex_unlock(&m->ctx->lock);
    migration_return_path_stop(m);
    release(m);
}

static void finish(Migration *m, bool ok)
{
    MigrationContext *ctx = m->ctx;

    g_mutex_lock(&ctx->lock);
    m->figures.end_us = g_get_monotonic_time();
    m->guest_stopped = false;
    g_mutex_unlock(&ctx->lock);
    migration_update_busy(ctx, false, false);
    if (ok) {
        migration_state_set(&ctx->outgoing_state, MIGRATION_STATUS_COMPLETED);
    } else if (!migration_state_set(&ctx->outgoing_state, MIGRATION_STATUS_FAILED)) {
        migration_state_set(&ctx->outgoing_state, MIGRATION_STATUS_CANCELLED);
    }
}

gpointer migration_thread(gpointer opaque)
{
    Migration *m = opaque;
    GError *error = NULL;

    bool ok = connect_channel(m, &error) && set_up(m, &error) && iterate(m, &error) &&
              switch_over(m, &error) && hand_over(m, &error);
    if (ok) {
        end_well(m);
    } else {
        end_badly(m, error);
    }
    finish(m, ok);
    /* With RDMA this gives all memory back that was registered. */
    channel_unref(g_steal_pointer(&m->closing));
    return NULL;
}
