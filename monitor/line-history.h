/* SPDX-License-Identifier: BSD-2-Clause */
/* The lines that were typed, oldest first, each once. */
#ifndef GODWIT_MONITOR_LINE_HISTORY_H
#define GODWIT_MONITOR_LINE_HISTORY_H

#include <glib.h>

#define LINE_HISTORY_MAX 64

/* An array of char *, at most LINE_HISTORY_MAX. */
typedef GPtrArray LineHistory;

LineHistory *line_history_new(void);

/* Adds @line as the newest; a line that is there already moves.  Empty lines are not kept. */
void line_history_add(LineHistory *history, const char *line);

#endif
