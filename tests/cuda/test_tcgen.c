/* SPDX-License-Identifier: Apache-2.0 */
/* Products by the instructions of compute capability 10.0, against the CPU's plain kernels: bytes
   of integers are equal. Large enough that they fit; tails of rows, columns and depth; windows over
   borders, in steps and with gaps. Sizes are those of a device with 132 multiprocessors, and shrink
   with it. Each case says how many of the three tiles must have taken it. Skipped on other devices.
 */
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/cuda/gemm/tcgen.h"
#include "runtime/exec/exec.h"
#include "tests/cuda/f8_ends.h"
#include "tests/cuda/wgmma_case.h"

/* The emulation runs no others: they have tests of their own. */
static void check(kernel_case *k, int tiles)
{
    k->only = simt_emulated() ? "tcgen" : NULL;
    case_run_device(k, simt_emulated() ? 0 : 1);
    assert_int_equal(k->tcgen_runs, tiles);
    case_close(k);
}

/* Of 64, 128 and 256 columns. */
static int all_tiles(int64_t columns) { return 1 + (columns > 64) + (columns > 128); }
static int two_tiles(int64_t columns) { return 1 + (columns > 64); }

static void matrices_agree(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        /* rows, depth, columns */
        {5121, 64, 128},  {3201, 80, 208},  {10241, 144, 64}, {13655, 16, 48},
        {2001, 656, 336}, {3456, 256, 272}, {18001, 80, 144}, /* more tiles than blocks */
    };
    for (int i = 0; i < 4 * (int)(sizeof cases / sizeof *cases); i++) {
        kernel_case k;
        const int64_t *c = cases[i / 4], rows = scaled(c[0]), x[2] = {rows, c[1]},
                      w[2] = {c[1], c[2]}, y[2] = {rows, c[2]};
        if (case_is_quick() && i % 7) continue;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        inputs_set(&k, i, 2, x, w, y, c[2], c[1], i % 3 == 0, z_type(i));
        check(&k, all_tiles(c[2]));
    }
}

static const convolution windows[] = {
    {2, 64, {73, 71}, 64, {3, 3}, 1, {1, 1}, 1, 1},
    {1, 64, {72, 72}, 128, {3, 3}, 1, {2, 2}, 2, 2},
    {2, 128, {97, 95}, 144, {3, 3}, 2, {1, 1}, 1, 3},
    {2, 192, {66, 66}, 96, {3, 1}, 1, {0, 0}, 1, 2},
    {1, 320, {71, 73}, 272, {1, 2}, 1, {0, 1}, 1, 3},
    {2, 64, {102, 101}, 128, {1, 1}, 2, {0, 0}, 1, 2},
    {3, 128, {34, 35}, 192, {1, 1}, 1, {0, 0}, 1, 3}, /* a matrix */
    {130, 128, {7, 7}, 112, {3, 3}, 1, {1, 1}, 1, 2},
    {9, 64, {46, 46}, 144, {3, 1}, 1, {1, 0}, 1, 3}, /* more tiles than blocks */
};
enum { WINDOWS = sizeof windows / sizeof *windows };

static void convolutions_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * WINDOWS; i++) {
        kernel_case k;
        int64_t x[4], w[4], y[4];
        const int c = i / 4;
        const bool is_padded = windows[c].pad[0] + windows[c].pad[1] > 0;
        if ((i % 4 == 0 || i % 4 == 3) != (c % 2 == 0)) continue; /* each type, each residual */
        if (case_is_quick() && i % 5) continue;
        convolution_open(&k, &windows[c], i, x, w, y);
        inputs_set(&k, i, 4, x, w, y, w[0], w[1] * w[2] * w[3], !is_padded && i % 3 == 0,
                   z_type(i));
        check(&k, windows[c].tiles);
    }
}

static void matrices_of_halves_agree(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        {5121, 64, 128}, {3201, 40, 208}, {10241, 72, 64}, {27311, 40, 24}, {18001, 40, 144}};
    for (int i = 0; i < 8 * (int)(sizeof cases / sizeof *cases); i++) {
        kernel_case k;
        const int64_t *c = cases[i / 8], rows = scaled(c[0]), x[2] = {rows, c[1]},
                      w[2] = {c[1], c[2]}, y[2] = {rows, c[2]};
        if (case_is_quick() && i % 5 != 3) continue;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        halves_set(&k, i, 2, x, w, y, c[2], i % 2 && !is_gelu(i));
        check(&k, all_tiles(c[2]));
    }
}

static void convolutions_of_halves_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * WINDOWS; i++) {
        kernel_case k;
        int64_t x[4], w[4], y[4];
        const int how = i / 2 + i % 2 * 5;
        const convolution *c = &windows[i / 2];
        const bool matrix = c->taps[0] * c->taps[1] == 1 && c->stride == 1;
        if (case_is_quick() && i % 5 != 1) continue;
        convolution_open(&k, c, i, x, w, y);
        halves_set(&k, how, 4, x, w, y, w[0], i % 2 && !is_gelu(how));
        check(&k, is_gelu(how) && !matrix ? 0 : c->tiles);
    }
}

/* Integers in real units: floats, with and without a residual, of bytes to bf16 none; bytes behind
   a GELU. */
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
        check(&k, r.how == REAL_BYTES && r.y == PARE_bf16 ? 0 : two_tiles(c[2]));
    }
}

static void matrices_of_f8_agree(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        {5121, 144, 128}, {3201, 272, 208}, {10241, 80, 64}, {18001, 48, 144}};
    for (int i = 0; i < ENDS * 4; i++) {
        kernel_case k;
        const int64_t *c = cases[(i / ENDS + i) % 4], rows = scaled(c[0]), x[2] = {rows, c[1]},
                      w[2] = {c[1], c[2]}, y[2] = {rows, c[2]};
        if (case_is_quick() && i >= ENDS) break;
        case_open(&k, "pare", "FusedMatMul", (uint64_t)i + 1);
        f8_node(&k, &f8_ends[i % ENDS].end, 2, x, w, y, c[2], c[1]);
        check(&k, two_tiles(c[2]));
    }
}

static void convolutions_of_f8_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * WINDOWS; i++) {
        kernel_case k;
        int64_t x[4], w[4], y[4];
        const convolution *c = &windows[i / 2];
        if (case_is_quick() && i % 5) continue;
        convolution_open(&k, c, i, x, w, y);
        f8_node(&k, &f8_ends[i % 2].end, 4, x, w, y, w[0], w[1] * w[2] * w[3]);
        check(&k, c->channels % 128 && c->taps[0] * c->taps[1] * c->stride > 1
                      ? 0
                      : two_tiles(w[0])); /* channels that are no step */
    }
}

/* The launcher alone: tiles that are of no kernel are refused, and calls that fail are passed on.
 */
static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_s8, PARE_f16, PARE_bf16, PARE_f8e4m3, PARE_f8e5m2},
                            made[] = {PARE_s8, PARE_f32, PARE_f16, PARE_bf16, PARE_f8e4m3};
    for (int i = 0; i < 5 * 5 * 4; i++) {
        pare_cuda_gemm_args p;
        pare_cuda_gemm_init(&p, types[i % 5], made[i / 5 % 5]);
        p.rows = p.columns = 16;
        p.in.channels = i & 1 ? 64 : 128;
        p.tile = PARE_CUDA_64X64;
        p.picture = i / 25 % 2;
        p.epilogue.real = i / 50;
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_tcgen_launch(&p, NULL));
        p.z = &p;
        p.epilogue.z_type = i & 1 ? p.y_type : p.x_type;
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_tcgen_launch(&p, NULL));
        p.z = NULL;
        p.epilogue.act.kind = PARE_ACT_GELU;
        CUDA_IS(cudaErrorInvalidValue, pare_cuda_tcgen_launch(&p, NULL));
        p.rows = 0;
        if (p.x_type == PARE_s8) CUDA_OK(pare_cuda_tcgen_launch(&p, NULL));
    }
}

static void warn(void *warnings, pare_log_level level, const char *line)
{
    if (level == PARE_LOG_WARNING && strstr(line, "tcgen05")) ++*(int *)warnings;
}

/* A device whose first product fails has none of these kernels, and says so once. */
static void a_device_must_prove_itself(void **state)
{
    (void)state;
    int warnings = 0;
    pare_ctx ctx;
    pare_device *second;
    if (!simt_emulated()) skip();
    pare_ctx_init(&ctx);
    ctx.log = warn, ctx.log_user = &warnings;
    if (pare_device_open(&ctx, &second, "cuda:1") != PARE_OK) fail_msg("%s", ctx.message);
    const pare_prep prep = {.ctx = &ctx, .device = second};
    simt_fail_at(3, cudaErrorMemoryAllocation, false);
    assert_false(pare_cuda_tcgen_is_right(&prep));
    simt_fail_at(0, 0, false);
    assert_false(pare_cuda_tcgen_is_right(&prep));
    assert_int_equal(warnings, 1);
    pare_device_close(second);
}

static void failing_calls_are_passed_on(void **state)
{
    (void)state;
    if (!simt_emulated()) skip();
    pare_cuda_gemm_args p;
    pare_cuda_gemm_init(&p, PARE_f16, PARE_f16);
    void *memory[3];
    for (int i = 0; i < 3; i++) memory[i] = device_copy(NULL, 4096);
    p.x = memory[0], p.w = memory[1], p.y = memory[2];
    p.rows = p.columns = p.depth = 16;
    p.x_row = p.w_row = p.y_row = 16;
    p.epilogue.z_type = PARE_NOTYPE;
    p.tile = PARE_CUDA_128X64;
    launch_passes_failures_on(pare_cuda_tcgen_launch, &p);
    CUDA_OK(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++) CUDA_OK(cudaFree(memory[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(matrices_agree),
        device_test(convolutions_agree),
        device_test(matrices_of_halves_agree),
        device_test(convolutions_of_halves_agree),
        device_test(real_units_agree),
        device_test(matrices_of_f8_agree),
        device_test(convolutions_of_f8_agree),
        device_test(what_is_not_there_is_refused),
        device_test(failing_calls_are_passed_on),
        device_test(a_device_must_prove_itself),
    };
    if (!device_is(10)) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
