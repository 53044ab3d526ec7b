/* SPDX-License-Identifier: BSD-2-Clause */
/* What all channels over file descriptors have in common: waiting, shutting down, closing. */
#include "channel-fd.h"

#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool fd_channel_init(FdChannel *c, const ChannelOps *ops, int read_fd, int write_fd, GError **errp)
{
    c->base.ops = ops;
    c->base.ref_count = 1;
    c->base.features |=
        (read_fd >= 0 ? CHANNEL_FEATURE_READ : 0) | (write_fd >= 0 ? CHANNEL_FEATURE_WRITE : 0);
    c->read_fd = read_fd;
    c->write_fd = write_fd;
    g_mutex_init(&c->lock);
    c->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (c->wake_fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Unable to create an event descriptor");
        fd_channel_close(&c->base, NULL);
        g_mutex_clear(&c->lock);
        return false;
    }
    return true;
}

bool fd_channel_set_nonblocking(FdChannel *c, GError **errp)
{
    int fds[2] = { c->read_fd, c->write_fd };

    for (int i = 0; i < 2; i++) {
        int flags = fds[i] < 0 ? O_NONBLOCK : fcntl(fds[i], F_GETFL);

        if (flags < 0 || (!(flags & O_NONBLOCK) && fcntl(fds[i], F_SETFL, flags | O_NONBLOCK) < 0)) {
            error_set_errno(errp, GODWIT_ERROR_IO, errno, "Unable to make a %s non-blocking",
                            c->base.ops->kind);
            return false;
        }
        c->nonblock_set[i] = !(flags & O_NONBLOCK);
    }
    return true;
}

bool fd_channel_is_down(FdChannel *c)
{
    return g_atomic_int_get(&c->down);
}

bool fd_channel_wait(FdChannel *c, int fd, short events, int timeout_ms)
{
    struct pollfd fds[2] = { { .fd = c->wake_fd, .events = POLLIN }, { .fd = fd, .events = events } };

    /* An interrupted or failed poll only makes the caller look again. */
    poll(fds, 2, timeout_ms);
    return !fd_channel_is_down(c);
}

bool fd_channel_check(FdChannel *c, const char *doing, GError **errp)
{
    if (!fd_channel_is_down(c)) {
        return true;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "Unable to %s %s: The channel was shut down",
                doing, c->base.ops->kind);
    return false;
}

int fd_channel_fail(FdChannel *c, const char *doing, int errnum, GError **errp)
{
    if (fd_channel_check(c, doing, errp)) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "Unable to %s %s", doing, c->base.ops->kind);
    }
    return -1;
}

bool fd_channel_again(FdChannel *c, int fd, short events, const char *doing, GError **errp)
{
    int errnum = errno;

    if (errnum == EINTR && !fd_channel_is_down(c)) {
        return true;
    }
    if ((errnum == EAGAIN || errnum == EWOULDBLOCK) && fd_channel_wait(c, fd, events, -1)) {
        return true;
    }
    fd_channel_fail(c, doing, errnum, errp);
    return false;
}

ssize_t fd_channel_readv(Channel *base, const struct iovec *iov, int n, GError **errp)
{
    FdChannel *c = (FdChannel *)base;
    ssize_t got;

    do {
        if (!fd_channel_check(c, "read from", errp)) {
            return -1;
        }
        got = readv(c->read_fd, iov, n);
        /* A shutdown looks like the end of the stream to the call that it interrupts. */
        if (got == 0 && !fd_channel_check(c, "read from", errp)) {
            return -1;
        }
    } while (got < 0 && fd_channel_again(c, c->read_fd, POLLIN, "read from", errp));
    return got;
}

/*
 * A pipe whose reader is gone raises SIGPIPE in the writing thread, and there
 * is no flag against it.  A library cannot know what its program does with that signal, so it
 * is blocked during the call and, if the call brought it about, taken back.
 */
static ssize_t writev_without_sigpipe(int fd, const struct iovec *iov, int n)
{
    const struct timespec zero = { 0, 0 };
    sigset_t pipe_set, old, pending;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &old);

    ssize_t done = writev(fd, iov, n);
    int errnum = errno;
    if (done < 0 && errnum == EPIPE && !sigismember(&old, SIGPIPE) && !sigpending(&pending) &&
        sigismember(&pending, SIGPIPE)) {
        sigtimedwait(&pipe_set, NULL, &zero);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = errnum;
    return done;
}

ssize_t fd_channel_writev(Channel *base, const struct iovec *iov, int n, const int *fds, int n_fds,
                          unsigned flags, GError **errp)
{
    FdChannel *c = (FdChannel *)base;
    ssize_t done;

    do {
        if (!fd_channel_check(c, "write to", errp)) {
            return -1;
        }
        done = writev_without_sigpipe(c->write_fd, iov, n);
    } while (done < 0 && fd_channel_again(c, c->write_fd, POLLOUT, "write to", errp));
    return done;
}

void fd_channel_shutdown(Channel *base)
{
    FdChannel *c = (FdChannel *)base;
    uint64_t one = 1;

    g_atomic_int_set(&c->down, 1);
    g_mutex_lock(&c->lock);
    if (!c->closed) {
        /* The counter cannot overflow in practice; if it could, wake_fd would be readable anyway. */
        while (write(c->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
        }
    }
    g_mutex_unlock(&c->lock);
}

/* Gives the descriptor's description back as it was, then closes.  0 or an errno. */
static int close_fd(int fd, bool clear_nonblock)
{
    if (clear_nonblock) {
        int flags = fcntl(fd, F_GETFL);

        if (flags >= 0) {
            fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
        }
    }
    /* Linux has released the number even when it says EINTR. */
    return close(fd) < 0 && errno != EINTR ? errno : 0;
}

bool fd_channel_close(Channel *base, GError **errp)
{
    FdChannel *c = (FdChannel *)base;
    int errnum = 0;

    g_mutex_lock(&c->lock);
    if (c->closed) {
        g_mutex_unlock(&c->lock);
        return true;
    }
    c->closed = true;
    if (c->write_fd >= 0 && c->write_fd != c->read_fd) {
        errnum = close_fd(c->write_fd, c->nonblock_set[1]);
    }
    if (c->read_fd >= 0) {
        int e = close_fd(c->read_fd, c->nonblock_set[0] || (c->nonblock_set[1] && c->write_fd == c->read_fd));

        errnum = errnum ? errnum : e;
    }
    if (c->wake_fd >= 0) {
        close(c->wake_fd);
    }
    c->read_fd = c->write_fd = c->wake_fd = -1;
    g_mutex_unlock(&c->lock);
    if (errnum) {
        fd_channel_fail(c, "close", errnum, errp);
    }
    return !errnum;
}

int fd_channel_poll_fd(Channel *base)
{
    return ((FdChannel *)base)->read_fd;
}

void fd_channel_free(Channel *base)
{
    FdChannel *c = (FdChannel *)base;

    g_mutex_clear(&c->lock);
    g_free(c);
}
