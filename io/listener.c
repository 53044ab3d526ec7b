/* SPDX-License-Identifier: BSD-2-Clause */
/* Listening sockets on a GLib main context. */
#include "channel-fd.h"
#include "io/transport.h"
#include "socket-address.h"
#include "trace-io.h"
#include "util/error.h"
#include "util/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long accept() rests when the process is out of descriptors or memory. */
#define ACCEPT_RETRY_MS 100

/* How often a free port is looked for that is free in all families at once. */
#define FREE_PORT_ATTEMPTS 20

typedef struct ListenSocket {
    Listener *listener;
    int fd;
    GSource *source;        /* accepts, or waits to accept again; NULL before listener_start() */
} ListenSocket;

struct Listener {
    GPtrArray *sockets;             /* of ListenSocket */
    SocketAddressList *addresses;
    char *unix_path;                /* the file that we created, with its identity */
    dev_t unix_dev;
    ino_t unix_ino;
    GMainContext *context;
    ListenerFunc func;
    void *opaque;
};

static void stop_source(ListenSocket *s)
{
    if (s->source) {
        g_source_destroy(s->source);
        g_source_unref(s->source);
        s->source = NULL;
    }
}

static void listen_socket_free(void *opaque)
{
    ListenSocket *s = opaque;

    stop_source(s);
    close(s->fd);
    g_free(s);
}

static void add_socket(Listener *l, int fd)
{
    ListenSocket *s = g_new0(ListenSocket, 1);

    s->listener = l;
    s->fd = fd;
    g_ptr_array_add(l->sockets, s);
}

/* ---- binding ---- */

/* The port of an inet endpoint, in network order. */
static in_port_t *endpoint_port(Endpoint *e)
{
    return e->sa.sa_family == AF_INET ? &e->in.sin_port : &e->in6.sin6_port;
}

typedef struct Bind {
    Listener *listener;
    const SocketAddress *addr;
    GArray *endpoints;
    int backlog;
} Bind;

/* An IPv6 socket takes IPv4 connections too if these are wanted and have no socket of their own. */
static int wants_v6only(const Bind *b)
{
    const InetSocketAddress *inet = b->addr->u.inet;
    bool ipv4_off = inet->has_ipv4 ? !inet->ipv4 : inet->has_ipv6 && inet->ipv6;

    return ipv4_off || b->endpoints->len > 1;
}

static void set_bind_error(const SocketAddress *addr, int errnum, GError **errp)
{
    if (addr->type == SOCKET_ADDRESS_TYPE_UNIX) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "Failed to bind socket to %s", addr->u.q_unix->path);
    } else if (addr->type == SOCKET_ADDRESS_TYPE_INET && errnum == EADDRINUSE) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "Failed to find an available port");
    } else {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "Failed to bind socket");
    }
}

/* 0, or an errno with @errp set. */
static int bind_endpoint(const Bind *b, const Endpoint *e, GError **errp)
{
    int on = 1, v6only;
    int fd = endpoint_socket(e, b->addr, errp);

    if (fd < 0) {
        return errno;
    }
    if (b->addr->type == SOCKET_ADDRESS_TYPE_INET) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    }
    if (e->sa.sa_family == AF_INET6) {
        v6only = wants_v6only(b);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof(v6only));
    }
    if (bind(fd, &e->sa, e->len) < 0 || listen(fd, b->backlog) < 0) {
        int errnum = errno;

        set_bind_error(b->addr, errnum, errp);
        close(fd);
        return errnum;
    }
    add_socket(b->listener, fd);
    return 0;
}

/*
 * Binds all endpoints to @port; with port 0 the first one's choice is for all.  0, or an errno with @errp
 * set.
 */
static int bind_port(const Bind *b, unsigned port, GError **errp)
{
    g_autoptr(GError) err = NULL;
    int errnum = 0;

    for (guint i = 0; i < b->endpoints->len; i++) {
        Endpoint e = g_array_index(b->endpoints, Endpoint, i);
        GPtrArray *sockets = b->listener->sockets;

        *endpoint_port(&e) = htons(port);
        g_clear_error(&err);
        errnum = bind_endpoint(b, &e, &err);
        if (errnum && errnum != EAFNOSUPPORT && errnum != EADDRNOTAVAIL) {
            g_ptr_array_set_size(sockets, 0);
            break;
        }
        if (!errnum && port == 0) {
            Endpoint bound = { .len = sizeof(bound.storage) };

            getsockname(((ListenSocket *)g_ptr_array_index(sockets, 0))->fd, &bound.sa, &bound.len);
            port = ntohs(*endpoint_port(&bound));
        }
    }
    /* A family that this host does not have matters only if nothing else is left. */
    if (b->listener->sockets->len) {
        return 0;
    }
    g_propagate_error(errp, g_steal_pointer(&err));
    return errnum;
}

static bool bind_inet(const Bind *b, GError **errp)
{
    const InetSocketAddress *inet = b->addr->u.inet;
    unsigned first = ntohs(*endpoint_port(&g_array_index(b->endpoints, Endpoint, 0)));
    unsigned last = inet->has_to ? inet->to : first;
    unsigned attempts = first == 0 ? FREE_PORT_ATTEMPTS : 1;

    if (last < first) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameter 'to' expects a port from %u to %u, not %u", first, UINT16_MAX, last);
        return false;
    }
    for (unsigned port = first;;) {
        g_autoptr(GError) err = NULL;
        int errnum = bind_port(b, port, &err);

        if (!errnum) {
            return true;
        }
        if (errnum == EADDRINUSE && --attempts > 0) {
            continue;
        }
        if (errnum != EADDRINUSE || port >= last) {
            g_propagate_error(errp, g_steal_pointer(&err));
            return false;
        }
        attempts = 1;
        port++;
    }
}

/*
 * A socket that a listener left behind would be in the way; anything else with that name is not ours to
 * remove.
 */
static bool bind_unix(const Bind *b, GError **errp)
{
    const UnixSocketAddress *un = b->addr->u.q_unix;
    bool abstract = un->has_abstract && un->abstract;
    struct stat st;

    if (!abstract && lstat(un->path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        unlink(un->path);
    }
    if (bind_endpoint(b, &g_array_index(b->endpoints, Endpoint, 0), errp)) {
        return false;
    }
    if (!abstract && lstat(un->path, &st) == 0) {
        b->listener->unix_path = g_strdup(un->path);
        b->listener->unix_dev = st.st_dev;
        b->listener->unix_ino = st.st_ino;
    }
    return true;
}

/* A socket that listens already, inherited at start-up. */
static bool adopt_number(Listener *l, const FdSocketAddress *addr, GError **errp)
{
    guint64 fd;
    int listening = 0, flags = 0;
    socklen_t len = sizeof(listening);

    if (!g_ascii_string_to_unsigned(addr->str, 10, 0, G_MAXINT, &fd, NULL)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "File descriptor named '%s' has not been found", addr->str);
        return false;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0 || !listening ||
        (flags = fcntl(fd, F_GETFL)) < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "File descriptor %s is not a listening socket",
                    addr->str);
        return false;
    }
    add_socket(l, fd);
    return true;
}

static bool bind_address(Listener *l, const SocketAddress *addr, int backlog, GError **errp)
{
    if (addr->type == SOCKET_ADDRESS_TYPE_FD) {
        return adopt_number(l, addr->u.fd, errp);
    }

    g_autoptr(GArray) endpoints = endpoints_resolve(addr, true, NULL, errp);
    Bind b = { l, addr, endpoints, backlog };
    if (!endpoints) {
        return false;
    }
    switch (addr->type) {
    case SOCKET_ADDRESS_TYPE_INET:
        return bind_inet(&b, errp);
    case SOCKET_ADDRESS_TYPE_UNIX:
        return bind_unix(&b, errp);
    default:
        return bind_endpoint(&b, &g_array_index(endpoints, Endpoint, 0), errp) == 0;
    }
}

static bool collect_addresses(Listener *l, GError **errp)
{
    l->addresses = g_new0(SocketAddressList, 1);
    l->addresses->items = g_new0(SocketAddress *, l->sockets->len);
    for (guint i = 0; i < l->sockets->len; i++) {
        const ListenSocket *s = g_ptr_array_index(l->sockets, i);
        SocketAddress *local = socket_address_local(s->fd, errp);

        if (!local) {
            return false;
        }
        l->addresses->items[l->addresses->count++] = local;
    }
    return true;
}

Listener *listener_new(const SocketAddress *addr, int backlog, GError **errp)
{
    g_autofree char *text = socket_address_to_string(addr);
    g_autoptr(Listener) l = g_new0(Listener, 1);

    l->sockets = g_ptr_array_new_with_free_func(listen_socket_free);
    if (fault_point("listener-new", errp) || !bind_address(l, addr, backlog, errp) ||
        !collect_addresses(l, errp)) {
        return NULL;
    }
    trace_listener_new(text, l->sockets->len);
    return g_steal_pointer(&l);
}

/* ---- accepting ---- */

static void watch(ListenSocket *s, GSource *source, GSourceFunc func)
{
    stop_source(s);
    g_source_set_callback(source, func, s, NULL);
    g_source_attach(source, s->listener->context);
    s->source = source;
}

static gboolean accept_ready(int fd, GIOCondition condition, gpointer opaque);

static void watch_socket(ListenSocket *s)
{
    watch(s, g_unix_fd_source_new(s->fd, G_IO_IN), G_SOURCE_FUNC(accept_ready));
}

static gboolean accept_again(gpointer opaque)
{
    watch_socket(opaque);
    return G_SOURCE_CONTINUE;       /* no longer the one that is watched */
}

/* A new connection, or NULL if there is none (any more) or it cannot be had now. */
static Channel *accept_channel(ListenSocket *s)
{
    g_autoptr(GError) err = NULL;
    Channel *c = NULL;
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            trace_listener_rest(g_strerror(errno));
            watch(s, g_timeout_source_new(ACCEPT_RETRY_MS), accept_again);
        }
        return NULL;
    }
    if (fault_point("listener-accept", &err)) {
        close(fd);
    } else {
        c = channel_socket_new(fd, true, &err);
    }
    if (!c) {
        trace_listener_drop(err->message);
    }
    return c;
}

static gboolean accept_ready(int fd, GIOCondition condition, gpointer opaque)
{
    ListenSocket *s = opaque;
    Channel *c = accept_channel(s);

    if (c) {
        trace_listener_accept(fd);
        s->listener->func(s->listener, c, s->listener->opaque);
        /* The listener may be gone now. */
    }
    return G_SOURCE_CONTINUE;
}

void listener_start(Listener *l, ListenerFunc func, void *opaque)
{
    l->func = func;
    l->opaque = opaque;
    l->context = g_main_context_ref_thread_default();
    for (guint i = 0; i < l->sockets->len; i++) {
        watch_socket(g_ptr_array_index(l->sockets, i));
    }
}

const SocketAddressList *listener_addresses(const Listener *l)
{
    return l->addresses;
}

/* Another listener may have put its own socket in place of ours. */
static void remove_unix_file(const Listener *l)
{
    struct stat st;

    if (l->unix_path && lstat(l->unix_path, &st) == 0 && st.st_dev == l->unix_dev &&
        st.st_ino == l->unix_ino) {
        unlink(l->unix_path);
    }
}

void listener_free(Listener *l)
{
    if (!l) {
        return;
    }
    remove_unix_file(l);
    g_ptr_array_unref(l->sockets);
    qapi_free_SocketAddressList(l->addresses);
    g_clear_pointer(&l->context, g_main_context_unref);
    g_free(l->unix_path);
    g_free(l);
}
