/* SPDX-License-Identifier: BSD-2-Clause */
/* From runs of pages to large writes, holes and bits of the file's bitmap. */

/*
 * Each page that is handled sets or clears its bit of @data: several threads do so in the same words, but
 * never for the same page between two barriers, since a round has each page once. @written remembers
 * where octets are; what is in it but not in @data is made a hole at the end of the round, when nothing is
 * under way.
 */
#include "migration/mapped-ram-writer.h"

#include "io/transport.h"
#include "migration/ram-holes.h"
#include "trace-migration.h"
#include "util/bitmap.h"
#include "util/buffer-is-zero.h"
#include "util/error.h"
#include "util/fault.h"

#include <errno.h>
#include <inttypes.h>

/* How far ahead of the zero test memory is prefetched. */
#define PREFETCH (4 * TARGET_PAGE_SIZE)

/* ---- writing ---- */

bool mapped_ram_writer_flush(MappedRamWriter *w, GError **errp)
{
    if (!w->count) {
        return true;
    }
    uint64_t offset = w->first << TARGET_PAGE_BITS;
    FileIoRequest request = {
        .buf = w->block->block->host + offset,
        .len = w->count << TARGET_PAGE_BITS,
        .file_offset = w->block->pages_offset + offset,
        .block = w->block->block,
        .block_offset = offset,
    };
    uint64_t count = w->count;

    w->count = 0;
    if (!file_io_submit(w->io, &request, errp)) {
        return false;
    }
    w->bytes += request.len;
    ram_stats_add(&w->stats->normal_pages, count);
    ram_stats_add(&w->stats->transferred, request.len);
    if (w->counters) {
        ram_stats_add(&w->stats->multifd_bytes, request.len);
        ram_stats_add(&w->counters->bytes, request.len);
        ram_stats_add(&w->counters->packets, 1);
        ram_stats_add(&w->counters->normal_pages, count);
    }
    return true;
}

bool mapped_ram_writer_drain(MappedRamWriter *w, GError **errp)
{
    return mapped_ram_writer_flush(w, errp) && file_io_drain(w->io, errp);
}

static bool put_data(MappedRamWriter *w, MappedRamSaveBlock *b, uint64_t first, uint64_t count, GError **errp)
{
    bitmap_set_atomic(b->data, first, count);
    bitmap_set_atomic(b->written, first, count);
    if (w->count && (w->block != b || w->first + w->count != first) && !mapped_ram_writer_flush(w, errp)) {
        return false;
    }
    while (count) {
        uint64_t n = MIN(count, w->write_pages - first % w->write_pages);
        if (!w->count) {
            w->block = b;
            w->first = first;
        }
        w->count += n;
        first += n;
        count -= n;
        if (first % w->write_pages == 0 && !mapped_ram_writer_flush(w, errp)) {
            return false;
        }
    }
    return true;
}

static void put_zero(MappedRamWriter *w, MappedRamSaveBlock *b, uint64_t first, uint64_t count)
{
    bitmap_clear_atomic(b->data, first, count);
    ram_stats_add(&w->stats->zero_pages, count);
    if (w->counters) {
        ram_stats_add(&w->counters->zero_pages, count);
    }
}

/* ---- the zero test ---- */

typedef struct ZeroScan {
    const MappedRamSaveBlock *b;
    bool ask;                   /* the file behind the block may be asked for holes */
    bool likely;                /* the page before was zero, or there was none */
    uint64_t hole_end;          /* the last answer */
    uint64_t zeroes;            /* zero pages that were looked at, */
    uint64_t ask_at;            /* how many of them have to be before the next question, */
    uint64_t patience;          /* and how many after that */
} ZeroScan;

static bool in_hole(ZeroScan *scan, uint64_t page)
{
    if (page < scan->hole_end) {
        return true;
    }
    if (!scan->ask || !scan->likely || scan->zeroes < scan->ask_at) {
        return false;
    }
    scan->hole_end = ram_hole_end(scan->b->block, page);
    scan->ask_at = scan->zeroes + scan->patience;
    scan->patience = scan->hole_end > page ? 1 : MIN(2 * scan->patience, RAM_HOLES_PATIENCE);
    return page < scan->hole_end;
}

static bool is_zero(ZeroScan *scan, uint64_t page)
{
    const uint8_t *at = scan->b->block->host + (page << TARGET_PAGE_BITS);

    if (in_hole(scan, page)) {
        return true;
    }
    /* Where the test of a page that comes soon will look first. */
    __builtin_prefetch(at + PREFETCH);
    __builtin_prefetch(at + PREFETCH + TARGET_PAGE_SIZE / 2);
    __builtin_prefetch(at + PREFETCH + TARGET_PAGE_SIZE - 1);
    scan->likely = buffer_is_zero(at, TARGET_PAGE_SIZE);
    scan->zeroes += scan->likely;
    return scan->likely;
}

/*
 * In the first round pages that nobody has written to are known from the file behind the block, without
 * making them by reading.  The log has been cleared for them: a write after the question is logged.
 */
bool mapped_ram_writer_run(MappedRamWriter *w, MappedRamSaveBlock *b, const MappedRamRun *run, GError **errp)
{
    uint64_t first = run->first, end = first + run->count;
    ZeroScan scan = { .b = b, .ask = b->holes_known && run->first_round, .likely = true, .patience = 1 };

    if (!w->detect_zero) {
        return put_data(w, b, first, run->count, errp);
    }
    bool zero = is_zero(&scan, first);
    while (first < end) {
        uint64_t page = first + 1;
        bool next = zero;
        while (page < end && (next = is_zero(&scan, page)) == zero) {
            page++;
        }
        if (zero) {
            put_zero(w, b, first, page - first);
        } else if (!put_data(w, b, first, page - first, errp)) {
            return false;
        }
        first = page;
        zero = next;
    }
    return true;
}

/* ---- holes ---- */

static bool write_zeroes(Channel *file, uint64_t offset, uint64_t len, GError **errp)
{
    static const uint8_t zeroes[16 * TARGET_PAGE_SIZE];

    while (len) {
        size_t n = MIN(len, sizeof(zeroes));
        struct iovec iov = { (void *)(uintptr_t)zeroes, n };
        if (!channel_pwritev_all(file, &iov, 1, (off_t)offset, errp)) {
            return false;
        }
        offset += n;
        len -= n;
    }
    return true;
}

static bool make_hole(MappedRamSaveBlock *b, Channel *file, uint64_t first, uint64_t end, GError **errp)
{
    uint64_t offset = b->pages_offset + (first << TARGET_PAGE_BITS);
    uint64_t len = (end - first) << TARGET_PAGE_BITS;

    trace_mapped_ram_hole(b->block->idstr, first, end - first);
    if (fault_point("mapped-ram-hole", errp)) {
        return false;
    }
    int errnum = channel_file_punch_hole(file, (off_t)offset, (off_t)len);
    if (errnum == EOPNOTSUPP || errnum == ENOSYS) {
        if (!write_zeroes(file, offset, len, errp)) {
            return false;
        }
    } else if (errnum) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum,
                        "Unable to make a hole of page 0x%" PRIx64 " of RAM block '%s' at offset 0x%" PRIx64
                        " of the file", first << TARGET_PAGE_BITS, b->block->idstr, offset);
        return false;
    }
    bitmap_clear(b->written, first, end - first);
    return true;
}

bool mapped_ram_make_holes(MappedRamSaveBlock *b, Channel *file, GError **errp)
{
    uint64_t first = 0, end = 0;        /* a hole that may grow */

    for (size_t i = 0; !b->ignored && i < BITMAP_WORDS(b->pages); i++) {
        uint64_t stale = b->written[i] & ~b->data[i];
        for (; stale; stale &= stale - 1) {
            uint64_t page = i * 64 + (uint64_t)__builtin_ctzll(stale);
            if (page != end) {
                if (end > first && !make_hole(b, file, first, end, errp)) {
                    return false;
                }
                first = page;
            }
            end = page + 1;
        }
    }
    return end == first || make_hole(b, file, first, end, errp);
}

bool mapped_ram_write_bitmap(const MappedRamSaveBlock *b, Channel *file, GError **errp)
{
    size_t words = BITMAP_WORDS(b->pages);
    g_autofree uint64_t *octets = g_new(uint64_t, words);

    for (size_t i = 0; i < words; i++) {
        octets[i] = GUINT64_TO_LE(b->data[i]);
    }
    struct iovec iov = { octets, words * sizeof(uint64_t) };
    if (!channel_pwritev_all(file, &iov, 1, (off_t)b->bitmap_offset, errp)) {
        g_prefix_error(errp, "the bitmap of RAM block '%s' at offset 0x%" PRIx64 " of the file: ",
                       b->block->idstr, b->bitmap_offset);
        return false;
    }
    return true;
}
