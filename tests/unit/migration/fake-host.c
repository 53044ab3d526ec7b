/* SPDX-License-Identifier: BSD-2-Clause */
/* A VMM small enough for tests. */
#include "fake-host.h"

#include "util/error.h"

#include <string.h>
#include <sys/mman.h>

static const VMStateField timer_fields[] = {
    VMSTATE_FIELD(cpu_ticks_offset, VMSTATE_INT64, FakeTimer),
    { .name = "unused", .type = VMSTATE_UNUSED, .offset = offsetof(FakeTimer, unused), .size = 8 },
    { .name = "cpu_clock_offset", .type = VMSTATE_INT64, .offset = offsetof(FakeTimer, cpu_clock_offset),
      .size = 8, .version = 2 },
    VMSTATE_END,
};

static const VMStateDescription vmstate_timer = {
    .name = "timer",
    .version = 2,
    .minimum_version = 1,
    .fields = timer_fields,
};

static const char *get_machine_name(void *opaque)
{
    return ((FakeHost *)opaque)->machine;
}

static const uint8_t *get_uuid(void *opaque)
{
    FakeHost *h = opaque;
    return h->has_uuid ? h->uuid : NULL;
}

static RamList *get_ram(void *opaque)
{
    return &((FakeHost *)opaque)->ram;
}

static DirtyLog *get_dirty_log(void *opaque)
{
    return &((FakeHost *)opaque)->dirty_log;
}

static SaveEntryList *get_save_entries(void *opaque)
{
    return &((FakeHost *)opaque)->entries;
}

/* The lock is held. */
static void event(FakeHost *h, const char *text)
{
    g_string_append_printf(h->events, "%s ", text);
    g_cond_broadcast(&h->cond);
}

static bool stop(void *opaque, RunState why, GError **errp)
{
    FakeHost *h = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);

    if (h->fail_stop) {
        h->fail_stop = false;
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "the vCPU does not stop");
        return false;
    }
    if (h->state == RUN_STATE_RUNNING) {
        h->stops++;
        event(h, "STOP");
    }
    h->state = why;
    return true;
}

static bool start_locked(FakeHost *h, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);

    if (h->fail_start) {
        h->fail_start = false;
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "the vCPU does not start");
        return false;
    }
    if (h->state != RUN_STATE_RUNNING) {
        h->resumes++;
        event(h, "RESUME");
    }
    h->state = RUN_STATE_RUNNING;
    return true;
}

static bool start(void *opaque, GError **errp)
{
    FakeHost *h = opaque;
    bool ok = start_locked(h, errp);

    if (ok && h->on_start) {
        h->on_start(h->on_start_opaque);
    }
    return ok;
}

static bool set_run_state(void *opaque, RunState state, GError **errp)
{
    fake_host_set_state(opaque, state);
    return true;
}

static DirtyLimiter *dirty_limiter(void *opaque)
{
    return ((FakeHost *)opaque)->dirty_limiter;
}

static void throttle(void *opaque, unsigned percent)
{
    FakeHost *h = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    h->throttle_percent = percent;
    g_atomic_int_set(&h->throttle_max, MAX(h->throttle_max, percent));
}

static bool has_vcpus(void *opaque)
{
    FakeHost *h = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    return h->has_vcpus;
}

static bool autostart(void *opaque)
{
    FakeHost *h = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    return h->autostart;
}

static void event_status(void *opaque, MigrationStatus status)
{
    FakeHost *h = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    event(h, MigrationStatus_str(status));
}

static void event_pass(void *opaque, int64_t pass)
{
    FakeHost *h = opaque;
    g_autofree char *text = g_strdup_printf("PASS %d", (int)pass);
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    event(h, text);
}

static int hand_out_fd(FakeHost *h)
{
    int fd = h->fd;
    h->fd = -1;
    return fd;
}

static int take_fd(void *opaque, const char *name, GError **errp)
{
    FakeHost *h = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    if (strcmp(name, "migfd") == 0 && h->fd >= 0) {
        return hand_out_fd(h);
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "File descriptor named '%s' has not been found",
                name);
    return -1;
}

static int dup_fdset(void *opaque, int64_t id, int flags, GError **errp)
{
    FakeHost *h = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    h->fdset_flags = flags;
    if (id == 3 && h->fd >= 0) {
        return hand_out_fd(h);
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                "Failed to find file descriptor with matching flags=0x%x", (unsigned)flags);
    return -1;
}

static void log_line(void *opaque, const char *message)
{
    FakeHost *h = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    g_string_append_printf(h->log, "%s\n", message);
}

static void incoming_ended(void *opaque, const GError *error)
{
    FakeHost *h = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    h->ended = true;
    h->ended_error = error ? g_strdup(error->message) : NULL;
}

void fake_host_init(FakeHost *h)
{
    *h = (FakeHost){
        .ops = {
            .machine_name = get_machine_name,
            .uuid = get_uuid,
            .ram = get_ram,
            .dirty_log = get_dirty_log,
            .save_entries = get_save_entries,
            .stop = stop,
            .start = start,
            .set_run_state = set_run_state,
            .throttle = throttle,
            .dirty_limiter = dirty_limiter,
            .has_vcpus = has_vcpus,
            .autostart = autostart,
            .event_status = event_status,
            .event_pass = event_pass,
            .take_fd = take_fd,
            .dup_fdset = dup_fdset,
            .log = log_line,
            .incoming_ended = incoming_ended,
        },
        .machine = "none",
        .state = RUN_STATE_RUNNING,
        .autostart = true,
        .fd = -1,
        .events = g_string_new(NULL),
        .log = g_string_new(NULL),
        .timer_entry = { .idstr = "timer", .vmsd = &vmstate_timer },
    };
    h->ops.run_state = (RunState (*)(void *))fake_host_state;
    g_mutex_init(&h->lock);
    g_cond_init(&h->cond);
    h->soft_log = soft_dirty_log_new();
    dirty_log_add_provider(&h->dirty_log, soft_dirty_log_provider(h->soft_log));
    h->timer_entry.opaque = &h->timer;
    save_entry_list_add(&h->entries, &h->timer_entry);
}

void fake_host_clear(FakeHost *h)
{
    while (h->ram.first) {
        RAMBlock *block = h->ram.first;
        ram_list_remove(&h->ram, block);
        munmap(block->host, block->used_length);
        g_free(block);
    }
    dirty_log_remove_provider(&h->dirty_log, soft_dirty_log_provider(h->soft_log));
    soft_dirty_log_free(h->soft_log);
    g_string_free(h->events, TRUE);
    g_string_free(h->log, TRUE);
    g_free(h->ended_error);
    g_cond_clear(&h->cond);
    g_mutex_clear(&h->lock);
}

RAMBlock *fake_host_add_ram(FakeHost *h, const char *idstr, uint64_t size)
{
    RAMBlock *block = g_new0(RAMBlock, 1);
    void *host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    g_assert(host != MAP_FAILED);

    g_strlcpy(block->idstr, idstr, sizeof(block->idstr));
    block->host = host;
    block->used_length = size;
    block->page_size = TARGET_PAGE_SIZE;
    block->fd = -1;
    g_assert_true(ram_list_add(&h->ram, block, NULL));
    return block;
}

void fake_host_write(FakeHost *h, RAMBlock *block, uint64_t offset, const void *buf, size_t len)
{
    memcpy(block->host + offset, buf, len);
    soft_dirty_log_mark(h->soft_log, block, offset, len);
}

RunState fake_host_state(FakeHost *h)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    return h->state;
}

void fake_host_set_state(FakeHost *h, RunState state)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    h->state = state;
    g_cond_broadcast(&h->cond);
}

char *fake_host_events(FakeHost *h)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    return g_strdup(h->events->str);
}

char *fake_host_log(FakeHost *h)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&h->lock);
    return g_strdup(h->log->str);
}

MigrationOptions *fake_options_new(void)
{
    MigrationOptionStore *store = migration_option_store_new();
    MigrationOptions *options = migration_options_snapshot(store);
    migration_option_store_free(store);
    return options;
}
