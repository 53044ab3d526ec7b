/* SPDX-License-Identifier: BSD-2-Clause */
/* The public face of the migration library: one context per VM, its host, its migrations. */
#ifndef GODWIT_MIGRATION_MIGRATION_H
#define GODWIT_MIGRATION_MIGRATION_H

#include "io/channel.h"
#include "migration/options.h"
#include "qapi/qapi-types-migration.h"
#include "qapi/qapi-types-run-state.h"
#include "system/dirty-limit.h"
#include "system/dirty-log.h"
#include "system/ramblock.h"
#include "system/vmstate.h"

/*
 * What the library asks of the VMM that embeds it.  Every entry must be filled.
 * "Any thread" means the main thread or one of the library's own; the VMM must not call back into the
 * library from within one of them, except migration_query().
 */
typedef struct MigrationHostOps {
    /* The machine type's name in the configuration section ("none").  Any thread. */
    const char *(*machine_name)(void *opaque);
    /* 16 bytes, or NULL when the VM has no UUID. */
    const uint8_t *(*uuid)(void *opaque);

    RamList *(*ram)(void *opaque);
    DirtyLog *(*dirty_log)(void *opaque);
    SaveEntryList *(*save_entries)(void *opaque);

    RunState (*run_state)(void *opaque);

    /*
     * Stop every vCPU and enter @why; returns when all have stopped.  Used for the switchover
     * (RUN_STATE_FINISH_MIGRATE).  Any thread.
     */
    bool (*stop)(void *opaque, RunState why, GError **errp);

    /*
     * Let the guest run (again): after a failed or cancelled migration, or on the destination.  Any thread.
     */
    bool (*start)(void *opaque, GError **errp);

    /* A step between stopped states: postmigrate, paused, prelaunch, ....  Any thread. */
    bool (*set_run_state)(void *opaque, RunState state, GError **errp);

    /* Auto-converge: slow the vCPUs by @percent, 0 for off.  Any thread. */
    void (*throttle)(void *opaque, unsigned percent);

    /*
     * What can limit the rate at which single vCPUs dirty memory, for capability dirty-limit; NULL if nothing
     * can, always the same.  Any thread.
     */
    DirtyLimiter *(*dirty_limiter)(void *opaque);

    /* True if vCPUs exist, so that auto-converge makes sense. */
    bool (*has_vcpus)(void *opaque);

    /* Destination: should the guest run when it has arrived (no -S, no `stop` meanwhile)?  Any thread. */
    bool (*autostart)(void *opaque);

    /*
     * MIGRATION event.  Sent for every change of state, on both sides, if capability events is on.  Any
     * thread.
     */
    void (*event_status)(void *opaque, MigrationStatus status);
    /* MIGRATION_PASS event, likewise. */
    void (*event_pass)(void *opaque, int64_t pass);

    /* A named descriptor handed over by getfd; the library owns the result.  -1 and an error if unknown. */
    int (*take_fd)(void *opaque, const char *name, GError **errp);
    /* A descriptor of fd set @id whose access mode fits @flags, duplicated. */
    int (*dup_fdset)(void *opaque, int64_t id, int flags, GError **errp);

    /* One line for the operator (the program's log or stderr); never the only report of an error. */
    void (*log)(void *opaque, const char *message);

    /*
     * The incoming migration ended for good; @error is NULL on success.  Main thread.  The VMM may exit here.
     */
    void (*incoming_ended)(void *opaque, const GError *error);
} MigrationHostOps;

/*
 * Everything about the migration of one VM.  No other state exists: two contexts in one process do not meet.
 */
typedef struct MigrationContext MigrationContext;

/*
 * @ops and @opaque must outlive the context.  The thread that calls this is the main thread of the context;
 * its default GMainContext is used.
 */
MigrationContext *migration_context_new(const MigrationHostOps *ops, void *opaque);

/* Cancels what runs, waits for every thread, frees.  Main thread. */
void migration_context_free(MigrationContext *ctx);

/* Parameters, capabilities and compatibility properties, see migration/options.h.  Main thread. */
MigrationOptionStore *migration_options(MigrationContext *ctx);

/* ---- source; all from the main thread, none blocks ---- */

/*
 * Starts an outgoing migration to @uri or @channels (exactly one not NULL).  Returns true once
 * set-up has begun; what happens later is told by events and migration_query().
 */
bool migration_start(MigrationContext *ctx, const char *uri, const MigrationChannelList *channels,
                     bool resume, GError **errp);

/*
 * Asks the running migration to stop; harmless when there is none.  `cancelling` at once, `cancelled` soon.
 */
bool migration_cancel(MigrationContext *ctx, GError **errp);

/* migrate-continue: leave pre-switchover. */
bool migration_continue(MigrationContext *ctx, MigrationStatus state, GError **errp);

/* migrate-pause: postcopy only. */
bool migration_pause(MigrationContext *ctx, GError **errp);

/* True from set-up to the end: options may not change capabilities, a second start is refused. */
bool migration_is_active(const MigrationContext *ctx);

/* ---- destination ---- */

/* Marks the VM as one that waits for an incoming migration (-incoming).  Before anything else. */
void migration_incoming_expect(MigrationContext *ctx);

/* migrate-incoming and -incoming URI: begins to listen, or to read. */
bool migration_incoming_start(MigrationContext *ctx, const char *uri,
                              const MigrationChannelList *channels, bool exit_on_error,
                              GError **errp);

/* ---- both ---- */

/* Can this host and this build migrate by RDMA?  The error says why not.  Any thread. */
bool migration_rdma_available(GError **errp);

/* query-migrate.  Any thread; the result is the caller's (qapi_free_MigrationInfo). */
MigrationInfo *migration_query(MigrationContext *ctx);

/* Called by the VMM's `cont`: false with an error between the guest's stop and the end of the migration. */
bool migration_allows_start(MigrationContext *ctx, GError **errp);

/*
 * yank: cuts every channel of the outgoing or incoming migration, as if the link had gone: a migration ends
 * failed, postcopy pauses.  Harmless when there is none.  Any thread.
 */
void migration_yank(MigrationContext *ctx);
/* Is there a migration that has channels? */
bool migration_can_yank(MigrationContext *ctx);

/*
 * A reason why the VM cannot migrate now; shown in blocked-reasons.  Returns an id for
 * migration_del_blocker().
 */
unsigned migration_add_blocker(MigrationContext *ctx, const char *reason);
void migration_del_blocker(MigrationContext *ctx, unsigned id);

#endif
