/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear (25): y = clamp(rint(x / s) + z), a true division, ties to even, NaN to the
   lowest; in FP8 it is x / s + z, saturated or not. DequantizeLinear (25): y = (float)(x - z) * s,
   rounded to the scale's type. DynamicQuantizeLinear (11): u8 with the range of the data itself.

   Scales and zero points are views stretched to x (strides of 0 where they do not change); blocks
   are taken one index of the block axis at a time, so that inside each they are again such views.
   Packed and minifloat tensors go element by element, but E4M3 and E5M2 that saturate. */
#include "runtime/base/f8.h"
#include "runtime/cpu/quantize.h"
#include "runtime/cpu/ref.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/infer.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256 };

typedef struct limits {
    float low, high;
} limits;

static limits limits_of(pare_dtype type)
{
    switch (type) {
    case PARE_s8: return (limits){-128, 127};
    case PARE_u8: return (limits){0, 255};
    case PARE_s16: return (limits){-32768, 32767};
    case PARE_u16: return (limits){0, 65535};
    case PARE_s4: return (limits){-8, 7};
    case PARE_s2: return (limits){-2, 1};
    case PARE_u2: return (limits){0, 3};
    default: return (limits){0, 15}; /* u4 */
    }
}

/* n numbers as floats; where they are dense in f32 already, their own memory. */
#define LOAD(type, memory, calc, load, store)                                                      \
    case PARE_##type:                                                                              \
        for (int64_t i = 0; i < n; i++) buffer[i] = (float)load(((const memory *)p)[i * stride]);  \
        break;

static const float *floats_of(float *buffer, const char *p, int64_t n, int64_t stride,
                              pare_dtype type)
{
    if (type == PARE_f32 && stride == 1) return (const float *)(const void *)p;
    switch (type) {
        PARE_REF_NUMBERS(LOAD)
    case PARE_f8e4m3:
    case PARE_f8e5m2:
        for (int64_t i = 0; i < n; i++)
            buffer[i] = pare_f8_value(type, ((const uint8_t *)p)[i * stride]);
        break;
    default:
        for (int64_t i = 0; i < n; i++) buffer[i] = 0;
    }
    return buffer;
}
#undef LOAD

/* --- QuantizeLinear --- */

#define QUANTIZE(type, memory)                                                                     \
    PARE_CLONES static void quantize_##type(                                                       \
        memory *restrict y, int64_t stride, const float *restrict x, const float *restrict s,      \
        const float *restrict z, bool one, int64_t n, float low, float high)                       \
    {                                                                                              \
        if (one && stride == 1) {                                                                  \
            const float s0 = s[0], z0 = z[0];                                                      \
            for (int64_t i = 0; i < n; i++) {                                                      \
                float v = rintf(x[i] / s0) + z0;                                                   \
                v = v > low ? v : low;                                                             \
                y[i] = (memory)(int32_t)(v < high ? v : high);                                     \
            }                                                                                      \
        } else                                                                                     \
            for (int64_t i = 0; i < n; i++) {                                                      \
                float v = rintf(x[i] / s[one ? 0 : i]) + z[one ? 0 : i];                           \
                v = v > low ? v : low;                                                             \
                y[i * stride] = (memory)(int32_t)(v < high ? v : high);                            \
            }                                                                                      \
    }
QUANTIZE(s8, int8_t)
QUANTIZE(u8, uint8_t)
QUANTIZE(s16, int16_t)
QUANTIZE(u16, uint16_t)

/* A zero point of -0 is 0, too. */
#define QUANTIZE_F8(type)                                                                          \
    PARE_CLONES static void quantize_##type(uint8_t *restrict y, int64_t stride,                   \
                                            const float *restrict x, const float *restrict s,      \
                                            const float *restrict z, bool one, int64_t n)          \
    {                                                                                              \
        const float s0 = s[0], z0 = z[0] + 0.0f;                                                   \
        if (one && stride == 1)                                                                    \
            for (int64_t i = 0; i < n; i++) y[i] = pare_##type##_code(x[i] / s0 + z0);             \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i * stride] =                                                                    \
                    pare_##type##_code(x[i] / s[one ? 0 : i] + (z[one ? 0 : i] + 0.0f));           \
    }
QUANTIZE_F8(f8e4m3)
QUANTIZE_F8(f8e5m2)

void pare_quantize_codes(void *y, pare_dtype type, const float *x, int64_t n, float scale,
                         float zero)
{
    const limits l = limits_of(type);
    if (type == PARE_s8)
        quantize_s8(y, 1, x, &scale, &zero, true, n, l.low, l.high);
    else
        quantize_u8(y, 1, x, &scale, &zero, true, n, l.low, l.high);
}

/* The types of output, x, scale, zero point: arg of both rows. */
typedef struct types {
    pare_dtype y, x, s, z;
} types;

static char *advance(char *p, int64_t elements, pare_dtype type)
{
    return p + elements * (pare_type(type)->bits / 8);
}

static void quantize_row(int64_t n, char *const *p, const int64_t *stride, const void *arg)
{
    const types *t = arg;
    const limits l = limits_of(t->y);
    const bool one = stride[2] == 0 && stride[3] == 0;
    float xs[CHUNK], ss[CHUNK], zs[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;
        const float *x = floats_of(xs, advance(p[1], at * stride[1], t->x), m, stride[1], t->x);
        const float *s =
            floats_of(ss, advance(p[2], at * stride[2], t->s), one ? 1 : m, stride[2], t->s);
        const float *z =
            floats_of(zs, advance(p[3], at * stride[3], t->z), one ? 1 : m, stride[3], t->z);
        void *y = advance(p[0], at * stride[0], t->y);
        switch (t->y) {
        case PARE_s8: quantize_s8(y, stride[0], x, s, z, one, m, l.low, l.high); break;
        case PARE_u8: quantize_u8(y, stride[0], x, s, z, one, m, l.low, l.high); break;
        case PARE_s16: quantize_s16(y, stride[0], x, s, z, one, m, l.low, l.high); break;
        case PARE_f8e4m3: quantize_f8e4m3(y, stride[0], x, s, z, one, m); break;
        case PARE_f8e5m2: quantize_f8e5m2(y, stride[0], x, s, z, one, m); break;
        default: quantize_u16(y, stride[0], x, s, z, one, m, l.low, l.high); break;
        }
    }
}

/* --- DequantizeLinear --- */

#define LOAD_INT(type, memory)                                                                     \
    case PARE_##type:                                                                              \
        for (int64_t i = 0; i < n; i++) out[i] = ((const memory *)(const void *)p)[i * stride];    \
        break;

static void ints_of(int32_t *out, const char *p, int64_t n, int64_t stride, pare_dtype type)
{
    switch (type) {
        LOAD_INT(s8, int8_t)
        LOAD_INT(u8, uint8_t)
        LOAD_INT(s16, int16_t)
        LOAD_INT(u16, uint16_t)
        LOAD_INT(s32, int32_t)
    default:
        for (int64_t i = 0; i < n; i++) out[i] = 0;
    }
}

PARE_CLONES static void dequantize_f32(float *restrict y, const int32_t *restrict x,
                                       const int32_t *restrict z, const float *restrict s, bool one,
                                       int64_t n)
{
    const int32_t z0 = z[0];
    const float s0 = s[0];
    if (one)
        for (int64_t i = 0; i < n; i++) y[i] = (float)(int32_t)((uint32_t)x[i] - (uint32_t)z0) * s0;
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)(int32_t)((uint32_t)x[i] - (uint32_t)z[i]) * s[i];
}

/* The same of FP8. */
PARE_CLONES static void scale_floats(float *restrict y, const float *restrict x,
                                     const float *restrict z, const float *restrict s, bool one,
                                     int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - z[one ? 0 : i]) * s[one ? 0 : i];
}

static void dequantize_row(int64_t n, char *const *p, const int64_t *stride, const void *arg)
{
    const types *t = arg;
    const bool one = stride[2] == 0 && stride[3] == 0;
    const bool f8 = pare_type_is_f8(t->x);
    int32_t xs[CHUNK], zs[CHUNK];
    float ss[CHUNK], ys[CHUNK], fs[CHUNK], fz[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK, few = one ? 1 : m;
        const char *x = advance(p[1], at * stride[1], t->x),
                   *z = advance(p[3], at * stride[3], t->z);
        const float *s = floats_of(ss, advance(p[2], at * stride[2], t->s), few, stride[2], t->s);
        char *y = advance(p[0], at * stride[0], t->y);
        const bool dense = t->y == PARE_f32 && stride[0] == 1;
        float *to = dense ? (float *)(void *)y : ys;
        if (f8) {
            scale_floats(to, floats_of(fs, x, m, stride[1], t->x),
                         floats_of(fz, z, few, stride[3], t->z), s, one, m);
        } else {
            ints_of(xs, x, m, stride[1], t->x);
            ints_of(zs, z, few, stride[3], t->z);
            dequantize_f32(to, xs, zs, s, one, m);
        }
        if (dense) continue;
        for (int64_t i = 0; i < m; i++)
            pare_type(t->y)->from_f32_ref(advance(y, i * stride[0], t->y), ys[i]);
    }
}

/* --- both --- */

typedef struct scaling {
    int axis;
    int64_t block;
    bool quantize, saturate;
} scaling;

static pare_status scaling_prepare(pare_prep *p)
{
    scaling *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->quantize = pare_node_is(p->node, "QuantizeLinear");
    s->saturate = pare_node_int(p->node, "saturate", 1) != 0;
    if (pare_view_count(&p->in[1]) != 1) {
        s->block = pare_node_int(p->node, "block_size", 0);
        PARE_TRY(
            pare_infer_axis(p->node, pare_node_int(p->node, "axis", 1), p->in[0].rank, &s->axis));
    }
    p->state = s;
    return PARE_OK;
}

/* A scale or zero point seen with x's rank: a single number everywhere, a vector along the axis,
   a tensor of blocks as it is. */
static pare_view like_x(const pare_view *v, const pare_view *x, int axis)
{
    pare_view w = *v;
    if (v->rank == x->rank && pare_view_count(v) != 1 && v->rank > 1) return w;
    w.rank = x->rank;
    for (int i = 0; i < x->rank; i++) {
        bool along = i == axis && v->rank == 1 && v->dim[0] != 1;
        w.dim[i] = along ? v->dim[0] : 1;
        w.stride[i] = along ? v->stride[0] : 0;
    }
    return w;
}

/* Not of whole bytes, or no type of C. */
static bool by_element(const pare_view *v)
{
    return pare_type_is_packed(v->dtype) ||
           (pare_is_minifloat(v->dtype) && !pare_type_is_f8(v->dtype));
}

/* One element; the index in scale and zero point is divided by the block on its axis. */
static void one_element(const scaling *k, const pare_view *y, const pare_view *x,
                        const pare_view *s, const pare_view *z, const int64_t *index)
{
    int64_t where[PARE_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        where[i] = k->block && i == k->axis ? index[i] / k->block : index[i];
        if (s->dim[i] == 1) where[i] = 0;
    }
    float scale = (float)pare_ref_get(s, pare_ref_offset(s, where));
    double zero = pare_ref_get(z, pare_ref_offset(z, where));
    double v = pare_ref_get(x, pare_ref_offset(x, index));
    if (!k->quantize) {
        pare_ref_set(y, pare_ref_offset(y, index), (double)((float)(v - zero) * scale));
        return;
    }
    if (pare_is_minifloat(y->dtype)) {
        pare_ref_set_minifloat(y, pare_ref_offset(y, index), (float)v / scale + (float)zero,
                               k->saturate, PARE_ROUND_UP);
        return;
    }
    const limits l = limits_of(y->dtype);
    float q = rintf((float)v / scale) + (float)zero;
    q = q > l.low ? q : l.low;
    pare_ref_set(y, pare_ref_offset(y, index), (double)(q < l.high ? q : l.high));
}

/* The part of a view at [from, from + count) of an axis. */
static pare_view part(const pare_view *v, int axis, int64_t from, int64_t count)
{
    pare_view w = *v;
    w.data = pare_ref_at(v, from * v->stride[axis]);
    w.dim[axis] = count;
    return w;
}

static pare_status scaling_run(const pare_call *c)
{
    const scaling *k = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    uint32_t nothing = 0;
    bool zeroed = c->in_count > 2 && c->in[2].dtype;
    pare_view none = {.dtype = k->quantize ? PARE_s8 : x->dtype, .data = &nothing};
    pare_view s = like_x(&c->in[1], x, k->axis);
    pare_view z = like_x(zeroed ? &c->in[2] : &none, x, k->axis);
    const types t = {y->dtype, x->dtype, s.dtype, z.dtype};
    pare_ref_row row = k->quantize ? quantize_row : dequantize_row;
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(y) == 0) return PARE_OK;
    if (by_element(x) || by_element(y) || by_element(&s) ||
        (pare_type_is_f8(y->dtype) && !k->saturate)) {
        if (by_element(y))
            memset(y->data, 0, pare_view_bytes(y)); /* a part of a byte may be left */
        do one_element(k, y, x, &s, &z, index);
        while (pare_ref_next(x, index));
        return PARE_OK;
    }
    int64_t block = k->block ? k->block : x->rank ? x->dim[k->axis] : 1;
    for (int64_t at = 0, b = 0; at == 0 || at < x->dim[k->axis]; at += block, b++) {
        pare_view xb = *x, yb = *y, sb = s, zb = z;
        if (k->block) {
            int64_t n = x->dim[k->axis] - at < block ? x->dim[k->axis] - at : block;
            xb = part(x, k->axis, at, n);
            yb = part(y, k->axis, at, n);
            sb = part(&s, k->axis, b, 1);
            if (z.dim[k->axis] != 1) zb = part(&z, k->axis, b, 1);
        }
        pare_ref_each(&yb, (const pare_view *const[]){&xb, &sb, &zb}, 3, c->threads, row, &t);
        if (!k->block) break;
    }
    return PARE_OK;
}

static bool in_order(const pare_view *v) { return !by_element(v) || pare_view_rowmajor(v); }

static bool is_level(const pare_view *v)
{
    return pare_ref_in_set(v->dtype, PARE_BIT(s8) | PARE_BIT(u8) | PARE_BIT(s16) | PARE_BIT(u16) |
                                         PARE_BIT(f8e4m3) | PARE_BIT(f8e5m2)) ||
           by_element(v);
}

static bool quantize_can(const pare_prep *p)
{
    unsigned from = PARE_BIT(f32) | PARE_BIT(f16) | PARE_BIT(bf16) | PARE_BIT(s32);
    return pare_ref_in_set(p->in[0].dtype, from) &&
           pare_ref_in_set(p->in[1].dtype, from | PARE_BIT(f8e8m0)) && is_level(&p->out[0]) &&
           in_order(&p->out[0]);
}

static bool dequantize_can(const pare_prep *p)
{
    unsigned to = PARE_BIT(f32) | PARE_BIT(f16) | PARE_BIT(bf16);
    return (is_level(&p->in[0]) || p->in[0].dtype == PARE_s32) &&
           pare_ref_in_set(p->in[1].dtype, to | PARE_BIT(f8e8m0)) &&
           pare_ref_in_set(p->out[0].dtype, to) && in_order(&p->in[0]);
}

/* --- QuantizeLinear of N, C, H, W with one scale into N, H, W, C --- */

static bool nhwc_can(const pare_prep *p)
{
    const pare_view *x = &p->in[0], *y = &p->out[0];
    return quantize_can(p) && pare_type_is_int8(y->dtype) && x->dtype == PARE_f32 && x->rank == 4 &&
           pare_view_rowmajor(x) && pare_view_nhwc(y) && pare_view_count(&p->in[1]) == 1;
}

/* A chunk of positions: each plane's are quantized beside each other, then put in their places. */
static void nhwc_chunk(const pare_call *c, int64_t image, int64_t at, float scale, float zero)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    const int64_t channels = x->dim[1], plane = x->dim[2] * x->dim[3];
    const int64_t n = plane - at < CHUNK ? plane - at : CHUNK;
    const float *from = (const float *)x->data + image * channels * plane + at;
    uint8_t *to = (uint8_t *)y->data + (image * plane + at) * channels, code[CHUNK];
    for (int64_t i = 0; i < channels; i++) {
        pare_quantize_codes(code, y->dtype, from + i * plane, n, scale, zero);
        for (int64_t k = 0; k < n; k++) to[k * channels + i] = code[k];
    }
}

static pare_status nhwc_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    const int64_t plane = x->dim[2] * x->dim[3], chunks = (plane + CHUNK - 1) / CHUNK;
    const bool zeroed = c->in_count > 2 && c->in[2].dtype;
    const float scale = (float)pare_ref_get(&c->in[1], 0),
                zero = zeroed ? (float)pare_ref_get(&c->in[2], 0) : 0;
    const int threads = c->threads;
    if (pare_view_count(x) == 0) return PARE_OK;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && chunks > 8)
    for (int64_t i = 0; i < x->dim[0] * chunks; i++)
        nhwc_chunk(c, i / chunks, i % chunks * CHUNK, scale, zero);
    return PARE_OK;
}

static const pare_kernel quantize_nhwc = {
    .name = "quantize_nhwc", .can = nhwc_can, .run = nhwc_run};
static const pare_kernel ref_quantize = {.name = "ref_quantize",
                                         .can = quantize_can,
                                         .prepare = scaling_prepare,
                                         .run = scaling_run,
                                         .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_quantize[] = {&quantize_nhwc, &ref_quantize, NULL};
static const pare_kernel ref_dequantize = {.name = "ref_dequantize",
                                           .can = dequantize_can,
                                           .prepare = scaling_prepare,
                                           .run = scaling_run,
                                           .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_dequantize[] = {&ref_dequantize, NULL};

/* --- DynamicQuantizeLinear --- */

/* The range holds 0; scale = (high - low) / 255; zero point = -low / scale, rounded, saturated. */
static pare_status dynamic_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    float low = 0, high = 0;
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(x) > 0) do {
            float v = (float)pare_ref_get(x, pare_ref_offset(x, index));
            low = v < low ? v : low;
            high = v > high ? v : high;
        } while (pare_ref_next(x, index));
    float scale = (high - low) / 255;
    if (scale == 0) scale = 1; /* all zeros: any scale keeps them */
    float zero = rintf(-low / scale);
    zero = zero > 0 ? zero < 255 ? zero : 255 : 0;
    pare_ref_set(&c->out[1], 0, (double)scale);
    pare_ref_set(&c->out[2], 0, (double)zero);
    const types t = {PARE_u8, x->dtype, PARE_f32, PARE_u8};
    pare_ref_each(&c->out[0], (const pare_view *const[]){x, &c->out[1], &c->out[2]}, 3, c->threads,
                  quantize_row, &t);
    return PARE_OK;
}

static bool dynamic_can(const pare_prep *p)
{
    return p->in[0].dtype == PARE_f32 && p->out_count == 3 && p->out[1].dtype && p->out[2].dtype;
}

static const pare_kernel ref_dynamic_quantize = {.name = "ref_dynamic_quantize",
                                                 .can = dynamic_can,
                                                 .run = dynamic_run,
                                                 .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_dynamic_quantize[] = {&ref_dynamic_quantize, NULL};
