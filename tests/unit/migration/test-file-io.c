/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine of file migrations, both backends: what is written can be read, disturbed or not; errors. */
#include "migration/file-io.h"
#include "util/error.h"
#include "util/fault.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define SIZE (8192 * KIB)

typedef struct Fixture {
    RAMBlock block;
    char *path;
    int fd;
} Fixture;

static void set_up(Fixture *f, gconstpointer data)
{
    g_strlcpy(f->block.idstr, "m0", sizeof(f->block.idstr));
    f->block.host = g_malloc(SIZE);
    f->block.used_length = SIZE;
    for (size_t i = 0; i < SIZE / 4; i++) {
        ((uint32_t *)(void *)f->block.host)[i] = (uint32_t)i * 2654435761u;
    }
    f->fd = g_file_open_tmp("godwit-XXXXXX", &f->path, NULL);
    g_assert_cmpint(f->fd, >=, 0);
}

static void tear_down(Fixture *f, gconstpointer data)
{
    fault_configure(NULL, NULL);
    close(f->fd);
    unlink(f->path);
    g_free(f->path);
    g_free(f->block.host);
}

/* NULL where this backend is not to be had. */
static FileIo *open_io(Fixture *f, gconstpointer data, bool write)
{
    FileIoConfig config = {
        .fd = f->fd, .write = write, .backend = (FileIoBackend)GPOINTER_TO_INT(data), .threads = 3,
    };
    g_autoptr(GError) error = NULL;
    FileIo *io = file_io_new(&config, &error);

    if (!io) {
        g_test_skip(error->message);
        return NULL;
    }
    g_assert_cmpstr(file_io_backend(io), ==, config.backend == FILE_IO_URING ? "io_uring" : "threads");
    return io;
}

/* Everything, in requests of @len, into the file behind 4096 octets or from there to @to. */
static bool transfer(Fixture *f, FileIo *io, uint8_t *to, uint64_t len, GError **errp)
{
    for (uint64_t at = 0; at < SIZE; at += len) {
        FileIoRequest r = { to + at, MIN(len, SIZE - at), 4096 + at, &f->block, at };
        if (!file_io_submit(io, &r, errp)) {
            return false;
        }
    }
    return file_io_drain(io, errp);
}

static void round_trip(Fixture *f, gconstpointer data, const char *fault)
{
    static const uint64_t lengths[] = { 4096 * KIB, 1024 * KIB, 12 * KIB, 257 };
    g_autofree uint8_t *copy = g_malloc(SIZE);
    g_autoptr(GError) error = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        g_assert_cmpint(ftruncate(f->fd, 0), ==, 0);
        memset(copy, 0, SIZE);
        fault_configure(fault, NULL);
        g_autoptr(FileIo) out = open_io(f, data, true);
        if (!out) {
            return;
        }
        g_assert_true(transfer(f, out, f->block.host, lengths[i], &error));
        g_autoptr(FileIo) in = open_io(f, data, false);
        g_assert_true(transfer(f, in, copy, lengths[i], &error));
        g_assert_cmpmem(copy, SIZE, f->block.host, SIZE);
        g_assert_cmpint(lseek(f->fd, 0, SEEK_END), ==, 4096 + SIZE);
    }
}

static void test_round_trip(Fixture *f, gconstpointer data)
{
    round_trip(f, data, NULL);
}

static void test_disturbed(Fixture *f, gconstpointer data)
{
    round_trip(f, data, "file-io-eintr:1,file-io-eintr:2,file-io-short:1,file-io-short:2,file-io-eintr:4");
}

static void test_errors(Fixture *f, gconstpointer data)
{
    static const struct { const char *fault, *message; } cases[] = {
        { "file-io-enospc:1", "Unable to write page 0x0 of RAM block 'm0' at offset 0x1000 of the file: "
                              "No space left on device" },
        { "file-io-eio:1", "Unable to write page 0x0 of RAM block 'm0' at offset 0x1000 of the file: "
                           "Input/output error" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(FileIo) io = open_io(f, data, true);
        FileIoRequest r = { f->block.host, 4096, 4096, &f->block, 0 };
        if (!io) {
            return;
        }
        fault_configure(cases[i].fault, NULL);
        g_assert_true(file_io_submit(io, &r, &error));
        g_assert_false(file_io_drain(io, &error));
        g_assert_cmpstr(error->message, ==, cases[i].message);
        /* It sticks. */
        g_assert_false(file_io_submit(io, &r, NULL));
        fault_configure(NULL, NULL);
    }
}

static void test_end_of_file(Fixture *f, gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(FileIo) io = open_io(f, data, false);
    FileIoRequest r = { f->block.host, 8192, 4096, &f->block, 0 };

    if (!io) {
        return;
    }
    /* The first page is there, the second is not. */
    g_assert_cmpint(ftruncate(f->fd, 8192), ==, 0);
    g_assert_true(file_io_submit(io, &r, &error));
    g_assert_false(file_io_drain(io, &error));
    g_assert_cmpstr(error->message, ==,
                    "Unable to read page 0x1000 of RAM block 'm0' from offset 0x2000 of the file: "
                    "Unexpected end-of-file before all data were read");
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_EOF);
}

static void test_nonblock(Fixture *f, gconstpointer data)
{
    FileIoConfig config = { .fd = f->fd, .write = true };

    /* io_uring would fail where it has to wait: the threads do it. */
    g_assert_cmpint(fcntl(f->fd, F_SETFL, O_NONBLOCK), ==, 0);
    g_autoptr(FileIo) io = file_io_new(&config, NULL);
    g_assert_cmpstr(file_io_backend(io), ==, "threads");
    g_assert_true(transfer(f, io, f->block.host, 1024 * KIB, NULL));
}

static void add(const char *name, void (*func)(Fixture *, gconstpointer))
{
    g_autofree char *uring = g_strdup_printf("/file-io/io_uring/%s", name);
    g_autofree char *threads = g_strdup_printf("/file-io/threads/%s", name);

    g_test_add(uring, Fixture, GINT_TO_POINTER(FILE_IO_URING), set_up, func, tear_down);
    g_test_add(threads, Fixture, GINT_TO_POINTER(FILE_IO_THREADS), set_up, func, tear_down);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add("round-trip", test_round_trip);
    if (fault_points()[0]) {        /* not in a release build */
        add("disturbed", test_disturbed);
        add("errors", test_errors);
    }
    add("end-of-file", test_end_of_file);
    g_test_add("/file-io/nonblock", Fixture, NULL, set_up, test_nonblock, tear_down);
    return g_test_run();
}
