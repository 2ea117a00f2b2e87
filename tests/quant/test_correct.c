/* SPDX-License-Identifier: Apache-2.0 */
/* Bias correction and equalization on graphs of one or two nodes, with numbers worked out by hand.
 */
#include "runtime/passes/passes.h"
#include "calib/ranges.h"
#include "quant/internal.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* A table of what these tensors held, as if of many samples. */
static pare_ranges *seen(graph_case *g, const char *const *names, const pare_view *views, int count)
{
    pare_ranges *r = NULL;
    assert_int_equal(pare_ranges_new(&g->ctx, &r, names, count), PARE_OK);
    r->samples = 512;
    for (int i = 0; i < count; i++) {
        const pare_view *v = &views[i];
        assert_int_equal(pare_histogram_add(&g->ctx, r->stats[i].histogram, PARE_f32, v->data,
                                            pare_view_count(v)),
                         PARE_OK);
        assert_int_equal(pare_channels_add(&g->ctx, r->stats[i].channels, v, 1), PARE_OK);
    }
    return r;
}

static pare_view view_of(int rank, const int64_t *dims, const float *data)
{
    pare_shape shape = {.rank = rank};
    pare_view v;
    memcpy(shape.dim, dims, (size_t)rank * sizeof *dims);
    pare_view_set(&v, PARE_f32, &shape, false);
    v.data = (float *)data;
    return v;
}

static void quantize(graph_case *g, const pare_ranges *ranges, bool keep, bool onnxruntime)
{
    pare_quant_options o = {.target = onnxruntime ? PARE_TARGET_ONNXRUNTIME : PARE_TARGET_TENSORRT,
                            .unsigned_activations = onnxruntime,
                            .bias_correction = !keep,
                            .equalize = !keep,
                            .rule = {.method = PARE_METHOD_AUTO, .symmetric = !onnxruntime}};
    assert_int_equal(pare_pass_infer(g->model, &(pare_infer_options){.lenient = true}), PARE_OK);
    if (pare_quantize(&g->ctx, g->model, ranges, &o, NULL) != PARE_OK)
        fail_msg("%s", g->ctx.message);
}

/* y = x W^T + b with W = (1, 0.003), (1, -0.003): the small weights round to 0.3810 of a step, so
   to 0, whatever the scale, which stays 1 / 127 for the 1 is half of each row's error otherwise. At
   the mean (0.5, 10) of x the outputs are 0.53 + b and 0.47 + b; without correction both give 0.5 +
   b. */
static void gemm_at_mean(bool keep, bool onnxruntime, bool transposed, float y[2])
{
    graph_case g;
    const float w[] = {1, 0.003f, 1, -0.003f}, wt[] = {1, 1, 0.003f, -0.003f}, b[] = {2, -1};
    const float x[] = {0, 12, 1, 8}, mean[] = {0.5f, 10};
    const char *name = "x";
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, 2});
    graph_floats(&g, "w", 2, (int64_t[]){2, 2}, transposed ? w : wt);
    graph_floats(&g, "b", 1, (int64_t[]){2}, b);
    pare_node *gemm = graph_node(&g, "Gemm", "x w b", "y");
    assert_int_equal(pare_node_set_int(gemm, "transB", transposed), PARE_OK);
    graph_output(&g, "y");
    pare_view v = view_of(2, (int64_t[]){2, 2}, x);
    pare_ranges *r = seen(&g, &name, &v, 1);
    quantize(&g, r, keep, onnxruntime);
    graph_run(&g, 2, (int64_t[]){1, 2}, mean, y, 2);
    pare_ranges_free(r);
    graph_close(&g);
}

static void a_matrix_product_keeps_its_mean(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        float with[2], without[2];
        gemm_at_mean(false, form & 1, form & 2, with);
        gemm_at_mean(true, form & 1, form & 2, without);
        /* both carry the rounding of x alone: the difference is the correction */
        assert_true(fabsf(with[0] - without[0] - 0.03f) < 2e-3f);
        assert_true(fabsf(with[1] - without[1] + 0.03f) < 2e-3f);
    }
}

/* Two groups, two taps: channel 1 feeds output 1 only. W = ((1, 0.003), (1, -0.002)), means 10 and
   20: the shifts are -0.003 * 10 and 0.002 * 20. */
static void a_grouped_convolution_adds_its_own_channels(void **state)
{
    (void)state;
    float y[2][4];
    for (int keep = 0; keep < 2; keep++) {
        graph_case g;
        const float w[] = {1, 0.003f, 1, -0.002f}, b[] = {0, 0};
        const float image[] = {5, 15, 10, 20, 25, 15};
        const char *name = "x";
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 4, (int64_t[]){-1, 2, 1, 3});
        graph_floats(&g, "w", 4, (int64_t[]){2, 1, 1, 2}, w);
        graph_floats(&g, "b", 1, (int64_t[]){2}, b);
        assert_int_equal(pare_node_set_int(graph_node(&g, "Conv", "x w b", "y"), "group", 2),
                         PARE_OK);
        graph_output(&g, "y");
        pare_view v = view_of(4, (int64_t[]){1, 2, 1, 3}, image);
        pare_ranges *r = seen(&g, &name, &v, 1);
        quantize(&g, r, keep, false);
        graph_run(&g, 4, (int64_t[]){1, 2, 1, 3}, image, y[keep], 4);
        pare_ranges_free(r);
        graph_close(&g);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(fabsf(y[0][i] - y[1][i] - 0.03f) < 4e-3f);
        assert_true(fabsf(y[0][2 + i] - y[1][2 + i] + 0.04f) < 4e-3f);
    }
}

enum { PIXELS = 8 };

/* x -> 1x1 convolution (1, 0.02) -> Relu or Clip -> depthwise 1x1 (1, 50): y has x twice. With one
   scale of 8 / 127 the second channel has a step of 50 * 8 / 127 = 3.1; equalized, of 0.063. */
static void depthwise_error(const char *clamp, float low, bool keep, float error[2])
{
    graph_case g;
    const float first[] = {1, 0.02f}, second[] = {1, 50}, none[] = {0, 0}, high = 6;
    const float x[PIXELS] = {1, 2, 3, 4, 5, 6, 7, 8};
    float made[2 * PIXELS], want[2 * PIXELS], y[2 * PIXELS];
    bool clip = !strcmp(clamp, "Clip");
    for (int i = 0; i < PIXELS; i++) {
        made[i] = clip ? fminf(x[i], 6) : x[i];
        made[PIXELS + i] = 0.02f * x[i];
        want[i] = made[i];
        want[PIXELS + i] = x[i];
    }
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, (int64_t[]){-1, 1, 1, PIXELS});
    graph_floats(&g, "first", 4, (int64_t[]){2, 1, 1, 1}, first);
    graph_floats(&g, "second", 4, (int64_t[]){2, 1, 1, 1}, second);
    graph_floats(&g, "none", 1, (int64_t[]){2}, none);
    graph_floats(&g, "low", 0, NULL, &low);
    graph_floats(&g, "high", 0, NULL, &high);
    graph_node(&g, "Conv", "x first none", "sum");
    graph_node(&g, clamp, clip ? "sum low high" : "sum", "made");
    pare_node *depthwise = graph_node(&g, "Conv", "made second none", "y");
    assert_int_equal(pare_node_set_int(depthwise, "group", 2), PARE_OK);
    graph_output(&g, "y");
    const char *names[] = {"made", "x", "y"};
    pare_view views[] = {view_of(4, (int64_t[]){1, 2, 1, PIXELS}, made),
                         view_of(4, (int64_t[]){1, 1, 1, PIXELS}, x),
                         view_of(4, (int64_t[]){1, 2, 1, PIXELS}, want)};
    pare_ranges *r = seen(&g, names, views, 3);
    quantize(&g, r, keep, false);
    graph_run(&g, 4, (int64_t[]){1, 1, 1, PIXELS}, x, y, 2 * PIXELS);
    for (int c = 0; c < 2; c++) {
        error[c] = 0;
        for (int i = c * PIXELS; i < (c + 1) * PIXELS; i++)
            error[c] = fmaxf(error[c], fabsf(y[i] - want[i]));
    }
    pare_ranges_free(r);
    graph_close(&g);
}

static void small_channels_before_depthwise_get_the_whole_range(void **state)
{
    (void)state;
    static const char *const clamps[] = {"Relu", "Clip"};
    for (int i = 0; i < 2; i++) {
        float with[2], without[2];
        depthwise_error(clamps[i], 0, false, with);
        depthwise_error(clamps[i], 0, true, without);
        assert_true(without[1] > 0.5f);
        assert_true(with[1] < 0.15f);
        assert_true(with[0] < 0.15f && without[0] < 0.15f);
    }
}

/* A clip at another bound than 0 does not commute with scaling: nothing is done. */
static void a_clip_from_elsewhere_is_left_alone(void **state)
{
    (void)state;
    float with[2], without[2];
    depthwise_error("Clip", -1, false, with);
    depthwise_error("Clip", -1, true, without);
    assert_true(with[1] > 0.5f && fabsf(with[1] - without[1]) < 1e-3f);
}

enum { ROWS = 8 };

/* x -> a product with (1, 0.01), or a LayerNormalization whose scales are these -> Relu or none, or
   a limit a channel -> a product that undoes 0.01: with one scale the second channel has a step of
   100 * 8 / 127 = 6.3. */
static float pair_error(const char *form, bool keep)
{
    graph_case g;
    const bool norm = !strcmp(form, "norm"), limits = !strcmp(form, "limits");
    const float first[] = {1, 0, 0, 0.01f}, second[] = {1, 0, 0, 100}, none[] = {0, 0};
    const float scales[] = {8, 0.08f}, limit[] = {8, 0.08f};
    float x[2 * ROWS], made[2 * ROWS], want[2 * ROWS], y[2 * ROWS], error = 0;
    for (int i = 0; i < ROWS; i++) {
        x[2 * i] = (float)(i + 1) * (i % 2 ? 1 : -0.5f);
        x[2 * i + 1] = (float)(ROWS - i);
        for (int c = 0; c < 2; c++) {
            float v = x[2 * i + c];
            if (norm)
                v = (x[2 * i] > x[2 * i + 1]) == !c ? 8 : -8;
            else
                v = v > 0 ? v : 0;
            want[2 * i + c] = v;
            made[2 * i + c] = c ? v * 0.01f : v;
        }
    }
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, 2});
    graph_floats(&g, "first", 2, (int64_t[]){2, 2}, first);
    graph_floats(&g, "second", 2, (int64_t[]){2, 2}, second);
    graph_floats(&g, "none", 1, (int64_t[]){2}, none);
    graph_floats(&g, "scales", 1, (int64_t[]){2}, scales);
    graph_floats(&g, "limit", 2, (int64_t[]){1, 2}, limit);
    if (norm) {
        graph_node(&g, "LayerNormalization", "x scales none", "made");
    } else {
        graph_node(&g, "Gemm", "x first none", "sum");
        graph_node(&g, "Relu", "sum", limits ? "positive" : "made");
        if (limits) graph_node(&g, "Min", "positive limit", "made");
    }
    graph_node(&g, "MatMul", "made second", "y");
    graph_output(&g, "y");
    const char *names[] = {"made", "x"};
    pare_view views[] = {view_of(2, (int64_t[]){ROWS, 2}, made),
                         view_of(2, (int64_t[]){ROWS, 2}, x)};
    pare_ranges *r = seen(&g, names, views, 2);
    quantize(&g, r, keep, false);
    graph_run(&g, 2, (int64_t[]){ROWS, 2}, x, y, 2 * ROWS);
    for (int i = 0; i < ROWS; i++) error = fmaxf(error, fabsf(y[2 * i + 1] - want[2 * i + 1]));
    pare_ranges_free(r);
    graph_close(&g);
    return error;
}

static void channels_between_two_products_get_one_range(void **state)
{
    static const char *const forms[] = {"relu", "limits", "norm"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const float with = pair_error(forms[i], false);
        const float without = pair_error(forms[i], true);
        if (without < 1 || with > 0.2f)
            fail_msg("%s: error %g with equalization, %g without", forms[i], (double)with,
                     (double)without);
    }
}

/* x -> a product with (1, 0.1) -> Relu -> a product with (1, 10); 32 samples, channel 1 is not 0 in
   `times` of them. y of a new sample whose channel 1 is 30 times as large as it ever was. */
static float hardly_seen(int times)
{
    enum { MANY = 32 };
    graph_case g;
    const float first[] = {1, 0, 0, 0.1f}, second[] = {1, 0, 0, 10}, none[] = {0, 0};
    const float fresh[] = {8, 30};
    float made[2 * MANY], y[2];
    for (int i = 0; i < MANY; i++) {
        made[2 * i] = (float)(i % 8 + 1);
        made[2 * i + 1] = i < times ? 0.1f : 0;
    }
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, 2});
    graph_floats(&g, "first", 2, (int64_t[]){2, 2}, first);
    graph_floats(&g, "second", 2, (int64_t[]){2, 2}, second);
    graph_floats(&g, "none", 1, (int64_t[]){2}, none);
    graph_node(&g, "Gemm", "x first none", "sum");
    graph_node(&g, "Relu", "sum", "made");
    graph_node(&g, "MatMul", "made second", "y");
    graph_output(&g, "y");
    const char *names[] = {"made", "x"};
    pare_view views[] = {view_of(2, (int64_t[]){MANY, 2}, made),
                         view_of(2, (int64_t[]){1, 2}, fresh)};
    pare_ranges *r = seen(&g, names, views, 2);
    r->samples = MANY;
    quantize(&g, r, false, false);
    graph_run(&g, 2, (int64_t[]){1, 2}, fresh, y, 2);
    pare_ranges_free(r);
    graph_close(&g);
    return y[1];
}

/* Scaled up to what it was seen to be, the channel would be cut at 1. */
static void a_channel_that_was_hardly_seen_keeps_room(void **state)
{
    (void)state;
    assert_true(fabsf(hardly_seen(1) - 30) < 1);
    assert_true(hardly_seen(32) < 10); /* what was seen often is what the range is for */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_product_keeps_its_mean),
        cmocka_unit_test(a_grouped_convolution_adds_its_own_channels),
        cmocka_unit_test(small_channels_before_depthwise_get_the_whole_range),
        cmocka_unit_test(a_clip_from_elsewhere_is_left_alone),
        cmocka_unit_test(channels_between_two_products_get_one_range),
        cmocka_unit_test(a_channel_that_was_hardly_seen_keeps_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
