/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading the pages of a mapped-ram file into guest memory before the guest runs. */

/*
 * Threads take units of 4 MiB from a shared counter. Runs of set bits are read straight into guest memory,
 * each thread with an engine of its own. Pages whose bit is clear are made zero, unless they are known to be
 * fresh: a hole of the file behind shared memory, or private memory that has no page yet. Those stay
 * untouched, so that they cost nothing.
 */
#include "migration/mapped-ram-load.h"

#include "migration/ram-holes.h"
#include "trace-migration.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

#include <fcntl.h>
#include <unistd.h>

/* Entries of /proc/self/pagemap that are looked at together. */
#define PAGEMAP_ENTRIES 512
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define PAGEMAP_SWAPPED (UINT64_C(1) << 62)

typedef struct Reader {
    MappedRamLoad *load;
    GThread *thread;
    FileIo *io;
    int pagemap;                /* -1: not to be had */
} Reader;

/* ---- zero pages ---- */

static void zero_pages(RAMBlock *block, uint64_t first, uint64_t end)
{
    for (uint64_t page = first; page < end; page++) {
        ram_zero_page(block->host + (page << TARGET_PAGE_BITS));
    }
}

/* Shared memory: holes of the file behind it are zero and stay holes. */
static void zero_shared(RAMBlock *block, uint64_t first, uint64_t end)
{
    uint64_t patience = 1;

    while (first < end) {
        uint64_t hole_end = MIN(ram_hole_end(block, first), end);
        if (hole_end > first) {
            first = hole_end;
            patience = 1;
        } else {
            uint64_t next = MIN(first + patience, end);
            zero_pages(block, first, next);
            first = next;
            patience = MIN(2 * patience, RAM_HOLES_PATIENCE);
        }
    }
}

/* Private memory without a file: what has no page yet is zero. */
static void zero_private(const Reader *reader, RAMBlock *block, uint64_t first, uint64_t end)
{
    uint64_t entries[PAGEMAP_ENTRIES];

    /* Guest pages and host pages are of one size wherever this is used. */
    while (first < end) {
        uint64_t n = MIN(end - first, PAGEMAP_ENTRIES);
        uint64_t at = ((uintptr_t)block->host >> TARGET_PAGE_BITS) + first;
        ssize_t len = (ssize_t)(n * sizeof(entries[0]));
        if (pread(reader->pagemap, entries, (size_t)len, (off_t)(at * sizeof(entries[0]))) != len) {
            zero_pages(block, first, end);
            return;
        }
        for (uint64_t i = 0; i < n; i++) {
            if (entries[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) {
                zero_pages(block, first + i, first + i + 1);
            }
        }
        first += n;
    }
}

static void make_zero(const Reader *reader, RAMBlock *block, uint64_t first, uint64_t end)
{
    if (block->readonly) {
        return;     /* nobody has written to it */
    }
    if (ram_holes_known(block)) {
        zero_shared(block, first, end);
    } else if (block->fd < 0 && !block->shared && reader->pagemap >= 0) {
        zero_private(reader, block, first, end);
    } else {
        zero_pages(block, first, end);
    }
}

/* ---- reader threads ---- */

static bool read_run(const Reader *reader, const MappedRamLoadBlock *b, uint64_t first, uint64_t end,
                     GError **errp)
{
    while (first < end) {
        uint64_t n = MIN(end - first, MAPPED_RAM_READ_PAGES - first % MAPPED_RAM_READ_PAGES);
        uint64_t offset = first << TARGET_PAGE_BITS;
        FileIoRequest request = {
            .buf = b->block->host + offset,
            .len = n << TARGET_PAGE_BITS,
            .file_offset = b->pages_offset + offset,
            .block = b->block,
            .block_offset = offset,
        };
        if (!file_io_submit(reader->io, &request, errp)) {
            return false;
        }
        __atomic_fetch_sub(&reader->load->pages_left, n, __ATOMIC_RELAXED);
        first += n;
    }
    return true;
}

static bool read_unit(const Reader *reader, uint64_t number, GError **errp)
{
    uint64_t page, end;
    const MappedRamLoadBlock *b = mapped_ram_load_unit(reader->load, number, &page, &end);

    while (page < end) {
        uint64_t data = bitmap_find_set(b->data, page, end);
        if (data > page) {
            make_zero(reader, b->block, page, data);
        }
        page = bitmap_find_clear(b->data, data, end);
        if (!read_run(reader, b, data, page, errp)) {
            return false;
        }
    }
    return true;
}

static bool read_units(const Reader *reader, GError **errp)
{
    MappedRamLoad *load = reader->load;

    for (;;) {
        uint64_t number = __atomic_fetch_add(&load->next_unit, 1, __ATOMIC_RELAXED);
        if (number >= load->units) {
            return file_io_drain(reader->io, errp);
        }
        if (mapped_ram_load_stopped(load)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "interrupted");
            return false;
        }
        if (!read_unit(reader, number, errp)) {
            return false;
        }
    }
}

static gpointer reader_thread(gpointer opaque)
{
    Reader *reader = opaque;
    GError *error = NULL;

    if (!read_units(reader, &error)) {
        mapped_ram_load_fail(reader->load, error);
    }
    return NULL;
}

static bool start_reader(Reader *reader, MappedRamLoad *load, unsigned id, GError **errp)
{
    FileIoConfig config = {
        .fd = load->config.pages->fd,
        .interrupted = mapped_ram_load_stopped,
        .opaque = load,
    };
    g_autofree char *name = g_strdup_printf("mig/read_%u", id);

    reader->load = load;
    bool one_size = sysconf(_SC_PAGESIZE) == TARGET_PAGE_SIZE;
    reader->pagemap = one_size ? open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC) : -1;
    reader->io = file_io_new(&config, errp);
    if (!reader->io) {
        return false;
    }
    __atomic_store_n(&load->backend, file_io_backend(reader->io), __ATOMIC_RELAXED);
    reader->thread = g_thread_try_new(name, reader_thread, reader, errp);
    return reader->thread != NULL;
}

static void stop_reader(Reader *reader)
{
    if (reader->thread) {
        g_thread_join(reader->thread);
    }
    file_io_free(reader->io);
    if (reader->load && reader->pagemap >= 0) {
        close(reader->pagemap);
    }
}

bool mapped_ram_read_all(MappedRamLoad *load, GError **errp)
{
    g_autofree Reader *readers = g_new0(Reader, load->config.readers);
    GError *error = NULL;

    if (fault_point("mapped-ram-read", errp)) {
        return false;
    }
    for (unsigned i = 0; i < load->config.readers && !error; i++) {
        if (!start_reader(&readers[i], load, i, &error)) {
            mapped_ram_load_fail(load, g_steal_pointer(&error));
            break;
        }
    }
    for (unsigned i = 0; i < load->config.readers; i++) {
        stop_reader(&readers[i]);
    }
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&load->lock);
    if (load->error) {
        g_propagate_error(errp, g_error_copy(load->error));
    }
    return !load->error;
}
