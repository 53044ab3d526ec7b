/* SPDX-License-Identifier: BSD-2-Clause */
/* The text of -object and of HMP's object_add, in both its forms. */
#ifndef GODWIT_MONITOR_OBJECT_TEXT_H
#define GODWIT_MONITOR_OBJECT_TEXT_H

#include "system/backend.h"

/*
 * Makes the object that @text describes: "memory-backend-ram,id=m0,size=1G", or a JSON object as object-add
 * takes it, in which sizes are integers.  An error of code GODWIT_ERROR_INVALID is one of the text; a second
 * line of a message is a hint.  Main thread.
 */
MemoryBackend *object_add_text(MemoryBackendSet *set, const char *text, GError **errp);

#endif
