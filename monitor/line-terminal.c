/* SPDX-License-Identifier: BSD-2-Clause */
/* LineTerminal: line editing by libedit, for HMP on the process's own terminal. */
#include "line-terminal.h"

#include "config.h"

#ifdef CONFIG_LIBEDIT

#include <histedit.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* Keys that wait while a command runs. */
#define KEYS_MAX 65536

/* From libedit's thread to the main thread. */
typedef struct Message {
    bool is_line;
    GString *text;
} Message;

struct LineTerminal {
    /* Fixed. */
    const char *prompt;
    LineComplete complete;
    void (*line)(const char *line, void *opaque);
    void (*output)(const char *buf, size_t len, void *opaque);
    void *opaque;
    GThread *thread;

    /* Guarded by the lock. */
    GMutex lock;
    GCond wake; /* the thread waits here, for keys, for a line to begin, for the end */
    GString *keys;
    bool reading; /* a line is wanted */
    bool quit;
    GQueue messages; /* of Message */
    GSource *source; /* delivers them in the main thread; NULL: none needed */

    /* The thread's own. */
    EditLine *el;
    History *history; /* libedit's */
    FILE *out;
};

/* ---- from the thread to the main thread ---- */

static void message_free(gpointer opaque)
{
    Message *message = opaque;

    g_string_free(message->text, true);
    g_free(message);
}

static Message *pop_message(LineTerminal *t)
{
    g_mutex_lock(&t->lock);
    Message *message = g_queue_pop_head(&t->messages);
    if (!message) {
        g_clear_pointer(&t->source, g_source_unref);
    }
    g_mutex_unlock(&t->lock);
    return message;
}

/* One message at a time: a line may have the terminal freed, which destroys this source. */
static gboolean deliver(gpointer opaque)
{
    LineTerminal *t = opaque;
    Message *message = pop_message(t);

    if (!message) {
        return G_SOURCE_REMOVE;
    }
    if (message->is_line) {
        t->line(message->text->str, t->opaque);
    } else {
        t->output(message->text->str, message->text->len, t->opaque);
    }
    message_free(message);
    return G_SOURCE_CONTINUE;
}

static void post(LineTerminal *t, bool is_line, const char *text, size_t len)
{
    Message *message = g_new0(Message, 1);

    message->is_line = is_line;
    message->text = g_string_new_len(text, (gssize)len);
    g_mutex_lock(&t->lock);
    g_queue_push_tail(&t->messages, message);
    if (!t->source) {
        t->source = g_idle_source_new();
        g_source_set_priority(t->source, G_PRIORITY_DEFAULT);
        g_source_set_callback(t->source, deliver, t, NULL);
        g_source_attach(t->source, NULL);
    }
    g_mutex_unlock(&t->lock);
}

/* ---- what libedit calls; its thread ---- */

static ssize_t write_output(void *cookie, const char *buf, size_t len)
{
    post(cookie, false, buf, len);
    return (ssize_t)len;
}

static LineTerminal *of_editor(EditLine *el)
{
    void *t = NULL;

    el_get(el, EL_CLIENTDATA, &t);
    return t;
}

/* The next character, or -1 when the terminal ends. */
static gunichar take_key(LineTerminal *t)
{
    gunichar c = (gunichar)-1;

    g_mutex_lock(&t->lock);
    while (!t->quit) {
        c = g_utf8_get_char_validated(t->keys->str, (gssize)t->keys->len);
        if (t->keys->len > 0 && c != (gunichar)-2) {
            bool valid = c != (gunichar)-1;
            g_string_erase(t->keys, 0, valid ? g_utf8_next_char(t->keys->str) - t->keys->str : 1);
            c = valid ? c : '?';
            break;
        }
        g_cond_wait(&t->wake, &t->lock);
    }
    c = t->quit ? (gunichar)-1 : c;
    g_mutex_unlock(&t->lock);
    return c;
}

static int read_key(EditLine *el, wchar_t *key)
{
    LineTerminal *t = of_editor(el);

    fflush(t->out);
    gunichar c = take_key(t);
    *key = (wchar_t)c;
    return c == (gunichar)-1 ? 0 : 1;
}

static char *show_prompt(EditLine *el)
{
    return (char *)of_editor(el)->prompt;
}

static unsigned char complete_key(EditLine *el, wint_t key)
{
    LineTerminal *t = of_editor(el);
    const LineInfo *info = el_line(el);
    g_autofree char *before = g_strndup(info->buffer, (gsize)(info->cursor - info->buffer));
    size_t word_len = 0;
    g_auto(GStrv) words = t->complete(before, &word_len, NULL);

    if (!words || !words[0]) {
        return CC_ERROR;
    }
    size_t common = line_editor_common_prefix(words);
    g_autofree char *more = g_strndup(words[0] + word_len, common - word_len);
    el_insertstr(el, more);
    if (!words[1]) {
        el_insertstr(el, " ");
        return CC_REFRESH;
    }
    g_autoptr(GString) text = g_string_new("\n");
    line_editor_columns(text, words, "\n");
    fputs(text->str, t->out);
    return CC_REDISPLAY;
}

/* ---- the thread ---- */

/* Whoever opened the terminal has decided whether ^C is a signal; libedit must not change that. */
static bool keys_are_signals(void)
{
    struct termios tio;

    return tcgetattr(STDIN_FILENO, &tio) < 0 || (tio.c_lflag & ISIG);
}

static bool open_editor(LineTerminal *t)
{
    static const cookie_io_functions_t functions = { .write = write_output };
    bool signals = keys_are_signals();
    HistEvent event;

    t->out = fopencookie(t, "w", functions);
    t->el = t->out ? el_init_fd("godwit", stdin, t->out, t->out, STDIN_FILENO, STDOUT_FILENO, STDOUT_FILENO)
                   : NULL;
    if (!t->el) {
        return false;
    }
    t->history = history_init();
    history(t->history, &event, H_SETSIZE, LINE_HISTORY_MAX);
    history(t->history, &event, H_SETUNIQUE, 1);
    if (!signals) {
        el_set(t->el, EL_SETTY, "-d", "-isig", NULL);
    }
    el_set(t->el, EL_CLIENTDATA, t);
    el_set(t->el, EL_GETCFN, read_key);
    el_set(t->el, EL_PROMPT, show_prompt);
    el_set(t->el, EL_EDITOR, "emacs");
    el_set(t->el, EL_HIST, history, t->history);
    /* The wide form: the other one makes copies that libedit never frees. */
    el_wset(t->el, EL_ADDFN, L"godwit-complete", L"Complete the word", complete_key);
    el_set(t->el, EL_BIND, "^I", "godwit-complete", NULL);
    el_source(t->el, NULL); /* the user's ~/.editrc */
    return true;
}

static void close_editor(LineTerminal *t)
{
    if (t->history) {
        history_end(t->history);
    }
    if (t->el) {
        el_end(t->el);
    }
    if (t->out) {
        fclose(t->out);
    }
}

static bool wait_for_start(LineTerminal *t)
{
    g_mutex_lock(&t->lock);
    while (!t->reading && !t->quit) {
        g_cond_wait(&t->wake, &t->lock);
    }
    bool go_on = !t->quit;
    t->reading = false;
    g_mutex_unlock(&t->lock);
    return go_on;
}

static void read_line(LineTerminal *t)
{
    HistEvent event;
    int count = 0;
    const char *text = el_gets(t->el, &count);

    if (!text && count == 0) {
        /* End of file: the terminal ends, or ^D on an empty line, which means nothing here. */
        fputs("\n", t->out);
    }
    g_autofree char *line = g_strchomp(g_strdup(text ? text : ""));
    if (*line) {
        history(t->history, &event, H_ENTER, line);
    }
    fflush(t->out);
    post(t, true, line, strlen(line));
}

static gpointer run_editor(gpointer opaque)
{
    LineTerminal *t = opaque;

    bool ok = open_editor(t);
    while (ok && wait_for_start(t)) {
        read_line(t);
    }
    close_editor(t);
    return NULL;
}

/* ---- main thread ---- */

LineTerminal *line_terminal_new(const char *prompt, LineComplete complete,
                                void (*line)(const char *line, void *opaque),
                                void (*output)(const char *buf, size_t len, void *opaque), void *opaque)
{
    LineTerminal *t = g_new0(LineTerminal, 1);

    t->prompt = prompt;
    t->complete = complete;
    t->line = line;
    t->output = output;
    t->opaque = opaque;
    g_mutex_init(&t->lock);
    g_cond_init(&t->wake);
    t->keys = g_string_new(NULL);
    t->thread = g_thread_new("line-editor", run_editor, t);
    return t;
}

void line_terminal_free(LineTerminal *t)
{
    if (!t) {
        return;
    }
    g_mutex_lock(&t->lock);
    t->quit = true;
    g_cond_signal(&t->wake);
    g_mutex_unlock(&t->lock);
    g_thread_join(t->thread);
    if (t->source) {
        g_source_destroy(t->source);
        g_source_unref(t->source);
    }
    g_queue_clear_full(&t->messages, message_free);
    g_string_free(t->keys, true);
    g_cond_clear(&t->wake);
    g_mutex_clear(&t->lock);
    g_free(t);
}

void line_terminal_start(LineTerminal *t)
{
    g_mutex_lock(&t->lock);
    t->reading = true;
    g_cond_signal(&t->wake);
    g_mutex_unlock(&t->lock);
}

void line_terminal_keys(LineTerminal *t, const char *keys, size_t len)
{
    g_mutex_lock(&t->lock);
    g_string_append_len(t->keys, keys, (gssize)MIN(len, KEYS_MAX - MIN(t->keys->len, KEYS_MAX)));
    g_cond_signal(&t->wake);
    g_mutex_unlock(&t->lock);
}

#else

LineTerminal *line_terminal_new(const char *prompt, LineComplete complete,
                                void (*line)(const char *line, void *opaque),
                                void (*output)(const char *buf, size_t len, void *opaque), void *opaque)
{
    return NULL;
}

void line_terminal_free(LineTerminal *terminal) {}

void line_terminal_start(LineTerminal *terminal) {}

void line_terminal_keys(LineTerminal *terminal, const char *keys, size_t len) {}

#endif
