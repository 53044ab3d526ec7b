/* SPDX-License-Identifier: BSD-2-Clause */
/* Bitmaps of 64-bit words, handled in runs: the dirty bitmap's arithmetic. */
#ifndef GODWIT_UTIL_BITMAP_H
#define GODWIT_UTIL_BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Bit i is bit i % 64 of word i / 64.  A bitmap of n bits has BITMAP_WORDS(n)
 * words; the unused high bits of its last word are always zero.  All ranges are
 * [start, start + count) in bits.  The plain functions belong to one thread;
 * those named atomic may run beside each other and beside single readers.
 */
#define BITMAP_WORDS(nbits) (((size_t)(nbits) + 63) / 64)

/* A zeroed bitmap of @nbits, never NULL, to be freed with bitmap_free().  Backed by mmap when large. */
uint64_t *bitmap_new(size_t nbits);
void bitmap_free(uint64_t *map, size_t nbits);

bool bitmap_test(const uint64_t *map, size_t bit);
void bitmap_set(uint64_t *map, size_t start, size_t count);
void bitmap_clear(uint64_t *map, size_t start, size_t count);

/* The first set (clear) bit at or after @start and below @end, or @end if there is none. */
size_t bitmap_find_set(const uint64_t *map, size_t start, size_t end);
size_t bitmap_find_clear(const uint64_t *map, size_t start, size_t end);

/* The last set bit at or after @start and below @end, or @end if there is none. */
size_t bitmap_find_last_set(const uint64_t *map, size_t start, size_t end);

/* The number of set bits in the range. */
size_t bitmap_count(const uint64_t *map, size_t start, size_t count);

/*
 * ORs @count bits of @src, beginning at bit @src_start, into @dst at @dst_start,
 * a word at a time whatever the two alignments.  Returns how many bits of @dst
 * went from clear to set.
 */
size_t bitmap_or(uint64_t *dst, size_t dst_start,
                 const uint64_t *src, size_t src_start, size_t count);

/*
 * Makes @count bits of @dst, from @dst_start on, equal to those of @src from @src_start on, a word at a time
 * whatever the two alignments; other bits of @dst stay.  The maps must not overlap.  Returns how many of the
 * copied bits are set.
 */
size_t bitmap_copy(uint64_t *dst, size_t dst_start,
                   const uint64_t *src, size_t src_start, size_t count);

/* Sets bits so that another thread may fetch them at any moment (release order). */
void bitmap_set_atomic(uint64_t *map, size_t start, size_t count);

/* Clears bits so that another thread may set or clear others in the same words at any moment. */
void bitmap_clear_atomic(uint64_t *map, size_t start, size_t count);

/*
 * Fetches and clears the range of @src (acquire order; other threads may be
 * setting bits) and ORs what was set into @dst at @dst_start.  Returns how many
 * bits of @dst went from clear to set.
 */
size_t bitmap_fetch_clear_or(uint64_t *dst, size_t dst_start,
                             uint64_t *src, size_t src_start, size_t count);

/*
 * For tests and benchmarks, with no other thread about: uses the inner loops number @i, counted from 0, the
 * fastest first, if this CPU can; otherwise the choice stays.  False if there is no number @i in this build.
 */
bool bitmap_select(unsigned i);

/* The name of those in use: "avx2", "popcnt" or "plain". */
const char *bitmap_select_name(void);

#endif
