/* SPDX-License-Identifier: BSD-2-Clause */
/* The source's half of mapped-ram: from runs of pages to writes, holes and bits of the bitmap. */
#ifndef GODWIT_MIGRATION_MAPPED_RAM_WRITER_H
#define GODWIT_MIGRATION_MAPPED_RAM_WRITER_H

#include "migration/file-io.h"
#include "migration/mapped-ram.h"

/*
 * Pages in one write.  For the page cache, longer ones make the kernel look for larger pieces of memory than
 * pay off: several times the CPU time was seen with 1 MiB.
 */
#define MAPPED_RAM_WRITE_DIRECT   1024      /* 4 MiB */
#define MAPPED_RAM_WRITE_BUFFERED 64        /* 256 KiB */

/* A block in the file.  Fixed from the block list on, but for the bitmaps. */
typedef struct MappedRamSaveBlock {
    RAMBlock *block;
    bool ignored;               /* x-ignore-shared: has no pages in the file, and no bitmaps */
    bool holes_known;
    uint64_t pages;
    uint64_t bitmap_offset;
    uint64_t pages_offset;
    uint64_t *data;             /* bit per page: in the file.  Set and cleared atomically by any writer */
    uint64_t *written;          /* bit per page: its place in the file is no hole.  Likewise */
} MappedRamSaveBlock;

/* One writer belongs to one thread at a time. */
typedef struct MappedRamWriter {
    /* Fixed. */
    FileIo *io;
    RamStats *stats;
    MultifdCounters *counters;  /* or NULL */
    bool detect_zero;
    uint64_t write_pages;       /* a write has at most so many pages, and ends at a multiple of them */

    /* Adjacent pages that have not been handed to the engine yet. */
    MappedRamSaveBlock *block;
    uint64_t first, count;

    uint64_t bytes;             /* written so far, for the rate limit */
} MappedRamWriter;

/* Pages of one block, handed over in one round. */
typedef struct MappedRamRun {
    uint64_t first, count;
    bool first_round;           /* holes of the file behind the block are worth a question */
} MappedRamRun;

/*
 * Looks for zero pages and writes the others.  The last of them may wait for more until
 * mapped_ram_writer_flush().
 */
bool mapped_ram_writer_run(MappedRamWriter *w, MappedRamSaveBlock *b, const MappedRamRun *run, GError **errp);

/* Hands everything to the engine. */
bool mapped_ram_writer_flush(MappedRamWriter *w, GError **errp);

/* The barrier: everything is in the file. */
bool mapped_ram_writer_drain(MappedRamWriter *w, GError **errp);

/*
 * Makes holes again where pages were written that are zero now.  Nobody writes meanwhile.  Where the file
 * system cannot, zeroes are written.
 */
bool mapped_ram_make_holes(MappedRamSaveBlock *b, Channel *file, GError **errp);

/* Writes the bitmap to its place. */
bool mapped_ram_write_bitmap(const MappedRamSaveBlock *b, Channel *file, GError **errp);

#endif
