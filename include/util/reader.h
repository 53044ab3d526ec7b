/* SPDX-License-Identifier: BSD-2-Clause */
/* A bounded reader over bytes in memory: every length and count from outside goes through it. */
#ifndef GODWIT_UTIL_READER_H
#define GODWIT_UTIL_READER_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Reads from [data, data + len).  The first read that does not fit makes the
 * reader fail: it and all later reads return zero values, and reader_finish() says so.  So a
 * parser may read a whole structure and check once.
 */
typedef struct Reader {
    const uint8_t *data;
    size_t len;
    size_t pos;
    const char *field;      /* the field whose read did not fit or was refused, or NULL */
    const char *problem;    /* what was wrong with it */
} Reader;

void reader_init(Reader *r, const void *data, size_t len);
uint8_t reader_u8(Reader *r, const char *field);
uint16_t reader_be16(Reader *r, const char *field);
uint32_t reader_be32(Reader *r, const char *field);
uint64_t reader_be64(Reader *r, const char *field);

/* A pointer to the next @len bytes inside the reader's memory, or NULL. */
const uint8_t *reader_bytes(Reader *r, size_t len, const char *field);

/*
 * One length byte, then that many bytes; copied to @out (256 bytes) and terminated.  Refuses an embedded NUL.
 */
bool reader_counted_string(Reader *r, char out[256], const char *field);

size_t reader_left(const Reader *r);

/*
 * True if every read fitted and, with @all, nothing is left.  Else an error of GODWIT_ERROR_PROTOCOL naming
 * the field.
 */
bool reader_finish(const Reader *r, bool all, const char *what, GError **errp);

#endif
