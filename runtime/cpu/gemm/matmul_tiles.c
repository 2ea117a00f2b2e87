/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/gemm/matmul_tiles.h"

#include <omp.h>

static void pack(const pare_matmul_tiles *s, void *packed, const pare_view *b, int64_t from)
{
    int r = b->rank - 2, c = b->rank - 1;
    if (s->args.trans_b) r = b->rank - 1, c = b->rank - 2;
    s->pack(s, packed, b, from, b->stride[r], b->stride[c]);
}

static int64_t tiles_of(const pare_matmul_tiles *s)
{
    return (s->args.rows + PARE_TILE_ROWS - 1) / PARE_TILE_ROWS;
}

/* Where threads outnumber the tiles of rows, columns are cut too. */
static int64_t stretch_of(const pare_matmul_tiles *s)
{
    int64_t tiles = s->args.batch * tiles_of(s), parts = 1;
    if (tiles && s->threads > tiles) parts = (s->threads + tiles - 1) / tiles;
    int64_t blocks = (s->blocks + parts - 1) / parts;
    return (blocks < 1 ? 1 : blocks) * s->block;
}

pare_status pare_matmul_tiles_prepare(pare_prep *p, pare_matmul_tiles *s)
{
    const pare_matmul_args *m = &s->args;
    double macs = (double)(m->batch * m->rows) * (double)(m->depth * m->columns);
    s->threads = macs < s->least ? 1 : p->threads;
    s->stretch = stretch_of(s);
    if (p->in[1].data && p->in[1].rank == 2) {
        void *packed = pare_arena_alloc(p->arena, s->packed_count + 1, s->element);
        if (!packed) return PARE_MEMORY;
        pack(s, packed, &p->in[1], 0);
        s->packed = packed;
        p->packed |= 1u << 1;
    } else {
        s->b_room = (s->packed_count * s->element + 63) / 64 * 64;
    }
    size_t rows = (size_t)(PARE_TILE_ROWS * s->row_room);
    if (s->load) s->a_room = (rows * s->element + 127) / 64 * 64;
    p->scratch = s->b_room + s->a_room * (size_t)s->threads;
    return PARE_OK;
}

typedef struct job {
    const pare_matmul_tiles *s;
    const pare_call *call;
    const void *tail, *packed;
    const pare_view *z;
    int64_t a_at, z_at, y_at; /* offsets of this batch */
} job;

/* The tile's rows of A: where they are, or copied. */
static void rows_set(const job *j, int64_t first, char *room, pare_tile *tile)
{
    const pare_matmul_tiles *s = j->s;
    const pare_view *a = &j->call->in[0];
    int r = a->rank - 2, c = a->rank - 1;
    if (s->args.trans_a) r = a->rank - 1, c = a->rank - 2;
    int64_t size = pare_type(a->dtype)->bits / 8;
    tile->step = s->load ? 1 : a->stride[c];
    for (int i = 0; i < tile->count; i++) {
        int64_t from = j->a_at + (first + i) * a->stride[r];
        tile->row[i] = (const char *)a->data + from * size;
        if (!s->load) continue;
        char *copy = room + (size_t)(i * s->row_room) * s->element;
        s->load(s, copy, a, from, a->stride[c]);
        tile->row[i] = copy;
    }
}

static void tile_run(const job *j, int64_t index, int64_t part, char *room)
{
    static const int64_t start[1] = {0};
    const pare_matmul_tiles *s = j->s;
    const pare_view *y = &j->call->out[0], *z = j->z;
    int64_t first = index * PARE_TILE_ROWS, left = s->args.rows - first;
    pare_tile tile;
    tile.run = start, tile.runs = 1, tile.length = s->length;
    tile.count = left < PARE_TILE_ROWS ? (int)left : PARE_TILE_ROWS;
    tile.y = y->data, tile.y_step = y->stride[y->rank - 1];
    tile.z = z ? z->data : NULL, tile.z_step = z ? z->stride[z->rank - 1] : 0;
    rows_set(j, first, room, &tile);
    for (int i = 0; i < tile.count; i++) {
        tile.y_at[i] = j->y_at + (first + i) * y->stride[y->rank - 2];
        tile.z_at[i] = z ? j->z_at + (first + i) * z->stride[z->rank - 2] : 0;
    }
    int64_t from = part * s->stretch, to = from + s->stretch;
    s->tile(s, j->tail, j->packed, &tile, from, to < s->args.columns ? to : s->args.columns);
}

static void batch_run(const job *j)
{
    const pare_matmul_tiles *s = j->s;
    int64_t parts = (s->args.columns + s->stretch - 1) / s->stretch, jobs = tiles_of(s) * parts;
    char *room = (char *)j->call->scratch + s->b_room;
    if (s->threads <= 1) {
        for (int64_t i = 0; i < jobs; i++) tile_run(j, i / parts, i % parts, room);
        return;
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < jobs; i++)
        tile_run(j, i / parts, i % parts, room + (size_t)omp_get_thread_num() * s->a_room);
}

void pare_matmul_tiles_run(const pare_matmul_tiles *s, const pare_call *call, const void *tail)
{
    const pare_view *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    job j = {.s = s, .call = call, .tail = tail, .packed = s->packed};
    j.z = pare_operand(call->in, call->in_count, s->args.at.residual);
    for (int64_t n = 0; n < s->args.batch; n++) {
        if (!s->packed) {
            pack(s, call->scratch, b, pare_matmul_batch_offset(b, y, n));
            j.packed = call->scratch;
        }
        j.a_at = pare_matmul_batch_offset(a, y, n);
        j.y_at = pare_matmul_batch_offset(y, y, n);
        if (j.z) j.z_at = pare_matmul_batch_offset(j.z, y, n);
        batch_run(&j);
    }
}
