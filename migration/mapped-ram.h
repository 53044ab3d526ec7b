/* SPDX-License-Identifier: BSD-2-Clause */
/* mapped-ram: guest pages at fixed places of a file, both halves. */
#ifndef GODWIT_MIGRATION_MAPPED_RAM_H
#define GODWIT_MIGRATION_MAPPED_RAM_H

#include "migration/mapped-ram-image.h"
#include "migration/multifd.h"
#include "migration/page-file.h"
#include "migration/ram-load.h"
#include "migration/ram.h"

typedef struct MappedRamSaveConfig {
    Channel *file;                          /* the main channel, seekable; referenced */
    const PageFile *pages;                  /* where pages are written; must outlive the sink */
    unsigned channels;                      /* threads that write; 0: the migration thread does */
    MultifdCounters *counters;              /* one for each channel; must outlive the sink */
    bool (*interrupted)(void *opaque);      /* is it of no use any more?  Any thread. */
    void *opaque;
} MappedRamSaveConfig;

/*
 * A sink that writes each page at its place.  Pages are not copied; a barrier is at the end of each round.
 * Migration thread.
 */
RamSink *mapped_ram_save_new(RamSave *save, const MappedRamSaveConfig *config, GError **errp);

/* "io_uring" or "threads". */
const char *mapped_ram_save_backend(const RamSink *sink);

/* ---- destination ---- */

typedef struct MappedRamLoadConfig {
    Channel *file;                          /* the main channel; referenced */
    uint64_t offset;                        /* where the stream begins in it */
    const PageFile *pages;                  /* where pages are read; must outlive the load */
    unsigned readers;                       /* threads, at least 1 */
    const MigrationHost *host;              /* for its log; must outlive the load */
    bool (*interrupted)(void *opaque);      /* is it of no use any more?  Any thread. */
    void *opaque;
} MappedRamLoadConfig;

/*
 * Reads pages from their places.  Belongs to the load thread, except where said otherwise; @ram and @options
 * must outlive it.
 */
typedef struct MappedRamLoad MappedRamLoad;

MappedRamLoad *mapped_ram_load_new(RamList *ram, const MigrationOptions *options,
                                   const MappedRamLoadConfig *config);
/* NULL is fine.  The RamSource, if any, must be gone. */
void mapped_ram_load_free(MappedRamLoad *load);

/*
 * Reads the whole file but its pages, and refuses it if anything is wrong with it, or does not fit this
 * guest, or is missing at the end.  Before the stream is loaded: nothing has been touched yet.
 */
bool mapped_ram_load_check(MappedRamLoad *load, GError **errp);

/*
 * What the load thread reads the ram section with: the pages are read when the END section ends, before any
 * device state.  Owned by the RamLoad it is given to.
 */
RamSource *mapped_ram_load_source(MappedRamLoad *load);

/*
 * After the stream: is guest memory still in the file, to be read when it is touched (x-mapped-ram-lazy)?
 * Then the guest may run.
 */
bool mapped_ram_load_is_lazy(const MappedRamLoad *load);

/*
 * Reads what nobody has touched yet, while the guest runs.  When it returns memory is the guest's alone: all
 * there, or, with an error that names page and offset, not to be trusted.  @stop_guest is called before
 * threads that wait for a page that cannot be read are let go; it may have to wait for such a thread, but not
 * for long.
 */
bool mapped_ram_load_finish(MappedRamLoad *load, void (*stop_guest)(void *opaque), void *opaque,
                            GError **errp);

/* Instead of mapped_ram_load_finish(), when the guest will not run: ends what was begun for it. */
void mapped_ram_load_abandon(MappedRamLoad *load);

/* "io_uring", "threads", "userfaultfd", or NULL while nothing has been read.  Any thread. */
const char *mapped_ram_load_backend(const MappedRamLoad *load);

/* Pages with content that have not been read yet.  Any thread. */
uint64_t mapped_ram_load_left(const MappedRamLoad *load);

#endif
