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
 * The environment variable GODWIT_FAULT says what happens: a comma-separated
 * list of NAME:N[:ACTION] where N counts the passes through the point from 1 and
 * ACTION is "error" (the default: *errp is set and true returned), "kill"
 * (the process dies by SIGKILL), "stop" (SIGSTOP) or "delay=MS".  A release build (CONFIG_FAULT_INJECTION not
 * set) compiles every point to `false`.  `godwit -fault help` lists the points.
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

#endif
