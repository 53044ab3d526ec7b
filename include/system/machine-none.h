/* SPDX-License-Identifier: BSD-2-Clause */
/* Machine type none. */
#ifndef GODWIT_SYSTEM_MACHINE_NONE_H
#define GODWIT_SYSTEM_MACHINE_NONE_H

#include "system/machine.h"

/* No vCPUs, no devices; sections "timer" and what migration adds.  To be registered by the program. */
extern const MachineType machine_none_type;

#endif
