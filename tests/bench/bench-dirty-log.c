/* SPDX-License-Identifier: BSD-2-Clause */
/* What a sync and the clears after it cost for a big guest whose memory slots begin anywhere. */

/*
 *     bench-dirty-log [--size=GIB] [--repeats=N] [--seed=N] [--check]
 *
 * The guest is a bitmap: its memory is reserved, never touched.  The engine's own scanner syncs, clears and
 * "sends" it to a sink that does nothing.  Two providers log the same writes, as KVM and a device backend
 * do; their slots of about 8 GiB begin at a multiple of 64 pages of the block (aligned) or 1 to 63 pages
 * beside it.  A request to a provider makes one cheap system call, as one to a kernel would at least.
 *
 * "page-wise" is the usual way with such slots, done here with the same slots: each dirty page by itself
 * into the bitmap, and a request for each page that is cleared.
 *
 * With --check the exit status tells whether the bars hold: clear calls no more than chunks; misaligned syncs
 * within 1.3 times the aligned ones; page-wise at least 5 times as long.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "io/transport.h"
#include "migration/ram.h"
#include "slot-log.h"
#include "util/bitmap.h"

#define GIB (UINT64_C(1) << 30)
#define N_PROVIDERS 2
#define CHUNK_SHIFT 18
#define MAX_MISALIGNED 1.3
#define MIN_PAGE_WISE 5.0
#define PAGE_WISE_REPEATS 2
#define FEW_PAGES 64

static int size_gib = 64;
static int repeats = 15;
static int seed = 1;
static gboolean check_bars;

static const GOptionEntry options_table[] = {
    { "size", 0, 0, G_OPTION_ARG_INT, &size_gib, "Size of the guest's memory", "GIB" },
    { "repeats", 0, 0, G_OPTION_ARG_INT, &repeats, "Rounds of each kind", "N" },
    { "seed", 0, 0, G_OPTION_ARG_INT, &seed, "Of the random writes", "N" },
    { "check", 0, 0, G_OPTION_ARG_NONE, &check_bars, "Exit with 1 if a bar does not hold", NULL },
    { NULL },
};

/* One dirty page or run of them in @gap pages, at random. */
typedef struct Pattern {
    const char *name;
    uint64_t gap;
    uint64_t run;
} Pattern;

static const Pattern patterns[] = {
    { "1 page of 16", 16, 1 },
    { "1 page of 512", 512, 1 },
    { "runs of 8, 1/16", 128, 8 },
    { "every page", 1, 1 },
};

static uint64_t random_state;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void must(bool ok, GError *error)
{
    if (!ok) {
        fprintf(stderr, "%s\n", error ? error->message : "?");
        exit(2);
    }
}

/* ---- a sink that does nothing ---- */

static bool no_block(RamSink *s, StreamWriter *w, RAMBlock *block, GError **errp)
{
    return true;
}

static bool nothing(RamSink *s, StreamWriter *w, GError **errp)
{
    return true;
}

static bool no_run(RamSink *s, StreamWriter *w, RAMBlock *block, uint64_t first, uint64_t count,
                   uint64_t *bytes, GError **errp)
{
    *bytes = 0;
    return true;
}

static void no_cleanup(RamSink *s)
{
}

static bool no_settle(RamSink *s, GError **errp)
{
    return true;
}

static const RamSinkOps no_ops = { .name = "none", .setup_block = no_block, .setup = nothing,
                                   .send_run = no_run, .flush = nothing, .complete = nothing,
                                   .settle = no_settle, .cleanup = no_cleanup };
static RamSink no_sink = { &no_ops };

/* ---- the guest ---- */

typedef struct Bench {
    RAMBlock block;
    RamList ram;
    DirtyLog log;
    SlotLog providers[N_PROVIDERS];
    MigrationOptions options;
    RamSave *save;
    StreamWriter *w;
    uint64_t pages;
} Bench;

static void one_system_call(void *opaque)
{
    bool *second = opaque;      /* called before and after a request */

    *second = !*second;
    if (*second) {
        syscall(SYS_getppid);
    }
}

static void bench_init(Bench *b, bool misaligned)
{
    static bool second;
    GError *error = NULL;

    memset(b, 0, sizeof(*b));
    b->pages = (uint64_t)size_gib * GIB / TARGET_PAGE_SIZE;
    b->block = (RAMBlock){ .used_length = (uint64_t)size_gib * GIB, .fd = -1 };
    b->block.host = mmap(NULL, b->block.used_length, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    g_assert_true(b->block.host != MAP_FAILED);
    g_strlcpy(b->block.idstr, "ram", sizeof(b->block.idstr));
    must(ram_list_add(&b->ram, &b->block, &error), error);
    for (unsigned i = 0; i < N_PROVIDERS; i++) {
        SlotLog *log = &b->providers[i];
        slot_log_init(log, i ? "device" : "kernel");
        /* Slots that are no multiple of 64 pages long: each begins at another bit of a word. */
        uint64_t shift = misaligned ? 1 + random_below(63) : 0;
        slot_log_cover(log, &b->block, shift, 8 * GIB / TARGET_PAGE_SIZE - (misaligned ? 9 : 0));
        log->request = one_system_call;
        log->opaque = &second;
        dirty_log_add_provider(&b->log, &log->provider);
    }
    b->options.props.x_clear_bitmap_shift = CHUNK_SHIFT;
    b->save = ram_save_new(&b->ram, &b->log, &b->options, &error);
    must(b->save != NULL, error);
    ram_save_set_sink(b->save, &no_sink);
    Channel *null = channel_file_open("/dev/null", O_WRONLY, 0, &error);
    must(null != NULL, error);
    b->w = stream_writer_new(null);
    channel_unref(null);
}

static void bench_clear(Bench *b)
{
    ram_save_free(b->save);
    stream_writer_free(b->w);
    while (b->log.providers) {
        dirty_log_remove_provider(&b->log, b->log.providers);
    }
    for (unsigned i = 0; i < N_PROVIDERS; i++) {
        slot_log_free(&b->providers[i]);
    }
    munmap(b->block.host, b->block.used_length);
}

/* Straight into the logs: the slot of a page is known, not looked for.  Returns the number of writes. */
static uint64_t dirty(Bench *b, const Pattern *p)
{
    uint64_t writes = 0;

    for (unsigned k = 0; k < N_PROVIDERS; k++) {
        uint64_t state = random_state;      /* both log the same writes */
        writes = 0;
        for (unsigned i = 0; i < b->providers[k].n_slots; i++) {
            SlotLogSlot *slot = &b->providers[k].slots[i];
            uint64_t end = slot->map.block_first + slot->map.count;
            uint64_t begin = (slot->map.block_first + p->gap - 1) / p->gap * p->gap;
            for (uint64_t at = begin; at < end; at += p->gap) {
                uint64_t first = at + random_below(p->gap / p->run) * p->run;
                if (first < end) {
                    uint64_t count = MIN(p->run, end - first);
                    bitmap_set(slot->log, first - slot->map.block_first, count);
                    writes += count;
                }
            }
        }
        if (k + 1 < N_PROVIDERS) {
            random_state = state;
        }
    }
    return writes;
}

/* ---- one round ---- */

typedef struct Round {
    double sync_us, clear_us;
    uint64_t pages;         /* dirty */
    uint64_t chunks;        /* with a dirty page */
    uint64_t calls;         /* to each provider */
    uint64_t requests;      /* of all providers to their slots */
} Round;

static uint64_t all_requests(const Bench *b)
{
    return b->providers[0].clears + b->providers[1].clears;
}

static void scan(Bench *b)
{
    GError *error = NULL;

    for (bool done = false; !done;) {
        must(ram_save_iterate(b->save, b->w, UINT64_MAX, &done, &error), error);
    }
}

static uint64_t dirty_chunks(const Bench *b)
{
    uint64_t chunk = UINT64_C(1) << CHUNK_SHIFT, n = 0;
    g_autofree bool *seen = g_new0(bool, b->pages / chunk + 1);

    for (unsigned k = 0; k < N_PROVIDERS; k++) {
        for (unsigned i = 0; i < b->providers[k].n_slots; i++) {
            const SlotLogSlot *slot = &b->providers[k].slots[i];
            for (uint64_t at = bitmap_find_set(slot->log, 0, slot->map.count); at < slot->map.count;
                 at = bitmap_find_set(slot->log, at + 1, slot->map.count)) {
                uint64_t c = (slot->map.block_first + at) / chunk;
                n += !seen[c];
                seen[c] = true;
            }
        }
    }
    return n;
}

static Round one_round(Bench *b, const Pattern *p)
{
    const RamStats *stats = ram_save_stats(b->save);
    GError *error = NULL;
    Round r = { 0 };

    dirty(b, p);
    r.chunks = dirty_chunks(b);
    uint64_t calls = stats->clear_calls, clear_ns = stats->clear_ns, requests = all_requests(b);
    must(ram_save_sync(b->save, false, &error), error);
    r.sync_us = (double)stats->last_sync_ns / 1000;
    r.pages = stats->remaining_pages;
    scan(b);
    r.clear_us = (double)(stats->clear_ns - clear_ns) / 1000;
    r.calls = stats->clear_calls - calls;
    r.requests = all_requests(b) - requests;
    return r;
}

/* ---- page by page ---- */

static uint64_t page_wise_sync_slot(const SlotLogSlot *slot, const uint64_t *log, uint64_t *bitmap)
{
    uint64_t added = 0;

    for (size_t word = 0; word < BITMAP_WORDS(slot->map.slot_pages); word++) {
        for (uint64_t bits = log[word]; bits; bits &= bits - 1) {
            uint64_t page = slot->map.block_first + word * 64 + (unsigned)__builtin_ctzll(bits);
            if (!bitmap_test(bitmap, page)) {
                bitmap_set(bitmap, page, 1);
                added++;
            }
        }
    }
    return added;
}

/* One page and one request; the window is the least that the rules allow. */
static void page_wise_clear_slot(SlotLogSlot *slot, const uint64_t *bitmap, uint64_t *requests)
{
    bool second = false;

    for (uint64_t bit = 0; bit < slot->map.count; bit++) {
        if (bitmap_test(bitmap, slot->map.block_first + bit)) {
            one_system_call(&second);
            second = false;
            slot->log[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
            (*requests)++;
        }
    }
}

static Round page_wise_round(Bench *b, const Pattern *p)
{
    uint64_t *bitmap = bitmap_new(b->pages);
    Round r = { 0 };

    memset(bitmap, 0, BITMAP_WORDS(b->pages) * sizeof(*bitmap));    /* there, as the engine's is */
    dirty(b, p);
    uint64_t start = now_ns();
    for (unsigned k = 0; k < N_PROVIDERS; k++) {
        SlotLog *log = &b->providers[k];
        for (unsigned i = 0; i < log->n_slots; i++) {
            memcpy(log->buffer, log->slots[i].log,
                   BITMAP_WORDS(log->slots[i].map.slot_pages) * sizeof(uint64_t));
            r.pages += page_wise_sync_slot(&log->slots[i], log->buffer, bitmap);
        }
    }
    uint64_t synced = now_ns();
    for (unsigned k = 0; k < N_PROVIDERS; k++) {
        for (unsigned i = 0; i < b->providers[k].n_slots; i++) {
            page_wise_clear_slot(&b->providers[k].slots[i], bitmap, &r.requests);
        }
    }
    r.sync_us = (double)(synced - start) / 1000;
    r.clear_us = (double)(now_ns() - synced) / 1000;
    bitmap_free(bitmap, b->pages);
    return r;
}

/* ---- the table ---- */

/* The best of the rounds: on a machine that others use too, what is slower tells about them. */
static void keep_best(Round *best, const Round *r)
{
    if (!best->sync_us) {
        *best = *r;
    }
    best->sync_us = MIN(best->sync_us, r->sync_us);
    best->clear_us = MIN(best->clear_us, r->clear_us);
}

static void row(const Pattern *p, const char *slots, const Round *r)
{
    printf("%-16s %-11s %9" PRIu64 " %9.0f %9.2f %7" PRIu64 " %9" PRIu64 " %9" PRIu64
           " %11.1f %10.0f %9.1f\n",
           p->name, slots, r->pages, r->sync_us, r->sync_us / size_gib, r->chunks, r->calls, r->requests,
           r->requests ? (double)r->pages * N_PROVIDERS / (double)r->requests : 0, r->clear_us,
           r->clear_us / size_gib);
}

static bool bar(bool holds, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    printf("  %-7s ", holds ? "holds" : "MISSED");
    vprintf(format, ap);
    putchar('\n');
    va_end(ap);
    return holds;
}

static bool measure(const Pattern *p)
{
    Round aligned = { 0 }, misaligned = { 0 }, page_wise = { 0 }, r;
    GError *error = NULL;
    Bench benches[2];

    for (int kind = 0; kind < 2; kind++) {
        bench_init(&benches[kind], kind);
        must(ram_save_setup(benches[kind].save, benches[kind].w, &error), error);
        scan(&benches[kind]);
        one_round(&benches[kind], p);       /* the bitmaps come into being */
    }
    for (int i = 0; i < repeats; i++) {
        r = one_round(&benches[0], p);
        keep_best(&aligned, &r);
        r = one_round(&benches[1], p);
        keep_best(&misaligned, &r);
        /* With every page dirty it takes half a minute. */
        if (i < (p->gap > p->run ? PAGE_WISE_REPEATS : 1)) {
            r = page_wise_round(&benches[1], p);
            keep_best(&page_wise, &r);
        }
    }
    bench_clear(&benches[0]);
    bench_clear(&benches[1]);
    row(p, "aligned", &aligned);
    row(p, "misaligned", &misaligned);
    row(p, "page-wise", &page_wise);
    double ratio = misaligned.sync_us / aligned.sync_us;
    double faster = page_wise.sync_us / misaligned.sync_us;
    double both = (page_wise.sync_us + page_wise.clear_us) / (misaligned.sync_us + misaligned.clear_us);
    bool few = bar(misaligned.calls <= misaligned.chunks,
                   "%" PRIu64 " clear calls to each provider for %" PRIu64 " chunks and %" PRIu64 " pages",
                   misaligned.calls, misaligned.chunks, misaligned.pages);
    bool even = bar(ratio <= MAX_MISALIGNED, "misaligned sync takes %.2f times the aligned one", ratio);
    /* With few dirty pages both ways read words that are zero; what differs then is the clearing. */
    bool fast = p->gap / p->run > FEW_PAGES ||
                bar(faster >= MIN_PAGE_WISE, "sync is %.1f times as fast as page-wise", faster);
    bool fast_both = bar(both >= MIN_PAGE_WISE, "sync and clears are %.1f times as fast as page-wise", both);
    return few && even && fast && fast_both;
}

int main(int argc, char **argv)
{
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    GError *error = NULL;
    bool ok = true;

    g_option_context_add_main_entries(context, options_table, NULL);
    must(g_option_context_parse(context, &argc, &argv, &error), error);
    random_state = (uint64_t)seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    printf("%d GiB, %d providers, chunks of %d MiB; the best of %d rounds\n\n", size_gib, N_PROVIDERS,
           1 << (CHUNK_SHIFT - 8), repeats);
    printf("%-16s %-11s %9s %9s %9s %7s %9s %9s %11s %10s %9s\n", "dirty", "slots", "pages", "sync us",
           "us/GiB", "chunks", "calls", "requests", "pages/req.", "clear us", "us/GiB");
    for (size_t i = 0; i < G_N_ELEMENTS(patterns); i++) {
        ok &= measure(&patterns[i]);
    }
    return check_bars && !ok;
}
