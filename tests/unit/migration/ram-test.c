/* SPDX-License-Identifier: BSD-2-Clause */
/* What the RAM tests share. */
#include "ram-test.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/bitmap.h"

/* ---- channel ---- */

static ssize_t test_readv(Channel *base, const struct iovec *iov, int n, GError **errp)
{
    TestChannel *c = (TestChannel *)base;
    size_t limit = c->max_read ? c->max_read : (size_t)g_rand_int_range(c->rand, 1, 300000);
    ssize_t total = 0;

    limit = MIN(limit, c->bytes->len - c->pos);
    for (int i = 0; i < n && limit; i++) {
        size_t len = MIN(limit, iov[i].iov_len);
        memcpy(iov[i].iov_base, c->bytes->data + c->pos, len);
        c->pos += len;
        limit -= len;
        total += len;
    }
    return total;
}

static ssize_t test_writev(Channel *base, const struct iovec *iov, int n, const int *fds, int n_fds,
                           unsigned flags, GError **errp)
{
    TestChannel *c = (TestChannel *)base;
    ssize_t total = 0;

    g_assert_cmpint(n, <=, 1024);
    c->writes++;
    for (int i = 0; i < n; i++) {
        if (c->bytes->len + iov[i].iov_len > c->fail_after) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "Unable to write to test: full");
            return -1;
        }
        g_byte_array_append(c->bytes, iov[i].iov_base, iov[i].iov_len);
        total += iov[i].iov_len;
    }
    return total;
}

static void test_shutdown(Channel *base)
{
}

static bool test_close(Channel *base, GError **errp)
{
    return true;
}

static int test_poll_fd(Channel *base)
{
    return -1;
}

static void test_free(Channel *base)
{
    TestChannel *c = (TestChannel *)base;

    g_byte_array_unref(c->bytes);
    g_rand_free(c->rand);
    g_free(c);
}

static const ChannelOps test_channel_ops = {
    .kind = "test",
    .readv = test_readv,
    .writev = test_writev,
    .shutdown = test_shutdown,
    .close = test_close,
    .poll_fd = test_poll_fd,
    .free = test_free,
};

TestChannel *test_channel_new(const void *data, size_t len, size_t max_read)
{
    TestChannel *c = g_new0(TestChannel, 1);

    c->base.ops = &test_channel_ops;
    c->base.features = CHANNEL_FEATURE_READ | CHANNEL_FEATURE_WRITE;
    c->base.ref_count = 1;
    c->bytes = g_byte_array_new();
    if (len) {
        g_byte_array_append(c->bytes, data, len);
    }
    c->max_read = max_read;
    c->rand = g_rand_new_with_seed(g_test_rand_int());
    c->fail_after = SIZE_MAX;
    return c;
}

/* ---- guest ---- */

#define SHARED_OFFSET (1024 * 1024)

static void map_block(RAMBlock *b, bool shared)
{
    int flags = shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

    b->fd = -1;
    b->shared = shared;
    if (shared) {
        b->fd = memfd_create("test", MFD_CLOEXEC);
        b->fd_offset = SHARED_OFFSET;
        g_assert_cmpint(ftruncate(b->fd, SHARED_OFFSET + b->used_length), ==, 0);
    }
    b->host = mmap(NULL, b->used_length, PROT_READ | PROT_WRITE, flags, b->fd, b->fd_offset);
    g_assert_true(b->host != MAP_FAILED);
}

static TestGuest *guest_new(const uint64_t *pages, unsigned count, bool shared)
{
    TestGuest *g = g_new0(TestGuest, 1);

    g->count = count;
    for (unsigned i = 0; i < count; i++) {
        RAMBlock *b = &g->blocks[i];
        g_snprintf(b->idstr, sizeof(b->idstr), "m%u", i);
        b->used_length = pages[i] * PAGE;
        map_block(b, shared);
        b->gpa = (uint64_t)i << 40;
        b->page_size = 4096;
        OK(ram_list_add(&g->ram, b, &error));
    }
    return g;
}

TestGuest *test_guest_new(const uint64_t *pages, unsigned count)
{
    return guest_new(pages, count, false);
}

TestGuest *test_guest_new_shared(const uint64_t *pages, unsigned count)
{
    return guest_new(pages, count, true);
}

uint64_t test_guest_allocated(const TestGuest *g, unsigned block)
{
    struct stat st;

    g_assert_cmpint(fstat(g->blocks[block].fd, &st), ==, 0);
    return (uint64_t)st.st_blocks * 512 / PAGE;
}

void test_guest_free(TestGuest *g)
{
    for (unsigned i = 0; i < g->count; i++) {
        munmap(g->blocks[i].host, g->blocks[i].used_length);
        if (g->blocks[i].fd >= 0) {
            close(g->blocks[i].fd);
        }
    }
    g_free(g);
}

void test_guest_copy(TestGuest *to, const TestGuest *from)
{
    for (unsigned i = 0; i < from->count; i++) {
        memcpy(to->blocks[i].host, from->blocks[i].host, from->blocks[i].used_length);
    }
}

bool test_guest_equal(const TestGuest *a, const TestGuest *b)
{
    for (unsigned i = 0; i < a->count; i++) {
        for (uint64_t at = 0; at < a->blocks[i].used_length; at += PAGE) {
            if (memcmp(a->blocks[i].host + at, b->blocks[i].host + at, PAGE)) {
                g_test_message("block %u differs at page %" G_GUINT64_FORMAT, i, at / PAGE);
                return false;
            }
        }
    }
    return true;
}

static uint64_t xorshift(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

__attribute__((no_sanitize("thread")))
uint64_t test_guest_scribble(uint64_t *seed, RAMBlock *block, uint64_t *len)
{
    uint64_t word = xorshift(seed) % (block->used_length / 8);
    uint64_t kind = xorshift(seed) >> 60;
    uint64_t words = 1;

    if (kind < 6) {         /* a whole page; 0 and 1: of zeroes */
        word &= ~UINT64_C(511);
        words = 512;
    }
    volatile uint64_t *at = (volatile uint64_t *)block->host + word;
    for (uint64_t i = 0; i < words; i++) {
        at[i] = kind < 2 ? 0 : *seed + i;
    }
    *len = words * 8;
    return word * 8;
}

/* ---- dirty log ---- */

static void watch_touch(WatchLog *log)
{
    if (log->touch) {
        log->touch(log->opaque);
    }
}

static bool watch_start(DirtyLogProvider *p, const RamList *ram, GError **errp)
{
    WatchLog *log = (WatchLog *)p;

    log->ram = ram;
    log->started = true;
    RAMLIST_FOREACH(block, ram) {
        log->logged[block->index] = bitmap_new(ramblock_pages(block));
    }
    return true;
}

static void watch_stop(DirtyLogProvider *p)
{
    ((WatchLog *)p)->started = false;
}

static bool watch_sync(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count, uint64_t *bitmap,
                       uint64_t *new_dirty, GError **errp)
{
    WatchLog *log = (WatchLog *)p;

    if (log->fail_sync) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "the log is gone");
        return false;
    }
    watch_touch(log);
    *new_dirty += bitmap_or(bitmap, first, log->logged[block->index], first, count);
    watch_touch(log);
    log->callers[block->index] = bitmap;
    return true;
}

/* The pages of @bitmap that a clear is about: all must be in the bitmap that sync was given. */
static uint64_t watch_check_clear(const WatchLog *log, const RAMBlock *block, uint64_t first, uint64_t count,
                                  const uint64_t *bitmap)
{
    const uint64_t *callers = log->callers[block->index];
    uint64_t pages = 0;

    g_assert_true(bitmap_test(bitmap, first) && bitmap_test(bitmap, first + count - 1));
    for (uint64_t page = first; page < first + count; page++) {
        g_assert_true(!bitmap_test(bitmap, page) || bitmap_test(callers, page));
        pages += bitmap_test(bitmap, page);
    }
    return pages;
}

static bool watch_clear(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                        const uint64_t *bitmap, GError **errp)
{
    WatchLog *log = (WatchLog *)p;

    log->clears++;
    log->cleared_pages += watch_check_clear(log, block, first, count, bitmap);
    watch_touch(log);
    for (uint64_t page = first; page < first + count; page++) {
        bitmap_clear(log->logged[block->index], page, bitmap_test(bitmap, page));
    }
    watch_touch(log);
    return true;
}

static const DirtyLogProviderOps watch_ops = {
    .name = "watch",
    .start = watch_start,
    .stop = watch_stop,
    .sync = watch_sync,
    .clear = watch_clear,
};

void watch_log_init(WatchLog *log)
{
    *log = (WatchLog){ .provider.ops = &watch_ops };
}

void watch_log_mark(WatchLog *log, RAMBlock *block, uint64_t page)
{
    bitmap_set(log->logged[block->index], page, 1);
}

void watch_log_free(WatchLog *log)
{
    if (!log->ram) {
        return;
    }
    RAMLIST_FOREACH(block, log->ram) {
        bitmap_free(log->logged[block->index], ramblock_pages(block));
    }
}

/* ---- the rest ---- */

MigrationOptions test_options(void)
{
    return (MigrationOptions){
        .p.zero_page_detection = ZERO_PAGE_DETECTION_MULTIFD,
        .p.xbzrle_cache_size = 64 * 1024 * 1024,
        .props.x_clear_bitmap_shift = 18,
    };
}

void test_ok(bool ok, GError *error)
{
    g_assert_no_error(error);
    g_assert_true(ok);
}

void test_fails(bool ok, GError *error, const char *pattern)
{
    g_assert_false(ok);
    g_assert_nonnull(error);
    if (!g_pattern_match_simple(pattern, error->message)) {
        g_error("message '%s' does not match '%s'", error->message, pattern);
    }
    g_error_free(error);
}
