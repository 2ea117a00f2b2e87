/* SPDX-License-Identifier: Apache-2.0 */
/* FusedMatMul of f32 rows with a constant of 4 or 8 bits (product.h, pare_weight_only), which stays
   so on the device: packed column by column, depth together, with its scales and zero points in one
   block. Few rows take the kernel that reads each weight once for eight of them. Others take tiles,
   and so does deterministic execution, whose sums may not depend on the number of rows; where
   cuBLASLt is, it serves many rows (matmul_blas.c), with W as f32 in scratch. */
#include "runtime/base/size.h"
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/cuda/matmul.h"

#include <string.h>

enum { FEW = 64 }; /* rows below which tiles do not fill a device */

static bool is_weight(pare_dtype t)
{
    return pare_type_is_weight_level(t) || pare_type_is_weight_float(t);
}

/* Rows of all batches follow one another: they are rows of one product. */
static void rows_join(const pare_prep *prep, const pare_matmul_args *a, pare_cuda_gemm_args *p)
{
    if (a->trans_a || p->bias_row || !pare_view_rowmajor(&prep->in[0])) return;
    p->rows = a->batch * a->rows;
    p->x_row = a->depth, p->x_step = 1;
    pare_cuda_batch_set(p, 1, 0, 0, 0);
    if (a->depth % 4 == 0) p->copy = 16;
}

static void weights_set(const pare_view *w, const pare_matmul_args *a, pare_cuda_gemm_args *p)
{
    const int bits = pare_type(w->dtype)->bits;
    const bool integer = pare_type_is_weight_level(w->dtype);
    const bool has_sign = w->dtype == PARE_s4 || w->dtype == PARE_s8;
    p->w_row = pare_cuda_pitch((a->depth * bits + 7) / 8, PARE_u8);
    p->w_step = 1;
    p->weights.type = !integer ? w->dtype : bits == 4 ? PARE_s4 : PARE_s8;
    p->weights.middle = has_sign ? 1 << (bits - 1) : 0;
    p->weights.group = (int)(a->weight.block < a->depth || !a->depth ? a->weight.block : a->depth);
    p->weights.groups = (int)((a->depth + p->weights.group - 1) / p->weights.group);
}

bool pare_cuda_weights_read(const pare_prep *prep, pare_matmul_args *a, pare_cuda_gemm_args *p)
{
    const pare_view *x = &prep->in[0], *w = &prep->in[1], *y = &prep->out[0];
    pare_cuda_factors f;
    if (x->dtype != PARE_f32 || y->dtype != PARE_f32 || !is_weight(w->dtype)) return false;
    if (x->rank < 2 || w->rank != 2 || y->rank < 2) return false;
    if (!pare_cuda_readable(prep, pare_matmul_args_read(prep, a))) return false;
    pare_cuda_factors_read(prep->node, x, w, y, &f);
    if (!pare_cuda_factors_fit(prep, &f) || !pare_cuda_bias_spreads(prep, a->at.bias, &f) ||
        !pare_cuda_residual_fits(prep, a->at.residual))
        return false;
    pare_cuda_gemm_init(p, PARE_f32, PARE_f32);
    pare_cuda_factors_set(&f, p);
    pare_cuda_floats_set(prep, a, p);
    rows_join(prep, a, p);
    weights_set(w, a, p);
    return true;
}

/* --- packing --- */

/* Element i as it is stored: of integers, counted from the lowest one on. */
static unsigned code_of(const pare_view *w, int64_t i, unsigned middle)
{
    const uint8_t *data = w->data;
    if (pare_type(w->dtype)->bits == 8) return data[i] ^ middle;
    return (data[i / 2] >> i % 2 * 4 & 15u) ^ middle;
}

static void levels_pack(const pare_view *w, const pare_matmul_args *a, const pare_cuda_gemm_args *p,
                        uint8_t *to)
{
    const int64_t step = w->stride[a->trans_b ? 1 : 0], column = w->stride[a->trans_b ? 0 : 1];
    const unsigned middle = (unsigned)p->weights.middle;
    const bool four = pare_type(w->dtype)->bits == 4;
    for (int64_t n = 0; n < a->columns; n++, to += p->w_row)
        for (int64_t k = 0; k < a->depth; k++) {
            const unsigned code = code_of(w, k * step + n * column, middle);
            if (four)
                to[k / 2] = (uint8_t)(to[k / 2] | code << k % 2 * 4);
            else
                to[k] = (uint8_t)code;
        }
}

/* (columns, groups) scales and levels that mean 0. Says whether these differ. */
static bool groups_pack(const pare_matmul_args *a, const pare_cuda_weights *w, float *scale,
                        uint8_t *zero)
{
    bool differ = false;
    for (int64_t n = 0, at = 0; n < a->columns; n++)
        for (int64_t g = 0; g < w->groups; g++, at++) {
            int level;
            scale[at] = pare_weight_scale(&a->weight, g * w->group, n, &level);
            zero[at] = (uint8_t)(level + w->middle);
            differ = differ || zero[at] != zero[0];
        }
    return differ;
}

/* Levels, scales and, where they differ, zero points, in one block. */
pare_status pare_cuda_weights_make(pare_prep *prep, const pare_matmul_args *a,
                                   pare_cuda_gemm_args *p, void **block)
{
    pare_cuda_weights *w = &p->weights;
    const size_t count = (size_t)a->columns * (size_t)w->groups;
    const size_t scale = pare_align_up((size_t)a->columns * (size_t)p->w_row, 256);
    const size_t zero = scale + pare_align_up(count * sizeof(float), 256), all = zero + count + 1;
    char *host = pare_alloc(prep->ctx, all, 1);
    if (!host) return PARE_MEMORY;
    levels_pack(&prep->in[1], a, p, (uint8_t *)host);
    const bool differ = groups_pack(a, w, (float *)(void *)(host + scale), (uint8_t *)host + zero);
    if (!differ && count) w->middle = (uint8_t)host[zero];
    const pare_status st = pare_cuda_copy_kept(prep, block, host, differ ? all : zero);
    pare_free(host);
    if (st != PARE_OK)
        return pare_fail_prefix(prep->ctx, st, "node '%s' (%s)", prep->node->name,
                                prep->node->op_type);
    const char *at = *block;
    p->w = at;
    w->scale = (const float *)(const void *)(at + scale);
    w->zero = differ ? (const uint8_t *)at + zero : NULL;
    prep->packed |= 1u << 1 | 1u << a->at.w_scale;
    if (a->at.w_zero >= 0) prep->packed |= 1u << a->at.w_zero;
    return PARE_OK;
}

static pare_status weights_prepare(pare_prep *prep, bool few)
{
    pare_matmul_args a;
    pare_cuda_gemm_args p;
    pare_cuda_prepared *s;
    (void)pare_cuda_weights_read(prep, &a, &p);
    PARE_TRY(pare_cuda_prepared_new(prep, &p, &s));
    s->p.few = few;
    s->residual = a.at.residual;
    s->bias = a.at.bias;
    PARE_TRY(pare_cuda_weights_make(prep, &a, &s->p, &s->block));
    prep->state = s;
    return PARE_OK;
}

/* --- kernels --- */

static bool few_can(const pare_prep *prep)
{
    pare_matmul_args a;
    pare_cuda_gemm_args p;
    return !prep->deterministic && pare_cuda_weights_read(prep, &a, &p) && p.batches == 1 &&
           p.rows <= FEW;
}

static bool any_can(const pare_prep *prep)
{
    pare_matmul_args a;
    pare_cuda_gemm_args p;
    return pare_cuda_weights_read(prep, &a, &p);
}

static pare_status few_prepare(pare_prep *prep) { return weights_prepare(prep, true); }
static pare_status any_prepare(pare_prep *prep) { return weights_prepare(prep, false); }

const pare_kernel pare_cuda_matmul_weights_few = {.name = "cuda_matmul_weights_few",
                                                  .can = few_can,
                                                  .prepare = few_prepare,
                                                  .run = pare_cuda_gemm_run,
                                                  .release = pare_cuda_gemm_release};
const pare_kernel pare_cuda_matmul_weights = {.name = "cuda_matmul_weights",
                                              .can = any_can,
                                              .prepare = any_prepare,
                                              .run = pare_cuda_gemm_run,
                                              .release = pare_cuda_gemm_release};
