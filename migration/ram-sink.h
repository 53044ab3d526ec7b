/* SPDX-License-Identifier: BSD-2-Clause */
/* RamSink and RamSource: the two ends of the ways in which guest pages travel. */
#ifndef GODWIT_MIGRATION_RAM_SINK_H
#define GODWIT_MIGRATION_RAM_SINK_H

#include "migration/stream.h"
#include "system/ramblock.h"

typedef struct RamSink RamSink;
typedef struct RamSource RamSource;
struct RamSave;     /* ram.h */
struct RamLoad;     /* ram-load.h */

/*
 * Sending.  The scanner hands runs of dirty pages to one sink.  All ops run in the migration thread;
 * each returns false with an error that fails the migration.  No entry is NULL.
 *
 * Life: setup_block for every block, setup, then any number of { send_run*, flush }, then (vCPUs stopped)
 * { send_run*, complete }, cleanup.  cleanup may come at any time after new, once, and frees the sink.
 */
typedef struct RamSinkOps {
    const char *name;

    /*
     * Not 0: ending a section costs time on the wire.  It does not end by its time then before so many bytes
     * have been sent, unless it has taken a second.
     */
    uint64_t iteration_bytes;

    /* Inside the START section, after name, length (and address) of @block: write what this sink adds. */
    bool (*setup_block)(RamSink *s, StreamWriter *w, RAMBlock *block, GError **errp);

    /* Inside the START section, before its EOS word.  A sink that reorders adds its round notifier here. */
    bool (*setup)(RamSink *s, StreamWriter *w, GError **errp);

    /*
     * Send pages [first, first + count) of @block; their dirty bits are cleared already.  *@bytes is
     * what this cost on the wire, for the rate limit; the sink counts normal and zero pages in stats.
     * Called many times inside one section.  @count is at least 1, at most RAM_RUN_MAX pages.
     */
    bool (*send_run)(RamSink *s, StreamWriter *w, RAMBlock *block, uint64_t first, uint64_t count,
                     uint64_t *bytes, GError **errp);

    /* The end of an iteration, before the section's EOS word: hand over what is buffered.  Not a barrier. */
    bool (*flush)(RamSink *s, StreamWriter *w, GError **errp);

    /*
     * In the END section, after the last run, before its EOS word: everything has reached the peer or is
     * ordered before what follows.
     */
    bool (*complete)(RamSink *s, StreamWriter *w, GError **errp);

    /*
     * The migration thread is going to wait for something else (a rate limit, the user, the return path) or
     * to look at what is dirty: nothing may lie in queues of the sink's any more, and what has been written
     * to the stream and flushed must be on its way.
     */
    bool (*settle)(RamSink *s, GError **errp);

    /* Removes its round notifier and frees the sink.  Never fails, whatever happened before. */
    void (*cleanup)(RamSink *s);
} RamSinkOps;

struct RamSink {
    const RamSinkOps *ops;
};

/*
 * The longest run handed to send_run, in pages (16 MiB): bounds the time between two looks at cancel and
 * the rate limit.
 */
#define RAM_RUN_MAX 4096

/*
 * Receiving.  The load thread reads the ram section and lets the source of pages handle what is not
 * in the main stream.  No entry is NULL.
 */
typedef struct RamSourceOps {
    const char *name;
    /* Page records (ZERO, PAGE, XBZRLE) in the main stream are an error: every page comes another way. */
    bool no_stream_pages;
    /*
     * Only the load thread writes to guest memory.  The reader may then write ahead of what it has seen
     * into pages that have not arrived yet.
     */
    bool exclusive;
    /* START section, after the block's name, length (and address): read what the sink's setup_block wrote. */
    bool (*setup_block)(RamSource *s, StreamReader *r, RAMBlock *block, GError **errp);
    /* The EOS word of a section of @type (START, PART or END). */
    bool (*section_end)(RamSource *s, uint8_t type, GError **errp);
    /* The word with flag MULTIFD_FLUSH. */
    bool (*flush_word)(RamSource *s, GError **errp);
    /* The word with flag HOOK; @arg is its address part. */
    bool (*hook_word)(RamSource *s, StreamReader *r, uint64_t arg, GError **errp);
    /* The whole stream has been read: wait for what is under way. */
    bool (*complete)(RamSource *s, GError **errp);
    void (*cleanup)(RamSource *s);
} RamSourceOps;

struct RamSource {
    const RamSourceOps *ops;
};

/* Pages in the main stream: sink-stream.c.  @save is where statistics, options and XBZRLE state live. */
RamSink *ram_sink_stream_new(struct RamSave *save);
/* Its receiving half takes no part in words and sections: the reader in ram-load.c stores pages itself. */
RamSource *ram_source_stream_new(struct RamLoad *load);

#endif
