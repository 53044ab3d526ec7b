/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of the fake share: its objects, its one lock, its settings. */
#ifndef GODWIT_TESTS_FAKE_VERBS_INTERNAL_H
#define GODWIT_TESTS_FAKE_VERBS_INTERNAL_H

#include <glib.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "fake-verbs.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

/* The one lock: it guards every object here.  No socket is read or written with it held. */
extern pthread_mutex_t fake_lock;

static inline void fake_lock_acquire(void)
{
    pthread_mutex_lock(&fake_lock);
}

static inline void fake_lock_release(void)
{
    pthread_mutex_unlock(&fake_lock);
}

/* ---- settings.c: counts, faults ---- */

/* Verb, what it sets errno to when it is made to fail. */
#define FAKE_VERBS(X)                       \
    X(rdma_create_event_channel, ENODEV)    \
    X(rdma_destroy_event_channel, 0)        \
    X(rdma_create_id, ENOMEM)               \
    X(rdma_destroy_id, EINVAL)              \
    X(rdma_getaddrinfo, EADDRNOTAVAIL)      \
    X(rdma_freeaddrinfo, 0)                 \
    X(rdma_bind_addr, EADDRNOTAVAIL)        \
    X(rdma_listen, ENOMEM)                  \
    X(rdma_resolve_addr, EADDRNOTAVAIL)     \
    X(rdma_resolve_route, EHOSTUNREACH)     \
    X(rdma_create_qp, ENOMEM)               \
    X(rdma_destroy_qp, 0)                   \
    X(rdma_connect, ECONNREFUSED)           \
    X(rdma_accept, ENOMEM)                  \
    X(rdma_reject, EINVAL)                  \
    X(rdma_disconnect, EINVAL)              \
    X(rdma_get_cm_event, EIO)               \
    X(rdma_ack_cm_event, EINVAL)            \
    X(rdma_set_option, ENOSYS)              \
    X(ibv_query_device, EIO)                \
    X(ibv_query_device_ex, EIO)             \
    X(ibv_query_port, EIO)                  \
    X(ibv_alloc_pd, ENOMEM)                 \
    X(ibv_dealloc_pd, EBUSY)                \
    X(ibv_create_comp_channel, EMFILE)      \
    X(ibv_destroy_comp_channel, EBUSY)      \
    X(ibv_create_cq, ENOMEM)                \
    X(ibv_destroy_cq, EBUSY)                \
    X(ibv_req_notify_cq, EIO)               \
    X(ibv_get_cq_event, EIO)                \
    X(ibv_ack_cq_events, 0)                 \
    X(ibv_poll_cq, EIO)                     \
    X(ibv_reg_mr, ENOMEM)                   \
    X(ibv_dereg_mr, EBUSY)                  \
    X(ibv_advise_mr, EIO)                   \
    X(ibv_post_send, EINVAL)                \
    X(ibv_post_recv, EINVAL)

typedef enum FakeVerb {
#define X(name, error) FAKE_##name,
    FAKE_VERBS(X)
#undef X
    FAKE_VERB_COUNT
} FakeVerb;

/* Kinds of objects that are counted. */
typedef enum FakeKind {
    FAKE_EVENT_CHANNEL, FAKE_ID, FAKE_EVENT, FAKE_ADDRINFO, FAKE_PD, FAKE_COMP_CHANNEL, FAKE_CQ, FAKE_QP,
    FAKE_MR, FAKE_KIND_COUNT
} FakeKind;

/* Numbers of the report. */
typedef enum FakeNumber {
    FAKE_WRITES, FAKE_WRITE_BYTES, FAKE_SENDS, FAKE_RECEIVES, FAKE_DOORBELLS, FAKE_SIGNALLED,
    FAKE_MAX_OUTSTANDING, FAKE_PINNED, FAKE_MAX_PINNED, FAKE_RNR, FAKE_INJECTED, FAKE_VIOLATIONS,
    FAKE_NUMBER_COUNT
} FakeNumber;

extern uint64_t fake_numbers[FAKE_NUMBER_COUNT];    /* under fake_lock */

void fake_created(FakeKind kind);
void fake_destroyed(FakeKind kind);
/* Counts the call; 0, or the errno with which it is to fail. Takes the lock. */
int fake_call(FakeVerb verb);
/* Counts a violation and prints it.  Lock held. */
void fake_violation(const char *format, ...) G_GNUC_PRINTF(1, 2);

typedef enum FakeOperation { FAKE_OP_WRITE, FAKE_OP_SEND, FAKE_OP_RECV, FAKE_OP_COUNT } FakeOperation;

/* What is to happen to one work request, decided when it is posted. */
typedef struct FakeFate {
    enum ibv_wc_status status;  /* other than success: it completes with this and does nothing */
    bool no_copy;               /* it completes, but moves no data */
    bool stall;                 /* it never completes, nor does anything behind it */
    enum ibv_wc_status lost_ack;    /* not SUCCESS: it arrives, and completes as if it had not */
} FakeFate;

/* Counts a work request of @operation.  Lock held. */
FakeFate fake_fate(FakeOperation operation);
/* 0, or the error with which this work request is refused when it is posted.  Lock held. */
int fake_refuse_request(void);
/* The event that comes in place of @type, -1 for none.  Lock held. */
int fake_replace_event(enum rdma_cm_event_type type);

typedef struct FakeLimits {
    uint64_t max_qp_wr, max_cqe, max_cq, max_qp, max_mr, max_mr_size, max_msg_sz, max_sge, memlock;
} FakeLimits;

typedef struct FakeSettings {
    FakeLimits limits;
    uint64_t delay_min, delay_max;  /* us, for each completion and event */
    uint64_t late[FAKE_OP_COUNT];   /* us that a completion of this operation takes besides */
    bool odp;                       /* the device has on-demand paging */
    bool no_pin;                    /* memory can be registered on demand only, but for receive buffers */
    bool no_advise;                 /* advice is not supported */
    bool patient;                   /* messages wait for a receive, whatever was agreed */
    uint64_t zero_rkey;             /* the Nth region gets the key 0 */
    GRand *rand;                    /* NULL: none needed */
} FakeSettings;

extern FakeSettings fake_settings;  /* under fake_lock */

/* ---- delivery.c: what arrives later ---- */

/*
 * Runs @deliver(@item) with the lock held: now, if there is no delay, or after a random one and @late us,
 * from a thread of its own.  Deliveries of one @lane keep their order, those of different lanes do not.  If
 * @owner goes away first (fake_delivery_forget()) @drop(@item) is called instead.  Lock held.
 */
typedef struct FakeLane {
    int64_t last_due;
} FakeLane;

void fake_deliver(FakeLane *lane, uint64_t late, const void *owner, void (*deliver)(void *),
                  void (*drop)(void *), void *item);
void fake_delivery_forget(const void *owner);

/* ---- device.c ---- */

struct ibv_context *fake_context(void);

typedef struct FakeMr {
    struct ibv_mr mr;
    int access;
    bool pinned;
} FakeMr;

typedef struct FakePd {
    struct ibv_pd pd;
    unsigned users;
} FakePd;

typedef struct FakeCompChannel {
    struct ibv_comp_channel channel;    /* fd is the reading end of a pipe, a byte for each event */
    int write_fd;
    GQueue events;              /* the FakeCq of each */
    unsigned users;
} FakeCompChannel;

typedef struct FakeQp FakeQp;

typedef struct FakeCq {
    struct ibv_cq cq;
    GQueue ready;               /* of FakeCompletion */
    unsigned held;              /* completions in @ready and on their way there */
    bool armed;
    unsigned events, events_acked;      /* events that were got; of these, acknowledged */
    unsigned users;
} FakeCq;

typedef struct FakeCompletion {
    FakeCq *cq;
    FakeQp *qp;
    struct ibv_wc wc;
    uint64_t send_number;       /* of a send: how many before it, and it, are done; 0 for a receive */
} FakeCompletion;

/* Puts a completion on its way.  Lock held. */
void fake_complete(FakeLane *lane, FakeCq *cq, FakeQp *qp, const struct ibv_wc *wc, uint64_t send_number);
/* The region of @key, if [@address, @address + @length) is in it with @access; else NULL.  Lock held. */
FakeMr *fake_find_mr(const struct ibv_pd *pd, uint32_t key, uint64_t address, uint64_t length, int access);
void fake_cq_forget_qp(FakeCq *cq, FakeQp *qp);

/* ---- what goes from one end to the other ---- */

typedef enum FakeMessageType {
    FAKE_MSG_CONNECT, FAKE_MSG_ACCEPT, FAKE_MSG_READY, FAKE_MSG_ESTABLISHED, FAKE_MSG_REJECT,
    FAKE_MSG_DISCONNECT, FAKE_MSG_DISCONNECTED, FAKE_MSG_WRITE, FAKE_MSG_SEND, FAKE_MSG_ANSWER
} FakeMessageType;

/* Both ends run on one machine: its own byte order. */
typedef struct FakeMessage {
    uint32_t type;
    uint32_t length;            /* bytes that follow */
    uint64_t number;            /* of the request */
    uint64_t address;           /* WRITE: of this piece */
    uint32_t rkey;
    uint32_t status;            /* ANSWER */
    uint32_t last;              /* WRITE, SEND: no more pieces of this request */
    uint32_t no_copy;
    uint32_t rnr_retry;
    uint32_t reserved;
} FakeMessage;

/* ---- queue-pair.c ---- */

typedef struct FakeId FakeId;

typedef struct FakeSend {
    uint64_t number;            /* counts from 1 in each queue pair */
    uint64_t wr_id;
    enum ibv_wr_opcode opcode;
    bool signalled;
    bool sent;                  /* on its way to the peer, or there */
    FakeFate fate;
    uint64_t remote_addr;
    uint32_t rkey;
    uint64_t length;
    uint8_t *inline_data;       /* NULL: in @sge */
    unsigned num_sge;
    struct ibv_sge sge[];
} FakeSend;

typedef struct FakeRecv {
    uint64_t wr_id;
    FakeFate fate;
    unsigned num_sge;
    struct ibv_sge sge[];
} FakeRecv;

struct FakeQp {
    struct ibv_qp qp;
    FakeId *id;
    struct ibv_qp_cap cap;
    bool signal_all;
    GQueue sends;               /* FakeSend: posted, not known to be done; those sent come first */
    uint64_t sends_posted, sends_freed;
    GQueue recvs;               /* FakeRecv */
    uint64_t arrived;           /* bytes of the message that is arriving for the first of @recvs */
    FakeLane send_lane, recv_lane;
};

FakeQp *fake_qp_create(FakeId *id, FakePd *pd, struct ibv_qp_init_attr *attr);
void fake_qp_free(FakeQp *qp);
void fake_qp_to_error(FakeQp *qp);
/* The oldest request that is to go out now; NULL: none. */
FakeSend *fake_qp_next_send(FakeQp *qp);
/* The peer's answer to request @number.  The queue pair is in error afterwards if it is not success. */
void fake_qp_answered(FakeQp *qp, uint64_t number, enum ibv_wc_status status);
bool fake_qp_uses_key(uint32_t lkey);
/* Reads from the program's memory; the number of bytes. */
size_t fake_qp_gather(const FakeSend *send, uint64_t offset, uint8_t *to, size_t length);
/* A piece of the peer's request, with the lock held.  RNR_RETRY_EXC: there is no receive for it. */
enum ibv_wc_status fake_qp_write_arrives(FakeQp *qp, const FakeMessage *m, const uint8_t *data);
enum ibv_wc_status fake_qp_message_arrives(FakeQp *qp, const FakeMessage *m, const uint8_t *data);
/* The operations behind ibv_post_send() and ibv_post_recv(). */
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- link.c: the connection under a queue pair ---- */

typedef struct FakeLink {
    FakeId *id;
    int fd;
    pthread_t reader, writer;
    bool connect;               /* the reader connects first */
    bool closing, peer_gone;
    pthread_cond_t wake;        /* of the writer, and of a reader that waits for a receive */
    GQueue out;                 /* GBytes: messages that go before any request */
    uint64_t refused;           /* the last request of the peer that was answered with an error */
    uint64_t writing, written;  /* the request that is going out, and how many of its bytes have */
} FakeLink;

/* Takes @fd.  Begins to read, after connecting to the id's destination if @connect.  0 or an errno. */
int fake_link_start(FakeLink *link, FakeId *id, int fd, bool connect);
/* Lock held. */
void fake_link_send(FakeLink *link, const FakeMessage *message, const void *data);
/* Something can be sent.  Lock held. */
void fake_link_kick(FakeLink *link);
/* Without the lock; the threads are gone afterwards. */
void fake_link_stop(FakeLink *link);

/* ---- connection.c ---- */

typedef enum FakeIdState {
    FAKE_ID_IDLE, FAKE_ID_BOUND, FAKE_ID_RESOLVED, FAKE_ID_ROUTED, FAKE_ID_LISTENING, FAKE_ID_CONNECTING,
    FAKE_ID_REQUESTED, FAKE_ID_ACCEPTED, FAKE_ID_CONNECTED, FAKE_ID_ENDED
} FakeIdState;

#define FAKE_PRIVATE_DATA_REQUEST 56
#define FAKE_PRIVATE_DATA_ANSWER 196

struct FakeId {
    struct rdma_cm_id id;
    FakeIdState state;
    FakeId *listener;           /* whose request this is, until the program has it */
    GQueue requests;            /* of a listener: ids that the program does not have yet */
    FakeLink link;
    bool has_link;
    int fd;                     /* bound; -1: none */
    pthread_t acceptor;
    bool listening;             /* there is an acceptor */
    bool disconnecting, told_disconnected;
    uint8_t private_data[FAKE_PRIVATE_DATA_REQUEST];
    uint8_t answer[FAKE_PRIVATE_DATA_ANSWER];   /* the peer's private data */
    unsigned own_rnr_retry;     /* how patient the peer's messages are */
    unsigned rnr_retry;         /* how patient this side's are: the peer said so */
    unsigned events;            /* got and not acknowledged */
    FakeLane lane;
};

/* The reader has a message that concerns the connection itself.  Lock held. */
void fake_id_message(FakeId *id, const FakeMessage *message, const uint8_t *data);
/* The connection attempt failed with @error, or the peer has gone.  Lock held. */
void fake_id_connect_failed(FakeId *id, int error);
void fake_id_peer_gone(FakeId *id);

static inline FakeQp *fake_id_qp(FakeId *id)
{
    return (FakeQp *)id->id.qp;
}

#endif
