/* SPDX-License-Identifier: Apache-2.0 */
/* The training: steps, validation, the best kept. The student is changed at the very end. */
#include "distill/trainer.h"
#include "runtime/base/clock.h"
#include "runtime/ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_SCALE = 65536, GOOD = 2000 }; /* of FP16: the first scale, good steps to double it */

typedef struct loop {
    pare_trainer t;
    pare_train_state s;
    pare_checkpointer keeper;
    pare_hash earlier;  /* of what was read before the training was resumed */
    pare_hash read;     /* since then, by this rank, up to the last step */
    const char **zeros; /* (zero_count): weights whose zeros stay, in the student's arena */
    int zero_count;
    pare_distill_tensor *tensors; /* (trained), in the student's arena; NULL: not asked for */
    double gradient_factor;       /* of the gradients in the block; 0: of no step */
    double learning, updating;    /* seconds of gradients, and of the rest of the steps */
    int64_t timed;                /* steps of those; the first is not timed */
    pare_distill_end end;
} loop;

void pare_distill_options_init(pare_distill_options *out)
{
    *out = (pare_distill_options){.epochs = 1,
                                  .batch = 128,
                                  .accumulate = 1,
                                  .learning_rate = 1e-3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .epsilon = 1e-8,
                                  .momentum = 0.9,
                                  .weight_decay = 1e-2,
                                  .warmup = -1,
                                  .zeros_from = 0.2,
                                  .bn_recalib_samples = 512,
                                  .seed = 1};
}

double pare_distill_learning_rate(const pare_model *student)
{
    const pare_graph *graph = student->graph;
    for (int i = 0; i < graph->node_count; i++) {
        const pare_node *node = graph->node[i];
        const pare_value *out = pare_node_is_softmax(node) && node->out_count ? node->out[0] : NULL;
        if (out && out->user_count) return 3e-4;
    }
    return 1e-3;
}

void pare_distill_options_init_qat(pare_distill_options *out)
{
    pare_distill_options_init(out);
    out->learning_rate = 3e-5;
    out->batchnorm = PARE_BATCHNORM_HALF;
}

/* --- a step --- */

static pare_status fail_nonfinite(loop *l, const char *what, double value)
{
    char text[128];
    const char *hint = l->s.step ? "a lower learning rate may help"
                                 : "no step was made yet: the models give it as they are";
    snprintf(text, sizeof text, "step %" PRId64 ": the %s is %s", l->s.step + 1, what,
             isnan(value) ? "NaN" : "infinite");
    if (l->t.pipeline)
        return PARE_FAIL(l->t.ctx, INPUT, "%s: %s; %s", l->t.student->path, text, hint);
    return pare_microbatches_find_nonfinite(&l->t.learning, text, hint);
}

static bool is_lowp(const loop *l) { return l->t.options.precision == PARE_TRAIN_FP16; }

static pare_status next_batch(pare_trainer *t, pare_loader_batch *out)
{
    PARE_TRY(pare_ctx_poll(t->ctx));
    return pare_loader_next(t->stream, out);
}

static pare_status learn_batch(pare_trainer *t, int i, double *loss)
{
    pare_loader_batch batch = {0};
    const pare_status st = next_batch(t, &batch);
    if (!t->pipeline) {
        PARE_TRY(st);
        return pare_microbatches_learn(&t->learning, &t->weights, &batch, &t->augmented, i, loss);
    }
    PARE_TRY(pare_comm_settle(t->options.comm, st));
    return pare_train_pipeline_learn(t->pipeline, &batch, &t->augmented, i, loss);
}

/* Gradients of a step's batches; *loss: their sum over microbatches. In FP16 a batch that overflows
   does not end the step: the next one begins with the samples after all of it. */
static pare_status learn(loop *l, double *loss)
{
    pare_trainer *t = &l->t;
    double waiting[PARE_TREE_LEVELS], one;
    *loss = 0;
    for (int i = 0; i < t->options.accumulate; i++) {
        PARE_TRY(learn_batch(t, i, &one));
        if (!isfinite(one) && !is_lowp(l)) return fail_nonfinite(l, "loss", one);
        *loss = pare_tree_add(waiting, pare_tree_term_of(i, t->options.accumulate), one);
    }
    return PARE_OK;
}

/* A value is not finite: in FP16 the step changes nothing, and the next one scales less. */
static pare_status skip(loop *l, const char *what, double value)
{
    pare_train_state *s = &l->s;
    if (!is_lowp(l) || s->loss_scale < 2) return fail_nonfinite(l, what, value);
    l->gradient_factor = 0;
    pare_weights_restore_statistics(&l->t.weights);
    s->loss_scale /= 2;
    s->good = 0;
    s->skipped++;
    pare_log(l->t.ctx, PARE_LOG_INFO,
             "step %" PRId64 ": the %s is %s; it changes no weight, the loss is scaled by %g from "
             "here on",
             s->step + 1, what, isnan(value) ? "NaN" : "infinite", s->loss_scale);
    return PARE_OK;
}

static pare_status change(loop *l, double scale)
{
    pare_train_state *s = &l->s;
    const pare_update_facts facts = {s->step - s->skipped, s->learning_rate, scale, s->norm};
    PARE_TRY(pare_update_weights(&l->t, &facts));
    if (is_lowp(l) && ++s->good == GOOD) {
        s->loss_scale *= 2;
        s->good = 0;
    }
    return PARE_OK;
}

static pare_status change_or_skip(loop *l, double loss, double scale)
{
    pare_train_state *s = &l->s;
    double norm;
    s->learning_rate = pare_schedule_rate(&l->t.schedule, s->step);
    if (!isfinite(loss)) return skip(l, "loss", loss);
    PARE_TRY(pare_update_norm(&l->t, scale / s->loss_scale, &norm));
    if (!isfinite(norm)) return skip(l, "norm of the gradients", norm);
    s->loss = loss;
    s->norm = norm;
    l->gradient_factor = scale / s->loss_scale;
    return change(l, l->gradient_factor);
}

/* Where it is interrupted, all is as before: running statistics, which follow every batch, are
   restored. */
static pare_status step(loop *l)
{
    pare_trainer *t = &l->t;
    pare_train_state *s = &l->s;
    double loss, scale = 1 / ((double)t->microbatch_count * t->options.accumulate);
    PARE_TRY(pare_trainer_begin_step(t, s->step));
    pare_weights_note_statistics(&t->weights);
    t->learning.loss_scale = (float)s->loss_scale;
    const double start = pare_seconds();
    pare_status st = learn(l, &loss);
    const double learnt = pare_seconds();
    if (st != PARE_OK) {
        pare_weights_restore_statistics(&t->weights);
        return st;
    }
    PARE_TRY(change_or_skip(l, loss * scale, scale));
    if (l->timed++) {
        l->learning += learnt - start;
        l->updating += pare_seconds() - learnt;
    }
    s->step++;
    l->read = pare_loader_hash(t->stream);
    return PARE_OK;
}

/* --- validation --- */

static pare_status send_event(loop *l, const pare_distill_score *score, bool best)
{
    const pare_trainer *t = &l->t;
    const int64_t samples = l->s.step * t->batch * t->options.accumulate;
    const pare_distill_event event = {.step = l->s.step,
                                      .steps = t->steps,
                                      .samples = samples,
                                      .epoch = (double)samples / (double)t->sample_count,
                                      .learning_rate = l->s.learning_rate,
                                      .loss = l->s.loss,
                                      .norm = l->s.norm,
                                      .loss_scale = is_lowp(l) ? l->s.loss_scale : 0,
                                      .skipped = l->s.skipped,
                                      .score = score,
                                      .best = best,
                                      .zeros = l->zeros,
                                      .zero_count = l->zero_count,
                                      .tensor = score ? l->tensors : NULL,
                                      .tensor_count = score && l->tensors ? t->weights.trained : 0,
                                      .gradient_factor = l->gradient_factor};
    if (t->options.event) PARE_TRY(t->options.event(t->options.event_user, &event));
    l->s.reported = l->s.step;
    return PARE_OK;
}

/* Nothing has happened where the event fails. */
static pare_status validate(loop *l)
{
    pare_weights *w = &l->t.weights;
    pare_train_state *s = &l->s;
    const float *values = w->ema ? w->ema : w->value;
    pare_distill_score score;
    if (w->on_device) PARE_TRY(pare_device_weights_download(w->on_device, false));
    if (w->on_device && l->tensors) PARE_TRY(pare_device_weights_download_gradients(w->on_device));
    PARE_TRY(pare_trainer_score(&l->t, values, &score));
    if (!s->step) s->before = s->best = score;
    bool better = isfinite(score.loss) && !(s->best.loss <= score.loss);
    PARE_TRY(send_event(l, &score, better || !s->step));
    if (better) {
        memcpy(w->best, values, w->floats * sizeof *values);
        s->best = score;
        s->best_step = s->step;
    }
    s->since_best = better || !s->step ? 0 : s->since_best + 1;
    return PARE_OK;
}

/* --- keeping it --- */

/* Completes the state with what the ranks have read. */
static pare_status keep(loop *l)
{
    pare_hash read = l->read;
    if (!pare_trainer_reads_all(&l->t)) PARE_TRY(pare_comm_sum_hash(l->t.options.comm, &read));
    l->s.data = pare_hash_sum(l->earlier, read);
    return pare_checkpointer_save(&l->keeper);
}

/* --- all steps --- */

static bool is_validated(const loop *l)
{
    return l->s.step % l->t.options.validate_every == 0 || l->s.step == l->t.steps;
}

static bool is_kept(const loop *l)
{
    const int64_t every = l->t.options.checkpoint.every;
    return every > 0 ? l->s.step % every == 0 : is_validated(l);
}

static bool is_unfinished(const loop *l)
{
    const int patience = l->t.options.patience;
    return l->s.reported < l->s.step ||
           (l->s.step < l->t.steps && (!patience || l->s.since_best < patience));
}

static pare_status run(loop *l)
{
    if (is_unfinished(l)) PARE_TRY(pare_trainer_start(&l->t, l->s.step));
    while (is_unfinished(l)) {
        if (l->s.reported == l->s.step) PARE_TRY(step(l));
        PARE_TRY(is_validated(l) ? validate(l) : send_event(l, NULL, false));
        if (is_kept(l)) PARE_TRY(keep(l));
    }
    l->end = l->s.step < l->t.steps ? PARE_DISTILL_PATIENCE : PARE_DISTILL_COMPLETE;
    return PARE_OK;
}

/* A rank that is asked to stop stops all. The best so far is the result, once there is a step that
   it could come from. */
static pare_status run_until_stopped(loop *l)
{
    pare_ctx *ctx = l->t.ctx;
    pare_status st = pare_comm_settle(l->t.options.comm, run(l));
    const bool stopped = st == PARE_INTERRUPTED;
    if (stopped) {
        pare_comm_forget(l->t.options.comm);
        pare_ctx_clear(ctx);
        l->end = PARE_DISTILL_INTERRUPTED;
        st = PARE_OK;
    }
    if (st == PARE_OK) st = keep(l);
    return st == PARE_OK && stopped && !l->s.step ? PARE_FAIL(ctx, INTERRUPTED, "interrupted") : st;
}

/* At the beginning, or where a checkpoint ends. */
static pare_status begin(loop *l)
{
    const pare_distill_score unknown = {NAN, -1, -1};
    PARE_TRY(pare_comm_settle(l->t.options.comm, pare_trainer_open(&l->t)));
    const pare_weights *w = &l->t.weights;
    memcpy(w->best, w->value, w->floats * sizeof *w->value);
    l->s = (pare_train_state){.reported = -1,
                              .before = unknown,
                              .best = unknown,
                              .loss_scale = is_lowp(l) ? FIRST_SCALE : 1};
    PARE_TRY(pare_checkpointer_open(&l->keeper, &l->t, &l->s));
    l->earlier = l->s.data;
    if (l->keeper.resumed >= 0) return PARE_OK;
    PARE_TRY(pare_trainer_estimate(&l->t));
    l->s.estimated = l->t.estimated;
    memcpy(w->best, w->value, w->floats * sizeof *w->value);
    return PARE_OK;
}

static pare_status list_zeros(loop *l, pare_model *student)
{
    const pare_weights *w = pare_trainer_all_weights(&l->t);
    const pare_distill_options *o = &l->t.options;
    l->zeros = pare_arena_alloc(&student->arena, (size_t)w->trained + 1, sizeof *l->zeros);
    if (!l->zeros) return PARE_MEMORY;
    for (int i = 0; i < w->trained && !o->train_zeros; i++)
        if (pare_weight_is_sparse(&w->item[i], o->zeros_from))
            l->zeros[l->zero_count++] = w->item[i].name;
    return PARE_OK;
}

static pare_status list_tensors(loop *l, pare_model *student)
{
    const pare_weights *w = &l->t.weights;
    const float *values = w->ema ? w->ema : w->value;
    if (!l->t.options.event_tensors) return PARE_OK;
    l->tensors = pare_arena_alloc(&student->arena, (size_t)w->trained + 1, sizeof *l->tensors);
    if (!l->tensors) return PARE_MEMORY;
    for (int i = 0; i < w->trained; i++)
        l->tensors[i] = (pare_distill_tensor){.name = w->item[i].name,
                                              .value = values + w->item[i].at,
                                              .gradient = w->gradient + w->item[i].at,
                                              .count = w->item[i].tensor->count};
    return PARE_OK;
}

/* Sums over ranks in which a batch would be reduced: of GPUs from GPU to GPU. */
static int64_t reductions_of(const pare_trainer *t)
{
    const size_t floats = pare_weights_trained_floats(&t->weights);
    if (t->weights.on_device) return pare_device_overlap_sums(&t->learning, &t->weights);
    return (int64_t)((floats + PARE_GRADIENT_BUCKET - 1) / PARE_GRADIENT_BUCKET);
}

/* Each batch of a step is reduced; start is what the caller knows. */
static pare_scaling_job scaling_of(const loop *l)
{
    const pare_trainer *t = &l->t;
    const int64_t timed = l->timed - 1, batches = t->options.accumulate;
    if (timed < 1 || t->pipeline) return (pare_scaling_job){0};
    return (pare_scaling_job){.steps = t->steps * batches,
                              .parts = t->microbatch_count,
                              .part = l->learning / (double)(timed * batches) /
                                      (double)t->microbatch_count,
                              .each = l->updating / (double)(timed * batches),
                              .bytes = pare_weights_trained_floats(&t->weights) * sizeof(float),
                              .reductions = reductions_of(t)};
}

/* The best weights, in the student. */
static pare_status store(const loop *l, pare_model *student, const float *best)
{
    const pare_weights *w = pare_trainer_all_weights(&l->t);
    pare_tensor **tensors;
    PARE_TRY(pare_weights_pack(w, student, best, &tensors));
    pare_weights_store(w, student, tensors);
    return PARE_OK;
}

/* The tensors of a student that rank 0 makes. */
typedef struct packing {
    const pare_weights *weights;
    pare_model *student;
    pare_tensor **tensors;
} packing;

static pare_status pack_weight(void *user, int weight, const float *x)
{
    const packing *p = user;
    return pare_weights_pack_one(&p->weights->item[weight], p->student, x, &p->tensors[weight]);
}

/* By pipeline rank 0 gets them one by one, when no rank holds more than its best weights. */
static pare_status store_stages(loop *l, pare_model *student)
{
    pare_trainer *t = &l->t;
    packing p = {.weights = &t->stage->all, .student = student};
    pare_status st = pare_weights_pack_list(p.weights, student, &p.tensors);
    PARE_TRY(pare_comm_settle(t->options.comm, st));
    pare_trainer_end_steps(t);
    st = pare_stage_weights_gather(t, t->weights.best, pack_weight, &p);
    if (st == PARE_OK && !pare_comm_rank(t->options.comm))
        pare_weights_store(p.weights, student, p.tensors);
    return pare_comm_settle(t->options.comm, st);
}

static pare_status finish(loop *l, pare_distill_result *r, pare_model *student)
{
    *r = (pare_distill_result){.end = l->end,
                               .steps = l->s.step,
                               .best_step = l->s.best_step,
                               .batch = l->t.batch,
                               .train_samples = l->t.sample_count,
                               .held_out = l->t.held_count,
                               .skipped = l->s.skipped,
                               .weights = pare_trainer_all_weights(&l->t)->trained,
                               .scaling = scaling_of(l),
                               .estimated = (int)l->s.estimated,
                               .zeros = l->zeros,
                               .zero_count = l->zero_count,
                               .before = l->s.before,
                               .after = l->s.best,
                               .resumed = l->keeper.resumed,
                               .checkpoint = l->keeper.kept};
    pare_hash_text(l->s.data, r->data_hash);
    memcpy(r->transport, l->t.sums.transport, sizeof r->transport);
    return l->t.stage ? store_stages(l, student) : store(l, student, l->t.weights.best);
}

pare_status pare_distill(pare_ctx *ctx, pare_distill_result *out, const pare_model *teacher,
                         pare_model *student, pare_data *data, const pare_distill_options *options)
{
    loop l = {.t = {.ctx = ctx,
                    .options = *options,
                    .teacher_file = teacher,
                    .student = student,
                    .data = data}};
    *out = (pare_distill_result){.resumed = -1, .checkpoint = -1};
    pare_status st = pare_comm_rank(options->comm)
                         ? PARE_OK
                         : pare_checkpointer_check(ctx, &options->checkpoint);
    if (st == PARE_OK) st = begin(&l);
    st = pare_comm_settle(options->comm, st);
    if (st == PARE_OK) st = list_zeros(&l, student);
    if (st == PARE_OK) st = list_tensors(&l, student);
    if (st == PARE_OK) st = run_until_stopped(&l);
    if (st == PARE_OK) st = finish(&l, out, student);
    if (pare_trainer_is_pipeline(&l.t)) st = pare_comm_settle(options->comm, st);
    if (st == PARE_INTERRUPTED && l.keeper.trainer) out->checkpoint = l.keeper.kept;
    pare_checkpointer_free(&l.keeper);
    pare_trainer_free(&l.t);
    return st;
}
