/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of any two factors: MatMul (13), Gemm (13), FusedMatMul, with batches that
   broadcast, transposes, any strides. 32-bit floats are read where they are. Other types run on
   tensor cores: a factor whose depth is not contiguous and aligned is packed into scratch first,
   8-bit integers always, because sums of their rows correct for zero points: sum (a - z_a) (b -
   z_b) = sum a b - z_a sum b - z_b (sum a - depth z_a). */
#include "runtime/base/size.h"
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/gemm/pack.h"
#include "runtime/cuda/gemm/prepack.h"

#include <string.h>

/* A factor that is packed: its layout, and where in scratch. */
typedef struct packed {
    bool wanted;
    pare_cuda_pack pack;
    size_t at, side;
    int input; /* its position */
} packed;

typedef struct any {
    pare_cuda_gemm_args p;
    packed a, b;
    int bias, residual; /* input positions; -1: none, or constant */
    pare_device *device;
    void *block; /* scales and biases of 8-bit factors */
} any;

/* --- shapes --- */

/* A missing row or column axis, of length 1. */
static pare_view as_matrix(const pare_view *v, bool row)
{
    pare_view w = *v;
    if (v->rank > 1) return w;
    w.rank = 2;
    w.dim[row] = v->rank ? v->dim[0] : 1;
    w.stride[row] = v->rank ? v->stride[0] : 0;
    w.dim[!row] = 1;
    w.stride[!row] = 0;
    return w;
}

static void last_swap(pare_view *v)
{
    int i = v->rank - 2;
    int64_t dim = v->dim[i], stride = v->stride[i];
    v->dim[i] = v->dim[i + 1], v->stride[i] = v->stride[i + 1];
    v->dim[i + 1] = dim, v->stride[i + 1] = stride;
}

/* Y with the axes that a vector operand took from it. */
static pare_view result_of(const pare_view *y, bool row, bool column)
{
    pare_view v = *y;
    if (column) v.dim[v.rank] = 1, v.stride[v.rank++] = 0;
    if (!row) return v;
    int last = v.rank++;
    if (last > 0) v.dim[last] = v.dim[last - 1], v.stride[last] = v.stride[last - 1];
    v.dim[v.rank - 2] = 1, v.stride[v.rank - 2] = 0;
    return v;
}

void pare_cuda_factors_read(const pare_node *node, const pare_view *a, const pare_view *b,
                            const pare_view *y, pare_cuda_factors *out)
{
    out->a = as_matrix(a, true);
    out->b = as_matrix(b, false);
    out->y = result_of(y, a->rank == 1, b->rank == 1);
    if (pare_node_int(node, "transA", 0)) last_swap(&out->a);
    if (pare_node_int(node, "transB", 0)) last_swap(&out->b);
    out->rows = out->a.dim[out->a.rank - 2];
    out->depth = out->a.dim[out->a.rank - 1];
    out->columns = out->b.dim[out->b.rank - 1];
}

pare_view pare_cuda_leading(const pare_view *v, const pare_view *to)
{
    pare_view l = *v, t = *to;
    l.rank -= 2, t.rank -= 2;
    return pare_view_stretch(&l, &t);
}

static int64_t leading_count(const pare_view *v)
{
    pare_view l = pare_cuda_leading(v, v);
    return pare_view_count(&l);
}

/* v packed: rows of `pitch`, matrices one after the other. */
static pare_view packed_view(const pare_view *v, int64_t rows, int64_t pitch)
{
    pare_view w = *v;
    int64_t stride = rows * pitch;
    for (int i = w.rank - 3; i >= 0; i--) {
        w.stride[i] = stride;
        stride *= w.dim[i];
    }
    return w;
}

/* --- packing --- */

/* May tensor cores read rows of this factor where they are, in chunks? */
static bool lies_well(const pare_view *v, int row, int step)
{
    int64_t chunk = PARE_CUDA_CHUNK / pare_cuda_bytes(v->dtype);
    bool well = v->stride[step] == 1 && v->dim[step] % chunk == 0 &&
                (v->stride[row] % chunk == 0 || v->dim[row] == 1);
    for (int i = 0; i < v->rank - 2; i++)
        well = well && (v->dim[i] == 1 || v->stride[i] % chunk == 0);
    return well;
}

/* Reads v's rows along axis `row`, depth along `step`; v becomes what the product sees. */
static void pack_set(pare_prep *prep, packed *k, pare_view *v, int row, int step, bool left)
{
    pare_cuda_pack *p = &k->pack;
    bool bytes = pare_type_is_int8(v->dtype);
    k->wanted = v->dtype != PARE_f32 && (bytes || !lies_well(v, row, step));
    if (!k->wanted) return;
    p->type = v->dtype;
    p->flip = !left && v->dtype == PARE_u8;
    p->rows = v->dim[row], p->row = v->stride[row], p->step = v->stride[step];
    p->depth = (int)v->dim[step];
    p->pitch = pare_cuda_pitch(v->dim[step], v->dtype);
    p->matrices = (int)leading_count(v);
    pare_view to = packed_view(v, p->rows, p->pitch), t = pare_cuda_leading(&to, &to),
              f = pare_cuda_leading(v, v);
    pare_iterator_init(&p->batch, (const pare_view *const[]){&t, &f}, 2);
    size_t rows = (size_t)p->rows * (size_t)p->matrices;
    k->at = prep->scratch;
    prep->scratch += pare_align_up(rows * (size_t)p->pitch * (size_t)pare_cuda_bytes(p->type), 256);
    k->side = prep->scratch;
    if (bytes) prep->scratch += pare_align_up(rows * sizeof(pare_cuda_side), 256);
    *v = to;
    v->stride[row] = p->pitch, v->stride[step] = 1;
}

static pare_status pack_run(const pare_call *c, const packed *k, const void **data,
                            const pare_cuda_side **side)
{
    *data = c->in[k->input].data;
    if (!k->wanted) return PARE_OK;
    pare_cuda_pack p = k->pack;
    char *scratch = c->scratch;
    p.from = *data;
    p.to = scratch + k->at;
    *data = p.to;
    if (pare_type_is_int8(p.type)) *side = p.side = (pare_cuda_side *)(void *)(scratch + k->side);
    return PARE_CUDA_LAUNCH(c, pare_cuda_pack_launch, &p);
}

static pare_status any_run(const pare_call *c)
{
    const any *s = c->state;
    pare_cuda_gemm_args p = s->p;
    PARE_TRY(pack_run(c, &s->a, &p.x, &p.x_side));
    PARE_TRY(pack_run(c, &s->b, &p.w, &p.w_side));
    p.y = c->out[0].data;
    if (s->residual >= 0) p.z = c->in[s->residual].data;
    if (s->bias >= 0) p.bias = c->in[s->bias].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_gemm_launch, &p);
}

static void any_release(void *state)
{
    any *s = state;
    if (s && s->block) s->device->backend->free(s->device, s->block);
}

/* --- preparing --- */

void pare_cuda_factors_set(const pare_cuda_factors *f, pare_cuda_gemm_args *p)
{
    const int ra = f->a.rank, rb = f->b.rank;
    p->rows = f->rows, p->columns = (int)f->columns, p->depth = (int)f->depth;
    p->x_row = f->a.stride[ra - 2], p->x_step = f->a.stride[ra - 1];
    p->w_row = f->b.stride[rb - 1], p->w_step = f->b.stride[rb - 2];
    p->y_row = f->columns;
    pare_view y = pare_cuda_leading(&f->y, &f->y), a = pare_cuda_leading(&f->a, &f->y),
              b = pare_cuda_leading(&f->b, &f->y);
    p->batches = (int)pare_view_count(&y);
    pare_iterator_init(&p->batch, (const pare_view *const[]){&y, &a, &b}, 3);
}

/* Everything but what follows the sum. */
static pare_status any_new(pare_prep *prep, int ia, int ib, any **out)
{
    any *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    pare_cuda_factors f;
    if (!s) return PARE_MEMORY;
    s->device = prep->device;
    s->bias = s->residual = -1;
    s->a.input = ia, s->b.input = ib;
    pare_cuda_factors_read(prep->node, &prep->in[ia], &prep->in[ib], &prep->out[0], &f);
    int ra = f.a.rank, rb = f.b.rank;
    pare_cuda_gemm_args *p = &s->p;
    pare_cuda_gemm_init(p, f.a.dtype, f.y.dtype);
    pack_set(prep, &s->a, &f.a, ra - 2, ra - 1, true);
    pack_set(prep, &s->b, &f.b, rb - 1, rb - 2, false);
    pare_cuda_factors_set(&f, p);
    const bool chunks = p->x_type != PARE_f32 ||
                        (lies_well(&f.a, ra - 2, ra - 1) && lies_well(&f.b, rb - 1, rb - 2));
    p->copy = chunks ? PARE_CUDA_CHUNK : 1;
    p->tile = pare_cuda_tile_best(p);
    pare_cuda_lot_set(p);
    *out = s;
    return PARE_OK;
}

/* Floats for the device: scale (columns), then bias (its count entries). */
static pare_status floats_upload(pare_prep *prep, any *s, const float *scale, const float *bias,
                                 int64_t bias_count)
{
    size_t first = pare_align_up((size_t)s->p.columns * 4 + 4, 256);
    size_t bytes = first + (size_t)bias_count * 4 + 4;
    char *host = pare_alloc(prep->ctx, bytes, 1);
    if (!host) return PARE_MEMORY;
    memcpy(host, scale, (size_t)s->p.columns * 4);
    if (bias) memcpy(host + first, bias, (size_t)bias_count * 4);
    pare_status st = pare_cuda_copy_kept(prep, &s->block, host, bytes);
    pare_free(host);
    if (st != PARE_OK)
        return pare_fail_prefix(prep->ctx, st, "node '%s' (%s)", prep->node->name,
                                prep->node->op_type);
    s->p.scale = s->block;
    return PARE_OK;
}

bool pare_cuda_factors_fit(const pare_prep *prep, const pare_cuda_factors *f)
{
    return pare_view_rowmajor(&prep->out[0]) && leading_count(&f->y) <= PARE_CUDA_MOST_BATCHES &&
           pare_cuda_gemm_counts(f->columns, f->depth);
}

/* --- MatMul, Gemm, FusedMatMul --- */

bool pare_cuda_bias_spreads(const pare_prep *prep, int at, const pare_cuda_factors *f)
{
    const pare_view *b = pare_operand(prep->in, prep->in_count, at);
    if (!b) return true;
    pare_view m = as_matrix(b, true);
    for (int i = 0; i < m.rank - 2; i++)
        if (m.dim[i] != 1) return false;
    int64_t rows = m.dim[m.rank - 2], columns = m.dim[m.rank - 1];
    return pare_cuda_is_float(b->dtype) && (rows == 1 || rows == f->rows) &&
           (columns == 1 || columns == f->columns);
}

static bool matmul_can(const pare_prep *prep)
{
    pare_matmul_args a;
    pare_cuda_factors f;
    const pare_view *x = &prep->in[0], *w = &prep->in[1], *y = &prep->out[0];
    bool int8 = pare_type_is_int8(x->dtype) && pare_type_is_int8(w->dtype);
    const bool f8 = pare_type_is_f8(x->dtype) && w->dtype == x->dtype &&
                    (y->dtype == x->dtype || pare_cuda_is_float(y->dtype));
    bool floats = pare_cuda_is_float(x->dtype) && w->dtype == x->dtype &&
                  (y->dtype == x->dtype || y->dtype == PARE_f32);
    if (!(int8 || f8 || floats) || !x->rank || !w->rank) return false;
    pare_cuda_factors_read(prep->node, x, w, y, &f);
    if (!pare_cuda_factors_fit(prep, &f)) return false;
    pare_prep seen = *prep; /* with as many axes as arguments are read from */
    pare_view in[8];
    if (prep->in_count > 8) return false;
    memcpy(in, prep->in, (size_t)prep->in_count * sizeof *in);
    in[0] = as_matrix(x, true), in[1] = as_matrix(w, false);
    seen.in = in;
    if (!pare_cuda_readable(prep, pare_matmul_args_read(&seen, &a))) return false;
    return pare_cuda_residual_fits(prep, a.at.residual) &&
           (int8 || f8 || (pare_cuda_bias_spreads(prep, a.at.bias, &f) && a.at.w_scale < 0));
}

void pare_cuda_floats_set(const pare_prep *prep, const pare_matmul_args *a, pare_cuda_gemm_args *p)
{
    p->alpha = a->alpha, p->beta = a->beta;
    p->epilogue.act = a->act;
    p->epilogue.z_type = a->at.residual < 0 ? PARE_NOTYPE : prep->in[a->at.residual].dtype;
    if (a->at.bias < 0) return;
    pare_view b = as_matrix(&prep->in[a->at.bias], true);
    p->bias_type = b.dtype;
    p->bias_row = b.dim[b.rank - 2] == 1 ? 0 : b.stride[b.rank - 2];
    p->bias_column = b.dim[b.rank - 1] == 1 ? 0 : b.stride[b.rank - 1];
}

static pare_status matmul_prepare(pare_prep *prep)
{
    any *s;
    pare_matmul_args a;
    pare_prep seen = *prep;
    pare_view in[8];
    memcpy(in, prep->in, (size_t)prep->in_count * sizeof *in);
    in[0] = as_matrix(&in[0], true), in[1] = as_matrix(&in[1], false);
    seen.in = in;
    PARE_TRY(pare_matmul_args_read(&seen, &a));
    PARE_TRY(any_new(prep, 0, 1, &s));
    s->residual = a.at.residual;
    if (a.int8 || a.f8) {
        s->a.pack.zero = a.q.x_zero, s->b.pack.zero = a.q.w_zero;
        s->p.epilogue = a.epilogue;
        PARE_TRY(floats_upload(prep, s, a.scale, a.bias, a.bias ? a.columns : 0));
        if (a.bias) s->p.bias = (char *)s->block + pare_align_up((size_t)a.columns * 4 + 4, 256);
        for (int i = 2; i < prep->in_count; i++)
            if (i != s->residual) prep->packed |= 1u << i;
    } else {
        s->bias = a.at.bias;
        pare_cuda_floats_set(prep, &a, &s->p);
    }
    prep->state = s;
    return PARE_OK;
}

const pare_kernel pare_cuda_matmul_dynamic = {.name = "cuda_matmul_any",
                                              .can = matmul_can,
                                              .prepare = matmul_prepare,
                                              .run = any_run,
                                              .release = any_release};
