/* SPDX-License-Identifier: BSD-2-Clause */
/* Multifd compression with zstd: one endless frame a channel, a flushed block at the end of each packet. */
#include "migration/multifd-compress.h"

#include "util/error.h"

#include <zstd.h>

typedef struct ZstdDecompressor {
    ZSTD_DStream *stream;
    ZSTD_inBuffer in;
} ZstdDecompressor;

static bool zstd_error(GError **errp, const char *doing, size_t result)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "multifd: %s: %s", doing,
                ZSTD_isError(result) ? ZSTD_getErrorName(result) : "wrong length");
    return false;
}

static void *zstd_compressor_new(int level, GError **errp)
{
    ZSTD_CStream *stream = ZSTD_createCStream();
    size_t result = stream ? ZSTD_CCtx_setParameter(stream, ZSTD_c_compressionLevel, level) : 0;
    if (!stream || ZSTD_isError(result)) {
        zstd_error(errp, "setting up compression", result);
        ZSTD_freeCStream(stream);
        return NULL;
    }
    return stream;
}

static bool zstd_compress(void *ctx, const uint8_t *page, bool last, uint8_t *out, size_t *len, GError **errp)
{
    ZSTD_inBuffer from = { .src = page, .size = TARGET_PAGE_SIZE };
    ZSTD_outBuffer to = { .dst = out, .size = MULTIFD_COMPRESSED_MAX, .pos = *len };
    size_t left;

    do {
        left = ZSTD_compressStream2(ctx, &to, &from, last ? ZSTD_e_flush : ZSTD_e_continue);
        if (ZSTD_isError(left) || to.pos == to.size) {
            return zstd_error(errp, "compressing a page", left);
        }
    } while (from.pos < from.size || (last && left));
    *len = to.pos;
    return true;
}

static void zstd_compressor_free(void *ctx)
{
    ZSTD_freeCStream(ctx);
}

static void *zstd_decompressor_new(GError **errp)
{
    ZstdDecompressor *d = g_new0(ZstdDecompressor, 1);
    d->stream = ZSTD_createDStream();
    size_t result = d->stream ? ZSTD_initDStream(d->stream) : 0;
    if (!d->stream || ZSTD_isError(result)) {
        zstd_error(errp, "setting up decompression", result);
        ZSTD_freeDStream(d->stream);
        g_free(d);
        return NULL;
    }
    return d;
}

static void zstd_begin(void *ctx, const uint8_t *in, size_t len)
{
    ZstdDecompressor *d = ctx;
    d->in = (ZSTD_inBuffer){ .src = in, .size = len };
}

static bool zstd_page(void *ctx, uint8_t *page, GError **errp)
{
    ZstdDecompressor *d = ctx;
    ZSTD_outBuffer to = { .dst = page, .size = TARGET_PAGE_SIZE };

    while (to.pos < to.size) {
        size_t in_before = d->in.pos, out_before = to.pos;
        size_t result = ZSTD_decompressStream(d->stream, &to, &d->in);
        if (ZSTD_isError(result) || (d->in.pos == in_before && to.pos == out_before)) {
            return zstd_error(errp, "a packet holds less than its pages", result);
        }
    }
    return true;
}

static bool zstd_end(void *ctx, GError **errp)
{
    ZstdDecompressor *d = ctx;
    uint8_t more;
    ZSTD_outBuffer to = { .dst = &more, .size = 1 };

    /* Once even without input: output may be waiting inside. */
    size_t before;
    do {
        before = d->in.pos;
        size_t result = ZSTD_decompressStream(d->stream, &to, &d->in);
        if (ZSTD_isError(result) || to.pos) {
            return zstd_error(errp, "a packet holds more than its pages", result);
        }
    } while (d->in.pos > before);
    return d->in.pos == d->in.size || zstd_error(errp, "a packet holds more than its pages", 0);
}

static void zstd_decompressor_free(void *ctx)
{
    ZstdDecompressor *d = ctx;
    ZSTD_freeDStream(d->stream);
    g_free(d);
}

const MultifdCompressionOps multifd_zstd_ops = {
    .method = MULTIFD_COMPRESSION_ZSTD,
    .compressor_new = zstd_compressor_new,
    .compress = zstd_compress,
    .compressor_free = zstd_compressor_free,
    .decompressor_new = zstd_decompressor_new,
    .begin = zstd_begin,
    .page = zstd_page,
    .end = zstd_end,
    .decompressor_free = zstd_decompressor_free,
};
