/* SPDX-License-Identifier: BSD-2-Clause */
/* A character device for a guest's device, and the peer at its other end. */
#ifndef GODWIT_TESTS_CHARDEV_PEER_H
#define GODWIT_TESTS_CHARDEV_PEER_H

#include "system/chardev.h"

#include <sys/socket.h>
#include <unistd.h>

typedef struct ChardevPeer {
    Chardev *chr;
    int fd;                     /* the other end; does not block */
} ChardevPeer;

static inline void chardev_peer_open(ChardevPeer *p)
{
    int fds[2];
    g_autoptr(GError) error = NULL;

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), ==, 0);
    g_autofree char *options = g_strdup_printf("socket,id=tty,fd=%d", fds[0]);
    p->chr = chardev_new_from_options(options, &error);
    g_assert_no_error(error);
    g_assert_true(chardev_is_open(p->chr));
    p->fd = fds[1];
}

/* Main loop until there is nothing to do. */
static inline void chardev_peer_settle(void)
{
    while (g_main_context_iteration(NULL, FALSE)) {
        /* on with it */
    }
}

/* The front end has gone. */
static inline void chardev_peer_close(ChardevPeer *p)
{
    chardev_free(p->chr);
    close(p->fd);
    chardev_peer_settle();
}

/* All that the peer has been sent until now is added to @bytes. */
static inline void chardev_peer_read(const ChardevPeer *p, GByteArray *bytes)
{
    uint8_t buf[4096];
    ssize_t n;

    while ((n = read(p->fd, buf, sizeof(buf))) > 0) {
        g_byte_array_append(bytes, buf, (guint)n);
    }
}

/* Main loop until the peer has been sent @count bytes in all. */
static inline void chardev_peer_read_count(const ChardevPeer *p, GByteArray *bytes, guint count)
{
    for (;;) {
        chardev_peer_read(p, bytes);
        if (bytes->len >= count) {
            return;
        }
        g_main_context_iteration(NULL, TRUE);
    }
}

/* Byte @n of what a test sends: without a period that the size of a buffer could hide. */
static inline uint8_t chardev_peer_nth(unsigned n)
{
    return (uint8_t)(n + n / 251);
}

/* @bytes are the first @count of these, and no more. */
static inline void chardev_peer_expect_nth(const GByteArray *bytes, unsigned count)
{
    g_assert_cmpuint(bytes->len, ==, count);
    for (unsigned i = 0; i < count; i++) {
        g_assert_cmphex(bytes->data[i], ==, chardev_peer_nth(i));
    }
}

/* The peer sends bytes @from to @to until nothing moves any more, main loop and all: how far it came. */
static inline unsigned chardev_peer_write(const ChardevPeer *p, unsigned from, unsigned to)
{
    bool moved = true;

    while (moved) {
        uint8_t buf[1000];
        unsigned n = MIN((unsigned)sizeof(buf), to - from);

        for (unsigned i = 0; i < n; i++) {
            buf[i] = chardev_peer_nth(from + i);
        }
        ssize_t written = n ? write(p->fd, buf, n) : 0;
        from += written > 0 ? (unsigned)written : 0;
        moved = g_main_context_iteration(NULL, FALSE) || written > 0;
    }
    return from;
}

#endif
