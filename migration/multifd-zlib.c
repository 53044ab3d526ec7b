/* SPDX-License-Identifier: BSD-2-Clause */
/* Multifd compression with zlib: one deflate stream a channel, a sync flush at the end of each packet. */
#include "migration/multifd-compress.h"

#include "util/error.h"

#include <zlib.h>

static bool zlib_error(GError **errp, const char *doing, int result, const z_stream *z)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "multifd: %s: zlib returned %d%s%s", doing, result,
                z->msg ? ": " : "", z->msg ? z->msg : "");
    return false;
}

static void *zlib_compressor_new(int level, GError **errp)
{
    g_autofree z_stream *z = g_new0(z_stream, 1);
    int result = deflateInit(z, level);
    if (result != Z_OK) {
        zlib_error(errp, "setting up compression", result, z);
        return NULL;
    }
    return g_steal_pointer(&z);
}

static bool zlib_compress(void *ctx, const uint8_t *page, bool last, uint8_t *out, size_t *len, GError **errp)
{
    z_stream *z = ctx;

    z->next_in = (Bytef *)(uintptr_t)page;
    z->avail_in = TARGET_PAGE_SIZE;
    z->next_out = out + *len;
    z->avail_out = MULTIFD_COMPRESSED_MAX - *len;
    int result = deflate(z, last ? Z_SYNC_FLUSH : Z_NO_FLUSH);
    if (result != Z_OK || z->avail_in || !z->avail_out) {
        return zlib_error(errp, "compressing a page", result, z);
    }
    *len = MULTIFD_COMPRESSED_MAX - z->avail_out;
    return true;
}

static void zlib_compressor_free(void *ctx)
{
    deflateEnd(ctx);
    g_free(ctx);
}

static void *zlib_decompressor_new(GError **errp)
{
    g_autofree z_stream *z = g_new0(z_stream, 1);
    int result = inflateInit(z);
    if (result != Z_OK) {
        zlib_error(errp, "setting up decompression", result, z);
        return NULL;
    }
    return g_steal_pointer(&z);
}

static void zlib_begin(void *ctx, const uint8_t *in, size_t len)
{
    z_stream *z = ctx;
    z->next_in = (Bytef *)(uintptr_t)in;
    z->avail_in = len;
}

static bool zlib_page(void *ctx, uint8_t *page, GError **errp)
{
    z_stream *z = ctx;

    z->next_out = page;
    z->avail_out = TARGET_PAGE_SIZE;
    int result = inflate(z, Z_SYNC_FLUSH);
    if (result != Z_OK || z->avail_out) {
        return zlib_error(errp, "inflate generated too few output", result, z);
    }
    return true;
}

/* What is left is the flush marker: it makes no output.  Without input, too, output may be waiting inside. */
static bool zlib_end(void *ctx, GError **errp)
{
    z_stream *z = ctx;
    uint8_t more;

    z->next_out = &more;
    z->avail_out = 1;
    int result = inflate(z, Z_SYNC_FLUSH);
    if ((result != Z_OK && result != Z_BUF_ERROR) || !z->avail_out || z->avail_in) {
        return zlib_error(errp, "a packet holds more than its pages", result, z);
    }
    return true;
}

static void zlib_decompressor_free(void *ctx)
{
    inflateEnd(ctx);
    g_free(ctx);
}

const MultifdCompressionOps multifd_zlib_ops = {
    .method = MULTIFD_COMPRESSION_ZLIB,
    .compressor_new = zlib_compressor_new,
    .compress = zlib_compress,
    .compressor_free = zlib_compressor_free,
    .decompressor_new = zlib_decompressor_new,
    .begin = zlib_begin,
    .page = zlib_page,
    .end = zlib_end,
    .decompressor_free = zlib_decompressor_free,
};
