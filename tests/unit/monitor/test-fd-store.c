/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors by name and in sets: owners, messages, what is closed when. */
#include "monitor/fd-store.h"
#include "util/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_fd(int flags)
{
    int fd = open("/dev/null", flags | O_CLOEXEC);

    g_assert_cmpint(fd, >=, 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void assert_error(GError **err, const char *message)
{
    g_assert_nonnull(*err);
    g_assert_cmpstr((*err)->message, ==, message);
    g_clear_error(err);
}

static void test_named(void)
{
    FdStore *store = fd_store_new();
    GError *err = NULL;
    int first = open_fd(O_RDONLY);
    int second = open_fd(O_RDONLY);

    g_assert_true(fd_store_put(store, "mig", first, NULL));
    /* The same name again: the one before is closed. */
    g_assert_true(fd_store_put(store, "mig", second, NULL));
    g_assert_false(is_open(first));
    g_assert_cmpint(fd_store_take(store, "mig", NULL), ==, second);
    g_assert_true(is_open(second));
    g_assert_cmpint(fd_store_take(store, "mig", &err), ==, -1);
    assert_error(&err, "File descriptor named 'mig' has not been found");
    g_assert_true(fd_store_put(store, "mig", second, NULL));
    g_assert_true(fd_store_close(store, "mig", NULL));
    g_assert_false(is_open(second));
    g_assert_false(fd_store_close(store, "mig", &err));
    assert_error(&err, "File descriptor named 'mig' not found");
    int digit = open_fd(O_RDONLY);
    g_assert_false(fd_store_put(store, "7up", digit, &err));
    assert_error(&err, "Parameter 'fdname' expects a name not starting with a digit");
    g_assert_false(is_open(digit));
    int left = open_fd(O_RDONLY);
    g_assert_true(fd_store_put(store, "left", left, NULL));
    fd_store_free(store);
    g_assert_false(is_open(left));
}

static void test_sets(void)
{
    FdStore *store = fd_store_new();
    GError *err = NULL;
    int64_t id = 3;
    int reader = open_fd(O_RDONLY);
    int writer = open_fd(O_WRONLY);

    g_assert_true(fd_store_set_add(store, &id, reader, "rdonly", NULL));
    g_assert_true(fd_store_set_add(store, &id, writer, NULL, NULL));
    int64_t fresh = -1;
    int other = open_fd(O_RDWR);
    g_assert_true(fd_store_set_add(store, &fresh, other, NULL, NULL));
    g_assert_cmpint(fresh, ==, 0);

    /* The access mode counts, flags of creation do not. */
    int dup = fd_store_set_dup(store, 3, O_WRONLY | O_CREAT, NULL);
    g_assert_cmpint(dup, >=, 0);
    g_assert_cmpint(dup, !=, writer);
    g_assert_cmpint(fcntl(dup, F_GETFL) & O_ACCMODE, ==, O_WRONLY);
    close(dup);
    g_assert_cmpint(fd_store_set_dup(store, 0, O_WRONLY | O_CREAT, &err), ==, -1);
    assert_error(&err, "Failed to find file descriptor with matching flags=0x41");

    g_autoptr(FdsetInfoList) list = fd_store_query(store);
    g_assert_cmpuint(list->count, ==, 2);
    g_assert_cmpint(list->items[0]->fdset_id, ==, 3);
    g_assert_cmpint(list->items[1]->fdset_id, ==, 0);
    g_assert_cmpuint(list->items[0]->fds->count, ==, 2);
    g_assert_cmpint(list->items[0]->fds->items[0]->fd, ==, reader);
    g_assert_cmpstr(list->items[0]->fds->items[0]->opaque, ==, "rdonly");
    g_assert_null(list->items[0]->fds->items[1]->opaque);

    int64_t fd = reader;
    g_assert_true(fd_store_set_remove(store, 3, &fd, NULL));
    g_assert_false(is_open(reader));
    g_assert_true(is_open(writer));
    g_assert_false(fd_store_set_remove(store, 3, &fd, &err));
    g_autofree char *text = g_strdup_printf("File descriptor named 'fdset-id:3, fd:%d' not found", reader);
    assert_error(&err, text);
    g_assert_true(fd_store_set_remove(store, 3, NULL, NULL));
    g_assert_false(is_open(writer));
    g_assert_false(fd_store_set_remove(store, 3, NULL, &err));
    assert_error(&err, "File descriptor named 'fdset-id:3' not found");
    fd_store_free(store);
    g_assert_false(is_open(other));
}

static bool same_file(int a, int b)
{
    struct stat one, other;

    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_ino == other.st_ino &&
           one.st_dev == other.st_dev;
}

/* The latest of those that fit; with O_DIRECT only for who asks for it. */
static void test_choice(void)
{
    FdStore *store = fd_store_new();
    GError *err = NULL;
    g_autofree char *first = NULL, *second = NULL;
    int a = g_file_open_tmp("godwit-XXXXXX", &first, NULL),
        b = g_file_open_tmp("godwit-XXXXXX", &second, NULL);
    int64_t id = 1;
    int direct = open(first, O_RDWR | O_DIRECT | O_CLOEXEC);

    g_assert_cmpint(fd_store_set_dup(store, 1, O_RDWR, &err), ==, -1);
    assert_error(&err, "Failed to find fdset /dev/fdset/1");
    g_assert_true(fd_store_set_add(store, &id, a, NULL, NULL));
    g_assert_true(fd_store_set_add(store, &id, b, NULL, NULL));
    int dup = fd_store_set_dup(store, 1, O_RDWR, NULL);
    g_assert_true(same_file(dup, b));
    close(dup);
    g_assert_cmpint(fd_store_set_dup(store, 1, O_RDWR | O_DIRECT, &err), ==, -1);
    assert_error(&err, "Failed to find file descriptor with matching flags=0x4002");
    if (direct >= 0) {
        g_assert_true(fd_store_set_add(store, &id, direct, NULL, NULL));
        dup = fd_store_set_dup(store, 1, O_RDWR | O_DIRECT, NULL);
        g_assert_true(same_file(dup, a));
        close(dup);
        dup = fd_store_set_dup(store, 1, O_RDWR, NULL);
        g_assert_true(same_file(dup, b));
        close(dup);
    } else {
        g_test_skip("the file system of temporary files refuses O_DIRECT");
    }
    fd_store_free(store);
    unlink(first);
    unlink(second);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/fd-store/named", test_named);
    g_test_add_func("/fd-store/sets", test_sets);
    g_test_add_func("/fd-store/choice", test_choice);
    return g_test_run();
}
