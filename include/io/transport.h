/* SPDX-License-Identifier: BSD-2-Clause */
/* Making channels: connect, listen, spawn, open, adopt a descriptor. */
#ifndef GODWIT_IO_TRANSPORT_H
#define GODWIT_IO_TRANSPORT_H

#include "io/channel.h"
#include "qapi/qapi-types-sockets.h"
#include <gio/gio.h>

/*
 * Connects to @addr (inet, unix, vsock or fd).  Blocks; @cancellable (may be
 * NULL) ends it from another thread.  Errors in the words of the peers:
 * "Failed to connect to '127.0.0.1:1': Connection refused".
 */
Channel *channel_socket_connect(const SocketAddress *addr, GCancellable *cancellable, GError **errp);

/* Adopts @fd, a connected socket, a pipe, a character device or a regular file; closes it at the end. */
Channel *channel_from_fd(int fd, GError **errp);

/* A listening socket.  Main-loop object: belongs to the thread that created it. */
typedef struct Listener Listener;

/*
 * Called in the listener's thread with each new connection, which it comes to
 * own.  Errors of accept() itself are retried.
 */
typedef void (*ListenerFunc)(Listener *listener, Channel *channel, void *opaque);

/* Listens on every address that @addr resolves to; inet port "0" picks a free port, `to` tries a range. */
Listener *listener_new(const SocketAddress *addr, int backlog, GError **errp);

/* Starts accepting in the default main context of the calling thread. */
void listener_start(Listener *listener, ListenerFunc func, void *opaque);

/* The addresses that are really bound, real ports included; owned by the listener. */
const SocketAddressList *listener_addresses(const Listener *listener);

/* Stops listening, closes, removes a unix socket's file. */
void listener_free(Listener *listener);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Listener, listener_free)

/*
 * Runs argv (no shell) with its standard input and output on the channel; standard error
 * is inherited.  Closing waits for the child; a child that ended with an error is an error of channel_close().
 */
Channel *channel_command_spawn(const char *const *argv, bool readable, bool writable, GError **errp);

/* Opens @path with open(2) flags and mode. */
Channel *channel_file_open(const char *path, int flags, mode_t mode, GError **errp);

/* A channel in memory for tests: what is written can be read again. */
Channel *channel_buffer_new(const void *data, size_t len);
const GByteArray *channel_buffer_bytes(const Channel *c);

#endif
