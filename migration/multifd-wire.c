/* SPDX-License-Identifier: BSD-2-Clause */
/* Multifd hellos and packets: encode, and decode with every bound. */
#include "migration/multifd-wire.h"

#include "util/error.h"

#include <inttypes.h>
#include <string.h>

#define refuse(errp, fmt, ...) error_set_protocol(errp, "multifd: " fmt, ##__VA_ARGS__)

uint32_t multifd_method_flag(MultiFDCompression method)
{
    switch (method) {
    case MULTIFD_COMPRESSION_ZLIB:
        return MULTIFD_FLAG_ZLIB;
    case MULTIFD_COMPRESSION_ZSTD:
        return MULTIFD_FLAG_ZSTD;
    default:
        return 0;
    }
}

static bool check_magic(be32 magic, be32 version, GError **errp)
{
    if (be32_get(magic) != MULTIFD_MAGIC) {
        return refuse(errp, "received packet magic %x, expected %x", be32_get(magic), MULTIFD_MAGIC);
    }
    if (be32_get(version) != MULTIFD_VERSION) {
        return refuse(errp, "received packet version %u, expected %u", be32_get(version), MULTIFD_VERSION);
    }
    return true;
}

/* ---- hello ---- */

void multifd_hello_encode(MultifdHelloWire *wire, const uint8_t *uuid, uint8_t id)
{
    *wire = (MultifdHelloWire){
        .magic = be32_make(MULTIFD_MAGIC),
        .version = be32_make(MULTIFD_VERSION),
        .id = id,
    };
    if (uuid) {
        memcpy(wire->uuid, uuid, sizeof(wire->uuid));
    }
}

bool multifd_hello_decode(const MultifdHelloWire *wire, const uint8_t *uuid, unsigned channels, unsigned *id,
                          GError **errp)
{
    static const uint8_t none[16];

    if (!check_magic(wire->magic, wire->version, errp)) {
        return false;
    }
    if (memcmp(wire->uuid, uuid ? uuid : none, sizeof(wire->uuid)) != 0) {
        return refuse(errp, "channel %u belongs to a VM with another UUID", wire->id);
    }
    if (wire->id >= channels) {
        return refuse(errp, "received channel id %u exceeds channel count %u", wire->id, channels);
    }
    *id = wire->id;
    return true;
}

/* ---- packet ---- */

void multifd_packet_encode(MultifdPacketWire *wire, const MultifdPacket *packet)
{
    unsigned pages = packet->normal + packet->zero;

    *wire = (MultifdPacketWire){
        .magic = be32_make(MULTIFD_MAGIC),
        .version = be32_make(MULTIFD_VERSION),
        .flags = be32_make(packet->flags),
        .pages_alloc = be32_make(pages ? MULTIFD_PACKET_PAGES : 0),
        .normal_pages = be32_make(packet->normal),
        .next_packet_size = be32_make(packet->payload),
        .packet_num = be64_make(packet->number),
        .zero_pages = be32_make(packet->zero),
    };
    if (pages) {
        memcpy(wire->ramblock, packet->block, strlen(packet->block));
    }
    for (unsigned i = 0; i < pages; i++) {
        wire->offset[i] = be64_make(packet->offset[i]);
    }
}

/* The counts, each against its maximum, before anything is done with them. */
static bool decode_counts(const MultifdPacketWire *wire, uint32_t method, MultifdPacket *packet,
                          GError **errp)
{
    uint32_t alloc = be32_get(wire->pages_alloc);

    packet->flags = be32_get(wire->flags);
    packet->normal = be32_get(wire->normal_pages);
    packet->zero = be32_get(wire->zero_pages);
    packet->number = be64_get(wire->packet_num);
    packet->payload = 0;
    if (packet->flags & MULTIFD_FLAG_DEVICE_STATE) {
        return refuse(errp, "received a device state packet, but no device here takes one");
    }
    if (alloc > MULTIFD_PACKET_PAGES) {
        return refuse(errp, "received packet with %u pages, expected %u", alloc, MULTIFD_PACKET_PAGES);
    }
    if (packet->normal > alloc) {
        return refuse(errp, "received packet with %u non-zero pages, which exceeds maximum expected pages %u",
                      packet->normal, alloc);
    }
    if (packet->zero > alloc - packet->normal) {
        return refuse(errp, "received packet with %u zero pages, expected maximum %u", packet->zero,
                      alloc - packet->normal);
    }
    if (packet->normal + packet->zero && (packet->flags & MULTIFD_FLAG_METHOD_MASK) != method) {
        return refuse(errp,
                      "flags received %x flags expected %x: is multifd-compression the same on both sides?",
                      packet->flags & MULTIFD_FLAG_METHOD_MASK, method);
    }
    return true;
}

/* Without compression the pages say it; the field may be stale there. */
static bool decode_payload(const MultifdPacketWire *wire, uint32_t method, MultifdPacket *packet,
                           GError **errp)
{
    if (!packet->normal) {
        return true;
    }
    packet->payload = method ? be32_get(wire->next_packet_size) : packet->normal * TARGET_PAGE_SIZE;
    if (method && (!packet->payload || packet->payload > MULTIFD_COMPRESSED_MAX)) {
        return refuse(errp, "received a compressed payload of %u bytes, expected 1 to %u", packet->payload,
                      MULTIFD_COMPRESSED_MAX);
    }
    return true;
}

bool multifd_packet_decode(const MultifdPacketWire *wire, uint32_t method, MultifdPacket *packet,
                           GError **errp)
{
    if (!check_magic(wire->magic, wire->version, errp) || !decode_counts(wire, method, packet, errp) ||
        !decode_payload(wire, method, packet, errp)) {
        return false;
    }
    unsigned pages = packet->normal + packet->zero;
    packet->block[0] = '\0';
    if (!pages) {
        return true;
    }
    if (!memchr(wire->ramblock, '\0', sizeof(wire->ramblock))) {
        return refuse(errp, "received a ram block name without an end");
    }
    memcpy(packet->block, wire->ramblock, sizeof(packet->block));
    for (unsigned i = 0; i < pages; i++) {
        packet->offset[i] = be64_get(wire->offset[i]);
        if (packet->offset[i] & (TARGET_PAGE_SIZE - 1)) {
            return refuse(errp, "offset 0x%" PRIx64 " of page %u is not a multiple of the page size",
                          packet->offset[i], i);
        }
    }
    return true;
}

RAMBlock *multifd_packet_block(const MultifdPacket *packet, const RamList *ram, GError **errp)
{
    RAMBlock *block = ram_list_find(ram, packet->block);
    if (!block) {
        refuse(errp, "unknown ram block '%s'", packet->block);
        return NULL;
    }
    if (block->readonly) {
        refuse(errp, "page for ram block '%s', which is read-only", packet->block);
        return NULL;
    }
    for (unsigned i = 0; i < packet->normal + packet->zero; i++) {
        if (packet->offset[i] >= block->used_length) {
            refuse(errp, "offset too long 0x%" PRIx64 " (block '%s' has 0x%" PRIx64 " bytes)",
                   packet->offset[i], packet->block, block->used_length);
            return NULL;
        }
    }
    return block;
}

unsigned multifd_packet_pages(const MultifdPacket *packet, const RAMBlock *block, struct iovec *iov)
{
    unsigned n = 0;
    for (unsigned i = 0; i < packet->normal; i++) {
        uint8_t *page = block->host + packet->offset[i];
        struct iovec *last = n ? &iov[n - 1] : NULL;
        if (last && (uint8_t *)last->iov_base + last->iov_len == page) {
            last->iov_len += TARGET_PAGE_SIZE;
        } else {
            iov[n++] = (struct iovec){ .iov_base = page, .iov_len = TARGET_PAGE_SIZE };
        }
    }
    return n;
}
