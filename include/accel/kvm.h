/* SPDX-License-Identifier: BSD-2-Clause */
/* The KVM accelerator as a machine type sees it: a VM with its vCPUs, I/O regions, interrupt lines, reset. */
#ifndef GODWIT_ACCEL_KVM_H
#define GODWIT_ACCEL_KVM_H

#include "system/machine.h"

/* Most vCPUs of a VM. */
#define KVM_ACCEL_VCPUS_MAX 64

typedef struct Kvm Kvm;

/*
 * A range of ports or of physical addresses that belongs to a device.  Called in vCPU threads (and, for
 * reset, in others), always with the device lock held.  @offset is from @base; @size is 1, 2, 4 or 8 bytes.
 */
typedef struct KvmIo {
    bool port;                  /* false: memory-mapped */
    uint64_t base;
    uint64_t len;
    uint64_t (*read)(void *opaque, uint64_t offset, unsigned size);
    void (*write)(void *opaque, uint64_t offset, unsigned size, uint64_t value);
    void *opaque;
} KvmIo;

/* Where vCPU 0 begins: flat 32-bit protected mode, paging off, interrupts off. */
typedef struct KvmEntry {
    uint32_t eip;
    uint32_t ebx;
    uint32_t esi;
} KvmEntry;

/* What the machine has done to its devices and memory when the guest is reset.  Device lock held. */
typedef struct KvmMachineOps {
    /* Puts devices and memory into the state of power-on and says where the guest begins. */
    bool (*reset)(Machine *m, KvmEntry *entry, GError **errp);
    /* Frees what the machine has made; vCPU threads are gone.  May be NULL. */
    void (*destroy)(Machine *m);
} KvmMachineOps;

/*
 * Makes the VM with the machine's memory, chips and CPUID (of m->accel_properties, m->cpu_model), the vCPUs,
 * without threads, and the dirty log; sets m->cpu_ops and m->accel_data, and registers the sections of vCPUs
 * and chips.  The machine adds its I/O regions and its own sections after it.  Main thread, in
 * MachineType.init.
 */
Kvm *kvm_new(Machine *m, const KvmMachineOps *ops, void *opaque, GError **errp);

/* The opaque pointer of kvm_new(). */
void *kvm_machine_data(const Machine *m);

/* Before the vCPU threads exist.  @io is copied. */
void kvm_add_io(Kvm *kvm, const KvmIo *io);

/* The device lock: guards the devices.  The vCPU threads take it for each access. */
GMutex *kvm_device_lock(Kvm *kvm);

/* Raises or lowers interrupt line @line (0 to 23).  Any thread. */
void kvm_set_irq(Kvm *kvm, unsigned line, bool level);

/*
 * From a device's write, in a vCPU thread: the guest wants @what.  The vCPU stops where it is; the main
 * thread tells the program (Machine.guest_request).
 */
void kvm_guest_request(Kvm *kvm, MachineRequest what, int status);

/* True if the machine's vCPUs are KVM's. */
bool kvm_machine(const Machine *m);

#endif
