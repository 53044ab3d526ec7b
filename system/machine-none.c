/* SPDX-License-Identifier: BSD-2-Clause */
/* Machine type none: memory and nothing else; in the stream it is what QEMU's -M none is. */
#include "system/machine-none.h"

static bool machine_none_init(Machine *m, GError **errp)
{
    machine_add_timer_section(m);
    return true;
}

static const char *const machine_none_properties[] = { NULL };

const MachineType machine_none_type = {
    .name = "none",
    .desc = "empty machine",
    .max_cpus = 1,
    .default_ram_size = 0,
    .properties = machine_none_properties,
    .init = machine_none_init,
};
