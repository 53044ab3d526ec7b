/* SPDX-License-Identifier: BSD-2-Clause */
/* The main stream's numbers: header, elements, commands. */
#ifndef GODWIT_MIGRATION_STREAM_FORMAT_H
#define GODWIT_MIGRATION_STREAM_FORMAT_H

/*
 * The stream, integers big-endian, nothing aligned:
 *
 *   be32 STREAM_MAGIC, be32 STREAM_VERSION
 *   the configuration section (configuration.h)
 *   elements, each beginning with one byte:
 *     START, FULL    be32 section id, counted string name, be32 instance id, be32 version, payload, footer
 *     PART, END      be32 section id, payload, footer
 *     COMMAND        be16 number, be16 length, payload
 *     footer         u8 SECTION_FOOTER, be32 section id
 *   u8 SECTION_EOF
 *   u8 SECTION_VMDESCRIPTION, be32 length, JSON text
 *
 * No section says how long it is: a reader that does not know one cannot go on.
 */
#define STREAM_MAGIC 0x5145564du        /* "QEVM" */
#define STREAM_VERSION 3
#define STREAM_VERSION_OBSOLETE 2

typedef enum {
    SECTION_EOF = 0x00,
    SECTION_START = 0x01,
    SECTION_PART = 0x02,
    SECTION_END = 0x03,
    SECTION_FULL = 0x04,
    SECTION_SUBSECTION = 0x05,
    SECTION_VMDESCRIPTION = 0x06,
    SECTION_CONFIGURATION = 0x07,
    SECTION_COMMAND = 0x08,
    SECTION_FOOTER = 0x7e,
} SectionType;

typedef enum {
    COMMAND_INVALID = 0,
    COMMAND_OPEN_RETURN_PATH = 1,
    COMMAND_PING = 2,
    COMMAND_POSTCOPY_ADVISE = 3,
    COMMAND_POSTCOPY_LISTEN = 4,
    COMMAND_POSTCOPY_RUN = 5,
    COMMAND_POSTCOPY_RAM_DISCARD = 6,
    COMMAND_PACKAGED = 7,
    COMMAND_ENABLE_COLO = 8,
    COMMAND_POSTCOPY_RESUME = 9,
    COMMAND_RECV_BITMAP = 10,
    COMMAND_SWITCHOVER_START = 11,
    COMMAND__MAX,
} StreamCommand;

/* Section ids and versions as the peers choose them; a reader learns the ids from the stream. */
#define SECTION_ID_TIMER 0
#define SECTION_ID_RAM 1
#define SECTION_ID_DIRTY_BITMAP 2
#define SECTION_ID_GLOBALSTATE 3
#define SECTION_ID_OTHERS 4             /* the first of the machine's further entries */

#define RAM_SECTION_NAME "ram"
#define RAM_SECTION_VERSION 4
#define DIRTY_BITMAP_SECTION_NAME "dirty-bitmap"
#define DIRTY_BITMAP_SECTION_VERSION 1
#define DIRTY_BITMAP_END_OF_STREAM 0x01 /* the whole payload when there is no block device */

#endif
