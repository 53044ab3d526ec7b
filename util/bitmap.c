/* SPDX-License-Identifier: BSD-2-Clause */
/* Bitmaps of 64-bit words, handled in runs. */
#include "util/bitmap.h"

#include <glib.h>
#include <string.h>
#include <sys/mman.h>

#include "bitmap-words.h"

#define INLINE static inline __attribute__((always_inline))

/*
 * From this size on a bitmap is mapped, so that words never touched cost no memory and freeing gives it back.
 */
#define MMAP_THRESHOLD (256 * 1024)

/* The bits of a word from @from up to but without @to; 0 <= from < to <= 64. */
INLINE uint64_t mask(unsigned from, unsigned to)
{
    return (~UINT64_C(0) << from) & (~UINT64_C(0) >> (64 - to));
}

/* One word of a range: its index and the bits of it that belong to the range. */
typedef struct WordRange {
    size_t pos;         /* in bits */
    size_t end;
    size_t word;
    uint64_t bits;
} WordRange;

INLINE bool word_range_next(WordRange *r)
{
    if (r->pos >= r->end) {
        return false;
    }
    unsigned from = r->pos % 64;
    unsigned n = MIN(64 - from, r->end - r->pos);

    r->word = r->pos / 64;
    r->bits = mask(from, from + n);
    r->pos += n;
    return true;
}

#define FOREACH_WORD(r, start, count) \
    for (WordRange r = { .pos = (start), .end = (start) + (count) }; word_range_next(&r);)

static size_t bitmap_bytes(size_t nbits)
{
    return BITMAP_WORDS(nbits) * sizeof(uint64_t);
}

uint64_t *bitmap_new(size_t nbits)
{
    size_t bytes = bitmap_bytes(nbits);

    if (bytes < MMAP_THRESHOLD) {
        return g_malloc0(MAX(bytes, sizeof(uint64_t)));
    }

    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        g_error("cannot map %zu bytes for a bitmap", bytes);    /* as g_malloc() does */
    }
    return map;
}

void bitmap_free(uint64_t *map, size_t nbits)
{
    size_t bytes = bitmap_bytes(nbits);

    if (!map) {
        return;
    }
    if (bytes < MMAP_THRESHOLD) {
        g_free(map);
    } else {
        munmap(map, bytes);
    }
}

bool bitmap_test(const uint64_t *map, size_t bit)
{
    return map[bit / 64] >> (bit % 64) & 1;
}

void bitmap_set(uint64_t *map, size_t start, size_t count)
{
    FOREACH_WORD(r, start, count) {
        map[r.word] |= r.bits;
    }
}

void bitmap_clear(uint64_t *map, size_t start, size_t count)
{
    FOREACH_WORD(r, start, count) {
        map[r.word] &= ~r.bits;
    }
}

/* The first bit at or after @start that differs from the bits of @flip (all zero or all one). */
INLINE size_t find(const uint64_t *map, size_t start, size_t end, uint64_t flip)
{
    if (start >= end) {
        return end;
    }

    size_t word = start / 64;
    size_t n_words = BITMAP_WORDS(end);
    uint64_t bits = (map[word] ^ flip) & (~UINT64_C(0) << (start % 64));

    while (!bits) {
        word++;
        while (word + 4 <= n_words && !((map[word] ^ flip) | (map[word + 1] ^ flip) |
                                        (map[word + 2] ^ flip) | (map[word + 3] ^ flip))) {
            word += 4;
        }
        if (word >= n_words) {
            return end;
        }
        bits = map[word] ^ flip;
    }
    return MIN(word * 64 + __builtin_ctzll(bits), end);
}

size_t bitmap_find_set(const uint64_t *map, size_t start, size_t end)
{
    return find(map, start, end, 0);
}

size_t bitmap_find_clear(const uint64_t *map, size_t start, size_t end)
{
    return find(map, start, end, ~UINT64_C(0));
}

size_t bitmap_find_last_set(const uint64_t *map, size_t start, size_t end)
{
    for (size_t pos = end; pos > start;) {
        size_t word = (pos - 1) / 64;
        size_t low = MAX(word * 64, start);
        uint64_t bits = map[word] & mask(low % 64, (pos - 1) % 64 + 1);

        if (bits) {
            return word * 64 + 63 - __builtin_clzll(bits);
        }
        pos = low;
    }
    return end;
}

/* @n bits of @src from bit @pos on; no word is read that holds none of them. */
INLINE uint64_t get_bits(const uint64_t *src, size_t pos, unsigned n)
{
    unsigned shift = pos % 64;
    const uint64_t *s = src + pos / 64;
    uint64_t bits = s[0] >> shift;

    if (shift + n > 64) {
        bits |= s[1] << (64 - shift);
    }
    return bits & mask(0, n);
}

/*
 * A range of a bitmap in three parts: the bits before the first whole word, @words whole words, and the bits
 * after the last.
 */
typedef struct Parts {
    unsigned head;
    size_t words;
    unsigned tail;
} Parts;

static Parts parts(size_t start, size_t count)
{
    unsigned head = MIN((64 - start % 64) % 64, count);

    return (Parts){ head, (count - head) / 64, (count - head) % 64 };
}

size_t bitmap_count(const uint64_t *map, size_t start, size_t count)
{
    Parts p = parts(start, count);
    size_t body = start + p.head, end = body + p.words * 64, n = 0;

    if (p.head) {
        n += (unsigned)__builtin_popcountll(get_bits(map, start, p.head));
    }
    if (p.words) {
        n += bitmap_words->count(map + body / 64, p.words);
    }
    if (p.tail) {
        n += (unsigned)__builtin_popcountll(get_bits(map, end, p.tail));
    }
    return n;
}

/* ORs @bits into @dst at bit @pos; they may straddle two words.  Returns how many became set. */
INLINE size_t or_bits(uint64_t *dst, size_t pos, uint64_t bits)
{
    unsigned shift = pos % 64;
    uint64_t *d = dst + pos / 64;
    size_t n = 0;

    if (!bits) {
        return 0;
    }
    n = (unsigned)__builtin_popcountll((bits << shift) & ~d[0]);
    d[0] |= bits << shift;
    if (shift && bits >> (64 - shift)) {
        n += (unsigned)__builtin_popcountll((bits >> (64 - shift)) & ~d[1]);
        d[1] |= bits >> (64 - shift);
    }
    return n;
}

size_t bitmap_or(uint64_t *dst, size_t dst_start, const uint64_t *src, size_t src_start, size_t count)
{
    Parts p = parts(dst_start, count);
    size_t body = dst_start + p.head, src_body = src_start + p.head, bits = p.words * 64, n = 0;

    if (p.head) {
        n += or_bits(dst, dst_start, get_bits(src, src_start, p.head));
    }
    if (p.words) {
        n += bitmap_words->or_bits(dst + body / 64, src + src_body / 64, src_body % 64, p.words);
    }
    if (p.tail) {
        n += or_bits(dst, body + bits, get_bits(src, src_body + bits, p.tail));
    }
    return n;
}

/* Makes @n bits of @dst at bit @pos, which are in one word, those of @bits.  Returns how many are set. */
INLINE size_t put_bits(uint64_t *dst, size_t pos, unsigned n, uint64_t bits)
{
    unsigned low = pos % 64;
    uint64_t *d = dst + pos / 64;

    *d = (*d & ~mask(low, low + n)) | bits << low;
    return (unsigned)__builtin_popcountll(bits);
}

size_t bitmap_copy(uint64_t *dst, size_t dst_start, const uint64_t *src, size_t src_start, size_t count)
{
    Parts p = parts(dst_start, count);
    size_t body = dst_start + p.head, src_body = src_start + p.head, bits = p.words * 64, n = 0;

    if (p.head) {
        n += put_bits(dst, dst_start, p.head, get_bits(src, src_start, p.head));
    }
    if (p.words) {
        n += bitmap_words->copy(dst + body / 64, src + src_body / 64, src_body % 64, p.words);
    }
    if (p.tail) {
        n += put_bits(dst, body + bits, p.tail, get_bits(src, src_body + bits, p.tail));
    }
    return n;
}

/*
 * All atomic changes are read-modify-write operations, full words too.  A plain store of all ones
 * would end the release sequence of another thread that has set bits of
 * this word before: who fetches them would then not be sure to see what that thread had written.
 */
void bitmap_set_atomic(uint64_t *map, size_t start, size_t count)
{
    FOREACH_WORD(r, start, count) {
        __atomic_fetch_or(&map[r.word], r.bits, __ATOMIC_RELEASE);
    }
}

void bitmap_clear_atomic(uint64_t *map, size_t start, size_t count)
{
    FOREACH_WORD(r, start, count) {
        __atomic_fetch_and(&map[r.word], ~r.bits, __ATOMIC_ACQ_REL);
    }
}

/* Some bits of one word, as BitmapWords.fetch_clear() does with whole ones. */
static size_t fetch_clear_part(uint64_t *dst, size_t dst_pos, uint64_t *src, size_t src_pos, unsigned n)
{
    unsigned low = src_pos % 64;
    uint64_t *word = src + src_pos / 64;
    uint64_t bits = mask(low, low + n);

    if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & bits)) {
        return 0;
    }
    return or_bits(dst, dst_pos, (__atomic_fetch_and(word, ~bits, __ATOMIC_ACQUIRE) & bits) >> low);
}

size_t bitmap_fetch_clear_or(uint64_t *dst, size_t dst_start, uint64_t *src, size_t src_start, size_t count)
{
    Parts p = parts(src_start, count);
    size_t body = src_start + p.head, dst_body = dst_start + p.head, bits = p.words * 64, n = 0;

    if (p.head) {
        n += fetch_clear_part(dst, dst_start, src, src_start, p.head);
    }
    if (p.words) {
        n += bitmap_words->fetch_clear(dst + dst_body / 64, dst_body % 64, src + body / 64, p.words);
    }
    if (p.tail) {
        n += fetch_clear_part(dst, dst_body + bits, src, body + bits, p.tail);
    }
    return n;
}
