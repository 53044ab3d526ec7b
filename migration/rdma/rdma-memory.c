/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: memory regions of guest RAM. */
#include "migration/rdma/rdma-connection.h"

#include <errno.h>
#include <sys/resource.h>

#include "trace-migration.h"
#include "util/error.h"
#include "util/fault.h"

/* ", locked memory is limited to N KiB", if that can be the reason. */
static char *limit_text(int errnum)
{
    struct rlimit limit;

    if ((errnum != ENOMEM && errnum != EAGAIN && errnum != EPERM) || getrlimit(RLIMIT_MEMLOCK, &limit) < 0 ||
        limit.rlim_cur == RLIM_INFINITY) {
        return g_strdup("");
    }
    return g_strdup_printf("; locked memory is limited to %llu KiB (RLIMIT_MEMLOCK)",
                           (unsigned long long)limit.rlim_cur / 1024);
}

/* Memory that cannot be pinned, as of a file on persistent memory: the device may do without. */
static bool may_be_unpinnable(int errnum)
{
    return errnum == EOPNOTSUPP || errnum == EFAULT || errnum == EINVAL;
}

static struct ibv_mr *register_on_demand(RdmaConnection *c, uint8_t *host, uint64_t length, int access)
{
    struct ibv_mr *region = ibv_reg_mr(c->pd, host, length, access | IBV_ACCESS_ON_DEMAND);

    if (region) {
        /* A page fault at the responder costs a retry: have the pages there.  Only advice. */
        struct ibv_sge sge = { (uintptr_t)host, (uint32_t)MIN(length, UINT32_MAX), region->lkey };
        ibv_advise_mr(c->pd,
                      access & IBV_ACCESS_REMOTE_WRITE ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
                                                       : IBV_ADVISE_MR_ADVICE_PREFETCH,
                      IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
    }
    return region;
}

struct ibv_mr *rdma_connection_register(RdmaConnection *c, const RAMBlock *block, uint64_t offset,
                                        uint64_t length, int access, GError **errp)
{
    if (fault_point("rdma-register", errp)) {
        return NULL;
    }
    if (length > c->limits.max_region) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "RDMA ERROR: cannot register %" PRIu64 " KiB of RAM block '%s' at offset 0x%" PRIx64
                    ": " RDMA_NO_LARGER_REGION,
                    length / 1024, block->idstr, offset, c->limits.max_region);
        return NULL;
    }
    int64_t start = g_get_monotonic_time();
    struct ibv_mr *region = ibv_reg_mr(c->pd, block->host + offset, length, access);
    int errnum = errno;
    if (!region && c->limits.on_demand && may_be_unpinnable(errnum)) {
        region = register_on_demand(c, block->host + offset, length, access);
    }
    if (!region) {
        g_autofree char *limit = limit_text(errnum);
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO,
                    "RDMA ERROR: cannot register %" PRIu64 " KiB of RAM block '%s' at offset 0x%" PRIx64
                    ": %s%s",
                    length / 1024, block->idstr, offset, g_strerror(errnum), limit);
        return NULL;
    }
    trace_rdma_register(block->idstr, offset, length, g_get_monotonic_time() - start);
    g_mutex_lock(&c->regions_lock);
    g_ptr_array_add(c->regions, region);
    g_mutex_unlock(&c->regions_lock);
    return region;
}

void rdma_connection_deregister(RdmaConnection *c, struct ibv_mr *region)
{
    g_mutex_lock(&c->regions_lock);
    g_ptr_array_remove_fast(c->regions, region);
    g_mutex_unlock(&c->regions_lock);
    ibv_dereg_mr(region);
}

bool rdma_connection_probe(RdmaConnection *c, const RAMBlock *block, int access, GError **errp)
{
    struct ibv_mr *region = rdma_connection_register(c, block, 0, TARGET_PAGE_SIZE, access, errp);

    if (region) {
        rdma_connection_deregister(c, region);
    }
    return region != NULL;
}
