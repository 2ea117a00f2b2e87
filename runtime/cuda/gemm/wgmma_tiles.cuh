/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of products on compute capability 9.0, of 8-bit integers, FP8 and halves. A block has
   three groups of four warps, or five, and stays for many tiles: a thread of the last fills stages
   by tensor maps, a window's patches by im2col maps, each other group multiplies its rows of a
   tile, finishes their sums where they are, and stores Y by tensor maps through shared
   memory, in which a residual was brought the same way. To stages and maps all types are bytes.

   For files that are compiled for sm_90a only. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WGMMA_TILES_CUH
#define PARE_RUNTIME_CUDA_GEMM_WGMMA_TILES_CUH

#include "runtime/cuda/device/quantize.cuh"
#include "runtime/cuda/device/simt_sm90.cuh"
#include "runtime/cuda/gemm/gemm_tiles.cuh"
#include "runtime/cuda/gemm/wgmma.h"
#include "runtime/cuda/gemm/wgmma_maps.cuh"
#include "runtime/cuda/gemm/wgmma_f8.cuh"

/* Rows of a band of tiles. */
enum { BAND_ROWS = 2048 };

/* What an instance is. KIND: X's type. TO: Y's, s8 for both integers of 8 bits. GELU: the erf form,
   else bounds. Numbers of Y's type are brought to where Y will be, bytes behind it. Each group has
   MI x 64 rows of a tile of BN columns; KB: bytes of depth a stage has. */
template <int KIND_, int TO_, bool GELU_, int RESIDUAL_, bool PICTURE_, int MI_, int BN_, int KB_,
          int STAGES_, int BLOCKS_, int GROUPS_ = 2>
struct variant {
    typedef typename kind_of<KIND_>::sum sum;
    enum {
        KIND = KIND_,
        TO = TO_,
        GELU = GELU_,
        RESIDUAL = RESIDUAL_,
        PICTURE = PICTURE_,
        MI = MI_,
        BN = BN_,
        KB = KB_,
        DEEP = STAGES_, /* stages */
        BLOCKS = BLOCKS_,
        GROUPS = GROUPS_, /* that multiply */
        F8 = kind_is_f8<KIND>,
        INTEGER = bytes_of_type(KIND) == 1 && !F8,
        BYTES_BESIDE = RESIDUAL == RESIDUAL_BYTES,
        END = !INTEGER || GELU || TO != PARE_s8 ? EPILOGUE_ANY
              : RESIDUAL != RESIDUAL_NONE       ? EPILOGUE_BOUNDS_RESIDUAL
                                                : EPILOGUE_BOUNDS,
        X_SIZE = bytes_of_type(KIND), /* bytes of a number */
        Y_SIZE = bytes_of_type(TO),
        GROUP_ROWS = MI * 64,
        BM = GROUPS * GROUP_ROWS,
        X_BYTES = BM * KB,
        STAGE = X_BYTES + BN * KB,
        SLICE =
            BN * Y_SIZE % 128 == 0 ? 128 : 64, /* bytes of a row that one copy has, of 64 rows */
        BOX_ROWS = 64,
        SLICES = BN * Y_SIZE / SLICE,
        SLICE_BYTES = BOX_ROWS * SLICE,
        OUT = MI * SLICES * SLICE_BYTES,    /* of a group's part of Y */
        Z_SLICE = BN % 128 == 0 ? 128 : 64, /* the same of a residual of bytes */
        Z_SLICES = BN / Z_SLICE,
        Z_SLICE_BYTES = 64 * Z_SLICE,
        Z_ROWS = Z_SLICES * Z_SLICE_BYTES, /* of 64 rows */
        Z_OUT = RESIDUAL == RESIDUAL_BYTES ? MI * Z_ROWS : 0,
        BARRIERS = DEEP * STAGE + GROUPS * (OUT + Z_OUT),
        SHARED = BARRIERS + (2 * DEEP + GROUPS) * 8,
        SUM_THREADS = GROUPS * 128,
        THREADS = SUM_THREADS + 128,
        TIGHT = BN == 128 && GROUPS > 2, /* sums leave hardly a register, */
        CROWDED = TIGHT || BN > 128,     /* or few of them */
        AHEAD = TIGHT ? 1 : 2,           /* pairs of instructions that are read at a time */
        REGISTERS_FILL = BLOCKS * GROUPS == 2 ? 40 : 24,
        REGISTERS_SUM = GROUPS > 2    ? 112
                        : BLOCKS == 1 ? 232
                                      : 104
    };
    static_assert(STAGE % 1024 == 0 && SLICE_BYTES % 1024 == 0, "swizzles are of 1024 bytes");
    static_assert(SHARED <= 227 * 1024, "shared memory of a block");
    static_assert((REGISTERS_SUM * GROUPS + REGISTERS_FILL) * 128 <=
                      65536 / (THREADS * BLOCKS) / 8 * 8 * THREADS,
                  "registers that a block was given");
    static_assert(SHARED * BLOCKS + BLOCKS * 1024 <= 228 * 1024, "shared memory of a processor");
};

/* How tiles lie in Y, and steps of KB bytes in depth. */
typedef struct wgmma_walk {
    int steps, tap_steps; /* of a tile; of a tap */
    int tiles_m, tiles_n;
    pare_cuda_fast_divisor by_whole, by_band,
        by_last;   /* a band's tiles; its rows, the last one's */
    int zero;      /* 0, which the compiler does not know */
    float inverse; /* 1 / Y's scale */
} wgmma_walk;

typedef struct tile_at {
    int m, n;
} tile_at;

/* Within a band of tiles, rows run fastest: X of a band stays in L2 while W passes by. */
SIMT_INLINE tile_at tile_of_index(const wgmma_walk &g, int index)
{
    const int band = fast_divide(index, g.by_whole), in = index - band * g.by_whole.by;
    const int first = band * g.by_band.by;
    const pare_cuda_fast_divisor &rows = first + g.by_band.by > g.tiles_m ? g.by_last : g.by_band;
    const int n = fast_divide(in, rows);
    return {first + in - n * rows.by, n};
}

/* --- one thread fills the stages --- */

template <typename V>
SIMT_INLINE void stages_produce(const pare_cuda_gemm_args &p, const wgmma_walk &g,
                                const CUtensorMap *xm, const CUtensorMap *wm, unsigned shared)
{
    const unsigned full = shared + V::BARRIERS, empty = full + V::DEEP * 8;
    const int tiles = g.tiles_m * g.tiles_n;
    int stage = 0;
    unsigned parity = 1;
    for (int index = (int)blockIdx.x; index < tiles; index += (int)gridDim.x) {
        const tile_at t = tile_of_index(g, index);
        const int m0 = t.m * V::BM, n0 = t.n * V::BN;
        int w = 0, h = 0, image = 0, in_tap = 0, right = 0, down = 0;
        if (V::PICTURE) {
            const int line = fast_divide(m0, p.in.by_width);
            image = fast_divide(line, p.in.by_height);
            w = (m0 - line * p.in.out_width) * p.in.stride[1] - p.in.begin[1];
            h = (line - image * p.in.out_height) * p.in.stride[0] - p.in.begin[0];
        }
        for (int k = 0; k < g.steps; k++) {
            const unsigned bar = full + stage * 8, at = shared + stage * V::STAGE;
            simt_mbar_wait(empty + stage * 8, parity);
            simt_mbar_expect(bar, V::STAGE);
            if (V::PICTURE) {
                simt_tma_load_im2col(at, xm, bar, in_tap * V::KB, w, h, image,
                                     right * p.in.dilation[1], down * p.in.dilation[0]);
                if (++in_tap == g.tap_steps) {
                    in_tap = 0;
                    if (++right == p.in.kernel_width) right = 0, down++;
                }
            } else {
                simt_tma_load(at, xm, bar, k * V::KB, m0);
            }
            simt_tma_load(at + V::X_BYTES, wm, bar, k * V::KB, n0);
            if (++stage == V::DEEP) stage = 0, parity ^= 1;
        }
    }
}

/* --- the other groups multiply --- */

/* Of a group: where its part of Y is. */
typedef struct sum_group {
    bool leads;   /* its first thread, which copies */
    unsigned out; /* shared memory of its part of Y, */
    unsigned z;   /* and of a residual of bytes */
    unsigned z_bar;
} sum_group;

/* Begins to bring the residual, once what was there is stored. */
template <typename V>
SIMT_INLINE void residual_bring(const sum_group &mine, const CUtensorMap *zm, int m0, int n0)
{
    enum {
        BYTES = V::RESIDUAL == (int)RESIDUAL_BYTES,
        SIZE = BYTES ? 1 : V::Y_SIZE,
        SLICE = BYTES ? V::Z_SLICE : V::SLICE,
        SLICES = BYTES ? V::Z_SLICES : V::SLICES
    };
    const unsigned to = BYTES ? mine.z : mine.out;
    simt_tma_store_wait_read();
    simt_mbar_expect(mine.z_bar, BYTES ? V::Z_OUT : V::OUT);
    PARE_UNROLL for (int i = 0; i < V::MI; i++) PARE_UNROLL for (int c = 0; c < SLICES; c++)
        simt_tma_load(to + (i * SLICES + c) * V::BOX_ROWS * SLICE, zm, mine.z_bar,
                      n0 * SIZE + c * SLICE, m0 + i * 64);
}

template <typename V>
SIMT_INLINE void tile_put(const pare_cuda_gemm_args &p, const sum_group &mine,
                          const CUtensorMap *ym, int m0, int n0)
{
    PARE_UNROLL for (int i = 0; i < V::MI; i++) PARE_UNROLL for (int c = 0; c < V::SLICES; c++)
    {
        const int x = n0 * V::Y_SIZE + c * V::SLICE, y = m0 + i * 64;
        if (x < p.columns * V::Y_SIZE && y < p.rows)
            simt_tma_store(ym, mine.out + (i * V::SLICES + c) * V::SLICE_BYTES, x, y);
    }
    simt_tma_store_commit();
}

/* Constants of four columns; halves have a bias alone. */
typedef struct four_constants {
    int shift[4];
    float scale[4], bias[4];
} four_constants;

/* Of integers: constants of the four columns from `column` on, a multiple of 4. INDEX: 64 bits take
   fewer instructions, 32 a register less. */
template <typename INDEX>
SIMT_INLINE const pare_cuda_four_columns *columns_of(const pare_cuda_gemm_args &p, INDEX column)
{
    enum { EACH = sizeof(pare_cuda_four_columns) / 4 }; /* bytes of a column */
    return reinterpret_cast<const pare_cuda_four_columns *>(reinterpret_cast<const char *>(p.four) +
                                                            column * EACH);
}

/* Of the four columns that are `apart`, which is constant, from `first`. */
template <typename V>
SIMT_INLINE four_constants constants_of(const pare_cuda_gemm_args &p, int first, int apart)
{
    four_constants k;
    const int column = min(first + apart, p.columns - 4);
    if constexpr (V::X_SIZE == 1) {
        const pare_cuda_four_columns &of =
            (V::GELU ? columns_of(p, first) : columns_of(p, (int64_t)first))[apart / 4];
        if (V::INTEGER) vec_load<4>(of.shift, 0, 1, k.shift);
        vec_load<4>(of.scale, 0, 1, k.scale);
        vec_load<4>(of.bias, 0, 1, k.bias);
    } else if (p.bias) {
        vec_load<4>(static_cast<const float *>(p.bias), column, 1, k.bias);
    } else {
        PARE_UNROLL for (int i = 0; i < 4; i++) k.bias[i] = -0.0f; /* changes no float */
    }
    return k;
}

SIMT_INLINE int bits_of_sum(int v) { return v; }
SIMT_INLINE int bits_of_sum(float v) { return __float_as_int(v); }

/* Four sums in real units, those of bytes over Y's scale and with its zero point: their bounds are
   their type's. inverse: of Y's scale; z: the codes of a residual of bytes. */
template <typename V>
SIMT_INLINE void four_values(const pare_cuda_gemm_args &p, const tile_clamp &l, float inverse,
                             const typename V::sum sum[4], const four_constants &k, unsigned z,
                             float v[4])
{
    PARE_UNROLL for (int i = 0; i < 4; i++)
    {
        v[i] = (float)sum[i] + k.bias[i];
        if (V::INTEGER) v[i] *= k.scale[i];
        if (V::RESIDUAL == (int)RESIDUAL_BYTES)
            v[i] += (byte_at(z ^ l.flip, i, l.exponent) - l.base) * p.epilogue.z_scale;
        if (V::GELU) v[i] = pare_act_of(PARE_ACT_GELU, NULL, v[i]);
        if (V::TO == (int)PARE_s8)
            v[i] = quotient_of(v[i], p.epilogue.y_scale, inverse) + p.epilogue.y_zero;
    }
}

/* Those of four neighbours, stored at `to`; returns bits of the last. */
template <typename V>
SIMT_INLINE unsigned four_real(const pare_cuda_gemm_args &p, const tile_clamp &l, float inverse,
                               const typename V::sum sum[4], const four_constants &k, unsigned z,
                               char *to)
{
    float v[4];
    four_values<V>(p, l, inverse, sum, k, z, v);
    if constexpr (V::TO == (int)PARE_s8) {
        return *reinterpret_cast<unsigned *>(to) = four_pack<false>(l, v);
    } else {
        floats_finish<V::TO, V::RESIDUAL == (int)RESIDUAL_OF_Y>(l, v, to);
        return __float_as_uint(v[3]);
    }
}

/* Where a lane's four neighbours of two instructions' eight columns are: column and byte in a row
   of a slice, of which multiples of 16 are swizzled. The order of columns is wgmma.h's. */
typedef struct four_place {
    int column, chunk, byte;
} four_place;

template <typename V> SIMT_INLINE four_place lane_place(int lane)
{
    const int l = lane & 3;
    if (V::Y_SIZE == 1) return {l * 4, 0, l * 4};
    if (V::Y_SIZE == 2) return {(l >> 1) * 32 + (l & 1) * 4, (l >> 1) * 64, (l & 1) * 8};
    return {l * 8, l * 32, 0};
}

/* The same of pair q of instructions; byte: of its slice. */
template <typename V> SIMT_INLINE four_place pair_place(int q)
{
    enum { PAIRS = V::SLICE / V::Y_SIZE / 16, APART = 16 / V::Y_SIZE };
    const int slice = q / PAIRS, in = q % PAIRS;
    return {slice * PAIRS * 16 + in * APART, in * 16, slice * V::SLICE_BYTES};
}

/* Where a lane's four bytes of a residual are in its row of a slice, whose chunks of 16 bytes are
   swizzled, too, and those of pair q. */
template <typename V> SIMT_INLINE int lane_residual(int row, const four_place &mine)
{
    const int turn = V::Z_SLICE == 128 ? row & 7 : row >> 1 & 3;
    return row * V::Z_SLICE + ((turn ^ mine.column >> 4) << 4) + (mine.column & 15);
}

template <typename V> SIMT_INLINE unsigned pair_residual(const char *z, int first, int q)
{
    const int column = pair_place<V>(q).column, in = column % V::Z_SLICE;
    const int at = column / V::Z_SLICE * V::Z_SLICE_BYTES + (first ^ (in & ~15)) + (in & 15);
    return *reinterpret_cast<const unsigned *>(z + at);
}

/* Sums of two instructions' eight columns become four neighbours in `out`, the group's part of Y,
   whose chunks of 16 bytes are swizzled as the map of Y has them. Where sums leave few registers,
   what is read for columns waits for those two before them: all at once would not fit. */
template <typename V>
SIMT_INLINE void sums_finish(const pare_cuda_gemm_args &p, const tile_clamp &l, const wgmma_walk &g,
                             const typename V::sum (&acc)[V::MI][V::BN / 2], char *out,
                             const char *residual, int n0)
{
    const int lane = (int)threadIdx.x & 31, row = ((int)threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
    const int turn = V::SLICE == 128 ? row & 7 : row >> 1 & 3;
    const four_place mine = lane_place<V>(lane);
    const int first = row * V::SLICE + ((turn << 4) ^ mine.chunk) + mine.byte;
    const int z_first = lane_residual<V>(row, mine);
    int wait[V::AHEAD] = {0}; /* stay 0 */
    PARE_UNROLL for (int q = 0; q < V::BN / 16; q++)
    {
        const four_place pair = pair_place<V>(q);
        char *to = out + (first ^ pair.chunk) + pair.byte + wait[q % V::AHEAD];
        const four_constants k =
            constants_of<V>(p, n0 + mine.column + wait[q % V::AHEAD], pair.column);
        PARE_UNROLL for (int i = 0; i < V::MI; i++)
            PARE_UNROLL for (int upper = 0; upper < 2; upper++)
        {
            typename V::sum four[4];
            PARE_UNROLL for (int c = 0; c < 4; c++)
            {
                four[c] = acc[i][(q * 2 + c / 2) * 4 + upper * 2 + c % 2];
                if constexpr (V::INTEGER) four[c] = (int)((unsigned)four[c] - (unsigned)k.shift[c]);
            }
            if (V::CROWDED) wait[q % V::AHEAD] = bits_of_sum(four[3]) & g.zero;
            char *there = to + i * V::SLICES * V::SLICE_BYTES + upper * 8 * V::SLICE;
            unsigned z = 0, stored;
            if constexpr (V::RESIDUAL == (int)RESIDUAL_BYTES)
                z = pair_residual<V>(residual + i * V::Z_ROWS + upper * 8 * V::Z_SLICE, z_first, q);
            if constexpr (V::F8)
                stored = four_f8<V>(p, l, g.inverse, four, k, z, there);
            else if constexpr (V::END == (int)EPILOGUE_ANY)
                stored = four_real<V>(p, l, g.inverse, four, k, z, there);
            else
                stored = four_finish<V::END>(p, l, four, k.scale, k.bias, there);
            if (V::TIGHT) wait[0] = (int)stored & g.zero;
        }
    }
}

/* 32 bytes of depth. */
template <int KIND, int COUNT>
SIMT_INLINE void rows_multiply(int (&d)[COUNT], uint64_t x, uint64_t w, int add)
{
    simt_wgmma_k32<KIND == PARE_u8>(d, x, w, add);
}
template <int KIND, int COUNT>
SIMT_INLINE void rows_multiply(float (&d)[COUNT], uint64_t x, uint64_t w, int add)
{
    if constexpr (kind_is_f8<KIND>)
        simt_wgmma_f8<KIND == PARE_f8e5m2>(d, x, w, add);
    else
        simt_wgmma_k16<KIND == PARE_bf16>(d, x, w, add);
}

/* One step of depth. */
template <typename V>
SIMT_INLINE void step_multiply(typename V::sum (&acc)[V::MI][V::BN / 2], unsigned stage, int group,
                               int step)
{
    const uint64_t x = simt_wgmma_matrix<V::KB>(stage + group * V::GROUP_ROWS * V::KB);
    const uint64_t w = simt_wgmma_matrix<V::KB>(stage + V::X_BYTES);
    simt_wgmma_fence();
    PARE_UNROLL for (int part = 0; part < V::KB / 32; part++)
        PARE_UNROLL for (int i = 0; i < V::MI; i++) rows_multiply<V::KIND>(
            acc[i], x + part * 2 + i * (64 * V::KB >> 4), w + part * 2, part > 0 ? 1 : step);
    simt_wgmma_commit();
}

template <typename V>
SIMT_INLINE void tiles_consume(const pare_cuda_gemm_args &p, const tile_clamp &l,
                               const wgmma_walk &g, const CUtensorMap *ym, const CUtensorMap *zm,
                               char *bytes, unsigned shared)
{
    const int group = (int)threadIdx.x >> 7, tiles = g.tiles_m * g.tiles_n;
    const bool releases = (threadIdx.x & 31) == 0;
    const unsigned full = shared + V::BARRIERS, empty = full + V::DEEP * 8;
    const int out = V::DEEP * V::STAGE + group * V::OUT,
              z = V::DEEP * V::STAGE + V::GROUPS * V::OUT + group * V::Z_OUT;
    const sum_group mine = {(threadIdx.x & 127) == 0, shared + out, shared + z,
                            empty + V::DEEP * 8 + group * 8};
    unsigned stage = 0, parity = 0, z_parity = 0;
    typename V::sum acc[V::MI][V::BN / 2], part[V::MI][V::BN / 2]; /* of a stage, FP8 only */
    auto &sums = V::F8 ? part : acc;
    PARE_UNROLL for (int i = 0; i < V::MI; i++) PARE_UNROLL for (int j = 0; j < V::BN / 2; j++)
        sums[i][j] = 0;
    for (int index = (int)blockIdx.x; index < tiles; index += (int)gridDim.x) {
        const tile_at t = tile_of_index(g, index);
        const int m0 = t.m * V::BM + group * V::GROUP_ROWS, n0 = t.n * V::BN;
        unsigned last = 0;
        PARE_UNROLL for (int i = 0; i < V::MI; i++) simt_wgmma_order(sums[i]);
        if constexpr (V::F8) sums_clear(acc);
        for (int k = 0; k < g.steps; k++) {
            simt_mbar_wait(full + stage * 8, parity);
            step_multiply<V>(sums, shared + stage * V::STAGE, group, V::F8 ? 0 : k);
            if (V::RESIDUAL != (int)RESIDUAL_NONE && k == 0) {
                if (mine.leads) residual_bring<V>(mine, zm, m0, n0);
                __syncwarp();
            }
            if constexpr (V::F8) {
                simt_wgmma_wait<0>();
                if (releases) simt_mbar_arrive(empty + stage * 8);
                sums_promote(acc, part);
            } else {
                simt_wgmma_wait<1>(); /* the step before was read */
                if (k > 0 && releases) simt_mbar_arrive(empty + last * 8);
            }
            last = stage;
            if (++stage == V::DEEP) stage = 0, parity ^= 1;
        }
        simt_wgmma_wait<0>();
        PARE_UNROLL for (int i = 0; i < V::MI; i++) simt_wgmma_order(acc[i]);
        if (!V::F8 && releases) simt_mbar_arrive(empty + last * 8);
        if (V::RESIDUAL != (int)RESIDUAL_NONE) {
            simt_mbar_wait(mine.z_bar, z_parity);
            z_parity ^= 1;
        } else { /* what was stored last was read */
            if (mine.leads) simt_tma_store_wait_read();
            simt_sync_group(group + 1);
        }
        sums_finish<V>(p, l, g, acc, bytes + out, bytes + z, n0);
        simt_fence_async();
        simt_sync_group(group + 1);
        if (mine.leads) tile_put<V>(p, mine, ym, m0, n0);
        __syncwarp();
    }
    if (mine.leads) simt_tma_store_wait();
    __syncwarp();
}

/* Barriers of a block's stages and groups; a barrier of the block must follow. */
template <typename V> SIMT_INLINE void barriers_set(unsigned shared)
{
    const unsigned full = shared + V::BARRIERS, empty = full + V::DEEP * 8;
    if (threadIdx.x != 0) return;
    if (shared & 1023) __trap(); /* swizzles count from there */
    for (int s = 0; s < V::DEEP; s++) {
        simt_mbar_init(full + s * 8, 1);
        simt_mbar_init(empty + s * 8, V::GROUPS * 4); /* warps that multiply */
    }
    for (int group = 0; group < V::GROUPS; group++)
        simt_mbar_init(empty + (V::DEEP + group) * 8, 1);
    simt_mbar_publish();
}

template <typename V>
static __global__ void __launch_bounds__(V::THREADS, V::BLOCKS)
    wgmma_tiles(const __grid_constant__ CUtensorMap xm, const __grid_constant__ CUtensorMap wm,
                const __grid_constant__ CUtensorMap ym, const __grid_constant__ CUtensorMap zm,
                const __grid_constant__ pare_cuda_gemm_args p,
                const __grid_constant__ tile_clamp clamp, const __grid_constant__ wgmma_walk walk)
{
    SIMT_DYN_SHARED_AT(char, bytes, 1024);
    const unsigned shared = simt_shared_address(bytes);
    barriers_set<V>(shared);
    if (threadIdx.x == 0) simt_tma_prefetch(&xm), simt_tma_prefetch(&wm), simt_tma_prefetch(&ym);
    simt_dependency_wait();
    __syncthreads();
    if (threadIdx.x >= V::SUM_THREADS) {
        simt_registers_give<V::REGISTERS_FILL>();
        if (threadIdx.x == V::SUM_THREADS) {
            stages_produce<V>(p, walk, &xm, &wm, shared);
            simt_dependents_launch();
        }
        __syncwarp();
    } else {
        simt_registers_take<V::REGISTERS_SUM>();
        tiles_consume<V>(p, clamp, walk, &ym, &zm, bytes, shared);
    }
}

/* --- launchers --- */

template <typename V> static wgmma_walk walk_of(const pare_cuda_gemm_args &p)
{
    wgmma_walk g;
    g.steps = (p.depth * V::X_SIZE + V::KB - 1) / V::KB;
    g.tap_steps = p.picture ? p.in.channels * V::X_SIZE / V::KB : g.steps;
    g.tiles_m = (int)((p.rows + V::BM - 1) / V::BM);
    g.tiles_n = (p.columns + V::BN - 1) / V::BN;
    enum { BAND = BAND_ROWS / V::BM };
    g.by_whole = pare_cuda_fast_divisor_of(BAND * g.tiles_n);
    g.by_band = pare_cuda_fast_divisor_of(BAND);
    g.by_last = pare_cuda_fast_divisor_of((g.tiles_m - 1) % BAND + 1);
    g.zero = 0;
    g.inverse = 1 / p.epilogue.y_scale;
    return g;
}

template <typename V>
static bool maps_make(const pare_cuda_gemm_args &p, CUtensorMap *x, CUtensorMap *w, CUtensorMap *y,
                      CUtensorMap *z)
{
    const void *residual = p.z ? p.z : p.y;
    const int64_t y_columns = (int64_t)p.columns * V::Y_SIZE, y_row = p.y_row * V::Y_SIZE,
                  depth = (int64_t)p.depth * V::X_SIZE,
                  w_rows = pare_wgmma_rows(p.columns, V::Y_SIZE);
    return (V::PICTURE ? map_pixels(x, p, V::BM, V::KB)
                       : map_rows(x, p.x, p.rows, depth, p.x_row * V::X_SIZE, V::BM, V::KB)) &&
           map_rows(w, p.w, w_rows, depth, p.w_row * V::X_SIZE, V::BN, V::KB) &&
           map_rows(y, p.y, p.rows, y_columns, y_row, 64, V::SLICE) &&
           (V::RESIDUAL == (int)RESIDUAL_BYTES
                ? map_rows(z, residual, p.rows, p.columns, p.y_row, 64, V::Z_SLICE)
                : map_rows(z, residual, p.rows, y_columns, y_row, 64, V::SLICE));
}

/* Blocks that stay: as many as the device holds, or one a tile. */
template <typename V> static cudaError_t grid_of(const wgmma_walk &walk, dim3 *grid)
{
    int device = 0, processors = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const int tiles = walk.tiles_m * walk.tiles_n, most = processors * V::BLOCKS;
    *grid = dim3((unsigned)(tiles < most ? tiles : most));
    return error;
}

template <typename V>
static cudaError_t variant_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const wgmma_walk walk = walk_of<V>(*p);
    const tile_clamp clamp =
        V::TO == (int)PARE_s8 ? integer_clamp(p->epilogue) : real_clamp(p->epilogue);
    CUtensorMap x, w, y, z;
    dim3 grid;
    auto kernel = wgmma_tiles<V>;
    cudaError_t error = grid_of<V>(walk, &grid);
    if (error == cudaSuccess) error = SIMT_ALLOW_SHARED(kernel, V::SHARED);
    if (error != cudaSuccess) return error;
    if (!maps_make<V>(*p, &x, &w, &y, &z)) return cudaErrorInvalidValue;
    PARE_LAUNCH_DEPENDENT(kernel, grid, dim3(V::THREADS), (size_t)V::SHARED, stream, x, w, y, z, *p,
                          clamp, walk);
    return cudaGetLastError();
}

#endif
