/* SPDX-License-Identifier: BSD-2-Clause */
/* A million random syncs, clears and writes on random slots of random providers, against a simple model. */

/*
 * The model knows for each page how often it was written and what its reader has seen last, and for each
 * provider whether the page is in its log.  It goes page by page and knows of no word, slot or window.  The
 * caller is one that follows the contract: it fetches, clears a chunk that it is about to read, and reads, in
 * random pieces, and the guest writes between the steps.
 *
 * What must hold: a clear takes from a provider's log the pages of the given bitmap in the given range and no
 * other; each provider gets one call for it, each slot at most one request; and whatever has happened, a page
 * whose reader has not seen the last write is either still to be read, or in a log.
 */
#include <string.h>

#include "slot-log.h"
#include "util/bitmap.h"

#define MAX_PAGES 320
#define MAX_PROVIDERS 3
#define CASES_PER_MACHINE 400

typedef struct Machine {
    uint64_t random;            /* xorshift */
    RAMBlock block;
    RamList ram;
    DirtyLog log;
    SlotLog providers[MAX_PROVIDERS];
    unsigned n_providers;
    uint64_t pages;
    uint64_t dirty[BITMAP_WORDS(MAX_PAGES)];

    /* The model. */
    uint32_t written[MAX_PAGES];
    uint32_t seen[MAX_PAGES];
    bool model_dirty[MAX_PAGES];
    bool logged[MAX_PROVIDERS][MAX_PAGES];
} Machine;

static uint64_t next(Machine *m)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random;
}

static uint64_t below(Machine *m, uint64_t n)
{
    return (next(m) >> 32) * n >> 32;
}

/* ---- the guest ---- */

/* A write reaches one provider: the one that stands for its writer. */
static void guest_writes(Machine *m)
{
    unsigned k = below(m, m->n_providers);
    uint64_t page = below(m, m->pages);

    m->written[page]++;
    m->logged[k][page] = true;
    slot_log_write(&m->providers[k], &m->block, page);
}

/* ---- a random machine ---- */

/* All pages, in slots of random sizes; a slot may reach beyond the block at both ends. */
static void cover_at_random(Machine *m, SlotLog *log)
{
    for (uint64_t first = 0; first < m->pages;) {
        DirtySlot map = { .block_first = first, .count = 1 + below(m, m->pages - first) };
        if (below(m, 2)) {
            uint64_t most = 1 + below(m, 70);
            map.count = MIN(map.count, most);
        }
        map.slot_first = below(m, 4) ? 0 : below(m, 130);
        map.slot_pages = map.slot_first + map.count + (below(m, 4) ? 0 : below(m, 130));
        slot_log_add(log, &m->block, &map);
        first += map.count;
    }
}

static void machine_init(Machine *m, uint64_t seed)
{
    memset(m, 0, sizeof(*m));
    m->random = seed;
    m->pages = 1 + below(m, below(m, 2) ? MAX_PAGES : 130);
    m->block = (RAMBlock){ .host = (uint8_t *)0x10000000, .used_length = m->pages * 4096, .fd = -1 };
    g_strlcpy(m->block.idstr, "m0", sizeof(m->block.idstr));
    g_assert_true(ram_list_add(&m->ram, &m->block, NULL));
    m->n_providers = 1 + below(m, MAX_PROVIDERS);
    for (unsigned k = 0; k < m->n_providers; k++) {
        SlotLog *log = &m->providers[k];
        slot_log_init(log, "slots");
        if (below(m, 2)) {
            slot_log_cover(log, &m->block, below(m, 64), 1 + below(m, 200));
        } else {
            cover_at_random(m, log);
        }
        dirty_log_add_provider(&m->log, &log->provider);
    }
    g_assert_true(dirty_log_start(&m->log, &m->ram, NULL));
}

static void machine_clear(Machine *m)
{
    dirty_log_stop(&m->log);
    for (unsigned k = 0; k < m->n_providers; k++) {
        slot_log_free(&m->providers[k]);
    }
}

/* ---- steps ---- */

static void random_range(Machine *m, uint64_t *first, uint64_t *count)
{
    *first = below(m, m->pages);
    *count = 1 + below(m, m->pages - *first);
    if (below(m, 3) == 0) {     /* a chunk, as the scanner's */
        uint64_t chunk = UINT64_C(1) << below(m, 9);
        *first = *first & ~(chunk - 1);
        *count = MIN(chunk, m->pages - *first);
    }
}

static void step_sync(Machine *m)
{
    uint64_t new_dirty = 0, expected = 0, first, count;

    random_range(m, &first, &count);
    for (uint64_t page = first; page < first + count; page++) {
        bool any = false;
        for (unsigned k = 0; k < m->n_providers; k++) {
            any |= m->logged[k][page];
        }
        expected += any && !m->model_dirty[page];
        m->model_dirty[page] |= any;
    }
    g_assert_true(dirty_log_sync(&m->log, &m->block, first, count, m->dirty, &new_dirty, NULL));
    g_assert_cmpuint(new_dirty, ==, expected);
}

/* Clears a chunk of what was fetched. */
static void step_clear(Machine *m, uint64_t first, uint64_t count)
{
    uint64_t calls[MAX_PROVIDERS], requests[MAX_PROVIDERS], cleared = 0, expected = 0;

    for (uint64_t page = first; page < first + count; page++) {
        expected += m->model_dirty[page];
        for (unsigned k = 0; k < m->n_providers; k++) {
            m->logged[k][page] &= !m->model_dirty[page];
        }
    }
    for (unsigned k = 0; k < m->n_providers; k++) {
        calls[k] = m->providers[k].provider.counters.clear_calls;
        requests[k] = m->providers[k].clears;
    }
    g_assert_true(dirty_log_clear(&m->log, &m->block, first, count, m->dirty, &cleared, NULL));
    g_assert_cmpuint(cleared, ==, expected);
    for (unsigned k = 0; k < m->n_providers; k++) {
        const SlotLog *log = &m->providers[k];
        g_assert_cmpuint(log->provider.counters.clear_calls - calls[k], ==, expected > 0);
        g_assert_cmpuint(log->clears - requests[k], ==,
                         slot_log_count_slots(log, &m->block, first, count, m->dirty));
    }
}

/* Reads some of the dirty pages of a range that was just cleared. */
static void step_read(Machine *m, uint64_t first, uint64_t count)
{
    for (uint64_t page = first; page < first + count; page++) {
        if (bitmap_test(m->dirty, page)) {
            bitmap_clear(m->dirty, page, 1);
            m->model_dirty[page] = false;
            m->seen[page] = m->written[page];
        }
    }
}

static void check(const Machine *m)
{
    for (uint64_t page = 0; page < m->pages; page++) {
        bool somewhere = m->model_dirty[page];

        g_assert_cmpint(bitmap_test(m->dirty, page), ==, m->model_dirty[page]);
        for (unsigned k = 0; k < m->n_providers; k++) {
            somewhere |= m->logged[k][page];
        }
        g_assert_true(somewhere || m->seen[page] == m->written[page]);
    }
}

/* The providers' logs, slot by slot: a slot's bit is the model's, and pages beyond the block are clear. */
static void check_logs(const Machine *m)
{
    for (unsigned k = 0; k < m->n_providers; k++) {
        for (unsigned i = 0; i < m->providers[k].n_slots; i++) {
            const SlotLogSlot *slot = &m->providers[k].slots[i];
            for (uint64_t bit = 0; bit < slot->map.slot_pages; bit++) {
                bool ours = bit >= slot->map.slot_first && bit < slot->map.slot_first + slot->map.count;
                bool expected = ours && m->logged[k][bit - slot->map.slot_first + slot->map.block_first];
                g_assert_cmpint(bitmap_test(slot->log, bit), ==, expected);
            }
        }
    }
}

static void one_case(Machine *m)
{
    uint64_t first, count;

    for (uint64_t n = below(m, 8); n; n--) {
        guest_writes(m);
    }
    if (below(m, 2)) {
        step_sync(m);
        return;
    }
    random_range(m, &first, &count);
    step_clear(m, first, count);
    guest_writes(m);        /* between the clear and the read */
    step_read(m, first, count);
}

/* Reads everything that the logs still know of: nothing may be missing then. */
static void drain(Machine *m)
{
    uint64_t new_dirty = 0;

    g_assert_true(dirty_log_sync(&m->log, &m->block, 0, m->pages, m->dirty, &new_dirty, NULL));
    for (uint64_t page = 0; page < m->pages; page++) {
        m->model_dirty[page] = bitmap_test(m->dirty, page);
    }
    step_clear(m, 0, m->pages);
    step_read(m, 0, m->pages);
    g_assert_cmpint(memcmp(m->seen, m->written, sizeof(m->seen)), ==, 0);
}

static void run_cases(uint64_t seed, unsigned cases)
{
    Machine *m = g_new(Machine, 1);

    for (unsigned done = 0; done < cases; done += CASES_PER_MACHINE) {
        machine_init(m, (seed + done) * UINT64_C(0x9e3779b97f4a7c15) | 1);
        for (unsigned i = 0; i < CASES_PER_MACHINE; i++) {
            one_case(m);
            if (i % 16 == 0) {
                check(m);
                check_logs(m);
            }
        }
        drain(m);
        check(m);
        check_logs(m);
        machine_clear(m);
    }
    g_free(m);
}

static void test_fixed(void)
{
    run_cases(1, 500000);
}

/* --seed of the line "random seed" repeats it. */
static void test_random(void)
{
    unsigned seed = (unsigned)g_test_rand_int();

    g_test_message("cases from seed %u", seed);
    run_cases(seed, 500000);
}

/*
 * 4 MiB, every second page dirty, two providers: a request for each page and provider would be 1024 of them,
 * and 2048 if all were dirty.  A slot that begins 1 to 63 pages beside a word takes one.
 */
static void test_four_mib(void)
{
    enum { PAGES = 1024 + 64 };
    RAMBlock block = { .idstr = "m0", .host = (uint8_t *)0x10000000, .used_length = PAGES * 4096, .fd = -1 };
    RamList ram = { 0 };

    g_assert_true(ram_list_add(&ram, &block, NULL));
    for (unsigned shift = 1; shift < 64; shift++) {
        uint64_t bitmap[BITMAP_WORDS(PAGES)] = { 0 }, new_dirty = 0, cleared = 0;
        SlotLog logs[2];
        DirtyLog log = { 0 };

        for (unsigned k = 0; k < 2; k++) {
            slot_log_init(&logs[k], k ? "device" : "kernel");
            slot_log_cover(&logs[k], &block, shift, PAGES);
            dirty_log_add_provider(&log, &logs[k].provider);
            for (uint64_t page = shift; page < shift + 1024; page += 2) {
                slot_log_write(&logs[k], &block, page);
            }
        }
        g_assert_true(dirty_log_start(&log, &ram, NULL));
        g_assert_true(dirty_log_sync(&log, &block, 0, PAGES, bitmap, &new_dirty, NULL));
        g_assert_cmpuint(new_dirty, ==, 512);
        g_assert_true(dirty_log_clear(&log, &block, 0, PAGES, bitmap, &cleared, NULL));
        g_assert_cmpuint(cleared, ==, 512);
        for (unsigned k = 0; k < 2; k++) {
            g_assert_cmpuint(dirty_log_get_counters(&logs[k].provider).clear_calls, ==, 1);
            g_assert_cmpuint(logs[k].clears, ==, 1);
        }
        dirty_log_stop(&log);
        slot_log_free(&logs[0]);
        slot_log_free(&logs[1]);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/system/dirty-property/four-mib", test_four_mib);
    g_test_add_func("/system/dirty-property/fixed", test_fixed);
    g_test_add_func("/system/dirty-property/random", test_random);
    return g_test_run();
}
