/* SPDX-License-Identifier: BSD-2-Clause */
/* Making channels: connect, listen, spawn, open, adopt a descriptor. */
#ifndef GODWIT_IO_TRANSPORT_H
#define GODWIT_IO_TRANSPORT_H

#include "io/channel.h"
#include "qapi/qapi-types-sockets.h"
#include <gio/gio.h>

/*
 * Connects to @addr (inet, unix, vsock or fd; for fd only numbers, names are the
 * caller's to look up).  Blocks; @cancellable (may be NULL) ends it from another
 * thread, name resolution included.  Errors in the words of the peers:
 * "Failed to connect to '127.0.0.1:1': Connection refused".
 */
Channel *channel_socket_connect(const SocketAddress *addr, GCancellable *cancellable, GError **errp);

/*
 * Adopts @fd, a connected socket, a pipe, a character device or a regular file.
 * The channel closes it at the end; if there is no channel because of an error, it is closed at once.
 */
Channel *channel_from_fd(int fd, GError **errp);

/*
 * False if @fd is a regular file or something else that can seek, /dev/null included, or no descriptor at
 * all.
 */
bool channel_fd_is_stream(int fd);

/* "tcp:127.0.0.1:4444", "tcp:[::1]:4444", "unix:PATH", "vsock:CID:PORT", "fd:NAME"; caller frees. */
char *socket_address_to_string(const SocketAddress *addr);

/*
 * The kernel's addresses (GArray of struct sockaddr_storage, at least one; the caller's) that @inet stands
 * for, for transports that are not sockets.  @passive: to listen on; an empty host is then any address.  A
 * look-up of names can be ended by @cancellable, which may be NULL.
 */
GArray *inet_address_resolve(const InetSocketAddress *inet, bool passive, GCancellable *cancellable,
                             GError **errp);

/* A listening socket.  Main-loop object: belongs to the thread that created it. */
typedef struct Listener Listener;

/*
 * Called in the listener's thread with each new connection, which it comes to
 * own.  It may free the listener.  Errors of accept() itself are retried.
 */
typedef void (*ListenerFunc)(Listener *listener, Channel *channel, void *opaque);

/*
 * Listens on every address that @addr resolves to, all with the same port; inet
 * port "0" picks a free one, `to` tries a range.  A unix socket's file that is
 * already there is replaced, any other file is not.  fd: a number, a socket that listens already.
 */
Listener *listener_new(const SocketAddress *addr, int backlog, GError **errp);

/* Starts accepting in the default main context of the calling thread. */
void listener_start(Listener *listener, ListenerFunc func, void *opaque);

/* The addresses that are really bound, real ports included; owned by the listener. */
const SocketAddressList *listener_addresses(const Listener *listener);

/*
 * Stops listening, closes, removes the unix socket's file if it is still the listener's own.  NULL is fine.
 */
void listener_free(Listener *listener);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Listener, listener_free)

/*
 * Runs argv (no shell, no search in PATH) with its standard input and output on
 * the channel, or on /dev/null if not writable or readable; standard error is inherited.  Closing waits for
 * the child; a child that ended with an error is an error of channel_close().  After
 * channel_shutdown() closing gives it half a second, then SIGTERM, then SIGKILL.
 */
Channel *channel_command_spawn(const char *const *argv, bool readable, bool writable, GError **errp);

/*
 * Opens @path with open(2) flags and mode.  "Could not open 'PATH': ...", or with O_CREAT "Could not create".
 */
Channel *channel_file_open(const char *path, int flags, mode_t mode, GError **errp);

/*
 * Cuts the file of a channel from channel_file_open() or channel_from_fd() to @length bytes.  0, or an errno.
 */
int channel_file_truncate(Channel *c, off_t length);

/* The descriptor of such a channel; it stays the channel's. */
int channel_file_fd(const Channel *c);

/* Frees the file's blocks in the range, which then reads as zeroes; its length stays.  0, or an errno. */
int channel_file_punch_hole(Channel *c, off_t offset, off_t length);

/* Waits until the file is on the disk. */
bool channel_file_sync(Channel *c, GError **errp);

/*
 * A channel in memory for tests: writes append, reads take from the front, the
 * end of what is there is the end of the file.  Seeking moves the place of the next read.  Any threads.
 */
Channel *channel_buffer_new(const void *data, size_t len);
const GByteArray *channel_buffer_bytes(const Channel *c);

#endif
