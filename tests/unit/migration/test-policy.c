/* SPDX-License-Identifier: BSD-2-Clause */
/* Policy: decisions, bandwidth, downtime and throttling, in numbers worked out by hand. */
#include "migration/policy.h"

#include <glib.h>

#define MIB (1024 * 1024ull)
#define SECOND 1000000ll

static void test_steps(void)
{
    static const struct {
        PolicyState state;
        PolicyStep step;
    } cases[] = {
        /* Before the first window the threshold is 0: only an empty remainder gets further. */
        { { .pending = 4096, .threshold = 0, .switchover_allowed = true }, POLICY_ITERATE },
        { { .pending = 0, .threshold = 0, .switchover_allowed = true }, POLICY_SYNC },
        { { .pending = 0, .threshold = 0, .exact = true, .switchover_allowed = true }, POLICY_COMPLETE },
        /* The threshold itself still fits. */
        { { .pending = 1000, .threshold = 1000, .switchover_allowed = true }, POLICY_SYNC },
        { { .pending = 1000, .threshold = 1000, .exact = true, .switchover_allowed = true },
          POLICY_COMPLETE },
        { { .pending = 1001, .threshold = 1000, .switchover_allowed = true }, POLICY_ITERATE },
        { { .pending = 1001, .threshold = 1000, .exact = true, .switchover_allowed = true }, POLICY_ITERATE },
        /* Acknowledgements are missing: go on sending, do not spin when there is nothing. */
        { { .pending = 500, .threshold = 1000, .exact = true }, POLICY_ITERATE },
        { { .pending = 0, .threshold = 1000, .exact = true }, POLICY_WAIT },
        { { .pending = 0, .threshold = 1000 }, POLICY_SYNC },
        /* Auto-converge looks at the guest in the middle of a long round, once. */
        { { .pending = 5000, .threshold = 1000, .sync_due = true, .switchover_allowed = true }, POLICY_SYNC },
        { { .pending = 5000, .threshold = 1000, .sync_due = true, .exact = true, .switchover_allowed = true },
          POLICY_ITERATE },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_assert_cmpint(policy_next_step(&cases[i].state), ==, cases[i].step);
    }
}

static void test_window(void)
{
    PolicyWindow w = { 0 };

    policy_window_start(&w, 5 * SECOND, 1000, 7);
    g_assert_false(policy_window_update(&w, 5 * SECOND + 99999, 9000, 8));
    g_assert_cmpfloat(w.bytes_per_ms, ==, 0);

    /* 12.8 MB and 3125 pages in 100 ms. */
    g_assert_true(policy_window_update(&w, 5 * SECOND + 100000, 12801000, 3132));
    g_assert_cmpfloat_with_epsilon(w.bytes_per_ms, 128000, 1e-6);
    g_assert_cmpfloat_with_epsilon(w.mbps, 1024, 1e-6);
    g_assert_cmpfloat_with_epsilon(w.pages_per_second, 31250, 1e-6);

    /* The next window counts from there: 1 MB in 200 ms. */
    g_assert_true(policy_window_update(&w, 5 * SECOND + 300000, 13801000, 3132));
    g_assert_cmpfloat_with_epsilon(w.bytes_per_ms, 5000, 1e-6);
    g_assert_cmpfloat(w.pages_per_second, ==, 0);
}

static void test_limits(void)
{
    /* A tenth of a second's worth; 0 is no limit; at least one byte gets through. */
    g_assert_cmpuint(policy_window_budget(134217728), ==, 13421772);
    g_assert_cmpuint(policy_window_budget(0), ==, UINT64_MAX);
    g_assert_cmpuint(policy_window_budget(3), ==, 1);

    PolicyWindow w = { .bytes_per_ms = 33570 };
    g_assert_cmpfloat(policy_expected_bandwidth(&w, 0), ==, 33570);
    g_assert_cmpfloat(policy_expected_bandwidth(&w, 1000000), ==, 1000);

    g_assert_cmpuint(policy_threshold(33570, 300), ==, 10071000);
    g_assert_cmpuint(policy_threshold(0, 300), ==, 0);
    g_assert_cmpuint(policy_threshold(1e18, 2000000), ==, INT64_MAX);

    g_assert_cmpint(policy_expected_downtime(4 * MIB, 33570), ==, 124);
    g_assert_cmpint(policy_expected_downtime(4 * MIB, 0), ==, INT64_MAX);
    g_assert_cmpint(policy_expected_downtime(0, 33570), ==, 0);
}

static const ThrottleLimits usual = { .trigger_threshold = 50, .initial = 20, .increment = 10, .max = 99 };

/* One period of 1.1 s in which 100 MiB were sent. */
static bool one_period(ThrottleState *t, const ThrottleLimits *limits, unsigned period, uint64_t dirtied)
{
    return throttle_after_sync(t, limits, period * 1100000ll, dirtied, period * 100 * MIB);
}

static void test_throttle_steps(void)
{
    ThrottleState t;
    throttle_start(&t, 0, 0);

    /* 51 MiB of 100 is above 50 %: each second high period is a step. */
    static const unsigned expected[] = { 0, 20, 20, 30, 30, 40 };
    for (unsigned i = 0; i < G_N_ELEMENTS(expected); i++) {
        bool changed = one_period(&t, &usual, i + 1, 51 * MIB);
        g_assert_cmpuint(t.percent, ==, expected[i]);
        g_assert_cmpint(changed, ==, i % 2 == 1);
    }
    /* 50 MiB is not above, and high periods need not follow each other. */
    g_assert_false(one_period(&t, &usual, 7, 50 * MIB));
    g_assert_false(one_period(&t, &usual, 8, 51 * MIB));
    g_assert_false(one_period(&t, &usual, 9, 50 * MIB));
    g_assert_true(one_period(&t, &usual, 10, 51 * MIB));
    g_assert_cmpuint(t.percent, ==, 50);
}

static void test_throttle_period(void)
{
    ThrottleState t;
    throttle_start(&t, 0, 0);

    /* Syncs inside a second add up and do not count as periods. */
    for (unsigned i = 1; i <= 10; i++) {
        g_assert_false(throttle_after_sync(&t, &usual, i * 100000, 10 * MIB, 100 * MIB));
    }
    g_assert_cmpuint(t.high_periods, ==, 0);
    g_assert_cmpuint(t.dirtied, ==, 100 * MIB);
    throttle_after_sync(&t, &usual, SECOND + 1, 0, 100 * MIB);
    g_assert_cmpuint(t.high_periods, ==, 1);
    g_assert_cmpuint(t.dirtied, ==, 0);
}

/* What auto-converge and dirty-limit go by: each second period above the threshold. */
static void test_throttle_due(void)
{
    ThrottleState t;
    throttle_start(&t, 0, 0);

    for (unsigned i = 1; i <= 6; i++) {
        g_assert_cmpint(throttle_is_due(&t, 50, i * 1100000ll, 51 * MIB, i * 100 * MIB), ==, i % 2 == 0);
    }
    for (unsigned i = 7; i <= 12; i++) {
        g_assert_false(throttle_is_due(&t, 50, i * 1100000ll, 50 * MIB, i * 100 * MIB));
    }
    g_assert_cmpuint(t.percent, ==, 0);
}

static void test_throttle_max(void)
{
    ThrottleLimits limits = usual;
    limits.max = 45;
    ThrottleState t;
    throttle_start(&t, 0, 0);
    for (unsigned i = 1; i <= 20; i++) {
        one_period(&t, &limits, i, 200 * MIB);
    }
    g_assert_cmpuint(t.percent, ==, 45);
}

static void test_throttle_tailslow(void)
{
    ThrottleLimits limits = usual;
    limits.tailslow = true;
    limits.increment = 30;
    ThrottleState t;
    throttle_start(&t, 0, 0);
    one_period(&t, &limits, 1, 100 * MIB);
    one_period(&t, &limits, 2, 100 * MIB);
    g_assert_cmpuint(t.percent, ==, 20);

    /* 80 % running dirties 62.5 MiB, 50 may be: 64 % running balances, a step of 16. */
    one_period(&t, &limits, 3, 62 * MIB + MIB / 2);
    one_period(&t, &limits, 4, 62 * MIB + MIB / 2);
    g_assert_cmpuint(t.percent, ==, 36);

    /* 64 % running, 500 MiB: 6.4 % would balance, but a step is at most 30. */
    one_period(&t, &limits, 5, 500 * MIB);
    one_period(&t, &limits, 6, 500 * MIB);
    g_assert_cmpuint(t.percent, ==, 66);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/policy/steps", test_steps);
    g_test_add_func("/policy/window", test_window);
    g_test_add_func("/policy/limits", test_limits);
    g_test_add_func("/policy/throttle/steps", test_throttle_steps);
    g_test_add_func("/policy/throttle/period", test_throttle_period);
    g_test_add_func("/policy/throttle/due", test_throttle_due);
    g_test_add_func("/policy/throttle/max", test_throttle_max);
    g_test_add_func("/policy/throttle/tailslow", test_throttle_tailslow);
    return g_test_run();
}
