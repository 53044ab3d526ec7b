/* SPDX-License-Identifier: BSD-2-Clause */
/* Migration URIs: every form, and the words in which a bad one is refused. */
#include "migration/uri.h"

static MigrationAddress *parse(const char *uri)
{
    g_autoptr(GError) error = NULL;
    MigrationAddress *addr = migration_uri_parse(uri, &error);
    g_assert_no_error(error);
    g_assert_nonnull(addr);
    return addr;
}

static void test_tcp(void)
{
    static const struct {
        const char *uri, *host, *port;
    } cases[] = {
        { "tcp:127.0.0.1:4444", "127.0.0.1", "4444" },
        { "tcp::4444", "", "4444" },
        { "tcp:0:4444", "0", "4444" },
        { "tcp:localhost:ssh", "localhost", "ssh" },
        { "tcp:[::1]:4444", "::1", "4444" },
        { "tcp:[fe80::1%eth0]:1,ipv6=on", "fe80::1%eth0", "1" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(MigrationAddress) addr = parse(cases[i].uri);
        g_assert_cmpint(addr->transport, ==, MIGRATION_ADDRESS_TYPE_SOCKET);
        g_assert_cmpint(addr->u.socket->type, ==, SOCKET_ADDRESS_TYPE_INET);
        g_assert_cmpstr(addr->u.socket->u.inet->host, ==, cases[i].host);
        g_assert_cmpstr(addr->u.socket->u.inet->port, ==, cases[i].port);
    }
}

static void test_tcp_options(void)
{
    g_autoptr(MigrationAddress) addr =
        parse("tcp:h:1,to=9,ipv4,ipv6=off,keep-alive=on,keep-alive-idle=30,mptcp=no");
    InetSocketAddress *inet = addr->u.socket->u.inet;

    g_assert_true(inet->has_to && inet->to == 9);
    g_assert_true(inet->has_ipv4 && inet->ipv4);
    g_assert_true(inet->has_ipv6 && !inet->ipv6);
    g_assert_true(inet->has_keep_alive && inet->keep_alive);
    g_assert_true(inet->has_keep_alive_idle && inet->keep_alive_idle == 30);
    g_assert_true(inet->has_mptcp && !inet->mptcp);
    g_assert_false(inet->has_numeric);
    g_assert_false(inet->has_keep_alive_count);
}

static void test_others(void)
{
    g_autoptr(MigrationAddress) un = parse("unix:/tmp/a,abstract=on");
    g_assert_cmpint(un->u.socket->type, ==, SOCKET_ADDRESS_TYPE_UNIX);
    g_assert_cmpstr(un->u.socket->u.q_unix->path, ==, "/tmp/a,abstract=on");

    g_autoptr(MigrationAddress) vsock = parse("vsock:3:1234");
    g_assert_cmpint(vsock->u.socket->type, ==, SOCKET_ADDRESS_TYPE_VSOCK);
    g_assert_cmpstr(vsock->u.socket->u.vsock->cid, ==, "3");
    g_assert_cmpstr(vsock->u.socket->u.vsock->port, ==, "1234");

    g_autoptr(MigrationAddress) fd = parse("fd:mig:1");
    g_assert_cmpint(fd->u.socket->type, ==, SOCKET_ADDRESS_TYPE_FD);
    g_assert_cmpstr(fd->u.socket->u.fd->str, ==, "mig:1");

    g_autoptr(MigrationAddress) rdma = parse("rdma:10.0.0.1:4444");
    g_assert_cmpint(rdma->transport, ==, MIGRATION_ADDRESS_TYPE_RDMA);
    g_assert_cmpstr(rdma->u.rdma->host, ==, "10.0.0.1");

    g_autoptr(MigrationAddress) exec = parse("exec:gzip > a:b");
    g_assert_cmpint(exec->transport, ==, MIGRATION_ADDRESS_TYPE_EXEC);
    g_assert_cmpuint(exec->u.exec->args->count, ==, 3);
    g_assert_cmpstr(exec->u.exec->args->items[0], ==, "/bin/sh");
    g_assert_cmpstr(exec->u.exec->args->items[1], ==, "-c");
    g_assert_cmpstr(exec->u.exec->args->items[2], ==, "gzip > a:b");
}

static void test_file(void)
{
    static const struct {
        const char *uri, *filename;
        uint64_t offset;
    } cases[] = {
        { "file:/tmp/f", "/tmp/f", 0 },
        { "file:/tmp/f,offset=1K", "/tmp/f", 1024 },
        { "file:f,offset=0x11921", "f", 0x11921 },
        { "file:f,x=y,offset=2M", "f,x=y", 2 * 1024 * 1024 },
        { "file:f,x=y", "f,x=y", 0 },
        { "file:f,offset=1.5k", "f", 1536 },
        { "file:f,offset=010", "f", 10 },
        { "file:,offset=7", "", 7 },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(MigrationAddress) addr = parse(cases[i].uri);
        g_assert_cmpint(addr->transport, ==, MIGRATION_ADDRESS_TYPE_FILE);
        g_assert_cmpstr(addr->u.file->filename, ==, cases[i].filename);
        g_assert_cmpuint(addr->u.file->offset, ==, cases[i].offset);
    }
}

static void test_errors(void)
{
    static const struct {
        const char *uri, *message;
    } cases[] = {
        { "foo:", "unknown migration protocol: foo:" },
        { "defer", "unknown migration protocol: defer" },
        { "TCP:h:1", "unknown migration protocol: TCP:h:1" },
        { "x-rdma:h:1", "unknown migration protocol: x-rdma:h:1" },
        { "", "unknown migration protocol: " },
        { "tcp:", "error parsing address ''" },
        { "tcp:localhost", "error parsing address 'localhost'" },
        { "tcp:localhost:", "error parsing address 'localhost:'" },
        { "tcp::", "error parsing address ':'" },
        { "tcp:[::1:1", "error parsing IPv6 address '[::1:1'" },
        { "tcp:h:1,ipv4=maybe", "Parameter 'ipv4' expects 'on' or 'off'" },
        { "tcp:h:1,foo", "Invalid parameter 'foo'" },
        { "tcp:h:1,bogus=1", "Invalid parameter 'bogus'" },
        { "tcp:h:1,to=70000", "Parameter 'to' expects a number between 0 and 65535" },
        { "unix:", "invalid Unix socket address" },
        { "vsock:", "error parsing address ''" },
        { "vsock:abc", "error parsing address 'abc'" },
        { "fd:", "invalid file descriptor address" },
        { "rdma:", "error parsing address ''" },
        { "rdma:localhost", "error parsing address 'localhost'" },
        { "file:f,offset=abc", "file URI has bad offset abc: Invalid argument" },
        { "file:f,offset=-1", "file URI has bad offset -1: Numerical result out of range" },
        { "file:f,offset=16E", "file URI has bad offset 16E: Numerical result out of range" },
        { "file:f,offset=", "file URI has bad offset : Invalid argument" },
        { "file:f,offset=1,offset=2", "file URI has bad offset 1,offset=2: Invalid argument" },
        { "file:f,offset=1.5", "file URI has bad offset 1.5: Invalid argument" },
        { "file:f,offset=1kB", "file URI has bad offset 1kB: Invalid argument" },
        { "file:f,offset=8E", "file URI has bad offset 8E: Numerical result out of range" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_null(migration_uri_parse(cases[i].uri, &error));
        g_assert_nonnull(error);
        g_assert_cmpstr(error->message, ==, cases[i].message);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/uri/tcp", test_tcp);
    g_test_add_func("/uri/tcp-options", test_tcp_options);
    g_test_add_func("/uri/others", test_others);
    g_test_add_func("/uri/file", test_file);
    g_test_add_func("/uri/errors", test_errors);
    return g_test_run();
}
