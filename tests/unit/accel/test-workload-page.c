/* SPDX-License-Identifier: BSD-2-Clause */
/* The content of workload pages: each kind of damage gets its own verdict. */
#include "accel/workload/workload.h"

#include <glib.h>
#include <string.h>

/* Versions differ in their kind of content; with these shares every written page is a random one. */
static const WorkloadConfig all_random = { .n_vcpus = 1, .seed = 7 };
static const WorkloadConfig all_zero = { .n_vcpus = 1, .seed = 7, .zero_percent = 100 };
static const WorkloadConfig all_compressible = { .n_vcpus = 1, .seed = 7, .compressible_percent = 100 };

typedef union Page {
    uint8_t byte[TARGET_PAGE_SIZE];
    uint64_t word[TARGET_PAGE_SIZE / 8];
} Page;

static WorkloadPageVerdict check(const WorkloadConfig *cfg, const Page *page, uint32_t version)
{
    return workload_page_check(cfg, page, 1234, version, 3);
}

static void test_round_trip(void)
{
    const WorkloadConfig *const all[] = { &all_random, &all_zero, &all_compressible };
    for (unsigned i = 0; i < G_N_ELEMENTS(all); i++) {
        for (uint32_t version = 1; version < 50; version++) {
            Page page;
            memset(&page, 0xa5, sizeof(page));
            workload_page_write(all[i], &page, 1234, version, 3);
            g_assert_cmpint(check(all[i], &page, version), ==, WORKLOAD_PAGE_OK);
        }
    }
}

static void test_never_written(void)
{
    Page page = { .byte = { 0 } };
    g_assert_cmpint(check(&all_random, &page, 0), ==, WORKLOAD_PAGE_OK);
    page.byte[4095] = 1;
    g_assert_cmpint(check(&all_random, &page, 0), !=, WORKLOAD_PAGE_OK);
}

static void test_lost(void)
{
    Page page = { .byte = { 0 } };
    g_assert_cmpint(check(&all_random, &page, 5), ==, WORKLOAD_PAGE_LOST);
}

static void test_stale_and_future(void)
{
    Page page;
    workload_page_write(&all_random, &page, 1234, 5, 3);
    g_assert_cmpint(check(&all_random, &page, 6), ==, WORKLOAD_PAGE_STALE);
    g_assert_cmpint(check(&all_random, &page, 4), ==, WORKLOAD_PAGE_FUTURE);
}

static void test_foreign(void)
{
    Page page;
    workload_page_write(&all_random, &page, 1235, 5, 3);
    g_assert_cmpint(check(&all_random, &page, 5), ==, WORKLOAD_PAGE_FOREIGN);
    workload_page_write(&all_random, &page, 1234, 5, 2);
    g_assert_cmpint(check(&all_random, &page, 5), ==, WORKLOAD_PAGE_FOREIGN);
    memset(&page, 0xa5, sizeof(page));
    g_assert_cmpint(check(&all_random, &page, 5), ==, WORKLOAD_PAGE_FOREIGN);
}

/* Every single byte of the page counts. */
static void test_torn(void)
{
    Page page;
    workload_page_write(&all_random, &page, 1234, 5, 3);
    for (unsigned i = 0; i < TARGET_PAGE_SIZE; i++) {
        page.byte[i] ^= 0x40;
        WorkloadPageVerdict verdict = check(&all_random, &page, 5);
        g_assert_cmpint(verdict, ==, i < 32 ? WORKLOAD_PAGE_FOREIGN : WORKLOAD_PAGE_TORN);
        page.byte[i] ^= 0x40;
    }
}

static void test_half_old_half_new(void)
{
    Page page, old;
    workload_page_write(&all_random, &old, 1234, 5, 3);
    workload_page_write(&all_random, &page, 1234, 6, 3);
    memcpy(page.byte + 2048, old.byte + 2048, 2048);
    g_assert_cmpint(check(&all_random, &page, 6), ==, WORKLOAD_PAGE_TORN);
}

static void test_shares(void)
{
    const WorkloadConfig cfg = { .n_vcpus = 1, .seed = 1, .zero_percent = 25, .compressible_percent = 25 };
    unsigned zero = 0, repeats = 0;
    for (unsigned number = 0; number < 4000; number++) {
        Page page;
        workload_page_write(&cfg, &page, number, 1, 0);
        if (page.word[100] == 0 && page.word[0] == 0 && page.word[3] == 0) {
            zero++;
        } else if (page.word[100] == page.word[108]) {
            repeats++;
        }
    }
    /* 1000 each are expected, the standard deviation is 27. */
    g_assert_cmpuint(zero, >, 860);
    g_assert_cmpuint(zero, <, 1140);
    g_assert_cmpuint(repeats, >, 860);
    g_assert_cmpuint(repeats, <, 1140);
}

static void test_stride_is_coprime(void)
{
    for (uint64_t pages = 1; pages < 3000; pages++) {
        uint64_t stride = workload_pattern_stride(pages);
        g_autofree bool *seen = g_new0(bool, pages);
        uint64_t at = 0, count = 0;
        while (!seen[at]) {
            seen[at] = true;
            count++;
            at = (at + stride) % pages;
        }
        g_assert_cmpuint(count, ==, pages);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/workload/page/round-trip", test_round_trip);
    g_test_add_func("/workload/page/never-written", test_never_written);
    g_test_add_func("/workload/page/lost", test_lost);
    g_test_add_func("/workload/page/stale-and-future", test_stale_and_future);
    g_test_add_func("/workload/page/foreign", test_foreign);
    g_test_add_func("/workload/page/torn", test_torn);
    g_test_add_func("/workload/page/half-old-half-new", test_half_old_half_new);
    g_test_add_func("/workload/page/shares", test_shares);
    g_test_add_func("/workload/pattern/stride-is-coprime", test_stride_is_coprime);
    return g_test_run();
}
