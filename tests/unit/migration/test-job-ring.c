/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring of jobs: each is done once, the barrier separates, errors and the end reach everybody. */
#include "migration/job-ring.h"
#include "util/error.h"

#define WORKERS 4
#define RING 3

typedef struct Rig {
    JobRing ring;
    int done[1000];             /* atomic: how often each job was done */
    int barriers;               /* atomic */
    unsigned fail_at;           /* job that fails; 0: none */
    bool stuck;                 /* job 1 lasts until the ring has failed or ended */
    bool refuse;                /* look() says no after a wait */
    unsigned looks;             /* after a wait */
} Rig;

typedef struct Worker {
    Rig *rig;
    unsigned number;
    unsigned job;
    GThread *thread;
    bool ok;
    GError *error;
} Worker;

static bool look(void *opaque, bool waited, GError **errp)
{
    Rig *rig = opaque;

    rig->looks += waited;
    if (waited && rig->refuse) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "refused");
        return false;
    }
    return true;
}

static bool has_ended(Rig *rig)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&rig->ring.lock);
    return rig->ring.error || rig->ring.quit;
}

static bool do_work(void *opaque, bool barrier, GError **errp)
{
    Worker *w = opaque;
    Rig *rig = w->rig;

    if (barrier) {
        g_atomic_int_inc(&rig->barriers);
        return true;
    }
    while (rig->stuck && w->job == 1 && !has_ended(rig)) {
        g_usleep(100);
    }
    if (rig->fail_at && w->job == rig->fail_at) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "job %u", w->job);
        return false;
    }
    g_atomic_int_inc(&rig->done[w->job]);
    return true;
}

static gpointer worker_thread(gpointer opaque)
{
    Worker *w = opaque;

    w->ok = job_ring_work(&w->rig->ring, w->number, &w->job, do_work, w, &w->error);
    if (!w->ok) {
        job_ring_fail(&w->rig->ring, w->error);
    }
    return NULL;
}

static void start(Rig *rig, Worker *workers)
{
    JobRingConfig config = { sizeof(unsigned), RING, WORKERS, 1000, look, rig };

    job_ring_init(&rig->ring, &config);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (Worker){ .rig = rig, .number = i };
        workers[i].thread = g_thread_new("worker", worker_thread, &workers[i]);
    }
}

/* How many workers failed. */
static unsigned stop(Rig *rig, Worker *workers)
{
    unsigned failed = 0;

    for (unsigned i = 0; i < WORKERS; i++) {
        g_thread_join(workers[i].thread);
        g_assert_true(workers[i].ok == !workers[i].error);
        failed += !workers[i].ok;
        g_clear_error(&workers[i].error);
    }
    job_ring_clear(&rig->ring);
    return failed;
}

static void test_barrier(void)
{
    Rig rig = { 0 };
    Worker workers[WORKERS];
    unsigned job = 0;

    start(&rig, workers);
    for (int round = 1; round <= 10; round++) {
        for (unsigned i = 0; i < 100; i++, job++) {
            g_assert_true(job_ring_push(&rig.ring, &job, NULL));
        }
        g_assert_true(job_ring_barrier(&rig.ring, NULL));
        g_assert_cmpint(g_atomic_int_get(&rig.barriers), ==, round * WORKERS);
        for (unsigned i = 0; i < G_N_ELEMENTS(rig.done); i++) {
            g_assert_cmpint(g_atomic_int_get(&rig.done[i]), ==, i < job);
        }
    }
    g_assert_true(job_ring_quit(&rig.ring));
    g_assert_cmpuint(stop(&rig, workers), ==, 0);
}

/* The first error sticks: the producer gets it from whatever it does, in the worker's words. */
static void test_worker_fails(void)
{
    Rig rig = { .fail_at = 7 };
    Worker workers[WORKERS];
    g_autoptr(GError) error = NULL;
    unsigned job = 1;

    start(&rig, workers);
    while (job_ring_push(&rig.ring, &job, &error)) {
        job = job < 900 ? job + 1 : job;
    }
    g_assert_cmpstr(error->message, ==, "job 7");
    g_clear_error(&error);
    g_assert_false(job_ring_barrier(&rig.ring, &error));
    g_assert_cmpstr(error->message, ==, "job 7");
    g_clear_error(&error);
    g_assert_false(job_ring_check(&rig.ring, &error));
    g_assert_cmpstr(error->message, ==, "job 7");
    g_assert_false(job_ring_quit(&rig.ring));
    g_assert_cmpuint(stop(&rig, workers), ==, 1);
}

/* A worker that does not come on: the producer looks, and what it finds ends everybody. */
static void test_look(void)
{
    Rig rig = { .stuck = true };
    Worker workers[WORKERS];
    g_autoptr(GError) error = NULL;
    unsigned job = 1;

    start(&rig, workers);
    g_assert_true(job_ring_push(&rig.ring, &job, NULL));
    g_assert_true(job_ring_check(&rig.ring, NULL));
    rig.refuse = true;
    g_assert_false(job_ring_barrier(&rig.ring, &error));
    g_assert_cmpstr(error->message, ==, "refused");
    g_assert_cmpuint(rig.looks, ==, 2);
    g_assert_cmpint(g_atomic_int_get(&rig.barriers), ==, 0);
    g_assert_cmpuint(stop(&rig, workers), ==, 0);
}

/* Something is left to do: it is said so, and not begun any more. */
static void test_quit_while_busy(void)
{
    Rig rig = { .stuck = true };
    Worker workers[WORKERS];
    unsigned job = 1;

    start(&rig, workers);
    g_assert_true(job_ring_push(&rig.ring, &job, NULL));
    g_assert_false(job_ring_quit(&rig.ring));
    g_autoptr(GError) late = g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO, "too late");
    g_assert_false(job_ring_fail(&rig.ring, late));
    g_assert_cmpuint(stop(&rig, workers), ==, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/job-ring/barrier", test_barrier);
    g_test_add_func("/job-ring/worker-fails", test_worker_fails);
    g_test_add_func("/job-ring/look", test_look);
    g_test_add_func("/job-ring/quit-while-busy", test_quit_while_busy);
    return g_test_run();
}
