/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of sockets: connecting, listening, addresses, descriptors that travel, zero copy. */
#include "io/socket-options.h"
#include "io/transport.h"
#include "util/error.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char *dir;

static SocketAddress *inet(const char *host, const char *port)
{
    SocketAddress *addr = g_new0(SocketAddress, 1);

    addr->type = SOCKET_ADDRESS_TYPE_INET;
    addr->u.inet = g_new0(InetSocketAddress, 1);
    addr->u.inet->host = g_strdup(host);
    addr->u.inet->port = g_strdup(port);
    return addr;
}

static SocketAddress *unix_address(const char *path)
{
    SocketAddress *addr = g_new0(SocketAddress, 1);

    addr->type = SOCKET_ADDRESS_TYPE_UNIX;
    addr->u.q_unix = g_new0(UnixSocketAddress, 1);
    addr->u.q_unix->path = g_strdup(path);
    return addr;
}

static SocketAddress *vsock(const char *cid, const char *port)
{
    SocketAddress *addr = g_new0(SocketAddress, 1);

    addr->type = SOCKET_ADDRESS_TYPE_VSOCK;
    addr->u.vsock = g_new0(VsockSocketAddress, 1);
    addr->u.vsock->cid = g_strdup(cid);
    addr->u.vsock->port = g_strdup(port);
    return addr;
}

static SocketAddress *fd_address(const char *str)
{
    SocketAddress *addr = g_new0(SocketAddress, 1);

    addr->type = SOCKET_ADDRESS_TYPE_FD;
    addr->u.fd = g_new0(FdSocketAddress, 1);
    addr->u.fd->str = g_strdup(str);
    return addr;
}

static char *path_in_dir(const char *name)
{
    return g_build_filename(dir, name, NULL);
}

static Listener *listen_on(SocketAddress *addr)
{
    g_autoptr(GError) err = NULL;
    Listener *l = listener_new(addr, 5, &err);

    g_assert_no_error(err);
    qapi_free_SocketAddress(addr);
    return l;
}

static void take_channel(Listener *listener, Channel *channel, void *opaque)
{
    g_ptr_array_add(opaque, channel);
}

/* Both ends of a connection to @addr, which is consumed. */
static void connect_pair(SocketAddress *addr, Channel **a, Channel **b)
{
    g_autoptr(Listener) l = listen_on(addr);
    g_autoptr(GPtrArray) accepted = g_ptr_array_new();
    g_autoptr(GError) err = NULL;

    listener_start(l, take_channel, accepted);
    *a = channel_socket_connect(listener_addresses(l)->items[0], NULL, &err);
    g_assert_no_error(err);
    while (!accepted->len) {
        g_main_context_iteration(NULL, TRUE);
    }
    *b = g_ptr_array_index(accepted, 0);
}

static void expect_connect_error(SocketAddress *addr, const char *message)
{
    g_autoptr(GError) err = NULL;

    g_assert_null(channel_socket_connect(addr, NULL, &err));
    g_assert_cmpstr(err->message, ==, message);
    qapi_free_SocketAddress(addr);
}

static void expect_listen_error(SocketAddress *addr, const char *message)
{
    g_autoptr(GError) err = NULL;

    g_assert_null(listener_new(addr, 1, &err));
    g_assert_cmpstr(err->message, ==, message);
    qapi_free_SocketAddress(addr);
}

#define TEN "aaaaaaaaaa"
#define LONG_PATH "/" TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

/* The texts are those of the peers. */
static void test_connect_errors(void)
{
    expect_connect_error(inet("127.0.0.1", "1"), "Failed to connect to '127.0.0.1:1': Connection refused");
    expect_connect_error(inet("::1", "1"), "Failed to connect to '::1:1': Connection refused");
    expect_connect_error(
        inet("127.0.0.1", "abc"),
        "address resolution failed for 127.0.0.1:abc: Servname not supported for ai_socktype");
    expect_connect_error(
        inet("127.0.0.1", "65537"),
        "address resolution failed for 127.0.0.1:65537: Servname not supported for ai_socktype");
    expect_connect_error(inet("", "1"), "address resolution failed for :1: Name or service not known");
    expect_connect_error(unix_address("/nonexistent/u"),
                         "Failed to connect to '/nonexistent/u': No such file or directory");
    expect_connect_error(unix_address(LONG_PATH), "UNIX socket path '" LONG_PATH "' is too long");
    expect_connect_error(fd_address("nosuch"), "File descriptor named 'nosuch' has not been found");
    expect_connect_error(vsock("x", "1"),
                         "Failed to parse cid 'x': a number from 0 to 4294967295 is expected");
}

static void test_numeric(void)
{
    SocketAddress *addr = inet("localhost", "1");
    g_autoptr(GError) err = NULL;

    addr->u.inet->has_numeric = addr->u.inet->numeric = true;
    g_assert_null(channel_socket_connect(addr, NULL, &err));
    g_assert_cmpstr(err->message, ==, "address resolution failed for localhost:1: Name or service not known");
    qapi_free_SocketAddress(addr);
}

static void test_families(void)
{
    SocketAddress *both_off = inet("127.0.0.1", "0");
    SocketAddress *v6_only = inet("127.0.0.1", "0");
    SocketAddress *v4_off = inet("127.0.0.1", "0");
    SocketAddress *both_on = inet("127.0.0.1", "0");

    both_off->u.inet->has_ipv4 = both_off->u.inet->has_ipv6 = true;
    expect_listen_error(both_off, "Cannot disable IPv4 and IPv6 at same time");
    v6_only->u.inet->has_ipv6 = v6_only->u.inet->ipv6 = true;
    expect_listen_error(
        v6_only, "address resolution failed for 127.0.0.1:0: Address family for hostname not supported");
    v4_off->u.inet->has_ipv4 = true;
    expect_listen_error(
        v4_off, "address resolution failed for 127.0.0.1:0: Address family for hostname not supported");
    both_on->u.inet->has_ipv4 = both_on->u.inet->ipv4 = true;
    both_on->u.inet->has_ipv6 = both_on->u.inet->ipv6 = true;
    listener_free(listen_on(both_on));
}

static void check_echo(Channel *a, Channel *b)
{
    char buf[8];

    g_assert_true(channel_write_all(a, "ping", 4, NULL));
    g_assert_cmpint(channel_peek(b, buf, 8, NULL), ==, 4);
    g_assert_true(channel_read_all(b, buf, 4, NULL));
    g_assert_cmpmem(buf, 4, "ping", 4);
    g_assert_true(channel_write_all(b, "pong!", 5, NULL));
    g_assert_true(channel_read_all(a, buf, 5, NULL));
    g_assert_cmpmem(buf, 5, "pong!", 5);
    g_assert_true(channel_close(a, NULL));
    g_assert_cmpint(channel_peek(b, buf, 8, NULL), ==, 0);
    g_assert_cmpint(channel_read(b, buf, 8, NULL), ==, 0);
}

static bool have_ipv6(void)
{
    SocketAddress *addr = inet("::1", "0");
    Listener *l = listener_new(addr, 1, NULL);
    bool have = l;

    listener_free(l);
    qapi_free_SocketAddress(addr);
    return have;
}

static void run_echo(SocketAddress *addr)
{
    Channel *a, *b;

    connect_pair(addr, &a, &b);
    g_assert_true(channel_has_feature(a, CHANNEL_FEATURE_MULTI));
    check_echo(a, b);
    channel_unref(a);
    channel_unref(b);
}

static void test_echo(void)
{
    g_autofree char *path = path_in_dir("echo");
    g_autofree char *name = g_strdup_printf("godwit-test-%d", (int)getpid());
    SocketAddress *abstract = unix_address(name);

    run_echo(inet("127.0.0.1", "0"));
    run_echo(inet("localhost", "0"));
    if (have_ipv6()) {
        run_echo(inet("::1", "0"));
    }
    run_echo(unix_address(path));
    abstract->u.q_unix->has_abstract = abstract->u.q_unix->abstract = true;
    run_echo(abstract);
}

/* Any host: one port for both families, IPv6 first. */
static void test_any_host(void)
{
    g_autoptr(Listener) l = listen_on(inet("", "0"));
    const SocketAddressList *list = listener_addresses(l);

    g_assert_cmpuint(list->count, ==, have_ipv6() ? 2 : 1);
    if (list->count == 2) {
        g_assert_cmpstr(list->items[0]->u.inet->host, ==, "::");
        g_assert_true(list->items[0]->u.inet->ipv6);
        g_assert_false(list->items[0]->u.inet->has_ipv4);
        g_assert_cmpstr(list->items[1]->u.inet->host, ==, "0.0.0.0");
        g_assert_true(list->items[1]->u.inet->ipv4);
        g_assert_cmpstr(list->items[0]->u.inet->port, ==, list->items[1]->u.inet->port);
    }
}

/* What management programs use: a listener on [::] takes IPv4 too, unless told otherwise. */
static void test_dual_stack(void)
{
    if (!have_ipv6()) {
        g_test_skip("no IPv6 on this host");
        return;
    }
    for (int only6 = 0; only6 < 2; only6++) {
        SocketAddress *addr = inet("::", "0");

        addr->u.inet->has_ipv6 = addr->u.inet->ipv6 = only6;
        g_autoptr(Listener) l = listen_on(addr);
        SocketAddress *v4 = inet("127.0.0.1", listener_addresses(l)->items[0]->u.inet->port);
        g_autoptr(Channel) c = channel_socket_connect(v4, NULL, NULL);
        g_assert_cmpint(c != NULL, ==, !only6);
        qapi_free_SocketAddress(v4);
    }
}

static void test_port_range(void)
{
    g_autoptr(Listener) first = listen_on(inet("127.0.0.1", "0"));
    const char *port = listener_addresses(first)->items[0]->u.inet->port;
    unsigned number = atoi(port);

    if (number > 65000) {
        g_test_skip("the free port is too close to the last one");
        return;
    }
    expect_listen_error(inet("127.0.0.1", port), "Failed to find an available port: Address already in use");

    SocketAddress *range = inet("127.0.0.1", port);
    range->u.inet->has_to = true;
    range->u.inet->to = number;
    expect_listen_error(range, "Failed to find an available port: Address already in use");

    range = inet("127.0.0.1", port);
    range->u.inet->has_to = true;
    range->u.inet->to = number + 500;
    g_autoptr(Listener) second = listen_on(range);
    unsigned got = atoi(listener_addresses(second)->items[0]->u.inet->port);
    g_assert_cmpuint(got, >, number);
    g_assert_cmpuint(got, <=, number + 500);

    range = inet("127.0.0.1", "4444");
    range->u.inet->has_to = true;
    range->u.inet->to = 4443;
    expect_listen_error(range, "Parameter 'to' expects a port from 4444 to 65535, not 4443");
}

static void test_bind_errors(void)
{
    expect_listen_error(inet("192.0.2.1", "5555"), "Failed to bind socket: Cannot assign requested address");
    expect_listen_error(unix_address("/nonexistent/u"),
                        "Failed to bind socket to /nonexistent/u: No such file or directory");
    expect_listen_error(fd_address("0"), "File descriptor 0 is not a listening socket");
}

/* No connection: a loopback is rarely there. */
static void test_vsock(void)
{
    SocketAddress *any = vsock("4294967295", "4294967295");
    g_autoptr(GError) err = NULL;
    g_autoptr(Listener) l = listener_new(any, 1, &err);

    qapi_free_SocketAddress(any);
    if (!l) {
        g_autofree char *reason = g_strdup_printf("no vsock here: %s", err->message);

        g_test_skip(reason);
        return;
    }
    const SocketAddress *bound = listener_addresses(l)->items[0];
    g_assert_cmpint(bound->type, ==, SOCKET_ADDRESS_TYPE_VSOCK);
    g_assert_cmpstr(bound->u.vsock->cid, ==, "4294967295");
    g_assert_cmpstr(bound->u.vsock->port, !=, "4294967295");
    expect_listen_error(vsock("77", "1234"), "Failed to bind socket: Cannot assign requested address");
}

static void test_unix_file(void)
{
    g_autofree char *path = path_in_dir("u");
    struct stat st;

    /* A socket that was left behind is replaced; the older listener does not remove the newer one's file. */
    Listener *old = listen_on(unix_address(path));
    Listener *new = listen_on(unix_address(path));
    listener_free(old);
    g_assert_cmpint(lstat(path, &st), ==, 0);
    g_assert_cmpstr(listener_addresses(new)->items[0]->u.q_unix->path, ==, path);
    listener_free(new);
    g_assert_cmpint(lstat(path, &st), ==, -1);

    /* Anything else stays. */
    g_autofree char *message = g_strdup_printf("Failed to bind socket to %s: Address already in use", path);
    g_assert_true(g_file_set_contents(path, "data", 4, NULL));
    expect_listen_error(unix_address(path), message);
    g_assert_cmpint(lstat(path, &st), ==, 0);
    g_assert_cmpint(st.st_size, ==, 4);
    g_unlink(path);
}

static void free_listener(Listener *listener, Channel *channel, void *opaque)
{
    channel_unref(channel);
    listener_free(listener);
    *(int *)opaque = 1;
}

static void test_free_in_callback(void)
{
    Listener *l = listen_on(inet("127.0.0.1", "0"));
    int called = 0;

    listener_start(l, free_listener, &called);
    g_autoptr(Channel) c = channel_socket_connect(listener_addresses(l)->items[0], NULL, NULL);
    while (!called) {
        g_main_context_iteration(NULL, TRUE);
    }
    while (g_main_context_iteration(NULL, FALSE)) {
    }
}

static void test_many(void)
{
    g_autoptr(Listener) l = listen_on(inet("127.0.0.1", "0"));
    g_autoptr(GPtrArray) accepted = g_ptr_array_new_with_free_func((GDestroyNotify)channel_unref);
    g_autoptr(GPtrArray) connected = g_ptr_array_new_with_free_func((GDestroyNotify)channel_unref);

    listener_start(l, take_channel, accepted);
    for (guint i = 0; i < 30; i++) {
        Channel *c = channel_socket_connect(listener_addresses(l)->items[0], NULL, NULL);

        g_assert_nonnull(c);
        g_ptr_array_add(connected, c);
        while (accepted->len <= i) {
            g_main_context_iteration(NULL, TRUE);
        }
    }
    g_assert_cmpuint(accepted->len, ==, 30);
}

/* A listener in a thread of its own, with its own main context. */
static void *accept_one(void *opaque)
{
    g_autoptr(GMainContext) context = g_main_context_new();
    g_autoptr(GPtrArray) accepted = g_ptr_array_new_with_free_func((GDestroyNotify)channel_unref);

    g_main_context_push_thread_default(context);
    listener_start(opaque, take_channel, accepted);
    while (!accepted->len) {
        g_main_context_iteration(context, TRUE);
    }
    listener_free(opaque);
    g_main_context_pop_thread_default(context);
    return NULL;
}

static void test_other_context(void)
{
    Listener *l = listen_on(inet("127.0.0.1", "0"));
    SocketAddress *addr = qapi_clone_SocketAddress(listener_addresses(l)->items[0]);
    GThread *thread = g_thread_new("accept", accept_one, l);
    g_autoptr(Channel) c = channel_socket_connect(addr, NULL, NULL);

    g_assert_nonnull(c);
    g_thread_join(thread);
    qapi_free_SocketAddress(addr);
}

static void *cancel_soon(void *opaque)
{
    g_usleep(30 * 1000);
    g_cancellable_cancel(opaque);
    return NULL;
}

/* A listener that accepts nobody and whose backlog is full keeps a connect waiting. */
static void test_cancel_connect(void)
{
    g_autofree char *path = path_in_dir("full");
    SocketAddress *addr = unix_address(path);
    g_autoptr(GCancellable) cancellable = g_cancellable_new();
    g_autoptr(Listener) l = listener_new(addr, 0, NULL);
    g_autoptr(GPtrArray) channels = g_ptr_array_new_with_free_func((GDestroyNotify)channel_unref);
    g_autoptr(GError) err = NULL;

    GThread *thread = g_thread_new("cancel", cancel_soon, cancellable);
    for (Channel *c; (c = channel_socket_connect(addr, cancellable, &err));) {
        g_ptr_array_add(channels, c);
    }
    g_thread_join(thread);
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_CANCELLED);

    g_autoptr(GError) again = NULL;
    g_assert_null(channel_socket_connect(addr, cancellable, &again));
    g_assert_error(again, GODWIT_ERROR, GODWIT_ERROR_CANCELLED);
    qapi_free_SocketAddress(addr);
}

/* Names are looked up in a thread then; a cancelled look-up and one that finds. */
static void test_cancel_lookup(void)
{
    g_autoptr(GCancellable) cancellable = g_cancellable_new();
    g_autoptr(GError) err = NULL;
    SocketAddress *addr = inet("localhost", "0");
    g_autoptr(Listener) l = listener_new(addr, 1, NULL);

    g_free(addr->u.inet->port);
    addr->u.inet->port = g_strdup(listener_addresses(l)->items[0]->u.inet->port);
    g_autoptr(Channel) c = channel_socket_connect(addr, cancellable, &err);
    g_assert_no_error(err);

    g_cancellable_cancel(cancellable);
    g_assert_null(channel_socket_connect(addr, cancellable, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_CANCELLED);
    qapi_free_SocketAddress(addr);
}

static void make_socketpair(Channel **a, Channel **b)
{
    int fds[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), ==, 0);
    *a = channel_from_fd(fds[0], NULL);
    *b = channel_from_fd(fds[1], NULL);
}

static bool same_file(int a, int b)
{
    struct stat sa, sb;

    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_ino == sb.st_ino && sa.st_dev == sb.st_dev;
}

static void test_pass_fds(void)
{
    Channel *a, *b;
    int pipes[2], too_many[CHANNEL_MAX_FDS + 1] = { 0 };
    char buf[8];
    struct iovec out = { (char *)"xyz", 3 }, in = { buf, 8 };
    g_autoptr(GArray) fds = g_array_new(FALSE, FALSE, sizeof(int));
    g_autoptr(GError) err = NULL;

    make_socketpair(&a, &b);
    g_assert_true(channel_has_feature(a, CHANNEL_FEATURE_FD_PASS));
    g_assert_false(channel_has_feature(a, CHANNEL_FEATURE_MULTI));
    g_assert_cmpint(pipe(pipes), ==, 0);

    g_assert_cmpint(channel_writev(a, &out, 1, pipes, 2, 0, &err), ==, 3);
    g_assert_cmpint(channel_readv_fds(b, &in, 1, fds, &err), ==, 3);
    g_assert_cmpuint(fds->len, ==, 2);
    g_assert_true(same_file(g_array_index(fds, int, 0), pipes[0]));
    g_assert_true(fcntl(g_array_index(fds, int, 0), F_GETFD) & FD_CLOEXEC);
    close(g_array_index(fds, int, 0));
    close(g_array_index(fds, int, 1));
    g_array_set_size(fds, 0);

    /* Without descriptors, and into a read that does not want them. */
    g_assert_true(channel_write_all(a, "xyz", 3, &err));
    g_assert_cmpint(channel_readv_fds(b, &in, 1, fds, &err), ==, 3);
    g_assert_cmpuint(fds->len, ==, 0);
    g_assert_cmpint(channel_writev(a, &out, 1, pipes, 2, 0, &err), ==, 3);
    g_assert_true(channel_read_all(b, buf, 3, &err));
    g_assert_cmpint(channel_writev(a, &out, 1, too_many, CHANNEL_MAX_FDS + 1, 0, &err), ==, -1);
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    close(pipes[0]);
    close(pipes[1]);
    channel_unref(a);
    channel_unref(b);
}

static void test_messages(void)
{
    Channel *a, *b;
    g_autoptr(GError) err = NULL;

    make_socketpair(&a, &b);
    channel_unref(b);
    g_assert_false(channel_write_all(a, "x", 1, &err));
    g_assert_cmpstr(err->message, ==, "Unable to write to socket: Broken pipe");
    channel_unref(a);
}

#define ZERO_COPY_LEN (16 * 1024 * 1024)

static void *read_and_check(void *opaque)
{
    g_autofree uint8_t *buf = g_malloc(ZERO_COPY_LEN);

    g_assert_true(channel_read_all(opaque, buf, ZERO_COPY_LEN, NULL));
    for (size_t i = 0; i < ZERO_COPY_LEN; i += 4096) {
        g_assert_cmpuint(buf[i], ==, (i / 4096) % 251);
    }
    return NULL;
}

static void test_zero_copy(void)
{
    g_autofree uint8_t *buf = g_malloc0(ZERO_COPY_LEN);
    g_autofree struct iovec *iov = g_new(struct iovec, ZERO_COPY_LEN / 4096);
    g_autoptr(GError) err = NULL;
    Channel *a, *b;

    connect_pair(inet("127.0.0.1", "0"), &a, &b);
    if (!channel_has_feature(a, CHANNEL_FEATURE_ZERO_COPY)) {
        g_test_skip("the kernel does not do MSG_ZEROCOPY");
    } else {
        for (size_t i = 0; i < ZERO_COPY_LEN / 4096; i++) {
            buf[i * 4096] = i % 251;
            iov[i] = (struct iovec){ buf + i * 4096, 4096 };
        }
        g_assert_cmpint(channel_flush_zero_copy(a, &err), ==, 0);
        GThread *thread = g_thread_new("reader", read_and_check, b);
        g_assert_true(channel_writev_all(a, iov, ZERO_COPY_LEN / 4096, CHANNEL_WRITE_ZERO_COPY, &err));
        /* Loopback always copies in the end. */
        g_assert_cmpint(channel_flush_zero_copy(a, &err), ==, 1);
        g_assert_no_error(err);
        g_assert_cmpint(channel_flush_zero_copy(a, &err), ==, 0);
        g_thread_join(thread);
    }
    channel_unref(a);
    channel_unref(b);
}

static void *shutdown_soon(void *opaque)
{
    g_usleep(30 * 1000);
    channel_shutdown(opaque);
    return NULL;
}

/* A peer that does not read keeps the kernel from being done. */
static void test_zero_copy_shutdown(void)
{
    static char buf[65536];
    g_autoptr(GError) err = NULL;
    Channel *a, *b;

    connect_pair(inet("127.0.0.1", "0"), &a, &b);
    if (!channel_has_feature(a, CHANNEL_FEATURE_ZERO_COPY)) {
        g_test_skip("the kernel does not do MSG_ZEROCOPY");
    } else {
        struct iovec iov = { buf, sizeof(buf) };
        GThread *thread = g_thread_new("shutdown", shutdown_soon, a);

        while (channel_writev(a, &iov, 1, NULL, 0, CHANNEL_WRITE_ZERO_COPY, &err) > 0) {
        }
        g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_CANCELLED);
        g_assert_cmpint(channel_flush_zero_copy(a, NULL), ==, -1);
        g_thread_join(thread);
    }
    channel_unref(a);
    channel_unref(b);
}

static void test_keep_alive(void)
{
    g_autoptr(Listener) l = listen_on(inet("127.0.0.1", "0"));
    SocketAddress *addr = qapi_clone_SocketAddress(listener_addresses(l)->items[0]);
    g_autoptr(GError) err = NULL;
    int value = 0;
    socklen_t len = sizeof(value);

    addr->u.inet->has_keep_alive = addr->u.inet->keep_alive = true;
    addr->u.inet->has_keep_alive_idle = true;
    addr->u.inet->keep_alive_idle = 77;
    g_autoptr(Channel) c = channel_socket_connect(addr, NULL, &err);
    g_assert_no_error(err);
    g_assert_cmpint(getsockopt(channel_poll_fd(c), SOL_SOCKET, SO_KEEPALIVE, &value, &len), ==, 0);
    g_assert_cmpint(value, ==, 1);
    g_assert_cmpint(getsockopt(channel_poll_fd(c), 6 /* TCP */, 4 /* TCP_KEEPIDLE */, &value, &len), ==, 0);
    g_assert_cmpint(value, ==, 77);
    addr->u.inet->keep_alive_idle = 1000000000;
    g_assert_null(channel_socket_connect(addr, NULL, &err));
    g_assert_cmpstr(err->message, ==, "Unable to set keep-alive-idle to 1000000000: Invalid argument");
    qapi_free_SocketAddress(addr);
}

static void test_to_string(void)
{
    const struct { SocketAddress *addr; const char *text; } cases[] = {
        { inet("127.0.0.1", "4444"), "tcp:127.0.0.1:4444" }, { inet("::1", "4444"), "tcp:[::1]:4444" },
        { unix_address("/p"), "unix:/p" }, { vsock("2", "3"), "vsock:2:3" }, { fd_address("n"), "fd:n" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *text = socket_address_to_string(cases[i].addr);

        g_assert_cmpstr(text, ==, cases[i].text);
        qapi_free_SocketAddress(cases[i].addr);
    }
}

static void test_listen_fd(void)
{
    g_autofree char *path = path_in_dir("inherited");
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    g_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    g_assert_cmpint(bind(fd, (struct sockaddr *)&un, sizeof(un)), ==, 0);
    g_assert_cmpint(listen(fd, 1), ==, 0);
    g_autofree char *number = g_strdup_printf("%d", fd);
    run_echo(fd_address(number));
    g_assert_cmpint(fcntl(fd, F_GETFD), ==, -1);
    g_unlink(path);
}

static void test_connect_fd(void)
{
    int fds[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), ==, 0);
    g_autofree char *number = g_strdup_printf("%d", fds[0]);
    SocketAddress *addr = fd_address(number);
    Channel *a = channel_socket_connect(addr, NULL, NULL);
    Channel *b = channel_from_fd(fds[1], NULL);
    check_echo(a, b);
    channel_unref(a);
    channel_unref(b);
    qapi_free_SocketAddress(addr);
}

/* ---- connections that stay on the machine ---- */

static bool stays_here_text(const char *host)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(4444) };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(4444) };

    if (inet_pton(AF_INET, host, &in.sin_addr) == 1) {
        return socket_stays_here((struct sockaddr *)&in, sizeof(in));
    }
    g_assert_cmpint(inet_pton(AF_INET6, host, &in6.sin6_addr), ==, 1);
    return socket_stays_here((struct sockaddr *)&in6, sizeof(in6));
}

static void test_stays_here(void)
{
    const struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/tmp/x" };
    struct ifaddrs *own = NULL;

    g_assert_true(stays_here_text("127.0.0.1"));
    g_assert_true(stays_here_text("127.1.2.3"));
    g_assert_true(stays_here_text("0.0.0.0"));
    g_assert_true(stays_here_text("::1"));
    g_assert_true(stays_here_text("::ffff:127.0.0.1"));
    /* Addresses for documentation: nobody's. */
    g_assert_false(stays_here_text("192.0.2.1"));
    g_assert_false(stays_here_text("2001:db8::1"));
    g_assert_false(socket_stays_here((const struct sockaddr *)&un, sizeof(un)));

    g_assert_cmpint(getifaddrs(&own), ==, 0);
    for (const struct ifaddrs *i = own; i; i = i->ifa_next) {
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET) {
            struct sockaddr_in to = *(const struct sockaddr_in *)i->ifa_addr;
            to.sin_port = htons(4444);
            g_assert_true(socket_stays_here((struct sockaddr *)&to, sizeof(to)));
        }
    }
    freeifaddrs(own);
}

static void assert_congestion_control(Channel *c, const char *expected)
{
    char name[32] = "";
    socklen_t len = sizeof(name) - 1;

    g_assert_cmpint(getsockopt(channel_poll_fd(c), IPPROTO_TCP, TCP_CONGESTION, name, &len), ==, 0);
    g_assert_cmpstr(name, ==, expected);
}

/* The side that sends a migration's bytes does not pace them on their way through memory. */
static void test_congestion_control(void)
{
    g_autofree char *standard = NULL;
    Channel *a, *b;

    g_assert_true(g_file_get_contents("/proc/sys/net/ipv4/tcp_congestion_control", &standard, NULL, NULL));
    connect_pair(inet("127.0.0.1", "0"), &a, &b);
    assert_congestion_control(a, "reno");
    assert_congestion_control(b, g_strstrip(standard));
    channel_unref(a);
    channel_unref(b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    dir = g_dir_make_tmp("test-socket-XXXXXX", NULL);
    g_test_add_func("/socket/connect-errors", test_connect_errors);
    g_test_add_func("/socket/numeric", test_numeric);
    g_test_add_func("/socket/families", test_families);
    g_test_add_func("/socket/echo", test_echo);
    g_test_add_func("/socket/any-host", test_any_host);
    g_test_add_func("/socket/dual-stack", test_dual_stack);
    g_test_add_func("/socket/port-range", test_port_range);
    g_test_add_func("/socket/bind-errors", test_bind_errors);
    g_test_add_func("/socket/vsock", test_vsock);
    g_test_add_func("/socket/unix-file", test_unix_file);
    g_test_add_func("/socket/free-in-callback", test_free_in_callback);
    g_test_add_func("/socket/many", test_many);
    g_test_add_func("/socket/other-context", test_other_context);
    g_test_add_func("/socket/cancel-connect", test_cancel_connect);
    g_test_add_func("/socket/cancel-lookup", test_cancel_lookup);
    g_test_add_func("/socket/pass-fds", test_pass_fds);
    g_test_add_func("/socket/messages", test_messages);
    g_test_add_func("/socket/zero-copy", test_zero_copy);
    g_test_add_func("/socket/zero-copy-shutdown", test_zero_copy_shutdown);
    g_test_add_func("/socket/stays-here", test_stays_here);
    g_test_add_func("/socket/congestion-control", test_congestion_control);
    g_test_add_func("/socket/keep-alive", test_keep_alive);
    g_test_add_func("/socket/to-string", test_to_string);
    g_test_add_func("/socket/listen-fd", test_listen_fd);
    g_test_add_func("/socket/connect-fd", test_connect_fd);
    int rc = g_test_run();
    g_rmdir(dir);
    g_free(dir);
    return rc;
}
