/* SPDX-License-Identifier: BSD-2-Clause */
/* A fault at each point of a migration: the source's guest runs on, and the next try works. */
#include "pair.h"
#include "util/fault.h"

#define MIB (1024 * 1024ull)

typedef struct Fault {
    const char *spec;
    /*
     * The verdict is lost on its way: the protocol has no way to take back a guest that runs on the
     * destination.
     */
    bool handed_over;
    bool slow;          /* so that the fault comes while memory is still on its way */
} Fault;

static const Fault faults[] = {
    { "migration-connect:1" },
    { "ram-new:1" },
    { "savevm-header:1" },
    { "savevm-setup:1" },
    { "ram-setup:1" },
    { "dirty-sync:1" },
    { "dirty-sync:2" },
    { "dirty-sync:3" },
    { "savevm-part:1" },
    { "ram-send:1" },
    { "ram-round:1" },
    { "migration-stop-guest:1" },
    { "savevm-end:1" },
    { "ram-complete:1" },
    { "savevm-device:1" },
    { "savevm-device:2" },
    { "migration-handover:1" },
    { "savevm-eof:1" },
    { "return-path-read:1", .slow = true },
    { "return-path-read:2", true },
    { "loadvm-element:1" },
    { "loadvm-element:5" },
    { "ram-load:1" },
    { "ram-load:2" },
    { "loadvm-eof:1" },
    { "incoming-start-guest:1" },
    { "return-path-write:1" },
    { "return-path-write:2", true },
};

static void migrate(Vm *src, Vm *dst, unsigned n)
{
    g_autofree char *uri = g_strdup_printf("unix:%s/f%u", test_directory(), n);
    g_autoptr(GError) error = NULL;
    migration_incoming_start(dst->ctx, uri, NULL, true, &error);
    g_assert_no_error(error);
    migration_start(src->ctx, uri, NULL, false, &error);
    g_assert_no_error(error);
}

static void test_fault(gconstpointer data)
{
    const Fault *f = data;
    Vm src, dst, second;
    g_autoptr(GError) error = NULL;

    vm_init(&src, 2 * MIB, false);
    vm_init(&dst, 2 * MIB, true);
    vm_init(&second, 2 * MIB, true);
    vm_fill_random(&src, 11);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);

    if (f->slow) {
        vm_set_parameter(&src, "max-bandwidth", "2M");
    }
    fault_configure(f->spec, &error);
    g_assert_no_error(error);
    migrate(&src, &dst, 1);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_FAILED);
    g_assert_cmpint(fake_host_state(&src.host), ==, RUN_STATE_RUNNING);
    g_assert_cmpuint(src.host.stops, ==, src.host.resumes);
    g_assert_false(src.host.dirty_log.started);
    g_assert_true(migration_allows_start(src.ctx, NULL));
    g_autoptr(MigrationInfo) info = migration_query(src.ctx);
    g_assert_nonnull(info->error_desc);
    if (!f->handed_over) {
        g_assert_cmpuint(dst.host.resumes, ==, 0);
    }
    vm_clear(&dst);
    fault_configure(NULL, NULL);

    vm_set_parameter(&src, "max-bandwidth", "0");
    migrate(&src, &second, 2);
    g_assert_cmpint(vm_wait_end(&src), ==, MIGRATION_STATUS_COMPLETED);
    vm_wait_incoming_ended(&second);
    g_assert_cmpstr(second.host.ended_error, ==, NULL);
    assert_same_ram(&src, &second);
    vm_clear(&second);
    vm_clear(&src);
}

/* The source's transport complains when all has been sent: the destination has the guest, and says so. */
static void test_settle(void)
{
    Vm src, dst;

    vm_init(&src, 2 * MIB, false);
    vm_init(&dst, 2 * MIB, true);
    vm_fill_random(&src, 11);
    vm_set_capability(&src, MIGRATION_CAPABILITY_RETURN_PATH, true);
    fault_configure("migration-settle:1", NULL);
    migrate(&src, &dst, 0);
    pair_assert_arrived(&src, &dst);
    fault_configure(NULL, NULL);
    pair_clear(&src, &dst);
}

static void test_none(void)
{
    g_test_skip("this build has no fault points");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!fault_points()[0]) {
        g_test_add_func("/faults/none", test_none);
        return g_test_run();
    }
    for (size_t i = 0; i < G_N_ELEMENTS(faults); i++) {
        g_autofree char *path = g_strdup_printf("/faults/%s", faults[i].spec);
        g_test_add_data_func(path, &faults[i], test_fault);
    }
    g_test_add_func("/faults/migration-settle", test_settle);
    return g_test_run();
}
