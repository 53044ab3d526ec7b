/* SPDX-License-Identifier: BSD-2-Clause */
/* Return path messages: each type, and what is refused. */
#include "io/transport.h"
#include "migration/return-path.h"
#include "stream-builder.h"
#include "util/error.h"

#include <string.h>

static int read_bytes(const void *data, size_t len, ReturnPathMessage *msg, GError **errp)
{
    g_autoptr(Channel) channel = channel_buffer_new(data, len);
    return return_path_read(channel, msg, errp);
}

#define READ(msg, ...) \
    ({ \
        static const uint8_t bytes[] = { __VA_ARGS__ }; \
        g_autoptr(GError) error = NULL; \
        int got = read_bytes(bytes, sizeof(bytes), msg, &error); \
        g_assert_no_error(error); \
        g_assert_cmpint(got, ==, 1); \
    })

static void test_types(void)
{
    ReturnPathMessage msg;

    READ(&msg, 0, 1, 0, 4, 0, 0, 0, 0);
    g_assert_cmpint(msg.type, ==, RETURN_PATH_SHUT);
    g_assert_cmpuint(msg.value, ==, 0);

    READ(&msg, 0, 2, 0, 4, 0, 0, 0, 1);
    g_assert_cmpint(msg.type, ==, RETURN_PATH_PONG);
    g_assert_cmpuint(msg.value, ==, 1);

    /* As captured: page at 0xa00000 of m0, then 0xe01000 of the same block. */
    READ(&msg, 0, 3, 0, 15, 0, 0, 0, 0, 0, 0xa0, 0, 0, 0, 0, 0x10, 0, 2, 'm', '0');
    g_assert_cmpint(msg.type, ==, RETURN_PATH_REQ_PAGES_ID);
    g_assert_cmpuint(msg.offset, ==, 0xa00000);
    g_assert_cmpuint(msg.length, ==, 4096);
    g_assert_cmpstr(msg.block, ==, "m0");

    READ(&msg, 0, 4, 0, 12, 0, 0, 0, 0, 0, 0xe0, 0x10, 0, 0, 0, 0x10, 0);
    g_assert_cmpint(msg.type, ==, RETURN_PATH_REQ_PAGES);
    g_assert_cmpuint(msg.offset, ==, 0xe01000);
    g_assert_false(msg.has_block);

    READ(&msg, 0, 5, 0, 3, 2, 'm', '0');
    g_assert_cmpint(msg.type, ==, RETURN_PATH_RECV_BITMAP);
    g_assert_cmpstr(msg.block, ==, "m0");

    READ(&msg, 0, 6, 0, 4, 0, 0, 0, 1);
    g_assert_cmpint(msg.type, ==, RETURN_PATH_RESUME_ACK);

    READ(&msg, 0, 7, 0, 0);
    g_assert_cmpint(msg.type, ==, RETURN_PATH_SWITCHOVER_ACK);
}

static void test_end(void)
{
    ReturnPathMessage msg;
    g_autoptr(GError) error = NULL;

    g_assert_cmpint(read_bytes("", 0, &msg, &error), ==, 0);
    g_assert_no_error(error);
}

static void test_refused(void)
{
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
#define CASE(text) { text, sizeof(text) - 1 }
        CASE("\0\0\0\0"),                           /* type 0 */
        CASE("\0\x08\0\0"),                         /* type beyond the last */
        CASE("\xff\xff\0\0"),
        CASE("\0\x01\0\x05" "\0\0\0\0\0"),          /* SHUT with 5 bytes */
        CASE("\0\x01\0\0"),                         /* SHUT with none */
        CASE("\0\x07\0\x01" "\0"),                  /* SWITCHOVER_ACK with one */
        CASE("\0\x04\0\x0b" "\0\0\0\0\0\0\0\0\0\0\0"),  /* REQ_PAGES short */
        CASE("\0\x03\0\x0c" "\0\0\0\0\0\0\0\0\0\0\0\0"),    /* REQ_PAGES_ID without name */
        CASE("\0\x03\x02\x01"),                     /* 513 bytes announced */
        CASE("\0\x05\0\x03" "\x03m0"),              /* name longer than the payload */
        CASE("\0\x05\0\x04" "\x02m0x"),             /* bytes after the name */
        CASE("\0\x05\0\x03" "\x02m\0"),             /* NUL in the name */
        CASE("\0\x05\0\0"),                         /* RECV_BITMAP without name */
#undef CASE
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        ReturnPathMessage msg;
        g_autoptr(GError) error = NULL;
        g_assert_cmpint(read_bytes(cases[i].bytes, cases[i].len, &msg, &error), ==, -1);
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
    }
}

static void test_truncated(void)
{
    static const uint8_t bytes[] = { 0, 3, 0, 15, 0, 0, 0, 0, 0, 0xa0, 0, 0, 0, 0, 0x10, 0, 2, 'm', '0' };
    for (size_t len = 1; len < sizeof(bytes); len++) {
        ReturnPathMessage msg;
        g_autoptr(GError) error = NULL;
        g_assert_cmpint(read_bytes(bytes, len, &msg, &error), ==, -1);
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_EOF);
    }
}

static void test_write(void)
{
    g_autoptr(Channel) channel = channel_buffer_new(NULL, 0);
    static const uint8_t expected[] = {
        0, 7, 0, 0,
        0, 2, 0, 4, 0, 0, 0, 1,
        0, 1, 0, 4, 0, 0, 0, 0,
    };
    g_assert_true(return_path_write(channel, RETURN_PATH_SWITCHOVER_ACK, 0, NULL));
    g_assert_true(return_path_write(channel, RETURN_PATH_PONG, 1, NULL));
    g_assert_true(return_path_write(channel, RETURN_PATH_SHUT, 0, NULL));
    const GByteArray *bytes = channel_buffer_bytes(channel);
    g_assert_cmpmem(bytes->data, bytes->len, expected, sizeof(expected));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/return-path/types", test_types);
    g_test_add_func("/return-path/end", test_end);
    g_test_add_func("/return-path/refused", test_refused);
    g_test_add_func("/return-path/truncated", test_truncated);
    g_test_add_func("/return-path/write", test_write);
    return g_test_run();
}
