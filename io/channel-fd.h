/* SPDX-License-Identifier: BSD-2-Clause */
/* What all channels over file descriptors have in common. */
#ifndef GODWIT_IO_CHANNEL_FD_H
#define GODWIT_IO_CHANNEL_FD_H

#include "io/channel.h"

/*
 * How shutdown unblocks a thread:
 *
 * - A socket stays blocking; shutdown(2) makes the call in progress return.
 * - Pipes, character devices and commands are made non-blocking.  Only when a
 *   call would block does the thread poll, for the descriptor and for wake_fd.
 * - Regular files do not block for long; each call looks at `down` first.
 *
 * `down` is set before anything is woken, so whoever returns from a call or a poll sees it.
 */
typedef struct FdChannel {
    Channel base;
    int read_fd;        /* -1 if none; may equal write_fd */
    int write_fd;
    int wake_fd;        /* eventfd, readable from channel_shutdown() on */
    int down;           /* atomic */
    bool nonblock_set[2];   /* O_NONBLOCK of read_fd, write_fd was set by us */
    GMutex lock;        /* keeps channel_shutdown() off descriptors that are being closed */
    bool closed;        /* lock */
} FdChannel;

/* Takes over the descriptors.  On failure they are closed and @c is left for g_free(). */
bool fd_channel_init(FdChannel *c, const ChannelOps *ops, int read_fd, int write_fd, GError **errp);

/* Makes the descriptors non-blocking until the channel is closed. */
bool fd_channel_set_nonblocking(FdChannel *c, GError **errp);

bool fd_channel_is_down(FdChannel *c);

/* Polls @fd for @events; false if the channel was shut down.  @timeout_ms of -1 is for ever. */
bool fd_channel_wait(FdChannel *c, int fd, short events, int timeout_ms);

/*
 * After a system call that returned -1: true if it is to be called again (after
 * waiting for @events if it would have blocked), else false with @errp set.  @doing: "read from", "write to".
 */
bool fd_channel_again(FdChannel *c, int fd, short events, const char *doing, GError **errp);

/* -1, and an error in the usual words. */
int fd_channel_fail(FdChannel *c, const char *doing, int errnum, GError **errp);

/* False with an error if the channel was shut down. */
bool fd_channel_check(FdChannel *c, const char *doing, GError **errp);

/* Operations that do for most kinds. */
ssize_t fd_channel_readv(Channel *base, const struct iovec *iov, int n, GError **errp);
ssize_t fd_channel_writev(Channel *base, const struct iovec *iov, int n, const int *fds, int n_fds,
                          unsigned flags, GError **errp);
void fd_channel_shutdown(Channel *base);
bool fd_channel_close(Channel *base, GError **errp);
int fd_channel_poll_fd(Channel *base);
void fd_channel_free(Channel *base);

/* A channel over a connected socket, which it takes over.  @multi: CHANNEL_FEATURE_MULTI. */
Channel *channel_socket_new(int fd, bool multi, GError **errp);

#endif
