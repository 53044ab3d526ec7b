/* SPDX-License-Identifier: BSD-2-Clause */
/* Migration policy as pure functions. */
#include "migration/policy.h"

#include <glib.h>

/* Two periods in a row may be an accident of where the scan stands; the second high one counts. */
#define THROTTLE_HIGH_PERIODS 2
#define THROTTLE_PERIOD_US (1000 * 1000)

PolicyStep policy_next_step(const PolicyState *state)
{
    if (state->pending > state->threshold) {
        return state->sync_due && !state->exact ? POLICY_SYNC : POLICY_ITERATE;
    }
    if (!state->exact) {
        return POLICY_SYNC;
    }
    if (state->switchover_allowed) {
        return POLICY_COMPLETE;
    }
    return state->pending ? POLICY_ITERATE : POLICY_WAIT;
}

void policy_window_start(PolicyWindow *w, int64_t now_us, uint64_t bytes, uint64_t pages)
{
    w->start_us = now_us;
    w->start_bytes = bytes;
    w->start_pages = pages;
}

bool policy_window_update(PolicyWindow *w, int64_t now_us, uint64_t bytes, uint64_t pages)
{
    int64_t us = now_us - w->start_us;
    if (us < POLICY_WINDOW_MS * 1000) {
        return false;
    }
    double sent = (double)(bytes - w->start_bytes);
    w->bytes_per_ms = sent * 1000 / (double)us;
    w->mbps = sent * 8 / (double)us;    /* bits per microsecond */
    w->pages_per_second = (double)(pages - w->start_pages) * 1e6 / (double)us;
    policy_window_start(w, now_us, bytes, pages);
    return true;
}

uint64_t policy_window_budget(uint64_t max_bandwidth)
{
    if (max_bandwidth == 0) {
        return UINT64_MAX;
    }
    return MAX(max_bandwidth / (1000 / POLICY_WINDOW_MS), 1);
}

double policy_expected_bandwidth(const PolicyWindow *w, uint64_t avail_switchover)
{
    return avail_switchover ? (double)avail_switchover / 1000 : w->bytes_per_ms;
}

uint64_t policy_threshold(double bytes_per_ms, uint64_t downtime_limit_ms)
{
    double bytes = bytes_per_ms * (double)downtime_limit_ms;
    return bytes >= (double)INT64_MAX ? INT64_MAX : (uint64_t)bytes;
}

int64_t policy_expected_downtime(uint64_t dirty_bytes, double bytes_per_ms)
{
    if (bytes_per_ms <= 0) {
        return INT64_MAX;
    }
    double ms = (double)dirty_bytes / bytes_per_ms;
    return ms >= (double)INT64_MAX ? INT64_MAX : (int64_t)ms;
}

void throttle_start(ThrottleState *t, int64_t now_us, uint64_t sent)
{
    *t = (ThrottleState){ .period_start_us = now_us, .period_sent = sent };
}

bool throttle_is_due(ThrottleState *t, unsigned trigger_threshold, int64_t now_us, uint64_t dirtied,
                     uint64_t sent)
{
    t->dirtied += dirtied;
    if (now_us - t->period_start_us <= THROTTLE_PERIOD_US) {
        return false;
    }
    t->last_dirtied = (double)t->dirtied;
    t->last_allowed = (double)(sent - t->period_sent) * trigger_threshold / 100;
    t->period_start_us = now_us;
    t->period_sent = sent;
    t->dirtied = 0;
    if (t->last_dirtied <= t->last_allowed || ++t->high_periods < THROTTLE_HIGH_PERIODS) {
        return false;
    }
    t->high_periods = 0;
    return true;
}

static unsigned next_percent(const ThrottleState *t, const ThrottleLimits *limits)
{
    if (t->percent == 0) {
        return MIN(limits->initial, limits->max);
    }
    unsigned step = limits->increment;
    if (limits->tailslow) {
        /* Dirtying is taken to be proportional to the share of time that the vCPUs run. */
        double share = 100.0 - t->percent;
        double balanced = share * t->last_allowed / t->last_dirtied;
        step = MIN(step, (unsigned)(share - balanced));
    }
    return MIN(t->percent + step, limits->max);
}

bool throttle_after_sync(ThrottleState *t, const ThrottleLimits *limits, int64_t now_us, uint64_t dirtied,
                         uint64_t sent)
{
    unsigned before = t->percent;

    if (throttle_is_due(t, limits->trigger_threshold, now_us, dirtied, sent)) {
        t->percent = next_percent(t, limits);
    }
    return t->percent != before;
}
