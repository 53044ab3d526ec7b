/* SPDX-License-Identifier: BSD-2-Clause */
/* The line editor's echo, byte for byte as an HMP client of 11.1 sees it. */
#include "monitor/line-editor.h"

#include <stdbool.h>
#include <string.h>

#define LEFT  "\033[D"
#define RIGHT "\033[C"
#define CLEAR "\033[K"

static char **complete_fixed(const char *before, size_t *word_len, void *opaque)
{
    static const char *const words[] = { "info", "migrate", "migrate_cancel", "migrate_pause", NULL };
    GPtrArray *found = g_ptr_array_new();

    *word_len = strlen(before);
    for (const char *const *w = words; *w; w++) {
        if (g_str_has_prefix(*w, before)) {
            g_ptr_array_add(found, g_strdup(*w));
        }
    }
    g_ptr_array_add(found, NULL);
    return (char **)g_ptr_array_free(found, false);
}

typedef struct Fixture {
    LineHistory *history;
    LineEditor *editor;
} Fixture;

static void set_up(Fixture *f, gconstpointer data)
{
    g_autoptr(GString) out = g_string_new(NULL);

    f->history = line_history_new();
    f->editor = line_editor_new("(qemu) ", f->history, complete_fixed, NULL);
    line_editor_start(f->editor, out);
    g_assert_cmpstr(out->str, ==, "(qemu) ");
}

static void tear_down(Fixture *f, gconstpointer data)
{
    line_editor_free(f->editor);
    g_ptr_array_unref(f->history);
}

/* Types @keys; checks the echo and, if not NULL, the line that the last key completes. */
static void type(Fixture *f, const char *keys, const char *echo, const char *line)
{
    g_autoptr(GString) out = g_string_new(NULL);
    g_autofree char *entered = NULL;

    for (const char *k = keys; *k; k++) {
        g_assert_null(entered);
        entered = line_editor_key(f->editor, (uint8_t)*k, out);
    }
    g_assert_cmpstr(out->str, ==, echo);
    g_assert_cmpstr(entered, ==, line);
    if (entered) {
        g_string_truncate(out, 0);
        line_editor_start(f->editor, out);
    }
}

static void test_insert(Fixture *f, gconstpointer data)
{
    type(f, "i", "i" CLEAR, NULL);
    type(f, "n", LEFT "in" CLEAR, NULL);
    type(f, "\b", LEFT LEFT "i" CLEAR, NULL);
    type(f, "\177", LEFT CLEAR, NULL);
    type(f, "\b", "", NULL);
    type(f, "abc", "a" CLEAR LEFT "ab" CLEAR LEFT LEFT "abc" CLEAR, NULL);
    type(f, LEFT, LEFT, NULL);
    type(f, LEFT, LEFT, NULL);
    type(f, "x", LEFT "axbc" CLEAR LEFT LEFT, NULL);
    type(f, RIGHT, RIGHT, NULL);
    type(f, "\033[3~", LEFT LEFT LEFT "axb" CLEAR, NULL);
    type(f, "\004", "", NULL);
    type(f, "\001", LEFT LEFT LEFT, NULL);
    type(f, "\004", "xb" CLEAR LEFT LEFT, NULL);
    type(f, "\005", RIGHT RIGHT, NULL);
    type(f, "\033[1~", LEFT LEFT, NULL);
    type(f, "\033[4~", RIGHT RIGHT, NULL);
    type(f, "\r", "\r\n", "xb");
    type(f, "\n", "\r\n", "");
}

static void test_words(Fixture *f, gconstpointer data)
{
    type(f, "a b  ",
         "a" CLEAR LEFT "a " CLEAR LEFT LEFT "a b" CLEAR LEFT LEFT LEFT "a b " CLEAR LEFT LEFT LEFT LEFT
         "a b  " CLEAR,
         NULL);
    type(f, "\027", LEFT LEFT LEFT LEFT LEFT "a " CLEAR, NULL);
    type(f, "\014", "\033[2J\033[1;1H(qemu) a " CLEAR, NULL);
    type(f, "\025", LEFT LEFT CLEAR, NULL);
    /* Keys without a meaning. */
    type(f, "\003\013\006\002\024\031\022\033OA\033b\033[H", "", NULL);
    /* Bytes beyond ASCII are columns of their own. */
    type(f, "\xc3\xa9", "\xc3" CLEAR LEFT "\xc3\xa9" CLEAR, NULL);
    type(f, "\r", "\r\n", "\xc3\xa9");
}

static void test_history(Fixture *f, gconstpointer data)
{
    type(f, "a\r", "a" CLEAR "\r\n", "a");
    type(f, "b\r", "b" CLEAR "\r\n", "b");
    type(f, "\033[A", "b" CLEAR, NULL);
    type(f, "\033[A", LEFT "a" CLEAR, NULL);
    type(f, "\033[A", "", NULL);
    type(f, "\033[B", LEFT "b" CLEAR, NULL);
    type(f, "\033[B", LEFT CLEAR, NULL);
    type(f, "\033[B", "", NULL);
    type(f, "\020\020", "b" CLEAR LEFT "a" CLEAR, NULL);
    type(f, "\016", LEFT "b" CLEAR, NULL);
    type(f, "\033[F", LEFT "a" CLEAR, NULL);
    type(f, "\r", "\r\n", "a");
    /* A line that is there already moves to the end. */
    g_assert_cmpuint(f->history->len, ==, 2);
    g_assert_cmpstr(g_ptr_array_index(f->history, 0), ==, "b");
    g_assert_cmpstr(g_ptr_array_index(f->history, 1), ==, "a");
}

static void test_history_limit(Fixture *f, gconstpointer data)
{
    for (int i = 0; i < 70; i++) {
        g_autofree char *line = g_strdup_printf("%d", i);
        line_history_add(f->history, line);
    }
    g_assert_cmpuint(f->history->len, ==, 64);
    g_assert_cmpstr(g_ptr_array_index(f->history, 0), ==, "6");
    g_assert_cmpstr(g_ptr_array_index(f->history, 63), ==, "69");
}

static void test_completion(Fixture *f, gconstpointer data)
{
    type(f, "i\t", "i" CLEAR LEFT "info " CLEAR, NULL);
    type(f, "\025", LEFT LEFT LEFT LEFT LEFT CLEAR, NULL);
    type(f, "m\t", "m" CLEAR "\r\nmigrate         migrate_cancel  migrate_pause   \r\n(qemu) migrate" CLEAR,
         NULL);
    type(f, "\025", LEFT LEFT LEFT LEFT LEFT LEFT LEFT CLEAR, NULL);
    type(f, "z\t", "z" CLEAR, NULL);
}

static void test_columns(void)
{
    g_autoptr(GString) out = g_string_new(NULL);
    char *words[10];

    for (int i = 0; i < 9; i++) {
        words[i] = (char *)"w";
    }
    words[9] = NULL;
    line_editor_columns(out, words, "|");
    g_assert_cmpstr(
        out->str, ==,
        "w         w         w         w         w         w         w         w         |w         |");
}

static void test_length_limit(Fixture *f, gconstpointer data)
{
    g_autoptr(GString) out = g_string_new(NULL);
    g_autofree char *line = NULL;

    for (int i = 0; i < 4200; i++) {
        g_assert_null(line_editor_key(f->editor, 'a', out));
        g_string_truncate(out, 0);
    }
    line = line_editor_key(f->editor, '\n', out);
    g_assert_cmpuint(strlen(line), ==, 4095);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add("/line-editor/insert", Fixture, NULL, set_up, test_insert, tear_down);
    g_test_add("/line-editor/words", Fixture, NULL, set_up, test_words, tear_down);
    g_test_add("/line-editor/history", Fixture, NULL, set_up, test_history, tear_down);
    g_test_add("/line-editor/history-limit", Fixture, NULL, set_up, test_history_limit, tear_down);
    g_test_add("/line-editor/completion", Fixture, NULL, set_up, test_completion, tear_down);
    g_test_add("/line-editor/length-limit", Fixture, NULL, set_up, test_length_limit, tear_down);
    g_test_add_func("/line-editor/columns", test_columns);
    return g_test_run();
}
