/* SPDX-License-Identifier: BSD-2-Clause */
/* MigrationHostOps over a Machine and the monitors. */
#include "vm.h"

#include "qapi/qapi-events-migration.h"
#include "report.h"

static const char *host_machine_name(void *opaque)
{
    Vm *vm = opaque;

    return vm->machine->type->name;
}

static const uint8_t *host_uuid(void *opaque)
{
    Vm *vm = opaque;

    return vm->machine->uuid_set ? vm->machine->uuid : NULL;
}

static RamList *host_ram(void *opaque)
{
    return &((Vm *)opaque)->machine->ram;
}

static DirtyLog *host_dirty_log(void *opaque)
{
    return &((Vm *)opaque)->machine->dirty_log;
}

static SaveEntryList *host_save_entries(void *opaque)
{
    return &((Vm *)opaque)->machine->save_entries;
}

static RunState host_run_state(void *opaque)
{
    return machine_run_state(((Vm *)opaque)->machine);
}

static bool host_stop(void *opaque, RunState why, GError **errp)
{
    return machine_stop(((Vm *)opaque)->machine, why, errp);
}

static bool host_start(void *opaque, GError **errp)
{
    return machine_start(((Vm *)opaque)->machine, errp);
}

static bool host_set_run_state(void *opaque, RunState state, GError **errp)
{
    return machine_set_run_state(((Vm *)opaque)->machine, state, errp);
}

static void host_throttle(void *opaque, unsigned percent)
{
    Machine *m = ((Vm *)opaque)->machine;

    if (m->cpu_ops) {
        m->cpu_ops->throttle(m, percent);
    }
}

static DirtyLimiter *host_dirty_limiter(void *opaque)
{
    return ((Vm *)opaque)->machine->dirty_limiter;
}

static bool host_has_vcpus(void *opaque)
{
    return ((Vm *)opaque)->machine->cpu_ops != NULL;
}

/* The main thread's stop and cont change it while the load thread asks. */
static bool host_autostart(void *opaque)
{
    return __atomic_load_n(&((Vm *)opaque)->monitor.autostart, __ATOMIC_SEQ_CST);
}

static void host_event_status(void *opaque, MigrationStatus status)
{
    qapi_event_send_migration(&((Vm *)opaque)->monitor, status);
}

static void host_event_pass(void *opaque, int64_t pass)
{
    qapi_event_send_migration_pass(&((Vm *)opaque)->monitor, pass);
}

static int host_take_fd(void *opaque, const char *name, GError **errp)
{
    return monitor_take_fd(&((Vm *)opaque)->monitor, name, errp);
}

static int host_dup_fdset(void *opaque, int64_t id, int flags, GError **errp)
{
    return monitor_dup_fdset(&((Vm *)opaque)->monitor, id, flags, errp);
}

static void host_log(void *opaque, const char *message)
{
    report("%s", message);
}

/* A destination without its guest has no reason to live on; whoever may retry has said exit-on-error=false.
 */
static void host_incoming_ended(void *opaque, const GError *error)
{
    Vm *vm = opaque;

    if (error) {
        report_error(NULL, error);
        vm->exit_status = 1;
        g_main_loop_quit(vm->monitor.main_loop);
    }
}

const MigrationHostOps vm_migration_host = {
    .machine_name = host_machine_name,
    .uuid = host_uuid,
    .ram = host_ram,
    .dirty_log = host_dirty_log,
    .save_entries = host_save_entries,
    .run_state = host_run_state,
    .stop = host_stop,
    .start = host_start,
    .set_run_state = host_set_run_state,
    .throttle = host_throttle,
    .dirty_limiter = host_dirty_limiter,
    .has_vcpus = host_has_vcpus,
    .autostart = host_autostart,
    .event_status = host_event_status,
    .event_pass = host_event_pass,
    .take_fd = host_take_fd,
    .dup_fdset = host_dup_fdset,
    .log = host_log,
    .incoming_ended = host_incoming_ended,
};
