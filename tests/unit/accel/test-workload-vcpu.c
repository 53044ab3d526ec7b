/* SPDX-License-Identifier: BSD-2-Clause */
/* Synthetic vCPUs: they run, pause, move to another machine, and notice every kind of damage. */
#include "accel/workload/workload.h"

#include <glib.h>
#include <string.h>

#define RAM_SIZE (8u << 20)

typedef struct Guest {
    Machine *machine;
    RAMBlock block;
} Guest;

static void guest_init(Guest *g, bool incoming, unsigned cpus, const char *const *properties)
{
    GError *error = NULL;
    g->machine = machine_new(&workload_machine_type, incoming);
    g->machine->cpus = cpus;
    for (; properties && *properties; properties += 2) {
        g_hash_table_insert(g->machine->properties, g_strdup(properties[0]), g_strdup(properties[1]));
    }
    g->block = (RAMBlock){ .used_length = RAM_SIZE, .page_size = 4096, .fd = -1 };
    g_strlcpy(g->block.idstr, "ram", sizeof(g->block.idstr));
    g->block.host = g_aligned_alloc0(1, RAM_SIZE, 4096);
    g_assert_true(ram_list_add(&g->machine->ram, &g->block, &error));
    g_assert_true(workload_machine_type.init(g->machine, &error));
    g_assert_no_error(error);
    g_assert_true(g->machine->cpu_ops->create(g->machine, &error));
}

static void guest_clear(Guest *g)
{
    machine_free(g->machine);
    g_aligned_free(g->block.host);
}

static uint64_t total(Guest *g, size_t member)
{
    g_autoptr(WorkloadStats) stats = workload_query(g->machine);
    uint64_t sum = 0;
    for (unsigned i = 0; i < stats->n_vcpus; i++) {
        sum += G_STRUCT_MEMBER(uint64_t, &stats->vcpus[i], member);
    }
    return sum;
}

#define TOTAL(g, member) total((g), offsetof(WorkloadVcpuStats, member))

static void wait_written(Guest *g, uint64_t pages)
{
    while (TOTAL(g, pages_written) < pages) {
        g_usleep(1000);
    }
}

/* True if a complete check of all pages finds no error. */
static bool verify(Guest *g)
{
    GError *error = NULL;
    g_assert_true(workload_verify(g->machine, &error));
    for (;;) {
        g_autoptr(WorkloadStats) stats = workload_query(g->machine);
        if (!stats->verifying) {
            return stats->verified;
        }
        g_usleep(1000);
    }
}

static void run(Guest *g)
{
    GError *error = NULL;
    g_assert_true(machine_start(g->machine, &error));
}

static void pause_guest(Guest *g)
{
    GError *error = NULL;
    g_assert_true(machine_stop(g->machine, RUN_STATE_PAUSED, &error));
}

/* What a migration does, in two copies: memory, and the sections' fields. */
static void move(Guest *from, Guest *to)
{
    Workload *source = from->machine->accel_data, *destination = to->machine->accel_data;
    GError *error = NULL;

    memcpy(to->block.host, from->block.host, RAM_SIZE);
    g_assert_true(source->config_entry.vmsd->pre_save(source, &error));
    destination->wire = source->wire;
    g_assert_true(destination->config_entry.vmsd->post_load(destination, 1, &error));
    for (unsigned i = 0; i < source->cfg.n_vcpus; i++) {
        const VMStateDescription *vmsd = source->vcpu_entries[i].vmsd;
        g_assert_true(vmsd->pre_save(&source->vcpus[i], &error));
        destination->vcpus[i].wire = source->vcpus[i].wire;
        g_assert_true(vmsd->post_load(&destination->vcpus[i], 1, &error));
    }
    g_assert_no_error(error);
}

static void test_patterns(void)
{
    for (const char *const *pattern = workload_pattern_names; *pattern; pattern++) {
        const char *const properties[] = { "pattern", *pattern, NULL };
        Guest g;
        guest_init(&g, false, 2, properties);
        run(&g);
        wait_written(&g, RAM_SIZE / 4096 - 2 * 16);
        g_assert_true(verify(&g));
        pause_guest(&g);
        uint64_t before = TOTAL(&g, pages_written);
        g_assert_true(verify(&g));
        g_assert_cmpuint(TOTAL(&g, pages_written), ==, before);
        guest_clear(&g);
    }
}

static void test_rate(void)
{
    const char *const properties[] = { "rate", "4M", "prefill", "off", NULL };
    Guest g;
    guest_init(&g, false, 1, properties);
    int64_t start = g_get_monotonic_time();
    run(&g);
    wait_written(&g, 1);
    g_usleep(300000);
    pause_guest(&g);
    int64_t elapsed = g_get_monotonic_time() - start;
    /* 1024 pages a second, and the tenth of a second that may be in hand. */
    g_assert_cmpuint(TOTAL(&g, pages_written), <=, elapsed * 1024 / 1000000 + 105);
    guest_clear(&g);
}

static void test_move(void)
{
    Guest a, b;
    guest_init(&a, false, 2, NULL);
    guest_init(&b, true, 2, (const char *const[]){ "pattern", "fill", "seed", "99", NULL });
    memset(b.block.host, 0xa5, RAM_SIZE);
    run(&a);
    wait_written(&a, 5000);
    pause_guest(&a);
    move(&a, &b);
    uint64_t written = TOTAL(&b, pages_written);
    g_assert_cmpuint(written, ==, TOTAL(&a, pages_written));
    run(&b);
    wait_written(&b, written + 1000);
    g_assert_true(verify(&b));
    g_assert_cmpuint(TOTAL(&b, switchover_gap_ns), >, 0);
    guest_clear(&a);
    guest_clear(&b);
}

/* Damages one page of a paused guest and looks for the words of the verdict. */
static void check_damage(void (*damage)(Guest *g, uint8_t *page), const char *words)
{
    Guest g;
    guest_init(&g, false, 1, (const char *const[]){ "zero", "0", NULL });
    run(&g);
    wait_written(&g, 3000);
    pause_guest(&g);
    g_assert_true(verify(&g));
    damage(&g, g.block.host + 1000 * 4096);
    g_assert_false(verify(&g));
    g_autoptr(WorkloadStats) stats = workload_query(g.machine);
    g_assert_cmpuint(stats->vcpus[0].errors, >=, 1);
    g_assert_nonnull(strstr(stats->first_error, words));
    guest_clear(&g);
}

static void damage_lost(Guest *g, uint8_t *page)
{
    memset(page, 0, 4096);
}

static void damage_torn(Guest *g, uint8_t *page)
{
    page[4000] ^= 1;
}

static void damage_foreign(Guest *g, uint8_t *page)
{
    memcpy(page, page + 4096, 4096);
}

/* An older version of the table and the page together: the pair is consistent, the sum is not. */
static void damage_table(Guest *g, uint8_t *page)
{
    Workload *w = g->machine->accel_data;
    WorkloadVcpu *v = &w->vcpus[0];
    uint64_t index = 1000 - v->table_pages;
    uint32_t *version = (uint32_t *)g->block.host + index;
    *version += 1;
    workload_page_write(&w->cfg, page, 1000, *version, 0);
}

static void test_damage(void)
{
    check_damage(damage_lost, "is lost");
    check_damage(damage_torn, "is torn");
    check_damage(damage_foreign, "is foreign");
    check_damage(damage_table, "does not add up");
}

static void test_bad_options(void)
{
    static const char *const bad[][4] = {
        { "pattern", "zigzag", NULL }, { "zero", "101", NULL },   { "zero", "60", "compressible", "41" },
        { "rate", "-1", NULL },        { "prefill", "2", NULL }, { "seed", "x", NULL },
    };
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        Machine *m = machine_new(&workload_machine_type, false);
        RAMBlock block = { .idstr = "ram", .used_length = RAM_SIZE, .page_size = 4096, .fd = -1 };
        block.host = g_aligned_alloc0(1, RAM_SIZE, 4096);
        m->cpus = 1;
        g_assert_true(ram_list_add(&m->ram, &block, &error));
        for (unsigned j = 0; j < 4 && bad[i][j]; j += 2) {
            g_hash_table_insert(m->properties, g_strdup(bad[i][j]), g_strdup(bad[i][j + 1]));
        }
        g_assert_false(workload_machine_type.init(m, &error));
        g_assert_nonnull(strstr(error->message, bad[i][0]));
        machine_free(m);
        g_aligned_free(block.host);
    }
}

static void test_refuses_another_size(void)
{
    Guest a, b;
    g_autoptr(GError) error = NULL;
    guest_init(&a, false, 1, NULL);
    guest_init(&b, true, 2, NULL);
    Workload *source = a.machine->accel_data, *destination = b.machine->accel_data;
    g_assert_true(source->config_entry.vmsd->pre_save(source, &error));
    destination->wire = source->wire;
    g_assert_false(destination->config_entry.vmsd->post_load(destination, 1, &error));
    g_assert_cmpstr(error->message, ==, "The workload guest has 1 vCPUs, this machine has 2");
    guest_clear(&a);
    guest_clear(&b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/workload/vcpu/patterns", test_patterns);
    g_test_add_func("/workload/vcpu/rate", test_rate);
    g_test_add_func("/workload/vcpu/move", test_move);
    g_test_add_func("/workload/vcpu/damage", test_damage);
    g_test_add_func("/workload/vcpu/bad-options", test_bad_options);
    g_test_add_func("/workload/vcpu/refuses-another-size", test_refuses_another_size);
    return g_test_run();
}
