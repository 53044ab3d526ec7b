/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination's half of multifd: a thread for each channel writes pages where they belong. */

/*
 * A channel thread reads its hello, then packets, whose pages go straight into guest memory. After a SYNC
 * packet (whose own pages, with old senders, are placed first) it waits until the load thread lets it go on.
 * The load thread meets a marker in the main stream, waits until every channel stands at its SYNC, and
 * releases all.
 *
 * What is a marker? A sender since 8.1 puts a MULTIFD_FLUSH word into the set-up section before its EOS, and
 * one wherever it syncs; an older one never does, and syncs at every EOS. So the EOS of the set-up section
 * tells, and nobody needs to configure it.
 *
 * Missing channels: a source opens all its channels before it sends the first SYNC. So when the load thread
 * is at a marker and every channel that has come stands at its SYNC, one that has still not come will never:
 * after MISSING_US the migration fails.
 *
 * Pages of shared memory that do not exist yet cost a page fault and a cleared page each when they are
 * written through the mapping.  A packet that begins with one is read into a buffer and written to the file
 * instead.  The kernel lets one thread at a time write to a file, and has the others spin: so there is a lock
 * of ours before it.  Who finds it taken reads his next packet first, and writes both together.  With
 * BUFFERS_MAX packets he waits; but where one waits already, he copies into the mapping and takes the page
 * faults, which many may do at once.  At a SYNC nothing is left in buffers.
 *
 * Zero pages are made zero, also when nothing was received for them before: what was in memory does not
 * survive a migration.
 */
#include "migration/multifd.h"

#include "migration/multifd-compress.h"
#include "migration/ram-holes.h"
#include "migration/stream-format.h"
#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* How long a connection may be between the kernel's backlog and us. */
#define MISSING_US (700 * 1000)

/* The same while one has begun its hello, or its thread has not yet come to read it: somebody is there. */
#define SILENT_US (10 * 1000 * 1000)

/* Connections that have begun a hello and not ended it, beyond as many as there are channels. */
#define SILENT_MAX 64

/* Packets in memory of ours that wait to be written to a file, for each channel. */
#define BUFFERS_MAX 2

/* The pages of one packet. */
typedef struct WaitingPages {
    RAMBlock *block;
    unsigned n;
    struct iovec runs[MULTIFD_PACKET_PAGES];    /* where they belong; [0, n) */
    uint8_t *bytes;             /* MULTIFD_PACKET_BYTES; NULL until it is needed */
} WaitingPages;

typedef struct RecvChannel {
    MultifdRecv *r;
    Channel *io;
    GThread *thread;

    /* Under r->lock. */
    bool known;                 /* its hello was good; id is set */
    bool ended;                 /* its thread reads no more */
    unsigned id;
    uint64_t syncs;             /* SYNC packets so far */

    /* The thread's own. */
    void *decompressor;
    bool unsynced;              /* it has had pages since its last SYNC */
    MultifdPacketWire wire;
    MultifdPacket packet;
    struct iovec iov[MULTIFD_PACKET_PAGES];
    uint8_t *compressed;        /* MULTIFD_COMPRESSED_MAX */
    WaitingPages waiting[BUFFERS_MAX];
    unsigned n_waiting;
    RAMBlock *hole_block;       /* pages [hole_from, hole_to) of it were holes, and are until the next SYNC */
    uint64_t hole_from, hole_to;
} RecvChannel;

struct MultifdRecv {
    /* Fixed. */
    RamList *ram;
    const uint8_t *uuid;
    MultifdErrorFunc on_error;
    void *opaque;
    unsigned n;                 /* channels that there are to be */
    uint32_t method;
    MultiFDCompression compression_method;
    const bool *ignore_shared;
    bool *holes_known;          /* by block index */

    GMutex file_lock;           /* held for writes to a file */
    int file_waiters;           /* threads that wait for it; atomic */

    GMutex lock;
    GCond changed;
    /* Under the lock. */
    GPtrArray *channels;        /* of RecvChannel, in order of arrival; changed by the main thread */
    uint64_t released;          /* SYNCs that channels may go beyond */
    bool quit;
    GError *error;
};

/* ---- reading packets ---- */

static bool sync_error(GError **errp, const char *text)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "multifd: %s", text);
    return false;
}

static bool read_compressed(RecvChannel *ch, const RAMBlock *block, GError **errp)
{
    const MultifdCompressionOps *ops = multifd_compression(ch->r->compression_method, NULL);

    if (!channel_read_all(ch->io, ch->compressed, ch->packet.payload, errp)) {
        return false;
    }
    ops->begin(ch->decompressor, ch->compressed, ch->packet.payload);
    for (unsigned i = 0; i < ch->packet.normal; i++) {
        if (!ops->page(ch->decompressor, block->host + ch->packet.offset[i], errp)) {
            return false;
        }
    }
    return ops->end(ch->decompressor, errp);
}

/*
 * Whether the page at @offset does not exist yet.  What was asked before counts until the next SYNC: in one
 * round a page is in one packet only, and that is the one in our hand.
 */
static bool is_hole(RecvChannel *ch, RAMBlock *block, uint64_t offset)
{
    uint64_t page = offset >> TARGET_PAGE_BITS;

    if (!ch->r->holes_known[block->index]) {
        return false;
    }
    if (ch->hole_block != block || page < ch->hole_from || page >= ch->hole_to) {
        ch->hole_block = block;
        ch->hole_from = page;
        ch->hole_to = ram_hole_end(block, page);
    }
    return page < ch->hole_to;
}

static void zero_pages(RecvChannel *ch, RAMBlock *block)
{
    const MultifdPacket *p = &ch->packet;
    for (unsigned i = p->normal; i < p->normal + p->zero; i++) {
        if (!is_hole(ch, block, p->offset[i])) {
            ram_zero_page(block->host + p->offset[i]);
        }
    }
}

/*
 * True: file_lock is held.  With @wait it is waited for, unless somebody does that already: then nobody may
 * write to a file but who has it.
 */
static bool lock_file(MultifdRecv *r, bool wait)
{
    if (g_mutex_trylock(&r->file_lock)) {
        return true;
    }
    bool first = wait && g_atomic_int_compare_and_exchange(&r->file_waiters, 0, 1);
    if (first) {
        g_mutex_lock(&r->file_lock);
        g_atomic_int_set(&r->file_waiters, 0);
    }
    return first;
}

/* One run of pages, to the file with @by_file; through the mapping if it does not take it. */
static bool fill_hole(RAMBlock *block, const struct iovec *run, uint8_t *from, bool by_file, GError **errp)
{
    uint64_t offset = (uint8_t *)run->iov_base - block->host;
    struct iovec iov = { .iov_base = from, .iov_len = run->iov_len };
    int errnum = by_file ? ram_holes_write(block, offset, &iov, 1) : EBUSY;

    if (errnum == ENOSPC || errnum == EDQUOT) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "Unable to write page 0x%" PRIx64 " of RAM block '%s'",
                        offset, block->idstr);
        return false;
    }
    if (errnum) {
        memcpy(run->iov_base, from, run->iov_len);
    }
    return true;
}

static bool fill_holes(const WaitingPages *w, bool by_file, GError **errp)
{
    uint8_t *from = w->bytes;

    for (unsigned i = 0; i < w->n; i++) {
        if (!fill_hole(w->block, &w->runs[i], from, by_file, errp)) {
            return false;
        }
        from += w->runs[i].iov_len;
    }
    return true;
}

/* Puts what waits in its place; if the file is busy, only if there is no room for more, or with @all. */
static bool place_waiting(RecvChannel *ch, bool all, GError **errp)
{
    bool must = all || ch->n_waiting == BUFFERS_MAX;

    if (!ch->n_waiting) {
        return true;
    }
    bool locked = lock_file(ch->r, must);
    if (!locked && !must) {
        return true;
    }
    bool ok = !fault_point("multifd-recv-write", errp);
    for (unsigned i = 0; ok && i < ch->n_waiting; i++) {
        ok = fill_holes(&ch->waiting[i], locked, errp);
    }
    if (locked) {
        g_mutex_unlock(&ch->r->file_lock);
    }
    ch->n_waiting = 0;
    return ok;
}

static bool read_to_file(RecvChannel *ch, RAMBlock *block, GError **errp)
{
    const MultifdPacket *p = &ch->packet;
    WaitingPages *w = &ch->waiting[ch->n_waiting];

    if (!w->bytes) {
        w->bytes = g_malloc(MULTIFD_PACKET_BYTES);
    }
    if (!channel_read_all(ch->io, w->bytes, p->normal * TARGET_PAGE_SIZE, errp)) {
        return false;
    }
    w->block = block;
    w->n = multifd_packet_pages(p, block, w->runs);
    ch->n_waiting++;
    return place_waiting(ch, false, errp);
}

static bool read_pages(RecvChannel *ch, RAMBlock *block, GError **errp)
{
    if (ch->r->method) {
        return read_compressed(ch, block, errp);
    }
    if (is_hole(ch, block, ch->packet.offset[0])) {
        return read_to_file(ch, block, errp);
    }
    return channel_readv_all(ch->io, ch->iov, multifd_packet_pages(&ch->packet, block, ch->iov), errp);
}

static bool place_pages(RecvChannel *ch, GError **errp)
{
    RAMBlock *block = multifd_packet_block(&ch->packet, ch->r->ram, errp);
    if (!block) {
        return false;
    }
    if (*ch->r->ignore_shared && block->shared) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "multifd: pages for RAM block '%s', which is shared and ignored", block->idstr);
        return false;
    }
    if (ch->packet.normal && !read_pages(ch, block, errp)) {
        return false;
    }
    zero_pages(ch, block);
    return true;
}

/* Stands at a SYNC until the load thread has met its marker.  False: time to end. */
static bool wait_released(RecvChannel *ch)
{
    MultifdRecv *r = ch->r;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);

    ch->hole_block = NULL;
    ch->syncs++;
    g_cond_broadcast(&r->changed);
    while (r->released < ch->syncs && !r->quit && !r->error) {
        g_cond_wait(&r->changed, &r->lock);
    }
    return !r->quit && !r->error;
}

/* 1: go on, 0: the channel has ended as it may, -1: error. */
static int read_packet(RecvChannel *ch, GError **errp)
{
    int got = channel_read_all_eof(ch->io, &ch->wire, sizeof(ch->wire), errp);
    if (got == 0 && ch->unsynced) {
        /* No source ends like this; its next marker may never come if it waits for this very channel. */
        sync_error(errp, "it was closed before its sync");
        return -1;
    }
    if (got <= 0) {
        return got;
    }
    if (fault_point("multifd-recv", errp) ||
        !multifd_packet_decode(&ch->wire, ch->r->method, &ch->packet, errp)) {
        return -1;
    }
    trace_multifd_recv(ch->id, ch->packet.number, ch->packet.flags, ch->packet.normal, ch->packet.zero);
    if (ch->packet.normal + ch->packet.zero && !place_pages(ch, errp)) {
        return -1;
    }
    if (ch->packet.flags & MULTIFD_FLAG_SYNC) {
        if (!place_waiting(ch, true, errp)) {
            return -1;
        }
        ch->unsynced = false;
        return wait_released(ch);
    }
    ch->unsynced |= ch->packet.normal + ch->packet.zero > 0;
    return 1;
}

/* ---- hello ---- */

/* Under the lock. */
static bool id_taken(const MultifdRecv *r, unsigned id)
{
    for (guint i = 0; i < r->channels->len; i++) {
        const RecvChannel *other = g_ptr_array_index(r->channels, i);
        if (other->known && other->id == id) {
            return true;
        }
    }
    return false;
}

/* 1: welcome, 0: closed before it said anything of use, -1: error. */
static int read_hello(RecvChannel *ch, GError **errp)
{
    MultifdRecv *r = ch->r;
    MultifdHelloWire hello;
    unsigned id;

    if (!channel_read_all(ch->io, &hello, sizeof(hello), NULL)) {
        return 0;
    }
    if (!multifd_hello_decode(&hello, r->uuid, r->n, &id, errp)) {
        return -1;
    }
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);
    if (id_taken(r, id)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "multifd: received id '%u' already setup", id);
        return -1;
    }
    ch->id = id;
    ch->known = true;
    g_cond_broadcast(&r->changed);
    trace_multifd_recv_channel(id);
    return 1;
}

/* ---- channel threads ---- */

static void record_error(MultifdRecv *r, GError *error)
{
    g_autoptr(GError) own = error;

    g_mutex_lock(&r->lock);
    bool first = !r->error && !r->quit;
    if (first) {
        r->error = g_error_copy(own);
    }
    g_cond_broadcast(&r->changed);
    g_mutex_unlock(&r->lock);
    if (first) {
        r->on_error(own, r->opaque);
    }
}

static gpointer recv_thread(gpointer opaque)
{
    RecvChannel *ch = opaque;
    GError *error = NULL;
    int result = read_hello(ch, &error);

    while (result > 0) {
        result = read_packet(ch, &error);
    }
    if (result < 0) {       /* first, so that whoever misses this channel finds the cause */
        g_prefix_error(&error, "failed to receive packet via multifd channel %u: ", ch->id);
        record_error(ch->r, error);
    }
    g_mutex_lock(&ch->r->lock);
    ch->ended = true;
    g_cond_broadcast(&ch->r->changed);
    g_mutex_unlock(&ch->r->lock);
    return NULL;
}

/* ---- life ---- */

MultifdRecv *multifd_recv_new(RamList *ram, const MigrationOptions *options, const uint8_t *uuid,
                              MultifdErrorFunc on_error, void *opaque)
{
    MultifdRecv *r = g_new0(MultifdRecv, 1);

    r->ram = ram;
    r->uuid = uuid;
    r->on_error = on_error;
    r->opaque = opaque;
    r->n = options->p.multifd_channels;
    r->compression_method = options->p.multifd_compression;
    r->method = multifd_method_flag(options->p.multifd_compression);
    r->ignore_shared = &options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED];
    r->channels = g_ptr_array_new();
    r->holes_known = g_new0(bool, ram->count);
    RAMLIST_FOREACH(block, ram) {
        r->holes_known[block->index] = ram_holes_known(block) && ram_holes_may_write();
    }
    g_mutex_init(&r->lock);
    g_mutex_init(&r->file_lock);
    g_cond_init(&r->changed);
    return r;
}

static void channel_free(RecvChannel *ch)
{
    if (ch->decompressor) {
        multifd_compression(ch->r->compression_method, NULL)->decompressor_free(ch->decompressor);
    }
    channel_unref(ch->io);
    g_free(ch->compressed);
    for (unsigned i = 0; i < BUFFERS_MAX; i++) {
        g_free(ch->waiting[i].bytes);
    }
    g_free(ch);
}

void multifd_recv_interrupt(MultifdRecv *r)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);

    r->quit = true;
    g_cond_broadcast(&r->changed);
    for (guint i = 0; i < r->channels->len; i++) {
        RecvChannel *ch = g_ptr_array_index(r->channels, i);
        channel_shutdown(ch->io);
    }
}

void multifd_recv_stop(MultifdRecv *r)
{
    multifd_recv_interrupt(r);
    g_mutex_lock(&r->lock);
    g_autoptr(GPtrArray) channels = g_ptr_array_copy(r->channels, NULL, NULL);
    g_mutex_unlock(&r->lock);
    for (guint i = 0; i < channels->len; i++) {
        RecvChannel *ch = g_ptr_array_index(channels, i);
        g_mutex_lock(&r->lock);
        GThread *thread = g_steal_pointer(&ch->thread);
        g_mutex_unlock(&r->lock);
        if (thread) {
            g_thread_join(thread);
        }
    }
}

void multifd_recv_free(MultifdRecv *r)
{
    if (!r) {
        return;
    }
    multifd_recv_stop(r);
    for (guint i = 0; i < r->channels->len; i++) {
        channel_free(g_ptr_array_index(r->channels, i));
    }
    g_ptr_array_unref(r->channels);
    g_free(r->holes_known);
    g_clear_error(&r->error);
    g_mutex_clear(&r->lock);
    g_mutex_clear(&r->file_lock);
    g_cond_clear(&r->changed);
    g_free(r);
}

/* Under the lock: how many have said their hello, and how many may still. */
static unsigned count_channels(const MultifdRecv *r, unsigned *silent)
{
    unsigned known = 0;

    *silent = 0;
    for (guint i = 0; i < r->channels->len; i++) {
        const RecvChannel *ch = g_ptr_array_index(r->channels, i);
        known += ch->known;
        *silent += !ch->known && !ch->ended;
    }
    return known;
}

bool multifd_recv_full(const MultifdRecv *recv)
{
    MultifdRecv *r = (MultifdRecv *)recv;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);
    unsigned silent;
    /* After the end nobody may write to guest memory. */
    return r->quit || count_channels(r, &silent) >= r->n;
}

/* Under the lock.  Whoever says half a hello and no more takes no channel's place. */
static bool has_room(const MultifdRecv *r)
{
    unsigned silent, known = count_channels(r, &silent);
    return !r->quit && known < r->n && silent < r->n + SILENT_MAX;
}

static bool prepare_decompression(RecvChannel *ch, GError **errp)
{
    g_autoptr(GError) error = NULL;
    const MultifdCompressionOps *ops = multifd_compression(ch->r->compression_method, &error);
    if (error) {
        g_propagate_error(errp, g_steal_pointer(&error));
        return false;
    }
    if (!ops) {
        return true;
    }
    ch->compressed = g_malloc(MULTIFD_COMPRESSED_MAX);
    ch->decompressor = ops->decompressor_new(errp);
    return ch->decompressor != NULL;
}

/*
 * Those that left before they had said which channel they are: nothing of them stays, however many come.
 * Once it is time to stop, multifd_recv_stop() has the list.
 */
static void drop_strangers(MultifdRecv *r)
{
    g_autoptr(GPtrArray) gone = g_ptr_array_new();

    g_mutex_lock(&r->lock);
    for (guint i = r->quit ? 0 : r->channels->len; i-- > 0;) {
        RecvChannel *ch = g_ptr_array_index(r->channels, i);
        if (ch->ended && !ch->known) {
            g_ptr_array_add(gone, g_ptr_array_steal_index(r->channels, i));
        }
    }
    g_mutex_unlock(&r->lock);
    for (guint i = 0; i < gone->len; i++) {
        RecvChannel *ch = g_ptr_array_index(gone, i);
        g_thread_join(ch->thread);      /* it has nothing left to do but to let go of the lock */
        channel_free(ch);
    }
}

bool multifd_recv_add_channel(MultifdRecv *r, Channel *channel)
{
    GError *error = NULL;

    g_mutex_lock(&r->lock);
    bool room = has_room(r);
    g_mutex_unlock(&r->lock);
    if (!room) {
        return false;
    }
    RecvChannel *ch = g_new0(RecvChannel, 1);
    ch->r = r;
    ch->io = channel_ref(channel);
    if (!prepare_decompression(ch, &error)) {
        channel_free(ch);
        record_error(r, error);
        return true;
    }
    drop_strangers(r);
    g_autofree char *name = g_strdup_printf("mig/recv_%u", r->channels->len);
    g_mutex_lock(&r->lock);
    bool late = r->quit;
    if (!late) {
        g_ptr_array_add(r->channels, ch);
        ch->thread = g_thread_new(name, recv_thread, ch);
    }
    g_mutex_unlock(&r->lock);
    if (late) {
        channel_free(ch);
    }
    return !late;
}

GError *multifd_recv_error(MultifdRecv *r)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);
    return r->error ? g_error_copy(r->error) : NULL;
}

/* ---- the load thread's side ---- */

typedef enum { SYNC_READY, SYNC_WAIT, SYNC_MISSING, SYNC_LOST } SyncState;

/* Under the lock: how the channels stand with regard to SYNC number @target; *@known is how many have come.
 */
static SyncState sync_state(const MultifdRecv *r, uint64_t target, unsigned *known)
{
    SyncState state = SYNC_READY;

    *known = 0;
    for (guint i = 0; i < r->channels->len; i++) {
        const RecvChannel *ch = g_ptr_array_index(r->channels, i);
        if (!ch->known) {
            continue;
        }
        ++*known;
        if (ch->syncs < target) {
            if (ch->ended) {
                return SYNC_LOST;
            }
            state = SYNC_WAIT;
        }
    }
    return state == SYNC_READY && *known < r->n ? SYNC_MISSING : state;
}

static bool missing_error(GError **errp, unsigned expected, unsigned known)
{
    g_set_error(
        errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
        "multifd: %u channels are expected, %u have come: are multifd and multifd-channels the same on "
        "both sides?",
        expected, known);
    return false;
}

/* Under the lock: waits for every channel's next SYNC. */
static bool wait_synced(MultifdRecv *r, GError **errp)
{
    int64_t missing_since = 0, deadline;
    unsigned known, silent;

    for (;;) {
        if (r->error) {
            g_propagate_error(errp, g_error_copy(r->error));
            return false;
        }
        if (r->quit) {
            return sync_error(errp, "the channels have been stopped");
        }
        switch (sync_state(r, r->released + 1, &known)) {
        case SYNC_READY:
            return true;
        case SYNC_LOST:
            return sync_error(errp, "a channel was closed before its sync");
        case SYNC_MISSING:
            missing_since = missing_since ? missing_since : g_get_monotonic_time();
            count_channels(r, &silent);
            deadline = missing_since + (silent ? SILENT_US : MISSING_US);
            /* On a busy host both may have happened meanwhile: that they came, and the deadline. */
            if (g_get_monotonic_time() >= deadline) {
                return missing_error(errp, r->n, known);
            }
            g_cond_wait_until(&r->changed, &r->lock, deadline);
            break;
        case SYNC_WAIT:
            missing_since = 0;
            g_cond_wait(&r->changed, &r->lock);
            break;
        }
    }
}

static bool sync_channels(MultifdRecv *r, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&r->lock);

    if (fault_point("multifd-recv-sync", errp) || !wait_synced(r, errp)) {
        return false;
    }
    r->released++;
    trace_multifd_recv_sync(r->released);
    g_cond_broadcast(&r->changed);
    return true;
}

typedef struct MultifdSource {
    RamSource base;
    MultifdRecv *r;
    bool flush_seen;            /* in the set-up section */
    bool decided;
    bool per_section;
} MultifdSource;

static bool multifd_setup_block(RamSource *source, StreamReader *reader, RAMBlock *block, GError **errp)
{
    return true;
}

static bool multifd_section_end(RamSource *source, uint8_t type, GError **errp)
{
    MultifdSource *s = (MultifdSource *)source;

    if (!s->decided) {
        s->decided = true;
        s->per_section = !s->flush_seen;
        trace_multifd_recv_kind(s->per_section ? "section" : "round");
    }
    return !s->per_section || sync_channels(s->r, errp);
}

static bool multifd_flush_word(RamSource *source, GError **errp)
{
    MultifdSource *s = (MultifdSource *)source;

    if (s->per_section) {
        return sync_error(errp, "word MULTIFD_FLUSH from a source that had none in its set-up section");
    }
    s->flush_seen = true;
    return sync_channels(s->r, errp);
}

static bool multifd_hook_word(RamSource *source, StreamReader *reader, uint64_t arg, GError **errp)
{
    return true;
}

/* The last marker has made sure of all pages; what is left is to notice an error after it. */
static bool multifd_complete(RamSource *source, GError **errp)
{
    MultifdSource *s = (MultifdSource *)source;
    g_autoptr(GError) error = multifd_recv_error(s->r);

    if (error) {
        g_propagate_error(errp, g_steal_pointer(&error));
        return false;
    }
    return true;
}

static void multifd_source_cleanup(RamSource *source)
{
    g_free(source);
}

static const RamSourceOps multifd_source_ops = {
    .name = "multifd",
    .no_stream_pages = false,       /* zero pages of old senders */
    .exclusive = false,
    .setup_block = multifd_setup_block,
    .section_end = multifd_section_end,
    .flush_word = multifd_flush_word,
    .hook_word = multifd_hook_word,
    .complete = multifd_complete,
    .cleanup = multifd_source_cleanup,
};

RamSource *multifd_recv_source(MultifdRecv *recv)
{
    MultifdSource *s = g_new0(MultifdSource, 1);
    s->base.ops = &multifd_source_ops;
    s->r = recv;
    return &s->base;
}
