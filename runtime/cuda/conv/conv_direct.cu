/* SPDX-License-Identifier: Apache-2.0 */
/* y[n, p, m] = finish(sum over taps t and channels c of the group:
                       (x[n, p + t, c] - x_zero) * w[t, c, m])
   with channels innermost everywhere. Neighbouring threads hold neighbouring filters:
   weights and, of depthwise convolutions, pixels are read in rows. A pixel is read once a tap, from
   cache but for the first. Sums run over taps, then channels, each step one fused multiply-add.
   Of FP8 sums are floats, and weights f16, which holds all its numbers. */
#include "runtime/base/size.h"
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/simt_f8.cuh"
#include "runtime/cuda/gemm/epilogue_f8.cuh"

#include <string.h>

typedef struct pare_cuda_direct {
    pare_cuda_gemm_args p; /* rows, in, y, z, scale, bias, epilogue; columns: all filters */
    int32_t x_zero;
    int taps, group_columns; /* filters of a group */
    bool four;               /* depthwise, all channels in fours that are together */
    /* depthwise_strip only: its places, and what divides them into lines, strips and lots */
    int64_t places;
    pare_cuda_fast_divisor by_lots, by_strips;
} pare_cuda_direct;

template <bool E5M2> struct f8_code {
    uint8_t code;
};

/* A type's sum and its weight; F8: the type of FP8 that it is. */
template <typename T> struct direct_of {
    typedef float sum;
    typedef T weight;
    static constexpr pare_dtype F8 = PARE_NOTYPE;
};
template <> struct direct_of<int8_t> {
    typedef int sum;
    typedef int16_t weight;
    static constexpr pare_dtype F8 = PARE_NOTYPE;
};
template <> struct direct_of<uint8_t> {
    typedef int sum;
    typedef int16_t weight;
    static constexpr pare_dtype F8 = PARE_NOTYPE;
};
template <bool E5M2> struct direct_of<f8_code<E5M2>> {
    typedef float sum;
    typedef __half weight;
    static constexpr pare_dtype F8 = E5M2 ? PARE_f8e5m2 : PARE_f8e4m3;
};

/* V neighbours that are aligned to all of them. */
template <typename T, int V> struct alignas(sizeof(T) * V) lot {
    T of[V];
};

SIMT_INLINE float number_of(float x) { return x; }
SIMT_INLINE float number_of(__half x) { return pare_to_f32(x); }
SIMT_INLINE float number_of(__nv_bfloat16 x) { return pare_to_f32(x); }
SIMT_INLINE int number_of(int8_t x) { return x; }
SIMT_INLINE int number_of(uint8_t x) { return x; }
SIMT_INLINE int number_of(int16_t x) { return x; }

template <typename N, typename T, int V> SIMT_INLINE void numbers_of(const lot<T, V> &x, N to[V])
{
    PARE_UNROLL for (int k = 0; k < V; k++) to[k] = number_of(x.of[k]);
}
template <typename N, bool E5M2, int V>
SIMT_INLINE void numbers_of(const lot<f8_code<E5M2>, V> &x, N to[V])
{
    unsigned word = 0;
    float v[4];
    memcpy(&word, &x, sizeof x);
    simt_f8_to_floats<E5M2>(word, v);
    PARE_UNROLL for (int k = 0; k < V; k++) to[k] = v[k];
}

SIMT_INLINE float step(float sum, float x, float w, int) { return fmaf(x, w, sum); }
SIMT_INLINE int step(int sum, int x, int w, int zero) { return sum + (x - zero) * w; }

/* V sums of FP8 products, of columns from c on, finished and stored at y[at]. */
template <int KIND, int V>
SIMT_INLINE void f8_lot_finish(const pare_cuda_gemm_args &p, const operands &o, const float sum[V],
                               int c, int64_t at)
{
    const bool words = p.lot * bytes_of(p.y_type) >= (bytes_of(p.y_type) == 4 ? 16 : 4);
    float all[4] = {}, scale[4] = {}, bias[4] = {};
    PARE_UNROLL for (int k = 0; k < V; k++)
    {
        all[k] = sum[k], scale[k] = o.scale[c + k];
        bias[k] = o.bias ? reinterpret_cast<const float *>(o.bias)[c + k] : -0.0f;
    }
    f8_vec4_finish<KIND>(p, o, all, scale, bias, at, V, words);
}

/* V filters from c on, of one output position. */
template <typename T, int V> static __global__ void direct_each(pare_cuda_direct d)
{
    pare_dependent_begin();
    typedef typename direct_of<T>::weight weight;
    typedef typename direct_of<T>::sum number;
    constexpr pare_dtype F8 = direct_of<T>::F8;
    const pare_cuda_gemm_args &p = d.p;
    const operands o = operands_of(p, 0);
    const int lots = p.columns / V, zero = d.x_zero;
    PARE_CUDA_EACH (i, p.rows * lots) {
        const int64_t row = i / lots;
        const int c = (int)(i - row * lots) * V, first = c / d.group_columns * p.in.channels;
        const row_place place = row_find(p, row);
        number sum[V];
        PARE_UNROLL for (int v = 0; v < V; v++) sum[v] = 0;
        for (int tap = 0; tap < d.taps; tap++) {
            int64_t at = element_find(p, place, tap_find(p, tap * p.in.channels));
            if (at < 0) continue;
            const T *x = reinterpret_cast<const T *>(o.x) + at + first;
            const weight *w = reinterpret_cast<const weight *>(o.w) +
                              (int64_t)tap * p.in.channels * p.columns + c;
            for (int k = 0; k < p.in.channels; k++, x++, w += p.columns) {
                number xs[V], ws[V];
                numbers_of(*reinterpret_cast<const lot<T, V> *>(x), xs);
                numbers_of(*reinterpret_cast<const lot<weight, V> *>(w), ws);
                PARE_UNROLL for (int v = 0; v < V; v++) sum[v] = step(sum[v], xs[v], ws[v], zero);
            }
        }
        if constexpr (F8 != PARE_NOTYPE)
            f8_lot_finish<F8, V>(p, o, sum, c, row * p.y_row + c);
        else
            PARE_UNROLL for (int v = 0; v < V; v++)
                sum_finish(p, o, sum[v], row, c + v, row * p.y_row + c + v);
    }
}

/* Depthwise windows whose taps follow one another: a thread makes four channels of STRIP
   neighbouring outputs of a line, and reads each pixel that they share once. Outside of the picture
   X is its zero point, for which `shift` makes up. */
enum { STRIP = 4 };

template <typename T, int KERNEL, int STRIDE>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK, 2) depthwise_strip(pare_cuda_direct d)
{
    pare_dependent_begin();
    typedef typename direct_of<T>::weight weight;
    typedef typename direct_of<T>::sum sum;
    enum { PIXELS = (STRIP - 1) * STRIDE + KERNEL };
    constexpr pare_dtype F8 = direct_of<T>::F8;
    const pare_cuda_gemm_args &p = d.p;
    const operands o = operands_of(p, 0);
    const bool words = p.lot * bytes_of(p.y_type) >= (bytes_of(p.y_type) == 4 ? 16 : 4);
    PARE_CUDA_EACH (i, d.places) {
        const int strip = fast_divide((int)i, d.by_lots), c = ((int)i - strip * d.by_lots.by) * 4;
        const int line = fast_divide(strip, d.by_strips),
                  x0 = (strip - line * d.by_strips.by) * STRIP;
        const int image = fast_divide(line, p.in.by_height), y = line - image * p.in.out_height;
        const int top = y * STRIDE - p.in.begin[0], left = x0 * STRIDE - p.in.begin[1];
        const T *from = reinterpret_cast<const T *>(o.x) + image * p.in.image + top * p.in.row +
                        left * p.in.pixel + c;
        const weight *w = reinterpret_cast<const weight *>(o.w) + c;
        sum sums[STRIP][4];
        PARE_UNROLL for (int r = 0; r < STRIP; r++) PARE_UNROLL PARE_VEC4 sums[r][k] = 0;
        PARE_ROLLED for (int h = 0; h < KERNEL; h++, from += p.in.row)
        {
            const bool within = (unsigned)(top + h) < (unsigned)p.in.height;
            sum factor[KERNEL][4];
            PARE_UNROLL for (int l = 0; l < KERNEL; l++, w += p.columns)
            {
                numbers_of(*reinterpret_cast<const lot<weight, 4> *>(w), factor[l]);
            }
            PARE_UNROLL for (int at = 0; at < PIXELS; at++)
            {
                sum x[4];
                PARE_UNROLL PARE_VEC4 x[k] = static_cast<sum>(d.x_zero);
                if (within && (unsigned)(left + at) < (unsigned)p.in.width)
                    numbers_of(*reinterpret_cast<const lot<T, 4> *>(from + at * p.in.pixel), x);
                PARE_UNROLL for (int r = 0; r < STRIP; r++)
                {
                    const int l = at - r * STRIDE;
                    if (l < 0 || l >= KERNEL) continue;
                    PARE_UNROLL PARE_VEC4 sums[r][k] = step(sums[r][k], x[k], factor[l][k], 0);
                }
            }
        }
        float scale[4], bias[4];
        int shift[4];
        PARE_UNROLL PARE_VEC4
        {
            scale[k] = o.scale ? o.scale[c + k] : 0;
            shift[k] = o.shift ? o.shift[c + k] : 0;
            bias[k] = o.bias ? reinterpret_cast<const float *>(o.bias)[c + k] : -0.0f;
        }
        PARE_ROLLED for (int r = 0; r < STRIP; r++)
        {
            const int64_t row = (int64_t)line * p.in.out_width + x0 + r, at = row * p.y_row + c;
            float v[4];
            sum mine[4];
            if (x0 + r >= p.in.out_width) break;
            PARE_UNROLL PARE_VEC4 mine[k] = r < 2   ? r < 1 ? sums[0][k] : sums[1][k]
                                              : r < 3 ? sums[2][k]
                                                    : sums[3][k];
            if constexpr (F8 != PARE_NOTYPE) {
                f8_vec4_finish<F8>(p, o, mine, scale, bias, at, 4, words);
            } else {
                vec4_epilogue(p, o, mine, scale, bias, shift, row, c, 4, at, v);
                vec4_store(p.y_type, o.y, at, v, 4, words);
            }
        }
    }
}

template <typename T> static cudaError_t type_launch(const pare_cuda_direct *d, cudaStream_t stream)
{
    const int v = d->four ? 4 : 1;
    dim3 grid = pare_cuda_grid(d->p.rows * (d->p.columns / v));
    if (d->four)
        PARE_LAUNCH_DEPENDENT((direct_each<T, 4>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *d);
    else
        PARE_LAUNCH_DEPENDENT((direct_each<T, 1>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *d);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t strip_launch(const pare_cuda_direct *d, cudaStream_t stream)
{
    dim3 grid = pare_cuda_grid(d->places), block(PARE_CUDA_BLOCK);
    const bool three = d->p.in.kernel_width == 3, one = d->p.in.stride[0] == 1;
    if (three && one)
        PARE_LAUNCH_DEPENDENT((depthwise_strip<T, 3, 1>), grid, block, 0, stream, *d);
    else if (three)
        PARE_LAUNCH_DEPENDENT((depthwise_strip<T, 3, 2>), grid, block, 0, stream, *d);
    else if (one)
        PARE_LAUNCH_DEPENDENT((depthwise_strip<T, 5, 1>), grid, block, 0, stream, *d);
    else
        PARE_LAUNCH_DEPENDENT((depthwise_strip<T, 5, 2>), grid, block, 0, stream, *d);
    return cudaGetLastError();
}

/* p.w: (taps, channels of a group, filters), of x's type, of 8-bit integers s16 without zero point,
   of FP8 f16. */
template <typename T> static cudaError_t any_launch(const pare_cuda_direct *d, cudaStream_t stream)
{
    return d->places ? strip_launch<T>(d, stream) : type_launch<T>(d, stream);
}

static cudaError_t direct_launch(const pare_cuda_direct *d, cudaStream_t stream)
{
    if (d->p.rows == 0 || d->p.columns == 0) return cudaSuccess;
    switch (d->p.x_type) {
    case PARE_f32: return any_launch<float>(d, stream);
    case PARE_f16: return any_launch<__half>(d, stream);
    case PARE_bf16: return any_launch<__nv_bfloat16>(d, stream);
    case PARE_s8: return any_launch<int8_t>(d, stream);
    case PARE_u8: return any_launch<uint8_t>(d, stream);
    case PARE_f8e4m3: return any_launch<f8_code<false>>(d, stream);
    case PARE_f8e5m2: return any_launch<f8_code<true>>(d, stream);
    default: return cudaErrorInvalidValue;
    }
}

enum { FEW_FILTERS = 16 };

typedef struct direct {
    pare_cuda_direct d;
    int residual; /* input position; -1: none */
    pare_device *device;
    void *block;
} direct;

/* Where W and what belongs to it are among the inputs; -1: absent. */
typedef struct places {
    int w, bias;
} places;

static double number_at(const pare_view *v, int64_t i)
{
    const pare_type_info *type = pare_type(v->dtype);
    if (v->dtype == PARE_s32) return ((const int32_t *)v->data)[i];
    return (double)type->to_f32((const char *)v->data + i * (type->bits / 8));
}

/* Entry i of an operand that has one entry for all or one each; 0 where it is absent. */
static double entry_at(const pare_prep *p, int at, int64_t i)
{
    const pare_view *v = pare_operand(p->in, p->in_count, at);
    return v ? number_at(v, pare_view_count(v) == 1 ? 0 : i) : 0;
}

/* Of a weight as kernels read it. */
static int weight_bytes(pare_dtype type)
{
    return pare_type_is_int8(type) || pare_type_is_f8(type) ? 2 : pare_cuda_bytes(type);
}

/* (taps, channels of a group, filters) */
static void weights_pack(const pare_prep *p, const pare_conv_args *a, const places *at, char *to)
{
    const pare_view *w = &p->in[at->w];
    const bool narrow = pare_type_is_int8(w->dtype), f8 = pare_type_is_f8(w->dtype);
    const int bytes = weight_bytes(w->dtype);
    int64_t row, pixel, k = 0;
    pare_cuda_plane_strides(w, &row, &pixel);
    for (int64_t h = 0; h < a->win.kernel[1]; h++)
        for (int64_t l = 0; l < a->win.kernel[2]; l++)
            for (int64_t c = 0; c < a->cg; c++)
                for (int64_t m = 0; m < a->m; m++, k++) {
                    int64_t from = m * w->stride[0] + c * w->stride[1] + h * row + l * pixel;
                    if (narrow) {
                        int16_t v = (int16_t)(number_at(w, from));
                        memcpy(to + k * 2, &v, 2);
                    } else if (f8) {
                        const uint16_t v = pare_f32_to_f16(
                            pare_f8_value(w->dtype, ((const uint8_t *)w->data)[from]));
                        memcpy(to + k * 2, &v, 2);
                    } else {
                        memcpy(to + k * bytes, (const char *)w->data + from * bytes, (size_t)bytes);
                    }
                }
}

/* Block: weights, scales, biases, of depthwise_strip what sums are less for X's zero point. */
static pare_status block_make(pare_prep *p, direct *s, const pare_conv_args *a, const places *at)
{
    pare_cuda_gemm_args *q = &s->d.p;
    const size_t filters = (size_t)a->m * 4, count = (size_t)(a->m * a->cg * s->d.taps);
    const size_t scale = pare_align_up(count * (size_t)weight_bytes(q->x_type), 256);
    const size_t bias = pare_align_up(scale + filters, 256),
                 shift = pare_align_up(bias + filters, 256);
    char *host = (char *)pare_alloc(p->ctx, shift + filters, 1);
    if (!host) return PARE_MEMORY;
    weights_pack(p, a, at, host);
    if (a->scale) memcpy(host + scale, a->scale, filters);
    float *b = (float *)(void *)(host + bias);
    for (int64_t m = 0; m < a->m; m++) b[m] = (float)entry_at(p, at->bias, m);
    int32_t *less = (int32_t *)(void *)(host + shift);
    const int16_t *w = (const int16_t *)(const void *)host;
    for (size_t k = 0; a->int8 && k < count; k++) less[k % (size_t)a->m] += s->d.x_zero * w[k];
    pare_status st = pare_cuda_copy_kept(p, &s->block, host, shift + filters);
    pare_free(host);
    if (st != PARE_OK)
        return pare_fail_prefix(p->ctx, st, "node '%s' (%s)", p->node->name, p->node->op_type);
    const char *block = (const char *)s->block;
    q->w = block;
    q->scale = a->scale ? (const float *)(const void *)(block + scale) : NULL;
    q->bias = at->bias >= 0 ? block + bias : NULL;
    q->shift = a->int8 && s->d.places ? (const int32_t *)(const void *)(block + shift) : NULL;
    return PARE_OK;
}

/* Are there channels in fours that are together, a filter each? */
static bool is_four(const pare_conv_args *a, const pare_cuda_gemm_args *p)
{
    return a->cg == 1 && a->mg == 1 && a->m % 4 == 0 && p->in.pixel % 4 == 0 &&
           p->in.row % 4 == 0 && p->in.image % 4 == 0;
}

static void strips_set(direct *s)
{
    const pare_cuda_picture *in = &s->d.p.in;
    const int lots = s->d.p.columns / 4, strips = (in->out_width + STRIP - 1) / STRIP;
    const int64_t lines = in->out_width ? s->d.p.rows / in->out_width : 0;
    s->d.places = lines * strips * lots;
    s->d.by_lots = pare_cuda_fast_divisor_of(lots);
    s->d.by_strips = pare_cuda_fast_divisor_of(strips);
}

/* Everything but the constants; p->columns becomes all filters. */
static pare_status direct_new(pare_prep *prep, const pare_conv_args *a, direct **out)
{
    direct *s = (direct *)pare_arena_alloc(prep->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_cuda_gemm_args *p = &s->d.p;
    s->device = prep->device;
    s->residual = -1;
    pare_cuda_picture_set(prep, a, p);
    s->d.taps = (int)(a->win.kernel[1] * a->win.kernel[2]);
    s->d.group_columns = (int)a->mg;
    s->d.four = is_four(a, p);
    p->columns = (int)a->m;
    pare_cuda_lot_set(p);
    *out = s;
    return PARE_OK;
}

static pare_status direct_close(pare_prep *prep, direct *s, const pare_conv_args *a,
                                const places *at)
{
    prep->packed = ~1u;
    if (s->residual >= 0) prep->packed &= ~(1u << s->residual);
    PARE_TRY(block_make(prep, s, a, at));
    prep->state = s;
    return PARE_OK;
}

static pare_status direct_run(const pare_call *c)
{
    const direct *s = (const direct *)c->state;
    pare_cuda_direct d = s->d;
    d.p.x = c->in[0].data;
    d.p.y = c->out[0].data;
    d.p.z = s->residual < 0 ? NULL : c->in[s->residual].data;
    return PARE_CUDA_LAUNCH(c, direct_launch, &d);
}

static void direct_release(void *state)
{
    direct *s = (direct *)state;
    if (s) s->device->backend->free(s->device, s->block);
}

/* --- Conv, FusedConv --- */

static bool grouped_can(const pare_prep *prep)
{
    pare_conv_args a;
    pare_cuda_gemm_args p;
    return pare_cuda_conv_read(prep, &a, &p) && a.win.group > 1 && a.mg < FEW_FILTERS;
}

/* Is it depthwise, with a square window of 3 or 5 taps that follow one another, 1 or 2 a step? */
static bool strip_can(const pare_prep *prep)
{
    pare_conv_args a;
    pare_cuda_gemm_args p;
    if (!grouped_can(prep) || !pare_cuda_conv_read(prep, &a, &p) || !is_four(&a, &p)) return false;
    const pare_window *w = &a.win;
    const bool square = w->kernel[1] == w->kernel[2] && w->stride[1] == w->stride[2];
    return square && (w->kernel[1] == 3 || w->kernel[1] == 5) && w->stride[1] <= 2 &&
           w->dilation[1] == 1 && w->dilation[2] == 1 && p.rows * (a.m / 4) <= INT32_MAX;
}

static pare_status strip_or_direct(pare_prep *prep, bool strip)
{
    direct *s;
    pare_conv_args a;
    PARE_TRY(pare_conv_args_read(prep, &a));
    const places at = {1, a.at.bias};
    PARE_TRY(direct_new(prep, &a, &s));
    if (strip) strips_set(s);
    s->residual = a.at.residual;
    s->d.x_zero = a.q.x_zero;
    s->d.p.epilogue = pare_cuda_epilogue_of(prep, a.int8 || a.f8, &a.act, &a.epilogue, s->residual);
    return direct_close(prep, s, &a, &at);
}

static pare_status grouped_prepare(pare_prep *prep) { return strip_or_direct(prep, false); }
static pare_status strip_prepare(pare_prep *prep) { return strip_or_direct(prep, true); }

const pare_kernel pare_cuda_conv_depthwise = {.name = "cuda_conv_depthwise",
                                              .can = strip_can,
                                              .prepare = strip_prepare,
                                              .run = direct_run,
                                              .release = direct_release,
                                              .flags = PARE_KERNEL_PARTS};
const pare_kernel pare_cuda_conv_direct = {.name = "cuda_conv_direct",
                                           .can = grouped_can,
                                           .prepare = grouped_prepare,
                                           .run = direct_run,
                                           .release = direct_release,
                                           .flags = PARE_KERNEL_PARTS};
