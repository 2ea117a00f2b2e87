/* SPDX-License-Identifier: Apache-2.0 */
/* y = finish(sum over channels c: made[c] w[c]), where made = finish(sum over taps t: x[t, c] d[t,
   c]) is a depthwise convolution's, 3 x 3, one or two a step, of all channels: it is made in shared
   memory, as rows of the product that tensor cores add up, and is never stored.

   A block makes two strips of Y, 8 pixels wide and 8 lines high (4 where windows are two apart): of
   a line 16 positions, the rows of an instruction. A step of depth takes 64 bytes of channels of
   all positions under the strips' windows, copied a step ahead, makes its part of `made`, and adds
   the part that the step before has made. Outside of the picture X is its zero point. Each byte of
   X is read once a block of columns, and once more where the windows of strips meet. Rows in shared
   memory are 80 bytes apart (gemm/tile.cuh), those of X, too. */
#ifndef PARE_RUNTIME_CUDA_CONV_DEPTHWISE_TILE_CUH
#define PARE_RUNTIME_CUDA_CONV_DEPTHWISE_TILE_CUH

#include "runtime/cuda/conv/depthwise_tile.h"
#include "runtime/cuda/gemm/gemm_tiles.cuh"

#include <stddef.h>

enum {
    STRIP = PARE_CUDA_DEPTHWISE_STRIP,
    STRIPS = 2,
    POSITIONS = STRIP * STRIPS, /* of a line */
    KERNEL = 3,
    WARPS_DOWN = 4, /* warps of a block: along rows of Y, along columns */
    WARPS_ACROSS = 2,
    PITCH = ROW * PARE_CUDA_CHUNK /* bytes from one position to the next */
};

/* Of a strip: lines of Y, and what its windows cover of X. */
template <int STRIDE> struct strip_of {
    enum {
        LINES = STRIDE == 1 ? 8 : 4,
        HIGH = (LINES - 1) * STRIDE + KERNEL,
        WIDE = (STRIP - 1) * STRIDE + KERNEL,
        PIXELS = STRIPS * HIGH * WIDE
    };
};

template <int STRIDE, int COLUMNS> struct separable_tile {
    typedef tile_of<WARPS_DOWN, WARPS_ACROSS, strip_of<STRIDE>::LINES / WARPS_DOWN, COLUMNS / 16>
        type;
    enum { BLOCKS = COLUMNS > 64 ? 1 : 2 /* that an SM should hold */ };
};

/* What a kernel is given: the struct, and what is made of its epilogues. */
typedef struct separable_args {
    pare_cuda_separable s;
    tile_clamp made, end;
} separable_args;

/* The first position of a strip. */
typedef struct strip_spot {
    int image, line, pixel; /* of Y */
    bool there;
} strip_spot;

/* The strips are kept for the end: registers are few. */
template <typename T, int STRIDE, typename RECORD> struct separable_shared {
    strip_spot at[STRIPS];
    uint4 stage[2][T::STAGE]; /* rows of `made`, then of W */
    uint4 x[2][strip_of<STRIDE>::PIXELS * ROW];
    uint4 record[2][sizeof(RECORD) / sizeof(uint4)];
};

/* --- where --- */

template <int STRIDE> SIMT_INLINE strip_spot spot_find(const pare_cuda_separable &s, int which)
{
    const int strip = (int)blockIdx.x * STRIPS + which, down = fast_divide(strip, s.by_across),
              image = fast_divide(down, s.by_down);
    return {image, (down - image * s.down) * strip_of<STRIDE>::LINES,
            (strip - down * s.across) * STRIP, strip < s.strips};
}

SIMT_INLINE strip_spot spot_pick(const strip_spot at[STRIPS], int which)
{
    return which ? at[1] : at[0];
}

/* --- X under the windows, W, and what belongs to a step --- */

/* A thread copies one chunk of some positions, and of some columns of W; of a record one. */
template <typename T, int STRIDE> struct separable_copies {
    enum { LINES = T::THREADS / CHUNKS, PIXELS = (strip_of<STRIDE>::PIXELS + LINES - 1) / LINES };
    const char *from, *w, *record; /* of the next step */
    unsigned x[PIXELS];            /* bytes behind `from` */
    unsigned inside;               /* a bit of each position that is of the picture */
    int columns;                   /* that W has from the thread's first on */
    int to;                        /* chunk of a buffer */
};

/* Positions outside of the picture are written once, in both buffers. */
template <typename T, int STRIDE, int BYTES, typename SHARED>
SIMT_INLINE void copies_open(separable_copies<T, STRIDE> &c, const pare_cuda_separable &s,
                             const strip_spot at[STRIPS], int n0, SHARED &room)
{
    typedef strip_of<STRIDE> strip;
    enum { ALL = strip::HIGH * strip::WIDE };
    const pare_cuda_picture &in = s.d.in;
    const int chunk = (int)threadIdx.x % CHUNKS, first = (int)threadIdx.x / CHUNKS;
    const unsigned fill = s.d.fill;
    c.from = static_cast<const char *>(s.d.x);
    c.inside = 0;
    PARE_UNROLL for (int i = 0; i < separable_copies<T, STRIDE>::PIXELS; i++)
    {
        const int pixel = first + i * separable_copies<T, STRIDE>::LINES, which = pixel >= ALL,
                  l = (pixel - which * ALL) / strip::WIDE,
                  k = pixel - which * ALL - l * strip::WIDE;
        const strip_spot spot = spot_pick(at, which);
        const int line = spot.line * STRIDE - in.begin[0] + l,
                  column = spot.pixel * STRIDE - in.begin[1] + k;
        const bool inside = spot.there && pixel < strip::PIXELS &&
                            (unsigned)line < (unsigned)in.height &&
                            (unsigned)column < (unsigned)in.width;
        c.inside |= (unsigned)inside << i;
        c.x[i] = (unsigned)((spot.image * in.image + line * in.row + column * in.pixel) * BYTES +
                            chunk * PARE_CUDA_CHUNK);
        simt_opaque(c.x[i]);
        if (!inside && pixel < strip::PIXELS)
            room.x[0][pixel * ROW + chunk] = room.x[1][pixel * ROW + chunk] =
                make_uint4(fill, fill, fill, fill);
    }
    c.to = first * ROW + chunk;
    c.columns = s.p.columns - n0 - line_column(first);
    c.w = static_cast<const char *>(s.p.w) + (n0 + line_column(first)) * s.p.w_row * BYTES +
          chunk * PARE_CUDA_CHUNK;
    c.record = static_cast<const char *>(s.d.w) + threadIdx.x * PARE_CUDA_CHUNK;
    simt_opaque(c.to), simt_opaque(c.columns), simt_opaque(c.w), simt_opaque(c.record);
    simt_opaque(c.inside);
}

/* X, weights and constants of the next step, where there is one, into buffer `to`. */
template <typename T, int STRIDE, typename SHARED>
SIMT_INLINE void made_fetch(separable_copies<T, STRIDE> &c, bool next, bool inside, int to,
                            SHARED &room)
{
    enum {
        RECORD = sizeof room.record[0] / sizeof(uint4),
        BUFFER = strip_of<STRIDE>::PIXELS * ROW
    };
    const unsigned there = inside ? c.inside : 0;
    int chunk = c.to + to * BUFFER;
    simt_opaque(chunk);
    PARE_UNROLL for (int i = 0; i < separable_copies<T, STRIDE>::PIXELS; i++)
    {
        if (there & 1u << i)
            simt_cp_async16_reused(room.x[0] + chunk + i * separable_copies<T, STRIDE>::LINES * ROW,
                                   c.from + c.x[i], PARE_CUDA_CHUNK);
    }
    c.from += PARE_CUDA_STEP;
    if (next && (int)threadIdx.x < RECORD)
        simt_cp_async16_reused(room.record[0] + to * RECORD + threadIdx.x, c.record,
                               PARE_CUDA_CHUNK);
    c.record += sizeof room.record[0];
}

/* W of the next step; behind the depth, and the last column, 0. */
template <typename T, int STRIDE, typename SHARED>
SIMT_INLINE void weights_fetch(separable_copies<T, STRIDE> &c, int64_t apart, bool inside, int to,
                               SHARED &room)
{
    enum { LINES = separable_copies<T, STRIDE>::LINES };
    int chunk = c.to + to * T::STAGE + T::BM * ROW;
    simt_opaque(chunk);
    PARE_UNROLL for (int i = 0; i < T::BN; i += LINES)
    {
        if (i + LINES > T::BN && (int)threadIdx.x / CHUNKS + i >= T::BN) continue;
        simt_cp_async16_reused(room.stage[0] + chunk + i * ROW, c.w + i * apart,
                               inside && i < c.columns ? PARE_CUDA_CHUNK : 0);
    }
    c.w += PARE_CUDA_STEP;
}

/* --- Y --- */

/* A thread's pieces of the tile, LOT bytes each: each(byte of Y, byte of the tile, is it of Y?) */
template <typename T, int STRIDE, int BYTES, int LOT, typename EACH>
SIMT_INLINE void pieces_each(const pare_cuda_separable &s, const strip_spot at[STRIPS], int n0,
                             EACH each)
{
    enum { PIECES = T::BN * BYTES / LOT };
    const int columns = min(s.p.columns - n0, (int)T::BN) * BYTES;
    PARE_ROLLED for (int i = (int)threadIdx.x; i < T::BM * PIECES; i += T::THREADS)
    {
        const int row = i / PIECES, byte = i % PIECES * LOT;
        const strip_spot spot = spot_pick(at, row / STRIP % STRIPS);
        const int line = spot.line + row / POSITIONS, pixel = spot.pixel + row % STRIP;
        const bool there =
            spot.there && line < s.d.in.out_height && pixel < s.d.in.out_width && byte < columns;
        const int64_t position =
            ((int64_t)spot.image * s.d.in.out_height + line) * s.d.in.out_width + pixel;
        each(there ? (position * s.p.y_row + n0) * BYTES + byte : 0,
             row * tile_rows<T, BYTES>::PITCH + byte, there);
    }
}

/* What is not of Y is 0. */
template <typename T, int STRIDE, int BYTES>
SIMT_INLINE void residual_bring(const pare_cuda_separable &s, const strip_spot at[STRIPS], int n0,
                                char *tile)
{
    const char *z = static_cast<const char *>(s.p.z);
    if (s.wide)
        pieces_each<T, STRIDE, BYTES, 16>(s, at, n0, [&](int64_t far, int near, bool there) {
            simt_cp_async16(tile + near, z + far, there ? 16 : 0);
        });
    else
        pieces_each<T, STRIDE, BYTES, 8>(s, at, n0, [&](int64_t far, int near, bool there) {
            simt_cp_async8(tile + near, z + far, there ? 8 : 0);
        });
    simt_cp_async_commit();
}

template <typename T, int STRIDE, int BYTES>
SIMT_INLINE void pieces_store(const pare_cuda_separable &s, const strip_spot at[STRIPS], int n0,
                              const char *tile)
{
    char *y = static_cast<char *>(s.p.y);
    if (s.wide)
        pieces_each<T, STRIDE, BYTES, 16>(s, at, n0, [&](int64_t far, int near, bool there) {
            if (there)
                *reinterpret_cast<uint4 *>(y + far) = *reinterpret_cast<const uint4 *>(tile + near);
        });
    else
        pieces_each<T, STRIDE, BYTES, 8>(s, at, n0, [&](int64_t far, int near, bool there) {
            if (there)
                *reinterpret_cast<uint2 *>(y + far) = *reinterpret_cast<const uint2 *>(tile + near);
        });
}

/* --- the kernel. MAKER: `record`; make(args, record, x, rows, chunks), which makes a step's rows
   of 64 bytes of the windows in x, zeros behind so many chunks --- */

template <int KIND, int STRIDE, int COLUMNS, int END, typename MAKER>
static __global__ void __launch_bounds__(WARPS_DOWN *WARPS_ACROSS * 32,
                                         separable_tile<STRIDE, COLUMNS>::BLOCKS)
    separable(separable_args a)
{
    typedef typename separable_tile<STRIDE, COLUMNS>::type tile;
    typedef typename kind_of<KIND>::sum sum;
    typedef separable_shared<tile, STRIDE, typename MAKER::record> room_type;
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    SIMT_DYN_SHARED(uint4, shared);
    room_type &room = *reinterpret_cast<room_type *>(shared);
    const pare_cuda_separable &s = a.s;
    const operands o = operands_of(s.p, 0, BYTES, BYTES, BYTES);
    const int n0 = (int)blockIdx.y * COLUMNS, column = n0 + (int)threadIdx.x;
    const bool there = (int)threadIdx.x < COLUMNS && column < s.p.columns;
    const int chunks = s.p.depth * BYTES / PARE_CUDA_CHUNK, mine = (int)threadIdx.x % CHUNKS;
    separable_copies<tile, STRIDE> copies;
    accumulators<KIND, tile> sums;
    const MAKER maker = MAKER::open();
    simt_dependency_wait();
    {
        const strip_spot at[STRIPS] = {spot_find<STRIDE>(s, 0), spot_find<STRIDE>(s, 1)};
        copies_open<tile, STRIDE, BYTES>(copies, s, at, n0, room);
        if (threadIdx.x == 0) room.at[0] = at[0], room.at[1] = at[1];
    }
    made_fetch(copies, true, mine < chunks, 0, room);
    simt_cp_async_commit();
    if constexpr (BYTES == 1)
        accumulators_start(sums,
                           (int)(0u - (unsigned)constants_read<sum>(s.p, o, column, there).shift),
                           reinterpret_cast<int *>(room.stage[1]));
    else
        accumulators_clear(sums);
    int now = 0; /* the step's buffer */
    PARE_ROLLED for (int left = chunks; left > 0; left -= CHUNKS, now ^= 1)
    {
        simt_cp_async_wait<0>();
        __syncthreads();
        weights_fetch(copies, s.p.w_row * BYTES, mine < left, now, room);
        made_fetch(copies, CHUNKS < left, mine + CHUNKS < left, now ^ 1, room);
        simt_cp_async_commit();
        MAKER::make(maker, a, room.record[now], room.x[now], room.stage[now], left);
        if (left < chunks) mma_stage(sums, room.stage[now ^ 1]);
    }
    simt_dependents_launch();
    simt_cp_async_wait<0>();
    __syncthreads();
    char *y = reinterpret_cast<char *>(room.x);
    const strip_spot at[STRIPS] = {room.at[0], room.at[1]};
    const column_constants k = constants_read<sum>(s.p, o, column, there);
    if (end_of<END>::RESIDUAL) residual_bring<tile, STRIDE, BYTES>(s, at, n0, y);
    mma_stage(sums, room.stage[now ^ 1]);
    if (end_of<END>::RESIDUAL) simt_cp_async_wait<0>();
    clamp_make<KIND, tile, END>(s.p, a.end, sums, k, y);
    pieces_store<tile, STRIDE, BYTES>(s, at, n0, y);
}

/* --- launch --- */

template <int KIND, int STRIDE, int COLUMNS, int END, typename MAKER>
static cudaError_t separable_tile_launch(const separable_args &a, cudaStream_t stream)
{
    typedef typename separable_tile<STRIDE, COLUMNS>::type tile;
    typedef separable_shared<tile, STRIDE, typename MAKER::record> room_type;
    enum {
        BYTES = sizeof(typename kind_of<KIND>::element),
        Y_END = offsetof(room_type, x) + tile_room<tile, BYTES>(),
        ROOM = Y_END > sizeof(room_type) ? Y_END : sizeof(room_type)
    };
    auto kernel = separable<KIND, STRIDE, COLUMNS, END, MAKER>;
    const dim3 grid((unsigned)((a.s.strips + STRIPS - 1) / STRIPS),
                    pare_cuda_blocks_beside((a.s.p.columns + COLUMNS - 1) / COLUMNS));
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, (int)ROOM);
    if (error != cudaSuccess) return error;
    PARE_LAUNCH_DEPENDENT(kernel, grid, dim3(tile::THREADS), (size_t)ROOM, stream, a);
    return cudaGetLastError();
}

template <int KIND, int STRIDE, int END, typename MAKER>
static cudaError_t separable_columns_launch(const separable_args &a, cudaStream_t stream)
{
    switch (a.s.columns) {
    case 32: return separable_tile_launch<KIND, STRIDE, 32, END, MAKER>(a, stream);
    case 64: return separable_tile_launch<KIND, STRIDE, 64, END, MAKER>(a, stream);
    case 96: return separable_tile_launch<KIND, STRIDE, 96, END, MAKER>(a, stream);
    default: return separable_tile_launch<KIND, STRIDE, 128, END, MAKER>(a, stream);
    }
}

#endif
