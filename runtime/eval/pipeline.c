/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank is a predictor whose plan is its stage. A message is a microbatch: the tensors that
   cross, run by run, each tensor at a multiple of 64. Rank 0 cuts batches into microbatches, and
   has the outputs back from the last rank:

       rank 0 --> rank 1 --> ... --> last rank
          ^------------ outputs ---------'

   A rank holds at least two microbatches, one that it works on and one that it has sent. So rank 0
   may have 2 (ranks - 1) + 1 under way before it waits for an output, and no rank waits for another
   that waits for it.

   A rank that fails sends failed messages on. Rank 0 then sends no more data but the end, which
   passes all ranks and comes back to it; then all ranks settle on the first failure. */
#include "runtime/eval/pipeline.h"
#include "runtime/base/size.h"
#include "runtime/eval/predict.h"
#include "runtime/eval/stage_message.h"

#include <string.h>

enum {
    ALIGN = 64,
    MICROBATCHES = 4 /* for each stage at least, before a microbatch is several runs */
};

/* What all ranks know of an output. */
typedef struct output {
    int32_t dtype, rank;
    int64_t dim[PARE_MAX_RANK];
} output;

/* What a predictor is made from. */
typedef struct wanted {
    const pare_model *model;
    pare_data *data;
    const pare_data_input *inputs;
    int input_count;
    pare_plan_options options;
} wanted;

struct pare_pipeline {
    pare_ctx *ctx;
    pare_comm *comm;
    int rank, ranks;
    pare_predictor *predictor; /* of this rank's stage */
    int64_t batch, all;
    pare_channel *from, *to;
    output *output;      /* (outputs of the model) */
    size_t *activations; /* (ranks) in rank 0 */
    pare_pipeline_plan plan;
    int window; /* microbatches under way at most */
    /* of the microbatch in work */
    const char *in;
    char *out;
    int64_t first; /* unit of the batch */
    /* of rank 0 */
    int kept; /* samples among the outputs */
};

/* --- messages --- */

static pare_view output_view(const output *o)
{
    pare_view view;
    pare_shape shape = {.rank = o->rank};
    memcpy(shape.dim, o->dim, sizeof shape.dim);
    pare_view_set(&view, (pare_dtype)o->dtype, &shape, false);
    return view;
}

static size_t run_bytes_result(const pare_pipeline *p)
{
    size_t bytes = 0;
    for (int i = 0; i < p->predictor->output_count; i++) {
        const pare_view view = output_view(&p->output[i]);
        bytes += pare_align_up(pare_view_bytes(&view), ALIGN);
    }
    return bytes;
}

/* --- planning --- */

/* Other rows may have another cut, so ranks plan for as many. */
static pare_status plan_stage(pare_pipeline *p, const wanted *w)
{
    pare_status st = pare_predictor_new(p->ctx, &p->predictor, w->model, w->data, w->inputs,
                                        w->input_count, &w->options);
    PARE_TRY(pare_comm_settle(p->comm, st));
    PARE_TRY(pare_predictor_agree(p->predictor, p->comm, (int)p->batch));
    return pare_predictor_prepare(p->predictor, p->batch, p->all, &p->plan.to_come);
}

static pare_status check_cut(pare_pipeline *p)
{
    int first[PARE_MOST_STAGES] = {0};
    p->plan.stage = pare_plan_stages(p->predictor->plan, &p->plan.stages);
    for (int i = 0; i < p->plan.stages; i++) first[i] = p->plan.stage[i].first;
    return pare_comm_same(p->comm, "cut of the model", first, sizeof first);
}

/* Runs of a microbatch: as many as every rank has threads for, unless microbatches become few. */
static pare_status choose_runs(pare_pipeline *p)
{
    int64_t threads = -pare_replicas_threads(p->predictor->pool);
    PARE_TRY(pare_comm_allreduce(p->comm, &threads, 1, PARE_COMM_MAX_I64));
    const int64_t rows = p->predictor->rows, whole = p->all / p->batch, rest = p->all % p->batch;
    const int64_t units = whole * ((p->batch + rows - 1) / rows) + (rest + rows - 1) / rows;
    const int64_t most = units / ((int64_t)MICROBATCHES * p->ranks);
    const int64_t runs = -threads < most ? -threads : most > 1 ? most : 1, each = rows * runs;
    p->plan.runs = (int)runs;
    p->plan.samples = (int)(each < p->batch ? each : p->batch);
    p->plan.microbatches = whole * ((p->batch + each - 1) / each) + (rest + each - 1) / each;
    return PARE_OK;
}

static pare_status share_outputs(pare_pipeline *p)
{
    const int count = p->predictor->output_count, last = p->ranks - 1;
    for (int i = 0; p->rank == last && i < count; i++) {
        const pare_value *v = pare_plan_output(p->predictor->plan, i);
        p->output[i] = (output){.dtype = (int32_t)v->dtype, .rank = v->shape.rank};
        memcpy(p->output[i].dim, v->shape.dim, sizeof p->output[i].dim);
    }
    return pare_comm_broadcast(p->comm, p->output, (size_t)count * sizeof *p->output, last);
}

static pare_status gather_activations(pare_pipeline *p)
{
    const size_t mine = pare_plan_activation_bytes(p->predictor->plan);
    PARE_TRY(pare_comm_gather(p->comm, &mine, sizeof mine, p->activations));
    p->plan.activations = p->activations;
    return PARE_OK;
}

static pare_status predict_bubble(pare_pipeline *p)
{
    double cost[PARE_MOST_STAGES];
    for (int i = 0; i < p->ranks; i++) cost[i] = p->plan.stage[i].cost;
    p->plan.bubble_equal = (double)(p->ranks - 1) / (double)(p->plan.microbatches + p->ranks - 1);
    return pare_stages_bubble(p->ctx, &p->plan.bubble, cost, p->ranks, p->plan.microbatches,
                              p->window);
}

/* Room for a batch's outputs. */
static pare_status open_rows(pare_pipeline *p)
{
    p->predictor->count = (int)(p->batch < p->all ? p->batch : p->all);
    for (int i = 0; i < p->predictor->output_count; i++) {
        const pare_view view = output_view(&p->output[i]);
        PARE_TRY(pare_predictor_open_rows(p->predictor, i, &view));
    }
    return PARE_OK;
}

/* This rank's ends of the channels; rank 0 also makes room for the outputs. */
static pare_status open_ends(pare_pipeline *p)
{
    const pare_plan *plan = p->predictor->plan;
    const int last = p->ranks - 1, before = (p->rank + last) % p->ranks,
              after = (p->rank + 1) % p->ranks;
    const size_t runs = (size_t)p->plan.runs, result = run_bytes_result(p);
    const size_t in = p->rank ? pare_stage_bytes_in(plan) : result,
                 out = p->rank < last ? pare_stage_bytes_out(plan) : result;
    PARE_TRY(pare_channel_open(p->comm, &p->from, before, p->rank, in * runs));
    PARE_TRY(pare_channel_open(p->comm, &p->to, p->rank, after, out * runs));
    return p->rank ? PARE_OK : open_rows(p);
}

static pare_status check(pare_pipeline *p, const pare_model *model, const pare_data *data)
{
    if (p->ranks > PARE_MOST_STAGES)
        return PARE_FAIL(p->ctx, UNSUPPORTED, "%s: %d stages, more than %d", model->path, p->ranks,
                         PARE_MOST_STAGES);
    if (pare_data_runs_alone(data))
        return PARE_FAIL(p->ctx, UNSUPPORTED,
                         "%s: each sample of %s is a run of its own, which stages cannot share",
                         model->path, pare_data_path(data));
    p->output = pare_alloc(p->ctx, (size_t)model->graph->out.count, sizeof *p->output);
    if (!p->rank) p->activations = pare_alloc(p->ctx, (size_t)p->ranks, sizeof *p->activations);
    return p->output && (p->rank || p->activations) ? PARE_OK : PARE_MEMORY;
}

static pare_status prepare(pare_pipeline *p, const wanted *w)
{
    PARE_TRY(pare_comm_settle(p->comm, check(p, w->model, w->data)));
    PARE_TRY(plan_stage(p, w));
    PARE_TRY(check_cut(p));
    PARE_TRY(choose_runs(p));
    PARE_TRY(share_outputs(p));
    PARE_TRY(gather_activations(p));
    pare_status st = predict_bubble(p);
    if (st == PARE_OK) st = open_ends(p);
    return pare_comm_settle(p->comm, st);
}

pare_status pare_pipeline_new(pare_ctx *ctx, pare_pipeline **out, pare_comm *comm,
                              const pare_model *model, pare_data *data,
                              const pare_data_input *inputs, int input_count,
                              const pare_plan_options *options, int64_t batch, int64_t all)
{
    pare_pipeline *p = pare_alloc(ctx, 1, sizeof *p);
    PARE_TRY(pare_comm_settle(comm, p ? PARE_OK : PARE_MEMORY));
    *p = (pare_pipeline){.ctx = ctx,
                         .comm = comm,
                         .rank = pare_comm_rank(comm),
                         .ranks = pare_comm_size(comm),
                         .batch = batch < all ? batch : all,
                         .all = all};
    p->window = 2 * (p->ranks - 1) + 1;
    wanted w = {model, data, inputs, input_count, *options};
    w.options.stage = p->rank;
    w.options.stages = p->ranks;
    const pare_status st = prepare(p, &w);
    if (st == PARE_OK)
        *out = p;
    else
        pare_pipeline_free(p);
    return st;
}

void pare_pipeline_free(pare_pipeline *p)
{
    if (!p) return;
    pare_channel_close(p->to);
    pare_channel_close(p->from);
    pare_predictor_free(p->predictor);
    pare_free(p->activations);
    pare_free(p->output);
    pare_free(p);
}

const pare_pipeline_plan *pare_pipeline_planned(const pare_pipeline *p) { return &p->plan; }

const pare_predictor *pare_pipeline_outputs(const pare_pipeline *p) { return p->predictor; }

/* --- one microbatch --- */

/* Of the ranks behind the first: a run reads its tensors where they came. */
static pare_status load(void *user, int64_t run, pare_replica *replica)
{
    const pare_pipeline *p = user;
    pare_stage_read(replica->runner, p->in + (size_t)run * pare_stage_bytes_in(p->predictor->plan));
    return PARE_OK;
}

static pare_status load_samples(void *user, int64_t unit, pare_replica *replica)
{
    const pare_pipeline *p = user;
    return pare_predictor_load(p->predictor, unit, replica);
}

static pare_status take(void *user, int64_t unit, pare_replica *replica)
{
    const pare_pipeline *p = user;
    pare_stage_write(replica->runner,
                     p->out + (size_t)(unit - p->first) * pare_stage_bytes_out(p->predictor->plan));
    return PARE_OK;
}

static pare_status run_units(pare_pipeline *p, int64_t first, int count)
{
    const pare_batch_work work = {
        .load = p->rank ? load : load_samples, .take = take, .any_order = true, .user = p};
    p->first = first;
    return pare_replicas_run(p->predictor->pool, first, count, &work);
}

static int units_of(const pare_pipeline *p, int64_t samples)
{
    return (int)((samples + p->predictor->rows - 1) / p->predictor->rows);
}

/* --- the ranks behind the first --- */

static pare_status pass_on(pare_pipeline *p)
{
    pare_channel_kind kind = PARE_CHANNEL_DATA;
    pare_status st = PARE_OK;
    while (kind != PARE_CHANNEL_END) {
        int64_t samples;
        const void *in;
        void *out;
        PARE_TRY(pare_channel_receive(p->from, &kind, &samples, &in));
        PARE_TRY(pare_channel_next(p->to, &out));
        const int units = units_of(p, samples);
        p->in = in;
        p->out = out;
        if (kind == PARE_CHANNEL_DATA && st == PARE_OK) st = run_units(p, 0, units);
        if (kind == PARE_CHANNEL_DATA && st != PARE_OK) kind = PARE_CHANNEL_FAILED;
        PARE_TRY(pare_channel_send(
            p->to, kind, (size_t)units * pare_stage_bytes_out(p->predictor->plan), samples));
    }
    return st;
}

/* --- rank 0 --- */

typedef struct feeder {
    const pare_pipeline_work *work;
    pare_batch batch;
    int64_t unit; /* of the batch, the next one */
    bool more;
    int under_way; /* microbatches */
} feeder;

static pare_status next_batch(pare_pipeline *p, feeder *f)
{
    PARE_TRY(f->work->read(f->work->user, &f->batch));
    f->unit = 0;
    f->more = f->batch.count > 0;
    p->predictor->inputs = f->batch.input;
    p->predictor->count = f->batch.count;
    return PARE_OK;
}

/* Sends the next microbatch on its way, where there is one. */
static pare_status feed(pare_pipeline *p, feeder *f)
{
    void *out;
    const int rows = p->predictor->rows;
    PARE_TRY(pare_ctx_poll(p->ctx));
    if (f->unit * rows >= f->batch.count) PARE_TRY(next_batch(p, f));
    if (!f->more) return PARE_OK;
    int64_t samples = f->batch.count - f->unit * rows;
    if (samples > p->plan.samples) samples = p->plan.samples;
    const int units = units_of(p, samples);
    PARE_TRY(pare_channel_next(p->to, &out));
    p->out = out;
    PARE_TRY(run_units(p, f->unit, units));
    f->unit += units;
    f->under_way++;
    return pare_channel_send(p->to, PARE_CHANNEL_DATA,
                             (size_t)units * pare_stage_bytes_out(p->predictor->plan), samples);
}

static void widen_rows(const pare_output_rows *out, int count)
{
    if (out->f32) pare_convert(out->f32, PARE_f32, out->data, out->dtype, count * out->size);
}

static pare_status flush(pare_pipeline *p, const feeder *f)
{
    const int count = p->kept;
    if (!count) return PARE_OK;
    for (int i = 0; i < p->predictor->output_count; i++) widen_rows(&p->predictor->out[i], count);
    p->kept = 0;
    return f->work->write(f->work->user, count);
}

/* Puts a microbatch's outputs behind those of the batch before it. */
static pare_status keep(pare_pipeline *p, const feeder *f, const char *at, int64_t samples)
{
    for (int64_t left = samples; left > 0; left -= p->predictor->rows) {
        const int rows = left < p->predictor->rows ? (int)left : p->predictor->rows;
        for (int i = 0; i < p->predictor->output_count; i++) {
            const pare_output_rows *out = &p->predictor->out[i];
            const pare_view view = output_view(&p->output[i]);
            const size_t row = (size_t)out->size * (size_t)pare_type(out->dtype)->bits / 8;
            memcpy(out->data + (size_t)p->kept * row, at, (size_t)rows * row);
            at += pare_align_up(pare_view_bytes(&view), ALIGN);
        }
        p->kept += rows;
    }
    return p->kept == p->batch ? flush(p, f) : PARE_OK;
}

static pare_status send_end(pare_pipeline *p)
{
    void *unused;
    PARE_TRY(pare_channel_next(p->to, &unused));
    return pare_channel_send(p->to, PARE_CHANNEL_END, 0, 0);
}

static pare_status lead(pare_pipeline *p, feeder *f)
{
    pare_status st = PARE_OK;
    pare_channel_kind kind = PARE_CHANNEL_DATA;
    bool failed = false, ended = false; /* failed: another rank */
    while (kind != PARE_CHANNEL_END) {
        int64_t samples;
        const void *data;
        while (st == PARE_OK && !failed && f->more && f->under_way < p->window) st = feed(p, f);
        if (!ended && (st != PARE_OK || failed || !f->more)) {
            PARE_TRY(send_end(p));
            ended = true;
        }
        PARE_TRY(pare_channel_receive(p->from, &kind, &samples, &data));
        f->under_way--;
        failed |= kind == PARE_CHANNEL_FAILED;
        if (kind == PARE_CHANNEL_DATA && st == PARE_OK && !failed) st = keep(p, f, data, samples);
    }
    return st == PARE_OK && !failed ? flush(p, f) : st;
}

pare_status pare_pipeline_run(pare_pipeline *p, const pare_pipeline_work *work)
{
    feeder f = {.work = work, .more = true};
    PARE_TRY(pare_comm_settle(p->comm, PARE_OK)); /* from here on only messages tell of failures */
    return pare_comm_settle(p->comm, p->rank ? pass_on(p) : lead(p, &f));
}

pare_status pare_pipeline_share(pare_pipeline *p, int count)
{
    PARE_TRY(pare_comm_settle(p->comm, p->rank ? open_rows(p) : PARE_OK));
    for (int i = 0; i < p->predictor->output_count; i++) {
        const pare_output_rows *out = &p->predictor->out[i];
        const size_t row = (size_t)out->size * (size_t)pare_type(out->dtype)->bits / 8;
        PARE_TRY(pare_comm_broadcast(p->comm, out->data, (size_t)count * row, 0));
        if (p->rank) widen_rows(out, count);
    }
    return PARE_OK;
}
