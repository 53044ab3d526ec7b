/* SPDX-License-Identifier: BSD-2-Clause */
/* Whole migrations between two contexts in one process: events, statistics, cancel, failure, retry. */
#include "config.h"
#include "migration/internal-options.h"
#include "pair.h"
#include "util/error.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB (1024 * 1024ull)

/* ---- plain ---- */

static void check_completed(Vm *src)
{
    g_autoptr(MigrationInfo) info = migration_query(src->ctx);
    uint64_t size = src->block->used_length;

    g_assert_true(info->has_total_time && info->has_setup_time && info->has_downtime);
    g_assert_false(info->has_expected_downtime || info->has_remaining);
    g_assert_null(info->error_desc);
    g_assert_null(info->xbzrle_cache);
    g_assert_false(info->has_cpu_throttle_percentage);
    g_assert_cmpint(info->total_time, >=, info->setup_time + info->downtime);
    g_assert_cmpint(info->ram->total, ==, (int64_t)size);
    g_assert_cmpint(info->ram->remaining, ==, 0);
    g_assert_cmpint(info->ram->dirty_sync_count, ==, 2);
    g_assert_cmpint(info->ram->page_size, ==, 4096);
    /* One page in four is zero, and an idle guest's are sent once each. */
    g_assert_cmpint(info->ram->duplicate, ==, (int64_t)(size / 4096 / 4));
    g_assert_cmpint(info->ram->normal, ==, (int64_t)(size / 4096 / 4 * 3));
    g_assert_cmpint(info->ram->normal_bytes, ==, info->ram->normal * 4096);
    g_assert_cmpint(info->ram->transferred, >, info->ram->normal_bytes);
    g_assert_cmpuint(info->x_rounds->count, >=, 1);
    g_assert_cmpuint(info->x_rounds->items[0]->pages, ==, size / 4096);
}

static void test_plain(void)
{
    Vm src, dst;
    pair_init(&src, &dst, 8 * MIB);
    src.host.timer.cpu_clock_offset = 12345;
    g_assert_cmpint(vm_status(&src), ==, MIGRATION_STATUS_NONE);

    pair_connect(&src, &dst);
    pair_assert_arrived(&src, &dst);
    assert_events(&src, "setup active PASS 2 STOP device completed");
    assert_events(&dst, "setup active RESUME completed");
    g_assert_cmpint(fake_host_state(&dst.host), ==, RUN_STATE_RUNNING);
    g_assert_cmpint(dst.host.timer.cpu_clock_offset, ==, 12345);
    check_completed(&src);

    g_autoptr(GError) again = NULL;
    g_assert_false(migration_start(src.ctx, "unix:/nowhere", NULL, false, &again));
    g_assert_cmpstr(again->message, ==, "Can't migrate the vm that was paused due to previous migration");
    g_autoptr(GError) incoming = NULL;
    g_assert_false(migration_incoming_start(dst.ctx, "unix:/nowhere", NULL, true, &incoming));
    g_assert_cmpstr(incoming->message, ==, "The incoming migration has already been started");
    pair_clear(&src, &dst);
}

static void test_no_ram(void)
{
    Vm src, dst;
    vm_init(&src, 0, false);
    vm_init(&dst, 0, true);
    pair_connect(&src, &dst);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_COMPLETED);
    vm_wait_incoming_ended(&dst);
    assert_events(&src, "setup active PASS 2 STOP device completed");
    pair_clear(&src, &dst);
}

static void test_no_events(void)
{
    Vm src, dst;
    pair_init(&src, &dst, MIB);
    vm_set_capability(&src, MIGRATION_CAPABILITY_EVENTS, false);
    vm_set_capability(&dst, MIGRATION_CAPABILITY_EVENTS, false);
    pair_connect(&src, &dst);
    pair_assert_arrived(&src, &dst);
    assert_events(&src, "STOP");
    assert_events(&dst, "RESUME");
    pair_clear(&src, &dst);
}

static void test_return_path(void)
{
    Vm src, dst;
    pair_init(&src, &dst, 4 * MIB);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    pair_connect(&src, &dst);
    pair_assert_arrived(&src, &dst);
    assert_events(&src, "setup active PASS 2 STOP device completed");
    pair_clear(&src, &dst);
}

static void test_source_paused(void)
{
    Vm src, dst;
    pair_init(&src, &dst, MIB);
    fake_host_set_state(&src.host, RUN_STATE_PAUSED);
    pair_connect(&src, &dst);
    pair_assert_arrived(&src, &dst);
    assert_events(&src, "setup active PASS 2 device completed");
    assert_events(&dst, "setup active completed");
    g_assert_cmpint(fake_host_state(&dst.host), ==, RUN_STATE_PAUSED);
    pair_clear(&src, &dst);
}

static void test_source_prelaunch(void)
{
    Vm src, dst;
    pair_init(&src, &dst, MIB);
    fake_host_set_state(&src.host, RUN_STATE_PRELAUNCH);
    pair_connect(&src, &dst);
    pair_assert_arrived(&src, &dst);
    g_assert_cmpint(fake_host_state(&dst.host), ==, RUN_STATE_PRELAUNCH);
    pair_clear(&src, &dst);
}

static void test_no_autostart(void)
{
    Vm src, dst;
    pair_init(&src, &dst, MIB);
    dst.host.autostart = false;
    pair_connect(&src, &dst);
    pair_assert_arrived(&src, &dst);
    assert_events(&dst, "setup active completed");
    g_assert_cmpint(fake_host_state(&dst.host), ==, RUN_STATE_PAUSED);
    pair_clear(&src, &dst);
}

/* A guest that writes all the time, faster than can be sent at first. */
static void test_load(gconstpointer return_path)
{
    Vm src, dst;
    Writer w;
    pair_init(&src, &dst, 16 * MIB);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, GPOINTER_TO_INT(return_path));
    vm_set_parameter(&src, "max-bandwidth", "32M");
    writer_start(&w, &src, 100);
    pair_connect(&src, &dst);
    vm_wait_end(&src);
    writer_stop(&w);
    g_assert_cmpuint(w.writes, >, 0);
    pair_assert_arrived(&src, &dst);

    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_cmpint(info->ram->dirty_sync_count, >=, 2);
    pair_clear(&src, &dst);
}

/* A to B to C, nobody writing in between. */
static void test_chain(void)
{
    Vm a, b, c;
    pair_init(&a, &b, 4 * MIB);
    vm_init(&c, 4 * MIB, true);
    pair_connect(&a, &b);
    pair_assert_arrived(&a, &b);
    pair_connect(&b, &c);
    pair_assert_arrived(&b, &c);
    assert_same_ram(&a, &c);
    assert_events(&b, "setup active RESUME completed setup active PASS 2 STOP device completed");
    vm_clear(&a);
    pair_clear(&b, &c);
}

static void test_xbzrle(void)
{
    Vm src, dst;
    Writer w;
    pair_init(&src, &dst, 8 * MIB);
    vm_set_capability(&src, MIGRATION_CAPABILITY_XBZRLE, true);
    vm_set_parameter(&src, "max-bandwidth", "16M");
    vm_set_parameter(&src, "downtime-limit", "0");
    writer_start(&w, &src, 500);
    pair_connect(&src, &dst);
    vm_wait_passes(&src, 4);
    /* Takes effect while it runs. */
    vm_set_parameter(&src, "downtime-limit", "10000");
    vm_wait_end(&src);
    writer_stop(&w);
    pair_assert_arrived(&src, &dst);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_nonnull(info->xbzrle_cache);
    g_assert_cmpuint(info->xbzrle_cache->cache_size, ==, 67108864);
    g_assert_cmpint(info->xbzrle_cache->pages, >, 0);
    pair_clear(&src, &dst);
}

/* ---- transports ---- */

static void test_fd(void)
{
    Vm src, dst;
    int fds[2];
    pair_init(&src, &dst, 2 * MIB);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), ==, 0);
    src.host.fd = fds[0];
    dst.host.fd = fds[1];
    pair_listen(&dst, "fd:migfd", true);
    pair_migrate(&src, "fd:migfd");
    pair_assert_arrived(&src, &dst);
    assert_events(&dst, "setup active RESUME completed");
    pair_clear(&src, &dst);
}

/* A number that no name stands for is the descriptor itself, on the destination only. */
static void test_fd_number(void)
{
    Vm src, dst;
    int fds[2];
    pair_init(&src, &dst, MIB);
    g_assert_cmpint(pipe(fds), ==, 0);
    g_autofree char *uri = g_strdup_printf("fd:%d", fds[0]);
    g_autoptr(GError) error = NULL;
    g_assert_false(migration_start(src.ctx, uri, NULL, false, &error));
    g_autofree char *text = g_strdup_printf("File descriptor named '%d' has not been found", fds[0]);
    g_assert_cmpstr(error->message, ==, text);

    pair_listen(&dst, uri, true);
    src.host.fd = fds[1];
    pair_migrate(&src, "fd:migfd");
    pair_assert_arrived(&src, &dst);
    pair_clear(&src, &dst);
}

static void test_exec(void)
{
    Vm src, dst;
    pair_init(&src, &dst, 2 * MIB);
    g_autofree char *out = g_strdup_printf("exec:cat > %s/exec", test_directory());
    g_autofree char *in = g_strdup_printf("exec:cat %s/exec", test_directory());
    pair_migrate(&src, out);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_COMPLETED);
    pair_listen(&dst, in, true);
    pair_assert_arrived(&src, &dst);
    pair_clear(&src, &dst);
}

static void test_exec_failure(gconstpointer command)
{
    Vm src;
    vm_init(&src, 8 * MIB, false);
    vm_fill_random(&src, 1);
    pair_migrate(&src, command);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    pair_assert_runs_on(&src);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_nonnull(info->error_desc);
    vm_clear(&src);
}

/* Whatever was in the file before the offset stays, and nothing that was behind the stream survives. */
static void test_file_offset(gconstpointer data)
{
    guint64 offset = GPOINTER_TO_SIZE(data);
    Vm src, dst;
    g_autofree char *path = g_strdup_printf("%s/offset", test_directory());
    g_autofree char *uri = g_strdup_printf("file:%s,offset=%" G_GUINT64_FORMAT, path, offset);
    g_autofree char *old = g_malloc(32 * MIB);
    gsize length;
    g_autofree char *now = NULL;

    memset(old, 0x5a, 32 * MIB);
    g_assert_true(g_file_set_contents(path, old, 32 * MIB, NULL));
    pair_init(&src, &dst, 2 * MIB);
    pair_migrate(&src, uri);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_COMPLETED);
    g_assert_true(g_file_get_contents(path, &now, &length, NULL));
    g_assert_cmpmem(now, offset, old, offset);
    g_assert_cmpmem(now + offset, 4, "QEVM", 4);
    g_assert_cmpmem(now + length - 4, 4, "]}]}", 4);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_cmpuint(length, ==, offset + (guint64)info->ram->transferred);

    pair_listen(&dst, uri, true);
    pair_assert_arrived(&src, &dst);
    pair_clear(&src, &dst);
}

static void test_file_fdset(void)
{
    Vm src, dst;
    g_autofree char *path = g_strdup_printf("%s/fdset", test_directory());
    pair_init(&src, &dst, MIB);
    src.host.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pair_migrate(&src, "file:/dev/fdset/3,offset=4K");
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_COMPLETED);
    g_assert_cmphex((unsigned)src.host.fdset_flags, ==, 0x41);

    dst.host.fd = open(path, O_RDONLY);
    pair_listen(&dst, "file:/dev/fdset/3,offset=0x1000", true);
    pair_assert_arrived(&src, &dst);
    g_assert_cmphex((unsigned)dst.host.fdset_flags, ==, 0);
    pair_clear(&src, &dst);
}

/* ---- pause-before-switchover ---- */

static void test_pause(void)
{
    Vm src, dst;
    g_autoptr(GError) error = NULL;
    pair_init(&src, &dst, 2 * MIB);
    vm_set_capability(&src, MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER, true);
    pair_connect(&src, &dst);
    vm_wait_status(&src, MIGRATION_STATUS_PRE_SWITCHOVER);
    g_assert_cmpint(fake_host_state(&src.host), ==, RUN_STATE_FINISH_MIGRATE);
    vm_wait_status(&dst, MIGRATION_STATUS_ACTIVE);

    g_assert_false(migration_allows_start(src.ctx, &error));
    g_assert_cmpstr(error->message, ==, "Migration is not finalized yet");
    g_clear_error(&error);
    g_assert_false(migration_continue(src.ctx, MIGRATION_STATUS_ACTIVE, &error));
    g_assert_cmpstr(error->message, ==, "Migration not in expected state: pre-switchover");

    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_true(info->has_expected_downtime && info->has_remaining && info->has_total_time);
    g_assert_false(info->has_downtime);

    g_assert_true(migration_continue(src.ctx, MIGRATION_STATUS_PRE_SWITCHOVER, NULL));
    pair_assert_arrived(&src, &dst);
    assert_events(&src, "setup active PASS 2 STOP pre-switchover device completed");
    pair_clear(&src, &dst);
}

static void test_pause_cancel(void)
{
    Vm src, dst;
    pair_init(&src, &dst, 2 * MIB);
    vm_set_capability(&src, MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER, true);
    pair_connect(&src, &dst);
    vm_wait_status(&src, MIGRATION_STATUS_PRE_SWITCHOVER);
    g_assert_true(migration_cancel(src.ctx, NULL));
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_CANCELLED);
    pair_assert_runs_on(&src);
    assert_events(&src, "setup active PASS 2 STOP pre-switchover cancelling RESUME cancelled");
    vm_wait_incoming_ended(&dst);
    g_assert_nonnull(dst.host.ended_error);
    g_assert_cmpint(fake_host_state(&dst.host), ==, RUN_STATE_INMIGRATE);
    pair_clear(&src, &dst);
}

/* ---- switchover-ack ---- */

static void init_ack(Vm *vm, bool legacy)
{
    vm_set_capability(vm, MIGRATION_CAPABILITY_RETURN_PATH, true);
    vm_set_capability(vm, MIGRATION_CAPABILITY_SWITCHOVER_ACK, true);
    vm_set_global(vm, "switchover-ack-legacy", legacy ? "on" : "off");
}

static void test_ack(gconstpointer legacy)
{
    Vm src, dst;
    pair_init(&src, &dst, MIB);
    init_ack(&src, GPOINTER_TO_INT(legacy));
    init_ack(&dst, GPOINTER_TO_INT(legacy));
    pair_connect(&src, &dst);
    pair_assert_arrived(&src, &dst);
    pair_clear(&src, &dst);
}

/* An old source and a new destination: no acknowledgement comes, the guest is not stopped, cancel works. */
static void test_ack_missing(void)
{
    Vm src, dst;
    pair_init(&src, &dst, MIB);
    init_ack(&src, true);
    init_ack(&dst, false);
    pair_connect(&src, &dst);
    vm_wait_status(&src, MIGRATION_STATUS_ACTIVE);
    run_main_loop(400);
    g_assert_cmpint(vm_status(&src), ==, MIGRATION_STATUS_ACTIVE);
    g_assert_cmpint(fake_host_state(&src.host), ==, RUN_STATE_RUNNING);
    /* It waits; it does not spin. */
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_cmpint(info->ram->dirty_sync_count, <, 200);
    g_assert_true(migration_cancel(src.ctx, NULL));
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_CANCELLED);
    pair_assert_runs_on(&src);
    pair_clear(&src, &dst);
}

/* A guest that does not run needs none. */
static void test_ack_missing_paused(void)
{
    Vm src, dst;
    pair_init(&src, &dst, MIB);
    init_ack(&src, true);
    init_ack(&dst, false);
    fake_host_set_state(&src.host, RUN_STATE_PAUSED);
    pair_connect(&src, &dst);
    pair_assert_arrived(&src, &dst);
    pair_clear(&src, &dst);
}

static void test_ack_unexpected(void)
{
    Vm src, dst;
    pair_init(&src, &dst, MIB);
    init_ack(&src, false);
    init_ack(&dst, true);
    pair_connect(&src, &dst);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_cmpstr(info->error_desc, ==, "Switchover ack pending num underflowed");
    pair_assert_runs_on(&src);
    pair_clear(&src, &dst);
}

/* ---- bandwidth and convergence ---- */

/* A limit that would take minutes, then none: the change ends the waiting. */
static void test_live_bandwidth(void)
{
    Vm src, dst;
    pair_init(&src, &dst, 16 * MIB);
    g_autoptr(GError) error = NULL;
    MigrationParameters p = { .has_max_bandwidth = true, .max_bandwidth = 65536 };
    g_assert_true(migration_set_parameters(migration_options(src.ctx), &p, &error));
    int64_t begin = g_get_monotonic_time();
    pair_connect(&src, &dst);
    vm_wait_status(&src, MIGRATION_STATUS_ACTIVE);
    run_main_loop(500);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    int64_t windows = (g_get_monotonic_time() - begin) / (100 * 1000) + 2;
    g_assert_cmpint(info->status, ==, MIGRATION_STATUS_ACTIVE);
    /* One page more than the budget in each window, and what set-up sends. */
    g_assert_cmpint(info->ram->transferred, <, windows * (6553 + 5000) + 200);
    p.max_bandwidth = 0;
    g_assert_true(migration_set_parameters(migration_options(src.ctx), &p, &error));
    pair_assert_arrived(&src, &dst);
    pair_clear(&src, &dst);
}

static bool is_throttled(void *opaque)
{
    Vm *vm = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&vm->host.lock);
    return vm->host.throttle_max > 0;
}

/* Dirtied faster than sent, whatever the limit: only the throttle or a longer downtime ends it. */
static void test_auto_converge(void)
{
    Vm src, dst;
    Writer w;
    pair_init(&src, &dst, 8 * MIB);
    src.host.has_vcpus = true;
    vm_set_capability(&src, MIGRATION_CAPABILITY_AUTO_CONVERGE, true);
    vm_set_parameter(&src, "max-bandwidth", "4M");
    vm_set_parameter(&src, "downtime-limit", "0");
    writer_start(&w, &src, 20);
    pair_connect(&src, &dst);
    vm_wait_status(&src, MIGRATION_STATUS_ACTIVE);
    wait_until(is_throttled, &src, "the throttle");
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_true(info->has_cpu_throttle_percentage);
    g_assert_cmpint(info->cpu_throttle_percentage, >=, 20);
    g_assert_true(info->has_expected_downtime);
    vm_set_parameter(&src, "max-bandwidth", "0");
    vm_set_parameter(&src, "downtime-limit", "100000");
    vm_wait_end(&src);
    writer_stop(&w);
    pair_assert_arrived(&src, &dst);
    g_assert_cmpuint(src.host.throttle_percent, ==, 0);
    pair_clear(&src, &dst);
}

/* ---- dirty limit ---- */

/* vCPUs that write as the Writer does, whatever their pace. */
typedef struct Paced {
    int started, pace;      /* atomic; pace of vCPU 0 */
    unsigned pages;         /* the limiter's lock */
} Paced;

static bool paced_start(void *opaque, GError **errp)
{
    g_atomic_int_inc(&((Paced *)opaque)->started);
    return true;
}

static void paced_stop(void *opaque)
{
    g_atomic_int_add(&((Paced *)opaque)->started, -1);
}

static bool paced_fetch(void *opaque, GError **errp)
{
    return true;
}

static uint64_t paced_pages(void *opaque, unsigned index)
{
    return ((Paced *)opaque)->pages += 100000;
}

static void paced_pace(void *opaque, unsigned index, uint64_t ns)
{
    if (index == 0) {
        g_atomic_int_set(&((Paced *)opaque)->pace, (int)ns);
    }
}

static const DirtyLimiterOps paced_ops = {
    .start = paced_start, .stop = paced_stop, .fetch = paced_fetch, .pages = paced_pages, .pace = paced_pace,
};

static uint64_t limit_of(Vm *vm, int64_t index)
{
    DirtyLimitState state = { 0 };
    g_assert_true(dirty_limiter_query(vm->host.dirty_limiter, index, &state));
    return state.limit;
}

static bool is_limited(void *opaque)
{
    return limit_of(opaque, 0) == 7;
}

static bool follows_parameter(void *opaque)
{
    return limit_of(opaque, 0) == 9;
}

static bool is_paced(void *opaque)
{
    return g_atomic_int_get(&((Paced *)opaque)->pace) > 0;
}

/* Like auto-converge, with a limit in place of the throttle; with @cancel it ends that way. */
static void dirty_limit(bool cancel)
{
    Vm src, dst;
    Writer w;
    Paced paced = { 0 };
    pair_init(&src, &dst, 8 * MIB);
    src.host.has_vcpus = true;
    src.host.dirty_limiter = dirty_limiter_new(2, 4096, &paced_ops, &paced);
    migration_option_store_set_dirty_limiter(migration_options(src.ctx), true);
    vm_set_capability(&src, MIGRATION_CAPABILITY_DIRTY_LIMIT, true);
    vm_set_parameter(&src, "max-bandwidth", "64K");         /* the first round does not end */
    vm_set_parameter(&src, "downtime-limit", "0");
    vm_set_parameter(&src, "vcpu-dirty-limit", "7");
    vm_set_parameter(&src, "x-vcpu-dirty-limit-period", "100");
    writer_start(&w, &src, 20);
    pair_connect(&src, &dst);
    vm_wait_status(&src, MIGRATION_STATUS_ACTIVE);
    g_autoptr(MigrationInfo) before = migration_query(src.ctx);
    g_assert_false(before->has_dirty_limit_ring_full_time);
    vm_set_parameter(&src, "max-bandwidth", "4M");
    wait_until(is_limited, &src, "the limit");
    g_assert_cmpuint(limit_of(&src, 1), ==, 7);
    wait_until(is_paced, &paced, "the pace");
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_true(info->has_dirty_limit_ring_full_time && info->has_dirty_limit_throttle_time_per_round);
    g_assert_cmpuint(info->dirty_limit_throttle_time_per_round, >, 0);
    g_assert_false(info->has_cpu_throttle_percentage);
    vm_set_parameter(&src, "vcpu-dirty-limit", "9");
    wait_until(follows_parameter, &src, "the new limit");
    if (cancel) {
        g_assert_true(migration_cancel(src.ctx, NULL));
    } else {
        vm_set_parameter(&src, "max-bandwidth", "0");
        vm_set_parameter(&src, "downtime-limit", "100000");
    }
    vm_wait_end(&src);
    writer_stop(&w);
    g_assert_cmpuint(limit_of(&src, 0), ==, 0);
    g_assert_cmpint(g_atomic_int_get(&paced.started), ==, 0);
    g_assert_cmpint(g_atomic_int_get(&paced.pace), ==, 0);
    if (cancel) {
        pair_assert_runs_on(&src);
    } else {
        pair_assert_arrived(&src, &dst);
    }
    g_autoptr(MigrationInfo) after = migration_query(src.ctx);
    g_assert_false(after->has_dirty_limit_ring_full_time);
    DirtyLimiter *limiter = src.host.dirty_limiter;
    pair_clear(&src, &dst);
    dirty_limiter_free(limiter);
}

static void test_dirty_limit(void)
{
    dirty_limit(false);
}

static void test_dirty_limit_cancel(void)
{
    dirty_limit(true);
}

/* ---- cancel ---- */

static void test_cancel_idle(void)
{
    Vm src;
    vm_init(&src, MIB, false);
    g_assert_true(migration_cancel(src.ctx, NULL));
    assert_events(&src, "");
    vm_clear(&src);
}

/* At whatever moment; then a second attempt to a fresh destination works. */
static void test_cancel_random(gconstpointer return_path)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(99);
    for (unsigned i = 0; i < 30; i++) {
        Vm src, dst, second;
        pair_init(&src, &dst, 4 * MIB);
        vm_init(&second, 4 * MIB, true);
        vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, GPOINTER_TO_INT(return_path));
        vm_set_parameter(&src, "max-bandwidth", "0");
        pair_connect(&src, &dst);
        int64_t until = g_get_monotonic_time() + g_rand_int_range(rand, 0, 12000);
        while (g_get_monotonic_time() < until) {
            g_main_context_iteration(NULL, FALSE);
        }
        g_assert_true(migration_cancel(src.ctx, NULL));
        if (vm_wait_end(&src) == MIGRATION_STATUS_COMPLETED) {
            pair_assert_arrived(&src, &dst);     /* it was too late */
        } else {
            g_assert_cmpint(vm_status(&src), ==, MIGRATION_STATUS_CANCELLED);
            pair_assert_runs_on(&src);
            pair_connect(&src, &second);
            pair_assert_arrived(&src, &second);
        }
        vm_clear(&second);
        pair_clear(&src, &dst);
    }
}

/* While the kernel still waits for the peer to accept.  The main loop must not notice. */
static void test_cancel_connecting(void)
{
    Vm src;
    vm_init(&src, MIB, false);
    /* An address that does not answer; where there is no route at all the connection fails at once. */
    pair_migrate(&src, "tcp:192.0.2.1:4444");
    g_assert_true(migration_cancel(src.ctx, NULL));
    MigrationStatus s = vm_wait_end(&src);
    g_assert_true(s == MIGRATION_STATUS_CANCELLED || s == MIGRATION_STATUS_FAILED);
    pair_assert_runs_on(&src);
    vm_clear(&src);
}

static void test_free_while_running(void)
{
    Vm src, dst;
    pair_init(&src, &dst, 16 * MIB);
    vm_set_parameter(&src, "max-bandwidth", "1M");
    pair_connect(&src, &dst);
    vm_wait_status(&src, MIGRATION_STATUS_ACTIVE);
    pair_clear(&src, &dst);
}

static void test_yank(void)
{
    Vm src, dst;
    pair_init(&src, &dst, 16 * MIB);
    vm_set_parameter(&src, "max-bandwidth", "1M");
    g_assert_false(migration_can_yank(src.ctx));
    pair_connect(&src, &dst);
    vm_wait_status(&src, MIGRATION_STATUS_ACTIVE);
    g_assert_true(migration_can_yank(src.ctx));
    migration_yank(src.ctx);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    pair_assert_runs_on(&src);
    assert_events(&src, "setup active failing failed");
    pair_clear(&src, &dst);
}

/* ---- refusals ---- */

static void refuse(Vm *vm, const char *uri, const char *expected)
{
    g_autoptr(GError) error = NULL;
    MigrationStatus before = vm_status(vm);
    g_assert_false(migration_start(vm->ctx, uri, NULL, false, &error));
    g_assert_nonnull(error);
    g_assert_cmpstr(error->message, ==, expected);
    g_assert_cmpint(vm_status(vm), ==, before);
}

static void test_refusals(void)
{
    Vm vm, in;
    vm_init(&vm, MIB, false);
    vm_init(&in, MIB, true);
    g_autoptr(GError) resume = NULL;

    refuse(&vm, NULL, "need either 'uri' or 'channels' argument");
    refuse(&vm, "foo:", "unknown migration protocol: foo:");
    refuse(&vm, "tcp:localhost", "error parsing address 'localhost'");
    refuse(&in, "tcp:127.0.0.1:1", "Guest is waiting for an incoming migration");
    g_assert_false(migration_start(vm.ctx, "tcp:127.0.0.1:1", NULL, true, &resume));
    g_assert_cmpstr(resume->message, ==, "Cannot resume if there is no paused migration");

    unsigned id = migration_add_blocker(vm.ctx, "The vvfat format does not support live migration");
    unsigned id2 = migration_add_blocker(vm.ctx, "second");
    refuse(&vm, "tcp:127.0.0.1:1", "The vvfat format does not support live migration");
    g_autoptr(MigrationInfo) info = migration_query(vm.ctx);
    g_assert_false(info->has_status);
    g_assert_cmpuint(info->blocked_reasons->count, ==, 2);
    g_assert_cmpstr(info->blocked_reasons->items[1], ==, "second");
    migration_del_blocker(vm.ctx, id);
    migration_del_blocker(vm.ctx, id2);
    g_autoptr(MigrationInfo) unblocked = migration_query(vm.ctx);
    g_assert_null(unblocked->blocked_reasons);

    g_autoptr(GError) unexpected = NULL;
    g_assert_false(migration_incoming_start(vm.ctx, NULL, NULL, true, &unexpected));
    g_assert_cmpstr(unexpected->message, ==, "'-incoming' was not specified on the command line");
    g_autoptr(GError) pause = NULL;
    g_assert_false(migration_pause(vm.ctx, &pause));
    g_autoptr(GError) cont = NULL;
    g_assert_false(migration_continue(vm.ctx, MIGRATION_STATUS_PRE_SWITCHOVER, &cont));
    g_assert_cmpstr(cont->message, ==, "Migration not in expected state: none");
    assert_events(&vm, "");
    vm_clear(&vm);
    vm_clear(&in);
}

static void test_refused_while_running(void)
{
    Vm src, dst;
    pair_init(&src, &dst, 16 * MIB);
    vm_set_parameter(&src, "max-bandwidth", "1M");
    pair_connect(&src, &dst);
    refuse(&src, "tcp:127.0.0.1:1", "There's a migration process in progress");
    MigrationCapabilityStatus status = { MIGRATION_CAPABILITY_XBZRLE, true };
    MigrationCapabilityStatus *items[] = { &status };
    MigrationCapabilityStatusList list = { 1, items };
    g_autoptr(GError) error = NULL;
    g_assert_false(migration_set_capabilities(migration_options(src.ctx), &list, &error));
    g_assert_cmpstr(error->message, ==, "There's a migration process in progress");
    migration_cancel(src.ctx, NULL);
    vm_wait_end(&src);
    vm_set_capability(&src, MIGRATION_CAPABILITY_XBZRLE, true);
    pair_clear(&src, &dst);
}

/* Opening fails at once: the caller is told, and so is whoever queries. */
static void test_open_failures(void)
{
    static const struct {
        const char *uri, *message;
    } cases[] = {
        { "fd:nope", "File descriptor named 'nope' has not been found" },
        { "fd:0", "File descriptor named '0' has not been found" },
        { "file:/nonexistent/x", "Could not create '/nonexistent/x': No such file or directory" },
        { "file:/tmp", "Could not create '/tmp': Is a directory" },
        { "file:/dev/null", "failed to truncate migration file to offset 0: Invalid argument" },
        { "file:/dev/fdset/9", "Failed to find file descriptor with matching flags=0x41" },
#ifdef CONFIG_RDMA
        { "rdma::1", "RDMA ERROR: RDMA hostname has not been set" },
#else
        { "rdma::1", "RDMA ERROR: RDMA was not built in" },
#endif
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Vm vm;
        g_autoptr(GError) error = NULL;
        vm_init(&vm, MIB, false);
        g_assert_false(migration_start(vm.ctx, cases[i].uri, NULL, false, &error));
        g_assert_cmpstr(error->message, ==, cases[i].message);
        g_autoptr(MigrationInfo) info = migration_query(vm.ctx);
        g_assert_cmpint(info->status, ==, MIGRATION_STATUS_FAILED);
        g_assert_cmpstr(info->error_desc, ==, cases[i].message);
        assert_events(&vm, "setup failing failed");
        pair_assert_runs_on(&vm);
        vm_clear(&vm);
    }
}

static void test_fd_file(void)
{
    Vm vm;
    g_autoptr(GError) error = NULL;
    vm_init(&vm, MIB, false);
    vm.host.fd = open("/dev/null", O_WRONLY);
    g_assert_false(migration_start(vm.ctx, "fd:migfd", NULL, false, &error));
    g_assert_cmpstr(error->message, ==, "fd: migration to a file is not supported. Use file: instead.");
    vm_clear(&vm);
}

static void test_connect_failures(void)
{
    g_autofree char *nobody = g_strdup_printf("unix:%s/nobody", test_directory());
    Vm vm;
    vm_init(&vm, MIB, false);
    pair_migrate(&vm, nobody);
    g_assert_cmpint(vm_wait_end(&vm), ==, MIGRATION_STATUS_FAILED);
    g_autoptr(MigrationInfo) info = migration_query(vm.ctx);
    const char *path = nobody + strlen("unix:");
    g_autofree char *text = g_strdup_printf("Failed to connect to '%s': No such file or directory", path);
    g_assert_cmpstr(info->error_desc, ==, text);
    assert_events(&vm, "setup failing failed");
    g_assert_null(info->ram);
    pair_assert_runs_on(&vm);
    vm_clear(&vm);
}

/* ---- failure on either side, then another try ---- */

static void test_host_failures(gconstpointer data)
{
    const char *what = data;
    Vm src, dst, second;
    pair_init(&src, &dst, 2 * MIB);
    vm_init(&second, 2 * MIB, true);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    src.host.fail_stop = strcmp(what, "stop") == 0;
    dst.host.fail_start = strcmp(what, "start") == 0;
    pair_connect(&src, &dst);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    pair_assert_runs_on(&src);
    vm_wait_incoming_ended(&dst);
    g_assert_nonnull(dst.host.ended_error);

    pair_connect(&src, &second);
    pair_assert_arrived(&src, &second);
    vm_clear(&second);
    pair_clear(&src, &dst);
}

/* The destination says why it cannot load; the source's guest runs on. */
static void test_refused_by_destination(void)
{
    Vm src, dst;
    vm_init(&src, 8 * MIB, false);
    vm_init(&dst, 4 * MIB, true);
    vm_fill_random(&src, 3);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    pair_connect(&src, &dst);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_cmpstr(info->error_desc, ==, "Sibling indicated error 1");
    pair_assert_runs_on(&src);
    vm_wait_incoming_ended(&dst);
    g_assert_nonnull(strstr(dst.host.ended_error, "Size mismatch: m0: 0x800000 != 0x400000"));
    assert_events(&dst, "setup active failed");
    pair_clear(&src, &dst);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/precopy/plain", test_plain);
    g_test_add_func("/precopy/no-ram", test_no_ram);
    g_test_add_func("/precopy/no-events", test_no_events);
    g_test_add_func("/precopy/return-path", test_return_path);
    g_test_add_func("/precopy/source-paused", test_source_paused);
    g_test_add_func("/precopy/source-prelaunch", test_source_prelaunch);
    g_test_add_func("/precopy/no-autostart", test_no_autostart);
    g_test_add_data_func("/precopy/load", GINT_TO_POINTER(0), test_load);
    g_test_add_data_func("/precopy/load-return-path", GINT_TO_POINTER(1), test_load);
    g_test_add_func("/precopy/chain", test_chain);
    g_test_add_func("/precopy/xbzrle", test_xbzrle);
    g_test_add_func("/precopy/fd", test_fd);
    g_test_add_func("/precopy/fd-number", test_fd_number);
    g_test_add_func("/precopy/exec", test_exec);
    g_test_add_data_func("/precopy/exec-exits", "exec:exit 1", test_exec_failure);
    g_test_add_data_func("/precopy/exec-exits-late", "exec:cat > /dev/null; exit 3", test_exec_failure);
    g_test_add_data_func("/precopy/file-offset-0", GSIZE_TO_POINTER(0), test_file_offset);
    g_test_add_data_func("/precopy/file-offset-4096", GSIZE_TO_POINTER(4096), test_file_offset);
    g_test_add_data_func("/precopy/file-offset-odd", GSIZE_TO_POINTER(0x11921), test_file_offset);
    g_test_add_func("/precopy/file-fdset", test_file_fdset);
    g_test_add_func("/precopy/pause", test_pause);
    g_test_add_func("/precopy/pause-cancel", test_pause_cancel);
    g_test_add_data_func("/precopy/ack-new", GINT_TO_POINTER(0), test_ack);
    g_test_add_data_func("/precopy/ack-legacy", GINT_TO_POINTER(1), test_ack);
    g_test_add_func("/precopy/ack-missing", test_ack_missing);
    g_test_add_func("/precopy/ack-missing-paused", test_ack_missing_paused);
    g_test_add_func("/precopy/ack-unexpected", test_ack_unexpected);
    g_test_add_func("/precopy/live-bandwidth", test_live_bandwidth);
    g_test_add_func("/precopy/auto-converge", test_auto_converge);
    g_test_add_func("/precopy/dirty-limit", test_dirty_limit);
    g_test_add_func("/precopy/dirty-limit/cancel", test_dirty_limit_cancel);
    g_test_add_func("/precopy/cancel-idle", test_cancel_idle);
    g_test_add_data_func("/precopy/cancel-random", GINT_TO_POINTER(0), test_cancel_random);
    g_test_add_data_func("/precopy/cancel-random-return-path", GINT_TO_POINTER(1), test_cancel_random);
    g_test_add_func("/precopy/cancel-connecting", test_cancel_connecting);
    g_test_add_func("/precopy/free-while-running", test_free_while_running);
    g_test_add_func("/precopy/yank", test_yank);
    g_test_add_func("/precopy/refusals", test_refusals);
    g_test_add_func("/precopy/refused-while-running", test_refused_while_running);
    g_test_add_func("/precopy/open-failures", test_open_failures);
    g_test_add_func("/precopy/fd-file", test_fd_file);
    g_test_add_func("/precopy/connect-failures", test_connect_failures);
    g_test_add_data_func("/precopy/stop-fails", "stop", test_host_failures);
    g_test_add_data_func("/precopy/start-fails", "start", test_host_failures);
    g_test_add_func("/precopy/refused-by-destination", test_refused_by_destination);
    return g_test_run();
}
