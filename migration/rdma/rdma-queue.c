/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: the send queue: writes in batches, few signalled, and the booking of what is in flight. */

/*
 * Every entry of the send queue has a number.  A signalled entry closes a group: itself and all entries
 * before it that no signalled one covers yet.  Its completion says that the whole group is done, because a
 * reliable connection completes in order.  Counting groups, and not looking for the highest number, keeps
 * the count right in whatever order completions are seen.  An entry that fails completes even if it is not
 * signalled.
 *
 * Writes are chained in a batch.  The doorbell is rung when the batch is full or holds many bytes, when a
 * message has to follow, and when nothing else is on its way.
 */
#include "migration/rdma/rdma-connection.h"

#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

/* One write in so many is signalled; of large ones, one in so many at least. */
#define SIGNAL_WRITES 64
#define SIGNAL_WRITES_LARGE 16
#define SIGNAL_BYTES (UINT64_C(16) << 20)

/* A batch of so many bytes is worth a doorbell. */
#define BATCH_BYTES (UINT64_C(4) << 20)

/* Entries kept free for a SEND and for an empty write. */
#define RESERVE 3

#define MAX_BYTES_DEFAULT (UINT64_C(64) << 20)

bool rdma_queue_init(RdmaConnection *c, GError **errp)
{
    uint64_t size = 1;

    while (size < 2 * (uint64_t)c->limits.depth) {
        size *= 2;
    }
    c->sent = g_new0(RdmaSent, size);
    c->sent_mask = size - 1;
    c->max_bytes = MAX_BYTES_DEFAULT;
    return true;
}

static void raise_maximum(RdmaConnection *c)
{
    if (c->counters) {
        ram_stats_set(&c->counters->max_in_flight, MAX(c->counters->max_in_flight, c->writes_in_flight));
        ram_stats_set(&c->counters->max_in_flight_bytes,
                      MAX(c->counters->max_in_flight_bytes, c->bytes_in_flight));
    }
}

/* ---- entries ---- */

/* The next entry of the queue; the caller fills in what it is. */
static RdmaSent *add_entry(RdmaConnection *c, uint64_t *number)
{
    *number = c->next_number++;
    RdmaSent *sent = &c->sent[*number & c->sent_mask];
    *sent = (RdmaSent){ .buffer = -1 };
    c->used++;
    c->open++;
    return sent;
}

/* @sent, the newest entry, is signalled. */
static void close_group(RdmaConnection *c, RdmaSent *sent)
{
    sent->group = c->open;
    sent->group_writes = c->open_writes;
    sent->group_bytes = c->open_bytes;
    c->open = 0;
    c->open_writes = 0;
    c->open_bytes = 0;
}

static bool post(RdmaConnection *c, struct ibv_send_wr *first, GError **errp)
{
    struct ibv_send_wr *bad = NULL;
    int errnum = ibv_post_send(c->id->qp, first, &bad);

    if (errnum) {
        error_set_errno(errp, GODWIT_ERROR_IO, errnum, "RDMA ERROR: ibv_post_send");
    }
    return !errnum;
}

bool rdma_connection_ring(RdmaConnection *c, GError **errp)
{
    g_autoptr(GError) error = NULL;

    if (!c->batch_n || c->error) {
        return rdma_connection_check(c, errp);
    }
    c->batch[c->batch_n - 1].next = NULL;
    trace_rdma_ring(c->batch_n, c->batch_bytes, c->writes_in_flight, c->bytes_in_flight);
    raise_maximum(c);
    RDMA_COUNT(c, doorbells, 1);
    c->batch_n = 0;
    c->batch_bytes = 0;
    if (fault_point("rdma-write", &error) || !post(c, &c->batch[0], &error)) {
        rdma_connection_fail(c, g_steal_pointer(&error));
    }
    return rdma_connection_check(c, errp);
}

bool rdma_queue_send(RdmaConnection *c, int buffer, uint32_t length, GError **errp)
{
    uint64_t number;

    if (!rdma_connection_ring(c, errp)) {
        return false;
    }
    RdmaSent *sent = add_entry(c, &number);
    sent->buffer = buffer;
    close_group(c, sent);
    c->send_busy[buffer] = true;
    struct ibv_sge sge = { (uintptr_t)rdma_send_buffer(c, (unsigned)buffer), length, c->buffers_mr->lkey };
    struct ibv_send_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                              .send_flags = IBV_SEND_SIGNALED };
    if (!post(c, &wr, errp)) {
        sent->buffer = -1;
        c->send_busy[buffer] = false;
        return false;
    }
    return true;
}

/* ---- completions ---- */

static void sent_failed(RdmaConnection *c, const struct ibv_wc *wc, const RdmaSent *sent)
{
    const char *status = ibv_wc_status_str(wc->status);
    GError *error;

    if (wc->status == IBV_WC_WR_FLUSH_ERR) {
        error = g_error_new(GODWIT_ERROR, GODWIT_ERROR_EOF, "RDMA ERROR: the connection has been broken");
    } else if (sent->block) {
        error = g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO,
                            "RDMA ERROR: writing %u bytes to RAM block '%s' at offset 0x%" PRIx64 ": %s (%d)",
                            sent->length, sent->block->idstr, sent->offset, status, wc->status);
    } else {
        error = g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO, "RDMA ERROR: sending a control message: %s (%d)",
                            status, wc->status);
    }
    rdma_connection_fail(c, error);
}

/*
 * The message has surely not arrived: the device here did not send it, or the peer's has answered that it
 * does not take it.  Any other error can hide an acknowledgement.
 */
static bool is_refusal(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return true;
    default:
        return false;
    }
}

void rdma_queue_completed(RdmaConnection *c, const struct ibv_wc *wc)
{
    RdmaSent *sent = &c->sent[wc->wr_id & c->sent_mask];

    if (sent->buffer >= 0) {
        c->send_failed |= wc->status != IBV_WC_SUCCESS;
        c->surely_lost |= is_refusal(wc->status);
        c->send_busy[sent->buffer] = false;
        sent->buffer = -1;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        sent_failed(c, wc, sent);
        return;
    }
    c->used -= sent->group;
    c->writes_in_flight -= sent->group_writes;
    c->bytes_in_flight -= sent->group_bytes;
    sent->group = 0;
    sent->group_writes = 0;
    sent->group_bytes = 0;
}

/* ---- writes ---- */

static void add_to_batch(RdmaConnection *c, const RdmaWrite *write, uint64_t number, bool signalled)
{
    struct ibv_send_wr *wr = &c->batch[c->batch_n];
    struct ibv_sge *sge = &c->batch_sge[c->batch_n];

    *sge = (struct ibv_sge){ (uintptr_t)(write->block->host + write->offset), write->length, write->lkey };
    *wr = (struct ibv_send_wr){
        .wr_id = number, .next = wr + 1, .sg_list = sge, .num_sge = write->length ? 1 : 0,
        .opcode = IBV_WR_RDMA_WRITE, .send_flags = signalled ? IBV_SEND_SIGNALED : 0,
        .wr.rdma = { .remote_addr = write->remote, .rkey = write->rkey },
    };
    c->batch_n++;
    c->batch_bytes += write->length;
    RDMA_COUNT(c, signalled, signalled);
}

/* Something signalled behind all writes, so that their end will be known. */
static bool close_writes(RdmaConnection *c, GError **errp)
{
    uint64_t number;

    if (c->batch_n) {
        struct ibv_send_wr *last = &c->batch[c->batch_n - 1];
        if (!(last->send_flags & IBV_SEND_SIGNALED)) {
            last->send_flags |= IBV_SEND_SIGNALED;
            RDMA_COUNT(c, signalled, 1);
            close_group(c, &c->sent[last->wr_id & c->sent_mask]);
        }
    } else if (c->open_writes) {
        RdmaWrite empty = c->last_write;
        empty.length = 0;
        RdmaSent *sent = add_entry(c, &number);
        close_group(c, sent);
        add_to_batch(c, &empty, number, true);
    }
    return rdma_connection_ring(c, errp);
}

static bool has_room(const RdmaConnection *c, const void *opaque)
{
    uint32_t length = *(const uint32_t *)opaque;
    return c->used + RESERVE <= c->limits.depth &&
           (c->bytes_in_flight + length <= c->max_bytes || !c->writes_in_flight);
}

static bool make_room(RdmaConnection *c, uint32_t length, GError **errp)
{
    if (has_room(c, &length)) {
        return true;
    }
    /* If nothing of what is posted is signalled, nobody would ever tell that there is room. */
    bool ok = c->used == c->open ? close_writes(c, errp) : rdma_connection_ring(c, errp);
    return ok && rdma_connection_wait(c, has_room, &length, RDMA_LIMIT_COMPLETION, "writes to be completed",
                                      errp);
}

static bool wants_signal(const RdmaConnection *c)
{
    unsigned most = MIN(SIGNAL_WRITES, MAX(c->limits.depth / 4, 1));

    return c->open_writes >= most ||
           (c->open_writes >= MIN(SIGNAL_WRITES_LARGE, most) && c->open_bytes >= SIGNAL_BYTES);
}

bool rdma_connection_write(RdmaConnection *c, const RdmaWrite *write, GError **errp)
{
    uint64_t number;

    if (!make_room(c, write->length, errp)) {
        return false;
    }
    bool idle = c->used == c->batch_n;
    RdmaSent *sent = add_entry(c, &number);
    sent->block = write->block;
    sent->offset = write->offset;
    sent->length = write->length;
    c->open_writes++;
    c->open_bytes += write->length;
    c->writes_in_flight++;
    c->bytes_in_flight += write->length;
    bool signalled = wants_signal(c);
    if (signalled) {
        close_group(c, sent);
    }
    add_to_batch(c, write, number, signalled);
    c->last_write = *write;
    RDMA_COUNT(c, writes, 1);
    RDMA_COUNT(c, write_bytes, write->length);
    if (c->batch_n == RDMA_BATCH || c->batch_bytes >= BATCH_BYTES || idle) {
        return rdma_connection_ring(c, errp);
    }
    return true;
}

static bool no_writes(const RdmaConnection *c, const void *opaque)
{
    return !c->writes_in_flight;
}

bool rdma_connection_drain(RdmaConnection *c, GError **errp)
{
    return close_writes(c, errp) &&
           rdma_connection_wait(c, no_writes, NULL, RDMA_LIMIT_COMPLETION, "writes to be completed", errp);
}
