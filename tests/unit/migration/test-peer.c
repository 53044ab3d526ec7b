/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The source against destinations that misbehave: whatever they do, the guest runs in exactly one place and
 * nothing hangs.
 */
#include "pair.h"
#include "stream-builder.h"
#include "util/error.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MIB (1024 * 1024ull)

/* ---- a peer: a thread with a listening socket and a script ---- */

typedef struct Peer Peer;

struct Peer {
    char *path;
    int listen_fd, fd;
    GThread *thread;
    void (*script)(Peer *p);
    gint64 limit;               /* of script read_some */
    const void *bytes;          /* of script that sends something */
    size_t len;
    gint done;                  /* atomic: the test is over */
    GByteArray *received;
};

static gpointer peer_thread(gpointer opaque)
{
    Peer *p = opaque;
    p->fd = accept(p->listen_fd, NULL, NULL);
    g_assert_cmpint(p->fd, >=, 0);
    p->script(p);
    if (p->fd >= 0) {
        close(p->fd);
    }
    return NULL;
}

static void peer_start(Peer *p, void (*script)(Peer *p))
{
    static unsigned n;
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    p->path = g_strdup_printf("%s/peer%u", test_directory(), n++);
    p->script = script;
    p->received = g_byte_array_new();
    g_strlcpy(addr.sun_path, p->path, sizeof(addr.sun_path));
    p->listen_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    g_assert_cmpint(bind(p->listen_fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    g_assert_cmpint(listen(p->listen_fd, 1), ==, 0);
    p->thread = g_thread_new("peer", peer_thread, p);
}

static void peer_stop(Peer *p)
{
    g_atomic_int_set(&p->done, 1);
    g_thread_join(p->thread);
    close(p->listen_fd);
    g_byte_array_unref(p->received);
    g_free(p->path);
}

static void migrate_to(Vm *src, Peer *p)
{
    g_autofree char *uri = g_strdup_printf("unix:%s", p->path);
    g_autoptr(GError) error = NULL;
    migration_start(src->ctx, uri, NULL, false, &error);
    g_assert_no_error(error);
}

/* ---- pieces of scripts ---- */

/* False at the end of the connection. */
static bool receive(Peer *p, size_t max)
{
    uint8_t buf[65536];
    ssize_t n = recv(p->fd, buf, MIN(max, sizeof(buf)), 0);
    if (n > 0) {
        g_byte_array_append(p->received, buf, (guint)n);
    }
    return n > 0;
}

static bool has_whole_stream(const Peer *p)
{
    size_t len = strlen(description_11_1);
    return p->received->len > len &&
           memcmp(p->received->data + p->received->len - len, description_11_1, len) == 0;
}

static void receive_all(Peer *p)
{
    while (!has_whole_stream(p) && receive(p, SIZE_MAX)) {
    }
}

static void transmit(Peer *p, const void *data, size_t len)
{
    send(p->fd, data, len, MSG_NOSIGNAL);
}

static void wait_for_test(Peer *p)
{
    while (!g_atomic_int_get(&p->done)) {
        g_usleep(2000);
    }
}

static const uint8_t pong_1[] = { 0, 2, 0, 4, 0, 0, 0, 1 };
static const uint8_t shut_0[] = { 0, 1, 0, 4, 0, 0, 0, 0 };
static const uint8_t shut_5[] = { 0, 1, 0, 4, 0, 0, 0, 5 };

/* ---- how the destination ends: the table of the return path ---- */

static void script_shut(Peer *p)
{
    transmit(p, pong_1, sizeof(pong_1));
    receive_all(p);
    transmit(p, shut_0, sizeof(shut_0));
}

static void script_shut_stay(Peer *p)
{
    script_shut(p);
    wait_for_test(p);
}

static void script_shut_no_pong(Peer *p)
{
    receive_all(p);
    transmit(p, shut_0, sizeof(shut_0));
}

static void script_close(Peer *p)
{
    transmit(p, pong_1, sizeof(pong_1));
    receive_all(p);
}

static void script_shut_5(Peer *p)
{
    receive_all(p);
    transmit(p, shut_5, sizeof(shut_5));
}

static void script_shut_early(Peer *p)
{
    transmit(p, shut_0, sizeof(shut_0));
    receive_all(p);
}

static void script_silent(Peer *p)
{
    receive_all(p);
    wait_for_test(p);
}

static void script_deaf(Peer *p)
{
    wait_for_test(p);
}

typedef struct Ending {
    const char *name;
    void (*script)(Peer *p);
    const char *error;      /* NULL: completed */
} Ending;

static const Ending endings[] = {
    { "shut", script_shut, NULL },
    { "shut-stay", script_shut_stay, NULL },
    { "shut-no-pong", script_shut_no_pong, NULL },
    { "shut-early", script_shut_early, NULL },
    { "shut-error", script_shut_5, "Sibling indicated error 5" },
    { "close", script_close, "the destination closed the connection before it reported success" },
};

/* Larger than what a socket takes without a reader, so that a deaf peer makes the source wait. */
#define RAM_SIZE (32 * MIB)

static void init_source(Vm *src, bool return_path)
{
    vm_init(src, RAM_SIZE, false);
    vm_fill_random(src, 5);
    vm_set_capability(src, MIGRATION_CAPABILITY_RETURN_PATH, return_path);
    vm_set_parameter(src, "max-bandwidth", "0");
}

static void assert_runs_on(Vm *src)
{
    g_assert_cmpint(fake_host_state(&src->host), ==, RUN_STATE_RUNNING);
    g_assert_false(src->host.dirty_log.started);
}

/* The next attempt works, with all of memory. */
static void assert_retry_works(Vm *src)
{
    Vm dst;
    g_autofree char *uri = g_strdup_printf("unix:%s/retry", test_directory());
    g_autoptr(GError) error = NULL;
    vm_init(&dst, RAM_SIZE, true);
    g_assert_true(migration_incoming_start(dst.ctx, uri, NULL, true, &error));
    g_assert_true(migration_start(src->ctx, uri, NULL, false, &error));
    g_assert_cmpint(vm_wait_end(src), ==, MIGRATION_STATUS_COMPLETED);
    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==, NULL);
    assert_same_ram(src, &dst);
    vm_clear(&dst);
}

static void test_ending(gconstpointer data)
{
    const Ending *e = data;
    Vm src;
    Peer p = { 0 };
    init_source(&src, true);
    peer_start(&p, e->script);
    migrate_to(&src, &p);
    MigrationStatus status = vm_wait_end(&src);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    peer_stop(&p);
    if (e->error) {
        g_assert_cmpint(status, ==, MIGRATION_STATUS_FAILED);
        g_assert_cmpstr(info->error_desc, ==, e->error);
        assert_events(&src, "setup active PASS 2 STOP device failing RESUME failed");
        assert_runs_on(&src);
        assert_retry_works(&src);
    } else {
        g_assert_cmpint(status, ==, MIGRATION_STATUS_COMPLETED);
        g_assert_cmpint(fake_host_state(&src.host), ==, RUN_STATE_POSTMIGRATE);
    }
    vm_clear(&src);
}

/* No time limit: the destination may be slow.  But the user may lose patience. */
static void test_silent(void)
{
    Vm src;
    Peer p = { 0 };
    init_source(&src, true);
    peer_start(&p, script_silent);
    migrate_to(&src, &p);
    vm_wait_status(&src, MIGRATION_STATUS_DEVICE);
    run_main_loop(500);
    g_assert_cmpint(vm_status(&src), ==, MIGRATION_STATUS_DEVICE);
    g_assert_cmpint(fake_host_state(&src.host), ==, RUN_STATE_FINISH_MIGRATE);
    g_assert_false(migration_allows_start(src.ctx, NULL));
    migration_cancel(src.ctx, NULL);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_CANCELLED);
    assert_events(&src, "setup active PASS 2 STOP device cancelling RESUME cancelled");
    peer_stop(&p);
    assert_runs_on(&src);
    assert_retry_works(&src);
    vm_clear(&src);
}

/* Reads nothing at all: the source is stuck in a write. */
static void test_deaf(gconstpointer return_path)
{
    Vm src;
    Peer p = { 0 };
    init_source(&src, GPOINTER_TO_INT(return_path));
    peer_start(&p, script_deaf);
    migrate_to(&src, &p);
    run_main_loop(300);
    g_assert_true(migration_is_active(src.ctx));
    migration_cancel(src.ctx, NULL);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_CANCELLED);
    peer_stop(&p);
    assert_runs_on(&src);
    assert_retry_works(&src);
    vm_clear(&src);
}

/* ---- closing at some byte ---- */

static void script_read_some(Peer *p)
{
    while (p->received->len < p->limit && receive(p, (size_t)(p->limit - p->received->len))) {
    }
}

static void test_close_random(gconstpointer return_path)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(17);
    for (unsigned i = 0; i < 30; i++) {
        Vm src;
        Peer p = { .limit = i < 10 ? (gint64)i * 7 : g_rand_int_range(rand, 0, 2 * MIB) };
        init_source(&src, GPOINTER_TO_INT(return_path));
        peer_start(&p, script_read_some);
        migrate_to(&src, &p);
        g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
        g_autoptr(MigrationInfo) info = migration_query(src.ctx);
        g_assert_nonnull(info->error_desc);
        g_assert_null(info->ram);
        peer_stop(&p);
        assert_runs_on(&src);
        assert_retry_works(&src);
        vm_clear(&src);
    }
}

/* ---- rubbish on the return path ---- */

static void script_rubbish(Peer *p)
{
    transmit(p, p->bytes, p->len);
    receive_all(p);
    wait_for_test(p);
}

typedef struct Rubbish {
    const char *name;
    const char *bytes;
    size_t len;
} Rubbish;

#define RUBBISH(name, text) { name, text, sizeof(text) - 1 }
static const Rubbish rubbish[] = {
    RUBBISH("type-0", "\0\0\0\0"),
    RUBBISH("type-8", "\0\x08\0\0"),
    RUBBISH("http", "HTTP/1.0 400 Bad Request\r\n\r\n"),
    RUBBISH("length", "\0\x03\xff\xff"),
    RUBBISH("shut-length", "\0\x01\0\0"),
    RUBBISH("req-pages", "\0\x04\0\x0c\0\0\0\0\0\0\0\0\0\0\x10\0"),
    RUBBISH("req-pages-id", "\0\x03\0\x0f\xff\xff\xff\xff\xff\xff\xf0\0\0\0\x10\0\x02m0"),
    RUBBISH("recv-bitmap", "\0\x05\0\x03\x02m0"),
    RUBBISH("resume-ack", "\0\x06\0\x04\0\0\0\x01"),
    RUBBISH("switchover-ack", "\0\x07\0\0"),
};

static void test_rubbish(gconstpointer data)
{
    const Rubbish *r = data;
    Vm src;
    Peer p = { .bytes = r->bytes, .len = r->len };
    init_source(&src, true);
    peer_start(&p, script_rubbish);
    migrate_to(&src, &p);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_nonnull(info->error_desc);
    peer_stop(&p);
    assert_runs_on(&src);
    assert_retry_works(&src);
    vm_clear(&src);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(endings); i++) {
        g_autofree char *path = g_strdup_printf("/peer/ending/%s", endings[i].name);
        g_test_add_data_func(path, &endings[i], test_ending);
    }
    g_test_add_func("/peer/silent", test_silent);
    g_test_add_data_func("/peer/deaf", GINT_TO_POINTER(0), test_deaf);
    g_test_add_data_func("/peer/deaf-return-path", GINT_TO_POINTER(1), test_deaf);
    g_test_add_data_func("/peer/close", GINT_TO_POINTER(0), test_close_random);
    g_test_add_data_func("/peer/close-return-path", GINT_TO_POINTER(1), test_close_random);
    for (size_t i = 0; i < G_N_ELEMENTS(rubbish); i++) {
        g_autofree char *path = g_strdup_printf("/peer/rubbish/%s", rubbish[i].name);
        g_test_add_data_func(path, &rubbish[i], test_rubbish);
    }
    return g_test_run();
}
