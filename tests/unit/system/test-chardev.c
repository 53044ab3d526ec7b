/* SPDX-License-Identifier: BSD-2-Clause */
/* Unit test of character devices: texts, connections, back-pressure, descriptors, files. */
#include "system/chardev.h"

#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Only a hang is cut off; no test waits for it. */
#define HANG_SECONDS 30

static char *tmp_dir;

/* A front end that writes down what it is told. */
typedef struct Front {
    GString *got;
    unsigned opened, closed;
    int fds[CHARDEV_MAX_FDS];
    size_t n_fds;
    Chardev *chr;
    bool disconnect_on_receive;
} Front;

static void front_opened(void *opaque)
{
    ((Front *)opaque)->opened++;
}

static void front_closed(void *opaque)
{
    ((Front *)opaque)->closed++;
}

static void front_receive(void *opaque, const uint8_t *buf, size_t len, int *fds, size_t n_fds)
{
    Front *f = opaque;

    g_string_append_len(f->got, (const char *)buf, (gssize)len);
    g_assert_cmpuint(f->n_fds + n_fds, <=, CHARDEV_MAX_FDS);
    memcpy(f->fds + f->n_fds, fds, n_fds * sizeof(int));
    f->n_fds += n_fds;
    if (f->disconnect_on_receive) {
        chardev_write(f->chr, "bye", 3);
        chardev_disconnect(f->chr);
    }
}

static const ChardevHandlers front_handlers = {front_opened, front_closed, front_receive};

static Front *front_new(Chardev *chr)
{
    Front *f = g_new0(Front, 1);

    f->got = g_string_new(NULL);
    f->chr = chr;
    chardev_set_handlers(chr, &front_handlers, f);
    return f;
}

static void front_free(Front *f)
{
    for (size_t i = 0; i < f->n_fds; i++) {
        close(f->fds[i]);
    }
    g_string_free(f->got, true);
    g_free(f);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Front, front_free)

static gboolean hang(gpointer what)
{
    g_error("waited in vain for: %s", (const char *)what);
    return G_SOURCE_REMOVE;
}

/* Runs the main loop until @condition. */
#define WAIT_FOR(condition)                                                                                  \
    do {                                                                                                     \
        guint hang_source = g_timeout_add_seconds(HANG_SECONDS, hang, (gpointer) #condition);                \
        while (!(condition)) {                                                                               \
            g_main_context_iteration(NULL, true);                                                            \
        }                                                                                                    \
        g_source_remove(hang_source);                                                                        \
    } while (0)

/* Runs whatever is ready now. */
static void settle(void)
{
    while (g_main_context_iteration(NULL, false)) {
    }
}

static Chardev *make(const char *label, const char *spec)
{
    g_autoptr(GError) err = NULL;
    Chardev *chr = chardev_new(label, spec, &err);

    g_assert_no_error(err);
    g_assert_nonnull(chr);
    return chr;
}

static char *tmp_path(const char *name)
{
    return g_build_filename(tmp_dir, name, NULL);
}

static int connect_unix(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    g_assert_cmpint(connect(fd, (struct sockaddr *)&un, sizeof(un)), ==, 0);
    return fd;
}

static void send_text(int fd, const char *text)
{
    g_assert_cmpint(write(fd, text, strlen(text)), ==, (ssize_t)strlen(text));
}

static void assert_reads(int fd, const char *text)
{
    char buf[256];
    size_t got = 0, want = strlen(text);

    while (got < want) {
        ssize_t n = read(fd, buf + got, sizeof(buf) - got);
        g_assert_cmpint(n, >, 0);
        got += (size_t)n;
    }
    g_assert_cmpmem(buf, got, text, want);
}

static void assert_eof(int fd)
{
    char c;

    g_assert_cmpint(read(fd, &c, 1), ==, 0);
}

/* ---- unix server ---- */

static void test_unix_server(void)
{
    g_autofree char *path = tmp_path("srv");
    g_autofree char *spec = g_strdup_printf("unix:%s,server=on,wait=off", path);
    g_autofree char *closed_name = g_strdup_printf("disconnected:unix:%s,server=on", path);
    Chardev *chr = make("srv", spec);
    g_autoptr(Front) f = front_new(chr);
    g_autofree char *name = chardev_filename(chr);

    g_assert_cmpstr(name, ==, closed_name);
    g_assert_false(chardev_is_open(chr));
    g_assert_true(chardev_find("srv") == chr);
    chardev_write(chr, "lost", 4);

    int client = connect_unix(path);
    WAIT_FOR(f->opened == 1);
    g_autofree char *open_name = chardev_filename(chr);
    g_assert_cmpstr(open_name, ==, closed_name + strlen("disconnected:"));
    send_text(client, "hello");
    WAIT_FOR(f->got->len == 5);
    g_assert_cmpstr(f->got->str, ==, "hello");
    chardev_write(chr, "world", 5);
    assert_reads(client, "world");
    close(client);
    WAIT_FOR(f->closed == 1);
    g_assert_false(chardev_is_open(chr));

    chardev_free(chr);
    g_assert_cmpint(g_access(path, F_OK), ==, -1);
}

static void test_one_client_at_a_time(void)
{
    g_autofree char *path = tmp_path("one");
    g_autofree char *spec = g_strdup_printf("unix:%s,server=on,wait=off", path);
    g_autoptr(Chardev) chr = make("one", spec);
    g_autoptr(Front) f = front_new(chr);
    int first = connect_unix(path);

    WAIT_FOR(f->opened == 1);
    int second = connect_unix(path); /* succeeds: the backlog */
    send_text(second, "two");
    settle();
    g_assert_cmpuint(f->opened, ==, 1);
    g_assert_cmpuint(f->got->len, ==, 0);

    close(first);
    WAIT_FOR(f->got->len == 3);
    g_assert_cmpuint(f->closed, ==, 1);
    g_assert_cmpuint(f->opened, ==, 2);
    close(second);
}

static gpointer connect_late(gpointer path)
{
    int fd;

    while (g_access(path, F_OK) < 0) {
        g_usleep(1000);
    }
    /* The file exists from bind() on; listen() may be yet to come. */
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    g_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0) {
        g_usleep(1000);
    }
    return GINT_TO_POINTER(fd);
}

static void test_server_waits(void)
{
    g_autofree char *path = tmp_path("wait");
    g_autofree char *spec = g_strdup_printf("unix:%s,server", path);
    GThread *thread = g_thread_new("client", connect_late, path);
    g_autoptr(Chardev) chr = make("wait", spec);

    g_assert_true(chardev_is_open(chr));
    g_autoptr(Front) f = front_new(chr);
    g_assert_cmpuint(f->opened, ==, 1);
    int client = GPOINTER_TO_INT(g_thread_join(thread));
    send_text(client, "x");
    WAIT_FOR(f->got->len == 1);
    close(client);
}

static void test_disconnect(void)
{
    g_autofree char *path = tmp_path("disc");
    g_autofree char *spec = g_strdup_printf("unix:%s,server=on,wait=off", path);
    g_autoptr(Chardev) chr = make("disc", spec);
    g_autoptr(Front) f = front_new(chr);
    int client = connect_unix(path);

    f->disconnect_on_receive = true;
    send_text(client, "x");
    WAIT_FOR(f->closed == 1);
    assert_reads(client, "bye");
    assert_eof(client);
    close(client);

    client = connect_unix(path);
    WAIT_FOR(f->opened == 2);
    close(client);
    WAIT_FOR(f->closed == 2);
}

static void test_stale_socket(void)
{
    g_autofree char *path = tmp_path("stale");
    g_autofree char *spec = g_strdup_printf("unix:%s,server=on,wait=off", path);
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    g_assert_cmpint(bind(fd, (struct sockaddr *)&un, sizeof(un)), ==, 0);
    close(fd);
    g_autoptr(Chardev) chr = make("stale", spec);
    g_autoptr(Front) f = front_new(chr);
    int client = connect_unix(path);
    WAIT_FOR(f->opened == 1);
    close(client);
}

static void test_file_in_the_way(void)
{
    g_autofree char *path = tmp_path("precious");
    g_autofree char *spec = g_strdup_printf("unix:%s,server=on,wait=off", path);
    g_autofree char *message = g_strdup_printf("Failed to bind socket to %s: Address already in use", path);
    g_autoptr(GError) err = NULL;

    g_assert_true(g_file_set_contents(path, "data", 4, NULL));
    g_assert_null(chardev_new("precious", spec, &err));
    g_assert_cmpstr(err->message, ==, message);
    g_assert_cmpint(g_access(path, F_OK), ==, 0);
}

/* ---- back-pressure ---- */

static void test_pending(void)
{
    g_autofree char *path = tmp_path("slow");
    g_autofree char *spec = g_strdup_printf("unix:%s,server=on,wait=off", path);
    g_autoptr(Chardev) chr = make("slow", spec);
    g_autoptr(Front) f = front_new(chr);
    int client = connect_unix(path);
    size_t size = 8u << 20, got = 0;
    g_autofree uint8_t *data = g_malloc(size);
    g_autofree uint8_t *back = g_malloc(size);

    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(i * 7 + i / 253);
    }
    WAIT_FOR(f->opened == 1);
    chardev_write(chr, data, size / 2);
    chardev_write(chr, data + size / 2, size / 2);
    g_assert_cmpuint(chardev_pending(chr), >, 0);
    while (got < size) {
        ssize_t n = recv(client, back + got, size - got, MSG_DONTWAIT);
        if (n < 0) {
            g_assert_cmpint(errno, ==, EAGAIN);
            g_main_context_iteration(NULL, false);
        } else {
            got += (size_t)n;
        }
    }
    g_assert_cmpmem(back, size, data, size);
    g_assert_cmpuint(chardev_pending(chr), ==, 0);
    close(client);
}

static void test_client_that_never_reads(void)
{
    g_autofree char *path = tmp_path("stuck");
    g_autofree char *spec = g_strdup_printf("unix:%s,server=on,wait=off", path);
    g_autoptr(Chardev) chr = make("stuck", spec);
    g_autoptr(Front) f = front_new(chr);
    int client = connect_unix(path);
    g_autofree uint8_t *data = g_malloc0(CHARDEV_MAX_PENDING / 2);

    WAIT_FOR(f->opened == 1);
    for (int i = 0; i < 3; i++) {
        chardev_write(chr, data, CHARDEV_MAX_PENDING / 2);
        g_assert_cmpuint(chardev_pending(chr), <=, CHARDEV_MAX_PENDING);
    }
    g_assert_cmpuint(f->closed, ==, 0); /* not from within the write */
    WAIT_FOR(f->closed == 1);
    close(client);
}

static void test_pause(void)
{
    g_autofree char *path = tmp_path("pause");
    g_autofree char *spec = g_strdup_printf("unix:%s,server=on,wait=off", path);
    g_autoptr(Chardev) chr = make("pause", spec);
    g_autoptr(Front) f = front_new(chr);
    int client = connect_unix(path);

    WAIT_FOR(f->opened == 1);
    chardev_pause_receive(chr, true);
    send_text(client, "later");
    settle();
    g_assert_cmpuint(f->got->len, ==, 0);
    chardev_pause_receive(chr, false);
    WAIT_FOR(f->got->len == 5);
    close(client);
}

static void test_flush(void)
{
    int pair[2];
    size_t size = 1u << 20, got = 0;
    g_autofree uint8_t *data = g_malloc0(size);

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), ==, 0);
    g_autofree char *options = g_strdup_printf("socket,id=flush,fd=%d", pair[0]);
    g_autoptr(GError) err = NULL;
    g_autoptr(Chardev) chr = chardev_new_from_options(options, &err);
    g_assert_no_error(err);

    chardev_write(chr, data, size);
    g_assert_cmpuint(chardev_pending(chr), >, 0);
    while (got < size) {
        ssize_t n = recv(pair[1], data, size, MSG_DONTWAIT);
        if (n > 0) {
            got += (size_t)n;
        }
        chardev_flush(chr, 0);
    }
    g_assert_cmpuint(chardev_pending(chr), ==, 0);
    close(pair[1]);
}

/* ---- descriptors ---- */

static void test_fd_passing(void)
{
    int pair[2], pipe_fds[2];
    char byte;

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), ==, 0);
    g_assert_cmpint(pipe(pipe_fds), ==, 0);
    g_autofree char *options = g_strdup_printf("socket,id=pass,fd=%d", pair[0]);
    g_autoptr(GError) err = NULL;
    g_autoptr(Chardev) chr = chardev_new_from_options(options, &err);
    g_assert_no_error(err);
    g_autoptr(Front) f = front_new(chr);
    g_assert_cmpuint(f->opened, ==, 1);

    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)"getfd", .iov_len = 5};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &pipe_fds[1], sizeof(int));
    g_assert_cmpint(sendmsg(pair[1], &msg, 0), ==, 5);

    WAIT_FOR(f->n_fds == 1);
    g_assert_cmpstr(f->got->str, ==, "getfd");
    g_assert_cmpint(fcntl(f->fds[0], F_GETFD) & FD_CLOEXEC, ==, FD_CLOEXEC);
    g_assert_cmpint(write(f->fds[0], "!", 1), ==, 1);
    g_assert_cmpint(read(pipe_fds[0], &byte, 1), ==, 1);
    g_assert_cmpint(byte, ==, '!');
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    close(pair[1]);
    WAIT_FOR(f->closed == 1);
}

static void test_listening_fd(void)
{
    g_autofree char *path = tmp_path("lfd");
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    g_assert_cmpint(bind(fd, (struct sockaddr *)&un, sizeof(un)), ==, 0);
    g_assert_cmpint(listen(fd, 1), ==, 0);
    g_autofree char *options = g_strdup_printf("socket,id=lfd,fd=%d,server=on,wait=off", fd);
    g_autoptr(GError) err = NULL;
    g_autoptr(Chardev) chr = chardev_new_from_options(options, &err);
    g_assert_no_error(err);
    g_autoptr(Front) f = front_new(chr);
    for (unsigned i = 1; i <= 2; i++) {
        int client = connect_unix(path);
        WAIT_FOR(f->opened == i);
        close(client);
        WAIT_FOR(f->closed == i);
    }
}

/* ---- tcp ---- */

/* The port in "...tcp:127.0.0.1:PORT,server=on". */
static uint16_t port_of(Chardev *chr)
{
    g_autofree char *name = chardev_filename(chr);
    char *comma = strchr(name, ',');

    g_assert_nonnull(comma);
    *comma = '\0';
    return (uint16_t)g_ascii_strtoull(strrchr(name, ':') + 1, NULL, 10);
}

static int connect_tcp(uint16_t port)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_assert_cmpint(connect(fd, (struct sockaddr *)&in, sizeof(in)), ==, 0);
    return fd;
}

static void test_tcp_server(void)
{
    g_autoptr(Chardev) chr = make("tcp", "tcp:127.0.0.1:0,server=on,wait=off");
    g_autoptr(Front) f = front_new(chr);
    uint16_t port = port_of(chr);
    int client = connect_tcp(port);

    WAIT_FOR(f->opened == 1);
    struct sockaddr_in own;
    socklen_t len = sizeof(own);
    g_assert_cmpint(getsockname(client, (struct sockaddr *)&own, &len), ==, 0);
    g_autofree char *name = chardev_filename(chr);
    g_autofree char *want =
        g_strdup_printf("tcp:127.0.0.1:%u,server=on <-> 127.0.0.1:%u", port, ntohs(own.sin_port));
    g_assert_cmpstr(name, ==, want);
    close(client);
    WAIT_FOR(f->closed == 1);
    g_autofree char *after = chardev_filename(chr);
    g_assert_true(g_str_has_prefix(after, "disconnected:tcp:127.0.0.1:"));
}

static void test_tcp_port_range(void)
{
    g_autoptr(Chardev) first = make("first", "tcp:127.0.0.1:0,server=on,wait=off");
    uint16_t taken = port_of(first);
    g_autoptr(GError) err = NULL;
    g_autofree char *same = g_strdup_printf("tcp:127.0.0.1:%u,server=on,wait=off", taken);

    g_assert_null(chardev_new("second", same, &err));
    g_assert_cmpstr(err->message, ==, "Failed to find an available port: Address already in use");
    g_clear_error(&err);

    g_autofree char *range = g_strdup_printf("tcp:127.0.0.1:%u,to=%u,server=on,wait=off", taken, taken + 50);
    g_autoptr(Chardev) third = chardev_new("third", range, &err);
    g_assert_no_error(err);
    g_assert_cmpuint(port_of(third), >, taken);
}

static void test_telnet(void)
{
    static const uint8_t greeting[] = {255, 251, 1, 255, 251, 3, 255, 251, 0, 255, 253, 0};
    /* DO ECHO, "a", escaped 255, a sub-negotiation, "b", CR NUL, "c" */
    static const uint8_t typed[] = {255, 253, 1,   'a', 255, 255,  255, 250, 31,
                                    0,   80,  255, 240, 'b', '\r', 0,   'c'};
    g_autoptr(Chardev) chr = make("telnet", "telnet:127.0.0.1:0,server=on,wait=off");
    g_autoptr(Front) f = front_new(chr);
    int client = connect_tcp(port_of(chr));
    uint8_t buf[sizeof(greeting)];

    WAIT_FOR(f->opened == 1);
    g_assert_cmpint(recv(client, buf, sizeof(buf), MSG_WAITALL), ==, sizeof(buf));
    g_assert_cmpmem(buf, sizeof(buf), greeting, sizeof(greeting));
    for (size_t i = 0; i < sizeof(typed); i++) { /* one by one: state survives between reads */
        g_assert_cmpint(write(client, typed + i, 1), ==, 1);
        settle();
    }
    WAIT_FOR(f->got->len == 5);
    g_assert_cmpmem(f->got->str, f->got->len,
                    "a\xff"
                    "b\rc",
                    5);
    close(client);
}

/* ---- client ---- */

static int listen_unix(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    g_assert_cmpint(bind(fd, (struct sockaddr *)&un, sizeof(un)), ==, 0);
    g_assert_cmpint(listen(fd, 4), ==, 0);
    return fd;
}

static void test_client(void)
{
    g_autofree char *path = tmp_path("peer");
    g_autofree char *spec = g_strdup_printf("unix:%s", path);
    int listener = listen_unix(path);
    g_autoptr(Chardev) chr = make("client", spec);
    g_autoptr(Front) f = front_new(chr);
    int peer = accept(listener, NULL, NULL);

    g_assert_cmpuint(f->opened, ==, 1);
    send_text(peer, "hi");
    WAIT_FOR(f->got->len == 2);
    close(peer);
    WAIT_FOR(f->closed == 1);
    g_assert_false(chardev_is_open(chr));
    close(listener);
}

static unsigned messages_seen;

static GLogWriterOutput count_messages(GLogLevelFlags level, const GLogField *fields, gsize n,
                                       gpointer opaque)
{
    if (level & G_LOG_LEVEL_MESSAGE) {
        messages_seen++;
    }
    return level & G_LOG_FLAG_FATAL ? g_log_writer_default(level, fields, n, opaque) : G_LOG_WRITER_HANDLED;
}

static void test_reconnect(void)
{
    g_autofree char *path = tmp_path("again");
    g_autofree char *options = g_strdup_printf("socket,id=again,path=%s,reconnect-ms=10", path);
    g_autoptr(GError) err = NULL;

    messages_seen = 0;
    g_autoptr(Chardev) chr = chardev_new_from_options(options, &err);
    g_assert_no_error(err);
    g_autoptr(Front) f = front_new(chr);
    g_assert_cmpuint(f->opened, ==, 0);
    WAIT_FOR(messages_seen == 1); /* nobody there yet: said once */

    int listener = listen_unix(path);
    for (unsigned i = 1; i <= 2; i++) {
        WAIT_FOR(f->opened == i);
        int peer = accept(listener, NULL, NULL);
        close(peer);
        WAIT_FOR(f->closed == i);
    }
    close(listener);
    g_assert_cmpuint(messages_seen, ==, 1);
}

static void test_free_while_connecting(void)
{
    g_autofree char *path = tmp_path("nobody");
    g_autofree char *options = g_strdup_printf("socket,id=gone,path=%s,reconnect-ms=1", path);
    Chardev *chr = chardev_new_from_options(options, NULL);

    chardev_free(chr);
    for (int i = 0; i < 50; i++) {
        settle();
        g_usleep(1000);
    }
    g_assert_null(chardev_find("gone"));
}

/* ---- files ---- */

static void assert_file(const char *path, const char *content)
{
    g_autofree char *text = NULL;

    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    g_assert_cmpstr(text, ==, content);
}

static void test_file(void)
{
    g_autofree char *path = tmp_path("out");
    g_autofree char *spec = g_strdup_printf("file:%s", path);
    g_autofree char *append = g_strdup_printf("file,id=f2,path=%s,append=on", path);
    Chardev *chr = make("f1", spec);

    chardev_write(chr, "one", 3);
    chardev_free(chr);
    assert_file(path, "one");

    chr = chardev_new_from_options(append, NULL);
    chardev_write(chr, "two", 3);
    chardev_free(chr);
    assert_file(path, "onetwo");

    chr = make("f1", spec);
    chardev_free(chr);
    assert_file(path, "");
}

static void test_log_file(void)
{
    g_autofree char *log = tmp_path("log");
    g_autofree char *options = g_strdup_printf("null,id=logged,logfile=%s", log);
    g_autoptr(Chardev) chr = chardev_new_from_options(options, NULL);

    chardev_write(chr, "abc", 3);
    assert_file(log, "abc");
}

static void test_pipe(void)
{
    g_autofree char *path = tmp_path("p");
    g_autofree char *in_path = g_strconcat(path, ".in", NULL);
    g_autofree char *out_path = g_strconcat(path, ".out", NULL);
    g_autofree char *spec = g_strdup_printf("pipe:%s", path);

    g_assert_cmpint(mkfifo(in_path, 0600), ==, 0);
    g_assert_cmpint(mkfifo(out_path, 0600), ==, 0);
    g_autoptr(Chardev) chr = make("pipe", spec);
    g_autoptr(Front) f = front_new(chr);
    int in_fd = open(in_path, O_WRONLY | O_CLOEXEC), out_fd = open(out_path, O_RDONLY | O_CLOEXEC);

    send_text(in_fd, "ping");
    WAIT_FOR(f->got->len == 4);
    chardev_write(chr, "pong", 4);
    assert_reads(out_fd, "pong");
    close(in_fd);
    close(out_fd);
    settle();
    g_assert_true(chardev_is_open(chr));
}

static void test_pty(void)
{
    g_autoptr(GError) err = NULL;
    g_autoptr(Chardev) chr = chardev_new("pty", "pty", &err);

    if (!chr) {
        g_test_skip_printf("no pseudo-terminals here: %s", err->message);
        return;
    }
    g_autoptr(Front) f = front_new(chr);
    g_autofree char *name = chardev_filename(chr);
    g_assert_true(g_str_has_prefix(name, "pty:/dev/pts/"));
    g_assert_cmpuint(f->opened, ==, 0);
    for (unsigned i = 1; i <= 2; i++) {
        int fd = open(name + strlen("pty:"), O_RDWR | O_NOCTTY | O_CLOEXEC);
        g_assert_cmpint(fd, >=, 0);
        WAIT_FOR(f->opened == i);
        send_text(fd, "x");
        WAIT_FOR(f->got->len == i);
        chardev_write(chr, "y\n", 2);
        assert_reads(fd, "y\n");
        close(fd);
        WAIT_FOR(f->closed == i);
    }
}

/* ---- stdio ---- */

static void test_stdio_end_of_input(void)
{
    int in[2], out[2], saved_in = dup(0), saved_out = dup(1);

    g_assert_cmpint(pipe(in), ==, 0);
    g_assert_cmpint(pipe(out), ==, 0);
    dup2(in[0], 0);
    dup2(out[1], 1);
    g_autoptr(GError) err = NULL;
    Chardev *chr = chardev_new("stdio", "stdio", &err);
    Chardev *second = chardev_new("stdio2", "stdio", NULL);
    dup2(saved_in, 0);
    dup2(saved_out, 1);

    g_assert_no_error(err);
    g_assert_null(second);
    g_assert_false(chardev_is_terminal(chr));
    g_autoptr(Front) f = front_new(chr);
    send_text(in[1], "last words");
    close(in[1]);
    WAIT_FOR(f->got->len == 10);
    settle();
    g_assert_cmpuint(f->closed, ==, 0);
    chardev_write(chr, "answer", 6);
    assert_reads(out[0], "answer");
    chardev_free(chr);

    close(in[0]);
    close(out[0]);
    close(out[1]);
    close(saved_in);
    close(saved_out);
}

/* ---- texts ---- */

static void test_spec_errors(void)
{
    static const struct {
        const char *spec, *message;
        int code;
    } rows[] = {
        {"foo", "'foo' is not a valid char driver", GODWIT_ERROR_INVALID},
        {"none", "'none' is not a valid char driver", GODWIT_ERROR_INVALID},
        {"nullx", "'nullx' is not a valid char driver", GODWIT_ERROR_INVALID},
        {"", "'' is not a valid char driver", GODWIT_ERROR_INVALID},
        {"unix:/tmp/q,server=maybe", "Parameter 'server' expects 'on' or 'off'", GODWIT_ERROR_INVALID},
        {"unix:/tmp/q,foo=1", "Invalid parameter 'foo'", GODWIT_ERROR_INVALID},
        {"unix:", "Unable to parse FD number ", GODWIT_ERROR_FAILED},
        {"unix:/tmp/q,wait=off", "'wait' option is incompatible with socket in client connect mode",
         GODWIT_ERROR_FAILED},
        {"unix:/nonexistent/q", "Failed to connect to '/nonexistent/q': No such file or directory",
         GODWIT_ERROR_IO},
        {"unix:/nonexistent/q,server=on,wait=off",
         "Failed to bind socket to /nonexistent/q: No such file or directory", GODWIT_ERROR_IO},
        {"tcp:localhost", "error parsing address 'localhost'", GODWIT_ERROR_INVALID},
        {"tcp:localhost:", "error parsing address 'localhost:'", GODWIT_ERROR_INVALID},
        {"tcp:[::1", "error parsing address '[::1'", GODWIT_ERROR_INVALID},
        {"tcp:127.0.0.1:1", "Failed to connect to '127.0.0.1:1': Connection refused", GODWIT_ERROR_IO},
        {"file:/nonexistent/x", "Could not open '/nonexistent/x': No such file or directory",
         GODWIT_ERROR_IO},
        {"pipe:/nonexistent/x", "Could not open '/nonexistent/x': No such file or directory",
         GODWIT_ERROR_IO},
        {"file:", "chardev: file: no filename given", GODWIT_ERROR_FAILED},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) err = NULL;

        g_assert_null(chardev_new("bad", rows[i].spec, &err));
        g_assert_error(err, GODWIT_ERROR, rows[i].code);
        g_assert_cmpstr(err->message, ==, rows[i].message);
        g_assert_null(chardev_find("bad"));
    }
}

static void test_option_errors(void)
{
    static const struct {
        const char *options, *message;
    } rows[] = {
        {"socket", "chardev: no id specified"},
        {"foo,id=x", "'foo' is not a valid char driver name"},
        {"socket,id=x", "Unable to parse FD number "},
        {"socket,id=x,fd=foo", "Unable to parse FD number foo"},
        {"socket,id=x,fd=9999", "File descriptor '9999' is not a socket"},
        {"socket,id=x,host=a", "chardev: socket: no port given"},
        {"socket,id=x,path=/tmp/q,host=a", "None or one of 'path', 'fd' or 'host' option required."},
        {"socket,id=x,path=/tmp/q,server=on,wait=off,reconnect-ms=3",
         "'reconnect-ms' option is incompatible with socket in server listen mode"},
        {"socket,id=x,path=/tmp/q,server=on,wait=off,reconnect=3",
         "'reconnect' option is incompatible with socket in server listen mode"},
        {"socket,id=x,path=/tmp/q,reconnect-ms=foo", "Parameter 'reconnect-ms' expects a number"},
        {"file,id=x", "chardev: file: no filename given"},
        {"pipe,id=x", "chardev: pipe: no device path given"},
        {"null,id=x,foo=1", "Invalid parameter 'foo'"},
        {"null,id=1x", "Parameter 'id' expects an identifier\n"
                       "Identifiers consist of letters, digits, '-', '.', '_', starting with a letter."},
        {"null,id=taken", "Duplicate ID 'taken' for chardev"},
    };
    g_autoptr(Chardev) taken = make("taken", "null");

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) err = NULL;

        g_assert_null(chardev_new_from_options(rows[i].options, &err));
        g_assert_cmpstr(err->message, ==, rows[i].message);
    }
}

static void test_long_path(void)
{
    g_autofree char *name = g_strnfill(200, 'a');
    g_autofree char *spec = g_strdup_printf("unix:/%s,server=on,wait=off", name);
    g_autofree char *message = g_strdup_printf("UNIX socket path '/%s' is too long\n"
                                               "Path must be less than 108 bytes",
                                               name);
    g_autoptr(GError) err = NULL;

    g_assert_null(chardev_new("long", spec, &err));
    g_assert_cmpstr(err->message, ==, message);
}

static void test_null(void)
{
    g_autoptr(Chardev) chr = make("null", "null");
    g_autoptr(Front) f = front_new(chr);

    g_assert_cmpuint(f->opened, ==, 1);
    g_assert_true(chardev_has_front_end(chr));
    chardev_write(chr, "x", 1);
    g_assert_cmpuint(chardev_pending(chr), ==, 0);
    g_autofree char *name = chardev_filename(chr);
    g_assert_cmpstr(name, ==, "null");
}

static void test_abstract(void)
{
    g_autofree char *options =
        g_strdup_printf("socket,id=abs,path=godwit-test-%d,abstract=on,server=on,wait=off", getpid());
    g_autofree char *want =
        g_strdup_printf("disconnected:unix:godwit-test-%d,abstract=on,tight=on,server=on", getpid());
    g_autoptr(GError) err = NULL;
    g_autoptr(Chardev) chr = chardev_new_from_options(options, &err);
    g_assert_no_error(err);
    g_autofree char *name = chardev_filename(chr);
    g_assert_cmpstr(name, ==, want);

    g_autofree char *peer = g_strdup_printf("socket,id=abs2,path=godwit-test-%d,abstract=on", getpid());
    g_autoptr(Chardev) client = chardev_new_from_options(peer, &err);
    g_assert_no_error(err);
    g_autoptr(Front) f = front_new(chr);
    WAIT_FOR(f->opened == 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_log_set_writer_func(count_messages, NULL, NULL);
    tmp_dir = g_dir_make_tmp("godwit-chardev-XXXXXX", NULL);
    g_assert_nonnull(tmp_dir);

    g_test_add_func("/chardev/unix-server", test_unix_server);
    g_test_add_func("/chardev/one-client-at-a-time", test_one_client_at_a_time);
    g_test_add_func("/chardev/server-waits", test_server_waits);
    g_test_add_func("/chardev/disconnect", test_disconnect);
    g_test_add_func("/chardev/stale-socket", test_stale_socket);
    g_test_add_func("/chardev/file-in-the-way", test_file_in_the_way);
    g_test_add_func("/chardev/pending", test_pending);
    g_test_add_func("/chardev/client-that-never-reads", test_client_that_never_reads);
    g_test_add_func("/chardev/pause", test_pause);
    g_test_add_func("/chardev/flush", test_flush);
    g_test_add_func("/chardev/fd-passing", test_fd_passing);
    g_test_add_func("/chardev/listening-fd", test_listening_fd);
    g_test_add_func("/chardev/tcp-server", test_tcp_server);
    g_test_add_func("/chardev/tcp-port-range", test_tcp_port_range);
    g_test_add_func("/chardev/telnet", test_telnet);
    g_test_add_func("/chardev/client", test_client);
    g_test_add_func("/chardev/reconnect", test_reconnect);
    g_test_add_func("/chardev/free-while-connecting", test_free_while_connecting);
    g_test_add_func("/chardev/file", test_file);
    g_test_add_func("/chardev/log-file", test_log_file);
    g_test_add_func("/chardev/pipe", test_pipe);
    g_test_add_func("/chardev/pty", test_pty);
    g_test_add_func("/chardev/stdio-end-of-input", test_stdio_end_of_input);
    g_test_add_func("/chardev/spec-errors", test_spec_errors);
    g_test_add_func("/chardev/option-errors", test_option_errors);
    g_test_add_func("/chardev/long-path", test_long_path);
    g_test_add_func("/chardev/null", test_null);
    g_test_add_func("/chardev/abstract", test_abstract);
    int rc = g_test_run();

    g_autofree char *clean = g_strdup_printf("rm -rf '%s'", tmp_dir);
    if (system(clean) != 0) {
        rc = 1;
    }
    g_free(tmp_dir);
    return rc;
}
