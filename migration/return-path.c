/* SPDX-License-Identifier: BSD-2-Clause */
/* Return path messages: reading with bounds, and writing. */
#include "migration/return-path.h"

#include "util/be.h"
#include "util/error.h"
#include "util/fault.h"
#include "util/reader.h"

#define HEADER_SIZE 4

typedef struct MessageType {
    const char *name;
    int length;             /* -1: between min and RETURN_PATH_PAYLOAD_MAX */
    int min;
    bool value;             /* the payload is one be32 */
} MessageType;

static const MessageType types[RETURN_PATH__MAX] = {
    [0] = { "INVALID", 0, 0, false },
    [RETURN_PATH_SHUT] = { "SHUT", 4, 4, true },
    [RETURN_PATH_PONG] = { "PONG", 4, 4, true },
    [RETURN_PATH_REQ_PAGES_ID] = { "REQ_PAGES_ID", -1, 13, false },
    [RETURN_PATH_REQ_PAGES] = { "REQ_PAGES", 12, 12, false },
    [RETURN_PATH_RECV_BITMAP] = { "RECV_BITMAP", -1, 1, false },
    [RETURN_PATH_RESUME_ACK] = { "RESUME_ACK", 4, 4, true },
    [RETURN_PATH_SWITCHOVER_ACK] = { "SWITCHOVER_ACK", 0, 0, false },
};

const char *return_path_type_name(unsigned type)
{
    return type < RETURN_PATH__MAX ? types[type].name : "unknown";
}

static bool check_header(unsigned type, unsigned length, GError **errp)
{
    if (type == 0 || type >= RETURN_PATH__MAX) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Received invalid return path message type 0x%04x, length 0x%04x", type, length);
        return false;
    }
    const MessageType *t = &types[type];
    bool fits = t->length >= 0 ? length == (unsigned)t->length
                               : length >= (unsigned)t->min && length <= RETURN_PATH_PAYLOAD_MAX;
    if (!fits) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL,
                    "Received return path message %s with wrong length 0x%04x", t->name, length);
    }
    return fits;
}

static bool parse_payload(const uint8_t *payload, size_t len, ReturnPathMessage *msg, GError **errp)
{
    const MessageType *t = &types[msg->type];
    Reader r;
    reader_init(&r, payload, len);

    if (t->value) {
        msg->value = reader_be32(&r, "value");
    }
    if (msg->type == RETURN_PATH_REQ_PAGES_ID || msg->type == RETURN_PATH_REQ_PAGES) {
        msg->offset = reader_be64(&r, "start");
        msg->length = reader_be32(&r, "length");
    }
    if (msg->type == RETURN_PATH_REQ_PAGES_ID || msg->type == RETURN_PATH_RECV_BITMAP) {
        msg->has_block = reader_counted_string(&r, msg->block, "block name");
    }
    g_autofree char *what = g_strdup_printf("return path message %s", t->name);
    return reader_finish(&r, true, what, errp);
}

int return_path_read(Channel *channel, ReturnPathMessage *msg, GError **errp)
{
    uint8_t header[HEADER_SIZE];
    uint8_t payload[RETURN_PATH_PAYLOAD_MAX];

    if (fault_point("return-path-read", errp)) {
        return -1;
    }
    int got = channel_read_all_eof(channel, header, sizeof(header), errp);
    if (got != 1) {
        return got;
    }
    unsigned type = load_be16(header);
    unsigned length = load_be16(header + 2);
    *msg = (ReturnPathMessage){ .type = (ReturnPathType)type };
    if (!check_header(type, length, errp) ||
        (length && !channel_read_all(channel, payload, length, errp)) ||
        !parse_payload(payload, length, msg, errp)) {
        return -1;
    }
    return 1;
}

bool return_path_write(Channel *channel, ReturnPathType type, uint32_t value, GError **errp)
{
    uint8_t buf[HEADER_SIZE + 4];
    size_t payload = types[type].value ? 4 : 0;

    if (fault_point("return-path-write", errp)) {
        return false;
    }
    store_be16(buf, (uint16_t)type);
    store_be16(buf + 2, (uint16_t)payload);
    store_be32(buf + HEADER_SIZE, value);
    return channel_write_all(channel, buf, HEADER_SIZE + payload, errp);
}
