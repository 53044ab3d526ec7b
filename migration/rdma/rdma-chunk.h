/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: arithmetic of chunks and slots, and which spans to ask for.  Pure functions. */
#ifndef GODWIT_MIGRATION_RDMA_CHUNK_H
#define GODWIT_MIGRATION_RDMA_CHUNK_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A block is divided into chunks of 2^shift bytes, counted from its start; the last one may be shorter.  A
 * slot is the unit of registration ahead of need: some chunks in a row, aligned, at least RDMA_SLOT_MIN
 * bytes.
 */
#define RDMA_SLOT_MIN (UINT64_C(64) << 20)

/*
 * Chunks of the smallest size that a peer can have; what requests to a peer of unknown size are counted in.
 */
#define RDMA_PEER_SHIFT_MIN 20

static inline uint64_t rdma_chunk_index(uint64_t offset, unsigned shift)
{
    return offset >> shift;
}

static inline uint64_t rdma_chunk_count(uint64_t length, unsigned shift)
{
    return length >> shift << shift == length ? length >> shift : (length >> shift) + 1;
}

/* The end of the chunk that @offset lies in, at most @length. */
static inline uint64_t rdma_chunk_end(uint64_t offset, unsigned shift, uint64_t length)
{
    return MIN(((offset >> shift) + 1) << shift, length);
}

/* log2 of the slot's size. */
static inline unsigned rdma_slot_shift(unsigned chunk_shift)
{
    return MAX(chunk_shift, 26);
}

/*
 * How long the next write may be: from @offset, at most @length bytes, not beyond the chunk, and at most
 * @max_message, what the port takes in one message (rounded down to pages unless it is smaller than one).
 */
uint64_t rdma_write_length(uint64_t offset, uint64_t length, unsigned shift, uint64_t max_message);

/* What is known of one slot when keys for a part of it are needed. */
typedef struct RdmaSlotView {
    const bool *wanted;     /* for each chunk: it looks as if it had content, and it has no key yet */
    unsigned chunks;        /* of the slot; the last one of a block may have fewer */
    unsigned needed;        /* the chunk that must be covered; @chunks: none, this is ahead of need */
    bool exact;             /* the peer registers exactly what it is asked for */
    bool fine;              /* a span shorter than the rest of the slot has been asked for before */
    bool fresh;             /* nothing of the slot has a key, and nothing was asked for */
} RdmaSlotView;

/* Chunks [first, first + count) of the slot. */
typedef struct RdmaSpan {
    unsigned first, count;
} RdmaSpan;

/*
 * Which spans to ask for with one message, at most @max; returns their number, at least 1 if a chunk is
 * needed.
 *
 * An exact peer gets one span for each run of wanted chunks.  For a peer of unknown chunk size (it answers a
 * request whose first chunk, in its size, it knows already with the registration that it has, however short)
 * either the whole rest of the slot is asked for, or, when little of it is wanted, the one chunk that is
 * needed, and from then on only single chunks.  docs/rdma.md has the proof that each answer then covers
 * what was asked for.
 */
unsigned rdma_plan_spans(const RdmaSlotView *slot, RdmaSpan *spans, unsigned max);

/*
 * Destination: what to register for a source of unknown chunk size that asks for [offset, offset + length) of
 * a block: a range of 2^shift bytes, aligned, cut at the end of the block, or more if more was asked for.
 */
void rdma_frame(uint64_t *offset, uint64_t *length, unsigned shift, uint64_t block_length);

/*
 * Two chunks that a source has asked for one by one are not the same chunk to it: the largest shift that its
 * chunks can have.
 */
unsigned rdma_shift_from_requests(uint64_t offset, uint64_t other);

#endif
