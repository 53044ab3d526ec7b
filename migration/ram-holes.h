/* SPDX-License-Identifier: BSD-2-Clause */
/* Which pages of shared guest memory do not exist yet: they are zero, and need not be looked at. */
#ifndef GODWIT_MIGRATION_RAM_HOLES_H
#define GODWIT_MIGRATION_RAM_HOLES_H

#include "system/ramblock.h"

#include <sys/uio.h>

/*
 * Memory that is shared has a file behind it, of tmpfs for memory-backend-memfd and for files in /dev/shm.
 * A page that nobody has written to is a hole in that file.  Reading it through the mapping would make it: a
 * page fault, and memory spent on zeroes.  The file can be asked instead.
 */

/* Whether the file behind @block, if any, can be asked. */
bool ram_holes_known(const RAMBlock *block);

/*
 * The first page at or after @page that is no hole; @page itself if it is none, the number of pages if there
 * are only holes.  True until somebody writes.  Of a block with ram_holes_known(); any thread.
 */
uint64_t ram_hole_end(const RAMBlock *block, uint64_t page);

/* Who asks in vain should wait longer each time: for one page, two, four, ..., at most this many. */
#define RAM_HOLES_PATIENCE 512

/* Whether this process may write to files of any length without a signal. */
bool ram_holes_may_write(void);

/*
 * Writes to the file behind @block, at @offset of the block: that makes pages with their content at once,
 * where a write through the mapping would fault, clear the page and then fill it.  @iov is used up on the
 * way. Returns 0 or an errno.  Any thread.
 */
int ram_holes_write(const RAMBlock *block, uint64_t offset, struct iovec *iov, size_t n);

/* Makes a page zero; one that is already stays untouched, so that it costs no memory.  Any thread. */
void ram_zero_page(uint8_t *page);

#endif
