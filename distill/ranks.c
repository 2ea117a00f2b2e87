/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other. Sums of floats have one order (tree_sum.h); all else is exact. */
#include "distill/trainer.h"

pare_status pare_ranks_sum(void *comm, pare_dtype dtype, void *x, int64_t count)
{
    if (dtype == PARE_f64) return pare_comm_sum_f64(comm, x, (size_t)count);
    return pare_comm_sum_f32(comm, x, (size_t)count);
}

/* The bits of 0.0 are 0: those of a number and of zeros add up to the number's. */
pare_status pare_ranks_join(pare_comm *comm, double *x, int64_t count)
{
    return pare_comm_allreduce(comm, x, (size_t)count, PARE_COMM_SUM_U64);
}
