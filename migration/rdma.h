/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA as the rest of migration/ sees it: channels, a sink, a source of pages, a listener.  No verbs. */
#ifndef GODWIT_MIGRATION_RDMA_H
#define GODWIT_MIGRATION_RDMA_H

#include "io/channel.h"
#include "migration/ram-load.h"
#include "migration/ram-sink.h"
#include "migration/ram.h"
#include "qapi/qapi-types-sockets.h"

#include <gio/gio.h>

/* In a build without rdma-core everything here fails with "RDMA ERROR: RDMA was not built in". */

/* What the source has done; one writer each, any reader (ram_stats_get()). */
typedef struct RdmaCounters {
    uint64_t writes;                    /* RDMA WRITE work requests with guest pages */
    uint64_t write_bytes;
    uint64_t doorbells;                 /* calls that handed writes to the device */
    uint64_t signalled;                 /* writes that were to report their completion */
    uint64_t drains;                    /* waits until no write was in flight */
    uint64_t max_in_flight;             /* writes */
    uint64_t max_in_flight_bytes;
    uint64_t control_messages;          /* of every type but READY */
    uint64_t stream_messages;           /* QEMU_FILE among them */
    uint64_t registration_requests;     /* REGISTER_REQUEST among them */
    uint64_t registered_spans;          /* keys asked for by these */
    uint64_t compress_messages;         /* COMPRESS among them */
    uint64_t control_waits;             /* times that pages had to wait for a key or a READY */
    uint64_t local_registrations;
} RdmaCounters;

/* ---- both sides ---- */

/*
 * Makes sure that there is RDMA here at all.  "RDMA ERROR: could not create CM channel: No such device".
 * Does not wait for anything.
 */
bool rdma_available(GError **errp);

/* ---- source ---- */

typedef struct RdmaSourceConfig {
    const InetSocketAddress *address;
    const MigrationOptions *options;    /* must outlive the channel */
    bool return_path;                   /* make a second connection for it */
    RdmaCounters *counters;             /* must outlive the channel */
} RdmaSourceConfig;

/*
 * A channel that is not connected yet; channel_shutdown() works already.  What is written goes to the first
 * connection, what is read comes from the second.
 */
Channel *rdma_channel_new(const RdmaSourceConfig *config, GError **errp);

/* Connects, which takes time.  @cancellable is for the name's resolution, channel_shutdown() for the rest. */
bool rdma_channel_connect(Channel *channel, GCancellable *cancellable, GError **errp);

/*
 * The sink that belongs to @channel.  Like everything that writes to the channel it is the migration
 * thread's.
 */
RamSink *rdma_sink_new(RamSave *save, Channel *channel, GError **errp);

/* ---- destination ---- */

/* Main-loop object: belongs to the thread that made it. */
typedef struct RdmaListener RdmaListener;

/* The main connection has been established; the callee comes to own @channel.  Main thread. */
typedef void (*RdmaListenerFunc)(RdmaListener *listener, Channel *channel, void *opaque);

/*
 * Listens.  @options is asked at the first connection for what the destination is like then.  Connections
 * that are not wanted are rejected with a line for @log.
 */
RdmaListener *rdma_listener_new(const InetSocketAddress *address, GError **errp);
void rdma_listener_start(RdmaListener *listener, MigrationOptionStore *options, RdmaListenerFunc func,
                         void (*log)(const char *message, void *opaque), void *opaque);
/* The address that is listened on, real port included; owned by the listener. */
const SocketAddressList *rdma_listener_addresses(const RdmaListener *listener);
/* NULL is fine. */
void rdma_listener_free(RdmaListener *listener);

/* What the load thread reads the ram section with.  @channel is one that a listener has given. */
RamSource *rdma_source_new(Channel *channel, RamList *ram, const MigrationOptions *options);

#endif
