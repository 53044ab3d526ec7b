/* SPDX-License-Identifier: BSD-2-Clause */
/* Page content of the workload machine: written from, and checked against, (page, version). */
#include "workload.h"

#include "util/buffer-is-zero.h"
#include <string.h>

#define WORDS (TARGET_PAGE_SIZE / sizeof(uint64_t))
#define STAMP_WORDS 4
/* A compressible body repeats this many words. */
#define REPEAT_WORDS 8

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t workload_version_hash(uint64_t number, uint32_t version)
{
    return version ? mix(number * 0x9e3779b97f4a7c15ull + version) : 0;
}

typedef enum { KIND_ZERO, KIND_COMPRESSIBLE, KIND_RANDOM } Kind;

static Kind page_kind(const WorkloadConfig *cfg, uint64_t number, uint32_t version)
{
    if (version == 0) {
        return KIND_ZERO;
    }
    unsigned draw = mix(cfg->seed ^ mix(number) ^ ((uint64_t)version << 32)) % 100;
    if (draw < cfg->zero_percent) {
        return KIND_ZERO;
    }
    return draw < (unsigned)cfg->zero_percent + cfg->compressible_percent ? KIND_COMPRESSIBLE : KIND_RANDOM;
}

static void make_stamp(uint64_t *stamp, uint64_t seed, uint64_t number, uint32_t version, unsigned writer)
{
    stamp[0] = number;
    stamp[1] = version;
    stamp[2] = writer;
    stamp[3] = mix(seed ^ mix(number ^ mix(version ^ mix(writer + 1))));
}

/* The body's word @i, given the stamp's checksum. */
static inline uint64_t body_word(Kind kind, uint64_t checksum, unsigned i)
{
    if (kind == KIND_COMPRESSIBLE) {
        i %= REPEAT_WORDS;
    }
    uint64_t x = (checksum + i) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
}

/* The migration reads pages while the guest writes them: that is what dirty logging is for. */
__attribute__((no_sanitize("thread")))
void workload_page_write(const WorkloadConfig *cfg, void *page, uint64_t number, uint32_t version,
                         unsigned writer)
{
    Kind kind = page_kind(cfg, number, version);
    uint64_t *word = page;
    uint64_t stamp[STAMP_WORDS];

    if (kind == KIND_ZERO) {
        memset(page, 0, TARGET_PAGE_SIZE);
        return;
    }
    make_stamp(stamp, cfg->seed, number, version, writer);
    memcpy(word, stamp, sizeof(stamp));
    for (unsigned i = STAMP_WORDS; i < WORDS; i++) {
        word[i] = body_word(kind, stamp[3], i);
    }
}

static WorkloadPageVerdict judge(const WorkloadConfig *cfg, const uint64_t *word, uint64_t number,
                                 uint32_t version, unsigned writer)
{
    if (buffer_is_zero(word, TARGET_PAGE_SIZE)) {
        return WORKLOAD_PAGE_LOST;
    }
    uint64_t stamp[STAMP_WORDS];
    make_stamp(stamp, cfg->seed, number, (uint32_t)word[1], writer);
    if (memcmp(stamp, word, sizeof(stamp)) != 0) {
        return WORKLOAD_PAGE_FOREIGN;
    }
    if (word[1] != version) {
        return word[1] < version ? WORKLOAD_PAGE_STALE : WORKLOAD_PAGE_FUTURE;
    }
    return WORKLOAD_PAGE_TORN;
}

WorkloadPageVerdict workload_page_check(const WorkloadConfig *cfg, const void *page, uint64_t number,
                                        uint32_t version, unsigned writer)
{
    Kind kind = page_kind(cfg, number, version);
    if (kind == KIND_ZERO) {
        return buffer_is_zero(page, TARGET_PAGE_SIZE) ? WORKLOAD_PAGE_OK
                                                      : judge(cfg, page, number, version, writer);
    }

    const uint64_t *word = page;
    uint64_t stamp[STAMP_WORDS];
    make_stamp(stamp, cfg->seed, number, version, writer);
    uint64_t difference = 0;
    for (unsigned i = 0; i < STAMP_WORDS; i++) {
        difference |= word[i] ^ stamp[i];
    }
    for (unsigned i = STAMP_WORDS; i < WORDS; i++) {
        difference |= word[i] ^ body_word(kind, stamp[3], i);
    }
    return difference ? judge(cfg, word, number, version, writer) : WORKLOAD_PAGE_OK;
}

const char *workload_page_verdict_str(WorkloadPageVerdict v)
{
    static const char *const names[] = {
        [WORKLOAD_PAGE_OK] = "good",       [WORKLOAD_PAGE_LOST] = "lost",
        [WORKLOAD_PAGE_STALE] = "stale",   [WORKLOAD_PAGE_FOREIGN] = "foreign",
        [WORKLOAD_PAGE_TORN] = "torn",     [WORKLOAD_PAGE_FUTURE] = "from the future",
    };
    return names[v];
}
