/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of gRPC against protobuf-c's own packing: what is read of a request, each thing that
   can be wrong with it, and what is written. */
#include "tools/serve/grpc/grpc.pb-c.h"
#include "tools/serve/grpc/infer.h"
#include "tools/serve/grpc/methods.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef Inference__ModelInferRequest__InferInputTensor input_tensor;
typedef Inference__ModelInferRequest__InferRequestedOutputTensor output_tensor;

typedef struct wire {
    pare_ctx ctx;
    pare_arena arena;
    pare_exchange *x; /* for which memory counts */
    pare_infer_request request;
    pare_reply reply;
    char *body; /* of just its size */
    size_t bytes;
    /* a request of one input and one output */
    Inference__ModelInferRequest message;
    input_tensor input, *inputs[2];
    output_tensor output, *outputs[2];
    Inference__InferTensorContents contents;
    int64_t shape[PARE_MAX_RANK + 1];
    ProtobufCBinaryData raw[2];
} wire;

static void message_init(wire *w)
{
    inference__model_infer_request__init(&w->message);
    inference__model_infer_request__infer_input_tensor__init(&w->input);
    inference__model_infer_request__infer_requested_output_tensor__init(&w->output);
    inference__infer_tensor_contents__init(&w->contents);
    w->inputs[0] = w->inputs[1] = &w->input;
    w->outputs[0] = w->outputs[1] = &w->output;
    w->input.name = "x";
    w->input.datatype = "FP32";
    w->input.shape = w->shape;
    w->input.n_shape = 2;
    w->shape[0] = 2;
    w->shape[1] = 3;
    w->output.name = "y";
    w->message.model_name = "m";
    w->message.inputs = w->inputs;
    w->message.n_inputs = 1;
    w->message.outputs = w->outputs;
    w->message.raw_input_contents = w->raw;
}

static int setup(void **state)
{
    wire *w = calloc(1, sizeof *w);
    if (!w) return 1;
    pare_ctx_init(&w->ctx);
    pare_arena_init(&w->arena, &w->ctx);
    message_init(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    wire *w = *state;
    pare_arena_free(&w->arena);
    free(w->reply.body);
    free(w->body);
    free(w);
    return 0;
}

static pare_status read_message(wire *w)
{
    free(w->body);
    w->bytes = inference__model_infer_request__get_packed_size(&w->message);
    w->body = malloc(w->bytes + !w->bytes);
    assert_non_null(w->body);
    inference__model_infer_request__pack(&w->message, (uint8_t *)w->body);
    pare_ctx_clear(&w->ctx);
    return pare_grpc_infer_read(&w->arena, w->x, &w->request, w->body, w->bytes);
}

static void good(const wire *w, pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", w->ctx.message);
}

/* The request is refused with a message that holds the words. */
static void bad(wire *w, const char *words)
{
    if (read_message(w) != PARE_INPUT) fail_msg("not refused, expected '%s'", words);
    if (!strstr(w->ctx.message, words)) fail_msg("%s: expected '%s'", w->ctx.message, words);
    message_init(w);
}

static void give_raw(wire *w, const void *data, size_t bytes)
{
    w->raw[0] = (ProtobufCBinaryData){bytes, (uint8_t *)data};
    w->message.n_raw_input_contents = 1;
}

/* --- reading --- */

static void every_field_is_read(void **state)
{
    wire *w = *state;
    static const float x[6] = {1, 2, -3, 4, 5, 6};
    Inference__InferParameter number = INFERENCE__INFER_PARAMETER__INIT;
    Inference__InferParameterEntry entry[3] = {INFERENCE__INFER_PARAMETER_ENTRY__INIT,
                                               INFERENCE__INFER_PARAMETER_ENTRY__INIT,
                                               INFERENCE__INFER_PARAMETER_ENTRY__INIT};
    Inference__InferParameter values[3] = {number, number, number};
    Inference__InferParameterEntry *list[3] = {&entry[0], &entry[1], &entry[2]};
    for (int i = 0; i < 3; i++) entry[i].value = &values[i];
    entry[0].key = "priority";
    values[0].parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM;
    values[0].uint64_param = 2;
    entry[1].key = "timeout";
    values[1].parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    values[1].int64_param = 500;
    entry[2].key = "classification";
    values[2].parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    values[2].int64_param = 5;
    w->message.id = "mine";
    w->message.parameters = list;
    w->message.n_parameters = 2;
    w->message.n_outputs = 1;
    w->output.parameters = list + 2;
    w->output.n_parameters = 1;
    give_raw(w, x, sizeof x);
    good(w, read_message(w));
    const pare_infer_request *r = &w->request;
    assert_string_equal(r->id, "mine");
    assert_true(r->priority == 2 && r->timeout == 500);
    assert_true(r->input_count == 1 && r->wanted_count == 1);
    assert_string_equal(r->input[0].name, "x");
    assert_true(r->input[0].dtype == PARE_f32 && r->input[0].rank == 2);
    assert_true(r->input[0].dim[0] == 2 && r->input[0].dim[1] == 3);
    assert_int_equal(r->input[0].bytes, sizeof x);
    assert_memory_equal(r->input[0].data, x, sizeof x);
    const char *at = r->input[0].data;
    assert_true(at > w->body && at + sizeof x <= w->body + w->bytes); /* borrowed */
    assert_int_equal(at - w->body, pare_grpc_first_tensor(w->body, w->bytes));
    assert_int_equal(at - w->body, pare_grpc_first_tensor(w->body, (size_t)(at - w->body)));
    assert_int_equal(0, pare_grpc_first_tensor(w->body, (size_t)(at - w->body) - 2));
    assert_string_equal(r->wanted[0].name, "y");
    assert_int_equal(r->wanted[0].classes, 5);
}

/* Two elements of each type, as typed contents. */
static void every_type_is_read(void **state)
{
    wire *w = *state;
    protobuf_c_boolean flags[2] = {1, 0};
    int32_t s32[2] = {-128, 127};
    int64_t s64[2] = {INT64_MIN, INT64_MAX};
    uint32_t u32[2] = {255, 0};
    uint64_t u64[2] = {UINT64_MAX, 1};
    float f32[2] = {-1.5f, 3e38f};
    double f64[2] = {1e300, -2};
    w->input.contents = &w->contents;
    w->input.n_shape = 1;
    w->contents.bool_contents = flags;
    w->contents.int_contents = s32;
    w->contents.int64_contents = s64;
    w->contents.uint_contents = u32;
    w->contents.uint64_contents = u64;
    w->contents.fp32_contents = f32;
    w->contents.fp64_contents = f64;
    static const int8_t s8[2] = {-128, 127};
    static const int16_t s16[2] = {-128, 127};
    static const uint8_t u8[2] = {255, 0}, bools[2] = {1, 0};
    static const uint16_t u16[2] = {255, 0};
    const struct {
        const char *type;
        size_t *count;
        const void *want;
        size_t bytes;
    } cases[] = {{"BOOL", &w->contents.n_bool_contents, bools, 2},
                 {"INT8", &w->contents.n_int_contents, s8, 2},
                 {"INT16", &w->contents.n_int_contents, s16, 4},
                 {"INT32", &w->contents.n_int_contents, s32, 8},
                 {"INT64", &w->contents.n_int64_contents, s64, 16},
                 {"UINT8", &w->contents.n_uint_contents, u8, 2},
                 {"UINT16", &w->contents.n_uint_contents, u16, 4},
                 {"UINT32", &w->contents.n_uint_contents, u32, 8},
                 {"UINT64", &w->contents.n_uint64_contents, u64, 16},
                 {"FP32", &w->contents.n_fp32_contents, f32, 8},
                 {"FP64", &w->contents.n_fp64_contents, f64, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w->input.datatype = (char *)cases[i].type;
        *cases[i].count = 2;
        good(w, read_message(w));
        *cases[i].count = 0;
        assert_int_equal(w->request.input[0].bytes, cases[i].bytes);
        assert_memory_equal(w->request.input[0].data, cases[i].want, cases[i].bytes);
    }
}

static void strings_are_read(void **state)
{
    wire *w = *state;
    ProtobufCBinaryData text[2] = {{2, (uint8_t *)"ab"}, {0, NULL}};
    w->input.datatype = "BYTES";
    w->input.n_shape = 1;
    w->input.contents = &w->contents;
    w->contents.bytes_contents = text;
    w->contents.n_bytes_contents = 2;
    good(w, read_message(w));
    const pare_bytes *got = w->request.input[0].data;
    assert_true(got[0].size == 2 && !memcmp(got[0].data, "ab", 2) && got[1].size == 0);
    w->input.contents = NULL;
    give_raw(w, "\2\0\0\0ab\0\0\0\0", 10);
    good(w, read_message(w));
    got = w->request.input[0].data;
    assert_true(got[0].size == 2 && !memcmp(got[0].data, "ab", 2) && got[1].size == 0);
    give_raw(w, "\2\0\0\0ab\1\0\0\0", 10);
    bad(w, "end within string 1");
}

static void wrong_requests_are_refused(void **state)
{
    wire *w = *state;
    static float x[7];
    static int32_t large[6] = {128};
    bad(w, "input 'x': has no elements");
    w->input.name = "";
    bad(w, "input 0: no 'name'");
    w->input.datatype = "FP31";
    bad(w, "no datatype 'FP31'");
    w->input.datatype = "";
    bad(w, "no 'datatype'");
    w->shape[1] = -1;
    bad(w, "axis 1 of 'shape'");
    w->shape[0] = w->shape[1] = INT64_MAX;
    bad(w, "too large");
    w->input.n_shape = PARE_MAX_RANK + 1;
    bad(w, "axes");
    give_raw(w, x, 20);
    bad(w, "has 20 bytes, 'shape' takes 24");
    w->message.n_inputs = 2;
    bad(w, "given twice");
    w->message.n_outputs = 2;
    give_raw(w, x, 24);
    bad(w, "output 'y' is given twice");
    give_raw(w, x, 24);
    w->raw[1] = w->raw[0];
    w->message.n_raw_input_contents = 2;
    bad(w, "2 raw_input_contents, and 1 inputs");
    w->input.contents = &w->contents;
    w->contents.fp32_contents = x;
    w->contents.n_fp32_contents = 6;
    give_raw(w, x, 24);
    bad(w, "has 'contents', but");
    w->input.contents = &w->contents;
    w->contents.fp32_contents = x;
    w->contents.n_fp32_contents = 7;
    bad(w, "more than the 6");
    w->input.contents = &w->contents;
    w->contents.fp32_contents = x;
    w->contents.n_fp32_contents = 5;
    bad(w, "'contents' has 5 elements, 'shape' 6");
    w->input.contents = &w->contents;
    w->contents.int_contents = large;
    w->contents.n_int_contents = 6;
    bad(w, "holds a field 2, expected 6");
    w->input.datatype = "INT8";
    w->input.contents = &w->contents;
    w->contents.int_contents = large;
    w->contents.n_int_contents = 6;
    bad(w, "element 0 of 'contents' is no INT8");
    w->input.datatype = "FP16";
    w->input.contents = &w->contents;
    bad(w, "'contents' cannot hold FP16");
    w->message.id = "\xff";
    give_raw(w, x, 24);
    bad(w, "no UTF-8");
}

/* What is given so often that it takes much memory. */
static void repeated_fields_are_refused(void **state)
{
    wire *w = *state;
    static const char twice[] = "\12\1m\12\1m";
    static Inference__InferParameterEntry entry = INFERENCE__INFER_PARAMETER_ENTRY__INIT;
    Inference__InferParameter value = INFERENCE__INFER_PARAMETER__INIT;
    Inference__InferParameterEntry *list[1025];
    pare_grpc_names names;
    value.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    entry.key = "k";
    entry.value = &value;
    for (int i = 0; i < 1025; i++) list[i] = &entry;
    for (int i = 0; i < 3; i++) {
        w->message.n_parameters = w->input.n_parameters = w->output.n_parameters = 0;
        w->message.n_outputs = 1;
        give_raw(w, "", 0);
        *(i == 0   ? &w->message.n_parameters
          : i == 1 ? &w->input.n_parameters
                   : &w->output.n_parameters) = 1025;
        w->message.parameters = w->input.parameters = w->output.parameters = list;
        bad(w, "1025 parameters, at most 1024 are read");
    }
    assert_int_equal(pare_grpc_names_read(&w->arena, &names, twice, 6), PARE_INPUT);
    assert_int_equal(pare_grpc_names_read(&w->arena, &names, twice, 3), PARE_OK);
    assert_string_equal(names.model, "m");
}

/* Numbers that take one byte in the message, and eight where they are read. */
static void typed_contents_count(void **state)
{
    wire *w = *state;
    int64_t ones[6] = {1, 1, 1, 1, 1, 1};
    size_t held = 0;
    pare_exchange x;
    pare_exchange_init(&x, &w->ctx);
    x.held = &held;
    w->x = &x;
    for (x.most_held = 47; x.most_held <= 48; x.most_held++) {
        w->input.datatype = "INT64";
        w->input.contents = &w->contents;
        w->contents.int64_contents = ones;
        w->contents.n_int64_contents = 6;
        assert_int_equal(read_message(w), x.most_held < 48 ? PARE_MEMORY : PARE_OK);
        assert_int_equal(held, x.most_held < 48 ? 0 : 48);
    }
    pare_exchange_free(&x);
    assert_int_equal(held, 0);
}

/* Every beginning of a request is read or refused with a message, and nothing behind it is. */
static void a_cut_request_is_refused(void **state)
{
    wire *w = *state;
    float x[6] = {1};
    w->message.id = "mine";
    w->message.n_outputs = 1;
    w->input.contents = &w->contents;
    w->contents.fp32_contents = x;
    w->contents.n_fp32_contents = 6;
    good(w, read_message(w));
    for (size_t cut = 0; cut < w->bytes; cut++) {
        char *part = malloc(cut + !cut);
        assert_non_null(part);
        memcpy(part, w->body, cut);
        pare_ctx_clear(&w->ctx);
        const pare_status st = pare_grpc_infer_read(&w->arena, w->x, &w->request, part, cut);
        assert_true(st == PARE_OK || (st == PARE_INPUT && w->ctx.message[0]));
        (void)pare_grpc_first_tensor(part, cut);
        free(part);
    }
}

/* --- writing --- */

static void write_two(wire *w, bool stream)
{
    static const float sum[2] = {1.5f, -2};
    static const pare_bytes text[1] = {{"abc", 3}};
    const pare_infer_tensor output[2] = {
        {.name = "sum", .dtype = PARE_f32, .rank = 2, .dim = {1, 2}, .data = sum, .bytes = 8},
        {.name = "text",
         .dtype = PARE_string,
         .rank = 1,
         .dim = {1},
         .data = text,
         .bytes = sizeof text}};
    const pare_infer_wanted wanted[2] = {{.name = "sum"}, {.name = "text"}};
    const pare_infer_result result = {
        .model = "m", .id = "7", .version = 3, .output = output, .wanted = wanted, .count = 2};
    good(w, pare_grpc_infer_write(&w->arena, &w->reply, &result, stream));
}

static void check_two(const Inference__ModelInferResponse *r)
{
    static const float sum[2] = {1.5f, -2};
    assert_non_null(r);
    assert_string_equal(r->model_name, "m");
    assert_string_equal(r->model_version, "3");
    assert_string_equal(r->id, "7");
    assert_true(r->n_outputs == 2 && r->n_raw_output_contents == 2);
    assert_string_equal(r->outputs[0]->name, "sum");
    assert_string_equal(r->outputs[0]->datatype, "FP32");
    assert_true(r->outputs[0]->n_shape == 2 && r->outputs[0]->shape[1] == 2);
    assert_int_equal(r->raw_output_contents[0].len, sizeof sum);
    assert_memory_equal(r->raw_output_contents[0].data, sum, sizeof sum);
    assert_string_equal(r->outputs[1]->datatype, "BYTES");
    assert_int_equal(r->raw_output_contents[1].len, 7);
    assert_memory_equal(r->raw_output_contents[1].data, "\3\0\0\0abc", 7);
}

static void a_response_is_written(void **state)
{
    wire *w = *state;
    write_two(w, false);
    Inference__ModelInferResponse *r = inference__model_infer_response__unpack(
        NULL, w->reply.bytes, (const uint8_t *)w->reply.body);
    check_two(r);
    assert_int_equal(r->n_parameters, 0);
    inference__model_infer_response__free_unpacked(r, NULL);
}

static void a_response_of_a_stream_is_written(void **state)
{
    wire *w = *state;
    write_two(w, true);
    Inference__ModelStreamInferResponse *r = inference__model_stream_infer_response__unpack(
        NULL, w->reply.bytes, (const uint8_t *)w->reply.body);
    assert_non_null(r);
    assert_string_equal(r->error_message, "");
    check_two(r->infer_response);
    assert_int_equal(r->infer_response->n_parameters, 1);
    assert_string_equal(r->infer_response->parameters[0]->key, "triton_final_response");
    assert_true(r->infer_response->parameters[0]->value->bool_param);
    inference__model_stream_infer_response__free_unpacked(r, NULL);
}

/* --- methods --- */

static bool is_found(const char *path) { return pare_grpc_method_find(path, strlen(path)) != NULL; }

static void methods_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < inference__grpcinference_service__descriptor.n_methods; i++) {
        char path[256];
        snprintf(path, sizeof path, "/inference.GRPCInferenceService/%s",
                 inference__grpcinference_service__descriptor.methods[i].name);
        if (!is_found(path)) fail_msg("%s is not found", path);
    }
    assert_false(is_found("/inference.GRPCInferenceService/"));
    assert_false(is_found("/inference.GRPCInferenceService/ModelInf"));
    assert_false(is_found("/inference.GRPCInferenceService/ModelInfers"));
    assert_false(is_found("/other.Service/ModelInfer"));
    assert_false(is_found(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_field_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(every_type_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(strings_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_requests_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(repeated_fields_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(typed_contents_count, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cut_request_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_response_is_written, setup, teardown),
        cmocka_unit_test_setup_teardown(a_response_of_a_stream_is_written, setup, teardown),
        cmocka_unit_test(methods_are_found),
    };
    return cmocka_run_group_tests_name("grpc", tests, NULL, NULL);
}
