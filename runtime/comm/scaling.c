/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/scaling.h"

/* Rounds until every rank has heard from every other. */
static int rounds_of(int ranks)
{
    int rounds = 0;
    while ((int64_t)1 << rounds < ranks) rounds++;
    return rounds;
}

double pare_scaling_reduce(const pare_network *n, int ranks, size_t bytes, int64_t reductions)
{
    const double rounds = rounds_of(ranks), times = (double)reductions;
    const double share = (double)(ranks - 1) / (double)ranks, all = (double)bytes;
    if (ranks < 2 || !reductions) return 0;
    if (ranks & (ranks - 1)) /* the broadcast back scatters and gathers */
        return times * 3 * rounds * n->alpha + (rounds + 2 * share) * all * n->beta;
    return times * 3 * rounds * n->alpha + 2 * share * all * n->beta;
}

double pare_scaling_step(const pare_scaling_job *job, const pare_network *network, int ranks)
{
    const double parts = (double)((job->parts + ranks - 1) / ranks);
    return parts * job->part + job->each +
           pare_scaling_reduce(network, ranks, job->bytes, job->reductions);
}

double pare_scaling_seconds(const pare_scaling_job *job, const pare_network *network, int ranks)
{
    return job->start + (double)job->steps * pare_scaling_step(job, network, ranks);
}
