/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket options that every socket of ours gets. */
#ifndef GODWIT_IO_SOCKET_OPTIONS_H
#define GODWIT_IO_SOCKET_OPTIONS_H

#include <stdbool.h>
#include <sys/socket.h>

/* The address family, or -1. */
int socket_domain(int fd);

/*
 * Big buffers, no delay for small writes.  For sockets that are going to connect or listen: before they
 * do, because TCP agrees on its window scale then.  Accepted sockets inherit.  Nothing here can fail the
 * caller.
 */
void socket_set_options(int fd);

/* Whether a connection to @to, of @to_len bytes, has both ends on this machine, as far as the routes tell. */
bool socket_stays_here(const struct sockaddr *to, socklen_t to_len);

/*
 * For a TCP socket that is about to connect to @to.  A connection that stays on the machine has no congestion
 * to control, and algorithms that pace (BBR) take a third of the sender's time for the timers they set: it
 * uses "reno", which every kernel has and everybody may choose.  Others keep what the system has been set to.
 * Nothing here can fail the caller.
 */
void socket_set_destination(int fd, const struct sockaddr *to, socklen_t to_len);

#endif
