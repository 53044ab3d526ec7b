/* SPDX-License-Identifier: BSD-2-Clause */
/* Virtio devices against a driver that is written from the specification, well-behaved and not. */
#include "virtio-driver.h"

#include "chardev-peer.h"
#include "io/transport.h"
#include "migration/vmstate.h"
#include "stream-builder.h"
#include "util/bitmap.h"
#include "util/error.h"

#include <fcntl.h>
#include <glib/gstdio.h>

/* ---- what the tests use ---- */

static void set_up_rng(Driver *d, gconstpointer data)
{
    driver_new(d);
    driver_attach(d, virtio_rng_new(d->m));
}

#define DISK_SECTORS 64u

/* A file whose byte n of sector s is s + n. */
static char *disk_new(void)
{
    g_autofree uint8_t *bytes = g_malloc(DISK_SECTORS * 512);
    char *path = g_strdup("/tmp/test-virtio-XXXXXX");
    int fd = g_mkstemp(path);

    g_assert_cmpint(fd, >=, 0);
    for (unsigned i = 0; i < DISK_SECTORS * 512; i++) {
        bytes[i] = (uint8_t)(i / 512 + i % 512);
    }
    g_assert_cmpint(write(fd, bytes, DISK_SECTORS * 512), ==, (ssize_t)(DISK_SECTORS * 512));
    close(fd);
    return path;
}

static void disk_free(char *path)
{
    g_unlink(path);
    g_free(path);
}

typedef struct Disk {
    Driver d;
    char *path;
} Disk;

static void set_up_blk(Disk *f, gconstpointer data)
{
    f->path = disk_new();
    driver_new(&f->d);
    const VirtioBlkConfig config = {
        .id = "disk0", .file = f->path, .serial = "0123456789abcdefghijkl", .readonly = GPOINTER_TO_INT(data),
    };
    g_autoptr(GError) error = NULL;
    VirtioDevice *v = virtio_blk_new(f->d.m, &config, &error);
    g_assert_no_error(error);
    driver_attach(&f->d, v);
}

static void tear_down_blk(Disk *f, gconstpointer data)
{
    driver_free(&f->d);
    disk_free(f->path);
}

static void tear_down_rng(Driver *d, gconstpointer data)
{
    driver_free(d);
}

static bool is_dirty(Driver *d, const uint64_t *bitmap, uint64_t gpa)
{
    return bitmap_test(bitmap, (gpa - DRIVER_GPA) / 4096);
}

static uint64_t *dirty_pages(Driver *d)
{
    uint64_t *bitmap = bitmap_new(DRIVER_MEMORY / 4096), new_dirty = 0;
    g_autoptr(GError) error = NULL;

    g_assert_true(dirty_log_sync(&d->m->dirty_log, &d->block, 0, DRIVER_MEMORY / 4096, bitmap, &new_dirty,
                                 &error));
    return bitmap;
}

/* ---- registers ---- */

static void test_registers(Driver *d, gconstpointer data)
{
    g_assert_cmphex(driver_get(d, 0x00), ==, 0x74726976);
    g_assert_cmphex(driver_get(d, 0x04), ==, 2);
    g_assert_cmphex(driver_get(d, 0x08), ==, 4);
    driver_put(d, 0x14, 0);
    g_assert_cmphex(driver_get(d, 0x10), ==, 0);
    driver_put(d, 0x14, 1);
    g_assert_cmphex(driver_get(d, 0x10), ==, 1);    /* VIRTIO_F_VERSION_1 is bit 32 */
    driver_put(d, 0x14, 2);
    g_assert_cmphex(driver_get(d, 0x10), ==, 0);
    driver_put(d, 0x30, 0);
    g_assert_cmpuint(driver_get(d, 0x34), ==, 64);
    driver_put(d, 0x30, 1);
    g_assert_cmpuint(driver_get(d, 0x34), ==, 0);   /* there is no second queue */
    driver_put(d, 0x30, UINT32_MAX);
    g_assert_cmpuint(driver_get(d, 0x34), ==, 0);
    g_assert_cmphex(driver_get(d, 0xb0), ==, UINT32_MAX);   /* no shared memory: length -1 */
    g_assert_cmphex(driver_get(d, 0xb4), ==, UINT32_MAX);
    g_assert_cmphex(driver_get(d, 0xfc), ==, 0);
    /* Registers are 32 bits wide and have no parts. */
    g_assert_cmphex(virtio_mmio_read(d->v, 0, 1), ==, 0);
    g_assert_cmphex(virtio_mmio_read(d->v, 2, 4), ==, 0);
    virtio_mmio_write(d->v, 0x70, 1, 1);
    g_assert_cmphex(driver_get(d, 0x70), ==, 0);
}

static void test_negotiation(Driver *d, gconstpointer data)
{
    /* Without VIRTIO_F_VERSION_1 there is no agreement. */
    driver_put(d, 0x70, 1);
    driver_put(d, 0x70, 3);
    driver_put(d, 0x70, 3 | 8);
    g_assert_cmphex(driver_get(d, 0x70), ==, 3);
    /* Nor with a feature that was not offered. */
    driver_put(d, 0x24, 1);
    driver_put(d, 0x20, 1);
    driver_put(d, 0x24, 0);
    driver_put(d, 0x20, 1 << 5);
    driver_put(d, 0x70, 3 | 8);
    g_assert_cmphex(driver_get(d, 0x70), ==, 3);
    /* And no start without agreement. */
    driver_put(d, 0x70, 3 | 4);
    g_assert_cmphex(driver_get(d, 0x70), ==, 3);
    driver_put(d, 0x20, 0);
    driver_put(d, 0x70, 3 | 8);
    g_assert_cmphex(driver_get(d, 0x70), ==, 3 | 8);
    /* What has been agreed on is fixed. */
    driver_put(d, 0x20, 0xff);
    driver_put(d, 0x70, 3 | 8 | 4);
    g_assert_cmphex(driver_get(d, 0x70), ==, 3 | 8 | 4);
    g_assert_cmphex(d->v->state.driver_features, ==, UINT64_C(1) << 32);
    driver_put(d, 0x70, 0);
    g_assert_cmphex(driver_get(d, 0x70), ==, 0);
}

/* ---- rng, and with it the queue ---- */

static void test_rng(Driver *d, gconstpointer data)
{
    driver_start(d);
    g_assert_true(dirty_log_start(&d->m->dirty_log, &d->m->ram, NULL));
    driver_describe(d, 3, DRIVER_DATA + 4090, 64, D_WRITE | D_NEXT, 7);
    driver_describe(d, 7, DRIVER_DATA + 0x5000, 64, D_WRITE, 0);
    driver_offer(d, 3);
    g_assert_cmpuint(driver_used(d), ==, 0);
    driver_notify(d);
    g_assert_cmpuint(driver_used(d), ==, 1);
    g_assert_cmpuint(driver_get_le(d, DRIVER_USED + 4, 4), ==, 3);
    g_assert_cmpuint(driver_get_le(d, DRIVER_USED + 8, 4), ==, 128);
    /* One of 2^512 fills leaves a buffer as it was. */
    uint8_t zeros[64] = { 0 };
    g_assert_true(memcmp(driver_at(d, DRIVER_DATA + 4090), zeros, 64) != 0);
    g_assert_true(memcmp(driver_at(d, DRIVER_DATA + 0x5000), zeros, 64) != 0);
    g_assert_cmpuint(driver_get_le(d, DRIVER_DATA + 4090 + 64, 8), ==, 0);

    g_autofree uint64_t *dirty = dirty_pages(d);
    g_assert_true(is_dirty(d, dirty, DRIVER_DATA) && is_dirty(d, dirty, DRIVER_DATA + 0x1000));
    g_assert_true(is_dirty(d, dirty, DRIVER_DATA + 0x5000) && is_dirty(d, dirty, DRIVER_USED));
    g_assert_false(is_dirty(d, dirty, DRIVER_DESC) || is_dirty(d, dirty, DRIVER_AVAILABLE));
    g_assert_false(is_dirty(d, dirty, DRIVER_DATA + 0x2000));
    dirty_log_stop(&d->m->dirty_log);

    g_assert_true(d->level);
    g_assert_cmpuint(driver_get(d, 0x60), ==, 1);
    driver_put(d, 0x64, 1);
    g_assert_cmpuint(driver_get(d, 0x60), ==, 0);
    g_assert_false(d->level);
}

/* The ring's index goes round, and the ring with it. */
static void test_wrap(Driver *d, gconstpointer data)
{
    driver_start(d);
    driver_describe(d, 0, DRIVER_DATA, 8, D_WRITE, 0);
    for (unsigned i = 1; i <= 70000; i++) {
        driver_offer(d, 0);
        driver_notify(d);
        g_assert_cmpuint(driver_used(d), ==, i & 0xffff);
    }
    g_assert_cmpuint(driver_get(d, 0x70), ==, 15);
}

static void test_no_interrupt(Driver *d, gconstpointer data)
{
    driver_start(d);
    driver_put_le(d, DRIVER_AVAILABLE, 1, 2);
    driver_describe(d, 0, DRIVER_DATA, 8, D_WRITE, 0);
    driver_offer(d, 0);
    driver_notify(d);
    g_assert_cmpuint(driver_used(d), ==, 1);
    g_assert_false(d->level);
    g_assert_cmpuint(driver_get(d, 0x60), ==, 0);
}

static void test_pause(Driver *d, gconstpointer data)
{
    driver_start(d);
    driver_describe(d, 0, DRIVER_DATA, 8, D_WRITE, 0);
    virtio_device_pause(d->v);
    driver_offer(d, 0);
    driver_offer(d, 0);
    driver_notify(d);
    g_assert_cmpuint(driver_used(d), ==, 0);
    g_assert_cmpuint(driver_get_le(d, DRIVER_DATA, 8), ==, 0);
    virtio_device_resume(d->v);
    g_assert_cmpuint(driver_used(d), ==, 2);
}

/* ---- guests that break the rules ---- */

static void loop(Driver *d)
{
    driver_describe(d, 0, DRIVER_DATA, 8, D_WRITE | D_NEXT, 1);
    driver_describe(d, 1, DRIVER_DATA, 8, D_WRITE | D_NEXT, 0);
    driver_offer(d, 0);
}

static void next_beyond(Driver *d)
{
    driver_describe(d, 0, DRIVER_DATA, 8, D_WRITE | D_NEXT, DRIVER_QUEUE);
    driver_offer(d, 0);
}

static void head_beyond(Driver *d)
{
    driver_offer(d, DRIVER_QUEUE);
}

static void too_many(Driver *d)
{
    driver_describe(d, 0, DRIVER_DATA, 8, D_WRITE, 0);
    driver_put_le(d, DRIVER_AVAILABLE + 2, DRIVER_QUEUE + 1, 2);
}

static void one_chain(Driver *d, uint64_t addr, uint32_t len, uint16_t flags)
{
    driver_describe(d, 0, addr, len, flags, 0);
    driver_offer(d, 0);
}

static void nowhere(Driver *d)
{
    one_chain(d, 0, 8, D_WRITE);
}

static void across_the_end(Driver *d)
{
    one_chain(d, DRIVER_GPA + DRIVER_MEMORY - 4, 8, D_WRITE);
}

static void around(Driver *d)
{
    one_chain(d, UINT64_MAX - 3, 8, D_WRITE);
}

static void too_long(Driver *d)
{
    one_chain(d, DRIVER_DATA, UINT32_MAX, D_WRITE);
}

static void indirect(Driver *d)
{
    one_chain(d, DRIVER_DATA, 32, D_INDIRECT);
}

static void read_behind_write(Driver *d)
{
    driver_describe(d, 0, DRIVER_DATA, 8, D_WRITE | D_NEXT, 1);
    driver_describe(d, 1, DRIVER_DATA + 8, 8, 0, 0);
    driver_offer(d, 0);
}

static void (*const breakers[])(Driver *d) = {
    loop, next_beyond, head_beyond, too_many, nowhere, across_the_end, around, too_long, indirect,
    read_behind_write,
};

static void test_broken(Driver *d, gconstpointer data)
{
    for (size_t i = 0; i < G_N_ELEMENTS(breakers); i++) {
        driver_start(d);
        breakers[i](d);
        g_autofree uint8_t *before = g_memdup2(d->block.host, DRIVER_MEMORY);
        driver_notify(d);
        g_assert_cmphex(driver_get(d, 0x70), ==, 15 | 64);
        g_assert_cmphex(driver_get(d, 0x60), ==, 2);
        g_assert_true(d->level);
        g_assert_cmpmem(d->block.host, DRIVER_MEMORY, before, DRIVER_MEMORY);
        /* It does nothing more, and says so until it is reset. */
        one_chain(d, DRIVER_DATA, 8, D_WRITE);
        driver_notify(d);
        driver_put(d, 0x70, 15);
        g_assert_cmphex(driver_get(d, 0x70), ==, 15 | 64);
        g_assert_cmpuint(driver_used(d), ==, 0);
        /* A reset mends it. */
        driver_start(d);
        g_assert_false(d->level);
        one_chain(d, DRIVER_DATA, 8, D_WRITE);
        driver_notify(d);
        g_assert_cmpuint(driver_used(d), ==, 1);
    }
}

static void test_bad_queues(Driver *d, gconstpointer data)
{
    static const struct {
        uint32_t size;
        uint64_t desc, available, used;
    } bad[] = {
        { 0, DRIVER_DESC, DRIVER_AVAILABLE, DRIVER_USED },
        { 12, DRIVER_DESC, DRIVER_AVAILABLE, DRIVER_USED },
        { 128, DRIVER_DESC, DRIVER_AVAILABLE, DRIVER_USED },
        { 65536 + 16, DRIVER_DESC, DRIVER_AVAILABLE, DRIVER_USED },
        { 16, DRIVER_DESC + 8, DRIVER_AVAILABLE, DRIVER_USED },
        { 16, DRIVER_DESC, DRIVER_AVAILABLE + 1, DRIVER_USED },
        { 16, DRIVER_DESC, DRIVER_AVAILABLE, DRIVER_USED + 2 },
        { 16, 0, DRIVER_AVAILABLE, DRIVER_USED },
        { 16, DRIVER_DESC, UINT64_MAX - 1, DRIVER_USED },
        { 16, DRIVER_DESC, DRIVER_AVAILABLE, DRIVER_GPA + DRIVER_MEMORY - 4 },
        { 16, DRIVER_DESC | UINT64_C(1) << 32, DRIVER_AVAILABLE, DRIVER_USED },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        driver_negotiate(d);
        driver_set_up_queue(d, 0, bad[i].size, bad[i].desc, bad[i].available, bad[i].used);
        g_assert_cmphex(driver_get(d, 0x70), ==, 11 | 64);
        g_assert_cmphex(driver_get(d, 0x44), ==, 0);
        driver_put(d, 0x70, 15);
        driver_notify(d);
    }
    /* A queue that is in use stays where it is. */
    driver_start(d);
    driver_put(d, 0x80, 0);
    driver_put(d, 0x38, 4);
    g_assert_cmphex(d->v->state.queues[0].desc, ==, DRIVER_DESC);
    g_assert_cmpuint(d->v->state.queues[0].size, ==, 16);
}

/* ---- block ---- */

#define HEADER (DRIVER_DATA)
#define STATUS (DRIVER_DATA + 0xf000)
#define BUFFER (DRIVER_DATA + 0x1000)

/* A request of three descriptors. */
static void blk_begin(Driver *d, uint32_t type, uint64_t sector, uint32_t len, bool write)
{
    driver_put_le(d, HEADER, type, 4);
    driver_put_le(d, HEADER + 4, 0, 4);
    driver_put_le(d, HEADER + 8, sector, 8);
    driver_put_le(d, STATUS, 0xff, 1);
    driver_describe(d, 0, HEADER, 16, D_NEXT, len ? 1 : 2);
    driver_describe(d, 1, BUFFER, len, D_NEXT | (write ? 0 : D_WRITE), 2);
    driver_describe(d, 2, STATUS, 1, D_WRITE, 0);
    driver_offer(d, 0);
    driver_notify(d);
}

/* Its status byte. */
static unsigned blk_end(Driver *d)
{
    driver_wait_used(d, d->available & 0xffff);
    return (unsigned)driver_get_le(d, STATUS, 1);
}

static unsigned blk(Driver *d, uint32_t type, uint64_t sector, uint32_t len, bool write)
{
    blk_begin(d, type, sector, len, write);
    return blk_end(d);
}

static void file_bytes(const Disk *f, uint64_t offset, void *to, size_t len)
{
    FILE *file = fopen(f->path, "r");
    g_assert_nonnull(file);
    g_assert_cmpint(fseek(file, (long)offset, SEEK_SET), ==, 0);
    g_assert_cmpuint(fread(to, 1, len, file), ==, len);
    fclose(file);
}

static void test_blk_config(Disk *f, gconstpointer data)
{
    static const uint8_t golden[24] = {
        64, 0, 0, 0, 0, 0, 0, 0,    /* capacity, in sectors */
        0, 0, 1, 0,                 /* size_max 65536 */
        254, 0, 0, 0,               /* seg_max */
        0, 0, 0, 0,                 /* no geometry */
        0, 2, 0, 0,                 /* block size 512 */
    };
    Driver *d = &f->d;
    uint8_t bytes[24];

    g_assert_cmphex(driver_get(d, 0x08), ==, 2);
    driver_put(d, 0x14, 0);
    g_assert_cmphex(driver_get(d, 0x10), ==, 1 << 1 | 1 << 2 | 1 << 6 | 1 << 9);
    driver_put(d, 0x30, 0);
    g_assert_cmpuint(driver_get(d, 0x34), ==, 256);
    for (unsigned i = 0; i < 24; i++) {
        bytes[i] = (uint8_t)virtio_mmio_read(d->v, 0x100 + i, 1);
    }
    g_assert_cmpmem(bytes, 24, golden, 24);
    g_assert_cmphex(virtio_mmio_read(d->v, 0x100, 8), ==, 64);
    g_assert_cmphex(driver_get(d, 0x108), ==, 65536);
    g_assert_cmphex(driver_get(d, 0x115), ==, 2);   /* across the end of what is there: 02 00 */
    g_assert_cmphex(driver_get(d, 0xffc), ==, 0);
}

/* A guest is told how large its disk is: a destination with another one has to know. */
static void test_blk_section(Disk *f, gconstpointer data)
{
    static const uint8_t golden[] = { 0, 0, 0, 0, 0, 0, 0, 64 }, other[] = { 0, 0, 0, 0, 0, 0, 0, 65 };
    Driver *d = &f->d;
    const VMStateDescription *vmsd = d->v->kind_entry.vmsd;
    g_autoptr(GError) error = NULL;

    virtio_device_pause(d->v);
    g_autoptr(Channel) out = channel_buffer_new(NULL, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(out);
    g_assert_true(vmstate_save(w, vmsd, d->v, NULL, &error));
    g_assert_true(stream_flush(w, &error));
    const GByteArray *bytes = channel_buffer_bytes(out);
    g_assert_cmpmem(bytes->data, bytes->len, golden, sizeof(golden));

    g_autoptr(Channel) same = channel_buffer_new(golden, sizeof(golden));
    g_autoptr(StreamReader) r = stream_reader_new(same);
    g_assert_true(vmstate_load(r, vmsd, d->v, 1, &error));
    g_autoptr(Channel) in = channel_buffer_new(other, sizeof(other));
    g_autoptr(StreamReader) refused = stream_reader_new(in);
    g_assert_false(vmstate_load(refused, vmsd, d->v, 1, &error));
    g_assert_nonnull(strstr(error->message, "65 sectors"));
}

static void test_blk_read_write(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;
    uint8_t bytes[1024];

    driver_start(d);
    g_assert_cmpuint(blk(d, 0, 5, 1024, false), ==, 0);
    for (unsigned i = 0; i < 1024; i++) {
        g_assert_cmpuint(driver_at(d, BUFFER)[i], ==, (5 + i / 512 + i % 512) & 0xff);
    }
    g_assert_cmpuint(driver_get_le(d, DRIVER_USED + 8, 4), ==, 1025);
    memset(driver_at(d, BUFFER), 0xa5, 1024);
    g_assert_cmpuint(blk(d, 1, 62, 1024, true), ==, 0);
    file_bytes(f, 62 * 512, bytes, 1024);
    for (unsigned i = 0; i < 1024; i++) {
        g_assert_cmpuint(bytes[i], ==, 0xa5);
    }
    file_bytes(f, 61 * 512, bytes, 512);
    g_assert_cmpuint(bytes[511], ==, (61 + 511) & 0xff);
    g_assert_cmpuint(blk(d, 4, 0, 0, true), ==, 0);
    /* 20 bytes of the serial number, which may be without an end. */
    g_assert_cmpuint(blk(d, 8, 0, 20, false), ==, 0);
    g_assert_cmpmem(driver_at(d, BUFFER), 20, "0123456789abcdefghij", 20);
    g_assert_cmpuint(blk(d, 0x1234, 0, 512, false), ==, 2);
    g_assert_cmphex(driver_get(d, 0x70), ==, 15);
}

static void test_blk_out_of_range(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;

    driver_start(d);
    g_assert_cmpuint(blk(d, 0, 64, 512, false), ==, 1);
    g_assert_cmpuint(blk(d, 0, 63, 1024, false), ==, 1);
    g_assert_cmpuint(blk(d, 1, UINT64_MAX, 512, true), ==, 1);
    g_assert_cmpuint(blk(d, 1, UINT64_MAX / 512 + 1, 512, true), ==, 1);
    g_assert_cmpuint(blk(d, 0, 0, 511, false), ==, 1);
    g_assert_cmpuint(blk(d, 0, 63, 512, false), ==, 0);
    struct stat st;
    g_assert_cmpint(stat(f->path, &st), ==, 0);
    g_assert_cmpuint(st.st_size, ==, DISK_SECTORS * 512);
}

/* No rule says where one descriptor ends and the next begins. */
static void test_blk_framing(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;

    driver_start(d);
    g_assert_true(dirty_log_start(&d->m->dirty_log, &d->m->ram, NULL));
    driver_put_le(d, HEADER, 0, 8);
    driver_put_le(d, HEADER + 8, 9, 8);
    driver_describe(d, 0, HEADER, 5, D_NEXT, 1);
    driver_describe(d, 1, HEADER + 5, 0, D_NEXT, 2);
    driver_describe(d, 2, HEADER + 5, 11, D_NEXT, 3);
    driver_describe(d, 3, BUFFER + 0xfff, 3, D_NEXT | D_WRITE, 4);
    driver_describe(d, 4, BUFFER + 0x4000, 510, D_WRITE, 0);
    driver_offer(d, 0);
    driver_notify(d);
    driver_wait_used(d, 1);
    /* 512 bytes of the sector, then the result. */
    g_assert_cmpuint(driver_get_le(d, DRIVER_USED + 8, 4), ==, 513);
    for (unsigned i = 0; i < 512; i++) {
        uint8_t byte = i < 3 ? driver_at(d, BUFFER + 0xfff)[i] : driver_at(d, BUFFER + 0x4000)[i - 3];
        g_assert_cmpuint(byte, ==, (9 + i) & 0xff);
    }
    g_assert_cmpuint(driver_get_le(d, BUFFER + 0x4000 + 509, 1), ==, 0);
    g_autofree uint64_t *dirty = dirty_pages(d);
    g_assert_true(is_dirty(d, dirty, BUFFER) && is_dirty(d, dirty, BUFFER + 0x1000));
    g_assert_true(is_dirty(d, dirty, BUFFER + 0x4000) && is_dirty(d, dirty, DRIVER_USED));
    g_assert_false(is_dirty(d, dirty, HEADER));
    dirty_log_stop(&d->m->dirty_log);
}

static void test_blk_no_header(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;

    for (unsigned i = 0; i < 2; i++) {
        driver_start(d);
        driver_describe(d, 0, HEADER, i ? 16 : 15, i ? 0 : D_NEXT, 1);
        driver_describe(d, 1, STATUS, 1, D_WRITE, 0);
        driver_offer(d, 0);
        driver_notify(d);
        while (!(driver_get(d, 0x70) & 64)) {
            g_usleep(100);
        }
        g_assert_cmpuint(driver_used(d), ==, 0);
    }
    driver_start(d);
    g_assert_cmpuint(blk(d, 0, 0, 512, false), ==, 0);
}

static void test_blk_readonly(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;
    uint8_t byte;

    driver_start(d);
    driver_put(d, 0x14, 0);
    g_assert_cmphex(driver_get(d, 0x10) & 1 << 5, ==, 1 << 5);
    g_assert_cmpuint(blk(d, 1, 0, 512, true), ==, 1);
    file_bytes(f, 1, &byte, 1);
    g_assert_cmpuint(byte, ==, 1);
    g_assert_cmpuint(blk(d, 0, 0, 512, false), ==, 0);
}

/* Many requests in the ring, paused and reset in the middle of them: the device is quiet when it says so. */
static void test_blk_drain(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;

    for (unsigned round = 0; round < 50; round++) {
        driver_start(d);
        driver_put_le(d, HEADER, 0, 8);
        driver_put_le(d, HEADER + 8, 1, 8);
        driver_describe(d, 0, HEADER, 16, D_NEXT, 1);
        driver_describe(d, 1, BUFFER, 8192, D_NEXT | D_WRITE, 2);
        driver_describe(d, 2, STATUS, 1, D_WRITE, 0);
        for (unsigned i = 0; i < DRIVER_QUEUE; i++) {
            driver_offer(d, 0);
        }
        driver_notify(d);
        virtio_device_pause(d->v);
        unsigned used = driver_used(d);
        g_assert_cmpuint(used, <=, DRIVER_QUEUE);
        g_assert_cmpuint(used, ==, d->v->state.queues[0].next_available);
        memset(driver_at(d, BUFFER), 0, 8192);
        g_usleep(200);
        g_assert_cmpuint(driver_used(d), ==, used);
        g_assert_cmpuint(driver_get_le(d, BUFFER + 1, 8), ==, 0);
        virtio_device_resume(d->v);
        if (round % 2) {
            driver_wait_used(d, DRIVER_QUEUE);
        }
        driver_put(d, 0x70, 0);
        memset(d->block.host, 0, DRIVER_MEMORY);
        g_usleep(200);
        g_assert_cmpuint(driver_get_le(d, BUFFER + 1, 8) | driver_used(d), ==, 0);
    }
}

/* ---- who has the file ---- */

static bool save_kind(VirtioDevice *v, GError **errp)
{
    return v->kind_entry.vmsd->pre_save(v, errp);
}

static bool load_kind(VirtioDevice *v, GError **errp)
{
    return v->kind_entry.vmsd->post_load(v, 1, errp);
}

static void test_blk_lock(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;
    VirtioBlkConfig config = { .id = "disk0", .file = f->path };
    g_autoptr(GError) error = NULL;

    /* In use. */
    g_assert_null(virtio_blk_new(d->m, &config, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_IO);
    g_assert_nonnull(strstr(error->message, "another process uses"));
    g_clear_error(&error);
    /* A destination may open it, and has it once the source has saved. */
    config.incoming = true;
    VirtioDevice *there = virtio_blk_new(d->m, &config, &error);
    g_assert_no_error(error);
    driver_start(d);
    virtio_device_pause(d->v);
    g_assert_true(save_kind(there, NULL));      /* fills in what a stream would bring */
    g_assert_false(load_kind(there, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_IO);
    g_clear_error(&error);
    g_assert_true(save_kind(d->v, &error));
    g_assert_true(load_kind(there, &error));
    g_assert_no_error(error);
    /* The source cannot go on with it: it waits for a while, then every request fails. */
    g_test_expect_message(NULL, G_LOG_LEVEL_WARNING, "*all requests of the guest will fail");
    virtio_device_resume(d->v);
    g_assert_cmpuint(blk(d, 0, 0, 512, false), ==, 1);
    g_test_assert_expected_messages();
    g_assert_cmpuint(blk(d, 0, 0, 512, false), ==, 1);
    /* Unless the destination has gone. */
    virtio_device_pause(d->v);
    virtio_device_free(there);
    virtio_device_resume(d->v);
    g_assert_cmpuint(blk(d, 0, 0, 512, false), ==, 0);
}

/* The guest of @d has stopped and its file is another machine's now, which is returned. */
static VirtioDevice *give_away(Disk *f)
{
    const VirtioBlkConfig config = { .id = "disk0", .file = f->path, .incoming = true };
    g_autoptr(GError) error = NULL;
    VirtioDevice *there = virtio_blk_new(f->d.m, &config, &error);

    g_assert_no_error(error);
    virtio_device_pause(f->d.v);
    g_assert_true(save_kind(there, NULL));      /* fills in what a stream would bring */
    g_assert_true(save_kind(f->d.v, &error));
    g_assert_true(load_kind(there, &error));
    g_assert_no_error(error);
    return there;
}

/* The guest goes on before the destination has gone: its requests wait, and can be stopped in that. */
static void test_blk_wait(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;

    driver_start(d);
    VirtioDevice *there = give_away(f);
    virtio_device_resume(d->v);
    blk_begin(d, 0, 0, 512, false);
    g_usleep(30000);
    g_assert_cmpuint(driver_used(d), ==, 0);
    virtio_device_pause(d->v);
    virtio_device_resume(d->v);
    g_usleep(30000);
    g_assert_cmpuint(driver_used(d), ==, 0);
    virtio_device_free(there);
    g_assert_cmpuint(blk_end(d), ==, 0);
    /* It is the guest's again. */
    const VirtioBlkConfig config = { .id = "disk0", .file = f->path };
    g_assert_null(virtio_blk_new(d->m, &config, NULL));
}

/* A load that fails after the disk has come gives it back by itself. */
static void test_blk_load_failed(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;

    driver_start(d);
    VirtioDevice *there = give_away(f);
    there->kind_entry.vmsd->load_failed(there);
    virtio_device_resume(d->v);
    g_assert_cmpuint(blk(d, 1, 0, 512, true), ==, 0);
    /* Once more, with what the source has written meanwhile. */
    virtio_device_pause(d->v);
    g_assert_true(save_kind(d->v, NULL));
    g_assert_true(load_kind(there, NULL));
    virtio_device_free(there);
}

/* Somebody has written to the disk: the guest that comes back must not, though nobody has the lock. */
static void test_blk_changed(Disk *f, gconstpointer data)
{
    Driver *d = &f->d;

    driver_start(d);
    virtio_device_free(give_away(f));
    g_usleep(20000);            /* more than a tick of the file's clock */
    int fd = open(f->path, O_WRONLY);
    g_assert_cmpint(pwrite(fd, "x", 1, 0), ==, 1);
    close(fd);
    g_test_expect_message(NULL, G_LOG_LEVEL_WARNING, "*another process has written to*all requests*fail");
    virtio_device_resume(d->v);
    g_test_assert_expected_messages();
    g_assert_cmpuint(blk(d, 1, 0, 512, true), ==, 1);
    const VirtioBlkConfig config = { .id = "disk0", .file = f->path };
    VirtioDevice *other = virtio_blk_new(d->m, &config, NULL);
    g_assert_nonnull(other);
    virtio_device_free(other);
}

static void test_blk_files(void)
{
    Machine *m = machine_new(&driver_machine, false);
    char path[] = "/tmp/test-virtio-XXXXXX";
    VirtioBlkConfig config = { .id = "disk0", .file = path };
    g_autoptr(GError) error = NULL;
    int fd = g_mkstemp(path);

    g_assert_null(virtio_blk_new(m, &config, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    g_clear_error(&error);
    g_assert_cmpint(write(fd, path, 3), ==, 3);
    g_assert_null(virtio_blk_new(m, &config, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    g_clear_error(&error);
    g_unlink(path);
    g_assert_null(virtio_blk_new(m, &config, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_IO);
    close(fd);
    machine_free(m);
}

/* ---- console ---- */

typedef struct Console {
    Driver d;
    ChardevPeer peer;
} Console;

#define RX_DESC (DRIVER_GPA + 0x5000)
#define RX_AVAILABLE (DRIVER_GPA + 0x6000)
#define RX_USED (DRIVER_GPA + 0x7000)

static void set_up_console(Console *f, gconstpointer data)
{
    driver_new(&f->d);
    chardev_peer_open(&f->peer);
    VirtioDevice *v = virtio_console_new(f->d.m);
    g_assert_true(virtio_console_attach(v, f->peer.chr));
    g_assert_false(virtio_console_attach(v, f->peer.chr));
    driver_attach(&f->d, v);
}

static void tear_down_console(Console *f, gconstpointer data)
{
    driver_free(&f->d);
    chardev_peer_close(&f->peer);
}

/* Both queues: 1 sends by the driver's usual rings, 0 receives by rings of its own. */
static void start_console(Console *f)
{
    Driver *d = &f->d;

    driver_negotiate(d);
    driver_set_up_queue(d, 1, DRIVER_QUEUE, DRIVER_DESC, DRIVER_AVAILABLE, DRIVER_USED);
    driver_set_up_queue(d, 0, DRIVER_QUEUE, RX_DESC, RX_AVAILABLE, RX_USED);
    driver_put(d, 0x70, 15);
}

/* Buffer @n of the receive queue, of @len bytes. */
static void offer_buffer(Driver *d, unsigned n, uint32_t len)
{
    driver_put_le(d, RX_DESC + 16 * n, BUFFER + 0x1000 * n, 8);
    driver_put_le(d, RX_DESC + 16 * n + 8, len, 4);
    driver_put_le(d, RX_DESC + 16 * n + 12, D_WRITE, 2);
    driver_put_le(d, RX_AVAILABLE + 4 + 2 * n, n, 2);
    driver_put_le(d, RX_AVAILABLE + 2, n + 1, 2);
    driver_put(d, 0x50, 0);
}

static void iterate_until_used(Driver *d, unsigned count)
{
    while (driver_get_le(d, RX_USED + 2, 2) != count) {
        g_main_context_iteration(NULL, TRUE);
    }
}

static void test_console_send(Console *f, gconstpointer data)
{
    Driver *d = &f->d;
    char bytes[16] = "";

    g_assert_cmphex(driver_get(d, 0x08), ==, 3);
    start_console(f);
    memcpy(driver_at(d, DRIVER_DATA), "hello, world", 12);
    driver_describe(d, 0, DRIVER_DATA, 7, D_NEXT, 1);
    driver_describe(d, 1, DRIVER_DATA + 7, 5, 0, 0);
    driver_offer(d, 0);
    driver_put(d, 0x50, 1);
    g_assert_cmpuint(driver_used(d), ==, 1);
    while (read(f->peer.fd, bytes, sizeof(bytes)) < 0) {
        g_main_context_iteration(NULL, TRUE);
    }
    g_assert_cmpstr(bytes, ==, "hello, world");
    driver_describe(d, 0, DRIVER_GPA, DRIVER_MEMORY, D_NEXT, 1);    /* with one more byte: too long */
    driver_offer(d, 0);
    driver_put(d, 0x50, 1);
    chardev_peer_settle();          /* a queue that is full is looked at again from there */
    g_assert_cmphex(driver_get(d, 0x70), ==, 15 | 64);
}

static void test_console_receive(Console *f, gconstpointer data)
{
    Driver *d = &f->d;

    start_console(f);
    offer_buffer(d, 0, 4);
    offer_buffer(d, 1, 100);
    g_assert_cmpint(write(f->peer.fd, "abcdefg", 7), ==, 7);
    iterate_until_used(d, 2);
    g_assert_cmpmem(driver_at(d, BUFFER), 4, "abcd", 4);
    g_assert_cmpmem(driver_at(d, BUFFER + 0x1000), 3, "efg", 3);
    g_assert_cmpuint(driver_get_le(d, RX_USED + 4 + 4, 4), ==, 4);
    g_assert_cmpuint(driver_get_le(d, RX_USED + 4 + 12, 4), ==, 3);
}

/* Nobody reads: at some point requests stay in the queue, and nothing is lost. */
static void test_console_peer_does_not_read(Console *f, gconstpointer data)
{
    const unsigned request = 10000, max = 1000;
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    Driver *d = &f->d;
    unsigned sent = 0;

    start_console(f);
    driver_describe(d, 0, DRIVER_DATA, request, 0, 0);
    for (unsigned waited = 0; sent < max && waited < 50;) {
        if (driver_used(d) == sent) {
            for (unsigned i = 0; i < request; i++) {
                *driver_at(d, DRIVER_DATA + i) = chardev_peer_nth(sent * request + i);
            }
            driver_offer(d, 0);
            driver_put(d, 0x50, 1);
            sent++;
            waited = 0;
        }
        chardev_peer_settle();
        if (driver_used(d) != sent) {
            g_usleep(10000);
            waited++;
        }
    }
    g_assert_cmpuint(sent, <, max);
    g_assert_cmpuint(driver_used(d), ==, sent - 1);
    chardev_peer_read_count(&f->peer, bytes, sent * request);
    g_assert_cmpuint(driver_used(d), ==, sent);
    chardev_peer_expect_nth(bytes, sent * request);
}

/* The guest offers no buffers, and the peer has to wait; then it offers one at a time. */
static void test_console_guest_does_not_read(Console *f, gconstpointer data)
{
    const unsigned total = 1000000, buffer = 3000;
    Driver *d = &f->d;
    unsigned received = 0;

    start_console(f);
    unsigned from = chardev_peer_write(&f->peer, 0, total);
    g_assert_cmpuint(from, <, total);
    for (unsigned n = 0; received < total; n++) {
        driver_put_le(d, RX_DESC, BUFFER, 8);
        driver_put_le(d, RX_DESC + 8, buffer, 4);
        driver_put_le(d, RX_DESC + 12, D_WRITE, 2);
        driver_put_le(d, RX_AVAILABLE + 4 + 2 * (n % DRIVER_QUEUE), 0, 2);
        driver_put_le(d, RX_AVAILABLE + 2, (n + 1) & 0xffff, 2);
        driver_put(d, 0x50, 0);
        while (driver_get_le(d, RX_USED + 2, 2) != ((n + 1) & 0xffff)) {
            from = chardev_peer_write(&f->peer, from, total);
        }
        unsigned len = (unsigned)driver_get_le(d, RX_USED + 4 + 8 * (n % DRIVER_QUEUE) + 4, 4);
        for (unsigned i = 0; i < len; i++) {
            g_assert_cmphex(*driver_at(d, BUFFER + i), ==, chardev_peer_nth(received++));
        }
    }
    g_assert_cmpuint(received, ==, total);
}

/* Bytes that arrive while the guest stands still, or has no buffer, wait and travel. */
static void test_console_travel(Console *f, gconstpointer data)
{
    static const uint8_t golden[] = { 0, 0, 0, 3, 'x', 'y', 'z', 0 };
    Driver *d = &f->d;
    g_autoptr(GError) error = NULL;
    const VMStateDescription *vmsd = d->v->kind_entry.vmsd;

    start_console(f);
    virtio_device_pause(d->v);
    offer_buffer(d, 0, 100);
    g_assert_cmpint(write(f->peer.fd, "xyz", 3), ==, 3);
    for (unsigned i = 0; i < 20; i++) {
        g_main_context_iteration(NULL, FALSE);
        g_usleep(1000);
    }
    g_assert_cmpuint(driver_get_le(d, RX_USED + 2, 2), ==, 0);
    g_autoptr(Channel) out = channel_buffer_new(NULL, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(out);
    g_assert_true(vmstate_save(w, vmsd, d->v, NULL, &error));
    g_assert_true(stream_flush(w, &error));
    const GByteArray *bytes = channel_buffer_bytes(out);
    g_assert_cmpuint(bytes->len, ==, 4 + 32768);
    g_assert_cmpmem(bytes->data, sizeof(golden), golden, sizeof(golden));
    virtio_device_resume(d->v);
    g_assert_cmpuint(driver_get_le(d, RX_USED + 2, 2), ==, 1);
    g_assert_cmpmem(driver_at(d, BUFFER), 3, "xyz", 3);

    virtio_device_pause(d->v);
    g_autoptr(Channel) in = channel_buffer_new(bytes->data, bytes->len);
    g_autoptr(StreamReader) r = stream_reader_new(in);
    g_assert_true(vmstate_load(r, vmsd, d->v, 1, &error));
    virtio_device_resume(d->v);
    offer_buffer(d, 1, 2);
    g_assert_cmpuint(driver_get_le(d, RX_USED + 2, 2), ==, 2);
    g_assert_cmpmem(driver_at(d, BUFFER + 0x1000), 3, "xy", 3);
    g_autofree uint8_t *bad = g_memdup2(bytes->data, bytes->len);
    bad[2] = 0x80;
    bad[3] = 1;
    g_autoptr(Channel) bad_in = channel_buffer_new(bad, bytes->len);
    g_autoptr(StreamReader) bad_r = stream_reader_new(bad_in);
    g_assert_false(vmstate_load(bad_r, vmsd, d->v, 1, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
    g_assert_nonnull(strstr(error->message, "rx_count is 32769"));
}

/* ---- the section ---- */

static const uint8_t section[94] = {
    0, 0, 0, 4,  0, 0, 0, 15,  0, 0, 0, 1,  0, 0, 0, 1,  0, 0, 0, 1,  0, 0, 0, 0,
    0, 0, 0, 1, 0, 0, 0, 0,                                     /* driver_features: VIRTIO_F_VERSION_1 */
    0, 16, 1, 0, 0, 0, 0, 0, 0x10, 0x10, 0, 0, 0, 0, 0, 0, 0x10, 0x20, 0, 0, 0, 0, 0, 0, 0x10, 0x30, 0,
    0, 2, 0, 2,
};

static void test_section(Driver *d, gconstpointer data)
{
    g_autoptr(GError) error = NULL;

    driver_start(d);
    driver_describe(d, 0, DRIVER_DATA, 8, D_WRITE, 0);
    driver_offer(d, 0);
    driver_offer(d, 0);
    driver_notify(d);
    g_autoptr(Channel) out = channel_buffer_new(NULL, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(out);
    g_assert_true(vmstate_save(w, &virtio_vmsd, d->v, NULL, &error));
    g_assert_true(stream_flush(w, &error));
    const GByteArray *bytes = channel_buffer_bytes(out);
    g_assert_cmpmem(bytes->data, bytes->len, section, sizeof(section));

    /* What arrives with requests in its ring goes on with them. */
    VirtioDevice *there = virtio_rng_new(d->m), *here = d->v;
    virtio_device_pause(here);
    driver_offer(d, 0);
    g_autoptr(Channel) in = channel_buffer_new(section, sizeof(section));
    g_autoptr(StreamReader) r = stream_reader_new(in);
    d->v = there;
    there->set_irq = driver_set_irq;
    there->irq_opaque = d;
    d->level = false;
    g_assert_true(vmstate_load(r, &virtio_vmsd, there, 1, &error));
    g_assert_no_error(error);
    g_assert_true(d->level);    /* an interrupt that was not acknowledged */
    g_assert_cmpuint(driver_used(d), ==, 2);
    virtio_device_resume(there);
    g_assert_cmpuint(driver_used(d), ==, 3);
    virtio_device_free(here);
}

static void test_bad_sections(Driver *d, gconstpointer data)
{
    static const struct {
        unsigned at;
        uint8_t value;
        const char *message;
    } bad[] = {
        { 3, 2, "virtio device 2 in slot 0" },
        { 6, 1, "status" },
        { 11, 4, "interrupt status" },
        { 31, 1, "features 0x1," },
        { 34, 2, "queue 0" },
        { 65, 1, "queue 1" },
        { 33, 15, "no possible place" },
        { 35, 1, "no possible place" },
        { 42, 1, "no possible place" },
        { 33, 0, "no possible place" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        uint8_t bytes[sizeof(section)];
        g_autoptr(GError) error = NULL;

        memcpy(bytes, section, sizeof(bytes));
        bytes[bad[i].at] = bad[i].value;
        g_autoptr(Channel) in = channel_buffer_new(bytes, sizeof(bytes));
        g_autoptr(StreamReader) r = stream_reader_new(in);
        driver_put(d, 0x70, 0);
        g_assert_false(vmstate_load(r, &virtio_vmsd, d->v, 1, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
        g_assert_nonnull(strstr(error->message, bad[i].message));
    }
}

#define RNG(name, test) g_test_add("/virtio/" name, Driver, NULL, set_up_rng, test, tear_down_rng)
#define BLK(name, test, ro) \
    g_test_add("/virtio/blk/" name, Disk, GINT_TO_POINTER(ro), set_up_blk, test, tear_down_blk)
#define CONSOLE(name, test) \
    g_test_add("/virtio/console/" name, Console, NULL, set_up_console, test, tear_down_console)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    RNG("registers", test_registers);
    RNG("negotiation", test_negotiation);
    RNG("rng", test_rng);
    RNG("wrap", test_wrap);
    RNG("no-interrupt", test_no_interrupt);
    RNG("pause", test_pause);
    RNG("broken", test_broken);
    RNG("bad-queues", test_bad_queues);
    RNG("section", test_section);
    RNG("bad-sections", test_bad_sections);
    BLK("config", test_blk_config, 0);
    BLK("section", test_blk_section, 0);
    BLK("read-write", test_blk_read_write, 0);
    BLK("out-of-range", test_blk_out_of_range, 0);
    BLK("framing", test_blk_framing, 0);
    BLK("no-header", test_blk_no_header, 0);
    BLK("readonly", test_blk_readonly, 1);
    BLK("drain", test_blk_drain, 0);
    BLK("lock", test_blk_lock, 0);
    BLK("wait", test_blk_wait, 0);
    BLK("load-failed", test_blk_load_failed, 0);
    BLK("changed", test_blk_changed, 0);
    CONSOLE("send", test_console_send);
    CONSOLE("receive", test_console_receive);
    CONSOLE("travel", test_console_travel);
    CONSOLE("peer-does-not-read", test_console_peer_does_not_read);
    CONSOLE("guest-does-not-read", test_console_guest_does_not_read);
    g_test_add_func("/virtio/blk/files", test_blk_files);
    return g_test_run();
}
