/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory backends: -object memory-backend-ram, -memfd and -file. */
#ifndef GODWIT_SYSTEM_BACKEND_H
#define GODWIT_SYSTEM_BACKEND_H

#include "qapi/qapi-types-qom.h"
#include "system/machine.h"
#include "system/ramblock.h"

/* As many threads touch memory, whatever number is asked for. */
#define MEMORY_BACKEND_MAX_PREALLOC_THREADS 256

/* Highest NUMA node of the host that can be named, plus one. */
#define MEMORY_BACKEND_MAX_NODES 128

typedef struct MemoryBackend {
    char *id;
    ObjectOptions *options;     /* as given, defaults filled in */
    RAMBlock block;             /* named by the id (or /objects/ID); its memory and fd are the backend's */
    bool created_file;          /* private: mem-path was not there before */
    bool in_use;                /* mapped as guest RAM: cannot be deleted */
    struct MemoryBackend *next;
} MemoryBackend;

/* In the order in which they were made.  Main thread. */
typedef struct MemoryBackendSet {
    MemoryBackend *first;
} MemoryBackendSet;

/*
 * The text of -object as a list, "memory-backend-ram,id=m0,size=1G" (for JSON see monitor/object-text.h).
 * Errors are GODWIT_ERROR_INVALID in the peers' words; a second line of a message is a hint.  Nothing is
 * made.  A switch without a value ("share" for share=on) is warned of with g_warning().
 */
ObjectOptions *memory_backend_parse(const char *text, GError **errp);

/* Types or properties for -object help and -object TYPE,help, one a line; NULL: there is no such type. */
char *memory_backend_help(const char *type);

/*
 * object-add and -object.  Allocates the memory (and with prealloc has all of it touched, which may take
 * long).  A child of fork() does not inherit the memory: become a daemon first.  @options is copied.
 * No error has the code GODWIT_ERROR_INVALID: that is for texts.
 */
MemoryBackend *memory_backend_add(MemoryBackendSet *set, const ObjectOptions *options, GError **errp);

/* The two in one, as for -object: a second backend of the same id is an error of the text, too. */
MemoryBackend *memory_backend_add_text(MemoryBackendSet *set, const char *text, GError **errp);

/* Unmaps the memory.  Refused while it is in use, and for an unknown id. */
bool memory_backend_del(MemoryBackendSet *set, const char *id, GError **errp);
MemoryBackend *memory_backend_find(const MemoryBackendSet *set, const char *id);

/* Deletes all, in use or not: after machine_free(). */
void memory_backend_set_clear(MemoryBackendSet *set);

/* What all types have in common; every has_ is true. */
const MemoryBackendProperties *memory_backend_properties(const MemoryBackend *backend);

/* Makes the backend's memory guest RAM, at the first guest address behind what is there. */
bool machine_add_memory(Machine *m, MemoryBackend *backend, GError **errp);

/* Where the machine's memory comes from: -m, -machine memory-backend=, -mem-path, -mem-prealloc, .... */
typedef struct MachineMemory {
    bool has_size;
    uint64_t size;              /* bytes; rounded up to a multiple of 8 KiB here */
    const char *backend;        /* id of one in the set, or NULL: one called "ram" is made */
    const char *path;           /* of the one that is made: a file or a directory, or NULL */
    bool prealloc;              /* likewise */
    bool no_dump, no_merge;     /* likewise: -machine dump-guest-core=off and mem-merge=off */
} MachineMemory;

/*
 * Gives the machine its memory: none if nobody asked for any and the type has no default.  Before
 * machine_init().  Errors in the peers' words.
 */
bool machine_create_memory(Machine *m, MemoryBackendSet *set, const MachineMemory *memory, GError **errp);

#endif
