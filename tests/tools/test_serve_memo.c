/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and replies out of a connection's memo are those that are read and written anew. */
#include "tools/serve/http/memo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct desk {
    pare_ctx ctx;
    pare_arena arena;
    pare_memo *memo;
} desk;

static int setup(void **state)
{
    desk *d = calloc(1, sizeof *d);
    if (!d) return 1;
    pare_ctx_init(&d->ctx);
    pare_arena_init(&d->arena, &d->ctx);
    *state = d;
    return 0;
}

static int teardown(void **state)
{
    desk *d = *state;
    pare_memo_free(d->memo);
    pare_arena_free(&d->arena);
    free(d);
    return 0;
}

static void good(const desk *d, pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", d->ctx.message);
}

/* A body of JSON and `bytes` of data, each of which is `fill`. */
static char *body_of(desk *d, const char *json, size_t bytes, int fill)
{
    const size_t n = strlen(json);
    char *body = pare_arena_alloc(&d->arena, n + bytes + 1, 1);
    memcpy(body, json, n);
    memset(body + n, fill, bytes);
    return body;
}

static pare_status read_it(desk *d, pare_infer_request *out, const char *json, size_t bytes,
                           int fill)
{
    const char *body = body_of(d, json, bytes, fill);
    return pare_memo_read(&d->memo, &d->arena, out, body, strlen(json) + bytes, strlen(json));
}

/* --- requests --- */

static void is_same_place(const pare_infer_place *a, const pare_infer_place *b)
{
    assert_int_equal(!a->region, !b->region);
    if (a->region) assert_string_equal(a->region, b->region);
    assert_true(a->offset == b->offset && a->bytes == b->bytes);
}

static void is_equal(const pare_infer_request *a, const pare_infer_request *b)
{
    assert_int_equal(!a->id, !b->id);
    if (a->id) assert_string_equal(a->id, b->id);
    assert_true(a->binary == b->binary && a->priority == b->priority && a->timeout == b->timeout);
    assert_int_equal(!a->sequence.id, !b->sequence.id);
    if (a->sequence.id) assert_string_equal(a->sequence.id, b->sequence.id);
    assert_true(a->sequence.start == b->sequence.start && a->sequence.end == b->sequence.end);
    assert_int_equal(a->input_count, b->input_count);
    for (int i = 0; i < a->input_count; i++) {
        const pare_infer_tensor *s = &a->input[i], *t = &b->input[i];
        assert_string_equal(s->name, t->name);
        assert_true(s->dtype == t->dtype && s->rank == t->rank && s->bytes == t->bytes);
        assert_memory_equal(s->dim, t->dim, sizeof s->dim);
        assert_int_equal(!s->data, !t->data);
        if (s->data) assert_memory_equal(s->data, t->data, s->bytes);
        is_same_place(&s->place, &t->place);
    }
    assert_int_equal(a->wanted_count, b->wanted_count);
    for (int i = 0; i < a->wanted_count; i++) {
        assert_string_equal(a->wanted[i].name, b->wanted[i].name);
        assert_true(a->wanted[i].binary == b->wanted[i].binary &&
                    a->wanted[i].classes == b->wanted[i].classes);
        is_same_place(&a->wanted[i].place, &b->wanted[i].place);
    }
}

#define BINARY(name, shape, bytes)                                                                 \
    "{\"name\": \"" name "\", \"shape\": [" shape                                                  \
    "], \"datatype\": \"FP32\", \"parameters\": {\"binary_data_size\": " bytes "}}"

static const char all_fields[] =
    "{\"id\": \"seven\", \"parameters\": {\"priority\": 2, \"timeout\": 500, "
    "\"binary_data_output\": true, \"sequence_id\": 9, \"sequence_start\": true}, \"inputs\": "
    "[" BINARY("x", "2, 3", "24") ", " BINARY(
        "b", "1",
        "4") "], \"outputs\": [{\"name\": \"y\", "
             "\"parameters\": {\"classification\": 3}}, {\"name\": \"z\", \"parameters\": "
             "{\"shared_memory_region\": \"q\", \"shared_memory_byte_size\": 8}}]}";

static void the_same_words(void **state)
{
    desk *d = *state;
    pare_infer_request first, again, anew;
    good(d, read_it(d, &first, all_fields, 28, 'a'));
    assert_non_null(d->memo);
    for (int fill = 'b'; fill < 'e'; fill++) {
        good(d, read_it(d, &again, all_fields, 28, fill));
        assert_ptr_not_equal(again.wanted, first.wanted);
        const char *body = body_of(d, all_fields, 28, fill);
        good(d,
             pare_infer_read(&d->arena, &anew, body, strlen(all_fields) + 28, strlen(all_fields)));
        is_equal(&again, &anew);
    }
}

/* Each is of other words than the one before. */
static void other_words(void **state)
{
    static const struct {
        const char *json;
        size_t bytes;
        pare_status st;
    } case_[] = {
        {"{\"inputs\": [" BINARY("x", "2, 3", "24") "]}", 24, PARE_OK},
        {"{\"inputs\": [" BINARY("x", "3, 2", "24") "]}", 24, PARE_OK},
        {"{\"inputs\": [" BINARY("x", "3, 2", "24") "]}", 28, PARE_INPUT},
        {"{\"inputs\": [" BINARY("x", "3, 2", "24") "]}", 20, PARE_INPUT},
        {"{\"inputs\": [" BINARY("x", "3, 2", "24") "]}", 24, PARE_OK},
        {"{\"inputs\": [" BINARY("x", "1, 6", "24") "]}", 24, PARE_OK},
        {"{\"inputs\": [", 0, PARE_INPUT},
        {"{\"inputs\": [{\"name\": \"x\", \"shape\": [1], \"datatype\": \"FP32\", \"data\": [4]}]}",
         0, PARE_OK},
        {"{\"inputs\": [{\"name\": \"x\", \"shape\": [0], \"datatype\": \"FP32\", \"data\": []}]}",
         0, PARE_OK},
    };
    desk *d = *state;
    for (int twice = 0; twice < 2; twice++)
        for (size_t i = 0; i < sizeof case_ / sizeof *case_; i++) {
            pare_infer_request got, anew;
            const char *json = case_[i].json, *body = body_of(d, json, case_[i].bytes, 'a');
            pare_ctx_clear(&d->ctx);
            const pare_status st = read_it(d, &got, json, case_[i].bytes, 'a');
            assert_int_equal(st, case_[i].st);
            assert_int_equal(pare_infer_read(&d->arena, &anew, body, strlen(json) + case_[i].bytes,
                                             strlen(json)),
                             st);
            if (st == PARE_OK) is_equal(&got, &anew);
        }
}

/* Strings have lengths of their own each time. */
static void strings(void **state)
{
    static const char json[] =
        "{\"inputs\": [{\"name\": \"x\", \"shape\": [2], \"datatype\": \"BYTES\", \"parameters\": "
        "{\"binary_data_size\": 10}}]}";
    static const char *const data[] = {"\1\0\0\0a\1\0\0\0b", "\2\0\0\0ab\0\0\0\0",
                                       "\0\0\0\0\2\0\0\0ab"};
    desk *d = *state;
    for (size_t i = 0; i < 3; i++) {
        pare_infer_request r;
        char *body = body_of(d, json, 10, 0);
        memcpy(body + strlen(json), data[i], 10);
        good(d, pare_memo_read(&d->memo, &d->arena, &r, body, strlen(json) + 10, strlen(json)));
        const pare_bytes *text = r.input[0].data;
        assert_int_equal(text[0].size, (size_t)(unsigned char)data[i][0]);
        assert_int_equal(text[0].size + text[1].size, 2);
    }
}

/* --- replies --- */

enum { COUNT = 2 };
typedef struct answer {
    float value[8];
    pare_infer_tensor output[COUNT];
    pare_infer_wanted wanted[COUNT];
    pare_infer_result result;
} answer;

static void make(answer *a, float first)
{
    *a = (answer){.result = {.model = "m", .version = 1, .count = COUNT}};
    for (int i = 0; i < 8; i++) a->value[i] = first + (float)i;
    a->output[0] = (pare_infer_tensor){
        .name = "y", .dtype = PARE_f32, .rank = 2, .dim = {1, 6}, .data = a->value, .bytes = 24};
    a->output[1] = (pare_infer_tensor){
        .name = "z", .dtype = PARE_s32, .rank = 1, .dim = {2}, .data = a->value + 6, .bytes = 8};
    for (int i = 0; i < COUNT; i++)
        a->wanted[i] = (pare_infer_wanted){.name = a->output[i].name, .binary = true};
    a->result.output = a->output;
    a->result.wanted = a->wanted;
}

static void compare(desk *d, const answer *a)
{
    pare_reply again = {0}, anew = {0};
    pare_ctx_clear(&d->ctx);
    good(d, pare_memo_write(d->memo, &d->arena, &again, &a->result));
    good(d, pare_infer_write(&d->arena, &anew, &a->result));
    assert_int_equal(again.bytes, anew.bytes);
    assert_int_equal(again.json_bytes, anew.json_bytes);
    assert_memory_equal(again.body, anew.body, anew.bytes);
    assert_string_equal(again.type, anew.type);
    free(again.body);
    free(anew.body);
}

/* Each change comes alone, and goes. */
static void replies(void **state)
{
    desk *d = *state;
    pare_infer_request r;
    answer a;
    good(d, read_it(d, &r, all_fields, 28, 'a'));
    for (int change = 0; change < 12; change++)
        for (int turn = 0; turn < 4; turn++) {
            make(&a, (float)(10 * change + turn));
            switch (turn < 2 ? 0 : change) {
            case 1: a.result.id = "seven"; break;
            case 2: a.result.id = "eight"; break;
            case 3: a.result.model = "n"; break;
            case 4: a.result.version = 2; break;
            case 5: a.output[0].dim[0] = 2, a.output[0].dim[1] = 3; break;
            case 6: a.output[0].dtype = PARE_u32; break;
            case 7: a.output[1].name = a.wanted[1].name = "w"; break;
            case 8: a.wanted[0].classes = 2; break;
            case 9: a.wanted[1].binary = false; break;
            case 10: a.result.count = 1; break;
            case 11: a.output[1].dim[0] = 1, a.output[1].bytes = 4; break;
            default: break;
            }
            compare(d, &a);
        }
    make(&a, 3);
    compare(d, &a);
}

static void no_memo(void **state)
{
    desk *d = *state;
    answer a;
    make(&a, 1);
    compare(d, &a);
    assert_null(d->memo);
}

/* Requests that are all different are read all the same, and one that comes again, too. */
static void never_the_same(void **state)
{
    desk *d = *state;
    pare_infer_request r;
    answer a;
    for (int i = 0; i < 20; i++) {
        char json[256], id[16];
        snprintf(id, sizeof id, "%d", i / 2 * (i < 16));
        snprintf(json, sizeof json, "{\"id\": \"%s\", \"inputs\": [" BINARY("x", "1", "4") "]}",
                 id);
        good(d, read_it(d, &r, json, 4, i));
        assert_string_equal(r.id, id);
        assert_memory_equal(r.input[0].data, ((char[]){(char)i, (char)i, (char)i, (char)i}), 4);
        make(&a, (float)i);
        a.result.id = r.id;
        compare(d, &a);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(the_same_words), CASE(other_words),
                                       CASE(strings),        CASE(replies),
                                       CASE(no_memo),        CASE(never_the_same)};
    return cmocka_run_group_tests_name("tools/serve_memo", tests, NULL, NULL);
}
