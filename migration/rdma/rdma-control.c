/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: the credits of a control channel, and the queue of messages that wait for one. */
#include "migration/rdma/rdma-control.h"

#include "util/error.h"

/* Stream bytes that wait are sent together up to this: what a receiver's buffer takes. */
#define JOIN_MAX RDMA_PAYLOAD_MAX

void rdma_control_init(RdmaControl *c, RdmaRole role)
{
    *c = (RdmaControl){ .role = role, .queue = G_QUEUE_INIT };
}

void rdma_control_clear(RdmaControl *c)
{
    g_queue_clear_full(&c->queue, g_free);
}

static RdmaMessage *message_new(RdmaControlType type, uint32_t repeat, const void *payload, size_t length)
{
    RdmaMessage *m = g_malloc(sizeof(*m) + length);

    m->type = type;
    m->repeat = repeat;
    m->length = length;
    if (length) {
        memcpy(m->payload, payload, length);
    }
    return m;
}

void rdma_control_queue(RdmaControl *c, RdmaControlType type, uint32_t repeat, const void *payload,
                        size_t length)
{
    RdmaMessage *last = g_queue_peek_tail(&c->queue);

    if (last && type == RDMA_CONTROL_QEMU_FILE && last->type == type && last->length + length <= JOIN_MAX) {
        g_queue_pop_tail(&c->queue);
        last = g_realloc(last, sizeof(*last) + last->length + length);
        memcpy(last->payload + last->length, payload, length);
        last->length += length;
        g_queue_push_tail(&c->queue, last);
        return;
    }
    g_queue_push_tail(&c->queue, message_new(type, repeat, payload, length));
}

unsigned rdma_control_queued(const RdmaControl *c)
{
    return c->queue.length;
}

static RdmaControlType reply_to(RdmaControlType type)
{
    switch (type) {
    case RDMA_CONTROL_RAM_BLOCKS_REQUEST:
        return RDMA_CONTROL_RAM_BLOCKS_RESULT;
    case RDMA_CONTROL_REGISTER_REQUEST:
        return RDMA_CONTROL_REGISTER_RESULT;
    case RDMA_CONTROL_UNREGISTER_REQUEST:
        return RDMA_CONTROL_UNREGISTER_FINISHED;
    default:
        return RDMA_CONTROL_NONE;
    }
}

RdmaMessage *rdma_control_next(RdmaControl *c)
{
    if (c->role != RDMA_SENDER || !c->ready || c->reply != RDMA_CONTROL_NONE ||
        g_queue_is_empty(&c->queue)) {
        return NULL;
    }
    RdmaMessage *m = g_queue_pop_head(&c->queue);
    c->ready = false;
    c->reply = reply_to(m->type);
    return m;
}

void rdma_control_ready_sent(RdmaControl *c)
{
    c->owed++;
}

void rdma_control_first_is_free(RdmaControl *c)
{
    c->owed++;
}

static bool unexpected(RdmaControlType expected, unsigned type, GError **errp)
{
    return error_set_protocol(errp, "Was expecting a %s (%u) control message, but got: %s (%u)",
                              rdma_control_name(expected), (unsigned)expected, rdma_control_name(type), type);
}

static bool received_by_sender(RdmaControl *c, unsigned type, GError **errp)
{
    RdmaControlType expected = c->reply != RDMA_CONTROL_NONE ? c->reply : RDMA_CONTROL_READY;

    if (type != expected) {
        return unexpected(expected, type, errp);
    }
    if (type == RDMA_CONTROL_READY) {
        if (c->ready) {
            return error_set_protocol(errp, "The peer has sent READY twice for one control message");
        }
        c->ready = true;
    }
    c->reply = RDMA_CONTROL_NONE;
    return true;
}

static bool received_by_receiver(RdmaControl *c, unsigned type, GError **errp)
{
    if (!c->owed) {
        return error_set_protocol(errp, "The peer has sent the control message %s (%u) without READY",
                                  rdma_control_name(type), type);
    }
    if (type == RDMA_CONTROL_READY) {
        return error_set_protocol(errp, "The peer has sent READY where it is to send messages");
    }
    c->owed--;
    return true;
}

bool rdma_control_received(RdmaControl *c, unsigned type, GError **errp)
{
    if (type == RDMA_CONTROL_ERROR) {
        return error_set_protocol(errp, "The peer has reported an error (control message ERROR)");
    }
    return c->role == RDMA_SENDER ? received_by_sender(c, type, errp) : received_by_receiver(c, type, errp);
}
