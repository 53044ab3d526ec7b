/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows of memory slots against a model that goes page by page. */
#include <glib.h>
#include <string.h>

#include "system/dirty-slot.h"
#include "util/bitmap.h"

#define PAGES 2000

static uint64_t below(uint64_t n)
{
    return n ? (uint64_t)g_test_rand_int() % n : 0;
}

/* Covers some of the block's pages; begins before, at or behind the block's beginning. */
static DirtySlot random_slot(void)
{
    DirtySlot slot = { .block_first = g_test_rand_bit() ? 0 : below(PAGES) };
    slot.count = 1 + below(PAGES - slot.block_first);
    slot.slot_first = g_test_rand_bit() ? 0 : below(300);
    slot.slot_pages = slot.slot_first + slot.count + (g_test_rand_bit() ? 0 : below(300));
    return slot;
}

static void random_bits(uint64_t *bitmap, uint64_t bits)
{
    memset(bitmap, 0, BITMAP_WORDS(bits) * sizeof(*bitmap));
    for (uint64_t i = 0; i < bits; i++) {
        bitmap_set(bitmap, i, g_test_rand_bit());
    }
}

/* What the kernel asks of KVM_CLEAR_DIRTY_LOG. */
static void check_shape(const DirtySlot *slot, const DirtyWindow *w)
{
    g_assert_cmpuint(w->window_first % 64, ==, 0);
    g_assert_cmpuint(w->window_pages, >, 0);
    g_assert_cmpuint(w->window_first + w->window_pages, <=, slot->slot_pages);
    g_assert_true(w->window_pages % 64 == 0 || w->window_first + w->window_pages == slot->slot_pages);
    g_assert_cmpuint(w->shift, <, 64);
}

static void check_from_block(const DirtySlot *slot, const DirtyWindow *w, uint64_t first, uint64_t count,
                             const uint64_t *block)
{
    g_autofree uint64_t *window = g_new(uint64_t, BITMAP_WORDS(w->window_pages));
    uint64_t set = 0, expected = 0;

    memset(window, 0xff, BITMAP_WORDS(w->window_pages) * 8);
    set = dirty_window_from_block(w, block, window);
    for (uint64_t i = 0; i < BITMAP_WORDS(w->window_pages) * 64; i++) {
        uint64_t page = w->window_first + i - slot->slot_first + slot->block_first;
        bool covered = w->window_first + i >= slot->slot_first &&
                       w->window_first + i < slot->slot_first + slot->count &&
                       page >= first && page < first + count;
        g_assert_cmpint(bitmap_test(window, i), ==, covered && bitmap_test(block, page));
        expected += covered && bitmap_test(block, page);
    }
    g_assert_cmpuint(set, ==, expected);
    g_assert_cmpuint(set, ==, bitmap_count(block, w->block_first, w->count));
}

static void check_to_block(const DirtySlot *slot, const DirtyWindow *w, uint64_t first, uint64_t count,
                           uint64_t *block)
{
    g_autofree uint64_t *log = g_new(uint64_t, BITMAP_WORDS(slot->slot_pages));
    uint64_t before[BITMAP_WORDS(PAGES)];
    uint64_t added = 0;

    random_bits(log, slot->slot_pages);
    memcpy(before, block, sizeof(before));
    uint64_t n = dirty_window_to_block(w, log, block);
    for (uint64_t page = 0; page < PAGES; page++) {
        bool covered = page >= MAX(first, slot->block_first) &&
                       page < MIN(first + count, slot->block_first + slot->count);
        bool logged = covered && bitmap_test(log, page - slot->block_first + slot->slot_first);
        g_assert_cmpint(bitmap_test(block, page), ==, bitmap_test(before, page) || logged);
        added += logged && !bitmap_test(before, page);
    }
    g_assert_cmpuint(n, ==, added);
}

static void test_random(void)
{
    uint64_t block[BITMAP_WORDS(PAGES)];

    for (int i = 0; i < 3000; i++) {
        DirtySlot slot = random_slot();
        DirtyWindow w;
        uint64_t first = below(PAGES);
        uint64_t count = below(PAGES - first + 1);
        bool overlap = count && first < slot.block_first + slot.count && first + count > slot.block_first;
        g_assert_cmpint(dirty_slot_window(&slot, first, count, &w), ==, overlap);
        if (!overlap) {
            continue;
        }
        check_shape(&slot, &w);
        random_bits(block, PAGES);
        check_from_block(&slot, &w, first, count, block);
        check_to_block(&slot, &w, first, count, block);
    }
}

static void test_known(void)
{
    /* A slot that begins at page 3 of the block; a range that begins at its page 64. */
    DirtySlot slot = { .block_first = 3, .count = 200, .slot_pages = 200 };
    DirtyWindow w;

    g_assert_true(dirty_slot_window(&slot, 67, 10, &w));
    g_assert_cmpuint(w.window_first, ==, 64);
    g_assert_cmpuint(w.window_pages, ==, 64);
    g_assert_cmpuint(w.shift, ==, 0);
    /* The end of the slot need not be a multiple of 64. */
    g_assert_true(dirty_slot_window(&slot, 0, 1000, &w));
    g_assert_cmpuint(w.block_first, ==, 3);
    g_assert_cmpuint(w.count, ==, 200);
    g_assert_cmpuint(w.window_first, ==, 0);
    g_assert_cmpuint(w.window_pages, ==, 200);
    g_assert_false(dirty_slot_window(&slot, 0, 3, &w));
    g_assert_false(dirty_slot_window(&slot, 203, 10, &w));
    g_assert_false(dirty_slot_window(&slot, 10, 0, &w));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/system/dirty-slot/known", test_known);
    g_test_add_func("/system/dirty-slot/random", test_random);
    return g_test_run();
}
