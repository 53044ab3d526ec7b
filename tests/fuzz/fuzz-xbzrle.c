/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: the XBZRLE decoder on a page with nothing mapped around it, then the encoder. */
#include <string.h>
#include <sys/mman.h>

#include "migration/xbzrle.h"

#define PAGE TARGET_PAGE_SIZE

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t *memory;
    uint8_t old[PAGE], again[PAGE], encoded[XBZRLE_MAX_ENCODED];

    if (!memory) {
        memory = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        g_assert_true(memory != MAP_FAILED && mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
    }
    uint8_t *page = memory + PAGE;
    for (unsigned i = 0; i < PAGE; i++) {
        old[i] = i;
    }
    memcpy(page, old, PAGE);
    g_autoptr(GError) error = NULL;
    if (!xbzrle_decode(data, MIN(size, XBZRLE_MAX_ENCODED), page, &error)) {
        g_assert_nonnull(error);
    }

    /* Whatever the page is now, encoding and decoding it gives it back. */
    int n = xbzrle_encode(old, page, encoded);
    if (n >= 0) {
        memcpy(again, old, PAGE);
        g_assert_true(xbzrle_decode(encoded, n, again, NULL));
        g_assert_true(!memcmp(again, page, PAGE));
    }
    return 0;
}
