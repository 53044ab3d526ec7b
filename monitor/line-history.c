/* SPDX-License-Identifier: BSD-2-Clause */
/* The lines that were typed, oldest first, each once. */
#include "line-history.h"

LineHistory *line_history_new(void)
{
    return g_ptr_array_new_with_free_func(g_free);
}

void line_history_add(LineHistory *history, const char *line)
{
    guint index;

    if (!*line) {
        return;
    }
    if (g_ptr_array_find_with_equal_func(history, line, g_str_equal, &index)) {
        g_ptr_array_remove_index(history, index);
    } else if (history->len == LINE_HISTORY_MAX) {
        g_ptr_array_remove_index(history, 0);
    }
    g_ptr_array_add(history, g_strdup(line));
}
