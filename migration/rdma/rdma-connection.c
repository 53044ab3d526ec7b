/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: one connection: set-up, its one wait, control messages, and its end. */

/*
 * The order of things in rdma_connection_progress() matters.  What has been received is booked first, so that
 * an ERROR message that came before the end of the connection is the error that is told, and stream bytes
 * that came before it are not lost.  Then what has been sent; then messages go out for which READY has come.
 */
#include "migration/rdma/rdma-connection.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "migration/rdma/rdma-chunk.h"
#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

#define BUFFERS_SIZE ((size_t)(RDMA_RECEIVES + RDMA_SEND_BUFFERS) * RDMA_MESSAGE_MAX)

/* The time for which a wait looks at the queues before it sleeps. */
#define SPIN_US 20

/* ---- flags, any thread ---- */

void rdma_connection_wake(RdmaConnection *c)
{
    uint64_t one = 1;
    while (write(c->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

void rdma_connection_notify(RdmaConnection *c, RdmaFlag flag)
{
    g_atomic_int_or((guint *)&c->flags, (guint)flag);
    rdma_connection_wake(c);
}

bool rdma_connection_has(const RdmaConnection *c, RdmaFlag flag)
{
    return g_atomic_int_get(&c->flags) & (int)flag;
}

void rdma_connection_cm_event(RdmaConnection *c, const struct rdma_cm_event *event)
{
    trace_rdma_cm_event(rdma_event_str(event->event), event->status);
    switch (event->event) {
    case RDMA_CM_EVENT_ESTABLISHED:
        rdma_connection_notify(c, RDMA_FLAG_ESTABLISHED);
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
        rdma_connection_notify(c, RDMA_FLAG_DISCONNECTED);
        break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        rdma_connection_notify(c, RDMA_FLAG_REMOVED);
        break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
        rdma_connection_notify(c, RDMA_FLAG_FAILED);
        break;
    default:
        break;
    }
}

/* ---- life ---- */

RdmaEvents *rdma_events_new(GError **errp)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();

    if (!channel) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "RDMA ERROR: could not create rdma event channel");
        return NULL;
    }
    RdmaEvents *e = g_new0(RdmaEvents, 1);
    g_atomic_ref_count_init(&e->ref_count);
    e->channel = channel;
    return e;
}

RdmaEvents *rdma_events_ref(RdmaEvents *e)
{
    g_atomic_ref_count_inc(&e->ref_count);
    return e;
}

void rdma_events_unref(RdmaEvents *e)
{
    if (e && g_atomic_ref_count_dec(&e->ref_count)) {
        rdma_destroy_event_channel(e->channel);
        g_free(e);
    }
}

RdmaConnection *rdma_connection_new(RdmaRole role, RdmaCounters *counters)
{
    RdmaConnection *c = g_new0(RdmaConnection, 1);

    rdma_control_init(&c->control, role);
    c->counters = counters;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->regions = g_ptr_array_new();
    g_mutex_init(&c->regions_lock);
    return c;
}

static bool failed_call(const char *what, GError **errp)
{
    error_set_errno(errp, GODWIT_ERROR_IO, errno, "RDMA ERROR: %s", what);
    return false;
}

/* What the device and its port can do. */
static bool query_limits(RdmaConnection *c, struct ibv_device_attr *attr, GError **errp)
{
    struct ibv_device_attr_ex ex = { 0 };
    struct ibv_port_attr port = { 0 };

    if (fault_point("rdma-query", errp)) {
        return false;
    }
    if (ibv_query_device(c->id->verbs, attr)) {
        return failed_call("ibv_query_device", errp);
    }
    if (ibv_query_port(c->id->verbs, c->id->port_num, &port)) {
        return failed_call("ibv_query_port", errp);
    }
    c->limits.max_message = port.max_msg_sz ? MIN(port.max_msg_sz, UINT64_C(1) << 31) : UINT64_C(1) << 30;
    c->limits.max_region = attr->max_mr_size ? attr->max_mr_size : UINT64_MAX;
    if (!ibv_query_device_ex(c->id->verbs, NULL, &ex)) {
        c->limits.on_demand = (ex.odp_caps.general_caps & IBV_ODP_SUPPORT) &&
                              (ex.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE);
    }
    return true;
}

static bool make_queues(RdmaConnection *c, const struct ibv_device_attr *attr, GError **errp)
{
    unsigned depth = RDMA_SEND_DEPTH;

    if (attr->max_qp_wr > 0) {
        depth = MIN(depth, (unsigned)attr->max_qp_wr);
    }
    if (attr->max_cqe > 0) {
        depth = MIN(depth, (unsigned)attr->max_cqe);
    }
    if (depth < 2 * RDMA_SEND_BUFFERS) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "RDMA ERROR: the device takes only %u work requests", depth);
        return false;
    }
    c->pd = ibv_alloc_pd(c->id->verbs);
    if (!c->pd) {
        return failed_call("ibv_alloc_pd", errp);
    }
    c->completions = ibv_create_comp_channel(c->id->verbs);
    if (!c->completions) {
        return failed_call("ibv_create_comp_channel", errp);
    }
    c->send_cq = ibv_create_cq(c->id->verbs, (int)depth, NULL, c->completions, 0);
    c->recv_cq = ibv_create_cq(c->id->verbs, RDMA_RECEIVES + 1, NULL, c->completions, 0);
    if (!c->send_cq || !c->recv_cq) {
        return failed_call("ibv_create_cq", errp);
    }
    struct ibv_qp_init_attr qp = {
        .send_cq = c->send_cq, .recv_cq = c->recv_cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = depth, .max_recv_wr = RDMA_RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    if (fault_point("rdma-create-qp", errp)) {
        return false;
    }
    if (rdma_create_qp(c->id, c->pd, &qp)) {
        return failed_call("rdma_create_qp", errp);
    }
    c->has_qp = true;
    c->limits.depth = depth;
    return rdma_queue_init(c, errp);
}

static bool post_receive(RdmaConnection *c, unsigned i, GError **errp)
{
    struct ibv_sge sge = { (uintptr_t)rdma_receive_buffer(c, i), RDMA_MESSAGE_MAX, c->buffers_mr->lkey };
    struct ibv_recv_wr wr = { .wr_id = RDMA_WR_RECEIVE | i, .sg_list = &sge, .num_sge = 1 };
    struct ibv_recv_wr *bad;
    int errnum = ibv_post_recv(c->id->qp, &wr, &bad);

    if (errnum) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "RDMA ERROR: ibv_post_recv");
    }
    return !errnum;
}

static bool make_buffers(RdmaConnection *c, GError **errp)
{
    if (BUFFERS_SIZE > c->limits.max_region) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "RDMA ERROR: control messages need %zu bytes, " RDMA_NO_LARGER_REGION, BUFFERS_SIZE,
                    c->limits.max_region);
        return false;
    }
    void *memory = mmap(NULL, BUFFERS_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return failed_call("memory for control messages", errp);
    }
    c->buffers = memory;
    if (fault_point("rdma-buffers", errp)) {
        return false;
    }
    c->buffers_mr = ibv_reg_mr(c->pd, c->buffers, BUFFERS_SIZE, IBV_ACCESS_LOCAL_WRITE);
    if (!c->buffers_mr) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno,
                        "RDMA ERROR: cannot register %zu KiB for control messages (limit of locked memory?)",
                        BUFFERS_SIZE / 1024);
        return false;
    }
    for (unsigned i = 0; i < RDMA_RECEIVES; i++) {
        if (!post_receive(c, i, errp)) {
            return false;
        }
    }
    return true;
}

bool rdma_connection_set_up(RdmaConnection *c, GError **errp)
{
    struct ibv_device_attr attr = { 0 };

    if (!query_limits(c, &attr, errp) || !make_queues(c, &attr, errp) || !make_buffers(c, errp)) {
        return false;
    }
    trace_rdma_set_up(c->limits.depth, c->limits.max_message, c->limits.max_region, c->limits.on_demand);
    return true;
}

unsigned rdma_connection_chunk_shift(const RdmaConnection *c, unsigned shift)
{
    while (shift > RDMA_PEER_SHIFT_MIN && UINT64_C(1) << shift > c->limits.max_region) {
        shift--;
    }
    return shift;
}

unsigned rdma_connection_region_shift(const RdmaConnection *c)
{
    return MIN(63 - (unsigned)__builtin_clzll(c->limits.max_region), RDMA_REGION_SHIFT_MAX);
}

static bool sends_done(const RdmaConnection *c, const void *opaque)
{
    return !c->send_busy[0] && !c->send_busy[1];
}

/* Best effort: the peer need not wait for the disconnect to know that something is wrong here. */
static void tell_error(RdmaConnection *c)
{
    bool lost = rdma_connection_has(c, RDMA_FLAG_DISCONNECTED) || rdma_connection_has(c, RDMA_FLAG_REMOVED);

    if (lost || !rdma_connection_has(c, RDMA_FLAG_ESTABLISHED) || c->send_busy[0] ||
        c->used + 1 >= c->limits.depth) {
        return;
    }
    RdmaHeader header = { .type = RDMA_CONTROL_ERROR, .repeat = 1 };
    rdma_header_encode((RdmaHeaderWire *)rdma_send_buffer(c, 0), &header);
    g_clear_error(&c->error);
    g_atomic_int_and((guint *)&c->flags, ~(guint)RDMA_FLAG_SHUTDOWN);
    c->batch_n = 0;
    rdma_control_clear(&c->control);
    if (rdma_queue_send(c, 0, RDMA_HEADER_SIZE, NULL)) {
        rdma_connection_wait(c, sends_done, NULL, RDMA_LIMIT_ERROR, "the ERROR message", NULL);
    }
}

void rdma_connection_close(RdmaConnection *c, bool failed)
{
    if (!c->id || c->disconnect_sent) {
        return;
    }
    bool peer_failed = g_error_matches(c->error, GODWIT_ERROR, GODWIT_ERROR_EOF);
    if (failed && c->has_qp && c->buffers_mr && !peer_failed) {
        tell_error(c);
    }
    c->disconnect_sent = true;
    if (c->has_qp) {
        /* The queue pair is in the error state afterwards: nothing is sent or received any more. */
        if (rdma_connection_has(c, RDMA_FLAG_ESTABLISHED)) {
            rdma_disconnect(c->id);
        }
        rdma_destroy_qp(c->id);
        c->has_qp = false;
    }
}

static void destroy_queues(RdmaConnection *c)
{
    if (c->buffers_mr) {
        ibv_dereg_mr(c->buffers_mr);
    }
    if (c->buffers) {
        munmap(c->buffers, BUFFERS_SIZE);
    }
    if (c->send_cq) {
        ibv_destroy_cq(c->send_cq);
    }
    if (c->recv_cq) {
        ibv_destroy_cq(c->recv_cq);
    }
    if (c->completions) {
        ibv_destroy_comp_channel(c->completions);
    }
    if (c->pd) {
        ibv_dealloc_pd(c->pd);
    }
}

void rdma_connection_free(RdmaConnection *c)
{
    if (!c) {
        return;
    }
    rdma_connection_close(c, true);
    for (guint i = 0; i < c->regions->len; i++) {
        ibv_dereg_mr(g_ptr_array_index(c->regions, i));
    }
    g_ptr_array_unref(c->regions);
    destroy_queues(c);
    if (c->id) {
        rdma_destroy_id(c->id);
    }
    if (c->events) {
        rdma_destroy_event_channel(c->events);
    }
    rdma_events_unref(c->shared_events);
    rdma_control_clear(&c->control);
    g_mutex_clear(&c->regions_lock);
    g_clear_error(&c->error);
    g_free(c->sent);
    close(c->wake_fd);
    g_free(c);
}

/* ---- errors ---- */

bool rdma_connection_fail(RdmaConnection *c, GError *error)
{
    if (c->error) {
        g_error_free(error);
    } else {
        trace_rdma_failed(error->message);
        c->error = error;
    }
    return false;
}

bool rdma_connection_check(const RdmaConnection *c, GError **errp)
{
    if (c->error) {
        g_propagate_error(errp, g_error_copy(c->error));
    }
    return !c->error;
}

static void look_at_flags(RdmaConnection *c)
{
    if (c->error) {
        return;
    }
    if (rdma_connection_has(c, RDMA_FLAG_SHUTDOWN)) {
        rdma_connection_fail(c, g_error_new(GODWIT_ERROR, GODWIT_ERROR_CANCELLED,
                                            "Unable to use RDMA connection: The channel was shut down"));
    } else if (rdma_connection_has(c, RDMA_FLAG_REMOVED)) {
        rdma_connection_fail(c, g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO,
                                            "RDMA ERROR: the RDMA device has been removed"));
    } else if (rdma_connection_has(c, RDMA_FLAG_DISCONNECTED)) {
        rdma_connection_fail(c, g_error_new(GODWIT_ERROR, GODWIT_ERROR_EOF,
                                            "RDMA ERROR: the peer has closed the connection"));
    }
}

/* ---- booking ---- */

static bool take_message(RdmaConnection *c, unsigned buffer, size_t received, GError **errp)
{
    const uint8_t *message = rdma_receive_buffer(c, buffer);
    RdmaHeader header;

    if (!rdma_header_parse(&header, message, received, errp)) {
        return false;
    }
    trace_rdma_received(rdma_control_name(header.type), header.length, header.repeat);
    if (!rdma_control_received(&c->control, header.type, errp)) {
        return false;
    }
    if (c->control.role == RDMA_RECEIVER) {
        c->received[c->n_received++] = (RdmaReceived){ buffer, header };
        return true;
    }
    if (header.type != RDMA_CONTROL_READY && c->on_reply &&
        !c->on_reply(&header, message + RDMA_HEADER_SIZE, c->on_reply_opaque, errp)) {
        return false;
    }
    return post_receive(c, buffer, errp);
}

static void receive_completed(RdmaConnection *c, const struct ibv_wc *wc)
{
    GError *error = NULL;

    if (wc->status == IBV_WC_WR_FLUSH_ERR) {
        /* What ended the connection is told elsewhere, but nothing can come over it any more. */
        c->flushed_us = c->flushed_us ? c->flushed_us : g_get_monotonic_time();
        return;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        error = g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO, "RDMA ERROR: receiving a control message: %s (%d)",
                            ibv_wc_status_str(wc->status), wc->status);
    } else if (!c->error || c->control.role == RDMA_RECEIVER) {
        /* What a receiver gets is good even if its READY has found the peer gone. */
        take_message(c, (unsigned)(wc->wr_id & ~RDMA_WR_RECEIVE), wc->byte_len, &error);
    }
    if (error) {
        rdma_connection_fail(c, error);
    }
}

/* All that is in one queue; false after an error of the queue itself. */
static void poll_queue(RdmaConnection *c, struct ibv_cq *cq)
{
    struct ibv_wc wc[16];
    int n;

    do {
        n = ibv_poll_cq(cq, G_N_ELEMENTS(wc), wc);
        for (int i = 0; i < n; i++) {
            c->booked++;
            if (wc[i].wr_id & RDMA_WR_RECEIVE) {
                receive_completed(c, &wc[i]);
            } else {
                rdma_queue_completed(c, &wc[i]);
            }
        }
    } while (n == (int)G_N_ELEMENTS(wc));
    if (n < 0) {
        rdma_connection_fail(c, g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO,
                                            "RDMA ERROR: polling a completion queue failed"));
    }
}

/* ---- sending control messages ---- */

static int free_send_buffer(const RdmaConnection *c)
{
    for (int i = 0; i < RDMA_SEND_BUFFERS; i++) {
        if (!c->send_busy[i]) {
            return i;
        }
    }
    return -1;
}

static bool send_message(RdmaConnection *c, int buffer, RdmaControlType type, uint32_t repeat,
                         const void *payload, size_t length, GError **errp)
{
    RdmaHeader header = { .length = (uint32_t)length, .type = type, .repeat = repeat };
    uint8_t *message = rdma_send_buffer(c, (unsigned)buffer);

    if (fault_point("rdma-send", errp)) {
        return false;
    }
    rdma_header_encode((RdmaHeaderWire *)message, &header);
    if (length) {
        memcpy(message + RDMA_HEADER_SIZE, payload, length);
    }
    trace_rdma_send(rdma_control_name(type), header.length, repeat);
    return rdma_queue_send(c, buffer, RDMA_HEADER_SIZE + header.length, errp);
}

static bool has_ended(const RdmaConnection *c, const void *opaque)
{
    return rdma_connection_has(c, RDMA_FLAG_DISCONNECTED) || rdma_connection_has(c, RDMA_FLAG_REMOVED);
}

/* Messages for which READY has come.  None leaves when nobody is there, or when it has been forbidden. */
static void pump(RdmaConnection *c)
{
    g_autoptr(GError) error = NULL;

    if (has_ended(c, NULL) || rdma_connection_has(c, RDMA_FLAG_SHUTDOWN)) {
        return;
    }
    while (!c->error && !error && c->used + 1 < c->limits.depth) {
        int buffer = free_send_buffer(c);
        g_autofree RdmaMessage *m = buffer < 0 ? NULL : rdma_control_next(&c->control);
        if (!m) {
            return;
        }
        RDMA_COUNT(c, control_messages, 1);
        RDMA_COUNT(c, stream_messages, m->type == RDMA_CONTROL_QEMU_FILE);
        RDMA_COUNT(c, registration_requests, m->type == RDMA_CONTROL_REGISTER_REQUEST);
        RDMA_COUNT(c, compress_messages, m->type == RDMA_CONTROL_COMPRESS);
        send_message(c, buffer, m->type, m->repeat, m->payload, m->length, &error);
    }
    if (error) {
        c->send_failed = true;
        c->surely_lost = true;
        rdma_connection_fail(c, g_steal_pointer(&error));
    }
}

bool rdma_connection_progress(RdmaConnection *c, GError **errp)
{
    poll_queue(c, c->recv_cq);
    poll_queue(c, c->send_cq);
    if (c->error && c->control.role == RDMA_RECEIVER) {
        poll_queue(c, c->recv_cq);
    }
    if (c->control.queue.length) {
        pump(c);
    }
    if (rdma_connection_has(c, RDMA_FLAG_SHUTDOWN)) {
        look_at_flags(c);
    }
    return rdma_connection_check(c, errp);
}

/* ---- the wait ---- */

static void drain_events(RdmaConnection *c)
{
    struct rdma_cm_event *event;
    struct pollfd fd = { .fd = c->events->fd, .events = POLLIN };

    while (poll(&fd, 1, 0) > 0 && !rdma_get_cm_event(c->events, &event)) {
        rdma_connection_cm_event(c, event);
        rdma_ack_cm_event(event);
    }
}

static bool arm(RdmaConnection *c, GError **errp)
{
    int errnum = ibv_req_notify_cq(c->recv_cq, 0);
    errnum = errnum ? errnum : ibv_req_notify_cq(c->send_cq, 0);

    if (errnum) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "RDMA ERROR: ibv_req_notify_cq");
    }
    return !errnum;
}

static void take_completion_event(RdmaConnection *c)
{
    struct ibv_cq *cq;
    void *context;

    if (!ibv_get_cq_event(c->completions, &cq, &context)) {
        ibv_ack_cq_events(cq, 1);
    }
}

/* Sleeps until something may have changed; false when time is up. */
static bool sleep_once(RdmaConnection *c, int64_t until_us)
{
    struct pollfd fds[] = {
        { .fd = c->completions->fd, .events = POLLIN },
        { .fd = c->wake_fd, .events = POLLIN },
        { .fd = c->events ? c->events->fd : -1, .events = POLLIN },
    };
    int64_t left_us = until_us ? until_us - g_get_monotonic_time() : 0;
    int timeout = until_us ? (int)MAX(0, (left_us + 999) / 1000) : -1;
    int n = poll(fds, G_N_ELEMENTS(fds), timeout);
    uint64_t count;

    if (n > 0 && fds[0].revents) {
        take_completion_event(c);
    }
    if (n > 0 && fds[1].revents && read(c->wake_fd, &count, sizeof(count)) < 0) {
        /* Somebody else's read was faster; nothing is lost, all is looked at again. */
    }
    if (n > 0 && fds[2].revents) {
        drain_events(c);
    }
    return n != 0;
}

/* The queue pair is in error and nobody has said why: for how long to wait for that. */
static int64_t broken_us(const RdmaConnection *c)
{
    return c->flushed_us ? c->flushed_us + RDMA_LIMIT_BROKEN * 1000 : INT64_MAX;
}

/*
 * The end of the connection, an event, may overtake completions of what came before it.  The last one may be
 * that of the message with which the guest is handed over.
 */
static bool done_late(RdmaConnection *c, RdmaDone done, const void *opaque)
{
    int64_t until = g_get_monotonic_time() + RDMA_LIMIT_LATE * 1000;

    while (rdma_connection_progress(c, NULL)) {
        if (done(c, opaque)) {
            return true;
        }
        if (g_get_monotonic_time() >= until) {
            return false;
        }
        g_usleep(1000);
    }
    return false;
}

/* Looks at everything.  1: done; 0: not yet; -1: an error, or the end of the connection. */
static int look(RdmaConnection *c, RdmaDone done, const void *opaque)
{
    rdma_connection_progress(c, NULL);
    if (!c->error && done(c, opaque)) {
        return 1;
    }
    if (!c->error && has_ended(c, NULL)) {
        if (done_late(c, done, opaque)) {
            return 1;
        }
        look_at_flags(c);
    }
    if (!c->error && c->flushed_us && g_get_monotonic_time() >= broken_us(c)) {
        rdma_connection_fail(c, g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO,
                                            "RDMA ERROR: the connection has been broken"));
    }
    return c->error ? -1 : 0;
}

bool rdma_connection_wait(RdmaConnection *c, RdmaDone done, const void *opaque, unsigned limit_ms,
                          const char *what, GError **errp)
{
    int64_t start = g_get_monotonic_time();
    int64_t until = limit_ms ? start + (int64_t)limit_ms * 1000 : 0;
    bool armed = false, in_time = true;
    uint64_t booked = c->booked;
    int state;

    while (!(state = look(c, done, opaque))) {
        GError *error = NULL;
        if (limit_ms && c->booked != booked) {
            /* A slow wire is not a dead one. */
            booked = c->booked;
            until = g_get_monotonic_time() + (int64_t)limit_ms * 1000;
            in_time = true;
        }
        if (!in_time) {
            error = g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO, "RDMA ERROR: timed out waiting for %s", what);
        } else if (!armed) {
            if (g_get_monotonic_time() - start < SPIN_US) {
                continue;
            }
            armed = true;
            arm(c, &error);
        } else {
            int64_t sleep_until = MIN(until ? until : INT64_MAX, broken_us(c));
            in_time = sleep_once(c, sleep_until == INT64_MAX ? 0 : sleep_until) || sleep_until != until;
            armed = false;
        }
        if (error) {
            rdma_connection_fail(c, error);
        }
    }
    return state > 0 || rdma_connection_check(c, errp);
}

/* ---- messages ---- */

bool rdma_connection_queue(RdmaConnection *c, RdmaControlType type, uint32_t repeat, const void *payload,
                           size_t length, GError **errp)
{
    rdma_control_queue(&c->control, type, repeat, payload, length);
    return rdma_connection_progress(c, errp);
}

static bool few_queued(const RdmaConnection *c, const void *opaque)
{
    unsigned left = *(const unsigned *)opaque;
    return rdma_control_queued(&c->control) <= left && (left || c->control.reply == RDMA_CONTROL_NONE);
}

bool rdma_connection_flush(RdmaConnection *c, unsigned left, GError **errp)
{
    if (!rdma_connection_progress(c, errp)) {
        return false;
    }
    if (few_queued(c, &left)) {
        return true;
    }
    RDMA_COUNT(c, control_waits, 1);
    return rdma_connection_wait(c, few_queued, &left, RDMA_LIMIT_CONTROL, "the peer to be READY", errp);
}

static bool is_ready(const RdmaConnection *c, const void *opaque)
{
    unsigned none = 0;
    return few_queued(c, &none) && c->control.ready;
}

bool rdma_connection_obeyed(RdmaConnection *c, GError **errp)
{
    return rdma_connection_wait(c, is_ready, NULL, RDMA_LIMIT_CONTROL, "the peer to be READY", errp);
}

static bool all_left(const RdmaConnection *c, const void *opaque)
{
    unsigned none = 0;
    return few_queued(c, &none) && sends_done(c, opaque);
}

bool rdma_connection_finish(RdmaConnection *c, GError **errp)
{
    return rdma_connection_wait(c, all_left, NULL, RDMA_LIMIT_CONTROL, "the last messages to be received",
                                errp);
}

/* A shutdown, say, ends every wait; what has been posted before is on its way all the same. */
static void await_posted(RdmaConnection *c)
{
    int64_t until = g_get_monotonic_time() + RDMA_LIMIT_LATE * 1000;

    while (!sends_done(c, NULL) && g_get_monotonic_time() < until) {
        poll_queue(c, c->send_cq);
        g_usleep(1000);
    }
}

bool rdma_connection_arrived(RdmaConnection *c, GError **errp)
{
    g_autoptr(GError) error = NULL;

    if (rdma_connection_finish(c, &error)) {
        return true;
    }
    await_posted(c);
    if (all_left(c, NULL) && !c->send_failed) {
        return true;
    }
    g_propagate_error(errp, g_steal_pointer(&error));
    return false;
}

bool rdma_connection_deliver(RdmaConnection *c, GError **errp)
{
    g_autoptr(GError) error = NULL;

    if (rdma_connection_finish(c, &error)) {
        return true;
    }
    await_posted(c);
    /* What failed may be something else, and the message may have completed well. */
    if (!rdma_control_queued(&c->control) && !c->surely_lost) {
        return true;
    }
    g_propagate_error(errp, g_steal_pointer(&error));
    return false;
}

void rdma_connection_await_end(RdmaConnection *c)
{
    if (rdma_connection_has(c, RDMA_FLAG_ESTABLISHED)) {
        rdma_connection_wait(c, has_ended, NULL, RDMA_LIMIT_LAST_WORD, "the source to disconnect", NULL);
    }
}

static bool send_buffer_free(const RdmaConnection *c, const void *opaque)
{
    return free_send_buffer(c) >= 0 && c->used + 1 < c->limits.depth;
}

bool rdma_connection_reply(RdmaConnection *c, RdmaControlType type, uint32_t repeat, const void *payload,
                           size_t length, GError **errp)
{
    g_autoptr(GError) error = NULL;

    if (!rdma_connection_wait(c, send_buffer_free, NULL, RDMA_LIMIT_COMPLETION, "a message to be sent",
                              errp)) {
        return false;
    }
    if (!send_message(c, free_send_buffer(c), type, repeat, payload, length, &error)) {
        rdma_connection_fail(c, g_steal_pointer(&error));
    }
    return rdma_connection_check(c, errp);
}

static bool message_there(const RdmaConnection *c, const void *opaque)
{
    return c->n_received > 0;
}

/* The buffer of the last message is for the next. */
static bool return_message(RdmaConnection *c, GError **errp)
{
    if (!c->first_in_use) {
        return true;
    }
    unsigned buffer = c->received[0].buffer;
    c->first_in_use = false;
    c->n_received--;
    memmove(&c->received[0], &c->received[1], c->n_received * sizeof(c->received[0]));
    return post_receive(c, buffer, errp);
}

static bool ask_for_message(RdmaConnection *c, GError **errp)
{
    rdma_control_ready_sent(&c->control);
    return rdma_connection_reply(c, RDMA_CONTROL_READY, 1, NULL, 0, errp) &&
           rdma_connection_wait(c, message_there, NULL, RDMA_LIMIT_NONE, "a message", errp);
}

/*
 * A message that is there already is taken without a READY, and one that came is not lost if a READY could
 * not be sent: who has said all closes the connection.
 */
bool rdma_connection_receive(RdmaConnection *c, RdmaHeader *header, const uint8_t **payload, GError **errp)
{
    g_autoptr(GError) error = NULL;

    if (fault_point("rdma-receive", errp) || !return_message(c, errp)) {
        return false;
    }
    rdma_connection_progress(c, NULL);
    if (!c->n_received && !ask_for_message(c, &error) &&
        (!c->n_received || g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_CANCELLED))) {
        if (!g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_EOF)) {
            g_propagate_error(errp, g_steal_pointer(&error));
        }
        return false;
    }
    c->first_in_use = true;
    *header = c->received[0].header;
    *payload = rdma_receive_buffer(c, c->received[0].buffer) + RDMA_HEADER_SIZE;
    return true;
}
