/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA source: the RamSink: merges pages to writes, keeps many in flight, drains once a round. */

/*
 * Pages become a pending range, of content or of zeroes, which grows as long as pages follow each other, over
 * runs too.  Content is posted when it fills its chunk, when something else comes, at the end of an
 * iteration, and when it has waited long.  Nothing waits for a write to be completed but the end of a
 * round.
 *
 * Zeroes, without pin-all: in a slot that was cleared as a whole (rdma-keys.c) they need nothing.  In a chunk
 * without a key they become COMPRESS, as long as can be.  In a chunk with a key a write is cheaper
 * unless there are many of them.
 *
 * Why nothing is overtaken: docs/rdma.md.
 */
#include "migration/ram-holes.h"
#include "migration/ram-wire.h"
#include "migration/rdma/rdma-channel.h"
#include "migration/rdma/rdma-keys.h"
#include "trace-migration.h"
#include "util/buffer-is-zero.h"
#include "util/error.h"
#include "util/fault.h"

/* Zeroes in the middle of content are written with it up to this many bytes. */
#define ZERO_ABSORB (UINT64_C(64) << 10)

/* Memory that has keys: from so many bytes of zeroes on a message is cheaper than a write. */
#define ZERO_MESSAGE (UINT64_C(1) << 20)

/* The longest COMPRESS. */
#define ZERO_MAX (UINT64_C(1) << 30)

/* Content that has not filled its chunk for so long is posted, if it is worth it. */
#define PENDING_US 2000
#define PENDING_BYTES (UINT64_C(1) << 20)

/* Messages that may wait at the end of an iteration: about one iteration's. */
#define QUEUE_MAX 4

/* So many of the largest writes may be in flight, so that few of them need a signal. */
#define WRITES_IN_FLIGHT 32

typedef struct RdmaSink {
    RamSink base;
    RamSave *save;
    RamStats *stats;
    Channel *channel;
    RdmaConnection *c;
    RdmaKeys *keys;
    bool pin_all;
    unsigned shift;
    uint64_t max_write;
    bool *holes_known;              /* by block index */
    bool in_hook;
    RamRoundNotifier round_end;

    const RAMBlock *block;          /* of the pending range; NULL: there is none */
    uint64_t start, end;
    bool zero;
    int64_t posted_us;              /* when something was posted last */

    uint64_t posted;                /* bytes of writes */
    uint64_t charged;               /* of these, told to the scanner */
} RdmaSink;

/* ---- the hook ---- */

/* From the marker to REGISTER_FINISHED the stream is silent. */
static bool open_hook(RdmaSink *s, StreamWriter *w, GError **errp)
{
    if (s->in_hook) {
        return true;
    }
    stream_put_be64(w, RAM_FLAG_HOOK);
    if (!stream_flush(w, errp)) {
        return false;
    }
    s->in_hook = true;
    rdma_channel_set_hook(s->channel, true);
    return true;
}

static bool close_hook(RdmaSink *s, GError **errp)
{
    if (!rdma_connection_ring(s->c, errp) ||
        !rdma_connection_queue(s->c, RDMA_CONTROL_REGISTER_FINISHED, 1, NULL, 0, errp)) {
        return false;
    }
    s->in_hook = false;
    rdma_channel_set_hook(s->channel, false);
    return true;
}

/* ---- posting ---- */

static bool post_write(RdmaSink *s, uint64_t offset, uint64_t length, uint64_t *done, GError **errp)
{
    RdmaWrite write = { .block = s->block, .offset = offset };
    uint64_t n = rdma_write_length(offset, length, s->shift, s->max_write);

    if (!rdma_keys_get(s->keys, s->block, offset, &n, &write, errp)) {
        return false;
    }
    write.length = (uint32_t)n;
    if (!rdma_connection_write(s->c, &write, errp)) {
        return false;
    }
    s->posted += n;
    ram_stats_add(&s->stats->transferred, n);
    ram_stats_add(&s->stats->normal_pages, n >> TARGET_PAGE_BITS);
    *done = n;
    return true;
}

static bool post_zero(RdmaSink *s, GError **errp)
{
    uint64_t length = s->end - s->start;

    if (!rdma_keys_compress(s->keys, s->block, s->start, length, errp)) {
        return false;
    }
    ram_stats_add(&s->stats->zero_pages, length >> TARGET_PAGE_BITS);
    s->start = s->end;
    return true;
}

/* Zeroes that would cost more as a message. */
static bool is_cheap(const RdmaSink *s)
{
    return s->end - s->start < ZERO_ABSORB && rdma_keys_known(s->keys, s->block, s->start) &&
           rdma_keys_known(s->keys, s->block, s->end - 1);
}

/* Posts the pending range, or with @full only as much of it as cannot grow any more. */
static bool post_pending(RdmaSink *s, bool full, GError **errp)
{
    uint64_t done;

    while (s->block && s->start < s->end) {
        if (s->zero && !is_cheap(s)) {
            if (full && s->end - s->start < ZERO_MAX) {
                return true;
            }
            if (!post_zero(s, errp)) {
                return false;
            }
            continue;
        }
        uint64_t n = rdma_write_length(s->start, s->end - s->start, s->shift, s->max_write);
        bool complete = s->start + n == rdma_chunk_end(s->start, s->shift, s->block->used_length) ||
                        s->start + n < s->end;
        if (full && (s->zero || !complete)) {
            return true;
        }
        if (!post_write(s, s->start, n, &done, errp)) {
            return false;
        }
        s->start += done;
        s->posted_us = 0;
    }
    s->block = NULL;
    return true;
}

/* Adds a range to what is pending; whatever does not go with it is posted before. */
static bool add_range(RdmaSink *s, const RAMBlock *block, uint64_t offset, uint64_t length, bool zero,
                      GError **errp)
{
    bool follows = s->block == block && s->end == offset;

    if (follows && s->zero && !zero && s->end - s->start < ZERO_ABSORB &&
        rdma_chunk_index(s->start, s->shift) == rdma_chunk_index(offset, s->shift)) {
        s->zero = false;    /* few zeroes before content: one write */
    }
    if (!follows || s->zero != zero) {
        if (!post_pending(s, false, errp)) {
            return false;
        }
        s->block = block;
        s->start = offset;
        s->zero = zero;
    }
    s->end = offset + length;
    return post_pending(s, true, errp);
}

/* ---- pages ---- */

/*
 * How many pages from @page on, below @end, are zero; or, with *@zero false, are not.  @ask: the file
 * behind the block knows which pages do not exist yet.
 */
static uint64_t same_kind(const RAMBlock *block, uint64_t page, uint64_t end, bool ask, bool *zero)
{
    uint64_t hole_end = ask ? ram_hole_end(block, page) : 0;
    uint64_t p = page;

    *zero = p < hole_end || buffer_is_zero(block->host + (p << TARGET_PAGE_BITS), TARGET_PAGE_SIZE);
    for (p = MAX(p + 1, MIN(hole_end, end)); p < end; p++) {
        if (*zero && ask && p >= hole_end) {
            hole_end = ram_hole_end(block, p);
        }
        if (p < hole_end) {
            p = MIN(hole_end, end) - 1;
            continue;
        }
        if (buffer_is_zero(block->host + (p << TARGET_PAGE_BITS), TARGET_PAGE_SIZE) != *zero) {
            break;
        }
    }
    return p - page;
}

/* Zeroes within one chunk. */
static bool send_zero(RdmaSink *s, const RAMBlock *block, uint64_t offset, uint64_t length, bool fresh,
                      GError **errp)
{
    bool follows = s->block == block && s->end == offset && !s->zero;

    if (length < ZERO_ABSORB && follows) {
        return add_range(s, block, offset, length, false, errp);
    }
    if (fresh && rdma_keys_cleared(s->keys, block, offset)) {
        ram_stats_add(&s->stats->zero_pages, length >> TARGET_PAGE_BITS);
        return true;
    }
    bool message = !rdma_keys_known(s->keys, block, offset) ||
                   (length >= ZERO_MESSAGE && rdma_control_queued(&s->c->control) < QUEUE_MAX);
    return add_range(s, block, offset, length, message, errp);
}

/* Pages of one chunk. */
static bool send_chunk(RdmaSink *s, const RAMBlock *block, uint64_t first, uint64_t end, bool fresh,
                       GError **errp)
{
    bool zero, ask = fresh && s->holes_known[block->index];

    while (first < end) {
        uint64_t count = same_kind(block, first, end, ask, &zero);
        uint64_t offset = first << TARGET_PAGE_BITS, length = count << TARGET_PAGE_BITS;
        bool ok = zero ? send_zero(s, block, offset, length, fresh, errp)
                       : rdma_keys_want(s->keys, block, offset, errp) &&
                         add_range(s, block, offset, length, false, errp);
        if (!ok) {
            return false;
        }
        first += count;
    }
    return true;
}

static bool send_pages(RdmaSink *s, const RAMBlock *block, uint64_t first, uint64_t count, GError **errp)
{
    uint64_t round = ram_stats_get(&s->stats->rounds);
    bool fresh = !round;

    if (!fresh && !rdma_keys_ahead(s->keys, block, first, count, round, errp)) {
        return false;
    }
    while (count) {
        uint64_t offset = first << TARGET_PAGE_BITS;
        uint64_t chunk_end = rdma_chunk_end(offset, s->shift, block->used_length) >> TARGET_PAGE_BITS;
        uint64_t n = MIN(count, chunk_end - first);

        if (!rdma_keys_enter(s->keys, block, offset, fresh, errp) ||
            !send_chunk(s, block, first, first + n, fresh, errp)) {
            return false;
        }
        first += n;
        count -= n;
    }
    return true;
}

/* ---- operations ---- */

/* Bytes posted outside of send_run belong to the same counters as those that the scanner adds. */
static void charge(RdmaSink *s)
{
    ram_stats_add(ram_save_last_stage(s->save) ? &s->stats->downtime_bytes : &s->stats->precopy_bytes,
                  s->posted - s->charged);
    s->charged = s->posted;
}

static bool round_ended(Notifier *notifier, void *data, GError **errp)
{
    RdmaSink *s = (RdmaSink *)((char *)notifier - offsetof(RdmaSink, round_end));
    const RamRound *round = data;

    trace_rdma_round(round->number, s->c->writes_in_flight, s->c->bytes_in_flight);
    RDMA_COUNT(s->c, drains, 1);
    if (fault_point("rdma-round", errp) || !post_pending(s, false, errp) ||
        !rdma_connection_drain(s->c, errp)) {
        return false;
    }
    charge(s);
    if (rdma_keys_compressing(s->keys)) {
        /* The next round may write where the destination is still clearing. */
        if (!rdma_connection_obeyed(s->c, errp)) {
            return false;
        }
        rdma_keys_compressed(s->keys);
    }
    return true;
}

static bool sink_setup_block(RamSink *sink, StreamWriter *w, RAMBlock *block, GError **errp)
{
    RdmaSink *s = (RdmaSink *)sink;

    s->holes_known = g_renew(bool, s->holes_known, block->index + 1);
    s->holes_known[block->index] = ram_holes_known(block);
    return true;
}

static bool sink_setup(RamSink *sink, StreamWriter *w, GError **errp)
{
    RdmaSink *s = (RdmaSink *)sink;

    if (fault_point("rdma-setup", errp) || !open_hook(s, w, errp) || !rdma_keys_set_up(s->keys, errp) ||
        !close_hook(s, errp)) {
        return false;
    }
    s->shift = rdma_keys_shift(s->keys);
    s->max_write = MIN(UINT64_C(1) << s->shift, s->c->limits.max_message);
    s->c->max_bytes = MAX(s->c->max_bytes, WRITES_IN_FLIGHT * s->max_write);
    ram_round_add_notifier(s->save, &s->round_end);
    return true;
}

/* What has waited long enough goes, so that the wire does not run dry while a large chunk is gathered. */
static bool post_old(RdmaSink *s, GError **errp)
{
    int64_t now = g_get_monotonic_time();

    if (!s->posted_us) {
        s->posted_us = now;
    }
    if (s->block && !s->zero && s->end - s->start >= PENDING_BYTES && now - s->posted_us > PENDING_US) {
        return post_pending(s, false, errp) && rdma_connection_ring(s->c, errp);
    }
    return true;
}

static bool sink_send_run(RamSink *sink, StreamWriter *w, RAMBlock *block, uint64_t first, uint64_t count,
                          uint64_t *bytes, GError **errp)
{
    RdmaSink *s = (RdmaSink *)sink;
    uint64_t offset = first << TARGET_PAGE_BITS, length = count << TARGET_PAGE_BITS;

    if (!open_hook(s, w, errp) || !rdma_connection_progress(s->c, errp)) {
        return false;
    }
    if (!(s->pin_all ? add_range(s, block, offset, length, false, errp)
                     : send_pages(s, block, first, count, errp)) ||
        !post_old(s, errp)) {
        return false;
    }
    *bytes = s->posted - s->charged;
    s->charged = s->posted;
    return true;
}

static bool sink_flush(RamSink *sink, StreamWriter *w, GError **errp)
{
    RdmaSink *s = (RdmaSink *)sink;

    if (!open_hook(s, w, errp) || !post_pending(s, false, errp) || !close_hook(s, errp)) {
        return false;
    }
    charge(s);
    return rdma_connection_flush(s->c, QUEUE_MAX, errp);
}

/* The last round has ended, and with it every write. */
static bool sink_complete(RamSink *sink, StreamWriter *w, GError **errp)
{
    RdmaSink *s = (RdmaSink *)sink;
    return open_hook(s, w, errp) && close_hook(s, errp);
}

static bool sink_settle(RamSink *sink, GError **errp)
{
    RdmaSink *s = (RdmaSink *)sink;

    return rdma_connection_drain(s->c, errp) && rdma_connection_flush(s->c, 0, errp);
}

static void sink_cleanup(RamSink *sink)
{
    RdmaSink *s = (RdmaSink *)sink;

    ram_round_remove_notifier(s->save, &s->round_end);
    rdma_keys_free(s->keys);
    channel_unref(s->channel);
    g_free(s->holes_known);
    g_free(s);
}

static const RamSinkOps rdma_sink_ops = {
    .name = "rdma",
    .iteration_bytes = UINT64_C(128) << 20,
    .setup_block = sink_setup_block,
    .setup = sink_setup,
    .send_run = sink_send_run,
    .flush = sink_flush,
    .complete = sink_complete,
    .settle = sink_settle,
    .cleanup = sink_cleanup,
};

RamSink *rdma_sink_new(RamSave *save, Channel *channel, GError **errp)
{
    RdmaSink *s = g_new0(RdmaSink, 1);

    s->base.ops = &rdma_sink_ops;
    s->save = save;
    s->stats = ram_save_stats(save);
    s->channel = channel_ref(channel);
    s->c = rdma_channel_main(channel);
    s->pin_all = s->c->private_data.pin_all;
    s->round_end.notify = round_ended;
    s->keys = rdma_keys_new(s->c, save, errp);
    if (!s->keys) {
        sink_cleanup(&s->base);
        return NULL;
    }
    return &s->base;
}
