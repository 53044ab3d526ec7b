/* SPDX-License-Identifier: BSD-2-Clause */
/* The workload machine's sections: its configuration, and each vCPU's registers. */
#include "workload.h"

#include "util/error.h"
#include <inttypes.h>

#define CONFIG_FIELD(_name, _type) \
    { .name = #_name, .type = (_type), .offset = offsetof(Workload, wire._name) }
#define REGISTER(_name, _type) \
    { .name = #_name, .type = (_type), .offset = offsetof(WorkloadVcpu, wire._name) }

static bool config_pre_save(void *opaque, GError **errp)
{
    Workload *w = opaque;
    w->wire = w->cfg;
    return true;
}

/* The guest that arrives brings its own habits; only its size must fit. */
static bool config_post_load(void *opaque, int version, GError **errp)
{
    Workload *w = opaque;
    if (w->wire.n_vcpus != w->cfg.n_vcpus) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "The workload guest has %u vCPUs, this machine has %u", w->wire.n_vcpus, w->cfg.n_vcpus);
        return false;
    }
    if (w->wire.total_pages != w->cfg.total_pages) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "The workload guest has %" PRIu64 " pages of memory, this machine has %" PRIu64,
                    w->wire.total_pages, w->cfg.total_pages);
        return false;
    }
    if (w->wire.pattern >= WORKLOAD_PATTERN__MAX ||
        w->wire.zero_percent + w->wire.compressible_percent > 100) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Section workload: pattern %u or page shares %u and %u out of range", w->wire.pattern,
                    w->wire.zero_percent, w->wire.compressible_percent);
        return false;
    }
    w->cfg = w->wire;
    return workload_partition(w, errp);
}

static const VMStateField config_fields[] = {
    CONFIG_FIELD(pattern, VMSTATE_UINT32),
    CONFIG_FIELD(n_vcpus, VMSTATE_UINT32),
    CONFIG_FIELD(rate, VMSTATE_UINT64),
    CONFIG_FIELD(working_set, VMSTATE_UINT64),
    CONFIG_FIELD(seed, VMSTATE_UINT64),
    CONFIG_FIELD(total_pages, VMSTATE_UINT64),
    CONFIG_FIELD(zero_percent, VMSTATE_UINT8),
    CONFIG_FIELD(compressible_percent, VMSTATE_UINT8),
    CONFIG_FIELD(prefill, VMSTATE_BOOL),
    VMSTATE_END
};

static const VMStateDescription config_vmsd = {
    .name = "workload",
    .version = 1,
    .minimum_version = 1,
    .fields = config_fields,
    .pre_save = config_pre_save,
    .post_load = config_post_load,
};

static bool vcpu_pre_save(void *opaque, GError **errp)
{
    WorkloadVcpu *v = opaque;
    g_mutex_lock(&v->w->lock);
    v->wire = v->regs;
    g_mutex_unlock(&v->w->lock);
    return true;
}

static bool vcpu_post_load(void *opaque, int version, GError **errp)
{
    WorkloadVcpu *v = opaque;
    if (v->wire.position >= v->data_pages || v->wire.rng == 0) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Section workload-vcpu %u: position %" PRIu64 " of %" PRIu64 " pages, generator %" PRIu64,
                    v->index, v->wire.position, v->data_pages, v->wire.rng);
        return false;
    }
    g_mutex_lock(&v->w->lock);
    v->regs = v->wire;
    v->arrived = true;
    g_mutex_unlock(&v->w->lock);
    workload_vcpu_publish(v);
    return true;
}

static const VMStateField vcpu_fields[] = {
    REGISTER(steps, VMSTATE_UINT64),
    REGISTER(pages_written, VMSTATE_UINT64),
    REGISTER(position, VMSTATE_UINT64),
    REGISTER(rng, VMSTATE_UINT64),
    REGISTER(table_sum, VMSTATE_UINT64),
    REGISTER(errors, VMSTATE_UINT64),
    REGISTER(longest_gap_ns, VMSTATE_UINT64),
    REGISTER(last_step_ns, VMSTATE_INT64),
    REGISTER(prefilled, VMSTATE_BOOL),
    VMSTATE_END
};

static const VMStateDescription vcpu_vmsd = {
    .name = "workload-vcpu",
    .version = 1,
    .minimum_version = 1,
    .fields = vcpu_fields,
    .pre_save = vcpu_pre_save,
    .post_load = vcpu_post_load,
};

void workload_register_state(Workload *w)
{
    w->config_entry = (SaveEntry){ .idstr = "workload", .vmsd = &config_vmsd, .opaque = w };
    save_entry_list_add(&w->machine->save_entries, &w->config_entry);
    for (unsigned i = 0; i < w->cfg.n_vcpus; i++) {
        w->vcpu_entries[i] = (SaveEntry){
            .idstr = "workload-vcpu", .instance_id = i, .vmsd = &vcpu_vmsd, .opaque = &w->vcpus[i]
        };
        save_entry_list_add(&w->machine->save_entries, &w->vcpu_entries[i]);
    }
}

void workload_unregister_state(Workload *w)
{
    for (unsigned i = 0; i < w->cfg.n_vcpus; i++) {
        save_entry_list_remove(&w->machine->save_entries, &w->vcpu_entries[i]);
    }
    save_entry_list_remove(&w->machine->save_entries, &w->config_entry);
}
