/* SPDX-License-Identifier: BSD-2-Clause */
/* Channels over connected sockets: descriptors that travel along, zero copy, peeking. */
#include "channel-fd.h"
#include "socket-options.h"
#include "trace-io.h"
#include "util/error.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * With MSG_ZEROCOPY the kernel sends from our memory and tells on the socket's error queue
 * when it is done with the memory of each accepted call; calls are numbered
 * from 0, notifications name a range of numbers.  It is enough to count.
 */
typedef struct SocketChannel {
    FdChannel fd;
    uint32_t zero_copy_sent;    /* accepted calls.  These three: the writer's thread */
    uint32_t zero_copy_done;    /* notified calls */
    bool zero_copy_copied;      /* the kernel copied all the same, since the last flush */
} SocketChannel;

/* Appends the descriptors of a received message. */
static void take_fds(struct msghdr *msg, GArray *fds)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
            for (size_t off = CMSG_LEN(0); off + sizeof(int) <= h->cmsg_len; off += sizeof(int)) {
                int fd;

                memcpy(&fd, (char *)h + off, sizeof(fd));
                g_array_append_val(fds, fd);
            }
        }
    }
}

static ssize_t socket_readv_fds(Channel *base, const struct iovec *iov, int n, GArray *fds, GError **errp)
{
    FdChannel *c = (FdChannel *)base;
    union {
        char buf[CMSG_SPACE(CHANNEL_MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr msg;
    ssize_t got;

    do {
        if (!fd_channel_check(c, "read from", errp)) {
            return -1;
        }
        msg = (struct msghdr){ .msg_iov = (struct iovec *)iov, .msg_iovlen = n,
                               .msg_control = control.buf, .msg_controllen = sizeof(control.buf) };
        got = recvmsg(c->read_fd, &msg, MSG_CMSG_CLOEXEC);
        if (got == 0 && !fd_channel_check(c, "read from", errp)) {
            return -1;
        }
    } while (got < 0 && fd_channel_again(c, c->read_fd, POLLIN, "read from", errp));
    if (got >= 0) {
        take_fds(&msg, fds);
    }
    return got;
}

static ssize_t socket_peek(Channel *base, void *buf, size_t len, GError **errp)
{
    FdChannel *c = (FdChannel *)base;
    ssize_t got;

    do {
        if (!fd_channel_check(c, "read from", errp)) {
            return -1;
        }
        got = recv(c->read_fd, buf, len, MSG_PEEK);
        if (got == 0 && !fd_channel_check(c, "read from", errp)) {
            return -1;
        }
    } while (got < 0 && fd_channel_again(c, c->read_fd, POLLIN, "read from", errp));
    return got;
}

/* Takes one notification off the error queue: 1, or 0 if there is none, or -1. */
static int take_notification(SocketChannel *s, GError **errp)
{
    char control[256];
    struct msghdr msg = { .msg_control = control, .msg_controllen = sizeof(control) };

    if (recvmsg(s->fd.write_fd, &msg, MSG_ERRQUEUE) < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : fd_channel_fail(&s->fd, "write to", errno, errp);
    }
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
        struct sock_extended_err e;

        if (h->cmsg_len < CMSG_LEN(sizeof(e))) {
            continue;
        }
        memcpy(&e, CMSG_DATA(h), sizeof(e));
        if (e.ee_origin == SO_EE_ORIGIN_ZEROCOPY && e.ee_errno == 0) {
            s->zero_copy_done += e.ee_data - e.ee_info + 1;
            s->zero_copy_copied |= !!(e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED);
        }
    }
    return 1;
}

/* Waits for at least one notification.  There must be calls that were not notified. */
static bool wait_notification(SocketChannel *s, GError **errp)
{
    for (bool polled = false;; polled = true) {
        int n = take_notification(s, errp);
        int errnum = 0;
        socklen_t len = sizeof(errnum);

        if (n) {
            return n > 0;
        }
        /*
         * A closed connection keeps poll() from waiting, while the last notifications may still be to come.
         */
        if (polled) {
            fd_channel_wait(&s->fd, -1, 0, 1);
        }
        if (!fd_channel_wait(&s->fd, s->fd.write_fd, 0, -1)) {
            return fd_channel_check(&s->fd, "write to", errp);
        }
        if (getsockopt(s->fd.write_fd, SOL_SOCKET, SO_ERROR, &errnum, &len) == 0 && errnum) {
            fd_channel_fail(&s->fd, "write to", errnum, errp);
            return false;
        }
    }
}

static int socket_flush_zero_copy(Channel *base, GError **errp)
{
    SocketChannel *s = (SocketChannel *)base;

    while (s->zero_copy_done != s->zero_copy_sent) {
        if (!wait_notification(s, errp)) {
            return -1;
        }
    }
    int copied = s->zero_copy_copied;
    s->zero_copy_copied = false;
    trace_channel_flush_zero_copy(base->name, s->zero_copy_done, copied);
    return copied;
}

/*
 * The kernel is out of room for notifications or of memory that it may pin.
 * With calls under way their end makes room; else this one is sent in the ordinary way.
 */
static bool make_zero_copy_room(SocketChannel *s, int *send_flags, GError **errp)
{
    if (s->zero_copy_done != s->zero_copy_sent) {
        return wait_notification(s, errp);
    }
    *send_flags &= ~MSG_ZEROCOPY;
    s->zero_copy_copied = true;
    return true;
}

static ssize_t socket_send(SocketChannel *s, const struct msghdr *msg, int send_flags, GError **errp)
{
    FdChannel *c = &s->fd;
    ssize_t done;

    do {
        if (!fd_channel_check(c, "write to", errp)) {
            return -1;
        }
        done = sendmsg(c->write_fd, msg, send_flags);
        while (done < 0 && errno == ENOBUFS && (send_flags & MSG_ZEROCOPY)) {
            if (!make_zero_copy_room(s, &send_flags, errp)) {
                return -1;
            }
            done = sendmsg(c->write_fd, msg, send_flags);
        }
    } while (done < 0 && fd_channel_again(c, c->write_fd, POLLOUT, "write to", errp));
    if (done > 0 && (send_flags & MSG_ZEROCOPY)) {
        s->zero_copy_sent++;
    }
    return done;
}

static ssize_t socket_writev(Channel *base, const struct iovec *iov, int n, const int *fds, int n_fds,
                             unsigned flags, GError **errp)
{
    union {
        char buf[CMSG_SPACE(CHANNEL_MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control = { 0 };
    struct msghdr msg = { .msg_iov = (struct iovec *)iov, .msg_iovlen = n };

    if (n_fds > CHANNEL_MAX_FDS) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Unable to write to socket: %d descriptors are more than %d", n_fds, CHANNEL_MAX_FDS);
        return -1;
    }
    if (n_fds) {
        msg.msg_control = control.buf;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *h = CMSG_FIRSTHDR(&msg);

        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(h), fds, n_fds * sizeof(int));
    }
    return socket_send((SocketChannel *)base, &msg,
                       MSG_NOSIGNAL | (flags & CHANNEL_WRITE_ZERO_COPY ? MSG_ZEROCOPY : 0), errp);
}

static void socket_shutdown(Channel *base)
{
    FdChannel *c = (FdChannel *)base;

    fd_channel_shutdown(base);
    g_mutex_lock(&c->lock);
    if (!c->closed) {
        shutdown(c->read_fd, SHUT_RDWR);
    }
    g_mutex_unlock(&c->lock);
}

static const ChannelOps socket_ops = {
    .kind = "socket",
    .readv = fd_channel_readv,
    .readv_fds = socket_readv_fds,
    .writev = socket_writev,
    .peek = socket_peek,
    .flush_zero_copy = socket_flush_zero_copy,
    .shutdown = socket_shutdown,
    .close = fd_channel_close,
    .poll_fd = fd_channel_poll_fd,
    .free = fd_channel_free,
};

Channel *channel_socket_new(int fd, bool multi, GError **errp)
{
    g_autofree SocketChannel *s = g_new0(SocketChannel, 1);
    int domain = socket_domain(fd);
    int on = 1;

    socket_set_options(fd);
    s->fd.base.features = CHANNEL_FEATURE_PEEK | (multi ? CHANNEL_FEATURE_MULTI : 0) |
                          (domain == AF_UNIX ? CHANNEL_FEATURE_FD_PASS : 0);
    if (domain != AF_UNIX && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) == 0) {
        s->fd.base.features |= CHANNEL_FEATURE_ZERO_COPY;
    }
    if (!fd_channel_init(&s->fd, &socket_ops, fd, fd, errp)) {
        return NULL;
    }
    return &g_steal_pointer(&s)->fd.base;
}
