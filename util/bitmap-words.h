/* SPDX-License-Identifier: BSD-2-Clause */
/* Inner loops of the bitmaps, in one version per instruction set. */
#ifndef GODWIT_UTIL_BITMAP_WORDS_H
#define GODWIT_UTIL_BITMAP_WORDS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Each works on @n whole words of @dst.  Word i of the source is the 64 bits of @src from bit i * 64 + @shift
 * on, 0 <= @shift < 64: src[n] is read if @shift is not 0, and then it holds bits that are wanted.
 */
typedef struct BitmapWords {
    const char *name;
    /* ORs; returns how many bits of @dst became set. */
    size_t (*or_bits)(uint64_t *dst, const uint64_t *src, unsigned shift, size_t n);
    /* Copies; returns how many bits are set. */
    size_t (*copy)(uint64_t *dst, const uint64_t *src, unsigned shift, size_t n);
    /* How many bits are set. */
    size_t (*count)(const uint64_t *src, size_t n);
    /*
     * Fetches and clears all of @src, which other threads are setting bits of, and ORs it into @dst from bit
     * @shift of its first word on; dst[n] is touched if @shift is not 0 and bits get there.  Returns how many
     * bits became set.
     */
    size_t (*fetch_clear)(uint64_t *dst, unsigned shift, uint64_t *src, size_t n);
} BitmapWords;

/* Chosen before main() runs: the best that this CPU has.  bitmap_select() changes it, for tests. */
extern const BitmapWords *bitmap_words;

#endif
