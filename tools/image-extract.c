/* SPDX-License-Identifier: BSD-2-Clause */
/* godwit-image extract: one block's memory as a raw file, with holes where it is zero. */
#include "image-tool.h"

#include "io/transport.h"
#include "util/buffer-is-zero.h"
#include "util/error.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define CHUNK_PAGES 256

typedef struct Extraction {
    const ToolImage *t;
    Channel *out;
    Progress progress;
    uint64_t written; /* bytes */
} Extraction;

/* Writes the pages of @buf that are not zero. */
static bool write_pages(Extraction *e, uint8_t *buf, uint64_t count, uint64_t offset, GError **errp)
{
    uint64_t start = 0;

    while (start < count) {
        uint64_t end = start;
        while (end < count && !buffer_is_zero(buf + end * TARGET_PAGE_SIZE, TARGET_PAGE_SIZE)) {
            end++;
        }
        struct iovec iov = { buf + start * TARGET_PAGE_SIZE, (end - start) * TARGET_PAGE_SIZE };
        e->written += iov.iov_len;
        if (iov.iov_len &&
            !channel_pwritev_all(e->out, &iov, 1, (off_t)(offset + start * TARGET_PAGE_SIZE), errp)) {
            return false;
        }
        start = end + 1;
    }
    return true;
}

static bool copy_run(Extraction *e, const Run *run, GError **errp)
{
    static uint8_t buf[CHUNK_PAGES * TARGET_PAGE_SIZE];

    for (uint64_t done = 0; done < run->count;) {
        uint64_t count = MIN(CHUNK_PAGES, run->count - done);
        if (!tool_image_pread(e->t, buf, count * TARGET_PAGE_SIZE, run->offset + done * TARGET_PAGE_SIZE,
                              errp) ||
            !write_pages(e, buf, count, (run->first + done) * TARGET_PAGE_SIZE, errp)) {
            return false;
        }
        done += count;
        progress_add(&e->progress, count * TARGET_PAGE_SIZE);
    }
    return true;
}

static bool copy_block(Extraction *e, const ToolBlock *b, GError **errp)
{
    bool ok = true;
    Run run;

    progress_begin(&e->progress, "extracting", b->data * TARGET_PAGE_SIZE);
    for (uint64_t page = 0; ok && tool_block_run(b, page, &run); page += run.count) {
        ok = run.kind != RUN_DATA || copy_run(e, &run, errp);
    }
    progress_end(&e->progress);
    return ok;
}

/* The block, if all of it can be had; else NULL and an error that says why. */
static const ToolBlock *find(const ImageRequest *r, const ToolImage *t, GError **errp)
{
    if (t->error) {
        g_propagate_error(errp, g_error_copy(t->error));
        return NULL;
    }
    const ToolBlock *b = tool_image_find(t, r->block);
    if (!b) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "there is no block '%s' in the file", r->block);
        return NULL;
    }
    if (t->image->xbzrle_pages) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "%" PRIu64 " pages came as XBZRLE deltas, which are not applied here",
                    t->image->xbzrle_pages);
        return NULL;
    }
    if (b->missing) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "block '%s': %" PRIu64 " of %" PRIu64 " pages are not in the file", r->block, b->missing,
                    b->pages);
        return NULL;
    }
    return b;
}

/* By whatever name: making room for the output would destroy the guest. */
static bool check_output(const ImageRequest *r, const ToolImage *t, GError **errp)
{
    struct stat in, out;

    if (stat(r->output, &out) < 0 || fstat(channel_file_fd(t->image->file), &in) < 0 ||
        in.st_dev != out.st_dev || in.st_ino != out.st_ino) {
        return true;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "'%s' is the file to be read", r->output);
    return false;
}

static bool extract(const ImageRequest *r, Extraction *e, GError **errp)
{
    const ToolBlock *b = check_output(r, e->t, errp) ? find(r, e->t, errp) : NULL;

    e->out = b ? channel_file_open(r->output, O_WRONLY | O_CREAT | O_TRUNC, 0600, errp) : NULL;
    if (!e->out) {
        return false;
    }
    int err = channel_file_truncate(e->out, (off_t)b->block->used_length);
    if (err) {
        error_set_errno(errp, GODWIT_ERROR_IO, err, "'%s' cannot be made as long as the block", r->output);
        return false;
    }
    return copy_block(e, b, errp) && channel_close(e->out, errp);
}

int command_extract(const ImageRequest *r)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(ToolImage) t = tool_image_open(r->file, r->offset, &error);
    Extraction e = { .t = t };

    if (t) {
        extract(r, &e, &error);
        channel_unref(e.out);
    }
    if (r->json) {
        json_t *object = json_head(r->file, error);
        json_object_set_new(object, "block", json_string(r->block));
        json_object_set_new(object, "written", json_integer((json_int_t)e.written));
        print_json(object);
    } else if (!error) {
        g_autofree char *size = size_text(e.written);
        printf("%s: %s written\n", r->output, size);
    }
    if (error) {
        report_error(r->file, error);
    }
    return tool_exit_status(error);
}
