/* SPDX-License-Identifier: BSD-2-Clause */
/* Guests saved to mapped-ram files and restored from them, two VMs in one process; the file byte by byte. */
#include "pair.h"
#include "util/be.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB (1024 * 1024ull)
#define PAGE 4096ull

typedef struct Mode {
    unsigned save_channels, load_channels;      /* 0: without multifd */
    bool save_direct, load_direct;
    uint64_t offset;
    const char *fault;
} Mode;

static const Mode modes[] = {
    { 0, 0, false, false, 0, NULL },       { 1, 0, false, false, 4096, NULL },
    { 0, 8, true, true, 0x11921, NULL },   { 8, 1, false, true, 0, NULL },
    { 2, 2, true, false, 0x11921, NULL },  { 2, 2, true, true, 0, NULL },
    /* The pool of threads takes over where io_uring is refused. */
    { 0, 2, false, true, 0, "file-io-uring:1,file-io-uring:2,file-io-uring:3,file-io-uring:4" },
    { 2, 0, true, false, 0, "file-io-uring:1,file-io-uring:2,file-io-uring:3,file-io-uring:4" },
    /* The kernel may do less than it was asked for, or nothing. */
    { 0, 0, false, false, 0, "file-io-short:1,file-io-short:3,file-io-eintr:2,file-io-eintr:5" },
    { 2, 2, true, true, 0, "file-io-short:1,file-io-short:7,file-io-eintr:2,file-io-eintr:9" },
};

static char *file_path(void)
{
    static unsigned n;
    return g_strdup_printf("%s/image%u", test_directory(), n++);
}

static void set_mode(Vm *vm, unsigned channels, bool direct)
{
    vm_set_capability(vm, MIGRATION_CAPABILITY_MAPPED_RAM, true);
    vm_set_parameter(vm, "direct-io", direct ? "on" : "off");
    if (channels) {
        g_autofree char *text = g_strdup_printf("%u", channels);
        vm_set_parameter(vm, "multifd-channels", text);
        vm_set_capability(vm, MIGRATION_CAPABILITY_MULTIFD, true);
    }
}

static void save(Vm *src, const char *uri)
{
    pair_migrate(src, uri);
    g_assert_cmpint(vm_wait_end(src), ==, MIGRATION_STATUS_COMPLETED);
}

static void load(Vm *dst, const char *uri)
{
    pair_listen(dst, uri, true);
    vm_wait_incoming_ended(dst);
    g_assert_cmpstr(dst->host.ended_error, ==, NULL);
    g_assert_cmpint(vm_status(dst), ==, MIGRATION_STATUS_COMPLETED);
}

/* Some zero pages: single ones, a run, and the last one of the block. */
static void clear_some(Vm *vm)
{
    uint8_t *host = vm->block->host;
    uint64_t last = vm->block->used_length - PAGE;

    memset(host + 3 * PAGE, 0, PAGE);
    memset(host + 5 * PAGE, 0, PAGE);
    memset(host + 1 * MIB, 0, 2 * MIB + PAGE);
    memset(host + last, 0, PAGE);
}

static void test_mode(gconstpointer data)
{
    const Mode *mode = data;
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s,offset=%" G_GUINT64_FORMAT, path, mode->offset);
    Vm src, dst;

    /* Not a multiple of 64 pages. */
    pair_init(&src, &dst, 16 * MIB + 3 * PAGE);
    clear_some(&src);
    set_mode(&src, mode->save_channels, mode->save_direct);
    set_mode(&dst, mode->load_channels, mode->load_direct);
    memset(dst.block->host, 0xa5, dst.block->used_length);
    fault_configure(mode->fault, NULL);
    save(&src, uri);
    load(&dst, uri);
    fault_configure(NULL, NULL);
    assert_same_ram(&src, &dst);
    pair_clear(&src, &dst);
}

/* A guest that writes meanwhile: many rounds, pages rewritten in place. */
static void test_live(gconstpointer data)
{
    const Mode *mode = data;
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s", path);
    Vm src, dst;
    Writer w;

    pair_init(&src, &dst, 16 * MIB + 3 * PAGE);
    clear_some(&src);
    set_mode(&src, mode->save_channels, mode->save_direct);
    set_mode(&dst, mode->load_channels, mode->load_direct);
    vm_set_parameter(&src, "max-bandwidth", "32M");
    vm_set_parameter(&src, "downtime-limit", "20");
    writer_start(&w, &src, 200);
    pair_migrate(&src, uri);
    run_main_loop(1000);
    vm_set_parameter(&src, "downtime-limit", "10000");
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_COMPLETED);
    writer_stop(&w);
    load(&dst, uri);
    assert_same_ram(&src, &dst);

    struct stat st;
    g_assert_cmpint(stat(path, &st), ==, 0);
    /* RAM, its bitmap, the alignment of one block, and the stream around it. */
    g_assert_cmpint(st.st_size, <=, 16 * MIB + 3 * PAGE + 520 + MIB + 64 * 1024);
    pair_clear(&src, &dst);
}

/* ---- the file ---- */

static uint8_t *read_file(const char *path, size_t *size)
{
    char *content;

    g_assert_true(g_file_get_contents(path, &content, size, NULL));
    return (uint8_t *)content;
}

static uint8_t *find(const uint8_t *file, size_t size, const char *text)
{
    uint8_t *at = memmem(file, size, text, strlen(text));

    g_assert_nonnull(at);
    return at;
}

/* Every field of the header where and as the format says; bits and pages for the pages that have content. */
static void test_layout(void)
{
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s,offset=0x1234", path);
    static const unsigned pages[] = { 1, 3, 4, 5, 200, 511 };
    Vm src;

    g_assert_true(g_file_set_contents(path, "before", 6, NULL));
    vm_init(&src, 2 * MIB, false);
    set_mode(&src, 0, false);
    for (size_t i = 0; i < G_N_ELEMENTS(pages); i++) {
        memset(src.block->host + pages[i] * PAGE, (int)i + 1, PAGE);
    }
    save(&src, uri);

    size_t size;
    g_autofree uint8_t *file = read_file(path, &size);
    g_assert_cmpmem(file, 6, "before", 6);
    g_assert_cmpmem(file + 0x1234, 8, "QEVM\0\0\0\3", 8);
    const uint8_t *header = find(file, 0x2000, "\2m0") + 3;
    g_assert_cmphex(load_be64(header), ==, 2 * MIB);
    header += 8;
    uint64_t bitmap = (uint64_t)(header + 28 - file);
    g_assert_cmpuint(load_be32(header), ==, 1);
    g_assert_cmpuint(load_be64(header + 4), ==, 4096);
    g_assert_cmphex(load_be64(header + 12), ==, bitmap);
    g_assert_cmphex(load_be64(header + 20), ==, 0x100000);
    /* Pages 1, 3, 4, 5; bit 200; bit 511. */
    uint8_t expected[64] = { 0x3a };
    expected[25] = 0x01;
    expected[63] = 0x80;
    g_assert_cmpmem(file + bitmap, 64, expected, 64);
    g_assert_cmpmem(file + 0x100000, 2 * MIB, src.block->host, 2 * MIB);
    /* The stream goes on right behind the pages: EOS and the footer of START. */
    g_assert_cmpmem(file + 0x300000, 9, "\0\0\0\0\0\0\0\x10\x7e", 9);
    vm_clear(&src);
}

static uint64_t allocated(const char *path)
{
    struct stat st;

    g_assert_cmpint(stat(path, &st), ==, 0);
    return (uint64_t)st.st_blocks * 512;
}

/* Pages that had data in the first round and are zero in a later one leave nothing in the file. */
static void test_turned_zero(gconstpointer data)
{
    const Mode *mode = data;
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s", path);
    Vm src, dst;

    pair_init(&src, &dst, 16 * MIB);
    set_mode(&src, mode->save_channels, mode->save_direct);
    set_mode(&dst, mode->load_channels, mode->load_direct);
    vm_set_capability(&src, MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER, true);
    vm_set_parameter(&src, "downtime-limit", "0");      /* all that is dirty is sent before */
    pair_migrate(&src, uri);
    vm_wait_status(&src, MIGRATION_STATUS_PRE_SWITCHOVER);
    g_autofree uint8_t *zeroes = g_malloc0(6 * MIB);
    fake_host_write(&src.host, src.block, 4 * MIB, zeroes, 6 * MIB);
    fake_host_write(&src.host, src.block, 2 * PAGE, zeroes, PAGE);
    g_assert_true(migration_continue(src.ctx, MIGRATION_STATUS_PRE_SWITCHOVER, NULL));
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_COMPLETED);

    size_t size;
    g_autofree uint8_t *file = read_file(path, &size);
    g_assert_cmpmem(file + 0x100000, 16 * MIB, src.block->host, 16 * MIB);
    g_assert_cmpuint(allocated(path), <, 10 * MIB + 512 * 1024);
    memset(dst.block->host, 0x5a, dst.block->used_length);
    load(&dst, uri);
    assert_same_ram(&src, &dst);
    pair_clear(&src, &dst);
}

/* ---- failures ---- */

static void test_failing_write(gconstpointer data)
{
    const char *fault = data;
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s", path);
    Vm src, dst;

    pair_init(&src, &dst, 16 * MIB);
    set_mode(&src, g_str_has_suffix(fault, ":9") ? 2 : 0, false);
    set_mode(&dst, 0, false);
    fault_configure(fault, NULL);
    pair_migrate(&src, uri);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    fault_configure(NULL, NULL);
    pair_assert_runs_on(&src);

    /* What is left is no guest. */
    memset(dst.block->host, 0x5a, dst.block->used_length);
    pair_listen(&dst, uri, true);
    vm_wait_incoming_ended(&dst);
    g_assert_nonnull(dst.host.ended_error);
    for (uint64_t i = 0; i < dst.block->used_length; i++) {
        g_assert_cmphex(dst.block->host[i], ==, 0x5a);
    }
    pair_clear(&src, &dst);
}

static void test_failing_read(void)
{
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s", path);
    Vm src, dst;

    pair_init(&src, &dst, 16 * MIB);
    set_mode(&src, 0, false);
    set_mode(&dst, 0, false);
    save(&src, uri);
    fault_configure("file-io-eio:3", NULL);
    pair_listen(&dst, uri, true);
    vm_wait_incoming_ended(&dst);
    fault_configure(NULL, NULL);
    g_assert_nonnull(strstr(dst.host.ended_error, "Unable to read page 0x"));
    g_assert_nonnull(strstr(dst.host.ended_error, "of RAM block 'm0' from offset 0x"));
    g_assert_nonnull(strstr(dst.host.ended_error, "of the file: Input/output error"));
    pair_clear(&src, &dst);
}

/* Cut anywhere, the file is refused. */
static void test_truncated(void)
{
    static const off_t lengths[] = {
        0, 3, 0x60, 0x90, 0xa0, 0x100000, 0x4ff000, 0x500000, 0x50000d, 0x500010,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        g_autofree char *path = file_path();
        g_autofree char *uri = g_strdup_printf("file:%s", path);
        Vm src, dst;

        pair_init(&src, &dst, 4 * MIB);
        set_mode(&src, 0, false);
        set_mode(&dst, 0, false);
        save(&src, uri);
        g_assert_cmpint(truncate(path, lengths[i]), ==, 0);
        memset(dst.block->host, 0x5a, dst.block->used_length);
        pair_listen(&dst, uri, true);
        vm_wait_incoming_ended(&dst);
        g_assert_nonnull(dst.host.ended_error);
        for (uint64_t at = 0; at < dst.block->used_length; at++) {
            g_assert_cmphex(dst.block->host[at], ==, 0x5a);
        }
        pair_clear(&src, &dst);
    }
}

/* Cancelled while it waits for its bandwidth: at once, and it can be saved again. */
static void test_cancel(gconstpointer data)
{
    const Mode *mode = data;
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s", path);
    Vm src, dst;

    pair_init(&src, &dst, 64 * MIB);
    set_mode(&src, mode->save_channels, mode->save_direct);
    set_mode(&dst, mode->load_channels, mode->load_direct);
    vm_set_parameter(&src, "max-bandwidth", "1M");
    pair_migrate(&src, uri);
    run_main_loop(200);
    g_assert_true(migration_cancel(src.ctx, NULL));
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_CANCELLED);
    pair_assert_runs_on(&src);
    vm_set_parameter(&src, "max-bandwidth", "0");
    save(&src, uri);
    load(&dst, uri);
    assert_same_ram(&src, &dst);
    pair_clear(&src, &dst);
}

static void test_fsync(void)
{
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s", path);
    Vm src;

    vm_init(&src, 4 * MIB, false);
    vm_fill_random(&src, 3);
    set_mode(&src, 0, false);
    vm_set_parameter(&src, "x-file-fsync", "on");
    fault_configure("migration-file-sync:1", NULL);
    pair_migrate(&src, uri);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    fault_configure(NULL, NULL);
    pair_assert_runs_on(&src);
    save(&src, uri);
    vm_clear(&src);
}

/* ---- lazy ---- */

static bool has_userfaultfd(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(dir))) {
        g_autofree char *path = g_build_filename("/proc/self/fd", name, NULL);
        g_autofree char *target = g_file_read_link(path, NULL);
        if (target && strstr(target, "userfaultfd")) {
            return true;
        }
    }
    return false;
}

static bool can_userfaultfd(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

/* A guest at the destination that looks at its memory as soon as it runs, from the end to the start. */
typedef struct Toucher {
    Vm *vm, *src;
    GThread *thread;
    uint64_t wrong;
} Toucher;

static gpointer touch(gpointer opaque)
{
    Toucher *t = opaque;

    while (fake_host_state(&t->vm->host) == RUN_STATE_INMIGRATE) {
        g_usleep(100);
    }
    for (uint64_t at = t->vm->block->used_length; at; at -= PAGE) {
        t->wrong += memcmp(t->vm->block->host + at - PAGE, t->src->block->host + at - PAGE, PAGE) != 0;
    }
    return NULL;
}

static void init_lazy(Vm *src, Vm *dst, const char *uri, const Mode *mode)
{
    pair_init(src, dst, 64 * MIB + 3 * PAGE);
    clear_some(src);
    set_mode(src, 0, false);
    save(src, uri);
    set_mode(dst, mode->load_channels, mode->load_direct);
    vm_set_parameter(dst, "x-mapped-ram-lazy", "on");
    vm_set_capability(dst, MIGRATION_CAPABILITY_EVENTS, true);
    memset(dst->block->host, 0x5a, dst->block->used_length);
}

static void test_lazy(gconstpointer data)
{
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s", path);
    Vm src, dst;

    if (!can_userfaultfd()) {
        g_test_skip("userfaultfd is not permitted here");
        return;
    }
    init_lazy(&src, &dst, uri, data);
    Toucher toucher = { .vm = &dst, .src = &src };
    toucher.thread = g_thread_new("toucher", touch, &toucher);
    load(&dst, uri);
    g_thread_join(toucher.thread);
    g_assert_cmpuint(toucher.wrong, ==, 0);
    assert_same_ram(&src, &dst);
    assert_events(&dst, "setup active RESUME postcopy-active completed");
    g_assert_false(has_userfaultfd());
    g_autoptr(MigrationInfo) info = migration_query(dst.ctx);
    g_assert_true(info->x_file->lazy);
    g_assert_cmpuint(info->x_file->pages_left, ==, 0);
    pair_clear(&src, &dst);
}

/* Where it cannot be done everything is read first. */
static void test_lazy_fallback(void)
{
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s", path);
    Vm src, dst;

    init_lazy(&src, &dst, uri, &modes[0]);
    fault_configure("mapped-ram-lazy-start:1", NULL);
    load(&dst, uri);
    fault_configure(NULL, NULL);
    assert_same_ram(&src, &dst);
    g_autofree char *log = fake_host_log(&dst.host);
    g_assert_nonnull(strstr(log, "x-mapped-ram-lazy: all memory is read before the guest runs: "));
    assert_events(&dst, "setup active RESUME completed");
    pair_clear(&src, &dst);
}

/* A page that cannot be read: the guest is stopped for good, nobody waits for ever, the VM lives. */
static void test_lazy_failing(void)
{
    g_autofree char *path = file_path();
    g_autofree char *uri = g_strdup_printf("file:%s", path);
    g_autoptr(GError) error = NULL;
    Vm src, dst;

    if (!can_userfaultfd()) {
        g_test_skip("userfaultfd is not permitted here");
        return;
    }
    init_lazy(&src, &dst, uri, &modes[0]);
    fault_configure("mapped-ram-lazy-read:20", NULL);
    Toucher toucher = { .vm = &dst, .src = &src };
    toucher.thread = g_thread_new("toucher", touch, &toucher);
    pair_listen(&dst, uri, true);
    vm_wait_status(&dst, MIGRATION_STATUS_FAILED);
    g_thread_join(toucher.thread);
    fault_configure(NULL, NULL);
    run_main_loop(20);
    g_assert_false(dst.host.ended);
    g_assert_cmpint(fake_host_state(&dst.host), ==, RUN_STATE_INTERNAL_ERROR);
    g_assert_false(migration_allows_start(dst.ctx, &error));
    g_autoptr(MigrationInfo) info = migration_query(dst.ctx);
    g_assert_nonnull(strstr(info->error_desc, "Unable to read page 0x"));
    g_assert_nonnull(strstr(info->error_desc, "of RAM block 'm0' from offset 0x"));
    g_assert_nonnull(strstr(info->error_desc, "of the file: Input/output error"));
    g_assert_false(has_userfaultfd());
    pair_clear(&src, &dst);
}

static void add_modes(const char *name, GTestDataFunc func, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        const Mode *m = &modes[i];
        g_autofree char *path = g_strdup_printf("/mapped-ram/%s/%zu-%u%s-%u%s", name, i, m->save_channels,
                                                m->save_direct ? "d" : "", m->load_channels,
                                                m->load_direct ? "d" : "");
        g_test_add_data_func(path, m, func);
    }
}

int main(int argc, char **argv)
{
    static const char *const faults[] = { "file-io-enospc:1", "file-io-eio:3",  "file-io-enospc:9",
                                          "file-io-eio:9",    "mapped-ram-bitmap:1", "channel-pwrite:1" };

    g_test_init(&argc, &argv, NULL);
    bool can_fail = fault_points()[0];      /* not in a release build */
    add_modes("mode", test_mode, 0, can_fail ? G_N_ELEMENTS(modes) : 6);
    add_modes("live", test_live, 0, 6);
    add_modes("turned-zero", test_turned_zero, 0, 6);
    add_modes("cancel", test_cancel, 0, 2);
    add_modes("lazy", test_lazy, 0, 4);
    g_test_add_func("/mapped-ram/layout", test_layout);
    g_test_add_func("/mapped-ram/truncated", test_truncated);
    for (size_t i = 0; can_fail && i < G_N_ELEMENTS(faults); i++) {
        g_autofree char *path = g_strdup_printf("/mapped-ram/failing-write/%s", faults[i]);
        g_test_add_data_func(path, faults[i], test_failing_write);
    }
    if (can_fail) {
        g_test_add_func("/mapped-ram/lazy-fallback", test_lazy_fallback);
        g_test_add_func("/mapped-ram/lazy-failing", test_lazy_failing);
        g_test_add_func("/mapped-ram/failing-read", test_failing_read);
        g_test_add_func("/mapped-ram/fsync", test_fsync);
    }
    return g_test_run();
}
