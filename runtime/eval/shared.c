/* SPDX-License-Identifier: Apache-2.0 */
/* A predictor whose model ranks share. Each reads the same samples from the same file.

   Shards (exec/shards.h) run in step: what is sent is only what one rank computes and others need.
   Runs side by side are as many in every rank, and their parts go in one message.

   Stages (pipeline.h) take a batch at a time; the outputs, which rank 0 has then, go to all. */
#include "runtime/eval/pipeline.h"
#include "runtime/eval/predict.h"
#include "runtime/exec/shards.h"

static pare_status gather(void *user, const void *mine, const size_t *bytes, void *all)
{
    const pare_predictor *p = user;
    return pare_comm_all_gather(p->comm, mine, bytes, all);
}

static pare_status share_products(pare_predictor *p)
{
    int64_t threads = -(p->threads > 0 ? p->threads : pare_cpu_cores());
    PARE_TRY(pare_comm_allreduce(p->comm, &threads, 1, PARE_COMM_MAX_I64));
    p->threads = (int)-threads;
    p->gatherer = (pare_gatherer){.gather = gather, .user = p};
    p->options.shard = pare_comm_rank(p->comm);
    p->options.shards = pare_comm_size(p->comm);
    p->options.gatherer = &p->gatherer;
    p->activations = pare_alloc(p->ctx, (size_t)p->options.shards, sizeof *p->activations);
    PARE_TRY(pare_comm_settle(p->comm, p->activations ? PARE_OK : PARE_MEMORY));
    if (p->options.shards <= PARE_MOST_SHARDS) return PARE_OK;
    return PARE_FAIL(p->ctx, UNSUPPORTED, "%s: %d shards, more than %d", p->model->path,
                     p->options.shards, PARE_MOST_SHARDS);
}

pare_status pare_predictor_share(pare_predictor *p, pare_comm *comm, pare_parallel how)
{
    if (!comm || how == PARE_PARALLEL_NONE) return PARE_OK;
    p->comm = comm;
    p->parallel = how;
    return how == PARE_TENSOR ? share_products(p) : PARE_OK;
}

pare_shared_plan pare_predictor_shared(const pare_predictor *p)
{
    pare_shared_plan out = {0};
    if (p->pipeline) out.pipeline = pare_pipeline_planned(p->pipeline);
    if (!p->comm || !p->plan) return out;
    out.tensor = pare_plan_sharding_of(p->plan);
    out.activations = p->activations;
    out.runs = pare_replicas_threads(p->pool);
    return out;
}

/* --- plans --- */

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

static pare_status gather_activations(pare_predictor *p)
{
    const size_t mine = pare_plan_activation_bytes(p->plan);
    const size_t size = (size_t)pare_comm_size(p->comm) * sizeof mine;
    PARE_TRY(pare_comm_gather(p->comm, &mine, sizeof mine, p->activations));
    return pare_comm_broadcast(p->comm, p->activations, size, 0);
}

pare_status pare_predictor_shard(pare_predictor *p, int count)
{
    PARE_TRY(pare_predictor_agree(p, p->comm, count));
    const pare_plan_sharding *s = pare_plan_sharding_of(p->plan);
    PARE_TRY(pare_comm_same(p->comm, "cut of the products", &s->bounds, sizeof s->bounds));
    return gather_activations(p);
}

/* Planned as if one batch were all samples: stages wait for each other in each of them. */
pare_status pare_predictor_stage(pare_predictor *p, int64_t batch, size_t *to_come)
{
    pare_plan_options options = p->options;
    options.threads = p->threads;
    if (!p->pipeline)
        PARE_TRY(pare_pipeline_new(p->ctx, &p->pipeline, p->comm, p->model, p->data, p->input,
                                   p->input_count, &options, batch, batch));
    *to_come = pare_pipeline_planned(p->pipeline)->to_come;
    return PARE_OK;
}

/* --- a batch through stages --- */

static pare_status read_batch(void *user, pare_batch *out)
{
    pare_predictor *p = user;
    *out = (pare_batch){.input = p->inputs, .count = p->count};
    p->count = 0; /* once */
    return PARE_OK;
}

static pare_status rows_are_there(void *user, int count)
{
    (void)user;
    (void)count;
    return PARE_OK;
}

pare_status pare_predict_staged(pare_predictor *p)
{
    const int count = p->count;
    const pare_pipeline_work work = {.read = read_batch, .write = rows_are_there, .user = p};
    PARE_TRY(pare_pipeline_run(p->pipeline, &work));
    return pare_pipeline_share(p->pipeline, count);
}
