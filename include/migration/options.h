/* SPDX-License-Identifier: BSD-2-Clause */
/* Parameters, capabilities and properties of migration: one table, walked by QMP, HMP and -global. */
#ifndef GODWIT_MIGRATION_OPTIONS_H
#define GODWIT_MIGRATION_OPTIONS_H

#include "qapi/qapi-types-migration.h"
#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct MigrationOptionStore MigrationOptionStore;

/* migrate-set-parameters: all or nothing.  Range texts as in QEMU 11.1.  Main thread. */
bool migration_set_parameters(MigrationOptionStore *store, const MigrationParameters *params,
                              GError **errp);

/* Every parameter filled in.  The caller's (qapi_free_MigrationParameters).  Any thread. */
MigrationParameters *migration_get_parameters(MigrationOptionStore *store);

/* migrate-set-capabilities: all or nothing, checked as a resulting set.  Main thread. */
bool migration_set_capabilities(MigrationOptionStore *store,
                                const MigrationCapabilityStatusList *caps, GError **errp);
bool migration_capability(MigrationOptionStore *store, MigrationCapability cap);

/* HMP: @value in the human syntax of that parameter ("32M", "on", ...). */
bool migration_set_parameter_string(MigrationOptionStore *store, const char *name,
                                    const char *value, GError **errp);

/* Is the option known but without effect in this version?  Shown as "(not supported yet)" by info. */
bool migration_parameter_unsupported(const char *name);
bool migration_capability_unsupported(MigrationCapability cap);

/*
 * -global migration.NAME=VALUE: parameters, capabilities and the properties that exist only here
 * (send-switchover-start, x-compat, ...).  Errors carry the texts of qmp.md 6.5 without the program's prefix.
 */
bool migration_set_global(MigrationOptionStore *store, const char *name, const char *value,
                          GError **errp);

/* After all globals: the cross-checks that depend on several. */
bool migration_check_globals(MigrationOptionStore *store, GError **errp);

/* For `info migrate -a`: the properties as a NULL-terminated list of "NAME: VALUE"; g_strfreev() frees it. */
char **migration_list_properties(MigrationOptionStore *store);

#endif
