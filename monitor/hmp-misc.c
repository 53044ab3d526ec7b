/* SPDX-License-Identifier: BSD-2-Clause */
/* HMP: help, history, logs and trace events. */
#include "hmp.h"

#include "qapi/qapi-commands-misc.h"
#include "util/error.h"
#include "util/trace.h"

#include <string.h>

bool hmp_help(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    const char *name = hmp_text(args, "cmd");

    if (name && strcmp(name, "log") == 0) {
        hmp_show_log_items(hmp);
    } else {
        hmp_show_help(hmp, name);
    }
    return true;
}

/* With an item, a line does not come here. */
bool hmp_info(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    hmp_show_info_help(hmp);
    return true;
}

bool hmp_clear(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    hmp_printf(hmp, "\033[H\033[2J\033[3J");
    return true;
}

bool hmp_info_history(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    for (guint i = 0; hmp->history && i < hmp->history->len; i++) {
        hmp_printf(hmp, "%u: '%s'\n", i, (const char *)g_ptr_array_index(hmp->history, i));
    }
    return true;
}

/* ---- trace events ---- */

bool hmp_trace_event(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    trace_event_set_state_arg arg = { .name = (char *)hmp_text(args, "name"),
                                      .enable = hmp_on(args, "state") };
    g_autoptr(GError) err = NULL;

    if (!qmp_trace_event_set_state(hmp->ctx, &arg, &err)) {
        hmp_printf(hmp, "%s\n", err->message);
    }
    return true;
}

bool hmp_info_trace_events(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    trace_event_get_state_arg arg = { .name =
                                          (char *)(hmp_has(args, "name") ? hmp_text(args, "name") : "*") };
    g_autoptr(GError) err = NULL;
    g_autoptr(TraceEventInfoList) list = qmp_trace_event_get_state(hmp->ctx, &arg, &err);

    if (!list) {
        hmp_printf(hmp, "%s\n", err->message);
        return true;
    }
    for (size_t i = 0; i < list->count; i++) {
        hmp_printf(hmp, "%s : state %d\n", list->items[i]->name,
                   list->items[i]->state == TRACE_EVENT_STATE_ENABLED);
    }
    return true;
}

/* ---- logs ---- */

void hmp_show_log_items(Hmp *hmp)
{
    hmp_printf(hmp, "Log items (comma separated):\n");
    hmp_printf(hmp, "%-15s log nothing\n", "none");
    hmp_printf(hmp, "%-15s switch trace events on\n", "trace:PATTERN");
    hmp_printf(hmp, "\nUse \"log trace:help\" to get a list of trace events.\n\n");
}

static void show_trace_names(Hmp *hmp)
{
    for (TraceEvent *e = trace_event_next(NULL); e; e = trace_event_next(e)) {
        hmp_printf(hmp, "%s\n", e->name);
    }
}

static void log_item(Hmp *hmp, const char *item)
{
    g_autoptr(GError) err = NULL;

    if (strcmp(item, "none") == 0) {
        trace_enable_pattern("-*", NULL);
    } else if (strcmp(item, "trace:help") == 0) {
        show_trace_names(hmp);
    } else if (g_str_has_prefix(item, "trace:")) {
        if (!trace_enable_pattern(item + strlen("trace:"), &err)) {
            hmp_printf(hmp, "warning: %s\n", err->message);
        }
    } else {
        hmp_show_log_items(hmp);
    }
}

bool hmp_log(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_auto(GStrv) items = g_strsplit(hmp_text(args, "items"), ",", -1);

    for (char **item = items; *item; item++) {
        log_item(hmp, *item);
    }
    return true;
}

bool hmp_logfile(Hmp *hmp, const HmpArgs *args, GError **errp)
{
    g_autoptr(GError) err = NULL;

    if (!trace_set_log_file(hmp_text(args, "filename"), &err)) {
        hmp_printf(hmp, "%s\n", err->message);
    }
    return true;
}
