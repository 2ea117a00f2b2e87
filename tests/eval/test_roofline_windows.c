/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of convolutions that the model gives to kernels by wgmma are those that the GPU backend
   has maps of. Asks no device. */
#include "runtime/eval/roofline/internal.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* The kernel of a convolution of 8 pictures of 64 channels by 128 filters, which are not of 2:4. */
static void window_predict(pare_dtype type, int64_t kernel, int64_t stride, int64_t dilation,
                           int64_t pad, int64_t zero, int64_t side, char name[64])
{
    static uint16_t w[128 * 64 * 64];
    const int64_t filters[4] = {128, 64, kernel, kernel > 5 ? 1 : kernel};
    graph_case g;
    const pare_gpu_spec *h200;
    pare_roofline *r;
    pare_value *weights;
    const bool int8 = type == PARE_u8;
    memset(w, 0x11, sizeof w);
    graph_open(&g, 17);
    graph_input(&g, "x", type, 4, (int64_t[]){8, 64, side, side});
    assert_int_equal(
        pare_init_new(g.model->graph, &weights, "w", int8 ? PARE_s8 : type, 4, filters, w),
        PARE_OK);
    pare_node *conv = graph_node(&g, "FusedConv", "x w", "y");
    conv->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_ints(conv, "strides", (int64_t[]){stride, stride}, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(conv, "dilations", (int64_t[]){dilation, dilation}, 2),
                     PARE_OK);
    assert_int_equal(pare_node_set_ints(conv, "pads", (int64_t[]){pad, pad, pad, pad}, 4), PARE_OK);
    if (int8) assert_int_equal(pare_node_set_int(conv, "x_zero_point", zero), PARE_OK);
    graph_output(&g, "y");
    assert_int_equal(pare_gpu_spec_find(&g.ctx, &h200, "h200"), PARE_OK);
    if (pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, h200) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    for (int i = 0; i < pare_roofline_count(r); i++)
        if (!strcmp(pare_roofline_at(r, i)->op_type, "FusedConv"))
            snprintf(name, 64, "%s", pare_roofline_at(r, i)->kernel);
    pare_roofline_free(r);
    graph_close(&g);
}

/* By hand from picture_fits of runtime/cuda/gemm/wgmma.cu: strides, taps, offsets and corners of
   maps, and a zero point that padding would have to be. */
static void windows_are_those_of_maps(void **state)
{
    (void)state;
    static const struct {
        int64_t kernel, stride, dilation, pad, zero, side;
        bool takes;
    } cases[] = {
        {3, 1, 1, 1, 0, 56, true},     {3, 2, 1, 1, 0, 56, true},      {3, 3, 1, 1, 0, 56, false},
        {4, 4, 1, 0, 0, 56, false},    {7, 1, 1, 0, 0, 56, true},      {8, 1, 1, 0, 0, 56, false},
        {3, 1, 127, 127, 0, 56, true}, {3, 1, 128, 128, 0, 56, false}, /* offsets of 256 */
        {3, 1, 64, 0, 0, 200, true},   {3, 1, 65, 0, 0, 200, false},   /* corners of -128, -130 */
        {2, 1, 200, 128, 0, 56, true}, {2, 1, 200, 129, 0, 56, false}, /* corners of -128, -129 */
        {3, 1, 1, 1, 5, 56, false},    {3, 1, 1, 0, 5, 56, true},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const size_t c = i / 2;
        const pare_dtype type = i % 2 ? PARE_f16 : PARE_u8;
        char name[64] = "no step";
        if (cases[c].zero && i % 2) continue;
        window_predict(type, cases[c].kernel, cases[c].stride, cases[c].dilation, cases[c].pad,
                       cases[c].zero, cases[c].side, name);
        if ((strstr(name, "wgmma") != NULL) != cases[c].takes) fail_msg("case %zu: %s", i, name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_are_those_of_maps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
