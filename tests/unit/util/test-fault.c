/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the fault points: the environment variable, passes, actions. */
#include "util/error.h"
#include "util/fault.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The points of this test are called through a name, so that they do not get into the program's table. */
static bool pass(const char *name, GError **errp)
{
    return fault_point(name, errp);
}

#ifdef CONFIG_FAULT_INJECTION
static void test_error(void)
{
    g_autoptr(GError) err = NULL;

    g_assert_true(fault_configure("a:2,b:1:error,a:4", NULL));
    g_assert_false(pass("a", NULL));
    g_assert_true(pass("a", &err));
    g_assert_cmpstr(err->message, ==, "fault injected at 'a', pass 2");
    g_assert_false(pass("a", NULL));
    g_assert_true(pass("a", NULL));
    g_assert_false(pass("a", NULL));
    g_assert_false(pass("c", NULL));
    g_assert_true(pass("b", NULL));
    g_assert_false(pass("b", NULL));
    g_assert_true(fault_configure(NULL, NULL));
    g_assert_false(pass("a", NULL));
}

static void test_malformed(void)
{
    static const char *const bad[] = {
        "", "a", "a:", "a:0", "a:-1", "a:x", ":1", "a:1:", "a:1:boom", "a:1:delay", "a:1:delay=",
        "a:1:delay=-1", "a:1:delay=60001", "a:1,", "a:99999999999", "a:1:error:more",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) err = NULL;

        g_test_message("'%s'", bad[i]);
        g_assert_true(fault_configure(bad[i], &err) == (*bad[i] == '\0'));
        if (*bad[i]) {
            g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_INVALID);
        }
    }
    g_assert_true(fault_configure(NULL, NULL));
}

static void test_delay(void)
{
    g_assert_true(fault_configure("a:1:delay=50", NULL));
    gint64 start = g_get_monotonic_time();
    g_assert_false(pass("a", NULL));
    g_assert_cmpint(g_get_monotonic_time() - start, >=, 50 * 1000);
    g_assert_true(fault_configure(NULL, NULL));
}

/* The environment is read by the first pass of a fresh process. */
static void test_environment_child(void)
{
    if (pass("x", NULL)) {
        _exit(3);
    }
    _exit(pass("x", NULL) ? 0 : 4);
}

static int run_child(const char *path, const char *spec)
{
    g_auto(GStrv) env = g_environ_setenv(g_get_environ(), "GODWIT_FAULT", spec, TRUE);
    const char *argv[] = { "/proc/self/exe", "-p", path, NULL };
    GSpawnFlags flags = G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_DO_NOT_REAP_CHILD;
    g_autoptr(GError) err = NULL;
    GPid pid;
    int status;

    g_spawn_async(NULL, (char **)argv, env, flags, NULL, NULL, &pid, &err);
    g_assert_no_error(err);
    g_assert_cmpint(waitpid(pid, &status, WUNTRACED), ==, pid);
    if (WIFSTOPPED(status)) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return status;
}

static void test_environment(void)
{
    int status = run_child("/fault/child", "x:2");
    g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = run_child("/fault/child", "x:1");
    g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    status = run_child("/fault/child", "x:1:kill");
    g_assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = run_child("/fault/child", "x:1:stop");
    g_assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
}

static void test_check(void)
{
    g_autoptr(GError) err = NULL;
    const char *const *points = fault_points();

    g_unsetenv("GODWIT_FAULT");
    g_assert_true(fault_check_environment(NULL));
    g_setenv("GODWIT_FAULT", "no-such-point:1", TRUE);
    g_assert_false(fault_check_environment(&err));
    g_assert_cmpstr(err->message, ==, "GODWIT_FAULT: there is no fault point 'no-such-point'");
    g_setenv("GODWIT_FAULT", "rubbish", TRUE);
    g_assert_false(fault_check_environment(NULL));
    for (size_t i = 0; points[i]; i++) {
        g_autofree char *spec = g_strdup_printf("%s:1", points[i]);

        g_setenv("GODWIT_FAULT", spec, TRUE);
        g_assert_true(fault_check_environment(NULL));
        g_assert_true(i == 0 || strcmp(points[i - 1], points[i]) < 0);
    }
    g_unsetenv("GODWIT_FAULT");
}

#else
static void test_release(void)
{
    g_assert_false(pass("a", NULL));
    g_assert_false(fault_configure("a:1", NULL));
    g_assert_null(fault_points()[0]);
}
#endif

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#ifdef CONFIG_FAULT_INJECTION
    if (g_getenv("GODWIT_FAULT")) {
        g_test_add_func("/fault/child", test_environment_child);
        return g_test_run();
    }
    g_test_add_func("/fault/error", test_error);
    g_test_add_func("/fault/malformed", test_malformed);
    g_test_add_func("/fault/delay", test_delay);
    g_test_add_func("/fault/environment", test_environment);
    g_test_add_func("/fault/check", test_check);
#else
    g_test_add_func("/fault/release", test_release);
#endif
    return g_test_run();
}
