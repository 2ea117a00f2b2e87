/* SPDX-License-Identifier: Apache-2.0 */
/* A PNG or JPEG, decoded to a few pixels: no crash; a failure has a message; memory that is taken
   was asked for; the bytes of two calls are equal. */
#include "formats/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 9, PIXELS = 1 << 14 };

static void expect(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static pare_status count(void *user, size_t bytes)
{
    *(size_t *)user += bytes;
    return PARE_OK;
}

static pare_status decode(const uint8_t *data, size_t size, uint8_t *out, size_t *held)
{
    pare_ctx ctx;
    const pare_picture_options options = {
        .resize = SIDE + 2, .crop = SIDE, .pixels = PIXELS, .hold = count, .user = held};
    pare_ctx_init(&ctx);
    *held = 0;
    const pare_status st = pare_picture_decode(&ctx, out, "picture", data, size, &options);
    if (st != PARE_OK) expect(ctx.message[0], "a failure without a message");
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t first[3 * SIDE * SIDE] = {0}, second[3 * SIDE * SIDE] = {0};
    size_t held, again;
    const pare_status st = decode(data, size, first, &held);
    expect(st == PARE_OK || st == PARE_INPUT, "a failure that is not the picture's");
    expect(decode(data, size, second, &again) == st, "another status");
    expect(held == again && !memcmp(first, second, sizeof first), "other bytes");
    return 0;
}
