/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, LogSoftmax (13), their gradient, and QSoftmax.
     softmax       y = e^(x - top) / sum e^(x - top); log form x - top - log sum
     gradient      dx = y (dy - sum y dy); log form dy - e^y sum dy
     QSoftmax      as ops/softmax_codes.h says
   Rows along any axis. One warp a row, partial results joined by shuffles. A row of at most 1,024
   numbers that lie together is read once, in vectors of four, and stays in registers; lanes stride
   three times through others (gradient: twice). Sums are kept in double per lane, so that they
   agree with the CPU's to the last bits of a float. */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/rows.cuh"
#include "runtime/ops/infer.h"
#include "runtime/ops/softmax_codes.h"

#include <string.h>

SIMT_INLINE float warp_max(float v)
{
    for (int d = 16; d; d >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, v, d);
        v = other > v || other != other ? other : v; /* NaN wins */
    }
    return v;
}

static __global__ void __launch_bounds__(WARPS * 32) softmax_rows(pare_cuda_rows r, bool log_form)
{
    pare_dependent_begin();
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= r.rows) return; /* a whole warp, and no barrier follows */
    const int64_t at = row_start(r, row);
    float top = -INFINITY;
    for (int64_t i = lane; i < r.n; i += 32) {
        float v = pare_number_at(r.x, r.dtype, at + i * r.step);
        top = v > top || v != v ? v : top;
    }
    top = warp_max(top);
    double sum = 0;
    for (int64_t i = lane; i < r.n; i += 32)
        sum += (double)expf(pare_number_at(r.x, r.dtype, at + i * r.step) - top);
    sum = pare_lanes_sum(sum);
    const float total = (float)sum, shift = log_form ? (float)log(sum) : 0;
    for (int64_t i = lane; i < r.n; i += 32) {
        float v = pare_number_at(r.x, r.dtype, at + i * r.step) - top;
        pare_number_store(r.y, r.dtype, at + i * r.step, log_form ? v - shift : expf(v) / total);
    }
}

template <int VECS>
static __global__ void __launch_bounds__(WARPS * 32)
    softmax_registers(pare_cuda_rows r, bool log_form)
{
    pare_dependent_begin();
    const int64_t row = row_of(r.rows), at = row * r.outer_step;
    if (row < 0) return;
    float v[VECS][4], e[VECS][4], top = -INFINITY;
    row_load<VECS>(r, at, -INFINITY, v);
    PARE_UNROLL for (int g = 0; g < VECS; g++) PARE_UNROLL PARE_VEC4 top =
        v[g][k] > top || v[g][k] != v[g][k] ? v[g][k] : top;
    top = warp_max(top);
    double sum = 0;
    PARE_UNROLL for (int g = 0; g < VECS; g++) PARE_UNROLL PARE_VEC4
    {
        e[g][k] = expf(v[g][k] - top);
        if (vec_start(g) < r.n) sum += (double)e[g][k];
    }
    sum = pare_lanes_sum(sum);
    const float total = (float)sum, shift = log_form ? (float)log(sum) : 0;
    PARE_UNROLL for (int g = 0; g < VECS; g++) PARE_UNROLL PARE_VEC4 e[g][k] =
        log_form ? (v[g][k] - top) - shift : e[g][k] / total;
    row_store<VECS>(r, at, e);
}

static __global__ void __launch_bounds__(WARPS * 32)
    softmax_grad_rows(pare_cuda_rows r, const void *dy, bool log_form)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = row_of(r.rows);
    if (row < 0) return;
    const int64_t outer = row / r.inner, at = outer * r.outer_step + (row - outer * r.inner);
    double sum = 0;
    for (int64_t i = lane; i < r.n; i += 32) {
        const double d = (double)pare_number_at(dy, r.dtype, at + i * r.step);
        sum += log_form ? d : d * (double)pare_number_at(r.x, r.dtype, at + i * r.step);
    }
    const float s = (float)pare_lanes_sum(sum);
    for (int64_t i = lane; i < r.n; i += 32) {
        const float d = pare_number_at(dy, r.dtype, at + i * r.step),
                    y = pare_number_at(r.x, r.dtype, at + i * r.step);
        pare_number_store(r.y, r.dtype, at + i * r.step, log_form ? d - expf(y) * s : y * (d - s));
    }
}

/* --- QSoftmax: sums are whole numbers --- */

SIMT_INLINE float lanes_max(float v)
{
    for (int d = 16; d; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* What a row's exponentials are multiplied by. */
SIMT_INLINE float codes_factor(const pare_cuda_rows &r, float top, uint64_t sum)
{
    return pare_softmax_factor(top, pare_softmax_total(sum, r.n),
                               r.dtype == PARE_f32 ? r.y_scale : 1);
}

SIMT_INLINE float softmax_code(const pare_cuda_rows &r, float e, float c)
{
    if (r.dtype != PARE_f32) return row_code(r, e * c);
    return pare_softmax_step(e, c, code_limits_of(r.to).high - r.y_zero) + r.y_zero;
}

static __global__ void __launch_bounds__(WARPS * 32) softmax_codes_rows(pare_cuda_rows r)
{
    pare_dependent_begin();
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = row_of(r.rows);
    if (row < 0) return;
    const int64_t at = row_start(r, row);
    float top = -INFINITY;
    for (int64_t i = lane; i < r.n; i += 32)
        top = fmaxf(top, pare_number_at(r.x, r.dtype, at + i * r.step));
    top = lanes_max(top);
    const float less = pare_softmax_less(top), low = pare_softmax_low(top),
                round = pare_softmax_round(top);
    unsigned long long total = 0;
    for (int64_t i = lane; i < r.n; i += 32) {
        const float v = pare_number_at(r.x, r.dtype, at + i * r.step) - less;
        total += pare_softmax_part_of(pare_softmax_power(v, low, round), r.n);
    }
    const float c = codes_factor(r, top, pare_lanes_sum(total));
    for (int64_t i = lane; i < r.n; i += 32) {
        const float v = pare_number_at(r.x, r.dtype, at + i * r.step) - less,
                    e = pare_softmax_power(v, low, round);
        bits_store(1, static_cast<char *>(r.y) + at + i * r.step,
                   bits_of(r.to, softmax_code(r, e, c)));
    }
}

template <int VECS>
static __global__ void __launch_bounds__(WARPS * 32) softmax_codes_registers(pare_cuda_rows r)
{
    pare_dependent_begin();
    const int64_t row = row_of(r.rows), at = row * r.outer_step;
    if (row < 0) return;
    float v[VECS][4], top = -INFINITY;
    row_load<VECS>(r, at, -INFINITY, v);
    PARE_UNROLL for (int g = 0; g < VECS; g++) PARE_UNROLL PARE_VEC4 top = fmaxf(top, v[g][k]);
    top = lanes_max(top);
    const float less = pare_softmax_less(top), low = pare_softmax_low(top),
                round = pare_softmax_round(top);
    uint32_t part = 0; /* what is behind the row's end adds 0 */
    PARE_UNROLL for (int g = 0; g < VECS; g++) PARE_UNROLL PARE_VEC4
    {
        v[g][k] = pare_softmax_power(v[g][k] - less, low, round);
        part += pare_softmax_part(1.0f + v[g][k]);
    }
    const float c = codes_factor(r, top, pare_lanes_sum((unsigned long long)part));
    PARE_UNROLL for (int g = 0; g < VECS; g++) if (vec_start(g) < r.n)
    {
        PARE_UNROLL PARE_VEC4 v[g][k] = softmax_code(r, v[g][k], c);
        vec4_store(r.to, static_cast<char *>(r.y), at + vec_start(g), v[g], 4, true);
    }
}

/* --- launchers --- */

static cudaError_t softmax_codes_launch(const pare_cuda_rows *r, cudaStream_t stream)
{
    if (r->rows == 0 || r->n == 0) return cudaSuccess;
    auto kernel = softmax_codes_rows;
    if (row_fits_registers(r))
        kernel = r->n <= 128   ? softmax_codes_registers<1>
                 : r->n <= 256 ? softmax_codes_registers<2>
                 : r->n <= 512 ? softmax_codes_registers<4>
                               : softmax_codes_registers<ROW_VECS>;
    PARE_LAUNCH_DEPENDENT(kernel, rows_grid(r->rows), dim3(WARPS * 32), 0, stream, *r);
    return cudaGetLastError();
}

/* Softmax (13) or LogSoftmax (13), the maximum subtracted. */
static cudaError_t softmax_launch(const pare_cuda_rows *r, bool log_form, cudaStream_t stream)
{
    if (r->rows == 0 || r->n == 0) return cudaSuccess;
    auto kernel = softmax_rows;
    if (row_fits_registers(r))
        kernel = r->n <= 128   ? softmax_registers<1>
                 : r->n <= 256 ? softmax_registers<2>
                 : r->n <= 512 ? softmax_registers<4>
                               : softmax_registers<ROW_VECS>;
    PARE_LAUNCH_DEPENDENT(kernel, rows_grid(r->rows), dim3(WARPS * 32), 0, stream, *r, log_form);
    return cudaGetLastError();
}

/* r: x is the softmax's result, y its input's gradient; dy: in the same order. */
static cudaError_t softmax_grad_launch(const pare_cuda_rows *r, const void *dy, bool log_form,
                                       cudaStream_t stream)
{
    if (r->rows == 0 || r->n == 0) return cudaSuccess;
    SIMT_LAUNCH(softmax_grad_rows, rows_grid(r->rows), dim3(WARPS * 32), 0, stream, *r, dy,
                log_form);
    return cudaGetLastError();
}

/* --- Softmax, LogSoftmax --- */

/* The rows of x along an axis; false unless all axes before it are one stride apart and all after
   it are together. */
static bool rows_along(const pare_view *x, int axis, pare_cuda_rows *out)
{
    int64_t inner = 1;
    for (int i = x->rank - 1; i > axis; i--) {
        if (x->dim[i] != 1 && x->stride[i] != inner) return false;
        inner *= x->dim[i];
    }
    int64_t before = 0, rows = inner;
    for (int i = axis - 1; i >= 0; i--) {
        if (x->dim[i] == 1) continue;
        if (!before)
            out->outer_step = before = x->stride[i];
        else if (x->stride[i] != before)
            return false;
        before *= x->dim[i];
        rows *= x->dim[i];
    }
    out->rows = rows;
    out->n = x->dim[axis];
    out->step = x->stride[axis];
    out->inner = inner;
    return true;
}

static pare_status axis_read(const pare_prep *p, int *axis)
{
    return pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->in[0].rank, axis);
}

static bool softmax_can(const pare_prep *p)
{
    int axis;
    pare_cuda_rows r = {0};
    return pare_cuda_can_float(p, 1) && p->in[0].rank > 0 && axis_read(p, &axis) == PARE_OK &&
           pare_view_same_order(&p->in[0], &p->out[0]) && rows_along(&p->in[0], axis, &r);
}

static pare_status softmax_prepare(pare_prep *p)
{
    int axis;
    pare_cuda_rows *r = (pare_cuda_rows *)pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    PARE_TRY(axis_read(p, &axis));
    (void)rows_along(&p->in[0], axis, r);
    r->dtype = p->in[0].dtype;
    p->state = r;
    return PARE_OK;
}

static pare_status softmax_run(const pare_call *c)
{
    pare_cuda_rows r = *(const pare_cuda_rows *)c->state;
    r.x = c->in[0].data;
    r.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, softmax_launch, &r, !strcmp(c->node->op_type, "LogSoftmax"));
}

static const pare_kernel cuda_softmax = {.name = "cuda_softmax",
                                         .can = softmax_can,
                                         .prepare = softmax_prepare,
                                         .run = softmax_run,
                                         .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_softmax[] = {&cuda_softmax, NULL};

/* --- QSoftmax: along the last axis --- */

static bool q_softmax_can(const pare_prep *p)
{
    pare_cuda_rows r = {0};
    return pare_cuda_can_float(p, 1) && p->in[0].rank > 0 && rows_can_quantize(p) &&
           pare_view_same_order(&p->in[0], &p->out[0]) &&
           rows_along(&p->in[0], p->in[0].rank - 1, &r);
}

static pare_status q_softmax_prepare(pare_prep *p)
{
    pare_cuda_rows *r = (pare_cuda_rows *)pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    (void)rows_along(&p->in[0], p->in[0].rank - 1, r);
    r->dtype = p->in[0].dtype;
    p->state = r;
    return rows_quantize(p, r);
}

static pare_status q_softmax_run(const pare_call *c)
{
    pare_cuda_rows r = *(const pare_cuda_rows *)c->state;
    r.x = c->in[0].data;
    r.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, softmax_codes_launch, &r);
}

static const pare_kernel cuda_q_softmax = {.name = "cuda_q_softmax",
                                           .can = q_softmax_can,
                                           .prepare = q_softmax_prepare,
                                           .run = q_softmax_run};
const pare_kernel *const pare_cuda_q_softmax[] = {&cuda_q_softmax, NULL};

/* --- SoftmaxGrad --- */

static bool grad_can(const pare_prep *p)
{
    int axis;
    pare_cuda_rows r = {0};
    return pare_cuda_can_float(p, 2) && p->out[0].rank > 0 &&
           pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->out[0].rank, &axis) ==
               PARE_OK &&
           pare_view_same_order(&p->in[0], &p->out[0]) &&
           pare_view_same_order(&p->in[1], &p->out[0]) && rows_along(&p->out[0], axis, &r);
}

static pare_status grad_prepare(pare_prep *p)
{
    int axis;
    pare_cuda_rows *r = (pare_cuda_rows *)pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->out[0].rank, &axis));
    (void)rows_along(&p->out[0], axis, r);
    r->dtype = p->out[0].dtype;
    p->state = r;
    return PARE_OK;
}

static pare_status grad_run(const pare_call *c)
{
    pare_cuda_rows r = *(const pare_cuda_rows *)c->state;
    r.x = c->in[1].data;
    r.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, softmax_grad_launch, &r, c->in[0].data,
                            pare_node_int(c->node, "log", 0) != 0);
}

static const pare_kernel cuda_softmax_grad = {
    .name = "cuda_softmax_grad", .can = grad_can, .prepare = grad_prepare, .run = grad_run};
const pare_kernel *const pare_cuda_softmax_grad[] = {&cuda_softmax_grad, NULL};
