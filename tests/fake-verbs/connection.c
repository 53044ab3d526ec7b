/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection manager: ids, events, addresses. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

/* What a real listener's kernel answers for a port that nobody listens on. */
#define REJECTED_BY_CONSUMER 28

typedef struct FakeChannel {
    struct rdma_event_channel channel;  /* fd is the reading end of a pipe, a byte for each event */
    int write_fd;
    GQueue events;              /* FakeEvent */
    unsigned ids;
    bool destroyed;             /* too early: kept for the ids that are left */
} FakeChannel;

typedef struct FakeEvent {
    struct rdma_cm_event event;
    FakeChannel *channel;
    FakeId *counted;            /* whose event this is: it waits for the acknowledgement */
    uint8_t data[256];
} FakeEvent;

static int failed(int error)
{
    errno = error;
    return error ? -1 : 0;
}

/* ---- events ---- */

static void event_arrives(void *opaque)
{
    FakeEvent *event = opaque;
    if (event->channel->destroyed) {
        g_free(event);
        return;
    }
    g_queue_push_tail(&event->channel->events, event);
    if (write(event->channel->write_fd, "", 1) != 1) {
        fake_violation("event channel full: its events are never read");
    }
}

static void emit(FakeId *id, enum rdma_cm_event_type type, int status, const void *data, size_t length)
{
    int other = fake_replace_event(type);
    if (other < 0) {
        return;
    }
    bool replaced = other != (int)type;
    FakeId *counted = type == RDMA_CM_EVENT_CONNECT_REQUEST ? id->listener : id;
    FakeEvent *event = g_new0(FakeEvent, 1);
    event->event = (struct rdma_cm_event){
        .id = replaced ? &counted->id : &id->id, .event = other,
        .listen_id = id->listener ? &id->listener->id : NULL,
        .status = replaced ? -ETIMEDOUT : status,
    };
    event->channel = (FakeChannel *)id->id.channel;
    event->counted = counted;
    if (data && !replaced) {
        memcpy(event->data, data, MIN(length, FAKE_PRIVATE_DATA_REQUEST));
        event->event.param.conn.private_data = event->data;
        event->event.param.conn.private_data_len = length;
    }
    fake_deliver(&counted->lane, 0, counted, event_arrives, g_free, event);
}

static void forget_events(FakeChannel *channel, FakeId *id)
{
    fake_delivery_forget(id);
    GList *next;
    for (GList *l = channel->events.head; l; l = next) {
        next = l->next;
        FakeEvent *event = l->data;
        if (event->counted != id && event->event.id != &id->id) {
            continue;
        }
        char byte;
        struct pollfd ready = { .fd = channel->channel.fd, .events = POLLIN };
        if (poll(&ready, 1, 0) == 1 && read(channel->channel.fd, &byte, 1) != 1) {
            fake_violation("event channel cannot be read");
        }
        g_free(event);
        g_queue_delete_link(&channel->events, l);
    }
}

FAKE_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
    int error = fake_call(FAKE_rdma_create_event_channel);
    int fds[2];
    if (error || pipe2(fds, O_CLOEXEC) < 0) {
        failed(error ? error : EMFILE);
        return NULL;
    }
    FakeChannel *channel = g_new0(FakeChannel, 1);
    channel->channel.fd = fds[0];
    channel->write_fd = fds[1];
    g_queue_init(&channel->events);
    fake_lock_acquire();
    fake_created(FAKE_EVENT_CHANNEL);
    fake_lock_release();
    return &channel->channel;
}

static void release_channel(FakeChannel *channel)
{
    if (channel->destroyed && !channel->ids) {
        g_free(channel);
    }
}

FAKE_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *ec)
{
    fake_call(FAKE_rdma_destroy_event_channel);
    FakeChannel *channel = (FakeChannel *)ec;
    fake_lock_acquire();
    if (channel->ids) {
        fake_violation("event channel destroyed with %u ids on it", channel->ids);
    }
    channel->destroyed = true;
    close(channel->channel.fd);
    close(channel->write_fd);
    g_queue_clear_full(&channel->events, g_free);
    release_channel(channel);
    fake_destroyed(FAKE_EVENT_CHANNEL);
    fake_lock_release();
}

static FakeEvent *take_event(FakeChannel *channel)
{
    fake_lock_acquire();
    FakeEvent *event = g_queue_pop_head(&channel->events);
    if (event) {
        event->counted->events++;
        fake_created(FAKE_EVENT);
        if (event->counted != (FakeId *)event->event.id) {
            FakeId *id = (FakeId *)event->event.id;
            g_queue_remove(&event->counted->requests, id);
            id->listener = NULL;
            fake_created(FAKE_ID);
            channel->ids++;
        }
    }
    fake_lock_release();
    return event;
}

FAKE_EXPORT int rdma_get_cm_event(struct rdma_event_channel *ec, struct rdma_cm_event **result)
{
    int error = fake_call(FAKE_rdma_get_cm_event);
    if (error) {
        return failed(error);
    }
    FakeEvent *event = NULL;
    while (!event) {
        char byte;
        if (read(ec->fd, &byte, 1) != 1) {
            return -1;
        }
        event = take_event((FakeChannel *)ec);
    }
    *result = &event->event;
    return 0;
}

FAKE_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *ibevent)
{
    int error = fake_call(FAKE_rdma_ack_cm_event);
    FakeEvent *event = (FakeEvent *)ibevent;
    fake_lock_acquire();
    event->counted->events--;
    fake_destroyed(FAKE_EVENT);
    fake_lock_release();
    g_free(event);
    return failed(error);
}

FAKE_EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
    static const char *const names[] = {
        "RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED",
        "RDMA_CM_EVENT_ROUTE_ERROR", "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
        "RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE", "RDMA_CM_EVENT_REJECTED",
        "RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
    };
    return (size_t)event < G_N_ELEMENTS(names) ? names[event] : "UNKNOWN EVENT";
}

/* ---- addresses ---- */

static struct rdma_addrinfo *new_addrinfo(const struct addrinfo *from, bool passive)
{
    struct rdma_addrinfo *ai = g_new0(struct rdma_addrinfo, 1);
    struct sockaddr *copy = g_memdup2(from->ai_addr, from->ai_addrlen);
    ai->ai_family = from->ai_family;
    ai->ai_qp_type = IBV_QPT_RC;
    ai->ai_port_space = RDMA_PS_TCP;
    if (passive) {
        ai->ai_src_addr = copy;
        ai->ai_src_len = from->ai_addrlen;
    } else {
        ai->ai_dst_addr = copy;
        ai->ai_dst_len = from->ai_addrlen;
    }
    return ai;
}

FAKE_EXPORT int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                                 struct rdma_addrinfo **result)
{
    int error = fake_call(FAKE_rdma_getaddrinfo);
    if (error) {
        return failed(error);
    }
    int flags = hints ? hints->ai_flags : 0;
    struct addrinfo wanted = { .ai_socktype = SOCK_STREAM, .ai_family = hints ? hints->ai_family : AF_UNSPEC,
                               .ai_flags = (flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0) |
                                           (flags & RAI_PASSIVE ? AI_PASSIVE : 0) };
    struct addrinfo *found;
    int code = getaddrinfo(node, service, &wanted, &found);
    if (code) {
        errno = EADDRNOTAVAIL;
        return code;
    }
    struct rdma_addrinfo **tail = result;
    for (struct addrinfo *a = found; a; a = a->ai_next) {
        *tail = new_addrinfo(a, flags & RAI_PASSIVE);
        tail = &(*tail)->ai_next;
    }
    freeaddrinfo(found);
    fake_lock_acquire();
    fake_created(FAKE_ADDRINFO);
    fake_lock_release();
    return 0;
}

FAKE_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *ai)
{
    fake_call(FAKE_rdma_freeaddrinfo);
    fake_lock_acquire();
    fake_destroyed(FAKE_ADDRINFO);
    fake_lock_release();
    while (ai) {
        struct rdma_addrinfo *next = ai->ai_next;
        g_free(ai->ai_src_addr);
        g_free(ai->ai_dst_addr);
        g_free(ai);
        ai = next;
    }
}

static __be16 port_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                          : ((const struct sockaddr_in *)address)->sin_port;
}

FAKE_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
    return port_of(&id->route.addr.src_addr);
}

FAKE_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
    return port_of(&id->route.addr.dst_addr);
}

static socklen_t address_length(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static bool is_wildcard(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6
               ? IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr)
               : ((const struct sockaddr_in *)address)->sin_addr.s_addr == INADDR_ANY;
}

static void store_addresses(FakeId *id, int fd)
{
    socklen_t length = sizeof(id->id.route.addr.src_storage);
    getsockname(fd, &id->id.route.addr.src_addr, &length);
    length = sizeof(id->id.route.addr.dst_storage);
    getpeername(fd, &id->id.route.addr.dst_addr, &length);
}

/* ---- ids ---- */

static FakeId *new_id(FakeChannel *channel, void *opaque)
{
    FakeId *id = g_new0(FakeId, 1);
    id->id.channel = &channel->channel;
    id->id.context = opaque;
    id->id.ps = RDMA_PS_TCP;
    id->id.qp_type = IBV_QPT_RC;
    id->fd = -1;
    g_queue_init(&id->requests);
    return id;
}

static void set_device(FakeId *id)
{
    id->id.verbs = fake_context();
    id->id.port_num = 1;
}

FAKE_EXPORT int rdma_create_id(struct rdma_event_channel *ec, struct rdma_cm_id **result, void *opaque,
                               enum rdma_port_space ps)
{
    int error = fake_call(FAKE_rdma_create_id);
    if (error || !ec || ps != RDMA_PS_TCP) {
        return failed(error ? error : EINVAL);
    }
    FakeChannel *channel = (FakeChannel *)ec;
    FakeId *id = new_id(channel, opaque);
    fake_lock_acquire();
    channel->ids++;
    fake_created(FAKE_ID);
    fake_lock_release();
    *result = &id->id;
    return 0;
}

static void end_id(FakeId *id)
{
    if (id->listening) {
        shutdown(id->fd, SHUT_RDWR);
        pthread_join(id->acceptor, NULL);
    }
    fake_lock_acquire();
    forget_events((FakeChannel *)id->id.channel, id);
    FakeMessageType last = id->state == FAKE_ID_REQUESTED ? FAKE_MSG_REJECT : FAKE_MSG_DISCONNECT;
    if (id->has_link && !id->disconnecting && id->state != FAKE_ID_ENDED) {
        fake_link_send(&id->link, &(FakeMessage){ .type = last }, NULL);
    }
    fake_lock_release();
    if (id->has_link) {
        fake_link_stop(&id->link);
    }
    /* Their events are counted here. */
    g_queue_clear_full(&id->requests, (GDestroyNotify)end_id);
    /* What came in while the links were ending. */
    fake_lock_acquire();
    forget_events((FakeChannel *)id->id.channel, id);
    fake_lock_release();
    if (id->fd >= 0) {
        close(id->fd);
    }
    g_free(id);
}

FAKE_EXPORT int rdma_destroy_id(struct rdma_cm_id *ibid)
{
    int error = fake_call(FAKE_rdma_destroy_id);
    FakeId *id = (FakeId *)ibid;
    fake_lock_acquire();
    if (id->id.qp) {
        fake_violation("id destroyed before its queue pair");
        fake_qp_free(fake_id_qp(id));
        id->id.qp = NULL;
    }
    if (id->events) {
        fake_violation("id destroyed with %u events not acknowledged: a real one waits for ever", id->events);
    }
    FakeChannel *channel = (FakeChannel *)id->id.channel;
    fake_destroyed(FAKE_ID);
    fake_lock_release();
    end_id(id);
    fake_lock_acquire();
    channel->ids--;
    release_channel(channel);
    fake_lock_release();
    return failed(error);
}

FAKE_EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t length)
{
    return failed(fake_call(FAKE_rdma_set_option));
}

/* Checks the order of calls. */
static int move(FakeId *id, FakeIdState from, FakeIdState to)
{
    fake_lock_acquire();
    bool good = id->state == from;
    if (good) {
        id->state = to;
    }
    fake_lock_release();
    return good ? 0 : EINVAL;
}

FAKE_EXPORT int rdma_bind_addr(struct rdma_cm_id *ibid, struct sockaddr *address)
{
    int error = fake_call(FAKE_rdma_bind_addr);
    FakeId *id = (FakeId *)ibid;
    if (error || id->state != FAKE_ID_IDLE) {
        return failed(error ? error : EINVAL);
    }
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    if (bind(fd, address, address_length(address)) < 0) {
        error = errno;
        close(fd);
        return failed(error);
    }
    id->fd = fd;
    store_addresses(id, fd);
    if (!is_wildcard(address)) {
        set_device(id);
    }
    return failed(move(id, FAKE_ID_IDLE, FAKE_ID_BOUND));
}

static void accept_one(FakeId *listener, int fd)
{
    fake_lock_acquire();
    FakeId *id = new_id((FakeChannel *)listener->id.channel, listener->id.context);
    set_device(id);
    store_addresses(id, fd);
    id->listener = listener;
    id->state = FAKE_ID_REQUESTED;
    id->has_link = true;
    g_queue_push_tail(&listener->requests, id);
    fake_link_start(&id->link, id, fd, false);
    fake_lock_release();
}

static void *accept_loop(void *opaque)
{
    FakeId *id = opaque;
    int fd;
    while ((fd = accept4(id->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        accept_one(id, fd);
    }
    return NULL;
}

FAKE_EXPORT int rdma_listen(struct rdma_cm_id *ibid, int backlog)
{
    int error = fake_call(FAKE_rdma_listen);
    FakeId *id = (FakeId *)ibid;
    error = error ? error : move(id, FAKE_ID_BOUND, FAKE_ID_LISTENING);
    if (error || listen(id->fd, MAX(backlog, 1)) < 0) {
        return failed(error ? error : errno);
    }
    id->listening = true;
    return failed(pthread_create(&id->acceptor, NULL, accept_loop, id));
}

FAKE_EXPORT int rdma_resolve_addr(struct rdma_cm_id *ibid, struct sockaddr *from, struct sockaddr *to,
                                  int timeout_ms)
{
    int error = fake_call(FAKE_rdma_resolve_addr);
    FakeId *id = (FakeId *)ibid;
    error = error ? error : move(id, FAKE_ID_IDLE, FAKE_ID_RESOLVED);
    if (error) {
        return failed(error);
    }
    fake_lock_acquire();
    memcpy(&id->id.route.addr.dst_storage, to, address_length(to));
    set_device(id);
    emit(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
    fake_lock_release();
    return 0;
}

FAKE_EXPORT int rdma_resolve_route(struct rdma_cm_id *ibid, int timeout_ms)
{
    int error = fake_call(FAKE_rdma_resolve_route);
    FakeId *id = (FakeId *)ibid;
    error = error ? error : move(id, FAKE_ID_RESOLVED, FAKE_ID_ROUTED);
    if (error) {
        return failed(error);
    }
    fake_lock_acquire();
    emit(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
    fake_lock_release();
    return 0;
}

FAKE_EXPORT int rdma_create_qp(struct rdma_cm_id *ibid, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    int error = fake_call(FAKE_rdma_create_qp);
    FakeId *id = (FakeId *)ibid;
    if (error || id->id.qp || !pd || !id->id.verbs) {
        return failed(error ? error : EINVAL);
    }
    fake_lock_acquire();
    FakeQp *qp = fake_qp_create(id, (FakePd *)pd, attr);
    if (qp) {
        id->id.qp = &qp->qp;
        id->id.pd = pd;
        id->id.send_cq = attr->send_cq;
        id->id.recv_cq = attr->recv_cq;
        id->id.send_cq_channel = attr->send_cq->channel;
        id->id.recv_cq_channel = attr->recv_cq->channel;
    }
    fake_lock_release();
    return qp ? 0 : -1;
}

FAKE_EXPORT void rdma_destroy_qp(struct rdma_cm_id *ibid)
{
    fake_call(FAKE_rdma_destroy_qp);
    FakeId *id = (FakeId *)ibid;
    fake_lock_acquire();
    if (id->id.qp) {
        fake_qp_free(fake_id_qp(id));
        id->id.qp = NULL;
    }
    fake_lock_release();
}

/* ---- connecting ---- */

FAKE_EXPORT int rdma_connect(struct rdma_cm_id *ibid, struct rdma_conn_param *param)
{
    int error = fake_call(FAKE_rdma_connect);
    FakeId *id = (FakeId *)ibid;
    if (error || !id->id.qp || param->private_data_len > FAKE_PRIVATE_DATA_REQUEST) {
        return failed(error ? error : EINVAL);
    }
    error = move(id, FAKE_ID_ROUTED, FAKE_ID_CONNECTING);
    int fd = error ? -1 : socket(id->id.route.addr.dst_addr.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return failed(error ? error : errno);
    }
    fake_lock_acquire();
    if (param->private_data_len) {
        memcpy(id->private_data, param->private_data, param->private_data_len);
    }
    id->own_rnr_retry = param->rnr_retry_count;
    id->has_link = true;
    fake_link_start(&id->link, id, fd, true);
    fake_lock_release();
    return 0;
}

static void answer_request(FakeId *id, FakeMessageType type, const void *data, uint8_t length)
{
    uint8_t padded[FAKE_PRIVATE_DATA_ANSWER] = { 0 };
    if (data) {
        memcpy(padded, data, MIN(length, sizeof(padded)));
    }
    FakeMessage m = { .type = type, .length = sizeof(padded), .rnr_retry = id->own_rnr_retry };
    fake_link_send(&id->link, &m, padded);
}

FAKE_EXPORT int rdma_accept(struct rdma_cm_id *ibid, struct rdma_conn_param *param)
{
    int error = fake_call(FAKE_rdma_accept);
    FakeId *id = (FakeId *)ibid;
    if (error || !id->id.qp) {
        return failed(error ? error : EINVAL);
    }
    error = move(id, FAKE_ID_REQUESTED, FAKE_ID_ACCEPTED);
    if (error) {
        return failed(error);
    }
    fake_lock_acquire();
    id->id.qp->state = IBV_QPS_RTS;
    id->own_rnr_retry = param->rnr_retry_count;
    answer_request(id, FAKE_MSG_ACCEPT, param->private_data, param->private_data_len);
    if (id->link.peer_gone) {
        fake_id_peer_gone(id);
    }
    fake_lock_release();
    return 0;
}

FAKE_EXPORT int rdma_reject(struct rdma_cm_id *ibid, const void *data, uint8_t length)
{
    int error = fake_call(FAKE_rdma_reject);
    FakeId *id = (FakeId *)ibid;
    error = error ? error : move(id, FAKE_ID_REQUESTED, FAKE_ID_ENDED);
    if (error) {
        return failed(error);
    }
    fake_lock_acquire();
    answer_request(id, FAKE_MSG_REJECT, data, length);
    fake_lock_release();
    return 0;
}

FAKE_EXPORT int rdma_disconnect(struct rdma_cm_id *ibid)
{
    int error = fake_call(FAKE_rdma_disconnect);
    FakeId *id = (FakeId *)ibid;
    fake_lock_acquire();
    if (id->id.qp) {
        fake_qp_to_error(fake_id_qp(id));
    }
    bool connected = (id->state == FAKE_ID_CONNECTED || id->state == FAKE_ID_ACCEPTED) && !id->disconnecting;
    if (connected && !error) {
        id->disconnecting = true;
        fake_link_send(&id->link, &(FakeMessage){ .type = FAKE_MSG_DISCONNECT }, NULL);
    }
    fake_lock_release();
    return failed(error ? error : connected ? 0 : EINVAL);
}

/* ---- what the peer does ---- */

static void disconnected(FakeId *id)
{
    if (!id->told_disconnected) {
        id->told_disconnected = true;
        /* What has arrived before is in its queue: read or not, but it is there. */
        FakeQp *qp = fake_id_qp(id);
        id->lane.last_due = MAX(id->lane.last_due, qp ? qp->recv_lane.last_due : 0);
        emit(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
    }
}

static void established(FakeId *id, const uint8_t *data, size_t length)
{
    id->state = FAKE_ID_CONNECTED;
    store_addresses(id, id->link.fd);
    emit(id, RDMA_CM_EVENT_ESTABLISHED, 0, data, length);
}

static void refused(FakeId *id, enum rdma_cm_event_type type, int status)
{
    id->state = FAKE_ID_ENDED;
    emit(id, type, status, NULL, 0);
}

void fake_id_message(FakeId *id, const FakeMessage *message, const uint8_t *data)
{
    switch (message->type) {
    case FAKE_MSG_CONNECT:
        id->rnr_retry = message->rnr_retry;
        emit(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, data, message->length);
        break;
    case FAKE_MSG_ACCEPT:
        if (id->id.qp && id->state == FAKE_ID_CONNECTING) {
            id->id.qp->state = IBV_QPS_RTS;
            id->rnr_retry = message->rnr_retry;
            memcpy(id->answer, data, MIN(message->length, sizeof(id->answer)));
            fake_link_send(&id->link, &(FakeMessage){ .type = FAKE_MSG_READY }, NULL);
        }
        break;
    case FAKE_MSG_READY:
        /* On a wire a next connection's request cannot overtake this; on two sockets it could. */
        established(id, NULL, 0);
        fake_link_send(&id->link, &(FakeMessage){ .type = FAKE_MSG_ESTABLISHED }, NULL);
        break;
    case FAKE_MSG_ESTABLISHED:
        if (id->state == FAKE_ID_CONNECTING) {
            established(id, id->answer, sizeof(id->answer));
        }
        break;
    case FAKE_MSG_REJECT:
        refused(id, RDMA_CM_EVENT_REJECTED, REJECTED_BY_CONSUMER);
        break;
    case FAKE_MSG_DISCONNECT:
        if (id->state == FAKE_ID_CONNECTED) {
            fake_link_send(&id->link, &(FakeMessage){ .type = FAKE_MSG_DISCONNECTED }, NULL);
            disconnected(id);
        } else if (id->state != FAKE_ID_ENDED) {
            fake_id_peer_gone(id);
        }
        break;
    case FAKE_MSG_DISCONNECTED:
        disconnected(id);
        break;
    default:
        fake_violation("message of unknown type %u", message->type);
        break;
    }
}

void fake_id_connect_failed(FakeId *id, int error)
{
    if (error == ECONNREFUSED) {
        refused(id, RDMA_CM_EVENT_REJECTED, REJECTED_BY_CONSUMER);
    } else {
        refused(id, RDMA_CM_EVENT_UNREACHABLE, -error);
    }
}

void fake_id_peer_gone(FakeId *id)
{
    if (id->state == FAKE_ID_CONNECTING) {
        refused(id, RDMA_CM_EVENT_REJECTED, REJECTED_BY_CONSUMER);
    } else if (id->state == FAKE_ID_ACCEPTED) {
        refused(id, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
    } else if (id->state == FAKE_ID_CONNECTED) {
        disconnected(id);
    }
}
