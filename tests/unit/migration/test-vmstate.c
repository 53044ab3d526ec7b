/* SPDX-License-Identifier: BSD-2-Clause */
/* The device state codec: bytes, descriptions, versions, subsections, limits. */
#include "io/transport.h"
#include "migration/vmstate.h"
#include "stream-builder.h"
#include "util/error.h"

#include <string.h>

typedef struct Inner {
    uint16_t a;
    bool b;
} Inner;

typedef struct Device {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    int32_t i32;
    int64_t i64;
    bool flag;
    uint8_t buffer[5];
    uint16_t array[3];
    Inner inner[2];
    uint32_t newer;
    uint32_t extra;
    unsigned calls;
    bool fail_pre_load, fail_post_load;
} Device;

static const VMStateField inner_fields[] = {
    VMSTATE_FIELD(a, VMSTATE_UINT16, Inner),
    VMSTATE_FIELD(b, VMSTATE_BOOL, Inner),
    VMSTATE_END,
};

static const VMStateDescription vmstate_inner = { .name = "inner", .version = 1, .fields = inner_fields };

static const VMStateField device_fields[] = {
    VMSTATE_FIELD(u8, VMSTATE_UINT8, Device),
    VMSTATE_FIELD(u16, VMSTATE_UINT16, Device),
    VMSTATE_FIELD(u32, VMSTATE_UINT32, Device),
    VMSTATE_FIELD(u64, VMSTATE_UINT64, Device),
    VMSTATE_FIELD(i32, VMSTATE_INT32, Device),
    VMSTATE_FIELD(i64, VMSTATE_INT64, Device),
    VMSTATE_FIELD(flag, VMSTATE_BOOL, Device),
    VMSTATE_FIELD(buffer, VMSTATE_BUFFER, Device),
    { .name = "gap", .type = VMSTATE_UNUSED, .size = 3 },
    VMSTATE_ARRAY(array, VMSTATE_UINT16, Device, 3),
    { .name = "inner", .type = VMSTATE_STRUCT, .offset = offsetof(Device, inner), .size = sizeof(Inner),
      .array_len = 2, .vmsd = &vmstate_inner },
    { .name = "newer", .type = VMSTATE_UINT32, .offset = offsetof(Device, newer), .version = 2 },
    VMSTATE_END,
};

static bool extra_needed(void *opaque)
{
    return ((Device *)opaque)->extra != 0;
}

static const VMStateField extra_fields[] = {
    VMSTATE_FIELD(extra, VMSTATE_UINT32, Device),
    VMSTATE_END,
};

static const VMStateDescription vmstate_extra = {
    .name = "device/extra", .version = 1, .minimum_version = 1, .fields = extra_fields,
    .needed = extra_needed,
};

static bool pre_save(void *opaque, GError **errp)
{
    ((Device *)opaque)->calls++;
    return true;
}

static bool pre_load(void *opaque, GError **errp)
{
    Device *d = opaque;
    d->calls++;
    if (d->fail_pre_load) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_FAILED, "not now");
    }
    return !d->fail_pre_load;
}

static bool post_load(void *opaque, int version, GError **errp)
{
    Device *d = opaque;
    d->calls++;
    if (d->fail_post_load) {
        g_set_error(errp, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL, "bad wiring");
    }
    return !d->fail_post_load;
}

static const VMStateDescription *const device_subsections[] = { &vmstate_extra, NULL };

static const VMStateDescription vmstate_device = {
    .name = "device",
    .version = 2,
    .minimum_version = 1,
    .fields = device_fields,
    .subsections = device_subsections,
    .pre_save = pre_save,
    .pre_load = pre_load,
    .post_load = post_load,
};

static const Device sample = {
    .u8 = 0x12, .u16 = 0x1234, .u32 = 0x12345678, .u64 = 0x123456789abcdef0, .i32 = -2, .i64 = -3,
    .flag = true, .buffer = "abcd", .array = { 1, 2, 0x304 },
    .inner = { { 0x1122, true }, { 0x3344, false } }, .newer = 9,
};

/* The fields of version 1. */
static const uint8_t old_bytes[] = {
    0x12, 0x12, 0x34, 0x12, 0x34, 0x56, 0x78, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0,
    0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd, 1,
    'a', 'b', 'c', 'd', 0, 0, 0, 0, 0, 1, 0, 2, 3, 4, 0x11, 0x22, 1, 0x33, 0x44, 0,
};
static const uint8_t newer_bytes[] = { 0, 0, 0, 9 };

static Stream *sample_bytes(bool with_extra)
{
    Stream *s = g_byte_array_new();
    put_bytes(s, old_bytes, sizeof(old_bytes));
    put_bytes(s, newer_bytes, sizeof(newer_bytes));
    if (with_extra) {
        put_subsection(s, "device/extra", 1);
        put_be32(s, 77);
    }
    return s;
}

static void save(const VMStateDescription *vmsd, void *opaque, JsonWriter *desc, const Stream *expected)
{
    g_autoptr(Channel) channel = channel_buffer_new(NULL, 0);
    g_autoptr(StreamWriter) w = stream_writer_new(channel);
    g_autoptr(GError) error = NULL;

    g_assert_true(vmstate_save(w, vmsd, opaque, desc, &error));
    g_assert_true(stream_flush(w, &error));
    g_assert_no_error(error);
    const GByteArray *bytes = channel_buffer_bytes(channel);
    g_assert_cmpmem(bytes->data, bytes->len, expected->data, expected->len);
}

static bool load(const Stream *s, const VMStateDescription *vmsd, void *opaque, int version, GError **errp)
{
    g_autoptr(Channel) channel = channel_buffer_new(s->data, s->len);
    g_autoptr(StreamReader) r = stream_reader_new(channel);
    return vmstate_load(r, vmsd, opaque, version, errp);
}

static void test_save(void)
{
    Device d = sample;
    g_autoptr(GByteArray) plain = sample_bytes(false);
    save(&vmstate_device, &d, NULL, plain);
    g_assert_cmpuint(d.calls, ==, 1);

    d.extra = 77;
    g_autoptr(GByteArray) with_extra = sample_bytes(true);
    save(&vmstate_device, &d, NULL, with_extra);
}

static void test_describe(void)
{
    Device d = sample;
    d.extra = 77;
    g_autoptr(JsonWriter) desc = json_writer_new();
    g_autoptr(GByteArray) bytes = sample_bytes(true);

    json_writer_start_object(desc, NULL);
    save(&vmstate_device, &d, desc, bytes);
    json_writer_end_object(desc);
    g_assert_cmpstr(
        json_writer_text(desc), ==,
        "{\"vmsd_name\": \"device\", \"version\": 2, \"fields\": ["
        "{\"name\": \"u8\", \"type\": \"uint8\", \"size\": 1}, "
        "{\"name\": \"u16\", \"type\": \"uint16\", \"size\": 2}, "
        "{\"name\": \"u32\", \"type\": \"uint32\", \"size\": 4}, "
        "{\"name\": \"u64\", \"type\": \"uint64\", \"size\": 8}, "
        "{\"name\": \"i32\", \"type\": \"int32\", \"size\": 4}, "
        "{\"name\": \"i64\", \"type\": \"int64\", \"size\": 8}, "
        "{\"name\": \"flag\", \"type\": \"bool\", \"size\": 1}, "
        "{\"name\": \"buffer\", \"type\": \"buffer\", \"size\": 5}, "
        "{\"name\": \"gap\", \"type\": \"unused_buffer\", \"size\": 3}, "
        "{\"name\": \"array\", \"array_len\": 3, \"type\": \"uint16\", \"size\": 2}, "
        "{\"name\": \"inner\", \"index\": 0, \"type\": \"struct\", \"struct\": "
        "{\"vmsd_name\": \"inner\", \"version\": 1, \"fields\": ["
        "{\"name\": \"a\", \"type\": \"uint16\", \"size\": 2}, "
        "{\"name\": \"b\", \"type\": \"bool\", \"size\": 1}]}, "
        "\"size\": 3}, "
        "{\"name\": \"inner\", \"index\": 1, \"type\": \"struct\", \"struct\": "
        "{\"vmsd_name\": \"inner\", \"version\": 1, \"fields\": ["
        "{\"name\": \"a\", \"type\": \"uint16\", \"size\": 2}, "
        "{\"name\": \"b\", \"type\": \"bool\", \"size\": 1}]}, "
        "\"size\": 3}, "
        "{\"name\": \"newer\", \"type\": \"uint32\", \"size\": 4}], "
        "\"subsections\": [{\"vmsd_name\": \"device/extra\", \"version\": 1, \"fields\": ["
        "{\"name\": \"extra\", \"type\": \"uint32\", \"size\": 4}]}]}");
}

static void assert_sample(const Device *d, uint32_t newer, uint32_t extra)
{
    Device expected = sample;
    expected.newer = newer;
    expected.extra = extra;
    g_assert_cmpuint(d->u8, ==, expected.u8);
    g_assert_cmpuint(d->u16, ==, expected.u16);
    g_assert_cmpuint(d->u32, ==, expected.u32);
    g_assert_cmpuint(d->u64, ==, expected.u64);
    g_assert_cmpint(d->i32, ==, expected.i32);
    g_assert_cmpint(d->i64, ==, expected.i64);
    g_assert_true(d->flag);
    g_assert_cmpmem(d->buffer, 5, "abcd", 5);
    g_assert_cmpmem(d->array, sizeof(d->array), expected.array, sizeof(expected.array));
    g_assert_cmpuint(d->inner[1].a, ==, 0x3344);
    g_assert_true(d->inner[0].b && !d->inner[1].b);
    g_assert_cmpuint(d->newer, ==, newer);
    g_assert_cmpuint(d->extra, ==, extra);
}

static void test_load(void)
{
    Device d = { 0 };
    g_autoptr(GByteArray) plain = sample_bytes(false);
    g_assert_true(load(plain, &vmstate_device, &d, 2, NULL));
    assert_sample(&d, 9, 0);
    g_assert_cmpuint(d.calls, ==, 2);

    Device with = { 0 };
    g_autoptr(GByteArray) with_extra = sample_bytes(true);
    g_assert_true(load(with_extra, &vmstate_device, &with, 2, NULL));
    assert_sample(&with, 9, 77);

    Device old = { .newer = 5 };
    g_autoptr(GByteArray) version_1 = g_byte_array_new();
    put_bytes(version_1, old_bytes, sizeof(old_bytes));
    g_assert_true(load(version_1, &vmstate_device, &old, 1, NULL));
    assert_sample(&old, 5, 0);
}

static void test_versions(void)
{
    g_autoptr(GByteArray) plain = sample_bytes(false);
    static const int bad[] = { -1, 0, 3 };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        Device d = { 0 };
        g_autoptr(GError) error = NULL;
        g_assert_false(load(plain, &vmstate_device, &d, bad[i], &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
        g_assert_cmpuint(d.u8, ==, 0);
    }
}

static void test_truncated(void)
{
    g_autoptr(GByteArray) bytes = sample_bytes(true);
    guint plain = sizeof(old_bytes) + sizeof(newer_bytes);
    guint full = bytes->len;
    for (guint len = 0; len < full; len++) {
        Device d = { 0 };
        g_autoptr(GError) error = NULL;
        bytes->len = len;
        bool ok = load(bytes, &vmstate_device, &d, 2, &error);
        /* Too short for a subsection of ours: it may be something else that follows. */
        bool may_be_other = len >= plain && len < plain + 2 + strlen("device/");
        g_assert_cmpint(ok || may_be_other, ==, may_be_other);
        g_assert_cmpint(ok, ==, error == NULL);
    }
}

static void test_subsections(void)
{
    /* Not a child of ours: left for whoever comes next. */
    g_autoptr(GByteArray) foreign = sample_bytes(false);
    put_subsection(foreign, "other/extra", 1);
    Device d = { 0 };
    g_assert_true(load(foreign, &vmstate_device, &d, 2, NULL));

    static const struct {
        const char *name;
        uint32_t version;
    } bad[] = {
        { "device/unknown", 1 }, { "device/extra", 2 }, { "device/extra", 0 }, { "device/extra", 0x80000001 },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GByteArray) s = sample_bytes(false);
        g_autoptr(GError) error = NULL;
        put_subsection(s, bad[i].name, bad[i].version);
        put_be32(s, 1);
        g_assert_false(load(s, &vmstate_device, &d, 2, &error));
        g_assert_error(error, GODWIT_ERROR, GODWIT_ERROR_PROTOCOL);
        g_assert_nonnull(strstr(error->message, bad[i].name));
    }
}

static void test_hooks(void)
{
    g_autoptr(GByteArray) bytes = sample_bytes(false);
    g_autoptr(GError) pre = NULL;
    g_autoptr(GError) post = NULL;

    Device d = { .fail_pre_load = true };
    g_assert_false(load(bytes, &vmstate_device, &d, 2, &pre));
    g_assert_cmpstr(pre->message, ==,
                    "pre load hook failed for: device, version_id: 2, minimum_version: 1: not now");
    g_assert_cmpuint(d.u8, ==, 0);

    d = (Device){ .fail_post_load = true };
    g_assert_false(load(bytes, &vmstate_device, &d, 2, &post));
    g_assert_cmpstr(post->message, ==,
                    "post load hook failed for: device, version_id: 2, minimum_version: 1: bad wiring");
}

static void test_limits(void)
{
    static const VMStateField many[] = {
        { .name = "many", .type = VMSTATE_UINT8, .array_len = VMSTATE_ARRAY_MAX + 1 }, VMSTATE_END,
    };
    static const VMStateField large[] = {
        { .name = "large", .type = VMSTATE_UNUSED, .size = VMSTATE_SIZE_MAX + 1 }, VMSTATE_END,
    };
    static VMStateField endless[] = {
        { .name = "endless", .type = VMSTATE_STRUCT, .size = 1 }, VMSTATE_END,
    };
    static const VMStateDescription tables[] = {
        { .name = "many", .version = 1, .fields = many },
        { .name = "large", .version = 1, .fields = large },
        { .name = "endless", .version = 1, .fields = endless },
    };
    endless[0].vmsd = &tables[2];
    for (size_t i = 0; i < G_N_ELEMENTS(tables); i++) {
        g_autoptr(Channel) channel = channel_buffer_new("\0\0\0\0", 4);
        g_autoptr(StreamWriter) w = stream_writer_new(channel);
        g_autoptr(StreamReader) r = stream_reader_new(channel);
        g_autoptr(GError) save_error = NULL;
        g_autoptr(GError) load_error = NULL;
        uint8_t memory[8] = { 0 };
        g_assert_false(vmstate_save(w, &tables[i], memory, NULL, &save_error));
        g_assert_error(save_error, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED);
        g_assert_false(vmstate_load(r, &tables[i], memory, 1, &load_error));
        g_assert_error(load_error, GODWIT_ERROR, GODWIT_ERROR_UNSUPPORTED);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vmstate/save", test_save);
    g_test_add_func("/vmstate/describe", test_describe);
    g_test_add_func("/vmstate/load", test_load);
    g_test_add_func("/vmstate/versions", test_versions);
    g_test_add_func("/vmstate/truncated", test_truncated);
    g_test_add_func("/vmstate/subsections", test_subsections);
    g_test_add_func("/vmstate/hooks", test_hooks);
    g_test_add_func("/vmstate/limits", test_limits);
    return g_test_run();
}
