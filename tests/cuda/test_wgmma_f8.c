/* SPDX-License-Identifier: Apache-2.0 */
/* Products of FP8 by the instructions of compute capability 9.0, against the CPU's plain kernels:
   apart by what 14 bits of a stage's sums lose (kernel_case.c). Large enough that they fit; tails
   of rows, columns and depth; windows over borders, in steps and with gaps. Sizes are those of a
   device with 132 multiprocessors, and shrink with it. Skipped on other devices. */
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/cuda/gemm/wgmma.h"
#include "tests/cuda/f8_ends.h"
#include "tests/cuda/wgmma_case.h"

/* The emulation runs no others: they have tests of their own. */
static void check(kernel_case *k, int tiles)
{
    k->only = simt_emulated() ? "wgmma" : NULL;
    case_run_device(k, simt_emulated() ? 0 : 1);
    assert_int_equal(k->wgmma_runs, tiles);
    case_close(k);
}

static void matrices_agree(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, depth, columns;
        int tiles;
    } cases[] = {{5121, 144, 128, 2}, /* 128 x 128, 128 x 64 */
                 {3201, 272, 208, 2},
                 {10241, 80, 64, 1},   /* 128 x 64 */
                 {18001, 48, 144, 2}}; /* more tiles than blocks */
    for (int i = 0; i < ENDS * 4; i++) {
        kernel_case k;
        const int c = (i / ENDS + i) % 4;
        const int64_t rows = scaled(cases[c].rows), x[2] = {rows, cases[c].depth},
                      w[2] = {x[1], cases[c].columns}, y[2] = {rows, w[1]};
        if (case_is_quick() && i >= ENDS) break;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        f8_node(&k, &f8_ends[i % ENDS].end, 2, x, w, y, w[1], x[1]);
        check(&k, cases[c].tiles);
    }
}

static void convolutions_agree(void **state)
{
    (void)state;
    static const struct {
        int64_t images, channels, in[2], filters, taps[2], stride, pad;
    } cases[] = {
        {24, 64, {73, 7}, 64, {3, 3}, 1, 1}, /* 256 x 64 */
        {12, 64, {72, 7}, 128, {3, 2}, 1, 1},
        {2, 128, {97, 95}, 144, {3, 1}, 2, 0},
        {180, 128, {7, 7}, 112, {1, 3}, 1, 0},
    };
    for (int i = 0; i < 4 * 4; i++) {
        kernel_case k;
        const int c = i / 4;
        const int64_t images = scaled(cases[c].images), m = cases[c].filters,
                      channels = cases[c].channels;
        int64_t x[4] = {images, channels, 0, 0}, w[4] = {m, channels, 0, 0},
                y[4] = {images, m, 0, 0};
        if (case_is_quick() && i % 4 > 1) continue;
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        for (int a = 0; a < 2; a++) {
            x[2 + a] = cases[c].in[a], w[2 + a] = cases[c].taps[a];
            y[2 + a] = (x[2 + a] + 2 * cases[c].pad - w[2 + a]) / cases[c].stride + 1;
        }
        const int64_t pad = cases[c].pad;
        case_set_ints(&k, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
        case_set_ints(&k, "strides", (int64_t[]){cases[c].stride, cases[c].stride}, 2);
        f8_node(&k, &f8_ends[i % 4].end, 4, x, w, y, m, channels * w[2] * w[3]);
        check(&k, f8_ends[i % 4].pictures ? 1 : 0);
    }
}

/* Deterministic execution keeps out of them, and so do windows of E5M2 and other activations, of
   E5M2 GELU among them. */
static void others_are_left(void **state)
{
    (void)state;
    static const f8_end left[] = {{PARE_f8e4m3, PARE_f8e4m3, PARE_NOTYPE, "none", true, false},
                                  {PARE_f8e4m3, PARE_f8e4m3, PARE_NOTYPE, "silu", true, false},
                                  {PARE_f8e5m2, PARE_f8e5m2, PARE_NOTYPE, "gelu", true, false},
                                  {PARE_f8e5m2, PARE_f32, PARE_NOTYPE, "gelu", true, false}};
    for (int i = 0; i < 4; i++) {
        kernel_case k;
        const int64_t rows = scaled(5121), x[2] = {rows, 144}, w[2] = {144, 128},
                      y[2] = {rows, 128};
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        k.deterministic = i == 0;
        f8_node(&k, &left[i], 2, x, w, y, 128, 144);
        check(&k, 0);
    }
}

static void forms_are_refused(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_f8e4m3, PARE_f8e5m2};
    static const pare_dtype made[] = {PARE_f8e4m3, PARE_f32, PARE_f16, PARE_bf16, PARE_f8e5m2};
    pare_cuda_gemm_args p;
    for (int i = 0; i < 20; i++) {
        pare_cuda_gemm_init(&p, types[i % 2], made[i / 4]);
        p.rows = p.columns = 16;
        p.tile = PARE_CUDA_256X128; /* has no such kernel */
        p.picture = i & 2;
        p.in.channels = 64;
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_wgmma_launch(&p, NULL));
        p.z = &p;
        p.epilogue.z_type = i & 2 ? types[i % 2] : made[i / 4];
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_wgmma_launch(&p, NULL));
        p.z = NULL;
        p.epilogue.act.kind = PARE_ACT_GELU;
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_wgmma_launch(&p, NULL));
    }
}

/* Of E5M2 there are windows, residuals and GELUs of no tile. */
static void ends_of_e5m2_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        pare_cuda_gemm_args p;
        pare_cuda_gemm_init(&p, PARE_f8e5m2, PARE_f8e5m2);
        p.rows = p.columns = 16;
        p.in.channels = 64;
        p.tile = PARE_CUDA_128X128;
        p.picture = i == 0;
        p.z = i == 1 ? &p : NULL;
        p.epilogue.z_type = i == 1 ? PARE_f8e5m2 : PARE_NOTYPE;
        p.epilogue.act.kind = i == 2 ? PARE_ACT_GELU : PARE_ACT_NONE;
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_wgmma_launch(&p, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(matrices_agree),           device_test(convolutions_agree),
        device_test(others_are_left),          device_test(forms_are_refused),
        device_test(ends_of_e5m2_are_refused),
    };
    if (!device_is(9)) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
