/* SPDX-License-Identifier: BSD-2-Clause */
/* mapped-ram: the header and the bitmap of a block, with every bound. */
#include "migration/mapped-ram-image.h"

#include "util/bitmap.h"
#include "util/error.h"

#include <inttypes.h>
#include <string.h>

void mapped_ram_header_encode(MappedRamHeaderWire *wire, uint64_t bitmap_offset, uint64_t pages_offset)
{
    *wire = (MappedRamHeaderWire){
        .version = be32_make(MAPPED_RAM_VERSION),
        .page_size = be64_make(TARGET_PAGE_SIZE),
        .bitmap_offset = be64_make(bitmap_offset),
        .pages_offset = be64_make(pages_offset),
    };
}

/* Files of which the positions must fit in an off_t. */
static bool area_fits(uint64_t start, uint64_t len)
{
    return start <= INT64_MAX && len <= INT64_MAX - start;
}

static bool check_areas(const MappedRamBlock *b, GError **errp)
{
    uint64_t bitmap_size = mapped_ram_bitmap_size(b->used_length);

    if (!area_fits(b->bitmap_offset, bitmap_size)) {
        return error_set_protocol(errp,
                                  "block '%s': bitmap_offset 0x%" PRIx64 " (at 0x%" PRIx64
                                  ") leaves no room for its %" PRIu64 " bytes",
                                  b->idstr, b->bitmap_offset, b->header_offset + 12, bitmap_size);
    }
    if (!area_fits(b->pages_offset, b->used_length)) {
        return error_set_protocol(errp,
                                  "block '%s': pages_offset 0x%" PRIx64 " (at 0x%" PRIx64
                                  ") leaves no room for its 0x%" PRIx64 " bytes",
                                  b->idstr, b->pages_offset, b->header_offset + 20, b->used_length);
    }
    if (b->bitmap_offset < b->pages_offset + b->used_length &&
        b->pages_offset < b->bitmap_offset + bitmap_size) {
        return error_set_protocol(errp,
                                  "block '%s': the bitmap at 0x%" PRIx64 " and the pages at 0x%" PRIx64
                                  " overlap (header at 0x%" PRIx64 ")",
                                  b->idstr, b->bitmap_offset, b->pages_offset, b->header_offset);
    }
    return true;
}

bool mapped_ram_header_decode(const MappedRamHeaderWire *wire, bool ignore_shared, MappedRamBlock *b,
                              GError **errp)
{
    uint32_t version = be32_get(wire->version);
    uint64_t page_size = be64_get(wire->page_size);
    MappedRamBlock decoded = *b;

    if (version > MAPPED_RAM_VERSION) {
        return error_set_protocol(errp, "block '%s': mapped-ram version %u (at 0x%" PRIx64
                                  ") is not supported, expected at most %d", b->idstr, version,
                                  b->header_offset, MAPPED_RAM_VERSION);
    }
    if (page_size != TARGET_PAGE_SIZE) {
        return error_set_protocol(errp, "block '%s': page_size %" PRIu64 " (at 0x%" PRIx64 "), expected %u",
                                  b->idstr, page_size, b->header_offset + 4, TARGET_PAGE_SIZE);
    }
    decoded.bitmap_offset = be64_get(wire->bitmap_offset);
    decoded.pages_offset = be64_get(wire->pages_offset);
    decoded.absent = ignore_shared && !decoded.bitmap_offset && !decoded.pages_offset;
    if (decoded.pages_offset % TARGET_PAGE_SIZE) {
        return error_set_protocol(errp,
                                  "block '%s': the page area is misaligned: pages_offset 0x%" PRIx64
                                  " (at 0x%" PRIx64 ") is no multiple of %u",
                                  b->idstr, decoded.pages_offset, b->header_offset + 20, TARGET_PAGE_SIZE);
    }
    if (!decoded.absent && !check_areas(&decoded, errp)) {
        return false;
    }
    *b = decoded;
    return true;
}

bool mapped_ram_block_check_size(const MappedRamBlock *b, uint64_t file_size, GError **errp)
{
    uint64_t bitmap_size = mapped_ram_bitmap_size(b->used_length);

    if (b->absent) {
        return true;
    }
    /* A bitmap in its usual place is beyond the end only if the file was cut off. */
    if (b->bitmap_offset + bitmap_size > file_size) {
        bool usual = b->bitmap_offset == b->header_offset + sizeof(MappedRamHeaderWire);
        g_set_error(errp, GODWIT_ERROR, usual ? GODWIT_ERROR_EOF : GODWIT_ERROR_PROTOCOL,
                    "%sblock '%s': the bitmap, %" PRIu64 " bytes at 0x%" PRIx64
                    " (bitmap_offset at 0x%" PRIx64 "), is beyond the end of the file at 0x%" PRIx64,
                    usual ? "incomplete: " : "", b->idstr, bitmap_size, b->bitmap_offset,
                    b->header_offset + 12, file_size);
        return false;
    }
    if (b->pages_offset + b->used_length > file_size) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_EOF,
                    "incomplete: block '%s': the page area, 0x%" PRIx64 " bytes at 0x%" PRIx64
                    " (pages_offset at 0x%" PRIx64 "), is cut off by the end of the file at 0x%" PRIx64,
                    b->idstr, b->used_length, b->pages_offset, b->header_offset + 20, file_size);
        return false;
    }
    return true;
}

uint64_t *mapped_ram_block_read_bitmap(const MappedRamBlock *b, Channel *file, GError **errp)
{
    uint64_t pages = mapped_ram_block_pages(b), size = mapped_ram_bitmap_size(b->used_length);
    uint64_t *map = bitmap_new(pages);

    if (!channel_pread_all(file, map, size, (off_t)b->bitmap_offset, errp)) {
        g_prefix_error(errp, "block '%s': the bitmap at 0x%" PRIx64 " could not be read: ", b->idstr,
                       b->bitmap_offset);
        bitmap_free(map, pages);
        return NULL;
    }
    for (uint64_t i = 0; i < size / 8; i++) {
        map[i] = GUINT64_FROM_LE(map[i]);
    }
    if (pages % 64 && map[pages / 64] >> (pages % 64)) {
        error_set_protocol(errp,
                           "block '%s': the last word of the bitmap (at 0x%" PRIx64
                           ") has bits behind page %" PRIu64 ", the last one",
                           b->idstr, b->bitmap_offset + size - 8, pages - 1);
        bitmap_free(map, pages);
        return NULL;
    }
    return map;
}
