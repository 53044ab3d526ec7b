/* SPDX-License-Identifier: BSD-2-Clause */
/* The words of the ram section, as every sink and source of pages writes and reads them. */
#ifndef GODWIT_MIGRATION_RAM_WIRE_H
#define GODWIT_MIGRATION_RAM_WIRE_H

#include "system/ramblock.h"

#define RAM_SECTION_VERSION 4

/*
 * Every payload of the ram section is a sequence of records that begin with a word: 8 bytes, big-endian.
 * Its low TARGET_PAGE_BITS bits are flags, the rest is a byte offset inside a block, or a number of bytes.
 * Exactly one flag is set, and perhaps RAM_FLAG_CONTINUE.
 *
 *   record      word                  offset 8 ...
 *   MEM_SIZE    sum of used lengths   block entries, until their lengths add up to that sum
 *   ZERO        offset in the block   [name] u8 fill byte, always 0
 *   PAGE        offset in the block   [name] TARGET_PAGE_SIZE bytes
 *   XBZRLE      offset in the block   [name] u8 1, u16 length (big-endian), length bytes (xbzrle.h)
 *   EOS         -                     nothing: the payload ends
 *   HOOK        -                     nothing; RDMA leaves the byte stream here
 *   MULTIFD_FLUSH -                   nothing
 *
 * name: one length byte, then the block's idstr; absent with RAM_FLAG_CONTINUE, which means the block of the
 * page record before on the same channel, in whatever section.
 *
 * Block entry: counted name, u64 used length [, u64 page size] [, u64 guest physical address] [, what the
 * sink adds].
 */
enum {
    RAM_FLAG_ZERO          = 0x002,
    RAM_FLAG_MEM_SIZE      = 0x004,
    RAM_FLAG_PAGE          = 0x008,
    RAM_FLAG_EOS           = 0x010,
    RAM_FLAG_CONTINUE      = 0x020,
    RAM_FLAG_XBZRLE        = 0x040,
    RAM_FLAG_HOOK          = 0x080,
    RAM_FLAG_MULTIFD_FLUSH = 0x200,
};

#define RAM_FLAGS_MASK ((uint64_t)TARGET_PAGE_SIZE - 1)

#define RAM_XBZRLE_ENCODING 1

#endif
