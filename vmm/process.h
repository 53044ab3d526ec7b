/* SPDX-License-Identifier: BSD-2-Clause */
/* The process itself: background, pid file, signals, name, locked memory. */
#ifndef GODWIT_VMM_PROCESS_H
#define GODWIT_VMM_PROCESS_H

#include <glib.h>
#include <stdbool.h>
#include <sys/types.h>

/*
 * Goes into the background.  Returns in the new process only; the old one waits until process_ready() or the
 * new one's death, and exits 0 or 1 accordingly.  Before any thread exists.
 */
bool process_daemonize(GError **errp);

/*
 * All is set up: lets go of the terminal and lets the old process exit.  Standard error goes to @log_fd if
 * that is not -1, else nowhere.  Does nothing unless process_daemonize() was called.
 */
bool process_ready(int log_fd, GError **errp);

typedef struct PidFile PidFile;

/* Creates or takes over @path, which must not be locked by a living process, and writes the process id. */
PidFile *pid_file_new(const char *path, GError **errp);
void pid_file_free(PidFile *file); /* removes it; NULL is fine */

/* Called from the main loop. @sender: 0 when a terminal sent the signal. */
typedef void (*ProcessSignalFunc)(int signum, pid_t sender, void *opaque);

/* From now on SIGTERM, SIGINT and SIGHUP call @func.  Once. */
bool process_catch_signals(ProcessSignalFunc func, void *opaque, GError **errp);
void process_restore_signals(void);

/* " from pid 4711 (/usr/bin/kill)", or "" for 0; the caller frees. */
char *process_describe_sender(pid_t sender);

/* What ps shows. */
void process_set_name(const char *name);

/* The process ends by SIGTERM when its parent does. */
bool process_exit_with_parent(GError **errp);

/* All memory, present and future, stays in RAM. */
bool process_lock_memory(GError **errp);

#endif
