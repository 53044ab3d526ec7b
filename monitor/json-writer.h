/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON text as QMP prints it. */
#ifndef GODWIT_MONITOR_JSON_WRITER_H
#define GODWIT_MONITOR_JSON_WRITER_H

#include <glib.h>
#include <jansson.h>
#include <stdbool.h>

/*
 * Appends @value to @out as ASCII: separators ", " and ": ", or with @pretty one member a line and
 * four spaces per level.  Doubles have 17 significant digits.  Everything outside printable ASCII is written
 * \uXXXX; a byte that is not UTF-8 becomes \uFFFD.  Members keep the order in which they were added.
 */
void json_writer_append(GString *out, const json_t *value, bool pretty);

#endif
