/* SPDX-License-Identifier: BSD-2-Clause */
/* Unit test of option lists: the dialects, the escapes, and the rules for values. */
#include "system/keyval.h"

#include "util/error.h"

#include <string.h>

static KeyVal *parse(const char *text, const char *implied, KeyValDialect dialect)
{
    g_autoptr(GError) err = NULL;
    KeyVal *kv = keyval_parse(text, implied, dialect, &err);

    g_assert_no_error(err);
    g_assert_nonnull(kv);
    return kv;
}

static void assert_fails(const char *text, KeyValDialect dialect, const char *message)
{
    g_autoptr(GError) err = NULL;

    g_assert_null(keyval_parse(text, NULL, dialect, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    g_assert_cmpstr(err->message, ==, message);
}

static void test_pairs(void)
{
    g_autoptr(KeyVal) kv = parse("a=1,b=x=y,a=2,empty=", NULL, KEYVAL_STRICT);

    g_assert_cmpuint(kv->pairs->len, ==, 4);
    g_assert_cmpstr(keyval_get(kv, "a"), ==, "2");
    g_assert_cmpstr(keyval_get(kv, "b"), ==, "x=y");
    g_assert_cmpstr(keyval_get(kv, "empty"), ==, "");
    g_assert_null(keyval_get(kv, "c"));
}

static void test_commas(void)
{
    g_autoptr(KeyVal) kv = parse("unix:/tmp/a,,b,,,server=on", "path", KEYVAL_OPTS);

    g_assert_cmpstr(keyval_get(kv, "path"), ==, "unix:/tmp/a,b,");
    g_assert_cmpstr(keyval_get(kv, "server"), ==, "on");

    g_autofree char *escaped = keyval_escape("a,b,,c");
    g_assert_cmpstr(escaped, ==, "a,,b,,,,c");
    g_autoptr(KeyVal) again = parse(escaped, "v", KEYVAL_OPTS);
    g_assert_cmpstr(keyval_get(again, "v"), ==, "a,b,,c");
}

static void test_implied_key(void)
{
    g_autoptr(KeyVal) kv = parse("none,accel=kvm", "type", KEYVAL_STRICT);
    g_assert_cmpstr(keyval_get(kv, "type"), ==, "none");
    g_assert_cmpstr(keyval_get(kv, "accel"), ==, "kvm");

    g_autoptr(KeyVal) named = parse("accel=kvm,type=none", "type", KEYVAL_STRICT);
    g_assert_cmpstr(keyval_get(named, "type"), ==, "none");

    g_autoptr(KeyVal) nothing = parse("", "type", KEYVAL_STRICT);
    g_assert_cmpuint(nothing->pairs->len, ==, 0);
}

static void test_switches(void)
{
    g_autoptr(KeyVal) kv = parse("unix:q,server,nowait,no", "path", KEYVAL_OPTS);

    g_assert_cmpstr(keyval_get(kv, "server"), ==, "on");
    g_assert_cmpstr(keyval_get(kv, "wait"), ==, "off");
    g_assert_cmpstr(keyval_get(kv, "no"), ==, "on");
    g_assert_true(g_array_index(kv->pairs, KeyValPair, 1).short_form);
    g_assert_false(g_array_index(kv->pairs, KeyValPair, 0).short_form);
}

static void test_refusals(void)
{
    assert_fails("a=1,foo", KEYVAL_STRICT, "Expected '=' after parameter 'foo'");
    assert_fails("=1", KEYVAL_STRICT, "Invalid parameter ''");

    g_autofree char *key = g_strnfill(KEYVAL_MAX_KEY + 1, 'k');
    g_autofree char *text = g_strconcat(key, "=1", NULL);
    g_autoptr(GError) err = NULL;
    g_assert_null(keyval_parse(text, NULL, KEYVAL_OPTS, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_INVALID);
}

static void test_bounds(void)
{
    g_autoptr(GError) err = NULL;
    g_autofree char *pairs = g_strnfill((KEYVAL_MAX_PAIRS + 1) * 2, 'a');

    for (size_t i = 1; i < strlen(pairs); i += 2) {
        pairs[i] = ',';
    }
    g_assert_null(keyval_parse(pairs, NULL, KEYVAL_OPTS, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    g_clear_error(&err);

    pairs[KEYVAL_MAX_PAIRS * 2 - 1] = '\0';
    g_autoptr(KeyVal) most = keyval_parse(pairs, NULL, KEYVAL_OPTS, &err);
    g_assert_no_error(err);
    g_assert_cmpuint(most->pairs->len, ==, KEYVAL_MAX_PAIRS);

    g_autofree char *text = g_strnfill(KEYVAL_MAX_TEXT + 1, 'a');
    g_assert_null(keyval_parse(text, NULL, KEYVAL_OPTS, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_INVALID);
}

static void test_known_keys(void)
{
    static const char *const known[] = {"path", "wait", NULL};
    g_autoptr(GError) err = NULL;
    g_autoptr(KeyVal) good = parse("path=x,wait=on", NULL, KEYVAL_OPTS);
    g_autoptr(KeyVal) bad = parse("path=x,foo=1", NULL, KEYVAL_OPTS);

    g_assert_true(keyval_check_keys(good, known, &err));
    g_assert_no_error(err);
    g_assert_false(keyval_check_keys(bad, known, &err));
    g_assert_cmpstr(err->message, ==, "Invalid parameter 'foo'");
}

static void test_help(void)
{
    g_assert_true(keyval_wants_help("help"));
    g_assert_true(keyval_wants_help("?"));
    g_assert_true(keyval_wants_help("none,help"));
    g_assert_false(keyval_wants_help("none,,help"));
    g_assert_false(keyval_wants_help("helper"));
    g_assert_false(keyval_wants_help(""));
}

static void test_bool(void)
{
    static const struct {
        const char *text;
        int value; /* -1: refused */
    } rows[] = {
        {"on", 1}, {"yes", 1}, {"true", 1}, {"y", 1},   {"off", 0}, {"no", 0},   {"false", 0}, {"n", 0},
        {"1", -1}, {"0", -1},  {"On", -1},  {"ON", -1}, {"", -1},   {"onn", -1}, {" on", -1},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) err = NULL;
        bool value = rows[i].value == 0;
        bool ok = keyval_parse_bool("wait", rows[i].text, &value, &err);

        g_test_message("'%s'", rows[i].text);
        g_assert_cmpint(ok, ==, rows[i].value >= 0);
        if (ok) {
            g_assert_cmpint(value, ==, rows[i].value);
        } else {
            g_assert_cmpstr(err->message, ==, "Parameter 'wait' expects 'on' or 'off'");
        }
    }
}

#define MALFORMED                                                                                            \
    "Parameter 'size' expects a non-negative number below 2^64\n"                                            \
    "Optional suffix k, M, G, T, P or E means kilo-, mega-, giga-, tera-, peta-\nand exabytes, "             \
    "respectively."
#define TOO_BIG(x) "Value '" x "' is out of range for parameter 'size'"

static void test_size(void)
{
    static const struct {
        const char *text;
        uint64_t unit;
        uint64_t value;
        const char *error;
    } rows[] = {
        {"0", 1, 0, NULL},
        {"4096", 1, 4096, NULL},
        {"16", 1048576, 16777216, NULL},
        {"4k", 1048576, 4096, NULL},
        {"4K", 1, 4096, NULL},
        {"3M", 1, 3145728, NULL},
        {"1g", 1, 1073741824, NULL},
        {"2T", 1, UINT64_C(2199023255552), NULL},
        {"1P", 1, UINT64_C(1125899906842624), NULL},
        {"15E", 1, UINT64_C(15) << 60, NULL},
        {"7b", 1048576, 7, NULL},
        {"1.5k", 1, 1536, NULL},
        {"1.5G", 1, 1610612736, NULL},
        {"1.0001k", 1, 1024, NULL},
        {"2.", 1, 2, NULL},
        {" 1", 1, 1, NULL},
        {"+1", 1, 1, NULL},
        {".5k", 1, 512, NULL},
        {"0x1000", 1, 4096, NULL},
        {"18446744073709551615", 1, UINT64_MAX, NULL},
        {"18446744073709551616", 1, 0, TOO_BIG("18446744073709551616")},
        {"16E", 1, 0, TOO_BIG("16E")},
        {"8192E", 1, 0, TOO_BIG("8192E")},
        {"16777216T", 1, 0, TOO_BIG("16777216T")},
        {"-1", 1, 0, TOO_BIG("-1")},
        {"", 1, 0, MALFORMED},
        {"foo", 1, 0, MALFORMED},
        {"16X", 1, 0, MALFORMED},
        {"1e3", 1, 0, MALFORMED},
        {"1.5", 1048576, 0, MALFORMED},
        {"1.5b", 1, 0, MALFORMED},
        {"1kk", 1, 0, MALFORMED},
        {"0x1000k", 1, 0, MALFORMED},
        {"0x", 1, 0, MALFORMED},
        {"-", 1, 0, MALFORMED},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) err = NULL;
        uint64_t value = 12345;
        bool ok = keyval_parse_size("size", rows[i].text, rows[i].unit, &value, &err);

        g_test_message("'%s'", rows[i].text);
        g_assert_cmpint(ok, ==, rows[i].error == NULL);
        g_assert_cmpstr(err ? err->message : NULL, ==, rows[i].error);
        g_assert_cmpuint(value, ==, ok ? rows[i].value : 12345);
    }
}

static void test_uint(void)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t value;
    } rows[] = {
        {"0", true, 0},
        {"65535", true, 65535},
        {"0xff", true, 255},
        {"010", true, 8},
        {"65536", false, 0},
        {"", false, 0},
        {"-1", false, 0},
        {"foo", false, 0},
        {"1x", false, 0},
        {" 1", false, 0},
        {"99999999999999999999", false, 0},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) err = NULL;
        uint64_t value = 7;

        g_test_message("'%s'", rows[i].text);
        g_assert_cmpint(keyval_parse_uint("to", rows[i].text, 65535, &value, &err), ==, rows[i].ok);
        g_assert_cmpuint(value, ==, rows[i].ok ? rows[i].value : 7);
        g_assert_cmpint(err == NULL, ==, rows[i].ok);
    }
}

static void test_getters(void)
{
    g_autoptr(KeyVal) kv = parse("wait=off,to=12,size=1k,bad=maybe", NULL, KEYVAL_OPTS);
    g_autoptr(GError) err = NULL;
    bool flag = true;
    uint64_t to = 0, size = 0, absent = 99;

    g_assert_true(keyval_get_bool(kv, "wait", &flag, &err));
    g_assert_false(flag);
    g_assert_true(keyval_get_uint(kv, "to", 100, &to, &err));
    g_assert_cmpuint(to, ==, 12);
    g_assert_true(keyval_get_size(kv, "size", &size, &err));
    g_assert_cmpuint(size, ==, 1024);
    g_assert_true(keyval_get_size(kv, "absent", &absent, &err));
    g_assert_cmpuint(absent, ==, 99);
    g_assert_false(keyval_get_bool(kv, "bad", &flag, &err));
    g_assert_cmpstr(err->message, ==, "Parameter 'bad' expects 'on' or 'off'");
}

static void test_id(void)
{
    static const char *const good[] = {"a", "m0", "charmonitor", "A-b_c.9", NULL};
    static const char *const bad[] = {"", "1x", "-a", "a b", "a/b", "_a", "\xc3\xa9", NULL};

    for (int i = 0; good[i]; i++) {
        g_assert_true(keyval_check_id(good[i], NULL));
    }
    for (int i = 0; bad[i]; i++) {
        g_autoptr(GError) err = NULL;
        g_assert_false(keyval_check_id(bad[i], &err));
        g_assert_true(g_str_has_prefix(err->message, "Parameter 'id' expects an identifier\n"));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/keyval/pairs", test_pairs);
    g_test_add_func("/keyval/commas", test_commas);
    g_test_add_func("/keyval/implied-key", test_implied_key);
    g_test_add_func("/keyval/switches", test_switches);
    g_test_add_func("/keyval/refusals", test_refusals);
    g_test_add_func("/keyval/bounds", test_bounds);
    g_test_add_func("/keyval/known-keys", test_known_keys);
    g_test_add_func("/keyval/help", test_help);
    g_test_add_func("/keyval/bool", test_bool);
    g_test_add_func("/keyval/size", test_size);
    g_test_add_func("/keyval/uint", test_uint);
    g_test_add_func("/keyval/getters", test_getters);
    g_test_add_func("/keyval/id", test_id);
    return g_test_run();
}
