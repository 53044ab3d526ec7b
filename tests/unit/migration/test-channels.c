/* SPDX-License-Identifier: BSD-2-Clause */
/* Channel lists, and which capability goes with which transport. */
#include "fake-host.h"
#include "migration/channels.h"
#include "migration/uri.h"

static MigrationChannel *make_channel(MigrationChannelType type, const char *uri)
{
    MigrationChannel *c = g_new0(MigrationChannel, 1);
    c->channel_type = type;
    c->addr = migration_uri_parse(uri, NULL);
    g_assert_nonnull(c->addr);
    return c;
}

static MigrationChannelList *make_list(size_t count, MigrationChannel **items)
{
    MigrationChannelList *list = g_new0(MigrationChannelList, 1);
    list->count = count;
    list->items = g_memdup2(items, count * sizeof(*items));
    return list;
}

static void refuse(const char *uri, const MigrationChannelList *list, const char *message)
{
    g_autoptr(GError) error = NULL;
    g_assert_null(migration_main_address(uri, list, &error));
    g_assert_nonnull(error);
    g_assert_cmpstr(error->message, ==, message);
}

static void test_lists(void)
{
    MigrationChannel *main1 = make_channel(MIGRATION_CHANNEL_TYPE_MAIN, "tcp:h:1");
    MigrationChannel *main2 = make_channel(MIGRATION_CHANNEL_TYPE_MAIN, "tcp:h:2");
    MigrationChannel *cpr = make_channel(MIGRATION_CHANNEL_TYPE_CPR, "unix:/c");
    MigrationChannel *empty = make_channel(MIGRATION_CHANNEL_TYPE_MAIN, "exec:x");
    for (size_t i = 0; i < empty->addr->u.exec->args->count; i++) {
        g_free(empty->addr->u.exec->args->items[i]);
    }
    empty->addr->u.exec->args->count = 0;

    MigrationChannelList *none = make_list(0, NULL);
    MigrationChannelList *two = make_list(2, (MigrationChannel *[]){ main1, main2 });
    MigrationChannelList *only_cpr = make_list(1, &cpr);
    MigrationChannelList *no_args = make_list(1, &empty);
    MigrationChannelList *good = make_list(2, (MigrationChannel *[]){ cpr, main1 });

    refuse(NULL, NULL, "need either 'uri' or 'channels' argument");
    refuse(NULL, none, "need either 'uri' or 'channels' argument");
    refuse("tcp:h:1", good, "need either 'uri' or 'channels' argument");
    refuse(NULL, two, "Channel list has more than one main entry");
    refuse(NULL, only_cpr, "Channel list has no main entry");
    refuse(NULL, no_args, "The list of arguments of an exec channel is empty");

    g_autoptr(MigrationAddress) addr = migration_main_address(NULL, good, NULL);
    g_assert_cmpstr(addr->u.socket->u.inet->port, ==, "1");
    g_autoptr(MigrationAddress) by_uri = migration_main_address("tcp:h:5", none, NULL);
    g_assert_cmpstr(by_uri->u.socket->u.inet->port, ==, "5");

    MigrationChannel *all[] = { main1, main2, cpr, empty };
    MigrationChannelList *lists[] = { none, two, only_cpr, no_args, good };
    for (size_t i = 0; i < G_N_ELEMENTS(lists); i++) {
        g_free(lists[i]->items);
        g_free(lists[i]);
    }
    qapi_free_MigrationChannelList(make_list(G_N_ELEMENTS(all), all));
}

#define MULTI "Migration requires multi-channel URIs (e.g. tcp)"
#define SEEKABLE "Migration requires seekable transport (e.g. file)"

static void test_transports(void)
{
    static const struct {
        const char *uri;
        int caps[2];
        const char *message;
    } cases[] = {
        { "tcp:h:1", { -1, -1 }, NULL },
        { "tcp:h:1", { MIGRATION_CAPABILITY_MULTIFD, -1 }, NULL },
        { "unix:/u", { MIGRATION_CAPABILITY_MULTIFD, MIGRATION_CAPABILITY_POSTCOPY_PREEMPT }, NULL },
        { "vsock:1:1", { MIGRATION_CAPABILITY_MULTIFD, -1 }, NULL },
        { "fd:x", { MIGRATION_CAPABILITY_MULTIFD, -1 }, MULTI },
        { "exec:x", { MIGRATION_CAPABILITY_MULTIFD, -1 }, MULTI },
        { "file:x", { MIGRATION_CAPABILITY_MULTIFD, -1 }, MULTI },
        { "rdma:h:1", { MIGRATION_CAPABILITY_MULTIFD, -1 }, MULTI },
        { "exec:x", { MIGRATION_CAPABILITY_POSTCOPY_PREEMPT, -1 }, MULTI },
        { "file:x", { MIGRATION_CAPABILITY_MAPPED_RAM, -1 }, NULL },
        { "file:x", { MIGRATION_CAPABILITY_MAPPED_RAM, MIGRATION_CAPABILITY_MULTIFD }, NULL },
        { "tcp:h:1", { MIGRATION_CAPABILITY_MAPPED_RAM, -1 }, SEEKABLE },
        { "tcp:h:1", { MIGRATION_CAPABILITY_MAPPED_RAM, MIGRATION_CAPABILITY_MULTIFD }, SEEKABLE },
        { "exec:x", { MIGRATION_CAPABILITY_MAPPED_RAM, -1 }, SEEKABLE },
        { "rdma:h:1", { MIGRATION_CAPABILITY_XBZRLE, -1 }, "RDMA and XBZRLE can't be used together" },
        { "rdma:h:1", { MIGRATION_CAPABILITY_POSTCOPY_RAM, -1 },
          "RDMA and postcopy-ram can't be used together" },
        { "rdma:h:1", { MIGRATION_CAPABILITY_RDMA_PIN_ALL, -1 }, NULL },
        { "rdma:h:1", { MIGRATION_CAPABILITY_X_IGNORE_SHARED, -1 },
          "RDMA and x-ignore-shared can't be used together: RAM block 'seen-by-all' is shared" },
        /* What is said of several does not depend on the order in which they were set. */
        { "rdma:h:1", { MIGRATION_CAPABILITY_X_IGNORE_SHARED, MIGRATION_CAPABILITY_XBZRLE },
          "RDMA and XBZRLE can't be used together" },
        { "tcp:h:1", { MIGRATION_CAPABILITY_X_IGNORE_SHARED, -1 }, NULL },
    };
    RAMBlock shared = { .idstr = "seen-by-all", .shared = true };
    RAMBlock own = { .idstr = "own", .next = &shared };
    RamList ram = { &own, 2 };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        MigrationOptions *options = fake_options_new();
        g_autoptr(MigrationAddress) addr = migration_uri_parse(cases[i].uri, NULL);
        g_autoptr(GError) error = NULL;
        for (int j = 0; j < 2; j++) {
            if (cases[i].caps[j] >= 0) {
                options->caps[cases[i].caps[j]] = true;
            }
        }
        bool ok = migration_check_transport(addr, options, &ram, &error);
        g_assert_cmpint(ok, ==, cases[i].message == NULL);
        g_assert_cmpstr(error ? error->message : NULL, ==, cases[i].message);
        migration_options_free(options);
    }
}

/* x-ignore-shared leaves nothing out where nothing is shared. */
static void test_private_memory(void)
{
    MigrationOptions *options = fake_options_new();
    g_autoptr(MigrationAddress) addr = migration_uri_parse("rdma:h:1", NULL);
    RAMBlock own = { .idstr = "own" };
    RamList ram = { &own, 1 };

    options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] = true;
    g_assert_true(migration_check_transport(addr, options, &ram, NULL));
    migration_options_free(options);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/channels/lists", test_lists);
    g_test_add_func("/channels/transports", test_transports);
    g_test_add_func("/channels/private-memory", test_private_memory);
    return g_test_run();
}
