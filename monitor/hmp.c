/* SPDX-License-Identifier: BSD-2-Clause */
/* HMP sessions: prompt, lines, commands and their output. */
#include "hmp.h"

#include "config.h"
#include "line-editor.h"
#include "line-terminal.h"
#include "trace-monitor.h"
#include "util/error.h"

#include <string.h>

#define BANNER       "Godwit " GODWIT_VERSION " monitor - type 'help' for more information\r\n"
#define PROMPT       "(qemu) "
#define WAIT_POLL_MS 100
/* Bytes of echo between two looks at whether the client reads. */
#define ECHO_MAX 4096

typedef struct HmpSession {
    LineHistory *history; /* outlives clients */
    LineEditor *editor;
    LineTerminal *terminal; /* instead of the editor, at a terminal; NULL: none */
    guint wait_timer;       /* migrate without -d: looks whether it has ended */
} HmpSession;

/* ---- running a line ---- */

void hmp_printf(Hmp *hmp, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    g_string_append_vprintf(hmp->out, fmt, ap);
    va_end(ap);
}

/* @prefix: "info " or nothing; @name as it was typed. */
static void run_command(Hmp *hmp, const HmpCommand *command, const char *prefix, const char *name,
                        const char *line)
{
    g_autoptr(GError) err = NULL;
    HmpArgs args;

    if (!hmp_parse_args(command, line, hmp_last_format(hmp->ctx), &args, &err)) {
        hmp_printf(hmp, "%s\nTry \"help %s%s\" for more information\n", err->message, prefix, name);
        return;
    }
    if (!command->handler(hmp, &args, &err)) {
        hmp_printf(hmp, "Error: %s\n", err->message);
    }
    hmp_args_clear(&args);
}

/*
 * The name at *@p, which ends at a blank or at the slash of a format; moves *@p behind it.  The caller frees.
 */
static char *take_name(const char **p)
{
    while (g_ascii_isspace(**p)) {
        (*p)++;
    }
    const char *start = *p;
    while (**p && **p != '/' && !g_ascii_isspace(**p)) {
        (*p)++;
    }
    return g_strndup(start, (gsize)(*p - start));
}

/* Runs `info ITEM`; false: there is no item. */
static bool run_info(Hmp *hmp, const char *line)
{
    g_autofree char *name = take_name(&line);

    if (!*name) {
        return false;
    }
    const HmpCommand *command = hmp_command_find(hmp_info_commands, name, strlen(name));
    if (command) {
        run_command(hmp, command, "info ", name, line);
    } else {
        hmp_printf(hmp, "unknown command: 'info %s'\n", name);
    }
    return true;
}

void hmp_run_line(Hmp *hmp, const char *line)
{
    g_autofree char *name = take_name(&line);

    if (!*name && !*line) {
        return;
    }
    trace_monitor_hmp_command(name);
    const HmpCommand *command = hmp_command_find(hmp_commands, name, strlen(name));
    if (!command) {
        hmp_printf(hmp, "unknown command: '%s'\n", name);
    } else if (command->handler != hmp_info || !run_info(hmp, line)) {
        run_command(hmp, command, "", name, line);
    }
}

static void append_with_cr(GString *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n') {
            g_string_append_c(out, '\r');
        }
        g_string_append_c(out, *text);
    }
}

char *monitor_hmp_command(MonitorContext *ctx, const char *line)
{
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(GString) out = g_string_new(NULL);
    Hmp hmp = { .ctx = ctx, .out = text };

    hmp_run_line(&hmp, line);
    append_with_cr(out, text->str);
    return g_string_free(g_steal_pointer(&out), false);
}

/* ---- sessions ---- */

static void send_text(Monitor *mon, GString *text)
{
    monitor_write(mon, text->str, text->len);
    g_string_truncate(text, 0);
}

static void start_line(Monitor *mon)
{
    HmpSession *s = mon->session;
    g_autoptr(GString) out = g_string_new(NULL);

    if (s->terminal) {
        line_terminal_start(s->terminal);
        return;
    }
    line_editor_start(s->editor, out);
    send_text(mon, out);
}

/* Sends what a command has to say. */
static void send_output(Monitor *mon, const char *text)
{
    g_autoptr(GString) out = g_string_new(NULL);

    append_with_cr(out, text);
    send_text(mon, out);
}

static void line_entered(Monitor *mon, const char *line)
{
    HmpSession *s = mon->session;
    g_autoptr(GString) text = g_string_new(NULL);
    Hmp hmp = { .ctx = mon->ctx, .mon = mon, .history = s->history, .out = text };

    hmp_run_line(&hmp, line);
    send_output(mon, text->str);
    if (!s->wait_timer && !mon->ctx->shutting_down) {
        start_line(mon);
    }
}

/* ---- migrate without -d ---- */

static gboolean migration_ended(gpointer opaque)
{
    Monitor *mon = opaque;
    HmpSession *s = mon->session;

    if (migration_is_active(mon->ctx->migration)) {
        return G_SOURCE_CONTINUE;
    }
    g_autoptr(MigrationInfo) info = migration_query(mon->ctx->migration);
    if (info->has_status && info->status == MIGRATION_STATUS_FAILED && info->error_desc) {
        g_autofree char *text = g_strdup_printf("Error: %s\n", info->error_desc);
        send_output(mon, text);
    }
    s->wait_timer = 0;
    start_line(mon);
    monitor_unblock(mon);
    return G_SOURCE_REMOVE;
}

void hmp_wait_for_migration(Hmp *hmp)
{
    if (!hmp->mon) {
        return;
    }
    HmpSession *s = hmp->mon->session;
    monitor_block(hmp->mon);
    s->wait_timer = g_timeout_add(WAIT_POLL_MS, migration_ended, hmp->mon);
}

/* ---- the monitor's kind ---- */

static void terminal_line(const char *line, void *opaque)
{
    Monitor *mon = opaque;
    HmpSession *s = mon->session;

    line_history_add(s->history, line);
    line_entered(mon, line);
}

static void terminal_output(const char *buf, size_t len, void *opaque)
{
    monitor_write(opaque, buf, len);
}

static void hmp_opened(Monitor *mon)
{
    HmpSession *s = mon->session;

    monitor_write(mon, BANNER, strlen(BANNER));
    if (chardev_is_terminal(mon->chr) && !s->terminal) {
        s->terminal = line_terminal_new(PROMPT, hmp_complete, terminal_line, terminal_output, mon);
    }
    start_line(mon);
}

static void hmp_closed(Monitor *mon)
{
    HmpSession *s = mon->session;

    g_clear_handle_id(&s->wait_timer, g_source_remove);
    g_clear_pointer(&s->terminal, line_terminal_free);
}

static size_t hmp_consume(Monitor *mon, const char *data, size_t len)
{
    HmpSession *s = mon->session;
    g_autoptr(GString) out = g_string_new(NULL);
    g_autofree char *line = NULL;
    size_t used = 0;

    if (s->terminal) {
        line_terminal_keys(s->terminal, data, len);
        return len;
    }
    /* The echo grows with the square of the line: no more than the client takes. */
    while (used < len && !line && out->len < ECHO_MAX) {
        line = line_editor_key(s->editor, (uint8_t)data[used++], out);
    }
    send_text(mon, out);
    if (line) {
        line_entered(mon, line);
    }
    return used;
}

static void hmp_event(Monitor *mon, const json_t *event) {}

static void hmp_free(Monitor *mon)
{
    HmpSession *s = mon->session;

    hmp_closed(mon);
    line_editor_free(s->editor);
    g_ptr_array_unref(s->history);
    g_free(s);
}

void hmp_session_init(Monitor *mon)
{
    HmpSession *s = g_new0(HmpSession, 1);

    s->history = line_history_new();
    s->editor = line_editor_new(PROMPT, s->history, hmp_complete, mon->ctx);
    mon->session = s;
}

const MonitorKind hmp_monitor_kind = {
    .opened = hmp_opened,
    .closed = hmp_closed,
    .consume = hmp_consume,
    .event = hmp_event,
    .free = hmp_free,
};
