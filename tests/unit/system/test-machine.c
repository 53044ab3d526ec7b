/* SPDX-License-Identifier: BSD-2-Clause */
/* Machine: types, memory access by address across blocks, the section "timer". */
#include <string.h>

#include "system/machine-none.h"
#include "util/bitmap.h"
#include "util/error.h"

#define PAGE 4096

static void test_types(void)
{
    g_assert_null(machine_type_find("none"));
    machine_type_register(&machine_none_type);
    g_assert_true(machine_type_find("none") == &machine_none_type);
    g_assert_null(machine_type_find("nonesuch"));
    g_autoptr(GPtrArray) list = machine_type_list();
    g_assert_cmpuint(list->len, ==, 1);
    g_assert_true(g_ptr_array_index(list, 0) == &machine_none_type);
    /* Facts of the peers' machine. */
    g_assert_cmpuint(machine_none_type.max_cpus, ==, 1);
    g_assert_cmpuint(machine_none_type.default_ram_size, ==, 0);
}

static void test_new(void)
{
    g_autoptr(GError) error = NULL;
    Machine *m = machine_new(&machine_none_type, false);
    g_assert_cmpint(machine_run_state(m), ==, RUN_STATE_PRELAUNCH);
    g_assert_nonnull(m->soft_dirty_log);
    g_assert_true(m->dirty_log.providers == soft_dirty_log_provider(m->soft_dirty_log));
    g_assert_cmpint(machine_clock_ns(m), ==, 0);
    g_assert_true(machine_init(m, &error));
    g_assert_no_error(error);
    machine_free(m);
    m = machine_new(&machine_none_type, true);
    g_assert_cmpint(machine_run_state(m), ==, RUN_STATE_INMIGRATE);
    machine_free(m);
    machine_free(NULL);
}

/* ---- memory: two adjacent blocks, a hole, a read-only block ---- */

typedef struct Fixture {
    Machine *m;
    uint8_t *memory;
    RAMBlock low, next, rom;
} Fixture;

static void block_add(Fixture *fx, RAMBlock *block, const char *idstr, unsigned first, unsigned pages,
                      uint64_t gpa)
{
    g_strlcpy(block->idstr, idstr, sizeof(block->idstr));
    block->host = fx->memory + first * PAGE;
    block->used_length = pages * PAGE;
    block->gpa = gpa;
    block->fd = -1;
    g_assert_true(ram_list_add(&fx->m->ram, block, NULL));
}

static void fixture_setup(Fixture *fx, gconstpointer data)
{
    memset(fx, 0, sizeof(*fx));
    fx->m = machine_new(&machine_none_type, false);
    fx->memory = g_aligned_alloc0(16, PAGE, PAGE);
    /* Adjacent for the guest, not for us. */
    block_add(fx, &fx->low, "low", 8, 2, 0);
    block_add(fx, &fx->next, "next", 0, 4, 2 * PAGE);
    fx->rom.readonly = true;
    block_add(fx, &fx->rom, "rom", 12, 1, 6 * PAGE);
}

static void fixture_teardown(Fixture *fx, gconstpointer data)
{
    machine_free(fx->m);
    g_aligned_free(fx->memory);
}

static void test_memory_spans_blocks(Fixture *fx, gconstpointer data)
{
    uint8_t out[3 * PAGE], in[3 * PAGE];
    for (size_t i = 0; i < sizeof(out); i++) {
        out[i] = i * 7 + 1;
    }
    uint64_t gpa = 2 * PAGE - 100;
    g_assert_true(machine_memory_write(fx->m, gpa, out, sizeof(out), NULL));
    g_assert_cmpmem(fx->memory + 10 * PAGE - 100, 100, out, 100);
    g_assert_cmpmem(fx->memory, sizeof(out) - 100, out + 100, sizeof(out) - 100);
    g_assert_cmpuint(fx->memory[10 * PAGE], ==, 0);
    g_assert_cmpuint(fx->memory[3 * PAGE - 100], ==, 0);
    g_assert_true(machine_memory_read(fx->m, gpa, in, sizeof(in), NULL));
    g_assert_cmpmem(in, sizeof(in), out, sizeof(out));
    g_assert_true(machine_memory_write(fx->m, 12345678, NULL, 0, NULL));
}

static void test_memory_refusals(Fixture *fx, gconstpointer data)
{
    static const struct {
        uint64_t gpa, len;
        const char *message;
    } cases[] = {
        { 8 * PAGE, 1, "no memory is mapped at address 0x8000" },
        { 7 * PAGE - 1, 2, "no memory is mapped at address 0x7000" },
        { UINT64_MAX, 1, "no memory is mapped at address 0xffffffffffffffff" },
        { 0, UINT64_MAX, "no memory is mapped at address 0x7000" },
    };
    uint8_t *buf = g_malloc0(8 * PAGE);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(machine_memory_read(fx->m, cases[i].gpa, buf, cases[i].len, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
        g_assert_cmpstr(error->message, ==, cases[i].message);
    }

    /* A write that ends in the read-only block moves nothing, and can read there. */
    g_autoptr(GError) error = NULL;
    memset(buf, 0xaa, 2 * PAGE);
    g_assert_false(machine_memory_write(fx->m, 5 * PAGE, buf, 2 * PAGE, &error));
    g_assert_cmpstr(error->message, ==, "memory at address 0x6000 (RAM block 'rom') is read-only");
    g_assert_true(machine_memory_read(fx->m, 5 * PAGE, buf, 2 * PAGE, NULL));
    for (size_t i = 0; i < 2 * PAGE; i++) {
        g_assert_cmpuint(buf[i], ==, 0);
    }
    g_free(buf);
}

static void test_memory_end_of_address_space(Fixture *fx, gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    RAMBlock top = { 0 };
    uint8_t buf[PAGE] = { 1 };
    block_add(fx, &top, "top", 14, 1, UINT64_MAX - PAGE + 1);
    g_assert_true(machine_memory_write(fx->m, UINT64_MAX, buf, 1, NULL));
    g_assert_cmpuint(fx->memory[15 * PAGE - 1], ==, 1);
    /* Does not go on at address 0. */
    g_assert_false(machine_memory_read(fx->m, UINT64_MAX, buf, 2, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    ram_list_remove(&fx->m->ram, &top);
}

static void test_memory_writes_are_logged(Fixture *fx, gconstpointer data)
{
    uint64_t low = 0, next = 0, new_dirty = 0;
    uint8_t buf[2 * PAGE] = { 0 };

    g_assert_true(dirty_log_start(&fx->m->dirty_log, &fx->m->ram, NULL));
    g_assert_true(machine_memory_write(fx->m, 2 * PAGE - 1, buf, PAGE + 2, NULL));
    g_assert_true(machine_memory_read(fx->m, 0, buf, sizeof(buf), NULL));
    g_assert_false(machine_memory_write(fx->m, 6 * PAGE - 1, buf, 2, NULL));
    g_assert_true(dirty_log_sync(&fx->m->dirty_log, &fx->low, 0, 2, &low, &new_dirty, NULL));
    g_assert_true(dirty_log_sync(&fx->m->dirty_log, &fx->next, 0, 4, &next, &new_dirty, NULL));
    g_assert_cmphex(low, ==, 2);
    g_assert_cmphex(next, ==, 3);
    g_assert_cmpuint(new_dirty, ==, 3);
}

/* ---- section "timer": the layout that the stream has, read off the table ---- */

static void test_timer_section(void)
{
    Machine *m = machine_new(&machine_none_type, true);
    g_assert_true(machine_init(m, NULL));

    const SaveEntry *entry = m->save_entries.first;
    g_assert_cmpstr(entry->idstr, ==, "timer");
    g_assert_cmpuint(entry->instance_id, ==, 0);
    g_assert_null(entry->next);
    const VMStateDescription *vmsd = entry->vmsd;
    g_assert_cmpstr(vmsd->name, ==, "timer");
    g_assert_cmpint(vmsd->version, ==, 2);
    g_assert_cmpint(vmsd->minimum_version, ==, 1);
    static const struct {
        const char *name;
        VMStateFieldType type;
        int version;
    } fields[] = {
        { "cpu_ticks_offset", VMSTATE_INT64, 0 },
        { "unused", VMSTATE_UNUSED, 0 },
        { "cpu_clock_offset", VMSTATE_INT64, 2 },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++) {
        g_assert_cmpstr(vmsd->fields[i].name, ==, fields[i].name);
        g_assert_cmpint(vmsd->fields[i].type, ==, fields[i].type);
        g_assert_cmpint(vmsd->fields[i].version, ==, fields[i].version);
        g_assert_cmpuint(vmsd->fields[i].size, ==, 8);
    }
    g_assert_null(vmsd->fields[3].name);

    /* As a load does: fields in, post_load; the clock is then that of the guest that came. */
    uint8_t *base = entry->opaque;
    int64_t clock = 123456789012345, ticks = -77, read_back;
    g_assert_true(vmsd->pre_load(base, NULL));
    memcpy(base + vmsd->fields[0].offset, &ticks, 8);
    memcpy(base + vmsd->fields[2].offset, &clock, 8);
    g_assert_true(vmsd->post_load(base, 2, NULL));
    g_assert_cmpint(machine_clock_ns(m), ==, clock);

    /* Version 1 has no clock: it stays. */
    g_assert_true(vmsd->pre_load(base, NULL));
    g_assert_true(vmsd->post_load(base, 1, NULL));
    g_assert_cmpint(machine_clock_ns(m), ==, clock);

    g_assert_true(machine_start(m, NULL));
    g_usleep(1000);
    g_assert_true(machine_stop(m, RUN_STATE_FINISH_MIGRATE, NULL));
    g_assert_true(vmsd->pre_save(base, NULL));
    memcpy(&read_back, base + vmsd->fields[2].offset, 8);
    g_assert_cmpint(read_back, ==, machine_clock_ns(m));
    g_assert_cmpint(read_back, >=, clock + 1000 * 1000);
    memcpy(&read_back, base + vmsd->fields[0].offset, 8);
    g_assert_cmpint(read_back, ==, ticks);

    /* Any value may come: no overflow. */
    clock = INT64_MAX;
    memcpy(base + vmsd->fields[2].offset, &clock, 8);
    g_assert_true(vmsd->post_load(base, 2, NULL));
    g_assert_true(machine_start(m, NULL));
    (void)machine_clock_ns(m);
    machine_free(m);
}

static void test_save_entry_order(void)
{
    SaveEntry a = { .idstr = "a" }, b = { .idstr = "b" }, c = { .idstr = "c" };
    SaveEntryList list = { 0 };

    save_entry_list_add(&list, &b);
    save_entry_list_add(&list, &a);
    save_entry_list_add(&list, &c);
    g_assert_true(list.first == &b && b.next == &a && a.next == &c && !c.next);
    save_entry_list_remove(&list, &a);
    save_entry_list_remove(&list, &a);
    g_assert_true(list.first == &b && b.next == &c && !c.next);
    save_entry_list_remove(&list, &b);
    save_entry_list_remove(&list, &c);
    g_assert_null(list.first);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/system/machine/types", test_types);
    g_test_add_func("/system/machine/new", test_new);
    g_test_add_func("/system/machine/timer-section", test_timer_section);
    g_test_add_func("/system/machine/save-entry-order", test_save_entry_order);
#define ADD(name, func) \
    g_test_add("/system/machine/" name, Fixture, NULL, fixture_setup, func, fixture_teardown)
    ADD("memory-spans-blocks", test_memory_spans_blocks);
    ADD("memory-refusals", test_memory_refusals);
    ADD("memory-end-of-address-space", test_memory_end_of_address_space);
    ADD("memory-writes-are-logged", test_memory_writes_are_logged);
    return g_test_run();
}
