/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA: who may send what when: credits, replies, the queue. */
#include "migration/rdma/rdma-control.h"
#include "util/error.h"

static void queue(RdmaControl *c, RdmaControlType type, const char *payload)
{
    rdma_control_queue(c, type, 1, payload, payload ? strlen(payload) : 0);
}

static void assert_next(RdmaControl *c, RdmaControlType type, const char *payload)
{
    g_autofree RdmaMessage *m = rdma_control_next(c);

    g_assert_nonnull(m);
    g_assert_cmpint(m->type, ==, type);
    g_assert_cmpmem(m->payload, m->length, payload, strlen(payload));
}

static void received(RdmaControl *c, RdmaControlType type)
{
    g_autoptr(GError) error = NULL;
    g_assert_true(rdma_control_received(c, type, &error));
    g_assert_no_error(error);
}

static void refused(RdmaControl *c, unsigned type, const char *message)
{
    g_autoptr(GError) error = NULL;
    g_assert_false(rdma_control_received(c, type, &error));
    g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
    g_assert_cmpstr(error->message, ==, message);
}

/* One READY, one message; the first one too. */
static void test_credit(void)
{
    RdmaControl c;

    rdma_control_init(&c, RDMA_SENDER);
    queue(&c, RDMA_CONTROL_QEMU_FILE, "abc");
    queue(&c, RDMA_CONTROL_REGISTER_FINISHED, NULL);
    g_assert_null(rdma_control_next(&c));
    received(&c, RDMA_CONTROL_READY);
    assert_next(&c, RDMA_CONTROL_QEMU_FILE, "abc");
    g_assert_null(rdma_control_next(&c));
    received(&c, RDMA_CONTROL_READY);
    assert_next(&c, RDMA_CONTROL_REGISTER_FINISHED, "");
    g_assert_null(rdma_control_next(&c));
    g_assert_cmpuint(rdma_control_queued(&c), ==, 0);
    rdma_control_clear(&c);
}

/* A reply needs no READY and comes before the next one. */
static void test_reply(void)
{
    static const struct {
        RdmaControlType request, reply;
    } pairs[] = {
        { RDMA_CONTROL_RAM_BLOCKS_REQUEST, RDMA_CONTROL_RAM_BLOCKS_RESULT },
        { RDMA_CONTROL_REGISTER_REQUEST, RDMA_CONTROL_REGISTER_RESULT },
        { RDMA_CONTROL_UNREGISTER_REQUEST, RDMA_CONTROL_UNREGISTER_FINISHED },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(pairs); i++) {
        RdmaControl c;
        rdma_control_init(&c, RDMA_SENDER);
        received(&c, RDMA_CONTROL_READY);
        queue(&c, pairs[i].request, "x");
        queue(&c, RDMA_CONTROL_COMPRESS, "y");
        assert_next(&c, pairs[i].request, "x");
        g_assert_null(rdma_control_next(&c));
        received(&c, pairs[i].reply);
        g_assert_null(rdma_control_next(&c));
        received(&c, RDMA_CONTROL_READY);
        assert_next(&c, RDMA_CONTROL_COMPRESS, "y");
        rdma_control_clear(&c);
    }
}

/* An ERROR must never pass for the READY that was waited for. */
static void test_error_in_place_of_ready(void)
{
    RdmaControl c;

    rdma_control_init(&c, RDMA_SENDER);
    refused(&c, RDMA_CONTROL_ERROR, "The peer has reported an error (control message ERROR)");
    g_assert_false(c.ready);
    received(&c, RDMA_CONTROL_READY);
    queue(&c, RDMA_CONTROL_REGISTER_REQUEST, "x");
    assert_next(&c, RDMA_CONTROL_REGISTER_REQUEST, "x");
    refused(&c, RDMA_CONTROL_ERROR, "The peer has reported an error (control message ERROR)");
    rdma_control_clear(&c);
    rdma_control_init(&c, RDMA_RECEIVER);
    refused(&c, RDMA_CONTROL_ERROR, "The peer has reported an error (control message ERROR)");
}

static void test_sender_refuses(void)
{
    RdmaControl c;

    rdma_control_init(&c, RDMA_SENDER);
    refused(&c, RDMA_CONTROL_REGISTER_RESULT,
            "Was expecting a READY (2) control message, but got: REGISTER_RESULT (8)");
    refused(&c, 77, "Was expecting a READY (2) control message, but got: unknown (77)");
    received(&c, RDMA_CONTROL_READY);
    refused(&c, RDMA_CONTROL_READY, "The peer has sent READY twice for one control message");
    queue(&c, RDMA_CONTROL_RAM_BLOCKS_REQUEST, NULL);
    assert_next(&c, RDMA_CONTROL_RAM_BLOCKS_REQUEST, "");
    refused(&c, RDMA_CONTROL_READY,
            "Was expecting a RAM_BLOCKS_RESULT (5) control message, but got: READY (2)");
    rdma_control_clear(&c);
}

static void test_receiver(void)
{
    RdmaControl c;

    rdma_control_init(&c, RDMA_RECEIVER);
    refused(&c, RDMA_CONTROL_QEMU_FILE, "The peer has sent the control message QEMU_FILE (3) without READY");
    rdma_control_ready_sent(&c);
    received(&c, RDMA_CONTROL_QEMU_FILE);
    refused(&c, RDMA_CONTROL_COMPRESS, "The peer has sent the control message COMPRESS (6) without READY");
    rdma_control_ready_sent(&c);
    refused(&c, RDMA_CONTROL_READY, "The peer has sent READY where it is to send messages");
    g_assert_null(rdma_control_next(&c));
}

/* A QEMU sends the first message of its return path without READY, and is one ahead from then on. */
static void test_first_is_free(void)
{
    RdmaControl c;

    rdma_control_init(&c, RDMA_RECEIVER);
    rdma_control_first_is_free(&c);
    received(&c, RDMA_CONTROL_QEMU_FILE);
    refused(&c, RDMA_CONTROL_QEMU_FILE, "The peer has sent the control message QEMU_FILE (3) without READY");
    for (unsigned i = 0; i < 3; i++) {
        rdma_control_ready_sent(&c);
        received(&c, RDMA_CONTROL_QEMU_FILE);
        refused(&c, RDMA_CONTROL_QEMU_FILE,
                "The peer has sent the control message QEMU_FILE (3) without READY");
    }
    rdma_control_init(&c, RDMA_RECEIVER);
    rdma_control_first_is_free(&c);
    rdma_control_ready_sent(&c);
    received(&c, RDMA_CONTROL_QEMU_FILE);
    received(&c, RDMA_CONTROL_QEMU_FILE);
    refused(&c, RDMA_CONTROL_QEMU_FILE, "The peer has sent the control message QEMU_FILE (3) without READY");
}

/* Stream bytes join; a command between them keeps them apart, and no message becomes too long. */
static void test_join(void)
{
    RdmaControl c;
    g_autofree char *large = g_strnfill(RDMA_PAYLOAD_MAX - 2, 'z');

    rdma_control_init(&c, RDMA_SENDER);
    queue(&c, RDMA_CONTROL_QEMU_FILE, "ab");
    queue(&c, RDMA_CONTROL_QEMU_FILE, "cd");
    queue(&c, RDMA_CONTROL_REGISTER_FINISHED, NULL);
    queue(&c, RDMA_CONTROL_QEMU_FILE, "ef");
    queue(&c, RDMA_CONTROL_QEMU_FILE, large);
    queue(&c, RDMA_CONTROL_QEMU_FILE, "g");
    g_assert_cmpuint(rdma_control_queued(&c), ==, 4);
    received(&c, RDMA_CONTROL_READY);
    assert_next(&c, RDMA_CONTROL_QEMU_FILE, "abcd");
    received(&c, RDMA_CONTROL_READY);
    assert_next(&c, RDMA_CONTROL_REGISTER_FINISHED, "");
    received(&c, RDMA_CONTROL_READY);
    g_autofree RdmaMessage *m = rdma_control_next(&c);
    g_assert_cmpuint(m->length, ==, RDMA_PAYLOAD_MAX);
    received(&c, RDMA_CONTROL_READY);
    assert_next(&c, RDMA_CONTROL_QEMU_FILE, "g");
    rdma_control_clear(&c);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rdma-control/credit", test_credit);
    g_test_add_func("/rdma-control/reply", test_reply);
    g_test_add_func("/rdma-control/error-in-place-of-ready", test_error_in_place_of_ready);
    g_test_add_func("/rdma-control/sender-refuses", test_sender_refuses);
    g_test_add_func("/rdma-control/receiver", test_receiver);
    g_test_add_func("/rdma-control/first-is-free", test_first_is_free);
    g_test_add_func("/rdma-control/join", test_join);
    return g_test_run();
}
