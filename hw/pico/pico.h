/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of machine pico: its parts, and where in memory they put what the guest finds when it starts. */
#ifndef GODWIT_HW_PICO_H
#define GODWIT_HW_PICO_H

#include "accel/kvm.h"
#include "system/chardev.h"
#include "system/vmstate.h"

/* ---- serial.c: a 16550A on a character device ---- */

typedef struct PicoSerial PicoSerial;

#define PICO_SERIAL_PORTS 8u            /* I/O ports: the eight registers */

/*
 * @chr may be NULL: what is sent vanishes.  @lock is the device lock; @set_irq is the interrupt line, called
 * with the lock held.  Registers section "pico-serial", instance @index.  Main thread, as
 * pico_serial_free(), which comes when nobody accesses the registers any more and takes NULL.
 */
PicoSerial *pico_serial_new(Machine *m, unsigned index, Chardev *chr, GMutex *lock,
                            void (*set_irq)(void *opaque, bool level), void *irq_opaque);
void pico_serial_free(PicoSerial *s);

/* Any thread that holds the device lock.  @offset is from the first port; @size is ignored. */
uint64_t pico_serial_read(void *serial, uint64_t offset, unsigned size);
void pico_serial_write(void *serial, uint64_t offset, unsigned size, uint64_t data);

/* Power-on.  Device lock held. */
void pico_serial_reset(PicoSerial *s);

/* ---- machine.c: what it keeps itself ---- */

/* Section "pico-acpi". */
typedef struct PicoAcpi {
    uint16_t pm1_enable;        /* device lock; nothing follows from it */
} PicoAcpi;

extern const VMStateDescription pico_acpi_vmsd;

/* ---- virtio.c: the devices of -device ---- */

typedef struct PicoVirtio PicoVirtio;

/* Room for this many; device n of the command line is in slot n. */
#define PICO_VIRTIO_SLOTS 8
#define PICO_VIRTIO_BASE 0xd0000000u    /* of slot 0's registers; those of the next follow */
#define PICO_VIRTIO_SIZE 0x1000u
#define PICO_VIRTIO_LINE 16u            /* of slot 0 */

/* Where the guest finds a device. */
typedef struct PicoVirtioPlace {
    uint8_t slot;
    uint32_t base;
    uint32_t line;
} PicoVirtioPlace;

/* Reads m->devices and m->drives and opens files; the guest cannot see the devices yet. */
PicoVirtio *pico_virtio_new(Machine *m, GError **errp);
/* Puts the devices where the guest finds them, and registers their sections. */
void pico_virtio_connect(PicoVirtio *v, Kvm *kvm);
/* @places has room for PICO_VIRTIO_SLOTS; returns how many there are. */
unsigned pico_virtio_places(const PicoVirtio *v, PicoVirtioPlace *places);
void pico_virtio_reset(PicoVirtio *v);
void pico_virtio_free(PicoVirtio *v);

/* ---- boot.c ---- */

/* Files that boot, read once; the memory is written anew at each reset. */
typedef struct PicoBoot {
    GMappedFile *kernel;
    GMappedFile *initrd;        /* or NULL */
    const char *append;         /* never NULL */
    GByteArray *acpi;           /* of pico_acpi_build(), or NULL: none */
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

/* ---- acpi.c ---- */

#define PICO_ACPI_ADDR 0xe0000

/* Ports that the tables speak of; machine.c has them. */
#define PICO_PORT_RESET 0x64            /* PICO_RESET_VALUE pulls the reset line */
#define PICO_RESET_VALUE 0xfe
#define PICO_PM1A_EVENT 0x600           /* 16-bit status and enable: nothing happens here */
#define PICO_PM1A_CONTROL 0x604         /* 16 bits: SCI_EN is on; sleep type and SLP_EN switch off */
#define PICO_SLEEP_TYPE_OFF 5

/* ACPI tables for @cpus processors and the devices at @places, to be put at PICO_ACPI_ADDR. */
GByteArray *pico_acpi_build(unsigned cpus, const PicoVirtioPlace *places, unsigned n_places);

#endif
