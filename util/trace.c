/* SPDX-License-Identifier: BSD-2-Clause */
/* Trace events: the registry, patterns, and the log. */
#include "util/trace.h"

#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/*
 * Groups are linked in by constructors, before main() and so before there is a
 * second thread; afterwards the list does not change.
 */
static TraceGroup *groups;

/*
 * Atomic.  Once this is a descriptor of our own it stays the same, and another destination is duplicated onto
 * it: so a thread that is about to write never finds it closed.
 */
static int log_fd = STDERR_FILENO;
static bool log_timestamps;

void trace_register(TraceGroup *group)
{
    group->next = groups;
    groups = group;
}

TraceEvent *trace_event_next(const TraceEvent *event)
{
    TraceEvent *best = NULL;

    for (const TraceGroup *g = groups; g; g = g->next) {
        for (size_t i = 0; i < g->n_events; i++) {
            TraceEvent *e = &g->events[i];
            bool after = !event || strcmp(e->name, event->name) > 0;

            if (after && (!best || strcmp(e->name, best->name) < 0)) {
                best = e;
            }
        }
    }
    return best;
}

TraceEvent *trace_event_find(const char *name)
{
    for (const TraceGroup *g = groups; g; g = g->next) {
        for (size_t i = 0; i < g->n_events; i++) {
            if (strcmp(g->events[i].name, name) == 0) {
                return &g->events[i];
            }
        }
    }
    return NULL;
}

void trace_event_set_enabled(TraceEvent *event, bool enabled)
{
    __atomic_store_n(&event->enabled, enabled, __ATOMIC_RELAXED);
}

bool trace_pattern_match(const char *pattern, const char *name)
{
    const char *star = NULL; /* the last * seen: it may take more characters when the rest fails */
    const char *resume = NULL;

    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            resume = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

bool trace_enable_pattern(const char *pattern, GError **errp)
{
    bool on = *pattern != '-';
    bool found = false;

    pattern += !on;
    for (const TraceGroup *g = groups; g; g = g->next) {
        for (size_t i = 0; i < g->n_events; i++) {
            if (trace_pattern_match(pattern, g->events[i].name)) {
                trace_event_set_enabled(&g->events[i], on);
                found = true;
            }
        }
    }
    if (!found && !strchr(pattern, '*')) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "trace event '%s' does not exist", pattern);
        return false;
    }
    return true;
}

bool trace_enable_file(const char *path, GPtrArray *warnings, GError **errp)
{
    g_autofree char *text = NULL;
    size_t len;
    FILE *f = fopen(path, "re");

    if (!f) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "%s", path);
        return false;
    }
    fclose(f);

    g_autoptr(GError) read_err = NULL;
    if (!g_file_get_contents(path, &text, &len, &read_err)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "%s: %s", path, read_err->message);
        return false;
    }

    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (size_t i = 0; lines[i]; i++) {
        g_autoptr(GError) err = NULL;
        char *line = g_strstrip(lines[i]);

        if (*line == '\0' || *line == '#' || trace_enable_pattern(line, &err)) {
            continue;
        }
        if (warnings) {
            g_ptr_array_add(warnings, g_strdup_printf("%s:%zu: warning: %s", path, i + 1, err->message));
        }
    }
    return true;
}

/* Every "%d" in @path becomes the process id. */
static char *expand_pid(const char *path)
{
    g_auto(GStrv) parts = g_strsplit(path, "%d", -1);
    g_autofree char *pid = g_strdup_printf("%d", (int)getpid());

    return g_strjoinv(pid, parts);
}

/* Takes @fd, or duplicates standard error. */
static void set_log_fd(int fd)
{
    int current = trace_log_fd();

    if (current != STDERR_FILENO) {
        dup3(fd, current, O_CLOEXEC);
        if (fd != STDERR_FILENO) {
            close(fd);
        }
    } else {
        __atomic_store_n(&log_fd, fd, __ATOMIC_RELEASE);
    }
}

bool trace_set_log_file(const char *path, GError **errp)
{
    if (!path) {
        set_log_fd(STDERR_FILENO);
        return true;
    }
    g_autofree char *name = expand_pid(path);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Error opening logfile %s", name);
        return false;
    }
    set_log_fd(fd);
    return true;
}

int trace_log_fd(void)
{
    return __atomic_load_n(&log_fd, __ATOMIC_ACQUIRE);
}

void trace_set_timestamps(bool on)
{
    log_timestamps = on;
}

/* Writes e.g. "2026-11-30T11:10:02.823628Z " and returns its length. */
static size_t format_timestamp(char *buf, size_t size)
{
    struct timespec now;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(buf, size, "%Y-%m-%dT%H:%M:%S", &tm);
    n += g_snprintf(buf + n, size - n, ".%06ldZ ", now.tv_nsec / 1000);
    return n;
}

/* One write(2) per line, so that lines of several threads and processes do not mix. */
void trace_log(const char *fmt, ...)
{
    int saved_errno = errno;
    char line[1024];
    size_t n = log_timestamps ? format_timestamp(line, sizeof(line)) : 0;

    va_list ap;
    va_start(ap, fmt);
    int len = g_vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
    va_end(ap);

    /* A longer text is cut. */
    n += MIN((size_t)MAX(len, 0), sizeof(line) - n - 2);
    line[n++] = '\n';
    ssize_t written;
    do {
        written = write(trace_log_fd(), line, n);
    } while (written < 0 && errno == EINTR);
    errno = saved_errno;
}
