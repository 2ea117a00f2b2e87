/* SPDX-License-Identifier: Apache-2.0 */
/* A net's first convolution: pictures of up to four channels under windows at most eight pixels
   wide, on tensor cores. A block makes TILE_LINES x TILE_PIXELS positions of Y, of 64 or 32
   filters. The part of X under them lies in shared memory with four channels a pixel, so that eight
   neighbours, or four of 16 bits, are what one instruction takes of depth: a lane reads its words
   where they are, and nothing is copied for each tap. A line of the window is eight pixels of
   depth, whose last ones have weights of 0, and of floats are 0 themselves. */
#include "runtime/cuda/conv/conv_stem.cuh"

enum { TILE_LINES = 8, TILE_PIXELS = 16, BLOCKS = 4 /* that an SM should hold */ };
typedef tile_of<4, 1, 2, 8> stem_64;
typedef tile_of<4, 1, 2, 4> stem_32;

/* Shared memory, in bytes: rows of W, an odd number of chunks each, so that ldmatrix meets no bank
   twice; lines of X; where sums begin; Y. */
typedef struct stem_room {
    int w_chunks, x_pixels, x_lines; /* of a row of W; of X */
    int x, start, y, all;            /* where they are */
} stem_room;

template <typename T, int BYTES> struct y_room {
    enum { ALL = tile_room<T, BYTES>() };
};

template <typename T, int BYTES>
static __host__ __device__ inline stem_room room_of(const pare_cuda_gemm_args &p)
{
    stem_room r;
    const int lines = p.depth / PARE_CUDA_STEM_LINE;
    r.w_chunks = p.depth * BYTES / PARE_CUDA_CHUNK + 1;
    /* lots, the first of which may begin up to three pixels ahead */
    r.x_pixels =
        ((TILE_PIXELS - 1) * p.in.stride[1] + PARE_CUDA_STEM_WINDOW + 2 * (LOT - 1)) / LOT * LOT;
    r.x_lines = (TILE_LINES - 1) * p.in.stride[0] + lines;
    r.x = T::BN * r.w_chunks * PARE_CUDA_CHUNK;
    r.start = (r.x + r.x_lines * r.x_pixels * PARE_CUDA_STEM_CHANNELS * BYTES + 15) & ~15;
    r.y = r.start + T::BN * (int)sizeof(int);
    r.all = r.y + y_room<T, BYTES>::ALL;
    return r;
}

/* Positions of Y that a block makes: of image n, from a line and a pixel on. */
typedef struct stem_place {
    int n, line, pixel;
} stem_place;

SIMT_INLINE stem_place place_of(const pare_cuda_gemm_args &p, int tile)
{
    const int down = fast_divide(tile, p.in.by_width), n = fast_divide(down, p.in.by_height);
    const int across = (p.in.out_width + TILE_PIXELS - 1) / TILE_PIXELS,
              lines = (p.in.out_height + TILE_LINES - 1) / TILE_LINES;
    return {n, (down - n * lines) * TILE_LINES, (tile - down * across) * TILE_PIXELS};
}

/* --- what is brought --- */

template <typename T>
SIMT_INLINE void weights_bring(const pare_cuda_gemm_args &p, const operands &o, uint4 *to,
                               int w_chunks, int bytes)
{
    const int chunks = w_chunks - 1;
    const char *w = o.w + (int64_t)blockIdx.y * T::BN * p.w_row * bytes;
    PARE_ROLLED for (int l = (int)threadIdx.x / 32; l < T::BN; l += T::THREADS / 32)
        PARE_ROLLED for (int c = (int)threadIdx.x & 31; c < chunks; c += 32)
            simt_cp_async16_reused(to + l * w_chunks + c,
                                   w + line_column(l) * p.w_row * bytes + c * PARE_CUDA_CHUNK,
                                   PARE_CUDA_CHUNK);
    simt_cp_async_commit();
}

template <typename T, int PARTS, typename PART>
SIMT_INLINE void pixels_bring(const pare_cuda_gemm_args &p, const operands &o, const stem_place &at,
                              const stem_room &r, const pare_cuda_fast_divisor &by_lots,
                              bool packed, unsigned *to)
{
    const int top = at.line * p.in.stride[0] - p.in.begin[0],
              left = (at.pixel * p.in.stride[1] - p.in.begin[1]) & ~(LOT - 1),
              lots = r.x_pixels / LOT, count = r.x_lines * lots;
    const PART *x = reinterpret_cast<const PART *>(o.x) + at.n * p.in.image;
    PARE_ROLLED for (int i = (int)threadIdx.x; i < count; i += T::THREADS)
    {
        const int line = fast_divide(i, by_lots), h = top + line;
        pixel_lot<PARTS> lot;
        lot_read(p, packed, x + h * p.in.row, h, left + (i - line * lots) * LOT, lot);
        lot_store(lot, to + i * LOT * PARTS);
    }
}

/* --- sums --- */

/* A warp's rows are lines of Y; a lane reads its two pixels of each, and of depth its words. PARTS:
   instructions that a line of the window takes. The first line is apart: else the compiler copies
   sums, which begin as equal numbers, to and fro in the loop. */
template <int KIND, typename T, int PARTS>
SIMT_INLINE void window_sum(accumulators<KIND, T> &sums, const pare_cuda_gemm_args &p,
                            const unsigned *x, const uint4 *w, const stem_room &r)
{
    const int lane = (int)threadIdx.x & 31, first = (int)threadIdx.x / 32 * T::TM;
    const int pitch = r.x_pixels * PARTS, line = p.in.stride[0] * pitch,
              far = 8 * p.in.stride[1] * PARTS;
    const unsigned *mine = x + first * line + (-p.in.begin[1] & (LOT - 1)) * PARTS +
                           (lane >> 2) * p.in.stride[1] * PARTS + (lane & 3);
    const uint4 *ws = w + ((lane & 7) + (lane >> 4) * 8) * r.w_chunks + (lane >> 3 & 1);
    /* floats behind the window are 0: an infinity there is in no sum */
    unsigned inside[PARTS][2];
    PARE_UNROLL for (int part = 0; part < PARTS; part++) PARE_UNROLL for (int k = 0; k < 2; k++)
        inside[part][k] = part * 4 + k * 2 + (lane & 3) / 2 < p.in.kernel_width ? 0xffffffffu : 0;
    auto line_sum = [&] {
        PARE_UNROLL for (int part = 0; part < PARTS; part++)
        {
            unsigned a[T::TM][4], b[T::TN / 2][4];
            PARE_UNROLL for (int i = 0; i < T::TM; i++)
            {
                const unsigned *at = mine + i * line + part * 8;
                a[i][0] = at[0], a[i][1] = at[far], a[i][2] = at[4], a[i][3] = at[far + 4];
                if (PARTS > 1)
                    PARE_UNROLL for (int k = 0; k < 4; k++) a[i][k] &= inside[part][k / 2];
            }
            PARE_UNROLL for (int j = 0; j < T::TN / 2; j++)
                simt_ldmatrix_x4(b[j], ws + j * 16 * r.w_chunks + part * 2);
            PARE_UNROLL for (int i = 0; i < T::TM; i++) PARE_UNROLL for (int j = 0; j < T::TN; j++)
                multiply<KIND>(sums.at[i][j], a[i], &b[j / 2][j % 2 * 2]);
        }
        mine += pitch, ws += 2 * PARTS;
    };
    line_sum();
    PARE_ROLLED for (int left = p.depth / PARE_CUDA_STEM_LINE - 1; left > 0; left--) line_sum();
}

/* --- Y --- */

template <typename T, int BYTES>
SIMT_INLINE void positions_store(const pare_cuda_gemm_args &p, char *y, const char *tile,
                                 const stem_place &at)
{
    typedef tile_rows<T, BYTES> rows;
    const int first = (int)threadIdx.x / rows::PIECES;
    const int piece = (int)threadIdx.x % rows::PIECES * PARE_CUDA_CHUNK;
    const int64_t begin = (int64_t)at.n * p.in.out_height + at.line;
    PARE_UNROLL for (int i = 0; i < rows::MINE; i++)
    {
        const int row = first + i * rows::LINES, line = row / TILE_PIXELS,
                  pixel = row % TILE_PIXELS;
        if (at.line + line >= p.in.out_height || at.pixel + pixel >= p.in.out_width) continue;
        const int64_t position = (begin + line) * p.in.out_width + at.pixel + pixel;
        *reinterpret_cast<uint4 *>(y + position * p.y_row * BYTES + piece) =
            *reinterpret_cast<const uint4 *>(tile + row * rows::PITCH + piece);
    }
}

template <int KIND, typename T, int END>
static __global__ void __launch_bounds__(T::THREADS, BLOCKS)
    stem_tile(pare_cuda_gemm_args p, tile_clamp clamp, int tiles, pare_cuda_fast_divisor by_lots,
              bool packed)
{
    typedef typename kind_of<KIND>::sum sum;
    typedef typename kind_of<KIND>::element element;
    enum { BYTES = sizeof(element), PARTS = BYTES };
    SIMT_DYN_SHARED(uint4, shared);
    const stem_room r = room_of<T, BYTES>(p);
    const operands o = operands_of(p, 0, BYTES, BYTES, BYTES);
    char *room = reinterpret_cast<char *>(shared);
    const int n0 = (int)blockIdx.y * T::BN, column = (int)threadIdx.x;
    simt_dependency_wait();
    const column_constants mine = constants_read<sum>(p, o, n0 + column, column < T::BN);
    weights_bring<T>(p, o, shared, r.w_chunks, BYTES);
    PARE_ROLLED for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x)
    {
        accumulators<KIND, T> sums;
        const stem_place at = place_of(p, tile);
        pixels_bring<T, PARTS, typename word_part<BYTES>::type>(
            p, o, at, r, by_lots, packed, reinterpret_cast<unsigned *>(room + r.x));
        simt_cp_async_wait<0>();
        if constexpr (BYTES == 1) {
            accumulators_start(sums, (int)(0u - (unsigned)mine.shift),
                               reinterpret_cast<int *>(room + r.start));
        } else {
            accumulators_clear(sums);
            __syncthreads();
        }
        window_sum<KIND, T, PARTS>(sums, p, reinterpret_cast<const unsigned *>(room + r.x), shared,
                                   r);
        clamp_make<KIND, T, END>(p, clamp, sums, mine, room + r.y);
        positions_store<T, BYTES>(p, o.y + n0 * BYTES, room + r.y, at);
    }
    simt_dependents_launch();
}

/* --- launch --- */

static int tiles_across(const pare_cuda_gemm_args *p)
{
    return (p->in.out_width + TILE_PIXELS - 1) / TILE_PIXELS;
}

static int tiles_down(const pare_cuda_gemm_args *p)
{
    return (p->in.out_height + TILE_LINES - 1) / TILE_LINES;
}

/* A block has at most a few tiles, which share its weights, and no SM is without a block. */
static unsigned blocks_of(int tiles)
{
    enum { AT_ONCE = 132 * BLOCKS, MOST_EACH = 8 };
    const int each = tiles / AT_ONCE < 1           ? 1
                     : tiles / AT_ONCE > MOST_EACH ? MOST_EACH
                                                   : tiles / AT_ONCE;
    return (unsigned)((tiles + each - 1) / each);
}

template <int KIND, typename T, int END>
static cudaError_t stem_launch(const pare_cuda_gemm_args *p, const tile_clamp &clamp,
                               cudaStream_t stream)
{
    const int64_t images = p->rows / ((int64_t)p->in.out_height * p->in.out_width);
    const int tiles = (int)(images * tiles_across(p) * tiles_down(p));
    const stem_room r = room_of<T, (int)sizeof(typename kind_of<KIND>::element)>(*p);
    auto kernel = stem_tile<KIND, T, END>;
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, r.all);
    if (error != cudaSuccess) return error;
    PARE_LAUNCH_DEPENDENT(kernel, dim3(blocks_of(tiles), (unsigned)(p->columns / T::BN)),
                          dim3(T::THREADS), (size_t)r.all, stream, *p, clamp, tiles,
                          pare_cuda_fast_divisor_of(r.x_pixels / LOT),
                          stem_is_packed(*p) && (uintptr_t)p->x % PARE_CUDA_CHUNK == 0);
    return cudaGetLastError();
}

template <int KIND, int END>
static cudaError_t end_launch(const pare_cuda_gemm_args *p, const tile_clamp &clamp,
                              cudaStream_t stream)
{
    if (p->columns % stem_64::BN == 0) return stem_launch<KIND, stem_64, END>(p, clamp, stream);
    return stem_launch<KIND, stem_32, END>(p, clamp, stream);
}

template <int KIND>
static cudaError_t kind_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    if constexpr (sizeof(typename kind_of<KIND>::element) == 1) {
        const tile_clamp clamp = integer_clamp(p->epilogue);
        if (epilogue_of(*p) == EPILOGUE_BOUNDS)
            return end_launch<KIND, EPILOGUE_BOUNDS>(p, clamp, stream);
        return end_launch<KIND, EPILOGUE_CLAMP>(p, clamp, stream);
    } else {
        return end_launch<KIND, EPILOGUE_CLAMP>(p, float_clamp(p->epilogue.act), stream);
    }
}

void pare_cuda_stem_tiles(pare_cuda_gemm_args *p)
{
    p->in.by_width = pare_cuda_fast_divisor_of(tiles_across(p));
    p->in.by_height = pare_cuda_fast_divisor_of(tiles_down(p));
}

bool pare_cuda_stem_takes(const pare_cuda_gemm_args *p)
{
    enum { MOST_ROOM = 96 << 10 };
    const tile_epilogue end = epilogue_of(*p);
    const bool is_8bit = pare_type_is_int8(p->x_type);
    const int64_t window = (int64_t)p->depth / PARE_CUDA_STEM_LINE + p->in.stride[0] * 8;
    if ((end != EPILOGUE_CLAMP && end != EPILOGUE_BOUNDS) || p->columns % stem_32::BN ||
        window > 1024 || p->in.stride[1] > 64)
        return false;
    return (is_8bit ? room_of<stem_64, 1>(*p) : room_of<stem_64, 2>(*p)).all <= MOST_ROOM;
}

cudaError_t pare_cuda_stem_launch(const pare_cuda_gemm_args *p, cudaStream_t stream)
{
    switch (p->x_type) {
    case PARE_s8: return kind_launch<PARE_s8>(p, stream);
    case PARE_u8: return kind_launch<PARE_u8>(p, stream);
    case PARE_f16: return kind_launch<PARE_f16>(p, stream);
    default: return kind_launch<PARE_bf16>(p, stream);
    }
}
