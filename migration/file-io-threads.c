/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine of file migrations over a pool of threads that call pread() and pwrite(). */
#include "migration/file-io-internal.h"

#include <errno.h>
#include <unistd.h>

#define THREADS_DEFAULT 2

/* A list of slots, first in, first out. */
typedef struct SlotList {
    FileIoSlot *first, **end;
} SlotList;

typedef struct Pool {
    FileIo *io;             /* only its configuration is looked at by the threads */
    GPtrArray *threads;

    GMutex lock;
    GCond work, progress;
    /* Under the lock. */
    SlotList todo, done;
    bool quit;
} Pool;

static void list_init(SlotList *list)
{
    list->first = NULL;
    list->end = &list->first;
}

static void list_push(SlotList *list, FileIoSlot *slot)
{
    slot->next = NULL;
    *list->end = slot;
    list->end = &slot->next;
}

static FileIoSlot *list_pop(SlotList *list)
{
    FileIoSlot *slot = list->first;

    if (slot) {
        list->first = slot->next;
        if (!list->first) {
            list->end = &list->first;
        }
    }
    return slot;
}

static int transfer(const FileIoConfig *config, const FileIoRequest *r)
{
    ssize_t n = config->write ? pwrite(config->fd, r->buf, r->len, (off_t)r->file_offset)
                              : pread(config->fd, r->buf, r->len, (off_t)r->file_offset);
    return n < 0 ? -errno : (int)n;
}

static gpointer pool_thread(gpointer opaque)
{
    Pool *p = opaque;

    g_mutex_lock(&p->lock);
    for (;;) {
        FileIoSlot *slot = list_pop(&p->todo);
        if (slot) {
            g_mutex_unlock(&p->lock);
            int result = transfer(&p->io->config, &slot->left);
            g_mutex_lock(&p->lock);
            slot->result = result;
            list_push(&p->done, slot);
            g_cond_signal(&p->progress);
        } else if (p->quit) {
            break;
        } else {
            g_cond_wait(&p->work, &p->lock);
        }
    }
    g_mutex_unlock(&p->lock);
    return NULL;
}

static void pool_free(Pool *p)
{
    g_mutex_lock(&p->lock);
    p->quit = true;
    g_cond_broadcast(&p->work);
    g_mutex_unlock(&p->lock);
    for (guint i = 0; i < p->threads->len; i++) {
        g_thread_join(g_ptr_array_index(p->threads, i));
    }
    g_ptr_array_unref(p->threads);
    g_mutex_clear(&p->lock);
    g_cond_clear(&p->work);
    g_cond_clear(&p->progress);
    g_free(p);
}

static bool threads_open(FileIo *io, GError **errp)
{
    Pool *p = g_new0(Pool, 1);
    unsigned n = io->config.threads ? io->config.threads : THREADS_DEFAULT;

    p->io = io;
    p->threads = g_ptr_array_new();
    g_mutex_init(&p->lock);
    g_cond_init(&p->work);
    g_cond_init(&p->progress);
    list_init(&p->todo);
    list_init(&p->done);
    for (unsigned i = 0; i < n; i++) {
        GThread *thread = g_thread_try_new("mig/pool", pool_thread, p, errp);
        if (!thread) {
            pool_free(p);
            return false;
        }
        g_ptr_array_add(p->threads, thread);
    }
    io->backend = p;
    return true;
}

static void threads_start(FileIo *io, FileIoSlot *slot)
{
    Pool *p = io->backend;

    g_mutex_lock(&p->lock);
    list_push(&p->todo, slot);
    g_cond_signal(&p->work);
    g_mutex_unlock(&p->lock);
}

static void threads_wait(FileIo *io)
{
    Pool *p = io->backend;
    int64_t until = g_get_monotonic_time() + FILE_IO_WAIT_MS * 1000;

    g_mutex_lock(&p->lock);
    while (!p->done.first && g_cond_wait_until(&p->progress, &p->lock, until)) {
    }
    FileIoSlot *done = p->done.first;
    list_init(&p->done);
    g_mutex_unlock(&p->lock);
    while (done) {
        FileIoSlot *next = done->next;
        file_io_completed(io, done, done->result);
        done = next;
    }
}

static void threads_close(FileIo *io)
{
    pool_free(io->backend);
}

const FileIoBackendOps file_io_threads_ops = {
    .name = "threads",
    .open = threads_open,
    .start = threads_start,
    .wait = threads_wait,
    .close = threads_close,
};
