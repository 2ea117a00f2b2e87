/* SPDX-License-Identifier: Apache-2.0 */
/* config.pbtxt: what is read, what is only warned of, and each thing that can be wrong. */
#include "tests/warnings.h"
#include "tools/serve/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct desk {
    pare_ctx ctx;
    pare_arena arena;
    pare_serve_config config;
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
    pare_arena_free(&d->arena);
    free(d);
    return 0;
}

static pare_status parse(desk *d, const char *text)
{
    pare_ctx_clear(&d->ctx);
    hear_warnings(&d->ctx);
    pare_serve_config_init(&d->config);
    return pare_serve_config_parse(&d->arena, &d->config, text, strlen(text), "c", "net");
}

static void parsed(desk *d, const char *text)
{
    if (parse(d, text) != PARE_OK) fail_msg("%s", d->ctx.message);
}

static void every_field_is_read(void **state)
{
    desk *d = *state;
    parsed(d, "# a comment\n"
              "name: \"net\" platform: 'onnxruntime_' \"onnx\"\n"
              "default_model_filename: \"net.onnx\"; max_batch_size: 8,\n"
              "input [ { name: \"x\" data_type: TYPE_FP32 dims: [ 3, -1 ] },\n"
              "        { name: \"s\", data_type: TYPE_STRING, dims: 1 dims: 2 } ]\n"
              "output < name: \"y\" data_type: TYPE_INT64 dims: [] >\n"
              "instance_group [ { count: 2 kind: KIND_CPU }, { } ]\n"
              "version_policy: { specific: { versions: [1, 3] } }\n"
              "dynamic_batching {\n"
              "  preferred_batch_size: [ 8, 2 ] preferred_batch_size: 4\n"
              "  max_queue_delay_microseconds: 0x64\n"
              "  priority_levels: 5 default_priority_level: 3\n"
              "  default_queue_policy { default_timeout_microseconds: 9 max_queue_size: 7\n"
              "                         allow_timeout_override: true }\n"
              "}\n");
    const pare_serve_config *c = &d->config;
    assert_int_equal(warnings, 0);
    assert_string_equal(c->file, "net.onnx");
    assert_true(c->max_batch == 8 && !c->is_auto && c->merge && c->delay == 100);
    assert_true(c->preferred_count == 3 && c->preferred[0] == 2 && c->preferred[1] == 4 &&
                c->preferred[2] == 8);
    assert_true(c->levels == 5 && c->level == 3);
    assert_true(c->timeout == 9 && c->queue == 7 && c->own_timeout);
    assert_int_equal(c->instances, 3);
    assert_true(c->latest == -1 && c->specific_count == 2 && c->specific[1] == 3);
    assert_true(c->input_count == 2 && c->output_count == 1);
    assert_string_equal(c->input[0].name, "x");
    assert_true(c->input[0].dtype == PARE_f32 && c->input[0].shape.rank == 2 &&
                c->input[0].shape.dim[1] == -1);
    assert_true(c->input[1].dtype == PARE_string && c->input[1].shape.rank == 2);
    assert_true(c->output[0].dtype == PARE_s64 && c->output[0].shape.rank == 0);
}

static void steps_of_an_ensemble_are_read(void **state)
{
    desk *d = *state;
    parsed(d, "platform: 'ensemble' max_batch_size: 2\n"
              "ensemble_scheduling { step [ { model_name: 'a' model_version: 3\n"
              "    input_map { key: 'x' value: 't' } input_map { key: 'w' value: 'u' }\n"
              "    output_map [ { key: 'y' value: 'v' } ] }, { model_name: 'b' other: 1 } ] }\n");
    const pare_serve_config *c = &d->config;
    assert_int_equal(warnings, 1);
    assert_string_equal(warning, "c: 'ensemble_scheduling.step.other' is not read");
    assert_int_equal(c->step_count, 2);
    assert_string_equal(c->step[0].model, "a");
    assert_true(c->step[0].version == 3 && c->step[1].version == -1);
    assert_true(c->step[0].input_count == 2 && c->step[0].output_count == 1);
    assert_string_equal(c->step[0].input[1].port, "w");
    assert_string_equal(c->step[0].input[1].tensor, "u");
    assert_string_equal(c->step[0].output[0].tensor, "v");
    assert_true(!c->step[1].input_count && !c->step[1].output_count);
}

static void defaults_are_those_of_the_protocol(void **state)
{
    desk *d = *state;
    parsed(d, "");
    assert_true(d->config.max_batch == 32 && d->config.is_auto && d->config.merge);
    assert_true(d->config.latest == 1 && d->config.own_timeout && !d->config.timeout);
    parsed(d, "max_batch_size: 4"); /* batches that clients make, and no others */
    assert_true(d->config.max_batch == 4 && !d->config.is_auto && !d->config.merge);
    parsed(d, "max_batch_size: 0");
    assert_true(!d->config.max_batch && !d->config.merge);
    parsed(d, "dynamic_batching { }");
    assert_true(d->config.max_batch == 32 && d->config.merge);
    parsed(d, "max_batch_size: 4 dynamic_batching { default_queue_policy { } }");
    assert_false(d->config.own_timeout);
    parsed(d, "version_policy { all { } }");
    assert_int_equal(d->config.latest, 0);
    parsed(d, "version_policy: { latest { num_versions: 2 } }");
    assert_int_equal(d->config.latest, 2);
}

static void what_is_not_read_is_warned_of(void **state)
{
    desk *d = *state;
    parsed(d, "parameters { key: \"a\" }");
    assert_int_equal(warnings, 1);
    assert_string_equal(warning, "c: the parameter 'a' is not read");
    parsed(d, "dynamic_batching { preserve_ordering: false priority_queue_policy { } }");
    assert_string_equal(warning, "c: 'dynamic_batching.priority_queue_policy' is not read");
    assert_int_equal(warnings, 1);
    parsed(d, "dynamic_batching { preserve_ordering: true }");
    assert_string_equal(warning, "c: 'dynamic_batching.preserve_ordering' is not read: replies are "
                                 "sent as they come");
    parsed(d,
           "sequence_batching { oldest { max_candidate_sequences: 1 preserve_ordering: true } }");
    assert_non_null(strstr(warning, "'sequence_batching.oldest.preserve_ordering' is not read"));
    parsed(d, "dynamic_batching { default_queue_policy { timeout_action: REJECT } }");
    assert_int_equal(warnings, 0);
    parsed(d, "dynamic_batching { default_queue_policy { timeout_action: DELAY } }");
    assert_string_equal(warning, "c: timeout_action DELAY is not read: a timeout rejects");
    parsed(d, "max_batch_size: 0 dynamic_batching { preferred_batch_size: 4 }");
    assert_string_equal(warning, "c: dynamic_batching makes no batches: max_batch_size is 0");
    assert_false(d->config.merge);
    parsed(d, "output { name: 'y' data_type: TYPE_FP32 dims: 4 reshape { shape: [] } }");
    assert_string_equal(warning, "c: 'output.reshape' is not read");
    parsed(d, "instance_group { count: 1 profile: \"a\" }");
    assert_string_equal(warning, "c: 'instance_group.profile' is not read");
    parsed(d, "input { name: 'a' data_type: TYPE_FP32 dims: 4 label_filename: 'l' }");
    assert_string_equal(warning, "c: 'input.label_filename' is not read");
    assert_null(d->config.input[0].labels);
}

static void a_byte_order_mark_is_passed_over(void **state)
{
    desk *d = *state;
    parsed(d, "\xef\xbb\xbfmax_batch_size: 5");
    assert_int_equal(d->config.max_batch, 5);
    assert_int_equal(parse(d, "\xef\xbb"), PARE_INPUT);
}

static void instance_groups_choose_processors(void **state)
{
    desk *d = *state;
    const pare_serve_config *c = &d->config;
    parsed(d, "instance_group { count: 3 }");
    assert_true(c->kind == PARE_KIND_AUTO && c->instances == 3 && c->gpu_instances == 3);
    parsed(d, "instance_group [ { kind: KIND_AUTO }, { kind: KIND_CPU count: 2 } ]");
    assert_true(c->kind == PARE_KIND_CPU && c->instances == 3 && !c->gpu_count);
    parsed(d, "instance_group { kind: KIND_GPU count: 2 }");
    assert_true(c->kind == PARE_KIND_GPU && c->gpu_count == 1);
    assert_true(c->gpu[0].index == -1 && c->gpu[0].instances == 2);
    parsed(d, "instance_group [ { gpus: [1, 0] count: 2 }, { kind: KIND_GPU gpus: 1 } ]");
    assert_true(c->kind == PARE_KIND_GPU && c->gpu_count == 3);
    assert_true(c->gpu[0].index == 1 && c->gpu[0].instances == 2);
    assert_true(c->gpu[1].index == 0 && c->gpu[1].instances == 2);
    assert_true(c->gpu[2].index == 1 && c->gpu[2].instances == 0); /* it does not say */
    assert_true(!c->gpu[0].group && !c->gpu[1].group && c->gpu[2].group == 1);
    assert_true(c->is_placed && !c->is_pipeline);
    assert_int_equal(warnings, 0);
}

static void a_pipeline_is_a_parameter(void **state)
{
    desk *d = *state;
    const pare_serve_config *c = &d->config;
    parsed(d, "parameters { key: \"parallel\" value { string_value: \"pipeline\" } }");
    assert_true(c->is_pipeline && !c->is_placed && c->kind == PARE_KIND_AUTO);
    parsed(d, "parameters { key: \"parallel\" value { string_value: \"pipeline\" } } "
              "instance_group { gpus: [1, 0] }");
    assert_true(c->is_pipeline && c->is_placed && c->gpu_count == 2 && !c->gpu[1].instances);
    assert_int_equal(warnings, 0);
}

#define STATE                                                                                      \
    "sequence_batching { state { input_name: \"h\" output_name: \"n\" data_type: TYPE_FP32"
#define CONTROL "sequence_batching { control_input { name: \"s\" control { "

static void sequences_are_read(void **state)
{
    desk *d = *state;
    const pare_sequence_config *s = &d->config.sequences;
    parsed(d,
           "max_batch_size: 4 " CONTROL "kind: CONTROL_SEQUENCE_START fp32_false_true: [-1, 2] } } "
           "control_input { name: \"c\" control { kind: CONTROL_SEQUENCE_CORRID data_type: "
           "TYPE_STRING } } state { input_name: \"h\" output_name: \"n\" data_type: TYPE_FP16 "
           "dims: [-1, 3] initial_state { dims: [0, 3] } } oldest { max_candidate_sequences: 9 "
           "max_queue_delay_microseconds: 7 } max_sequence_idle_microseconds: 11 }");
    assert_int_equal(warnings, 0);
    assert_true(s->is_used && s->is_oldest && s->most == 9 && s->idle == 11);
    assert_true(d->config.merge && d->config.delay == 7);
    assert_true(s->control_count == 2 && s->control[0].kind == PARE_CONTROL_START);
    assert_true(s->control[0].dtype == PARE_f32 && s->control[0].value[0] == -1 &&
                s->control[0].value[1] == 2);
    assert_true(s->control[1].dtype == PARE_string);
    assert_true(s->state_count == 1 && s->state[0].dtype == PARE_f16);
    assert_true(s->state[0].shape.dim[0] == -1 && s->state[0].initial.dim[0] == 0);
    parsed(d, "sequence_batching { direct { } iterative_sequence: true }");
    assert_string_equal(warning, "c: 'sequence_batching.iterative_sequence' is not read");
    assert_true(s->is_used && !s->is_oldest && !s->most && s->idle == 1000000);
    parsed(d, "");
    assert_false(s->is_used);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"name \"net\"", "line 1: expected ':'"},
        {"\n\nname: \"net", "line 3: a string does not end"},
        {"name: \"\\q\"", "an escape"},
        {"name: \"\xff\"", "no UTF-8"},
        {"max_batch_size: 5x", "a number is damaged"},
        {"max_batch_size:", "expected a value"},
        {"input [ { }", "expected ',' or ']'"},
        {"input { name: \"x\"", "a message does not end"},
        {"}", "expected the name of a field"},
        {"name: \"other\"", "name is 'other', the model's folder is 'net'"},
        {"name: 5", "name: expected a text"},
        {"platform: \"pytorch_libtorch\"", "only ONNX models are served"},
        {"backend: \"python\"", "only ONNX models are served"},
        {"ensemble_scheduling { }", "ensemble_scheduling: has 0 steps, expected 1 to 256"},
        {"sequence_batching: 1", "sequence_batching: expected { ... }"},
        {"sequence_batching { } dynamic_batching { }", "not both"},
        {"sequence_batching { direct { } oldest { max_candidate_sequences: 1 } }", "not both"},
        {"sequence_batching { oldest { } }", "oldest needs max_candidate_sequences"},
        {"sequence_batching { max_sequence_idle_microseconds: 0 }", "max_sequence_idle"},
        {"sequence_batching { state: 5 }", "state: expected { ... }"},
        {"sequence_batching { state { input_name: \"h\" } }", "expected input_name, output_name"},
        {STATE " dims: 4 initial_state { data_file: \"f\" } } }", "only zero_data is served"},
        {STATE " dims: 4 initial_state { dims: 5 zero_data: true } } }",
         "dims of its initial_state"},
        {STATE " dims: -1 } }", "with numbers in place of -1"},
        {"sequence_batching { control_input { } }", "expected a name and a control"},
        {CONTROL "kind: CONTROL_OTHER } } }", "there is no kind 'CONTROL_OTHER'"},
        {CONTROL "kind: CONTROL_SEQUENCE_END } } }", "control_input 's': CONTROL_SEQUENCE_END"},
        {CONTROL "int32_false_true: 1 } } }", "expected int32_false_true"},
        {CONTROL "kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } } }", "is 'TYPE_FP32'"},
        {"parameters { key: \"parallel\" }", "parameters: 'parallel' has no string_value"},
        {"parameters { key: \"parallel\" value { string_value: \"tensor\" } }",
         "c: parameters: 'parallel' is 'tensor', expected pipeline"},
        {"parameters: 5", "parameters: expected { ... }"},
        {"parameters { key: \"traffic_weight\" value { string_value: \"1\" } }",
         "c: traffic_weight: '1': expected VERSION:WEIGHT"},
        {"default_model_filename: \"../net.onnx\"", "expected a file in the version's folder"},
        {"default_model_filename: \"..\"", "expected a file in the version's folder"},
        {"max_batch_size: -1", "max_batch_size: expected a whole number from 0"},
        {"max_batch_size: \"4\"", "max_batch_size: expected a whole number"},
        {"dynamic_batching: 1", "dynamic_batching: expected { ... }"},
        {"max_batch_size: 4 max_batch_size: 8", "max_batch_size: is given 2 times, expected once"},
        {"dynamic_batching { } dynamic_batching { }", "dynamic_batching: is given 2 times"},
        {"dynamic_batching { default_queue_policy { timeout_action: WAIT } }",
         "timeout_action is 'WAIT', expected REJECT or DELAY"},
        {"version_policy { all { } latest { num_versions: 2 } }",
         "expected one of latest, all and specific"},
        {"version_policy { all { } all { } }", "all: is given 2 times, expected once"},
        {"platform: \"ensemble\"", "platform is 'ensemble', but ensemble_scheduling is missing"},
        {"max_batch_size: 4 dynamic_batching { preferred_batch_size: 5 }", "above max_batch_size"},
        {"dynamic_batching { preferred_batch_size: 0 }", "expected whole numbers from 1"},
        {"dynamic_batching { default_priority_level: 1 }", "default_priority_level"},
        {"dynamic_batching { default_queue_policy { allow_timeout_override: 1 } }",
         "expected true or false"},
        {"instance_group: 5", "instance_group: expected"},
        {"instance_group { count: 0 }", "count: expected a whole number from 1"},
        {"instance_group { kind: KIND_TPU }", "kind is 'KIND_TPU', expected KIND_AUTO"},
        {"instance_group { kind: 5 }", "kind: expected a text"},
        {"instance_group { kind: KIND_CPU gpus: 0 }", "KIND_CPU has no gpus"},
        {"instance_group { gpus: -1 }", "gpus: expected whole numbers from 0"},
        {"instance_group { gpus: 1000 }", "gpus: expected at most 64 from 0 to 999"},
        {"instance_group [ { kind: KIND_CPU }, { gpus: 0 } ]", "KIND_CPU and KIND_GPU together"},
        {"version_policy { latest { num_versions: 0 } }", "num_versions"},
        {"version_policy { specific { versions: [0] } }", "versions"},
        {"input { name: \"x\" data_type: TYPE_X dims: 1 }", "data_type is 'TYPE_X'"},
        {"input { data_type: TYPE_FP32 }", "input: a name is missing"},
        {"output { data_type: TYPE_FP32 }", "output: a name is missing"},
        {"input { name: \"x\" data_type: TYPE_FP32 dims: [1,1,1,1,1,1,1,1,1] }", "at most 8"},
    };
    desk *d = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pare_status st = parse(d, cases[i].text);
        assert_true(st == PARE_INPUT || st == PARE_UNSUPPORTED);
        if (!strstr(d->ctx.message, cases[i].words) || strncmp(d->ctx.message, "c: ", 3) != 0)
            fail_msg("'%s' is missing in: %s", cases[i].words, d->ctx.message);
    }
}

static void deep_nesting_is_refused(void **state)
{
    enum { DEPTH = 100000 };
    desk *d = *state;
    char *text = malloc(2 * DEPTH + 1);
    for (int i = 0; i < DEPTH; i++) memcpy(text + 2 * i, "a{", 2);
    text[2 * DEPTH] = 0;
    assert_int_equal(parse(d, text), PARE_INPUT);
    assert_non_null(strstr(d->ctx.message, "nested too deeply"));
    free(text);
}

/* Every part of a file is read to its end or refused with its line. */
static void cut_files_do_no_harm(void **state)
{
    static const char whole[] = "max_batch_size: 8 input [ { name: \"x\" data_type: TYPE_FP32 "
                                "dims: [ 3, -1 ] } ] dynamic_batching { }\n";
    desk *d = *state;
    for (size_t cut = 0; cut < sizeof whole; cut++) {
        char *part = malloc(cut + 1);
        memcpy(part, whole, cut);
        part[cut] = 0;
        if (parse(d, part) != PARE_OK) assert_true(d->ctx.message[0]);
        free(part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_field_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(steps_of_an_ensemble_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(defaults_are_those_of_the_protocol, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_read_is_warned_of, setup, teardown),
        cmocka_unit_test_setup_teardown(sequences_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_byte_order_mark_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(instance_groups_choose_processors, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pipeline_is_a_parameter, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(deep_nesting_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_files_do_no_harm, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
