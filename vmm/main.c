/* SPDX-License-Identifier: BSD-2-Clause */
/* The godwit program: words, the process's own affairs, then the Vm. */
#include "vm.h"

#include "accel/workload.h"
#include "hw/pico.h"
#include "report.h"
#include "system/machine-none.h"
#include "util/error.h"
#include "util/fault.h"
#include "util/trace.h"

#include <errno.h>
#include <signal.h>

static bool read_config_files(VmConfig *config, GError **errp)
{
    for (unsigned i = 0; i < config->read_configs->len; i++) {
        const ConfigText *file = g_ptr_array_index(config->read_configs, i);
        g_autofree char *text = NULL;
        g_autoptr(GError) why = NULL;

        if (!g_file_get_contents(file->text, &text, NULL, &why)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "%s: Could not open '%s': %s", file->location,
                        file->text, g_strerror(errno));
            return false;
        }
        if (!cmdline_parse_file_text(config, file->text, text, errp)) {
            return false;
        }
    }
    return true;
}

static bool read_words(VmConfig *config, int argc, char **argv)
{
    g_autoptr(GError) err = NULL;

    if (!cmdline_parse(config, argc, argv, &err) || !read_config_files(config, &err) ||
        !cmdline_finish(config, &err)) {
        report_error(NULL, err);
        return false;
    }
    return true;
}

/* ---- traces and faults ---- */

static bool enable_traces(const VmConfig *config)
{
    g_autoptr(GPtrArray) warnings = g_ptr_array_new_with_free_func(g_free);

    for (unsigned i = 0; i < config->trace_patterns->len; i++) {
        const ConfigText *pattern = g_ptr_array_index(config->trace_patterns, i);
        g_autoptr(GError) err = NULL;

        if (!trace_enable_pattern(pattern->text, &err)) {
            report_set_location(pattern->location);
            g_warning("%s", err->message);
            report_set_location(NULL);
        }
    }
    for (unsigned i = 0; i < config->trace_files->len; i++) {
        g_autoptr(GError) err = NULL;

        if (!trace_enable_file(g_ptr_array_index(config->trace_files, i), warnings, &err)) {
            report_file(err->message);
            return false;
        }
    }
    for (unsigned i = 0; i < warnings->len; i++) {
        report_file(g_ptr_array_index(warnings, i));
    }
    return true;
}

static bool set_faults(const VmConfig *config, GError **errp)
{
    GString *spec = g_string_new(NULL);

    for (unsigned i = 0; i < config->faults->len; i++) {
        const ConfigText *fault = g_ptr_array_index(config->faults, i);
        g_string_append_printf(spec, "%s%s", i ? "," : "", fault->text);
    }
    bool ok = spec->len == 0 || fault_configure(spec->str, errp);
    g_string_free(spec, true);
    return ok;
}

static bool set_up_debugging(const VmConfig *config)
{
    g_autoptr(GError) err = NULL;

    trace_set_timestamps(config->message_timestamps);
    if ((config->log_file && !trace_set_log_file(config->log_file, &err)) || !fault_check_environment(&err) ||
        !set_faults(config, &err)) {
        report_error(NULL, err);
        return false;
    }
    return enable_traces(config);
}

/* ---- the process ---- */

static bool set_up_process(Vm *vm, GError **errp)
{
    const VmConfig *config = vm->config;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);       /* a file that may not grow is an error of its writer */
    if (config->process_name) {
        process_set_name(config->process_name);
    }
    if (config->daemonize && !process_daemonize(errp)) {
        return false;
    }
    if (config->pid_file) {
        vm->pid_file = pid_file_new(config->pid_file, errp);
        if (!vm->pid_file) {
            return false;
        }
    }
    return (!config->exit_with_parent || process_exit_with_parent(errp)) &&
           (!config->lock_memory || process_lock_memory(errp));
}

static bool start(Vm *vm)
{
    g_autoptr(GError) err = NULL;

    if (!set_up_process(vm, &err)) {
        report_error(NULL, err);
        return false;
    }
    if (!set_up_debugging(vm->config) || !vm_start(vm)) {
        return false;
    }
    if (!process_ready(vm->config->log_file ? trace_log_fd() : -1, &err)) {
        report_error(NULL, err);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    Vm vm = {.config = vm_config_new()};
    int status = 1;

    report_init(argv[0]);
    machine_type_register(&machine_none_type);
    machine_type_register(&workload_machine_type);
    machine_type_register(&pico_machine_type);
    if (read_words(vm.config, argc, argv)) {
        report_set_prefix(vm.config->message_timestamps, vm.config->message_name ? vm.config->name : NULL);
        if (vm.config->action != CONFIG_RUN) {
            status = vm_help(vm.config);
        } else if (start(&vm)) {
            vm_run(&vm);
            status = vm.exit_status;
        }
    }
    vm_clear(&vm);
    return status;
}
