/* SPDX-License-Identifier: BSD-2-Clause */
/* The GError domain of Godwit. */
#include "util/error.h"

#include <stdarg.h>

/* G_DEFINE_QUARK, but with a store that other threads may see at any moment. */
GQuark godwit_error_quark(void)
{
    static guint quark;
    guint known = __atomic_load_n(&quark, __ATOMIC_RELAXED);

    if (G_UNLIKELY(!known)) {
        known = g_quark_from_static_string("godwit-error-quark");
        __atomic_store_n(&quark, known, __ATOMIC_RELAXED);
    }
    return known;
}

void error_set_errno(GError **errp, GodwitError code, int errnum, const char *fmt, ...)
{
    if (!errp) {
        return;
    }

    va_list ap;
    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    g_set_error(errp, GODWIT_ERROR, code, "%s: %s", text, g_strerror(errnum));
}

bool error_set_protocol(GError **errp, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    g_set_error_literal(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, valid);
    return false;
}

bool error_set_invalid(GError **errp, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (errp) {
        *errp = g_error_new_valist(GODWIT_ERROR, GODWIT_ERROR_INVALID, fmt, ap);
    }
    va_end(ap);
    return false;
}
