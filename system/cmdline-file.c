/* SPDX-License-Identifier: BSD-2-Clause */
/* Configuration files of -readconfig: groups of pairs that stand for options. */

/*
 *     [machine]                       is   -machine type=none,memory-backend=m0
 *       type = "none"
 *       memory-backend = "m0"
 *     [object "m0"]                   is   -object id=m0,qom-type=memory-backend-ram,size=64M
 *       qom-type = "memory-backend-ram"
 *       size = "64M"
 */
#include "cmdline-internal.h"

#include "system/keyval.h"
#include "util/error.h"

#include <stdio.h>
#include <string.h>

#define MAX_NAME 64 /* of a group or an id, with the terminator; the scan formats below know it */

/* The group that is being read. */
typedef struct FileGroup {
    const CmdlineOption *option; /* NULL: none yet */
    GString *arg;
} FileGroup;

static void append_pair(FileGroup *group, const char *key, const char *value)
{
    g_autofree char *escaped = keyval_escape(value);

    g_string_append_printf(group->arg, "%s%s=%s", group->arg->len ? "," : "", key, escaped);
}

/* The group is complete: it is an option now. */
static bool end_group(VmConfig *config, FileGroup *group, const char *location, GError **errp)
{
    const CmdlineOption *option = group->option;

    if (!option) {
        return true;
    }
    group->option = NULL;
    g_autofree char *arg = g_strdup(group->arg->str);
    g_string_truncate(group->arg, 0);
    return cmdline_apply(config, option, arg, location, errp);
}

/* [group] or [group "id"]; @id becomes "" when there is none. */
static bool split_header(const char *line, char group[MAX_NAME], char id[MAX_NAME])
{
    int end = 0;

    id[0] = '\0';
    if (sscanf(line, "[%63[^]\" ]]%n", group, &end) == 1 && end > 0 && !line[end]) {
        return true;
    }
    end = 0;
    return sscanf(line, "[%63[^]\" ] \"%63[^\"]\"]%n", group, id, &end) == 2 && end > 0 && !line[end];
}

static bool begin_group(FileGroup *group, const char *line, GError **errp)
{
    char name[MAX_NAME], id[MAX_NAME];

    if (!split_header(line, name, id)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "parse error");
        return false;
    }
    const CmdlineGroup *known = cmdline_find_group(name);
    if (!known) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "There is no option group '%s'", name);
        return false;
    }
    group->option = cmdline_find(known->option);
    if (id[0]) {
        append_pair(group, "id", id);
    }
    return true;
}

/* key = "value" */
static bool add_line(FileGroup *group, const char *line, GError **errp)
{
    g_auto(GStrv) halves = g_strsplit(line, "=", 2);
    char *key = g_strstrip(halves[0]), *value = halves[1] ? g_strstrip(halves[1]) : NULL;
    size_t len = value ? strlen(value) : 0;

    if (!key[0] || len < 2 || value[0] != '"' || value[len - 1] != '"') {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "parse error");
        return false;
    }
    if (!group->option) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "no group defined");
        return false;
    }
    value[len - 1] = '\0';
    append_pair(group, key, value + 1);
    return true;
}

static bool read_line(VmConfig *config, FileGroup *group, const char *line, const char *location,
                      GError **errp)
{
    if (line[0] == '\0' || line[0] == '#') {
        return true;
    }
    if (line[0] != '[') {
        return add_line(group, line, errp);
    }
    return end_group(config, group, location, errp) && begin_group(group, line, errp);
}

bool cmdline_parse_file_text(VmConfig *config, const char *name, const char *text, GError **errp)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    FileGroup group = {.arg = g_string_new(NULL)};
    bool ok = true;

    for (int i = 0; ok && lines[i]; i++) {
        ok = read_line(config, &group, g_strstrip(lines[i]), name, errp);
        if (!ok) {
            g_prefix_error(errp, "%s:%d: ", name, i + 1);
        }
    }
    ok = ok && end_group(config, &group, name, errp);
    g_string_free(group.arg, true);
    return ok;
}
