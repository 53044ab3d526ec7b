/* SPDX-License-Identifier: BSD-2-Clause */
/* What the two kinds of monitor, QMP and HMP, share. */
#ifndef GODWIT_MONITOR_MONITOR_INTERNAL_H
#define GODWIT_MONITOR_MONITOR_INTERNAL_H

#include "monitor/monitor.h"

#include <jansson.h>

/* A client that leaves this many bytes unread is not served until it has read. */
#define MONITOR_OUTPUT_HIGH (64u << 10)

/* What a kind of monitor does.  No entry is NULL.  Main thread. */
typedef struct MonitorKind {
    /* A client has come: greet it. */
    void (*opened)(Monitor *mon);

    /* It has gone: forget everything about it. */
    void (*closed)(Monitor *mon);

    /*
     * Uses up some of the bytes, at most one command's worth, and returns how many.  May call
     * monitor_block(); the rest is then offered again after monitor_unblock().
     */
    size_t (*consume)(Monitor *mon, const char *data, size_t len);

    /* @event happened. */
    void (*event)(Monitor *mon, const json_t *event);

    /* The monitor ends; closed() has been called if a client was there. */
    void (*free)(Monitor *mon);
} MonitorKind;

/* Descriptors on their way from a client to a command. */
typedef struct FdBatch {
    int *fds;
    size_t count;
} FdBatch;

void fd_batch_clear(FdBatch *batch); /* closes them */

/* Bytes as they came from the character device. */
typedef struct InputChunk {
    char *data;
    size_t len, pos;
    FdBatch fds;
} InputChunk;

/* All fields belong to the main thread. */
struct Monitor {
    MonitorContext *ctx;
    Chardev *chr;
    const MonitorKind *kind;
    void *session; /* of the kind */

    GQueue input; /* of InputChunk */
    FdBatch fds;  /* came with the latest bytes that had some; getfd and add-fd take the first */
    bool in_input;
    bool paused;         /* the device has been told not to read on */
    unsigned blocked;    /* count of monitor_block() */
    guint resume_source; /* goes on with the input from the main loop */
};

Monitor *monitor_new(MonitorContext *ctx, Chardev *chr, const MonitorKind *kind);

/* Writes to the client. */
void monitor_write(Monitor *mon, const void *buf, size_t len);

/* Input waits until every block has been undone. */
void monitor_block(Monitor *mon);
void monitor_unblock(Monitor *mon);

/*
 * The first descriptor that came with the request being handled; the caller's.  -1 and an error if none did.
 */
int monitor_take_message_fd(Monitor *mon, GError **errp);

/* Sends the events that are queued.  Main thread. */
void monitor_flush_events(MonitorContext *ctx);

/* The monitor on @chr, or NULL. */
Monitor *monitor_find(MonitorContext *ctx, const Chardev *chr);

/* ---- the kinds ---- */

void qmp_session_init(Monitor *mon, bool pretty);
extern const MonitorKind qmp_monitor_kind;

/* qmp_capabilities: ends negotiation. */
bool qmp_session_negotiate(Monitor *mon, bool oob, GError **errp);

void hmp_session_init(Monitor *mon);
extern const MonitorKind hmp_monitor_kind;

#endif
