/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the time goes while the guest runs nowhere. */
#include "migration/downtime.h"

#include <glib.h>

void downtime_begin(Downtime *d)
{
    if (!d->begin_us) {
        d->begin_us = g_get_monotonic_time();
        d->last_us = d->begin_us;
    }
}

void downtime_phase_ended(Downtime *d, DowntimePhase phase)
{
    if (!d->begin_us) {
        return;
    }
    int64_t now = g_get_monotonic_time();
    d->phase_us[phase] += now - d->last_us;
    d->last_us = now;
    d->seen |= 1u << phase;
}

int64_t downtime_total(const Downtime *d)
{
    return d->last_us - d->begin_us;
}

MigrationDowntime *downtime_report(const Downtime *d)
{
    static const struct {
        size_t has, value;
    } members[DOWNTIME__MAX] = {
#define MEMBER(name) { offsetof(MigrationDowntime, has_##name), offsetof(MigrationDowntime, name) }
        [DOWNTIME_STOP] = MEMBER(stop),
        [DOWNTIME_PAUSE] = MEMBER(pause),
        [DOWNTIME_SYNC] = MEMBER(sync),
        [DOWNTIME_TRANSFER] = MEMBER(transfer),
        [DOWNTIME_DEVICE_STATE] = MEMBER(device_state),
        [DOWNTIME_HAND_OVER] = MEMBER(hand_over),
        [DOWNTIME_RECEIVE] = MEMBER(receive),
        [DOWNTIME_LOAD] = MEMBER(load),
        [DOWNTIME_START] = MEMBER(start),
#undef MEMBER
    };

    if (!d->seen) {
        return NULL;
    }
    MigrationDowntime *report = g_new0(MigrationDowntime, 1);
    report->total = downtime_total(d);
    for (unsigned i = 0; i < DOWNTIME__MAX; i++) {
        *(bool *)((char *)report + members[i].has) = d->seen >> i & 1;
        *(int64_t *)((char *)report + members[i].value) = d->phase_us[i];
    }
    return report;
}
