/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: lines of the qtest protocol, run on a machine with two blocks and a hole between them. */
#include <string.h>

#include "system/machine-none.h"
#include "system/qtest.h"

#define PAGE 4096
#define MAX_LINES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void block_add(Machine *m, RAMBlock *block, const char *idstr, uint8_t *host, unsigned pages,
                      uint64_t gpa)
{
    g_strlcpy(block->idstr, idstr, sizeof(block->idstr));
    block->host = host;
    block->used_length = pages * PAGE;
    block->gpa = gpa;
    block->fd = -1;
    g_assert_true(ram_list_add(&m->ram, block, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Machine *m = machine_new(&machine_none_type, false);
    uint8_t *memory = g_aligned_alloc0(3, PAGE, PAGE);
    RAMBlock low = { 0 }, high = { 0 };
    const char *text = (const char *)data, *end = text + size;

    block_add(m, &low, "low", memory, 2, 0);
    block_add(m, &high, "high", memory + 2 * PAGE, 1, 8 * PAGE);
    g_assert_true(dirty_log_start(&m->dirty_log, &m->ram, NULL));
    for (int lines = 0; text < end && lines < MAX_LINES; lines++) {
        const char *feed = memchr(text, '\n', end - text);
        size_t len = (feed ? feed : end) - text;
        g_autofree char *reply = qtest_run_line(m, text, len);
        /* One line, whatever came. */
        g_assert_true(strchr(reply, '\n') == reply + strlen(reply) - 1);
        g_assert_true(g_str_has_prefix(reply, "OK") || g_str_has_prefix(reply, "ERR ") ||
                      g_str_has_prefix(reply, "FAIL"));
        text += len + 1;
    }
    machine_free(m);
    g_aligned_free(memory);
    return 0;
}
