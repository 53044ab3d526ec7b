/* SPDX-License-Identifier: BSD-2-Clause */
/* The process itself: background, pid file, signals, name, locked memory. */
#include "process.h"

#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- background ---- */

static int ready_fd = -1; /* writing a byte lets the process that was started exit with status 0 */

/* The process that the user started: its life now depends on what the new one says. */
static G_GNUC_NORETURN void wait_until_ready(int fd)
{
    char byte;
    ssize_t n;

    do {
        n = read(fd, &byte, 1);
    } while (n < 0 && errno == EINTR);
    _exit(n == 1 ? 0 : 1);
}

bool process_daemonize(GError **errp)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to create a pipe for -daemonize");
        return false;
    }
    pid_t pid = fork();
    if (pid < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to fork for -daemonize");
        close(fds[0]);
        close(fds[1]);
        return false;
    }
    if (pid > 0) {
        close(fds[1]);
        wait_until_ready(fds[0]);
    }
    close(fds[0]);
    ready_fd = fds[1];
    setsid();
    pid = fork(); /* not a session leader: no terminal can become ours */
    if (pid != 0) {
        _exit(pid > 0 ? 0 : 1);
    }
    umask(027);
    return true;
}

bool process_ready(int log_fd, GError **errp)
{
    if (ready_fd < 0) {
        return true;
    }
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0 || chdir("/") < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to let go of the terminal");
        return false;
    }
    dup2(null_fd, STDIN_FILENO);
    dup2(null_fd, STDOUT_FILENO);
    dup2(log_fd >= 0 ? log_fd : null_fd, STDERR_FILENO);
    close(null_fd);
    bool ok = write(ready_fd, "", 1) == 1;
    if (!ok) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to tell the starting process");
    }
    close(ready_fd);
    ready_fd = -1;
    return ok;
}

/* ---- pid file ---- */

struct PidFile {
    char *path;
    int fd; /* locked for as long as it is open */
};

/* Is @fd what @path names now?  A file that its owner has just removed can still be locked, in vain. */
static bool still_there(int fd, const char *path)
{
    struct stat a, b;

    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The open and locked file, or -1 and an error. */
static int lock_file(const char *path, GError **errp)
{
    for (;;) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

        if (fd < 0) {
            error_set_errno(errp, GODWIT_ERROR_IO, errno, "Could not create '%s'", path);
            return -1;
        }
        if (fcntl(fd, F_SETLK, &lock) < 0) {
            error_set_errno(errp, GODWIT_ERROR_IO, errno, "Cannot lock pid file");
            close(fd);
            return -1;
        }
        if (still_there(fd, path)) {
            return fd;
        }
        close(fd);
    }
}

PidFile *pid_file_new(const char *path, GError **errp)
{
    g_autofree char *text = g_strdup_printf("%d\n", getpid());
    int fd = lock_file(path, errp);

    if (fd < 0) {
        g_prefix_error(errp, "cannot create PID file: ");
        return NULL;
    }
    if (ftruncate(fd, 0) < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "cannot create PID file: Failed to write pid file '%s'",
                        path);
        close(fd);
        return NULL;
    }
    PidFile *file = g_new0(PidFile, 1);
    file->path = realpath(path, NULL); /* -daemonize changes the working directory */
    file->fd = fd;
    return file;
}

void pid_file_free(PidFile *file)
{
    if (!file) {
        return;
    }
    if (file->path && still_there(file->fd, file->path)) {
        unlink(file->path);
    }
    close(file->fd);
    free(file->path);
    g_free(file);
}

/* ---- signals ---- */

/*
 * The handler writes what it was told to a pipe that the main loop reads.  A signalfd would need the signals
 * blocked, and the commands that exec: starts would inherit that.
 */
typedef struct SignalNote {
    int signum;
    pid_t sender;
} SignalNote;

static const int caught[] = {SIGTERM, SIGINT, SIGHUP};

static struct {
    int pipe[2]; /* [1] is for the handler */
    guint watch;
    ProcessSignalFunc func;
    void *opaque;
} signals = {.pipe = {-1, -1}};

static void on_signal(int signum, siginfo_t *info, void *context)
{
    int saved = errno;
    SignalNote note = {.signum = signum, .sender = info->si_code == SI_KERNEL ? 0 : info->si_pid};

    if (write(signals.pipe[1], &note, sizeof(note)) < 0) {
        /* The pipe is full of signals that have not been looked at: one of them will do. */
    }
    errno = saved;
}

static gboolean signal_arrived(gint fd, GIOCondition condition, gpointer opaque)
{
    SignalNote note;

    if (read(fd, &note, sizeof(note)) == sizeof(note)) {
        signals.func(note.signum, note.sender, signals.opaque);
    }
    return G_SOURCE_CONTINUE;
}

bool process_catch_signals(ProcessSignalFunc func, void *opaque, GError **errp)
{
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

    if (pipe2(signals.pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Failed to create a pipe for signals");
        return false;
    }
    signals.func = func;
    signals.opaque = opaque;
    signals.watch = g_unix_fd_add(signals.pipe[0], G_IO_IN, signal_arrived, NULL);
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < G_N_ELEMENTS(caught); i++) {
        sigaction(caught[i], &sa, NULL);
    }
    return true;
}

void process_restore_signals(void)
{
    if (!signals.watch) {
        return;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(caught); i++) {
        signal(caught[i], SIG_DFL);
    }
    g_clear_handle_id(&signals.watch, g_source_remove);
    close(signals.pipe[0]);
    close(signals.pipe[1]);
}

char *process_describe_sender(pid_t sender)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/cmdline", (int)sender);
    g_autofree char *command = NULL;

    if (sender <= 0) {
        return g_strdup("");
    }
    bool known = g_file_get_contents(path, &command, NULL, NULL) && command[0];
    return g_strdup_printf(" from pid %d (%s)", (int)sender, known ? command : "<unknown process>");
}

/* ---- the rest ---- */

void process_set_name(const char *name)
{
    prctl(PR_SET_NAME, name, 0, 0, 0);
}

bool process_exit_with_parent(GError **errp)
{
    if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "exit-with-parent");
        return false;
    }
    return true;
}

bool process_lock_memory(GError **errp)
{
    if (mlockall(MCL_CURRENT | MCL_FUTURE) < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "mlockall");
        return false;
    }
    return true;
}
