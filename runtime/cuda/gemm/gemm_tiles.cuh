/* SPDX-License-Identifier: Apache-2.0 */
/* Products on tensor cores whose X is copied by chunks, matrices and implicit convolutions alike: a
   kernel for each tile, way to find rows, and common epilogue. */
#ifndef PARE_RUNTIME_CUDA_GEMM_GEMM_TILES_CUH
#define PARE_RUNTIME_CUDA_GEMM_GEMM_TILES_CUH

#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/gemm/epilogue_f8.cuh"

template <int KIND, typename T, template <typename> class ROWS, int END>
static __global__ void __launch_bounds__(T::THREADS, T::BLOCKS)
    gemm_tile(pare_cuda_gemm_args p, tile_clamp clamp)
{
    typedef typename kind_of<KIND>::sum sum;
    enum {
        BYTES = sizeof(typename kind_of<KIND>::element),
        SPLITS = END == EPILOGUE_PARTIAL,
        REGISTERS = end_of<END>::REGISTERS
    };
    SIMT_DYN_SHARED(uint4, shared);
    const tile_place t = tile_find<T>(p, SPLITS);
    const operands o = operands_of(p, t.batch, BYTES, REGISTERS ? (int)BYTES : bytes_of(p.y_type),
                                   REGISTERS ? (int)BYTES : bytes_of(p.epilogue.z_type));
    const k_range part = k_range_of(p, BYTES, t.split, SPLITS);
    const int column = (int)threadIdx.x;
    simt_dependency_wait();
    column_constants mine = {0, 0, 0};
    if (REGISTERS) mine = constants_read<sum>(p, o, t.n0 + column, column < t.columns);
    char *room = reinterpret_cast<char *>(shared);
    bool brought = false;
    if (end_of<END>::RESIDUAL && clamp.early) {
        room += STAGES * T::STAGE * sizeof(uint4);
        brought = tile_is_whole<T, BYTES>(p, t);
        if (brought) tile_copy<T, BYTES>(p, o.z, room, t);
    }
    accumulators<KIND, T> sums;
    tile_mainloop<KIND, T, ROWS, REGISTERS && BYTES == 1>(sums, p, o, shared, t, part,
                                                          (int)(0u - (unsigned)mine.shift));
    simt_dependents_launch();
    if constexpr (END == EPILOGUE_PARTIAL)
        partial_finish<KIND, T>(p, sums, t.batch, t.split, t.m0, t.n0);
    else if constexpr (kind_is_f8<KIND>)
        f8_finish<KIND, T>(p, o, sums, room, t.m0, t.n0);
    else if constexpr (END == EPILOGUE_ANY)
        any_finish<KIND, T>(p, o, sums, room, t.m0, t.n0);
    else
        clamp_finish<KIND, T, END>(p, o, clamp, sums, mine, room, brought, t);
}

/* --- launchers --- */

static inline float between(float v, float low, float high)
{
    return v < low ? low : v > high ? high : v;
}

/* Bounds of what an integer epilogue stores, after none, relu or clip. */
static inline tile_clamp integer_clamp(const pare_epilogue &e)
{
    tile_clamp l = {
        e.low, e.high, 8388608.0f + (float)e.z_zero, 0, 0, 0, 0x7654, 0x4b000000, {0, 0}, 0, false};
    if (e.act.kind == PARE_ACT_RELU) l.low = between(e.y_zero, e.low, e.high);
    if (e.act.kind == PARE_ACT_CLIP) {
        l.high = between(rintf(e.act.beta + e.y_zero), e.low, e.high);
        l.low = between(rintf(e.act.alpha + e.y_zero), e.low, l.high);
    }
    l.zero = e.y_zero * 0x1p-24f;
    l.bounds[0] = 0x10001u * (unsigned)(1536 + (int)l.low);
    l.bounds[1] = 0x10001u * (unsigned)(1536 + (int)l.high);
    if (e.z_type == PARE_s8) l.base += 128, l.flip = 0x80808080;
    if (e.to == PARE_s8 && l.low >= 0) l.pick = 0xba98;
    if (e.to == PARE_s8 && l.low < 0) l.lift = 0x1p-142f, l.turn = 0x80808080;
    return l;
}

/* Do integers need no zero point and bounds behind their scale? */
static inline bool integers_are_plain(const pare_cuda_gemm_args &p)
{
    const tile_clamp l = integer_clamp(p.epilogue);
    const bool all = l.low == p.epilogue.low || (p.epilogue.to == PARE_s8 && l.low == 0);
    return p.epilogue.y_zero == 0 && all && l.high == p.epilogue.high;
}

static inline tile_clamp float_clamp(const pare_act &act)
{
    const float none = __builtin_inff();
    tile_clamp l = {-none, none, 0, 0, 0, 0, 0, 0, {0, 0}, 0, false};
    if (act.kind == PARE_ACT_RELU) l.low = 0;
    if (act.kind == PARE_ACT_CLIP) l.low = act.alpha, l.high = act.beta;
    return l;
}

/* The same behind integers in real units, and how codes of 8 bits that are added become floats. */
static inline tile_clamp real_clamp(const pare_epilogue &e)
{
    const tile_clamp codes = integer_clamp(e);
    tile_clamp l = float_clamp(e.act);
    l.base = codes.base, l.flip = codes.flip, l.exponent = codes.exponent;
    return l;
}

/* Are these bounds of what it is given? */
static inline bool act_is_bounds(const pare_act &act)
{
    return (act.kind == PARE_ACT_CLIP && act.alpha <= act.beta) || act.kind == PARE_ACT_NONE ||
           act.kind == PARE_ACT_RELU;
}

/* Is it one of the common epilogues? */
static inline tile_epilogue epilogue_of(const pare_cuda_gemm_args &p)
{
    const pare_epilogue &e = p.epilogue;
    const bool integer = pare_type_is_int8(p.x_type);
    if (p.splits > 1) return EPILOGUE_PARTIAL;
    if (!act_is_bounds(e.act) || p.x_side || p.bias_row || p.alpha != 1) return EPILOGUE_ANY;
    if (integer ? e.real || !pare_type_is_int8(p.y_type) : p.y_type != p.x_type)
        return EPILOGUE_ANY;
    const bool plain = !integer || integers_are_plain(p);
    if (!p.z) return plain ? EPILOGUE_CLAMP : EPILOGUE_BOUNDS;
    if (integer ? pare_type_is_int8(e.z_type) : e.z_type == p.y_type)
        return plain ? EPILOGUE_CLAMP_RESIDUAL : EPILOGUE_BOUNDS_RESIDUAL;
    return EPILOGUE_ANY;
}

/* Has a processor shared memory for so many blocks? CUDA takes 1 KiB of each. */
static inline bool shared_holds(int blocks, int bytes)
{
    int device, most = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) ==
               cudaSuccess &&
           blocks * (bytes + 1024) <= most;
}

template <int KIND, typename T, template <typename> class ROWS, int END>
static cudaError_t tile_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    tile_clamp clamp = BYTES == 1 ? integer_clamp(p->epilogue) : float_clamp(p->epilogue.act);
    int bytes = STAGES * T::STAGE * (int)sizeof(uint4);
    clamp.early = end_of<END>::RESIDUAL && shared_holds(T::BLOCKS, bytes + tile_room<T, BYTES>());
    if (clamp.early) bytes += tile_room<T, BYTES>();
    auto kernel = gemm_tile<KIND, T, ROWS, END>;
    dim3 grid(pare_cuda_blocks((p->rows + T::BM - 1) / T::BM),
              pare_cuda_blocks_beside((p->columns + T::BN - 1) / T::BN),
              pare_cuda_blocks_beside((int64_t)p->batches * p->splits));
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, bytes);
    if (error != cudaSuccess) return error;
    PARE_LAUNCH_DEPENDENT(kernel, grid, dim3(T::THREADS), (size_t)bytes, stream, *p, clamp);
    return cudaGetLastError();
}

template <int KIND, typename T, template <typename> class ROWS>
static cudaError_t epilogue_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if constexpr (kind_is_f8<KIND>) {
        return tile_launch<KIND, T, ROWS, EPILOGUE_ANY>(p, stream);
    } else {
        const tile_epilogue end = epilogue_of(*p);
        if constexpr (sizeof(typename kind_of<KIND>::element) == 1) {
            if (end == EPILOGUE_BOUNDS)
                return tile_launch<KIND, T, ROWS, EPILOGUE_BOUNDS>(p, stream);
            if (end == EPILOGUE_BOUNDS_RESIDUAL)
                return tile_launch<KIND, T, ROWS, EPILOGUE_BOUNDS_RESIDUAL>(p, stream);
        }
        switch (end) {
        case EPILOGUE_CLAMP: return tile_launch<KIND, T, ROWS, EPILOGUE_CLAMP>(p, stream);
        case EPILOGUE_CLAMP_RESIDUAL:
            return tile_launch<KIND, T, ROWS, EPILOGUE_CLAMP_RESIDUAL>(p, stream);
        default: return tile_launch<KIND, T, ROWS, EPILOGUE_ANY>(p, stream);
        }
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
