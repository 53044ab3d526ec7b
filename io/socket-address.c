/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket addresses: from the schema's form to the kernel's and back. */
#include "socket-address.h"

#include "io/transport.h"
#include "socket-options.h"
#include "util/error.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

char *socket_address_label(const SocketAddress *addr)
{
    switch (addr->type) {
    case SOCKET_ADDRESS_TYPE_INET:
        return g_strdup_printf("%s:%s", addr->u.inet->host, addr->u.inet->port);
    case SOCKET_ADDRESS_TYPE_UNIX:
        return g_strdup(addr->u.q_unix->path);
    case SOCKET_ADDRESS_TYPE_VSOCK:
        return g_strdup_printf("%s:%s", addr->u.vsock->cid, addr->u.vsock->port);
    default:
        return g_strdup(addr->u.fd->str);
    }
}

char *socket_address_to_string(const SocketAddress *addr)
{
    static const char *const scheme[] = {
        [SOCKET_ADDRESS_TYPE_INET] = "tcp", [SOCKET_ADDRESS_TYPE_UNIX] = "unix",
        [SOCKET_ADDRESS_TYPE_VSOCK] = "vsock", [SOCKET_ADDRESS_TYPE_FD] = "fd",
    };

    const char *host = addr->type == SOCKET_ADDRESS_TYPE_INET ? addr->u.inet->host : NULL;

    if (host && (strpbrk(host, ":,") || *host == '[')) {
        return g_strdup_printf("tcp:[%s]:%s", host, addr->u.inet->port);
    }
    g_autofree char *label = socket_address_label(addr);
    return g_strdup_printf("%s:%s", scheme[addr->type], label);
}

/* ---- inet ---- */

/* Which families the two flags leave: each may be absent, on or off. */
static bool inet_family(const InetSocketAddress *inet, int *family, GError **errp)
{
    bool want4 = inet->has_ipv4 && inet->ipv4, no4 = inet->has_ipv4 && !inet->ipv4;
    bool want6 = inet->has_ipv6 && inet->ipv6, no6 = inet->has_ipv6 && !inet->ipv6;

    if (no4 && no6) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Cannot disable IPv4 and IPv6 at same time");
        return false;
    }
    if (want4 == want6 && !no4 && !no6) {
        *family = AF_UNSPEC;
    } else {
        *family = no4 || (want6 && !want4) ? AF_INET6 : AF_INET;
    }
    return true;
}

/* A look-up of a name.  Shared by the caller and, while it runs, the thread that does it. */
typedef struct Lookup {
    int ref_count;      /* atomic */
    char *host;         /* NULL: any address */
    char *port;
    struct addrinfo hints;
    int done_fd;        /* eventfd, readable when the thread has written the results; -1 without a thread */
    struct addrinfo *found;
    int code;           /* of getaddrinfo(), with errno */
    int errnum;
} Lookup;

static void lookup_unref(Lookup *l)
{
    if (!g_atomic_int_dec_and_test(&l->ref_count)) {
        return;
    }
    if (l->found) {
        freeaddrinfo(l->found);
    }
    if (l->done_fd >= 0) {
        close(l->done_fd);
    }
    g_free(l->host);
    g_free(l->port);
    g_free(l);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Lookup, lookup_unref)

static bool lookup_now(Lookup *l, int more_flags)
{
    struct addrinfo hints = l->hints;

    hints.ai_flags |= more_flags;
    l->code = getaddrinfo(l->host, l->port, &hints, &l->found);
    l->errnum = errno;
    if (l->code) {
        l->found = NULL;
    }
    return l->code == 0;
}

static void *lookup_thread(void *opaque)
{
    Lookup *l = opaque;
    uint64_t one = 1;

    lookup_now(l, 0);
    while (write(l->done_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    lookup_unref(l);
    return NULL;
}

bool wait_unless_cancelled(int fd, short events, int timeout_ms, GCancellable *cancellable)
{
    struct pollfd fds[2] = { { .fd = fd, .events = events }, { .fd = -1, .events = POLLIN } };
    GPollFD cancel_fd;
    bool has_cancel_fd = cancellable && g_cancellable_make_pollfd(cancellable, &cancel_fd);

    if (has_cancel_fd) {
        fds[1].fd = cancel_fd.fd;
    }
    poll(fds, 2, timeout_ms);
    if (has_cancel_fd) {
        g_cancellable_release_fd(cancellable);
    }
    return !cancellable || !g_cancellable_is_cancelled(cancellable);
}

/* The resolver cannot be interrupted: on a cancel the thread is left to itself.  False if cancelled. */
static bool lookup_in_thread(Lookup *l, GCancellable *cancellable)
{
    uint64_t count;

    l->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->done_fd < 0) {
        lookup_now(l, 0);
        return true;
    }
    g_atomic_int_inc(&l->ref_count);
    GThread *thread = g_thread_try_new("resolver", lookup_thread, l, NULL);
    if (!thread) {
        lookup_unref(l);
        lookup_now(l, 0);
        return true;
    }
    g_thread_unref(thread);
    while (wait_unless_cancelled(l->done_fd, POLLIN, -1, cancellable)) {
        if (read(l->done_fd, &count, sizeof(count)) == sizeof(count)) {
            return true;
        }
    }
    return false;
}

static void set_lookup_error(GError **errp, const char *host, const char *port, const char *reason)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "address resolution failed for %s:%s: %s", host,
                port, reason);
}

/* Numbers are resolved here and now, names in a thread if there is a @cancellable. */
static bool lookup(Lookup *l, GCancellable *cancellable, GError **errp)
{
    const char *host = l->host ? l->host : "";

    if (lookup_now(l, AI_NUMERICHOST | AI_NUMERICSERV)) {
        return true;
    }
    if (!cancellable || (l->hints.ai_flags & AI_NUMERICHOST)) {
        lookup_now(l, 0);
    } else if (!lookup_in_thread(l, cancellable)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "address resolution for %s:%s was cancelled",
                    host, l->port);
        return false;
    }
    if (l->code) {
        set_lookup_error(errp, host, l->port,
                         l->code == EAI_SYSTEM ? g_strerror(l->errnum) : gai_strerror(l->code));
    }
    return l->code == 0;
}

/* getaddrinfo() takes any number for a port and drops the high bits. */
static bool is_bad_port_number(const char *port)
{
    guint64 n;

    return *port && strspn(port, "0123456789") == strlen(port) &&
           !g_ascii_string_to_unsigned(port, 10, 0, UINT16_MAX, &n, NULL);
}

static void append_family(GArray *list, const struct addrinfo *found, int family, int protocol)
{
    for (const struct addrinfo *a = found; a; a = a->ai_next) {
        Endpoint e = { .len = a->ai_addrlen, .protocol = protocol };

        if ((family == AF_UNSPEC || a->ai_family == family) && a->ai_addrlen <= sizeof(e.storage)) {
            memcpy(&e.storage, a->ai_addr, a->ai_addrlen);
            g_array_append_val(list, e);
        }
    }
}

static GArray *resolve_inet(const InetSocketAddress *inet, bool passive, GCancellable *cancellable,
                            GError **errp)
{
    int family, protocol = inet->has_mptcp && inet->mptcp ? IPPROTO_MPTCP : IPPROTO_TCP;
    bool any = passive && *inet->host == '\0';

    if (!inet_family(inet, &family, errp)) {
        return NULL;
    }
    if (is_bad_port_number(inet->port)) {
        set_lookup_error(errp, inet->host, inet->port, gai_strerror(EAI_SERVICE));
        return NULL;
    }

    g_autoptr(Lookup) l = g_new0(Lookup, 1);
    l->ref_count = 1;
    l->done_fd = -1;
    l->host = any ? NULL : g_strdup(inet->host);
    l->port = g_strdup(inet->port);
    l->hints = (struct addrinfo){
        .ai_family = family, .ai_socktype = SOCK_STREAM,
        .ai_flags = (passive ? AI_PASSIVE : 0) |
                    (inet->has_numeric && inet->numeric ? AI_NUMERICHOST | AI_NUMERICSERV : 0),
    };
    if (!lookup(l, cancellable, errp)) {
        return NULL;
    }

    GArray *list = g_array_new(FALSE, FALSE, sizeof(Endpoint));
    if (any) {
        append_family(list, l->found, AF_INET6, protocol);
        append_family(list, l->found, AF_INET, protocol);
    } else {
        append_family(list, l->found, AF_UNSPEC, protocol);
    }
    return list;
}

GArray *inet_address_resolve(const InetSocketAddress *inet, bool passive, GCancellable *cancellable,
                             GError **errp)
{
    GArray *endpoints = resolve_inet(inet, passive, cancellable, errp);
    if (!endpoints) {
        return NULL;
    }
    GArray *list = g_array_new(FALSE, FALSE, sizeof(struct sockaddr_storage));
    for (guint i = 0; i < endpoints->len; i++) {
        g_array_append_val(list, g_array_index(endpoints, Endpoint, i).storage);
    }
    g_array_unref(endpoints);
    return list;
}

/* ---- unix, vsock ---- */

static bool resolve_unix(const UnixSocketAddress *addr, Endpoint *e, GError **errp)
{
    bool abstract = addr->has_abstract && addr->abstract;
    bool tight = !addr->has_tight || addr->tight;
    size_t len = strlen(addr->path);
    size_t room = sizeof(e->un.sun_path) - (abstract ? 1 : 0);

    if (len > room || (!abstract && len == room)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "UNIX socket path '%s' is too long",
                    addr->path);
        return false;
    }
    e->un.sun_family = AF_UNIX;
    memcpy(e->un.sun_path + abstract, addr->path, len);
    e->len = abstract && tight ? offsetof(struct sockaddr_un, sun_path) + 1 + len : sizeof(e->un);
    return true;
}

static bool parse_u32(const char *text, const char *what, unsigned *out, GError **errp)
{
    guint64 n;

    if (!g_ascii_string_to_unsigned(text, 10, 0, UINT32_MAX, &n, NULL)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Failed to parse %s '%s': a number from 0 to %u is expected", what, text, UINT32_MAX);
        return false;
    }
    *out = n;
    return true;
}

static bool resolve_vsock(const VsockSocketAddress *addr, Endpoint *e, GError **errp)
{
    e->vm.svm_family = AF_VSOCK;
    e->len = sizeof(e->vm);
    return parse_u32(addr->cid, "cid", &e->vm.svm_cid, errp) &&
           parse_u32(addr->port, "port", &e->vm.svm_port, errp);
}

GArray *endpoints_resolve(const SocketAddress *addr, bool passive, GCancellable *cancellable, GError **errp)
{
    Endpoint e = { .len = 0 };

    if (addr->type == SOCKET_ADDRESS_TYPE_INET) {
        return resolve_inet(addr->u.inet, passive, cancellable, errp);
    }
    if (addr->type == SOCKET_ADDRESS_TYPE_UNIX ? !resolve_unix(addr->u.q_unix, &e, errp)
                                               : !resolve_vsock(addr->u.vsock, &e, errp)) {
        return NULL;
    }
    GArray *list = g_array_new(FALSE, FALSE, sizeof(Endpoint));
    g_array_append_val(list, e);
    return list;
}

/* ---- sockets ---- */

static bool set_keep_alive(int fd, const InetSocketAddress *inet, GError **errp)
{
    const struct {
        bool has;
        int level, option;
        int64_t value;
        const char *name;
    } settings[] = {
        { inet->has_keep_alive, SOL_SOCKET, SO_KEEPALIVE, inet->keep_alive, "keep-alive" },
        { inet->has_keep_alive_count, IPPROTO_TCP, TCP_KEEPCNT, inet->keep_alive_count, "keep-alive-count" },
        { inet->has_keep_alive_idle, IPPROTO_TCP, TCP_KEEPIDLE, inet->keep_alive_idle, "keep-alive-idle" },
        { inet->has_keep_alive_interval, IPPROTO_TCP, TCP_KEEPINTVL, inet->keep_alive_interval,
          "keep-alive-interval" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(settings); i++) {
        int value = settings[i].value;

        if (settings[i].has &&
            setsockopt(fd, settings[i].level, settings[i].option, &value, sizeof(value)) < 0) {
            error_set_errno(errp, GODWIT_ERROR_INVALID, errno, "Unable to set %s to %" G_GINT64_FORMAT,
                            settings[i].name, settings[i].value);
            return false;
        }
    }
    return true;
}

int endpoint_socket(const Endpoint *e, const SocketAddress *addr, GError **errp)
{
    int fd = socket(e->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, e->protocol);

    if (fd < 0) {
        int errnum = errno;

        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "Failed to create a socket");
        errno = errnum;
        return -1;
    }
    socket_set_options(fd);
    if (addr->type == SOCKET_ADDRESS_TYPE_INET && !set_keep_alive(fd, addr->u.inet, errp)) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

/* ---- back ---- */

static SocketAddress *inet_from_endpoint(const Endpoint *e, GError **errp)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    int code = getnameinfo(&e->sa, e->len, host, sizeof(host), port, sizeof(port),
                           NI_NUMERICHOST | NI_NUMERICSERV);

    if (code) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "Unable to name a socket's address: %s",
                    gai_strerror(code));
        return NULL;
    }
    SocketAddress *addr = g_new0(SocketAddress, 1);
    addr->type = SOCKET_ADDRESS_TYPE_INET;
    addr->u.inet = g_new0(InetSocketAddress, 1);
    addr->u.inet->host = g_strdup(host);
    addr->u.inet->port = g_strdup(port);
    addr->u.inet->has_ipv4 = addr->u.inet->ipv4 = e->sa.sa_family == AF_INET;
    addr->u.inet->has_ipv6 = addr->u.inet->ipv6 = e->sa.sa_family == AF_INET6;
    return addr;
}

static SocketAddress *unix_from_endpoint(const Endpoint *e)
{
    SocketAddress *addr = g_new0(SocketAddress, 1);
    UnixSocketAddress *un = g_new0(UnixSocketAddress, 1);
    size_t len = e->len - MIN(e->len, offsetof(struct sockaddr_un, sun_path));

    addr->type = SOCKET_ADDRESS_TYPE_UNIX;
    addr->u.q_unix = un;
    if (len && e->un.sun_path[0] == '\0') {
        un->has_abstract = un->abstract = true;
        un->has_tight = true;
        un->tight = e->len < sizeof(e->un);
        un->path = g_strndup(e->un.sun_path + 1, len - 1);
    } else {
        un->path = g_strndup(e->un.sun_path, len);
    }
    return addr;
}

static SocketAddress *vsock_from_endpoint(const Endpoint *e)
{
    SocketAddress *addr = g_new0(SocketAddress, 1);

    addr->type = SOCKET_ADDRESS_TYPE_VSOCK;
    addr->u.vsock = g_new0(VsockSocketAddress, 1);
    addr->u.vsock->cid = g_strdup_printf("%u", e->vm.svm_cid);
    addr->u.vsock->port = g_strdup_printf("%u", e->vm.svm_port);
    return addr;
}

SocketAddress *socket_address_local(int fd, GError **errp)
{
    Endpoint e = { .len = sizeof(e.storage) };

    if (getsockname(fd, &e.sa, &e.len) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Unable to query local socket address");
        return NULL;
    }
    switch (e.sa.sa_family) {
    case AF_INET:
    case AF_INET6:
        return inet_from_endpoint(&e, errp);
    case AF_UNIX:
        return unix_from_endpoint(&e);
    case AF_VSOCK:
        return vsock_from_endpoint(&e);
    default:
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED, "Unknown address family %d",
                    e.sa.sa_family);
        return NULL;
    }
}
