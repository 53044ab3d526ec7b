/* SPDX-License-Identifier: BSD-2-Clause */
/* What hangs off a MigrationContext; shared by migration.c, incoming.c and stats.c. */
#ifndef GODWIT_MIGRATION_CONTEXT_H
#define GODWIT_MIGRATION_CONTEXT_H

#include "migration/channel-probe.h"
#include "migration/channels.h"
#include "migration/downtime.h"
#include "migration/host.h"
#include "migration/page-file.h"
#include "migration/loadvm.h"
#include "migration/mapped-ram.h"
#include "migration/multifd.h"
#include "migration/policy.h"
#include "migration/ram.h"
#include "migration/rdma.h"
#include "migration/savevm.h"
#include "migration/state.h"

/* How many rounds query-migrate shows. */
#define MIGRATION_ROUNDS_MAX 64

/* Counters at the end of the round before, for the difference. */
typedef struct RoundMarks {
    uint64_t pages, bytes, sync_ns, clear_ns, clear_calls, cleared_pages, dirty_pages;
    int64_t time_us;
} RoundMarks;

/*
 * Figures of an outgoing migration.  Times are of g_get_monotonic_time(), 0: not yet.  Guarded
 * by the context's lock.
 */
typedef struct MigrationFigures {
    int64_t start_us, setup_done_us, end_us;
    Downtime downtime;
    double mbps, pages_per_second;
    int64_t expected_downtime_ms;
    unsigned throttle_percent;
    uint64_t ram_total;                     /* bytes of the blocks that are sent */
    uint64_t xbzrle_cache_size;
    RamStats ram;                           /* a copy, once the RamSave is gone */
    DirtyLogProviderStatsList *dirty_log;   /* likewise */
    MigrationRoundStats rounds[MIGRATION_ROUNDS_MAX];   /* a ring, written at n_rounds % MAX */
    uint64_t n_rounds;
    const char *file_engine;                /* of mapped-ram, a literal; NULL: none */
} MigrationFigures;

/* One outgoing migration, kept after its end until the next one begins. */
typedef struct Migration {
    MigrationContext *ctx;

    /* Fixed before the thread starts. */
    MigrationOptions *options;
    SocketAddress *connect_to;              /* NULL: channel is open already */
    GCancellable *cancellable;
    bool return_path;
    bool is_file;                           /* to be cut at @file_offset before the first byte */
    uint64_t file_offset;
    PageFile pages;                         /* with mapped-ram; closed by the migration thread */
    InetSocketAddress *rdma;                /* where to connect by RDMA; channel is not connected yet then */
    GThread *thread;                        /* joined by the main thread */

    /* Guarded by ctx->lock; ctx->cond is broadcast when one of these changes. */
    Channel *channel;                       /* the main channel, while there is one */
    GPtrArray *multifd_channels;            /* of Channel, in the order of their ids; NULL without multifd */
    bool cancel_requested;
    bool continue_requested;
    bool guest_stopped;                     /* by us */
    RamSave *ram;                           /* NULL before set-up and after the end */
    bool return_path_ended;
    bool return_path_ok;                    /* the destination said SHUT 0 */
    unsigned acks_pending;                  /* SWITCHOVER_ACK messages still to come */
    bool setup_pong_pending;                /* the destination has not yet taken what travels early */
    GError *error;                          /* the first one */
    MigrationFigures figures;
    MultifdCounters *multifd;               /* one for each channel, atomics; NULL without multifd */
    unsigned n_multifd;
    RdmaCounters rdma_counters;             /* atomics */

    /* The migration thread's own. */
    GThread *return_path_thread;
    StreamWriter *writer;
    Channel *closing;                       /* freed after the final state: it may take time */
    SaveVM *save;
    RunState old_run_state;                 /* before the guest was stopped */
    MigrationParameters *live;              /* values of now, not of the start */
    PolicyWindow window;
    uint64_t window_committed;              /* bytes sent and in flight when the window began */
    ThrottleState throttle;
    uint64_t dirty_limit;                   /* MB/s that every vCPU is limited to; 0: they are not */
    bool exact;                             /* no page was sent since the last sync */
    int64_t last_sync_us;
    uint64_t dirty_bytes_at_sync;
    RamRoundNotifier round_notifier;
    RoundMarks marks;
} Migration;

/* The process of receiving; one per attempt. */
typedef struct Incoming {
    MigrationContext *ctx;

    /* Fixed before anything arrives. */
    bool exit_on_error;
    bool rdma;                              /* pages come by RDMA */
    bool listens;                           /* others than the main channel may connect */
    MigrationOptions *options;              /* as they are when the first connection comes */
    MultifdRecv *multifd;                   /* likewise, with the capability; NULL without */
    PageFile pages;                         /* with mapped-ram */
    MappedRamLoad *mapped;                  /* likewise; NULL without */

    /* The main thread's own. */
    Listener *listener;
    RdmaListener *rdma_listener;
    GPtrArray *probes;                      /* of ChannelProbe: have not said yet what they are */
    guint extra_source;                     /* timer: closes those that nobody needs */
    GThread *thread;                        /* the load thread, joined by the main thread */
    guint end_source;                       /* idle callback that cleans up after the thread; [lock] */

    /* Guarded by ctx->lock. */
    Channel *channel;                       /* the main channel, once it has arrived */
    SocketAddressList *addresses;           /* where we listen; NULL when we do not */
    GError *mismatch;                       /* the source has channels that we do not expect */
    bool connections_seen;                  /* see incoming_drain_connections() */
    bool stopping;
    bool cut;                               /* by yank */
    bool memory_lost;                       /* the guest ran, or could, when reading its memory failed */
    GError *error;
    Downtime downtime;
} Incoming;

typedef struct MigrationBlocker {
    unsigned id;
    char *reason;
} MigrationBlocker;

struct MigrationContext {
    MigrationHost host;                     /* fixed */
    MigrationOptionStore *options;          /* has its own lock */

    GMutex lock;
    GCond cond;
    MigrationState outgoing_state;
    MigrationState incoming_state;

    /* Written by the main thread with the lock held: it may read them without, others with. */
    Migration *outgoing;                    /* the present or last one */
    Incoming *incoming;                     /* likewise */
    GArray *blockers;                       /* of MigrationBlocker */
    unsigned last_blocker;

    bool incoming_expected;                 /* the main thread's own */
};

/* Ends all I/O of @m at once.  The lock is held. */
void migration_shutdown_channels(Migration *m);

/* What capability dirty-limit works on; NULL without it. */
DirtyLimiter *migration_dirty_limiter(const Migration *m);

/* True while the step from outside makes the VM busy: capabilities are then refused.  Any thread. */
void migration_update_busy(MigrationContext *ctx, bool outgoing, bool incoming);

/* incoming.c: ends what runs and frees.  Main thread. */
void incoming_free(Incoming *in);

/*
 * incoming.c: the options of this attempt are those of now, if they have not been fixed before.  Main thread.
 */
void incoming_fix_options(Incoming *in);
/* incoming.c: starts the load thread; takes over @channel.  Main thread. */
void incoming_begin_load(Incoming *in, Channel *channel);

/* incoming-connections.c: a ListenerFunc; @opaque is the Incoming. */
void incoming_connection_accepted(Listener *listener, Channel *accepted, void *opaque);
/*
 * incoming-connections.c: no further connection; those that wait are closed, with a log line if @log.  Main
 * thread.
 */
void incoming_close_connections(Incoming *in, bool log);
/*
 * incoming-connections.c: returns when the main thread has looked at every connection that was there at the
 * time of the call.  False if one of them shows that the source's channels are not ours.  Load thread.
 */
bool incoming_drain_connections(Incoming *in, GError **errp);

/* stats.c: records the figures of each round of @m; called before ram_save_setup(). */
void migration_record_rounds(Migration *m);
/* stats.c: takes a copy of the counters before the RamSave goes.  @m->ctx->lock is held. */
void migration_keep_ram_stats(Migration *m);
/* stats.c: all time since the last phase of the downtime was @phase.  The migration thread. */
void migration_downtime_phase(Migration *m, DowntimePhase phase);

#endif
