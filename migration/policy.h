/* SPDX-License-Identifier: BSD-2-Clause */
/* Migration policy as pure functions: iterate or switch over, how fast, how hard to throttle. */
#ifndef GODWIT_MIGRATION_POLICY_H
#define GODWIT_MIGRATION_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Nothing here knows a VM, a clock or a lock: the caller fills a struct, asks, and acts.  All of it belongs
 * to the thread that calls it.
 */

/* Length of a rate-limit window. */
#define POLICY_WINDOW_MS 100

/* ---- what to do next ---- */

typedef enum {
    POLICY_ITERATE,     /* send one PART section */
    POLICY_SYNC,        /* fetch the dirty log, then ask again with exact set */
    POLICY_COMPLETE,    /* stop the guest and switch over */
    POLICY_WAIT,        /* nothing to send and not allowed to switch over: sleep, then ask again */
} PolicyStep;

typedef struct PolicyState {
    uint64_t pending;           /* bytes not yet sent according to the bitmap */
    uint64_t threshold;         /* bytes that fit into the downtime limit */
    bool exact;                 /* the dirty log was fetched since the last page was sent */
    bool switchover_allowed;    /* no acknowledgement is missing, or the guest does not run */
    bool sync_due;              /* the last sync was too long ago to judge the guest */
} PolicyState;

PolicyStep policy_next_step(const PolicyState *state);

/* ---- bandwidth ---- */

typedef struct PolicyWindow {
    int64_t start_us;           /* when the window began */
    uint64_t start_bytes;       /* counters at that moment */
    uint64_t start_pages;
    double bytes_per_ms;        /* of the last complete window; 0 until there is one */
    double mbps;                /* 10^6 bits per second */
    double pages_per_second;
} PolicyWindow;

void policy_window_start(PolicyWindow *w, int64_t now_us, uint64_t bytes, uint64_t pages);

/* If the window has lasted POLICY_WINDOW_MS: computes the figures, begins the next one and returns true. */
bool policy_window_update(PolicyWindow *w, int64_t now_us, uint64_t bytes, uint64_t pages);

/* Bytes that may be sent in one window at @max_bandwidth bytes/s; 0 means no limit: UINT64_MAX. */
uint64_t policy_window_budget(uint64_t max_bandwidth);

/*
 * Expected bandwidth at switchover in bytes/ms: @avail_switchover bytes/s if it is not 0, else as measured.
 */
double policy_expected_bandwidth(const PolicyWindow *w, uint64_t avail_switchover);

/* Bytes that fit into @downtime_limit_ms; 0 as long as no bandwidth is known. */
uint64_t policy_threshold(double bytes_per_ms, uint64_t downtime_limit_ms);

/* Milliseconds that @dirty_bytes would take, rounded down; INT64_MAX if the bandwidth is 0. */
int64_t policy_expected_downtime(uint64_t dirty_bytes, double bytes_per_ms);

/* ---- auto-converge and dirty-limit ---- */

typedef struct ThrottleLimits {
    unsigned trigger_threshold;     /* percent of the bytes sent that the guest may dirty */
    unsigned initial;               /* percent */
    unsigned increment;
    unsigned max;
    bool tailslow;
} ThrottleLimits;

typedef struct ThrottleState {
    int64_t period_start_us;
    uint64_t period_sent;           /* counter of bytes sent when the period began */
    uint64_t dirtied;               /* bytes dirtied in this period so far */
    unsigned high_periods;          /* periods above the threshold since the last step */
    double last_dirtied;            /* bytes, in the period before */
    double last_allowed;            /* how many it might have been */
    unsigned percent;               /* now; 0: off */
} ThrottleState;

void throttle_start(ThrottleState *t, int64_t now_us, uint64_t sent);

/*
 * After each sync: @dirtied bytes became dirty since the sync before, @sent is the counter of bytes sent.
 * Returns true if the guest is to be slowed down: it has dirtied more than @trigger_threshold percent of what
 * was sent, in two periods since the last time.
 */
bool throttle_is_due(ThrottleState *t, unsigned trigger_threshold, int64_t now_us, uint64_t dirtied,
                     uint64_t sent);

/* The same, and takes the next step of auto-converge.  Returns true if t->percent has changed. */
bool throttle_after_sync(ThrottleState *t, const ThrottleLimits *limits, int64_t now_us,
                         uint64_t dirtied, uint64_t sent);

#endif
