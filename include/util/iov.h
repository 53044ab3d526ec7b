/* SPDX-License-Identifier: BSD-2-Clause */
/* Vectors of pieces of memory that are worked off bit by bit. */
#ifndef GODWIT_UTIL_IOV_H
#define GODWIT_UTIL_IOV_H

#include <stddef.h>
#include <sys/uio.h>

/* Takes @done bytes and all empty elements off the front of the vector; @done is at most what it holds. */
static inline void iov_advance(struct iovec **iov, size_t *n, size_t done)
{
    while (*n && done >= (*iov)->iov_len) {
        done -= (*iov)->iov_len;
        (*iov)++;
        (*n)--;
    }
    if (done) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + done;
        (*iov)->iov_len -= done;
    }
}

#endif
