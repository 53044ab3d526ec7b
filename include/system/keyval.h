/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of options as text, "key=value,key=value": the one parser behind the command line, chardevs and
 * backends. */
#ifndef GODWIT_SYSTEM_KEYVAL_H
#define GODWIT_SYSTEM_KEYVAL_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds: a longer text, a longer key or more pairs are errors. */
#define KEYVAL_MAX_TEXT  (1u << 20)
#define KEYVAL_MAX_KEY   127u
#define KEYVAL_MAX_PAIRS 1024u

/*
 * Two dialects share the syntax; ",," is a literal comma in a value in both.
 * OPTS: a word without '=' is a switch: "server" means server=on, "nowait" means wait=off; with a warning.
 * STRICT: such a word is an error.
 * In both the very first word may stand without its key, which is then the implied key.
 */
typedef enum {
    KEYVAL_OPTS,
    KEYVAL_STRICT,
} KeyValDialect;

typedef struct KeyValPair {
    char *key;
    char *value;
    bool short_form; /* came as a switch */
} KeyValPair;

typedef struct KeyVal {
    GArray *pairs; /* of KeyValPair, in the order given */
} KeyVal;

/*
 * Parses @text.  @implied_key may be NULL.  An empty text is an empty list.  Errors are GODWIT_ERROR_INVALID,
 * in the words of the peers: "Expected '=' after parameter 'foo'", "Invalid parameter ''".
 */
KeyVal *keyval_parse(const char *text, const char *implied_key, KeyValDialect dialect, GError **errp);
void keyval_free(KeyVal *kv);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(KeyVal, keyval_free)

/* True if one of the words of @text is "help" or "?": the user asks for a list. */
bool keyval_wants_help(const char *text);

/* The value given last for @key, or NULL; owned by @kv. */
const char *keyval_get(const KeyVal *kv, const char *key);

/* Refuses a key that is not in the NULL-terminated list: "Invalid parameter 'foo'". */
bool keyval_check_keys(const KeyVal *kv, const char *const *known, GError **errp);

/* Each leaves @out alone when the key is absent, and returns false with an error when its value is bad. */
bool keyval_get_bool(const KeyVal *kv, const char *key, bool *out, GError **errp);
bool keyval_get_uint(const KeyVal *kv, const char *key, uint64_t max, uint64_t *out, GError **errp);
bool keyval_get_size(const KeyVal *kv, const char *key, uint64_t *out, GError **errp);

/* ---- the same rules for a single value; @name is used in the message ---- */

/* on yes true y, off no false n; lower case only.  "Parameter 'wait' expects 'on' or 'off'". */
bool keyval_parse_bool(const char *name, const char *text, bool *out, GError **errp);

/* Decimal, 0x hexadecimal or 0 octal, from 0 to @max.  "Parameter 'to' expects a number". */
bool keyval_parse_uint(const char *name, const char *text, uint64_t max, uint64_t *out, GError **errp);

/*
 * Bytes: a decimal number, perhaps with a fraction, and perhaps one of b k M G T P E (either case, powers of
 * 1024); without one it is multiplied by @unit.  Hexadecimal takes no suffix.  A fraction wants a suffix
 * other than b.
 */
bool keyval_parse_size(const char *name, const char *text, uint64_t unit, uint64_t *out, GError **errp);

/* Letters, digits, '-', '.', '_', starting with a letter: what an id= may be. */
bool keyval_check_id(const char *id, GError **errp);

/* @text with each comma doubled, so that it can be a value; the caller frees. */
char *keyval_escape(const char *text);

#endif
