/* SPDX-License-Identifier: BSD-2-Clause */
/* The other end of an RDMA migration, made by hand: it says what a test wants it to say, right or wrong. */
#include "rdma-peer.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>

#define HANG_US (60 * G_USEC_PER_SEC)
#define RECEIVES 3
#define SENDS 2                 /* the impatient one's earlier messages may still be on their way */
#define BUFFERS (RECEIVES + SENDS)
#define DEPTH 64

/* ---- connection ---- */

/* The type of the next event; @take is given the event before it is acknowledged. */
static int next_event(RdmaPeer *p, void (*take)(RdmaPeer *p, struct rdma_cm_event *event))
{
    struct pollfd ready = { .fd = p->events->fd, .events = POLLIN };
    struct rdma_cm_event *event;

    if (poll(&ready, 1, HANG_US / 1000) != 1) {
        g_error("hang: the peer waits for an event");
    }
    g_assert_cmpint(rdma_get_cm_event(p->events, &event), ==, 0);
    int type = event->event;
    if (take) {
        take(p, event);
    }
    rdma_ack_cm_event(event);
    return type;
}

static void post_receive(RdmaPeer *p, unsigned i)
{
    uint8_t *buffer = p->buffers + (size_t)i * PEER_MESSAGE;
    struct ibv_sge sge = { (uintptr_t)buffer, PEER_MESSAGE, p->buffers_mr->lkey };
    struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

    g_assert_cmpint(ibv_post_recv(p->id->qp, &wr, &bad), ==, 0);
}

static void make_queues(RdmaPeer *p)
{
    struct ibv_context *verbs = p->id->verbs;
    p->pd = ibv_alloc_pd(verbs);
    p->send_cq = ibv_create_cq(verbs, 2 * DEPTH, NULL, NULL, 0);
    p->recv_cq = ibv_create_cq(verbs, 2 * DEPTH, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {
        .send_cq = p->send_cq, .recv_cq = p->recv_cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    g_assert_cmpint(rdma_create_qp(p->id, p->pd, &attr), ==, 0);
    p->buffers = g_malloc0(BUFFERS * PEER_MESSAGE);
    p->buffers_mr = ibv_reg_mr(p->pd, p->buffers, BUFFERS * PEER_MESSAGE, IBV_ACCESS_LOCAL_WRITE);
    p->regions = g_ptr_array_new();
    p->message = g_malloc0(PEER_MESSAGE);
    p->payload = p->message + PEER_HEADER;
    for (unsigned i = 0; i < RECEIVES; i++) {
        post_receive(p, i);
    }
}

static void fill_private(uint8_t data[8], uint32_t version, uint32_t flags)
{
    version = htonl(version);
    flags = htonl(flags);
    memcpy(data, &version, 4);
    memcpy(data + 4, &flags, 4);
}

static void take_private(RdmaPeer *p, struct rdma_cm_event *event)
{
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        p->id = event->id;
    }
    if (event->param.conn.private_data) {
        memcpy(p->private_data, event->param.conn.private_data, 8);
    }
}

unsigned peer_listen(RdmaPeer *p)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    *p = (RdmaPeer){ .events = rdma_create_event_channel() };
    g_assert_cmpint(rdma_create_id(p->events, &p->listener, NULL, RDMA_PS_TCP), ==, 0);
    g_assert_cmpint(rdma_bind_addr(p->listener, (struct sockaddr *)&address), ==, 0);
    g_assert_cmpint(rdma_listen(p->listener, 1), ==, 0);
    return ntohs(rdma_get_src_port(p->listener));
}

bool peer_accept(RdmaPeer *p, uint32_t version, uint32_t flags)
{
    uint8_t data[8];
    struct rdma_conn_param param = { .private_data = data, .private_data_len = sizeof(data) };

    g_assert_cmpint(next_event(p, take_private), ==, RDMA_CM_EVENT_CONNECT_REQUEST);
    make_queues(p);
    fill_private(data, version, flags);
    g_assert_cmpint(rdma_accept(p->id, &param), ==, 0);
    p->broken = next_event(p, NULL) != RDMA_CM_EVENT_ESTABLISHED;
    return !p->broken;
}

bool peer_connect(RdmaPeer *p, unsigned port, uint32_t version, uint32_t flags)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons(port) };
    uint8_t data[8];
    struct rdma_conn_param param = { .private_data = data, .private_data_len = sizeof(data) };

    *p = (RdmaPeer){ .events = rdma_create_event_channel() };
    g_assert_cmpint(rdma_create_id(p->events, &p->id, NULL, RDMA_PS_TCP), ==, 0);
    g_assert_cmpint(rdma_resolve_addr(p->id, NULL, (struct sockaddr *)&to, 1000), ==, 0);
    g_assert_cmpint(next_event(p, NULL), ==, RDMA_CM_EVENT_ADDR_RESOLVED);
    g_assert_cmpint(rdma_resolve_route(p->id, 1000), ==, 0);
    g_assert_cmpint(next_event(p, NULL), ==, RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_queues(p);
    fill_private(data, version, flags);
    g_assert_cmpint(rdma_connect(p->id, &param), ==, 0);
    p->broken = next_event(p, take_private) != RDMA_CM_EVENT_ESTABLISHED;
    return !p->broken;
}

void peer_disconnect(RdmaPeer *p)
{
    rdma_disconnect(p->id);
    p->broken = true;
}

void peer_free(RdmaPeer *p)
{
    if (p->id) {
        rdma_disconnect(p->id);
        rdma_destroy_qp(p->id);
        for (guint i = 0; i < p->regions->len; i++) {
            ibv_dereg_mr(g_ptr_array_index(p->regions, i));
        }
        g_ptr_array_free(p->regions, TRUE);
        ibv_dereg_mr(p->buffers_mr);
        ibv_destroy_cq(p->send_cq);
        ibv_destroy_cq(p->recv_cq);
        ibv_dealloc_pd(p->pd);
        rdma_destroy_id(p->id);
    }
    if (p->listener) {
        rdma_destroy_id(p->listener);
    }
    rdma_destroy_event_channel(p->events);
    g_free(p->buffers);
    g_free(p->message);
}

/* ---- messages ---- */

/* A completion; false: the connection has gone. */
static bool complete(RdmaPeer *p, struct ibv_cq *cq, struct ibv_wc *wc, const char *what)
{
    gint64 until = g_get_monotonic_time() + HANG_US;

    while (!p->broken) {
        struct pollfd event = { .fd = p->events->fd, .events = POLLIN };
        /* First the events: what came before a disconnect is in the queue then. */
        bool gone = poll(&event, 1, 0) == 1;
        int n = ibv_poll_cq(cq, 1, wc);
        g_assert_cmpint(n, >=, 0);
        if (n) {
            p->broken = wc->status != IBV_WC_SUCCESS;
            return !p->broken;
        }
        if (gone) {
            p->broken = true;
        } else if (g_get_monotonic_time() > until) {
            g_error("hang: the peer waits for %s", what);
        } else {
            g_usleep(20);
        }
    }
    return false;
}

static bool post_send(RdmaPeer *p, struct ibv_send_wr *wr, const char *what)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    wr->send_flags = IBV_SEND_SIGNALED;
    if (p->broken || ibv_post_send(p->id->qp, wr, &bad)) {
        return false;
    }
    if (!p->impatient) {
        return complete(p, p->send_cq, &wc, what);
    }
    while (ibv_poll_cq(p->send_cq, 1, &wc) > 0) {
    }
    return true;
}

bool peer_send_raw(RdmaPeer *p, const void *message, size_t length)
{
    uint8_t *buffer = p->buffers + (RECEIVES + p->sends++ % SENDS) * PEER_MESSAGE;
    struct ibv_sge sge = { (uintptr_t)buffer, (uint32_t)length, p->buffers_mr->lkey };
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

    g_assert_cmpuint(length, <=, PEER_MESSAGE);
    memcpy(buffer, message, length);
    return post_send(p, &wr, "a message to be sent");
}

bool peer_send(RdmaPeer *p, uint32_t type, uint32_t repeat, const void *payload, size_t length)
{
    g_autofree uint8_t *message = g_malloc0(PEER_HEADER + length);
    uint32_t header[4] = { htonl((uint32_t)length), htonl(type), htonl(repeat), 0 };

    memcpy(message, header, sizeof(header));
    if (length) {
        memcpy(message + PEER_HEADER, payload, length);
    }
    return peer_send_raw(p, message, PEER_HEADER + length);
}

bool peer_receive(RdmaPeer *p)
{
    struct ibv_wc wc;
    uint32_t header[4];

    if (!complete(p, p->recv_cq, &wc, "a message")) {
        return false;
    }
    memcpy(p->message, p->buffers + wc.wr_id * PEER_MESSAGE, wc.byte_len);
    p->received = wc.byte_len;
    g_assert_cmpuint(wc.byte_len, >=, PEER_HEADER);
    memcpy(header, p->message, sizeof(header));
    p->length = ntohl(header[0]);
    p->type = ntohl(header[1]);
    p->repeat = ntohl(header[2]);
    g_assert_cmpuint(p->length + PEER_HEADER, ==, p->received);
    post_receive(p, (unsigned)wc.wr_id);
    return true;
}

bool peer_receive_ready(RdmaPeer *p)
{
    if (!peer_receive(p)) {
        return false;
    }
    peer_assert_message(p, "00000000 00000002 00000001 00000000");
    return true;
}

void peer_assert_message(RdmaPeer *p, const char *expected)
{
    g_autoptr(GString) theirs = g_string_new(NULL), ours = g_string_new(expected);

    for (uint32_t i = 0; i < p->received; i++) {
        g_string_append_printf(theirs, "%02x", p->message[i]);
    }
    g_string_replace(ours, " ", "", 0);
    g_assert_cmpstr(theirs->str, ==, ours->str);
}

struct ibv_mr *peer_register(RdmaPeer *p, void *memory, size_t length)
{
    struct ibv_mr *mr = ibv_reg_mr(p->pd, memory, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

    g_assert_nonnull(mr);
    g_ptr_array_add(p->regions, mr);
    return mr;
}

bool peer_write(RdmaPeer *p, const void *from, uint32_t length, uint64_t remote, uint32_t rkey)
{
    struct ibv_mr *mr = peer_register(p, (void *)from, length);
    struct ibv_sge sge = { (uintptr_t)from, length, mr->lkey };
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
                              .wr.rdma = { remote, rkey } };
    return post_send(p, &wr, "a write");
}
