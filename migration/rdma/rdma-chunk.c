/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: arithmetic of chunks and slots, and which spans to ask for. */
#include "migration/rdma/rdma-chunk.h"

#include "system/ramblock.h"

uint64_t rdma_write_length(uint64_t offset, uint64_t length, unsigned shift, uint64_t max_message)
{
    uint64_t n = MIN(length, rdma_chunk_end(offset, shift, UINT64_MAX) - offset);

    if (n > max_message) {
        n = max_message < TARGET_PAGE_SIZE ? max_message : max_message & ~((uint64_t)TARGET_PAGE_SIZE - 1);
    }
    return n;
}

/* Less than one chunk in this many is wanted: then one by one. */
#define SPARSE 8

static unsigned plan_exact(const RdmaSlotView *slot, RdmaSpan *spans, unsigned max)
{
    unsigned n = 0;

    /* The one that is needed must not fall victim to @max. */
    for (unsigned i = 0; i < slot->chunks && n < max; i++) {
        if (!slot->wanted[i] && i != slot->needed) {
            continue;
        }
        unsigned first = i;
        while (i < slot->chunks && (slot->wanted[i] || i == slot->needed)) {
            i++;
        }
        if (n + 1 == max && slot->needed < slot->chunks && first < slot->needed && i <= slot->needed) {
            first = slot->needed;
            i = first + 1;
        }
        spans[n++] = (RdmaSpan){ first, i - first };
    }
    return n;
}

static unsigned plan_rest(const RdmaSlotView *slot, RdmaSpan *spans)
{
    unsigned wanted = 0, first = slot->needed;

    for (unsigned i = slot->chunks; i-- > 0;) {
        if (slot->wanted[i]) {
            wanted++;
            first = MIN(first, i);
        }
    }
    if (slot->fresh && wanted && wanted >= (slot->chunks + SPARSE - 1) / SPARSE) {
        spans[0] = (RdmaSpan){ first, slot->chunks - first };
        return 1;
    }
    if (slot->needed == slot->chunks) {
        return 0;
    }
    spans[0] = slot->fine || slot->fresh ? (RdmaSpan){ slot->needed, 1 }
                                         : (RdmaSpan){ slot->needed, slot->chunks - slot->needed };
    return 1;
}

unsigned rdma_plan_spans(const RdmaSlotView *slot, RdmaSpan *spans, unsigned max)
{
    return slot->exact ? plan_exact(slot, spans, max) : plan_rest(slot, spans);
}

void rdma_frame(uint64_t *offset, uint64_t *length, unsigned shift, uint64_t block_length)
{
    uint64_t end = *offset + MAX(*length, 1);
    uint64_t first = *offset >> shift << shift;
    uint64_t last = ((end - 1) >> shift) + 1;

    *offset = first;
    *length = (last > UINT64_MAX >> shift ? block_length : MIN(last << shift, block_length)) - first;
}

unsigned rdma_shift_from_requests(uint64_t offset, uint64_t other)
{
    uint64_t differ = offset ^ other;
    return differ ? 63 - (unsigned)__builtin_clzll(differ) : 63;
}
