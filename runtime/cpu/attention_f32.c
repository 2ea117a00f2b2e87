/* SPDX-License-Identifier: Apache-2.0 */
/* pare.FusedAttention and Attention (23, 24) in f32, one head and a block of its rows at a time:
   Y = softmax(scale * Q K^T + mask) V. A task packs K^T and V of its head into rows padded to whole
   blocks of columns, then takes 24 rows of Q at a time: their scores, softmax and part of Y, all
   while they are in the cache. Every sum runs in one order whatever the threads. Keys that no row
   of a block may see (causal, not valid) are left out of its products. Operands that were f16 or
   bf16 have their scores rounded where pare_attention_views says so. */
#include "runtime/base/size.h"
#include "runtime/cpu/attention.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/float16.h"
#include "runtime/cpu/gemm/float_block.h"
#include "runtime/cpu/ref.h"
#include "runtime/cpu/softmax_rows.h"
#include "runtime/ops/attention.h"

#include <math.h>
#include <string.h>

enum { ROWS = 4 * PARE_TILE_ROWS };

typedef struct attention_state {
    pare_sdpa sdpa; /* of Attention */
    bool fused;     /* pare.FusedAttention */
    float scale;
    int64_t heads, queries, keys, depth, width; /* depth of Q and K, width of V */
    int64_t padded_keys, padded_width, chunk;   /* rows of a task */
    size_t room;                                /* floats of one thread */
    int columns;                                /* of a block of K^T or V */
    pare_float_block_fn block;
} attention_state;

/* c (rows, n) = a (rows, k) x b (k, n), n a multiple of the block's columns. */
static void multiply(const attention_state *s, float *c, int64_t c_step, const float *a,
                     int64_t a_step, int rows, const float *b, int64_t b_step, int64_t k, int64_t n)
{
    pare_float_block t = {
        .step = 1, .depth = k, .b_step = b_step, .acc_step = c_step, .more = false};
    for (int64_t j = 0; j < n; j += s->columns)
        for (int r = 0; r < rows; r += PARE_TILE_ROWS) {
            t.rows = rows - r < PARE_TILE_ROWS ? rows - r : PARE_TILE_ROWS;
            for (int i = 0; i < t.rows; i++) t.row[i] = a + (r + i) * a_step;
            t.b = b + j;
            t.acc = c + r * c_step + j;
            s->block(&t);
        }
}

/* What one call reads and writes; Q, K, V and Y have one rank. */
typedef struct operands {
    pare_view q, y;
    pare_view key[2], value[2]; /* past ones, which may be absent, then the others */
    int64_t past;               /* keys before key[1]'s */
    int64_t group;              /* heads of Q for one head of K and V */
    const pare_view *mask, *valid;
    bool causal;
    pare_dtype rounded; /* of pare_attention_views */
} operands;

static operands operands_of(const pare_call *c)
{
    const attention_state *s = c->state;
    if (s->fused) {
        const pare_attention_views x =
            pare_attention_views_of(c->node, c->in, c->in_count, &c->out[0]);
        return (operands){.q = x.q,
                          .y = x.y,
                          .key = {{0}, x.k},
                          .value = {{0}, x.v},
                          .group = 1,
                          .mask = x.mask,
                          .rounded = x.rounded};
    }
    const pare_sdpa_views v = pare_sdpa_views_of(c, &s->sdpa);
    return (operands){.q = v.q,
                      .y = v.y,
                      .key = {v.key[0], v.key[1]},
                      .value = {v.value[0], v.value[1]},
                      .past = v.past,
                      .group = v.q.dim[1] / v.key[1].dim[1],
                      .mask = v.mask,
                      .valid = v.valid,
                      .causal = s->sdpa.causal};
}

/* The mask of one row of scores; data of one type is given, or none. */
typedef struct mask_row {
    const float *add;
    const bool *keep;
    int64_t step;
} mask_row;

/* s = scale * s + mask, n of them. */
PARE_CLONES static void mask_add(float *s, int64_t n, float scale, const mask_row *mask)
{
    if (mask->add)
        for (int64_t i = 0; i < n; i++) s[i] = s[i] * scale + mask->add[i * mask->step];
    else if (mask->keep)
        for (int64_t i = 0; i < n; i++)
            s[i] = mask->keep[i * mask->step] ? s[i] * scale : -INFINITY;
    else
        for (int64_t i = 0; i < n; i++) s[i] *= scale;
}

/* The same, with both results rounded to the type: PARE_NOTYPE keeps them as they are. */
static void masked(float *s, int64_t n, float scale, const mask_row *mask, pare_dtype rounded)
{
    static const mask_row none = {NULL, NULL, 0};
    if (rounded == PARE_NOTYPE) {
        mask_add(s, n, scale, mask);
        return;
    }
    mask_add(s, n, scale, &none);
    pare_round_to(s, rounded, n);
    mask_add(s, n, 1, mask);
    pare_round_to(s, rounded, n);
}

/* Offset of a head in K or V, whose head count is Y's over the group. */
static int64_t shared_offset(const operands *o, const pare_view *v, int64_t head)
{
    if (o->group == 1) return pare_attention_head_offset(v, &o->y, head);
    const int64_t heads = o->y.dim[1];
    return head / heads * v->stride[0] + head % heads / o->group * v->stride[1];
}

/* Keys [at, end) of K^T (depth, padded keys) and V (keys, padded width), from views of keys. */
static void pack(const attention_state *s, const operands *o, int part, int64_t head, int64_t at,
                 int64_t end, float *kt, float *values)
{
    const pare_view *k = &o->key[part], *v = &o->value[part];
    const int r = k->rank;
    const float *from = (const float *)k->data + shared_offset(o, k, head);
    for (int64_t d = 0; d < s->depth; d++) {
        float *row = kt + d * s->padded_keys + at;
        for (int64_t j = 0; j < end - at; j++)
            row[j] = from[j * k->stride[r - 2] + d * k->stride[r - 1]];
    }
    from = (const float *)v->data + shared_offset(o, v, head);
    for (int64_t j = 0; j < end - at; j++) {
        float *row = values + (at + j) * s->padded_width;
        for (int64_t d = 0; d < s->width; d++)
            row[d] = from[j * v->stride[r - 2] + d * v->stride[r - 1]];
        for (int64_t d = s->width; d < s->padded_width; d++) row[d] = 0;
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Keys that a row sees: the first so many. */
static int64_t keys_of_row(const attention_state *s, const operands *o, int64_t head, int64_t row)
{
    int64_t n = s->keys;
    if (o->causal) n = least(n, o->past + row + 1);
    if (o->valid)
        n = least(n, pare_ref_get_int(o->valid, head / o->y.dim[1] * o->valid->stride[0]));
    if (o->mask && o->mask->rank > 0 && o->mask->dim[o->mask->rank - 1] != 1)
        n = least(n, o->mask->dim[o->mask->rank - 1]);
    return n < 0 ? 0 : n;
}

static mask_row mask_of_row(const operands *o, int64_t head, int64_t row)
{
    const pare_view *m = o->mask;
    if (!m) return (mask_row){NULL, NULL, 0};
    const int r = m->rank;
    int64_t at = pare_attention_head_offset(m, &o->y, head);
    if (r > 1 && m->dim[r - 2] != 1) at += row * m->stride[r - 2];
    mask_row out = {NULL, NULL, r > 0 && m->dim[r - 1] != 1 ? m->stride[r - 1] : 0};
    if (m->dtype == PARE_f32)
        out.add = (const float *)m->data + at;
    else
        out.keep = (const bool *)m->data + at;
    return out;
}

/* Rows [first, last) of a head; room: K^T, V, 6 rows of Q, of scores and of Y. */
static void rows_run(const attention_state *s, const operands *o, int64_t head, int64_t first,
                     int64_t last, float *room)
{
    const pare_view *q = &o->q, *y = &o->y;
    const int r = y->rank;
    float *kt = room, *values = kt + s->depth * s->padded_keys;
    float *queries = values + s->keys * s->padded_width, *scores = queries + ROWS * s->depth;
    float *result = scores + ROWS * s->padded_keys;
    const float *from = (const float *)q->data + pare_attention_head_offset(q, y, head);
    float *to = (float *)y->data + pare_attention_head_offset(y, y, head);
    const int64_t most = keys_of_row(s, o, head, last - 1), past = least(o->past, most);
    pack(s, o, 0, head, 0, past, kt, values);
    pack(s, o, 1, head, past, most, kt, values);
    for (int64_t d = 0; d < s->depth; d++)
        for (int64_t j = most; j < s->padded_keys; j++) kt[d * s->padded_keys + j] = 0;
    for (int64_t row = first; row < last; row += ROWS) {
        const int n = (int)least(last - row, ROWS);
        const int64_t keys = keys_of_row(s, o, head, row + n - 1);
        for (int i = 0; i < n; i++)
            for (int64_t d = 0; d < s->depth; d++)
                queries[i * s->depth + d] =
                    from[(row + i) * q->stride[r - 2] + d * q->stride[r - 1]];
        multiply(s, scores, s->padded_keys, queries, s->depth, n, kt, s->padded_keys, s->depth,
                 (int64_t)pare_align_up((size_t)keys, (size_t)s->columns));
        for (int i = 0; i < n; i++) {
            const mask_row mask = mask_of_row(o, head, row + i);
            const int64_t seen = keys_of_row(s, o, head, row + i);
            float *score = scores + i * s->padded_keys;
            masked(score, seen, s->scale, &mask, o->rounded);
            pare_softmax_rows(score, 1, seen);
            for (int64_t j = seen; j < keys; j++) score[j] = 0;
            if (seen == 0) score[0] = NAN; /* 0 / 0 */
        }
        multiply(s, result, s->padded_width, scores, s->padded_keys, n, values, s->padded_width,
                 keys ? keys : 1, s->padded_width);
        for (int i = 0; i < n; i++)
            for (int64_t d = 0; d < s->width; d++)
                to[(row + i) * y->stride[r - 2] + d * y->stride[r - 1]] =
                    result[i * s->padded_width + d];
    }
}

static pare_status prepare(pare_prep *p, attention_state *s, const pare_view *q, const pare_view *y,
                           const pare_view *k, const pare_view *v, int64_t past)
{
    const int r = q->rank;
    s->heads = 1;
    for (int i = 0; i < r - 2; i++) s->heads *= y->dim[i];
    s->queries = q->dim[r - 2];
    s->keys = past + k->dim[r - 2];
    s->depth = q->dim[r - 1];
    s->width = v->dim[r - 1];
    s->columns = pare_cpu_isa() >= PARE_ISA_AVX512 ? 32 : 16;
    s->block = pare_float_block_of(pare_cpu_isa(), s->columns);
    s->padded_keys = (int64_t)pare_align_up((size_t)s->keys, (size_t)s->columns);
    s->padded_width = (int64_t)pare_align_up((size_t)s->width, (size_t)s->columns);
    int64_t wanted = 4 * (int64_t)p->threads; /* tasks */
    int64_t blocks =
        s->heads >= wanted || p->threads < 2 ? 1 : (wanted + s->heads - 1) / (s->heads + !s->heads);
    s->chunk = (s->queries + blocks - 1) / blocks;
    s->chunk = (s->chunk + ROWS - 1) / ROWS * ROWS;
    s->room = (size_t)(s->depth * s->padded_keys + s->keys * s->padded_width) +
              (size_t)ROWS * (size_t)(s->depth + s->padded_keys + s->padded_width);
    s->room = pare_align_up(s->room, 16);
    p->scratch = s->room * sizeof(float) * (size_t)p->threads;
    p->state = s;
    return PARE_OK;
}

static pare_status attention_prepare(pare_prep *p)
{
    attention_state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->fused = true;
    s->scale = pare_node_float(p->node, "scale", 1);
    const pare_attention_views x = pare_attention_views_of(p->node, p->in, p->in_count, &p->out[0]);
    return prepare(p, s, &x.q, &x.y, &x.k, &x.v, 0);
}

static pare_status sdpa_prepare(pare_prep *p)
{
    attention_state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->fused = false;
    pare_sdpa_read(p, &s->sdpa);
    s->scale = (float)s->sdpa.scale;
    const pare_view q = pare_attention_heads(&p->in[0], s->sdpa.q_heads);
    const pare_view y = pare_attention_heads(&p->out[0], s->sdpa.q_heads);
    const pare_view k = pare_attention_heads(&p->in[1], s->sdpa.kv_heads);
    const pare_view v = pare_attention_heads(&p->in[2], s->sdpa.kv_heads);
    return prepare(p, s, &q, &y, &k, &v, p->in_count > 4 && p->in[4].dtype ? p->in[4].dim[2] : 0);
}

static pare_status attention_run(const pare_call *c)
{
    const attention_state *s = c->state;
    const operands o = operands_of(c);
    if (!s->fused) {
        const pare_sdpa_views v = pare_sdpa_views_of(c, &s->sdpa);
        pare_sdpa_present(c, &v);
    }
    if (!pare_view_count(&c->out[0])) return PARE_OK;
    int64_t blocks = (s->queries + s->chunk - 1) / s->chunk, tasks = s->heads * blocks;
    int parts = c->threads < tasks ? c->threads : (int)tasks;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int t = 0; t < parts; t++)
        for (int64_t i = tasks * t / parts; i < tasks * (t + 1) / parts; i++) {
            int64_t first = i % blocks * s->chunk;
            if (first < s->queries)
                rows_run(s, &o, i / blocks, first, least(first + s->chunk, s->queries),
                         (float *)c->scratch + (size_t)t * s->room);
        }
    return PARE_OK;
}

static bool attention_can(const pare_prep *p)
{
    const int r = p->out[0].rank;
    for (int i = 0; i < p->in_count; i++)
        if (p->in[i].dtype && p->in[i].dtype != PARE_f32) return false;
    const pare_attention_views x = pare_attention_views_of(p->node, p->in, p->in_count, &p->out[0]);
    if (r < 2 || x.q.rank != r || x.k.rank != r || x.v.rank != r || (x.mask && x.mask->rank > r))
        return false;
    const int64_t size = x.k.dim[r - 2] * (x.k.dim[r - 1] + x.v.dim[r - 1]);
    return x.k.dim[r - 2] > 0 && size < INT32_MAX;
}

/* Without a cap, and where the scores are not an output. */
static bool sdpa_can(const pare_prep *p)
{
    for (int i = 0; i < p->in_count; i++) {
        const pare_dtype t = p->in[i].dtype;
        if (t && t != PARE_f32 && i != 6 && !(i == 3 && t == PARE_bool)) return false;
    }
    if ((p->out_count > 3 && p->out[3].dtype) || pare_node_float(p->node, "softcap", 0) != 0)
        return false;
    pare_sdpa s;
    pare_sdpa_read(p, &s);
    const pare_view q = pare_attention_heads(&p->in[0], s.q_heads);
    const pare_view k = pare_attention_heads(&p->in[1], s.kv_heads);
    const pare_view v = pare_attention_heads(&p->in[2], s.kv_heads);
    const int64_t keys = k.dim[2] + (p->in_count > 4 && p->in[4].dtype ? p->in[4].dim[2] : 0);
    return keys > 0 && k.dim[1] > 0 && keys * (q.dim[3] + v.dim[3]) < INT32_MAX;
}

const pare_kernel pare_attention_f32 = {.name = "attention_f32",
                                        .can = attention_can,
                                        .prepare = attention_prepare,
                                        .run = attention_run};
const pare_kernel pare_sdpa_f32 = {
    .name = "sdpa_f32", .can = sdpa_can, .prepare = sdpa_prepare, .run = attention_run};
