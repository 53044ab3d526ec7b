/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: RDMA control messages and private data, as either side takes them. */
#include "migration/rdma/rdma-control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every entry of a message that was let pass can be read, and survives a round trip. */
static void read_entries(const RdmaHeader *h, const uint8_t *payload)
{
    RdmaRegisterWire r;
    RdmaCompressWire c;

    for (uint32_t i = 0; h->type == RDMA_CONTROL_RAM_BLOCKS_RESULT && i < h->length / 32; i++) {
        rdma_block_decode(payload, i);
    }
    for (uint32_t i = 0; h->type == RDMA_CONTROL_REGISTER_RESULT && i < h->length / 16; i++) {
        rdma_result_decode(payload, i);
    }
    for (uint32_t i = 0; h->type == RDMA_CONTROL_REGISTER_REQUEST && i < h->repeat; i++) {
        RdmaRegister in = rdma_register_decode(payload, i);
        rdma_register_encode(&r, &in);
        RdmaRegister out = rdma_register_decode(&r, 0);
        g_assert_true(in.address == out.address && in.block == out.block && in.more == out.more);
    }
    for (uint32_t i = 0; h->type == RDMA_CONTROL_COMPRESS && i < h->repeat; i++) {
        RdmaCompress in = rdma_compress_decode(payload, i);
        rdma_compress_encode(&c, &in);
        g_assert_cmpmem(&c, sizeof(c), payload + i * sizeof(c), sizeof(c));
    }
}

/* Each message has one byte in front that says how long it is. */
static void run_control(RdmaRole role, const uint8_t *data, size_t size)
{
    RdmaControl control;

    rdma_control_init(&control, role);
    while (size) {
        size_t len = MIN(data[0], size - 1);
        g_autofree uint8_t *message = g_memdup2(data + 1, len);
        g_autoptr(GError) error = NULL;
        RdmaHeader h;

        data += 1 + len;
        size -= 1 + len;
        if (role == RDMA_RECEIVER && !control.ready) {
            rdma_control_ready_sent(&control);
        }
        if (!rdma_header_parse(&h, message, len, &error) ||
            !rdma_control_received(&control, h.type, &error)) {
            g_assert_nonnull(error);
            break;
        }
        g_assert_cmpuint(RDMA_HEADER_SIZE + h.length, ==, len);
        read_entries(&h, message + RDMA_HEADER_SIZE);
        rdma_control_queue(&control, len & 1 ? RDMA_CONTROL_REGISTER_REQUEST : RDMA_CONTROL_QEMU_FILE, 1,
                           "x", 1);
        g_free(rdma_control_next(&control));
    }
    rdma_control_clear(&control);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const RdmaPrivate asked = { RDMA_VERSION, true, true, true, 22 };
    RdmaPrivate p;

    g_autofree uint8_t *exact = g_memdup2(data, MIN(size, 56));
    if (rdma_private_parse_request(&p, exact, MIN(size, 56), NULL)) {
        g_assert_true(p.version == RDMA_VERSION && (!p.godwit || p.chunk_shift >= 20));
    }
    if (rdma_private_parse_answer(&p, exact, MIN(size, 56), &asked, NULL)) {
        g_assert_true(!p.godwit || p.chunk_shift == asked.chunk_shift);
    }
    run_control(RDMA_SENDER, data, size);
    run_control(RDMA_RECEIVER, data, size);
    return 0;
}
