/* SPDX-License-Identifier: BSD-2-Clause */
/* What each section of the KVM machine holds, field by field: name, width, and where it is in memory. */
#include "kvm-internal.h"

#define V(piece, field, _type) \
    { .name = #field, .type = (_type), .offset = offsetof(KvmVcpu, state.piece.field) }
#define V_ARRAY(piece, field, _type, len, width) \
    { .name = #field, .type = (_type), .offset = offsetof(KvmVcpu, state.piece.field), .size = (width), \
      .array_len = (len) }
#define K(piece, field, _type) \
    { .name = #field, .type = (_type), .offset = offsetof(Kvm, piece.field) }
#define IN(structure, field, _type) \
    { .name = #field, .type = (_type), .offset = offsetof(structure, field) }

/* ---- CPUID: in the set-up part of the stream ---- */

static const VMStateField cpuid_entry_fields[] = {
    IN(KvmCpuidEntry, function, VMSTATE_UINT32),
    IN(KvmCpuidEntry, index, VMSTATE_UINT32),
    IN(KvmCpuidEntry, flags, VMSTATE_UINT32),
    IN(KvmCpuidEntry, eax, VMSTATE_UINT32),
    IN(KvmCpuidEntry, ebx, VMSTATE_UINT32),
    IN(KvmCpuidEntry, ecx, VMSTATE_UINT32),
    IN(KvmCpuidEntry, edx, VMSTATE_UINT32),
    VMSTATE_END
};

static const VMStateDescription cpuid_entry = {
    .name = "kvm-cpuid-entry", .version = 1, .minimum_version = 1, .fields = cpuid_entry_fields,
};

const VMStateField kvm_cpuid_fields[] = {
    K(cpuid_wire, cpus, VMSTATE_UINT32),
    K(cpuid_wire, tsc_khz, VMSTATE_UINT32),
    K(cpuid_wire, count, VMSTATE_UINT32),
    { .name = "entries", .type = VMSTATE_STRUCT, .offset = offsetof(Kvm, cpuid_wire.entries),
      .size = sizeof(KvmCpuidEntry), .array_len = KVM_CPUID_MAX, .vmsd = &cpuid_entry },
    VMSTATE_END
};

/* ---- registers ---- */

static const VMStateField segment_fields[] = {
    IN(struct kvm_segment, base, VMSTATE_UINT64),
    IN(struct kvm_segment, limit, VMSTATE_UINT32),
    IN(struct kvm_segment, selector, VMSTATE_UINT16),
    IN(struct kvm_segment, type, VMSTATE_UINT8),
    IN(struct kvm_segment, present, VMSTATE_UINT8),
    IN(struct kvm_segment, dpl, VMSTATE_UINT8),
    IN(struct kvm_segment, db, VMSTATE_UINT8),
    IN(struct kvm_segment, s, VMSTATE_UINT8),
    IN(struct kvm_segment, l, VMSTATE_UINT8),
    IN(struct kvm_segment, g, VMSTATE_UINT8),
    IN(struct kvm_segment, avl, VMSTATE_UINT8),
    IN(struct kvm_segment, unusable, VMSTATE_UINT8),
    VMSTATE_END
};

static const VMStateDescription segment = {
    .name = "kvm-segment", .version = 1, .minimum_version = 1, .fields = segment_fields,
};

static const VMStateField table_fields[] = {
    IN(struct kvm_dtable, base, VMSTATE_UINT64),
    IN(struct kvm_dtable, limit, VMSTATE_UINT16),
    VMSTATE_END
};

static const VMStateDescription table = {
    .name = "kvm-dtable", .version = 1, .minimum_version = 1, .fields = table_fields,
};

#define SEGMENT(field) \
    { .name = #field, .type = VMSTATE_STRUCT, .offset = offsetof(KvmVcpu, state.sregs.field), \
      .size = sizeof(struct kvm_segment), .vmsd = &segment }
#define TABLE(field) \
    { .name = #field, .type = VMSTATE_STRUCT, .offset = offsetof(KvmVcpu, state.sregs.field), \
      .size = sizeof(struct kvm_dtable), .vmsd = &table }

const VMStateField kvm_sregs_fields[] = {
    SEGMENT(cs), SEGMENT(ds), SEGMENT(es), SEGMENT(fs), SEGMENT(gs), SEGMENT(ss), SEGMENT(tr), SEGMENT(ldt),
    TABLE(gdt), TABLE(idt),
    V(sregs, cr0, VMSTATE_UINT64),
    V(sregs, cr2, VMSTATE_UINT64),
    V(sregs, cr3, VMSTATE_UINT64),
    V(sregs, cr4, VMSTATE_UINT64),
    V(sregs, cr8, VMSTATE_UINT64),
    V(sregs, efer, VMSTATE_UINT64),
    V(sregs, apic_base, VMSTATE_UINT64),
    V(sregs, flags, VMSTATE_UINT64),
    V_ARRAY(sregs, pdptrs, VMSTATE_UINT64, 4, 8),
    VMSTATE_END
};

const VMStateField kvm_regs_fields[] = {
    V(regs, rax, VMSTATE_UINT64), V(regs, rbx, VMSTATE_UINT64), V(regs, rcx, VMSTATE_UINT64),
    V(regs, rdx, VMSTATE_UINT64), V(regs, rsi, VMSTATE_UINT64), V(regs, rdi, VMSTATE_UINT64),
    V(regs, rsp, VMSTATE_UINT64), V(regs, rbp, VMSTATE_UINT64), V(regs, r8, VMSTATE_UINT64),
    V(regs, r9, VMSTATE_UINT64), V(regs, r10, VMSTATE_UINT64), V(regs, r11, VMSTATE_UINT64),
    V(regs, r12, VMSTATE_UINT64), V(regs, r13, VMSTATE_UINT64), V(regs, r14, VMSTATE_UINT64),
    V(regs, r15, VMSTATE_UINT64), V(regs, rip, VMSTATE_UINT64), V(regs, rflags, VMSTATE_UINT64),
    VMSTATE_END
};

static const VMStateField xcr_fields[] = {
    IN(struct kvm_xcr, xcr, VMSTATE_UINT32),
    IN(struct kvm_xcr, value, VMSTATE_UINT64),
    VMSTATE_END
};

static const VMStateDescription xcr = {
    .name = "kvm-xcr", .version = 1, .minimum_version = 1, .fields = xcr_fields,
};

const VMStateField kvm_xcrs_fields[] = {
    V(xcrs, nr_xcrs, VMSTATE_UINT32),
    V(xcrs, flags, VMSTATE_UINT32),
    { .name = "xcrs", .type = VMSTATE_STRUCT, .offset = offsetof(KvmVcpu, state.xcrs.xcrs),
      .size = sizeof(struct kvm_xcr), .array_len = KVM_MAX_XCRS, .vmsd = &xcr },
    VMSTATE_END
};

const VMStateField kvm_debugregs_fields[] = {
    V_ARRAY(debugregs, db, VMSTATE_UINT64, 4, 8),
    V(debugregs, dr6, VMSTATE_UINT64),
    V(debugregs, dr7, VMSTATE_UINT64),
    V(debugregs, flags, VMSTATE_UINT64),
    VMSTATE_END
};

/* The image as the CPU writes it (XSAVE, standard form): little-endian inside. */
const VMStateField kvm_xsave_fields[] = {
    { .name = "xsave", .type = VMSTATE_BUFFER, .offset = offsetof(KvmVcpu, state.xsave),
      .size = KVM_XSAVE_SIZE },
    VMSTATE_END
};

/* The register page as the kernel has it: 32-bit little-endian registers, 16 bytes apart. */
const VMStateField kvm_lapic_fields[] = {
    V_ARRAY(lapic, regs, VMSTATE_BUFFER, 0, KVM_APIC_REG_SIZE),
    VMSTATE_END
};

const VMStateField kvm_events_fields[] = {
    V(events, exception.injected, VMSTATE_UINT8),
    V(events, exception.nr, VMSTATE_UINT8),
    V(events, exception.has_error_code, VMSTATE_UINT8),
    V(events, exception.pending, VMSTATE_UINT8),
    V(events, exception.error_code, VMSTATE_UINT32),
    V(events, interrupt.injected, VMSTATE_UINT8),
    V(events, interrupt.nr, VMSTATE_UINT8),
    V(events, interrupt.soft, VMSTATE_UINT8),
    V(events, interrupt.shadow, VMSTATE_UINT8),
    V(events, nmi.injected, VMSTATE_UINT8),
    V(events, nmi.pending, VMSTATE_UINT8),
    V(events, nmi.masked, VMSTATE_UINT8),
    V(events, sipi_vector, VMSTATE_UINT32),
    V(events, flags, VMSTATE_UINT32),
    V(events, smi.smm, VMSTATE_UINT8),
    V(events, smi.pending, VMSTATE_UINT8),
    V(events, smi.smm_inside_nmi, VMSTATE_UINT8),
    V(events, smi.latched_init, VMSTATE_UINT8),
    V(events, triple_fault.pending, VMSTATE_UINT8),
    V(events, exception_has_payload, VMSTATE_UINT8),
    V(events, exception_payload, VMSTATE_UINT64),
    VMSTATE_END
};

const VMStateField kvm_mp_state_fields[] = {
    V(mp_state, mp_state, VMSTATE_UINT32),
    VMSTATE_END
};

const VMStateField kvm_tsc_fields[] = {
    V(tsc, value, VMSTATE_UINT64),
    V(tsc, behind, VMSTATE_INT64),
    VMSTATE_END
};

static const VMStateField msr_fields[] = {
    IN(KvmMsr, index, VMSTATE_UINT32),
    IN(KvmMsr, value, VMSTATE_UINT64),
    VMSTATE_END
};

static const VMStateDescription msr = {
    .name = "kvm-msr", .version = 1, .minimum_version = 1, .fields = msr_fields,
};

const VMStateField kvm_msrs_fields[] = {
    V(msrs, count, VMSTATE_UINT32),
    { .name = "entries", .type = VMSTATE_STRUCT, .offset = offsetof(KvmVcpu, state.msrs.entries),
      .size = sizeof(KvmMsr), .array_len = KVM_MSRS_MAX, .vmsd = &msr },
    VMSTATE_END
};

/* ---- chips and clocks ---- */

#define PIC(field) IN(struct kvm_pic_state, field, VMSTATE_UINT8)

/* The owner is one struct kvm_pic_state. */
const VMStateField kvm_pic_fields[] = {
    PIC(last_irr), PIC(irr), PIC(imr), PIC(isr), PIC(priority_add), PIC(irq_base), PIC(read_reg_select),
    PIC(poll), PIC(special_mask), PIC(init_state), PIC(auto_eoi), PIC(rotate_on_auto_eoi),
    PIC(special_fully_nested_mode), PIC(init4), PIC(elcr), PIC(elcr_mask),
    VMSTATE_END
};

const VMStateField kvm_ioapic_fields[] = {
    K(vm_state.ioapic, base_address, VMSTATE_UINT64),
    K(vm_state.ioapic, ioregsel, VMSTATE_UINT32),
    K(vm_state.ioapic, id, VMSTATE_UINT32),
    K(vm_state.ioapic, irr, VMSTATE_UINT32),
    { .name = "redirtbl", .type = VMSTATE_UINT64,
      .offset = offsetof(Kvm, vm_state.ioapic.redirtbl), .size = 8, .array_len = KVM_IOAPIC_NUM_PINS },
    VMSTATE_END
};

static const VMStateField pit_channel_fields[] = {
    IN(struct kvm_pit_channel_state, count, VMSTATE_UINT32),
    IN(struct kvm_pit_channel_state, latched_count, VMSTATE_UINT16),
    IN(struct kvm_pit_channel_state, count_latched, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, status_latched, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, status, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, read_state, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, write_state, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, write_latch, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, rw_mode, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, mode, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, bcd, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, gate, VMSTATE_UINT8),
    IN(struct kvm_pit_channel_state, count_load_time, VMSTATE_INT64),   /* ns before the save */
    VMSTATE_END
};

static const VMStateDescription pit_channel = {
    .name = "kvm-pit-channel", .version = 1, .minimum_version = 1, .fields = pit_channel_fields,
};

const VMStateField kvm_pit_fields[] = {
    K(vm_state.pit, flags, VMSTATE_UINT32),
    { .name = "channels", .type = VMSTATE_STRUCT, .offset = offsetof(Kvm, vm_state.pit.channels),
      .size = sizeof(struct kvm_pit_channel_state), .array_len = 3, .vmsd = &pit_channel },
    VMSTATE_END
};

const VMStateField kvm_clock_fields[] = {
    K(vm_state, clock_ns, VMSTATE_UINT64),
    VMSTATE_END
};
