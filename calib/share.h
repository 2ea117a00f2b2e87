/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that ranks share. Runs are cut into PARE_SHARE_BLOCKS blocks in a row (fewer where there are
   fewer runs), whatever the number of ranks; a rank has whole blocks in a row. A sum of floats over
   runs is made block by block, each from zero, and the blocks are added in their order: it depends
   on neither ranks nor threads. */
#ifndef PARE_CALIB_SHARE_H
#define PARE_CALIB_SHARE_H

#include "formats/data.h"
#include "runtime/comm/comm.h"
#include "runtime/graph/graph.h"

enum { PARE_SHARE_BLOCKS = 8 };

typedef struct pare_run_share {
    pare_comm *comm;        /* NULL: this process has all runs */
    const int64_t *samples; /* of this rank's runs */
    int64_t sample_count;
    int64_t runs;         /* of all ranks */
    int64_t first, count; /* runs of this rank */
} pare_run_share;

/* This rank's part of the runs that the samples make (pare_calib_runs). Fewer blocks than ranks are
   not shared: each rank has all runs. PARE_INPUT: fewer samples than the model's fixed batch. */
PARE_NODISCARD pare_status pare_run_share_open(pare_ctx *ctx, pare_run_share *out, pare_comm *comm,
                                               const pare_model *model, const pare_data *data,
                                               const int64_t *samples, int64_t sample_count);

/* Each rank's numbers of its own runs, x (count of all), the others 0, become those of all runs. */
PARE_NODISCARD pare_status pare_run_share_join(const pare_run_share *share, double *x,
                                               int64_t count);

/* The hash of what all ranks read, from that of what this one read. */
PARE_NODISCARD pare_status pare_run_share_hash(const pare_run_share *share, pare_hash *hash);

/* --- sums of `count` doubles over the runs --- */

typedef struct pare_block_sum pare_block_sum;

/* Arrays that a sum holds at once, at most, in any rank of a job of so many. */
int pare_block_sum_arrays(int ranks);

/* share: borrowed; NULL: one block, this process's own. */
PARE_NODISCARD pare_status pare_block_sum_new(pare_ctx *ctx, pare_block_sum **out,
                                              const pare_run_share *share, size_t count);
void pare_block_sum_free(pare_block_sum *sum);

/* Does the run, a number among those of all ranks, begin another block than the last one? What is
   still to be added to that has to be, before pare_block_sum_at. */
bool pare_block_sum_turns(const pare_block_sum *sum, int64_t run);
/* The array (count) that the run adds to, valid until the next call. Runs come in order. */
PARE_NODISCARD pare_status pare_block_sum_at(pare_block_sum *sum, int64_t run, double **out);
/* After the last run: the sum over all runs of all ranks, in each of them; the object's own. */
PARE_NODISCARD pare_status pare_block_sum_end(pare_block_sum *sum, double **out);

#endif
