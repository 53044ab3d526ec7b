/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line: walking the words, suggestions for typos. */
#include "cmdline-internal.h"

#include "util/error.h"

#include <string.h>

/* Longest word that a suggestion is looked for. */
#define SUGGEST_MAX_LEN 40u

/* ---- life of a VmConfig ---- */

ConfigText *config_text_new(const char *text, const char *location)
{
    ConfigText *t = g_new0(ConfigText, 1);

    t->text = g_strdup(text);
    t->location = g_strdup(location);
    return t;
}

static void config_text_free(gpointer p)
{
    ConfigText *t = p;

    g_free(t->text);
    g_free(t->location);
    g_free(t);
}

static void config_global_free(gpointer p)
{
    ConfigGlobal *g = p;

    g_free(g->driver);
    g_free(g->property);
    g_free(g->value);
    g_free(g);
}

static void config_monitor_free(gpointer p)
{
    ConfigMonitor *m = p;

    g_free(m->device);
    g_free(m->location);
    g_free(m);
}

static void config_accel_free(gpointer p)
{
    ConfigAccel *a = p;

    g_free(a->name);
    g_free(a->location);
    g_strfreev(a->properties);
    g_free(a);
}

static void config_fd_free(gpointer p)
{
    ConfigFd *f = p;

    g_free(f->opaque);
    g_free(f->location);
    g_free(f);
}

VmConfig *vm_config_new(void)
{
    VmConfig *c = g_new0(VmConfig, 1);

    c->machine_properties = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    c->accels = g_ptr_array_new_with_free_func(config_accel_free);
    c->objects = g_ptr_array_new_with_free_func(config_text_free);
    c->incoming = g_ptr_array_new_with_free_func(config_text_free);
    c->globals = g_ptr_array_new_with_free_func(config_global_free);
    c->monitors = g_ptr_array_new_with_free_func(config_monitor_free);
    c->chardevs = g_ptr_array_new_with_free_func(config_text_free);
    c->serials = g_ptr_array_new_with_free_func(config_text_free);
    c->devices = g_ptr_array_new_with_free_func(config_text_free);
    c->drives = g_ptr_array_new_with_free_func(config_text_free);
    c->fds = g_ptr_array_new_with_free_func(config_fd_free);
    c->trace_patterns = g_ptr_array_new_with_free_func(config_text_free);
    c->trace_files = g_ptr_array_new_with_free_func(g_free);
    c->read_configs = g_ptr_array_new_with_free_func(config_text_free);
    c->faults = g_ptr_array_new_with_free_func(config_text_free);
    c->cpus = c->max_cpus = 1;
    return c;
}

void vm_config_free(VmConfig *c)
{
    if (!c) {
        return;
    }
    GPtrArray *arrays[] = {
        c->accels,  c->objects, c->incoming,       c->globals,     c->monitors,     c->chardevs,
        c->serials, c->devices, c->drives,         c->fds,         c->trace_patterns, c->trace_files,
        c->read_configs, c->faults,
    };
    char *strings[] = {
        c->help_text, c->machine, c->cpu_model, c->kernel, c->initrd, c->append, c->cpus_error, c->name,
        c->process_name, c->memory_backend, c->mem_path, c->loadvm, c->qtest, c->qtest_log, c->pid_file,
        c->log_file,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(arrays); i++) {
        g_ptr_array_unref(arrays[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(strings); i++) {
        g_free(strings[i]);
    }
    g_hash_table_unref(c->machine_properties);
    g_free(c);
}

/* ---- suggestions ---- */

/* Insertions, deletions, replacements and swaps of neighbours that make @b of @a; both at most
 * SUGGEST_MAX_LEN. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned d[SUGGEST_MAX_LEN + 1][SUGGEST_MAX_LEN + 1];
    size_t la = strlen(a), lb = strlen(b);

    for (size_t i = 0; i <= la; i++) {
        d[i][0] = (unsigned)i;
    }
    for (size_t j = 0; j <= lb; j++) {
        d[0][j] = (unsigned)j;
    }
    for (size_t i = 1; i <= la; i++) {
        for (size_t j = 1; j <= lb; j++) {
            unsigned replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            unsigned best = MIN(replaced, MIN(d[i - 1][j], d[i][j - 1]) + 1);

            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                best = MIN(best, d[i - 2][j - 2] + 1);
            }
            d[i][j] = best;
        }
    }
    return d[la][lb];
}

const char *cmdline_suggest(const char *word, const char *const *names)
{
    size_t len = strlen(word);
    unsigned limit = (unsigned)MAX(1, len / 3), best = limit + 1;
    const char *found = NULL;

    if (len < 2 || len > SUGGEST_MAX_LEN) {
        return NULL;
    }
    for (; *names; names++) {
        if (strlen(*names) <= SUGGEST_MAX_LEN) {
            unsigned distance = edit_distance(word, *names);

            if (distance < best) {
                best = distance;
                found = *names;
            }
        }
    }
    return found;
}

const char **cmdline_option_names(void)
{
    GPtrArray *names = g_ptr_array_new();

    for (size_t i = 0; i < cmdline_n_options; i++) {
        g_ptr_array_add(names, (gpointer)cmdline_options[i].name);
        if (cmdline_options[i].alias) {
            g_ptr_array_add(names, (gpointer)cmdline_options[i].alias);
        }
    }
    g_ptr_array_add(names, NULL);
    return (const char **)g_ptr_array_free(names, false);
}

/* ---- walking the words ---- */

const CmdlineOption *cmdline_find(const char *name)
{
    for (size_t i = 0; i < cmdline_n_options; i++) {
        const CmdlineOption *o = &cmdline_options[i];

        if (strcmp(o->name, name) == 0 || (o->alias && strcmp(o->alias, name) == 0)) {
            return o;
        }
    }
    return NULL;
}

static const CmdlineForeign *find_foreign(const char *name)
{
    for (size_t i = 0; i < cmdline_n_foreign; i++) {
        if (strcmp(cmdline_foreign[i].name, name) == 0) {
            return &cmdline_foreign[i];
        }
    }
    return NULL;
}

static bool unknown_option(const char *word, const char *name, GError **errp)
{
    g_autofree const char **names = cmdline_option_names();
    const char *meant = cmdline_suggest(name, names);

    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "%s: invalid option%s%s%s", word,
                meant ? "\nDid you mean -" : "", meant ? meant : "", meant ? "?" : "");
    return false;
}

static bool disk_image(const char *word, GError **errp)
{
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "%s: a disk image alone is of no use: see -drive",
                word);
    return false;
}

bool cmdline_apply(VmConfig *config, const CmdlineOption *option, const char *arg, const char *location,
                   GError **errp)
{
    CmdlineUse use = {.config = config, .option = option, .arg = arg, .location = location};

    if (!option->apply(&use, errp)) {
        g_prefix_error(errp, "%s: ", location);
        return false;
    }
    return true;
}

/* One option and its argument; *@used is how many words that was. */
static bool parse_word(VmConfig *config, char *const *words, int n_words, int *used, GError **errp)
{
    const char *word = words[0];

    if (word[0] != '-') {
        return disk_image(word, errp);
    }
    const char *name = word + (word[1] == '-' ? 2 : 1);
    const CmdlineOption *option = cmdline_find(name);
    if (!option && find_foreign(name)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "%s: not supported: there is no such device or "
                    "feature here",
                    word);
        return false;
    }
    if (!option) {
        return unknown_option(word, name, errp);
    }
    if (!option->arg) {
        *used = 1;
        return cmdline_apply(config, option, NULL, word, errp);
    }
    if (n_words < 2) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "%s: requires an argument", word);
        return false;
    }
    g_autofree char *location = g_strdup_printf("%s %s", word, words[1]);
    *used = 2;
    return cmdline_apply(config, option, words[1], location, errp);
}

bool cmdline_parse(VmConfig *config, int argc, char *const *argv, GError **errp)
{
    int used = 0;

    if (argc > CMDLINE_MAX_WORDS) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "more than %d words on the command line",
                    CMDLINE_MAX_WORDS);
        return false;
    }
    for (int i = 1; i < argc && config->action == CONFIG_RUN; i += used) {
        if (!parse_word(config, argv + i, argc - i, &used, errp)) {
            return false;
        }
    }
    return true;
}
