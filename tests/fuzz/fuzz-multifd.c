/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: a multifd hello, packet headers and compressed payloads, as a channel's thread takes them. */
#include "migration/multifd-compress.h"
#include "migration/multifd-wire.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t memory[16 * TARGET_PAGE_SIZE] __attribute__((aligned(TARGET_PAGE_SIZE)));

static void take_payload(MultiFDCompression method, const MultifdPacket *p, const RAMBlock *block,
                         const uint8_t *data, size_t size)
{
    const MultifdCompressionOps *ops = multifd_compression(method, NULL);
    if (!ops) {
        return;
    }
    void *d = ops->decompressor_new(NULL);
    bool ok = true;

    ops->begin(d, data, MIN(size, p->payload));
    for (unsigned i = 0; i < p->normal && ok; i++) {
        ok = ops->page(d, block->host + p->offset[i], NULL);
    }
    if (ok) {
        ops->end(d, NULL);
    }
    ops->decompressor_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    RAMBlock block = {
        .idstr = "m0", .host = memory, .used_length = sizeof(memory), .page_size = 4096, .fd = -1
    };
    RamList list = { .first = &block, .count = 1 };
    MultifdHelloWire hello;
    MultifdPacketWire wire;
    MultifdPacket packet;
    unsigned id;

    if (size < 1 + sizeof(hello)) {
        return 0;
    }
    MultiFDCompression method = data[0] % 3;
    memcpy(&hello, data + 1, sizeof(hello));
    g_autoptr(GError) refused = NULL;
    if (!multifd_hello_decode(&hello, NULL, 4, &id, &refused)) {
        g_assert_nonnull(refused);
    }
    for (size_t pos = 1 + sizeof(hello); size - pos >= sizeof(wire); pos += sizeof(wire)) {
        g_autoptr(GError) error = NULL;
        memcpy(&wire, data + pos, sizeof(wire));
        if (!multifd_packet_decode(&wire, multifd_method_flag(method), &packet, &error)) {
            g_assert_nonnull(error);
        } else if (packet.normal + packet.zero) {
            const RAMBlock *found = multifd_packet_block(&packet, &list, &error);
            if (found && method != MULTIFD_COMPRESSION_NONE) {
                take_payload(method, &packet, found, data + pos + sizeof(wire), size - pos - sizeof(wire));
            }
        }
    }
    return 0;
}
