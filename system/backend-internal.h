/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the parts of the memory backends: what to allocate, and doing it. */
#ifndef GODWIT_SYSTEM_BACKEND_INTERNAL_H
#define GODWIT_SYSTEM_BACKEND_INTERNAL_H

#include "system/backend.h"

/*
 * Opens what backs the memory: block->fd, fd_offset, page_size, shared and readonly are set.  fd stays -1 for
 * none.
 */
bool backend_open(MemoryBackend *backend, GError **errp);

/* Removes the file again if backend_open() made it: for when what comes after fails. */
void backend_undo_open(MemoryBackend *backend);

/* Maps, advises, binds and preallocates: block->host and used_length are set.  What failed is undone. */
bool backend_map(MemoryBackend *backend, GError **errp);

/* Unmaps and closes; also what is only half there. */
void backend_release(MemoryBackend *backend);

/* Touches all pages of the block with so many threads. */
bool backend_prealloc(const RAMBlock *block, unsigned threads, GError **errp);

static inline const MemoryBackendFileProperties *backend_file_properties(const MemoryBackend *backend)
{
    return backend->options->qom_type == OBJECT_TYPE_MEMORY_BACKEND_FILE
               ? backend->options->u.memory_backend_file
               : NULL;
}

static inline const MemoryBackendMemfdProperties *backend_memfd_properties(const MemoryBackend *backend)
{
    return backend->options->qom_type == OBJECT_TYPE_MEMORY_BACKEND_MEMFD
               ? backend->options->u.memory_backend_memfd
               : NULL;
}

#endif
