/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine of file migrations: slots, short transfers, errors; the backends move the bytes. */

/*
 * A request sits in a slot until it is done in full: a short transfer or an interrupted one is started
 * again for the rest. After the first error nothing is started any more, but what is under way is still
 * waited for, since the kernel may be reading or writing guest memory.
 */
#include "migration/file-io-internal.h"

#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

#include <errno.h>
#include <inttypes.h>

static bool open_backend(FileIo *io, const FileIoBackendOps *ops, GError **errp)
{
    io->ops = ops;
    return ops->open(io, errp);
}

/* io_uring, if it is built in and the kernel lets us. */
static bool open_uring(FileIo *io, GError **errp)
{
#ifdef CONFIG_URING
    g_autoptr(GError) error = NULL;

    if (!fault_point("file-io-uring", &error) && open_backend(io, &file_io_uring_ops, &error)) {
        return true;
    }
    trace_file_io_no_uring(error->message);
    g_propagate_error(errp, g_steal_pointer(&error));
    return false;
#else
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "io_uring was not built in");
    return false;
#endif
}

static bool open_best(FileIo *io, GError **errp)
{
    FileIoBackend backend = io->config.backend;

    if (backend != FILE_IO_THREADS && open_uring(io, backend == FILE_IO_URING ? errp : NULL)) {
        return true;
    }
    return backend != FILE_IO_URING && open_backend(io, &file_io_threads_ops, errp);
}

FileIo *file_io_new(const FileIoConfig *config, GError **errp)
{
    FileIo *io = g_new0(FileIo, 1);

    io->config = *config;
    for (unsigned i = 0; i < FILE_IO_DEPTH; i++) {
        io->slots[i].index = i;
        io->slots[i].next = io->free;
        io->free = &io->slots[i];
    }
    if (!open_best(io, errp)) {
        g_free(io);
        return NULL;
    }
    trace_file_io_open(config->fd, config->write, io->ops->name);
    return io;
}

void file_io_free(FileIo *io)
{
    if (!io) {
        return;
    }
    while (io->busy) {
        io->ops->wait(io);
    }
    io->ops->close(io);
    g_clear_error(&io->error);
    g_free(io);
}

const char *file_io_backend(const FileIo *io)
{
    return io->ops->name;
}

/* ---- the end of a request ---- */

void file_io_set_error(GError **errp, bool write, const FileIoRequest *r, int errnum)
{
    g_autofree char *what = g_strdup_printf("Unable to %s page 0x%" PRIx64 " of RAM block '%s' %s offset 0x%"
                                            PRIx64 " of the file", write ? "write" : "read", r->block_offset,
                                            r->block->idstr, write ? "at" : "from", r->file_offset);
    if (errnum) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "%s", what);
    } else {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_EOF,
                    "%s: Unexpected end-of-file before all data were read", what);
    }
}

static void fail(FileIo *io, const FileIoRequest *r, int errnum)
{
    if (!io->error) {
        file_io_set_error(&io->error, io->config.write, r, errnum);
    }
}

static void release(FileIo *io, FileIoSlot *slot)
{
    slot->next = io->free;
    io->free = slot;
    io->busy--;
}

/* What tests make the kernel say. */
static int disturbed(const FileIoSlot *slot, int result)
{
    if (fault_point("file-io-eintr", NULL)) {
        return -EINTR;
    }
    if (fault_point("file-io-enospc", NULL)) {
        return -ENOSPC;
    }
    if (fault_point("file-io-eio", NULL)) {
        return -EIO;
    }
    if (fault_point("file-io-short", NULL)) {
        return (int)MIN(slot->left.len, TARGET_PAGE_SIZE);
    }
    return result;
}

void file_io_completed(FileIo *io, FileIoSlot *slot, int result)
{
    FileIoRequest *left = &slot->left;

    result = disturbed(slot, result);
    if (io->error) {
        release(io, slot);
        return;
    }
    if (result == -EINTR || result == -EAGAIN) {
        io->ops->start(io, slot);
        return;
    }
    if (result <= 0) {
        /* A write of nothing, without a reason, has never been seen. */
        fail(io, left, result ? -result : io->config.write ? EIO : 0);
        release(io, slot);
        return;
    }
    if ((size_t)result < left->len) {
        trace_file_io_short(left->file_offset, left->len, result);
        left->buf = (char *)left->buf + result;
        left->len -= (size_t)result;
        left->file_offset += (uint64_t)result;
        left->block_offset += (uint64_t)result;
        io->ops->start(io, slot);
        return;
    }
    release(io, slot);
}

/* ---- the caller's side ---- */

static bool check(FileIo *io, GError **errp)
{
    if (!io->error && io->config.interrupted && io->config.interrupted(io->config.opaque)) {
        g_set_error(&io->error, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "interrupted");
    }
    if (io->error) {
        g_propagate_error(errp, g_error_copy(io->error));
    }
    return !io->error;
}

bool file_io_submit(FileIo *io, const FileIoRequest *request, GError **errp)
{
    g_assert(request->len > 0 && request->len <= FILE_IO_LEN_MAX);
    if (fault_point("file-io-submit", errp)) {
        return false;
    }
    while (!io->free && !io->error) {
        io->ops->wait(io);
        if (!check(io, errp)) {
            return false;
        }
    }
    if (!check(io, errp)) {
        return false;
    }
    FileIoSlot *slot = io->free;
    io->free = slot->next;
    io->busy++;
    slot->left = *request;
    io->ops->start(io, slot);
    return true;
}

bool file_io_drain(FileIo *io, GError **errp)
{
    while (io->busy && check(io, NULL)) {
        io->ops->wait(io);
    }
    return check(io, errp);
}
