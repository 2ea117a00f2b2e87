/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in f32 (f16 and bf16 through f32): head by head, so that one head's scores stay in
   cache, with two oneDNN products (scale * Q K^T, then scores x V) and a softmax between them.
   What of a head is not f32, or has rows apart (heads behind the sequence), is copied first.
   Every head is one thread's work: results do not depend on batch or threads. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/float16.h"
#include "runtime/cpu/onednn/onednn.h"
#include "runtime/cpu/softmax_rows.h"
#include "runtime/ops/attention.h"

#include <omp.h>
#include <string.h>

/* One product, A (rows, depth) x B (depth, columns), run by several threads on their own memory. */
typedef struct product {
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t a, b, y, pad;
    size_t pad_bytes;
} product;

/* One head of Q, K, V or Y. */
typedef struct part {
    int64_t rows, columns;
    bool copied; /* is f32 of rows one behind the other, at so many bytes of scratch */
    size_t at;
} part;

typedef struct attention {
    dnnl_engine_t engine;
    product scores, values;
    int64_t heads;
    part q, k, v, y;
    int threads;
    size_t room, scores_at, pad_at; /* bytes of scratch per thread: copies, scores, pads */
} attention;

static void product_free(product *p)
{
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    p->primitive = NULL;
}

static void release(void *state)
{
    attention *s = state;
    if (!s) return;
    product_free(&s->scores);
    product_free(&s->values);
    if (s->engine) dnnl_engine_destroy(s->engine);
    s->engine = NULL;
}

static dnnl_status_t matrix(dnnl_memory_desc_t *out, int64_t rows, int64_t columns, bool transposed)
{
    dnnl_dims_t dim = {rows, columns}, stride = {columns, 1};
    if (transposed) stride[0] = 1, stride[1] = rows;
    return dnnl_memory_desc_init_by_strides(out, 2, dim, dnnl_f32, stride);
}

static dnnl_status_t product_make(dnnl_engine_t engine, product *p, float scale)
{
    dnnl_matmul_desc_t op;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_attr_t attr;
    pare_act none = {0};
    pare_dnnl_attr in = {.act = &none, .alpha = scale};
    dnnl_status_t st = dnnl_matmul_desc_init(&op, &p->a, &p->b, NULL, &p->y);
    if (st != dnnl_success) return st;
    if (!pare_dnnl_attr_make(&in, &attr)) return dnnl_unimplemented;
    st = dnnl_primitive_desc_create(&desc, &op, attr, engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    if (st != dnnl_success) return st;
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    p->pad_bytes = pad ? dnnl_memory_desc_get_size(pad) : 0;
    if (pad) p->pad = *pad;
    st = dnnl_primitive_create(&p->primitive, desc);
    dnnl_primitive_desc_destroy(desc);
    return st;
}

static pare_attention_views views_of(const pare_prep *p)
{
    return pare_attention_views_of(p->node, p->in, p->in_count, &p->out[0]);
}

static bool can(const pare_prep *p)
{
    const pare_dtype t = p->in[0].dtype;
    if (t != PARE_f32 && t != PARE_f16 && t != PARE_bf16) return false;
    for (int i = 0; i < 3; i++) {
        const pare_view *v = &p->in[i];
        if (v->dtype != t || !pare_view_rowmajor(v) || pare_view_count(v) == 0) return false;
    }
    const pare_attention_views x = views_of(p);
    const int r = x.y.rank;
    if (r < 2 || x.q.rank != r || x.k.rank != r || x.v.rank != r) return false;
    for (int a = 0; a < x.y.rank - 2; a++)
        if (x.q.dim[a] != x.y.dim[a] || x.k.dim[a] != x.y.dim[a] || x.v.dim[a] != x.y.dim[a])
            return false;
    return x.y.dtype == t && pare_view_rowmajor(&p->out[0]) &&
           (!x.mask || x.mask->dtype == PARE_f32);
}

static size_t align(size_t n) { return (n + 63) / 64 * 64; }

/* A head of v; *room: bytes of scratch that are taken. */
static part part_of(const pare_view *v, size_t *room)
{
    const int r = v->rank;
    part p = {.rows = v->dim[r - 2], .columns = v->dim[r - 1], .at = *room};
    p.copied = v->dtype != PARE_f32 || (p.rows > 1 && v->stride[r - 2] != p.columns);
    if (p.copied) *room += align((size_t)(p.rows * p.columns) * sizeof(float));
    return p;
}

static dnnl_status_t products_make(attention *s, float scale)
{
    dnnl_status_t st = dnnl_engine_create(&s->engine, dnnl_cpu, 0);
    if (!st) st = matrix(&s->scores.a, s->q.rows, s->q.columns, false);
    if (!st) st = matrix(&s->scores.b, s->k.columns, s->k.rows, true);
    if (!st) st = matrix(&s->scores.y, s->q.rows, s->k.rows, false);
    if (!st) st = matrix(&s->values.a, s->q.rows, s->k.rows, false);
    if (!st) st = matrix(&s->values.b, s->v.rows, s->v.columns, false);
    if (!st) st = matrix(&s->values.y, s->y.rows, s->y.columns, false);
    if (!st) st = product_make(s->engine, &s->scores, scale);
    if (!st) st = product_make(s->engine, &s->values, 1);
    return st;
}

static pare_status prepare(pare_prep *p)
{
    attention *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    const pare_attention_views x = views_of(p);
    s->q = part_of(&x.q, &s->scores_at);
    s->k = part_of(&x.k, &s->scores_at);
    s->v = part_of(&x.v, &s->scores_at);
    s->y = part_of(&x.y, &s->scores_at);
    s->heads = pare_view_count(&x.q) / (s->q.rows * s->q.columns);
    const double scores = (double)(s->q.rows * s->k.rows);
    const double work = (double)s->heads * scores * (double)(s->q.columns + s->v.columns);
    s->threads = work < 2e5 || p->deterministic ? 1 : p->threads;
    if (s->threads > s->heads) s->threads = (int)s->heads;
    pare_dnnl_use_threads(1);
    dnnl_status_t st = products_make(s, pare_node_float(p->node, "scale", 1));
    pare_dnnl_use_threads(p->threads);
    if (st != dnnl_success) {
        release(s);
        return pare_dnnl_fail(p->node, st, "this attention");
    }
    s->pad_at = s->scores_at + align((size_t)(s->q.rows * s->k.rows) * sizeof(float));
    size_t pad =
        s->scores.pad_bytes > s->values.pad_bytes ? s->scores.pad_bytes : s->values.pad_bytes;
    s->room = s->pad_at + align(pad + 1);
    p->scratch = s->room * (size_t)s->threads;
    p->state = s;
    return PARE_OK;
}

/* Memory objects of one thread and one product. */
typedef struct hands {
    dnnl_memory_t memory[4]; /* a, b, y, pad */
    dnnl_exec_arg_t arg[4];
    int count;
} hands;

typedef struct bound {
    dnnl_stream_t *stream; /* per thread */
    hands *scores, *values;
    int threads;
} bound;

static dnnl_status_t hands_make(const attention *s, const product *p, hands *h)
{
    const dnnl_memory_desc_t *desc[4] = {&p->a, &p->b, &p->y, &p->pad};
    static const int arg[4] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    int all = p->pad_bytes ? 4 : 3;
    for (; h->count < all; h->count++) {
        dnnl_memory_t *m = &h->memory[h->count];
        dnnl_status_t st = dnnl_memory_create(m, desc[h->count], s->engine, DNNL_MEMORY_NONE);
        if (st != dnnl_success) return st;
        h->arg[h->count] = (dnnl_exec_arg_t){arg[h->count], *m};
    }
    return dnnl_success;
}

static pare_status bind(pare_call *c, pare_arena *arena)
{
    const attention *s = c->state;
    bound *b = pare_arena_alloc(arena, 1, sizeof *b);
    size_t n = (size_t)s->threads;
    if (!b) return PARE_MEMORY;
    b->stream = pare_arena_alloc(arena, n, sizeof *b->stream);
    b->scores = pare_arena_alloc(arena, n, sizeof *b->scores);
    b->values = pare_arena_alloc(arena, n, sizeof *b->values);
    if (!b->stream || !b->scores || !b->values) return PARE_MEMORY;
    c->bound = b;
    for (; b->threads < s->threads; b->threads++) {
        int t = b->threads;
        dnnl_status_t st = dnnl_stream_create(&b->stream[t], s->engine, dnnl_stream_default_flags);
        if (!st) st = hands_make(s, &s->scores, &b->scores[t]);
        if (!st) st = hands_make(s, &s->values, &b->values[t]);
        if (st) return pare_dnnl_fail(c->node, st, "memory objects");
    }
    return PARE_OK;
}

static void unbind(void *bound_)
{
    bound *b = bound_;
    if (!b) return;
    for (int t = 0; t < b->threads; t++) {
        for (int i = 0; i < b->scores[t].count; i++) dnnl_memory_destroy(b->scores[t].memory[i]);
        for (int i = 0; i < b->values[t].count; i++) dnnl_memory_destroy(b->values[t].memory[i]);
        dnnl_stream_destroy(b->stream[t]);
    }
    b->threads = 0;
}

static dnnl_status_t multiply(const product *p, hands *h, dnnl_stream_t stream, const void *a,
                              const void *b, void *y, void *pad)
{
    void *data[4] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, y, pad};
    for (int i = 0; i < h->count; i++) dnnl_memory_set_data_handle(h->memory[i], data[i]);
    return dnnl_primitive_execute(p->primitive, stream, h->count, h->arg);
}

/* Adds the mask of one head to its scores, which are rounded before and after where they are of
   short floats; the mask broadcasts along any axis. */
static void add_mask(const attention *s, const pare_attention_views *x, int64_t head, float *score)
{
    const pare_view *mask = x->mask;
    int64_t row = 0, last = mask->rank - 1,
            key = last < 0 || mask->dim[last] == 1 ? 0 : mask->stride[last];
    if (mask->rank > 1 && mask->dim[mask->rank - 2] != 1) row = mask->stride[mask->rank - 2];
    const float *m = (const float *)mask->data + pare_attention_head_offset(mask, &x->y, head);
    const int64_t count = s->q.rows * s->k.rows;
    if (x->rounded) pare_round_to(score, x->rounded, count);
    for (int64_t i = 0; i < s->q.rows; i++, m += row)
        for (int64_t j = 0; j < s->k.rows; j++) score[i * s->k.rows + j] += m[j * key];
    if (x->rounded) pare_round_to(score, x->rounded, count);
}

/* Where a head of v is. */
static char *head_at(const pare_view *v, const pare_view *y, int64_t head)
{
    const int64_t size = v->dtype == PARE_f32 ? 4 : 2;
    return (char *)v->data + pare_attention_head_offset(v, y, head) * size;
}

/* Rows that are copied, in one piece where they lie one behind the other. */
static int64_t pieces(const part *p, const pare_view *v, int64_t *columns)
{
    const bool together = v->stride[v->rank - 2] == p->columns;
    *columns = together ? p->rows * p->columns : p->columns;
    return together ? 1 : p->rows;
}

static const float *head_bring(const part *p, const pare_view *v, const pare_view *y, int64_t head,
                               char *room)
{
    const char *from = head_at(v, y, head);
    if (!p->copied) return (const float *)(const void *)from;
    const int64_t size = v->dtype == PARE_f32 ? 4 : 2;
    int64_t n;
    float *to = (float *)(void *)(room + p->at);
    for (int64_t i = 0, rows = pieces(p, v, &n); i < rows; i++) {
        const char *row = from + i * v->stride[v->rank - 2] * size;
        if (v->dtype == PARE_f32)
            memcpy(to + i * n, row, (size_t)n * sizeof *to);
        else
            pare_widen(to + i * n, row, v->dtype, n, 1);
    }
    return to;
}

static void head_store(const part *p, const pare_view *y, int64_t head, const char *room)
{
    const int64_t size = y->dtype == PARE_f32 ? 4 : 2;
    int64_t n;
    char *to = head_at(y, y, head);
    const float *from = (const float *)(const void *)(room + p->at);
    for (int64_t i = 0, rows = pieces(p, y, &n); i < rows; i++) {
        char *row = to + i * y->stride[y->rank - 2] * size;
        if (y->dtype == PARE_f32)
            memcpy(row, from + i * n, (size_t)n * sizeof *from);
        else
            pare_narrow(row, from + i * n, y->dtype, n, 1);
    }
}

static dnnl_status_t head_run(const pare_call *c, const pare_attention_views *x, int64_t head,
                              int thread)
{
    const attention *s = c->state;
    bound *b = c->bound;
    char *room = (char *)c->scratch + (size_t)thread * s->room, *pad = room + s->pad_at;
    const float *q = head_bring(&s->q, &x->q, &x->y, head, room);
    const float *k = head_bring(&s->k, &x->k, &x->y, head, room);
    const float *v = head_bring(&s->v, &x->v, &x->y, head, room);
    void *y = s->y.copied ? room + s->y.at : head_at(&x->y, &x->y, head);
    float *score = (float *)(void *)(room + s->scores_at);
    dnnl_stream_t stream = b->stream[thread];
    dnnl_status_t st = multiply(&s->scores, &b->scores[thread], stream, q, k, score, pad);
    if (st) return st;
    if (x->mask) add_mask(s, x, head, score);
    pare_softmax_rows(score, s->q.rows, s->k.rows);
    st = multiply(&s->values, &b->values[thread], stream, score, v, y, pad);
    if (s->y.copied) head_store(&s->y, &x->y, head, room);
    return st;
}

static pare_status run(const pare_call *c)
{
    const attention *s = c->state;
    const pare_attention_views x = pare_attention_views_of(c->node, c->in, c->in_count, &c->out[0]);
    int failed = 0;
    if (s->threads <= 1) {
        if (c->threads > 1) pare_dnnl_use_threads(1);
        for (int64_t i = 0; i < s->heads && !failed; i++) failed = (int)head_run(c, &x, i, 0);
        if (c->threads > 1) pare_dnnl_use_threads(c->threads);
    } else {
#pragma omp parallel for num_threads(s->threads) schedule(static) reduction(| : failed)
        for (int64_t i = 0; i < s->heads; i++)
            failed |= (int)head_run(c, &x, i, omp_get_thread_num());
    }
    return failed ? pare_dnnl_fail(c->node, (dnnl_status_t)failed, "to run") : PARE_OK;
}

const pare_kernel pare_onednn_attention = {.name = "onednn_attention",
                                           .can = can,
                                           .prepare = prepare,
                                           .bind = bind,
                                           .run = run,
                                           .unbind = unbind,
                                           .release = release};
