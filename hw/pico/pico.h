/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of machine pico: its parts, and where in memory they put what the guest finds when it starts. */
#ifndef GODWIT_HW_PICO_H
#define GODWIT_HW_PICO_H

#include "accel/kvm.h"
#include "system/chardev.h"

/* ---- serial.c: a 16550A on a character device ---- */

typedef struct PicoSerial PicoSerial;

/* @chr may be NULL: what is sent vanishes.  Registers section "pico-serial" and the ports. */
PicoSerial *pico_serial_new(Machine *m, Kvm *kvm, Chardev *chr, uint16_t base, unsigned irq, unsigned index);
void pico_serial_reset(PicoSerial *s);
void pico_serial_free(PicoSerial *s);

/* ---- boot.c ---- */

/* Files that boot, read once; the memory is written anew at each reset. */
typedef struct PicoBoot {
    GMappedFile *kernel;
    GMappedFile *initrd;        /* or NULL */
    const char *append;         /* never NULL */
} PicoBoot;

/* Opens the files.  A machine without -kernel has nothing to run: an error unless the guest will arrive. */
bool pico_boot_open(PicoBoot *b, const Machine *m, GError **errp);
void pico_boot_close(PicoBoot *b);

/* Puts everything into guest memory and says where the guest begins. */
bool pico_boot_load(const PicoBoot *b, Machine *m, KvmEntry *entry, GError **errp);

/* ---- mptable.c ---- */

/* The MP table (specification 1.4) for @cpus processors, one I/O APIC and ISA lines 0-15 on pins 0-15. */
#define PICO_MPTABLE_ADDR 0xf0000
GByteArray *pico_mptable_build(unsigned cpus);

#endif
