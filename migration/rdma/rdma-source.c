/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA destination: the RamSource: what is done between a hook marker and REGISTER_FINISHED. */

/*
 * The source writes to our memory by itself; what it asks us for is where, with which keys, and to clear what
 * is zero.  Every index, address and length is checked against the blocks that its stream has named.
 *
 * What is registered.  A Godwit gets exactly what it asks for, in chunks of the size that was agreed on.  Any
 * other source has chunks of a size that it does not tell, and writes to the end of the chunk for which
 * it has asked: so a range is registered that holds that chunk whatever its size, 1 GiB, aligned.  Two
 * requests tell that chunks are not larger than what separates them: from then on the ranges are smaller.
 */
#include "migration/ram-holes.h"
#include "migration/rdma/rdma-channel.h"
#include "migration/rdma/rdma-chunk.h"
#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

#define DESTINATION_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* The largest chunk that a source can have. */
#define UNKNOWN_SHIFT 30

/* What is registered at least for a source that is no Godwit, memory permitting. */
#define FRAME_SHIFT_MIN 26

/* Where the blocks seem to be for the source: one after the other, at multiples of this. */
#define OFFSET_ALIGN (UINT64_C(2) << 20)

/* Registrations of one block: more than one for each of the smallest chunks makes no sense. */
#define REGIONS_SPARE 64

typedef struct SourceRegion {
    uint64_t start, end;            /* offsets in the block */
    struct ibv_mr *region;
} SourceRegion;

typedef struct SourceBlock {
    RAMBlock *block;
    uint64_t offset;                /* position in what the source takes for our RAM address space */
    bool named;                     /* by the stream */
    uint32_t rkey;                  /* pin-all */
    GArray *regions;                /* of SourceRegion, newest last */
    bool asked;
    uint64_t last_asked;            /* offset of the last request */
} SourceBlock;

typedef struct RdmaSource {
    RamSource base;
    Channel *channel;
    RdmaConnection *c;
    SourceBlock *blocks;            /* by the source's order: [0, named) in the stream's, the others behind */
    unsigned n, named;
    unsigned own_shift;
    unsigned source_shift;          /* the largest that the source's chunks can still have */
    unsigned frame_shift;           /* larger ranges have turned out to be too large to be registered */
    bool short_regions;             /* some of them for the device's limit */
    bool blocks_told;
} RdmaSource;

/* ---- the block list ---- */

static bool source_setup_block(RamSource *base, StreamReader *r, RAMBlock *block, GError **errp)
{
    RdmaSource *s = (RdmaSource *)base;

    for (unsigned i = 0; i < s->n; i++) {
        if (s->blocks[i].block != block) {
            continue;
        }
        if (s->blocks[i].named) {
            return error_set_protocol(errp, "RAM block '%s' is twice in the source's list", block->idstr);
        }
        SourceBlock found = s->blocks[i];
        s->blocks[i] = s->blocks[s->named];
        s->blocks[s->named] = found;
        s->blocks[s->named++].named = true;
        return true;
    }
    return error_set_protocol(errp, "RAM block '%s' not found on destination", block->idstr);
}

static bool register_all(RdmaSource *s, GError **errp)
{
    for (unsigned i = 0; i < s->n; i++) {
        SourceBlock *b = &s->blocks[i];
        if (b->block->used_length > s->c->limits.max_region) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                        "RDMA ERROR: RAM block '%s' of %" PRIu64 " bytes: " RDMA_NO_LARGER_REGION
                        "; do without rdma-pin-all",
                        b->block->idstr, b->block->used_length, s->c->limits.max_region);
            return false;
        }
        struct ibv_mr *region = rdma_connection_register(s->c, b->block, 0, b->block->used_length,
                                                         DESTINATION_ACCESS, errp);
        if (!region) {
            return false;
        }
        b->rkey = region->rkey;
    }
    return true;
}

/* A chunk that is no region is refused now, not when its first page comes. */
static bool check_chunk_size(const RdmaSource *s, const RAMBlock *block, GError **errp)
{
    uint64_t chunk = UINT64_C(1) << s->own_shift;

    if (s->c->private_data.godwit || MIN(chunk, block->used_length) <= s->c->limits.max_region) {
        return true;        /* what a Godwit asks for is agreed on */
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                "RDMA ERROR: x-rdma-chunk-size is %" PRIu64 ", too large for RAM block '%s': "
                RDMA_NO_LARGER_REGION "; set less on both sides",
                chunk, block->idstr, s->c->limits.max_region);
    return false;
}

static bool probe_all(RdmaSource *s, GError **errp)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (!check_chunk_size(s, s->blocks[i].block, errp) ||
            !rdma_connection_probe(s->c, s->blocks[i].block, DESTINATION_ACCESS, errp)) {
            return false;
        }
    }
    return true;
}

/* Lengths are those of now: the stream's list has been checked against them. */
static bool tell_blocks(RdmaSource *s, const RdmaHeader *header, const uint8_t *payload, GError **errp)
{
    g_autofree RdmaBlockWire *wire = g_new0(RdmaBlockWire, s->n);

    if (s->blocks_told) {
        /* All memory would be registered once more. */
        return error_set_protocol(errp, "The source has asked for the RAM blocks twice");
    }
    if (s->n > RDMA_BLOCKS_MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "RDMA ERROR: %u RAM blocks are more than %u", s->n, RDMA_BLOCKS_MAX);
        return false;
    }
    if (!(s->c->private_data.pin_all ? register_all(s, errp) : probe_all(s, errp))) {
        return false;
    }
    for (unsigned i = 0; i < s->n; i++) {
        const SourceBlock *b = &s->blocks[i];
        RdmaRemoteBlock block = { (uintptr_t)b->block->host, b->offset, b->block->used_length, b->rkey };
        rdma_block_encode(&wire[i], &block);
    }
    s->blocks_told = true;
    return rdma_connection_reply(s->c, RDMA_CONTROL_RAM_BLOCKS_RESULT, 1, wire, s->n * sizeof(*wire), errp);
}

/* ---- addresses from outside ---- */

static SourceBlock *find_block(RdmaSource *s, const char *what, uint32_t index, GError **errp)
{
    if (index >= s->named) {
        error_set_protocol(errp, "rdma: '%s' bad block index %u (vs %u)", what, index, s->named);
        return NULL;
    }
    SourceBlock *b = &s->blocks[index];
    if (b->block->readonly) {
        error_set_protocol(errp, "rdma: '%s' of the read-only RAM block '%s'", what, b->block->idstr);
        return NULL;
    }
    return b;
}

/* *@offset in the block; @length bytes from there on must be in it. */
static bool find_range(const SourceBlock *b, const char *what, uint64_t address, uint64_t length,
                       uint64_t *offset, GError **errp)
{
    uint64_t size = b->block->used_length;

    if (address < b->offset || address - b->offset >= size || length > size - (address - b->offset)) {
        return error_set_protocol(errp,
                                  "rdma: bad %s address 0x%" PRIx64 " + 0x%" PRIx64 " for block %s of 0x%"
                                  PRIx64
                                  " bytes at 0x%" PRIx64,
                                  what, address, length, b->block->idstr, size, b->offset);
    }
    *offset = address - b->offset;
    return true;
}

/* ---- COMPRESS ---- */

static void clear(const RAMBlock *block, uint64_t offset, uint64_t length)
{
    uint64_t page = offset >> TARGET_PAGE_BITS, end = (offset + length) >> TARGET_PAGE_BITS;
    bool ask = ram_holes_known(block);
    uint64_t next_question = page, patience = 1;

    while (page < end) {
        if (ask && page >= next_question) {
            uint64_t hole_end = ram_hole_end(block, page);
            patience = hole_end > page ? 1 : MIN(2 * patience, RAM_HOLES_PATIENCE);
            page = MAX(page, hole_end);
            next_question = page + patience;
            continue;
        }
        ram_zero_page(block->host + (page << TARGET_PAGE_BITS));
        page++;
    }
}

static bool compress(RdmaSource *s, const RdmaHeader *header, const uint8_t *payload, GError **errp)
{
    for (uint32_t i = 0; i < header->repeat; i++) {
        RdmaCompress c = rdma_compress_decode(payload, i);
        SourceBlock *b = find_block(s, "compress", c.block, errp);
        uint64_t offset = 0;

        if (!b || !find_range(b, "compress", c.address, c.length, &offset, errp)) {
            return false;
        }
        if (c.value) {
            return error_set_protocol(errp, "rdma: Zero page with non-zero (%u) value", c.value);
        }
        if ((offset | c.length) & (TARGET_PAGE_SIZE - 1)) {
            return error_set_protocol(errp, "rdma: compress of 0x%" PRIx64 " bytes at 0x%" PRIx64
                                      " of block %s: not whole pages", c.length, offset, b->block->idstr);
        }
        trace_rdma_clear(b->block->idstr, offset, c.length);
        clear(b->block, offset, c.length);
    }
    return true;
}

/* ---- REGISTER_REQUEST ---- */

static struct ibv_mr *find_region(const SourceBlock *b, uint64_t start, uint64_t end)
{
    for (guint i = b->regions->len; i-- > 0;) {
        const SourceRegion *r = &g_array_index(b->regions, SourceRegion, i);
        if (r->start <= start && r->end >= end) {
            return r->region;
        }
    }
    return NULL;
}

static struct ibv_mr *new_region(RdmaSource *s, SourceBlock *b, uint64_t start, uint64_t end, GError **errp)
{
    uint64_t most = rdma_chunk_count(b->block->used_length, RDMA_PEER_SHIFT_MIN) + REGIONS_SPARE;

    if (b->regions->len >= most) {
        error_set_protocol(errp, "rdma: more than %" PRIu64 " registrations of block %s", most,
                           b->block->idstr);
        return NULL;
    }
    SourceRegion r = { start, end, NULL };
    r.region = rdma_connection_register(s->c, b->block, start, end - start, DESTINATION_ACCESS, errp);
    /* 0 means "no key" to a source; the region that has it stays, so that the next one has another. */
    if (r.region && !r.region->rkey) {
        r.region = rdma_connection_register(s->c, b->block, start, end - start, DESTINATION_ACCESS, errp);
    }
    if (r.region) {
        g_array_append_val(b->regions, r);
    }
    return r.region;
}

static struct ibv_mr *region_for_godwit(RdmaSource *s, SourceBlock *b, uint64_t offset, uint64_t more,
                                        GError **errp)
{
    unsigned shift = s->c->private_data.chunk_shift;
    uint64_t first = rdma_chunk_index(offset, shift);
    uint64_t start = first << shift;
    uint64_t end = MIN((first + more + 1) << shift, b->block->used_length);
    struct ibv_mr *region = find_region(b, start, end);

    return region ? region : new_region(s, b, start, end, errp);
}

static struct ibv_mr *region_for_other(RdmaSource *s, SourceBlock *b, uint64_t offset, uint64_t more,
                                       GError **errp)
{
    unsigned own = s->own_shift;

    if (b->asked) {
        s->source_shift = MIN(s->source_shift, rdma_shift_from_requests(offset, b->last_asked));
    }
    b->asked = true;
    b->last_asked = offset;
    for (unsigned shift = MAX(MIN(MAX(s->source_shift, FRAME_SHIFT_MIN), s->frame_shift), own);; shift--) {
        g_autoptr(GError) error = NULL;
        uint64_t start = offset >> own << own;
        uint64_t length = (more + 1) << own;
        rdma_frame(&start, &length, shift, b->block->used_length);
        struct ibv_mr *region = find_region(b, start, start + length);
        if (!region) {
            region = new_region(s, b, start, start + length, &error);
        }
        if (region) {
            return region;
        }
        if (shift <= own) {
            g_propagate_error(errp, g_steal_pointer(&error));
            return NULL;
        }
        /* Less may do: the source's chunks are probably as large as ours. */
        s->frame_shift = MIN(s->frame_shift, shift - 1);
        s->short_regions |= length > s->c->limits.max_region;
    }
}

static bool register_one(RdmaSource *s, const RdmaRegister *r, RdmaResult *result, GError **errp)
{
    SourceBlock *b = find_block(s, "register", r->block, errp);
    uint64_t offset = 0;

    if (!b || !find_range(b, "register", r->address, 1, &offset, errp)) {
        return false;
    }
    /* More than there is may be asked for by somebody who counts in smaller chunks than we. */
    uint64_t more = MIN(r->more, rdma_chunk_count(b->block->used_length, RDMA_PEER_SHIFT_MIN));
    struct ibv_mr *region = s->c->private_data.godwit ? region_for_godwit(s, b, offset, more, errp)
                                                      : region_for_other(s, b, offset, more, errp);
    if (!region) {
        return false;
    }
    *result = (RdmaResult){ region->rkey, (uintptr_t)b->block->host };
    return true;
}

static bool answer_register(RdmaSource *s, const RdmaHeader *header, const uint8_t *payload, GError **errp)
{
    g_autofree RdmaResultWire *wire = g_new0(RdmaResultWire, header->repeat);

    for (uint32_t i = 0; i < header->repeat; i++) {
        RdmaRegister r = rdma_register_decode(payload, i);
        RdmaResult result;
        if (!register_one(s, &r, &result, errp)) {
            return false;
        }
        rdma_result_encode(&wire[i], &result);
    }
    return rdma_connection_reply(s->c, RDMA_CONTROL_REGISTER_RESULT, header->repeat, wire,
                                 header->repeat * sizeof(*wire), errp);
}

/*
 * Other chunks may use the same registration, and it costs nothing until the end: it is checked, answered,
 * and the memory stays registered.
 */
static bool answer_unregister(RdmaSource *s, const RdmaHeader *header, const uint8_t *payload, GError **errp)
{
    for (uint32_t i = 0; i < header->repeat; i++) {
        RdmaRegister r = rdma_register_decode(payload, i);
        SourceBlock *b = find_block(s, "unregister", r.block, errp);
        if (!b) {
            return false;
        }
        if (r.address > rdma_chunk_count(b->block->used_length, RDMA_PEER_SHIFT_MIN)) {
            return error_set_protocol(errp, "rdma: bad unregister chunk %" PRIu64 " for block %s", r.address,
                                      b->block->idstr);
        }
    }
    return rdma_connection_reply(s->c, RDMA_CONTROL_UNREGISTER_FINISHED, header->repeat, NULL, 0, errp);
}

/* ---- the loop ---- */

static const struct {
    RdmaControlType type;
    bool (*handle)(RdmaSource *s, const RdmaHeader *header, const uint8_t *payload, GError **errp);
} commands[] = {
    { RDMA_CONTROL_COMPRESS, compress },
    { RDMA_CONTROL_REGISTER_REQUEST, answer_register },
    { RDMA_CONTROL_RAM_BLOCKS_REQUEST, tell_blocks },
    { RDMA_CONTROL_UNREGISTER_REQUEST, answer_unregister },
};

static bool obey(RdmaSource *s, const RdmaHeader *header, const uint8_t *payload, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (commands[i].type == header->type) {
            return commands[i].handle(s, header, payload, errp);
        }
    }
    return error_set_protocol(errp, "Unknown control message %s (%u) between a hook marker and "
                              "REGISTER_FINISHED", rdma_control_name(header->type), header->type);
}

/* The end of a connection over which a source has perhaps written beyond a region: it does not tell. */
static void explain_end(const RdmaSource *s, GError **errp)
{
    g_autoptr(GError) error = *errp;

    if (s->short_regions && UINT64_C(1) << s->source_shift > s->c->limits.max_region) {
        *errp = g_error_new(error->domain, error->code,
                            "%s; perhaps its chunks are too large here: " RDMA_NO_LARGER_REGION,
                            error->message, s->c->limits.max_region);
        return;
    }
    g_steal_pointer(&error);
}

static bool source_hook_word(RamSource *base, StreamReader *r, uint64_t arg, GError **errp)
{
    RdmaSource *s = (RdmaSource *)base;

    if (stream_has_buffered(r) || rdma_channel_has_bytes(s->channel)) {
        return error_set_protocol(errp, "stream bytes follow a hook marker in the same message");
    }
    for (;;) {
        g_autoptr(GError) error = NULL;
        RdmaHeader header;
        const uint8_t *payload;

        if (fault_point("rdma-hook", errp)) {
            return false;
        }
        if (!rdma_connection_receive(s->c, &header, &payload, &error)) {
            if (!error) {
                g_set_error(&error, GODWIT_ERROR, GODWIT_ERROR_EOF,
                            "RDMA ERROR: the source has closed the connection in the middle of guest memory");
            }
            explain_end(s, &error);
            g_propagate_error(errp, g_steal_pointer(&error));
            return false;
        }
        if (header.type == RDMA_CONTROL_REGISTER_FINISHED) {
            return true;
        }
        if (!obey(s, &header, payload, errp)) {
            return false;
        }
    }
}

static bool source_section_end(RamSource *base, uint8_t type, GError **errp)
{
    return true;
}

static bool source_flush_word(RamSource *base, GError **errp)
{
    return error_set_protocol(errp, "MULTIFD_FLUSH in a migration over RDMA");
}

/* REGISTER_FINISHED of the last section came behind every write. */
static bool source_complete(RamSource *base, GError **errp)
{
    RdmaSource *s = (RdmaSource *)base;
    return s->blocks_told || error_set_protocol(errp, "the source has sent no guest memory by RDMA");
}

static void source_cleanup(RamSource *base)
{
    RdmaSource *s = (RdmaSource *)base;

    for (unsigned i = 0; i < s->n; i++) {
        g_array_unref(s->blocks[i].regions);
    }
    channel_unref(s->channel);
    g_free(s->blocks);
    g_free(s);
}

static const RamSourceOps rdma_source_ops = {
    .name = "rdma",
    .no_stream_pages = true,
    .setup_block = source_setup_block,
    .section_end = source_section_end,
    .flush_word = source_flush_word,
    .hook_word = source_hook_word,
    .complete = source_complete,
    .cleanup = source_cleanup,
};

RamSource *rdma_source_new(Channel *channel, RamList *ram, const MigrationOptions *options)
{
    RdmaSource *s = g_new0(RdmaSource, 1);
    uint64_t offset = 0;

    s->base.ops = &rdma_source_ops;
    s->channel = channel_ref(channel);
    s->c = rdma_channel_main(channel);
    s->own_shift = options->p.x_rdma_chunk_shift;
    s->source_shift = UNKNOWN_SHIFT;
    s->frame_shift = UNKNOWN_SHIFT;
    s->blocks = g_new0(SourceBlock, ram->count);
    RAMLIST_FOREACH(block, ram) {
        SourceBlock *b = &s->blocks[s->n++];
        b->block = block;
        b->offset = offset;
        b->regions = g_array_new(FALSE, FALSE, sizeof(SourceRegion));
        offset = (offset + block->used_length + OFFSET_ALIGN - 1) / OFFSET_ALIGN * OFFSET_ALIGN;
    }
    return &s->base;
}
