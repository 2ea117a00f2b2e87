/* SPDX-License-Identifier: Apache-2.0 */
/* RotaryEmbedding (23): pairs of columns of each head turned by the angle of their place
   ("RoFormer", Su et al. 2021). Of columns a and b, b half of the rotated ones further on or, where
   interleaved, the next: a cos - b sin and a sin + b cos. The plain kernel computes in double. */
#include "runtime/cpu/ref.h"
#include "runtime/ops/attention.h"

#include <inttypes.h>

typedef struct rotary {
    int64_t heads, half; /* half of the columns that are rotated */
    bool interleaved;
} rotary;

static pare_status rotary_prepare(pare_prep *p)
{
    rotary *r = pare_arena_alloc(p->arena, 1, sizeof *r);
    const pare_view *cosine = &p->in[1];
    if (!r) return PARE_MEMORY;
    *r = (rotary){.heads = pare_node_int(p->node, "num_heads", 0),
                  .half = cosine->dim[cosine->rank - 1],
                  .interleaved = pare_node_int(p->node, "interleaved", 0) != 0};
    p->state = r;
    return PARE_OK;
}

static const pare_view *positions_of(const pare_call *c)
{
    return c->in_count > 3 && c->in[3].dtype ? &c->in[3] : NULL;
}

/* Positions are rows of the cosines. */
static pare_status rotary_check(const pare_call *c)
{
    const pare_view *at = positions_of(c);
    int64_t index[PARE_MAX_RANK] = {0};
    if (!at || !pare_view_count(at)) return PARE_OK;
    do {
        const int64_t i = pare_ref_get_int(at, pare_ref_offset(at, index));
        if (i < 0 || i >= c->in[1].dim[0])
            return PARE_FAIL_CALL(c, INPUT,
                                  "position %" PRId64 " in '%s' is outside the %" PRId64 " of '%s'",
                                  i, c->node->in[3]->name, c->in[1].dim[0], c->node->in[1]->name);
    } while (pare_ref_next(at, index));
    return PARE_OK;
}

/* Where one head's columns at one place are, at being (batch, head, place). */
typedef struct rotary_at {
    int64_t x, y, turn[2]; /* of the input, the output, the cosines and sines */
} rotary_at;

static rotary_at rotary_offsets(const pare_call *c, const pare_view *x, const pare_view *y,
                                const int64_t at[3])
{
    const pare_view *ids = positions_of(c);
    rotary_at o = {0};
    const int64_t position =
        ids ? pare_ref_get_int(ids, at[0] * ids->stride[0] + at[2] * ids->stride[1]) : 0;
    for (int i = 0; i < 2; i++) {
        const pare_view *t = &c->in[1 + i];
        o.turn[i] = ids ? position * t->stride[0] : at[0] * t->stride[0] + at[2] * t->stride[1];
    }
    for (int i = 0; i < 3; i++) {
        o.x += at[i] * x->stride[i];
        o.y += at[i] * y->stride[i];
    }
    return o;
}

static void rotary_row(const pare_call *c, const pare_view *x, const pare_view *y,
                       const int64_t at[3])
{
    const rotary *r = c->state;
    const pare_view *cosines = &c->in[1], *sines = &c->in[2];
    const rotary_at o = rotary_offsets(c, x, y, at);
    for (int64_t d = 0; d < r->half; d++) {
        const double cosine =
            pare_ref_get(cosines, o.turn[0] + d * cosines->stride[cosines->rank - 1]);
        const double sine = pare_ref_get(sines, o.turn[1] + d * sines->stride[sines->rank - 1]);
        const int64_t i = r->interleaved ? 2 * d : d, j = r->interleaved ? i + 1 : d + r->half;
        const double a = pare_ref_get(x, o.x + i * x->stride[3]);
        const double b = pare_ref_get(x, o.x + j * x->stride[3]);
        pare_ref_set(y, o.y + i * y->stride[3], a * cosine - b * sine);
        pare_ref_set(y, o.y + j * y->stride[3], a * sine + b * cosine);
    }
    for (int64_t d = 2 * r->half; d < x->dim[3]; d++)
        pare_ref_set(y, o.y + d * y->stride[3], pare_ref_get(x, o.x + d * x->stride[3]));
}

/* The same of f32 whose columns are together. */
static void rotary_row_f32(const pare_call *c, const pare_view *x, const pare_view *y,
                           const int64_t at[3])
{
    const rotary *r = c->state;
    const rotary_at o = rotary_offsets(c, x, y, at);
    const float *from = (const float *)x->data + o.x;
    const float *cosine = (const float *)c->in[1].data + o.turn[0];
    const float *sine = (const float *)c->in[2].data + o.turn[1];
    float *to = (float *)y->data + o.y;
    const int64_t step = r->interleaved ? 2 : 1, far = r->interleaved ? 1 : r->half;
    for (int64_t d = 0; d < r->half; d++) {
        const float a = from[d * step], b = from[d * step + far];
        to[d * step] = a * cosine[d] - b * sine[d];
        to[d * step + far] = a * sine[d] + b * cosine[d];
    }
    for (int64_t d = 2 * r->half; d < x->dim[3]; d++) to[d] = from[d];
}

static bool rotary_f32_can(const pare_prep *p)
{
    for (int i = 0; i < 3; i++)
        if (p->in[i].dtype != PARE_f32 || p->in[i].stride[p->in[i].rank - 1] != 1 ||
            (uintptr_t)p->in[i].data % sizeof(float)) /* of a constant in the file's map */
            return false;
    return p->out[0].stride[p->out[0].rank - 1] == 1;
}

static pare_status rotary_rows(const pare_call *c, bool f32)
{
    const rotary *r = c->state;
    const pare_view x = pare_attention_heads(&c->in[0], r->heads);
    const pare_view y = pare_attention_heads(&c->out[0], r->heads);
    const int64_t count = x.dim[1], places = x.dim[2], rows = x.dim[0] * count * places;
    const int threads = rows * x.dim[3] > 32768 ? c->threads : 1;
    PARE_TRY(rotary_check(c));
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at[] = {i / places / count, i / places % count, i % places};
        f32 ? rotary_row_f32(c, &x, &y, at) : rotary_row(c, &x, &y, at);
    }
    return PARE_OK;
}

static pare_status rotary_run(const pare_call *c) { return rotary_rows(c, false); }
static pare_status rotary_f32_run(const pare_call *c) { return rotary_rows(c, true); }

static const pare_kernel ref_rotary_embedding = {.name = "ref_rotary_embedding",
                                                 .can = pare_ref_can_floats,
                                                 .prepare = rotary_prepare,
                                                 .run = rotary_run,
                                                 .flags = PARE_KERNEL_REF};
static const pare_kernel rotary_embedding_f32 = {.name = "rotary_embedding_f32",
                                                 .can = rotary_f32_can,
                                                 .prepare = rotary_prepare,
                                                 .run = rotary_f32_run};
const pare_kernel *const pare_cpu_rotary_embedding[] = {&rotary_embedding_f32,
                                                        &ref_rotary_embedding, NULL};
