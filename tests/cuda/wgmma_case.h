/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of products by the instructions of compute capability 9.0 and 10.0 share: a case's
   number picks types, residual, bias and activation. */
#ifndef PARE_TESTS_CUDA_WGMMA_CASE_H
#define PARE_TESTS_CUDA_WGMMA_CASE_H

#include "runtime/cuda/gemm/gemm.h"
#include "tests/cpu/kernel_case.h"
#include "tests/simt/testing.h"

#include <math.h>
#include <string.h>

/* Is there a device of compute capability `wanted`.0? Says where there is none. */
static inline bool device_is(int wanted)
{
    int major = 0, minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) == cudaSuccess &&
        major == wanted && minor == 0)
        return true;
    printf("SKIP: no device of compute capability %d.0\n", wanted);
    return false;
}

/* The launcher's calls fail in turn; what maps refuse is an invalid value. */
static inline void launch_passes_failures_on(cudaError_t (*launch)(const pare_cuda_gemm_args *p,
                                                                   cudaStream_t stream),
                                             const pare_cuda_gemm_args *p)
{
    enum { FIRST_MAP = 4, LAST_MAP = 7 };
    const int calls = simt_set.dependent ? 12 : 10; /* a kernel ahead: of it, and of the code */
    for (int n = 1; n <= calls; n++) {
        simt_fail_at((uint64_t)n, cudaErrorLaunchFailure, false);
        const cudaError_t e = launch(p, NULL);
        simt_fail_at(0, 0, false);
        const bool map = n >= FIRST_MAP && n <= LAST_MAP;
        assert_int_equal(e, map ? cudaErrorInvalidValue : cudaErrorLaunchFailure);
        (void)cudaGetLastError();
    }
    simt_fail_at((uint64_t)calls + 1, cudaErrorLaunchFailure, false);
    CUDA_OK(launch(p, NULL));
    simt_fail_at(0, 0, false);
}

/* What follows a product: i picks types, residual, bias and activation. */
static inline pare_dtype x_type(int i) { return i & 1 ? PARE_u8 : PARE_s8; }
static inline bool has_residual(int i) { return i >> 1 & 1; }
static inline pare_dtype z_type(int i)
{
    return !has_residual(i) ? PARE_NOTYPE : i % 4 == 2 ? PARE_u8 : PARE_s8;
}

static inline int64_t low_of(pare_dtype t) { return t == PARE_s8 ? -128 : 0; }
static inline int64_t high_of(pare_dtype t) { return t == PARE_s8 ? 127 : 255; }

static inline void bytes_input(kernel_case *k, pare_dtype t, int rank, const int64_t *dims,
                               bool constant)
{
    case_input(k, t, rank, dims, constant, (int)low_of(t), (int)high_of(t));
}

static inline float y_scale_of(int64_t depth) { return 0.03f * sqrtf((float)depth); }

/* X, W, bias, residual and scales of so many columns; Y's scale, by which most do not saturate. */
static inline void operands_set(kernel_case *k, int i, int rank, const int64_t *x, const int64_t *w,
                                const int64_t *y, int64_t columns, int64_t depth, bool zero,
                                pare_dtype z)
{
    static const pare_dtype biases[] = {PARE_s32, PARE_f32, PARE_NOTYPE};
    const int64_t scales = i % 5 ? columns : 1;
    bytes_input(k, x_type(i), rank, x, false);
    bytes_input(k, PARE_s8, rank, w, true);
    case_input(k, biases[i % 3], 1, &columns, true, -5000, 5000);
    if (z)
        bytes_input(k, z, rank, y, false);
    else
        case_input(k, PARE_NOTYPE, 0, NULL, true, 0, 0);
    float *scale = case_input(k, PARE_f32, 1, &scales, true, 0, 1);
    for (int64_t c = 0; c < scales; c++) scale[c] = 0.01f + (float)case_between(k, 0, 100) * 1e-4f;
    case_set_float(k, "x_scale", 0.02f);
    case_set_float(k, "y_scale", y_scale_of(depth));
    case_set_float(k, "z_scale", 0.2f);
    case_set_int(k, "x_zero_point", zero ? 5 : 0);
    case_set_int(k, "z_zero_point", 9);
}

/* Those, and Y of 8 bits: its zero point at and between the ends of its type, bounds from inside
   and from outside them, some half-way between integers. */
static inline void inputs_set(kernel_case *k, int i, int rank, const int64_t *x, const int64_t *w,
                              const int64_t *y, int64_t columns, int64_t depth, bool zero,
                              pare_dtype z)
{
    static const char *const acts[] = {"none", "relu", "clip"};
    static const int zeros[] = {0, -128, 127, -37, 0, 64};
    const pare_dtype to = i % 3 == 1 ? PARE_u8 : PARE_s8;
    const int middle = zeros[i / 2 % 6], zero_point = middle ? middle + (int)low_of(to) + 128 : 0;
    const char *act = acts[i / 3 % 3];
    operands_set(k, i, rank, x, w, y, columns, depth, zero, z);
    case_set_int(k, "to", to);
    case_set_int(k, "y_zero_point", zero_point);
    assert_int_equal(pare_node_set_string(k->node, "activation", act), PARE_OK);
    if (strcmp(act, "clip") != 0) return;
    case_set_float(k, "alpha", i % 2 ? -4 : -20.5f * y_scale_of(depth));
    case_set_float(k, "beta", i % 4 > 1 ? 33.5f * y_scale_of(depth) : 1000);
}

typedef struct convolution {
    int64_t images, channels, in[2], filters, taps[2], stride, pad[2], dilation;
    int tiles; /* that take it */
} convolution;

/* An empty case of the convolution with fewer images, or rows of a few ones, and the shapes of X, W
   and Y. */
static inline void convolution_open(kernel_case *k, const convolution *c, int i, int64_t x[4],
                                    int64_t w[4], int64_t y[4])
{
    const int64_t ends[4] = {c->pad[0], c->pad[1], c->pad[0], c->pad[1]};
    case_open(k, "pare", "FusedConv", (uint64_t)i + 1);
    k->nhwc = true;
    x[0] = y[0] = c->images > 8 ? scaled(c->images) : c->images;
    x[1] = w[1] = c->channels;
    w[0] = y[1] = c->filters;
    for (int a = 0; a < 2; a++) {
        const int64_t reach = c->in[a] + 2 * c->pad[a] - (c->taps[a] - 1) * c->dilation - 1;
        w[2 + a] = c->taps[a];
        y[2 + a] = reach / c->stride + 1;
        if (a == 0 && c->images <= 8) y[2] = scaled(y[2]);
        x[2 + a] = c->in[a] - reach + (y[2 + a] - 1) * c->stride + reach % c->stride;
    }
    case_set_ints(k, "strides", (int64_t[]){c->stride, c->stride}, 2);
    case_set_ints(k, "dilations", (int64_t[]){c->dilation, c->dilation}, 2);
    case_set_ints(k, "pads", ends, 4);
}

/* --- f16 and bf16: i picks type, residual, bias and activation --- */

static inline bool is_gelu(int i) { return i % 4 == 3; }

static inline void halves_set(kernel_case *k, int i, int rank, const int64_t *x, const int64_t *w,
                              const int64_t *y, int64_t columns, bool residual)
{
    static const char *const acts[] = {"none", "relu", "clip", "gelu"};
    const pare_dtype type = i / 4 % 2 ? PARE_bf16 : PARE_f16;
    case_input(k, type, rank, x, false, 0, 1);
    case_input(k, type, rank, w, true, 0, 1);
    case_input(k, i % 3 ? type : PARE_NOTYPE, 1, &columns, true, 0, 4);
    if (residual) case_input(k, type, rank, y, false, 0, 4);
    assert_int_equal(pare_node_set_string(k->node, "activation", acts[i % 4]), PARE_OK);
    if (i % 4 != 2) return;
    case_set_float(k, "alpha", -3);
    case_set_float(k, "beta", 8);
}

/* --- integers in real units: floats, with and without a residual; bytes behind a GELU --- */

typedef struct real_case {
    enum { REAL_NOTHING, REAL_OF_Y, REAL_GELU, REAL_BYTES } how;
    pare_dtype y;
} real_case;

/* A product of rows, depth and columns, or a convolution of one pixel. */
static inline real_case real_open(kernel_case *k, int i, const int64_t c[3], bool conv)
{
    static const char *const acts[] = {"none", "relu", "clip"};
    static const pare_dtype floats[] = {PARE_f32, PARE_f16, PARE_bf16};
    const int how = i % 8 / 2;
    const bool gelu = how == REAL_GELU;
    const pare_dtype y_type = conv ? PARE_f32 : floats[(i / 8 + i % 2) % 3],
                     z_type = how == REAL_OF_Y    ? y_type
                              : how == REAL_BYTES ? (i % 4 > 2 ? PARE_u8 : PARE_s8)
                                                  : PARE_NOTYPE;
    const int64_t rows = scaled(c[0]), x[2] = {rows, c[1]}, w[2] = {c[1], c[2]},
                  y[2] = {rows, c[2]}, pixels[4] = {1, c[1], rows, 1},
                  filters[4] = {c[2], c[1], 1, 1}, made[4] = {1, c[2], rows, 1};
    case_open(k, "pare", conv ? "FusedConv" : "FusedMatMul", (uint64_t)i + 1);
    k->nhwc = conv;
    if (conv)
        operands_set(k, i, 4, pixels, filters, made, c[2], c[1], true, z_type);
    else
        operands_set(k, i, 2, x, w, y, c[2], c[1], true, z_type);
    case_set_float(k, "z_scale", how == REAL_BYTES ? 0.3f : 1);
    case_set_int(k, "to", !gelu ? PARE_f32 : i % 2 ? PARE_u8 : PARE_s8);
    if (!gelu) case_set_int(k, "output_dtype", y_type);
    if (gelu) case_set_int(k, "y_zero_point", i % 2 ? 11 : 0);
    if (gelu && i % 2) case_set_float(k, "y_scale", 1e-3f); /* small beside GELU's tail */
    const char *act = gelu ? "gelu" : acts[i / 8 % 3];
    assert_int_equal(pare_node_set_string(k->node, "activation", act), PARE_OK);
    if (!strcmp(act, "clip")) {
        case_set_float(k, "alpha", -2);
        case_set_float(k, "beta", 5);
    }
    return (real_case){how, y_type};
}

#endif
