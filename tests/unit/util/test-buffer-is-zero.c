/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the zero test: every version, every length and alignment, one wrong byte anywhere. */
#include "util/buffer-is-zero.h"

#include <glib.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* @len bytes that end where memory ends: a read beyond them is a fault. */
static uint8_t *guarded_end(size_t room, size_t len)
{
    size_t page = sysconf(_SC_PAGESIZE);
    static uint8_t *base;

    if (!base) {
        base = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        g_assert_true(base != MAP_FAILED);
        g_assert_cmpint(mprotect(base + room, page, PROT_NONE), ==, 0);
        memset(base, 0xff, room);
    }
    return base + room - len;
}

#define ROOM 65536

static void check_lengths(void)
{
    for (size_t len = 0; len <= 1200; len++) {
        uint8_t *buf = guarded_end(ROOM, len);

        /* The byte before is not zero: nobody may look at it. */
        memset(buf, 0, len);
        g_assert_true(buffer_is_zero(buf, len));
        for (size_t i = 0; i < len; i += len < 300 ? 1 : 7) {
            buf[i] = 1 << (i % 8);
            g_assert_false(buffer_is_zero(buf, len));
            buf[i] = 0;
        }
        memset(buf, 0xff, len);
    }
}

static void check_alignments(void)
{
    uint8_t *room = guarded_end(ROOM, 8192);

    for (size_t align = 0; align < 65; align++) {
        for (size_t len = 250; len < 4400; len += 61) {
            memset(room + align, 0, len);
            g_assert_true(buffer_is_zero(room + align, len));
            for (int k = 0; k < 20; k++) {
                size_t i = g_test_rand_int_range(0, len);

                room[align + i] = 0x80;
                g_assert_false(buffer_is_zero(room + align, len));
                room[align + i] = 0;
            }
            memset(room + align, 0xff, len);
        }
    }
}

/* A page with one byte wrong, for every byte. */
static void check_page(void)
{
    uint8_t *page = guarded_end(ROOM, 4096);

    memset(page, 0, 4096);
    g_assert_true(buffer_is_zero(page, 4096));
    for (size_t i = 0; i < 4096; i++) {
        page[i] = 1;
        g_assert_false(buffer_is_zero(page, 4096));
        page[i] = 0;
    }
    memset(page, 0xff, 4096);
}

static void test_versions(void)
{
    const char *best = buffer_is_zero_name();
    const char *last = "";

    for (unsigned i = 0; buffer_is_zero_select(i); i++) {
        last = buffer_is_zero_name();
        g_test_message("version %u: %s", i, last);
        check_lengths();
        check_alignments();
        check_page();
    }
    g_assert_cmpstr(last, ==, "scalar");
    for (unsigned i = 0; strcmp(buffer_is_zero_name(), best) != 0; i++) {
        g_assert_true(buffer_is_zero_select(i));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/buffer-is-zero/versions", test_versions);
    return g_test_run();
}
