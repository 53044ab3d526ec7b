/* SPDX-License-Identifier: BSD-2-Clause */
/* Jobs from one thread to several workers, in a ring, with a barrier. */
#include "migration/job-ring.h"

#include <string.h>

void job_ring_init(JobRing *r, const JobRingConfig *config)
{
    *r = (JobRing){ .config = *config };
    r->jobs = g_malloc(config->job_size * config->size);
    r->barrier_wanted = g_new0(bool, config->workers);
    g_mutex_init(&r->lock);
    g_cond_init(&r->work);
    g_cond_init(&r->progress);
}

void job_ring_clear(JobRing *r)
{
    g_clear_error(&r->error);
    g_mutex_clear(&r->lock);
    g_cond_clear(&r->work);
    g_cond_clear(&r->progress);
    g_free(r->jobs);
    g_free(r->barrier_wanted);
}

static uint8_t *place(JobRing *r, unsigned i)
{
    return r->jobs + r->config.job_size * (i % r->config.size);
}

static bool is_full(const JobRing *r)
{
    return r->count == r->config.size;
}

/* Somebody has something left to do. */
static bool is_busy(const JobRing *r)
{
    return r->count || r->busy || r->barriers_left;
}

/* ---- the producer ---- */

/* Under the lock. */
static bool check(JobRing *r, bool waited, GError **errp)
{
    if (!r->error && !r->config.look(r->config.opaque, waited, &r->error)) {
        g_cond_broadcast(&r->work);
    }
    if (r->error) {
        g_propagate_error(errp, g_error_copy(r->error));
    }
    return !r->error;
}

/* Under the lock. */
static bool wait_while(JobRing *r, bool (*condition)(const JobRing *r), GError **errp)
{
    bool waited = false;

    while (condition(r) && check(r, waited, NULL)) {
        waited = !g_cond_wait_until(&r->progress, &r->lock, g_get_monotonic_time() + r->config.look_us);
    }
    return check(r, false, errp);
}

bool job_ring_push(JobRing *r, const void *job, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);

    if (!wait_while(r, is_full, errp)) {
        return false;
    }
    memcpy(place(r, r->head + r->count), job, r->config.job_size);
    r->count++;
    g_cond_signal(&r->work);
    return true;
}

bool job_ring_barrier(JobRing *r, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);

    if (!wait_while(r, is_busy, errp)) {
        return false;
    }
    for (unsigned i = 0; i < r->config.workers; i++) {
        r->barrier_wanted[i] = true;
    }
    r->barriers_left = r->config.workers;
    g_cond_broadcast(&r->work);
    return wait_while(r, is_busy, errp);
}

bool job_ring_check(JobRing *r, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);
    return check(r, true, errp);
}

bool job_ring_quit(JobRing *r)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);
    bool idle = !r->error && !is_busy(r);

    r->quit = true;
    g_cond_broadcast(&r->work);
    return idle;
}

/* ---- the workers ---- */

/* Under the lock: waits for something to do.  False when it is time to end. */
static bool next_work(JobRing *r, unsigned worker, void *job, bool *barrier)
{
    for (;;) {
        if (r->quit || r->error) {
            return false;
        }
        if (r->count) {
            memcpy(job, place(r, r->head), r->config.job_size);
            r->head = (r->head + 1) % r->config.size;
            r->count--;
            r->busy++;
            g_cond_signal(&r->progress);
            *barrier = false;
            return true;
        }
        if (r->barrier_wanted[worker]) {
            *barrier = true;
            return true;
        }
        g_cond_wait(&r->work, &r->lock);
    }
}

/* Under the lock. */
static void work_done(JobRing *r, unsigned worker, bool barrier)
{
    if (barrier) {
        r->barrier_wanted[worker] = false;
        r->barriers_left--;
    } else {
        r->busy--;
    }
    if (!is_busy(r)) {
        g_cond_signal(&r->progress);
    }
}

bool job_ring_work(JobRing *r, unsigned worker, void *job, JobRingFunc *func, void *opaque, GError **errp)
{
    bool barrier, ok = true;

    g_mutex_lock(&r->lock);
    while (ok && next_work(r, worker, job, &barrier)) {
        g_mutex_unlock(&r->lock);
        ok = func(opaque, barrier, errp);
        g_mutex_lock(&r->lock);
        if (ok) {
            work_done(r, worker, barrier);
        }
    }
    g_mutex_unlock(&r->lock);
    return ok;
}

bool job_ring_fail(JobRing *r, const GError *error)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);
    bool first = !r->error && !r->quit;

    if (first) {
        r->error = g_error_copy(error);
    }
    g_cond_broadcast(&r->work);
    g_cond_broadcast(&r->progress);
    return first;
}
