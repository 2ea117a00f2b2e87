/* SPDX-License-Identifier: Apache-2.0 */
/* FusedDepthwisePointwise: one kernel for what depthwise_pointwise.h of ops allows. */
#include "runtime/ops/depthwise_pointwise.h"
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/conv/depthwise_tile.h"

#include <string.h>

typedef struct separable_node {
    pare_cuda_prepared *pointwise;
    pare_cuda_separable s;
    pare_device *device;
    void *records;
} separable_node;

/* --- what it takes --- */

/* Are channels together, and all else at multiples of so many bytes? */
static bool picture_fits(const pare_view *v, int bytes)
{
    const int size = pare_cuda_bytes(v->dtype);
    bool fits = v->rank == 4 && (v->dim[1] == 1 || v->stride[1] == 1);
    static const int axis[] = {0, 2, 3};
    for (int i = 0; i < 3 && fits; i++)
        fits = v->dim[axis[i]] == 1 || v->stride[axis[i]] * size % bytes == 0;
    return fits;
}

/* Do 32 bits hold a place in X, also where it is a part of a larger tensor? */
static bool bytes_fit(const pare_view *x)
{
    return (double)x->dim[0] * (double)x->stride[0] * pare_cuda_bytes(x->dtype) <= UINT32_MAX;
}

static bool separable_can(const pare_prep *prep)
{
    enum { STORED = 8 };
    pare_depthwise_pointwise two;
    return pare_cuda_readable(prep, pare_depthwise_pointwise_read(&two, prep)) &&
           pare_depthwise_pointwise_fits(&two) && picture_fits(&prep->in[0], PARE_CUDA_CHUNK) &&
           bytes_fit(&prep->in[0]) && picture_fits(&prep->out[0], STORED) &&
           pare_cuda_pixels_are_even(&prep->out[0]) &&
           pare_cuda_residual_fits(&two.pointwise, two.p.at.residual);
}

/* --- constants of the depthwise convolution --- */

static float number_at(const pare_view *v, int64_t i)
{
    const pare_type_info *type = pare_type(v->dtype);
    return type->to_f32((const char *)v->data + i * (type->bits / 8));
}

static int64_t tap_at(const pare_view *w, int64_t channel, int tap)
{
    int64_t row, pixel;
    pare_cuda_plane_strides(w, &row, &pixel);
    return channel * w->stride[0] + tap / 3 * row + tap % 3 * pixel;
}

static void int8_pack(const pare_depthwise_pointwise *two, pare_cuda_depthwise_s8 *to)
{
    enum { CHANNELS = PARE_CUDA_DEPTHWISE_CHANNELS, MAGIC = 0x4b400000 /* 1.5 * 2^23 as f32 */ };
    const pare_view *w = &two->depthwise.in[1];
    for (int64_t c = 0; c < two->d.m; c++) {
        pare_cuda_depthwise_s8 *r = &to[c / CHANNELS];
        const int64_t at = c % CHANNELS;
        int32_t sum = 0;
        for (int t = 0; t < PARE_CUDA_DEPTHWISE_TAPS; t++) {
            r->tap[t][at] = ((const int8_t *)w->data)[tap_at(w, c, t)];
            sum += r->tap[t][at];
        }
        const int32_t start = MAGIC - two->d.q.x_zero * sum;
        r->start[at / 2 * 4 + at % 2] = r->start[at / 2 * 4 + at % 2 + 2] = start;
        r->bias[at] = two->d.bias ? two->d.bias[c] : -0.0f;
        r->scale[at] = two->d.scale[c];
    }
}

static void half_pack(const pare_depthwise_pointwise *two, pare_cuda_depthwise_half *to)
{
    enum { CHANNELS = PARE_CUDA_DEPTHWISE_CHANNELS / 2 };
    const pare_prep *p = &two->depthwise;
    const pare_view *w = &p->in[1], *bias = pare_operand(p->in, p->in_count, two->d.at.bias);
    for (int64_t c = 0; c < two->d.m; c++) {
        pare_cuda_depthwise_half *r = &to[c / CHANNELS];
        for (int t = 0; t < PARE_CUDA_DEPTHWISE_TAPS; t++)
            r->tap[t][c % CHANNELS] = number_at(w, tap_at(w, c, t));
        r->bias[c % CHANNELS] = bias ? number_at(bias, pare_view_count(bias) == 1 ? 0 : c) : -0.0f;
    }
}

static pare_status records_make(pare_prep *prep, const pare_depthwise_pointwise *two,
                                separable_node *s)
{
    const int size = two->d.int8 ? 1 : 2;
    const int64_t steps = (two->d.m * size + PARE_CUDA_STEP - 1) / PARE_CUDA_STEP;
    const size_t record =
        two->d.int8 ? sizeof(pare_cuda_depthwise_s8) : sizeof(pare_cuda_depthwise_half);
    void *host = pare_alloc(prep->ctx, (size_t)steps, record);
    if (!host) return PARE_MEMORY;
    if (two->d.int8)
        int8_pack(two, host);
    else
        half_pack(two, host);
    const pare_status st = pare_cuda_copy_kept(prep, &s->records, host, (size_t)steps * record);
    pare_free(host);
    if (st != PARE_OK)
        return pare_fail_prefix(prep->ctx, st, "node '%s' (%s)", prep->node->name,
                                prep->node->op_type);
    s->s.d.w = s->records;
    return PARE_OK;
}

/* --- a node's life --- */

static void depthwise_set(const pare_depthwise_pointwise *two, const pare_view *x,
                          pare_cuda_gemm_args *d)
{
    const pare_window *w = &two->d.win;
    pare_cuda_gemm_init(d, x->dtype, x->dtype);
    d->in = (pare_cuda_picture){.height = (int)w->in[1],
                                .width = (int)w->in[2],
                                .out_height = (int)w->out[1],
                                .out_width = (int)w->out[2],
                                .stride = {(int)w->stride[1], (int)w->stride[2]},
                                .begin = {(int)w->begin[1], (int)w->begin[2]},
                                .image = x->stride[0]};
    pare_cuda_plane_strides(x, &d->in.row, &d->in.pixel);
    d->fill = two->d.int8 ? (uint32_t)(two->d.q.x_zero & 0xff) * 0x01010101u : 0;
    d->epilogue =
        pare_cuda_epilogue_of(&two->depthwise, two->d.int8, &two->d.act, &two->d.epilogue, -1);
}

/* W's rows, channels in the kernel's order. */
static void filters_pack(const pare_depthwise_pointwise *two, const pare_cuda_prepack *k,
                         const pare_cuda_gemm_args *p)
{
    const pare_view *w = &two->pointwise.in[1];
    const int bytes = pare_cuda_bytes(w->dtype);
    for (int64_t m = 0; m < two->p.m; m++)
        for (int64_t c = 0; c < two->p.c; c++)
            pare_cuda_row_pack(
                k, p, m, c, w,
                m * w->stride[0] + pare_cuda_separable_channel(c, bytes) * w->stride[1], 1, 1);
}

static void pointwise_init(const pare_depthwise_pointwise *two, const pare_prep *prep,
                           pare_cuda_gemm_args *p)
{
    int64_t unused;
    pare_cuda_gemm_init(p, prep->in[0].dtype, prep->out[0].dtype);
    pare_cuda_plane_strides(&prep->out[0], &unused, &p->y_row);
    p->rows = two->p.n * two->p.win.out[1] * two->p.win.out[2];
    p->columns = p->constants = (int)two->p.m;
    p->depth = (int)two->p.c;
    p->x_row = p->w_row = pare_cuda_pitch(p->depth, p->x_type);
}

static pare_status pointwise_make(pare_depthwise_pointwise *two, pare_prep *prep, separable_node *s)
{
    pare_cuda_prepack k;
    pare_cuda_gemm_args p;
    pare_prep *own = &two->pointwise;
    pointwise_init(two, prep, &p);
    PARE_TRY(pare_cuda_prepared_new(own, &p, &s->pointwise));
    pare_cuda_epilogue_set(own, s->pointwise, two->p.int8, &two->p.act, &two->p.epilogue,
                           two->p.at.residual);
    PARE_TRY(pare_cuda_prepack_open(own, &p, PARE_CUDA_WHOLE, &k));
    filters_pack(two, &k, &p);
    PARE_TRY(pare_cuda_prepack_close(
        own, s->pointwise, &k,
        &(pare_cuda_constants){two->p.int8, two->p.scale, two->p.q.x_zero, two->p.at, two->p.m}));
    prep->kept += own->kept;
    s->s.p = s->pointwise->p;
    return PARE_OK;
}

static pare_status separable_prepare(pare_prep *prep)
{
    separable_node *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    pare_depthwise_pointwise *two = pare_arena_alloc(prep->arena, 1, sizeof *two);
    if (!s || !two) return PARE_MEMORY;
    PARE_TRY(pare_depthwise_pointwise_read(two, prep));
    s->device = prep->device;
    s->s.images = (int)two->d.n;
    depthwise_set(two, &prep->in[0], &s->s.d);
    PARE_TRY(pointwise_make(two, prep, s));
    const pare_status st = records_make(prep, two, s);
    if (st != PARE_OK) {
        pare_cuda_gemm_release(s->pointwise);
        return st;
    }
    pare_cuda_separable_set(&s->s);
    prep->packed = ~1u;
    if (two->p.at.residual >= 0) prep->packed &= ~(1u << two->p.at.residual);
    prep->state = s;
    return PARE_OK;
}

static pare_status separable_run(const pare_call *c)
{
    const separable_node *s = c->state;
    pare_cuda_separable a = s->s;
    a.d.x = c->in[0].data;
    a.p.y = c->out[0].data;
    a.p.z = s->pointwise->residual < 0 ? NULL : c->in[s->pointwise->residual].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_separable_launch, &a);
}

static void separable_release(void *state)
{
    separable_node *s = state;
    if (!s) return;
    pare_cuda_gemm_release(s->pointwise);
    s->device->backend->free(s->device, s->records);
}

static const pare_kernel depthwise_pointwise = {.name = "cuda_depthwise_pointwise",
                                                .can = separable_can,
                                                .prepare = separable_prepare,
                                                .run = separable_run,
                                                .release = separable_release,
                                                .flags = PARE_KERNEL_PARTS};
const pare_kernel *const pare_cuda_fused_depthwise_pointwise[] = {&depthwise_pointwise, NULL};

/* --- launch --- */

/* Columns of a block: as few blocks as take all, as narrow as they can be. */
static int columns_of(int columns)
{
    enum { MOST = 128 };
    const int blocks = (columns + MOST - 1) / MOST, each = (columns + blocks - 1) / blocks;
    return each <= 32 ? 32 : each <= 64 ? 64 : each <= 96 ? 96 : MOST;
}

void pare_cuda_separable_set(pare_cuda_separable *s)
{
    const pare_cuda_picture *in = &s->d.in;
    const int lines = pare_cuda_separable_lines(in->stride[0]),
              bytes = pare_cuda_bytes(s->p.y_type);
    s->columns = columns_of(s->p.columns);
    s->across = (in->out_width + PARE_CUDA_DEPTHWISE_STRIP - 1) / PARE_CUDA_DEPTHWISE_STRIP;
    s->down = (in->out_height + lines - 1) / lines;
    s->strips = s->images * s->across * s->down;
    s->by_across = pare_cuda_fast_divisor_of(s->across);
    s->by_down = pare_cuda_fast_divisor_of(s->down);
    s->wide =
        s->p.columns * bytes % PARE_CUDA_CHUNK == 0 && s->p.y_row * bytes % PARE_CUDA_CHUNK == 0;
}

cudaError_t pare_cuda_separable_launch(const pare_cuda_separable *s, cudaStream_t stream)
{
    return pare_type_is_int8(s->d.x_type) ? pare_cuda_separable_int8_launch(s, stream)
                                          : pare_cuda_separable_half_launch(s, stream);
}
