/* SPDX-License-Identifier: BSD-2-Clause */
/* -accel: names that scripts give, and whether they can be had. */

/*
 * kvm runs machine pico.  The other machines run no instructions of a guest, so that tcg and qtest have
 * nothing to do and kvm is only looked for.  Scripts name them all the same, and what is not there must be
 * said as early as a peer says it.
 */
#include "vm.h"

#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef struct Accel {
    const char *name;
    bool (*probe)(void); /* prints why not */
    const char *const *properties;
} Accel;

static bool probe_nothing(void)
{
    return true;
}

static bool probe_kvm(void)
{
    int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

    if (fd < 0) {
        const char *why = g_strerror(errno);

        report("Could not access KVM kernel module: %s", why);
        report("failed to initialize kvm: %s", why);
        return false;
    }
    close(fd);
    return true;
}

static const Accel accels[] = {
    {"kvm", probe_kvm,
     (const char *const[]){"dirty-ring-size", "kernel-irqchip", "manual-dirty-log", "kvm-shadow-mem",
                           "notify-vmexit", "notify-window", "device", NULL}},
    {"qtest", probe_nothing, (const char *const[]){NULL}},
    {"tcg", probe_nothing, (const char *const[]){"one-insn-per-tb", "split-wx", "tb-size", "thread", NULL}},
};

static const Accel *find_accel(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(accels); i++) {
        if (strcmp(accels[i].name, name) == 0) {
            return &accels[i];
        }
    }
    return NULL;
}

/* Names and properties are checked even where an earlier accelerator works. */
static bool check(const ConfigAccel *wanted)
{
    const Accel *accel = find_accel(wanted->name);
    const char *place = wanted->location ? wanted->location : "", *sep = wanted->location ? ": " : "";

    if (!accel) {
        report("%s%sinvalid accelerator %s", place, sep, wanted->name);
        return false;
    }
    for (char **p = wanted->properties; *p; p++) {
        g_autofree char *key = g_strndup(*p, strcspn(*p, "="));

        if (!g_strv_contains(accel->properties, key)) {
            report("%s%sProperty '%s-accel.%s' not found", place, sep, wanted->name, key);
            return false;
        }
    }
    return true;
}

bool vm_choose_accel(const VmConfig *config, const ConfigAccel **chosen)
{
    bool from_machine = false, from_accel = false, failed = false;

    *chosen = NULL;

    for (unsigned i = 0; i < config->accels->len; i++) {
        const ConfigAccel *wanted = g_ptr_array_index(config->accels, i);

        from_machine |= !wanted->location;
        from_accel |= wanted->location != NULL;
        if (wanted->name[0] && !check(wanted)) {
            return false;
        }
    }
    if (from_machine && from_accel) {
        report("The -accel and \"-machine accel=\" options are incompatible");
        return false;
    }
    for (unsigned i = 0; i < config->accels->len; i++) {
        const ConfigAccel *wanted = g_ptr_array_index(config->accels, i);

        if (wanted->name[0] && find_accel(wanted->name)->probe()) {
            if (failed) {
                report("falling back to %s", wanted->name);
            }
            *chosen = wanted;
            return true;
        }
        failed |= wanted->name[0] != '\0';
    }
    if (config->accels->len > 0 && !failed) {
        report("no accelerator found");
    }
    return config->accels->len == 0;
}
