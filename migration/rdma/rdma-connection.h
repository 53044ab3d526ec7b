/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: one connection: CM id, queues, control buffers, its one wait, and what is in flight. */
#ifndef GODWIT_MIGRATION_RDMA_CONNECTION_H
#define GODWIT_MIGRATION_RDMA_CONNECTION_H

#include "migration/rdma.h"
#include "migration/rdma/rdma-control.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* ---- time limits, all in milliseconds; cancel and a lost connection end every wait before ---- */

#define RDMA_LIMIT_ADDRESS 10000        /* rdma_resolve_addr, and the same for the route */
#define RDMA_LIMIT_CONNECT 20000        /* ESTABLISHED after rdma_connect or rdma_accept */
#define RDMA_LIMIT_RETURN_PATH 5000     /* the second connection */
#define RDMA_FIRST_READY 300            /* a QEMU's second connection: until its receive is surely posted */
/* A group of work requests; starts anew with each completion.  The device gives up before. */
#define RDMA_LIMIT_COMPLETION (300 * 1000)
/* READY or a reply: the peer may have to pin all of its memory first.  */
#define RDMA_LIMIT_CONTROL (600 * 1000)
#define RDMA_LIMIT_BROKEN 1000          /* until the CM tells why the receives were flushed */
#define RDMA_LIMIT_LATE 100             /* a completion that the end of the connection has overtaken */
#define RDMA_LIMIT_LAST_WORD 2000       /* until a source that has got all acknowledgements disconnects */
#define RDMA_LIMIT_ERROR 100            /* until an ERROR message has left at the end */
#define RDMA_LIMIT_NONE 0               /* the destination's wait for a message: the source may pause */

/* Receives that are posted: a reply, a READY and an ERROR can come without our doing anything. */
#define RDMA_RECEIVES 3
#define RDMA_SEND_BUFFERS 2
#define RDMA_SEND_DEPTH 1024            /* work requests in the send queue, if the device can */

/* One write, for rdma_connection_write(). */
typedef struct RdmaWrite {
    const RAMBlock *block;
    uint64_t offset;            /* in the block */
    uint64_t remote;            /* address at the destination */
    uint32_t length;
    uint32_t lkey, rkey;
} RdmaWrite;

/* What the device can do. */
typedef struct RdmaLimits {
    uint64_t max_message;       /* bytes of one write */
    uint64_t max_region;        /* bytes of one memory region */
    unsigned depth;             /* of the send queue, as it was made */
    bool on_demand;             /* can do without pinning, for writes */
} RdmaLimits;

/* How errors name limits.max_region. */
#define RDMA_NO_LARGER_REGION "the device can register no more than %" PRIu64 " bytes as one"

/* Set by any thread, with the eventfd; see rdma_connection_notify(). */
typedef enum {
    RDMA_FLAG_SHUTDOWN = 1 << 0,
    RDMA_FLAG_ESTABLISHED = 1 << 1,
    RDMA_FLAG_DISCONNECTED = 1 << 2,
    RDMA_FLAG_REMOVED = 1 << 3,         /* the device has gone */
    RDMA_FLAG_FAILED = 1 << 4,          /* rejected, unreachable, ... */
} RdmaFlag;

/* What one entry of the send queue was; looked up by the number in its completion. */
typedef struct RdmaSent {
    const RAMBlock *block;      /* NULL: not a write of pages */
    uint64_t offset;
    uint32_t length;
    int buffer;                 /* of a SEND, else -1 */
    unsigned group;             /* signalled: entries, itself included, that its completion covers; else 0 */
    unsigned group_writes;
    uint64_t group_bytes;
} RdmaSent;

/* A message in a receive buffer. */
typedef struct RdmaReceived {
    unsigned buffer;
    RdmaHeader header;
} RdmaReceived;

#define RDMA_BATCH 64           /* work requests that one doorbell hands over at most */

typedef struct RdmaConnection RdmaConnection;

/* The event channel of a listener, which the connections that it has accepted share. */
typedef struct RdmaEvents {
    gatomicrefcount ref_count;
    struct rdma_event_channel *channel;
} RdmaEvents;

RdmaEvents *rdma_events_new(GError **errp);
RdmaEvents *rdma_events_ref(RdmaEvents *e);
void rdma_events_unref(RdmaEvents *e);

/* A reply has come; its payload goes with the return. */
typedef bool (*RdmaReplyFunc)(const RdmaHeader *header, const void *payload, void *opaque, GError **errp);

/*
 * Belongs to one thread at a time, apart from what is said to be any thread's.
 */
struct RdmaConnection {
    RdmaControl control;
    RdmaCounters *counters;             /* NULL: nobody counts */
    RdmaReplyFunc on_reply;
    void *on_reply_opaque;

    int flags;                          /* atomic, RdmaFlag; any thread */
    int wake_fd;                        /* eventfd; any thread writes */
    GMutex regions_lock;
    GPtrArray *regions;                 /* of ibv_mr: all but those of the control buffers; regions_lock */

    struct rdma_event_channel *events;  /* the source's own; NULL on the destination */
    RdmaEvents *shared_events;          /* the destination's; read by the main thread */
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *completions;
    struct ibv_cq *send_cq, *recv_cq;
    bool has_qp;
    bool disconnect_sent;
    uint64_t booked;                    /* completions, of anything */
    int64_t flushed_us;                 /* when a receive came back unused, 0: none has */
    RdmaLimits limits;
    RdmaPrivate private_data;           /* what both sides have agreed on */
    GError *error;                      /* the first one; sticky */

    uint8_t *buffers;                   /* RDMA_RECEIVES receives, then RDMA_SEND_BUFFERS */
    struct ibv_mr *buffers_mr;
    bool send_busy[RDMA_SEND_BUFFERS];
    bool send_failed;                   /* a SEND has not completed well: perhaps it has not arrived */
    bool surely_lost;                   /* a SEND has failed in a way that tells that it has not arrived */

    /* What a receiver has got, in order.  The first one may be in use: see rdma_connection_receive(). */
    RdmaReceived received[RDMA_RECEIVES];
    unsigned n_received;
    bool first_in_use;

    /* ---- send queue ---- */
    struct ibv_send_wr batch[RDMA_BATCH];
    struct ibv_sge batch_sge[RDMA_BATCH];
    unsigned batch_n;
    RdmaSent *sent;                     /* a ring, sent_mask + 1 entries */
    uint64_t sent_mask;
    uint64_t next_number;
    unsigned used;                      /* entries of the queue that are posted, or in the batch */
    unsigned open;                      /* the last of these that no signalled one covers yet */
    unsigned open_writes;
    uint64_t open_bytes;
    unsigned writes_in_flight;          /* open ones included */
    uint64_t bytes_in_flight;
    uint64_t max_bytes;                 /* bound of bytes_in_flight */
    uint64_t batch_bytes;
    RdmaWrite last_write;
};

/* ---- life ---- */

RdmaConnection *rdma_connection_new(RdmaRole role, RdmaCounters *counters);

/* Makes PD, CQs, QP and control buffers on @id, which the connection comes to own, and posts the receives. */
bool rdma_connection_set_up(RdmaConnection *c, GError **errp);

/*
 * The end, whatever has happened: tells the peer by an ERROR message if @failed, disconnects, destroys the
 * queue pair.  Nothing of the peer's touches our memory any more afterwards.  Later calls do nothing.
 */
void rdma_connection_close(RdmaConnection *c, bool failed);
/* Closes, deregisters all memory, frees.  NULL is fine. */
void rdma_connection_free(RdmaConnection *c);

/* Any thread: sets @flag and wakes whoever waits. */
void rdma_connection_notify(RdmaConnection *c, RdmaFlag flag);
bool rdma_connection_has(const RdmaConnection *c, RdmaFlag flag);
/* Any thread: wakes the connection's thread to look again at what it waits for. */
void rdma_connection_wake(RdmaConnection *c);

/* An event of the connection's id; does not acknowledge it.  Any thread. */
void rdma_connection_cm_event(RdmaConnection *c, const struct rdma_cm_event *event);

/* ---- rdma-cm.c: the source connects ---- */

/*
 * private_data.chunk_shift is then the size of chunks to be used, whatever
 * the peer is: @ask's, or less if one of the devices cannot register so much as one.
 */
bool rdma_connection_connect(RdmaConnection *c, const InetSocketAddress *address, const RdmaPrivate *ask,
                             unsigned limit_ms, GCancellable *cancellable, GError **errp);

/* The largest chunks, at most 2^@shift bytes, that the device can register as one region.  After set-up. */
unsigned rdma_connection_chunk_shift(const RdmaConnection *c, unsigned shift);

/* What the device can register as one region, as it is told to a Godwit: see RdmaPrivate.  After set-up. */
unsigned rdma_connection_region_shift(const RdmaConnection *c);

/* ---- waiting ---- */

/* Books what has happened, sends what may be sent; does not wait. */
bool rdma_connection_progress(RdmaConnection *c, GError **errp);

/* @done is asked after every booking. */
typedef bool (*RdmaDone)(const RdmaConnection *c, const void *opaque);

/* @what completes "timed out waiting for ...". */
bool rdma_connection_wait(RdmaConnection *c, RdmaDone done, const void *opaque, unsigned limit_ms,
                          const char *what, GError **errp);

/* Keeps @error (taken over) unless there is one; returns false. */
bool rdma_connection_fail(RdmaConnection *c, GError *error);
/* True while nothing has failed; else @errp is a copy of the sticky error. */
bool rdma_connection_check(const RdmaConnection *c, GError **errp);

/* ---- control ---- */

/* Sender: queues a message; it leaves when its READY has come and the connection's thread is here again. */
bool rdma_connection_queue(RdmaConnection *c, RdmaControlType type, uint32_t repeat, const void *payload,
                           size_t length, GError **errp);

/* Sender: waits until at most @left messages are queued and no reply is missing if @left is 0. */
bool rdma_connection_flush(RdmaConnection *c, unsigned left, GError **errp);

/* Sender: waits until the peer has asked for more after the last message: it has obeyed all of them. */
bool rdma_connection_obeyed(RdmaConnection *c, GError **errp);

/* Sender: until the peer has received every message: SENDs are completed. */
bool rdma_connection_finish(RdmaConnection *c, GError **errp);

/* Sender: the same, but a shutdown or an error of something else does not hide that all has been received. */
bool rdma_connection_arrived(RdmaConnection *c, GError **errp);

/*
 * Sender: as rdma_connection_finish(), but false only if a message surely has not been received.  The
 * connection can fail after the message has arrived and before that is known here.
 */
bool rdma_connection_deliver(RdmaConnection *c, GError **errp);

/*
 * Receiver, after the last message: until the sender has disconnected, but not for ever.  Who disconnects at
 * once may take back the acknowledgement of what it has received: the sender would take that for a failure.
 */
void rdma_connection_await_end(RdmaConnection *c);

/*
 * Receiver: asks for the next message and waits for it.  It stays valid until the next call.  *payload is
 * its payload.  False with no error: the peer has disconnected and nothing is left to be read.
 */
bool rdma_connection_receive(RdmaConnection *c, RdmaHeader *header, const uint8_t **payload, GError **errp);

/* Receiver: a reply, now. */
bool rdma_connection_reply(RdmaConnection *c, RdmaControlType type, uint32_t repeat, const void *payload,
                           size_t length, GError **errp);

/* ---- rdma-queue.c: writes ---- */

/* Takes a write of at most limits.max_message bytes; waits for room in the queue. */
bool rdma_connection_write(RdmaConnection *c, const RdmaWrite *write, GError **errp);
/* Hands over what has been gathered.  One doorbell. */
bool rdma_connection_ring(RdmaConnection *c, GError **errp);
/* Waits until no write is in flight. */
bool rdma_connection_drain(RdmaConnection *c, GError **errp);
/* A SEND from send buffer @buffer, of @length bytes, behind all writes. */
bool rdma_queue_send(RdmaConnection *c, int buffer, uint32_t length, GError **errp);
/* Books one completion of the send queue. */
void rdma_queue_completed(RdmaConnection *c, const struct ibv_wc *wc);
bool rdma_queue_init(RdmaConnection *c, GError **errp);

/* ---- rdma-memory.c ---- */

/*
 * Registers @length bytes of @block at @offset, at most limits.max_region; tries without pinning if the
 * device can and the memory cannot be pinned.  The region is the connection's and ends with it.  Any thread.
 */
struct ibv_mr *rdma_connection_register(RdmaConnection *c, const RAMBlock *block, uint64_t offset,
                                        uint64_t length, int access, GError **errp);
void rdma_connection_deregister(RdmaConnection *c, struct ibv_mr *region);

/*
 * Tries each block with one page, so that memory that cannot be registered at all is refused by name before
 * anything has been sent.
 */
bool rdma_connection_probe(RdmaConnection *c, const RAMBlock *block, int access, GError **errp);

static inline uint8_t *rdma_receive_buffer(const RdmaConnection *c, unsigned i)
{
    return c->buffers + (size_t)i * RDMA_MESSAGE_MAX;
}

static inline uint8_t *rdma_send_buffer(const RdmaConnection *c, unsigned i)
{
    return c->buffers + (size_t)(RDMA_RECEIVES + i) * RDMA_MESSAGE_MAX;
}

static inline void rdma_count(RdmaConnection *c, size_t offset, uint64_t n)
{
    if (c->counters) {
        ram_stats_add((uint64_t *)((char *)c->counters + offset), n);
    }
}
#define RDMA_COUNT(c, member, n) rdma_count(c, offsetof(RdmaCounters, member), n)

/* A completion's number: what it is, and which one. */
#define RDMA_WR_RECEIVE (UINT64_C(1) << 63)

#endif
