/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of a migration: a table of allowed steps and one setter. */
#include "migration/state.h"

#include "trace-migration.h"

typedef struct Step {
    MigrationStatus from, to;
} Step;

#define S(name) MIGRATION_STATUS_##name

/*
 * A cancelled migration becomes `completed` after all when the request came too late: the destination
 * has everything and its guest runs.
 */
static const Step outgoing_steps[] = {
    { S(NONE), S(SETUP) },
    { S(COMPLETED), S(SETUP) },
    { S(CANCELLED), S(SETUP) },
    { S(FAILED), S(SETUP) },

    { S(SETUP), S(ACTIVE) },
    { S(ACTIVE), S(PRE_SWITCHOVER) },
    { S(ACTIVE), S(DEVICE) },
    { S(PRE_SWITCHOVER), S(DEVICE) },
    { S(DEVICE), S(COMPLETED) },

    { S(SETUP), S(FAILING) },
    { S(ACTIVE), S(FAILING) },
    { S(PRE_SWITCHOVER), S(FAILING) },
    { S(DEVICE), S(FAILING) },
    { S(FAILING), S(FAILED) },

    { S(SETUP), S(CANCELLING) },
    { S(ACTIVE), S(CANCELLING) },
    { S(PRE_SWITCHOVER), S(CANCELLING) },
    { S(DEVICE), S(CANCELLING) },
    { S(CANCELLING), S(CANCELLED) },
    { S(CANCELLING), S(COMPLETED) },
};

static const Step incoming_steps[] = {
    { S(NONE), S(SETUP) },
    { S(FAILED), S(SETUP) },        /* exit-on-error=false: another try */
    { S(SETUP), S(ACTIVE) },
    { S(SETUP), S(FAILED) },
    { S(ACTIVE), S(COMPLETED) },
    { S(ACTIVE), S(FAILED) },
    { S(ACTIVE), S(POSTCOPY_ACTIVE) },      /* the guest runs, its memory is read when it is touched */
    { S(POSTCOPY_ACTIVE), S(COMPLETED) },
    { S(POSTCOPY_ACTIVE), S(FAILED) },
};

#undef S

static const struct {
    const Step *steps;
    size_t count;
} tables[] = {
    [MIGRATION_OUTGOING] = { outgoing_steps, G_N_ELEMENTS(outgoing_steps) },
    [MIGRATION_INCOMING] = { incoming_steps, G_N_ELEMENTS(incoming_steps) },
};

bool migration_step_allowed(MigrationDirection direction, MigrationStatus from, MigrationStatus to)
{
    for (size_t i = 0; i < tables[direction].count; i++) {
        if (tables[direction].steps[i].from == from && tables[direction].steps[i].to == to) {
            return true;
        }
    }
    return false;
}

void migration_state_init(MigrationState *s, MigrationDirection direction, GMutex *lock, GCond *cond,
                          void (*changed)(void *opaque, MigrationStatus status), void *opaque)
{
    s->direction = direction;
    s->lock = lock;
    s->cond = cond;
    s->status = MIGRATION_STATUS_NONE;
    s->changed = changed;
    s->opaque = opaque;
    g_mutex_init(&s->step_lock);
}

void migration_state_clear(MigrationState *s)
{
    g_mutex_clear(&s->step_lock);
}

MigrationStatus migration_state_get(const MigrationState *s)
{
    return (MigrationStatus)g_atomic_int_get(&s->status);
}

bool migration_state_set(MigrationState *s, MigrationStatus to)
{
    g_autoptr(GMutexLocker) step = g_mutex_locker_new(&s->step_lock);
    MigrationStatus from = migration_state_get(s);

    if (!migration_step_allowed(s->direction, from, to)) {
        trace_migration_step_refused(MigrationStatus_str(from), MigrationStatus_str(to));
        return false;
    }
    trace_migration_state(MigrationStatus_str(from), MigrationStatus_str(to));
    g_mutex_lock(s->lock);
    g_atomic_int_set(&s->status, to);
    g_cond_broadcast(s->cond);
    g_mutex_unlock(s->lock);
    s->changed(s->opaque, to);
    return true;
}

bool migration_status_is_running(MigrationStatus status)
{
    switch (status) {
    case MIGRATION_STATUS_NONE:
    case MIGRATION_STATUS_COMPLETED:
    case MIGRATION_STATUS_CANCELLED:
    case MIGRATION_STATUS_FAILED:
        return false;
    default:
        return true;
    }
}
