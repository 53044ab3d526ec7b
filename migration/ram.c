/* SPDX-License-Identifier: BSD-2-Clause */
/* The RAM scanner: finds runs of dirty pages and hands them to the sink; ends rounds. */

/*
 * The order that loses no write, for each page of a run: its bit came from a sync; the dirty log is
 * cleared for it (dirty-sync.c); its bit in the bitmap is cleared; its content is read, by the sink. A
 * write that comes too late to be read is logged, and the next sync sets the bit again.
 */
#include <time.h>
#include <unistd.h>

#include "migration/ram-internal.h"
#include "migration/ram-wire.h"
#include "trace-migration.h"
#include "util/bitmap.h"
#include "util/fault.h"

/* An iteration ends after this time, so that the caller can look at what has changed. */
#define ITERATION_NS INT64_C(50000000)

/* With RamSinkOps.iteration_bytes it may last so much longer. */
#define ITERATION_LONGER 20

/* The clock is read after this many pages. */
#define CLOCK_PAGES 64

/* The first run; each further one may be as long as all before: time is overrun at most twofold. */
#define FIRST_RUN 512

typedef struct RamRun {
    RamSaveBlock *b;
    uint64_t first;
    uint64_t count;
} RamRun;

/* ---- life ---- */

static void init_block(RamSave *s, RamSaveBlock *b, RAMBlock *block)
{
    b->block = block;
    b->ignored = s->options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] && block->shared;
    b->pages = ramblock_pages(block);
    b->chunks = (b->pages + (UINT64_C(1) << s->chunk_bits) - 1) >> s->chunk_bits;
    if (!b->ignored) {
        b->dirty = bitmap_new(b->pages);
        b->uncleared = bitmap_new(b->chunks);
    }
}

RamSave *ram_save_new(RamList *ram, DirtyLog *log, const MigrationOptions *options, GError **errp)
{
    if (fault_point("ram-new", errp)) {
        return NULL;
    }
    RamSave *s = g_new0(RamSave, 1);
    s->ram = ram;
    s->log = log;
    s->options = options;
    s->iteration_ns = ITERATION_NS;
    s->chunk_bits = CLAMP(options->props.x_clear_bitmap_shift, 6, 31);
    s->xbzrle_cache_size = options->p.xbzrle_cache_size;
    s->blocks = g_new0(RamSaveBlock, ram->count);
    RAMLIST_FOREACH(block, ram) {
        init_block(s, &s->blocks[s->n_blocks++], block);
    }
    return s;
}

void ram_save_free(RamSave *s)
{
    if (!s) {
        return;
    }
    if (s->log_started) {
        dirty_log_stop(s->log);
    }
    if (s->sink) {
        s->sink->ops->cleanup(s->sink);
    }
    for (unsigned i = 0; i < s->n_blocks; i++) {
        RamSaveBlock *b = &s->blocks[i];
        if (!b->ignored) {
            bitmap_free(b->dirty, b->pages);
            bitmap_free(b->uncleared, b->chunks);
        }
    }
    g_free(s->blocks);
    g_free(s);
}

RamStats *ram_save_stats(RamSave *s)
{
    return &s->stats;
}

const MigrationOptions *ram_save_options(RamSave *s)
{
    return s->options;
}

RamList *ram_save_list(RamSave *s)
{
    return s->ram;
}

uint64_t ram_save_next_dirty(const RamSave *s, const RAMBlock *block, uint64_t page, uint64_t end)
{
    const RamSaveBlock *b = &s->blocks[block->index];
    return b->ignored ? end : bitmap_find_set(b->dirty, page, end);
}

bool ram_save_settle(RamSave *s, GError **errp)
{
    return s->sink->ops->settle(s->sink, errp);
}

void ram_save_set_sink(RamSave *s, RamSink *sink)
{
    s->sink = sink;
}

uint64_t ram_save_pending(const RamSave *s)
{
    return ram_stats_get(&s->stats.remaining_pages) << TARGET_PAGE_BITS;
}

uint64_t ram_save_in_flight(const RamSave *s)
{
    return ram_stats_get(&s->stats.in_flight_pages) << TARGET_PAGE_BITS;
}

void ram_save_account_stream(RamSave *s, const StreamWriter *w)
{
    uint64_t total = stream_writer_total(w);

    ram_stats_add(&s->stats.transferred, total - s->main_total);
    s->main_total = total;
}

bool ram_save_last_stage(const RamSave *s)
{
    return s->last_stage;
}

void ram_save_set_xbzrle_cache_size(RamSave *s, uint64_t bytes)
{
    __atomic_store_n(&s->xbzrle_cache_size, bytes, __ATOMIC_RELAXED);
}

uint64_t ram_save_xbzrle_cache_size(const RamSave *s)
{
    return __atomic_load_n(&s->xbzrle_cache_size, __ATOMIC_RELAXED);
}

/* ---- the RAM round ---- */

void ram_round_add_notifier(RamSave *s, RamRoundNotifier *notifier)
{
    notifier_list_add(&s->notifiers, notifier);
}

void ram_round_remove_notifier(RamSave *s, RamRoundNotifier *notifier)
{
    notifier_list_remove(&s->notifiers, notifier);
}

/* The wrap. */
static bool end_round(RamSave *s, StreamWriter *w, bool last, GError **errp)
{
    int64_t now = ram_now_ns();
    RamRound round = { .save = s, .writer = w, .number = s->stats.rounds + 1, .last = last };

    ram_stats_set(&s->stats.rounds, round.number);
    ram_stats_set(&s->stats.last_round_ns, now - s->round_start_ns);
    ram_stats_set(&s->stats.last_round_pages, s->round_pages);
    trace_ram_round(round.number, last, s->round_pages, now - s->round_start_ns);
    s->round_start_ns = now;
    s->round_pages = 0;
    s->pos_block = 0;
    s->pos_page = 0;
    if (fault_point("ram-round", errp)) {
        return false;
    }
    return notifier_list_notify(&s->notifiers, &round, errp) && stream_writer_check(w, errp);
}

/* The next run, of at most @max pages, from the position to the end of the last block; false if none. */
static bool next_run(RamSave *s, uint64_t max, RamRun *run)
{
    for (; s->pos_block < s->n_blocks; s->pos_block++, s->pos_page = 0) {
        RamSaveBlock *b = &s->blocks[s->pos_block];
        if (b->ignored) {
            continue;
        }
        uint64_t first = bitmap_find_set(b->dirty, s->pos_page, b->pages);
        if (first < b->pages) {
            uint64_t limit = first + MIN(max, b->pages - first);
            uint64_t end = bitmap_find_clear(b->dirty, first, limit);
            *run = (RamRun){ .b = b, .first = first, .count = end - first };
            s->pos_page = end;
            return true;
        }
    }
    return false;
}

static bool send_run(RamSave *s, StreamWriter *w, const RamRun *run, uint64_t *bytes, GError **errp)
{
    uint64_t cost = 0;

    if (fault_point("ram-send", errp)) {
        return false;
    }
    /* With the vCPUs stopped nobody needs the log any more. */
    if (!s->last_stage && !ram_save_clear_log(s, run->b, run->first, run->count, errp)) {
        return false;
    }
    bitmap_clear(run->b->dirty, run->first, run->count);
    ram_stats_set(&s->stats.remaining_pages, s->stats.remaining_pages - run->count);
    s->round_pages += run->count;
    if (!s->sink->ops->send_run(s->sink, w, run->b->block, run->first, run->count, &cost, errp)) {
        return false;
    }
    ram_stats_add(s->last_stage ? &s->stats.downtime_bytes : &s->stats.precopy_bytes, cost);
    trace_ram_run(run->b->block->idstr, run->first, run->count, cost);
    *bytes = cost;
    return true;
}

static bool put_eos(RamSave *s, StreamWriter *w, GError **errp)
{
    stream_put_be64(w, RAM_FLAG_EOS);
    ram_save_account_stream(s, w);
    return stream_writer_check(w, errp);
}

/* ---- START ---- */

/* Huge-page blocks tell their page size to a destination that may have to place whole huge pages. */
static bool wants_page_size(const RamSave *s, const RAMBlock *block)
{
    size_t usual = MAX((size_t)getpagesize(), (size_t)TARGET_PAGE_SIZE);
    return s->options->caps[MIGRATION_CAPABILITY_POSTCOPY_RAM] && block->page_size != usual;
}

static bool put_block_list(RamSave *s, StreamWriter *w, GError **errp)
{
    stream_put_be64(w, ram_list_total(s->ram) | RAM_FLAG_MEM_SIZE);
    for (unsigned i = 0; i < s->n_blocks; i++) {
        RAMBlock *block = s->blocks[i].block;
        stream_put_counted_string(w, block->idstr);
        stream_put_be64(w, block->used_length);
        if (wants_page_size(s, block)) {
            stream_put_be64(w, block->page_size);
        }
        if (s->options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED]) {
            stream_put_be64(w, block->gpa);
        }
        if (!s->sink->ops->setup_block(s->sink, w, block, errp)) {
            return false;
        }
    }
    return stream_writer_check(w, errp);
}

/* Everything is dirty at first, and logged from now on. */
static bool start_log(RamSave *s, GError **errp)
{
    for (unsigned i = 0; i < s->n_blocks; i++) {
        RamSaveBlock *b = &s->blocks[i];
        if (!b->ignored) {
            bitmap_set(b->dirty, 0, b->pages);
        }
    }
    if (!dirty_log_start(s->log, s->ram, errp)) {
        return false;
    }
    s->log_started = true;
    return ram_save_sync(s, false, errp);
}

bool ram_save_setup(RamSave *s, StreamWriter *w, GError **errp)
{
    if (fault_point("ram-setup", errp) || !start_log(s, errp) || !put_block_list(s, w, errp) ||
        !s->sink->ops->setup(s->sink, w, errp)) {
        return false;
    }
    s->round_start_ns = ram_now_ns();
    return put_eos(s, w, errp);
}

/* ---- PART ---- */

/* The end of an iteration is decided by bytes, time, and what is left. */
typedef struct RamIteration {
    uint64_t budget;        /* bytes */
    int64_t used;           /* of it: sent, or in flight; what is in flight may turn out to be less */
    uint64_t in_flight;     /* when it was last looked at */
    int64_t deadline_ns;
    int64_t late_ns;        /* after this time it ends even if few bytes have been sent */
    uint64_t wanted;        /* bytes that are wanted before deadline_ns counts */
    uint64_t pages;         /* sent so far */
    uint64_t pages_at_clock;
    bool expired;
} RamIteration;

static uint64_t budget_left(const RamIteration *it)
{
    uint64_t used = (uint64_t)MAX(it->used, 0);
    return it->budget - MIN(used, it->budget);
}

static uint64_t longest_run(const RamIteration *it)
{
    uint64_t by_time = CLAMP(it->pages, FIRST_RUN, RAM_RUN_MAX);
    return MIN(by_time, MAX(budget_left(it) >> TARGET_PAGE_BITS, 1));
}

static void iteration_sent(RamIteration *it, const RamSave *s, uint64_t pages, uint64_t bytes)
{
    uint64_t in_flight = ram_save_in_flight(s);

    it->used += (int64_t)(bytes + in_flight - it->in_flight);
    it->in_flight = in_flight;
    it->pages += pages;
    it->wanted -= MIN(bytes, it->wanted);
    if (it->pages - it->pages_at_clock >= CLOCK_PAGES) {
        it->pages_at_clock = it->pages;
        it->expired = ram_now_ns() >= (it->wanted ? it->late_ns : it->deadline_ns);
    }
}

/* One step: a run, or the wrap. */
static bool iteration_step(RamSave *s, StreamWriter *w, RamIteration *it, GError **errp)
{
    RamRun run;
    uint64_t bytes = 0;

    if (!next_run(s, longest_run(it), &run)) {
        return end_round(s, w, false, errp);
    }
    if (!send_run(s, w, &run, &bytes, errp)) {
        return false;
    }
    iteration_sent(it, s, run.count, bytes);
    /* Nothing is left: the rest of the turn would find nothing. */
    return s->stats.remaining_pages || end_round(s, w, false, errp);
}

bool ram_save_iterate(RamSave *s, StreamWriter *w, uint64_t budget, bool *done, GError **errp)
{
    int64_t now = ram_now_ns();
    RamIteration it = {
        .budget = MAX(budget, 1),
        .in_flight = ram_save_in_flight(s),
        .deadline_ns = now + s->iteration_ns,
        .late_ns = now + ITERATION_LONGER * s->iteration_ns,
        .wanted = s->sink->ops->iteration_bytes,
    };

    while (s->stats.remaining_pages && budget_left(&it) && !it.expired) {
        if (!iteration_step(s, w, &it, errp)) {
            return false;
        }
    }
    if (!s->sink->ops->flush(s->sink, w, errp) || !put_eos(s, w, errp)) {
        return false;
    }
    ram_stats_add(&s->stats.precopy_bytes, sizeof(uint64_t));
    *done = !s->stats.remaining_pages;
    return true;
}

/* ---- END ---- */

static bool send_all(RamSave *s, StreamWriter *w, GError **errp)
{
    while (s->stats.remaining_pages) {
        RamRun run;
        uint64_t bytes;
        bool ok = next_run(s, RAM_RUN_MAX, &run) ? send_run(s, w, &run, &bytes, errp)
                                                 : end_round(s, w, false, errp);
        if (!ok) {
            return false;
        }
    }
    return end_round(s, w, true, errp);
}

bool ram_save_complete(RamSave *s, StreamWriter *w, GError **errp)
{
    if (fault_point("ram-complete", errp) || (!s->final_synced && !ram_save_sync(s, true, errp))) {
        return false;
    }
    s->last_stage = true;
    return send_all(s, w, errp) && s->sink->ops->complete(s->sink, w, errp) && put_eos(s, w, errp);
}
