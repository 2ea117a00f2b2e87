/* SPDX-License-Identifier: Apache-2.0 */
/* FusedMatMul of 8-bit operands on the exact 16-bit products of int8_gemm.h: any strides, batches,
   transposes and zero points. A constant B is packed while preparing, another one at each run.
   Work is cut into jobs of 6 rows x a stretch of columns, shared out over threads. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/int8_gemm.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/fused.h"

#include <omp.h>

typedef struct int8_matmul {
    pare_matmul_args args;
    pare_int8_gemm gemm;
    const int16_t *packed; /* of a constant B, one per batch it has; NULL: packed at each run */
    int64_t stretch;       /* columns of a job */
    int threads;
    size_t a_room, b_room; /* bytes of scratch: per thread, and of a packed B */
} int8_matmul;

static bool can(const pare_prep *p)
{
    pare_dtype y = p->out[0].dtype;
    return pare_type_is_int8(p->in[0].dtype) && pare_type_is_int8(p->in[1].dtype) &&
           (pare_type_is_int8(y) || y == PARE_f32) && p->in[0].rank >= 2 && p->in[1].rank >= 2;
}

/* Offset of batch n of y in v, whose leading axes broadcast. */
static int64_t batch_offset(const pare_view *v, const pare_view *y, int64_t n)
{
    int64_t offset = 0;
    for (int i = y->rank - 3; i >= 0; i--) {
        int64_t index = n % y->dim[i];
        n /= y->dim[i];
        int axis = i - (y->rank - v->rank);
        if (axis >= 0 && v->dim[axis] != 1) offset += index * v->stride[axis];
    }
    return offset;
}

static void pack(const int8_matmul *s, int16_t *packed, const pare_view *b, int64_t offset)
{
    int r = b->rank - 2, c = b->rank - 1;
    if (s->args.trans_b) r = b->rank - 1, c = b->rank - 2;
    pare_int8_pack(&s->gemm, packed, (const char *)b->data + offset, b->dtype, s->args.depth,
                   b->stride[r], b->stride[c], s->args.q.w_zero);
}

/* Where threads outnumber the tiles of rows, columns are cut too. */
static int64_t stretch_of(const pare_int8_gemm *g, int64_t tiles, int threads)
{
    int64_t parts = tiles && threads > tiles ? (threads + tiles - 1) / tiles : 1;
    int64_t blocks = (g->blocks + parts - 1) / parts;
    return (blocks < 1 ? 1 : blocks) * g->block;
}

static pare_status prepare(pare_prep *p)
{
    int8_matmul *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_matmul_args_read(p, &s->args));
    const pare_matmul_args *m = &s->args;
    pare_int8_gemm_init(&s->gemm, pare_cpu_isa(), (m->depth + 1) / 2, m->columns);
    double macs = (double)(m->batch * m->rows) * (double)(m->depth * m->columns);
    s->threads = macs < 2e5 ? 1 : p->threads;
    s->stretch = stretch_of(&s->gemm, m->batch * ((m->rows + 5) / 6), s->threads);
    const pare_view *b = &p->in[1];
    size_t count = pare_int8_packed_count(&s->gemm);
    if (b->data && b->rank == 2) {
        int16_t *packed = pare_arena_alloc(p->arena, count + 1, sizeof *packed);
        if (!packed) return PARE_MEMORY;
        pack(s, packed, b, 0);
        s->packed = packed;
    } else {
        s->b_room = (count * sizeof(int16_t) + 63) / 64 * 64;
    }
    s->a_room = ((size_t)(PARE_TILE_ROWS * s->gemm.pairs * 2) * sizeof(int16_t) + 127) / 64 * 64;
    p->scratch = s->b_room + s->a_room * (size_t)s->threads;
    p->state = s;
    return PARE_OK;
}

typedef struct job {
    const pare_call *call;
    const int8_matmul *s;
    const int16_t *packed;
    pare_int8_tail tail;
    int64_t a, z, y; /* offsets of this batch */
    const pare_view *zv;
} job;

static void tile_run(const job *shared, int64_t tile, int64_t part, int16_t *room)
{
    const job j = *shared;
    const int8_matmul *s = j.s;
    const pare_view *a = &j.call->in[0];
    int64_t step = s->gemm.pairs * 2, left = s->args.rows - tile * PARE_TILE_ROWS;
    int rows = left < PARE_TILE_ROWS ? (int)left : PARE_TILE_ROWS;
    int r = a->rank - 2, c = a->rank - 1;
    if (s->args.trans_a) r = a->rank - 1, c = a->rank - 2;
    static const int64_t start[1] = {0};
    const pare_view *y = &j.call->out[0], *z = j.zv;
    int64_t first = tile * PARE_TILE_ROWS;
    pare_tile to = {.run = start, .runs = 1, .length = s->gemm.pairs, .count = rows};
    to.y = y->data, to.y_step = y->stride[y->rank - 1];
    if (z) to.z = z->data, to.z_step = z->stride[z->rank - 1];
    for (int i = 0; i < rows; i++) {
        const char *from = (const char *)a->data + j.a + (first + i) * a->stride[r];
        pare_int8_widen(room + i * step, from, a->dtype, s->args.depth, a->stride[c],
                        s->args.q.x_zero);
        if (s->args.depth % 2) room[i * step + s->args.depth] = 0;
        to.row[i] = room + i * step;
        to.y_at[i] = j.y + (first + i) * y->stride[y->rank - 2];
        if (z) to.z_at[i] = j.z + (first + i) * z->stride[z->rank - 2];
    }
    int64_t from = part * s->stretch, last = from + s->stretch;
    if (last > s->args.columns) last = s->args.columns;
    pare_int8_job(&s->gemm, &to, j.packed, from, last, &j.tail, 0);
}

static void batch_run(const job *j)
{
    const int8_matmul *s = j->s;
    int64_t tiles = (s->args.rows + PARE_TILE_ROWS - 1) / PARE_TILE_ROWS;
    int64_t parts = (s->args.columns + s->stretch - 1) / s->stretch;
    char *room = (char *)j->call->scratch + s->b_room;
    if (s->threads <= 1) {
        for (int64_t i = 0; i < tiles * parts; i++)
            tile_run(j, i / parts, i % parts, (int16_t *)(void *)room);
        return;
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < tiles * parts; i++) {
        char *mine = room + (size_t)omp_get_thread_num() * s->a_room;
        tile_run(j, i / parts, i % parts, (int16_t *)(void *)mine);
    }
}

static pare_status run(const pare_call *c)
{
    const int8_matmul *s = c->state;
    const pare_matmul_args *m = &s->args;
    const pare_view *bias = pare_operand(c->in, c->in_count, m->at.bias);
    job j = {.call = c, .s = s, .zv = pare_operand(c->in, c->in_count, m->at.residual)};
    pare_int8_tail_init(&j.tail, s->gemm.isa, &m->epilogue, m->scale, bias ? bias->data : NULL,
                        bias && pare_view_count(bias) > 1);
    for (int64_t n = 0; n < m->batch; n++) {
        j.packed = s->packed;
        if (!s->packed) {
            pack(s, c->scratch, &c->in[1], batch_offset(&c->in[1], &c->out[0], n));
            j.packed = c->scratch;
        }
        j.a = batch_offset(&c->in[0], &c->out[0], n);
        j.y = batch_offset(&c->out[0], &c->out[0], n);
        if (j.zv) j.z = batch_offset(j.zv, &c->out[0], n);
        batch_run(&j);
    }
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
