/* SPDX-License-Identifier: BSD-2-Clause */
/* vCPU and chip state between the kernel and the sections: what is read for each, and how it is put back. */

/*
 * The sections stand in the stream in the order in which they are registered here, and each is put into the
 * kernel as soon as it has been loaded.  The order matters: APIC base before the local APIC, which is before
 * the deadline MSR and the I/O APIC; XCR0 before the XSAVE image; the counter before MSRs that refer to it.
 */
#include "kvm-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "trace-accel.h"
#include "util/error.h"
#include "util/fault.h"

#define MSR_IA32_TSC 0x10

/* ---- MSRs ---- */

/* The kernel's list with room for its entries. */
typedef union MsrBuffer {
    struct kvm_msrs list;
    uint8_t space[sizeof(struct kvm_msrs) + KVM_MSRS_MAX * sizeof(struct kvm_msr_entry)];
} MsrBuffer;

static bool get_msr(int fd, uint32_t index, uint64_t *value)
{
    MsrBuffer buffer = { .list.nmsrs = 1 };

    buffer.list.entries[0] = (struct kvm_msr_entry){ .index = index };
    if (ioctl(fd, KVM_GET_MSRS, &buffer) != 1) {
        return false;
    }
    *value = buffer.list.entries[0].data;
    return true;
}

static bool set_msr(int fd, uint32_t index, uint64_t value)
{
    MsrBuffer buffer = { .list.nmsrs = 1 };

    buffer.list.entries[0] = (struct kvm_msr_entry){ .index = index, .data = value };
    return ioctl(fd, KVM_SET_MSRS, &buffer) == 1;
}

/* The counter has a section of its own; Hyper-V's MSRs belong to an interface that is not shown. */
static bool carried(uint32_t index)
{
    return index != MSR_IA32_TSC && !(index >= 0x40000000 && index <= 0x400001ff);
}

/* The kernel lists MSRs that it takes on some CPUs only: those that can be read and written back are ours. */
bool kvm_msr_list_init(Kvm *kvm, GError **errp)
{
    g_autofree struct kvm_msr_list *list = g_malloc0(sizeof(*list) + 1024 * sizeof(uint32_t));
    KvmMsrs *ours = &kvm->msr_list;
    int fd = kvm->vcpus[0].fd;

    list->nmsrs = 1024;
    if (!KVM_IOCTL(kvm->fd, KVM_GET_MSR_INDEX_LIST, list, errp)) {
        return false;
    }
    for (uint32_t i = 0; i < list->nmsrs; i++) {
        uint64_t value;
        if (!carried(list->indices[i]) || !get_msr(fd, list->indices[i], &value) ||
            !set_msr(fd, list->indices[i], value)) {
            continue;
        }
        if (ours->count == KVM_MSRS_MAX) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                        "KVM has more MSRs than the %d that can be carried over", KVM_MSRS_MAX);
            return false;
        }
        ours->entries[ours->count++] = (KvmMsr){ list->indices[i], value };
    }
    trace_kvm_msr_list(list->nmsrs, ours->count);
    return true;
}

static bool msrs_get(void *opaque, GError **errp)
{
    KvmVcpu *v = opaque;
    const KvmMsrs *list = &v->kvm->msr_list;
    MsrBuffer buffer = { .list.nmsrs = list->count };

    for (uint32_t i = 0; i < list->count; i++) {
        buffer.list.entries[i] = (struct kvm_msr_entry){ .index = list->entries[i].index };
    }
    int n = fault_point("kvm-get-msrs", errp) ? -1 : ioctl(v->fd, KVM_GET_MSRS, &buffer);
    if (n != (int)list->count) {
        if (!errp || !*errp) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "KVM_GET_MSRS of vCPU %u returned %d of %u",
                        v->index, n, list->count);
        }
        return false;
    }
    v->state.msrs = (KvmMsrs){ .count = list->count };
    for (uint32_t i = 0; i < list->count; i++) {
        v->state.msrs.entries[i] = (KvmMsr){ buffer.list.entries[i].index, buffer.list.entries[i].data };
    }
    return true;
}

/* One that cannot be set but has the wanted value already does no harm. */
static bool msrs_put(void *opaque, int version, GError **errp)
{
    KvmVcpu *v = opaque;
    const KvmMsrs *msrs = &v->state.msrs;

    if (msrs->count > KVM_MSRS_MAX) {
        return error_set_protocol(errp, "%u MSRs, at most %d are possible", msrs->count, KVM_MSRS_MAX);
    }
    if (fault_point("kvm-set-msrs", errp)) {
        return false;
    }
    for (uint32_t i = 0; i < msrs->count; i++) {
        const KvmMsr *m = &msrs->entries[i];
        uint64_t now;
        if (!set_msr(v->fd, m->index, m->value) && !(get_msr(v->fd, m->index, &now) && now == m->value)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                        "KVM_SET_MSRS of vCPU %u: this host does not take 0x%" PRIx64 " for MSR 0x%x",
                        v->index, m->value, m->index);
            return false;
        }
    }
    return true;
}

/* ---- registers: each is one pair of ioctls ---- */

/* For NAME_get and NAME_put over a structure of KvmVcpuState. */
#define PLAIN(name, get_request, set_request, argument) \
    static bool name##_get(void *opaque, GError **errp) \
    { \
        KvmVcpu *v = opaque; \
        return KVM_IOCTL(v->fd, get_request, (argument), errp); \
    } \
    static bool name##_put(void *opaque, int version, GError **errp) \
    { \
        KvmVcpu *v = opaque; \
        return KVM_IOCTL(v->fd, set_request, (argument), errp); \
    }

PLAIN(regs, KVM_GET_REGS, KVM_SET_REGS, &v->state.regs)
PLAIN(debugregs, KVM_GET_DEBUGREGS, KVM_SET_DEBUGREGS, &v->state.debugregs)
PLAIN(xsave, KVM_GET_XSAVE, KVM_SET_XSAVE, v->state.xsave)
PLAIN(lapic, KVM_GET_LAPIC, KVM_SET_LAPIC, &v->state.lapic)
PLAIN(events, KVM_GET_VCPU_EVENTS, KVM_SET_VCPU_EVENTS, &v->state.events)
PLAIN(mp_state, KVM_GET_MP_STATE, KVM_SET_MP_STATE, &v->state.mp_state)

static bool xcrs_get(void *opaque, GError **errp)
{
    KvmVcpu *v = opaque;
    return KVM_IOCTL(v->fd, KVM_GET_XCRS, &v->state.xcrs, errp);
}

static bool xcrs_put(void *opaque, int version, GError **errp)
{
    KvmVcpu *v = opaque;
    if (v->state.xcrs.nr_xcrs > KVM_MAX_XCRS) {
        return error_set_protocol(errp, "%u extended control registers, at most %d are possible",
                                  v->state.xcrs.nr_xcrs, KVM_MAX_XCRS);
    }
    return KVM_IOCTL(v->fd, KVM_SET_XCRS, &v->state.xcrs, errp);
}

/* The two forms have the segments and control registers in common, in this order. */
G_STATIC_ASSERT(offsetof(struct kvm_sregs, apic_base) == offsetof(struct kvm_sregs2, apic_base));

static bool sregs_get(void *opaque, GError **errp)
{
    KvmVcpu *v = opaque;
    struct kvm_sregs old = { 0 };

    if (v->kvm->has_sregs2) {
        return KVM_IOCTL(v->fd, KVM_GET_SREGS2, &v->state.sregs, errp);
    }
    if (!KVM_IOCTL(v->fd, KVM_GET_SREGS, &old, errp)) {
        return false;
    }
    v->state.sregs = (struct kvm_sregs2){ 0 };
    memcpy(&v->state.sregs, &old, offsetof(struct kvm_sregs, interrupt_bitmap));
    return true;
}

static bool sregs_put(void *opaque, int version, GError **errp)
{
    KvmVcpu *v = opaque;
    struct kvm_sregs old = { 0 };

    if (v->kvm->has_sregs2) {
        return KVM_IOCTL(v->fd, KVM_SET_SREGS2, &v->state.sregs, errp);
    }
    memcpy(&old, &v->state.sregs, offsetof(struct kvm_sregs, interrupt_bitmap));
    return KVM_IOCTL(v->fd, KVM_SET_SREGS, &old, errp);
}

/* ---- the counter: read when the guest stopped ---- */

static bool tsc_offset(KvmVcpu *v, unsigned long request, int64_t *offset)
{
    struct kvm_device_attr attr = {
        .group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET, .addr = (uintptr_t)offset,
    };
    return v->kvm->has_tsc_offset && ioctl(v->fd, request, &attr) == 0;
}

static bool read_counters(Kvm *kvm)
{
    int64_t first = 0, own = 0;
    bool ok = !fault_point("kvm-get-tsc", NULL);

    tsc_offset(&kvm->vcpus[0], KVM_GET_DEVICE_ATTR, &first);
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        KvmVcpu *v = &kvm->vcpus[i];
        v->state.tsc = (KvmTsc){ 0 };
        if (!get_msr(v->fd, MSR_IA32_TSC, &v->state.tsc.value)) {
            g_warning("the time stamp counter of vCPU %u cannot be read", i);
            ok = false;
        }
        if (i && tsc_offset(v, KVM_GET_DEVICE_ATTR, &own)) {
            v->state.tsc.behind = (int64_t)((uint64_t)own - (uint64_t)first);
        }
    }
    return ok;
}

/* kvm_clock_stopped() has read it; a counter that begins anew is not what the guest can be given instead. */
static bool tsc_get(void *opaque, GError **errp)
{
    KvmVcpu *v = opaque;

    if (!v->kvm->counters_saved) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO,
                    "the time stamp counter of vCPU %u could not be read", v->index);
        return false;
    }
    return true;
}

/* Counters that ran together do so again, to the tick where the kernel lets us say so. */
static bool tsc_put(void *opaque, int version, GError **errp)
{
    KvmVcpu *v = opaque;
    int64_t first;

    if (v->index && tsc_offset(&v->kvm->vcpus[0], KVM_GET_DEVICE_ATTR, &first)) {
        int64_t own = (int64_t)((uint64_t)first + (uint64_t)v->state.tsc.behind);
        if (tsc_offset(v, KVM_SET_DEVICE_ATTR, &own)) {
            return true;
        }
    }
    if (!set_msr(v->fd, MSR_IA32_TSC, v->state.tsc.value)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO,
                    "KVM_SET_MSRS: the time stamp counter of vCPU %u cannot be set", v->index);
        return false;
    }
    return true;
}

/* ---- chips and clocks ---- */

static bool pics_get(Kvm *kvm, unsigned chip, GError **errp)
{
    struct kvm_irqchip irqchip = { .chip_id = chip };

    if (!KVM_IOCTL(kvm->vm, KVM_GET_IRQCHIP, &irqchip, errp)) {
        return false;
    }
    kvm->vm_state.pics[chip] = irqchip.chip.pic;
    return true;
}

static bool pics_put(Kvm *kvm, unsigned chip, GError **errp)
{
    struct kvm_irqchip irqchip = { .chip_id = chip, .chip.pic = kvm->vm_state.pics[chip] };
    return KVM_IOCTL(kvm->vm, KVM_SET_IRQCHIP, &irqchip, errp);
}

/* A PIC's section is about its own structure: from that to the VM. */
static Kvm *vm_of_pic(struct kvm_pic_state *pic, unsigned chip)
{
    return (Kvm *)((char *)pic - offsetof(Kvm, vm_state.pics) - chip * sizeof(*pic));
}

static bool pic_master_get(void *opaque, GError **errp)
{
    return pics_get(vm_of_pic(opaque, 0), 0, errp);
}

static bool pic_master_put(void *opaque, int version, GError **errp)
{
    return pics_put(vm_of_pic(opaque, 0), 0, errp);
}

static bool pic_slave_get(void *opaque, GError **errp)
{
    return pics_get(vm_of_pic(opaque, 1), 1, errp);
}

static bool pic_slave_put(void *opaque, int version, GError **errp)
{
    return pics_put(vm_of_pic(opaque, 1), 1, errp);
}

static bool ioapic_get(void *opaque, GError **errp)
{
    Kvm *kvm = opaque;
    struct kvm_irqchip irqchip = { .chip_id = KVM_IRQCHIP_IOAPIC };

    if (!KVM_IOCTL(kvm->vm, KVM_GET_IRQCHIP, &irqchip, errp)) {
        return false;
    }
    kvm->vm_state.ioapic = irqchip.chip.ioapic;
    return true;
}

static bool ioapic_put(void *opaque, int version, GError **errp)
{
    Kvm *kvm = opaque;
    struct kvm_irqchip irqchip = { .chip_id = KVM_IRQCHIP_IOAPIC, .chip.ioapic = kvm->vm_state.ioapic };
    return KVM_IOCTL(kvm->vm, KVM_SET_IRQCHIP, &irqchip, errp);
}

static int64_t monotonic_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* The kernel says when a count was loaded by this host's clock; what travels is how long ago that was. */
static bool pit_get(void *opaque, GError **errp)
{
    Kvm *kvm = opaque;
    int64_t now = monotonic_ns();

    if (!KVM_IOCTL(kvm->vm, KVM_GET_PIT2, &kvm->vm_state.pit, errp)) {
        return false;
    }
    for (unsigned i = 0; i < 3; i++) {
        kvm->vm_state.pit.channels[i].count_load_time = now - kvm->vm_state.pit.channels[i].count_load_time;
    }
    return true;
}

static bool pit_put(void *opaque, int version, GError **errp)
{
    Kvm *kvm = opaque;
    struct kvm_pit_state2 pit = kvm->vm_state.pit;
    int64_t now = monotonic_ns();

    for (unsigned i = 0; i < 3; i++) {
        int64_t age = pit.channels[i].count_load_time;
        pit.channels[i].count_load_time = (int64_t)((uint64_t)now - (uint64_t)age);
    }
    return KVM_IOCTL(kvm->vm, KVM_SET_PIT2, &pit, errp);
}

static bool set_clock(Kvm *kvm, GError **errp)
{
    struct kvm_clock_data clock = { .clock = kvm->vm_state.clock_ns };
    return KVM_IOCTL(kvm->vm, KVM_SET_CLOCK, &clock, errp);
}

void kvm_clock_stopped(Kvm *kvm)
{
    struct kvm_clock_data clock = { 0 };
    g_autoptr(GError) error = NULL;

    kvm->counters_saved = read_counters(kvm);
    if (KVM_IOCTL(kvm->vm, KVM_GET_CLOCK, &clock, &error)) {
        kvm->vm_state.clock_ns = clock.clock;
        kvm->clock_saved = true;
    } else {
        g_warning("%s", error->message);
    }
}

void kvm_clock_goes_on(Kvm *kvm)
{
    g_autoptr(GError) error = NULL;

    if (!kvm->clock_saved) {
        return;
    }
    kvm->clock_saved = false;
    if (!set_clock(kvm, &error)) {
        g_warning("%s", error->message);
    }
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        ioctl(kvm->vcpus[i].fd, KVM_KVMCLOCK_CTRL, 0);  /* EINVAL: the guest does not use that clock */
    }
}

/* kvm_clock_stopped() has read the clock; a failure there leaves nothing to send. */
static bool clock_get(void *opaque, GError **errp)
{
    Kvm *kvm = opaque;
    if (!kvm->clock_saved) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "the guest's clock could not be read");
        return false;
    }
    return true;
}

static bool clock_put(void *opaque, int version, GError **errp)
{
    Kvm *kvm = opaque;
    kvm->clock_saved = true;    /* set again when the guest goes on */
    return set_clock(kvm, errp);
}

/* ---- CPUID ---- */

/* The guest is running: its vCPUs' descriptors are in use. */
static bool cpuid_get(void *opaque, GError **errp)
{
    Kvm *kvm = opaque;

    kvm->cpuid_wire = kvm->cpuid;
    return true;
}

/* A counter of another frequency than the guest has measured: the kernel scales, or the guest cannot come. */
static bool set_frequency(Kvm *kvm, uint32_t khz, GError **errp)
{
    for (unsigned i = 0; khz && i < kvm->n_vcpus; i++) {
        int own = ioctl(kvm->vcpus[i].fd, KVM_GET_TSC_KHZ, 0);
        /* As the kernel does: a difference that a clock corrects itself is none. */
        bool same = own > 0 && llabs((long long)own - khz) <= (long long)khz / 4000;
        if (!same && ioctl(kvm->vcpus[i].fd, KVM_SET_TSC_KHZ, (unsigned long)khz) < 0) {
            error_set_errno(errp, GODWIT_ERROR_UNSUPPORTED, errno,
                            "the guest's time stamp counter runs at %u kHz, this host's at %d: "
                            "KVM_SET_TSC_KHZ", khz, own);
            return false;
        }
    }
    return true;
}

/* Comes before any page: what cannot run here is refused while the guest still runs there. */
static bool cpuid_put(void *opaque, int version, GError **errp)
{
    Kvm *kvm = opaque;

    if (!kvm_cpuid_check(&kvm->cpuid_wire, &kvm->cpuid_here, errp) ||
        !set_frequency(kvm, kvm->cpuid_wire.tsc_khz, errp)) {
        return false;
    }
    kvm->cpuid = kvm->cpuid_wire;
    for (unsigned i = 0; i < kvm->n_vcpus; i++) {
        if (!kvm_cpuid_set(&kvm->vcpus[i], errp)) {
            return false;
        }
    }
    return true;
}

/* ---- the sections, in the order of the stream ---- */

#define SECTION(id, field_table, get, put) \
    { .name = (id), .version = 1, .minimum_version = 1, .fields = (field_table), .pre_save = (get), \
      .post_load = (put) }

static const VMStateDescription cpuid_section = SECTION("kvm-cpuid", kvm_cpuid_fields, cpuid_get, cpuid_put);

static const VMStateDescription vcpu_sections[KVM_VCPU_SECTIONS] = {
    SECTION("kvm-sregs", kvm_sregs_fields, sregs_get, sregs_put),
    SECTION("kvm-regs", kvm_regs_fields, regs_get, regs_put),
    SECTION("kvm-xcrs", kvm_xcrs_fields, xcrs_get, xcrs_put),
    SECTION("kvm-xsave", kvm_xsave_fields, xsave_get, xsave_put),
    SECTION("kvm-debugregs", kvm_debugregs_fields, debugregs_get, debugregs_put),
    SECTION("kvm-lapic", kvm_lapic_fields, lapic_get, lapic_put),
    SECTION("kvm-tsc", kvm_tsc_fields, tsc_get, tsc_put),
    SECTION("kvm-msrs", kvm_msrs_fields, msrs_get, msrs_put),
    SECTION("kvm-events", kvm_events_fields, events_get, events_put),
    SECTION("kvm-mp-state", kvm_mp_state_fields, mp_state_get, mp_state_put),
};

static const VMStateDescription chip_sections[KVM_VM_SECTIONS - 1] = {
    SECTION("kvm-pic", kvm_pic_fields, pic_master_get, pic_master_put),
    SECTION("kvm-pic", kvm_pic_fields, pic_slave_get, pic_slave_put),
    SECTION("kvm-ioapic", kvm_ioapic_fields, ioapic_get, ioapic_put),
    SECTION("kvm-pit", kvm_pit_fields, pit_get, pit_put),
    SECTION("kvm-clock", kvm_clock_fields, clock_get, clock_put),
};

static void *chip_owner(Kvm *kvm, unsigned section)
{
    return section < 2 ? (void *)&kvm->vm_state.pics[section] : (void *)kvm;
}

bool kvm_get_vcpu(KvmVcpu *v, GError **errp)
{
    for (unsigned i = 0; i < KVM_VCPU_SECTIONS; i++) {
        if (!vcpu_sections[i].pre_save(v, errp)) {
            return false;
        }
    }
    return true;
}

bool kvm_put_vcpu(KvmVcpu *v, GError **errp)
{
    for (unsigned i = 0; i < KVM_VCPU_SECTIONS; i++) {
        if (!vcpu_sections[i].post_load(v, vcpu_sections[i].version, errp)) {
            g_prefix_error(errp, "%s: ", vcpu_sections[i].name);
            return false;
        }
    }
    return true;
}

bool kvm_get_chips(Kvm *kvm, GError **errp)
{
    for (unsigned i = 0; i < KVM_VM_SECTIONS - 1; i++) {
        if (!chip_sections[i].pre_save(chip_owner(kvm, i), errp)) {
            return false;
        }
    }
    return true;
}

bool kvm_put_chips(Kvm *kvm, GError **errp)
{
    for (unsigned i = 0; i < KVM_VM_SECTIONS - 1; i++) {
        if (!chip_sections[i].post_load(chip_owner(kvm, i), chip_sections[i].version, errp)) {
            return false;
        }
    }
    return true;
}

void kvm_register_state(Kvm *kvm)
{
    SaveEntryList *list = &kvm->machine->save_entries;

    kvm->vm_entries[0] = (SaveEntry){
        .idstr = cpuid_section.name, .vmsd = &cpuid_section, .opaque = kvm, .early_setup = true,
    };
    save_entry_list_add(list, &kvm->vm_entries[0]);
    kvm->vcpu_entries = g_new0(SaveEntry, kvm->n_vcpus * KVM_VCPU_SECTIONS);
    for (unsigned i = 0; i < kvm->n_vcpus * KVM_VCPU_SECTIONS; i++) {
        const VMStateDescription *vmsd = &vcpu_sections[i % KVM_VCPU_SECTIONS];
        kvm->vcpu_entries[i] = (SaveEntry){
            .idstr = vmsd->name, .instance_id = i / KVM_VCPU_SECTIONS, .vmsd = vmsd,
            .opaque = &kvm->vcpus[i / KVM_VCPU_SECTIONS],
        };
        save_entry_list_add(list, &kvm->vcpu_entries[i]);
    }
    for (unsigned i = 1; i < KVM_VM_SECTIONS; i++) {
        kvm->vm_entries[i] = (SaveEntry){
            .idstr = chip_sections[i - 1].name, .instance_id = i == 2, .vmsd = &chip_sections[i - 1],
            .opaque = chip_owner(kvm, i - 1),
        };
        save_entry_list_add(list, &kvm->vm_entries[i]);
    }
}

void kvm_unregister_state(Kvm *kvm)
{
    SaveEntryList *list = &kvm->machine->save_entries;

    for (unsigned i = 0; i < KVM_VM_SECTIONS; i++) {
        save_entry_list_remove(list, &kvm->vm_entries[i]);
    }
    for (unsigned i = 0; i < kvm->n_vcpus * KVM_VCPU_SECTIONS; i++) {
        save_entry_list_remove(list, &kvm->vcpu_entries[i]);
    }
    g_clear_pointer(&kvm->vcpu_entries, g_free);
}
