/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of QMP commands that the schema generator makes, and how a server runs one. */
#ifndef GODWIT_QAPI_QMP_COMMAND_H
#define GODWIT_QAPI_QMP_COMMAND_H

#include <glib.h>
#include <jansson.h>
#include <stdbool.h>

typedef struct Monitor Monitor;                 /* one connection; monitor/ knows what is in it */
typedef struct MonitorContext MonitorContext;   /* what the commands act upon: monitor/monitor.h */

/*
 * Checks @args (NULL counts as {}), runs the command, and returns the value of "return": a new reference,
 * {} for a command that returns nothing.  NULL: error.  @mon is the connection that asked, NULL if none did.
 */
typedef json_t *(*QmpFunction)(MonitorContext *ctx, Monitor *mon, json_t *args, GError **errp);

typedef struct QmpCommand {
    const char *name;           /* NULL ends the table */
    QmpFunction run;
    bool allow_oob;             /* may be sent as exec-oob; then runs in the thread that reads */
    bool allow_preconfig;       /* may be used before the machine has been made */
} QmpCommand;

/* In the order of the schema. */
extern const QmpCommand qmp_commands[];

/* The entry called @name, or NULL. */
const QmpCommand *qmp_command_find(const char *name);

#endif
