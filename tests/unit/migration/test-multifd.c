/* SPDX-License-Identifier: BSD-2-Clause */
/* Multifd between two contexts in one process, and against hand-made channels. */
#include "migration/multifd-wire.h"
#include "pair.h"
#include "stream-builder.h"
#include "util/error.h"
#include "util/fault.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MIB (1024 * 1024ull)

static void set_multifd(Vm *vm, const char *channels, const char *compression)
{
    vm_set_parameter(vm, "multifd-channels", channels);
    vm_set_parameter(vm, "multifd-compression", compression);
    vm_set_capability(vm, MIGRATION_CAPABILITY_MULTIFD, true);
}

static void init_multifd(Vm *src, Vm *dst, uint64_t size, const char *channels, const char *compression)
{
    pair_init(src, dst, size);
    set_multifd(src, channels, compression);
    set_multifd(dst, channels, compression);
}

/* ---- both ends are ours ---- */

typedef struct Mode {
    const char *channels, *compression, *detection, *compat;
} Mode;

static const Mode modes[] = {
    {"1", "none", "multifd", "11.1"},  {"2", "none", "multifd", "11.1"}, {"8", "none", "multifd", "11.1"},
    {"16", "none", "multifd", "11.1"}, {"2", "none", "legacy", "11.1"},  {"2", "none", "none", "11.1"},
    {"2", "zlib", "multifd", "11.1"},  {"2", "zstd", "multifd", "11.1"}, {"3", "zlib", "legacy", "11.1"},
    {"3", "zstd", "none", "11.1"},     {"2", "none", "legacy", "7.2"},   {"2", "zstd", "legacy", "7.2"},
    {"2", "none", "multifd", "8.2"},   {"2", "zlib", "multifd", "7.2"},
};

/* Zero pages in packets: only where they are wanted and understood. */
static void assert_zero_pages(Vm *src, const Mode *mode)
{
    g_autoptr(MigrationInfo) info = migration_query(src->ctx);
    uint64_t zero = 0;

    for (unsigned i = 0; i < info->x_multifd_channels->count; i++) {
        zero += info->x_multifd_channels->items[i]->zero_pages;
    }
    bool wanted = g_str_equal(mode->detection, "multifd") && g_str_equal(mode->compat, "11.1");
    g_assert_cmpint(zero > 0, ==, wanted);
}

/* A destination full of garbage, a guest that writes: memory is the same afterwards. */
static void test_mode(gconstpointer data)
{
    const Mode *mode = data;
    Vm src, dst;
    Writer w;
    init_multifd(&src, &dst, 8 * MIB + 12288, mode->channels, mode->compression);
    vm_set_global(&src, "x-compat", mode->compat);
    vm_set_parameter(&src, "zero-page-detection", mode->detection);
    vm_set_parameter(&src, "max-bandwidth", "24M");
    memset(dst.block->host, 0xa5, dst.block->used_length);
    memset(src.block->host, 0, MIB);
    writer_start(&w, &src, 200);
    pair_connect(&src, &dst);
    vm_wait_end(&src);
    writer_stop(&w);
    pair_assert_arrived(&src, &dst);
    assert_zero_pages(&src, mode);
    pair_clear(&src, &dst);
}

/* Each round has one barrier, and so has the set-up; nothing else has. */
static void test_syncs(void)
{
    Vm src, dst;
    Writer w;
    init_multifd(&src, &dst, 8 * MIB, "3", "none");
    vm_set_parameter(&src, "max-bandwidth", "16M");
    vm_set_parameter(&src, "downtime-limit", "0");
    writer_start(&w, &src, 300);
    pair_connect(&src, &dst);
    vm_wait_passes(&src, 3);
    vm_set_parameter(&src, "downtime-limit", "10000");
    vm_wait_end(&src);
    writer_stop(&w);
    pair_assert_arrived(&src, &dst);

    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    uint64_t rounds = info->x_rounds->items[info->x_rounds->count - 1]->round;
    g_assert_cmpuint(rounds, >=, 3);
    g_assert_cmpuint(info->x_multifd_channels->count, ==, 3);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < 3; i++) {
        const MultifdChannelStats *ch = info->x_multifd_channels->items[i];
        g_assert_cmpuint(ch->id, ==, i);
        g_assert_cmpuint(ch->syncs, ==, rounds + 1);
        /* 64 of hello, then packets with a header of 1344 each. */
        g_assert_cmpuint(ch->bytes, ==, 64 + (ch->packets + ch->syncs) * 1344 + ch->normal_pages * 4096);
        bytes += ch->bytes;
    }
    g_assert_cmpuint(bytes, ==, info->ram->multifd_bytes);
    pair_clear(&src, &dst);
}

#ifdef CONFIG_FAULT_INJECTION
/* One channel is slow at many moments: what it carries must not be overtaken by a later round. */
static void test_slow_channel(void)
{
    Vm src, dst;
    Writer w;
    g_autoptr(GString) spec = g_string_new("multifd-send:2:delay=60");
    for (unsigned i = 7; i < 120; i += 11) {
        g_string_append_printf(spec, ",multifd-send:%u:delay=40", i);
    }
    g_assert_true(fault_configure(spec->str, NULL));
    init_multifd(&src, &dst, 4 * MIB, "4", "none");
    vm_set_parameter(&src, "max-bandwidth", "64M");
    vm_set_parameter(&src, "downtime-limit", "1");
    writer_start(&w, &src, 50);
    pair_connect(&src, &dst);
    run_main_loop(1000);
    vm_set_parameter(&src, "downtime-limit", "10000");
    vm_wait_end(&src);
    writer_stop(&w);
    pair_assert_arrived(&src, &dst);
    fault_configure(NULL, NULL);
    pair_clear(&src, &dst);
}

static const char *const fault_specs[] = {
    "multifd-connect:1", "multifd-connect:2", "multifd-send-hello:1", "multifd-send-hello:2",
    "multifd-send:1", "multifd-send:5", "multifd-send-sync:1", "multifd-send-sync:3", "multifd-send-sync:4",
    "multifd-recv:1", "multifd-recv:2", "multifd-recv:9", "multifd-recv-sync:1", "multifd-recv-sync:2",
};

/* Whatever fails, on whichever side: told on both, the guest runs on, and a second attempt succeeds. */
static void test_fault(gconstpointer data)
{
    Vm src, dst, second;
    g_assert_true(fault_configure(data, NULL));
    init_multifd(&src, &dst, 4 * MIB, "2", "none");
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    pair_connect(&src, &dst);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    pair_assert_runs_on(&src);
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_nonnull(info->error_desc);
    vm_clear(&dst);
    fault_configure(NULL, NULL);

    vm_init(&second, 4 * MIB, true);
    set_multifd(&second, "2", "none");
    pair_connect(&src, &second);
    pair_assert_arrived(&src, &second);
    pair_clear(&src, &second);
}
#endif

static void test_cancel(void)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(7);
    for (unsigned i = 0; i < 25; i++) {
        Vm src, dst, second;
        init_multifd(&src, &dst, 4 * MIB, "3", i % 2 ? "zstd" : "none");
        vm_init(&second, 4 * MIB, true);
        set_multifd(&second, "3", i % 2 ? "zstd" : "none");
        vm_set_parameter(&src, "max-bandwidth", "0");
        pair_connect(&src, &dst);
        int64_t until = g_get_monotonic_time() + g_rand_int_range(rand, 0, 12000);
        while (g_get_monotonic_time() < until) {
            g_main_context_iteration(NULL, FALSE);
        }
        g_assert_true(migration_cancel(src.ctx, NULL));
        if (vm_wait_end(&src) == MIGRATION_STATUS_COMPLETED) {
            pair_assert_arrived(&src, &dst);
        } else {
            g_assert_cmpint(vm_status(&src), ==, MIGRATION_STATUS_CANCELLED);
            pair_assert_runs_on(&src);
            pair_connect(&src, &second);
            pair_assert_arrived(&src, &second);
        }
        vm_clear(&second);
        pair_clear(&src, &dst);
    }
}

/* ---- the two sides are not alike ---- */

typedef struct Mismatch {
    const char *src_channels, *src_compression, *dst_channels,
        *dst_compression; /* channels NULL: no multifd */
} Mismatch;

static const Mismatch mismatches[] = {
    { "1", "none", "2", "none" }, { "4", "none", "2", "none" }, { "2", "zlib", "2", "none" },
    { "2", "none", "2", "zstd" }, { "2", "zlib", "2", "zstd" }, { NULL, "none", "2", "none" },
    { "2", "none", NULL, "none" },
};

static void test_mismatch(gconstpointer data)
{
    const Mismatch *m = data;
    Vm src, dst;
    pair_init(&src, &dst, 4 * MIB);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    if (m->src_channels) {
        set_multifd(&src, m->src_channels, m->src_compression);
    }
    if (m->dst_channels) {
        set_multifd(&dst, m->dst_channels, m->dst_compression);
    }
    pair_connect(&src, &dst);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    pair_assert_runs_on(&src);
    vm_wait_incoming_ended(&dst);
    g_assert_nonnull(dst.host.ended_error);
    g_assert_cmpint(vm_status(&dst), ==, MIGRATION_STATUS_FAILED);
    pair_clear(&src, &dst);
}

static void test_refusals(void)
{
    static const char *const uris[] = { "exec:cat >/dev/null", "file:/nowhere/f", "rdma:127.0.0.1:1" };
    Vm src;
    vm_init(&src, MIB, false);
    for (unsigned order = 0; order < 2; order++) {
        vm_set_capability(&src, MIGRATION_CAPABILITY_MULTIFD, true);
        for (unsigned i = 0; i < G_N_ELEMENTS(uris); i++) {
            g_autoptr(GError) error = NULL;
            g_assert_false(migration_start(src.ctx, uris[i], NULL, false, &error));
            g_assert_cmpstr(error->message, ==, "Migration requires multi-channel URIs (e.g. tcp)");
        }
        vm_set_capability(&src, MIGRATION_CAPABILITY_MULTIFD, false);
    }
    vm_clear(&src);
}

/* ---- hand-made channels ---- */

static int dial(const char *uri)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    g_strlcpy(addr.sun_path, uri + strlen("unix:"), sizeof(addr.sun_path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert_cmpint(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    return fd;
}

static void put(int fd, const void *buf, size_t len)
{
    /* The peer may have given up on us, which is what some of these tests want. */
    g_assert_true(send(fd, buf, len, MSG_NOSIGNAL) == (ssize_t)len || errno == EPIPE || errno == ECONNRESET);
}

static void put_hello(int fd, uint8_t id)
{
    MultifdHelloWire hello;
    multifd_hello_encode(&hello, NULL, id);
    put(fd, &hello, sizeof(hello));
}

static void put_packet(int fd, uint32_t flags, uint64_t offset, const uint8_t *page)
{
    MultifdPacket p = { .flags = flags, .normal = page != NULL, .block = "m0", .offset = { offset } };
    MultifdPacketWire wire;
    multifd_packet_encode(&wire, &p);
    put(fd, &wire, sizeof(wire));
    if (page) {
        put(fd, page, TARGET_PAGE_SIZE);
    }
}

#define GUEST_PAGES 256

/* The main stream of an old, per-section sender: two barriers, at the EOS of START and of END. */
static GByteArray *old_main(uint64_t size)
{
    Stream *s = g_byte_array_new();
    put_header(s);
    put_configuration(s, "none");
    put_ram_start(s, 2, "m0", size);
    put_continue(s, 3, 2);
    put_eos(s);
    put_footer(s, 2);
    put_globalstate(s, 4, "running", 0, 0);
    put_eof(s);
    return s;
}

/*
 * QEMU 7.2's ways: pages in a packet with the SYNC flag, an empty packet behind it, main first and channels
 * in any order, connections in between that say nothing, little, or leave.
 */
static void test_old_sender(void)
{
    Vm dst;
    uint8_t page[2][TARGET_PAGE_SIZE];
    g_autofree char *uri = pair_uri();
    vm_init(&dst, GUEST_PAGES * 4096, true);
    memset(dst.block->host, 0x5a, dst.block->used_length);
    set_multifd(&dst, "2", "none");
    pair_listen(&dst, uri, true);

    int noise[3] = { dial(uri), dial(uri), dial(uri) };
    put(noise[0], "\x11\x22\x33", 3);
    close(noise[1]);
    int b = dial(uri), main_fd = dial(uri), a = dial(uri);
    memset(page[0], 1, TARGET_PAGE_SIZE);
    memset(page[1], 2, TARGET_PAGE_SIZE);
    put_hello(b, 1);
    put_packet(b, MULTIFD_FLAG_SYNC, 0, NULL);
    put_packet(b, MULTIFD_FLAG_SYNC, 0x3000, page[1]);
    put_packet(b, 0, 0, NULL);
    run_main_loop(50);
    g_autoptr(GByteArray) stream = old_main(dst.block->used_length);
    put(main_fd, stream->data, stream->len);
    shutdown(main_fd, SHUT_WR);     /* no description follows */
    run_main_loop(50);
    put_hello(a, 0);
    put_packet(a, MULTIFD_FLAG_SYNC, 0, NULL);
    put_packet(a, 0, 0x2000, page[0]);
    put_packet(a, MULTIFD_FLAG_SYNC, 0, NULL);
    close(a);

    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==, NULL);
    g_assert_cmpmem(dst.block->host + 0x2000, 4096, page[0], 4096);
    g_assert_cmpmem(dst.block->host + 0x3000, 4096, page[1], 4096);
    close(b);
    close(main_fd);
    close(noise[0]);
    close(noise[2]);
    vm_clear(&dst);
}

#define FLUSH_WORD 0x200

/*
 * The destination's half of the barrier: a channel lags behind with a page of one round, another has already
 * brought the next round's version of that page.  What was sent later is what stays.
 */
static void test_late_channel(void)
{
    Vm dst;
    uint8_t older[TARGET_PAGE_SIZE], newer[TARGET_PAGE_SIZE];
    g_autofree char *uri = pair_uri();
    g_autoptr(GByteArray) stream = g_byte_array_new();
    vm_init(&dst, GUEST_PAGES * 4096, true);
    set_multifd(&dst, "2", "none");
    pair_listen(&dst, uri, true);
    memset(older, 1, sizeof(older));
    memset(newer, 2, sizeof(newer));
    int main_fd = dial(uri), late = dial(uri), early = dial(uri);

    put_header(stream);
    put_configuration(stream, "none");
    put_begin(stream, 1, 2, "ram", 0, 4);
    put_block_list(stream, "m0", dst.block->used_length);
    put_be64(stream, FLUSH_WORD);
    put_eos(stream);
    put_footer(stream, 2);
    put_continue(stream, 3, 2);
    put_be64(stream, FLUSH_WORD);
    put_be64(stream, FLUSH_WORD);
    put_eos(stream);
    put_footer(stream, 2);
    put_globalstate(stream, 4, "running", 0, 0);
    put_eof(stream);
    put(main_fd, stream->data, stream->len);
    shutdown(main_fd, SHUT_WR);     /* no description follows */

    put_hello(late, 0);
    put_hello(early, 1);
    for (unsigned i = 0; i < 2; i++) {      /* the set-up, and the first round, of which it has no page */
        put_packet(early, MULTIFD_FLAG_SYNC, 0, NULL);
    }
    put_packet(early, 0, 0x3000, newer);
    put_packet(early, MULTIFD_FLAG_SYNC, 0, NULL);
    put_packet(late, MULTIFD_FLAG_SYNC, 0, NULL);
    vm_wait_status(&dst, MIGRATION_STATUS_ACTIVE);
    run_main_loop(100);
    g_assert_cmpint(vm_status(&dst), ==, MIGRATION_STATUS_ACTIVE);
    put_packet(late, 0, 0x3000, older);
    put_packet(late, MULTIFD_FLAG_SYNC, 0, NULL);
    put_packet(late, MULTIFD_FLAG_SYNC, 0, NULL);

    vm_wait_incoming_ended(&dst);
    g_assert_cmpstr(dst.host.ended_error, ==, NULL);
    g_assert_cmpmem(dst.block->host + 0x3000, 4096, newer, 4096);
    close(early);
    close(late);
    close(main_fd);
    vm_clear(&dst);
}

typedef struct BadChannel {
    const char *name;
    unsigned offset;        /* in the second packet */
    uint8_t value;
    const char *words;
} BadChannel;

static const BadChannel bad_channels[] = {
    { "magic", 0, 0, "magic" },
    { "version", 7, 7, "version" },
    { "alloc", 14, 0xff, "pages" },
    { "normal", 18, 1, "pages" },
    { "block", 64, 'x', "unknown ram block" },
    { "offset", 324, 0xff, "offset too long" },
    { "method", 11, 2, "multifd-compression" },
    { "device-state", 11, 0x40, "device state" },
};

/* A broken packet ends the migration at once, however far the main stream is, and names the field. */
static void test_bad_channel(gconstpointer data)
{
    const BadChannel *bad = data;
    Vm dst;
    MultifdPacket p = { .normal = 1, .block = "m0", .offset = { 0x1000 } };
    MultifdPacketWire wire;
    g_autofree char *uri = pair_uri();
    vm_init(&dst, GUEST_PAGES * 4096, true);
    set_multifd(&dst, "1", "none");
    pair_listen(&dst, uri, true);
    int main_fd = dial(uri), channel = dial(uri);
    g_autoptr(GByteArray) stream = old_main(dst.block->used_length);
    put(main_fd, stream->data, stream->len);
    put_hello(channel, 0);
    put_packet(channel, MULTIFD_FLAG_SYNC, 0, NULL);
    multifd_packet_encode(&wire, &p);
    ((uint8_t *)&wire)[bad->offset] = bad->value;
    put(channel, &wire, sizeof(wire));
    vm_wait_incoming_ended(&dst);
    g_test_message("%s", dst.host.ended_error);
    g_assert_nonnull(strstr(dst.host.ended_error, bad->words));
    g_assert_nonnull(strstr(dst.host.ended_error, "multifd channel 0"));
    close(channel);
    close(main_fd);
    vm_clear(&dst);
}

/* Cut anywhere: the load thread does not wait for what will not come. */
static void test_truncated(void)
{
    for (size_t len = 64; len < 64 + 2 * 1344; len += 97) {
        Vm dst;
        uint8_t bytes[64 + 2 * 1344] = { 0 };
        MultifdPacket sync = { .flags = MULTIFD_FLAG_SYNC }, data = { .normal = 1, .block = "m0" };
        g_autofree char *uri = pair_uri();
        multifd_hello_encode((MultifdHelloWire *)bytes, NULL, 0);
        multifd_packet_encode((MultifdPacketWire *)(bytes + 64), &sync);
        multifd_packet_encode((MultifdPacketWire *)(bytes + 64 + 1344), &data);
        vm_init(&dst, GUEST_PAGES * 4096, true);
        set_multifd(&dst, "1", "none");
        pair_listen(&dst, uri, true);
        int main_fd = dial(uri), channel = dial(uri);
        g_autoptr(GByteArray) stream = old_main(dst.block->used_length);
        put(main_fd, stream->data, stream->len);
        put(channel, bytes, len);
        close(channel);
        vm_wait_incoming_ended(&dst);
        g_assert_nonnull(dst.host.ended_error);
        close(main_fd);
        vm_clear(&dst);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < G_N_ELEMENTS(modes); i++) {
        const Mode *m = &modes[i];
        g_autofree char *path = g_strdup_printf("/multifd/mode/%s-%s-%s-%s", m->channels, m->compression,
                                                m->detection, m->compat);
        g_test_add_data_func(path, m, test_mode);
    }
    g_test_add_func("/multifd/syncs", test_syncs);
#ifdef CONFIG_FAULT_INJECTION
    g_test_add_func("/multifd/slow-channel", test_slow_channel);
    for (unsigned i = 0; i < G_N_ELEMENTS(fault_specs); i++) {
        g_autofree char *path = g_strdup_printf("/multifd/fault/%s", fault_specs[i]);
        g_test_add_data_func(path, fault_specs[i], test_fault);
    }
#endif
    g_test_add_func("/multifd/cancel", test_cancel);
    for (unsigned i = 0; i < G_N_ELEMENTS(mismatches); i++) {
        const Mismatch *m = &mismatches[i];
        g_autofree char *path = g_strdup_printf(
            "/multifd/mismatch/%s-%s-to-%s-%s", m->src_channels ? m->src_channels : "off", m->src_compression,
            m->dst_channels ? m->dst_channels : "off", m->dst_compression);
        g_test_add_data_func(path, m, test_mismatch);
    }
    g_test_add_func("/multifd/refusals", test_refusals);
    g_test_add_func("/multifd/old-sender", test_old_sender);
    g_test_add_func("/multifd/late-channel", test_late_channel);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad_channels); i++) {
        g_autofree char *path = g_strdup_printf("/multifd/bad/%s", bad_channels[i].name);
        g_test_add_data_func(path, &bad_channels[i], test_bad_channel);
    }
    g_test_add_func("/multifd/truncated", test_truncated);
    return g_test_run();
}
