/* SPDX-License-Identifier: BSD-2-Clause */
/* LineTerminal: line editing by libedit, for HMP on the process's own terminal. */
#ifndef GODWIT_MONITOR_LINE_TERMINAL_H
#define GODWIT_MONITOR_LINE_TERMINAL_H

#include "line-editor.h"

/*
 * libedit reads keys in the middle of its work and cannot be asked to come back when there are more.  So it
 * has a thread of its own, which sleeps while there is nothing to do and touches nothing of the program but
 * static tables. Keys, output and complete lines cross between it and the main thread in the order in which
 * they came about.
 */
typedef struct LineTerminal LineTerminal;

/*
 * NULL in a build without libedit.  @prompt stays the caller's.  @complete is called in libedit's thread,
 * with NULL as its opaque; @line and @output are called in the main thread, with @opaque.
 */
LineTerminal *line_terminal_new(const char *prompt, LineComplete complete,
                                void (*line)(const char *line, void *opaque),
                                void (*output)(const char *buf, size_t len, void *opaque), void *opaque);

/* Ends the thread; no callback comes any more. */
void line_terminal_free(LineTerminal *terminal);

/* Shows the prompt and begins a line; after it has been entered the next one waits for the next call. */
void line_terminal_start(LineTerminal *terminal);

/* Keys from the user; those that come while no line is being read wait. */
void line_terminal_keys(LineTerminal *terminal, const char *keys, size_t len);

#endif
