/* SPDX-License-Identifier: BSD-2-Clause */
/* The other end of an RDMA migration, made by hand: it says what a test wants it to say, right or wrong. */
#ifndef GODWIT_TESTS_RDMA_PEER_H
#define GODWIT_TESTS_RDMA_PEER_H

#include <glib.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#define PEER_MESSAGE 524288
#define PEER_HEADER 16

/* Used by one thread at a time.  Whatever takes too long ends the test. */
typedef struct RdmaPeer {
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener, *id;
    struct ibv_pd *pd;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_mr *buffers_mr;
    uint8_t *buffers;
    unsigned sends;
    GPtrArray *regions;         /* struct ibv_mr */
    bool broken;                /* the connection has gone; everything fails from now on */
    bool impatient;             /* does not wait until what it sends has completed */
    uint8_t private_data[8];    /* the other side's */

    /* The last message, in the host's order. */
    uint32_t length, type, repeat;
    uint8_t *message;           /* header and payload */
    uint8_t *payload;
    uint32_t received;          /* bytes */
} RdmaPeer;

/* ---- connection ---- */

/* Listens at a port of 127.0.0.1; the port. */
unsigned peer_listen(RdmaPeer *p);
/* Takes one connection and answers with @version and @flags. */
bool peer_accept(RdmaPeer *p, uint32_t version, uint32_t flags);
/* False: rejected. */
bool peer_connect(RdmaPeer *p, unsigned port, uint32_t version, uint32_t flags);
void peer_disconnect(RdmaPeer *p);
void peer_free(RdmaPeer *p);

/* ---- messages ---- */

/* As it is, whatever it is.  False: the connection has gone. */
bool peer_send_raw(RdmaPeer *p, const void *message, size_t length);
bool peer_send(RdmaPeer *p, uint32_t type, uint32_t repeat, const void *payload, size_t length);
/* Waits for a message. */
bool peer_receive(RdmaPeer *p);
/* Waits for READY, byte for byte. */
bool peer_receive_ready(RdmaPeer *p);
/* Fails the test if the last message is not, byte for byte, the hexadecimal @expected without its blanks. */
void peer_assert_message(RdmaPeer *p, const char *expected);
bool peer_write(RdmaPeer *p, const void *from, uint32_t length, uint64_t remote, uint32_t rkey);
struct ibv_mr *peer_register(RdmaPeer *p, void *memory, size_t length);

#endif
