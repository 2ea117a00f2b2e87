/* SPDX-License-Identifier: Apache-2.0 */
/* pare.FusedAttention in f32, one head and a block of its rows at a time: Y = softmax(scale * Q K^T
   + mask) V. A task packs K^T and V of its head into rows padded to 16 columns, then takes 6 rows
   of Q at a time: their scores, their exponentials, their sums, their part of Y, all while they are
   in the cache. Every sum runs in one order whatever the threads. Tiles of 6 x 16 fill the
   registers of AVX2 and AVX-512. */
#include "runtime/base/size.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/ref.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

enum { ROWS = 6, COLUMNS = 16 };

typedef struct attention_state {
    float scale;
    int64_t heads, queries, keys, depth, width; /* depth of Q and K, width of V */
    int64_t padded_keys, padded_width, chunk;   /* rows of a task */
    size_t room;                                /* floats of one thread */
} attention_state;

typedef float lanes __attribute__((vector_size(COLUMNS * sizeof(float))));

/* c (6, n) = a (6, k) x b (k, n), n a multiple of 16. */
PARE_CLONES_SUMS static void multiply(float *c, int64_t c_step, const float *a, int64_t a_step,
                                      const float *b, int64_t b_step, int64_t k, int64_t n)
{
    for (int64_t j = 0; j < n; j += COLUMNS) {
        lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, s4 = {0}, s5 = {0}, row;
        for (int64_t i = 0; i < k; i++) {
            const float *x = a + i;
            memcpy(&row, b + i * b_step + j, sizeof row);
            s0 += x[0] * row;
            s1 += x[a_step] * row;
            s2 += x[2 * a_step] * row;
            s3 += x[3 * a_step] * row;
            s4 += x[4 * a_step] * row;
            s5 += x[5 * a_step] * row;
        }
        memcpy(c + j, &s0, sizeof row);
        memcpy(c + c_step + j, &s1, sizeof row);
        memcpy(c + 2 * c_step + j, &s2, sizeof row);
        memcpy(c + 3 * c_step + j, &s3, sizeof row);
        memcpy(c + 4 * c_step + j, &s4, sizeof row);
        memcpy(c + 5 * c_step + j, &s5, sizeof row);
    }
}

/* exp(scale * s + mask - highest) in place; the sum. Columns after n become 0. */
PARE_CLONES static float exponentials(float *s, int64_t n, int64_t padded, float scale,
                                      const float *mask, int64_t mask_step)
{
    float high = -INFINITY, part[COLUMNS] = {0}, total = 0;
    if (mask)
        for (int64_t i = 0; i < n; i++) s[i] = s[i] * scale + mask[i * mask_step];
    else
        for (int64_t i = 0; i < n; i++) s[i] *= scale;
    for (int64_t i = 0; i < n; i++) high = s[i] > high ? s[i] : high;
    for (int64_t i = n; i < padded; i++) s[i] = -INFINITY;
    for (int64_t i = 0; i < padded; i += COLUMNS)
        for (int x = 0; x < COLUMNS; x++) {
            float e = i + x < n ? pare_vexp(s[i + x] - high) : 0;
            s[i + x] = e;
            part[x] += e;
        }
    for (int x = 0; x < COLUMNS; x++) total += part[x];
    return total;
}

/* Offset of a head (leading axes counted in y's dims) in a view; axes of length 1 stretch. */
static int64_t head_offset(const pare_view *v, const pare_view *y, int64_t head)
{
    int64_t offset = 0;
    for (int i = y->rank - 3; i >= 0; i--) {
        int64_t index = head % y->dim[i];
        int axis = i - (y->rank - v->rank);
        head /= y->dim[i];
        if (axis >= 0 && axis < v->rank - 2 && v->dim[axis] != 1) offset += index * v->stride[axis];
    }
    return offset;
}

/* K^T (depth, padded keys) and V (keys, padded width). */
static void pack(const pare_call *c, int64_t head, float *kt, float *values)
{
    const attention_state *s = c->state;
    const pare_view *k = &c->in[1], *v = &c->in[2], *y = &c->out[0];
    int r = y->rank;
    const float *from = (const float *)k->data + head_offset(k, y, head);
    for (int64_t d = 0; d < s->depth; d++) {
        float *row = kt + d * s->padded_keys;
        for (int64_t j = 0; j < s->keys; j++)
            row[j] = from[j * k->stride[r - 2] + d * k->stride[r - 1]];
        for (int64_t j = s->keys; j < s->padded_keys; j++) row[j] = 0;
    }
    from = (const float *)v->data + head_offset(v, y, head);
    for (int64_t j = 0; j < s->keys; j++) {
        float *row = values + j * s->padded_width;
        for (int64_t d = 0; d < s->width; d++)
            row[d] = from[j * v->stride[r - 2] + d * v->stride[r - 1]];
        for (int64_t d = s->width; d < s->padded_width; d++) row[d] = 0;
    }
}

typedef struct mask_rows {
    const float *data; /* of the head; NULL: none */
    int64_t row, column;
} mask_rows;

static mask_rows mask_of(const pare_call *c, int64_t head)
{
    if (c->in_count < 4 || !c->in[3].dtype) return (mask_rows){NULL, 0, 0};
    const pare_view *m = &c->in[3];
    int r = m->rank;
    return (mask_rows){(const float *)m->data + head_offset(m, &c->out[0], head),
                       r > 1 && m->dim[r - 2] != 1 ? m->stride[r - 2] : 0,
                       r > 0 && m->dim[r - 1] != 1 ? m->stride[r - 1] : 0};
}

/* Rows [first, last) of a head; room: K^T, V, 6 rows of Q, of scores and of Y. */
static void rows_run(const pare_call *c, int64_t head, int64_t first, int64_t last, float *room)
{
    const attention_state *s = c->state;
    const pare_view *q = &c->in[0], *y = &c->out[0];
    int r = y->rank;
    float *kt = room, *values = kt + s->depth * s->padded_keys;
    float *queries = values + s->keys * s->padded_width, *scores = queries + ROWS * s->depth;
    float *result = scores + ROWS * s->padded_keys;
    const float *from = (const float *)q->data + head_offset(q, y, head);
    float *to = (float *)y->data + head_offset(y, y, head);
    mask_rows mask = mask_of(c, head);
    pack(c, head, kt, values);
    for (int64_t row = first; row < last; row += ROWS) {
        float total[ROWS];
        int n = last - row < ROWS ? (int)(last - row) : ROWS;
        for (int i = 0; i < ROWS; i++) {
            int64_t at = row + (i < n ? i : n - 1);
            for (int64_t d = 0; d < s->depth; d++)
                queries[i * s->depth + d] = from[at * q->stride[r - 2] + d * q->stride[r - 1]];
        }
        multiply(scores, s->padded_keys, queries, s->depth, kt, s->padded_keys, s->depth,
                 s->padded_keys);
        for (int i = 0; i < n; i++)
            total[i] =
                exponentials(scores + i * s->padded_keys, s->keys, s->padded_keys, s->scale,
                             mask.data ? mask.data + (row + i) * mask.row : NULL, mask.column);
        multiply(result, s->padded_width, scores, s->padded_keys, values, s->padded_width, s->keys,
                 s->padded_width);
        for (int i = 0; i < n; i++)
            for (int64_t d = 0; d < s->width; d++)
                to[(row + i) * y->stride[r - 2] + d * y->stride[r - 1]] =
                    result[i * s->padded_width + d] / total[i];
    }
}

static pare_status attention_prepare(pare_prep *p)
{
    attention_state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    const pare_view *q = &p->in[0], *k = &p->in[1], *v = &p->in[2];
    int r = q->rank;
    s->scale = pare_node_float(p->node, "scale", 1);
    s->heads = 1;
    for (int i = 0; i < r - 2; i++) s->heads *= p->out[0].dim[i];
    s->queries = q->dim[r - 2];
    s->keys = k->dim[r - 2];
    s->depth = q->dim[r - 1];
    s->width = v->dim[r - 1];
    s->padded_keys = (s->keys + COLUMNS - 1) / COLUMNS * COLUMNS;
    s->padded_width = (s->width + COLUMNS - 1) / COLUMNS * COLUMNS;
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

static pare_status attention_run(const pare_call *c)
{
    const attention_state *s = c->state;
    if (!pare_view_count(&c->out[0])) return PARE_OK;
    int64_t blocks = (s->queries + s->chunk - 1) / s->chunk, tasks = s->heads * blocks;
    int parts = c->threads < tasks ? c->threads : (int)tasks;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int t = 0; t < parts; t++)
        for (int64_t i = tasks * t / parts; i < tasks * (t + 1) / parts; i++) {
            int64_t first = i % blocks * s->chunk, last = first + s->chunk;
            rows_run(c, i / blocks, first, last < s->queries ? last : s->queries,
                     (float *)c->scratch + (size_t)t * s->room);
        }
    return PARE_OK;
}

static bool attention_can(const pare_prep *p)
{
    int r = p->out[0].rank;
    for (int i = 0; i < p->in_count; i++)
        if (p->in[i].dtype && (p->in[i].dtype != PARE_f32 || p->in[i].rank > r)) return false;
    for (int i = 0; i < 3; i++)
        if (p->in[i].rank != r) return false;
    int64_t size = p->in[1].dim[r - 2] * (p->in[0].dim[r - 1] + p->in[2].dim[r - 1]);
    return r >= 2 && p->in[1].dim[r - 2] > 0 && size < INT32_MAX;
}

const pare_kernel pare_attention_f32 = {.name = "attention_f32",
                                        .can = attention_can,
                                        .prepare = attention_prepare,
                                        .run = attention_run};
