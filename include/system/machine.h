/* SPDX-License-Identifier: BSD-2-Clause */
/* Machine: one guest, its memory, its vCPUs' life, and the run state with its one setter. */
#ifndef GODWIT_SYSTEM_MACHINE_H
#define GODWIT_SYSTEM_MACHINE_H

#include "qapi/qapi-types-run-state.h"
#include "system/dirty-limit.h"
#include "system/dirty-log.h"
#include "system/ramblock.h"
#include "system/vmstate.h"

typedef struct Machine Machine;

/*
 * Who runs the vCPUs.  Filled in by accel/.  Machine none has no vCPUs and no ops.
 * pause, resume and reset are called with the run state lock held, one at a time, by any thread that is not a
 * vCPU.  A vCPU therefore cannot change the run state itself: it has another thread do it (an idle callback
 * in the main loop) and goes on to where it acknowledges.
 */
typedef struct CpuOps {
    /* Start the vCPU threads; they begin paused.  Main thread, from machine_init(). */
    bool (*create)(Machine *m, GError **errp);
    /* Let every vCPU run. */
    void (*resume)(Machine *m);
    /* Kick every vCPU and return when each has acknowledged that it has stopped. */
    void (*pause)(Machine *m);
    /* Sleep for @percent of each vCPU's time (0: off; at most 99).  Any thread. */
    void (*throttle)(Machine *m, unsigned percent);
    /* Reset the guest; vCPUs are paused. */
    void (*reset)(Machine *m);
    /* End the threads and free.  Also when create has failed or was never called.  Main thread. */
    void (*destroy)(Machine *m);
} CpuOps;

typedef struct MachineType {
    const char *name;               /* "none", "workload", ... */
    const char *desc;               /* one line for -machine help */
    unsigned max_cpus;
    uint64_t default_ram_size;      /* bytes; 0: no RAM unless asked for */
    const char *const *properties;  /* its own -machine NAME,property=value names, NULL-terminated */
    /* Called once, main thread, when memory exists and vCPUs do not: sets cpu_ops, adds save entries, ... */
    bool (*init)(Machine *m, GError **errp);
} MachineType;

/* What a guest can ask of the program that runs it. */
typedef enum {
    MACHINE_REQUEST_RESET,
    MACHINE_REQUEST_EXIT,           /* end the process with a status: of test guests */
    MACHINE_REQUEST_INTERNAL_ERROR, /* the accelerator cannot go on: stop the guest */
} MachineRequest;

/*
 * Told of every change of run state when it is complete, in the thread that made it.  All listeners hear of
 * one change before any hears of the next, and in the order in which the changes were made: other threads
 * that want to change the state wait meanwhile, so a listener must not wait for them.  It may change the
 * state itself.
 */
typedef void (*RunStateFunc)(Machine *m, RunState old_state, RunState new_state, void *opaque);

struct Machine {
    const MachineType *type;
    char *name;                     /* -name, or NULL */
    uint8_t uuid[16];
    bool uuid_set;
    unsigned cpus;
    GHashTable *properties;         /* char * -> char *, of -machine NAME,... */

    /* What the command line says of the vCPUs and of what boots; NULL where it says nothing.  Owned. */
    char *accel;                    /* the accelerator that is used */
    GHashTable *accel_properties;   /* char * -> char *, of -accel NAME,...; never NULL */
    char *cpu_model;                /* -cpu */
    char *kernel, *initrd, *append;
    GPtrArray *serials;             /* of Chardev *, not owned, in the order of -serial; never NULL */
    GPtrArray *devices, *drives;    /* of char *: the texts of -device and -drive; never NULL */
    bool incoming;                  /* the guest will arrive: nothing is to be loaded into memory */

    /* Main thread.  Set by the program before machine_init(); may be NULL. */
    void (*guest_request)(Machine *m, MachineRequest what, int status, void *opaque);
    void *guest_request_opaque;

    RamList ram;
    DirtyLog dirty_log;
    SoftDirtyLog *soft_dirty_log;   /* always there, already a provider */
    SaveEntryList save_entries;

    const CpuOps *cpu_ops;          /* NULL: no vCPUs */
    void *accel_data;               /* of the accelerator that set cpu_ops */
    DirtyLimiter *dirty_limiter;    /* its, too; NULL: it cannot limit what single vCPUs write */

    struct RunStateControl *run;    /* system/runstate.c */
};

/* The table of machine types; vmm/ registers those of accel/ at start-up.  Main thread. */
void machine_type_register(const MachineType *type);
const MachineType *machine_type_find(const char *name);
GPtrArray *machine_type_list(void);     /* of const MachineType *; free with g_ptr_array_unref */

/*
 * A machine without memory and vCPUs, in run state prelaunch (or inmigrate).
 * machine_free() ends the vCPUs; the memory of its blocks is the backends' and outlives it.
 */
Machine *machine_new(const MachineType *type, bool incoming);
void machine_free(Machine *m);

/*
 * Once the memory is there: the type's init, then its vCPUs, paused.  On failure only machine_free() makes
 * sense.
 */
bool machine_init(Machine *m, GError **errp);

/*
 * ---- run state: any thread but a vCPU; one lock inside; each step checked against a table ----
 *
 * A step from a state to itself succeeds, changes nothing and is told to nobody.  A refused step changes
 * nothing and is a GODWIT_ERROR_STATE.
 */

RunState machine_run_state(const Machine *m);
bool machine_is_running(const Machine *m);      /* vCPUs are (to be) running */

/* Listeners stay until the machine is freed. */
void machine_add_run_state_listener(Machine *m, RunStateFunc func, void *opaque);

/*
 * Stop the vCPUs and enter @why (paused, finish-migrate, save-vm, io-error, ...).
 * Returns once every vCPU has acknowledged.  When they were stopped already only the state changes.
 * Refused, with nothing changed, when the table does not allow the step.
 */
bool machine_stop(Machine *m, RunState why, GError **errp);

/* Enter running and let the vCPUs go. */
bool machine_start(Machine *m, GError **errp);

/* A step between two stopped states (inmigrate -> paused, finish-migrate -> postmigrate, ...). */
bool machine_set_run_state(Machine *m, RunState to, GError **errp);

/*
 * system_reset: vCPUs paused, reset, and running again if they were; a stopped guest becomes prelaunch.  In
 * inmigrate nothing happens: the stream says what the guest will be.  Refused while a migration or a snapshot
 * is being finished.
 */
bool machine_reset(Machine *m, GError **errp);

/*
 * Guest memory access by physical address for -qtest and the monitor; writes are marked in the dirty log.  A
 * range may span adjacent blocks; if a part of it is not memory (or is read-only, for a write), nothing is
 * moved.
 */
bool machine_memory_write(Machine *m, uint64_t gpa, const void *buf, uint64_t len, GError **errp);
bool machine_memory_fill(Machine *m, uint64_t gpa, uint8_t byte, uint64_t len, GError **errp);
bool machine_memory_read(Machine *m, uint64_t gpa, void *buf, uint64_t len, GError **errp);

/* Nanoseconds that the guest has been running; saved and restored as section "timer".  Any thread. */
int64_t machine_clock_ns(const Machine *m);
/* -qtest: the clock is @ns from now on. */
void machine_clock_set_ns(Machine *m, int64_t ns);
/* Registers section "timer", version 2 as QEMU has it.  For a type's init. */
void machine_add_timer_section(Machine *m);

#endif
