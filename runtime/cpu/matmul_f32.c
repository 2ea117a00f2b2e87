/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul, Gemm and FusedMatMul in f32 (f16, bf16 and FP8 through f32), any strides, batches and
   transposes; and of f32 rows with a constant B of integers (weight_panel.h).

   Plan: batches against one matrix B are rows of one product. B is packed in blocks of columns
   (float_gemm.h): a constant while preparing, another one at each run, but where a few rows of A
   meet it, which read it where it is. Work is cut into jobs of a chunk's rows x a stretch of
   columns, shared out over threads. A job takes the inner axis in pieces that stay in the nearest
   cache, and continues with the sums of the piece before: they are in Y, or for shorter types in
   scratch. Rows of A whose neighbours are apart are copied for each piece. */
#include "runtime/base/size.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/gemm/float_block.h"
#include "runtime/cpu/gemm/float_gemm.h"
#include "runtime/cpu/gemm/weight_panel.h"

#include <omp.h>
#include <string.h>

enum {
    DEPTH = 256,                /* of a piece: a block of B takes half of the nearest cache */
    CHUNK = 8,                  /* tiles of a chunk */
    FEW = 4 * PARE_TILE_ROWS,   /* rows for which packing B does not pay */
    LEAST = 100000,             /* multiply-adds below which one thread serves */
    WIDEST = PARE_FLOAT_COLUMNS /* columns of a stretch whose sums are in scratch */
};

typedef struct float_matmul {
    pare_matmul_args args;
    pare_float_gemm gemm;
    pare_float_block_fn block;
    const float *packed;            /* of a constant B; NULL: packed at each run */
    const pare_weight_panel *panel; /* B of integers, in place of that; or NULL */
    bool in_place;                  /* sums are in Y */
    bool as_is;                     /* B is read where it is, but for columns that fill no block */
    bool copies;                    /* A is copied */
    int64_t chunk;                  /* rows of a job */
    int64_t stretch;                /* columns of a job */
    int threads;
    size_t b_room, a_room, room; /* bytes of scratch: packed B; copied rows, or levels of a
                                    panel; all of a thread */
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

/* Factors of FP8 make FP8 of their type, or floats. */
static bool f8_can(const pare_prep *p)
{
    const pare_dtype a = p->in[0].dtype, y = p->out[0].dtype;
    return pare_type_is_f8(a) && p->in[1].dtype == a && (y == a || is_float(y)) &&
           p->in[0].rank >= 2 && p->in[1].rank >= 2;
}

static bool can(const pare_prep *p)
{
    const pare_view *a = &p->in[0], *b = &p->in[1];
    pare_matmul_args m;
    if (f8_can(p)) return true;
    if (!is_float(a->dtype) || p->out[0].dtype != a->dtype) return false;
    if (b->dtype != a->dtype && a->dtype != PARE_f32) return false;
    if (a->rank < 2 || b->rank < 2 || p->out[0].rank < 2) return false;
    if (pare_matmul_args_read(p, &m) != PARE_OK) {
        pare_ctx_clear(p->ctx);
        return false;
    }
    if (b->dtype != a->dtype &&
        (!pare_type_is_weight_level(b->dtype) || m.trans_a || a->stride[a->rank - 1] != 1))
        return false;
    if (m.at.residual >= 0 && p->in[m.at.residual].dtype != a->dtype) return false;
    return bias_fits(p, &m);
}

/* --- strides --- */

static int64_t row_step(const pare_view *v, bool transposed)
{
    return v->stride[v->rank - (transposed ? 1 : 2)];
}

static int64_t column_step(const pare_view *v, bool transposed)
{
    return v->stride[v->rank - (transposed ? 2 : 1)];
}

static int64_t size_of(const pare_view *v) { return pare_type(v->dtype)->bits / 8; }

static const char *at_of(const pare_view *v, int64_t offset)
{
    return (const char *)v->data + offset * size_of(v);
}

/* Rows of all batches follow one another in A, Y and the residual, and meet one B. */
static bool joins(const pare_prep *p, const pare_matmul_args *m)
{
    const pare_view *a = &p->in[0], *b = &p->in[1];
    const pare_view *z = pare_operand(p->in, p->in_count, m->at.residual);
    const int64_t matrix = b->dim[b->rank - 1] * b->dim[b->rank - 2];
    if (m->trans_a || pare_view_count(b) != matrix) return false;
    if (pare_view_count(a) != m->batch * m->rows * m->depth || !pare_view_rowmajor(a)) return false;
    return pare_view_rowmajor(&p->out[0]) && (!z || pare_view_same_order(z, &p->out[0]));
}

/* --- preparing --- */

static void pack(const float_matmul *s, float *packed, const pare_view *b, int64_t offset)
{
    pare_float_pack(&s->gemm, packed, at_of(b, offset), b->dtype, row_step(b, s->args.trans_b),
                    column_step(b, s->args.trans_b));
}

/* Jobs: chunks of rows, and where threads outnumber these, stretches of columns. */
static void cut(pare_prep *p, float_matmul *s)
{
    const pare_matmul_args *m = &s->args;
    const int64_t tiles = (m->rows + PARE_TILE_ROWS - 1) / PARE_TILE_ROWS;
    const double macs = (double)(m->batch * m->rows) * (double)(m->depth * m->columns);
    s->threads = macs < LEAST ? 1 : p->threads;
    if (m->weight.block) { /* a panel is unpacked once for all rows of a job */
        const int64_t jobs = s->threads > 1 ? 2 * s->threads : 1;
        const int64_t blocks = (s->gemm.blocks + jobs - 1) / jobs;
        s->chunk = 4 * CHUNK * PARE_TILE_ROWS;
        s->stretch = (blocks < 1 ? 1 : blocks) * s->gemm.block;
        if (!s->in_place && s->stretch > WIDEST) s->stretch = WIDEST;
        return;
    }
    int64_t most = s->threads > 1 ? tiles / (2 * s->threads) : CHUNK, parts = 1;
    s->chunk = (most > CHUNK ? CHUNK : most < 1 ? 1 : most) * PARE_TILE_ROWS;
    if (s->threads > tiles && tiles) parts = (s->threads + tiles - 1) / tiles;
    const int64_t blocks = (s->gemm.blocks + parts - 1) / parts;
    s->stretch = (blocks < 1 ? 1 : blocks) * s->gemm.block;
    if (!s->in_place && s->stretch > WIDEST) s->stretch = WIDEST;
}

static pare_status keep_constant(pare_prep *p, float_matmul *s)
{
    float *packed =
        pare_arena_alloc(p->arena, pare_float_packed_count(&s->gemm) + 1, sizeof *packed);
    if (!packed) return PARE_MEMORY;
    pack(s, packed, &p->in[1], 0);
    s->packed = packed;
    p->packed |= 1u << 1;
    return PARE_OK;
}

static void reserve(pare_prep *p, float_matmul *s)
{
    size_t blocks =
        s->as_is ? (size_t)(s->gemm.depth * s->gemm.block) : pare_float_packed_count(&s->gemm);
    const size_t sums = s->in_place ? 0 : (size_t)(s->chunk * s->stretch);
    if (!s->packed && !s->panel) s->b_room = pare_align_up(blocks * sizeof(float), 64);
    if (s->copies) s->a_room = (size_t)s->chunk * DEPTH * sizeof(float);
    if (s->panel) s->a_room = pare_weight_panel_levels(s->panel);
    s->room = pare_align_up(s->a_room + sums * sizeof(float), 128);
    p->scratch = s->b_room + s->room * (size_t)s->threads;
}

static pare_status prepare(pare_prep *p)
{
    float_matmul *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    const pare_view *a = &p->in[0], *b = &p->in[1], *y = &p->out[0];
    pare_matmul_args *m = &s->args;
    PARE_TRY(pare_matmul_args_read(p, m));
    if (joins(p, m)) m->rows *= m->batch, m->batch = 1;
    pare_float_gemm_init(&s->gemm, pare_cpu_isa(), m->depth, m->columns);
    s->block = pare_float_block_of(pare_cpu_isa(), s->gemm.block);
    s->in_place = y->dtype == PARE_f32 && y->stride[y->rank - 1] == 1;
    s->as_is =
        b->dtype == PARE_f32 && !b->data && column_step(b, m->trans_b) == 1 && m->rows <= FEW;
    s->copies = a->dtype != PARE_f32 || (column_step(a, m->trans_a) != 1 && s->gemm.blocks > 1);
    cut(p, s);
    if (m->weight.block)
        PARE_TRY(pare_weight_panel_pack(p, m, pare_cpu_isa(), &s->panel));
    else if (b->data && b->rank == 2)
        PARE_TRY(keep_constant(p, s));
    reserve(p, s);
    p->state = s;
    return PARE_OK;
}

/* --- running --- */

typedef struct job {
    const float_matmul *s;
    const pare_call *call;
    const pare_float_tail *tail;
    const pare_view *z;       /* residual; NULL: none */
    const float *packed;      /* all of B, or its last block only */
    const float *b;           /* as it is */
    int64_t a_at, z_at, y_at; /* offsets of this batch */
    int64_t first, rows;      /* of Y */
    int64_t from, to;         /* columns */
    float *copy, *sums;       /* in scratch */
    int8_t *levels;
} job;

static float *sums_of(const job *j, int64_t row, int64_t column, int64_t *step)
{
    const pare_view *y = &j->call->out[0];
    *step = j->s->in_place ? y->stride[y->rank - 2] : j->s->stretch;
    if (!j->s->in_place) return j->sums + (row - j->first) * *step + (column - j->from);
    return (float *)y->data + j->y_at + row * *step + column;
}

/* Rows of a tile as (depth, PARE_TILE_ROWS). */
static void copy_tile(const job *j, int64_t row, int rows, int64_t k0, int64_t depth, float *to)
{
    const pare_view *a = &j->call->in[0];
    const int64_t r = row_step(a, j->s->args.trans_a), c = column_step(a, j->s->args.trans_a);
    const char *from = at_of(a, j->a_at + row * r + k0 * c);
    for (int64_t k = 0; k < depth; k++, to += PARE_TILE_ROWS)
        if (a->dtype == PARE_f32 && r == 1 && rows == PARE_TILE_ROWS)
            memcpy(to, from + k * c * 4, PARE_TILE_ROWS * sizeof *to);
        else
            for (int i = 0; i < rows; i++) to[i] = pare_float_at(from, a->dtype, k * c + i * r);
}

static void copy_rows(const job *j, int64_t k0, int64_t depth)
{
    for (int64_t i = 0; i < j->rows; i += PARE_TILE_ROWS) {
        const int rows = (int)(j->rows - i < PARE_TILE_ROWS ? j->rows - i : PARE_TILE_ROWS);
        copy_tile(j, j->first + i, rows, k0, depth, j->copy + i * DEPTH);
    }
}

static void rows_set(const job *j, int64_t i, int64_t k0, pare_float_block *t)
{
    const pare_view *a = &j->call->in[0];
    const bool trans = j->s->args.trans_a;
    t->rows = (int)(j->rows - i < PARE_TILE_ROWS ? j->rows - i : PARE_TILE_ROWS);
    t->step = j->s->copies ? PARE_TILE_ROWS : column_step(a, trans);
    for (int r = 0; r < t->rows; r++)
        t->row[r] = j->s->copies ? j->copy + i * DEPTH + r
                                 : (const float *)a->data + j->a_at +
                                       (j->first + i + r) * row_step(a, trans) + k0 * t->step;
}

/* A block that reaches beyond the last column, by way of room for all of it. */
static void block_part(const job *j, pare_float_block *t, int64_t columns)
{
    float part[PARE_TILE_ROWS][PARE_BLOCK_COLUMNS], *acc = t->acc;
    const int64_t step = t->acc_step;
    const size_t bytes = (size_t)columns * sizeof *acc;
    for (int r = 0; r < t->rows && t->more; r++) memcpy(part[r], acc + r * step, bytes);
    t->acc = part[0];
    t->acc_step = PARE_BLOCK_COLUMNS;
    j->s->block(t);
    for (int r = 0; r < t->rows; r++) memcpy(acc + r * step, part[r], bytes);
}

/* One piece of the inner axis of one block of columns, tile after tile. */
static void block_run(const job *j, int64_t column, int64_t k0, int64_t depth)
{
    const float_matmul *s = j->s;
    const pare_view *b = &j->call->in[1];
    const int64_t block = s->gemm.block, left = j->to - column;
    const bool as_is = s->as_is && left >= block;
    pare_float_block t = {.depth = depth, .more = k0 > 0};
    t.b_step = as_is ? row_step(b, s->args.trans_b) : block;
    t.b = as_is ? j->b + k0 * t.b_step + column
                : j->packed + (s->as_is ? 0 : column * s->gemm.depth) + k0 * block;
    for (int64_t i = 0; i < j->rows; i += PARE_TILE_ROWS) {
        rows_set(j, i, k0, &t);
        t.acc = sums_of(j, j->first + i, column, &t.acc_step);
        if (left < block && s->in_place)
            block_part(j, &t, left);
        else
            s->block(&t);
    }
}

/* Row i of a job and those after it that make a tile, times panels of integers. */
static void panel_rows(const job *j, const pare_weight_panel *p, int64_t panel, int64_t i,
                       int64_t column, int64_t panels)
{
    const int64_t width = panels * PARE_PANEL_COLUMNS, left = j->to - column;
    float part[PARE_TILE_ROWS][PARE_PANEL_COLUMNS];
    pare_float_block t;
    int64_t step;
    float *acc = sums_of(j, j->first + i, column, &step);
    const bool whole = left >= width || !j->s->in_place;
    rows_set(j, i, 0, &t);
    pare_weight_rows a = {.rows = t.rows, .acc = part[0], .acc_step = PARE_PANEL_COLUMNS};
    for (int r = 0; r < t.rows; r++) a.row[r] = t.row[r];
    if (whole) a.acc = acc, a.acc_step = step;
    pare_weight_panel_multiply(p, &a, panel, panels);
    for (int r = 0; r < t.rows && !whole; r++)
        memcpy(acc + r * step, part[r], (size_t)left * sizeof *acc);
}

/* Many rows meet levels of a byte, made for them of those of 4 bits. */
static void panel_job(const job *j)
{
    const pare_weight_panel *p = j->s->panel;
    const bool many = j->rows > 2 * PARE_TILE_ROWS;
    const int64_t most = many ? 1 : PARE_PANELS;
    for (int64_t c = j->from, panels; c < j->to; c += panels * PARE_PANEL_COLUMNS) {
        pare_weight_panel one = *p;
        int64_t panel = c / PARE_PANEL_COLUMNS;
        panels = j->to - c >= most * PARE_PANEL_COLUMNS ? most : 1;
        if (many) {
            one = pare_weight_panel_unpack(p, panel, j->levels);
            panel = 0;
        }
        for (int64_t i = 0; i < j->rows; i += PARE_TILE_ROWS)
            panel_rows(j, &one, panel, i, c, panels);
    }
}

static bool is_plain(const pare_float_tail *t)
{
    return t->alpha == 1 && !t->bias && !t->f8 && t->act.kind == PARE_ACT_NONE;
}

static void finish(const job *j)
{
    const pare_view *y = &j->call->out[0], *z = j->z;
    if (j->s->in_place && is_plain(j->tail) && !z) return;
    for (int64_t i = 0; i < j->rows; i++) {
        int64_t step, row = j->first + i;
        pare_tile to = {.count = 1, .y = y->data, .y_step = y->stride[y->rank - 1]};
        float *sums = sums_of(j, row, j->from, &step);
        to.y_at[0] = j->y_at + row * y->stride[y->rank - 2];
        if (z) {
            to.z = z->data;
            to.z_step = z->stride[z->rank - 1];
            to.z_at[0] = j->z_at + row * z->stride[z->rank - 2];
        }
        pare_float_finish(j->tail, j->from, j->to - j->from, sums, step, &to, j->from);
    }
}

static void job_run(job *j)
{
    const pare_float_gemm *g = &j->s->gemm;
    if (j->s->panel) panel_job(j);
    for (int64_t k0 = 0; !j->s->panel && (k0 < g->depth || !k0); k0 += DEPTH) {
        const int64_t depth = g->depth - k0 < DEPTH ? g->depth - k0 : DEPTH;
        if (j->s->copies) copy_rows(j, k0, depth);
        for (int64_t c = j->from; c < j->to; c += g->block) block_run(j, c, k0, depth);
    }
    finish(j);
}

/* Job number i of a batch, with a thread's room. */
static void job_take(const job *all, int64_t i, int64_t parts, char *room)
{
    const float_matmul *s = all->s;
    job j = *all;
    const int64_t rows = s->args.rows, columns = s->args.columns;
    j.first = i / parts * s->chunk;
    j.rows = rows - j.first < s->chunk ? rows - j.first : s->chunk;
    j.from = i % parts * s->stretch;
    j.to = j.from + s->stretch < columns ? j.from + s->stretch : columns;
    j.copy = (float *)room;
    j.levels = (int8_t *)room;
    j.sums = (float *)(room + s->a_room);
    job_run(&j);
}

static void batch_run(const job *all)
{
    const float_matmul *s = all->s;
    const int64_t parts = (s->args.columns + s->stretch - 1) / s->stretch;
    const int64_t jobs = (s->args.rows + s->chunk - 1) / s->chunk * parts;
    char *room = (char *)all->call->scratch + s->b_room;
    if (s->threads <= 1) {
        for (int64_t i = 0; i < jobs; i++) job_take(all, i, parts, room);
        return;
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < jobs; i++)
        job_take(all, i, parts, room + (size_t)omp_get_thread_num() * s->room);
}

/* B's blocks, or what of it fills none. */
static void pack_b(const float_matmul *s, float *packed, const pare_view *b, int64_t offset)
{
    const int64_t whole = s->gemm.columns / s->gemm.block * s->gemm.block;
    pare_float_gemm rest = s->gemm;
    if (!s->as_is) {
        pack(s, packed, b, offset);
        return;
    }
    rest.columns -= whole;
    rest.blocks = 1;
    if (rest.columns)
        pare_float_pack(&rest, packed, at_of(b, offset + whole), b->dtype,
                        row_step(b, s->args.trans_b), 1);
}

static void products(const float_matmul *s, const pare_call *c, const pare_float_tail *tail)
{
    const pare_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    job j = {.s = s, .call = c, .tail = tail, .packed = s->packed};
    j.z = pare_operand(c->in, c->in_count, s->args.at.residual);
    for (int64_t n = 0; n < s->args.batch; n++) {
        const int64_t b_at = s->panel ? 0 : pare_matmul_batch_offset(b, y, n);
        j.b = (const float *)b->data + (s->as_is ? b_at : 0);
        if (!s->packed && !s->panel) {
            pack_b(s, c->scratch, b, b_at);
            j.packed = c->scratch;
        }
        j.a_at = pare_matmul_batch_offset(a, y, n);
        j.y_at = pare_matmul_batch_offset(y, y, n);
        if (j.z) j.z_at = pare_matmul_batch_offset(j.z, y, n);
        batch_run(&j);
    }
}

static pare_status run(const pare_call *c)
{
    const float_matmul *s = c->state;
    const pare_matmul_args *m = &s->args;
    const pare_view *bias = pare_operand(c->in, c->in_count, m->at.bias);
    pare_float_tail tail = {.act = m->act,
                            .alpha = m->alpha,
                            .beta = m->beta,
                            .type = c->out[0].dtype,
                            .bias = bias ? bias->data : NULL};
    tail.bias_step = bias && pare_view_count(bias) > 1;
    if (m->f8) tail.f8 = &m->epilogue, tail.scale = m->scale, tail.bias = m->bias;
    products(s, c, &tail);
    return PARE_OK;
}

/* Where a call of oneDNN costs more than the product, or one row of A makes it wait for memory. */
static bool small_can(const pare_prep *p)
{
    pare_matmul_args m;
    if (!can(p) || pare_matmul_args_read(p, &m) != PARE_OK) return false;
    int64_t work = m.batch * m.rows * m.depth * m.columns;
    bool wide = pare_cpu_isa() >= PARE_ISA_AVX512, constant = p->in[1].data != NULL;
    return constant && !m.weight.block && !p->deterministic &&
           (work <= 8192 || (wide && m.batch * m.rows == 1));
}

const pare_kernel pare_float_matmul_small = {
    .name = "float_matmul_small", .can = small_can, .prepare = prepare, .run = run};
const pare_kernel pare_float_matmul = {
    .name = "float_matmul", .can = can, .prepare = prepare, .run = run};
