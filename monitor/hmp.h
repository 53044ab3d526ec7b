/* SPDX-License-Identifier: BSD-2-Clause */
/* HMP commands: the table that makes parser, help and completion, and what a handler gets. */
#ifndef GODWIT_MONITOR_HMP_H
#define GODWIT_MONITOR_HMP_H

#include "line-history.h"
#include "monitor-internal.h"

#define HMP_MAX_ARGS 5

/* How an argument is written. */
typedef enum {
    HMP_FLAG,   /* -d */
    HMP_WORD,   /* a word, or text in double quotes */
    HMP_FILE,   /* likewise; called a filename in messages */
    HMP_REST,   /* the rest of the line as it is */
    HMP_ONOFF,  /* on or off */
    HMP_NUMBER, /* an expression */
    HMP_FORMAT, /* /COUNT FORMAT SIZE behind the command's name, always optional */
} HmpArgType;

/* What an argument can be completed to. */
typedef enum {
    HMP_COMPLETE_NONE,
    HMP_COMPLETE_COMMAND,
    HMP_COMPLETE_PARAMETER,
    HMP_COMPLETE_CAPABILITY,
    HMP_COMPLETE_ONOFF,
    HMP_COMPLETE_OBJECT_TYPE,
    HMP_COMPLETE_BACKEND,
    HMP_COMPLETE_TRACE_EVENT,
    HMP_COMPLETE_LOG_ITEM,
} HmpCompleteKind;

typedef struct HmpArg {
    const char *name; /* NULL ends the list */
    HmpArgType type;
    bool optional; /* flags always are */
    char flag;     /* the letter of a flag */
    HmpCompleteKind complete;
} HmpArg;

/* How memory is shown; kept from one dump to the next. */
typedef struct HmpFormat {
    int64_t count;
    char format;   /* x d u o c i */
    unsigned size; /* bytes of a unit: 1 2 4 8 */
} HmpFormat;

typedef struct HmpValue {
    bool present;
    char *text;       /* WORD, FILE, REST */
    bool on;          /* ONOFF; a FLAG that is there */
    int64_t number;   /* NUMBER; wraps at 64 bits */
    HmpFormat format; /* FORMAT */
} HmpValue;

typedef struct HmpCommand HmpCommand;

typedef struct HmpArgs {
    const HmpCommand *command;
    HmpValue values[HMP_MAX_ARGS];
} HmpArgs;

/* One line being run. */
typedef struct Hmp {
    MonitorContext *ctx;
    Monitor *mon;               /* NULL: through human-monitor-command */
    const LineHistory *history; /* NULL likewise */
    GString *out;               /* lines end with \n */
} Hmp;

/* False: "Error: MESSAGE" is shown. */
typedef bool (*HmpHandler)(Hmp *hmp, const HmpArgs *args, GError **errp);

struct HmpCommand {
    const char *name;  /* NULL ends a table */
    const char *alias; /* or NULL */
    HmpArg args[HMP_MAX_ARGS];
    const char *help; /* lower case, no full stop */
    HmpHandler handler;
};

extern const HmpCommand hmp_commands[];
extern const HmpCommand hmp_info_commands[];

/* The entry whose name or alias is the @len bytes at @name, or NULL. */
const HmpCommand *hmp_command_find(const HmpCommand *table, const char *name, size_t len);

/* "cont|c" */
char *hmp_command_title(const HmpCommand *command);

/* ---- arguments, for handlers; @name must be in the command's table ---- */

bool hmp_has(const HmpArgs *args, const char *name);
const char *hmp_text(const HmpArgs *args, const char *name); /* NULL if absent */
bool hmp_on(const HmpArgs *args, const char *name);
int64_t hmp_number(const HmpArgs *args, const char *name);
HmpFormat hmp_format(const HmpArgs *args, const char *name);

/* ---- parsing ---- */

/* The format of the latest dump, of all monitors of one context. */
HmpFormat *hmp_last_format(MonitorContext *ctx);

/*
 * Reads the arguments of @command at @line.  On failure @errp has what is wrong, and false is returned.
 * @last is updated when a format is read.
 */
bool hmp_parse_args(const HmpCommand *command, const char *line, HmpFormat *last, HmpArgs *args,
                    GError **errp);
void hmp_args_clear(HmpArgs *args);

/* Reads an expression at *@p and moves *@p behind it. */
bool hmp_parse_expression(const char **p, int64_t *value, GError **errp);

/* ---- running ---- */

void hmp_printf(Hmp *hmp, const char *fmt, ...) G_GNUC_PRINTF(2, 3);

/* Runs one line, whatever is in it. */
void hmp_run_line(Hmp *hmp, const char *line);

/* Help for a command ("migrate", "info migrate"), or for all; unknown ones are said to be so. */
void hmp_show_help(Hmp *hmp, const char *name);
/* help info */
void hmp_show_info_help(Hmp *hmp);
/* help log */
void hmp_show_log_items(Hmp *hmp);

/*
 * As LineComplete (line-editor.h); @opaque is the MonitorContext.  From a terminal's thread backends are not
 * looked at.
 */
char **hmp_complete(const char *before, size_t *word_len, void *opaque);

/* Waits for the running migration to end, then shows the prompt again and, if it failed, why. */
void hmp_wait_for_migration(Hmp *hmp);

/* ---- handlers, by file ---- */

/* hmp-migration.c */
bool hmp_migrate(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_migrate_cancel(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_migrate_continue(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_migrate_incoming(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_migrate_pause(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_migrate_recover(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_migrate_start_postcopy(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_migrate_set_capability(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_migrate_set_parameter(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_migrate(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_migrate_capabilities(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_migrate_parameters(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_set_vcpu_dirty_limit(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_cancel_vcpu_dirty_limit(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_vcpu_dirty_limit(Hmp *hmp, const HmpArgs *args, GError **errp);

/* hmp-machine.c */
bool hmp_stop(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_cont(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_quit(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_system_reset(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_system_powerdown(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_object_add(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_object_del(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_status(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_version(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_name(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_uuid(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_kvm(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_cpus(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_chardev(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_workload(Hmp *hmp, const HmpArgs *args, GError **errp);

/* hmp-memory.c */
bool hmp_dump_virtual(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_dump_physical(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_print(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_gpa2hva(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_pmemsave(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_memory_size_summary(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_memdev(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_ramblock(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_mtree(Hmp *hmp, const HmpArgs *args, GError **errp);

/* hmp-misc.c */
bool hmp_help(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_clear(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_log(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_logfile(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_trace_event(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_history(Hmp *hmp, const HmpArgs *args, GError **errp);
bool hmp_info_trace_events(Hmp *hmp, const HmpArgs *args, GError **errp);

#endif
