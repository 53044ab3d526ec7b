/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine of file migrations over io_uring. */
#include "migration/file-io-internal.h"

#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>

typedef struct Uring {
    struct io_uring ring;
    bool fixed;             /* the descriptor is registered, as number 0 */
} Uring;

/* The operations we need are of 5.6; a ring without them is of no use. */
static bool knows_operations(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool ok = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
              io_uring_opcode_supported(probe, IORING_OP_WRITE);

    io_uring_free_probe(probe);
    return ok;
}

static bool uring_open(FileIo *io, GError **errp)
{
    /* With O_NONBLOCK requests on files would fail where they have to wait; the other calls do not mind. */
    if (fcntl(io->config.fd, F_GETFL) & O_NONBLOCK) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "the descriptor has O_NONBLOCK");
        return false;
    }
    g_autofree Uring *u = g_new0(Uring, 1);
    int err = -io_uring_queue_init(FILE_IO_DEPTH, &u->ring, 0);

    if (err) {
        error_set_errno(errp, GODWIT_ERROR_UNSUPPORTED, err, "io_uring is not to be had");
        return false;
    }
    if (!knows_operations(&u->ring)) {
        io_uring_queue_exit(&u->ring);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "io_uring of this kernel cannot read and write");
        return false;
    }
    u->fixed = io_uring_register_files(&u->ring, &io->config.fd, 1) == 0;
    io->backend = g_steal_pointer(&u);
    return true;
}

static void uring_start(FileIo *io, FileIoSlot *slot)
{
    Uring *u = io->backend;
    const FileIoRequest *r = &slot->left;
    int fd = u->fixed ? 0 : io->config.fd;
    /* There are as many entries as slots, and every one is submitted at once. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

    if (io->config.write) {
        io_uring_prep_write(sqe, fd, r->buf, (unsigned)r->len, r->file_offset);
    } else {
        io_uring_prep_read(sqe, fd, r->buf, (unsigned)r->len, r->file_offset);
    }
    if (u->fixed) {
        sqe->flags |= IOSQE_FIXED_FILE;
    }
    io_uring_sqe_set_data(sqe, slot);
    /* What is not taken now stays in the ring, and goes with the next call or with the wait. */
    io_uring_submit(&u->ring);
}

static void uring_wait(FileIo *io)
{
    Uring *u = io->backend;
    struct __kernel_timespec timeout = { .tv_nsec = FILE_IO_WAIT_MS * 1000000LL };
    struct io_uring_cqe *cqe;

    if (io_uring_sq_ready(&u->ring)) {
        io_uring_submit(&u->ring);
    }
    if (io_uring_wait_cqe_timeout(&u->ring, &cqe, &timeout) < 0) {
        return;
    }
    do {
        FileIoSlot *slot = io_uring_cqe_get_data(cqe);
        int result = cqe->res;

        io_uring_cqe_seen(&u->ring, cqe);
        if (slot) {     /* liburing's own timeouts, on old kernels, have none */
            file_io_completed(io, slot, result);
        }
    } while (io_uring_peek_cqe(&u->ring, &cqe) == 0);
}

static void uring_close(FileIo *io)
{
    Uring *u = io->backend;

    io_uring_queue_exit(&u->ring);
    g_free(u);
}

const FileIoBackendOps file_io_uring_ops = {
    .name = "io_uring",
    .open = uring_open,
    .start = uring_start,
    .wait = uring_wait,
    .close = uring_close,
};
