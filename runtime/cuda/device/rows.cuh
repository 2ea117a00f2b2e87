/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of whole rows share: the rows, and which warp has which. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_ROWS_CUH
#define PARE_RUNTIME_CUDA_DEVICE_ROWS_CUH

#include "runtime/cuda/device/quantize.cuh"
#include "runtime/ops/fused.h"
#include "runtime/ops/kernel.h"

#include <float.h>

enum { WARPS = 4, ROW_VECS = 8 /* vectors of four that a lane keeps of a row */ };

/* Rows of n elements, `step` elements apart inside a row; row r starts at r / inner * outer_step +
   r % inner (in and out alike). f32, f16 or bf16, computed in float. */
typedef struct pare_cuda_rows {
    const void *x;
    void *y;
    int64_t rows, n, step, inner, outer_step;
    pare_dtype dtype;
    pare_dtype to; /* s8, u8: y has codes of scale y_scale and zero point y_zero; none: dtype */
    float y_scale, y_inverse, y_zero; /* y_inverse: 1 / y_scale */
} pare_cuda_rows;

/* The code of a result that is rounded to the rows' type before, as a float. */
SIMT_INLINE float row_code(const pare_cuda_rows &r, float v)
{
    if (r.dtype == PARE_f16) v = __half2float(__float2half_rn(v));
    if (r.dtype == PARE_bf16) v = __bfloat162float(__float2bfloat16_rn(v));
    const code_limits l = code_limits_of(r.to);
    float q = rintf(quotient_of(v, r.y_scale, r.y_inverse)) + r.y_zero;
    q = q > l.low ? q : l.low;
    return q < l.high ? q : l.high;
}

/* Stores a result at y[at]. */
SIMT_INLINE void row_number_store(const pare_cuda_rows &r, int64_t at, float v)
{
    if (r.to)
        bits_store(1, static_cast<char *>(r.y) + at, bits_of(r.to, row_code(r, v)));
    else
        pare_number_store(r.y, r.dtype, at, v);
}

SIMT_INLINE int64_t row_start(const pare_cuda_rows &r, int64_t row)
{
    int64_t outer = row / r.inner;
    return outer * r.outer_step + (row - outer * r.inner);
}

/* The warp's row, or -1 after the last: a whole warp then has nothing to do. */
SIMT_INLINE int64_t row_of(int64_t rows)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    return row < rows ? row : -1;
}

/* May a warp keep a row in registers? Its numbers lie together, in vectors of four, no more than it
 * holds. */
static inline bool row_fits_registers(const pare_cuda_rows *r)
{
    const uintptr_t both = (uintptr_t)r->x | (uintptr_t)r->y;
    return r->step == 1 && r->inner == 1 && r->n % 4 == 0 && r->outer_step % 4 == 0 &&
           r->n <= 32 * 4 * ROW_VECS && both % 16 == 0;
}

/* Where a lane's g-th vector begins. */
SIMT_INLINE int vec_start(int g) { return (g * 32 + ((int)threadIdx.x & 31)) * 4; }

/* `outside` where the row has no more. VECS: that a lane keeps of it. */
template <int VECS>
SIMT_INLINE void row_load(const pare_cuda_rows &r, int64_t at, float outside, float v[VECS][4])
{
    PARE_UNROLL for (int g = 0; g < VECS; g++)
    {
        PARE_UNROLL PARE_VEC4 v[g][k] = outside;
        if (vec_start(g) < r.n) vec_load_floats<4>(r.x, r.dtype, at + vec_start(g), 1, v[g]);
    }
}

template <int VECS>
SIMT_INLINE void row_store(const pare_cuda_rows &r, int64_t at, float v[VECS][4])
{
    const pare_dtype type = r.to ? r.to : r.dtype;
    PARE_UNROLL for (int g = 0; g < VECS; g++) if (vec_start(g) < r.n)
    {
        if (r.to) PARE_UNROLL PARE_VEC4 v[g][k] = row_code(r, v[g][k]);
        vec4_store(type, static_cast<char *>(r.y), at + vec_start(g), v[g], 4, true);
    }
}

/* Rows of floats become rows of the node's codes; QSoftmax, QLayerNormalization. */
static inline pare_status rows_quantize(const pare_prep *p, pare_cuda_rows *r)
{
    pare_quant_args q;
    PARE_TRY(pare_quant_read(p->node, &q));
    r->to = q.to;
    r->y_scale = q.y_scale, r->y_inverse = 1 / q.y_scale, r->y_zero = (float)q.y_zero;
    return PARE_OK;
}

/* Has the node a scale that rows can be quantized by? */
static inline bool rows_can_quantize(const pare_prep *p)
{
    return pare_type_is_int8(p->out[0].dtype) && pare_node_float(p->node, "y_scale", 1) >= FLT_MIN;
}

static inline dim3 rows_grid(int64_t rows)
{
    return dim3(pare_cuda_blocks((rows + WARPS - 1) / WARPS));
}

#endif
