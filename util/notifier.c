/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of callbacks that can fail. */
#include "util/notifier.h"

void notifier_list_add(NotifierList *list, Notifier *notifier)
{
    Notifier **end = &list->first;

    while (*end) {
        end = &(*end)->next;
    }
    notifier->next = NULL;
    *end = notifier;
}

void notifier_list_remove(NotifierList *list, Notifier *notifier)
{
    for (Notifier **link = &list->first; *link; link = &(*link)->next) {
        if (*link == notifier) {
            *link = notifier->next;
            notifier->next = NULL;
            return;
        }
    }
}

bool notifier_list_notify(NotifierList *list, void *data, GError **errp)
{
    Notifier *next;

    for (Notifier *n = list->first; n; n = next) {
        next = n->next;     /* n may remove itself */
        if (!n->notify(n, data, errp)) {
            return false;
        }
    }
    return true;
}
