/* SPDX-License-Identifier: BSD-2-Clause */
/* A VMM small enough for tests: RAM, a dirty log, a timer section, a run state, and what it was told. */
#ifndef GODWIT_TESTS_FAKE_HOST_H
#define GODWIT_TESTS_FAKE_HOST_H

#include "migration/internal-options.h"
#include "migration/migration.h"

/* What the section "timer" of machine none holds. */
typedef struct FakeTimer {
    int64_t cpu_ticks_offset;
    int64_t cpu_clock_offset;
    uint8_t unused[8];
} FakeTimer;

typedef struct FakeHost {
    MigrationHostOps ops;
    const char *machine;
    uint8_t uuid[16];
    bool has_uuid;

    RamList ram;
    DirtyLog dirty_log;
    SoftDirtyLog *soft_log;
    SaveEntryList entries;
    SaveEntry timer_entry;
    FakeTimer timer;
    DirtyLimiter *dirty_limiter;    /* the test's; NULL: none */

    /* What follows is guarded by the lock. */
    GMutex lock;
    GCond cond;                 /* something has changed */
    RunState state;
    bool autostart;
    bool has_vcpus;
    unsigned throttle_percent;
    unsigned throttle_max;      /* the highest ever */
    unsigned resumes, stops;    /* how often the guest was started and stopped */
    GString *events;            /* "setup active PASS 2 STOP device completed " */
    GString *log;               /* lines */
    int fd;                     /* what take_fd and dup_fdset hand out, once; -1: nothing */
    int fdset_flags;            /* what dup_fdset was asked for */
    bool ended;                 /* incoming_ended was called */
    char *ended_error;          /* its message, or NULL */
    bool fail_stop;             /* the next stop fails */
    bool fail_start;            /* the next start fails */
    void (*on_start)(void *opaque);     /* NULL, or called after a start, in its thread */
    void *on_start_opaque;
} FakeHost;

/* Running, without RAM; autostart on. */
void fake_host_init(FakeHost *h);
void fake_host_clear(FakeHost *h);

/* Adds a block of zeroes. */
RAMBlock *fake_host_add_ram(FakeHost *h, const char *idstr, uint64_t size);

/* Marked in the dirty log as a guest's write would be. */
void fake_host_write(FakeHost *h, RAMBlock *block, uint64_t offset, const void *buf, size_t len);

RunState fake_host_state(FakeHost *h);
void fake_host_set_state(FakeHost *h, RunState state);

/* Copies, the caller's. */
char *fake_host_events(FakeHost *h);
char *fake_host_log(FakeHost *h);

/* A complete set of options with the defaults of the schema; migration_options_free(). */
MigrationOptions *fake_options_new(void);

#endif
