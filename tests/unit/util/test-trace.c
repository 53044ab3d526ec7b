/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the trace events: patterns, the log, and the generated functions. */
#include "trace-test.h"
#include "trace-util.h"
#include "util/error.h"

#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

static char *dir;

static char *path_in_dir(const char *name)
{
    return g_build_filename(dir, name, NULL);
}

static void all_off(void)
{
    g_assert_true(trace_enable_pattern("-*", NULL));
    trace_set_timestamps(false);
}

/* Runs all test events once and returns what the log then holds. */
static char *fire(void)
{
    g_autofree char *path = path_in_dir("log");
    g_autoptr(GError) err = NULL;
    char *text = NULL;

    g_assert_true(trace_set_log_file(path, &err));
    trace_test_none();
    trace_test_one(-5);
    trace_test_many("str", UINT64_MAX, 1.5, true, NULL);
    g_assert_true(trace_set_log_file(NULL, &err));
    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    return text;
}

static void test_match(void)
{
    static const struct { const char *pattern, *name; bool match; } cases[] = {
        { "abc", "abc", true },     { "abc", "abcd", false },   { "abc", "ab", false },
        { "*", "", true },          { "*", "anything", true },  { "a*", "a", true },
        { "a*c", "abc", true },     { "a*c", "ac", true },      { "a*c", "acb", false },
        { "*b*", "abc", true },     { "*b", "abab", true },     { "*ab", "aab", true },
        { "a*b*c", "a_b_b_c", true }, { "a*b*c", "a_c_b", false }, { "", "", true }, { "", "a", false },
        { "**", "x", true },        { "?", "x", false },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_test_message("%s %s", cases[i].pattern, cases[i].name);
        g_assert_true(trace_pattern_match(cases[i].pattern, cases[i].name) == cases[i].match);
    }
}

static void test_off(void)
{
    all_off();
    g_autofree char *text = fire();
    g_assert_cmpstr(text, ==, "");
    g_assert_false(trace_test_one_enabled());
}

static void test_lines(void)
{
    all_off();
    g_assert_true(trace_enable_pattern("test_*", NULL));
    g_assert_true(trace_test_one_enabled());
    g_autofree char *text = fire();
    g_assert_cmpstr(text, ==, "test_none \ntest_one a -5\n"
                    "test_many s str x 18446744073709551615 d 1.5 b 1 p (nil)\n");
    g_assert_true(trace_enable_pattern("-test_m*", NULL));
    g_assert_true(trace_enable_pattern("-test_none", NULL));
    g_autofree char *less = fire();
    g_assert_cmpstr(less, ==, "test_one a -5\n");
}

static void test_unknown(void)
{
    g_autoptr(GError) err = NULL;

    g_assert_false(trace_enable_pattern("nosuch", &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    g_assert_cmpstr(err->message, ==, "trace event 'nosuch' does not exist");
    g_assert_true(trace_enable_pattern("nosuch*", NULL));
    g_assert_false(trace_enable_pattern("-nosuch", NULL));
}

static void test_file(void)
{
    g_autoptr(GPtrArray) warnings = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *path = path_in_dir("events");
    g_autoptr(GError) err = NULL;

    all_off();
    g_assert_true(g_file_set_contents(path, "# comment\ntest_*\n\nbad_one\n-test_one\n", -1, NULL));
    g_assert_true(trace_enable_file(path, warnings, &err));
    g_assert_cmpuint(warnings->len, ==, 1);
    g_autofree char *expected = g_strdup_printf("%s:4: warning: trace event 'bad_one' does not exist", path);
    g_assert_cmpstr(g_ptr_array_index(warnings, 0), ==, expected);
    g_assert_true(trace_test_none_enabled());
    g_assert_false(trace_test_one_enabled());

    g_assert_false(trace_enable_file("/nonexistent/x", NULL, &err));
    g_assert_cmpstr(err->message, ==, "/nonexistent/x: No such file or directory");
}

static void test_timestamp(void)
{
    all_off();
    trace_enable_pattern("test_none", NULL);
    trace_set_timestamps(true);
    g_autofree char *text = fire();
    trace_set_timestamps(false);
    g_assert_true(g_regex_match_simple("^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}Z test_none \n$",
                                       text, 0, 0));
}

static void test_log_file(void)
{
    g_autofree char *pattern = path_in_dir("log-%d");
    g_autofree char *name = g_strdup_printf("log-%d", (int)getpid());
    g_autofree char *path = path_in_dir(name);
    g_autoptr(GError) err = NULL;

    g_assert_true(trace_set_log_file(pattern, &err));
    g_assert_true(g_file_test(path, G_FILE_TEST_EXISTS));
    g_assert_false(trace_set_log_file("/nonexistent/x", &err));
    g_assert_cmpstr(err->message, ==, "Error opening logfile /nonexistent/x: No such file or directory");
    g_assert_true(trace_set_log_file(NULL, NULL));
    g_unlink(path);
}

static void test_long_line(void)
{
    g_autofree char *s = g_strnfill(5000, 'x');
    g_autofree char *path = path_in_dir("log");
    g_autofree char *text = NULL;

    all_off();
    trace_enable_pattern("test_many", NULL);
    g_assert_true(trace_set_log_file(path, NULL));
    trace_test_many(s, 0, 0, false, NULL);
    g_assert_true(trace_set_log_file(NULL, NULL));
    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    g_assert_true(g_str_has_prefix(text, "test_many s xxxx"));
    g_assert_cmpint(text[strlen(text) - 1], ==, '\n');
    g_assert_cmpuint(strlen(text), >, 900);
    g_assert_cmpuint(strlen(text), <=, 1024);
}

static void test_list(void)
{
    const char *last = "";
    bool seen_other_folder = false;

    trace_fault_pass("test");       /* brings in the events of util/ */
    for (TraceEvent *e = trace_event_next(NULL); e; e = trace_event_next(e)) {
        g_assert_cmpstr(last, <, e->name);
        g_assert_true(trace_event_find(e->name) == e);
        seen_other_folder |= strcmp(e->name, "fault_hit") == 0;
        last = e->name;
    }
    g_assert_true(seen_other_folder);
    g_assert_null(trace_event_find("nosuch"));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    dir = g_dir_make_tmp("test-trace-XXXXXX", NULL);
    g_test_add_func("/trace/match", test_match);
    g_test_add_func("/trace/off", test_off);
    g_test_add_func("/trace/lines", test_lines);
    g_test_add_func("/trace/unknown", test_unknown);
    g_test_add_func("/trace/file", test_file);
    g_test_add_func("/trace/timestamp", test_timestamp);
    g_test_add_func("/trace/log-file", test_log_file);
    g_test_add_func("/trace/long-line", test_long_line);
    g_test_add_func("/trace/list", test_list);
    int rc = g_test_run();
    g_autofree char *log = path_in_dir("log");
    g_autofree char *events = path_in_dir("events");
    g_unlink(log);
    g_unlink(events);
    g_rmdir(dir);
    g_free(dir);
    return rc;
}
