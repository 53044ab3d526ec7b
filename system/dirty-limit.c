/* SPDX-License-Identifier: BSD-2-Clause */
/* The dirty limiter: who is limited to what, a thread that measures, and the controller. */

/*
 * One thread, from the first limit on.  Once in a period it has the accelerator count, and gives each limited
 * vCPU a new pace.  Setting and taking away limits never waits for it, nor for a vCPU:
 *
 *   control   whoever sets a limit holds it from the first change to the last, calls of start and stop
 *             included; taken first.
 *   lock      all figures.  The pace is handed to the accelerator with it held, so that the pace of a vCPU
 *             whose limit has gone stays 0.
 */
#include "system/dirty-limit.h"

#include "system/ramblock.h"
#include "trace-system.h"
#include "util/error.h"

/* A rate that differs by more than this part of the limit is far from it. */
#define FAR_PART 4
/* Near the limit this part of a step is made. */
#define NEAR_PART 4

typedef struct LimitedVcpu {
    uint64_t wanted[DIRTY_LIMIT__MAX];  /* MB/s; 0: no limit */
    uint64_t limit_ns;          /* in force, for a page; 0: none */
    uint64_t pace_ns;
    uint64_t pages;             /* at the beginning of the period... */
    gint64 start_us;            /* ...which was then */
    uint64_t rate_pages;        /* dirtied in the last period... */
    uint64_t rate_ns;           /* ...which was so long; 0: there is none */
} LimitedVcpu;

struct DirtyLimiter {
    const DirtyLimiterOps *ops;
    void *opaque;
    unsigned n_vcpus;
    uint64_t ring_pages;

    GMutex control;
    bool counting;              /* control: started */
    GThread *thread;            /* control */

    GMutex lock;                /* everything below */
    GCond changed;
    unsigned n_limited;
    unsigned period_ms;
    bool quit;
    LimitedVcpu *vcpus;
};

/* ---- the controller ---- */

uint64_t dirty_limit_ns_per_page(uint64_t mb_per_s)
{
    /* Beyond this a page takes no whole nanosecond. */
    const uint64_t most = UINT64_C(1000000000) / ((1 << 20) / TARGET_PAGE_SIZE);

    return mb_per_s ? most / MIN(mb_per_s, most) : 0;
}

uint64_t dirty_limit_next_pace(uint64_t pace_ns, uint64_t limit_ns, uint64_t pages, uint64_t elapsed_ns)
{
    if (!pages) {
        return MIN(pace_ns, limit_ns);      /* it stands still or is idle: that says nothing */
    }
    int64_t step = (int64_t)limit_ns - (int64_t)(elapsed_ns / pages);
    double rate = (double)limit_ns * (double)pages / (double)elapsed_ns;    /* in units of the limit */
    if (rate < 1 + 1.0 / FAR_PART && rate > 1 - 1.0 / FAR_PART) {
        step /= NEAR_PART;
    }
    int64_t next = MAX((int64_t)pace_ns + step, (int64_t)pace_ns / 2);
    next = MIN(next, (int64_t)limit_ns);
    return next < (int64_t)limit_ns / DIRTY_LIMIT_LEAST_PART ? 0 : (uint64_t)next;
}

/* ---- measuring ---- */

static void set_pace(DirtyLimiter *l, unsigned index, uint64_t ns)
{
    l->vcpus[index].pace_ns = ns;
    l->ops->pace(l->opaque, index, ns);
}

/* The lock is held; a period is over.  A limit that came in its second half waits for the next one. */
static void measure(DirtyLimiter *l, unsigned index)
{
    LimitedVcpu *v = &l->vcpus[index];
    gint64 now = g_get_monotonic_time();
    uint64_t pages = l->ops->pages(l->opaque, index);

    if (now - v->start_us < (gint64)l->period_ms * 1000 / 2) {
        return;
    }
    v->rate_pages = pages - v->pages;
    v->rate_ns = (uint64_t)(now - v->start_us) * 1000;
    uint64_t next = dirty_limit_next_pace(v->pace_ns, v->limit_ns, v->rate_pages, v->rate_ns);
    trace_dirty_limit_period(index, v->rate_pages, v->rate_ns, v->limit_ns, v->pace_ns, next);
    set_pace(l, index, next);
    v->pages = pages;
    v->start_us = now;
}

static void wait_for_period(DirtyLimiter *l)
{
    gint64 start = g_get_monotonic_time(), end;

    do {
        end = start + (gint64)l->period_ms * 1000;
    } while (!l->quit && l->n_limited && g_cond_wait_until(&l->changed, &l->lock, end));
}

/* The lock is held, and given up meanwhile: the accelerator talks to the kernel. */
static void fetch(DirtyLimiter *l)
{
    g_autoptr(GError) error = NULL;

    g_mutex_unlock(&l->lock);
    if (!l->ops->fetch(l->opaque, &error)) {
        g_warning("dirty limit: %s", error->message);
    }
    g_mutex_lock(&l->lock);
}

static void *limiter_thread(void *opaque)
{
    DirtyLimiter *l = opaque;

    g_mutex_lock(&l->lock);
    while (!l->quit) {
        if (!l->n_limited) {
            g_cond_wait(&l->changed, &l->lock);
            continue;
        }
        fetch(l);
        for (unsigned i = 0; i < l->n_vcpus; i++) {
            if (l->vcpus[i].limit_ns) {
                measure(l, i);
            }
        }
        wait_for_period(l);
    }
    g_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- limits ---- */

static uint64_t lowest(const LimitedVcpu *v)
{
    uint64_t limit = 0;

    for (unsigned i = 0; i < DIRTY_LIMIT__MAX; i++) {
        limit = v->wanted[i] && (!limit || v->wanted[i] < limit) ? v->wanted[i] : limit;
    }
    return limit;
}

/* The lock is held. */
static void apply(DirtyLimiter *l, unsigned index)
{
    LimitedVcpu *v = &l->vcpus[index];
    uint64_t limit_ns = dirty_limit_ns_per_page(lowest(v));

    if (limit_ns == v->limit_ns) {
        return;
    }
    trace_dirty_limit_set(index, lowest(v));
    l->n_limited += !v->limit_ns;
    l->n_limited -= !limit_ns;
    if (!v->limit_ns || !limit_ns) {
        v->start_us = g_get_monotonic_time();
        v->pages = l->ops->pages(l->opaque, index);
        v->rate_pages = v->rate_ns = 0;
    }
    v->limit_ns = limit_ns;
    set_pace(l, index, MIN(v->pace_ns, limit_ns));
    g_cond_broadcast(&l->changed);
}

/* control is held.  True if counting is no longer needed. */
static bool change(DirtyLimiter *l, DirtyLimitOwner owner, int64_t index, uint64_t mb_per_s)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&l->lock);

    for (unsigned i = 0; i < l->n_vcpus; i++) {
        if (index == DIRTY_LIMIT_ALL_VCPUS || index == i) {
            l->vcpus[i].wanted[owner] = mb_per_s;
            apply(l, i);
        }
    }
    return !l->n_limited;
}

static bool begin(DirtyLimiter *l, GError **errp)
{
    if (!l->thread) {
        l->thread = g_thread_try_new("dirty-limit", limiter_thread, l, errp);
    }
    if (l->thread && !l->counting) {
        l->counting = l->ops->start(l->opaque, errp);
    }
    return l->counting;
}

bool dirty_limiter_check_index(const DirtyLimiter *l, int64_t index, GError **errp)
{
    return (index >= 0 && index < l->n_vcpus) || error_set_invalid(errp, "incorrect cpu index specified");
}

bool dirty_limiter_set(DirtyLimiter *l, DirtyLimitOwner owner, int64_t index, uint64_t mb_per_s,
                       GError **errp)
{
    if (index != DIRTY_LIMIT_ALL_VCPUS && !dirty_limiter_check_index(l, index, errp)) {
        return false;
    }
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&l->control);
    if (mb_per_s && !begin(l, errp)) {
        return false;
    }
    if (change(l, owner, index, mb_per_s) && l->counting) {
        l->counting = false;
        l->ops->stop(l->opaque);
    }
    return true;
}

void dirty_limiter_set_period(DirtyLimiter *l, unsigned ms)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&l->lock);
    ms = MAX(ms, DIRTY_LIMIT_LEAST_PERIOD_MS);
    if (l->period_ms != ms) {
        l->period_ms = ms;
        g_cond_broadcast(&l->changed);
    }
}

/* ---- what it tells ---- */

unsigned dirty_limiter_vcpus(const DirtyLimiter *l)
{
    return l->n_vcpus;
}

/* Pages to 2^20 bytes, nanoseconds to seconds, rounded. */
static uint64_t mb_per_second(const LimitedVcpu *v)
{
    double bytes = (double)v->rate_pages * TARGET_PAGE_SIZE;

    return v->rate_ns ? (uint64_t)(bytes * 1e9 / (double)v->rate_ns / (1 << 20) + 0.5) : 0;
}

bool dirty_limiter_query(DirtyLimiter *l, int64_t index, DirtyLimitState *state)
{
    if (!dirty_limiter_check_index(l, index, NULL)) {
        return false;
    }
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&l->lock);
    const LimitedVcpu *v = &l->vcpus[index];
    *state = (DirtyLimitState){ .limit = lowest(v), .rate = mb_per_second(v) };
    return true;
}

bool dirty_limiter_figures(DirtyLimiter *l, DirtyLimitFigures *figures)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&l->lock);
    double pages_per_ns = 0;
    uint64_t pace_ns = 0;

    for (unsigned i = 0; i < l->n_vcpus; i++) {
        const LimitedVcpu *v = &l->vcpus[i];
        pace_ns = MAX(pace_ns, v->pace_ns);
        pages_per_ns += v->rate_ns ? (double)v->rate_pages / (double)v->rate_ns : 0;
    }
    double average = l->n_limited ? pages_per_ns / l->n_limited : 0;
    figures->throttle_us = l->ring_pages * pace_ns / 1000;
    figures->ring_full_us = average > 0 ? (uint64_t)((double)l->ring_pages / average / 1000) : 0;
    return l->n_limited > 0;
}

/* ---- life ---- */

DirtyLimiter *dirty_limiter_new(unsigned n_vcpus, uint64_t ring_pages, const DirtyLimiterOps *ops,
                                void *opaque)
{
    DirtyLimiter *l = g_new0(DirtyLimiter, 1);

    l->ops = ops;
    l->opaque = opaque;
    l->n_vcpus = n_vcpus;
    l->ring_pages = ring_pages;
    l->period_ms = DIRTY_LIMIT_PERIOD_MS;
    l->vcpus = g_new0(LimitedVcpu, n_vcpus);
    g_mutex_init(&l->control);
    g_mutex_init(&l->lock);
    g_cond_init(&l->changed);
    return l;
}

void dirty_limiter_free(DirtyLimiter *l)
{
    if (!l) {
        return;
    }
    g_mutex_lock(&l->lock);
    l->quit = true;
    g_cond_broadcast(&l->changed);
    g_mutex_unlock(&l->lock);
    if (l->thread) {
        g_thread_join(l->thread);
    }
    g_cond_clear(&l->changed);
    g_mutex_clear(&l->lock);
    g_mutex_clear(&l->control);
    g_free(l->vcpus);
    g_free(l);
}
