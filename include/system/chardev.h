/* SPDX-License-Identifier: BSD-2-Clause */
/* Character devices: where a monitor, a qtest server or a serial port meets the outside. */
#ifndef GODWIT_SYSTEM_CHARDEV_H
#define GODWIT_SYSTEM_CHARDEV_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Chardev Chardev;

/* Descriptors accepted with one message; more make the kernel drop the rest. */
#define CHARDEV_MAX_FDS 16

/* Bytes that may wait for a peer that does not read; then its connection ends. */
#define CHARDEV_MAX_PENDING (64u << 20)

/* Front end: told in the main thread.  @fds arrived with the bytes and are the front end's to close. */
typedef struct ChardevHandlers {
    void (*opened)(void *opaque);
    void (*closed)(void *opaque);
    void (*receive)(void *opaque, const uint8_t *buf, size_t len, int *fds, size_t n_fds);
} ChardevHandlers;

/*
 * @spec as on the command line: "unix:PATH,server=on,wait=off", "tcp:HOST:PORT,...", "telnet:HOST:PORT,...",
 * "stdio", "null", "file:PATH", "pipe:PATH", "pty", or for -chardev "socket,id=ID,path=...".  A server
 * without wait=off blocks until its first client has come, and says so with g_info().  Main thread.
 *
 * GODWIT_ERROR_INVALID means that the text makes no sense; any other code that opening the device failed.  A
 * message may have a second line, which is a hint.
 */
Chardev *chardev_new(const char *label, const char *spec, GError **errp);
Chardev *chardev_new_from_options(const char *options, GError **errp); /* -chardev */
void chardev_free(Chardev *chr);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Chardev, chardev_free)

/* Text for -chardev help and `-qmp help`: the names of the supported types, NULL-terminated. */
const char *const *chardev_type_names(void);

/* What may stand in the text of -chardev, NULL-terminated. */
const char *const *chardev_option_names(void);

/* From now on nobody gets standard input and output: "cannot use stdio with -daemonize". */
void chardev_forbid_stdio(void);

Chardev *chardev_find(const char *label);
const char *chardev_label(const Chardev *chr);
/* "unix:PATH,server=on" or "disconnected:unix:PATH,server=on", as query-chardev shows it; caller frees. */
char *chardev_filename(const Chardev *chr);
bool chardev_is_open(const Chardev *chr);
bool chardev_is_terminal(const Chardev *chr); /* stdio on a tty: line editing makes sense */
bool chardev_has_front_end(const Chardev *chr);
void chardev_foreach(void (*func)(Chardev *chr, void *opaque), void *opaque);

/*
 * One front end only; NULL takes it away.  If the device is open already, opened() is called from here.  A
 * client's end of file is closed(); standard input's is not: what it asked for is still answered.
 */
void chardev_set_handlers(Chardev *chr, const ChardevHandlers *handlers, void *opaque);

/* Stop and go on reading from the peer (back-pressure). */
void chardev_pause_receive(Chardev *chr, bool pause);

/* Queues bytes; never blocks.  Bytes for a closed device vanish.  Main thread. */
void chardev_write(Chardev *chr, const void *buf, size_t len);
/* Bytes queued but not yet taken by the peer. */
size_t chardev_pending(const Chardev *chr);
/* Writes what is queued, for at most @timeout_ms: before exit. */
void chardev_flush(Chardev *chr, int timeout_ms);
/*
 * Ends the current connection; a server listens for the next.  closed() comes from the main loop, not from
 * here, so a front end may call this anywhere.
 */
void chardev_disconnect(Chardev *chr);

#endif
