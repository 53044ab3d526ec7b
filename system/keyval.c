/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of options as text: splitting, and the rules for booleans, numbers and sizes. */
#include "system/keyval.h"

#include "util/error.h"
#include "util/size-text.h"

#include <string.h>

static const char size_hint[] = "Optional suffix k, M, G, T, P or E means kilo-, mega-, giga-, tera-, peta-\n"
                                "and exabytes, respectively.";

static void pair_clear(void *p)
{
    KeyValPair *pair = p;

    g_free(pair->key);
    g_free(pair->value);
}

static KeyVal *keyval_new(void)
{
    KeyVal *kv = g_new0(KeyVal, 1);

    kv->pairs = g_array_new(false, true, sizeof(KeyValPair));
    g_array_set_clear_func(kv->pairs, pair_clear);
    return kv;
}

void keyval_free(KeyVal *kv)
{
    if (kv) {
        g_array_unref(kv->pairs);
        g_free(kv);
    }
}

/* Takes one value off @p, up to a lone comma or the end; the pointer is left behind the comma. */
static char *take_value(const char **p)
{
    GString *value = g_string_new(NULL);
    const char *s = *p;

    while (*s) {
        size_t plain = strcspn(s, ",");
        g_string_append_len(value, s, (gssize)plain);
        s += plain;
        if (s[0] != ',') {
            break;
        }
        if (s[1] != ',') {
            s++;
            break;
        }
        g_string_append_c(value, ',');
        s += 2;
    }
    *p = s;
    return g_string_free(value, false);
}

/* A word without '=': the implied key's value, a switch, or an error.  Takes over @word. */
static bool lone_word(KeyValPair *pair, char *word, const char *implied_key, KeyValDialect dialect,
                      GError **errp)
{
    if (implied_key) {
        pair->key = g_strdup(implied_key);
        pair->value = word;
        return true;
    }
    if (dialect == KEYVAL_STRICT) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Expected '=' after parameter '%s'", word);
        g_free(word);
        return false;
    }
    bool no = g_str_has_prefix(word, "no") && word[2];
    pair->key = g_strdup(no ? word + 2 : word);
    pair->value = g_strdup(no ? "off" : "on");
    pair->short_form = true;
    g_free(word);
    return true;
}

/* Reads one pair off @p. */
static bool take_pair(const char **p, KeyValPair *pair, const char *implied_key, KeyValDialect dialect,
                      GError **errp)
{
    size_t key_len = strcspn(*p, "=,");

    if ((*p)[key_len] != '=') {
        return lone_word(pair, take_value(p), implied_key, dialect, errp);
    }
    if (key_len == 0 || key_len > KEYVAL_MAX_KEY) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Invalid parameter '%.*s'",
                    (int)MIN(key_len, KEYVAL_MAX_KEY), *p);
        return false;
    }
    pair->key = g_strndup(*p, key_len);
    *p += key_len + 1;
    pair->value = take_value(p);
    return true;
}

KeyVal *keyval_parse(const char *text, const char *implied_key, KeyValDialect dialect, GError **errp)
{
    g_autoptr(KeyVal) kv = keyval_new();

    if (strlen(text) > KEYVAL_MAX_TEXT) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "option list is longer than %u bytes",
                    KEYVAL_MAX_TEXT);
        return NULL;
    }
    for (const char *p = text; *p;) {
        KeyValPair pair = {0};

        if (!take_pair(&p, &pair, p == text ? implied_key : NULL, dialect, errp)) {
            return NULL;
        }
        g_array_append_val(kv->pairs, pair);
        if (kv->pairs->len > KEYVAL_MAX_PAIRS) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "option list has more than %u members",
                        KEYVAL_MAX_PAIRS);
            return NULL;
        }
    }
    return g_steal_pointer(&kv);
}

bool keyval_wants_help(const char *text)
{
    for (const char *p = text; *p;) {
        g_autofree char *word = take_value(&p);

        if (strcmp(word, "help") == 0 || strcmp(word, "?") == 0) {
            return true;
        }
    }
    return false;
}

const char *keyval_get(const KeyVal *kv, const char *key)
{
    for (unsigned i = kv->pairs->len; i > 0; i--) {
        const KeyValPair *pair = &g_array_index(kv->pairs, KeyValPair, i - 1);

        if (strcmp(pair->key, key) == 0) {
            return pair->value;
        }
    }
    return NULL;
}

bool keyval_check_keys(const KeyVal *kv, const char *const *known, GError **errp)
{
    for (unsigned i = 0; i < kv->pairs->len; i++) {
        const KeyValPair *pair = &g_array_index(kv->pairs, KeyValPair, i);

        if (!g_strv_contains(known, pair->key)) {
            g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Invalid parameter '%s'", pair->key);
            return false;
        }
    }
    return true;
}

bool keyval_get_bool(const KeyVal *kv, const char *key, bool *out, GError **errp)
{
    const char *text = keyval_get(kv, key);

    return !text || keyval_parse_bool(key, text, out, errp);
}

bool keyval_get_uint(const KeyVal *kv, const char *key, uint64_t max, uint64_t *out, GError **errp)
{
    const char *text = keyval_get(kv, key);

    return !text || keyval_parse_uint(key, text, max, out, errp);
}

bool keyval_get_size(const KeyVal *kv, const char *key, uint64_t *out, GError **errp)
{
    const char *text = keyval_get(kv, key);

    return !text || keyval_parse_size(key, text, 1, out, errp);
}

bool keyval_parse_bool(const char *name, const char *text, bool *out, GError **errp)
{
    static const char *const yes[] = {"on", "yes", "true", "y", NULL};
    static const char *const no[] = {"off", "no", "false", "n", NULL};

    if (g_strv_contains(yes, text)) {
        *out = true;
        return true;
    }
    if (g_strv_contains(no, text)) {
        *out = false;
        return true;
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter '%s' expects 'on' or 'off'", name);
    return false;
}

bool keyval_parse_uint(const char *name, const char *text, uint64_t max, uint64_t *out, GError **errp)
{
    char *end = NULL;

    errno = 0;
    uint64_t value = g_ascii_isdigit(text[0]) ? g_ascii_strtoull(text, &end, 0) : 0;
    if (!end || *end || end == text) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Parameter '%s' expects a number", name);
        return false;
    }
    if (errno == ERANGE || value > max) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Value '%s' is out of range for parameter '%s': at most %" G_GUINT64_FORMAT, text, name,
                    max);
        return false;
    }
    *out = value;
    return true;
}

bool keyval_parse_size(const char *name, const char *text, uint64_t unit, uint64_t *out, GError **errp)
{
    /* A fraction wants a suffix, whatever the unit. */
    switch (size_text_parse(text, strchr(text, '.') ? 1 : unit, out)) {
    case NUMBER_TEXT_OK:
        return true;
    case NUMBER_TEXT_OUT_OF_RANGE:
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "Value '%s' is out of range for parameter '%s'",
                    text, name);
        return false;
    default:
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                    "Parameter '%s' expects a non-negative number below 2^64\n%s", name, size_hint);
        return false;
    }
}

bool keyval_check_id(const char *id, GError **errp)
{
    const char *p = id;

    if (g_ascii_isalpha(*p)) {
        while (g_ascii_isalnum(*p) || (*p && strchr("-._", *p))) {
            p++;
        }
        if (!*p) {
            return true;
        }
    }
    g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID,
                "Parameter 'id' expects an identifier\n"
                "Identifiers consist of letters, digits, '-', '.', '_', starting with a letter.");
    return false;
}

char *keyval_escape(const char *text)
{
    g_auto(GStrv) parts = g_strsplit(text, ",", -1);

    return g_strjoinv(",,", parts);
}
