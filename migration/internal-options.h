/* SPDX-License-Identifier: BSD-2-Clause */
/* MigrationOptions: the plain struct that a migration copies when it starts. */
#ifndef GODWIT_MIGRATION_INTERNAL_OPTIONS_H
#define GODWIT_MIGRATION_INTERNAL_OPTIONS_H

#include "migration/options.h"

/* Properties that exist only as -global migration.NAME; each is named as in QEMU, x-compat aside. */
typedef struct MigrationProperties {
    bool store_global_state;                    /* on */
    bool send_configuration;                    /* on */
    bool send_section_footer;                   /* on */
    bool send_switchover_start;                 /* on; off for peers older than 10.0 */
    bool multifd_flush_after_each_section;      /* off; on for peers older than 8.1 */
    bool multifd_no_zero_pages;                 /* off; x-compat below 9.0: the peer skips them unseen */
    bool multifd_clean_tls_termination;         /* on */
    bool x_preempt_pre_7_2;                     /* off */
    bool switchover_ack_legacy;                 /* off; on for 8.1 .. 11.0 */
    uint8_t x_clear_bitmap_shift;               /* 18; 6..31 */
    bool only_migratable;
} MigrationProperties;

typedef struct MigrationOptions {
    MigrationParameters p;          /* every member present */
    bool caps[MIGRATION_CAPABILITY__MAX];
    MigrationProperties props;
} MigrationOptions;

/* A deep copy of the store's present values; free with migration_options_free(). */
MigrationOptions *migration_options_snapshot(MigrationOptionStore *store);
void migration_options_free(MigrationOptions *o);

MigrationOptionStore *migration_option_store_new(void);
void migration_option_store_free(MigrationOptionStore *store);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MigrationOptionStore, migration_option_store_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(MigrationOptions, migration_options_free)

/* For tests: accept options that have no effect yet, so that their ranges and cross checks can be tried. */
void migration_option_store_allow_unsupported(MigrationOptionStore *store);

/* Set by migration.c before anything else: the VM has what capability dirty-limit needs. */
void migration_option_store_set_dirty_limiter(MigrationOptionStore *store, bool there);

/* Set by migration.c while an outgoing (incoming) migration exists: some options must not change then. */
void migration_option_store_set_busy(MigrationOptionStore *store, bool outgoing, bool incoming);

/*
 * The incoming migration that exists comes over RDMA: what does not go with that is refused, in the same
 * words as when the address came last.  Until set_busy() says that there is none any more.  @shared is the
 * name of a RAM block that x-ignore-shared would leave out, NULL: there is none.
 */
void migration_option_store_set_rdma(MigrationOptionStore *store, const char *shared);

/* What RDMA does not go with; @shared as above.  A pure function. */
bool migration_check_rdma(const bool *caps, const MigrationParameters *p, const char *shared, GError **errp);

#endif
