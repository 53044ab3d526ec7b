/* SPDX-License-Identifier: BSD-2-Clause */
/* A saved guest in a file: the structures of mapped-ram, read and checked without a guest. */
#ifndef GODWIT_MIGRATION_MAPPED_RAM_IMAGE_H
#define GODWIT_MIGRATION_MAPPED_RAM_IMAGE_H

#include "io/channel.h"
#include "system/ramblock.h"
#include "util/be.h"

/*
 * Everything here reads with positioned reads from a seekable Channel and checks what it reads; guest memory
 * is never touched.  Messages name the field and its offset in the file.  The error's code says what kind of
 * bad it is:
 *
 *   GODWIT_ERROR_PROTOCOL       a field is wrong
 *   GODWIT_ERROR_EOF            nothing is wrong, but there is no end: the save was cut short, or the file
 * was GODWIT_ERROR_UNSUPPORTED    no saying: an element that is not known here GODWIT_ERROR_IO
 * the file could not be read
 */

/* ---- one block ---- */

/*
 * Behind the block's entry in the list (ram-wire.h, "what the sink adds").  Offsets count from the first byte
 * of the file, wherever the stream in it begins.
 */
typedef struct MappedRamHeaderWire {
    be32 version;
    be64 page_size;
    be64 bitmap_offset; /* 0, as pages_offset, if x-ignore-shared left the block out */
    be64 pages_offset;
} MappedRamHeaderWire;

G_STATIC_ASSERT(sizeof(MappedRamHeaderWire) == 28);
G_STATIC_ASSERT(offsetof(MappedRamHeaderWire, page_size) == 4);
G_STATIC_ASSERT(offsetof(MappedRamHeaderWire, bitmap_offset) == 12);
G_STATIC_ASSERT(offsetof(MappedRamHeaderWire, pages_offset) == 20);

#define MAPPED_RAM_VERSION     1
#define MAPPED_RAM_PAGES_ALIGN 0x100000u    /* of pages_offset, for writers */
#define MAPPED_RAM_BLOCKS_MAX  4096         /* most blocks in one file */
#define MAPPED_RAM_LENGTH_MAX  (1ull << 52) /* longest block, and sum of all, in bytes */

typedef struct MappedRamBlock {
    char idstr[RAMBLOCK_IDSTR_MAX + 1];
    uint64_t used_length;   /* bytes, a multiple of TARGET_PAGE_SIZE */
    uint64_t gpa;           /* guest physical address; only with x-ignore-shared */
    uint64_t entry_offset;  /* in the file: where the entry begins */
    uint64_t header_offset; /* in the file: where the header begins; 0: there was none, or a bad one */
    uint64_t bitmap_offset;
    uint64_t pages_offset;
    bool absent;     /* left out by x-ignore-shared: neither bitmap nor pages */
    GArray *records; /* of MappedRamRecord; in a plain stream, if asked for, else NULL */
} MappedRamBlock;

/* A page in a plain stream. */
typedef struct MappedRamRecord {
    uint64_t page;
    uint64_t offset; /* of its bytes in the file; 0: a zero page */
} MappedRamRecord;

static inline uint64_t mapped_ram_block_pages(const MappedRamBlock *b)
{
    return b->used_length >> TARGET_PAGE_BITS;
}

/* Bytes of a bitmap in the file: whole little-endian 64-bit words, bit i of page i. */
static inline uint64_t mapped_ram_bitmap_size(uint64_t used_length)
{
    return ((used_length >> TARGET_PAGE_BITS) + 63) / 64 * 8;
}

void mapped_ram_header_encode(MappedRamHeaderWire *wire, uint64_t bitmap_offset, uint64_t pages_offset);

/*
 * Fills in the header's members of @b, whose idstr, used_length and header_offset are set.  Refuses an
 * unknown version, another page size, a misaligned page area, and offsets whose areas wrap or overlap.
 * @ignore_shared: two offsets of zero mean that the block is absent.
 */
bool mapped_ram_header_decode(const MappedRamHeaderWire *wire, bool ignore_shared, MappedRamBlock *b,
                              GError **errp);

/* Are the bitmap and the pages inside a file of @file_size bytes?  The pages being cut off is _EOF. */
bool mapped_ram_block_check_size(const MappedRamBlock *b, uint64_t file_size, GError **errp);

/*
 * Reads the bitmap (in host order), for bitmap_free() with mapped_ram_block_pages().  Bits behind the last
 * page must be clear.  The block must have passed mapped_ram_block_check_size(), which bounds the memory.
 */
uint64_t *mapped_ram_block_read_bitmap(const MappedRamBlock *b, Channel *file, GError **errp);

/* ---- the whole file ---- */

#define MAPPED_RAM_SECTIONS_MAX    65536       /* most sections announced in one file */
#define MAPPED_RAM_DESCRIPTION_MAX (64u << 20) /* longest description of device state, in bytes */

/* A section as it was announced, with all its payloads. */
typedef struct MappedRamSection {
    char idstr[256];
    uint32_t id;
    uint32_t instance_id;
    uint32_t version;
    uint64_t offset; /* of its first payload in the file */
    uint64_t size;   /* bytes of all payloads; RAM areas of mapped-ram are not counted */
    unsigned payloads;
    bool ended; /* an END was seen, or it is a FULL one */
} MappedRamSection;

/* How far to read. */
typedef enum {
    MAPPED_RAM_READ_SETUP, /* to the end of the list of blocks */
    MAPPED_RAM_READ_RAM,   /* to the end of the ram section: the save got as far as writing the bitmaps */
    MAPPED_RAM_READ_ALL,   /* to the description */
} MappedRamReadUntil;

typedef struct MappedRamImage {
    Channel *file;   /* own reference */
    uint64_t offset; /* of the stream in the file */
    uint64_t file_size;
    char machine[257];
    bool has_configuration;
    bool mapped; /* mapped-ram; else a plain stream with its pages inline */
    bool ignore_shared;
    uint64_t total;        /* bytes of all blocks, as announced */
    GArray *blocks;        /* of MappedRamBlock */
    GArray *sections;      /* of MappedRamSection, in order */
    uint64_t xbzrle_pages; /* plain stream: deltas seen; they are counted, not applied */
    uint64_t description_offset, description_size; /* of the JSON text; size 0 if there is none */
    bool complete;                                 /* read to the end, and nothing was missing */
    uint64_t end;                                  /* where reading has stopped */

    /* To be set before reading, if wanted. */
    bool keep_records; /* plain stream: note where each page is */
    void (*progress)(void *opaque, uint64_t position, uint64_t file_size);
    /*
     * How long the payload of a device's section is, if that is known (from the description); else the
     * section's footer is searched for, which device state could imitate.
     */
    bool (*section_size)(void *opaque, const char *idstr, uint32_t instance_id, uint64_t *size);
    void *opaque;
} MappedRamImage;

/* @file must be seekable; the stream begins at @offset.  NULL and an error if there is no such place. */
MappedRamImage *mapped_ram_image_new(Channel *file, uint64_t offset, GError **errp);
void mapped_ram_image_free(MappedRamImage *image);

/*
 * Reads and checks from the start, once.  After a failure the members hold what was read before it.
 * Overlaps are looked for between the areas of all blocks and the stream's own bytes.
 */
bool mapped_ram_image_read(MappedRamImage *image, MappedRamReadUntil until, GError **errp);

/* Do the blocks of the file belong to this guest: names, lengths?  Blocks missing in the file are not seen.
 */
bool mapped_ram_image_match(const MappedRamImage *image, const RamList *ram, GError **errp);

/*
 * Looks for a description at the very end of the file, without reading what is before it.  False: there is
 * none, or bytes follow it.
 */
bool mapped_ram_image_find_description(const MappedRamImage *image, uint64_t *offset, uint64_t *size);

static inline MappedRamBlock *mapped_ram_image_block(const MappedRamImage *image, unsigned i)
{
    return &g_array_index(image->blocks, MappedRamBlock, i);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(MappedRamImage, mapped_ram_image_free)

#endif
