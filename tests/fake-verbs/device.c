/* SPDX-License-Identifier: BSD-2-Clause */
/* The device: its limits, protection domains, memory regions, completion queues. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define GUID 0x0200000000000001

static struct ibv_device device = { .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB,
                                    .name = "fake0", .dev_name = "fake0" };
static struct verbs_context context;
static GHashTable *regions;     /* key -> FakeMr */
static uint32_t last_key = 0x1000;
static uint64_t regions_made;

/* Sets errno and returns it: for what returns an error and for what returns NULL. */
static int failed(int error)
{
    errno = error;
    return error;
}

/* ---- what the device can do ---- */

static void fill_attributes(struct ibv_device_attr *attr)
{
    const FakeLimits *l = &fake_settings.limits;
    *attr = (struct ibv_device_attr){
        .node_guid = GUID, .sys_image_guid = GUID, .max_mr_size = l->max_mr_size, .page_size_cap = 0x1000,
        .max_qp = l->max_qp, .max_qp_wr = l->max_qp_wr, .max_sge = l->max_sge, .max_cq = l->max_cq,
        .max_cqe = l->max_cqe, .max_mr = l->max_mr, .max_pd = 4096, .max_qp_rd_atom = 16,
        .max_qp_init_rd_atom = 16, .phys_port_cnt = 1,
    };
    g_strlcpy(attr->fw_ver, "0", sizeof(attr->fw_ver));
}

FAKE_EXPORT int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    int error = fake_call(FAKE_ibv_query_device);
    if (error) {
        return failed(error);
    }
    fake_lock_acquire();
    fill_attributes(attr);
    fake_lock_release();
    return 0;
}

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    int error = fake_call(FAKE_ibv_query_device_ex);
    if (error) {
        return failed(error);
    }
    struct ibv_device_attr_ex all = { 0 };
    fake_lock_acquire();
    fill_attributes(&all.orig_attr);
    if (fake_settings.odp) {
        all.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
        all.odp_caps.per_transport_caps.rc_odp_caps =
            IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
    }
    fake_lock_release();
    memcpy(attr, &all, MIN(size, sizeof(all)));
    return 0;
}

static void fill_port(struct ibv_port_attr *attr)
{
    *attr = (struct ibv_port_attr){
        .state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .gid_tbl_len = 1,
        .max_msg_sz = fake_settings.limits.max_msg_sz, .pkey_tbl_len = 1, .active_width = 2,
        .active_speed = 32, .phys_state = 5, .link_layer = IBV_LINK_LAYER_ETHERNET,
    };
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
    int error = fake_call(FAKE_ibv_query_port);
    if (error || port != 1) {
        return failed(error ? error : EINVAL);
    }
    struct ibv_port_attr all;
    fake_lock_acquire();
    fill_port(&all);
    fake_lock_release();
    memcpy(attr, &all, MIN(size, sizeof(all)));
    return 0;
}

#undef ibv_query_port
FAKE_EXPORT int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    /* The old structure ends where the new one got its first new member. */
    return query_port(ctx, port, (struct ibv_port_attr *)attr,
                      offsetof(struct ibv_port_attr, port_cap_flags2));
}

FAKE_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const names[] = {
        "success", "local length error", "local QP operation error", "local EE context operation error",
        "local protection error", "Work Request Flushed Error", "memory management operation error",
        "bad response error", "local access error", "remote invalid request error", "remote access error",
        "remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
    };
    return (size_t)status < G_N_ELEMENTS(names) ? names[status] : "unknown";
}

/* ---- lists of devices, which some programs look at ---- */

#undef ibv_get_device_list
FAKE_EXPORT struct ibv_device **ibv_get_device_list(int *n)
{
    struct ibv_device **list = calloc(2, sizeof(*list));
    list[0] = &device;
    if (n) {
        *n = 1;
    }
    return list;
}

FAKE_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

FAKE_EXPORT const char *ibv_get_device_name(struct ibv_device *dev)
{
    return dev->name;
}

FAKE_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
    return fake_context();
}

FAKE_EXPORT int ibv_close_device(struct ibv_context *ctx)
{
    return 0;
}

/* ---- protection domains ---- */

FAKE_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
    int error = fake_call(FAKE_ibv_alloc_pd);
    if (error) {
        failed(error);
        return NULL;
    }
    FakePd *pd = g_new0(FakePd, 1);
    pd->pd.context = ctx;
    fake_lock_acquire();
    fake_created(FAKE_PD);
    fake_lock_release();
    return &pd->pd;
}

FAKE_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
    int error = fake_call(FAKE_ibv_dealloc_pd);
    FakePd *pd = (FakePd *)ibpd;
    fake_lock_acquire();
    if (pd->users) {
        fake_violation("protection domain freed with %u queue pairs and regions in it", pd->users);
        fake_lock_release();
        return failed(EBUSY);
    }
    fake_destroyed(FAKE_PD);
    fake_lock_release();
    g_free(pd);
    return error ? failed(error) : 0;
}

/* ---- memory regions ---- */

static int check_region(uint64_t length, int access)
{
    const FakeLimits *l = &fake_settings.limits;
    bool on_demand = access & IBV_ACCESS_ON_DEMAND;
    if (!length || ((access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))) {
        return EINVAL;
    }
    if (length > l->max_mr_size) {
        fake_violation("region of %" PRIu64 " bytes, the device's maximum is %" PRIu64, length,
                       l->max_mr_size);
        return EINVAL;
    }
    /* What can only be received into is the program's own. */
    bool guest_memory = access != IBV_ACCESS_LOCAL_WRITE;
    if (on_demand ? !fake_settings.odp : fake_settings.no_pin && guest_memory) {
        return EOPNOTSUPP;
    }
    if (g_hash_table_size(regions) >= l->max_mr ||
        (!on_demand && fake_numbers[FAKE_PINNED] + length > l->memlock)) {
        return ENOMEM;
    }
    return 0;
}

static uint32_t new_key(void)
{
    if (++regions_made == fake_settings.zero_rkey) {
        return 0;
    }
    last_key += 0x101;
    return last_key;
}

static FakeMr *new_region(FakePd *pd, void *address, size_t length, int access)
{
    FakeMr *mr = g_new0(FakeMr, 1);
    uint32_t key = new_key();
    mr->mr = (struct ibv_mr){ .context = pd->pd.context, .pd = &pd->pd, .addr = address, .length = length,
                              .lkey = key, .rkey = key };
    mr->access = access;
    mr->pinned = !(access & IBV_ACCESS_ON_DEMAND);
    if (mr->pinned) {
        fake_numbers[FAKE_PINNED] += length;
        fake_numbers[FAKE_MAX_PINNED] = MAX(fake_numbers[FAKE_MAX_PINNED], fake_numbers[FAKE_PINNED]);
    }
    g_hash_table_insert(regions, GUINT_TO_POINTER(key), mr);
    pd->users++;
    fake_created(FAKE_MR);
    return mr;
}

static struct ibv_mr *register_region(struct ibv_pd *pd, void *address, size_t length, int access)
{
    int error = fake_call(FAKE_ibv_reg_mr);
    FakeMr *mr = NULL;
    fake_lock_acquire();
    if (!regions) {
        regions = g_hash_table_new(NULL, NULL);
    }
    error = error ? error : check_region(length, access);
    if (!error) {
        mr = new_region((FakePd *)pd, address, length, access);
    }
    fake_lock_release();
    if (!mr) {
        failed(error);
        return NULL;
    }
    return &mr->mr;
}

#undef ibv_reg_mr
FAKE_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    return register_region(pd, address, length, access);
}

FAKE_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                            unsigned int access)
{
    if (iova != (uintptr_t)address) {
        failed(EOPNOTSUPP);
        return NULL;
    }
    return register_region(pd, address, length, access);
}

FAKE_EXPORT int ibv_dereg_mr(struct ibv_mr *ibmr)
{
    int error = fake_call(FAKE_ibv_dereg_mr);
    FakeMr *mr = (FakeMr *)ibmr;
    fake_lock_acquire();
    if (g_hash_table_lookup(regions, GUINT_TO_POINTER(mr->mr.lkey)) != mr) {
        g_error("fake-verbs: region with key %#x deregistered twice", mr->mr.lkey);
    }
    if (fake_qp_uses_key(mr->mr.lkey)) {
        fake_violation("region deregistered with requests that use it under way");
    }
    g_hash_table_remove(regions, GUINT_TO_POINTER(mr->mr.lkey));
    if (mr->pinned) {
        fake_numbers[FAKE_PINNED] -= mr->mr.length;
    }
    ((FakePd *)mr->mr.pd)->users--;
    fake_destroyed(FAKE_MR);
    fake_lock_release();
    g_free(mr);
    return error ? failed(error) : 0;
}

static int advise_region(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                         struct ibv_sge *list, uint32_t n)
{
    int error = fake_call(FAKE_ibv_advise_mr);
    fake_lock_acquire();
    if (!error && fake_settings.no_advise) {
        error = EOPNOTSUPP;
    }
    for (uint32_t i = 0; !error && i < n; i++) {
        error = fake_find_mr(pd, list[i].lkey, list[i].addr, list[i].length, 0) ? 0 : EFAULT;
    }
    fake_lock_release();
    return error ? failed(error) : 0;
}

FakeMr *fake_find_mr(const struct ibv_pd *pd, uint32_t key, uint64_t address, uint64_t length, int access)
{
    FakeMr *mr = regions ? g_hash_table_lookup(regions, GUINT_TO_POINTER(key)) : NULL;
    if (!mr || mr->mr.pd != pd || (mr->access & access) != access) {
        return NULL;
    }
    uint64_t begin = (uintptr_t)mr->mr.addr;
    if (address < begin || length > mr->mr.length || address - begin > mr->mr.length - length) {
        return NULL;
    }
    return mr;
}

/* ---- completion channels ---- */

FAKE_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
    int error = fake_call(FAKE_ibv_create_comp_channel);
    int fds[2];
    if (error || pipe2(fds, O_CLOEXEC) < 0) {
        failed(error ? error : EMFILE);
        return NULL;
    }
    FakeCompChannel *channel = g_new0(FakeCompChannel, 1);
    channel->channel.context = ctx;
    channel->channel.fd = fds[0];
    channel->write_fd = fds[1];
    g_queue_init(&channel->events);
    fake_lock_acquire();
    fake_created(FAKE_COMP_CHANNEL);
    fake_lock_release();
    return &channel->channel;
}

FAKE_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ibchannel)
{
    int error = fake_call(FAKE_ibv_destroy_comp_channel);
    FakeCompChannel *channel = (FakeCompChannel *)ibchannel;
    fake_lock_acquire();
    if (channel->users) {
        fake_violation("completion channel destroyed with %u queues on it", channel->users);
        fake_lock_release();
        return failed(EBUSY);
    }
    fake_destroyed(FAKE_COMP_CHANNEL);
    fake_lock_release();
    close(channel->channel.fd);
    close(channel->write_fd);
    g_queue_clear(&channel->events);
    g_free(channel);
    return error ? failed(error) : 0;
}

/* ---- completion queues ---- */

FAKE_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int entries, void *opaque,
                                         struct ibv_comp_channel *channel, int vector)
{
    int error = fake_call(FAKE_ibv_create_cq);
    fake_lock_acquire();
    if (!error && (entries < 1 || (uint64_t)entries > fake_settings.limits.max_cqe || vector != 0)) {
        error = EINVAL;
    }
    if (error) {
        fake_lock_release();
        failed(error);
        return NULL;
    }
    FakeCq *cq = g_new0(FakeCq, 1);
    cq->cq.context = ctx;
    cq->cq.channel = channel;
    cq->cq.cq_context = opaque;
    cq->cq.cqe = entries;
    g_queue_init(&cq->ready);
    if (channel) {
        ((FakeCompChannel *)channel)->users++;
    }
    fake_created(FAKE_CQ);
    fake_lock_release();
    return &cq->cq;
}

/* Events that were never got go with their queue. */
static void forget_channel_events(FakeCompChannel *channel, FakeCq *cq)
{
    channel->users--;
    while (g_queue_remove(&channel->events, cq)) {
        char byte;
        struct pollfd ready = { .fd = channel->channel.fd, .events = POLLIN };
        if (poll(&ready, 1, 0) == 1 && read(channel->channel.fd, &byte, 1) != 1) {
            fake_violation("completion channel cannot be read");
        }
    }
}

FAKE_EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
    int error = fake_call(FAKE_ibv_destroy_cq);
    FakeCq *cq = (FakeCq *)ibcq;
    fake_lock_acquire();
    if (cq->users) {
        fake_violation("completion queue destroyed with %u queue pairs on it", cq->users);
        fake_lock_release();
        return failed(EBUSY);
    }
    if (cq->events != cq->events_acked) {
        fake_violation("completion queue destroyed with %u events not acknowledged: a real one hangs",
                       cq->events - cq->events_acked);
    }
    if (cq->cq.channel) {
        forget_channel_events((FakeCompChannel *)cq->cq.channel, cq);
    }
    g_queue_clear_full(&cq->ready, g_free);
    fake_destroyed(FAKE_CQ);
    fake_lock_release();
    g_free(cq);
    return error ? failed(error) : 0;
}

static int request_notification(struct ibv_cq *ibcq, int solicited_only)
{
    int error = fake_call(FAKE_ibv_req_notify_cq);
    if (error) {
        return failed(error);
    }
    fake_lock_acquire();
    ((FakeCq *)ibcq)->armed = true;
    fake_lock_release();
    return 0;
}

static int poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
    int error = fake_call(FAKE_ibv_poll_cq);
    if (error) {
        errno = error;
        return -1;
    }
    FakeCq *cq = (FakeCq *)ibcq;
    int got = 0;
    fake_lock_acquire();
    while (got < n && cq->ready.length) {
        g_autofree FakeCompletion *completion = g_queue_pop_head(&cq->ready);
        cq->held--;
        wc[got++] = completion->wc;
        if (completion->send_number) {
            completion->qp->sends_freed = completion->send_number;
        }
    }
    fake_lock_release();
    return got;
}

FAKE_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **opaque)
{
    int error = fake_call(FAKE_ibv_get_cq_event);
    if (error) {
        errno = error;
        return -1;
    }
    FakeCq *which = NULL;
    while (!which) {
        char byte;
        if (read(channel->fd, &byte, 1) != 1) {
            return -1;
        }
        fake_lock_acquire();
        which = g_queue_pop_head(&((FakeCompChannel *)channel)->events);
        if (which) {
            which->events++;
        }
        fake_lock_release();
    }
    *cq = &which->cq;
    *opaque = which->cq.cq_context;
    return 0;
}

FAKE_EXPORT void ibv_ack_cq_events(struct ibv_cq *ibcq, unsigned int n)
{
    fake_call(FAKE_ibv_ack_cq_events);
    FakeCq *cq = (FakeCq *)ibcq;
    fake_lock_acquire();
    cq->events_acked += n;
    if (cq->events_acked > cq->events) {
        fake_violation("more completion events acknowledged than there were");
    }
    fake_lock_release();
}

static void ring(FakeCq *cq)
{
    if (!cq->armed || !cq->cq.channel) {
        return;
    }
    cq->armed = false;
    FakeCompChannel *channel = (FakeCompChannel *)cq->cq.channel;
    g_queue_push_tail(&channel->events, cq);
    if (write(channel->write_fd, "", 1) != 1) {
        fake_violation("completion channel full: its events are never read");
    }
}

static void arrive(void *opaque)
{
    FakeCompletion *completion = opaque;
    g_queue_push_tail(&completion->cq->ready, completion);
    ring(completion->cq);
}

static void vanish(void *opaque)
{
    FakeCompletion *completion = opaque;
    completion->cq->held--;
    g_free(completion);
}

static uint64_t late(const struct ibv_wc *wc)
{
    return fake_settings.late[wc->opcode == IBV_WC_RECV   ? FAKE_OP_RECV
                              : wc->opcode == IBV_WC_SEND ? FAKE_OP_SEND
                                                          : FAKE_OP_WRITE];
}

void fake_complete(FakeLane *lane, FakeCq *cq, FakeQp *qp, const struct ibv_wc *wc, uint64_t send_number)
{
    if (cq->held >= (unsigned)cq->cq.cqe) {
        fake_violation("completion queue of %d entries overrun", cq->cq.cqe);
        return;
    }
    cq->held++;
    FakeCompletion *completion = g_new(FakeCompletion, 1);
    *completion = (FakeCompletion){ cq, qp, *wc, send_number };
    if (wc->status != IBV_WC_SUCCESS) {
        /* These say nothing with an error. */
        completion->wc.opcode = 0x55;
        completion->wc.byte_len = 0x55555555;
    }
    fake_deliver(lane, late(wc), qp, arrive, vanish, completion);
}

void fake_cq_forget_qp(FakeCq *cq, FakeQp *qp)
{
    GList *next;
    for (GList *l = cq->ready.head; l; l = next) {
        next = l->next;
        FakeCompletion *completion = l->data;
        if (completion->qp == qp) {
            g_free(completion);
            g_queue_delete_link(&cq->ready, l);
            cq->held--;
        }
    }
}

/* ---- the context, through which the inline functions of verbs.h come here ---- */

struct ibv_context *fake_context(void)
{
    return &context.context;
}

__attribute__((constructor)) static void make_context(void)
{
    context.sz = sizeof(context);
    context.query_port = query_port;
    context.query_device_ex = query_device_ex;
    context.advise_mr = advise_region;
    context.context = (struct ibv_context){
        .device = &device,
        .ops = { .poll_cq = poll_cq, .req_notify_cq = request_notification, .post_send = fake_post_send,
                 .post_recv = fake_post_recv },
        .cmd_fd = -1, .async_fd = -1, .num_comp_vectors = 1, .abi_compat = __VERBS_ABI_IS_EXTENDED,
    };
}
