/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination: who may connect, what happens to those who are not a source, and trying again. */
#include "config.h"
#include "pair.h"
#include "stream-builder.h"
#include "util/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SIZE (4 * 4096)

static char *new_path(void)
{
    static unsigned n;
    return g_strdup_printf("%s/in%u", test_directory(), n++);
}

static int try_dial(const char *path)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    g_strlcpy(addr.sun_path, path, sizeof(addr.sun_path));
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int dial(const char *path)
{
    int fd = try_dial(path);
    g_assert_cmpint(fd, >=, 0);
    return fd;
}

/* All of it: the other side reads in a thread of its own. */
static void transmit(int fd, const void *data, size_t len)
{
    g_assert_cmpint(send(fd, data, len, MSG_NOSIGNAL), ==, (ssize_t)len);
}

/* A destination that listens at a new path. */
static char *listen_somewhere(Vm *dst, bool exit_on_error)
{
    char *path = new_path();
    g_autofree char *uri = g_strdup_printf("unix:%s", path);
    g_autoptr(GError) error = NULL;
    vm_init(dst, SIZE, true);
    migration_incoming_start(dst->ctx, uri, NULL, exit_on_error, &error);
    g_assert_no_error(error);
    return path;
}

static Stream *whole_stream(void)
{
    Stream *s = g_byte_array_new();
    put_header(s);
    put_configuration(s, "none");
    put_ram_start(s, 1, "m0", SIZE);
    put_continue(s, 2, 1);
    put_zero_page(s, 0, "m0", 0);
    put_eos(s);
    put_footer(s, 1);
    put_globalstate(s, 3, "running", 1, 0);
    put_eof(s);
    put_description(s, description_11_1);
    return s;
}

static void send_whole(int fd)
{
    g_autoptr(GByteArray) s = whole_stream();
    transmit(fd, s->data, s->len);
}

static void assert_log(Vm *vm, const char *expected)
{
    g_autofree char *log = fake_host_log(&vm->host);
    g_assert_cmpstr(log, ==, expected);
}

typedef struct Closed {
    int fd;
} Closed;

static bool is_closed(void *opaque)
{
    char c;
    ssize_t n = recv(((Closed *)opaque)->fd, &c, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void wait_closed(int fd)
{
    Closed c = { fd };
    wait_until(is_closed, &c, "the destination to close a connection");
    close(fd);
}

static void assert_completed(Vm *dst)
{
    vm_wait_incoming_ended(dst);
    g_assert_cmpstr(dst->host.ended_error, ==, NULL);
    g_assert_cmpint(vm_status(dst), ==, MIGRATION_STATUS_COMPLETED);
    g_assert_cmpint(fake_host_state(&dst->host), ==, RUN_STATE_RUNNING);
}

/* ---- plain ---- */

static void test_query(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    g_autoptr(MigrationInfo) setup = migration_query(dst.ctx);
    g_assert_cmpint(setup->status, ==, MIGRATION_STATUS_SETUP);
    g_assert_cmpuint(setup->socket_address->count, ==, 1);
    g_assert_cmpint(setup->socket_address->items[0]->type, ==, SOCKET_ADDRESS_TYPE_UNIX);
    g_assert_cmpstr(setup->socket_address->items[0]->u.q_unix->path, ==, path);

    int fd = dial(path);
    transmit(fd, "QEVM\0\0\0\3", 8);
    vm_wait_status(&dst, MIGRATION_STATUS_ACTIVE);
    g_autoptr(MigrationInfo) active = migration_query(dst.ctx);
    g_assert_nonnull(active->socket_address);
    g_assert_null(active->ram);

    g_autoptr(GByteArray) s = whole_stream();
    transmit(fd, s->data + 8, s->len - 8);
    assert_completed(&dst);
    g_autoptr(MigrationInfo) completed = migration_query(dst.ctx);
    g_assert_null(completed->socket_address);
    assert_events(&dst, "setup active RESUME completed");
    close(fd);
    /* Nobody listens any more. */
    g_assert_cmpint(try_dial(path), ==, -1);
    vm_clear(&dst);
}

static void test_tcp_port(void)
{
    Vm dst;
    g_autoptr(GError) error = NULL;
    vm_init(&dst, SIZE, true);
    migration_incoming_start(dst.ctx, "tcp:127.0.0.1:0", NULL, true, &error);
    g_assert_no_error(error);
    g_autoptr(MigrationInfo) info = migration_query(dst.ctx);
    InetSocketAddress *inet = info->socket_address->items[0]->u.inet;
    g_assert_cmpstr(inet->host, ==, "127.0.0.1");
    struct sockaddr_in addr = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons((uint16_t)g_ascii_strtoull(inet->port, NULL, 10)),
    };
    g_assert_cmpuint(addr.sin_port, !=, 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    g_assert_cmpint(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    send_whole(fd);
    assert_completed(&dst);
    close(fd);
    vm_clear(&dst);
}

/* In pieces of one byte: no read may take for granted what it gets. */
static void test_slow(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    g_autoptr(GByteArray) s = whole_stream();
    int fd = dial(path);
    for (guint i = 0; i < s->len; i++) {
        transmit(fd, s->data + i, 1);
        if (i < 8) {
            run_main_loop(20);
        }
    }
    assert_completed(&dst);
    close(fd);
    vm_clear(&dst);
}

/* The whole stream before the main loop has looked at the connection, and closed already. */
static void test_all_at_once(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    int fd = dial(path);
    send_whole(fd);
    close(fd);
    assert_completed(&dst);
    vm_clear(&dst);
}

/* ---- those who are not a source ---- */

static void test_silent(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    int silent = dial(path);
    run_main_loop(100);
    g_assert_cmpint(vm_status(&dst), ==, MIGRATION_STATUS_SETUP);
    int fd = dial(path);
    send_whole(fd);
    assert_completed(&dst);
    wait_closed(silent);
    assert_log(&dst, "Extra incoming migration connection; ignoring\n");
    close(fd);
    vm_clear(&dst);
}

static void test_closed(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    close(dial(path));
    run_main_loop(100);
    assert_log(&dst, "Failed to peek at channel: it was closed after 0 bytes\n");
    g_assert_cmpint(vm_status(&dst), ==, MIGRATION_STATUS_SETUP);
    int fd = dial(path);
    send_whole(fd);
    assert_completed(&dst);
    close(fd);
    vm_clear(&dst);
}

static void test_short(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    int open_one = dial(path);
    transmit(open_one, "QEV", 3);
    int closed = dial(path);
    transmit(closed, "QE", 2);
    run_main_loop(50);
    close(closed);
    run_main_loop(300);
    assert_log(&dst, "Failed to peek at channel: it was closed after 2 bytes\n");

    /* Three bytes are no verdict: with the fourth it becomes the main channel. */
    g_assert_cmpint(vm_status(&dst), ==, MIGRATION_STATUS_SETUP);
    g_autoptr(GByteArray) s = whole_stream();
    transmit(open_one, s->data + 3, s->len - 3);
    assert_completed(&dst);
    close(open_one);
    vm_clear(&dst);
}

/* Four bytes of something else: a source that is set up wrongly had better be told. */
static void test_garbage(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    int fd = dial(path);
    transmit(fd, "GET / HTTP/1.0\r\n\r\n", 18);
    wait_closed(fd);
    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==,
                    "load of migration failed: Invalid argument: Not a migration stream, "
                    "magic: 47455420 != 5145564d");
    /* The first four bytes as a number. */
    assert_log(&dst, "unknown channel magic: 1195725856\n");
    vm_clear(&dst);
}

static void test_extra(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    int fd = dial(path);
    transmit(fd, "QEVM\0\0\0\3", 8);
    vm_wait_status(&dst, MIGRATION_STATUS_ACTIVE);
    int extra = dial(path);
    wait_closed(extra);
    assert_log(&dst, "Extra incoming migration connection; ignoring\n");
    g_assert_cmpint(vm_status(&dst), ==, MIGRATION_STATUS_ACTIVE);
    g_autoptr(GByteArray) s = whole_stream();
    transmit(fd, s->data + 8, s->len - 8);
    assert_completed(&dst);
    close(fd);
    vm_clear(&dst);
}

static void test_many_silent(void)
{
    Vm dst;
    int fds[400];
    g_autofree char *path = listen_somewhere(&dst, true);
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        fds[i] = dial(path);
        if (i % 50 == 49) {
            run_main_loop(20);      /* no more than the kernel lets wait */
        }
    }
    int fd = dial(path);
    send_whole(fd);
    assert_completed(&dst);
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        wait_closed(fds[i]);
    }
    close(fd);
    vm_clear(&dst);
}

/*
 * A multifd channel that nobody reads: pages may be in it.  Everything is there before the main loop looks
 * for the first time, the channel last.
 */
static void test_unexpected_multifd(void)
{
    for (unsigned i = 0; i < 20; i++) {
        Vm dst;
        g_autofree char *path = listen_somewhere(&dst, true);
        int fd = dial(path);
        send_whole(fd);
        int channel = dial(path);
        transmit(channel, "\x11\x22\x33\x44\0\0\0\1", 8);
        vm_wait_incoming_ended(&dst);
        g_assert_cmpstr(dst.host.ended_error, ==,
                        "load of migration failed: the source uses multifd, which is not on here");
        g_assert_cmpuint(dst.host.resumes, ==, 0);
        assert_events(&dst, "setup active failed");
        close(fd);
        close(channel);
        vm_clear(&dst);
    }
}

/* ---- failing and trying again ---- */

static void test_fail_and_exit(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    int fd = dial(path);
    transmit(fd, "QEVM\0\0\0\3\0", 9);
    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==,
                    "load of migration failed: Invalid argument: Configuration section missing, 0 != 7");
    g_assert_cmpint(fake_host_state(&dst.host), ==, RUN_STATE_INMIGRATE);
    assert_events(&dst, "setup active failed");
    g_autoptr(GError) error = NULL;
    g_assert_false(migration_incoming_start(dst.ctx, "unix:/x", NULL, true, &error));
    g_assert_cmpstr(error->message, ==, "The incoming migration has already been started");
    close(fd);
    vm_clear(&dst);
}

/* As often as one likes, on the same address; the failed attempt has left rubbish in memory. */
static void test_fail_and_retry(void)
{
    Vm dst;
    uint8_t page[4096];
    g_autofree char *path = listen_somewhere(&dst, false);
    g_autofree char *uri = g_strdup_printf("unix:%s", path);
    memset(page, 0xa5, sizeof(page));
    for (unsigned i = 0; i < 3; i++) {
        g_autoptr(GByteArray) s = g_byte_array_new();
        put_header(s);
        put_configuration(s, "none");
        put_ram_start(s, 1, "m0", SIZE);
        put_continue(s, 2, 1);
        put_page(s, 0, "m0", page);
        int fd = dial(path);
        transmit(fd, s->data, s->len);
        close(fd);
        vm_wait_status(&dst, MIGRATION_STATUS_FAILED);
        g_autoptr(MigrationInfo) info = migration_query(dst.ctx);
        g_assert_true(g_str_has_prefix(info->error_desc, "load of migration failed: Input/output error: "));
        g_autoptr(GError) error = NULL;
        migration_incoming_start(dst.ctx, uri, NULL, false, &error);
        g_assert_no_error(error);
        g_autoptr(MigrationInfo) again = migration_query(dst.ctx);
        g_assert_cmpint(again->status, ==, MIGRATION_STATUS_SETUP);
        g_assert_null(again->error_desc);
    }
    g_assert_false(dst.host.ended);
    g_assert_cmpuint(dst.block->host[0], ==, 0xa5);
    int fd = dial(path);
    send_whole(fd);
    assert_completed(&dst);
    g_assert_cmpuint(dst.block->host[0], ==, 0);
    close(fd);
    vm_clear(&dst);
}

static void test_bad_addresses(void)
{
    static const struct {
        const char *uri, *message;
    } cases[] = {
        { NULL, "need either 'uri' or 'channels' argument" },
        { "foo:bar", "unknown migration protocol: foo:bar" },
        { "defer", "unknown migration protocol: defer" },
        { "unix:/nonexistent/u", "Failed to bind socket to /nonexistent/u: No such file or directory" },
        { "fd:nope", "File descriptor named 'nope' has not been found" },
        { "fd:99", "fd: migration to a file is not supported. Use file: instead." },
        { "file:/nonexistent/x", "Could not open '/nonexistent/x': No such file or directory" },
#ifdef CONFIG_RDMA
        { "rdma::1", "RDMA ERROR: RDMA host is not set!" },
#else
        { "rdma::1", "RDMA ERROR: RDMA was not built in" },
#endif
    };
    Vm dst;
    vm_init(&dst, SIZE, true);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(migration_incoming_start(dst.ctx, cases[i].uri, NULL, true, &error));
        g_assert_cmpstr(error->message, ==, cases[i].message);
        g_assert_cmpint(vm_status(&dst), ==, MIGRATION_STATUS_NONE);
    }
    /* None of them spoilt anything. */
    g_autofree char *path = new_path();
    g_autofree char *uri = g_strdup_printf("unix:%s", path);
    g_assert_true(migration_incoming_start(dst.ctx, uri, NULL, true, NULL));
    int fd = dial(path);
    send_whole(fd);
    assert_completed(&dst);
    close(fd);
    vm_clear(&dst);
}

static void test_exec(gconstpointer data)
{
    const char *const *c = data;
    Vm dst;
    vm_init(&dst, SIZE, true);
    g_assert_true(migration_incoming_start(dst.ctx, c[0], NULL, true, NULL));
    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==, c[1]);
    vm_clear(&dst);
}

static const char *const exec_empty[] = {
    "exec:true", "load of migration failed: Invalid argument: Not a migration stream, magic: 0 != 5145564d"
};
static const char *const exec_garbage[] = {
    "exec:echo GET /",
    "load of migration failed: Invalid argument: Not a migration stream, magic: 47455420 != 5145564d"
};

/* A command that goes on writing does not keep the failure from being told. */
static const char *const exec_endless[] = {
    "exec:yes",
    "load of migration failed: Invalid argument: Not a migration stream, magic: 790a790a != 5145564d"};

/* The source keeps the connection open for the verdict and sends no description. */
static void test_no_description(void)
{
    Vm dst;
    uint8_t answer[8];
    static const uint8_t shut_0[] = { 0, 1, 0, 4, 0, 0, 0, 0 };
    g_autofree char *path = listen_somewhere(&dst, true);
    g_autoptr(GByteArray) s = g_byte_array_new();
    put_header(s);
    put_configuration(s, "none");
    put_command(s, 1, NULL, 0);
    put_eof(s);
    int fd = dial(path);
    transmit(fd, s->data, s->len);
    assert_completed(&dst);
    g_assert_cmpint(recv(fd, answer, sizeof(answer), MSG_WAITALL), ==, sizeof(answer));
    g_assert_cmpmem(answer, sizeof(answer), shut_0, sizeof(shut_0));
    wait_closed(fd);
    vm_clear(&dst);
}

static void test_free_while_running(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    int fd = dial(path);
    transmit(fd, "QEVM\0\0\0\3", 8);
    vm_wait_status(&dst, MIGRATION_STATUS_ACTIVE);
    vm_clear(&dst);
    close(fd);

    Vm listening;
    g_autofree char *other = listen_somewhere(&listening, true);
    int silent = dial(other);
    run_main_loop(50);
    vm_clear(&listening);
    close(silent);
}

static void test_yank(void)
{
    Vm dst;
    g_autofree char *path = listen_somewhere(&dst, true);
    int fd = dial(path);
    transmit(fd, "QEVM\0\0\0\3", 8);
    vm_wait_status(&dst, MIGRATION_STATUS_ACTIVE);
    g_assert_true(migration_can_yank(dst.ctx));
    migration_yank(dst.ctx);
    vm_wait_incoming_ended(&dst);
    g_assert_nonnull(dst.host.ended_error);
    g_assert_false(migration_can_yank(dst.ctx));
    close(fd);
    vm_clear(&dst);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/incoming/query", test_query);
    g_test_add_func("/incoming/tcp-port", test_tcp_port);
    g_test_add_func("/incoming/slow", test_slow);
    g_test_add_func("/incoming/all-at-once", test_all_at_once);
    g_test_add_func("/incoming/silent", test_silent);
    g_test_add_func("/incoming/closed", test_closed);
    g_test_add_func("/incoming/short", test_short);
    g_test_add_func("/incoming/garbage", test_garbage);
    g_test_add_func("/incoming/extra", test_extra);
    g_test_add_func("/incoming/many-silent", test_many_silent);
    g_test_add_func("/incoming/unexpected-multifd", test_unexpected_multifd);
    g_test_add_func("/incoming/fail-and-exit", test_fail_and_exit);
    g_test_add_func("/incoming/fail-and-retry", test_fail_and_retry);
    g_test_add_func("/incoming/bad-addresses", test_bad_addresses);
    g_test_add_data_func("/incoming/exec-empty", exec_empty, test_exec);
    g_test_add_data_func("/incoming/exec-garbage", exec_garbage, test_exec);
    g_test_add_data_func("/incoming/exec-endless", exec_endless, test_exec);
    g_test_add_func("/incoming/no-description", test_no_description);
    g_test_add_func("/incoming/free-while-running", test_free_while_running);
    g_test_add_func("/incoming/yank", test_yank);
    return g_test_run();
}
