/* SPDX-License-Identifier: BSD-2-Clause */
/* Holes in the file behind shared guest memory. */
#include "migration/ram-holes.h"

#include "util/buffer-is-zero.h"
#include "util/iov.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

bool ram_holes_known(const RAMBlock *block)
{
    struct statfs fs;

    /* Of other file systems we do not know that memory written through a mapping is data at once. */
    return block->fd >= 0 && block->shared && fstatfs(block->fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

uint64_t ram_hole_end(const RAMBlock *block, uint64_t page)
{
    off_t base = block->fd_offset;
    off_t at = base + (off_t)(page << TARGET_PAGE_BITS);

    /* Nobody uses the position of this descriptor, so that moving it does not matter. */
    off_t data = lseek(block->fd, at, SEEK_DATA);
    if (data < 0) {
        return errno == ENXIO ? ramblock_pages(block) : page;
    }
    return MIN((uint64_t)(data - base) >> TARGET_PAGE_BITS, ramblock_pages(block));
}

bool ram_holes_may_write(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

int ram_holes_write(const RAMBlock *block, uint64_t offset, struct iovec *iov, size_t n)
{
    off_t at = (off_t)(block->fd_offset + offset);

    while (n) {
        ssize_t done = pwritev(block->fd, iov, n, at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return done < 0 ? errno : EIO;
        }
        at += done;
        iov_advance(&iov, &n, done);
    }
    return 0;
}

void ram_zero_page(uint8_t *page)
{
    if (!buffer_is_zero(page, TARGET_PAGE_SIZE)) {
        memset(page, 0, TARGET_PAGE_SIZE);
    }
}
