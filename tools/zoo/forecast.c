/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/forecast.h"

#include "formats/json.h"
#include "runtime/base/clock.h"
#include "tools/progress.h"
#include "tools/table.h"
#include "tools/text.h"

#include <string.h>

static bool is_done(const pare_zoo_forecast_options *o, int node)
{
    return o->done && o->done[node];
}

/* The nodes of one model that are to be done, in the plan's order: they stand side by side. One
   that continues from another model's node, of equal content, has no trial's model to start from.
 */
static pare_status try_model(pare_zoo_probes *t, int from, int to)
{
    pare_status st = PARE_OK;
    for (int i = from; i < to && st == PARE_OK; i++) {
        const int parent = t->plan->nodes[i].parent;
        const bool ready =
            parent < 0 || is_done(t->options, parent) || t->forecast->node[parent].known;
        if (!is_done(t->options, i) && ready) st = pare_zoo_probes_node(t, i);
    }
    for (int i = from; i < to; i++) pare_zoo_probes_drop(t, i);
    return st;
}

/* Where the nodes of a model begin and end. */
typedef struct span {
    int from, to;
} span;

static int spans_of(const pare_zoo_plan *plan, span *spans)
{
    int count = 0;
    for (int i = 0; i < plan->node_count; i++) {
        if (!i || plan->nodes[i].model != plan->nodes[i - 1].model) spans[count++].from = i;
        spans[count - 1].to = i + 1;
    }
    return count;
}

static bool has_work(const pare_zoo_forecast_options *o, const span *s)
{
    for (int i = s->from; i < s->to; i++)
        if (!is_done(o, i)) return true;
    return false;
}

static int divisor(int a, int b) { return b ? divisor(b, a % b) : a; }

/* Tries models, until the budget is spent; at least one. They are taken in strides,
   so that what the budget allows comes from everywhere; a stride that has no divisor in common with
   the count meets all of them. */
static pare_status try_models(pare_zoo_probes *t, const span *spans, int count)
{
    pare_zoo_forecast *f = t->forecast;
    pare_progress bar;
    const double start = pare_seconds();
    int stride = (int)((double)count * 0.618) | 1;
    while (divisor(count, stride) > 1) stride++;
    pare_progress_begin(&bar, stderr, t->options->quiet, "forecast", "models");
    pare_status st = PARE_OK;
    for (int k = 0; k < count && st == PARE_OK; k++) {
        const span *s = &spans[(int)((int64_t)k * stride % count)];
        pare_progress_step(&bar, k, count);
        if (!has_work(t->options, s)) continue;
        f->models++;
        if (f->tried && pare_seconds() - start > t->options->budget) continue;
        st = try_model(t, s->from, s->to);
        f->tried++;
    }
    pare_progress_end(&bar);
    f->spent = pare_seconds() - start;
    return st;
}

/* Nodes whose turn did not come: the mean of those of the same variant and the same depth. */
static int depth_of(const pare_zoo_plan *plan, int node)
{
    int depth = 0;
    while ((node = plan->nodes[node].parent) >= 0) depth++;
    return depth;
}

static pare_status fill_in(pare_arena *arena, pare_zoo_forecast *f, const pare_zoo *zoo,
                           const pare_zoo_plan *plan, const pare_zoo_forecast_options *o)
{
    typedef struct mean {
        double seconds, cpu, bytes;
        int count;
    } mean;
    int most = 0;
    for (int i = 0; i < zoo->variant_count; i++)
        if (zoo->variants[i].step_count > most) most = zoo->variants[i].step_count;
    mean *means =
        pare_arena_alloc(arena, (size_t)zoo->variant_count * ((size_t)most + 1), sizeof *means);
    if (!means) return PARE_MEMORY;
    for (int i = 0; i < plan->node_count; i++) {
        mean *m = &means[plan->nodes[i].variant * (most + 1) + depth_of(plan, i)];
        if (!f->node[i].known) continue;
        m->seconds += f->node[i].seconds;
        m->cpu += f->node[i].cpu_seconds;
        m->bytes += (double)f->node[i].bytes;
        m->count++;
    }
    f->whole = true;
    for (int i = 0; i < plan->node_count; i++) {
        const mean *m = &means[plan->nodes[i].variant * (most + 1) + depth_of(plan, i)];
        const int parent = plan->nodes[i].parent;
        pare_zoo_cost *cost = &f->node[i];
        const bool behind = parent >= 0 && !is_done(o, parent) && !f->node[parent].known;
        if (is_done(o, i))
            cost->known = true;
        else if (!cost->known && !cost->failure && m->count && !behind)
            *cost = (pare_zoo_cost){.seconds = m->seconds / m->count,
                                    .cpu_seconds = m->cpu / m->count,
                                    .bytes = (int64_t)(m->bytes / m->count),
                                    .known = true};
        f->whole = f->whole && cost->known;
    }
    return PARE_OK;
}

static void add_up(pare_zoo_forecast *f, const pare_zoo_plan *plan, int jobs)
{
    double alone = 0;
    for (int i = 0; i < plan->node_count; i++) {
        f->seconds += f->node[i].seconds;
        f->cpu_seconds += f->node[i].cpu_seconds;
        if (plan->nodes[i].alone) alone += f->node[i].seconds;
        if (f->node[i].bytes > f->bytes) f->bytes = f->node[i].bytes;
    }
    f->elapsed = alone + (f->seconds - alone) / jobs;
}

pare_status pare_zoo_forecast_make(pare_arena *arena, pare_zoo_forecast *out, const pare_zoo *zoo,
                                   const pare_zoo_plan *plan,
                                   const pare_zoo_forecast_options *options)
{
    *out = (pare_zoo_forecast){0};
    pare_zoo_probes t = {
        .arena = arena, .zoo = zoo, .plan = plan, .options = options, .forecast = out};
    span *spans = pare_arena_alloc(arena, (size_t)plan->node_count, sizeof *spans);
    out->node = pare_arena_alloc(arena, (size_t)plan->node_count, sizeof *out->node);
    if (!spans || !out->node) return PARE_MEMORY;
    PARE_TRY(pare_zoo_probes_open(&t));
    pare_status st = try_models(&t, spans, spans_of(plan, spans));
    pare_zoo_probes_close(&t);
    if (st == PARE_OK) st = fill_in(arena, out, zoo, plan, options);
    if (st == PARE_OK) add_up(out, plan, options->jobs);
    return st;
}

/* --- what is shown --- */

/* What a task adds to those before it: nodes that it shares with one of them count there. */
typedef struct share {
    double seconds;
    int64_t bytes;
    int done, steps;
    bool known;
    const char *failure;
} share;

static share share_of(const pare_zoo_forecast *f, const pare_zoo_plan *plan,
                      const pare_zoo_task *task, const bool *done)
{
    share s = {.known = true, .steps = task->node_count};
    for (int i = 0; i < task->node_count; i++) {
        const int n = task->nodes[i];
        const pare_zoo_cost *cost = &f->node[n];
        const bool own =
            plan->nodes[n].model == task->model && plan->nodes[n].variant == task->variant;
        if (done && done[n]) s.done++;
        if (own) s.seconds += cost->seconds;
        if (cost->bytes > s.bytes) s.bytes = cost->bytes;
        s.known = s.known && cost->known;
        if (!s.failure) s.failure = cost->failure;
    }
    return s;
}

static void print_row(pare_table *table, const share *s, const char *model, const char *variant)
{
    char time[32], memory[32];
    pare_duration_text(s->seconds, time, sizeof time);
    pare_bytes_text((double)s->bytes, memory, sizeof memory);
    const bool nothing = s->done == s->steps;
    pare_table_add(table, "%s|%s|%d|%d|%s|%s", model, variant, s->steps, s->done,
                   nothing      ? "0s"
                   : s->known   ? time
                   : s->failure ? "fails"
                                : "?",
                   nothing || !s->bytes ? "-" : memory);
}

static void print_failures(FILE *file, const pare_zoo_forecast *f, const pare_zoo *zoo,
                           const pare_zoo_plan *plan)
{
    for (int i = 0; i < plan->node_count; i++)
        if (f->node[i].failure)
            pare_print(file, "%s.%s fails in %s: %s\n", zoo->models[plan->nodes[i].model].name,
                       zoo->variants[plan->nodes[i].variant].name, plan->nodes[i].verb,
                       f->node[i].failure);
}

static void print_sums(FILE *file, const pare_zoo_forecast *f, const pare_zoo_plan *plan,
                       const pare_zoo_forecast_options *o)
{
    char all[32], elapsed[32], memory[32], spent[32];
    int done = 0, known = 0;
    for (int i = 0; i < plan->node_count; i++) {
        done += is_done(o, i);
        known += f->node[i].known && !is_done(o, i);
    }
    pare_bytes_text((double)f->bytes, memory, sizeof memory);
    pare_print(file, "\n%d task%s of %d steps, %d of them done: %s%s of work, %s with --jobs %d\n",
               plan->task_count, plan->task_count == 1 ? "" : "s", plan->node_count, done,
               f->whole ? "" : "more than ", pare_duration_text(f->seconds, all, sizeof all),
               pare_duration_text(f->elapsed, elapsed, sizeof elapsed), o->jobs);
    if (known) pare_print(file, "at most %s of memory in one step\n", memory);
    if (!f->tried) return;
    pare_print(file, "from short runs of the steps of %d of %d models%s (%s)\n", f->tried,
               f->models, f->tried < f->models ? ", the others taken as their mean" : "",
               pare_duration_text(f->spent, spent, sizeof spent));
}

pare_status pare_zoo_forecast_print(pare_arena *arena, FILE *file, const pare_zoo_forecast *f,
                                    const pare_zoo *zoo, const pare_zoo_plan *plan,
                                    const pare_zoo_forecast_options *o)
{
    pare_table table;
    pare_table_init(&table, arena, "llrrrr");
    pare_table_add(&table, "model|variant|steps|done|time|memory");
    for (int i = 0; i < plan->task_count; i++) {
        const pare_zoo_task *task = &plan->tasks[i];
        const share s = share_of(f, plan, task, o->done);
        print_row(&table, &s, zoo->models[task->model].name, zoo->variants[task->variant].name);
    }
    pare_table_print(&table, file);
    print_failures(file, f, zoo, plan);
    print_sums(file, f, plan, o);
    return PARE_OK;
}

json_t *pare_zoo_forecast_json(const pare_zoo_forecast *f, const pare_zoo *zoo,
                               const pare_zoo_plan *plan)
{
    json_t *tasks = json_array();
    for (int i = 0; i < plan->task_count; i++) {
        const pare_zoo_task *task = &plan->tasks[i];
        const share s = share_of(f, plan, task, NULL);
        json_array_append_new(
            tasks, json_pack("{s:o, s:o, s:o, s:I, s:o}", "model",
                             pare_json_text(zoo->models[task->model].name), "variant",
                             pare_json_text(zoo->variants[task->variant].name), "seconds",
                             s.known ? json_real(s.seconds) : json_null(), "memory_bytes",
                             (json_int_t)s.bytes, "failure", pare_json_text(s.failure)));
    }
    return json_pack("{s:o, s:o, s:o, s:I, s:i, s:i, s:o}", "seconds",
                     f->whole ? json_real(f->seconds) : json_null(), "elapsed_seconds",
                     f->whole ? json_real(f->elapsed) : json_null(), "cpu_seconds",
                     f->whole ? json_real(f->cpu_seconds) : json_null(), "memory_bytes",
                     (json_int_t)f->bytes, "tried_models", f->tried, "models", f->models, "tasks",
                     tasks);
}
