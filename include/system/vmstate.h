/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables that describe device state: what a section of the stream holds, field by field. */
#ifndef GODWIT_SYSTEM_VMSTATE_H
#define GODWIT_SYSTEM_VMSTATE_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a field of the owner's struct travels.  Integers are big-endian on the wire. */
typedef enum {
    VMSTATE_UINT8,
    VMSTATE_UINT16,
    VMSTATE_UINT32,
    VMSTATE_UINT64,
    VMSTATE_INT32,
    VMSTATE_INT64,
    VMSTATE_BOOL,
    VMSTATE_BUFFER,         /* @size raw bytes */
    VMSTATE_UNUSED,         /* @size zero bytes; skipped on load */
    VMSTATE_STRUCT,         /* an embedded struct described by @vmsd */
} VMStateFieldType;

typedef struct VMStateDescription VMStateDescription;

typedef struct VMStateField {
    const char *name;               /* NULL ends the table */
    VMStateFieldType type;
    size_t offset;                  /* in the owner's struct */
    size_t size;                    /* bytes of one element, for BUFFER, UNUSED and STRUCT */
    unsigned array_len;             /* 0 or 1: a single value; else this many, adjacent; at most 65536 */
    int version;                    /* present from this version of the section on; 0: always */
    const VMStateDescription *vmsd; /* of a STRUCT */
} VMStateField;

struct VMStateDescription {
    const char *name;
    int version;
    int minimum_version;
    const VMStateField *fields;
    const VMStateDescription *const *subsections;   /* NULL-terminated, or NULL */
    bool (*needed)(void *opaque);                   /* of a subsection; NULL: always */
    /* Migration thread, vCPUs stopped (not with early_setup); may be NULL. */
    bool (*pre_save)(void *opaque, GError **errp);
    bool (*pre_load)(void *opaque, GError **errp);  /* load thread; may be NULL */
    bool (*post_load)(void *opaque, int version, GError **errp);
    /*
     * Load thread: a load has failed, whether or not this section had come.  The guest does not run here and
     * may go on at the source as soon as this returns: what was taken over from there is let go of.  May be
     * NULL; not called for subsections.
     */
    void (*load_failed)(void *opaque);
};

#define VMSTATE_END { .name = NULL }
#define VMSTATE_FIELD(_name, _type, _struct) \
    { .name = #_name, .type = (_type), .offset = offsetof(_struct, _name), \
      .size = sizeof(((_struct *)0)->_name) }
#define VMSTATE_ARRAY(_name, _type, _struct, _len) \
    { .name = #_name, .type = (_type), .offset = offsetof(_struct, _name), \
      .size = sizeof(((_struct *)0)->_name[0]), .array_len = (_len) }

/*
 * One section of the stream.  The machine and its devices register theirs; order
 * of registration is order in the stream.  @idstr and @instance_id find it on the destination.
 */
typedef struct SaveEntry {
    const char *idstr;
    uint32_t instance_id;
    const VMStateDescription *vmsd;
    void *opaque;
    bool early_setup;           /* travels in the set-up part, while the guest runs: what must fit at all */
    struct SaveEntry *next;
} SaveEntry;

/* Changed by the main thread while no migration runs. */
typedef struct SaveEntryList {
    SaveEntry *first;
} SaveEntryList;

/* @entry stays the caller's. */
void save_entry_list_add(SaveEntryList *list, SaveEntry *entry);
void save_entry_list_remove(SaveEntryList *list, SaveEntry *entry);

#endif
