/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions whose weights are computed, gradients of their pictures, and transposed
   convolutions, which are such gradients, as products in tiles:
     Y   rows: positions of Y, columns: filters, depth: taps and channels (channels fastest)
     dX  rows: positions of X, columns: channels, depth: taps and filters (filters fastest)
   f16 and bf16 are multiplied on tensor cores, and so is f32 where the device allows TF32; else f32
   by plain multiply-adds, in order of depth. Weights are written to scratch first, the rows of W
   that a tile reads. Positions of dX are sorted by their remainder under the stride: those of one
   class meet the same taps of W, and are windows of stride 1 over dY, so that no tap is multiplied
   in vain. Bytes moved: pictures once a tile of columns (from cache but for the first), weights
   three times and once a tile of rows. */
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/gemm/epilogue.cuh"

enum { MOST_CLASSES = 4 };

/* Positions that the same taps reach. */
typedef struct conv_class {
    pare_cuda_picture in; /* what its windows read; out_height x out_width of them an image */
    int rows, depth;
    int first[2]; /* where the first of them is in what is made */
    int patch, w; /* its first entry of the table, its first element of the weights */
} conv_class;

typedef struct conv_tile_args {
    const void *from, *w;
    const float *bias; /* (columns), or NULL */
    void *to;
    const pare_cuda_im2col *patch;
    int64_t to_stride[3]; /* of images, lines and pixels */
    int step[2];          /* lines and pixels from one position of a class to the next */
    int columns, classes;
    conv_class of[MOST_CLASSES];
} conv_tile_args;

/* W (filters, channels, taps) as the rows of its classes. Tap t of filter m and channel c is at
   base[t] + m row[t] + c, of dX (turned) at base[t] + c row[t] + m. base -1: no position meets it.
   tf32: numbers are rounded to it. */
typedef struct weights_turn {
    const void *from;
    void *to;
    int filters, channels, taps;
    bool turned, tf32;
    int base[PARE_CUDA_MOST_TAPS], row[PARE_CUDA_MOST_TAPS];
} weights_turn;

template <typename E> SIMT_INLINE E weight_of(const weights_turn &a, E v)
{
    if constexpr (sizeof(E) == sizeof(float))
        if (a.tf32) v = simt_to_tf32(__uint_as_float(v));
    return v;
}

template <typename E> static __global__ void weights_copy(weights_turn a)
{
    const E *from = static_cast<const E *>(a.from);
    E *to = static_cast<E *>(a.to);
    PARE_CUDA_EACH (i, (int64_t)a.filters * a.channels) {
        const int m = (int)i / a.channels, c = (int)i - m * a.channels;
        for (int t = 0; t < a.taps; t++)
            to[a.base[t] + m * a.row[t] + c] = weight_of(a, from[i * a.taps + t]);
    }
}

enum { SQUARE = 32, SQUARE_LINES = PARE_CUDA_BLOCK / SQUARE };

/* A square of filters by channels and taps, read along these and written along filters. */
template <typename E>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) weights_transpose(weights_turn a)
{
    SIMT_SHARED(E, square, [SQUARE][SQUARE + 1]);
    const E *from = static_cast<const E *>(a.from);
    E *to = static_cast<E *>(a.to);
    const int across = a.channels * a.taps, lane = (int)threadIdx.x % SQUARE;
    const int q0 = (int)blockIdx.x * SQUARE, m0 = (int)blockIdx.y * SQUARE;
    for (int l = (int)threadIdx.x / SQUARE; l < SQUARE; l += SQUARE_LINES)
        if (m0 + l < a.filters && q0 + lane < across)
            square[l][lane] = from[(m0 + l) * across + q0 + lane];
    __syncthreads();
    for (int l = (int)threadIdx.x / SQUARE; l < SQUARE; l += SQUARE_LINES) {
        const int c = (q0 + l) / a.taps, t = q0 + l - c * a.taps;
        if (q0 + l < across && m0 + lane < a.filters && a.base[t] >= 0)
            to[a.base[t] + c * a.row[t] + m0 + lane] = weight_of(a, square[lane][l]);
    }
}

template <int KIND> struct stored_as {
    enum { TYPE = KIND == PARE_CUDA_TF32 ? (int)PARE_f32 : KIND };
};

/* Byte of `to` where row r of the class is. */
template <int BYTES>
SIMT_INLINE int64_t row_at(const conv_tile_args &a, const conv_class &c, int64_t r)
{
    const int line = fast_divide((int)r, c.in.by_width), image = fast_divide(line, c.in.by_height);
    const int top = c.first[0] + (line - image * c.in.out_height) * a.step[0];
    const int left = c.first[1] + ((int)r - line * c.in.out_width) * a.step[1];
    return (image * a.to_stride[0] + top * a.to_stride[1] + left * a.to_stride[2]) * BYTES;
}

/* Sums become elements in shared memory, with their bias, and leave by chunks. */
template <int KIND, typename T>
SIMT_INLINE void rows_finish(const conv_tile_args &a, const conv_class &c,
                             const accumulators<KIND, T> &sums, char *shared, const tile_place &t)
{
    enum { TYPE = stored_as<KIND>::TYPE, BYTES = sizeof(typename kind_of<KIND>::element) };
    typedef tile_rows<T, BYTES> rows;
    PARE_UNROLL for (int j = 0; j < fours_of<T>::FOURS; j++)
    {
        const int column = four_column<T>(j);
        float bias[4] = {-0.0f, -0.0f, -0.0f, -0.0f}, four[4];
        if (a.bias && column < t.columns) PARE_UNROLL PARE_VEC4 bias[k] = a.bias[t.n0 + column + k];
        PARE_UNROLL for (int i = 0; i < fours_of<T>::ROWS_MINE; i++)
        {
            four_read(sums, i, j, four);
            PARE_UNROLL PARE_VEC4 four[k] += bias[k];
            four_write<TYPE>(shared + four_row<T>(i) * rows::PITCH + column * BYTES, four);
        }
    }
    __syncthreads();
    const int at = (int)threadIdx.x % rows::PIECES * PARE_CUDA_CHUNK;
    if (at >= t.columns * BYTES) return;
    PARE_ROLLED for (int r = (int)threadIdx.x / rows::PIECES; r < t.rows; r += rows::LINES)
    {
        char *to = static_cast<char *>(a.to) + row_at<BYTES>(a, c, t.m0 + r) + t.n0 * BYTES + at;
        *reinterpret_cast<uint4 *>(to) =
            *reinterpret_cast<const uint4 *>(shared + r * rows::PITCH + at);
    }
}

template <int KIND, typename T>
static __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) conv_tile(conv_tile_args a)
{
    enum { BYTES = sizeof(typename kind_of<KIND>::element) };
    SIMT_DYN_SHARED(uint4, shared);
    const conv_class &c = a.of[blockIdx.z];
    const int m0 = (int)blockIdx.x * T::BM, n0 = (int)blockIdx.y * T::BN;
    if (m0 >= c.rows) return;
    const tile_place t = {m0, n0, min(c.rows - m0, (int)T::BM), min(a.columns - n0, (int)T::BN),
                          0,  0};
    pare_cuda_gemm_args p = {};
    operands o = {};
    p.in = c.in;
    p.patch = a.patch + c.patch;
    p.depth = c.depth, p.w_row = c.depth, p.splits = 1;
    o.x = static_cast<const char *>(a.from);
    o.w = static_cast<const char *>(a.w) + (int64_t)c.w * BYTES;
    accumulators<KIND, T> sums;
    tile_mainloop<KIND, T, im2col_iterator, false>(sums, p, o, shared, t,
                                                   k_range_of(p, BYTES, 0, false), 0);
    rows_finish<KIND, T>(a, c, sums, reinterpret_cast<char *>(shared), t);
}

/* --- launchers --- */

typedef struct conv_state {
    conv_tile_args a;
    weights_turn turn;
    int kind, most_rows; /* of a class */
    bool tall, wide;     /* tiles of 128 rows, and of 128 columns, not 64 */
    bool in_place;       /* W is read where it is */
    pare_device *device;
    void *table, *bias; /* bias: a constant one as f32, or NULL */
} conv_state;

template <typename E> static cudaError_t weights_launch(const weights_turn *a, cudaStream_t stream)
{
    const int across = a->channels * a->taps;
    if (a->turned)
        SIMT_LAUNCH((weights_transpose<E>),
                    dim3(pare_cuda_blocks((across + SQUARE - 1) / SQUARE),
                         pare_cuda_blocks_beside((a->filters + SQUARE - 1) / SQUARE)),
                    dim3(PARE_CUDA_BLOCK), 0, stream, *a);
    else
        SIMT_LAUNCH((weights_copy<E>), pare_cuda_grid((int64_t)a->filters * a->channels),
                    dim3(PARE_CUDA_BLOCK), 0, stream, *a);
    return cudaGetLastError();
}

template <int KIND, typename T>
static cudaError_t tile_launch(const conv_state *s, cudaStream_t stream)
{
    enum {
        STEPS = STAGES * T::STAGE * (int)sizeof(uint4),
        ROOM = tile_room<T, sizeof(typename kind_of<KIND>::element)>(),
        BYTES = STEPS > ROOM ? STEPS : ROOM
    };
    auto kernel = conv_tile<KIND, T>;
    const dim3 grid(pare_cuda_blocks((s->most_rows + T::BM - 1) / T::BM),
                    pare_cuda_blocks_beside((s->a.columns + T::BN - 1) / T::BN),
                    (unsigned)s->a.classes);
    cudaError_t error = SIMT_ALLOW_SHARED(kernel, BYTES);
    if (error != cudaSuccess) return error;
    SIMT_LAUNCH(kernel, grid, dim3(T::THREADS), (size_t)BYTES, stream, s->a);
    return cudaGetLastError();
}

template <int KIND> static cudaError_t kind_launch(const conv_state *s, cudaStream_t stream)
{
    return s->wide   ? tile_launch<KIND, tile_128x128>(s, stream)
           : s->tall ? tile_launch<KIND, tile_128x64>(s, stream)
                     : tile_launch<KIND, tile_64x64>(s, stream);
}

static cudaError_t conv_launch(const conv_state *s, cudaStream_t stream)
{
    const bool halves = s->kind == PARE_f16 || s->kind == PARE_bf16;
    cudaError_t error = s->in_place ? cudaSuccess
                        : halves    ? weights_launch<uint16_t>(&s->turn, stream)
                                    : weights_launch<uint32_t>(&s->turn, stream);
    if (error != cudaSuccess) return error;
    switch (s->kind) {
    case PARE_f16: return kind_launch<PARE_f16>(s, stream);
    case PARE_bf16: return kind_launch<PARE_bf16>(s, stream);
    case PARE_f32: return kind_launch<PARE_f32>(s, stream);
    case PARE_CUDA_TF32: return kind_launch<PARE_CUDA_TF32>(s, stream);
    default: return cudaErrorInvalidValue;
    }
}

/* --- classes --- */

/* Of one axis: `count` positions, stride apart; tap j of the window that they read is tap from + j
   by of W. */
typedef struct axis_class {
    int first, count, taps, from, by;
    int stride, begin, dilation; /* of that window */
} axis_class;

static axis_class axis_whole(const pare_window *w, int axis)
{
    return {0, (int)w->out[axis],    (int)w->kernel[axis], 0,
            1, (int)w->stride[axis], (int)w->begin[axis],  (int)w->dilation[axis]};
}

static int divisor_of(int a, int b) { return b ? divisor_of(b, a % b) : a; }

/* Positions of X whose remainder under the stride is r. Tap t of W meets those where r + begin - t
   dilation is a multiple of the stride; the last of these is the first over dY. */
static axis_class axis_class_of(const pare_window *w, int axis, int r)
{
    const int stride = (int)w->stride[axis], dilation = (int)w->dilation[axis];
    const int part = divisor_of(stride, dilation), at = r + (int)w->begin[axis];
    axis_class c = {r,
                    ((int)w->in[axis] - r + stride - 1) / stride,
                    0,
                    0,
                    -stride / part,
                    1,
                    0,
                    dilation / part};
    if (r >= w->in[axis]) c.count = 0;
    for (int t = 0; t < w->kernel[axis]; t++)
        if ((at - t * dilation) % stride == 0) c.taps++, c.from = t;
    if (c.taps) c.begin = (c.from * dilation - at) / stride;
    return c;
}

static void picture_of(const pare_cuda_conv_shape *s, bool grad, const axis_class axis[2],
                       pare_cuda_picture *in)
{
    const int64_t *size = grad ? s->win.out : s->win.in, *stride = grad ? s->y : s->x;
    in->height = (int)size[1], in->width = (int)size[2];
    in->channels = grad ? s->filters : s->channels;
    in->image = stride[0], in->row = stride[1], in->pixel = stride[2];
    in->out_height = axis[0].count, in->out_width = axis[1].count;
    in->kernel_width = axis[1].taps;
    in->taps = axis[0].taps * axis[1].taps;
    for (int i = 0; i < 2; i++) {
        in->stride[i] = axis[i].stride, in->begin[i] = axis[i].begin;
        in->dilation[i] = axis[i].dilation;
    }
    in->by_height = pare_cuda_fast_divisor_of(in->out_height);
    in->by_width = pare_cuda_fast_divisor_of(in->out_width);
}

/* Adds the class of two axes, where it has positions. */
static void class_add(conv_state *s, const pare_cuda_conv_shape *shape, bool grad,
                      const axis_class axis[2])
{
    conv_tile_args *a = &s->a;
    if (!axis[0].count || !axis[1].count) return;
    conv_class *c = &a->of[a->classes++];
    const conv_class *before = a->classes > 1 ? c - 1 : NULL;
    const int kernel_width = (int)shape->win.kernel[2];
    picture_of(shape, grad, axis, &c->in);
    c->rows = shape->images * axis[0].count * axis[1].count;
    c->depth = c->in.taps * c->in.channels;
    c->first[0] = axis[0].first, c->first[1] = axis[1].first;
    if (before) c->w = before->w + a->columns * before->depth;
    if (before)
        c->patch = before->patch + (int)pare_cuda_im2col_chunks(before->depth * (int)sizeof(float));
    if (c->rows > s->most_rows) s->most_rows = c->rows;
    for (int h = 0; h < axis[0].taps; h++)
        for (int w = 0; w < axis[1].taps; w++) {
            const int tap =
                (axis[0].from + h * axis[0].by) * kernel_width + axis[1].from + w * axis[1].by;
            s->turn.base[tap] = c->w + (h * axis[1].taps + w) * c->in.channels;
            s->turn.row[tap] = c->depth;
        }
}

static bool stride_fits(const pare_window *w)
{
    return w->stride[1] * w->stride[2] <= MOST_CLASSES;
}

static void classes_set(conv_state *s, const pare_cuda_conv_shape *shape, bool grad)
{
    const pare_window *w = &shape->win;
    for (int t = 0; t < shape->taps; t++) s->turn.base[t] = -1;
    for (int i = 0; i < 2; i++) s->a.step[i] = grad ? (int)w->stride[1 + i] : 1;
    for (int h = 0; h < s->a.step[0]; h++)
        for (int l = 0; l < s->a.step[1]; l++) {
            const axis_class classes[2] = {axis_class_of(w, 1, h), axis_class_of(w, 2, l)};
            const axis_class whole[2] = {axis_whole(w, 1), axis_whole(w, 2)};
            class_add(s, shape, grad, grad ? classes : whole);
        }
}

/* Where the chunks of a row's depth are, class after class. */
static pare_status table_make(pare_prep *p, conv_state *s)
{
    const int bytes = pare_cuda_bytes(p->in[0].dtype);
    const conv_class *last = &s->a.of[s->a.classes - 1];
    const size_t count =
        (size_t)last->patch + pare_cuda_im2col_chunks(last->depth * (int)sizeof(float));
    pare_cuda_im2col *table =
        (pare_cuda_im2col *)pare_alloc(p->ctx, count, sizeof(pare_cuda_im2col));
    if (!table) return PARE_MEMORY;
    for (int i = 0; i < s->a.classes; i++) {
        const pare_cuda_picture *in = &s->a.of[i].in;
        pare_cuda_im2col *to = table + s->a.of[i].patch;
        for (int t = 0; t < in->taps; t++) {
            const int64_t at = t / in->kernel_width * in->dilation[0] * in->row +
                               t % in->kernel_width * in->dilation[1] * in->pixel;
            for (int k = 0; k < in->channels * bytes; k += PARE_CUDA_CHUNK)
                *to++ = {(int)(at * bytes) + k, 1u << t};
        }
    }
    pare_status st = pare_cuda_copy_kept(p, &s->table, table, count * sizeof *table);
    pare_free(table);
    return st;
}

/* --- Conv, ConvGradInput --- */

static bool conv_can(const pare_prep *p)
{
    pare_cuda_conv_shape s;
    const pare_view *bias = pare_operand(p->in, p->in_count, PARE_CUDA_CONV_BIAS);
    return (!bias || bias->dtype == PARE_f32) && pare_cuda_conv_shape_read(p, &s) &&
           pare_cuda_gemm_counts(s.filters, (int64_t)s.channels * s.taps);
}

/* Squares of filters are a grid's y, too. */
static bool grad_can(const pare_prep *p)
{
    pare_cuda_conv_shape s;
    return pare_cuda_conv_shape_read(p, &s) && stride_fits(&s.win) &&
           pare_cuda_gemm_counts(s.channels, (int64_t)s.filters * s.taps) &&
           pare_cuda_blocks_beside((s.filters + SQUARE - 1) / SQUARE);
}

enum { FULL = 132 }; /* tiles that fill a device's processors */

/* Do tiles of 128 rows and so many columns fill them? */
static bool tiles_fill(const conv_state *s, int columns)
{
    return (int64_t)s->a.classes * (s->most_rows / 128) *
               ((s->a.columns + columns - 1) / columns) >=
           FULL;
}

static pare_status prepare(pare_prep *p, bool grad)
{
    pare_cuda_conv_shape shape;
    conv_state *s = (conv_state *)pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    if (!pare_cuda_conv_shape_read(p, &shape)) return PARE_FAIL_NODE(p->node, INPUT, "no tiles");
    s->device = p->device;
    s->kind = pare_cuda_conv_kind(p);
    s->a.columns = grad ? shape.channels : shape.filters;
    memcpy(s->a.to_stride, grad ? shape.x : shape.y, sizeof s->a.to_stride);
    s->turn.filters = shape.filters, s->turn.channels = shape.channels;
    s->turn.taps = shape.taps, s->turn.turned = grad;
    classes_set(s, &shape, grad);
    s->turn.tf32 = s->kind == PARE_CUDA_TF32;
    s->in_place = !grad && shape.taps == 1 && !s->turn.tf32;
    s->wide = s->a.columns > 64 && tiles_fill(s, 128);
    s->tall = s->wide || tiles_fill(s, 64);
    if (!s->in_place)
        p->scratch = (size_t)shape.filters * (size_t)shape.channels * (size_t)shape.taps *
                     (size_t)pare_cuda_bytes(p->in[0].dtype);
    p->state = s;
    return table_make(p, s);
}

/* A constant bias as f32. */
static pare_status bias_make(pare_prep *p, conv_state *s)
{
    const pare_view *b = pare_operand(p->in, p->in_count, PARE_CUDA_CONV_BIAS);
    if (!b || b->dtype == PARE_f32) return PARE_OK;
    const pare_type_info *type = pare_type(b->dtype);
    const int64_t count = pare_view_count(b);
    float *floats = (float *)pare_alloc(p->ctx, (size_t)count, sizeof *floats);
    if (!floats) return PARE_MEMORY;
    for (int64_t i = 0; i < count; i++)
        floats[i] = type->to_f32(static_cast<const char *>(b->data) + i * (type->bits / 8));
    const pare_status st = pare_cuda_copy_kept(p, &s->bias, floats, (size_t)count * sizeof *floats);
    pare_free(floats);
    return st;
}

static bool transposed_can(const pare_prep *p)
{
    const pare_view *bias = pare_operand(p->in, p->in_count, PARE_CUDA_CONV_BIAS);
    return (!bias || bias->data || bias->dtype == PARE_f32) && grad_can(p);
}

static pare_status transposed_prepare(pare_prep *p)
{
    PARE_TRY(prepare(p, true));
    return bias_make(p, static_cast<conv_state *>(p->state));
}

static pare_status conv_prepare(pare_prep *p) { return prepare(p, false); }
static pare_status grad_prepare(pare_prep *p) { return prepare(p, true); }

static pare_status run(const pare_call *c)
{
    conv_state s = *(const conv_state *)c->state;
    const pare_view *bias = pare_operand(c->in, c->in_count, PARE_CUDA_CONV_BIAS);
    s.a.from = c->in[0].data;
    s.a.bias = (const float *)(s.bias ? s.bias : bias ? bias->data : NULL);
    s.a.to = c->out[0].data;
    s.a.patch = (const pare_cuda_im2col *)s.table;
    s.turn.from = c->in[1].data;
    s.turn.to = c->scratch;
    s.a.w = s.in_place ? s.turn.from : s.turn.to;
    return PARE_CUDA_LAUNCH(c, conv_launch, &s);
}

static void release(void *state)
{
    conv_state *s = (conv_state *)state;
    if (!s) return;
    s->device->backend->free(s->device, s->table);
    s->device->backend->free(s->device, s->bias);
}

const pare_kernel pare_cuda_conv_tile = {.name = "cuda_conv_tile",
                                         .can = conv_can,
                                         .prepare = conv_prepare,
                                         .run = run,
                                         .release = release};
const pare_kernel pare_cuda_conv_grad_input_tile = {.name = "cuda_conv_grad_input_tile",
                                                    .can = grad_can,
                                                    .prepare = grad_prepare,
                                                    .run = run,
                                                    .release = release};
const pare_kernel pare_cuda_conv_transpose_tile = {.name = "cuda_conv_transpose_tile",
                                                   .can = transposed_can,
                                                   .prepare = transposed_prepare,
                                                   .run = run,
                                                   .release = release};
