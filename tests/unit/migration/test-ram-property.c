/* SPDX-License-Identifier: BSD-2-Clause */
/* Whole migrations under writers: at the end both sides' memory is the same. */
#include <stdatomic.h>
#include <string.h>

#include "migration/ram-wire.h"
#include "ram-test.h"
#include "slot-log.h"

/* Not multiples of 64 pages; one block smaller than a word of the bitmap. */
static const uint64_t block_pages[] = { 331, 257, 65, 5 };
#define N_BLOCKS 4
#define N_WRITERS 2

/* ---- the writers: what vCPUs are to the real thing ---- */

typedef struct Writer {
    TestGuest *guest;
    SoftDirtyLog *log;
    uint64_t seed;
    atomic_bool *stop;
    atomic_uint *writes;
    GThread *thread;
} Writer;

static void *writer_run(void *opaque)
{
    Writer *w = opaque;

    while (!atomic_load(w->stop)) {
        RAMBlock *block = &w->guest->blocks[w->seed % N_BLOCKS];
        uint64_t len, offset = test_guest_scribble(&w->seed, block, &len);
        soft_dirty_log_mark(w->log, block, offset, len);
        atomic_fetch_add(w->writes, 1);
    }
    return NULL;
}

/* ---- a sink that reorders ---- */

/* One page on its way. */
typedef struct Flight {
    RAMBlock *block;
    uint64_t page;
    uint8_t content[PAGE];
} Flight;

/*
 * Keeps pages, whatever sections end, and lets them land in random order at the end of the round, or, to
 * see that the test can fail, only at the end of all.
 */
typedef struct ReorderSink {
    RamSink base;
    RamSave *save;
    TestGuest *target;
    GPtrArray *flights;
    RamRoundNotifier notifier;
    bool barrier;
} ReorderSink;

static void land_one(ReorderSink *s)
{
    g_autofree Flight *f = g_ptr_array_steal_index_fast(s->flights, g_test_rand_int() % s->flights->len);
    RAMBlock *to = ram_list_find(&s->target->ram, f->block->idstr);

    memcpy(to->host + f->page * PAGE, f->content, PAGE);
}

static void land_all(ReorderSink *s)
{
    while (s->flights->len) {
        land_one(s);
    }
}

static bool reorder_round(Notifier *notifier, void *data, GError **errp)
{
    ReorderSink *s = (ReorderSink *)((char *)notifier - G_STRUCT_OFFSET(ReorderSink, notifier));

    if (s->barrier) {
        land_all(s);
    }
    return true;
}

static bool reorder_setup_block(RamSink *sink, StreamWriter *w, RAMBlock *block, GError **errp)
{
    return true;
}

static bool reorder_setup(RamSink *sink, StreamWriter *w, GError **errp)
{
    ram_round_add_notifier(((ReorderSink *)sink)->save, &((ReorderSink *)sink)->notifier);
    return true;
}

/* The copy takes what writers store meanwhile: hidden from ThreadSanitizer like they are. */
__attribute__((no_sanitize("thread")))
static void copy_page(uint8_t *to, const uint8_t *from)
{
    volatile const uint64_t *f = (volatile const uint64_t *)from;
    uint64_t *t = (uint64_t *)to;

    for (unsigned i = 0; i < PAGE / 8; i++) {
        t[i] = f[i];
    }
}

static bool reorder_send_run(RamSink *sink, StreamWriter *w, RAMBlock *block, uint64_t first, uint64_t count,
                             uint64_t *bytes, GError **errp)
{
    ReorderSink *s = (ReorderSink *)sink;

    for (uint64_t i = first; i < first + count; i++) {
        Flight *f = g_new(Flight, 1);
        f->block = block;
        f->page = i;
        copy_page(f->content, block->host + i * PAGE);
        g_ptr_array_add(s->flights, f);
        /* Some land at once, out of turn. */
        if (s->barrier && g_test_rand_int_range(0, 4) == 0) {
            land_one(s);
        }
    }
    *bytes = count * PAGE;
    return true;
}

static bool reorder_flush(RamSink *sink, StreamWriter *w, GError **errp)
{
    return true;
}

static bool reorder_settle(RamSink *sink, GError **errp)
{
    return true;
}

static bool reorder_complete(RamSink *sink, StreamWriter *w, GError **errp)
{
    ReorderSink *s = (ReorderSink *)sink;

    /* Every round has ended, the last one too. */
    if (s->barrier) {
        g_assert_cmpuint(s->flights->len, ==, 0);
    }
    land_all(s);
    return true;
}

static void reorder_cleanup(RamSink *sink)
{
    ReorderSink *s = (ReorderSink *)sink;

    ram_round_remove_notifier(s->save, &s->notifier);
    g_ptr_array_unref(s->flights);
    g_free(s);
}

static const RamSinkOps reorder_ops = {
    .name = "reorder",
    .setup_block = reorder_setup_block,
    .setup = reorder_setup,
    .send_run = reorder_send_run,
    .flush = reorder_flush,
    .complete = reorder_complete,
    .settle = reorder_settle,
    .cleanup = reorder_cleanup,
};

static RamSink *reorder_sink_new(RamSave *save, TestGuest *target, bool barrier)
{
    ReorderSink *s = g_new0(ReorderSink, 1);

    s->base.ops = &reorder_ops;
    s->save = save;
    s->target = target;
    s->flights = g_ptr_array_new_with_free_func(g_free);
    s->notifier.notify = reorder_round;
    s->barrier = barrier;
    return &s->base;
}

/* ---- one migration ---- */

typedef enum { SINK_STREAM, SINK_REORDER, SINK_NO_BARRIER } SinkKind;

typedef struct Case {
    SinkKind sink;
    bool shared;            /* memory is files, with holes at first */
    bool fetch_and_clear;   /* a log like KVM's, and writes between the engine's steps; else threads write */
    bool slots;             /* with that: two such logs, with slots of random alignment */
    bool xbzrle;
    uint64_t cache_pages;
    uint8_t chunk_shift;
    unsigned sections;
    unsigned longest;       /* pages of one section's budget */
} Case;

typedef struct Run {
    Case c;
    TestGuest *source, *target;
    SoftDirtyLog *soft;
    WatchLog watch;
    SlotLog slot_logs[2];
    uint64_t seed;          /* of the writes between steps */
    DirtyLog log;
    MigrationOptions options;
    RamSave *save;
    RamLoad *load;
    TestChannel *channel;
    StreamWriter *w;
    StreamReader *r;
    Writer writers[N_WRITERS];
    atomic_bool stop;
    atomic_uint writes;
} Run;

/* Writes between the engine's steps.  A page that is written is logged from then on, until it is cleared. */
static void guest_step(void *opaque)
{
    Run *run = opaque;

    for (unsigned i = 0; i < 5; i++) {
        RAMBlock *block = &run->source->blocks[run->seed % N_BLOCKS];
        uint64_t len, offset = test_guest_scribble(&run->seed, block, &len);
        if (run->c.slots) {
            slot_log_write(&run->slot_logs[run->seed >> 63], block, offset / PAGE);
        } else {
            watch_log_mark(&run->watch, block, offset / PAGE);
        }
        atomic_fetch_add(&run->writes, 1);
    }
}

static void start_writers(Run *run)
{
    if (run->c.fetch_and_clear) {
        run->watch.touch = guest_step;
        run->watch.opaque = run;
        for (unsigned i = 0; i < 2; i++) {
            run->slot_logs[i].request = guest_step;
            run->slot_logs[i].opaque = run;
        }
        return;
    }
    for (unsigned i = 0; i < N_WRITERS; i++) {
        run->writers[i] = (Writer){
            run->source, run->soft, ((uint64_t)g_test_rand_int() << 32 | g_test_rand_int()) | 1, &run->stop,
            &run->writes, NULL,
        };
        run->writers[i].thread = g_thread_new("writer", writer_run, &run->writers[i]);
    }
}

static void stop_writers(Run *run)
{
    atomic_store(&run->stop, true);
    run->watch.touch = NULL;
    run->slot_logs[0].request = run->slot_logs[1].request = NULL;
    for (unsigned i = 0; i < N_WRITERS && !run->c.fetch_and_clear; i++) {
        g_thread_join(run->writers[i].thread);
    }
}

/* Slots begin at any page; as in a kernel that is told so, every page is in the log at first. */
static void init_slot_logs(Run *run)
{
    for (unsigned i = 0; i < 2; i++) {
        SlotLog *log = &run->slot_logs[i];
        slot_log_init(log, i ? "device" : "kernel");
        for (unsigned b = 0; b < N_BLOCKS; b++) {
            slot_log_cover(log, &run->source->blocks[b], g_test_rand_int_range(0, 64),
                           g_test_rand_int_range(1, 300));
        }
        slot_log_write_all(log);
        dirty_log_add_provider(&run->log, &log->provider);
    }
}

static void run_init(Run *run, const Case *c)
{
    *run = (Run){ .c = *c, .options = test_options() };
    run->source = c->shared ? test_guest_new_shared(block_pages, N_BLOCKS) :
                              test_guest_new(block_pages, N_BLOCKS);
    run->target = c->shared ? test_guest_new_shared(block_pages, N_BLOCKS) :
                              test_guest_new(block_pages, N_BLOCKS);
    run->soft = soft_dirty_log_new();
    watch_log_init(&run->watch);
    run->seed = ((uint64_t)g_test_rand_int() << 32 | g_test_rand_int()) | 1;
    if (c->slots) {
        init_slot_logs(run);
    } else {
        dirty_log_add_provider(&run->log, c->fetch_and_clear ? &run->watch.provider :
                                                               soft_dirty_log_provider(run->soft));
    }
    run->options.caps[MIGRATION_CAPABILITY_XBZRLE] = c->xbzrle;
    run->options.p.xbzrle_cache_size = c->cache_pages * PAGE;
    run->options.props.x_clear_bitmap_shift = c->chunk_shift;
    run->save = ram_save_new(&run->source->ram, &run->log, &run->options, NULL);
    ram_save_set_sink(run->save, c->sink == SINK_STREAM ?
                      ram_sink_stream_new(run->save) :
                      reorder_sink_new(run->save, run->target, c->sink == SINK_REORDER));
    run->load = ram_load_new(&run->target->ram, &run->options);
    run->channel = test_channel_new(NULL, 0, 0);
    run->w = stream_writer_new(&run->channel->base);
    run->r = stream_reader_new(&run->channel->base);
}

static void run_clear(Run *run)
{
    ram_save_free(run->save);
    ram_load_free(run->load);
    stream_writer_free(run->w);
    stream_reader_free(run->r);
    channel_unref(&run->channel->base);
    while (run->log.providers) {
        dirty_log_remove_provider(&run->log, run->log.providers);
    }
    for (unsigned i = 0; i < 2 && run->c.slots; i++) {
        slot_log_free(&run->slot_logs[i]);
    }
    watch_log_free(&run->watch);
    soft_dirty_log_free(run->soft);
    test_guest_free(run->source);
    test_guest_free(run->target);
}

/* The destination loads what has been sent; sections of random size stay in the channel for a while. */
static void deliver(Run *run, uint8_t type)
{
    OK(stream_flush(run->w, &error));
    OK(ram_load_section(run->load, run->r, type, &error));
}

/*
 * Waits until the writers have got on, so that every section meets new writes; a bound for a machine that
 * is busy.
 */
static void let_write(Run *run)
{
    unsigned from = atomic_load(&run->writes);

    if (run->c.fetch_and_clear) {
        guest_step(run);
        return;
    }
    for (unsigned i = 0; i < 1000 && atomic_load(&run->writes) - from < 200; i++) {
        g_usleep(100);
    }
}

static void migrate(Run *run)
{
    OK(ram_save_setup(run->save, run->w, &error));
    deliver(run, 1);
    for (unsigned i = 0; i < run->c.sections; i++) {
        bool done;
        let_write(run);
        if (g_test_rand_int_range(0, 3) == 0) {
            OK(ram_save_sync(run->save, false, &error));
        }
        uint64_t budget = g_test_rand_int_range(0, run->c.longest) * PAGE;
        OK(ram_save_iterate(run->save, run->w, budget, &done, &error));
        deliver(run, 2);
    }
    stop_writers(run);
    OK(ram_save_complete(run->save, run->w, &error));
    deliver(run, 3);
    OK(ram_load_complete(run->load, &error));
}

static bool check(const Case *c)
{
    Run run;

    run_init(&run, c);
    start_writers(&run);
    migrate(&run);
    bool equal = test_guest_equal(run.source, run.target);
    g_assert_cmpuint(atomic_load(&run.writes), >, 500);
    g_assert_cmpuint(ram_save_stats(run.save)->rounds, >, 1);
    g_assert_cmpuint(ram_save_pending(run.save), ==, 0);
    run_clear(&run);
    return equal;
}

static void test_stream(void)
{
    static const unsigned longest[] = { 50, 200, 700, 5000 };

    for (unsigned i = 0; i < 8; i++) {
        Case c = { .sink = SINK_STREAM, .shared = i % 2, .cache_pages = 1, .chunk_shift = 6 + i % 3 * 6,
                   .sections = 60, .longest = longest[i / 2] };
        g_assert_true(check(&c));
    }
}

static void test_fetch_and_clear(void)
{
    static const unsigned longest[] = { 50, 200, 700, 5000 };

    for (unsigned i = 0; i < 16; i++) {
        Case c = { .sink = i % 8 < 4 ? SINK_STREAM : SINK_REORDER, .shared = i / 8, .fetch_and_clear = true,
                   .xbzrle = i % 8 < 2, .cache_pages = 16, .chunk_shift = i % 3 ? 6 : 8, .sections = 80,
                   .longest = longest[i % 4] };
        g_assert_true(check(&c));
    }
}

/* Two logs at once, of other alignments than the block's and each other's. */
static void test_misaligned_slots(void)
{
    static const unsigned longest[] = { 50, 200, 700, 5000 };

    for (unsigned i = 0; i < 24; i++) {
        Case c = { .sink = i % 2 ? SINK_STREAM : SINK_REORDER, .fetch_and_clear = true, .slots = true,
                   .cache_pages = 1, .chunk_shift = 6 + i % 4, .sections = 80,
                   .longest = longest[i / 2 % 4] };
        g_assert_true(check(&c));
    }
}

static void test_xbzrle(void)
{
    static const uint64_t caches[] = { 1, 16, 256, 16384 };

    for (unsigned i = 0; i < G_N_ELEMENTS(caches); i++) {
        Case c = { .sink = SINK_STREAM, .xbzrle = true, .cache_pages = caches[i], .chunk_shift = 6,
                   .sections = 60, .longest = 700 };
        g_assert_true(check(&c));
    }
}

static void test_reorder(void)
{
    for (unsigned i = 0; i < 5; i++) {
        Case c = { .sink = SINK_REORDER, .cache_pages = 1, .chunk_shift = 6, .sections = 60, .longest = 300 };
        g_assert_true(check(&c));
    }
}

/* The same sink without the barrier loses writes: so it is the barrier that the test above proves. */
static void test_no_barrier(void)
{
    Case c = { .sink = SINK_NO_BARRIER, .cache_pages = 1, .chunk_shift = 6, .sections = 60, .longest = 1000 };
    bool equal = true;

    for (unsigned i = 0; equal && i < 10; i++) {
        equal = check(&c);
    }
    g_assert_false(equal);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ram-property/stream", test_stream);
    g_test_add_func("/ram-property/fetch-and-clear", test_fetch_and_clear);
    g_test_add_func("/ram-property/misaligned-slots", test_misaligned_slots);
    g_test_add_func("/ram-property/xbzrle", test_xbzrle);
    g_test_add_func("/ram-property/reorder", test_reorder);
    g_test_add_func("/ram-property/no-barrier", test_no_barrier);
    return g_test_run();
}
