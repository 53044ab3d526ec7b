/* SPDX-License-Identifier: BSD-2-Clause */
/* Trace events: switching them on by pattern, listing them, and where their lines go. */
#ifndef GODWIT_UTIL_TRACE_H
#define GODWIT_UTIL_TRACE_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Each folder lists its events in its file trace-events, one a line:
 *
 *     ram_round(uint64_t round, size_t pages) "round %" PRIu64 " pages %zu"
 *
 * and includes the generated trace-FOLDER.h, in which that line has become
 *
 *     void trace_ram_round(uint64_t round, size_t pages);
 *     bool trace_ram_round_enabled(void);
 *
 * An event that is off costs one predicted branch.  One that is on writes the
 * line "ram_round round 1 pages 512" to standard error or the log file.  In a build
 * with <sys/sdt.h> each event is a USDT probe too (provider godwit), on or off.
 *
 * Arguments may be integers, bool, double, const char * and void *; nothing is evaluated
 * lazily, so guard costly arguments with trace_NAME_enabled().
 *
 * All functions are for any thread, except that only the main thread sets the log's destination.
 */
typedef struct TraceEvent {
    const char *name;
    int enabled;            /* atomic, relaxed: 0 or 1 */
} TraceEvent;

/* The events of one folder.  Generated code registers it before main() runs. */
typedef struct TraceGroup {
    TraceEvent *events;
    size_t n_events;
    struct TraceGroup *next;
} TraceGroup;

void trace_register(TraceGroup *group);

static inline bool trace_event_is_enabled(const TraceEvent *event)
{
    return __builtin_expect(__atomic_load_n(&event->enabled, __ATOMIC_RELAXED), 0);
}

/* Called by generated code only.  Adds the time stamp and the line feed. */
void trace_log(const char *fmt, ...) G_GNUC_PRINTF(1, 2) __attribute__((cold));

/* The event after @event in the order of names, or the first if NULL; NULL at the end. */
TraceEvent *trace_event_next(const TraceEvent *event);
TraceEvent *trace_event_find(const char *name);
void trace_event_set_enabled(TraceEvent *event, bool enabled);

/* Does @name match @pattern, in which each `*` stands for any run of characters? */
bool trace_pattern_match(const char *pattern, const char *name);

/*
 * Switches on all events that match @pattern, or off if it begins with `-`.
 * A pattern without `*` that names no event is an error, "trace event 'x' does not exist";
 * a pattern with `*` that matches nothing is not.
 */
bool trace_enable_pattern(const char *pattern, GError **errp);

/*
 * Applies the patterns in a file: one a line; blank lines and lines that begin with `#` are skipped.
 * A line that names no event adds a text like "FILE:3: warning: trace event 'x' does not exist"
 * to @warnings (of char *, may be NULL) and is skipped.  False if the file cannot be read.
 */
bool trace_enable_file(const char *path, GPtrArray *warnings, GError **errp);

/*
 * Sends the log to the file @path instead of standard error; "%d" in it is
 * replaced by the process id.  The file is created or truncated at once.  NULL goes back to standard error.
 */
bool trace_set_log_file(const char *path, GError **errp);

/* The descriptor that the log goes to, for other log lines of the program. */
int trace_log_fd(void);

/* With time stamps each line begins like "2026-11-30T11:10:02.823628Z ". */
void trace_set_timestamps(bool on);

#endif
