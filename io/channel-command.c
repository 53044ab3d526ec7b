/* SPDX-License-Identifier: BSD-2-Clause */
/* Channels to a child process's standard input and output. */
#include "channel-fd.h"
#include "io/transport.h"
#include "trace-io.h"
#include "util/error.h"
#include "util/fault.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* After a shutdown: how long the child gets to end by itself, and then after SIGTERM. */
#define GRACE_MS 500

#define MAX_WAIT_STEP_MS 20

typedef struct CommandChannel {
    FdChannel fd;
    char *program;
    GPid pid;           /* 0 once it has been waited for; closer's thread */
} CommandChannel;

static void sleep_ms(int ms)
{
    g_usleep(ms * 1000UL);
}

/* Waits for the child until @timeout_ms, or without limit (-1) until a shutdown.  True if it has ended. */
static bool wait_child(CommandChannel *cmd, int timeout_ms, int *status)
{
    int step = 1;
    int waited = 0;

    for (;;) {
        pid_t pid = waitpid(cmd->pid, status, WNOHANG);

        if (pid == cmd->pid || (pid < 0 && errno != EINTR)) {
            /* ECHILD: someone else has waited for it, or SIGCHLD is ignored: its status is lost. */
            *status = pid < 0 ? 0 : *status;
            cmd->pid = 0;
            return true;
        }
        if (timeout_ms < 0 ? fd_channel_is_down(&cmd->fd) : waited >= timeout_ms) {
            return false;
        }
        sleep_ms(step);
        waited += step;
        step = MIN(step * 2, MAX_WAIT_STEP_MS);
    }
}

/* The channel was shut down: the child has no say any more. */
static void end_child(CommandChannel *cmd)
{
    static const int signals[] = { SIGTERM, SIGKILL };
    int status;

    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++) {
        if (wait_child(cmd, GRACE_MS, &status)) {
            return;
        }
        kill(cmd->pid, signals[i]);
    }
    while (waitpid(cmd->pid, &status, 0) < 0 && errno == EINTR) {
    }
    cmd->pid = 0;
}

static bool check_status(const CommandChannel *cmd, int status, GError **errp)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return true;
    }
    /* Who only reads may close before the child has written all: that is the child's usual end then. */
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE &&
        !channel_has_feature(&cmd->fd.base, CHANNEL_FEATURE_WRITE)) {
        return true;
    }
    if (WIFSIGNALED(status)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "Command '%s' was killed by signal %d (%s)",
                    cmd->program, WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "Command '%s' ended with exit status %d",
                    cmd->program, WEXITSTATUS(status));
    }
    return false;
}

static bool command_close(Channel *base, GError **errp)
{
    CommandChannel *cmd = (CommandChannel *)base;
    bool ok = fd_channel_close(base, errp);
    int status = 0;

    if (!cmd->pid) {
        return ok;
    }
    if (!wait_child(cmd, -1, &status)) {
        end_child(cmd);
        fd_channel_check(&cmd->fd, "close", ok ? errp : NULL);
        return false;
    }
    trace_channel_command_end(cmd->program, status);
    return check_status(cmd, status, ok ? errp : NULL) && ok;
}

static void command_free(Channel *base)
{
    g_free(((CommandChannel *)base)->program);
    fd_channel_free(base);
}

static const ChannelOps command_ops = {
    .kind = "command",
    .readv = fd_channel_readv,
    .writev = fd_channel_writev,
    .shutdown = fd_channel_shutdown,
    .close = command_close,
    .poll_fd = fd_channel_poll_fd,
    .free = command_free,
};

Channel *channel_command_spawn(const char *const *argv, bool readable, bool writable, GError **errp)
{
    GSpawnFlags flags = G_SPAWN_DO_NOT_REAP_CHILD | (readable ? 0 : G_SPAWN_STDOUT_TO_DEV_NULL);
    g_autoptr(GError) err = NULL;
    int in = -1, out = -1;
    GPid pid;

    if (!argv[0]) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_INVALID, "The command is empty");
        return NULL;
    }
    if (fault_point("command-spawn", errp)) {
        return NULL;
    }
    if (!g_spawn_async_with_pipes(NULL, (char **)argv, NULL, flags, NULL, NULL, &pid, writable ? &in : NULL,
                                  readable ? &out : NULL, NULL, &err)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_IO, "%s", err->message);
        return NULL;
    }
    trace_channel_command_spawn(argv[0], pid);

    CommandChannel *cmd = g_new0(CommandChannel, 1);
    cmd->pid = pid;
    cmd->program = g_strdup(argv[0]);
    if (!fd_channel_init(&cmd->fd, &command_ops, out, in, errp)) {
        fd_channel_shutdown(&cmd->fd.base);
        end_child(cmd);
        g_free(cmd->program);
        g_free(cmd);
        return NULL;
    }
    if (!fd_channel_set_nonblocking(&cmd->fd, errp)) {
        channel_shutdown(&cmd->fd.base);
        channel_unref(&cmd->fd.base);
        return NULL;
    }
    return &cmd->fd.base;
}
