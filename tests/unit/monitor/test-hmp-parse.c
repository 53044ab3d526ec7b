/* SPDX-License-Identifier: BSD-2-Clause */
/* HMP arguments: expressions, words, flags, formats, and what is said about bad ones. */
#include "monitor/hmp.h"
#include "util/error.h"

#include <string.h>

/* ---- expressions ---- */

static void test_expressions(void)
{
    static const struct {
        const char *text;
        int64_t value;
        const char *rest;
    } cases[] = {
        { "16", 16, "" },
        { "0x10", 16, "" },
        { "010", 8, "" },
        { "0x10*2", 32, "" },
        { "0+16", 16, "" },
        { " 1 + 2 ", 3, "" },
        { "2*3+4", 10, "" },
        { "4-1-1", 2, "" },
        { "(1+2)*3", 9, "" },
        { "10/3", 3, "" },
        { "7%4", 3, "" },
        { "-1", -1, "" },
        { "--1", 1, "" },
        { "~0", -1, "" },
        { "5^1", 4, "" },
        { "1|6", 7, "" },
        /* The logical operators bind tighter than the sum. */
        { "4|3+1", 8, "" },
        { "1+2&3", 3, "" },
        { "'A'", 65, "" },
        { "18446744073709551615", -1, "" },
        { "0 16", 0, "16" },
        { "1<<4", 1, "<<4" },
        { "0x", 0, "x" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const char *p = cases[i].text;
        g_autoptr(GError) err = NULL;
        int64_t value = 0;
        g_assert_true(hmp_parse_expression(&p, &value, &err));
        g_assert_no_error(err);
        g_assert_cmpint(value, ==, cases[i].value);
        g_assert_cmpstr(p, ==, cases[i].rest);
    }
}

static void test_bad_expressions(void)
{
    static const char *const cases[][2] = {
        { "", "unexpected end of expression" },
        { "1+", "unexpected end of expression" },
        { "zzz", "invalid char 'z' in expression" },
        { "\"x\"", "invalid char '\"' in expression" },
        { "$eip", "unknown register" },
        { "(1", "')' expected" },
        { "1/0", "division by zero" },
        { "1%0", "division by zero" },
        { "18446744073709551616", "number too large" },
        { "''", "missing terminating ' character" },
        { "'a", "missing terminating ' character" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const char *p = cases[i][0];
        g_autoptr(GError) err = NULL;
        int64_t value = 0;
        g_assert_false(hmp_parse_expression(&p, &value, &err));
        g_assert_cmpstr(err->message, ==, cases[i][1]);
    }
}

static void test_deep_expression(void)
{
    g_autofree char *text = g_strnfill(100000, '(');
    const char *p = text;
    g_autoptr(GError) err = NULL;
    int64_t value;

    g_assert_false(hmp_parse_expression(&p, &value, &err));
    g_assert_cmpstr(err->message, ==, "expression is too deep");
}

/* ---- arguments ---- */

static const HmpCommand migrate = {
    "migrate",
    NULL,
    { { .name = "detach", .type = HMP_FLAG, .flag = 'd' },
      { .name = "resume", .type = HMP_FLAG, .flag = 'r' },
      { .name = "uri", .type = HMP_WORD } },
    "",
    NULL,
};
static const HmpCommand set = {
    "set", "s", { { .name = "name", .type = HMP_WORD }, { .name = "value", .type = HMP_REST } }, "", NULL,
};
static const HmpCommand onoff = {
    "event", NULL, { { .name = "name", .type = HMP_WORD }, { .name = "state", .type = HMP_ONOFF } }, "", NULL,
};
static const HmpCommand dump = {
    "dump", NULL, { { .name = "fmt", .type = HMP_FORMAT }, { .name = "addr", .type = HMP_NUMBER } }, "", NULL,
};
static const HmpCommand save = {
    "save",
    NULL,
    { { .name = "addr", .type = HMP_NUMBER },
      { .name = "size", .type = HMP_NUMBER },
      { .name = "file", .type = HMP_FILE } },
    "",
    NULL,
};
static const HmpCommand none = { "stop", "s", {}, "", NULL };

static HmpFormat last = { .format = 'x', .size = 4 };

static void parse(const HmpCommand *command, const char *line, HmpArgs *args)
{
    g_autoptr(GError) err = NULL;

    g_assert_true(hmp_parse_args(command, line, &last, args, &err));
    g_assert_no_error(err);
}

static void refuse(const HmpCommand *command, const char *line, const char *message)
{
    g_autoptr(GError) err = NULL;
    HmpArgs args;

    g_assert_false(hmp_parse_args(command, line, &last, &args, &err));
    g_assert_cmpstr(err->message, ==, message);
}

static void test_flags(void)
{
    HmpArgs args;

    parse(&migrate, " -d -r tcp:h:1", &args);
    g_assert_true(hmp_on(&args, "detach") && hmp_on(&args, "resume"));
    g_assert_cmpstr(hmp_text(&args, "uri"), ==, "tcp:h:1");
    hmp_args_clear(&args);
    parse(&migrate, " -r tcp:h:1", &args);
    g_assert_true(!hmp_on(&args, "detach") && hmp_on(&args, "resume"));
    hmp_args_clear(&args);
    parse(&migrate, "\ttcp:h:1  ", &args);
    g_assert_false(hmp_on(&args, "detach"));
    hmp_args_clear(&args);

    refuse(&migrate, "", "migrate: string expected");
    refuse(&migrate, " -d", "migrate: string expected");
    refuse(&migrate, " -z", "migrate: unsupported option -z");
    refuse(&migrate, " -dr x", "migrate: extraneous characters at the end of line");
    refuse(&migrate, " a b", "migrate: extraneous characters at the end of line");
    refuse(&none, " x", "stop|s: extraneous characters at the end of line");
}

static void test_words(void)
{
    HmpArgs args;

    parse(&migrate, " \"exec:cat >/dev/null\"", &args);
    g_assert_cmpstr(hmp_text(&args, "uri"), ==, "exec:cat >/dev/null");
    hmp_args_clear(&args);
    parse(&migrate, " \"a\\n\\r\\\\\\'\\\"b\"", &args);
    g_assert_cmpstr(hmp_text(&args, "uri"), ==, "a\n\r\\'\"b");
    hmp_args_clear(&args);
    parse(&set, " tls-creds  \"\" x ", &args);
    g_assert_cmpstr(hmp_text(&args, "name"), ==, "tls-creds");
    g_assert_cmpstr(hmp_text(&args, "value"), ==, "\"\" x");
    hmp_args_clear(&args);

    refuse(&migrate, " \"abc", "unterminated string\nmigrate: string expected");
    refuse(&migrate, " \"a\\q\"", "unsupported escape code: '\\q'\nmigrate: string expected");
    refuse(&set, " name", "set|s: string expected");
    refuse(&save, " 0 16", "save: filename expected");
    refuse(&save, " 0 16 /x", "invalid char 'x' in expression");
}

static void test_onoff(void)
{
    HmpArgs args;

    parse(&onoff, " a on", &args);
    g_assert_true(hmp_on(&args, "state"));
    hmp_args_clear(&args);
    parse(&onoff, " a off", &args);
    g_assert_false(hmp_on(&args, "state"));
    hmp_args_clear(&args);
    refuse(&onoff, " a", "Expected 'on' or 'off'");
    refuse(&onoff, " a ON", "Expected 'on' or 'off'");
    refuse(&onoff, " a 1", "Expected 'on' or 'off'");
}

static void assert_format(const char *line, int64_t count, char format, unsigned size)
{
    HmpArgs args;

    parse(&dump, line, &args);
    HmpFormat f = hmp_format(&args, "fmt");
    g_assert_cmpint(f.count, ==, count);
    g_assert_cmpint(f.format, ==, format);
    g_assert_cmpint(f.size, ==, size);
}

static void test_formats(void)
{
    last = (HmpFormat){ .format = 'x', .size = 4 };
    assert_format(" 0", 1, 'x', 4);
    assert_format("/8xw 0x100", 8, 'x', 4);
    assert_format(" /2xg 0x10+8*2", 2, 'x', 8);
    /* Kept from the dump before; the order of letters is free. */
    assert_format("/3 0", 3, 'x', 8);
    assert_format("/bd 0", 1, 'd', 1);
    assert_format(" 0", 1, 'd', 1);
    assert_format("/0x 0", 0, 'x', 1);
    refuse(&dump, "/4zw 0", "invalid char in format: 'z'");
    refuse(&dump, "/-1xb 0", "invalid char in format: '-'");
    refuse(&dump, "/4xw", "unexpected end of expression");
    last = (HmpFormat){ .format = 'x', .size = 4 };
}

/* ---- the tables ---- */

static void check_table(const HmpCommand *table)
{
    for (const HmpCommand *c = table; c->name; c++) {
        g_assert_nonnull(c->handler);
        g_assert_true(c->help && *c->help && !g_str_has_suffix(c->help, "."));
        g_assert_true(hmp_command_find(table, c->name, strlen(c->name)) == c);
        if (c->alias) {
            g_assert_true(hmp_command_find(table, c->alias, strlen(c->alias)) == c);
        }
        if (c[1].name) {
            g_assert_cmpstr(c->name, <, c[1].name);
        }
    }
}

static void test_tables(void)
{
    check_table(hmp_commands);
    check_table(hmp_info_commands);
}

static void assert_completion(const char *before, size_t word_len, const char *words)
{
    size_t len = 0;
    g_auto(GStrv) found = hmp_complete(before, &len, NULL);
    g_autofree char *joined = g_strjoinv(" ", found);

    g_assert_cmpuint(len, ==, word_len);
    g_assert_cmpstr(joined, ==, words);
}

static void test_completion(void)
{
    assert_completion("in", 2, "info");
    assert_completion("migrate_set", 11, "migrate_set_capability migrate_set_parameter");
    assert_completion("info mig", 3, "migrate migrate_capabilities migrate_parameters");
    assert_completion("help migrate_c", 9, "migrate_cancel migrate_continue");
    assert_completion("help info memd", 4, "memdev");
    assert_completion("migrate_set_parameter x-rdma-chunk-si", 15, "x-rdma-chunk-size");
    assert_completion("migrate_set_parameter max-bandwidth ", 0, "");
    assert_completion("migrate_set_capability xb", 2, "xbzrle");
    assert_completion("migrate_set_capability xbzrle o", 1, "off on");
    assert_completion("object_add memory-backend-m", 16, "memory-backend-memfd");
    assert_completion("  sto", 3, "stop");
    assert_completion("nosuch x", 1, "");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/hmp-parse/expressions", test_expressions);
    g_test_add_func("/hmp-parse/bad-expressions", test_bad_expressions);
    g_test_add_func("/hmp-parse/deep-expression", test_deep_expression);
    g_test_add_func("/hmp-parse/flags", test_flags);
    g_test_add_func("/hmp-parse/words", test_words);
    g_test_add_func("/hmp-parse/onoff", test_onoff);
    g_test_add_func("/hmp-parse/formats", test_formats);
    g_test_add_func("/hmp-parse/tables", test_tables);
    g_test_add_func("/hmp-parse/completion", test_completion);
    return g_test_run();
}
