/* SPDX-License-Identifier: BSD-2-Clause */
/* The QMP dialect of JSON: values, errors with their places, recovery, limits. */
#include "monitor/json-parser.h"
#include "monitor/json-writer.h"
#include "qapi/json-number.h"
#include "util/error.h"

#include <string.h>

/*
 * What comes out of @text, read @step bytes at a time: one line for each value ("V JSON") and error ("E
 * MESSAGE").
 */
static char *parse_all(const char *text, size_t len, size_t step)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    GString *out = g_string_new(NULL);

    for (size_t at = 0; at < len; at += step) {
        const char *data = text + at;
        size_t left = MIN(step, len - at);
        for (;;) {
            json_t *value = NULL;
            g_autoptr(GError) err = NULL;
            JsonParserResult result = json_parser_next(parser, &data, &left, &value, &err);
            if (result == JSON_PARSER_MORE) {
                g_assert_cmpuint(left, ==, 0);
                break;
            }
            if (result == JSON_PARSER_VALUE) {
                g_assert_no_error(err);
                g_string_append(out, "V ");
                json_writer_append(out, value, false);
                json_decref(value);
            } else {
                g_assert_true(err && err->domain == GODWIT_ERROR);
                g_string_append_printf(out, "E %s", err->message);
            }
            g_string_append_c(out, '\n');
        }
    }
    return g_string_free(out, false);
}

/* Whatever the pieces, the outcome is the same. */
static void assert_outcome(const char *text, size_t len, const char *expected)
{
    static const size_t steps[] = { 1, 2, 3, 7, 1 << 30 };

    for (size_t i = 0; i < G_N_ELEMENTS(steps); i++) {
        g_autofree char *outcome = parse_all(text, len, steps[i]);
        g_assert_cmpstr(outcome, ==, expected);
    }
}

typedef struct Case {
    const char *text, *expected;
} Case;

static void run_cases(const Case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_outcome(cases[i].text, strlen(cases[i].text), cases[i].expected);
    }
}

static void test_values(void)
{
    static const Case cases[] = {
        { "{}", "V {}\n" },
        { "[]", "V []\n" },
        { " {\"a\" : [ 1 , true,false,null ]}\r\n", "V {\"a\": [1, true, false, null]}\n" },
        { "{\"a\":1}{\"b\":2} [3]", "V {\"a\": 1}\nV {\"b\": 2}\nV [3]\n" },
        { "{\n\"a\"\n:\n1\n}", "V {\"a\": 1}\n" },
        { "{'a':'it\\'s \"x\"'}", "V {\"a\": \"it's \\\"x\\\"\"}\n" },
        { "\"it's\"", "V \"it's\"\n" },
        /* A number or keyword ends only where something else begins. */
        { "12", "" },
        { "12 true\n", "V 12\nV true\n" },
        { "true\"x\"1[]", "V true\nV \"x\"\nV 1\nV []\n" },
        { "{\"z\":1,\"a\":2}", "V {\"z\": 1, \"a\": 2}\n" },
    };

    run_cases(cases, G_N_ELEMENTS(cases));
}

static void test_numbers(void)
{
    static const Case cases[] = {
        { "[0,-0,7,-7]", "V [0, 0, 7, -7]\n" },
        { "[9223372036854775807,9223372036854775808,18446744073709551615]",
          "V [9223372036854775807, 9223372036854775808, 18446744073709551615]\n" },
        { "[-9223372036854775808]", "V [-9223372036854775808]\n" },
        { "[18446744073709551616,-9223372036854775809]",
          "V [1.8446744073709552e+19, -9.2233720368547758e+18]\n" },
        { "[0.1,1.0,1e3,1E3,1e+3,1e-3,2.5e2]", "V [0.10000000000000001, 1, 1000, 1000, 1000, 0.001, 250]\n" },
        { "-0.0 ", "V -0\n" },
        { "1e400 ", "E 1:1: JSON parse error, number '1e400' is out of range\n" },
    };

    run_cases(cases, G_N_ELEMENTS(cases));
}

static void test_big_integers(void)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    const char *text = "[18446744073709551615,-1,\"9\"]";
    size_t len = strlen(text);
    json_t *value = NULL;
    uint64_t u;
    int64_t i;

    g_assert_cmpint(json_parser_next(parser, &text, &len, &value, NULL), ==, JSON_PARSER_VALUE);
    json_t *big = json_array_get(value, 0);
    json_t *negative = json_array_get(value, 1);
    json_t *string = json_array_get(value, 2);
    g_assert_true(qapi_json_is_integer(big) && !qapi_json_is_string(big));
    g_assert_true(qapi_json_to_uint64(big, &u) && u == UINT64_MAX);
    g_assert_false(qapi_json_to_int64(big, &i));
    g_assert_true(qapi_json_to_uint64(negative, &u) && u == UINT64_MAX);
    g_assert_true(qapi_json_to_int64(negative, &i) && i == -1);
    g_assert_true(qapi_json_is_string(string) && !qapi_json_is_integer(string));
    g_assert_false(qapi_json_to_uint64(string, &u));
    json_decref(value);
}

static void test_strings(void)
{
    static const Case cases[] = {
        { "\"\\\" \\\\ \\/ \\b \\f \\n \\r \\t\"", "V \"\\\" \\\\ / \\b \\f \\n \\r \\t\"\n" },
        { "\"\\u0041\\u00e9\\u20ac\"", "V \"A\\u00E9\\u20AC\"\n" },
        { "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"", "V \"\\u00E9\\u20AC\\uD83D\\uDE00\"\n" },
        { "\"\\ud83d\\ude00\"", "V \"\\uD83D\\uDE00\"\n" },
        { "\"\\u0000\"", "V \"\\u0000\"\n" },
        { "\"\xc0\x80\"", "V \"\\u0000\"\n" },
        { "{\"\\u0000a\":1}", "V {\"\\u0000a\": 1}\n" },
        { "\"\x7f\"", "V \"\\u007F\"\n" },
    };

    run_cases(cases, G_N_ELEMENTS(cases));
}

/* The rows of the table of parse errors, with the places that 11.1 names. */
static void test_errors(void)
{
    static const Case cases[] = {
        { "@\n", "E 1:1: JSON parse error, stray '@'\n" },
        { "%d \n", "E 1:1: JSON parse error, stray '%'\n" },
        { "\"query-\001\n", "E 1:1: JSON parse error, stray '\"query-\001'\n" },
        { "\"abc\ndef\"\n", "E 1:1: JSON parse error, stray '\"abc\n'\n" },
        { "\"\\\001\n", "E 1:1: JSON parse error, stray '\"\\\001'\n" },
        { "\"\x80\"", "E 1:1: JSON parse error, invalid UTF-8 sequence in string\n" },
        { "\"\xc3(\"", "E 1:1: JSON parse error, invalid UTF-8 sequence in string\n" },
        { "\"\xed\xa0\x80\"", "E 1:1: JSON parse error, invalid UTF-8 sequence in string\n" },
        { "\"\xf4\x90\x80\x80\"", "E 1:1: JSON parse error, invalid UTF-8 sequence in string\n" },
        { "\"\xef\xbf\xbf\"", "E 1:1: JSON parse error, invalid UTF-8 sequence in string\n" },
        { "garbage\n", "E 1:1: JSON parse error, invalid keyword 'garbage'\n" },
        { "{\"a\": nul}", "E 1:7: JSON parse error, invalid keyword 'nul'\n" },
        { "\"\\q\"", "E 1:1: JSON parse error, invalid escape sequence in string\n" },
        { "{\"a\":\"xx\\q\" , \"b\":1}", "E 1:6: JSON parse error, invalid escape sequence in string\n" },
        { "\"\\ud800\"", "E 1:1: JSON parse error, \\ud800 is not a valid Unicode character\n" },
        { "\"\\ud800\\u0041\"", "E 1:1: JSON parse error, \\ud800 is not a valid Unicode character\n" },
        { "\"\\udc00\"", "E 1:1: JSON parse error, \\udc00 is not a valid Unicode character\n" },
        { "\"\\uffff\"", "E 1:1: JSON parse error, \\uffff is not a valid Unicode character\n" },
        { "\"\\ufdd0\"", "E 1:1: JSON parse error, \\ufdd0 is not a valid Unicode character\n" },
        { "\"\\ud83f\\udfff\"",
          "E 1:1: JSON parse error, \\ud83f\\udfff is not a valid Unicode character\n" },
        { "\"\\u12\"", "E 1:1: JSON parse error, \\u12\" is not a valid Unicode character\n" },
        { "\"\\u12zz\"", "E 1:1: JSON parse error, \\u12zz is not a valid Unicode character\n" },
        { "}", "E 1:1: JSON parse error, expecting value\n" },
        { "]", "E 1:1: JSON parse error, expecting value\n" },
        { ",", "E 1:1: JSON parse error, expecting value\n" },
        { ":", "E 1:1: JSON parse error, expecting value\n" },
        { "[,]", "E 1:2: JSON parse error, expecting value\n" },
        { "[1,]", "E 1:4: JSON parse error, expecting value\n" },
        { "{\"a\":}", "E 1:6: JSON parse error, expecting value\n" },
        { "{\"a\":1,}", "E 1:8: JSON parse error, expecting key\n" },
        { "{1:2}", "E 1:2: JSON parse error, expecting key\n" },
        { "{,}", "E 1:2: JSON parse error, expecting key\n" },
        { "{\"a\" 1}", "E 1:6: JSON parse error, expecting ':'\n" },
        { "{\"a\":1 \"b\":2}", "E 1:8: JSON parse error, expected ',' or '}'\n" },
        { "[1 2]", "E 1:4: JSON parse error, expected ',' or ']'\n" },
        { "{\"a\":1,\"a\":2}", "E 1:12: JSON parse error, duplicate key\n" },
        { "{\"a\":1,\"\\u0061\":2}", "E 1:17: JSON parse error, duplicate key\n" },
        { "01 ", "E 1:1: JSON parse error, stray '01'\n" },
        { "-01 ", "E 1:1: JSON parse error, stray '-01'\n" },
        { "+1 ", "E 1:1: JSON parse error, stray '+'\n" },
        { "-x ", "E 1:1: JSON parse error, stray '-x'\n" },
        { "1. ", "E 1:1: JSON parse error, stray '1. '\n" },
        { "1e+ ", "E 1:1: JSON parse error, stray '1e+ '\n" },
        { ".5 ", "E 1:1: JSON parse error, stray '.'\n" },
        { "// x", "E 1:1: JSON parse error, stray '/'\n" },
    };

    run_cases(cases, G_N_ELEMENTS(cases));
}

/* Lines and bytes count from the beginning of the connection. */
static void test_places(void)
{
    static const Case cases[] = {
        { "\r\n\r\n @\n", "E 3:2: JSON parse error, stray '@'\n" },
        { "\t\t@\n", "E 1:3: JSON parse error, stray '@'\n" },
        { "\"\xc3\xa9\" @\n", "V \"\\u00E9\"\nE 1:6: JSON parse error, stray '@'\n" },
        { "{\n \"a\": 1\n \"b\": 2 }\n", "E 3:2: JSON parse error, expected ',' or '}'\n" },
        { "nullX \n", "V null\nE 1:5: JSON parse error, stray 'X'\n" },
    };

    run_cases(cases, G_N_ELEMENTS(cases));
}

static void test_recovery(void)
{
    static const Case cases[] = {
        /* After a stray byte: up to the next structural character or newline. */
        { "@@@\n{}", "E 1:1: JSON parse error, stray '@'\nV {}\n" },
        { "@ \"x\" {\"a\":1}", "E 1:1: JSON parse error, stray '@'\nV {\"a\": 1}\n" },
        { "@ 1 x, {}",
          "E 1:1: JSON parse error, stray '@'\nE 1:6: JSON parse error, expecting value\nV {}\n" },
        /* The bytes that always count. */
        { "@x\001y\n{}",
          "E 1:1: JSON parse error, stray '@'\nE 1:3: JSON parse error, stray '\001'\nV {}\n" },
        { "\xff{}", "E 1:1: JSON parse error, stray '\xff'\nV {}\n" },
        { "{\"a\":\xff{}", "E 1:6: JSON parse error, stray '\xff'\nV {}\n" },
        { "{\"a\":\"xx\xfe{}", "E 1:6: JSON parse error, stray '\"xx\xfe'\nV {}\n" },
        /* After a parse error: until the brackets balance, each kind by itself. */
        { "{\"a\" 1 {\"x\"\n} }{}", "E 1:6: JSON parse error, expecting ':'\nV {}\n" },
        { "[}{}", "E 1:2: JSON parse error, expecting value\nV {}\n" },
        { "[{]}{}", "E 1:3: JSON parse error, expecting key\nV {}\n" },
        { "[{]{}", "E 1:3: JSON parse error, expecting key\n" },
        { "{\"a\":1]{}", "E 1:7: JSON parse error, expected ',' or '}'\nV {}\n" },
        { "[1 2 [3 4] ] {}", "E 1:4: JSON parse error, expected ',' or ']'\nV {}\n" },
        { "[}}}{}", "E 1:2: JSON parse error, expecting value\nE 1:3: JSON parse error, expecting value\n"
                    "E 1:4: JSON parse error, expecting value\nV {}\n" },
        /* A stray byte in a value that is bad already ends it without another word. */
        { "{\"a\" 1 @\n{}", "E 1:6: JSON parse error, expecting ':'\nV {}\n" },
        { "[[1 2 \xff{}", "E 1:5: JSON parse error, expected ',' or ']'\nV {}\n" },
    };

    run_cases(cases, G_N_ELEMENTS(cases));
}

static void test_nul(void)
{
    assert_outcome("\0\n{}", 4, "E 1:1: JSON parse error, stray ''\nV {}\n");
    assert_outcome(
        "abc\0\n{}", 7,
        "E 1:1: JSON parse error, invalid keyword 'abc'\nE 1:4: JSON parse error, stray ''\nV {}\n");
}

static void repeat(GString *text, const char *piece, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        g_string_append(text, piece);
    }
}

static void assert_one_line(const GString *text, const char *prefix)
{
    g_autofree char *outcome = parse_all(text->str, text->len, 1 << 30);

    g_assert_true(g_str_has_prefix(outcome, prefix));
    g_assert_true(g_str_has_suffix(outcome, "\nV {}\n"));
    g_auto(GStrv) lines = g_strsplit(outcome, "\n", -1);
    g_assert_cmpuint(g_strv_length(lines), ==, 3);
}

static void test_depth(void)
{
    g_autoptr(GString) text = g_string_new(NULL);

    repeat(text, "[", 1024);
    repeat(text, "]", 1024);
    g_string_append(text, "{}");
    assert_one_line(text, "V [[[[");

    g_string_truncate(text, 0);
    repeat(text, "{\"a\":[", 512);
    repeat(text, "]}", 512);
    g_string_append(text, "{}");
    assert_one_line(text, "V {\"a\": [{");

    g_string_truncate(text, 0);
    repeat(text, "[", 1025);
    g_string_append(text, "1 2 3");
    repeat(text, "]", 1025);
    g_string_append(text, "{}");
    assert_one_line(text, "E JSON nesting depth limit exceeded\n");

    /* Unclosed: silent until a stray byte. */
    g_string_truncate(text, 0);
    repeat(text, "[", 2000);
    g_string_append(text, "{\"a\":1}\xff{}");
    assert_one_line(text, "E JSON nesting depth limit exceeded\n");
}

/* An array of @n tokens, which is odd. */
static void append_tokens(GString *text, unsigned n)
{
    g_string_append_c(text, '[');
    repeat(text, "1,", (n - 3) / 2);
    g_string_append(text, "1]");
}

static void test_token_count(void)
{
    g_autoptr(GString) text = g_string_new(NULL);

    append_tokens(text, 2097151);
    g_string_append(text, "{}");
    assert_one_line(text, "V [1, 1, 1");
    g_string_truncate(text, 0);
    append_tokens(text, 2097153);
    g_string_append(text, "{}");
    assert_one_line(text, "E JSON token count limit exceeded\n");
}

static void test_token_size(void)
{
    g_autoptr(GString) text = g_string_new("\"");
    g_autoptr(GString) half = g_string_new("\"");

    while (text->len < (64u << 20)) {
        g_string_append(text, "0123456789abcdef");
    }
    g_string_append(text, "\"\n{}");
    assert_one_line(text, "E JSON token size limit exceeded\n");

    /* Two tokens of one value count together. */
    while (half->len < (33u << 20)) {
        g_string_append(half, "0123456789abcdef");
    }
    g_string_append(half, "\"");
    g_autoptr(GString) both = g_string_new(NULL);
    g_string_append_printf(both, "[%s,%s]{}", half->str, half->str);
    assert_one_line(both, "E JSON token size limit exceeded\n");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/json-parser/values", test_values);
    g_test_add_func("/json-parser/numbers", test_numbers);
    g_test_add_func("/json-parser/big-integers", test_big_integers);
    g_test_add_func("/json-parser/strings", test_strings);
    g_test_add_func("/json-parser/errors", test_errors);
    g_test_add_func("/json-parser/places", test_places);
    g_test_add_func("/json-parser/recovery", test_recovery);
    g_test_add_func("/json-parser/nul", test_nul);
    g_test_add_func("/json-parser/depth", test_depth);
    g_test_add_func("/json-parser/token-count", test_token_count);
    g_test_add_func("/json-parser/token-size", test_token_size);
    return g_test_run();
}
