/* SPDX-License-Identifier: BSD-2-Clause */
/* Compression of the pages of a multifd packet: one context a channel, alive for the whole migration. */
#ifndef GODWIT_MIGRATION_MULTIFD_COMPRESS_H
#define GODWIT_MIGRATION_MULTIFD_COMPRESS_H

#include "migration/multifd-wire.h"

/*
 * Framing, for both methods: the pages of a packet go in one after the other; at the last one the stream is
 * flushed, so that the packet decodes completely given what came before on this channel.  The stream is never
 * finished.
 */
typedef struct MultifdCompressionOps {
    MultiFDCompression method;

    void *(*compressor_new)(int level, GError **errp);
    /*
     * Compresses @n pages of one packet to @out, which has MULTIFD_COMPRESSED_MAX bytes; *@len is what was
     * used.
     * @last: flush.  Each page is stable memory.
     */
    bool (*compress)(void *ctx, const uint8_t *page, bool last, uint8_t *out, size_t *len, GError **errp);
    void (*compressor_free)(void *ctx);

    void *(*decompressor_new)(GError **errp);
    /* A new packet's payload; then one page after the other; then the end, where all of it must be used. */
    void (*begin)(void *ctx, const uint8_t *in, size_t len);
    bool (*page)(void *ctx, uint8_t *page, GError **errp);
    bool (*end)(void *ctx, GError **errp);
    void (*decompressor_free)(void *ctx);
} MultifdCompressionOps;

/* NULL for method none; NULL with an error for a method that was not built in. */
const MultifdCompressionOps *multifd_compression(MultiFDCompression method, GError **errp);

extern const MultifdCompressionOps multifd_zlib_ops;
extern const MultifdCompressionOps multifd_zstd_ops;

#endif
