/* SPDX-License-Identifier: BSD-2-Clause */
/* godwit-image info: what is in the file. */
#include "image-tool.h"

#include <inttypes.h>
#include <stdio.h>

static void print_block(const ToolBlock *b)
{
    const MappedRamBlock *m = b->block;
    g_autofree char *size = size_text(m->used_length);
    g_autofree char *name = name_text(m->idstr);

    printf("  %-24s %10s %10" PRIu64 " %10" PRIu64 " %10" PRIu64, name, size, b->pages, b->data, b->zero);
    if (m->absent) {
        printf("  not in the file: shared");
    } else if (m->header_offset) {
        printf("  %#12" PRIx64 " %#12" PRIx64, m->bitmap_offset, m->pages_offset);
    }
    if (b->missing && !m->absent) {
        printf("  %" PRIu64 " unknown", b->missing);
    }
    putchar('\n');
}

static void print_blocks(const ToolImage *t)
{
    uint64_t data = 0, zero = 0;

    for (guint i = 0; i < t->image->blocks->len; i++) {
        data += t->blocks[i].data;
        zero += t->blocks[i].zero;
    }
    g_autofree char *total = size_text(t->image->total);
    g_autofree char *in_file = size_text(data * TARGET_PAGE_SIZE);
    printf("memory:       %s in %u blocks; pages with data %" PRIu64 " (%s), zero %" PRIu64 "\n", total,
           t->image->blocks->len, data, in_file, zero);
    if (t->image->xbzrle_pages) {
        printf("              and %" PRIu64 " XBZRLE deltas, which are not applied here\n",
               t->image->xbzrle_pages);
    }
    if (t->image->blocks->len) {
        printf("  %-24s %10s %10s %10s %10s%s\n", "block", "size", "pages", "data", "zero",
               t->image->mapped ? "     bitmap at     pages at" : "");
    }
    for (guint i = 0; i < t->image->blocks->len; i++) {
        print_block(&t->blocks[i]);
    }
}

static void print_sections(const ToolImage *t)
{
    const GArray *sections = t->image->sections;

    printf("sections:     %u\n", sections->len);
    if (sections->len) {
        printf("  %-40s %8s %7s %10s %12s\n", "name", "instance", "version", "bytes", "at");
    }
    for (guint i = 0; i < sections->len; i++) {
        const MappedRamSection *s = &g_array_index(sections, MappedRamSection, i);
        g_autofree char *name = name_text(s->idstr);
        printf("  %-40s %8u %7u %10" PRIu64 " %#12" PRIx64 "%s\n", name, s->instance_id, s->version,
               s->size, s->offset, s->ended ? "" : "  has no end");
    }
}

static void print_text(const ImageRequest *r, const ToolImage *t)
{
    const MappedRamImage *image = t->image;
    g_autofree char *shown = g_filename_display_name(r->file);
    g_autofree char *size = size_text(image->file_size);
    g_autofree char *allocated = size_text(t->allocated);

    printf("file:         %s: %s, of which %s are allocated\n", shown, size, allocated);
    printf("format:       %s%s%s, the stream begins at %#" PRIx64 "\n",
           image->mapped ? "mapped-ram" : "plain stream", image->ignore_shared ? ", x-ignore-shared" : "",
           image->has_configuration ? "" : ", no configuration", image->offset);
    g_autofree char *machine = name_text(image->machine);
    printf("machine:      %s\n", image->has_configuration ? machine : "not said");
    printf("state:        %s\n", t->error ? tool_verdict(t->error) : "complete");
    print_blocks(t);
    print_sections(t);
    if (image->description_size) {
        printf("description:  %" PRIu64 " bytes at %#" PRIx64 "\n", image->description_size,
               image->description_offset);
    } else {
        printf("description:  none\n");
    }
    if (image->complete && image->end < image->file_size) {
        printf("after the end: %" PRIu64 " bytes from %#" PRIx64 " on\n", image->file_size - image->end,
               image->end);
    }
}

static json_t *json_sections(const MappedRamImage *image)
{
    json_t *list = json_array();

    for (guint i = 0; i < image->sections->len; i++) {
        const MappedRamSection *s = &g_array_index(image->sections, MappedRamSection, i);
        g_autofree char *name = g_utf8_make_valid(s->idstr, -1);
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b}", "name", name, "id",
                                        (json_int_t)s->id, "instance", (json_int_t)s->instance_id, "version",
                                        (json_int_t)s->version, "offset", (json_int_t)s->offset, "bytes",
                                        (json_int_t)s->size, "ended", s->ended));
    }
    return list;
}

static json_t *to_json(const ImageRequest *r, const ToolImage *t)
{
    const MappedRamImage *image = t->image;
    json_t *object = json_head(r->file, t->error);
    json_t *blocks = json_array();
    g_autofree char *machine = g_utf8_make_valid(image->machine, -1);

    for (guint i = 0; i < image->blocks->len; i++) {
        json_array_append_new(blocks, json_block(&t->blocks[i]));
    }
    json_object_update_new(
        object,
        json_pack("{s:s, s:I, s:I, s:I, s:s*, s:b, s:b, s:I, s:I, s:o, s:o}", "format",
                  image->mapped ? "mapped-ram" : "stream", "size", (json_int_t)image->file_size, "allocated",
                  (json_int_t)t->allocated, "offset", (json_int_t)image->offset, "machine",
                  image->has_configuration ? machine : NULL, "ignore-shared", image->ignore_shared,
                  "complete", image->complete, "end", (json_int_t)image->end, "xbzrle-pages",
                  (json_int_t)image->xbzrle_pages, "blocks", blocks, "sections", json_sections(image)));
    if (image->description_size) {
        json_object_set_new(object, "description",
                            json_pack("{s:I, s:I}", "offset", (json_int_t)image->description_offset, "bytes",
                                      (json_int_t)image->description_size));
    }
    return object;
}

int command_info(const ImageRequest *r)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(ToolImage) t = tool_image_open(r->file, r->offset, &error);

    if (r->json) {
        print_json(t ? to_json(r, t) : json_head(r->file, error));
    } else if (t) {
        print_text(r, t);
    }
    const GError *trouble = t ? t->error : error;
    if (trouble) {
        report_error(r->file, trouble);
    }
    return tool_exit_status(trouble);
}
