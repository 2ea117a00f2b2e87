/* SPDX-License-Identifier: Apache-2.0 */
/* y[n, p, m] = finish(sum over taps t and channels c of the group:
                       (x[n, p + t, c] - x_zero) * w[t, c, m])
   with channels innermost everywhere. Neighbouring threads hold neighbouring filters:
   weights and, of depthwise convolutions, pixels are read in rows. A pixel is read once a tap, from
   cache but for the first. Sums run over taps, then channels, each step one fused multiply-add. */
#include "runtime/base/size.h"
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/gemm/gemm.cuh"

#include <string.h>

typedef struct pare_cuda_direct {
    pare_cuda_gemm_args p; /* rows, in, y, z, scale, bias, epilogue; columns: all filters */
    int32_t x_zero;
    int taps, group_columns; /* filters of a group */
    bool four;               /* depthwise, all channels in fours that are together */
} pare_cuda_direct;

/* A type's sum and its weight. */
template <typename T> struct direct_of {
    typedef float sum;
    typedef T weight;
};
template <> struct direct_of<int8_t> {
    typedef int sum;
    typedef int16_t weight;
};
template <> struct direct_of<uint8_t> {
    typedef int sum;
    typedef int16_t weight;
};

template <typename T> SIMT_INLINE float step(float sum, T x, T w, int)
{
    return fmaf(pare_to_f32(x), pare_to_f32(w), sum);
}
SIMT_INLINE int step(int sum, int x, int16_t w, int zero) { return sum + (x - zero) * w; }

/* V neighbours that are aligned to all of them. */
template <typename T, int V> struct alignas(sizeof(T) * V) lot {
    T of[V];
};

/* V filters from c on, of one output position. */
template <typename T, int V> static __global__ void direct_each(pare_cuda_direct d)
{
    typedef typename direct_of<T>::weight weight;
    const pare_cuda_gemm_args &p = d.p;
    const operands o = operands_of(p, 0);
    const int lots = p.columns / V, zero = d.x_zero;
    PARE_CUDA_EACH (i, p.rows * lots) {
        const int64_t row = i / lots;
        const int c = (int)(i - row * lots) * V, first = c / d.group_columns * p.in.channels;
        const row_place place = row_find(p, row);
        typename direct_of<T>::sum sum[V];
        PARE_UNROLL for (int v = 0; v < V; v++) sum[v] = 0;
        for (int tap = 0; tap < d.taps; tap++) {
            int64_t at = element_find(p, place, tap_find(p, tap * p.in.channels));
            if (at < 0) continue;
            const T *x = reinterpret_cast<const T *>(o.x) + at + first;
            const weight *w = reinterpret_cast<const weight *>(o.w) +
                              (int64_t)tap * p.in.channels * p.columns + c;
            for (int k = 0; k < p.in.channels; k++, x++, w += p.columns) {
                const lot<T, V> xs = *reinterpret_cast<const lot<T, V> *>(x);
                const lot<weight, V> ws = *reinterpret_cast<const lot<weight, V> *>(w);
                PARE_UNROLL for (int v = 0; v < V; v++) sum[v] =
                    step(sum[v], xs.of[v], ws.of[v], zero);
            }
        }
        PARE_UNROLL for (int v = 0; v < V; v++)
            sum_finish(p, o, sum[v], row, c + v, row * p.y_row + c + v);
    }
}

template <typename T> static cudaError_t type_launch(const pare_cuda_direct *d, cudaStream_t stream)
{
    const int v = d->four ? 4 : 1;
    dim3 grid = pare_cuda_grid(d->p.rows * (d->p.columns / v));
    if (d->four)
        SIMT_LAUNCH((direct_each<T, 4>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *d);
    else
        SIMT_LAUNCH((direct_each<T, 1>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *d);
    return cudaGetLastError();
}

/* p.w: (taps, channels of a group, filters), of x's type, of 8-bit types s16 without zero point. */
static cudaError_t direct_launch(const pare_cuda_direct *d, cudaStream_t stream)
{
    if (d->p.rows == 0 || d->p.columns == 0) return cudaSuccess;
    switch (d->p.x_type) {
    case PARE_f32: return type_launch<float>(d, stream);
    case PARE_f16: return type_launch<__half>(d, stream);
    case PARE_bf16: return type_launch<__nv_bfloat16>(d, stream);
    case PARE_s8: return type_launch<int8_t>(d, stream);
    case PARE_u8: return type_launch<uint8_t>(d, stream);
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

/* (taps, channels of a group, filters) */
static void weights_pack(const pare_prep *p, const pare_conv_args *a, const places *at, char *to)
{
    const pare_view *w = &p->in[at->w];
    const bool narrow = pare_type_is_int8(w->dtype);
    const int bytes = narrow ? 2 : pare_cuda_bytes(w->dtype);
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
                    } else {
                        memcpy(to + k * bytes, (const char *)w->data + from * bytes, (size_t)bytes);
                    }
                }
}

/* Block: weights, scales, biases. */
static pare_status block_make(pare_prep *p, direct *s, const pare_conv_args *a, const places *at)
{
    pare_cuda_gemm_args *q = &s->d.p;
    size_t bytes =
        (size_t)(a->m * a->cg * s->d.taps) * (size_t)(a->int8 ? 2 : pare_cuda_bytes(q->x_type));
    size_t scale = pare_align_up(bytes, 256), bias = pare_align_up(scale + (size_t)a->m * 4, 256);
    char *host = (char *)pare_alloc(p->ctx, bias + (size_t)a->m * 4, 1);
    if (!host) return PARE_MEMORY;
    weights_pack(p, a, at, host);
    if (a->scale) memcpy(host + scale, a->scale, (size_t)a->m * 4);
    for (int64_t m = 0; m < a->m; m++) {
        float b = (float)entry_at(p, at->bias, m);
        memcpy(host + bias + m * 4, &b, 4);
    }
    pare_status st = pare_device_copy(p->ctx, p->device, &s->block, host, bias + (size_t)a->m * 4);
    pare_free(host);
    if (st != PARE_OK)
        return pare_fail_prefix(p->ctx, st, "node '%s' (%s)", p->node->name, p->node->op_type);
    q->w = s->block;
    q->scale = a->scale ? (const float *)(const void *)((const char *)s->block + scale) : NULL;
    q->bias = at->bias >= 0 ? (const char *)s->block + bias : NULL;
    return PARE_OK;
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
    int64_t lie[] = {p->in.pixel, p->in.row, p->in.image};
    s->d.four = a->cg == 1 && a->mg == 1 && a->m % 4 == 0;
    for (int i = 0; i < 3; i++) s->d.four = s->d.four && lie[i] % 4 == 0;
    p->columns = (int)a->m;
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

static pare_status grouped_prepare(pare_prep *prep)
{
    direct *s;
    pare_conv_args a;
    PARE_TRY(pare_conv_args_read(prep, &a));
    const places at = {1, a.at.bias};
    PARE_TRY(direct_new(prep, &a, &s));
    s->residual = a.at.residual;
    s->d.x_zero = a.q.x_zero;
    s->d.p.epilogue = a.epilogue;
    if (!a.int8) {
        s->d.p.epilogue.act = a.act;
        s->d.p.epilogue.z_type = s->residual < 0 ? PARE_NOTYPE : prep->in[s->residual].dtype;
    }
    return direct_close(prep, s, &a, &at);
}

const pare_kernel pare_cuda_conv_direct = {.name = "cuda_conv_direct",
                                           .can = grouped_can,
                                           .prepare = grouped_prepare,
                                           .run = direct_run,
                                           .release = direct_release};
