/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: what is posted, in order, and how it completes. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "internal.h"

#define MAX_INLINE 256

static uint32_t last_number = 0x10;
static GPtrArray *all;          /* FakeQp */

/* ---- making and ending ---- */

FakeQp *fake_qp_create(FakeId *id, FakePd *pd, struct ibv_qp_init_attr *attr)
{
    const FakeLimits *l = &fake_settings.limits;
    const struct ibv_qp_cap *cap = &attr->cap;
    if (attr->qp_type != IBV_QPT_RC || attr->srq || !attr->send_cq || !attr->recv_cq ||
        cap->max_send_wr > l->max_qp_wr || cap->max_recv_wr > l->max_qp_wr ||
        cap->max_send_sge > l->max_sge || cap->max_recv_sge > l->max_sge ||
        cap->max_inline_data > MAX_INLINE) {
        errno = EINVAL;
        return NULL;
    }
    FakeQp *qp = g_new0(FakeQp, 1);
    qp->qp = (struct ibv_qp){
        .context = pd->pd.context, .qp_context = attr->qp_context, .pd = &pd->pd, .send_cq = attr->send_cq,
        .recv_cq = attr->recv_cq, .qp_num = ++last_number, .state = IBV_QPS_INIT, .qp_type = attr->qp_type,
    };
    qp->id = id;
    qp->cap = *cap;
    qp->signal_all = attr->sq_sig_all;
    g_queue_init(&qp->sends);
    g_queue_init(&qp->recvs);
    pd->users++;
    ((FakeCq *)attr->send_cq)->users++;
    ((FakeCq *)attr->recv_cq)->users++;
    if (!all) {
        all = g_ptr_array_new();
    }
    g_ptr_array_add(all, qp);
    fake_created(FAKE_QP);
    return qp;
}

static void free_send(void *opaque)
{
    FakeSend *send = opaque;
    if (send) {
        g_free(send->inline_data);
        g_free(send);
    }
}

void fake_qp_free(FakeQp *qp)
{
    FakeCq *send_cq = (FakeCq *)qp->qp.send_cq, *recv_cq = (FakeCq *)qp->qp.recv_cq;
    fake_delivery_forget(qp);
    fake_cq_forget_qp(send_cq, qp);
    fake_cq_forget_qp(recv_cq, qp);
    g_queue_clear_full(&qp->sends, free_send);
    g_queue_clear_full(&qp->recvs, g_free);
    send_cq->users--;
    recv_cq->users--;
    ((FakePd *)qp->qp.pd)->users--;
    g_ptr_array_remove_fast(all, qp);
    fake_destroyed(FAKE_QP);
    g_free(qp);
}

bool fake_qp_uses_key(uint32_t lkey)
{
    for (guint i = 0; all && i < all->len; i++) {
        FakeQp *qp = g_ptr_array_index(all, i);
        for (GList *l = qp->sends.head; l; l = l->next) {
            FakeSend *send = l->data;
            for (unsigned j = 0; j < send->num_sge; j++) {
                if (send->sge[j].lkey == lkey) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* ---- completing ---- */

static void complete_send(FakeQp *qp, FakeSend *send, enum ibv_wc_status status)
{
    if (send->signalled || status != IBV_WC_SUCCESS) {
        struct ibv_wc wc = { .wr_id = send->wr_id, .status = status, .qp_num = qp->qp.qp_num,
                             .opcode = send->opcode == IBV_WR_SEND ? IBV_WC_SEND : IBV_WC_RDMA_WRITE };
        fake_complete(&qp->send_lane, (FakeCq *)qp->qp.send_cq, qp, &wc, send->number);
    }
    free_send(send);
}

static void complete_recv(FakeQp *qp, FakeRecv *recv, enum ibv_wc_status status, uint32_t length)
{
    struct ibv_wc wc = { .wr_id = recv->wr_id, .status = status, .qp_num = qp->qp.qp_num,
                         .opcode = IBV_WC_RECV, .byte_len = length };
    fake_complete(&qp->recv_lane, (FakeCq *)qp->qp.recv_cq, qp, &wc, 0);
    g_free(recv);
}

void fake_qp_to_error(FakeQp *qp)
{
    qp->qp.state = IBV_QPS_ERR;
    while (qp->sends.length) {
        complete_send(qp, g_queue_pop_head(&qp->sends), IBV_WC_WR_FLUSH_ERR);
    }
    while (qp->recvs.length) {
        complete_recv(qp, g_queue_pop_head(&qp->recvs), IBV_WC_WR_FLUSH_ERR, 0);
    }
}

static void fail_first_send(FakeQp *qp, enum ibv_wc_status status)
{
    complete_send(qp, g_queue_pop_head(&qp->sends), status);
    fake_qp_to_error(qp);
}

static bool sources_are_good(FakeQp *qp, const FakeSend *send)
{
    for (unsigned i = 0; !send->inline_data && i < send->num_sge; i++) {
        const struct ibv_sge *sge = &send->sge[i];
        if (!fake_find_mr(qp->qp.pd, sge->lkey, sge->addr, sge->length, 0)) {
            return false;
        }
    }
    return true;
}

FakeSend *fake_qp_next_send(FakeQp *qp)
{
    GList *l = qp->sends.head;
    while (l && ((FakeSend *)l->data)->sent) {
        l = l->next;
    }
    FakeSend *send = l ? l->data : NULL;
    if (!send || qp->qp.state != IBV_QPS_RTS || send->fate.stall) {
        return NULL;
    }
    enum ibv_wc_status status = send->fate.status;
    if (status == IBV_WC_SUCCESS && qp->id->link.peer_gone) {
        status = IBV_WC_RETRY_EXC_ERR;
    }
    if (status == IBV_WC_SUCCESS && !sources_are_good(qp, send)) {
        status = IBV_WC_LOC_PROT_ERR;
    }
    if (status == IBV_WC_SUCCESS) {
        return send;
    }
    /* Those before it are answered first; the answer calls for the writer again. */
    if (l == qp->sends.head) {
        fail_first_send(qp, status);
    }
    return NULL;
}

void fake_qp_answered(FakeQp *qp, uint64_t number, enum ibv_wc_status status)
{
    FakeSend *first = g_queue_peek_head(&qp->sends);
    if (qp->qp.state != IBV_QPS_RTS || !first || first->number != number) {
        return;
    }
    if (status == IBV_WC_SUCCESS && first->fate.lost_ack) {
        fail_first_send(qp, first->fate.lost_ack);
    } else if (status == IBV_WC_SUCCESS) {
        complete_send(qp, g_queue_pop_head(&qp->sends), status);
    } else {
        fail_first_send(qp, status);
    }
    fake_link_kick(&qp->id->link);
}

/* ---- posting ---- */

static uint64_t total_length(const struct ibv_sge *sge, int n)
{
    uint64_t total = 0;
    for (int i = 0; i < n; i++) {
        total += sge[i].length;
    }
    return total;
}

static int check_send(FakeQp *qp, const struct ibv_send_wr *wr, uint64_t length)
{
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge) {
        return EINVAL;
    }
    if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_RDMA_WRITE) {
        return EOPNOTSUPP;
    }
    if ((wr->send_flags & IBV_SEND_INLINE) && length > qp->cap.max_inline_data) {
        return ENOMEM;
    }
    if (length > fake_settings.limits.max_msg_sz) {
        fake_violation("request of %" PRIu64 " bytes, the port's maximum is %" PRIu64, length,
                       fake_settings.limits.max_msg_sz);
        return EINVAL;
    }
    if (qp->qp.state != IBV_QPS_RTS && qp->qp.state != IBV_QPS_ERR) {
        return EINVAL;
    }
    /* The place of a request is free when a completion that tells of its end was polled, not earlier. */
    if (qp->sends_posted - qp->sends_freed >= qp->cap.max_send_wr) {
        return ENOMEM;
    }
    return fake_refuse_request();
}

static void take_inline(FakeSend *send, const struct ibv_send_wr *wr)
{
    send->inline_data = g_malloc(send->length + 1);
    uint64_t at = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(send->inline_data + at, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        at += wr->sg_list[i].length;
    }
    send->num_sge = 0;
}

static FakeSend *new_send(FakeQp *qp, const struct ibv_send_wr *wr, uint64_t length)
{
    bool is_write = wr->opcode == IBV_WR_RDMA_WRITE;
    FakeSend *send = g_malloc0(sizeof(*send) + wr->num_sge * sizeof(send->sge[0]));
    send->number = ++qp->sends_posted;
    send->wr_id = wr->wr_id;
    send->opcode = wr->opcode;
    send->signalled = qp->signal_all || (wr->send_flags & IBV_SEND_SIGNALED);
    send->fate = fake_fate(is_write ? FAKE_OP_WRITE : FAKE_OP_SEND);
    send->length = length;
    send->num_sge = wr->num_sge;
    if (wr->num_sge) {
        memcpy(send->sge, wr->sg_list, wr->num_sge * sizeof(send->sge[0]));
    }
    if (is_write) {
        send->remote_addr = wr->wr.rdma.remote_addr;
        send->rkey = wr->wr.rdma.rkey;
    }
    if (wr->send_flags & IBV_SEND_INLINE) {
        take_inline(send, wr);
    }
    fake_numbers[is_write ? FAKE_WRITES : FAKE_SENDS]++;
    fake_numbers[FAKE_WRITE_BYTES] += is_write ? length : 0;
    fake_numbers[FAKE_SIGNALLED] += send->signalled;
    return send;
}

static int post_one_send(FakeQp *qp, const struct ibv_send_wr *wr)
{
    uint64_t length = total_length(wr->sg_list, wr->num_sge);
    int error = check_send(qp, wr, length);
    if (error) {
        return error;
    }
    FakeSend *send = new_send(qp, wr, length);
    if (qp->qp.state == IBV_QPS_ERR) {
        complete_send(qp, send, IBV_WC_WR_FLUSH_ERR);
        return 0;
    }
    g_queue_push_tail(&qp->sends, send);
    fake_numbers[FAKE_MAX_OUTSTANDING] = MAX(fake_numbers[FAKE_MAX_OUTSTANDING], qp->sends.length);
    return 0;
}

int fake_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    int error = fake_call(FAKE_ibv_post_send);
    FakeQp *qp = (FakeQp *)ibqp;
    fake_lock_acquire();
    fake_numbers[FAKE_DOORBELLS]++;
    while (!error && wr) {
        error = post_one_send(qp, wr);
        wr = error ? wr : wr->next;
    }
    fake_link_kick(&qp->id->link);
    fake_lock_release();
    if (error) {
        *bad = wr;
        errno = error;
    }
    return error;
}

static int post_one_recv(FakeQp *qp, const struct ibv_recv_wr *wr)
{
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_recv_sge) {
        return EINVAL;
    }
    if (qp->recvs.length >= qp->cap.max_recv_wr) {
        return ENOMEM;
    }
    FakeRecv *recv = g_malloc0(sizeof(*recv) + wr->num_sge * sizeof(recv->sge[0]));
    recv->wr_id = wr->wr_id;
    recv->fate = fake_fate(FAKE_OP_RECV);
    recv->num_sge = wr->num_sge;
    if (wr->num_sge) {
        memcpy(recv->sge, wr->sg_list, wr->num_sge * sizeof(recv->sge[0]));
    }
    fake_numbers[FAKE_RECEIVES]++;
    if (qp->qp.state == IBV_QPS_ERR) {
        complete_recv(qp, recv, IBV_WC_WR_FLUSH_ERR, 0);
        return 0;
    }
    g_queue_push_tail(&qp->recvs, recv);
    return 0;
}

int fake_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int error = fake_call(FAKE_ibv_post_recv);
    FakeQp *qp = (FakeQp *)ibqp;
    fake_lock_acquire();
    while (!error && wr) {
        error = post_one_recv(qp, wr);
        wr = error ? wr : wr->next;
    }
    fake_lock_release();
    if (error) {
        *bad = wr;
        errno = error;
    }
    return error;
}

/* ---- what the peer asks for ---- */

/* Under ThreadSanitizer a device is not seen: guest memory changes while it is read. */
#if defined(__SANITIZE_THREAD__)
#define IS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IS_TSAN 1
#endif
#endif

#ifdef IS_TSAN
__attribute__((no_sanitize("thread"))) static void copy(void *to, const void *from, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        ((volatile uint8_t *)to)[i] = ((const volatile uint8_t *)from)[i];
    }
}
#else
static void copy(void *to, const void *from, size_t length)
{
    if (length) {                       /* memcpy() of nothing still wants two addresses */
        memcpy(to, from, length);
    }
}
#endif

size_t fake_qp_gather(const FakeSend *send, uint64_t offset, uint8_t *to, size_t length)
{
    if (send->inline_data) {
        copy(to, send->inline_data + offset, length);
        return length;
    }
    size_t done = 0;
    for (unsigned i = 0; i < send->num_sge && done < length; i++) {
        const struct ibv_sge *sge = &send->sge[i];
        if (offset < sge->length) {
            size_t n = MIN(length - done, sge->length - offset);
            copy(to + done, (const uint8_t *)(uintptr_t)sge->addr + offset, n);
            done += n;
            offset += n;
        }
        offset -= sge->length;
    }
    return done;
}

enum ibv_wc_status fake_qp_write_arrives(FakeQp *qp, const FakeMessage *m, const uint8_t *data)
{
    if (qp->qp.state != IBV_QPS_RTS) {
        return IBV_WC_RETRY_EXC_ERR;
    }
    if (m->length && !fake_find_mr(qp->qp.pd, m->rkey, m->address, m->length, IBV_ACCESS_REMOTE_WRITE)) {
        fake_qp_to_error(qp);
        return IBV_WC_REM_ACCESS_ERR;
    }
    if (!m->no_copy) {
        copy((void *)(uintptr_t)m->address, data, m->length);
    }
    return IBV_WC_SUCCESS;
}

static bool scatter(FakeQp *qp, const FakeRecv *recv, uint64_t offset, const uint8_t *data, size_t length)
{
    for (unsigned i = 0; i < recv->num_sge && length; i++) {
        const struct ibv_sge *sge = &recv->sge[i];
        if (offset < sge->length) {
            size_t n = MIN(length, sge->length - offset);
            if (!fake_find_mr(qp->qp.pd, sge->lkey, sge->addr + offset, n, IBV_ACCESS_LOCAL_WRITE)) {
                return false;
            }
            copy((uint8_t *)(uintptr_t)sge->addr + offset, data, n);
            data += n;
            length -= n;
            offset += n;
        }
        offset -= sge->length;
    }
    return true;
}

static enum ibv_wc_status refuse_message(FakeQp *qp, enum ibv_wc_status here, enum ibv_wc_status there)
{
    complete_recv(qp, g_queue_pop_head(&qp->recvs), here, 0);
    fake_qp_to_error(qp);
    return there;
}

enum ibv_wc_status fake_qp_message_arrives(FakeQp *qp, const FakeMessage *m, const uint8_t *data)
{
    if (qp->qp.state != IBV_QPS_RTS) {
        return IBV_WC_RETRY_EXC_ERR;
    }
    FakeRecv *recv = g_queue_peek_head(&qp->recvs);
    if (!recv) {
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    if (recv->fate.status != IBV_WC_SUCCESS) {
        return refuse_message(qp, recv->fate.status, IBV_WC_REM_OP_ERR);
    }
    if (qp->arrived + m->length > total_length(recv->sge, recv->num_sge)) {
        return refuse_message(qp, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
    }
    if (!recv->fate.no_copy && !m->no_copy && !scatter(qp, recv, qp->arrived, data, m->length)) {
        return refuse_message(qp, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
    }
    qp->arrived += m->length;
    if (m->last) {
        g_queue_pop_head(&qp->recvs);
        uint32_t length = qp->arrived;
        qp->arrived = 0;
        if (recv->fate.stall) {
            g_free(recv);
        } else {
            complete_recv(qp, recv, IBV_WC_SUCCESS, length);
        }
    }
    return IBV_WC_SUCCESS;
}
