/* SPDX-License-Identifier: BSD-2-Clause */
/* The run state: every pair of states, the hand-shake with the vCPUs, what listeners hear, and the order. */
#include <stdatomic.h>
#include <string.h>

#include "system/machine.h"
#include "util/error.h"

/* An accelerator that keeps a diary and checks that it is used as promised. */
typedef struct FakeCpus {
    GString *diary;
    bool running;
    _Atomic(int) inside;
} FakeCpus;

static void fake_op(Machine *m, const char *name)
{
    FakeCpus *cpus = m->accel_data;
    g_assert_cmpint(atomic_fetch_add(&cpus->inside, 1), ==, 0);
    if (cpus->diary) {
        g_string_append_printf(cpus->diary, "%s ", name);
    }
    g_thread_yield();
    atomic_fetch_sub(&cpus->inside, 1);
}

static bool fake_create(Machine *m, GError **errp)
{
    fake_op(m, "create");
    return true;
}

static void fake_resume(Machine *m)
{
    FakeCpus *cpus = m->accel_data;
    g_assert_false(cpus->running);
    /* A vCPU that runs must see "running". */
    g_assert_true(machine_is_running(m));
    cpus->running = true;
    fake_op(m, "resume");
}

static void fake_pause(Machine *m)
{
    FakeCpus *cpus = m->accel_data;
    /* Whoever sees a stopped state may rely on vCPUs being stopped: so it is not set yet. */
    g_assert_true(machine_is_running(m));
    g_assert_true(cpus->running);
    cpus->running = false;
    fake_op(m, "pause");
}

static void fake_throttle(Machine *m, unsigned percent)
{
}

static void fake_reset(Machine *m)
{
    g_assert_false(((FakeCpus *)m->accel_data)->running);
    fake_op(m, "reset");
}

static void fake_destroy(Machine *m)
{
    g_assert_false(((FakeCpus *)m->accel_data)->running);
    fake_op(m, "destroy");
}

static const CpuOps fake_cpu_ops = {
    .create = fake_create, .resume = fake_resume, .pause = fake_pause,
    .throttle = fake_throttle, .reset = fake_reset, .destroy = fake_destroy,
};

static FakeCpus fake_cpus;

static bool fake_init(Machine *m, GError **errp)
{
    m->cpu_ops = &fake_cpu_ops;
    m->accel_data = &fake_cpus;
    return true;
}

static const MachineType fake_type = { .name = "fake", .desc = "test", .max_cpus = 1, .init = fake_init };

static Machine *fake_machine(bool incoming)
{
    g_autoptr(GError) error = NULL;
    if (fake_cpus.diary) {
        g_string_free(fake_cpus.diary, true);
    }
    fake_cpus = (FakeCpus){ .diary = g_string_new(NULL) };
    Machine *m = machine_new(&fake_type, incoming);
    bool ok = machine_init(m, &error);
    g_assert_no_error(error);
    g_assert_true(ok);
    return m;
}

static void assert_diary(const char *expect)
{
    g_assert_cmpstr(fake_cpus.diary->str, ==, expect);
    g_string_truncate(fake_cpus.diary, 0);
}

/* ---- the table, written down a second time: one row a state, in the words of QMP ---- */

#define REST "debug internal-error io-error paused prelaunch shutdown suspended watchdog guest-panicked "
#define AWAY "finish-migrate save-vm restore-vm prelaunch "

static const char *const expected[][2] = {
    { "debug", "running suspended paused " AWAY },
    { "inmigrate", REST "running finish-migrate save-vm restore-vm postmigrate colo " },
    { "internal-error", "paused " AWAY },
    { "io-error", "running paused " AWAY },
    { "paused", "running suspended postmigrate colo " AWAY },
    { "postmigrate", "running prelaunch restore-vm " },
    { "prelaunch", "running inmigrate suspended finish-migrate save-vm restore-vm " },
    { "finish-migrate", REST "running postmigrate colo " },
    { "restore-vm", REST "running postmigrate " },
    { "running", "debug internal-error io-error paused shutdown suspended watchdog guest-panicked "
                 "finish-migrate save-vm restore-vm colo " },
    { "save-vm", REST "running " },
    { "shutdown", "paused " AWAY },
    { "suspended", "running paused shutdown " AWAY },
    { "watchdog", "running paused " AWAY },
    { "guest-panicked", "running paused shutdown " AWAY },
    { "colo", "running prelaunch shutdown " },
};

static bool expected_allows(RunState from, RunState to)
{
    g_autofree char *word = g_strdup_printf("%s ", RunState_str(to));
    for (size_t i = 0; i < G_N_ELEMENTS(expected); i++) {
        if (strcmp(expected[i][0], RunState_str(from)) == 0) {
            const char *row = expected[i][1];
            for (const char *p = row; (p = strstr(p, word)); p++) {
                if (p == row || p[-1] == ' ') {
                    return true;
                }
            }
            return false;
        }
    }
    g_error("no row for state '%s'", RunState_str(from));
}

/* A machine in @state, by the shortest way that the table has. */
static Machine *machine_in(RunState state)
{
    bool straight = state == RUN_STATE_INMIGRATE;
    Machine *m = fake_machine(state != RUN_STATE_PRELAUNCH);

    if (state == RUN_STATE_RUNNING) {
        g_assert_true(machine_start(m, NULL));
    } else if (state != RUN_STATE_PRELAUNCH && !straight) {
        g_assert_true(machine_set_run_state(m, state, NULL));
    }
    g_assert_cmpint(machine_run_state(m), ==, state);
    g_string_truncate(fake_cpus.diary, 0);
    return m;
}

static void check_pair(RunState from, RunState to)
{
    g_autoptr(GError) error = NULL;
    Machine *m = machine_in(from);
    bool allowed = from == to || expected_allows(from, to);
    bool ok = to == RUN_STATE_RUNNING ? machine_start(m, &error) : machine_stop(m, to, &error);

    if (ok != allowed) {
        g_error("%s -> %s: allowed %d, expected %d", RunState_str(from), RunState_str(to), ok, allowed);
    }
    if (allowed) {
        g_assert_no_error(error);
        g_assert_cmpint(machine_run_state(m), ==, to);
        assert_diary(from == to                 ? ""
                     : from == RUN_STATE_RUNNING ? "pause "
                     : to == RUN_STATE_RUNNING   ? "resume "
                                                 : "");
    } else {
        g_autofree char *text = g_strdup_printf("the guest cannot go from run state '%s' to '%s'",
                                                RunState_str(from), RunState_str(to));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_STATE);
        g_assert_cmpstr(error->message, ==, text);
        g_assert_cmpint(machine_run_state(m), ==, from);
        assert_diary("");
    }
    g_assert_cmpint(fake_cpus.running, ==, machine_is_running(m));
    machine_free(m);
    g_assert_false(fake_cpus.running);
}

static void test_every_pair(void)
{
    g_assert_cmpint(G_N_ELEMENTS(expected), ==, RUN_STATE__MAX);
    for (int from = 0; from < RUN_STATE__MAX; from++) {
        for (int to = 0; to < RUN_STATE__MAX; to++) {
            check_pair(from, to);
        }
    }
}

/*
 * A state before the switchover that was left for finish-migrate must be one that a failed migration can go
 * back to.
 */
static void test_failed_migration_leads_back(void)
{
    for (int state = 0; state < RUN_STATE__MAX; state++) {
        if (state == RUN_STATE_INMIGRATE || !expected_allows(state, RUN_STATE_FINISH_MIGRATE)) {
            continue;
        }
        Machine *m = machine_in(state);
        g_assert_true(machine_stop(m, RUN_STATE_FINISH_MIGRATE, NULL));
        g_assert_true(state == RUN_STATE_RUNNING ? machine_start(m, NULL)
                                                 : machine_set_run_state(m, state, NULL));
        g_assert_cmpint(machine_run_state(m), ==, state);
        machine_free(m);
    }
}

static void test_set_run_state_never_starts_or_stops(void)
{
    for (int state = 0; state < RUN_STATE__MAX; state++) {
        g_autoptr(GError) to_error = NULL;
        g_autoptr(GError) from_error = NULL;
        Machine *m = machine_in(state);
        g_assert_false(machine_set_run_state(m, RUN_STATE_RUNNING, &to_error));
        g_assert_error(to_error, GODWIT_ERROR, GODWIT_ERROR_STATE);
        if (state == RUN_STATE_RUNNING) {
            g_assert_false(machine_set_run_state(m, RUN_STATE_PAUSED, &from_error));
            g_assert_error(from_error, GODWIT_ERROR, GODWIT_ERROR_STATE);
        }
        g_assert_cmpint(machine_run_state(m), ==, state);
        assert_diary("");
        machine_free(m);
    }
}

static void test_reset(void)
{
    static const struct {
        RunState from, to;
        bool ok;
        const char *diary;
    } cases[] = {
        { RUN_STATE_RUNNING, RUN_STATE_RUNNING, true, "pause reset resume " },
        { RUN_STATE_PAUSED, RUN_STATE_PRELAUNCH, true, "reset " },
        { RUN_STATE_PRELAUNCH, RUN_STATE_PRELAUNCH, true, "reset " },
        { RUN_STATE_POSTMIGRATE, RUN_STATE_PRELAUNCH, true, "reset " },
        { RUN_STATE_SHUTDOWN, RUN_STATE_PRELAUNCH, true, "reset " },
        { RUN_STATE_INTERNAL_ERROR, RUN_STATE_PRELAUNCH, true, "reset " },
        { RUN_STATE_GUEST_PANICKED, RUN_STATE_PRELAUNCH, true, "reset " },
        { RUN_STATE_INMIGRATE, RUN_STATE_INMIGRATE, true, "" },
        { RUN_STATE_FINISH_MIGRATE, RUN_STATE_FINISH_MIGRATE, false, "" },
        { RUN_STATE_SAVE_VM, RUN_STATE_SAVE_VM, false, "" },
        { RUN_STATE_RESTORE_VM, RUN_STATE_RESTORE_VM, false, "" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        Machine *m = machine_in(cases[i].from);
        g_assert_cmpint(machine_reset(m, &error), ==, cases[i].ok);
        g_assert_cmpint(!error, ==, cases[i].ok);
        g_assert_cmpint(machine_run_state(m), ==, cases[i].to);
        assert_diary(cases[i].diary);
        machine_free(m);
    }
}

static void test_life(void)
{
    Machine *m = fake_machine(false);
    assert_diary("create ");
    g_assert_true(machine_start(m, NULL));
    assert_diary("resume ");
    machine_free(m);
    assert_diary("pause destroy ");

    /* The guest may be freed in any state. */
    m = machine_in(RUN_STATE_FINISH_MIGRATE);
    machine_free(m);
    assert_diary("destroy ");
}

/* ---- listeners ---- */

static void listener_note(Machine *m, RunState old_state, RunState new_state, void *opaque)
{
    g_string_append_printf(opaque, "%s>%s ", RunState_str(old_state), RunState_str(new_state));
}

static void test_listeners_hear_changes(void)
{
    g_autoptr(GString) heard = g_string_new(NULL);
    Machine *m = fake_machine(true);

    machine_add_run_state_listener(m, listener_note, heard);
    g_assert_true(machine_set_run_state(m, RUN_STATE_PAUSED, NULL));
    g_assert_true(machine_set_run_state(m, RUN_STATE_PAUSED, NULL));
    g_assert_true(machine_start(m, NULL));
    g_assert_true(machine_start(m, NULL));
    g_assert_false(machine_stop(m, RUN_STATE_POSTMIGRATE, NULL));
    g_assert_true(machine_reset(m, NULL));
    g_assert_true(machine_stop(m, RUN_STATE_FINISH_MIGRATE, NULL));
    g_assert_true(machine_set_run_state(m, RUN_STATE_POSTMIGRATE, NULL));
    g_assert_cmpstr(heard->str, ==,
                    "inmigrate>paused paused>running running>finish-migrate finish-migrate>postmigrate ");
    machine_free(m);
}

/* Stops the guest as soon as it hears that it runs; the listener after it must still hear things in order. */
static void listener_stops(Machine *m, RunState old_state, RunState new_state, void *opaque)
{
    if (new_state == RUN_STATE_RUNNING) {
        g_assert_true(machine_stop(m, RUN_STATE_DEBUG, NULL));
        g_assert_cmpint(machine_run_state(m), ==, RUN_STATE_DEBUG);
    }
}

static void test_listener_may_change_the_state(void)
{
    g_autoptr(GString) heard = g_string_new(NULL);
    Machine *m = fake_machine(false);

    machine_add_run_state_listener(m, listener_stops, NULL);
    machine_add_run_state_listener(m, listener_note, heard);
    g_assert_true(machine_start(m, NULL));
    g_assert_cmpint(machine_run_state(m), ==, RUN_STATE_DEBUG);
    g_assert_cmpstr(heard->str, ==, "prelaunch>running running>debug ");
    machine_free(m);
}

/* ---- many threads ---- */

typedef struct Race {
    Machine *m;
    RunState last;          /* as heard; no lock of its own, the run state's must do */
    uint64_t changes;
} Race;

static void listener_checks_order(Machine *m, RunState old_state, RunState new_state, void *opaque)
{
    Race *race = opaque;
    g_assert_cmpint(race->last, ==, old_state);
    g_assert_cmpint(new_state, !=, old_state);
    g_assert_cmpint(machine_run_state(m), ==, new_state);
    race->last = new_state;
    race->changes++;
}

static gpointer race_thread(gpointer data)
{
    static const RunState states[] = { RUN_STATE_PAUSED, RUN_STATE_RUNNING, RUN_STATE_FINISH_MIGRATE,
                                       RUN_STATE_IO_ERROR, RUN_STATE_RUNNING, RUN_STATE_PRELAUNCH };
    Race *race = data;
    for (unsigned i = 0; i < 5000; i++) {
        RunState to = states[g_random_int_range(0, G_N_ELEMENTS(states))];
        if (to == RUN_STATE_RUNNING) {
            machine_start(race->m, NULL);
        } else if (i % 10 == 0) {
            machine_reset(race->m, NULL);
        } else {
            machine_stop(race->m, to, NULL);
        }
        (void)machine_clock_ns(race->m);
    }
    return NULL;
}

static void test_threads(void)
{
    Race race = { .m = fake_machine(false), .last = RUN_STATE_PRELAUNCH };
    GThread *threads[4];

    g_string_free(fake_cpus.diary, true);
    fake_cpus.diary = NULL;
    machine_add_run_state_listener(race.m, listener_checks_order, &race);
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        threads[i] = g_thread_new("changer", race_thread, &race);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        g_thread_join(threads[i]);
    }
    g_assert_cmpint(race.last, ==, machine_run_state(race.m));
    g_assert_cmpuint(race.changes, >, 100);
    machine_free(race.m);
}

/* ---- the guest's clock ---- */

static void test_clock(void)
{
    Machine *m = fake_machine(false);

    g_assert_cmpint(machine_clock_ns(m), ==, 0);
    g_usleep(2000);
    g_assert_cmpint(machine_clock_ns(m), ==, 0);

    int64_t begin = g_get_monotonic_time();
    g_assert_true(machine_start(m, NULL));
    g_usleep(5000);
    int64_t running = machine_clock_ns(m);
    g_assert_cmpint(running, >=, 5000 * 1000);
    g_assert_true(machine_stop(m, RUN_STATE_PAUSED, NULL));
    int64_t end = g_get_monotonic_time();

    int64_t stopped = machine_clock_ns(m);
    g_assert_cmpint(stopped, >=, running);
    g_assert_cmpint(stopped, <=, (end - begin + 1) * 1000);
    g_usleep(2000);
    g_assert_true(machine_stop(m, RUN_STATE_FINISH_MIGRATE, NULL));
    g_assert_cmpint(machine_clock_ns(m), ==, stopped);

    g_assert_true(machine_start(m, NULL));
    g_assert_cmpint(machine_clock_ns(m), >=, stopped);
    machine_clock_set_ns(m, 1000000000000);
    g_assert_cmpint(machine_clock_ns(m), >=, 1000000000000);
    g_assert_true(machine_stop(m, RUN_STATE_PAUSED, NULL));
    machine_clock_set_ns(m, 42);
    g_assert_cmpint(machine_clock_ns(m), ==, 42);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/system/runstate/every-pair", test_every_pair);
    g_test_add_func("/system/runstate/failed-migration-leads-back", test_failed_migration_leads_back);
    g_test_add_func("/system/runstate/set-run-state-never-starts-or-stops",
                    test_set_run_state_never_starts_or_stops);
    g_test_add_func("/system/runstate/reset", test_reset);
    g_test_add_func("/system/runstate/life", test_life);
    g_test_add_func("/system/runstate/listeners-hear-changes", test_listeners_hear_changes);
    g_test_add_func("/system/runstate/listener-may-change-the-state", test_listener_may_change_the_state);
    g_test_add_func("/system/runstate/threads", test_threads);
    g_test_add_func("/system/runstate/clock", test_clock);
    return g_test_run();
}
