/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of channels over memory, files and pipes, and of what is common to all kinds. */
#include "io/transport.h"
#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *dir;

static char *path_in_dir(const char *name)
{
    return g_build_filename(dir, name, NULL);
}

static void make_pipe(Channel **reader, Channel **writer)
{
    int fds[2];

    g_assert_cmpint(pipe2(fds, O_CLOEXEC), ==, 0);
    *reader = channel_from_fd(fds[0], NULL);
    *writer = channel_from_fd(fds[1], NULL);
    g_assert_nonnull(*reader);
    g_assert_nonnull(*writer);
}

static void test_buffer(void)
{
    g_autoptr(Channel) c = channel_buffer_new("abc", 3);
    g_autoptr(GError) err = NULL;
    char buf[8] = "";

    g_assert_cmpint(channel_peek(c, buf, 2, &err), ==, 2);
    g_assert_cmpmem(buf, 2, "ab", 2);
    g_assert_true(channel_write_all(c, "defg", 4, &err));
    g_assert_true(channel_read_all(c, buf, 6, &err));
    g_assert_cmpmem(buf, 6, "abcdef", 6);
    g_assert_cmpint(channel_read(c, buf, 6, &err), ==, 1);
    g_assert_cmpint(channel_read(c, buf, 6, &err), ==, 0);

    struct iovec iov = { (char *)"XY", 2 };
    g_assert_true(channel_pwritev_all(c, &iov, 1, 9, &err));
    g_assert_cmpmem(channel_buffer_bytes(c)->data, channel_buffer_bytes(c)->len, "abcdefg\0\0XY", 11);
    g_assert_true(channel_pread_all(c, buf, 3, 1, &err));
    g_assert_cmpmem(buf, 3, "bcd", 3);
    g_assert_cmpint(channel_seek(c, -1, SEEK_END, &err), ==, 10);
    g_assert_cmpint(channel_read(c, buf, 6, &err), ==, 1);
    g_assert_no_error(err);

    channel_shutdown(c);
    g_assert_cmpint(channel_read(c, buf, 1, &err), ==, -1);
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_CANCELLED);
    g_assert_false(channel_write_all(c, "x", 1, NULL));
    g_assert_cmpint(channel_poll_fd(c), ==, -1);
}

static void test_read_all(void)
{
    char buf[8];
    g_autoptr(GError) err = NULL;
    g_autoptr(GError) err2 = NULL;
    g_autoptr(Channel) empty = channel_buffer_new(NULL, 0);
    g_autoptr(Channel) part = channel_buffer_new("abc", 3);
    g_autoptr(Channel) whole = channel_buffer_new("abcd", 4);

    g_assert_cmpint(channel_read_all_eof(empty, buf, 4, &err), ==, 0);
    g_assert_no_error(err);
    g_assert_false(channel_read_all(empty, buf, 4, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_EOF);
    g_assert_cmpint(channel_read_all_eof(part, buf, 4, &err2), ==, -1);
    g_assert_error(err2, GODWIT_ERROR, GODWIT_ERROR_EOF);
    g_assert_cmpstr(err2->message, ==, "Unexpected end-of-file before all data were read");
    g_assert_cmpint(channel_read_all_eof(whole, buf, 4, NULL), ==, 1);
    g_assert_true(channel_read_all(whole, buf, 0, NULL));
}

#define PATTERN_LEN (3 * 1000 * 1000)

static uint8_t pattern(size_t i)
{
    return (i * 2654435761U) >> 24;
}

static void *read_pattern(void *opaque)
{
    Channel *c = opaque;
    g_autofree uint8_t *buf = g_malloc(PATTERN_LEN);
    GError *err = NULL;

    g_assert_true(channel_read_all(c, buf, PATTERN_LEN, &err));
    for (size_t i = 0; i < PATTERN_LEN; i++) {
        g_assert_cmpuint(buf[i], ==, pattern(i));
    }
    g_assert_cmpint(channel_read(c, buf, 1, &err), ==, 0);
    return NULL;
}

/*
 * More elements than one call takes, empty ones among them, through a pipe that takes them in small pieces.
 */
static void test_writev_all(void)
{
    g_autofree uint8_t *buf = g_malloc(PATTERN_LEN);
    size_t n = 0, off = 0, max = 5000;
    g_autofree struct iovec *iov = g_new0(struct iovec, max);
    Channel *reader, *writer;

    for (size_t i = 0; i < PATTERN_LEN; i++) {
        buf[i] = pattern(i);
    }
    while (off < PATTERN_LEN) {
        size_t len = n == max - 2 ? PATTERN_LEN - off
                     : n % 7 == 0 ? 0
                                  : (size_t)g_test_rand_int_range(1, 1400);

        len = MIN(len, PATTERN_LEN - off);
        iov[n++] = (struct iovec){ buf + off, len };
        off += len;
    }
    iov[n++] = (struct iovec){ NULL, 0 };
    g_assert_cmpuint(n, >, IOV_MAX);

    make_pipe(&reader, &writer);
    GThread *thread = g_thread_new("reader", read_pattern, reader);
    g_autoptr(GError) err = NULL;
    g_assert_true(channel_writev_all(writer, iov, n, 0, &err));
    g_assert_true(channel_close(writer, &err));
    g_thread_join(thread);
    g_assert_true(channel_close(writer, &err));
    channel_unref(writer);
    channel_unref(reader);

    struct iovec none[2] = { { NULL, 0 }, { NULL, 0 } };
    g_autoptr(Channel) b = channel_buffer_new(NULL, 0);
    g_assert_true(channel_writev_all(b, none, 2, 0, &err));
    g_assert_true(channel_writev_all(b, none, 0, 0, &err));
}

static void test_features(void)
{
    Channel *reader, *writer;
    g_autoptr(GError) err = NULL;
    g_autoptr(GArray) fds = g_array_new(FALSE, FALSE, sizeof(int));
    char buf[4];
    int fd = 0;
    struct iovec iov = { buf, 4 };

    make_pipe(&reader, &writer);
    g_assert_true(channel_has_feature(reader, CHANNEL_FEATURE_READ));
    g_assert_false(channel_has_feature(reader, CHANNEL_FEATURE_WRITE));
    g_assert_true(channel_has_feature(writer, CHANNEL_FEATURE_WRITE));
    g_assert_false(channel_pread_all(reader, buf, 4, 0, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED);
    g_assert_false(channel_pwritev_all(writer, &iov, 1, 0, NULL));
    g_assert_cmpint(channel_seek(reader, 0, SEEK_SET, NULL), ==, -1);
    g_assert_cmpint(channel_peek(reader, buf, 1, NULL), ==, -1);
    g_assert_cmpint(channel_readv_fds(reader, &iov, 1, fds, NULL), ==, -1);
    g_assert_cmpint(channel_writev(writer, &iov, 1, &fd, 1, 0, NULL), ==, -1);
    g_assert_cmpint(channel_writev(writer, &iov, 1, NULL, 0, CHANNEL_WRITE_ZERO_COPY, NULL), ==, -1);
    g_assert_cmpint(channel_flush_zero_copy(writer, NULL), ==, 0);

    g_autoptr(GError) err2 = NULL;
    g_assert_cmpint(channel_read(writer, buf, 1, &err2), ==, -1);
    g_assert_cmpstr(err2->message, ==, "Unable to read from file: Bad file descriptor");
    channel_unref(reader);
    channel_unref(writer);
    channel_unref(NULL);
}

static void expect_open_error(const char *path, int flags, const char *format)
{
    g_autoptr(GError) err = NULL;
    g_autofree char *message = g_strdup_printf(format, path);

    g_assert_null(channel_file_open(path, flags, 0600, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_IO);
    g_assert_cmpstr(err->message, ==, message);
}

static void test_file(void)
{
    g_autofree char *path = path_in_dir("file");
    g_autoptr(GError) err = NULL;
    struct iovec iov[2] = { { (char *)"hello ", 6 }, { (char *)"world", 5 } };
    char buf[16];
    struct stat st;

    expect_open_error("/nonexistent/x", O_RDONLY, "Could not open '%s': No such file or directory");
    expect_open_error("/nonexistent/x", O_WRONLY | O_CREAT,
                      "Could not create '%s': No such file or directory");
    expect_open_error(dir, O_WRONLY | O_CREAT, "Could not create '%s': Is a directory");

    g_autoptr(Channel) c = channel_file_open(path, O_RDWR | O_CREAT | O_TRUNC, 0600, &err);
    g_assert_no_error(err);
    g_assert_true(channel_has_feature(c, CHANNEL_FEATURE_SEEKABLE));
    g_assert_cmpint(stat(path, &st), ==, 0);
    g_assert_cmphex(st.st_mode & 0777, ==, 0600);
    g_assert_true(channel_pwritev_all(c, iov, 2, 4096, &err));
    g_assert_true(channel_write_all(c, "start", 5, &err));
    g_assert_true(channel_pread_all(c, buf, 11, 4096, &err));
    g_assert_cmpmem(buf, 11, "hello world", 11);
    g_assert_false(channel_pread_all(c, buf, 12, 4096, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_EOF);
    g_assert_cmpint(channel_seek(c, 4102, SEEK_SET, NULL), ==, 4102);
    g_assert_true(channel_read_all(c, buf, 5, NULL));
    g_assert_cmpmem(buf, 5, "world", 5);

    channel_shutdown(c);
    g_assert_false(channel_pread_all(c, buf, 1, 0, NULL));
    g_assert_false(channel_write_all(c, buf, 1, NULL));
    g_unlink(path);
}

static void test_disk_full(void)
{
    g_autoptr(GError) err = NULL;
    g_autoptr(Channel) c = channel_file_open("/dev/full", O_WRONLY, 0, &err);

    g_assert_no_error(err);
    g_assert_false(channel_write_all(c, "x", 1, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_IO);
    g_assert_cmpstr(err->message, ==, "Unable to write to file: No space left on device");
}

/* A broken pipe is an error, not a signal, and leaves no signal pending. */
static void test_broken_pipe(void)
{
    Channel *reader, *writer;
    g_autoptr(GError) err = NULL;
    sigset_t pending;

    make_pipe(&reader, &writer);
    channel_unref(reader);
    g_assert_false(channel_write_all(writer, "x", 1, &err));
    g_assert_cmpstr(err->message, ==, "Unable to write to file: Broken pipe");
    g_assert_cmpint(sigpending(&pending), ==, 0);
    g_assert_false(sigismember(&pending, SIGPIPE));
    channel_unref(writer);
}

/* The description of an adopted descriptor may belong to others too: it comes back as it was. */
static void test_nonblock_restored(void)
{
    int fds[2];

    g_assert_cmpint(pipe2(fds, O_CLOEXEC), ==, 0);
    int copy = dup(fds[0]);
    Channel *c = channel_from_fd(fds[0], NULL);
    g_assert_true(fcntl(copy, F_GETFL) & O_NONBLOCK);
    channel_unref(c);
    g_assert_false(fcntl(copy, F_GETFL) & O_NONBLOCK);
    close(copy);
    close(fds[1]);
}

static void test_from_fd(void)
{
    g_autoptr(GError) err = NULL;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int fds[2];
    char buf[4];

    g_assert_false(channel_fd_is_stream(fd));
    g_assert_false(channel_fd_is_stream(-1));
    g_assert_cmpint(pipe(fds), ==, 0);
    g_assert_true(channel_fd_is_stream(fds[0]));
    close(fds[0]);
    close(fds[1]);

    g_autoptr(Channel) c = channel_from_fd(fd, &err);
    g_assert_no_error(err);
    g_assert_true(channel_write_all(c, "abc", 3, &err));
    g_assert_cmpint(channel_read(c, buf, 4, &err), ==, 0);
    g_assert_cmpint(channel_poll_fd(c), ==, fd);
    g_assert_true(channel_close(c, &err));
    g_assert_cmpint(fcntl(fd, F_GETFD), ==, -1);
    g_assert_null(channel_from_fd(fd, &err));
    g_assert_error(err, GODWIT_ERROR, GODWIT_ERROR_IO);
}

static void test_names_and_references(void)
{
    Channel *c = channel_buffer_new(NULL, 0);

    channel_set_name(c, "migration-main");
    channel_set_name(c, "other");
    g_assert_cmpstr(c->name, ==, "other");
    g_assert_true(channel_ref(c) == c);
    channel_unref(c);
    g_assert_true(channel_write_all(c, "x", 1, NULL));
    channel_unref(c);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    dir = g_dir_make_tmp("test-channel-XXXXXX", NULL);
    g_test_add_func("/channel/buffer", test_buffer);
    g_test_add_func("/channel/read-all", test_read_all);
    g_test_add_func("/channel/writev-all", test_writev_all);
    g_test_add_func("/channel/features", test_features);
    g_test_add_func("/channel/file", test_file);
    g_test_add_func("/channel/disk-full", test_disk_full);
    g_test_add_func("/channel/broken-pipe", test_broken_pipe);
    g_test_add_func("/channel/nonblock-restored", test_nonblock_restored);
    g_test_add_func("/channel/from-fd", test_from_fd);
    g_test_add_func("/channel/names-and-references", test_names_and_references);
    int rc = g_test_run();
    g_rmdir(dir);
    g_free(dir);
    return rc;
}
