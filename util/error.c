/* SPDX-License-Identifier: BSD-2-Clause */
/* The GError domain of Godwit. */
#include "util/error.h"

#include <stdarg.h>

G_DEFINE_QUARK(godwit-error-quark, godwit_error)

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
