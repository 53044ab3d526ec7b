/* SPDX-License-Identifier: BSD-2-Clause */
/* The ACPI tables of machine pico: sums, addresses, and a device's bytes as a compiler of ASL makes them. */
#include "hw/pico/pico.h"

#include <string.h>

static const PicoVirtioPlace places[] = {
    { 0, 0xd0000000, 16 }, { 1, 0xd0001000, 17 }, { 2, 0xd0002000, 18 },
};

static uint64_t le(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) {
        v |= (uint64_t)p[i] << 8 * i;
    }
    return v;
}

static unsigned sum(const uint8_t *p, size_t len)
{
    unsigned s = 0;
    for (size_t i = 0; i < len; i++) {
        s += p[i];
    }
    return s & 0xff;
}

/* The table at @address, which must be whole and have @signature. */
static const uint8_t *table(const GByteArray *all, uint64_t address, const char *signature)
{
    g_assert_cmphex(address, >=, PICO_ACPI_ADDR);
    g_assert_cmphex(address % 16, ==, 0);
    uint64_t offset = address - PICO_ACPI_ADDR;
    g_assert_cmpuint(offset + 36, <=, all->len);
    const uint8_t *t = all->data + offset;
    uint64_t len = le(t + 4, 4);
    g_assert_cmpuint(len, <=, all->len - offset);
    g_assert_cmpmem(t, 4, signature, 4);
    g_assert_cmpuint(sum(t, len), ==, 0);
    return t;
}

static void test_tables(void)
{
    g_autoptr(GByteArray) all = pico_acpi_build(64, places, 3);

    g_assert_cmpuint(all->len, <=, PICO_MPTABLE_ADDR - PICO_ACPI_ADDR);
    g_assert_cmpmem(all->data, 8, "RSD PTR ", 8);
    g_assert_cmpuint(sum(all->data, 20), ==, 0);
    g_assert_cmpuint(sum(all->data, 36), ==, 0);
    g_assert_cmpuint(all->data[15], ==, 2);
    const uint8_t *xsdt = table(all, le(all->data + 24, 8), "XSDT");
    g_assert_cmpuint(le(xsdt + 4, 4), ==, 36 + 2 * 8);
    const uint8_t *fadt = table(all, le(xsdt + 36, 8), "FACP");
    g_assert_cmpuint(le(fadt + 4, 4), ==, 276);
    g_assert_cmphex(le(fadt + 40, 4), ==, le(fadt + 140, 8));
    g_assert_cmphex(le(fadt + 56, 4), ==, 0x600);
    g_assert_cmphex(le(fadt + 64, 4), ==, 0x604);
    g_assert_cmpuint(fadt[88], ==, 4);
    g_assert_cmpuint(fadt[89], ==, 2);
    g_assert_cmphex(le(fadt + 120, 8), ==, 0x64);
    g_assert_cmphex(fadt[128], ==, 0xfe);
    table(all, le(fadt + 140, 8), "DSDT");
    const uint8_t *madt = table(all, le(xsdt + 44, 8), "APIC");
    g_assert_cmpuint(le(madt + 4, 4), ==, 36 + 8 + 64 * 8 + 12 + 6);
    g_assert_cmphex(le(madt + 36, 4), ==, 0xfee00000);
    for (unsigned i = 0; i < 64; i++) {
        const uint8_t processor[8] = { 0, 8, (uint8_t)i, (uint8_t)i, 1 };
        g_assert_cmpmem(madt + 44 + 8 * i, 8, processor, 8);
    }
}

/*
 * Made by iasl of
 *     Device (VR02) {
 *         Name (_HID, "LNRO0005")
 *         Name (_UID, 2)
 *         Name (_CRS, ResourceTemplate () {
 *             Memory32Fixed (ReadWrite, 0xd0002000, 0x1000)
 *             Interrupt (ResourceConsumer, Level, ActiveHigh, Exclusive) { 18 }
 *         })
 *     }
 */
static const uint8_t device[] = {
    0x5b, 0x82, 0x3b, 0x56, 0x52, 0x30, 0x32, 0x08, 0x5f, 0x48, 0x49, 0x44, 0x0d, 0x4c, 0x4e, 0x52,
    0x4f, 0x30, 0x30, 0x30, 0x35, 0x00, 0x08, 0x5f, 0x55, 0x49, 0x44, 0x0a, 0x02, 0x08, 0x5f, 0x43,
    0x52, 0x53, 0x11, 0x1a, 0x0a, 0x17, 0x86, 0x09, 0x00, 0x01, 0x00, 0x20, 0x00, 0xd0, 0x00, 0x10,
    0x00, 0x00, 0x89, 0x06, 0x00, 0x01, 0x01, 0x12, 0x00, 0x00, 0x00, 0x79, 0x00,
};

static void test_device(void)
{
    g_autoptr(GByteArray) all = pico_acpi_build(1, places, 3);
    const uint8_t *xsdt = table(all, le(all->data + 24, 8), "XSDT");
    const uint8_t *fadt = table(all, le(xsdt + 36, 8), "FACP");
    const uint8_t *dsdt = table(all, le(fadt + 140, 8), "DSDT");
    uint64_t len = le(dsdt + 4, 4);

    g_assert_cmpmem(dsdt + len - sizeof(device), sizeof(device), device, sizeof(device));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/acpi/tables", test_tables);
    g_test_add_func("/acpi/device", test_device);
    return g_test_run();
}
