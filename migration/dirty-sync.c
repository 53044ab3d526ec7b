/* SPDX-License-Identifier: BSD-2-Clause */
/* From the dirty log to the blocks' bitmaps, and the lazy, merged clearing of the log. */

/*
 * A sync fetches; it does not clear. The log of a page is cleared just before the page is read, and for a
 * whole chunk of 2^x-clear-bitmap-shift pages when its first page is: few calls, and pages written
 * meanwhile cost no second fault.
 *
 * Only pages whose bit is set in the bitmap are ever cleared: the bitmap itself, with its holes, goes to the
 * providers, and one call covers a chunk. Such a page will be read after the clear, so a write before the
 * clear is in what is read, and a write after it is logged. A page whose bit is not set may have been
 * written since the sync: clearing it would lose that write. docs/dirty-log.md has the proof.
 */
#include <time.h>

#include "migration/ram-internal.h"
#include "trace-migration.h"
#include "util/bitmap.h"
#include "util/fault.h"

#define PERIOD_NS INT64_C(1000000000)

static void update_xbzrle_rates(RamSave *s, uint64_t pages)
{
    RamStats *stats = &s->stats;
    uint64_t misses = stats->xbzrle_cache_miss - s->period.xbzrle_cache_miss;
    uint64_t encoded_pages = stats->xbzrle_pages - s->period.xbzrle_pages;
    uint64_t encoded_bytes = stats->xbzrle_bytes - s->period.xbzrle_bytes;

    ram_stats_set_rate(&stats->xbzrle_cache_miss_rate, pages ? (double)misses / pages : 0);
    ram_stats_set_rate(&stats->xbzrle_encoding_rate,
                       encoded_bytes ? (double)encoded_pages * TARGET_PAGE_SIZE / encoded_bytes : 0);
}

/* Rates are those of the last period of at least a second between two syncs. */
static void update_rates(RamSave *s, uint64_t new_dirty)
{
    int64_t now = ram_now_ns();
    RamStats *stats = &s->stats;
    RamPeriod *period = &s->period;
    /* The sink's threads may be counting. */
    uint64_t pages = ram_stats_get(&stats->normal_pages) + ram_stats_get(&stats->zero_pages) +
                     stats->xbzrle_pages - stats->xbzrle_overflow;

    if (!period->start_ns) {
        period->start_ns = now;
    }
    period->dirtied += new_dirty;
    if (now - period->start_ns < PERIOD_NS) {
        return;
    }
    ram_stats_set(&stats->dirty_pages_rate,
                  (double)period->dirtied * PERIOD_NS / (now - period->start_ns));
    update_xbzrle_rates(s, pages - period->pages);
    *period = (RamPeriod){
        .start_ns = now,
        .pages = pages,
        .xbzrle_bytes = stats->xbzrle_bytes,
        .xbzrle_pages = stats->xbzrle_pages,
        .xbzrle_cache_miss = stats->xbzrle_cache_miss,
    };
}

static bool sync_block(RamSave *s, RamSaveBlock *b, uint64_t *new_dirty, GError **errp)
{
    if (b->ignored) {
        return true;
    }
    bitmap_set(b->uncleared, 0, b->chunks);
    return dirty_log_sync(s->log, b->block, 0, b->pages, b->dirty, new_dirty, errp);
}

bool ram_save_sync(RamSave *s, bool final, GError **errp)
{
    int64_t start = ram_now_ns();
    uint64_t new_dirty = 0;
    uint64_t remaining = 0;

    if (fault_point("dirty-sync", errp)) {
        return false;
    }
    for (unsigned i = 0; i < s->n_blocks; i++) {
        RamSaveBlock *b = &s->blocks[i];
        if (!sync_block(s, b, &new_dirty, errp)) {
            return false;
        }
        /* Counted from the bitmap itself: this number decides when all is sent. */
        remaining += b->ignored ? 0 : bitmap_count(b->dirty, 0, b->pages);
    }
    ram_stats_set(&s->stats.remaining_pages, remaining);
    ram_stats_set(&s->stats.last_sync_ns, ram_now_ns() - start);
    ram_stats_add(&s->stats.sync_ns, s->stats.last_sync_ns);
    if (!final) {
        ram_stats_add(&s->stats.dirty_sync_count, 1);
    }
    trace_ram_sync(final, new_dirty, remaining, s->stats.last_sync_ns);
    s->final_synced = final;
    update_rates(s, new_dirty);
    return true;
}

/* Clears the log for the dirty pages of [first, end), which are one or more whole chunks. */
static bool clear_chunks(RamSave *s, RamSaveBlock *b, uint64_t first, uint64_t end, GError **errp)
{
    uint64_t pages = 0;

    if (!dirty_log_clear(s->log, b->block, first, end - first, b->dirty, &pages, errp)) {
        return false;
    }
    trace_ram_clear(b->block->idstr, first, end - first, pages);
    ram_stats_add(&s->stats.clear_calls, pages > 0);
    ram_stats_add(&s->stats.cleared_pages, pages);
    return true;
}

bool ram_save_clear_log(RamSave *s, RamSaveBlock *b, uint64_t first, uint64_t count, GError **errp)
{
    uint64_t end_chunk = ((first + count - 1) >> s->chunk_bits) + 1;
    uint64_t chunk = bitmap_find_set(b->uncleared, first >> s->chunk_bits, end_chunk);

    if (chunk == end_chunk) {
        return true;
    }
    int64_t start = ram_now_ns();
    while (chunk < end_chunk) {
        uint64_t next = bitmap_find_clear(b->uncleared, chunk, end_chunk);
        uint64_t end = MIN(next << s->chunk_bits, b->pages);
        bitmap_clear(b->uncleared, chunk, next - chunk);
        if (!clear_chunks(s, b, chunk << s->chunk_bits, end, errp)) {
            return false;
        }
        chunk = bitmap_find_set(b->uncleared, next, end_chunk);
    }
    ram_stats_add(&s->stats.clear_ns, ram_now_ns() - start);
    return true;
}
