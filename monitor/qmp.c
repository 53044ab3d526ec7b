/* SPDX-License-Identifier: BSD-2-Clause */
/* QMP sessions: greeting, negotiation, requests in and out of band, replies, events. */

/*
 * A client without the oob capability is served one request at a time: each runs as soon as it has been read.
 * With the capability, requests are read ahead: those of exec-oob run when they have been read, the others
 * wait in a queue of QUEUE_MAX and run from the main loop one by one.  Everything is in the main thread,
 * where no command blocks, so nothing is gained by a thread for the reader.
 */
#include "monitor-internal.h"

#include "json-parser.h"
#include "json-writer.h"
#include "qmp-request.h"
#include "qapi/qapi-commands-control.h"
#include "qapi/qapi-visit-control.h"
#include "qapi/qmp-command.h"
#include "trace-monitor.h"
#include "util/error.h"

#include <string.h>

/* In-band requests that a client with the oob capability may have waiting. */
#define QUEUE_MAX 8

/* A request that waits for its turn, or the reply to what was no request. */
typedef struct QueuedRequest {
    json_t *json; /* NULL: a parse error */
    GError *error;
    FdBatch fds;
} QueuedRequest;

typedef struct QmpSession {
    bool pretty;
    /* Of the present client. */
    JsonParser *parser;
    bool negotiated;
    bool oob;
    GQueue queue;     /* of QueuedRequest; only with oob */
    bool queue_full;  /* the input is blocked for that */
    guint run_source; /* runs the queue */
    FdBatch left_fds; /* no request of the queue has taken them yet */
} QmpSession;

/* ---- output ---- */

static void send_json(Monitor *mon, const json_t *json)
{
    QmpSession *s = mon->session;
    g_autoptr(GString) text = g_string_new(NULL);

    json_writer_append(text, json, s->pretty);
    g_string_append_c(text, '\n');
    if (s->pretty) {
        g_string_replace(text, "\n", "\r\n", 0);
    } else {
        g_string_insert_c(text, (gssize)text->len - 1, '\r');
    }
    monitor_write(mon, text->str, text->len);
}

/* Takes @reply. */
static void send_reply(Monitor *mon, json_t *reply)
{
    monitor_flush_events(mon->ctx);
    send_json(mon, reply);
    json_decref(reply);
}

static void qmp_event(Monitor *mon, const json_t *event)
{
    QmpSession *s = mon->session;

    if (s->negotiated) {
        send_json(mon, event);
    }
}

static void send_greeting(Monitor *mon)
{
    g_autoptr(VersionInfo) version = qmp_query_version(mon->ctx, NULL);
    json_t *qmp = json_object();
    json_t *greeting = json_object();

    json_object_set_new(qmp, "version", qapi_VersionInfo_to_json(version));
    json_object_set_new(qmp, "capabilities", json_pack("[s]", "oob"));
    json_object_set_new(greeting, "QMP", qmp);
    send_json(mon, greeting);
    json_decref(greeting);
}

/* ---- running requests ---- */

static const QmpCommand *find_command(const QmpSession *s, const QmpRequest *request, GError **errp)
{
    if (!s->negotiated && strcmp(request->command, "qmp_capabilities") != 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_COMMAND_NOT_FOUND,
                    "Expecting capabilities negotiation with 'qmp_capabilities'");
        return NULL;
    }
    const QmpCommand *command = qmp_command_find(request->command);
    if (!command) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_COMMAND_NOT_FOUND, "The command %s has not been found",
                    request->command);
        return NULL;
    }
    if (request->oob && !command->allow_oob) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "The command %s does not support OOB",
                    request->command);
        return NULL;
    }
    return command;
}

/* What follows the first line is a hint for people; it is no part of the protocol. */
static void drop_hint(GError *error)
{
    char *end = strchr(error->message, '\n');

    if (end) {
        *end = '\0';
    }
}

static json_t *run_command(Monitor *mon, json_t *json, GError **errp)
{
    QmpSession *s = mon->session;
    QmpRequest request;

    if (!qmp_request_check(json, s->oob, &request, errp)) {
        return NULL;
    }
    const QmpCommand *command = find_command(s, &request, errp);
    if (!command) {
        return NULL;
    }
    trace_monitor_qmp_command(request.command, request.oob);
    /* What happened before the end of negotiation is not for this client. */
    monitor_flush_events(mon->ctx);
    GError *err = NULL;
    json_t *result = command->run(mon->ctx, mon, request.arguments, &err);
    if (!result) {
        drop_hint(err);
        g_propagate_error(errp, err);
    }
    return result;
}

static void run_request(Monitor *mon, json_t *json)
{
    g_autoptr(GError) err = NULL;
    json_t *result = run_command(mon, json, &err);

    if (!result) {
        trace_monitor_qmp_error(err->message);
    }
    send_reply(mon, result ? qmp_reply_return(result, json) : qmp_reply_error(err, json));
}

/* ---- the queue of a client with the oob capability ---- */

static void queued_request_free(gpointer opaque)
{
    QueuedRequest *queued = opaque;

    json_decref(queued->json);
    g_clear_error(&queued->error);
    fd_batch_clear(&queued->fds);
    g_free(queued);
}

/*
 * A request runs with the descriptors that came with it or, if none did, with what the request before it
 * left: they travel with a piece of the stream, which may hold earlier requests as well.
 */
static void run_queued(Monitor *mon, QueuedRequest *queued)
{
    QmpSession *s = mon->session;

    if (!queued->json) {
        send_reply(mon, qmp_reply_error(queued->error, NULL));
        return;
    }
    FdBatch arrived = mon->fds;
    if (queued->fds.count) {
        fd_batch_clear(&s->left_fds);
        s->left_fds = queued->fds;
        queued->fds = (FdBatch){ 0 };
    }
    mon->fds = s->left_fds;
    run_request(mon, queued->json);
    s->left_fds = mon->fds;
    mon->fds = arrived;
}

static gboolean run_queue(gpointer opaque)
{
    Monitor *mon = opaque;
    QmpSession *s = mon->session;
    QueuedRequest *queued = mon->ctx->shutting_down ? NULL : g_queue_pop_head(&s->queue);

    if (queued) {
        run_queued(mon, queued);
        queued_request_free(queued);
    }
    if (s->queue_full && g_queue_get_length(&s->queue) < QUEUE_MAX) {
        s->queue_full = false;
        monitor_unblock(mon);
    }
    if (!queued || g_queue_is_empty(&s->queue)) {
        s->run_source = 0;
        return G_SOURCE_REMOVE;
    }
    return G_SOURCE_CONTINUE;
}

/* Takes @json and @error. */
static void enqueue(Monitor *mon, json_t *json, GError *error)
{
    QmpSession *s = mon->session;
    QueuedRequest *queued = g_new0(QueuedRequest, 1);

    queued->json = json;
    queued->error = error;
    queued->fds = mon->fds;
    mon->fds = (FdBatch){ 0 };
    g_queue_push_tail(&s->queue, queued);
    if (g_queue_get_length(&s->queue) >= QUEUE_MAX) {
        s->queue_full = true;
        monitor_block(mon);
    }
    if (!s->run_source) {
        s->run_source = g_idle_add_full(G_PRIORITY_DEFAULT, run_queue, mon, NULL);
    }
}

static bool is_out_of_band(const json_t *json)
{
    return json_object_get(json, "exec-oob") && !json_object_get(json, "execute");
}

/* ---- input ---- */

static size_t qmp_consume(Monitor *mon, const char *data, size_t len)
{
    QmpSession *s = mon->session;
    g_autoptr(GError) err = NULL;
    json_t *json = NULL;
    const char *p = data;
    size_t left = len;

    JsonParserResult result = json_parser_next(s->parser, &p, &left, &json, &err);
    if (result != JSON_PARSER_MORE && s->oob && !is_out_of_band(json)) {
        enqueue(mon, json, g_steal_pointer(&err));
        return len - left;
    }
    if (result == JSON_PARSER_VALUE) {
        run_request(mon, json);
        json_decref(json);
    } else if (result == JSON_PARSER_ERROR) {
        trace_monitor_qmp_error(err->message);
        send_reply(mon, qmp_reply_error(err, NULL));
    }
    return len - left;
}

/* ---- life of a session ---- */

bool qmp_session_negotiate(Monitor *mon, bool oob, GError **errp)
{
    QmpSession *s = mon->session;

    if (s->negotiated) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_COMMAND_NOT_FOUND,
                    "Capabilities negotiation is already complete, command ignored");
        return false;
    }
    s->negotiated = true;
    s->oob = oob;
    return true;
}

static void forget_client(QmpSession *s)
{
    g_clear_pointer(&s->parser, json_parser_free);
    g_clear_handle_id(&s->run_source, g_source_remove);
    g_queue_clear_full(&s->queue, queued_request_free);
    fd_batch_clear(&s->left_fds);
    s->negotiated = false;
    s->oob = false;
    s->queue_full = false;
}

static void qmp_opened(Monitor *mon)
{
    QmpSession *s = mon->session;

    forget_client(s);
    s->parser = json_parser_new();
    send_greeting(mon);
}

static void qmp_closed(Monitor *mon)
{
    forget_client(mon->session);
}

static void qmp_free(Monitor *mon)
{
    forget_client(mon->session);
    g_free(mon->session);
}

void qmp_session_init(Monitor *mon, bool pretty)
{
    QmpSession *s = g_new0(QmpSession, 1);

    s->pretty = pretty;
    g_queue_init(&s->queue);
    mon->session = s;
}

const MonitorKind qmp_monitor_kind = {
    .opened = qmp_opened,
    .closed = qmp_closed,
    .consume = qmp_consume,
    .event = qmp_event,
    .free = qmp_free,
};
