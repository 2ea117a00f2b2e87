/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights of 2:4 by the instructions of compute capability 9.0, against the CPU's
   plain kernels: bytes of integers are equal. As test_wgmma.c has
   them. Skipped on other devices. */
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/cuda/gemm/sparse.h"
#include "runtime/cuda/gemm/wgmma.h"
#include "tests/cuda/sparse_case.h"
#include "tests/cuda/wgmma_case.h"

/* Of each four neighbours along W's depth two become 0. */
static void weights_thin(kernel_case *k)
{
    const pare_view *w = &k->in[1];
    char *data = w->data;
    const int bytes = pare_type_is_int8(w->dtype) ? 1 : 2;
    const bool matrix = w->rank == 2;
    const int64_t depth = matrix ? w->dim[0] : w->dim[1], columns = matrix ? w->dim[1] : w->dim[0],
                  taps = matrix ? 1 : w->dim[2] * w->dim[3], step = matrix ? columns : taps;
    for (int64_t i = 0; i < columns * taps; i++)
        numbers_drop(k, data, bytes, matrix ? i : i / taps * depth * taps + i % taps, step, depth);
}

/* The emulation runs no others: they have tests of their own. */
static void check(kernel_case *k, int tiles)
{
    weights_thin(k);
    k->only = "sparse_wgmma";
    case_run_device(k, 0);
    assert_int_equal(k->wgmma_runs, tiles);
    case_close(k);
}

/* 128 x 128, 256 x 128, and four groups; one narrow tile. */
static int matrix_tiles(int64_t columns) { return columns <= 64 ? 1 : 3; }

/* Four groups take no residual. */
static int window_tiles(int64_t columns, bool residual) { return columns <= 64 ? 1 : 3 - residual; }

static void matrices_agree(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        /* rows, depth, columns */
        {5121, 80, 128},  {3201, 144, 208}, {10241, 144, 64},  {13655, 336, 48}, {2001, 656, 336},
        {3456, 256, 192}, {40961, 80, 16},  {18001, 272, 144}, /* more tiles than blocks */
    };
    for (int i = 0; i < 4 * (int)(sizeof cases / sizeof *cases); i++) {
        kernel_case k;
        const int64_t *c = cases[i / 4], rows = scaled(c[0]), x[2] = {rows, c[1]},
                      w[2] = {c[1], c[2]}, y[2] = {rows, c[2]};
        if (case_is_quick() && i % 7) continue;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        inputs_set(&k, i, 2, x, w, y, c[2], c[1], i % 3 == 0, z_type(i));
        check(&k, matrix_tiles(c[2]));
    }
}

/* Of the second, third and others: 64 channels come a tap at a time, of which the last step may
   have one; 192 and 320 end amid a lot of 128. */
static void convolutions_agree(void **state)
{
    (void)state;
    static const convolution cases[] = {
        {2, 64, {73, 71}, 64, {3, 3}, 1, {1, 1}, 1, 0},
        {1, 64, {72, 72}, 128, {3, 3}, 1, {2, 2}, 2, 0},
        {2, 128, {97, 95}, 144, {3, 3}, 2, {1, 1}, 1, 0},
        {2, 192, {66, 66}, 96, {3, 1}, 1, {0, 0}, 1, 0},
        {1, 320, {71, 73}, 128, {1, 2}, 1, {0, 1}, 1, 0},
        {3, 128, {66, 69}, 48, {5, 5}, 1, {2, 2}, 1, 0},
        {1, 64, {73, 72}, 128, {7, 1}, 1, {3, 0}, 1, 0},
        {2, 128, {102, 101}, 128, {1, 1}, 2, {0, 0}, 1, 0},
        {3, 128, {34, 35}, 192, {1, 1}, 1, {0, 0}, 1, 1}, /* a matrix */
        {130, 128, {7, 7}, 112, {3, 3}, 1, {1, 1}, 1, 0},
        {9, 64, {46, 46}, 144, {3, 1}, 1, {1, 0}, 1, 0}, /* more tiles than blocks */
    };
    for (int i = 0; i < 4 * (int)(sizeof cases / sizeof *cases); i++) {
        kernel_case k;
        int64_t x[4], w[4], y[4];
        const int c = i / 4;
        const bool is_padded = cases[c].pad[0] + cases[c].pad[1] > 0;
        if ((i % 4 == 0 || i % 4 == 3) != (c % 2 == 0)) continue; /* each type, each residual */
        if (case_is_quick() && i % 5) continue;
        convolution_open(&k, &cases[c], i, x, w, y);
        inputs_set(&k, i, 4, x, w, y, w[0], w[1] * w[2] * w[3], !is_padded && i % 3 == 0,
                   z_type(i));
        check(&k, cases[c].tiles ? matrix_tiles(w[0]) : window_tiles(w[0], has_residual(i)));
    }
}

static void matrices_of_halves_agree(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        /* rows, depth, columns */
        {5121, 64, 128}, {3201, 40, 208},  {10241, 72, 64},
        {27311, 40, 24}, {2001, 136, 336}, {18001, 40, 144}, /* more tiles than blocks */
    };
    for (int i = 0; i < 4 * (int)(sizeof cases / sizeof *cases); i++) {
        kernel_case k;
        const int64_t *c = cases[i / 4], rows = scaled(c[0]), x[2] = {rows, c[1]},
                      w[2] = {c[1], c[2]}, y[2] = {rows, c[2]};
        const bool residual = i / 4 % 2 != i % 2 && !is_gelu(i);
        if (case_is_quick() && i % 5 != 3) continue;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        halves_set(&k, i, 2, x, w, y, c[2], residual);
        check(&k, !is_gelu(i) ? matrix_tiles(c[2]) : c[2] <= 64 ? 0 : 3);
    }
}

static void convolutions_of_halves_agree(void **state)
{
    (void)state;
    static const convolution cases[] = {
        {2, 64, {73, 71}, 64, {3, 3}, 1, {1, 1}, 1, 0},
        {1, 64, {72, 72}, 128, {3, 1}, 1, {2, 0}, 2, 0},
        {2, 128, {97, 95}, 144, {1, 3}, 2, {0, 1}, 1, 0},
        {3, 64, {66, 69}, 56, {1, 2}, 1, {0, 0}, 1, 0},
        {130, 64, {7, 7}, 112, {3, 3}, 1, {1, 1}, 1, 0},
        {2, 64, {102, 101}, 128, {1, 1}, 2, {0, 0}, 1, 0},
        {3, 64, {34, 35}, 192, {1, 1}, 1, {0, 0}, 1, 1}, /* a matrix */
    };
    for (int i = 0; i < 2 * (int)(sizeof cases / sizeof *cases); i++) {
        kernel_case k;
        int64_t x[4], w[4], y[4];
        const int c = i / 2, how = c + i % 2 * 5;
        const bool residual = i % 2 && !is_gelu(how), matrix = cases[c].tiles;
        if (case_is_quick() && i % 5 != 1) continue;
        convolution_open(&k, &cases[c], i, x, w, y);
        halves_set(&k, how, 4, x, w, y, w[0], residual);
        check(&k, is_gelu(how) ? (matrix ? 3 : 0) /* matrices alone */
                  : matrix     ? matrix_tiles(w[0])
                               : window_tiles(w[0], residual));
    }
}

/* 128 x 128 and 256 x 128, behind a GELU by four groups, too; f32 with bytes to add in one, bf16
   with them in none. */
static int real_tiles(real_case r)
{
    if (r.how == REAL_BYTES) return r.y == PARE_bf16 ? 0 : r.y == PARE_f32 ? 1 : 2;
    return r.how == REAL_GELU ? 3 : 2;
}

static void real_units_agree(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        {5121, 80, 128}, {3201, 144, 208}, {18001, 80, 144}, {10241, 80, 64}};
    for (int i = 0; i < 8 * (int)(sizeof cases / sizeof *cases); i++) {
        kernel_case k;
        const int64_t *c = cases[i / 8];
        if (case_is_quick() && i % 5 != 1 && i != 14) continue;
        const real_case r = real_open(&k, i, c, i / 8 == 1);
        check(&k, c[2] <= 64 ? 0 : real_tiles(r));
    }
}

/* What they must leave to others: three numbers of four, little depth, too few outputs, channels
   that no lot is, padding that is not 0, an epilogue of another form, sums of floats whose order is
   promised. The last case has none of these. */
static void others_are_left(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        kernel_case k;
        const int64_t side = i == 2 ? 9 : 102,
                      x[4] = {1,
                              i == 3   ? 96
                              : i == 1 ? 64
                                       : 128,
                              side, side},
                      w[4] = {64, x[1], 1, 1}, y[4] = {1, 64, side + 2, side + 2};
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        if (i == 6)
            halves_set(&k, 0, 4, x, w, y, w[0], false);
        else
            inputs_set(&k, 0, 4, x, w, y, w[0], x[1], i == 4, PARE_NOTYPE);
        k.deterministic = i == 6;
        case_set_ints(&k, "pads", (int64_t[]){1, 1, 1, 1}, 4);
        if (i == 5)
            assert_int_equal(pare_node_set_string(k.node, "activation", "leaky_relu"), PARE_OK);
        if (i > 0) weights_thin(&k);
        k.only = "sparse_wgmma";
        case_run_device(&k, 0);
        assert_int_equal(k.wgmma_runs, i == 7);
        case_close(&k);
    }
}

/* Numbers of X at places whose weights are not kept are multiplied by none: a NaN or an infinity
   there reaches no sum. Sums of 32 times 1 times 0.5. */
static void numbers_without_weights_are_not_seen(void **state)
{
    (void)state;
    enum { ROWS = 70, DEPTH = 64, COLUMNS = 16, ONE = 0x3c00, HALF = 0x3800, SIXTEEN = 0x4c00 };
    static const uint16_t four[4] = {ONE, ONE, 0x7e00 /* NaN */, 0x7c00 /* infinity */};
    uint16_t x[ROWS * DEPTH], kept[COLUMNS * DEPTH / 2], y[ROWS * COLUMNS];
    const size_t size = pare_sparse_meta_bytes(COLUMNS, DEPTH, 2);
    uint32_t *meta = malloc(size);
    assert_non_null(meta);
    pare_sparse_meta_clear(meta, size); /* places 0 and 1 are kept */
    for (int i = 0; i < ROWS * DEPTH; i++) x[i] = four[i % 4];
    for (int i = 0; i < COLUMNS * DEPTH / 2; i++) kept[i] = HALF;
    void *from[3] = {device_copy(x, sizeof x), device_copy(kept, sizeof kept),
                     device_copy(meta, size)};
    free(meta);
    for (int by_wgmma = 0; by_wgmma < 2; by_wgmma++) {
        pare_cuda_gemm_args p;
        void *to = device_copy(NULL, sizeof y);
        pare_cuda_gemm_init(&p, PARE_f16, PARE_f16);
        p.x = from[0], p.w = from[1], p.y = to;
        p.rows = ROWS, p.columns = COLUMNS, p.depth = DEPTH;
        p.x_row = DEPTH, p.w_row = DEPTH / 2, p.y_row = COLUMNS;
        p.copy = PARE_CUDA_CHUNK;
        p.tile = by_wgmma ? PARE_CUDA_256X64 : PARE_CUDA_64X64;
        CUDA_OK(by_wgmma ? pare_cuda_wgmma_sparse_launch(&p, from[2], NULL)
                         : pare_cuda_sparse_launch(&p, from[2], NULL));
        device_fetch(y, to, sizeof y);
        for (int i = 0; i < ROWS * COLUMNS; i++) assert_int_equal(y[i], SIXTEEN);
    }
    for (int i = 0; i < 3; i++) CUDA_OK(cudaFree(from[i]));
}

/* Of each kind and epilogue. */
static void forms_are_refused(pare_cuda_gemm_args p)
{
    static const pare_dtype types[] = {PARE_s8, PARE_f16};
    for (int i = 0; i < 8; i++) {
        p.x_type = types[i & 1];
        p.epilogue.act.kind = i & 2 ? PARE_ACT_GELU : PARE_ACT_NONE;
        p.epilogue.real = i & 4;
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_wgmma_sparse_launch(&p, NULL, NULL));
    }
}

/* The launcher alone, far below the size that fits asks for: sums of 32 times 1 times 2, of which a
   half is 32. Its calls fail in turn; what maps refuse is an invalid value. */
static void failing_calls_are_passed_on(void **state)
{
    (void)state;
    enum { ROWS = 70, DEPTH = 64, COLUMNS = 16, FIRST_MAP = 4, LAST_MAP = 8 };
    if (!simt_emulated()) skip();
    const int calls = simt_set.dependent ? 13 : 11; /* a kernel ahead: of it, and of the code */
    const size_t words = pare_sparse_meta_bytes(COLUMNS, DEPTH, 1) / sizeof(uint32_t);
    int8_t x[ROWS * DEPTH], kept[COLUMNS * DEPTH / 2], y[ROWS * COLUMNS];
    uint32_t meta[16 * 2 * 32];
    pare_cuda_four_columns four[COLUMNS / 4] = {0};
    pare_cuda_gemm_args p;
    assert_int_equal(words, sizeof meta / sizeof *meta);
    memset(x, 1, sizeof x);
    memset(kept, 2, sizeof kept);
    pare_sparse_meta_clear(meta, sizeof meta);
    for (int i = 0; i < COLUMNS; i++) four[i / 4].scale[i % 4] = 0.5f;
    pare_cuda_gemm_init(&p, PARE_s8, PARE_s8);
    void *to = device_copy(NULL, sizeof y),
         *from[4] = {device_copy(x, sizeof x), device_copy(kept, sizeof kept),
                     device_copy(meta, sizeof meta), device_copy(four, sizeof four)};
    p.x = from[0], p.w = from[1], p.four = from[3], p.y = to;
    p.rows = ROWS, p.columns = COLUMNS, p.depth = DEPTH;
    p.x_row = DEPTH, p.w_row = DEPTH / 2, p.y_row = COLUMNS;
    p.epilogue = (pare_epilogue){
        .to = PARE_s8, .z_type = PARE_NOTYPE, .y_scale = 1, .z_scale = 1, .low = -128, .high = 127};
    p.tile = PARE_CUDA_64X64; /* has no such kernel */
    forms_are_refused(p);
    p.tile = PARE_CUDA_256X64;
    CUDA_OK(pare_cuda_wgmma_sparse_launch(&p, from[2], NULL));
    for (int n = 1; n <= calls; n++) {
        simt_fail_at((uint64_t)n, cudaErrorLaunchFailure, false);
        const cudaError_t e = pare_cuda_wgmma_sparse_launch(&p, from[2], NULL);
        simt_fail_at(0, 0, false);
        const bool map = n >= FIRST_MAP && n <= LAST_MAP;
        assert_int_equal(e, map ? cudaErrorInvalidValue : cudaErrorLaunchFailure);
        (void)cudaGetLastError();
    }
    simt_fail_at((uint64_t)calls + 1, cudaErrorLaunchFailure, false);
    CUDA_OK(pare_cuda_wgmma_sparse_launch(&p, from[2], NULL));
    simt_fail_at(0, 0, false);
    p.rows = 0;
    CUDA_OK(pare_cuda_wgmma_sparse_launch(&p, from[2], NULL));
    device_fetch(y, to, sizeof y);
    for (int i = 0; i < ROWS * COLUMNS; i++) assert_int_equal(y[i], 32);
    for (int i = 0; i < 4; i++) CUDA_OK(cudaFree(from[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(matrices_agree),
        device_test(convolutions_agree),
        device_test(matrices_of_halves_agree),
        device_test(convolutions_of_halves_agree),
        device_test(real_units_agree),
        device_test(others_are_left),
        device_test(numbers_without_weights_are_not_seen),
        device_test(failing_calls_are_passed_on),
    };
    if (!device_is(9)) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
