/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiving half of multifd alone: a channel that ends anywhere, and writes to a file that is busy. */
#include "migration/multifd-compress.h"
#include "migration/multifd.h"
#include "ram-test.h"
#include "util/fault.h"

#include <string.h>

#define PAGES 8

static void count_errors(const GError *error, void *opaque)
{
    g_atomic_int_inc((int *)opaque);
}

/* A hello, and a packet with one page of @content. */
static GByteArray *one_packet(MultiFDCompression method, const uint8_t *content)
{
    GByteArray *bytes = g_byte_array_new();
    const MultifdCompressionOps *ops = multifd_compression(method, NULL);
    g_autofree uint8_t *payload = g_malloc0(MULTIFD_COMPRESSED_MAX);
    size_t len = 0;
    MultifdHelloWire hello;
    MultifdPacketWire wire;
    MultifdPacket p = {
        .flags = multifd_method_flag(method), .normal = 1, .block = "m0", .offset = { 3 * PAGE },
    };

    if (ops) {
        void *compressor = ops->compressor_new(1, NULL);
        OK(ops->compress(compressor, content, true, payload, &len, &error));
        ops->compressor_free(compressor);
    } else {
        memcpy(payload, content, PAGE);
        len = PAGE;
    }
    p.payload = (uint32_t)len;
    multifd_hello_encode(&hello, NULL, 0);
    multifd_packet_encode(&wire, &p);
    g_byte_array_append(bytes, (const uint8_t *)&hello, sizeof(hello));
    g_byte_array_append(bytes, (const uint8_t *)&wire, sizeof(wire));
    return g_byte_array_append(bytes, payload, (guint)len);
}

static void assert_says(const GError *error, const char *text)
{
    if (!strstr(error->message, text)) {
        g_error("'%s' does not contain '%s'", error->message, text);
    }
}

/*
 * Cut at every length: the load thread, which waits for a sync, is told at once, by an error that names the
 * channel; where nothing of a packet is missing, that the sync is.
 */
static void test_truncated(gconstpointer data)
{
    MultiFDCompression method = GPOINTER_TO_INT(data);
    const uint64_t pages = PAGES;
    g_autoptr(TestGuest) guest = test_guest_new(&pages, 1);
    uint8_t content[PAGE];
    MigrationOptions options = test_options();
    guint all = 0;

    for (size_t i = 0; i < PAGE; i++) {
        content[i] = (uint8_t)g_test_rand_int();
    }
    g_autoptr(GByteArray) bytes = one_packet(method, content);
    options.p.multifd_channels = 1;
    options.p.multifd_compression = method;
    for (guint len = sizeof(MultifdHelloWire); len <= bytes->len; len++) {
        int errors = 0;
        g_autoptr(GError) error = NULL;
        g_autoptr(Channel) channel = &test_channel_new(bytes->data, len, 0)->base;
        MultifdRecv *recv = multifd_recv_new(&guest->ram, &options, NULL, count_errors, &errors);
        RamSource *source = multifd_recv_source(recv);

        g_assert_true(multifd_recv_add_channel(recv, channel));
        g_assert_false(source->ops->flush_word(source, &error));
        if (len == sizeof(MultifdHelloWire)) {
            assert_says(error, "a channel was closed before its sync");
        } else if (len == bytes->len) {
            assert_says(error, "multifd channel 0: multifd: it was closed before");
            g_assert_cmpmem(guest->blocks[0].host + 3 * PAGE, PAGE, content, PAGE);
            all++;
        } else {
            assert_says(error, "multifd channel 0: Unexpected end-of-file");
        }
        source->ops->cleanup(source);
        multifd_recv_free(recv);
        g_assert_cmpint(errors, ==, len > sizeof(MultifdHelloWire));
    }
    g_assert_cmpuint(all, ==, 1);
}

#ifdef CONFIG_FAULT_INJECTION
#define BUSY_CHANNELS 3
#define BUSY_PACKETS 5
#define BUSY_PAGES (BUSY_CHANNELS * BUSY_PACKETS * 4)

/* The page that channel @id sends as number @i of a packet: each second one, so that no two are a run. */
static uint64_t busy_offset(unsigned id, unsigned packet, unsigned i)
{
    return (uint64_t)((id * BUSY_PACKETS + packet) * 4 + 2 * i) * PAGE;
}

/* A hello, packets of two pages, the last of which is a SYNC packet too, as old senders have them. */
static TestChannel *busy_channel(unsigned id)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    uint8_t content[PAGE];
    MultifdHelloWire hello;
    MultifdPacketWire wire;

    multifd_hello_encode(&hello, NULL, (uint8_t)id);
    g_byte_array_append(bytes, (const uint8_t *)&hello, sizeof(hello));
    for (unsigned packet = 0; packet < BUSY_PACKETS; packet++) {
        MultifdPacket p = {
            .flags = packet + 1 == BUSY_PACKETS ? MULTIFD_FLAG_SYNC : 0, .normal = 2, .payload = 2 * PAGE,
            .block = "m0", .offset = { busy_offset(id, packet, 0), busy_offset(id, packet, 1) },
        };
        multifd_packet_encode(&wire, &p);
        g_byte_array_append(bytes, (const uint8_t *)&wire, sizeof(wire));
        for (unsigned i = 0; i < 2; i++) {
            memset(content, (int)(1 + p.offset[i] / PAGE), PAGE);
            g_byte_array_append(bytes, content, PAGE);
        }
    }
    return test_channel_new(bytes->data, bytes->len, 0);
}

typedef struct Busy {
    TestGuest *guest;
    MigrationOptions options;
    MultifdRecv *recv;
    RamSource *source;
    int errors;
} Busy;

static void busy_begin(Busy *b, const char *fault)
{
    const uint64_t pages = BUSY_PAGES;

    *b = (Busy){ .guest = test_guest_new_shared(&pages, 1), .options = test_options() };
    b->options.p.multifd_channels = BUSY_CHANNELS;
    g_assert_true(fault_configure(fault, NULL));
    b->recv = multifd_recv_new(&b->guest->ram, &b->options, NULL, count_errors, &b->errors);
    b->source = multifd_recv_source(b->recv);
    for (unsigned id = 0; id < BUSY_CHANNELS; id++) {
        g_autoptr(Channel) channel = &busy_channel(id)->base;
        g_assert_true(multifd_recv_add_channel(b->recv, channel));
    }
}

static void busy_end(Busy *b, int errors)
{
    b->source->ops->cleanup(b->source);
    multifd_recv_free(b->recv);
    g_assert_cmpint(b->errors, ==, errors);
    fault_configure(NULL, NULL);
    test_guest_free(b->guest);
}

/*
 * The first to write keeps the file for a while.  Meanwhile the others read on, until one waits for the file
 * and the other goes through the mapping.  After the sync every page is there, and holes are holes still.
 */
static void test_busy_file(void)
{
    Busy b;

    busy_begin(&b, "multifd-recv-write:1:delay=300");
    OK(b.source->ops->flush_word(b.source, &error));
    g_assert_cmpuint(test_guest_allocated(b.guest, 0), ==, BUSY_CHANNELS * BUSY_PACKETS * 2);
    for (unsigned page = 0; page < BUSY_PAGES; page += 2) {
        uint8_t content[PAGE];
        memset(content, (int)(1 + page), PAGE);
        g_assert_cmpmem(b.guest->blocks[0].host + page * PAGE, PAGE, content, PAGE);
    }
    busy_end(&b, 0);
}

/* What cannot be written ends the migration, and lets go of the file. */
static void test_write_fails(void)
{
    g_autoptr(GError) error = NULL;
    Busy b;

    busy_begin(&b, "multifd-recv-write:2");
    g_assert_false(b.source->ops->flush_word(b.source, &error));
    assert_says(error, "multifd-recv-write");
    busy_end(&b, 1);
}
#endif

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/multifd-recv/truncated/none", GINT_TO_POINTER(MULTIFD_COMPRESSION_NONE),
                         test_truncated);
    g_test_add_data_func("/multifd-recv/truncated/zlib", GINT_TO_POINTER(MULTIFD_COMPRESSION_ZLIB),
                         test_truncated);
    g_test_add_data_func("/multifd-recv/truncated/zstd", GINT_TO_POINTER(MULTIFD_COMPRESSION_ZSTD),
                         test_truncated);
#ifdef CONFIG_FAULT_INJECTION
    g_test_add_func("/multifd-recv/busy-file", test_busy_file);
    g_test_add_func("/multifd-recv/write-fails", test_write_fails);
#endif
    return g_test_run();
}
