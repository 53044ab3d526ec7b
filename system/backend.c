/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory backends: the set of them, the checks of their properties, and their way into a machine. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "system/backend-internal.h"
#include "system/keyval.h"
#include "trace-system.h"
#include "util/error.h"

/* -m is rounded up to this. */
#define RAM_SIZE_ALIGN 8192

#define IMPLICIT_ID "ram"

/* What all types have comes first in each, in the same order: one pointer type does for them. */
#define SAME_PLACE(member)                                                                            \
    G_STATIC_ASSERT(                                                                                  \
        offsetof(MemoryBackendProperties, member) == offsetof(MemoryBackendFileProperties, member) && \
        offsetof(MemoryBackendProperties, member) == offsetof(MemoryBackendMemfdProperties, member))
SAME_PLACE(dump);
SAME_PLACE(host_nodes);
SAME_PLACE(merge);
SAME_PLACE(policy);
SAME_PLACE(prealloc);
SAME_PLACE(prealloc_threads);
SAME_PLACE(prealloc_context);
SAME_PLACE(share);
SAME_PLACE(reserve);
SAME_PLACE(size);
SAME_PLACE(x_use_canonical_path_for_ramblock_id);

static MemoryBackendProperties *common_properties(ObjectOptions *options)
{
    return (MemoryBackendProperties *)(void *)options->u.memory_backend_ram;
}

const MemoryBackendProperties *memory_backend_properties(const MemoryBackend *backend)
{
    return common_properties(backend->options);
}

/* ---- properties ---- */

#define DEFAULT(object, member, value)     \
    do {                                   \
        if (!(object)->has_##member) {     \
            (object)->has_##member = true; \
            (object)->member = (value);    \
        }                                  \
    } while (0)

static void fill_defaults(ObjectOptions *options)
{
    MemoryBackendProperties *p = common_properties(options);

    DEFAULT(p, dump, true);
    DEFAULT(p, merge, true);
    DEFAULT(p, policy, HOST_MEM_POLICY_DEFAULT);
    DEFAULT(p, prealloc, false);
    DEFAULT(p, prealloc_threads, 1);
    DEFAULT(p, share, options->qom_type == OBJECT_TYPE_MEMORY_BACKEND_MEMFD);
    DEFAULT(p, reserve, true);
    DEFAULT(p, x_use_canonical_path_for_ramblock_id, false);
    if (options->qom_type == OBJECT_TYPE_MEMORY_BACKEND_FILE) {
        MemoryBackendFileProperties *file = options->u.memory_backend_file;
        DEFAULT(file, align, 0);
        DEFAULT(file, offset, 0);
        DEFAULT(file, discard_data, false);
        DEFAULT(file, pmem, false);
        DEFAULT(file, readonly, false);
        DEFAULT(file, rom, ON_OFF_AUTO_AUTO);
    } else if (options->qom_type == OBJECT_TYPE_MEMORY_BACKEND_MEMFD) {
        MemoryBackendMemfdProperties *memfd = options->u.memory_backend_memfd;
        DEFAULT(memfd, hugetlb, false);
        DEFAULT(memfd, hugetlbsize, 0);
        DEFAULT(memfd, seal, true);
    }
}

static bool refuse(GError **errp, GodwitError code, const char *fmt, ...) G_GNUC_PRINTF(3, 4);

static bool refuse(GError **errp, GodwitError code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    g_set_error(errp, GODWIT_ERROR, code, "%s", text);
    return false;
}

static bool refuse_zero(const ObjectOptions *options, const char *property, GError **errp)
{
    return refuse(errp, GODWIT_ERROR_FAILED, "property '%s' of %s doesn't take value '0'", property,
                  ObjectType_str(options->qom_type));
}

static bool check_size(const ObjectOptions *options, const MemoryBackendProperties *p, GError **errp)
{
    unsigned page_size = sysconf(_SC_PAGESIZE);

    if (!p->size) {
        return refuse_zero(options, "size", errp);
    }
    if (options->qom_type == OBJECT_TYPE_MEMORY_BACKEND_FILE && p->size % page_size) {
        return refuse(errp, GODWIT_ERROR_FAILED, "backend '%s' memory size must be multiple of %u KiB",
                      ObjectType_str(options->qom_type), page_size / 1024);
    }
    return true;
}

static bool check_prealloc(const ObjectOptions *options, const MemoryBackendProperties *p, GError **errp)
{
    if (p->has_prealloc_threads && !p->prealloc_threads) {
        return refuse_zero(options, "prealloc-threads", errp);
    }
    if (p->prealloc_context) {
        /* There are no objects of type thread-context. */
        return refuse(errp, GODWIT_ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", p->prealloc_context);
    }
    if (p->has_prealloc && p->prealloc && p->has_reserve && !p->reserve) {
        return refuse(errp, GODWIT_ERROR_FAILED, "'prealloc=on' and 'reserve=off' are incompatible");
    }
    return true;
}

static bool check_policy(const MemoryBackendProperties *p, GError **errp)
{
    HostMemPolicy policy = p->has_policy ? p->policy : HOST_MEM_POLICY_DEFAULT;
    size_t n_nodes = p->host_nodes ? p->host_nodes->count : 0;

    for (size_t i = 0; i < n_nodes; i++) {
        if (p->host_nodes->items[i] >= MEMORY_BACKEND_MAX_NODES) {
            return refuse(errp, GODWIT_ERROR_FAILED, "Invalid host-nodes value: %u", p->host_nodes->items[i]);
        }
    }
    if (n_nodes && policy == HOST_MEM_POLICY_DEFAULT) {
        return refuse(
            errp, GODWIT_ERROR_FAILED,
            "host-nodes must be empty for policy default, or you should explicitly specify a policy other "
            "than default");
    }
    if (!n_nodes && policy != HOST_MEM_POLICY_DEFAULT) {
        return refuse(errp, GODWIT_ERROR_FAILED, "host-nodes must be set for policy %s",
                      HostMemPolicy_str(policy));
    }
    return true;
}

static bool check_file(const ObjectOptions *options, GError **errp)
{
    const MemoryBackendFileProperties *file = options->u.memory_backend_file;
    unsigned page_size = sysconf(_SC_PAGESIZE);
    bool readonly = file->has_readonly && file->readonly;

    if (file->has_align && file->align % page_size) {
        return refuse(errp, GODWIT_ERROR_FAILED,
                      "alignment 0x%" PRIx64 " must be multiples of page size 0x%x", file->align, page_size);
    }
    if (file->has_align && file->align & (file->align - 1)) {
        return refuse(errp, GODWIT_ERROR_FAILED, "alignment 0x%" PRIx64 " must be a power of two",
                      file->align);
    }
    if (file->has_offset && file->offset % page_size) {
        return refuse(errp, GODWIT_ERROR_FAILED, "offset 0x%" PRIx64 " must be multiples of page size 0x%x",
                      file->offset, page_size);
    }
    if (file->has_offset && (file->offset > INT64_MAX || file->size > INT64_MAX - file->offset)) {
        return refuse(errp, GODWIT_ERROR_FAILED,
                      "'size' option 0x%" PRIx64 " plus 'offset' option 0x%" PRIx64
                      " is beyond the end of any file",
                      file->size, file->offset);
    }
    if (file->has_pmem && file->pmem) {
        return refuse(errp, GODWIT_ERROR_UNSUPPORTED,
                      "'pmem=on' is not supported: data would not be made persistent");
    }
    if (file->has_rom && file->rom == ON_OFF_AUTO_ON && !readonly) {
        return refuse(errp, GODWIT_ERROR_FAILED,
                      "property 'rom' = 'on' is not supported with 'readonly' = 'off'");
    }
    if (file->has_rom && file->rom == ON_OFF_AUTO_OFF && readonly && file->has_share && file->share) {
        return refuse(errp, GODWIT_ERROR_FAILED,
                      "property 'rom' = 'off' is incompatible with 'readonly' = 'on' and 'share' = 'on'");
    }
    return true;
}

static bool check_memfd(const ObjectOptions *options, GError **errp)
{
    const MemoryBackendMemfdProperties *memfd = options->u.memory_backend_memfd;

    if (memfd->has_hugetlbsize && !memfd->hugetlbsize) {
        return refuse(errp, GODWIT_ERROR_FAILED,
                      "Property 'memory-backend-memfd.hugetlbsize' doesn't take value '0'");
    }
    if (memfd->has_hugetlbsize && memfd->hugetlbsize & (memfd->hugetlbsize - 1)) {
        return refuse(errp, GODWIT_ERROR_FAILED, "Hugepage size must be a power of 2");
    }
    return true;
}

static bool check_options(const ObjectOptions *options, GError **errp)
{
    const MemoryBackendProperties *p = common_properties((ObjectOptions *)options);

    if (!check_size(options, p, errp) || !check_prealloc(options, p, errp) || !check_policy(p, errp)) {
        return false;
    }
    switch (options->qom_type) {
    case OBJECT_TYPE_MEMORY_BACKEND_FILE:
        return check_file(options, errp);
    case OBJECT_TYPE_MEMORY_BACKEND_MEMFD:
        return check_memfd(options, errp);
    default:
        return true;
    }
}

/* ---- the set ---- */

static void memory_backend_free(MemoryBackend *backend)
{
    backend_release(backend);
    qapi_free_ObjectOptions(backend->options);
    g_free(backend->id);
    g_free(backend);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(MemoryBackend, memory_backend_free)

MemoryBackend *memory_backend_find(const MemoryBackendSet *set, const char *id)
{
    for (MemoryBackend *backend = set->first; backend; backend = backend->next) {
        if (strcmp(backend->id, id) == 0) {
            return backend;
        }
    }
    return NULL;
}

static bool name_block(MemoryBackend *backend, GError **errp)
{
    bool canonical = memory_backend_properties(backend)->x_use_canonical_path_for_ramblock_id;
    g_autofree char *name = g_strconcat(canonical ? "/objects/" : "", backend->id, NULL);

    if (strlen(name) > RAMBLOCK_IDSTR_MAX) {
        return refuse(errp, GODWIT_ERROR_FAILED,
                      "the name of a RAM block may have %d characters, '%s' has more", RAMBLOCK_IDSTR_MAX,
                      name);
    }
    g_strlcpy(backend->block.idstr, name, sizeof(backend->block.idstr));
    return true;
}

MemoryBackend *memory_backend_add(MemoryBackendSet *set, const ObjectOptions *options, GError **errp)
{
    if (!keyval_check_id(options->id, NULL)) {
        refuse(errp, GODWIT_ERROR_FAILED, "Parameter 'id' expects an identifier");
        return NULL;
    }
    if (memory_backend_find(set, options->id)) {
        refuse(errp, GODWIT_ERROR_FAILED,
               "attempt to add duplicate property '%s' to object (type 'container')", options->id);
        return NULL;
    }
    if (!check_options(options, errp)) {
        return NULL;
    }

    g_autoptr(MemoryBackend) backend = g_new0(MemoryBackend, 1);
    backend->id = g_strdup(options->id);
    backend->options = qapi_clone_ObjectOptions(options);
    backend->block.fd = -1;
    fill_defaults(backend->options);
    if (!name_block(backend, errp)) {
        return NULL;
    }
    if (!backend_open(backend, errp) || !backend_map(backend, errp)) {
        backend_undo_open(backend);
        return NULL;
    }

    trace_memory_backend_add(backend->id, backend->block.used_length, backend->block.page_size,
                             backend->block.fd, backend->block.shared);
    MemoryBackend **link = &set->first;
    while (*link) {
        link = &(*link)->next;
    }
    *link = backend;
    return g_steal_pointer(&backend);
}

MemoryBackend *memory_backend_add_text(MemoryBackendSet *set, const char *text, GError **errp)
{
    g_autoptr(ObjectOptions) options = memory_backend_parse(text, errp);

    if (!options) {
        return NULL;
    }
    if (memory_backend_find(set, options->id)) {
        refuse(errp, GODWIT_ERROR_INVALID, "Duplicate ID '%s' for object", options->id);
        return NULL;
    }
    return memory_backend_add(set, options, errp);
}

bool memory_backend_del(MemoryBackendSet *set, const char *id, GError **errp)
{
    MemoryBackend *backend = memory_backend_find(set, id);

    if (!backend) {
        return refuse(errp, GODWIT_ERROR_FAILED, "object '%s' not found", id);
    }
    if (backend->in_use) {
        return refuse(errp, GODWIT_ERROR_STATE, "Cannot delete host memory backend '%s' which is mapped", id);
    }
    for (MemoryBackend **link = &set->first; *link; link = &(*link)->next) {
        if (*link == backend) {
            *link = backend->next;
            break;
        }
    }
    trace_memory_backend_del(id);
    memory_backend_free(backend);
    return true;
}

void memory_backend_set_clear(MemoryBackendSet *set)
{
    while (set->first) {
        MemoryBackend *backend = set->first;
        set->first = backend->next;
        memory_backend_free(backend);
    }
}

/* ---- into the machine ---- */

bool machine_add_memory(Machine *m, MemoryBackend *backend, GError **errp)
{
    uint64_t gpa = 0;

    if (backend->in_use) {
        return refuse(errp, GODWIT_ERROR_STATE, "memory backend '%s' is in use already", backend->id);
    }
    RAMLIST_FOREACH(block, &m->ram) {
        gpa = MAX(gpa, block->gpa + block->used_length);
    }
    backend->block.gpa = gpa;
    if (!ram_list_add(&m->ram, &backend->block, errp)) {
        return false;
    }
    backend->in_use = true;
    return true;
}

static MemoryBackend *implicit_backend(MemoryBackendSet *set, const MachineMemory *memory, uint64_t size,
                                       GError **errp)
{
    MemoryBackendProperties common = {
        .size = size, .has_prealloc = true, .prealloc = memory->prealloc,
        .has_dump = true, .dump = !memory->no_dump, .has_merge = true, .merge = !memory->no_merge,
    };
    MemoryBackendFileProperties file = {
        .size = size, .has_prealloc = true, .prealloc = memory->prealloc, .mem_path = (char *)memory->path,
        .has_dump = true, .dump = !memory->no_dump, .has_merge = true, .merge = !memory->no_merge,
    };
    ObjectOptions options = { .id = (char *)IMPLICIT_ID };

    if (memory->path) {
        options.qom_type = OBJECT_TYPE_MEMORY_BACKEND_FILE;
        options.u.memory_backend_file = &file;
    } else {
        options.qom_type = OBJECT_TYPE_MEMORY_BACKEND_RAM;
        options.u.memory_backend_ram = &common;
    }
    return memory_backend_add(set, &options, errp);
}

static MemoryBackend *named_backend(MemoryBackendSet *set, const MachineMemory *memory, uint64_t rounded,
                                    GError **errp)
{
    MemoryBackend *backend = memory_backend_find(set, memory->backend);

    if (memory->path) {
        /* The missing blank is in the text that scripts know. */
        refuse(errp, GODWIT_ERROR_FAILED, "'-mem-path' can't be used together with'-machine memory-backend'");
        return NULL;
    }
    if (!backend) {
        refuse(errp, GODWIT_ERROR_FAILED, "Memory backend '%s' not found", memory->backend);
        return NULL;
    }
    uint64_t size = backend->block.used_length;
    if (memory->has_size && memory->size && size != memory->size && size != rounded) {
        refuse(errp, GODWIT_ERROR_FAILED,
               "Machine memory size does not match the size of the memory backend");
        return NULL;
    }
    return backend;
}

bool machine_create_memory(Machine *m, MemoryBackendSet *set, const MachineMemory *memory, GError **errp)
{
    uint64_t size = memory->has_size && memory->size ? memory->size : m->type->default_ram_size;

    if (size > UINT64_MAX - RAM_SIZE_ALIGN) {
        return refuse(errp, GODWIT_ERROR_FAILED, "cannot set up guest memory '%s': Cannot allocate memory",
                      IMPLICIT_ID);
    }
    size = (size + RAM_SIZE_ALIGN - 1) / RAM_SIZE_ALIGN * RAM_SIZE_ALIGN;

    MemoryBackend *backend;
    if (memory->backend) {
        backend = named_backend(set, memory, size, errp);
    } else if (!size) {
        return true;
    } else {
        backend = implicit_backend(set, memory, size, errp);
    }
    return backend && machine_add_memory(m, backend, errp);
}
