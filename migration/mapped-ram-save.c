/* SPDX-License-Identifier: BSD-2-Clause */
/* The source's half of mapped-ram: the sink, and the threads that write with multifd. */

/*
 * Without multifd the migration thread looks for zero pages and hands writes to one engine, which works
 * beside it. With multifd it only writes down runs of pages, up to 1 MiB in a job; channel threads take jobs
 * from a ring, each with an engine of its own. Nothing tells in the file who wrote what.
 *
 * The barrier at the end of a round: the ring runs empty, no thread has a job in hand, every engine runs dry.
 * Threads drain their own engines, when they are asked to. Then the migration thread, alone, makes holes of
 * what has turned zero. The bitmaps are written when the last round has ended.
 */
#include "migration/mapped-ram-writer.h"

#include "migration/job-ring.h"
#include "migration/ram-holes.h"
#include "trace-migration.h"
#include "util/be.h"
#include "util/bitmap.h"
#include "util/error.h"
#include "util/fault.h"

#include <string.h>

/* A job ends at a multiple of so many pages of its block: 4 MiB. */
#define JOB_PAGES 1024

/* Runs in a job: where few pages are dirty they lie apart. */
#define JOB_RUNS 64

/* Jobs in the ring per channel: enough that a channel finds the next one when it has done one. */
#define RING_PER_CHANNEL 2

/* How often a wait looks whether it is of any use. */
#define LOOK_US (100 * 1000)

#define PAGES_MASK ((uint64_t)MAPPED_RAM_PAGES_ALIGN - 1)

typedef struct SaveJob {
    MappedRamSaveBlock *b;
    unsigned n;
    uint64_t pages;
    MappedRamRun runs[JOB_RUNS];
} SaveJob;

typedef struct MappedRamSave MappedRamSave;

typedef struct SaveChannel {
    MappedRamSave *s;
    unsigned id;
    GThread *thread;            /* NULL: the migration thread */
    MappedRamWriter writer;
    SaveJob job;                /* the thread's own */
} SaveChannel;

struct MappedRamSave {
    RamSink base;

    /* Fixed. */
    MappedRamSaveConfig config;
    RamSave *save;
    RamStats *stats;
    bool threaded;
    unsigned n;
    SaveChannel *channels;      /* without multifd there is one, without a thread */

    /* The migration thread's own; @blocks is read by others. */
    GPtrArray *blocks;          /* of MappedRamSaveBlock, by block index */
    SaveJob pending;
    uint64_t charged;           /* bytes already told to the rate limit */
    RamRoundNotifier round_end;

    JobRing ring;               /* of SaveJob */
};

/* ---- channel threads ---- */

static bool write_job(MappedRamWriter *w, const SaveJob *job, GError **errp)
{
    for (unsigned i = 0; i < job->n; i++) {
        if (!mapped_ram_writer_run(w, job->b, &job->runs[i], errp)) {
            return false;
        }
    }
    trace_mapped_ram_job(job->b->block->idstr, job->runs[0].first, job->pages);
    if (!mapped_ram_writer_flush(w, errp)) {
        return false;
    }
    ram_stats_sub(&w->stats->in_flight_pages, job->pages);
    return true;
}

static bool do_work(void *opaque, bool barrier, GError **errp)
{
    SaveChannel *ch = opaque;
    return barrier ? mapped_ram_writer_drain(&ch->writer, errp) : write_job(&ch->writer, &ch->job, errp);
}

static gpointer channel_thread(gpointer opaque)
{
    SaveChannel *ch = opaque;
    g_autoptr(GError) error = NULL;

    if (!job_ring_work(&ch->s->ring, ch->id, &ch->job, do_work, ch, &error)) {
        job_ring_fail(&ch->s->ring, error);
    }
    return NULL;
}

/* ---- the migration thread's side of the ring ---- */

static bool look(void *opaque, bool waited, GError **errp)
{
    MappedRamSave *s = opaque;

    if (s->config.interrupted(s->config.opaque)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "interrupted");
        return false;
    }
    return true;
}

static bool push_pending(MappedRamSave *s, GError **errp)
{
    if (!s->pending.n) {
        return true;
    }
    if (!job_ring_push(&s->ring, &s->pending, errp)) {
        return false;
    }
    s->pending.n = 0;
    s->pending.pages = 0;
    return true;
}

/* Everything that was handed to the sink is in the file. */
static bool drain(MappedRamSave *s, GError **errp)
{
    if (s->threaded) {
        return push_pending(s, errp) && job_ring_barrier(&s->ring, errp);
    }
    return mapped_ram_writer_drain(&s->channels[0].writer, errp);
}

static bool queue_run(MappedRamSave *s, MappedRamSaveBlock *b, const MappedRamRun *run, GError **errp)
{
    SaveJob *job = &s->pending;
    uint64_t first = run->first, count = run->count;

    if (job->n && job->b != b && !push_pending(s, errp)) {
        return false;
    }
    while (count) {
        uint64_t n = MIN(count, JOB_PAGES - first % JOB_PAGES);
        MappedRamRun *last = job->n ? &job->runs[job->n - 1] : NULL;
        job->b = b;
        if (last && last->first + last->count == first) {
            last->count += n;
        } else {
            job->runs[job->n++] = (MappedRamRun){ first, n, run->first_round };
        }
        job->pages += n;
        first += n;
        count -= n;
        bool full = job->n == JOB_RUNS || job->pages >= JOB_PAGES || first % JOB_PAGES == 0;
        if (full && !push_pending(s, errp)) {
            return false;
        }
    }
    return true;
}

/* ---- the sink ---- */

static bool round_ended(Notifier *notifier, void *data, GError **errp)
{
    MappedRamSave *s = (MappedRamSave *)((char *)notifier - offsetof(MappedRamSave, round_end));

    if (!drain(s, errp)) {
        return false;
    }
    for (guint i = 0; i < s->blocks->len; i++) {
        if (!mapped_ram_make_holes(g_ptr_array_index(s->blocks, i), s->config.file, errp)) {
            return false;
        }
    }
    return true;
}

static void put_header(StreamWriter *w, const MappedRamSaveBlock *b)
{
    MappedRamHeaderWire wire;

    mapped_ram_header_encode(&wire, b->bitmap_offset, b->pages_offset);
    stream_put(w, &wire, sizeof(wire));
}

static bool setup_block(RamSink *sink, StreamWriter *w, RAMBlock *block, GError **errp)
{
    MappedRamSave *s = (MappedRamSave *)sink;
    const MigrationOptions *options = ram_save_options(s->save);
    MappedRamSaveBlock *b = g_new0(MappedRamSaveBlock, 1);

    g_assert(s->blocks->len == block->index);
    g_ptr_array_add(s->blocks, b);
    b->block = block;
    b->pages = ramblock_pages(block);
    b->ignored = options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] && block->shared;
    if (b->ignored) {
        put_header(w, b);
        return stream_writer_check(w, errp);
    }
    if (fault_point("mapped-ram-setup", errp) || !stream_flush(w, errp)) {
        return false;
    }
    off_t here = channel_seek(s->config.file, 0, SEEK_CUR, errp);
    if (here < 0) {
        return false;
    }
    b->holes_known = ram_holes_known(block);
    b->data = bitmap_new(b->pages);
    b->written = bitmap_new(b->pages);
    b->bitmap_offset = (uint64_t)here + sizeof(MappedRamHeaderWire);
    uint64_t bitmap_end = b->bitmap_offset + mapped_ram_bitmap_size(block->used_length);
    b->pages_offset = (bitmap_end + PAGES_MASK) & ~PAGES_MASK;
    if (b->pages_offset > INT64_MAX - block->used_length) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "RAM block '%s' does not fit into the file behind offset 0x%" G_GINT64_MODIFIER "x",
                    block->idstr, b->bitmap_offset);
        return false;
    }
    put_header(w, b);
    trace_mapped_ram_block(block->idstr, b->bitmap_offset, b->pages_offset, block->used_length);
    return stream_writer_seek(w, b->pages_offset + block->used_length, errp);
}

static bool setup(RamSink *sink, StreamWriter *w, GError **errp)
{
    MappedRamSave *s = (MappedRamSave *)sink;

    ram_round_add_notifier(s->save, &s->round_end);
    return true;
}

/* What has been written since it was last asked for; what waits in the ring is in flight. */
static uint64_t charge_bytes(MappedRamSave *s)
{
    uint64_t written = s->threaded ? ram_stats_get(&s->stats->multifd_bytes) : s->channels[0].writer.bytes;
    uint64_t bytes = written - s->charged;
    s->charged = written;
    return bytes;
}

static bool send_run(RamSink *sink, StreamWriter *w, RAMBlock *block, uint64_t first, uint64_t count,
                     uint64_t *bytes, GError **errp)
{
    MappedRamSave *s = (MappedRamSave *)sink;
    MappedRamSaveBlock *b = g_ptr_array_index(s->blocks, block->index);
    MappedRamRun run = { first, count, !ram_stats_get(&s->stats->rounds) };
    bool ok = s->threaded ? queue_run(s, b, &run, errp)
                          : mapped_ram_writer_run(&s->channels[0].writer, b, &run, errp);

    if (s->threaded) {
        ram_stats_add(&s->stats->in_flight_pages, count);
    }
    *bytes = charge_bytes(s);
    return ok;
}

static bool flush(RamSink *sink, StreamWriter *w, GError **errp)
{
    MappedRamSave *s = (MappedRamSave *)sink;
    return s->threaded ? push_pending(s, errp) : mapped_ram_writer_flush(&s->channels[0].writer, errp);
}

/* The last round has ended: all pages are in the file. */
static bool complete(RamSink *sink, StreamWriter *w, GError **errp)
{
    MappedRamSave *s = (MappedRamSave *)sink;

    if (fault_point("mapped-ram-bitmap", errp)) {
        return false;
    }
    for (guint i = 0; i < s->blocks->len; i++) {
        const MappedRamSaveBlock *b = g_ptr_array_index(s->blocks, i);
        if (!b->ignored && !mapped_ram_write_bitmap(b, s->config.file, errp)) {
            return false;
        }
    }
    return true;
}

static void block_free(gpointer data)
{
    MappedRamSaveBlock *b = data;

    if (!b->ignored) {
        bitmap_free(b->data, b->pages);
        bitmap_free(b->written, b->pages);
    }
    g_free(b);
}

static void cleanup(RamSink *sink)
{
    MappedRamSave *s = (MappedRamSave *)sink;

    ram_round_remove_notifier(s->save, &s->round_end);
    job_ring_quit(&s->ring);
    for (unsigned i = 0; i < s->n; i++) {
        if (s->channels[i].thread) {
            g_thread_join(s->channels[i].thread);
        }
        file_io_free(s->channels[i].writer.io);
    }
    job_ring_clear(&s->ring);
    g_ptr_array_unref(s->blocks);
    channel_unref(s->config.file);
    g_free(s->channels);
    g_free(s);
}

/* Writers empty the queue by themselves. */
static bool mapped_ram_settle(RamSink *sink, GError **errp)
{
    return true;
}

static const RamSinkOps mapped_ram_sink_ops = {
    .name = "mapped-ram",
    .setup_block = setup_block,
    .setup = setup,
    .send_run = send_run,
    .flush = flush,
    .complete = complete,
    .settle = mapped_ram_settle,
    .cleanup = cleanup,
};

const char *mapped_ram_save_backend(const RamSink *sink)
{
    return file_io_backend(((const MappedRamSave *)sink)->channels[0].writer.io);
}

/* ---- birth ---- */

static bool start_channel(MappedRamSave *s, unsigned id, GError **errp)
{
    SaveChannel *ch = &s->channels[id];
    FileIoConfig config = {
        .fd = s->config.pages->fd,
        .write = true,
        .interrupted = s->config.interrupted,
        .opaque = s->config.opaque,
    };

    ch->s = s;
    ch->id = id;
    ch->writer.stats = s->stats;
    ch->writer.counters = s->threaded ? &s->config.counters[id] : NULL;
    ch->writer.detect_zero = ram_save_options(s->save)->p.zero_page_detection != ZERO_PAGE_DETECTION_NONE;
    ch->writer.write_pages =
        s->config.pages->direct ? MAPPED_RAM_WRITE_DIRECT : MAPPED_RAM_WRITE_BUFFERED;
    ch->writer.io = file_io_new(&config, errp);
    s->n++;
    if (!ch->writer.io || !s->threaded) {
        return ch->writer.io != NULL;
    }
    g_autofree char *name = g_strdup_printf("mig/file_%u", id);
    ch->thread = g_thread_try_new(name, channel_thread, ch, errp);
    return ch->thread != NULL;
}

RamSink *mapped_ram_save_new(RamSave *save, const MappedRamSaveConfig *config, GError **errp)
{
    MappedRamSave *s = g_new0(MappedRamSave, 1);
    unsigned n = MAX(config->channels, 1);

    s->base.ops = &mapped_ram_sink_ops;
    s->config = *config;
    channel_ref(config->file);
    s->save = save;
    s->stats = ram_save_stats(save);
    s->threaded = config->channels > 0;
    s->channels = g_new0(SaveChannel, n);
    s->blocks = g_ptr_array_new_with_free_func(block_free);
    s->round_end.notify = round_ended;
    JobRingConfig ring = {
        .job_size = sizeof(SaveJob),
        .size = n * RING_PER_CHANNEL,
        .workers = n,
        .look_us = LOOK_US,
        .look = look,
        .opaque = s,
    };
    job_ring_init(&s->ring, &ring);
    for (unsigned i = 0; i < n; i++) {
        if (!start_channel(s, i, errp)) {
            cleanup(&s->base);
            return NULL;
        }
    }
    return &s->base;
}
