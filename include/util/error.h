/* SPDX-License-Identifier: BSD-2-Clause */
/* The GError domain of Godwit and what each code means to a caller. */
#ifndef GODWIT_UTIL_ERROR_H
#define GODWIT_UTIL_ERROR_H

#include <glib.h>
#include <stdbool.h>

#define GODWIT_ERROR (godwit_error_quark())
GQuark godwit_error_quark(void);

/*
 * The code says who has to do something about it; the message says what was
 * being done, to what, and what came back.  QMP maps the last three codes to
 * error classes of the same name and all others to GenericError.
 */
typedef enum {
    GODWIT_ERROR_FAILED,            /* none of the others */
    GODWIT_ERROR_INVALID,           /* a value from the user is out of range or malformed */
    GODWIT_ERROR_STATE,             /* right request, wrong moment */
    GODWIT_ERROR_UNSUPPORTED,       /* known, but not supported (yet, here, or in this build) */
    GODWIT_ERROR_IO,                /* the kernel refused a read, write, open, ... */
    GODWIT_ERROR_EOF,               /* the peer closed before all data was read */
    GODWIT_ERROR_PROTOCOL,          /* a byte from the peer is wrong; the message names the field */
    GODWIT_ERROR_CANCELLED,         /* the user asked for it */
    GODWIT_ERROR_COMMAND_NOT_FOUND,
    GODWIT_ERROR_DEVICE_NOT_FOUND,
    GODWIT_ERROR_DEVICE_NOT_ACTIVE,
} GodwitError;

/* Sets *errp (if not NULL) to a GODWIT_ERROR of @code with "FORMAT: strerror(errnum)". */
void error_set_errno(GError **errp, GodwitError code, int errnum, const char *fmt, ...)
    G_GNUC_PRINTF(4, 5);

/*
 * Sets *errp (if not NULL) to a GODWIT_ERROR_PROTOCOL and returns false.  What the arguments quote of a
 * peer may be any bytes: the message is UTF-8 all the same.
 */
bool error_set_protocol(GError **errp, const char *fmt, ...) G_GNUC_PRINTF(2, 3);

/* Sets *errp (if not NULL) to a GODWIT_ERROR_INVALID and returns false. */
bool error_set_invalid(GError **errp, const char *fmt, ...) G_GNUC_PRINTF(2, 3);

#endif
