/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of sizes and integers as people type them. */
#include "util/size-text.h"

#include <glib.h>

#define MIB (UINT64_C(1) << 20)

static void test_sizes(void)
{
    static const struct {
        const char *text;
        uint64_t unit;
        NumberTextVerdict verdict;
        uint64_t value;
    } rows[] = {
        { "0", 1, NUMBER_TEXT_OK, 0 },
        { "4096", 1, NUMBER_TEXT_OK, 4096 },
        { "16", MIB, NUMBER_TEXT_OK, 16777216 },
        { "4k", MIB, NUMBER_TEXT_OK, 4096 },
        { "7b", MIB, NUMBER_TEXT_OK, 7 },
        { "7B", MIB, NUMBER_TEXT_OK, 7 },
        { "1.5", MIB, NUMBER_TEXT_OK, 1572864 },
        { "1.5G", 1, NUMBER_TEXT_OK, 1610612736 },
        { ".5k", 1, NUMBER_TEXT_OK, 512 },
        { "2.", 1, NUMBER_TEXT_OK, 2 },
        { "1.0", 1, NUMBER_TEXT_OK, 1 },
        { "0.0001k", 1, NUMBER_TEXT_OK, 0 },
        { " +5", 1, NUMBER_TEXT_OK, 5 },
        { "010", 1, NUMBER_TEXT_OK, 10 },
        { "0x10", 1, NUMBER_TEXT_OK, 16 },
        { "0X10", MIB, NUMBER_TEXT_OK, 16777216 },
        { "15E", 1, NUMBER_TEXT_OK, UINT64_C(15) << 60 },
        { "18446744073709551615", 1, NUMBER_TEXT_OK, UINT64_MAX },
        { "18446744073709551616", 1, NUMBER_TEXT_OUT_OF_RANGE, 0 },
        { "0x10000000000000000", 1, NUMBER_TEXT_OUT_OF_RANGE, 0 },
        { "17592186044416", MIB, NUMBER_TEXT_OUT_OF_RANGE, 0 },
        { "16E", 1, NUMBER_TEXT_OUT_OF_RANGE, 0 },
        { "15.9999E", 1, NUMBER_TEXT_OK, UINT64_C(15) << 60 | 0xfff972474538ef3 },
        { "-1", 1, NUMBER_TEXT_OUT_OF_RANGE, 0 },
        { "-0", 1, NUMBER_TEXT_OUT_OF_RANGE, 0 },
        { "-1x", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "-0x1", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "-", 1, NUMBER_TEXT_MALFORMED, 0 },
        { ".", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "k", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "1 ", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "1kB", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "1.5", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "1.5B", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "0x", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "0x1k", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "0x1.8", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "1e3", 1, NUMBER_TEXT_MALFORMED, 0 },
        { "1-", 1, NUMBER_TEXT_MALFORMED, 0 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        uint64_t value = 12345;

        g_test_message("'%s'", rows[i].text);
        g_assert_cmpint(size_text_parse(rows[i].text, rows[i].unit, &value), ==, rows[i].verdict);
        if (rows[i].verdict == NUMBER_TEXT_OK && rows[i].value >> 60) {
            /* A fraction is a double: exact to 53 bits. */
            g_assert_cmpuint(value >> 12, ==, rows[i].value >> 12);
        } else {
            g_assert_cmpuint(value, ==, rows[i].verdict == NUMBER_TEXT_OK ? rows[i].value : 12345);
        }
    }
}

static void test_integers(void)
{
    static const struct {
        const char *text;
        NumberTextVerdict verdict;
        uint64_t value;
    } rows[] = {
        { "0", NUMBER_TEXT_OK, 0 },
        { "010", NUMBER_TEXT_OK, 8 },
        { "0x1F", NUMBER_TEXT_OK, 31 },
        { "  +5", NUMBER_TEXT_OK, 5 },
        { "-1", NUMBER_TEXT_OK, UINT64_MAX },
        { "18446744073709551615", NUMBER_TEXT_OK, UINT64_MAX },
        { "18446744073709551616", NUMBER_TEXT_OUT_OF_RANGE, 0 },
        { "", NUMBER_TEXT_MALFORMED, 0 },
        { "5k", NUMBER_TEXT_MALFORMED, 0 },
        { "5 ", NUMBER_TEXT_MALFORMED, 0 },
        { "0x", NUMBER_TEXT_MALFORMED, 0 },
        { "08", NUMBER_TEXT_MALFORMED, 0 },
        { "5.0", NUMBER_TEXT_MALFORMED, 0 },
        { "- 5", NUMBER_TEXT_MALFORMED, 0 },
        { "+-5", NUMBER_TEXT_MALFORMED, 0 },
        { "abc", NUMBER_TEXT_MALFORMED, 0 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        uint64_t value = 12345;

        g_test_message("'%s'", rows[i].text);
        g_assert_cmpint(integer_text_parse(rows[i].text, &value), ==, rows[i].verdict);
        g_assert_cmpuint(value, ==, rows[i].verdict == NUMBER_TEXT_OK ? rows[i].value : 12345);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/size-text/sizes", test_sizes);
    g_test_add_func("/size-text/integers", test_integers);
    return g_test_run();
}
