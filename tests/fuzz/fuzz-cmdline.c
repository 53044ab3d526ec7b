/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzz target: the command line, one word a line; what follows a line "%%" is the text of a configuration
 * file. */
#include "system/cmdline.h"
#include "system/keyval.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure has words for the user, and only a failure has. */
static void check_verdict(bool ok, GError **err)
{
    g_assert_true(ok == (*err == NULL));
    g_assert_true(ok || (*err)->message[0] != '\0');
    g_clear_error(err);
}

/* Whatever the words were, the result can be walked. */
static void check_config(const VmConfig *config)
{
    for (unsigned i = 0; i < config->globals->len; i++) {
        const ConfigGlobal *g = g_ptr_array_index(config->globals, i);
        g_assert_true(g->driver && g->property && g->value);
    }
    for (unsigned i = 0; i < config->monitors->len; i++) {
        const ConfigMonitor *m = g_ptr_array_index(config->monitors, i);
        g_assert_true(m->device && m->location);
        g_assert_true(m->control || !m->pretty);
    }
    g_assert_true(config->cpus > 0);
    g_assert_true(config->cpus_error || config->cpus <= config->max_cpus);
}

/* What has been escaped comes back as it was. */
static void check_escape(const char *word)
{
    g_autofree char *escaped = keyval_escape(word);
    g_autoptr(GError) err = NULL;

    if (word[0] && !strchr(word, '=')) {
        g_autoptr(KeyVal) kv = keyval_parse(escaped, "k", KEYVAL_STRICT, &err);
        g_assert_no_error(err);
        g_assert_cmpstr(keyval_get(kv, "k"), ==, word);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_autofree char *text = g_strndup((const char *)data, size);
    g_auto(GStrv) halves = g_strsplit(text, "\n%%\n", 2);
    g_autofree char *line = g_strconcat("godwit\n", halves[0] ? halves[0] : "", NULL);
    g_auto(GStrv) argv = g_strsplit(line, "\n", CMDLINE_MAX_WORDS + 10);
    g_autoptr(VmConfig) config = vm_config_new();
    g_autoptr(GError) err = NULL;

    bool ok = cmdline_parse(config, (int)g_strv_length(argv), argv, &err);
    check_verdict(ok, &err);
    if (ok && halves[0] && halves[1]) {
        ok = cmdline_parse_file_text(config, "file", halves[1], &err);
        check_verdict(ok, &err);
    }
    check_config(config);
    if (ok) {
        check_verdict(cmdline_finish(config, &err), &err);
    }
    check_escape(argv[g_strv_length(argv) - 1]);
    return 0;
}
