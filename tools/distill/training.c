/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/distill/training.h"
#include "tools/check_output.h"
#include "tools/distill/log.h"

/* word: "with", "without"; beside: what it does nothing with. */
static pare_status refuse(pare_tool *tool, const char *prefix, const char *name, const char *word,
                          const char *beside)
{
    const char *const names[] = {pare_arena_printf(&tool->arena, "%s%s", prefix, name), NULL};
    const char *where = pare_arena_printf(&tool->arena, "%s --%s%s", word, prefix, beside);
    return names[0] && where ? pare_refuse_options(tool, where, names) : PARE_MEMORY;
}

pare_status pare_training_check(pare_tool *tool, const pare_training_options *o, const char *prefix)
{
    if (o->optimizer != PARE_OPTIMIZER_SGD)
        PARE_TRY(refuse(tool, prefix, "momentum", "without", "optimizer sgd"));
    if (o->batchnorm == PARE_BATCHNORM_FROZEN)
        PARE_TRY(refuse(tool, prefix, "bn-estimate", "with", "bn frozen"));
    return PARE_OK;
}

pare_status pare_training_read(pare_tool *tool, const pare_training_options *o,
                               const char *own_loss, pare_distill_options *d, const char **loss)
{
    *loss = o->loss ? o->loss : own_loss;
    PARE_TRY(pare_distill_parse_loss(&tool->arena, *loss, &d->loss));
    if (o->augment) PARE_TRY(pare_augment_parse(tool->ctx, &d->augment, o->augment));
    if (o->batch) d->batch = o->batch;
    if (o->accumulate) d->accumulate = (int)o->accumulate;
    if (o->rate >= 0) d->learning_rate = o->rate;
    if (o->momentum >= 0) d->momentum = o->momentum;
    if (o->decay >= 0) d->weight_decay = o->decay;
    if (o->norm_samples >= 0) d->bn_recalib_samples = o->norm_samples;
    if (o->batchnorm >= 0) d->batchnorm = (pare_batchnorm_mode)o->batchnorm;
    d->optimizer = (pare_optimizer_kind)o->optimizer;
    d->schedule = (pare_schedule_kind)o->schedule;
    d->warmup = o->warmup;
    d->grad_clip_norm = o->clip;
    d->ema_decay = o->average;
    return PARE_OK;
}

const char *pare_training_recipe(pare_arena *arena, const char *head, const char *loss,
                                 const pare_training_options *o, const pare_distill_options *d,
                                 const pare_distill_result *r)
{
    static const char *const optimizers[] = {"adamw", "sgd"};
    static const char *const schedules[] = {"cosine", "step", "constant"};
    static const char *const norms[] = {"train", "frozen", "half"};
    const char *text = pare_arena_printf(
        arena, "%s loss=%s optimizer=%s lr=%.10g schedule=%s steps=%lld of=%lld batch=%lld", head,
        loss, optimizers[d->optimizer], d->learning_rate, schedules[d->schedule],
        (long long)r->best_step, (long long)r->steps, (long long)r->batch);
    if (text && d->accumulate > 1)
        text = pare_arena_printf(arena, "%s accumulate=%d", text, d->accumulate);
    if (text && d->warmup >= 0)
        text = pare_arena_printf(arena, "%s warmup=%lld", text, (long long)d->warmup);
    if (text && d->optimizer == PARE_OPTIMIZER_SGD)
        text = pare_arena_printf(arena, "%s momentum=%.10g", text, d->momentum);
    if (text && d->grad_clip_norm > 0)
        text = pare_arena_printf(arena, "%s clip=%.10g", text, d->grad_clip_norm);
    if (text && d->ema_decay > 0)
        text = pare_arena_printf(arena, "%s ema=%.10g", text, d->ema_decay);
    if (text) text = pare_arena_printf(arena, "%s decay=%.10g", text, d->weight_decay);
    if (text && d->batchnorm != PARE_BATCHNORM_TRAIN)
        text = pare_arena_printf(arena, "%s bn=%s", text, norms[d->batchnorm]);
    if (text && o->norm_samples >= 0)
        text =
            pare_arena_printf(arena, "%s bn-estimate=%lld", text, (long long)d->bn_recalib_samples);
    if (text && o->augment) text = pare_arena_printf(arena, "%s augment=%s", text, o->augment);
    return text ? pare_arena_printf(arena, "%s seed=%llu", text, (unsigned long long)d->seed)
                : NULL;
}

json_t *pare_training_json(const pare_distill_result *r)
{
    static const char *const ends[] = {"complete", "patience", "interrupted"};
    json_t *facts = json_pack("{s:s, s:I, s:I}", "end", ends[r->end], "steps", (json_int_t)r->steps,
                              "best_step", (json_int_t)r->best_step);
    if (r->resumed >= 0) json_object_set_new(facts, "resumed", json_integer(r->resumed));
    if (r->zero_count)
        json_object_set_new(facts, "zeros_kept", pare_distill_zeros_json(r->zeros, r->zero_count));
    json_object_set_new(facts, "before", pare_distill_score_json(&r->before));
    json_object_set_new(facts, "after", pare_distill_score_json(&r->after));
    return facts;
}
