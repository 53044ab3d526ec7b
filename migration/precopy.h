/* SPDX-License-Identifier: BSD-2-Clause */
/* The migration thread and the source's return path thread. */
#ifndef GODWIT_MIGRATION_PRECOPY_H
#define GODWIT_MIGRATION_PRECOPY_H

#include "migration/context.h"

/* Thread function: the whole of one outgoing migration; @opaque is the Migration. */
gpointer migration_thread(gpointer opaque);

/* Keeps @error (taken over) unless there is one already. */
void migration_set_error(Migration *m, GError *error);

/* Tells why @m does not go on: its error, or that it was cancelled.  Returns false.  The lock is held. */
bool migration_interrupted(const Migration *m, GError **errp);

/* source-return-path.c: the thread is started when the channel exists, before anything is sent. */
void migration_return_path_start(Migration *m);

/*
 * Waits for the destination's verdict.  True if it was success; that counts even if the
 * migration has been cancelled while waiting.
 */
bool migration_return_path_wait(Migration *m, GError **errp);

/*
 * Gives a destination that has broken the connection a moment to have said why.  True: what it has said is
 * that it has the guest.
 */
bool migration_return_path_linger(Migration *m);

/* Shuts the channel down, unless the thread has ended by itself, and joins it. */
void migration_return_path_stop(Migration *m);

#endif
