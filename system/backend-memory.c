/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory backends: the kernel's side.  Files and memfds, mapping, advice, NUMA policy. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "system/backend-internal.h"
#include "util/error.h"
#include "util/fault.h"

/* Guest memory of this size and more begins at a multiple of it, so that transparent huge pages fit. */
#define HUGE_PAGE_SIZE (UINT64_C(2) << 20)

/* Bytes of the block: what was asked for, rounded up to the host's page size.  0: too much. */
static uint64_t block_size(const MemoryBackend *backend)
{
    uint64_t mask = sysconf(_SC_PAGESIZE) - 1;

    return (memory_backend_properties(backend)->size + mask) & ~mask;
}

/* ---- opening ---- */

/* The page size of what @fd is: that of its hugetlbfs, or the host's. */
static size_t fd_page_size(int fd)
{
    struct statfs fs;

    if (fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC) {
        return fs.f_bsize;
    }
    return sysconf(_SC_PAGESIZE);
}

static unsigned memfd_huge_flags(uint64_t page_size)
{
    return MFD_HUGETLB | (page_size ? (unsigned)__builtin_ctzll(page_size) << MFD_HUGE_SHIFT : 0);
}

static int open_memfd(const char *name, uint64_t size, unsigned flags, bool seal, GError **errp)
{
    g_autofree char *label = g_strdup_printf("godwit-%.200s", name);
    int fd = memfd_create(label, MFD_CLOEXEC | flags | (seal ? MFD_ALLOW_SEALING : 0));

    if (fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "failed to create memfd with flags 0x%x",
                        MFD_CLOEXEC | flags | (seal ? MFD_ALLOW_SEALING : 0));
        return -1;
    }
    int err = ftruncate(fd, size) < 0 ? errno : 0;
    if (err) {
        error_set_errno(errp, GODWIT_ERROR_IO, err, "failed to resize memfd to %" PRIu64, size);
    } else if (seal && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
        err = errno;
        error_set_errno(errp, GODWIT_ERROR_IO, err, "failed to seal memfd");
    }
    if (err) {
        close(fd);
        return -1;
    }
    return fd;
}

static int backing_store_error(const char *path, int err, GError **errp)
{
    error_set_errno(errp, GODWIT_ERROR_IO, err, "can't open backing store %s for guest RAM", path);
    return -1;
}

/* A file in directory @path that has no name. */
static int open_in_directory(const char *path, GError **errp)
{
    int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0) {
        return fd;
    }
    /* Not every file system has O_TMPFILE, hugetlbfs of old kernels for one. */
    g_autofree char *name = g_build_filename(path, "godwit-mem-XXXXXX", NULL);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) {
        return backing_store_error(path, errno, errp);
    }
    unlink(name);
    return fd;
}

/* *@created: the caller removes the file if it cannot use it. */
static int open_path(const char *path, bool readonly, bool *created, GError **errp)
{
    int flags = (readonly ? O_RDONLY : O_RDWR) | O_CLOEXEC;
    struct stat st;

    *created = false;
    for (int tries = 0; tries < 10; tries++) {
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            return readonly ? backing_store_error(path, EISDIR, errp) : open_in_directory(path, errp);
        }
        int fd = open(path, flags);
        if (fd >= 0) {
            return fd;
        }
        if (errno != ENOENT || readonly) {
            return backing_store_error(path, errno, errp);
        }
        fd = open(path, flags | O_CREAT | O_EXCL, 0644);
        if (fd >= 0) {
            *created = true;
            return fd;
        }
        if (errno != EEXIST) {
            return backing_store_error(path, errno, errp);
        }
        /* Somebody else made it in between. */
    }
    return backing_store_error(path, EEXIST, errp);
}

/* A regular file must be long enough; an empty one is made so. */
static bool fit_file(const MemoryBackend *backend, int fd, GError **errp)
{
    const MemoryBackendFileProperties *file = backend_file_properties(backend);
    uint64_t need = file->offset + file->size;
    struct stat st;

    if (fstat(fd, &st) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "cannot find out the size of backing store %s",
                        file->mem_path);
        return false;
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size >= need) {
        return true;
    }
    if (st.st_size || file->readonly) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED,
                    "%s backing store size 0x%" PRIx64 " is too small for 'size' option 0x%" PRIx64
                    " plus 'offset' option 0x%" PRIx64,
                    backend->id, (uint64_t)st.st_size, file->size, file->offset);
        return false;
    }
    if (ftruncate(fd, need) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "cannot extend backing store %s to %" PRIu64 " bytes",
                        file->mem_path, need);
        return false;
    }
    return true;
}

static bool open_file(MemoryBackend *backend, GError **errp)
{
    const MemoryBackendFileProperties *file = backend_file_properties(backend);

    backend->block.fd = open_path(file->mem_path, file->readonly, &backend->created_file, errp);
    if (backend->block.fd < 0 || !fit_file(backend, backend->block.fd, errp)) {
        return false;
    }
    backend->block.fd_offset = file->offset;
    backend->block.readonly =
        file->rom == ON_OFF_AUTO_ON || (file->rom == ON_OFF_AUTO_AUTO && file->readonly);
    return true;
}

void backend_undo_open(MemoryBackend *backend)
{
    if (backend->created_file) {
        unlink(backend_file_properties(backend)->mem_path);
    }
}

bool backend_open(MemoryBackend *backend, GError **errp)
{
    const MemoryBackendProperties *p = memory_backend_properties(backend);
    const MemoryBackendMemfdProperties *memfd = backend_memfd_properties(backend);
    RAMBlock *block = &backend->block;
    bool ok = true;

    block->shared = p->share;
    if (backend_file_properties(backend)) {
        ok = open_file(backend, errp);
    } else if (memfd) {
        unsigned flags = memfd->hugetlb ? memfd_huge_flags(memfd->hugetlbsize) : 0;
        block->fd = open_memfd(backend->id, block_size(backend), flags, memfd->seal, errp);
        ok = block->fd >= 0;
    } else if (p->share) {
        /* A descriptor costs nothing and lets others map it; without one it is still shared with children. */
        block->fd = open_memfd(backend->id, block_size(backend), 0, false, NULL);
    }
    block->page_size = fd_page_size(block->fd);
    if (ok && block_size(backend) % block->page_size) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED,
                    "backend '%s' memory size must be multiple of %zu MiB",
                    ObjectType_str(backend->options->qom_type), block->page_size >> 20);
        return false;
    }
    return ok;
}

/* ---- mapping ---- */

static uint64_t mapping_alignment(const MemoryBackend *backend)
{
    const MemoryBackendFileProperties *file = backend_file_properties(backend);
    uint64_t align = backend->block.page_size;

    if (block_size(backend) >= HUGE_PAGE_SIZE) {
        align = MAX(align, HUGE_PAGE_SIZE);
    }
    return file ? MAX(align, file->align) : align;
}

/* Address space for @size bytes at a multiple of @align, or NULL with errno set. */
static uint8_t *reserve_address(uint64_t size, uint64_t align)
{
    if (!size || size > SIZE_MAX - align) {
        errno = ENOMEM;
        return NULL;
    }
    uint8_t *area = mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) {
        return NULL;
    }
    uint8_t *start = (uint8_t *)(((uintptr_t)area + align - 1) / align * align);
    size_t before = start - area;
    if (before) {
        munmap(area, before);
    }
    munmap(start + size, align - before);
    return start;
}

static bool map_memory(MemoryBackend *backend, GError **errp)
{
    const MemoryBackendProperties *p = memory_backend_properties(backend);
    const MemoryBackendFileProperties *file = backend_file_properties(backend);
    RAMBlock *block = &backend->block;
    /* A private mapping of a read-only file can be written, which is what a migration into it needs. */
    int prot = PROT_READ | (file && file->readonly && p->share ? 0 : PROT_WRITE);
    int flags = (p->share ? MAP_SHARED : MAP_PRIVATE) | (block->fd < 0 ? MAP_ANONYMOUS : 0) |
                (p->reserve ? 0 : MAP_NORESERVE) | MAP_FIXED;

    if (fault_point("memory-backend-map", errp)) {
        return false;
    }
    uint64_t size = block_size(backend);
    uint8_t *start = reserve_address(size, mapping_alignment(backend));
    if (start && mmap(start, size, prot, flags, block->fd, block->fd_offset) == MAP_FAILED) {
        int err = errno;
        munmap(start, size);
        start = NULL;
        errno = err;
    }
    if (!start) {
        if (backend->options->qom_type == OBJECT_TYPE_MEMORY_BACKEND_RAM) {
            error_set_errno(errp, GODWIT_ERROR_IO, errno, "cannot set up guest memory '%s'", backend->id);
        } else {
            error_set_errno(errp, GODWIT_ERROR_IO, errno, "unable to map backing store for guest RAM");
        }
        return false;
    }
    block->host = start;
    block->used_length = size;
    return true;
}

/* Only advice: a kernel that does not know it is as good, but slower or more wasteful. */
static void advise_memory(const MemoryBackend *backend)
{
    const MemoryBackendProperties *p = memory_backend_properties(backend);
    const RAMBlock *block = &backend->block;
    size_t size = block->used_length;

    if (p->merge) {
        madvise(block->host, size, MADV_MERGEABLE);
    }
    if (!p->dump) {
        madvise(block->host, size, MADV_DONTDUMP);
    }
    /* Children (exec: transports) neither need it nor should copy its page tables. */
    madvise(block->host, size, MADV_DONTFORK);
    if (block->fd < 0 && !p->share && size >= HUGE_PAGE_SIZE) {
        madvise(block->host, size, MADV_HUGEPAGE);
    }
}

static bool bind_memory(const MemoryBackend *backend, GError **errp)
{
    static const int modes[] = {
        [HOST_MEM_POLICY_DEFAULT] = MPOL_DEFAULT,
        [HOST_MEM_POLICY_PREFERRED] = MPOL_PREFERRED,
        [HOST_MEM_POLICY_BIND] = MPOL_BIND,
        [HOST_MEM_POLICY_INTERLEAVE] = MPOL_INTERLEAVE,
    };
    const MemoryBackendProperties *p = memory_backend_properties(backend);
    unsigned long nodes[MEMORY_BACKEND_MAX_NODES / (8 * sizeof(unsigned long))] = { 0 };

    if (p->policy == HOST_MEM_POLICY_DEFAULT) {
        return true;
    }
    for (size_t i = 0; i < p->host_nodes->count; i++) {
        unsigned node = p->host_nodes->items[i];
        nodes[node / (8 * sizeof(nodes[0]))] |= 1UL << node % (8 * sizeof(nodes[0]));
    }
    /* The kernel takes one bit less than it is told of. */
    if (syscall(SYS_mbind, backend->block.host, backend->block.used_length, modes[p->policy], nodes,
                MEMORY_BACKEND_MAX_NODES + 1, MPOL_MF_STRICT | MPOL_MF_MOVE) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "cannot bind memory to host NUMA nodes");
        return false;
    }
    return true;
}

bool backend_map(MemoryBackend *backend, GError **errp)
{
    const MemoryBackendProperties *p = memory_backend_properties(backend);

    if (!map_memory(backend, errp)) {
        return false;
    }
    advise_memory(backend);
    if (!bind_memory(backend, errp)) {
        return false;
    }
    if (p->prealloc && !backend_prealloc(&backend->block, p->prealloc_threads, errp)) {
        g_prefix_error(errp, "cannot preallocate guest memory '%s': ", backend->id);
        return false;
    }
    return true;
}

void backend_release(MemoryBackend *backend)
{
    const MemoryBackendFileProperties *file = backend->options ? backend_file_properties(backend) : NULL;
    RAMBlock *block = &backend->block;

    if (block->host) {
        if (file && file->discard_data) {
            madvise(block->host, block->used_length, MADV_REMOVE);
        }
        munmap(block->host, block->used_length);
        block->host = NULL;
    }
    if (block->fd >= 0) {
        close(block->fd);
        block->fd = -1;
    }
}
