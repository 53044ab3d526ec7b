/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the program on standard error, each under its name. */
#include "report.h"

#include <stdio.h>
#include <string.h>

/* Set by the main thread before others exist, except for @location. */
static struct {
    char *program;
    char *guest_name;
    bool timestamps;
    const char *location;
    GThread *main_thread;
} settings;

static void write_line(const char *separator, const char *kind, const char *location, const char *text)
{
    GString *line = g_string_new(NULL);

    if (settings.timestamps) {
        g_autoptr(GDateTime) now = g_date_time_new_now_utc();
        g_autofree char *stamp = g_date_time_format(now, "%Y-%m-%dT%H:%M:%S");
        g_string_append_printf(line, "%s.%06dZ ", stamp, g_date_time_get_microsecond(now));
    }
    if (settings.guest_name) {
        g_string_append_printf(line, "%s ", settings.guest_name);
    }
    g_string_append_printf(line, "%s%s%s%s%s%s\n", settings.program, separator,
                           location ? location : "", location ? ": " : "", kind, text);
    fputs(line->str, stderr);
    fflush(stderr);
    g_string_free(line, true);
}

/* The words that mark a level; NULL: not shown. */
static const char *level_kind(GLogLevelFlags level)
{
    if (level & G_LOG_LEVEL_WARNING) {
        return "warning: ";
    }
    if (level & G_LOG_LEVEL_MESSAGE) {
        return "";
    }
    return level & G_LOG_LEVEL_INFO ? "info: " : NULL;
}

/* Messages without a domain are our libraries'; GLib's own complaints are left to GLib. */
static GLogWriterOutput write_log(GLogLevelFlags level, const GLogField *fields, gsize n_fields,
                                  gpointer opaque)
{
    const char *text = NULL, *domain = NULL, *kind = level_kind(level);

    for (gsize i = 0; i < n_fields; i++) {
        if (strcmp(fields[i].key, "MESSAGE") == 0) {
            text = fields[i].value;
        } else if (strcmp(fields[i].key, "GLIB_DOMAIN") == 0) {
            domain = fields[i].value;
        }
    }
    if (domain || !text || !kind || (level & G_LOG_FLAG_FATAL)) {
        return g_log_writer_default(level, fields, n_fields, opaque);
    }
    bool main_thread = g_thread_self() == settings.main_thread;
    write_line(": ", kind, main_thread && level != G_LOG_LEVEL_MESSAGE ? settings.location : NULL, text);
    return G_LOG_WRITER_HANDLED;
}

void report_init(const char *argv0)
{
    settings.program = g_path_get_basename(argv0);
    settings.main_thread = g_thread_self();
    g_set_prgname(settings.program);
    g_log_set_writer_func(write_log, NULL, NULL);
}

void report_set_prefix(bool timestamps, const char *guest_name)
{
    settings.timestamps = timestamps;
    g_free(settings.guest_name);
    settings.guest_name = g_strdup(guest_name);
}

void report_set_location(const char *location)
{
    settings.location = location;
}

void report(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    g_autofree char *text = g_strdup_vprintf(format, ap);
    va_end(ap);
    write_line(": ", "", NULL, text);
}

void report_error(const char *location, const GError *error)
{
    write_line(": ", "", location, error->message);
}

void report_file(const char *text)
{
    write_line(":", "", NULL, text);
}
