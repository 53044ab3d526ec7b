/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA source: which memory has keys, at both ends, and asking for more ahead of need. */

/*
 * Remote spans.  A span is some chunks in a row for which the destination has given one key.  They are asked
 * for slot by slot: when the scanner enters a slot, the keys of the next one are asked for too, so that they
 * have come when they are needed.  rdma-chunk.h says which spans.
 *
 * Local spans.  The source's own memory is registered by a helper thread while the destination registers its
 * own; only chunks that look as if they had content, because registering makes pages.
 *
 * A slot that is zero in part, and of which nothing has been sent yet, is cleared by one COMPRESS message
 * before the request for its keys.  The answer to the request comes after the destination has obeyed, so
 * no write can overtake the clearing; and zero pages of that slot then cost nothing at all in this round.
 */
#include "migration/rdma/rdma-keys.h"

#include "migration/ram-holes.h"
#include "trace-migration.h"
#include "util/buffer-is-zero.h"
#include "util/error.h"

/* One page in so many bytes is looked at to guess whether a chunk has content. */
#define SAMPLE_BYTES (UINT64_C(64) << 10)

/* A slot is worth clearing as a whole if one page in so many is zero. */
#define CLEAR_SHARE 16

/* Spans in one request. */
#define SPANS_MAX 64

/* In later rounds so many of a chunk's pages are looked at: who has zeroed all of it need not wait for us. */
#define NEWS_PAGES 16

/* How far behind the scanner's position keys are asked for in later rounds. */
#define AHEAD_BYTES (UINT64_C(1) << 30)

typedef enum {
    SLOT_ASKED = 1 << 0,        /* keys for something of it have been asked for */
    SLOT_FINE = 1 << 1,         /* and for single chunks: see rdma-chunk.h */
    SLOT_CLEARED = 1 << 2,      /* all zero at the destination, but for what has been written since */
    SLOT_ENTERED = 1 << 3,      /* the scanner has been here */
} SlotFlag;

typedef struct RemoteSpan {
    uint64_t host;              /* of the block at the destination */
    uint32_t rkey;              /* 0: asked for */
    uint64_t end;               /* offset in the block of the first byte behind it */
} RemoteSpan;

typedef struct LocalSpan {
    const RAMBlock *block;
    uint64_t offset, end;
    struct ibv_mr *region;      /* valid once done */
    GError *error;
    int done;                   /* atomic: set by the helper thread as the last */
} LocalSpan;

typedef struct KeyBlock {
    const RAMBlock *block;
    uint32_t number;            /* in the order of the stream's list */
    RdmaRemoteBlock remote;
    RemoteSpan **remote_spans;  /* by chunk; not owned */
    LocalSpan **local_spans;    /* likewise */
    uint64_t chunks;
    uint8_t *slots;             /* SlotFlag */
    uint64_t n_slots;
    bool holes_known;
    uint64_t ahead;             /* chunks below this one have been looked at in @ahead_pass */
    uint64_t ahead_pass;        /* see rdma_keys_ahead(); 0: never */
} KeyBlock;

/* A run of pages that is being sent: they are not dirty any more. */
typedef struct KeyRun {
    uint64_t first, end;
} KeyRun;

/* One REGISTER_REQUEST that has not been answered. */
typedef struct KeyRequest {
    unsigned n;
    RemoteSpan *spans[SPANS_MAX];
} KeyRequest;

struct RdmaKeys {
    RdmaConnection *c;
    RamSave *save;
    unsigned shift, slot_shift;
    unsigned unit;              /* what the peer's chunks are at least, as a shift: requests count in it */
    bool unit_exact;            /* and are: no request of ours finds the answer to another one */
    bool exact;                 /* the peer is a Godwit with our chunk size */
    bool pin_all;
    KeyBlock *blocks;           /* by RAMBlock.index */
    unsigned n;
    bool blocks_known;
    GPtrArray *remote_spans;    /* owns */
    GPtrArray *local_spans;     /* owns */
    GQueue requests;            /* of KeyRequest */
    bool compressing;
    bool later;                 /* the first round is over: what is dirty counts, not what may have content */
    KeyRun run;                 /* then: what is being sent */

    GAsyncQueue *jobs;          /* of LocalSpan; an empty one ends the thread */
    GThread *thread;
    LocalSpan quit;
};

/* ---- the helper thread ---- */

static gpointer register_thread(gpointer opaque)
{
    RdmaKeys *k = opaque;
    LocalSpan *span;

    while ((span = g_async_queue_pop(k->jobs)) != &k->quit) {
        span->region = rdma_connection_register(k->c, span->block, span->offset, span->end - span->offset, 0,
                                                &span->error);
        g_atomic_int_set(&span->done, 1);
        rdma_connection_wake(k->c);
    }
    return NULL;
}

/* ---- life ---- */

static void local_span_free(void *opaque)
{
    LocalSpan *span = opaque;
    g_clear_error(&span->error);
    g_free(span);
}

static void init_block(RdmaKeys *k, KeyBlock *b, const RAMBlock *block)
{
    b->block = block;
    b->number = block->index;
    b->holes_known = ram_holes_known(block);
}

/* Once the size of chunks is certain. */
static void make_tables(RdmaKeys *k, unsigned shift)
{
    k->shift = shift;
    /*
     * What is asked for in one piece is one region at the destination.  A QEMU does not tell what its device
     * can register: it may be as ours.
     */
    unsigned told = k->c->private_data.region_shift;
    unsigned most = MIN(rdma_connection_region_shift(k->c), told ? told : RDMA_REGION_SHIFT_MAX);
    k->slot_shift = MAX(MIN(rdma_slot_shift(shift), most), shift);
    for (unsigned i = 0; i < k->n; i++) {
        KeyBlock *b = &k->blocks[i];
        b->chunks = rdma_chunk_count(b->block->used_length, k->shift);
        b->remote_spans = g_new0(RemoteSpan *, b->chunks);
        b->local_spans = g_new0(LocalSpan *, b->chunks);
        b->n_slots = rdma_chunk_count(b->block->used_length, k->slot_shift);
        b->slots = g_new0(uint8_t, b->n_slots);
    }
}

static bool handle_reply(const RdmaHeader *header, const void *payload, void *opaque, GError **errp);

RdmaKeys *rdma_keys_new(RdmaConnection *c, RamSave *save, GError **errp)
{
    RamList *ram = ram_save_list(save);

    if (ram->count > RDMA_BLOCKS_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "RDMA ERROR: %u RAM blocks are more than %u", ram->count, RDMA_BLOCKS_MAX);
        return NULL;
    }
    RdmaKeys *k = g_new0(RdmaKeys, 1);
    k->c = c;
    k->save = save;
    k->shift = c->private_data.chunk_shift;
    k->exact = c->private_data.godwit && c->private_data.batches;
    k->pin_all = c->private_data.pin_all;
    k->n = ram->count;
    k->blocks = g_new0(KeyBlock, k->n);
    k->remote_spans = g_ptr_array_new_with_free_func(g_free);
    k->local_spans = g_ptr_array_new_with_free_func(local_span_free);
    RAMLIST_FOREACH(block, ram) {
        init_block(k, &k->blocks[block->index], block);
    }
    c->on_reply = handle_reply;
    c->on_reply_opaque = k;
    k->jobs = g_async_queue_new();
    k->thread = g_thread_try_new("mig/rdma-reg", register_thread, k, errp);
    if (!k->thread) {
        rdma_keys_free(k);
        return NULL;
    }
    return k;
}

void rdma_keys_free(RdmaKeys *k)
{
    if (!k) {
        return;
    }
    if (k->thread) {
        /* In front of the others: what nobody waits for any more need not be registered. */
        g_async_queue_push_front(k->jobs, &k->quit);
        g_thread_join(k->thread);
    }
    g_async_queue_unref(k->jobs);
    k->c->on_reply = NULL;
    for (unsigned i = 0; i < k->n; i++) {
        g_free(k->blocks[i].remote_spans);
        g_free(k->blocks[i].local_spans);
        g_free(k->blocks[i].slots);
    }
    g_free(k->blocks);
    g_queue_clear_full(&k->requests, g_free);
    g_ptr_array_unref(k->remote_spans);
    g_ptr_array_unref(k->local_spans);
    g_free(k);
}

/* ---- replies ---- */

static bool take_block(RdmaKeys *k, KeyBlock *b, const RdmaRemoteBlock *remote, GError **errp)
{
    if (remote->length != b->block->used_length) {
        return error_set_protocol(errp,
                                  "Block %s has a different length 0x%" PRIx64 " at the destination, not 0x%"
                                  PRIx64,
                                  b->block->idstr, remote->length, b->block->used_length);
    }
    b->remote = *remote;
    if (k->pin_all && !remote->rkey) {
        return error_set_protocol(errp, "The destination has pinned all, but gives rkey 0 for block %s",
                                  b->block->idstr);
    }
    return true;
}

static bool take_blocks(RdmaKeys *k, const RdmaHeader *header, const void *payload, GError **errp)
{
    uint32_t n = header->length / sizeof(RdmaBlockWire);

    if (n != k->n) {
        return error_set_protocol(errp, "ram blocks mismatch (Number of blocks %u vs %u)", k->n, n);
    }
    for (unsigned i = 0; i < k->n; i++) {
        KeyBlock *b = &k->blocks[i];
        RdmaRemoteBlock remote = rdma_block_decode(payload, b->number);
        if (!take_block(k, b, &remote, errp)) {
            return false;
        }
    }
    k->blocks_known = true;
    return true;
}

static bool take_results(RdmaKeys *k, const RdmaHeader *header, const void *payload, GError **errp)
{
    g_autofree KeyRequest *request = g_queue_pop_head(&k->requests);
    uint32_t n = header->length / sizeof(RdmaResultWire);

    if (!request || n != request->n) {
        return error_set_protocol(errp, "REGISTER_RESULT has %u results, not %u", n,
                                  request ? request->n : 0);
    }
    for (unsigned i = 0; i < n; i++) {
        RdmaResult result = rdma_result_decode(payload, i);
        if (!result.rkey) {
            return error_set_protocol(errp, "REGISTER_RESULT has rkey 0");
        }
        request->spans[i]->host = result.host;
        request->spans[i]->rkey = result.rkey;
    }
    return true;
}

static bool handle_reply(const RdmaHeader *header, const void *payload, void *opaque, GError **errp)
{
    RdmaKeys *k = opaque;

    return header->type == RDMA_CONTROL_RAM_BLOCKS_RESULT ? take_blocks(k, header, payload, errp)
                                                          : take_results(k, header, payload, errp);
}

/* ---- local registration ---- */

static void register_local(RdmaKeys *k, KeyBlock *b, uint64_t first, uint64_t count)
{
    /* What one region may be, in whole chunks. */
    uint64_t most = MAX(k->c->limits.max_region >> k->shift, 1);

    for (uint64_t end = first + count; first < end; first += count) {
        count = MIN(end - first, most);
        LocalSpan *span = g_new0(LocalSpan, 1);
        span->block = b->block;
        span->offset = first << k->shift;
        span->end = MIN((first + count) << k->shift, b->block->used_length);
        for (uint64_t i = first; i < first + count; i++) {
            b->local_spans[i] = span;
        }
        g_ptr_array_add(k->local_spans, span);
        RDMA_COUNT(k->c, local_registrations, 1);
        g_async_queue_push(k->jobs, span);
    }
}

/* Each run of chunks of the slot that are in @chosen and have no region yet. */
static void register_runs(RdmaKeys *k, KeyBlock *b, uint64_t base, const bool *chosen, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned first = i;
        while (i < n && chosen[i] && !b->local_spans[base + i]) {
            i++;
        }
        if (i > first) {
            register_local(k, b, base + first, i - first);
        }
    }
}

/* ---- planning ---- */

/* *@seen counts the pages that were looked at, *@used those with content. */
static bool looks_used(const KeyBlock *b, uint64_t chunk, unsigned shift, unsigned *seen, unsigned *used)
{
    uint64_t offset = chunk << shift;
    uint64_t end = MIN(offset + (UINT64_C(1) << shift), b->block->used_length);
    uint64_t hole_end = 0;
    unsigned before = *used;

    for (; offset < end; offset += SAMPLE_BYTES) {
        ++*seen;
        if (offset < hole_end) {
            continue;
        }
        if (b->holes_known) {
            uint64_t page = offset >> TARGET_PAGE_BITS;
            hole_end = ram_hole_end(b->block, page) << TARGET_PAGE_BITS;
            if (hole_end > offset) {
                continue;
            }
        }
        *used += !buffer_is_zero(b->block->host + offset, TARGET_PAGE_SIZE);
    }
    /* What is behind a hole that ends inside of the chunk. */
    return *used > before || (b->holes_known && hole_end && hole_end < end);
}

/* A page of the chunk is to be sent, and not zero, as far as the first few of them tell. */
static bool has_news(const RdmaKeys *k, const KeyBlock *b, uint64_t chunk)
{
    const KeyRun *run = &k->run;
    unsigned pages = k->shift - TARGET_PAGE_BITS;
    uint64_t end = MIN((chunk + 1) << pages, ramblock_pages(b->block));
    unsigned looked = 0;

    for (uint64_t page = chunk << pages; page < end && looked++ < NEWS_PAGES; page++) {
        if (page < run->first || page >= run->end) {
            uint64_t until = page < run->first ? MIN(run->first, end) : end;
            page = ram_save_next_dirty(k->save, b->block, page, until);
        }
        if (page < end && !buffer_is_zero(b->block->host + (page << TARGET_PAGE_BITS), TARGET_PAGE_SIZE)) {
            return true;
        }
    }
    return false;
}

static bool send_request(RdmaKeys *k, KeyBlock *b, uint64_t base, const RdmaSpan *spans, unsigned n,
                         GError **errp)
{
    RdmaRegisterWire wire[SPANS_MAX];
    KeyRequest *request = g_new0(KeyRequest, 1);

    request->n = n;
    for (unsigned i = 0; i < n; i++) {
        uint64_t first = base + spans[i].first, count = spans[i].count;
        uint64_t offset = first << k->shift;
        RemoteSpan *span = g_new0(RemoteSpan, 1);
        span->end = MIN((first + count) << k->shift, b->block->used_length);
        for (uint64_t j = first; j < first + count; j++) {
            /* An older key is as good, and its span may be written to already. */
            b->remote_spans[j] = b->remote_spans[j] ? b->remote_spans[j] : span;
        }
        g_ptr_array_add(k->remote_spans, span);
        request->spans[i] = span;
        RdmaRegister r = { b->remote.offset + offset, b->number,
                           rdma_chunk_count(span->end - offset, k->unit) - 1 };
        rdma_register_encode(&wire[i], &r);
        trace_rdma_ask(b->block->idstr, offset, span->end - offset);
    }
    g_queue_push_tail(&k->requests, request);
    RDMA_COUNT(k->c, registered_spans, n);
    return rdma_connection_queue(k->c, RDMA_CONTROL_REGISTER_REQUEST, n, wire, n * sizeof(wire[0]), errp);
}

/* Asks for what is wanted of a slot.  @needed: the chunk that must be covered, or UINT64_MAX. */
static bool plan_slot(RdmaKeys *k, KeyBlock *b, uint64_t slot, uint64_t needed, bool fresh, GError **errp)
{
    unsigned per_slot = 1u << (k->slot_shift - k->shift);
    uint64_t base = slot * per_slot;
    unsigned n = (unsigned)MIN(per_slot, b->chunks - base), seen = 0, used = 0;
    g_autofree bool *wanted = g_new0(bool, n);
    g_autofree bool *chosen = g_new0(bool, n);
    RdmaSpan spans[SPANS_MAX];

    for (unsigned i = 0; i < n; i++) {
        chosen[i] = base + i == needed ||
                    (k->later ? has_news(k, b, base + i) : looks_used(b, base + i, k->shift, &seen, &used));
        wanted[i] = chosen[i] && !b->remote_spans[base + i];
    }
    RdmaSlotView view = {
        .wanted = wanted, .chunks = n, .needed = needed == UINT64_MAX ? n : (unsigned)(needed - base),
        .exact = k->exact, .fine = b->slots[slot] & SLOT_FINE, .fresh = !(b->slots[slot] & SLOT_ASKED),
    };
    bool untouched = fresh && !(b->slots[slot] & (SLOT_ENTERED | SLOT_ASKED));
    if (untouched && used && (seen - used) * CLEAR_SHARE >= seen) {
        uint64_t offset = slot << k->slot_shift;
        uint64_t length = MIN(UINT64_C(1) << k->slot_shift, b->block->used_length - offset);
        if (!rdma_keys_compress(k, b->block, offset, length, errp)) {
            return false;
        }
        b->slots[slot] |= SLOT_CLEARED;
    }
    unsigned n_spans = rdma_plan_spans(&view, spans, SPANS_MAX);
    if (!n_spans) {
        return true;
    }
    bool to_end = spans[0].first + spans[0].count == n;
    b->slots[slot] |= SLOT_ASKED | (!k->exact && !k->unit_exact && !to_end ? SLOT_FINE : 0);
    register_runs(k, b, base, chosen, n);
    return send_request(k, b, base, spans, n_spans, errp);
}

/* ---- what the sink asks ---- */

static KeyBlock *find(const RdmaKeys *k, const RAMBlock *block)
{
    return &k->blocks[block->index];
}

static bool prefetch(RdmaKeys *k, KeyBlock *b, uint64_t slot, GError **errp)
{
    if (slot >= b->n_slots) {
        if (b->block->index + 1 >= k->n) {
            return true;
        }
        b = &k->blocks[b->block->index + 1];
        slot = 0;
    }
    if (b->slots[slot] & (SLOT_ASKED | SLOT_ENTERED)) {
        return true;
    }
    return plan_slot(k, b, slot, UINT64_MAX, true, errp);
}

bool rdma_keys_enter(RdmaKeys *k, const RAMBlock *block, uint64_t offset, bool fresh, GError **errp)
{
    KeyBlock *b = find(k, block);
    uint64_t slot = offset >> k->slot_shift;

    if (k->pin_all || !fresh || (b->slots[slot] & SLOT_ENTERED)) {
        b->slots[slot] |= SLOT_ENTERED;
        return true;
    }
    bool ok = prefetch(k, b, slot, errp) && prefetch(k, b, slot + 1, errp);
    b->slots[slot] |= SLOT_ENTERED;
    return ok;
}

/* Runs of chunks in [start, *@end) that want keys; *@end: how far it was looked. */
static unsigned find_news(RdmaKeys *k, KeyBlock *b, uint64_t start, uint64_t *end, RdmaSpan *spans)
{
    unsigned n = 0, longest = 1u << (k->slot_shift - k->shift);
    uint64_t chunk = start;

    for (; chunk < *end; chunk++) {
        if (b->remote_spans[chunk] || !has_news(k, b, chunk)) {
            continue;
        }
        RdmaSpan *last = n ? &spans[n - 1] : NULL;
        if (last && start + last->first + last->count == chunk && last->count < longest) {
            last->count++;
        } else if (n < SPANS_MAX) {
            spans[n++] = (RdmaSpan){ (unsigned)(chunk - start), 1 };
        } else {
            break;
        }
    }
    *end = chunk;
    return n;
}

static void register_span(RdmaKeys *k, KeyBlock *b, uint64_t first, uint64_t count)
{
    for (uint64_t end = first + count; first < end; first++) {
        uint64_t n = 0;
        while (first + n < end && !b->local_spans[first + n]) {
            n++;
        }
        if (n) {
            register_local(k, b, first, n);
            first += n;
        }
    }
}

bool rdma_keys_ahead(RdmaKeys *k, const RAMBlock *block, uint64_t first, uint64_t count, uint64_t round,
                     GError **errp)
{
    /* When the guest is stopped there are new dirty pages, and the round goes on. */
    uint64_t pass = 2 * round + ram_save_last_stage(k->save);
    KeyBlock *b = find(k, block);
    unsigned pages = k->shift - TARGET_PAGE_BITS;
    uint64_t window = MAX(AHEAD_BYTES >> k->shift, 1);
    uint64_t last = (first + count - 1) >> pages;
    RdmaSpan spans[SPANS_MAX];

    k->later = true;
    k->run = (KeyRun){ first, first + count };
    /* Others are asked for single chunks, or all of a slot's rest, only when one is needed. */
    if (!k->exact) {
        return true;
    }
    uint64_t start = b->ahead_pass == pass ? MAX(b->ahead, first >> pages) : first >> pages;
    if (b->ahead_pass == pass && (start == b->chunks || last + window / 2 < start)) {
        return true;
    }
    uint64_t end = MIN(b->chunks, last + 1 + window);
    unsigned n = find_news(k, b, start, &end, spans);
    b->ahead_pass = pass;
    b->ahead = end;
    for (unsigned i = 0; i < n; i++) {
        register_span(k, b, start + spans[i].first, spans[i].count);
    }
    return !n || send_request(k, b, start, spans, n, errp);
}

bool rdma_keys_cleared(const RdmaKeys *k, const RAMBlock *block, uint64_t offset)
{
    return find(k, block)->slots[offset >> k->slot_shift] & SLOT_CLEARED;
}

bool rdma_keys_known(const RdmaKeys *k, const RAMBlock *block, uint64_t offset)
{
    return find(k, block)->remote_spans[offset >> k->shift] != NULL;
}

bool rdma_keys_want(RdmaKeys *k, const RAMBlock *block, uint64_t offset, GError **errp)
{
    KeyBlock *b = find(k, block);
    uint64_t chunk = offset >> k->shift;

    if (!b->remote_spans[chunk] &&
        !plan_slot(k, b, offset >> k->slot_shift, chunk, false, errp)) {
        return false;
    }
    if (!b->local_spans[chunk]) {
        register_local(k, b, chunk, 1);
    }
    return true;
}

/* What rdma_keys_get() waits for. */
typedef struct KeyWait {
    const RemoteSpan *remote;
    LocalSpan *local;
} KeyWait;

static bool keys_there(const RdmaConnection *c, const void *opaque)
{
    const KeyWait *wait = opaque;
    return wait->remote->rkey && g_atomic_int_get(&wait->local->done);
}

bool rdma_keys_get(RdmaKeys *k, const RAMBlock *block, uint64_t offset, uint64_t *length, RdmaWrite *write,
                   GError **errp)
{
    KeyBlock *b = find(k, block);
    uint64_t chunk = offset >> k->shift;

    if (G_UNLIKELY(!b->remote_spans[chunk] || !b->local_spans[chunk]) &&
        !rdma_keys_want(k, block, offset, errp)) {
        return false;
    }
    KeyWait wait = { b->remote_spans[chunk], b->local_spans[chunk] };
    if (G_UNLIKELY(!keys_there(k->c, &wait))) {
        /* The wire must not idle meanwhile. */
        RDMA_COUNT(k->c, control_waits, 1);
        if (!rdma_connection_ring(k->c, errp) ||
            !rdma_connection_wait(k->c, keys_there, &wait, RDMA_LIMIT_CONTROL, "keys of guest memory",
                                  errp)) {
            return false;
        }
    }
    if (wait.local->error) {
        g_propagate_error(errp, g_error_copy(wait.local->error));
        return false;
    }
    *length = MIN(*length, MIN(wait.remote->end, wait.local->end) - offset);
    write->remote = wait.remote->host + offset;
    write->rkey = wait.remote->rkey;
    write->lkey = wait.local->region->lkey;
    return true;
}

bool rdma_keys_compress(RdmaKeys *k, const RAMBlock *block, uint64_t offset, uint64_t length, GError **errp)
{
    KeyBlock *b = find(k, block);
    RdmaCompress c = { 0, b->number, b->remote.offset + offset, length };
    RdmaCompressWire wire;

    rdma_compress_encode(&wire, &c);
    trace_rdma_compress(block->idstr, offset, length);
    k->compressing = true;
    return rdma_connection_queue(k->c, RDMA_CONTROL_COMPRESS, 1, &wire, sizeof(wire), errp);
}

bool rdma_keys_compressing(const RdmaKeys *k)
{
    return k->compressing;
}

void rdma_keys_compressed(RdmaKeys *k)
{
    k->compressing = false;
}

/* ---- set-up ---- */

static bool probe_blocks(RdmaKeys *k, GError **errp)
{
    for (unsigned i = 0; i < k->n; i++) {
        if (!rdma_connection_probe(k->c, k->blocks[i].block, 0, errp)) {
            return false;
        }
    }
    return true;
}


static bool set_up_done(const RdmaConnection *c, const void *opaque)
{
    const RdmaKeys *k = opaque;

    if (!k->blocks_known) {
        return false;
    }
    for (guint i = 0; i < k->local_spans->len; i++) {
        LocalSpan *span = g_ptr_array_index(k->local_spans, i);
        if (!g_atomic_int_get(&span->done)) {
            return false;
        }
    }
    return true;
}

static bool check_local(const RdmaKeys *k, GError **errp)
{
    for (guint i = 0; i < k->local_spans->len; i++) {
        LocalSpan *span = g_ptr_array_index(k->local_spans, i);
        if (span->error) {
            g_propagate_error(errp, g_error_copy(span->error));
            return false;
        }
    }
    return true;
}

/* With pin-all each block has the one key that came with the list. */
static void use_block_keys(RdmaKeys *k)
{
    for (unsigned i = 0; i < k->n; i++) {
        KeyBlock *b = &k->blocks[i];
        RemoteSpan *span = g_new0(RemoteSpan, 1);
        *span = (RemoteSpan){ b->remote.host, b->remote.rkey, b->block->used_length };
        g_ptr_array_add(k->remote_spans, span);
        for (uint64_t j = 0; j < b->chunks; j++) {
            b->remote_spans[j] = span;
        }
    }
}

/*
 * ---- a peer of unknown chunk size ----
 *
 * It registers whole chunks of its own size, and answers with the key that it has when it is asked for one
 * that it knows.  So it gives the same key for the first byte of a block and for one half a chunk of ours on
 * if its chunks are at least as large as ours.  Then requests can count in our chunks.  If not, we take the
 * smallest that there are for this migration: to count in these is right for every peer, but makes one
 * with large chunks register far too much.  A third request tells whether the unit is the peer's own size:
 * then every span can be asked for.
 */

static RemoteSpan *ask_probe(RdmaKeys *k, uint64_t offset, GError **errp)
{
    KeyBlock *b = &k->blocks[0];
    KeyRequest *request = g_new0(KeyRequest, 1);
    RdmaRegisterWire wire;

    request->n = 1;
    request->spans[0] = g_new0(RemoteSpan, 1);
    g_ptr_array_add(k->remote_spans, request->spans[0]);
    g_queue_push_tail(&k->requests, request);
    rdma_register_encode(&wire, &(RdmaRegister){ b->remote.offset + offset, b->number, 0 });
    RDMA_COUNT(k->c, registered_spans, 1);
    RemoteSpan *span = request->spans[0];
    return rdma_connection_queue(k->c, RDMA_CONTROL_REGISTER_REQUEST, 1, &wire, sizeof(wire), errp) ? span
                                                                                                 : NULL;
}

static bool no_requests(const RdmaConnection *c, const void *opaque)
{
    const RdmaKeys *k = opaque;
    return g_queue_is_empty((GQueue *)&k->requests);
}

static bool wait_probes(RdmaKeys *k, GError **errp)
{
    return rdma_connection_wait(k->c, no_requests, k, RDMA_LIMIT_CONTROL, "keys of guest memory", errp);
}

/* What a probe has registered is a chunk, and its slot has had a request for less than its rest. */
static void keep_probe(RdmaKeys *k, RemoteSpan *span, uint64_t offset)
{
    KeyBlock *b = &k->blocks[0];
    uint64_t chunk = offset >> k->shift;

    span->end = MIN((chunk + 1) << k->shift, b->block->used_length);
    b->remote_spans[chunk] = span;
    b->slots[offset >> k->slot_shift] |= SLOT_ASKED | (k->unit_exact ? 0 : SLOT_FINE);
}

static bool probe_chunk_size(RdmaKeys *k, GError **errp)
{
    uint64_t half = UINT64_C(1) << (k->shift - 1);
    RemoteSpan *first = ask_probe(k, 0, errp);
    RemoteSpan *second = first ? ask_probe(k, half, errp) : NULL;

    if (!second || !wait_probes(k, errp)) {
        return false;
    }
    bool as_large = first->rkey == second->rkey;
    k->unit = as_large ? k->shift : RDMA_PEER_SHIFT_MIN;
    uint64_t next = UINT64_C(1) << k->unit;
    RemoteSpan *third = NULL;
    if (next != half && next < k->blocks[0].block->used_length) {
        third = ask_probe(k, next, errp);
        if (!third || !wait_probes(k, errp)) {
            return false;
        }
    }
    k->unit_exact = third ? third->rkey != first->rkey : next == half && !as_large;
    trace_rdma_peer_chunks(k->shift, as_large, k->unit_exact);
    make_tables(k, k->unit);
    keep_probe(k, first, 0);
    if (!as_large) {
        keep_probe(k, second, half);
    }
    if (third && k->unit_exact) {
        keep_probe(k, third, next);
    }
    return true;
}

bool rdma_keys_set_up(RdmaKeys *k, GError **errp)
{
    if (!probe_blocks(k, errp) ||
        !rdma_connection_queue(k->c, RDMA_CONTROL_RAM_BLOCKS_REQUEST, 1, NULL, 0, errp)) {
        return false;
    }
    if (k->pin_all) {
        /* The destination registers its own meanwhile. */
        make_tables(k, k->shift);
        for (unsigned i = 0; i < k->n; i++) {
            register_local(k, &k->blocks[i], 0, k->blocks[i].chunks);
        }
    }
    if (!rdma_connection_wait(k->c, set_up_done, k, RDMA_LIMIT_CONTROL, "the destination's RAM blocks",
                              errp) ||
        !check_local(k, errp)) {
        return false;
    }
    if (k->pin_all) {
        use_block_keys(k);
        return true;
    }
    if (!k->exact && k->shift > RDMA_PEER_SHIFT_MIN && k->n &&
        k->blocks[0].block->used_length > UINT64_C(1) << (k->shift - 1)) {
        return probe_chunk_size(k, errp);
    }
    make_tables(k, k->shift);
    k->unit = k->exact ? k->shift : RDMA_PEER_SHIFT_MIN;
    return true;
}

unsigned rdma_keys_shift(const RdmaKeys *k)
{
    return k->shift;
}
