/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of dirty log providers: union of several, undo of a failed start, statistics, errors. */
#include <string.h>

#include "system/dirty-log.h"
#include "util/bitmap.h"
#include "util/error.h"

#define PAGES 1000

/* A provider with a log of its own that keeps a diary, and fails when told to. */
typedef struct FakeProvider {
    DirtyLogProvider provider;
    uint64_t bits[BITMAP_WORDS(PAGES)];
    bool sync_clears; /* as the software log does; else clear() does, as a kernel with manual clearing */
    const char *fail;       /* the op that fails */
    bool started;
    unsigned starts, stops, syncs, clears;
    uint64_t clear_first, clear_count;      /* of the last clear */
} FakeProvider;

static bool fake_fails(FakeProvider *f, const char *op, GError **errp)
{
    if (g_strcmp0(f->fail, op) != 0) {
        return false;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "%s failed", op);
    return true;
}

static bool fake_start(DirtyLogProvider *p, const RamList *ram, GError **errp)
{
    FakeProvider *f = (FakeProvider *)p;
    f->starts++;
    if (fake_fails(f, "start", errp)) {
        return false;
    }
    g_assert_false(f->started);
    f->started = true;
    return true;
}

static void fake_stop(DirtyLogProvider *p)
{
    FakeProvider *f = (FakeProvider *)p;
    f->stops++;
    f->started = false;
}

static bool fake_sync(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count, uint64_t *bitmap,
                      uint64_t *new_dirty, GError **errp)
{
    FakeProvider *f = (FakeProvider *)p;
    f->syncs++;
    if (fake_fails(f, "sync", errp)) {
        return false;
    }
    *new_dirty += bitmap_or(bitmap, first, f->bits, first, count);
    if (f->sync_clears) {
        bitmap_clear(f->bits, first, count);
    }
    return true;
}

static bool fake_clear(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                       const uint64_t *bitmap, GError **errp)
{
    FakeProvider *f = (FakeProvider *)p;
    f->clears++;
    if (fake_fails(f, "clear", errp)) {
        return false;
    }
    dirty_log_count_request(p);
    g_assert_true(bitmap_test(bitmap, first) && bitmap_test(bitmap, first + count - 1));
    f->clear_first = first;
    f->clear_count = count;
    for (uint64_t page = first; page < first + count && !f->sync_clears; page++) {
        bitmap_clear(f->bits, page, bitmap_test(bitmap, page));
    }
    return true;
}

static const DirtyLogProviderOps fake_ops = {
    .name = "fake", .start = fake_start, .stop = fake_stop, .sync = fake_sync, .clear = fake_clear,
};

typedef struct Fixture {
    RAMBlock block;
    RamList ram;
    DirtyLog log;
    FakeProvider p[3];
} Fixture;

static void fixture_setup(Fixture *fx, gconstpointer data)
{
    memset(fx, 0, sizeof(*fx));
    fx->block = (RAMBlock){ .host = (uint8_t *)0x10000000, .used_length = PAGES * 4096ull, .fd = -1 };
    g_strlcpy(fx->block.idstr, "m0", sizeof(fx->block.idstr));
    g_assert_true(ram_list_add(&fx->ram, &fx->block, NULL));
    for (size_t i = 0; i < G_N_ELEMENTS(fx->p); i++) {
        fx->p[i].provider.ops = &fake_ops;
        fx->p[i].sync_clears = i % 2;
        dirty_log_add_provider(&fx->log, &fx->p[i].provider);
    }
}

static void fixture_teardown(Fixture *fx, gconstpointer data)
{
    dirty_log_stop(&fx->log);
}

static void test_start_failure_undoes(Fixture *fx, gconstpointer data)
{
    for (unsigned bad = 0; bad < 3; bad++) {
        g_autoptr(GError) error = NULL;
        for (unsigned i = 0; i < 3; i++) {
            fx->p[i].fail = i == bad ? "start" : NULL;
            fx->p[i].starts = fx->p[i].stops = 0;
        }
        g_assert_false(dirty_log_start(&fx->log, &fx->ram, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_IO);
        g_assert_cmpstr(error->message, ==, "cannot start dirty log 'fake': start failed");
        g_assert_false(fx->log.started);
        for (unsigned i = 0; i < 3; i++) {
            g_assert_cmpuint(fx->p[i].starts, ==, i <= bad);
            g_assert_cmpuint(fx->p[i].stops, ==, i < bad);
            g_assert_false(fx->p[i].started);
        }
        fx->p[bad].fail = NULL;
    }
    g_assert_true(dirty_log_start(&fx->log, &fx->ram, NULL));
    g_assert_true(fx->log.started);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_true(fx->p[i].started);
    }
}

static void test_stop_is_idempotent(Fixture *fx, gconstpointer data)
{
    dirty_log_stop(&fx->log);
    g_assert_cmpuint(fx->p[0].stops, ==, 0);
    g_assert_true(dirty_log_start(&fx->log, &fx->ram, NULL));
    dirty_log_stop(&fx->log);
    dirty_log_stop(&fx->log);
    g_assert_cmpuint(fx->p[0].stops, ==, 1);
}

static void test_errors_name_provider_and_block(Fixture *fx, gconstpointer data)
{
    uint64_t bitmap[BITMAP_WORDS(PAGES)] = { 0 };
    uint64_t new_dirty = 0, cleared = 0;
    g_autoptr(GError) sync_error = NULL;
    g_autoptr(GError) clear_error = NULL;

    g_assert_true(dirty_log_start(&fx->log, &fx->ram, NULL));
    fx->p[1].fail = "sync";
    g_assert_false(dirty_log_sync(&fx->log, &fx->block, 0, PAGES, bitmap, &new_dirty, &sync_error));
    g_assert_cmpstr(sync_error->message, ==, "cannot fetch dirty log 'fake' of RAM block 'm0': sync failed");
    fx->p[1].fail = "clear";
    bitmap[0] = 1;
    g_assert_false(dirty_log_clear(&fx->log, &fx->block, 0, PAGES, bitmap, &cleared, &clear_error));
    g_assert_cmpuint(cleared, ==, 0);
    g_assert_cmpstr(clear_error->message, ==,
                    "cannot clear dirty log 'fake' of RAM block 'm0': clear failed");
}

/* Two migrations' worth of calls; each provider gets each call, and counts begin anew with start. */
static void test_statistics(Fixture *fx, gconstpointer data)
{
    uint64_t bitmap[BITMAP_WORDS(PAGES)] = { 0 };
    uint64_t new_dirty = 0, cleared = 0;

    bitmap_set(bitmap, 5, 400);
    bitmap_set(bitmap, 999, 1);
    for (int round = 0; round < 2; round++) {
        g_assert_true(dirty_log_start(&fx->log, &fx->ram, NULL));
        g_assert_cmpuint(dirty_log_get_counters(&fx->p[2].provider).sync_calls, ==, 0);
        g_assert_cmpuint(dirty_log_get_counters(&fx->p[2].provider).requests, ==, 0);
        g_assert_true(dirty_log_sync(&fx->log, &fx->block, 0, PAGES, bitmap, &new_dirty, NULL));
        g_assert_true(dirty_log_sync(&fx->log, &fx->block, 1, 1, bitmap, &new_dirty, NULL));
        g_assert_true(dirty_log_clear(&fx->log, &fx->block, 3, 400, bitmap, &cleared, NULL));
        g_assert_true(dirty_log_clear(&fx->log, &fx->block, 999, 1, bitmap, &cleared, NULL));
        /* Nothing to do costs no call. */
        g_assert_true(dirty_log_clear(&fx->log, &fx->block, 5, 0, bitmap, &cleared, NULL));
        g_assert_true(dirty_log_clear(&fx->log, &fx->block, 405, 594, bitmap, &cleared, NULL));
        g_assert_true(dirty_log_sync(&fx->log, &fx->block, 5, 0, bitmap, &new_dirty, NULL));
        dirty_log_stop(&fx->log);
        for (unsigned i = 0; i < 3; i++) {
            DirtyLogCounters c = dirty_log_get_counters(&fx->p[i].provider);
            g_assert_cmpuint(c.sync_calls, ==, 2);
            g_assert_cmpuint(c.clear_calls, ==, 2);
            g_assert_cmpuint(c.cleared_pages, ==, 398 + 1);
            g_assert_cmpuint(c.requests, ==, 2);
        }
    }
    g_assert_cmpuint(cleared, ==, 2 * (398 + 1));
}

/* A range with holes is one call, from the first page to the last one that are set; holes stay logged. */
static void test_clear_is_one_call(Fixture *fx, gconstpointer data)
{
    uint64_t bitmap[BITMAP_WORDS(PAGES)] = { 0 };
    uint64_t cleared = 0;

    g_assert_true(dirty_log_start(&fx->log, &fx->ram, NULL));
    memset(fx->p[0].bits, 0xff, sizeof(fx->p[0].bits));
    for (uint64_t page = 101; page < 900; page += 2) {
        bitmap_set(bitmap, page, 1);
    }
    g_assert_true(dirty_log_clear(&fx->log, &fx->block, 0, PAGES, bitmap, &cleared, NULL));
    g_assert_cmpuint(cleared, ==, 400);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_cmpuint(fx->p[i].clears, ==, 1);
        g_assert_cmpuint(fx->p[i].clear_first, ==, 101);
        g_assert_cmpuint(fx->p[i].clear_count, ==, 899 - 101 + 1);
    }
    for (uint64_t page = 0; page < PAGES; page++) {
        g_assert_cmpint(bitmap_test(fx->p[0].bits, page), !=, bitmap_test(bitmap, page));
    }
}

/*
 * Two kinds of provider dirty pages at random; the caller follows the contract (fetch, clear what it
 * fetched).  A model knows for each page whether it has been written since it was last reported: all such
 * pages, and no others, may be new.
 */
static void test_union_against_model(Fixture *fx, gconstpointer data)
{
    bool written[PAGES] = { false };
    uint64_t bitmap[BITMAP_WORDS(PAGES)];

    g_assert_true(dirty_log_start(&fx->log, &fx->ram, NULL));
    for (int step = 0; step < 3000; step++) {
        for (int n = g_test_rand_int_range(0, 30); n; n--) {
            uint64_t page = g_test_rand_int_range(0, PAGES);
            bitmap_set(fx->p[g_test_rand_int_range(0, 3)].bits, page, 1);
            written[page] = true;
        }

        uint64_t first = g_test_rand_int_range(0, PAGES);
        uint64_t count = g_test_rand_int_range(0, PAGES - first + 1);
        uint64_t expect = 0, new_dirty = 7, cleared = 0;
        memset(bitmap, 0, sizeof(bitmap));
        g_assert_true(dirty_log_sync(&fx->log, &fx->block, first, count, bitmap, &new_dirty, NULL));
        for (uint64_t page = 0; page < PAGES; page++) {
            bool in = page >= first && page < first + count;
            g_assert_cmpint(bitmap_test(bitmap, page), ==, in && written[page]);
            if (in) {
                expect += written[page];
                written[page] = false;
            }
        }
        g_assert_cmpuint(new_dirty, ==, 7 + expect);
        g_assert_true(dirty_log_clear(&fx->log, &fx->block, first, count, bitmap, &cleared, NULL));
        g_assert_cmpuint(cleared, ==, expect);
    }
}

static void test_removed_provider_is_stopped(Fixture *fx, gconstpointer data)
{
    g_assert_true(dirty_log_start(&fx->log, &fx->ram, NULL));
    dirty_log_remove_provider(&fx->log, &fx->p[1].provider);
    g_assert_false(fx->p[1].started);
    g_assert_true(fx->p[0].started && fx->p[2].started);
    dirty_log_remove_provider(&fx->log, &fx->p[1].provider);
    dirty_log_stop(&fx->log);
    g_assert_cmpuint(fx->p[1].stops, ==, 1);
    g_assert_cmpuint(fx->p[2].stops, ==, 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, func) \
    g_test_add("/system/dirty-log/" name, Fixture, NULL, fixture_setup, func, fixture_teardown)
    ADD("start-failure-undoes", test_start_failure_undoes);
    ADD("stop-is-idempotent", test_stop_is_idempotent);
    ADD("errors-name-provider-and-block", test_errors_name_provider_and_block);
    ADD("statistics", test_statistics);
    ADD("clear-is-one-call", test_clear_is_one_call);
    ADD("union-against-model", test_union_against_model);
    ADD("removed-provider-is-stopped", test_removed_provider_is_stopped);
    return g_test_run();
}
