/* SPDX-License-Identifier: BSD-2-Clause */
/* The arithmetic between a block's dirty bitmap and the logs of memory slots, whatever their alignment. */
#ifndef GODWIT_SYSTEM_DIRTY_SLOT_H
#define GODWIT_SYSTEM_DIRTY_SLOT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A slot is a stretch of pages with a log of its own: bit i is page i of the slot.  It covers @count pages of
 * a block:
 *
 *     block   0 . . . . block_first . . . . . . . . . . . block_first + count . . .
 *                            |                                   |
 *     slot         0 . . slot_first . . . . . . . . . . . slot_first + count . . slot_pages
 *
 * A KVM memory slot that lies within a block has slot_first 0; the log of a device that counts from guest
 * address 0 has block_first 0.  All in pages.
 */
typedef struct DirtySlot {
    uint64_t block_first;
    uint64_t slot_first;
    uint64_t count;
    uint64_t slot_pages;
} DirtySlot;

/*
 * What a range of the block is in a slot.  The window is the least stretch of the slot that holds it, begins
 * at a multiple of 64 pages, and ends at one or at the end of the slot: what KVM_CLEAR_DIRTY_LOG asks for
 * as first_page and num_pages.  Bit i of a window's bitmap is page window_first + i of the slot.
 */
typedef struct DirtyWindow {
    uint64_t block_first;       /* the part of the range that the slot covers */
    uint64_t count;
    uint64_t window_first;      /* pages of the slot */
    uint64_t window_pages;
    unsigned shift;             /* the bit of the window that is block_first, 0..63 */
} DirtyWindow;

/* False if the slot covers no page of [first, first + count). */
bool dirty_slot_window(const DirtySlot *slot, uint64_t first, uint64_t count, DirtyWindow *window);

/*
 * For clear: writes the BITMAP_WORDS(window_pages) words of @window_bitmap: the block's bits of the covered
 * pages, and 0 for all others.  Whole words at a time.  Returns how many are set; if none is, there is
 * nothing to ask of the slot.
 */
uint64_t dirty_window_from_block(const DirtyWindow *window, const uint64_t *block_bitmap,
                                 uint64_t *window_bitmap);

/*
 * For sync: ORs the covered pages of @slot_log, the log of the whole slot, into the block's bitmap.  Whole
 * words at a time.  Returns how many bits became set.
 */
uint64_t dirty_window_to_block(const DirtyWindow *window, const uint64_t *slot_log, uint64_t *block_bitmap);

#endif
