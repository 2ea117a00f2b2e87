/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of gRPC as JSON, and JSON as messages, against protobuf-c's own packing. */
#include "tools/serve/base64.h"
#include "tools/serve/grpc/grpc.pb-c.h"
#include "tools/serve/grpc/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int setup(void **state)
{
    static pare_ctx ctx;
    pare_ctx_init(&ctx);
    *state = &ctx;
    return 0;
}

static json_t *object_of(pare_ctx *ctx, const ProtobufCMessageDescriptor *type,
                         const uint8_t *packed, size_t bytes)
{
    json_t *json;
    if (pare_message_to_json(ctx, &json, type, (const char *)packed, bytes) != PARE_OK)
        fail_msg("%s", ctx->message);
    return json;
}

static void an_object_becomes_a_message(void **state)
{
    static const char text[] =
        "{\"name\": \"net\", \"max_batch_size\": 8, \"unknown\": [1], \"version_policy\": "
        "{\"specific\": {\"versions\": [1, 3]}}, \"input\": [{\"name\": \"x\", \"data_type\": "
        "\"TYPE_FP32\", \"dims\": [-1, 4]}], \"dynamic_batching\": {\"preferred_batch_size\": [4], "
        "\"default_queue_policy\": {\"timeout_action\": \"DELAY\", \"allow_timeout_override\": "
        "true}}, \"parameters\": {\"k\": {\"string_value\": \"v\"}}}";
    pare_message m = {0};
    (void)state;
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    pare_message_of_json(&m, &inference__model_config__descriptor, json);
    json_decref(json);
    assert_false(m.failed);
    Inference__ModelConfig *c =
        inference__model_config__unpack(NULL, m.bytes, (const uint8_t *)m.data);
    pare_message_free(&m);
    assert_non_null(c);
    assert_string_equal(c->name, "net");
    assert_int_equal(c->max_batch_size, 8);
    assert_int_equal(c->version_policy->policy_choice_case,
                     INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC);
    assert_true(c->version_policy->specific->n_versions == 2);
    assert_int_equal(c->version_policy->specific->versions[1], 3);
    assert_int_equal(c->input[0]->data_type, INFERENCE__DATA_TYPE__TYPE_FP32);
    assert_int_equal(c->input[0]->dims[0], -1);
    assert_int_equal(c->scheduling_choice_case,
                     INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING);
    assert_int_equal(c->dynamic_batching->preferred_batch_size[0], 4);
    assert_int_equal(c->dynamic_batching->default_queue_policy->timeout_action,
                     INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY);
    assert_string_equal(c->parameters[0]->key, "k");
    assert_string_equal(c->parameters[0]->value->string_value, "v");
    inference__model_config__free_unpacked(c, NULL);
}

static void a_message_becomes_an_object(void **state)
{
    pare_ctx *ctx = *state;
    uint8_t packed[64];
    Inference__SystemSharedMemoryRegisterRequest r =
        INFERENCE__SYSTEM_SHARED_MEMORY_REGISTER_REQUEST__INIT;
    r.name = "r";
    r.key = "/k";
    r.byte_size = 1 << 20;
    const size_t n = inference__system_shared_memory_register_request__pack(&r, packed);
    const ProtobufCMessageDescriptor *type =
        &inference__system_shared_memory_register_request__descriptor;
    json_t *json = object_of(ctx, type, packed, n);
    assert_string_equal(json_string_value(json_object_get(json, "key")), "/k");
    assert_int_equal(json_integer_value(json_object_get(json, "byte_size")), 1 << 20);
    assert_null(json_object_get(json, "offset"));
    json_decref(json);
    assert_int_equal(pare_message_to_json(ctx, &json, type, (const char *)packed, n - 1),
                     PARE_INPUT);
    packed[2] = 0xff; /* the name */
    pare_ctx_clear(ctx);
    assert_int_equal(pare_message_to_json(ctx, &json, type, (const char *)packed, n), PARE_INPUT);
    assert_non_null(strstr(ctx->message, "'name' is no UTF-8"));
}

/* Bytes are base64; proto3 leaves a device that is 0 out. */
static void a_handle_becomes_text(void **state)
{
    pare_ctx *ctx = *state;
    uint8_t packed[128], handle[64];
    for (int i = 0; i < 64; i++) handle[i] = (uint8_t)(255 - i);
    Inference__CudaSharedMemoryRegisterRequest r =
        INFERENCE__CUDA_SHARED_MEMORY_REGISTER_REQUEST__INIT;
    r.name = "r";
    r.raw_handle = (ProtobufCBinaryData){sizeof handle, handle};
    r.byte_size = 5;
    const size_t n = inference__cuda_shared_memory_register_request__pack(&r, packed);
    static const uint8_t begins[] = {10, 1, 'r', 18, 64}, ends[] = {32, 5}; /* fields 1, 2; 4 */
    assert_memory_equal(packed, begins, sizeof begins);
    assert_memory_equal(packed + n - sizeof ends, ends, sizeof ends);
    json_t *json =
        object_of(ctx, &inference__cuda_shared_memory_register_request__descriptor, packed, n);
    uint8_t read[64];
    const char *text = json_string_value(json_object_get(json, "raw_handle"));
    assert_true(text && pare_base64_read(read, sizeof read, text));
    assert_memory_equal(read, handle, sizeof handle);
    assert_null(json_object_get(json, "device_id"));
    json_decref(json);
}

/* The texts of RFC 4648, section 10. */
static void bytes_are_base64(void **state)
{
    static const char *const texts[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                        "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    char text[16], data[8];
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        pare_base64_put(text, "foobar", n);
        assert_string_equal(text, texts[n]);
        assert_int_equal(pare_base64_length(n), strlen(text));
        assert_true(pare_base64_read(data, n, text));
        assert_memory_equal(data, "foobar", n);
        assert_false(pare_base64_read(data, n + 3, text));
    }
    assert_false(pare_base64_read(data, 3, "Zm9="));
    assert_false(pare_base64_read(data, 3, "Zm 9"));
    assert_false(pare_base64_read(data, 2, "Zm9v"));
    assert_false(pare_base64_read(data, 1, "Z==="));
}

static void a_map_becomes_an_object(void **state)
{
    pare_ctx *ctx = *state;
    uint8_t packed[64];
    Inference__ModelRepositoryParameter value = INFERENCE__MODEL_REPOSITORY_PARAMETER__INIT;
    Inference__ModelRepositoryParameterEntry entry =
        INFERENCE__MODEL_REPOSITORY_PARAMETER_ENTRY__INIT;
    Inference__ModelRepositoryParameterEntry *list[1] = {&entry};
    Inference__RepositoryModelLoadRequest r = INFERENCE__REPOSITORY_MODEL_LOAD_REQUEST__INIT;
    value.parameter_choice_case =
        INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    value.string_param = "{}";
    entry.key = "config";
    entry.value = &value;
    r.model_name = "m";
    r.parameters = list;
    r.n_parameters = 1;
    const size_t n = inference__repository_model_load_request__pack(&r, packed);
    json_t *json = object_of(ctx, &inference__repository_model_load_request__descriptor, packed, n);
    assert_non_null(json_object_get(json_object_get(json, "parameters"), "config"));
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_becomes_a_message),
        cmocka_unit_test_setup(a_message_becomes_an_object, setup),
        cmocka_unit_test_setup(a_handle_becomes_text, setup),
        cmocka_unit_test(bytes_are_base64),
        cmocka_unit_test_setup(a_map_becomes_an_object, setup),
    };
    return cmocka_run_group_tests_name("grpc messages", tests, NULL, NULL);
}
