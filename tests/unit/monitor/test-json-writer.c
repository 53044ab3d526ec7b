/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON text as QMP clients expect it, plain and pretty. */
#include "monitor/json-writer.h"
#include "qapi/json-number.h"

static void assert_written(json_t *value, bool pretty, const char *expected)
{
    g_autoptr(GString) text = g_string_new(NULL);

    json_writer_append(text, value, pretty);
    g_assert_cmpstr(text->str, ==, expected);
    json_decref(value);
}

static void test_separators(void)
{
    assert_written(json_pack("{s:[i, i], s:{}, s:[], s:b, s:n}", "a", 1, 2, "o", "l", "b", 1, "z"), false,
                   "{\"a\": [1, 2], \"o\": {}, \"l\": [], \"b\": true, \"z\": null}");
}

static void test_pretty(void)
{
    assert_written(json_pack("{s:[i, {s:i}], s:{}, s:[]}", "a", 1, "b", 2, "o", "l"), true,
                   "{\n"
                   "    \"a\": [\n"
                   "        1,\n"
                   "        {\n"
                   "            \"b\": 2\n"
                   "        }\n"
                   "    ],\n"
                   "    \"o\": {\n"
                   "    },\n"
                   "    \"l\": [\n"
                   "    ]\n"
                   "}");
}

static void test_numbers(void)
{
    assert_written(json_integer(INT64_MIN), false, "-9223372036854775808");
    assert_written(qapi_json_from_uint64(INT64_MAX), false, "9223372036854775807");
    assert_written(qapi_json_from_uint64((uint64_t)INT64_MAX + 1), false, "9223372036854775808");
    assert_written(qapi_json_from_uint64(UINT64_MAX), false, "18446744073709551615");
    assert_written(json_real(0.1), false, "0.10000000000000001");
    assert_written(json_real(1.0), false, "1");
    assert_written(json_real(1000.0), false, "1000");
    assert_written(json_real(1e300), false, "1.0000000000000001e+300");
}

static void test_strings(void)
{
    assert_written(json_string("\b\f\n\r\t\"\\/'"), false, "\"\\b\\f\\n\\r\\t\\\"\\\\/'\"");
    assert_written(json_string("\001\037\177"), false, "\"\\u0001\\u001F\\u007F\"");
    assert_written(json_string("\xc3\xa9\xf0\x9f\x98\x80"), false, "\"\\u00E9\\uD83D\\uDE00\"");
    assert_written(json_stringn("a\0b", 3), false, "\"a\\u0000b\"");
    assert_written(json_string_nocheck("a\xc0\x80z"), false, "\"a\\u0000z\"");
    assert_written(json_string_nocheck("a\x80\xc3"), false, "\"a\\uFFFD\\uFFFD\"");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/json-writer/separators", test_separators);
    g_test_add_func("/json-writer/pretty", test_pretty);
    g_test_add_func("/json-writer/numbers", test_numbers);
    g_test_add_func("/json-writer/strings", test_strings);
    return g_test_run();
}
