/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit elements: sums and products of two tensors, tables, QuantizeLinear and DequantizeLinear.
   Each reads its operands once and writes its output once, four or more neighbours a thread where
   they lie together. Arithmetic is that of runtime/cpu, step
   by step: fmaf where it is written, true divisions, ties to even. */
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/quantize.cuh"
#include "runtime/cuda/device/vec_number.cuh"
#include "runtime/cuda/kernel.h"
#include "runtime/base/f8.h"
#include "runtime/cuda/quantize.h"
#include "runtime/cuda/quantize_f8.h"
#include "runtime/cuda/reduce.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/int8_elementwise.h"
#include "runtime/ops/moves.h"

/* W elements of s8, u8 or s32 from data[at] on, `step` apart (vec.cuh). */
template <int W>
SIMT_INLINE void vec_load_codes(const void *data, pare_dtype type, int64_t at, int64_t step,
                                int to[W])
{
    if (type == PARE_s8) {
        int8_t code[W];
        vec_load<W>(static_cast<const int8_t *>(data), at, step, code);
        PARE_UNROLL for (int k = 0; k < W; k++) to[k] = code[k];
    } else if (type == PARE_u8) {
        uint8_t code[W];
        vec_load<W>(static_cast<const uint8_t *>(data), at, step, code);
        PARE_UNROLL for (int k = 0; k < W; k++) to[k] = code[k];
    } else {
        vec_load<W>(static_cast<const int32_t *>(data), at, step, to);
    }
}

/* W: 4, or 1. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    pair_each(pare_cuda_iterator w, pare_int8_pair p)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[3];
        int a[W], b[W];
        float v[4];
        pare_iterator_at<3>(w.walk, i * W, at);
        vec_load_codes<W>(w.data[1], p.a_type, at[1], iterator_step(w, 1), a);
        vec_load_codes<W>(w.data[2], p.b_type, at[2], iterator_step(w, 2), b);
        PARE_UNROLL for (int k = 0; k < 4; k++)
        {
            const float x = (float)(a[k % W] - p.a_zero), y = (float)(b[k % W] - p.b_zero);
            v[k] = p.product ? (x * y) * p.a_factor : fmaf(y, p.b_factor, x * p.a_factor);
        }
        vec4_act(p.epilogue.act, v);
        if (p.epilogue.to != PARE_f32)
            PARE_UNROLL PARE_VEC4 v[k] = pare_epilogue_round(&p.epilogue, v[k]);
        vec4_store(p.epilogue.to, static_cast<char *>(w.data[0]), at[0], v, W, W == 4);
    }
}

/* W: 16, or 1. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    table_each(pare_cuda_iterator w, const uint8_t *table)
{
    pare_dependent_begin();
    const uint8_t *x = static_cast<const uint8_t *>(w.data[1]);
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[2];
        uint8_t v[W];
        pare_iterator_at<2>(w.walk, i * W, at);
        vec_load<W>(x, at[1], iterator_step(w, 1), v);
        PARE_UNROLL for (int k = 0; k < W; k++) v[k] = table[v[k]];
        vec_store<W>(static_cast<uint8_t *>(w.data[0]), at[0], v);
    }
}

/* W: 4, or 1. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    quantize_each(pare_cuda_iterator w, pare_dtype y_type, pare_dtype x_type, pare_dtype s_type,
                  bool zeroed)
{
    pare_dependent_begin();
    const code_limits limits = code_limits_of(y_type);
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[4];
        float x[W], scale[W];
        int zero[W] = {};
        uint8_t y[W];
        pare_iterator_at<4>(w.walk, i * W, at);
        vec_load_floats<W>(w.data[1], x_type, at[1], iterator_step(w, 1), x);
        vec_load_floats<W>(w.data[2], s_type, at[2], iterator_step(w, 2), scale);
        if (zeroed) vec_load_codes<W>(w.data[3], y_type, at[3], iterator_step(w, 3), zero);
        PARE_UNROLL for (int k = 0; k < W; k++) y[k] =
            code_of(x[k], scale[k], (float)zero[k], limits);
        vec_store<W>(static_cast<uint8_t *>(w.data[0]), at[0], y);
    }
}

/* W: 4, or 1. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    dequantize_each(pare_cuda_iterator w, pare_dtype y_type, pare_dtype x_type, pare_dtype s_type,
                    bool zeroed)
{
    pare_dependent_begin();
    PARE_CUDA_EACH (i, w.walk.count / W) {
        int64_t at[4];
        float scale[W], v[4];
        int x[W], zero[W] = {};
        pare_iterator_at<4>(w.walk, i * W, at);
        vec_load_codes<W>(w.data[1], x_type, at[1], iterator_step(w, 1), x);
        vec_load_floats<W>(w.data[2], s_type, at[2], iterator_step(w, 2), scale);
        if (zeroed) vec_load_codes<W>(w.data[3], x_type, at[3], iterator_step(w, 3), zero);
        PARE_UNROLL for (int k = 0; k < 4; k++)
        {
            const int code = zeroed ? x[k % W] - zero[k % W] : x[k % W];
            v[k] = (float)code * scale[k % W];
        }
        vec4_store(y_type, static_cast<char *>(w.data[0]), at[0], v, W, W == 4);
    }
}

/* scale = (high - low) / 255; zero point = -low / scale, rounded and held in u8. One thread. */
static __global__ void dynamic_scale(const float *range, float *scale, uint8_t *zero)
{
    float step = (range[1] - range[0]) / 255;
    if (step == 0) step = 1; /* all zeros: any scale keeps them */
    const float z = rintf(-range[0] / step);
    *scale = step;
    *zero = (uint8_t)(z > 0 ? z < 255 ? z : 255 : 0);
}

/* --- launchers --- */

#define LAUNCH(kernel, width, ...)                                                                 \
    do {                                                                                           \
        if (w->walk.count == 0) return cudaSuccess;                                                \
        PARE_ITERATOR_LAUNCH_VEC(width, kernel<width>, kernel<1>, __VA_ARGS__);                    \
        return cudaGetLastError();                                                                 \
    } while (0)

static cudaError_t pair_launch(const pare_cuda_iterator *w, const pare_int8_pair *pair,
                               cudaStream_t stream)
{
    LAUNCH(pair_each, 4, *pair);
}

/* y = table[x], bytes; table: (256) on the device. */
static cudaError_t table_launch(const pare_cuda_iterator *w, const void *table, cudaStream_t stream)
{
    LAUNCH(table_each, 16, static_cast<const uint8_t *>(table));
}

/* Operands y, x, scale, zero point, all stretched to x; zero NULL: none. QuantizeLinear: y s8, u8
   or FP8 of x f32, f16 or bf16; DequantizeLinear the other way; scale of a float type, perhaps
   another. */
static cudaError_t quantize_launch(const pare_cuda_iterator *w, pare_dtype y_type,
                                   pare_dtype x_type, pare_dtype s_type, bool zeroed,
                                   cudaStream_t stream)
{
    if (pare_type_is_f8(y_type))
        return pare_cuda_quantize_f8_launch(w, y_type, x_type, s_type, stream);
    LAUNCH(quantize_each, 4, y_type, x_type, s_type, zeroed);
}

static cudaError_t dequantize_launch(const pare_cuda_iterator *w, pare_dtype y_type,
                                     pare_dtype x_type, pare_dtype s_type, bool zeroed,
                                     cudaStream_t stream)
{
    if (pare_type_is_f8(x_type))
        return pare_cuda_dequantize_f8_launch(w, y_type, x_type, s_type, stream);
    LAUNCH(dequantize_each, 4, y_type, x_type, s_type, zeroed);
}

/* DynamicQuantizeLinear's step and zero point (u8) from a range that holds 0: range[0], range[1].
 */
static cudaError_t dynamic_launch(const float *range, float *scale, uint8_t *zero,
                                  cudaStream_t stream)
{
    SIMT_LAUNCH(dynamic_scale, dim3(1), dim3(1), 0, stream, range, scale, zero);
    return cudaGetLastError();
}

/* --- QAdd, QMul --- */

static pare_status pair_prepare(pare_prep *p, bool product)
{
    p->state = pare_arena_alloc(p->arena, 1, sizeof(pare_int8_pair));
    return p->state ? pare_int8_pair_read(p, product, (pare_int8_pair *)p->state) : PARE_MEMORY;
}

static pare_status add_prepare(pare_prep *p) { return pair_prepare(p, false); }
static pare_status mul_prepare(pare_prep *p) { return pair_prepare(p, true); }

static pare_status pair_run(const pare_call *c)
{
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 2);
    return PARE_CUDA_LAUNCH(c, pair_launch, &w, (const pare_int8_pair *)c->state);
}

static const pare_kernel q_add = {.name = "cuda_int8_add",
                                  .can = pare_int8_pair_can,
                                  .prepare = add_prepare,
                                  .run = pair_run,
                                  .flags = PARE_KERNEL_PARTS};
static const pare_kernel q_mul = {.name = "cuda_int8_mul",
                                  .can = pare_int8_pair_can,
                                  .prepare = mul_prepare,
                                  .run = pair_run,
                                  .flags = PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_q_add[] = {&q_add, NULL};
const pare_kernel *const pare_cuda_q_mul[] = {&q_mul, NULL};

/* --- Table --- */

static bool table_can(const pare_prep *p)
{
    return pare_type_is_int8(p->in[0].dtype) && pare_view_rowmajor(&p->in[1]);
}

static pare_status table_run(const pare_call *c)
{
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, table_launch, &w, c->in[1].data);
}

static const pare_kernel table = {.name = "cuda_table",
                                  .can = table_can,
                                  .run = table_run,
                                  .flags = PARE_KERNEL_INPLACE | PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_table[] = {&table, NULL};

/* --- Requantize: a table made here --- */

static pare_status requantize_prepare(pare_prep *p)
{
    uint8_t bytes[256];
    PARE_TRY(pare_requantize_table(p, bytes));
    return pare_cuda_keep(p, bytes, sizeof bytes);
}

static pare_status requantize_run(const pare_call *c)
{
    const pare_cuda_kept *s = (const pare_cuda_kept *)c->state;
    pare_cuda_iterator w;
    pare_cuda_iterator_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, table_launch, &w, s->data);
}

static const pare_kernel requantize_kernel = {.name = "cuda_requantize",
                                              .can = pare_requantize_can,
                                              .prepare = requantize_prepare,
                                              .run = requantize_run,
                                              .release = pare_cuda_kept_release,
                                              .flags = PARE_KERNEL_INPLACE | PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_requantize[] = {&requantize_kernel, NULL};

/* --- QConcat: every input through its table, into its part of y --- */

static pare_status q_concat_prepare(pare_prep *p)
{
    uint8_t *bytes = (uint8_t *)pare_arena_alloc(p->arena, (size_t)p->in_count, 256);
    if (!bytes) return PARE_MEMORY;
    pare_concat_tables(p, bytes);
    return pare_cuda_keep(p, bytes, 256 * (size_t)p->in_count);
}

static pare_status q_concat_run(const pare_call *c)
{
    const pare_cuda_kept *s = (const pare_cuda_kept *)c->state;
    const int a = pare_node_axis(c->node, 0, c->out[0].rank);
    int64_t at = 0;
    for (int i = 0; i < c->in_count; i++) {
        pare_view part = pare_view_part(&c->out[0], a, at, c->in[i].dim[a]);
        const pare_view *both[2] = {&part, &c->in[i]};
        pare_cuda_iterator w = {.data = {part.data, c->in[i].data}};
        at += part.dim[a];
        if (c->in[i].data == part.data) continue; /* a plan may have made it there */
        pare_iterator_init(&w.walk, both, 2);
        PARE_TRY(PARE_CUDA_LAUNCH(c, table_launch, &w, (const uint8_t *)s->data + 256 * (size_t)i));
    }
    return PARE_OK;
}

static const pare_kernel q_concat_kernel = {.name = "cuda_int8_concat",
                                            .can = pare_requantize_can,
                                            .prepare = q_concat_prepare,
                                            .run = q_concat_run,
                                            .release = pare_cuda_kept_release,
                                            .flags = PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_q_concat[] = {&q_concat_kernel, NULL};

/* --- QuantizeLinear, DequantizeLinear: per tensor or along an axis --- */

/* Zero points of FP8 are constants of 0; what is too large saturates. */
static bool f8_fits(const pare_prep *p)
{
    const pare_view *z = p->in_count > 2 && p->in[2].dtype ? &p->in[2] : NULL;
    const uint8_t *code = z ? (const uint8_t *)z->data : NULL;
    bool zero = !z || code;
    for (int64_t i = 0; z && zero && i < pare_view_count(z); i++) zero = !(code[i] & 0x7f);
    return zero && pare_node_int(p->node, "saturate", 1);
}

static bool scaling_can(const pare_prep *p, bool quantize)
{
    const pare_view *x = &p->in[0], *y = &p->out[0], *s = &p->in[1];
    pare_dtype real = quantize ? x->dtype : y->dtype, codes = quantize ? y->dtype : x->dtype;
    bool zeroed = p->in_count > 2 && p->in[2].dtype;
    bool coded = pare_type_is_int8(codes) || (!quantize && codes == PARE_s32) ||
                 (pare_type_is_f8(codes) && f8_fits(p));
    return pare_cuda_is_float(real) && pare_cuda_is_float(s->dtype) && coded &&
           (!zeroed || p->in[2].dtype == codes) && !pare_node_int(p->node, "block_size", 0) &&
           (pare_view_count(s) == 1 || s->rank == 1);
}

bool pare_cuda_quantize_can(const pare_prep *p)
{
    return pare_type_is_int8(p->out[0].dtype) && scaling_can(p, true);
}
static bool quantize_can(const pare_prep *p) { return scaling_can(p, true); }
static bool takes_pixels(const pare_call *c, const pare_pixels *pixels)
{
    return pare_type_is_int8(c->out[0].dtype) && pare_cuda_quantize_takes_pixels(c, pixels);
}
static bool dequantize_can(const pare_prep *p) { return scaling_can(p, false); }

static pare_status scaling_prepare(pare_prep *p)
{
    int *axis = (int *)pare_arena_alloc(p->arena, 1, sizeof *axis);
    if (!axis) return PARE_MEMORY;
    if (pare_view_count(&p->in[1]) != 1)
        PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", 1), p->in[0].rank, axis));
    p->state = axis;
    return PARE_OK;
}

/* A scale or zero point seen with x's rank: one number everywhere, or a vector along the axis. */
static pare_view like_x(const pare_view *v, const pare_view *x, int axis)
{
    pare_view w = *x;
    w.dtype = v->dtype;
    w.data = v->data;
    for (int i = 0; i < x->rank; i++)
        w.stride[i] = i == axis && pare_view_count(v) != 1 ? v->stride[0] : 0;
    return w;
}

static void scaling_walk(const pare_call *c, const pare_view *scale, const pare_view *zero,
                         int axis, pare_cuda_iterator *w)
{
    pare_view s = like_x(scale, &c->in[0], axis), z = like_x(zero, &c->in[0], axis);
    const pare_view *all[4] = {&c->out[0], &c->in[0], &s, &z};
    pare_iterator_init(&w->walk, all, 4);
    for (int i = 0; i < 4; i++) w->data[i] = all[i]->data;
}

static pare_status quantize_run(const pare_call *c)
{
    pare_cuda_iterator w;
    bool zeroed = c->in_count > 2 && c->in[2].dtype;
    if (c->pixels) return pare_cuda_quantize_pixels(c);
    scaling_walk(c, &c->in[1], &c->in[zeroed ? 2 : 1], *(const int *)c->state, &w);
    return PARE_CUDA_LAUNCH(c, quantize_launch, &w, c->out[0].dtype, c->in[0].dtype, c->in[1].dtype,
                            zeroed);
}

static pare_status dequantize_run(const pare_call *c)
{
    pare_cuda_iterator w;
    bool zeroed = c->in_count > 2 && c->in[2].dtype;
    scaling_walk(c, &c->in[1], &c->in[zeroed ? 2 : 1], *(const int *)c->state, &w);
    return PARE_CUDA_LAUNCH(c, dequantize_launch, &w, c->out[0].dtype, c->in[0].dtype,
                            c->in[1].dtype, zeroed);
}

static const pare_kernel quantize = {.name = "cuda_quantize",
                                     .can = quantize_can,
                                     .prepare = scaling_prepare,
                                     .run = quantize_run,
                                     .takes_pixels = takes_pixels,
                                     .flags = PARE_KERNEL_PARTS};
static const pare_kernel dequantize = {.name = "cuda_dequantize",
                                       .can = dequantize_can,
                                       .prepare = scaling_prepare,
                                       .run = dequantize_run,
                                       .flags = PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_quantize[] = {&pare_cuda_quantize_nhwc, &quantize, NULL};
const pare_kernel *const pare_cuda_dequantize[] = {&dequantize, NULL};

/* --- DynamicQuantizeLinear: the range, the scale, then QuantizeLinear --- */

static bool dynamic_can(const pare_prep *p)
{
    return p->in[0].dtype == PARE_f32 && p->out_count == 3 && p->out[1].dtype && p->out[2].dtype;
}

enum { RANGE_BYTES = 256 }; /* in front of the reduction's parts */

static pare_status dynamic_prepare(pare_prep *p)
{
    pare_cuda_reduce *r = (pare_cuda_reduce *)pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    const bool all[PARE_MAX_RANK] = {true, true, true, true, true, true, true, true};
    const pare_view range = {.dtype = PARE_f32};
    pare_cuda_reduce_set(r, PARE_CUDA_RANGE, &p->in[0], all, &range, p->deterministic);
    p->scratch = RANGE_BYTES + pare_cuda_reduce_scratch(r);
    p->state = r;
    return PARE_OK;
}

static pare_status dynamic_run(const pare_call *c)
{
    pare_cuda_reduce r = *(const pare_cuda_reduce *)c->state;
    pare_cuda_iterator w;
    r.x = c->in[0].data;
    r.y = c->scratch;
    r.part = (char *)c->scratch + RANGE_BYTES;
    PARE_TRY(PARE_CUDA_LAUNCH(c, pare_cuda_reduce_launch, &r));
    PARE_TRY(PARE_CUDA_LAUNCH(c, dynamic_launch, (const float *)r.y, (float *)c->out[1].data,
                              (uint8_t *)c->out[2].data));
    scaling_walk(c, &c->out[1], &c->out[2], 0, &w);
    return PARE_CUDA_LAUNCH(c, quantize_launch, &w, PARE_u8, PARE_f32, PARE_f32, true);
}

static const pare_kernel dynamic_quantize = {.name = "cuda_dynamic_quantize",
                                             .can = dynamic_can,
                                             .prepare = dynamic_prepare,
                                             .run = dynamic_run};
const pare_kernel *const pare_cuda_dynamic_quantize[] = {&dynamic_quantize, NULL};
