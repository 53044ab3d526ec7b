/* SPDX-License-Identifier: BSD-2-Clause */
/* Fault points: parsing GODWIT_FAULT and doing what it says. */
#include "util/fault.h"

#include "trace-util.h"
#include "util/error.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define FAULT_MAX_DELAY_MS (60 * 1000)

#ifdef CONFIG_FAULT_INJECTION
#include "fault-points.h"

typedef enum { FAULT_ERROR, FAULT_KILL, FAULT_STOP, FAULT_DELAY } FaultAction;

static const char *const action_names[] = {
    [FAULT_ERROR] = "error", [FAULT_KILL] = "kill", [FAULT_STOP] = "stop", [FAULT_DELAY] = "delay",
};

typedef struct Fault {
    char *name;
    unsigned pass;          /* acts at this pass, counted from 1 */
    FaultAction action;
    unsigned delay_ms;
    int passes;             /* atomic */
} Fault;

/*
 * Written by the once-initialiser or by fault_configure(), whose caller
 * promises that nobody passes a point meanwhile; read-only otherwise.
 */
static GPtrArray *faults;
static gsize faults_ready;

const char *const *fault_points(void)
{
    return fault_point_names;
}

static void fault_free(void *opaque)
{
    Fault *f = opaque;

    g_free(f->name);
    g_free(f);
}

/* "error", "kill", "stop" or "delay=MS". */
static bool parse_action(Fault *f, const char *text)
{
    guint64 ms;

    if (g_str_has_prefix(text, "delay=")) {
        f->action = FAULT_DELAY;
        if (!g_ascii_string_to_unsigned(text + strlen("delay="), 10, 0, FAULT_MAX_DELAY_MS, &ms, NULL)) {
            return false;
        }
        f->delay_ms = ms;
        return true;
    }
    for (FaultAction a = FAULT_ERROR; a <= FAULT_STOP; a++) {
        if (strcmp(text, action_names[a]) == 0) {
            f->action = a;
            return true;
        }
    }
    return false;
}

static Fault *fault_parse(const char *text, GError **errp)
{
    g_auto(GStrv) part = g_strsplit(text, ":", 3);
    guint n = g_strv_length(part);
    Fault *f = g_new0(Fault, 1);
    guint64 pass;

    if (n < 2 || *part[0] == '\0' ||
        !g_ascii_string_to_unsigned(part[1], 10, 1, G_MAXINT, &pass, NULL) ||
        (n == 3 && !parse_action(f, part[2]))) {
        g_set_error(
            errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
            "GODWIT_FAULT: '%s' is not NAME:N[:error|kill|stop|delay=MS] with N from 1 and MS up to %d", text,
            FAULT_MAX_DELAY_MS);
        fault_free(f);
        return NULL;
    }
    f->name = g_strdup(part[0]);
    f->pass = pass;
    return f;
}

/* The faults that @spec describes, or NULL.  With a NULL @errp, bad entries are skipped. */
static GPtrArray *fault_parse_list(const char *spec, GError **errp)
{
    g_autoptr(GPtrArray) list = g_ptr_array_new_with_free_func(fault_free);
    g_auto(GStrv) entries = g_strsplit(spec ? spec : "", ",", -1);

    for (size_t i = 0; entries[i]; i++) {
        Fault *f = fault_parse(entries[i], errp);

        if (f) {
            g_ptr_array_add(list, f);
        } else if (errp) {
            return NULL;
        }
    }
    return g_steal_pointer(&list);
}

static void faults_from_environment(void)
{
    if (g_once_init_enter(&faults_ready)) {
        GPtrArray *list = fault_parse_list(g_getenv("GODWIT_FAULT"), NULL);

        if (list->len == 0) {
            g_clear_pointer(&list, g_ptr_array_unref);
        }
        faults = list;
        g_once_init_leave(&faults_ready, 1);
    }
}

bool fault_configure(const char *spec, GError **errp)
{
    GError *err = NULL;
    GPtrArray *list = fault_parse_list(spec, &err);

    if (!list) {
        g_propagate_error(errp, err);
        return false;
    }
    faults_from_environment();
    g_clear_pointer(&faults, g_ptr_array_unref);
    faults = list;
    return true;
}

bool fault_check_environment(GError **errp)
{
    GError *err = NULL;
    g_autoptr(GPtrArray) list = fault_parse_list(g_getenv("GODWIT_FAULT"), &err);

    if (!list) {
        g_propagate_error(errp, err);
        return false;
    }
    for (guint i = 0; i < list->len; i++) {
        const Fault *f = g_ptr_array_index(list, i);

        if (!g_strv_contains(fault_point_names, f->name)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                        "GODWIT_FAULT: there is no fault point '%s'", f->name);
            return false;
        }
    }
    return true;
}

static bool fault_act(const Fault *f, GError **errp)
{
    trace_fault_hit(f->name, f->pass, action_names[f->action]);
    switch (f->action) {
    case FAULT_ERROR:
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "fault injected at '%s', pass %u", f->name,
                    f->pass);
        return true;
    case FAULT_KILL:
        kill(getpid(), SIGKILL);
        break;
    case FAULT_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case FAULT_DELAY:
        g_usleep(f->delay_ms * 1000UL);
        break;
    }
    return false;
}

bool fault_point(const char *name, GError **errp)
{
    const Fault *due = NULL;

    faults_from_environment();
    trace_fault_pass(name);
    if (G_LIKELY(!faults)) {
        return false;
    }
    /* All entries of this name count, also behind the one that is due. */
    for (guint i = 0; i < faults->len; i++) {
        Fault *f = g_ptr_array_index(faults, i);

        if (strcmp(f->name, name) == 0 && (unsigned)g_atomic_int_add(&f->passes, 1) + 1 == f->pass) {
            due = f;
        }
    }
    return due && fault_act(due, errp);
}

#else /* CONFIG_FAULT_INJECTION */

const char *const *fault_points(void)
{
    static const char *const none[] = { NULL };

    return none;
}

static bool refuse(const char *spec, GError **errp)
{
    if (spec && *spec) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED,
                    "GODWIT_FAULT: this build has no fault points");
        return false;
    }
    return true;
}

bool fault_check_environment(GError **errp)
{
    return refuse(g_getenv("GODWIT_FAULT"), errp);
}

bool fault_configure(const char *spec, GError **errp)
{
    return refuse(spec, errp);
}

#endif
