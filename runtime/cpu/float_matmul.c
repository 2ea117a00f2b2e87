/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul, Gemm and FusedMatMul in f32 (f16 and bf16 through f32) on float_gemm.h, cut into jobs by
   matmul_tiles.h. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/float_gemm.h"
#include "runtime/cpu/matmul_tiles.h"

typedef struct float_matmul {
    pare_matmul_tiles tiles;
    pare_float_gemm gemm;
} float_matmul;

static bool is_float(pare_dtype t) { return t == PARE_f32 || t == PARE_f16 || t == PARE_bf16; }

/* Gemm's C may be a row, or of Y's shape (then it is added like a residual). */
static bool bias_fits(const pare_prep *p, pare_matmul_args *m)
{
    if (m->at.bias < 0) return true;
    const pare_view *c = &p->in[m->at.bias];
    int64_t n = pare_view_count(c);
    if (c->dtype != p->in[0].dtype) return false;
    return n == 1 || (n == m->columns && c->dim[c->rank - 1] == m->columns);
}

static bool can(const pare_prep *p)
{
    const pare_view *a = &p->in[0], *b = &p->in[1];
    pare_matmul_args m;
    if (!is_float(a->dtype) || b->dtype != a->dtype || p->out[0].dtype != a->dtype) return false;
    if (a->rank < 2 || b->rank < 2 || p->out[0].rank < 2) return false;
    if (pare_matmul_args_read(p, &m) != PARE_OK) {
        pare_ctx_clear(p->ctx);
        return false;
    }
    if (m.at.residual >= 0 && p->in[m.at.residual].dtype != a->dtype) return false;
    return bias_fits(p, &m);
}

static const float_matmul *state_of(const pare_matmul_tiles *t)
{
    return (const float_matmul *)(const void *)t;
}

/* A row of f16 or bf16, widened. */
static void load(const pare_matmul_tiles *t, void *dst, const pare_view *a, int64_t from,
                 int64_t stride)
{
    for (int64_t i = 0; i < t->args.depth; i++)
        ((float *)dst)[i] = pare_float_at(a->data, a->dtype, from + i * stride);
}

static void pack(const pare_matmul_tiles *t, void *packed, const pare_view *b, int64_t from,
                 int64_t row, int64_t column)
{
    int64_t size = b->dtype == PARE_f32 ? 4 : 2;
    pare_float_pack(&state_of(t)->gemm, packed, (const char *)b->data + from * size, b->dtype, row,
                    column);
}

static void tile_run(const pare_matmul_tiles *t, const void *tail, const void *packed,
                     const pare_tile *tile, int64_t from, int64_t to)
{
    pare_float_job(&state_of(t)->gemm, tile, packed, from, to, tail, 0);
}

static pare_status prepare(pare_prep *p)
{
    float_matmul *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_matmul_tiles *t = &s->tiles;
    *t = (pare_matmul_tiles){.least = 1e5, .element = sizeof(float)};
    t->load = p->in[0].dtype == PARE_f32 ? NULL : load;
    t->pack = pack, t->tile = tile_run;
    PARE_TRY(pare_matmul_args_read(p, &t->args));
    pare_float_gemm_init(&s->gemm, pare_cpu_isa(), t->args.depth, t->args.columns);
    t->packed_count = pare_float_packed_count(&s->gemm);
    t->block = s->gemm.block, t->blocks = s->gemm.blocks;
    t->length = t->row_room = t->args.depth;
    p->state = s;
    return pare_matmul_tiles_prepare(p, t);
}

static pare_status run(const pare_call *c)
{
    const float_matmul *s = c->state;
    const pare_matmul_args *m = &s->tiles.args;
    const pare_view *bias = pare_operand(c->in, c->in_count, m->at.bias);
    pare_float_tail tail = {.act = m->act,
                            .alpha = m->alpha,
                            .beta = m->beta,
                            .type = c->out[0].dtype,
                            .bias = bias ? bias->data : NULL};
    tail.bias_step = bias && pare_view_count(bias) > 1;
    pare_matmul_tiles_run(&s->tiles, c, &tail);
    return PARE_OK;
}

/* Where a call of oneDNN costs more than the product, or one row of A makes it wait for memory. */
static bool small_can(const pare_prep *p)
{
    pare_matmul_args m;
    if (!can(p) || pare_matmul_args_read(p, &m) != PARE_OK) return false;
    int64_t work = m.batch * m.rows * m.depth * m.columns;
    bool wide = pare_cpu_isa() >= PARE_ISA_AVX512, constant = p->in[1].data != NULL;
    return constant && !p->canonical && (work <= 8192 || (wide && m.batch * m.rows == 1));
}

const pare_kernel pare_float_matmul_small = {
    .name = "float_matmul_small", .can = small_can, .prepare = prepare, .run = run};
const pare_kernel pare_float_matmul = {
    .name = "float_matmul", .can = can, .prepare = prepare, .run = run};
