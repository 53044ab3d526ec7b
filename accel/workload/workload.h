/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of the workload machine: its vCPUs, their registers, and the content of their pages. */
#ifndef GODWIT_ACCEL_WORKLOAD_WORKLOAD_H
#define GODWIT_ACCEL_WORKLOAD_WORKLOAD_H

#include "accel/workload.h"

/* Most vCPUs of a workload machine. */
#define WORKLOAD_VCPUS_MAX 64

typedef enum {
    WORKLOAD_PATTERN_SEQUENTIAL,        /* one page after the other, for ever */
    WORKLOAD_PATTERN_RANDOM,            /* each step any page of the working set */
    WORKLOAD_PATTERN_HOT,               /* few pages often, most pages seldom (zipf-like) */
    WORKLOAD_PATTERN_FILL,              /* fill memory once, then idle */
    WORKLOAD_PATTERN__MAX
} WorkloadPattern;

extern const char *const workload_pattern_names[WORKLOAD_PATTERN__MAX + 1];

/* Guest configuration: travels in section "workload", so that the guest stays the same guest. */
typedef struct WorkloadConfig {
    uint32_t pattern;
    uint32_t n_vcpus;
    uint64_t rate;              /* bytes/s, all vCPUs together; 0: unlimited */
    uint64_t working_set;       /* bytes, all vCPUs together; 0: all of it */
    uint64_t seed;
    uint64_t total_pages;       /* of guest RAM; must be equal on both sides */
    uint8_t zero_percent;       /* share of written pages that are all zero */
    uint8_t compressible_percent;
    bool prefill;               /* write every page once before the pattern begins */
} WorkloadConfig;

/* ---- page.c: what a page holds; pure functions ---- */

typedef enum {
    WORKLOAD_PAGE_OK,
    WORKLOAD_PAGE_LOST,         /* empty though it had been written */
    WORKLOAD_PAGE_STALE,        /* an older version of the same page */
    WORKLOAD_PAGE_FOREIGN,      /* the content of some other page, or none of ours */
    WORKLOAD_PAGE_TORN,         /* the right stamp over a wrong body */
    WORKLOAD_PAGE_FUTURE,       /* a newer version than the guest has written */
} WorkloadPageVerdict;

/*
 * A stamped page: 32 bytes of stamp, then a body that follows from the
 * stamp, so that all 4096 bytes are known to whoever knows (page, version).
 *   0  u64 page number   8  u64 version   16  u64 writer   24  u64 checksum of the stamp
 * Version 0 is a page never written: all zero.  Host byte order: guest memory has no other reader.
 */
void workload_page_write(const WorkloadConfig *cfg, void *page, uint64_t number, uint32_t version,
                         unsigned writer);
WorkloadPageVerdict workload_page_check(const WorkloadConfig *cfg, const void *page, uint64_t number,
                                        uint32_t version, unsigned writer);
const char *workload_page_verdict_str(WorkloadPageVerdict v);

/* What page @number in version @version adds to the sum over a vCPU's version table. */
uint64_t workload_version_hash(uint64_t number, uint32_t version);

/* ---- registers of a vCPU: section "workload-vcpu" ---- */

typedef struct WorkloadRegisters {
    uint64_t steps;
    uint64_t pages_written;
    uint64_t position;          /* of the sequential pattern and of the prefill */
    uint64_t rng;
    uint64_t table_sum;         /* sum of workload_version_hash() over the version table */
    uint64_t errors;
    uint64_t longest_gap_ns;
    int64_t last_step_ns;       /* CLOCK_REALTIME, so that it has a meaning on another host */
    bool prefilled;
} WorkloadRegisters;

typedef struct Workload Workload;

/*
 * One synthetic vCPU.  It owns a contiguous part of the guest's pages: first the
 * version table (4 bytes for each data page), then the data pages.  Only its own thread writes them.
 */
typedef struct WorkloadVcpu {
    Workload *w;
    unsigned index;
    GThread *thread;
    /* The thread's; others touch it only while the vCPU is stopped.  errors: also under w->lock, for a
     * vCPU may sweep while it is stopped. */
    WorkloadRegisters regs;

    uint64_t first_page;        /* of guest RAM: where the version table begins */
    uint64_t table_pages;
    uint64_t data_pages;
    uint64_t set_pages;         /* data pages in the working set */
    uint64_t stride;            /* scatters the hot set; coprime to set_pages */

    /* Copies for workload_query(), atomics, written by the thread. */
    WorkloadVcpuStats stats;

    /* A sweep checks all data pages while the guest goes on.  The thread's. */
    bool sweeping;
    bool arrived;               /* set by load: the first step measures the switchover gap */
    uint64_t sweep_cursor;      /* data pages below it are checked */
    uint64_t sweep_sum;

    /* Under w->lock. */
    bool stopped;               /* has acknowledged the pause */
    uint64_t sweeps_started;
    uint64_t sweeps_done;
    WorkloadRegisters wire;     /* the registers as they travel */

    unsigned seen;              /* w->generation when this thread last looked at what is wanted */

    /* Rate and throttle accounting, the thread's. */
    int64_t rate_start_us;
    uint64_t rate_bytes;
    int64_t slice_start_us;
} WorkloadVcpu;

struct Workload {
    Machine *machine;
    WorkloadConfig cfg;
    WorkloadVcpu vcpus[WORKLOAD_VCPUS_MAX];

    GMutex lock;
    GCond wake;                 /* to the vCPUs: look at what is wanted */
    GCond acknowledged;         /* from the vCPUs */
    bool run;                   /* lock */
    bool quit;                  /* lock */
    uint64_t sweeps_wanted;     /* lock: number of sweeps ever asked of every vCPU */
    char *first_error;          /* lock */

    unsigned generation;        /* atomic, changed under the lock: vCPUs must look at the fields above */
    int throttle;               /* atomic: percent */

    WorkloadConfig wire;        /* the configuration as it travels */
    SaveEntry config_entry;
    SaveEntry vcpu_entries[WORKLOAD_VCPUS_MAX];
};

/* vcpu.c: thread body; @opaque is a WorkloadVcpu. */
void *workload_vcpu_thread(void *opaque);
/* Divides guest RAM among the vCPUs by w->cfg. */
bool workload_partition(Workload *w, GError **errp);
/* Registers as after power-on.  The vCPU is stopped or does not run yet. */
void workload_vcpu_start_registers(WorkloadVcpu *v);
/* The same, and its memory empty. */
void workload_vcpu_reset(WorkloadVcpu *v);
/* Publishes registers in v->stats. */
void workload_vcpu_publish(WorkloadVcpu *v);

/* pattern.c: the data page to write next, or -1 for an idle step. */
int64_t workload_pattern_next(WorkloadVcpu *v);
uint64_t workload_pattern_stride(uint64_t pages);

/* state.c: the sections of the stream. */
void workload_register_state(Workload *w);
void workload_unregister_state(Workload *w);

#endif
