/* SPDX-License-Identifier: BSD-2-Clause */
/* The smallest VMM there is: two virtual machines in one process, one migrates into the other. */
#include <migration/migration.h>
#include <util/trace.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RAM_SIZE (4u << 20)

/*
 * A machine without vCPUs: its run state is a variable.  All callbacks but those two may come from any
 * thread.
 */
typedef struct Machine {
    int state;              /* RunState, atomic */
    bool ended;             /* main thread */
    RAMBlock block;
    RamList ram;
    SoftDirtyLog *soft_log;
    DirtyLog dirty_log;
    SaveEntryList entries;
    MigrationContext *migration;
} Machine;

static const char *machine_name(void *opaque) { return "none"; }
static const uint8_t *uuid(void *opaque) { return NULL; }
static RamList *ram(void *opaque) { return &((Machine *)opaque)->ram; }
static DirtyLog *dirty_log(void *opaque) { return &((Machine *)opaque)->dirty_log; }
static SaveEntryList *save_entries(void *opaque) { return &((Machine *)opaque)->entries; }
static RunState run_state(void *opaque) { return g_atomic_int_get(&((Machine *)opaque)->state); }
static void throttle(void *opaque, unsigned percent) {}
static DirtyLimiter *dirty_limiter(void *opaque) { return NULL; }
static bool has_vcpus(void *opaque) { return false; }
static bool autostart(void *opaque) { return true; }
static void event_status(void *opaque, MigrationStatus status) {}
static void event_pass(void *opaque, int64_t pass) {}
static void log_line(void *opaque, const char *message) { fprintf(stderr, "%s\n", message); }

static bool set_run_state(void *opaque, RunState state, GError **errp)
{
    g_atomic_int_set(&((Machine *)opaque)->state, state);
    return true;
}

static bool start(void *opaque, GError **errp)
{
    return set_run_state(opaque, RUN_STATE_RUNNING, errp);
}

static int no_fd(void *opaque, const char *name, GError **errp)
{
    g_set_error(errp, g_quark_from_static_string("embed"), 0, "there is no descriptor '%s'", name);
    return -1;
}

static int no_fdset(void *opaque, int64_t id, int flags, GError **errp)
{
    return no_fd(opaque, "fdset", errp);
}

static void incoming_ended(void *opaque, const GError *error)
{
    if (error) {
        fprintf(stderr, "incoming: %s\n", error->message);
        exit(1);
    }
    ((Machine *)opaque)->ended = true;
}

static const MigrationHostOps ops = {
    .machine_name = machine_name, .uuid = uuid, .ram = ram, .dirty_log = dirty_log,
    .save_entries = save_entries, .run_state = run_state, .stop = set_run_state, .start = start,
    .set_run_state = set_run_state, .throttle = throttle,
    .dirty_limiter = dirty_limiter, .has_vcpus = has_vcpus, .autostart = autostart,
    .event_status = event_status, .event_pass = event_pass, .take_fd = no_fd, .dup_fdset = no_fdset,
    .log = log_line, .incoming_ended = incoming_ended,
};

static void check(bool ok, const char *what, GError *err)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, err ? err->message : "failed");
        exit(1);
    }
}

static void machine_init(Machine *m, int fill, RunState state)
{
    GError *err = NULL;

    memset(m, 0, sizeof(*m));
    m->state = state;
    m->block = (RAMBlock){ .idstr = "ram", .used_length = RAM_SIZE, .page_size = TARGET_PAGE_SIZE, .fd = -1 };
    m->block.host = mmap(NULL, RAM_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(m->block.host != MAP_FAILED, "mmap", NULL);
    memset(m->block.host, fill, RAM_SIZE / 2);
    check(ram_list_add(&m->ram, &m->block, &err), "ram", err);
    m->soft_log = soft_dirty_log_new();
    dirty_log_add_provider(&m->dirty_log, soft_dirty_log_provider(m->soft_log));
    m->migration = migration_context_new(&ops, m);
}

static void machine_free(Machine *m)
{
    migration_context_free(m->migration);
    dirty_log_remove_provider(&m->dirty_log, soft_dirty_log_provider(m->soft_log));
    soft_dirty_log_free(m->soft_log);
    ram_list_remove(&m->ram, &m->block);
    munmap(m->block.host, RAM_SIZE);
}

static MigrationStatus status(Machine *m)
{
    g_autoptr(MigrationInfo) info = migration_query(m->migration);

    if (info->error_desc) {
        check(false, "outgoing", g_error_new(g_quark_from_static_string("embed"), 0, "%s", info->error_desc));
    }
    return info->has_status ? info->status : MIGRATION_STATUS_NONE;
}

int main(int argc, char **argv)
{
    g_autofree char *uri = g_strdup_printf("unix:%s", argc > 1 ? argv[1] : "embed.sock");
    Machine source, destination;
    GError *err = NULL;

    machine_init(&source, 0x5a, RUN_STATE_RUNNING);
    machine_init(&destination, 0xa5, RUN_STATE_INMIGRATE);
    check(migration_set_parameter_string(migration_options(source.migration), "max-bandwidth", "0", &err),
          "max-bandwidth", err);
    migration_incoming_expect(destination.migration);
    check(migration_incoming_start(destination.migration, uri, NULL, true, &err), "incoming", err);
    check(migration_start(source.migration, uri, NULL, false, &err), "outgoing", err);
    while (!destination.ended || status(&source) != MIGRATION_STATUS_COMPLETED) {
        g_usleep(1000);
        while (g_main_context_iteration(NULL, FALSE)) {
        }
    }
    check(memcmp(source.block.host, destination.block.host, RAM_SIZE) == 0, "RAM differs", NULL);
    check(run_state(&destination) == RUN_STATE_RUNNING, "the destination does not run", NULL);
    check(run_state(&source) == RUN_STATE_POSTMIGRATE, "the source is not done", NULL);
    machine_free(&source);
    machine_free(&destination);
    printf("migrated\n");
    return 0;
}
