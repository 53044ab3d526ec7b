/* SPDX-License-Identifier: BSD-2-Clause */
/* The workload machine: synthetic vCPUs whose memory proves that a migration lost nothing. */
#ifndef GODWIT_ACCEL_WORKLOAD_H
#define GODWIT_ACCEL_WORKLOAD_H

#include "system/machine.h"

/* Machine type `workload`, to be registered by the program. */
extern const MachineType workload_machine_type;

/* What one vCPU has done and seen. */
typedef struct WorkloadVcpuStats {
    uint64_t steps;             /* turns of its loop, idle ones included */
    uint64_t pages_written;
    uint64_t pages_checked;     /* compared byte for byte with what must be there */
    uint64_t errors;            /* pages lost, torn, stale or foreign, here or earlier on this guest's way */
    uint64_t longest_gap_ns;    /* between two of its steps, since the guest was born */
    uint64_t switchover_gap_ns; /* from the last step before the latest migration to the next; 0: none */
} WorkloadVcpuStats;

typedef struct WorkloadStats {
    const char *pattern;        /* static string */
    uint64_t rate;              /* bytes/s of all vCPUs together, 0: as fast as they can */
    uint64_t working_set;       /* bytes */
    uint64_t pages;             /* that carry stamps, of all vCPUs */
    uint64_t sweeps;            /* complete checks of all pages by every vCPU since this process began */
    bool verifying;             /* a check of all pages is under way */
    bool verified;              /* the latest check of all pages is complete and no error was ever seen */
    char *first_error;          /* words for the first error, or NULL */
    unsigned n_vcpus;
    WorkloadVcpuStats *vcpus;
} WorkloadStats;

/* True if @m is a workload machine; the functions below are for those only. */
bool workload_machine(const Machine *m);

/* A consistent enough picture; any thread; free with workload_stats_free(). */
WorkloadStats *workload_query(const Machine *m);
void workload_stats_free(WorkloadStats *stats);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(WorkloadStats, workload_stats_free)

/*
 * Has every vCPU check all its pages, beginning now, whether the guest runs or is paused; does not wait:
 * poll workload_query().  Refused while the guest's memory is still arriving.  Main thread.
 */
bool workload_verify(Machine *m, GError **errp);

#endif
