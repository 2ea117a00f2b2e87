/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul, Gemm and FusedMatMul on cuBLASLt (gemm/blas_product.h), and batches of products on
   cuBLAS. Each of the library's first few algorithms is an entry of its own, so that a stopwatch
   can choose among them. Nodes whose epilogue the library has not, erf-GELU and SiLU among them,
   and integers of many rows, whose sums it gives as they are, are entries behind our own kernels: a
   pass of gemm/blas_epilogue.h follows. Weights of 4 or 8 bits beside f32 rows stay so in memory,
   and become f32 in scratch before each product: that costs little beside many rows. */
#include "runtime/base/size.h"
#include "runtime/cuda/gemm/blas_node.h"
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/gemm/prepack.h"

enum { MOST_WIDENED = 256 << 20 /* bytes of weights in scratch */ };

/* A matrix whose axis `inner` (or else `outer`) is contiguous: is it transposed, and how far apart
   are its lines? False where neither is. */
static bool lines_of(const pare_view *v, int inner, int outer, int64_t *trans, int64_t *ld)
{
    bool in = v->stride[inner] == 1 || v->dim[inner] == 1;
    bool out = v->stride[outer] == 1 || v->dim[outer] == 1;
    int64_t lines = in ? v->stride[outer] : v->stride[inner];
    int64_t least = in ? v->dim[inner] : v->dim[outer];
    if (!in && !out) return false;
    if (v->dim[in ? outer : inner] == 1) lines = least;
    *trans = !in;
    *ld = lines;
    return lines >= least && lines <= INT32_MAX;
}

/* Batches of one distance each; rows of X that follow each other over all batches become one
   matrix. */
static bool batches_set(const pare_cuda_factors *f, pare_blas_product *p)
{
    pare_tensor_iterator walk;
    pare_view y = pare_cuda_leading(&f->y, &f->y), a = pare_cuda_leading(&f->a, &f->y),
              b = pare_cuda_leading(&f->b, &f->y);
    pare_iterator_init(&walk, (const pare_view *const[]){&y, &a, &b}, 3);
    p->count = walk.count;
    if (walk.count == 1) return true;
    if (walk.rank != 1) return false;
    p->d_batch = walk.stride[0][0], p->x_batch = walk.stride[1][0], p->w_batch = walk.stride[2][0];
    if (p->w_batch == 0 && !p->trans_x && p->x_batch == p->n * p->ld_x) {
        p->n *= p->count;
        p->count = 1;
    }
    return p->count <= PARE_CUDA_MOST_BATCHES;
}

/* Reads a node of floats that the libraries can compute, epilogue apart; *widens: W has 4 or 8
   bits. Results of other batch sizes may come from other algorithms: not in deterministic
   execution. */
static bool floats_read(const pare_prep *prep, pare_blas_node *n, bool *widens)
{
    pare_matmul_args a;
    pare_cuda_factors f;
    pare_cuda_gemm_args narrow;
    const pare_view *x = &prep->in[0], *w = &prep->in[1], *y = &prep->out[0];
    if (prep->deterministic || !pare_cuda_is_float(x->dtype) || y->dtype != x->dtype ||
        x->rank < 2 || w->rank < 2 || !pare_view_rowmajor(y))
        return false;
    *widens = w->dtype != x->dtype;
    if (*widens && !pare_cuda_weights_read(prep, &a, &narrow)) return false;
    if (!pare_cuda_readable(prep, pare_matmul_args_read(prep, &a))) return false;
    pare_cuda_factors_read(prep->node, x, w, y, &f);
    *n = (pare_blas_node){.act = a.act,
                          .alpha = a.alpha,
                          .bias = a.at.bias,
                          .residual = a.at.residual,
                          .packs = w->data && w->rank == 2 && !*widens,
                          .k_step = f.b.stride[f.b.rank - 2],
                          .m_step = f.b.stride[f.b.rank - 1]};
    pare_blas_product *p = &n->p;
    p->type = p->d_type = pare_blas_type(x->dtype);
    p->compute = pare_blas_compute(prep->device, x->dtype);
    p->m = p->ld_d = f.columns, p->n = f.rows, p->k = f.depth;
    if (!lines_of(&f.a, f.a.rank - 1, f.a.rank - 2, &p->trans_x, &p->ld_x) ||
        !lines_of(&f.b, f.b.rank - 2, f.b.rank - 1, &p->trans_w, &p->ld_w))
        return false;
    p->trans_w = !p->trans_w; /* depth contiguous is "transposed" for the first factor */
    if (n->packs || *widens) p->trans_w = 1, p->ld_w = pare_cuda_pitch(f.depth, x->dtype);
    if (*widens && p->m * p->ld_w * 4 > MOST_WIDENED) return false;
    return pare_view_count(y) && (*widens || a.at.w_scale < 0) && (a.at.bias < 0 || a.beta == 1) &&
           batches_set(&f, p);
}

/* Integers with constant weights. */
static bool integers_read(const pare_prep *prep, pare_blas_node *n)
{
    pare_matmul_args a;
    pare_cuda_gemm_args p;
    const pare_view *w = &prep->in[1];
    if (!pare_type_is_int8(prep->in[0].dtype) || !pare_cuda_matmul_read(prep, &a, &p)) return false;
    *n = (pare_blas_node){.residual = a.at.residual,
                          .k_step = w->stride[a.trans_b ? 1 : 0],
                          .m_step = w->stride[a.trans_b ? 0 : 1],
                          .x_zero = a.q.x_zero,
                          .scale = a.scale,
                          .bias_values = a.bias,
                          .epilogue = a.epilogue};
    return pare_blas_node_integers(prep, &p, n);
}

static bool node_read(const pare_prep *prep, pare_blas_node *n, bool *widens)
{
    *widens = false;
    return integers_read(prep, n) ||
           (floats_read(prep, n, widens) && pare_blas_node_floats(prep, n));
}

/* --- cuBLASLt --- */

typedef struct lt_matmul {
    pare_blas_prepared node;
    pare_cuda_gemm_args narrow; /* W in 4 or 8 bits; its type is none where there is no such W */
    void *narrow_block;
    size_t wide; /* where W as f32 is in scratch */
} lt_matmul;

/* follows: are nodes wanted that a pass follows, or the others? */
static bool lt_can(const pare_prep *prep, int rank, bool follows)
{
    pare_blas_node n;
    bool widens;
    return node_read(prep, &n, &widens) && n.follows == follows && pare_lt_count(prep, &n.p) > rank;
}

/* W goes to the device as it is, and has room in scratch. */
static pare_status narrow_make(pare_prep *prep, const pare_blas_product *p, lt_matmul *s)
{
    pare_matmul_args a;
    (void)pare_cuda_weights_read(prep, &a, &s->narrow);
    s->narrow.y_row = p->ld_w;
    s->wide = prep->scratch;
    prep->scratch += pare_align_up((size_t)(p->m * p->ld_w) * sizeof(float), PARE_BLAS_ALIGNED);
    return pare_cuda_weights_make(prep, &a, &s->narrow, &s->narrow_block);
}

static void lt_release(void *state)
{
    lt_matmul *s = state;
    if (!s) return;
    pare_device *device = s->node.device;
    pare_blas_node_close(&s->node);
    if (s->narrow_block) device->backend->free(device, s->narrow_block);
    s->narrow_block = NULL;
}

static pare_status lt_prepare(pare_prep *prep, int rank)
{
    pare_blas_node n;
    bool widens;
    lt_matmul *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    (void)node_read(prep, &n, &widens);
    PARE_TRY(pare_blas_node_open(prep, &n, rank, &s->node));
    pare_status st = widens ? narrow_make(prep, &n.p, s) : PARE_OK;
    if (st != PARE_OK) {
        lt_release(s);
        return st;
    }
    prep->state = s;
    return PARE_OK;
}

static pare_status lt_run(const pare_call *c)
{
    const lt_matmul *s = c->state;
    if (!s->narrow.weights.type) return pare_blas_node_run(c, &s->node, NULL);
    pare_cuda_gemm_args narrow = s->narrow;
    narrow.y = (char *)c->scratch + s->wide;
    PARE_TRY(PARE_CUDA_LAUNCH(c, pare_cuda_widen_weights_launch, &narrow));
    return pare_blas_node_run(c, &s->node, narrow.y);
}

#define LT_ENTRY(entry, text, rank, follows)                                                       \
    static bool entry##_can(const pare_prep *prep) { return lt_can(prep, rank, follows); }         \
    static pare_status entry##_prepare(pare_prep *prep) { return lt_prepare(prep, rank); }         \
    const pare_kernel pare_cuda_matmul_##entry = {.name = text #rank,                              \
                                                  .can = entry##_can,                              \
                                                  .prepare = entry##_prepare,                      \
                                                  .run = lt_run,                                   \
                                                  .release = lt_release};
LT_ENTRY(lt_0, "cublaslt_", 0, false)
LT_ENTRY(lt_1, "cublaslt_", 1, false)
LT_ENTRY(lt_2, "cublaslt_", 2, false)
LT_ENTRY(lt_3, "cublaslt_", 3, false)
LT_ENTRY(lt_4, "cublaslt_", 4, false)
LT_ENTRY(lt_5, "cublaslt_", 5, false)
LT_ENTRY(lt_6, "cublaslt_", 6, false)
LT_ENTRY(lt_7, "cublaslt_", 7, false)
LT_ENTRY(lt_epilogue_0, "cublaslt_epilogue_", 0, true)
LT_ENTRY(lt_epilogue_1, "cublaslt_epilogue_", 1, true)
LT_ENTRY(lt_epilogue_2, "cublaslt_epilogue_", 2, true)
LT_ENTRY(lt_epilogue_3, "cublaslt_epilogue_", 3, true)

/* --- cuBLAS: batches of factors that are both computed --- */

typedef struct batched {
    const pare_blas_api *api;
    pare_blas_product p;
    float alpha;
} batched;

static bool batched_can(const pare_prep *prep)
{
    pare_blas_node n;
    bool widens;
    return floats_read(prep, &n, &widens) && n.act.kind == PARE_ACT_NONE && n.bias < 0 &&
           n.residual < 0 && !n.packs && n.p.count > 1 && pare_blas_product_fits(&n.p) &&
           pare_cuda_blas_find(prep->ctx, prep->device);
}

static pare_status batched_prepare(pare_prep *prep)
{
    batched *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    pare_blas_node n;
    bool widens;
    if (!s) return PARE_MEMORY;
    (void)floats_read(prep, &n, &widens);
    s->p = n.p, s->alpha = n.alpha;
    s->api = pare_cuda_blas_find(prep->ctx, prep->device)->api;
    prep->state = s;
    return PARE_OK;
}

static pare_status batched_bind(pare_call *call, pare_arena *arena)
{
    (void)arena;
    return pare_cuda_blas_handle(call->ctx, call->stream, &call->bound);
}

static pare_status batched_run(const pare_call *c)
{
    const batched *s = c->state;
    const pare_blas_product *p = &s->p;
    const float beta = 0;
    const int type = (int)p->type;
    int code = s->api->blas_gemm_batched(
        c->bound, p->trans_w ? PARE_BLAS_T : PARE_BLAS_N, p->trans_x ? PARE_BLAS_T : PARE_BLAS_N,
        (int)p->m, (int)p->n, (int)p->k, &s->alpha, c->in[1].data, type, (int)p->ld_w, p->w_batch,
        c->in[0].data, type, (int)p->ld_x, p->x_batch, &beta, c->out[0].data, type, (int)p->ld_d,
        p->d_batch, (int)p->count, (int)p->compute, PARE_BLAS_ALGO_DEFAULT);
    return pare_cuda_blas_status(c->ctx, c->node, code, "cublasGemmStridedBatchedEx");
}

const pare_kernel pare_cuda_matmul_batched = {.name = "cublas_batched",
                                              .can = batched_can,
                                              .prepare = batched_prepare,
                                              .bind = batched_bind,
                                              .run = batched_run};
