/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: a saved guest's file, read to the end; bitmaps and records as the tools take them. */

/*
 * Pages are a mebibyte apart in real files, so the input is a sparse file: a byte of flags, the file's size
 * (be32), then pieces, each a be32 offset, a be16 length and that many bytes.
 */
#include "migration/mapped-ram-image.h"
#include "util/bitmap.h"
#include "util/error.h"

#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD          5
#define PIECE_HEAD    6
#define FILE_SIZE_MAX (12u << 20)

enum {
    FLAG_OFFSET = 1, /* the stream begins at 0x1234 */
    FLAG_RECORDS = 2,
    FLAG_KNOWN_SIZES = 4,
    FLAG_RAM_ONLY = 8,
};

typedef struct SparseFile {
    Channel base;
    const uint8_t *data;
    size_t size; /* of the input */
    off_t position, end;
} SparseFile;

static void read_at(SparseFile *f, uint8_t *out, size_t len, uint64_t offset)
{
    memset(out, 0, len);
    for (size_t pos = HEAD; f->size - pos >= PIECE_HEAD;) {
        uint64_t start = load_be32(f->data + pos);
        size_t piece = MIN(load_be16(f->data + pos + 4), f->size - pos - PIECE_HEAD);
        uint64_t from = MAX(start, offset), to = MIN(start + piece, offset + len);
        if (from < to) {
            memcpy(out + (from - offset), f->data + pos + PIECE_HEAD + (from - start), to - from);
        }
        pos += PIECE_HEAD + piece;
    }
}

static ssize_t sparse_preadv(Channel *c, const struct iovec *iov, int n, off_t offset, GError **errp)
{
    SparseFile *f = (SparseFile *)c;
    ssize_t done = 0;

    for (int i = 0; i < n && offset < f->end; i++) {
        size_t len = MIN(iov[i].iov_len, (size_t)(f->end - offset));
        read_at(f, iov[i].iov_base, len, (uint64_t)offset);
        offset += (off_t)len;
        done += (ssize_t)len;
    }
    return done;
}

static off_t sparse_seek(Channel *c, off_t offset, int whence, GError **errp)
{
    SparseFile *f = (SparseFile *)c;
    f->position = offset + (whence == SEEK_END ? f->end : whence == SEEK_CUR ? f->position : 0);
    return f->position;
}

static bool sparse_close(Channel *c, GError **errp)
{
    return true;
}

static void sparse_nothing(Channel *c) {}

static const ChannelOps sparse_ops = {
    .kind = "file",
    .preadv = sparse_preadv,
    .seek = sparse_seek,
    .shutdown = sparse_nothing,
    .close = sparse_close,
    .free = sparse_nothing,
};

static bool sizes(void *opaque, const char *idstr, uint32_t instance_id, uint64_t *size)
{
    *size = strcmp(idstr, "timer") == 0 ? 24 : 104;
    return strcmp(idstr, "timer") == 0 || strcmp(idstr, "globalstate") == 0;
}

static void look_at_block(const MappedRamImage *image, const MappedRamBlock *b)
{
    g_autoptr(GError) error = NULL;
    uint64_t pages = mapped_ram_block_pages(b), last = 0;

    g_assert_cmpuint(pages, >, 0);
    if (b->records) {
        for (guint i = 0; i < b->records->len; i++) {
            const MappedRamRecord *r = &g_array_index(b->records, MappedRamRecord, i);
            g_assert_cmpuint(r->page, <, pages);
            g_assert_cmpuint(r->offset, <, image->file_size);
            g_assert_true(i == 0 || r->page > last);
            last = r->page;
        }
    }
    if (!image->mapped || b->absent || !mapped_ram_block_check_size(b, image->file_size, NULL)) {
        return;
    }
    uint64_t *map = mapped_ram_block_read_bitmap(b, image->file, &error);
    if (!map) {
        g_assert_nonnull(error);
        return;
    }
    g_assert_cmpuint(bitmap_count(map, 0, pages), <=, pages);
    bitmap_free(map, pages);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    RAMBlock m0 = { .idstr = "m0", .used_length = 2 << 20, .fd = -1 };
    RamList list = { .first = &m0, .count = 1 };
    g_autoptr(GError) error = NULL;
    uint64_t at, length;

    if (size < HEAD) {
        return 0;
    }
    SparseFile f = {
        { .ops = &sparse_ops, .features = CHANNEL_FEATURE_SEEKABLE | CHANNEL_FEATURE_READ, .ref_count = 1 },
        data,
        size,
        0,
        MIN(load_be32(data + 1), FILE_SIZE_MAX)
    };
    g_autoptr(MappedRamImage) image =
        mapped_ram_image_new(&f.base, data[0] & FLAG_OFFSET ? 0x1234 : 0, &error);
    if (!image) {
        g_assert_nonnull(error);
        return 0;
    }
    image->keep_records = data[0] & FLAG_RECORDS;
    image->section_size = data[0] & FLAG_KNOWN_SIZES ? sizes : NULL;
    bool ok = mapped_ram_image_read(
        image, data[0] & FLAG_RAM_ONLY ? MAPPED_RAM_READ_RAM : MAPPED_RAM_READ_ALL, &error);
    g_assert_cmpint(ok, ==, error == NULL);
    g_assert_true(ok || !image->complete);
    g_assert_cmpuint(image->end, <=, image->file_size);
    for (guint i = 0; i < image->blocks->len; i++) {
        look_at_block(image, mapped_ram_image_block(image, i));
    }
    mapped_ram_image_match(image, &list, NULL);
    mapped_ram_image_find_description(image, &at, &length);
    return 0;
}
