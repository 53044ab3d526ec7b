/* SPDX-License-Identifier: BSD-2-Clause */
/* A machine with monitors on sockets, and clients for them, in one process and one thread. */
#include "monitor-test.h"

#include "qapi/qapi-events-migration.h"
#include "system/machine-none.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- the migration's host ---- */

static const char *host_machine_name(void *opaque)
{
    return ((TestVm *)opaque)->machine->type->name;
}

static const uint8_t *host_uuid(void *opaque)
{
    return NULL;
}

static RamList *host_ram(void *opaque)
{
    return &((TestVm *)opaque)->machine->ram;
}

static DirtyLog *host_dirty_log(void *opaque)
{
    return &((TestVm *)opaque)->machine->dirty_log;
}

static SaveEntryList *host_save_entries(void *opaque)
{
    return &((TestVm *)opaque)->machine->save_entries;
}

static RunState host_run_state(void *opaque)
{
    return machine_run_state(((TestVm *)opaque)->machine);
}

static bool host_stop(void *opaque, RunState why, GError **errp)
{
    return machine_stop(((TestVm *)opaque)->machine, why, errp);
}

static bool host_start(void *opaque, GError **errp)
{
    return machine_start(((TestVm *)opaque)->machine, errp);
}

static bool host_set_run_state(void *opaque, RunState state, GError **errp)
{
    return machine_set_run_state(((TestVm *)opaque)->machine, state, errp);
}

static void host_throttle(void *opaque, unsigned percent) {}
static DirtyLimiter *host_dirty_limiter(void *opaque)
{
    return NULL;
}

static bool host_has_vcpus(void *opaque)
{
    return false;
}

static bool host_autostart(void *opaque)
{
    return __atomic_load_n(&((TestVm *)opaque)->ctx.autostart, __ATOMIC_SEQ_CST);
}

static void host_event_status(void *opaque, MigrationStatus status)
{
    qapi_event_send_migration(&((TestVm *)opaque)->ctx, status);
}

static void host_event_pass(void *opaque, int64_t pass)
{
    qapi_event_send_migration_pass(&((TestVm *)opaque)->ctx, pass);
}

static int host_take_fd(void *opaque, const char *name, GError **errp)
{
    return monitor_take_fd(&((TestVm *)opaque)->ctx, name, errp);
}

static int host_dup_fdset(void *opaque, int64_t id, int flags, GError **errp)
{
    return monitor_dup_fdset(&((TestVm *)opaque)->ctx, id, flags, errp);
}

static void host_log(void *opaque, const char *message) {}

static void host_incoming_ended(void *opaque, const GError *error) {}

static const MigrationHostOps host_ops = {
    .machine_name = host_machine_name,
    .uuid = host_uuid,
    .ram = host_ram,
    .dirty_log = host_dirty_log,
    .save_entries = host_save_entries,
    .run_state = host_run_state,
    .stop = host_stop,
    .start = host_start,
    .set_run_state = host_set_run_state,
    .throttle = host_throttle,
    .dirty_limiter = host_dirty_limiter,
    .has_vcpus = host_has_vcpus,
    .autostart = host_autostart,
    .event_status = host_event_status,
    .event_pass = host_event_pass,
    .take_fd = host_take_fd,
    .dup_fdset = host_dup_fdset,
    .log = host_log,
    .incoming_ended = host_incoming_ended,
};

/* ---- the VM ---- */

static void add_ram(TestVm *vm)
{
    g_autoptr(GError) err = NULL;
    MemoryBackend *ram = memory_backend_add_text(&vm->backends, "memory-backend-ram,id=ram,size=16M", &err);

    g_assert_no_error(err);
    ram->in_use = true;
    g_assert_true(ram_list_add(&vm->machine->ram, &ram->block, &err));
}

TestVm *test_vm_new(bool incoming)
{
    TestVm *vm = g_new0(TestVm, 1);

    if (!machine_type_find("none")) {
        machine_type_register(&machine_none_type);
    }
    vm->folder = g_dir_make_tmp("monitor-XXXXXX", NULL);
    vm->machine = machine_new(machine_type_find("none"), incoming);
    add_ram(vm);
    vm->migration = migration_context_new(&host_ops, vm);
    if (incoming) {
        migration_incoming_expect(vm->migration);
    }
    vm->loop = g_main_loop_new(NULL, false);
    vm->chardevs = g_ptr_array_new();
    vm->ctx = (MonitorContext){
        .machine = vm->machine,
        .migration = vm->migration,
        .backends = &vm->backends,
        .main_loop = vm->loop,
        .autostart = true,
    };
    monitor_context_init(&vm->ctx);
    return vm;
}

void test_vm_free(TestVm *vm)
{
    migration_context_free(vm->migration);
    monitor_context_cleanup(&vm->ctx);
    for (guint i = 0; i < vm->chardevs->len; i++) {
        chardev_free(g_ptr_array_index(vm->chardevs, i));
    }
    g_ptr_array_free(vm->chardevs, true);
    machine_free(vm->machine);
    memory_backend_set_clear(&vm->backends);
    g_main_loop_unref(vm->loop);
    g_assert_cmpint(g_rmdir(vm->folder), ==, 0);
    g_free(vm->folder);
    g_free(vm);
}

void test_vm_add_monitor(TestVm *vm, const char *name, MonitorMode mode, bool pretty)
{
    g_autofree char *spec = g_strdup_printf("unix:%s/%s,server=on,wait=off", vm->folder, name);
    g_autoptr(GError) err = NULL;
    Chardev *chr = chardev_new(name, spec, &err);

    g_assert_no_error(err);
    g_ptr_array_add(vm->chardevs, chr);
    g_assert_true(monitor_add(&vm->ctx, chr, mode, pretty, &err));
    g_assert_no_error(err);
}

/* ---- clients ---- */

void test_settle(void)
{
    while (g_main_context_iteration(NULL, false)) {
    }
}

TestClient *test_client_new(TestVm *vm, const char *name)
{
    TestClient *c = g_new0(TestClient, 1);
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    g_snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", vm->folder, name);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert_cmpint(connect(c->fd, (struct sockaddr *)&address, sizeof(address)), ==, 0);
    g_assert_cmpint(fcntl(c->fd, F_SETFL, O_NONBLOCK), ==, 0);
    c->in = g_string_new(NULL);
    return c;
}

void test_client_free(TestClient *c)
{
    close(c->fd);
    g_string_free(c->in, true);
    g_free(c);
    test_settle();
}

void test_send_bytes(TestClient *c, const void *bytes, size_t len)
{
    const char *p = bytes;

    while (len > 0) {
        ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);
        if (n < 0) {
            g_assert_cmpint(errno, ==, EAGAIN);
            g_main_context_iteration(NULL, false);
            continue;
        }
        p += n;
        len -= (size_t)n;
    }
}

void test_send(TestClient *c, const char *text)
{
    test_send_bytes(c, text, strlen(text));
}

void test_send_fd(TestClient *c, const char *text, int fd)
{
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = { 0 };
    struct iovec iov = { .iov_base = (char *)text, .iov_len = strlen(text) };
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.buf,
        .msg_controllen = sizeof(control.buf),
    };
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
    g_assert_cmpint(sendmsg(c->fd, &msg, MSG_NOSIGNAL), ==, (ssize_t)strlen(text));
}

/* Reads what is there; false at the end of the connection. */
static bool receive_some(TestClient *c)
{
    char buf[4096];
    ssize_t n;

    while ((n = recv(c->fd, buf, sizeof(buf), 0)) > 0) {
        g_string_append_len(c->in, buf, n);
    }
    return n < 0 && errno == EAGAIN;
}

char *test_receive_until(TestClient *c, const char *end)
{
    gint64 deadline = g_get_monotonic_time() + HANG_TIMEOUT_MS * 1000;
    bool open = true;
    char *found;

    while (!(found = strstr(c->in->str, end))) {
        if (!open || g_get_monotonic_time() > deadline) {
            g_error("no '%s' in '%s'", end, c->in->str);
        }
        if (!g_main_context_iteration(NULL, false)) {
            g_usleep(1000);
        }
        open = receive_some(c);
    }
    size_t len = (size_t)(found - c->in->str) + strlen(end);
    char *text = g_strndup(c->in->str, len);
    g_string_erase(c->in, 0, (gssize)len);
    return text;
}

char *test_receive_line(TestClient *c)
{
    char *line = test_receive_until(c, "\r\n");

    line[strlen(line) - 2] = '\0';
    g_assert_null(strchr(line, '\n'));
    return line;
}

bool test_at_end(TestClient *c)
{
    test_settle();
    return !receive_some(c) && c->in->len == 0;
}

void test_expect(TestClient *c, const char *line)
{
    g_autofree char *received = test_receive_line(c);

    g_assert_cmpstr(received, ==, line);
}

void test_exchange(TestClient *c, const char *request, const char *reply)
{
    test_send(c, request);
    test_expect(c, reply);
}

void test_expect_silence(TestClient *c)
{
    test_settle();
    receive_some(c);
    g_assert_cmpstr(c->in->str, ==, "");
}

void test_expect_event(TestClient *c, const char *name, const char *data)
{
    g_autofree char *line = test_receive_line(c);
    json_t *event = json_loads(line, 0, NULL);
    g_autofree char *expected =
        g_strdup_printf("\"event\": \"%s\"%s%s}", name, *data ? ", \"data\": " : "", data);
    json_t *stamp = json_object_get(event, "timestamp");
    gint64 now = g_get_real_time() / G_USEC_PER_SEC;
    json_int_t seconds = json_integer_value(json_object_get(stamp, "seconds"));
    json_int_t microseconds = json_integer_value(json_object_get(stamp, "microseconds"));

    if (!g_str_has_suffix(line, expected)) {
        g_error("expected event %s %s, got %s", name, data, line);
    }
    g_assert_cmpint(seconds, >=, now - HANG_TIMEOUT_MS / 1000);
    g_assert_cmpint(seconds, <=, now);
    g_assert_cmpint(microseconds, >=, 0);
    g_assert_cmpint(microseconds, <, G_USEC_PER_SEC);
    json_decref(event);
}

TestClient *test_qmp_client_new(TestVm *vm, const char *name)
{
    TestClient *c = test_client_new(vm, name);
    g_autofree char *greeting = test_receive_line(c);

    g_assert_true(g_str_has_prefix(greeting, "{\"QMP\": "));
    test_exchange(c, "{\"execute\": \"qmp_capabilities\"}", "{\"return\": {}}");
    return c;
}
