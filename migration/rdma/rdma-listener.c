/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA destination: listening, the main connection and the one for the return path. */

/*
 * All events of the CM come to one event channel, which the main thread reads; what concerns a connection
 * that has been handed out is noted in that connection, whose own thread then looks at it.  An event is
 * acknowledged before its connection can be freed: rdma_destroy_id() waits for that.
 *
 * The first connection that is good becomes the main one.  A second one is for the return path, if that is on
 * here; it may be asked for before we know that the first is established, and waits for that.  Whoever else
 * comes is rejected, and so is one that speaks another version; listening goes on.
 */
#include "migration/rdma/rdma-channel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <glib-unix.h>
#include <poll.h>

#include "io/transport.h"
#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

#define BACKLOG 5
#define RESPONDER_RESOURCES 2

struct RdmaListener {
    RdmaEvents *events;
    struct rdma_cm_id *id;
    SocketAddressList *addresses;
    GSource *source;
    GSource *timeout;               /* for the connection that is being established */

    MigrationOptionStore *options;
    RdmaListenerFunc func;
    void (*log)(const char *message, void *opaque);
    void *opaque;

    RdmaConnection *arriving;       /* accepted, not established yet */
    bool arriving_is_main;
    struct rdma_cm_id *waiting;     /* a request that came meanwhile */
    RdmaPrivate waiting_asked;
    GSource *waiting_source;        /* takes it up */
    Channel *channel;               /* of the main connection, once it has been handed out */
    bool has_return_path;
};

/* ---- listening ---- */

static bool bind_one(RdmaListener *l, struct sockaddr *address, GError **errp)
{
    int reuse = 1;

    if (l->id) {
        rdma_destroy_id(l->id);
        l->id = NULL;
    }
    if (rdma_create_id(l->events->channel, &l->id, NULL, RDMA_PS_TCP)) {
        l->id = NULL;
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "RDMA ERROR: could not create cm_id!");
        return false;
    }
    rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof(reuse));
    if (rdma_bind_addr(l->id, address)) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "RDMA ERROR: Error: could not rdma_bind_addr!");
        return false;
    }
    if (fault_point("rdma-listen", errp)) {
        return false;
    }
    if (rdma_listen(l->id, BACKLOG)) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "RDMA ERROR: listening on socket!");
        return false;
    }
    return true;
}

/* The first of the addresses that can be listened on. */
static bool listen_on(RdmaListener *l, const InetSocketAddress *inet, GError **errp)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GArray) list = inet_address_resolve(inet, true, NULL, errp);

    if (!list) {
        return false;
    }
    for (guint i = 0; i < list->len; i++) {
        g_clear_error(&error);
        if (bind_one(l, (struct sockaddr *)&g_array_index(list, struct sockaddr_storage, i), &error)) {
            return true;
        }
    }
    g_propagate_error(errp, g_steal_pointer(&error));
    return false;
}

static void remember_address(RdmaListener *l, const InetSocketAddress *inet)
{
    SocketAddress *a = g_new0(SocketAddress, 1);

    a->type = SOCKET_ADDRESS_TYPE_INET;
    a->u.inet = g_new0(InetSocketAddress, 1);
    a->u.inet->host = g_strdup(inet->host);
    a->u.inet->port = g_strdup_printf("%u", ntohs(rdma_get_src_port(l->id)));
    l->addresses = g_new0(SocketAddressList, 1);
    l->addresses->count = 1;
    l->addresses->items = g_new0(SocketAddress *, 1);
    l->addresses->items[0] = a;
}

RdmaListener *rdma_listener_new(const InetSocketAddress *address, GError **errp)
{
    if (!*address->host) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "RDMA ERROR: RDMA host is not set!");
        return NULL;
    }
    RdmaListener *l = g_new0(RdmaListener, 1);
    l->events = rdma_events_new(errp);
    if (!l->events || !listen_on(l, address, errp)) {
        rdma_listener_free(l);
        return NULL;
    }
    remember_address(l, address);
    return l;
}

const SocketAddressList *rdma_listener_addresses(const RdmaListener *listener)
{
    return listener->addresses;
}

static void stop_source(GSource **source)
{
    if (*source) {
        g_source_destroy(*source);
        g_source_unref(*source);
        *source = NULL;
    }
}

void rdma_listener_free(RdmaListener *l)
{
    if (!l) {
        return;
    }
    stop_source(&l->source);
    stop_source(&l->timeout);
    stop_source(&l->waiting_source);
    rdma_connection_free(l->arriving);
    if (l->waiting) {
        rdma_reject(l->waiting, NULL, 0);
        rdma_destroy_id(l->waiting);
    }
    channel_unref(l->channel);
    if (l->id) {
        rdma_destroy_id(l->id);
    }
    rdma_events_unref(l->events);
    qapi_free_SocketAddressList(l->addresses);
    g_free(l);
}

/* ---- connections ---- */

static void log_line(RdmaListener *l, const char *what, const GError *error)
{
    g_autofree char *line = g_strdup_printf("RDMA: %s: %s", what, error->message);
    l->log(line, l->opaque);
}

static bool accept_queue_pair(RdmaConnection *c, GError **errp)
{
    uint8_t data[RDMA_PRIVATE_SIZE];
    struct rdma_conn_param param = {
        .private_data = data, .private_data_len = sizeof(data), .responder_resources = RESPONDER_RESOURCES,
    };

    rdma_private_encode(data, &c->private_data);
    if (fault_point("rdma-accept", errp)) {
        return false;
    }
    if (rdma_accept(c->id, &param)) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "rdma_accept");
        return false;
    }
    return true;
}

/* What this connection would be; an error says why it is not wanted. */
static bool is_wanted(RdmaListener *l, bool *is_main, GError **errp)
{
    *is_main = !l->channel;
    if (l->arriving) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, "another connection is being established");
    } else if (!*is_main && l->has_return_path) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, "there are two connections already");
    } else if (!*is_main && !migration_capability(l->options, MIGRATION_CAPABILITY_RETURN_PATH)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE,
                    "a second connection has come, but the capability return-path is off here");
    } else {
        return true;
    }
    return false;
}

static void answer_request(RdmaListener *l, struct rdma_cm_id *id, const RdmaPrivate *asked, GError *refused);

static gboolean take_waiting(gpointer opaque)
{
    RdmaListener *l = opaque;

    stop_source(&l->waiting_source);
    answer_request(l, g_steal_pointer(&l->waiting), &l->waiting_asked, NULL);
    return G_SOURCE_REMOVE;
}

/* From the main loop, not at once: the caller may be about to lose the listener. */
static void call_waiting(RdmaListener *l)
{
    if (l->waiting && !l->waiting_source) {
        l->waiting_source = g_idle_source_new();
        g_source_set_priority(l->waiting_source, G_PRIORITY_DEFAULT);
        g_source_set_callback(l->waiting_source, take_waiting, l, NULL);
        g_source_attach(l->waiting_source, NULL);
    }
}

static void drop_arriving(RdmaListener *l, const GError *error)
{
    call_waiting(l);
    stop_source(&l->timeout);
    log_line(l, "connection given up", error);
    rdma_connection_free(g_steal_pointer(&l->arriving));
}

static gboolean arrival_timeout(gpointer opaque)
{
    RdmaListener *l = opaque;
    g_autoptr(GError) error = g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO, "it was not established in time");

    drop_arriving(l, error);
    return G_SOURCE_REMOVE;
}

static void start_timeout(RdmaListener *l)
{
    l->timeout = g_timeout_source_new(RDMA_LIMIT_CONNECT);
    g_source_set_callback(l->timeout, arrival_timeout, l, NULL);
    g_source_attach(l->timeout, NULL);
}

/* @id is ours from here on. */
static void answer_request(RdmaListener *l, struct rdma_cm_id *id, const RdmaPrivate *asked, GError *refused)
{
    g_autoptr(GError) error = refused;
    bool is_main = false;

    if (!error && l->arriving && !l->waiting) {
        l->waiting = id;
        l->waiting_asked = *asked;
        return;
    }
    if (error || !is_wanted(l, &is_main, &error)) {
        log_line(l, "connection rejected", error);
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        return;
    }
    RdmaConnection *c = rdma_connection_new(is_main ? RDMA_RECEIVER : RDMA_SENDER, NULL);
    c->id = id;
    c->shared_events = rdma_events_ref(l->events);
    id->context = c;
    c->private_data = *asked;
    bool ok = rdma_connection_set_up(c, &error);
    if (ok && asked->godwit) {
        c->private_data.chunk_shift = rdma_connection_chunk_shift(c, asked->chunk_shift);
        c->private_data.region_shift = rdma_connection_region_shift(c);
    }
    if (!ok || !accept_queue_pair(c, &error)) {
        log_line(l, "connection rejected", error);
        rdma_reject(id, NULL, 0);
        rdma_connection_free(c);
        return;
    }
    l->arriving = c;
    l->arriving_is_main = is_main;
    start_timeout(l);
}

static void established(RdmaListener *l)
{
    RdmaConnection *c = g_steal_pointer(&l->arriving);

    stop_source(&l->timeout);
    call_waiting(l);
    if (!l->arriving_is_main) {
        l->has_return_path = true;
        rdma_channel_set_return_path(l->channel, c);
        return;
    }
    l->channel = rdma_channel_accepted(c);
    l->func(l, channel_ref(l->channel), l->opaque);
}

/* ---- events ---- */

static void handle_connection_event(RdmaListener *l, struct rdma_cm_event *event)
{
    RdmaConnection *c = event->id->context;
    bool arriving = c && c == l->arriving;
    enum rdma_cm_event_type type = event->event;

    if (c) {
        rdma_connection_cm_event(c, event);
    }
    rdma_ack_cm_event(event);
    if (arriving && type == RDMA_CM_EVENT_ESTABLISHED) {
        established(l);
    } else if (arriving && (type == RDMA_CM_EVENT_CONNECT_ERROR || type == RDMA_CM_EVENT_UNREACHABLE ||
                            type == RDMA_CM_EVENT_REJECTED || type == RDMA_CM_EVENT_DISCONNECTED ||
                            type == RDMA_CM_EVENT_DEVICE_REMOVAL)) {
        g_autoptr(GError) error = g_error_new(GODWIT_ERROR, GODWIT_ERROR_IO, "%s", rdma_event_str(type));
        drop_arriving(l, error);
    }
}

static void handle_event(RdmaListener *l, struct rdma_cm_event *event)
{
    if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
        handle_connection_event(l, event);
        return;
    }
    GError *refused = NULL;
    RdmaPrivate asked;
    struct rdma_cm_id *id = event->id;
    rdma_private_parse_request(&asked, event->param.conn.private_data, event->param.conn.private_data_len,
                               &refused);
    trace_rdma_request(asked.version, asked.pin_all, asked.godwit, asked.chunk_shift);
    rdma_ack_cm_event(event);
    answer_request(l, id, &asked, refused);
}

static gboolean events_ready(gint fd, GIOCondition condition, gpointer opaque)
{
    RdmaListener *l = opaque;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    struct rdma_cm_event *event;

    /* One at a time: a callback may free the listener. */
    if (poll(&p, 1, 0) > 0 && !rdma_get_cm_event(l->events->channel, &event)) {
        handle_event(l, event);
    }
    return G_SOURCE_CONTINUE;
}

void rdma_listener_start(RdmaListener *l, MigrationOptionStore *options, RdmaListenerFunc func,
                         void (*log)(const char *message, void *opaque), void *opaque)
{
    l->options = options;
    l->func = func;
    l->log = log;
    l->opaque = opaque;
    l->source = g_unix_fd_source_new(l->events->channel->fd, G_IO_IN);
    g_source_set_callback(l->source, G_SOURCE_FUNC(events_ready), l, NULL);
    g_source_attach(l->source, NULL);
}
