/* SPDX-License-Identifier: Apache-2.0 */
/* A step's time is taken as a + b n, n samples (steps of an optimizer, passes of a training), from
   two short runs. Each step starts from what the trial of the one before it wrote: a pruned model
   has its real size after 8 samples, too. */
#include "tools/distill/training.h"
#include "tools/zoo/forecast.h"

#include "formats/file.h"
#include "formats/json.h"
#include "formats/onnx.h"
#include "runtime/base/clock.h"
#include "tools/source.h"
#include "tools/zoo/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST = 120 }; /* seconds of one trial */

/* How many samples a model finds in a data set. */
struct pare_zoo_counted {
    const char *data;
    int64_t count; /* -1: it cannot be read with the model that was tried */
};

/* A node on trial. */
typedef struct trial {
    pare_zoo_probes *t;
    int index;
    const pare_zoo_node *node;
    pare_process_result last;
    bool dense; /* the real run takes samples side by side, so that they share chunks of the file */
} trial;

/* --- processes --- */

typedef struct call {
    pare_status (*step)(pare_ctx *ctx, char *const *words, int count);
    const char **words;
    int count;
} call;

static pare_status run_call(pare_ctx *ctx, void *user)
{
    const call *c = user;
    return c->step(ctx, (char *const *)c->words, c->count);
}

static pare_status run_process(pare_zoo_probes *t, pare_process_job *job,
                               pare_process_result *result)
{
    char log[240];
    snprintf(log, sizeof log, "%s/log", t->folder);
    job->log = log;
    job->seconds = LONGEST;
    job->bytes = t->options->bytes;
    return pare_process_run(t->arena->ctx, job, result);
}

/* --- data sets --- */

typedef struct counting {
    const char *model, *data, *out;
} counting;

static pare_status count_samples(pare_ctx *ctx, void *user)
{
    const counting *c = user;
    const pare_source_options options = {.data = c->data, .samples = -1, .batch = 1, .shuffle = -1};
    pare_common common = {.quiet = true};
    pare_tool tool = {.ctx = ctx, .common = &common};
    pare_model *model;
    pare_source source;
    char text[32];
    PARE_TRY(pare_onnx_read(ctx, &model, c->model));
    pare_arena_init(&tool.arena, ctx);
    pare_status st = pare_source_open_first(&tool, &source, model, &options, -1);
    if (st == PARE_OK) {
        snprintf(text, sizeof text, "%lld", (long long)pare_data_count(source.data));
        st = pare_file_write(ctx, c->out, text, strlen(text));
        pare_source_close(&source);
    }
    pare_arena_free(&tool.arena);
    pare_model_free(model);
    return st;
}

static pare_status count_of(trial *r, const char *data, int64_t *out)
{
    pare_zoo_probes *t = r->t;
    for (size_t i = 0; i < t->counts; i++)
        if (!strcmp(t->counted[i].data, data)) {
            *out = t->counted[i].count;
            return PARE_OK;
        }
    char path[240];
    long long count = -1;
    snprintf(path, sizeof path, "%s/count", t->folder);
    unlink(path);
    counting c = {t->zoo->models[r->node->model].file, data, path};
    pare_process_job job = {.work = count_samples, .user = &c};
    pare_process_result result;
    PARE_TRY(run_process(t, &job, &result));
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%lld", &count) != 1) count = -1;
    if (file) fclose(file);
    *out = count;
    if (!pare_arena_grow(t->arena, &t->counted, &t->capacity, t->counts, sizeof *t->counted))
        return PARE_MEMORY;
    t->counted[t->counts++] = (pare_zoo_counted){data, count};
    return PARE_OK;
}

/* --- words --- */

static const char *model_of(const trial *r, int node)
{
    if (r->t->options->done && r->t->options->done[node]) return r->t->plan->nodes[node].output;
    return pare_arena_printf(r->t->arena, "%s/%d.onnx", r->t->folder, node);
}

static const char *facts_of(const trial *r)
{
    return pare_arena_printf(r->t->arena, "%s/facts.json", r->t->folder);
}

/* The last value given for an option; NULL where it is not given. */
static const char *value_of(const pare_zoo_node *node, const char *option)
{
    const char *value = NULL;
    for (int i = 1; i + 1 < node->word_count; i++)
        if (!strcmp(node->words[i], option)) value = node->words[i + 1];
    return value;
}

/* Words that a trial leaves out, such as what it would leave behind: how many from this one on. */
static int left_out(const trial *r, const char *word, const char *set)
{
    static const char *const pairs[] = {"--epochs", "--steps", "--validate-every"};
    static const char *const kept[] = {"--cache", "--append", "--checkpoint", "--checkpoint-every"};
    const bool distills = !strcmp(r->node->verb, "distill");
    if (set && !strcmp(word, set)) return 2;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (!strcmp(word, kept[i])) return 2;
    if (!strcmp(word, "--resume")) return 1;
    if (!r->node->output && !strcmp(word, "--latency")) return 1;
    for (size_t i = 0; distills && i < sizeof pairs / sizeof *pairs; i++)
        if (!strcmp(word, pairs[i])) return 2;
    return 0;
}

/* The node's words with paths of the trial, `set` with value in place of its own, and latency only
   where it is asked for. */
static pare_status trial_words(trial *r, const char *set, const char *value, bool latency,
                               call *out)
{
    const pare_zoo_node *node = r->node;
    const char *parent = node->parent < 0 ? NULL : r->t->plan->nodes[node->parent].output;
    pare_zoo_argv w = {.arena = r->t->arena};
    for (int i = 0; i < node->word_count; i++) {
        const char *word = node->words[i];
        const int skipped = left_out(r, word, set);
        i += skipped - (skipped > 0);
        if (skipped) continue;
        const bool judged = !node->output && i == 2;
        if (judged || (parent && !strcmp(word, parent)))
            word = model_of(r, node->parent);
        else if (node->output && !strcmp(word, node->output))
            word = model_of(r, r->index);
        else if (!strcmp(word, node->facts))
            word = facts_of(r);
        pare_zoo_argv_add(&w, word, NULL);
    }
    if (set) pare_zoo_argv_add(&w, set, value);
    if (r->dense) pare_zoo_argv_add(&w, "--range", pare_arena_printf(w.arena, "0:%s", value));
    if (!strcmp(node->verb, "distill")) pare_zoo_argv_add(&w, "--validate-every", "1000000000");
    if (latency) pare_zoo_argv_add(&w, "--latency", NULL);
    out->step = r->t->options->step;
    return pare_zoo_argv_end(&w, &out->words, &out->count);
}

/* One run; *good: it ended well. Otherwise the node's failure says why it did not. */
static pare_status run_once(trial *r, const char *set, double value, bool latency, bool *good)
{
    call c;
    pare_zoo_cost *cost = &r->t->forecast->node[r->index];
    const char *text = strcmp(set, "--distill") != 0
                           ? pare_arena_printf(r->t->arena, "%.17g", value)
                           : pare_training_with_epochs(r->t->arena, value_of(r->node, set), value);
    if (!text) return PARE_MEMORY;
    PARE_TRY(trial_words(r, set, text, latency, &c));
    pare_process_job job = {.work = run_call, .user = &c};
    PARE_TRY(run_process(r->t, &job, &r->last));
    *good = r->last.outcome == PARE_OUTCOME_DONE;
    cost->tried = true;
    if (r->last.peak_bytes > cost->bytes) cost->bytes = r->last.peak_bytes;
    if (*good) return PARE_OK;
    cost->failure =
        r->last.outcome == PARE_OUTCOME_TIME
            ? pare_arena_printf(r->t->arena, "no end within %d s on few samples", LONGEST)
            : pare_arena_printf(r->t->arena, "%s: %s", pare_outcome_text(r->last.outcome),
                                r->last.message);
    return cost->failure ? PARE_OK : PARE_MEMORY;
}

/* --- how much is asked for --- */

/* What the facts of the last run say; 0 where they do not. */
static double fact(trial *r, const char *key)
{
    json_t *facts = NULL;
    const char *path = facts_of(r);
    if (!path || pare_json_read(r->t->arena->ctx, &facts, path) != PARE_OK) {
        pare_ctx_clear(r->t->arena->ctx);
        return 0;
    }
    double value = json_number_value(json_object_get(facts, key));
    json_decref(facts);
    return value;
}

/* Samples of the real run. */
static pare_status samples_asked(trial *r, double *out)
{
    const pare_zoo_node *node = r->node;
    const char *range = value_of(node, "--range"), *own = value_of(node, "--samples");
    int64_t there;
    long long from, to;
    PARE_TRY(count_of(r, value_of(node, "--data"), &there));
    if (range && sscanf(range, "%lld:%lld", &from, &to) == 2 && to > from)
        there = there < 0 || to - from < there ? to - from : there;
    double asked = own ? atof(own) : node->output ? 512 : (double)there;
    if (asked < 0) asked = 512;
    r->dense = !range && there >= 0 && 4 * asked > (double)there;
    *out = there >= 0 && asked > (double)there ? (double)there : asked;
    return PARE_OK;
}

/* a + b n from its values at two n; it does not shrink with n. */
static double line_at(const double n[2], double first, double second, double at)
{
    const double more = fmax(0, second - first) / (n[1] - n[0]);
    return fmax(0, second + (at - n[1]) * more);
}

/* To n of the real run; memory no further than to `full`, where it has what it needs. */
static void draw_out(pare_zoo_cost *cost, const double n[2], const pare_process_result run[2],
                     double at, double full)
{
    const double last = fmax(n[1], fmin(at, full));
    cost->seconds = line_at(n, run[0].seconds, run[1].seconds, at);
    cost->cpu_seconds = line_at(n, run[0].cpu_seconds, run[1].cpu_seconds, at);
    cost->bytes = (int64_t)line_at(n, (double)run[0].peak_bytes, (double)run[1].peak_bytes, last);
    cost->known = true;
}

/* Two runs with these values of an option; the second one again with four times as much, up to
   `most`, until it takes clearly longer than the first. */
static pare_status run_twice(trial *r, const char *set, double n[2], double most,
                             pare_process_result run[2], bool *good)
{
    const double clear = 0.3; /* seconds; starting a process scatters by some hundredths */
    for (int i = 0; i < 2; i++) {
        PARE_TRY(run_once(r, set, n[i], false, good));
        run[i] = r->last;
        if (!*good) return PARE_OK;
    }
    while (run[1].seconds - run[0].seconds < clear && 4 * n[1] <= most) {
        n[1] *= 4;
        PARE_TRY(run_once(r, set, n[1], false, good));
        run[1] = r->last;
        if (!*good) return PARE_OK;
    }
    return PARE_OK;
}

/* What measuring latency adds; without: the same run without it. */
static pare_status add_latency(trial *r, pare_zoo_cost *cost, const pare_process_result *without)
{
    if (!r->t->zoo->latency) return PARE_OK;
    PARE_TRY(run_once(r, "--samples", 8, true, &cost->known));
    if (!cost->known) return PARE_OK;
    cost->seconds += fmax(0, r->last.seconds - without->seconds);
    cost->cpu_seconds += fmax(0, r->last.cpu_seconds - without->cpu_seconds);
    return PARE_OK;
}

/* Memory is that of a batch; pruning alone keeps what it saw of each sample. */
static pare_status try_samples(trial *r, pare_zoo_cost *cost)
{
    const char *batch = value_of(r->node, "--batch");
    const bool keeps = !strcmp(r->node->verb, "prune");
    double n[2] = {8, 40}, asked;
    pare_process_result run[2];
    bool good;
    PARE_TRY(samples_asked(r, &asked));
    if (asked <= n[1]) { /* as it is */
        n[1] = asked < 1 ? 1 : asked;
        n[0] = n[1] / 2;
        PARE_TRY(run_once(r, "--samples", n[1], false, &good));
        run[0] = run[1] = r->last;
    } else {
        PARE_TRY(run_twice(r, "--samples", n, asked, run, &good));
    }
    if (!good) return PARE_OK;
    draw_out(cost, n, run, asked, keeps ? asked : batch ? atof(batch) : 64);
    if (r->node->output) return PARE_OK;
    r->t->samples_seconds = fmax(0, cost->seconds - run[0].seconds);
    r->t->samples_cpu = fmax(0, cost->cpu_seconds - run[0].cpu_seconds);
    return add_latency(r, cost, &run[0]);
}

/* Passes of the training after a pruning: of so few that each step between has one step of the
   optimizer, and three times as many. */
static pare_status try_passes(trial *r, pare_zoo_cost *cost)
{
    const double asked = pare_training_epochs(value_of(r->node, "--distill"));
    double n[2] = {asked < 0.01 ? asked / 3 : 0.01, asked < 0.01 ? asked : 0.03};
    pare_process_result run[2];
    bool good;
    PARE_TRY(run_twice(r, "--distill", n, asked, run, &good));
    if (good) draw_out(cost, n, run, asked, 0);
    return PARE_OK;
}

/* A training looks at held-out samples before the first step, after the last, and four times a
   pass; the short runs do the first two. */
static pare_status try_training(trial *r, pare_zoo_cost *cost)
{
    const char *steps = value_of(r->node, "--steps"), *epochs = value_of(r->node, "--epochs");
    const char *every = value_of(r->node, "--validate-every");
    double n[2] = {2, 6};
    pare_process_result run[2];
    bool good;
    PARE_TRY(run_twice(r, "--steps", n, steps ? atof(steps) : 100, run, &good));
    if (!good) return PARE_OK;
    const double rate = fact(r, "samples_per_s"), batch = fact(r, "batch");
    const double pass = batch > 0 ? ceil(fact(r, "train_samples") / batch) : 0;
    const double asked = steps ? atof(steps) : (epochs ? atof(epochs) : 1) * pass;
    const double between = every ? atof(every) : pass / 4;
    const double a_step = fmax(0, (run[1].seconds - run[0].seconds) / (n[1] - n[0]));
    const double logged = rate > 0 ? n[1] * batch / rate : 0; /* of the steps and one look */
    const double a_look = fmax(0, logged - n[1] * a_step);
    draw_out(cost, n, run, asked, 0);
    const double looks = between > 0 ? fmax(0, asked / between - 1) * a_look : 0;
    if (run[1].seconds > 0) cost->cpu_seconds += looks * run[1].cpu_seconds / run[1].seconds;
    cost->seconds += looks;
    return PARE_OK;
}

static pare_status try_whole(trial *r, pare_zoo_cost *cost)
{
    bool good;
    PARE_TRY(run_once(r, NULL, 0, false, &good));
    cost->seconds = r->last.seconds;
    cost->cpu_seconds = r->last.cpu_seconds;
    cost->known = good;
    return PARE_OK;
}

/* Judging one variant of a model takes as long as judging another, but that the model's own
   outputs, half of what runs samples, are in the cache by then. */
static bool is_judged(pare_zoo_probes *t, int index)
{
    const pare_zoo_cost *like = t->judged < 0 ? NULL : &t->forecast->node[t->judged];
    const bool same =
        like && like->known && t->plan->nodes[t->judged].model == t->plan->nodes[index].model;
    pare_zoo_cost *cost = &t->forecast->node[index];
    if (same) *cost = *like;
    if (same) cost->tried = false;
    if (same) cost->seconds -= t->samples_seconds / 2;
    if (same) cost->cpu_seconds -= t->samples_cpu / 2;
    if (!same) t->judged = index;
    return same;
}

pare_status pare_zoo_probes_node(pare_zoo_probes *t, int index)
{
    const pare_zoo_node *node = &t->plan->nodes[index];
    pare_zoo_cost *cost = &t->forecast->node[index];
    trial r = {.t = t, .index = index, .node = node};
    if (!node->output && is_judged(t, index)) return PARE_OK;
    if (!strcmp(node->verb, "distill")) return try_training(&r, cost);
    if (value_of(node, "--distill")) return try_passes(&r, cost);
    if (!value_of(node, "--data")) return try_whole(&r, cost);
    return try_samples(&r, cost);
}

/* --- the folder --- */

pare_status pare_zoo_probes_open(pare_zoo_probes *t)
{
    const char *base = getenv("TMPDIR");
    t->judged = -1;
    int n =
        snprintf(t->folder, sizeof t->folder, "%s/pare-zoo-XXXXXX", base && *base ? base : "/tmp");
    if (n < (int)sizeof t->folder && mkdtemp(t->folder)) return PARE_OK;
    return PARE_FAIL(t->arena->ctx, IO, "%s: %s", t->folder, strerror(errno));
}

void pare_zoo_probes_drop(pare_zoo_probes *t, int node)
{
    char path[240];
    snprintf(path, sizeof path, "%s/%d.onnx", t->folder, node);
    unlink(path);
}

void pare_zoo_probes_close(pare_zoo_probes *t)
{
    static const char *const names[] = {"log", "facts.json", "count"};
    char path[240];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", t->folder, names[i]);
        unlink(path);
    }
    rmdir(t->folder);
}
