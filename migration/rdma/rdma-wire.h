/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: octets of the control messages and of the connection's private data. */
#ifndef GODWIT_MIGRATION_RDMA_WIRE_H
#define GODWIT_MIGRATION_RDMA_WIRE_H

#include "util/be.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * A message is a SEND of a header and a payload.  All integers are big-endian; padding is sent as 0 and
 * ignored when it comes (QEMU 7.2 leaves it unset).
 *
 *   n   type                 from         payload                 needs READY   answered by
 *   1   ERROR                both         -                       no
 *   2   READY                receiver     -                       -             one message
 *   3   QEMU_FILE            sender       1 .. 524272 bytes       yes
 *   4   RAM_BLOCKS_REQUEST   source       -                       yes           5
 *   5   RAM_BLOCKS_RESULT    destination  32 x blocks             no
 *   6   COMPRESS             source       24 x repeat             yes
 *   7   REGISTER_REQUEST     source       24 x repeat             yes           8
 *   8   REGISTER_RESULT      destination  16 x repeat             no
 *   9   REGISTER_FINISHED    source       -                       yes
 *   10  UNREGISTER_REQUEST   source       24 x repeat             yes           11
 *   11  UNREGISTER_FINISHED  destination  -                       no
 *
 * A real QEMU answers every REGISTER_REQUEST with one result and obeys only the first COMPRESS of a message:
 * repeat is 1 unless the peer is a Godwit, see RdmaPrivate.
 */
typedef enum {
    RDMA_CONTROL_NONE = 0,
    RDMA_CONTROL_ERROR = 1,
    RDMA_CONTROL_READY = 2,
    RDMA_CONTROL_QEMU_FILE = 3,
    RDMA_CONTROL_RAM_BLOCKS_REQUEST = 4,
    RDMA_CONTROL_RAM_BLOCKS_RESULT = 5,
    RDMA_CONTROL_COMPRESS = 6,
    RDMA_CONTROL_REGISTER_REQUEST = 7,
    RDMA_CONTROL_REGISTER_RESULT = 8,
    RDMA_CONTROL_REGISTER_FINISHED = 9,
    RDMA_CONTROL_UNREGISTER_REQUEST = 10,
    RDMA_CONTROL_UNREGISTER_FINISHED = 11,
    RDMA_CONTROL__MAX,
} RdmaControlType;

#define RDMA_MESSAGE_MAX 524288                 /* header included */
#define RDMA_HEADER_SIZE 16
#define RDMA_PAYLOAD_MAX (RDMA_MESSAGE_MAX - RDMA_HEADER_SIZE)
#define RDMA_COMMANDS_MAX 4096                  /* the largest repeat */
#define RDMA_BLOCKS_MAX (RDMA_PAYLOAD_MAX / 32) /* 16383: they have to fit in one RAM_BLOCKS_RESULT */

typedef struct RdmaHeaderWire {
    be32 length;            /* 0: of the payload */
    be32 type;              /* 4 */
    be32 repeat;            /* 8: commands in the payload */
    be32 padding;           /* 12 */
} RdmaHeaderWire;

typedef struct RdmaBlockWire {
    be64 host;              /* 0: address of the block in the destination's process */
    be64 offset;            /* 8: its position in the destination's RAM address space */
    be64 length;            /* 16: used length */
    be32 rkey;              /* 24: of the whole block with pin-all, else 0 */
    be32 padding;           /* 28 */
} RdmaBlockWire;

typedef struct RdmaRegisterWire {
    be64 address;           /* 0: position in the destination's RAM address space; UNREGISTER: chunk */
    be32 block;             /* 8: index in the source's list */
    be32 padding;           /* 12 */
    be64 more;              /* 16: chunks after the first */
} RdmaRegisterWire;

typedef struct RdmaResultWire {
    be32 rkey;              /* 0: never 0 */
    be32 padding;           /* 4 */
    be64 host;              /* 8: of the start of the block */
} RdmaResultWire;

typedef struct RdmaCompressWire {
    be32 value;             /* 0: the byte to fill with, always 0 */
    be32 block;             /* 4: index in the source's list */
    be64 address;           /* 8: position in the destination's RAM address space */
    be64 length;            /* 16: bytes */
} RdmaCompressWire;

_Static_assert(sizeof(RdmaHeaderWire) == RDMA_HEADER_SIZE, "header");
_Static_assert(sizeof(RdmaBlockWire) == 32 && offsetof(RdmaBlockWire, rkey) == 24, "block");
_Static_assert(sizeof(RdmaRegisterWire) == 24 && offsetof(RdmaRegisterWire, more) == 16, "register");
_Static_assert(sizeof(RdmaResultWire) == 16 && offsetof(RdmaResultWire, host) == 8, "result");
_Static_assert(sizeof(RdmaCompressWire) == 24 && offsetof(RdmaCompressWire, address) == 8, "compress");

/* "READY", ...; "unknown" beyond the table. */
const char *rdma_control_name(unsigned type);

typedef struct RdmaHeader {
    uint32_t length;
    uint32_t type;
    uint32_t repeat;
} RdmaHeader;

void rdma_header_encode(RdmaHeaderWire *wire, const RdmaHeader *header);

/* Of a message of @received bytes: type known, length as received and as the type and repeat want it. */
bool rdma_header_parse(RdmaHeader *header, const void *message, size_t received, GError **errp);

typedef struct RdmaRemoteBlock {
    uint64_t host, offset, length;
    uint32_t rkey;
} RdmaRemoteBlock;

/* Of REGISTER_REQUEST and UNREGISTER_REQUEST. */
typedef struct RdmaRegister {
    uint64_t address;
    uint32_t block;
    uint64_t more;
} RdmaRegister;

typedef struct RdmaResult {
    uint32_t rkey;
    uint64_t host;
} RdmaResult;

typedef struct RdmaCompress {
    uint32_t value;
    uint32_t block;
    uint64_t address, length;
} RdmaCompress;

/*
 * One entry each; @payload is that of a message that rdma_header_parse() has let pass, @i below its number.
 */
void rdma_block_encode(RdmaBlockWire *wire, const RdmaRemoteBlock *block);
RdmaRemoteBlock rdma_block_decode(const void *payload, size_t i);
void rdma_register_encode(RdmaRegisterWire *wire, const RdmaRegister *r);
RdmaRegister rdma_register_decode(const void *payload, size_t i);
void rdma_result_encode(RdmaResultWire *wire, const RdmaResult *result);
RdmaResult rdma_result_decode(const void *payload, size_t i);
void rdma_compress_encode(RdmaCompressWire *wire, const RdmaCompress *c);
RdmaCompress rdma_compress_decode(const void *payload, size_t i);

/*
 * ---- private data: 8 bytes in CONNECT_REQUEST and ESTABLISHED, whatever length is reported ----
 *
 *   offset 0   be32   version, 1
 *   offset 4   be32   flags
 *
 *   bit 0        pin-all: asked for, granted
 *   bits 24-31   0x67: the other bits are a Godwit's.  A QEMU answers with bit 0 alone
 *   bits 8-12    the source's chunk shift, 20 to 30; the destination answers with what both use: the same,
 *                or less if its device cannot register so much as one
 *   bit 1        REGISTER_REQUEST and COMPRESS may have repeat > 1, results are 16 x repeat bytes
 *   bits 16-20   in the answer: log2 of what the destination's device can register as one region, rounded
 *                down, at most RDMA_REGION_SHIFT_MAX; nothing longer may be asked for.  0: not told
 */
#define RDMA_VERSION 1
#define RDMA_PRIVATE_SIZE 8
#define RDMA_REGION_SHIFT_MAX 31

typedef struct RdmaPrivate {
    uint32_t version;
    bool pin_all;
    bool godwit;                /* the rest has a meaning */
    bool batches;
    unsigned chunk_shift;
    unsigned region_shift;
} RdmaPrivate;

void rdma_private_encode(uint8_t out[RDMA_PRIVATE_SIZE], const RdmaPrivate *p);

/* What a source asks for: version and chunk shift are checked.  Less than 8 bytes are version 0. */
bool rdma_private_parse_request(RdmaPrivate *p, const void *data, size_t len, GError **errp);

/*
 * What a destination answers.  As real ones do, the version is not looked at; nothing at all means no to
 * everything.  An answer with a larger chunk shift than @asked is an error, and so is one with regions
 * smaller than chunks.
 */
bool rdma_private_parse_answer(RdmaPrivate *p, const void *data, size_t len, const RdmaPrivate *asked,
                               GError **errp);

#endif
