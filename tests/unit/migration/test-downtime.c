/* SPDX-License-Identifier: BSD-2-Clause */
/* The downtime's phases: known delays are found where they were put in, and the sums are right. */
#include <string.h>

#include "migration/downtime.h"
#include "pair.h"

#define MIB (1024 * 1024ull)
#define MS 1000

/* ---- the arithmetic ---- */

static void test_phases(void)
{
    Downtime d = { 0 };

    downtime_phase_ended(&d, DOWNTIME_SYNC);
    g_assert_null(downtime_report(&d));
    int64_t before = g_get_monotonic_time();
    downtime_begin(&d);
    g_usleep(5 * MS);
    downtime_begin(&d);     /* has begun */
    downtime_phase_ended(&d, DOWNTIME_STOP);
    g_usleep(7 * MS);
    downtime_phase_ended(&d, DOWNTIME_TRANSFER);
    downtime_phase_ended(&d, DOWNTIME_HAND_OVER);
    int64_t elapsed = g_get_monotonic_time() - before;

    g_autoptr(MigrationDowntime) report = downtime_report(&d);
    g_assert_true(report->has_stop && report->has_transfer && report->has_hand_over);
    g_assert_false(report->has_pause || report->has_sync || report->has_device_state || report->has_receive ||
                   report->has_load || report->has_start);
    g_assert_cmpint(report->stop, >=, 5 * MS);
    g_assert_cmpint(report->transfer, >=, 7 * MS);
    g_assert_cmpint(report->total, ==, report->stop + report->transfer + report->hand_over);
    g_assert_cmpint(report->total, <=, elapsed);
}

/* ---- a migration with a delay in each phase ---- */

/* What each phase is delayed by, in microseconds: all different, none the sum of others. */
enum {
    STOP_US = 21 * MS,
    SYNC_US = 33 * MS,
    SAVE_US = 45 * MS,
    LOAD_US = 57 * MS,
    START_US = 69 * MS,
};

typedef struct Delays {
    Vm src, dst;
    MigrationHostOps usual;
    DirtyLogProvider provider;
    SaveEntry entries[2];
} Delays;

static Delays *the_delays;      /* of the test that runs: host ops have no other way to it */

static bool slow_stop(void *opaque, RunState why, GError **errp)
{
    g_usleep(STOP_US);
    return the_delays->usual.stop(opaque, why, errp);
}

static bool slow_start(void *opaque, GError **errp)
{
    g_usleep(START_US);
    return the_delays->usual.start(opaque, errp);
}

static bool no_start(DirtyLogProvider *p, const RamList *ram, GError **errp)
{
    return true;
}

static void no_stop(DirtyLogProvider *p)
{
}

static bool slow_sync(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count, uint64_t *bitmap,
                      uint64_t *new_dirty, GError **errp)
{
    g_usleep(SYNC_US);
    return true;
}

static bool no_clear(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                     const uint64_t *bitmap, GError **errp)
{
    return true;
}

static const DirtyLogProviderOps slow_ops = {
    .name = "slow", .start = no_start, .stop = no_stop, .sync = slow_sync, .clear = no_clear,
};

static bool slow_save(void *opaque, GError **errp)
{
    g_usleep(SAVE_US);
    return true;
}

static bool slow_load(void *opaque, int version, GError **errp)
{
    g_usleep(LOAD_US);
    return true;
}

static const VMStateField no_fields[] = { VMSTATE_END };
static const VMStateDescription slow_device = {
    .name = "slow",
    .version = 1,
    .minimum_version = 1,
    .fields = no_fields,
    .pre_save = slow_save,
    .post_load = slow_load,
};

static void delays_init(Delays *d)
{
    memset(d, 0, sizeof(*d));
    the_delays = d;
    pair_init(&d->src, &d->dst, 4 * MIB);
    d->usual = d->src.host.ops;
    d->src.host.ops.stop = slow_stop;
    d->dst.host.ops.start = slow_start;
    d->provider.ops = &slow_ops;
    dirty_log_add_provider(&d->src.host.dirty_log, &d->provider);
    for (unsigned i = 0; i < 2; i++) {
        d->entries[i] = (SaveEntry){ .idstr = "slow", .vmsd = &slow_device, .opaque = d };
        save_entry_list_add(i ? &d->dst.host.entries : &d->src.host.entries, &d->entries[i]);
    }
}

static void delays_clear(Delays *d)
{
    dirty_log_remove_provider(&d->src.host.dirty_log, &d->provider);
    pair_clear(&d->src, &d->dst);
    the_delays = NULL;
}

static void check_source(Delays *d, bool return_path, int64_t pause_us, int64_t elapsed)
{
    g_autoptr(MigrationInfo) info = migration_query(d->src.ctx);
    const MigrationDowntime *t = info->x_downtime;

    g_assert_nonnull(t);
    g_assert_true(t->has_stop && t->has_sync && t->has_transfer && t->has_device_state && t->has_hand_over);
    g_assert_false(t->has_receive || t->has_load || t->has_start);
    g_assert_cmpint(t->has_pause, ==, pause_us > 0);
    g_assert_cmpint(t->stop, >=, STOP_US);
    g_assert_cmpint(t->sync, >=, SYNC_US);
    g_assert_cmpint(t->device_state, >=, SAVE_US);
    g_assert_cmpint(t->pause, >=, pause_us);
    /* The destination's guest is not started before it has read the end, which this phase sends. */
    g_assert_cmpint(t->hand_over, >=, return_path ? START_US : 0);
    g_assert_cmpint(t->stop + t->pause + t->sync + t->transfer + t->device_state + t->hand_over, ==,
                    t->total);
    g_assert_cmpint(info->downtime, ==, t->total / 1000);
    g_assert_cmpint(t->total, <=, elapsed);
}

static void check_destination(Delays *d, int64_t elapsed)
{
    g_autoptr(MigrationInfo) info = migration_query(d->dst.ctx);
    const MigrationDowntime *t = info->x_downtime;

    g_assert_nonnull(t);
    g_assert_true(t->has_receive && t->has_load && t->has_start);
    g_assert_false(t->has_stop || t->has_pause || t->has_sync || t->has_transfer || t->has_device_state ||
                   t->has_hand_over);
    g_assert_cmpint(t->load, >=, LOAD_US);
    g_assert_cmpint(t->start, >=, START_US);
    g_assert_cmpint(t->receive + t->load + t->start, ==, t->total);
    g_assert_cmpint(t->total, <=, elapsed);
}

static void test_delays(gconstpointer data)
{
    bool return_path = GPOINTER_TO_INT(data);
    g_autofree Delays *d = g_new0(Delays, 1);
    int64_t begin = g_get_monotonic_time();

    delays_init(d);
    vm_set_capability(&d->src, MIGRATION_CAPABILITY_RETURN_PATH, return_path);
    pair_connect(&d->src, &d->dst);
    pair_assert_arrived(&d->src, &d->dst);
    int64_t elapsed = g_get_monotonic_time() - begin;
    check_source(d, return_path, 0, elapsed);
    check_destination(d, elapsed);
    delays_clear(d);
}

/* The time that the management takes is a phase of its own. */
static void test_pause(void)
{
    g_autofree Delays *d = g_new0(Delays, 1);
    int64_t begin = g_get_monotonic_time();

    delays_init(d);
    vm_set_capability(&d->src, MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER, true);
    pair_connect(&d->src, &d->dst);
    vm_wait_status(&d->src, MIGRATION_STATUS_PRE_SWITCHOVER);
    g_autoptr(MigrationInfo) waiting = migration_query(d->src.ctx);
    g_assert_null(waiting->x_downtime);     /* is not over */
    g_usleep(50 * MS);
    g_assert_true(migration_continue(d->src.ctx, MIGRATION_STATUS_PRE_SWITCHOVER, NULL));
    pair_assert_arrived(&d->src, &d->dst);
    check_source(d, false, 50 * MS, g_get_monotonic_time() - begin);
    delays_clear(d);
}

/* A migration that failed after the guest was stopped has no downtime to report; the next one counts anew. */
static void test_failed(void)
{
    g_autofree Delays *d = g_new0(Delays, 1);

    delays_init(d);
    d->dst.host.fail_start = true;
    vm_set_capability(&d->src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    pair_connect(&d->src, &d->dst);
    g_assert_cmpint(vm_wait_end(&d->src), ==, MIGRATION_STATUS_FAILED);
    vm_wait_incoming_ended(&d->dst);
    g_autoptr(MigrationInfo) source = migration_query(d->src.ctx);
    g_autoptr(MigrationInfo) destination = migration_query(d->dst.ctx);
    g_assert_null(source->x_downtime);
    g_assert_null(destination->x_downtime);
    delays_clear(d);
}

/* ---- the dirty log's figures ---- */

static const DirtyLogProviderStats *find_provider(const MigrationInfo *info, const char *name)
{
    for (size_t i = 0; i < info->x_dirty_log->count; i++) {
        if (strcmp(info->x_dirty_log->items[i]->name, name) == 0) {
            return info->x_dirty_log->items[i];
        }
    }
    return NULL;
}

/* 1024 pages of an idle guest: all are cleared once, by one call to each of the two providers. */
static void test_dirty_log(void)
{
    g_autofree Delays *d = g_new0(Delays, 1);

    delays_init(d);
    pair_connect(&d->src, &d->dst);
    pair_assert_arrived(&d->src, &d->dst);
    g_autoptr(MigrationInfo) info = migration_query(d->src.ctx);
    g_assert_cmpuint(info->x_dirty_log->count, ==, 2);
    for (unsigned i = 0; i < 2; i++) {
        const DirtyLogProviderStats *p = find_provider(info, i ? "slow" : "software");
        g_assert_nonnull(p);
        g_assert_cmpuint(p->sync_calls, ==, 3);     /* set-up, before the switchover, after it */
        g_assert_cmpuint(p->clear_calls, ==, 1);
        g_assert_cmpuint(p->cleared_pages, ==, 1024);
        g_assert_cmpfloat(p->pages_per_clear, ==, 1024);
        g_assert_cmpuint(p->sync_time, >=, i ? 3 * SYNC_US : 0);
    }
    const MigrationRoundStats *first = info->x_rounds->items[0];
    g_assert_cmpuint(first->clear_calls, ==, 1);
    g_assert_cmpuint(first->cleared_pages, ==, 1024);
    g_assert_cmpfloat(first->pages_per_clear, ==, 1024);
    delays_clear(d);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/downtime/phases", test_phases);
    g_test_add_data_func("/downtime/delays", GINT_TO_POINTER(0), test_delays);
    g_test_add_data_func("/downtime/delays-return-path", GINT_TO_POINTER(1), test_delays);
    g_test_add_func("/downtime/pause", test_pause);
    g_test_add_func("/downtime/failed", test_failed);
    g_test_add_func("/downtime/dirty-log", test_dirty_log);
    return g_test_run();
}
