/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA control messages and private data: octets that real QEMUs send, and every field that can be wrong. */
#include "migration/rdma/rdma-wire.h"
#include "util/error.h"

static void assert_header(RdmaHeader h, const char *expected)
{
    RdmaHeaderWire wire;
    GString *hex = g_string_new(NULL);

    rdma_header_encode(&wire, &h);
    for (size_t i = 0; i < sizeof(wire); i++) {
        g_string_append_printf(hex, "%s%02x", i && i % 4 == 0 ? " " : "", ((uint8_t *)&wire)[i]);
    }
    g_assert_cmpstr(hex->str, ==, expected);
    g_string_free(hex, TRUE);
}

/* As captured from real QEMUs. */
static void test_header_golden(void)
{
    assert_header((RdmaHeader){ 0, RDMA_CONTROL_READY, 1 }, "00000000 00000002 00000001 00000000");
    assert_header((RdmaHeader){ 8, RDMA_CONTROL_QEMU_FILE, 0 }, "00000008 00000003 00000000 00000000");
    assert_header((RdmaHeader){ 32, RDMA_CONTROL_RAM_BLOCKS_RESULT, 1 },
                  "00000020 00000005 00000001 00000000");
    assert_header((RdmaHeader){ 24, RDMA_CONTROL_REGISTER_REQUEST, 1 },
                  "00000018 00000007 00000001 00000000");
}

static bool parse(uint32_t length, uint32_t type, uint32_t repeat, size_t received, GError **errp)
{
    static uint8_t message[RDMA_MESSAGE_MAX];
    RdmaHeader h = { length, type, repeat }, out;

    rdma_header_encode((RdmaHeaderWire *)message, &h);
    message[15] = 0x26;     /* padding may be anything */
    bool ok = rdma_header_parse(&out, message, received, errp);
    if (ok) {
        g_assert_cmpuint(out.length, ==, length);
        g_assert_cmpuint(out.type, ==, type);
        g_assert_cmpuint(out.repeat, ==, repeat);
    }
    return ok;
}

static void test_header_good(void)
{
    static const RdmaHeader good[] = {
        { 0, RDMA_CONTROL_ERROR, 1 },
        { 0, RDMA_CONTROL_READY, 0 },
        { 1, RDMA_CONTROL_QEMU_FILE, 3638950032u },     /* QEMU 7.2 leaves it unset */
        { RDMA_PAYLOAD_MAX, RDMA_CONTROL_QEMU_FILE, 0 },
        { 0, RDMA_CONTROL_RAM_BLOCKS_REQUEST, 1 },
        { 0, RDMA_CONTROL_RAM_BLOCKS_RESULT, 1 },
        { RDMA_BLOCKS_MAX * 32, RDMA_CONTROL_RAM_BLOCKS_RESULT, 1 },
        { 24, RDMA_CONTROL_COMPRESS, 1 },
        { 24 * RDMA_COMMANDS_MAX, RDMA_CONTROL_REGISTER_REQUEST, RDMA_COMMANDS_MAX },
        { 16, RDMA_CONTROL_REGISTER_RESULT, 3 },        /* what a QEMU answers to three requests */
        { 48, RDMA_CONTROL_REGISTER_RESULT, 3 },
        { 0, RDMA_CONTROL_REGISTER_FINISHED, 1 },
        { 24, RDMA_CONTROL_UNREGISTER_REQUEST, 1 },
        { 0, RDMA_CONTROL_UNREGISTER_FINISHED, 1 },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_true(parse(good[i].length, good[i].type, good[i].repeat, 16 + good[i].length, &error));
        g_assert_no_error(error);
    }
}

static void test_header_bad(void)
{
    static const struct {
        RdmaHeader h;
        size_t received;
        const char *message;
    } bad[] = {
        { { 0, RDMA_CONTROL_READY, 1 }, 15, "RDMA control message of 15 bytes has no whole header" },
        { { 0, RDMA_CONTROL_READY, 1 }, 0, "RDMA control message of 0 bytes has no whole header" },
        { { 64, RDMA_CONTROL_QEMU_FILE, 1 }, 48,
          "RDMA control message QEMU_FILE (3) says length 64, but 48 bytes have come" },
        { { RDMA_PAYLOAD_MAX + 1, RDMA_CONTROL_QEMU_FILE, 1 }, RDMA_MESSAGE_MAX,
          "RDMA control message QEMU_FILE (3) says length 524273, but 524288 bytes have come" },
        { { UINT32_MAX, RDMA_CONTROL_QEMU_FILE, 1 }, 15 + 16,
          "RDMA control message QEMU_FILE (3) says length 4294967295, but 31 bytes have come" },
        { { 0, 0, 1 }, 16, "RDMA control message has unknown type 0" },
        { { 0, 12, 1 }, 16, "RDMA control message has unknown type 12" },
        { { 0, RDMA_CONTROL_QEMU_FILE, 1 }, 16, "RDMA control message QEMU_FILE has length 0 with repeat 1" },
        { { 4, RDMA_CONTROL_READY, 1 }, 20, "RDMA control message READY has length 4 with repeat 1" },
        { { 33, RDMA_CONTROL_RAM_BLOCKS_RESULT, 1 }, 49,
          "RDMA control message RAM_BLOCKS_RESULT has length 33 with repeat 1" },
        { { 24, RDMA_CONTROL_COMPRESS, 2 }, 40, "RDMA control message COMPRESS has length 24 with repeat 2" },
        { { 24, RDMA_CONTROL_REGISTER_REQUEST, 0 }, 40,
          "RDMA control message REGISTER_REQUEST has length 24 with repeat 0" },
        { { 24, RDMA_CONTROL_REGISTER_REQUEST, 4097 }, 40,
          "RDMA control message REGISTER_REQUEST has repeat 4097, more than 4096" },
        /* 24 times this is 24 in 32 bits. */
        { { 24, RDMA_CONTROL_COMPRESS, 0x20000001 }, 40,
          "RDMA control message COMPRESS has repeat 536870913, more than 4096" },
        { { 0, RDMA_CONTROL_REGISTER_RESULT, 1 }, 16,
          "RDMA control message REGISTER_RESULT has length 0 with repeat 1" },
        { { 17, RDMA_CONTROL_REGISTER_RESULT, 1 }, 33,
          "RDMA control message REGISTER_RESULT has length 17 with repeat 1" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(parse(bad[i].h.length, bad[i].h.type, bad[i].h.repeat, bad[i].received, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
        g_assert_cmpstr(error->message, ==, bad[i].message);
    }
}

/* The payloads of the captured messages. */
static void test_entries_golden(void)
{
    static const uint8_t compress[24] = { [21] = 0x10 };
    static const uint8_t request[24] = { 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x13 };
    static const uint8_t result[16] = { 0, 0, 8, 0x22, 0, 0, 0, 0, 0, 0, 0x7f, 0x2e, 0x62, 0x52, 0x90, 0 };
    static const uint8_t block[32] = { 0, 0, 0x7f, 0xe8, 0xc8, 0xe3, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                       0, 0, 0, 0, 0, 0x80, 0, 0 };
    RdmaCompressWire c;
    RdmaRegisterWire r;
    RdmaResultWire s;
    RdmaBlockWire b;

    rdma_compress_encode(&c, &(RdmaCompress){ .length = 1 << 20 });
    g_assert_cmpmem(&c, sizeof(c), compress, sizeof(compress));
    g_assert_cmpuint(rdma_compress_decode(compress, 0).length, ==, 1 << 20);
    rdma_register_encode(&r, &(RdmaRegister){ .address = 1 << 20 });
    g_assert_cmpmem(&r, 12, request, 12);
    RdmaRegister back = rdma_register_decode(request, 0);
    g_assert_cmpuint(back.address, ==, 1 << 20);
    g_assert_cmpuint(back.block, ==, 0);
    g_assert_cmpuint(back.more, ==, 0);
    rdma_result_encode(&s, &(RdmaResult){ 0x822, UINT64_C(0x7f2e62529000) });
    g_assert_cmpmem(&s, sizeof(s), result, sizeof(result));
    g_assert_cmpuint(rdma_result_decode(result, 0).rkey, ==, 0x822);
    rdma_block_encode(&b, &(RdmaRemoteBlock){ UINT64_C(0x7fe8c8e3e000), 0, 8 << 20, 0 });
    g_assert_cmpmem(&b, sizeof(b), block, sizeof(block));
    g_assert_cmpuint(rdma_block_decode(block, 0).length, ==, 8 << 20);
}

/* Field order differs between the commands. */
static void test_entries_fields(void)
{
    uint8_t raw[48];
    for (unsigned i = 0; i < sizeof(raw); i++) {
        raw[i] = (uint8_t)i;
    }
    RdmaRegister r = rdma_register_decode(raw, 1);
    g_assert_cmphex(r.address, ==, UINT64_C(0x18191a1b1c1d1e1f));
    g_assert_cmphex(r.block, ==, 0x20212223);
    g_assert_cmphex(r.more, ==, UINT64_C(0x28292a2b2c2d2e2f));
    RdmaCompress c = rdma_compress_decode(raw, 1);
    g_assert_cmphex(c.value, ==, 0x18191a1b);
    g_assert_cmphex(c.block, ==, 0x1c1d1e1f);
    g_assert_cmphex(c.address, ==, UINT64_C(0x2021222324252627));
    g_assert_cmphex(c.length, ==, UINT64_C(0x28292a2b2c2d2e2f));
    RdmaRemoteBlock b = rdma_block_decode(raw, 0);
    g_assert_cmphex(b.offset, ==, UINT64_C(0x08090a0b0c0d0e0f));
    g_assert_cmphex(b.rkey, ==, 0x18191a1b);
}

/* ---- private data ---- */

static const uint8_t qemu_plain[8] = { 0, 0, 0, 1, 0, 0, 0, 0 };
static const uint8_t qemu_pin_all[8] = { 0, 0, 0, 1, 0, 0, 0, 1 };

static void test_private_golden(void)
{
    uint8_t out[8];

    rdma_private_encode(out, &(RdmaPrivate){ .version = 1 });
    g_assert_cmpmem(out, 8, qemu_plain, 8);
    rdma_private_encode(out, &(RdmaPrivate){ .version = 1, .pin_all = true });
    g_assert_cmpmem(out, 8, qemu_pin_all, 8);
    /* What is ours is in bits that a QEMU drops: it looks at bit 0. */
    static const uint8_t ours[8] = { 0, 0, 0, 1, 0x67, 0, 0x1e, 0x03 };
    rdma_private_encode(out, &(RdmaPrivate){ 1, true, true, true, 30 });
    g_assert_cmpmem(out, 8, ours, 8);
    static const uint8_t answer[8] = { 0, 0, 0, 1, 0x67, 0x19, 0x14, 0x02 };
    rdma_private_encode(out, &(RdmaPrivate){ 1, false, true, true, 20, .region_shift = 25 });
    g_assert_cmpmem(out, 8, answer, 8);
    /* Nothing of it goes to a QEMU. */
    rdma_private_encode(out, &(RdmaPrivate){ 1, false, false, false, 20, .region_shift = 25 });
    g_assert_cmpmem(out, 8, qemu_plain, 8);
}

static void test_private_request(void)
{
    RdmaPrivate p;

    g_assert_true(rdma_private_parse_request(&p, qemu_plain, 56, NULL));
    g_assert_false(p.pin_all || p.godwit);
    g_assert_true(rdma_private_parse_request(&p, qemu_pin_all, 8, NULL));
    g_assert_true(p.pin_all);
    /* Unknown bits of somebody else mean nothing. */
    static const uint8_t other[8] = { 0, 0, 0, 1, 0, 0xff, 0xff, 0xfe };
    g_assert_true(rdma_private_parse_request(&p, other, 8, NULL));
    g_assert_false(p.pin_all || p.godwit || p.batches);
    for (unsigned shift = 20; shift <= 30; shift++) {
        uint8_t data[8];
        rdma_private_encode(data, &(RdmaPrivate){ 1, false, true, true, shift });
        g_assert_true(rdma_private_parse_request(&p, data, 8, NULL));
        g_assert_true(p.godwit && p.batches && !p.pin_all);
        g_assert_cmpuint(p.chunk_shift, ==, shift);
    }
}

static void test_private_request_refused(void)
{
    static const struct {
        uint8_t data[8];
        size_t len;
        const char *message;
    } bad[] = {
        { { 0 }, 0, "Unknown source RDMA version: 0" },
        { { 0, 0, 0, 1 }, 7, "Unknown source RDMA version: 0" },
        { { 0, 0, 0, 0 }, 8, "Unknown source RDMA version: 0" },
        { { 0, 0, 0, 2 }, 8, "Unknown source RDMA version: 2" },
        { { 0, 0, 0, 1, 0x67, 0, 19, 2 }, 8,
          "the source has the RDMA chunk shift 19, not one between 20 and 30" },
        { { 0, 0, 0, 1, 0x67, 0, 31, 2 }, 8,
          "the source has the RDMA chunk shift 31, not one between 20 and 30" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        RdmaPrivate p;
        g_assert_false(rdma_private_parse_request(&p, bad[i].data, bad[i].len, &error));
        g_assert_cmpstr(error->message, ==, bad[i].message);
    }
}

static void test_private_answer(void)
{
    const RdmaPrivate asked = { 1, true, true, true, 22 };
    RdmaPrivate p;
    g_autoptr(GError) error = NULL;

    /* A QEMU grants pin-all and drops the rest; the version of the answer is nobody's business. */
    static const uint8_t answer99[8] = { 0, 0, 0, 99, 0, 0, 0, 1 };
    g_assert_true(rdma_private_parse_answer(&p, answer99, 8, &asked, NULL));
    g_assert_true(p.pin_all && !p.godwit);
    g_assert_true(rdma_private_parse_answer(&p, NULL, 0, &asked, NULL));
    g_assert_false(p.pin_all || p.godwit);
    /* Granted without having been asked for. */
    const RdmaPrivate plain = { 1, false, true, true, 22 };
    g_assert_true(rdma_private_parse_answer(&p, answer99, 8, &plain, NULL));
    g_assert_false(p.pin_all);
    uint8_t data[8];
    rdma_private_encode(data, &(RdmaPrivate){ 1, true, true, true, 23 });
    g_assert_false(rdma_private_parse_answer(&p, data, 8, &asked, &error));
    g_assert_cmpstr(error->message, ==,
                    "the destination has the RDMA chunk shift 23, not one between 20 and 22");
    g_clear_error(&error);
    /* It may have to take smaller ones, but none that there are not. */
    for (unsigned shift = 20; shift <= 22; shift++) {
        rdma_private_encode(data, &(RdmaPrivate){ 1, true, true, true, shift });
        g_assert_true(rdma_private_parse_answer(&p, data, 8, &asked, NULL));
        g_assert_cmpuint(p.chunk_shift, ==, shift);
    }
    rdma_private_encode(data, &(RdmaPrivate){ 1, true, true, true, 19 });
    g_assert_false(rdma_private_parse_answer(&p, data, 8, &asked, &error));
}

static void test_private_region(void)
{
    const RdmaPrivate asked = { 1, true, true, true, 22 };
    g_autoptr(GError) error = NULL;
    uint8_t data[8];
    RdmaPrivate p;

    /* 0: not told. */
    for (unsigned shift = 0; shift <= 31; shift = shift ? shift + 1 : 22) {
        rdma_private_encode(data, &(RdmaPrivate){ 1, true, true, true, 22, .region_shift = shift });
        g_assert_true(rdma_private_parse_answer(&p, data, 8, &asked, NULL));
        g_assert_cmpuint(p.region_shift, ==, shift);
        g_assert_cmpuint(p.chunk_shift, ==, 22);
    }
    rdma_private_encode(data, &(RdmaPrivate){ 1, true, true, true, 22, .region_shift = 21 });
    g_assert_false(rdma_private_parse_answer(&p, data, 8, &asked, &error));
    g_assert_cmpstr(error->message, ==,
                    "the destination has the RDMA region shift 21, less than its chunk shift 22");
    /* A QEMU tells nothing. */
    static const uint8_t other[8] = { 0, 0, 0, 1, 0, 0x1f, 0xff, 0xfe };
    g_assert_true(rdma_private_parse_answer(&p, other, 8, &asked, NULL));
    g_assert_cmpuint(p.region_shift, ==, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rdma-wire/header/golden", test_header_golden);
    g_test_add_func("/rdma-wire/header/good", test_header_good);
    g_test_add_func("/rdma-wire/header/bad", test_header_bad);
    g_test_add_func("/rdma-wire/entries/golden", test_entries_golden);
    g_test_add_func("/rdma-wire/entries/fields", test_entries_fields);
    g_test_add_func("/rdma-wire/private/golden", test_private_golden);
    g_test_add_func("/rdma-wire/private/request", test_private_request);
    g_test_add_func("/rdma-wire/private/request-refused", test_private_request_refused);
    g_test_add_func("/rdma-wire/private/answer", test_private_answer);
    g_test_add_func("/rdma-wire/private/region", test_private_region);
    return g_test_run();
}
