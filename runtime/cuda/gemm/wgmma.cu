/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit integers on compute capability 9.0. A block has three groups of four warps and
   stays for many tiles: a thread of the last fills stages by tensor maps, a window's patches by
   im2col maps, the other two groups multiply the upper and the lower half of a tile, scale their
   sums where they are, and store Y by tensor maps through shared memory, in which a residual was
   brought the same way.

   Compiled for sm_90a only. */
#include "runtime/cuda/device/simt_sm90.cuh"
#include "runtime/cuda/gemm/gemm_tiles.cuh"
#include "runtime/cuda/gemm/wgmma.h"

/* Outputs below which a block a tile leaves most of a device idle. */
enum { LEAST_OUTPUTS = 40 * 128 * 128, BAND_ROWS = 2048 };

/* What an instance is. Each group has MI x 64 rows of a tile; KB: bytes of depth a stage has. */
template <int KIND_, int MI_, int BN_, int KB_, int STAGES_, int BLOCKS_, bool PICTURE_,
          bool RESIDUAL_>
struct variant {
    enum {
        KIND = KIND_,
        MI = MI_,
        BN = BN_,
        KB = KB_,
        DEEP = STAGES_, /* stages */
        BLOCKS = BLOCKS_,
        PICTURE = PICTURE_,
        RESIDUAL = RESIDUAL_,
        END = RESIDUAL ? EPILOGUE_CLAMP_RESIDUAL : EPILOGUE_CLAMP,
        GROUP_ROWS = MI * 64,
        BM = 2 * GROUP_ROWS,
        X_BYTES = BM * KB,
        STAGE = X_BYTES + BN * KB,
        SLICE = BN % 128 == 0 ? 128 : 64, /* columns of Y that one copy has, 64 rows of them */
        SLICES = BN / SLICE,
        SLICE_BYTES = 64 * SLICE,
        OUT = MI * SLICES * SLICE_BYTES, /* of a group's part of Y */
        BARRIERS = DEEP * STAGE + 2 * OUT,
        SHARED = BARRIERS + (2 * DEEP + 2) * 8,
        THREADS = 384,
        CROWDED = BN > 128, /* sums leave few registers */
        REGISTERS_FILL = BLOCKS == 1 ? 40 : 24,
        REGISTERS_SUM = BLOCKS == 1 ? 232 : 104
    };
    static_assert(STAGE % 1024 == 0 && SLICE_BYTES % 1024 == 0, "swizzles are of 1024 bytes");
    static_assert(SHARED * BLOCKS + BLOCKS * 1024 <= 228 * 1024, "shared memory of a processor");
};

/* How tiles lie in Y, and steps of KB bytes in depth. */
typedef struct wgmma_walk {
    int steps, tap_steps; /* of a tile; of a tap */
    int tiles_m, tiles_n, band;
    int zero; /* 0, which the compiler does not know */
} wgmma_walk;

typedef struct tile_at {
    int m, n;
} tile_at;

/* Within a band of tiles, rows run fastest: X of a band stays in L2 while W passes by. */
SIMT_INLINE tile_at tile_of_index(const wgmma_walk &g, int index)
{
    const int whole = g.band * g.tiles_n, band = index / whole, in = index - band * whole;
    const int high = min(g.band, g.tiles_m - band * g.band), n = in / high;
    return {band * g.band + in - n * high, n};
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
            const int line = m0 / p.in.out_width;
            image = line / p.in.out_height;
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

/* --- two groups multiply --- */

/* Of a group: where its part of Y is. */
typedef struct sum_group {
    bool leads;   /* its first thread, which copies */
    unsigned out; /* shared memory of its part of Y */
    unsigned z_bar;
} sum_group;

/* Begins to bring the residual, once what was there is stored. */
template <typename V>
SIMT_INLINE void residual_bring(const sum_group &mine, const CUtensorMap *zm, int m0, int n0)
{
    simt_tma_store_wait_read();
    simt_mbar_expect(mine.z_bar, V::OUT);
    PARE_UNROLL for (int i = 0; i < V::MI; i++) PARE_UNROLL for (int c = 0; c < V::SLICES; c++)
        simt_tma_load(mine.out + (i * V::SLICES + c) * V::SLICE_BYTES, zm, mine.z_bar,
                      n0 + c * V::SLICE, m0 + i * 64);
}

template <typename V>
SIMT_INLINE void tile_put(const pare_cuda_gemm_args &p, const sum_group &mine,
                          const CUtensorMap *ym, int m0, int n0)
{
    PARE_UNROLL for (int i = 0; i < V::MI; i++) PARE_UNROLL for (int c = 0; c < V::SLICES; c++)
    {
        const int x = n0 + c * V::SLICE, y = m0 + i * 64;
        if (x < p.columns && y < p.rows)
            simt_tma_store(ym, mine.out + (i * V::SLICES + c) * V::SLICE_BYTES, x, y);
    }
    simt_tma_store_commit();
}

/* Constants of four columns from this one on. */
SIMT_INLINE void four_constants(const pare_cuda_gemm_args &p, int column, int shift[4],
                                float scale[4], float bias[4])
{
    vec_load<4>(p.shift, column, 1, shift);
    vec_load<4>(p.scale, column, 1, scale);
    if (p.bias)
        vec_load<4>(static_cast<const float *>(p.bias), column, 1, bias);
    else
        PARE_UNROLL PARE_VEC4 bias[k] = -0.0f; /* changes no float */
}

/* Sums of two instructions' eight columns become four neighbours in `out`, the group's part of Y,
   whose chunks of 16 bytes are swizzled as the map of Y has them. Where sums leave few registers,
   what is read for columns waits for those two before them: all at once would not fit. */
template <typename V>
SIMT_INLINE void sums_finish(const pare_cuda_gemm_args &p, const tile_clamp &l, int zero,
                             const int (&acc)[V::MI][V::BN / 2], char *out, int n0)
{
    const int lane = (int)threadIdx.x & 31, row = ((int)threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
    const int turn = V::SLICE == 128 ? row & 7 : row >> 1 & 3;
    const int first = row * V::SLICE + (turn << 4) + (lane & 3) * 4;
    int wait[2] = {0, 0}; /* stay 0 */
    PARE_UNROLL for (int q = 0; q < V::BN / 16; q++)
    {
        int shift[4];
        float scale[4], bias[4];
        const int chunk = q * 16 / V::SLICE, slot = q * 16 % V::SLICE;
        const int column = min(n0 + q * 16 + (lane & 3) * 4, p.columns - 4);
        char *to = out + (first ^ slot) + chunk * V::SLICE_BYTES + wait[q % 2];
        four_constants(p, column + wait[q % 2], shift, scale, bias);
        PARE_UNROLL for (int i = 0; i < V::MI; i++)
            PARE_UNROLL for (int upper = 0; upper < 2; upper++)
        {
            int four[4];
            PARE_UNROLL PARE_VEC4 four[k] =
                (int)((unsigned)acc[i][(q * 2 + k / 2) * 4 + upper * 2 + k % 2] -
                      (unsigned)shift[k]);
            if (V::CROWDED) wait[q % 2] = four[3] & zero;
            four_finish<V::END>(p, l, four, scale, bias,
                                to + i * V::SLICES * V::SLICE_BYTES + upper * 8 * V::SLICE);
        }
    }
}

/* One step of depth. */
template <typename V>
SIMT_INLINE void step_multiply(int (&acc)[V::MI][V::BN / 2], unsigned stage, int group, int step)
{
    const uint64_t x = simt_wgmma_matrix<V::KB>(stage + group * V::GROUP_ROWS * V::KB);
    const uint64_t w = simt_wgmma_matrix<V::KB>(stage + V::X_BYTES);
    simt_wgmma_fence();
    PARE_UNROLL for (int part = 0; part < V::KB / 32; part++)
        PARE_UNROLL for (int i = 0; i < V::MI; i++) simt_wgmma_k32<V::KIND == (int)PARE_u8>(
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
    const int out = V::DEEP * V::STAGE + group * V::OUT;
    const sum_group mine = {(threadIdx.x & 127) == 0, shared + out,
                            empty + V::DEEP * 8 + group * 8};
    unsigned stage = 0, parity = 0, z_parity = 0;
    int acc[V::MI][V::BN / 2];
    PARE_UNROLL for (int i = 0; i < V::MI; i++) PARE_UNROLL for (int j = 0; j < V::BN / 2; j++)
        acc[i][j] = 0;
    for (int index = (int)blockIdx.x; index < tiles; index += (int)gridDim.x) {
        const tile_at t = tile_of_index(g, index);
        const int m0 = t.m * V::BM + group * V::GROUP_ROWS, n0 = t.n * V::BN;
        unsigned last = 0;
        PARE_UNROLL for (int i = 0; i < V::MI; i++) simt_wgmma_order(acc[i]);
        for (int k = 0; k < g.steps; k++) {
            simt_mbar_wait(full + stage * 8, parity);
            step_multiply<V>(acc, shared + stage * V::STAGE, group, k);
            if (V::RESIDUAL && k == 0) {
                if (mine.leads) residual_bring<V>(mine, zm, m0, n0);
                __syncwarp();
            }
            simt_wgmma_wait<1>(); /* the step before was read */
            if (k > 0 && releases) simt_mbar_arrive(empty + last * 8);
            last = stage;
            if (++stage == V::DEEP) stage = 0, parity ^= 1;
        }
        simt_wgmma_wait<0>();
        PARE_UNROLL for (int i = 0; i < V::MI; i++) simt_wgmma_order(acc[i]);
        if (releases) simt_mbar_arrive(empty + last * 8);
        if (V::RESIDUAL) {
            simt_mbar_wait(mine.z_bar, z_parity);
            z_parity ^= 1;
        } else { /* what was stored last was read */
            if (mine.leads) simt_tma_store_wait_read();
            simt_sync_group(group + 1);
        }
        sums_finish<V>(p, l, g.zero, acc, bytes + out, n0);
        simt_fence_async();
        simt_sync_group(group + 1);
        if (mine.leads) tile_put<V>(p, mine, ym, m0, n0);
        __syncwarp();
    }
    if (mine.leads) simt_tma_store_wait();
    __syncwarp();
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
    if (threadIdx.x == 0) {
        const unsigned full = shared + V::BARRIERS, empty = full + V::DEEP * 8;
        if (shared & 1023) __trap(); /* swizzles count from there */
        for (int s = 0; s < V::DEEP; s++) {
            simt_mbar_init(full + s * 8, 1);
            simt_mbar_init(empty + s * 8, 8); /* warps that multiply */
        }
        simt_mbar_init(empty + V::DEEP * 8, 1);
        simt_mbar_init(empty + V::DEEP * 8 + 8, 1);
        simt_mbar_publish();
        simt_tma_prefetch(&xm), simt_tma_prefetch(&wm), simt_tma_prefetch(&ym);
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        simt_registers_give<V::REGISTERS_FILL>();
        if (threadIdx.x == 256) stages_produce<V>(p, walk, &xm, &wm, shared);
        __syncwarp();
    } else {
        simt_registers_take<V::REGISTERS_SUM>();
        tiles_consume<V>(p, clamp, walk, &ym, &zm, bytes, shared);
    }
}

/* --- tensor maps --- */

typedef decltype(&cuTensorMapEncodeTiled) tiled_encoder;
typedef decltype(&cuTensorMapEncodeIm2col) im2col_encoder;

static void *driver_find(const char *name)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult how;
    if (cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how) !=
        cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return how == cudaDriverEntryPointSuccess ? found : NULL;
}

static tiled_encoder tiled_find(void)
{
    static const tiled_encoder found =
        reinterpret_cast<tiled_encoder>(driver_find("cuTensorMapEncodeTiled"));
    return found;
}

static im2col_encoder im2col_find(void)
{
    static const im2col_encoder found =
        reinterpret_cast<im2col_encoder>(driver_find("cuTensorMapEncodeIm2col"));
    return found;
}

static CUtensorMapSwizzle swizzle_of(int bytes)
{
    return bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
}

/* (rows, columns) bytes, rows `pitch` apart, in boxes of so many. */
static bool map_rows(CUtensorMap *map, const void *at, int64_t rows, int64_t columns, int64_t pitch,
                     int box_rows, int box_columns)
{
    const cuuint64_t dims[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint64_t strides[1] = {(cuuint64_t)pitch};
    const cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows};
    const cuuint32_t ones[2] = {1, 1};
    return tiled_find()(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void *>(at), dims,
                        strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box_columns),
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* How far the last position of a window, and `stride` behind it, is from a picture's end. */
static int corner_of(const pare_cuda_picture &in, int axis)
{
    const int out = axis ? in.out_width : in.out_height, size = axis ? in.width : in.height;
    return out * in.stride[axis] - size - in.begin[axis];
}

/* A window's positions in a picture; what is outside is 0. */
static bool map_pixels(CUtensorMap *map, const pare_cuda_gemm_args &p, int box_pixels,
                       int box_bytes)
{
    const pare_cuda_picture &in = p.in;
    const int64_t images = p.rows / ((int64_t)in.out_height * in.out_width);
    const int64_t row = in.height > 1 ? in.row : in.width * in.pixel;
    const int64_t image = images > 1 ? in.image : in.height * row;
    const cuuint64_t dims[4] = {(cuuint64_t)in.channels, (cuuint64_t)in.width,
                                (cuuint64_t)in.height, (cuuint64_t)images};
    const cuuint64_t strides[3] = {(cuuint64_t)in.pixel, (cuuint64_t)row, (cuuint64_t)image};
    const int low[2] = {-in.begin[1], -in.begin[0]}, high[2] = {corner_of(in, 1), corner_of(in, 0)};
    const cuuint32_t apart[4] = {1, (cuuint32_t)in.stride[1], (cuuint32_t)in.stride[0], 1};
    return im2col_find()(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<void *>(p.x), dims,
                         strides, low, high, (cuuint32_t)box_bytes, (cuuint32_t)box_pixels, apart,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box_bytes),
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* --- what fits --- */

static bool device_fits(const pare_device *device)
{
    int major = 0, minor = 0;
    if (!device ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device->index) !=
            cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device->index) !=
            cudaSuccess)
        return false;
    return major == 9 && minor == 0 && tiled_find() && im2col_find();
}

static bool byte_fits(int v) { return v >= -128 && v <= 127; }

/* Does the window never leave the picture along this axis? */
static bool window_stays(const pare_cuda_picture &in, int axis, int taps)
{
    const int out = axis ? in.out_width : in.out_height, size = axis ? in.width : in.height;
    return in.begin[axis] <= 0 &&
           (out - 1) * in.stride[axis] - in.begin[axis] + (taps - 1) * in.dilation[axis] < size;
}

/* Ranges are those of im2col maps of two window axes: corners of 8 bits with sign, offsets without;
   what is outside of the picture is 0, as X's zero point must be. */
static bool picture_fits(const pare_cuda_gemm_args &p, int32_t x_zero)
{
    const pare_cuda_picture &in = p.in;
    if (in.transposed || in.channels < 64 || in.channels % 64 || in.channels > in.pixel ||
        in.pixel % 16 || in.row % 16 || in.image % 16 || in.kernel_width < 1)
        return false;
    const int taps[2] = {p.depth / in.channels / in.kernel_width, in.kernel_width};
    bool stays = true;
    for (int i = 0; i < 2; i++) {
        if (in.stride[i] < 1 || in.stride[i] > 2 || taps[i] > 7 ||
            (taps[i] - 1) * in.dilation[i] > 255 || !byte_fits(-in.begin[i]) ||
            !byte_fits(corner_of(in, i)))
            return false;
        stays = stays && window_stays(in, i, taps[i]);
    }
    return stays || x_zero == 0;
}

static bool matrix_fits(const pare_cuda_gemm_args &p)
{
    return p.x_step == 1 && p.x_row >= p.depth && p.x_row % 16 == 0;
}

/* Does the tile suit the product? Wide ones are for many columns, small steps for little depth; the
   sums of the largest leave no registers for a residual. */
static bool tile_suits(const pare_cuda_gemm_args &p)
{
    switch (p.tile) {
    case PARE_CUDA_128X128: return p.columns > 64;
    case PARE_CUDA_256X128:
        return p.columns > 64 && (p.picture || p.depth > 64) && p.epilogue.z_type == PARE_NOTYPE;
    case PARE_CUDA_128X192: return p.columns > 128 && !p.picture && p.depth > 64;
    case PARE_CUDA_128X64: return !p.picture && (p.columns <= 64 || p.depth <= 64);
    case PARE_CUDA_256X64: return p.columns <= 64;
    default: return false;
    }
}

extern "C" bool pare_cuda_wgmma_fits(const pare_prep *prep, const pare_cuda_gemm_args *product,
                                     const pare_epilogue *e, int32_t x_zero, pare_cuda_tiling tile)
{
    pare_cuda_gemm_args p = *product;
    if (!pare_type_is_int8(p.x_type) || p.batches != 1 || p.depth < 1 || p.columns % 16 ||
        p.y_row % 16 || p.rows > INT32_MAX - BAND_ROWS || p.rows * p.columns < LEAST_OUTPUTS ||
        (e->z_type != PARE_NOTYPE && !pare_type_is_int8(e->z_type)))
        return false;
    p.tile = tile;
    p.epilogue = *e;
    const tile_epilogue end = epilogue_of(p);
    if (end != EPILOGUE_CLAMP && end != EPILOGUE_CLAMP_RESIDUAL) return false;
    return tile_suits(p) && (p.picture ? picture_fits(p, x_zero) : matrix_fits(p)) &&
           device_fits(prep->device);
}

/* --- launchers --- */

template <typename V> static wgmma_walk walk_of(const pare_cuda_gemm_args &p)
{
    wgmma_walk g;
    g.steps = (p.depth + V::KB - 1) / V::KB;
    g.tap_steps = p.picture ? p.in.channels / V::KB : g.steps;
    g.tiles_m = (int)((p.rows + V::BM - 1) / V::BM);
    g.tiles_n = (p.columns + V::BN - 1) / V::BN;
    g.band = BAND_ROWS / V::BM;
    g.zero = 0;
    return g;
}

template <typename V>
static bool maps_make(const pare_cuda_gemm_args &p, CUtensorMap *x, CUtensorMap *w, CUtensorMap *y,
                      CUtensorMap *z)
{
    const void *residual = p.z ? p.z : p.y;
    return (V::PICTURE ? map_pixels(x, p, V::BM, V::KB)
                       : map_rows(x, p.x, p.rows, p.depth, p.x_row, V::BM, V::KB)) &&
           map_rows(w, p.w, p.columns, p.depth, p.w_row, V::BN, V::KB) &&
           map_rows(y, p.y, p.rows, p.columns, p.y_row, 64, V::SLICE) &&
           map_rows(z, residual, p.rows, p.columns, p.y_row, 64, V::SLICE);
}

template <typename V>
static cudaError_t variant_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    const wgmma_walk walk = walk_of<V>(*p);
    CUtensorMap x, w, y, z;
    int device = 0, processors = 0;
    auto kernel = wgmma_tiles<V>;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) error = SIMT_ALLOW_SHARED(kernel, V::SHARED);
    if (error != cudaSuccess) return error;
    if (!maps_make<V>(*p, &x, &w, &y, &z)) return cudaErrorInvalidValue;
    const int tiles = walk.tiles_m * walk.tiles_n, most = processors * V::BLOCKS;
    SIMT_LAUNCH(kernel, dim3((unsigned)(tiles < most ? tiles : most)), dim3(V::THREADS),
                (size_t)V::SHARED, stream, x, w, y, z, *p, integer_clamp(p->epilogue), walk);
    return cudaGetLastError();
}

/* Steps of 64 bytes where depth, or a tap's, is not in whole ones of 128. */
template <int KIND, bool PICTURE, bool RESIDUAL>
static cudaError_t tile_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
#define LAUNCH(MI, BN, KB, DEEP, BLOCKS)                                                           \
    variant_launch<variant<KIND, MI, BN, KB, DEEP, BLOCKS, PICTURE, RESIDUAL>>(p, stream)
    const bool narrow = PICTURE ? p->in.channels % 128 != 0 : p->depth <= 64;
    if (p->tile == PARE_CUDA_256X64) return LAUNCH(2, 64, 64, 8, 1);
    if (p->tile == PARE_CUDA_128X128 && narrow) return LAUNCH(1, 128, 64, 12, 1);
    if (p->tile == PARE_CUDA_128X128) return LAUNCH(1, 128, 128, 6, 1);
    if constexpr (PICTURE && !RESIDUAL)
        if (p->tile == PARE_CUDA_256X128 && narrow) return LAUNCH(2, 128, 64, 8, 1);
    if constexpr (!RESIDUAL)
        if (p->tile == PARE_CUDA_256X128) return LAUNCH(2, 128, 128, 4, 1);
    if constexpr (!PICTURE) {
        if (p->tile == PARE_CUDA_128X192) return LAUNCH(1, 192, 128, 5, 1);
        if (p->tile == PARE_CUDA_128X64) return LAUNCH(1, 64, 64, 6, 2);
    }
    return cudaErrorInvalidValue;
#undef LAUNCH
}

template <int KIND>
static cudaError_t form_choose(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->picture)
        return p->z ? tile_choose<KIND, true, true>(p, stream)
                    : tile_choose<KIND, true, false>(p, stream);
    return p->z ? tile_choose<KIND, false, true>(p, stream)
                : tile_choose<KIND, false, false>(p, stream);
}

extern "C" cudaError_t pare_cuda_wgmma_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if (p->rows == 0 || p->columns == 0) return cudaSuccess;
    return p->x_type == PARE_s8 ? form_choose<PARE_s8>(p, stream) : form_choose<PARE_u8>(p, stream);
}
