/* SPDX-License-Identifier: BSD-2-Clause */
/* The source's end of the return path: a thread that reads the destination's messages. */
#include "migration/precopy.h"

#include "migration/return-path.h"
#include "trace-migration.h"
#include "util/error.h"

/* A peer that fails sends its verdict and closes; both are on their way when our next write fails. */
#define LINGER_US (200 * 1000)

static bool handle_shut(Migration *m, const ReturnPathMessage *msg, GError **errp)
{
    if (msg->value) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "Sibling indicated error %u", msg->value);
        return false;
    }
    return true;
}

static bool handle_pong(Migration *m, const ReturnPathMessage *msg, GError **errp)
{
    trace_return_path_pong(msg->value);
    if (msg->value == SAVEVM_PING_AFTER_SETUP) {
        g_mutex_lock(&m->ctx->lock);
        m->setup_pong_pending = false;
        g_cond_broadcast(&m->ctx->cond);
        g_mutex_unlock(&m->ctx->lock);
    }
    return true;
}

static bool handle_ack(Migration *m, const ReturnPathMessage *msg, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&m->ctx->lock);
    if (m->acks_pending > 0) {
        m->acks_pending--;
        g_cond_broadcast(&m->ctx->cond);
    } else if (!m->options->props.switchover_ack_legacy) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "Switchover ack pending num underflowed");
        return false;
    }
    return true;
}

static bool (*const handlers[RETURN_PATH__MAX])(Migration *m, const ReturnPathMessage *msg, GError **errp) = {
    [RETURN_PATH_SHUT] = handle_shut,
    [RETURN_PATH_PONG] = handle_pong,
    [RETURN_PATH_SWITCHOVER_ACK] = handle_ack,
};

/* One message.  *@last: it was SHUT. */
static bool handle_one(Migration *m, Channel *channel, bool *last, GError **errp)
{
    ReturnPathMessage msg;
    int got = return_path_read(channel, &msg, errp);

    if (got == 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_EOF,
                    "the destination closed the connection before it reported success");
    }
    if (got != 1) {
        return false;
    }
    trace_return_path_message(return_path_type_name(msg.type));
    *last = msg.type == RETURN_PATH_SHUT;
    if (!handlers[msg.type]) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "the destination sent the return path message %s in a precopy migration",
                    return_path_type_name(msg.type));
        return false;
    }
    return handlers[msg.type](m, &msg, errp);
}

static void ended(Migration *m, Channel *channel, bool ok, GError *error)
{
    if (!ok) {
        migration_set_error(m, error);
        channel_shutdown(channel);      /* the migration thread may be writing */
    }
    g_mutex_lock(&m->ctx->lock);
    m->return_path_ended = true;
    m->return_path_ok = ok;
    g_cond_broadcast(&m->ctx->cond);
    g_mutex_unlock(&m->ctx->lock);
}

static gpointer return_path_thread(gpointer opaque)
{
    Migration *m = opaque;
    g_autoptr(Channel) channel = channel_ref(m->channel);
    GError *error = NULL;
    bool ok = true, last = false;

    while (ok && !last) {
        ok = handle_one(m, channel, &last, &error);
    }
    ended(m, channel, ok, error);
    return NULL;
}

void migration_return_path_start(Migration *m)
{
    m->return_path_thread = g_thread_new("return path", return_path_thread, m);
}

bool migration_return_path_wait(Migration *m, GError **errp)
{
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&m->ctx->lock);
    while (!m->return_path_ended && !m->cancel_requested) {
        g_cond_wait(&m->ctx->cond, &m->ctx->lock);
    }
    if (m->return_path_ok) {
        return true;
    }
    return migration_interrupted(m, errp);
}

bool migration_return_path_linger(Migration *m)
{
    int64_t until = g_get_monotonic_time() + LINGER_US;
    g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&m->ctx->lock);
    while (m->return_path_thread && !m->return_path_ended && !m->cancel_requested) {
        if (!g_cond_wait_until(&m->ctx->cond, &m->ctx->lock, until)) {
            break;
        }
    }
    return m->return_path_ended && m->return_path_ok;
}

void migration_return_path_stop(Migration *m)
{
    if (!m->return_path_thread) {
        return;
    }
    g_mutex_lock(&m->ctx->lock);
    bool running = !m->return_path_ended;
    g_mutex_unlock(&m->ctx->lock);
    if (running) {
        channel_shutdown(m->channel);
    }
    g_thread_join(m->return_path_thread);
    m->return_path_thread = NULL;
}
