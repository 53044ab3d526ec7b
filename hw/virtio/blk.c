/* SPDX-License-Identifier: BSD-2-Clause */
/* virtio-blk on a raw file that source and destination of a migration share. */

/*
 * One thread for each device takes a request off the queue, reads or writes the file without the device's
 * lock, and gives the request back.  So there is at most one in flight, which pause and reset wait for.
 *
 * Who has the file:
 *
 *   source                                        destination
 *   opened and locked                             opened (-incoming), not locked
 *   guest stops; the request in flight ends
 *   section "virtio-blk" is saved: the file is
 *   flushed, then unlocked           ------->     section is loaded: the file is locked, or the load fails
 *                                               (the load fails later: unlocked, before the source
 *                                               can hear of it)
 *   (the migration failed: the guest goes on;
 *   locked again, or all requests fail)
 *
 * A destination that has been killed, or does not know yet that the migration has failed, may have the lock
 * for a moment after the source's guest goes on: its requests wait for the lock, but not for long.  If
 * somebody else has written to the file meanwhile, this guest's idea of it is wrong, and the lock does not
 * help.
 *
 * The lock is an open file description lock on the whole file, exclusive unless the drive is read-only: kept
 * by the kernel until the process ends, and on NFS by the server.
 */
#include "hw/virtio/virtio.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "system/vmstate.h"
#include "util/error.h"
#include "util/fault.h"
#include "util/iov.h"

#define SECTOR 512u
#define BLK_QUEUE_SIZE 256
/* What the guest is told, and held to: a request is at most the product. */
#define BLK_SEGMENTS_MAX 254u
#define BLK_SEGMENT_MAX 65536u
#define BLK_REQUEST_MAX (BLK_SEGMENTS_MAX * BLK_SEGMENT_MAX)
#define BLK_ID_SIZE 20
#define BLK_HEADER_SIZE 16
#define BLK_CONFIG_SIZE 24
/* How long a guest that goes on waits for its file, and how often it looks. */
#define LOCK_PATIENCE_US (3 * G_USEC_PER_SEC)
#define LOCK_RETRY_US 10000

#define BLK_F_SIZE_MAX (UINT64_C(1) << 1)
#define BLK_F_SEG_MAX (UINT64_C(1) << 2)
#define BLK_F_RO (UINT64_C(1) << 5)
#define BLK_F_BLK_SIZE (UINT64_C(1) << 6)
#define BLK_F_FLUSH (UINT64_C(1) << 9)

enum { REQUEST_IN = 0, REQUEST_OUT = 1, REQUEST_FLUSH = 4, REQUEST_GET_ID = 8 };
enum { RESULT_OK = 0, RESULT_IO_ERROR = 1, RESULT_UNSUPPORTED = 2 };

typedef struct VirtioBlk {
    VirtioDevice device;
    char *id, *file, *serial;           /* fixed */
    bool readonly;
    uint64_t capacity;                  /* sectors; fixed */
    int fd;

    GThread *thread;
    GCond work;                         /* any of the following */
    /* The device's lock. */
    bool kick;                          /* the queue has not been found empty since it was notified of */
    bool quit;
    bool locked;                        /* the file is ours */
    bool given_up;                      /* it is not, and until the guest is stopped it will not be */
    gint64 lock_until_us;               /* not locked: then it is given up */
    bool was_ours;                      /* it was locked, and when that ended... */
    struct timespec written;            /* ...it had been written to at this time */

    /* The thread's. */
    VirtRequest request;
    struct iovec iov[VIRTIO_QUEUE_SIZE_MAX];
    uint64_t capacity_wire;             /* of the thread that saves or loads */
} VirtioBlk;

/* ---- the file ---- */

/* When was the file written to?  Never, as far as that is not known. */
static struct timespec last_write(const VirtioBlk *b)
{
    struct stat s;

    return fstat(b->fd, &s) == 0 ? s.st_mtim : (struct timespec){ 0 };
}

static bool lock_file(VirtioBlk *b, GError **errp)
{
    struct flock lock = { .l_type = b->readonly ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET };

    if (fault_point("virtio-blk-lock", errp)) {
        return false;
    }
    if (fcntl(b->fd, F_OFD_SETLK, &lock) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "drive '%s': cannot lock '%s'%s", b->id, b->file,
                        errno == EAGAIN || errno == EACCES ? ", which another process uses" : "");
        return false;
    }
    b->locked = true;
    return true;
}

static void unlock_file(VirtioBlk *b)
{
    struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

    b->written = last_write(b);
    b->was_ours = b->locked;
    b->locked = false;
    fcntl(b->fd, F_OFD_SETLK, &lock);
}

/* Lock held, file locked, after it was not for a time: is it as this guest knows it? */
static bool is_unchanged(VirtioBlk *b)
{
    struct timespec now = last_write(b);

    return b->readonly || !b->was_ours ||
           (now.tv_sec == b->written.tv_sec && now.tv_nsec == b->written.tv_nsec);
}

static void give_up(VirtioBlk *b, const char *why)
{
    g_warning("%s: all requests of the guest will fail", why);
    b->given_up = true;
}

/* Lock held; the guest goes on, or waits for its file.  It may be too early. */
static void lock_again(VirtioBlk *b)
{
    g_autoptr(GError) error = NULL;

    if (!lock_file(b, &error)) {
        if (g_get_monotonic_time() >= b->lock_until_us) {
            give_up(b, error->message);
        }
    } else if (!is_unchanged(b)) {
        struct timespec then = b->written;
        g_autofree char *why =
            g_strdup_printf("drive '%s': another process has written to '%s'", b->id, b->file);
        unlock_file(b);
        b->written = then;
        give_up(b, why);
    }
}

static bool open_file(VirtioBlk *b, GError **errp)
{
    b->fd = open(b->file, (b->readonly ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    if (b->fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "drive '%s': cannot open '%s'", b->id, b->file);
        return false;
    }
    off_t size = lseek(b->fd, 0, SEEK_END);
    if (size < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "drive '%s': cannot find the size of '%s'", b->id,
                        b->file);
        return false;
    }
    if (!size || size % SECTOR) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "drive '%s': the size of '%s' is %" PRId64 " bytes, which is no positive multiple of %u",
                    b->id, b->file, (int64_t)size, SECTOR);
        return false;
    }
    b->capacity = (uint64_t)size / SECTOR;
    return true;
}

/* All of the vector, or false. */
static bool transfer(VirtioBlk *b, bool write, struct iovec *iov, size_t n, uint64_t offset)
{
    iov_advance(&iov, &n, 0);
    while (n) {
        ssize_t done = write ? pwritev(b->fd, iov, (int)n, (off_t)offset)
                             : preadv(b->fd, iov, (int)n, (off_t)offset);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        offset += (uint64_t)done;
        iov_advance(&iov, &n, (size_t)done);
    }
    return true;
}

/* ---- requests: in the device's thread, without the lock ---- */

typedef struct Header {
    uint32_t type;
    uint64_t sector;
} Header;

static bool read_header(const VirtRequest *r, Header *h)
{
    uint8_t bytes[BLK_HEADER_SIZE];

    if (virtrequest_read(r, 0, bytes, sizeof(bytes)) < sizeof(bytes) || !r->write_len) {
        return false;
    }
    memcpy(&h->type, bytes, 4);
    memcpy(&h->sector, bytes + 8, 8);
    h->type = GUINT32_FROM_LE(h->type);
    h->sector = GUINT64_FROM_LE(h->sector);
    return true;
}

/* Does the transfer lie on the disk? */
static bool in_range(const VirtioBlk *b, uint64_t sector, uint64_t len)
{
    return len % SECTOR == 0 && len <= BLK_REQUEST_MAX && sector <= b->capacity &&
           len / SECTOR <= b->capacity - sector;
}

static uint8_t read_sectors(VirtioBlk *b, const Header *h, uint64_t *written)
{
    const VirtRequest *r = &b->request;
    uint64_t len = r->write_len - 1;

    if (!in_range(b, h->sector, len)) {
        return RESULT_IO_ERROR;
    }
    unsigned n = virtrequest_iov(r, true, 0, len, b->iov);
    bool ok = transfer(b, false, b->iov, n, h->sector * SECTOR);
    /* If it failed, some of it may have been written all the same. */
    virtrequest_mark(&b->device, r, 0, len);
    *written = ok ? len : 0;
    return ok ? RESULT_OK : RESULT_IO_ERROR;
}

static uint8_t write_sectors(VirtioBlk *b, const Header *h, bool through)
{
    const VirtRequest *r = &b->request;
    uint64_t len = r->read_len - BLK_HEADER_SIZE;

    if (b->readonly || !in_range(b, h->sector, len)) {
        return RESULT_IO_ERROR;
    }
    unsigned n = virtrequest_iov(r, false, BLK_HEADER_SIZE, len, b->iov);
    bool ok = transfer(b, true, b->iov, n, h->sector * SECTOR) && (!through || fdatasync(b->fd) == 0);
    return ok ? RESULT_OK : RESULT_IO_ERROR;
}

static uint8_t get_id(VirtioBlk *b, uint64_t *written)
{
    uint8_t id[BLK_ID_SIZE] = { 0 };

    memcpy(id, b->serial, MIN(strlen(b->serial), sizeof(id)));
    *written = virtrequest_write(&b->device, &b->request, 0, id,
                                 MIN(sizeof(id), b->request.write_len - 1));
    return RESULT_OK;
}

/* Without the feature the guest does not know that it could flush: every write has to reach the disk. */
static uint8_t serve(VirtioBlk *b, const Header *h, bool can_flush, uint64_t *written)
{
    switch (h->type) {
    case REQUEST_IN:
        return read_sectors(b, h, written);
    case REQUEST_OUT:
        return write_sectors(b, h, !can_flush);
    case REQUEST_FLUSH:
        return fdatasync(b->fd) == 0 ? RESULT_OK : RESULT_IO_ERROR;
    case REQUEST_GET_ID:
        return get_id(b, written);
    default:
        return RESULT_UNSUPPORTED;
    }
}

/* Lock held; gives it up while it works. */
static void work_on_request(VirtioBlk *b)
{
    VirtioDevice *v = &b->device;
    bool can_flush = v->state.driver_features & BLK_F_FLUSH, ours = b->locked;
    uint8_t result = RESULT_IO_ERROR;
    uint64_t written = 0;
    Header h;

    if (!read_header(&b->request, &h)) {
        virtio_device_break(v, "a request has no header or no room for its result");
        return;
    }
    v->in_flight = true;
    g_mutex_unlock(&v->lock);
    if (ours) {
        result = serve(b, &h, can_flush, &written);
    }
    /* The last byte; only what was written from the beginning on counts. */
    virtrequest_write(v, &b->request, b->request.write_len - 1, &result, 1);
    written = written == b->request.write_len - 1 ? written + 1 : written;
    g_mutex_lock(&v->lock);
    if (!(v->state.status & VIRTIO_STATUS_NEEDS_RESET)) {
        virtqueue_push(v, 0, &b->request, (uint32_t)written);
    }
    v->in_flight = false;
    g_cond_broadcast(&v->idle);
}

static void *blk_thread(void *opaque)
{
    VirtioBlk *b = opaque;

    g_mutex_lock(&b->device.lock);
    while (!b->quit) {
        if (!b->locked && !b->given_up && !b->device.paused) {
            g_cond_wait_until(&b->work, &b->device.lock, g_get_monotonic_time() + LOCK_RETRY_US);
            if (!b->device.paused) {
                lock_again(b);
            }
        } else if (!b->kick) {
            g_cond_wait(&b->work, &b->device.lock);
        } else if (virtqueue_pop(&b->device, 0, &b->request)) {
            work_on_request(b);
        } else {
            b->kick = false;
        }
    }
    g_mutex_unlock(&b->device.lock);
    return NULL;
}

/* ---- as a device ---- */

static void blk_notify(VirtioDevice *v, unsigned q)
{
    VirtioBlk *b = (VirtioBlk *)v;

    b->kick = true;
    g_cond_signal(&b->work);
}

static void blk_read_config(VirtioDevice *v, uint64_t offset, void *to, unsigned len)
{
    const VirtioBlk *b = (const VirtioBlk *)v;
    uint8_t config[BLK_CONFIG_SIZE] = { 0 };
    uint64_t capacity = GUINT64_TO_LE(b->capacity);
    uint32_t size_max = GUINT32_TO_LE(BLK_SEGMENT_MAX), seg_max = GUINT32_TO_LE(BLK_SEGMENTS_MAX);
    uint32_t block_size = GUINT32_TO_LE(SECTOR);

    memcpy(config, &capacity, 8);
    memcpy(config + 8, &size_max, 4);
    memcpy(config + 12, &seg_max, 4);
    memcpy(config + 20, &block_size, 4);
    if (offset < sizeof(config)) {
        memcpy(to, config + offset, MIN(len, sizeof(config) - offset));
    }
}

/* After a migration that has failed. */
static void blk_resumed(VirtioDevice *v)
{
    VirtioBlk *b = (VirtioBlk *)v;

    if (!b->locked) {
        b->given_up = false;
        b->lock_until_us = g_get_monotonic_time() + LOCK_PATIENCE_US;
        lock_again(b);
        g_cond_signal(&b->work);
    }
}

static void blk_free(VirtioDevice *v)
{
    VirtioBlk *b = (VirtioBlk *)v;

    if (b->thread) {
        g_mutex_lock(&v->lock);
        b->quit = true;
        g_cond_signal(&b->work);
        g_mutex_unlock(&v->lock);
        g_thread_join(b->thread);
    }
    if (b->fd >= 0) {
        close(b->fd);
    }
    g_cond_clear(&b->work);
    virtio_device_clear(v);
    g_free(b->id);
    g_free(b->file);
    g_free(b->serial);
    g_free(b);
}

static const VirtioDeviceOps blk_ops = {
    .id = VIRTIO_ID_BLOCK,
    .driver = "virtio-blk-device",
    .n_queues = 1,
    .queue_size_max = BLK_QUEUE_SIZE,
    .notify = blk_notify,
    .read_config = blk_read_config,
    .resumed = blk_resumed,
    .free = blk_free,
};

/* ---- its section ---- */

/* The guest has stopped, nothing is in flight: what it has written is to be on the disk, and then others'. */
static bool blk_pre_save(void *opaque, GError **errp)
{
    VirtioBlk *b = opaque;

    b->capacity_wire = b->capacity;
    if (fault_point("virtio-blk-flush", errp)) {
        return false;
    }
    if (!b->readonly && fdatasync(b->fd) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "drive '%s': cannot flush '%s'", b->id, b->file);
        return false;
    }
    g_mutex_lock(&b->device.lock);
    unlock_file(b);
    g_mutex_unlock(&b->device.lock);
    return true;
}

static bool blk_post_load(void *opaque, int version, GError **errp)
{
    VirtioBlk *b = opaque;

    if (b->capacity_wire != b->capacity) {
        return error_set_protocol(errp,
                                  "drive '%s': the guest's disk has %" PRIu64 " sectors, '%s' has %" PRIu64,
                                  b->id, b->capacity_wire, b->file, b->capacity);
    }
    g_mutex_lock(&b->device.lock);
    bool ok = b->locked || lock_file(b, errp);
    g_mutex_unlock(&b->device.lock);
    /* Pages that this host remembers of a device that hosts share are older than the lock. */
    posix_fadvise(b->fd, 0, 0, POSIX_FADV_DONTNEED);
    return ok;
}

/* Nothing is in flight: the guest does not run here. */
static void blk_load_failed(void *opaque)
{
    VirtioBlk *b = opaque;

    g_mutex_lock(&b->device.lock);
    if (b->locked) {
        unlock_file(b);
    }
    g_mutex_unlock(&b->device.lock);
}

static const VMStateField blk_fields[] = {
    { .name = "capacity", .type = VMSTATE_UINT64, .offset = offsetof(VirtioBlk, capacity_wire),
      .size = sizeof(uint64_t) },
    VMSTATE_END
};

static const VMStateDescription blk_vmsd = {
    .name = "virtio-blk", .version = 1, .minimum_version = 1, .fields = blk_fields,
    .pre_save = blk_pre_save, .post_load = blk_post_load, .load_failed = blk_load_failed,
};

VirtioDevice *virtio_blk_new(Machine *m, const VirtioBlkConfig *config, GError **errp)
{
    VirtioBlk *b = g_new0(VirtioBlk, 1);

    b->id = g_strdup(config->id);
    b->file = g_strdup(config->file);
    b->serial = g_strdup(config->serial ? config->serial : "");
    b->readonly = config->readonly;
    b->fd = -1;
    g_cond_init(&b->work);
    virtio_device_init(&b->device, &blk_ops, m,
                       BLK_F_SIZE_MAX | BLK_F_SEG_MAX | BLK_F_BLK_SIZE | BLK_F_FLUSH |
                           (b->readonly ? BLK_F_RO : 0));
    b->device.kind_entry.vmsd = &blk_vmsd;
    if (!open_file(b, errp) || (!config->incoming && !lock_file(b, errp)) ||
        !(b->thread = g_thread_try_new("virtio-blk", blk_thread, b, errp))) {
        blk_free(&b->device);
        return NULL;
    }
    return &b->device;
}
