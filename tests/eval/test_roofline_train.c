/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of training, and transposed convolutions, in the model of time: the tiles are those of the
   GPU backend. */
#include "runtime/eval/roofline/internal.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static const pare_gpu_spec two = {.name = "two",
                                  .sms = 2,
                                  .clock = 1e9,
                                  .hbm = 1e12,
                                  .host = 1e9,
                                  .macs_s8 = 2e10 / 0.62,
                                  .macs_f16 = 1e10 / 0.62,
                                  .macs_f32 = 1e9,
                                  .shared = 128,
                                  .reached = 1};

static void near(double a, double b)
{
    if (!(a > b * (1 - 1e-9) && a < b * (1 + 1e-9))) fail_msg("%.12g is not %.12g", a, b);
}

static const pare_roofline_step *step_of(const pare_roofline *r, const char *op)
{
    for (int i = 0; i < pare_roofline_count(r); i++)
        if (!strcmp(pare_roofline_at(r, i)->op_type, op)) return pare_roofline_at(r, i);
    fail_msg("no step is a %s", op);
    return NULL;
}

/* A Conv of computed weights, its gradients, and the ConvTranspose that the gradient of X is, n
   images of 28 x 28, 3 x 3 taps. */
static void train_graph(graph_case *g, pare_dtype type, int64_t n, int64_t c, int64_t m,
                        int64_t stride)
{
    const int64_t x[4] = {n, c, 28, 28}, w[4] = {m, c, 3, 3},
                  y[4] = {n, m, 28 / stride, 28 / stride};
    const char *const ops[] = {"Conv", "ConvGradInput", "ConvGradWeight"},
                      *const ins[] = {"x w", "dy w", "dy x"}, *const outs[] = {"y", "dx", "dw"};
    graph_open(g, 22);
    graph_input(g, "x", type, 4, x);
    graph_input(g, "w", type, 4, w);
    graph_input(g, "dy", type, 4, y);
    for (int i = 0; i < 3; i++) {
        pare_node *node = graph_node(g, ops[i], ins[i], outs[i]);
        if (i) node->domain = PARE_DOMAIN;
        if (i) assert_int_equal(pare_node_set_ints(node, "shape", i > 1 ? w : x, 4), PARE_OK);
        assert_int_equal(pare_node_set_ints(node, "pads", (int64_t[]){1, 1, 1, 1}, 4), PARE_OK);
        assert_int_equal(pare_node_set_ints(node, "strides", (int64_t[]){stride, stride}, 2),
                         PARE_OK);
        graph_output(g, outs[i]);
    }
    pare_node *reverse = graph_node(g, "ConvTranspose", "dy w", "x_again");
    const int64_t more[2] = {stride - 1, stride - 1};
    assert_int_equal(pare_node_set_ints(reverse, "pads", (int64_t[]){1, 1, 1, 1}, 4), PARE_OK);
    assert_int_equal(pare_node_set_ints(reverse, "strides", (int64_t[]){stride, stride}, 2),
                     PARE_OK);
    assert_int_equal(pare_node_set_ints(reverse, "output_padding", more, 2), PARE_OK);
    graph_output(g, "x_again");
}

/* By hand from runtime/cuda/conv/conv_tile.cu and conv_grad_weight.cu; strides of dX make classes.
 */
static void training_is_tiles(void **state)
{
    static const struct {
        int64_t n, c, m, stride;
        const char *kernel[3];
    } cases[] = {
        {8, 64, 64, 1, {"conv_tile_64x64", "conv_grad_input_64x64", "conv_grad_weight_64x128"}},
        {22, 64, 64, 1, {"conv_tile_128x64", "conv_grad_input_128x64", "conv_grad_weight_64x128"}},
        {22,
         128,
         72,
         1,
         {"conv_tile_128x128", "conv_grad_input_128x128", "conv_grad_weight_128x128"}},
        {22, 128, 8, 2, {"conv_tile_64x64", "conv_grad_input_128x128", "conv_grad_weight_64x128"}},
        {2, 6, 8, 1, {"unknown", "unknown", "unknown"}},
    };
    static const pare_dtype types[] = {PARE_f32, PARE_f16, PARE_bf16};
    static const char *const ops[] = {"Conv", "ConvGradInput", "ConvGradWeight"};
    (void)state;
    for (size_t k = 0; k < 3 * sizeof cases / sizeof *cases; k++) {
        graph_case g;
        pare_roofline *r;
        const size_t c = k / 3;
        train_graph(&g, types[k % 3], cases[c].n, cases[c].c, cases[c].m, cases[c].stride);
        assert_int_equal(pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, &two), PARE_OK);
        for (int i = 0; i < 3; i++) {
            const pare_roofline_step *s = step_of(r, ops[i]);
            assert_string_equal(s->kernel, cases[c].kernel[i]);
            assert_true(s->known == (c < 4) && s->seconds > 0);
        }
        const pare_roofline_step *dx = step_of(r, "ConvGradInput"),
                                 *reverse = step_of(r, "ConvTranspose");
        if (c < 4)
            assert_string_equal(reverse->kernel + strlen("conv_transpose"),
                                dx->kernel + strlen("conv_grad_input"));
        assert_true(reverse->known == (c < 4) && reverse->seconds == dx->seconds);
        if (k == 0) { /* x, w, y, and W read and written before */
            near(step_of(r, "Conv")->bytes, 4.0 * (2 * 8 * 64 * 784 + 3 * 64 * 64 * 9));
            assert_int_equal(step_of(r, "Conv")->launches, 2);
        }
        pare_roofline_free(r);
        graph_close(&g);
    }
}

/* In bf16 beside an f32 bias and an f32 gradient of weights: the same tiles. */
static void training_has_f32_ends(void **state)
{
    const int64_t bias = 64;
    graph_case g;
    pare_roofline *r;
    (void)state;
    train_graph(&g, PARE_bf16, 8, 64, 64, 1);
    graph_input(&g, "b", PARE_f32, 1, &bias);
    pare_node *conv = graph_value(&g, "y")->producer, *dw = graph_value(&g, "dw")->producer;
    conv->op_type = "FusedConv", conv->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_in(conv, 2, graph_value(&g, "b")), PARE_OK);
    assert_int_equal(pare_node_set_int(dw, "output_dtype", PARE_f32), PARE_OK);
    assert_int_equal(pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, &two), PARE_OK);
    const pare_roofline_step *y = step_of(r, "FusedConv"), *w = step_of(r, "ConvGradWeight");
    assert_string_equal(y->kernel, "conv_tile_64x64");
    assert_string_equal(w->kernel, "conv_grad_weight_64x128");
    near(y->bytes, 2.0 * (2 * 8 * 64 * 784 + 3 * 64 * 64 * 9) + 4.0 * 64);
    assert_true(y->known && w->known);
    pare_roofline_free(r);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_is_tiles),
        cmocka_unit_test(training_has_f32_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
