/* SPDX-License-Identifier: BSD-2-Clause */
/* QMP and HMP servers: how vmm/ makes them and what the commands act upon. */
#ifndef GODWIT_MONITOR_MONITOR_H
#define GODWIT_MONITOR_MONITOR_H

#include "migration/migration.h"
#include "qapi/qapi-types-run-state.h"
#include "system/backend.h"
#include "system/chardev.h"
#include "system/machine.h"

#include <jansson.h>

/* What the commands act upon; one per process, owned by vmm/, passed to every handler. */
typedef struct MonitorContext {
    Machine *machine;
    MigrationContext *migration;
    MemoryBackendSet *backends;
    struct MonitorSet *monitors; /* all monitors, for events */
    struct FdStore *fds;         /* getfd, add-fd */
    GMainLoop *main_loop;        /* quit ends it */
    bool autostart;              /* atomic; -S and, in inmigrate, stop and cont */
    bool no_reboot;
    bool shutting_down;
} MonitorContext;

/* One monitor: a connection point for one client at a time. */
typedef struct Monitor Monitor;

typedef enum { MONITOR_MODE_READLINE, MONITOR_MODE_CONTROL } MonitorMode;

/*
 * Before the first monitor: @ctx has its machine, migration, backends and main_loop (each may be NULL in a
 * test). From here on STOP and RESUME are sent when the machine's run state says so.  The calling thread is
 * the main thread.
 */
void monitor_context_init(MonitorContext *ctx);

/*
 * Ends every monitor, after what is queued for its client has been written (for at most a second each).  No
 * other thread may raise events any more.  Character devices stay the caller's.  Main thread.
 */
void monitor_context_cleanup(MonitorContext *ctx);

/* A monitor on @chr, which it does not own.  @pretty: indented JSON (control mode).  Main thread. */
bool monitor_add(MonitorContext *ctx, Chardev *chr, MonitorMode mode, bool pretty, GError **errp);

/*
 * Sends an event to every QMP monitor that has finished negotiation.  Any thread; @data is taken over, may be
 * NULL. The time stamp is that of the call.  What the main thread raises while it runs a command is sent
 * before that command's reply; so is what another thread raised before the command ended.
 */
void monitor_event(MonitorContext *ctx, const char *name, struct json_t *data);

/*
 * The program is to end: sends SHUTDOWN and stops the main loop; monitors take no more commands.  Only the
 * first call counts.  Main thread.
 */
void monitor_request_shutdown(MonitorContext *ctx, ShutdownCause cause);

/*
 * The guest has reset itself: the machine is reset, or the program ends with -no-reboot; says so in events.
 * Main thread.
 */
void monitor_guest_reset(MonitorContext *ctx);

/* Runs one HMP line as human-monitor-command does; the caller frees the text.  Main thread. */
char *monitor_hmp_command(MonitorContext *ctx, const char *line);

/* ---- descriptors that clients have handed over; any thread ---- */

/*
 * Takes the descriptor that getfd stored as @name; the caller closes it.  -1 and an error if there is none.
 */
int monitor_take_fd(MonitorContext *ctx, const char *name, GError **errp);

/*
 * A duplicate of a descriptor of set @id whose access mode is that of open(2) @flags; -1 and an error if none
 * fits.
 */
int monitor_dup_fdset(MonitorContext *ctx, int64_t id, int flags, GError **errp);

/* -add-fd: puts @fd, taken over, into set @id.  @opaque (may be NULL) is shown by query-fdsets. */
bool monitor_add_fd(MonitorContext *ctx, int fd, int64_t id, const char *opaque, GError **errp);

#endif
