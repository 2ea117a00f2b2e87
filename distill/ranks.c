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

/* In parts of 32 bits, whose sums have room for what is carried. */
pare_status pare_ranks_sum_hash(pare_comm *comm, pare_hash *x)
{
    const uint64_t low = UINT32_MAX;
    uint64_t part[] = {x->low & low, x->low >> 32, x->high & low, x->high >> 32};
    PARE_TRY(pare_comm_allreduce(comm, part, 4, PARE_COMM_SUM_U64));
    for (int i = 1; i < 4; i++) part[i] += part[i - 1] >> 32;
    *x = (pare_hash){part[1] << 32 | (part[0] & low), part[3] << 32 | (part[2] & low)};
    return PARE_OK;
}
