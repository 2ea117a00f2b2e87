/* SPDX-License-Identifier: Apache-2.0 */
/* A net's first convolution with the MaxPool behind it. What follows a sum (bias, scale, rounding,
   bounds) keeps the order of a filter's sums, so that the largest sum of a pool's window makes the
   largest output: a quarter of them is finished, and the convolution's own positions are never
   stored.

   A block makes a strip of Y and walks down it. A step adds two lines of the convolution, and with
   the last line of the step before makes one of Y. The lines of X are in a ring in shared memory,
   four channels a pixel as in conv_stem.cu; those of the next step are read ahead of the sums and
   put into the ring behind them. A warp has 16 positions of each line: a lane those at 2 g and
   2 g + 1, and a window's third is the first of four lanes on, so that a window three wide leaves a
   warp seven outputs, which its neighbour's overlap. W's rows are in an order that gives a lane
   neighbouring filters, stored 16 bytes at once. Floats are compared as Y's type holds them, with
   their bias; a NaN is the largest. */
#include "runtime/cuda/conv/conv_stem_pool.h"
#include "runtime/cuda/conv/conv_stem.cuh"

enum {
    WARPS = 4,
    THREADS = WARPS * 32,
    BLOCKS = 3, /* that an SM should hold */
    PROCESSORS = 132,
    APART = PARE_CUDA_STEM_POOL_APART,
    POSITIONS = 16,                 /* of the convolution, of a warp's line */
    PIXELS = POSITIONS / APART - 1, /* of Y, of the same */
    LINES = PARE_CUDA_STEM_WINDOW,  /* of a window, at most */
    STEP = 2 * APART,               /* lines of X from a step to the next: one of each warp */
    RING = 16,                      /* lines of X: those that a step reads and brings, at least */
    LINE = 32 * LOT,                /* pixels of X */
    AHEAD = 2                       /* lines that a block's beginning takes as long as */
};
static_assert(STEP == WARPS && RING >= LINES + APART + STEP, "a step brings a line a warp");
static_assert(LINE >= (((WARPS - 1) * PIXELS * APART + POSITIONS - 1) * APART +
                       PARE_CUDA_STEM_WINDOW + LOT - 1),
              "a line has what four warps read, from a multiple of a lot on");

/* Two filters of a position: integer sums, or floats of Y's type. */
template <int KIND> struct cell_of {
    typedef typename pair_of<KIND>::type type;
};
template <> struct cell_of<PARE_s8> {
    typedef int2 type;
};
template <> struct cell_of<PARE_u8> {
    typedef int2 type;
};

SIMT_INLINE int2 most(int2 a, int2 b) { return make_int2(max(a.x, b.x), max(a.y, b.y)); }
SIMT_INLINE __half2 most(__half2 a, __half2 b) { return __hmax2_nan(a, b); }
SIMT_INLINE __nv_bfloat162 most(__nv_bfloat162 a, __nv_bfloat162 b) { return __hmax2_nan(a, b); }

SIMT_INLINE void lowest(int &v) { v = INT_MIN; }
SIMT_INLINE void lowest(float &v) { v = -INFINITY; }
SIMT_INLINE void lowest(int2 &v) { v = make_int2(INT_MIN, INT_MIN); }
SIMT_INLINE void lowest(__half2 &v) { v = __floats2half2_rn(-INFINITY, -INFINITY); }
SIMT_INLINE void lowest(__nv_bfloat162 &v) { v = __floats2bfloat162_rn(-INFINITY, -INFINITY); }

SIMT_INLINE void pair_make(float2 v, __half2 &to) { to = __floats2half2_rn(v.x, v.y); }
SIMT_INLINE void pair_make(float2 v, __nv_bfloat162 &to) { to = __floats2bfloat162_rn(v.x, v.y); }

SIMT_INLINE void cell_make(const int sum[2], const float *, int2 &v)
{
    v = make_int2(sum[0], sum[1]);
}
template <typename PAIR> SIMT_INLINE void cell_make(const float sum[2], const float *bias, PAIR &v)
{
    pair_make(make_float2(sum[0] + bias[0], sum[1] + bias[1]), v);
}

/* That of the lane so many on. */
SIMT_INLINE int2 next_of(int2 v, int lanes)
{
    return make_int2(__shfl_down_sync(0xffffffffu, v.x, lanes),
                     __shfl_down_sync(0xffffffffu, v.y, lanes));
}
template <typename PAIR> SIMT_INLINE PAIR next_of(PAIR v, int lanes)
{
    const unsigned next =
        __shfl_down_sync(0xffffffffu, *reinterpret_cast<const unsigned *>(&v), lanes);
    return *reinterpret_cast<const PAIR *>(&next);
}

/* Bits of v where those of `where` are set, else of w: no branch, no memory. */
SIMT_INLINE int bits_pick(int v, int w, unsigned where)
{
    return (int)(((unsigned)v & where) | ((unsigned)w & ~where));
}
SIMT_INLINE int2 bits_pick(int2 v, int2 w, unsigned where)
{
    return make_int2(bits_pick(v.x, w.x, where), bits_pick(v.y, w.y, where));
}
template <typename PAIR> SIMT_INLINE PAIR bits_pick(PAIR v, PAIR w, unsigned where)
{
    const int bits =
        bits_pick(*reinterpret_cast<const int *>(&v), *reinterpret_cast<const int *>(&w), where);
    return *reinterpret_cast<const PAIR *>(&bits);
}

/* --- shared memory: rows of W, an odd number of chunks each; constants; lines of X --- */

template <int FILTERS> struct filter_constants {
    float scale[FILTERS], bias[FILTERS];
    int shift[FILTERS];
};

/* Of a line of W, in chunks. */
template <int BYTES> struct weight_line {
    enum { CHUNKS = LINES * PARE_CUDA_STEM_LINE * BYTES / PARE_CUDA_CHUNK + 1 };
};

template <int FILTERS, int BYTES> struct stem_shared {
    uint4 w[FILTERS][weight_line<BYTES>::CHUNKS];
    filter_constants<FILTERS> k;
    unsigned x[RING][LINE * BYTES];
};

/* Line l of W in shared memory: sums 2 q, 2 q + 1 of all instructions are neighbours. */
template <int FILTERS> SIMT_INLINE int filter_of(int l)
{
    return (l & 7) / 2 * (FILTERS / 4) + l / 8 * 2 + (l & 1);
}

template <int FILTERS, int BYTES>
SIMT_INLINE void weights_bring(const pare_cuda_gemm_args &p, const operands &o,
                               stem_shared<FILTERS, BYTES> &to)
{
    const int chunks = p.depth * BYTES / PARE_CUDA_CHUNK;
    const char *w = o.w + (int64_t)blockIdx.y * FILTERS * p.w_row * BYTES;
    PARE_ROLLED for (int l = (int)threadIdx.x / 32; l < FILTERS; l += WARPS)
        PARE_ROLLED for (int c = (int)threadIdx.x & 31; c < chunks; c += 32) simt_cp_async16_reused(
            &to.w[l][c], w + filter_of<FILTERS>(l) * p.w_row * BYTES + c * PARE_CUDA_CHUNK,
            PARE_CUDA_CHUNK);
    simt_cp_async_commit();
}

/* --- lines of X --- */

/* What a block makes, and where its part of X begins. */
typedef struct strip_place {
    int n, line, end, pixel; /* of Y */
    int left;                /* pixel of X at the ring's first, a multiple of LOT */
} strip_place;

SIMT_INLINE strip_place place_of(const pare_cuda_gemm_args &p, const pare_cuda_stem_pool &s)
{
    const int block = (int)blockIdx.x, down = fast_divide(block, s.by_strips),
              n = fast_divide(down, s.by_segments);
    strip_place at = {n, (down - n * s.segments) * s.lines, 0, 0, 0};
    at.end = min(at.line + s.lines, s.height);
    at.pixel = (block - down * s.strips) * WARPS * PIXELS;
    at.left = ((at.pixel * APART - s.begin[1]) * APART - p.in.begin[1]) & ~(LOT - 1);
    return at;
}

/* The line of the convolution that is the first of a step's two. */
SIMT_INLINE int step_first(const pare_cuda_stem_pool &s, int line)
{
    return line * APART - s.begin[0] + (s.kernel[0] == 3);
}

/* --- sums --- */

template <int KIND, int FILTERS> struct step_sums {
    typename kind_of<KIND>::sum at[2][FILTERS / 8][4]; /* of two lines */
};

/* Is a lane's first position the second of its two? Of 16 bits half of the lanes read them in the
   other order, so that those of a warp are in different banks. */
template <int PARTS> SIMT_INLINE bool lane_swaps(void) { return PARTS > 1 && threadIdx.x & 16; }

/* A lane's words of its two positions of a line, the second `far` on. Floats behind the window are
   0: an infinity there is in no sum. */
template <int PARTS>
SIMT_INLINE void positions_read(const unsigned *at, int far, const unsigned inside[PARTS][2],
                                unsigned a[PARTS][4])
{
    PARE_UNROLL for (int part = 0; part < PARTS; part++)
    {
        const unsigned *x = at + part * 8;
        a[part][0] = x[0], a[part][1] = x[far], a[part][2] = x[4], a[part][3] = x[far + 4];
        if (PARTS > 1) PARE_UNROLL for (int k = 0; k < 4; k++) a[part][k] &= inside[part][k / 2];
    }
}

/* x: the lane's first word of the ring's lines; top: the line of X that the first window begins at.
   A line that the second line's window reads is read by the first one's two lines later. */
template <int KIND, int FILTERS, int PARTS>
SIMT_INLINE void step_sum(step_sums<KIND, FILTERS> &sums, const pare_cuda_gemm_args &p,
                          const unsigned *x, const uint4 (*w)[weight_line<PARTS>::CHUNKS], int top)
{
    enum { TN = FILTERS / 8, KEPT = APART + 1 };
    const int lane = (int)threadIdx.x & 31, lines = p.depth / PARE_CUDA_STEM_LINE;
    const uint4 *ws = &w[(lane & 7) + (lane >> 4) * 8][lane >> 3 & 1];
    const int far = lane_swaps<PARTS>() ? -APART * PARTS : APART * PARTS;
    unsigned inside[PARTS][2], a[KEPT][PARTS][4];
    PARE_UNROLL for (int part = 0; part < PARTS; part++) PARE_UNROLL for (int k = 0; k < 2; k++)
        inside[part][k] = part * 4 + k * 2 + (lane & 3) / 2 < p.in.kernel_width ? 0xffffffffu : 0;
    PARE_UNROLL for (int i = 0; i < 2; i++) PARE_UNROLL for (int j = 0; j < TN; j++)
        PARE_UNROLL for (int r = 0; r < 4; r++) sums.at[i][j][r] = 0;
    auto line_read = [&](int k) {
        positions_read<PARTS>(x + ((top + k) & (RING - 1)) * (LINE * PARTS), far, inside,
                              a[k % KEPT]);
    };
    PARE_UNROLL for (int k = 0; k < APART; k++) line_read(k);
    PARE_UNROLL for (int k = 0; k < LINES; k++)
    {
        if (k > 0 && k >= lines) break;
        line_read(k + APART);
        PARE_UNROLL for (int part = 0; part < PARTS; part++)
        {
            unsigned b[TN / 2][4];
            PARE_UNROLL for (int j = 0; j < TN / 2; j++) simt_ldmatrix_x4(
                b[j], ws + j * 16 * weight_line<PARTS>::CHUNKS + (k * PARTS + part) * 2);
            PARE_UNROLL for (int i = 0; i < 2; i++) PARE_UNROLL for (int j = 0; j < TN; j++)
                multiply<KIND>(sums.at[i][j], a[(k + i * APART) % KEPT][part],
                               &b[j / 2][j % 2 * 2]);
        }
    }
}

/* --- the pool --- */

/* Positions that the convolution has not are in no window: of lines from `line` on, of pixels from
   `left` on. */
template <int KIND, int FILTERS>
SIMT_INLINE void sums_bound(step_sums<KIND, FILTERS> &sums, const pare_cuda_gemm_args &p, int line,
                            int left)
{
    const int pixel = left + ((int)threadIdx.x & 31) / 4 * 2,
              swap = lane_swaps<(int)sizeof(typename kind_of<KIND>::element)>();
    if (line >= 0 && line + 2 <= p.in.out_height && left >= 0 && left + POSITIONS <= p.in.out_width)
        return;
    PARE_UNROLL for (int i = 0; i < 2; i++) PARE_UNROLL for (int k = 0; k < 2; k++)
    {
        if ((unsigned)(line + i) < (unsigned)p.in.out_height &&
            (unsigned)(pixel + (k ^ swap)) < (unsigned)p.in.out_width)
            continue;
        PARE_UNROLL for (int j = 0; j < FILTERS / 8; j++) PARE_UNROLL for (int c = 0; c < 2; c++)
            lowest(sums.at[i][j][2 * k + c]);
    }
}

/* The largest of a lane's windows, and what the next step needs of this one's last line. `above`:
   cells of the line before, at two positions; bias: of the lane's filters. */
template <int KIND, int FILTERS>
SIMT_INLINE void windows_pool(const step_sums<KIND, FILTERS> &sums, const pare_cuda_stem_pool &s,
                              const float *bias,
                              typename cell_of<KIND>::type (&above)[FILTERS / 8][2],
                              typename cell_of<KIND>::type (&best)[FILTERS / 8])
{
    typedef typename cell_of<KIND>::type cell;
    const unsigned swaps =
        lane_swaps<(int)sizeof(typename kind_of<KIND>::element)>() ? 0xffffffffu : 0;
    cell none;
    lowest(none);
    PARE_UNROLL for (int j = 0; j < FILTERS / 8; j++)
    {
        cell at[2];
        float two[2] = {0, 0};
        if (sizeof(cell) == 4) vec_load<2>(bias, 2 * j, 1, two);
        PARE_UNROLL for (int k = 0; k < 2; k++)
        {
            cell now[2];
            PARE_UNROLL for (int i = 0; i < 2; i++) cell_make(sums.at[i][j] + 2 * k, two, now[i]);
            at[k] = most(most(now[0], now[1]), above[j][k]);
            above[j][k] = bits_pick(now[1], none, s.above);
        }
        best[j] = most(most(at[0], at[1]), next_of(bits_pick(at[1], at[0], swaps), s.next));
    }
}

/* --- Y --- */

template <int END, int FILTERS>
SIMT_INLINE void cells_finish(const pare_cuda_gemm_args &p, const tile_clamp &l,
                              const filter_constants<FILTERS> &of, int first,
                              const int2 (&best)[FILTERS / 8], unsigned (&y)[FILTERS / 16])
{
    PARE_UNROLL for (int i = 0; i < FILTERS / 16; i++)
    {
        const int column = first + i * 4;
        float scale[4], bias[4];
        int shift[4];
        vec_load<4>(of.scale, column, 1, scale);
        vec_load<4>(of.bias, column, 1, bias);
        vec_load<4>(of.shift, column, 1, shift);
        const int2 a = best[2 * i], b = best[2 * i + 1];
        const unsigned sum[4] = {(unsigned)a.x, (unsigned)a.y, (unsigned)b.x, (unsigned)b.y};
        int shifted[4];
        PARE_UNROLL PARE_VEC4 shifted[k] = (int)(sum[k] - (unsigned)shift[k]);
        four_finish<END>(p, l, shifted, scale, bias, reinterpret_cast<char *>(&y[i]));
    }
}

/* A bound takes the place of what equals it: its 0 has a sign. */
template <int END, int FILTERS, typename PAIR>
SIMT_INLINE void cells_finish(const pare_cuda_gemm_args &, const tile_clamp &l,
                              const filter_constants<FILTERS> &, int,
                              const PAIR (&best)[FILTERS / 8], unsigned (&y)[FILTERS / 8])
{
    PARE_UNROLL for (int i = 0; i < FILTERS / 8; i++)
    {
        float2 v = pair_read(best[i]);
        v.x = v.x <= l.low ? l.low : v.x, v.y = v.y <= l.low ? l.low : v.y;
        v.x = v.x > l.high ? l.high : v.x, v.y = v.y > l.high ? l.high : v.y;
        PAIR made;
        pair_make(v, made);
        y[i] = *reinterpret_cast<const unsigned *>(&made);
    }
}

template <int KIND, int FILTERS, int END>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    stem_pool(pare_cuda_gemm_args p, tile_clamp clamp, pare_cuda_stem_pool s)
{
    typedef typename kind_of<KIND>::sum sum;
    typedef typename kind_of<KIND>::element element;
    typedef typename cell_of<KIND>::type cell;
    enum {
        BYTES = sizeof(element),
        PARTS = BYTES,
        WORDS = FILTERS * BYTES / 16, /* of Y, of a lane */
        ONCE = WORDS < 4 ? WORDS : 4
    };
    typedef typename word_part<BYTES>::type part;
    SIMT_DYN_SHARED(uint4, shared);
    stem_shared<FILTERS, BYTES> &room = *reinterpret_cast<stem_shared<FILTERS, BYTES> *>(shared);
    const operands o = operands_of(p, 0, BYTES, BYTES, BYTES);
    const strip_place at = place_of(p, s);
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x / 32, column = (int)threadIdx.x,
              n0 = (int)blockIdx.y * FILTERS, mine = (lane & 3) * (FILTERS / 4);
    const int pixel = at.pixel + warp * PIXELS;  /* of Y, the warp's first */
    const int left = pixel * APART - s.begin[1]; /* of the convolution */
    const int lines = p.depth / PARE_CUDA_STEM_LINE + APART;
    const bool stores = lane / 4 < PIXELS && pixel + lane / 4 < s.width;
    simt_dependency_wait();
    weights_bring<FILTERS, BYTES>(p, o, room);
    if (column < FILTERS) {
        const column_constants c = constants_read<sum>(p, o, n0 + column, true);
        room.k.scale[column] = c.scale, room.k.bias[column] = c.bias;
        room.k.shift[column] = c.shift;
    }
    /* a window three high needs the line of the convolution above the first step's */
    int line = at.line;
    if (s.kernel[0] == 3 && at.line * APART - s.begin[0] >= 0) line--;
    int first = step_first(s, line), top = first * APART - p.in.begin[0], h = top + warp;
    const int w = at.left + lane * LOT;
    const part *x = reinterpret_cast<const part *>(o.x) + at.n * p.in.image + h * p.in.row;
    pixel_lot<PARTS> lot;
    PARE_ROLLED for (; h < top + lines; h += STEP, x += STEP * p.in.row)
    {
        lot_read(p, s.packed, x, h, w, lot);
        lot_store(lot, &room.x[h & (RING - 1)][lane * LOT * PARTS]);
    }
    const int position = left + lane / 4 * 2 + lane_swaps<PARTS>();
    const unsigned *words =
        &room.x[0][(position * APART - p.in.begin[1] - at.left) * PARTS + (lane & 3)];
    char *y = o.y + (n0 + mine) * BYTES +
              (((int64_t)at.n * s.height + line) * s.width + pixel + lane / 4) * p.y_row * BYTES;
    cell above[FILTERS / 8][2];
    PARE_UNROLL for (int j = 0; j < FILTERS / 8; j++) PARE_UNROLL for (int k = 0; k < 2; k++)
        lowest(above[j][k]);
    simt_cp_async_wait<0>();
    __syncthreads();
    PARE_ROLLED for (; line < at.end; line++)
    {
        step_sums<KIND, FILTERS> sums;
        cell best[FILTERS / 8];
        unsigned made[WORDS];
        lot_read(p, s.packed, x, h, w, lot); /* behind the last step it is read and not used */
        step_sum<KIND, FILTERS, PARTS>(sums, p, words, room.w, top);
        sums_bound(sums, p, first, left);
        windows_pool<KIND, FILTERS>(sums, s, room.k.bias + mine, above, best);
        cells_finish<END, FILTERS>(p, clamp, room.k, mine, best, made);
        if (stores && line >= at.line)
            PARE_UNROLL for (int i = 0; i < WORDS; i += ONCE)
                vec_store<ONCE>(reinterpret_cast<unsigned *>(y), i, made + i);
        lot_store(lot, &room.x[h & (RING - 1)][lane * LOT * PARTS]);
        top += STEP, first += 2, h += STEP, x += STEP * p.in.row;
        y += s.width * p.y_row * BYTES;
        __syncthreads();
    }
    simt_dependents_launch();
}

/* --- launch --- */

/* A block has as many lines as keep the device's processors busy. */
static void segments_set(pare_cuda_stem_pool *s, int64_t planes, int blocks)
{
    double least = 0;
    for (int n = 1; n <= s->height; n++) {
        const int lines = (s->height + n - 1) / n, count = (s->height + lines - 1) / lines;
        const int64_t slots = (int64_t)PROCESSORS * blocks;
        const double turns = (double)((planes * count + slots - 1) / slots) * (lines + AHEAD);
        if (n > 1 && turns >= least) continue;
        least = turns, s->segments = count, s->lines = lines;
    }
}

void pare_cuda_stem_pool_set(const pare_cuda_gemm_args *p, pare_cuda_stem_pool *s)
{
    const int filters = p->columns % 64 ? 32 : 64;
    s->strips = (s->width + WARPS * PIXELS - 1) / (WARPS * PIXELS);
    segments_set(s, (int64_t)s->images * s->strips * (p->columns / filters), BLOCKS);
    s->above = s->kernel[0] == 3 ? 0xffffffffu : 0;
    s->next = s->kernel[1] == 3 ? 4 : 0;
    s->packed = stem_is_packed(*p);
    s->by_strips = pare_cuda_fast_divisor_of(s->strips);
    s->by_segments = pare_cuda_fast_divisor_of(s->segments);
}

template <int KIND, int FILTERS, int END>
static cudaError_t filters_launch(const pare_cuda_gemm_args *p, const pare_cuda_stem_pool *s,
                                  const tile_clamp &clamp, cudaStream_t stream)
{
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    const int room = (int)sizeof(stem_shared<FILTERS, BYTES>);
    auto kernel = stem_pool<KIND, FILTERS, END>;
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, room);
    if (error != cudaSuccess) return error;
    PARE_LAUNCH_DEPENDENT(
        kernel,
        dim3((unsigned)(s->images * s->segments * s->strips), (unsigned)(p->columns / FILTERS)),
        dim3(THREADS), (size_t)room, stream, *p, clamp, *s);
    return cudaGetLastError();
}

template <int KIND, int END>
static cudaError_t end_launch(const pare_cuda_gemm_args *p, const pare_cuda_stem_pool *s,
                              const tile_clamp &clamp, cudaStream_t stream)
{
    if (p->columns % 64 == 0) return filters_launch<KIND, 64, END>(p, s, clamp, stream);
    return filters_launch<KIND, 32, END>(p, s, clamp, stream);
}

template <int KIND>
static cudaError_t kind_launch(const pare_cuda_gemm_args *p, const pare_cuda_stem_pool *s,
                               cudaStream_t stream)
{
    if constexpr (sizeof(typename kind_of<KIND>::element) == 1) {
        const tile_clamp clamp = integer_clamp(p->epilogue);
        if (epilogue_of(*p) == EPILOGUE_BOUNDS)
            return end_launch<KIND, EPILOGUE_BOUNDS>(p, s, clamp, stream);
        return end_launch<KIND, EPILOGUE_CLAMP>(p, s, clamp, stream);
    } else {
        return end_launch<KIND, EPILOGUE_CLAMP>(p, s, float_clamp(p->epilogue.act), stream);
    }
}

cudaError_t pare_cuda_stem_pool_launch(const pare_cuda_gemm_args *p, const pare_cuda_stem_pool *s,
                                       cudaStream_t stream)
{
    pare_cuda_stem_pool mine = *s;
    mine.packed = mine.packed && (uintptr_t)p->x % PARE_CUDA_CHUNK == 0;
    switch (p->x_type) {
    case PARE_s8: return kind_launch<PARE_s8>(p, &mine, stream);
    case PARE_u8: return kind_launch<PARE_u8>(p, &mine, stream);
    case PARE_f16: return kind_launch<PARE_f16>(p, &mine, stream);
    default: return kind_launch<PARE_bf16>(p, &mine, stream);
    }
}
