/* SPDX-License-Identifier: Apache-2.0 */
/* What a training holds: which samples, how many steps, graphs, plans, runners. */
#include "distill/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SLICES = 8, HELD_OUT = 50 }; /* one of HELD_OUT samples is held out */

/* --- microbatches --- */

bool pare_trainer_is_pipeline(const pare_trainer *t)
{
    return t->options.comm && t->options.pipeline;
}

/* Ranks get blocks of microbatches that are subtrees of the sum over them. */
static pare_status share_microbatches(pare_trainer *t)
{
    t->own_count = t->microbatch_count;
    if (pare_trainer_is_pipeline(t)) return PARE_OK;
    const int ranks = pare_comm_size(t->options.comm), own = t->microbatch_count / ranks;
    if (t->microbatch_count % ranks || (ranks > 1 && own & (own - 1)))
        return PARE_FAIL(t->ctx, USAGE,
                         "%s: %d processes cannot share the %d microbatch%s of a batch of %" PRId64
                         ": so that each has as many, and a power of two; choose another number of "
                         "processes%s",
                         t->student->path, ranks, t->microbatch_count,
                         t->microbatch_count == 1 ? "" : "es", t->batch,
                         t->microbatch_count == SLICES ? "" : " or another --batch");
    t->own_count = own;
    t->own_first = own * pare_comm_rank(t->options.comm);
    return PARE_OK;
}

/* Of a student with a batch of its own: that. Else the largest number of microbatches up to 8 that
   cuts the batch into equal ones which the teacher can take. */
static pare_status choose_microbatches(pare_trainer *t)
{
    int64_t fixed, teacher;
    PARE_TRY(pare_data_need_batch(t->ctx, t->data, "training"));
    if (t->options.held_out)
        PARE_TRY(pare_data_need_batch(t->ctx, t->options.held_out, "training"));
    PARE_TRY(pare_data_run_samples(t->ctx, t->data, t->student, &fixed));
    PARE_TRY(pare_data_run_samples(t->ctx, t->data, t->teacher_file, &teacher));
    t->batch = t->options.batch;
    t->microbatch_count = SLICES;
    if (fixed) {
        int64_t count = t->batch / fixed > 0 ? t->batch / fixed : 1;
        t->batch = count * fixed;
        t->microbatch_count = (int)count;
    }
    while (
        !fixed && t->microbatch_count > 1 &&
        (t->batch % t->microbatch_count || (teacher && t->batch / t->microbatch_count % teacher)))
        t->microbatch_count--;
    t->rows = t->batch / t->microbatch_count;
    return share_microbatches(t);
}

pare_status pare_distill_check_ranks(pare_ctx *ctx, const pare_model *teacher,
                                     const pare_model *student, pare_data *data,
                                     const pare_distill_options *options)
{
    pare_trainer t = {
        .ctx = ctx, .options = *options, .teacher_file = teacher, .student = student, .data = data};
    return options->comm ? choose_microbatches(&t) : PARE_OK;
}

static void warn_batch(const pare_trainer *t)
{
    if (t->batch != t->options.batch)
        pare_log(t->ctx, PARE_LOG_WARNING,
                 "%s: its batch is fixed to %" PRId64 "; batches have %" PRId64
                 " samples instead of %" PRId64,
                 t->student->path, t->rows, t->batch, t->options.batch);
}

/* --- samples --- */

static pare_status few_samples(const pare_trainer *t, int64_t count)
{
    return PARE_FAIL(t->ctx, INPUT,
                     "%s: %" PRId64 " sample%s too few for batches of %" PRId64
                     " with some held out; give more, or a smaller --batch",
                     pare_data_path(t->data), count, count == 1 ? " is" : "s are", t->batch);
}

/* Every so many samples, evenly spread, are held out; the others are trained on. */
static pare_status split_samples(pare_trainer *t, const int64_t *all, int64_t count)
{
    int64_t held = (count + HELD_OUT - 1) / HELD_OUT, next = 0;
    held = (held + t->rows - 1) / t->rows * t->rows;
    if (held > count / 2) held = count / 2 / t->rows * t->rows;
    if (!held) return few_samples(t, count);
    t->held_sample = pare_alloc(t->ctx, (size_t)held, sizeof *t->held_sample);
    if (!t->held_sample) return PARE_MEMORY;
    pare_data_spread(0, count, held, t->held_sample);
    for (int64_t i = 0; i < count; i++)
        if (next < held && t->held_sample[next] == i)
            t->held_sample[next++] = all ? all[i] : i;
        else
            t->sample[t->sample_count++] = all ? all[i] : i;
    t->held_out = t->data;
    t->held_count = held;
    return PARE_OK;
}

/* All of a data set of its own, or those that are named, as far as they fill microbatches. */
static pare_status take_held_out(pare_trainer *t, pare_data *data, const int64_t *named,
                                 int64_t all)
{
    int64_t count = all / t->rows * t->rows;
    if (!count)
        return PARE_FAIL(t->ctx, INPUT,
                         "%s: %" PRId64 " held-out sample%s too few: %" PRId64
                         " are run at a time; give more, or a smaller --batch",
                         pare_data_path(data), all, all == 1 ? " is" : "s are", t->rows);
    if (count < all)
        pare_log(t->ctx, PARE_LOG_INFO,
                 "%s: %" PRId64 " of %" PRId64 " held-out samples are used: %" PRId64
                 " are run at a time",
                 pare_data_path(data), count, all, t->rows);
    t->held_sample = pare_alloc(t->ctx, (size_t)count, sizeof *t->held_sample);
    if (!t->held_sample) return PARE_MEMORY;
    for (int64_t i = 0; i < count; i++) t->held_sample[i] = named ? named[i] : i;
    t->held_out = data;
    t->held_count = count;
    return PARE_OK;
}

static pare_status split_or_take(pare_trainer *t)
{
    const pare_distill_options *o = &t->options;
    const int64_t *all = o->samples;
    int64_t count = all ? o->sample_count : pare_data_count(t->data);
    t->sample = pare_alloc(t->ctx, (size_t)count + 1, sizeof *t->sample);
    if (!t->sample) return PARE_MEMORY;
    if (!count)
        return PARE_FAIL(t->ctx, INPUT, "%s: there are no samples to train on",
                         pare_data_path(t->data));
    if (!o->held_out && !o->held_sample) return split_samples(t, all, count);
    for (int64_t i = 0; i < count; i++) t->sample[t->sample_count++] = all ? all[i] : i;
    if (!o->held_out) return take_held_out(t, t->data, o->held_sample, o->held_count);
    return take_held_out(t, o->held_out, NULL, pare_data_count(o->held_out));
}

static pare_status choose_samples(pare_trainer *t)
{
    PARE_TRY(split_or_take(t));
    if (t->sample_count < t->batch)
        pare_log(t->ctx, PARE_LOG_WARNING,
                 "%s: a batch has %" PRId64 " samples, but there are %" PRId64
                 " to train on: it has some of them more than once",
                 pare_data_path(t->data), t->batch, t->sample_count);
    return PARE_OK;
}

/* --- labels --- */

static bool are_wanted(const pare_trainer *t)
{
    for (int i = 0; i < t->options.loss.count; i++)
        if (t->options.loss.term[i].kind == PARE_TERM_CE) return true;
    return false;
}

static pare_status need_labels(const pare_trainer *t)
{
    const pare_data *const all[] = {t->data, t->held_out};
    for (int i = 0; i < 2 && are_wanted(t); i++)
        if (!pare_data_labels(all[i]))
            return PARE_FAIL(t->ctx, INPUT,
                             "%s: there is no dataset '/labels', which the loss ce needs: a class "
                             "number per sample",
                             pare_data_path(all[i]));
    return PARE_OK;
}

/* The first sample whose label is beyond the output's classes, or -1. */
static int64_t find_wrong(const pare_trainer *t, const pare_data *data, const int64_t *sample,
                          int64_t count)
{
    const int64_t *label = pare_data_labels(data);
    for (int64_t i = 0; i < count; i++)
        if (label[sample[i]] >= t->check.nodes.classes) return sample[i];
    return -1;
}

static pare_status check(const pare_trainer *t, const pare_data *data, const int64_t *sample,
                         int64_t count)
{
    const int64_t wrong = find_wrong(t, data, sample, count);
    if (wrong < 0) return PARE_OK;
    return PARE_FAIL(t->ctx, INPUT,
                     "%s: dataset '/labels': sample %" PRId64 " has label %" PRId64
                     ", but output '%s' of %s has %" PRId64 " classes",
                     pare_data_path(data), wrong, pare_data_labels(data)[wrong],
                     t->student->graph->out.item[0]->name, t->student->path,
                     t->check.nodes.classes);
}

/* Labels that the loss does not need may be those of another task. */
static bool can_judge(const pare_trainer *t)
{
    if (!pare_data_has_labels(t->held_out) || !t->check.nodes.logits) return false;
    const int64_t wrong = find_wrong(t, t->held_out, t->held_sample, t->held_count);
    if (wrong >= 0)
        pare_log(t->ctx, PARE_LOG_WARNING,
                 "%s: dataset '/labels': sample %" PRId64 " has label %" PRId64
                 ", but output '%s' of %s has %" PRId64
                 " classes; held-out samples are judged without labels",
                 pare_data_path(t->held_out), wrong, pare_data_labels(t->held_out)[wrong],
                 t->check.nodes.logits, t->student->path, t->check.nodes.classes);
    return wrong < 0;
}

static pare_status check_labels(pare_trainer *t)
{
    if (are_wanted(t)) {
        PARE_TRY(check(t, t->data, t->sample, t->sample_count));
        PARE_TRY(check(t, t->held_out, t->held_sample, t->held_count));
    }
    t->held_labels = can_judge(t);
    return PARE_OK;
}

/* --- steps --- */

static pare_status choose_steps(pare_trainer *t)
{
    pare_distill_options *o = &t->options;
    const int64_t of_step = t->batch * o->accumulate; /* samples */
    const double of_epoch = (double)t->sample_count / (double)of_step;
    t->steps = o->steps > 0 ? o->steps : (int64_t)ceil(o->epochs * of_epoch);
    if (t->steps < 1) t->steps = 1;
    if (t->steps > (INT64_MAX - o->start) / of_step)
        return PARE_FAIL(t->ctx, USAGE,
                         "%" PRId64 " steps of %" PRId64
                         " samples are more samples than can be counted; give fewer steps",
                         t->steps, of_step);
    if (o->warmup < 0) o->warmup = t->steps / 50;
    if (o->validate_every < 1) o->validate_every = (int64_t)ceil(of_epoch / 4);
    t->optimizer = (pare_optimizer){o->optimizer, o->beta1, o->beta2, o->epsilon, o->momentum};
    t->schedule = (pare_schedule){o->schedule, o->learning_rate, t->steps, o->warmup};
    return PARE_OK;
}

/* --- the stream of samples --- */

/* A mixed image is made of two samples of a batch, which may be of different ranks. A pipeline's
   ranks all work on every sample. */
bool pare_trainer_reads_all(const pare_trainer *t)
{
    return !t->options.comm || t->options.pipeline || t->options.augment.mixup > 0;
}

static pare_status open_stream(pare_trainer *t, int64_t step)
{
    const pare_distill_options *o = &t->options;
    const int64_t samples = o->accumulate * t->batch;
    const bool whole = pare_trainer_reads_all(t);
    const int64_t first = whole ? 0 : t->own_first * t->rows;
    const pare_loader_options options = {.seed = o->seed,
                                         .samples = t->sample,
                                         .count = t->sample_count,
                                         .start = o->start + step * samples + first,
                                         .end = o->start + t->steps * samples,
                                         .every = t->batch,
                                         .batch = (int)(whole ? t->batch : t->own_count * t->rows),
                                         .threads = o->threads};
    PARE_TRY(pare_augmented_open(t->ctx, &t->augmented, &o->augment, o->seed, t->student, t->data,
                                 t->own_count, t->rows));
    if (whole) t->augmented.first = t->own_first;
    return pare_loader_open(t->ctx, &t->stream, t->data, &options);
}

/* A mixed image has no label. */
static pare_status check_terms(const pare_trainer *t)
{
    for (int i = 0; i < t->options.loss.count && t->options.augment.mixup > 0; i++)
        if (t->options.loss.term[i].kind == PARE_TERM_CE)
            return PARE_FAIL(t->ctx, USAGE,
                             "the loss has ce, and mixup makes images that no label belongs to; "
                             "expected one of the two");
    return PARE_OK;
}

/* --- graphs --- */

static pare_status check_precision(const pare_trainer *t)
{
    if (t->options.precision != PARE_TRAIN_FP16 || t->options.device) return PARE_OK;
    return PARE_FAIL(t->ctx, UNSUPPORTED,
                     "precision fp16 is for training on a GPU; the CPU trains in f32 or bf16");
}

static pare_status make_late(pare_trainer *t)
{
    const pare_graph_options options = {.loss = &t->options.loss,
                                        .learn = true,
                                        .precision = t->options.precision,
                                        .later = true,
                                        .rows = t->rows};
    return pare_train_graph_new(t->ctx, &t->late, t->student, &t->teacher, &t->weights, t->data,
                                &options);
}

/* What a pipeline cannot do. */
static pare_status check_pipeline(const pare_trainer *t)
{
    if (pare_comm_size(t->options.comm) > PARE_MOST_STAGES)
        return PARE_FAIL(t->ctx, UNSUPPORTED, "%s: %d stages, more than %d", t->student->path,
                         pare_comm_size(t->options.comm), PARE_MOST_STAGES);
    if (t->options.event_tensors)
        return PARE_FAIL(t->ctx, UNSUPPORTED,
                         "by pipeline no process has all tensors that a histogram is made of");
    return PARE_OK;
}

static pare_status make_stages(pare_trainer *t)
{
    if (t->learn.norm_count)
        return PARE_FAIL(t->ctx, UNSUPPORTED,
                         "%s: %d BatchNormalization node%s the statistics of whole batches, of "
                         "which a pipeline runs parts; freeze them (--bn frozen)",
                         t->student->path, t->learn.norm_count,
                         t->learn.norm_count == 1 ? " uses" : "s use");
    return pare_stage_weights_open(t);
}

static pare_status make_graphs(pare_trainer *t)
{
    pare_graph_options options = {.loss = &t->options.loss,
                                  .learn = true,
                                  .precision = t->options.precision,
                                  .norms = t->options.batchnorm != PARE_BATCHNORM_FROZEN,
                                  .rows = t->rows};
    PARE_TRY(pare_teacher_open(t->ctx, &t->teacher, t->teacher_file, t->student, t->data, t->rows));
    PARE_TRY(pare_weights_find(t->ctx, &t->weights, t->student));
    PARE_TRY(pare_weights_add_scales(&t->weights, t->student, &t->options));
    PARE_TRY(pare_train_graph_new(t->ctx, &t->learn, t->student, &t->teacher, &t->weights, t->data,
                                  &options));
    if (t->options.batchnorm == PARE_BATCHNORM_HALF && t->learn.norm_count) PARE_TRY(make_late(t));
    options.learn = options.norms = false;
    options.precision = PARE_TRAIN_F32;
    PARE_TRY(pare_train_graph_new(t->ctx, &t->check, t->student, &t->teacher, &t->weights, t->data,
                                  &options));
    return pare_trainer_is_pipeline(t) ? make_stages(t) : PARE_OK;
}

/* What lasts as long as the training does, where it runs: runners, and what plans hold. *here: of
   the host in any case. */
static size_t running_bytes(const pare_trainer *t, size_t *here)
{
    const pare_microbatches *const of[] = {&t->learning, &t->checking};
    size_t bytes = 0;
    if (t->pipeline) return pare_train_pipeline_bytes(t->pipeline, here);
    for (int i = 0; i < 2; i++) {
        const pare_plan *plan = of[i]->graph->plan;
        bytes += (size_t)pare_replicas_count(of[i]->pool) * pare_plan_activation_bytes(plan);
        if (t->options.device) bytes += pare_plan_weight_bytes(plan);
    }
    if (t->teacher.plan)
        bytes += (size_t)pare_replicas_count(t->teacher.pool) *
                     pare_plan_activation_bytes(t->teacher.plan) +
                 pare_plan_weight_bytes(t->teacher.plan);
    return bytes;
}

static void report_memory(const pare_trainer *t)
{
    const pare_weights *w = &t->weights;
    const int blocks =
        4 + (w->exp_avg_sq != NULL) + (w->ema != NULL) + (w->waiting ? w->levels : 0);
    size_t here = (size_t)blocks * w->floats * sizeof(float), there = 0;
    if (t->stream) here += pare_loader_bytes(t->stream);
    const size_t running = running_bytes(t, &here);
    if (t->options.device)
        there = running + w->on_device->bytes + t->sums.room;
    else
        here += running;
    t->options.planned(t->options.planned_user, here, there);
}

/* The blocks that graphs read on a device. */
static float *trained_there(const pare_weights *w)
{
    return w->on_device ? w->on_device->blocks.value : NULL;
}

static float *checked_there(const pare_weights *w)
{
    return w->on_device ? w->on_device->check : NULL;
}

static pare_status plan_stages(pare_trainer *t)
{
    const pare_stage_split split = pare_stage_weights_split(t->stage);
    const pare_weights *w = &t->weights;
    const pare_graph_stage of = {pare_comm_rank(t->options.comm), pare_comm_size(t->options.comm),
                                 &split};
    PARE_TRY(pare_train_graph_plan_stage(&t->learn, w, trained_there(w), &of));
    PARE_TRY(pare_train_graph_plan_stage(&t->check, w, checked_there(w), &of));
    return pare_teacher_ready_stage(&t->teacher, of.stage, of.stages, t->options.device);
}

/* Rank 0 names those of all ranks. */
static pare_status keep_zeros(pare_trainer *t)
{
    const double from = t->options.zeros_from;
    if (t->options.train_zeros) return PARE_OK;
    if (!pare_comm_rank(t->options.comm))
        pare_weights_log_sparsity(pare_trainer_all_weights(t), from, t->student->path);
    return pare_weights_keep_sparsity(&t->weights, from);
}

static pare_status make_plans(pare_trainer *t)
{
    pare_weights *w = &t->weights;
    PARE_TRY(keep_zeros(t));
    w->microbatches = t->own_count;
    w->batches = t->options.accumulate;
    PARE_TRY(pare_weights_open(w, &t->options));
    if (t->stage) return plan_stages(t);
    PARE_TRY(pare_train_graph_plan(&t->learn, w, trained_there(w)));
    if (t->late.model) PARE_TRY(pare_train_graph_plan(&t->late, w, trained_there(w)));
    return pare_train_graph_plan(&t->check, w, checked_there(w));
}

static pare_status make_microbatches(pare_trainer *t)
{
    PARE_TRY(pare_rank_sums_open(t->ctx, &t->sums, t->options.comm, t->options.device,
                                 pare_weights_trained_floats(&t->weights)));
    PARE_TRY(pare_teacher_ready(&t->teacher, t->options.device ? 1 : t->options.threads,
                                t->options.device));
    PARE_TRY(pare_microbatches_open(t, &t->learning, &t->learn));
    return pare_microbatches_open(t, &t->checking, &t->check);
}

pare_status pare_trainer_open(pare_trainer *t)
{
    if (t->options.threads < 1) t->options.threads = pare_cpu_cores();
    PARE_TRY(check_terms(t));
    PARE_TRY(check_precision(t));
    if (pare_trainer_is_pipeline(t)) PARE_TRY(check_pipeline(t));
    PARE_TRY(choose_microbatches(t));
    warn_batch(t);
    PARE_TRY(choose_samples(t));
    PARE_TRY(need_labels(t));
    PARE_TRY(choose_steps(t));
    PARE_TRY(make_graphs(t));
    PARE_TRY(check_labels(t));
    const pare_status st = make_plans(t);
    if (!pare_trainer_is_pipeline(t)) return st == PARE_OK ? make_microbatches(t) : st;
    PARE_TRY(pare_comm_settle(t->options.comm, st));
    return pare_train_pipeline_open(t);
}

pare_status pare_trainer_start(pare_trainer *t, int64_t step)
{
    if (step < t->steps) PARE_TRY(open_stream(t, step));
    if (t->pipeline && t->options.stages)
        PARE_TRY(
            t->options.stages(t->options.planned_user, pare_train_pipeline_planned(t->pipeline)));
    if (t->options.planned) report_memory(t);
    return t->weights.on_device ? pare_device_weights_upload(t->weights.on_device) : PARE_OK;
}

/* The graph of frozen statistics learns in the other one's place. */
static pare_status freeze_norms(pare_trainer *t)
{
    pare_microbatches_free(&t->learning);
    if (t->weights.on_device) PARE_TRY(pare_device_weights_upload_statistics(t->weights.on_device));
    return pare_microbatches_open(t, &t->learning, &t->late);
}

pare_status pare_trainer_begin_step(pare_trainer *t, int64_t step)
{
    const bool begun = t->learning.graph == &t->late;
    return t->late.plan && !begun && step >= (t->steps + 1) / 2 ? freeze_norms(t) : PARE_OK;
}

void pare_trainer_end_steps(pare_trainer *t)
{
    pare_loader_close(t->stream);
    t->stream = NULL;
    pare_augmented_free(&t->augmented);
    pare_train_pipeline_free(t->pipeline);
    t->pipeline = NULL;
    pare_microbatches_free(&t->checking);
    pare_microbatches_free(&t->learning);
    pare_rank_sums_close(&t->sums);
    pare_train_graph_free(&t->check);
    pare_train_graph_free(&t->learn);
    pare_train_graph_free(&t->late);
    pare_weights_keep_best(&t->weights);
    pare_teacher_free(&t->teacher);
}

void pare_trainer_free(pare_trainer *t)
{
    pare_trainer_end_steps(t);
    pare_stage_weights_free(t->stage);
    pare_weights_free(&t->weights);
    pare_free(t->held_sample);
    pare_free(t->sample);
}
