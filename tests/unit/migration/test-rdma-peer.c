/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA towards a peer that a test plays, over the fake verbs: golden bytes, and what a peer can do wrong. */
#include "fake-verbs.h"
#include "migration/internal-options.h"
#include "migration/rdma.h"
#include "pair.h"
#include "rdma-peer.h"
#include "stream-builder.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024 * 1024ull)
#define SIZE (3 * MIB)
/* What the played destination says to be its block's position. */
#define FAR 0x100000000ull
#define PIN_ALL 1u
#define HURRIES (1u << 31)         /* not on the wire: Destination.hurries */

enum { ERROR_MSG = 1, READY = 2, QEMU_FILE = 3, BLOCKS_REQUEST = 4, BLOCKS_RESULT = 5, COMPRESS = 6,
       REGISTER_REQUEST = 7, REGISTER_RESULT = 8, REGISTER_FINISHED = 9, UNREGISTER_REQUEST = 10,
       UNREGISTER_FINISHED = 11 };

static void assert_nothing_left(void)
{
    g_autofree char *report = fake_verbs_report();
    if (fake_verbs_live() || fake_verbs_violations()) {
        g_error("left behind: %s", report);
    }
    fake_verbs_reset();
}

static void assert_contains(const char *text, const char *part)
{
    if (!text || !strstr(text, part)) {
        g_error("'%s' does not say '%s'", text, part);
    }
}

static uint64_t get_be64(const uint8_t *p)
{
    uint32_t words[2];
    memcpy(words, p, 8);
    return (uint64_t)ntohl(words[0]) << 32 | ntohl(words[1]);
}

/* ================ a destination that is played, and a source that is tested ================ */

typedef struct Destination Destination;

/* What it does instead of the right thing. */
typedef struct Lie {
    const char *name;
    uint32_t at;                /* type of the message that it answers wrongly; READY: it is to send one */
    unsigned nth;               /* from 1 */
    bool (*tell)(Destination *d);       /* NULL: it disconnects */
    const char *error;          /* what the source's message contains */
} Lie;

struct Destination {
    RdmaPeer peer;
    uint8_t *memory;
    uint64_t size;
    struct ibv_mr *mr;
    uint32_t flags;             /* of the answer */
    const Lie *lie;
    unsigned seen[16];          /* messages of each type; READY: those that were due */
    GByteArray *stream;
    GString *log;               /* first letter of each message: F B C R E(nd) */
    uint32_t most_more;         /* chunks after the first, of the longest request */
    bool in_hook;
    bool lied;
    int waits;                  /* atomic: it has asked for the one message that it wants */
    bool hurries;               /* disconnects as soon as it has the whole stream, as a QEMU does */
};

static bool is_the_moment(Destination *d, uint32_t type)
{
    d->seen[type]++;
    return d->lie && d->lie->at == type && d->lie->nth == d->seen[type];
}

static bool lie(Destination *d)
{
    d->lied = true;
    if (d->lie->tell) {
        return d->lie->tell(d);
    }
    peer_disconnect(&d->peer);
    return false;
}

static bool send_ready(Destination *d)
{
    if (is_the_moment(d, READY)) {
        return lie(d);
    }
    return peer_send(&d->peer, READY, 1, NULL, 0);
}

static bool answer_blocks(Destination *d)
{
    g_autoptr(GByteArray) s = g_byte_array_new();

    peer_assert_message(&d->peer, "00000000 00000004 00000001 00000000");
    g_assert_cmpuint(d->seen[BLOCKS_REQUEST], <=, 1);
    if (is_the_moment(d, BLOCKS_REQUEST)) {
        return lie(d);
    }
    put_be64(s, (uintptr_t)d->memory);
    put_be64(s, FAR);
    put_be64(s, d->size);
    put_be32(s, d->flags & PIN_ALL ? d->mr->rkey : 0);
    put_be32(s, 0x55555555);
    return peer_send(&d->peer, BLOCKS_RESULT, 1, s->data, s->len);
}

/* A request for a key, or a COMPRESS: one command of 24 bytes, which begins inside of the block. */
static void assert_command(Destination *d)
{
    RdmaPeer *p = &d->peer;
    uint32_t words[6];

    g_assert_cmpuint(p->received, ==, 40);
    memcpy(words, p->message, 16);
    g_assert_cmpuint(ntohl(words[0]), ==, 24);
    g_assert_cmpuint(ntohl(words[2]), ==, 1);
    g_assert_cmpuint(words[3], ==, 0);
    memcpy(words, p->payload, sizeof(words));
    unsigned address = p->type == COMPRESS ? 2 : 0;
    /* Value and block index of a COMPRESS, block index and padding of a request. */
    g_assert_cmpuint(words[2 - address], ==, 0);
    g_assert_cmpuint(words[3 - address], ==, 0);
    g_assert_cmpuint(ntohl(words[address]), ==, 1);
    g_assert_cmpuint(ntohl(words[address + 1]), <, d->size);
}

static void put_result(Stream *s, uint32_t rkey, uint64_t host)
{
    put_be32(s, rkey);
    put_be32(s, 0x55555555);
    put_be64(s, host);
}

/* As real ones do: one result whatever was asked for. */
static bool answer_register(Destination *d)
{
    g_autoptr(GByteArray) s = g_byte_array_new();
    RdmaPeer *p = &d->peer;

    assert_command(d);
    if (is_the_moment(d, REGISTER_REQUEST)) {
        return lie(d);
    }
    d->most_more = MAX(d->most_more, (uint32_t)get_be64(p->payload + 16));
    put_result(s, d->mr->rkey, (uintptr_t)d->memory);
    return peer_send(p, REGISTER_RESULT, p->repeat, s->data, s->len);
}

static bool obey_compress(Destination *d)
{
    RdmaPeer *p = &d->peer;
    uint32_t words[6];

    assert_command(d);
    memcpy(words, p->payload, sizeof(words));
    uint64_t address = (uint64_t)ntohl(words[2]) << 32 | ntohl(words[3]);
    uint64_t length = (uint64_t)ntohl(words[4]) << 32 | ntohl(words[5]);
    g_assert_cmpuint(words[0], ==, 0);
    g_assert_cmpuint(words[1], ==, 0);
    g_assert_cmpuint(address, >=, FAR);
    g_assert_cmpuint(address + length, <=, FAR + d->size);
    memset(d->memory + (address - FAR), 0, length);
    return true;
}

static bool take_stream(Destination *d)
{
    static const uint8_t marker[8] = { [7] = 0x80 };
    RdmaPeer *p = &d->peer;

    g_assert_cmpuint(p->length, >, 0);
    g_assert_cmpuint(p->length, <=, PEER_MESSAGE - PEER_HEADER);
    g_byte_array_append(d->stream, p->payload, p->length);
    /* Nothing may follow a hook marker in its message. */
    d->in_hook = d->stream->len >= 8 && memcmp(d->stream->data + d->stream->len - 8, marker, 8) == 0;
    return true;
}

static bool obey(Destination *d)
{
    RdmaPeer *p = &d->peer;

    g_string_append_c(d->log, "?!?FB?CR?E??"[p->type % 12]);
    if (p->type == QEMU_FILE) {
        g_assert_false(d->in_hook);
        return take_stream(d);
    }
    if (p->type == ERROR_MSG) {
        return false;           /* the source gives up */
    }
    g_assert_true(d->in_hook);
    switch (p->type) {
    case BLOCKS_REQUEST:
        return answer_blocks(d);
    case COMPRESS:
        return obey_compress(d);
    case REGISTER_REQUEST:
        return answer_register(d);
    case REGISTER_FINISHED:
        peer_assert_message(p, "00000000 00000009 00000001 00000000");
        d->in_hook = false;
        return true;
    default:
        g_error("the source sends a message of type %u", p->type);
    }
}

/* Its last byte ends the description; no other message ends with this one. */
static bool has_all(const Destination *d)
{
    return d->stream->len && d->stream->data[d->stream->len - 1] == '}';
}

static gpointer destination_thread(gpointer opaque)
{
    Destination *d = opaque;

    if (!peer_accept(&d->peer, 1, d->flags)) {
        return NULL;
    }
    d->mr = peer_register(&d->peer, d->memory, d->size);
    d->peer.impatient = d->hurries;
    while (send_ready(d) && peer_receive(&d->peer) && obey(d)) {
        if (d->hurries && has_all(d)) {
            peer_disconnect(&d->peer);
        }
    }
    return NULL;
}

typedef struct Play {
    Vm src;
    Destination d;
    GThread *thread;
    uint8_t *content;
} Play;

static void play_begin(Play *play, const Lie *untruth, uint32_t flags, bool empty)
{
    Destination *d = &play->d;

    *d = (Destination){ .memory = g_malloc(SIZE), .size = SIZE, .flags = flags & ~HURRIES,
                        .hurries = flags & HURRIES, .lie = untruth,
                        .stream = g_byte_array_new(), .log = g_string_new(NULL) };
    memset(d->memory, 0xa5, SIZE);
    unsigned port = peer_listen(&d->peer);
    vm_init(&play->src, SIZE, false);
    if (!empty) {
        vm_fill_random(&play->src, 3);
    }
    play->content = g_memdup2(play->src.block->host, SIZE);
    vm_set_capability(&play->src, MIGRATION_CAPABILITY_RDMA_PIN_ALL, flags & PIN_ALL);
    vm_set_parameter(&play->src, "max-bandwidth", "0");
    play->thread = g_thread_new("destination", destination_thread, d);
    g_autofree char *uri = g_strdup_printf("rdma:127.0.0.1:%u", port);
    pair_migrate(&play->src, uri);
}

static void play_end(Play *play)
{
    if (play->thread) {
        g_thread_join(play->thread);
    }
    peer_free(&play->d.peer);
    g_free(play->d.memory);
    g_byte_array_free(play->d.stream, TRUE);
    g_string_free(play->d.log, TRUE);
    g_free(play->content);
    vm_clear(&play->src);
    assert_nothing_left();
}

static void test_source(gconstpointer data)
{
    Play play;
    play_begin(&play, NULL, GPOINTER_TO_UINT(data), false);
    g_assert_cmpint(vm_wait_end(&play.src), ==, MIGRATION_STATUS_COMPLETED);
    g_thread_join(g_steal_pointer(&play.thread));
    g_assert_cmpmem(play.d.memory, SIZE, play.src.block->host, SIZE);
    /* magic, version; configuration section */
    g_assert_cmpmem(play.d.stream->data, 13, "QEVM\0\0\0\3\7\0\0\0\4", 13);
    /* The setup's part: one request for the block table, nothing else. */
    g_assert_true(g_str_has_prefix(play.d.log->str, "F"));
    g_assert_nonnull(strstr(play.d.log->str, "FBE"));
    g_assert_cmpuint(play.d.seen[BLOCKS_REQUEST], ==, 1);
    if (play.d.flags & PIN_ALL) {
        g_assert_null(strpbrk(play.d.log->str, "CR"));
    } else {
        g_assert_nonnull(strchr(play.d.log->str, 'R'));
    }
    play_end(&play);
}

/* A Godwit asks for batches and a chunk shift in bits that a QEMU does not look at. */
static void test_source_private_data(gconstpointer data)
{
    bool pin_all = GPOINTER_TO_UINT(data) & PIN_ALL;
    Play play;
    play_begin(&play, NULL, pin_all ? PIN_ALL : 0, false);
    g_assert_cmpint(vm_wait_end(&play.src), ==, MIGRATION_STATUS_COMPLETED);
    g_assert_cmpmem(play.d.peer.private_data, 4, "\0\0\0\1", 4);
    /* 67, shift 20, batches, pin-all: see rdma-wire.h. */
    g_assert_cmpmem(play.d.peer.private_data + 4, 4, pin_all ? "\x67\0\x14\3" : "\x67\0\x14\2", 4);
    play_end(&play);
}

/* Nothing longer is asked for than what the destination says that its device can register as one. */
static void test_source_regions(gconstpointer data)
{
    uint32_t region_shift = GPOINTER_TO_UINT(data);
    Play play;
    play_begin(&play, NULL, 0x67001400 | region_shift << 16, false);
    g_assert_cmpint(vm_wait_end(&play.src), ==, MIGRATION_STATUS_COMPLETED);
    g_thread_join(g_steal_pointer(&play.thread));
    g_assert_cmpmem(play.d.memory, SIZE, play.src.block->host, SIZE);
    /* Of three chunks; 0: the destination does not tell. */
    g_assert_cmpuint(play.d.most_more, ==, region_shift == 20 ? 0 : region_shift == 21 ? 1 : 2);
    play_end(&play);
}

/* The destination has all and goes at once: the connection's end is here before the last completion. */
static void test_source_late_completion(void)
{
    Play play;
    g_assert_null(fake_verbs_set("late=send:30000"));
    play_begin(&play, NULL, HURRIES, false);
    g_assert_cmpint(vm_wait_end(&play.src), ==, MIGRATION_STATUS_COMPLETED);
    g_thread_join(g_steal_pointer(&play.thread));
    g_assert_true(has_all(&play.d));
    g_assert_cmpmem(play.d.memory, SIZE, play.src.block->host, SIZE);
    play_end(&play);
}

/* All of memory is zero: it is said in COMPRESS, and no key is asked for. */
static void test_source_zeroes(void)
{
    Play play;
    play_begin(&play, NULL, 0, true);
    g_assert_cmpint(vm_wait_end(&play.src), ==, MIGRATION_STATUS_COMPLETED);
    g_thread_join(g_steal_pointer(&play.thread));
    g_assert_nonnull(strchr(play.d.log->str, 'C'));
    g_assert_null(strchr(play.d.log->str, 'R'));
    g_assert_cmpuint(fake_verbs_number("writes"), ==, 0);
    g_assert_cmpmem(play.d.memory, SIZE, play.src.block->host, SIZE);
    play_end(&play);
}

/* ---- lies of a destination ---- */

static bool tell_error(Destination *d)
{
    return peer_send(&d->peer, ERROR_MSG, 1, NULL, 0);
}

static bool tell_type_0(Destination *d)
{
    return peer_send(&d->peer, 0, 1, NULL, 0);
}

static bool tell_type_12(Destination *d)
{
    return peer_send(&d->peer, 12, 1, NULL, 0);
}

static bool tell_file(Destination *d)
{
    return peer_send(&d->peer, QEMU_FILE, 1, "x", 1);
}

static bool tell_empty_file(Destination *d)
{
    return peer_send(&d->peer, QEMU_FILE, 1, NULL, 0);
}

static bool tell_finished(Destination *d)
{
    return peer_send(&d->peer, REGISTER_FINISHED, 1, NULL, 0);
}

/* The header counts more bytes than have come. */
static bool tell_more(Destination *d)
{
    uint32_t message[12] = { htonl(48), htonl(READY), htonl(1) };
    return peer_send_raw(&d->peer, message, sizeof(message));
}

static bool tell_huge(Destination *d)
{
    uint32_t message[4] = { htonl(524273), htonl(BLOCKS_RESULT), htonl(1) };
    return peer_send_raw(&d->peer, message, sizeof(message));
}

static bool tell_half_a_header(Destination *d)
{
    uint32_t message[2] = { 0, htonl(READY) };
    return peer_send_raw(&d->peer, message, sizeof(message));
}

static bool tell_blocks(Destination *d, unsigned n, uint64_t size, size_t length)
{
    g_autoptr(GByteArray) s = g_byte_array_new();
    for (unsigned i = 0; i < n; i++) {
        put_be64(s, (uintptr_t)d->memory);
        put_be64(s, FAR);
        put_be64(s, size);
        put_be64(s, 0);
    }
    return peer_send(&d->peer, BLOCKS_RESULT, 1, s->data, length);
}

static bool tell_no_blocks(Destination *d)
{
    return tell_blocks(d, 0, 0, 0);
}

static bool tell_two_blocks(Destination *d)
{
    return tell_blocks(d, 2, SIZE, 64);
}

static bool tell_odd_blocks(Destination *d)
{
    return tell_blocks(d, 1, SIZE, 31);
}

static bool tell_small_block(Destination *d)
{
    return tell_blocks(d, 1, SIZE - 4096, 32);
}

static bool tell_result(Destination *d)
{
    g_autoptr(GByteArray) s = g_byte_array_new();
    put_result(s, 5, 0);
    return peer_send(&d->peer, REGISTER_RESULT, 1, s->data, s->len);
}

static bool tell_key_0(Destination *d)
{
    g_autoptr(GByteArray) s = g_byte_array_new();
    put_result(s, 0, (uintptr_t)d->memory);
    return peer_send(&d->peer, REGISTER_RESULT, 1, s->data, s->len);
}

static bool tell_short_result(Destination *d)
{
    return peer_send(&d->peer, REGISTER_RESULT, 1, d->memory, 15);
}

static bool tell_many_results(Destination *d)
{
    g_autofree uint8_t *zeros = g_malloc0(64);
    return peer_send(&d->peer, REGISTER_RESULT, 4, zeros, 64);
}

static bool tell_wrong_key(Destination *d)
{
    g_autoptr(GByteArray) s = g_byte_array_new();
    put_result(s, d->mr->rkey + 7, (uintptr_t)d->memory);
    return peer_send(&d->peer, REGISTER_RESULT, 1, s->data, s->len);
}

static bool tell_unregistered(Destination *d)
{
    return peer_send(&d->peer, UNREGISTER_FINISHED, 1, NULL, 0);
}

/* After the answer, while the source writes. */
static bool tell_result_and_error(Destination *d)
{
    g_autoptr(GByteArray) s = g_byte_array_new();
    put_result(s, d->mr->rkey, (uintptr_t)d->memory);
    return peer_send(&d->peer, REGISTER_RESULT, 1, s->data, s->len) && tell_error(d);
}

static const Lie lies[] = {
    { "ready/error", READY, 1, tell_error, "ERROR" },
    { "ready/error-in-the-hook", READY, 2, tell_error, "ERROR" },
    { "ready/error-later", READY, 5, tell_error, "ERROR" },
    { "ready/type-0", READY, 1, tell_type_0, "" },
    { "ready/type-12", READY, 2, tell_type_12, "" },
    { "ready/qemu-file", READY, 2, tell_file, "QEMU_FILE" },
    { "ready/empty-qemu-file", READY, 2, tell_empty_file, "" },
    { "ready/register-finished", READY, 3, tell_finished, "REGISTER_FINISHED" },
    { "ready/register-result", READY, 3, tell_result, "REGISTER_RESULT" },
    { "ready/length-lies", READY, 2, tell_more, "" },
    { "ready/length-huge", READY, 2, tell_huge, "" },
    { "ready/half-a-header", READY, 2, tell_half_a_header, "" },
    { "ready/disconnects-1", READY, 1, NULL, "" },
    { "ready/disconnects-2", READY, 2, NULL, "" },
    { "ready/disconnects-4", READY, 4, NULL, "" },
    { "blocks/error", BLOCKS_REQUEST, 1, tell_error, "ERROR" },
    { "blocks/wrong-type", BLOCKS_REQUEST, 1, tell_result, "REGISTER_RESULT" },
    { "blocks/none", BLOCKS_REQUEST, 1, tell_no_blocks, "" },
    { "blocks/two", BLOCKS_REQUEST, 1, tell_two_blocks, "ram blocks mismatch" },
    { "blocks/odd", BLOCKS_REQUEST, 1, tell_odd_blocks, "" },
    { "blocks/smaller", BLOCKS_REQUEST, 1, tell_small_block, "m0" },
    { "blocks/huge", BLOCKS_REQUEST, 1, tell_huge, "" },
    { "blocks/disconnects", BLOCKS_REQUEST, 1, NULL, "" },
    { "register/error", REGISTER_REQUEST, 1, tell_error, "ERROR" },
    { "register/wrong-type", REGISTER_REQUEST, 1, tell_unregistered, "UNREGISTER_FINISHED" },
    { "register/rkey-0", REGISTER_REQUEST, 1, tell_key_0, "rkey" },
    { "register/short", REGISTER_REQUEST, 1, tell_short_result, "" },
    { "register/too-many", REGISTER_REQUEST, 1, tell_many_results, "" },
    { "register/wrong-key", REGISTER_REQUEST, 1, tell_wrong_key, "remote access error" },
    { "register/then-error", REGISTER_REQUEST, 1, tell_result_and_error, "ERROR" },
    { "register/disconnects", REGISTER_REQUEST, 1, NULL, "" },
};

static void test_lie(gconstpointer data)
{
    Play play;
    play_begin(&play, data, 0, false);
    g_assert_cmpint(vm_wait_end(&play.src), ==, MIGRATION_STATUS_FAILED);
    g_autoptr(MigrationInfo) info = migration_query(play.src.ctx);
    g_test_message("%s", info->error_desc);
    assert_contains(info->error_desc, play.d.lie->error);
    g_assert_cmpuint(strlen(info->error_desc), >, 10);
    pair_assert_runs_on(&play.src);
    g_assert_cmpmem(play.src.block->host, SIZE, play.content, SIZE);
    g_assert_true(play.d.lied);
    play_end(&play);
}

/* ---- the source's channel alone ---- */

typedef struct Ending {
    const char *name;
    bool receives;              /* the destination takes what is sent */
    bool shut_down;
} Ending;

static const Ending endings[] = {
    { "received", true, false },
    { "not-received-shut-down", false, true },
};

static gpointer take_messages(gpointer opaque)
{
    Destination *d = opaque;

    if (peer_accept(&d->peer, 1, 0) && d->hurries && send_ready(d)) {
        g_atomic_int_set(&d->waits, true);
        peer_receive(&d->peer);
    }
    return NULL;
}

/* Closing well means that all has been received: without a return path nothing else gives the guest away. */
static void test_channel_end(gconstpointer data)
{
    const Ending *ending = data;
    Destination d = { .hurries = ending->receives };
    RdmaCounters counters = { 0 };
    g_autoptr(GError) error = NULL;
    unsigned number = peer_listen(&d.peer);
    g_autofree char *port = g_strdup_printf("%u", number);
    InetSocketAddress address = { .host = (char *)"127.0.0.1", .port = port };
    MigrationOptionStore *store = migration_option_store_new();
    MigrationOptions *options = migration_options_snapshot(store);

    RdmaSourceConfig config = { .address = &address, .options = options, .counters = &counters };
    GThread *thread = g_thread_new("destination", take_messages, &d);
    Channel *channel = rdma_channel_new(&config, &error);
    g_assert_no_error(error);
    g_assert_true(rdma_channel_connect(channel, NULL, &error));
    while (ending->receives && !g_atomic_int_get(&d.waits)) {
        g_usleep(1000);
    }
    struct iovec iov = { (char *)"last", 4 };
    g_assert_cmpint(channel_writev(channel, &iov, 1, NULL, 0, 0, &error), ==, 4);
    if (ending->shut_down) {
        channel_shutdown(channel);
    }
    g_assert_true(channel_close(channel, &error) == ending->receives);
    g_assert_true(!error == ending->receives);
    channel_unref(channel);
    g_thread_join(thread);
    peer_free(&d.peer);
    migration_options_free(options);
    migration_option_store_free(store);
    assert_nothing_left();
}

/* ================ a source that is played, and a destination that is tested ================ */

typedef struct Source {
    RdmaPeer peer;
    unsigned port;
    uint32_t flags;
    Vm *dst;
    void (*act)(struct Source *s);
    uint64_t host, offset;      /* of the block, as the destination said */
    uint32_t rkey;
    bool connected;
} Source;

/* Waits for the READY that this costs. */
static bool say(Source *s, uint32_t type, uint32_t repeat, const void *payload, size_t length)
{
    return peer_receive_ready(&s->peer) && peer_send(&s->peer, type, repeat, payload, length);
}

static bool say_stream(Source *s, Stream *stream)
{
    bool good = say(s, QEMU_FILE, 0, stream->data, stream->len);
    g_byte_array_set_size(stream, 0);
    return good;
}

static void put_marker(Stream *s)
{
    put_be64(s, 0x80);
}

/* As far as the hook of the set-up. */
static void say_header(Source *s)
{
    g_autoptr(GByteArray) b = g_byte_array_new();
    put_header(b);
    put_configuration(b, "none");
    put_begin(b, 1, 1, "ram", 0, 4);
    put_block_list(b, "m0", SIZE);
    put_marker(b);
    say_stream(s, b);
}

static void ask_blocks(Source *s)
{
    if (!say(s, BLOCKS_REQUEST, 1, NULL, 0) || !peer_receive(&s->peer)) {
        return;
    }
    g_assert_cmpuint(s->peer.type, ==, BLOCKS_RESULT);
    g_assert_cmpuint(s->peer.length, ==, 32);
    g_assert_cmpuint(s->peer.repeat, ==, 1);
    s->host = get_be64(s->peer.payload);
    s->offset = get_be64(s->peer.payload + 8);
    g_assert_cmpuint(s->host, ==, (uintptr_t)s->dst->block->host);
    g_assert_cmpuint(get_be64(s->peer.payload + 16), ==, SIZE);
    s->rkey = get_be64(s->peer.payload + 24) >> 32;
    /* pin-all is always granted, whatever the destination's own setting; a key is never 0. */
    g_assert_cmpint(s->rkey != 0, ==, (s->flags & PIN_ALL) != 0);
}

static bool finish_hook(Source *s)
{
    return say(s, REGISTER_FINISHED, 1, NULL, 0);
}

/* Everything before the first hook of a round. */
static void to_the_round(Source *s)
{
    g_autoptr(GByteArray) b = g_byte_array_new();
    say_header(s);
    ask_blocks(s);
    finish_hook(s);
    put_eos(b);
    say_stream(s, b);
    put_footer(b, 1);
    put_continue(b, 2, 1);
    put_marker(b);
    say_stream(s, b);
}

/* From the end of a round's hook on. */
static void to_the_end(Source *s)
{
    g_autoptr(GByteArray) b = g_byte_array_new();
    finish_hook(s);
    put_eos(b);
    say_stream(s, b);
    put_footer(b, 1);
    put_continue(b, 3, 1);
    put_marker(b);
    say_stream(s, b);
    finish_hook(s);
    put_eos(b);
    say_stream(s, b);
    put_footer(b, 1);
    put_timer(b, 0, 1, 2);
    put_globalstate(b, 3, "running", 1, 0);
    put_eof(b);
    put_description(b, description_11_1);
    say_stream(s, b);
}

static void put_register(Stream *b, uint64_t address, uint32_t block, uint64_t more)
{
    put_be64(b, address);
    put_be32(b, block);
    put_be32(b, 0x13262626);    /* garbage, as of QEMU 7.2 */
    put_be64(b, more);
}

static void put_compress(Stream *b, uint32_t value, uint32_t block, uint64_t address, uint64_t length)
{
    put_be32(b, value);
    put_be32(b, block);
    put_be64(b, address);
    put_be64(b, length);
}

static uint32_t ask_key(Source *s, uint64_t offset, uint64_t more)
{
    g_autoptr(GByteArray) b = g_byte_array_new();
    put_register(b, s->offset + offset, 0, more);
    if (!say(s, REGISTER_REQUEST, 1, b->data, b->len) || !peer_receive(&s->peer)) {
        return 0;
    }
    g_assert_cmpuint(s->peer.type, ==, REGISTER_RESULT);
    g_assert_cmpuint(s->peer.length, ==, 16);
    g_assert_cmpuint(s->peer.repeat, ==, 1);
    g_assert_cmpuint(get_be64(s->peer.payload + 8), ==, s->host);
    uint32_t rkey = get_be64(s->peer.payload) >> 32;
    g_assert_cmpuint(rkey, !=, 0);
    return rkey;
}

static bool command(Source *s, uint32_t type, uint32_t repeat, Stream *payload)
{
    return say(s, type, repeat, payload->data, payload->len);
}

static gpointer source_thread(gpointer opaque)
{
    Source *s = opaque;
    s->connected = peer_connect(&s->peer, s->port, 1, s->flags);
    if (s->connected) {
        s->act(s);
    }
    return NULL;
}

static bool thread_is_done(void *opaque)
{
    return g_atomic_int_get((int *)opaque);
}

typedef struct Watched {
    Source *source;
    int done;
} Watched;

static gpointer watched_thread(gpointer opaque)
{
    Watched *w = opaque;
    source_thread(w->source);
    g_atomic_int_set(&w->done, 1);
    return NULL;
}

static unsigned listen_at(Vm *dst)
{
    g_autofree char *uri = g_strdup("rdma:127.0.0.1:0");
    pair_listen(dst, uri, true);
    g_autoptr(MigrationInfo) info = migration_query(dst->ctx);
    g_assert_true(info->socket_address && info->socket_address->count == 1);
    return (unsigned)atoi(info->socket_address->items[0]->u.inet->port);
}

static void run_source(Source *s, Vm *dst, uint32_t flags, void (*act)(Source *s))
{
    *s = (Source){ .flags = flags, .dst = dst, .act = act, .port = listen_at(dst) };
    Watched w = { s, 0 };
    GThread *thread = g_thread_new("source", watched_thread, &w);
    wait_until(thread_is_done, &w.done, "the played source");
    g_thread_join(thread);
}

/* ---- a good source ---- */

static uint8_t pattern[SIZE];

static void act_well(Source *s)
{
    g_autoptr(GByteArray) b = g_byte_array_new();

    to_the_round(s);
    if (s->flags & PIN_ALL) {
        g_assert_true(peer_write(&s->peer, pattern, SIZE, s->host, s->rkey));
    } else {
        /* A span from a chunk's middle on; four chunks were asked for, by somebody who counts otherwise. */
        uint32_t key = ask_key(s, MIB + 8192, 0);
        g_assert_true(peer_write(&s->peer, pattern + MIB, MIB, s->host + MIB, key));
        key = ask_key(s, 0, 3);
        g_assert_true(peer_write(&s->peer, pattern, MIB, s->host, key));
        g_assert_true(peer_write(&s->peer, pattern + 2 * MIB, MIB, s->host + 2 * MIB, key));
        /* Across a chunk's border. */
        put_compress(b, 0, 0, s->offset + MIB - 4096, 12288);
        g_assert_true(command(s, COMPRESS, 1, b));
    }
    to_the_end(s);
    /* The end overtakes nothing: all that was sent is read. */
    peer_disconnect(&s->peer);
}

static void fill_pattern(void)
{
    for (size_t i = 0; i < SIZE; i++) {
        pattern[i] = (uint8_t)(i * 7 + i / 4096 + 1);
    }
}

static void test_destination(gconstpointer data)
{
    uint32_t flags = GPOINTER_TO_UINT(data);
    Vm dst;
    Source s;

    fill_pattern();
    vm_init(&dst, SIZE, true);
    memset(dst.block->host, 0xa5, SIZE);
    run_source(&s, &dst, flags, act_well);
    g_assert_true(s.connected);
    /* Version 1 and what it knows of the flags, as a real one. */
    g_assert_cmpmem(s.peer.private_data, 4, "\0\0\0\1", 4);
    g_assert_cmpuint(get_be64(s.peer.private_data) & 0xffffffff, ==, flags & PIN_ALL);
    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==, NULL);
    if (!(flags & PIN_ALL)) {
        memset(pattern + MIB - 4096, 0, 12288);
    }
    g_assert_cmpmem(dst.block->host, SIZE, pattern, SIZE);
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

/* ---- who closes first ---- */

static void act_and_stay(Source *s)
{
    to_the_round(s);
    to_the_end(s);
}

static bool is_completed(void *opaque)
{
    g_autoptr(MigrationInfo) info = migration_query(((Vm *)opaque)->ctx);
    return info->status == MIGRATION_STATUS_COMPLETED;
}

/* It leaves the end to the source, which may still miss an acknowledgement, but not for ever. */
static void test_source_stays(gconstpointer data)
{
    Vm dst;
    Source s;

    vm_init(&dst, SIZE, true);
    run_source(&s, &dst, PIN_ALL, act_and_stay);
    int64_t start = g_get_monotonic_time();
    wait_until(is_completed, &dst, "the guest's start");
    g_usleep(100000);
    struct pollfd events = { .fd = s.peer.events->fd, .events = POLLIN };
    bool gone = poll(&events, 1, 0) > 0;
    g_assert_true(!gone || g_get_monotonic_time() - start > 1000000);
    if (GPOINTER_TO_UINT(data)) {
        peer_disconnect(&s.peer);
    }
    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==, NULL);
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

/* Every region of the device gets the key 0 in turn; none reaches the source. */
static void test_key_is_never_0(void)
{
    for (unsigned n = 1; n <= 8; n++) {
        g_autofree char *words = g_strdup_printf("zero-rkey=%u", n);
        g_assert_null(fake_verbs_set(words));
        test_destination(GUINT_TO_POINTER(0));
        g_assert_null(fake_verbs_set(words));
        test_destination(GUINT_TO_POINTER(PIN_ALL));
    }
}

/* ---- versions ---- */

static gpointer refused_thread(gpointer opaque)
{
    Watched *w = opaque;
    g_assert_false(peer_connect(&w->source->peer, w->source->port, w->source->flags, 0));
    g_atomic_int_set(&w->done, 1);
    return NULL;
}

/* Rejected, and the next one is served. */
static void test_version(gconstpointer data)
{
    Vm dst;
    Source s = { .flags = GPOINTER_TO_UINT(data) }, good;
    Watched w = { &s, 0 };

    vm_init(&dst, SIZE, true);
    s.port = listen_at(&dst);
    GThread *thread = g_thread_new("source", refused_thread, &w);
    wait_until(thread_is_done, &w.done, "the rejection");
    g_thread_join(thread);
    peer_free(&s.peer);
    fill_pattern();
    good = (Source){ .dst = &dst, .act = act_well, .port = s.port };
    w = (Watched){ &good, 0 };
    thread = g_thread_new("source", watched_thread, &w);
    wait_until(thread_is_done, &w.done, "the played source");
    g_thread_join(thread);
    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==, NULL);
    peer_free(&good.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

/* ---- bad sources ---- */

typedef struct BadCommand {
    const char *name;
    uint32_t type, repeat;
    uint32_t block;
    int64_t offset;
    uint64_t number;            /* REGISTER: more; COMPRESS: length */
    uint32_t value;
    size_t length;              /* of the payload; 0: 24 x repeat */
    const char *error;
} BadCommand;

static const BadCommand bad_commands[] = {
    { "register/block-1", REGISTER_REQUEST, 1, 1, 0, 0, 0, 0, "block" },
    { "register/block-max", REGISTER_REQUEST, 1, 0xffffffff, 0, 0, 0, 0, "block" },
    { "register/below", REGISTER_REQUEST, 1, 0, -4096, 0, 0, 0, "address" },
    { "register/behind", REGISTER_REQUEST, 1, 0, SIZE, 0, 0, 0, "address" },
    { "register/far", REGISTER_REQUEST, 1, 0, INT64_MAX, 0, 0, 0, "address" },
    { "register/short", REGISTER_REQUEST, 1, 0, 0, 0, 0, 23, "" },
    { "register/long", REGISTER_REQUEST, 1, 0, 0, 0, 0, 25, "" },
    { "register/repeat-lies", REGISTER_REQUEST, 3, 0, 0, 0, 0, 48, "" },
    { "register/repeat-0", REGISTER_REQUEST, 0, 0, 0, 0, 0, 24, "" },
    { "register/repeat-4097", REGISTER_REQUEST, 4097, 0, 0, 0, 0, 0, "" },
    { "register/repeat-max", REGISTER_REQUEST, 0xffffffff, 0, 0, 0, 0, 24, "" },
    { "compress/block-1", COMPRESS, 1, 1, 0, 4096, 0, 0, "block" },
    { "compress/below", COMPRESS, 1, 0, -4096, 4096, 0, 0, "address" },
    { "compress/behind", COMPRESS, 1, 0, SIZE, 4096, 0, 0, "" },
    { "compress/over-the-end", COMPRESS, 1, 0, SIZE - 4096, 8192, 0, 0, "" },
    { "compress/all-and-one", COMPRESS, 1, 0, 0, SIZE + 1, 0, 0, "" },
    { "compress/wraps", COMPRESS, 1, 0, 4096, UINT64_MAX - 4095, 0, 0, "" },
    { "compress/value", COMPRESS, 1, 0, 0, 4096, 5, 0, "5" },
    { "compress/short", COMPRESS, 1, 0, 0, 4096, 0, 16, "" },
    { "compress/repeat-lies", COMPRESS, 2, 0, 0, 4096, 0, 24, "" },
    { "unregister/block-1", UNREGISTER_REQUEST, 1, 1, 0, 0, 0, 0, "block" },
    { "unregister/short", UNREGISTER_REQUEST, 1, 0, 0, 0, 0, 8, "" },
    { "qemu-file", QEMU_FILE, 0, 0, 0, 0, 0, 8, "QEMU_FILE" },
    { "empty-qemu-file", QEMU_FILE, 0, 0, 0, 0, 0, SIZE_MAX, "" },
    { "ready", READY, 1, 0, 0, 0, 0, SIZE_MAX, "READY" },
    { "blocks-result", BLOCKS_RESULT, 1, 0, 0, 0, 0, 32, "" },
    { "none", 0, 1, 0, 0, 0, 0, SIZE_MAX, "" },
    { "type-12", 12, 1, 0, 0, 0, 0, SIZE_MAX, "" },
    { "type-max", 0xffffffff, 1, 0, 0, 0, 0, SIZE_MAX, "" },
    { "error", ERROR_MSG, 1, 0, 0, 0, 0, SIZE_MAX, "ERROR" },
};
static const BadCommand *bad;

static void act_badly(Source *s)
{
    g_autoptr(GByteArray) b = g_byte_array_new();

    to_the_round(s);
    size_t length = bad->length ? bad->length : 24 * (size_t)bad->repeat;
    while (length != SIZE_MAX && b->len < length) {
        if (bad->type == COMPRESS) {
            put_compress(b, bad->value, bad->block, s->offset + bad->offset, bad->number);
        } else {
            put_register(b, s->offset + bad->offset, bad->block, bad->number);
        }
    }
    g_byte_array_set_size(b, length == SIZE_MAX ? 0 : length);
    command(s, bad->type, bad->repeat, b);
    /* Until it gives up. */
    while (peer_receive(&s->peer)) {
        g_assert_cmpuint(s->peer.type, !=, READY);
    }
}

static void assert_dst_failed(Vm *dst, const char *error)
{
    vm_wait_incoming_ended(dst);
    g_test_message("%s", dst->host.ended_error);
    assert_contains(dst->host.ended_error, error);
    g_assert_cmpuint(strlen(dst->host.ended_error), >, 10);
    g_assert_cmpuint(dst->host.resumes, ==, 0);
}

static void test_bad_command(gconstpointer data)
{
    Vm dst;
    Source s;

    bad = data;
    vm_init(&dst, SIZE, true);
    memset(dst.block->host, 0xa5, SIZE);
    run_source(&s, &dst, 0, act_badly);
    assert_dst_failed(&dst, bad->error);
    for (size_t i = 0; i < SIZE; i++) {
        g_assert_cmpuint(dst.block->host[i], ==, 0xa5);
    }
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

/* More chunks than there are: cut at the end of the block, as a real one does, and no more than that. */
static void act_many_chunks(Source *s)
{
    to_the_round(s);
    uint32_t key = ask_key(s, 0, UINT64_MAX);
    g_assert_cmpuint(key, !=, 0);
    g_assert_true(peer_write(&s->peer, pattern, SIZE, s->host, key));
    g_assert_false(peer_write(&s->peer, pattern, 1, s->host + SIZE, key));
}

static void test_many_chunks(void)
{
    Vm dst;
    Source s;
    vm_init(&dst, SIZE, true);
    run_source(&s, &dst, 0, act_many_chunks);
    assert_dst_failed(&dst, "");
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

/* A second request would register all memory again: refused, and what was registered once is given back. */
static void act_blocks_twice(Source *s)
{
    to_the_round(s);
    g_assert_true(say(s, BLOCKS_REQUEST, 1, NULL, 0));
    while (peer_receive(&s->peer)) {
        g_assert_cmpuint(s->peer.type, !=, BLOCKS_RESULT);
        g_assert_cmpuint(s->peer.type, !=, READY);
    }
}

static void test_blocks_twice(gconstpointer data)
{
    Vm dst;
    Source s;
    vm_init(&dst, SIZE, true);
    run_source(&s, &dst, GPOINTER_TO_UINT(data), act_blocks_twice);
    assert_dst_failed(&dst, "twice");
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

/* Stream bytes where the stream is read: anything but QEMU_FILE is wrong, and so is an empty one. */
static uint32_t stream_type;

static void act_type_in_stream(Source *s)
{
    g_autoptr(GByteArray) b = g_byte_array_new();
    put_register(b, 0, 0, 0);
    size_t length = stream_type == REGISTER_REQUEST || stream_type == COMPRESS ? b->len : 0;
    say(s, stream_type, 1, b->data, length);
    while (peer_receive(&s->peer)) {
        g_assert_cmpuint(s->peer.type, !=, READY);
    }
}

static void test_type_in_stream(gconstpointer data)
{
    Vm dst;
    Source s;
    stream_type = GPOINTER_TO_UINT(data);
    vm_init(&dst, SIZE, true);
    run_source(&s, &dst, 0, act_type_in_stream);
    assert_dst_failed(&dst, "");
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

/* ---- a device with small regions ---- */

/* The fake device then has just room for the buffers for messages: 0x280000 bytes. */
#define SMALL_REGIONS "limit=max_mr_size:0x280000"
#define GODWIT_FLAGS 0x67001402u        /* chunks of 1 MiB, batches */

static void act_ask_too_much(Source *s)
{
    g_autoptr(GByteArray) b = g_byte_array_new();

    to_the_round(s);
    g_assert_cmpuint(ask_key(s, 0, 1), !=, 0);
    put_register(b, s->offset, 0, 2);
    g_assert_true(say(s, REGISTER_REQUEST, 1, b->data, b->len));
    g_assert_true(!peer_receive(&s->peer) || s->peer.type == ERROR_MSG);
}

/* A Godwit is told what can be registered as one; it is refused by name if it asks for more all the same. */
static void test_small_regions(void)
{
    Vm dst;
    Source s;

    g_assert_null(fake_verbs_set(SMALL_REGIONS));
    vm_init(&dst, SIZE, true);
    run_source(&s, &dst, GODWIT_FLAGS, act_ask_too_much);
    /* 2^21 is the largest power of two that it can. */
    g_assert_cmpmem(s.peer.private_data, 8, "\0\0\0\1\x67\x15\x14\2", 8);
    assert_dst_failed(&dst, "cannot register 3072 KiB of RAM block 'm0' at offset 0x0: "
                            "the device can register no more than 2621440 bytes as one");
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

static void act_chunks_that_are_no_regions(Source *s)
{
    say_header(s);
    g_assert_true(say(s, BLOCKS_REQUEST, 1, NULL, 0));
    g_assert_true(!peer_receive(&s->peer) || s->peer.type == ERROR_MSG);
}

/* Any other source is refused before it is told where to write to, if chunks are known to be too large. */
static void test_chunks_that_are_no_regions(void)
{
    Vm dst;
    Source s;

    g_assert_null(fake_verbs_set(SMALL_REGIONS));
    vm_init(&dst, SIZE, true);
    vm_set_parameter(&dst, "x-rdma-chunk-size", "4194304");
    run_source(&s, &dst, 0, act_chunks_that_are_no_regions);
    assert_dst_failed(&dst, "x-rdma-chunk-size is 4194304, too large for RAM block 'm0': "
                            "the device can register no more than 2621440 bytes as one");
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

static void act_write_beyond(Source *s)
{
    to_the_round(s);
    uint32_t key = ask_key(s, 0, 0);
    g_assert_cmpuint(key, !=, 0);
    peer_write(&s->peer, pattern, MIB, s->host + 2 * MIB, key);
    peer_disconnect(&s->peer);
}

/* And if they are not known, the end of the connection says what may be the matter. */
static void test_write_beyond_a_small_region(void)
{
    Vm dst;
    Source s;

    g_assert_null(fake_verbs_set(SMALL_REGIONS));
    vm_init(&dst, SIZE, true);
    run_source(&s, &dst, 0, act_write_beyond);
    assert_dst_failed(&dst, "; perhaps its chunks are too large here: "
                            "the device can register no more than 2621440 bytes as one");
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

/* The stream in messages of one byte each, and in as large ones as there can be. */
static void act_single_bytes(Source *s)
{
    g_autoptr(GByteArray) b = g_byte_array_new();
    put_header(b);
    put_configuration(b, "none");
    put_begin(b, 1, 1, "ram", 0, 4);
    put_block_list(b, "m0", SIZE);
    put_marker(b);
    for (guint i = 0; i < b->len; i++) {
        g_assert_true(say(s, QEMU_FILE, 1, b->data + i, 1));
    }
    ask_blocks(s);
    finish_hook(s);
    g_byte_array_set_size(b, 0);
    put_eos(b);
    put_footer(b, 1);
    put_continue(b, 2, 1);
    put_marker(b);
    say_stream(s, b);
    to_the_end(s);
    peer_disconnect(&s->peer);
}

static void test_single_bytes(void)
{
    Vm dst;
    Source s;
    vm_init(&dst, SIZE, true);
    run_source(&s, &dst, 0, act_single_bytes);
    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==, NULL);
    peer_free(&s.peer);
    vm_clear(&dst);
    assert_nothing_left();
}

/* The source goes at each point of a good migration. */
static unsigned goes_after;

static void act_and_go(Source *s)
{
    void (*const steps[])(Source *) = { say_header, ask_blocks };
    for (unsigned i = 0; i < goes_after && i < G_N_ELEMENTS(steps); i++) {
        steps[i](s);
    }
    if (goes_after >= 3) {
        finish_hook(s);
    }
    peer_disconnect(&s->peer);
}

static void test_source_goes(void)
{
    for (goes_after = 0; goes_after <= 3; goes_after++) {
        Vm dst;
        Source s;
        vm_init(&dst, SIZE, true);
        run_source(&s, &dst, 0, act_and_go);
        assert_dst_failed(&dst, "");
        peer_free(&s.peer);
        vm_clear(&dst);
        assert_nothing_left();
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/rdma-peer/source/dynamic", GUINT_TO_POINTER(0), test_source);
    g_test_add_data_func("/rdma-peer/source/pin-all", GUINT_TO_POINTER(PIN_ALL), test_source);
    for (unsigned shift = 0; shift <= 22; shift = shift ? shift + 1 : 20) {
        g_autofree char *path = g_strdup_printf("/rdma-peer/source/regions/%u", shift);
        g_test_add_data_func(path, GUINT_TO_POINTER(shift), test_source_regions);
    }
    g_test_add_data_func("/rdma-peer/source/private-data", GUINT_TO_POINTER(0), test_source_private_data);
    g_test_add_data_func("/rdma-peer/source/private-data-pin-all", GUINT_TO_POINTER(PIN_ALL),
                         test_source_private_data);
    g_test_add_func("/rdma-peer/source/zeroes", test_source_zeroes);
    g_test_add_func("/rdma-peer/source/late-completion", test_source_late_completion);
    for (size_t i = 0; i < G_N_ELEMENTS(lies); i++) {
        g_autofree char *path = g_strdup_printf("/rdma-peer/source/%s", lies[i].name);
        g_test_add_data_func(path, &lies[i], test_lie);
    }
    g_test_add_data_func("/rdma-peer/destination/dynamic", GUINT_TO_POINTER(0), test_destination);
    g_test_add_data_func("/rdma-peer/destination/pin-all", GUINT_TO_POINTER(PIN_ALL), test_destination);
    g_test_add_data_func("/rdma-peer/destination/unknown-flags", GUINT_TO_POINTER(0x00f0f0f0),
                         test_destination);
    g_test_add_data_func("/rdma-peer/destination/source-stays", GUINT_TO_POINTER(1), test_source_stays);
    g_test_add_data_func("/rdma-peer/destination/source-stays-for-ever", GUINT_TO_POINTER(0),
                         test_source_stays);
    for (size_t i = 0; i < G_N_ELEMENTS(endings); i++) {
        g_autofree char *path = g_strdup_printf("/rdma-peer/channel/%s", endings[i].name);
        g_test_add_data_func(path, &endings[i], test_channel_end);
    }
    g_test_add_func("/rdma-peer/destination/key-0", test_key_is_never_0);
    g_test_add_data_func("/rdma-peer/destination/version-0", GUINT_TO_POINTER(0), test_version);
    g_test_add_data_func("/rdma-peer/destination/version-2", GUINT_TO_POINTER(2), test_version);
    for (size_t i = 0; i < G_N_ELEMENTS(bad_commands); i++) {
        g_autofree char *path = g_strdup_printf("/rdma-peer/destination/%s", bad_commands[i].name);
        g_test_add_data_func(path, &bad_commands[i], test_bad_command);
    }
    g_test_add_func("/rdma-peer/destination/many-chunks", test_many_chunks);
    g_test_add_data_func("/rdma-peer/destination/blocks-twice", GUINT_TO_POINTER(0), test_blocks_twice);
    g_test_add_data_func("/rdma-peer/destination/blocks-twice-pin-all", GUINT_TO_POINTER(PIN_ALL),
                         test_blocks_twice);
    for (unsigned type = 0; type <= 12; type++) {
        g_autofree char *path = g_strdup_printf("/rdma-peer/destination/in-stream/%u", type);
        g_test_add_data_func(path, GUINT_TO_POINTER(type), test_type_in_stream);
    }
    g_test_add_func("/rdma-peer/destination/small-regions", test_small_regions);
    g_test_add_func("/rdma-peer/destination/chunks-no-regions", test_chunks_that_are_no_regions);
    g_test_add_func("/rdma-peer/destination/write-beyond", test_write_beyond_a_small_region);
    g_test_add_func("/rdma-peer/destination/single-bytes", test_single_bytes);
    g_test_add_func("/rdma-peer/destination/source-goes", test_source_goes);
    return g_test_run();
}
