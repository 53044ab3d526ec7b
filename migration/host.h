/* SPDX-License-Identifier: BSD-2-Clause */
/* The embedding VMM as the library's own parts see it. */
#ifndef GODWIT_MIGRATION_HOST_H
#define GODWIT_MIGRATION_HOST_H

#include "migration/migration.h"

/* Ops and their opaque, together; copied freely. */
typedef struct MigrationHost {
    const MigrationHostOps *ops;
    void *opaque;
} MigrationHost;

/* One line for the operator. */
void migration_host_log(const MigrationHost *host, const char *fmt, ...) G_GNUC_PRINTF(2, 3);

#endif
