/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: encoding and bounded parsing of control messages and private data. */
#include "migration/rdma/rdma-wire.h"

#include "util/error.h"

/* ---- header ---- */

typedef enum {
    PAYLOAD_NONE,       /* length 0 */
    PAYLOAD_BYTES,      /* at least one byte */
    PAYLOAD_TABLE,      /* whole entries, any number */
    PAYLOAD_COMMANDS,   /* exactly repeat entries */
    PAYLOAD_RESULTS,    /* whole entries, at least one; repeat says nothing, see rdma-wire.h */
} PayloadKind;

typedef struct MessageType {
    const char *name;
    PayloadKind kind;
    uint32_t entry;
} MessageType;

static const MessageType types[RDMA_CONTROL__MAX] = {
    [RDMA_CONTROL_NONE] = { "NONE", PAYLOAD_NONE, 0 },
    [RDMA_CONTROL_ERROR] = { "ERROR", PAYLOAD_NONE, 0 },
    [RDMA_CONTROL_READY] = { "READY", PAYLOAD_NONE, 0 },
    [RDMA_CONTROL_QEMU_FILE] = { "QEMU_FILE", PAYLOAD_BYTES, 1 },
    [RDMA_CONTROL_RAM_BLOCKS_REQUEST] = { "RAM_BLOCKS_REQUEST", PAYLOAD_NONE, 0 },
    [RDMA_CONTROL_RAM_BLOCKS_RESULT] = { "RAM_BLOCKS_RESULT", PAYLOAD_TABLE, sizeof(RdmaBlockWire) },
    [RDMA_CONTROL_COMPRESS] = { "COMPRESS", PAYLOAD_COMMANDS, sizeof(RdmaCompressWire) },
    [RDMA_CONTROL_REGISTER_REQUEST] = { "REGISTER_REQUEST", PAYLOAD_COMMANDS, sizeof(RdmaRegisterWire) },
    [RDMA_CONTROL_REGISTER_RESULT] = { "REGISTER_RESULT", PAYLOAD_RESULTS, sizeof(RdmaResultWire) },
    [RDMA_CONTROL_REGISTER_FINISHED] = { "REGISTER_FINISHED", PAYLOAD_NONE, 0 },
    [RDMA_CONTROL_UNREGISTER_REQUEST] = { "UNREGISTER_REQUEST", PAYLOAD_COMMANDS, sizeof(RdmaRegisterWire) },
    [RDMA_CONTROL_UNREGISTER_FINISHED] = { "UNREGISTER_FINISHED", PAYLOAD_NONE, 0 },
};

const char *rdma_control_name(unsigned type)
{
    return type < RDMA_CONTROL__MAX ? types[type].name : "unknown";
}

void rdma_header_encode(RdmaHeaderWire *wire, const RdmaHeader *header)
{
    wire->length = be32_make(header->length);
    wire->type = be32_make(header->type);
    wire->repeat = be32_make(header->repeat);
    wire->padding = be32_make(0);
}

static bool payload_fits(const MessageType *t, const RdmaHeader *h)
{
    switch (t->kind) {
    case PAYLOAD_NONE:
        return h->length == 0;
    case PAYLOAD_BYTES:
        return h->length > 0;
    case PAYLOAD_TABLE:
        return h->length % t->entry == 0;
    case PAYLOAD_RESULTS:
        return h->length > 0 && h->length % t->entry == 0;
    default:
        return h->repeat > 0 && h->length == (uint64_t)h->repeat * t->entry;
    }
}

bool rdma_header_parse(RdmaHeader *header, const void *message, size_t received, GError **errp)
{
    const RdmaHeaderWire *wire = message;

    if (received < sizeof(*wire)) {
        return error_set_protocol(errp, "RDMA control message of %zu bytes has no whole header", received);
    }
    RdmaHeader h = { be32_get(wire->length), be32_get(wire->type), be32_get(wire->repeat) };
    if (h.length > RDMA_PAYLOAD_MAX || sizeof(*wire) + h.length != received) {
        return error_set_protocol(errp,
                                  "RDMA control message %s (%u) says length %u, but %zu bytes have come",
                                  rdma_control_name(h.type), h.type, h.length, received);
    }
    if (h.type == RDMA_CONTROL_NONE || h.type >= RDMA_CONTROL__MAX) {
        return error_set_protocol(errp, "RDMA control message has unknown type %u", h.type);
    }
    const MessageType *t = &types[h.type];
    if (t->kind == PAYLOAD_COMMANDS && h.repeat > RDMA_COMMANDS_MAX) {
        return error_set_protocol(errp, "RDMA control message %s has repeat %u, more than %u", t->name,
                                  h.repeat, RDMA_COMMANDS_MAX);
    }
    if (!payload_fits(t, &h)) {
        return error_set_protocol(errp, "RDMA control message %s has length %u with repeat %u", t->name,
                                  h.length, h.repeat);
    }
    *header = h;
    return true;
}

/* ---- entries ---- */

void rdma_block_encode(RdmaBlockWire *wire, const RdmaRemoteBlock *block)
{
    wire->host = be64_make(block->host);
    wire->offset = be64_make(block->offset);
    wire->length = be64_make(block->length);
    wire->rkey = be32_make(block->rkey);
    wire->padding = be32_make(0);
}

RdmaRemoteBlock rdma_block_decode(const void *payload, size_t i)
{
    const RdmaBlockWire *w = (const RdmaBlockWire *)payload + i;
    return (RdmaRemoteBlock){ be64_get(w->host), be64_get(w->offset), be64_get(w->length),
                              be32_get(w->rkey) };
}

void rdma_register_encode(RdmaRegisterWire *wire, const RdmaRegister *r)
{
    wire->address = be64_make(r->address);
    wire->block = be32_make(r->block);
    wire->padding = be32_make(0);
    wire->more = be64_make(r->more);
}

RdmaRegister rdma_register_decode(const void *payload, size_t i)
{
    const RdmaRegisterWire *w = (const RdmaRegisterWire *)payload + i;
    return (RdmaRegister){ be64_get(w->address), be32_get(w->block), be64_get(w->more) };
}

void rdma_result_encode(RdmaResultWire *wire, const RdmaResult *result)
{
    wire->rkey = be32_make(result->rkey);
    wire->padding = be32_make(0);
    wire->host = be64_make(result->host);
}

RdmaResult rdma_result_decode(const void *payload, size_t i)
{
    const RdmaResultWire *w = (const RdmaResultWire *)payload + i;
    return (RdmaResult){ be32_get(w->rkey), be64_get(w->host) };
}

void rdma_compress_encode(RdmaCompressWire *wire, const RdmaCompress *c)
{
    wire->value = be32_make(c->value);
    wire->block = be32_make(c->block);
    wire->address = be64_make(c->address);
    wire->length = be64_make(c->length);
}

RdmaCompress rdma_compress_decode(const void *payload, size_t i)
{
    const RdmaCompressWire *w = (const RdmaCompressWire *)payload + i;
    return (RdmaCompress){ be32_get(w->value), be32_get(w->block), be64_get(w->address),
                           be64_get(w->length) };
}

/* ---- private data ---- */

#define FLAG_PIN_ALL 0x1u
#define FLAG_BATCHES 0x2u
#define SHIFT_POSITION 8
#define REGION_POSITION 16
#define SHIFT_MASK 0x1fu
#define MARK_POSITION 24
#define MARK 0x67u

#define CHUNK_SHIFT_MIN 20
#define CHUNK_SHIFT_MAX 30

void rdma_private_encode(uint8_t out[RDMA_PRIVATE_SIZE], const RdmaPrivate *p)
{
    uint32_t flags = p->pin_all ? FLAG_PIN_ALL : 0;

    if (p->godwit) {
        flags |= MARK << MARK_POSITION | (p->chunk_shift & SHIFT_MASK) << SHIFT_POSITION |
                 (p->region_shift & SHIFT_MASK) << REGION_POSITION;
        flags |= p->batches ? FLAG_BATCHES : 0;
    }
    store_be32(out, p->version);
    store_be32(out + 4, flags);
}

static RdmaPrivate decode_private(const void *data, size_t len)
{
    RdmaPrivate p = { 0 };

    if (data && len >= RDMA_PRIVATE_SIZE) {
        uint32_t flags = load_be32((const uint8_t *)data + 4);
        p.version = load_be32(data);
        p.pin_all = flags & FLAG_PIN_ALL;
        p.godwit = flags >> MARK_POSITION == MARK;
        p.batches = p.godwit && (flags & FLAG_BATCHES);
        p.chunk_shift = p.godwit ? flags >> SHIFT_POSITION & SHIFT_MASK : 0;
        p.region_shift = p.godwit ? flags >> REGION_POSITION & SHIFT_MASK : 0;
    }
    return p;
}

bool rdma_private_parse_request(RdmaPrivate *p, const void *data, size_t len, GError **errp)
{
    *p = decode_private(data, len);
    if (p->version != RDMA_VERSION) {
        return error_set_protocol(errp, "Unknown source RDMA version: %u", p->version);
    }
    if (p->godwit && (p->chunk_shift < CHUNK_SHIFT_MIN || p->chunk_shift > CHUNK_SHIFT_MAX)) {
        return error_set_protocol(errp, "the source has the RDMA chunk shift %u, not one between %u and %u",
                                  p->chunk_shift, CHUNK_SHIFT_MIN, CHUNK_SHIFT_MAX);
    }
    return true;
}

bool rdma_private_parse_answer(RdmaPrivate *p, const void *data, size_t len, const RdmaPrivate *asked,
                               GError **errp)
{
    *p = decode_private(data, len);
    p->pin_all = p->pin_all && asked->pin_all;
    if (p->godwit && (p->chunk_shift < CHUNK_SHIFT_MIN || p->chunk_shift > asked->chunk_shift)) {
        return error_set_protocol(errp,
                                  "the destination has the RDMA chunk shift %u, not one between %u and %u",
                                  p->chunk_shift, CHUNK_SHIFT_MIN, asked->chunk_shift);
    }
    if (p->region_shift && p->region_shift < p->chunk_shift) {
        return error_set_protocol(errp, "the destination has the RDMA region shift %u, less than its chunk "
                                  "shift %u", p->region_shift, p->chunk_shift);
    }
    return true;
}
