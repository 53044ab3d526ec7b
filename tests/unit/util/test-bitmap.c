/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the bitmaps against a model of one byte per bit. */
#include "util/bitmap.h"

#include <glib.h>
#include <string.h>

/* Enough for the widest inner loop to go round twice, and some words more. */
#define BITS 2500

typedef struct Model {
    uint64_t *map;
    uint8_t bit[BITS];
} Model;

static void model_init(Model *m)
{
    m->map = bitmap_new(BITS);
    memset(m->bit, 0, sizeof(m->bit));
}

static void model_check(const Model *m)
{
    for (size_t i = 0; i < BITS; i++) {
        g_assert_cmpuint(bitmap_test(m->map, i), ==, m->bit[i]);
    }
    /* The bits after the last stay zero. */
    g_assert_cmphex(m->map[BITMAP_WORDS(BITS) - 1] >> (BITS % 64), ==, 0);
}

/* A random range; short, long, empty and word-aligned ones are all frequent. */
static void random_range(size_t *start, size_t *count)
{
    size_t most = g_test_rand_bit() ? 70 : BITS;

    *start = g_test_rand_int_range(0, BITS + 1);
    *count = g_test_rand_int_range(0, MIN(BITS - *start, most) + 1);
    if (g_test_rand_int_range(0, 3) == 0) {
        *start &= ~(size_t)63;
        *count = MIN(*count & ~(size_t)63, BITS - *start);
    }
}

static void randomize(Model *m)
{
    int kind = g_test_rand_int_range(0, 4);

    memset(m->bit, kind == 3, BITS);
    memset(m->map, 0, BITMAP_WORDS(BITS) * sizeof(*m->map));
    /* A few bits, so that many words have none; some; half. */
    for (int n = kind == 0 ? 4 : kind == 1 ? BITS / 50 : kind == 2 ? BITS : 0; n; n--) {
        m->bit[g_test_rand_int_range(0, BITS)] ^= 1;
    }
    for (size_t i = 0; i < BITS; i++) {
        m->map[i / 64] |= (uint64_t)m->bit[i] << (i % 64);
    }
}

static void test_set_clear(void)
{
    Model m;

    model_init(&m);
    for (int i = 0; i < 3000; i++) {
        bool set = g_test_rand_bit();
        bool atomic = g_test_rand_bit();
        size_t start, count;

        random_range(&start, &count);
        memset(m.bit + start, set, count);
        if (set) {
            (atomic ? bitmap_set_atomic : bitmap_set)(m.map, start, count);
        } else {
            (atomic ? bitmap_clear_atomic : bitmap_clear)(m.map, start, count);
        }
        model_check(&m);
    }
    bitmap_free(m.map, BITS);
}

static size_t naive_find(const Model *m, size_t start, size_t end, uint8_t value)
{
    for (size_t i = start; i < end; i++) {
        if (m->bit[i] == value) {
            return i;
        }
    }
    return end;
}

static void test_find_count(void)
{
    Model m;

    model_init(&m);
    for (int i = 0; i < 3000; i++) {
        size_t start, count, set = 0;

        if (i % 50 == 0) {
            randomize(&m);
        }
        random_range(&start, &count);
        for (size_t b = start; b < start + count; b++) {
            set += m.bit[b];
        }
        g_assert_cmpuint(bitmap_count(m.map, start, count), ==, set);
        g_assert_cmpuint(bitmap_find_set(m.map, start, start + count), ==,
                         naive_find(&m, start, start + count, 1));
        g_assert_cmpuint(bitmap_find_clear(m.map, start, start + count), ==,
                         naive_find(&m, start, start + count, 0));
    }
    bitmap_free(m.map, BITS);
}

static size_t naive_find_last(const Model *m, size_t start, size_t end)
{
    for (size_t i = end; i > start; i--) {
        if (m->bit[i - 1]) {
            return i - 1;
        }
    }
    return end;
}

static void test_find_last(void)
{
    Model m;

    model_init(&m);
    for (int i = 0; i < 3000; i++) {
        size_t start, count;

        if (i % 50 == 0) {
            randomize(&m);
        }
        if (i % 50 == 25) {     /* whole words without a bit */
            memset(m.bit, 0, BITS);
            bitmap_clear(m.map, 0, BITS);
            m.bit[i % BITS] = 1;
            bitmap_set(m.map, i % BITS, 1);
        }
        random_range(&start, &count);
        g_assert_cmpuint(bitmap_find_last_set(m.map, start, start + count), ==,
                         naive_find_last(&m, start, start + count));
    }
    bitmap_free(m.map, BITS);
}

/* Any two alignments; what is around the range stays. */
static void test_copy(void)
{
    Model src, dst;

    model_init(&src);
    model_init(&dst);
    for (int i = 0; i < 3000; i++) {
        size_t src_start, dst_start, count, dst_room, set = 0;

        randomize(&src);
        randomize(&dst);
        random_range(&src_start, &count);
        random_range(&dst_start, &dst_room);
        count = MIN(count, BITS - dst_start);
        for (size_t b = 0; b < count; b++) {
            set += src.bit[src_start + b];
        }
        memmove(dst.bit + dst_start, src.bit + src_start, count);
        g_assert_cmpuint(bitmap_copy(dst.map, dst_start, src.map, src_start, count), ==, set);
        model_check(&src);
        model_check(&dst);
    }
    bitmap_free(src.map, BITS);
    bitmap_free(dst.map, BITS);
}

/* bitmap_or() and, with @fetch, bitmap_fetch_clear_or(): any two alignments. */
static void check_or(bool fetch)
{
    Model src, dst;

    model_init(&src);
    model_init(&dst);
    for (int i = 0; i < 3000; i++) {
        size_t src_start, dst_start, count, dst_room, added = 0, n;

        randomize(&src);
        randomize(&dst);
        random_range(&src_start, &count);
        random_range(&dst_start, &dst_room);
        if (i % 2) {
            dst_start = src_start;
        }
        count = MIN(count, BITS - dst_start);
        for (size_t b = 0; b < count; b++) {
            added += src.bit[src_start + b] && !dst.bit[dst_start + b];
            dst.bit[dst_start + b] |= src.bit[src_start + b];
        }
        if (fetch) {
            memset(src.bit + src_start, 0, count);
            n = bitmap_fetch_clear_or(dst.map, dst_start, src.map, src_start, count);
        } else {
            n = bitmap_or(dst.map, dst_start, src.map, src_start, count);
        }
        g_assert_cmpuint(n, ==, added);
        model_check(&src);
        model_check(&dst);
    }
    bitmap_free(src.map, BITS);
    bitmap_free(dst.map, BITS);
}

static void test_or(void)
{
    check_or(false);
}

static void test_fetch_clear_or(void)
{
    check_or(true);
}

/* Exactly sized maps, so that AddressSanitizer sees a touch of a word too many. */
static void test_bounds(void)
{
    for (size_t bits = 0; bits <= 200; bits++) {
        uint64_t *a = bitmap_new(bits), *b = bitmap_new(bits);

        bitmap_set(a, 0, bits);
        g_assert_cmpuint(bitmap_count(a, 0, bits), ==, bits);
        g_assert_cmpuint(bitmap_find_clear(a, 0, bits), ==, bits);
        g_assert_cmpuint(bitmap_find_set(b, 0, bits), ==, bits);
        for (size_t shift = 0; shift < bits; shift++) {
            g_assert_cmpuint(bitmap_or(b, shift, a, 0, bits - shift), ==, bits - shift);
            bitmap_clear(b, 0, bits);
            g_assert_cmpuint(bitmap_or(b, 0, a, shift, bits - shift), ==, bits - shift);
            bitmap_clear(b, 0, bits);
            g_assert_cmpuint(bitmap_copy(b, shift, a, 0, bits - shift), ==, bits - shift);
            g_assert_cmpuint(bitmap_find_last_set(b, 0, bits), ==, bits - 1);
            bitmap_clear(b, 0, bits);
            g_assert_cmpuint(bitmap_copy(b, 0, a, shift, bits - shift), ==, bits - shift);
            g_assert_cmpuint(bitmap_find_last_set(b, 0, bits), ==, bits - shift - 1);
            bitmap_clear(b, 0, bits);
        }
        bitmap_free(a, bits);
        bitmap_free(b, bits);
    }
    bitmap_free(NULL, 5);
}

static void test_big(void)
{
    size_t bits = 100 * 1000 * 1000 + 7;
    uint64_t *map = bitmap_new(bits);

    g_assert_cmpuint(bitmap_find_set(map, 0, bits), ==, bits);
    bitmap_set(map, bits - 1, 1);
    bitmap_set(map, 12345678, 100);
    g_assert_cmpuint(bitmap_find_set(map, 0, bits), ==, 12345678);
    g_assert_cmpuint(bitmap_find_clear(map, 12345678, bits), ==, 12345778);
    g_assert_cmpuint(bitmap_find_set(map, 12345778, bits), ==, bits - 1);
    g_assert_cmpuint(bitmap_count(map, 0, bits), ==, 101);
    bitmap_free(map, bits);
}

#define SETTERS    2
#define ROUNDS     200
#define RACE_WORDS 8

typedef struct Race {
    uint64_t *map;
    int data[RACE_WORDS * 64];      /* published by the bit of the same index */
    int running;
} Race;

typedef struct Setter {
    Race *race;
    size_t first;
} Setter;

/* Every setter owns every SETTERSth bit, so that all words are shared by all. */
static void *setter(void *opaque)
{
    Setter *s = opaque;

    for (int round = 0; round < ROUNDS; round++) {
        for (size_t bit = s->first; bit < RACE_WORDS * 64; bit += SETTERS) {
            __atomic_fetch_add(&s->race->data[bit], 1, __ATOMIC_RELAXED);
            bitmap_set_atomic(s->race->map, bit, 1);
        }
    }
    __atomic_fetch_sub(&s->race->running, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* A fetch sees what was written before the bit was set; no bit gets lost. */
static void test_race(void)
{
    Race race = { .map = bitmap_new(RACE_WORDS * 64), .running = SETTERS };
    uint64_t *got = bitmap_new(RACE_WORDS * 64);
    int seen[RACE_WORDS * 64] = { 0 };
    Setter setters[SETTERS];
    GThread *threads[SETTERS];
    bool last = false;

    for (size_t i = 0; i < SETTERS; i++) {
        setters[i] = (Setter){ &race, i };
        threads[i] = g_thread_new("setter", setter, &setters[i]);
    }
    while (!last) {
        last = __atomic_load_n(&race.running, __ATOMIC_ACQUIRE) == 0;
        bitmap_fetch_clear_or(got, 0, race.map, 0, RACE_WORDS * 64);
        for (size_t bit = 0; bit < RACE_WORDS * 64; bit++) {
            if (bitmap_test(got, bit)) {
                seen[bit] = __atomic_load_n(&race.data[bit], __ATOMIC_RELAXED);
            }
        }
        bitmap_clear(got, 0, RACE_WORDS * 64);
    }
    for (size_t i = 0; i < SETTERS; i++) {
        g_thread_join(threads[i]);
    }
    for (size_t bit = 0; bit < RACE_WORDS * 64; bit++) {
        g_assert_cmpint(seen[bit], ==, ROUNDS);
    }
    bitmap_free(race.map, RACE_WORDS * 64);
    bitmap_free(got, RACE_WORDS * 64);
}

/* The tests below use these inner loops. */
static void test_select(gconstpointer data)
{
    g_assert_true(bitmap_select(GPOINTER_TO_UINT(data)));
    g_test_message("%s", bitmap_select_name());
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; bitmap_select(i); i++) {
        static const struct {
            const char *name;
            GTestFunc func;
        } tests[] = {
            { "find-count", test_find_count },
            { "copy", test_copy },
            { "or", test_or },
            { "fetch-clear-or", test_fetch_clear_or },
            { "bounds", test_bounds },
            { "race", test_race },
        };
        g_autofree char *select = g_strdup_printf("/bitmap/%u/select", i);
        g_test_add_data_func(select, GUINT_TO_POINTER(i), test_select);
        for (size_t k = 0; k < G_N_ELEMENTS(tests); k++) {
            g_autofree char *path = g_strdup_printf("/bitmap/%u/%s", i, tests[k].name);
            g_test_add_func(path, tests[k].func);
        }
    }
    g_test_add_func("/bitmap/set-clear", test_set_clear);
    g_test_add_func("/bitmap/find-last", test_find_last);
    g_test_add_func("/bitmap/big", test_big);
    return g_test_run();
}
