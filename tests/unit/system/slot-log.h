/* SPDX-License-Identifier: BSD-2-Clause */
/* A dirty log provider with memory slots of any alignment, in the manner of a kernel with manual clearing. */
#ifndef GODWIT_TESTS_SLOT_LOG_H
#define GODWIT_TESTS_SLOT_LOG_H

#include "system/dirty-log.h"
#include "system/dirty-slot.h"

typedef struct SlotLogSlot {
    RAMBlock *block;
    DirtySlot map;
    uint64_t *log;          /* bit per page of the slot, set by writes */
} SlotLogSlot;

/*
 * The slots behave as KVM's: a request for the log copies the whole slot's and leaves it as it is; a request
 * to clear names a window and a bitmap of it.  A window of a wrong shape fails the test.
 */
typedef struct SlotLog {
    DirtyLogProvider provider;
    SlotLogSlot *slots;
    unsigned n_slots;
    uint64_t *buffer;       /* of the size of the largest slot */
    uint64_t buffer_pages;
    uint64_t gets, clears;  /* requests to the "kernel" */
    void (*request)(void *opaque);      /* if set, called before and after each: the guest writes */
    void *opaque;
} SlotLog;

void slot_log_init(SlotLog *log, const char *name);
void slot_log_free(SlotLog *log);

/* @map must be within the block; slots of one log should not overlap. */
void slot_log_add(SlotLog *log, RAMBlock *block, const DirtySlot *map);

/*
 * Slots of @slot_pages that cover the whole block, but for the first, which has @shift pages: all others
 * begin at @shift + i * @slot_pages.  A @shift of 0: no such first slot.
 */
void slot_log_cover(SlotLog *log, RAMBlock *block, uint64_t shift, uint64_t slot_pages);

/* The guest writes to the page: it is logged if one of the slots has it.  From one thread. */
void slot_log_write(SlotLog *log, const RAMBlock *block, uint64_t page);
bool slot_log_is_logged(const SlotLog *log, const RAMBlock *block, uint64_t page);
/* All pages of all slots: a kernel's log with initially-all-set. */
void slot_log_write_all(SlotLog *log);

/* The slots that cover a page of the range in which @bitmap, the block's, has a bit. */
unsigned slot_log_count_slots(const SlotLog *log, const RAMBlock *block, uint64_t first, uint64_t count,
                              const uint64_t *bitmap);

#endif
