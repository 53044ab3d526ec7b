/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of options and what its users share; private to system/cmdline*.c. */
#ifndef GODWIT_SYSTEM_CMDLINE_INTERNAL_H
#define GODWIT_SYSTEM_CMDLINE_INTERNAL_H

#include "system/cmdline.h"

/* Order of --help and the man page. */
typedef enum {
    SECTION_MACHINE,
    SECTION_MEMORY,
    SECTION_MIGRATION,
    SECTION_MONITOR,
    SECTION_PROCESS,
    SECTION_DEBUG,
    SECTION_INFO,
    SECTION_COMPAT,
    SECTION__MAX,
} CmdlineSection;

typedef struct CmdlineOption CmdlineOption;

/* One option as it stands in the words. */
typedef struct CmdlineUse {
    VmConfig *config;
    const CmdlineOption *option;
    const char *arg;      /* NULL if the option takes none */
    const char *location; /* "-m 16", as typed */
} CmdlineUse;

struct CmdlineOption {
    const char *name;  /* without dashes */
    const char *alias; /* another name, or NULL */
    const char *arg;   /* syntax of its argument, or NULL: takes none */
    CmdlineSection section;
    bool (*apply)(const CmdlineUse *use, GError **errp);
    size_t target; /* of simple options: offset in VmConfig of what they set */
    const char *const
        *keys; /* of options that are checked key=value lists: what may stand there, first the implied */
    const char *help; /* one paragraph */
};

extern const CmdlineOption cmdline_options[];
extern const size_t cmdline_n_options;

/* Options of QEMU for which there is nothing here; those with an argument swallow it. */
typedef struct CmdlineForeign {
    const char *name;
    bool has_arg;
} CmdlineForeign;

extern const CmdlineForeign cmdline_foreign[];
extern const size_t cmdline_n_foreign;

/* Another name for some options: [GROUP] in a file, and query-command-line-options. */
typedef struct CmdlineGroup {
    const char *name;
    const char *option;
    const char *const *(*keys)(void); /* of options whose table entry does not list them; or NULL */
} CmdlineGroup;

const CmdlineGroup *cmdline_find_group(const char *name);

const CmdlineOption *cmdline_find(const char *name);

/* Applies one option; prefixes its error with the location. */
bool cmdline_apply(VmConfig *config, const CmdlineOption *option, const char *arg, const char *location,
                   GError **errp);

ConfigText *config_text_new(const char *text, const char *location);

#endif
