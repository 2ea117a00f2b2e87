/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/gemm/blas_product.h"
#include "runtime/base/size.h"

#include <string.h>

int pare_blas_type(pare_dtype type)
{
    switch (type) {
    case PARE_f16: return PARE_BLAS_F16;
    case PARE_bf16: return PARE_BLAS_BF16;
    case PARE_s8: return PARE_BLAS_S8;
    default: return PARE_BLAS_F32;
    }
}

int pare_blas_compute(const pare_device *device, pare_dtype type)
{
    return type == PARE_f32 && device->tf32 ? PARE_BLAS_COMPUTE_TF32 : PARE_BLAS_COMPUTE_F32;
}

int pare_blas_epilogue_of(pare_act_kind act, bool biased)
{
    switch (act) {
    case PARE_ACT_NONE: return biased ? PARE_LT_EPILOGUE_BIAS : PARE_LT_EPILOGUE_NONE;
    case PARE_ACT_RELU: return biased ? PARE_LT_EPILOGUE_RELU_BIAS : PARE_LT_EPILOGUE_RELU;
    case PARE_ACT_GELU_TANH: return biased ? PARE_LT_EPILOGUE_GELU_BIAS : PARE_LT_EPILOGUE_GELU;
    default: return 0;
    }
}

bool pare_blas_product_fits(const pare_blas_product *p)
{
    return p->m > 0 && p->n > 0 && p->k > 0 && p->count > 0 && p->m < INT32_MAX / 4 &&
           p->n < INT32_MAX && p->k < INT32_MAX;
}

#define LT(call, name) PARE_TRY(pare_cuda_blas_status(ctx, node, api->call, name))

void pare_lt_close(pare_lt_product *s)
{
    void *layouts[] = {s->w, s->x, s->d};
    for (int i = 0; i < 3; i++)
        if (layouts[i]) (void)s->blas->api->lt_layout_destroy(layouts[i]);
    if (s->desc) (void)s->blas->api->lt_desc_destroy(s->desc);
    s->w = s->x = s->d = s->desc = NULL;
}

/* --- descriptors --- */

typedef struct layout {
    int64_t type, rows, columns, ld, count, batch;
} layout;

static pare_status layout_make(pare_ctx *ctx, const pare_node *node, const pare_blas_api *api,
                               void **out, const layout *l)
{
    const char *set = "cublasLtMatrixLayoutSetAttribute";
    int batches = (int)l->count;
    LT(lt_layout_create(out, (int)l->type, (uint64_t)l->rows, (uint64_t)l->columns, l->ld),
       "cublasLtMatrixLayoutCreate");
    if (l->count == 1) return PARE_OK;
    LT(lt_layout_set(*out, PARE_LT_LAYOUT_BATCH_COUNT, &batches, sizeof batches), set);
    LT(lt_layout_set(*out, PARE_LT_LAYOUT_BATCH_STRIDE, &l->batch, sizeof l->batch), set);
    return PARE_OK;
}

/* Descriptor and layouts; the bias's address is set where it is known. */
static pare_status describe(pare_ctx *ctx, const pare_node *node, const pare_blas_product *p,
                            pare_lt_product *s)
{
    const pare_blas_api *api = s->blas->api;
    const char *set = "cublasLtMatmulDescSetAttribute";
    const bool whole = p->type == PARE_BLAS_S8;
    const int trans_w = (int)p->trans_w, trans_x = (int)p->trans_x, epilogue = (int)p->epilogue,
              type = (int)p->d_type;
    const layout w = {p->type,   trans_w ? p->k : p->m, trans_w ? p->m : p->k, p->ld_w, p->count,
                      p->w_batch},
                 x = {p->type,   trans_x ? p->n : p->k, trans_x ? p->k : p->n, p->ld_x, p->count,
                      p->x_batch},
                 d = {p->d_type, p->m, p->n, p->ld_d, p->count, p->d_batch};
    LT(lt_desc_create(&s->desc, (int)p->compute, whole ? PARE_BLAS_S32 : PARE_BLAS_F32),
       "cublasLtMatmulDescCreate");
    LT(lt_desc_set(s->desc, PARE_LT_DESC_TRANSA, &trans_w, sizeof trans_w), set);
    LT(lt_desc_set(s->desc, PARE_LT_DESC_TRANSB, &trans_x, sizeof trans_x), set);
    LT(lt_desc_set(s->desc, PARE_LT_DESC_EPILOGUE, &epilogue, sizeof epilogue), set);
    if (epilogue & PARE_LT_EPILOGUE_BIAS)
        LT(lt_desc_set(s->desc, PARE_LT_DESC_BIAS_TYPE, &type, sizeof type), set);
    PARE_TRY(layout_make(ctx, node, api, &s->w, &w));
    PARE_TRY(layout_make(ctx, node, api, &s->x, &x));
    return layout_make(ctx, node, api, &s->d, &d);
}

/* --- the heuristic's answers --- */

struct pare_lt_answers {
    pare_lt_answers *next;
    pare_blas_product of;
    int count;
    pare_lt_result result[PARE_LT_MOST]; /* best first */
};

static pare_status preference_fill(pare_ctx *ctx, const pare_node *node, const pare_blas_api *api,
                                   void *preference, const pare_blas_product *p)
{
    const char *set = "cublasLtMatmulPreferenceSetAttribute";
    const uint64_t most = PARE_CUDA_WORKSPACE;
    const uint32_t x = (uint32_t)p->x_aligned, rest = PARE_BLAS_ALIGNED;
    LT(lt_preference_set(preference, PARE_LT_PREFERENCE_WORKSPACE, &most, sizeof most), set);
    LT(lt_preference_set(preference, PARE_LT_PREFERENCE_ALIGNMENT_A, &rest, sizeof rest), set);
    LT(lt_preference_set(preference, PARE_LT_PREFERENCE_ALIGNMENT_B, &x, sizeof x), set);
    LT(lt_preference_set(preference, PARE_LT_PREFERENCE_ALIGNMENT_C, &rest, sizeof rest), set);
    LT(lt_preference_set(preference, PARE_LT_PREFERENCE_ALIGNMENT_D, &rest, sizeof rest), set);
    return PARE_OK;
}

/* A product that the library refuses has no answer; other failures are passed on. */
static pare_status ask(pare_ctx *ctx, const pare_node *node, const pare_lt_product *s,
                       const pare_blas_product *p, pare_lt_answers *to)
{
    const pare_blas_api *api = s->blas->api;
    void *preference = NULL;
    int count = 0;
    LT(lt_preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    pare_status st = preference_fill(ctx, node, api, preference, p);
    if (st == PARE_OK) {
        int code = api->lt_heuristic(s->blas->lt, s->desc, s->w, s->x, s->d, s->d, preference,
                                     PARE_LT_MOST, to->result, &count);
        if (code == PARE_BLAS_NOT_SUPPORTED || code == PARE_BLAS_INVALID_VALUE) code = count = 0;
        st = pare_cuda_blas_status(ctx, node, code, "cublasLtMatmulAlgoGetHeuristic");
    }
    (void)api->lt_preference_destroy(preference);
    for (int i = 0; st == PARE_OK && i < count; i++)
        if (to->result[i].status == PARE_BLAS_SUCCESS) to->result[to->count++] = to->result[i];
    return st;
}

static pare_status answers_make(pare_ctx *ctx, const pare_node *node, const pare_blas_product *p,
                                const pare_cuda_blas *blas, pare_lt_answers *out)
{
    pare_lt_product s = {.blas = blas};
    pare_status st = describe(ctx, node, p, &s);
    if (st == PARE_OK) st = ask(ctx, node, &s, p, out);
    pare_lt_close(&s);
    return st;
}

/* What the library answers for this product, kept for as long as the device is open. */
static pare_status answers_find(const pare_prep *prep, const pare_blas_product *p,
                                const pare_lt_answers **out)
{
    pare_cuda_blas *blas = pare_cuda_blas_find(prep->ctx, prep->device);
    if (!blas)
        return PARE_FAIL_NODE(prep->node, UNSUPPORTED, "cuBLASLt is needed, and was not found");
    for (*out = blas->answers; *out; *out = (*out)->next)
        if (!memcmp(&(*out)->of, p, sizeof *p)) return PARE_OK;
    pare_lt_answers *a = pare_alloc(prep->ctx, 1, sizeof *a);
    if (!a) return PARE_MEMORY;
    a->of = *p;
    pare_status st = answers_make(prep->ctx, prep->node, p, blas, a);
    if (st != PARE_OK) {
        pare_free(a);
        return st;
    }
    a->next = blas->answers;
    *out = blas->answers = a;
    return PARE_OK;
}

void pare_lt_answers_free(pare_lt_answers *a)
{
    while (a) {
        pare_lt_answers *next = a->next;
        pare_free(a);
        a = next;
    }
}

int pare_lt_count(const pare_prep *prep, const pare_blas_product *p)
{
    const pare_lt_answers *a;
    if (answers_find(prep, p, &a) == PARE_OK) return a->count;
    pare_ctx_clear(prep->ctx); /* another kernel serves */
    return 0;
}

/* --- a product --- */

pare_status pare_lt_open(pare_prep *prep, const pare_blas_product *p, int rank,
                         pare_lt_product *out)
{
    const pare_lt_answers *a;
    *out = (pare_lt_product){0};
    PARE_TRY(answers_find(prep, p, &a));
    if (rank >= a->count)
        return PARE_FAIL_NODE(prep->node, UNSUPPORTED, "cuBLASLt knows %d ways to compute it",
                              a->count);
    out->blas = pare_cuda_blas_find(prep->ctx, prep->device);
    pare_status st = describe(prep->ctx, prep->node, p, out);
    if (st != PARE_OK) {
        pare_lt_close(out);
        return st;
    }
    out->algo = a->result[rank].algo;
    out->workspace = a->result[rank].workspace;
    out->scratch = prep->scratch;
    prep->scratch += pare_align_up(out->workspace, PARE_BLAS_ALIGNED);
    return PARE_OK;
}

pare_status pare_lt_bias_set(const pare_prep *prep, const pare_lt_product *s, const void *bias)
{
    return pare_cuda_blas_status(
        prep->ctx, prep->node,
        s->blas->api->lt_desc_set(s->desc, PARE_LT_DESC_BIAS_POINTER, &bias, sizeof bias),
        "cublasLtMatmulDescSetAttribute");
}

pare_status pare_lt_run(const pare_call *c, const pare_lt_product *s, const void *alpha,
                        const void *w, const void *x, const void *beta, const void *from, void *d)
{
    int code = s->blas->api->lt_matmul(s->blas->lt, s->desc, alpha, w, s->w, x, s->x, beta, from,
                                       s->d, d, s->d, &s->algo, (char *)c->scratch + s->scratch,
                                       s->workspace, pare_cuda_stream(c->stream));
    return pare_cuda_blas_status(c->ctx, c->node, code, "cublasLtMatmul");
}
