/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of a migration: a table of allowed steps and one setter. */
#ifndef GODWIT_MIGRATION_STATE_H
#define GODWIT_MIGRATION_STATE_H

#include "qapi/qapi-types-migration.h"
#include <glib.h>
#include <stdbool.h>

/* Which life a status goes through. */
typedef enum {
    MIGRATION_OUTGOING,
    MIGRATION_INCOMING,
} MigrationDirection;

/* May a migration go from @from to @to? */
bool migration_step_allowed(MigrationDirection direction, MigrationStatus from, MigrationStatus to);

/*
 * A status, who waits for it, and whom to tell.
 *
 * The status is written under both step_lock and *lock, so either is enough to keep it still;
 * migration_state_get() needs neither.  step_lock is held while `changed` runs, so that the events of two
 * threads leave in the order of the steps; it is taken before *lock, never the other way round.
 */
typedef struct MigrationState {
    MigrationDirection direction;
    GMutex step_lock;
    GMutex *lock;           /* of the owner, guards what waiters wait for */
    GCond *cond;            /* broadcast after each step */
    int status;             /* MigrationStatus; atomic */
    void (*changed)(void *opaque, MigrationStatus status);
    void *opaque;
} MigrationState;

/* Begins in `none`.  @changed is called in the thread that made the step, with step_lock held. */
void migration_state_init(MigrationState *s, MigrationDirection direction, GMutex *lock, GCond *cond,
                          void (*changed)(void *opaque, MigrationStatus status), void *opaque);
void migration_state_clear(MigrationState *s);

/* Any thread. */
MigrationStatus migration_state_get(const MigrationState *s);

/*
 * The only way to change it; any thread, *lock not held.  False, and nothing happens, if the step is not
 * allowed from the present status.
 */
bool migration_state_set(MigrationState *s, MigrationStatus to);

/* True from set-up until the migration has ended. */
bool migration_status_is_running(MigrationStatus status);

#endif
