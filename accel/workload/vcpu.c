/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread of a synthetic vCPU: writes stamped pages, checks them, and heeds pause, throttle and rate. */
#include "workload.h"

#include "util/error.h"
#include <inttypes.h>

#include <string.h>
#include <time.h>

#define VERSIONS_PER_PAGE (TARGET_PAGE_SIZE / sizeof(uint32_t))

/* Throttling sleeps between slices of this length. */
#define SLICE_US 10000
/* How long an idle or rate-limited vCPU sleeps at a time. */
#define NAP_US 1000
/* Pages of a sweep checked per turn: beside the guest's own work, and in place of a nap. */
#define SWEEP_BESIDE 2
#define SWEEP_NAP 256

static int64_t realtime_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static uint8_t *page_host(const Workload *w, uint64_t page, RAMBlock **in, uint64_t *offset)
{
    RAMLIST_FOREACH(block, &w->machine->ram) {
        if (page < ramblock_pages(block)) {
            *in = block;
            *offset = page << TARGET_PAGE_BITS;
            return block->host + *offset;
        }
        page -= ramblock_pages(block);
    }
    g_assert_not_reached();
}

static uint32_t *version_slot(const WorkloadVcpu *v, uint64_t index, RAMBlock **in, uint64_t *offset)
{
    uint32_t *table = (uint32_t *)page_host(v->w, v->first_page + index / VERSIONS_PER_PAGE, in, offset);
    *offset += index % VERSIONS_PER_PAGE * sizeof(uint32_t);
    return table + index % VERSIONS_PER_PAGE;
}

static uint64_t page_number(const WorkloadVcpu *v, uint64_t index)
{
    return v->first_page + v->table_pages + index;
}

static void report_error(WorkloadVcpu *v, const char *fmt, ...) G_GNUC_PRINTF(2, 3);

static void report_error(WorkloadVcpu *v, const char *fmt, ...)
{
    g_mutex_lock(&v->w->lock);
    v->regs.errors++;
    if (!v->w->first_error) {
        va_list ap;
        va_start(ap, fmt);
        v->w->first_error = g_strdup_vprintf(fmt, ap);
        va_end(ap);
    }
    g_mutex_unlock(&v->w->lock);
}

static void check_page(WorkloadVcpu *v, uint64_t index, uint32_t version, const uint8_t *host)
{
    uint64_t number = page_number(v, index);
    WorkloadPageVerdict verdict = workload_page_check(&v->w->cfg, host, number, version, v->index);
    __atomic_fetch_add(&v->stats.pages_checked, 1, __ATOMIC_RELAXED);
    if (verdict != WORKLOAD_PAGE_OK) {
        const uint64_t *word = (const uint64_t *)host;
        report_error(v, "vCPU %u: page %" PRIu64 " is %s: expected version %u, its stamp says page %" PRIu64
                     " version %" PRIu64, v->index, number, workload_page_verdict_str(verdict), version,
                     word[0], word[1]);
    }
}

/* The migration reads the table while it is written; the mark comes after the store, see soft-dirty-log.c. */
__attribute__((no_sanitize("thread")))
static void write_page(WorkloadVcpu *v, uint64_t index)
{
    Workload *w = v->w;
    RAMBlock *block, *table_block;
    uint64_t offset, table_offset;
    uint64_t number = page_number(v, index);
    uint8_t *host = page_host(w, number, &block, &offset);
    uint32_t *slot = version_slot(v, index, &table_block, &table_offset);
    uint32_t old = *slot;
    uint32_t version = old + 1 ? old + 1 : 1;

    check_page(v, index, old, host);
    workload_page_write(&w->cfg, host, number, version, v->index);
    soft_dirty_log_mark(w->machine->soft_dirty_log, block, offset, TARGET_PAGE_SIZE);
    *slot = version;
    soft_dirty_log_mark(w->machine->soft_dirty_log, table_block, table_offset, sizeof(*slot));

    uint64_t change = workload_version_hash(number, version) - workload_version_hash(number, old);
    v->regs.table_sum += change;
    if (v->sweeping && index < v->sweep_cursor) {
        v->sweep_sum += change;
    }
    v->regs.pages_written++;
}

static void start_sweep(WorkloadVcpu *v)
{
    v->sweeping = true;
    v->sweep_cursor = 0;
    v->sweep_sum = 0;
}

/*
 * Compares the next @count data pages with the version table, and at the end the table with the sum
 * in the registers, which did not travel in guest memory.
 */
static void sweep(WorkloadVcpu *v, uint64_t count)
{
    RAMBlock *block;
    uint64_t offset;

    for (; count && v->sweep_cursor < v->data_pages; count--, v->sweep_cursor++) {
        uint64_t number = page_number(v, v->sweep_cursor);
        uint32_t version = *version_slot(v, v->sweep_cursor, &block, &offset);
        check_page(v, v->sweep_cursor, version, page_host(v->w, number, &block, &offset));
        v->sweep_sum += workload_version_hash(number, version);
    }
    if (v->sweep_cursor < v->data_pages) {
        return;
    }
    if (v->sweep_sum != v->regs.table_sum) {
        report_error(v, "vCPU %u: its version table does not add up to the sum in its registers", v->index);
    }
    v->sweeping = false;
    workload_vcpu_publish(v);
    g_mutex_lock(&v->w->lock);
    v->sweeps_done = v->sweeps_started;
    g_mutex_unlock(&v->w->lock);
}

void workload_vcpu_publish(WorkloadVcpu *v)
{
    __atomic_store_n(&v->stats.steps, v->regs.steps, __ATOMIC_RELAXED);
    __atomic_store_n(&v->stats.pages_written, v->regs.pages_written, __ATOMIC_RELAXED);
    __atomic_store_n(&v->stats.errors, v->regs.errors, __ATOMIC_RELAXED);
    __atomic_store_n(&v->stats.longest_gap_ns, v->regs.longest_gap_ns, __ATOMIC_RELAXED);
}

static void note_gap(WorkloadVcpu *v)
{
    int64_t now = realtime_ns();
    int64_t gap = now - v->regs.last_step_ns;

    if (v->regs.steps > 0 && gap > 0) {
        v->regs.longest_gap_ns = MAX(v->regs.longest_gap_ns, (uint64_t)gap);
        if (v->arrived) {
            __atomic_store_n(&v->stats.switchover_gap_ns, gap, __ATOMIC_RELAXED);
        }
    }
    v->arrived = false;
    v->regs.last_step_ns = now;
    v->regs.steps++;
}

/* Sleeps unless something is wanted of the vCPU; a wake-up ends it early. */
static void vcpu_sleep(WorkloadVcpu *v, int64_t us)
{
    Workload *w = v->w;
    g_mutex_lock(&w->lock);
    if (w->generation == v->seen) {
        g_cond_wait_until(&w->wake, &w->lock, g_get_monotonic_time() + us);
    }
    g_mutex_unlock(&w->lock);
}

static void nap(WorkloadVcpu *v)
{
    if (v->sweeping) {
        sweep(v, SWEEP_NAP);
    } else {
        vcpu_sleep(v, NAP_US);
    }
}

static void throttle(WorkloadVcpu *v, int64_t now_us)
{
    int percent = __atomic_load_n(&v->w->throttle, __ATOMIC_RELAXED);
    if (percent && now_us - v->slice_start_us >= SLICE_US) {
        vcpu_sleep(v, SLICE_US * percent / (100 - percent));
        v->slice_start_us = g_get_monotonic_time();
    }
}

/* True if the vCPU has written its share for now. */
static bool over_rate(WorkloadVcpu *v, int64_t now_us)
{
    uint64_t rate = v->w->cfg.rate / v->w->cfg.n_vcpus;
    if (!v->w->cfg.rate || !v->regs.prefilled) {
        return false;
    }
    uint64_t allowed = (__uint128_t)rate * (now_us - v->rate_start_us) / 1000000;
    /* What was not used during a pause is not made up for afterwards. */
    if (v->rate_start_us == 0 || allowed > v->rate_bytes + rate / 10 + TARGET_PAGE_SIZE) {
        v->rate_start_us = now_us;
        v->rate_bytes = 0;
        return false;
    }
    return v->rate_bytes >= allowed;
}

static void turn(WorkloadVcpu *v)
{
    int64_t now_us = g_get_monotonic_time();

    note_gap(v);
    if (over_rate(v, now_us)) {
        nap(v);
    } else {
        int64_t page = workload_pattern_next(v);
        if (page >= 0) {
            write_page(v, page);
            v->rate_bytes += TARGET_PAGE_SIZE;
        } else {
            nap(v);
        }
    }
    if (v->sweeping) {
        sweep(v, SWEEP_BESIDE);
    }
    workload_vcpu_publish(v);
    throttle(v, now_us);
}

/* Looks at what is wanted; while the guest is paused stays here.  False: the thread is to end. */
static bool heed(WorkloadVcpu *v)
{
    Workload *w = v->w;

    g_mutex_lock(&w->lock);
    for (;;) {
        v->seen = w->generation;
        if (v->sweeps_started < w->sweeps_wanted) {
            v->sweeps_started = w->sweeps_wanted;
            start_sweep(v);
        }
        if (w->run || w->quit) {
            break;
        }
        if (!v->stopped) {
            v->stopped = true;
            g_cond_broadcast(&w->acknowledged);
        }
        if (v->sweeping) {
            g_mutex_unlock(&w->lock);
            sweep(v, SWEEP_NAP);
            g_mutex_lock(&w->lock);
        } else if (v->seen == w->generation) {
            g_cond_wait(&w->wake, &w->lock);
        }
    }
    bool go_on = !w->quit;
    g_mutex_unlock(&w->lock);
    return go_on;
}

void *workload_vcpu_thread(void *opaque)
{
    WorkloadVcpu *v = opaque;
    do {
        while (__atomic_load_n(&v->w->generation, __ATOMIC_ACQUIRE) == v->seen) {
            turn(v);
        }
    } while (heed(v));
    return NULL;
}

void workload_vcpu_start_registers(WorkloadVcpu *v)
{
    v->regs = (WorkloadRegisters){
        .rng = (v->w->cfg.seed ^ 0x9e3779b97f4a7c15ull) + v->index + 1,
        .prefilled = !v->w->cfg.prefill,
    };
    v->sweeping = false;
    v->arrived = false;
    workload_vcpu_publish(v);
}

void workload_vcpu_reset(WorkloadVcpu *v)
{
    RAMBlock *block;
    uint64_t offset;

    for (uint64_t i = 0; i < v->table_pages + v->data_pages; i++) {
        uint8_t *host = page_host(v->w, v->first_page + i, &block, &offset);
        memset(host, 0, TARGET_PAGE_SIZE);
        soft_dirty_log_mark(v->w->machine->soft_dirty_log, block, offset, TARGET_PAGE_SIZE);
    }
    workload_vcpu_start_registers(v);
}

/* The fewest table pages with a slot for each of the rest of @share pages. */
static uint64_t table_size(uint64_t share)
{
    return (share + VERSIONS_PER_PAGE) / (VERSIONS_PER_PAGE + 1);
}

bool workload_partition(Workload *w, GError **errp)
{
    uint64_t share = w->cfg.total_pages / w->cfg.n_vcpus;
    if (share < 2) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Machine workload with %u vCPUs needs at least %u KiB of memory", w->cfg.n_vcpus,
                    w->cfg.n_vcpus * 2 * TARGET_PAGE_SIZE / 1024);
        return false;
    }
    for (unsigned i = 0; i < w->cfg.n_vcpus; i++) {
        WorkloadVcpu *v = &w->vcpus[i];
        uint64_t pages = i + 1 < w->cfg.n_vcpus ? share : w->cfg.total_pages - share * i;
        v->w = w;
        v->index = i;
        v->first_page = share * i;
        v->table_pages = table_size(pages);
        v->data_pages = pages - v->table_pages;
        uint64_t set = w->cfg.working_set / TARGET_PAGE_SIZE / w->cfg.n_vcpus;
        v->set_pages = set ? MIN(set, v->data_pages) : v->data_pages;
        v->stride = workload_pattern_stride(v->set_pages);
    }
    return true;
}
