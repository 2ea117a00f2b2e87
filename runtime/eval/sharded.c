/* SPDX-License-Identifier: Apache-2.0 */
/* A predictor that ranks share by tensor parallelism (exec/shards.h). Each reads the same samples
   from the same file: what is sent is only what one rank computes and others need. Runs side by
   side are as many in every rank, and their parts go in one message. */
#include "runtime/eval/predict.h"
#include "runtime/exec/shards.h"

static pare_status gather(void *user, const void *mine, const size_t *bytes, void *all)
{
    const pare_predictor *p = user;
    return pare_comm_all_gather(p->comm, mine, bytes, all);
}

pare_status pare_predictor_share(pare_predictor *p, pare_comm *comm)
{
    if (!comm) return PARE_OK;
    int64_t threads = -(p->threads > 0 ? p->threads : pare_cpu_cores());
    PARE_TRY(pare_comm_allreduce(comm, &threads, 1, PARE_COMM_MAX_I64));
    p->threads = (int)-threads;
    p->comm = comm;
    p->gatherer = (pare_gatherer){gather, p};
    p->options.shard = pare_comm_rank(comm);
    p->options.shards = pare_comm_size(comm);
    p->options.gatherer = &p->gatherer;
    if (p->options.shards <= PARE_MOST_SHARDS) return PARE_OK;
    return PARE_FAIL(p->ctx, UNSUPPORTED, "%s: %d shards, more than %d", p->model->path,
                     p->options.shards, PARE_MOST_SHARDS);
}

pare_status pare_predictor_agree(pare_predictor *p, pare_comm *comm, int count)
{
    int64_t rows[2] = {0, 0}; /* the most in a rank, and the fewest with a sign */
    do {
        pare_predictor_unplan(p);
        p->most = (int)-rows[1];
        PARE_TRY(pare_comm_settle(comm, pare_predictor_plan(p, count)));
        rows[0] = p->rows;
        rows[1] = -p->rows;
        PARE_TRY(pare_comm_allreduce(comm, rows, 2, PARE_COMM_MAX_I64));
    } while (rows[0] != -rows[1]);
    return PARE_OK;
}

pare_status pare_predictor_shard(pare_predictor *p, int count)
{
    PARE_TRY(pare_predictor_agree(p, p->comm, count));
    const pare_plan_sharding *s = pare_plan_sharding_of(p->plan);
    return pare_comm_same(p->comm, "cut of the products", &s->bounds, sizeof s->bounds);
}

const pare_plan_sharding *pare_predictor_sharding(const pare_predictor *p, size_t *activations,
                                                  int *runs)
{
    if (!p->comm || !p->plan) return NULL;
    *activations = pare_plan_activation_bytes(p->plan);
    *runs = pare_replicas_threads(p->pool);
    return pare_plan_sharding_of(p->plan);
}
