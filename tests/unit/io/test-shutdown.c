/* SPDX-License-Identifier: BSD-2-Clause */
/* channel_shutdown() unblocks every kind of channel in every kind of call, and later calls fail at once. */
#include "io/transport.h"
#include "util/error.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long a thread gets to be well inside its call before the shutdown. */
#define INSIDE_US (30 * 1000)

typedef enum { CALL_READ, CALL_WRITE, CALL_PEEK, CALL_CLOSE } Call;

typedef struct Case {
    const char *name;
    Channel *(*open)(int *peer_fd);     /* *peer_fd: to be closed at the end, or -1 */
    Call call;
} Case;

static Channel *open_unix(int *peer_fd)
{
    int fds[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), ==, 0);
    *peer_fd = fds[1];
    return channel_from_fd(fds[0], NULL);
}

/* A socket that someone made non-blocking blocks all the same. */
static Channel *open_nonblocking(int *peer_fd)
{
    int fds[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), ==, 0);
    *peer_fd = fds[1];
    return channel_from_fd(fds[0], NULL);
}

static void take_channel(Listener *listener, Channel *channel, void *opaque)
{
    *(Channel **)opaque = channel;
}

static Channel *open_tcp(int *peer_fd)
{
    InetSocketAddress inet = { .host = (char *)"127.0.0.1", .port = (char *)"0" };
    SocketAddress addr = { .type = SOCKET_ADDRESS_TYPE_INET, .u.inet = &inet };
    g_autoptr(Listener) listener = listener_new(&addr, 1, NULL);
    Channel *accepted = NULL;

    g_assert_nonnull(listener);
    listener_start(listener, take_channel, &accepted);
    Channel *c = channel_socket_connect(listener_addresses(listener)->items[0], NULL, NULL);
    g_assert_nonnull(c);
    while (!accepted) {
        g_main_context_iteration(NULL, TRUE);
    }
    *peer_fd = dup(channel_poll_fd(accepted));
    channel_unref(accepted);
    return c;
}

static Channel *open_pipe_reader(int *peer_fd)
{
    int fds[2];

    g_assert_cmpint(pipe2(fds, O_CLOEXEC), ==, 0);
    *peer_fd = fds[1];
    return channel_from_fd(fds[0], NULL);
}

static Channel *open_pipe_writer(int *peer_fd)
{
    int fds[2];

    g_assert_cmpint(pipe2(fds, O_CLOEXEC), ==, 0);
    *peer_fd = fds[0];
    return channel_from_fd(fds[1], NULL);
}

/* Reads nothing, writes nothing, goes away at SIGTERM only. */
static Channel *open_command(int *peer_fd)
{
    static const char *const argv[] = { "/bin/sh", "-c", "while :; do sleep 0.05; done", NULL };

    *peer_fd = -1;
    return channel_command_spawn(argv, true, true, NULL);
}

static const Case cases[] = {
    { "unix/read", open_unix, CALL_READ },
    { "unix/write", open_unix, CALL_WRITE },
    { "unix/peek", open_unix, CALL_PEEK },
    { "nonblocking/read", open_nonblocking, CALL_READ },
    { "nonblocking/write", open_nonblocking, CALL_WRITE },
    { "nonblocking/peek", open_nonblocking, CALL_PEEK },
    { "tcp/read", open_tcp, CALL_READ },
    { "tcp/write", open_tcp, CALL_WRITE },
    { "tcp/peek", open_tcp, CALL_PEEK },
    { "pipe/read", open_pipe_reader, CALL_READ },
    { "pipe/write", open_pipe_writer, CALL_WRITE },
    { "command/read", open_command, CALL_READ },
    { "command/write", open_command, CALL_WRITE },
    { "command/close", open_command, CALL_CLOSE },
};

typedef struct Blocked {
    Channel *channel;
    Call call;
    int inside;         /* atomic */
    GError *err;
} Blocked;

static bool do_call(Channel *c, Call call, GError **errp)
{
    static const char data[65536];
    char buf[16];

    switch (call) {
    case CALL_READ:
        return channel_read(c, buf, sizeof(buf), errp) >= 0;
    case CALL_WRITE:
        return channel_write_all(c, data, sizeof(data), errp);
    case CALL_PEEK:
        return channel_peek(c, buf, sizeof(buf), errp) >= 0;
    default:
        return channel_close(c, errp);
    }
}

static void *blocked_thread(void *opaque)
{
    Blocked *b = opaque;

    g_atomic_int_set(&b->inside, 1);
    while (do_call(b->channel, b->call, &b->err)) {
        g_assert_cmpint(b->call, ==, CALL_WRITE);     /* until the buffers are full */
    }
    return NULL;
}

static void run_case(gconstpointer opaque)
{
    const Case *t = opaque;
    int peer_fd;
    Blocked b = { .channel = t->open(&peer_fd), .call = t->call };

    g_assert_nonnull(b.channel);
    GThread *thread = g_thread_new("blocked", blocked_thread, &b);
    while (!g_atomic_int_get(&b.inside)) {
        g_usleep(1000);
    }
    g_usleep(INSIDE_US);
    channel_shutdown(b.channel);
    g_thread_join(thread);
    g_assert_error(b.err, GODWIT_ERROR, GODWIT_ERROR_CANCELLED);
    g_assert_true(g_str_has_suffix(b.err->message, ": The channel was shut down"));

    /* Later calls of all kinds, and a second shutdown. */
    channel_shutdown(b.channel);
    if (t->call != CALL_CLOSE) {
        g_autoptr(GError) err = NULL;

        g_assert_false(do_call(b.channel, t->call, &err));
        g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_CANCELLED);
    }
    channel_close(b.channel, NULL);
    channel_shutdown(b.channel);
    channel_unref(b.channel);
    g_error_free(b.err);
    if (peer_fd >= 0) {
        close(peer_fd);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *path = g_strdup_printf("/shutdown/%s", cases[i].name);

        g_test_add_data_func(path, &cases[i], run_case);
    }
    return g_test_run();
}
