/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as ZOO.yaml: a status and, on failure, a message. Each step of what was read goes
   through the tables of its command. The last byte says which allocation fails in a second
   reading. */
#include "tools/zoo/file_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* "zoo.yaml:LINE: ..." */
static void expect_place(const pare_ctx *ctx)
{
    expect(!strncmp(ctx->message, "zoo.yaml:", 9) && atoi(ctx->message + 9) > 0,
           "a failure without its line");
}

static pare_status read_steps(const pare_zoo_reader *reader)
{
    const pare_zoo_text *text = reader->text;
    for (unsigned i = 0; i < text->variants_count; i++)
        for (unsigned j = 0; j < text->variants[i].steps_count; j++) {
            pare_zoo_step step;
            pare_status st = pare_zoo_read_step(reader, &step, text->variants[i].steps[j], 1);
            if (st == PARE_MEMORY) return st;
            if (st != PARE_OK) expect_place(reader->arena->ctx);
            pare_ctx_clear(reader->arena->ctx);
        }
    return PARE_OK;
}

static pare_status read_all(pare_arena *arena, const uint8_t *data, size_t size)
{
    pare_zoo_text *text;
    pare_yaml *lines;
    PARE_TRY(pare_zoo_text_parse(arena, &text, &lines, "zoo.yaml", (const char *)data, size));
    expect(text->models_count && text->variants_count, "read without its lists");
    expect(pare_yaml_find(lines, "models") && pare_yaml_find(lines, "variants"), "no lines");
    const pare_zoo_reader reader = {
        .arena = arena, .path = "zoo.yaml", .folder = "/", .text = text, .lines = lines};
    return read_steps(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pare_ctx ctx;
    pare_arena arena;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    if (read_all(&arena, data, size) != PARE_OK) expect_place(&ctx);
    pare_arena_free(&arena);
    if (!size) return 0;
    pare_ctx_clear(&ctx);
    pare_arena_init(&arena, &ctx);
    ctx.fail_after = data[size - 1];
    if (read_all(&arena, data, size) != PARE_OK)
        expect(ctx.message[0], "a failure without a message");
    pare_arena_free(&arena);
    return 0;
}
