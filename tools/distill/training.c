/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/distill/training.h"
#include "formats/file.h"
#include "tools/check_output.h"
#include "tools/distill/log.h"
#include "tools/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- as one word --- */

#define OPTIONS pare_training_spec
static const pare_option keys[] = {PARE_OPT_REAL("epochs", "N", epochs, 1e-6, 1e6, NULL),
                                   PARE_TRAINING_ROWS(training, "", "", ""),
                                   {0}};
enum { KEYS = sizeof keys / sizeof *keys - 1 };

static pare_status no_key(pare_tool *tool, const char *item, int length)
{
    const char *names[KEYS], *list = "a term of the loss";
    char name[64];
    for (int i = 0; i < KEYS && list; i++) {
        names[i] = keys[i].name;
        list = pare_arena_printf(&tool->arena, "%s, %s", list, names[i]);
    }
    snprintf(name, sizeof name, "%.*s", length, item);
    const char *near = pare_nearest(name, names, KEYS);
    return PARE_FAIL(tool->ctx, USAGE, "%s: --distill %s: no key '%.*s'%s%s%s; expected %s",
                     tool->command->name, item, length, item, near ? ", did you mean '" : "",
                     near ? near : "", near ? "'" : "", list ? list : "");
}

/* The row of a key of `length` letters, KEYS where there is none. */
static int find_key(const char *item, int length)
{
    int k = 0;
    while (k < KEYS && (strlen(keys[k].name) != (size_t)length ||
                        strncmp(keys[k].name, item, (size_t)length) != 0))
        k++;
    return k;
}

/* KEY=VALUE, the key of `length` letters. */
static pare_status parse_key(pare_tool *tool, char *item, int length, uint64_t *seen,
                             pare_training_spec *out)
{
    const int k = find_key(item, length);
    char *value = item + length + (item[length] == '=');
    if (k == KEYS) return no_key(tool, item, length);
    const char *what =
        pare_arena_printf(&tool->arena, "%s: --distill %s", tool->command->name, item);
    if (!what) return PARE_MEMORY;
    if (*seen >> k & 1) return PARE_FAIL(tool->ctx, USAGE, "%s: the key is given twice", what);
    if (!*value)
        return PARE_FAIL(tool->ctx, USAGE, "%s: expected %s=%s", what, keys[k].name, keys[k].value);
    *seen |= (uint64_t)1 << k;
    if (!strcmp(keys[k].name, "augment"))
        for (char *c = value; *c; c++)
            if (*c == '+') *c = ',';
    return pare_option_set(&tool->arena, what, &keys[k], out, value);
}

pare_status pare_training_parse(pare_tool *tool, const char *text, pare_training_spec *out)
{
    char *item = pare_arena_printf(&tool->arena, "%s", text), *next;
    const char *loss = NULL;
    uint64_t seen = 0;
    *out = (pare_training_spec){.training = PARE_TRAINING_DEFAULTS, .epochs = 1};
    for (; item; item = next) {
        next = strchr(item, ',');
        if (next) *next++ = 0;
        size_t key = strcspn(item, ":*=");
        if (!*item)
            return PARE_FAIL(tool->ctx, USAGE, "%s: --distill %s: a part of the list is empty",
                             tool->command->name, text);
        if (item[key] == '=' || (!item[key] && find_key(item, (int)key) < KEYS)) {
            PARE_TRY(parse_key(tool, item, (int)key, &seen, out));
            continue;
        }
        loss = loss ? pare_arena_printf(&tool->arena, "%s,%s", loss, item) : item;
        if (!loss) return PARE_MEMORY;
    }
    if (loss && out->training.loss)
        return PARE_FAIL(tool->ctx, USAGE, "%s: --distill %s: the loss is given twice",
                         tool->command->name, text);
    if (loss) out->training.loss = loss;
    return PARE_OK;
}

static const char *find_epochs(const char *text)
{
    const char *at = text;
    while (at && strncmp(at, "epochs=", strlen("epochs=")) != 0) {
        at = strchr(at, ',');
        if (at) at++;
    }
    return at;
}

double pare_training_epochs(const char *text)
{
    const char *at = find_epochs(text);
    return at ? atof(at + strlen("epochs=")) : 1;
}

const char *pare_training_with_epochs(pare_arena *arena, const char *text, double epochs)
{
    const char *at = find_epochs(text), *after = at ? strchr(at, ',') : NULL;
    if (!at) return pare_arena_printf(arena, "%s,epochs=%.17g", text, epochs);
    return pare_arena_printf(arena, "%.*sepochs=%.17g%s", (int)(at - text), text, epochs,
                             after ? after : "");
}

/* --- what they decide --- */

/* word: "with", "without" `other`, whose value is this. */
static pare_status refuse(pare_tool *tool, bool in_spec, const char *name, const char *word,
                          const char *other, const char *value)
{
    return PARE_FAIL(tool->ctx, USAGE, "%s: --%s%s does nothing %s %s%s%s%s; leave it out",
                     tool->command->name, in_spec ? "distill " : "", name, word,
                     in_spec ? "" : "--", other, in_spec ? "=" : " ", value);
}

pare_status pare_training_check(pare_tool *tool, const pare_training_options *o, bool in_spec)
{
    if (o->optimizer != PARE_OPTIMIZER_SGD && o->momentum >= 0)
        return refuse(tool, in_spec, "momentum", "without", "optimizer", "sgd");
    if (o->batchnorm == PARE_BATCHNORM_FROZEN && o->bn_recalib_samples >= 0)
        return refuse(tool, in_spec, "bn-estimate", "with", "bn", "frozen");
    pare_distill_loss loss;
    pare_augment augment;
    if (o->loss) PARE_TRY(pare_distill_parse_loss(&tool->arena, o->loss, &loss));
    return o->augment ? pare_augment_parse(tool->ctx, &augment, o->augment) : PARE_OK;
}

pare_status pare_training_read(pare_tool *tool, const pare_training_options *o,
                               const char *own_loss, pare_distill_options *d, const char **loss)
{
    *loss = o->loss ? o->loss : own_loss;
    PARE_TRY(pare_distill_parse_loss(&tool->arena, *loss, &d->loss));
    if (o->augment) PARE_TRY(pare_augment_parse(tool->ctx, &d->augment, o->augment));
    if (o->batch) d->batch = o->batch;
    if (o->accumulate) d->accumulate = (int)o->accumulate;
    if (o->learning_rate >= 0) d->learning_rate = o->learning_rate;
    if (o->momentum >= 0) d->momentum = o->momentum;
    if (o->weight_decay >= 0) d->weight_decay = o->weight_decay;
    if (o->bn_recalib_samples >= 0) d->bn_recalib_samples = o->bn_recalib_samples;
    if (o->batchnorm >= 0) d->batchnorm = (pare_batchnorm_mode)o->batchnorm;
    d->optimizer = (pare_optimizer_kind)o->optimizer;
    d->schedule = (pare_schedule_kind)o->schedule;
    d->warmup = o->warmup;
    d->grad_clip_norm = o->grad_clip_norm;
    d->ema_decay = o->ema_decay;
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
    if (text && o->bn_recalib_samples >= 0)
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

/* --- checkpoints --- */

pare_status pare_checkpoint_prepare(pare_tool *tool, const pare_checkpoint_options *o)
{
    static const char *const rows[] = {"checkpoint-every", "resume", NULL};
    if (!o->folder) return pare_refuse_options(tool, "without --checkpoint", rows);
    return pare_folder_make(tool->ctx, o->folder, "checkpoints");
}

pare_status pare_checkpoint_at(pare_tool *tool, const pare_checkpoint_options *o, const char *name,
                               const char *const *outputs, int output_count,
                               pare_distill_checkpoint *out)
{
    *out = (pare_distill_checkpoint){.every = o->every, .resume = o->resume};
    if (!o->folder) return PARE_OK;
    return pare_distill_checkpoint_file(&tool->arena, o->folder, name, outputs, output_count, out);
}

void pare_checkpoint_log_none(const pare_tool *tool, const pare_distill_checkpoint *c)
{
    if (c->path && c->resume && access(c->path, F_OK) && !tool->common->quiet)
        pare_print(stderr, "%s: there is no checkpoint yet; training starts from the beginning\n",
                   c->path);
}

void pare_checkpoint_log(const pare_tool *tool, const pare_distill_checkpoint *c, int64_t step)
{
    if (c->path && step >= 0 && !tool->common->quiet)
        pare_print(stderr,
                   "%s: holds step %lld; the same command with --resume continues after it\n",
                   c->path, (long long)step);
}

static void say(const pare_tool *tool, const pare_distill_checkpoint *c,
                const pare_distill_result *r)
{
    if (r->end != PARE_DISTILL_INTERRUPTED && r->resumed == r->steps)
        pare_print(stderr, "%s: training had ended before; nothing was left to train\n", c->path);
    if (r->end == PARE_DISTILL_INTERRUPTED) pare_checkpoint_log(tool, c, r->checkpoint);
    if (r->end == PARE_DISTILL_INTERRUPTED && r->checkpoint < 0)
        pare_print(stderr, "%s: could not be written; there is nothing to resume from\n", c->path);
}

void pare_checkpoint_report(pare_tool *tool, const pare_distill_checkpoint *c,
                            const pare_distill_result *r)
{
    if (!c->path) return;
    json_t *row = json_pack("{s:s}", "file", c->path);
    if (r->checkpoint >= 0) json_object_set_new(row, "step", json_integer(r->checkpoint));
    json_object_set_new(tool->facts, "checkpoint", row);
    if (!tool->common->quiet) say(tool, c, r);
}
