/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the notifier lists: order, failure, removal. */
#include "util/error.h"
#include "util/notifier.h"

typedef struct Listener {
    Notifier notifier;
    char letter;
    bool fails;
    NotifierList *leave;    /* removes itself from this list */
} Listener;

/* Appends the letter to the GString that is the data. */
static bool write_letter(Notifier *notifier, void *data, GError **errp)
{
    Listener *l = (Listener *)notifier;

    g_string_append_c(data, l->letter);
    if (l->leave) {
        notifier_list_remove(l->leave, notifier);
    }
    if (l->fails) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "%c failed", l->letter);
    }
    return !l->fails;
}

static void expect(NotifierList *list, bool ok, const char *letters)
{
    g_autoptr(GString) text = g_string_new("");
    g_autoptr(GError) err = NULL;

    g_assert_true(notifier_list_notify(list, text, &err) == ok);
    g_assert_true(ok == !err);
    g_assert_cmpstr(text->str, ==, letters);
}

static void test_list(void)
{
    NotifierList list = { 0 };
    Listener a = { .notifier.notify = write_letter, .letter = 'a' };
    Listener b = { .notifier.notify = write_letter, .letter = 'b' };
    Listener c = { .notifier.notify = write_letter, .letter = 'c' };

    expect(&list, true, "");
    notifier_list_add(&list, &a.notifier);
    notifier_list_add(&list, &b.notifier);
    notifier_list_add(&list, &c.notifier);
    expect(&list, true, "abc");

    b.fails = true;
    expect(&list, false, "ab");
    b.fails = false;

    notifier_list_remove(&list, &a.notifier);
    notifier_list_remove(&list, &a.notifier);
    expect(&list, true, "bc");
    notifier_list_add(&list, &a.notifier);
    expect(&list, true, "bca");
    notifier_list_remove(&list, &c.notifier);
    notifier_list_remove(&list, &b.notifier);
    notifier_list_remove(&list, &a.notifier);
    expect(&list, true, "");
}

static void test_leave(void)
{
    NotifierList list = { 0 };
    Listener l[3];

    for (int i = 0; i < 3; i++) {
        l[i] = (Listener){ .notifier.notify = write_letter, .letter = 'a' + i, .leave = &list };
        notifier_list_add(&list, &l[i].notifier);
    }
    l[1].leave = NULL;
    expect(&list, true, "abc");
    expect(&list, true, "b");

    g_autoptr(GString) text = g_string_new("");
    l[1].fails = true;
    g_assert_false(notifier_list_notify(&list, text, NULL));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/notifier/list", test_list);
    g_test_add_func("/notifier/leave", test_leave);
    return g_test_run();
}
