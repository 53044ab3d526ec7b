/* SPDX-License-Identifier: BSD-2-Clause */
/* Character devices on sockets: unix, tcp and ready-made ones, as server or client. */
#include "chardev-internal.h"

#include "util/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gio/gio.h>
#include <glib-unix.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A host name can have several addresses; each gets a listening socket. */
#define MAX_LISTENERS 8
#define BACKLOG       1

/* A connection attempt under way in a thread of its own; @chr becomes NULL when the device goes first. */
typedef struct ConnectJob {
    Chardev *chr;         /* main thread only */
    ChardevConfig config; /* shallow copy of what connecting needs; strings owned */
} ConnectJob;

typedef struct SocketKind {
    int listeners[MAX_LISTENERS];
    guint watches[MAX_LISTENERS];
    unsigned n_listeners;
    char *unlink_path; /* our socket's file, to be removed */
    dev_t dev;
    ino_t ino;
    char *local, *peer; /* "127.0.0.1:4444", of the connection or the listener */
    ConnectJob *job;
    guint reconnect_timer;
    bool failure_reported;
} SocketKind;

static void start_connect(Chardev *chr);
static void start_listening(Chardev *chr);

/* ---- addresses ---- */

static bool is_unix(const ChardevConfig *config)
{
    return config->path != NULL;
}

static bool unix_address(const ChardevConfig *config, struct sockaddr_un *un, socklen_t *len, GError **errp)
{
    size_t room = sizeof(un->sun_path) - (config->abstract ? 1 : 0);
    size_t path_len = strlen(config->path);

    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    if (path_len > room) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED,
                    "UNIX socket path '%s' is too long\nPath must be less than %zu bytes", config->path,
                    room);
        return false;
    }
    memcpy(un->sun_path + (config->abstract ? 1 : 0), config->path, path_len);
    bool exact = config->abstract && config->tight;
    *len = exact ? (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + path_len) : sizeof(*un);
    return true;
}

static struct addrinfo *resolve(const ChardevConfig *config, bool passive, GError **errp)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    struct addrinfo *list = NULL;
    const char *host = config->host[0] ? config->host : NULL;

    if (!config->ipv4 && !config->ipv6) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Cannot disable IPv4 and IPv6 at same time");
        return NULL;
    }
    hints.ai_family = config->ipv4 && config->ipv6 ? AF_UNSPEC : config->ipv4 ? AF_INET : AF_INET6;
    int rc = getaddrinfo(host, config->port, &hints, &list);
    if (rc != 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "address resolution failed for %s:%s: %s",
                    config->host, config->port, rc == EAI_SYSTEM ? g_strerror(errno) : gai_strerror(rc));
        return NULL;
    }
    return list;
}

/* "127.0.0.1:4444", "[::1]:4444"; the caller frees. */
static char *address_text(const struct sockaddr *sa, socklen_t len)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];

    if (getnameinfo(sa, len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return g_strdup("unknown");
    }
    return g_strdup_printf(sa->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

/* The address of one end of an inet socket, NULL for other kinds. */
static char *socket_text(int fd, int (*get)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);

    if (get(fd, (struct sockaddr *)&ss, &len) < 0 || (ss.ss_family != AF_INET && ss.ss_family != AF_INET6)) {
        return NULL;
    }
    return address_text((struct sockaddr *)&ss, len);
}

static int getpeername_(int fd, struct sockaddr *sa, socklen_t *len)
{
    return getpeername(fd, sa, len);
}

static int getsockname_(int fd, struct sockaddr *sa, socklen_t *len)
{
    return getsockname(fd, sa, len);
}

/* ---- a connection ---- */

static void tune(const ChardevConfig *config, int fd)
{
    int on = 1;

    if (!is_unix(config)) {
        if (config->nodelay) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        }
        if (config->keep_alive) {
            setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        }
    }
}

/* What a telnet client must hear so that it sends each key at once and does not echo it itself. */
static void greet_telnet(int fd)
{
    static const uint8_t hello[] = {
        255, 251, 1, /* IAC WILL ECHO */
        255, 251, 3, /* IAC WILL SUPPRESS-GO-AHEAD */
        255, 251, 0, /* IAC WILL BINARY */
        255, 253, 0, /* IAC DO BINARY */
    };

    if (send(fd, hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        return; /* a client that has gone already is noticed by the first read */
    }
}

static void connected(Chardev *chr, int fd)
{
    SocketKind *k = chr->kind;

    tune(chr->config, fd);
    if (chr->config->telnet && chr->config->server) {
        greet_telnet(fd);
    }
    g_free(k->local);
    g_free(k->peer);
    k->local = socket_text(fd, getsockname_);
    k->peer = socket_text(fd, getpeername_);
    k->failure_reported = false;
    chardev_attach(chr, fd, fd);
}

/* ---- client ---- */

static int connect_unix(const ChardevConfig *config, GError **errp)
{
    struct sockaddr_un un;
    socklen_t len;

    if (!unix_address(config, &un, &len, errp)) {
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to create socket");
        return -1;
    }
    if (connect(fd, (struct sockaddr *)&un, len) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to connect to '%s'", config->path);
        close(fd);
        return -1;
    }
    return fd;
}

static int connect_inet(const ChardevConfig *config, GError **errp)
{
    struct addrinfo *list = resolve(config, false, errp);
    int saved = ENOENT;

    if (!list) {
        return -1;
    }
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
            freeaddrinfo(list);
            return fd;
        }
        saved = errno;
        if (fd >= 0) {
            close(fd);
        }
    }
    freeaddrinfo(list);
    error_set_errno(errp, GODWIT_ERROR_IO, saved, "Failed to connect to '%s:%s'", config->host, config->port);
    return -1;
}

/* Blocks.  Any thread. */
static int connect_blocking(const ChardevConfig *config, GError **errp)
{
    return is_unix(config) ? connect_unix(config, errp) : connect_inet(config, errp);
}

static void job_free(gpointer p)
{
    ConnectJob *job = p;

    g_free(job->config.path);
    g_free(job->config.host);
    g_free(job->config.port);
    g_free(job);
}

static void job_run(GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
    ConnectJob *job = data;
    GError *err = NULL;
    int fd = connect_blocking(&job->config, &err);

    if (fd < 0) {
        g_task_return_error(task, err);
    } else {
        g_task_return_int(task, fd);
    }
}

static gboolean try_again(gpointer opaque)
{
    Chardev *chr = opaque;
    SocketKind *k = chr->kind;

    k->reconnect_timer = 0;
    start_connect(chr);
    return G_SOURCE_REMOVE;
}

static void schedule_reconnect(Chardev *chr)
{
    SocketKind *k = chr->kind;
    guint ms = (guint)MIN(chr->config->reconnect_ms, G_MAXUINT);

    k->reconnect_timer = g_timeout_add(ms, try_again, chr);
}

static void job_done(GObject *source, GAsyncResult *result, gpointer opaque)
{
    ConnectJob *job = g_task_get_task_data(G_TASK(result));
    g_autoptr(GError) err = NULL;
    int fd = (int)g_task_propagate_int(G_TASK(result), &err);
    Chardev *chr = job->chr;

    if (!chr) {
        if (!err) {
            close(fd);
        }
        return;
    }
    SocketKind *k = chr->kind;
    k->job = NULL;
    if (!err) {
        connected(chr, fd);
        return;
    }
    if (!k->failure_reported) {
        g_message("Unable to connect character device %s: %s", chr->label, err->message);
        k->failure_reported = true;
    }
    schedule_reconnect(chr);
}

static void start_connect(Chardev *chr)
{
    SocketKind *k = chr->kind;
    ConnectJob *job = g_new0(ConnectJob, 1);

    job->chr = chr;
    job->config = *chr->config;
    job->config.path = g_strdup(chr->config->path);
    job->config.host = g_strdup(chr->config->host);
    job->config.port = g_strdup(chr->config->port);
    k->job = job;

    g_autoptr(GTask) task = g_task_new(NULL, NULL, job_done, NULL);
    g_task_set_task_data(task, job, job_free);
    g_task_run_in_thread(task, job_run);
}

static bool open_client(Chardev *chr, GError **errp)
{
    if (chr->config->reconnect_ms) {
        start_connect(chr);
        return true;
    }
    int fd = connect_blocking(chr->config, errp);
    if (fd < 0) {
        return false;
    }
    connected(chr, fd);
    return true;
}

/* ---- server ---- */

static void add_listener(SocketKind *k, int fd)
{
    k->listeners[k->n_listeners++] = fd;
}

/* A socket's file of an earlier run is in the way; anything else is not ours to remove. */
static void remove_stale_socket(const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        unlink(path);
    }
}

static bool listen_unix(SocketKind *k, const ChardevConfig *config, GError **errp)
{
    struct sockaddr_un un;
    socklen_t len;
    struct stat st;

    if (!unix_address(config, &un, &len, errp)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to create socket");
        return false;
    }
    add_listener(k, fd);
    if (!config->abstract) {
        remove_stale_socket(config->path);
    }
    if (bind(fd, (struct sockaddr *)&un, len) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to bind socket to %s", config->path);
        return false;
    }
    if (!config->abstract && lstat(config->path, &st) == 0) {
        k->unlink_path = g_strdup(config->path);
        k->dev = st.st_dev;
        k->ino = st.st_ino;
    }
    if (listen(fd, BACKLOG) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to listen on socket %s", config->path);
        return false;
    }
    return true;
}

static void set_port(struct sockaddr *sa, uint16_t port)
{
    if (sa->sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)sa)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)sa)->sin_port = htons(port);
    }
}

static uint16_t get_port(const struct sockaddr *sa)
{
    return ntohs(sa->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)sa)->sin6_port
                                           : ((const struct sockaddr_in *)sa)->sin_port);
}

/* A socket listening on exactly this address, or -1 with errno set. */
static int listen_on(const struct addrinfo *a)
{
    int on = 1;
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->ai_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    }
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static void close_listeners(SocketKind *k)
{
    for (unsigned i = 0; i < k->n_listeners; i++) {
        close(k->listeners[i]);
    }
    k->n_listeners = 0;
}

/* One socket for each address, all on @port; 0: the first picks one.  False with errno if none could be had.
 */
static bool listen_on_port(SocketKind *k, struct addrinfo *list, uint16_t port)
{
    int saved = 0;

    for (struct addrinfo *a = list; a && k->n_listeners < MAX_LISTENERS; a = a->ai_next) {
        struct sockaddr_storage ss;
        socklen_t len = sizeof(ss);

        set_port(a->ai_addr, port);
        int fd = listen_on(a);
        if (fd < 0) {
            saved = errno;
            if (saved == EADDRINUSE) { /* half of a name is no use: its peer may try the other half */
                close_listeners(k);
                break;
            }
            continue;
        }
        add_listener(k, fd);
        if (port == 0 && getsockname(fd, (struct sockaddr *)&ss, &len) == 0) {
            port = get_port((struct sockaddr *)&ss);
        }
    }
    errno = saved;
    return k->n_listeners > 0;
}

static bool listen_inet(SocketKind *k, const ChardevConfig *config, GError **errp)
{
    struct addrinfo *list = resolve(config, true, errp);

    if (!list) {
        return false;
    }
    uint16_t first = get_port(list->ai_addr);
    bool ok = false;
    for (unsigned port = first; !ok && port <= MAX(first, config->to); port++) {
        ok = listen_on_port(k, list, (uint16_t)port);
        if (!ok && errno != EADDRINUSE) {
            break;
        }
    }
    int saved = errno;
    freeaddrinfo(list);
    if (!ok) {
        error_set_errno(errp, GODWIT_ERROR_IO, saved, "Failed to find an available port");
        return false;
    }
    k->local = socket_text(k->listeners[0], getsockname_);
    return true;
}

static bool open_listeners(SocketKind *k, const ChardevConfig *config, GError **errp)
{
    if (config->fd >= 0) {
        add_listener(k, config->fd);
        k->local = socket_text(config->fd, getsockname_);
        return true;
    }
    return is_unix(config) ? listen_unix(k, config, errp) : listen_inet(k, config, errp);
}

static void stop_listening(SocketKind *k)
{
    for (unsigned i = 0; i < k->n_listeners; i++) {
        g_clear_handle_id(&k->watches[i], g_source_remove);
    }
}

static gboolean can_accept(gint fd, GIOCondition condition, gpointer opaque)
{
    Chardev *chr = opaque;
    int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

    if (conn >= 0) {
        stop_listening(chr->kind); /* others wait in the backlog */
        connected(chr, conn);
    }
    return G_SOURCE_CONTINUE;
}

static void start_listening(Chardev *chr)
{
    SocketKind *k = chr->kind;

    for (unsigned i = 0; i < k->n_listeners; i++) {
        k->watches[i] = g_unix_fd_add(k->listeners[i], G_IO_IN, can_accept, chr);
    }
}

/* Blocks until the first client has come. */
static bool wait_for_client(Chardev *chr, GError **errp)
{
    SocketKind *k = chr->kind;
    GPollFD fds[MAX_LISTENERS];
    g_autofree char *name = chardev_filename(chr);

    g_info("QEMU waiting for connection on: %s", name);
    for (unsigned i = 0; i < k->n_listeners; i++) {
        fds[i] = (GPollFD){.fd = k->listeners[i], .events = G_IO_IN};
    }
    for (;;) {
        if (g_poll(fds, k->n_listeners, -1) < 0 && errno != EINTR) {
            error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to wait for a connection on %s", name);
            return false;
        }
        for (unsigned i = 0; i < k->n_listeners; i++) {
            int conn = fds[i].revents ? accept4(fds[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;

            if (conn >= 0) {
                connected(chr, conn);
                return true;
            }
        }
    }
}

static bool open_server(Chardev *chr, GError **errp)
{
    if (!open_listeners(chr->kind, chr->config, errp)) {
        return false;
    }
    if (chr->config->wait) {
        return wait_for_client(chr, errp);
    }
    start_listening(chr);
    return true;
}

/* ---- the kind ---- */

static bool check_fd(int fd, GError **errp)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "File descriptor '%d' is not a socket", fd);
        return false;
    }
    return true;
}

static bool socket_open(Chardev *chr, GError **errp)
{
    const ChardevConfig *config = chr->config;

    chr->kind = g_new0(SocketKind, 1);
    if (config->fd >= 0 && !check_fd(config->fd, errp)) {
        return false;
    }
    if (config->server) {
        return open_server(chr, errp);
    }
    if (config->fd >= 0) {
        connected(chr, config->fd);
        return true;
    }
    return open_client(chr, errp);
}

static void socket_detached(Chardev *chr)
{
    SocketKind *k = chr->kind;

    g_clear_pointer(&k->peer, g_free);
    if (chr->config->server) {
        start_listening(chr);
    } else if (chr->config->reconnect_ms) {
        schedule_reconnect(chr);
    }
}

/* Removes our socket's file, unless somebody has put another in its place. */
static void remove_socket_file(SocketKind *k)
{
    struct stat st;

    if (k->unlink_path && lstat(k->unlink_path, &st) == 0 && st.st_dev == k->dev && st.st_ino == k->ino) {
        unlink(k->unlink_path);
    }
    g_free(k->unlink_path);
}

static void socket_close(Chardev *chr)
{
    SocketKind *k = chr->kind;

    if (!k) {
        return;
    }
    stop_listening(k);
    close_listeners(k);
    remove_socket_file(k);
    g_clear_handle_id(&k->reconnect_timer, g_source_remove);
    if (k->job) {
        k->job->chr = NULL;
    }
    g_free(k->local);
    g_free(k->peer);
    g_free(k);
    chr->kind = NULL;
}

static char *unix_filename(const ChardevConfig *config, const char *prefix)
{
    const char *abstract = !config->abstract ? "" : config->tight ? ",abstract=on,tight=on" : ",abstract=on";

    return g_strdup_printf("%sunix:%s%s%s", prefix, config->path, abstract,
                           config->server ? ",server=on" : "");
}

static char *socket_filename(const Chardev *chr)
{
    const ChardevConfig *config = chr->config;
    const SocketKind *k = chr->kind;
    const char *prefix = chr->open ? "" : "disconnected:";
    const char *scheme = config->telnet ? "telnet" : "tcp";
    const char *server = config->server ? ",server=on" : "";

    if (is_unix(config)) {
        return unix_filename(config, prefix);
    }
    if (!k || !k->local) {
        return config->fd >= 0
                   ? g_strdup_printf("%sunix:%s", prefix, server)
                   : g_strdup_printf("%s%s:%s:%s%s", prefix, scheme, config->host, config->port, server);
    }
    if (!chr->open || !k->peer) {
        return g_strdup_printf("%s%s:%s%s", prefix, scheme, k->local, server);
    }
    return g_strdup_printf("%s:%s%s <-> %s", scheme, k->local, server, k->peer);
}

const ChardevOps chardev_socket_ops = {
    .type = "socket",
    .open = socket_open,
    .detached = socket_detached,
    .close = socket_close,
    .filename = socket_filename,
};

/* ---- telnet ---- */

enum { TELNET_DATA, TELNET_IAC, TELNET_OPTION, TELNET_SUB, TELNET_SUB_IAC, TELNET_CR };

enum { IAC = 255, SB = 250, SE = 240, WILL = 251, DONT = 254 };

/* What follows IAC. */
static unsigned telnet_command(uint8_t c, bool *is_data)
{
    *is_data = c == IAC; /* doubled: a byte of data */
    return c == SB ? TELNET_SUB : c >= WILL && c <= DONT ? TELNET_OPTION : TELNET_DATA;
}

/* One byte from the peer; true if it is data. */
static bool telnet_byte(unsigned *state, uint8_t c)
{
    bool is_data = false;

    switch (*state) {
    case TELNET_IAC:
        *state = telnet_command(c, &is_data);
        return is_data;
    case TELNET_OPTION:
        *state = TELNET_DATA;
        return false;
    case TELNET_SUB:
        *state = c == IAC ? TELNET_SUB_IAC : TELNET_SUB;
        return false;
    case TELNET_SUB_IAC:
        *state = c == SE ? TELNET_DATA : TELNET_SUB;
        return false;
    case TELNET_CR:
        *state = c == IAC ? TELNET_IAC : c == '\r' ? TELNET_CR : TELNET_DATA;
        return c != IAC && c != '\0' && c != '\n'; /* CR NUL and CR LF are one line end */
    case TELNET_DATA:
    default:
        *state = c == IAC ? TELNET_IAC : c == '\r' ? TELNET_CR : TELNET_DATA;
        return c != IAC;
    }
}

size_t chardev_telnet_filter(unsigned *state, uint8_t *buf, size_t len)
{
    size_t kept = 0;

    for (size_t i = 0; i < len; i++) {
        uint8_t c = buf[i];

        if (telnet_byte(state, c)) {
            buf[kept++] = c;
        }
    }
    return kept;
}
