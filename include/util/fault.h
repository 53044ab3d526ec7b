/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbered fault points: places where a test can make the next step fail. */
#ifndef GODWIT_UTIL_FAULT_H
#define GODWIT_UTIL_FAULT_H

#include "config.h"
#include <glib.h>
#include <stdbool.h>

/*
 * A fault point is one line in the code under test:
 *
 *     if (fault_point("ram-send", errp)) {
 *         return false;
 *     }
 *
 * The name is a literal, used once in the whole program: a script collects the names into the
 * table that fault_points() returns and `godwit -fault help` prints.
 *
 * The environment variable GODWIT_FAULT says what happens: a comma-separated
 * list of NAME:N[:ACTION] where N counts the passes through the point from 1 and
 * ACTION is "error" (the default: *errp is set and true returned), "kill"
 * (the process dies by SIGKILL), "stop" (SIGSTOP) or "delay=MS".  A release build
 * (CONFIG_FAULT_INJECTION not set) compiles every point to `false`.  Any thread.
 */
#ifdef CONFIG_FAULT_INJECTION
bool fault_point(const char *name, GError **errp);
#else
static inline bool fault_point(const char *name, GError **errp)
{
    (void)name;
    (void)errp;
    return false;
}
#endif

/* The names of all points in the source, sorted, NULL at the end; none in a release build. */
const char *const *fault_points(void);

/*
 * Checks GODWIT_FAULT: false if it is malformed or names no point, or is set in a
 * release build.  For start-up; fault_point() itself skips what it cannot understand.
 */
bool fault_check_environment(GError **errp);

/*
 * Replaces what GODWIT_FAULT says, for tests within one process; NULL takes all
 * away.  Names are not checked.  Not while another thread may pass a point.
 */
bool fault_configure(const char *spec, GError **errp);

#endif
