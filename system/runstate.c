/* SPDX-License-Identifier: BSD-2-Clause */
/* The run state: one lock, one setter, a table of allowed steps, and the stop and start of the vCPUs. */

/*
 * A change of state goes like this, all under the lock: look the step up in the table; if the guest stops,
 * pause the vCPUs (returns when each has acknowledged), then stop the guest's clock, then set the state; if
 * it starts, start the clock, set the state, let the vCPUs go.  So whoever sees a stopped state knows that no
 * vCPU runs, and a vCPU that runs sees "running".
 *
 * Listeners are told of the changes one after the other, in the order in which the changes were made, each by
 * the thread that made it.  To that end the thread keeps the lock while it tells them; the lock is recursive,
 * so that a listener may make the next change.  That change is queued and told when all listeners have been
 * told of this one.
 */
#include "system/runstate.h"

#include <stdatomic.h>

#include "trace-system.h"
#include "util/error.h"
#include "util/fault.h"

typedef struct RunStateListener {
    RunStateFunc func;
    void *opaque;
} RunStateListener;

typedef struct RunStateChange {
    RunState from, to;
} RunStateChange;

struct RunStateControl {
    _Atomic(RunState) state;    /* written under @lock, read by anyone */

    GRecMutex lock;             /* may be held when the clock's lock is taken; protects the following */
    bool in_cpu_op;             /* the accelerator is at work: it must not come back here */
    bool telling;               /* listeners are being told, by the thread that holds the lock */
    GArray *listeners;          /* of RunStateListener; only grows */
    GQueue changes;             /* of RunStateChange *, not told yet */

    MachineClock clock;         /* has its own lock */
};

#define S(state) (1u << RUN_STATE_##state)

/* A guest may lie in these for any time; migrations and snapshots start from them and lead back to them. */
#define AT_REST                                                                                           \
    (S(DEBUG) | S(INTERNAL_ERROR) | S(IO_ERROR) | S(PAUSED) | S(PRELAUNCH) | S(SHUTDOWN) | S(SUSPENDED) | \
     S(WATCHDOG) | S(GUEST_PANICKED))

/* What can begin in any state of rest. */
#define AWAY (S(FINISH_MIGRATE) | S(SAVE_VM) | S(RESTORE_VM) | S(PRELAUNCH))

/* The steps that are allowed, by the state that they begin in. */
static const uint32_t steps[RUN_STATE__MAX] = {
    [RUN_STATE_RUNNING] =
        (AT_REST & ~S(PRELAUNCH)) | S(FINISH_MIGRATE) | S(SAVE_VM) | S(RESTORE_VM) | S(COLO),

    [RUN_STATE_PRELAUNCH] = S(RUNNING) | S(INMIGRATE) | S(SUSPENDED) | AWAY,
    [RUN_STATE_PAUSED] = S(RUNNING) | S(SUSPENDED) | S(POSTMIGRATE) | S(COLO) | AWAY,
    [RUN_STATE_DEBUG] = S(RUNNING) | S(SUSPENDED) | S(PAUSED) | AWAY,
    [RUN_STATE_IO_ERROR] = S(RUNNING) | S(PAUSED) | AWAY,
    [RUN_STATE_SUSPENDED] = S(RUNNING) | S(PAUSED) | S(SHUTDOWN) | AWAY,
    [RUN_STATE_WATCHDOG] = S(RUNNING) | S(PAUSED) | AWAY,
    [RUN_STATE_GUEST_PANICKED] = S(RUNNING) | S(PAUSED) | S(SHUTDOWN) | AWAY,
    /* These two need a reset before the guest can run. */
    [RUN_STATE_INTERNAL_ERROR] = S(PAUSED) | AWAY,
    [RUN_STATE_SHUTDOWN] = S(PAUSED) | AWAY,

    /* The stream names the state that the guest was in; it may be any. */
    [RUN_STATE_INMIGRATE] = UINT32_MAX,

    /* The migration or the snapshot has ended, well or badly. */
    [RUN_STATE_FINISH_MIGRATE] = S(RUNNING) | S(POSTMIGRATE) | S(COLO) | AT_REST,
    [RUN_STATE_SAVE_VM] = S(RUNNING) | AT_REST,
    [RUN_STATE_RESTORE_VM] = S(RUNNING) | S(POSTMIGRATE) | AT_REST,

    /* The guest has gone to another host; it can be called back, and reset, but not sent again. */
    [RUN_STATE_POSTMIGRATE] = S(RUNNING) | S(PRELAUNCH) | S(RESTORE_VM),

    [RUN_STATE_COLO] = S(RUNNING) | S(PRELAUNCH) | S(SHUTDOWN),
};

#undef S

G_STATIC_ASSERT(RUN_STATE__MAX <= 32);

bool run_state_step_allowed(RunState from, RunState to)
{
    return from != to && (steps[from] & (1u << to));
}

struct RunStateControl *run_state_control_new(RunState initial)
{
    struct RunStateControl *run = g_new0(struct RunStateControl, 1);

    atomic_init(&run->state, initial);
    g_rec_mutex_init(&run->lock);
    run->listeners = g_array_new(false, false, sizeof(RunStateListener));
    g_queue_init(&run->changes);
    machine_clock_init(&run->clock);
    return run;
}

void run_state_control_free(struct RunStateControl *run)
{
    g_assert(!run->changes.length);
    g_array_free(run->listeners, true);
    g_rec_mutex_clear(&run->lock);
    machine_clock_clear(&run->clock);
    g_free(run);
}

MachineClock *run_state_control_clock(struct RunStateControl *run)
{
    return &run->clock;
}

RunState machine_run_state(const Machine *m)
{
    return atomic_load_explicit(&m->run->state, memory_order_acquire);
}

bool machine_is_running(const Machine *m)
{
    return machine_run_state(m) == RUN_STATE_RUNNING;
}

void machine_add_run_state_listener(Machine *m, RunStateFunc func, void *opaque)
{
    RunStateListener listener = { func, opaque };

    g_rec_mutex_lock(&m->run->lock);
    g_array_append_val(m->run->listeners, listener);
    g_rec_mutex_unlock(&m->run->lock);
}

/* Tells what is queued, unless a caller further up is doing so. */
static void run_state_tell(Machine *m)
{
    struct RunStateControl *run = m->run;
    RunStateChange *change;

    if (run->telling) {
        return;
    }
    run->telling = true;
    while ((change = g_queue_pop_head(&run->changes))) {
        for (guint i = 0; i < run->listeners->len; i++) {
            /* A copy: a listener may add another, and the array may move. */
            RunStateListener listener = g_array_index(run->listeners, RunStateListener, i);
            listener.func(m, change->from, change->to, listener.opaque);
        }
        g_free(change);
    }
    run->telling = false;
}

static void run_cpu_op(Machine *m, void (*op)(Machine *m))
{
    m->run->in_cpu_op = true;
    op(m);
    m->run->in_cpu_op = false;
}

static void vcpus_pause(Machine *m)
{
    if (m->cpu_ops) {
        run_cpu_op(m, m->cpu_ops->pause);
    }
}

static void vcpus_resume(Machine *m)
{
    if (m->cpu_ops) {
        run_cpu_op(m, m->cpu_ops->resume);
    }
}

/* The one setter.  Lock held. */
static bool run_state_change(Machine *m, RunState to, GError **errp)
{
    struct RunStateControl *run = m->run;
    RunState from = machine_run_state(m);

    g_assert(!run->in_cpu_op);
    if (from == to) {
        return true;
    }
    if (!run_state_step_allowed(from, to)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, "the guest cannot go from run state '%s' to '%s'",
                    RunState_str(from), RunState_str(to));
        return false;
    }

    if (from == RUN_STATE_RUNNING) {
        vcpus_pause(m);
        machine_clock_stop(&run->clock);
    } else if (to == RUN_STATE_RUNNING) {
        machine_clock_start(&run->clock);
    }
    atomic_store_explicit(&run->state, to, memory_order_release);
    if (to == RUN_STATE_RUNNING) {
        vcpus_resume(m);
    }

    trace_run_state(RunState_str(from), RunState_str(to));
    RunStateChange *change = g_new(RunStateChange, 1);
    *change = (RunStateChange){ from, to };
    g_queue_push_tail(&run->changes, change);
    run_state_tell(m);
    return true;
}

static bool run_state_change_locked(Machine *m, RunState to, GError **errp)
{
    g_rec_mutex_lock(&m->run->lock);
    bool ok = run_state_change(m, to, errp);
    g_rec_mutex_unlock(&m->run->lock);
    return ok;
}

bool machine_stop(Machine *m, RunState why, GError **errp)
{
    g_assert(why != RUN_STATE_RUNNING);
    if (fault_point("machine-stop", errp)) {
        return false;
    }
    return run_state_change_locked(m, why, errp);
}

bool machine_start(Machine *m, GError **errp)
{
    if (fault_point("machine-start", errp)) {
        return false;
    }
    return run_state_change_locked(m, RUN_STATE_RUNNING, errp);
}

bool machine_set_run_state(Machine *m, RunState to, GError **errp)
{
    g_rec_mutex_lock(&m->run->lock);
    bool ok = false;
    if (to == RUN_STATE_RUNNING || machine_is_running(m)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE,
                    "the guest cannot go from run state '%s' to '%s' without being stopped or started",
                    RunState_str(machine_run_state(m)), RunState_str(to));
    } else {
        ok = run_state_change(m, to, errp);
    }
    g_rec_mutex_unlock(&m->run->lock);
    return ok;
}

static void vcpus_reset(Machine *m)
{
    if (m->cpu_ops) {
        run_cpu_op(m, m->cpu_ops->reset);
    }
}

static bool machine_reset_locked(Machine *m, GError **errp)
{
    RunState state = machine_run_state(m);

    g_assert(!m->run->in_cpu_op);
    switch (state) {
    case RUN_STATE_RUNNING:
        vcpus_pause(m);
        vcpus_reset(m);
        vcpus_resume(m);
        return true;
    case RUN_STATE_INMIGRATE:
        /* The guest is what the stream will bring, and its memory is being filled. */
        return true;
    case RUN_STATE_FINISH_MIGRATE:
    case RUN_STATE_SAVE_VM:
    case RUN_STATE_RESTORE_VM:
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, "the guest cannot be reset in run state '%s'",
                    RunState_str(state));
        return false;
    default:
        vcpus_reset(m);
        return run_state_change(m, RUN_STATE_PRELAUNCH, errp);
    }
}

bool machine_reset(Machine *m, GError **errp)
{
    g_rec_mutex_lock(&m->run->lock);
    bool ok = machine_reset_locked(m, errp);
    g_rec_mutex_unlock(&m->run->lock);
    return ok;
}

int64_t machine_clock_ns(const Machine *m)
{
    return machine_clock_get(&m->run->clock);
}

void machine_clock_set_ns(Machine *m, int64_t ns)
{
    machine_clock_put(&m->run->clock, ns);
}

void machine_add_timer_section(Machine *m)
{
    save_entry_list_add(&m->save_entries, &m->run->clock.save_entry);
}
