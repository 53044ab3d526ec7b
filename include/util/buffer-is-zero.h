/* SPDX-License-Identifier: BSD-2-Clause */
/* Is this memory all zero?  The test that each scanned page goes through. */
#ifndef GODWIT_UTIL_BUFFER_IS_ZERO_H
#define GODWIT_UTIL_BUFFER_IS_ZERO_H

#include <stdbool.h>
#include <stddef.h>

/*
 * True if all @len bytes at @buf are zero.  Any alignment, any length.  Looks at
 * the first, middle and last bytes before it reads the rest; uses the widest vectors that
 * this CPU has (chosen once).  The memory may change meanwhile: then the answer
 * is that of some moment during the call, or false.
 */
bool buffer_is_zero(const void *buf, size_t len);

/* The name of the implementation in use ("avx512", "avx2", "neon", "scalar"), for logs. */
const char *buffer_is_zero_name(void);

/*
 * For tests and benchmarks, with no other thread about: uses implementation @i, counted from 0,
 * the widest first, if this CPU can; otherwise the choice stays.  False if there is no implementation @i in
 * this build.
 */
bool buffer_is_zero_select(unsigned i);

#endif
