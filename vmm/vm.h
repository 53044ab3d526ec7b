/* SPDX-License-Identifier: BSD-2-Clause */
/* Vm: everything that one running godwit is made of, and the order in which it comes and goes. */
#ifndef GODWIT_VMM_VM_H
#define GODWIT_VMM_VM_H

#include "monitor/monitor.h"
#include "process.h"
#include "system/cmdline.h"
#include "system/qtest.h"

#include <stdio.h>

/* Main thread, except where host.c says otherwise.  Members are NULL until they exist. */
typedef struct Vm {
    VmConfig *config;
    PidFile *pid_file;
    GPtrArray *chardevs; /* of Chardev *: all that exist, in order of creation */
    MemoryBackendSet backends;
    Machine *machine;
    MigrationContext *migration;
    MonitorContext monitor; /* .main_loop is ours */
    bool monitor_ready;
    QtestServer *qtest;
    FILE *qtest_log;
    int exit_status;
} Vm;

/* Each step prints what goes wrong and returns false.  vm_clear() undoes whatever was done. */
bool vm_start(Vm *vm);
void vm_run(Vm *vm);
void vm_clear(Vm *vm);

/* host.c: what the migration library asks of us; the opaque pointer is the Vm. */
extern const MigrationHostOps vm_migration_host;

/*
 * accel.c: finds an accelerator that works here; prints and returns false if there is none.  *@chosen is the
 * entry of -accel, or NULL where none was asked for.
 */
bool vm_choose_accel(const VmConfig *config, const ConfigAccel **chosen);

/* memory.c: -object, and the guest's RAM.  Print and return false. */
bool vm_create_objects(Vm *vm);
bool vm_create_memory(Vm *vm);

/* devices.c: -chardev, -serial, the devices of monitors, then the monitors and -qtest on them.  Print and
 * return false. */
bool vm_open_chardevs(Vm *vm);
bool vm_add_monitors(Vm *vm);
bool vm_start_qtest(Vm *vm);

/* incoming.c: -incoming. */
bool vm_expects_incoming(const VmConfig *config);
bool vm_start_incoming(Vm *vm);

/* help.c: does what the action says; the exit status. */
int vm_help(const VmConfig *config);
/* check.c: prints what this host can do. */
void vm_check_host(void);

#endif
