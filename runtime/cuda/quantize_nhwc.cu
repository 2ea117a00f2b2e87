/* SPDX-License-Identifier: Apache-2.0 */
/* The front end of a quantized net: QuantizeLinear with one scale of an N, C, H, W tensor into
   N, H, W, C order, and of stored pixels (runtime/base/pixels.h) that would become floats first.
     y[n, p, c] = clamp(rint(x[n, c, p] / scale) + zero)
     y[i] = clamp(rint(table[channel of i][pixel i] / scale) + zero)
   p: position in a plane. Bytes moved: x once, y once. A block takes a tile of positions and
   channels: reads along positions, four a thread, changes the order of the bytes in shared memory,
   writes along channels, up to 16 bytes a thread. Pixels go through a table of codes that each
   block makes in shared memory, so that nothing is divided for each of them. */
#include "runtime/cuda/quantize.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/quantize.cuh"
#include "runtime/cuda/device/vec_number.cuh"
#include "runtime/cuda/kernel.h"

enum {
    AT_ONCE = 4,       /* vectors that a thread has on their way */
    VALUES = 16,       /* that a thread takes of a tile */
    PICTURE = 4,       /* channels of pictures: their tiles' bytes lie together in y */
    CHANNELS = 64,     /* of a tile */
    PAD = 4,           /* bytes after a position's, so that lanes write to different banks */
    TILE_BYTES = 5120, /* of 16 channels and 256 positions, the largest */
    MOST_IMAGES = 65535
};

/* Where codes come from beside x. */
typedef struct coding {
    const void *scale, *zero; /* of the whole tensor, on the device; zero NULL: 0 */
    pare_dtype s_type, y_type;
    const float *table; /* (table_channels, 256): of pixels */
    int table_channels;
} coding;

typedef struct tiling {
    const void *x; /* (N, C, H, W) */
    uint8_t *y;    /* (N, H, W, C) */
    pare_dtype x_type;
    int64_t images, positions, channels;
    int shift;         /* a tile has 1 << shift positions */
    int tile_channels; /* at most */
    int pitch;         /* bytes from one position to the next in shared memory */
    int step;          /* bytes of a store: 16, 4, 1 */
    bool whole;        /* a tile's bytes lie together in y */
} tiling;

typedef struct quantizer {
    float scale, zero;
    code_limits limits;
} quantizer;

SIMT_INLINE quantizer quantizer_of(const coding &c)
{
    quantizer q;
    q.scale = pare_number_at(c.scale, c.s_type, 0);
    q.zero = !c.zero               ? 0.0f
             : c.y_type == PARE_s8 ? (float)*static_cast<const int8_t *>(c.zero)
                                   : (float)*static_cast<const uint8_t *>(c.zero);
    q.limits = code_limits_of(c.y_type);
    return q;
}

SIMT_INLINE uint8_t code_by(const quantizer &q, float x)
{
    return code_of(x, q.scale, q.zero, q.limits);
}

/* codes[channel * 256 + pixel], in shared memory: a barrier follows. */
SIMT_INLINE void codes_make(const coding &c, uint8_t *codes)
{
    const quantizer q = quantizer_of(c);
    for (int i = (int)threadIdx.x; i < c.table_channels * 256; i += PARE_CUDA_BLOCK)
        codes[i] = code_by(q, __ldg(c.table + i));
}

/* --- from planes to pixels --- */

/* The block's tile of image n; W: 4 neighbours, or 1. */
typedef struct corner {
    int64_t image, position, channel;
    int positions, channels; /* that are inside the tensor */
} corner;

SIMT_INLINE corner corner_of(const tiling &t, int64_t image)
{
    corner at;
    at.image = image;
    at.position = (int64_t)blockIdx.x << t.shift;
    at.channel = (int64_t)blockIdx.y * t.tile_channels;
    const int64_t positions = t.positions - at.position, channels = t.channels - at.channel;
    at.positions = positions < 1 << t.shift ? (int)positions : 1 << t.shift;
    at.channels = channels < t.tile_channels ? (int)channels : t.tile_channels;
    return at;
}

/* Vector j of a thread: its channel, and the position it begins at. */
template <int W> SIMT_INLINE void vector_at(const tiling &t, int j, int *channel, int *position)
{
    const int across = t.shift - (W == 4 ? 2 : 0), at = j * PARE_CUDA_BLOCK + (int)threadIdx.x;
    *channel = at >> across;
    *position = (at - (*channel << across)) * W;
}

SIMT_INLINE bool is_inside(const corner &at, int channel, int position)
{
    return channel < at.channels && position < at.positions;
}

/* Vectors first to first + AT_ONCE: all are loaded before the first of them is looked at. */
template <int W>
SIMT_INLINE void floats_read(const tiling &t, const quantizer &q, const corner &at, int first,
                             uint8_t *tile)
{
    const int64_t from = (at.image * t.channels + at.channel) * t.positions + at.position;
    float v[AT_ONCE][W];
    int c, p;
    PARE_UNROLL for (int j = 0; j < AT_ONCE; j++)
    {
        vector_at<W>(t, first + j, &c, &p);
        PARE_UNROLL for (int k = 0; k < W; k++) v[j][k] = 0;
        if (is_inside(at, c, p))
            vec_load_floats<W>(t.x, t.x_type, from + c * t.positions + p, 1, v[j]);
    }
    PARE_UNROLL for (int j = 0; j < AT_ONCE; j++)
    {
        vector_at<W>(t, first + j, &c, &p);
        if (is_inside(at, c, p))
            PARE_UNROLL for (int k = 0; k < W; k++) tile[(p + k) * t.pitch + c] =
                code_by(q, v[j][k]);
    }
}

template <int W>
SIMT_INLINE void pixels_read(const tiling &t, const uint8_t *codes, int table_channels,
                             const corner &at, int first, uint8_t *tile)
{
    const uint8_t *x =
        static_cast<const uint8_t *>(t.x) + at.image * t.channels * t.positions + at.position;
    uint8_t v[AT_ONCE][W];
    int c, p;
    PARE_UNROLL for (int j = 0; j < AT_ONCE; j++)
    {
        vector_at<W>(t, first + j, &c, &p);
        PARE_UNROLL for (int k = 0; k < W; k++) v[j][k] = 0;
        if (is_inside(at, c, p)) vec_load<W>(x, c * t.positions + p, 1, v[j]);
    }
    PARE_UNROLL for (int j = 0; j < AT_ONCE; j++)
    {
        vector_at<W>(t, first + j, &c, &p);
        const uint8_t *code = codes + (table_channels > 1 ? c * 256 : 0);
        if (is_inside(at, c, p))
            PARE_UNROLL for (int k = 0; k < W; k++) tile[(p + k) * t.pitch + c] = code[v[j][k]];
    }
}

/* V bytes from shared memory, at a multiple of 4 where V is more than 1. */
template <int V> SIMT_INLINE void bytes_store(uint8_t *y, const uint8_t *from)
{
    if constexpr (V == 1) {
        *y = *from;
    } else {
        uint32_t word[V / 4];
        PARE_UNROLL for (int k = 0; k < V / 4; k++) word[k] =
            reinterpret_cast<const uint32_t *>(from)[k];
        vec_store<V / 4>(reinterpret_cast<uint32_t *>(y), 0, word);
    }
}

template <int V> SIMT_INLINE void tile_write(const tiling &t, const corner &at, const uint8_t *tile)
{
    const int rows = t.whole ? 1 : at.positions,
              run = (t.whole ? at.positions * at.channels : at.channels) / V;
    uint8_t *y = t.y + (at.image * t.positions + at.position) * t.channels + at.channel;
    for (int i = (int)threadIdx.x; i < rows * run; i += PARE_CUDA_BLOCK) {
        const int row = t.whole ? 0 : (int)((unsigned)i / (unsigned)run),
                  byte = (i - row * run) * V;
        bytes_store<V>(y + row * t.channels + byte, tile + row * t.pitch + byte);
    }
}

SIMT_INLINE void tile_store(const tiling &t, const corner &at, const uint8_t *tile)
{
    if (t.step == 16)
        tile_write<16>(t, at, tile);
    else if (t.step == 4)
        tile_write<4>(t, at, tile);
    else
        tile_write<1>(t, at, tile);
}

template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) quantize_tiles(tiling t, coding c)
{
    pare_dependent_begin();
    SIMT_SHARED(uint4, room, [TILE_BYTES / 16]);
    uint8_t *tile = reinterpret_cast<uint8_t *>(room);
    const quantizer q = quantizer_of(c);
    for (int64_t n = blockIdx.z; n < t.images; n += gridDim.z) {
        const corner at = corner_of(t, n);
        PARE_ROLLED for (int first = 0; first < VALUES / W; first += AT_ONCE)
            floats_read<W>(t, q, at, first, tile);
        __syncthreads();
        tile_store(t, at, tile);
        __syncthreads();
    }
}

template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) quantize_pixel_tiles(tiling t, coding c)
{
    pare_dependent_begin();
    SIMT_SHARED(uint4, room, [TILE_BYTES / 16]);
    SIMT_SHARED(uint8_t, codes, [PICTURE * 256]);
    uint8_t *tile = reinterpret_cast<uint8_t *>(room);
    codes_make(c, codes);
    __syncthreads();
    for (int64_t n = blockIdx.z; n < t.images; n += gridDim.z) {
        const corner at = corner_of(t, n);
        PARE_ROLLED for (int first = 0; first < VALUES / W; first += AT_ONCE)
            pixels_read<W>(t, codes, c.table_channels, at, first, tile);
        __syncthreads();
        tile_store(t, at, tile);
        __syncthreads();
    }
}

/* --- pixels in y's order --- */

typedef struct pixel_rows {
    const uint8_t *x;
    uint8_t *y;
    int64_t samples;
    int count;                              /* pixels of a sample, all channels */
    pare_cuda_fast_divisor inner, channels; /* of pixel i: i / inner % channels is its channel */
} pixel_rows;

/* W: 16 neighbours, or 1. */
template <int W>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK)
    quantize_pixel_rows(pixel_rows r, coding c)
{
    pare_dependent_begin();
    SIMT_SHARED(uint8_t, codes, [PICTURE * 256]);
    codes_make(c, codes);
    __syncthreads();
    for (int64_t n = blockIdx.y; n < r.samples; n += gridDim.y) {
        PARE_CUDA_EACH (i, r.count / W) {
            const int first = (int)i * W, row = fast_divide(first, r.inner);
            int left = r.inner.by - (first - row * r.inner.by);
            int channel = row - fast_divide(row, r.channels) * r.channels.by;
            uint8_t v[W];
            vec_load<W>(r.x + n * r.count, first, 1, v);
            PARE_UNROLL for (int k = 0; k < W; k++)
            {
                v[k] = codes[channel * 256 + v[k]];
                if (--left) continue;
                left = r.inner.by;
                channel = channel + 1 < r.channels.by ? channel + 1 : 0;
            }
            vec_store<W>(r.y + n * r.count, first, v);
        }
    }
}

/* --- launchers --- */

static int64_t tiles_across(const tiling *t)
{
    return (t->positions + (1 << t->shift) - 1) >> t->shift;
}

static int64_t tiles_down(const tiling *t)
{
    return (t->channels + t->tile_channels - 1) / t->tile_channels;
}

/* Images beside each other until the device is full; then a block goes from one to the next. */
static unsigned images_beside(int64_t images, int64_t blocks)
{
    int64_t most = PARE_CUDA_MOST_BLOCKS / (blocks > 0 ? blocks : 1);
    most = most < 1 ? 1 : most;
    most = most < images ? most : images;
    if (most > MOST_IMAGES) most = MOST_IMAGES;
    return (unsigned)most;
}

static cudaError_t tiles_launch(const tiling *t, const coding *c, cudaStream_t stream)
{
    const int64_t across = tiles_across(t), down = tiles_down(t);
    const dim3 grid(pare_cuda_blocks(across), pare_cuda_blocks_beside(down),
                    images_beside(t->images, across * down));
    const dim3 block(PARE_CUDA_BLOCK);
    const bool four = t->positions % 4 == 0 && (uintptr_t)t->x % 16 == 0;
    if (c->table && four)
        PARE_LAUNCH_DEPENDENT(quantize_pixel_tiles<4>, grid, block, 0, stream, *t, *c);
    else if (c->table)
        PARE_LAUNCH_DEPENDENT(quantize_pixel_tiles<1>, grid, block, 0, stream, *t, *c);
    else if (four)
        PARE_LAUNCH_DEPENDENT(quantize_tiles<4>, grid, block, 0, stream, *t, *c);
    else
        PARE_LAUNCH_DEPENDENT(quantize_tiles<1>, grid, block, 0, stream, *t, *c);
    return cudaGetLastError();
}

static cudaError_t rows_launch(const pixel_rows *r, const coding *c, cudaStream_t stream)
{
    const bool wide = r->count % 16 == 0 && ((uintptr_t)r->x | (uintptr_t)r->y) % 16 == 0;
    dim3 grid = pare_cuda_grid(wide ? r->count / 16 : r->count);
    grid.y = images_beside(r->samples, grid.x);
    if (wide)
        PARE_LAUNCH_DEPENDENT(quantize_pixel_rows<16>, grid, dim3(PARE_CUDA_BLOCK), 0, stream, *r,
                              *c);
    else
        PARE_LAUNCH_DEPENDENT(quantize_pixel_rows<1>, grid, dim3(PARE_CUDA_BLOCK), 0, stream, *r,
                              *c);
    return cudaGetLastError();
}

/* --- QuantizeLinear --- */

static coding coding_of(const pare_call *call)
{
    const bool zeroed = call->in_count > 2 && call->in[2].dtype;
    coding c = {};
    c.scale = call->in[1].data;
    c.zero = zeroed ? call->in[2].data : NULL;
    c.s_type = call->in[1].dtype;
    c.y_type = call->out[0].dtype;
    return c;
}

static tiling tiling_of(const pare_view *x, const pare_view *y)
{
    tiling t = {};
    t.x = x->data;
    t.y = static_cast<uint8_t *>(y->data);
    t.x_type = x->dtype;
    t.images = x->dim[0], t.channels = x->dim[1];
    t.positions = x->dim[2] * x->dim[3];
    t.whole = t.channels <= PICTURE;
    t.tile_channels = t.channels < CHANNELS ? (int)t.channels : CHANNELS;
    t.shift = t.whole ? 10 : t.channels <= 16 ? 8 : 6;
    t.pitch = t.whole ? (int)t.channels : t.tile_channels + PAD;
    const int64_t apart = t.whole ? t.positions * t.channels : t.channels;
    const uintptr_t lies = (uintptr_t)t.y | (uintptr_t)apart;
    t.step = lies % 16 == 0 ? 16 : lies % 4 == 0 ? 4 : 1;
    return t;
}

static bool turns(const pare_view *x, const pare_view *y)
{
    return x->rank == 4 && pare_view_rowmajor(x) && pare_view_nhwc(y) &&
           !pare_view_same_order(x, y);
}

static bool nhwc_can(const pare_prep *p)
{
    const pare_view *x = &p->in[0], *y = &p->out[0];
    return pare_cuda_quantize_can(p) && turns(x, y) && pare_view_count(&p->in[1]) == 1 &&
           x->dim[1] / CHANNELS < MOST_IMAGES;
}

static pare_status nhwc_run(const pare_call *call)
{
    if (call->pixels) return pare_cuda_quantize_pixels(call);
    const tiling t = tiling_of(&call->in[0], &call->out[0]);
    const coding c = coding_of(call);
    return pare_view_count(&call->out[0]) ? PARE_CUDA_LAUNCH(call, tiles_launch, &t, &c) : PARE_OK;
}

extern "C" const pare_kernel pare_cuda_quantize_nhwc = {.name = "cuda_quantize_nhwc",
                                                        .can = nhwc_can,
                                                        .run = nhwc_run,
                                                        .takes_pixels =
                                                            pare_cuda_quantize_takes_pixels};

/* --- of stored pixels --- */

static bool is_transposed(const pare_pixels *p) { return p->rows > 1 && p->columns > 1; }

/* Channels of an N, C, H, W tensor whose samples are the pixels'. */
static bool is_picture(const pare_view *x, const pare_pixels *p)
{
    const int64_t positions = x->dim[2] * x->dim[3];
    return p->count == x->dim[1] * positions && x->dim[1] <= PICTURE &&
           (p->channels == 1 || (p->channels == x->dim[1] && p->inner == positions)) &&
           (!is_transposed(p) || (p->rows == positions && p->columns == x->dim[1]));
}

bool pare_cuda_quantize_takes_pixels(const pare_call *call, const pare_pixels *p)
{
    const pare_view *x = &call->in[0], *y = &call->out[0];
    const int64_t n = pare_view_count(x);
    if (x->dtype != PARE_f32 || pare_view_count(&call->in[1]) != 1 || p->channels > PICTURE ||
        p->count < 1 || p->count > INT32_MAX || n % p->count || p->count % (p->inner * p->channels))
        return false;
    if (turns(x, y)) return is_picture(x, p);
    return pare_view_same_order(x, y) && pare_view_rowmajor(x) && !is_transposed(p);
}

pare_status pare_cuda_quantize_pixels(const pare_call *call)
{
    const pare_pixels *p = call->pixels;
    const pare_view *y = &call->out[0];
    coding c = coding_of(call);
    c.table = p->table;
    c.table_channels = (int)p->channels;
    if (pare_view_count(y) == 0) return PARE_OK;
    if (turns(&call->in[0], y) && !is_transposed(p)) {
        tiling t = tiling_of(&call->in[0], y);
        t.x = call->raw;
        return PARE_CUDA_LAUNCH(call, tiles_launch, &t, &c);
    }
    const int inner = is_transposed(p) ? 1 : (int)p->inner;
    pixel_rows r = {};
    r.x = call->raw;
    r.y = static_cast<uint8_t *>(y->data);
    r.samples = pare_view_count(y) / p->count;
    r.count = (int)p->count;
    r.inner = pare_cuda_fast_divisor_of(p->channels > 1 ? inner : r.count);
    r.channels = pare_cuda_fast_divisor_of(c.table_channels);
    return PARE_CUDA_LAUNCH(call, rows_launch, &r, &c);
}
