/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kinds of character device share; private to system/chardev*.c. */
#ifndef GODWIT_SYSTEM_CHARDEV_INTERNAL_H
#define GODWIT_SYSTEM_CHARDEV_INTERNAL_H

#include "system/chardev.h"

/* A device as asked for: what text becomes before anything is opened. */
typedef struct ChardevConfig {
    char *type;           /* "socket", "stdio", ... */
    char *path;           /* unix socket, file, stem of a pipe's two names, link to a pty */
    char *input_path;     /* of a file */
    char *host, *port;    /* inet socket; an empty host listens on every address */
    int fd;               /* ready-made socket, or -1 */
    uint16_t to;          /* last port to try; 0: only `port` */
    bool ipv4, ipv6;      /* allowed address families */
    bool abstract, tight; /* unix: name in the abstract name space; its length is exact */
    bool server, wait, telnet, nodelay, keep_alive;
    bool append; /* to a file */
    bool signal; /* a terminal's ^C interrupts the process */
    bool log_append;
    char *log_file;       /* copy of all output, or NULL */
    int64_t reconnect_ms; /* 0: never */
} ChardevConfig;

/* Errors: see chardev_new(). */
ChardevConfig *chardev_config_parse_spec(const char *spec, GError **errp);
ChardevConfig *chardev_config_parse_options(const char *options, char **id, GError **errp);
void chardev_config_free(ChardevConfig *config);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(ChardevConfig, chardev_config_free)

/* A kind of device.  No entry is NULL.  Main thread. */
typedef struct ChardevOps {
    const char *type;
    /* Opens, connects or listens; calls chardev_attach() when there is a peer. */
    bool (*open)(Chardev *chr, GError **errp);
    /* The peer has gone, its descriptors are closed: wait for another. */
    void (*detached)(Chardev *chr);
    /* Undoes open, however far it came. */
    void (*close)(Chardev *chr);
    char *(*filename)(const Chardev *chr);
} ChardevOps;

extern const ChardevOps chardev_null_ops;
extern const ChardevOps chardev_socket_ops;
extern const ChardevOps chardev_stdio_ops;
extern const ChardevOps chardev_file_ops;
extern const ChardevOps chardev_pipe_ops;
extern const ChardevOps chardev_pty_ops;

struct Chardev {
    const ChardevOps *ops;
    ChardevConfig *config;
    char *label;
    unsigned refs; /* 1, and 1 more while a callback runs */
    bool freed;

    const ChardevHandlers *handlers;
    void *opaque;

    bool open;           /* a peer is there */
    bool told;           /* the front end has had opened() and not yet closed() */
    bool input_ended;    /* end of file on a device that stays open for output */
    bool input_optional; /* end of input does not close */
    bool paused;
    bool terminal;
    bool is_socket;
    int in_fd, out_fd; /* -1: none; may be the same */
    guint in_watch, out_watch, close_source;

    GByteArray *out; /* bytes from out_pos on wait for the peer */
    size_t out_pos;
    int log_fd;
    unsigned telnet_state;

    void *kind; /* the kind's own data */
};

/* A peer is there: takes over the descriptors (-1: no such direction), which may be equal. */
void chardev_attach(Chardev *chr, int in_fd, int out_fd);

/* Open without descriptors: output vanishes. */
void chardev_attach_nothing(Chardev *chr);

/* Takes telnet commands out of @buf; returns the new length. */
size_t chardev_telnet_filter(unsigned *state, uint8_t *buf, size_t len);

#endif
