/* SPDX-License-Identifier: BSD-2-Clause */
/* What the machine is made of: name, vCPUs, memory, accelerators. */
#include "monitor-internal.h"

#include "accel/kvm.h"
#include "qapi/qapi-commands-machine.h"
#include "qapi/qapi-commands-qom.h"
#include "util/error.h"

#include <unistd.h>

NameInfo *qmp_query_name(MonitorContext *ctx, GError **errp)
{
    NameInfo *info = g_new0(NameInfo, 1);

    info->name = g_strdup(ctx->machine->name);
    return info;
}

UuidInfo *qmp_query_uuid(MonitorContext *ctx, GError **errp)
{
    UuidInfo *info = g_new0(UuidInfo, 1);
    const uint8_t *u = ctx->machine->uuid;

    info->UUID = g_strdup_printf("%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                                 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
                                 u[13], u[14], u[15]);
    return info;
}

KvmInfo *qmp_query_kvm(MonitorContext *ctx, GError **errp)
{
    KvmInfo *info = g_new0(KvmInfo, 1);

    info->enabled = info->present = kvm_machine(ctx->machine);
    return info;
}

/* Clients know two names for accelerators; vCPUs in software have the one that is not KVM's. */
AcceleratorInfo *qmp_query_accelerators(MonitorContext *ctx, GError **errp)
{
    AcceleratorInfo *info = g_new0(AcceleratorInfo, 1);

    info->enabled = kvm_machine(ctx->machine) ? ACCELERATOR_KVM : ACCELERATOR_TCG;
    info->present = g_new0(AcceleratorList, 1);
    info->present->count = 1;
    info->present->items = g_new0(Accelerator, 1);
    info->present->items[0] = info->enabled;
    return info;
}

TargetInfo *qmp_query_target(MonitorContext *ctx, GError **errp)
{
    TargetInfo *info = g_new0(TargetInfo, 1);

    info->arch = SYS_EMU_TARGET_X86_64;
    return info;
}

MachineInfoList *qmp_query_machines(MonitorContext *ctx, GError **errp)
{
    g_autoptr(GPtrArray) types = machine_type_list();
    MachineInfoList *list = g_new0(MachineInfoList, 1);

    list->count = types->len;
    list->items = g_new0(MachineInfo *, types->len);
    for (guint i = 0; i < types->len; i++) {
        const MachineType *type = g_ptr_array_index(types, i);
        MachineInfo *info = list->items[i] = g_new0(MachineInfo, 1);
        info->name = g_strdup(type->name);
        info->cpu_max = type->max_cpus;
        info->default_ram_id = g_strdup("ram");
    }
    return list;
}

CurrentMachineParams *qmp_query_current_machine(MonitorContext *ctx, GError **errp)
{
    return g_new0(CurrentMachineParams, 1);
}

/* The threads of our vCPUs are not known here: each is shown with the process. */
CpuInfoFastList *qmp_query_cpus_fast(MonitorContext *ctx, GError **errp)
{
    CpuInfoFastList *list = g_new0(CpuInfoFastList, 1);

    list->count = ctx->machine->cpu_ops ? ctx->machine->cpus : 0;
    list->items = g_new0(CpuInfoFast *, list->count);
    for (size_t i = 0; i < list->count; i++) {
        CpuInfoFast *cpu = list->items[i] = g_new0(CpuInfoFast, 1);
        cpu->cpu_index = (int64_t)i;
        cpu->qom_path = g_strdup_printf("/machine/unattached/device[%zu]", i);
        cpu->thread_id = getpid();
        cpu->target = SYS_EMU_TARGET_X86_64;
    }
    return list;
}

MemoryInfo *qmp_query_memory_size_summary(MonitorContext *ctx, GError **errp)
{
    MemoryInfo *info = g_new0(MemoryInfo, 1);

    info->base_memory = ram_list_total(&ctx->machine->ram);
    info->has_plugged_memory = true;
    return info;
}

/* All branches begin with the same members. */
static const MemoryBackendProperties *common_properties(const ObjectOptions *options)
{
    return (const MemoryBackendProperties *)(const void *)options->u.memory_backend_ram;
}

static Memdev *backend_info(const MemoryBackend *backend)
{
    const MemoryBackendProperties *p = common_properties(backend->options);
    Memdev *info = g_new0(Memdev, 1);

    info->id = g_strdup(backend->id);
    info->size = backend->block.used_length;
    info->merge = !p->has_merge || p->merge;
    info->dump = !p->has_dump || p->dump;
    info->prealloc = p->has_prealloc && p->prealloc;
    info->share = backend->block.shared;
    info->has_reserve = true;
    info->reserve = !p->has_reserve || p->reserve;
    info->policy = p->has_policy ? p->policy : HOST_MEM_POLICY_DEFAULT;
    info->host_nodes = p->host_nodes ? qapi_clone_uint16List(p->host_nodes) : g_new0(uint16List, 1);
    return info;
}

MemdevList *qmp_query_memdev(MonitorContext *ctx, GError **errp)
{
    MemdevList *list = g_new0(MemdevList, 1);

    for (const MemoryBackend *b = ctx->backends->first; b; b = b->next) {
        list->count++;
    }
    list->items = g_new0(Memdev *, list->count);
    size_t i = 0;
    for (const MemoryBackend *b = ctx->backends->first; b; b = b->next) {
        list->items[i++] = backend_info(b);
    }
    return list;
}

bool qmp_object_add(MonitorContext *ctx, const ObjectOptions *arg, GError **errp)
{
    return memory_backend_add(ctx->backends, arg, errp) != NULL;
}

bool qmp_object_del(MonitorContext *ctx, const object_del_arg *arg, GError **errp)
{
    return memory_backend_del(ctx->backends, arg->id, errp);
}
