/* SPDX-License-Identifier: BSD-2-Clause */
/* Options that ask for something to be printed. */
#include "vm.h"

#include "config.h"
#include "report.h"
#include "system/machine-none.h"
#include "util/fault.h"
#include "util/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static unsigned terminal_columns(void)
{
    struct winsize size;

    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col
                                                                                                : 80;
}

/* The words "QEMU emulator version" are what scripts look for. */
static int print_version(const VmConfig *config)
{
    printf("Godwit %s, in the place of QEMU emulator version %s\n", GODWIT_VERSION, QEMU_VERSION);
    printf("Migration protocol, command line and monitors of QEMU; none of its code.\n");
    return 0;
}

static int print_options(const VmConfig *config)
{
    g_autofree char *text = cmdline_help(g_get_prgname(), terminal_columns());

    print_version(config);
    printf("\n%s", text);
    return 0;
}

static int print_man(const VmConfig *config)
{
    g_autofree char *text = cmdline_help_man();

    fputs(text, stdout);
    return 0;
}

static int print_machines(const VmConfig *config)
{
    g_autoptr(GPtrArray) types = machine_type_list();

    printf("Supported machines are:\n");
    for (unsigned i = 0; i < types->len; i++) {
        const MachineType *type = g_ptr_array_index(types, i);
        bool is_default = type == &machine_none_type;

        printf("%-20s %s%s\n", type->name, type->desc, is_default ? " (default)" : "");
    }
    return 0;
}

static int print_machine(const VmConfig *config)
{
    const char *name = config->help_text ? config->help_text : machine_none_type.name;
    const MachineType *type = machine_type_find(name);

    if (!type) {
        report("unsupported machine type: \"%s\"\nUse -machine help to list supported machines", name);
        return 1;
    }
    printf("%s-machine options:\n", type->name);
    for (const char *const *p = type->properties; p && *p; p++) {
        printf("  %s\n", *p);
    }
    printf("  accel=<string>\n  aux-ram-share=<bool>\n  dump-guest-core=<bool>\n  mem-merge=<bool>\n"
           "  memory-backend=<string>\n  suppress-vmdesc=<bool>\n  usb=<bool>\n");
    return 0;
}

static int print_accels(const VmConfig *config)
{
    printf("Accelerators supported in QEMU binary:\ntcg\nkvm\nqtest\n");
    return 0;
}

static int print_cpus(const VmConfig *config)
{
    printf("Available CPUs:\n  workload              synthetic CPUs of -machine workload\n");
    return 0;
}

static int print_objects(const VmConfig *config)
{
    g_autofree char *text = memory_backend_help(config->help_text);

    if (!text) {
        report("-object %s,help: Parameter 'qom-type' does not accept value '%s'", config->help_text,
               config->help_text);
        return 1;
    }
    fputs(text, stdout);
    return 0;
}

static int print_chardevs(const VmConfig *config)
{
    printf("Available chardev backend types:\n");
    for (const char *const *name = chardev_type_names(); *name; name++) {
        printf("  %s\n", *name);
    }
    return 0;
}

static int print_trace_events(const VmConfig *config)
{
    for (TraceEvent *event = trace_event_next(NULL); event; event = trace_event_next(event)) {
        printf("%s\n", event->name);
    }
    return 0;
}

static int print_log_items(const VmConfig *config)
{
    g_autofree char *text = cmdline_log_items();

    fputs(text, stdout);
    return 1;
}

static int print_faults(const VmConfig *config)
{
    const char *const *names = fault_points();

    if (!names[0]) {
        printf("This build has no fault points.\n");
    }
    for (; *names; names++) {
        printf("%s\n", *names);
    }
    return 0;
}

static int print_nothing(const VmConfig *config)
{
    return 0;
}

static int print_host(const VmConfig *config)
{
    vm_check_host();
    return 0;
}

int vm_help(const VmConfig *config)
{
    static int (*const printers[])(const VmConfig *config) = {
        [CONFIG_HELP] = print_options,
        [CONFIG_HELP_MAN] = print_man,
        [CONFIG_HELP_MACHINES] = print_machines,
        [CONFIG_HELP_MACHINE] = print_machine,
        [CONFIG_HELP_ACCELS] = print_accels,
        [CONFIG_HELP_CPUS] = print_cpus,
        [CONFIG_HELP_OBJECTS] = print_objects,
        [CONFIG_HELP_OBJECT] = print_objects,
        [CONFIG_HELP_CHARDEVS] = print_chardevs,
        [CONFIG_HELP_TRACE] = print_trace_events,
        [CONFIG_HELP_LOG_ITEMS] = print_log_items,
        [CONFIG_HELP_FAULTS] = print_faults,
        [CONFIG_HELP_DATA_DIRS] = print_nothing,
        [CONFIG_VERSION] = print_version,
        [CONFIG_CHECK] = print_host,
    };

    return printers[config->action](config);
}
