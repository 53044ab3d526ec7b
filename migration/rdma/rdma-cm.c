/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: the source finds its way to the destination and connects. */
#include "migration/rdma/rdma-connection.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "io/transport.h"
#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

/* As the peers do. */
#define RETRY_COUNT 5
#define INITIATOR_DEPTH 2

static bool failed_call(const char *what, GError **errp)
{
    error_set_errno(errp, GODWIT_ERROR_IO, errno, "RDMA ERROR: %s", what);
    return false;
}

/* Waits until there is an event of the CM, until cancelled, or until time is up. */
static bool wait_event(RdmaConnection *c, int64_t until_us, const char *what, GError **errp)
{
    for (;;) {
        struct pollfd fds[] = {
            { .fd = c->events->fd, .events = POLLIN },
            { .fd = c->wake_fd, .events = POLLIN },
        };
        int64_t left_ms = (until_us - g_get_monotonic_time() + 999) / 1000;
        int n = poll(fds, G_N_ELEMENTS(fds), (int)MAX(left_ms, 0));
        uint64_t count;

        if (rdma_connection_has(c, RDMA_FLAG_SHUTDOWN)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_CANCELLED, "RDMA ERROR: %s: cancelled", what);
            return false;
        }
        if (n > 0 && fds[0].revents) {
            return true;
        }
        if (n > 0 && read(c->wake_fd, &count, sizeof(count)) < 0) {
            /* Nothing is lost: the flags say why somebody woke us. */
        }
        if (n == 0) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "RDMA ERROR: %s: poll cm event timeout", what);
            return false;
        }
    }
}

/* Waits for @expected; the event is the caller's to acknowledge.  Any other is an error. */
static struct rdma_cm_event *get_event(RdmaConnection *c, enum rdma_cm_event_type expected, unsigned limit_ms,
                                       const char *what, GError **errp)
{
    struct rdma_cm_event *event;

    if (fault_point("rdma-cm-event", errp) ||
        !wait_event(c, g_get_monotonic_time() + (int64_t)limit_ms * 1000, what, errp)) {
        return NULL;
    }
    if (rdma_get_cm_event(c->events, &event)) {
        failed_call(what, errp);
        return NULL;
    }
    rdma_connection_cm_event(c, event);
    if (event->event == expected) {
        return event;
    }
    int errnum = event->status < 0 ? -event->status : 0;
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "RDMA ERROR: %s: %s%s%s", what,
                rdma_event_str(event->event), errnum ? ": " : "", errnum ? g_strerror(errnum) : "");
    rdma_ack_cm_event(event);
    return NULL;
}

static bool expect_event(RdmaConnection *c, enum rdma_cm_event_type expected, unsigned limit_ms,
                         const char *what, GError **errp)
{
    struct rdma_cm_event *event = get_event(c, expected, limit_ms, what, errp);

    if (event) {
        rdma_ack_cm_event(event);
    }
    return event != NULL;
}

static bool resolve_one(RdmaConnection *c, struct sockaddr *address, GError **errp)
{
    if (c->id) {
        rdma_destroy_id(c->id);
        c->id = NULL;
    }
    if (rdma_create_id(c->events, &c->id, c, RDMA_PS_TCP)) {
        c->id = NULL;
        return failed_call("could not create channel id", errp);
    }
    if (rdma_resolve_addr(c->id, NULL, address, RDMA_LIMIT_ADDRESS)) {
        return failed_call("could not resolve address", errp);
    }
    return expect_event(c, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_LIMIT_ADDRESS + 1000,
                        "could not perform event_addr_resolved", errp);
}

/* The first of the addresses that a device can reach. */
static bool resolve_address(RdmaConnection *c, const InetSocketAddress *inet, GCancellable *cancellable,
                            GError **errp)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GArray) list = inet_address_resolve(inet, false, cancellable, &error);

    for (guint i = 0; list && i < list->len; i++) {
        g_clear_error(&error);
        if (resolve_one(c, (struct sockaddr *)&g_array_index(list, struct sockaddr_storage, i), &error)) {
            return true;
        }
        if (g_error_matches(error, GODWIT_ERROR, GODWIT_ERROR_CANCELLED)) {
            break;
        }
    }
    g_prefix_error(&error, "RDMA ERROR: could not resolve address %s: ", inet->host);
    g_propagate_error(errp, g_steal_pointer(&error));
    return false;
}

static bool resolve_route(RdmaConnection *c, GError **errp)
{
    if (rdma_resolve_route(c->id, RDMA_LIMIT_ADDRESS)) {
        return failed_call("could not resolve rdma route", errp);
    }
    return expect_event(c, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_LIMIT_ADDRESS + 1000,
                        "could not resolve rdma route", errp);
}

static bool connect_queue_pair(RdmaConnection *c, const RdmaPrivate *wanted, unsigned limit_ms, GError **errp)
{
    RdmaPrivate ask = *wanted;
    uint8_t data[RDMA_PRIVATE_SIZE];
    struct rdma_conn_param param = {
        .private_data = data, .private_data_len = sizeof(data),
        .initiator_depth = INITIATOR_DEPTH, .retry_count = RETRY_COUNT,
    };

    ask.chunk_shift = rdma_connection_chunk_shift(c, ask.chunk_shift);
    rdma_private_encode(data, &ask);
    if (rdma_connect(c->id, &param)) {
        return failed_call("connecting to destination!", errp);
    }
    struct rdma_cm_event *event =
        get_event(c, RDMA_CM_EVENT_ESTABLISHED, limit_ms, "connecting to destination!", errp);
    if (!event) {
        return false;
    }
    bool ok = rdma_private_parse_answer(&c->private_data, event->param.conn.private_data,
                                        event->param.conn.private_data_len, &ask, errp);
    if (!c->private_data.godwit) {
        c->private_data.chunk_shift = ask.chunk_shift;
    }
    rdma_ack_cm_event(event);
    trace_rdma_connected(c->private_data.pin_all, c->private_data.godwit, c->private_data.batches);
    return ok;
}

bool rdma_connection_connect(RdmaConnection *c, const InetSocketAddress *address, const RdmaPrivate *ask,
                             unsigned limit_ms, GCancellable *cancellable, GError **errp)
{
    if (!c->events) {
        c->events = rdma_create_event_channel();
    }
    if (!c->events) {
        return failed_call("could not create CM channel", errp);
    }
    return resolve_address(c, address, cancellable, errp) && resolve_route(c, errp) &&
           rdma_connection_set_up(c, errp) && connect_queue_pair(c, ask, limit_ms, errp);
}
