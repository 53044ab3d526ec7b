/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages in the main stream: PAGE, ZERO and XBZRLE records. */

/*
 * Without XBZRLE a page is tested for zero and pointed at: nothing is copied. The guest may write to it
 * until the kernel has read it; such a write is logged, and the page will be sent again.
 *
 * With XBZRLE, from the end of the first round on, a page is copied once, and that copy is what is
 * compared, sent and kept: the cache must hold exactly what the peer got.
 */
#include <string.h>

#include "migration/ram-holes.h"
#include "migration/ram-records.h"
#include "migration/ram.h"
#include "migration/xbzrle.h"
#include "util/buffer-is-zero.h"

/* How far ahead of the zero test memory is prefetched. */
#define PREFETCH (4 * TARGET_PAGE_SIZE)

/* Bytes of an XBZRLE record before the encoded data: encoding, length. */
#define XBZRLE_HEADER 3

typedef struct SinkBlock {
    uint64_t base_page;             /* pages in all blocks before */
    bool holes_known;
} SinkBlock;

typedef struct StreamSink {
    RamSink base;
    RamSave *save;
    RamStats *stats;
    RamRecords records;
    bool detect_zero;
    bool wants_xbzrle;              /* the capability */
    XbzrleCache *cache;             /* NULL until the first round has ended */
    GArray *blocks;                 /* of SinkBlock, by block index */
    uint64_t total_pages;
    RamRoundNotifier round_end;
    uint8_t page[TARGET_PAGE_SIZE];
    uint8_t encoded[XBZRLE_MAX_ENCODED];
} StreamSink;

/* One run on its way into the stream, what it has cost and held. */
typedef struct Sending {
    StreamSink *s;
    StreamWriter *w;
    const RAMBlock *block;
    uint64_t bytes;
    uint64_t normal;
    uint64_t zero;
} Sending;

static void put_word(Sending *n, uint64_t word)
{
    n->bytes += ram_records_put_word(&n->s->records, n->w, n->block, word);
}

static void put_zero(Sending *n, uint64_t offset)
{
    n->bytes += ram_records_put_zero(&n->s->records, n->w, n->block, offset);
    n->zero++;
}

static void put_page_word(Sending *n, uint64_t offset)
{
    put_word(n, offset | RAM_FLAG_PAGE);
    n->bytes += TARGET_PAGE_SIZE;
    n->normal++;
}

static SinkBlock *sink_block(const Sending *n)
{
    return &g_array_index(n->s->blocks, SinkBlock, n->block->index);
}

static void put_page(Sending *n, uint64_t index)
{
    uint64_t offset = index << TARGET_PAGE_BITS;
    const uint8_t *page = n->block->host + offset;

    /* Where the zero test of a page that comes soon will look first. */
    __builtin_prefetch(page + PREFETCH);
    __builtin_prefetch(page + PREFETCH + TARGET_PAGE_SIZE / 2);
    __builtin_prefetch(page + PREFETCH + TARGET_PAGE_SIZE - 1);
    if (n->s->detect_zero && buffer_is_zero(page, TARGET_PAGE_SIZE)) {
        put_zero(n, offset);
    } else {
        put_page_word(n, offset);
        stream_put_nocopy(n->w, page, TARGET_PAGE_SIZE);
    }
}

/*
 * In the first round, pages that nobody has written to are known from the file behind the block, without
 * making them by reading.  The log has been cleared for the run: a write after the question is logged.  It is
 * asked where holes are likely, at the start of a run and after a zero page; less often if there are none.
 */
static void put_run_with_holes(Sending *n, uint64_t first, uint64_t end)
{
    uint64_t patience = 1, ask_at = 0;      /* asks when n->zero has come to this */
    bool likely = true;

    while (first < end) {
        bool ask = likely && n->zero >= ask_at;
        uint64_t hole_end = ask ? ram_hole_end(n->block, first) : first;
        if (ask) {
            ask_at = n->zero + patience;
            patience = hole_end > first ? 1 : MIN(2 * patience, RAM_HOLES_PATIENCE);
        }
        for (; first < MIN(hole_end, end); first++) {
            put_zero(n, first << TARGET_PAGE_BITS);
        }
        if (first < end) {
            uint64_t zero_pages = n->zero;
            put_page(n, first++);
            likely = n->zero > zero_pages;
        }
    }
}

static void put_plain_run(Sending *n, uint64_t first, uint64_t count)
{
    bool first_round = !ram_stats_get(&n->s->stats->rounds);

    if (n->s->detect_zero && first_round && sink_block(n)->holes_known) {
        put_run_with_holes(n, first, first + count);
        return;
    }
    for (uint64_t i = first; i < first + count; i++) {
        put_page(n, i);
    }
}

/* ---- XBZRLE ---- */

/* A number for each page of the guest, for the cache: its position in the block list. */
static uint64_t page_number(const Sending *n, uint64_t offset)
{
    return sink_block(n)->base_page + (offset >> TARGET_PAGE_BITS);
}

/* Sends s->page as it is.  Copied, for the buffer is used again before the stream is flushed. */
static void put_copied_page(Sending *n, uint64_t offset)
{
    put_page_word(n, offset);
    stream_put(n->w, n->s->page, TARGET_PAGE_SIZE);
}

static void put_encoded(Sending *n, uint64_t offset, size_t len)
{
    put_word(n, offset | RAM_FLAG_XBZRLE);
    stream_put_u8(n->w, RAM_XBZRLE_ENCODING);
    stream_put_be16(n->w, len);
    stream_put(n->w, n->s->encoded, len);
    n->bytes += XBZRLE_HEADER + len;
    ram_stats_add(&n->s->stats->xbzrle_bytes, XBZRLE_HEADER + len);
}

static void put_cached_page(Sending *n, uint64_t offset, uint8_t *cached)
{
    StreamSink *s = n->s;
    int len = xbzrle_encode(cached, s->page, s->encoded);

    ram_stats_add(&s->stats->xbzrle_pages, 1);
    if (len == 0) {
        return;
    }
    if (len == XBZRLE_OVERFLOW) {
        ram_stats_add(&s->stats->xbzrle_overflow, 1);
        ram_stats_add(&s->stats->xbzrle_bytes, TARGET_PAGE_SIZE);
        put_copied_page(n, offset);
    } else {
        put_encoded(n, offset, len);
    }
    if (!ram_save_last_stage(s->save)) {
        memcpy(cached, s->page, TARGET_PAGE_SIZE);
    }
}

static void put_xbzrle_page(Sending *n, uint64_t offset)
{
    StreamSink *s = n->s;
    bool last = ram_save_last_stage(s->save);
    uint64_t generation = ram_stats_get(&s->stats->dirty_sync_count);
    uint64_t number = page_number(n, offset);

    memcpy(s->page, n->block->host + offset, TARGET_PAGE_SIZE);
    if (s->detect_zero && buffer_is_zero(s->page, TARGET_PAGE_SIZE)) {
        put_zero(n, offset);
        if (!last) {
            xbzrle_cache_insert(s->cache, number, s->page, generation);
        }
        return;
    }
    uint8_t *cached = xbzrle_cache_lookup(s->cache, number, generation);
    if (cached) {
        put_cached_page(n, offset, cached);
        return;
    }
    ram_stats_add(&s->stats->xbzrle_cache_miss, 1);
    if (!last) {
        xbzrle_cache_insert(s->cache, number, s->page, generation);
    }
    put_copied_page(n, offset);
}

static bool put_xbzrle_run(Sending *n, uint64_t first, uint64_t count, GError **errp)
{
    if (!xbzrle_cache_resize(n->s->cache, ram_save_xbzrle_cache_size(n->s->save), errp)) {
        return false;
    }
    for (uint64_t i = first; i < first + count; i++) {
        put_xbzrle_page(n, i << TARGET_PAGE_BITS);
    }
    return true;
}

/* The first round has sent every page; from now on there is something to compare with. */
static bool stream_round_end(Notifier *notifier, void *data, GError **errp)
{
    StreamSink *s = (StreamSink *)((char *)notifier - G_STRUCT_OFFSET(StreamSink, round_end));

    s->cache = xbzrle_cache_new(ram_save_xbzrle_cache_size(s->save), errp);
    if (!s->cache) {
        return false;
    }
    ram_round_remove_notifier(s->save, &s->round_end);
    return true;
}

/* ---- the sink ---- */

static bool stream_setup_block(RamSink *sink, StreamWriter *w, RAMBlock *block, GError **errp)
{
    StreamSink *s = (StreamSink *)sink;

    SinkBlock b = { .base_page = s->total_pages, .holes_known = ram_holes_known(block) };

    g_assert(s->blocks->len == block->index);
    g_array_append_val(s->blocks, b);
    s->total_pages += ramblock_pages(block);
    return true;
}

static bool stream_setup(RamSink *sink, StreamWriter *w, GError **errp)
{
    StreamSink *s = (StreamSink *)sink;

    if (s->wants_xbzrle) {
        ram_round_add_notifier(s->save, &s->round_end);
    }
    return true;
}

static bool stream_send_run(RamSink *sink, StreamWriter *w, RAMBlock *block, uint64_t first, uint64_t count,
                            uint64_t *bytes, GError **errp)
{
    StreamSink *s = (StreamSink *)sink;
    Sending n = { .s = s, .w = w, .block = block };

    if (!s->cache) {
        put_plain_run(&n, first, count);
    } else if (!put_xbzrle_run(&n, first, count, errp)) {
        return false;
    }
    *bytes = n.bytes;
    ram_stats_add(&s->stats->normal_pages, n.normal);
    ram_stats_add(&s->stats->zero_pages, n.zero);
    return stream_writer_check(w, errp);
}

/* The section's owner flushes the stream after the footer. */
static bool stream_sink_flush(RamSink *sink, StreamWriter *w, GError **errp)
{
    return true;
}

static bool stream_complete(RamSink *sink, StreamWriter *w, GError **errp)
{
    return true;
}

static void stream_cleanup(RamSink *sink)
{
    StreamSink *s = (StreamSink *)sink;

    ram_round_remove_notifier(s->save, &s->round_end);
    xbzrle_cache_free(s->cache);
    g_array_unref(s->blocks);
    g_free(s);
}

/* The stream keeps nothing back. */
static bool stream_settle(RamSink *sink, GError **errp)
{
    return true;
}

static const RamSinkOps stream_sink_ops = {
    .name = "stream",
    .setup_block = stream_setup_block,
    .setup = stream_setup,
    .send_run = stream_send_run,
    .flush = stream_sink_flush,
    .complete = stream_complete,
    .settle = stream_settle,
    .cleanup = stream_cleanup,
};

RamSink *ram_sink_stream_new(struct RamSave *save)
{
    const MigrationOptions *options = ram_save_options(save);
    StreamSink *s = g_new0(StreamSink, 1);

    s->base.ops = &stream_sink_ops;
    s->save = save;
    s->stats = ram_save_stats(save);
    s->detect_zero = options->p.zero_page_detection != ZERO_PAGE_DETECTION_NONE;
    s->wants_xbzrle = options->caps[MIGRATION_CAPABILITY_XBZRLE];
    s->blocks = g_array_new(FALSE, FALSE, sizeof(SinkBlock));
    s->round_end.notify = stream_round_end;
    return &s->base;
}
