/* SPDX-License-Identifier: BSD-2-Clause */
/* ACPI tables: how a guest finds its processors, interrupt lines, virtio devices, power-off and reset. */

/*
 *   RSDP   at PICO_ACPI_ADDR, where guests look for it; then, each at a 16-byte boundary:
 *   DSDT   the virtio devices, and sleep state S5
 *   FADT   PM1a registers, reset register, what old hardware there is
 *   MADT   local APICs, I/O APIC; its inputs are the lines of the same numbers, so there are no overrides
 *   XSDT   where FADT and MADT are
 *
 * ACPI 6.0; all little-endian; the bytes of each table add up to nothing.
 */
#include "pico.h"
#include "table.h"

#include <string.h>

#define LOCAL_APIC 0xfee00000u
#define IO_APIC 0xfec00000u
#define HEADER 36
#define RSDP_SIZE 36
#define FADT_SIZE 276
#define SCI_LINE 9      /* never raised */

/* FADT flags. */
enum {
    WBINVD = 1 << 0, PROC_C1 = 1 << 2, NO_POWER_BUTTON = 1 << 4, NO_SLEEP_BUTTON = 1 << 5,
    RESET_REG = 1 << 10,
};
/* FADT IA-PC boot flags. */
enum { LEGACY_DEVICES = 1 << 0, NO_VGA = 1 << 2, NO_MSI = 1 << 3, NO_RTC = 1 << 5 };

/* AML. */
enum {
    AML_NAME = 0x08, AML_BYTE = 0x0a, AML_STRING = 0x0d, AML_SCOPE = 0x10, AML_BUFFER = 0x11,
    AML_PACKAGE = 0x12, AML_EXTENDED = 0x5b, AML_ROOT = 0x5c, AML_DEVICE = 0x82,
};

/* A header whose length and sum end_table() fills in. */
static GByteArray *begin_table(const char *signature, unsigned revision)
{
    GByteArray *t = g_byte_array_new();

    put_text(t, signature, 4);
    put(t, 0, 4);
    put(t, revision, 1);
    put(t, 0, 1);
    put_text(t, "GODWIT", 6);
    put_text(t, "PICO", 8);
    put(t, 1, 4);
    put_text(t, "GDWT", 4);
    put(t, 1, 4);
    return t;
}

/* Appends the table to @all, which begins at PICO_ACPI_ADDR, and returns its address. */
static uint32_t end_table(GByteArray *all, GByteArray *t)
{
    uint32_t len = t->len;

    for (unsigned i = 0; i < 4; i++) {
        t->data[4 + i] = (uint8_t)(len >> 8 * i);
    }
    seal(t->data, len, 9);
    while (all->len % 16) {
        put(all, 0, 1);
    }
    uint32_t address = PICO_ACPI_ADDR + all->len;
    g_byte_array_append(all, t->data, len);
    g_byte_array_unref(t);
    return address;
}

/* ---- DSDT ---- */

/* @body with its length before it, which counts its own bytes too; takes @body. */
static void put_package(GByteArray *to, GByteArray *body)
{
    unsigned len = body->len + 1;

    if (len < 0x40) {
        put(to, len, 1);
    } else {
        len++;
        put(to, 1 << 6 | (len & 0xf), 1);
        put(to, len >> 4, 1);
    }
    g_byte_array_append(to, body->data, body->len);
    g_byte_array_unref(body);
}

/* Its registers and its line, level-triggered and active high. */
static void put_resources(GByteArray *to, const PicoVirtioPlace *place)
{
    GByteArray *buffer = g_byte_array_new();

    put(buffer, AML_BYTE, 1);
    put(buffer, 12 + 9 + 2, 1);
    put(buffer, 0x86, 1);               /* 32-bit fixed memory range */
    put(buffer, 9, 2);
    put(buffer, 1, 1);                  /* writable */
    put(buffer, place->base, 4);
    put(buffer, PICO_VIRTIO_SIZE, 4);
    put(buffer, 0x89, 1);               /* extended interrupt */
    put(buffer, 6, 2);
    put(buffer, 1, 1);                  /* consumer */
    put(buffer, 1, 1);
    put(buffer, place->line, 4);
    put(buffer, 0x79, 1);               /* end */
    put(buffer, 0, 1);
    put(to, AML_BUFFER, 1);
    put_package(to, buffer);
}

static void put_device(GByteArray *to, const PicoVirtioPlace *place)
{
    GByteArray *device = g_byte_array_new();
    g_autofree char *name = g_strdup_printf("VR%02X", place->slot);

    put_text(device, name, 4);
    put(device, AML_NAME, 1);
    put_text(device, "_HID", 4);
    put(device, AML_STRING, 1);
    put_text(device, "LNRO0005", 8);    /* a virtio-mmio device */
    put(device, 0, 1);
    put(device, AML_NAME, 1);
    put_text(device, "_UID", 4);
    put(device, AML_BYTE, 1);
    put(device, place->slot, 1);
    put(device, AML_NAME, 1);
    put_text(device, "_CRS", 4);
    put_resources(device, place);
    put(to, AML_EXTENDED, 1);
    put(to, AML_DEVICE, 1);
    put_package(to, device);
}

static void put_s5(GByteArray *to)
{
    GByteArray *package = g_byte_array_new();

    put(package, 4, 1);
    for (unsigned i = 0; i < 4; i++) {
        put(package, AML_BYTE, 1);
        put(package, i < 2 ? PICO_SLEEP_TYPE_OFF : 0, 1);
    }
    put(to, AML_NAME, 1);
    put_text(to, "_S5_", 4);
    put(to, AML_PACKAGE, 1);
    put_package(to, package);
}

static uint32_t put_dsdt(GByteArray *all, const PicoVirtioPlace *places, unsigned n_places)
{
    GByteArray *t = begin_table("DSDT", 2);
    GByteArray *scope = g_byte_array_new();

    put_s5(t);
    put(scope, AML_ROOT, 1);
    put_text(scope, "_SB_", 4);
    for (unsigned i = 0; i < n_places; i++) {
        put_device(scope, &places[i]);
    }
    put(t, AML_SCOPE, 1);
    put_package(t, scope);
    return end_table(all, t);
}

/* ---- the other tables ---- */

/* Generic address: space 1 is ports; access in units of 2^(@access - 1) bytes. */
static void put_port(GByteArray *to, uint16_t port, unsigned bytes, unsigned access)
{
    put(to, 1, 1);
    put(to, bytes * 8, 1);
    put(to, 0, 1);
    put(to, access, 1);
    put(to, port, 8);
}

static uint32_t put_fadt(GByteArray *all, uint32_t dsdt)
{
    GByteArray *t = begin_table("FACP", 6);

    put(t, 0, 4);                       /* no FACS */
    put(t, dsdt, 4);
    put(t, 0, 2);
    put(t, SCI_LINE, 2);
    put(t, 0, 8);                       /* no SMI command port: always in ACPI mode */
    put(t, PICO_PM1A_EVENT, 4);
    put(t, 0, 4);
    put(t, PICO_PM1A_CONTROL, 4);
    put(t, 0, 20);                      /* no PM1b, PM2, timer, general events */
    put(t, 4, 1);                       /* bytes of PM1 event registers */
    put(t, 2, 1);
    put(t, 0, 6);
    put(t, 0xffff, 2);                  /* no C2, no C3 */
    put(t, 0xffff, 2);
    put(t, 0, 9);
    put(t, LEGACY_DEVICES | NO_VGA | NO_MSI | NO_RTC, 2);
    put(t, 0, 1);
    put(t, WBINVD | PROC_C1 | NO_POWER_BUTTON | NO_SLEEP_BUTTON | RESET_REG, 4);
    put_port(t, PICO_PORT_RESET, 1, 1);
    put(t, PICO_RESET_VALUE, 1);
    put(t, 0, 3);
    put(t, 0, 8);
    put(t, dsdt, 8);
    put_port(t, PICO_PM1A_EVENT, 4, 2);
    put(t, 0, 12);
    put_port(t, PICO_PM1A_CONTROL, 2, 2);
    while (t->len < FADT_SIZE) {
        put(t, 0, 1);
    }
    return end_table(all, t);
}

static uint32_t put_madt(GByteArray *all, unsigned cpus)
{
    GByteArray *t = begin_table("APIC", 4);

    put(t, LOCAL_APIC, 4);
    put(t, 1, 4);                       /* there are PICs */
    for (unsigned i = 0; i < cpus; i++) {
        put(t, 0, 1);                   /* a processor: number, APIC id, usable */
        put(t, 8, 1);
        put(t, i, 1);
        put(t, i, 1);
        put(t, 1, 4);
    }
    put(t, 1, 1);                       /* an I/O APIC: id, address, first line */
    put(t, 12, 1);
    put(t, cpus, 1);
    put(t, 0, 1);
    put(t, IO_APIC, 4);
    put(t, 0, 4);
    put(t, 4, 1);                       /* NMI is LINT1 of all processors */
    put(t, 6, 1);
    put(t, 0xff, 1);
    put(t, 0, 2);
    put(t, 1, 1);
    return end_table(all, t);
}

GByteArray *pico_acpi_build(unsigned cpus, const PicoVirtioPlace *places, unsigned n_places)
{
    GByteArray *all = g_byte_array_new();

    put(all, 0, RSDP_SIZE);
    uint32_t dsdt = put_dsdt(all, places, n_places);
    uint32_t fadt = put_fadt(all, dsdt);
    uint32_t madt = put_madt(all, cpus);
    GByteArray *t = begin_table("XSDT", 1);
    put(t, fadt, 8);
    put(t, madt, 8);
    uint32_t xsdt = end_table(all, t);

    g_autoptr(GByteArray) rsdp = g_byte_array_new();
    put_text(rsdp, "RSD PTR ", 8);
    put(rsdp, 0, 1);
    put_text(rsdp, "GODWIT", 6);
    put(rsdp, 2, 1);
    put(rsdp, 0, 4);                    /* no RSDT */
    put(rsdp, RSDP_SIZE, 4);
    put(rsdp, xsdt, 8);
    put(rsdp, 0, 4);
    seal(rsdp->data, 20, 8);
    seal(rsdp->data, RSDP_SIZE, 32);
    memcpy(all->data, rsdp->data, RSDP_SIZE);
    return all;
}
