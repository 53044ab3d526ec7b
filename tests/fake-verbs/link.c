/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection under a queue pair: a stream socket, one thread that reads it and one that writes. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "internal.h"

/* A request goes in pieces of this size; each is checked on its own, as a device does with each packet. */
#define PIECE (256 * 1024)
#define RNR_WAIT_MS 1

/* ---- sockets ---- */

static bool read_all(int fd, void *to, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = recv(fd, (uint8_t *)to + done, length - done, 0);
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return false;
        }
        done += MAX(n, 0);
    }
    return true;
}

static bool is_closing(FakeLink *link)
{
    fake_lock_acquire();
    bool closing = link->closing;
    fake_lock_release();
    return closing;
}

static bool write_all(FakeLink *link, const void *from, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = send(link->fd, (const uint8_t *)from + done, length - done, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR && (errno != EAGAIN || is_closing(link))) {
            return false;
        }
        done += MAX(n, 0);
    }
    return true;
}

static void set_options(int fd)
{
    /* A peer that is stopped must not keep this end from closing. */
    struct timeval limit = { .tv_sec = 1 };
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
}

/* ---- the writer ---- */

/* The next piece of the next request, into @buffer after @m; its length, 0 if there is nothing to send. */
static size_t next_piece(FakeLink *link, uint8_t *buffer)
{
    FakeQp *qp = fake_id_qp(link->id);
    FakeSend *send = qp ? fake_qp_next_send(qp) : NULL;
    if (!send) {
        return 0;
    }
    if (link->writing != send->number) {
        link->writing = send->number;
        link->written = 0;
    }
    FakeMessage *m = (FakeMessage *)buffer;
    size_t length = MIN(PIECE, send->length - link->written);
    *m = (FakeMessage){
        .type = send->opcode == IBV_WR_SEND ? FAKE_MSG_SEND : FAKE_MSG_WRITE,
        .length = length,
        .number = send->number,
        .address = send->remote_addr + link->written,
        .rkey = send->rkey,
        .no_copy = send->fate.no_copy,
        .rnr_retry = link->id->rnr_retry,
    };
    fake_qp_gather(send, link->written, buffer + sizeof(*m), length);
    link->written += length;
    m->last = link->written == send->length;
    send->sent = m->last;
    return sizeof(*m) + length;
}

static void *write_loop(void *opaque)
{
    FakeLink *link = opaque;
    g_autofree uint8_t *buffer = g_malloc(sizeof(FakeMessage) + PIECE);
    bool good = true;
    fake_lock_acquire();
    while (good) {
        GBytes *message = g_queue_pop_head(&link->out);
        size_t length = message || link->closing ? 0 : next_piece(link, buffer);
        if (!message && !length) {
            if (link->closing) {
                break;
            }
            pthread_cond_wait(&link->wake, &fake_lock);
            continue;
        }
        fake_lock_release();
        good = message ? write_all(link, g_bytes_get_data(message, NULL), g_bytes_get_size(message))
                       : write_all(link, buffer, length);
        g_clear_pointer(&message, g_bytes_unref);
        fake_lock_acquire();
    }
    fake_lock_release();
    return NULL;
}

void fake_link_kick(FakeLink *link)
{
    if (link->id) {
        pthread_cond_broadcast(&link->wake);
    }
}

void fake_link_send(FakeLink *link, const FakeMessage *message, const void *data)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_byte_array_append(bytes, (const guint8 *)message, sizeof(*message));
    g_byte_array_append(bytes, data, message->length);
    g_queue_push_tail(&link->out, g_byte_array_free_to_bytes(g_steal_pointer(&bytes)));
    fake_link_kick(link);
}

/* ---- the reader ---- */

static void answer(FakeLink *link, const FakeMessage *request, enum ibv_wc_status status)
{
    if (status != IBV_WC_SUCCESS) {
        link->refused = request->number;
    } else if (!request->last) {
        return;
    }
    FakeMessage m = { .type = FAKE_MSG_ANSWER, .number = request->number, .status = status };
    fake_link_send(link, &m, NULL);
}

static void wait_for_receive(FakeLink *link)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += RNR_WAIT_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&link->wake, &fake_lock, &until);
}

static enum ibv_wc_status message_arrives(FakeLink *link, const FakeMessage *m, const uint8_t *data)
{
    bool for_ever = m->rnr_retry == 7 || fake_settings.patient;
    for (unsigned tries = 0;; tries++) {
        FakeQp *qp = fake_id_qp(link->id);
        enum ibv_wc_status status = qp ? fake_qp_message_arrives(qp, m, data) : IBV_WC_RETRY_EXC_ERR;
        if (status != IBV_WC_RNR_RETRY_EXC_ERR) {
            return status;
        }
        fake_numbers[FAKE_RNR]++;
        if ((!for_ever && tries >= m->rnr_retry) || link->closing) {
            g_printerr("fake-verbs: a message came and no receive was posted\n");
            return status;
        }
        wait_for_receive(link);
    }
}

static void handle(FakeLink *link, const FakeMessage *m, const uint8_t *data)
{
    FakeQp *qp = fake_id_qp(link->id);
    switch (m->type) {
    case FAKE_MSG_WRITE:
        if (m->number > link->refused) {
            answer(link, m, qp ? fake_qp_write_arrives(qp, m, data) : IBV_WC_RETRY_EXC_ERR);
        }
        break;
    case FAKE_MSG_SEND:
        if (m->number > link->refused) {
            answer(link, m, message_arrives(link, m, data));
        }
        break;
    case FAKE_MSG_ANSWER:
        if (qp) {
            fake_qp_answered(qp, m->number, m->status);
        }
        break;
    default:
        fake_id_message(link->id, m, data);
        break;
    }
}

static bool connect_first(FakeLink *link)
{
    const struct sockaddr_storage *to = &link->id->id.route.addr.dst_storage;
    socklen_t length = to->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int error = connect(link->fd, (const struct sockaddr *)to, length) == 0 ? 0 : errno;
    fake_lock_acquire();
    if (!link->closing && error) {
        fake_id_connect_failed(link->id, error);
    } else if (!link->closing) {
        FakeMessage m = { .type = FAKE_MSG_CONNECT, .length = sizeof(link->id->private_data),
                          .rnr_retry = link->id->own_rnr_retry };
        fake_link_send(link, &m, link->id->private_data);
    }
    fake_lock_release();
    return !error;
}

static void *read_loop(void *opaque)
{
    FakeLink *link = opaque;
    g_autofree uint8_t *buffer = g_malloc(PIECE);
    if (link->connect && !connect_first(link)) {
        return NULL;
    }
    FakeMessage m;
    while (read_all(link->fd, &m, sizeof(m)) && m.length <= PIECE && read_all(link->fd, buffer, m.length)) {
        fake_lock_acquire();
        if (!link->closing) {
            handle(link, &m, buffer);
        }
        fake_lock_release();
    }
    fake_lock_acquire();
    link->peer_gone = true;
    if (!link->closing) {
        fake_id_peer_gone(link->id);
    }
    FakeQp *qp = fake_id_qp(link->id);
    FakeSend *first = qp ? g_queue_peek_head(&qp->sends) : NULL;
    if (first && first->sent) {
        fake_qp_answered(qp, first->number, IBV_WC_RETRY_EXC_ERR);
    }
    fake_link_kick(link);
    fake_lock_release();
    return NULL;
}

/* ---- beginning and end ---- */

int fake_link_start(FakeLink *link, FakeId *id, int fd, bool connect)
{
    *link = (FakeLink){ .id = id, .fd = fd, .connect = connect };
    pthread_cond_init(&link->wake, NULL);
    g_queue_init(&link->out);
    set_options(fd);
    int error = pthread_create(&link->writer, NULL, write_loop, link);
    if (error) {
        g_error("fake-verbs: no thread: %s", strerror(error));
    }
    error = pthread_create(&link->reader, NULL, read_loop, link);
    if (error) {
        g_error("fake-verbs: no thread: %s", strerror(error));
    }
    return 0;
}

void fake_link_stop(FakeLink *link)
{
    fake_lock_acquire();
    link->closing = true;
    fake_link_kick(link);
    fake_lock_release();
    pthread_join(link->writer, NULL);
    shutdown(link->fd, SHUT_RDWR);
    pthread_join(link->reader, NULL);
    close(link->fd);
    pthread_cond_destroy(&link->wake);
    g_queue_clear_full(&link->out, (GDestroyNotify)g_bytes_unref);
}
