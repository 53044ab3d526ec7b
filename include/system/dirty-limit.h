/* SPDX-License-Identifier: BSD-2-Clause */
/* DirtyLimiter: keeps each vCPU to a rate of dirtying pages, by making it sleep for the pages it dirties. */
#ifndef GODWIT_SYSTEM_DIRTY_LIMIT_H
#define GODWIT_SYSTEM_DIRTY_LIMIT_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- the controller: pure ---- */

/* A vCPU that ought to sleep less than this part of what its limit allows for a page need not sleep. */
#define DIRTY_LIMIT_LEAST_PART 256

/* 1 MB/s, as clients write it, is 2^20 bytes a second. */
uint64_t dirty_limit_ns_per_page(uint64_t mb_per_s);

/*
 * A vCPU dirtied @pages in @elapsed_ns while it slept @pace_ns for each of them.  How long is it to sleep
 * for each page from now on, so that a page takes @limit_ns?  See docs/kvm.md for why this finds it.
 */
uint64_t dirty_limit_next_pace(uint64_t pace_ns, uint64_t limit_ns, uint64_t pages, uint64_t elapsed_ns);

/* ---- the limiter of a machine ---- */

/* What the limiter asks of the accelerator.  Every entry is filled; each may be called from any thread. */
typedef struct DirtyLimiterOps {
    /* Before the first limit comes into force: begin to count.  After the last one has gone: no need to. */
    bool (*start)(void *opaque, GError **errp);
    void (*stop)(void *opaque);
    /* Make pages() up to date. */
    bool (*fetch)(void *opaque, GError **errp);
    /* Pages that vCPU @index has dirtied so far; only differences mean something. */
    uint64_t (*pages)(void *opaque, unsigned index);
    /*
     * From now on the vCPU is to sleep @ns for each page that it dirties; 0: it runs freely, and a sleep that
     * is under way ends.  Does not wait for the vCPU.
     */
    void (*pace)(void *opaque, unsigned index, uint64_t ns);
} DirtyLimiterOps;

/* Who wants a limit.  If both do, the lower one is in force. */
typedef enum {
    DIRTY_LIMIT_USER,
    DIRTY_LIMIT_MIGRATION,
    DIRTY_LIMIT__MAX,
} DirtyLimitOwner;

typedef struct DirtyLimiter DirtyLimiter;

/* @ring_pages: how many pages fit into a vCPU's dirty ring, for dirty_limiter_figures(). */
DirtyLimiter *dirty_limiter_new(unsigned n_vcpus, uint64_t ring_pages, const DirtyLimiterOps *ops,
                                void *opaque);
/* Ends its thread.  NULL is fine.  The accelerator, when nobody uses the limiter any more. */
void dirty_limiter_free(DirtyLimiter *limiter);

#define DIRTY_LIMIT_ALL_VCPUS (-1)

/* False: there is no such vCPU ("incorrect cpu index specified").  Any thread. */
bool dirty_limiter_check_index(const DirtyLimiter *limiter, int64_t index, GError **errp);

/*
 * Limits vCPU @index, or all, to @mb_per_s; 0: no limit.  False where there is no such vCPU or where
 * the kernel refuses to count pages.  Does not wait for a vCPU.  Any thread.
 */
bool dirty_limiter_set(DirtyLimiter *limiter, DirtyLimitOwner owner, int64_t index, uint64_t mb_per_s,
                       GError **errp);

/*
 * Rates are measured over this time; 1000 by default.  Less than DIRTY_LIMIT_LEAST_PERIOD_MS is taken for
 * that: too few sleeps would fit into it.  Any thread.
 */
#define DIRTY_LIMIT_PERIOD_MS 1000
#define DIRTY_LIMIT_LEAST_PERIOD_MS 100
void dirty_limiter_set_period(DirtyLimiter *limiter, unsigned ms);

/* One vCPU: MB/s. */
typedef struct DirtyLimitState {
    uint64_t limit;             /* in force; 0: none */
    uint64_t rate;              /* in the last period, rounded; 0 without a limit */
} DirtyLimitState;

unsigned dirty_limiter_vcpus(const DirtyLimiter *limiter);
/* False: no such vCPU.  Any thread. */
bool dirty_limiter_query(DirtyLimiter *limiter, int64_t index, DirtyLimitState *state);

/* Of those vCPUs that are limited, microseconds.  False: none is.  Any thread. */
typedef struct DirtyLimitFigures {
    uint64_t throttle_us;       /* the longest that one sleeps for a ring full of pages */
    uint64_t ring_full_us;      /* how long a ring fills at their average rate; 0: they stand still */
} DirtyLimitFigures;

bool dirty_limiter_figures(DirtyLimiter *limiter, DirtyLimitFigures *figures);

#endif
