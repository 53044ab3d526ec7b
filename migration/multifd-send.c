/* SPDX-License-Identifier: BSD-2-Clause */
/* The source's half of multifd: a queue of packets, and a thread for each channel that empties it. */

/*
 * The migration thread gathers pages of one block to a packet of up to 128 and puts it into the ring; no page
 * is copied. Every channel thread takes packets from the ring, looks for zero pages, and sends a packet with
 * one writev. So a slow channel holds up nobody, and versions of one page can pass each other, but only
 * within a round.
 *
 * The barrier: the migration thread waits until the ring is empty and no thread has a packet in hand; then
 * has every thread send a SYNC packet; then waits until all have. With MSG_ZEROCOPY a thread waits, before
 * its SYNC, until the kernel is done with the pages. Only after that does the marker go to the main stream.
 * This runs when a round ends, or, for peers older than 8.1, when a section does.
 *
 * The first error of any channel sticks, wakes the migration thread and stops the other channels.
 */
#include "migration/multifd.h"

#include "migration/job-ring.h"
#include "migration/multifd-compress.h"
#include "migration/ram-holes.h"
#include "migration/ram-records.h"
#include "trace-migration.h"
#include "util/buffer-is-zero.h"
#include "util/error.h"
#include "util/fault.h"

#include <poll.h>
#include <string.h>

/* Packets in the ring per channel: enough that a channel finds the next one when it has sent one. */
#define RING_PER_CHANNEL 2
#define RING_MIN 4

/* How long the migration thread waits for the channels before it looks whether they are there still. */
#define LOOK_US (500 * 1000)

/* Pages on their way to a packet. */
typedef struct SendJob {
    RAMBlock *block;
    uint64_t number;
    bool first_round;
    unsigned n;
    uint64_t offset[MULTIFD_PACKET_PAGES];
} SendJob;

typedef struct MultifdSend MultifdSend;

typedef struct SendChannel {
    MultifdSend *s;
    unsigned id;
    GThread *thread;
    Channel *io;
    MultifdCounters *counters;

    uint64_t sync_number;       /* the migration thread's, but between the two ends of a barrier */

    /* The thread's own. */
    void *compressor;
    bool zero_copy;
    SendJob job;
    MultifdPacket packet;
    MultifdPacketWire wire;
    struct iovec iov[1 + MULTIFD_PACKET_PAGES];
    uint8_t page[TARGET_PAGE_SIZE];
    uint8_t *compressed;        /* MULTIFD_COMPRESSED_MAX */
} SendChannel;

struct MultifdSend {
    RamSink base;

    /* Fixed. */
    RamSave *save;
    RamStats *stats;
    MultifdErrorFunc on_error;
    void *opaque;
    bool per_section;
    bool detect_in_channels;
    bool detect_here;
    bool *holes_known;          /* by block index; filled before the first packet */
    const MultifdCompressionOps *compression;
    uint32_t method;
    unsigned n;
    SendChannel *channels;

    JobRing ring;               /* of SendJob */

    /* The migration thread's own. */
    SendJob pending;
    uint64_t next_number;
    uint64_t charged;           /* bytes already told to the rate limit */
    RamRecords records;
    RamRoundNotifier round_end;
};

/* ---- channel threads ---- */

static void account_bytes(SendChannel *ch, uint64_t bytes)
{
    ram_stats_add(&ch->counters->bytes, bytes);
    ram_stats_add(&ch->s->stats->multifd_bytes, bytes);
    ram_stats_add(&ch->s->stats->transferred, bytes);
}

/*
 * In the first round pages that nobody has written to are known from the file behind the block, without
 * making them by reading.  The log has been cleared for them: a write after the question is logged.  It is
 * asked where holes are likely, at the start of a packet and after a zero page; *@hole_end is the last
 * answer.
 */
static bool page_is_zero(const SendChannel *ch, uint64_t offset, bool ask, uint64_t *hole_end)
{
    const RAMBlock *block = ch->job.block;
    uint64_t page = offset >> TARGET_PAGE_BITS;

    if (ask && page >= *hole_end && ch->s->holes_known[block->index] && ch->job.first_round) {
        *hole_end = ram_hole_end(block, page);
    }
    return page < *hole_end || buffer_is_zero(block->host + offset, TARGET_PAGE_SIZE);
}

/* Sorts the job's pages: those with content first, in order, then the zero ones. */
static void sort_pages(SendChannel *ch, const SendJob *job)
{
    MultifdPacket *p = &ch->packet;
    uint64_t zero[MULTIFD_PACKET_PAGES];
    uint64_t hole_end = 0;
    bool ask = true;

    p->normal = 0;
    p->zero = 0;
    for (unsigned i = 0; i < job->n; i++) {
        ask = ch->s->detect_in_channels && page_is_zero(ch, job->offset[i], ask, &hole_end);
        if (ask) {
            zero[p->zero++] = job->offset[i];
        } else {
            p->offset[p->normal++] = job->offset[i];
        }
    }
    memcpy(p->offset + p->normal, zero, p->zero * sizeof(zero[0]));
}

/* A compressor may read its input twice: it gets a copy that the guest does not write to. */
static bool compress_pages(SendChannel *ch, const SendJob *job, GError **errp)
{
    size_t len = 0;
    for (unsigned i = 0; i < ch->packet.normal; i++) {
        memcpy(ch->page, job->block->host + ch->packet.offset[i], TARGET_PAGE_SIZE);
        if (!ch->s->compression->compress(ch->compressor, ch->page, i + 1 == ch->packet.normal,
                                          ch->compressed, &len, errp)) {
            return false;
        }
    }
    ch->iov[1] = (struct iovec){ .iov_base = ch->compressed, .iov_len = len };
    ch->packet.payload = len;
    return true;
}

static bool write_packet(SendChannel *ch, unsigned n_iov, GError **errp)
{
    ch->iov[0] = (struct iovec){ .iov_base = &ch->wire, .iov_len = sizeof(ch->wire) };
    if (ch->zero_copy && n_iov > 1) {
        /* The header's memory is used again at once; the pages' is the guest's. */
        return channel_write_all(ch->io, &ch->wire, sizeof(ch->wire), errp) &&
               channel_writev_all(ch->io, ch->iov + 1, n_iov - 1, CHANNEL_WRITE_ZERO_COPY, errp);
    }
    return channel_writev_all(ch->io, ch->iov, n_iov, 0, errp);
}

static bool send_job(SendChannel *ch, GError **errp)
{
    const SendJob *job = &ch->job;
    MultifdPacket *p = &ch->packet;
    unsigned n_iov = 2;

    if (fault_point("multifd-send", errp)) {
        return false;
    }
    sort_pages(ch, job);
    if (!ch->s->compression || !p->normal) {
        /* Guest memory as it is. */
        n_iov = 1 + multifd_packet_pages(p, job->block, ch->iov + 1);
        p->payload = p->normal * TARGET_PAGE_SIZE;
    } else if (!compress_pages(ch, job, errp)) {
        return false;
    }
    p->flags = ch->s->method;
    p->number = job->number;
    g_strlcpy(p->block, job->block->idstr, sizeof(p->block));
    multifd_packet_encode(&ch->wire, p);
    if (!write_packet(ch, n_iov, errp)) {
        return false;
    }
    ram_stats_add(&ch->counters->packets, 1);
    ram_stats_add(&ch->counters->normal_pages, p->normal);
    ram_stats_add(&ch->counters->zero_pages, p->zero);
    ram_stats_add(&ch->s->stats->normal_pages, p->normal);
    ram_stats_add(&ch->s->stats->zero_pages, p->zero);
    account_bytes(ch, sizeof(ch->wire) + p->payload);
    ram_stats_sub(&ch->s->stats->in_flight_pages, job->n);
    trace_multifd_send(ch->id, p->number, p->normal, p->zero, p->payload);
    return true;
}

/* The kernel may still be reading pages that a later round will send again: not beyond this point. */
static bool finish_zero_copy(SendChannel *ch, GError **errp)
{
    if (!ch->zero_copy) {
        return true;
    }
    int copied = channel_flush_zero_copy(ch->io, errp);
    if (copied < 0) {
        return false;
    }
    if (copied) {
        /* It copies after all, as it does on loopback: then the plain way is cheaper. */
        ram_stats_add(&ch->s->stats->zero_copy_fallbacks, 1);
        ch->zero_copy = false;
    }
    return true;
}

static bool send_sync(SendChannel *ch, GError **errp)
{
    MultifdPacket sync = { .flags = MULTIFD_FLAG_SYNC, .number = ch->sync_number };

    if (fault_point("multifd-send-sync", errp) || !finish_zero_copy(ch, errp)) {
        return false;
    }
    multifd_packet_encode(&ch->wire, &sync);
    if (!write_packet(ch, 1, errp)) {
        return false;
    }
    ram_stats_add(&ch->counters->syncs, 1);
    account_bytes(ch, sizeof(ch->wire));
    trace_multifd_send_sync(ch->id, sync.number);
    return true;
}

static bool do_work(void *opaque, bool barrier, GError **errp)
{
    SendChannel *ch = opaque;
    return barrier ? send_sync(ch, errp) : send_job(ch, errp);
}

/* The first error counts; the rest is what followed from it. */
static gpointer send_thread(gpointer opaque)
{
    SendChannel *ch = opaque;
    MultifdSend *s = ch->s;
    g_autoptr(GError) error = NULL;

    if (!job_ring_work(&s->ring, ch->id, &ch->job, do_work, ch, &error)) {
        g_prefix_error(&error, "multifd channel %u: ", ch->id);
        if (job_ring_fail(&s->ring, error)) {
            s->on_error(error, s->opaque);
        }
    }
    return NULL;
}

/* ---- the migration thread's side of the ring ---- */

/*
 * Nothing ever comes back on a channel but its end, and a thread that writes to a peer that has only half
 * closed would wait for ever.
 */
static bool look_for_closed(void *opaque, bool waited, GError **errp)
{
    MultifdSend *s = opaque;

    for (unsigned i = 0; waited && i < s->n; i++) {
        struct pollfd fd = { .fd = channel_poll_fd(s->channels[i].io), .events = POLLRDHUP };
        if (fd.fd >= 0 && poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR))) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_EOF,
                        "multifd channel %u: the destination has closed it", i);
            return false;
        }
    }
    return true;
}

static bool push_pending(MultifdSend *s, GError **errp)
{
    if (!s->pending.n) {
        return true;
    }
    s->pending.number = s->next_number++;
    if (!job_ring_push(&s->ring, &s->pending, errp)) {
        return false;
    }
    s->pending.n = 0;
    return true;
}

/* The barrier, without the marker: when it returns every SYNC has been handed to the kernel. */
static bool sync_channels(MultifdSend *s, GError **errp)
{
    if (!push_pending(s, errp)) {
        return false;
    }
    for (unsigned i = 0; i < s->n; i++) {
        s->channels[i].sync_number = s->next_number++;
    }
    return job_ring_barrier(&s->ring, errp);
}

/*
 * The marker must not wait in the writer's buffer: the destination's channels stand at their SYNC until it
 * comes, and the pages of the next round, which may begin in this very section, would fill their sockets.
 */
static bool sync_and_mark(MultifdSend *s, StreamWriter *w, GError **errp)
{
    if (!sync_channels(s, errp)) {
        return false;
    }
    stream_put_be64(w, RAM_FLAG_MULTIFD_FLUSH);
    return stream_flush(w, errp);
}

static bool queue_page(MultifdSend *s, RAMBlock *block, uint64_t offset, GError **errp)
{
    if (s->pending.n && s->pending.block != block && !push_pending(s, errp)) {
        return false;
    }
    s->pending.block = block;
    /* The counter goes up before the barrier, while packets of the round may still be in the ring. */
    s->pending.first_round = !ram_stats_get(&s->stats->rounds);
    s->pending.offset[s->pending.n++] = offset;
    return s->pending.n < MULTIFD_PACKET_PAGES || push_pending(s, errp);
}

/* ---- the sink ---- */

static bool round_ended(Notifier *notifier, void *data, GError **errp)
{
    MultifdSend *s = (MultifdSend *)((char *)notifier - offsetof(MultifdSend, round_end));
    const RamRound *round = data;

    trace_multifd_round(round->number);
    return sync_and_mark(s, round->writer, errp);
}

static bool multifd_setup_block(RamSink *sink, StreamWriter *w, RAMBlock *block, GError **errp)
{
    MultifdSend *s = (MultifdSend *)sink;

    s->holes_known = g_renew(bool, s->holes_known, block->index + 1);
    s->holes_known[block->index] = ram_holes_known(block);
    return true;
}

static bool multifd_setup(RamSink *sink, StreamWriter *w, GError **errp)
{
    MultifdSend *s = (MultifdSend *)sink;

    if (s->per_section) {
        return sync_channels(s, errp);
    }
    ram_round_add_notifier(s->save, &s->round_end);
    return sync_and_mark(s, w, errp);
}

/* What the channels have sent since it was last asked for; what they have yet to send is in flight. */
static uint64_t charge_bytes(MultifdSend *s)
{
    uint64_t sent = ram_stats_get(&s->stats->multifd_bytes);
    uint64_t bytes = sent - s->charged;
    s->charged = sent;
    return bytes;
}

static bool multifd_send_run(RamSink *sink, StreamWriter *w, RAMBlock *block, uint64_t first, uint64_t count,
                             uint64_t *bytes, GError **errp)
{
    MultifdSend *s = (MultifdSend *)sink;
    uint64_t zero = 0, main_bytes = 0;

    for (uint64_t page = first; page < first + count; page++) {
        uint64_t offset = page << TARGET_PAGE_BITS;
        if (s->detect_here && buffer_is_zero(block->host + offset, TARGET_PAGE_SIZE)) {
            main_bytes += ram_records_put_zero(&s->records, w, block, offset);
            zero++;
        } else if (!queue_page(s, block, offset, errp)) {
            return false;
        }
    }
    ram_stats_add(&s->stats->zero_pages, zero);
    /* The channels may have taken some of them off already; nobody looks before this thread does. */
    ram_stats_add(&s->stats->in_flight_pages, count - zero);
    *bytes = main_bytes + charge_bytes(s);
    return stream_writer_check(w, errp);
}

/* What is gathered goes out, and waits for nobody; unless the peer wants a barrier in every section. */
static bool multifd_flush(RamSink *sink, StreamWriter *w, GError **errp)
{
    MultifdSend *s = (MultifdSend *)sink;
    return s->per_section ? sync_channels(s, errp) : push_pending(s, errp);
}

/* The round that has just ended was the last one, and its barrier covers all pages. */
static bool multifd_complete(RamSink *sink, StreamWriter *w, GError **errp)
{
    MultifdSend *s = (MultifdSend *)sink;
    return s->per_section ? sync_channels(s, errp) : job_ring_check(&s->ring, errp);
}

static void stop_threads(MultifdSend *s)
{
    bool idle = job_ring_quit(&s->ring);

    for (unsigned i = 0; i < s->n; i++) {
        SendChannel *ch = &s->channels[i];
        if (!idle) {
            channel_shutdown(ch->io);
        }
        if (ch->thread) {
            g_thread_join(ch->thread);
        }
    }
}

static void multifd_cleanup(RamSink *sink)
{
    MultifdSend *s = (MultifdSend *)sink;

    ram_round_remove_notifier(s->save, &s->round_end);
    stop_threads(s);
    for (unsigned i = 0; i < s->n; i++) {
        SendChannel *ch = &s->channels[i];
        if (ch->compressor) {
            s->compression->compressor_free(ch->compressor);
        }
        channel_unref(ch->io);
        g_free(ch->compressed);
    }
    job_ring_clear(&s->ring);
    g_free(s->holes_known);
    g_free(s->channels);
    g_free(s);
}

/* The channels' threads empty the ring. */
static bool multifd_settle(RamSink *sink, GError **errp)
{
    return true;
}

static const RamSinkOps multifd_sink_ops = {
    .name = "multifd",
    .setup_block = multifd_setup_block,
    .setup = multifd_setup,
    .send_run = multifd_send_run,
    .flush = multifd_flush,
    .complete = multifd_complete,
    .settle = multifd_settle,
    .cleanup = multifd_cleanup,
};

/* ---- birth ---- */

static int compression_level(const MigrationOptions *o)
{
    return o->p.multifd_compression == MULTIFD_COMPRESSION_ZLIB ? o->p.multifd_zlib_level
                                                                : o->p.multifd_zstd_level;
}

bool multifd_send_hello(Channel *channel, const uint8_t *uuid, uint8_t id, GError **errp)
{
    MultifdHelloWire hello;

    multifd_hello_encode(&hello, uuid, id);
    if (fault_point("multifd-send-hello", errp) || !channel_write_all(channel, &hello, sizeof(hello), errp)) {
        g_prefix_error(errp, "multifd channel %u: ", id);
        return false;
    }
    return true;
}

bool multifd_send_check(const Channel *channel, const MigrationOptions *options, GError **errp)
{
    if (options->caps[MIGRATION_CAPABILITY_ZERO_COPY_SEND] &&
        !channel_has_feature(channel, CHANNEL_FEATURE_ZERO_COPY)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "Zero copy send feature not detected in host kernel");
        return false;
    }
    return true;
}

static bool start_channel(MultifdSend *s, unsigned id, const MultifdSendConfig *config, GError **errp)
{
    const MigrationOptions *options = ram_save_options(s->save);
    SendChannel *ch = &s->channels[id];

    ch->s = s;
    ch->id = id;
    ch->counters = &config->counters[id];
    ch->io = channel_ref(g_ptr_array_index(config->channels, id));
    ch->zero_copy = options->caps[MIGRATION_CAPABILITY_ZERO_COPY_SEND];
    s->n++;
    if (!multifd_send_check(ch->io, options, errp)) {
        return false;
    }
    if (s->compression) {
        ch->compressed = g_malloc(MULTIFD_COMPRESSED_MAX);
        ch->compressor = s->compression->compressor_new(compression_level(options), errp);
        if (!ch->compressor) {
            return false;
        }
    }
    account_bytes(ch, sizeof(MultifdHelloWire));
    g_autofree char *name = g_strdup_printf("mig/send_%u", id);
    ch->thread = g_thread_try_new(name, send_thread, ch, errp);
    return ch->thread != NULL;
}

static void configure(MultifdSend *s, const MigrationOptions *options)
{
    s->per_section = options->props.multifd_flush_after_each_section;
    /* A peer that does not know zero pages in packets would complete without them. */
    s->detect_in_channels = options->p.zero_page_detection == ZERO_PAGE_DETECTION_MULTIFD &&
                            !options->props.multifd_no_zero_pages;
    s->detect_here = options->p.zero_page_detection != ZERO_PAGE_DETECTION_NONE && !s->detect_in_channels;
    s->method = multifd_method_flag(options->p.multifd_compression);
    s->round_end.notify = round_ended;
}

RamSink *multifd_send_new(RamSave *save, const MultifdSendConfig *config, GError **errp)
{
    const MigrationOptions *options = ram_save_options(save);
    MultifdSend *s = g_new0(MultifdSend, 1);
    g_autoptr(GError) error = NULL;

    s->base.ops = &multifd_sink_ops;
    s->save = save;
    s->stats = ram_save_stats(save);
    s->on_error = config->on_error;
    s->opaque = config->opaque;
    s->channels = g_new0(SendChannel, config->channels->len);
    JobRingConfig ring = {
        .job_size = sizeof(SendJob),
        .size = MAX(config->channels->len * RING_PER_CHANNEL, RING_MIN),
        .workers = config->channels->len,
        .look_us = LOOK_US,
        .look = look_for_closed,
        .opaque = s,
    };
    job_ring_init(&s->ring, &ring);
    configure(s, options);
    s->compression = multifd_compression(options->p.multifd_compression, &error);
    for (unsigned i = 0; i < config->channels->len && !error; i++) {
        start_channel(s, i, config, &error);
    }
    if (error) {
        g_propagate_error(errp, g_steal_pointer(&error));
        multifd_cleanup(&s->base);
        return NULL;
    }
    return &s->base;
}
