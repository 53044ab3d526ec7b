/* SPDX-License-Identifier: BSD-2-Clause */
/* What the commands of godwit-image share: an opened file, its pages in runs, progress. */
#ifndef GODWIT_TOOLS_IMAGE_TOOL_H
#define GODWIT_TOOLS_IMAGE_TOOL_H

#include "migration/mapped-ram-image.h"

#include <jansson.h>

/* Exit statuses. */
enum {
    EXIT_OK = 0,
    EXIT_BAD = 1,     /* the file is bad or incomplete; files differ */
    EXIT_TROUBLE = 2, /* no saying: the file cannot be read or understood, or the request is wrong */
};

typedef struct ImageRequest {
    const char *file, *other_file; /* the second: of diff */
    uint64_t offset, other_offset;
    const char *block, *output; /* of extract */
    bool json;
    bool quick;
} ImageRequest;

/* ---- progress ---- */

/* A bar on standard error, if that is a terminal and the work is large enough to wait for. */
typedef struct Progress {
    const char *what;
    uint64_t total, done;   /* bytes */
    int64_t started, shown; /* microseconds; 0: not yet */
    bool terminal;
} Progress;

void progress_begin(Progress *p, const char *what, uint64_t total);
void progress_add(Progress *p, uint64_t bytes);
void progress_end(Progress *p);

/* ---- an opened file ---- */

typedef enum {
    RUN_DATA,
    RUN_ZERO,
    RUN_MISSING, /* nothing is known of these pages */
} RunKind;

/* Pages that follow each other and are of one kind; those of RUN_DATA follow each other in the file, too. */
typedef struct Run {
    RunKind kind;
    uint64_t first, count; /* pages */
    uint64_t offset;       /* of RUN_DATA: of the first page in the file */
} Run;

typedef struct ToolBlock {
    const MappedRamBlock *block;
    uint64_t pages;
    uint64_t *bitmap; /* of mapped-ram; NULL if the block is absent or was not reached */
    uint64_t data, zero, missing;
} ToolBlock;

typedef struct ToolImage {
    MappedRamImage *image;
    ToolBlock *blocks;     /* image->blocks->len of them */
    GHashTable *sizes;     /* of devices' sections by the description; NULL: there is none */
    bool description_used; /* sections were measured by it, not by searching for footers */
    uint64_t allocated;    /* bytes that the file really takes */
    GError *error;         /* why reading has stopped, or NULL */
} ToolImage;

/* NULL and an error if the file cannot be opened.  What is wrong inside is the result's @error. */
ToolImage *tool_image_open(const char *path, uint64_t offset, GError **errp);
void tool_image_free(ToolImage *t);
ToolBlock *tool_image_find(const ToolImage *t, const char *idstr);

/* The run that begins at page @first, or false at the end of the block. */
bool tool_block_run(const ToolBlock *b, uint64_t first, Run *run);

/* Reads @len bytes at @offset; false and an error that names the place. */
bool tool_image_pread(const ToolImage *t, void *buf, size_t len, uint64_t offset, GError **errp);

/* EXIT_BAD for what is wrong with a file, EXIT_TROUBLE for all else. */
int tool_exit_status(const GError *error);

/* "ok", "bad", "incomplete", "unknown". */
const char *tool_verdict(const GError *error);

/* ---- output ---- */

/* "8 MiB", "1.5 GiB", "4 KiB", "17 bytes"; caller frees. */
char *size_text(uint64_t bytes);

/* A text from a file as a terminal can be shown it: valid UTF-8 without control characters.  Caller frees. */
char *name_text(const char *name);
void print_json(json_t *object); /* takes it over */
json_t *json_block(const ToolBlock *b);
/* What all JSON outputs begin with: file, verdict, error if there is one. */
json_t *json_head(const char *path, const GError *error);
void report_error(const char *path, const GError *error);

/* Pages as "3-5, 200"; at most @most ranges, then how many more there are.  @ranges: of pairs of uint64_t. */
char *ranges_text(const GArray *ranges, unsigned most);

/* ---- commands; each returns an exit status ---- */

int command_info(const ImageRequest *r);
int command_check(const ImageRequest *r);
int command_extract(const ImageRequest *r);
int command_diff(const ImageRequest *r);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(ToolImage, tool_image_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(json_t, json_decref)

#endif
