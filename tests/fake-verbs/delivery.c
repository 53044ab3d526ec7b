/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions and events that arrive later, and not in the order in which they came about. */
#include "internal.h"

typedef struct Item {
    int64_t due;                /* us */
    uint64_t number;            /* in order of coming about */
    const void *owner;
    void (*deliver)(void *);
    void (*drop)(void *);
    void *item;
} Item;

static GSequence *items;        /* by due, then number */
static uint64_t count;
static bool running;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static gint compare(gconstpointer a, gconstpointer b, gpointer opaque)
{
    const Item *x = a, *y = b;
    if (x->due != y->due) {
        return x->due < y->due ? -1 : 1;
    }
    return x->number < y->number ? -1 : x->number > y->number;
}

static void wait_for(int64_t us)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + us * 1000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&changed, &fake_lock, &until);
}

static void *run(void *opaque)
{
    fake_lock_acquire();
    for (;;) {
        GSequenceIter *first = g_sequence_get_begin_iter(items);
        if (g_sequence_iter_is_end(first)) {
            pthread_cond_wait(&changed, &fake_lock);
            continue;
        }
        Item *item = g_sequence_get(first);
        int64_t left = item->due - g_get_monotonic_time();
        if (left > 0) {
            wait_for(left);
            continue;
        }
        Item copy = *item;
        g_sequence_remove(first);
        copy.deliver(copy.item);
    }
    return NULL;
}

static void start(void)
{
    pthread_t thread;
    if (!running && pthread_create(&thread, NULL, run, NULL) == 0) {
        pthread_detach(thread);
        running = true;
    }
}

void fake_deliver(FakeLane *lane, uint64_t late, const void *owner, void (*deliver)(void *),
                  void (*drop)(void *), void *item)
{
    if (!items) {
        items = g_sequence_new(g_free);
    }
    int64_t now = g_get_monotonic_time();
    int64_t due = now + (int64_t)late;
    if (fake_settings.delay_max) {
        due += g_rand_int_range(fake_settings.rand, fake_settings.delay_min, fake_settings.delay_max + 1);
    }
    lane->last_due = MAX(lane->last_due, due);
    if (lane->last_due <= now) {
        deliver(item);
        return;
    }
    start();
    Item *entry = g_new(Item, 1);
    *entry = (Item){ lane->last_due, count++, owner, deliver, drop, item };
    g_sequence_insert_sorted(items, entry, compare, NULL);
    pthread_cond_signal(&changed);
}

void fake_delivery_forget(const void *owner)
{
    GSequenceIter *iter = items ? g_sequence_get_begin_iter(items) : NULL;
    while (iter && !g_sequence_iter_is_end(iter)) {
        GSequenceIter *next = g_sequence_iter_next(iter);
        Item *item = g_sequence_get(iter);
        if (item->owner == owner) {
            item->drop(item->item);
            g_sequence_remove(iter);
        }
        iter = next;
    }
}
