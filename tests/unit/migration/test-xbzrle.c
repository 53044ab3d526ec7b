/* SPDX-License-Identifier: BSD-2-Clause */
/* XBZRLE: the exact bytes, all bounds of the decoder, and the cache's rules. */
#include <string.h>

#include "migration/xbzrle.h"
#include "ram-test.h"

static uint8_t old_page[PAGE], new_page[PAGE];
static uint8_t out[XBZRLE_MAX_ENCODED];

static void reset(void)
{
    memset(old_page, 0x11, PAGE);
    memset(new_page, 0x11, PAGE);
}

static void check_encoded(const uint8_t *expected, size_t len)
{
    uint8_t page[PAGE];
    int n = xbzrle_encode(old_page, new_page, out);

    g_assert_cmpint(n, ==, len);
    g_assert_cmpmem(out, n, expected, len);
    memcpy(page, old_page, PAGE);
    OK(xbzrle_decode(out, n, page, &error));
    g_assert_cmpmem(page, PAGE, new_page, PAGE);
}

/* The examples of the format's description. */
static void test_examples(void)
{
    reset();
    new_page[0] = 0x26;
    check_encoded((const uint8_t[]){ 0x00, 0x01, 0x26 }, 3);

    reset();
    new_page[PAGE - 1] = 0x26;
    check_encoded((const uint8_t[]){ 0xff, 0x1f, 0x01, 0x26 }, 4);

    reset();
    uint8_t run[203] = { 0x64, 0xc8, 0x01 };
    memset(new_page + 100, 0x77, 200);
    memset(run + 3, 0x77, 200);
    check_encoded(run, sizeof(run));

    reset();
    memcpy(new_page + 16, "abc\x11" "def", 7);
    check_encoded((const uint8_t[]){ 0x10, 0x03, 'a', 'b', 'c', 0x01, 0x03, 'd', 'e', 'f' }, 10);

    reset();
    g_assert_cmpint(xbzrle_encode(old_page, new_page, out), ==, 0);
}

/* 128 is the first length of two bytes. */
static void test_lengths(void)
{
    reset();
    memset(new_page + 127, 0x55, 127);
    uint8_t short_run[129] = { 127, 127 };
    memset(short_run + 2, 0x55, 127);
    check_encoded(short_run, sizeof(short_run));

    reset();
    memset(new_page + 128, 0x55, 128);
    uint8_t long_run[132] = { 0x80, 0x01, 0x80, 0x01 };
    memset(long_run + 4, 0x55, 128);
    check_encoded(long_run, sizeof(long_run));
}

static void test_overflow(void)
{
    /* Everything differs: 1 + 2 + 4096 bytes. */
    reset();
    memset(new_page, 0x22, PAGE);
    g_assert_cmpint(xbzrle_encode(old_page, new_page, out), ==, XBZRLE_OVERFLOW);

    /* 1 + 2 + 4093 fit exactly, but then there is no room to ask for the next length. */
    reset();
    memset(new_page, 0x22, 4093);
    g_assert_cmpint(xbzrle_encode(old_page, new_page, out), ==, XBZRLE_OVERFLOW);

    /* A run up to the end of the page needs no room after it: 2 + 2 + 4092. */
    reset();
    memset(new_page + 4, 0x22, 4092);
    g_assert_cmpint(xbzrle_encode(old_page, new_page, out), ==, 1 + 2 + 4092);
    reset();
    memset(new_page + 3, 0x22, 4093);
    g_assert_cmpint(xbzrle_encode(old_page, new_page, out), ==, XBZRLE_MAX_ENCODED);
    reset();
    memset(new_page + 2, 0x22, 4094);
    g_assert_cmpint(xbzrle_encode(old_page, new_page, out), ==, XBZRLE_OVERFLOW);

    /* Every second byte: 3 bytes for 2, 1365 pairs fill 4095. */
    reset();
    for (unsigned i = 0; i < PAGE; i += 2) {
        new_page[i] = 0x22;
    }
    g_assert_cmpint(xbzrle_encode(old_page, new_page, out), ==, XBZRLE_OVERFLOW);
    reset();
    for (unsigned i = 0; i < 1364 * 2; i += 2) {
        new_page[i] = 0x22;
    }
    g_assert_cmpint(xbzrle_encode(old_page, new_page, out), ==, 1364 * 3);
}

static void test_random(void)
{
    unsigned encoded = 0, overflows = 0;

    for (unsigned round = 0; round < 3000; round++) {
        uint8_t page[PAGE];
        unsigned changes = 1u << g_test_rand_int_range(0, 10);

        for (unsigned i = 0; i < PAGE; i++) {
            old_page[i] = g_test_rand_int() & 3;
        }
        memcpy(new_page, old_page, PAGE);
        for (unsigned i = 0; i < changes; i++) {
            unsigned at = g_test_rand_int_range(0, PAGE);
            unsigned len = 1u << g_test_rand_int_range(0, 8);
            len = MIN(PAGE - at, len);
            for (unsigned j = 0; j < len; j++) {
                new_page[at + j] = g_test_rand_int() & 3;
            }
        }
        int n = xbzrle_encode(old_page, new_page, out);
        if (n == XBZRLE_OVERFLOW) {
            overflows++;
            continue;
        }
        encoded++;
        g_assert_cmpint(n == 0, ==, !memcmp(old_page, new_page, PAGE));
        memcpy(page, old_page, PAGE);
        OK(xbzrle_decode(out, n, page, &error));
        g_assert_cmpmem(page, PAGE, new_page, PAGE);
    }
    g_assert_cmpuint(encoded, >, 100);
    g_assert_cmpuint(overflows, >, 100);
}

/*
 * Each is refused, whatever comes before; the page is the middle of three, of which the outer ones must
 * not change.
 */
static void test_decoder_bounds(void)
{
    static const struct {
        size_t len;
        uint8_t data[8];
    } bad[] = {
        { 1, { 0x00 } },                                /* no nzrun */
        { 1, { 0x80 } },                                /* half a length */
        { 2, { 0x00, 0x01 } },                          /* no data */
        { 3, { 0x00, 0x02, 0x26 } },                    /* data cut short */
        { 2, { 0x00, 0x80 } },                          /* half a length */
        { 3, { 0x80, 0x80, 0x01 } },                    /* three-byte length */
        { 4, { 0x00, 0x80, 0x80, 0x01 } },
        { 3, { 0x00, 0x00, 0x26 } },                    /* empty nzrun */
        { 6, { 0x00, 0x01, 0x26, 0x00, 0x01, 0x27 } },  /* empty zrun that is not the first */
        { 4, { 0x80, 0x20, 0x01, 0x26 } },              /* zrun 4096: nothing can follow */
        { 4, { 0xff, 0x7f, 0x01, 0x26 } },              /* zrun 16383 */
        { 5, { 0xff, 0x1f, 0x02, 0x26, 0x27 } },        /* 4095 + 2 */
        { 4, { 0x00, 0xff, 0x7f, 0x26 } },              /* nzrun 16383 */
    };
    uint8_t memory[3 * PAGE], expected[3 * PAGE];

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        memset(memory, 0x11, sizeof(memory));
        FAILS("XBZRLE data of a page is malformed: *",
              xbzrle_decode(bad[i].data, bad[i].len, memory + PAGE, &error));
        memset(expected, 0x11, sizeof(expected));
        g_assert_cmpmem(memory, PAGE, expected, PAGE);
        g_assert_cmpmem(memory + 2 * PAGE, PAGE, expected, PAGE);
    }

    memset(memory, 0x11, sizeof(memory));
    OK(xbzrle_decode(NULL, 0, memory + PAGE, &error));
    g_assert_cmpmem(memory, sizeof(memory), expected, sizeof(expected));
}

/* Any prefix of a good encoding is either good itself or refused. */
static void test_decoder_truncated(void)
{
    reset();
    memcpy(new_page + 16, "abc\x11" "def", 7);
    memset(new_page + 1000, 0x99, 300);
    int n = xbzrle_encode(old_page, new_page, out);
    unsigned good = 0;

    for (int len = 0; len < n; len++) {
        uint8_t page[PAGE];
        g_autofree uint8_t *exact = len ? g_memdup2(out, len) : g_malloc(1);
        memcpy(page, old_page, PAGE);
        good += xbzrle_decode(exact, len, page, NULL);
    }
    /* After nothing, after the first pair, and after the second. */
    g_assert_cmpuint(good, ==, 3);
}

/* ---- cache ---- */

static void fill(uint8_t byte)
{
    memset(new_page, byte, PAGE);
}

static void test_cache(void)
{
    GError *no_error = NULL;
    g_autoptr(XbzrleCache) cache = xbzrle_cache_new(4 * PAGE, &no_error);

    g_assert_no_error(no_error);
    g_assert_cmpuint(xbzrle_cache_bytes(cache), ==, 4 * PAGE);
    g_assert_null(xbzrle_cache_lookup(cache, 0, 1));
    fill(1);
    g_assert_true(xbzrle_cache_insert(cache, 1, new_page, 1));
    g_assert_cmpmem(xbzrle_cache_lookup(cache, 1, 1), PAGE, new_page, PAGE);
    g_assert_null(xbzrle_cache_lookup(cache, 5, 1));

    /* Page 5 has the same slot: refused until page 1 has not been used for two generations. */
    fill(5);
    g_assert_false(xbzrle_cache_insert(cache, 5, new_page, 1));
    g_assert_false(xbzrle_cache_insert(cache, 5, new_page, 2));
    g_assert_nonnull(xbzrle_cache_lookup(cache, 1, 2));
    g_assert_false(xbzrle_cache_insert(cache, 5, new_page, 3));
    g_assert_true(xbzrle_cache_insert(cache, 5, new_page, 4));
    g_assert_null(xbzrle_cache_lookup(cache, 1, 4));
    g_assert_cmpmem(xbzrle_cache_lookup(cache, 5, 4), PAGE, new_page, PAGE);

    /* The same page may always be replaced. */
    fill(6);
    g_assert_true(xbzrle_cache_insert(cache, 5, new_page, 4));
    g_assert_cmpmem(xbzrle_cache_lookup(cache, 5, 4), PAGE, new_page, PAGE);
}

static void test_cache_resize(void)
{
    g_autoptr(XbzrleCache) cache = xbzrle_cache_new(4 * PAGE, NULL);

    for (unsigned i = 0; i < 4; i++) {
        fill(i + 1);
        g_assert_true(xbzrle_cache_insert(cache, i, new_page, i + 1));
    }
    OK(xbzrle_cache_resize(cache, 64 * PAGE, &error));
    g_assert_cmpuint(xbzrle_cache_bytes(cache), ==, 64 * PAGE);
    for (unsigned i = 0; i < 4; i++) {
        fill(i + 1);
        g_assert_cmpmem(xbzrle_cache_lookup(cache, i, i + 1), PAGE, new_page, PAGE);
    }
    fill(9);
    g_assert_true(xbzrle_cache_insert(cache, 4, new_page, 5));

    /* Two slots: 0, 2 and 4 meet, and 1 and 3; the younger stay. */
    OK(xbzrle_cache_resize(cache, 2 * PAGE, &error));
    g_assert_nonnull(xbzrle_cache_lookup(cache, 4, 5));
    fill(4);
    g_assert_cmpmem(xbzrle_cache_lookup(cache, 3, 5), PAGE, new_page, PAGE);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_null(xbzrle_cache_lookup(cache, i, 5));
    }

    FAILS("*not a power of two*", xbzrle_cache_resize(cache, 3 * PAGE, &error));
    FAILS("*not a power of two*", xbzrle_cache_resize(cache, 2048, &error));
    FAILS("*not a power of two*", xbzrle_cache_resize(cache, 0, &error));
    FAILS("Unable to allocate*", xbzrle_cache_resize(cache, UINT64_C(1) << 62, &error));
    g_assert_cmpuint(xbzrle_cache_bytes(cache), ==, 2 * PAGE);
    g_assert_nonnull(xbzrle_cache_lookup(cache, 3, 5));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/xbzrle/examples", test_examples);
    g_test_add_func("/xbzrle/lengths", test_lengths);
    g_test_add_func("/xbzrle/overflow", test_overflow);
    g_test_add_func("/xbzrle/random", test_random);
    g_test_add_func("/xbzrle/decoder/bounds", test_decoder_bounds);
    g_test_add_func("/xbzrle/decoder/truncated", test_decoder_truncated);
    g_test_add_func("/xbzrle/cache", test_cache);
    g_test_add_func("/xbzrle/cache/resize", test_cache_resize);
    return g_test_run();
}
