/* SPDX-License-Identifier: Apache-2.0 */
/* y = act(y) of floats; y = round(act((sum - shift + bias) * scale + residual)) of integers, as
   ops/epilogue.h defines it. A thread keeps to one group of columns, whose constants stay in
   registers, and goes down the rows. Bytes an element: f16 2 read and 2 written; s8 4 and 1, and 1
   of the residual. */
#include "runtime/cuda/device/vec.cuh"
#include "runtime/cuda/gemm/blas_epilogue.h"

enum { CHUNK = 16 };

/* The first row of a thread, its group of columns, and how many rows on its next one is. Threads
   that are left over have none: their row is behind the last. */
typedef struct lane_place {
    int64_t row, step;
    int group;
} lane_place;

SIMT_INLINE lane_place lane_place_of(int groups, int64_t rows)
{
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x, row = at / (unsigned)groups;
    const unsigned step = gridDim.x * blockDim.x / (unsigned)groups;
    return {row < step ? row : rows, step, (int)(at - row * (unsigned)groups)};
}

static dim3 lanes_grid(int groups, int64_t rows)
{
    dim3 grid = pare_cuda_grid(rows * groups);
    const unsigned least = ((unsigned)groups + PARE_CUDA_BLOCK - 1) / PARE_CUDA_BLOCK;
    return grid.x < least ? dim3(least) : grid;
}

/* --- floats --- */

template <typename T, int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) act_floats(pare_blas_epilogue e)
{
    const lane_place p = lane_place_of(e.columns / W, e.rows);
    T *y = static_cast<T *>(e.y);
    for (int64_t row = p.row; row < e.rows; row += p.step) {
        const int64_t at = row * e.y_row + (int64_t)p.group * W;
        T narrow[W];
        float v[W];
        vec_load<W>(y, at, 1, narrow);
        PARE_UNROLL for (int k = 0; k < W; k++) v[k] = pare_to_f32(narrow[k]);
        vec_act<W>(e.epilogue.act, v);
        PARE_UNROLL for (int k = 0; k < W; k++) pare_store_f32(&narrow[k], v[k]);
        vec_store<W>(y, at, narrow);
    }
}

/* --- integers --- */

/* Steps of an integer Y where the activation is not curved. */
template <int W, bool CURVED>
SIMT_INLINE void residual_add(const pare_blas_epilogue &e, int64_t at, float v[W])
{
    pare_epilogue unit = e.epilogue;
    if (!CURVED) unit.real = false;
    if (!e.z) return;
    if (unit.z_type == PARE_f32) {
        float z[W];
        vec_load<W>(static_cast<const float *>(e.z), at, 1, z);
        PARE_UNROLL for (int k = 0; k < W; k++) v[k] = pare_epilogue_residual(&unit, v[k], z, k);
    } else {
        uint8_t z[W];
        vec_load<W>(static_cast<const uint8_t *>(e.z), at, 1, z);
        PARE_UNROLL for (int k = 0; k < W; k++) v[k] = pare_epilogue_residual(&unit, v[k], z, k);
    }
}

/* none, relu, clip and leaky_relu, or any. */
template <int W, bool CURVED> SIMT_INLINE void steps_act(const pare_act &act, float v[W])
{
    if (CURVED) {
        vec_act<W>(act, v);
        return;
    }
#define ACT(is)                                                                                    \
    if (act.kind == is) PARE_UNROLL for (int k = 0; k < W; k++) v[k] = pare_act_of(is, &act, v[k]);
    ACT(PARE_ACT_RELU)
    ACT(PARE_ACT_CLIP)
    ACT(PARE_ACT_LEAKY_RELU)
#undef ACT
}

/* Below 2^22, so that the lowest bits of its sum with 1.5 * 2^23 are the rounded number. */
SIMT_INLINE uint8_t byte_of(const pare_epilogue &e, float v)
{
    return (uint8_t)__float_as_uint(fminf(fmaxf(v + e.y_zero, e.low), e.high) + 12582912.0f);
}

template <int W, bool CURVED>
SIMT_INLINE void row_store(const pare_blas_epilogue &e, int64_t at, const float v[W])
{
    uint8_t bytes[W];
    if (CURVED && e.y_type == PARE_f32) {
        vec_store<W>(static_cast<float *>(e.y), at, v);
        return;
    }
    PARE_UNROLL for (int k = 0; k < W; k++) bytes[k] =
        CURVED ? (uint8_t)(int)pare_epilogue_round(&e.epilogue, v[k]) : byte_of(e.epilogue, v[k]);
    vec_store<W>(static_cast<uint8_t *>(e.y), at, bytes);
}

/* CURVED: any activation and type of Y. Else: none, relu, clip or leaky_relu, and 8 bits. */
template <int W, bool CURVED>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) requantize_sums(pare_blas_epilogue e)
{
    const lane_place p = lane_place_of(e.columns / W, e.rows);
    const int64_t column = (int64_t)p.group * W;
    float scale[W], bias[W];
    int shift[W];
    vec_load<W>(e.scale, column, 1, scale);
    vec_load<W>(e.bias, column, 1, bias);
    vec_load<W>(e.shift, column, 1, shift);
    for (int64_t row = p.row; row < e.rows; row += p.step) {
        int sum[W];
        float v[W];
        vec_load<W>(e.sums, row * e.columns + column, 1, sum);
        PARE_UNROLL for (int k = 0; k < W; k++) v[k] =
            ((float)(int)((unsigned)sum[k] - (unsigned)shift[k]) + bias[k]) * scale[k];
        residual_add<W, CURVED>(e, row * e.y_row + column, v);
        steps_act<W, CURVED>(e.epilogue.act, v);
        row_store<W, CURVED>(e, row * e.y_row + column, v);
    }
}

/* --- signs --- */

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) signs_turn(pare_blas_signs s)
{
    const int chunks = s.depth / CHUNK;
    const lane_place p = lane_place_of(chunks, s.rows);
    const char *from = static_cast<const char *>(s.from) + (int64_t)p.group * CHUNK;
    char *to = static_cast<char *>(s.to) + (int64_t)p.group * CHUNK;
    for (int64_t row = p.row; row < s.rows; row += p.step) {
        uint4 v = *reinterpret_cast<const uint4 *>(from + row * s.from_row);
        v.x ^= 0x80808080u, v.y ^= 0x80808080u, v.z ^= 0x80808080u, v.w ^= 0x80808080u;
        *reinterpret_cast<uint4 *>(to + row * s.depth) = v;
    }
}

/* --- launchers --- */

static int bytes_of_type(pare_dtype t) { return t == PARE_f32 ? 4 : pare_type_is_int8(t) ? 1 : 2; }

extern "C" bool pare_blas_epilogue_fits(pare_dtype y_type, int64_t columns, int64_t y_row)
{
    const int64_t width = CHUNK / bytes_of_type(y_type);
    return columns % width == 0 && y_row % width == 0;
}

template <typename T, int W>
static cudaError_t act_launch(const pare_blas_epilogue *e, cudaStream_t stream)
{
    SIMT_LAUNCH((act_floats<T, W>), lanes_grid(e->columns / W, e->rows), dim3(PARE_CUDA_BLOCK), 0,
                stream, *e);
    return cudaGetLastError();
}

template <int W, bool CURVED>
static cudaError_t sums_launch(const pare_blas_epilogue *e, cudaStream_t stream)
{
    SIMT_LAUNCH((requantize_sums<W, CURVED>), lanes_grid(e->columns / W, e->rows),
                dim3(PARE_CUDA_BLOCK), 0, stream, *e);
    return cudaGetLastError();
}

extern "C" cudaError_t pare_blas_epilogue_launch(const pare_blas_epilogue *e, cudaStream_t stream)
{
    if (e->rows == 0 || e->columns == 0) return cudaSuccess;
    if (e->sums && pare_type_is_int8(e->y_type) && !pare_act_is_curved(&e->epilogue.act))
        return sums_launch<CHUNK, false>(e, stream);
    if (e->sums) return sums_launch<4, true>(e, stream);
    switch (e->y_type) {
    case PARE_f16: return act_launch<__half, 8>(e, stream);
    case PARE_bf16: return act_launch<__nv_bfloat16, 8>(e, stream);
    default: return act_launch<float, 4>(e, stream);
    }
}

extern "C" cudaError_t pare_blas_signs_launch(const pare_blas_signs *s, cudaStream_t stream)
{
    if (s->rows == 0 || s->depth == 0) return cudaSuccess;
    SIMT_LAUNCH(signs_turn, lanes_grid(s->depth / CHUNK, s->rows), dim3(PARE_CUDA_BLOCK), 0, stream,
                *s);
    return cudaGetLastError();
}
