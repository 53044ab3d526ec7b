/* SPDX-License-Identifier: BSD-2-Clause */
/* What travels on a multifd channel: one hello, then packets. */
#ifndef GODWIT_MIGRATION_MULTIFD_WIRE_H
#define GODWIT_MIGRATION_MULTIFD_WIRE_H

#include "qapi/qapi-types-migration.h"
#include "system/ramblock.h"
#include "util/be.h"

#include <sys/uio.h>

#define MULTIFD_MAGIC 0x11223344u
#define MULTIFD_VERSION 1u

/* A packet holds at most half a MiB of pages, all of one block. */
#define MULTIFD_PACKET_PAGES (512 * 1024 / TARGET_PAGE_SIZE)
#define MULTIFD_PACKET_BYTES (MULTIFD_PACKET_PAGES * TARGET_PAGE_SIZE)

/* The longest compressed payload: what receivers have room for. */
#define MULTIFD_COMPRESSED_MAX (1024 * 1024)

/* The first bytes on a channel, source to destination; nothing ever comes back.  Big-endian. */
typedef struct MultifdHelloWire {
    be32 magic;
    be32 version;
    uint8_t uuid[16];           /* of the source's VM, in the order of its text; zero: none */
    uint8_t id;                 /* 0 .. channels - 1 */
    uint8_t reserved1[7];
    uint8_t reserved2[32];
} MultifdHelloWire;

G_STATIC_ASSERT(sizeof(MultifdHelloWire) == 64);
G_STATIC_ASSERT(offsetof(MultifdHelloWire, uuid) == 8);
G_STATIC_ASSERT(offsetof(MultifdHelloWire, id) == 24);

/* In front of every packet's payload, always at its full size.  Big-endian. */
typedef struct MultifdPacketWire {
    be32 magic;
    be32 version;
    be32 flags;
    be32 pages_alloc;           /* most pages that a packet of this sender has; 0 in a SYNC packet */
    be32 normal_pages;
    be32 next_packet_size;      /* payload bytes; QEMU 7.2 leaves stale values where there are no pages */
    be64 packet_num;            /* one counter over all channels */
    be32 zero_pages;            /* since 9.0; reserved and 0 before */
    be32 reserved1;
    be64 reserved2[3];
    char ramblock[256];         /* padded with NUL; stale where there are no pages */
    be64 offset[MULTIFD_PACKET_PAGES];  /* in the block: normal pages in payload order, then zero pages */
} MultifdPacketWire;

G_STATIC_ASSERT(sizeof(MultifdPacketWire) == 1344);
G_STATIC_ASSERT(offsetof(MultifdPacketWire, flags) == 8);
G_STATIC_ASSERT(offsetof(MultifdPacketWire, next_packet_size) == 20);
G_STATIC_ASSERT(offsetof(MultifdPacketWire, packet_num) == 24);
G_STATIC_ASSERT(offsetof(MultifdPacketWire, zero_pages) == 32);
G_STATIC_ASSERT(offsetof(MultifdPacketWire, ramblock) == 64);
G_STATIC_ASSERT(offsetof(MultifdPacketWire, offset) == 320);

enum {
    MULTIFD_FLAG_SYNC         = 0x01,
    MULTIFD_FLAG_ZLIB         = 0x02,
    MULTIFD_FLAG_ZSTD         = 0x04,
    MULTIFD_FLAG_METHOD_MASK  = 0x3e,   /* one of them, or none */
    MULTIFD_FLAG_DEVICE_STATE = 0x40,   /* of VFIO devices, with a header of its own */
};

/* A packet taken apart, and checked as far as one can without knowing the guest. */
typedef struct MultifdPacket {
    uint32_t flags;
    uint32_t normal;
    uint32_t zero;
    uint32_t payload;           /* bytes that follow */
    uint64_t number;
    char block[RAMBLOCK_IDSTR_MAX + 1];
    uint64_t offset[MULTIFD_PACKET_PAGES];
} MultifdPacket;

/* The bit in a packet's flags for a method; 0 for none. */
uint32_t multifd_method_flag(MultiFDCompression method);

void multifd_hello_encode(MultifdHelloWire *wire, const uint8_t *uuid, uint8_t id);

/* @uuid may be NULL: this VM has none. */
bool multifd_hello_decode(const MultifdHelloWire *wire, const uint8_t *uuid, unsigned channels, unsigned *id,
                          GError **errp);

/* Without pages the packet is a bare SYNC: block and offsets are then zero. */
void multifd_packet_encode(MultifdPacketWire *wire, const MultifdPacket *packet);

/*
 * @method: the flag that packets with pages must carry.  The offsets are multiples of the page size
 * afterwards.
 */
bool multifd_packet_decode(const MultifdPacketWire *wire, uint32_t method, MultifdPacket *packet,
                           GError **errp);

/* Finds the block and checks every offset against its length; NULL and an error if the packet does not fit.
 */
RAMBlock *multifd_packet_block(const MultifdPacket *packet, const RamList *ram, GError **errp);

/*
 * Where the packet's normal pages are in memory: pages that follow each other are one piece.  @iov has room
 * for MULTIFD_PACKET_PAGES; returns how many were used.
 */
unsigned multifd_packet_pages(const MultifdPacket *packet, const RAMBlock *block, struct iovec *iov);

#endif
