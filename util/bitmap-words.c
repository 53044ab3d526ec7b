/* SPDX-License-Identifier: BSD-2-Clause */
/* Inner loops of the bitmaps: AVX2, with the popcnt instruction, and plain. */
#include "bitmap-words.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "util/bitmap.h"

/* Bodies take on the target of the function that they are in. */
#define INLINE static inline __attribute__((always_inline))

/* ---- word by word ---- */

INLINE uint64_t shifted(const uint64_t *src, unsigned shift, size_t i)
{
    return shift ? src[i] >> shift | src[i + 1] << (64 - shift) : src[i];
}

INLINE size_t or_body(uint64_t *dst, const uint64_t *src, unsigned shift, size_t from, size_t n)
{
    size_t added = 0;

    for (size_t i = from; i < n; i++) {
        uint64_t bits = shifted(src, shift, i);
        added += (unsigned)__builtin_popcountll(bits & ~dst[i]);
        dst[i] |= bits;
    }
    return added;
}

INLINE size_t copy_body(uint64_t *dst, const uint64_t *src, unsigned shift, size_t from, size_t n)
{
    size_t set = 0;

    for (size_t i = from; i < n; i++) {
        dst[i] = shifted(src, shift, i);
        set += (unsigned)__builtin_popcountll(dst[i]);
    }
    return set;
}

INLINE size_t count_body(const uint64_t *src, size_t from, size_t n)
{
    size_t set = 0;

    for (size_t i = from; i < n; i++) {
        set += (unsigned)__builtin_popcountll(src[i]);
    }
    return set;
}

INLINE uint64_t look(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* A bit that a look misses is one that was set later: the next fetch finds it. */
INLINE size_t fetch_clear_body(uint64_t *dst, unsigned shift, uint64_t *src, size_t n)
{
    size_t added = 0;

    for (size_t i = 0; i < n; i++) {
        while (i + 4 <= n && !(look(src + i) | look(src + i + 1) | look(src + i + 2) | look(src + i + 3))) {
            i += 4;
        }
        if (i >= n || !look(src + i)) {
            continue;
        }
        uint64_t bits = __atomic_fetch_and(&src[i], 0, __ATOMIC_ACQUIRE);
        added += (unsigned)__builtin_popcountll(bits << shift & ~dst[i]);
        dst[i] |= bits << shift;
        if (shift && bits >> (64 - shift)) {
            added += (unsigned)__builtin_popcountll(bits >> (64 - shift) & ~dst[i + 1]);
            dst[i + 1] |= bits >> (64 - shift);
        }
    }
    return added;
}

/* The functions of a version that goes word by word. */
#define VERSION(suffix, target) \
    target static size_t or_##suffix(uint64_t *dst, const uint64_t *src, unsigned shift, size_t n) \
    { \
        return shift ? or_body(dst, src, shift, 0, n) : or_body(dst, src, 0, 0, n); \
    } \
    target static size_t copy_##suffix(uint64_t *dst, const uint64_t *src, unsigned shift, size_t n) \
    { \
        return shift ? copy_body(dst, src, shift, 0, n) : copy_body(dst, src, 0, 0, n); \
    } \
    target static size_t count_##suffix(const uint64_t *src, size_t n) { return count_body(src, 0, n); } \
    target static size_t fetch_clear_##suffix(uint64_t *dst, unsigned shift, uint64_t *src, size_t n) \
    { \
        return fetch_clear_body(dst, shift, src, n); \
    }

VERSION(plain, )

#if defined(__x86_64__)

VERSION(popcnt, __attribute__((target("popcnt"))))

/* ---- four words at a time ---- */

#define AVX2 __attribute__((target("avx2,popcnt")))

AVX2 INLINE __m256i load4(const uint64_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Words i to i + 3 of the source; a shift by 64 gives 0, but would read a word that may not be there. */
AVX2 INLINE __m256i shifted4(const uint64_t *src, unsigned shift, size_t i)
{
    __m256i low = load4(src + i);

    if (!shift) {
        return low;
    }
    __m256i high = load4(src + i + 1);
    return _mm256_or_si256(_mm256_srl_epi64(low, _mm_cvtsi32_si128((int)shift)),
                           _mm256_sll_epi64(high, _mm_cvtsi32_si128((int)(64 - shift))));
}

/* Four counts, one for each word: by half-bytes, from a table. */
AVX2 INLINE __m256i popcount4(__m256i v)
{
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
                                           0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i half = _mm256_set1_epi8(0x0f);
    __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(v, half));
    __m256i high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(v, 4), half));

    return _mm256_sad_epu8(_mm256_add_epi8(low, high), _mm256_setzero_si256());
}

AVX2 INLINE size_t sum4(__m256i v)
{
    return (size_t)(_mm256_extract_epi64(v, 0) + _mm256_extract_epi64(v, 1) + _mm256_extract_epi64(v, 2) +
                    _mm256_extract_epi64(v, 3));
}

AVX2 INLINE __m256i or4(uint64_t *dst, __m256i bits)
{
    __m256i old = load4(dst);

    _mm256_storeu_si256((__m256i *)dst, _mm256_or_si256(old, bits));
    return popcount4(_mm256_andnot_si256(old, bits));
}

/* 16 words that are all zero cost no look at @dst. */
AVX2 INLINE size_t or_avx2_body(uint64_t *dst, const uint64_t *src, unsigned shift, size_t n)
{
    __m256i added = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m256i a = shifted4(src, shift, i), b = shifted4(src, shift, i + 4);
        __m256i c = shifted4(src, shift, i + 8), d = shifted4(src, shift, i + 12);
        __m256i all = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));

        if (_mm256_testz_si256(all, all)) {
            continue;
        }
        added = _mm256_add_epi64(added, or4(dst + i, a));
        added = _mm256_add_epi64(added, or4(dst + i + 4, b));
        added = _mm256_add_epi64(added, or4(dst + i + 8, c));
        added = _mm256_add_epi64(added, or4(dst + i + 12, d));
    }
    return sum4(added) + or_body(dst, src, shift, i, n);
}

AVX2 INLINE size_t copy_avx2_body(uint64_t *dst, const uint64_t *src, unsigned shift, size_t n)
{
    __m256i set = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        __m256i bits = shifted4(src, shift, i);
        _mm256_storeu_si256((__m256i *)(dst + i), bits);
        set = _mm256_add_epi64(set, popcount4(bits));
    }
    return sum4(set) + copy_body(dst, src, shift, i, n);
}

AVX2 static size_t or_avx2(uint64_t *dst, const uint64_t *src, unsigned shift, size_t n)
{
    return shift ? or_avx2_body(dst, src, shift, n) : or_avx2_body(dst, src, 0, n);
}

AVX2 static size_t copy_avx2(uint64_t *dst, const uint64_t *src, unsigned shift, size_t n)
{
    return shift ? copy_avx2_body(dst, src, shift, n) : copy_avx2_body(dst, src, 0, n);
}

AVX2 static size_t count_avx2(const uint64_t *src, size_t n)
{
    __m256i set = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        set = _mm256_add_epi64(set, popcount4(load4(src + i)));
    }
    return sum4(set) + count_body(src, i, n);
}

#endif

/* ---- the choice ---- */

static const BitmapWords versions[] = {
#if defined(__x86_64__)
    { "avx2", or_avx2, copy_avx2, count_avx2, fetch_clear_popcnt },
    { "popcnt", or_popcnt, copy_popcnt, count_popcnt, fetch_clear_popcnt },
#endif
    { "plain", or_plain, copy_plain, count_plain, fetch_clear_plain },
};

#define N_VERSIONS (sizeof(versions) / sizeof(versions[0]))

/* Read-only once main() runs, but for tests. */
const BitmapWords *bitmap_words = &versions[N_VERSIONS - 1];

static bool cpu_has(size_t i)
{
#if defined(__x86_64__)
    bool popcnt = __builtin_cpu_supports("popcnt");
    return i == 0 ? popcnt && __builtin_cpu_supports("avx2") : i == 1 ? popcnt : true;
#else
    return true;
#endif
}

bool bitmap_select(unsigned i)
{
    if (i >= N_VERSIONS) {
        return false;
    }
    if (cpu_has(i)) {
        bitmap_words = &versions[i];
    }
    return true;
}

const char *bitmap_select_name(void)
{
    return bitmap_words->name;
}

__attribute__((constructor)) static void choose_version(void)
{
    size_t i = 0;

#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    while (!cpu_has(i)) {
        i++;
    }
    bitmap_words = &versions[i];
}
