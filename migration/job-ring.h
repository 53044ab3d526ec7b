/* SPDX-License-Identifier: BSD-2-Clause */
/* Jobs from one thread to several workers, in a ring, with a barrier. */
#ifndef GODWIT_MIGRATION_JOB_RING_H
#define GODWIT_MIGRATION_JOB_RING_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The producer, one thread, puts jobs in; whichever worker is idle takes the next. So jobs overtake each
 * other, but not at a barrier: there the ring runs empty, no worker has a job in hand, and then each worker
 * does once what it does at a barrier, before anything else is put in.
 *
 * The first error sticks: workers end, and whatever the producer does fails with it.
 */
typedef struct JobRingConfig {
    size_t job_size;        /* bytes; jobs are copied */
    unsigned size;          /* jobs that may wait for a worker */
    unsigned workers;
    unsigned look_us;       /* how long the producer waits before it looks */
    /*
     * Whether the producer may go on, under the ring's lock, in the producer's thread.  @waited: nothing has
     * moved for look_us.  False with an error, which becomes the ring's.
     */
    bool (*look)(void *opaque, bool waited, GError **errp);
    void *opaque;
} JobRingConfig;

typedef struct JobRing {
    JobRingConfig config;   /* fixed */
    GMutex lock;
    GCond work;             /* to the workers */
    GCond progress;         /* to the producer */
    /* Under the lock. */
    uint8_t *jobs;
    unsigned head, count;
    unsigned busy;          /* workers with a job in hand */
    bool *barrier_wanted;   /* by worker */
    unsigned barriers_left;
    bool quit;
    GError *error;
} JobRing;

/* @config is copied. */
void job_ring_init(JobRing *r, const JobRingConfig *config);
/* When the workers have ended. */
void job_ring_clear(JobRing *r);

/* ---- the producer ---- */

/* Waits for a free place and puts a copy of @job there. */
bool job_ring_push(JobRing *r, const void *job, GError **errp);

/* Returns when all jobs are done and every worker has been through its barrier. */
bool job_ring_barrier(JobRing *r, GError **errp);

/* Looks as after a wait, without one; false if there is an error. */
bool job_ring_check(JobRing *r, GError **errp);

/* Workers end after what they have in hand; true if nobody had anything left to do.  Does not wait. */
bool job_ring_quit(JobRing *r);

/* ---- the workers ---- */

/* Does the job that job_ring_work() was given room for, or, with @barrier, what belongs to a barrier. */
typedef bool JobRingFunc(void *opaque, bool barrier, GError **errp);

/*
 * The life of worker number @worker: @job, of job_size, is filled and @func called for one after the other,
 * without the lock.  True at the end by job_ring_quit() or another's error; false if @func has failed, with
 * its error, of which job_ring_fail() is to be told.
 */
bool job_ring_work(JobRing *r, unsigned worker, void *job, JobRingFunc *func, void *opaque, GError **errp);

/* The caller keeps @error.  True if it is the first, and the ring has not ended before. */
bool job_ring_fail(JobRing *r, const GError *error);

#endif
