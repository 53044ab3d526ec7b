/* SPDX-License-Identifier: BSD-2-Clause */
/* What a test asks of the fake verbs: faults, lies, delays; and what it is told afterwards. */
#ifndef GODWIT_TESTS_FAKE_VERBS_H
#define GODWIT_TESTS_FAKE_VERBS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * libibverbs and librdmacm, as far as a migration uses them, over sockets of this machine.  A program that
 * has these objects linked in, or fake-verbs.so preloaded, calls them in place of the real libraries.
 *
 * One process has one of everything below; both ends of a migration may be in it.  A preloaded library is
 * told the same by the environment: FAKE_VERBS is a specification as for fake_verbs_set(), and the report of
 * the process goes to the file FAKE_VERBS_REPORT when it ends.  README.md has the specification's words.
 */

/* Takes the words of @specification, separated by blanks.  NULL, or the first that is not understood. */
const char *fake_verbs_set(const char *specification);

/* No faults, no lies, all counts at nothing.  There must be no object left (fake_verbs_live()). */
void fake_verbs_reset(void);

/* The names of all verbs, NULL at the end: what can be counted and made to fail. */
const char *const *fake_verbs_names(void);
/* How often @verb was called. */
unsigned fake_verbs_calls(const char *verb);

/* Objects and events that exist: each one that is left at the end is a leak. */
unsigned fake_verbs_live(void);
/* Things that a real device or library answers with a hang, a crash or wrong data; also printed. */
unsigned fake_verbs_violations(void);
/* Faults, error completions, lost copies... that were really injected. */
unsigned fake_verbs_injected(void);

/* One number of the report; the names are those in README.md: "writes", "write-bytes", "doorbells"... */
uint64_t fake_verbs_number(const char *name);

/* The report, JSON; the caller frees with free(). */
char *fake_verbs_report(void);

#endif
