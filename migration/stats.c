/* SPDX-License-Identifier: BSD-2-Clause */
/* query-migrate: which figures are shown in which state, and where they come from. */
#include "migration/context.h"

#include "migration/migration.h"
#include "trace-migration.h"

#define US_PER_MS 1000
#define NS_PER_US 1000

/* ---- rounds ---- */

static uint64_t sum_pages(const RamStats *s)
{
    return ram_stats_get(&s->normal_pages) + ram_stats_get(&s->zero_pages) + ram_stats_get(&s->xbzrle_pages) -
           ram_stats_get(&s->xbzrle_overflow);
}

static RoundMarks take_marks(RamSave *ram)
{
    const RamStats *s = ram_save_stats(ram);
    return (RoundMarks){
        .pages = sum_pages(s),
        .bytes = ram_stats_get(&s->transferred),
        .sync_ns = ram_stats_get(&s->sync_ns),
        .clear_ns = ram_stats_get(&s->clear_ns),
        .clear_calls = ram_stats_get(&s->clear_calls),
        .cleared_pages = ram_stats_get(&s->cleared_pages),
        .dirty_pages = ram_stats_get(&s->remaining_pages),
        .time_us = g_get_monotonic_time(),
    };
}

static double pages_per_clear(uint64_t pages, uint64_t calls)
{
    return calls ? (double)pages / (double)calls : 0;
}

static bool round_ended(Notifier *notifier, void *data, GError **errp)
{
    Migration *m = (Migration *)((char *)notifier - offsetof(Migration, round_notifier));
    const RamRound *round = data;
    RoundMarks now = take_marks(round->save);
    const RoundMarks *before = &m->marks;
    uint64_t sync_us = (now.sync_ns - before->sync_ns) / NS_PER_US;
    uint64_t round_us = (uint64_t)(now.time_us - before->time_us);
    uint64_t pages = now.pages - before->pages;

    MigrationRoundStats stats = {
        .round = round->number,
        .dirty_pages = pages + now.dirty_pages,
        .sync_time = sync_us,
        .clear_calls = now.clear_calls - before->clear_calls,
        .clear_time = (now.clear_ns - before->clear_ns) / NS_PER_US,
        .cleared_pages = now.cleared_pages - before->cleared_pages,
        .send_time = round_us > sync_us ? round_us - sync_us : 0,
        .pages = pages,
        .bytes = now.bytes - before->bytes,
    };
    stats.pages_per_clear = pages_per_clear(stats.cleared_pages, stats.clear_calls);
    trace_migration_round_dirty_log(stats.round, stats.sync_time, stats.clear_calls, stats.clear_time,
                                    stats.cleared_pages);
    m->marks = now;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&m->ctx->lock);
    m->figures.rounds[m->figures.n_rounds++ % MIGRATION_ROUNDS_MAX] = stats;
    return true;
}

void migration_record_rounds(Migration *m)
{
    m->marks = take_marks(m->ram);
    m->round_notifier.notify = round_ended;
    ram_round_add_notifier(m->ram, &m->round_notifier);
}

static MigrationRoundStatsList *list_rounds(const MigrationFigures *f)
{
    uint64_t count = MIN(f->n_rounds, MIGRATION_ROUNDS_MAX);
    MigrationRoundStatsList *list = g_new0(MigrationRoundStatsList, 1);

    list->count = count;
    list->items = g_new0(MigrationRoundStats *, count);
    for (uint64_t i = 0; i < count; i++) {
        const MigrationRoundStats *r = &f->rounds[(f->n_rounds - count + i) % MIGRATION_ROUNDS_MAX];
        list->items[i] = qapi_clone_MigrationRoundStats(r);
    }
    return list;
}

static DirtyLogProviderStatsList *list_dirty_log(const DirtyLog *log)
{
    DirtyLogProviderStatsList *list = g_new0(DirtyLogProviderStatsList, 1);

    for (const DirtyLogProvider *p = log->providers; p; p = p->next) {
        list->count++;
    }
    list->items = g_new0(DirtyLogProviderStats *, list->count);
    size_t i = 0;
    for (const DirtyLogProvider *p = log->providers; p; p = p->next) {
        DirtyLogCounters c = dirty_log_get_counters(p);
        DirtyLogProviderStats *s = g_new0(DirtyLogProviderStats, 1);
        s->name = g_strdup(p->ops->name);
        s->sync_calls = c.sync_calls;
        s->sync_time = c.sync_ns / NS_PER_US;
        s->clear_calls = c.clear_calls;
        s->clear_time = c.clear_ns / NS_PER_US;
        s->cleared_pages = c.cleared_pages;
        s->pages_per_clear = pages_per_clear(c.cleared_pages, c.clear_calls);
        s->requests = c.requests;
        list->items[i++] = s;
    }
    return list;
}

static MultifdChannelStatsList *list_multifd(const Migration *m)
{
    if (!m->multifd) {
        return NULL;
    }
    MultifdChannelStatsList *list = g_new0(MultifdChannelStatsList, 1);
    list->count = m->n_multifd;
    list->items = g_new0(MultifdChannelStats *, m->n_multifd);
    for (unsigned i = 0; i < m->n_multifd; i++) {
        const MultifdCounters *c = &m->multifd[i];
        MultifdChannelStats *s = g_new0(MultifdChannelStats, 1);
        s->id = i;
        s->bytes = ram_stats_get(&c->bytes);
        s->packets = ram_stats_get(&c->packets);
        s->normal_pages = ram_stats_get(&c->normal_pages);
        s->zero_pages = ram_stats_get(&c->zero_pages);
        s->syncs = ram_stats_get(&c->syncs);
        list->items[i] = s;
    }
    return list;
}

static RdmaStats *rdma_stats(const Migration *m)
{
    const RdmaCounters *c = &m->rdma_counters;

    if (!m->rdma) {
        return NULL;
    }
    RdmaStats *s = g_new0(RdmaStats, 1);
    s->writes = ram_stats_get(&c->writes);
    s->write_bytes = ram_stats_get(&c->write_bytes);
    s->doorbells = ram_stats_get(&c->doorbells);
    s->signalled = ram_stats_get(&c->signalled);
    s->drains = ram_stats_get(&c->drains);
    s->max_in_flight = ram_stats_get(&c->max_in_flight);
    s->max_in_flight_bytes = ram_stats_get(&c->max_in_flight_bytes);
    s->control_messages = ram_stats_get(&c->control_messages);
    s->stream_messages = ram_stats_get(&c->stream_messages);
    s->registration_requests = ram_stats_get(&c->registration_requests);
    s->registered_spans = ram_stats_get(&c->registered_spans);
    s->compress_messages = ram_stats_get(&c->compress_messages);
    s->control_waits = ram_stats_get(&c->control_waits);
    s->local_registrations = ram_stats_get(&c->local_registrations);
    return s;
}

/* ---- counters ---- */

static void copy_counters(RamStats *to, const RamStats *from)
{
    static const size_t counters[] = {
        offsetof(RamStats, normal_pages), offsetof(RamStats, zero_pages),
        offsetof(RamStats, transferred), offsetof(RamStats, multifd_bytes),
        offsetof(RamStats, precopy_bytes), offsetof(RamStats, downtime_bytes),
        offsetof(RamStats, remaining_pages), offsetof(RamStats, dirty_sync_count),
        offsetof(RamStats, dirty_pages_rate), offsetof(RamStats, zero_copy_fallbacks),
        offsetof(RamStats, xbzrle_bytes), offsetof(RamStats, xbzrle_pages),
        offsetof(RamStats, xbzrle_cache_miss), offsetof(RamStats, xbzrle_overflow),
    };
    for (size_t i = 0; i < G_N_ELEMENTS(counters); i++) {
        const void *source = (const char *)from + counters[i];
        *(uint64_t *)((char *)to + counters[i]) = ram_stats_get(source);
    }
    to->xbzrle_cache_miss_rate = ram_stats_get_rate(&from->xbzrle_cache_miss_rate);
    to->xbzrle_encoding_rate = ram_stats_get_rate(&from->xbzrle_encoding_rate);
}

void migration_keep_ram_stats(Migration *m)
{
    const MigrationHost *host = &m->ctx->host;

    copy_counters(&m->figures.ram, ram_save_stats(m->ram));
    qapi_free_DirtyLogProviderStatsList(m->figures.dirty_log);
    m->figures.dirty_log = list_dirty_log(host->ops->dirty_log(host->opaque));
}

/* ---- downtime ---- */

void migration_downtime_phase(Migration *m, DowntimePhase phase)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&m->ctx->lock);
    downtime_phase_ended(&m->figures.downtime, phase);
}

static MigrationRAMStats *ram_stats(const Migration *m, const RamStats *s, bool completed)
{
    const MigrationFigures *f = &m->figures;
    MigrationRAMStats *ram = g_new0(MigrationRAMStats, 1);
    int64_t active_us = f->end_us - f->setup_done_us;

    ram->transferred = (int64_t)s->transferred;
    ram->remaining = completed ? 0 : (int64_t)(s->remaining_pages << TARGET_PAGE_BITS);
    ram->total = (int64_t)f->ram_total;
    ram->duplicate = (int64_t)s->zero_pages;
    ram->normal = (int64_t)s->normal_pages;
    ram->normal_bytes = (int64_t)(s->normal_pages << TARGET_PAGE_BITS);
    ram->dirty_pages_rate = (int64_t)s->dirty_pages_rate;
    ram->mbps = completed && active_us > 0 ? (double)s->transferred * 8 / (double)active_us : f->mbps;
    ram->dirty_sync_count = (int64_t)s->dirty_sync_count;
    ram->page_size = TARGET_PAGE_SIZE;
    ram->multifd_bytes = s->multifd_bytes;
    ram->pages_per_second = (uint64_t)f->pages_per_second;
    ram->precopy_bytes = s->precopy_bytes;
    ram->downtime_bytes = s->downtime_bytes;
    ram->dirty_sync_missed_zero_copy = s->zero_copy_fallbacks;
    return ram;
}

static XBZRLECacheStats *xbzrle_stats(const Migration *m, const RamStats *s)
{
    XBZRLECacheStats *x = g_new0(XBZRLECacheStats, 1);
    x->cache_size = m->figures.xbzrle_cache_size;
    x->bytes = (int64_t)s->xbzrle_bytes;
    x->pages = (int64_t)s->xbzrle_pages;
    x->cache_miss = (int64_t)s->xbzrle_cache_miss;
    x->cache_miss_rate = s->xbzrle_cache_miss_rate;
    x->encoding_rate = s->xbzrle_encoding_rate;
    x->overflow = (int64_t)s->xbzrle_overflow;
    return x;
}

/* ---- who is shown what ---- */

/* The members of an outgoing migration that depend on its state. */
typedef enum {
    SHOW_FIGURES = 1 << 0,          /* times, ram, xbzrle-cache, x-rounds */
    SHOW_EXPECTED_DOWNTIME = 1 << 1,
    SHOW_REMAINING = 1 << 2,
    SHOW_DOWNTIME = 1 << 3,
} Show;

static const unsigned shown[MIGRATION_STATUS__MAX] = {
    [MIGRATION_STATUS_ACTIVE] = SHOW_FIGURES | SHOW_EXPECTED_DOWNTIME | SHOW_REMAINING,
    [MIGRATION_STATUS_PRE_SWITCHOVER] = SHOW_FIGURES | SHOW_EXPECTED_DOWNTIME | SHOW_REMAINING,
    [MIGRATION_STATUS_CANCELLING] = SHOW_FIGURES | SHOW_EXPECTED_DOWNTIME | SHOW_REMAINING,
    [MIGRATION_STATUS_DEVICE] = SHOW_FIGURES | SHOW_EXPECTED_DOWNTIME | SHOW_REMAINING,
    [MIGRATION_STATUS_COMPLETED] = SHOW_FIGURES | SHOW_DOWNTIME,
};

/* A migration that is cancelled while it sets up has no set-up time yet. */
static void fill_times(MigrationInfo *info, const MigrationFigures *f, unsigned show)
{
    int64_t now = f->end_us ? f->end_us : g_get_monotonic_time();

    info->has_setup_time = true;
    info->setup_time = f->setup_done_us ? (f->setup_done_us - f->start_us) / US_PER_MS : 0;
    info->has_total_time = true;
    info->total_time = (now - f->start_us) / US_PER_MS;
    info->has_expected_downtime = show & SHOW_EXPECTED_DOWNTIME;
    info->expected_downtime = f->expected_downtime_ms;
    info->has_downtime = show & SHOW_DOWNTIME;
    info->downtime = downtime_total(&f->downtime) / US_PER_MS;
    info->x_downtime = show & SHOW_DOWNTIME ? downtime_report(&f->downtime) : NULL;
}

static MigrationFileInfo *file_info(const char *engine, bool direct)
{
    MigrationFileInfo *info = g_new0(MigrationFileInfo, 1);
    info->engine = g_strdup(engine);
    info->direct_io = direct;
    return info;
}

/* While a limit is in force, whoever has set it. */
static void fill_dirty_limit(MigrationInfo *info, const Migration *m)
{
    DirtyLimiter *limiter = migration_dirty_limiter(m);
    DirtyLimitFigures figures;

    if (limiter && dirty_limiter_figures(limiter, &figures)) {
        info->has_dirty_limit_throttle_time_per_round = true;
        info->dirty_limit_throttle_time_per_round = figures.throttle_us;
        info->has_dirty_limit_ring_full_time = true;
        info->dirty_limit_ring_full_time = figures.ring_full_us;
    }
}

static void fill_figures(MigrationInfo *info, const Migration *m, unsigned show)
{
    const MigrationFigures *f = &m->figures;
    RamStats s = f->ram;

    if (m->ram) {
        const MigrationHost *host = &m->ctx->host;
        copy_counters(&s, ram_save_stats(m->ram));
        info->x_dirty_log = list_dirty_log(host->ops->dirty_log(host->opaque));
    } else if (f->dirty_log) {
        info->x_dirty_log = qapi_clone_DirtyLogProviderStatsList(f->dirty_log);
    }
    fill_times(info, f, show);
    info->ram = ram_stats(m, &s, info->status == MIGRATION_STATUS_COMPLETED);
    info->has_remaining = show & SHOW_REMAINING;
    info->remaining = s.remaining_pages << TARGET_PAGE_BITS;
    if (m->options->caps[MIGRATION_CAPABILITY_XBZRLE]) {
        info->xbzrle_cache = xbzrle_stats(m, &s);
    }
    info->has_cpu_throttle_percentage = f->throttle_percent > 0;
    info->cpu_throttle_percentage = f->throttle_percent;
    fill_dirty_limit(info, m);
    info->x_rounds = list_rounds(f);
    info->x_multifd_channels = list_multifd(m);
    if (f->file_engine) {
        info->x_file = file_info(f->file_engine, m->pages.direct);
    }
    info->x_rdma = rdma_stats(m);
}

static void fill_outgoing(MigrationInfo *info, const Migration *m)
{
    unsigned show = shown[info->status];

    if (show) {
        fill_figures(info, m, show);
    }
    if (info->status == MIGRATION_STATUS_FAILED && m->error) {
        info->error_desc = g_strdup(m->error->message);
    }
}

static void fill_incoming(MigrationInfo *info, const Incoming *in)
{
    if (in->addresses && info->status != MIGRATION_STATUS_COMPLETED) {
        info->socket_address = qapi_clone_SocketAddressList(in->addresses);
    }
    if (info->status == MIGRATION_STATUS_FAILED && in->error) {
        info->error_desc = g_strdup(in->error->message);
    }
    if (info->status == MIGRATION_STATUS_COMPLETED) {
        info->x_downtime = downtime_report(&in->downtime);
    }
    if (in->mapped && mapped_ram_load_backend(in->mapped)) {
        info->x_file = file_info(mapped_ram_load_backend(in->mapped), in->pages.direct);
        info->x_file->lazy = mapped_ram_load_is_lazy(in->mapped);
        info->x_file->has_pages_left = info->status != MIGRATION_STATUS_COMPLETED;
        info->x_file->pages_left = mapped_ram_load_left(in->mapped);
    }
}

static void fill_blockers(MigrationInfo *info, const GArray *blockers)
{
    if (!blockers->len) {
        return;
    }
    strList *list = g_new0(strList, 1);
    list->count = blockers->len;
    list->items = g_new0(char *, blockers->len);
    for (guint i = 0; i < blockers->len; i++) {
        list->items[i] = g_strdup(g_array_index(blockers, MigrationBlocker, i).reason);
    }
    info->blocked_reasons = list;
}

MigrationInfo *migration_query(MigrationContext *ctx)
{
    MigrationInfo *info = g_new0(MigrationInfo, 1);
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&ctx->lock);
    MigrationStatus outgoing = migration_state_get(&ctx->outgoing_state);
    MigrationStatus incoming = migration_state_get(&ctx->incoming_state);

    if (outgoing != MIGRATION_STATUS_NONE) {
        info->has_status = true;
        info->status = outgoing;
        fill_outgoing(info, ctx->outgoing);
    } else if (incoming != MIGRATION_STATUS_NONE) {
        info->has_status = true;
        info->status = incoming;
        fill_incoming(info, ctx->incoming);
    }
    fill_blockers(info, ctx->blockers);
    return info;
}
