/* SPDX-License-Identifier: BSD-2-Clause */
/* Vm: the order in which everything comes and goes. */

/*
 * Coming: character devices first (a server without wait=off holds everything up until its client is there),
 * then objects and memory, the machine, migration and its -global settings, monitors, qtest; the incoming
 * migration and the guest last.  So a client may connect before a bad -global ends the program, as with the
 * peers.
 *
 * Going: the migration first, while there are monitors to tell its end to; then the monitors, which need the
 * machine no more; then the machine, whose vCPUs use the memory; the memory; the character devices.
 */
#include "vm.h"

#include "hw/pico.h"
#include "report.h"
#include "system/keyval.h"
#include "system/machine-none.h"
#include "util/error.h"
#include "util/trace.h"

#include <fcntl.h>
#include <string.h>

/* How long a peer that does not read may hold up the end. */
#define FLUSH_MS 1000

/* Properties that every machine type has; all are switches. */
static const char *const common_properties[] = {
    "aux-ram-share", "dump-guest-core", "graphics", "mem-merge", "suppress-vmdesc", "usb", NULL,
};

/* ---- machine ---- */

static const MachineType *find_type(const char *name)
{
    const MachineType *type = machine_type_find(name);

    if (!type) {
        g_autoptr(GPtrArray) types = machine_type_list();
        g_autoptr(GPtrArray) names = g_ptr_array_new();

        for (unsigned i = 0; i < types->len; i++) {
            g_ptr_array_add(names, (gpointer)((const MachineType *)g_ptr_array_index(types, i))->name);
        }
        g_ptr_array_add(names, NULL);
        const char *meant = cmdline_suggest(name, (const char *const *)names->pdata);
        report("unsupported machine type: \"%s\"\n%s%s%sUse -machine help to list supported machines", name,
               meant ? "Did you mean " : "", meant ? meant : "", meant ? "?\n" : "");
    }
    return type;
}

/* -smp and -cpu against the machine type. */
static bool check_cpus(const VmConfig *config, const MachineType *type)
{
    unsigned limit = MAX(1, type->max_cpus);

    if (config->max_cpus > limit) {
        report("Invalid SMP CPUs %u. The max CPUs supported by machine '%s' is %u", config->max_cpus,
               type->name, limit);
        return false;
    }
    if (config->cpu_model && type == &machine_none_type) {
        report("machine '%s' has no CPUs: -cpu cannot be used", type->name);
        return false;
    }
    return true;
}

static bool check_kernel(const VmConfig *config, const MachineType *type)
{
    if ((config->kernel || config->initrd || config->append) && type != &pico_machine_type) {
        report("The -kernel parameter is not supported by machine '%s': only pico boots something",
               type->name);
        return false;
    }
    return true;
}

static bool check_devices(const VmConfig *config, const MachineType *type)
{
    GPtrArray *texts = config->devices->len ? config->devices : config->drives;

    if (texts->len && type != &pico_machine_type) {
        const ConfigText *text = g_ptr_array_index(texts, 0);

        report("%s: not supported by machine '%s': only pico has devices", text->location, type->name);
        return false;
    }
    return true;
}

static bool set_property(Machine *m, const char *name, const char *value)
{
    g_autoptr(GError) err = NULL;
    bool flag;

    if (m->type->properties && g_strv_contains(m->type->properties, name)) {
        g_hash_table_insert(m->properties, g_strdup(name), g_strdup(value));
        return true;
    }
    if (!g_strv_contains(common_properties, name)) {
        const char *meant = m->type->properties ? cmdline_suggest(name, m->type->properties) : NULL;

        report("Property '%s-machine.%s' not found%s%s%s", m->type->name, name,
               meant ? "\nDid you mean " : "", meant ? meant : "", meant ? "?" : "");
        return false;
    }
    if (!keyval_parse_bool(name, value, &flag, &err)) {
        report_error(NULL, err);
        return false;
    }
    if (flag && strcmp(name, "suppress-vmdesc") == 0) {
        report("-machine suppress-vmdesc=on is not supported: the description is always sent");
        return false;
    }
    return true;
}

/* Main loop.  What the guest's reset line, debug-exit port or end of wits leads to. */
static void guest_request(Machine *m, MachineRequest what, int status, void *opaque)
{
    Vm *vm = opaque;
    g_autoptr(GError) err = NULL;

    switch (what) {
    case MACHINE_REQUEST_RESET:
        monitor_guest_reset(&vm->monitor);
        break;
    case MACHINE_REQUEST_EXIT:
        vm->exit_status = status;
        monitor_request_shutdown(&vm->monitor, SHUTDOWN_CAUSE_GUEST_SHUTDOWN);
        break;
    case MACHINE_REQUEST_INTERNAL_ERROR:
        if (!machine_stop(m, RUN_STATE_INTERNAL_ERROR, &err)) {
            report_error(NULL, err);
        }
        break;
    }
}

static void copy_texts(const GPtrArray *from, GPtrArray *to)
{
    for (unsigned i = 0; i < from->len; i++) {
        g_ptr_array_add(to, g_strdup(((const ConfigText *)g_ptr_array_index(from, i))->text));
    }
}

/* What a machine type may want to know of the command line. */
static void set_guest(Vm *vm, Machine *m, const ConfigAccel *accel)
{
    const VmConfig *config = vm->config;

    m->accel = accel ? g_strdup(accel->name) : NULL;
    for (char **p = accel ? accel->properties : NULL; p && *p; p++) {
        const char *value = strchr(*p, '=');
        char *key = g_strndup(*p, strcspn(*p, "="));

        g_hash_table_insert(m->accel_properties, key, g_strdup(value ? value + 1 : "on"));
    }
    m->cpu_model = g_strdup(config->cpu_model);
    m->kernel = g_strdup(config->kernel);
    m->initrd = g_strdup(config->initrd);
    m->append = g_strdup(config->append);
    for (unsigned i = 0; i < config->serials->len; i++) {
        const ConfigText *serial = g_ptr_array_index(config->serials, i);

        g_ptr_array_add(m->serials, chardev_find(serial->text));
    }
    copy_texts(config->devices, m->devices);
    copy_texts(config->drives, m->drives);
    m->guest_request = guest_request;
    m->guest_request_opaque = vm;
}

static bool create_machine(Vm *vm)
{
    const VmConfig *config = vm->config;
    const MachineType *type = find_type(config->machine ? config->machine : machine_none_type.name);
    const ConfigAccel *accel;
    GHashTableIter i;
    gpointer name, value;

    if (!type || !check_cpus(config, type) || !check_kernel(config, type) ||
        !check_devices(config, type) || !vm_choose_accel(config, &accel)) {
        return false;
    }
    Machine *m = vm->machine = machine_new(type, vm_expects_incoming(config));
    m->name = config->name && config->name[0] ? g_strdup(config->name) : NULL;
    m->uuid_set = config->has_uuid;
    memcpy(m->uuid, config->uuid, sizeof(m->uuid));
    m->cpus = config->cpus;
    set_guest(vm, m, accel);
    g_hash_table_iter_init(&i, config->machine_properties);
    while (g_hash_table_iter_next(&i, &name, &value)) {
        if (!set_property(m, name, value)) {
            return false;
        }
    }
    return true;
}

static bool init_machine(Vm *vm)
{
    g_autoptr(GError) err = NULL;

    if (!machine_init(vm->machine, &err)) {
        report_error(NULL, err);
        return false;
    }
    return true;
}

/* ---- migration ---- */

static bool apply_global(Vm *vm, const ConfigGlobal *global)
{
    g_autoptr(GError) err = NULL;

    if (strcmp(global->driver, "migration") != 0) {
        g_warning("global %s.%s has invalid class name", global->driver, global->property);
        return true;
    }
    if (!migration_set_global(migration_options(vm->migration), global->property, global->value, &err)) {
        report_error(NULL, err);
        return false;
    }
    return true;
}

static bool create_migration(Vm *vm)
{
    g_autoptr(GError) err = NULL;

    vm->migration = migration_context_new(&vm_migration_host, vm);
    if (vm_expects_incoming(vm->config)) {
        migration_incoming_expect(vm->migration);
    }
    for (unsigned i = 0; i < vm->config->globals->len; i++) {
        if (!apply_global(vm, g_ptr_array_index(vm->config->globals, i))) {
            return false;
        }
    }
    if (!migration_check_globals(migration_options(vm->migration), &err)) {
        report_error(NULL, err);
        return false;
    }
    return true;
}

/* ---- monitors ---- */

static bool add_fds(Vm *vm)
{
    for (unsigned i = 0; i < vm->config->fds->len; i++) {
        const ConfigFd *f = g_ptr_array_index(vm->config->fds, i);
        g_autoptr(GError) err = NULL;

        if (fcntl(f->fd, F_GETFD) < 0) {
            report("%s: fd is not valid or already in use", f->location);
            return false;
        }
        fcntl(f->fd, F_SETFD, FD_CLOEXEC);
        if (!monitor_add_fd(&vm->monitor, f->fd, f->set, f->opaque, &err)) {
            report_error(f->location, err);
            return false;
        }
    }
    return true;
}

static bool create_monitors(Vm *vm)
{
    vm->monitor.machine = vm->machine;
    vm->monitor.migration = vm->migration;
    vm->monitor.backends = &vm->backends;
    vm->monitor.autostart = !vm->config->stopped;
    vm->monitor.no_reboot = vm->config->no_reboot;
    monitor_context_init(&vm->monitor);
    vm->monitor_ready = true;
    return add_fds(vm) && vm_add_monitors(vm);
}

/* ---- life ---- */

static void signal_arrived(int signum, pid_t sender, void *opaque)
{
    Vm *vm = opaque;
    g_autofree char *from = process_describe_sender(sender);

    report("terminating on signal %d%s", signum, from);
    monitor_request_shutdown(&vm->monitor, SHUTDOWN_CAUSE_HOST_SIGNAL);
}

static bool catch_signals(Vm *vm)
{
    g_autoptr(GError) err = NULL;

    if (!process_catch_signals(signal_arrived, vm, &err)) {
        report_error(NULL, err);
        return false;
    }
    return true;
}

static bool start_guest(Vm *vm)
{
    g_autoptr(GError) err = NULL;

    if (vm_expects_incoming(vm->config)) {
        return vm_start_incoming(vm);
    }
    if (vm->config->stopped) {
        return true;
    }
    if (!machine_start(vm->machine, &err)) {
        report_error(NULL, err);
        return false;
    }
    return true;
}

bool vm_start(Vm *vm)
{
    static bool (*const steps[])(Vm *) = {
        vm_open_chardevs, create_machine, vm_create_objects, vm_create_memory, init_machine,
        create_migration, catch_signals,  create_monitors,   vm_start_qtest,   start_guest,
    };

    vm->chardevs = g_ptr_array_new_with_free_func((GDestroyNotify)chardev_free);
    vm->monitor.main_loop = g_main_loop_new(NULL, false);
    for (size_t i = 0; i < G_N_ELEMENTS(steps); i++) {
        if (!steps[i](vm)) {
            return false;
        }
    }
    return true;
}

void vm_run(Vm *vm)
{
    /* A signal may have come while the guest was being started. */
    if (!vm->monitor.shutting_down && vm->exit_status == 0) {
        g_main_loop_run(vm->monitor.main_loop);
    }
}

void vm_clear(Vm *vm)
{
    if (vm->migration) {
        migration_context_free(vm->migration);
    }
    vm->monitor.migration = NULL;
    if (vm->monitor_ready) {
        monitor_context_cleanup(&vm->monitor);
    }
    process_restore_signals();
    qtest_server_free(vm->qtest);
    if (vm->qtest_log) {
        fclose(vm->qtest_log);
    }
    machine_free(vm->machine);
    memory_backend_set_clear(&vm->backends);
    for (unsigned i = 0; vm->chardevs && i < vm->chardevs->len; i++) {
        chardev_flush(g_ptr_array_index(vm->chardevs, i), FLUSH_MS);
    }
    g_clear_pointer(&vm->chardevs, g_ptr_array_unref);
    g_clear_pointer(&vm->monitor.main_loop, g_main_loop_unref);
    pid_file_free(vm->pid_file);
    vm_config_free(vm->config);
}
