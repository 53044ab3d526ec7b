/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of the destination's half of mapped-ram share. */
#ifndef GODWIT_MIGRATION_MAPPED_RAM_LOAD_H
#define GODWIT_MIGRATION_MAPPED_RAM_LOAD_H

#include "migration/file-io.h"
#include "migration/mapped-ram.h"

/* The unit of work of a reader, in pages: 4 MiB, at a multiple of them in the block. */
#define MAPPED_RAM_UNIT 1024

/* The longest read, in pages: 1 MiB. */
#define MAPPED_RAM_READ_PAGES 256

/* A block that has pages in the file. */
typedef struct MappedRamLoadBlock {
    RAMBlock *block;
    uint64_t pages;
    uint64_t pages_offset;      /* of page 0 in the file */
    uint64_t *data;             /* bit per page: in the file; else it is zero */
    uint64_t first_unit;        /* units of the blocks before */
} MappedRamLoadBlock;

/* Where the pages are, and how they are read.  Fixed when reading begins, but for what is atomic. */
struct MappedRamLoad {
    RamList *ram;
    const MigrationOptions *options;
    MappedRamLoadConfig config;
    GArray *blocks;             /* of MappedRamLoadBlock */
    uint64_t units;
    MappedRamImage *image;      /* the file as it was checked */
    unsigned listed;            /* entries of its list that the stream has come to */
    bool read;                  /* the pages have been asked for */

    struct MappedRamLazy *lazy; /* NULL: not, or not any more */
    bool is_lazy;               /* atomic: memory is, or was, filled while the guest runs */

    uint64_t next_unit;         /* atomic */
    uint64_t pages_left;        /* atomic */
    const char *backend;        /* atomic */

    GMutex lock;
    GError *error;              /* lock; the first one */
    bool failed;                /* atomic: likewise, for a quick look */
};

/* The block and the first page of unit @number. */
MappedRamLoadBlock *mapped_ram_load_unit(MappedRamLoad *load, uint64_t number, uint64_t *first,
                                         uint64_t *end);

/* Keeps the first error, and takes @error over.  Any thread. */
void mapped_ram_load_fail(MappedRamLoad *load, GError *error);

/* Is it time to give up?  For FileIoConfig.interrupted: @opaque is the load.  Any thread. */
bool mapped_ram_load_stopped(void *opaque);

/*
 * mapped-ram-lazy.c: from now on a page is read when it is touched.  False, with nothing changed but that
 * memory is zero, if this host or this memory cannot do that.
 */
bool mapped_ram_lazy_start(MappedRamLoad *load, GError **errp);

/* Reads everything, with several threads, and makes zero what is zero in the file. */
bool mapped_ram_read_all(MappedRamLoad *load, GError **errp);

#endif
