/* SPDX-License-Identifier: BSD-2-Clause */
/* multifd: guest pages over several channels beside the main stream, both halves. */
#ifndef GODWIT_MIGRATION_MULTIFD_H
#define GODWIT_MIGRATION_MULTIFD_H

#include "migration/multifd-wire.h"
#include "migration/ram-load.h"
#include "migration/ram.h"

/* Counters of one channel: written by its thread, read by any; atomics. */
typedef struct MultifdCounters {
    uint64_t bytes;             /* on the wire: hello, headers, payload */
    uint64_t packets;           /* with pages */
    uint64_t normal_pages;
    uint64_t zero_pages;
    uint64_t syncs;             /* SYNC packets */
} MultifdCounters;

/* Called once, from a channel's thread, with the first error of any channel; the error stays the caller's. */
typedef void (*MultifdErrorFunc)(const GError *error, void *opaque);

/* ---- source ---- */

typedef struct MultifdSendConfig {
    GPtrArray *channels;        /* of Channel, with the hello sent, in the order of their ids; referenced */
    MultifdCounters *counters;  /* one for each channel; must outlive the sink */
    MultifdErrorFunc on_error;
    void *opaque;
} MultifdSendConfig;

/* Whether a connection like @channel can do what is asked for; the main one is looked at before any byte. */
bool multifd_send_check(const Channel *channel, const MigrationOptions *options, GError **errp);

/* The first bytes of a channel, to be sent as soon as it is connected.  @uuid: 16 bytes, or NULL. */
bool multifd_send_hello(Channel *channel, const uint8_t *uuid, uint8_t id, GError **errp);

/*
 * A sink with a thread for each channel.  Pages are queued by the migration thread and sent by
 * whichever channel is idle; barriers are as docs/multifd.md says.  To interrupt it, shut the channels down.
 */
RamSink *multifd_send_new(RamSave *save, const MultifdSendConfig *config, GError **errp);

/* ---- destination ---- */

typedef struct MultifdRecv MultifdRecv;

/* @options must outlive the result.  @uuid may be NULL. */
MultifdRecv *multifd_recv_new(RamList *ram, const MigrationOptions *options, const uint8_t *uuid,
                              MultifdErrorFunc on_error, void *opaque);

/* Ends all channels' threads and frees.  NULL is fine.  The RamSource, if any, must be gone. */
void multifd_recv_free(MultifdRecv *recv);

/*
 * One more connection whose first bytes say multifd; it gets a thread.  False if there are enough of them.
 * Main thread.
 */
bool multifd_recv_add_channel(MultifdRecv *recv, Channel *channel);

/*
 * True once as many connections as channels are configured have said which channel they are, or it has been
 * stopped.  Any thread.
 */
bool multifd_recv_full(const MultifdRecv *recv);

/* Makes the threads, and the load thread at a marker, end soon; waits for nobody.  Any thread. */
void multifd_recv_interrupt(MultifdRecv *recv);

/*
 * Ends the threads: nothing writes to guest memory any more afterwards.  Any thread but the channels', once
 * or more.
 */
void multifd_recv_stop(MultifdRecv *recv);

/* A copy of the first error of a channel, or NULL.  Any thread. */
GError *multifd_recv_error(MultifdRecv *recv);

/* What the load thread reads the ram section with.  Owned by the RamLoad it is given to. */
RamSource *multifd_recv_source(MultifdRecv *recv);

#endif
