/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread of a KVM vCPU: runs the guest, handles its exits, heeds pause, throttle and the end. */

/*
 * Why no stop is lost: whoever wants the thread's attention sets kvm_run.immediate_exit and then sends the
 * signal, with the lock held.  If the thread is in KVM_RUN the signal ends it; if it is on its way there the
 * kernel looks at immediate_exit before it enters the guest.  Only heed() takes it back, under the lock.  The
 * timers of the thread send the signal alone; its handler sets immediate_exit, so that they do not come to
 * nothing when they hit the thread on its way.
 *
 * The thread looks at what is wanted of it only when KVM_RUN has returned EINTR.  An exit for I/O is
 * completed by the KVM_RUN that follows it, even if that one returns at once; so a parked vCPU has no
 * instruction half done, and its registers can be saved.
 */
#include "kvm-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "trace-accel.h"
#include "util/error.h"

#define KICK_SIGNAL SIGUSR1

/* A throttled vCPU runs in slices of this length and sleeps in between. */
#define SLICE_NS INT64_C(10000000)

/* Of the vCPU whose thread this is; for the handler. */
static __thread struct kvm_run *own_run;

static void come_out(int signum)
{
    if (own_run) {
        __atomic_store_n(&own_run->immediate_exit, 1, __ATOMIC_RELEASE);
    }
}

void kvm_vcpu_install_kick(void)
{
    struct sigaction sa = { .sa_handler = come_out };

    sigemptyset(&sa.sa_mask);
    sigaction(KICK_SIGNAL, &sa, NULL);
}

void kvm_vcpu_kick(KvmVcpu *v)
{
    if (v->thread && !v->stopped) {
        __atomic_store_n(&v->run->immediate_exit, 1, __ATOMIC_RELEASE);
        if (v->id) {
            pthread_kill(v->id, KICK_SIGNAL);
        }
    }
}

/* ---- exits ---- */

static const KvmIo *find_io(const Kvm *kvm, bool port, uint64_t address)
{
    for (unsigned i = 0; i < kvm->io->len; i++) {
        const KvmIo *io = &g_array_index(kvm->io, KvmIo, i);
        if (io->port == port && address >= io->base && address - io->base < io->len) {
            return io;
        }
    }
    return NULL;
}

/* Nobody there: reads give ones, writes go nowhere. */
static void access_io(Kvm *kvm, bool port, uint64_t address, bool write, uint8_t *data, unsigned size)
{
    const KvmIo *io = find_io(kvm, port, address);
    uint64_t value = UINT64_MAX;

    g_mutex_lock(&kvm->devices);
    if (write) {
        value = 0;
        memcpy(&value, data, size);
        if (io && io->write) {
            io->write(io->opaque, address - io->base, size, value);
        }
    } else {
        if (io && io->read) {
            value = io->read(io->opaque, address - io->base, size);
        }
        memcpy(data, &value, size);
    }
    g_mutex_unlock(&kvm->devices);
}

static bool exit_io(KvmVcpu *v, GError **errp)
{
    struct kvm_run *run = v->run;
    uint8_t *data = (uint8_t *)run + run->io.data_offset;

    for (uint32_t i = 0; i < run->io.count; i++, data += run->io.size) {
        access_io(v->kvm, true, run->io.port, run->io.direction == KVM_EXIT_IO_OUT, data, run->io.size);
    }
    return true;
}

static bool exit_mmio(KvmVcpu *v, GError **errp)
{
    struct kvm_run *run = v->run;

    access_io(v->kvm, false, run->mmio.phys_addr, run->mmio.is_write, run->mmio.data,
              MIN(run->mmio.len, sizeof(run->mmio.data)));
    return true;
}

/* A triple fault resets a PC. */
static bool exit_shutdown(KvmVcpu *v, GError **errp)
{
    kvm_guest_request(v->kvm, MACHINE_REQUEST_RESET, 0);
    return true;
}

static bool exit_ring_full(KvmVcpu *v, GError **errp)
{
    trace_kvm_dirty_ring_full(v->index);
    if (!kvm_dirty_ring_harvest(v->kvm, v, errp)) {
        return false;
    }
    kvm_dirty_limit_pay(v);
    return true;
}

static bool exit_nothing(KvmVcpu *v, GError **errp)
{
    return true;
}

static bool exit_failed(KvmVcpu *v, GError **errp)
{
    struct kvm_run *run = v->run;
    struct kvm_regs regs = { 0 };

    ioctl(v->fd, KVM_GET_REGS, &regs);
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED,
                "vCPU %u cannot go on at rip 0x%llx: exit reason %u, detail 0x%llx", v->index, regs.rip,
                run->exit_reason,
                run->exit_reason == KVM_EXIT_INTERNAL_ERROR
                    ? (unsigned long long)run->internal.suberror
                    : (unsigned long long)run->fail_entry.hardware_entry_failure_reason);
    return false;
}

static bool (*const exits[])(KvmVcpu *v, GError **errp) = {
    [KVM_EXIT_IO] = exit_io,
    [KVM_EXIT_MMIO] = exit_mmio,
    [KVM_EXIT_INTR] = exit_nothing,
    [KVM_EXIT_IRQ_WINDOW_OPEN] = exit_nothing,
    [KVM_EXIT_SHUTDOWN] = exit_shutdown,
    [KVM_EXIT_DIRTY_RING_FULL] = exit_ring_full,
};

static bool handle_exit(KvmVcpu *v, GError **errp)
{
    uint32_t reason = v->run->exit_reason;

    if (reason < G_N_ELEMENTS(exits) && exits[reason]) {
        return exits[reason](v, errp);
    }
    return exit_failed(v, errp);
}

/* Until somebody interrupts.  False: the guest cannot go on. */
static bool run_guest(KvmVcpu *v, GError **errp)
{
    for (;;) {
        if (ioctl(v->fd, KVM_RUN, 0) == 0) {
            if (!handle_exit(v, errp)) {
                return false;
            }
        } else if (errno == EINTR) {
            return true;
        } else if (errno != EAGAIN) {   /* EAGAIN: a vCPU that waited for its start-up has been woken */
            error_set_errno(errp, GODWIT_ERROR_IO, errno, "KVM_RUN of vCPU %u", v->index);
            return false;
        }
    }
}

/* ---- throttling ---- */

/* A timer ends KVM_RUN at the end of each slice. */
static void set_throttle_timer(KvmVcpu *v, unsigned percent)
{
    int64_t period = percent ? SLICE_NS : 0;
    struct itimerspec spec = { .it_interval.tv_nsec = period, .it_value.tv_nsec = period };

    timer_settime(v->throttle_timer, 0, &spec, NULL);
    v->throttle_seen = percent;
    v->throttle_due = g_get_monotonic_time() + SLICE_NS / 1000 * 9 / 10;
}

static void throttle(KvmVcpu *v)
{
    unsigned percent = (unsigned)__atomic_load_n(&v->kvm->throttle, __ATOMIC_RELAXED);

    if (percent != v->throttle_seen) {
        set_throttle_timer(v, percent);
    } else if (percent && g_get_monotonic_time() >= v->throttle_due) {     /* else kicked by somebody else */
        gint64 end = g_get_monotonic_time() + SLICE_NS / 1000 * percent / (100 - percent);
        g_mutex_lock(&v->kvm->lock);
        while (v->kvm->run && !v->kvm->quit && g_cond_wait_until(&v->kvm->wake, &v->kvm->lock, end)) {
            /* woken for somebody else's sake */
        }
        g_mutex_unlock(&v->kvm->lock);
        set_throttle_timer(v, percent);
    }
}

/* ---- the thread ---- */

/* Looks at what is wanted; while the guest is paused stays here.  False: the thread is to end. */
static bool heed(KvmVcpu *v)
{
    Kvm *kvm = v->kvm;

    g_mutex_lock(&kvm->lock);
    while ((!kvm->run || v->waiting) && !kvm->quit) {
        if (!v->stopped && !kvm->run) {
            v->stopped = true;
            trace_kvm_vcpu_stopped(v->index);
            g_cond_broadcast(&kvm->acknowledged);
        }
        g_cond_wait(&kvm->wake, &kvm->lock);
    }
    __atomic_store_n(&v->run->immediate_exit, 0, __ATOMIC_RELEASE);
    bool go_on = !kvm->quit;
    g_mutex_unlock(&kvm->lock);
    return go_on;
}

static void give_up(KvmVcpu *v, const GError *error)
{
    g_warning("%s", error->message);
    kvm_guest_request(v->kvm, MACHINE_REQUEST_INTERNAL_ERROR, 0);
}

bool kvm_vcpu_make_timer(KvmVcpu *v, timer_t *timer, const char *what)
{
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = KICK_SIGNAL };

    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, timer) < 0) {
        g_warning("vCPU %u cannot be %s: timer_create: %s", v->index, what, g_strerror(errno));
        return false;
    }
    return true;
}

void *kvm_vcpu_thread(void *opaque)
{
    KvmVcpu *v = opaque;
    sigset_t kick;

    own_run = v->run;
    sigemptyset(&kick);
    sigaddset(&kick, KICK_SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &kick, NULL);
    kvm_vcpu_make_timer(v, &v->throttle_timer, "throttled");
    kvm_dirty_limit_begin(v);
    g_mutex_lock(&v->kvm->lock);
    v->id = pthread_self();
    g_mutex_unlock(&v->kvm->lock);
    while (heed(v)) {
        g_autoptr(GError) error = NULL;

        throttle(v);
        kvm_dirty_limit_pay(v);
        if (!run_guest(v, &error)) {
            give_up(v, error);
        }
    }
    kvm_dirty_limit_end(v);
    timer_delete(v->throttle_timer);
    return NULL;
}
