/* SPDX-License-Identifier: BSD-2-Clause */
/* QMP and HMP servers: how vmm/ makes them and what the commands act upon. */
#ifndef GODWIT_MONITOR_MONITOR_H
#define GODWIT_MONITOR_MONITOR_H

#include "migration/migration.h"
#include "system/backend.h"
#include "system/chardev.h"
#include "system/machine.h"

#include <jansson.h>

/* What the commands act upon; one per process, owned by vmm/, passed to every handler. */
typedef struct MonitorContext {
    Machine *machine;
    MigrationContext *migration;
    MemoryBackendSet *backends;
    struct MonitorSet *monitors;        /* all monitors, for events */
    struct FdStore *fds;                /* getfd, add-fd */
    GMainLoop *main_loop;               /* quit ends it */
    bool autostart;                     /* -S and, in inmigrate, stop and cont */
    bool no_reboot;
    bool shutting_down;
} MonitorContext;

typedef enum { MONITOR_MODE_READLINE, MONITOR_MODE_CONTROL } MonitorMode;

/* A monitor on @chr, which it does not own.  @pretty: indented JSON (control mode).  Main thread. */
bool monitor_add(MonitorContext *ctx, Chardev *chr, MonitorMode mode, bool pretty, GError **errp);

/* Before the first and after the last monitor. */
void monitor_context_init(MonitorContext *ctx);
void monitor_context_cleanup(MonitorContext *ctx);

/* Queues an event to all negotiated QMP monitors.  Any thread; @data is taken over, may be NULL. */
void monitor_event(MonitorContext *ctx, const char *name, json_t *data);

/* Runs one HMP line as human-monitor-command does; the caller frees the text. */
char *monitor_hmp_command(MonitorContext *ctx, const char *line);

#endif
