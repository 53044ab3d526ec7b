/* SPDX-License-Identifier: BSD-2-Clause */
/* Channels over regular files, pipes and character devices. */
#include "channel-fd.h"
#include "io/transport.h"
#include "trace-io.h"
#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t file_preadv(Channel *base, const struct iovec *iov, int n, off_t offset, GError **errp)
{
    FdChannel *c = (FdChannel *)base;
    ssize_t got;

    do {
        if (!fd_channel_check(c, "read from", errp)) {
            return -1;
        }
        got = preadv(c->read_fd, iov, n, offset);
    } while (got < 0 && fd_channel_again(c, c->read_fd, POLLIN, "read from", errp));
    return got;
}

static ssize_t file_pwritev(Channel *base, const struct iovec *iov, int n, off_t offset, GError **errp)
{
    FdChannel *c = (FdChannel *)base;
    ssize_t done;

    do {
        if (!fd_channel_check(c, "write to", errp)) {
            return -1;
        }
        done = pwritev(c->write_fd, iov, n, offset);
    } while (done < 0 && fd_channel_again(c, c->write_fd, POLLOUT, "write to", errp));
    return done;
}

static off_t file_seek(Channel *base, off_t offset, int whence, GError **errp)
{
    FdChannel *c = (FdChannel *)base;
    off_t pos = lseek(c->read_fd >= 0 ? c->read_fd : c->write_fd, offset, whence);

    if (pos < 0) {
        fd_channel_fail(c, "seek in", errno, errp);
    }
    return pos;
}

static const ChannelOps file_ops = {
    .kind = "file",
    .readv = fd_channel_readv,
    .writev = fd_channel_writev,
    .preadv = file_preadv,
    .pwritev = file_pwritev,
    .seek = file_seek,
    .shutdown = fd_channel_shutdown,
    .close = fd_channel_close,
    .poll_fd = fd_channel_poll_fd,
    .free = fd_channel_free,
};

/* Takes over @fd, which is not a socket. */
static Channel *channel_file_new(int fd, const struct stat *st, GError **errp)
{
    g_autofree FdChannel *c = g_new0(FdChannel, 1);
    int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
    bool seekable = S_ISREG(st->st_mode) || S_ISBLK(st->st_mode);

    c->base.features = seekable ? CHANNEL_FEATURE_SEEKABLE : 0;
    if (!fd_channel_init(c, &file_ops, mode == O_WRONLY ? -1 : fd, mode == O_RDONLY ? -1 : fd, errp)) {
        return NULL;
    }
    if (!seekable && !fd_channel_set_nonblocking(c, errp)) {
        channel_unref(&g_steal_pointer(&c)->base);
        return NULL;
    }
    return &g_steal_pointer(&c)->base;
}

Channel *channel_from_fd(int fd, GError **errp)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Unable to use file descriptor %d", fd);
        return NULL;
    }
    trace_channel_from_fd(fd, st.st_mode);
    return S_ISSOCK(st.st_mode) ? channel_socket_new(fd, false, errp) : channel_file_new(fd, &st, errp);
}

bool channel_fd_is_stream(int fd)
{
    return lseek(fd, 0, SEEK_CUR) < 0 && errno == ESPIPE;
}

Channel *channel_file_open(const char *path, int flags, mode_t mode, GError **errp)
{
    struct stat st;
    int fd;

    do {
        fd = open(path, flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0 || fstat(fd, &st) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Could not %s '%s'",
                        flags & O_CREAT ? "create" : "open", path);
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    trace_channel_file_open(path, flags);
    return channel_file_new(fd, &st, errp);
}

int channel_file_fd(const Channel *c)
{
    const FdChannel *file = (const FdChannel *)c;
    return file->write_fd >= 0 ? file->write_fd : file->read_fd;
}

int channel_file_punch_hole(Channel *c, off_t offset, off_t length)
{
    int err;

    do {
        int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        err = fallocate(channel_file_fd(c), mode, offset, length) < 0 ? errno : 0;
    } while (err == EINTR);
    return err;
}

bool channel_file_sync(Channel *c, GError **errp)
{
    while (fsync(channel_file_fd(c)) < 0) {
        if (errno != EINTR) {
            error_set_errno(errp, GODWIT_ERROR_IO, errno, "Unable to write the file to its disk");
            return false;
        }
    }
    return true;
}

/*
 * A file system (ext4) may take the truncation to nothing for somebody who replaces the file's content, and
 * then writes all of it to the disk when it is closed, which waits: a file that is empty is left alone.
 */
int channel_file_truncate(Channel *c, off_t length)
{
    int fd = ((FdChannel *)c)->write_fd, err;
    struct stat st;

    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == length) {
        return 0;
    }
    do {
        err = ftruncate(fd, length) < 0 ? errno : 0;
    } while (err == EINTR);
    return err;
}
