/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination's RAM section: block list, page records, XBZRLE, straight into guest memory. */
#ifndef GODWIT_MIGRATION_RAM_LOAD_H
#define GODWIT_MIGRATION_RAM_LOAD_H

#include "migration/internal-options.h"
#include "migration/ram-sink.h"

typedef struct RamLoad RamLoad;

RamLoad *ram_load_new(RamList *ram, const MigrationOptions *options);
void ram_load_free(RamLoad *l);
void ram_load_set_source(RamLoad *l, RamSource *source);    /* takes ownership */

/* Reads one payload of the ram section, its EOS word included.  @type: START, PART, END or FULL. */
bool ram_load_section(RamLoad *l, StreamReader *r, uint8_t type, GError **errp);

/* The whole stream has been read. */
bool ram_load_complete(RamLoad *l, GError **errp);

RamList *ram_load_list(RamLoad *l);
const MigrationOptions *ram_load_options(RamLoad *l);

#endif
