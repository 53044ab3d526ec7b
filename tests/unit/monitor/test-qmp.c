/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QMP sessions: negotiation, requests and replies, order of events, several clients, back-pressure,
 * descriptors.
 */
#include "monitor-test.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define NOT_FOUND(text) "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"" text "\"}}"
#define FAILED(text)    "{\"error\": {\"class\": \"GenericError\", \"desc\": \"" text "\"}}"
#define OK              "{\"return\": {}}"

static const char greeting[] = "{\"QMP\": {\"version\": {\"qemu\": {\"major\": 11, \"minor\": 1, \"micro\": "
                               "0}, \"package\": \"godwit 0.1.0\"}, "
                               "\"capabilities\": [\"oob\"]}}";

typedef struct Fixture {
    TestVm *vm;
    TestClient *c; /* negotiated */
} Fixture;

static void set_up(Fixture *f, gconstpointer data)
{
    f->vm = test_vm_new(false);
    test_vm_add_monitor(f->vm, "qmp", MONITOR_MODE_CONTROL, false);
    f->c = test_qmp_client_new(f->vm, "qmp");
}

static void tear_down(Fixture *f, gconstpointer data)
{
    test_client_free(f->c);
    test_vm_free(f->vm);
}

/* ---- negotiation ---- */

static void test_negotiation(void)
{
    TestVm *vm = test_vm_new(false);
    test_vm_add_monitor(vm, "qmp", MONITOR_MODE_CONTROL, false);
    TestClient *c = test_client_new(vm, "qmp");

    test_expect(c, greeting);
    test_exchange(c, "{\"execute\":\"query-status\"}",
                  NOT_FOUND("Expecting capabilities negotiation with 'qmp_capabilities'"));
    test_exchange(c, "{\"execute\":\"nosuch\",\"id\":1}",
                  "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": "
                  "\"Expecting capabilities negotiation with 'qmp_capabilities'\"}, \"id\": 1}");
    test_exchange(c, "x\n", FAILED("1:54: JSON parse error, invalid keyword 'x'"));
    test_exchange(c, "{\"foo\":1}", FAILED("QMP input member 'foo' is unexpected"));
    test_exchange(c, "{\"execute\":\"qmp_capabilities\",\"arguments\":{\"enable\":1}}",
                  FAILED("Invalid parameter type for 'enable', expected: array"));
    test_exchange(c, "{\"execute\":\"qmp_capabilities\",\"arguments\":{\"enable\":[\"foo\"]}}",
                  FAILED("Parameter 'null' does not accept value 'foo'"));
    test_exchange(c, "{\"execute\":\"qmp_capabilities\",\"arguments\":{\"zip\":1}}",
                  FAILED("Parameter 'zip' is unexpected"));
    /* No events yet. */
    monitor_event(&vm->ctx, "POWERDOWN", NULL);
    test_expect_silence(c);
    test_exchange(c, "{\"execute\":\"qmp_capabilities\"}", OK);
    test_exchange(c, "{\"execute\":\"qmp_capabilities\"}",
                  NOT_FOUND("Capabilities negotiation is already complete, command ignored"));
    monitor_event(&vm->ctx, "POWERDOWN", NULL);
    test_expect_event(c, "POWERDOWN", "");
    test_client_free(c);
    test_vm_free(vm);
}

/* ---- requests ---- */

static void test_requests(Fixture *f, gconstpointer data)
{
    static const char *const cases[][2] = {
        { "[]", FAILED("QMP input must be a JSON object") },
        { "true\n", FAILED("QMP input must be a JSON object") },
        { "\"x\"", FAILED("QMP input must be a JSON object") },
        { "{}", FAILED("QMP input lacks member 'execute'") },
        { "{\"execute\":1}", FAILED("QMP input member 'execute' must be a string") },
        { "{\"execute\":18446744073709551615}", FAILED("QMP input member 'execute' must be a string") },
        { "{\"execute\":\"query-name\",\"arguments\":null}",
          FAILED("QMP input member 'arguments' must be an object") },
        { "{\"execute\":\"query-name\",\"arguments\":[]}",
          FAILED("QMP input member 'arguments' must be an object") },
        { "{\"execute\":\"query-name\",\"foo\":1}", FAILED("QMP input member 'foo' is unexpected") },
        { "{\"exec-oob\":\"query-name\"}", FAILED("QMP input member 'exec-oob' is unexpected") },
        { "{\"execute\":\"nosuch\"}", NOT_FOUND("The command nosuch has not been found") },
        { "{\"execute\":\"\xc3\xa9\"}", NOT_FOUND("The command \\u00E9 has not been found") },
        { "{\"execute\":\"query\\u0000name\"}",
          NOT_FOUND("The command query\\u0000name has not been found") },
        { "{\"execute\":\"query-name\",\"arguments\":{\"a\":1}}", FAILED("Parameter 'a' is unexpected") },
        { "{\"execute\":\"query-name\",\"arguments\":{}}", OK },
        { "{'execute':'query-name'}", OK },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        test_exchange(f->c, cases[i][0], cases[i][1]);
    }
}

static void test_objects(Fixture *f, gconstpointer data)
{
#define ADD(properties)                                                                                      \
    "{\"execute\":\"object-add\",\"arguments\":{\"qom-type\":\"memory-backend-ram\"," properties "}}"
    test_exchange(f->c, ADD("\"id\":\"o1\",\"size\":1048576"), OK);
    test_exchange(f->c, ADD("\"id\":\"o2\",\"size\":\"1M\""), FAILED("Parameter 'size' expects uint64"));
    test_exchange(f->c, ADD("\"id\":\"o2\""), FAILED("Parameter 'size' is missing"));
    test_exchange(f->c, ADD("\"size\":1048576"), FAILED("Parameter 'id' is missing"));
    /* The hint that a person would see as well is left out. */
    test_exchange(f->c, ADD("\"id\":\"7\",\"size\":1048576"), FAILED("Parameter 'id' expects an identifier"));
    test_exchange(f->c, "{\"execute\":\"object-del\",\"arguments\":{\"id\":\"o1\"}}", OK);
    test_exchange(f->c, "{\"execute\":\"object-del\",\"arguments\":{\"id\":\"o1\"}}",
                  FAILED("object 'o1' not found"));
    test_exchange(f->c, "{\"execute\":\"object-del\",\"arguments\":{\"id\":\"ram\"}}",
                  FAILED("Cannot delete host memory backend 'ram' which is mapped"));
#undef ADD
}

static void test_ids(Fixture *f, gconstpointer data)
{
    static const char *const ids[] = {
        "1",           "\"a\"", "null", "true", "[]", "{}", "[1, {\"a\": [null]}]", "18446744073709551615",
        "\"\\u0000\"",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(ids); i++) {
        g_autofree char *request = g_strdup_printf("{\"execute\":\"query-name\",\"id\":%s}", ids[i]);
        g_autofree char *reply = g_strdup_printf("{\"return\": {}, \"id\": %s}", ids[i]);
        test_exchange(f->c, request, reply);
    }
    test_exchange(f->c, "{\"id\":3}",
                  "{\"error\": {\"class\": \"GenericError\", \"desc\": \"QMP input lacks member "
                  "'execute'\"}, \"id\": 3}");
}

static void test_stream(Fixture *f, gconstpointer data)
{
    /* Nothing between values, and values across pieces. */
    test_send(f->c, "{\"execute\":\"query-name\",\"id\":1}{\"execute\":\"query-name\",\"id\":2} {\"exe");
    test_expect(f->c, "{\"return\": {}, \"id\": 1}");
    test_expect(f->c, "{\"return\": {}, \"id\": 2}");
    test_expect_silence(f->c);
    test_exchange(f->c, "cute\":\n\"query-name\",\"id\":3}", "{\"return\": {}, \"id\": 3}");
    /* A client gets in step again. */
    test_send(f->c, "{\"execute\":\"query-na\xff{\"execute\":\"query-name\",\"id\":4}");
    test_expect(f->c, FAILED("2:32: JSON parse error, stray '\\\"query-na\\uFFFD'"));
    test_expect(f->c, "{\"return\": {}, \"id\": 4}");
}

static void test_pipelining(Fixture *f, gconstpointer data)
{
    g_autoptr(GString) requests = g_string_new(NULL);

    for (int i = 0; i < 500; i++) {
        g_string_append_printf(requests, "{\"execute\":\"query-version\",\"id\":%d}", i);
    }
    test_send(f->c, requests->str);
    for (int i = 0; i < 500; i++) {
        g_autofree char *line = test_receive_line(f->c);
        g_autofree char *suffix = g_strdup_printf("\"id\": %d}", i);
        g_assert_true(g_str_has_suffix(line, suffix));
    }
    test_expect_silence(f->c);
}

static void test_pretty(void)
{
    TestVm *vm = test_vm_new(false);
    test_vm_add_monitor(vm, "qmp", MONITOR_MODE_CONTROL, true);
    TestClient *c = test_client_new(vm, "qmp");
    static const char *const lines[] = {
        "{", "    \"return\": {", "    },", "    \"id\": [", "    ]", "}",
    };

    g_autofree char *hello = test_receive_until(c, "\r\n}\r\n");
    g_assert_true(g_str_has_prefix(hello, "{\r\n    \"QMP\": {\r\n        \"version\": {\r\n"));
    test_send(c, "{\"execute\":\"qmp_capabilities\",\"id\":[]}");
    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++) {
        test_expect(c, lines[i]);
    }
    test_client_free(c);
    test_vm_free(vm);
}

/* ---- out of band ---- */

static void test_oob(void)
{
    TestVm *vm = test_vm_new(false);
    test_vm_add_monitor(vm, "qmp", MONITOR_MODE_CONTROL, false);
    TestClient *c = test_client_new(vm, "qmp");
    static const char *const cases[][2] = {
        { "{\"exec-oob\":\"query-name\"}", FAILED("The command query-name does not support OOB") },
        { "{\"exec-oob\":\"qmp_capabilities\"}",
          FAILED("The command qmp_capabilities does not support OOB") },
        { "{\"exec-oob\":\"nosuch\"}", NOT_FOUND("The command nosuch has not been found") },
        { "{\"exec-oob\":1}", FAILED("QMP input member 'exec-oob' must be a string") },
        { "{\"exec-oob\":\"query-yank\",\"execute\":\"query-yank\"}",
          FAILED("QMP input member 'execute' clashes with 'exec-oob'") },
        { "{\"exec-oob\":\"migrate-pause\",\"arguments\":{\"x\":1}}", FAILED("Parameter 'x' is unexpected") },
        { "{\"exec-oob\":\"query-yank\"}", "{\"return\": [{\"type\": \"chardev\", \"id\": \"qmp\"}]}" },
        { "{\"execute\":\"query-yank\"}", "{\"return\": [{\"type\": \"chardev\", \"id\": \"qmp\"}]}" },
    };

    test_expect(c, greeting);
    test_exchange(c, "{\"execute\":\"qmp_capabilities\",\"arguments\":{\"enable\":[\"oob\",\"oob\"]}}", OK);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        test_exchange(c, cases[i][0], cases[i][1]);
    }

    /* Out of band overtakes what waits in the queue. */
    test_send(c, "{\"execute\":\"query-name\",\"id\":1}{\"execute\":\"query-name\",\"id\":2}"
                 "{\"exec-oob\":\"query-yank\",\"id\":3}");
    test_expect(c, "{\"return\": [{\"type\": \"chardev\", \"id\": \"qmp\"}], \"id\": 3}");
    test_expect(c, "{\"return\": {}, \"id\": 1}");
    test_expect(c, "{\"return\": {}, \"id\": 2}");

    /* But only eight are read ahead; order in band stays, errors included. */
    g_autoptr(GString) requests = g_string_new(NULL);
    for (int i = 0; i < 20; i++) {
        g_string_append_printf(requests, "{\"execute\":\"query-name\",\"id\":%d}", i);
    }
    g_string_append(requests, "@\n{\"exec-oob\":\"query-yank\",\"id\":\"late\"}");
    test_send(c, requests->str);
    bool late = false;
    for (int i = 0; i < 20;) {
        g_autofree char *line = test_receive_line(c);
        g_autofree char *expected = g_strdup_printf("{\"return\": {}, \"id\": %d}", i);
        if (strstr(line, "\"late\"")) {
            late = true;
            g_assert_cmpint(i, >=, 12);
        } else {
            g_assert_cmpstr(line, ==, expected);
            i++;
        }
    }
    if (!late) {
        g_autofree char *line = test_receive_line(c);
        late = strstr(line, "\"late\"") != NULL;
    }
    g_assert_true(late);
    g_autofree char *error = test_receive_line(c);
    g_assert_nonnull(strstr(error, "stray '@'"));
    test_client_free(c);
    test_vm_free(vm);
}

/* ---- events ---- */

static void test_event_order(Fixture *f, gconstpointer data)
{
    test_send(f->c, "{\"execute\":\"cont\"}");
    test_expect_event(f->c, "RESUME", "");
    test_expect(f->c, OK);
    test_exchange(f->c, "{\"execute\":\"cont\"}", OK);
    test_exchange(f->c, "{\"execute\":\"query-status\"}",
                  "{\"return\": {\"running\": true, \"status\": \"running\"}}");
    test_send(f->c, "{\"execute\":\"stop\"}");
    test_expect_event(f->c, "STOP", "");
    test_expect(f->c, OK);
    test_exchange(f->c, "{\"execute\":\"stop\"}", OK);
    test_exchange(f->c, "{\"execute\":\"query-status\"}",
                  "{\"return\": {\"running\": false, \"status\": \"paused\"}}");
    test_send(f->c, "{\"execute\":\"system_reset\"}");
    test_expect_event(f->c, "RESET", "{\"guest\": false, \"reason\": \"host-qmp-system-reset\"}");
    test_expect(f->c, OK);
    test_exchange(f->c, "{\"execute\":\"query-status\"}",
                  "{\"return\": {\"running\": false, \"status\": \"prelaunch\"}}");
    test_send(f->c, "{\"execute\":\"system_powerdown\"}");
    test_expect_event(f->c, "POWERDOWN", "");
    test_expect(f->c, OK);
}

static gpointer raise_events(gpointer opaque)
{
    TestVm *vm = opaque;

    for (int i = 0; i < 100; i++) {
        monitor_event(&vm->ctx, "MIGRATION_PASS", json_pack("{s:i}", "pass", i));
    }
    return NULL;
}

/* What another thread raised before a command ended comes before the command's reply. */
static void test_events_from_threads(Fixture *f, gconstpointer data)
{
    GThread *thread = g_thread_new("events", raise_events, f->vm);
    g_thread_join(thread);
    test_send(f->c, "{\"execute\":\"query-name\"}");
    for (int i = 0; i < 100; i++) {
        g_autofree char *expected = g_strdup_printf("{\"pass\": %d}", i);
        test_expect_event(f->c, "MIGRATION_PASS", expected);
    }
    test_expect(f->c, OK);

    thread = g_thread_new("events", raise_events, f->vm);
    for (int i = 0; i < 100; i++) {
        g_autofree char *expected = g_strdup_printf("{\"pass\": %d}", i);
        test_expect_event(f->c, "MIGRATION_PASS", expected);
    }
    g_thread_join(thread);
}

static void test_quit(Fixture *f, gconstpointer data)
{
    test_send(f->c, "{\"execute\":\"quit\",\"id\":1}{\"execute\":\"query-name\",\"id\":2}");
    test_expect_event(f->c, "SHUTDOWN", "{\"guest\": false, \"reason\": \"host-qmp-quit\"}");
    test_expect(f->c, "{\"return\": {}, \"id\": 1}");
    g_assert_true(f->vm->ctx.shutting_down);
    /* Nothing more is taken. */
    test_expect_silence(f->c);
    /* Only the first counts. */
    monitor_request_shutdown(&f->vm->ctx, SHUTDOWN_CAUSE_HOST_SIGNAL);
    test_expect_silence(f->c);
}

static void test_no_reboot(Fixture *f, gconstpointer data)
{
    f->vm->ctx.no_reboot = true;
    test_send(f->c, "{\"execute\":\"system_reset\"}");
    test_expect_event(f->c, "SHUTDOWN", "{\"guest\": false, \"reason\": \"host-qmp-system-reset\"}");
    test_expect(f->c, OK);
}

/* ---- clients ---- */

static void test_next_client(Fixture *f, gconstpointer data)
{
    TestClient *second = test_client_new(f->vm, "qmp");

    /* It waits, and so does not see what the first one left. */
    test_expect_silence(second);
    test_exchange(f->c, "{\"execute\":\"query-name\"}", OK);
    test_send(f->c, "{\"execute\":\"query-na");
    test_settle();
    test_client_free(f->c);
    f->c = second;
    test_expect(second, greeting);
    test_exchange(second, "@\n", FAILED("1:1: JSON parse error, stray '@'"));
    test_exchange(second, "{\"execute\":\"query-name\"}",
                  NOT_FOUND("Expecting capabilities negotiation with 'qmp_capabilities'"));
    test_exchange(second, "{\"execute\":\"qmp_capabilities\"}", OK);
    /* The guest did not notice. */
    test_exchange(second, "{\"execute\":\"query-status\"}",
                  "{\"return\": {\"running\": false, \"status\": \"prelaunch\"}}");
}

/* Events of before the end of negotiation do not come after it. */
static void test_events_and_negotiation(void)
{
    TestVm *vm = test_vm_new(false);
    test_vm_add_monitor(vm, "qmp", MONITOR_MODE_CONTROL, false);
    TestClient *c = test_client_new(vm, "qmp");

    test_expect(c, greeting);
    g_thread_join(g_thread_new("events", raise_events, vm));
    test_exchange(c, "{\"execute\":\"qmp_capabilities\"}", OK);
    test_expect_silence(c);
    test_client_free(c);
    test_vm_free(vm);
}

static void test_several_monitors(Fixture *f, gconstpointer data)
{
    test_vm_add_monitor(f->vm, "other", MONITOR_MODE_CONTROL, false);
    test_vm_add_monitor(f->vm, "third", MONITOR_MODE_CONTROL, false);
    TestClient *other = test_qmp_client_new(f->vm, "other");
    TestClient *third = test_client_new(f->vm, "third");

    test_expect(third, greeting);
    test_send(f->c, "{\"execute\":\"cont\"}");
    test_expect_event(f->c, "RESUME", "");
    test_expect(f->c, OK);
    test_expect_event(other, "RESUME", "");
    test_expect_silence(other);
    test_expect_silence(third); /* has not negotiated */
    test_client_free(other);
    test_client_free(third);
}

/* A client that does not read is not served, holds nobody up, and gets all in the end. */
static void test_back_pressure(Fixture *f, gconstpointer data)
{
    test_vm_add_monitor(f->vm, "other", MONITOR_MODE_CONTROL, false);
    TestClient *other = test_qmp_client_new(f->vm, "other");
    g_autoptr(GString) requests = g_string_new(NULL);

    for (int i = 0; i < 100; i++) {
        g_string_append_printf(requests, "{\"execute\":\"query-qmp-schema\",\"id\":%d}", i);
    }
    test_send(f->c, requests->str);
    test_settle();
    Chardev *chr = chardev_find("qmp");
    size_t pending = chardev_pending(chr);
    g_assert_cmpuint(pending, >, 0);
    g_assert_cmpuint(pending, <, 1 << 20);
    test_exchange(other, "{\"execute\":\"query-name\"}", OK);
    g_assert_cmpuint(chardev_pending(chr), ==, pending);
    for (int i = 0; i < 100; i++) {
        g_autofree char *line = test_receive_line(f->c);
        g_autofree char *suffix = g_strdup_printf("\"id\": %d}", i);
        g_assert_true(g_str_has_suffix(line, suffix));
    }
    test_exchange(f->c, "{\"execute\":\"query-name\"}", OK);
    test_client_free(other);
}

/* Gone in the middle of a reply. */
static void test_client_vanishes(Fixture *f, gconstpointer data)
{
    for (int i = 0; i < 20; i++) {
        test_send(f->c, "{\"execute\":\"query-qmp-schema\"}");
    }
    test_settle();
    test_client_free(f->c);
    f->c = test_qmp_client_new(f->vm, "qmp");
    test_exchange(f->c, "{\"execute\":\"query-name\"}", OK);
}

/* ---- descriptors ---- */

static int new_file(void)
{
    FILE *file = tmpfile();
    int fd = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0);

    fclose(file);
    return fd;
}

static void test_getfd(Fixture *f, gconstpointer data)
{
    int fd = new_file();
    g_autoptr(GError) err = NULL;

    test_exchange(f->c, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"mig\"}}",
                  FAILED("No file descriptor supplied via SCM_RIGHTS"));
    test_send_fd(f->c, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"mig\"}}", fd);
    test_expect(f->c, OK);
    int taken = monitor_take_fd(&f->vm->ctx, "mig", &err);
    g_assert_no_error(err);
    g_assert_cmpint(write(taken, "x", 1), ==, 1);
    g_assert_cmpint(lseek(fd, 0, SEEK_END), ==, 1);
    close(taken);
    g_assert_cmpint(monitor_take_fd(&f->vm->ctx, "mig", &err), ==, -1);
    g_assert_cmpstr(err->message, ==, "File descriptor named 'mig' has not been found");

    /* It may come ahead of the request, with a blank. */
    test_send_fd(f->c, " ", fd);
    test_exchange(f->c, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"mig\"}}", OK);
    test_exchange(f->c, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"mig\"}}",
                  FAILED("No file descriptor supplied via SCM_RIGHTS"));
    test_exchange(f->c, "{\"execute\":\"closefd\",\"arguments\":{\"fdname\":\"mig\"}}", OK);
    test_exchange(f->c, "{\"execute\":\"closefd\",\"arguments\":{\"fdname\":\"mig\"}}",
                  FAILED("File descriptor named 'mig' not found"));
    close(fd);
}

/* Each descriptor goes with its own request, also when requests are read ahead. */
static void test_getfd_oob(void)
{
    TestVm *vm = test_vm_new(false);
    test_vm_add_monitor(vm, "qmp", MONITOR_MODE_CONTROL, false);
    TestClient *c = test_client_new(vm, "qmp");

    test_expect(c, greeting);
    test_exchange(c, "{\"execute\":\"qmp_capabilities\",\"arguments\":{\"enable\":[\"oob\"]}}", OK);
    int first = new_file();
    int second = new_file();
    g_assert_cmpint(write(second, "xy", 2), ==, 2);
    test_send(c, "{\"execute\":\"query-name\"}");
    test_send_fd(c, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"a\"}}", first);
    test_send_fd(c, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"b\"}}", second);
    test_send(c, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"c\"}}");
    test_expect(c, OK);
    test_expect(c, OK);
    test_expect(c, OK);
    test_expect(c, FAILED("No file descriptor supplied via SCM_RIGHTS"));
    int a = monitor_take_fd(&vm->ctx, "a", NULL);
    int b = monitor_take_fd(&vm->ctx, "b", NULL);
    g_assert_cmpint(lseek(a, 0, SEEK_END), ==, 0);
    g_assert_cmpint(lseek(b, 0, SEEK_END), ==, 2);
    close(a);
    close(b);
    close(first);
    close(second);
    test_client_free(c);
    test_vm_free(vm);
}

static void test_add_fd(Fixture *f, gconstpointer data)
{
    int fd = new_file();

    test_exchange(f->c, "{\"execute\":\"query-fdsets\"}", "{\"return\": []}");
    test_exchange(f->c, "{\"execute\":\"add-fd\",\"arguments\":{}}",
                  FAILED("No file descriptor supplied via SCM_RIGHTS"));
    test_send_fd(f->c, "{\"execute\":\"add-fd\",\"arguments\":{\"fdset-id\":3,\"opaque\":\"x\"}}", fd);
    g_autofree char *reply = test_receive_line(f->c);
    g_assert_true(g_str_has_prefix(reply, "{\"return\": {\"fdset-id\": 3, \"fd\": "));
    g_autoptr(GError) err = NULL;
    int dup = monitor_dup_fdset(&f->vm->ctx, 3, O_RDWR, &err);
    g_assert_no_error(err);
    close(dup);
    g_assert_cmpint(monitor_dup_fdset(&f->vm->ctx, 3, O_WRONLY | O_CREAT, &err), ==, -1);
    g_assert_cmpstr(err->message, ==, "Failed to find file descriptor with matching flags=0x41");
    test_exchange(f->c, "{\"execute\":\"remove-fd\",\"arguments\":{\"fdset-id\":3}}", OK);
    test_exchange(f->c, "{\"execute\":\"remove-fd\",\"arguments\":{\"fdset-id\":5}}",
                  FAILED("File descriptor named 'fdset-id:5' not found"));
    close(fd);
}

/* ---- incoming ---- */

static void test_incoming_stop_cont(void)
{
    TestVm *vm = test_vm_new(true);
    test_vm_add_monitor(vm, "qmp", MONITOR_MODE_CONTROL, false);
    TestClient *c = test_qmp_client_new(vm, "qmp");
    static const char status[] = "{\"return\": {\"running\": false, \"status\": \"inmigrate\"}}";

    test_exchange(c, "{\"execute\":\"query-status\"}", status);
    test_exchange(c, "{\"execute\":\"stop\"}", OK);
    g_assert_false(vm->ctx.autostart);
    test_exchange(c, "{\"execute\":\"cont\"}", OK);
    g_assert_true(vm->ctx.autostart);
    test_send(c, "{\"execute\":\"system_reset\"}");
    test_expect_event(c, "RESET", "{\"guest\": false, \"reason\": \"host-qmp-system-reset\"}");
    test_expect(c, OK);
    test_exchange(c, "{\"execute\":\"query-status\"}", status);
    test_exchange(c, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"tcp:127.0.0.1:1\"}}",
                  FAILED("Guest is waiting for an incoming migration"));
    test_client_free(c);
    test_vm_free(vm);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(path, function) g_test_add(path, Fixture, NULL, set_up, function, tear_down)
    g_test_add_func("/qmp/negotiation", test_negotiation);
    ADD("/qmp/requests", test_requests);
    ADD("/qmp/objects", test_objects);
    ADD("/qmp/ids", test_ids);
    ADD("/qmp/stream", test_stream);
    ADD("/qmp/pipelining", test_pipelining);
    g_test_add_func("/qmp/pretty", test_pretty);
    g_test_add_func("/qmp/oob", test_oob);
    ADD("/qmp/event-order", test_event_order);
    ADD("/qmp/events-from-threads", test_events_from_threads);
    ADD("/qmp/quit", test_quit);
    ADD("/qmp/no-reboot", test_no_reboot);
    ADD("/qmp/next-client", test_next_client);
    g_test_add_func("/qmp/events-and-negotiation", test_events_and_negotiation);
    ADD("/qmp/several-monitors", test_several_monitors);
    ADD("/qmp/back-pressure", test_back_pressure);
    ADD("/qmp/client-vanishes", test_client_vanishes);
    ADD("/qmp/getfd", test_getfd);
    g_test_add_func("/qmp/getfd-oob", test_getfd_oob);
    ADD("/qmp/add-fd", test_add_fd);
    g_test_add_func("/qmp/incoming-stop-cont", test_incoming_stop_cont);
    return g_test_run();
}
