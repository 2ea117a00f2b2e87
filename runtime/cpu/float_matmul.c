/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul, Gemm and FusedMatMul in f32 (f16 and bf16 through f32) on float_gemm.h: any strides,
   batches and transposes. A constant B is packed while preparing, another one at each run. Work is
   cut into jobs of 6 rows x a stretch of columns, shared out over threads. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/float_gemm.h"
#include "runtime/cpu/fused.h"

#include <omp.h>

typedef struct float_matmul {
    pare_matmul_args args;
    pare_float_gemm gemm;
    const float *packed; /* of a constant B; NULL: packed at each run */
    int64_t stretch;     /* columns of a job */
    int threads;
    bool wide_a;           /* A is f16 or bf16: its rows are widened first */
    size_t a_room, b_room; /* bytes of scratch: per thread, and of a packed B */
} float_matmul;

static bool is_float(pare_dtype t)
{
    return t == PARE_f32 || t == PARE_f16 || t == PARE_bf16;
}

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

static const void *at_offset(const pare_view *v, int64_t offset)
{
    return (const char *)v->data + offset * (v->dtype == PARE_f32 ? 4 : 2);
}

static void pack(const float_matmul *s, float *packed, const pare_view *b, int64_t offset)
{
    int r = b->rank - 2, c = b->rank - 1;
    if (s->args.trans_b) r = b->rank - 1, c = b->rank - 2;
    pare_float_pack(&s->gemm, packed, at_offset(b, offset), b->dtype, b->stride[r], b->stride[c]);
}

static pare_status prepare(pare_prep *p)
{
    float_matmul *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_matmul_args_read(p, &s->args));
    const pare_matmul_args *m = &s->args;
    pare_float_gemm_init(&s->gemm, pare_cpu_isa(), m->depth, m->columns);
    double macs = (double)(m->batch * m->rows) * (double)(m->depth * m->columns);
    s->threads = macs < 1e5 ? 1 : p->threads;
    int64_t tiles = m->batch * ((m->rows + PARE_FLOAT_ROWS - 1) / PARE_FLOAT_ROWS), parts = 1;
    if (s->threads > tiles && tiles) parts = (s->threads + tiles - 1) / tiles;
    int64_t blocks = (s->gemm.blocks + parts - 1) / parts;
    s->stretch = (blocks < 1 ? 1 : blocks) * s->gemm.block;
    s->wide_a = p->in[0].dtype != PARE_f32;
    size_t count = pare_float_packed_count(&s->gemm);
    if (p->in[1].data && p->in[1].rank == 2) {
        float *packed = pare_arena_alloc(p->arena, count + 1, sizeof *packed);
        if (!packed) return PARE_MEMORY;
        pack(s, packed, &p->in[1], 0);
        s->packed = packed;
    } else {
        s->b_room = (count * sizeof(float) + 63) / 64 * 64;
    }
    if (s->wide_a)
        s->a_room = ((size_t)(PARE_FLOAT_ROWS * m->depth) * sizeof(float) + 127) / 64 * 64;
    p->scratch = s->b_room + s->a_room * (size_t)s->threads;
    p->state = s;
    return PARE_OK;
}

typedef struct job {
    const pare_call *call;
    const float_matmul *s;
    const float *packed;
    pare_float_tail tail;
    const pare_view *zv;
    int64_t a, z, y; /* offsets of this batch */
} job;

static void widen_row(float *dst, const void *src, pare_dtype type, int64_t n, int64_t stride)
{
    const uint16_t *x = src;
    for (int64_t i = 0; i < n; i++)
        dst[i] =
            type == PARE_f16 ? pare_f16_to_f32(x[i * stride]) : pare_bf16_to_f32(x[i * stride]);
}

static void tile_run(const job *j, int64_t tile, int64_t part, float *room)
{
    static const int64_t start[1] = {0};
    const float_matmul *s = j->s;
    const pare_view *a = &j->call->in[0], *y = &j->call->out[0], *z = j->zv;
    int64_t first = tile * PARE_FLOAT_ROWS, left = s->args.rows - first, depth = s->args.depth;
    int r = a->rank - 2, c = a->rank - 1;
    if (s->args.trans_a) r = a->rank - 1, c = a->rank - 2;
    pare_float_rows in = {.run = start,
                          .runs = 1,
                          .length = depth,
                          .step = s->wide_a ? 1 : a->stride[c],
                          .count = left < PARE_FLOAT_ROWS ? (int)left : PARE_FLOAT_ROWS};
    pare_float_target to = {.y = y->data, .y_step = y->stride[y->rank - 1]};
    if (z) to.z = z->data, to.z_step = z->stride[z->rank - 1];
    for (int i = 0; i < in.count; i++) {
        const void *from = at_offset(a, j->a + (first + i) * a->stride[r]);
        in.row[i] = from;
        if (s->wide_a) {
            widen_row(room + i * depth, from, a->dtype, depth, a->stride[c]);
            in.row[i] = room + i * depth;
        }
        to.y_at[i] = j->y + (first + i) * y->stride[y->rank - 2];
        if (z) to.z_at[i] = j->z + (first + i) * z->stride[z->rank - 2];
    }
    int64_t from = part * s->stretch, last = from + s->stretch;
    if (last > s->args.columns) last = s->args.columns;
    pare_float_job(&s->gemm, &in, j->packed, from, last, &j->tail, 0, &to);
}

static void batch_run(const job *j)
{
    const float_matmul *s = j->s;
    int64_t tiles = (s->args.rows + PARE_FLOAT_ROWS - 1) / PARE_FLOAT_ROWS;
    int64_t parts = (s->args.columns + s->stretch - 1) / s->stretch;
    char *room = (char *)j->call->scratch + s->b_room;
    if (s->threads <= 1) {
        for (int64_t i = 0; i < tiles * parts; i++)
            tile_run(j, i / parts, i % parts, (float *)(void *)room);
        return;
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < tiles * parts; i++) {
        char *mine = room + (size_t)omp_get_thread_num() * s->a_room;
        tile_run(j, i / parts, i % parts, (float *)(void *)mine);
    }
}

static pare_status run(const pare_call *c)
{
    const float_matmul *s = c->state;
    const pare_matmul_args *m = &s->args;
    const pare_view *bias = pare_operand(c->in, c->in_count, m->at.bias);
    job j = {.call = c, .s = s, .zv = pare_operand(c->in, c->in_count, m->at.residual)};
    j.tail = (pare_float_tail){.act = m->act,
                               .alpha = m->alpha,
                               .beta = m->beta,
                               .type = c->out[0].dtype,
                               .bias = bias ? bias->data : NULL};
    j.tail.bias_step = bias && pare_view_count(bias) > 1;
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
