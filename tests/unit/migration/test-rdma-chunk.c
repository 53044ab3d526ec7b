/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA: chunk arithmetic, and the proof by trial that a peer of any chunk size covers what it is asked for.
 */
#include "migration/rdma/rdma-chunk.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static void test_chunks(void)
{
    g_assert_cmpuint(rdma_chunk_count(0, 20), ==, 0);
    g_assert_cmpuint(rdma_chunk_count(4096, 20), ==, 1);
    g_assert_cmpuint(rdma_chunk_count(MIB, 20), ==, 1);
    g_assert_cmpuint(rdma_chunk_count(MIB + 4096, 20), ==, 2);
    g_assert_cmpuint(rdma_chunk_count(16 * MIB, 20), ==, 16);
    g_assert_cmpuint(rdma_chunk_count(UINT64_MAX, 30), ==, UINT64_C(1) << 34);
    g_assert_cmpuint(rdma_chunk_index(6 * GIB + 1, 30), ==, 6);
    g_assert_cmpuint(rdma_chunk_end(6 * GIB + 4096, 30, 8 * GIB), ==, 7 * GIB);
    g_assert_cmpuint(rdma_chunk_end(7 * GIB + 4096, 30, 7 * GIB + 8192), ==, 7 * GIB + 8192);
    g_assert_cmpuint(rdma_slot_shift(20), ==, 26);
    g_assert_cmpuint(rdma_slot_shift(26), ==, 26);
    g_assert_cmpuint(rdma_slot_shift(30), ==, 30);
}

static void test_write_length(void)
{
    /* To the end of the chunk. */
    g_assert_cmpuint(rdma_write_length(0, 4 * MIB, 20, GIB), ==, MIB);
    g_assert_cmpuint(rdma_write_length(MIB - 4096, 4 * MIB, 20, GIB), ==, 4096);
    g_assert_cmpuint(rdma_write_length(MIB, 8192, 20, GIB), ==, 8192);
    /* No more than the port takes, in whole pages if it takes one. */
    g_assert_cmpuint(rdma_write_length(0, GIB, 30, 8 * MIB), ==, 8 * MIB);
    g_assert_cmpuint(rdma_write_length(0, GIB, 30, 5000), ==, 4096);
    g_assert_cmpuint(rdma_write_length(0, GIB, 30, 1000), ==, 1000);
    /* A chunk of 1 GiB, far out: 64 bits. */
    g_assert_cmpuint(rdma_write_length(40 * GIB, 2 * GIB, 30, 2 * GIB), ==, GIB);
}

static void test_frame(void)
{
    uint64_t offset = 5 * MIB, length = 1;

    rdma_frame(&offset, &length, 26, GIB);
    g_assert_cmpuint(offset, ==, 0);
    g_assert_cmpuint(length, ==, 64 * MIB);
    offset = 1100 * MIB, length = 100 * MIB;
    rdma_frame(&offset, &length, 26, 1150 * MIB);
    g_assert_cmpuint(offset, ==, 1088 * MIB);
    g_assert_cmpuint(length, ==, 62 * MIB);
    offset = 63 * MIB, length = 2 * MIB;
    rdma_frame(&offset, &length, 26, GIB);
    g_assert_cmpuint(offset, ==, 0);
    g_assert_cmpuint(length, ==, 128 * MIB);
}

static void test_shift_from_requests(void)
{
    g_assert_cmpuint(rdma_shift_from_requests(0, MIB), ==, 20);
    g_assert_cmpuint(rdma_shift_from_requests(MIB - 4096, MIB), ==, 20);
    g_assert_cmpuint(rdma_shift_from_requests(4 * MIB, 7 * MIB), ==, 21);
    g_assert_cmpuint(rdma_shift_from_requests(0, 32 * MIB + 4096), ==, 25);
    g_assert_cmpuint(rdma_shift_from_requests(GIB, GIB), ==, 63);
}

/* ---- plans ---- */

static unsigned plan(const char *wanted, unsigned needed, bool exact, bool fine, bool fresh, RdmaSpan *spans,
                     unsigned max)
{
    bool flags[64];
    unsigned n = (unsigned)strlen(wanted);
    for (unsigned i = 0; i < n; i++) {
        flags[i] = wanted[i] == '#';
    }
    RdmaSlotView view = { flags, n, needed, exact, fine, fresh };
    return rdma_plan_spans(&view, spans, max);
}

static void assert_plan(const char *wanted, unsigned needed, bool exact, bool fine, bool fresh,
                        const char *expected)
{
    RdmaSpan spans[64];
    unsigned n = plan(wanted, needed, exact, fine, fresh, spans, 64);
    GString *text = g_string_new(NULL);
    for (unsigned i = 0; i < n; i++) {
        g_string_append_printf(text, "%u+%u ", spans[i].first, spans[i].count);
    }
    g_assert_cmpstr(text->str, ==, expected);
    g_string_free(text, TRUE);
}

static void test_plan(void)
{
    /* A Godwit: one span for each run. */
    assert_plan("##..###.", 8, true, false, true, "0+2 4+3 ");
    assert_plan("........", 8, true, false, true, "");
    assert_plan("........", 5, true, false, true, "5+1 ");
    assert_plan("##......", 2, true, false, true, "0+3 ");
    /* Somebody else: the rest of the slot, if enough of it is wanted, ... */
    assert_plan("########", 8, false, false, true, "0+8 ");
    assert_plan("..#.....", 8, false, false, true, "2+6 ");
    assert_plan("..#..#..", 4, false, false, true, "2+6 ");
    /* ... one by one if not, ... */
    assert_plan("..#.............", 16, false, false, true, "");
    assert_plan("..#.............", 2, false, false, true, "2+1 ");
    /* ... and from then on. */
    assert_plan("################", 3, false, true, false, "3+1 ");
    /* A chunk before those that were asked for. */
    assert_plan("##..............", 1, false, false, false, "1+15 ");
    assert_plan("#", 0, false, false, true, "0+1 ");
}

static void test_plan_maximum(void)
{
    RdmaSpan spans[2];

    g_assert_cmpuint(plan("#.#.#.#.", 6, true, false, true, spans, 2), ==, 2);
    g_assert_cmpuint(spans[0].first, ==, 0);
    g_assert_cmpuint(spans[1].first, ==, 6);
}

/*
 * A destination of chunk size 2^shift, as real ones are: it registers whole chunks of its own size from the
 * one that it is asked for, and answers a second request for the same first chunk with what it has.
 */
typedef struct Peer {
    unsigned shift;
    uint64_t registered[1024];      /* by own chunk: end of the registration, 0: none */
} Peer;

static uint64_t peer_answer(Peer *p, uint64_t offset, uint64_t more)
{
    uint64_t first = offset >> p->shift;
    if (!p->registered[first]) {
        p->registered[first] = (first + more + 1) << p->shift;
    }
    return p->registered[first];
}

/* Chunks become wanted in any order; each is asked for when it is needed. */
static void try_peer(unsigned peer_shift, unsigned chunk_shift, unsigned slots, GRand *rng)
{
    Peer peer = { .shift = peer_shift };
    unsigned per_slot = 1u << (rdma_slot_shift(chunk_shift) - chunk_shift);
    unsigned chunks = slots * per_slot;
    g_autofree bool *used = g_new0(bool, chunks), *known = g_new0(bool, chunks);
    g_autofree bool *wanted = g_new0(bool, per_slot), *fine = g_new0(bool, slots);
    g_autofree bool *asked = g_new0(bool, slots);
    unsigned density = (unsigned)g_rand_int_range(rng, 1, 100);

    for (unsigned step = 0; step < 4 * chunks; step++) {
        unsigned chunk = (unsigned)g_rand_int_range(rng, 0, (int)chunks), slot = chunk / per_slot;
        for (unsigned i = 0; i < per_slot; i++) {
            used[slot * per_slot + i] |= g_rand_int_range(rng, 0, 400) < (int)density;
            wanted[i] = used[slot * per_slot + i] && !known[slot * per_slot + i];
        }
        bool ahead = !asked[slot] && g_rand_boolean(rng);
        if (known[chunk] && !ahead) {
            continue;
        }
        RdmaSlotView view = { wanted, per_slot, ahead ? per_slot : chunk % per_slot, false, fine[slot],
                              !asked[slot] };
        RdmaSpan span;
        if (!rdma_plan_spans(&view, &span, 1)) {
            g_assert_true(ahead);
            continue;
        }
        uint64_t first = (uint64_t)slot * per_slot + span.first, count = span.count;
        uint64_t end = (first + count) << chunk_shift;
        uint64_t more = rdma_chunk_count(count << chunk_shift, RDMA_PEER_SHIFT_MIN) - 1;
        g_assert_cmpuint(peer_answer(&peer, first << chunk_shift, more), >=, end);
        asked[slot] = true;
        fine[slot] |= span.first + span.count != per_slot;
        for (unsigned i = 0; i < span.count; i++) {
            known[first + i] = true;
        }
    }
}

static void test_any_peer(void)
{
    g_autoptr(GRand) rng = g_rand_new_with_seed(4);

    for (unsigned peer = 20; peer <= 30; peer++) {
        for (unsigned chunk = 20; chunk <= 30; chunk++) {
            for (unsigned turn = 0; turn < 8; turn++) {
                try_peer(peer, chunk, chunk > 26 ? 1 : 4, rng);
            }
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rdma-chunk/chunks", test_chunks);
    g_test_add_func("/rdma-chunk/write-length", test_write_length);
    g_test_add_func("/rdma-chunk/frame", test_frame);
    g_test_add_func("/rdma-chunk/shift-from-requests", test_shift_from_requests);
    g_test_add_func("/rdma-chunk/plan", test_plan);
    g_test_add_func("/rdma-chunk/plan-maximum", test_plan_maximum);
    g_test_add_func("/rdma-chunk/any-peer", test_any_peer);
    return g_test_run();
}
