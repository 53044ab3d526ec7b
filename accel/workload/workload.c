/* SPDX-License-Identifier: BSD-2-Clause */
/* Machine type workload: its options, its vCPUs' life, and what it tells about them. */
#include "workload.h"

#include "system/keyval.h"
#include "util/error.h"
#include <string.h>

/* ---- options: -machine workload,NAME=VALUE ---- */

static bool parse_pattern(WorkloadConfig *cfg, const char *name, const char *value, GError **errp)
{
    for (unsigned i = 0; workload_pattern_names[i]; i++) {
        if (strcmp(value, workload_pattern_names[i]) == 0) {
            cfg->pattern = i;
            return true;
        }
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                "Parameter 'pattern' does not accept value '%s' (sequential, random, hot, fill)", value);
    return false;
}

static bool parse_percent(uint8_t *to, const char *name, const char *value, GError **errp)
{
    guint64 n;
    if (!g_ascii_string_to_unsigned(value, 10, 0, 100, &n, NULL)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameter '%s' expects a percentage between 0 and 100", name);
        return false;
    }
    *to = n;
    return true;
}

static bool parse_rate(WorkloadConfig *cfg, const char *name, const char *value, GError **errp)
{
    return keyval_parse_size(name, value, 1, &cfg->rate, errp);
}

static bool parse_working_set(WorkloadConfig *cfg, const char *name, const char *value, GError **errp)
{
    return keyval_parse_size(name, value, 1, &cfg->working_set, errp);
}

static bool parse_zero(WorkloadConfig *cfg, const char *name, const char *value, GError **errp)
{
    return parse_percent(&cfg->zero_percent, name, value, errp);
}

static bool parse_compressible(WorkloadConfig *cfg, const char *name, const char *value, GError **errp)
{
    return parse_percent(&cfg->compressible_percent, name, value, errp);
}

static bool parse_seed(WorkloadConfig *cfg, const char *name, const char *value, GError **errp)
{
    guint64 n;
    if (!g_ascii_string_to_unsigned(value, 10, 0, G_MAXUINT64, &n, NULL)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter 'seed' expects a number below 2^64");
        return false;
    }
    cfg->seed = n;
    return true;
}

static bool parse_prefill(WorkloadConfig *cfg, const char *name, const char *value, GError **errp)
{
    return keyval_parse_bool(name, value, &cfg->prefill, errp);
}

static const struct {
    const char *name;
    bool (*parse)(WorkloadConfig *cfg, const char *name, const char *value, GError **errp);
} properties[] = {
    { "pattern", parse_pattern },
    { "rate", parse_rate },
    { "working-set", parse_working_set },
    { "zero", parse_zero },
    { "compressible", parse_compressible },
    { "seed", parse_seed },
    { "prefill", parse_prefill },
};

static const char *const property_names[] = {
    "pattern", "rate", "working-set", "zero", "compressible", "seed", "prefill", NULL
};

static bool parse_config(Machine *m, WorkloadConfig *cfg, GError **errp)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(properties); i++) {
        const char *value = g_hash_table_lookup(m->properties, properties[i].name);
        if (value && !properties[i].parse(cfg, properties[i].name, value, errp)) {
            return false;
        }
    }
    if (cfg->zero_percent + cfg->compressible_percent > 100) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameters 'zero' and 'compressible' expect together at most 100 percent");
        return false;
    }
    cfg->n_vcpus = m->cpus;
    cfg->total_pages = ram_list_total(&m->ram) >> TARGET_PAGE_BITS;
    return true;
}

/* ---- CpuOps ---- */

/* Under the lock: makes every vCPU look at what is wanted of it. */
static void wake_vcpus(Workload *w)
{
    __atomic_fetch_add(&w->generation, 1, __ATOMIC_RELEASE);
    g_cond_broadcast(&w->wake);
}

static void wait_stopped(Workload *w)
{
    for (unsigned i = 0; i < w->cfg.n_vcpus; i++) {
        while (!w->vcpus[i].stopped) {
            g_cond_wait(&w->acknowledged, &w->lock);
        }
    }
}

static bool cpus_create(Machine *m, GError **errp)
{
    Workload *w = m->accel_data;
    wake_vcpus(w);      /* generation 1: a new thread looks before its first step */
    for (unsigned i = 0; i < w->cfg.n_vcpus; i++) {
        g_autofree char *name = g_strdup_printf("CPU %u/workload", i);
        w->vcpus[i].thread = g_thread_try_new(name, workload_vcpu_thread, &w->vcpus[i], errp);
        if (!w->vcpus[i].thread) {
            return false;
        }
    }
    g_mutex_lock(&w->lock);
    wait_stopped(w);
    g_mutex_unlock(&w->lock);
    return true;
}

static void cpus_resume(Machine *m)
{
    Workload *w = m->accel_data;
    bool arrived = false;

    g_mutex_lock(&w->lock);
    w->run = true;
    for (unsigned i = 0; i < w->cfg.n_vcpus; i++) {
        w->vcpus[i].stopped = false;
        arrived |= w->vcpus[i].arrived;
    }
    if (arrived) {
        w->sweeps_wanted++;     /* a guest that arrives proves that all of it did */
    }
    wake_vcpus(w);
    g_mutex_unlock(&w->lock);
}

static void cpus_pause(Machine *m)
{
    Workload *w = m->accel_data;
    g_mutex_lock(&w->lock);
    w->run = false;
    wake_vcpus(w);
    wait_stopped(w);
    g_mutex_unlock(&w->lock);
}

static void cpus_throttle(Machine *m, unsigned percent)
{
    Workload *w = m->accel_data;
    __atomic_store_n(&w->throttle, MIN(percent, 99), __ATOMIC_RELAXED);
}

static void cpus_reset(Machine *m)
{
    Workload *w = m->accel_data;
    for (unsigned i = 0; i < w->cfg.n_vcpus; i++) {
        workload_vcpu_reset(&w->vcpus[i]);
    }
}

static void cpus_destroy(Machine *m)
{
    Workload *w = m->accel_data;
    g_mutex_lock(&w->lock);
    w->quit = true;
    wake_vcpus(w);
    g_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->cfg.n_vcpus; i++) {
        if (w->vcpus[i].thread) {
            g_thread_join(w->vcpus[i].thread);
        }
    }
    workload_unregister_state(w);
    g_mutex_clear(&w->lock);
    g_cond_clear(&w->wake);
    g_cond_clear(&w->acknowledged);
    g_free(w->first_error);
    g_free(w);
    m->accel_data = NULL;
}

static const CpuOps workload_cpu_ops = {
    .create = cpus_create,
    .resume = cpus_resume,
    .pause = cpus_pause,
    .throttle = cpus_throttle,
    .reset = cpus_reset,
    .destroy = cpus_destroy,
};

/* ---- machine type ---- */

static bool workload_init(Machine *m, GError **errp)
{
    g_autofree Workload *w = g_new0(Workload, 1);
    w->machine = m;
    w->cfg.prefill = true;
    w->cfg.zero_percent = 10;
    w->cfg.compressible_percent = 30;
    if (!parse_config(m, &w->cfg, errp) || !workload_partition(w, errp)) {
        return false;
    }

    g_mutex_init(&w->lock);
    g_cond_init(&w->wake);
    g_cond_init(&w->acknowledged);
    for (unsigned i = 0; i < w->cfg.n_vcpus; i++) {
        workload_vcpu_start_registers(&w->vcpus[i]);
    }
    m->cpu_ops = &workload_cpu_ops;
    m->accel_data = w;
    workload_register_state(w);
    g_steal_pointer(&w);
    return true;
}

const MachineType workload_machine_type = {
    .name = "workload",
    .desc = "synthetic guest that dirties memory and proves that none of it is lost",
    .max_cpus = WORKLOAD_VCPUS_MAX,
    .default_ram_size = 128 << 20,
    .properties = property_names,
    .init = workload_init,
};

bool workload_machine(const Machine *m)
{
    return m->type == &workload_machine_type;
}

/* ---- what it tells ---- */

static void copy_vcpu_stats(WorkloadVcpuStats *to, WorkloadVcpu *v)
{
    to->steps = __atomic_load_n(&v->stats.steps, __ATOMIC_RELAXED);
    to->pages_written = __atomic_load_n(&v->stats.pages_written, __ATOMIC_RELAXED);
    to->pages_checked = __atomic_load_n(&v->stats.pages_checked, __ATOMIC_RELAXED);
    to->errors = __atomic_load_n(&v->stats.errors, __ATOMIC_RELAXED);
    to->longest_gap_ns = __atomic_load_n(&v->stats.longest_gap_ns, __ATOMIC_RELAXED);
    to->switchover_gap_ns = __atomic_load_n(&v->stats.switchover_gap_ns, __ATOMIC_RELAXED);
}

WorkloadStats *workload_query(const Machine *m)
{
    Workload *w = m->accel_data;
    WorkloadStats *s = g_new0(WorkloadStats, 1);
    bool errors = false;

    g_mutex_lock(&w->lock);
    s->pattern = workload_pattern_names[w->cfg.pattern];
    s->rate = w->cfg.rate;
    s->n_vcpus = w->cfg.n_vcpus;
    s->vcpus = g_new0(WorkloadVcpuStats, s->n_vcpus);
    s->sweeps = w->sweeps_wanted;
    for (unsigned i = 0; i < s->n_vcpus; i++) {
        WorkloadVcpu *v = &w->vcpus[i];
        copy_vcpu_stats(&s->vcpus[i], v);
        s->working_set += v->set_pages * TARGET_PAGE_SIZE;
        s->pages += v->data_pages;
        s->sweeps = MIN(s->sweeps, v->sweeps_done);
        errors |= s->vcpus[i].errors != 0;
    }
    s->verifying = s->sweeps < w->sweeps_wanted;
    s->verified = w->sweeps_wanted > 0 && !s->verifying && !errors;
    s->first_error = g_strdup(w->first_error);
    g_mutex_unlock(&w->lock);
    return s;
}

void workload_stats_free(WorkloadStats *stats)
{
    if (stats) {
        g_free(stats->first_error);
        g_free(stats->vcpus);
        g_free(stats);
    }
}

bool workload_verify(Machine *m, GError **errp)
{
    Workload *w = m->accel_data;
    if (machine_run_state(m) == RUN_STATE_INMIGRATE) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_STATE,
                    "The guest's memory is still arriving; verify it when the migration has completed");
        return false;
    }
    g_mutex_lock(&w->lock);
    w->sweeps_wanted++;
    wake_vcpus(w);
    g_mutex_unlock(&w->lock);
    return true;
}
