/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket options that every socket of ours gets. */
#include "socket-options.h"

#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

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
