/* SPDX-License-Identifier: BSD-2-Clause */
/* HMP lines to arguments. */
#include "hmp.h"

#include "util/error.h"

#include <string.h>

static bool fail(GError **errp, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
static bool fail(GError **errp, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, text);
    return false;
}

static void skip_blanks(const char **p)
{
    while (g_ascii_isspace(**p)) {
        (*p)++;
    }
}

char *hmp_command_title(const HmpCommand *command)
{
    return command->alias ? g_strdup_printf("%s|%s", command->name, command->alias) : g_strdup(command->name);
}

static bool is_name(const char *name, const char *text, size_t len)
{
    return name && strlen(name) == len && memcmp(name, text, len) == 0;
}

const HmpCommand *hmp_command_find(const HmpCommand *table, const char *name, size_t len)
{
    for (const HmpCommand *c = table; c->name; c++) {
        if (is_name(c->name, name, len) || is_name(c->alias, name, len)) {
            return c;
        }
    }
    return NULL;
}

/* ---- words ---- */

/* Text in double quotes; *@p is behind the first. */
static char *quoted_word(const char **p, GError **errp)
{
    static const char names[] = "nr\\'\"";
    static const char values[] = "\n\r\\'\"";
    g_autoptr(GString) word = g_string_new(NULL);

    for (; **p && **p != '"'; (*p)++) {
        if (**p != '\\') {
            g_string_append_c(word, **p);
            continue;
        }
        (*p)++;
        const char *found = **p ? strchr(names, **p) : NULL;
        if (!found) {
            fail(errp, "unsupported escape code: '\\%c'", **p);
            return NULL;
        }
        g_string_append_c(word, values[found - names]);
    }
    if (!**p) {
        fail(errp, "unterminated string");
        return NULL;
    }
    (*p)++;
    return g_string_free(g_steal_pointer(&word), false);
}

/* NULL without an error: there is no word. */
static char *take_word(const char **p, GError **errp)
{
    skip_blanks(p);
    if (**p == '"') {
        (*p)++;
        return quoted_word(p, errp);
    }
    const char *start = *p;
    while (**p && !g_ascii_isspace(**p)) {
        (*p)++;
    }
    return *p == start ? NULL : g_strndup(start, (gsize)(*p - start));
}

static bool parse_word(const HmpCommand *command, const HmpArg *arg, const char **p, HmpValue *value,
                       GError **errp)
{
    g_autoptr(GError) err = NULL;
    const char *what = arg->type == HMP_FILE ? "filename" : "string";
    g_autofree char *title = hmp_command_title(command);

    value->text = take_word(p, &err);
    value->present = value->text != NULL;
    if (err) {
        return fail(errp, "%s\n%s: %s expected", err->message, title, what);
    }
    return value->present || arg->optional || fail(errp, "%s: %s expected", title, what);
}

static bool parse_rest(const HmpCommand *command, const HmpArg *arg, const char **p, HmpValue *value,
                       GError **errp)
{
    skip_blanks(p);
    if (**p) {
        value->text = g_strchomp(g_strdup(*p));
        value->present = true;
        *p += strlen(*p);
        return true;
    }
    g_autofree char *title = hmp_command_title(command);
    return arg->optional || fail(errp, "%s: string expected", title);
}

static bool parse_onoff(const HmpArg *arg, const char **p, HmpValue *value, GError **errp)
{
    skip_blanks(p);
    if (!**p && arg->optional) {
        return true;
    }
    g_autofree char *word = take_word(p, NULL);
    value->present = true;
    value->on = word && strcmp(word, "on") == 0;
    return value->on || (word && strcmp(word, "off") == 0) || fail(errp, "Expected 'on' or 'off'");
}

static bool parse_number(const HmpArg *arg, const char **p, HmpValue *value, GError **errp)
{
    skip_blanks(p);
    if (!**p && arg->optional) {
        return true;
    }
    value->present = true;
    return hmp_parse_expression(p, &value->number, errp);
}

/* ---- flags ---- */

/* The flags of @command may stand in any order before its other arguments. */
static bool parse_flags(const HmpCommand *command, const char **p, HmpArgs *args, GError **errp)
{
    bool any = false;

    for (unsigned i = 0; i < HMP_MAX_ARGS && command->args[i].name; i++) {
        any = any || command->args[i].type == HMP_FLAG;
    }
    while (any) {
        skip_blanks(p);
        char letter = (*p)[0] == '-' ? (*p)[1] : '\0';
        if (!letter || g_ascii_isspace(letter)) {
            return true;
        }
        unsigned i = 0;
        while (i < HMP_MAX_ARGS && command->args[i].name &&
               !(command->args[i].type == HMP_FLAG && command->args[i].flag == letter)) {
            i++;
        }
        g_autofree char *title = hmp_command_title(command);
        if (i == HMP_MAX_ARGS || !command->args[i].name) {
            return fail(errp, "%s: unsupported option -%c", title, letter);
        }
        *p += 2;
        if (**p && !g_ascii_isspace(**p)) {
            return fail(errp, "%s: extraneous characters at the end of line", title);
        }
        args->values[i].present = args->values[i].on = true;
    }
    return true;
}

/* ---- formats ---- */

static unsigned size_of_letter(char c)
{
    switch (c) {
    case 'b':
        return 1;
    case 'h':
        return 2;
    case 'w':
        return 4;
    case 'g':
        return 8;
    default:
        return 0;
    }
}

static bool parse_format(const char **p, HmpFormat *last, HmpValue *value, GError **errp)
{
    HmpFormat f = *last;

    f.count = 1;
    skip_blanks(p);
    value->present = **p == '/';
    if (value->present) {
        (*p)++;
        if (g_ascii_isdigit(**p)) {
            char *end;
            f.count = (int64_t)MIN(g_ascii_strtoull(*p, &end, 10), G_MAXINT64);
            *p = end;
        }
        for (; **p && !g_ascii_isspace(**p); (*p)++) {
            if (strchr("oduxic", **p)) {
                f.format = **p;
            } else if (size_of_letter(**p)) {
                f.size = size_of_letter(**p);
            } else {
                return fail(errp, "invalid char in format: '%c'", **p);
            }
        }
        last->format = f.format;
        last->size = f.size;
    }
    value->format = f;
    return true;
}

/* ---- all arguments ---- */

static bool parse_arg(const HmpCommand *command, const HmpArg *arg, const char **p, HmpFormat *last,
                      HmpValue *value, GError **errp)
{
    switch (arg->type) {
    case HMP_FLAG:
        return true;
    case HMP_WORD:
    case HMP_FILE:
        return parse_word(command, arg, p, value, errp);
    case HMP_REST:
        return parse_rest(command, arg, p, value, errp);
    case HMP_ONOFF:
        return parse_onoff(arg, p, value, errp);
    case HMP_NUMBER:
        return parse_number(arg, p, value, errp);
    case HMP_FORMAT:
        return parse_format(p, last, value, errp);
    }
    return false;
}

bool hmp_parse_args(const HmpCommand *command, const char *line, HmpFormat *last, HmpArgs *args,
                    GError **errp)
{
    const char *p = line;

    *args = (HmpArgs){ .command = command };
    if (!parse_flags(command, &p, args, errp)) {
        return false;
    }
    for (unsigned i = 0; i < HMP_MAX_ARGS && command->args[i].name; i++) {
        if (!parse_arg(command, &command->args[i], &p, last, &args->values[i], errp)) {
            hmp_args_clear(args);
            return false;
        }
    }
    skip_blanks(&p);
    if (*p) {
        g_autofree char *title = hmp_command_title(command);
        hmp_args_clear(args);
        return fail(errp, "%s: extraneous characters at the end of line", title);
    }
    return true;
}

void hmp_args_clear(HmpArgs *args)
{
    for (unsigned i = 0; i < HMP_MAX_ARGS; i++) {
        g_clear_pointer(&args->values[i].text, g_free);
    }
}

/* ---- access ---- */

static const HmpValue *find_value(const HmpArgs *args, const char *name)
{
    for (unsigned i = 0; i < HMP_MAX_ARGS && args->command->args[i].name; i++) {
        if (strcmp(args->command->args[i].name, name) == 0) {
            return &args->values[i];
        }
    }
    g_assert_not_reached();
}

bool hmp_has(const HmpArgs *args, const char *name)
{
    return find_value(args, name)->present;
}

const char *hmp_text(const HmpArgs *args, const char *name)
{
    return find_value(args, name)->text;
}

bool hmp_on(const HmpArgs *args, const char *name)
{
    return find_value(args, name)->on;
}

int64_t hmp_number(const HmpArgs *args, const char *name)
{
    return find_value(args, name)->number;
}

HmpFormat hmp_format(const HmpArgs *args, const char *name)
{
    return find_value(args, name)->format;
}
