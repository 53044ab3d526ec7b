/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine of file migrations: positioned reads or writes of guest pages in a deep queue. */
#ifndef GODWIT_MIGRATION_FILE_IO_H
#define GODWIT_MIGRATION_FILE_IO_H

#include "system/ramblock.h"

/* The longest request, in bytes: longer runs of pages are cut by the caller. */
#define FILE_IO_LEN_MAX (UINT64_C(4) << 20)

/* Requests under way at once. */
#define FILE_IO_DEPTH 16

/*
 * One queue on one descriptor, for one thread: that which calls file_io_new() does everything but the free.
 * Requests may overtake each other; file_io_drain() is the barrier. The first error sticks.
 */
typedef struct FileIo FileIo;

typedef enum FileIoBackend {
    FILE_IO_BEST,       /* io_uring, or threads where it is not to be had */
    FILE_IO_URING,
    FILE_IO_THREADS,
} FileIoBackend;

typedef struct FileIoConfig {
    int fd;                                 /* stays the caller's; open until file_io_free() */
    bool write;
    FileIoBackend backend;
    unsigned threads;                       /* of the pool; 0: two */
    bool (*interrupted)(void *opaque);      /* asked about ten times a second while waiting; may be NULL */
    void *opaque;
} FileIoConfig;

/* Guest pages, or a copy of them, and their place in the file. */
typedef struct FileIoRequest {
    void *buf;
    size_t len;                 /* 1 to FILE_IO_LEN_MAX */
    uint64_t file_offset;
    const RAMBlock *block;      /* what it is, for messages */
    uint64_t block_offset;
} FileIoRequest;

/* With FILE_IO_BEST only fails if there can be no thread either. */
FileIo *file_io_new(const FileIoConfig *config, GError **errp);

/* Waits for what is under way, whatever it takes: the kernel has done with all memory.  NULL is fine. */
void file_io_free(FileIo *io);

/* "io_uring" or "threads". */
const char *file_io_backend(const FileIo *io);

/*
 * Puts @request (copied) on its way; waits while the queue is full.  False: this or an earlier request has
 * failed, or the caller was interrupted (GODWIT_ERROR_CANCELLED).
 */
bool file_io_submit(FileIo *io, const FileIoRequest *request, GError **errp);

/* The error of a request that ended with @errnum; 0: the file ended before it. */
void file_io_set_error(GError **errp, bool write, const FileIoRequest *request, int errnum);

/* Waits until everything submitted has been done, in full. */
bool file_io_drain(FileIo *io, GError **errp);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(FileIo, file_io_free)

#endif
