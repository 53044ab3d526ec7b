/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket addresses: from the schema's form to the kernel's and back. */
#ifndef GODWIT_IO_SOCKET_ADDRESS_H
#define GODWIT_IO_SOCKET_ADDRESS_H

#include "qapi/qapi-types-sockets.h"

#include <gio/gio.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

/* One address as the kernel knows it. */
typedef struct Endpoint {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
        struct sockaddr_vm vm;
        struct sockaddr_storage storage;
    };
    socklen_t len;
    int protocol;
} Endpoint;

/*
 * All endpoints (GArray of Endpoint, at least one) that @addr, of type inet,
 * unix or vsock, stands for.  A look-up of names that @cancellable (may be NULL) interrupts goes on in a
 * thread of its own.  @passive: to listen on; an empty host is then any address, IPv6 first.
 */
GArray *endpoints_resolve(const SocketAddress *addr, bool passive, GCancellable *cancellable, GError **errp);

/*
 * Polls @fd (-1: none) for @events, at most @timeout_ms (-1: for ever).  False once @cancellable is
 * cancelled.
 */
bool wait_unless_cancelled(int fd, short events, int timeout_ms, GCancellable *cancellable);

/*
 * A new socket for @endpoint with our options and the address's keep-alive settings; -1 and errno on error.
 */
int endpoint_socket(const Endpoint *endpoint, const SocketAddress *addr, GError **errp);

/* The local address of @fd.  NULL for a family that the schema does not know. */
SocketAddress *socket_address_local(int fd, GError **errp);

/* "127.0.0.1:4444", "::1:4444", a path, "2:4444": as error messages name it. */
char *socket_address_label(const SocketAddress *addr);

#endif
