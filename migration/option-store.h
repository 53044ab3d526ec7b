/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of the option store: what options.c, option-rules.c and option-text.c share. */
#ifndef GODWIT_MIGRATION_OPTION_STORE_H
#define GODWIT_MIGRATION_OPTION_STORE_H

#include "migration/internal-options.h"
#include "qapi/option.h"
#include "qapi/qapi-options.h"

struct MigrationOptionStore {
    GMutex lock;                    /* guards everything below; held for no longer than a copy takes */
    MigrationOptions o;
    bool outgoing, incoming;        /* a migration exists */
    bool rdma;                      /* the incoming one is by RDMA */
    char *rdma_shared;              /* see migration_option_store_set_rdma() */
    bool allow_unsupported;
    bool can_limit_dirtying;        /* what capability dirty-limit needs is there */
    /* Which of the two spellings of the RDMA chunk size were given by -global. */
    bool chunk_size_given, chunk_shift_given;
};

/* Value of a number, bool or enum option in @p. */
uint64_t migration_option_number(const QapiOption *opt, const MigrationParameters *p);
void migration_option_set_number(const QapiOption *opt, MigrationParameters *p, uint64_t value);

/*
 * ---- option-rules.c: pure functions of a whole set of options, so that the order in which they were set
 * does not matter ----
 */

/* Every parameter within its range, and supported unless @allow_unsupported. */
bool migration_check_parameters(const MigrationParameters *p, bool allow_unsupported, GError **errp);

/* No capability without what it needs, or together with what it does not go with. */
bool migration_check_capabilities(const bool *caps, const MigrationParameters *p, bool allow_unsupported,
                                  bool can_limit_dirtying, GError **errp);

/*
 * x-rdma-chunk-size and x-rdma-chunk-shift are one setting.  Makes the one that was not given follow the
 * other; fails if both were and differ.  Both are in range.
 */
bool migration_unify_chunk_size(MigrationParameters *p, bool size_given, bool shift_given, GError **errp);

#endif
