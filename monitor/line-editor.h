/* SPDX-License-Identifier: BSD-2-Clause */
/* LineEditor: keystrokes that come over a socket to lines, with the echo that HMP clients expect. */
#ifndef GODWIT_MONITOR_LINE_EDITOR_H
#define GODWIT_MONITOR_LINE_EDITOR_H

#include "line-history.h"

#include <glib.h>
#include <stdint.h>

/* Bytes of a line; what is typed beyond is dropped. */
#define LINE_EDITOR_MAX 4095

/*
 * What could come next behind @before, the text left of the cursor: a NULL-terminated list, sorted, of whole
 * last words.  *@word_len: how many bytes of @before the last word has.  The caller frees with g_strfreev().
 */
typedef char **(*LineComplete)(const char *before, size_t *word_len, void *opaque);

/*
 * The screen is redrawn after each key that changes something, by these means only: ESC [ D and ESC [ C move
 * the cursor, the whole line is printed again, ESC [ K clears the rest.  So what a terminal shows, or a
 * program reads, is what it would be at a terminal of any width that the line fits into.  Each byte counts as
 * a column.
 */
typedef struct LineEditor LineEditor;

/* @prompt stays the caller's; @history is where complete lines are added, and stays the caller's. */
LineEditor *line_editor_new(const char *prompt, LineHistory *history, LineComplete complete, void *opaque);
void line_editor_free(LineEditor *editor);

/* Begins an empty line: appends the prompt to @out. */
void line_editor_start(LineEditor *editor, GString *out);

/*
 * One byte from the client; what is to be sent back is appended to @out.  Returns the line if that ended it
 * (the caller frees), else NULL; the next line begins with line_editor_start().
 */
char *line_editor_key(LineEditor *editor, uint8_t c, GString *out);

/* Appends @words in columns, as completion shows them.  @newline stands at the end of each row. */
void line_editor_columns(GString *out, char *const *words, const char *newline);

/* The longest text that all @words (at least one) begin with. */
size_t line_editor_common_prefix(char *const *words);

#endif
