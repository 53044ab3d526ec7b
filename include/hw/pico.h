/* SPDX-License-Identifier: BSD-2-Clause */
/* Machine type pico: KVM vCPUs, memory, serial ports, and no firmware. */
#ifndef GODWIT_HW_PICO_PUBLIC_H
#define GODWIT_HW_PICO_PUBLIC_H

#include "system/machine.h"

/* To be registered by the program.  docs/kvm.md says what the guest finds. */
extern const MachineType pico_machine_type;

#endif
