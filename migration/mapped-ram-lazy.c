/* SPDX-License-Identifier: BSD-2-Clause */
/* Guest memory that is read from a mapped-ram file when it is touched, while the rest is read beside it. */

/*
 * Before the guest runs its memory is emptied and registered with userfaultfd, in two calls for each block
 * whatever its size. Whoever then touches a page that is not there waits, the kernel on behalf of a thread
 * included, and the fault thread is told: it reads the page and its neighbours and puts them in with
 * UFFDIO_COPY, or a zero page if the file says so. Reader threads do the same with all that is in the file.
 * A page is put in at once and in full, and never over one that is there: that one may have been written to
 * since. So it does not matter who comes first.
 *
 * Pages that are zero in the file are not put in by the readers: when all others are in, the memory is
 * unregistered, and what is missing then is zero to whoever touches it.
 *
 * A page that cannot be read: the load thread has the guest stopped. A vCPU that waits for that page cannot
 * acknowledge the stop, so after a while it is given a zero page; it has been told to stop, and its guest
 * will not run again. Everything is unregistered then.
 */
#include "migration/mapped-ram-load.h"

#include "migration/ram-holes.h"
#include "trace-migration.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Pages read for one that was touched: those around it, at a multiple of them: 64 KiB. */
#define FAULT_PAGES 16

/* Messages taken from the kernel at once. */
#define MESSAGES 16

/* How long a thread waits for a page that cannot be read, while the guest is being stopped. */
#define HOLD_MS 100

typedef struct MappedRamLazy MappedRamLazy;

typedef struct LazyReader {
    MappedRamLazy *z;
    GThread *thread;
    uint8_t *buf;               /* MAPPED_RAM_READ_PAGES, aligned */
} LazyReader;

struct MappedRamLazy {
    MappedRamLoad *load;
    int uffd;
    int wake;                   /* eventfd: the fault thread looks at @state */
    GThread *fault_thread;
    unsigned registered;        /* blocks */
    uint64_t **present;         /* by block: pages that are in.  Set atomically, a hint only */
    uint8_t *fault_buf;         /* FAULT_PAGES, aligned; the fault thread's */

    int quit;                   /* atomic: the fault thread is to end */
    int release;                /* atomic: it is to give zero pages for those that cannot be read */
    GArray *held;               /* of uint64_t, addresses that wait for that; the fault thread's */
};

/* ---- the kernel's side ---- */

/* The plain call needs a privilege, which who may open the device needs not. */
static int open_userfaultfd(GError **errp)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    int err = errno;

#ifdef USERFAULTFD_IOC_NEW
    if (fd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        fd = device < 0 ? -1 : ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
        if (device >= 0) {
            close(device);
        }
    }
#endif
    if (fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_UNSUPPORTED, err,
                        "userfaultfd is not permitted (vm.unprivileged_userfaultfd, /dev/userfaultfd)");
    }
    return fd;
}

static bool start_api(MappedRamLazy *z, GError **errp)
{
    struct uffdio_api api = { .api = UFFD_API };

    z->uffd = open_userfaultfd(errp);
    if (z->uffd < 0) {
        return false;
    }
    if (ioctl(z->uffd, UFFDIO_API, &api) < 0) {
        error_set_errno(errp, GODWIT_ERROR_UNSUPPORTED, errno, "userfaultfd of this kernel is another");
        return false;
    }
    return true;
}

static bool is_private(const RAMBlock *block)
{
    return block->fd < 0 && !block->shared;
}

/* Kinds of memory whose missing pages are zero, and can be put in one by one. */
static bool check_kind(const RAMBlock *block, GError **errp)
{
    bool small = block->page_size == TARGET_PAGE_SIZE && sysconf(_SC_PAGESIZE) == TARGET_PAGE_SIZE;

    if (small && (is_private(block) || ram_holes_known(block))) {
        return true;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                "RAM block '%s' is neither private memory nor a file of tmpfs, with pages of %u octets",
                block->idstr, TARGET_PAGE_SIZE);
    return false;
}

/* What was in memory before is of no interest; a page that is there would never be asked for. */
static bool empty_block(const RAMBlock *block, GError **errp)
{
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    int result = is_private(block)
        ? madvise(block->host, block->used_length, MADV_DONTNEED)
        : fallocate(block->fd, mode, (off_t)block->fd_offset, (off_t)block->used_length);

    if (result < 0) {
        error_set_errno(errp, GODWIT_ERROR_UNSUPPORTED, errno, "RAM block '%s' cannot be emptied",
                        block->idstr);
    }
    return result == 0;
}

static bool register_block(MappedRamLazy *z, const RAMBlock *block, GError **errp)
{
    struct uffdio_register r = {
        .range = { .start = (uintptr_t)block->host, .len = block->used_length },
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    const uint64_t needed = 1 << _UFFDIO_COPY | 1 << _UFFDIO_WAKE | 1 << _UFFDIO_ZEROPAGE;

    if (ioctl(z->uffd, UFFDIO_REGISTER, &r) < 0) {
        error_set_errno(errp, GODWIT_ERROR_UNSUPPORTED, errno,
                        "RAM block '%s' cannot be registered with userfaultfd", block->idstr);
        return false;
    }
    z->registered++;
    if ((r.ioctls & needed) != needed) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "userfaultfd cannot put pages into RAM block '%s'", block->idstr);
        return false;
    }
    return true;
}

/* Threads that wait go on, and find what is in or zeroes. */
static void unregister_all(MappedRamLazy *z)
{
    for (unsigned i = 0; i < z->registered; i++) {
        const RAMBlock *block = g_array_index(z->load->blocks, MappedRamLoadBlock, i).block;
        struct uffdio_range range = { .start = (uintptr_t)block->host, .len = block->used_length };
        ioctl(z->uffd, UFFDIO_UNREGISTER, &range);
    }
    z->registered = 0;
}

/* ---- putting pages in ---- */

static int put_zero(MappedRamLazy *z, uint64_t address)
{
    struct uffdio_zeropage zero = { .range = { .start = address, .len = TARGET_PAGE_SIZE } };

    while (ioctl(z->uffd, UFFDIO_ZEROPAGE, &zero) < 0) {
        if (errno == EEXIST) {
            ioctl(z->uffd, UFFDIO_WAKE, &zero.range);
            return 0;
        }
        if (errno != EAGAIN) {
            return errno;
        }
    }
    return 0;
}

/* Marks pages as being in; how many were not. */
static uint64_t mark_present(uint64_t *present, uint64_t first, uint64_t n)
{
    uint64_t fresh = 0;

    while (n) {
        uint64_t bit = first % 64, count = MIN(n, 64 - bit);
        uint64_t mask = (count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1) << bit;
        uint64_t before = __atomic_fetch_or(&present[first / 64], mask, __ATOMIC_RELAXED);
        fresh += (uint64_t)__builtin_popcountll(mask & ~before);
        first += count;
        n -= count;
    }
    return fresh;
}

static bool is_present(const uint64_t *present, uint64_t page)
{
    return __atomic_load_n(&present[page / 64], __ATOMIC_RELAXED) >> page % 64 & 1;
}

/* @n pages from @buf to page @first of block number @i.  0, or an errno. */
static int put_pages(MappedRamLazy *z, guint i, uint64_t first, uint64_t n, const uint8_t *buf)
{
    const MappedRamLoadBlock *b = &g_array_index(z->load->blocks, MappedRamLoadBlock, i);
    uint64_t done = 0;

    while (done < n) {
        struct uffdio_copy copy = {
            .dst = (uintptr_t)b->block->host + ((first + done) << TARGET_PAGE_BITS),
            .src = (uintptr_t)buf + (done << TARGET_PAGE_BITS),
            .len = (n - done) << TARGET_PAGE_BITS,
        };
        int err = ioctl(z->uffd, UFFDIO_COPY, &copy) < 0 ? errno : 0;
        if (copy.copy > 0) {
            done += (uint64_t)copy.copy >> TARGET_PAGE_BITS;
        } else if (err == EEXIST) {
            /* Somebody else has put it in, and may not have woken all. */
            struct uffdio_range range = { .start = copy.dst, .len = TARGET_PAGE_SIZE };
            ioctl(z->uffd, UFFDIO_WAKE, &range);
            done++;
        } else if (err != EAGAIN) {
            return err;
        }
    }
    __atomic_fetch_sub(&z->load->pages_left, mark_present(z->present[i], first, n), __ATOMIC_RELAXED);
    return 0;
}

/* ---- reading ---- */

static bool read_pages(const MappedRamLoad *load, const MappedRamLoadBlock *b, uint64_t first, uint64_t n,
                       uint8_t *buf, GError **errp)
{
    size_t len = n << TARGET_PAGE_BITS, done = 0;

    while (done < len) {
        FileIoRequest at = {
            .buf = buf + done,
            .len = len - done,
            .file_offset = b->pages_offset + (first << TARGET_PAGE_BITS) + done,
            .block = b->block,
            .block_offset = (first << TARGET_PAGE_BITS) + done,
        };
        ssize_t got = fault_point("mapped-ram-lazy-read", NULL)
            ? (errno = EIO, -1)
            : pread(load->config.pages->fd, at.buf, at.len, (off_t)at.file_offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            file_io_set_error(errp, false, &at, got < 0 ? errno : 0);
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

static bool fill(MappedRamLazy *z, guint i, uint64_t first, uint64_t n, uint8_t *buf, GError **errp)
{
    const MappedRamLoadBlock *b = &g_array_index(z->load->blocks, MappedRamLoadBlock, i);

    if (!read_pages(z->load, b, first, n, buf, errp)) {
        return false;
    }
    int err = put_pages(z, i, first, n, buf);
    if (err) {
        error_set_errno(errp, GODWIT_ERROR_IO, err,
                        "Unable to place page 0x%" G_GINT64_MODIFIER "x of RAM block '%s'",
                        first << TARGET_PAGE_BITS, b->block->idstr);
    }
    return !err;
}

/* ---- the fault thread ---- */

static bool find_page(const MappedRamLoad *load, uint64_t address, guint *i, uint64_t *page)
{
    for (*i = 0; *i < load->blocks->len; (*i)++) {
        const RAMBlock *block = g_array_index(load->blocks, MappedRamLoadBlock, *i).block;
        uint64_t offset = address - (uintptr_t)block->host;
        if (offset < block->used_length) {
            *page = offset >> TARGET_PAGE_BITS;
            return true;
        }
    }
    return false;
}

static bool serve(MappedRamLazy *z, guint i, uint64_t page, GError **errp)
{
    const MappedRamLoadBlock *b = &g_array_index(z->load->blocks, MappedRamLoadBlock, i);

    if (!bitmap_test(b->data, page)) {
        put_zero(z, (uintptr_t)b->block->host + (page << TARGET_PAGE_BITS));
        return true;
    }
    /* The neighbours that are in the file, up to the first that is not. */
    uint64_t low = page - page % FAULT_PAGES, high = MIN(low + FAULT_PAGES, b->pages);
    uint64_t first = page;
    while (first > low && bitmap_test(b->data, first - 1)) {
        first--;
    }
    uint64_t end = bitmap_find_clear(b->data, page, high);
    return fill(z, i, first, end - first, z->fault_buf, errp);
}

static void fault(MappedRamLazy *z, uint64_t address)
{
    GError *error = NULL;
    uint64_t page;
    guint i;

    address &= ~((uint64_t)TARGET_PAGE_SIZE - 1);
    if (!find_page(z->load, address, &i, &page)) {
        return;     /* nothing else is registered */
    }
    if (serve(z, i, page, &error)) {
        return;
    }
    mapped_ram_load_fail(z->load, error);
    if (__atomic_load_n(&z->release, __ATOMIC_ACQUIRE)) {
        put_zero(z, address);
    } else {
        g_array_append_val(z->held, address);
    }
}

static void take_messages(MappedRamLazy *z)
{
    struct uffd_msg messages[MESSAGES];
    ssize_t len = read(z->uffd, messages, sizeof(messages));

    for (ssize_t i = 0; i < len / (ssize_t)sizeof(messages[0]); i++) {
        if (messages[i].event == UFFD_EVENT_PAGEFAULT) {
            fault(z, messages[i].arg.pagefault.address);
        }
    }
}

static void let_go(MappedRamLazy *z)
{
    __atomic_store_n(&z->release, 1, __ATOMIC_RELEASE);
    for (guint i = 0; i < z->held->len; i++) {
        put_zero(z, g_array_index(z->held, uint64_t, i));
    }
    g_array_set_size(z->held, 0);
}

static gpointer fault_thread(gpointer opaque)
{
    MappedRamLazy *z = opaque;
    struct pollfd fds[2] = { { .fd = z->uffd, .events = POLLIN }, { .fd = z->wake, .events = POLLIN } };

    while (!__atomic_load_n(&z->quit, __ATOMIC_ACQUIRE)) {
        int ready = poll(fds, 2, z->held->len ? HOLD_MS : -1);
        if (ready == 0) {
            let_go(z);
        } else if (fds[0].revents) {
            take_messages(z);
        }
    }
    return NULL;
}

/* ---- readers ---- */

static bool read_unit(LazyReader *reader, uint64_t number, GError **errp)
{
    MappedRamLazy *z = reader->z;
    uint64_t page, end;
    const MappedRamLoadBlock *b = mapped_ram_load_unit(z->load, number, &page, &end);
    guint i = (guint)(b - (const MappedRamLoadBlock *)(void *)z->load->blocks->data);

    while ((page = bitmap_find_set(b->data, page, end)) < end) {
        if (is_present(z->present[i], page)) {
            page++;
            continue;
        }
        uint64_t limit = MIN(page + MAPPED_RAM_READ_PAGES, end);
        uint64_t n = bitmap_find_clear(b->data, page, limit) - page;
        if (mapped_ram_load_stopped(z->load) || !fill(z, i, page, n, reader->buf, errp)) {
            return false;
        }
        page += n;
    }
    return true;
}

static gpointer reader_thread(gpointer opaque)
{
    LazyReader *reader = opaque;
    MappedRamLoad *load = reader->z->load;
    GError *error = NULL;
    uint64_t number;

    while ((number = __atomic_fetch_add(&load->next_unit, 1, __ATOMIC_RELAXED)) < load->units) {
        if (!read_unit(reader, number, &error)) {
            if (!error) {
                g_set_error(&error, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "interrupted");
            }
            mapped_ram_load_fail(load, error);
            break;
        }
    }
    return NULL;
}

static void *aligned_pages(size_t pages)
{
    void *buf = NULL;
    return posix_memalign(&buf, TARGET_PAGE_SIZE, pages << TARGET_PAGE_BITS) == 0 ? buf : NULL;
}

static bool start_reader(LazyReader *reader, MappedRamLazy *z, unsigned id, GError **errp)
{
    g_autofree char *name = g_strdup_printf("mig/read_%u", id);

    reader->z = z;
    reader->buf = aligned_pages(MAPPED_RAM_READ_PAGES);
    if (!reader->buf) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "no memory to read pages into");
        return false;
    }
    reader->thread = g_thread_try_new(name, reader_thread, reader, errp);
    return reader->thread != NULL;
}

static bool read_rest(MappedRamLazy *z, GError **errp)
{
    MappedRamLoad *load = z->load;
    g_autofree LazyReader *readers = g_new0(LazyReader, load->config.readers);
    GError *error = NULL;
    unsigned n = 0;

    while (n < load->config.readers && start_reader(&readers[n], z, n, &error)) {
        n++;
    }
    if (n == 0) {
        mapped_ram_load_fail(load, g_steal_pointer(&error));
    }
    g_clear_error(&error);      /* fewer do as well */
    for (unsigned i = 0; i < load->config.readers; i++) {
        if (readers[i].thread) {
            g_thread_join(readers[i].thread);
        }
        free(readers[i].buf);
    }
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&load->lock);
    if (load->error) {
        g_propagate_error(errp, g_error_copy(load->error));
    }
    return !load->error;
}

/* ---- life ---- */

static void wake_fault_thread(MappedRamLazy *z)
{
    uint64_t one = 1;
    ssize_t n = write(z->wake, &one, sizeof(one));
    (void)n;
}

static void lazy_free(MappedRamLazy *z)
{
    MappedRamLoad *load = z->load;

    unregister_all(z);
    if (z->fault_thread) {
        __atomic_store_n(&z->quit, 1, __ATOMIC_RELEASE);
        wake_fault_thread(z);
        g_thread_join(z->fault_thread);
    }
    for (guint i = 0; i < load->blocks->len; i++) {
        bitmap_free(z->present[i], g_array_index(load->blocks, MappedRamLoadBlock, i).pages);
    }
    g_free(z->present);
    g_array_unref(z->held);
    free(z->fault_buf);
    if (z->uffd >= 0) {
        close(z->uffd);
    }
    if (z->wake >= 0) {
        close(z->wake);
    }
    g_free(z);
}

static bool start(MappedRamLazy *z, GError **errp)
{
    GArray *blocks = z->load->blocks;

    if (fault_point("mapped-ram-lazy-start", errp) || !start_api(z, errp)) {
        return false;
    }
    if (z->wake < 0 || !z->fault_buf) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "out of memory or descriptors");
        return false;
    }
    for (guint i = 0; i < blocks->len; i++) {
        if (!check_kind(g_array_index(blocks, MappedRamLoadBlock, i).block, errp)) {
            return false;
        }
    }
    for (guint i = 0; i < blocks->len; i++) {
        const RAMBlock *block = g_array_index(blocks, MappedRamLoadBlock, i).block;
        if (!empty_block(block, errp) || !register_block(z, block, errp)) {
            return false;
        }
    }
    z->fault_thread = g_thread_try_new("mig/fault", fault_thread, z, errp);
    return z->fault_thread != NULL;
}

bool mapped_ram_lazy_start(MappedRamLoad *load, GError **errp)
{
    MappedRamLazy *z = g_new0(MappedRamLazy, 1);

    z->load = load;
    z->uffd = -1;
    z->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    z->fault_buf = aligned_pages(FAULT_PAGES);
    z->held = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    z->present = g_new0(uint64_t *, load->blocks->len);
    for (guint i = 0; i < load->blocks->len; i++) {
        z->present[i] = bitmap_new(g_array_index(load->blocks, MappedRamLoadBlock, i).pages);
    }
    if (!start(z, errp)) {
        lazy_free(z);
        return false;
    }
    trace_mapped_ram_lazy_start(mapped_ram_load_left(load));
    load->lazy = z;
    __atomic_store_n(&load->backend, "userfaultfd", __ATOMIC_RELAXED);
    return true;
}

void mapped_ram_load_abandon(MappedRamLoad *load)
{
    if (load->lazy) {
        lazy_free(load->lazy);
        load->lazy = NULL;
    }
}

bool mapped_ram_load_finish(MappedRamLoad *load, void (*stop_guest)(void *opaque), void *opaque,
                            GError **errp)
{
    MappedRamLazy *z = load->lazy;
    bool ok = read_rest(z, errp);

    if (!ok) {
        stop_guest(opaque);
    }
    load->lazy = NULL;
    lazy_free(z);
    trace_mapped_ram_lazy_end(ok, mapped_ram_load_left(load));
    return ok;
}
