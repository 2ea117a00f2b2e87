/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes: reading gives a status and, on failure, a message. What was read and is written again
   reads as the same model. The last byte says which allocation fails in a second reading. */
#include "formats/onnx.h"
#include "runtime/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void expect(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void ignore(void *user, const char *problem) { (void)user, (void)problem; }

static void round_trip(pare_ctx *ctx, pare_model *model)
{
    char path[64], text[256];
    pare_model *again;
    snprintf(path, sizeof path, "/tmp/fuzz-onnx-%d.onnx", (int)getpid());
    expect(pare_onnx_write(ctx, model, path, NULL) == PARE_OK, ctx->message);
    expect(pare_onnx_read(ctx, &again, path) == PARE_OK, ctx->message);
    const char *difference = pare_model_compare(model, again, text, sizeof text);
    expect(!difference, difference);
    pare_model_free(again);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pare_ctx ctx;
    pare_model *model, *clone;
    int problems;
    pare_ctx_init(&ctx);
    if (pare_onnx_read_memory(&ctx, &model, data, size, NULL) != PARE_OK) {
        expect(ctx.message[0], "a failure without a message");
    } else {
        round_trip(&ctx, model);
        expect(pare_model_clone(&ctx, &clone, model) == PARE_OK, ctx.message);
        pare_model_free(model);
        (void)!pare_pass_check(clone, ignore, NULL, &problems);
        pare_model_free(clone);
    }
    if (!size) return 0;
    pare_ctx_clear(&ctx);
    ctx.fail_after = data[size - 1];
    if (pare_onnx_read_memory(&ctx, &model, data, size, NULL) == PARE_OK)
        pare_model_free(model);
    else
        expect(ctx.message[0], "a failure without a message");
    return 0;
}
