/* SPDX-License-Identifier: BSD-2-Clause */
/* A saved guest's file from its first byte to its description: mapped-ram, and plain streams too. */

/*
 * A cursor reads the stream's bytes.  Each block of mapped-ram makes it jump over the block's bitmap and
 * pages; what lies between two jumps, the bitmaps and the page areas are all "areas", and no two areas may
 * share a byte.
 */
#include "migration/mapped-ram-image.h"

#include "migration/configuration.h"
#include "migration/file-cursor.h"
#include "migration/ram-wire.h"
#include "migration/stream-format.h"
#include "util/error.h"

#include <inttypes.h>
#include <string.h>

#define MAPPED_RAM       "mapped-ram"
#define IGNORE_SHARED    "x-ignore-shared"
#define DESCRIPTION_TAIL (10u << 20) /* how far from its end a file is searched for a description */
#define FOOTER_SIZE      5

/* Bytes of the file that belong to one thing. */
typedef struct Area {
    uint64_t start, end;
    const char *what;
    int block; /* index, or -1 */
} Area;

typedef struct Walk {
    MappedRamImage *image;
    GArray *areas; /* of Area */
    FileCursor c;
    uint64_t piece_start; /* the stream's bytes since the last jump begin here */
    uint64_t left;        /* bytes of blocks still to be announced */
    bool ram_seen, ram_ended;
    MappedRamBlock *last_block; /* of page records */
} Walk;

#define bad(w, fmt, ...)     cursor_refuse(&(w)->c, GODWIT_ERROR_PROTOCOL, fmt, ##__VA_ARGS__)
#define cut_off(w, fmt, ...) cursor_refuse(&(w)->c, GODWIT_ERROR_EOF, fmt, ##__VA_ARGS__)

/* ---- areas ---- */

static char *area_text(const Walk *w, const Area *a)
{
    g_autofree char *of =
        a->block < 0
            ? g_strdup("")
            : g_strdup_printf(" of '%s'", mapped_ram_image_block(w->image, (unsigned)a->block)->idstr);
    return g_strdup_printf("%s%s, 0x%" PRIx64 "..0x%" PRIx64 ",", a->what, of, a->start, a->end);
}

static bool add_area(Walk *w, uint64_t start, uint64_t end, const char *what, int block)
{
    Area new = { start, end, what, block };

    for (guint i = 0; i < w->areas->len && !w->c.error; i++) {
        const Area *old = &g_array_index(w->areas, Area, i);
        if (start < old->end && old->start < end) {
            g_autofree char *text = area_text(w, &new), *old_text = area_text(w, old);
            return bad(w, "%s and %s overlap", text, old_text);
        }
    }
    if (start < end) {
        g_array_append_val(w->areas, new);
    }
    return !w->c.error;
}

/* The stream goes on elsewhere. */
static bool jump(Walk *w, uint64_t to)
{
    if (!add_area(w, w->piece_start, w->c.position, "the stream", -1)) {
        return false;
    }
    w->c.position = w->piece_start = to;
    return true;
}

/* ---- head ---- */

static bool read_head(Walk *w)
{
    uint64_t at = w->c.position;
    uint32_t magic = cursor_be32(&w->c, "the stream's magic");
    uint32_t version = cursor_be32(&w->c, "the stream's version");

    if (w->c.error) {
        return false;
    }
    if (magic != STREAM_MAGIC) {
        return bad(w, "the magic at 0x%" PRIx64 " is %08x, expected %08x: no migration stream begins here",
                   at, magic, STREAM_MAGIC);
    }
    return version == STREAM_VERSION || bad(w, "the stream's version at 0x%" PRIx64 " is %u, expected %d",
                                            at + 4, version, STREAM_VERSION);
}

static bool read_capabilities(Walk *w)
{
    uint64_t at = w->c.position;
    uint32_t count = cursor_be32(&w->c, "the number of capabilities");

    if (count > CONFIGURATION_CAPABILITIES_MAX) {
        return bad(w, "%u capabilities are announced at 0x%" PRIx64 ", at most %d are possible", count, at,
                   CONFIGURATION_CAPABILITIES_MAX);
    }
    for (uint32_t i = 0; i < count && !w->c.error; i++) {
        char name[256];
        at = w->c.position;
        cursor_string(&w->c, name, "a capability's name");
        if (strcmp(name, MAPPED_RAM) == 0) {
            w->image->mapped = true;
        } else if (strcmp(name, IGNORE_SHARED) == 0) {
            w->image->ignore_shared = true;
        } else {
            bad(w, "unknown capability '%s' at 0x%" PRIx64, name, at);
        }
    }
    return !w->c.error;
}

static bool read_page_bits(Walk *w)
{
    uint64_t at = w->c.position;
    uint32_t bits = cursor_be32(&w->c, "target-page-bits");

    return bits == TARGET_PAGE_BITS ||
           bad(w, "target-page-bits at 0x%" PRIx64 " is %u, expected %d", at, bits, TARGET_PAGE_BITS);
}

static bool read_uuid(Walk *w)
{
    return cursor_skip(&w->c, 16, "the uuid");
}

static const struct {
    const char *name;
    bool (*read)(Walk *w);
} subsections[] = {
    { "configuration/capabilities", read_capabilities },
    { "configuration/target-page-bits", read_page_bits },
    { "configuration/uuid", read_uuid },
};

static bool read_subsection(Walk *w)
{
    char name[256];
    uint64_t at = w->c.position;

    cursor_string(&w->c, name, "a subsection's name");
    uint32_t version = cursor_be32(&w->c, "a subsection's version");
    if (!w->c.error && version != 1) {
        return bad(w, "subsection '%s' at 0x%" PRIx64 " has version %u, expected 1", name, at, version);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(subsections) && !w->c.error; i++) {
        if (strcmp(subsections[i].name, name) == 0) {
            return subsections[i].read(w);
        }
    }
    return bad(w, "unknown subsection '%s' at 0x%" PRIx64, name, at);
}

static bool next_is(Walk *w, uint8_t byte)
{
    const uint8_t *p = cursor_look(&w->c, 1);
    return p && *p == byte;
}

/* Machines may be told not to send it. */
static bool read_configuration(Walk *w)
{
    if (!next_is(w, SECTION_CONFIGURATION)) {
        return !w->c.error;
    }
    w->c.position++;
    uint64_t at = w->c.position;
    uint32_t len = cursor_be32(&w->c, "the length of the machine's name");
    if (len > CONFIGURATION_NAME_MAX) {
        return bad(w, "the length of the machine's name at 0x%" PRIx64 ", %u, is above %d", at, len,
                   CONFIGURATION_NAME_MAX);
    }
    const uint8_t *name = cursor_take(&w->c, len, "the machine's name");
    if (!name) {
        return false;
    }
    memcpy(w->image->machine, name, len);
    w->image->has_configuration = true;
    while (next_is(w, SECTION_SUBSECTION)) {
        w->c.position++;
        if (!read_subsection(w)) {
            return false;
        }
    }
    return !w->c.error;
}

/* ---- the list of blocks ---- */

static MappedRamBlock *find_block(Walk *w, const char *idstr)
{
    for (guint i = 0; i < w->image->blocks->len; i++) {
        MappedRamBlock *b = mapped_ram_image_block(w->image, i);
        if (strcmp(b->idstr, idstr) == 0) {
            return b;
        }
    }
    return NULL;
}

static bool check_entry(Walk *w, const MappedRamBlock *b)
{
    if (w->c.error) {
        return false;
    }
    if (find_block(w, b->idstr)) {
        return bad(w, "block '%s' is listed a second time at 0x%" PRIx64, b->idstr, b->entry_offset);
    }
    if (!b->used_length || b->used_length % TARGET_PAGE_SIZE) {
        return bad(w, "block '%s' at 0x%" PRIx64 ": the length 0x%" PRIx64 " is no multiple of %u", b->idstr,
                   b->entry_offset, b->used_length, TARGET_PAGE_SIZE);
    }
    if (b->used_length > w->left) {
        return bad(w,
                   "block '%s' at 0x%" PRIx64 ": the length 0x%" PRIx64 " is above the 0x%" PRIx64
                   " bytes that are left of the announced 0x%" PRIx64,
                   b->idstr, b->entry_offset, b->used_length, w->left, w->image->total);
    }
    return w->image->blocks->len < MAPPED_RAM_BLOCKS_MAX ||
           bad(w, "more than %d blocks at 0x%" PRIx64, MAPPED_RAM_BLOCKS_MAX, b->entry_offset);
}

/* What follows a block's entry in mapped-ram; the stream goes on behind the pages. */
static bool read_mapped_header(Walk *w, MappedRamBlock *b, int index)
{
    MappedRamHeaderWire wire;

    b->header_offset = w->c.position;
    const uint8_t *p = cursor_take(&w->c, sizeof(wire), "a block's mapped-ram header");
    if (p) {
        memcpy(&wire, p, sizeof(wire));
    }
    if (!p || !mapped_ram_header_decode(&wire, w->image->ignore_shared, b, &w->c.error)) {
        b->header_offset = 0;
        return false;
    }
    if (b->absent) {
        return true;
    }
    uint64_t pages_end = b->pages_offset + b->used_length;
    return mapped_ram_block_check_size(b, w->image->file_size, &w->c.error) &&
           add_area(w, b->bitmap_offset, b->bitmap_offset + mapped_ram_bitmap_size(b->used_length),
                    "the bitmap", index) &&
           add_area(w, b->pages_offset, pages_end, "the pages", index) && jump(w, pages_end);
}

static bool read_block(Walk *w)
{
    MappedRamBlock new = { .entry_offset = w->c.position };

    cursor_string(&w->c, new.idstr, "a block's name");
    new.used_length = cursor_be64(&w->c, "a block's length");
    if (w->image->ignore_shared) {
        new.gpa = cursor_be64(&w->c, "a block's guest address");
    }
    if (!check_entry(w, &new)) {
        return false;
    }
    if (w->image->keep_records) {
        new.records = g_array_new(FALSE, FALSE, sizeof(MappedRamRecord));
    }
    g_array_append_val(w->image->blocks, new);
    w->left -= new.used_length;
    unsigned index = w->image->blocks->len - 1;
    return !w->image->mapped || read_mapped_header(w, mapped_ram_image_block(w->image, index), (int)index);
}

static bool read_blocks(Walk *w, uint64_t total, uint64_t at)
{
    if (w->ram_seen) {
        return bad(w, "a second list of blocks at 0x%" PRIx64, at);
    }
    if (total > MAPPED_RAM_LENGTH_MAX) {
        return bad(w,
                   "the blocks' lengths at 0x%" PRIx64 " add up to 0x%" PRIx64 ", at most 0x%llx is possible",
                   at, total, MAPPED_RAM_LENGTH_MAX);
    }
    w->ram_seen = true;
    w->image->total = w->left = total;
    while (w->left && read_block(w)) {
        continue;
    }
    return !w->c.error;
}

/* ---- page records of plain streams ---- */

static MappedRamBlock *page_block(Walk *w, uint64_t word, uint64_t at)
{
    char name[256];

    if (!(word & RAM_FLAG_CONTINUE)) {
        if (!cursor_string(&w->c, name, "a page's block")) {
            return NULL;
        }
        w->last_block = find_block(w, name);
        if (!w->last_block) {
            bad(w, "page of unknown block '%s' at 0x%" PRIx64, name, at);
        }
    } else if (!w->last_block) {
        bad(w, "page of the same block at 0x%" PRIx64 ", but none was named before", at);
    }
    return w->last_block;
}

static bool read_delta(Walk *w)
{
    uint64_t at = w->c.position;
    uint8_t encoding = cursor_u8(&w->c, "an XBZRLE page's encoding");
    uint16_t len = cursor_be16(&w->c, "an XBZRLE page's length");

    if (!w->c.error && (encoding != RAM_XBZRLE_ENCODING || len > TARGET_PAGE_SIZE)) {
        return bad(w, "XBZRLE page at 0x%" PRIx64 " with encoding %u and %u bytes", at, encoding, len);
    }
    w->image->xbzrle_pages++;
    return cursor_skip(&w->c, len, "an XBZRLE page");
}

static bool read_zero(Walk *w)
{
    uint64_t at = w->c.position;
    uint8_t fill = cursor_u8(&w->c, "a zero page's fill byte");

    return !fill || bad(w, "the fill byte of a zero page at 0x%" PRIx64 " is 0x%02x", at, fill);
}

static bool read_page(Walk *w, uint64_t word, uint64_t at)
{
    uint64_t offset = word & ~RAM_FLAGS_MASK;
    MappedRamBlock *b = page_block(w, word, at);
    MappedRamRecord record = { offset >> TARGET_PAGE_BITS, 0 };

    if (!b) {
        return false;
    }
    if (w->image->mapped) {
        return bad(w, "a page record of block '%s' at 0x%" PRIx64 " in a mapped-ram file", b->idstr, at);
    }
    if (offset >= b->used_length) {
        return bad(w, "page 0x%" PRIx64 " at 0x%" PRIx64 " is outside block '%s' of 0x%" PRIx64 " bytes",
                   offset, at, b->idstr, b->used_length);
    }
    if (word & RAM_FLAG_XBZRLE) {
        return read_delta(w);
    }
    record.offset = word & RAM_FLAG_PAGE ? w->c.position : 0;
    if (b->records && !w->c.error) {
        g_array_append_val(b->records, record);
    }
    return word & RAM_FLAG_PAGE ? cursor_skip(&w->c, TARGET_PAGE_SIZE, "a page") : read_zero(w);
}

/* ---- the ram section ---- */

static bool read_end_of_payload(Walk *w, uint64_t at)
{
    /* Words of zero are what a file is made of where nothing was written. */
    return cut_off(w, "the end of the list of blocks at 0x%" PRIx64 " was never written", at);
}

static bool read_ram(Walk *w)
{
    while (!w->c.error) {
        uint64_t at = w->c.position;
        uint64_t word = cursor_be64(&w->c, "a word of the ram section");
        if (w->c.error) {
            return false;
        }
        switch (word & RAM_FLAGS_MASK & ~(uint64_t)RAM_FLAG_CONTINUE) {
        case RAM_FLAG_EOS:
            return true;
        case RAM_FLAG_MEM_SIZE:
            read_blocks(w, word & ~RAM_FLAGS_MASK, at);
            break;
        case RAM_FLAG_ZERO:
        case RAM_FLAG_PAGE:
        case RAM_FLAG_XBZRLE:
            read_page(w, word, at);
            break;
        case RAM_FLAG_HOOK:
        case RAM_FLAG_MULTIFD_FLUSH:
            break;
        default:
            return word == 0 && w->image->mapped
                       ? read_end_of_payload(w, at)
                       : bad(w, "unknown flags 0x%03" PRIx64 " in the ram section's word at 0x%" PRIx64,
                             word & RAM_FLAGS_MASK, at);
        }
    }
    return false;
}

/* ---- sections ---- */

static MappedRamSection *find_section(Walk *w, uint32_t id)
{
    for (guint i = 0; i < w->image->sections->len; i++) {
        MappedRamSection *s = &g_array_index(w->image->sections, MappedRamSection, i);
        if (s->id == id) {
            return s;
        }
    }
    return NULL;
}

/* Could an element begin with this byte? */
static bool is_element(uint8_t type)
{
    return type <= SECTION_FULL || type == SECTION_COMMAND;
}

/* Moves to the section's footer when nobody knows how long it is. */
static bool search_footer(Walk *w, uint32_t id)
{
    uint8_t footer[FOOTER_SIZE] = { SECTION_FOOTER };
    uint64_t start = w->c.position;

    store_be32(footer + 1, id);
    while (!w->c.error) {
        uint64_t left = w->image->file_size - w->c.position;
        size_t len = MIN(FILE_CURSOR_WINDOW, left);
        const uint8_t *p = cursor_look(&w->c, len), *found = p;
        while (found && (found = memmem(found, len - (size_t)(found - p), footer, FOOTER_SIZE)) != NULL) {
            size_t end = (size_t)(found - p) + FOOTER_SIZE;
            if (end == left || (end < len && is_element(found[FOOTER_SIZE]))) {
                w->c.position += end - FOOTER_SIZE;
                return true;
            }
            found++;
        }
        if (len == left) {
            break;
        }
        w->c.position += len - FOOTER_SIZE;
    }
    return cut_off(w, "section %u at 0x%" PRIx64 " has no footer", id, start);
}

static bool read_footer(Walk *w, const MappedRamSection *s)
{
    uint64_t at = w->c.position;
    uint8_t mark = cursor_u8(&w->c, "a section's footer");
    uint32_t id = cursor_be32(&w->c, "a section's footer");

    if (w->c.error || (mark == SECTION_FOOTER && id == s->id)) {
        return !w->c.error;
    }
    if (!mark && !id) {
        return cut_off(w, "the footer of section '%s' at 0x%" PRIx64 " was never written", s->idstr, at);
    }
    return bad(w,
               "the footer of section '%s' at 0x%" PRIx64 " is 0x%02x and id %u, expected 0x%02x and id %u",
               s->idstr, at, mark, id, SECTION_FOOTER, s->id);
}

static bool read_payload(Walk *w, MappedRamSection *s, SectionType type)
{
    MappedRamImage *image = w->image;
    uint64_t start = w->c.position, size;
    bool is_ram = strcmp(s->idstr, RAM_SECTION_NAME) == 0;

    if (is_ram) {
        if (s->instance_id) {
            return bad(w, "the ram section at 0x%" PRIx64 " is of instance %u, there is only 0", start,
                       s->instance_id);
        }
        if (s->version != RAM_SECTION_VERSION) {
            return cursor_refuse(&w->c, GODWIT_ERROR_UNSUPPORTED,
                                 "the ram section at 0x%" PRIx64 " has version %u, only %d "
                                 "is known",
                                 start, s->version, RAM_SECTION_VERSION);
        }
        read_ram(w);
    } else if (image->section_size && image->section_size(image->opaque, s->idstr, s->instance_id, &size)) {
        cursor_skip(&w->c, size, s->idstr);
    } else {
        search_footer(w, s->id);
    }
    /* After a jump what came before it is left out. */
    s->size += w->c.position - MIN(MAX(start, w->piece_start), w->c.position);
    s->payloads++;
    if (!read_footer(w, s)) {
        return false;
    }
    s->ended = type == SECTION_END || type == SECTION_FULL;
    w->ram_ended |= is_ram && s->ended;
    return true;
}

static bool read_announced(Walk *w, SectionType type)
{
    MappedRamSection new = { 0 };
    uint64_t at = w->c.position;

    new.id = cursor_be32(&w->c, "a section's id");
    cursor_string(&w->c, new.idstr, "a section's name");
    new.instance_id = cursor_be32(&w->c, "a section's instance");
    new.version = cursor_be32(&w->c, "a section's version");
    new.offset = w->c.position;
    if (w->c.error) {
        return false;
    }
    if (find_section(w, new.id)) {
        return bad(w, "section id %u at 0x%" PRIx64 " is announced a second time", new.id, at);
    }
    if (w->image->sections->len == MAPPED_RAM_SECTIONS_MAX) {
        return bad(w, "more than %d sections at 0x%" PRIx64, MAPPED_RAM_SECTIONS_MAX, at);
    }
    g_array_append_val(w->image->sections, new);
    return read_payload(w, &g_array_index(w->image->sections, MappedRamSection, w->image->sections->len - 1),
                        type);
}

static bool read_continued(Walk *w, SectionType type)
{
    uint64_t at = w->c.position;
    uint32_t id = cursor_be32(&w->c, "a section's id");
    MappedRamSection *s = w->c.error ? NULL : find_section(w, id);

    if (!s) {
        return bad(w, "section id %u at 0x%" PRIx64 " was never announced", id, at);
    }
    return read_payload(w, s, type);
}

/* A file has no postcopy and no packages; a recorded connection has the first commands. */
static bool read_command(Walk *w)
{
    uint64_t at = w->c.position;
    uint16_t command = cursor_be16(&w->c, "a command");
    uint16_t len = cursor_be16(&w->c, "a command's length");

    if (w->c.error) {
        return false;
    }
    if (command == COMMAND_INVALID || command >= COMMAND__MAX) {
        return bad(w, "unknown command %u at 0x%" PRIx64, command, at);
    }
    if (command != COMMAND_OPEN_RETURN_PATH && command != COMMAND_PING &&
        command != COMMAND_POSTCOPY_ADVISE && command != COMMAND_SWITCHOVER_START) {
        return cursor_refuse(&w->c, GODWIT_ERROR_UNSUPPORTED,
                             "command %u at 0x%" PRIx64 " does not belong in a file", command, at);
    }
    return cursor_skip(&w->c, len, "a command's payload");
}

static bool read_element(Walk *w, SectionType type, uint64_t at)
{
    switch (type) {
    case SECTION_START:
    case SECTION_FULL:
        return read_announced(w, type);
    case SECTION_PART:
    case SECTION_END:
        return read_continued(w, type);
    case SECTION_COMMAND:
        return read_command(w);
    default:
        return bad(w, "unknown section type 0x%02x at 0x%" PRIx64, type, at);
    }
}

/* ---- the end ---- */

/* Nobody needs it, and machines may be told not to send it. */
static bool read_description(Walk *w)
{
    if (!next_is(w, SECTION_VMDESCRIPTION)) {
        return !w->c.error;
    }
    uint64_t at = w->c.position++;
    uint32_t size = cursor_be32(&w->c, "the description's length");
    if (size > MAPPED_RAM_DESCRIPTION_MAX) {
        return bad(w, "the description at 0x%" PRIx64 " has %u bytes, at most %u are possible", at, size,
                   MAPPED_RAM_DESCRIPTION_MAX);
    }
    uint64_t text = w->c.position;
    if (!cursor_skip(&w->c, size, "the description")) {
        return false;
    }
    w->image->description_offset = text;
    w->image->description_size = size;
    return true;
}

static bool read_elements(Walk *w, MappedRamReadUntil until)
{
    while (!w->c.error) {
        if ((until == MAPPED_RAM_READ_SETUP && w->ram_seen) ||
            (until == MAPPED_RAM_READ_RAM && w->ram_ended)) {
            return true;
        }
        uint64_t at = w->c.position;
        uint8_t type = cursor_u8(&w->c, "the next section");
        if (w->c.error) {
            return false;
        }
        if (type != SECTION_EOF) {
            read_element(w, (SectionType)type, at);
        } else if (w->image->mapped && !w->ram_ended) {
            return cut_off(w,
                           "the stream ends at 0x%" PRIx64 " before the ram section does: its bitmaps were "
                           "never written",
                           at);
        } else if (!w->ram_seen) {
            return bad(w, "the stream ends at 0x%" PRIx64 " without a ram section", at);
        } else {
            w->image->complete = read_description(w);
            return w->image->complete;
        }
    }
    return false;
}

static int compare_records(const void *a, const void *b)
{
    uint64_t left = ((const MappedRamRecord *)a)->page, right = ((const MappedRamRecord *)b)->page;
    return left < right ? -1 : left > right;
}

/* A page that came several times is there once afterwards, as it came last; in the order of pages. */
static void settle_records(GArray *records)
{
    guint kept = 0;

    g_array_sort(records, compare_records); /* a stable sort */
    for (guint i = 0; i < records->len; i++) {
        MappedRamRecord *r = &g_array_index(records, MappedRamRecord, i);
        MappedRamRecord *last = kept ? &g_array_index(records, MappedRamRecord, kept - 1) : NULL;
        if (!last || last->page != r->page) {
            last = &g_array_index(records, MappedRamRecord, kept++);
        }
        *last = *r;
    }
    g_array_set_size(records, kept);
}

bool mapped_ram_image_read(MappedRamImage *image, MappedRamReadUntil until, GError **errp)
{
    Walk w = {
        .image = image,
        .areas = g_array_new(FALSE, FALSE, sizeof(Area)),
        .piece_start = image->offset,
    };

    file_cursor_init(&w.c, image->file, image->file_size, image->offset);
    w.c.progress = image->progress;
    w.c.opaque = image->opaque;

    if (read_head(&w) && read_configuration(&w) && read_elements(&w, until)) {
        add_area(&w, w.piece_start, w.c.position, "the stream", -1);
    }
    image->end = w.c.position;
    image->complete = image->complete && !w.c.error;
    for (guint i = 0; i < image->blocks->len; i++) {
        MappedRamBlock *b = mapped_ram_image_block(image, i);
        if (b->records) {
            settle_records(b->records);
        }
    }
    bool ok = !w.c.error;
    if (!ok) {
        g_propagate_error(errp, g_steal_pointer(&w.c.error));
    }
    file_cursor_clear(&w.c);
    g_array_unref(w.areas);
    return ok;
}

/* ---- around it ---- */

static void clear_block(void *block)
{
    MappedRamBlock *b = block;
    g_clear_pointer(&b->records, g_array_unref);
}

MappedRamImage *mapped_ram_image_new(Channel *file, uint64_t offset, GError **errp)
{
    if (!channel_has_feature(file, CHANNEL_FEATURE_SEEKABLE)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "this is no file that one can seek in");
        return NULL;
    }
    off_t here = channel_seek(file, 0, SEEK_CUR, errp);
    off_t size = here < 0 ? -1 : channel_seek(file, 0, SEEK_END, errp);
    if (size < 0 || channel_seek(file, here, SEEK_SET, errp) < 0) {
        return NULL;
    }
    if (offset >= (uint64_t)size) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_EOF,
                    "the file has %" PRId64 " bytes: nothing is at 0x%" PRIx64, (int64_t)size, offset);
        return NULL;
    }
    MappedRamImage *image = g_new0(MappedRamImage, 1);
    image->file = channel_ref(file);
    image->offset = offset;
    image->file_size = (uint64_t)size;
    image->blocks = g_array_new(FALSE, FALSE, sizeof(MappedRamBlock));
    g_array_set_clear_func(image->blocks, clear_block);
    image->sections = g_array_new(FALSE, FALSE, sizeof(MappedRamSection));
    return image;
}

void mapped_ram_image_free(MappedRamImage *image)
{
    if (image) {
        channel_unref(image->file);
        g_array_unref(image->blocks);
        g_array_unref(image->sections);
        g_free(image);
    }
}

bool mapped_ram_image_match(const MappedRamImage *image, const RamList *ram, GError **errp)
{
    for (guint i = 0; i < image->blocks->len; i++) {
        const MappedRamBlock *b = mapped_ram_image_block(image, i);
        const RAMBlock *ours = ram_list_find(ram, b->idstr);
        if (!ours) {
            return error_set_protocol(errp,
                                      "Unknown ramblock \"%s\" (at 0x%" PRIx64 "), cannot accept migration",
                                      b->idstr, b->entry_offset);
        }
        if (ours->used_length != b->used_length) {
            return error_set_protocol(errp,
                                      "Size mismatch: block '%s' has 0x%" PRIx64
                                      " bytes in the file (at 0x%" PRIx64 ") and 0x%" PRIx64 " here",
                                      b->idstr, b->used_length, b->entry_offset, ours->used_length);
        }
    }
    return true;
}

/* The first brace behind the last NUL: the length word before it has one, the text has none. */
bool mapped_ram_image_find_description(const MappedRamImage *image, uint64_t *offset, uint64_t *size)
{
    uint64_t len = MIN(DESCRIPTION_TAIL, image->file_size - image->offset);
    uint64_t start = image->file_size - len;
    g_autofree uint8_t *tail = g_malloc(len);

    if (!channel_pread_all(image->file, tail, len, (off_t)start, NULL)) {
        return false;
    }
    const uint8_t *nul = memrchr(tail, '\0', len);
    const uint8_t *brace = nul ? memchr(nul, '{', len - (size_t)(nul - tail)) : NULL;
    if (!brace || brace - tail < 5 || brace[-5] != SECTION_VMDESCRIPTION ||
        load_be32(brace - 4) != len - (size_t)(brace - tail)) {
        return false;
    }
    *offset = start + (uint64_t)(brace - tail);
    *size = load_be32(brace - 4);
    return true;
}
