/* SPDX-License-Identifier: BSD-2-Clause */
/* The sections of the KVM machine, byte by byte as docs/kvm.md has them; no KVM is needed. */
#include "accel/kvm/kvm-internal.h"
#include "io/transport.h"
#include "migration/vmstate.h"
#include "stream-builder.h"

#include <string.h>

/*
 * Each of the functions below states a section: in the order of the stream it sets a field to a value and
 * puts the value's bytes.  Values differ from field to field, so that two that are exchanged are seen.
 */
typedef struct Owner {
    Kvm kvm;
    KvmVcpu vcpu;
} Owner;

static uint64_t next_value;

static uint64_t value(unsigned bytes)
{
    next_value += 0x0102030405060709;
    return bytes == 8 ? next_value : next_value & ((UINT64_C(1) << 8 * bytes) - 1);
}

static void put(Stream *s, uint64_t v, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0;) {
        put_u8(s, (uint8_t)(v >> 8 * i));
    }
}

#define P(width, field) \
    do { \
        uint64_t v_ = value(width); \
        (field) = v_; \
        G_STATIC_ASSERT(sizeof(field) == (width)); \
        put(s, v_, (width)); \
    } while (0)

static void put_segment(Stream *s, struct kvm_segment *g)
{
    P(8, g->base);
    P(4, g->limit);
    P(2, g->selector);
    P(1, g->type);
    P(1, g->present);
    P(1, g->dpl);
    P(1, g->db);
    P(1, g->s);
    P(1, g->l);
    P(1, g->g);
    P(1, g->avl);
    P(1, g->unusable);
}

static void state_sregs(Owner *o, Stream *s)
{
    struct kvm_sregs2 *r = &o->vcpu.state.sregs;

    put_segment(s, &r->cs);
    put_segment(s, &r->ds);
    put_segment(s, &r->es);
    put_segment(s, &r->fs);
    put_segment(s, &r->gs);
    put_segment(s, &r->ss);
    put_segment(s, &r->tr);
    put_segment(s, &r->ldt);
    P(8, r->gdt.base);
    P(2, r->gdt.limit);
    P(8, r->idt.base);
    P(2, r->idt.limit);
    P(8, r->cr0);
    P(8, r->cr2);
    P(8, r->cr3);
    P(8, r->cr4);
    P(8, r->cr8);
    P(8, r->efer);
    P(8, r->apic_base);
    P(8, r->flags);
    for (unsigned i = 0; i < 4; i++) {
        P(8, r->pdptrs[i]);
    }
}

static void state_regs(Owner *o, Stream *s)
{
    struct kvm_regs *r = &o->vcpu.state.regs;

    P(8, r->rax);
    P(8, r->rbx);
    P(8, r->rcx);
    P(8, r->rdx);
    P(8, r->rsi);
    P(8, r->rdi);
    P(8, r->rsp);
    P(8, r->rbp);
    P(8, r->r8);
    P(8, r->r9);
    P(8, r->r10);
    P(8, r->r11);
    P(8, r->r12);
    P(8, r->r13);
    P(8, r->r14);
    P(8, r->r15);
    P(8, r->rip);
    P(8, r->rflags);
}

static void state_xcrs(Owner *o, Stream *s)
{
    struct kvm_xcrs *x = &o->vcpu.state.xcrs;

    P(4, x->nr_xcrs);
    P(4, x->flags);
    for (unsigned i = 0; i < 16; i++) {
        P(4, x->xcrs[i].xcr);
        P(8, x->xcrs[i].value);
    }
}

static void state_debugregs(Owner *o, Stream *s)
{
    struct kvm_debugregs *d = &o->vcpu.state.debugregs;

    for (unsigned i = 0; i < 4; i++) {
        P(8, d->db[i]);
    }
    P(8, d->dr6);
    P(8, d->dr7);
    P(8, d->flags);
}

static void state_xsave(Owner *o, Stream *s)
{
    for (unsigned i = 0; i < 4096; i++) {
        P(1, o->vcpu.state.xsave[i]);
    }
}

static void state_lapic(Owner *o, Stream *s)
{
    for (unsigned i = 0; i < 1024; i++) {
        uint8_t byte = (uint8_t)value(1);
        o->vcpu.state.lapic.regs[i] = (char)byte;
        put_u8(s, byte);
    }
}

static void state_events(Owner *o, Stream *s)
{
    struct kvm_vcpu_events *e = &o->vcpu.state.events;

    P(1, e->exception.injected);
    P(1, e->exception.nr);
    P(1, e->exception.has_error_code);
    P(1, e->exception.pending);
    P(4, e->exception.error_code);
    P(1, e->interrupt.injected);
    P(1, e->interrupt.nr);
    P(1, e->interrupt.soft);
    P(1, e->interrupt.shadow);
    P(1, e->nmi.injected);
    P(1, e->nmi.pending);
    P(1, e->nmi.masked);
    P(4, e->sipi_vector);
    P(4, e->flags);
    P(1, e->smi.smm);
    P(1, e->smi.pending);
    P(1, e->smi.smm_inside_nmi);
    P(1, e->smi.latched_init);
    P(1, e->triple_fault.pending);
    P(1, e->exception_has_payload);
    P(8, e->exception_payload);
}

static void state_mp_state(Owner *o, Stream *s)
{
    P(4, o->vcpu.state.mp_state.mp_state);
}

static void state_tsc(Owner *o, Stream *s)
{
    P(8, o->vcpu.state.tsc.value);
    P(8, o->vcpu.state.tsc.behind);
}

static void state_msrs(Owner *o, Stream *s)
{
    KvmMsrs *m = &o->vcpu.state.msrs;

    P(4, m->count);
    for (unsigned i = 0; i < 512; i++) {
        P(4, m->entries[i].index);
        P(8, m->entries[i].value);
    }
}

static void state_cpuid(Owner *o, Stream *s)
{
    KvmCpuid *c = &o->kvm.cpuid_wire;

    P(4, c->cpus);
    P(4, c->tsc_khz);
    P(4, c->count);
    for (unsigned i = 0; i < 160; i++) {
        P(4, c->entries[i].function);
        P(4, c->entries[i].index);
        P(4, c->entries[i].flags);
        P(4, c->entries[i].eax);
        P(4, c->entries[i].ebx);
        P(4, c->entries[i].ecx);
        P(4, c->entries[i].edx);
    }
}

static void state_pic(Owner *o, Stream *s)
{
    struct kvm_pic_state *p = &o->kvm.vm_state.pics[1];

    P(1, p->last_irr);
    P(1, p->irr);
    P(1, p->imr);
    P(1, p->isr);
    P(1, p->priority_add);
    P(1, p->irq_base);
    P(1, p->read_reg_select);
    P(1, p->poll);
    P(1, p->special_mask);
    P(1, p->init_state);
    P(1, p->auto_eoi);
    P(1, p->rotate_on_auto_eoi);
    P(1, p->special_fully_nested_mode);
    P(1, p->init4);
    P(1, p->elcr);
    P(1, p->elcr_mask);
}

static void state_ioapic(Owner *o, Stream *s)
{
    struct kvm_ioapic_state *io = &o->kvm.vm_state.ioapic;

    P(8, io->base_address);
    P(4, io->ioregsel);
    P(4, io->id);
    P(4, io->irr);
    for (unsigned i = 0; i < 24; i++) {
        P(8, io->redirtbl[i].bits);
    }
}

static void state_pit(Owner *o, Stream *s)
{
    struct kvm_pit_state2 *pit = &o->kvm.vm_state.pit;

    P(4, pit->flags);
    for (unsigned i = 0; i < 3; i++) {
        struct kvm_pit_channel_state *c = &pit->channels[i];
        P(4, c->count);
        P(2, c->latched_count);
        P(1, c->count_latched);
        P(1, c->status_latched);
        P(1, c->status);
        P(1, c->read_state);
        P(1, c->write_state);
        P(1, c->write_latch);
        P(1, c->rw_mode);
        P(1, c->mode);
        P(1, c->bcd);
        P(1, c->gate);
        P(8, c->count_load_time);
    }
}

static void state_clock(Owner *o, Stream *s)
{
    P(8, o->kvm.vm_state.clock_ns);
}

typedef enum { OF_VCPU, OF_VM, OF_PIC } OwnerKind;

static const struct {
    const char *name;
    const VMStateField *fields;
    OwnerKind owner;
    size_t bytes;               /* by the tables in docs/kvm.md */
    void (*state)(Owner *o, Stream *s);
} sections[] = {
    { "cpuid", kvm_cpuid_fields, OF_VM, 12 + 160 * 28, state_cpuid },
    { "sregs", kvm_sregs_fields, OF_VCPU, 8 * 23 + 2 * 10 + 8 * 8 + 4 * 8, state_sregs },
    { "regs", kvm_regs_fields, OF_VCPU, 18 * 8, state_regs },
    { "xcrs", kvm_xcrs_fields, OF_VCPU, 8 + 16 * 12, state_xcrs },
    { "xsave", kvm_xsave_fields, OF_VCPU, 4096, state_xsave },
    { "debugregs", kvm_debugregs_fields, OF_VCPU, 7 * 8, state_debugregs },
    { "lapic", kvm_lapic_fields, OF_VCPU, 1024, state_lapic },
    { "tsc", kvm_tsc_fields, OF_VCPU, 16, state_tsc },
    { "msrs", kvm_msrs_fields, OF_VCPU, 4 + 512 * 12, state_msrs },
    { "events", kvm_events_fields, OF_VCPU, 37, state_events },
    { "mp-state", kvm_mp_state_fields, OF_VCPU, 4, state_mp_state },
    { "pic", kvm_pic_fields, OF_PIC, 16, state_pic },
    { "ioapic", kvm_ioapic_fields, OF_VM, 8 + 3 * 4 + 24 * 8, state_ioapic },
    { "pit", kvm_pit_fields, OF_VM, 4 + 3 * 24, state_pit },
    { "clock", kvm_clock_fields, OF_VM, 8, state_clock },
};

static void *owner_of(Owner *o, OwnerKind kind)
{
    return kind == OF_VCPU ? (void *)&o->vcpu : kind == OF_VM ? (void *)&o->kvm
                                                               : (void *)&o->kvm.vm_state.pics[1];
}

static void test_section(gconstpointer data)
{
    unsigned n = GPOINTER_TO_UINT(data);
    const VMStateDescription vmsd = {
        .name = sections[n].name, .version = 1, .minimum_version = 1, .fields = sections[n].fields,
    };
    g_autofree Owner *from = g_new0(Owner, 1);
    g_autofree Owner *to = g_new0(Owner, 1);
    g_autoptr(GByteArray) expected = g_byte_array_new();
    g_autoptr(GError) error = NULL;

    next_value = n;
    sections[n].state(from, expected);
    g_assert_cmpuint(expected->len, ==, sections[n].bytes);

    g_autoptr(Channel) out = channel_buffer_new(NULL, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(out);
    g_assert_true(vmstate_save(w, &vmsd, owner_of(from, sections[n].owner), NULL, &error));
    g_assert_true(stream_flush(w, &error));
    const GByteArray *bytes = channel_buffer_bytes(out);
    g_assert_cmpmem(bytes->data, bytes->len, expected->data, expected->len);

    g_autoptr(Channel) in = channel_buffer_new(expected->data, expected->len);
    g_autoptr(StreamReader) r = stream_reader_new(in);
    g_assert_true(vmstate_load(r, &vmsd, owner_of(to, sections[n].owner), 1, &error));
    g_assert_no_error(error);
    g_assert_cmpmem(to, sizeof(*to), from, sizeof(*from));
}

/* One row that needs no arithmetic to read: a code segment, as its 23 bytes. */
static void test_segment_literally(void)
{
    static const uint8_t golden[] = {
        0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x00, 0x00, /* base 0xf0000 */
        0x00, 0x0f, 0xff, 0xff,                         /* limit 0xfffff */
        0x00, 0x08,                                     /* selector */
        0x0b, 0x01, 0x03, 0x00, 0x01, 0x01, 0x01, 0x00, 0x00,
    };
    g_autofree Owner *o = g_new0(Owner, 1);
    const VMStateDescription vmsd = {
        .name = "sregs", .version = 1, .minimum_version = 1, .fields = kvm_sregs_fields,
    };
    g_autoptr(Channel) out = channel_buffer_new(NULL, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(out);

    o->vcpu.state.sregs.cs = (struct kvm_segment){
        .base = 0xf0000, .limit = 0xfffff, .selector = 8, .type = 11, .present = 1, .dpl = 3, .s = 1, .l = 1,
        .g = 1,
    };
    g_assert_true(vmstate_save(w, &vmsd, &o->vcpu, NULL, NULL));
    g_assert_true(stream_flush(w, NULL));
    const GByteArray *bytes = channel_buffer_bytes(out);
    g_assert_cmpmem(bytes->data, sizeof(golden), golden, sizeof(golden));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < G_N_ELEMENTS(sections); i++) {
        g_autofree char *path = g_strdup_printf("/kvm-state/%s", sections[i].name);
        g_test_add_data_func(path, GUINT_TO_POINTER(i), test_section);
    }
    g_test_add_func("/kvm-state/segment-literally", test_segment_literally);
    return g_test_run();
}
