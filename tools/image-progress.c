/* SPDX-License-Identifier: BSD-2-Clause */
/* A progress bar for a person who waits. */
#include "image-tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define WORTH_A_BAR (16u << 20)
#define INTERVAL_US 100000
#define WIDTH       30

static void show(Progress *p, int64_t now)
{
    unsigned percent = p->total ? (unsigned)((double)p->done * 100 / (double)p->total) : 100;
    unsigned filled = percent * WIDTH / 100;
    double seconds = (double)(now - p->started) / G_USEC_PER_SEC;
    char bar[WIDTH + 1];

    for (unsigned i = 0; i < WIDTH; i++) {
        bar[i] = i < filled ? '#' : '.';
    }
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r%s [%s] %3u%% %6.0f MiB/s ", p->what, bar, percent,
            seconds > 0 ? (double)p->done / (1 << 20) / seconds : 0);
    fflush(stderr);
    p->shown = now;
}

void progress_begin(Progress *p, const char *what, uint64_t total)
{
    *p = (Progress){ .what = what, .total = total, .started = g_get_monotonic_time() };
    p->terminal = isatty(STDERR_FILENO) && total >= WORTH_A_BAR;
    if (p->terminal) {
        show(p, p->started);
    }
}

void progress_add(Progress *p, uint64_t bytes)
{
    p->done += bytes;
    if (p->terminal) {
        int64_t now = g_get_monotonic_time();
        if (now - p->shown >= INTERVAL_US) {
            show(p, now);
        }
    }
}

void progress_end(Progress *p)
{
    if (p->terminal) {
        show(p, g_get_monotonic_time());
        fputc('\n', stderr);
        p->terminal = false;
    }
}
