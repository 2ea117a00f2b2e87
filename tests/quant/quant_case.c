/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/quant/quant_case.h"

#include "calib/ranges.h"
#include "formats/data.h"
#include "runtime/passes/passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

void quantize_with(graph_case *g, const span *spans, int count, const pare_quant_options *options,
                   pare_quant_facts *facts)
{
    pare_ranges *ranges = NULL;
    const char *names[8];
    pare_infer_options infer = {.fold = true};
    for (int i = 0; i < count; i++) names[i] = spans[i].name;
    if (pare_pass_infer(g->model, &infer) != PARE_OK) fail_msg("%s", g->ctx.message);
    assert_int_equal(pare_ranges_new(&g->ctx, &ranges, names, count), PARE_OK);
    for (int i = 0; i < count; i++) {
        float ends[2] = {spans[i].low, spans[i].high};
        pare_histogram *h = ranges->stats[i].histogram;
        assert_int_equal(pare_histogram_add(&g->ctx, h, PARE_f32, ends, 2), PARE_OK);
    }
    if (pare_quantize(&g->ctx, g->model, ranges, options, facts) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    pare_ranges_free(ranges);
}

void write_rows(pare_ctx *ctx, const char *path, int width, const float *rows, int64_t count)
{
    const pare_data_column column = {
        .name = "x", .dtype = PARE_f32, .shape = {.rank = 1, .dim = {width}}};
    pare_data_writer *w = NULL;
    const void *block[1] = {rows};
    assert_int_equal(pare_data_create(ctx, &w, path, &column, 1), PARE_OK);
    assert_int_equal(pare_data_append(w, block, count), PARE_OK);
    assert_int_equal(pare_data_commit(w), PARE_OK);
}
