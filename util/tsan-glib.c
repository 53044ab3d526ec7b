/* SPDX-License-Identifier: BSD-2-Clause */
/* For builds with ThreadSanitizer only: GLib's locks on top of pthread, which the sanitizer knows. */

/*
 * GLib's own locks are futexes inside a library that is not instrumented, so the sanitizer would see none of
 * them and report everything that they protect.  The program's definitions below take the place of GLib's
 * for all calls from our code; GLib's calls of its own locks stay as they are.
 */
#include <dlfcn.h>
#include <errno.h>
#include <gio/gio.h>
#include <pthread.h>
#include <stdbool.h>
#include <sanitizer/tsan_interface.h>
#include <stdlib.h>
#include <time.h>

#undef g_once_init_enter
#undef g_once_init_leave

#define PTHREAD_OBJECT(type, init)                                                       \
    static type *type##_of(gpointer *slot)                                               \
    {                                                                                    \
        type *object = __atomic_load_n(slot, __ATOMIC_ACQUIRE);                          \
        if (object) {                                                                    \
            return object;                                                               \
        }                                                                                \
        type *fresh = malloc(sizeof(*fresh));                                            \
        init(fresh);                                                                     \
        gpointer expected = NULL;                                                        \
        if (__atomic_compare_exchange_n(slot, &expected, fresh, false, __ATOMIC_ACQ_REL, \
                                        __ATOMIC_ACQUIRE)) {                             \
            return fresh;                                                                \
        }                                                                                \
        free(fresh);                                                                     \
        return expected;                                                                 \
    }

static void mutex_init(pthread_mutex_t *mutex)
{
    pthread_mutex_init(mutex, NULL);
}

static void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

PTHREAD_OBJECT(pthread_mutex_t, mutex_init)
PTHREAD_OBJECT(pthread_cond_t, cond_init)

static void check(const char *what, int err)
{
    if (err) {
        g_error("%s: %s", what, g_strerror(err));
    }
}

void g_mutex_init(GMutex *mutex)
{
    mutex->p = NULL;
}

void g_mutex_clear(GMutex *mutex)
{
    if (mutex->p) {
        check("pthread_mutex_destroy", pthread_mutex_destroy(mutex->p));
        free(mutex->p);
        mutex->p = NULL;
    }
}

void g_mutex_lock(GMutex *mutex)
{
    check("pthread_mutex_lock", pthread_mutex_lock(pthread_mutex_t_of(&mutex->p)));
}

gboolean g_mutex_trylock(GMutex *mutex)
{
    return pthread_mutex_trylock(pthread_mutex_t_of(&mutex->p)) == 0;
}

void g_mutex_unlock(GMutex *mutex)
{
    check("pthread_mutex_unlock", pthread_mutex_unlock(pthread_mutex_t_of(&mutex->p)));
}

void g_cond_init(GCond *cond)
{
    cond->p = NULL;
}

void g_cond_clear(GCond *cond)
{
    if (cond->p) {
        check("pthread_cond_destroy", pthread_cond_destroy(cond->p));
        free(cond->p);
        cond->p = NULL;
    }
}

void g_cond_wait(GCond *cond, GMutex *mutex)
{
    check("pthread_cond_wait", pthread_cond_wait(pthread_cond_t_of(&cond->p), pthread_mutex_t_of(&mutex->p)));
}

gboolean g_cond_wait_until(GCond *cond, GMutex *mutex, gint64 end_time)
{
    struct timespec ts = { end_time / G_USEC_PER_SEC, end_time % G_USEC_PER_SEC * 1000 };
    int err = pthread_cond_timedwait(pthread_cond_t_of(&cond->p), pthread_mutex_t_of(&mutex->p), &ts);

    if (err != ETIMEDOUT) {
        check("pthread_cond_timedwait", err);
    }
    return err == 0;
}

void g_cond_signal(GCond *cond)
{
    check("pthread_cond_signal", pthread_cond_signal(pthread_cond_t_of(&cond->p)));
}

void g_cond_broadcast(GCond *cond)
{
    check("pthread_cond_broadcast", pthread_cond_broadcast(pthread_cond_t_of(&cond->p)));
}

/* Where GLib does the work but hands data from thread to thread, say so and call it. */
#define GLIBS(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

gboolean(g_once_init_enter)(volatile void *location)
{
    gboolean first = GLIBS(g_once_init_enter)(location);
    __tsan_acquire((void *)location);
    return first;
}

void(g_once_init_leave)(volatile void *location, gsize result)
{
    __tsan_release((void *)location);
    GLIBS(g_once_init_leave)(location, result);
}

void g_async_queue_push(GAsyncQueue *queue, gpointer data)
{
    __tsan_release(queue);
    GLIBS(g_async_queue_push)(queue, data);
}

gpointer g_async_queue_pop(GAsyncQueue *queue)
{
    gpointer data = GLIBS(g_async_queue_pop)(queue);
    __tsan_acquire(queue);
    return data;
}

gpointer g_async_queue_try_pop(GAsyncQueue *queue)
{
    gpointer data = GLIBS(g_async_queue_try_pop)(queue);
    __tsan_acquire(queue);
    return data;
}

gpointer g_async_queue_timeout_pop(GAsyncQueue *queue, guint64 timeout)
{
    gpointer data = GLIBS(g_async_queue_timeout_pop)(queue, timeout);
    __tsan_acquire(queue);
    return data;
}

static void task_thread(GTask *task, gpointer source, gpointer task_data, GCancellable *cancellable)
{
    GTaskThreadFunc func = g_object_get_data(G_OBJECT(task), "tsan-thread-func");

    __tsan_acquire(task);
    func(task, source, task_data, cancellable);
}

void g_task_run_in_thread(GTask *task, GTaskThreadFunc func)
{
    g_object_set_data(G_OBJECT(task), "tsan-thread-func", func);
    __tsan_release(task);
    GLIBS(g_task_run_in_thread)(task, task_thread);
}

#define TASK_RETURN(name, type)                        \
    void g_task_return_##name(GTask *task, type value) \
    {                                                  \
        __tsan_release(task);                          \
        GLIBS(g_task_return_##name)(task, value);      \
    }

#define TASK_PROPAGATE(name, type)                           \
    type g_task_propagate_##name(GTask *task, GError **errp) \
    {                                                        \
        __tsan_acquire(task);                                \
        return GLIBS(g_task_propagate_##name)(task, errp);   \
    }

TASK_RETURN(error, GError *)
TASK_RETURN(int, gssize)
TASK_RETURN(boolean, gboolean)
TASK_PROPAGATE(int, gssize)
TASK_PROPAGATE(boolean, gboolean)

/* Memory that passes from thread to thread inside GLib. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libgio-2.0.so\n"
           "race:g_queue_pop_tail\n"
           "race:g_slice_alloc\n"
           "race:g_slice_free1\n";
}

/* Memory that GLib allocates in one thread and frees in another under locks that are taken inside GLib. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "ignore_noninstrumented_modules=1";
}
