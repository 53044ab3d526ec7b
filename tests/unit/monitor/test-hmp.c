/* SPDX-License-Identifier: BSD-2-Clause */
/* HMP: sessions on a socket, human-monitor-command, what the commands print. */
#include "monitor-test.h"

#include "util/error.h"

#include <fcntl.h>
#include <glib/gstdio.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define PROMPT "(qemu) "

typedef struct Fixture {
    TestVm *vm;
} Fixture;

static void set_up(Fixture *f, gconstpointer data)
{
    f->vm = test_vm_new(false);
}

static void tear_down(Fixture *f, gconstpointer data)
{
    test_vm_free(f->vm);
}

/* Runs @line as human-monitor-command does; compares the output with its \r\n written as \n. */
static void run(Fixture *f, const char *line, const char *expected)
{
    g_autofree char *output = monitor_hmp_command(&f->vm->ctx, line);
    g_autoptr(GString) text = g_string_new(output);

    g_string_replace(text, "\r\n", "\n", 0);
    g_assert_null(strchr(text->str, '\r'));
    g_assert_cmpstr(text->str, ==, expected);
}

/* ---- sessions ---- */

/* The output of @line at the prompt; the echo before it is left out. */
static char *ask(TestClient *c, const char *line)
{
    g_autofree char *typed = g_strconcat(line, "\n", NULL);

    test_send(c, typed);
    g_autofree char *all = test_receive_until(c, "\r\n" PROMPT);
    char *echo_end = g_strrstr(all, "\033[K\r\n");
    char *output = g_strdup(echo_end ? echo_end + strlen("\033[K\r\n") : all);
    output[strlen(output) - strlen(PROMPT)] = '\0';
    return output;
}

static void test_session(Fixture *f, gconstpointer data)
{
    test_vm_add_monitor(f->vm, "hmp", MONITOR_MODE_READLINE, false);
    TestClient *c = test_client_new(f->vm, "hmp");

    test_expect(c, "Godwit 0.1.0 monitor - type 'help' for more information");
    g_autofree char *prompt = test_receive_until(c, PROMPT);
    g_assert_cmpstr(prompt, ==, PROMPT);
    /* The echo of a short line, byte for byte; an empty line asks again. */
    test_send(c, "?\b\n");
    g_autofree char *echo = test_receive_until(c, PROMPT);
    g_assert_cmpstr(echo, ==, "?\033[K\033[D\033[K\r\n" PROMPT);

    g_autofree char *status = ask(c, "info status");
    g_assert_cmpstr(status, ==, "VM status: paused (prelaunch)\r\n");
    g_autofree char *unknown = ask(c, "nosuch");
    g_assert_cmpstr(unknown, ==, "unknown command: 'nosuch'\r\n");
    g_autofree char *history = ask(c, "info history");
    g_assert_cmpstr(history, ==, "0: 'info status'\r\n1: 'nosuch'\r\n2: 'info history'\r\n");
    /* Several lines at once. */
    test_send(c, "info status\r\ninfo status\r\n");
    for (int i = 0; i < 2; i++) {
        g_autofree char *text = test_receive_until(c, "VM status: paused (prelaunch)\r\n" PROMPT);
        g_assert_nonnull(text);
    }
    /* The next client begins anew. */
    test_send(c, "half a li");
    test_client_free(c);
    c = test_client_new(f->vm, "hmp");
    test_expect(c, "Godwit 0.1.0 monitor - type 'help' for more information");
    g_autofree char *again = ask(c, "info status");
    g_assert_cmpstr(again, ==, "VM status: paused (prelaunch)\r\n");
    test_client_free(c);
}

static void test_session_quit(Fixture *f, gconstpointer data)
{
    test_vm_add_monitor(f->vm, "hmp", MONITOR_MODE_READLINE, false);
    TestClient *c = test_client_new(f->vm, "hmp");

    g_free(test_receive_until(c, PROMPT));
    test_send(c, "q\n");
    g_autofree char *echo = test_receive_until(c, "\r\n");
    g_assert_cmpstr(echo, ==, "q\033[K\r\n");
    test_expect_silence(c);
    g_assert_true(f->vm->ctx.shutting_down);
    test_client_free(c);
}

/* A long line without an end, from a client that does not read its echo. */
static void test_session_deaf(Fixture *f, gconstpointer data)
{
    test_vm_add_monitor(f->vm, "hmp", MONITOR_MODE_READLINE, false);
    TestClient *c = test_client_new(f->vm, "hmp");
    g_autofree char *line = g_strnfill(4000, 'x');

    g_free(test_receive_until(c, PROMPT));
    test_send(c, line);
    test_settle();
    g_assert_cmpuint(chardev_pending(chardev_find("hmp")), <, 1 << 20);
    test_send(c, "\n");
    g_autofree char *end = g_strdup_printf("\r\nunknown command: '%s'\r\n" PROMPT, line);
    g_free(test_receive_until(c, end));
    test_client_free(c);
}

/* Without -d the prompt waits for the end of the migration, and so does what is typed. */
static void test_session_migrate(Fixture *f, gconstpointer data)
{
    test_vm_add_monitor(f->vm, "hmp", MONITOR_MODE_READLINE, false);
    TestClient *c = test_client_new(f->vm, "hmp");
    g_autofree char *path = g_build_filename(f->vm->folder, "out", NULL);
    g_autofree char *line = g_strdup_printf("migrate file:%s\ninfo status\n", path);

    g_free(test_receive_until(c, PROMPT));
    test_send(c, line);
    g_autofree char *first = test_receive_until(c, "\r\n" PROMPT);
    g_autofree char *second = test_receive_until(c, "VM status: paused (postmigrate)\r\n" PROMPT);
    g_assert_true(g_str_has_suffix(first, "\033[K\r\n" PROMPT));
    g_assert_nonnull(second);
    g_autofree char *status = ask(c, "info migrate");
    g_assert_true(g_str_has_prefix(status, "Status: \t\tcompleted\r\n"));
    g_assert_cmpint(g_unlink(path), ==, 0);
    test_client_free(c);
}

/* ---- what cannot be understood ---- */

static void test_errors(Fixture *f, gconstpointer data)
{
    run(f, "", "");
    run(f, "   ", "");
    run(f, "nosuch", "unknown command: 'nosuch'\n");
    run(f, "stop;cont", "unknown command: 'stop;cont'\n");
    run(f, "\"info\" status", "unknown command: '\"info\"'\n");
    run(f, "info nosuch", "unknown command: 'info nosuch'\n");
    run(f, "migrate", "migrate: string expected\nTry \"help migrate\" for more information\n");
    run(f, "migrate -z", "migrate: unsupported option -z\nTry \"help migrate\" for more information\n");
    run(f, "info version extra",
        "version: extraneous characters at the end of line\nTry \"help info version\" for more "
        "information\n");
    run(f, "s x", "stop|s: extraneous characters at the end of line\nTry \"help s\" for more information\n");
    run(f, "migrate_set_capability xbzrle maybe",
        "Expected 'on' or 'off'\nTry \"help migrate_set_capability\" for more information\n");
    run(f, "xp/4xw", "unexpected end of expression\nTry \"help xp\" for more information\n");
    run(f, "migrate_set_capability nosuch on", "Error: invalid parameter value: nosuch\n");
    run(f, "migrate_set_parameter nosuch 3", "Error: invalid parameter value: nosuch\n");
    run(f, "migrate_continue nosuch", "Error: invalid parameter value: nosuch\n");
    run(f, "migrate_incoming tcp:0:0", "Error: '-incoming' was not specified on the command line\n");
    run(f, "migrate -d foo:", "Error: unknown migration protocol: foo:\n");
}

/* ---- help ---- */

static void test_help(Fixture *f, gconstpointer data)
{
    run(f, "help stop", "stop|s  -- stop the guest\n");
    run(f, "? xp", "xp /fmt addr -- show memory at physical address 'addr'\n");
    run(f, "help info status", "info status  -- whether the guest runs\n");
    run(f, "help nosuch", "unknown command: 'nosuch'\n");
    run(f, "help info nosuch", "unknown command: 'info nosuch'\n");
    g_autofree char *migrate = monitor_hmp_command(&f->vm->ctx, "help migrate");
    g_assert_true(g_str_has_prefix(migrate, "migrate [-d] [-r] uri -- "));
    g_autofree char *parameter = monitor_hmp_command(&f->vm->ctx, "help migrate_set_parameter");
    g_assert_true(g_str_has_prefix(parameter, "migrate_set_parameter parameter value -- "));
    g_autofree char *all = monitor_hmp_command(&f->vm->ctx, "help");
    g_assert_nonnull(strstr(all, "\r\nquit|q  -- "));
    g_autofree char *info = monitor_hmp_command(&f->vm->ctx, "info");
    g_autofree char *help_info = monitor_hmp_command(&f->vm->ctx, "help info");
    g_assert_cmpstr(info, ==, help_info);
    g_assert_nonnull(strstr(info, "\r\ninfo migrate [-a] -- "));
}

/* ---- the machine ---- */

static void test_machine(Fixture *f, gconstpointer data)
{
    run(f, "info status", "VM status: paused (prelaunch)\n");
    run(f, "cont", "");
    run(f, "info status", "VM status: running\n");
    run(f, "stop", "");
    run(f, "info status", "VM status: paused\n");
    run(f, "system_reset", "");
    run(f, "info status", "VM status: paused (prelaunch)\n");
    run(f, "info name", "");
    f->vm->machine->name = g_strdup("vm1");
    run(f, "info name", "vm1\n");
    run(f, "info uuid", "00000000-0000-0000-0000-000000000000\n");
    run(f, "info cpus", "");
    run(f, "info memory_size_summary", "base memory: 16777216\nplugged memory: 0\n");
    run(f, "info workload", "Error: machine type 'none' has no workload\n");
}

static void test_memory_lists(Fixture *f, gconstpointer data)
{
    run(f, "info memdev",
        "memory backend: ram\n  size:  16777216\n  merge: true\n  dump: true\n  prealloc: false\n  share: "
        "false\n"
        "  reserve: true\n  policy: default\n  host nodes: \n\n");
    run(f, "info mtree",
        "address-space: I/O\n  0000000000000000-000000000000ffff (prio 0, container): io\n\n"
        "address-space: memory\n  0000000000000000-ffffffffffffffff (prio 0, container): system\n"
        "    0000000000000000-0000000000ffffff (prio 0, ram): ram\n\n");
    g_autofree char *blocks = monitor_hmp_command(&f->vm->ctx, "info ramblock");
    g_autofree char *expected = g_strdup_printf(
        "              Block Name    PSize              Offset               Used              Total"
        "                HVA  RO\r\n"
        "                     ram    4 KiB  0x0000000000000000 0x0000000001000000 0x0000000001000000 "
        "0x%016" PRIx64 "  rw\r\n",
        (uint64_t)(uintptr_t)f->vm->machine->ram.first->host);
    g_assert_cmpstr(blocks, ==, expected);
}

/* ---- memory ---- */

static void test_dump(Fixture *f, gconstpointer data)
{
    static const uint8_t bytes[16] = { 0x01, 0x02, 0x03, 0x84, 'A',  '\n', '\'', 0x7f,
                                       0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

    g_assert_true(machine_memory_write(f->vm->machine, 0x100, bytes, sizeof(bytes), NULL));
    run(f, "xp/8xw 0x100",
        "00000100: 0x84030201 0x7f270a41 0xffffffff 0xffffffff\n"
        "00000110: 0x00000000 0x00000000 0x00000000 0x00000000\n");
    run(f, "xp/10xb 0x100", "00000100: 0x01 0x02 0x03 0x84 0x41 0x0a 0x27 0x7f\n00000108: 0xff 0xff\n");
    run(f, "xp/2xg 0x100", "00000100: 0x7f270a4184030201 0xffffffffffffffff\n");
    run(f, "xp/4dh 0x102", "00000102: -31741  2625 32551    -1\n");
    run(f, "xp/2uw 0x104", "00000104: 2133264961 4294967295\n");
    run(f, "xp/4db 0x100", "00000100:   1   2   3 -124\n");
    run(f, "xp/4ob 0x100", "00000100: 0  1 0  2 0  3 0204\n");
    run(f, "xp/8cb 0x100", "00000100: '\\x01' '\\x02' '\\x03' '\\x84' 'A' '\\n' '\\'' '\\x7f'\n");
    /* Sticky: the letters of the dump before. */
    run(f, "xp 0x104", "00000104: 'A'\n");
    run(f, "xp/0x 0", "");
    run(f, "xp/20xb 0xfffff8",
        "00fffff8: 0x00 0x00 0x00 0x00 0x00 0x00 0x00 0x00\n01000000: Cannot access memory\n");
    run(f, "xp/1xb 0x100000000", "100000000: Cannot access memory\n");
    run(f, "xp/2000000xb 0", "Error: count must be between 0 and 1048576\n");
    run(f, "x/4xw 0", "Can not dump without CPU\n");
}

static void test_print(Fixture *f, gconstpointer data)
{
    run(f, "print 1+2", "0x3\n");
    run(f, "p/d 0x10", "16\n");
    run(f, "p/o 8", "010\n");
    run(f, "p/c 65", "'A'\n");
    run(f, "p/x 0-1", "0xffffffffffffffff\n");
    run(f, "p/d 0-1", "-1\n");
    run(f, "p/u 0-1", "18446744073709551615\n");
    run(f, "p 7%4", "3\n");
}

static void test_addresses(Fixture *f, gconstpointer data)
{
    g_autofree char *expected = g_strdup_printf("Host virtual address for 0x1000 (ram) is %p\n",
                                                (void *)(f->vm->machine->ram.first->host + 0x1000));

    run(f, "gpa2hva 0x1000", expected);
    run(f, "gpa2hva 0x180000000", "No memory is mapped at address 0x180000000\n");
}

static void test_pmemsave(Fixture *f, gconstpointer data)
{
    g_autofree char *path = g_build_filename(f->vm->folder, "dump", NULL);
    g_autofree char *line = g_strdup_printf("pmemsave 0x1000 0x20000 \"%s\"", path);
    g_autofree char *contents = NULL;
    gsize len;

    g_assert_true(machine_memory_write(f->vm->machine, 0x20fff, "z", 1, NULL));
    run(f, line, "");
    g_assert_true(g_file_get_contents(path, &contents, &len, NULL));
    g_assert_cmpuint(len, ==, 0x20000);
    g_assert_cmpint(contents[0x1ffff], ==, 'z');
    g_unlink(path);
    run(f, "pmemsave 0 16 \"/nonexistent/x\"",
        "Error: Could not open '/nonexistent/x': No such file or directory\n");
    run(f, "pmemsave 0 16 /x",
        "invalid char 'x' in expression\nTry \"help pmemsave\" for more information\n");
}

/* ---- migration ---- */

static void test_capabilities(Fixture *f, gconstpointer data)
{
    run(f, "migrate_set_capability xbzrle on", "");
    g_autofree char *text = monitor_hmp_command(&f->vm->ctx, "info migrate_capabilities");
    g_assert_true(g_str_has_prefix(text, "xbzrle: on\r\nrdma-pin-all: off\r\nauto-converge: off\r\n"));
    g_assert_true(g_str_has_suffix(text, "\r\nmapped-ram: off\r\n"));
}

static void test_parameters(Fixture *f, gconstpointer data)
{
    g_autofree char *text = monitor_hmp_command(&f->vm->ctx, "info migrate_parameters");

    g_assert_true(g_str_has_prefix(text,
                                   "announce-initial: 50 ms\r\nannounce-max: 550 ms\r\nannounce-rounds: 5\r\n"
                                   "announce-step: 100 ms\r\nthrottle-trigger-threshold: 50\r\n"
                                   "cpu-throttle-initial: 20\r\ncpu-throttle-increment: 10\r\n"
                                   "cpu-throttle-tailslow: off\r\nmax-cpu-throttle: 99\r\n"));
    g_assert_nonnull(strstr(text, "\r\nmax-bandwidth: 134217728 bytes/second\r\n"
                                  "avail-switchover-bandwidth: 0 bytes/second\r\n"));
    g_assert_nonnull(strstr(text, "\r\ndowntime-limit: 300 ms\r\n"));
    g_assert_nonnull(strstr(text, "\r\nxbzrle-cache-size: 67108864 bytes\r\n"));
    g_assert_nonnull(strstr(text, "\r\ntls-creds: ''"));
    run(f, "migrate_set_parameter max-bandwidth 32", "");
    run(f, "migrate_set_parameter downtime-limit 0x10", "");
    g_autofree char *changed = monitor_hmp_command(&f->vm->ctx, "info migrate_parameters");
    g_assert_nonnull(strstr(changed, "\r\nmax-bandwidth: 33554432 bytes/second\r\n"));
    g_assert_nonnull(strstr(changed, "\r\ndowntime-limit: 16 ms\r\n"));
    run(f, "migrate_set_parameter max-bandwidth abc", "Error: Invalid size abc\n");
    run(f, "migrate_set_parameter downtime-limit 2000001",
        "Error: Option downtime-limit expects an integer in the range of 0 to (2000 * 1000) ms\n");
    run(f, "migrate_set_parameter downtime-limit",
        "migrate_set_parameter: string expected\nTry \"help migrate_set_parameter\" for more information\n");
}

static void test_info_migrate(Fixture *f, gconstpointer data)
{
    run(f, "info migrate", "");
    run(f, "migrate_cancel", "");
    run(f, "migrate_start_postcopy",
        "Error: Enable postcopy with migrate_set_capability before the start of migration\n");
    run(f, "migrate_pause",
        "Error: migrate-pause is currently only supported during postcopy-active or postcopy-recover "
        "state\n");
    unsigned id = migration_add_blocker(f->vm->migration, "device x cannot move");
    run(f, "info migrate", "Outgoing migration blocked:\n  device x cannot move\n");
    migration_del_blocker(f->vm->migration, id);
    g_autofree char *all = monitor_hmp_command(&f->vm->ctx, "info migrate -a");
    g_assert_true(g_str_has_prefix(all, "Globals:\r\n  store-global-state: on\r\n"));
}

static void test_incoming(void)
{
    Fixture f = { .vm = test_vm_new(true) };
    g_autofree char *path = g_build_filename(f.vm->folder, "in", NULL);
    g_autofree char *listen = g_strdup_printf("migrate_incoming unix:%s", path);
    g_autofree char *shown = g_strdup_printf("Status: \t\tsetup\nSockets: [\n\tunix:%s\n]\n", path);

    run(&f, "info status", "VM status: paused (inmigrate)\n");
    run(&f, "info migrate", "");
    run(&f, listen, "");
    run(&f, "info migrate", shown);
    run(&f, listen, "Error: The incoming migration has already been started\n");
    test_vm_free(f.vm);
}

/* ---- trace events and logs ---- */

static void test_trace(Fixture *f, gconstpointer data)
{
    run(f, "info trace-events monitor_conn*", "monitor_connect : state 0\n");
    run(f, "trace-event monitor_conn* on", "");
    run(f, "info trace-events monitor_connect", "monitor_connect : state 1\n");
    run(f, "log none", "");
    run(f, "info trace-events monitor_connect", "monitor_connect : state 0\n");
    run(f, "log trace:monitor_connect", "");
    run(f, "info trace-events monitor_connect", "monitor_connect : state 1\n");
    run(f, "trace-event * off", "");
    run(f, "info trace-events nosuch*", "");
    run(f, "info trace-events nosuch", "unknown event \"nosuch\"\n");
    run(f, "trace-event nosuch on", "unknown event \"nosuch\"\n");
    run(f, "log trace:nosuch", "warning: trace event 'nosuch' does not exist\n");
    run(f, "logfile /nonexistent/x", "Error opening logfile /nonexistent/x: No such file or directory\n");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(path, function) g_test_add(path, Fixture, NULL, set_up, function, tear_down)
    ADD("/hmp/session", test_session);
    ADD("/hmp/session-quit", test_session_quit);
    ADD("/hmp/session-deaf", test_session_deaf);
    ADD("/hmp/session-migrate", test_session_migrate);
    ADD("/hmp/errors", test_errors);
    ADD("/hmp/help", test_help);
    ADD("/hmp/machine", test_machine);
    ADD("/hmp/memory-lists", test_memory_lists);
    ADD("/hmp/dump", test_dump);
    ADD("/hmp/print", test_print);
    ADD("/hmp/addresses", test_addresses);
    ADD("/hmp/pmemsave", test_pmemsave);
    ADD("/hmp/capabilities", test_capabilities);
    ADD("/hmp/parameters", test_parameters);
    ADD("/hmp/info-migrate", test_info_migrate);
    g_test_add_func("/hmp/incoming", test_incoming);
    ADD("/hmp/trace", test_trace);
    return g_test_run();
}
