/* SPDX-License-Identifier: Apache-2.0 */
/* Conv and FusedConv of groups with few filters, and ConvInteger (10) and QLinearConv (10) of any,
   on the kernel of direct.h. Weights lie on the device tap by tap, 8-bit ones without their zero
   point. The integer ones run on tensor cores where weights without zero point fit into s8. */
#include "runtime/cuda/convolution.h"
#include "runtime/cuda/direct.h"
#include "runtime/base/size.h"

#include <string.h>

enum { FEW_FILTERS = 16 };

typedef struct direct {
    pare_cuda_direct d;
    int residual, x_zero; /* input positions; -1: none, or constant */
    pare_device *device;
    void *block;
} direct;

/* Where W and what belongs to it are among the inputs; -1: absent. */
typedef struct places {
    int w, w_zero, bias;
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
                        int16_t v = (int16_t)(number_at(w, from) - entry_at(p, at->w_zero, m));
                        memcpy(to + k * 2, &v, 2);
                    } else {
                        memcpy(to + k * bytes, (const char *)w->data + from * bytes, (size_t)bytes);
                    }
                }
}

/* Block: weights, scales, biases. */
static pare_status block_make(pare_prep *p, direct *s, const pare_conv_args *a, const places *at)
{
    pare_cuda_product *q = &s->d.p;
    size_t bytes =
        (size_t)(a->m * a->cg * s->d.taps) * (size_t)(a->int8 ? 2 : pare_cuda_bytes(q->x_type));
    size_t scale = pare_align_up(bytes, 256), bias = pare_align_up(scale + (size_t)a->m * 4, 256);
    char *host = pare_alloc(p->ctx, bias + (size_t)a->m * 4, 1);
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
    direct *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_cuda_product *p = &s->d.p;
    s->device = prep->device;
    s->residual = s->x_zero = -1;
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
    if (s->x_zero >= 0) prep->packed &= ~(1u << s->x_zero);
    PARE_TRY(block_make(prep, s, a, at));
    prep->state = s;
    return PARE_OK;
}

static pare_status direct_run(const pare_call *c)
{
    const direct *s = c->state;
    pare_cuda_direct d = s->d;
    d.p.x = c->in[0].data;
    d.p.y = c->out[0].data;
    d.p.z = s->residual < 0 ? NULL : c->in[s->residual].data;
    d.x_zero = s->x_zero < 0 ? NULL : c->in[s->x_zero].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_direct_launch, &d);
}

static void direct_release(void *state)
{
    direct *s = state;
    if (s) s->device->backend->free(s->device, s->block);
}

/* --- Conv, FusedConv --- */

static bool grouped_can(const pare_prep *prep)
{
    pare_conv_args a;
    pare_cuda_product p;
    return pare_cuda_conv_read(prep, &a, &p) && a.win.group > 1 && a.mg < FEW_FILTERS;
}

static pare_status grouped_prepare(pare_prep *prep)
{
    direct *s;
    pare_conv_args a;
    PARE_TRY(pare_conv_args_read(prep, &a));
    PARE_TRY(direct_new(prep, &a, &s));
    s->residual = a.at.residual;
    s->d.x_zero_value = a.q.x_zero;
    s->d.p.epilogue = a.epilogue;
    if (!a.int8) {
        s->d.p.epilogue.act = a.act;
        s->d.p.epilogue.z_type = s->residual < 0 ? PARE_NOTYPE : prep->in[s->residual].dtype;
    }
    return direct_close(prep, s, &a, &(places){1, -1, a.at.bias});
}

const pare_kernel pare_cuda_conv_direct = {.name = "cuda_conv_direct",
                                           .can = grouped_can,
                                           .prepare = grouped_prepare,
                                           .run = direct_run,
                                           .release = direct_release};

/* --- ConvInteger: x, w, x_zero_point, w_zero_point; QLinearConv: x, x_scale, x_zero_point, w,
   w_scale, w_zero_point, y_scale, y_zero_point, B --- */

enum { X_SCALE = 1, X_ZERO, W, W_SCALE, W_ZERO, Y_SCALE, Y_ZERO, B };

static bool constant_or_absent(const pare_prep *p, int at)
{
    const pare_view *v = pare_operand(p->in, p->in_count, at);
    return !v || v->data;
}

static pare_status integer_read(const pare_prep *p, int w_at, pare_conv_args *a)
{
    const pare_view *x = &p->in[0], *w = &p->in[w_at];
    pare_shape xs = {.rank = x->rank};
    for (int i = 0; i < x->rank; i++) xs.dim[i] = x->dim[i];
    *a = (pare_conv_args){.int8 = true, .at = {-1, -1, -1}};
    PARE_TRY(pare_window_read(p->node, &xs, w->dim + 2, &a->win));
    a->n = x->dim[0], a->c = x->dim[1], a->m = w->dim[0], a->cg = w->dim[1];
    a->mg = a->m / a->win.group;
    return PARE_OK;
}

static bool integer_fits(const pare_prep *p, int w_at, int w_zero)
{
    pare_conv_args a;
    const pare_view *x = &p->in[0];
    return pare_type_is_int8(x->dtype) && pare_type_is_int8(p->in[w_at].dtype) && x->rank > 2 &&
           x->rank < 5 && p->in[w_at].data && constant_or_absent(p, w_zero) &&
           pare_cuda_readable(p, integer_read(p, w_at, &a)) && pare_cuda_places_fit(p, &a);
}

/* W without its zero point as s8, in the plan's arena; false where it does not fit. */
static bool weights_narrow(const pare_prep *p, int w_at, int w_zero, int8_t *to)
{
    const pare_view *w = &p->in[w_at];
    int64_t each = w->dim[0] ? pare_view_count(w) / w->dim[0] : 0;
    for (int64_t i = 0; i < pare_view_count(w); i++) {
        int v = (int)(number_at(w, i) - entry_at(p, w_zero, i / each));
        if (v < -128 || v > 127) return false;
        if (to) to[i] = (int8_t)v;
    }
    return true;
}

/* The same on tensor cores: 16 filters of a group or more, zero points that constants tell. */
static bool tile_takes(const pare_prep *p, int w_at, int w_zero, int x_zero)
{
    pare_conv_args a;
    return pare_cuda_readable(p, integer_read(p, w_at, &a)) && a.mg >= FEW_FILTERS &&
           constant_or_absent(p, x_zero) && weights_narrow(p, w_at, w_zero, NULL);
}

static pare_status tile_prepare(pare_prep *prep, const pare_conv_args *a, const places *at,
                                int x_zero, pare_cuda_finish finish, const pare_epilogue *e)
{
    pare_cuda_prepared *s;
    pare_cuda_packing k;
    pare_cuda_product p;
    pare_view w = prep->in[at->w];
    w.dtype = PARE_s8;
    w.data = pare_arena_alloc(prep->arena, (size_t)pare_view_count(&w) + 1, 1);
    if (!w.data) return PARE_MEMORY;
    (void)weights_narrow(prep, at->w, at->w_zero, w.data);
    pare_cuda_picture_set(prep, a, &p);
    p.finish = finish;
    p.tile = pare_cuda_tile_best(&p);
    PARE_TRY(pare_cuda_prepared_new(prep, &p, &s));
    if (e) s->p.epilogue = *e;
    PARE_TRY(pare_cuda_packing_open(prep, &p, PARE_CUDA_WHOLE, &k));
    pare_cuda_filters_pack(&w, a, &k, &p);
    return pare_cuda_packing_close(
        prep, s, &k,
        &(pare_cuda_constants){
            true, a->scale, (int32_t)entry_at(prep, x_zero, 0), {at->bias, -1, -1}, a->m});
}

static bool conv_integer_can(const pare_prep *p) { return integer_fits(p, 1, 3); }

static pare_status conv_integer_prepare(pare_prep *prep)
{
    direct *s;
    pare_conv_args a;
    PARE_TRY(integer_read(prep, 1, &a));
    PARE_TRY(direct_new(prep, &a, &s));
    if (pare_operand(prep->in, prep->in_count, 2)) s->x_zero = 2;
    s->d.p.finish = PARE_CUDA_RAW;
    return direct_close(prep, s, &a, &(places){1, 3, -1});
}

static bool conv_integer_tile_can(const pare_prep *p)
{
    return conv_integer_can(p) && tile_takes(p, 1, 3, 2);
}

static pare_status conv_integer_tile_prepare(pare_prep *prep)
{
    pare_conv_args a;
    PARE_TRY(integer_read(prep, 1, &a));
    return tile_prepare(prep, &a, &(places){1, 3, -1}, 2, PARE_CUDA_RAW, NULL);
}

static const pare_kernel conv_integer_tile = {.name = "cuda_conv_integer_tile",
                                              .can = conv_integer_tile_can,
                                              .prepare = conv_integer_tile_prepare,
                                              .run = pare_cuda_product_run,
                                              .release = pare_cuda_product_release};
static const pare_kernel conv_integer = {.name = "cuda_conv_integer",
                                         .can = conv_integer_can,
                                         .prepare = conv_integer_prepare,
                                         .run = direct_run,
                                         .release = direct_release};
const pare_kernel *const pare_cuda_conv_integer[] = {&conv_integer_tile, &conv_integer, NULL};

static bool qlinear_conv_can(const pare_prep *p)
{
    for (int i = X_SCALE; i <= B; i++)
        if (!constant_or_absent(p, i)) return false;
    return integer_fits(p, W, W_ZERO) && pare_type_is_int8(p->out[0].dtype);
}

/* m = (s_x * s_w[c]) / s_y, as FusedConv's. */
static pare_status qlinear_read(pare_prep *prep, pare_conv_args *a, pare_epilogue *e)
{
    PARE_TRY(integer_read(prep, W, a));
    pare_quant_args q = {.x_scale = (float)entry_at(prep, X_SCALE, 0),
                         .y_scale = (float)entry_at(prep, Y_SCALE, 0),
                         .y_zero = (int32_t)entry_at(prep, Y_ZERO, 0),
                         .to = prep->out[0].dtype};
    float *scale = pare_arena_alloc(prep->arena, (size_t)a->m + 1, sizeof *scale);
    if (!scale) return PARE_MEMORY;
    pare_epilogue_init(e, &q, &a->act, PARE_NOTYPE);
    for (int64_t m = 0; m < a->m; m++)
        scale[m] = pare_epilogue_scale(e, q.x_scale, (float)entry_at(prep, W_SCALE, m));
    a->scale = scale;
    return PARE_OK;
}

static int present(const pare_prep *p, int at)
{
    return pare_operand(p->in, p->in_count, at) ? at : -1;
}

static pare_status qlinear_conv_prepare(pare_prep *prep)
{
    direct *s;
    pare_conv_args a;
    pare_epilogue e;
    PARE_TRY(qlinear_read(prep, &a, &e));
    PARE_TRY(direct_new(prep, &a, &s));
    s->d.p.epilogue = e;
    s->d.x_zero_value = (int32_t)entry_at(prep, X_ZERO, 0);
    return direct_close(prep, s, &a, &(places){W, W_ZERO, present(prep, B)});
}

static bool qlinear_conv_tile_can(const pare_prep *p)
{
    return qlinear_conv_can(p) && tile_takes(p, W, W_ZERO, X_ZERO);
}

static pare_status qlinear_conv_tile_prepare(pare_prep *prep)
{
    pare_conv_args a;
    pare_epilogue e;
    PARE_TRY(qlinear_read(prep, &a, &e));
    return tile_prepare(prep, &a, &(places){W, W_ZERO, present(prep, B)}, X_ZERO,
                        PARE_CUDA_EPILOGUE, &e);
}

static const pare_kernel qlinear_conv_tile = {.name = "cuda_qlinear_conv_tile",
                                              .can = qlinear_conv_tile_can,
                                              .prepare = qlinear_conv_tile_prepare,
                                              .run = pare_cuda_product_run,
                                              .release = pare_cuda_product_release};
static const pare_kernel qlinear_conv = {.name = "cuda_qlinear_conv",
                                         .can = qlinear_conv_can,
                                         .prepare = qlinear_conv_prepare,
                                         .run = direct_run,
                                         .release = direct_release};
const pare_kernel *const pare_cuda_qlinear_conv[] = {&qlinear_conv_tile, &qlinear_conv, NULL};
