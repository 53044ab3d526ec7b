/* SPDX-License-Identifier: BSD-2-Clause */
/* The zero test, in one version per vector width. */
#include "util/buffer-is-zero.h"

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/*
 * Guest memory changes while it is looked at; the contract allows for that, so
 * ThreadSanitizer is told not to look.  A page that is found zero and is
 * written a moment later is in the dirty log.
 */
#if defined(__clang__) || defined(__GNUC__)
#define RACY __attribute__((no_sanitize("thread")))
#endif

typedef uint64_t __attribute__((may_alias, aligned(1))) AnyU64;

/* Each version gets @len >= MIN_VECTOR_LEN and has to read all of it. */
#define MIN_VECTOR_LEN 256

typedef bool ZeroTest(const uint8_t *buf, size_t len);

static RACY bool test_scalar(const uint8_t *buf, size_t len)
{
    const uint8_t *last = buf + len - 64;

    for (const uint8_t *p = buf; p < last; p += 64) {
        const AnyU64 *v = (const AnyU64 *)p;

        if (v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7]) {
            return false;
        }
    }
    const AnyU64 *v = (const AnyU64 *)last;
    return !(v[0] | v[1] | v[2] | v[3] | v[4] | v[5] | v[6] | v[7]);
}

#if defined(__x86_64__)

/*
 * Blocks of 256 bytes from the start, on the vector's alignment after the first
 * vector; the last block is tested at the end of the buffer and may overlap the one before.
 */
__attribute__((target("avx2"))) static RACY bool test_avx2(const uint8_t *buf, size_t len)
{
    const uint8_t *last = buf + len - 256;
    const uint8_t *p = (const uint8_t *)(((uintptr_t)buf + 32) & ~(uintptr_t)31);
    __m256i first = _mm256_loadu_si256((const __m256i *)buf);

    if (!_mm256_testz_si256(first, first)) {
        return false;
    }
    for (;; p += 256) {
        if (p > last) {
            p = last;
        }
        const __m256i *v = (const __m256i *)p;
        __m256i a = _mm256_or_si256(_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1));
        __m256i b = _mm256_or_si256(_mm256_loadu_si256(v + 2), _mm256_loadu_si256(v + 3));
        __m256i c = _mm256_or_si256(_mm256_loadu_si256(v + 4), _mm256_loadu_si256(v + 5));
        __m256i d = _mm256_or_si256(_mm256_loadu_si256(v + 6), _mm256_loadu_si256(v + 7));
        __m256i all = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));

        if (!_mm256_testz_si256(all, all)) {
            return false;
        }
        if (p == last) {
            return true;
        }
    }
}

__attribute__((target("avx512f"))) static RACY bool test_avx512(const uint8_t *buf, size_t len)
{
    const uint8_t *last = buf + len - 256;
    const uint8_t *p = (const uint8_t *)(((uintptr_t)buf + 64) & ~(uintptr_t)63);
    __m512i first = _mm512_loadu_si512(buf);

    if (_mm512_test_epi64_mask(first, first)) {
        return false;
    }
    for (;; p += 256) {
        if (p > last) {
            p = last;
        }
        __m512i a = _mm512_or_si512(_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64));
        __m512i b = _mm512_or_si512(_mm512_loadu_si512(p + 128), _mm512_loadu_si512(p + 192));
        __m512i all = _mm512_or_si512(a, b);

        if (_mm512_test_epi64_mask(all, all)) {
            return false;
        }
        if (p == last) {
            return true;
        }
    }
}

#elif defined(__aarch64__)

static RACY bool test_neon(const uint8_t *buf, size_t len)
{
    const uint8_t *last = buf + len - 128;

    for (const uint8_t *p = buf;; p += 128) {
        if (p > last) {
            p = last;
        }
        uint32x4_t a = vorrq_u32(vld1q_u32((const uint32_t *)p), vld1q_u32((const uint32_t *)(p + 16)));
        uint32x4_t b =
            vorrq_u32(vld1q_u32((const uint32_t *)(p + 32)), vld1q_u32((const uint32_t *)(p + 48)));
        uint32x4_t c =
            vorrq_u32(vld1q_u32((const uint32_t *)(p + 64)), vld1q_u32((const uint32_t *)(p + 80)));
        uint32x4_t d =
            vorrq_u32(vld1q_u32((const uint32_t *)(p + 96)), vld1q_u32((const uint32_t *)(p + 112)));

        if (vmaxvq_u32(vorrq_u32(vorrq_u32(a, b), vorrq_u32(c, d)))) {
            return false;
        }
        if (p == last) {
            return true;
        }
    }
}

#endif

typedef struct Version {
    const char *name;
    ZeroTest *test;
} Version;

static const Version versions[] = {
#if defined(__x86_64__)
    { "avx512", test_avx512 },
    { "avx2", test_avx2 },
#elif defined(__aarch64__)
    { "neon", test_neon },
#endif
    { "scalar", test_scalar },
};

static bool cpu_has(size_t i)
{
#if defined(__x86_64__)
    return i == 0 ? __builtin_cpu_supports("avx512f") : i == 1 ? __builtin_cpu_supports("avx2") : true;
#else
    return true;
#endif
}

/* Chosen before main() runs; read-only from then on, but for the test below. */
static const Version *version = &versions[sizeof(versions) / sizeof(versions[0]) - 1];

bool buffer_is_zero_select(unsigned i)
{
    if (i >= sizeof(versions) / sizeof(versions[0])) {
        return false;
    }
    if (cpu_has(i)) {
        version = &versions[i];
    }
    return true;
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
    version = &versions[i];
}

const char *buffer_is_zero_name(void)
{
    return version->name;
}

static RACY bool test_short(const uint8_t *buf, size_t len)
{
    uint64_t all = 0;

    for (; len >= 8; len -= 8, buf += 8) {
        all |= *(const AnyU64 *)buf;
    }
    for (; len; len--, buf++) {
        all |= *buf;
    }
    return !all;
}

RACY bool buffer_is_zero(const void *buf, size_t len)
{
    const uint8_t *p = buf;

    if (len < MIN_VECTOR_LEN) {
        return test_short(p, len);
    }
    /* Most pages that are not zero say so here. */
    if (*(const AnyU64 *)p | *(const AnyU64 *)(p + len / 2) | *(const AnyU64 *)(p + len - 8)) {
        return false;
    }
    return version->test(p, len);
}
