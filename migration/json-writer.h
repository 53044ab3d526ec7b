/* SPDX-License-Identifier: BSD-2-Clause */
/* A JSON text written member by member, with ", " and ": " between: the VM description. */
#ifndef GODWIT_MIGRATION_JSON_WRITER_H
#define GODWIT_MIGRATION_JSON_WRITER_H

#include <glib.h>
#include <stdint.h>

/* Deepest nesting; going deeper is a mistake of the caller. */
#define JSON_WRITER_DEPTH_MAX 64

typedef struct JsonWriter JsonWriter;

JsonWriter *json_writer_new(void);
void json_writer_free(JsonWriter *w);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(JsonWriter, json_writer_free)

/* @name is the member's key inside an object, NULL inside an array and for the outermost value. */
void json_writer_start_object(JsonWriter *w, const char *name);
void json_writer_end_object(JsonWriter *w);
void json_writer_start_array(JsonWriter *w, const char *name);
void json_writer_end_array(JsonWriter *w);
void json_writer_int(JsonWriter *w, const char *name, int64_t value);
void json_writer_str(JsonWriter *w, const char *name, const char *value);

/* The text so far, owned by the writer. */
const char *json_writer_text(const JsonWriter *w);

#endif
