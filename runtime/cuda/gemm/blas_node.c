/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/gemm/blas_node.h"
#include "runtime/base/size.h"
#include "runtime/cuda/gemm/prepack.h"

#include <string.h>

/* Integers. A sum is 4 bytes that are written and read: below that depth this costs more than a
   product of twice the speed saves; below that many multiply-adds the second launch does. */
enum { LEAST_DEPTH = 256, LEAST_MACS = 1 << 24, CHUNK = 16 };

/* --- what fits --- */

static bool bias_is_vector(const pare_prep *prep, int at, int64_t columns)
{
    const pare_view *b = pare_operand(prep->in, prep->in_count, at);
    return !b || (b->data && b->dtype == prep->out[0].dtype && pare_view_count(b) == columns &&
                  b->rank > 0 && b->dim[b->rank - 1] == columns);
}

static bool residual_is_like(const pare_prep *prep, int at)
{
    const pare_view *z = pare_operand(prep->in, prep->in_count, at);
    return !z || (z->dtype == prep->out[0].dtype && pare_view_same_order(z, &prep->out[0]));
}

bool pare_blas_node_floats(const pare_prep *prep, pare_blas_node *n)
{
    pare_blas_product *p = &n->p;
    p->epilogue = pare_blas_epilogue_of(n->act.kind, n->bias >= 0);
    n->follows = !p->epilogue;
    if (n->follows) p->epilogue = pare_blas_epilogue_of(PARE_ACT_NONE, n->bias >= 0);
    p->x_aligned = PARE_BLAS_ALIGNED;
    n->rows = p->n * p->count;
    n->y_row = p->ld_d;
    return pare_blas_product_fits(p) && bias_is_vector(prep, n->bias, p->m) &&
           residual_is_like(prep, n->residual) &&
           (!n->follows || ((p->count == 1 || p->d_batch == p->n * p->ld_d) &&
                            pare_blas_epilogue_fits(prep->out[0].dtype, p->m, p->ld_d)));
}

/* Rows whose sums take half of the cache; all of them where they are fewer. Those after the first
   begin at any row: their addresses are multiples of a chunk. */
static void rows_share(pare_blas_node *n, size_t cache)
{
    const int64_t most = (int64_t)(cache / 2) / (n->p.m * (int64_t)sizeof(int32_t)) / CHUNK * CHUNK;
    n->p.n = most < CHUNK ? CHUNK : most;
    if (n->p.n >= n->rows)
        n->p.n = n->rows;
    else
        n->p.x_aligned = CHUNK;
}

bool pare_blas_node_integers(const pare_prep *prep, const pare_cuda_gemm_args *p, pare_blas_node *n)
{
    const pare_dtype y = prep->out[0].dtype;
    if ((y != PARE_f32 && !pare_type_is_int8(y)) || p->batches != 1 || p->picture ||
        p->depth < LEAST_DEPTH || p->depth % CHUNK || p->columns % CHUNK || p->x_row % CHUNK ||
        p->x_step != 1 || (double)p->rows * p->columns * p->depth < LEAST_MACS ||
        !pare_blas_epilogue_fits(y, p->columns, p->y_row))
        return false;
    if (!pare_cuda_blas_find(prep->ctx, prep->device)) return false;
    n->int8 = n->packs = n->follows = true;
    n->bias = -1;
    n->rows = p->rows, n->y_row = p->y_row, n->x_row = p->x_row;
    const bool flips = prep->in[0].dtype == PARE_u8;
    n->p = (pare_blas_product){.type = PARE_BLAS_S8,
                               .d_type = PARE_BLAS_S32,
                               .compute = PARE_BLAS_COMPUTE_S32,
                               .trans_w = 1,
                               .epilogue = PARE_LT_EPILOGUE_NONE,
                               .m = p->columns,
                               .k = p->depth,
                               .ld_w = p->w_row,
                               .ld_x = flips ? p->depth : p->x_row,
                               .ld_d = p->columns,
                               .count = 1,
                               .x_aligned = PARE_BLAS_ALIGNED};
    rows_share(n, prep->device->cache);
    if (flips) n->p.x_aligned = PARE_BLAS_ALIGNED;
    return pare_blas_product_fits(&n->p);
}

/* --- constants --- */

/* Offsets in the block. */
typedef struct parts {
    size_t bias, scale, shift, bytes;
} parts;

static size_t part(size_t *end, size_t bytes)
{
    size_t at = *end;
    *end = pare_align_up(at + bytes, PARE_BLAS_ALIGNED);
    return at;
}

static parts parts_of(const pare_prep *prep, const pare_blas_node *n)
{
    parts k = {0};
    const size_t m = (size_t)n->p.m;
    if (n->packs)
        (void)part(&k.bytes, m * (size_t)n->p.ld_w * (size_t)pare_cuda_bytes(prep->in[1].dtype));
    if (n->bias >= 0) k.bias = part(&k.bytes, m * (size_t)pare_cuda_bytes(prep->out[0].dtype));
    if (!n->int8) return k;
    k.bias = part(&k.bytes, m * sizeof(float));
    k.scale = part(&k.bytes, m * sizeof(float));
    k.shift = part(&k.bytes, m * sizeof(int32_t));
    return k;
}

/* W (depth, columns) as rows of ld_w, depth contiguous. */
static void weights_pack(const pare_view *w, const pare_blas_node *n, char *to)
{
    const size_t bytes = (size_t)pare_cuda_bytes(w->dtype), step = (size_t)n->k_step * bytes;
    for (int64_t c = 0; c < n->p.m; c++) {
        const char *from = (const char *)w->data + (size_t)(c * n->m_step) * bytes;
        char *row = to + (size_t)(c * n->p.ld_w) * bytes;
        if (step == bytes)
            memcpy(row, from, (size_t)n->p.k * bytes);
        else
            for (int64_t k = 0; k < n->p.k; k++)
                memcpy(row + (size_t)k * bytes, from + (size_t)k * step, bytes);
    }
}

/* What a sum of u8, or of a zero point, is too much: modulo 2^32. */
static void shift_pack(const pare_blas_node *n, int32_t zero, const int8_t *w, int32_t *shift)
{
    for (int64_t c = 0; c < n->p.m; c++) {
        int32_t sum = 0;
        for (int64_t k = 0; k < n->p.k; k++) sum += w[c * n->p.ld_w + k];
        shift[c] = (int32_t)((uint32_t)zero * (uint32_t)sum);
    }
}

static void block_fill(const pare_prep *prep, const pare_blas_node *n, const parts *k, char *host)
{
    const size_t m = (size_t)n->p.m;
    if (n->packs) weights_pack(&prep->in[1], n, host);
    if (n->bias >= 0)
        memcpy(host + k->bias, prep->in[n->bias].data,
               m * (size_t)pare_cuda_bytes(prep->out[0].dtype));
    if (!n->int8) return;
    if (n->bias_values) memcpy(host + k->bias, n->bias_values, m * sizeof(float));
    memcpy(host + k->scale, n->scale, m * sizeof(float));
    const int32_t zero = prep->in[0].dtype == PARE_u8 ? n->x_zero - 128 : n->x_zero;
    shift_pack(n, zero, (const int8_t *)host, (int32_t *)(void *)(host + k->shift));
}

static pare_status block_make(pare_prep *prep, const pare_blas_node *n, pare_blas_prepared *s)
{
    const parts k = parts_of(prep, n);
    if (!k.bytes) return PARE_OK;
    char *host = pare_alloc(prep->ctx, k.bytes, 1);
    if (!host) return PARE_MEMORY;
    block_fill(prep, n, &k, host);
    const pare_status st = pare_cuda_copy_kept(prep, &s->block, host, k.bytes);
    pare_free(host);
    if (st != PARE_OK)
        return pare_fail_prefix(prep->ctx, st, "node '%s' (%s)", prep->node->name,
                                prep->node->op_type);
    const char *block = s->block;
    if (n->packs) s->w = block;
    if (n->bias >= 0) PARE_TRY(pare_lt_bias_set(prep, &s->lt, block + k.bias));
    if (!n->int8) return PARE_OK;
    s->epilogue.bias = (const float *)(const void *)(block + k.bias);
    s->epilogue.scale = (const float *)(const void *)(block + k.scale);
    s->epilogue.shift = (const int32_t *)(const void *)(block + k.shift);
    return PARE_OK;
}

/* --- a node --- */

static void packed_set(pare_prep *prep, const pare_blas_node *n)
{
    if (n->int8) {
        prep->packed = ~1u;
        if (n->residual >= 0) prep->packed &= ~(1u << n->residual);
        return;
    }
    if (n->packs) prep->packed |= 2;
    if (n->bias >= 0) prep->packed |= 1u << n->bias;
}

static void scratch_set(pare_prep *prep, const pare_blas_node *n, pare_blas_prepared *s)
{
    if (!n->int8) return;
    s->sums = prep->scratch;
    prep->scratch += pare_align_up((size_t)(n->p.n * n->p.m) * sizeof(int32_t), PARE_BLAS_ALIGNED);
    s->signs = prep->scratch;
    if (s->flips) prep->scratch += pare_align_up((size_t)(n->p.n * n->p.k), PARE_BLAS_ALIGNED);
}

pare_status pare_blas_node_open(pare_prep *prep, const pare_blas_node *n, int rank,
                                pare_blas_prepared *out)
{
    *out = (pare_blas_prepared){.device = prep->device,
                                .residual = n->residual,
                                .alpha = n->alpha,
                                .follows = n->follows,
                                .int8 = n->int8,
                                .flips = n->int8 && prep->in[0].dtype == PARE_u8,
                                .rows = n->rows,
                                .at_once = n->p.n,
                                .x_row = n->x_row,
                                .depth = (int)n->p.k};
    out->epilogue = (pare_blas_epilogue){.y_row = n->y_row,
                                         .rows = n->rows,
                                         .columns = (int)n->p.m,
                                         .y_type = prep->out[0].dtype,
                                         .epilogue = n->epilogue};
    out->epilogue.epilogue.act = n->int8 ? n->epilogue.act : n->act;
    pare_status st = pare_lt_open(prep, &n->p, rank, &out->lt);
    if (st == PARE_OK) st = block_make(prep, n, out);
    if (st != PARE_OK) {
        pare_blas_node_close(out);
        return st;
    }
    scratch_set(prep, n, out);
    packed_set(prep, n);
    return PARE_OK;
}

void pare_blas_node_close(pare_blas_prepared *s)
{
    pare_lt_close(&s->lt);
    if (s->block) s->device->backend->free(s->device, s->block);
    s->block = NULL;
}

static pare_status floats_run(const pare_call *c, const pare_blas_prepared *s, const void *w)
{
    const float beta = s->residual < 0 ? 0 : 1;
    void *y = c->out[0].data;
    const void *z = s->residual < 0 ? y : c->in[s->residual].data;
    if (!w) w = s->w ? s->w : c->in[1].data;
    PARE_TRY(pare_lt_run(c, &s->lt, &s->alpha, w, c->in[0].data, &beta, z, y));
    if (!s->follows) return PARE_OK;
    pare_blas_epilogue e = s->epilogue;
    e.y = y;
    return PARE_CUDA_LAUNCH(c, pare_blas_epilogue_launch, &e);
}

/* Rows from `first` on. */
static pare_status rows_run(const pare_call *c, const pare_blas_prepared *s, int64_t first)
{
    const int32_t one = 1, none = 0;
    const char *x = (const char *)c->in[0].data + first * s->x_row;
    void *sums = (char *)c->scratch + s->sums;
    pare_blas_epilogue e = s->epilogue;
    if (s->flips) {
        const pare_blas_signs signs = {x, (char *)c->scratch + s->signs, s->at_once, s->x_row,
                                       s->depth};
        PARE_TRY(PARE_CUDA_LAUNCH(c, pare_blas_signs_launch, &signs));
        x = signs.to;
    }
    PARE_TRY(pare_lt_run(c, &s->lt, &one, s->w, x, &none, sums, sums));
    e.sums = sums;
    e.rows = s->at_once;
    e.y = (char *)c->out[0].data + first * e.y_row * pare_cuda_bytes(e.y_type);
    if (s->residual >= 0)
        e.z = (const char *)c->in[s->residual].data +
              first * e.y_row * pare_cuda_bytes(e.epilogue.z_type);
    return PARE_CUDA_LAUNCH(c, pare_blas_epilogue_launch, &e);
}

/* The last rows are as many as the others: some of them are computed twice, to the same bytes. */
pare_status pare_blas_node_run(const pare_call *c, const pare_blas_prepared *s, const void *w)
{
    if (!s->int8) return floats_run(c, s, w);
    for (int64_t at = 0; at < s->rows; at += s->at_once)
        PARE_TRY(rows_run(c, s, at + s->at_once > s->rows ? s->rows - s->at_once : at));
    return PARE_OK;
}
