/* SPDX-License-Identifier: BSD-2-Clause */
/* StreamWriter and StreamReader: bytes, bounds, sticky errors, and runs with right and wrong guesses. */
#include <string.h>

#include "migration/stream.h"
#include "ram-test.h"
#include "util/be.h"

static StreamReader *reader_of(const void *data, size_t len, size_t max_read)
{
    TestChannel *c = test_channel_new(data, len, max_read);
    StreamReader *r = stream_reader_new(&c->base);
    channel_unref(&c->base);
    return r;
}

/* ---- writer ---- */

static void test_write_fields(void)
{
    static const uint8_t expected[] = {
        0x12, 0x12, 0x34, 0x12, 0x34, 0x56, 0x78, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0,
        3, 'r', 'a', 'm', 'x', 'y', 'P', 'Q', 0,
    };
    char page[2] = "ZZ";
    TestChannel *c = test_channel_new(NULL, 0, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(&c->base);

    g_assert_true(stream_writer_channel(w) == &c->base);
    g_assert_true(stream_put_u8(w, 0x12));
    g_assert_true(stream_put_be16(w, 0x1234));
    g_assert_true(stream_put_be32(w, 0x12345678));
    g_assert_true(stream_put_be64(w, 0x123456789abcdef0));
    g_assert_true(stream_put_counted_string(w, "ram"));
    g_assert_true(stream_put(w, "xy", 2));
    g_assert_true(stream_put_nocopy(w, page, 2));
    g_assert_true(stream_put_nocopy(w, page, 0));
    g_assert_true(stream_put_u8(w, 0));
    g_assert_cmpuint(stream_writer_total(w), ==, sizeof(expected));
    g_assert_cmpuint(c->bytes->len, ==, 0);

    /* What is pointed at travels as it is at the moment of sending. */
    memcpy(page, "PQ", 2);
    OK(stream_flush(w, &error));
    g_assert_cmpmem(c->bytes->data, c->bytes->len, expected, sizeof(expected));
    OK(stream_flush(w, &error));
    g_assert_cmpuint(c->writes, ==, 1);
    channel_unref(&c->base);
}

static void test_write_long(void)
{
    enum { N = 2000 };
    g_autofree uint8_t *pages = g_malloc(N * PAGE);
    g_autofree uint8_t *big = g_malloc0(200000);
    TestChannel *c = test_channel_new(NULL, 0, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(&c->base);

    for (size_t i = 0; i < N * PAGE; i++) {
        pages[i] = i * 7 / 5;
    }
    for (unsigned i = 0; i < N; i++) {
        g_assert_true(stream_put_be64(w, i));
        g_assert_true(stream_put_nocopy(w, pages + i * PAGE, PAGE));
    }
    g_assert_true(stream_put(w, big, 200000));
    OK(stream_flush(w, &error));
    g_assert_cmpuint(c->bytes->len, ==, N * (8 + PAGE) + 200000);
    g_assert_cmpuint(stream_writer_total(w), ==, c->bytes->len);
    for (unsigned i = 0; i < N; i++) {
        const uint8_t *at = c->bytes->data + i * (8 + PAGE);
        g_assert_cmpuint(load_be64(at), ==, i);
        g_assert_cmpint(memcmp(at + 8, pages + i * PAGE, PAGE), ==, 0);
    }
    /* 2000 pages are 7.8 MiB; a system call for less than half a MiB would be too many of them. */
    g_assert_cmpuint(c->writes, <=, 20);
    channel_unref(&c->base);
}

static void test_write_error(void)
{
    char name[300];
    TestChannel *c = test_channel_new(NULL, 0, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(&c->base);

    c->fail_after = 3;
    g_assert_null(stream_writer_error(w));
    g_assert_true(stream_writer_check(w, NULL));
    g_assert_true(stream_put_be32(w, 1));
    FAILS("Unable to write to test: full", stream_flush(w, &error));
    c->fail_after = SIZE_MAX;
    g_assert_false(stream_put_u8(w, 1));
    g_assert_false(stream_put(w, "a", 1));
    g_assert_false(stream_put_nocopy(w, "a", 1));
    g_assert_false(stream_put_counted_string(w, "a"));
    FAILS("Unable to write to test: full", stream_flush(w, &error));
    FAILS("Unable to write to test: full", stream_writer_check(w, &error));
    g_assert_cmpuint(c->bytes->len, ==, 0);

    g_autoptr(StreamWriter) w2 = stream_writer_new(&c->base);
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    g_assert_false(stream_put_counted_string(w2, name));
    g_assert_nonnull(stream_writer_error(w2));

    g_autoptr(StreamWriter) w3 = stream_writer_new(&c->base);
    g_autoptr(GError) mine = g_error_new(GODWIT_ERROR, GODWIT_ERROR_FAILED, "mine");
    stream_writer_set_error(w3, mine);
    g_assert_false(stream_put_u8(w3, 1));
    FAILS("mine", stream_flush(w3, &error));
    channel_unref(&c->base);
}

/* ---- reader ---- */

static const uint8_t fields[] = {
    0x12, 0x12, 0x34, 0x12, 0x34, 0x56, 0x78, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0,
    3, 'r', 'a', 'm', 'x', 'y', 'S', 'K', 'I', 'P', '1', '2', '3',
};

/* Reads what is in fields; true if all of it was there. */
static bool read_fields(StreamReader *r)
{
    char name[256], buf[2], direct[3];

    bool same = stream_get_u8(r) == 0x12 && stream_get_be16(r) == 0x1234 &&
                stream_get_be32(r) == 0x12345678 && stream_get_be64(r) == 0x123456789abcdef0;
    bool ok = stream_get_counted_string(r, name) && stream_get(r, buf, 2) && stream_skip(r, 4) &&
              stream_get_direct(r, direct, 3);
    g_assert_cmpint(ok, ==, stream_reader_ok(r));
    if (ok) {
        g_assert_true(same);
        g_assert_cmpstr(name, ==, "ram");
        g_assert_cmpmem(buf, 2, "xy", 2);
        g_assert_cmpmem(direct, 3, "123", 3);
    }
    return ok;
}

static void test_read_fields(void)
{
    for (size_t max_read = 1; max_read < sizeof(fields) + 2; max_read++) {
        g_autoptr(StreamReader) r = reader_of(fields, sizeof(fields), max_read);
        g_assert_true(read_fields(r));
        g_assert_cmpuint(stream_reader_total(r), ==, sizeof(fields));
        OK(stream_reader_check(r, &error));
    }
}

static void test_read_truncated(void)
{
    for (size_t len = 0; len < sizeof(fields); len++) {
        g_autoptr(StreamReader) r = reader_of(fields, len, 1 + len % 5);
        char name[256] = "old";
        uint8_t byte;

        g_assert_false(read_fields(r));
        g_assert_error(stream_reader_error(r), GODWIT_ERROR, GODWIT_ERROR_EOF);
        FAILS("Unexpected end-of-file*", stream_reader_check(r, &error));
        /* It sticks. */
        g_assert_cmpuint(stream_get_u8(r), ==, 0);
        g_assert_cmpuint(stream_get_be64(r), ==, 0);
        g_assert_false(stream_get(r, &byte, 1));
        g_assert_false(stream_skip(r, 0));
        g_assert_false(stream_get_direct(r, &byte, 1));
        g_assert_false(stream_get_counted_string(r, name));
        g_assert_cmpstr(name, ==, "");
        g_assert_cmpint(stream_peek_u8(r, 0), ==, -1);
    }
}

static void test_read_string(void)
{
    static const uint8_t nul[] = { 3, 'a', 0, 'b', 7 };
    uint8_t longest[256];
    char name[256];

    g_autoptr(StreamReader) r = reader_of(nul, sizeof(nul), 0);
    g_assert_false(stream_get_counted_string(r, name));
    g_assert_error(stream_reader_error(r), GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
    g_assert_cmpuint(stream_get_u8(r), ==, 0);

    memset(longest, 'q', sizeof(longest));
    longest[0] = 255;
    g_autoptr(StreamReader) r2 = reader_of(longest, sizeof(longest), 0);
    g_assert_true(stream_get_counted_string(r2, name));
    g_assert_cmpuint(strlen(name), ==, 255);

    g_autoptr(StreamReader) r3 = reader_of("", 1, 0);
    g_assert_true(stream_get_counted_string(r3, name));
    g_assert_cmpstr(name, ==, "");
}

static void test_peek(void)
{
    uint8_t data[600];
    const uint8_t *buffered;

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = i % 251;
    }
    g_autoptr(StreamReader) r = reader_of(data, sizeof(data), 7);
    g_assert_cmpint(stream_peek_u8(r, 0), ==, 0);
    g_assert_cmpint(stream_peek_u8(r, 512), ==, 512 % 251);
    g_assert_cmpuint(stream_reader_total(r), ==, 0);
    g_assert_cmpuint(stream_buffered(r, &buffered), >=, 513);
    g_assert_cmpuint(buffered[300], ==, 300 % 251);
    g_assert_true(stream_skip(r, 598));
    g_assert_cmpint(stream_peek_u8(r, 1), ==, 599 % 251);
    /* Beyond the end is no failure: what is there can still be had. */
    g_assert_cmpint(stream_peek_u8(r, 2), ==, -1);
    g_assert_true(stream_reader_ok(r));
    g_assert_cmpuint(stream_get_be16(r), ==, (598 % 251) << 8 | 599 % 251);
    g_assert_cmpint(stream_peek_u8(r, 0), ==, -1);
    g_assert_true(stream_reader_ok(r));
    g_assert_cmpuint(stream_get_u8(r), ==, 0);
    g_assert_false(stream_reader_ok(r));
}

static void test_set_error(void)
{
    g_autoptr(GError) mine = g_error_new(GODWIT_ERROR, GODWIT_ERROR_FAILED, "mine");
    g_autoptr(StreamReader) r = reader_of("abc", 3, 0);

    g_assert_cmpuint(stream_get_u8(r), ==, 'a');
    stream_reader_set_error(r, mine);
    g_assert_cmpuint(stream_get_u8(r), ==, 0);
    FAILS("mine", stream_reader_check(r, &error));
}

/* ---- runs ---- */

#define WORD(i) (UINT64_C(0x123000) + (i) * PAGE + 0x28)

/* A stream of @n records that follow each other, the first without its word, then the byte 'E'. */
static GByteArray *run_stream(unsigned n, const uint8_t *bodies)
{
    GByteArray *a = g_byte_array_new();

    for (unsigned i = 0; i < n; i++) {
        be64 word = be64_make(WORD(i));
        if (i) {
            g_byte_array_append(a, word.b, 8);
        }
        g_byte_array_append(a, bodies + i * PAGE, PAGE);
    }
    g_byte_array_append(a, (const uint8_t *)"E", 1);
    return a;
}

static uint8_t *random_bodies(unsigned n)
{
    uint8_t *p = g_malloc(n * PAGE);

    for (size_t i = 0; i < n * PAGE; i++) {
        p[i] = g_test_rand_int();
    }
    return p;
}

/* Takes whole runs until all bodies are there; never may bytes beyond @touched change. */
static void check_run(unsigned n, unsigned room, size_t max_read, size_t streak)
{
    g_autofree uint8_t *bodies = random_bodies(n);
    g_autofree uint8_t *memory = g_malloc((room + 1) * PAGE);
    g_autoptr(GByteArray) stream = run_stream(n, bodies);
    g_autoptr(StreamReader) r = reader_of(stream->data, stream->len, max_read);

    for (unsigned i = 0; i < n;) {
        StreamRun run = { .dest = memory, .body = PAGE, .max = room, .streak = streak, .word = WORD(i) };
        memset(memory, 0xee, (room + 1) * PAGE);
        size_t taken = stream_get_run(r, &run);

        g_assert_cmpuint(taken, >=, 1);
        g_assert_cmpuint(taken, <=, MIN(room, n - i));
        g_assert_cmpuint(run.touched, >=, taken);
        g_assert_cmpuint(run.touched, <=, room);
        g_assert_cmpint(memcmp(memory, bodies + i * PAGE, taken * PAGE), ==, 0);
        for (size_t j = run.touched * PAGE; j < (room + 1) * PAGE; j++) {
            g_assert_cmpuint(memory[j], ==, 0xee);
        }
        i += taken;
        if (i < n) {
            g_assert_cmpuint(stream_get_be64(r), ==, WORD(i));
        }
        g_assert_cmpuint(stream_reader_total(r), ==, (i < n ? i : n - 1) * 8 + i * PAGE);
    }
    g_assert_cmpuint(stream_get_u8(r), ==, 'E');
    g_assert_cmpint(stream_peek_u8(r, 0), ==, -1);
}

static void test_run_right(void)
{
    static const size_t reads[] = { 0, 1000, 4096, 4104, 4105, 5000, 100000, 10000000 };

    for (size_t i = 0; i < G_N_ELEMENTS(reads); i++) {
        check_run(1, 1, reads[i], 0);
        check_run(1, 5, reads[i], 10);
        check_run(7, 7, reads[i], 0);
        check_run(40, 64, reads[i], 3);
        check_run(600, 600, reads[i], 1);
        check_run(600, 100, reads[i], 1000);
    }
    check_run(3, 4, 1, 4);
}

/* Records of which every word may be wrong: what a run leaves must come again, byte for byte. */
static void check_run_wrong(size_t max_read)
{
    enum { N = 120 };
    g_autofree uint8_t *bodies = random_bodies(N);
    g_autofree uint8_t *memory = g_malloc(N * PAGE);
    g_autoptr(GByteArray) stream = g_byte_array_new();
    uint64_t words[N];

    for (unsigned i = 0; i < N; i++) {
        words[i] = WORD(i) + (g_test_rand_int_range(0, 8) ? 0 : 1 + g_test_rand_int_range(0, 100));
        be64 word = be64_make(words[i]);
        g_byte_array_append(stream, word.b, 8);
        g_byte_array_append(stream, bodies + i * PAGE, PAGE);
    }
    g_autoptr(StreamReader) r = reader_of(stream->data, stream->len, max_read);
    for (unsigned i = 0; i < N;) {
        g_assert_cmpuint(stream_get_be64(r), ==, words[i]);
        StreamRun run = { .dest = memory, .body = PAGE, .max = N - i, .streak = g_test_rand_int_range(0, 50),
                          .word = WORD(i) };
        size_t taken = stream_get_run(r, &run);
        g_assert_cmpuint(taken, >=, 1);
        g_assert_cmpint(memcmp(memory, bodies + i * PAGE, taken * PAGE), ==, 0);
        for (unsigned j = i + 1; j < i + taken; j++) {
            g_assert_cmpuint(words[j], ==, WORD(j));
        }
        i += taken;
    }
    g_assert_cmpint(stream_peek_u8(r, 0), ==, -1);
}

static void test_run_wrong(void)
{
    for (unsigned i = 0; i < 30; i++) {
        check_run_wrong(0);
    }
    check_run_wrong(4104);
    check_run_wrong(4100);
    check_run_wrong(10000000);
}

static void test_run_truncated(void)
{
    enum { N = 5 };
    g_autofree uint8_t *bodies = random_bodies(N);
    g_autofree uint8_t *memory = g_malloc(N * PAGE);
    g_autoptr(GByteArray) stream = run_stream(N, bodies);

    for (size_t len = 0; len < stream->len - 1; len += 1 + g_test_rand_int_range(0, 60)) {
        g_autoptr(StreamReader) r = reader_of(stream->data, len, 0);
        size_t i = 0;
        for (;;) {
            StreamRun run = { .dest = memory, .body = PAGE, .max = N - i, .streak = 2, .word = WORD(i) };
            size_t taken = stream_get_run(r, &run);
            i += taken;
            if (!taken || stream_get_be64(r) != WORD(i)) {
                break;
            }
        }
        g_assert_error(stream_reader_error(r), GODWIT_ERROR, GODWIT_ERROR_EOF);
        g_assert_cmpuint(i, <=, (len + 8) / (8 + PAGE));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/stream/write/fields", test_write_fields);
    g_test_add_func("/stream/write/long", test_write_long);
    g_test_add_func("/stream/write/error", test_write_error);
    g_test_add_func("/stream/read/fields", test_read_fields);
    g_test_add_func("/stream/read/truncated", test_read_truncated);
    g_test_add_func("/stream/read/string", test_read_string);
    g_test_add_func("/stream/read/peek", test_peek);
    g_test_add_func("/stream/read/set-error", test_set_error);
    g_test_add_func("/stream/run/right", test_run_right);
    g_test_add_func("/stream/run/wrong", test_run_wrong);
    g_test_add_func("/stream/run/truncated", test_run_truncated);
    return g_test_run();
}
