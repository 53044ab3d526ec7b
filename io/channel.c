/* SPDX-License-Identifier: BSD-2-Clause */
/* Channel: the part that does not depend on the kind. */
#include "io/channel.h"

#include "trace-io.h"
#include "util/error.h"
#include "util/fault.h"
#include "util/iov.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define END_OF_FILE "Unexpected end-of-file before all data were read"

Channel *channel_ref(Channel *c)
{
    g_atomic_int_inc(&c->ref_count);
    return c;
}

void channel_unref(Channel *c)
{
    if (c && g_atomic_int_dec_and_test(&c->ref_count)) {
        c->ops->close(c, NULL);
        g_free(c->name);
        c->ops->free(c);
    }
}

void channel_set_name(Channel *c, const char *name)
{
    g_free(c->name);
    c->name = g_strdup(name);
}

bool channel_has_feature(const Channel *c, ChannelFeature feature)
{
    return c->features & feature;
}

static bool need(const Channel *c, ChannelFeature feature, const char *what, GError **errp)
{
    if (channel_has_feature(c, feature)) {
        return true;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "A %s channel cannot %s", c->ops->kind, what);
    return false;
}

ssize_t channel_readv(Channel *c, const struct iovec *iov, int n, GError **errp)
{
    if (fault_point("channel-read", errp)) {
        return -1;
    }
    return c->ops->readv(c, iov, MIN(n, IOV_MAX), errp);
}

ssize_t channel_readv_fds(Channel *c, const struct iovec *iov, int n, GArray *fds, GError **errp)
{
    if (!need(c, CHANNEL_FEATURE_FD_PASS, "receive descriptors", errp)) {
        return -1;
    }
    return c->ops->readv_fds(c, iov, MIN(n, IOV_MAX), fds, errp);
}

ssize_t channel_read(Channel *c, void *buf, size_t len, GError **errp)
{
    struct iovec iov = { buf, len };

    return channel_readv(c, &iov, 1, errp);
}

int channel_read_all_eof(Channel *c, void *buf, size_t len, GError **errp)
{
    size_t done = 0;

    while (done < len) {
        ssize_t got = channel_read(c, (char *)buf + done, len - done, errp);

        if (got < 0) {
            return -1;
        }
        if (got == 0 && done == 0) {
            return 0;
        }
        if (got == 0) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_EOF, END_OF_FILE);
            return -1;
        }
        done += got;
    }
    return 1;
}

bool channel_read_all(Channel *c, void *buf, size_t len, GError **errp)
{
    int got = channel_read_all_eof(c, buf, len, errp);

    if (got == 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_EOF, END_OF_FILE);
    }
    return got > 0;
}

ssize_t channel_writev(Channel *c, const struct iovec *iov, int n, const int *fds, int n_fds,
                       unsigned flags, GError **errp)
{
    if (n_fds && !need(c, CHANNEL_FEATURE_FD_PASS, "send descriptors", errp)) {
        return -1;
    }
    if ((flags & CHANNEL_WRITE_ZERO_COPY) &&
        !need(c, CHANNEL_FEATURE_ZERO_COPY, "send without copying", errp)) {
        return -1;
    }
    if (fault_point("channel-write", errp)) {
        return -1;
    }
    return c->ops->writev(c, iov, MIN(n, IOV_MAX), fds, n_fds, flags, errp);
}

bool channel_readv_all(Channel *c, struct iovec *iov, size_t n, GError **errp)
{
    iov_advance(&iov, &n, 0);
    while (n) {
        ssize_t got = channel_readv(c, iov, MIN(n, IOV_MAX), errp);

        if (got <= 0) {
            if (got == 0) {
                g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_EOF, END_OF_FILE);
            }
            return false;
        }
        iov_advance(&iov, &n, got);
    }
    return true;
}

bool channel_writev_all(Channel *c, struct iovec *iov, size_t n, unsigned flags, GError **errp)
{
    iov_advance(&iov, &n, 0);
    while (n) {
        ssize_t done = channel_writev(c, iov, MIN(n, IOV_MAX), NULL, 0, flags, errp);

        if (done < 0) {
            return false;
        }
        iov_advance(&iov, &n, done);
    }
    return true;
}

bool channel_write_all(Channel *c, const void *buf, size_t len, GError **errp)
{
    struct iovec iov = { (void *)buf, len };

    return channel_writev_all(c, &iov, 1, 0, errp);
}

bool channel_pread_all(Channel *c, void *buf, size_t len, off_t offset, GError **errp)
{
    if (!need(c, CHANNEL_FEATURE_SEEKABLE, "read at an offset", errp) || fault_point("channel-pread", errp)) {
        return false;
    }
    while (len) {
        struct iovec iov = { buf, len };
        ssize_t got = c->ops->preadv(c, &iov, 1, offset, errp);

        if (got < 0) {
            return false;
        }
        if (got == 0) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_EOF, END_OF_FILE);
            return false;
        }
        buf = (char *)buf + got;
        len -= got;
        offset += got;
    }
    return true;
}

bool channel_pwritev_all(Channel *c, struct iovec *iov, size_t n, off_t offset, GError **errp)
{
    if (!need(c, CHANNEL_FEATURE_SEEKABLE, "write at an offset", errp) ||
        fault_point("channel-pwrite", errp)) {
        return false;
    }
    iov_advance(&iov, &n, 0);
    while (n) {
        ssize_t done = c->ops->pwritev(c, iov, MIN(n, IOV_MAX), offset, errp);

        if (done < 0) {
            return false;
        }
        offset += done;
        iov_advance(&iov, &n, done);
    }
    return true;
}

off_t channel_seek(Channel *c, off_t offset, int whence, GError **errp)
{
    if (!need(c, CHANNEL_FEATURE_SEEKABLE, "seek", errp)) {
        return -1;
    }
    return c->ops->seek(c, offset, whence, errp);
}

ssize_t channel_peek(Channel *c, void *buf, size_t len, GError **errp)
{
    if (!need(c, CHANNEL_FEATURE_PEEK, "peek", errp)) {
        return -1;
    }
    return c->ops->peek(c, buf, len, errp);
}

int channel_flush_zero_copy(Channel *c, GError **errp)
{
    if (!channel_has_feature(c, CHANNEL_FEATURE_ZERO_COPY)) {
        return 0;
    }
    return c->ops->flush_zero_copy(c, errp);
}

void channel_shutdown(Channel *c)
{
    trace_channel_shutdown(c->ops->kind, c->name);
    c->ops->shutdown(c);
}

bool channel_close(Channel *c, GError **errp)
{
    trace_channel_close(c->ops->kind, c->name);
    return c->ops->close(c, errp);
}

int channel_poll_fd(Channel *c)
{
    return c->ops->poll_fd(c);
}
