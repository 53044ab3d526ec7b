/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the time goes while the guest runs nowhere: phases that follow one another without a gap. */
#ifndef GODWIT_MIGRATION_DOWNTIME_H
#define GODWIT_MIGRATION_DOWNTIME_H

#include "qapi/qapi-types-migration.h"

/* The source's, in order, and the destination's. */
typedef enum DowntimePhase {
    DOWNTIME_STOP,
    DOWNTIME_PAUSE,
    DOWNTIME_SYNC,
    DOWNTIME_TRANSFER,
    DOWNTIME_DEVICE_STATE,
    DOWNTIME_HAND_OVER,

    DOWNTIME_RECEIVE,
    DOWNTIME_LOAD,
    DOWNTIME_START,

    DOWNTIME__MAX,
} DowntimePhase;

/* Plain data; whoever holds it says which lock or thread guards it.  Times in microseconds. */
typedef struct Downtime {
    int64_t begin_us;               /* 0: has not begun */
    int64_t last_us;                /* when the last phase ended */
    int64_t phase_us[DOWNTIME__MAX];
    unsigned seen;                  /* bit per phase that has ended */
} Downtime;

/* Now; does nothing if it has begun already. */
void downtime_begin(Downtime *d);

/* All time since the last phase ended was @phase.  Does nothing if downtime_begin() was not called. */
void downtime_phase_ended(Downtime *d, DowntimePhase phase);

/* From the beginning to the end of the last phase, microseconds. */
int64_t downtime_total(const Downtime *d);

/* The phases seen; NULL if there is none.  The caller's. */
MigrationDowntime *downtime_report(const Downtime *d);

#endif
