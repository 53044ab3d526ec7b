/* SPDX-License-Identifier: BSD-2-Clause */
/* Two VMs in one process that migrate to each other. */
#include "pair.h"

#include <glib/gstdio.h>
#include <string.h>

/* No machine is slower than this; only a hang is. */
#define HANG_US (120 * G_USEC_PER_SEC)

void vm_init(Vm *vm, uint64_t ram_size, bool incoming)
{
    *vm = (Vm){ 0 };
    fake_host_init(&vm->host);
    if (ram_size) {
        vm->block = fake_host_add_ram(&vm->host, "m0", ram_size);
    }
    vm->ctx = migration_context_new(&vm->host.ops, &vm->host);
    if (incoming) {
        fake_host_set_state(&vm->host, RUN_STATE_INMIGRATE);
        migration_incoming_expect(vm->ctx);
    }
    vm_set_capability(vm, MIGRATION_CAPABILITY_EVENTS, true);
}

void vm_clear(Vm *vm)
{
    migration_context_free(vm->ctx);
    fake_host_clear(&vm->host);
}

void vm_set_capability(Vm *vm, MigrationCapability cap, bool on)
{
    g_autoptr(GError) error = NULL;
    MigrationCapabilityStatus status = { cap, on };
    MigrationCapabilityStatus *items[] = { &status };
    MigrationCapabilityStatusList list = { 1, items };
    migration_set_capabilities(migration_options(vm->ctx), &list, &error);
    g_assert_no_error(error);
}

void vm_set_parameter(Vm *vm, const char *name, const char *value)
{
    g_autoptr(GError) error = NULL;
    migration_set_parameter_string(migration_options(vm->ctx), name, value, &error);
    g_assert_no_error(error);
}

void vm_set_global(Vm *vm, const char *name, const char *value)
{
    g_autoptr(GError) error = NULL;
    migration_set_global(migration_options(vm->ctx), name, value, &error);
    g_assert_no_error(error);
}

MigrationStatus vm_status(Vm *vm)
{
    g_autoptr(MigrationInfo) info = migration_query(vm->ctx);
    return info->has_status ? info->status : MIGRATION_STATUS_NONE;
}

static gboolean tick(gpointer opaque)
{
    return G_SOURCE_CONTINUE;
}

void wait_until(bool (*done)(void *opaque), void *opaque, const char *what)
{
    int64_t until = g_get_monotonic_time() + HANG_US;
    guint source = g_timeout_add(2, tick, NULL);
    while (!done(opaque)) {
        if (g_get_monotonic_time() > until) {
            g_error("hang: waiting for %s", what);
        }
        g_main_context_iteration(NULL, TRUE);
    }
    g_source_remove(source);
}

typedef struct Wanted {
    Vm *vm;
    MigrationStatus status;
} Wanted;

static bool has_status(void *opaque)
{
    Wanted *w = opaque;
    return vm_status(w->vm) == w->status;
}

void vm_wait_status(Vm *vm, MigrationStatus status)
{
    Wanted w = { vm, status };
    wait_until(has_status, &w, MigrationStatus_str(status));
}

static bool has_ended(void *opaque)
{
    MigrationStatus s = vm_status(opaque);
    return s == MIGRATION_STATUS_COMPLETED || s == MIGRATION_STATUS_FAILED || s == MIGRATION_STATUS_CANCELLED;
}

MigrationStatus vm_wait_end(Vm *vm)
{
    wait_until(has_ended, vm, "the end of a migration");
    return vm_status(vm);
}

static bool incoming_has_ended(void *opaque)
{
    Vm *vm = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&vm->host.lock);
    return vm->host.ended;
}

void vm_wait_incoming_ended(Vm *vm)
{
    wait_until(incoming_has_ended, vm, "incoming_ended");
}

static bool time_is_over(void *opaque)
{
    return g_get_monotonic_time() >= *(int64_t *)opaque;
}

void run_main_loop(unsigned ms)
{
    int64_t until = g_get_monotonic_time() + ms * 1000;
    wait_until(time_is_over, &until, "time");
    /* What is ready is served, also if this thread has not run for all that time. */
    for (unsigned i = 0; i < 100 && g_main_context_iteration(NULL, FALSE); i++) {
    }
}

typedef struct Passes {
    Vm *vm;
    int64_t count;
} Passes;

static bool has_passes(void *opaque)
{
    Passes *p = opaque;
    g_autoptr(MigrationInfo) info = migration_query(p->vm->ctx);
    return info->ram && info->ram->dirty_sync_count >= p->count;
}

void vm_wait_passes(Vm *vm, int64_t count)
{
    Passes p = { vm, count };
    wait_until(has_passes, &p, "passes");
}

void vm_fill_random(Vm *vm, uint32_t seed)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
    for (uint64_t i = 0; i < vm->block->used_length; i += TARGET_PAGE_SIZE) {
        /* Every fourth page stays zero. */
        if (i / TARGET_PAGE_SIZE % 4 == 3) {
            continue;
        }
        for (unsigned j = 0; j < TARGET_PAGE_SIZE; j += 64) {
            uint32_t v = g_rand_int(rand);
            memcpy(vm->block->host + i + j, &v, sizeof(v));
        }
    }
}

void assert_same_ram(Vm *a, Vm *b)
{
    g_assert_cmpuint(a->block->used_length, ==, b->block->used_length);
    for (uint64_t i = 0; i < a->block->used_length; i += TARGET_PAGE_SIZE) {
        if (memcmp(a->block->host + i, b->block->host + i, TARGET_PAGE_SIZE) != 0) {
            g_error("page %u differs", (unsigned)(i / TARGET_PAGE_SIZE));
        }
    }
}

typedef struct Events {
    Vm *vm;
    size_t len;
} Events;

static bool has_events(void *opaque)
{
    Events *e = opaque;
    g_autofree char *events = fake_host_events(&e->vm->host);
    return strlen(g_strchomp(events)) >= e->len;
}

/* Who asks for the status may see it before the event of the same step has come. */
void assert_events(Vm *vm, const char *expected)
{
    Events e = { vm, strlen(expected) };
    wait_until(has_events, &e, expected);
    g_autofree char *events = fake_host_events(&vm->host);
    g_strchomp(events);
    g_assert_cmpstr(events, ==, expected);
}

/*
 * The guest races with the migration thread by design: the dirty log sees to it that the page is sent again.
 */
__attribute__((no_sanitize("thread"), noinline))
static void guest_store(volatile uint64_t *p, uint64_t value)
{
    *p = value;
}

/* The lock makes stop() the hand-shake that it is with real vCPUs. */
static bool write_once(Writer *w, GRand *rand)
{
    FakeHost *h = &w->vm->host;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    if (h->state != RUN_STATE_RUNNING) {
        return false;
    }
    uint64_t pages = w->vm->block->used_length / TARGET_PAGE_SIZE;
    uint64_t page = (uint64_t)g_rand_int_range(rand, 0, (gint32)pages);
    uint64_t stamp = ++w->writes;
    uint64_t offset = page * TARGET_PAGE_SIZE + 8 * (stamp % (TARGET_PAGE_SIZE / 8));
    guest_store((uint64_t *)(void *)(w->vm->block->host + offset), stamp);
    soft_dirty_log_mark(h->soft_log, w->vm->block, offset, 8);
    return true;
}

static gpointer writer_thread(gpointer opaque)
{
    Writer *w = opaque;
    g_autoptr(GRand) rand = g_rand_new_with_seed(7);
    while (!g_atomic_int_get(&w->stop)) {
        bool written = write_once(w, rand);
        g_atomic_int_set(&w->started, 1);
        if (!written || w->pause_us) {
            g_usleep(MAX(w->pause_us, 1));
        }
    }
    return NULL;
}

void writer_start(Writer *w, Vm *vm, unsigned pause_us)
{
    *w = (Writer){ .vm = vm, .pause_us = pause_us };
    w->thread = g_thread_new("writer", writer_thread, w);
    while (!g_atomic_int_get(&w->started)) {
        g_usleep(100);
    }
}

void writer_stop(Writer *w)
{
    g_atomic_int_set(&w->stop, 1);
    g_thread_join(w->thread);
}

static char *directory;

static void remove_directory(void)
{
    g_autoptr(GDir) dir = g_dir_open(directory, 0, NULL);
    const char *name;
    while (dir && (name = g_dir_read_name(dir))) {
        g_autofree char *path = g_build_filename(directory, name, NULL);
        g_unlink(path);
    }
    g_rmdir(directory);
    g_free(directory);
}

const char *test_directory(void)
{
    if (!directory) {
        directory = g_dir_make_tmp("godwit-XXXXXX", NULL);
        g_assert_nonnull(directory);
        atexit(remove_directory);
    }
    return directory;
}

/* ---- whole migrations ---- */

void pair_init(Vm *src, Vm *dst, uint64_t ram_size)
{
    vm_init(src, ram_size, false);
    vm_init(dst, ram_size, true);
    vm_fill_random(src, 42);
}

void pair_clear(Vm *src, Vm *dst)
{
    vm_clear(src);
    vm_clear(dst);
}

char *pair_uri(void)
{
    static unsigned n;
    return g_strdup_printf("unix:%s/p%u", test_directory(), n++);
}

void pair_listen(Vm *dst, const char *uri, bool exit_on_error)
{
    g_autoptr(GError) error = NULL;
    migration_incoming_start(dst->ctx, uri, NULL, exit_on_error, &error);
    g_assert_no_error(error);
}

void pair_migrate(Vm *src, const char *uri)
{
    g_autoptr(GError) error = NULL;
    migration_start(src->ctx, uri, NULL, false, &error);
    g_assert_no_error(error);
}

void pair_connect(Vm *src, Vm *dst)
{
    g_autofree char *uri = pair_uri();
    pair_listen(dst, uri, true);
    pair_migrate(src, uri);
}

void pair_assert_arrived(Vm *src, Vm *dst)
{
    g_assert_cmpint(vm_wait_end(src), ==, MIGRATION_STATUS_COMPLETED);
    vm_wait_incoming_ended(dst);
    g_assert_cmpstr(dst->host.ended_error, ==, NULL);
    g_assert_cmpint(vm_status(dst), ==, MIGRATION_STATUS_COMPLETED);
    assert_same_ram(src, dst);
    g_assert_cmpint(fake_host_state(&src->host), ==, RUN_STATE_POSTMIGRATE);
    g_assert_false(src->host.dirty_log.started);
}

void pair_assert_runs_on(Vm *src)
{
    g_assert_cmpint(fake_host_state(&src->host), ==, RUN_STATE_RUNNING);
    g_assert_false(src->host.dirty_log.started);
    g_assert_cmpuint(src->host.throttle_percent, ==, 0);
    g_assert_false(migration_is_active(src->ctx));
    g_assert_true(migration_allows_start(src->ctx, NULL));
}
