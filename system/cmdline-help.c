/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of options as text: --help, and the options of the man page. */
#include "cmdline-internal.h"

#include <string.h>

#define HELP_INDENT 24u

static const char *const section_titles[SECTION__MAX] = {
    [SECTION_MACHINE] = "Machine",     [SECTION_MEMORY] = "Memory",
    [SECTION_MIGRATION] = "Migration", [SECTION_MONITOR] = "Monitors and character devices",
    [SECTION_PROCESS] = "Process",     [SECTION_DEBUG] = "Tracing and debugging",
    [SECTION_INFO] = "Information",    [SECTION_COMPAT] = "Accepted for compatibility",
};

/* "-machine, -M NAME[,...]" */
static char *heading(const CmdlineOption *o)
{
    return g_strdup_printf("-%s%s%s%s%s", o->name, o->alias ? ", -" : "", o->alias ? o->alias : "",
                           o->arg ? " " : "", o->arg ? o->arg : "");
}

/* Appends @text broken at blanks so that no line passes @columns; the cursor is at @indent already. */
static void append_wrapped(GString *out, const char *text, unsigned indent, unsigned columns)
{
    g_auto(GStrv) words = g_strsplit(text, " ", -1);
    unsigned at = indent;

    for (int i = 0; words[i]; i++) {
        unsigned len = (unsigned)g_utf8_strlen(words[i], -1);

        if (at > indent && at + 1 + len > columns) {
            g_string_append_printf(out, "\n%*s", (int)indent, "");
            at = indent;
        }
        if (at > indent) {
            g_string_append_c(out, ' ');
            at++;
        }
        g_string_append(out, words[i]);
        at += len;
    }
    g_string_append_c(out, '\n');
}

static void append_option(GString *out, const CmdlineOption *o, unsigned columns)
{
    g_autofree char *head = heading(o);
    size_t width = strlen(head);

    g_string_append_printf(out, "  %s", head);
    if (width + 4 > HELP_INDENT) {
        g_string_append_printf(out, "\n%*s", (int)HELP_INDENT, "");
    } else {
        g_string_append_printf(out, "%*s", (int)(HELP_INDENT - 2 - width), "");
    }
    append_wrapped(out, o->help, HELP_INDENT, columns);
}

char *cmdline_help(const char *program, unsigned columns)
{
    GString *out = g_string_new(NULL);
    unsigned width = CLAMP(columns, 60u, 110u);

    g_string_append_printf(out, "usage: %s [options]\n\n", program);
    append_wrapped(out,
                   "Runs a virtual machine that can be migrated to and from QEMU. One dash or two; "
                   "PROPERTY=VALUE lists are separated by commas, and a comma inside a value is doubled.",
                   0, width);
    for (int s = 0; s < SECTION__MAX; s++) {
        g_string_append_printf(out, "\n%s:\n", section_titles[s]);
        for (size_t i = 0; i < cmdline_n_options; i++) {
            if (cmdline_options[i].section == (CmdlineSection)s) {
                append_option(out, &cmdline_options[i], width);
            }
        }
    }
    return g_string_free(out, false);
}

/* ---- man ---- */

/* Appends @text with what troff would take for its own made harmless. */
static void append_roff(GString *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        switch (*p) {
        case '\\':
            g_string_append(out, "\\e");
            break;
        case '-':
            g_string_append(out, "\\-");
            break;
        case '.':
        case '\'':
            g_string_append(out, p == text ? "\\&" : "");
            g_string_append_c(out, *p);
            break;
        default:
            g_string_append_c(out, *p);
        }
    }
}

/* Bold option names, italic argument. */
static void append_roff_heading(GString *out, const CmdlineOption *o)
{
    g_string_append(out, ".TP\n\\fB\\-");
    append_roff(out, o->name);
    if (o->alias) {
        g_string_append(out, "\\fR, \\fB\\-");
        append_roff(out, o->alias);
    }
    if (o->arg) {
        g_string_append(out, "\\fR \\fI");
        append_roff(out, o->arg);
    }
    g_string_append(out, "\\fR\n");
}

char *cmdline_help_man(void)
{
    GString *out = g_string_new(NULL);

    for (int s = 0; s < SECTION__MAX; s++) {
        g_string_append_printf(out, ".SS %s\n", section_titles[s]);
        for (size_t i = 0; i < cmdline_n_options; i++) {
            const CmdlineOption *o = &cmdline_options[i];

            if (o->section == (CmdlineSection)s) {
                append_roff_heading(out, o);
                append_roff(out, o->help);
                g_string_append_c(out, '\n');
            }
        }
    }
    return g_string_free(out, false);
}
