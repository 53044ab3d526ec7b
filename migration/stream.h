/* SPDX-License-Identifier: BSD-2-Clause */
/* The main stream's buffered writer and reader over a Channel. */
#ifndef GODWIT_MIGRATION_STREAM_H
#define GODWIT_MIGRATION_STREAM_H

#include "io/channel.h"

/*
 * StreamWriter gathers: small fields are copied to an internal buffer, pages are
 * only pointed at, and one writev sends up to IOV_MAX pieces.  Adjacent pieces
 * merge.  The first error sticks: later calls return false at once and stream_writer_error() tells it.
 * Belongs to one thread; channel_shutdown() from any other unblocks it.
 */
typedef struct StreamWriter StreamWriter;

StreamWriter *stream_writer_new(Channel *channel);      /* takes its own reference */
void stream_writer_free(StreamWriter *w);               /* does not flush */
Channel *stream_writer_channel(StreamWriter *w);

bool stream_put_u8(StreamWriter *w, uint8_t v);
bool stream_put_be16(StreamWriter *w, uint16_t v);
bool stream_put_be32(StreamWriter *w, uint32_t v);
bool stream_put_be64(StreamWriter *w, uint64_t v);
bool stream_put(StreamWriter *w, const void *buf, size_t len);                  /* copied */
bool stream_put_counted_string(StreamWriter *w, const char *s);         /* 1 length byte, at most 255 */
/* Not copied: @buf must exist until the next stream_flush(); its content at the moment of sending travels. */
bool stream_put_nocopy(StreamWriter *w, const void *buf, size_t len);
bool stream_flush(StreamWriter *w, GError **errp);

/* Bytes accepted so far, flushed or not. */
uint64_t stream_writer_total(const StreamWriter *w);
/* Position in a seekable file, from its start; moves the stream's position (flushes first). */
bool stream_writer_seek(StreamWriter *w, uint64_t offset, GError **errp);
/* The sticky error, or NULL. */
const GError *stream_writer_error(const StreamWriter *w);
/* Makes the writer fail with @error (copied) unless it has failed before. */
void stream_writer_set_error(StreamWriter *w, const GError *error);
/* True while nothing has failed; else false, and @errp (may be NULL) is a copy of the sticky error. */
bool stream_writer_check(const StreamWriter *w, GError **errp);

/*
 * StreamReader: a bounded reader that blocks.  Like Reader, the first failure sticks: later gets return
 * zero values; check stream_reader_ok() where a decision depends on what was read.
 */
typedef struct StreamReader StreamReader;

StreamReader *stream_reader_new(Channel *channel);
void stream_reader_free(StreamReader *r);
Channel *stream_reader_channel(StreamReader *r);

uint8_t stream_get_u8(StreamReader *r);
uint16_t stream_get_be16(StreamReader *r);
uint32_t stream_get_be32(StreamReader *r);
uint64_t stream_get_be64(StreamReader *r);
bool stream_get(StreamReader *r, void *buf, size_t len);
bool stream_skip(StreamReader *r, uint64_t len);
/* @out holds 256 bytes; terminated; an embedded NUL is an error. */
bool stream_get_counted_string(StreamReader *r, char *out);
/* The next byte without taking it, at most 512 ahead; -1 at end of file or error. */
int stream_peek_u8(StreamReader *r, size_t ahead);
/* Without blocking for more than one read: how many bytes can be had from the buffer, and where they are. */
size_t stream_buffered(StreamReader *r, const uint8_t **data);
/* Without reading at all: are there bytes in the buffer? */
bool stream_has_buffered(const StreamReader *r);
/* Waits until the next @len bytes, at most STREAM_NEED_MAX, are in the buffer; takes none.  NULL: failure. */
const uint8_t *stream_need(StreamReader *r, size_t len);
#define STREAM_NEED_MAX 8192
/*
 * The fast path of page loading: takes @len bytes straight into @buf and, in the same readv, as many of the
 * following bytes into the internal buffer as come.
 */
bool stream_get_direct(StreamReader *r, void *buf, size_t len);

/*
 * The faster path: equal-sized records that follow each other, each an 8-byte word and a body, where the
 * next word can be guessed. The word before body i is expected to be @word + i * @body (big-endian on the
 * wire). The word of body 0 has been taken already. Body i goes to @dest + i * @body.
 */
typedef struct StreamRun {
    uint8_t *dest;
    size_t body;            /* bytes of one body */
    size_t max;             /* bodies that may be written at @dest, at least 1 */
    size_t streak;          /* how many bodies came in this way before: more means bolder guesses */
    uint64_t word;
    size_t touched;         /* result: bodies that were written to, rightly or not; >= the number taken */
} StreamRun;

/* The widest read-ahead, in bytes of bodies. */
#define STREAM_RUN_WINDOW (1024 * 1024)

/*
 * Takes one body and as many more as follow as guessed, at most @max, with as few copies as can be.
 * Returns their number, 0 on failure. Where the guess was wrong, the bytes that went to the wrong place
 * have been moved to the internal buffer, to be parsed next; bodies [number, touched) then hold rubbish,
 * which the caller must put right. So @max must not reach a body whose present content is still needed.
 * With @max 1 nothing is guessed.
 */
size_t stream_get_run(StreamReader *r, StreamRun *run);

uint64_t stream_reader_total(const StreamReader *r);    /* bytes consumed: offset in the stream */
bool stream_reader_ok(const StreamReader *r);
const GError *stream_reader_error(const StreamReader *r);
void stream_reader_set_error(StreamReader *r, const GError *error);     /* copied; first one sticks */
/* True while nothing has failed; else false, and @errp (may be NULL) is a copy of the sticky error. */
bool stream_reader_check(const StreamReader *r, GError **errp);
/* Position in a seekable file, from its start: what was read ahead is dropped. */
bool stream_reader_seek(StreamReader *r, uint64_t offset, GError **errp);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(StreamWriter, stream_writer_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(StreamReader, stream_reader_free)

#endif
