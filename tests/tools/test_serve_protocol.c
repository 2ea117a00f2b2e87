/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and responses of the KServe protocol: what is read, each thing that can be wrong, and
   what is written. */
#include "tools/serve/protocol.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct wire {
    pare_ctx ctx;
    pare_arena arena;
    pare_infer_request request;
    pare_reply reply;
} wire;

static int setup(void **state)
{
    wire *w = calloc(1, sizeof *w);
    if (!w) return 1;
    pare_ctx_init(&w->ctx);
    pare_arena_init(&w->arena, &w->ctx);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    wire *w = *state;
    pare_arena_free(&w->arena);
    free(w->reply.body);
    free(w);
    return 0;
}

static pare_status read_json(wire *w, const char *json)
{
    pare_ctx_clear(&w->ctx);
    return pare_infer_read(&w->arena, &w->request, json, strlen(json), strlen(json));
}

/* JSON and the binary data behind it, in memory of just that size. */
static pare_status read_binary(wire *w, const char *json, const void *data, size_t bytes)
{
    const size_t n = strlen(json);
    char *body = pare_arena_alloc(&w->arena, n + bytes, 1);
    memcpy(body, json, n);
    if (bytes) memcpy(body + n, data, bytes);
    pare_ctx_clear(&w->ctx);
    return pare_infer_read(&w->arena, &w->request, body, n + bytes, n);
}

static void good(const wire *w, pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", w->ctx.message);
}

/* --- reading --- */

#define INPUT(fields) "{\"inputs\": [{" fields "}]}"
#define X             "\"name\": \"x\", "

static void every_field_is_read(void **state)
{
    wire *w = *state;
    good(w, read_json(w, "{\"id\": \"7\", \"parameters\": {\"priority\": 2, \"timeout\": 500, "
                         "\"binary_data_output\": true, \"own\": [1]}, "
                         "\"inputs\": [{\"name\": \"x\", \"shape\": [2, 3], \"datatype\": \"FP32\","
                         " \"data\": [[1, 2.5, -3], [4, 5, 1e3]]}], "
                         "\"outputs\": [{\"name\": \"y\", \"parameters\": {\"binary_data\": false}}"
                         ", {\"name\": \"z\", \"parameters\": {\"classification\": 5}}]}"));
    const pare_infer_request *r = &w->request;
    assert_string_equal(r->id, "7");
    assert_true(r->priority == 2 && r->timeout == 500 && r->binary);
    assert_true(r->input_count == 1 && r->wanted_count == 2);
    assert_string_equal(r->input[0].name, "x");
    assert_true(r->input[0].dtype == PARE_f32 && r->input[0].rank == 2 && r->input[0].bytes == 24);
    assert_true(r->input[0].dim[0] == 2 && r->input[0].dim[1] == 3);
    const float want[] = {1, 2.5f, -3, 4, 5, 1000};
    assert_memory_equal(r->input[0].data, want, sizeof want);
    assert_string_equal(r->wanted[0].name, "y");
    assert_true(!r->wanted[0].binary && !r->wanted[0].classes);
    assert_true(r->wanted[1].binary && r->wanted[1].classes == 5);
}

static void sequences_are_read(void **state)
{
    static const struct {
        const char *parameters, *id;
        bool start, end;
    } cases[] = {
        {"", NULL, false, false},
        {"\"sequence_id\": 0, \"sequence_start\": true", NULL, true, false},
        {"\"sequence_id\": \"\", \"sequence_end\": true", NULL, false, true},
        {"\"sequence_id\": 42", "42", false, false},
        {"\"sequence_id\": \"a b\", \"sequence_start\": true, \"sequence_end\": false", "a b", true,
         false},
        {"\"sequence_id\": 9223372036854775807", "9223372036854775807", false, false},
    };
    wire *w = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[256];
        snprintf(json, sizeof json, "{\"inputs\": [], \"parameters\": {%s}}", cases[i].parameters);
        good(w, read_json(w, json));
        const pare_infer_sequence *s = &w->request.sequence;
        assert_true(!s->id == !cases[i].id);
        if (s->id) assert_string_equal(s->id, cases[i].id);
        assert_true(s->start == cases[i].start && s->end == cases[i].end);
    }
}

static void every_type_is_read(void **state)
{
    static const struct {
        const char *type, *data;
        uint64_t bits;
        size_t size;
    } cases[] = {
        {"BOOL", "true", 1, 1},
        {"BOOL", "0", 0, 1},
        {"UINT8", "255", 255, 1},
        {"UINT16", "65535", 65535, 2},
        {"UINT32", "4294967295", 4294967295u, 4},
        {"UINT64", "9223372036854775807", 9223372036854775807u, 8},
        {"INT8", "-128", 0x80, 1},
        {"INT16", "-2", 0xfffe, 2},
        {"INT32", "-2147483648", 0x80000000u, 4},
        {"INT64", "-9223372036854775808", 1ull << 63, 8},
        {"FP16", "1.5", 0x3e00, 2},
        {"BF16", "-2", 0xc000, 2},
        {"FP32", "-1", 0xbf800000u, 4},
        {"FP64", "1", 0x3ff0000000000000u, 8},
    };
    wire *w = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{\"inputs\": [{\"name\": \"x\", \"shape\": [], \"datatype\": \"%s\", "
                 "\"data\": [%s]}]}",
                 cases[i].type, cases[i].data);
        good(w, read_json(w, text));
        const pare_infer_tensor *t = &w->request.input[0];
        assert_int_equal(t->bytes, cases[i].size);
        assert_memory_equal(t->data, &cases[i].bits, cases[i].size);
        assert_string_equal(pare_infer_type_name(t->dtype), cases[i].type);
    }
}

static void binary_data_are_borrowed(void **state)
{
    wire *w = *state;
    const float data[] = {1, 2, 3, 4, 5, 6};
    good(w, read_binary(w,
                        "{\"inputs\": [{\"name\": \"a\", \"shape\": [2], \"datatype\": \"FP32\", "
                        "\"parameters\": {\"binary_data_size\": 8}}, {\"name\": \"j\", \"shape\": "
                        "[1], \"datatype\": \"INT8\", \"data\": [-1]}, {\"name\": \"b\", \"shape\":"
                        " [1, 4], \"datatype\": \"FP32\", \"parameters\": {\"binary_data_size\": "
                        "16}}]}",
                        data, sizeof data));
    assert_memory_equal(w->request.input[0].data, data, 8);
    assert_memory_equal(w->request.input[2].data, data + 2, 16);
    assert_ptr_equal((const char *)w->request.input[0].data + 8, w->request.input[2].data);
}

static void places_in_shared_memory_are_noted(void **state)
{
    wire *w = *state;
    good(w, read_json(w, INPUT("\"name\": \"x\", \"shape\": [2], \"datatype\": \"FP32\", "
                               "\"parameters\": {\"shared_memory_region\": \"r\", "
                               "\"shared_memory_offset\": 16, \"shared_memory_byte_size\": 8}")));
    const pare_infer_tensor *t = w->request.input;
    assert_null(t->data);
    assert_string_equal(t->place.region, "r");
    assert_true(t->place.offset == 16 && t->place.bytes == 8 && t->bytes == 8);
    good(w, read_json(w, "{\"inputs\": [], \"outputs\": [{\"name\": \"y\", \"parameters\": "
                         "{\"shared_memory_region\": \"o\", \"shared_memory_byte_size\": 4}}]}"));
    assert_string_equal(w->request.wanted[0].place.region, "o");
    assert_true(!w->request.wanted[0].place.offset && w->request.wanted[0].place.bytes == 4);
}

static void strings_are_read(void **state)
{
    wire *w = *state;
    static const char data[] = "\3\0\0\0abc\0\0\0\0\1\0\0\0\0";
    good(w, read_binary(w,
                        "{\"inputs\": [{\"name\": \"s\", \"shape\": [3], \"datatype\": \"BYTES\", "
                        "\"parameters\": {\"binary_data_size\": 16}}]}",
                        data, 16));
    const pare_bytes *text = w->request.input[0].data;
    assert_true(text[0].size == 3 && !memcmp(text[0].data, "abc", 3) && !text[1].size);
    assert_true(text[2].size == 1 && !*(const char *)text[2].data);
    good(w, read_json(w, "{\"inputs\": [{\"name\": \"s\", \"shape\": [2], \"datatype\": "
                         "\"BYTES\", \"data\": [\"a\\u0000b\", \"\"]}]}"));
    text = w->request.input[0].data;
    assert_true(text[0].size == 3 && !memcmp(text[0].data, "a\0b", 3) && !text[1].size);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *json, *words;
    } cases[] = {
        {"", "line 1"},
        {"{\"inputs\": [}", "the request's JSON, line 1"},
        {"[]", "not a JSON object"},
        {"{}", "no array 'inputs'"},
        {"{\"inputs\": 1}", "'inputs' is not an array"},
        {"{\"inputs\": [], \"inputs\": []}", "duplicate"},
        {"{\"id\": 5, \"inputs\": []}", "'id' is not a text"},
        {"{\"id\": \"a\\u0000b\", \"inputs\": []}", "'id' is not a text"},
        {"{\"inputs\": [], \"parameters\": {\"priority\": -1}}", "'priority'"},
        {"{\"inputs\": [], \"parameters\": {\"binary_data_output\": 1}}", "'binary_data_output'"},
        {"{\"inputs\": [], \"parameters\": {\"sequence_id\": 1.5}}", "'sequence_id'"},
        {"{\"inputs\": [], \"parameters\": {\"sequence_id\": \"a\\u0000\"}}", "'sequence_id'"},
        {"{\"inputs\": [], \"parameters\": {\"sequence_start\": 0}}", "'sequence_start'"},
        {"{\"inputs\": [], \"parameters\": {\"sequence_end\": \"\"}}", "'sequence_end'"},
        {"{\"inputs\": [], \"outputs\": [{}]}", "output 0: no 'name'"},
        {"{\"inputs\": [], \"outputs\": [{\"name\": \"y\"}, {\"name\": \"y\"}]}",
         "output 'y' is given twice"},
        {"{\"inputs\": [5]}", "input 0 is not an object"},
        {INPUT("\"shape\": [1]"), "input 0: no 'name'"},
        {INPUT(X "\"datatype\": \"FP32\""), "input 'x': no array 'shape'"},
        {INPUT(X "\"shape\": [-1], \"datatype\": \"FP32\", \"data\": []"), "axis 0 of 'shape'"},
        {INPUT(X "\"shape\": [1.5], \"datatype\": \"FP32\", \"data\": []"), "axis 0 of 'shape'"},
        {INPUT(X "\"shape\": [1,1,1,1,1,1,1,1,1], \"datatype\": \"FP32\", \"data\": [1]"),
         "at most 8"},
        {INPUT(X "\"shape\": [1], \"data\": [1]"), "no 'datatype'"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP33\", \"data\": [1]"), "no datatype 'FP33'"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\""), "expected one of 'data'"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\", \"data\": [1], \"parameters\": "
                 "{\"binary_data_size\": 4}"),
         "expected one of 'data'"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\", \"data\": 1"), "'data' is not an array"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\", \"data\": [1, 2]"), "more than the 1"},
        {INPUT(X "\"shape\": [3], \"datatype\": \"FP32\", \"data\": [1, 2]"), "has 2 elements"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\", \"data\": [\"1\"]"), "no FP32"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"INT8\", \"data\": [128]"), "no INT8"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"UINT8\", \"data\": [-1]"), "no UINT8"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"INT32\", \"data\": [1.5]"), "no INT32"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"BOOL\", \"data\": [2]"), "no BOOL"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"BYTES\", \"data\": [1]"), "no BYTES"},
        {INPUT(X "\"shape\": [1000000000000], \"datatype\": \"FP32\", \"data\": []"), "fewer"},
        {INPUT(X "\"shape\": [9223372036854775807, 2], \"datatype\": \"FP32\", \"data\": []"),
         "too large"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\", \"parameters\": {\"binary_data_size\": "
                 "4}"),
         "0 bytes were sent"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\", \"parameters\": "
                 "{\"shared_memory_region\": \"r\"}"),
         "no 'shared_memory_byte_size'"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\", \"parameters\": "
                 "{\"shared_memory_region\": \"r\", \"shared_memory_byte_size\": 8}"),
         "'shape' takes 4 bytes"},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\", \"data\": [1], \"parameters\": "
                 "{\"shared_memory_region\": \"r\", \"shared_memory_byte_size\": 4}"),
         "expected one of 'data'"},
        {"{\"inputs\": [{" X "\"shape\": [0], \"datatype\": \"FP32\", \"data\": []}, {" X
         "\"shape\": [0], \"datatype\": \"FP32\", \"data\": []}]}",
         "input 'x' is given twice"},
    };
    wire *w = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_not_equal(read_json(w, cases[i].json), PARE_OK);
        if (!strstr(w->ctx.message, cases[i].words))
            fail_msg("'%s' is missing in: %s", cases[i].words, w->ctx.message);
    }
}

/* Lists of which each name is compared with each, and JSON that would fill the memory. */
static void what_is_too_long_is_refused(void **state)
{
    enum { LISTED = 1025, JSON = (32 << 20) + 1 };
    wire *w = *state;
    char *text = calloc(JSON + 1, 1);
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "{\"inputs\": [], \"outputs\": [{}");
    for (int i = 1; i < LISTED; i++) n += (size_t)sprintf(text + n, ",{}");
    memcpy(text + n, "]}", 3);
    assert_int_equal(read_json(w, text), PARE_INPUT);
    assert_non_null(strstr(w->ctx.message, "1025 outputs, at most 1024"));
    memset(text, ' ', JSON);
    assert_int_equal(read_json(w, text), PARE_INPUT);
    assert_non_null(strstr(w->ctx.message, "at most 33554432"));
    free(text);
}

static void wrong_binary_data_are_named(void **state)
{
#define S3(size)                                                                                   \
    INPUT("\"name\": \"s\", \"shape\": [3], \"datatype\": \"BYTES\", \"parameters\": "             \
          "{\"binary_data_size\": " size "}")
    static const struct {
        const char *json, *words;
        size_t bytes;
    } cases[] = {
        {INPUT(X "\"shape\": [2], \"datatype\": \"FP32\", \"parameters\": {\"binary_data_size\": "
                 "4}"),
         "'shape' takes 8 bytes", 4},
        {INPUT(X "\"shape\": [1], \"datatype\": \"FP32\", \"parameters\": {\"binary_data_size\": "
                 "4}"),
         "4 bytes of binary data are behind", 8},
        {S3("8"), "hold no 3 strings", 8},
        {S3("12"), "end within string 2", 12},
        {S3("20"), "8 bytes of binary data are behind the last string", 20},
    };
    wire *w = *state;
    static const char zeros[16] = {4};
    char data[20] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].bytes == 12) memcpy(data, zeros, 4);
        if (cases[i].bytes == 20) memset(data, 0, sizeof data);
        assert_int_equal(read_binary(w, cases[i].json, data, cases[i].bytes), PARE_INPUT);
        if (!strstr(w->ctx.message, cases[i].words))
            fail_msg("'%s' is missing in: %s", cases[i].words, w->ctx.message);
    }
}

/* A valid request that ends at any byte, or whose memory is not granted, is a failure with a
   message. */
static void cut_requests_fail(void **state)
{
    wire *w = *state;
    static const char json[] =
        "{\"inputs\": [{\"name\": \"x\", \"shape\": [2], \"datatype\": \"FP32\", "
        "\"parameters\": {\"binary_data_size\": 8}}]}";
    char body[sizeof json + 8] = {0};
    const size_t n = sizeof json - 1;
    memcpy(body, json, n);
    good(w, pare_infer_read(&w->arena, &w->request, body, n + 8, n));
    for (size_t cut = 0; cut < n + 8; cut++) {
        char *part = malloc(cut + !cut);
        memcpy(part, body, cut);
        pare_ctx_clear(&w->ctx);
        assert_int_equal(pare_infer_read(&w->arena, &w->request, part, cut, cut < n ? cut : n),
                         PARE_INPUT);
        assert_true(w->ctx.message[0]);
        free(part);
    }
}

static void missing_memory_is_a_failure(void **state)
{
    (void)state;
    static const char json[] = "{\"id\": \"a\", \"inputs\": [{\"name\": \"x\", \"shape\": [2], "
                               "\"datatype\": \"BYTES\", \"data\": [\"a\", \"b\"]}]}";
    pare_status st = PARE_MEMORY;
    for (long n = 0; st != PARE_OK; n++) {
        pare_ctx ctx;
        pare_arena arena;
        pare_infer_request request;
        pare_ctx_init(&ctx);
        ctx.fail_after = n;
        pare_arena_init(&arena, &ctx);
        st = pare_infer_read(&arena, &request, json, strlen(json), strlen(json));
        assert_true(st == PARE_OK || (st == PARE_MEMORY && ctx.message[0]));
        pare_arena_free(&arena);
        assert_true(n < 100);
    }
}

/* --- writing --- */

static pare_status write_one(wire *w, const pare_infer_tensor *t, pare_infer_wanted wanted,
                             bool batched)
{
    const pare_infer_result result = {.model = "m",
                                      .id = "i",
                                      .version = 3,
                                      .output = t,
                                      .wanted = &wanted,
                                      .count = 1,
                                      .batched = batched};
    free(w->reply.body);
    w->reply = (pare_reply){0};
    pare_ctx_clear(&w->ctx);
    return pare_infer_write(&w->arena, &w->reply, &result);
}

static void json_is_written(void **state)
{
    wire *w = *state;
    const float data[] = {1, -0.5f};
    const pare_infer_tensor t = {"y", PARE_f32, 2, {1, 2}, data, sizeof data, {0}, NULL};
    good(w, write_one(w, &t, (pare_infer_wanted){"y", false, 0, {0}}, true));
    static const char want[] = "{\"id\":\"i\",\"model_name\":\"m\",\"model_version\":\"3\","
                               "\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,2],"
                               "\"data\":[1.0,-0.5]}]}";
    assert_int_equal(w->reply.bytes, strlen(want));
    assert_memory_equal(w->reply.body, want, strlen(want));
    assert_int_equal(w->reply.json_bytes, 0);
    assert_string_equal(w->reply.type, "application/json");
}

static void every_type_is_written(void **state)
{
    static const struct {
        pare_dtype dtype;
        uint64_t bits;
        const char *text;
    } cases[] = {
        {PARE_bool, 1, "[true]"},
        {PARE_u8, 255, "[255]"},
        {PARE_s8, 0x80, "[-128]"},
        {PARE_u16, 65535, "[65535]"},
        {PARE_s16, 0xfffe, "[-2]"},
        {PARE_u32, 4294967295u, "[4294967295]"},
        {PARE_s32, 0x80000000u, "[-2147483648]"},
        {PARE_u64, 5, "[5]"},
        {PARE_s64, 1ull << 63, "[-9223372036854775808]"},
        {PARE_f16, 0x3e00, "[1.5]"},
        {PARE_bf16, 0xc000, "[-2.0]"},
        {PARE_f64, 0x3ff0000000000000u, "[1.0]"},
    };
    wire *w = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[64];
        const size_t size = (size_t)pare_type(cases[i].dtype)->bits / 8;
        const pare_infer_tensor t = {"y", cases[i].dtype, 1, {1}, &cases[i].bits, size, {0}, NULL};
        good(w, write_one(w, &t, (pare_infer_wanted){"y", false, 0, {0}}, false));
        snprintf(want, sizeof want, "\"data\":%s}]}", cases[i].text);
        assert_true(w->reply.bytes > strlen(want));
        assert_memory_equal(w->reply.body + w->reply.bytes - strlen(want), want, strlen(want));
    }
}

static void binary_data_are_written(void **state)
{
    wire *w = *state;
    const float data[] = {1, -0.5f};
    const pare_bytes text[] = {{"ab", 2}, {NULL, 0}};
    const pare_infer_tensor t = {"y", PARE_f32, 1, {2}, data, sizeof data, {0}, NULL};
    const pare_infer_tensor s = {"s", PARE_string, 1, {2}, text, sizeof text, {0}, NULL};
    good(w, write_one(w, &t, (pare_infer_wanted){"y", true, 0, {0}}, true));
    assert_int_equal(w->reply.bytes, w->reply.json_bytes + 8);
    assert_memory_equal(w->reply.body + w->reply.json_bytes, data, 8);
    assert_string_equal(w->reply.type, "application/octet-stream");
    good(w, write_one(w, &s, (pare_infer_wanted){"s", true, 0, {0}}, true));
    assert_int_equal(w->reply.bytes, w->reply.json_bytes + 10);
    assert_memory_equal(w->reply.body + w->reply.json_bytes, "\2\0\0\0ab\0\0\0\0", 10);
}

static void classes_are_the_largest_values(void **state)
{
    wire *w = *state;
    const float data[] = {1, 3, 2, /* ties: the first */ 5, 5, 5};
    const pare_infer_tensor t = {"y", PARE_f32, 2, {2, 3}, data, sizeof data, {0}, NULL};
    good(w, write_one(w, &t, (pare_infer_wanted){"y", false, 2, {0}}, true));
    static const char rows[] = "\"datatype\":\"BYTES\",\"shape\":[2,2],\"data\":[\"3.000000:1\","
                               "\"2.000000:2\",\"5.000000:0\",\"5.000000:1\"]}]}";
    assert_memory_equal(w->reply.body + w->reply.bytes - strlen(rows), rows, strlen(rows));
    good(w, write_one(w, &t, (pare_infer_wanted){"y", false, 99, {0}}, false));
    static const char all[] = "\"shape\":[6],\"data\":[\"5.000000:3\",\"5.000000:4\","
                              "\"5.000000:5\",\"3.000000:1\",\"2.000000:2\",\"1.000000:0\"]}]}";
    assert_memory_equal(w->reply.body + w->reply.bytes - strlen(all), all, strlen(all));
    /* whole numbers that f32 would round are told apart */
    const int64_t large[] = {(1 << 24) + 1, (1 << 24) + 2, 1 << 24};
    const pare_infer_tensor l = {"y", PARE_s64, 1, {3}, large, sizeof large, {0}, NULL};
    good(w, write_one(w, &l, (pare_infer_wanted){"y", false, 3, {0}}, false));
    assert_non_null(strstr(w->reply.body, "\"16777218.000000:1\",\"16777217.000000:0\""));
}

static void what_json_cannot_hold_is_refused(void **state)
{
    wire *w = *state;
    const float nan = NAN, inf = INFINITY;
    const uint64_t large = 1ull << 63;
    const pare_bytes damaged = {"\xff", 1};
    const pare_infer_tensor cases[] = {
        {"y", PARE_f32, 1, {1}, &nan, 4, {0}, NULL},
        {"y", PARE_f32, 1, {1}, &inf, 4, {0}, NULL},
        {"y", PARE_u64, 1, {1}, &large, 8, {0}, NULL},
        {"y", PARE_string, 1, {1}, &damaged, sizeof damaged, {0}, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(write_one(w, &cases[i], (pare_infer_wanted){"y", false, 0, {0}}, true),
                         PARE_INPUT);
        assert_non_null(strstr(w->ctx.message, "output 'y'"));
        good(w, write_one(w, &cases[i], (pare_infer_wanted){"y", true, 0, {0}}, true));
    }
    assert_int_equal(write_one(w, &cases[0], (pare_infer_wanted){"y", false, 1, {0}}, true),
                     PARE_INPUT);
    assert_int_equal(write_one(w, &cases[3], (pare_infer_wanted){"y", false, 1, {0}}, true),
                     PARE_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_field_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(sequences_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(every_type_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(binary_data_are_borrowed, setup, teardown),
        cmocka_unit_test_setup_teardown(places_in_shared_memory_are_noted, setup, teardown),
        cmocka_unit_test_setup_teardown(strings_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_too_long_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_binary_data_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_requests_fail, setup, teardown),
        cmocka_unit_test(missing_memory_is_a_failure),
        cmocka_unit_test_setup_teardown(json_is_written, setup, teardown),
        cmocka_unit_test_setup_teardown(every_type_is_written, setup, teardown),
        cmocka_unit_test_setup_teardown(binary_data_are_written, setup, teardown),
        cmocka_unit_test_setup_teardown(classes_are_the_largest_values, setup, teardown),
        cmocka_unit_test_setup_teardown(what_json_cannot_hold_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
