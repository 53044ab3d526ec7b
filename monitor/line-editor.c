/* SPDX-License-Identifier: BSD-2-Clause */
/* LineEditor: keystrokes that come over a socket to lines, with the echo that HMP clients expect. */
#include "line-editor.h"

#include <stdbool.h>
#include <string.h>

#define CONTROL(letter) ((letter)&0x1f)
#define ESCAPE          0x1b

/* The first bytes of a key that sends several. */
typedef enum {
    KEY_PLAIN,
    KEY_ESCAPE,  /* ESC */
    KEY_BRACKET, /* ESC [, maybe digits */
    KEY_OTHER,   /* ESC O */
} KeyState;

struct LineEditor {
    const char *prompt;
    LineHistory *history;
    LineComplete complete;
    void *opaque;

    KeyState key;
    unsigned key_number; /* the digits of ESC [ 3 ~ */

    GString *line;
    size_t cursor;
    guint recalled; /* index in history of the line shown; its length: none */

    GString *shown; /* what the client's screen has */
    size_t shown_cursor;
};

LineEditor *line_editor_new(const char *prompt, LineHistory *history, LineComplete complete, void *opaque)
{
    LineEditor *e = g_new0(LineEditor, 1);

    e->prompt = prompt;
    e->history = history;
    e->complete = complete;
    e->opaque = opaque;
    e->line = g_string_new(NULL);
    e->shown = g_string_new(NULL);
    return e;
}

void line_editor_free(LineEditor *e)
{
    if (!e) {
        return;
    }
    g_string_free(e->line, true);
    g_string_free(e->shown, true);
    g_free(e);
}

/* ---- the screen ---- */

static void append_times(GString *out, const char *text, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        g_string_append(out, text);
    }
}

static void move_cursor(LineEditor *e, size_t to, GString *out)
{
    if (to < e->shown_cursor) {
        append_times(out, "\033[D", e->shown_cursor - to);
    } else {
        append_times(out, "\033[C", to - e->shown_cursor);
    }
    e->shown_cursor = to;
}

static void redraw(LineEditor *e, GString *out)
{
    if (!g_string_equal(e->line, e->shown)) {
        move_cursor(e, 0, out);
        g_string_append_len(out, e->line->str, (gssize)e->line->len);
        g_string_append(out, "\033[K");
        g_string_assign(e->shown, e->line->str);
        e->shown_cursor = e->line->len;
    }
    move_cursor(e, e->cursor, out);
}

static void show_prompt(LineEditor *e, GString *out)
{
    g_string_append(out, e->prompt);
    g_string_truncate(e->shown, 0);
    e->shown_cursor = 0;
}

void line_editor_start(LineEditor *e, GString *out)
{
    g_string_truncate(e->line, 0);
    e->cursor = 0;
    e->key = KEY_PLAIN;
    e->recalled = e->history->len;
    show_prompt(e, out);
}

static void clear_screen(LineEditor *e, GString *out)
{
    g_string_append(out, "\033[2J\033[1;1H");
    show_prompt(e, out);
}

/* ---- the line ---- */

static void insert_text(LineEditor *e, const char *text, size_t len)
{
    if (e->line->len + len <= LINE_EDITOR_MAX) {
        g_string_insert_len(e->line, (gssize)e->cursor, text, (gssize)len);
        e->cursor += len;
    }
}

static void erase(LineEditor *e, size_t from, size_t to)
{
    g_string_erase(e->line, (gssize)from, (gssize)(to - from));
    e->cursor = from;
}

static void delete_left(LineEditor *e)
{
    if (e->cursor > 0) {
        erase(e, e->cursor - 1, e->cursor);
    }
}

static void delete_under(LineEditor *e)
{
    if (e->cursor < e->line->len) {
        erase(e, e->cursor, e->cursor + 1);
    }
}

static void delete_word(LineEditor *e)
{
    size_t from = e->cursor;

    while (from > 0 && g_ascii_isspace(e->line->str[from - 1])) {
        from--;
    }
    while (from > 0 && !g_ascii_isspace(e->line->str[from - 1])) {
        from--;
    }
    erase(e, from, e->cursor);
}

static void move_left(LineEditor *e)
{
    e->cursor -= e->cursor > 0;
}

static void move_right(LineEditor *e)
{
    e->cursor += e->cursor < e->line->len;
}

static void set_line(LineEditor *e, const char *text)
{
    g_string_assign(e->line, text);
    e->cursor = e->line->len;
}

static void recall_older(LineEditor *e)
{
    if (e->recalled > 0) {
        e->recalled--;
        set_line(e, g_ptr_array_index(e->history, e->recalled));
    }
}

static void recall_newer(LineEditor *e)
{
    if (e->recalled >= e->history->len) {
        return;
    }
    e->recalled++;
    set_line(e, e->recalled < e->history->len ? g_ptr_array_index(e->history, e->recalled) : "");
}

/* ---- completion ---- */

size_t line_editor_common_prefix(char *const *words)
{
    size_t len = strlen(words[0]);

    for (size_t i = 1; words[i]; i++) {
        size_t same = 0;
        while (same < len && words[i][same] == words[0][same]) {
            same++;
        }
        len = same;
    }
    return len;
}

void line_editor_columns(GString *out, char *const *words, const char *newline)
{
    size_t width = 10;

    for (size_t i = 0; words[i]; i++) {
        width = MAX(width, strlen(words[i]) + 2);
    }
    size_t per_row = MAX(80 / width, 1);
    for (size_t i = 0; words[i]; i++) {
        g_string_append_printf(out, "%-*s", (int)width, words[i]);
        if (i % per_row == per_row - 1 || !words[i + 1]) {
            g_string_append(out, newline);
        }
    }
}

static void complete_line(LineEditor *e, GString *out)
{
    g_autofree char *before = g_strndup(e->line->str, e->cursor);
    size_t word_len = 0;
    g_auto(GStrv) words = e->complete(before, &word_len, e->opaque);

    if (!words || !words[0]) {
        return;
    }
    insert_text(e, words[0] + word_len, line_editor_common_prefix(words) - word_len);
    if (!words[1]) {
        insert_text(e, " ", 1);
        return;
    }
    g_string_append(out, "\r\n");
    line_editor_columns(out, words, "\r\n");
    show_prompt(e, out);
}

/* ---- keys ---- */

static void plain_key(LineEditor *e, uint8_t c, GString *out)
{
    switch (c) {
    case CONTROL('A'):
        e->cursor = 0;
        break;
    case CONTROL('D'):
        delete_under(e);
        break;
    case CONTROL('E'):
        e->cursor = e->line->len;
        break;
    case CONTROL('H'):
    case 0x7f:
        delete_left(e);
        break;
    case '\t':
        complete_line(e, out);
        break;
    case CONTROL('L'):
        clear_screen(e, out);
        break;
    case CONTROL('N'):
        recall_newer(e);
        break;
    case CONTROL('P'):
        recall_older(e);
        break;
    case CONTROL('U'):
        erase(e, 0, e->cursor);
        break;
    case CONTROL('W'):
        delete_word(e);
        break;
    case ESCAPE:
        e->key = KEY_ESCAPE;
        break;
    default:
        if (c >= ' ') {
            insert_text(e, (const char *)&c, 1);
        }
        break;
    }
}

/* ESC [ NUMBER ~ */
static void numbered_key(LineEditor *e)
{
    switch (e->key_number) {
    case 1:
        e->cursor = 0;
        break;
    case 3:
        delete_under(e);
        break;
    case 4:
        e->cursor = e->line->len;
        break;
    default:
        break;
    }
}

/* The end of ESC [ ... */
static void bracket_key(LineEditor *e, uint8_t c)
{
    switch (c) {
    case 'A':
    case 'F':
        recall_older(e);
        break;
    case 'B':
    case 'E':
        recall_newer(e);
        break;
    case 'C':
        move_right(e);
        break;
    case 'D':
        move_left(e);
        break;
    case '~':
        numbered_key(e);
        break;
    default:
        break;
    }
}

static void key_sequence(LineEditor *e, uint8_t c)
{
    KeyState key = e->key;

    if (key == KEY_ESCAPE && (c == '[' || c == 'O')) {
        e->key = c == '[' ? KEY_BRACKET : KEY_OTHER;
        e->key_number = 0;
        return;
    }
    if (key == KEY_BRACKET && g_ascii_isdigit(c)) {
        e->key_number = MIN(e->key_number * 10 + (c - '0'), 1000);
        return;
    }
    e->key = KEY_PLAIN;
    if (key == KEY_BRACKET) {
        bracket_key(e, c);
    }
}

char *line_editor_key(LineEditor *e, uint8_t c, GString *out)
{
    if (e->key != KEY_PLAIN) {
        key_sequence(e, c);
    } else if (c == '\r' || c == '\n') {
        g_string_append(out, "\r\n");
        line_history_add(e->history, e->line->str);
        return g_strdup(e->line->str);
    } else {
        plain_key(e, c, out);
    }
    redraw(e, out);
    return NULL;
}
