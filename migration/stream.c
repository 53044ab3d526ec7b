/* SPDX-License-Identifier: BSD-2-Clause */
/* The main stream: a writer that gathers for one writev, a reader straight into guest RAM. */

/*
 * Writer. The queue is an array of iovecs. Copied bytes lie in @copy, one after the other, so that the
 * iovec of a page header grows when the fill byte of a zero page or another header follows. A page costs
 * two iovecs (header, page), so that one writev carries 512 pages.
 *
 * Reader. Bytes not yet taken are [head, tail) of @buf. Small gets come from there. A body is read into
 * its place, with the rest of the buffer as last iovec of the same readv. stream_get_run() adds guesses:
 *
 *   iovec    0         1      2          3      4               last
 *            body 0    word   body 1     word   body 2   ...    buf + RUN_SPACE
 *
 * The words are checked afterwards, in order. All bytes from the first wrong word on, wherever they
 * landed, are the bytes of the stream that come next: they are copied together just before buf +
 * RUN_SPACE, where the last iovec's bytes follow, and parsed as if nothing had been guessed.
 */
#include "migration/stream.h"

#include <limits.h>
#include <stdio.h>

#include "util/be.h"
#include "util/error.h"

#define WRITER_IOV 1024                 /* Linux' IOV_MAX */
#define WRITER_COPY (64 * 1024)
#define WRITER_HIGH (1024 * 1024)       /* send when this much is queued: the peer works meanwhile */

#define WORD_SIZE 8
#define READER_TAIL (128 * 1024)        /* read-ahead after the last guess; is copied once more */
#define GUESSES_FIRM 32                 /* with so many guesses, read only one word after them */
#define GUESS_SHARE 8                   /* read ahead at most this share of a long run */
#define RUN_BODIES (STREAM_RUN_WINDOW / 4096)
#define RUN_SPACE (STREAM_RUN_WINDOW + RUN_BODIES * WORD_SIZE)

struct StreamWriter {
    Channel *channel;
    GError *error;          /* sticky */
    uint64_t total;
    size_t queued;          /* bytes in iov */
    size_t copied;          /* bytes used in copy */
    unsigned n_iov;
    struct iovec iov[WRITER_IOV];
    uint8_t copy[WRITER_COPY];
};

struct StreamReader {
    Channel *channel;
    GError *error;          /* sticky */
    uint64_t total;
    uint8_t *buf;
    size_t size;            /* READER_TAIL; with RUN_SPACE more once stream_get_run() was used */
    size_t head, tail;
};

/* ---- writer ---- */

StreamWriter *stream_writer_new(Channel *channel)
{
    StreamWriter *w = g_new(StreamWriter, 1);
    w->channel = channel_ref(channel);
    w->error = NULL;
    w->total = 0;
    w->queued = 0;
    w->copied = 0;
    w->n_iov = 0;
    return w;
}

void stream_writer_free(StreamWriter *w)
{
    if (!w) {
        return;
    }
    channel_unref(w->channel);
    g_clear_error(&w->error);
    g_free(w);
}

Channel *stream_writer_channel(StreamWriter *w)
{
    return w->channel;
}

static bool writer_send(StreamWriter *w)
{
    if (w->error) {
        return false;
    }
    if (w->n_iov) {
        channel_writev_all(w->channel, w->iov, w->n_iov, 0, &w->error);
        w->n_iov = 0;
        w->queued = 0;
        w->copied = 0;
    }
    return !w->error;
}

/* Room for one more iovec and @len more copied bytes. */
static inline bool writer_room(StreamWriter *w, size_t len)
{
    if (G_UNLIKELY(w->error)) {
        return false;
    }
    if (G_UNLIKELY(w->n_iov == WRITER_IOV || w->copied + len > WRITER_COPY || w->queued >= WRITER_HIGH)) {
        return writer_send(w);
    }
    return true;
}

/* Appends a piece; there is room. */
static inline void writer_piece(StreamWriter *w, const void *base, size_t len)
{
    struct iovec *last = w->n_iov ? &w->iov[w->n_iov - 1] : NULL;

    if (last && (uint8_t *)last->iov_base + last->iov_len == base) {
        last->iov_len += len;
    } else {
        w->iov[w->n_iov++] = (struct iovec){ .iov_base = (void *)(uintptr_t)base, .iov_len = len };
    }
    w->queued += len;
    w->total += len;
}

/* Space for @len bytes at the end of the copied ones, already queued; NULL after an error. */
static inline uint8_t *writer_copy(StreamWriter *w, size_t len)
{
    if (!writer_room(w, len)) {
        return NULL;
    }
    uint8_t *at = w->copy + w->copied;
    w->copied += len;
    writer_piece(w, at, len);
    return at;
}

bool stream_put_u8(StreamWriter *w, uint8_t v)
{
    uint8_t *at = writer_copy(w, 1);
    if (at) {
        *at = v;
    }
    return at != NULL;
}

bool stream_put_be16(StreamWriter *w, uint16_t v)
{
    uint8_t *at = writer_copy(w, 2);
    if (at) {
        store_be16(at, v);
    }
    return at != NULL;
}

bool stream_put_be32(StreamWriter *w, uint32_t v)
{
    uint8_t *at = writer_copy(w, 4);
    if (at) {
        store_be32(at, v);
    }
    return at != NULL;
}

bool stream_put_be64(StreamWriter *w, uint64_t v)
{
    uint8_t *at = writer_copy(w, 8);
    if (at) {
        store_be64(at, v);
    }
    return at != NULL;
}

bool stream_put(StreamWriter *w, const void *buf, size_t len)
{
    const uint8_t *from = buf;

    while (len) {
        size_t n = MIN(len, WRITER_COPY);
        uint8_t *at = writer_copy(w, n);
        if (!at) {
            return false;
        }
        memcpy(at, from, n);
        from += n;
        len -= n;
    }
    return !w->error;
}

bool stream_put_counted_string(StreamWriter *w, const char *s)
{
    size_t len = strlen(s);

    if (len > 255) {
        g_autoptr(GError) error = g_error_new(GODWIT_ERROR, GODWIT_ERROR_FAILED,
                                              "Name '%.32s...' is longer than 255 bytes", s);
        stream_writer_set_error(w, error);
        return false;
    }
    return stream_put_u8(w, len) && stream_put(w, s, len);
}

bool stream_put_nocopy(StreamWriter *w, const void *buf, size_t len)
{
    if (!writer_room(w, 0)) {
        return false;
    }
    if (len) {
        writer_piece(w, buf, len);
    }
    return true;
}

bool stream_flush(StreamWriter *w, GError **errp)
{
    writer_send(w);
    return stream_writer_check(w, errp);
}

uint64_t stream_writer_total(const StreamWriter *w)
{
    return w->total;
}

bool stream_writer_seek(StreamWriter *w, uint64_t offset, GError **errp)
{
    if (writer_send(w)) {
        channel_seek(w->channel, offset, SEEK_SET, &w->error);
    }
    return stream_writer_check(w, errp);
}

const GError *stream_writer_error(const StreamWriter *w)
{
    return w->error;
}

void stream_writer_set_error(StreamWriter *w, const GError *error)
{
    if (!w->error) {
        w->error = g_error_copy(error);
    }
}

bool stream_writer_check(const StreamWriter *w, GError **errp)
{
    if (w->error) {
        g_propagate_error(errp, g_error_copy(w->error));
    }
    return !w->error;
}

/* ---- reader ---- */

StreamReader *stream_reader_new(Channel *channel)
{
    StreamReader *r = g_new0(StreamReader, 1);
    r->channel = channel_ref(channel);
    r->size = READER_TAIL;
    r->buf = g_malloc(r->size);
    return r;
}

void stream_reader_free(StreamReader *r)
{
    if (!r) {
        return;
    }
    channel_unref(r->channel);
    g_clear_error(&r->error);
    g_free(r->buf);
    g_free(r);
}

Channel *stream_reader_channel(StreamReader *r)
{
    return r->channel;
}

static inline size_t reader_have(const StreamReader *r)
{
    return r->tail - r->head;
}

/* One readv; 0 after an error or at end of file, which is the error. */
static size_t reader_readv(StreamReader *r, const struct iovec *iov, int n_iov)
{
    ssize_t n = channel_readv(r->channel, iov, n_iov, &r->error);

    if (n > 0) {
        return n;
    }
    if (n == 0) {
        g_set_error(&r->error, GODWIT_ERROR, GODWIT_ERROR_EOF,
                    "Unexpected end-of-file before all data were read");
    }
    return 0;
}

/* Makes at least @need bytes available in the buffer; @need is small. */
static bool reader_fill(StreamReader *r, size_t need)
{
    if (r->error) {
        return false;
    }
    /* To the front, where the buffer is in the processor's cache: there are fewer than @need bytes. */
    memmove(r->buf, r->buf + r->head, reader_have(r));
    r->tail -= r->head;
    r->head = 0;
    while (reader_have(r) < need) {
        size_t room = MIN(r->size - r->tail, READER_TAIL);
        struct iovec iov = { .iov_base = r->buf + r->tail, .iov_len = room };
        size_t n = reader_readv(r, &iov, 1);
        if (!n) {
            return false;
        }
        r->tail += n;
    }
    return true;
}

const uint8_t *stream_need(StreamReader *r, size_t len)
{
    g_assert(len <= STREAM_NEED_MAX);
    return !r->error && (reader_have(r) >= len || reader_fill(r, len)) ? r->buf + r->head : NULL;
}

/* The next @len bytes, taken; NULL on failure. */
static inline const uint8_t *reader_take(StreamReader *r, size_t len)
{
    if (G_UNLIKELY(reader_have(r) < len || r->error) && !reader_fill(r, len)) {
        return NULL;
    }
    const uint8_t *at = r->buf + r->head;
    r->head += len;
    r->total += len;
    return at;
}

uint8_t stream_get_u8(StreamReader *r)
{
    const uint8_t *at = reader_take(r, 1);
    return at ? *at : 0;
}

uint16_t stream_get_be16(StreamReader *r)
{
    const uint8_t *at = reader_take(r, 2);
    return at ? load_be16(at) : 0;
}

uint32_t stream_get_be32(StreamReader *r)
{
    const uint8_t *at = reader_take(r, 4);
    return at ? load_be32(at) : 0;
}

uint64_t stream_get_be64(StreamReader *r)
{
    const uint8_t *at = reader_take(r, 8);
    return at ? load_be64(at) : 0;
}

/* Copies what the buffer has, at most @len bytes; returns how many. */
static size_t reader_copy_out(StreamReader *r, void *buf, size_t len)
{
    size_t n = MIN(len, reader_have(r));

    memcpy(buf, r->buf + r->head, n);
    r->head += n;
    r->total += n;
    return n;
}

bool stream_get(StreamReader *r, void *buf, size_t len)
{
    uint8_t *to = buf;

    if (r->error) {
        return false;
    }
    while (len) {
        if (!reader_have(r) && !reader_fill(r, 1)) {
            return false;
        }
        size_t n = reader_copy_out(r, to, len);
        to += n;
        len -= n;
    }
    return true;
}

bool stream_skip(StreamReader *r, uint64_t len)
{
    while (len) {
        if ((!reader_have(r) || r->error) && !reader_fill(r, 1)) {
            return false;
        }
        size_t n = MIN(len, reader_have(r));
        r->head += n;
        r->total += n;
        len -= n;
    }
    return !r->error;
}

bool stream_get_counted_string(StreamReader *r, char *out)
{
    size_t len = stream_get_u8(r);

    out[0] = '\0';
    if (!stream_get(r, out, len)) {
        out[0] = '\0';
        return false;
    }
    out[len] = '\0';
    if (strlen(out) != len) {
        g_set_error(&r->error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Name '%s' in the stream has a NUL byte inside", out);
        out[0] = '\0';
        return false;
    }
    return true;
}

int stream_peek_u8(StreamReader *r, size_t ahead)
{
    g_assert(ahead <= 512);

    /* End of file is an answer here, not a failure: whoever gets the bytes later will fail. */
    if (!r->error && reader_have(r) <= ahead && !reader_fill(r, ahead + 1)) {
        if (g_error_matches(r->error, GODWIT_ERROR, GODWIT_ERROR_EOF)) {
            g_clear_error(&r->error);
        }
        return -1;
    }
    return r->error ? -1 : r->buf[r->head + ahead];
}

size_t stream_buffered(StreamReader *r, const uint8_t **data)
{
    if (!r->error && !reader_have(r)) {
        reader_fill(r, 1);
    }
    *data = r->buf + r->head;
    return r->error ? 0 : reader_have(r);
}

bool stream_has_buffered(const StreamReader *r)
{
    return !r->error && reader_have(r) > 0;
}

/* The buffer is empty: reads to @buf, and what else comes to the buffer.  The bytes that went to @buf. */
static size_t reader_read_direct(StreamReader *r, void *buf, size_t len)
{
    struct iovec iov[2] = {
        { .iov_base = buf, .iov_len = len },
        { .iov_base = r->buf, .iov_len = READER_TAIL },
    };
    size_t n = reader_readv(r, iov, 2);
    size_t direct = MIN(n, len);

    r->head = 0;
    r->tail = n - direct;
    r->total += direct;
    return direct;
}

bool stream_get_direct(StreamReader *r, void *buf, size_t len)
{
    uint8_t *to = buf;

    if (r->error) {
        return false;
    }
    size_t n = reader_copy_out(r, to, len);
    while (n < len) {
        size_t direct = reader_read_direct(r, to + n, len - n);
        if (!direct) {
            return false;
        }
        n += direct;
    }
    return true;
}

/* ---- runs ---- */

/* Where stream_get_run() stands: @taken whole bodies, and @part bytes of the next one. */
typedef struct RunState {
    StreamRun *run;
    size_t taken;
    size_t part;
    bool over;              /* what comes next is not, or may not be, a record of this run */
} RunState;

/* The iovecs of one guessing read. */
typedef struct RunRead {
    struct iovec iov[2 * RUN_BODIES + 2];
    be64 words[RUN_BODIES];
    size_t guesses;         /* pairs (word, body) in iov, after the first body */
} RunRead;

static inline uint64_t run_word(const RunState *s, size_t index)
{
    return s->run->word + index * s->run->body;
}

/* A body is complete: go on if the next word is in the buffer and as guessed. */
static void run_next_from_buffer(StreamReader *r, RunState *s)
{
    s->taken++;
    s->part = 0;
    if (s->taken == s->run->max || reader_have(r) < WORD_SIZE ||
        load_be64(r->buf + r->head) != run_word(s, s->taken)) {
        s->over = true;
        return;
    }
    r->head += WORD_SIZE;
    r->total += WORD_SIZE;
}

/* Takes bodies from the buffer until it is empty or the run is over. */
static void run_from_buffer(StreamReader *r, RunState *s)
{
    while (!s->over && reader_have(r)) {
        uint8_t *to = s->run->dest + s->taken * s->run->body + s->part;
        s->part += reader_copy_out(r, to, s->run->body - s->part);
        if (s->part == s->run->body) {
            run_next_from_buffer(r, s);
        }
    }
    s->run->touched = MAX(s->run->touched, s->taken + (s->part > 0));
}

/* Lays out one read: the rest of the present body, guesses, and the buffer for what comes after them. */
static void run_prepare(StreamReader *r, const RunState *s, RunRead *read)
{
    const StreamRun *run = s->run;
    uint8_t *body = run->dest + s->taken * run->body;
    size_t streak = run->streak + s->taken;
    size_t wanted = MIN(streak, MAX(GUESSES_FIRM, streak / GUESS_SHARE));
    struct iovec *iov = read->iov;

    wanted = MIN(wanted, MIN(STREAM_RUN_WINDOW / run->body, RUN_BODIES));
    read->guesses = MIN(wanted, run->max - s->taken - 1);
    *iov++ = (struct iovec){ body + s->part, run->body - s->part };
    for (size_t i = 0; i < read->guesses; i++) {
        body += run->body;
        *iov++ = (struct iovec){ &read->words[i], WORD_SIZE };
        *iov++ = (struct iovec){ body, run->body };
    }
    *iov = (struct iovec){ r->buf + RUN_SPACE, read->guesses >= GUESSES_FIRM ? WORD_SIZE : READER_TAIL };
}

/*
 * The guess failed at iovec @first, of which and of whose followers @n bytes were filled, not counting
 * the last iovec, which got @tail bytes: makes them the buffer's content, in order.
 */
static void run_mend(StreamReader *r, RunState *s, const RunRead *read, size_t first, size_t n, size_t tail)
{
    r->head = RUN_SPACE - n;
    r->tail = RUN_SPACE + tail;

    uint8_t *to = r->buf + r->head;
    for (size_t i = first; n; i++) {
        size_t len = MIN(n, read->iov[i].iov_len);
        memcpy(to, read->iov[i].iov_base, len);
        to += len;
        n -= len;
        if (i % 2 == 0) {
            s->run->touched = MAX(s->run->touched, s->taken + (i - first + 1) / 2);
        }
    }
}

/* @n bytes have been read into @read's iovecs: checks the guesses. */
static void run_check(StreamReader *r, RunState *s, const RunRead *read, size_t n)
{
    size_t space = 0;
    for (size_t i = 0; i < 2 * read->guesses + 1; i++) {
        space += read->iov[i].iov_len;
    }
    size_t tail = n > space ? n - space : 0;
    n -= tail;
    r->head = RUN_SPACE;
    r->tail = RUN_SPACE + tail;

    for (size_t i = 0;; i++) {
        size_t got = MIN(n, read->iov[2 * i].iov_len);
        n -= got;
        s->part += got;
        r->total += got;
        if (s->part < s->run->body) {
            return;
        }
        s->part = 0;
        s->taken++;
        if (i == read->guesses) {
            break;
        }
        if (n < WORD_SIZE || be64_get(read->words[i]) != run_word(s, s->taken)) {
            run_mend(r, s, read, 2 * i + 1, n, tail);
            s->over = true;
            return;
        }
        n -= WORD_SIZE;
        r->total += WORD_SIZE;
    }
    s->taken--;
    run_next_from_buffer(r, s);
}

static void run_read(StreamReader *r, RunState *s)
{
    RunRead read;

    run_prepare(r, s, &read);
    size_t n = reader_readv(r, read.iov, 2 * read.guesses + 2);
    if (!n) {
        s->run->touched = MAX(s->run->touched, s->taken + read.guesses + 1);
        return;
    }
    run_check(r, s, &read, n);
    s->run->touched = MAX(s->run->touched, s->taken + (s->part > 0));
}

size_t stream_get_run(StreamReader *r, StreamRun *run)
{
    RunState state = { .run = run };

    run->touched = 0;
    if (r->error) {
        return 0;
    }
    if (r->size < RUN_SPACE + READER_TAIL) {
        r->size = RUN_SPACE + READER_TAIL;
        r->buf = g_realloc(r->buf, r->size);
    }
    run_from_buffer(r, &state);
    while (!state.over) {
        run_read(r, &state);
        if (r->error) {
            return 0;
        }
        run_from_buffer(r, &state);
    }
    return state.taken;
}

uint64_t stream_reader_total(const StreamReader *r)
{
    return r->total;
}

bool stream_reader_ok(const StreamReader *r)
{
    return !r->error;
}

const GError *stream_reader_error(const StreamReader *r)
{
    return r->error;
}

void stream_reader_set_error(StreamReader *r, const GError *error)
{
    if (!r->error) {
        r->error = g_error_copy(error);
    }
}

bool stream_reader_check(const StreamReader *r, GError **errp)
{
    if (r->error) {
        g_propagate_error(errp, g_error_copy(r->error));
    }
    return !r->error;
}

bool stream_reader_seek(StreamReader *r, uint64_t offset, GError **errp)
{
    if (!r->error) {
        r->head = r->tail = 0;
        channel_seek(r->channel, offset, SEEK_SET, &r->error);
    }
    return stream_reader_check(r, errp);
}
