/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of channels to commands: data, exit status, early ends. */
#include "io/transport.h"
#include "util/error.h"

#include <string.h>

static Channel *shell(const char *script, bool readable, bool writable)
{
    const char *const argv[] = { "/bin/sh", "-c", script, NULL };
    g_autoptr(GError) err = NULL;
    Channel *c = channel_command_spawn(argv, readable, writable, &err);

    g_assert_no_error(err);
    return c;
}

static void expect_close_error(const char *script, const char *message)
{
    g_autoptr(Channel) c = shell(script, true, false);
    g_autoptr(GError) err = NULL;

    g_assert_false(channel_close(c, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_IO);
    g_assert_cmpstr(err->message, ==, message);
    g_assert_true(channel_close(c, NULL));
}

static void test_read(void)
{
    g_autoptr(Channel) c = shell("printf hello", true, false);
    g_autoptr(GError) err = NULL;
    char buf[8];

    g_assert_false(channel_has_feature(c, CHANNEL_FEATURE_WRITE));
    g_assert_true(channel_read_all(c, buf, 5, &err));
    g_assert_cmpmem(buf, 5, "hello", 5);
    g_assert_cmpint(channel_read(c, buf, 1, &err), ==, 0);
    g_assert_true(channel_close(c, &err));
}

static void *write_lots(void *opaque)
{
    g_autofree char *data = g_strnfill(1000 * 1000, 'x');

    g_assert_true(channel_write_all(opaque, data, 1000 * 1000, NULL));
    g_assert_true(channel_write_all(opaque, "\n", 1, NULL));
    return NULL;
}

/* Both directions at once, one thread each, more than the pipes hold. */
static void test_both_ways(void)
{
    g_autoptr(Channel) c = shell("head -c 1000001", true, true);
    g_autofree char *buf = g_malloc0(1000 * 1000 + 2);     /* terminated, for strspn() */
    g_autoptr(GError) err = NULL;

    GThread *thread = g_thread_new("writer", write_lots, c);
    g_assert_true(channel_read_all(c, buf, 1000 * 1000 + 1, &err));
    g_assert_cmpuint(strspn(buf, "x"), ==, 1000 * 1000);
    g_thread_join(thread);
    g_assert_true(channel_close(c, &err));
}

static void test_exit_status(void)
{
    expect_close_error("exit 3", "Command '/bin/sh' ended with exit status 3");
    expect_close_error("kill -KILL $$", "Command '/bin/sh' was killed by signal 9 (Killed)");

    g_autoptr(Channel) fine = shell("cat >/dev/null", false, true);
    g_assert_true(channel_write_all(fine, "x", 1, NULL));
    g_assert_true(channel_close(fine, NULL));
}

/* Who only reads may have enough before the command has written all. */
static void test_enough(void)
{
    g_autoptr(Channel) c = shell("exec cat /dev/zero", true, false);
    char buf[8];
    g_autoptr(GError) err = NULL;

    g_assert_true(channel_read_all(c, buf, 8, NULL));
    g_assert_true(channel_close(c, &err));
    g_assert_no_error(err);
}

static void test_early_end(void)
{
    g_autoptr(Channel) c = shell("exit 0", false, true);
    static const char data[4096];
    g_autoptr(GError) err = NULL;

    while (channel_write_all(c, data, sizeof(data), &err)) {
    }
    g_assert_cmpstr(err->message, ==, "Unable to write to command: Broken pipe");
}

static void test_not_found(void)
{
    static const char *const missing[] = { "/nonexistent/cmd", NULL };
    static const char *const no_path_search[] = { "false", NULL };
    static const char *const empty[] = { NULL };
    g_autoptr(GError) err = NULL;
    g_autoptr(GError) err2 = NULL;
    g_autoptr(GError) err3 = NULL;

    g_assert_null(channel_command_spawn(missing, true, true, &err));
    g_assert_true(strstr(err->message, "(No such file or directory)"));
    g_assert_null(channel_command_spawn(no_path_search, true, true, &err2));
    g_assert_cmpstr(err2->message, ==,
                    "Failed to execute child process “false” (No such file or directory)");
    g_assert_null(channel_command_spawn(empty, true, true, &err3));
    g_assert_error(err3, GODWIT_ERROR, GODWIT_ERROR_INVALID);
}

/* A child that has no ear for SIGTERM gets SIGKILL. */
static void test_stubborn(void)
{
    Channel *c = shell("trap '' TERM; echo; while :; do sleep 0.05; done", true, true);
    g_autoptr(GError) err = NULL;
    char line;

    g_assert_true(channel_read_all(c, &line, 1, NULL));
    channel_shutdown(c);
    g_assert_false(channel_close(c, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_CANCELLED);
    channel_unref(c);
}

int main(int argc, char **argv)
{
    g_setenv("LC_ALL", "C.UTF-8", TRUE);
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/command/read", test_read);
    g_test_add_func("/command/both-ways", test_both_ways);
    g_test_add_func("/command/exit-status", test_exit_status);
    g_test_add_func("/command/enough", test_enough);
    g_test_add_func("/command/early-end", test_early_end);
    g_test_add_func("/command/not-found", test_not_found);
    g_test_add_func("/command/stubborn", test_stubborn);
    return g_test_run();
}
