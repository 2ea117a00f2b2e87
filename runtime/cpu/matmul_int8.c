/* SPDX-License-Identifier: Apache-2.0 */
/* FusedMatMul of 8-bit operands on the exact 16-bit products of int8_gemm.h, cut into jobs by
   matmul_tiles.h; any zero points. Rows of A are widened less theirs. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/gemm/int8_gemm.h"
#include "runtime/cpu/gemm/matmul_tiles.h"

typedef struct int8_matmul {
    pare_matmul_tiles tiles;
    pare_int8_gemm gemm;
} int8_matmul;

static bool can(const pare_prep *p)
{
    pare_dtype y = p->out[0].dtype;
    return pare_type_is_int8(p->in[0].dtype) && pare_type_is_int8(p->in[1].dtype) &&
           (pare_type_is_int8(y) || y == PARE_f32) && p->in[0].rank >= 2 && p->in[1].rank >= 2;
}

static const int8_matmul *state_of(const pare_matmul_tiles *t)
{
    return (const int8_matmul *)(const void *)t;
}

static void load(const pare_matmul_tiles *t, void *dst, const pare_view *a, int64_t from,
                 int64_t stride)
{
    const pare_matmul_args *m = &t->args;
    int16_t *to = dst;
    pare_int8_widen(to, (const char *)a->data + from, a->dtype, m->depth, stride, m->q.x_zero);
    if (m->depth % 2) to[m->depth] = 0;
}

static void pack(const pare_matmul_tiles *t, void *packed, const pare_view *b, int64_t from,
                 int64_t row, int64_t column)
{
    pare_int8_pack(&state_of(t)->gemm, packed, (const char *)b->data + from, b->dtype,
                   t->args.depth, row, column, t->args.q.w_zero);
}

static void tile_run(const pare_matmul_tiles *t, const void *tail, const void *packed,
                     const pare_tile *tile, int64_t from, int64_t to)
{
    pare_int8_job(&state_of(t)->gemm, tile, packed, from, to, tail, 0);
}

static pare_status prepare(pare_prep *p)
{
    int8_matmul *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_matmul_tiles *t = &s->tiles;
    *t = (pare_matmul_tiles){.least = 2e5, .element = sizeof(int16_t)};
    t->load = load, t->pack = pack, t->tile = tile_run;
    PARE_TRY(pare_matmul_args_read(p, &t->args));
    pare_int8_gemm_init(&s->gemm, pare_cpu_isa(), (t->args.depth + 1) / 2, t->args.columns);
    t->packed_count = pare_int8_packed_count(&s->gemm);
    t->block = s->gemm.block, t->blocks = s->gemm.blocks;
    t->length = s->gemm.pairs;
    t->row_room = s->gemm.pairs * 2;
    p->state = s;
    return pare_matmul_tiles_prepare(p, t);
}

static pare_status run(const pare_call *c)
{
    const int8_matmul *s = c->state;
    const pare_matmul_args *m = &s->tiles.args;
    pare_int8_tail tail;
    pare_int8_tail_init(&tail, s->gemm.isa, &m->epilogue, m->scale, m->bias);
    pare_matmul_tiles_run(&s->tiles, c, &tail);
    return PARE_OK;
}

/* Where a call of oneDNN costs more than the product. */
static bool small_can(const pare_prep *p)
{
    pare_matmul_args m;
    if (!can(p) || !p->in[1].data || pare_matmul_args_read(p, &m) != PARE_OK) return false;
    return m.batch * m.rows * m.depth * m.columns <= 8192;
}

const pare_kernel pare_int8_matmul_small = {
    .name = "int8_matmul_small", .can = small_can, .prepare = prepare, .run = run};
const pare_kernel pare_int8_matmul = {
    .name = "int8_matmul", .can = can, .prepare = prepare, .run = run};
