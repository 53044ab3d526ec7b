/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: a whole migration stream at a destination that has one block "m0" of 64 pages and a timer. */

/*
 * The first byte chooses: bit 0 x-ignore-shared, bit 1 a UUID of our own, bit 2 the channel ends in the
 * middle of what it gives. The rest is the stream.
 */
#include "fake-host.h"
#include "io/transport.h"
#include "migration/loadvm.h"

#define BLOCK_PAGES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) {
        return 0;
    }
    FakeHost h;
    fake_host_init(&h);
    fake_host_add_ram(&h, "m0", BLOCK_PAGES * TARGET_PAGE_SIZE);
    fake_host_set_state(&h, RUN_STATE_INMIGRATE);
    h.has_uuid = data[0] & 2;
    MigrationOptions *options = fake_options_new();
    options->caps[MIGRATION_CAPABILITY_X_IGNORE_SHARED] = data[0] & 1;
    MigrationHost host = { &h.ops, &h };

    size_t len = data[0] & 4 ? (size - 1) / 2 : size - 1;
    g_autoptr(Channel) channel = channel_buffer_new(data + 1, len);
    g_autoptr(GError) error = NULL;
    LoadVM *l = loadvm_new(&host, options, channel);
    loadvm_wait(l);
    bool ok = loadvm_run(l, &error);
    g_assert_true(ok == !error);
    loadvm_shut_return_path(l, ok, NULL);
    loadvm_free(l);
    migration_options_free(options);
    fake_host_clear(&h);
    return 0;
}
