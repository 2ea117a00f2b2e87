/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/prune/tune.h"

#include "runtime/ops/infer.h"
#include "tools/check_output.h"
#include "tools/distill/log.h"
#include "tools/telemetry.h"
#include "tools/text.h"

#include <string.h>

/* --- samples --- */

/* Samples that are run at a time: training holds out whole lots. */
static int64_t lot_of(const pare_tuning *t, const pare_model *model)
{
    enum { SLICES = 8 };
    const pare_values *in = &model->graph->in;
    const int64_t batch = t->options.batch;
    for (int i = 0; i < in->count; i++)
        if (!in->item[i]->is_init && in->item[i]->shape.rank > 0 && in->item[i]->shape.dim[0] > 0)
            return in->item[i]->shape.dim[0];
    return batch % SLICES ? batch : batch / SLICES;
}

/* Every so many samples of the source are held out, the others are trained on. */
static pare_status split(pare_tuning *t, const pare_model *model, const pare_source *source)
{
    enum { ONE_OF = 50 };
    const int64_t lot = lot_of(t, model), all = source->count;
    int64_t held = ((all + ONE_OF - 1) / ONE_OF + lot - 1) / lot * lot;
    if (held > all / 2) held = all / 2;
    t->held = pare_arena_alloc(&t->tool->arena, (size_t)held + 1, sizeof *t->held);
    t->sample = pare_arena_alloc(&t->tool->arena, (size_t)all, sizeof *t->sample);
    if (!t->held || !t->sample) return PARE_MEMORY;
    pare_data_spread(0, all, held, t->held);
    for (int64_t i = 0; i < all; i++)
        if (t->held_count < held && t->held[t->held_count] == i)
            t->held[t->held_count++] = source->samples[i];
        else
            t->sample[t->sample_count++] = source->samples[i];
    return PARE_OK;
}

/* Pruning looks at some of those that are trained on. */
static pare_status choose(pare_tuning *t, pare_source *source, int64_t wanted)
{
    if (wanted > t->sample_count) wanted = t->sample_count;
    source->samples = pare_arena_alloc(&t->tool->arena, (size_t)wanted + 1, sizeof *t->sample);
    if (!source->samples) return PARE_MEMORY;
    pare_data_spread(0, t->sample_count, wanted, source->samples);
    for (int64_t i = 0; i < wanted; i++) source->samples[i] = t->sample[source->samples[i]];
    source->count = wanted;
    return PARE_OK;
}

/* --- checkpoints and TensorBoard --- */

/* "0.5-step-1", of a sweep; else "step-1". NULL: out of memory. */
static const char *name_of(pare_tuning *t, int64_t step)
{
    return pare_arena_printf(&t->tool->arena, "%sstep-%lld", t->of_sweep, (long long)step);
}

static pare_status name_checkpoint(pare_tuning *t, int64_t step)
{
    const pare_prune_options *o = t->o;
    const char *const outputs[] = {o->output, o->report, o->common.json};
    const char *name = name_of(t, step);
    if (name) name = pare_arena_printf(&t->tool->arena, "%s.pare", name);
    if (!name) return PARE_MEMORY;
    return pare_checkpoint_at(t->tool, &o->checkpoint, name, outputs,
                              sizeof outputs / sizeof *outputs, &t->options.checkpoint);
}

/* A folder for each training: TensorBoard shows it as a run of its own. *folder: NULL where none is
   asked for. */
static pare_status make_tensorboard(pare_tuning *t, int64_t step, const char **folder)
{
    const char *name = name_of(t, step), *all = t->o->tensorboard;
    *folder = NULL;
    if (!all || !pare_tool_leads(t->tool)) return PARE_OK;
    if (name) *folder = pare_arena_printf(&t->tool->arena, "%s/%s", all, name);
    if (!*folder) return PARE_MEMORY;
    PARE_TRY(pare_tensorboard_prepare(t->tool->ctx, all));
    return pare_tensorboard_prepare(t->tool->ctx, *folder);
}

/* --- options --- */

/* One output with a row of classes a sample. */
static bool is_classifier(const pare_model *model)
{
    const pare_values *out = &model->graph->out;
    const pare_shape *shape = out->count == 1 ? &out->item[0]->shape : NULL;
    return shape && shape->rank >= 2 && shape->dim[1] >= 2 &&
           pare_shape_product(shape, 2, shape->rank) == 1;
}

static void planned(void *user, size_t bytes, size_t device_bytes)
{
    const pare_tuning *t = user;
    if (json_array_size(t->steps)) return;
    pare_log_memory(t->tool, bytes);
    if (device_bytes) pare_log_device_memory(t->tool, device_bytes);
}

static pare_status read_options(pare_tuning *t, const pare_model *model)
{
    const pare_prune_options *o = t->o;
    pare_distill_options *d = &t->options;
    pare_distill_options_init(d);
    d->learning_rate = pare_distill_learning_rate(model);
    PARE_TRY(pare_training_read(t->tool, &t->spec.training, is_classifier(model) ? "kl:2" : "mse",
                                d, &t->loss));
    t->rate = d->learning_rate;
    if (pare_is_given(t->tool, "seed")) d->seed = (uint64_t)o->seed;
    d->zeros_from = 0;
    d->threads = (int)o->common.threads;
    d->planned = planned;
    d->planned_user = t;
    d->comm = t->tool->comm;
    d->event = pare_tool_leads(t->tool) ? pare_distill_log_event : NULL;
    d->event_tensors = o->tensorboard != NULL;
    return PARE_OK;
}

pare_status pare_tuning_open(pare_tuning *t, pare_tool *tool, const pare_prune_options *o,
                             const pare_model *model, pare_source *source)
{
    enum { DEFAULT_SAMPLES = 512 };
    pare_source_options options = o->source;
    const int64_t wanted = options.samples >= 0 ? options.samples : DEFAULT_SAMPLES;
    *t = (pare_tuning){.tool = tool, .o = o, .wanted = o->distill != NULL};
    if (o->distill) PARE_TRY(pare_training_parse(tool, o->distill, &t->spec));
    if (!o->source.data) return PARE_OK;
    if (t->wanted && wanted) options.samples = options.shuffle = -1;
    PARE_TRY(pare_source_open(tool, source, model, &options, t->wanted ? -1 : DEFAULT_SAMPLES));
    pare_source_sort(source);
    if (!t->wanted) return PARE_OK;
    t->data = source->data;
    PARE_TRY(read_options(t, model));
    if (pare_tool_leads(tool)) {
        PARE_TRY(pare_tensorboard_prepare(tool->ctx, o->tensorboard));
        PARE_TRY(pare_checkpoint_prepare(tool, &o->checkpoint));
    }
    PARE_TRY(name_checkpoint(t, 1));
    PARE_TRY(split(t, model, source));
    t->options.samples = t->sample;
    t->options.sample_count = t->sample_count;
    t->options.held_sample = t->held;
    t->options.held_count = t->held_count;
    PARE_TRY(pare_distill_check_ranks(tool->ctx, model, model, t->data, &t->options));
    return choose(t, source, wanted);
}

void pare_tuning_close(pare_tuning *t)
{
    json_decref(t->steps);
    t->steps = NULL;
    pare_output_discard(t->room);
    t->room = NULL;
}

pare_status pare_tuning_begin(pare_tuning *t, double value, uint64_t bytes)
{
    pare_tuning_close(t);
    t->of_sweep[0] = 0;
    if (t->o->sweep) snprintf(t->of_sweep, sizeof t->of_sweep, "%.10g-", value);
    t->read = (pare_hash){0};
    t->seconds = 0;
    t->trained = t->options.start = 0;
    if (!t->wanted) return PARE_OK;
    t->steps = json_array();
    if (!t->steps) return PARE_MEMORY;
    if (!t->o->output || !pare_tool_leads(t->tool)) return PARE_OK;
    return pare_output_reserve(t->tool->ctx, &t->room, t->o->output, bytes);
}

/* --- training --- */

/* The step into the facts, and a line for people. */
static void note(pare_tuning *t, const pare_distill_result *r, int64_t step, double kept,
                 const char *of)
{
    char before[120], after[120];
    pare_hash hash = {0};
    (void)pare_hash_parse(r->data_hash, &hash);
    t->read = pare_hash_sum(t->read, hash);
    t->last = *r;
    json_t *row = json_pack("{s:f}", "kept", kept);
    json_object_update_new(row, pare_training_json(r));
    json_array_append_new(t->steps, row);
    if (!t->o->common.quiet)
        pare_print(stderr,
                   "step %lld of %lld, %.1f %% of the %s left: %s before training, %s after\n",
                   (long long)step, (long long)t->o->steps, 100 * kept, of,
                   pare_distill_score_text(&r->before, before, sizeof before),
                   pare_distill_score_text(&r->after, after, sizeof after));
}

/* The best so far is a result where it is of the size that was asked for. Ranks all hear of a stop
   that one of them was asked for. */
static pare_status hear_stop(const pare_tuning *t, const pare_distill_result *r, int64_t step)
{
    pare_ctx *ctx = t->tool->ctx;
    if (r->end != PARE_DISTILL_INTERRUPTED) return PARE_OK;
    if (step < t->o->steps || t->o->sweep) return PARE_FAIL(ctx, INTERRUPTED, "interrupted");
    ctx->interrupted = NULL;
    return PARE_OK;
}

static pare_status say_unfinished(const pare_tuning *t, pare_status st, int64_t step)
{
    return pare_fail_prefix(
        t->tool->ctx, st,
        "%s: nothing is written in step %lld of %lld, before the last has trained", t->tool->arg[0],
        (long long)step, (long long)t->o->steps);
}

/* The part of all epochs that a step gets. The last one's model is the result, and has lost the
   most: three quarters are its. */
static double share_of(const pare_tuning *t, int64_t step)
{
    const double last = 0.75, before = (double)t->o->steps - 1;
    if (before < 1) return 1;
    return step == t->o->steps ? last : (1 - last) / before;
}

/* A rate that a long training anneals from would, in a short one, move a net that is nearly right
   farther away than the steps that are left bring it back: shorter ones get less in proportion. */
static void settle_step(pare_tuning *t, int64_t step)
{
    t->options.epochs = t->spec.epochs * share_of(t, step);
    t->options.learning_rate = t->rate * (share_of(t, step) / share_of(t, t->o->steps));
}

pare_status pare_tuning_run(pare_tuning *t, const pare_model *teacher, pare_model *student,
                            int64_t step, double kept, const char *of)
{
    pare_distill_log log;
    pare_distill_result result;
    const char *tensorboard;
    if (!t->wanted) return PARE_OK;
    PARE_TRY(make_tensorboard(t, step, &tensorboard));
    pare_distill_log_open(&log, t->tool, NULL, tensorboard);
    const char *label = pare_arena_printf(&t->tool->arena, "distill %lld/%lld", (long long)step,
                                          (long long)t->o->steps);
    if (label) log.bar.label = label;
    t->options.event_user = &log;
    t->options.device = t->tool->device;
    settle_step(t, step);
    PARE_TRY(name_checkpoint(t, step));
    if (step == 1) pare_checkpoint_log_none(t->tool, &t->options.checkpoint);
    pare_status st = pare_distill(t->tool->ctx, &result, teacher, student, t->data, &t->options);
    if (pare_distill_log_close(&log) != PARE_OK && st == PARE_OK) st = PARE_IO;
    if (st == PARE_OK) st = hear_stop(t, &result, step);
    if (st == PARE_INTERRUPTED || result.end == PARE_DISTILL_INTERRUPTED)
        pare_checkpoint_log(t->tool, &t->options.checkpoint, result.checkpoint);
    if (st == PARE_INTERRUPTED) return say_unfinished(t, st, step);
    if (st != PARE_OK) return st;
    if (step == t->o->steps) {
        pare_output_discard(t->room);
        t->room = NULL;
    }
    t->options.start += result.steps * result.batch * t->options.accumulate;
    t->seconds += log.seconds;
    t->trained += log.samples;
    note(t, &result, step, kept, of);
    return PARE_OK;
}

pare_status pare_tuning_end(const pare_tuning *t)
{
    if (!t->wanted || t->last.end != PARE_DISTILL_INTERRUPTED) return PARE_OK;
    return PARE_FAIL(t->tool->ctx, MISSED,
                     "%s: interrupted: it holds the best of %lld step%s of the last training",
                     t->o->output, (long long)t->last.steps, t->last.steps == 1 ? "" : "s");
}

/* --- what is said of it --- */

void pare_tuning_put(const pare_tuning *t, json_t *row)
{
    if (!t->wanted) return;
    json_object_set_new(
        row, "distilled",
        json_pack("{s:f, s:s, s:f, s:I, s:I, s:I, s:I, s:f, s:O}", "epochs", t->spec.epochs, "loss",
                  t->loss, "lr", t->rate, "batch", (json_int_t)t->last.batch, "seed",
                  (json_int_t)t->options.seed, "train_samples", (json_int_t)t->last.train_samples,
                  "held_out", (json_int_t)t->last.held_out, "samples_per_s",
                  t->seconds > 0 ? (double)t->trained / t->seconds : 0.0, "steps", t->steps));
}

const char *pare_tuning_recipe(const pare_tuning *t, const char *recipe)
{
    pare_arena *arena = &t->tool->arena;
    if (!json_array_size(t->steps) || !recipe) return recipe;
    const char *head = pare_arena_printf(arena, "%s distill epochs=%.10g in=%lld", recipe,
                                         t->spec.epochs, (long long)t->o->steps);
    return head ? pare_training_recipe(arena, head, t->loss, &t->spec.training, &t->options,
                                       &t->last)
                : NULL;
}

void pare_tuning_hash(const pare_tuning *t, const char *pruning, char text[33])
{
    pare_hash hash = {0};
    if (!t->wanted) {
        memmove(text, pruning, 33);
        return;
    }
    (void)pare_hash_parse(pruning, &hash);
    pare_hash_text(pare_hash_sum(t->read, hash), text);
}

pare_source pare_tuning_seen(const pare_tuning *t, const pare_source *source)
{
    pare_source seen = *source;
    if (!t->wanted) return seen;
    seen.samples = t->sample;
    seen.count = t->sample_count;
    return seen;
}
