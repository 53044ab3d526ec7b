/* SPDX-License-Identifier: BSD-2-Clause */
/* godwit-image diff: the pages in which two saved guests differ. */
#include "image-tool.h"

#include "util/buffer-is-zero.h"
#include "util/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_PAGES  256
#define RANGES_SHOWN 16

static const uint8_t zero_page[TARGET_PAGE_SIZE];

/* What was found for one name. */
typedef struct BlockDifference {
    const ToolBlock *a, *b; /* NULL: the file has no such block */
    uint64_t pages;         /* that differ */
    GArray *ranges;         /* of pairs: first page, count */
} BlockDifference;

static void add_page(BlockDifference *d, uint64_t page)
{
    guint len = d->ranges->len;

    d->pages++;
    if (len &&
        g_array_index(d->ranges, uint64_t, len - 2) + g_array_index(d->ranges, uint64_t, len - 1) == page) {
        g_array_index(d->ranges, uint64_t, len - 1)++;
        return;
    }
    uint64_t range[2] = { page, 1 };
    g_array_append_vals(d->ranges, range, 2);
}

/* The pages of a part of a run, or NULL: they are all zero. */
static const uint8_t *load(const ToolImage *t, const Run *run, uint64_t page, uint64_t count, uint8_t *buf,
                           bool *ok, GError **errp)
{
    if (run->kind == RUN_ZERO) {
        return NULL;
    }
    *ok = *ok && tool_image_pread(t, buf, count * TARGET_PAGE_SIZE,
                                  run->offset + (page - run->first) * TARGET_PAGE_SIZE, errp);
    return buf;
}

static bool compare_part(const ToolImage *const t[2], const Run run[2], uint64_t page, uint64_t count,
                         BlockDifference *d, GError **errp)
{
    static uint8_t buf[2][CHUNK_PAGES * TARGET_PAGE_SIZE];
    bool ok = true;
    const uint8_t *a = load(t[0], &run[0], page, count, buf[0], &ok, errp);
    const uint8_t *b = load(t[1], &run[1], page, count, buf[1], &ok, errp);

    for (uint64_t i = 0; ok && (a || b) && i < count; i++) {
        const uint8_t *left = a ? a + i * TARGET_PAGE_SIZE : zero_page;
        const uint8_t *right = b ? b + i * TARGET_PAGE_SIZE : zero_page;
        if (memcmp(left, right, TARGET_PAGE_SIZE) != 0) {
            add_page(d, page + i);
        }
    }
    return ok;
}

/* Both have all their pages, and as many. */
static bool compare_block(const ToolImage *const t[2], BlockDifference *d, Progress *progress, GError **errp)
{
    uint64_t page = 0;
    Run run[2];

    while (tool_block_run(d->a, page, &run[0]) && tool_block_run(d->b, page, &run[1])) {
        uint64_t count = MIN(run[0].count, run[1].count);
        if (run[0].kind == RUN_DATA || run[1].kind == RUN_DATA) {
            count = MIN(count, CHUNK_PAGES);
        }
        if (!compare_part(t, run, page, count, d, errp)) {
            return false;
        }
        page += count;
        progress_add(progress, count * TARGET_PAGE_SIZE);
    }
    return true;
}

static bool check_side(const ToolImage *t, GError **errp)
{
    if (t->error) {
        g_propagate_error(errp, g_error_copy(t->error));
        return false;
    }
    if (t->image->xbzrle_pages) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "%" PRIu64 " pages came as XBZRLE deltas, which are not applied here",
                    t->image->xbzrle_pages);
        return false;
    }
    return true;
}

static void clear_difference(void *opaque)
{
    g_array_unref(((BlockDifference *)opaque)->ranges);
}

static void add_block(GArray *list, const ToolBlock *a, const ToolBlock *b)
{
    BlockDifference d = { a, b, 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    g_array_append_val(list, d);
}

/* Every name that one of the files has. */
static GArray *pair_blocks(const ToolImage *const t[2])
{
    GArray *list = g_array_new(FALSE, FALSE, sizeof(BlockDifference));

    g_array_set_clear_func(list, clear_difference);
    for (guint i = 0; i < t[0]->image->blocks->len; i++) {
        const ToolBlock *a = &t[0]->blocks[i];
        add_block(list, a, tool_image_find(t[1], a->block->idstr));
    }
    for (guint i = 0; i < t[1]->image->blocks->len; i++) {
        const ToolBlock *b = &t[1]->blocks[i];
        if (!tool_image_find(t[0], b->block->idstr)) {
            add_block(list, NULL, b);
        }
    }
    return list;
}

/* One of them has no content to compare: left out by x-ignore-shared, or in another stream. */
static bool is_unknown(const BlockDifference *d)
{
    return d->a->missing || d->b->missing;
}

static bool comparable(const BlockDifference *d)
{
    return d->a && d->b && d->a->pages == d->b->pages;
}

static bool compare_all(const ToolImage *const t[2], GArray *list, GError **errp)
{
    Progress progress;
    bool ok = true;

    progress_begin(&progress, "comparing", t[0]->image->total);
    for (guint i = 0; i < list->len && ok; i++) {
        BlockDifference *d = &g_array_index(list, BlockDifference, i);
        if (!comparable(d)) {
            continue;
        }
        if (!is_unknown(d)) {
            ok = compare_block(t, d, &progress, errp);
        } else if (d->a->missing != d->a->pages || d->b->missing != d->b->pages) {
            ok = false;
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                        "block '%s': not all pages are in both files", d->a->block->idstr);
        }
    }
    progress_end(&progress);
    return ok;
}

static bool differs(const BlockDifference *d)
{
    return !comparable(d) || d->pages;
}

static void print_text(const GArray *list)
{
    for (guint i = 0; i < list->len; i++) {
        const BlockDifference *d = &g_array_index(list, BlockDifference, i);
        g_autofree char *name = name_text((d->a ? d->a : d->b)->block->idstr);
        if (!d->a || !d->b) {
            printf("%s: only in the %s file\n", name, d->a ? "first" : "second");
        } else if (!comparable(d)) {
            printf("%s: %" PRIu64 " and %" PRIu64 " pages\n", name, d->a->pages, d->b->pages);
        } else if (d->pages) {
            g_autofree char *ranges = ranges_text(d->ranges, RANGES_SHOWN);
            printf("%s: %" PRIu64 " of %" PRIu64 " pages differ: %s\n", name, d->pages, d->a->pages, ranges);
        }
    }
}

static json_t *json_difference(const BlockDifference *d)
{
    g_autofree char *name = g_utf8_make_valid((d->a ? d->a : d->b)->block->idstr, -1);
    json_t *ranges = json_array();

    for (guint i = 0; i < d->ranges->len; i += 2) {
        json_array_append_new(ranges, json_pack("[I, I]", (json_int_t)g_array_index(d->ranges, uint64_t, i),
                                                (json_int_t)g_array_index(d->ranges, uint64_t, i + 1)));
    }
    return json_pack("{s:s, s:o, s:o, s:I, s:o}", "name", name, "pages-first",
                     d->a ? json_integer((json_int_t)d->a->pages) : json_null(), "pages-second",
                     d->b ? json_integer((json_int_t)d->b->pages) : json_null(), "different",
                     (json_int_t)d->pages, "ranges", ranges);
}

static json_t *to_json(const ImageRequest *r, const GArray *list, const GError *error, bool different)
{
    json_t *blocks = json_array();
    g_autofree char *a = g_filename_display_name(r->file), *b = g_filename_display_name(r->other_file);

    for (guint i = 0; list && i < list->len; i++) {
        json_array_append_new(blocks, json_difference(&g_array_index(list, BlockDifference, i)));
    }
    json_t *object = json_pack("{s:[s, s], s:s, s:o}", "files", a, b, "verdict",
                               error       ? tool_verdict(error)
                               : different ? "different"
                                           : "same",
                               "blocks", blocks);
    if (error) {
        json_object_set_new(object, "error", json_string(error->message));
    }
    return object;
}

int command_diff(const ImageRequest *r)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(ToolImage) a = tool_image_open(r->file, r->offset, &error);
    bool first_is_good = a && check_side(a, &error);
    g_autoptr(ToolImage) b = first_is_good ? tool_image_open(r->other_file, r->other_offset, &error) : NULL;
    bool both_are_good = b && check_side(b, &error);
    const ToolImage *const t[2] = { a, b };
    g_autoptr(GArray) list = both_are_good ? pair_blocks(t) : NULL;
    bool different = false;

    if (list) {
        compare_all(t, list, &error);
        for (guint i = 0; i < list->len; i++) {
            different |= differs(&g_array_index(list, BlockDifference, i));
        }
    }
    if (r->json) {
        print_json(to_json(r, list, error, different));
    } else if (list && !error) {
        print_text(list);
    }
    if (error) {
        report_error(first_is_good ? r->other_file : r->file, error);
        /* A file that is bad does not make the files different. */
        return EXIT_TROUBLE;
    }
    return different ? EXIT_BAD : EXIT_OK;
}
