/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as ranges.json: a status and, on failure, a message. What was read gives a range by
   every method, adds up with itself, and is written and read again. The last byte says which
   allocation fails in a second reading. */
#include "calib/ranges.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void expect(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void use(pare_ctx *ctx, pare_ranges *ranges)
{
    for (int i = 0; i < pare_ranges_count(ranges) && i < 4; i++)
        for (int k = 0; k < 10; k++) {
            pare_range_rule rule = {(pare_method)(k / 2), 99.99, k % 2};
            pare_range r = {0};
            const pare_stats *s = pare_ranges_at(ranges, i);
            if (pare_range_choose(ctx, s->histogram, &rule, &r) != PARE_OK)
                expect(ctx->message[0], "a failure without a message");
            else
                expect(isfinite(r.low) && isfinite(r.high) && r.low <= r.high, "not a range");
            pare_ctx_clear(ctx);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pare_ctx ctx;
    pare_ranges *ranges = NULL, *again = NULL;
    char path[64];
    pare_ctx_init(&ctx);
    if (pare_ranges_parse(&ctx, &ranges, (const char *)data, size, "fuzz.json") != PARE_OK) {
        expect(ctx.message[0], "a failure without a message");
    } else {
        use(&ctx, ranges);
        snprintf(path, sizeof path, "/tmp/fuzz-ranges-%d.json", (int)getpid());
        if (pare_ranges_count(ranges) <= 4 && pare_ranges_write(&ctx, ranges, path) == PARE_OK) {
            expect(pare_ranges_read(&ctx, &again, path) == PARE_OK, ctx.message);
            (void)!pare_ranges_merge(&ctx, ranges, again);
            pare_ranges_free(again);
            unlink(path);
        }
        pare_ranges_free(ranges);
    }
    if (!size) return 0;
    pare_ctx_clear(&ctx);
    ctx.fail_after = data[size - 1];
    if (pare_ranges_parse(&ctx, &ranges, (const char *)data, size, "fuzz.json") == PARE_OK)
        pare_ranges_free(ranges);
    else
        expect(ctx.message[0], "a failure without a message");
    return 0;
}
