/* SPDX-License-Identifier: BSD-2-Clause */
/* The configuration section: does this stream belong to a machine like ours? */
#ifndef GODWIT_MIGRATION_CONFIGURATION_H
#define GODWIT_MIGRATION_CONFIGURATION_H

#include "migration/internal-options.h"
#include "migration/json-writer.h"
#include "migration/stream.h"

/*
 * After the stream's header, no section id, no footer:
 *
 *   u8    0x07
 *   be32  L, L bytes: machine type name
 *   subsections, each u8 0x05, counted string name, be32 version 1:
 *     "configuration/target-page-bits"   be32 page bits (never sent for 4 KiB pages)
 *     "configuration/capabilities"       be32 count, count counted strings: those of the compared
 *                                        capabilities that are on; absent: none is
 *     "configuration/uuid"               16 bytes, with capability validate-uuid if the VM has a UUID
 */
#define CONFIGURATION_NAME_MAX 256          /* longest machine type name accepted */
#define CONFIGURATION_CAPABILITIES_MAX 256  /* most capability names accepted */

typedef struct Configuration {
    const char *machine;
    const uint8_t *uuid;                    /* 16 bytes, or NULL */
    const MigrationOptions *options;
    void (*log)(void *opaque, const char *message);     /* for warnings */
    void *opaque;
} Configuration;

/* Writes the byte 0x07 and the rest; adds the member "configuration" to @desc. */
bool configuration_save(StreamWriter *w, const Configuration *c, JsonWriter *desc, GError **errp);

/* Reads what follows the byte 0x07 and compares. */
bool configuration_load(StreamReader *r, const Configuration *c, GError **errp);

#endif
