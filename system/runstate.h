/* SPDX-License-Identifier: BSD-2-Clause */
/* The run state's private side: what machine.c needs of runstate.c. */
#ifndef GODWIT_SYSTEM_RUNSTATE_H
#define GODWIT_SYSTEM_RUNSTATE_H

#include "system/machine-clock.h"
#include "system/machine.h"

struct RunStateControl *run_state_control_new(RunState initial);
void run_state_control_free(struct RunStateControl *run);
MachineClock *run_state_control_clock(struct RunStateControl *run);

/* Does the table allow the step?  Never true for a step from a state to itself. */
bool run_state_step_allowed(RunState from, RunState to);

#endif
