/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of the machine's sections; what is in them is migration's business. */
#include "system/vmstate.h"

void save_entry_list_add(SaveEntryList *list, SaveEntry *entry)
{
    SaveEntry **link = &list->first;

    while (*link) {
        g_assert(*link != entry);
        link = &(*link)->next;
    }
    entry->next = NULL;
    *link = entry;
}

void save_entry_list_remove(SaveEntryList *list, SaveEntry *entry)
{
    for (SaveEntry **link = &list->first; *link; link = &(*link)->next) {
        if (*link == entry) {
            *link = entry->next;
            entry->next = NULL;
            return;
        }
    }
}
