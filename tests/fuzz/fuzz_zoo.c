/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as ZOO.yaml: a status and, on failure, a message. Each step of what was read goes
   through the tables of its command. The last byte says which allocation fails in a second
   reading. */
#include "tools/zoo/reader.h"

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

static pare_status read_steps(const pare_zoo_reader *r)
{
    for (const pare_yaml *entry = r->variants->first; entry; entry = entry->next)
        for (const pare_yaml *at = pare_yaml_find(entry, "steps")->first; at; at = at->next) {
            pare_zoo_step step;
            pare_status st = pare_zoo_read_step(r, &step, at->text, at->line);
            if (st == PARE_MEMORY) return st;
            if (st != PARE_OK) expect_place(r->arena->ctx);
            pare_ctx_clear(r->arena->ctx);
        }
    return PARE_OK;
}

static pare_status read_all(pare_arena *arena, const uint8_t *data, size_t size)
{
    pare_zoo_reader reader = {.arena = arena, .path = "zoo.yaml", .folder = "/"};
    pare_yaml *root;
    PARE_TRY(pare_yaml_parse(arena, &root, reader.path, (const char *)data, size));
    reader.root = root;
    PARE_TRY(pare_zoo_read_keys(&reader));
    expect(reader.models && reader.models->first, "read without models");
    expect(reader.variants && reader.variants->first, "read without variants");
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
