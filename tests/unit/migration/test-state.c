/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of a migration: every pair of states, and who is told of a step. */
#include "migration/state.h"

#include <string.h>

/* All steps there are, by the names that clients see; whatever is not here must be refused. */
static const char *const outgoing[] = {
    "none setup", "completed setup", "cancelled setup", "failed setup",
    "setup active", "active device", "active pre-switchover", "pre-switchover device", "device completed",
    "setup failing", "active failing", "pre-switchover failing", "device failing", "failing failed",
    "setup cancelling", "active cancelling", "pre-switchover cancelling", "device cancelling",
    "cancelling cancelled", "cancelling completed", NULL
};

static const char *const incoming[] = {
    "none setup", "failed setup", "setup active", "active completed", "setup failed", "active failed",
    "active postcopy-active", "postcopy-active completed", "postcopy-active failed", NULL
};

static void walk(MigrationDirection direction, const char *const *expected)
{
    unsigned allowed = 0;
    for (int from = 0; from < MIGRATION_STATUS__MAX; from++) {
        for (int to = 0; to < MIGRATION_STATUS__MAX; to++) {
            g_autofree char *pair = g_strdup_printf("%s %s", MigrationStatus_str((MigrationStatus)from),
                                                    MigrationStatus_str((MigrationStatus)to));
            bool ok = migration_step_allowed(direction, (MigrationStatus)from, (MigrationStatus)to);
            if (ok != g_strv_contains(expected, pair)) {
                g_test_message("step %s: %s", pair, ok ? "allowed" : "refused");
                g_test_fail();
            }
            allowed += ok;
        }
    }
    g_assert_cmpuint(allowed, ==, g_strv_length((char **)expected));
}

static void test_outgoing_pairs(void)
{
    walk(MIGRATION_OUTGOING, outgoing);
}

static void test_incoming_pairs(void)
{
    walk(MIGRATION_INCOMING, incoming);
}

static void record(void *opaque, MigrationStatus status)
{
    g_string_append_printf(opaque, "%s ", MigrationStatus_str(status));
}

static void test_setter(void)
{
    GMutex lock;
    GCond cond;
    MigrationState s = { 0 };
    g_autoptr(GString) events = g_string_new(NULL);

    g_mutex_init(&lock);
    g_cond_init(&cond);
    migration_state_init(&s, MIGRATION_OUTGOING, &lock, &cond, record, events);
    g_assert_cmpint(migration_state_get(&s), ==, MIGRATION_STATUS_NONE);

    g_assert_false(migration_state_set(&s, MIGRATION_STATUS_ACTIVE));
    g_assert_cmpint(migration_state_get(&s), ==, MIGRATION_STATUS_NONE);
    g_assert_cmpstr(events->str, ==, "");

    g_assert_true(migration_state_set(&s, MIGRATION_STATUS_SETUP));
    g_assert_true(migration_state_set(&s, MIGRATION_STATUS_ACTIVE));
    g_assert_false(migration_state_set(&s, MIGRATION_STATUS_ACTIVE));
    g_assert_true(migration_state_set(&s, MIGRATION_STATUS_CANCELLING));
    g_assert_false(migration_state_set(&s, MIGRATION_STATUS_DEVICE));
    g_assert_true(migration_state_set(&s, MIGRATION_STATUS_CANCELLED));
    g_assert_cmpstr(events->str, ==, "setup active cancelling cancelled ");

    migration_state_clear(&s);
    g_cond_clear(&cond);
    g_mutex_clear(&lock);
}

typedef struct Waiter {
    GMutex lock;
    GCond cond;
    MigrationState state;
} Waiter;

static gpointer wait_for_active(gpointer opaque)
{
    Waiter *w = opaque;
    g_mutex_lock(&w->lock);
    while (migration_state_get(&w->state) != MIGRATION_STATUS_ACTIVE) {
        g_cond_wait(&w->cond, &w->lock);
    }
    g_mutex_unlock(&w->lock);
    return NULL;
}

static void test_wakes_waiters(void)
{
    Waiter w = { 0 };
    g_autoptr(GString) events = g_string_new(NULL);
    g_mutex_init(&w.lock);
    g_cond_init(&w.cond);
    migration_state_init(&w.state, MIGRATION_INCOMING, &w.lock, &w.cond, record, events);
    GThread *thread = g_thread_new("waiter", wait_for_active, &w);

    g_assert_true(migration_state_set(&w.state, MIGRATION_STATUS_SETUP));
    g_assert_true(migration_state_set(&w.state, MIGRATION_STATUS_ACTIVE));
    g_thread_join(thread);
    migration_state_clear(&w.state);
    g_cond_clear(&w.cond);
    g_mutex_clear(&w.lock);
}

static void test_running(void)
{
    static const char *const idle[] = { "none", "completed", "cancelled", "failed", NULL };
    for (int i = 0; i < MIGRATION_STATUS__MAX; i++) {
        bool is_idle = g_strv_contains(idle, MigrationStatus_str((MigrationStatus)i));
        g_assert_cmpint(migration_status_is_running((MigrationStatus)i), ==, !is_idle);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/state/outgoing-pairs", test_outgoing_pairs);
    g_test_add_func("/state/incoming-pairs", test_incoming_pairs);
    g_test_add_func("/state/setter", test_setter);
    g_test_add_func("/state/wakes-waiters", test_wakes_waiters);
    g_test_add_func("/state/running", test_running);
    return g_test_run();
}
