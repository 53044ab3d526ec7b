/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: the credits of a control channel, and the queue of messages that wait for one.  Needs no device. */
#ifndef GODWIT_MIGRATION_RDMA_CONTROL_H
#define GODWIT_MIGRATION_RDMA_CONTROL_H

#include "migration/rdma/rdma-wire.h"

/*
 * READY buys one message.  The receiver sends it when it wants the next message; to a request the sender gets
 * the reply first and the READY after it.  ERROR may come at any time and ends everything.
 */
typedef enum {
    RDMA_SENDER,        /* sends stream bytes and requests, gets READY and replies */
    RDMA_RECEIVER,      /* sends READY and replies */
} RdmaRole;

/* A message that waits for its READY. */
typedef struct RdmaMessage {
    RdmaControlType type;
    uint32_t repeat;
    size_t length;          /* of the payload */
    uint8_t payload[];
} RdmaMessage;

/* Belongs to the connection's thread. */
typedef struct RdmaControl {
    RdmaRole role;
    bool ready;             /* sender: a READY that no message has used */
    unsigned owed;          /* receiver: messages that the peer may send */
    RdmaControlType reply;  /* sender: the type that has to come next; NONE: no reply is expected */
    GQueue queue;           /* of RdmaMessage */
} RdmaControl;

void rdma_control_init(RdmaControl *c, RdmaRole role);
void rdma_control_clear(RdmaControl *c);

/* Sender: appends a message.  Stream bytes join those that wait at the end of the queue. */
void rdma_control_queue(RdmaControl *c, RdmaControlType type, uint32_t repeat, const void *payload,
                        size_t length);
unsigned rdma_control_queued(const RdmaControl *c);

/* Sender: the message to send now, which the caller frees with g_free(); NULL if none may be sent. */
RdmaMessage *rdma_control_next(RdmaControl *c);

/* Receiver: READY is being sent. */
void rdma_control_ready_sent(RdmaControl *c);
/*
 * Receiver: the peer does not wait for a READY before its first message, and stays one ahead.  So does a QEMU
 * on the connection for its return path.
 */
void rdma_control_first_is_free(RdmaControl *c);

/*
 * A message of @type has come: is it its turn?  "Was expecting a READY (2) control message, but got: ...".
 */
bool rdma_control_received(RdmaControl *c, unsigned type, GError **errp);

#endif
