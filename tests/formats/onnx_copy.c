/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_copy [--external-data] IN OUT: reads a model, writes it, reads that, and compares both.
   For the tests that look at the copy with other programs. */
#include "formats/onnx.h"

#include <stdio.h>
#include <string.h>

static int copy(const char *from, const char *to, const pare_onnx_write_options *options)
{
    pare_ctx ctx;
    pare_model *a = NULL, *b = NULL;
    char text[512];
    const char *difference = NULL;
    pare_ctx_init(&ctx);
    pare_status st = pare_onnx_read(&ctx, &a, from);
    if (st == PARE_OK) st = pare_onnx_write(&ctx, a, to, options);
    if (st == PARE_OK) st = pare_onnx_read(&ctx, &b, to);
    if (st == PARE_OK) difference = pare_model_compare(a, b, text, sizeof text);
    if (st != PARE_OK) fprintf(stderr, "%s\n", ctx.message);
    if (difference) fprintf(stderr, "%s: the copy differs: %s\n", from, difference);
    pare_model_free(a);
    pare_model_free(b);
    return st != PARE_OK || difference;
}

int main(int argc, char **argv)
{
    pare_onnx_write_options options = {.external_data = false};
    int first = 1;
    if (argc > 1 && !strcmp(argv[1], "--external-data")) {
        options.external_data = true;
        first = 2;
    }
    if (argc - first != 2) return 2;
    return copy(argv[first], argv[first + 1], &options);
}
