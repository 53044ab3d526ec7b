/* SPDX-License-Identifier: BSD-2-Clause */
/* Character devices that are not sockets: null, stdio, file, pipe, pty. */
#include "chardev-internal.h"

#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

/* How often a pty without a user is looked at. */
#define PTY_POLL_MS 500

static void nothing_detached(Chardev *chr)
{
    /* no other peer will come */
}

static void nothing_to_close(Chardev *chr)
{
    /* the descriptors are closed by the common part */
}

static char *type_filename(const Chardev *chr)
{
    return g_strdup(chr->ops->type);
}

/* ---- null ---- */

static bool null_open(Chardev *chr, GError **errp)
{
    chardev_attach_nothing(chr);
    return true;
}

const ChardevOps chardev_null_ops = {
    .type = "null",
    .open = null_open,
    .detached = nothing_detached,
    .close = nothing_to_close,
    .filename = type_filename,
};

/* ---- stdio ---- */

/* The terminal as it was, for the end of the process however it comes.  Main thread; raw is set before the
 * handler. */
static struct {
    Chardev *owner;
    bool forbidden;
    bool changed;
    bool exit_hook;
    struct termios saved, raw;
    int saved_flags[2]; /* of descriptors 0 and 1; -1: unchanged */
} terminal = {.saved_flags = {-1, -1}};

void chardev_forbid_stdio(void)
{
    terminal.forbidden = true;
}

static void restore_terminal(void)
{
    if (terminal.changed) {
        terminal.changed = false;
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal.saved);
    }
    for (int fd = 0; fd < 2; fd++) {
        if (terminal.saved_flags[fd] >= 0) {
            fcntl(fd, F_SETFL, terminal.saved_flags[fd]);
            terminal.saved_flags[fd] = -1;
        }
    }
}

/* A shell that resumes us has put its own modes back. */
static void on_continue(int signum)
{
    if (terminal.changed) {
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal.raw);
    }
}

static void make_raw(bool allow_signal)
{
    struct sigaction sa = {.sa_handler = on_continue, .sa_flags = SA_RESTART};

    if (tcgetattr(STDIN_FILENO, &terminal.saved) < 0) {
        return;
    }
    terminal.raw = terminal.saved;
    cfmakeraw(&terminal.raw);
    terminal.raw.c_oflag |= OPOST;
    terminal.raw.c_lflag |= allow_signal ? ISIG : 0;
    terminal.raw.c_cc[VMIN] = 1;
    terminal.raw.c_cc[VTIME] = 0;
    terminal.changed = tcsetattr(STDIN_FILENO, TCSANOW, &terminal.raw) == 0;
    sigaction(SIGCONT, &sa, NULL);
}

/*
 * A descriptor of our own for @fd.  Non-blocking mode belongs to the open file, which a terminal shares with
 * the shell and with standard error; so a terminal is opened once more.  Where that is not possible the mode
 * is put back at exit.
 */
static int own_stdio_fd(int fd, int access)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
    int own = isatty(fd) ? open(path, access | O_NOCTTY | O_CLOEXEC) : -1;

    if (own < 0) {
        own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (own >= 0) {
            terminal.saved_flags[fd] = fcntl(fd, F_GETFL);
        }
    }
    return own;
}

static bool stdio_open(Chardev *chr, GError **errp)
{
    if (terminal.forbidden || terminal.owner) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "cannot use stdio %s",
                    terminal.forbidden ? "with -daemonize" : "by multiple character devices");
        return false;
    }
    int in_fd = own_stdio_fd(STDIN_FILENO, O_RDONLY);
    int out_fd = own_stdio_fd(STDOUT_FILENO, O_WRONLY);
    terminal.owner = chr;
    if (!terminal.exit_hook) {
        terminal.exit_hook = true;
        atexit(restore_terminal);
    }
    chr->input_optional = true;
    chr->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (isatty(STDIN_FILENO)) {
        make_raw(chr->config->signal);
    }
    chardev_attach(chr, in_fd, out_fd);
    return true;
}

static void stdio_close(Chardev *chr)
{
    if (terminal.owner == chr) {
        restore_terminal();
        terminal.owner = NULL;
    }
}

const ChardevOps chardev_stdio_ops = {
    .type = "stdio",
    .open = stdio_open,
    .detached = nothing_detached,
    .close = stdio_close,
    .filename = type_filename,
};

/* ---- file ---- */

static int open_or_error(const char *path, int flags, GError **errp)
{
    int fd = open(path, flags | O_CLOEXEC | O_NOCTTY, 0666);

    if (fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Could not open '%s'", path);
    }
    return fd;
}

static bool file_open(Chardev *chr, GError **errp)
{
    const ChardevConfig *config = chr->config;
    int in_fd = -1;

    if (config->input_path) {
        in_fd = open_or_error(config->input_path, O_RDONLY, errp);
        if (in_fd < 0) {
            return false;
        }
    }
    int out_fd =
        open_or_error(config->path, O_WRONLY | O_CREAT | (config->append ? O_APPEND : O_TRUNC), errp);
    if (out_fd < 0) {
        if (in_fd >= 0) {
            close(in_fd);
        }
        return false;
    }
    chr->input_optional = true;
    chardev_attach(chr, in_fd, out_fd);
    return true;
}

const ChardevOps chardev_file_ops = {
    .type = "file",
    .open = file_open,
    .detached = nothing_detached,
    .close = nothing_to_close,
    .filename = type_filename,
};

/* ---- pipe: PATH.in and PATH.out, or PATH for both directions ---- */

static bool pipe_open(Chardev *chr, GError **errp)
{
    g_autofree char *in_path = g_strconcat(chr->config->path, ".in", NULL);
    g_autofree char *out_path = g_strconcat(chr->config->path, ".out", NULL);
    /* Read-write: opening a FIFO so does not wait for its other end, and it never ends. */
    int in_fd = open(in_path, O_RDWR | O_CLOEXEC);
    int out_fd = open(out_path, O_RDWR | O_CLOEXEC);

    if (in_fd < 0 || out_fd < 0) {
        if (in_fd >= 0) {
            close(in_fd);
        }
        if (out_fd >= 0) {
            close(out_fd);
        }
        in_fd = out_fd = open_or_error(chr->config->path, O_RDWR, errp);
        if (in_fd < 0) {
            return false;
        }
    }
    chr->input_optional = true;
    chardev_attach(chr, in_fd, out_fd);
    return true;
}

const ChardevOps chardev_pipe_ops = {
    .type = "pipe",
    .open = pipe_open,
    .detached = nothing_detached,
    .close = nothing_to_close,
    .filename = type_filename,
};

/* ---- pty ---- */

typedef struct PtyKind {
    int master;
    char *name;  /* of the slave */
    guint timer; /* looks for a user while there is none */
    bool linked; /* config->path is our symbolic link to the slave */
} PtyKind;

/* The master reports a hang-up as long as nobody has the slave open. */
static gboolean pty_look_for_user(gpointer opaque)
{
    Chardev *chr = opaque;
    PtyKind *k = chr->kind;
    struct pollfd pfd = {.fd = k->master, .events = POLLOUT};

    if (poll(&pfd, 1, 0) < 0 || (pfd.revents & POLLHUP)) {
        return G_SOURCE_CONTINUE;
    }
    int fd = fcntl(k->master, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) {
        return G_SOURCE_CONTINUE;
    }
    k->timer = 0;
    chardev_attach(chr, fd, fd);
    return G_SOURCE_REMOVE;
}

static void pty_detached(Chardev *chr)
{
    PtyKind *k = chr->kind;

    k->timer = g_timeout_add(PTY_POLL_MS, pty_look_for_user, chr);
}

/* Raw mode, so that what a user types before opening a terminal program is not echoed back to us. */
static bool pty_make_raw(const char *name, GError **errp)
{
    struct termios tio;
    int slave = open_or_error(name, O_RDWR, errp);

    if (slave < 0) {
        return false;
    }
    if (tcgetattr(slave, &tio) == 0) {
        cfmakeraw(&tio);
        tcsetattr(slave, TCSAFLUSH, &tio);
    }
    close(slave);
    return true;
}

static bool pty_link(Chardev *chr, GError **errp)
{
    PtyKind *k = chr->kind;

    if (!chr->config->path) {
        return true;
    }
    if (symlink(k->name, chr->config->path) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to create PTY symlink '%s'", chr->config->path);
        return false;
    }
    k->linked = true;
    return true;
}

static bool pty_open(Chardev *chr, GError **errp)
{
    PtyKind *k = g_new0(PtyKind, 1);
    char name[64];

    chr->kind = k;
    k->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (k->master < 0 || grantpt(k->master) < 0 || unlockpt(k->master) < 0 ||
        ptsname_r(k->master, name, sizeof(name)) != 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to create PTY");
        return false;
    }
    k->name = g_strdup(name);
    if (!pty_make_raw(name, errp) || !pty_link(chr, errp)) {
        return false;
    }
    pty_detached(chr);
    return true;
}

static void pty_close(Chardev *chr)
{
    PtyKind *k = chr->kind;

    if (!k) {
        return;
    }
    g_clear_handle_id(&k->timer, g_source_remove);
    if (k->master >= 0) {
        close(k->master);
    }
    if (k->linked) {
        unlink(chr->config->path);
    }
    g_free(k->name);
    g_free(k);
    chr->kind = NULL;
}

static char *pty_filename(const Chardev *chr)
{
    const PtyKind *k = chr->kind;

    return g_strdup_printf("pty:%s", k && k->name ? k->name : "");
}

const ChardevOps chardev_pty_ops = {
    .type = "pty",
    .open = pty_open,
    .detached = pty_detached,
    .close = pty_close,
    .filename = pty_filename,
};
