/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line, in QEMU's dialect: words become a plain struct; nothing is opened, made or printed here.
 */
#ifndef GODWIT_SYSTEM_CMDLINE_H
#define GODWIT_SYSTEM_CMDLINE_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Bounds on what is accepted. */
#define CMDLINE_MAX_WORDS 4096

/* Text that is understood later, by whoever makes the thing; @location is for messages: "-qmp unix:/tmp/q".
 */
typedef struct ConfigText {
    char *text;
    char *location;
} ConfigText;

/* -global driver.property=value, in the order given. */
typedef struct ConfigGlobal {
    char *driver, *property, *value;
} ConfigGlobal;

/* -monitor, -qmp, -qmp-pretty and -mon, in the order given. */
typedef struct ConfigMonitor {
    char *device; /* a chardev spec, or the id of a -chardev */
    char *location;
    bool by_id;   /* @device is an id */
    bool control; /* QMP; else HMP */
    bool pretty;
} ConfigMonitor;

/* -accel, and each name of -machine accel=A:B. */
typedef struct ConfigAccel {
    char *name;
    char *location;    /* NULL: from -machine */
    char **properties; /* NULL-terminated list of "key=value" */
} ConfigAccel;

/* -add-fd */
typedef struct ConfigFd {
    int fd;
    int64_t set;  /* -1: the next free one */
    char *opaque; /* or NULL */
    char *location;
} ConfigFd;

/* What to do instead of running a machine; @help_text says about what. */
typedef enum {
    CONFIG_RUN,
    CONFIG_HELP,     /* the options */
    CONFIG_HELP_MAN, /* the options as the source of a man page */
    CONFIG_HELP_MACHINES,
    CONFIG_HELP_MACHINE, /* the properties of machine type @help_text (NULL: the default one) */
    CONFIG_HELP_ACCELS,
    CONFIG_HELP_CPUS,
    CONFIG_HELP_OBJECTS,
    CONFIG_HELP_OBJECT, /* the properties of object type @help_text */
    CONFIG_HELP_CHARDEVS,
    CONFIG_HELP_TRACE,
    CONFIG_HELP_LOG_ITEMS, /* ends with exit status 1, asked for or not */
    CONFIG_HELP_FAULTS,
    CONFIG_HELP_DATA_DIRS,
    CONFIG_VERSION,
    CONFIG_CHECK, /* what this host can do */
} ConfigAction;

/* Everything that the words said.  Strings may be NULL: not given.  Arrays are never NULL. */
typedef struct VmConfig {
    ConfigAction action;
    char *help_text;

    /* machine */
    char *machine;                  /* type */
    GHashTable *machine_properties; /* char * -> char *: those of -machine except type and accel */
    GPtrArray *accels;              /* of ConfigAccel * */
    char *cpu_model;
    char *kernel, *initrd, *append;
    unsigned cpus;    /* 1 unless -smp says more */
    char *cpus_error; /* -smp made no sense; told once the machine type is known to exist */
    unsigned max_cpus;
    char *name, *process_name;
    bool debug_threads;
    bool has_uuid;
    uint8_t uuid[16];

    /* memory */
    bool has_ram_size;
    uint64_t ram_size; /* bytes, as given */
    bool has_max_ram_size;
    uint64_t max_ram_size;
    uint64_t ram_slots;
    char *memory_backend; /* -machine memory-backend= */
    char *mem_path;
    bool mem_prealloc;
    GPtrArray *objects; /* of ConfigText * */

    /* migration */
    GPtrArray *incoming; /* of ConfigText * */
    GPtrArray *globals;  /* of ConfigGlobal * */
    bool only_migratable;
    char *loadvm;

    /* monitors and devices */
    GPtrArray *monitors; /* of ConfigMonitor * */
    GPtrArray *chardevs; /* of ConfigText * */
    GPtrArray *serials;  /* of ConfigText *: chardev specs, "none" left out */
    GPtrArray *devices;  /* of ConfigText * */
    GPtrArray *drives;   /* of ConfigText * */
    GPtrArray *fds;      /* of ConfigFd * */
    char *qtest, *qtest_log;
    bool nographic, no_defaults, no_monitor; /* no_monitor: -monitor none */

    /* the process */
    bool stopped; /* -S */
    bool no_reboot, no_shutdown;
    bool daemonize;
    bool exit_with_parent;
    bool lock_memory;
    char *pid_file;
    char *log_file;            /* -D and -trace file= */
    GPtrArray *trace_patterns; /* of ConfigText * */
    GPtrArray *trace_files;    /* of char *: -trace events= */
    GPtrArray *read_configs;   /* of ConfigText *: files for cmdline_parse_file_text() */
    bool message_timestamps, message_name;
    GPtrArray *faults; /* of ConfigText *: fault points to set */
} VmConfig;

VmConfig *vm_config_new(void);
void vm_config_free(VmConfig *config);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VmConfig, vm_config_free)

/*
 * Reads @argv, which starts with the program's name.  Stops at the first word that asks for help.  Errors are
 * GODWIT_ERROR_INVALID in the peers' words, without the program's name: "-m 1x: Parameter 'size' expects
 * ..."; further lines of a message are hints.  No side effects.
 */
bool cmdline_parse(VmConfig *config, int argc, char *const *argv, GError **errp);

/*
 * What -readconfig reads: [group "id"] and key = "value" lines; @name is for messages.  Same rules as above.
 */
bool cmdline_parse_file_text(VmConfig *config, const char *name, const char *text, GError **errp);

/* After the last word and file: what several options together must satisfy. */
bool cmdline_finish(VmConfig *config, GError **errp);

/* Text of --help for a terminal @columns wide, and the OPTIONS section of the man page; the caller frees. */
char *cmdline_help(const char *program, unsigned columns);
char *cmdline_help_man(void);

/* Every option's name, for tools and completion: NULL-terminated, static strings; free the array only. */
const char **cmdline_option_names(void);

/*
 * The options that are lists, under the names that configuration files and query-command-line-options use;
 * those of which nothing but their absence is supported are left out.  @keys is NULL-terminated.
 */
typedef void (*CmdlineGroupFunc)(const char *group, const char *const *keys, void *opaque);
void cmdline_foreach_group(CmdlineGroupFunc func, void *opaque);

/* "string", "boolean", "number" or "size": what the value of @key of such an option is. */
const char *cmdline_key_type(const char *group, const char *key);

/* Items of -d. */
char *cmdline_log_items(void);

/* The one of @names (NULL-terminated) that @word was probably meant to be, or NULL. */
const char *cmdline_suggest(const char *word, const char *const *names);

#endif
