/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of callbacks that can fail: what the RAM round and the like are announced through. */
#ifndef GODWIT_UTIL_NOTIFIER_H
#define GODWIT_UTIL_NOTIFIER_H

#include <glib.h>
#include <stdbool.h>

typedef struct Notifier Notifier;

/* Returns false and sets @errp when it fails; @data is what the list's owner passes to notify. */
typedef bool (*NotifierFunc)(Notifier *notifier, void *data, GError **errp);

/* Embed one in the object that wants to be told.  The object owns it and removes it before it goes. */
struct Notifier {
    NotifierFunc notify;
    Notifier *next;     /* the list's */
};

/* Callbacks run in the order in which they were added.  A list belongs to one thread. */
typedef struct NotifierList {
    Notifier *first;
} NotifierList;

void notifier_list_add(NotifierList *list, Notifier *notifier);

/*
 * Removes @notifier; does nothing if it is not in the list.  A notifier may remove itself while it is
 * notified.
 */
void notifier_list_remove(NotifierList *list, Notifier *notifier);

/* Calls each notifier until one fails; the rest are then not called and its error is returned. */
bool notifier_list_notify(NotifierList *list, void *data, GError **errp);

#endif
