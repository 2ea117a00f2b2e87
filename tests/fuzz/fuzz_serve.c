/* SPDX-License-Identifier: Apache-2.0 */
/* The body of an inference request, whose first two bytes say how much of it is JSON, and the same
   bytes as a config.pbtxt: no crash; a failure has a message; what was read is within the body or
   the arena, and is written again. */
#include "tools/serve/config.h"
#include "tools/serve/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Reads every byte of a tensor, so that the sanitizer sees where it is. */
static void touch(const pare_infer_tensor *t)
{
    static volatile unsigned sum;
    const unsigned char *data = t->data;
    const pare_bytes *text = t->data;
    const size_t count = t->bytes / sizeof *text;
    if (!t->data) return; /* in shared memory */
    if (t->dtype == PARE_string)
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < text[i].size; k++)
                sum += ((const unsigned char *)text[i].data)[k];
    else
        for (size_t i = 0; i < t->bytes; i++) sum += data[i];
}

/* The inputs as the outputs of a response. */
static void write_again(pare_arena *arena, const pare_infer_request *r, bool binary)
{
    pare_reply reply = {0};
    pare_infer_wanted *wanted = pare_arena_alloc(arena, (size_t)r->input_count + 1, sizeof *wanted);
    expect(wanted != NULL, "no memory");
    for (int i = 0; i < r->input_count; i++)
        wanted[i] = (pare_infer_wanted){.name = r->input[i].name, .binary = binary};
    const pare_infer_result result = {.model = "m",
                                      .id = r->id,
                                      .version = 1,
                                      .output = r->input,
                                      .wanted = wanted,
                                      .count = r->input_count};
    pare_ctx_clear(arena->ctx);
    if (pare_infer_write(arena, &reply, &result) != PARE_OK)
        expect(arena->ctx->message[0] && !binary, "a response that cannot be written");
    free(reply.body);
}

static void try_request(const char *body, size_t bytes, size_t json)
{
    pare_ctx ctx;
    pare_arena arena;
    pare_infer_request request;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    if (pare_infer_read(&arena, &request, body, bytes, json) == PARE_OK) {
        bool is_whole = true;
        for (int i = 0; i < request.input_count; i++) {
            touch(&request.input[i]);
            is_whole &= request.input[i].data || !request.input[i].bytes;
        }
        if (is_whole) write_again(&arena, &request, true);
        if (is_whole) write_again(&arena, &request, false);
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
