/* SPDX-License-Identifier: BSD-2-Clause */
/* The guest's clock: nanoseconds that it has been running, and the section "timer" that carries them. */
#include "system/machine-clock.h"

#include <string.h>
#include <time.h>

static int64_t host_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Any value may come from the stream, so the sums wrap instead of overflowing. */
static int64_t wrapping_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t wrapping_sub(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

void machine_clock_start(MachineClock *clock)
{
    g_mutex_lock(&clock->lock);
    if (!clock->running) {
        clock->offset = wrapping_sub(clock->offset, host_clock_ns());
        clock->running = true;
    }
    g_mutex_unlock(&clock->lock);
}

void machine_clock_stop(MachineClock *clock)
{
    g_mutex_lock(&clock->lock);
    if (clock->running) {
        clock->offset = wrapping_add(clock->offset, host_clock_ns());
        clock->running = false;
    }
    g_mutex_unlock(&clock->lock);
}

int64_t machine_clock_get(MachineClock *clock)
{
    g_mutex_lock(&clock->lock);
    int64_t ns = clock->running ? wrapping_add(clock->offset, host_clock_ns()) : clock->offset;
    g_mutex_unlock(&clock->lock);
    return ns;
}

void machine_clock_put(MachineClock *clock, int64_t ns)
{
    g_mutex_lock(&clock->lock);
    clock->offset = clock->running ? wrapping_sub(ns, host_clock_ns()) : ns;
    g_mutex_unlock(&clock->lock);
}

static bool timer_pre_save(void *opaque, GError **errp)
{
    MachineClock *clock = opaque;

    clock->saved_cpu_clock_offset = machine_clock_get(clock);
    g_mutex_lock(&clock->lock);
    clock->saved_cpu_ticks_offset = clock->cpu_ticks;
    g_mutex_unlock(&clock->lock);
    return true;
}

/* A section of version 1 has no clock: the guest's goes on from where it is. */
static bool timer_pre_load(void *opaque, GError **errp)
{
    MachineClock *clock = opaque;

    clock->saved_cpu_clock_offset = machine_clock_get(clock);
    return true;
}

static bool timer_post_load(void *opaque, int version, GError **errp)
{
    MachineClock *clock = opaque;

    machine_clock_put(clock, clock->saved_cpu_clock_offset);
    g_mutex_lock(&clock->lock);
    clock->cpu_ticks = clock->saved_cpu_ticks_offset;
    g_mutex_unlock(&clock->lock);
    return true;
}

static const VMStateField timer_fields[] = {
    { .name = "cpu_ticks_offset", .type = VMSTATE_INT64, .size = 8,
      .offset = offsetof(MachineClock, saved_cpu_ticks_offset) },
    { .name = "unused", .type = VMSTATE_UNUSED, .size = 8 },
    { .name = "cpu_clock_offset", .type = VMSTATE_INT64, .size = 8, .version = 2,
      .offset = offsetof(MachineClock, saved_cpu_clock_offset) },
    VMSTATE_END,
};

static const VMStateDescription timer_vmsd = {
    .name = "timer",
    .version = 2,
    .minimum_version = 1,
    .fields = timer_fields,
    .pre_save = timer_pre_save,
    .pre_load = timer_pre_load,
    .post_load = timer_post_load,
};

void machine_clock_init(MachineClock *clock)
{
    memset(clock, 0, sizeof(*clock));
    g_mutex_init(&clock->lock);
    clock->save_entry.idstr = "timer";
    clock->save_entry.vmsd = &timer_vmsd;
    clock->save_entry.opaque = clock;
}

void machine_clock_clear(MachineClock *clock)
{
    g_mutex_clear(&clock->lock);
}
