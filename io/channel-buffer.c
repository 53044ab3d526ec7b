/* SPDX-License-Identifier: BSD-2-Clause */
/* A channel in memory, for tests. */
#include "io/transport.h"
#include "util/error.h"

#include <errno.h>
#include <string.h>

typedef struct BufferChannel {
    Channel base;
    GMutex lock;        /* all below */
    GByteArray *bytes;
    size_t pos;         /* of the next read */
    bool down;
} BufferChannel;

static bool check_down(BufferChannel *b, GError **errp)
{
    if (b->down) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED,
                    "Unable to use buffer: The channel was shut down");
    }
    return !b->down;
}

/* Copies what is there from @offset on. */
static ssize_t copy_out(BufferChannel *b, const struct iovec *iov, int n, size_t offset)
{
    size_t start = offset;

    for (int i = 0; i < n && offset < b->bytes->len; i++) {
        size_t len = MIN(iov[i].iov_len, b->bytes->len - offset);

        memcpy(iov[i].iov_base, b->bytes->data + offset, len);
        offset += len;
    }
    return offset - start;
}

static ssize_t copy_in(BufferChannel *b, const struct iovec *iov, int n, size_t offset)
{
    size_t start = offset;

    for (int i = 0; i < n; i++) {
        if (offset + iov[i].iov_len > b->bytes->len) {
            size_t old = b->bytes->len;

            g_byte_array_set_size(b->bytes, offset + iov[i].iov_len);
            if (offset > old) {
                memset(b->bytes->data + old, 0, offset - old);
            }
        }
        if (iov[i].iov_len) {
            memcpy(b->bytes->data + offset, iov[i].iov_base, iov[i].iov_len);
        }
        offset += iov[i].iov_len;
    }
    return offset - start;
}

static ssize_t buffer_preadv(Channel *c, const struct iovec *iov, int n, off_t offset, GError **errp)
{
    BufferChannel *b = (BufferChannel *)c;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&b->lock);

    return check_down(b, errp) ? copy_out(b, iov, n, offset) : -1;
}

static ssize_t buffer_pwritev(Channel *c, const struct iovec *iov, int n, off_t offset, GError **errp)
{
    BufferChannel *b = (BufferChannel *)c;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&b->lock);

    return check_down(b, errp) ? copy_in(b, iov, n, offset) : -1;
}

static ssize_t buffer_readv(Channel *c, const struct iovec *iov, int n, GError **errp)
{
    BufferChannel *b = (BufferChannel *)c;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&b->lock);

    if (!check_down(b, errp)) {
        return -1;
    }
    ssize_t got = copy_out(b, iov, n, b->pos);
    b->pos += got;
    return got;
}

static ssize_t buffer_writev(Channel *c, const struct iovec *iov, int n, const int *fds, int n_fds,
                             unsigned flags, GError **errp)
{
    BufferChannel *b = (BufferChannel *)c;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&b->lock);

    return check_down(b, errp) ? copy_in(b, iov, n, b->bytes->len) : -1;
}

static ssize_t buffer_peek(Channel *c, void *buf, size_t len, GError **errp)
{
    BufferChannel *b = (BufferChannel *)c;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&b->lock);
    struct iovec iov = { buf, len };

    return check_down(b, errp) ? copy_out(b, &iov, 1, b->pos) : -1;
}

static off_t buffer_seek(Channel *c, off_t offset, int whence, GError **errp)
{
    BufferChannel *b = (BufferChannel *)c;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&b->lock);
    off_t pos = offset + (whence == SEEK_CUR ? (off_t)b->pos : whence == SEEK_END ? (off_t)b->bytes->len : 0);

    if (pos < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, EINVAL, "Unable to seek in buffer");
        return -1;
    }
    b->pos = pos;
    return pos;
}

static void buffer_shutdown(Channel *c)
{
    BufferChannel *b = (BufferChannel *)c;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&b->lock);

    b->down = true;
}

static bool buffer_close(Channel *c, GError **errp)
{
    return true;
}

static int buffer_poll_fd(Channel *c)
{
    return -1;
}

static void buffer_free(Channel *c)
{
    BufferChannel *b = (BufferChannel *)c;

    g_byte_array_unref(b->bytes);
    g_mutex_clear(&b->lock);
    g_free(b);
}

static const ChannelOps buffer_ops = {
    .kind = "buffer",
    .readv = buffer_readv,
    .writev = buffer_writev,
    .preadv = buffer_preadv,
    .pwritev = buffer_pwritev,
    .peek = buffer_peek,
    .seek = buffer_seek,
    .shutdown = buffer_shutdown,
    .close = buffer_close,
    .poll_fd = buffer_poll_fd,
    .free = buffer_free,
};

Channel *channel_buffer_new(const void *data, size_t len)
{
    BufferChannel *b = g_new0(BufferChannel, 1);

    b->base.ops = &buffer_ops;
    b->base.ref_count = 1;
    b->base.features = CHANNEL_FEATURE_READ | CHANNEL_FEATURE_WRITE | CHANNEL_FEATURE_SEEKABLE |
                       CHANNEL_FEATURE_PEEK;
    b->bytes = g_byte_array_new();
    if (len) {
        g_byte_array_append(b->bytes, data, len);
    }
    g_mutex_init(&b->lock);
    return &b->base;
}

const GByteArray *channel_buffer_bytes(const Channel *c)
{
    return ((const BufferChannel *)c)->bytes;
}
