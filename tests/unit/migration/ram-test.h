/* SPDX-License-Identifier: BSD-2-Clause */
/* What the RAM tests share: a channel in memory, guests, a dirty log that watches its caller. */
#ifndef RAM_TEST_H
#define RAM_TEST_H

#include "migration/ram-load.h"
#include "migration/ram-wire.h"
#include "migration/ram.h"
#include "util/error.h"

#define PAGE TARGET_PAGE_SIZE

/*
 * A channel in memory: what is written can be read.  Each read gives at most @max_read bytes,
 * or, if 0, a random number of them, so that every place where bytes can be cut gets cut.
 */
typedef struct TestChannel {
    Channel base;
    GByteArray *bytes;
    size_t pos;
    size_t max_read;
    GRand *rand;
    unsigned writes;            /* calls of writev */
    size_t fail_after;          /* writes fail once this many bytes are there; SIZE_MAX: never */
} TestChannel;

TestChannel *test_channel_new(const void *data, size_t len, size_t max_read);

/* A guest with blocks of the given numbers of pages, named m0, m1, ..., with the addresses 1 TiB * i. */
typedef struct TestGuest {
    RamList ram;
    RAMBlock blocks[8];
    unsigned count;
    uint64_t seed;              /* xorshift state of test_guest_scribble() */
} TestGuest;

TestGuest *test_guest_new(const uint64_t *pages, unsigned count);
/* Its memory is shared memory files (memfd), each beginning at 1 MiB of its file. */
TestGuest *test_guest_new_shared(const uint64_t *pages, unsigned count);
/* How many pages of a shared block exist. */
uint64_t test_guest_allocated(const TestGuest *g, unsigned block);
void test_guest_free(TestGuest *g);
void test_guest_copy(TestGuest *to, const TestGuest *from);
bool test_guest_equal(const TestGuest *a, const TestGuest *b);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(TestGuest, test_guest_free)

/*
 * Writes like a vCPU: a word, a page, or zeroes, at a random place of @block. ThreadSanitizer cannot see
 * a vCPU's stores either, and the engine reads pages while they are written, by design: a page that
 * changes under the reader's hand is logged and sent again. So this function is hidden from it. Returns
 * the offset written to.
 */
uint64_t test_guest_scribble(uint64_t *seed, RAMBlock *block, uint64_t *len);

/*
 * A provider in the manner of KVM: sync hands out, clear re-arms. It fails the test when a page is
 * cleared whose bit is not in the caller's bitmap: a write to it that was logged, but not handed out,
 * would be lost.
 */
typedef struct WatchLog {
    DirtyLogProvider provider;
    const RamList *ram;
    uint64_t *logged[8];        /* by block index */
    const uint64_t *callers[8]; /* the bitmaps that sync was given */
    unsigned clears;            /* calls */
    uint64_t cleared_pages;
    bool started;
    bool fail_sync;
    void (*touch)(void *opaque);    /* if set, called around each sync and clear: the guest writes */
    void *opaque;
} WatchLog;

void watch_log_init(WatchLog *log);
void watch_log_mark(WatchLog *log, RAMBlock *block, uint64_t page);
void watch_log_free(WatchLog *log);

/* Options as a fresh program has them. */
MigrationOptions test_options(void);

/* Fails the test with the error's message. */
void test_ok(bool ok, GError *error);
#define OK(call) \
    do { \
        GError *error = NULL; \
        bool ok = (call); \
        test_ok(ok, error); \
    } while (0)

/* The call must fail with a message that matches the pattern (g_pattern_match_simple()). */
void test_fails(bool ok, GError *error, const char *pattern);
#define FAILS(pattern, call) \
    do { \
        GError *error = NULL; \
        bool ok = (call); \
        test_fails(ok, error, pattern); \
    } while (0)

#endif
