/* SPDX-License-Identifier: Apache-2.0 */
/* Products by the instructions of compute capability 9.0, against the CPU's plain kernels: bytes of
   integers are equal. Large enough that they fit; tails of rows,
   columns and depth; windows over borders, in steps and with gaps. Sizes are those of a device with
   132 multiprocessors, and shrink with it. Each case says how many of the tiles must have taken it.
   Skipped on other devices. */
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/cuda/gemm/wgmma.h"
#include "tests/cuda/wgmma_case.h"

/* The tile of 256 x 128, of more columns and depth than 64, takes no residual; that of four groups
   takes none of a picture. */
static int tiles_of(int i, int tiles, int64_t columns, int64_t depth)
{
    return tiles - (has_residual(i) && columns > 64 && depth > 64);
}

/* The emulation runs no others: they have tests of their own. */
static void check(kernel_case *k, int tiles)
{
    k->only = simt_emulated() ? "wgmma" : NULL;
    k->without = "wgmma_swap";
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
    } cases[] = {
        {5121, 64, 128, 3},  /* 128 x 128, 128 x 64, four groups; steps of 64 bytes */
        {3201, 80, 208, 4},  /* 128 x 128, 256 x 128, 128 x 192, four groups */
        {10241, 144, 64, 2}, /* 128 x 64 and 256 x 64 */
        {13655, 16, 48, 2},  {2001, 656, 336, 4}, {3456, 256, 192, 4},
        {40961, 48, 16, 2},  {18001, 80, 144, 4}, /* more tiles than blocks */
    };
    for (int i = 0; i < 4 * (int)(sizeof cases / sizeof *cases); i++) {
        kernel_case k;
        const int c = i / 4;
        if (case_is_quick() && i % 7) continue;
        const int64_t rows = scaled(cases[c].rows), x[2] = {rows, cases[c].depth},
                      w[2] = {cases[c].depth, cases[c].columns}, y[2] = {rows, cases[c].columns};
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        inputs_set(&k, i, 2, x, w, y, w[1], x[1], i % 3 == 0, z_type(i));
        check(&k, tiles_of(i, cases[c].tiles, w[1], x[1]));
    }
}

static void convolutions_agree(void **state)
{
    (void)state;
    static const convolution cases[] = {
        {2, 64, {73, 71}, 64, {3, 3}, 1, {1, 1}, 1, 1},  /* 256 x 64 */
        {1, 64, {72, 72}, 128, {3, 3}, 1, {2, 2}, 2, 3}, /* 128 x 128, 256 x 128, four groups */
        {2, 128, {97, 95}, 144, {3, 3}, 2, {1, 1}, 1, 3},
        {2, 192, {66, 66}, 96, {3, 1}, 1, {0, 0}, 1, 3},
        {1, 320, {71, 73}, 128, {1, 2}, 1, {0, 1}, 1, 3},
        {3, 64, {66, 69}, 48, {5, 5}, 1, {2, 2}, 1, 1},
        {1, 64, {73, 72}, 128, {7, 1}, 1, {3, 0}, 1, 3},
        {2, 64, {102, 101}, 128, {1, 1}, 2, {0, 0}, 1, 3},
        {3, 128, {34, 35}, 192, {1, 1}, 1, {0, 0}, 1, 4}, /* a matrix */
        {130, 128, {7, 7}, 112, {3, 3}, 1, {1, 1}, 1, 3},
        {9, 64, {46, 46}, 144, {3, 1}, 1, {1, 0}, 1, 3}, /* more tiles than blocks */
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
        const int picture = has_residual(i) && w[0] > 64 && cases[c].tiles < 4;
        check(&k, tiles_of(i, cases[c].tiles, w[0], INT64_MAX) - picture);
    }
}

/* --- f16 and bf16 --- */

/* 128 x 128, four groups and, without a residual, 256 x 128; 128 x 192 of many columns; two narrow
   ones. */
static int half_tiles(int64_t columns, bool residual)
{
    return columns <= 64 ? 2 : 3 - residual + (columns > 128);
}

/* 128 x 64 and 128 x 128, 128 x 192 of many columns. */
static int real_tiles(int64_t columns) { return columns <= 64 ? 0 : 2 + (columns > 128); }

/* Four groups as well. */
static int gelu_tiles(int64_t columns) { return real_tiles(columns) + (columns > 64); }

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
        const int64_t *c = cases[i / 4];
        const int64_t rows = scaled(c[0]), x[2] = {rows, c[1]}, w[2] = {c[1], c[2]},
                      y[2] = {rows, c[2]};
        const bool residual = i / 4 % 2 != i % 2 && !is_gelu(i);
        if (case_is_quick() && i % 5 != 3) continue;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        halves_set(&k, i, 2, x, w, y, c[2], residual);
        check(&k, is_gelu(i) ? gelu_tiles(c[2]) : half_tiles(c[2], residual));
    }
}

static void convolutions_of_halves_agree(void **state)
{
    (void)state;
    static const convolution cases[] = {
        {2, 64, {73, 71}, 64, {3, 3}, 1, {1, 1}, 1, 1}, /* 256 x 64 */
        {1, 64, {72, 72}, 128, {3, 1}, 1, {2, 0}, 2, 3},
        {2, 128, {97, 95}, 144, {1, 3}, 2, {0, 1}, 1, 3},
        {3, 64, {66, 69}, 56, {1, 2}, 1, {0, 0}, 1, 1},
        {130, 64, {7, 7}, 112, {3, 3}, 1, {1, 1}, 1, 3},
        {2, 64, {102, 101}, 128, {1, 1}, 2, {0, 0}, 1, 3},
        {3, 64, {34, 35}, 192, {1, 1}, 1, {0, 0}, 1, 4}, /* a matrix */
        {1, 96, {72, 72}, 128, {3, 1}, 1, {1, 0}, 1, 0}, /* channels that no step is */
    };
    for (int i = 0; i < 2 * (int)(sizeof cases / sizeof *cases); i++) {
        kernel_case k;
        int64_t x[4], w[4], y[4];
        const int c = i / 2, how = c + i % 2 * 5;
        const bool residual = i % 2 && !is_gelu(how);
        if (case_is_quick() && i % 5 != 1) continue;
        convolution_open(&k, &cases[c], i, x, w, y);
        halves_set(&k, how, 4, x, w, y, w[0], residual);
        const bool matrix = cases[c].tiles == 4;
        const int less = residual && w[0] > 64 && cases[c].tiles ? 1 + !matrix : 0;
        check(&k, is_gelu(how) ? matrix * 4 : cases[c].tiles - less); /* GELU: matrices alone */
    }
}

/* --- integers in real units: floats, with and without a residual; bytes behind a GELU --- */

/* Bytes are added to f32 in all but the widest tile, to bf16 in none. */
static int byte_tiles(int64_t columns, pare_dtype y)
{
    return y == PARE_bf16 ? 0 : real_tiles(columns) - (y == PARE_f32 && columns > 128);
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
        check(&k, r.how == REAL_BYTES  ? byte_tiles(c[2], r.y)
                  : r.how == REAL_GELU ? gelu_tiles(c[2])
                                       : real_tiles(c[2]));
    }
}

/* What they must leave to others: too small, channels that no step is, padding that is not 0,
   epilogues of other forms, residuals of floats. */
static void others_are_left(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        kernel_case k;
        const int64_t side = i == 0 ? 9 : 102, x[4] = {1, i == 1 ? 96 : 64, side, side},
                      w[4] = {64, x[1], 1, 1}, y[4] = {1, 64, side + 2, side + 2};
        case_open(&k, "pare", "FusedConv", (uint64_t)i + 1);
        k.nhwc = true;
        inputs_set(&k, 0, 4, x, w, y, w[0], x[1], i == 2, i == 4 ? PARE_f32 : PARE_NOTYPE);
        case_set_ints(&k, "pads", (int64_t[]){1, 1, 1, 1}, 4);
        if (i == 3)
            assert_int_equal(pare_node_set_string(k.node, "activation", "leaky_relu"), PARE_OK);
        check(&k, 0);
    }
}

/* Of each kind and epilogue. */
static void forms_are_refused(pare_cuda_gemm_args p)
{
    static const pare_dtype types[] = {PARE_s8, PARE_f16};
    for (int i = 0; i < 8; i++) {
        p.x_type = types[i & 1];
        p.epilogue.act.kind = i & 2 ? PARE_ACT_GELU : PARE_ACT_NONE;
        p.epilogue.real = i & 4;
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_wgmma_launch(&p, NULL));
    }
}

/* The launcher alone, far below the size that fits asks for: sums of 64 times 1 times 2, a quarter
   of which is 32. Its calls fail in turn; what maps refuse is an invalid value. */
static void failing_calls_are_passed_on(void **state)
{
    (void)state;
    enum { ROWS = 70, DEPTH = 64, COLUMNS = 16 };
    if (!simt_emulated()) skip();
    int8_t x[ROWS * DEPTH], w[COLUMNS * DEPTH], y[ROWS * COLUMNS];
    float scale[COLUMNS];
    pare_cuda_four_columns four[(COLUMNS + PARE_WGMMA_WIDEST) / 4] = {0};
    pare_cuda_gemm_args p;
    memset(x, 1, sizeof x);
    memset(w, 2, sizeof w);
    for (int i = 0; i < COLUMNS; i++) scale[i] = four[i / 4].scale[i % 4] = 0.25f;
    pare_cuda_gemm_init(&p, PARE_s8, PARE_s8);
    void *to = device_copy(NULL, sizeof y),
         *from[4] = {device_copy(x, sizeof x), device_copy(w, sizeof w),
                     device_copy(scale, sizeof scale), device_copy(four, sizeof four)};
    p.x = from[0], p.w = from[1], p.scale = from[2], p.four = from[3], p.y = to;
    p.rows = ROWS, p.columns = COLUMNS, p.depth = DEPTH;
    p.x_row = p.w_row = DEPTH, p.y_row = COLUMNS;
    p.epilogue = (pare_epilogue){
        .to = PARE_s8, .z_type = PARE_NOTYPE, .y_scale = 1, .z_scale = 1, .low = -128, .high = 127};
    p.tile = PARE_CUDA_64X64; /* has no such kernel */
    forms_are_refused(p);
    p.tile = PARE_CUDA_128X64;
    CUDA_OK(pare_cuda_wgmma_launch(&p, NULL));
    launch_passes_failures_on(pare_cuda_wgmma_launch, &p);
    p.rows = 0;
    CUDA_OK(pare_cuda_wgmma_launch(&p, NULL));
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
        device_test(failing_calls_are_passed_on),
    };
    if (!device_is(9)) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
