/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's place among the blocks, and sums that go round: each rank in turn adds its blocks to
   what those before it came to, and passes that on. The first rank adds as it goes, the others keep
   a sum for each of their blocks until then. */
#include "calib/share.h"
#include "calib/calibrate.h"

#include <string.h>

/* --- places --- */

static int64_t blocks_of(const pare_run_share *s)
{
    return s->runs < PARE_SHARE_BLOCKS ? s->runs : PARE_SHARE_BLOCKS;
}

/* The first run of a block. */
static int64_t begin_of(const pare_run_share *s, int64_t block)
{
    return block * s->runs / blocks_of(s);
}

/* The last block that begins at the run or before it. */
static int64_t block_of(const pare_run_share *s, int64_t run)
{
    return ((run + 1) * blocks_of(s) - 1) / s->runs;
}

pare_status pare_run_share_open(pare_ctx *ctx, pare_run_share *out, pare_comm *comm,
                                const pare_model *model, const pare_data *data,
                                const int64_t *samples, int64_t sample_count)
{
    int64_t unit;
    pare_run_share s = {.comm = comm};
    const int64_t ranks = pare_comm_size(comm), rank = pare_comm_rank(comm);
    PARE_TRY(pare_calib_runs(ctx, model, data, sample_count, &unit, &s.runs));
    s.count = s.runs;
    if (ranks > blocks_of(&s)) s.comm = NULL;
    if (s.comm) {
        s.first = begin_of(&s, rank * blocks_of(&s) / ranks);
        s.count = begin_of(&s, (rank + 1) * blocks_of(&s) / ranks) - s.first;
    }
    s.samples = samples + s.first * unit;
    s.sample_count = s.count * unit;
    *out = s;
    return PARE_OK;
}

/* The bits of 0.0 are 0: those of a number and of zeros add up to the number's. */
pare_status pare_run_share_join(const pare_run_share *s, double *x, int64_t count)
{
    return pare_comm_allreduce(s->comm, x, (size_t)count, PARE_COMM_SUM_U64);
}

pare_status pare_run_share_hash(const pare_run_share *s, pare_hash *hash)
{
    return pare_comm_sum_hash(s->comm, hash);
}

/* --- sums --- */

struct pare_block_sum {
    pare_ctx *ctx;
    const pare_run_share *share;
    size_t count;
    int64_t block; /* that the last of kept belongs to; -1: none yet */
    double *sum;   /* (count) of blocks that are added up; or NULL */
    double *kept[PARE_SHARE_BLOCKS];
    int kept_count;
};

int pare_block_sum_arrays(int ranks)
{
    return ranks > 1 ? (PARE_SHARE_BLOCKS + ranks - 1) / ranks + 1 : 2;
}

pare_status pare_block_sum_new(pare_ctx *ctx, pare_block_sum **out, const pare_run_share *share,
                               size_t count)
{
    pare_block_sum *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    *s = (pare_block_sum){.ctx = ctx, .share = share, .count = count, .block = -1};
    *out = s;
    return PARE_OK;
}

void pare_block_sum_free(pare_block_sum *s)
{
    if (!s) return;
    for (int i = 0; i < s->kept_count; i++) pare_free(s->kept[i]);
    pare_free(s->sum);
    pare_free(s);
}

static int64_t block_at(const pare_block_sum *s, int64_t run)
{
    return s->share ? block_of(s->share, run) : 0;
}

bool pare_block_sum_turns(const pare_block_sum *s, int64_t run)
{
    return block_at(s, run) != s->block;
}

/* What is kept onto the sum, in order. */
static void add_kept(pare_block_sum *s)
{
    for (int i = 0; i < s->kept_count; i++) {
        if (!s->sum) {
            s->sum = s->kept[i];
            continue;
        }
        for (size_t k = 0; k < s->count; k++) s->sum[k] += s->kept[i][k];
        pare_free(s->kept[i]);
    }
    s->kept_count = 0;
}

pare_status pare_block_sum_at(pare_block_sum *s, int64_t run, double **out)
{
    if (pare_block_sum_turns(s, run)) {
        if (!s->share || !pare_comm_rank(s->share->comm)) add_kept(s);
        double *fresh = pare_alloc(s->ctx, s->count, sizeof *fresh);
        if (!fresh) return PARE_MEMORY;
        s->kept[s->kept_count++] = fresh;
        s->block = block_at(s, run);
    }
    *out = s->kept[s->kept_count - 1];
    return PARE_OK;
}

pare_status pare_block_sum_end(pare_block_sum *s, double **out)
{
    pare_comm *comm = s->share ? s->share->comm : NULL;
    const int rank = pare_comm_rank(comm), ranks = pare_comm_size(comm);
    if (!rank) add_kept(s);
    if (!s->sum) s->sum = pare_alloc(s->ctx, s->count, sizeof *s->sum);
    pare_status st = pare_comm_settle(comm, s->sum ? PARE_OK : PARE_MEMORY);
    for (int root = 0; comm && st == PARE_OK && root < ranks; root++) {
        if (root && root == rank) add_kept(s);
        st = pare_comm_broadcast(comm, s->sum, s->count * sizeof *s->sum, root);
    }
    *out = s->sum;
    return st;
}
