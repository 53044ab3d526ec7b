/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket options that every socket of ours gets. */
#ifndef GODWIT_IO_SOCKET_OPTIONS_H
#define GODWIT_IO_SOCKET_OPTIONS_H

/* The address family, or -1. */
int socket_domain(int fd);

/*
 * Big buffers, no delay for small writes.  For sockets that are going to connect or listen: before they
 * do, because TCP agrees on its window scale then.  Accepted sockets inherit.  Nothing here can fail the
 * caller.
 */
void socket_set_options(int fd);

#endif
