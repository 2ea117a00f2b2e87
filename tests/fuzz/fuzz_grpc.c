/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a ModelInferRequest, and as the messages that become JSON and are made of it: no crash;
   a failure has a message; what was read is within the message or the arena, and is written again
   as a message that protobuf-c reads. */
#include "tests/fuzz/tensors.h"
#include "tools/serve/grpc/grpc.pb-c.h"
#include "tools/serve/grpc/infer.h"

/* The inputs as the outputs of a response; protobuf-c finds all of them. */
static void write_again(pare_arena *arena, const pare_infer_request *r)
{
    pare_reply reply = {0};
    pare_infer_result result;
    if (!as_result(arena, r, true, &result)) return;
    pare_ctx_clear(arena->ctx);
    expect(pare_grpc_infer_write(arena, &reply, &result, false) == PARE_OK,
           "a response that cannot be written");
    Inference__ModelInferResponse *read =
        inference__model_infer_response__unpack(NULL, reply.bytes, (const uint8_t *)reply.body);
    expect(read && read->n_outputs == (size_t)r->input_count &&
               read->n_raw_output_contents == read->n_outputs,
           "a response that cannot be read");
    inference__model_infer_response__free_unpacked(read, NULL);
    free(reply.body);
}

static void try_request(const char *body, size_t bytes)
{
    pare_ctx ctx;
    pare_arena arena;
    pare_grpc_names names;
    pare_infer_request request;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    expect(pare_grpc_first_tensor(body, bytes) <= bytes, "a tensor behind the message");
    if (pare_grpc_names_read(&arena, &names, body, bytes) != PARE_OK)
        expect(ctx.message[0], "a failure without a message");
    pare_ctx_clear(&ctx);
    if (pare_grpc_infer_read(&arena, NULL, &request, body, bytes) == PARE_OK)
        write_again(&arena, &request);
    else
        expect(ctx.message[0], "a failure without a message");
    pare_arena_free(&arena);
}

static void try_object(const ProtobufCMessageDescriptor *type, const char *body, size_t bytes)
{
    pare_ctx ctx;
    json_t *json;
    pare_message m = {0};
    pare_ctx_init(&ctx);
    if (pare_message_to_json(&ctx, &json, type, body, bytes) != PARE_OK) {
        expect(ctx.message[0], "a failure without a message");
        return;
    }
    pare_message_of_json(&m, type, json);
    json_decref(json);
    ProtobufCMessage *read =
        protobuf_c_message_unpack(type, NULL, m.bytes, (const uint8_t *)m.data);
    expect(read && !m.failed, "a message that cannot be read");
    protobuf_c_message_free_unpacked(read, NULL);
    pare_message_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *body = malloc(size + !size); /* of just its size */
    expect(body != NULL, "no memory");
    if (size) memcpy(body, data, size);
    try_request(body, size);
    try_object(&inference__model_config_response__descriptor, body, size);
    try_object(&inference__repository_model_load_request__descriptor, body, size);
    try_object(&inference__system_shared_memory_status_response__descriptor, body, size);
    free(body);
    return 0;
}
