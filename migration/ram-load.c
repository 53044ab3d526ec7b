/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination's RAM section: block list, page records, straight into guest memory. */

/*
 * Why reading ahead of the records leaves no page wrong. A PAGE record is taken with stream_get_run(),
 * which may write the bytes that follow it to the pages that follow it, guessing that they belong there.
 *
 * 1. Where it may write: load_page() limits the run to the block's used length, and to pages from which
 *    no record has arrived in this migration (the received bitmap); any other page is written only by a
 *    record that names it. Blocks of which no page may come (ignored, read-only) are refused before.
 * 2. Right guesses: the word read in between was that of the page, so the bytes are its record's body.
 * 3. Wrong guesses: the bytes have been moved back into the stream, where they are parsed as usual. The
 *    pages they were in have never been received, so what is in them came from no record. They are made
 *    zero, which is what the rest of a destination's memory is at this moment; a ZERO, PAGE or XBZRLE
 *    record that comes later finds a page as fresh as any.
 * 4. A failure in between ends the migration; memory that was received in part is never run.
 *
 * Pages of shared memory that do not exist yet are written to the file behind it instead, from the buffer,
 * and nothing is guessed: fresh_pages(), write_run().
 *
 * What guest memory held before a migration does not survive it: the source sends every page at least once.
 * It needs that nobody else writes guest memory meanwhile: RamSourceOps.exclusive.
 */
#include "migration/ram-load.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/uio.h>

#include "migration/ram-holes.h"
#include "migration/ram-wire.h"
#include "migration/stream-format.h"
#include "migration/xbzrle.h"
#include "trace-migration.h"
#include "util/be.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

/* Entries in all block lists of one stream: a block may be listed twice, but not for ever. */
#define MAX_BLOCK_ENTRIES 65536

/* A PAGE record without a name: the word, the body. */
#define RECORD_SIZE (sizeof(uint64_t) + TARGET_PAGE_SIZE)

/* The longest run written to a file by one call, in pages. */
#define MAX_WRITE 64

/* The longest run taken by one call, in pages: bounds the search in the received bitmap. */
#define MAX_RUN 4096

typedef struct RamLoadBlock {
    RAMBlock *block;
    bool ignored;               /* x-ignore-shared: no page may come */
    uint64_t *received;         /* bit per page: a record of it has arrived in the main stream */
    bool holes_known;           /* the file behind the block can be asked, and written to */
    uint64_t hole_from;         /* pages [hole_from, hole_to) were holes when last asked */
    uint64_t hole_to;
    uint64_t ask_from;          /* below is none, as far as we want to know */
    uint64_t patience;
} RamLoadBlock;

/* Belongs to the load thread. */
struct RamLoad {
    RamList *ram;
    const MigrationOptions *options;
    RamSource *source;
    RamLoadBlock *blocks;
    unsigned n_blocks;
    unsigned block_entries;     /* seen so far */
    uint8_t section;            /* type of the section that is being read */
    RamLoadBlock *last;         /* named by the last page record, for CONTINUE */
    RamLoadBlock *run_block;    /* where the next PAGE record continues a run, and how long that is already */
    uint64_t run_next;
    uint64_t run_length;
};

/* A word of the section, taken apart. */
typedef struct RamWord {
    uint32_t flag;              /* without CONTINUE */
    bool same_block;            /* CONTINUE */
    uint64_t arg;
} RamWord;

/* ---- life ---- */

RamLoad *ram_load_new(RamList *ram, const MigrationOptions *options)
{
    RamLoad *l = g_new0(RamLoad, 1);

    l->ram = ram;
    l->options = options;
    l->blocks = g_new0(RamLoadBlock, ram->count);
    RAMLIST_FOREACH(block, ram) {
        RamLoadBlock *b = &l->blocks[l->n_blocks++];
        b->block = block;
        b->ignored = options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] && block->shared;
        b->received = bitmap_new(ramblock_pages(block));
        b->patience = 1;
        b->holes_known = ram_holes_known(block) && ram_holes_may_write();
    }
    l->source = ram_source_stream_new(l);
    return l;
}

void ram_load_free(RamLoad *l)
{
    if (!l) {
        return;
    }
    l->source->ops->cleanup(l->source);
    for (unsigned i = 0; i < l->n_blocks; i++) {
        bitmap_free(l->blocks[i].received, ramblock_pages(l->blocks[i].block));
    }
    g_free(l->blocks);
    g_free(l);
}

void ram_load_set_source(RamLoad *l, RamSource *source)
{
    l->source->ops->cleanup(l->source);
    l->source = source;
}

RamList *ram_load_list(RamLoad *l)
{
    return l->ram;
}

const MigrationOptions *ram_load_options(RamLoad *l)
{
    return l->options;
}

/* ---- block list ---- */

static RamLoadBlock *find_block(RamLoad *l, const char *name)
{
    for (unsigned i = 0; i < l->n_blocks; i++) {
        if (!strcmp(l->blocks[i].block->idstr, name)) {
            return &l->blocks[i];
        }
    }
    return NULL;
}

/* Takes one entry; its length goes off *@left. */
static bool load_block_entry(RamLoad *l, StreamReader *r, uint64_t *left, GError **errp)
{
    char name[RAMBLOCK_IDSTR_MAX + 1];

    stream_get_counted_string(r, name);
    uint64_t length = stream_get_be64(r);
    if (!stream_reader_check(r, errp)) {
        return false;
    }
    if (++l->block_entries > MAX_BLOCK_ENTRIES) {
        return error_set_protocol(errp, "RAM block list has more than %d entries", MAX_BLOCK_ENTRIES);
    }
    RamLoadBlock *b = find_block(l, name);
    if (!b) {
        return error_set_protocol(errp, "Unknown ramblock \"%s\", cannot accept migration", name);
    }
    if (length != b->block->used_length) {
        return error_set_protocol(errp, "Size mismatch: %s: 0x%" PRIx64 " != 0x%" PRIx64 ": Invalid argument",
                                  name, length, b->block->used_length);
    }
    if (length > *left) {
        return error_set_protocol(errp,
                                  "RAM block list is longer than its total: %s has 0x%" PRIx64
                                  " bytes, 0x%" PRIx64 " are left",
                                  name, length, *left);
    }
    *left -= length;
    trace_ram_load_block(name, length);
    if (l->options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED]) {
        uint64_t gpa = stream_get_be64(r);
        if (stream_reader_ok(r) && b->ignored && gpa != b->block->gpa) {
            return error_set_protocol(errp,
                                      "Shared RAM block %s is at guest address 0x%" PRIx64
                                      " on the source, 0x%" PRIx64 " here",
                                      name, gpa, b->block->gpa);
        }
    }
    return stream_reader_check(r, errp) && l->source->ops->setup_block(l->source, r, b->block, errp);
}

static bool load_block_list(RamLoad *l, StreamReader *r, const RamWord *w, GError **errp)
{
    uint64_t left = w->arg;

    while (left) {
        if (!load_block_entry(l, r, &left, errp)) {
            return false;
        }
    }
    return true;
}

/* ---- pages ---- */

/* What every page record begins with: which page.  NULL if the record is refused. */
static RamLoadBlock *load_page_address(RamLoad *l, StreamReader *r, const RamWord *w, GError **errp)
{
    RamLoadBlock *b = l->last;

    if (!w->same_block) {
        char name[RAMBLOCK_IDSTR_MAX + 1];
        if (!stream_get_counted_string(r, name)) {
            stream_reader_check(r, errp);
            return NULL;
        }
        b = find_block(l, name);
        if (!b) {
            error_set_protocol(errp, "Page for unknown RAM block '%s'", name);
            return NULL;
        }
        l->last = b;
    }
    if (!b) {
        error_set_protocol(errp, "Page with flag CONTINUE (0x%x) before any block was named",
                           RAM_FLAG_CONTINUE);
        return NULL;
    }
    if (w->arg >= b->block->used_length) {
        error_set_protocol(errp, "Page offset 0x%" PRIx64 " is not in RAM block '%s' of 0x%" PRIx64 " bytes",
                           w->arg, b->block->idstr, b->block->used_length);
        return NULL;
    }
    if (b->ignored || b->block->readonly || l->source->ops->no_stream_pages) {
        error_set_protocol(errp, "Unexpected page at 0x%" PRIx64 " of RAM block '%s': %s", w->arg,
                           b->block->idstr,
                           b->ignored           ? "it is shared and ignored"
                           : b->block->readonly ? "it is read-only"
                                                : "pages travel another way");
        return NULL;
    }
    return b;
}

/*
 * How many pages from @page on, at most @max, do not exist yet: holes of a file that nobody but this thread,
 * with records, has filled since it was asked.
 */
static uint64_t fresh_pages(const RamLoad *l, RamLoadBlock *b, uint64_t page, uint64_t max)
{
    if (!b->holes_known || !l->source->ops->exclusive || bitmap_test(b->received, page)) {
        return 0;
    }
    if (page < b->hole_from || page >= b->hole_to) {
        if (page >= b->hole_from && page < b->ask_from) {
            return 0;
        }
        b->hole_from = page;
        b->hole_to = ram_hole_end(b->block, page);
        b->ask_from = page + b->patience;
        b->patience = b->hole_to > page ? 1 : MIN(2 * b->patience, RAM_HOLES_PATIENCE);
    }
    return bitmap_find_set(b->received, page, MIN(b->hole_to, page + max)) - page;
}

/* Makes @count pages zero; those that are already stay untouched, so that they cost no memory. */
static void zero_pages(RAMBlock *block, uint64_t page, uint64_t count)
{
    for (uint64_t i = page; i < page + count; i++) {
        ram_zero_page(block->host + (i << TARGET_PAGE_BITS));
    }
}

/* Makes @count pages zero that ZERO records are about. */
static void clear_pages(const RamLoad *l, RamLoadBlock *b, uint64_t page, uint64_t count)
{
    uint64_t end = page + count;

    while (page < end) {
        uint64_t fresh = fresh_pages(l, b, page, end - page);
        uint64_t n = fresh ? fresh : b->holes_known ? 1 : end - page;
        if (!fresh) {
            zero_pages(b->block, page, n);
        }
        page += n;
    }
}

/* How many ZERO records for the pages from @page on are in the buffer; takes them. */
static uint64_t take_zero_run(RamLoadBlock *b, StreamReader *r, uint64_t page)
{
    const uint8_t *data;
    size_t left = stream_buffered(r, &data);
    const size_t record = sizeof(uint64_t) + 1;
    uint64_t end = MIN(ramblock_pages(b->block), page + left / record);
    uint64_t next = page;

    while (next < end &&
           load_be64(data) == ((next << TARGET_PAGE_BITS) | RAM_FLAG_ZERO | RAM_FLAG_CONTINUE) && !data[8]) {
        data += record;
        next++;
    }
    stream_skip(r, (next - page) * record);
    return next - page;
}

static bool load_zero(RamLoad *l, StreamReader *r, const RamWord *w, GError **errp)
{
    RamLoadBlock *b = load_page_address(l, r, w, errp);
    if (!b) {
        return false;
    }
    uint8_t fill = stream_get_u8(r);
    if (!stream_reader_check(r, errp)) {
        return false;
    }
    if (fill) {
        return error_set_protocol(errp, "Zero page at 0x%" PRIx64 " of RAM block '%s' has fill byte 0x%02x",
                                  w->arg, b->block->idstr, fill);
    }
    uint64_t page = w->arg >> TARGET_PAGE_BITS;
    uint64_t count = 1 + take_zero_run(b, r, page + 1);
    clear_pages(l, b, page, count);
    bitmap_set(b->received, page, count);
    return true;
}

/* How many pages from @page on may be written to before their records have been seen, @page included. */
static uint64_t free_run(const RamLoad *l, const RamLoadBlock *b, uint64_t page)
{
    if (!l->source->ops->exclusive) {
        return 1;
    }
    uint64_t limit = MIN(page + MAX_RUN, ramblock_pages(b->block));
    return bitmap_find_set(b->received, page + 1, limit) - page;
}

/* How many whole bodies of PAGE records for @page and the next ones are in @data; sets up @iov. */
static unsigned find_bodies(const uint8_t *data, size_t len, uint64_t page, uint64_t max, struct iovec *iov)
{
    unsigned n = 0;

    do {
        iov[n] = (struct iovec){ (void *)(uintptr_t)(data + n * RECORD_SIZE), TARGET_PAGE_SIZE };
        n++;
    } while (n < max && n * RECORD_SIZE + TARGET_PAGE_SIZE <= len &&
             load_be64(data + n * RECORD_SIZE - sizeof(uint64_t)) ==
             ((page + n) << TARGET_PAGE_BITS | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE));
    return n;
}

/*
 * Pages that do not exist yet, of a file: they are written to the file.  That makes a page with its content
 * at once, where a write through the mapping would fault, clear the page and then fill it.
 */
static bool write_run(RamLoadBlock *b, StreamReader *r, uint64_t page, uint64_t max, GError **errp)
{
    struct iovec iov[MAX_WRITE];
    uint64_t offset = page << TARGET_PAGE_BITS;
    const uint8_t *body = stream_need(r, TARGET_PAGE_SIZE);

    if (!body) {
        return stream_reader_check(r, errp);
    }
    unsigned n = find_bodies(body, stream_buffered(r, &body), page, max, iov);
    int errnum = ram_holes_write(b->block, offset, iov, n);
    if (errnum == ENOSPC || errnum == EDQUOT) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum,
                        "Unable to write page 0x%" PRIx64 " of RAM block '%s'", offset, b->block->idstr);
        return false;
    }
    if (errnum) {
        /* A descriptor that does not let us write, say: through the mapping, then, now and later. */
        b->holes_known = false;
        for (unsigned i = 0; i < n; i++) {
            memcpy(b->block->host + offset + i * TARGET_PAGE_SIZE, body + i * RECORD_SIZE, TARGET_PAGE_SIZE);
        }
    }
    bitmap_set(b->received, page, n);
    return stream_skip(r, n * RECORD_SIZE - sizeof(uint64_t));
}

static bool load_page(RamLoad *l, StreamReader *r, const RamWord *w, GError **errp)
{
    RamLoadBlock *b = load_page_address(l, r, w, errp);
    if (!b) {
        return false;
    }
    uint64_t page = w->arg >> TARGET_PAGE_BITS;
    uint64_t fresh = fresh_pages(l, b, page, MAX_WRITE);
    if (fresh) {
        return write_run(b, r, page, fresh, errp);
    }
    if (l->run_block != b || l->run_next != page) {
        l->run_length = 0;
    }
    StreamRun run = {
        .dest = b->block->host + w->arg,
        .body = TARGET_PAGE_SIZE,
        .max = free_run(l, b, page),
        .streak = l->run_length,
        .word = w->arg | RAM_FLAG_PAGE | RAM_FLAG_CONTINUE,
    };
    uint64_t taken = stream_get_run(r, &run);
    if (!taken) {
        return stream_reader_check(r, errp);
    }
    bitmap_set(b->received, page, taken);
    if (run.touched > taken) {
        zero_pages(b->block, page + taken, run.touched - taken);
    }
    l->run_block = b;
    l->run_next = page + taken;
    l->run_length += taken;
    return true;
}

static bool load_xbzrle(RamLoad *l, StreamReader *r, const RamWord *w, GError **errp)
{
    uint8_t encoded[XBZRLE_MAX_ENCODED];

    RamLoadBlock *b = load_page_address(l, r, w, errp);
    if (!b) {
        return false;
    }
    uint8_t encoding = stream_get_u8(r);
    uint16_t length = stream_get_be16(r);
    if (!stream_reader_check(r, errp)) {
        return false;
    }
    if (encoding != RAM_XBZRLE_ENCODING) {
        return error_set_protocol(errp, "XBZRLE page has encoding %u, not %u", encoding, RAM_XBZRLE_ENCODING);
    }
    if (length > XBZRLE_MAX_ENCODED) {
        return error_set_protocol(errp, "XBZRLE page has %u bytes, more than %u", length, XBZRLE_MAX_ENCODED);
    }
    if (!stream_get(r, encoded, length)) {
        return stream_reader_check(r, errp);
    }
    bitmap_set(b->received, w->arg >> TARGET_PAGE_BITS, 1);
    return xbzrle_decode(encoded, length, b->block->host + w->arg, errp);
}

/* ---- words ---- */

static bool load_hook(RamLoad *l, StreamReader *r, const RamWord *w, GError **errp)
{
    return l->source->ops->hook_word(l->source, r, w->arg, errp);
}

static bool load_multifd_flush(RamLoad *l, StreamReader *r, const RamWord *w, GError **errp)
{
    return l->source->ops->flush_word(l->source, errp);
}

static const struct {
    uint32_t flag;
    bool (*load)(RamLoad *l, StreamReader *r, const RamWord *w, GError **errp);
} records[] = {
    { RAM_FLAG_PAGE, load_page },
    { RAM_FLAG_ZERO, load_zero },
    { RAM_FLAG_XBZRLE, load_xbzrle },
    { RAM_FLAG_MEM_SIZE, load_block_list },
    { RAM_FLAG_HOOK, load_hook },
    { RAM_FLAG_MULTIFD_FLUSH, load_multifd_flush },
};

static bool load_record(RamLoad *l, StreamReader *r, const RamWord *w, GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(records); i++) {
        if (records[i].flag == w->flag) {
            return records[i].load(l, r, w, errp);
        }
    }
    return error_set_protocol(errp, "Unknown combination of migration flags: 0x%x",
                              w->flag | (w->same_block ? RAM_FLAG_CONTINUE : 0));
}

bool ram_load_section(RamLoad *l, StreamReader *r, uint8_t type, GError **errp)
{
    if (fault_point("ram-load", errp)) {
        return false;
    }
    l->section = type;
    uint64_t start = stream_reader_total(r);
    for (;;) {
        uint64_t word = stream_get_be64(r);
        RamWord w = {
            .flag = word & RAM_FLAGS_MASK & ~(uint64_t)RAM_FLAG_CONTINUE,
            .same_block = word & RAM_FLAG_CONTINUE,
            .arg = word & ~RAM_FLAGS_MASK,
        };
        if (G_UNLIKELY(!stream_reader_ok(r))) {
            return stream_reader_check(r, errp);
        }
        if (w.flag == RAM_FLAG_EOS) {
            trace_ram_load_section(type, stream_reader_total(r) - start);
            return l->source->ops->section_end(l->source, type, errp);
        }
        if (!load_record(l, r, &w, errp)) {
            return false;
        }
    }
}

bool ram_load_complete(RamLoad *l, GError **errp)
{
    return l->source->ops->complete(l->source, errp);
}

/* ---- the main stream as source of pages: nothing to do beside what is above ---- */

typedef struct StreamSource {
    RamSource base;
    const RamLoad *load;
} StreamSource;

static bool source_setup_block(RamSource *s, StreamReader *r, RAMBlock *block, GError **errp)
{
    return true;
}

static bool source_section_end(RamSource *base, uint8_t type, GError **errp)
{
    return true;
}

/*
 * In the set-up section only a source with multifd sends it.  Its pages do not come this way: the migration
 * would complete without them.
 */
static bool source_flush_word(RamSource *base, GError **errp)
{
    StreamSource *s = (StreamSource *)base;

    return s->load->section != SECTION_START ||
           error_set_protocol(errp, "multifd is on at the source, but off here");
}

static bool source_hook_word(RamSource *s, StreamReader *r, uint64_t arg, GError **errp)
{
    return true;
}

static bool source_complete(RamSource *s, GError **errp)
{
    return true;
}

static void source_cleanup(RamSource *s)
{
    g_free(s);
}

static const RamSourceOps stream_source_ops = {
    .name = "stream",
    .exclusive = true,
    .setup_block = source_setup_block,
    .section_end = source_section_end,
    .flush_word = source_flush_word,
    .hook_word = source_hook_word,
    .complete = source_complete,
    .cleanup = source_cleanup,
};

RamSource *ram_source_stream_new(struct RamLoad *load)
{
    StreamSource *s = g_new0(StreamSource, 1);

    s->base.ops = &stream_source_ops;
    s->load = load;
    return &s->base;
}
