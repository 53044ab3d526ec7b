/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA source: which memory has keys, at both ends, and asking for more ahead of need. */
#ifndef GODWIT_MIGRATION_RDMA_KEYS_H
#define GODWIT_MIGRATION_RDMA_KEYS_H

#include "migration/ram.h"
#include "migration/rdma/rdma-chunk.h"
#include "migration/rdma/rdma-connection.h"

/* Belongs to the migration thread; a thread of its own registers the source's memory. */
typedef struct RdmaKeys RdmaKeys;

/* All blocks of @save.  @c is told to hand its replies to the result. */
RdmaKeys *rdma_keys_new(RdmaConnection *c, RamSave *save, GError **errp);
void rdma_keys_free(RdmaKeys *k);

/*
 * In the set-up hook: asks for the destination's blocks and waits for them; with pin-all all is registered.
 */
bool rdma_keys_set_up(RdmaKeys *k, GError **errp);

/* The size of chunks, after set-up: smaller than what was asked for if the destination's are. */
unsigned rdma_keys_shift(const RdmaKeys *k);

/*
 * The scanner has come to @offset of @block.  In the first round (@fresh) asks for the keys of this slot and
 * the next, and has slots that are zero in part cleared as a whole before anything is written to them.
 */
bool rdma_keys_enter(RdmaKeys *k, const RAMBlock *block, uint64_t offset, bool fresh, GError **errp);

/*
 * A round after the first, @round: pages [first, first + count) of @block are being sent.  Asks for the keys
 * of chunks that have none, of these pages and of what is dirty behind them, many with one message: the guest
 * may be stopped already.
 */
bool rdma_keys_ahead(RdmaKeys *k, const RAMBlock *block, uint64_t first, uint64_t count, uint64_t round,
                     GError **errp);

/* The destination has been told to clear the slot, and nothing was sent of it before: zeroes need nothing. */
bool rdma_keys_cleared(const RdmaKeys *k, const RAMBlock *block, uint64_t offset);

/* The chunk has a key, or one has been asked for. */
bool rdma_keys_known(const RdmaKeys *k, const RAMBlock *block, uint64_t offset);

/* There is content to be sent at @offset: asks for keys if nobody has.  Does not wait. */
bool rdma_keys_want(RdmaKeys *k, const RAMBlock *block, uint64_t offset, GError **errp);

/* Keys for a write from @offset on, valid for *@length bytes (at most what it was); waits for them. */
bool rdma_keys_get(RdmaKeys *k, const RAMBlock *block, uint64_t offset, uint64_t *length, RdmaWrite *write,
                   GError **errp);

/* Queues a COMPRESS message: the destination is to make the range zero. */
bool rdma_keys_compress(RdmaKeys *k, const RAMBlock *block, uint64_t offset, uint64_t length, GError **errp);

/* COMPRESS messages of which it is not known that they have been obeyed. */
bool rdma_keys_compressing(const RdmaKeys *k);
/* All of them have been (the control channel has been flushed). */
void rdma_keys_compressed(RdmaKeys *k);

#endif
