/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the program on standard error, each under its name. */
#ifndef GODWIT_VMM_REPORT_H
#define GODWIT_VMM_REPORT_H

#include <glib.h>
#include <stdbool.h>

/*
 * First call of all.  @argv0 gives the name; from then on the libraries' g_info(), g_message() and
 * g_warning() appear as messages too.
 */
void report_init(const char *argv0);

/* -msg: each message begins with a time stamp, and with @guest_name if that is not NULL. */
void report_set_prefix(bool timestamps, const char *guest_name);

/* The option that is being worked on, for messages of libraries; NULL: none.  Main thread; not copied. */
void report_set_location(const char *location);

/* "PROG: TEXT".  A text of several lines ends in hints.  Any thread. */
void report(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* "PROG:TEXT", for a text that begins with the name of a file. */
void report_file(const char *text);

/* "PROG: LOCATION: TEXT"; @location may be NULL. */
void report_error(const char *location, const GError *error);

#endif
