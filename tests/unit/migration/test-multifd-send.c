/* SPDX-License-Identifier: BSD-2-Clause */
/* The sending half of multifd alone: its markers, its budget, and zero copy. */
#include "io/transport.h"
#include "migration/multifd.h"
#include "ram-test.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAGES 1024
#define FLUSH_WORD "\0\0\0\0\0\0\x02\0"       /* be64 0x200 */

typedef struct Checker {
    RamRoundNotifier notifier;
    TestChannel *main;
    unsigned rounds;
} Checker;

/* Runs after the sink's own notifier. */
static bool check_marker(Notifier *notifier, void *data, GError **errp)
{
    Checker *c = (Checker *)notifier;
    const GByteArray *sent = c->main->bytes;

    c->rounds++;
    g_assert_cmpuint(sent->len, >, 8);
    g_assert_cmpmem(sent->data + sent->len - 8, 8, FLUSH_WORD, 8);
    return true;
}

static void never_fails(const GError *error, void *opaque)
{
    g_error("%s", error->message);
}

/*
 * Half of memory is sent when the log is fetched again and has pages that this round has passed: the next
 * section ends the round and goes on with the next.  The destination's channels wait for the marker, so it
 * must be on its way before anything of the next round.
 */
static void test_marker_is_sent(void)
{
    const uint64_t pages = PAGES;
    g_autoptr(TestGuest) guest = test_guest_new(&pages, 1);
    g_autoptr(GPtrArray) channels = g_ptr_array_new_with_free_func((GDestroyNotify)channel_unref);
    MigrationOptions options = test_options();
    MultifdCounters counters = { 0 };
    DirtyLog log = { 0 };
    WatchLog watch;
    bool done = false;

    memset(guest->blocks[0].host, 0x77, PAGES * PAGE);
    options.p.zero_page_detection = ZERO_PAGE_DETECTION_MULTIFD;
    watch_log_init(&watch);
    dirty_log_add_provider(&log, &watch.provider);
    g_ptr_array_add(channels, test_channel_new(NULL, 0, 0));

    TestChannel *main = test_channel_new(NULL, 0, 0);
    StreamWriter *w = stream_writer_new(&main->base);
    RamSave *save = ram_save_new(&guest->ram, &log, &options, NULL);
    MultifdSendConfig config = { .channels = channels, .counters = &counters, .on_error = never_fails };
    ram_save_set_sink(save, multifd_send_new(save, &config, NULL));
    Checker checker = { .notifier.notify = check_marker, .main = main };
    OK(ram_save_setup(save, w, &error));
    ram_round_add_notifier(save, &checker.notifier);

    OK(ram_save_iterate(save, w, PAGES / 4 * PAGE, &done, &error));
    g_assert_false(done);
    g_assert_cmpuint(checker.rounds, ==, 0);
    watch_log_mark(&watch, &guest->blocks[0], 0);
    OK(ram_save_sync(save, false, &error));
    while (!done) {
        OK(ram_save_iterate(save, w, UINT64_MAX, &done, &error));
    }
    g_assert_cmpuint(checker.rounds, ==, 2);

    ram_round_remove_notifier(save, &checker.notifier);
    ram_save_free(save);
    stream_writer_free(w);
    channel_unref(&main->base);
    dirty_log_remove_provider(&log, &watch.provider);
    watch_log_free(&watch);
}

/*
 * A channel that nobody reads from takes no page: what it is given counts all the same, so that a rate limit
 * holds at once, and not only when the packets have been sent.
 */
static void test_budget(void)
{
    const uint64_t pages = 512, budget = 64;
    g_autoptr(TestGuest) guest = test_guest_new(&pages, 1);
    g_autoptr(GPtrArray) channels = g_ptr_array_new_with_free_func((GDestroyNotify)channel_unref);
    MigrationOptions options = test_options();
    MultifdCounters counters = { 0 };
    DirtyLog log = { 0 };
    int fds[2], smallest = 1;
    bool done = false;

    memset(guest->blocks[0].host, 0x77, pages * PAGE);
    options.p.zero_page_detection = ZERO_PAGE_DETECTION_MULTIFD;
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), ==, 0);
    g_ptr_array_add(channels, channel_from_fd(fds[0], NULL));
    /* A channel gets buffers of some MiB: here not even one packet may fit. */
    g_assert_cmpint(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &smallest, sizeof(smallest)), ==, 0);

    TestChannel *main = test_channel_new(NULL, 0, 0);
    StreamWriter *w = stream_writer_new(&main->base);
    RamSave *save = ram_save_new(&guest->ram, &log, &options, NULL);
    MultifdSendConfig config = { .channels = channels, .counters = &counters, .on_error = never_fails };
    ram_save_set_sink(save, multifd_send_new(save, &config, NULL));
    OK(ram_save_setup(save, w, &error));
    for (unsigned i = 1; i <= 4; i++) {
        OK(ram_save_iterate(save, w, budget * PAGE, &done, &error));
        g_assert_cmpuint(ram_save_pending(save), ==, (pages - i * budget) * PAGE);
    }
    g_assert_cmpuint(ram_save_in_flight(save), ==, 4 * budget * PAGE);

    ram_save_free(save);
    stream_writer_free(w);
    channel_unref(&main->base);
    close(fds[1]);
}

/* A channel whose memory is in the kernel's hands from a zero-copy write to the next flush. */
typedef struct PinningChannel {
    Channel base;
    bool copies;                /* the kernel does not really take the memory */
    unsigned pinned, writes, flushes, syncs;
} PinningChannel;

static ssize_t pinning_writev(Channel *base, const struct iovec *iov, int n, const int *fds, int n_fds,
                              unsigned flags, GError **errp)
{
    PinningChannel *c = (PinningChannel *)base;
    const MultifdPacketWire *wire = iov[0].iov_base;
    ssize_t total = 0;

    for (int i = 0; i < n; i++) {
        total += (ssize_t)iov[i].iov_len;
    }
    if (flags & CHANNEL_WRITE_ZERO_COPY) {
        g_assert_cmpint(total % PAGE, ==, 0);   /* guest memory, and nothing that is used again at once */
        c->pinned++;
        c->writes++;
    } else if (total == sizeof(*wire) && be32_get(wire->flags) & MULTIFD_FLAG_SYNC) {
        g_assert_cmpuint(c->pinned, ==, 0);
        c->syncs++;
    }
    return total;
}

static int pinning_flush(Channel *base, GError **errp)
{
    PinningChannel *c = (PinningChannel *)base;
    bool copied = c->copies && c->pinned;

    c->pinned = 0;
    c->flushes++;
    return copied;
}

static void pinning_shutdown(Channel *base)
{
}

static bool pinning_close(Channel *base, GError **errp)
{
    return true;
}

static int pinning_poll_fd(Channel *base)
{
    return -1;
}

static void pinning_free(Channel *base)
{
}

static const ChannelOps pinning_ops = {
    .kind = "pinning",
    .writev = pinning_writev,
    .flush_zero_copy = pinning_flush,
    .shutdown = pinning_shutdown,
    .close = pinning_close,
    .poll_fd = pinning_poll_fd,
    .free = pinning_free,
};

/*
 * No page may be sent again while the kernel may still read it for an older packet: nothing is pinned when a
 * SYNC goes out, which is before any page of the next round.  If the kernel copies, that is counted, once,
 * and not tried again.
 */
static void test_zero_copy(gconstpointer data)
{
    const uint64_t pages = PAGES;
    g_autoptr(TestGuest) guest = test_guest_new(&pages, 1);
    PinningChannel channel = {
        .base = { .ops = &pinning_ops, .ref_count = 1,
                  .features = CHANNEL_FEATURE_WRITE | CHANNEL_FEATURE_ZERO_COPY },
        .copies = GPOINTER_TO_INT(data),
    };
    g_autoptr(GPtrArray) channels = g_ptr_array_new();
    MigrationOptions options = test_options();
    MultifdCounters counters = { 0 };
    DirtyLog log = { 0 };
    WatchLog watch;
    bool done = false;

    memset(guest->blocks[0].host, 0x77, PAGES * PAGE);
    options.p.zero_page_detection = ZERO_PAGE_DETECTION_MULTIFD;
    options.caps[MIGRATION_CAPABILITY_ZERO_COPY_SEND] = true;
    watch_log_init(&watch);
    dirty_log_add_provider(&log, &watch.provider);
    g_ptr_array_add(channels, &channel);
    TestChannel *main = test_channel_new(NULL, 0, 0);
    StreamWriter *w = stream_writer_new(&main->base);
    RamSave *save = ram_save_new(&guest->ram, &log, &options, NULL);
    MultifdSendConfig config = { .channels = channels, .counters = &counters, .on_error = never_fails };
    ram_save_set_sink(save, multifd_send_new(save, &config, NULL));

    OK(ram_save_setup(save, w, &error));
    for (unsigned round = 1; round <= 3; round++) {
        for (done = false; !done;) {
            OK(ram_save_iterate(save, w, UINT64_MAX, &done, &error));
        }
        g_assert_cmpuint(channel.syncs, ==, 1 + round);
        g_assert_cmpuint(channel.flushes, >=, 1);
        /* The first round has 1024 pages, 128 a packet; each further one is one page. */
        g_assert_cmpuint(channel.writes, ==, channel.copies ? 8 : 7 + round);
        watch_log_mark(&watch, &guest->blocks[0], 5);
        OK(ram_save_sync(save, false, &error));
    }
    g_assert_cmpuint(ram_save_stats(save)->zero_copy_fallbacks, ==, channel.copies);

    ram_save_free(save);
    stream_writer_free(w);
    channel_unref(&main->base);
    dirty_log_remove_provider(&log, &watch.provider);
    watch_log_free(&watch);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/multifd-send/marker-when-a-round-ends", test_marker_is_sent);
    g_test_add_func("/multifd-send/budget", test_budget);
    g_test_add_data_func("/multifd-send/zero-copy", GINT_TO_POINTER(false), test_zero_copy);
    g_test_add_data_func("/multifd-send/zero-copy-copied", GINT_TO_POINTER(true), test_zero_copy);
    return g_test_run();
}
