/* SPDX-License-Identifier: BSD-2-Clause */
/* godwit-image check: is the file whole and sound, and what became of its pages? */
#include "image-tool.h"

#include "util/buffer-is-zero.h"
#include "util/error.h"

#include <inttypes.h>
#include <stdio.h>

#define CHUNK_PAGES 256

/* What reading all of a block's places in the file has shown. */
typedef struct Account {
    uint64_t data_is_zero; /* pages marked as data that hold zeros: room that a hole would save */
    uint64_t stale;        /* pages marked as zero with old bytes in their place: QEMU leaves them */
} Account;

/* Looks at @count pages from @first on, which are together in the file at @offset. */
static bool look_at_pages(const ToolImage *t, const Run *run, uint64_t offset, Account *account,
                          Progress *progress, GError **errp)
{
    static uint8_t buf[CHUNK_PAGES * TARGET_PAGE_SIZE];

    for (uint64_t done = 0; done < run->count;) {
        uint64_t count = MIN(CHUNK_PAGES, run->count - done);
        if (!tool_image_pread(t, buf, count * TARGET_PAGE_SIZE, offset + done * TARGET_PAGE_SIZE, errp)) {
            return false;
        }
        for (uint64_t i = 0; i < count; i++) {
            bool zero = buffer_is_zero(buf + i * TARGET_PAGE_SIZE, TARGET_PAGE_SIZE);
            account->data_is_zero += run->kind == RUN_DATA && zero;
            account->stale += run->kind == RUN_ZERO && !zero;
        }
        done += count;
        progress_add(progress, count * TARGET_PAGE_SIZE);
    }
    return true;
}

static bool account_block(const ToolImage *t, const ToolBlock *b, Account *account, Progress *progress,
                          GError **errp)
{
    Run run;

    for (uint64_t page = 0; tool_block_run(b, page, &run); page += run.count) {
        uint64_t offset =
            run.kind == RUN_DATA ? run.offset : b->block->pages_offset + page * TARGET_PAGE_SIZE;
        bool has_place = run.kind == RUN_DATA || (run.kind == RUN_ZERO && b->bitmap);
        if (has_place && !look_at_pages(t, &run, offset, account, progress, errp)) {
            g_prefix_error(errp, "block '%s', page %" PRIu64 ": ", b->block->idstr, page);
            return false;
        }
    }
    return true;
}

/* Pages of which nothing is known: allowed only where x-ignore-shared left them to others. */
static bool check_missing(const ToolImage *t, GError **errp)
{
    for (guint i = 0; i < t->image->blocks->len; i++) {
        const ToolBlock *b = &t->blocks[i];
        bool left_out = b->block->absent || (t->image->ignore_shared && b->missing == b->pages);
        if (b->missing && !left_out && t->image->xbzrle_pages) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                        "block '%s': %" PRIu64 " pages came only as XBZRLE deltas", b->block->idstr,
                        b->missing);
            return false;
        }
        if (b->missing && !left_out) {
            return error_set_protocol(errp,
                                      "block '%s': %" PRIu64 " of %" PRIu64 " pages are not in the file",
                                      b->block->idstr, b->missing, b->pages);
        }
    }
    return true;
}

static uint64_t work(const ToolImage *t)
{
    uint64_t pages = 0;

    for (guint i = 0; i < t->image->blocks->len; i++) {
        pages += t->blocks[i].bitmap ? t->blocks[i].pages : t->blocks[i].data;
    }
    return pages * TARGET_PAGE_SIZE;
}

/* Everything; the first thing that is wrong ends it.  @accounts: one for each block. */
static bool check(const ImageRequest *r, ToolImage *t, Account *accounts, GError **errp)
{
    Progress progress;
    bool ok = true;

    if (t->error) {
        g_propagate_error(errp, g_error_copy(t->error));
        return false;
    }
    if (!check_missing(t, errp)) {
        return false;
    }
    if (r->quick) {
        return true;
    }
    progress_begin(&progress, "checking", work(t));
    for (guint i = 0; i < t->image->blocks->len && ok; i++) {
        ok = account_block(t, &t->blocks[i], &accounts[i], &progress, errp);
    }
    progress_end(&progress);
    return ok;
}

static void print_text(const ImageRequest *r, const ToolImage *t, const Account *accounts,
                       const GError *error)
{
    for (guint i = 0; i < t->image->blocks->len; i++) {
        const ToolBlock *b = &t->blocks[i];
        g_autofree char *name = name_text(b->block->idstr);
        printf("%s: %" PRIu64 " pages: data %" PRIu64 ", zero %" PRIu64 ", not in the file %" PRIu64,
               name, b->pages, b->data, b->zero, b->missing);
        if (!r->quick && !error) {
            printf("; data that is zero %" PRIu64 ", zero with stale bytes %" PRIu64,
                   accounts[i].data_is_zero, accounts[i].stale);
        }
        putchar('\n');
    }
    if (t->sizes && !t->description_used) {
        printf("the description does not fit the device state\n");
    }
    if (!error && t->image->end < t->image->file_size) {
        printf("%" PRIu64 " bytes follow the end at 0x%" PRIx64 "\n", t->image->file_size - t->image->end,
               t->image->end);
    }
    printf("%s\n", tool_verdict(error));
}

static json_t *to_json(const ImageRequest *r, const ToolImage *t, const Account *accounts,
                       const GError *error)
{
    json_t *object = json_head(r->file, error), *blocks = json_array();

    for (guint i = 0; i < t->image->blocks->len; i++) {
        json_t *b = json_block(&t->blocks[i]);
        if (!r->quick && !error) {
            json_object_set_new(b, "data-is-zero", json_integer((json_int_t)accounts[i].data_is_zero));
            json_object_set_new(b, "stale", json_integer((json_int_t)accounts[i].stale));
        }
        json_array_append_new(blocks, b);
    }
    json_object_update_new(object, json_pack("{s:o, s:I, s:I, s:I, s:b}", "blocks", blocks, "size",
                                             (json_int_t)t->image->file_size, "allocated",
                                             (json_int_t)t->allocated, "end", (json_int_t)t->image->end,
                                             "description-fits", !t->sizes || t->description_used));
    return object;
}

int command_check(const ImageRequest *r)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(ToolImage) t = tool_image_open(r->file, r->offset, &error);
    g_autofree Account *accounts = t ? g_new0(Account, t->image->blocks->len + 1) : NULL;

    if (t) {
        check(r, t, accounts, &error);
    }
    if (r->json) {
        print_json(t ? to_json(r, t, accounts, error) : json_head(r->file, error));
    } else if (t) {
        print_text(r, t, accounts, error);
    }
    if (error) {
        report_error(r->file, error);
    }
    return tool_exit_status(error);
}
