/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul, Gemm and FusedMatMul. Floats are cuBLASLt's where it has the epilogue, and cuBLAS's in
   batches, as runtime/cuda/matmul_blas.c has it; integers and the rest are tiles of our own. */
#include "runtime/eval/roofline/internal.h"
#include "runtime/ops/sparse.h"

#include <math.h>
#include <stdio.h>

enum { CHUNK = 16, PIECE = 8, FEW_ROWS = 64 }; /* FEW_ROWS: runtime/cuda/matmul_weights.c */

typedef struct matmul {
    const pare_roofline_maker *m;
    const pare_prep *prep;
    const pare_matmul_args *a;
    pare_dtype type; /* that it multiplies in: the node's, or f16 to compare */
} matmul;

/* In 16 bits where the types are not the node's. */
static double bytes_of(const matmul *c, const pare_view *v)
{
    if (!v) return 0;
    const pare_dtype type = c->type == c->prep->in[0].dtype ? v->dtype : c->type;
    return (double)pare_view_count(v) * pare_type(type)->bits / 8;
}

/* Epilogues that cuBLASLt has. */
static bool library_takes(const matmul *c)
{
    const pare_act_kind act = c->a->act.kind;
    return !pare_type_is_int8(c->type) && !pare_type_is_f8(c->type) &&
           (act == PARE_ACT_NONE || act == PARE_ACT_RELU || act == PARE_ACT_GELU_TANH);
}

static pare_gpu_product product_of(const matmul *c)
{
    const pare_matmul_args *a = c->a;
    const pare_view *w = &c->prep->in[1];
    const pare_view *z = pare_operand(c->prep->in, c->prep->in_count, a->at.residual);
    const bool joins = w->data && w->rank == 2; /* rows of all batches are one matrix */
    const bool integer = pare_type_is_int8(c->type), f8 = pare_type_is_f8(c->type);
    const double size = pare_type(c->type)->bits / 8;
    pare_gpu_product p = {.type = c->type,
                          .batches = joins ? 1 : (double)a->batch,
                          .rows = (double)(joins ? a->batch * a->rows : a->rows),
                          .columns = (double)a->columns,
                          .depth = (double)a->depth,
                          .residual = z != NULL,
                          .library = library_takes(c)};
    const bool whole = fmod(p.depth * size, CHUNK) == 0;
    p.pieces = integer && joins && !whole && fmod(p.depth, PIECE) == 0;
    p.chunks = (c->type != PARE_f32 || joins) && (whole || p.pieces);
    p.plain = pare_act_clamps(&a->act) && a->alpha == 1 &&
              (!integer || (!a->epilogue.real && (!z || pare_type_is_int8(z->dtype)))) &&
              (!f8 || (!a->epilogue.real && (!z || z->dtype == c->type)));
    p.bounds = integer && pare_epilogue_bounds(&a->epilogue);
    p.gelu = a->act.kind == PARE_ACT_GELU;
    p.y = c->prep->out[0].dtype, p.z = z ? z->dtype : PARE_NOTYPE;
    p.wgmma = c->type != PARE_f32 && w->data && w->rank == 2 &&
              (p.plain || pare_wgmma_ends(&p, &a->act, a->epilogue.to));
    p.sparse = p.wgmma && pare_matmul_is_sparse(w, a);
    p.bytes = bytes_of(c, &c->prep->in[0]) + bytes_of(c, w) + bytes_of(c, &c->prep->out[0]) +
              bytes_of(c, z);
    return p;
}

/* Weights of 4 or 8 bits under floats: few rows read them as they are, more as floats made before.
 */
static void narrow_predict(const matmul *c, pare_gpu_product *p, pare_roofline_step *out)
{
    const pare_gpu_spec *spec = c->m->spec;
    const double wide = p->columns * p->depth * 4;
    if (p->rows * p->batches <= FEW_ROWS) {
        pare_bytes_add(spec, p->bytes, out);
        snprintf(out->kernel, sizeof out->kernel, "matmul_weights_few");
        out->known = true;
        return;
    }
    pare_bytes_add(spec, bytes_of(c, &c->prep->in[1]) + wide, out);
    p->bytes += wide;
    pare_product_predict(spec, c->m->counts, "matmul", p, out);
}

static void predict(const matmul *c, pare_roofline_step *out)
{
    pare_gpu_product p = product_of(c);
    const pare_view *w = &c->prep->in[1];
    if (!pare_type_is_int8(c->type) && c->a->weight.block) {
        narrow_predict(c, &p, out);
        return;
    }
    /* computed factors of 8 bits are packed with the sums of their rows */
    if (pare_type_is_int8(c->type) && !w->data)
        pare_bytes_add(c->m->spec, 2 * bytes_of(c, w) + bytes_of(c, &c->prep->in[0]), out);
    pare_product_predict(c->m->spec, c->m->counts, "matmul", &p, out);
}

pare_status pare_matmul_predict(const pare_roofline_maker *m, const pare_prep *prep,
                                pare_roofline_step *out, bool *read)
{
    pare_matmul_args a;
    pare_roofline_step half = {0};
    const pare_status st = pare_matmul_args_read(prep, &a);
    *read = st == PARE_OK;
    if (!*read) return st;
    predict(&(matmul){m, prep, &a, prep->in[0].dtype}, out);
    out->dtype = prep->in[0].dtype;
    if ((!a.int8 && !a.f8) || !out->known) return PARE_OK;
    predict(&(matmul){m, prep, &a, PARE_f16}, &half);
    out->seconds_f16 = half.seconds;
    return PARE_OK;
}
