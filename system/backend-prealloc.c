/* SPDX-License-Identifier: BSD-2-Clause */
/* Preallocation: every page of a backend gets its memory now, and keeps what is in it. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "system/backend-internal.h"
#include "util/error.h"
#include "util/fault.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* A thread's share is a multiple of this, so that two do not meet in one huge page. */
#define SHARE_ALIGN (UINT64_C(2) << 20)

typedef struct Share {
    GThread *thread;
    uint8_t *start;
    uint64_t len;
    size_t page_size;
    bool writable;
    int err;            /* errno, set by the thread */
} Share;

/*
 * For kernels without MADV_POPULATE_WRITE (before 5.14).  The kernel reads and writes one byte of each page
 * for us: if it has no page to give, that is an error and not a SIGBUS.
 */
static int touch_pages(const Share *share)
{
    for (uint64_t at = 0; at < share->len; at += share->page_size) {
        uint8_t byte;
        struct iovec here = { &byte, 1 }, there = { share->start + at, 1 };
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1 ||
            (share->writable && process_vm_writev(getpid(), &here, 1, &there, 1, 0) != 1)) {
            return errno == EFAULT ? ENOMEM : errno;
        }
    }
    return 0;
}

static gpointer run_share(gpointer data)
{
    Share *share = data;
    int advice = share->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

    while (madvise(share->start, share->len, advice) < 0) {
        if (errno == EINTR || errno == EAGAIN) {
            continue;
        }
        /* EFAULT is what a full file system or an empty pool of huge pages gives. */
        share->err = errno == EINVAL ? touch_pages(share) : errno == EFAULT ? ENOMEM : errno;
        break;
    }
    return NULL;
}

/* Cuts the block into at most @n shares; returns how many there are. */
static unsigned cut_shares(const RAMBlock *block, Share *shares, unsigned n)
{
    uint64_t align = MAX(SHARE_ALIGN, block->page_size);
    uint64_t each = (block->used_length / n + align - 1) / align * align;
    unsigned count = 0;

    for (uint64_t at = 0; at < block->used_length; at += each) {
        shares[count++] = (Share){
            .start = block->host + at,
            .len = MIN(each, block->used_length - at),
            .page_size = block->page_size,
            .writable = !(block->readonly && block->shared),
        };
    }
    return count;
}

bool backend_prealloc(const RAMBlock *block, unsigned threads, GError **errp)
{
    threads = MIN(threads, MEMORY_BACKEND_MAX_PREALLOC_THREADS);
    g_autofree Share *shares = g_new0(Share, threads + 1);
    unsigned count = cut_shares(block, shares, threads);
    int err = 0;

    if (fault_point("memory-backend-prealloc", errp)) {
        return false;
    }
    /* The first share is ours, and any for which there is no thread. */
    for (unsigned i = 1; i < count; i++) {
        shares[i].thread = g_thread_try_new("prealloc", run_share, &shares[i], NULL);
    }
    for (unsigned i = 0; i < count; i++) {
        if (shares[i].thread) {
            g_thread_join(shares[i].thread);
        } else {
            run_share(&shares[i]);
        }
        err = err ? err : shares[i].err;
    }
    if (err) {
        error_set_errno(errp, GODWIT_ERROR_IO, err, "touching %" G_GUINT64_FORMAT " bytes with %u threads",
                        block->used_length, count);
    }
    return !err;
}
