/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of the KVM accelerator: the VM, its vCPUs, their state as it travels. */
#ifndef GODWIT_ACCEL_KVM_INTERNAL_H
#define GODWIT_ACCEL_KVM_INTERNAL_H

#include <linux/kvm.h>
#include <pthread.h>

#include "accel/kvm.h"

/* Memory slots; a block may be cut into several. */
#define KVM_SLOTS_MAX 512
/* Guest memory ends here: local and I/O APIC lie above. */
#define KVM_RAM_MAX (UINT64_C(3) << 30)

/* Sizes of the tables as they travel; the kernel's lists are shorter. */
#define KVM_CPUID_MAX 160
#define KVM_MSRS_MAX 512
#define KVM_XSAVE_SIZE 4096

#define KVM_PIC_MASTER_PINS 8

/* ---- what travels ---- */

typedef struct KvmCpuidEntry {
    uint32_t function, index, flags;
    uint32_t eax, ebx, ecx, edx;
} KvmCpuidEntry;

/* What vCPU 0 is shown; the others differ in their APIC id only. */
typedef struct KvmCpuid {
    uint32_t cpus;
    uint32_t tsc_khz;
    uint32_t count;
    KvmCpuidEntry entries[KVM_CPUID_MAX];
} KvmCpuid;

typedef struct KvmMsr {
    uint32_t index;
    uint64_t value;
} KvmMsr;

typedef struct KvmMsrs {
    uint32_t count;
    KvmMsr entries[KVM_MSRS_MAX];
} KvmMsrs;

typedef struct KvmTsc {
    uint64_t value;             /* when the guest was stopped */
    int64_t behind;             /* offset of this vCPU's counter from vCPU 0's */
} KvmTsc;

/* All that a vCPU is, in the kernel's own structures where there are any. */
typedef struct KvmVcpuState {
    struct kvm_sregs2 sregs;
    struct kvm_regs regs;
    struct kvm_xcrs xcrs;
    struct kvm_debugregs debugregs;
    uint8_t xsave[KVM_XSAVE_SIZE];
    struct kvm_lapic_state lapic;
    struct kvm_vcpu_events events;
    struct kvm_mp_state mp_state;
    KvmTsc tsc;
    KvmMsrs msrs;
} KvmVcpuState;

#define KVM_VCPU_SECTIONS 10
#define KVM_VM_SECTIONS 6

/* What a vCPU with a dirty limit owes, and how long it may run before it pays; see dirty-limit.c. */
typedef struct KvmPacer {
    timer_t timer;              /* ends KVM_RUN once */
    bool has_timer;
    bool paced;
    uint64_t charged;           /* of KvmVcpu.dirtied */
    int64_t debt_ns;
    int64_t slice_ns;
    gint64 slice_start_us;
} KvmPacer;

typedef struct KvmVcpu {
    Kvm *kvm;
    unsigned index;
    int fd;
    struct kvm_run *run;        /* shared with the kernel; immediate_exit is set by others */
    struct kvm_dirty_gfn *ring; /* NULL without dirty rings; kvm->ring_lock */
    uint32_t ring_next;         /* kvm->ring_lock */
    uint32_t ring_seen;         /* kvm->ring_lock: records before it are counted; not before ring_next */
    uint64_t dirtied;           /* records that there have been; written under kvm->ring_lock, atomic */
    GThread *thread;

    /* Under kvm->lock. */
    pthread_t id;               /* valid once the thread has acknowledged for the first time */
    bool stopped;               /* parked: the descriptor is others' to use */
    bool waiting;               /* has asked for something and does not go on until it is done */

    /* While the vCPU is parked: of the thread that saves, loads or resets. */
    KvmVcpuState state;
    KvmVcpuState *power_on;     /* to be put on reset */

    timer_t throttle_timer;     /* the thread's */
    unsigned throttle_seen;     /* percent for which the timer is set; the thread's */
    gint64 throttle_due;        /* when the slice ends; the thread's */

    uint64_t pace_ns;           /* atomic: to sleep for each page that it dirties; 0: none */
    KvmPacer pacer;             /* the thread's */
} KvmVcpu;

/* One memory slot of the kernel: a contiguous part of a block. */
typedef struct KvmSlot {
    uint32_t id;
    RAMBlock *block;
    uint64_t first;             /* page of the block where it begins: of any alignment */
    uint64_t pages;
    uint64_t gpa;
    uint64_t *bitmap;           /* one bit a page, from the slot's first page on */
} KvmSlot;

typedef enum {
    KVM_DIRTY_FETCH_CLEARS,     /* KVM_GET_DIRTY_LOG alone: it re-arms what it reports */
    KVM_DIRTY_MANUAL,           /* KVM_CLEAR_DIRTY_LOG re-arms */
    KVM_DIRTY_RING,
} KvmDirtyMethod;

typedef enum { KVM_LOGGER_MIGRATION, KVM_LOGGER_LIMIT } KvmLogger;

/* Timers and chips of the VM, as they travel. */
typedef struct KvmVmState {
    struct kvm_pic_state pics[2];
    struct kvm_ioapic_state ioapic;
    struct kvm_pit_state2 pit;
    uint64_t clock_ns;
} KvmVmState;

struct Kvm {
    Machine *machine;
    const KvmMachineOps *ops;
    void *opaque;
    int fd;                     /* /dev/kvm */
    int vm;
    size_t run_size;

    KvmVcpu *vcpus;
    unsigned n_vcpus;
    GArray *io;                 /* of KvmIo; fixed when the threads start */
    GMutex devices;

    GMutex lock;
    GCond wake;                 /* to the vCPUs */
    GCond acknowledged;         /* from the vCPUs */
    bool run;                   /* lock */
    bool quit;                  /* lock */
    bool failed;                /* lock: power-on state could not be put: does not run */
    guint request_source;       /* lock: an idle callback of the main loop, or 0 */
    MachineRequest request;     /* lock */
    int request_status;         /* lock */
    int throttle;               /* atomic: percent */

    /* The CPUID shown to the guest; changed only by load, before the guest has run. */
    KvmCpuid cpuid;
    KvmCpuid cpuid_here;        /* what this host can show */
    KvmCpuid cpuid_wire;
    KvmMsrs msr_list;           /* those that can be read and written; fixed */
    bool has_sregs2;
    bool has_tsc_offset;
    bool clock_saved;           /* vm_state.clock_ns is the clock of a stopped guest */
    bool counters_saved;        /* the vCPUs' state.tsc is that of a stopped guest */

    KvmVmState vm_state;
    KvmVmState *power_on;
    SaveEntry vm_entries[KVM_VM_SECTIONS];
    SaveEntry *vcpu_entries;    /* KVM_VCPU_SECTIONS for each */

    /* Dirty log. */
    DirtyLogProvider provider;
    KvmDirtyMethod dirty_method;
    uint32_t manual_flags;      /* KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE, KVM_DIRTY_LOG_INITIALLY_SET */
    uint32_t ring_entries;
    GMutex ring_lock;           /* rings and, with rings, the slots' bitmaps */
    GMutex logging_lock;        /* taken before ring_lock */
    unsigned logging;           /* logging_lock: bits 1 << KvmLogger: who wants the pages logged */
    KvmSlot slots[KVM_SLOTS_MAX];
    unsigned n_slots;
};

/* ---- vm.c ---- */

/* ioctl() that sets "NAME: strerror" and returns false where it fails. */
bool kvm_ioctl(int fd, unsigned long request, const char *name, void *argument, GError **errp);
#define KVM_IOCTL(fd, request, argument, errp) kvm_ioctl((fd), (request), #request, (argument), (errp))

/* ---- vcpu.c ---- */

/* Thread body; @opaque is the KvmVcpu. */
void *kvm_vcpu_thread(void *opaque);
/* The signal that ends KVM_RUN: installs its handler.  Main thread. */
void kvm_vcpu_install_kick(void);
/* kvm->lock held: makes the thread come back from KVM_RUN, now or at once when it gets there. */
void kvm_vcpu_kick(KvmVcpu *v);
/* A timer that kicks the calling vCPU thread; @what for, in a warning. */
bool kvm_vcpu_make_timer(KvmVcpu *v, timer_t *timer, const char *what);

/* ---- cpuid.c ---- */

/* What @kvm's host can show a guest of @cpus vCPUs, less what @model ("host,-avx2") takes away. */
bool kvm_cpuid_init(Kvm *kvm, KvmCpuid *cpuid, unsigned cpus, const char *model, GError **errp);
/* KVM_SET_CPUID2 for vCPU @v from kvm->cpuid. */
bool kvm_cpuid_set(KvmVcpu *v, GError **errp);
/* Can a guest that was shown @shown run where @here is what can be shown?  Pure. */
bool kvm_cpuid_check(const KvmCpuid *shown, const KvmCpuid *here, GError **errp);
/* Takes features away by name; pure. */
bool kvm_cpuid_apply_model(KvmCpuid *cpuid, const char *model, GError **errp);
/* The entry for a leaf, or NULL. */
KvmCpuidEntry *kvm_cpuid_find(KvmCpuid *cpuid, uint32_t function, uint32_t index);

/* ---- state-tables.c: what each section holds; no callbacks: a test can save and load without KVM ---- */

extern const VMStateField kvm_cpuid_fields[], kvm_sregs_fields[], kvm_regs_fields[], kvm_xcrs_fields[],
    kvm_debugregs_fields[], kvm_xsave_fields[], kvm_lapic_fields[], kvm_events_fields[],
    kvm_mp_state_fields[], kvm_tsc_fields[], kvm_msrs_fields[], kvm_pic_fields[], kvm_ioapic_fields[],
    kvm_pit_fields[], kvm_clock_fields[];

/* ---- state.c ---- */

/* Finds out which MSRs can be saved.  vCPU 0 exists. */
bool kvm_msr_list_init(Kvm *kvm, GError **errp);
void kvm_register_state(Kvm *kvm);
void kvm_unregister_state(Kvm *kvm);
/* From the kernel into the state structures, and back.  All vCPUs parked. */
bool kvm_get_vcpu(KvmVcpu *v, GError **errp);
bool kvm_put_vcpu(KvmVcpu *v, GError **errp);
bool kvm_get_chips(Kvm *kvm, GError **errp);
bool kvm_put_chips(Kvm *kvm, GError **errp);
/* The guest has stopped; it goes on.  Clocks stand still in between. */
void kvm_clock_stopped(Kvm *kvm);
void kvm_clock_goes_on(Kvm *kvm);

/* ---- dirty-log.c, dirty-ring.c ---- */

void kvm_dirty_log_init(Kvm *kvm);
void kvm_dirty_log_cleanup(Kvm *kvm);
/* Logging is on while anybody wants it. */
bool kvm_start_logging(Kvm *kvm, KvmLogger logger, GError **errp);
void kvm_stop_logging(Kvm *kvm, KvmLogger logger);
/* Maps @v's ring. */
bool kvm_dirty_ring_map(KvmVcpu *v, GError **errp);
void kvm_dirty_ring_unmap(KvmVcpu *v);
/* Moves what is in @v's ring (NULL: all rings) into the slots' bitmaps and re-arms those pages. */
bool kvm_dirty_ring_harvest(Kvm *kvm, KvmVcpu *v, GError **errp);
/* Brings @v->dirtied up to date and leaves the records where they are. */
void kvm_dirty_ring_count(KvmVcpu *v);
/* The harvest of all rings that a sync is. */
bool kvm_dirty_ring_sync(Kvm *kvm, GError **errp);

/* ---- dirty-limit.c ---- */

void kvm_dirty_limit_init(Kvm *kvm);
/* First and last in the vCPU's thread. */
void kvm_dirty_limit_begin(KvmVcpu *v);
void kvm_dirty_limit_end(KvmVcpu *v);
/*
 * The vCPU is out of the guest: sleeps for the pages that it has dirtied, unless it is wanted for something
 * else.  Its thread.
 */
void kvm_dirty_limit_pay(KvmVcpu *v);

#endif
