/* SPDX-License-Identifier: Apache-2.0 */
/* The body of an inference request, whose first two bytes say how much of it is JSON, and the same
   bytes as a config.pbtxt: no crash; a failure has a message; what was read is within the body or
   the arena, and is written again. Out of a connection's memo it is the same. */
#include "tests/fuzz/tensors.h"
#include "tools/serve/config.h"
#include "tools/serve/http/memo.h"

/* The inputs as the outputs of a response. */
static void write_again(pare_arena *arena, const pare_infer_request *r, bool binary)
{
    pare_reply reply = {0};
    pare_infer_result result;
    if (!as_result(arena, r, binary, &result)) return;
    pare_ctx_clear(arena->ctx);
    if (pare_infer_write(arena, &reply, &result) != PARE_OK)
        expect(arena->ctx->message[0] && !binary, "a response that cannot be written");
    free(reply.body);
}

static bool is_same(const pare_infer_tensor *a, const pare_infer_tensor *b)
{
    return !strcmp(a->name, b->name) && a->dtype == b->dtype && a->rank == b->rank &&
           a->bytes == b->bytes && !memcmp(a->dim, b->dim, sizeof a->dim);
}

/* The same words twice, and what was read the first time as the reply to both. */
static void try_memo(pare_arena *arena, const pare_infer_request *r, const char *body, size_t bytes,
                     size_t json)
{
    pare_memo *memo = NULL;
    pare_infer_request got;
    pare_infer_result result;
    const bool is_whole = as_result(arena, r, true, &result);
    for (int i = 0; i < 3; i++) {
        expect(pare_memo_read(&memo, arena, &got, body, bytes, json) == PARE_OK, "not read again");
        expect(got.input_count == r->input_count, "other inputs");
        for (int k = 0; k < got.input_count; k++) {
            touch(&got.input[k]);
            expect(is_same(&got.input[k], &r->input[k]), "another input");
        }
        pare_reply again = {0}, anew = {0};
        if (is_whole && pare_memo_write(memo, arena, &again, &result) == PARE_OK &&
            pare_infer_write(arena, &anew, &result) == PARE_OK)
            expect(again.bytes == anew.bytes && !memcmp(again.body, anew.body, anew.bytes),
                   "another reply");
        free(again.body);
        free(anew.body);
    }
    pare_memo_free(memo);
}

static void try_request(const char *body, size_t bytes, size_t json)
{
    pare_ctx ctx;
    pare_arena arena;
    pare_infer_request request;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    if (pare_infer_read(&arena, &request, body, bytes, json) == PARE_OK) {
        write_again(&arena, &request, true);
        write_again(&arena, &request, false);
        try_memo(&arena, &request, body, bytes, json);
    } else {
        expect(ctx.message[0], "a failure without a message");
    }
    pare_arena_free(&arena);
}

static void try_config(const char *text, size_t bytes)
{
    pare_ctx ctx;
    pare_arena arena;
    pare_serve_config config;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    pare_serve_config_init(&config);
    if (pare_serve_config_parse(&arena, &config, text, bytes, "config.pbtxt", "m") != PARE_OK)
        expect(ctx.message[0], "a failure without a message");
    pare_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const size_t bytes = size - 2, json = (size_t)data[0] | (size_t)data[1] << 8;
    char *body = malloc(bytes + !bytes); /* of just its size */
    expect(body != NULL, "no memory");
    memcpy(body, data + 2, bytes);
    try_request(body, bytes, json < bytes ? json : bytes);
    try_config(body, bytes);
    free(body);
    return 0;
}
