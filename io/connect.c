/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting to a socket address. */
#include "channel-fd.h"
#include "io/transport.h"
#include "socket-address.h"
#include "socket-options.h"
#include "trace-io.h"
#include "util/error.h"
#include "util/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

/*
 * A unix listener with a full backlog refuses a non-blocking connect for the moment: ask again after this
 * time.
 */
#define BACKLOG_RETRY_MS 10

/* Connects the non-blocking @fd.  0, or an errno; ECANCELED if cancelled. */
static int connect_fd(int fd, const Endpoint *e, GCancellable *cancellable)
{
    int errnum = 0;
    socklen_t len = sizeof(errnum);
    bool pending = false;

    while (!pending) {
        if (connect(fd, &e->sa, e->len) == 0) {
            return 0;
        }
        pending = errno == EINPROGRESS || errno == EINTR;
        if (!pending && errno != EAGAIN) {
            return errno;
        }
        if (!pending && !wait_unless_cancelled(-1, 0, BACKLOG_RETRY_MS, cancellable)) {
            return ECANCELED;
        }
    }

    struct pollfd ready = { .fd = fd, .events = POLLOUT };
    while (poll(&ready, 1, 0) <= 0) {
        if (!wait_unless_cancelled(fd, POLLOUT, -1, cancellable)) {
            return ECANCELED;
        }
    }
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &len) < 0 ? errno : errnum;
}

static bool set_blocking(int fd, GError **errp)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Unable to make a socket blocking");
        return false;
    }
    return true;
}

static Channel *connect_endpoint(const Endpoint *e, const SocketAddress *addr, GCancellable *cancellable,
                                 GError **errp)
{
    int fd = endpoint_socket(e, addr, errp);

    if (fd < 0) {
        return NULL;
    }
    socket_set_destination(fd, &e->sa, e->len);
    int errnum = connect_fd(fd, e, cancellable);
    if (errnum) {
        g_autofree char *label = socket_address_label(addr);

        error_set_errno(errp, errnum == ECANCELED ? GODWIT_ERROR_CANCELLED : GODWIT_ERROR_IO, errnum,
                        "Failed to connect to '%s'", label);
        close(fd);
        return NULL;
    }
    if (!set_blocking(fd, errp)) {
        close(fd);
        return NULL;
    }
    return channel_socket_new(fd, true, errp);
}

static Channel *connect_number(const FdSocketAddress *addr, GError **errp)
{
    guint64 fd;

    if (!g_ascii_string_to_unsigned(addr->str, 10, 0, G_MAXINT, &fd, NULL)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "File descriptor named '%s' has not been found", addr->str);
        return NULL;
    }
    return channel_from_fd(fd, errp);
}

Channel *channel_socket_connect(const SocketAddress *addr, GCancellable *cancellable, GError **errp)
{
    g_autofree char *text = socket_address_to_string(addr);

    trace_channel_connect(text);
    if (fault_point("channel-connect", errp)) {
        return NULL;
    }
    if (addr->type == SOCKET_ADDRESS_TYPE_FD) {
        return connect_number(addr->u.fd, errp);
    }

    g_autoptr(GArray) list = endpoints_resolve(addr, false, cancellable, errp);
    if (!list) {
        return NULL;
    }
    /* The error of the last endpoint is the one that is told, unless it is that of the user's cancel. */
    g_autoptr(GError) err = NULL;
    for (guint i = 0; i < list->len; i++) {
        g_clear_error(&err);
        Channel *c = connect_endpoint(&g_array_index(list, Endpoint, i), addr, cancellable, &err);

        if (c) {
            return c;
        }
        if (g_error_matches(err, GODWIT_ERROR, GODWIT_ERROR_CANCELLED)) {
            break;
        }
    }
    g_propagate_error(errp, g_steal_pointer(&err));
    return NULL;
}
