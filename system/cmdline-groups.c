/* SPDX-License-Identifier: BSD-2-Clause */
/* Option groups: the names of options that are lists, in configuration files and for management software. */

/*
 * -sandbox is not among them although it exists: whoever finds it in query-command-line-options switches it
 * on.
 */
#include "cmdline-internal.h"

#include "system/chardev.h"

#include <string.h>

static const char *const *machine_keys(void)
{
    static const char *const keys[] = {
        "type", "accel", "aux-ram-share", "dump-guest-core", "graphics", "mem-merge", "memory-backend",
        "usb",  NULL,
    };

    return keys;
}

/* Objects, devices and accelerators have keys by type: the peers list none. */
static const char *const *no_keys(void)
{
    static const char *const keys[] = {NULL};

    return keys;
}

static const CmdlineGroup groups[] = {
    {"accel", "accel", no_keys},
    {"action", "action", NULL},
    {"add-fd", "add-fd", NULL},
    {"boot-opts", "boot", NULL},
    {"chardev", "chardev", chardev_option_names},
    {"device", "device", no_keys},
    {"drive", "drive", no_keys},
    {"global", "global", NULL},
    {"machine", "machine", machine_keys},
    {"memory", "m", NULL},
    {"mon", "mon", NULL},
    {"msg", "msg", NULL},
    {"name", "name", NULL},
    {"object", "object", no_keys},
    {"overcommit", "overcommit", NULL},
    {"rtc", "rtc", NULL},
    {"run-with", "run-with", NULL},
    {"smp-opts", "smp", NULL},
    {"trace", "trace", NULL},
};

const CmdlineGroup *cmdline_find_group(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(groups); i++) {
        if (strcmp(groups[i].name, name) == 0) {
            return &groups[i];
        }
    }
    return NULL;
}

void cmdline_foreach_group(CmdlineGroupFunc func, void *opaque)
{
    for (size_t i = 0; i < G_N_ELEMENTS(groups); i++) {
        const CmdlineGroup *g = &groups[i];

        func(g->name, g->keys ? g->keys() : cmdline_find(g->option)->keys, opaque);
    }
}

/* Keys that are not strings.  In group chardev "fd" may be a name, in add-fd it may not. */
static const struct {
    const char *type;
    const char *const *keys;
} key_types[] = {
    {"boolean", (const char *const[]){"abstract",
                                      "append",
                                      "async-teardown",
                                      "aux-ram-share",
                                      "cpu-pm",
                                      "debug-threads",
                                      "dump-guest-core",
                                      "exit-with-parent",
                                      "graphics",
                                      "guest-name",
                                      "ipv4",
                                      "ipv6",
                                      "keep-alive",
                                      "logappend",
                                      "mem-lock",
                                      "mem-merge",
                                      "menu",
                                      "mux",
                                      "nodelay",
                                      "pretty",
                                      "server",
                                      "signal",
                                      "strict",
                                      "telnet",
                                      "tight",
                                      "timestamp",
                                      "tn3270",
                                      "usb",
                                      "wait",
                                      "websocket",
                                      NULL}},
    {"number", (const char *const[]){"books", "clusters", "cores", "cpus", "dies", "drawers", "maxcpus",
                                     "modules", "reboot-timeout", "reconnect", "reconnect-ms", "set", "slots",
                                     "sockets", "splash-time", "threads", "to", NULL}},
    {"size", (const char *const[]){"maxmem", "size", NULL}},
};

const char *cmdline_key_type(const char *group, const char *key)
{
    if (strcmp(group, "add-fd") == 0 && strcmp(key, "fd") == 0) {
        return "number";
    }
    for (size_t i = 0; i < G_N_ELEMENTS(key_types); i++) {
        if (g_strv_contains(key_types[i].keys, key)) {
            return key_types[i].type;
        }
    }
    return "string";
}
