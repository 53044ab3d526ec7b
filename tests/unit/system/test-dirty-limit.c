/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the dirty limiter: controller on a model of a vCPU, limiter on a simulated accelerator. */
#include "system/dirty-limit.h"
#include "util/error.h"

#define SECOND_NS UINT64_C(1000000000)
#define SECOND_US 1000000
#define HANG_US (60 * SECOND_US)

/* ---- the controller ---- */

static void test_units(void)
{
    static const struct {
        uint64_t mb_per_s, ns;
    } cases[] = {
        { 0, 0 }, { 1, 3906250 }, { 5, 781250 }, { 1000, 3906 }, { 3906250, 1 }, { 3906251, 1 },
        { UINT64_MAX, 1 },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_assert_cmpuint(dirty_limit_ns_per_page(cases[i].mb_per_s), ==, cases[i].ns);
    }
}

static void test_steps(void)
{
    static const struct {
        uint64_t pace, limit, pages, elapsed, next;
    } cases[] = {
        /* Far above: a page takes 100 us by itself, so that 900 us are missing. */
        { 0, 1000000, 10000, SECOND_NS, 900000 },
        /* Far above and paced already. */
        { 300000, 1000000, 2500, SECOND_NS, 900000 },
        /* Twice as long a period, twice as many pages: the same. */
        { 300000, 1000000, 5000, 2 * SECOND_NS, 900000 },
        /* Near above, 1250 pages would be far: a quarter of 200 us. */
        { 700000, 1000000, 1250, SECOND_NS, 900000 },
        { 700000, 1000000, 1249, SECOND_NS, 749840 },
        /* Near below, 750 pages would be far: a quarter of -250 us. */
        { 700000, 1000000, 800, SECOND_NS, 637500 },
        /* Far below: by the missing 1 ms, but not more than half. */
        { 700000, 1000000, 500, SECOND_NS, 350000 },
        { 700000, 1000000, 740, SECOND_NS, 350000 },
        { 900000, 1000000, 720, SECOND_NS, 511112 },
        /* Never more than the limit allows for a page. */
        { 950000, 1000000, 100000, SECOND_NS, 1000000 },
        { 2000000, 1000000, 1000, SECOND_NS, 1000000 },
        /* Too little to be worth a sleep. */
        { 7000, 1000000, 500, SECOND_NS, 0 },
        { 0, 1000000, 500, SECOND_NS, 0 },
        /* On the limit. */
        { 123456, 1000000, 1000, SECOND_NS, 123456 },
        /* Nothing was written. */
        { 123456, 1000000, 0, SECOND_NS, 123456 },
        { 2000000, 1000000, 0, SECOND_NS, 1000000 },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_test_message("case %zu", i);
        uint64_t next =
            dirty_limit_next_pace(cases[i].pace, cases[i].limit, cases[i].pages, cases[i].elapsed);
        g_assert_cmpuint(next, ==, cases[i].next);
    }
}

/*
 * A vCPU that takes @page_ns to dirty a page, and sleeps @stretch times as long as it is to.  Runs for
 * @periods seconds and returns its rate in the last one, in units of the limit.
 */
static double run_model(double page_ns, double stretch, uint64_t limit_ns, uint64_t *pace, unsigned periods)
{
    uint64_t pages = 0;

    for (unsigned i = 0; i < periods; i++) {
        uint64_t before = *pace;
        pages = (uint64_t)((double)SECOND_NS / (page_ns + stretch * (double)*pace));
        *pace = dirty_limit_next_pace(*pace, limit_ns, pages, SECOND_NS);
        g_assert_cmpuint(*pace, <=, limit_ns);
        g_assert_cmpuint(*pace + limit_ns / DIRTY_LIMIT_LEAST_PART + 1, >=, before / 2);
    }
    return (double)pages * (double)limit_ns / (double)SECOND_NS;
}

static const uint64_t limits[] = { 1, 5, 20, 100, 1000 };

/* A vCPU that is free, and 1.3 to 10000 times as fast as it may be: the second period is right. */
static void test_from_above(void)
{
    static const double speeds[] = { 1.3, 2, 10, 100, 10000 };

    for (size_t i = 0; i < G_N_ELEMENTS(limits); i++) {
        uint64_t limit_ns = dirty_limit_ns_per_page(limits[i]);
        for (size_t j = 0; j < G_N_ELEMENTS(speeds); j++) {
            uint64_t pace = 0;
            double rate = run_model((double)limit_ns / speeds[j], 1, limit_ns, &pace, 2);
            g_assert_cmpfloat_with_epsilon(rate, 1, 0.03);
            /* And it stays there. */
            rate = run_model((double)limit_ns / speeds[j], 1, limit_ns, &pace, 50);
            g_assert_cmpfloat_with_epsilon(rate, 1, 0.03);
        }
        /* Near from the beginning: a quarter of what is missing in each period. */
        uint64_t pace = 0;
        double rate = run_model((double)limit_ns / 1.2, 1, limit_ns, &pace, 9);
        g_assert_cmpfloat_with_epsilon(rate, 1, 0.03);
    }
}

/* A limit that is raised: the pace is halved until it is near, then goes by quarters of what is missing. */
static void test_from_below(void)
{
    static const double speeds[] = { 1, 1.05, 1.2, 2, 10, 1000 };

    for (size_t i = 0; i < G_N_ELEMENTS(limits); i++) {
        uint64_t limit_ns = dirty_limit_ns_per_page(limits[i]);
        for (size_t j = 0; j < G_N_ELEMENTS(speeds); j++) {
            uint64_t pace = limit_ns;   /* of its old pace the limiter leaves that */
            double rate = run_model((double)limit_ns / speeds[j], 1, limit_ns, &pace, 12);
            g_assert_cmpfloat_with_epsilon(rate, 1, 0.05);
        }
    }
}

/* One that is slower than it may be is not slowed down further. */
static void test_slow(void)
{
    static const double speeds[] = { 0.01, 0.1, 0.5, 0.7 };

    for (size_t i = 0; i < G_N_ELEMENTS(limits); i++) {
        uint64_t limit_ns = dirty_limit_ns_per_page(limits[i]);
        for (size_t j = 0; j < G_N_ELEMENTS(speeds); j++) {
            uint64_t pace = limit_ns;
            run_model((double)limit_ns / speeds[j], 1, limit_ns, &pace, 12);
            g_assert_cmpuint(pace, ==, 0);
        }
    }
}

/* Sleeps that are a third too long are made up for, and a vCPU that changes its speed is followed. */
static void test_real_life(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(limits); i++) {
        uint64_t limit_ns = dirty_limit_ns_per_page(limits[i]), pace = 0;
        double page_ns = (double)limit_ns / 50;

        g_assert_cmpfloat_with_epsilon(run_model(page_ns, 1.33, limit_ns, &pace, 10), 1, 0.1);
        g_assert_cmpfloat_with_epsilon(run_model(page_ns / 10, 1, limit_ns, &pace, 10), 1, 0.1);
        g_assert_cmpfloat_with_epsilon(run_model(page_ns * 40, 1, limit_ns, &pace, 12), 1, 0.1);
        g_assert_cmpfloat_with_epsilon(run_model(page_ns, 1, limit_ns, &pace, 3), 1, 0.1);
    }
}

/* ---- the limiter ---- */

#define VCPUS 3
#define RING_PAGES 4096
/* 40 MB/s without a limit. */
#define PAGE_NS 97656

/* vCPUs that dirty pages as fast as their pace lets them, by the clock. */
typedef struct Simulation {
    GMutex lock;
    struct {
        gint64 since_us;
        double pages;
        uint64_t pace_ns;
    } vcpus[VCPUS];
    bool counting, fail_start, fail_fetch;
    unsigned fetches;
} Simulation;

/* The lock is held. */
static void go_on(Simulation *s, unsigned index)
{
    gint64 now = g_get_monotonic_time();

    s->vcpus[index].pages += (double)(now - s->vcpus[index].since_us) * 1000 /
                             (double)(PAGE_NS + s->vcpus[index].pace_ns);
    s->vcpus[index].since_us = now;
}

static bool refuse(GError **errp)
{
    g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "simulated");
    return false;
}

static bool sim_start(void *opaque, GError **errp)
{
    Simulation *s = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&s->lock);

    g_assert_false(s->counting);
    s->counting = !s->fail_start;
    return s->counting || refuse(errp);
}

static void sim_stop(void *opaque)
{
    Simulation *s = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&s->lock);

    g_assert_true(s->counting);
    s->counting = false;
}

static bool sim_fetch(void *opaque, GError **errp)
{
    Simulation *s = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&s->lock);

    s->fetches++;
    return !s->fail_fetch || refuse(errp);
}

static uint64_t sim_pages(void *opaque, unsigned index)
{
    Simulation *s = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&s->lock);

    go_on(s, index);
    return (uint64_t)s->vcpus[index].pages;
}

static void sim_pace(void *opaque, unsigned index, uint64_t ns)
{
    Simulation *s = opaque;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&s->lock);

    go_on(s, index);
    s->vcpus[index].pace_ns = ns;
}

static const DirtyLimiterOps sim_ops = {
    .start = sim_start, .stop = sim_stop, .fetch = sim_fetch, .pages = sim_pages, .pace = sim_pace,
};

static DirtyLimiter *sim_limiter(Simulation *s)
{
    *s = (Simulation){ 0 };
    g_mutex_init(&s->lock);
    for (unsigned i = 0; i < VCPUS; i++) {
        s->vcpus[i].since_us = g_get_monotonic_time();
    }
    DirtyLimiter *l = dirty_limiter_new(VCPUS, RING_PAGES, &sim_ops, s);
    dirty_limiter_set_period(l, 1);     /* as short as there is */
    return l;
}

static uint64_t pace(Simulation *s, unsigned index)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&s->lock);
    return s->vcpus[index].pace_ns;
}

static bool counting(Simulation *s)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&s->lock);
    return s->counting;
}

static void set(DirtyLimiter *l, DirtyLimitOwner owner, int64_t index, uint64_t mb_per_s)
{
    g_autoptr(GError) error = NULL;

    g_assert_true(dirty_limiter_set(l, owner, index, mb_per_s, &error));
    g_assert_no_error(error);
}

static DirtyLimitState query(DirtyLimiter *l, int64_t index)
{
    DirtyLimitState state;

    g_assert_true(dirty_limiter_query(l, index, &state));
    return state;
}

static void wait_for_rate(DirtyLimiter *l, unsigned index, uint64_t rate)
{
    gint64 until = g_get_monotonic_time() + HANG_US;

    while (query(l, index).rate != rate) {
        g_assert_cmpint(g_get_monotonic_time(), <, until);
        g_usleep(5000);
    }
}

static void test_limit(void)
{
    Simulation s;
    DirtyLimiter *l = sim_limiter(&s);

    g_assert_cmpuint(dirty_limiter_vcpus(l), ==, VCPUS);
    g_assert_false(counting(&s));
    set(l, DIRTY_LIMIT_USER, 1, 5);
    g_assert_true(counting(&s));
    wait_for_rate(l, 1, 5);
    /* 5 MB/s is 781250 ns for a page, of which the vCPU needs 97656. */
    g_assert_cmpuint(pace(&s, 1), >=, 781250 * 3 / 4 - PAGE_NS);
    g_assert_cmpuint(pace(&s, 1), <=, 781250);
    g_assert_cmpuint(query(l, 1).limit, ==, 5);
    g_assert_cmpuint(pace(&s, 0), ==, 0);
    g_assert_cmpuint(query(l, 0).limit, ==, 0);
    g_assert_cmpuint(query(l, 0).rate, ==, 0);

    set(l, DIRTY_LIMIT_USER, 1, 20);    /* from below */
    wait_for_rate(l, 1, 20);
    set(l, DIRTY_LIMIT_USER, 1, 1000);  /* more than it can */
    while (pace(&s, 1)) {
        g_usleep(5000);
    }
    wait_for_rate(l, 1, 40);

    set(l, DIRTY_LIMIT_USER, DIRTY_LIMIT_ALL_VCPUS, 2);
    for (unsigned i = 0; i < VCPUS; i++) {
        wait_for_rate(l, i, 2);
    }
    set(l, DIRTY_LIMIT_USER, 2, 0);
    g_assert_cmpuint(pace(&s, 2), ==, 0);
    g_assert_cmpuint(query(l, 2).limit, ==, 0);
    g_assert_cmpuint(query(l, 0).limit, ==, 2);
    g_assert_true(counting(&s));
    set(l, DIRTY_LIMIT_USER, DIRTY_LIMIT_ALL_VCPUS, 0);
    g_assert_false(counting(&s));
    for (unsigned i = 0; i < VCPUS; i++) {
        g_assert_cmpuint(pace(&s, i), ==, 0);
    }
    dirty_limiter_free(l);
}

static void test_owners(void)
{
    Simulation s;
    DirtyLimiter *l = sim_limiter(&s);

    set(l, DIRTY_LIMIT_USER, 0, 10);
    set(l, DIRTY_LIMIT_USER, 1, 3);
    set(l, DIRTY_LIMIT_MIGRATION, DIRTY_LIMIT_ALL_VCPUS, 5);
    g_assert_cmpuint(query(l, 0).limit, ==, 5);
    g_assert_cmpuint(query(l, 1).limit, ==, 3);
    g_assert_cmpuint(query(l, 2).limit, ==, 5);
    wait_for_rate(l, 0, 5);
    wait_for_rate(l, 1, 3);
    set(l, DIRTY_LIMIT_MIGRATION, DIRTY_LIMIT_ALL_VCPUS, 0);
    g_assert_cmpuint(query(l, 0).limit, ==, 10);
    g_assert_cmpuint(query(l, 1).limit, ==, 3);
    g_assert_cmpuint(query(l, 2).limit, ==, 0);
    g_assert_true(counting(&s));
    wait_for_rate(l, 0, 10);
    dirty_limiter_free(l);
}

static void test_figures(void)
{
    Simulation s;
    DirtyLimiter *l = sim_limiter(&s);
    DirtyLimitFigures f;

    g_assert_false(dirty_limiter_figures(l, &f));
    set(l, DIRTY_LIMIT_USER, 0, 8);
    g_assert_true(dirty_limiter_figures(l, &f));
    g_assert_cmpuint(f.ring_full_us, ==, 0);    /* nothing is known yet */
    wait_for_rate(l, 0, 8);
    g_assert_true(dirty_limiter_figures(l, &f));
    /* 4096 pages at 2048 a second are 2 s; the vCPU itself would take 0.4 s for them.  7.5 to 8.5 are 8. */
    g_assert_cmpuint(f.ring_full_us, >=, 2 * SECOND_US / 17 * 16 - 20000);
    g_assert_cmpuint(f.ring_full_us, <=, 2 * SECOND_US / 15 * 16 + 20000);
    g_assert_cmpuint(f.throttle_us, >=, 1600000 / 4 * 3);
    g_assert_cmpuint(f.throttle_us, <=, 2 * SECOND_US);
    set(l, DIRTY_LIMIT_USER, 0, 0);
    g_assert_false(dirty_limiter_figures(l, &f));
    dirty_limiter_free(l);
}

static void test_refused(void)
{
    static const int64_t wrong[] = { -2, VCPUS, INT64_MIN, INT64_MAX };
    Simulation s;
    DirtyLimiter *l = sim_limiter(&s);
    DirtyLimitState state;

    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(dirty_limiter_set(l, DIRTY_LIMIT_USER, wrong[i], 1, &error));
        g_assert_cmpstr(error->message, ==, "incorrect cpu index specified");
        g_assert_false(dirty_limiter_query(l, wrong[i], &state));
    }
    g_autoptr(GError) error = NULL;
    s.fail_start = true;
    g_assert_false(dirty_limiter_set(l, DIRTY_LIMIT_USER, DIRTY_LIMIT_ALL_VCPUS, 1, &error));
    g_assert_cmpstr(error->message, ==, "simulated");
    for (unsigned i = 0; i < VCPUS; i++) {
        g_assert_cmpuint(query(l, i).limit, ==, 0);
    }
    set(l, DIRTY_LIMIT_USER, DIRTY_LIMIT_ALL_VCPUS, 0);     /* not counting: nothing to stop */
    s.fail_start = false;
    set(l, DIRTY_LIMIT_USER, 0, 1);
    wait_for_rate(l, 0, 1);
    dirty_limiter_free(l);
}

/* Two who set and take away at random while the limiter measures; what is in force at the end is nobody's. */
typedef struct Setter {
    DirtyLimiter *limiter;
    DirtyLimitOwner owner;
} Setter;

static gpointer set_at_random(gpointer opaque)
{
    Setter *setter = opaque;
    g_autoptr(GRand) rand = g_rand_new_with_seed(setter->owner);

    for (unsigned i = 0; i < 2000; i++) {
        int64_t index = g_rand_int_range(rand, -1, VCPUS);
        set(setter->limiter, setter->owner, index, (uint64_t)g_rand_int_range(rand, 0, 3));
        DirtyLimitFigures f;
        dirty_limiter_figures(setter->limiter, &f);
        if (i % 100 == 0) {
            g_usleep(10000);
        }
    }
    set(setter->limiter, setter->owner, DIRTY_LIMIT_ALL_VCPUS, 0);
    return NULL;
}

static void test_together(void)
{
    Simulation s;
    DirtyLimiter *l = sim_limiter(&s);
    Setter setters[DIRTY_LIMIT__MAX];
    GThread *threads[DIRTY_LIMIT__MAX];

    for (unsigned i = 0; i < DIRTY_LIMIT__MAX; i++) {
        setters[i] = (Setter){ l, (DirtyLimitOwner)i };
        threads[i] = g_thread_new("setter", set_at_random, &setters[i]);
    }
    for (unsigned i = 0; i < DIRTY_LIMIT__MAX; i++) {
        g_thread_join(threads[i]);
    }
    g_assert_false(counting(&s));
    for (unsigned i = 0; i < VCPUS; i++) {
        g_assert_cmpuint(query(l, i).limit, ==, 0);
        g_assert_cmpuint(pace(&s, i), ==, 0);
    }
    dirty_limiter_free(l);
    dirty_limiter_free(NULL);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/dirty-limit/controller/units", test_units);
    g_test_add_func("/dirty-limit/controller/steps", test_steps);
    g_test_add_func("/dirty-limit/controller/from-above", test_from_above);
    g_test_add_func("/dirty-limit/controller/from-below", test_from_below);
    g_test_add_func("/dirty-limit/controller/slow", test_slow);
    g_test_add_func("/dirty-limit/controller/real-life", test_real_life);
    g_test_add_func("/dirty-limit/limit", test_limit);
    g_test_add_func("/dirty-limit/owners", test_owners);
    g_test_add_func("/dirty-limit/figures", test_figures);
    g_test_add_func("/dirty-limit/refused", test_refused);
    g_test_add_func("/dirty-limit/together", test_together);
    return g_test_run();
}
