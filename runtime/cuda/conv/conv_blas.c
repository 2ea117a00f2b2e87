/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of one pixel that visit each in turn, on cuBLASLt: where channels are together, X is
   a matrix of (pixels, channels) and Y one of (pixels, filters). Sums of floats are the library's:
   not in deterministic execution. */
#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/gemm/blas_node.h"

static bool conv_read(const pare_prep *prep, pare_blas_node *n)
{
    pare_conv_args a;
    pare_cuda_gemm_args p;
    const pare_view *w = &prep->in[1];
    if (!pare_cuda_conv_read(prep, &a, &p) || a.f8 || p.picture || p.batches != 1) return false;
    *n = (pare_blas_node){.act = a.act,
                          .alpha = 1,
                          .bias = a.at.bias,
                          .residual = a.at.residual,
                          .packs = true,
                          .k_step = w->stride[1],
                          .m_step = w->stride[0],
                          .x_zero = a.q.x_zero,
                          .scale = a.scale,
                          .bias_values = a.bias,
                          .epilogue = a.epilogue};
    if (a.int8) return pare_blas_node_integers(prep, &p, n);
    const int64_t type = pare_blas_type(prep->in[0].dtype);
    n->p = (pare_blas_product){.type = type,
                               .d_type = type,
                               .compute = pare_blas_compute(prep->device, prep->in[0].dtype),
                               .trans_w = 1,
                               .m = p.columns,
                               .n = p.rows,
                               .k = p.depth,
                               .ld_w = p.w_row,
                               .ld_x = p.x_row,
                               .ld_d = p.y_row,
                               .count = 1};
    return !prep->deterministic && pare_blas_node_floats(prep, n);
}

static bool lt_can(const pare_prep *prep, int rank)
{
    pare_blas_node n;
    return conv_read(prep, &n) && pare_lt_count(prep, &n.p) > rank;
}

static pare_status lt_prepare(pare_prep *prep, int rank)
{
    pare_blas_node n;
    pare_blas_prepared *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    (void)conv_read(prep, &n);
    PARE_TRY(pare_blas_node_open(prep, &n, rank, s));
    prep->state = s;
    return PARE_OK;
}

static pare_status lt_run(const pare_call *c) { return pare_blas_node_run(c, c->state, NULL); }

static void lt_release(void *state)
{
    if (state) pare_blas_node_close(state);
}

#define LT_ENTRY(rank)                                                                             \
    static bool lt_can_##rank(const pare_prep *prep) { return lt_can(prep, rank); }                \
    static pare_status lt_prepare_##rank(pare_prep *prep) { return lt_prepare(prep, rank); }       \
    const pare_kernel pare_cuda_conv_lt_##rank = {.name = "cublaslt_conv_" #rank,                  \
                                                  .can = lt_can_##rank,                            \
                                                  .prepare = lt_prepare_##rank,                    \
                                                  .run = lt_run,                                   \
                                                  .release = lt_release};
LT_ENTRY(0)
LT_ENTRY(1)
LT_ENTRY(2)
LT_ENTRY(3)
