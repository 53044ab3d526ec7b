/* SPDX-License-Identifier: BSD-2-Clause */
/* Help and completion, both made from the tables of commands. */
#include "hmp.h"

#include "qapi/qapi-options.h"
#include "qapi/qapi-types-qom.h"
#include "util/trace.h"

#include <string.h>

/* ---- help ---- */

static void append_arg(GString *text, const HmpArg *arg)
{
    switch (arg->type) {
    case HMP_FLAG:
        g_string_append_printf(text, "[-%c]", arg->flag);
        break;
    case HMP_FORMAT:
        g_string_append(text, "/fmt");
        break;
    case HMP_ONOFF:
        g_string_append(text, "on|off");
        break;
    default:
        g_string_append_printf(text, arg->optional ? "[%s]" : "%s", arg->name);
        break;
    }
}

static void show_command(Hmp *hmp, const char *prefix, const HmpCommand *command)
{
    g_autofree char *title = hmp_command_title(command);
    g_autoptr(GString) synopsis = g_string_new(NULL);

    for (unsigned i = 0; i < HMP_MAX_ARGS && command->args[i].name; i++) {
        if (i) {
            g_string_append_c(synopsis, ' ');
        }
        append_arg(synopsis, &command->args[i]);
    }
    hmp_printf(hmp, "%s%s %s -- %s\n", prefix, title, synopsis->str, command->help);
}

static void show_table(Hmp *hmp, const char *prefix, const HmpCommand *table)
{
    for (const HmpCommand *c = table; c->name; c++) {
        show_command(hmp, prefix, c);
    }
}

void hmp_show_info_help(Hmp *hmp)
{
    show_table(hmp, "info ", hmp_info_commands);
}

void hmp_show_help(Hmp *hmp, const char *name)
{
    g_auto(GStrv) words = g_strsplit_set(name ? name : "", " \t", -1);
    const char *first = words[0] ? words[0] : "";
    const char *second = words[0] && words[1] ? g_strchug(words[1]) : "";

    if (!*first) {
        show_table(hmp, "", hmp_commands);
    } else if (strcmp(first, "info") == 0 && *second) {
        const HmpCommand *info = hmp_command_find(hmp_info_commands, second, strlen(second));
        if (info) {
            show_command(hmp, "info ", info);
        } else {
            hmp_printf(hmp, "unknown command: 'info %s'\n", second);
        }
    } else if (strcmp(first, "info") == 0) {
        hmp_show_info_help(hmp);
    } else {
        const HmpCommand *command = hmp_command_find(hmp_commands, first, strlen(first));
        if (command) {
            show_command(hmp, "", command);
        } else {
            hmp_printf(hmp, "unknown command: '%s'\n", first);
        }
    }
}

/* ---- completion ---- */

typedef struct Candidates {
    const char *prefix;
    GPtrArray *words; /* of char * */
} Candidates;

static void offer(Candidates *c, const char *word)
{
    if (word && g_str_has_prefix(word, c->prefix)) {
        g_ptr_array_add(c->words, g_strdup(word));
    }
}

static void offer_commands(Candidates *c, const HmpCommand *table)
{
    for (; table->name; table++) {
        offer(c, table->name);
        offer(c, table->alias);
    }
}

static void offer_options(Candidates *c, const QapiOption *table)
{
    for (; table->name; table++) {
        offer(c, table->name);
    }
}

static void offer_names(Candidates *c, const char *const *lookup, int count)
{
    for (int i = 0; i < count; i++) {
        offer(c, lookup[i]);
    }
}

static void offer_backends(Candidates *c, const MonitorContext *ctx)
{
    for (const MemoryBackend *b = ctx && ctx->backends ? ctx->backends->first : NULL; b; b = b->next) {
        offer(c, b->id);
    }
}

static void offer_trace_events(Candidates *c, const char *before)
{
    g_autofree char *name = NULL;

    for (TraceEvent *e = trace_event_next(NULL); e; e = trace_event_next(e)) {
        g_free(name);
        name = g_strconcat(before, e->name, NULL);
        offer(c, name);
    }
}

static void offer_kind(Candidates *c, HmpCompleteKind kind, const MonitorContext *ctx)
{
    switch (kind) {
    case HMP_COMPLETE_NONE:
        break;
    case HMP_COMPLETE_COMMAND:
        offer_commands(c, hmp_commands);
        break;
    case HMP_COMPLETE_PARAMETER:
        offer_options(c, MigrationParameters_options);
        break;
    case HMP_COMPLETE_CAPABILITY:
        offer_options(c, MigrationCapability_options);
        break;
    case HMP_COMPLETE_ONOFF:
        offer(c, "off");
        offer(c, "on");
        break;
    case HMP_COMPLETE_OBJECT_TYPE:
        offer_names(c, ObjectType_lookup, OBJECT_TYPE__MAX);
        break;
    case HMP_COMPLETE_BACKEND:
        offer_backends(c, ctx);
        break;
    case HMP_COMPLETE_TRACE_EVENT:
        offer_trace_events(c, "");
        break;
    case HMP_COMPLETE_LOG_ITEM:
        offer(c, "help");
        offer(c, "none");
        offer_trace_events(c, "trace:");
        break;
    }
}

/* The argument of @command that word number @index (from 0, flags left out) is, or NULL. */
static const HmpArg *positional_arg(const HmpCommand *command, unsigned index)
{
    for (unsigned i = 0; i < HMP_MAX_ARGS && command->args[i].name; i++) {
        if (command->args[i].type != HMP_FLAG && command->args[i].type != HMP_FORMAT && index-- == 0) {
            return &command->args[i];
        }
    }
    return NULL;
}

/* The table that the next of *@words is looked up in; moves *@words behind `info` and `help info`. */
static const HmpCommand *select_table(char *const **words)
{
    static const char *const help_names[] = { "help", "?", NULL };
    char *const *w = *words;

    if (w[0] && w[1] && g_strv_contains(help_names, w[0]) && strcmp(w[1], "info") == 0) {
        *words = w + 2;
        return hmp_info_commands;
    }
    if (w[0] && strcmp(w[0], "info") == 0) {
        *words = w + 1;
        return hmp_info_commands;
    }
    return hmp_commands;
}

/* @words: what is before the word to be completed; the last is NULL. */
static void offer_for(Candidates *c, char *const *words, const MonitorContext *ctx)
{
    const HmpCommand *table = select_table(&words);
    unsigned index = 0;

    if (!words[0]) {
        offer_commands(c, table);
        return;
    }
    const HmpCommand *command = hmp_command_find(table, words[0], strlen(words[0]));
    for (char *const *w = words + 1; *w; w++) {
        index += (*w)[0] != '-';
    }
    const HmpArg *arg = command ? positional_arg(command, index) : NULL;
    if (arg) {
        offer_kind(c, arg->complete, ctx);
    }
}

static int compare_words(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **hmp_complete(const char *before, size_t *word_len, void *opaque)
{
    const char *blank = strrchr(before, ' ');
    Candidates c = { .prefix = blank ? blank + 1 : before, .words = g_ptr_array_new() };
    g_autofree char *earlier = g_strndup(before, (gsize)(c.prefix - before));
    g_auto(GStrv) split = g_strsplit(earlier, " ", -1);
    g_autoptr(GPtrArray) words = g_ptr_array_new();

    for (char **w = split; *w; w++) {
        if (**w) {
            g_ptr_array_add(words, *w);
        }
    }
    g_ptr_array_add(words, NULL);
    offer_for(&c, (char *const *)words->pdata, opaque);
    g_ptr_array_sort(c.words, compare_words);
    g_ptr_array_add(c.words, NULL);
    *word_len = strlen(c.prefix);
    return (char **)g_ptr_array_free(c.words, false);
}
