/* SPDX-License-Identifier: BSD-2-Clause */
/* What ram.c and dirty-sync.c share: the insides of RamSave. */
#ifndef GODWIT_MIGRATION_RAM_INTERNAL_H
#define GODWIT_MIGRATION_RAM_INTERNAL_H

#include "migration/ram.h"

/* One block of the source. */
typedef struct RamSaveBlock {
    RAMBlock *block;
    bool ignored;           /* x-ignore-shared: in the list, but no page is sent */
    uint64_t pages;
    uint64_t *dirty;        /* bit per page: to be sent */
    uint64_t *uncleared;    /* bit per chunk: synced, but not cleared in the dirty log since */
    uint64_t chunks;
} RamSaveBlock;

/* Counters at the start of the period that the rates are about. */
typedef struct RamPeriod {
    int64_t start_ns;
    uint64_t dirtied;       /* pages that became dirty in it */
    uint64_t pages;         /* pages handled before it */
    uint64_t xbzrle_bytes, xbzrle_pages, xbzrle_cache_miss;
} RamPeriod;

/* All of it belongs to the migration thread, except what is said to be atomic. */
struct RamSave {
    RamList *ram;
    DirtyLog *log;
    const MigrationOptions *options;
    RamSink *sink;
    NotifierList notifiers;

    RamSaveBlock *blocks;
    unsigned n_blocks;
    unsigned chunk_bits;        /* pages per chunk of lazy clearing, as a power of two */

    unsigned pos_block;         /* the scanner's position */
    uint64_t pos_page;
    uint64_t round_pages;       /* sent in the round that is running */
    int64_t round_start_ns;

    int64_t iteration_ns;       /* an iteration ends after this time; tests set it */
    bool log_started;
    bool last_stage;
    bool final_synced;
    uint64_t main_total;        /* stream_writer_total() when last accounted */
    uint64_t xbzrle_cache_size; /* atomic */
    RamPeriod period;
    RamStats stats;             /* atomic */
};

static inline int64_t ram_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* dirty-sync.c: clears the log of all chunks of [first, first + count) not cleared since the last sync. */
bool ram_save_clear_log(RamSave *s, RamSaveBlock *b, uint64_t first, uint64_t count, GError **errp);

#endif
