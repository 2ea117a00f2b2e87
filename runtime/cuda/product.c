/* SPDX-License-Identifier: Apache-2.0 */
/* Conv, Gemm, MatMul and their fused forms with constant weights, on the kernels of product.h.
   Weights are packed row by row (one row an output channel, taps outermost, channels innermost) while
   preparing, and lie on the device with scales, biases and corrections in one block. */
#include "runtime/ops/product.h"
#include "runtime/base/size.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/product.h"

#include <string.h>

typedef struct product {
    pare_cuda_product p; /* all but x, y and z */
    int residual;        /* input position, -1: none */
    pare_device *device;
    void *block;
} product;

/* Where the host builds the block, and offsets of its parts. */
typedef struct packing {
    char *host;
    size_t weights, scale, bias, shift, fill, bytes;
} packing;

static bool types_fit(const pare_prep *p)
{
    pare_dtype x = p->in[0].dtype, w = p->in[1].dtype;
    if (pare_type_is_int8(x)) return w == PARE_s8;
    return pare_cuda_is_float(x) && w == x && p->out[0].dtype == x;
}

/* A node that cannot be read is another kernel's to refuse: its message is not kept. */
static bool readable(const pare_prep *p, pare_status st)
{
    if (st != PARE_OK) pare_ctx_clear(p->ctx);
    return st == PARE_OK;
}

static bool bias_fits(const pare_prep *p, int at, int64_t columns)
{
    const pare_view *b = pare_operand(p->in, p->in_count, at);
    if (!b) return true;
    int64_t n = pare_view_count(b);
    return b->data && (n == 1 || (n == columns && b->dim[b->rank - 1] == columns)) &&
           (b->dtype == PARE_s32 || pare_cuda_is_float(b->dtype));
}

static bool residual_fits(const pare_prep *p, int at)
{
    const pare_view *z = pare_operand(p->in, p->in_count, at);
    if (!z) return true;
    return pare_view_same_order(z, &p->out[0]) &&
           (pare_type_is_int8(z->dtype) || z->dtype == PARE_f32 || z->dtype == p->out[0].dtype);
}

static size_t part(size_t *end, size_t bytes)
{
    size_t at = *end;
    *end = pare_align_up(at + bytes, 256);
    return at;
}

static pare_status packing_open(const pare_prep *prep, const pare_cuda_product *p, packing *k)
{
    size_t channels = (size_t)p->columns * (size_t)p->batches;
    *k = (packing){0};
    k->weights = part(&k->bytes, channels * (size_t)p->depth_bytes);
    k->scale = part(&k->bytes, channels * sizeof(float));
    k->bias = part(&k->bytes, channels * sizeof(float));
    k->shift = part(&k->bytes, channels * sizeof(int32_t));
    k->fill = part(&k->bytes, PARE_CUDA_CHUNK);
    k->host = pare_alloc(prep->ctx, k->bytes, 1);
    return k->host ? PARE_OK : PARE_MEMORY;
}

/* Row r of the packed weights: count elements of w from offset at, step apart, to element k on. */
static void row_pack(char *row, int k, const pare_view *w, int64_t at, int64_t step, int64_t count)
{
    int bytes = pare_cuda_bytes(w->dtype);
    for (int64_t i = 0; i < count; i++)
        memcpy(row + (k + i) * bytes, (const char *)w->data + (at + i * step) * bytes, (size_t)bytes);
}

static void bias_pack(const packing *k, const pare_view *b, int64_t channels)
{
    int64_t n = b ? pare_view_count(b) : 0;
    const pare_type_info *type = b ? pare_type(b->dtype) : NULL;
    float *to = (float *)(void *)(k->host + k->bias);
    for (int64_t i = 0; b && i < channels; i++)
        to[i] = type->to_f32((const char *)b->data + (n == 1 ? 0 : i) * (type->bits / 8));
}

/* z_x * sum of w per row, and what X is outside the picture. */
static void shift_pack(const packing *k, const pare_cuda_product *p, int32_t zero)
{
    int32_t *shift = (int32_t *)(void *)(k->host + k->shift);
    for (int64_t r = 0; r < (int64_t)p->columns * p->batches; r++) {
        const int8_t *row = (const int8_t *)k->host + k->weights + r * p->depth_bytes;
        int32_t sum = 0;
        for (int i = 0; i < p->depth; i++) sum += row[i];
        shift[r] = zero * sum;
    }
    memset(k->host + k->fill, zero & 0xff, PARE_CUDA_CHUNK);
}

/* Uploads the block and points p at its parts. */
static pare_status packing_close(pare_prep *prep, product *s, packing *k, bool int8, bool biased)
{
    pare_status st =
        pare_device_copy(prep->ctx, prep->device, &s->block, k->host, k->bytes);
    pare_free(k->host);
    if (st != PARE_OK)
        return pare_fail_prefix(prep->ctx, st, "node '%s' (%s)", prep->node->name,
                                prep->node->op_type);
    const char *block = s->block;
    s->p.w = block + k->weights;
    s->p.scale = int8 ? (const float *)(const void *)(block + k->scale) : NULL;
    s->p.shift = int8 ? (const int32_t *)(const void *)(block + k->shift) : NULL;
    s->p.bias = biased ? (const float *)(const void *)(block + k->bias) : NULL;
    s->p.fill = block + k->fill;
    return PARE_OK;
}

static void product_release(void *state)
{
    product *s = state;
    if (s) s->device->backend->free(s->device, s->block);
}

static pare_status product_new(pare_prep *prep, product **out)
{
    product *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->device = prep->device;
    s->p.x_type = prep->in[0].dtype;
    s->p.y_type = prep->out[0].dtype;
    prep->packed = ~1u;
    *out = s;
    return PARE_OK;
}

static void depth_set(pare_cuda_product *p, int64_t depth)
{
    p->depth = (int)depth;
    p->depth_bytes =
        (int)pare_align_up((size_t)depth * (size_t)pare_cuda_bytes(p->x_type), PARE_CUDA_STEP);
}

static void epilogue_set(const pare_prep *prep, product *s, bool int8, const pare_act *act,
                         const pare_epilogue *e, int residual)
{
    s->residual = residual;
    if (int8) {
        s->p.epilogue = *e;
        return;
    }
    s->p.epilogue.act = *act;
    s->p.epilogue.z_type = residual < 0 ? PARE_NOTYPE : prep->in[residual].dtype;
}

/* What both kinds of arguments say of scales, biases and operands. */
typedef struct constants {
    bool int8;
    const float *scale; /* (channels), int8 only */
    int32_t x_zero;
    pare_operands at;
    int64_t channels;
} constants;

/* Adds the rest to a block that holds the weights, and uploads it: the end of both prepares. */
static pare_status product_close(pare_prep *prep, product *s, packing *k, const constants *c)
{
    bias_pack(k, pare_operand(prep->in, prep->in_count, c->at.bias), c->channels);
    if (c->int8) {
        memcpy(k->host + k->scale, c->scale, (size_t)c->channels * sizeof *c->scale);
        shift_pack(k, &s->p, c->x_zero);
    }
    if (c->at.residual >= 0) prep->packed &= ~(1u << c->at.residual);
    PARE_TRY(packing_close(prep, s, k, c->int8, c->at.bias >= 0));
    prep->state = s;
    return PARE_OK;
}

static pare_status product_run(const pare_call *c)
{
    const product *s = c->state;
    pare_cuda_product p = s->p;
    p.x = c->in[0].data;
    p.y = c->out[0].data;
    p.z = s->residual < 0 ? NULL : c->in[s->residual].data;
    if (p.x_type == PARE_f32) return PARE_CUDA_LAUNCH(c, pare_cuda_product_f32_launch, &p);
    return PARE_CUDA_LAUNCH(c, pare_cuda_product_launch, &p);
}

/* --- convolutions --- */

/* Strides of the last two axes; a missing one is 0. */
static void plane_strides(const pare_view *v, int64_t *row, int64_t *pixel)
{
    *row = v->rank > 3 ? v->stride[2] : 0;
    *pixel = v->stride[v->rank - 1];
}

static bool conv_can(const pare_prep *prep)
{
    pare_conv_args a;
    const pare_view *x = &prep->in[0], *w = &prep->in[1], *y = &prep->out[0];
    if (!types_fit(prep) || !w->data || x->rank < 3 || x->rank > 4) return false;
    if (!readable(prep, pare_conv_args_read(prep, &a))) return false;
    int64_t row, pixel, positions = a.win.out[1] * a.win.out[2];
    plane_strides(y, &row, &pixel);
    bool dense = (x->rank < 4 || a.win.out[1] == 1 || row == a.win.out[2] * pixel) &&
                 (a.n == 1 || y->stride[0] == positions * pixel);
    return dense && (a.cg == 1 || x->stride[1] == 1) && (a.m == 1 || y->stride[1] == 1) &&
           bias_fits(prep, a.at.bias, a.m) && residual_fits(prep, a.at.residual) &&
           (a.int8 || a.at.w_scale < 0);
}

static void picture_set(const pare_prep *prep, const pare_conv_args *a, pare_cuda_product *p)
{
    const pare_view *x = &prep->in[0], *y = &prep->out[0];
    const pare_window *w = &a->win;
    pare_cuda_picture *in = &p->in;
    int64_t unused;
    in->height = (int)w->in[1], in->width = (int)w->in[2], in->channels = (int)a->cg;
    in->out_height = (int)w->out[1], in->out_width = (int)w->out[2];
    in->kernel_width = (int)w->kernel[2];
    for (int i = 0; i < 2; i++) {
        in->stride[i] = (int)w->stride[1 + i];
        in->dilation[i] = (int)w->dilation[1 + i];
        in->begin[i] = (int)w->begin[1 + i];
    }
    in->image = x->stride[0];
    plane_strides(x, &in->row, &in->pixel);
    plane_strides(y, &unused, &p->y_row);
    p->picture = true;
    p->rows = a->n * w->out[1] * w->out[2];
    p->columns = (int)a->mg;
    p->batches = (int)w->group;
    p->x_batch = a->cg * x->stride[1];
    p->y_batch = a->mg * y->stride[1];
    int64_t chunk = PARE_CUDA_CHUNK / pare_cuda_bytes(p->x_type);
    p->aligned = a->cg % chunk == 0 && in->pixel % chunk == 0 && in->row % chunk == 0 &&
                 in->image % chunk == 0;
}

static void filters_pack(const pare_view *w, const pare_conv_args *a, const packing *k,
                         const pare_cuda_product *p)
{
    int64_t row, pixel;
    plane_strides(w, &row, &pixel);
    for (int64_t m = 0; m < a->m; m++) {
        char *to = k->host + k->weights + m * p->depth_bytes;
        int at = 0;
        for (int64_t h = 0; h < a->win.kernel[1]; h++)
            for (int64_t l = 0; l < a->win.kernel[2]; l++, at += (int)a->cg)
                row_pack(to, at, w, m * w->stride[0] + h * row + l * pixel, w->stride[1], a->cg);
    }
}

static pare_status conv_prepare(pare_prep *prep)
{
    product *s;
    packing k;
    pare_conv_args a;
    PARE_TRY(product_new(prep, &s));
    PARE_TRY(pare_conv_args_read(prep, &a));
    picture_set(prep, &a, &s->p);
    depth_set(&s->p, a.cg * a.win.kernel[1] * a.win.kernel[2]);
    epilogue_set(prep, s, a.int8, &a.act, &a.epilogue, a.at.residual);
    PARE_TRY(packing_open(prep, &s->p, &k));
    filters_pack(&prep->in[1], &a, &k, &s->p);
    return product_close(prep, s, &k, &(constants){a.int8, a.scale, a.q.x_zero, a.at, a.m});
}

static const pare_kernel cuda_conv = {.name = "cuda_conv",
                                      .can = conv_can,
                                      .prepare = conv_prepare,
                                      .run = product_run,
                                      .release = product_release};
const pare_kernel *const pare_cuda_conv[] = {&cuda_conv, NULL};
const pare_kernel *const pare_cuda_fused_conv[] = {&cuda_conv, NULL};

/* --- matrices --- */

static bool matmul_can(const pare_prep *prep)
{
    pare_matmul_args a;
    const pare_view *x = &prep->in[0], *w = &prep->in[1], *y = &prep->out[0];
    if (!types_fit(prep) || !w->data || w->rank != 2 || x->rank < 2 || y->rank < 2) return false;
    if (!readable(prep, pare_matmul_args_read(prep, &a))) return false;
    return !a.trans_a && a.alpha == 1 && a.beta == 1 && !a.q.w_zero && pare_view_rowmajor(x) &&
           pare_view_rowmajor(y) && bias_fits(prep, a.at.bias, a.columns) &&
           residual_fits(prep, a.at.residual) && (a.int8 || a.at.w_scale < 0);
}

static void matrix_set(const pare_matmul_args *a, pare_cuda_product *p)
{
    int64_t chunk = PARE_CUDA_CHUNK / pare_cuda_bytes(p->x_type);
    p->rows = a->batch * a->rows;
    p->columns = (int)a->columns;
    p->x_row = a->depth;
    p->y_row = a->columns;
    p->batches = 1;
    p->aligned = a->depth % chunk == 0;
}

static pare_status matmul_prepare(pare_prep *prep)
{
    product *s;
    packing k;
    pare_matmul_args a;
    const pare_view *w = &prep->in[1];
    PARE_TRY(product_new(prep, &s));
    PARE_TRY(pare_matmul_args_read(prep, &a));
    matrix_set(&a, &s->p);
    depth_set(&s->p, a.depth);
    epilogue_set(prep, s, a.int8, &a.act, &a.epilogue, a.at.residual);
    PARE_TRY(packing_open(prep, &s->p, &k));
    for (int64_t c = 0; c < a.columns; c++)
        row_pack(k.host + k.weights + c * s->p.depth_bytes, 0, w, c * w->stride[a.trans_b ? 0 : 1],
                 w->stride[a.trans_b ? 1 : 0], a.depth);
    return product_close(prep, s, &k, &(constants){a.int8, a.scale, a.q.x_zero, a.at, a.columns});
}

static const pare_kernel cuda_matmul = {.name = "cuda_matmul",
                                        .can = matmul_can,
                                        .prepare = matmul_prepare,
                                        .run = product_run,
                                        .release = product_release};
const pare_kernel *const pare_cuda_matmul[] = {&cuda_matmul, NULL};
const pare_kernel *const pare_cuda_gemm[] = {&cuda_matmul, NULL};
const pare_kernel *const pare_cuda_fused_matmul[] = {&cuda_matmul, NULL};
