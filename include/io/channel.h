/* SPDX-License-Identifier: BSD-2-Clause */
/* Channel: ordered bytes, or a seekable file, under one set of operations. */
#ifndef GODWIT_IO_CHANNEL_H
#define GODWIT_IO_CHANNEL_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/*
 * A Channel blocks: a read or write returns when at least one byte has moved, at
 * end of file, on error, or when some other thread calls channel_shutdown().
 * After a shutdown every call, running or later, returns an error at once; this holds
 * for every kind of channel, pipes and commands included.  That is how cancel works.
 *
 * One thread may read while another writes.  Reference counting and
 * channel_shutdown() are for any thread.
 *
 * Messages are worded here: "Unable to write to socket: Broken pipe".
 */
typedef struct Channel Channel;

typedef enum {
    CHANNEL_FEATURE_READ      = 1 << 0,
    CHANNEL_FEATURE_WRITE     = 1 << 1,
    CHANNEL_FEATURE_SEEKABLE  = 1 << 2,   /* preadv and pwritev work */
    CHANNEL_FEATURE_FD_PASS   = 1 << 3,   /* a unix socket: descriptors travel with the bytes */
    CHANNEL_FEATURE_ZERO_COPY = 1 << 4,   /* MSG_ZEROCOPY was accepted by the kernel */
    CHANNEL_FEATURE_PEEK      = 1 << 5,   /* channel_peek() works */
    CHANNEL_FEATURE_MULTI     = 1 << 6,   /* tcp, unix, vsock: the same address may be connected to again */
} ChannelFeature;

typedef enum {
    CHANNEL_WRITE_ZERO_COPY = 1 << 0,     /* memory must stay unchanged until channel_flush_zero_copy() */
} ChannelWriteFlags;

/*
 * What a kind of channel implements.  Each returns as its channel_*() namesake
 * says.  An operation whose feature the channel does not have is never called and may be NULL: readv_fds
 * (FD_PASS), preadv, pwritev and seek (SEEKABLE), peek (PEEK), flush_zero_copy (ZERO_COPY).
 */
typedef struct ChannelOps {
    const char *kind;       /* "socket", "command", "file", "fd", ...: the word used in messages */
    ssize_t (*readv)(Channel *c, const struct iovec *iov, int n, GError **errp);
    ssize_t (*readv_fds)(Channel *c, const struct iovec *iov, int n, GArray *fds, GError **errp);
    ssize_t (*writev)(Channel *c, const struct iovec *iov, int n, const int *fds, int n_fds,
                      unsigned flags, GError **errp);
    ssize_t (*preadv)(Channel *c, const struct iovec *iov, int n, off_t offset, GError **errp);
    ssize_t (*pwritev)(Channel *c, const struct iovec *iov, int n, off_t offset, GError **errp);
    ssize_t (*peek)(Channel *c, void *buf, size_t len, GError **errp);
    off_t (*seek)(Channel *c, off_t offset, int whence, GError **errp);
    int (*flush_zero_copy)(Channel *c, GError **errp);
    void (*shutdown)(Channel *c);
    bool (*close)(Channel *c, GError **errp);
    int (*poll_fd)(Channel *c);
    void (*free)(Channel *c);
} ChannelOps;

struct Channel {
    const ChannelOps *ops;
    unsigned features;      /* ChannelFeature; fixed once the channel is handed out */
    int ref_count;          /* atomic */
    char *name;             /* for traces, e.g. "migration-main"; set by the owner */
};

Channel *channel_ref(Channel *c);
void channel_unref(Channel *c);     /* NULL is fine; the last reference closes */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Channel, channel_unref)

/* For traces.  Before any other thread knows @c. */
void channel_set_name(Channel *c, const char *name);
bool channel_has_feature(const Channel *c, ChannelFeature feature);

/* Number of bytes read, 0 at end of file, -1 on error. */
ssize_t channel_readv(Channel *c, const struct iovec *iov, int n, GError **errp);
ssize_t channel_read(Channel *c, void *buf, size_t len, GError **errp);

/*
 * Like channel_readv(), but descriptors that came with the bytes are appended
 * to @fds (of int), the caller's to close.  Needs CHANNEL_FEATURE_FD_PASS; with
 * the other read functions the kernel drops descriptors that come.
 */
#define CHANNEL_MAX_FDS 16      /* more in one message are dropped */
ssize_t channel_readv_fds(Channel *c, const struct iovec *iov, int n, GArray *fds, GError **errp);

/* Reads exactly @len bytes; an early end of file is GODWIT_ERROR_EOF. */
bool channel_read_all(Channel *c, void *buf, size_t len, GError **errp);

/* The same into several pieces.  @iov is used as scratch and has no meaning afterwards; any @n. */
bool channel_readv_all(Channel *c, struct iovec *iov, size_t n, GError **errp);

/* Like channel_read_all(), but 0 if the file ended before the first byte, 1 if all was read, -1 on error. */
int channel_read_all_eof(Channel *c, void *buf, size_t len, GError **errp);

/* Number of bytes written, at least 1, or -1.  @fds need CHANNEL_FEATURE_FD_PASS. */
ssize_t channel_writev(Channel *c, const struct iovec *iov, int n, const int *fds, int n_fds,
                       unsigned flags, GError **errp);

/* Writes everything.  @iov is used as scratch and has no meaning afterwards; any @n, split at IOV_MAX. */
bool channel_writev_all(Channel *c, struct iovec *iov, size_t n, unsigned flags, GError **errp);
bool channel_write_all(Channel *c, const void *buf, size_t len, GError **errp);

/* Needs CHANNEL_FEATURE_SEEKABLE.  All bytes or an error; @offset is absolute in the file. */
bool channel_pread_all(Channel *c, void *buf, size_t len, off_t offset, GError **errp);
bool channel_pwritev_all(Channel *c, struct iovec *iov, size_t n, off_t offset, GError **errp);
off_t channel_seek(Channel *c, off_t offset, int whence, GError **errp);

/* Looks at up to @len bytes without taking them; waits for at least one.  0 at end of file. */
ssize_t channel_peek(Channel *c, void *buf, size_t len, GError **errp);

/*
 * Waits until the kernel is done with all memory given with
 * CHANNEL_WRITE_ZERO_COPY.  1 if the kernel copied at least once since the last
 * flush, 0 if it never did or the channel does not have the feature, -1 on error.  The writer's thread.
 */
int channel_flush_zero_copy(Channel *c, GError **errp);

/*
 * Any thread that holds a reference, any number of times: ends all I/O on the
 * channel, now.  Closing a command then no longer waits for it to end by itself.
 */
void channel_shutdown(Channel *c);

/*
 * Closes and reports what only closing can report: a command's exit status, a
 * delayed write error.  Not while another thread reads or writes; later calls do nothing and return true.
 */
bool channel_close(Channel *c, GError **errp);

/* A descriptor that polls readable when a read would not block, for main loops; -1 if there is none. */
int channel_poll_fd(Channel *c);

#endif
