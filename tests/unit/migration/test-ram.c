/* SPDX-License-Identifier: BSD-2-Clause */
/* The RAM scanner: exact bytes of its sections, order of runs, rounds and notifiers, budgets, lazy clears. */
#include <malloc.h>
#include <string.h>

#include "migration/ram-internal.h"
#include "migration/ram-wire.h"
#include "ram-test.h"
#include "util/be.h"
#include "util/bitmap.h"

/* ---- a sink that writes down what it is told ---- */

typedef struct Event {
    char kind;              /* R: run, F: flush, N: round end, L: last round end, C: complete */
    unsigned block;
    uint64_t first, count;
} Event;

typedef struct RecordSink {
    RamSink base;
    RamSave *save;
    GArray *events;         /* the test's */
    RamRoundNotifier notifier;
    uint64_t page_cost;
    bool fail_run, fail_round;
    bool clean;
} RecordSink;

static void record(RecordSink *s, char kind, unsigned block, uint64_t first, uint64_t count)
{
    Event e = { kind, block, first, count };
    g_array_append_val(s->events, e);
}

static bool record_round(Notifier *notifier, void *data, GError **errp)
{
    RecordSink *s = (RecordSink *)((char *)notifier - G_STRUCT_OFFSET(RecordSink, notifier));
    RamRound *round = data;

    record(s, round->last ? 'L' : 'N', 0, round->number, 0);
    if (s->fail_round) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "the barrier broke");
    }
    return !s->fail_round;
}

static bool record_setup_block(RamSink *sink, StreamWriter *w, RAMBlock *block, GError **errp)
{
    return stream_put_u8(w, 0xb0);
}

static bool record_setup(RamSink *sink, StreamWriter *w, GError **errp)
{
    ram_round_add_notifier(((RecordSink *)sink)->save, &((RecordSink *)sink)->notifier);
    return stream_put_u8(w, 0x5e);
}

static bool record_send_run(RamSink *sink, StreamWriter *w, RAMBlock *block, uint64_t first, uint64_t count,
                            uint64_t *bytes, GError **errp)
{
    RecordSink *s = (RecordSink *)sink;

    g_assert_cmpuint(count, >=, 1);
    g_assert_cmpuint(count, <=, RAM_RUN_MAX);
    record(s, 'R', block->index, first, count);
    *bytes = count * s->page_cost;
    if (s->fail_run) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "the link broke");
    }
    return !s->fail_run;
}

static bool record_flush(RamSink *sink, StreamWriter *w, GError **errp)
{
    record((RecordSink *)sink, 'F', 0, 0, 0);
    return true;
}

static bool record_settle(RamSink *sink, GError **errp)
{
    return true;
}

static bool record_complete(RamSink *sink, StreamWriter *w, GError **errp)
{
    record((RecordSink *)sink, 'C', 0, 0, 0);
    return true;
}

static void record_cleanup(RamSink *sink)
{
    RecordSink *s = (RecordSink *)sink;

    ram_round_remove_notifier(s->save, &s->notifier);
    g_free(s);
}

static const RamSinkOps record_ops = {
    .name = "record",
    .setup_block = record_setup_block,
    .setup = record_setup,
    .send_run = record_send_run,
    .flush = record_flush,
    .complete = record_complete,
    .settle = record_settle,
    .cleanup = record_cleanup,
};

/* ---- one outgoing migration ---- */

typedef struct Rig {
    TestGuest *guest;
    MigrationOptions options;
    WatchLog watch;
    DirtyLog log;
    RamSave *save;
    TestChannel *channel;
    StreamWriter *w;
    RecordSink *sink;       /* NULL with the stream sink */
    GArray *events;
} Rig;

static void rig_init(Rig *rig, const uint64_t *pages, unsigned count)
{
    *rig = (Rig){ .guest = test_guest_new(pages, count), .options = test_options() };
    watch_log_init(&rig->watch);
    dirty_log_add_provider(&rig->log, &rig->watch.provider);
    rig->channel = test_channel_new(NULL, 0, 0);
    rig->w = stream_writer_new(&rig->channel->base);
    rig->events = g_array_new(FALSE, FALSE, sizeof(Event));
}

static void rig_new_save(Rig *rig)
{
    rig->save = ram_save_new(&rig->guest->ram, &rig->log, &rig->options, NULL);
    /* What is sent must not depend on how fast the tests run. */
    rig->save->iteration_ns = INT64_MAX / 64;     /* the engine multiplies it */
}

static void rig_use_stream(Rig *rig)
{
    rig_new_save(rig);
    ram_save_set_sink(rig->save, ram_sink_stream_new(rig->save));
}

static void rig_use_record(Rig *rig)
{
    rig_new_save(rig);
    rig->sink = g_new0(RecordSink, 1);
    rig->sink->base.ops = &record_ops;
    rig->sink->save = rig->save;
    rig->sink->page_cost = PAGE;
    rig->sink->events = rig->events;
    rig->sink->notifier.notify = record_round;
    ram_save_set_sink(rig->save, &rig->sink->base);
}

static void rig_clear(Rig *rig)
{
    ram_save_free(rig->save);
    g_assert_false(rig->watch.started);
    watch_log_free(&rig->watch);
    stream_writer_free(rig->w);
    channel_unref(&rig->channel->base);
    g_array_unref(rig->events);
    test_guest_free(rig->guest);
}

static void rig_setup(Rig *rig)
{
    OK(ram_save_setup(rig->save, rig->w, &error));
}

static bool rig_iterate(Rig *rig, uint64_t budget)
{
    bool done = false;
    OK(ram_save_iterate(rig->save, rig->w, budget, &done, &error));
    g_assert_cmpint(done, ==, ram_save_pending(rig->save) == 0);
    return done;
}

static void rig_sync(Rig *rig)
{
    OK(ram_save_sync(rig->save, false, &error));
}

static void rig_complete(Rig *rig)
{
    OK(ram_save_complete(rig->save, rig->w, &error));
}

/* Takes what was sent since the last call. */
static GBytes *rig_take(Rig *rig)
{
    OK(stream_flush(rig->w, &error));
    GBytes *bytes = g_bytes_new(rig->channel->bytes->data, rig->channel->bytes->len);
    g_byte_array_set_size(rig->channel->bytes, 0);
    return bytes;
}

static void check_sent(Rig *rig, const void *expected, size_t len)
{
    g_autoptr(GBytes) sent = rig_take(rig);
    g_assert_cmpmem(g_bytes_get_data(sent, NULL), g_bytes_get_size(sent), expected, len);
}

/* The events since the last call as text: "R0:0+5 N1 F". */
static char *rig_events(Rig *rig)
{
    GString *text = g_string_new(NULL);

    for (unsigned i = 0; i < rig->events->len; i++) {
        const Event *e = &g_array_index(rig->events, Event, i);
        g_string_append_printf(text, "%s%c", i ? " " : "", e->kind);
        if (e->kind == 'R') {
            g_string_append_printf(text, "%u:%" G_GUINT64_FORMAT "+%" G_GUINT64_FORMAT, e->block, e->first,
                                   e->count);
        } else if (e->kind == 'N' || e->kind == 'L') {
            g_string_append_printf(text, "%" G_GUINT64_FORMAT, e->first);
        }
    }
    g_array_set_size(rig->events, 0);
    return g_string_free(text, FALSE);
}

static void check_events(Rig *rig, const char *expected)
{
    g_autofree char *text = rig_events(rig);
    g_assert_cmpstr(text, ==, expected);
}

/* ---- exact bytes ---- */

static const uint8_t eos[] = { 0, 0, 0, 0, 0, 0, 0, 0x10 };

/* 8 MiB, page 1 and page 300 not zero: the streams of QEMU 7.2 and 11.1 have these bytes. */
static void test_golden(void)
{
    static const uint8_t start[] = {
        0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x00, 0x04, 0x02, 'm', '0', 0x00, 0x00, 0x00, 0x00, 0x00,
        0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10,
    };
    static const uint8_t part[] = {
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 'm', '0', 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x28,
    };
    static const uint8_t after_page_1[] = {
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x20, 0x22, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x30, 0x22, 0x00,
    };
    static const uint8_t page_300[] = { 0x00, 0x00, 0x00, 0x00, 0x00, 0x12, 0xc0, 0x28 };
    static const uint8_t last[] = {
        0x00, 0x00, 0x00, 0x00, 0x00, 0x7f, 0xf0, 0x22, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10,
    };
    const uint64_t pages = 2048;
    Rig rig;

    rig_init(&rig, &pages, 1);
    uint8_t *host = rig.guest->blocks[0].host;
    memset(host + PAGE, 0xaa, PAGE);
    memset(host + 300 * PAGE, 0xbb, PAGE);
    rig_use_stream(&rig);
    rig_setup(&rig);
    check_sent(&rig, start, sizeof(start));

    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_autoptr(GBytes) sent = rig_take(&rig);
    const uint8_t *at = g_bytes_get_data(sent, NULL);
    g_assert_cmpuint(g_bytes_get_size(sent), ==, 26633);
    g_assert_cmpmem(at, sizeof(part), part, sizeof(part));
    g_assert_cmpmem(at + 0x14, PAGE, host + PAGE, PAGE);
    g_assert_cmpmem(at + 0x105b - 0x47, sizeof(after_page_1), after_page_1, sizeof(after_page_1));
    g_assert_cmpmem(at + 0x1ad5 - 0x47, sizeof(page_300), page_300, sizeof(page_300));
    g_assert_cmpmem(at + 0x1add - 0x47, PAGE, host + 300 * PAGE, PAGE);
    g_assert_cmpmem(at + 0x683f - 0x47, sizeof(last), last, sizeof(last));

    rig_complete(&rig);
    check_sent(&rig, eos, sizeof(eos));

    const RamStats *stats = ram_save_stats(rig.save);
    g_assert_cmpuint(stats->normal_pages, ==, 2);
    g_assert_cmpuint(stats->zero_pages, ==, 2046);
    g_assert_cmpuint(stats->precopy_bytes, ==, 26633);
    g_assert_cmpuint(stats->downtime_bytes, ==, 0);
    g_assert_cmpuint(stats->transferred, ==, sizeof(start) + 26633 + sizeof(eos));
    g_assert_cmpuint(stats->dirty_sync_count, ==, 1);
    g_assert_cmpuint(stats->remaining_pages, ==, 0);
    rig_clear(&rig);
}

static void test_no_ram(void)
{
    static const uint8_t start[] = { 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0x10 };
    Rig rig;

    rig_init(&rig, NULL, 0);
    rig_use_stream(&rig);
    rig_setup(&rig);
    check_sent(&rig, start, sizeof(start));
    g_assert_true(rig_iterate(&rig, 100));
    check_sent(&rig, eos, sizeof(eos));
    rig_complete(&rig);
    check_sent(&rig, eos, sizeof(eos));
    rig_clear(&rig);
}

/* The name comes with the first page of a block and is not repeated, not even in a later section. */
static void test_names(void)
{
    static const uint64_t pages[] = { 3, 2 };
    static const uint8_t part[] = {
        0, 0, 0, 0, 0, 0, 0x00, 0x02, 2, 'm', '0', 0,
        0, 0, 0, 0, 0, 0, 0x10, 0x22, 0, 0, 0, 0, 0, 0, 0, 0x20, 0x22, 0,
        0, 0, 0, 0, 0, 0, 0x00, 0x02, 2, 'm', '1', 0, 0, 0, 0, 0, 0, 0, 0x10, 0x22, 0,
        0, 0, 0, 0, 0, 0, 0, 0x10,
    };
    static const uint8_t again[] = { 0, 0, 0, 0, 0, 0, 0x10, 0x22, 0, 0, 0, 0, 0, 0, 0, 0, 0x10 };
    Rig rig;

    rig_init(&rig, pages, 2);
    rig_use_stream(&rig);
    rig_setup(&rig);
    g_bytes_unref(rig_take(&rig));
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_sent(&rig, part, sizeof(part));
    watch_log_mark(&rig.watch, &rig.guest->blocks[1], 1);
    rig_sync(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_sent(&rig, again, sizeof(again));
    rig_clear(&rig);
}

static void test_ignore_shared(void)
{
    static const uint64_t pages[] = { 3, 2 };
    static const uint8_t start[] = {
        0, 0, 0, 0, 0, 0, 0x50, 0x04,
        2, 'm', '0', 0, 0, 0, 0, 0, 0, 0x30, 0x00, 0, 0, 0, 0, 0, 0, 0, 0,
        2, 'm', '1', 0, 0, 0, 0, 0, 0, 0x20, 0x00, 0, 0, 1, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0x10,
    };
    static const uint8_t part[] = {
        0, 0, 0, 0, 0, 0, 0x00, 0x02, 2, 'm', '1', 0, 0, 0, 0, 0, 0, 0, 0x10, 0x22, 0,
        0, 0, 0, 0, 0, 0, 0, 0x10,
    };
    Rig rig;

    rig_init(&rig, pages, 2);
    rig.options.caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] = true;
    rig.guest->blocks[0].shared = true;
    rig_use_stream(&rig);
    rig_setup(&rig);
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 2 * PAGE);
    check_sent(&rig, start, sizeof(start));
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_sent(&rig, part, sizeof(part));
    rig_complete(&rig);
    rig_clear(&rig);
}

/* Without the capability, shared blocks are sent as any. */
static void test_shared_sent(void)
{
    static const uint64_t pages[] = { 3, 2 };
    Rig rig;

    rig_init(&rig, pages, 2);
    rig.guest->blocks[0].shared = true;
    rig_use_stream(&rig);
    rig_setup(&rig);
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 5 * PAGE);
    rig_clear(&rig);
}

static void test_zero_detection_none(void)
{
    const uint64_t pages = 3;
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig.options.p.zero_page_detection = ZERO_PAGE_DETECTION_NONE;
    rig_use_stream(&rig);
    rig_setup(&rig);
    g_bytes_unref(rig_take(&rig));
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_autoptr(GBytes) sent = rig_take(&rig);
    g_assert_cmpuint(g_bytes_get_size(sent), ==, 3 * (8 + PAGE) + 3 + 8);
    g_assert_cmpuint(load_be64(g_bytes_get_data(sent, NULL)), ==, RAM_FLAG_PAGE);
    g_assert_cmpuint(ram_save_stats(rig.save)->normal_pages, ==, 3);
    rig_clear(&rig);
}

/* ---- the scanner ---- */

static void test_first_round(void)
{
    static const uint64_t pages[] = { 100, 70, 1 };
    Rig rig;

    rig_init(&rig, pages, 3);
    rig_use_record(&rig);
    rig_setup(&rig);
    /* total, then per block name, length and the sink's byte, then the sink's byte and EOS */
    g_autoptr(GBytes) start = rig_take(&rig);
    g_assert_cmpuint(g_bytes_get_size(start), ==, 8 + 3 * (3 + 8 + 1) + 1 + 8);
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 171 * PAGE);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_events(&rig, "R0:0+100 R1:0+70 R2:0+1 N1 F");
    /* Nothing is dirty: no round. */
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_events(&rig, "F");
    rig_complete(&rig);
    check_events(&rig, "L2 C");
    rig_clear(&rig);
}

static void test_runs(void)
{
    static const uint64_t pages[] = { 200, 100 };
    static const unsigned dirty[] = { 0, 1, 62, 63, 64, 65, 127, 128, 199 };
    Rig rig;

    rig_init(&rig, pages, 2);
    rig_use_record(&rig);
    rig_setup(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_events(&rig, "R0:0+200 R1:0+100 N1 F");
    for (size_t i = 0; i < G_N_ELEMENTS(dirty); i++) {
        watch_log_mark(&rig.watch, &rig.guest->blocks[0], dirty[i]);
    }
    watch_log_mark(&rig.watch, &rig.guest->blocks[1], 99);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_events(&rig, "F");
    rig_sync(&rig);
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 10 * PAGE);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_events(&rig, "R0:0+2 R0:62+4 R0:127+2 R0:199+1 R1:99+1 N2 F");
    rig_clear(&rig);
}

/* The position is kept between sections; pages that become dirty before it wait for the next round. */
static void test_position(void)
{
    const uint64_t pages = 100;
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig_setup(&rig);
    g_assert_false(rig_iterate(&rig, 40 * PAGE));
    check_events(&rig, "R0:0+40 F");
    watch_log_mark(&rig.watch, &rig.guest->blocks[0], 10);
    watch_log_mark(&rig.watch, &rig.guest->blocks[0], 50);
    rig_sync(&rig);
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 61 * PAGE);
    g_assert_false(rig_iterate(&rig, 60 * PAGE));
    check_events(&rig, "R0:40+60 F");
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_events(&rig, "N1 R0:10+1 N2 F");
    rig_clear(&rig);
}

static void test_end(void)
{
    const uint64_t pages = 100;
    Rig rig;

    /*
     * Everything is sent in END: pages after the position in the round that runs, those before it in the
     * last one.
     */
    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig_setup(&rig);
    g_assert_false(rig_iterate(&rig, 40 * PAGE));
    check_events(&rig, "R0:0+40 F");
    watch_log_mark(&rig.watch, &rig.guest->blocks[0], 3);
    unsigned clears = rig.watch.clears;
    g_assert_false(ram_save_last_stage(rig.save));
    rig_complete(&rig);
    g_assert_true(ram_save_last_stage(rig.save));
    check_events(&rig, "R0:40+60 N1 R0:3+1 L2 C");
    /* Nobody writes any more: the log is not cleared. */
    g_assert_cmpuint(rig.watch.clears, ==, clears);
    g_assert_cmpuint(ram_save_stats(rig.save)->downtime_bytes, ==, 61 * PAGE);
    g_assert_cmpuint(ram_save_stats(rig.save)->precopy_bytes, ==, 40 * PAGE + 8);
    rig_clear(&rig);

    /* The last sync of the caller is the last sync. */
    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig_setup(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_events(&rig, "R0:0+100 N1 F");
    watch_log_mark(&rig.watch, &rig.guest->blocks[0], 5);
    OK(ram_save_sync(rig.save, true, &error));
    g_assert_cmpuint(ram_save_pending(rig.save), ==, PAGE);
    g_assert_cmpuint(ram_save_stats(rig.save)->dirty_sync_count, ==, 1);
    rig.watch.fail_sync = true;
    rig_complete(&rig);
    check_events(&rig, "R0:5+1 L2 C");
    rig_clear(&rig);
}

/* Long runs are cut, so that cancel and the limits are looked at. */
static void test_long_run(void)
{
    const uint64_t pages = 20000;
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig_setup(&rig);
    uint64_t next = 0;
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    for (unsigned i = 0; i < rig.events->len; i++) {
        const Event *e = &g_array_index(rig.events, Event, i);
        if (e->kind == 'R') {
            g_assert_cmpuint(e->first, ==, next);
            next += e->count;
        }
    }
    g_assert_cmpuint(next, ==, pages);
    rig_clear(&rig);
}

static void test_budget(void)
{
    const uint64_t pages = 1000;
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig_setup(&rig);
    /* What is sent exceeds the budget by less than one page; without any, one page still is sent. */
    g_assert_false(rig_iterate(&rig, 10 * PAGE + 1));
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 989 * PAGE);
    g_assert_false(rig_iterate(&rig, 10 * PAGE));
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 979 * PAGE);
    g_assert_false(rig_iterate(&rig, 0));
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 978 * PAGE);
    g_assert_false(rig_iterate(&rig, 1));
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 977 * PAGE);
    /* Cheap pages: the budget counts what they cost. */
    rig.sink->page_cost = 9;
    g_assert_false(rig_iterate(&rig, 90));
    g_assert_cmpuint(ram_save_pending(rig.save), ==, 967 * PAGE);
    rig_clear(&rig);
}

/* When time is up, the iteration ends after the run that it is at: the first one has 512 pages. */
static void test_time(void)
{
    const uint64_t pages = 2000;
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig.save->iteration_ns = 0;
    rig_setup(&rig);
    g_assert_false(rig_iterate(&rig, UINT64_MAX));
    check_events(&rig, "R0:0+512 F");
    g_assert_false(rig_iterate(&rig, UINT64_MAX));
    check_events(&rig, "R0:512+512 F");
    /* In END no clock is looked at. */
    rig_complete(&rig);
    check_events(&rig, "R0:1024+976 L1 C");
    rig_clear(&rig);
}

/* ---- notifiers ---- */

typedef struct Counter {
    RamRoundNotifier notifier;
    GString *log;
    char name;
    bool leaves;            /* removes itself at its first call */
} Counter;

static bool count_round(Notifier *notifier, void *data, GError **errp)
{
    Counter *c = (Counter *)notifier;
    RamRound *round = data;

    g_string_append_printf(c->log, "%c%" G_GUINT64_FORMAT, c->name, round->number);
    if (c->leaves) {
        ram_round_remove_notifier(round->save, notifier);
    }
    return true;
}

static void test_notifier_order(void)
{
    const uint64_t pages = 10;
    g_autoptr(GString) log = g_string_new(NULL);
    Counter a = { { .notify = count_round }, log, 'a', false };
    Counter b = { { .notify = count_round }, log, 'b', true };
    Counter c = { { .notify = count_round }, log, 'c', false };
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    ram_round_add_notifier(rig.save, &a.notifier);
    ram_round_add_notifier(rig.save, &b.notifier);
    ram_round_add_notifier(rig.save, &c.notifier);
    rig_setup(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_assert_cmpstr(log->str, ==, "a1b1c1");
    watch_log_mark(&rig.watch, &rig.guest->blocks[0], 5);
    rig_sync(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    ram_round_remove_notifier(rig.save, &a.notifier);
    rig_complete(&rig);
    g_assert_cmpstr(log->str, ==, "a1b1c1" "a2c2" "c3");
    rig_clear(&rig);
}

static void test_notifier_fails(void)
{
    const uint64_t pages = 10;
    g_autoptr(GString) log = g_string_new(NULL);
    Counter after = { { .notify = count_round }, log, 'x', false };
    bool done = false;
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig_setup(&rig);
    ram_round_add_notifier(rig.save, &after.notifier);
    rig.sink->fail_round = true;
    FAILS("the barrier broke", ram_save_iterate(rig.save, rig.w, UINT64_MAX, &done, &error));
    g_assert_cmpstr(log->str, ==, "");
    FAILS("the barrier broke", ram_save_complete(rig.save, rig.w, &error));
    rig_clear(&rig);
}

/* A notifier may write words to the section: they come where the round ends. */
static bool write_word(Notifier *notifier, void *data, GError **errp)
{
    return stream_put_be64(((RamRound *)data)->writer, RAM_FLAG_MULTIFD_FLUSH);
}

static void test_notifier_writes(void)
{
    static const uint8_t part[] = {
        0, 0, 0, 0, 0, 0, 0x00, 0x02, 2, 'm', '0', 0, 0, 0, 0, 0, 0, 0, 0x02, 0x00, 0, 0, 0, 0, 0, 0, 0, 0x10,
    };
    const uint64_t pages = 1;
    RamRoundNotifier notifier = { .notify = write_word };
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_stream(&rig);
    rig_setup(&rig);
    g_bytes_unref(rig_take(&rig));
    ram_round_add_notifier(rig.save, &notifier);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_sent(&rig, part, sizeof(part));
    ram_round_remove_notifier(rig.save, &notifier);
    rig_clear(&rig);
}

/*
 * Random dirtying and budgets. A model that knows only the rule counts: a round ends when the next run
 * lies before the last one's end, and when nothing is left.
 */
static void test_notifier_count(void)
{
    static const uint64_t pages[] = { 300, 129, 65 };
    Rig rig;

    rig_init(&rig, pages, 3);
    rig_use_record(&rig);
    rig_setup(&rig);
    for (unsigned i = 0; i < 500; i++) {
        for (int j = g_test_rand_int_range(0, 30); j > 0; j--) {
            RAMBlock *b = &rig.guest->blocks[g_test_rand_int_range(0, 3)];
            watch_log_mark(&rig.watch, b, g_test_rand_int_range(0, ramblock_pages(b)));
        }
        if (g_test_rand_int_range(0, 3) == 0) {
            rig_sync(&rig);
        }
        rig_iterate(&rig, g_test_rand_int_range(0, 40) * PAGE);
    }
    rig_complete(&rig);

    uint64_t position = 0, ends = 0, rounds = 0;
    bool open = false, sent[3][300] = { { false } };
    for (unsigned i = 0; i < rig.events->len; i++) {
        const Event *e = &g_array_index(rig.events, Event, i);
        if (e->kind == 'R') {
            uint64_t at = (uint64_t)e->block << 32 | e->first;
            g_assert_cmpuint(at, >=, position);
            position = at + e->count;
            open = true;
            for (uint64_t p = e->first; p < e->first + e->count; p++) {
                /* The rule that makes one barrier suffice: no page twice in a round. */
                g_assert_false(sent[e->block][p]);
                sent[e->block][p] = true;
            }
        } else if (e->kind == 'N' || e->kind == 'L') {
            g_assert_true(open || e->kind == 'L');
            g_assert_cmpuint(e->first, ==, ++ends);
            rounds++;
            position = 0;
            open = false;
            memset(sent, 0, sizeof(sent));
        }
    }
    g_assert_false(open);
    g_assert_cmpuint(rounds, ==, ram_save_stats(rig.save)->rounds);
    g_assert_cmpuint(rounds, >, 10);
    rig_clear(&rig);
}

/* ---- lazy clears ---- */

static void test_clears(void)
{
    static const uint64_t pages[] = { 1000, 100 };
    Rig rig;

    rig_init(&rig, pages, 2);
    rig.options.props.x_clear_bitmap_shift = 6;
    rig_use_record(&rig);
    rig_setup(&rig);
    g_assert_cmpuint(rig.watch.clears, ==, 0);
    /* One page is sent, its chunk of 64 is cleared. */
    rig_iterate(&rig, 1);
    g_assert_cmpuint(rig.watch.clears, ==, 1);
    g_assert_cmpuint(rig.watch.cleared_pages, ==, 64);
    rig_iterate(&rig, 63 * PAGE);
    g_assert_cmpuint(rig.watch.clears, ==, 1);
    /* A run over many chunks is one call. */
    rig_iterate(&rig, UINT64_MAX);
    g_assert_cmpuint(rig.watch.clears, ==, 1 + 2 + 1);
    g_assert_cmpuint(rig.watch.cleared_pages, ==, 1100);
    rig_clear(&rig);
}

/*
 * Calls are counted by chunks, whatever the holes in them, and only pages that are about to be sent are
 * cleared (WatchLog looks).
 */
static void test_clears_sparse(void)
{
    const uint64_t pages = 5000;
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig_setup(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_assert_cmpuint(rig.watch.clears, ==, 1);
    for (unsigned i = 0; i < 50; i++) {
        for (unsigned j = 0; j < 30; j++) {
            watch_log_mark(&rig.watch, &rig.guest->blocks[0], i * 100 + j);
        }
    }
    rig_sync(&rig);
    g_assert_cmpuint(rig.watch.cleared_pages, ==, 5000);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_assert_cmpuint(rig.watch.clears, ==, 1 + 1);
    g_assert_cmpuint(rig.watch.cleared_pages, ==, 5000 + 1500);
    g_assert_cmpuint(ram_save_stats(rig.save)->clear_calls, ==, 2);
    g_assert_cmpuint(ram_save_stats(rig.save)->cleared_pages, ==, 5000 + 1500);
    /* No sync since: nothing to clear. */
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_assert_cmpuint(rig.watch.clears, ==, 2);
    rig_clear(&rig);
}

/* A page written between the sync and the clear of its chunk is reported by the next sync. */
static void test_clear_keeps_unfetched(void)
{
    const uint64_t pages = 300;
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig_setup(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    watch_log_mark(&rig.watch, &rig.guest->blocks[0], 10);
    watch_log_mark(&rig.watch, &rig.guest->blocks[0], 12);
    rig_sync(&rig);
    watch_log_mark(&rig.watch, &rig.guest->blocks[0], 11);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    rig_sync(&rig);
    g_assert_cmpuint(ram_save_pending(rig.save), ==, PAGE);
    check_events(&rig, "R0:0+300 N1 F R0:10+1 R0:12+1 N2 F");
    rig_clear(&rig);
}

/* ---- holes ---- */

/* Shared memory that nobody wrote to is sent as zero without coming into being. */
static void test_holes(void)
{
    const uint64_t pages = 600;
    const RamStats *stats;
    Rig rig;

    rig_init(&rig, &pages, 1);
    test_guest_free(rig.guest);
    rig.guest = test_guest_new_shared(&pages, 1);
    RAMBlock *b = &rig.guest->blocks[0];
    b->host[3 * PAGE] = 1;
    b->host[4 * PAGE + 5] = 1;
    b->host[599 * PAGE] = 1;
    memset(b->host + 300 * PAGE, 0, PAGE);
    g_assert_cmpuint(test_guest_allocated(rig.guest, 0), ==, 4);
    rig_use_stream(&rig);
    stats = ram_save_stats(rig.save);
    rig_setup(&rig);
    g_bytes_unref(rig_take(&rig));
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_assert_cmpuint(stats->normal_pages, ==, 3);
    g_assert_cmpuint(stats->zero_pages, ==, 597);
    /* Behind 4 pages with data and behind page 300 a page was read that did not exist. */
    g_assert_cmpuint(test_guest_allocated(rig.guest, 0), <=, 4 + 3);
    g_autoptr(GBytes) sent = rig_take(&rig);
    g_assert_cmpuint(g_bytes_get_size(sent), ==, 3 + 597 * 9 + 3 * (8 + PAGE) + 8);
    rig_clear(&rig);
}

/* ---- XBZRLE ---- */

static void test_xbzrle(void)
{
    static const uint8_t changed[] = {
        0, 0, 0, 0, 0, 0, 0x10, 0x60, 0x01, 0x00, 0x03, 0x00, 0x01, 0x26, 0, 0, 0, 0, 0, 0, 0, 0x10,
    };
    const uint64_t pages = 4;
    Rig rig;

    rig_init(&rig, &pages, 1);
    RAMBlock *b = &rig.guest->blocks[0];
    const RamStats *stats;
    memset(b->host + PAGE, 0x11, PAGE);
    rig.options.caps[MIGRATION_CAPABILITY_XBZRLE] = true;
    rig_use_stream(&rig);
    stats = ram_save_stats(rig.save);
    rig_setup(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_bytes_unref(rig_take(&rig));
    g_assert_cmpuint(stats->xbzrle_cache_miss, ==, 0);

    /* The second round: nothing is cached yet, the page travels whole and is kept. */
    watch_log_mark(&rig.watch, b, 1);
    rig_sync(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_autoptr(GBytes) whole = rig_take(&rig);
    g_assert_cmpuint(g_bytes_get_size(whole), ==, 8 + PAGE + 8);
    g_assert_cmpuint(stats->xbzrle_cache_miss, ==, 1);
    g_assert_cmpuint(stats->normal_pages, ==, 2);

    /* One byte changes. */
    b->host[PAGE] = 0x26;
    watch_log_mark(&rig.watch, b, 1);
    rig_sync(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_sent(&rig, changed, sizeof(changed));
    g_assert_cmpuint(stats->xbzrle_pages, ==, 1);
    g_assert_cmpuint(stats->xbzrle_bytes, ==, 6);
    g_assert_cmpuint(stats->normal_pages, ==, 2);

    /* Dirty but unchanged: nothing is sent. */
    watch_log_mark(&rig.watch, b, 1);
    rig_sync(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_sent(&rig, eos, sizeof(eos));
    g_assert_cmpuint(stats->xbzrle_pages, ==, 2);

    /* Everything changes: overflow, sent whole, kept. */
    memset(b->host + PAGE, 0x77, PAGE);
    watch_log_mark(&rig.watch, b, 1);
    rig_sync(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_bytes_unref(rig_take(&rig));
    g_assert_cmpuint(stats->xbzrle_overflow, ==, 1);
    g_assert_cmpuint(stats->xbzrle_bytes, ==, 6 + PAGE);
    g_assert_cmpuint(stats->normal_pages, ==, 3);

    /* Zero: a ZERO record; the cache then holds zeroes, so that the next change is small.  In END, too. */
    memset(b->host + PAGE, 0, PAGE);
    watch_log_mark(&rig.watch, b, 1);
    rig_sync(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    check_sent(&rig, (const uint8_t[]){ 0, 0, 0, 0, 0, 0, 0x10, 0x22, 0, 0, 0, 0, 0, 0, 0, 0, 0x10 }, 17);
    b->host[PAGE] = 0x26;
    watch_log_mark(&rig.watch, b, 1);
    rig_complete(&rig);
    check_sent(&rig, changed, sizeof(changed));
    rig_clear(&rig);
}

/* ---- failures and the rest ---- */

static void test_failures(void)
{
    const uint64_t pages = 10;
    bool done;
    Rig rig;

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig.watch.fail_sync = true;
    FAILS("*the log is gone", ram_save_setup(rig.save, rig.w, &error));
    rig_clear(&rig);

    rig_init(&rig, &pages, 1);
    rig_use_record(&rig);
    rig_setup(&rig);
    rig.sink->fail_run = true;
    FAILS("the link broke", ram_save_iterate(rig.save, rig.w, UINT64_MAX, &done, &error));
    rig_clear(&rig);

    rig_init(&rig, &pages, 1);
    rig_use_stream(&rig);
    rig.channel->fail_after = 0;
    rig_setup(&rig);
    FAILS("Unable to write to test: full", stream_flush(rig.w, &error));
    FAILS("Unable to write to test: full", ram_save_iterate(rig.save, rig.w, UINT64_MAX, &done, &error));
    FAILS("Unable to write to test: full", ram_save_complete(rig.save, rig.w, &error));
    rig_clear(&rig);

    /* Freed before it was set up. */
    rig_init(&rig, &pages, 1);
    rig_use_stream(&rig);
    rig_clear(&rig);
    ram_save_free(NULL);
}

/* Bitmaps aside, the source needs less than 16 MiB. */
static void test_memory(void)
{
    static const uint64_t pages[] = { 1 << 18, 1 << 17 };
    struct mallinfo2 before = mallinfo2();
    Rig rig;

    if (!before.uordblks) {
        g_test_skip("the allocator in use does not count");
        return;
    }
    rig_init(&rig, pages, 2);
    rig_use_stream(&rig);
    rig_setup(&rig);
    g_assert_true(rig_iterate(&rig, UINT64_MAX));
    g_bytes_unref(rig_take(&rig));
    g_byte_array_set_size(rig.channel->bytes, 0);
    struct mallinfo2 after = mallinfo2();
    size_t used = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    /* The test's own buffer took what was sent. */
    g_assert_cmpuint(used, <, 16 * 1024 * 1024 + ((1 << 18) + (1 << 17)) * 9);
    rig_clear(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ram/bytes/golden", test_golden);
    g_test_add_func("/ram/bytes/no-ram", test_no_ram);
    g_test_add_func("/ram/bytes/names", test_names);
    g_test_add_func("/ram/bytes/ignore-shared", test_ignore_shared);
    g_test_add_func("/ram/bytes/shared-sent", test_shared_sent);
    g_test_add_func("/ram/bytes/zero-detection-none", test_zero_detection_none);
    g_test_add_func("/ram/scan/first-round", test_first_round);
    g_test_add_func("/ram/scan/runs", test_runs);
    g_test_add_func("/ram/scan/position", test_position);
    g_test_add_func("/ram/scan/end", test_end);
    g_test_add_func("/ram/scan/long-run", test_long_run);
    g_test_add_func("/ram/scan/budget", test_budget);
    g_test_add_func("/ram/scan/time", test_time);
    g_test_add_func("/ram/round/order", test_notifier_order);
    g_test_add_func("/ram/round/failure", test_notifier_fails);
    g_test_add_func("/ram/round/writes", test_notifier_writes);
    g_test_add_func("/ram/round/count", test_notifier_count);
    g_test_add_func("/ram/clear/chunks", test_clears);
    g_test_add_func("/ram/clear/sparse", test_clears_sparse);
    g_test_add_func("/ram/clear/unfetched", test_clear_keeps_unfetched);
    g_test_add_func("/ram/holes", test_holes);
    g_test_add_func("/ram/xbzrle", test_xbzrle);
    g_test_add_func("/ram/failures", test_failures);
    g_test_add_func("/ram/memory", test_memory);
    return g_test_run();
}
