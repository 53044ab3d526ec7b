/* SPDX-License-Identifier: BSD-2-Clause */
/* The destination's half of the section stream: a parser that knows every element or stops. */
#ifndef GODWIT_MIGRATION_LOADVM_H
#define GODWIT_MIGRATION_LOADVM_H

#include "migration/downtime.h"
#include "migration/globalstate.h"
#include "migration/host.h"
#include "migration/internal-options.h"
#include "migration/ram-load.h"
#include "migration/stream.h"

/*
 * Loads one stream.  Belongs to the load thread; channel_shutdown() on the channel ends it from any other.  A
 * stream that is refused may have changed guest RAM and device state; it never changes the run state.
 */
typedef struct LoadVM LoadVM;

/* @options must outlive the result; the channel gets a reference. */
LoadVM *loadvm_new(const MigrationHost *host, const MigrationOptions *options, Channel *channel);
void loadvm_free(LoadVM *l);    /* NULL is fine; leaves the channel open */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(LoadVM, loadvm_free)

/* For sources of pages other than the main stream; before loadvm_run(). */
RamLoad *loadvm_ram(LoadVM *l);

/* Blocks until the first byte is there, or the end of the stream. */
void loadvm_wait(LoadVM *l);

/*
 * The whole stream, description included.  Errors begin with "load of migration failed: REASON: ", where
 * REASON is the text of the errno that fits best.
 */
bool loadvm_run(LoadVM *l, GError **errp);

/*
 * Begins with SWITCHOVER_START or the END section of RAM, whichever comes first; DOWNTIME_RECEIVE ends with
 * that section.  The load thread's.
 */
Downtime *loadvm_downtime(LoadVM *l);

/* After loadvm_run(): what the stream said about the guest's run state. */
const GlobalState *loadvm_global_state(const LoadVM *l);

/*
 * The last message on the return path, if the source has opened it: @ok or not.  False if it could not be
 * sent: the source then takes the migration for failed, and its guest goes on.
 */
bool loadvm_shut_return_path(LoadVM *l, bool ok, GError **errp);

#endif
