/* SPDX-License-Identifier: BSD-2-Clause */
/* The return path: messages from the destination to the source on the main connection. */
#ifndef GODWIT_MIGRATION_RETURN_PATH_H
#define GODWIT_MIGRATION_RETURN_PATH_H

#include "io/channel.h"

/*
 * Each message, no padding, integers big-endian:
 *
 *   offset  width
 *   0       2       type
 *   2       2       length L of the payload, at most RETURN_PATH_PAYLOAD_MAX
 *   4       L       payload
 *
 *   type               L       payload
 *   1 SHUT             4       be32: 0 success, else an error; the last message
 *   2 PONG             4       be32: value of the PING it answers
 *   3 REQ_PAGES_ID     13 + n  be64 offset in the block, be32 length in bytes, u8 n, n bytes block name
 *   4 REQ_PAGES        12      be64 offset, be32 length; block of the previous request
 *   5 RECV_BITMAP      1 + n   u8 n, n bytes block name; the bitmap follows, outside L
 *   6 RESUME_ACK       4       be32: 1
 *   7 SWITCHOVER_ACK   0
 *
 * The destination sends nothing before it has read the command OPEN_RETURN_PATH.
 */
typedef enum {
    RETURN_PATH_SHUT = 1,
    RETURN_PATH_PONG = 2,
    RETURN_PATH_REQ_PAGES_ID = 3,
    RETURN_PATH_REQ_PAGES = 4,
    RETURN_PATH_RECV_BITMAP = 5,
    RETURN_PATH_RESUME_ACK = 6,
    RETURN_PATH_SWITCHOVER_ACK = 7,
    RETURN_PATH__MAX,
} ReturnPathType;

#define RETURN_PATH_PAYLOAD_MAX 512

typedef struct ReturnPathMessage {
    ReturnPathType type;
    uint32_t value;             /* of SHUT, PONG and RESUME_ACK */
    uint64_t offset;            /* of page requests */
    uint32_t length;
    bool has_block;
    char block[256];            /* of REQ_PAGES_ID and RECV_BITMAP */
} ReturnPathMessage;

/* "SHUT", ...; "unknown" beyond the table. */
const char *return_path_type_name(unsigned type);

/*
 * Blocks for one message and checks everything that can be checked without knowing the guest.
 * 1: *msg is filled in; 0: the peer closed between two messages; -1: error.
 */
int return_path_read(Channel *channel, ReturnPathMessage *msg, GError **errp);

/* Writes one message with @value (SHUT, PONG, RESUME_ACK) or without payload (SWITCHOVER_ACK). */
bool return_path_write(Channel *channel, ReturnPathType type, uint32_t value, GError **errp);

#endif
