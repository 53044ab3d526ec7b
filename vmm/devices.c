/* SPDX-License-Identifier: BSD-2-Clause */
/* Character devices of the command line, and the monitors and the test server on them. */
#include "vm.h"

#include "report.h"
#include "util/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define QTEST_LABEL "qtest"

/* A user who asked for a pty has to be told which one it became. */
static void announce_pty(Chardev *chr)
{
    g_autofree char *name = chardev_filename(chr);

    if (g_str_has_prefix(name, "pty:")) {
        printf("char device redirected to %s (label %s)\n", name + strlen("pty:"), chardev_label(chr));
        fflush(stdout);
    }
}

static void keep(Vm *vm, Chardev *chr)
{
    g_ptr_array_add(vm->chardevs, chr);
    announce_pty(chr);
}

/*
 * Opens @spec.  @complaint, with @spec behind it, is printed too when the words make no sense: the peers say
 * so in two lines.
 */
static Chardev *open_spec(Vm *vm, const char *label, const char *spec, const char *location,
                          const char *complaint)
{
    g_autoptr(GError) err = NULL;

    report_set_location(location);
    Chardev *chr = chardev_new(label, spec, &err);
    report_set_location(NULL);
    if (chr) {
        keep(vm, chr);
        return chr;
    }
    report_error(location, err);
    if (g_error_matches(err, GODWIT_ERROR, GODWIT_ERROR_INVALID)) {
        report("%s%s%s", location ? location : "", location ? ": " : "", complaint);
    }
    return NULL;
}

static bool open_chardev_options(Vm *vm)
{
    for (unsigned i = 0; i < vm->config->chardevs->len; i++) {
        const ConfigText *text = g_ptr_array_index(vm->config->chardevs, i);
        g_autoptr(GError) err = NULL;

        report_set_location(text->location);
        Chardev *chr = chardev_new_from_options(text->text, &err);
        report_set_location(NULL);
        if (!chr) {
            report_error(text->location, err);
            return false;
        }
        keep(vm, chr);
    }
    return true;
}

/* -serial chardev:ID */
static bool find_serial(const ConfigText *text, const char *id, const char *complaint)
{
    if (!chardev_find(id)) {
        report("%s: %s", text->location, complaint);
        return false;
    }
    return true;
}

/* Afterwards the text of each is its character device's label. */
static bool open_serials(Vm *vm)
{
    static const char by_id[] = "chardev:";

    for (unsigned i = 0; i < vm->config->serials->len; i++) {
        ConfigText *text = g_ptr_array_index(vm->config->serials, i);
        const char *id = g_str_has_prefix(text->text, by_id) ? text->text + strlen(by_id) : NULL;
        g_autofree char *label = id ? g_strdup(id) : g_strdup_printf("serial%u", i);
        g_autofree char *complaint =
            g_strdup_printf("could not connect serial device to character backend '%s'", text->text);

        if (id ? !find_serial(text, id, complaint)
               : !open_spec(vm, label, text->text, text->location, complaint)) {
            return false;
        }
        g_free(text->text);
        text->text = g_steal_pointer(&label);
    }
    return true;
}

/* -nographic on a machine without a serial port: the monitor has standard input and output for itself. */
static void add_default_monitor(VmConfig *config)
{
    if (config->nographic && config->monitors->len == 0 && !config->no_monitor && !config->no_defaults) {
        ConfigMonitor *m = g_new0(ConfigMonitor, 1);

        m->device = g_strdup("stdio,signal=off");
        g_ptr_array_add(config->monitors, m);
    }
}

/* Labels compat_monitor0, ...: of each device that was not made by -chardev, in order. */
static bool open_monitor_devices(Vm *vm)
{
    unsigned n = 0;

    for (unsigned i = 0; i < vm->config->monitors->len; i++) {
        ConfigMonitor *m = g_ptr_array_index(vm->config->monitors, i);
        g_autofree char *label = g_strdup_printf("compat_monitor%u", n);
        g_autofree char *complaint = g_strdup_printf("parse error: %s", m->device);

        if (m->by_id) {
            continue;
        }
        n++;
        if (!open_spec(vm, label, m->device, m->location, complaint)) {
            return false;
        }
        g_free(m->device);
        m->device = g_steal_pointer(&label);
        m->by_id = true;
    }
    return true;
}

static bool open_qtest_device(Vm *vm)
{
    const char *spec = vm->config->qtest;
    g_autofree char *complaint = g_strdup_printf("Failed to initialize device for qtest: \"%s\"", spec);

    return !spec || open_spec(vm, QTEST_LABEL, spec, NULL, complaint);
}

bool vm_open_chardevs(Vm *vm)
{
    if (vm->config->daemonize) {
        chardev_forbid_stdio();
    }
    add_default_monitor(vm->config);
    return open_chardev_options(vm) && open_serials(vm) && open_monitor_devices(vm) && open_qtest_device(vm);
}

bool vm_add_monitors(Vm *vm)
{
    for (unsigned i = 0; i < vm->config->monitors->len; i++) {
        const ConfigMonitor *m = g_ptr_array_index(vm->config->monitors, i);
        const char *place = m->location ? m->location : "", *sep = m->location ? ": " : "";
        Chardev *chr = chardev_find(m->device);
        g_autoptr(GError) err = NULL;

        if (!chr) {
            report("%s%schardev \"%s\" not found", place, sep, m->device);
            return false;
        }
        if (chardev_has_front_end(chr)) {
            report("%s%schardev '%s' is already in use", place, sep, m->device);
            return false;
        }
        if (!monitor_add(&vm->monitor, chr, m->control ? MONITOR_MODE_CONTROL : MONITOR_MODE_READLINE,
                         m->pretty, &err)) {
            report_error(m->location, err);
            return false;
        }
    }
    return true;
}

bool vm_start_qtest(Vm *vm)
{
    Chardev *chr = chardev_find(QTEST_LABEL);
    const char *log = vm->config->qtest_log;

    if (!vm->config->qtest) {
        return true;
    }
    vm->qtest = qtest_server_new(vm->machine, chr);
    if (log && strcmp(log, "none") != 0) {
        vm->qtest_log = fopen(log, "we");
        if (!vm->qtest_log) {
            report("-qtest-log %s: Could not open '%s': %s", log, log, g_strerror(errno));
            return false;
        }
        qtest_server_set_log(vm->qtest, vm->qtest_log);
    }
    return true;
}
