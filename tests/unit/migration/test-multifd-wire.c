/* SPDX-License-Identifier: BSD-2-Clause */
/* Multifd on the wire: golden bytes, and every field that can be wrong. */
#include "migration/multifd-compress.h"
#include "migration/multifd-wire.h"
#include "util/error.h"

#include <glib.h>
#include <string.h>

#define WIRE_FIELD(wire, off) ((uint8_t *)(wire) + (off))

/* "11111111-2222-3333-4444-555555555555" in the order of its text. */
static const uint8_t uuid[16] = {
    0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55
};

static void test_hello_golden(void)
{
    MultifdHelloWire wire;
    uint8_t expected[64] = { 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1 };

    expected[24] = 1;
    multifd_hello_encode(&wire, NULL, 1);
    g_assert_cmpmem(&wire, sizeof(wire), expected, sizeof(expected));
    memcpy(expected + 8, uuid, 16);
    multifd_hello_encode(&wire, uuid, 1);
    g_assert_cmpmem(&wire, sizeof(wire), expected, sizeof(expected));
}

static void test_hello_refused(void)
{
    static const struct {
        unsigned offset;
        uint8_t value;
        const char *words;
    } faults[] = {
        { 0, 0x12, "magic 12223344" },
        { 7, 2, "version 2" },
        { 8, 0xee, "another UUID" },
        { 24, 2, "channel id 2 exceeds channel count 2" },
        { 24, 255, "channel id 255 exceeds channel count 2" },
    };
    MultifdHelloWire wire;
    unsigned id = 77;

    for (unsigned i = 0; i < G_N_ELEMENTS(faults); i++) {
        g_autoptr(GError) error = NULL;
        multifd_hello_encode(&wire, uuid, 1);
        *WIRE_FIELD(&wire, faults[i].offset) = faults[i].value;
        g_assert_false(multifd_hello_decode(&wire, uuid, 2, &id, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
        g_assert_nonnull(strstr(error->message, faults[i].words));
        g_assert_cmpuint(id, ==, 77);
    }
    /* Reserved bytes are nobody's business. */
    multifd_hello_encode(&wire, uuid, 1);
    memset(WIRE_FIELD(&wire, 25), 0xff, 39);
    g_assert_true(multifd_hello_decode(&wire, uuid, 2, &id, NULL));
    g_assert_cmpuint(id, ==, 1);
}

static MultifdPacket sample(void)
{
    MultifdPacket p = {
        .normal = 4, .zero = 2, .payload = 16384, .number = 3, .block = "m0",
        .offset = { 0x5000, 0x1000, 0x4000, 0x3000, 0x2000, 0x6000 },
    };
    return p;
}

/* The layout of a packet that QEMU 11.1 sent: 4 pages, zero pages behind them. */
static void test_packet_golden(void)
{
    static const uint8_t head[48] = {
        0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1,    0, 0, 0, 0, 0, 0, 0, 0x80,
        0, 0, 0, 4, 0, 0, 0x40, 0,             0, 0, 0, 0, 0, 0, 0, 3,
        0, 0, 0, 2, 0, 0, 0, 0,
    };
    static const uint8_t offsets[16] = { 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0, 0x10, 0 };
    MultifdPacket p = sample();
    MultifdPacketWire wire;

    multifd_packet_encode(&wire, &p);
    g_assert_cmpmem(&wire, 40, head, 40);
    g_assert_cmpmem(WIRE_FIELD(&wire, 64), 4, "m0\0\0", 4);
    g_assert_cmpmem(WIRE_FIELD(&wire, 320), 16, offsets, 16);
    g_assert_cmpuint(*WIRE_FIELD(&wire, 320 + 5 * 8 + 6), ==, 0x60);
}

static void test_sync_golden(void)
{
    MultifdPacket p = { .flags = MULTIFD_FLAG_SYNC, .number = 5, .block = "stale" };
    MultifdPacketWire wire;
    uint8_t expected[1344] = { 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1, 0, 0, 0, 1 };

    expected[31] = 5;
    multifd_packet_encode(&wire, &p);
    g_assert_cmpmem(&wire, sizeof(wire), expected, sizeof(expected));
}

static void test_round_trip(void)
{
    MultifdPacket p = sample(), back;
    MultifdPacketWire wire;

    multifd_packet_encode(&wire, &p);
    memset(&back, 0xa5, sizeof(back));
    g_assert_true(multifd_packet_decode(&wire, 0, &back, NULL));
    g_assert_cmpuint(back.normal, ==, 4);
    g_assert_cmpuint(back.zero, ==, 2);
    g_assert_cmpuint(back.payload, ==, 16384);
    g_assert_cmpuint(back.number, ==, 3);
    g_assert_cmpstr(back.block, ==, "m0");
    g_assert_cmpmem(back.offset, 6 * 8, p.offset, 6 * 8);
}

/* QEMU 7.2 leaves what was there in a packet without pages; without compression the size is never looked at.
 */
static void test_stale_fields(void)
{
    MultifdPacket p = { .flags = MULTIFD_FLAG_SYNC }, back;
    MultifdPacketWire wire;

    multifd_packet_encode(&wire, &p);
    memset(WIRE_FIELD(&wire, 20), 0xee, 4);
    memset(WIRE_FIELD(&wire, 64), 0xee, 256);
    memset(WIRE_FIELD(&wire, 320), 0xee, 1024);
    *WIRE_FIELD(&wire, 15) = 128;
    g_assert_true(multifd_packet_decode(&wire, MULTIFD_FLAG_ZLIB, &back, NULL));
    g_assert_cmpuint(back.payload, ==, 0);

    p = sample();
    multifd_packet_encode(&wire, &p);
    memset(WIRE_FIELD(&wire, 20), 0xee, 4);
    g_assert_true(multifd_packet_decode(&wire, 0, &back, NULL));
    g_assert_cmpuint(back.payload, ==, 4 * 4096);
}

static void test_packet_refused(void)
{
    static const struct {
        unsigned offset;
        uint8_t value;
        uint32_t method;
        const char *words;
    } faults[] = {
        { 3, 0, 0, "magic 11223300, expected 11223344" },
        { 7, 9, 0, "version 9, expected 1" },
        { 11, 0x40, 0, "device state packet" },
        { 14, 1, 0, "packet with 384 pages, expected 128" },
        { 15, 3, 0, "4 non-zero pages, which exceeds maximum expected pages 3" },
        { 15, 5, 0, "2 zero pages, expected maximum 1" },
        { 32, 0xff, 0, "zero pages, expected maximum 124" },
        { 11, 2, 0, "flags received 2 flags expected 0" },
        { 11, 0, MULTIFD_FLAG_ZSTD, "flags received 0 flags expected 4" },
        { 327, 1, 0, "offset 0x5001 of page 0 is not a multiple" },
        { 320 + 47, 1, 0, "offset 0x6001 of page 5 is not a multiple" },
    };
    MultifdPacket p = sample(), back;
    MultifdPacketWire wire;

    for (unsigned i = 0; i < G_N_ELEMENTS(faults); i++) {
        g_autoptr(GError) error = NULL;
        multifd_packet_encode(&wire, &p);
        *WIRE_FIELD(&wire, faults[i].offset) = faults[i].value;
        g_assert_false(multifd_packet_decode(&wire, faults[i].method, &back, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
        g_assert_nonnull(strstr(error->message, faults[i].words));
    }
}

static void test_compressed_size(void)
{
    static const struct { uint32_t size; bool ok; } sizes[] = {
        { 0, false }, { 1, true }, { 1024 * 1024, true }, { 1024 * 1024 + 1, false }, { UINT32_MAX, false },
    };
    MultifdPacket p = sample(), back;
    MultifdPacketWire wire;

    p.flags = MULTIFD_FLAG_ZLIB;
    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        p.payload = sizes[i].size;
        multifd_packet_encode(&wire, &p);
        g_assert_cmpint(multifd_packet_decode(&wire, MULTIFD_FLAG_ZLIB, &back, NULL), ==, sizes[i].ok);
    }
}

static void test_name_without_end(void)
{
    MultifdPacket p = sample(), back;
    MultifdPacketWire wire;
    g_autoptr(GError) error = NULL;

    multifd_packet_encode(&wire, &p);
    memset(WIRE_FIELD(&wire, 64), 'm', 256);
    g_assert_false(multifd_packet_decode(&wire, 0, &back, &error));
    g_assert_nonnull(strstr(error->message, "without an end"));
}

static void test_block(void)
{
    RAMBlock m0 = { .idstr = "m0", .used_length = 0x7000, .page_size = 4096, .fd = -1 };
    RAMBlock rom = { .idstr = "rom", .used_length = 0x7000, .page_size = 4096, .fd = -1, .readonly = true };
    static uint8_t memory[0x7000] __attribute__((aligned(4096)));
    m0.host = rom.host = memory;
    RamList list = { 0 };
    MultifdPacket p = sample();
    g_autoptr(GError) error = NULL;

    g_assert_true(ram_list_add(&list, &m0, NULL));
    g_assert_true(ram_list_add(&list, &rom, NULL));
    g_assert_true(multifd_packet_block(&p, &list, NULL) == &m0);
    p.offset[5] = 0x7000;   /* a zero page counts as well */
    g_assert_null(multifd_packet_block(&p, &list, &error));
    g_assert_nonnull(strstr(error->message, "offset too long 0x7000"));
    g_clear_error(&error);
    p.offset[5] = 0x6000;
    g_strlcpy(p.block, "nope", sizeof(p.block));
    g_assert_null(multifd_packet_block(&p, &list, &error));
    g_assert_nonnull(strstr(error->message, "unknown ram block 'nope'"));
    g_clear_error(&error);
    g_strlcpy(p.block, "rom", sizeof(p.block));
    g_assert_null(multifd_packet_block(&p, &list, &error));
}

/* ---- compression ---- */

#define PAGES 8

static void fill(uint8_t pages[PAGES][TARGET_PAGE_SIZE], unsigned seed)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
    for (unsigned i = 0; i < PAGES; i++) {
        for (unsigned j = 0; j < TARGET_PAGE_SIZE; j++) {
            pages[i][j] = i % 2 ? g_rand_int(rand) : i + j / 512;
        }
    }
}

/* Several packets through one pair of contexts: history goes on from one to the next. */
static void test_compression(gconstpointer data)
{
    const MultifdCompressionOps *ops = multifd_compression(GPOINTER_TO_INT(data), NULL);
    if (!ops) {
        g_test_skip("this compression was not built in");
        return;
    }
    static uint8_t in[PAGES][TARGET_PAGE_SIZE], back[PAGES][TARGET_PAGE_SIZE];
    g_autofree uint8_t *out = g_malloc(MULTIFD_COMPRESSED_MAX);
    void *c = ops->compressor_new(1, NULL), *d = ops->decompressor_new(NULL);

    for (unsigned packet = 0; packet < 5; packet++) {
        size_t len = 0;
        fill(in, packet / 2);
        for (unsigned i = 0; i < PAGES; i++) {
            g_assert_true(ops->compress(c, in[i], i + 1 == PAGES, out, &len, NULL));
        }
        if (GPOINTER_TO_INT(data) == MULTIFD_COMPRESSION_ZLIB) {
            g_assert_cmpmem(out + len - 4, 4, "\0\0\xff\xff", 4);
        } else if (!packet) {
            g_assert_cmpmem(out, 4, "\x28\xb5\x2f\xfd", 4);
        }
        ops->begin(d, out, len);
        for (unsigned i = 0; i < PAGES; i++) {
            g_assert_true(ops->page(d, back[i], NULL));
        }
        g_assert_true(ops->end(d, NULL));
        g_assert_cmpmem(back, sizeof(back), in, sizeof(in));
    }
    ops->compressor_free(c);
    ops->decompressor_free(d);
}

/* A payload that ends early, holds more than its pages, or is garbage is refused. */
static void test_bad_payload(gconstpointer data)
{
    const MultifdCompressionOps *ops = multifd_compression(GPOINTER_TO_INT(data), NULL);
    if (!ops) {
        g_test_skip("this compression was not built in");
        return;
    }
    static uint8_t in[PAGES][TARGET_PAGE_SIZE], back[TARGET_PAGE_SIZE];
    g_autofree uint8_t *out = g_malloc(MULTIFD_COMPRESSED_MAX);
    void *c = ops->compressor_new(1, NULL);
    size_t len = 0;

    fill(in, 1);
    for (unsigned i = 0; i < PAGES; i++) {
        g_assert_true(ops->compress(c, in[i], i + 1 == PAGES, out, &len, NULL));
    }
    ops->compressor_free(c);
    for (unsigned pages = 1; pages <= PAGES + 1; pages++) {
        void *d = ops->decompressor_new(NULL);
        bool ok = true;
        ops->begin(d, out, pages > PAGES ? len / 2 : len);
        for (unsigned i = 0; i < MIN(pages, PAGES) && ok; i++) {
            ok = ops->page(d, back, NULL);
        }
        ok = ok && ops->end(d, NULL);
        g_assert_cmpint(ok, ==, pages == PAGES);
        ops->decompressor_free(d);
    }
    void *d = ops->decompressor_new(NULL);
    g_autoptr(GError) error = NULL;
    memset(out, 0xee, 100);
    ops->begin(d, out, 100);
    g_assert_false(ops->page(d, back, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
    ops->decompressor_free(d);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/multifd/hello/golden", test_hello_golden);
    g_test_add_func("/multifd/hello/refused", test_hello_refused);
    g_test_add_func("/multifd/packet/golden", test_packet_golden);
    g_test_add_func("/multifd/packet/sync-golden", test_sync_golden);
    g_test_add_func("/multifd/packet/round-trip", test_round_trip);
    g_test_add_func("/multifd/packet/stale-fields", test_stale_fields);
    g_test_add_func("/multifd/packet/refused", test_packet_refused);
    g_test_add_func("/multifd/packet/compressed-size", test_compressed_size);
    g_test_add_func("/multifd/packet/name-without-end", test_name_without_end);
    g_test_add_func("/multifd/packet/block", test_block);
    g_test_add_data_func("/multifd/zlib", GINT_TO_POINTER(MULTIFD_COMPRESSION_ZLIB), test_compression);
    g_test_add_data_func("/multifd/zstd", GINT_TO_POINTER(MULTIFD_COMPRESSION_ZSTD), test_compression);
    g_test_add_data_func("/multifd/zlib-bad", GINT_TO_POINTER(MULTIFD_COMPRESSION_ZLIB), test_bad_payload);
    g_test_add_data_func("/multifd/zstd-bad", GINT_TO_POINTER(MULTIFD_COMPRESSION_ZSTD), test_bad_payload);
    return g_test_run();
}
