/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory backends: -object memory-backend-ram, -memfd and -file. */
#ifndef GODWIT_SYSTEM_BACKEND_H
#define GODWIT_SYSTEM_BACKEND_H

#include "qapi/qapi-types-qom.h"
#include "system/ramblock.h"

typedef struct MemoryBackend {
    char *id;
    ObjectOptions *options;     /* as given, defaults filled in */
    RAMBlock block;             /* idstr is the id; added to the machine's list when used */
    bool in_use;                /* mapped as guest RAM: cannot be deleted */
    struct MemoryBackend *next;
} MemoryBackend;

typedef struct MemoryBackendSet {
    MemoryBackend *first;
} MemoryBackendSet;

/* object-add and -object.  Allocates (and with prealloc touches) the memory.  @options is copied. */
MemoryBackend *memory_backend_add(MemoryBackendSet *set, const ObjectOptions *options, GError **errp);
/* -object as text: "memory-backend-ram,id=m0,size=1G" or a JSON object. */
MemoryBackend *memory_backend_add_text(MemoryBackendSet *set, const char *text, GError **errp);
bool memory_backend_del(MemoryBackendSet *set, const char *id, GError **errp);
MemoryBackend *memory_backend_find(const MemoryBackendSet *set, const char *id);
void memory_backend_set_clear(MemoryBackendSet *set);

#endif
