/* SPDX-License-Identifier: BSD-2-Clause */
/* The RAM scanner: rounds over the dirty bitmap, and whoever must know when a round ends. */
#ifndef GODWIT_MIGRATION_RAM_H
#define GODWIT_MIGRATION_RAM_H

#include "migration/internal-options.h"
#include "migration/ram-sink.h"
#include "system/dirty-log.h"
#include "util/notifier.h"

/*
 * One outgoing migration's RAM: owned by the migration thread from ram_save_new() to ram_save_free(), except
 * for the counters, which any thread may read.
 */
typedef struct RamSave RamSave;

/* Counters of query-migrate; written by the migration thread and sinks with atomics, read by any thread. */
typedef struct RamStats {
    uint64_t normal_pages;
    uint64_t zero_pages;
    uint64_t transferred;           /* bytes on every channel */
    uint64_t multifd_bytes;
    uint64_t precopy_bytes;
    uint64_t downtime_bytes;
    uint64_t remaining_pages;       /* set bits in the bitmap */
    uint64_t in_flight_pages;       /* a sink's threads have them, and have not counted them as sent yet */
    uint64_t dirty_sync_count;
    uint64_t dirty_pages_rate;      /* pages/s */
    uint64_t zero_copy_fallbacks;
    uint64_t rounds;                /* ends of rounds so far */
    uint64_t sync_ns;               /* time in dirty_log_sync, in all */
    uint64_t clear_ns;
    uint64_t clear_calls;           /* to each provider */
    uint64_t cleared_pages;
    uint64_t last_sync_ns;
    uint64_t last_round_ns;         /* duration of the last complete round, sync time included */
    uint64_t last_round_pages;
    uint64_t xbzrle_bytes, xbzrle_pages, xbzrle_cache_miss, xbzrle_overflow;
    double xbzrle_cache_miss_rate, xbzrle_encoding_rate;
} RamStats;

/* @options is the migration's own copy.  All lists stay unchanged until ram_save_free(). */
RamSave *ram_save_new(RamList *ram, DirtyLog *log, const MigrationOptions *options, GError **errp);
void ram_save_free(RamSave *s);     /* stops the dirty log, cleans the sink up */
RamStats *ram_save_stats(RamSave *s);
RamList *ram_save_list(RamSave *s);
const MigrationOptions *ram_save_options(RamSave *s);

/* The sink to use; before ram_save_setup().  Takes ownership. */
void ram_save_set_sink(RamSave *s, RamSink *sink);

/* Payload of the START section: all bits set, dirty log started, first sync, block list, set-up, EOS. */
bool ram_save_setup(RamSave *s, StreamWriter *w, GError **errp);

/*
 * Payload of one PART section: sends dirty pages until nothing is dirty in a full turn (*done is then
 * true), @budget bytes are used up (UINT64_MAX: no limit), or about 50 ms have passed; then flush and
 * EOS. If anything is dirty, at least one page is sent.
 */
bool ram_save_iterate(RamSave *s, StreamWriter *w, uint64_t budget, bool *done, GError **errp);

/* Payload of the END section, vCPUs stopped: last sync unless done, all that remains, complete, EOS. */
bool ram_save_complete(RamSave *s, StreamWriter *w, GError **errp);

/*
 * Fetches the dirty log into the bitmaps. @final: vCPUs are stopped; not counted as a pass, and
 * ram_save_complete() will not do it again.
 */
bool ram_save_sync(RamSave *s, bool final, GError **errp);

/* The first page in [@page, @end) of @block that is still to be sent; @end if there is none. */
uint64_t ram_save_next_dirty(const RamSave *s, const RAMBlock *block, uint64_t page, uint64_t end);

/* See RamSinkOps.settle. */
bool ram_save_settle(RamSave *s, GError **errp);

/* Bytes that the bitmap says are still to be sent. */
uint64_t ram_save_pending(const RamSave *s);

/*
 * Bytes of pages that sink's threads have yet to send, at their full size: what is to be added to those
 * sent where it is about a limit, or about what is left to do.
 */
uint64_t ram_save_in_flight(const RamSave *s);

/*
 * Adds to stats.transferred what @w, the main stream, has taken since the last call.  The functions
 * above do so themselves; call it once more when all is written.  Sinks add what they send elsewhere.
 */
void ram_save_account_stream(RamSave *s, const StreamWriter *w);

/* True in the END section: vCPUs are stopped, each page is sent for the last time. */
bool ram_save_last_stage(const RamSave *s);

/* A new value of xbzrle-cache-size for a running migration, in bytes.  Any thread. */
void ram_save_set_xbzrle_cache_size(RamSave *s, uint64_t bytes);
uint64_t ram_save_xbzrle_cache_size(const RamSave *s);

/* For counters in RamStats: one writer each, any reader. */
static inline void ram_stats_add(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static inline void ram_stats_sub(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_sub(counter, n, __ATOMIC_RELAXED);
}

static inline void ram_stats_set(uint64_t *counter, uint64_t value)
{
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline uint64_t ram_stats_get(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline void ram_stats_set_rate(double *rate, double value)
{
    __atomic_store(rate, &value, __ATOMIC_RELAXED);
}

static inline double ram_stats_get_rate(const double *rate)
{
    double value;
    __atomic_load(rate, &value, __ATOMIC_RELAXED);
    return value;
}

/* ---- the RAM round ---- */

/*
 * A round is one full scan of all blocks; it ends when the scanner passes the end of the last block and
 * wraps. A newer version of a page is only ever sent in a later round than the older one, so a sink that
 * reorders pages needs one barrier, here. Notifiers run in the migration thread, in order of addition,
 * exactly once per wrap, with every run of the round handed to the sink and none of the next. The first
 * failure fails the migration with that notifier's message. The @data of the callback is a RamRound.
 *
 * In PART sections the scanner wraps when it has passed the last dirty page and dirty ones remain before
 * its position, and when nothing is dirty any more: the clean rest of the turn is not scanned, but the
 * round ends. A turn in which no page was sent is no round. In the END section the round that is running
 * goes on; if dirty pages remain before its position, it ends as always (@last false) and one more round
 * sends them. When all is sent, the END section ends its round with @last true: exactly one such call in
 * a migration, even if END held no page; then RamSinkOps.complete is called. So every run is followed by
 * the end of its round before complete.
 */
typedef struct RamRound {
    RamSave *save;
    StreamWriter *writer;       /* a notifier may write words to the current ram section */
    uint64_t number;            /* of the round that ended, from 1 */
    bool last;                  /* the last round of the END section: no page follows */
} RamRound;

typedef Notifier RamRoundNotifier;

void ram_round_add_notifier(RamSave *s, RamRoundNotifier *notifier);
void ram_round_remove_notifier(RamSave *s, RamRoundNotifier *notifier);

#endif
