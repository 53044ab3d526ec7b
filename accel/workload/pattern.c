/* SPDX-License-Identifier: BSD-2-Clause */
/* Which page a synthetic vCPU writes next. */
#include "workload.h"

#include <math.h>

const char *const workload_pattern_names[WORKLOAD_PATTERN__MAX + 1] = {
    "sequential", "random", "hot", "fill", NULL
};

/* The skew of the hot set: half of all writes go to the hottest sixteenth, (1/2)^4, of the pages. */
#define HOT_EXPONENT 4

/* xorshift64*: a register of the guest, so that the guest goes on where it was. */
static uint64_t next_random(WorkloadVcpu *v)
{
    uint64_t x = v->regs.rng;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    v->regs.rng = x;
    return x * 0x2545f4914f6cdd1dull;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t workload_pattern_stride(uint64_t pages)
{
    uint64_t stride = 2654435761u % (pages ? pages : 1);
    while (stride > 1 && gcd(stride, pages) != 1) {
        stride--;
    }
    return stride ? stride : 1;
}

static int64_t next_sequential(WorkloadVcpu *v)
{
    uint64_t page = v->regs.position++;
    if (v->regs.position >= v->set_pages) {
        v->regs.position = 0;
    }
    return page;
}

static int64_t next_any(WorkloadVcpu *v)
{
    return next_random(v) % v->set_pages;
}

static int64_t next_hot(WorkloadVcpu *v)
{
    double draw = (next_random(v) >> 11) * 0x1p-53;
    uint64_t rank = (uint64_t)(pow(draw, HOT_EXPONENT) * v->set_pages);
    return (__uint128_t)rank * v->stride % v->set_pages;
}

static int64_t next_idle(WorkloadVcpu *v)
{
    return -1;
}

int64_t workload_pattern_next(WorkloadVcpu *v)
{
    static int64_t (*const next[])(WorkloadVcpu *) = {
        [WORKLOAD_PATTERN_SEQUENTIAL] = next_sequential,
        [WORKLOAD_PATTERN_RANDOM] = next_any,
        [WORKLOAD_PATTERN_HOT] = next_hot,
        [WORKLOAD_PATTERN_FILL] = next_idle,
    };

    if (!v->regs.prefilled) {
        uint64_t page = v->regs.position++;
        if (v->regs.position >= v->data_pages) {
            v->regs.position = 0;
            v->regs.prefilled = true;
        }
        return page;
    }
    return next[v->w->cfg.pattern](v);
}
