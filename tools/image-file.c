/* SPDX-License-Identifier: BSD-2-Clause */
/* An opened file with its bitmaps, and the description of device state, which says how long sections are. */
#include "image-tool.h"

#include "io/transport.h"
#include "util/bitmap.h"
#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the description ---- */

/* Adds what @object's member @name says; false if it is no number that one can add. */
static bool add_number(uint64_t *sum, const json_t *object, const char *name, uint64_t times)
{
    const json_t *number = json_object_get(object, name);
    json_int_t value = json_integer_value(number);

    return json_is_integer(number) && value >= 0 && times <= INT32_MAX && value <= INT32_MAX &&
           !__builtin_add_overflow(*sum, (uint64_t)value * times, sum);
}

static bool add_fields(uint64_t *sum, const json_t *structure)
{
    size_t i;
    json_t *field, *subsection;

    json_array_foreach(json_object_get(structure, "fields"), i, field)
    {
        const json_t *length = json_object_get(field, "array_len");
        if ((length && !json_is_integer(length)) ||
            !add_number(sum, field, "size", length ? (uint64_t)json_integer_value(length) : 1)) {
            return false;
        }
    }
    json_array_foreach(json_object_get(structure, "subsections"), i, subsection)
    {
        const char *name = json_string_value(json_object_get(subsection, "vmsd_name"));
        /* Its mark, its counted name, its version. */
        if (!name || __builtin_add_overflow(*sum, 1 + 1 + strlen(name) + 4, sum) ||
            !add_fields(sum, subsection)) {
            return false;
        }
    }
    return true;
}

static char *device_key(const char *idstr, uint64_t instance_id)
{
    return g_strdup_printf("%s/%" PRIu64, idstr, instance_id);
}

/* {"name/instance": bytes} of the devices whose state is described well enough. */
static GHashTable *read_description(const MappedRamImage *image)
{
    uint64_t offset, size;
    size_t i;
    json_t *device;

    if (!mapped_ram_image_find_description(image, &offset, &size) || size > MAPPED_RAM_DESCRIPTION_MAX) {
        return NULL;
    }
    g_autofree char *text = g_malloc(size + 1);
    if (!channel_pread_all(image->file, text, size, (off_t)offset, NULL)) {
        return NULL;
    }
    g_autoptr(json_t) description = json_loadb(text, size, 0, NULL);
    if (!description) {
        return NULL;
    }
    GHashTable *sizes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    json_array_foreach(json_object_get(description, "devices"), i, device)
    {
        const char *name = json_string_value(json_object_get(device, "name"));
        const json_t *instance = json_object_get(device, "instance_id");
        uint64_t sum = 0;
        if (name && json_is_integer(instance) && add_fields(&sum, device)) {
            g_hash_table_replace(sizes, device_key(name, (uint64_t)json_integer_value(instance)),
                                 g_memdup2(&sum, sizeof(sum)));
        }
    }
    return sizes;
}

typedef struct Reading {
    GHashTable *sizes;
    Progress progress;
} Reading;

static bool section_size(void *opaque, const char *idstr, uint32_t instance_id, uint64_t *size)
{
    Reading *r = opaque;
    g_autofree char *key = device_key(idstr, instance_id);
    const uint64_t *known = r->sizes ? g_hash_table_lookup(r->sizes, key) : NULL;

    if (known) {
        *size = *known;
    }
    return known != NULL;
}

static void reading_progress(void *opaque, uint64_t position, uint64_t file_size)
{
    Reading *r = opaque;
    if (position > r->progress.done) {
        progress_add(&r->progress, position - r->progress.done);
    }
}

/* ---- opening ---- */

static MappedRamImage *read_image(Channel *file, uint64_t offset, GHashTable *sizes, GError **bad,
                                  GError **errp)
{
    g_autoptr(MappedRamImage) image = mapped_ram_image_new(file, offset, errp);
    Reading reading = { .sizes = sizes };

    if (!image) {
        return NULL;
    }
    progress_begin(&reading.progress, "reading ", image->file_size);
    image->keep_records = true;
    image->section_size = section_size;
    image->progress = reading_progress;
    image->opaque = &reading;
    mapped_ram_image_read(image, MAPPED_RAM_READ_ALL, bad);
    image->opaque = NULL;
    progress_end(&reading.progress);
    return g_steal_pointer(&image);
}

static void count_mapped(ToolBlock *b, const ToolImage *t, GError **bad)
{
    const MappedRamBlock *block = b->block;

    /* Of a file that was cut short the last block may not have been checked. */
    if (block->absent || !block->header_offset ||
        !mapped_ram_block_check_size(block, t->image->file_size, NULL)) {
        b->missing = b->pages;
        return;
    }
    b->bitmap = mapped_ram_block_read_bitmap(block, t->image->file, *bad ? NULL : bad);
    b->data = b->bitmap ? bitmap_count(b->bitmap, 0, b->pages) : 0;
    b->missing = b->bitmap ? 0 : b->pages;
    b->zero = b->pages - b->data - b->missing;
}

static void count_plain(ToolBlock *b)
{
    const GArray *records = b->block->records;

    for (guint i = 0; i < records->len; i++) {
        if (g_array_index(records, MappedRamRecord, i).offset) {
            b->data++;
        } else {
            b->zero++;
        }
    }
    b->missing = b->pages - records->len;
}

static void count_pages(ToolImage *t)
{
    t->blocks = g_new0(ToolBlock, t->image->blocks->len);
    for (guint i = 0; i < t->image->blocks->len; i++) {
        ToolBlock *b = &t->blocks[i];
        b->block = mapped_ram_image_block(t->image, i);
        b->pages = mapped_ram_block_pages(b->block);
        if (t->image->mapped) {
            count_mapped(b, t, &t->error);
        } else {
            count_plain(b);
        }
    }
}

static Channel *open_file(const char *path, uint64_t *allocated, GError **errp)
{
    struct stat st;
    g_autoptr(Channel) file = channel_file_open(path, O_RDONLY, 0, errp);

    if (!file) {
        return NULL;
    }
    if (stat(path, &st) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Could not look at '%s'", path);
        return NULL;
    }
    *allocated = (uint64_t)st.st_blocks * 512;
    return g_steal_pointer(&file);
}

ToolImage *tool_image_open(const char *path, uint64_t offset, GError **errp)
{
    uint64_t allocated;
    g_autoptr(Channel) file = open_file(path, &allocated, errp);
    g_autoptr(MappedRamImage) tail = file ? mapped_ram_image_new(file, offset, errp) : NULL;

    if (!tail) {
        return NULL;
    }
    g_autoptr(ToolImage) t = g_new0(ToolImage, 1);
    t->allocated = allocated;
    t->sizes = read_description(tail);
    t->description_used = t->sizes != NULL;
    t->image = read_image(file, offset, t->sizes, &t->error, errp);
    if (t->image && t->error && t->sizes) {
        /* It may be the description that is wrong, which a destination never reads. */
        g_autoptr(GError) again = NULL;
        MappedRamImage *image = read_image(file, offset, NULL, &again, errp);
        if (image && !again) {
            mapped_ram_image_free(t->image);
            t->image = g_steal_pointer(&image);
            g_clear_error(&t->error);
            t->description_used = false;
        }
        mapped_ram_image_free(image);
    }
    if (!t->image) {
        return NULL;
    }
    count_pages(t);
    return g_steal_pointer(&t);
}

void tool_image_free(ToolImage *t)
{
    if (!t) {
        return;
    }
    for (guint i = 0; t->blocks && i < t->image->blocks->len; i++) {
        if (t->blocks[i].bitmap) {
            bitmap_free(t->blocks[i].bitmap, t->blocks[i].pages);
        }
    }
    g_free(t->blocks);
    mapped_ram_image_free(t->image);
    g_clear_pointer(&t->sizes, g_hash_table_unref);
    g_clear_error(&t->error);
    g_free(t);
}

ToolBlock *tool_image_find(const ToolImage *t, const char *idstr)
{
    for (guint i = 0; i < t->image->blocks->len; i++) {
        if (strcmp(t->blocks[i].block->idstr, idstr) == 0) {
            return &t->blocks[i];
        }
    }
    return NULL;
}

/* ---- pages ---- */

static Run mapped_run(const ToolBlock *b, uint64_t first)
{
    Run run = { bitmap_test(b->bitmap, first) ? RUN_DATA : RUN_ZERO, first, 0, 0 };

    if (run.kind == RUN_DATA) {
        run.count = bitmap_find_clear(b->bitmap, first, b->pages) - first;
        run.offset = b->block->pages_offset + first * TARGET_PAGE_SIZE;
    } else {
        run.count = bitmap_find_set(b->bitmap, first, b->pages) - first;
    }
    return run;
}

/* The index of the first record of page @page or a later one. */
static guint find_record(const GArray *records, uint64_t page)
{
    guint low = 0, high = records->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;
        if (g_array_index(records, MappedRamRecord, middle).page < page) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static Run plain_run(const ToolBlock *b, uint64_t first)
{
    const GArray *records = b->block->records;
    guint i = find_record(records, first);
    const MappedRamRecord *r = i < records->len ? &g_array_index(records, MappedRamRecord, i) : NULL;

    if (!r || r->page != first) {
        return (Run){ RUN_MISSING, first, (r ? r->page : b->pages) - first, 0 };
    }
    Run run = { r->offset ? RUN_DATA : RUN_ZERO, first, 1, r->offset };
    while (run.kind == RUN_ZERO && ++i < records->len && r[run.count].page == first + run.count &&
           !r[run.count].offset) {
        run.count++;
    }
    return run;
}

bool tool_block_run(const ToolBlock *b, uint64_t first, Run *run)
{
    if (first >= b->pages) {
        return false;
    }
    if (b->bitmap) {
        *run = mapped_run(b, first);
    } else if (b->block->records && !b->block->header_offset) {
        *run = plain_run(b, first);
    } else {
        *run = (Run){ RUN_MISSING, first, b->pages - first, 0 };
    }
    return true;
}

bool tool_image_pread(const ToolImage *t, void *buf, size_t len, uint64_t offset, GError **errp)
{
    if (channel_pread_all(t->image->file, buf, len, (off_t)offset, errp)) {
        return true;
    }
    g_prefix_error(errp, "%zu bytes at 0x%" PRIx64 ": ", len, offset);
    return false;
}
