/* SPDX-License-Identifier: BSD-2-Clause */
/* Monitors: their list, their input, the queue of events. */

/*
 * Input.  Bytes come in chunks from the character device and are offered to the monitor's kind command by
 * command. When a command must wait (the client does not read, HMP waits for a migration, the QMP queue is
 * full) the rest of the chunk is kept and the device is told not to read on: so what a client can make the
 * program hold is one chunk, one request, its queue of eight, and MONITOR_OUTPUT_HIGH plus one reply of
 * output.  Events go out regardless; a client that never reads them is cut off by the character device at its
 * own limit.
 *
 * Events.  Any thread may raise one.  All go through one queue in the order in which they were raised.  The
 * main thread empties it at once; from another thread an idle source does.  A command's reply is only written
 * after the queue has been emptied.
 */
#include "monitor-internal.h"

#include "fd-store.h"
#include "hmp.h"
#include "trace-monitor.h"
#include "util/error.h"
#include "qapi/qapi-events-run-state.h"

#include <string.h>
#include <unistd.h>

/* How often a client that does not read is looked at. */
#define OUTPUT_POLL_MS 10
#define FLUSH_MS       1000

typedef struct MonitorSet {
    GThread *main_thread;
    GPtrArray *monitors;   /* of Monitor; main thread */
    GMutex lock;           /* guards the rest */
    GQueue events;         /* of json_t, oldest first */
    GSource *event_source; /* will empty the queue; NULL: none needed */
    HmpFormat hmp_format;  /* main thread */
} MonitorSet;

/* ---- events ---- */

void monitor_flush_events(MonitorContext *ctx)
{
    MonitorSet *set = ctx->monitors;
    json_t *event;

    for (;;) {
        g_mutex_lock(&set->lock);
        event = g_queue_pop_head(&set->events);
        g_mutex_unlock(&set->lock);
        if (!event) {
            return;
        }
        for (guint i = 0; i < set->monitors->len; i++) {
            Monitor *mon = g_ptr_array_index(set->monitors, i);
            mon->kind->event(mon, event);
        }
        json_decref(event);
    }
}

static gboolean flush_events_now(gpointer opaque)
{
    MonitorContext *ctx = opaque;
    MonitorSet *set = ctx->monitors;

    g_mutex_lock(&set->lock);
    g_clear_pointer(&set->event_source, g_source_unref);
    g_mutex_unlock(&set->lock);
    monitor_flush_events(ctx);
    return G_SOURCE_REMOVE;
}

static json_t *make_event(const char *name, json_t *data)
{
    gint64 now = g_get_real_time();
    json_t *event = json_object();

    json_object_set_new(event, "timestamp",
                        json_pack("{s:I, s:I}", "seconds", (json_int_t)(now / G_USEC_PER_SEC), "microseconds",
                                  (json_int_t)(now % G_USEC_PER_SEC)));
    json_object_set_new(event, "event", json_string(name));
    if (data) {
        json_object_set_new(event, "data", data);
    }
    return event;
}

void monitor_event(MonitorContext *ctx, const char *name, json_t *data)
{
    MonitorSet *set = ctx->monitors;

    if (!set) {
        json_decref(data);
        return;
    }
    bool main_thread = g_thread_self() == set->main_thread;

    trace_monitor_event(name);
    g_mutex_lock(&set->lock);
    g_queue_push_tail(&set->events, make_event(name, data));
    if (!main_thread && !set->event_source) {
        set->event_source = g_idle_source_new();
        g_source_set_priority(set->event_source, G_PRIORITY_DEFAULT);
        g_source_set_callback(set->event_source, flush_events_now, ctx, NULL);
        g_source_attach(set->event_source, NULL);
    }
    g_mutex_unlock(&set->lock);
    if (main_thread) {
        monitor_flush_events(ctx);
    }
}

static void run_state_changed(Machine *m, RunState old_state, RunState new_state, void *opaque)
{
    MonitorContext *ctx = opaque;

    if (new_state == RUN_STATE_RUNNING) {
        qapi_event_send_resume(ctx);
    } else if (old_state == RUN_STATE_RUNNING) {
        qapi_event_send_stop(ctx);
    }
}

void monitor_request_shutdown(MonitorContext *ctx, ShutdownCause cause)
{
    if (ctx->shutting_down) {
        return;
    }
    ctx->shutting_down = true;
    bool guest = cause == SHUTDOWN_CAUSE_GUEST_SHUTDOWN || cause == SHUTDOWN_CAUSE_GUEST_RESET ||
                 cause == SHUTDOWN_CAUSE_GUEST_PANIC;
    qapi_event_send_shutdown(ctx, guest, cause);
    if (ctx->main_loop) {
        g_main_loop_quit(ctx->main_loop);
    }
}

/* ---- descriptors that come with a request ---- */

void fd_batch_clear(FdBatch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        close(batch->fds[i]);
    }
    g_clear_pointer(&batch->fds, g_free);
    batch->count = 0;
}

int monitor_take_message_fd(Monitor *mon, GError **errp)
{
    if (!mon || mon->fds.count == 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "No file descriptor supplied via SCM_RIGHTS");
        return -1;
    }
    int fd = mon->fds.fds[0];
    mon->fds.count--;
    memmove(mon->fds.fds, mon->fds.fds + 1, mon->fds.count * sizeof(int));
    return fd;
}

/* ---- input ---- */

static void run_input(Monitor *mon);

static void input_chunk_free(gpointer opaque)
{
    InputChunk *chunk = opaque;

    fd_batch_clear(&chunk->fds);
    g_free(chunk->data);
    g_free(chunk);
}

static gboolean resume_input(gpointer opaque)
{
    Monitor *mon = opaque;

    mon->resume_source = 0;
    run_input(mon);
    return G_SOURCE_REMOVE;
}

/* There is input that could be used, or nothing more that could stop it. */
static bool may_go_on(Monitor *mon)
{
    if (mon->blocked || mon->ctx->shutting_down || g_queue_is_empty(&mon->input)) {
        return false;
    }
    if (chardev_pending(mon->chr) < MONITOR_OUTPUT_HIGH) {
        return true;
    }
    if (!mon->resume_source) {
        mon->resume_source = g_timeout_add(OUTPUT_POLL_MS, resume_input, mon);
    }
    return false;
}

static void consume_chunk(Monitor *mon, InputChunk *chunk)
{
    if (chunk->fds.count) {
        fd_batch_clear(&mon->fds);
        mon->fds = chunk->fds;
        chunk->fds = (FdBatch){ 0 };
    }
    chunk->pos += mon->kind->consume(mon, chunk->data + chunk->pos, chunk->len - chunk->pos);
    if (chunk->pos == chunk->len) {
        input_chunk_free(g_queue_pop_head(&mon->input));
    }
}

static void run_input(Monitor *mon)
{
    if (mon->in_input) {
        return;
    }
    mon->in_input = true;
    while (may_go_on(mon)) {
        consume_chunk(mon, g_queue_peek_head(&mon->input));
    }
    mon->in_input = false;

    bool pause = !g_queue_is_empty(&mon->input);
    if (pause != mon->paused) {
        mon->paused = pause;
        chardev_pause_receive(mon->chr, pause);
    }
}

void monitor_block(Monitor *mon)
{
    mon->blocked++;
}

void monitor_unblock(Monitor *mon)
{
    g_assert(mon->blocked > 0);
    if (--mon->blocked == 0 && !mon->resume_source) {
        mon->resume_source = g_idle_add_full(G_PRIORITY_DEFAULT, resume_input, mon, NULL);
    }
}

HmpFormat *hmp_last_format(MonitorContext *ctx)
{
    return &ctx->monitors->hmp_format;
}

void monitor_write(Monitor *mon, const void *buf, size_t len)
{
    chardev_write(mon->chr, buf, len);
}

/* ---- the character device's side ---- */

static void drop_input(Monitor *mon)
{
    g_queue_clear_full(&mon->input, input_chunk_free);
    fd_batch_clear(&mon->fds);
    g_clear_handle_id(&mon->resume_source, g_source_remove);
}

static void client_opened(void *opaque)
{
    Monitor *mon = opaque;

    trace_monitor_connect(chardev_label(mon->chr));
    mon->kind->opened(mon);
}

static void client_closed(void *opaque)
{
    Monitor *mon = opaque;

    trace_monitor_disconnect(chardev_label(mon->chr));
    mon->kind->closed(mon);
    drop_input(mon);
    mon->blocked = 0;
    if (mon->paused) {
        mon->paused = false;
        chardev_pause_receive(mon->chr, false);
    }
}

static void client_sent(void *opaque, const uint8_t *buf, size_t len, int *fds, size_t n_fds)
{
    Monitor *mon = opaque;
    InputChunk *chunk = g_new0(InputChunk, 1);

    chunk->data = g_memdup2(buf, len);
    chunk->len = len;
    chunk->fds.fds = g_memdup2(fds, n_fds * sizeof(int));
    chunk->fds.count = n_fds;
    g_queue_push_tail(&mon->input, chunk);
    run_input(mon);
}

static const ChardevHandlers monitor_handlers = {
    .opened = client_opened,
    .closed = client_closed,
    .receive = client_sent,
};

/* ---- life ---- */

static void monitor_free(gpointer opaque)
{
    Monitor *mon = opaque;

    chardev_flush(mon->chr, FLUSH_MS);
    chardev_set_handlers(mon->chr, NULL, NULL);
    if (chardev_is_open(mon->chr)) {
        mon->kind->closed(mon);
    }
    drop_input(mon);
    mon->kind->free(mon);
    g_free(mon);
}

bool monitor_add(MonitorContext *ctx, Chardev *chr, MonitorMode mode, bool pretty, GError **errp)
{
    if (pretty && mode != MONITOR_MODE_CONTROL) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "'pretty' is not compatible with HMP monitors");
        return false;
    }
    if (chardev_has_front_end(chr)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE, "Device '%s' is in use", chardev_label(chr));
        return false;
    }

    Monitor *mon = g_new0(Monitor, 1);
    mon->ctx = ctx;
    mon->chr = chr;
    if (mode == MONITOR_MODE_CONTROL) {
        mon->kind = &qmp_monitor_kind;
        qmp_session_init(mon, pretty);
    } else {
        mon->kind = &hmp_monitor_kind;
        hmp_session_init(mon);
    }
    g_ptr_array_add(ctx->monitors->monitors, mon);
    chardev_set_handlers(chr, &monitor_handlers, mon);
    return true;
}

void monitor_context_init(MonitorContext *ctx)
{
    MonitorSet *set = g_new0(MonitorSet, 1);

    set->main_thread = g_thread_self();
    set->monitors = g_ptr_array_new_with_free_func(monitor_free);
    g_mutex_init(&set->lock);
    set->hmp_format = (HmpFormat){ .format = 'x', .size = 4 };
    ctx->monitors = set;
    ctx->fds = fd_store_new();
    if (ctx->machine) {
        machine_add_run_state_listener(ctx->machine, run_state_changed, ctx);
    }
}

void monitor_context_cleanup(MonitorContext *ctx)
{
    MonitorSet *set = ctx->monitors;

    if (!set) {
        return;
    }
    monitor_flush_events(ctx);
    g_ptr_array_free(set->monitors, true);
    ctx->monitors = NULL;
    if (set->event_source) {
        g_source_destroy(set->event_source);
        g_source_unref(set->event_source);
    }
    g_queue_clear_full(&set->events, (GDestroyNotify)json_decref);
    g_mutex_clear(&set->lock);
    g_free(set);
    g_clear_pointer(&ctx->fds, fd_store_free);
}
