/* SPDX-License-Identifier: BSD-2-Clause */
/* The source's half of the section stream: which element follows which. */
#ifndef GODWIT_MIGRATION_SAVEVM_H
#define GODWIT_MIGRATION_SAVEVM_H

#include "migration/host.h"
#include "migration/internal-options.h"
#include "migration/ram.h"
#include "migration/stream-format.h"
#include "migration/stream.h"

/*
 * One stream.  Belongs to the migration thread.  The functions are called in the order
 * in which they are declared; each has flushed when it returns true.
 */
typedef struct SaveVM SaveVM;

/* @options, @ram and @w must outlive the result. */
SaveVM *savevm_new(const MigrationHost *host, const MigrationOptions *options, RamSave *ram, StreamWriter *w);
void savevm_free(SaveVM *s);    /* NULL is fine */

/* Header, configuration and, with @return_path, the commands that open it. */
bool savevm_start(SaveVM *s, bool return_path, GError **errp);

/*
 * With a return path and sections that travel early, savevm_setup() ends with a PING of this value: its PONG
 * says that the destination has taken them.
 */
#define SAVEVM_PING_AFTER_SETUP 2
bool savevm_pings_after_setup(const SaveVM *s);     /* from savevm_start() on */

/* The START sections, and the early ones of devices. */
bool savevm_setup(SaveVM *s, GError **errp);

/* One PART section of RAM, see ram_save_iterate(). */
bool savevm_iterate(SaveVM *s, uint64_t budget, bool *done, GError **errp);

/* vCPUs are stopped: SWITCHOVER_START, END sections. */
bool savevm_complete_ram(SaveVM *s, GError **errp);

/* After that: device state.  The run state was @state before the vCPUs were stopped. */
bool savevm_complete_devices(SaveVM *s, RunState state, GError **errp);

/* EOF and description: from the first of these bytes on the destination may run the guest. */
bool savevm_end(SaveVM *s, GError **errp);

#endif
