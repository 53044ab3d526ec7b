/* SPDX-License-Identifier: BSD-2-Clause */
/* The software dirty log: a bitmap per block, set by writers with atomic ORs, fetched and cleared by sync. */

/*
 * Why no write is lost
 * --------------------
 * Three kinds of thread meet here.  A writer W stores into a page (S), then marks it: it looks at the switch
 * (L) and, if logging is on, ORs the page's bit into the bitmap (O).  The syncer fetches and clears the bit
 * (X) and afterwards reads the page (R).  The starter sets the switch (F), has a barrier run on all CPUs (B),
 * and only then returns from start(); every page counts as dirty at that moment and will be read by some R
 * after it.
 *
 * A write is safe if the last R of its page either sees S or is followed by another sync that reports the
 * page.
 *
 * 1. L saw the switch on.  O then happens.  O and X are both read-modify-writes of one word, so one precedes
 *    the other:
 *    - X finds the bit.  O is a release and X an acquire, and since every other change of the word is a
 *      read-modify-write too, X synchronises with O whatever other writers did to the word in between.
 *      So S happens before R: R sees it.
 *    - X comes first.  Then the bit is set when X is done, and a later sync reports the page.
 *    (bitmap_set_atomic() and bitmap_fetch_clear_or() make no other changes.  The latter only looks at a word
 *    first and skips it if the bits are clear: then X counts as having come first.)  This needs S before O in
 *    program order (store, then mark).  With mark before store, X could take the bit and R read the old page
 *    before S.  It needs the OR to be done even if the bit looks set already: the load that looks may be
 *    satisfied before S becomes visible, X and R may fall between, and nobody would report S.
 *
 * 2. L saw the switch off.  No bit will be set, so R must see S.  An ordinary CPU may well execute S; L with
 *    L first: S waits in the store buffer while L reads "off", F and R go by, and S becomes visible after R.
 *    Release and acquire do not forbid that, only a full barrier between S and L does.  It is paid for by the
 *    starter, who comes once in a migration, and not by W: B is membarrier(2), which has every running thread
 *    of this process execute a full barrier somewhere between F and the return of start() (a thread that is
 *    not running has executed one when it was switched out).  Let P be that point in W's program:
 *    - P before L: L executes after F is visible and sees the switch on: case 1.
 *    - L before P: S comes before L in the program (the compiler is kept from exchanging them), thus before
 *      P, and is visible to all when start() returns.  Every R comes after that: it sees S.
 *    Where the kernel has no such membarrier, W executes the barrier itself, each time; then with the
 *    starter's barrier between F and R the usual argument holds: not both of "L reads off" and "R misses S"
 *    can be.
 *
 * 3. L saw the switch on, and logging is switched off, or off and on again, before O.  The bitmap is still
 *    there, because it is kept until the log is freed or its block has gone from the RAM list (nobody writes
 *    to such a block).  If O falls into the next period of logging, one page too many is reported.  If
 *    start() clears O's bit, then O, and so S, came before that start() returned, and every page counts as
 *    dirty then.
 */
#include "system/dirty-log.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

typedef struct SoftDirtyBlock {
    const RAMBlock *block;
    uint64_t pages;
    uint64_t *bitmap;
} SoftDirtyBlock;

/* Fixed once it is published.  A writer may hold one for any time, so tables are freed with the log only. */
typedef struct SoftDirtyTable {
    struct SoftDirtyTable *older;
    unsigned count;
    SoftDirtyBlock blocks[];
} SoftDirtyTable;

struct SoftDirtyLog {
    DirtyLogProvider provider;
    _Atomic(SoftDirtyTable *) active;   /* the switch: NULL is off.  Set by start and stop, read by writers */
    SoftDirtyTable *newest;             /* of the caller of start, which owns the bitmaps in it */
    bool membarrier;                    /* fixed: start() runs the barrier for the writers */
};

static bool membarrier_register(void)
{
    /* A fault here is a kernel without the call: not an error. */
    return !fault_point("soft-dirty-log-register", NULL) &&
           syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* ThreadSanitizer does not model fences, and says so: what needs them is argued above, not checked. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

/* Between a writer's store and its look at the switch. */
static inline void writer_barrier(const SoftDirtyLog *log)
{
    if (G_LIKELY(log->membarrier)) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_thread_fence(memory_order_seq_cst);
    }
}

/* Between setting the switch and reading pages. */
static bool starter_barrier(const SoftDirtyLog *log, GError **errp)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (fault_point("soft-dirty-log-membarrier", errp)) {
        return false;
    }
    if (log->membarrier && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) < 0) {
        error_set_errno(errp, GODWIT_ERROR_FAILED, errno, "cannot synchronise with the writers: membarrier");
        return false;
    }
    return true;
}

static const SoftDirtyBlock *table_find(const SoftDirtyTable *table, const RAMBlock *block)
{
    /* The index is only a hint: it changes when a block is added before this one. */
    unsigned hint = __atomic_load_n(&block->index, __ATOMIC_RELAXED);
    if (G_LIKELY(hint < table->count && table->blocks[hint].block == block)) {
        return &table->blocks[hint];
    }
    for (unsigned i = 0; i < table->count; i++) {
        if (table->blocks[i].block == block) {
            return &table->blocks[i];
        }
    }
    return NULL;
}

void soft_dirty_log_mark(SoftDirtyLog *log, const RAMBlock *block, uint64_t offset, uint64_t len)
{
    writer_barrier(log);
    const SoftDirtyTable *table = atomic_load_explicit(&log->active, memory_order_acquire);
    if (G_LIKELY(!table)) {
        return;
    }

    const SoftDirtyBlock *b = table_find(table, block);
    if (!b || !len || offset >> TARGET_PAGE_BITS >= b->pages) {
        return;
    }
    uint64_t size = b->pages << TARGET_PAGE_BITS;
    uint64_t end = len > size - offset ? size : offset + len;
    uint64_t first = offset >> TARGET_PAGE_BITS;
    bitmap_set_atomic(b->bitmap, first, ((end - 1) >> TARGET_PAGE_BITS) - first + 1);
}

/* Does @table describe the blocks of @ram, in this order? */
static bool table_fits(const SoftDirtyTable *table, const RamList *ram)
{
    if (!table || table->count != ram->count) {
        return false;
    }
    RAMLIST_FOREACH(block, ram) {
        const SoftDirtyBlock *b = &table->blocks[block->index];
        if (b->block != block || b->pages != ramblock_pages(block)) {
            return false;
        }
    }
    return true;
}

/* Takes the bitmap of @block over from @table if it is there and of the right size. */
static uint64_t *table_steal(SoftDirtyTable *table, const RAMBlock *block)
{
    for (unsigned i = 0; table && i < table->count; i++) {
        SoftDirtyBlock *b = &table->blocks[i];
        if (b->block == block && b->pages == ramblock_pages(block) && b->bitmap) {
            return b->bitmap;
        }
    }
    return NULL;
}

static bool table_owns(const SoftDirtyTable *table, const uint64_t *bitmap)
{
    for (unsigned i = 0; i < table->count; i++) {
        if (table->blocks[i].bitmap == bitmap) {
            return true;
        }
    }
    return false;
}

/* A table for @ram that goes on with the bitmaps of blocks that are still there, and frees the others. */
static void table_renew(SoftDirtyLog *log, const RamList *ram)
{
    SoftDirtyTable *old = log->newest;
    SoftDirtyTable *table = g_malloc0(sizeof(*table) + ram->count * sizeof(table->blocks[0]));

    table->older = old;
    RAMLIST_FOREACH(block, ram) {
        SoftDirtyBlock *b = &table->blocks[table->count++];
        b->block = block;
        b->pages = ramblock_pages(block);
        b->bitmap = table_steal(old, block);
        if (!b->bitmap) {
            b->bitmap = bitmap_new(b->pages);
        }
    }
    for (unsigned i = 0; old && i < old->count; i++) {
        if (!table_owns(table, old->blocks[i].bitmap)) {
            bitmap_free(old->blocks[i].bitmap, old->blocks[i].pages);
        }
    }
    log->newest = table;
}

static bool soft_dirty_log_start(DirtyLogProvider *p, const RamList *ram, GError **errp)
{
    SoftDirtyLog *log = (SoftDirtyLog *)p;

    if (!table_fits(log->newest, ram)) {
        table_renew(log, ram);
    }
    for (unsigned i = 0; i < log->newest->count; i++) {
        /* Atomic, because a writer of an earlier period of logging may still be at it. */
        bitmap_clear_atomic(log->newest->blocks[i].bitmap, 0, log->newest->blocks[i].pages);
    }
    atomic_store_explicit(&log->active, log->newest, memory_order_release);
    if (!starter_barrier(log, errp)) {
        atomic_store_explicit(&log->active, NULL, memory_order_release);
        return false;
    }
    return true;
}

static void soft_dirty_log_stop(DirtyLogProvider *p)
{
    SoftDirtyLog *log = (SoftDirtyLog *)p;

    atomic_store_explicit(&log->active, NULL, memory_order_release);
}

static bool soft_dirty_log_sync(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                                uint64_t *bitmap, uint64_t *new_dirty, GError **errp)
{
    SoftDirtyLog *log = (SoftDirtyLog *)p;
    const SoftDirtyTable *table = atomic_load_explicit(&log->active, memory_order_relaxed);
    const SoftDirtyBlock *b = table ? table_find(table, block) : NULL;

    if (!b || first > b->pages || count > b->pages - first) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE,
                    "pages %" PRIu64 " to %" PRIu64 " are not being logged", first, first + count);
        return false;
    }
    *new_dirty += bitmap_fetch_clear_or(bitmap, first, b->bitmap, first, count);
    return true;
}

/* Nothing to re-arm: sync has cleared the bits, and the next write sets them again. */
static bool soft_dirty_log_clear(DirtyLogProvider *p, RAMBlock *block, uint64_t first, uint64_t count,
                                 const uint64_t *bitmap, GError **errp)
{
    return true;
}

static const DirtyLogProviderOps soft_dirty_log_ops = {
    .name = "software",
    .start = soft_dirty_log_start,
    .stop = soft_dirty_log_stop,
    .sync = soft_dirty_log_sync,
    .clear = soft_dirty_log_clear,
};

SoftDirtyLog *soft_dirty_log_new(void)
{
    SoftDirtyLog *log = g_new0(SoftDirtyLog, 1);

    log->provider.ops = &soft_dirty_log_ops;
    log->membarrier = membarrier_register();
    return log;
}

void soft_dirty_log_free(SoftDirtyLog *log)
{
    if (!log) {
        return;
    }
    SoftDirtyTable *table = log->newest;
    for (unsigned i = 0; table && i < table->count; i++) {
        bitmap_free(table->blocks[i].bitmap, table->blocks[i].pages);
    }
    while (table) {
        SoftDirtyTable *older = table->older;
        g_free(table);
        table = older;
    }
    g_free(log);
}

DirtyLogProvider *soft_dirty_log_provider(SoftDirtyLog *log)
{
    return &log->provider;
}
