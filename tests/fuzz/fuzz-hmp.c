/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes from an HMP client: keys, then the lines that they make, parsed for every command and completed. */
#include "monitor/hmp.h"
#include "monitor/line-editor.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse_for_all(const HmpCommand *table, const char *line)
{
    HmpFormat format = { .format = 'x', .size = 4 };

    for (const HmpCommand *c = table; c->name; c++) {
        g_autoptr(GError) err = NULL;
        HmpArgs args;
        if (hmp_parse_args(c, line, &format, &args, &err)) {
            hmp_args_clear(&args);
        } else {
            g_assert_true(err && *err->message);
        }
        g_assert_true(format.size == 1 || format.size == 2 || format.size == 4 || format.size == 8);
    }
}

static void check_line(const char *line)
{
    const char *blank = strchr(line, ' ');
    size_t word_len;
    g_auto(GStrv) words = hmp_complete(line, &word_len, NULL);

    for (char **w = words; *w; w++) {
        g_assert_cmpuint(strlen(*w), >=, word_len);
    }
    parse_for_all(hmp_commands, blank ? blank : line);
    parse_for_all(hmp_info_commands, blank ? blank : line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LineHistory *history = line_history_new();
    LineEditor *editor = line_editor_new("(qemu) ", history, hmp_complete, NULL);
    g_autoptr(GString) out = g_string_new(NULL);

    line_editor_start(editor, out);
    for (size_t i = 0; i <= size; i++) {
        g_autofree char *line = line_editor_key(editor, i < size ? data[i] : '\n', out);
        if (line) {
            g_assert_cmpuint(strlen(line), <=, LINE_EDITOR_MAX);
            check_line(line);
            line_editor_start(editor, out);
        }
        g_string_truncate(out, 0);
    }
    g_assert_cmpuint(history->len, <=, LINE_HISTORY_MAX);
    line_editor_free(editor);
    g_ptr_array_unref(history);
    return 0;
}
