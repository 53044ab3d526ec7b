/* SPDX-License-Identifier: BSD-2-Clause */
/* The codec of device state: walks VMStateDescription tables to save, to load and to describe. */
#ifndef GODWIT_MIGRATION_VMSTATE_H
#define GODWIT_MIGRATION_VMSTATE_H

#include "migration/json-writer.h"
#include "migration/stream.h"
#include "system/vmstate.h"

/*
 * Payload of a section, version V of its table:
 *
 *   fields in table order, big-endian, unaligned, nothing between them
 *   then for each subsection that is needed:
 *     u8  0x05
 *     u8  n, n bytes: full name, "parent/child"
 *     be32 version
 *     fields, nested subsections
 *
 * There is no length anywhere: both ends must agree on the tables.
 */
#define VMSTATE_SUBSECTION 0x05

/* Limits of a table; saving and loading refuse one that goes beyond. */
#define VMSTATE_DEPTH_MAX 8             /* structs in structs, subsections in subsections */
#define VMSTATE_ARRAY_MAX 65536         /* elements of one field */
#define VMSTATE_SIZE_MAX (1u << 20)     /* bytes of one element */

/*
 * Calls pre_save, writes the fields and the needed subsections.  With @desc the members
 * "vmsd_name", "version", "fields" and, if there are any, "subsections" are added to its open object.
 */
bool vmstate_save(StreamWriter *w, const VMStateDescription *vmsd, void *opaque, JsonWriter *desc,
                  GError **errp);

/* Reads a payload of @version into @opaque; pre_load before and post_load after the fields. */
bool vmstate_load(StreamReader *r, const VMStateDescription *vmsd, void *opaque, int version,
                  GError **errp);

/*
 * The start of a subsection whose full name begins with "@parent/": takes it from
 * the stream and returns 1 with @name (256 bytes) and *@version.  0: the next byte begins something else.
 * -1: the stream failed.
 */
int vmstate_next_subsection(StreamReader *r, const char *parent, char *name, uint32_t *version,
                            GError **errp);

#endif
