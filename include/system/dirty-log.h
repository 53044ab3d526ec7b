/* SPDX-License-Identifier: BSD-2-Clause */
/* DirtyLogProvider: whoever can write guest memory tells here which pages it wrote. */
#ifndef GODWIT_SYSTEM_DIRTY_LOG_H
#define GODWIT_SYSTEM_DIRTY_LOG_H

#include "system/ramblock.h"

typedef struct DirtyLogProvider DirtyLogProvider;

/*
 * The contract that loses no write:
 *   - a page is reported by some sync() that begins after the write ended;
 *   - a write that begins after clear() of its page (or, for a provider whose
 *     sync() itself clears, after that sync()) is reported by a later sync().
 * The caller fetches with sync(), and calls clear() for those of the fetched pages that it is going to read
 * after the clear, and for no others.  docs/dirty-log.md proves that this loses no write.
 *
 * All ops are called from one thread at a time: the main thread or the migration thread.
 * They return false and set @errp when the kernel refuses; the migration then fails and the guest runs on.
 */
typedef struct DirtyLogProviderOps {
    const char *name;

    /* Begin to log writes to all blocks.  Every page counts as dirty at this moment. */
    bool (*start)(DirtyLogProvider *p, const RamList *ram, GError **errp);

    /* Stop logging; never fails, may be called when not started. */
    void (*stop)(DirtyLogProvider *p);

    /*
     * OR the log of pages [first, first + count) of @block into @bitmap, where bit
     * i is page i of the block; add to *@new_dirty how many bits of @bitmap became set.  Whole words at a
     * time.
     */
    bool (*sync)(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                 uint64_t *bitmap, uint64_t *new_dirty, GError **errp);

    /*
     * Re-arm logging of exactly those pages of [first, first + count) whose bit is set in @bitmap, where
     * bit i is page i of the block, as in sync.  The first and the last page of the range are such pages.
     * Pages whose bit is clear must keep their log: the guest may have written to them since the last sync.
     * Bits outside the range may be set and mean nothing.  @bitmap is only valid, and does not change,
     * during the call.
     *
     * One call is a whole chunk of lazy clearing or more (2^18 pages and up), with runs and holes: the
     * provider is to make one request of it per memory slot, not one per run.  dirty-slot.h has the
     * arithmetic for slots that begin at any page of the block.
     */
    bool (*clear)(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                  const uint64_t *bitmap, GError **errp);
} DirtyLogProviderOps;

/*
 * What a provider has been asked and how long it took, since start.  Written by the thread that calls the
 * ops, with atomics; any thread may read with dirty_log_get_counters().
 */
typedef struct DirtyLogCounters {
    uint64_t sync_calls;
    uint64_t sync_ns;
    uint64_t clear_calls;
    uint64_t clear_ns;
    uint64_t cleared_pages;     /* set bits in the bitmaps of the clear calls */
    uint64_t requests;          /* to the kernel or device, by dirty_log_count_request() */
} DirtyLogCounters;

struct DirtyLogProvider {
    const DirtyLogProviderOps *ops;     /* every entry filled */
    DirtyLogProvider *next;
    DirtyLogCounters counters;          /* dirty-log.c's */
};

/* All providers of one VM.  Changed by the main thread while no migration runs. */
typedef struct DirtyLog {
    DirtyLogProvider *providers;
    bool started;
} DirtyLog;

void dirty_log_add_provider(DirtyLog *log, DirtyLogProvider *provider);
void dirty_log_remove_provider(DirtyLog *log, DirtyLogProvider *provider);

/* Each calls every provider; if start fails, those already started are stopped again. */
bool dirty_log_start(DirtyLog *log, const RamList *ram, GError **errp);
void dirty_log_stop(DirtyLog *log);
bool dirty_log_sync(DirtyLog *log, RAMBlock *block, uint64_t first, uint64_t count,
                    uint64_t *bitmap, uint64_t *new_dirty, GError **errp);

/*
 * One clear() to each provider for the pages of [first, first + count) that are set in @bitmap, none if no
 * page is.  Adds to *@cleared how many pages that were.
 */
bool dirty_log_clear(DirtyLog *log, RAMBlock *block, uint64_t first, uint64_t count, const uint64_t *bitmap,
                     uint64_t *cleared, GError **errp);

/* A copy.  Any thread. */
DirtyLogCounters dirty_log_get_counters(const DirtyLogProvider *provider);

/* For a provider: a request to the kernel or the device was made on behalf of a sync or clear. */
void dirty_log_count_request(DirtyLogProvider *provider);

/*
 * The software dirty log: for writers that are code of this process (the synthetic vCPUs, -qtest, the
 * monitor).  A writer stores its bytes first and calls soft_dirty_log_mark() after; see soft-dirty-log.c for
 * why this order, and only this one, loses nothing.
 */
typedef struct SoftDirtyLog SoftDirtyLog;

SoftDirtyLog *soft_dirty_log_new(void);
void soft_dirty_log_free(SoftDirtyLog *log);
DirtyLogProvider *soft_dirty_log_provider(SoftDirtyLog *log);

/* Any thread.  Cheap when logging is off. */
void soft_dirty_log_mark(SoftDirtyLog *log, const RAMBlock *block, uint64_t offset, uint64_t len);

#endif
