/* SPDX-License-Identifier: BSD-2-Clause */
/* The arithmetic between a block's dirty bitmap and the logs of memory slots. */
#include "system/dirty-slot.h"

#include <glib.h>

#include "util/bitmap.h"

bool dirty_slot_window(const DirtySlot *slot, uint64_t first, uint64_t count, DirtyWindow *window)
{
    uint64_t from = MAX(first, slot->block_first);
    uint64_t to = MIN(first + count, slot->block_first + slot->count);

    if (from >= to) {
        return false;
    }
    uint64_t slot_from = from - slot->block_first + slot->slot_first;
    uint64_t slot_to = slot_from + (to - from);
    uint64_t window_first = slot_from & ~UINT64_C(63);
    uint64_t window_end = MIN((slot_to + 63) & ~UINT64_C(63), slot->slot_pages);
    *window = (DirtyWindow){
        .block_first = from,
        .count = to - from,
        .window_first = window_first,
        .window_pages = window_end - window_first,
        .shift = (unsigned)(slot_from - window_first),
    };
    return true;
}

uint64_t dirty_window_from_block(const DirtyWindow *window, const uint64_t *block_bitmap,
                                 uint64_t *window_bitmap)
{
    /* The words at the two ends have bits that are not of the range; all between are written whole. */
    window_bitmap[0] = 0;
    window_bitmap[BITMAP_WORDS(window->window_pages) - 1] = 0;
    return bitmap_copy(window_bitmap, window->shift, block_bitmap, window->block_first, window->count);
}

uint64_t dirty_window_to_block(const DirtyWindow *window, const uint64_t *slot_log, uint64_t *block_bitmap)
{
    return bitmap_or(block_bitmap, window->block_first, slot_log, window->window_first + window->shift,
                     window->count);
}
