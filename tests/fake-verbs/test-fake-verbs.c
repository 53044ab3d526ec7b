/* SPDX-License-Identifier: BSD-2-Clause */
/* The fake verbs themselves: they do what a device does, and what they are told to do wrong. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#include "fake-verbs.h"

#define SIZE (1024 * 1024)
#define HANG_MS 30000

/* One end of a connection, with a queue of each kind. */
typedef struct End {
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_mr *mr;
    uint8_t *memory;
    uint8_t private_data[8];    /* what the other side sent */
} End;

typedef struct Pair {
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    End src, dst;
} Pair;

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel)
{
    struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
    g_assert_cmpint(poll(&ready, 1, HANG_MS), ==, 1);
    struct rdma_cm_event *event = NULL;
    g_assert_cmpint(rdma_get_cm_event(channel, &event), ==, 0);
    return event;
}

static void expect_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = next_event(channel);
    g_assert_cmpstr(rdma_event_str(event->event), ==, rdma_event_str(type));
    rdma_ack_cm_event(event);
}

static void make_queues(End *end, int depth)
{
    struct ibv_context *verbs = end->id->verbs;
    end->pd = ibv_alloc_pd(verbs);
    end->channel = ibv_create_comp_channel(verbs);
    end->send_cq = ibv_create_cq(verbs, 2 * depth, NULL, end->channel, 0);
    end->recv_cq = ibv_create_cq(verbs, depth, NULL, end->channel, 0);
    struct ibv_qp_init_attr attr = {
        .send_cq = end->send_cq, .recv_cq = end->recv_cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    g_assert_cmpint(rdma_create_qp(end->id, end->pd, &attr), ==, 0);
    end->memory = g_malloc0(SIZE);
    end->mr = ibv_reg_mr(end->pd, end->memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    g_assert_nonnull(end->mr);
}

static void listen_on(Pair *p, const char *host)
{
    struct rdma_addrinfo *ai;
    p->events = rdma_create_event_channel();
    g_assert_cmpint(rdma_create_id(p->events, &p->listener, NULL, RDMA_PS_TCP), ==, 0);
    g_assert_cmpint(rdma_getaddrinfo(host, "0", NULL, &ai), ==, 0);
    g_assert_cmpint(rdma_bind_addr(p->listener, ai->ai_dst_addr), ==, 0);
    rdma_freeaddrinfo(ai);
    g_assert_cmpint(rdma_listen(p->listener, 5), ==, 0);
    g_assert_cmpuint(rdma_get_src_port(p->listener), !=, 0);
}

static void resolve(Pair *p, const char *host)
{
    End *src = &p->src;
    struct rdma_addrinfo *ai;
    g_autofree char *port = g_strdup_printf("%u", GUINT16_FROM_BE(rdma_get_src_port(p->listener)));
    src->events = rdma_create_event_channel();
    g_assert_cmpint(rdma_create_id(src->events, &src->id, NULL, RDMA_PS_TCP), ==, 0);
    g_assert_cmpint(rdma_getaddrinfo(host, port, NULL, &ai), ==, 0);
    g_assert_cmpint(rdma_resolve_addr(src->id, NULL, ai->ai_dst_addr, 1000), ==, 0);
    rdma_freeaddrinfo(ai);
    expect_event(src->events, RDMA_CM_EVENT_ADDR_RESOLVED);
    g_assert_cmpint(rdma_resolve_route(src->id, 1000), ==, 0);
    expect_event(src->events, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void request(Pair *p, int depth)
{
    make_queues(&p->src, depth);
    struct rdma_conn_param param = { .private_data = "from src", .private_data_len = 8 };
    g_assert_cmpint(rdma_connect(p->src.id, &param), ==, 0);
    struct rdma_cm_event *event = next_event(p->events);
    g_assert_cmpint(event->event, ==, RDMA_CM_EVENT_CONNECT_REQUEST);
    g_assert_true(event->listen_id == p->listener);
    g_assert_cmpuint(event->param.conn.private_data_len, ==, 56);
    p->dst.id = event->id;
    memcpy(p->dst.private_data, event->param.conn.private_data, 8);
    rdma_ack_cm_event(event);
}

static void connect_pair_at(Pair *p, const char *host, int depth)
{
    *p = (Pair){ 0 };
    listen_on(p, host);
    resolve(p, host);
    request(p, depth);
    make_queues(&p->dst, depth);
    struct rdma_conn_param param = { .private_data = "from dst", .private_data_len = 8 };
    g_assert_cmpint(rdma_accept(p->dst.id, &param), ==, 0);
    struct rdma_cm_event *event = next_event(p->src.events);
    g_assert_cmpint(event->event, ==, RDMA_CM_EVENT_ESTABLISHED);
    g_assert_cmpuint(event->param.conn.private_data_len, ==, 196);
    memcpy(p->src.private_data, event->param.conn.private_data, 8);
    rdma_ack_cm_event(event);
    expect_event(p->events, RDMA_CM_EVENT_ESTABLISHED);
}

static void connect_pair(Pair *p, int depth)
{
    connect_pair_at(p, "127.0.0.1", depth);
}

static void free_end(End *end)
{
    rdma_destroy_qp(end->id);
    ibv_dereg_mr(end->mr);
    ibv_destroy_cq(end->send_cq);
    ibv_destroy_cq(end->recv_cq);
    ibv_destroy_comp_channel(end->channel);
    ibv_dealloc_pd(end->pd);
    rdma_destroy_id(end->id);
    g_free(end->memory);
}

/* And everything is as it was, but for @violations that the test provoked. */
static void free_pair(Pair *p, unsigned violations)
{
    free_end(&p->src);
    rdma_destroy_event_channel(p->src.events);
    free_end(&p->dst);
    rdma_destroy_id(p->listener);
    rdma_destroy_event_channel(p->events);
    g_assert_cmpuint(fake_verbs_live(), ==, 0);
    g_assert_cmpuint(fake_verbs_violations(), ==, violations);
    fake_verbs_reset();
}

static struct ibv_wc next_completion(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    gint64 until = g_get_monotonic_time() + HANG_MS * 1000;
    int n;
    while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
        g_assert_cmpint(g_get_monotonic_time(), <, until);
        g_usleep(50);
    }
    g_assert_cmpint(n, ==, 1);
    return wc;
}

static void expect_completion(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
    struct ibv_wc wc = next_completion(cq);
    g_assert_cmpuint(wc.wr_id, ==, wr_id);
    g_assert_cmpstr(ibv_wc_status_str(wc.status), ==, ibv_wc_status_str(status));
}

static int try_write(Pair *p, uint64_t wr_id, uint64_t at, uint32_t length, unsigned flags)
{
    struct ibv_sge sge = { .addr = (uintptr_t)p->src.memory + at, .length = length, .lkey = p->src.mr->lkey };
    struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
                              .send_flags = flags,
                              .wr.rdma = { (uintptr_t)p->dst.memory + at, p->dst.mr->rkey } };
    struct ibv_send_wr *bad;
    return ibv_post_send(p->src.id->qp, &wr, &bad);
}

static void post_write(Pair *p, uint64_t wr_id, uint64_t at, uint32_t length, unsigned flags)
{
    g_assert_cmpint(try_write(p, wr_id, at, length, flags), ==, 0);
}

static int try_message(End *end, uint64_t wr_id, uint32_t length)
{
    struct ibv_sge sge = { .addr = (uintptr_t)end->memory, .length = length, .lkey = end->mr->lkey };
    struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                              .send_flags = IBV_SEND_SIGNALED };
    struct ibv_send_wr *bad;
    return ibv_post_send(end->id->qp, &wr, &bad);
}

static int try_receive(End *end, uint64_t wr_id, uint64_t at, uint32_t length)
{
    struct ibv_sge sge = { .addr = (uintptr_t)end->memory + at, .length = length, .lkey = end->mr->lkey };
    struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
    struct ibv_recv_wr *bad;
    return ibv_post_recv(end->id->qp, &wr, &bad);
}

static void fill(uint8_t *memory, uint32_t seed)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
    for (size_t i = 0; i < SIZE; i += 4) {
        guint32 v = g_rand_int(rand);
        memcpy(memory + i, &v, 4);
    }
}

/* ---- what a device does ---- */

static void test_connection(void)
{
    Pair p;
    connect_pair(&p, 4);
    g_assert_cmpmem(p.dst.private_data, 8, "from src", 8);
    g_assert_cmpmem(p.src.private_data, 8, "from dst", 8);
    g_assert_cmpint(rdma_disconnect(p.src.id), ==, 0);
    expect_event(p.src.events, RDMA_CM_EVENT_DISCONNECTED);
    expect_event(p.events, RDMA_CM_EVENT_DISCONNECTED);
    free_pair(&p, 0);
}

static void test_ipv6(void)
{
    Pair p;
    connect_pair_at(&p, "::1", 4);
    free_pair(&p, 0);
}

static void test_destroyed_without_disconnect(void)
{
    Pair p;
    connect_pair(&p, 4);
    free_end(&p.src);
    expect_event(p.events, RDMA_CM_EVENT_DISCONNECTED);
    free_end(&p.dst);
    rdma_destroy_event_channel(p.src.events);
    rdma_destroy_id(p.listener);
    rdma_destroy_event_channel(p.events);
    g_assert_cmpuint(fake_verbs_live(), ==, 0);
    fake_verbs_reset();
}

static void free_half(Pair *p)
{
    free_end(&p->src);
    rdma_destroy_event_channel(p->src.events);
    g_clear_pointer(&p->listener, rdma_destroy_id);
    rdma_destroy_event_channel(p->events);
    g_assert_cmpuint(fake_verbs_live(), ==, 0);
    g_assert_cmpuint(fake_verbs_violations(), ==, 0);
    fake_verbs_reset();
}

static void test_reject(void)
{
    Pair p = { 0 };
    listen_on(&p, "127.0.0.1");
    resolve(&p, "127.0.0.1");
    request(&p, 4);
    g_assert_cmpint(rdma_reject(p.dst.id, NULL, 0), ==, 0);
    struct rdma_cm_event *event = next_event(p.src.events);
    g_assert_cmpint(event->event, ==, RDMA_CM_EVENT_REJECTED);
    g_assert_cmpint(event->status, ==, 28);
    rdma_ack_cm_event(event);
    rdma_destroy_id(p.dst.id);
    free_half(&p);
}

static void test_nobody_listens(void)
{
    Pair p = { 0 };
    listen_on(&p, "127.0.0.1");
    resolve(&p, "127.0.0.1");
    g_clear_pointer(&p.listener, rdma_destroy_id);
    make_queues(&p.src, 4);
    struct rdma_conn_param param = { 0 };
    g_assert_cmpint(rdma_connect(p.src.id, &param), ==, 0);
    expect_event(p.src.events, RDMA_CM_EVENT_REJECTED);
    free_half(&p);
}

/* A request that nobody takes ends with its listener. */
static void test_listener_goes(void)
{
    Pair p = { 0 };
    listen_on(&p, "127.0.0.1");
    resolve(&p, "127.0.0.1");
    make_queues(&p.src, 4);
    struct rdma_conn_param param = { 0 };
    g_assert_cmpint(rdma_connect(p.src.id, &param), ==, 0);
    struct pollfd ready = { .fd = p.events->fd, .events = POLLIN };
    g_assert_cmpint(poll(&ready, 1, HANG_MS), ==, 1);
    g_clear_pointer(&p.listener, rdma_destroy_id);
    g_assert_cmpint(poll(&ready, 1, 0), ==, 0);
    expect_event(p.src.events, RDMA_CM_EVENT_REJECTED);
    free_half(&p);
}

static void test_write(void)
{
    Pair p;
    connect_pair(&p, 4);
    fill(p.src.memory, 1);
    post_write(&p, 1, 0, SIZE - 5000, 0);
    post_write(&p, 2, SIZE - 5000, 5000, IBV_SEND_SIGNALED);
    expect_completion(p.src.send_cq, 2, IBV_WC_SUCCESS);
    g_assert_cmpmem(p.dst.memory, SIZE, p.src.memory, SIZE);
    g_assert_cmpuint(fake_verbs_number("writes"), ==, 2);
    g_assert_cmpuint(fake_verbs_number("write-bytes"), ==, SIZE);
    g_assert_cmpuint(fake_verbs_number("doorbells"), ==, 2);
    g_assert_cmpuint(fake_verbs_number("signalled"), ==, 1);
    free_pair(&p, 0);
}

static void test_message(void)
{
    Pair p;
    connect_pair(&p, 4);
    fill(p.src.memory, 2);
    g_assert_cmpint(try_receive(&p.dst, 7, 0, SIZE), ==, 0);
    g_assert_cmpint(try_message(&p.src, 8, 300000), ==, 0);
    struct ibv_wc wc = next_completion(p.dst.recv_cq);
    g_assert_cmpint(wc.status, ==, IBV_WC_SUCCESS);
    g_assert_cmpuint(wc.wr_id, ==, 7);
    g_assert_cmpuint(wc.byte_len, ==, 300000);
    g_assert_cmpmem(p.dst.memory, 300000, p.src.memory, 300000);
    expect_completion(p.src.send_cq, 8, IBV_WC_SUCCESS);
    free_pair(&p, 0);
}

static void test_no_receive(void)
{
    Pair p;
    connect_pair(&p, 4);
    g_assert_cmpint(try_receive(&p.src, 5, 0, 16), ==, 0);
    g_assert_cmpint(try_message(&p.src, 1, 16), ==, 0);
    expect_completion(p.src.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    expect_completion(p.src.recv_cq, 5, IBV_WC_WR_FLUSH_ERR);
    g_assert_cmpint(try_message(&p.src, 2, 16), ==, 0);
    expect_completion(p.src.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    g_assert_cmpuint(fake_verbs_number("rnr"), ==, 1);
    free_pair(&p, 0);
}

static void test_message_too_long(void)
{
    Pair p;
    connect_pair(&p, 4);
    g_assert_cmpint(try_receive(&p.dst, 7, 0, 100), ==, 0);
    g_assert_cmpint(try_message(&p.src, 1, 101), ==, 0);
    expect_completion(p.src.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
    expect_completion(p.dst.recv_cq, 7, IBV_WC_LOC_LEN_ERR);
    free_pair(&p, 0);
}

static void test_bounds(void)
{
    static const struct {
        int64_t at;
        uint32_t length, key_off, lkey_off;
        enum ibv_wc_status status;
    } cases[] = {
        { 0, SIZE + 1, 0, 0, IBV_WC_LOC_PROT_ERR }, { -1, 1, 0, 0, IBV_WC_LOC_PROT_ERR },
        { 0, 4096, 1, 0, IBV_WC_REM_ACCESS_ERR },   { 0, 4096, 0, 1, IBV_WC_LOC_PROT_ERR },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Pair p;
        connect_pair(&p, 4);
        p.src.mr->lkey += cases[i].lkey_off;
        p.dst.mr->rkey += cases[i].key_off;
        post_write(&p, 1, cases[i].at, cases[i].length, 0);
        expect_completion(p.src.send_cq, 1, cases[i].status);
        p.src.mr->lkey -= cases[i].lkey_off;
        free_pair(&p, 0);
    }
}

static void test_region_gone(void)
{
    Pair p;
    connect_pair(&p, 4);
    ibv_dereg_mr(p.dst.mr);
    struct ibv_mr stale = { .rkey = 0x1234 };
    p.dst.mr = &stale;
    post_write(&p, 1, 0, 4096, IBV_SEND_SIGNALED);
    expect_completion(p.src.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
    p.dst.mr = ibv_reg_mr(p.dst.pd, p.dst.memory, SIZE, 0);
    free_pair(&p, 0);
}

/* The place of an unsignalled request is free only when a later completion was polled. */
static void test_full(void)
{
    Pair p;
    connect_pair(&p, 4);
    for (int i = 0; i < 4; i++) {
        post_write(&p, i, 0, 64, i == 3 ? IBV_SEND_SIGNALED : 0);
    }
    g_usleep(20000);
    g_assert_cmpint(try_write(&p, 9, 0, 64, 0), ==, ENOMEM);
    expect_completion(p.src.send_cq, 3, IBV_WC_SUCCESS);
    for (int i = 0; i < 4; i++) {
        post_write(&p, i, 0, 64, 0);
    }
    g_assert_cmpint(try_write(&p, 9, 0, 64, 0), ==, ENOMEM);
    free_pair(&p, 0);
}

static void test_notification(void)
{
    Pair p;
    connect_pair(&p, 4);
    struct pollfd ready = { .fd = p.src.channel->fd, .events = POLLIN };
    post_write(&p, 1, 0, 64, IBV_SEND_SIGNALED);
    expect_completion(p.src.send_cq, 1, IBV_WC_SUCCESS);
    g_assert_cmpint(poll(&ready, 1, 0), ==, 0);
    g_assert_cmpint(ibv_req_notify_cq(p.src.send_cq, 0), ==, 0);
    post_write(&p, 2, 0, 64, IBV_SEND_SIGNALED);
    post_write(&p, 3, 0, 64, IBV_SEND_SIGNALED);
    g_assert_cmpint(poll(&ready, 1, HANG_MS), ==, 1);
    struct ibv_cq *cq;
    void *opaque;
    g_assert_cmpint(ibv_get_cq_event(p.src.channel, &cq, &opaque), ==, 0);
    g_assert_true(cq == p.src.send_cq);
    ibv_ack_cq_events(cq, 1);
    expect_completion(p.src.send_cq, 2, IBV_WC_SUCCESS);
    expect_completion(p.src.send_cq, 3, IBV_WC_SUCCESS);
    fcntl(p.src.channel->fd, F_SETFL, O_NONBLOCK);
    g_assert_cmpint(ibv_get_cq_event(p.src.channel, &cq, &opaque), ==, -1);
    g_assert_cmpint(errno, ==, EAGAIN);
    free_pair(&p, 0);
}

/* The peer's end: receives stay, until this end disconnects as well. */
static void test_peer_disconnects(void)
{
    Pair p;
    connect_pair(&p, 4);
    g_assert_cmpint(try_receive(&p.dst, 7, 0, 16), ==, 0);
    rdma_disconnect(p.src.id);
    expect_event(p.events, RDMA_CM_EVENT_DISCONNECTED);
    struct ibv_wc wc;
    g_assert_cmpint(ibv_poll_cq(p.dst.recv_cq, 1, &wc), ==, 0);
    g_assert_cmpint(try_message(&p.dst, 2, 16), ==, 0);
    expect_completion(p.dst.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
    expect_completion(p.dst.recv_cq, 7, IBV_WC_WR_FLUSH_ERR);
    free_pair(&p, 0);
}

static void test_limits(void)
{
    g_assert_null(fake_verbs_set("limit=max_mr_size:4096 limit=max_msg_sz:100 limit=memlock:8192"));
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct rdma_addrinfo *ai;
    g_assert_cmpint(rdma_create_id(events, &id, NULL, RDMA_PS_TCP), ==, 0);
    g_assert_cmpint(rdma_getaddrinfo("127.0.0.1", "1", NULL, &ai), ==, 0);
    g_assert_cmpint(rdma_resolve_addr(id, NULL, ai->ai_dst_addr, 1), ==, 0);
    rdma_freeaddrinfo(ai);
    struct ibv_device_attr_ex device;
    struct ibv_port_attr port;
    g_assert_cmpint(ibv_query_device_ex(id->verbs, NULL, &device), ==, 0);
    g_assert_cmpuint(device.orig_attr.max_mr_size, ==, 4096);
    g_assert_cmpint(ibv_query_port(id->verbs, 1, &port), ==, 0);
    g_assert_cmpuint(port.max_msg_sz, ==, 100);
    struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
    static uint8_t memory[3][4096];
    struct ibv_mr *a = ibv_reg_mr(pd, memory[0], 4096, 0), *b = ibv_reg_mr(pd, memory[1], 4096, 0);
    g_assert_true(a && b);
    g_assert_null(ibv_reg_mr(pd, memory[2], 4096, 0));
    g_assert_cmpint(errno, ==, ENOMEM);
    g_assert_null(fake_verbs_set("without=pin limit=memlock:0x100000"));
    g_assert_null(ibv_reg_mr(pd, memory[2], 4096, 0));
    g_assert_cmpint(errno, ==, EOPNOTSUPP);
    struct ibv_mr *c = ibv_reg_mr(pd, memory[2], 4096, IBV_ACCESS_ON_DEMAND);
    g_assert_nonnull(c);
    g_assert_null(fake_verbs_set("without=odp"));
    g_assert_null(ibv_reg_mr(pd, memory[2], 4096, IBV_ACCESS_ON_DEMAND));
    ibv_dereg_mr(a);
    ibv_dereg_mr(b);
    ibv_dereg_mr(c);
    ibv_dealloc_pd(pd);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(events);
    g_assert_cmpuint(fake_verbs_live(), ==, 0);
    fake_verbs_reset();
}

/* ---- what they are told to do wrong ---- */

static void test_specification(void)
{
    static const char *const wrong[] = {
        "fail", "fail=", "fail=ibv_reg_mr", "fail=nothing:1", "fail=ibv_reg_mr:x", "fail=ibv_reg_mr:1:EWHAT",
        "status=write:1", "status=read:1:5", "limit=max:1", "delay=2:1", "event=NO:1:none",
        "event=REJECTED:1:NO",
        "stall=write", "without=all", "what=1", "refuse=1",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_assert_cmpstr(fake_verbs_set(wrong[i]), ==, wrong[i]);
    }
    fake_verbs_reset();
}

static void test_fail_nth(void)
{
    g_assert_null(fake_verbs_set("fail=rdma_create_event_channel:2 fail=rdma_create_event_channel:4:EMFILE"));
    for (int i = 1; i <= 5; i++) {
        struct rdma_event_channel *channel = rdma_create_event_channel();
        g_assert_cmpint(channel == NULL, ==, i == 2 || i == 4);
        if (channel) {
            rdma_destroy_event_channel(channel);
        } else {
            g_assert_cmpint(errno, ==, i == 2 ? ENODEV : EMFILE);
        }
    }
    g_assert_cmpuint(fake_verbs_calls("rdma_create_event_channel"), ==, 5);
    g_assert_cmpuint(fake_verbs_injected(), ==, 2);
    fake_verbs_reset();
}

static void test_every_status(void)
{
    for (int status = 1; status <= IBV_WC_TM_RNDV_INCOMPLETE; status++) {
        g_autofree char *words = g_strdup_printf("status=write:2:%d", status);
        g_assert_null(fake_verbs_set(words));
        Pair p;
        connect_pair(&p, 4);
        for (int i = 1; i <= 3; i++) {
            post_write(&p, i, 0, 64, 0);
        }
        expect_completion(p.src.send_cq, 2, status);
        expect_completion(p.src.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
        free_pair(&p, 0);
    }
}

static void test_refused_in_a_chain(void)
{
    g_assert_null(fake_verbs_set("refuse=2:EINVAL"));
    Pair p;
    connect_pair(&p, 4);
    struct ibv_send_wr wr[3] = { { .wr_id = 1, .next = &wr[1], .opcode = IBV_WR_RDMA_WRITE },
                                 { .wr_id = 2, .next = &wr[2], .opcode = IBV_WR_RDMA_WRITE },
                                 { .wr_id = 3, .opcode = IBV_WR_RDMA_WRITE } };
    struct ibv_send_wr *bad = NULL;
    g_assert_cmpint(ibv_post_send(p.src.id->qp, wr, &bad), ==, EINVAL);
    g_assert_true(bad == &wr[1]);
    g_assert_cmpuint(fake_verbs_number("writes"), ==, 1);
    free_pair(&p, 0);
}

static void test_no_copy(void)
{
    g_assert_null(fake_verbs_set("no-copy=write:1"));
    Pair p;
    connect_pair(&p, 4);
    fill(p.src.memory, 3);
    post_write(&p, 1, 0, 4096, IBV_SEND_SIGNALED);
    expect_completion(p.src.send_cq, 1, IBV_WC_SUCCESS);
    for (int i = 0; i < 4096; i++) {
        g_assert_cmpuint(p.dst.memory[i], ==, 0);
    }
    free_pair(&p, 0);
}

/* The data is there; the sender is told that it may not be. */
static void test_lost_ack(void)
{
    g_assert_null(fake_verbs_set("lost-ack=write:2"));
    Pair p;
    connect_pair(&p, 4);
    fill(p.src.memory, 3);
    post_write(&p, 1, 0, 64, IBV_SEND_SIGNALED);
    post_write(&p, 2, 0, 4096, IBV_SEND_SIGNALED);
    post_write(&p, 3, 0, 64, IBV_SEND_SIGNALED);
    expect_completion(p.src.send_cq, 1, IBV_WC_SUCCESS);
    expect_completion(p.src.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
    expect_completion(p.src.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
    g_assert_cmpmem(p.dst.memory, 4096, p.src.memory, 4096);
    free_pair(&p, 0);
}

/* The end of the connection, an event, overtakes a completion. */
static void test_late(void)
{
    const int64_t late_us = 1000000;
    g_assert_null(fake_verbs_set("late=write:1000000"));
    Pair p;
    struct ibv_wc wc;
    connect_pair(&p, 4);
    int64_t start = g_get_monotonic_time();
    g_assert_cmpint(try_receive(&p.dst, 7, 0, 64), ==, 0);
    post_write(&p, 1, 0, 64, IBV_SEND_SIGNALED);
    g_assert_cmpint(try_message(&p.src, 2, 64), ==, 0);
    expect_completion(p.dst.recv_cq, 7, IBV_WC_SUCCESS);
    g_assert_cmpint(rdma_disconnect(p.dst.id), ==, 0);
    expect_event(p.src.events, RDMA_CM_EVENT_DISCONNECTED);
    if (!ibv_poll_cq(p.src.send_cq, 1, &wc)) {
        expect_completion(p.src.send_cq, 1, IBV_WC_SUCCESS);
    }
    g_assert_cmpint(g_get_monotonic_time() - start, >=, late_us);
    expect_completion(p.src.send_cq, 2, IBV_WC_SUCCESS);
    free_pair(&p, 0);
}

static void test_stall(void)
{
    g_assert_null(fake_verbs_set("stall=write:2"));
    Pair p;
    connect_pair(&p, 4);
    for (int i = 1; i <= 3; i++) {
        post_write(&p, i, 0, 64, IBV_SEND_SIGNALED);
    }
    expect_completion(p.src.send_cq, 1, IBV_WC_SUCCESS);
    g_usleep(50000);
    struct ibv_wc wc;
    g_assert_cmpint(ibv_poll_cq(p.src.send_cq, 1, &wc), ==, 0);
    rdma_disconnect(p.src.id);
    expect_completion(p.src.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    expect_completion(p.src.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
    free_pair(&p, 0);
}

static void test_events(void)
{
    g_assert_null(fake_verbs_set("event=ADDR_RESOLVED:1:ADDR_ERROR event=ADDR_RESOLVED:2:none"));
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct sockaddr_in to = { .sin_family = AF_INET };
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_id *id;
        g_assert_cmpint(rdma_create_id(events, &id, NULL, RDMA_PS_TCP), ==, 0);
        g_assert_cmpint(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1), ==, 0);
        if (i == 0) {
            expect_event(events, RDMA_CM_EVENT_ADDR_ERROR);
        } else {
            struct pollfd ready = { .fd = events->fd, .events = POLLIN };
            g_assert_cmpint(poll(&ready, 1, 50), ==, 0);
        }
        rdma_destroy_id(id);
    }
    rdma_destroy_event_channel(events);
    g_assert_cmpuint(fake_verbs_live(), ==, 0);
    fake_verbs_reset();
}

/*
 * Completions of one queue keep their order; those of the two queues do not: each is seen before the other
 * sooner or later, on a machine that is busy later.
 */
static void test_shuffle(void)
{
    unsigned early = 0, late = 0;
    for (int seed = 1; seed <= 20 || ((!early || !late) && seed <= 2000); seed++) {
        g_autofree char *words = g_strdup_printf("delay=0:4000 seed=%d", seed);
        g_assert_null(fake_verbs_set(words));
        Pair p;
        connect_pair(&p, 8);
        for (int i = 0; i < 4; i++) {
            g_assert_cmpint(try_receive(&p.src, i, 0, 16), ==, 0);
        }
        for (int i = 0; i < 4; i++) {
            post_write(&p, i, 0, 64, IBV_SEND_SIGNALED);
            g_assert_cmpint(try_message(&p.dst, i, 16), ==, 0);
        }
        struct ibv_wc wc;
        unsigned sent = 0, received = 0;
        while (sent < 4 || received < 4) {
            if (ibv_poll_cq(p.src.send_cq, 1, &wc) == 1) {
                g_assert_cmpuint(wc.wr_id, ==, sent++);
            }
            if (ibv_poll_cq(p.src.recv_cq, 1, &wc) == 1) {
                g_assert_cmpuint(wc.wr_id, ==, received++);
                early += received > sent;
                late += received < sent;
            }
        }
        free_pair(&p, 0);
    }
    g_assert_cmpuint(early, >, 0);
    g_assert_cmpuint(late, >, 0);
}

/* ---- leaks and violations are seen ---- */

static void test_leak(void)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    g_assert_cmpuint(fake_verbs_live(), ==, 1);
    struct rdma_cm_id *id;
    g_assert_cmpint(rdma_create_id(events, &id, NULL, RDMA_PS_TCP), ==, 0);
    g_assert_cmpuint(fake_verbs_live(), ==, 2);
    char *report = fake_verbs_report();
    g_assert_nonnull(strstr(report, "\"live\": {\"event-channel\": 1, \"id\": 1, \"event\": 0"));
    free(report);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(events);
    fake_verbs_reset();
}

static void test_violations(void)
{
    Pair p;
    connect_pair(&p, 4);
    g_assert_cmpint(ibv_dealloc_pd(p.src.pd), ==, EBUSY);
    g_assert_cmpint(ibv_destroy_cq(p.src.send_cq), ==, EBUSY);
    g_assert_cmpint(ibv_destroy_comp_channel(p.src.channel), ==, EBUSY);
    g_assert_cmpuint(fake_verbs_violations(), ==, 3);
    free_pair(&p, 3);
}

static void test_deregistered_too_early(void)
{
    g_assert_null(fake_verbs_set("stall=write:1"));
    Pair p;
    connect_pair(&p, 4);
    post_write(&p, 1, 0, 64, 0);
    ibv_dereg_mr(p.src.mr);
    g_assert_cmpuint(fake_verbs_violations(), ==, 1);
    p.src.mr = ibv_reg_mr(p.src.pd, p.src.memory, SIZE, 0);
    free_pair(&p, 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/fake-verbs/connection", test_connection);
    g_test_add_func("/fake-verbs/ipv6", test_ipv6);
    g_test_add_func("/fake-verbs/destroyed-without-disconnect", test_destroyed_without_disconnect);
    g_test_add_func("/fake-verbs/reject", test_reject);
    g_test_add_func("/fake-verbs/nobody-listens", test_nobody_listens);
    g_test_add_func("/fake-verbs/listener-goes", test_listener_goes);
    g_test_add_func("/fake-verbs/write", test_write);
    g_test_add_func("/fake-verbs/message", test_message);
    g_test_add_func("/fake-verbs/no-receive", test_no_receive);
    g_test_add_func("/fake-verbs/message-too-long", test_message_too_long);
    g_test_add_func("/fake-verbs/bounds", test_bounds);
    g_test_add_func("/fake-verbs/region-gone", test_region_gone);
    g_test_add_func("/fake-verbs/full", test_full);
    g_test_add_func("/fake-verbs/notification", test_notification);
    g_test_add_func("/fake-verbs/peer-disconnects", test_peer_disconnects);
    g_test_add_func("/fake-verbs/limits", test_limits);
    g_test_add_func("/fake-verbs/specification", test_specification);
    g_test_add_func("/fake-verbs/fail-nth", test_fail_nth);
    g_test_add_func("/fake-verbs/every-status", test_every_status);
    g_test_add_func("/fake-verbs/refused-in-a-chain", test_refused_in_a_chain);
    g_test_add_func("/fake-verbs/no-copy", test_no_copy);
    g_test_add_func("/fake-verbs/lost-ack", test_lost_ack);
    g_test_add_func("/fake-verbs/late", test_late);
    g_test_add_func("/fake-verbs/stall", test_stall);
    g_test_add_func("/fake-verbs/events", test_events);
    g_test_add_func("/fake-verbs/shuffle", test_shuffle);
    g_test_add_func("/fake-verbs/leak", test_leak);
    g_test_add_func("/fake-verbs/violations", test_violations);
    g_test_add_func("/fake-verbs/deregistered-too-early", test_deregistered_too_early);
    return g_test_run();
}
