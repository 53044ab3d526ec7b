/* SPDX-License-Identifier: BSD-2-Clause */
/* Dirty limits of KVM vCPUs: each pays for the pages that it dirties with sleep, in its own thread. */

/*
 * The pace, so much sleep for a page, is the controller's (system/dirty-limit.c).  Here it is only kept to.
 * A vCPU with a pace comes out of the guest when its ring is full, and at the end of each slice of time; it
 * counts what has come into its ring, adds what the pages cost to its debt, and sleeps the debt off.  Slices
 * are made such that a sleep lasts about SLEEP_NS: many short sleeps are kinder to the guest than a long one,
 * and the size of the ring does not matter for how low a limit can be.
 *
 * At the end of a slice the ring is not harvested.  Harvested pages are protected anew, and those that the
 * guest writes to all the time, its stacks and counters, would cost it something in each slice.  As it is,
 * they do once in a period, when the limiter has all rings harvested to measure the rate.
 *
 * A sleep ends at once when the guest is to stop or to end, or when the limit goes: it waits for the same
 * condition as a parked vCPU.
 */
#include "kvm-internal.h"

#include "trace-accel.h"

/* What a sleep is to last, and what it may last at most.  A debt that is left waits for the next sleep. */
#define SLEEP_NS INT64_C(20000000)
#define SLEEP_MAX_NS INT64_C(1000000000)
#define DEBT_MAX_NS (10 * SLEEP_MAX_NS)

#define SLICE_FIRST_NS INT64_C(1000000)
#define SLICE_MIN_NS INT64_C(100000)
#define SLICE_MAX_NS INT64_C(20000000)
/* The next slice is at most this many times as long or as short. */
#define SLICE_FACTOR 4

static uint64_t pace_of(const KvmVcpu *v)
{
    return __atomic_load_n(&v->pace_ns, __ATOMIC_RELAXED);
}

static uint64_t dirtied_by(const KvmVcpu *v)
{
    return __atomic_load_n(&v->dirtied, __ATOMIC_RELAXED);
}

/* ---- the vCPU's thread ---- */

void kvm_dirty_limit_begin(KvmVcpu *v)
{
    v->pacer.slice_ns = SLICE_FIRST_NS;
    v->pacer.has_timer = v->ring && kvm_vcpu_make_timer(v, &v->pacer.timer, "limited between full rings");
}

void kvm_dirty_limit_end(KvmVcpu *v)
{
    if (v->pacer.has_timer) {
        timer_delete(v->pacer.timer);
    }
}

static void set_timer(KvmVcpu *v, int64_t ns)
{
    struct itimerspec spec = { .it_value.tv_nsec = ns };

    if (v->pacer.has_timer) {
        timer_settime(v->pacer.timer, 0, &spec, NULL);
    }
    v->pacer.paced = ns != 0;
}

/* The slice was @slice long; the vCPU has run for @ran, and that cost it @cost.  Nanoseconds all of them. */
static int64_t next_slice(int64_t slice, int64_t ran, int64_t cost)
{
    double next = cost > 0 ? (double)ran * (double)SLEEP_NS / (double)cost
                : ran < slice ? (double)slice : (double)slice * SLICE_FACTOR;

    next = CLAMP(next, (double)slice / SLICE_FACTOR, (double)slice * SLICE_FACTOR);
    return CLAMP((int64_t)next, SLICE_MIN_NS, SLICE_MAX_NS);
}

/* Returns when the debt is paid or the vCPU is wanted. */
static void sleep_off(KvmVcpu *v)
{
    Kvm *kvm = v->kvm;
    gint64 start = g_get_monotonic_time();
    gint64 end = start + MIN(v->pacer.debt_ns, SLEEP_MAX_NS) / 1000;

    g_mutex_lock(&kvm->lock);
    while (kvm->run && !kvm->quit && pace_of(v) && g_cond_wait_until(&kvm->wake, &kvm->lock, end)) {
        /* woken for somebody else's sake */
    }
    g_mutex_unlock(&kvm->lock);
    int64_t slept = (g_get_monotonic_time() - start) * 1000;
    trace_kvm_dirty_limit_sleep(v->index, v->pacer.debt_ns, slept, v->pacer.slice_ns);
    /* What was slept too long counts for the next pages. */
    v->pacer.debt_ns = MAX(v->pacer.debt_ns - slept, -SLEEP_NS);
}

void kvm_dirty_limit_pay(KvmVcpu *v)
{
    KvmPacer *p = &v->pacer;
    uint64_t pace = pace_of(v);

    if (!pace) {
        if (p->paced) {
            set_timer(v, 0);
        }
        return;
    }
    kvm_dirty_ring_count(v);
    uint64_t dirtied = dirtied_by(v);
    if (!p->paced) {
        /* What was dirtied before there was a pace costs nothing. */
        p->charged = dirtied;
        p->debt_ns = 0;
        p->slice_start_us = g_get_monotonic_time();
    }
    int64_t cost = (int64_t)(MIN(dirtied - p->charged, (uint64_t)DEBT_MAX_NS / pace) * pace);
    p->charged = dirtied;
    p->debt_ns = MIN(p->debt_ns + cost, DEBT_MAX_NS);
    p->slice_ns = next_slice(p->slice_ns, (g_get_monotonic_time() - p->slice_start_us) * 1000, cost);
    if (p->debt_ns > 0) {
        sleep_off(v);
    }
    p->slice_start_us = g_get_monotonic_time();
    set_timer(v, p->slice_ns);
}

/* ---- DirtyLimiterOps; any thread ---- */

static bool limit_start(void *opaque, GError **errp)
{
    return kvm_start_logging(opaque, KVM_LOGGER_LIMIT, errp);
}

static void limit_stop(void *opaque)
{
    kvm_stop_logging(opaque, KVM_LOGGER_LIMIT);
}

static bool limit_fetch(void *opaque, GError **errp)
{
    return kvm_dirty_ring_harvest(opaque, NULL, errp);
}

static uint64_t limit_pages(void *opaque, unsigned index)
{
    return dirtied_by(&((Kvm *)opaque)->vcpus[index]);
}

/* From one pace to another the vCPU goes by itself, at the end of its slice. */
static void limit_pace(void *opaque, unsigned index, uint64_t ns)
{
    Kvm *kvm = opaque;
    KvmVcpu *v = &kvm->vcpus[index];
    uint64_t before = pace_of(v);

    __atomic_store_n(&v->pace_ns, ns, __ATOMIC_RELAXED);
    if (!before != !ns) {
        g_mutex_lock(&kvm->lock);
        kvm_vcpu_kick(v);
        g_cond_broadcast(&kvm->wake);
        g_mutex_unlock(&kvm->lock);
    }
}

static const DirtyLimiterOps limiter_ops = {
    .start = limit_start,
    .stop = limit_stop,
    .fetch = limit_fetch,
    .pages = limit_pages,
    .pace = limit_pace,
};

void kvm_dirty_limit_init(Kvm *kvm)
{
    if (kvm->dirty_method == KVM_DIRTY_RING) {
        kvm->machine->dirty_limiter =
            dirty_limiter_new(kvm->n_vcpus, kvm->ring_entries, &limiter_ops, kvm);
    }
}
