/* SPDX-License-Identifier: BSD-2-Clause */
/* What the engine of file migrations shares with its two backends. */
#ifndef GODWIT_MIGRATION_FILE_IO_INTERNAL_H
#define GODWIT_MIGRATION_FILE_IO_INTERNAL_H

#include "config.h"
#include "migration/file-io.h"

/* A request under way: what is left of it. */
typedef struct FileIoSlot {
    FileIoRequest left;
    unsigned index;
    int result;                     /* the backend's scratch */
    struct FileIoSlot *next;        /* in the list of free ones, or one of the backend's */
} FileIoSlot;

typedef struct FileIoBackendOps {
    const char *name;
    /* Sets io->backend.  False if this backend cannot be used here. */
    bool (*open)(FileIo *io, GError **errp);
    /* Hands @slot to the kernel or a thread. */
    void (*start)(FileIo *io, FileIoSlot *slot);
    /* Waits for at least one request, or FILE_IO_WAIT_MS; file_io_completed() for each that is done. */
    void (*wait)(FileIo *io);
    /* Nothing is under way. */
    void (*close)(FileIo *io);
} FileIoBackendOps;

#define FILE_IO_WAIT_MS 100

/* All of it belongs to the thread that made it. */
struct FileIo {
    FileIoConfig config;
    const FileIoBackendOps *ops;
    void *backend;
    FileIoSlot slots[FILE_IO_DEPTH];
    FileIoSlot *free;
    unsigned busy;
    GError *error;
};

/* What became of @slot: a number of bytes, or a negative errno.  May start it again for the rest. */
void file_io_completed(FileIo *io, FileIoSlot *slot, int result);

extern const FileIoBackendOps file_io_threads_ops;
#ifdef CONFIG_URING
extern const FileIoBackendOps file_io_uring_ops;
#endif

#endif
