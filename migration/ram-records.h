/* SPDX-License-Identifier: BSD-2-Clause */
/* Page records in the main stream: the word, with the block's name where it is needed. */
#ifndef GODWIT_MIGRATION_RAM_RECORDS_H
#define GODWIT_MIGRATION_RAM_RECORDS_H

#include "migration/ram-wire.h"
#include "migration/stream.h"

#include <string.h>

/* What CONTINUE refers to, on one channel. */
typedef struct RamRecords {
    const RAMBlock *last_block;
} RamRecords;

/* Writes @word (offset and type); returns the bytes that took. */
static inline size_t ram_records_put_word(RamRecords *r, StreamWriter *w, const RAMBlock *block,
                                          uint64_t word)
{
    if (G_LIKELY(block == r->last_block)) {
        stream_put_be64(w, word | RAM_FLAG_CONTINUE);
        return sizeof(word);
    }
    stream_put_be64(w, word);
    stream_put_counted_string(w, block->idstr);
    r->last_block = block;
    return sizeof(word) + 1 + strlen(block->idstr);
}

static inline size_t ram_records_put_zero(RamRecords *r, StreamWriter *w, const RAMBlock *block,
                                          uint64_t offset)
{
    size_t bytes = ram_records_put_word(r, w, block, offset | RAM_FLAG_ZERO);
    stream_put_u8(w, 0);
    return bytes + 1;
}

#endif
