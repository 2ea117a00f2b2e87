/* SPDX-License-Identifier: Apache-2.0 */
/* Products on tensor cores whose X is copied by chunks, matrices and implicit convolutions alike: a
   kernel for each tile, way to find rows, and common epilogue. */
#ifndef PARE_RUNTIME_CUDA_GEMM_GEMM_TILES_CUH
#define PARE_RUNTIME_CUDA_GEMM_GEMM_TILES_CUH

#include "runtime/cuda/gemm/epilogue.cuh"

template <int KIND, typename T, template <typename> class ROWS, int END>
static __global__ void __launch_bounds__(T::THREADS, T::BLOCKS)
    gemm_tile(pare_cuda_gemm_args p, tile_clamp clamp)
{
    SIMT_DYN_SHARED(uint4, shared);
    const int64_t m0 = (int64_t)blockIdx.x * T::BM;
    const int n0 = (int)blockIdx.y * T::BN;
    const int batch = END == EPILOGUE_PARTIAL ? (int)blockIdx.z / p.splits : (int)blockIdx.z;
    const int split = END == EPILOGUE_PARTIAL ? (int)blockIdx.z - batch * p.splits : 0;
    const operands o = operands_of(p, batch);
    accumulators<KIND, T> sums;
    tile_mainloop<KIND, T, ROWS>(sums, p, o, shared, split);
    char *room = reinterpret_cast<char *>(shared);
    if constexpr (END == EPILOGUE_PARTIAL)
        partial_finish<KIND, T>(p, sums, batch, split, m0, n0);
    else if constexpr (END == EPILOGUE_ANY)
        any_finish<KIND, T>(p, o, sums, room, m0, n0);
    else
        clamp_finish<KIND, T, END == EPILOGUE_CLAMP_RESIDUAL>(p, o, clamp, sums, room, m0, n0);
}

/* --- launchers --- */

static inline float between(float v, float low, float high)
{
    return v < low ? low : v > high ? high : v;
}

/* Bounds of what an integer epilogue stores, after none, relu or clip. */
static inline tile_clamp integer_clamp(const pare_epilogue &e)
{
    tile_clamp l = {e.low, e.high, 8388608.0f + (float)e.z_zero, 0};
    if (e.act.kind == PARE_ACT_RELU) l.low = between(e.y_zero, e.low, e.high);
    if (e.act.kind == PARE_ACT_CLIP) {
        l.high = between(rintf(e.act.beta + e.y_zero), e.low, e.high);
        l.low = between(rintf(e.act.alpha + e.y_zero), e.low, l.high);
    }
    if (e.z_type == PARE_s8) l.base += 128, l.flip = 0x8080;
    return l;
}

static inline tile_clamp float_clamp(const pare_act &act)
{
    const float none = __builtin_inff();
    tile_clamp l = {-none, none, 0, 0};
    if (act.kind == PARE_ACT_RELU) l.low = 0;
    if (act.kind == PARE_ACT_CLIP) l.low = act.alpha, l.high = act.beta;
    return l;
}

/* Is it one of the common epilogues? */
static inline tile_epilogue epilogue_of(const pare_cuda_gemm_args &p)
{
    const pare_epilogue &e = p.epilogue;
    const bool integer = pare_type_is_int8(p.x_type);
    const bool clip = e.act.kind == PARE_ACT_CLIP && e.act.alpha <= e.act.beta;
    const bool bounds = clip || e.act.kind == PARE_ACT_NONE || e.act.kind == PARE_ACT_RELU;
    if (p.splits > 1) return EPILOGUE_PARTIAL;
    if (!bounds || p.x_side || p.bias_row || p.alpha != 1) return EPILOGUE_ANY;
    if (integer ? e.real || !pare_type_is_int8(p.y_type) : p.y_type != p.x_type)
        return EPILOGUE_ANY;
    if (!p.z) return EPILOGUE_CLAMP;
    if (integer ? pare_type_is_int8(e.z_type) : e.z_type == p.y_type)
        return EPILOGUE_CLAMP_RESIDUAL;
    return EPILOGUE_ANY;
}

template <int KIND, typename T, template <typename> class ROWS, int END>
static cudaError_t tile_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const int bytes = STAGES * T::STAGE * (int)sizeof(uint4);
    auto kernel = gemm_tile<KIND, T, ROWS, END>;
    dim3 grid((unsigned)((p->rows + T::BM - 1) / T::BM),
              (unsigned)((p->columns + T::BN - 1) / T::BN), (unsigned)(p->batches * p->splits));
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, bytes);
    if (error != cudaSuccess) return error;
    SIMT_LAUNCH(kernel, grid, dim3(T::THREADS), (size_t)bytes, stream, *p,
                pare_type_is_int8(p->x_type) ? integer_clamp(p->epilogue)
                                             : float_clamp(p->epilogue.act));
    return cudaGetLastError();
}

template <int KIND, typename T, template <typename> class ROWS>
static cudaError_t epilogue_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    switch (epilogue_of(*p)) {
    case EPILOGUE_CLAMP: return tile_launch<KIND, T, ROWS, EPILOGUE_CLAMP>(p, stream);
    case EPILOGUE_CLAMP_RESIDUAL:
        return tile_launch<KIND, T, ROWS, EPILOGUE_CLAMP_RESIDUAL>(p, stream);
    default: return tile_launch<KIND, T, ROWS, EPILOGUE_ANY>(p, stream);
    }
}

/* Depth is split where tiles are few: into the smallest. */
template <int KIND, template <typename> class ROWS>
static cudaError_t rows_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->splits > 1) return tile_launch<KIND, tile_64x64, ROWS, EPILOGUE_PARTIAL>(p, stream);
    switch (p->tile) {
    case PARE_CUDA_128X128: return epilogue_launch<KIND, tile_128x128, ROWS>(p, stream);
    case PARE_CUDA_128X64: return epilogue_launch<KIND, tile_128x64, ROWS>(p, stream);
    default: return epilogue_launch<KIND, tile_64x64, ROWS>(p, stream);
    }
}

template <int KIND>
static cudaError_t chunks_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    return p->picture ? rows_launch<KIND, im2col_iterator>(p, stream)
                      : rows_launch<KIND, matrix_iterator>(p, stream);
}

#endif
