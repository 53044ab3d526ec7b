/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of RAM blocks: order, names, refusals, translation of guest addresses. */
#include <string.h>

#include "system/ramblock.h"
#include "util/error.h"

#define MIB (1024 * 1024)

/* No test here touches the memory, so any aligned address will do. */
static RAMBlock block_make(const char *idstr, uint64_t size, uint64_t gpa)
{
    RAMBlock block = {
        .host = (uint8_t *)(uintptr_t)(0x100000000 + gpa), .used_length = size, .gpa = gpa, .fd = -1
    };
    g_strlcpy(block.idstr, idstr, sizeof(block.idstr));
    return block;
}

static void add_ok(RamList *list, RAMBlock *block)
{
    g_autoptr(GError) error = NULL;
    g_assert_true(ram_list_add(list, block, &error));
    g_assert_no_error(error);
}

static void assert_order(const RamList *list, const char *expect)
{
    g_autoptr(GString) names = g_string_new(NULL);
    unsigned index = 0;

    RAMLIST_FOREACH(block, list) {
        g_assert_cmpuint(block->index, ==, index);
        g_string_append_printf(names, "%s%s", index ? " " : "", block->idstr);
        index++;
    }
    g_assert_cmpstr(names->str, ==, expect);
    g_assert_cmpuint(list->count, ==, index);
}

static void test_largest_first(void)
{
    RamList list = { 0 };
    RAMBlock a = block_make("a", 1 * MIB, 0), b = block_make("b", 4 * MIB, 1 * MIB);
    RAMBlock c = block_make("c", 1 * MIB, 8 * MIB), d = block_make("d", 2 * MIB, 16 * MIB);
    RAMBlock e = block_make("e", 4 * MIB, 32 * MIB);

    add_ok(&list, &a);
    assert_order(&list, "a");
    add_ok(&list, &b);
    assert_order(&list, "b a");
    add_ok(&list, &c);
    assert_order(&list, "b a c");
    add_ok(&list, &d);
    assert_order(&list, "b d a c");
    add_ok(&list, &e);
    assert_order(&list, "b e d a c");
    g_assert_cmpuint(ram_list_total(&list), ==, 12 * MIB);

    ram_list_remove(&list, &d);
    assert_order(&list, "b e a c");
    ram_list_remove(&list, &d);
    assert_order(&list, "b e a c");
    ram_list_remove(&list, &b);
    ram_list_remove(&list, &c);
    assert_order(&list, "e a");
    g_assert_cmpuint(ram_list_total(&list), ==, 5 * MIB);

    g_assert_true(ram_list_find(&list, "a") == &a);
    g_assert_null(ram_list_find(&list, "b"));
    g_assert_null(ram_list_find(&list, ""));
}

static void assert_refused(RamList *list, RAMBlock *block, const char *part)
{
    g_autoptr(GError) error = NULL;
    unsigned count = list->count;

    g_assert_false(ram_list_add(list, block, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_INVALID);
    if (!strstr(error->message, part)) {
        g_test_message("%s", error->message);
        g_assert_not_reached();
    }
    g_assert_cmpuint(list->count, ==, count);
}

static void test_refusals(void)
{
    RamList list = { 0 };
    RAMBlock good = block_make("m0", MIB, 0);
    add_ok(&list, &good);

    RAMBlock twin = block_make("m0", 2 * MIB, 4 * MIB);
    assert_refused(&list, &twin, "'m0': there is one of this name already");
    RAMBlock nameless = block_make("", MIB, 4 * MIB);
    assert_refused(&list, &nameless, "1 to 255 characters");
    RAMBlock endless = block_make("x", MIB, 4 * MIB);
    memset(endless.idstr, 'x', sizeof(endless.idstr));
    assert_refused(&list, &endless, "1 to 255 characters");

    static const uint64_t sizes[] = { 0, 1, 4095, 4097, MIB + 1, UINT64_MAX, UINT64_MAX - 4095 };
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        RAMBlock block = block_make("x", sizes[i], 4 * MIB);
        assert_refused(&list, &block, "'x'");
    }
    RAMBlock unaligned = block_make("x", MIB, 4 * MIB);
    unaligned.host++;
    assert_refused(&list, &unaligned, "not aligned to 4096 bytes");
    RAMBlock no_host = block_make("x", MIB, 4 * MIB);
    no_host.host = NULL;
    assert_refused(&list, &no_host, "'x'");
    RAMBlock wraps = block_make("x", MIB, 4 * MIB);
    wraps.gpa = UINT64_MAX - MIB / 2 + 1;
    assert_refused(&list, &wraps, "is no place for 0x100000 bytes");

    RAMBlock last = block_make("last", MIB, 4 * MIB);
    last.gpa = UINT64_MAX - MIB + 1;
    add_ok(&list, &last);
    RAMBlock longest = block_make("x", MIB, 4 * MIB);
    memset(longest.idstr, 'y', RAMBLOCK_IDSTR_MAX);
    longest.idstr[RAMBLOCK_IDSTR_MAX] = 0;
    add_ok(&list, &longest);
    g_autofree char *order = g_strdup_printf("m0 last %s", longest.idstr);
    assert_order(&list, order);
}

static void test_translate(void)
{
    RamList list = { 0 };
    RAMBlock low = block_make("low", MIB, 0), high = block_make("high", 2 * MIB, 4 * MIB);
    RAMBlock top = block_make("top", 4096, UINT64_MAX - 4095);
    top.host = (uint8_t *)(uintptr_t)0x200000000;
    add_ok(&list, &low);
    add_ok(&list, &high);
    add_ok(&list, &top);

    static const struct {
        uint64_t gpa, len, got;
        const char *block;      /* NULL: no memory there */
        uint64_t offset;
    } cases[] = {
        { 0, 1, 1, "low", 0 },
        { 0, MIB, MIB, "low", 0 },
        { 0, UINT64_MAX, MIB, "low", 0 },
        { MIB - 1, 100, 1, "low", MIB - 1 },
        { MIB, 1, 0, NULL, 0 },
        { 4 * MIB - 1, 1, 0, NULL, 0 },
        { 4 * MIB, 10, 10, "high", 0 },
        { 5 * MIB, 2 * MIB, MIB, "high", MIB },
        { 6 * MIB, 1, 0, NULL, 0 },
        { 0, 0, 0, NULL, 0 },
        { UINT64_MAX, 1, 1, "top", 4095 },
        { UINT64_MAX, UINT64_MAX, 1, "top", 4095 },
        { UINT64_MAX - 4096, 1, 0, NULL, 0 },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        uint64_t len = cases[i].len;
        RAMBlock *block = NULL;
        uint8_t *host = ram_list_translate(&list, cases[i].gpa, &len, &block);
        if (!cases[i].block) {
            g_assert_null(host);
            g_assert_cmpuint(len, ==, cases[i].len);
            continue;
        }
        g_assert_nonnull(block);
        g_assert_cmpstr(block->idstr, ==, cases[i].block);
        g_assert_true(host == block->host + cases[i].offset);
        g_assert_cmpuint(len, ==, cases[i].got);
        g_assert_true(host == ram_list_translate(&list, cases[i].gpa, &len, NULL));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/system/ramblock/largest-first", test_largest_first);
    g_test_add_func("/system/ramblock/refusals", test_refusals);
    g_test_add_func("/system/ramblock/translate", test_translate);
    return g_test_run();
}
