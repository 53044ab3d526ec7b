/* SPDX-License-Identifier: BSD-2-Clause */
/* The qtest protocol: lines of text that read and write guest memory and set the clock (-qtest DEV). */
#ifndef GODWIT_SYSTEM_QTEST_H
#define GODWIT_SYSTEM_QTEST_H

#include "system/chardev.h"
#include "system/machine.h"

#include <stdio.h>

/* Bytes of memory that one read, write, b64read or b64write may move. */
#define QTEST_MAX_DATA (16u << 20)

/*
 * Characters of a line: the data in hexadecimal and the words before it.  A longer line is answered with an
 * error.
 */
#define QTEST_MAX_LINE (2 * QTEST_MAX_DATA + 256)

/*
 * Runs one line (without its line feed; a carriage return at the end is dropped) and returns the reply, with
 * its line feed; the caller frees.  Main thread.
 *
 *     endianness                            OK little
 *     readb|readw|readl|readq ADDR          OK 0x%016x
 *     writeb|writew|writel|writeq ADDR N    OK
 *     read ADDR LEN                         OK 0xHEX
 *     write ADDR LEN 0xHEX                  OK
 *     b64read ADDR LEN                      OK BASE64
 *     b64write ADDR LEN BASE64              OK
 *     memset ADDR LEN BYTE                  OK
 *     clock_step [NS]                       OK NOW        (without NS to the next timer; there are none)
 *     clock_set NS                          OK NOW        (never backwards)
 *     inb|inw|inl PORT                      OK 0x%04x     (no device answers: all ones)
 *     outb|outw|outl PORT N                 OK
 *     irq_intercept_in|irq_intercept_out PATH, set_irq_in PATH NAME N LEVEL     FAIL Unknown device
 *     module_load PREFIX NAME               FAIL
 *
 * Numbers are decimal, 0x hexadecimal or 0 octal, and may be negative (modulo 2^64).  Values are cut to their
 * width.  What cannot be done is answered with "ERR why", an unknown word with "FAIL Unknown command 'word'".
 */
char *qtest_run_line(Machine *m, const char *line, size_t len);

/* A server on @chr, which it does not own and which must outlive it. */
typedef struct QtestServer QtestServer;

QtestServer *qtest_server_new(Machine *m, Chardev *chr);
void qtest_server_free(QtestServer *server);

/*
 * Writes each line received and sent to @log, which must outlive the server: "[R +0.125000] read 0 4" and
 * "[S +0.125090] OK 0x00000000", with the seconds since the client came.  NULL: no log.
 */
void qtest_server_set_log(QtestServer *server, FILE *log);

#endif
