/* SPDX-License-Identifier: BSD-2-Clause */
/* The guest's clock: nanoseconds that it has been running, and the section "timer" that carries them. */
#ifndef GODWIT_SYSTEM_MACHINE_CLOCK_H
#define GODWIT_SYSTEM_MACHINE_CLOCK_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "system/vmstate.h"

typedef struct MachineClock {
    GMutex lock;            /* protects the next three; nothing is called with it held */
    int64_t offset;         /* the time; while running: what to add to the host's monotonic clock */
    bool running;
    int64_t cpu_ticks;      /* as it came in with the guest; nothing here counts ticks */

    /* Section "timer": filled and used while vCPUs are stopped, by the thread that saves or loads. */
    int64_t saved_cpu_ticks_offset;
    int64_t saved_cpu_clock_offset;
    SaveEntry save_entry;
} MachineClock;

void machine_clock_init(MachineClock *clock);
void machine_clock_clear(MachineClock *clock);
void machine_clock_start(MachineClock *clock);
void machine_clock_stop(MachineClock *clock);
int64_t machine_clock_get(MachineClock *clock);
void machine_clock_put(MachineClock *clock, int64_t ns);

#endif
