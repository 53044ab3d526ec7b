/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket options that every socket of ours gets. */
#include "socket-options.h"

#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_SIZE (4 * 1024 * 1024)

int socket_domain(int fd)
{
    int domain = -1;
    socklen_t len = sizeof(domain);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 ? domain : -1;
}

/* What an ordinary process may ask for, from a file under /proc/sys; 0 if that cannot be read. */
static long allowed_size(const char *path)
{
    FILE *f = fopen(path, "re");
    long size = 0;

    if (f) {
        if (fscanf(f, "%ld", &size) != 1) {
            size = 0;
        }
        fclose(f);
    }
    return size;
}

/*
 * A size that is set ends TCP's own tuning, which goes up to a few MiB by
 * itself; so an unprivileged process sets one only where it may set a big one.
 */
static void set_buffer(int fd, int option, int force_option, const char *limit, bool tuned_by_kernel)
{
    int size = BUFFER_SIZE;

    if (setsockopt(fd, SOL_SOCKET, force_option, &size, sizeof(size)) == 0) {
        return;
    }
    if (!tuned_by_kernel || allowed_size(limit) >= BUFFER_SIZE) {
        setsockopt(fd, SOL_SOCKET, option, &size, sizeof(size));
    }
}

void socket_set_options(int fd)
{
    int domain = socket_domain(fd);
    bool inet = domain == AF_INET || domain == AF_INET6;
    int on = 1;

    set_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE, "/proc/sys/net/core/wmem_max", inet);
    set_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE, "/proc/sys/net/core/rmem_max", inet);
    if (inet) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    if (domain == AF_VSOCK) {
        uint64_t size = BUFFER_SIZE;

        setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &size, sizeof(size));
        setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, sizeof(size));
    }
}

/* ---- connections that stay on the machine ---- */

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)a, *b4 = (const struct sockaddr_in *)b;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a, *b6 = (const struct sockaddr_in6 *)b;

    return a->ss_family == AF_INET ? a4->sin_addr.s_addr == b4->sin_addr.s_addr
                                   : IN6_ARE_ADDR_EQUAL(&a6->sin6_addr, &b6->sin6_addr);
}

/* 127.0.0.0/8 as a whole: what connects to 127.0.0.2 comes from 127.0.0.1. */
static bool is_loopback(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET && ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
}

bool socket_stays_here(const struct sockaddr *to, socklen_t to_len)
{
    struct sockaddr_storage from = { 0 }, peer = { 0 };
    socklen_t from_len = sizeof(from), peer_len = sizeof(peer);

    if (to->sa_family != AF_INET && to->sa_family != AF_INET6) {
        return false;
    }
    /* Nothing is sent: a datagram socket that is connected has only looked up its route. */
    int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool routed = connect(fd, to, to_len) == 0 && getsockname(fd, (struct sockaddr *)&from, &from_len) == 0 &&
                  getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0;
    close(fd);
    return routed && (is_loopback(&peer) || same_address(&from, &peer));
}

void socket_set_destination(int fd, const struct sockaddr *to, socklen_t to_len)
{
    if (socket_stays_here(to, to_len)) {
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
    }
}
