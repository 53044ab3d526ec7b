/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the bounded reader. */
#include "util/error.h"
#include "util/reader.h"

#include <string.h>

static const uint8_t all[] = {
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    2, 'o', 'k', 0xaa, 0xbb,
};

/* Reads the whole structure from its first @len bytes, in memory of exactly that size. */
static bool read_structure(size_t len, bool whole, GError **errp)
{
    g_autofree uint8_t *copy = g_malloc(MAX(len, 1));
    char name[256];
    Reader r;

    memcpy(copy, all, len);
    reader_init(&r, copy, len);
    uint8_t a = reader_u8(&r, "a");
    uint16_t b = reader_be16(&r, "b");
    uint32_t c = reader_be32(&r, "c");
    uint64_t d = reader_be64(&r, "d");
    bool has_name = reader_counted_string(&r, name, "name");
    const uint8_t *tail = reader_bytes(&r, 2, "tail");

    if (!reader_finish(&r, whole, "thing", errp)) {
        g_assert_cmpuint(reader_left(&r), <=, len);
        return false;
    }
    g_assert_cmphex(a, ==, 0x01);
    g_assert_cmphex(b, ==, 0x0203);
    g_assert_cmphex(c, ==, 0x04050607);
    g_assert_cmphex(d, ==, 0x08090a0b0c0d0e0fULL);
    g_assert_true(has_name);
    g_assert_cmpstr(name, ==, "ok");
    g_assert_cmphex(tail[0] << 8 | tail[1], ==, 0xaabb);
    return true;
}

static void test_truncated(void)
{
    static const struct { size_t len; const char *message; } cases[] = {
        { 0, "thing: a is cut off (at byte 0 of 0)" },
        { 2, "thing: b is cut off (at byte 1 of 2)" },
        { 6, "thing: c is cut off (at byte 3 of 6)" },
        { 14, "thing: d is cut off (at byte 7 of 14)" },
        { 15, "thing: name is cut off (at byte 15 of 15)" },
        { 17, "thing: name is cut off (at byte 16 of 17)" },
        { 19, "thing: tail is cut off (at byte 18 of 19)" },
    };

    for (size_t len = 0; len < sizeof(all); len++) {
        g_autoptr(GError) err = NULL;

        g_assert_false(read_structure(len, true, &err));
        g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
        for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
            if (cases[i].len == len) {
                g_assert_cmpstr(err->message, ==, cases[i].message);
            }
        }
    }
    g_assert_true(read_structure(sizeof(all), true, NULL));
}

static void test_left_over(void)
{
    g_autoptr(GError) err = NULL;
    Reader r;

    reader_init(&r, all, sizeof(all));
    reader_be16(&r, "x");
    g_assert_true(reader_finish(&r, false, "thing", NULL));
    g_assert_cmpuint(reader_left(&r), ==, sizeof(all) - 2);
    g_assert_false(reader_finish(&r, true, "thing", &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
}

/* After a failure everything reads as zero, although bytes are left. */
static void test_sticky(void)
{
    char name[256] = "x";
    Reader r;

    reader_init(&r, all, 5);
    g_assert_null(reader_bytes(&r, SIZE_MAX, "huge"));
    g_assert_cmpuint(reader_u8(&r, "u8"), ==, 0);
    g_assert_cmpuint(reader_be64(&r, "be64"), ==, 0);
    g_assert_null(reader_bytes(&r, 0, "nothing"));
    g_assert_false(reader_counted_string(&r, name, "name"));
    g_assert_cmpstr(name, ==, "");

    g_autoptr(GError) err = NULL;
    g_assert_false(reader_finish(&r, false, "t", &err));
    g_assert_cmpstr(err->message, ==, "t: huge is cut off (at byte 0 of 5)");
}

static void test_string(void)
{
    uint8_t data[256];
    char out[256];
    g_autoptr(GError) err = NULL;
    Reader r;

    memset(data, 'x', sizeof(data));
    data[0] = 255;
    reader_init(&r, data, sizeof(data));
    g_assert_true(reader_counted_string(&r, out, "name"));
    g_assert_cmpuint(strlen(out), ==, 255);

    data[100] = '\0';
    reader_init(&r, data, sizeof(data));
    g_assert_false(reader_counted_string(&r, out, "name"));
    g_assert_false(reader_finish(&r, false, "t", &err));
    g_assert_cmpstr(err->message, ==, "t: name holds a NUL byte (at byte 256 of 256)");

    reader_init(&r, "\0", 1);
    g_assert_true(reader_counted_string(&r, out, "name"));
    g_assert_cmpstr(out, ==, "");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/reader/truncated", test_truncated);
    g_test_add_func("/reader/left-over", test_left_over);
    g_test_add_func("/reader/sticky", test_sticky);
    g_test_add_func("/reader/string", test_string);
    return g_test_run();
}
