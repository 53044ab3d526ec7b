/* SPDX-License-Identifier: BSD-2-Clause */
/* The MP table: how a guest without ACPI finds its processors and interrupt lines. */

/*
 *   0x00  16  floating pointer "_MP_", at a 16-byte boundary where guests look for it
 *   0x10  44  header "PCMP"
 *   0x3c  20  for each processor
 *          8  bus 0: ISA
 *          8  I/O APIC, id behind the processors'
 *          8  for each of 16 ISA lines, then 2 for the local lines
 *
 * All little-endian; each of the first two has a byte that makes its sum zero.
 */
#include "pico.h"
#include "table.h"

#define LOCAL_APIC 0xfee00000u
#define IO_APIC 0xfec00000u
#define APIC_VERSION 0x14
#define IO_APIC_VERSION 0x11
#define ALL_LOCAL_APICS 0xff

enum { ENTRY_PROCESSOR, ENTRY_BUS, ENTRY_IO_APIC, ENTRY_IO_INTERRUPT, ENTRY_LOCAL_INTERRUPT };
enum { TYPE_INT = 0, TYPE_NMI = 1, TYPE_EXTINT = 3 };

static void put_processor(GByteArray *to, unsigned index)
{
    put(to, ENTRY_PROCESSOR, 1);
    put(to, index, 1);
    put(to, APIC_VERSION, 1);
    put(to, 1 | (index == 0) << 1, 1);  /* usable; the first is the one that boots */
    put(to, 0x600, 4);                  /* family 6 */
    put(to, 0x201, 4);                  /* FPU, APIC */
    put(to, 0, 8);
}

static void put_interrupt(GByteArray *to, uint8_t entry, uint8_t type, uint8_t line, uint8_t apic,
                          uint8_t pin)
{
    put(to, entry, 1);
    put(to, type, 1);
    put(to, 0, 2);      /* polarity and trigger of the bus */
    put(to, 0, 1);      /* bus 0 */
    put(to, line, 1);
    put(to, apic, 1);
    put(to, pin, 1);
}

GByteArray *pico_mptable_build(unsigned cpus)
{
    GByteArray *t = g_byte_array_new();
    const unsigned pointer = 16, header = 44;
    const unsigned entries = cpus + 1 + 1 + 16 + 2;
    const unsigned length = header + 20 * cpus + 8 * (entries - cpus);

    put_text(t, "_MP_", 4);
    put(t, PICO_MPTABLE_ADDR + pointer, 4);
    put(t, 1, 1);                       /* length in 16 bytes */
    put(t, 4, 1);                       /* revision 1.4 */
    put(t, 0, 6);
    put_text(t, "PCMP", 4);
    put(t, length, 2);
    put(t, 4, 1);
    put(t, 0, 1);
    put_text(t, "GODWIT", 8);
    put_text(t, "PICO", 12);
    put(t, 0, 4);
    put(t, 0, 2);
    put(t, entries, 2);
    put(t, LOCAL_APIC, 4);
    put(t, 0, 4);
    for (unsigned i = 0; i < cpus; i++) {
        put_processor(t, i);
    }
    put(t, ENTRY_BUS, 1);
    put(t, 0, 1);
    put_text(t, "ISA", 6);
    put(t, ENTRY_IO_APIC, 1);
    put(t, cpus, 1);
    put(t, IO_APIC_VERSION, 1);
    put(t, 1, 1);
    put(t, IO_APIC, 4);
    for (unsigned line = 0; line < 16; line++) {
        put_interrupt(t, ENTRY_IO_INTERRUPT, TYPE_INT, (uint8_t)line, (uint8_t)cpus, (uint8_t)line);
    }
    put_interrupt(t, ENTRY_LOCAL_INTERRUPT, TYPE_EXTINT, 0, 0, 0);
    put_interrupt(t, ENTRY_LOCAL_INTERRUPT, TYPE_NMI, 0, ALL_LOCAL_APICS, 1);
    seal(t->data, pointer, 10);
    seal(t->data + pointer, length, 7);
    return t;
}
