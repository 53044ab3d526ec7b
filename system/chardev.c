/* SPDX-License-Identifier: BSD-2-Clause */
/* Character devices: the front end's side, the queue of output, the list of all devices. */

/*
 * A device has at most one peer at a time.  Its kind (socket, stdio, ...) finds the peer and hands its
 * descriptors over with chardev_attach(); from then on this file reads, writes and notices the end, and tells
 * the kind, which may find another peer.
 *
 * Nothing here blocks: output is queued and written when the descriptor takes it.  The front end's closed()
 * is only ever called from the main loop, never from within chardev_write() or chardev_disconnect(), so that
 * a front end needs no protection against itself.
 */
#include "chardev-internal.h"

#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_SIZE 16384

static const ChardevOps *const all_ops[] = {
    &chardev_null_ops, &chardev_socket_ops, &chardev_stdio_ops,
    &chardev_file_ops, &chardev_pipe_ops,   &chardev_pty_ops,
};

static GPtrArray *all_chardevs; /* of Chardev *, in order of creation */

static void schedule_detach(Chardev *chr);
static void update_in_watch(Chardev *chr);

const char *const *chardev_type_names(void)
{
    static const char *names[G_N_ELEMENTS(all_ops) + 1];

    for (size_t i = 0; i < G_N_ELEMENTS(all_ops); i++) {
        names[i] = all_ops[i]->type;
    }
    return names;
}

static void chardev_ref(Chardev *chr)
{
    chr->refs++;
}

static void chardev_unref(Chardev *chr)
{
    if (--chr->refs == 0) {
        chardev_config_free(chr->config);
        g_byte_array_unref(chr->out);
        g_free(chr->label);
        g_free(chr);
    }
}

/* ---- output ---- */

static void drop_output(Chardev *chr)
{
    g_byte_array_set_size(chr->out, 0);
    chr->out_pos = 0;
    g_clear_handle_id(&chr->out_watch, g_source_remove);
}

static ssize_t write_some(Chardev *chr, const uint8_t *buf, size_t len)
{
    return chr->is_socket ? send(chr->out_fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT)
                          : write(chr->out_fd, buf, len);
}

/* The peer takes no more, for good. */
static void output_failed(Chardev *chr)
{
    drop_output(chr);
    if (chr->is_socket) {
        schedule_detach(chr);
    }
}

/* Writes until the queue is empty or the descriptor is full. */
static void drain(Chardev *chr)
{
    while (chr->out_pos < chr->out->len) {
        ssize_t n = write_some(chr, chr->out->data + chr->out_pos, chr->out->len - chr->out_pos);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (n < 0) {
            output_failed(chr);
            return;
        }
        chr->out_pos += (size_t)n;
    }
    drop_output(chr);
}

static gboolean can_write(gint fd, GIOCondition condition, gpointer opaque)
{
    Chardev *chr = opaque;
    guint watch = chr->out_watch;

    chr->out_watch = 0;
    drain(chr);
    if (chr->out_pos < chr->out->len) {
        chr->out_watch = watch;
        return G_SOURCE_CONTINUE;
    }
    return G_SOURCE_REMOVE;
}

static void write_log(Chardev *chr, const void *buf, size_t len)
{
    if (chr->log_fd >= 0 && write(chr->log_fd, buf, len) < 0) {
        close(chr->log_fd);
        chr->log_fd = -1;
    }
}

void chardev_write(Chardev *chr, const void *buf, size_t len)
{
    write_log(chr, buf, len);
    if (!chr->open || chr->out_fd < 0 || chr->close_source) {
        return;
    }
    if (len > CHARDEV_MAX_PENDING - (chr->out->len - chr->out_pos)) {
        output_failed(chr);
        return;
    }
    if (chr->out_pos > chr->out->len / 2) {
        g_byte_array_remove_range(chr->out, 0, (guint)chr->out_pos);
        chr->out_pos = 0;
    }
    g_byte_array_append(chr->out, buf, (guint)len);
    if (!chr->out_watch) {
        drain(chr);
    }
    if (chr->out_pos < chr->out->len && !chr->out_watch) {
        chr->out_watch = g_unix_fd_add(chr->out_fd, G_IO_OUT | G_IO_ERR | G_IO_HUP, can_write, chr);
    }
}

size_t chardev_pending(const Chardev *chr)
{
    return chr->out->len - chr->out_pos;
}

void chardev_flush(Chardev *chr, int timeout_ms)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)timeout_ms * 1000;

    while (chr->open && chr->out_fd >= 0 && chardev_pending(chr) > 0) {
        gint64 left = (deadline - g_get_monotonic_time()) / 1000;
        struct pollfd pfd = {.fd = chr->out_fd, .events = POLLOUT};

        if (left < 0) {
            return;
        }
        if (poll(&pfd, 1, (int)left) < 0 && errno != EINTR) {
            return;
        }
        if (pfd.revents) {
            drain(chr);
        }
    }
}

/* ---- the peer comes and goes ---- */

static void tell_opened(Chardev *chr)
{
    if (chr->open && chr->handlers && !chr->told) {
        chr->told = true;
        if (chr->handlers->opened) {
            chr->handlers->opened(chr->opaque);
        }
    }
}

static void set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0 && !(flags & O_NONBLOCK)) {
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    }
}

void chardev_attach(Chardev *chr, int in_fd, int out_fd)
{
    struct stat st;
    int any_fd = in_fd >= 0 ? in_fd : out_fd;

    chr->in_fd = in_fd;
    chr->out_fd = out_fd;
    chr->is_socket = any_fd >= 0 && fstat(any_fd, &st) == 0 && S_ISSOCK(st.st_mode);
    chr->open = true;
    chr->input_ended = false;
    chr->telnet_state = 0;
    if (in_fd >= 0) {
        set_nonblocking(in_fd);
    }
    if (out_fd >= 0) {
        set_nonblocking(out_fd);
    }
    chardev_ref(chr);
    tell_opened(chr);
    update_in_watch(chr);
    chardev_unref(chr);
}

void chardev_attach_nothing(Chardev *chr)
{
    chardev_attach(chr, -1, -1);
}

static void close_fds(Chardev *chr)
{
    g_clear_handle_id(&chr->in_watch, g_source_remove);
    g_clear_handle_id(&chr->close_source, g_source_remove);
    drop_output(chr);
    if (chr->in_fd >= 0) {
        close(chr->in_fd);
    }
    if (chr->out_fd >= 0 && chr->out_fd != chr->in_fd) {
        close(chr->out_fd);
    }
    chr->in_fd = chr->out_fd = -1;
    chr->open = false;
}

/* The peer has gone.  Called from the main loop only. */
static void detach(Chardev *chr)
{
    close_fds(chr);
    chardev_ref(chr);
    if (chr->told) {
        chr->told = false;
        if (chr->handlers && chr->handlers->closed) {
            chr->handlers->closed(chr->opaque);
        }
    }
    if (!chr->freed) {
        chr->ops->detached(chr);
    }
    chardev_unref(chr);
}

static gboolean detach_now(gpointer opaque)
{
    Chardev *chr = opaque;

    chr->close_source = 0;
    detach(chr);
    return G_SOURCE_REMOVE;
}

static void schedule_detach(Chardev *chr)
{
    if (chr->open && !chr->close_source) {
        chr->close_source = g_idle_add_full(G_PRIORITY_DEFAULT, detach_now, chr, NULL);
    }
}

void chardev_disconnect(Chardev *chr)
{
    if (chr->is_socket && chr->in_fd >= 0) {
        drain(chr);
        shutdown(chr->in_fd, SHUT_RDWR);
        schedule_detach(chr);
    }
}

/* ---- input ---- */

/* Takes the descriptors out of a message's ancillary data; returns how many. */
static size_t take_fds(struct msghdr *msg, int *fds)
{
    size_t n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

            count = MIN(count, CHARDEV_MAX_FDS - n);
            memcpy(fds + n, CMSG_DATA(c), count * sizeof(int));
            n += count;
        }
    }
    return n;
}

static ssize_t read_socket(int fd, void *buf, size_t len, int *fds, size_t *n_fds)
{
    union {
        char buf[CMSG_SPACE(sizeof(int) * CHARDEV_MAX_FDS)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = len};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.buf,
        .msg_controllen = sizeof(control.buf),
    };
    ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    *n_fds = n >= 0 ? take_fds(&msg, fds) : 0;
    return n;
}

static void deliver(Chardev *chr, uint8_t *buf, size_t len, int *fds, size_t n_fds)
{
    if (chr->config->telnet) {
        len = chardev_telnet_filter(&chr->telnet_state, buf, len);
    }
    if (len > 0 && chr->handlers && chr->handlers->receive) {
        chr->handlers->receive(chr->opaque, buf, len, fds, n_fds);
        return;
    }
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
}

static void input_over(Chardev *chr)
{
    if (chr->input_optional) {
        chr->input_ended = true;
        update_in_watch(chr);
    } else if (!chr->close_source) {
        detach(chr);
    }
}

static gboolean can_read(gint fd, GIOCondition condition, gpointer opaque)
{
    Chardev *chr = opaque;
    uint8_t buf[READ_SIZE];
    int fds[CHARDEV_MAX_FDS];
    size_t n_fds = 0;
    ssize_t n = chr->is_socket ? read_socket(fd, buf, sizeof(buf), fds, &n_fds) : read(fd, buf, sizeof(buf));

    chardev_ref(chr);
    if (n > 0) {
        deliver(chr, buf, (size_t)n, fds, n_fds);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        input_over(chr);
    }
    chardev_unref(chr);
    return G_SOURCE_CONTINUE; /* whoever closed has removed the source */
}

static void update_in_watch(Chardev *chr)
{
    bool want = chr->open && chr->in_fd >= 0 && chr->handlers && !chr->paused && !chr->input_ended;

    if (want && !chr->in_watch) {
        chr->in_watch = g_unix_fd_add(chr->in_fd, G_IO_IN | G_IO_HUP | G_IO_ERR, can_read, chr);
    } else if (!want) {
        g_clear_handle_id(&chr->in_watch, g_source_remove);
    }
}

void chardev_pause_receive(Chardev *chr, bool pause)
{
    chr->paused = pause;
    update_in_watch(chr);
}

void chardev_set_handlers(Chardev *chr, const ChardevHandlers *handlers, void *opaque)
{
    chr->handlers = handlers;
    chr->opaque = opaque;
    chr->told = false;
    chardev_ref(chr);
    tell_opened(chr);
    update_in_watch(chr);
    chardev_unref(chr);
}

/* ---- life ---- */

static const ChardevOps *find_ops(const char *type)
{
    for (size_t i = 0; i < G_N_ELEMENTS(all_ops); i++) {
        if (strcmp(all_ops[i]->type, type) == 0) {
            return all_ops[i];
        }
    }
    return NULL;
}

static bool open_log(Chardev *chr, GError **errp)
{
    const ChardevConfig *config = chr->config;

    if (!config->log_file) {
        return true;
    }
    int how = config->log_append ? O_APPEND : O_TRUNC;
    chr->log_fd = open(config->log_file, O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
    if (chr->log_fd < 0) {
        error_set_errno(errp, GODWIT_ERROR_IO, errno, "Unable to open logfile %s", config->log_file);
        return false;
    }
    return true;
}

/* Takes over @config. */
static Chardev *chardev_create(const char *label, ChardevConfig *config, GError **errp)
{
    const ChardevOps *ops = find_ops(config->type);

    g_assert(ops); /* the parser only lets known types through */
    if (chardev_find(label)) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "Duplicate ID '%s' for chardev", label);
        chardev_config_free(config);
        return NULL;
    }
    Chardev *chr = g_new0(Chardev, 1);
    chr->ops = ops;
    chr->config = config;
    chr->label = g_strdup(label);
    chr->refs = 1;
    chr->in_fd = chr->out_fd = chr->log_fd = -1;
    chr->out = g_byte_array_new();
    if (!all_chardevs) {
        all_chardevs = g_ptr_array_new();
    }
    g_ptr_array_add(all_chardevs, chr);
    if (!open_log(chr, errp) || !ops->open(chr, errp)) {
        chardev_free(chr);
        return NULL;
    }
    return chr;
}

Chardev *chardev_new(const char *label, const char *spec, GError **errp)
{
    ChardevConfig *config = chardev_config_parse_spec(spec, errp);

    return config ? chardev_create(label, config, errp) : NULL;
}

Chardev *chardev_new_from_options(const char *options, GError **errp)
{
    g_autofree char *id = NULL;
    ChardevConfig *config = chardev_config_parse_options(options, &id, errp);

    return config ? chardev_create(id, config, errp) : NULL;
}

void chardev_free(Chardev *chr)
{
    if (!chr) {
        return;
    }
    chr->freed = true;
    chr->handlers = NULL;
    close_fds(chr);
    chr->ops->close(chr);
    if (chr->log_fd >= 0) {
        close(chr->log_fd);
    }
    g_ptr_array_remove(all_chardevs, chr);
    if (all_chardevs->len == 0) {
        g_clear_pointer(&all_chardevs, g_ptr_array_unref);
    }
    chardev_unref(chr);
}

Chardev *chardev_find(const char *label)
{
    for (unsigned i = 0; all_chardevs && i < all_chardevs->len; i++) {
        Chardev *chr = g_ptr_array_index(all_chardevs, i);

        if (strcmp(chr->label, label) == 0) {
            return chr;
        }
    }
    return NULL;
}

const char *chardev_label(const Chardev *chr)
{
    return chr->label;
}

char *chardev_filename(const Chardev *chr)
{
    return chr->ops->filename(chr);
}

bool chardev_is_open(const Chardev *chr)
{
    return chr->open;
}

bool chardev_is_terminal(const Chardev *chr)
{
    return chr->terminal;
}

bool chardev_has_front_end(const Chardev *chr)
{
    return chr->handlers != NULL;
}

void chardev_foreach(void (*func)(Chardev *chr, void *opaque), void *opaque)
{
    for (unsigned i = 0; all_chardevs && i < all_chardevs->len; i++) {
        func(g_ptr_array_index(all_chardevs, i), opaque);
    }
}
