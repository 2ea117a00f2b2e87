/* SPDX-License-Identifier: Apache-2.0 */
/* dW (filters, channels, taps) = sum over positions of Y of dY (position, filter) times X (under a
   tap, channel). A product whose depth are positions: both operands lie in memory along their rows,
   and are kept so in shared memory; f16 and bf16 are turned by ldmatrix, f32 are read as
   neighbours. Columns are taps and channels (channels fastest), so that a chunk is of one tap.
   f16 and bf16 are multiplied on tensor cores, and so is f32 where the device allows TF32; else f32
   by plain multiply-adds, in order of depth. Depth is cut into splits, whose sums go to scratch and
   are added in order: nothing is atomic. Where a position's window is in X is in a table that is
   made once, of which a block copies a step ahead of what it needs. Bytes moved: dY once a tile of
   columns, X once a tile of rows and tap, from cache but for the first; 8 bytes a sum and split. */
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/gemm/tile.cuh"

enum { MOST_SPLITS = 64, LEAST_STEPS = 8 /* of a split */ };

/* Of a position of Y: chunks from X's first to its window's first, and the bits of taps that are
   inside. */
typedef struct __attribute__((aligned(8))) conv_window {
    int at;
    unsigned inside;
} conv_window;

typedef struct conv_grad_weight_args {
    const void *y, *x;
    float *part; /* (splits, filters, columns) */
    void *to;
    pare_dtype dtype;              /* of `to` */
    const conv_window *windows;    /* (positions), then those that are read ahead, of no taps */
    int64_t y_position;            /* elements from one position to the next */
    int kernel_width, line, pixel; /* taps of a line; elements of X from one tap to the next */
    int filters, channels, columns, positions, splits, taps;
    pare_cuda_fast_divisor by_columns, by_channels;
} conv_grad_weight_args;

/* A stage holds DEPTH positions of BM filters of dY, and of BN columns of X. Rows of halves are so
   far apart that eight of them are in different banks, and of floats four. */
template <int KIND, typename T> struct depth_tile : T {
    enum {
        BYTES = sizeof(typename kind_of<KIND>::element),
        LOT = PARE_CUDA_CHUNK / BYTES,
        DEPTH = PARE_CUDA_STEP / BYTES,
        PAD = BYTES / 2,
        Y_CHUNKS = T::BM / LOT,
        X_CHUNKS = T::BN / LOT,
        Y_ROW = Y_CHUNKS + PAD,
        X_ROW = X_CHUNKS + PAD,
        X_AT = DEPTH * Y_ROW,
        STAGE = DEPTH * (Y_ROW + X_ROW),
        Y_LINES = T::THREADS / Y_CHUNKS,
        X_LINES = T::THREADS / X_CHUNKS,
        WINDOWS = 2 * STAGES * DEPTH, /* of so many steps, in a ring */
        WINDOW_CHUNKS = WINDOWS * (int)sizeof(conv_window) / PARE_CUDA_CHUNK
    };
};

/* --- a stage's products: f16 and bf16; TF32; f32 --- */

template <int KIND, typename T>
SIMT_INLINE void halves_add(accumulators<KIND, T> &sums, const uint4 *stage)
{
    const int lane = (int)threadIdx.x & 31, row = lane & 7, low = lane >> 3 & 1, high = lane >> 4;
    const uint4 *ys = stage + (row + high * 8) * T::Y_ROW + warp_row<T>() / 8 + low;
    const uint4 *xs = stage + T::X_AT + (row + low * 8) * T::X_ROW + warp_column<T>() / 8 + high;
    PARE_UNROLL for (int k = 0; k < T::DEPTH; k += 16)
    {
        unsigned a[T::TM][4], b[T::TN / 2][4];
        PARE_UNROLL for (int i = 0; i < T::TM; i++)
            simt_ldmatrix_x4_trans(a[i], ys + k * T::Y_ROW + i * 2);
        PARE_UNROLL for (int j = 0; j < T::TN / 2; j++)
            simt_ldmatrix_x4_trans(b[j], xs + k * T::X_ROW + j * 2);
        PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
            multiply<KIND>(sums.at[i][j], a[i], &b[j / 2][j % 2 * 2]);
    }
}

template <int KIND, typename T>
SIMT_INLINE void tf32_add(accumulators<KIND, T> &sums, const uint4 *stage)
{
    enum { Y_PITCH = T::Y_ROW * 4, X_PITCH = T::X_ROW * 4 };
    const int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const unsigned *ys =
        reinterpret_cast<const unsigned *>(stage) + t * Y_PITCH + warp_row<T>() + g;
    const unsigned *xs =
        reinterpret_cast<const unsigned *>(stage + T::X_AT) + t * X_PITCH + warp_column<T>() + g;
    PARE_UNROLL for (int k = 0; k < T::DEPTH; k += 8)
    {
        unsigned a[T::TM][4], b[T::TN][2];
        PARE_UNROLL for (int i = 0; i < T::TM; i++)
        {
            PARE_UNROLL for (int r = 0; r < 4; r++) a[i][r] =
                ys[(k + r / 2 * 4) * Y_PITCH + i * 16 + r % 2 * 8];
            factors_round<KIND>(a[i]);
        }
        PARE_UNROLL for (int j = 0; j < T::TN; j++)
        {
            PARE_UNROLL for (int r = 0; r < 2; r++) b[j][r] = xs[(k + r * 4) * X_PITCH + j * 8];
            factors_round<KIND>(b[j]);
        }
        PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
            multiply<KIND>(sums.at[i][j], a[i], b[j]);
    }
}

SIMT_INLINE void words_of(const uint4 &v, unsigned to[4])
{
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

/* Row r of a thread's 2 TM is row 32 (r / 4) + 4 (lane / 4) + r % 4 of its warp's, column c of 2 TN
   is 16 (c / 4) + 4 (lane % 4) + c % 4: each load is of four neighbours. */
template <int KIND, typename T>
SIMT_INLINE void floats_add(accumulators<KIND, T> &sums, const uint4 *stage)
{
    const int lane = (int)threadIdx.x & 31;
    const uint4 *ys = stage + warp_row<T>() / 4 + (lane >> 2);
    const uint4 *xs = stage + T::X_AT + warp_column<T>() / 4 + (lane & 3);
    PARE_ROLLED for (int k0 = 0; k0 < T::DEPTH; k0 += 4)
        PARE_UNROLL for (int k = k0; k < k0 + 4; k++)
    {
        unsigned y[T::TM * 2], x[4];
        PARE_UNROLL for (int q = 0; q < T::TM / 2; q++)
            words_of(ys[k * T::Y_ROW + q * 8], &y[q * 4]);
        PARE_UNROLL for (int j = 0; j < T::TN / 2; j++)
        {
            words_of(xs[k * T::X_ROW + j * 4], x);
            PARE_UNROLL for (int i = 0; i < T::TM * 2; i++) PARE_UNROLL for (int c = 0; c < 4; c++)
            {
                float &sum = sums.at[i / 2][j * 2 + c / 2][i % 2 * 2 + c % 2];
                sum = fmaf(__uint_as_float(y[i]), __uint_as_float(x[c]), sum);
            }
        }
    }
}

template <int KIND, typename T>
SIMT_INLINE void stage_add(accumulators<KIND, T> &sums, const uint4 *stage)
{
    if constexpr (KIND == PARE_f32)
        floats_add(sums, stage);
    else if constexpr (KIND == PARE_CUDA_TF32)
        tf32_add(sums, stage);
    else
        halves_add(sums, stage);
}

/* --- what a stage brings --- */

/* A thread's chunks: `left` rows of dY from its first on are there, 0 where its filters are not;
   bit `tap` of a window says that its chunk of X, from x on, is inside. */
typedef struct depth_copy {
    const char *y, *x;
    const conv_window *windows; /* of the next step whose are not copied */
    int64_t y_step;
    int left;
    unsigned tap;
} depth_copy;

template <typename T>
SIMT_INLINE depth_copy copy_open(const conv_grad_weight_args &a, int first, int m0, int n0)
{
    const int line = (int)threadIdx.x / T::Y_CHUNKS,
              m = m0 + (int)threadIdx.x % T::Y_CHUNKS * T::LOT;
    const int n = n0 + (int)threadIdx.x % T::X_CHUNKS * T::LOT, tap = n / a.channels;
    const int top = tap / a.kernel_width, left = tap - top * a.kernel_width;
    depth_copy c;
    c.y = static_cast<const char *>(a.y) + ((first + line) * a.y_position + m) * T::BYTES;
    c.x = static_cast<const char *>(a.x) +
          ((int64_t)top * a.line + left * a.pixel + n - tap * a.channels) * T::BYTES;
    c.windows = a.windows + first;
    c.y_step = T::Y_LINES * a.y_position * T::BYTES;
    c.left = m < a.filters ? a.positions - first - line : 0;
    c.tap = n < a.columns ? 1u << tap : 0;
    return c;
}

/* The windows of STAGES steps. A barrier must follow. */
template <typename T> SIMT_INLINE void windows_open(depth_copy &c, conv_window *ring)
{
    for (int i = (int)threadIdx.x; i < STAGES * T::DEPTH; i += T::THREADS) ring[i] = c.windows[i];
    c.windows += STAGES * T::DEPTH;
}

/* Brings a step to its stage, and the windows of the one STAGES later. */
template <typename T>
SIMT_INLINE void depth_fetch(depth_copy &c, conv_window *ring, int step, uint4 *stage)
{
    enum { EACH = PARE_CUDA_CHUNK / (int)sizeof(conv_window), RING = 2 * STAGES - 1 };
    const int thread = (int)threadIdx.x;
    uint4 *to = stage + thread / T::Y_CHUNKS * T::Y_ROW + thread % T::Y_CHUNKS;
    PARE_UNROLL for (int i = 0; i < T::DEPTH; i += T::Y_LINES)
    {
        simt_cp_async16(to + i * T::Y_ROW, c.y, i < c.left ? PARE_CUDA_CHUNK : 0);
        c.y += c.y_step;
    }
    c.left -= T::DEPTH;
    to = stage + T::X_AT + thread / T::X_CHUNKS * T::X_ROW + thread % T::X_CHUNKS;
    const conv_window *rows = ring + (step & RING) * T::DEPTH + thread / T::X_CHUNKS;
    PARE_UNROLL for (int i = 0; i < T::DEPTH; i += T::X_LINES)
    {
        const conv_window row = rows[i];
        if (row.inside & c.tap)
            simt_cp_async16_reused(to + i * T::X_ROW, c.x + (int64_t)row.at * PARE_CUDA_CHUNK,
                                   PARE_CUDA_CHUNK);
        else
            to[i * T::X_ROW] = make_uint4(0, 0, 0, 0);
    }
    if (thread < T::DEPTH / EACH)
        simt_cp_async16(ring + ((step + STAGES) & RING) * T::DEPTH + thread * EACH,
                        c.windows + thread * EACH, PARE_CUDA_CHUNK);
    c.windows += T::DEPTH;
}

/* --- where sums go --- */

/* each(row, column, numbers): two or four neighbours of a thread's sums, from the tile's corner on.
 */
template <int KIND, typename T, typename EACH>
SIMT_INLINE void sums_each(const accumulators<KIND, T> &sums, EACH each)
{
    const int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    PARE_UNROLL for (int r = 0; r < T::TM * 2; r++)
    {
        if constexpr (KIND == PARE_f32) {
            const int row = warp_row<T>() + r / 4 * 32 + g * 4 + r % 4;
            PARE_UNROLL for (int j = 0; j < T::TN / 2; j++)
            {
                float v[4];
                four_read(sums, r, j, v);
                each(row, warp_column<T>() + j * 16 + t * 4, make_float4(v[0], v[1], v[2], v[3]));
            }
        } else {
            PARE_UNROLL for (int j = 0; j < T::TN; j++)
            {
                const float *v = &sums.at[r / 2][j][r % 2 * 2];
                each(warp_row<T>() + r * 8 + g, warp_column<T>() + j * 8 + t * 2,
                     make_float2(v[0], v[1]));
            }
        }
    }
}

template <int KIND, typename T>
static __global__ void __launch_bounds__(T::THREADS, T::BLOCKS)
    conv_grad_weight(conv_grad_weight_args a)
{
    typedef depth_tile<KIND, T> tile;
    SIMT_DYN_SHARED(uint4, shared);
    conv_window *ring = reinterpret_cast<conv_window *>(shared + STAGES * tile::STAGE);
    const int m0 = (int)blockIdx.x * T::BM, n0 = (int)blockIdx.y * T::BN, split = (int)blockIdx.z;
    const unsigned all = (unsigned)(a.positions + tile::DEPTH - 1) / tile::DEPTH;
    const int begin = (int)(all * (unsigned)split / (unsigned)a.splits),
              end = (int)(all * ((unsigned)split + 1) / (unsigned)a.splits);
    const int first = begin * tile::DEPTH;
    depth_copy copy = copy_open<tile>(a, first, m0, n0);
    int at = 0;
    windows_open<tile>(copy, ring);
    __syncthreads();
    auto fetch = [&](int stage, int ahead) {
        depth_fetch<tile>(copy, ring, at + ahead, shared + stage * tile::STAGE);
    };
    accumulators<KIND, tile> sums;
    stages_fill(end - begin, fetch);
    accumulators_clear(sums);
    mainloop<tile>(
        shared, end - begin, fetch, [&] { at += T::UNROLL; },
        [&](const uint4 *stage) { stage_add(sums, stage); });
    float *part = a.part + (int64_t)split * a.filters * a.columns;
    sums_each<KIND, tile>(sums, [&](int row, int column, auto v) {
        const int m = m0 + row, n = n0 + column;
        if (m < a.filters && n < a.columns)
            *reinterpret_cast<decltype(v) *>(part + (int64_t)m * a.columns + n) = v;
    });
}

enum { AT_ONCE = 8 };

/* The splits, one after the other, so many of them loaded together. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) splits_join(conv_grad_weight_args a)
{
    PARE_CUDA_EACH (i, (int64_t)a.filters * a.columns) {
        const int m = fast_divide((int)i, a.by_columns), n = (int)i - m * a.columns,
                  tap = fast_divide(n, a.by_channels);
        float sum = 0;
        PARE_ROLLED for (int s = 0; s < a.splits; s += AT_ONCE)
        {
            float v[AT_ONCE];
            PARE_UNROLL for (int k = 0; k < AT_ONCE; k++) v[k] =
                s + k < a.splits ? a.part[(int64_t)(s + k) * a.filters * a.columns + i] : -0.0f;
            PARE_UNROLL for (int k = 0; k < AT_ONCE; k++) sum += v[k];
        }
        pare_number_store(a.to, a.dtype,
                          ((int64_t)m * a.channels + n - tap * a.channels) * a.taps + tap, sum);
    }
}

/* --- launchers --- */

typedef struct weight_state {
    conv_grad_weight_args a;
    int kind;
    bool tall, wide; /* tiles of 128 rows, and of 128 columns, not 64 */
    pare_device *device;
    void *windows;
} weight_state;

template <int KIND, typename T>
static cudaError_t tile_launch(const weight_state *s, cudaStream_t stream)
{
    typedef depth_tile<KIND, T> tile;
    enum { BYTES = (STAGES * tile::STAGE + tile::WINDOW_CHUNKS) * (int)sizeof(uint4) };
    auto kernel = conv_grad_weight<KIND, T>;
    const dim3 grid(pare_cuda_blocks((s->a.filters + T::BM - 1) / T::BM),
                    pare_cuda_blocks_beside((s->a.columns + T::BN - 1) / T::BN),
                    (unsigned)s->a.splits);
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, BYTES);
    if (error != cudaSuccess) return error;
    SIMT_LAUNCH(kernel, grid, dim3(T::THREADS), (size_t)BYTES, stream, s->a);
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    SIMT_LAUNCH(splits_join, pare_cuda_grid((int64_t)s->a.filters * s->a.columns),
                dim3(PARE_CUDA_BLOCK), 0, stream, s->a);
    return cudaGetLastError();
}

template <int KIND> static cudaError_t kind_launch(const weight_state *s, cudaStream_t stream)
{
    if (s->tall)
        return s->wide ? tile_launch<KIND, tile_128x128>(s, stream)
                       : tile_launch<KIND, tile_128x64>(s, stream);
    return s->wide ? tile_launch<KIND, tile_64x128>(s, stream)
                   : tile_launch<KIND, tile_64x64>(s, stream);
}

static cudaError_t weight_launch(const weight_state *s, cudaStream_t stream)
{
    switch (s->kind) {
    case PARE_f16: return kind_launch<PARE_f16>(s, stream);
    case PARE_bf16: return kind_launch<PARE_bf16>(s, stream);
    case PARE_f32: return kind_launch<PARE_f32>(s, stream);
    case PARE_CUDA_TF32: return kind_launch<PARE_CUDA_TF32>(s, stream);
    default: return cudaErrorInvalidValue;
    }
}

/* --- ConvGradWeight --- */

/* Elements from one position of Y to the next; -1: they are not evenly apart. */
static int64_t position_of(const pare_view *y, const int64_t stride[3])
{
    const int64_t width = y->dim[3], height = y->dim[2];
    const int64_t step = width > 1 ? stride[2] : height > 1 ? stride[1] : stride[0];
    const bool even = (width == 1 || height == 1 || stride[1] == width * step) &&
                      (y->dim[0] == 1 || stride[0] == width * height * step);
    return even ? step : -1;
}

/* Chunks from X's first to past its last, which a window counts in. */
static double chunks_of(const pare_cuda_conv_shape *s, int lot)
{
    return ((double)(s->images - 1) * (double)s->x[0] + (double)s->win.in[1] * (double)s->x[1] +
            (double)s->win.in[2] * (double)s->x[2]) /
           lot;
}

static bool can(const pare_prep *p)
{
    pare_cuda_conv_shape s;
    if (!pare_cuda_conv_shape_read(p, &s) || position_of(&p->in[0], s.y) < 0) return false;
    const pare_window *w = &s.win;
    return pare_cuda_gemm_counts((int64_t)s.channels * s.taps, s.images * w->out[1] * w->out[2]) &&
           chunks_of(&s, PARE_CUDA_CHUNK / pare_cuda_bytes(p->in[0].dtype)) < INT32_MAX;
}

/* The bits of taps of the window at (y, x) that are inside of the picture, whose first tap is at
   (*top, *left). */
static unsigned taps_inside(const pare_window *w, int64_t y, int64_t x, int64_t *top, int64_t *left)
{
    unsigned inside = 0;
    *top = y * w->stride[1] - w->begin[1], *left = x * w->stride[2] - w->begin[2];
    for (int64_t h = 0, tap = 0; h < w->kernel[1]; h++)
        for (int64_t l = 0; l < w->kernel[2]; l++, tap++) {
            const int64_t v = *top + h * w->dilation[1], u = *left + l * w->dilation[2];
            if (v >= 0 && v < w->in[1] && u >= 0 && u < w->in[2]) inside |= 1u << tap;
        }
    return inside;
}

static pare_status windows_make(pare_prep *p, const pare_cuda_conv_shape *shape, weight_state *s)
{
    enum { AHEAD = 4 * STAGES * PARE_CUDA_STEP / 2 };
    const pare_window *w = &shape->win;
    const int lot = PARE_CUDA_CHUNK / pare_cuda_bytes(p->in[0].dtype);
    const size_t count = (size_t)s->a.positions + AHEAD;
    conv_window *table = (conv_window *)pare_alloc(p->ctx, count, sizeof(conv_window)), *to = table;
    if (!table) return PARE_MEMORY;
    for (int64_t image = 0; image < shape->images; image++)
        for (int64_t y = 0; y < w->out[1]; y++)
            for (int64_t x = 0; x < w->out[2]; x++, to++) {
                int64_t top, left;
                to->inside = taps_inside(w, y, x, &top, &left);
                to->at =
                    (int)((image * shape->x[0] + top * shape->x[1] + left * shape->x[2]) / lot);
            }
    s->device = p->device;
    pare_status st = pare_cuda_copy_kept(p, &s->windows, table, count * sizeof *table);
    pare_free(table);
    return st;
}

/* So many that blocks fill the device, and that each has some steps: by shapes alone, since sums
   depend on it. */
static int splits_of(const weight_state *s, int bytes)
{
    const int rows = s->tall ? 128 : 64, columns = s->wide ? 128 : 64;
    const int64_t tiles =
        (int64_t)((s->a.filters + rows - 1) / rows) * ((s->a.columns + columns - 1) / columns);
    const int64_t wanted = 132 *
                           (s->tall && s->wide   ? 2
                            : s->tall || s->wide ? 3
                                                 : 4) /
                           tiles,
                  most = s->a.positions / (PARE_CUDA_STEP / bytes) / LEAST_STEPS;
    const int64_t splits = wanted < most ? wanted : most;
    return splits < 1 ? 1 : splits > MOST_SPLITS ? MOST_SPLITS : (int)splits;
}

static pare_status prepare(pare_prep *p)
{
    pare_cuda_conv_shape shape;
    weight_state *s = (weight_state *)pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    if (!pare_cuda_conv_shape_read(p, &shape)) return PARE_FAIL_NODE(p->node, INPUT, "no tiles");
    const pare_window *w = &shape.win;
    s->kind = pare_cuda_conv_kind(p);
    s->a.dtype = p->out[0].dtype;
    s->a.kernel_width = (int)w->kernel[2];
    s->a.line = (int)(w->dilation[1] * shape.x[1]), s->a.pixel = (int)(w->dilation[2] * shape.x[2]);
    s->a.y_position = position_of(&p->in[0], shape.y);
    s->a.filters = shape.filters, s->a.channels = shape.channels;
    s->a.columns = shape.channels * shape.taps, s->a.taps = shape.taps;
    s->a.by_columns = pare_cuda_fast_divisor_of(s->a.columns);
    s->a.by_channels = pare_cuda_fast_divisor_of(s->a.channels);
    s->a.positions = (int)(shape.images * w->out[1] * w->out[2]);
    s->tall = s->a.filters > 64, s->wide = s->a.columns > 64;
    s->a.splits = splits_of(s, pare_cuda_bytes(p->in[0].dtype));
    p->scratch = sizeof(float) * (size_t)s->a.splits * (size_t)s->a.filters * (size_t)s->a.columns;
    p->state = s;
    return windows_make(p, &shape, s);
}

static void release(void *state)
{
    weight_state *s = (weight_state *)state;
    if (s) s->device->backend->free(s->device, s->windows);
}

static pare_status run(const pare_call *c)
{
    weight_state s = *(const weight_state *)c->state;
    s.a.y = c->in[0].data;
    s.a.x = c->in[1].data;
    s.a.to = c->out[0].data;
    s.a.windows = (const conv_window *)s.windows;
    s.a.part = (float *)c->scratch;
    return PARE_CUDA_LAUNCH(c, weight_launch, &s);
}

const pare_kernel pare_cuda_conv_grad_weight_tile = {.name = "cuda_conv_grad_weight_tile",
                                                     .can = can,
                                                     .prepare = prepare,
                                                     .run = run,
                                                     .release = release};
