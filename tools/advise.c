/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of the model gets weights of 2:4 by magnitude and becomes f16; its plan's tuner times
   every kernel of each node, those for 2:4 beside the dense ones, on the same weights. Its other
   nodes' times are those of a profiled run. */
#include "tools/advise.h"

#include "formats/json.h"
#include "quant/quant.h"
#include "runtime/eval/stats.h"
#include "tools/table.h"

#include <string.h>

static const double PAYS = 0.97; /* timings scatter by that much */
enum { RUNS = 11 };

/* --- times --- */

typedef struct timing {
    pare_advice *advice;
    const char **weight; /* (layers): what the layer's weight is called as f16; NULL: unknown */
    const char **step;   /* (layers): what the plan calls the node that reads it */
} timing;

/* The fastest of each kind. Fusing renames nodes; weights keep their names. */
static void note_time(void *user, const pare_node *node, const pare_kernel *kernel, double seconds)
{
    const timing *t = user;
    for (int i = 0; i < t->advice->count; i++) {
        pare_advice_layer *l = &t->advice->layer[i];
        bool reads = false;
        for (int k = 0; t->weight[i] && k < node->in_count && !reads; k++)
            reads = node->in[k] && !strcmp(node->in[k]->name, t->weight[i]);
        if (!reads) continue;
        double *best = kernel->flags & PARE_KERNEL_SPARSE ? &l->sparse : &l->dense;
        if (*best < 0 || seconds < *best) *best = seconds;
        t->step[i] = node->name;
    }
}

/* The dense time of a step that a sparse kernel could take; else negative. */
static double dense_time(const timing *t, const char *step)
{
    for (int i = 0; i < t->advice->count; i++)
        if (t->step[i] && t->advice->layer[i].sparse >= 0 && !strcmp(t->step[i], step))
            return t->advice->layer[i].dense;
    return -1;
}

/* A run in which every timed layer takes its dense kernel. */
static pare_status time_run(pare_ctx *ctx, pare_runner *runner, const timing *t)
{
    const pare_plan *plan = pare_runner_plan(runner);
    int steps = pare_plan_step_count(plan);
    double *times = pare_alloc(ctx, (size_t)steps * (RUNS + 1), sizeof *times), one[RUNS];
    pare_status st = times ? pare_runner_run(runner) : PARE_MEMORY;
    for (int r = 0; r < RUNS && st == PARE_OK; r++) {
        pare_runner_profile(runner, times + (size_t)r * (size_t)steps);
        st = pare_runner_run(runner);
        if (st == PARE_OK) st = pare_ctx_poll(ctx);
    }
    pare_runner_profile(runner, NULL);
    for (int i = 0; i < steps && st == PARE_OK; i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        double dense = dense_time(t, info.node);
        for (int r = 0; r < RUNS; r++) one[r] = times[(size_t)r * (size_t)steps + (size_t)i];
        pare_stats_sort(one, RUNS);
        t->advice->run += dense >= 0 ? dense : pare_stats_percentile(one, RUNS, 50);
    }
    pare_free(times);
    return st;
}

/* Conversion renames weights and leaves nodes their names. */
static pare_status timing_init(timing *t, pare_tool *tool, const pare_graph *half, pare_advice *out)
{
    size_t n = (size_t)out->count + 1;
    *t = (timing){out, pare_arena_alloc(&tool->arena, n, sizeof *t->weight),
                  pare_arena_alloc(&tool->arena, n, sizeof *t->step)};
    if (!t->weight || !t->step) return PARE_MEMORY;
    for (int at = 0; at < half->node_count; at++)
        for (int i = 0; i < out->count; i++) {
            const pare_node *node = half->node[at];
            if (strcmp(node->name, out->layer[i].node)) continue;
            for (int k = 0; k < node->in_count; k++) {
                const pare_value *v = node->in[k];
                if (v && v->data && v->data->rank > 1) t->weight[i] = v->name;
            }
        }
    return PARE_OK;
}

/* Concrete shapes of the inputs. */
static pare_status shapes_make(pare_tool *tool, const pare_model *model, pare_input_shape **out,
                               int *count)
{
    const pare_values *inputs = &model->graph->in;
    pare_groups *groups = NULL;
    *count = 0;
    *out = pare_arena_alloc(&tool->arena, (size_t)inputs->count + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    PARE_TRY(pare_groups_new(tool->ctx, &groups, model, NULL));
    pare_status st = PARE_OK;
    for (int i = 0; i < inputs->count && st == PARE_OK; i++) {
        pare_input_shape *s = *out + *count;
        if (inputs->item[i]->is_init) continue;
        s->name = inputs->item[i]->name;
        st = pare_groups_shape(groups, inputs->item[i], &s->shape);
        (*count)++;
    }
    pare_groups_free(groups);
    return st;
}

static pare_status time_f16(pare_tool *tool, pare_model *half, const pare_input_shape *shapes,
                            int count, pare_advice *out)
{
    const pare_quant_options f16 = {.precision = PARE_PRECISION_FP16};
    pare_quant_facts facts = {0};
    pare_plan *plan = NULL;
    pare_runner *runner = NULL;
    timing t;
    pare_plan_options options = {.threads = (int)tool->common->threads,
                                 .device = tool->device,
                                 .tune = true,
                                 .timed = note_time,
                                 .timed_user = &t};
    PARE_TRY(pare_quant_prepare(tool->ctx, half, &f16, &facts));
    PARE_TRY(pare_quantize(tool->ctx, half, NULL, &f16, &facts));
    PARE_TRY(timing_init(&t, tool, half->graph, out));
    PARE_TRY(pare_plan_new(tool->ctx, &plan, half, shapes, count, &options));
    pare_status st = pare_runner_new(tool->ctx, &runner, plan);
    if (st == PARE_OK) st = time_run(tool->ctx, runner, &t);
    pare_runner_free(runner);
    pare_plan_free(plan);
    return st;
}

pare_status pare_advise_time(pare_tool *tool, const pare_model *sparse, pare_advice *out)
{
    pare_input_shape *shapes;
    pare_model *half = NULL;
    int count;
    PARE_TRY(shapes_make(tool, sparse, &shapes, &count));
    PARE_TRY(pare_model_clone(tool->ctx, &half, sparse));
    pare_status st = time_f16(tool, half, shapes, count, out);
    pare_model_free(half);
    return st;
}

/* --- what follows --- */

void pare_advice_judge(pare_advice *a)
{
    double fits = 0, saved = 0;
    a->best = 1;
    a->fit = a->paying = 0;
    for (int i = 0; i < a->count; i++) {
        pare_advice_layer *l = &a->layer[i];
        l->pays = false;
        a->fit += !l->note;
        if (l->note || l->sparse < 0 || l->dense <= 0) continue;
        l->pays = l->sparse <= PAYS * l->dense;
        fits += l->dense;
        if (l->sparse > 0 && l->dense / l->sparse > a->best) a->best = l->dense / l->sparse;
        if (!l->pays) continue;
        a->paying++;
        saved += l->dense - l->sparse;
    }
    a->gain = a->ceiling = 1;
    if (a->run <= 0) return;
    if (a->run > saved) a->gain = a->run / (a->run - saved);
    double part = fits < a->run ? fits / a->run : 1;
    a->ceiling = 1 / (1 - part + part / a->best);
}

static pare_status layers_list(pare_tool *tool, const pare_unstructured_facts *facts,
                               pare_advice *out)
{
    out->layer = pare_arena_alloc(&tool->arena, (size_t)facts->layer_count + 1, sizeof *out->layer);
    if (!out->layer) return PARE_MEMORY;
    out->count = facts->layer_count;
    for (int i = 0; i < out->count; i++) {
        const pare_unstructured_layer *from = &facts->layer[i];
        pare_advice_layer *to = &out->layer[i];
        *to = (pare_advice_layer){.node = pare_arena_printf(&tool->arena, "%s", from->node),
                                  .weight = pare_arena_printf(&tool->arena, "%s", from->weight),
                                  .dense = -1,
                                  .sparse = -1};
        if (!from->zeros)
            to->note = pare_arena_printf(&tool->arena, "%s",
                                         from->note ? from->note : "nothing becomes 0");
        if (!to->node || !to->weight || (!from->zeros && !to->note)) return PARE_MEMORY;
    }
    return PARE_OK;
}

pare_status pare_advise(pare_tool *tool, const pare_model *model,
                        const pare_unstructured_options *how, pare_advise_timer *timer,
                        pare_advice *out)
{
    const pare_unstructured_options magnitude = {.n = how->n,
                                                 .m = how->m,
                                                 .score = PARE_SCORE_L1,
                                                 .fixed_order = true,
                                                 .threads = how->threads,
                                                 .keep = how->keep,
                                                 .keep_user = how->keep_user};
    pare_unstructured_facts facts = {0};
    pare_model *sparse = NULL;
    *out = (pare_advice){.device = "cpu"};
    PARE_TRY(pare_tool_open_device(tool));
    if (tool->device) out->device = tool->device->name;
    PARE_TRY(pare_model_clone(tool->ctx, &sparse, model));
    pare_status st = pare_prune_unstructured(tool->ctx, sparse, &magnitude, &facts);
    if (st == PARE_OK) st = layers_list(tool, &facts, out);
    if (st == PARE_OK && tool->device && how->n == 2 && how->m == 4) st = timer(tool, sparse, out);
    pare_model_free(sparse);
    if (st == PARE_OK) pare_advice_judge(out);
    return st;
}

/* --- what is said --- */

static void print_layers(const pare_advice *a, pare_tool *tool, FILE *to)
{
    pare_table table;
    pare_table_init(&table, &tool->arena, "lrrrl");
    pare_table_add(&table, "layer|dense|2:4|times as fast|");
    for (int i = 0; i < a->count; i++) {
        const pare_advice_layer *l = &a->layer[i];
        if (l->note || l->sparse < 0)
            pare_table_add(&table, "%s||||%s", l->node, l->note ? l->note : "no kernel takes it");
        else
            pare_table_add(&table, "%s|%.2f us|%.2f us|%.2f|%s", l->node, 1e6 * l->dense,
                           1e6 * l->sparse, l->sparse > 0 ? l->dense / l->sparse : 0.0,
                           l->pays ? "pays" : "");
    }
    pare_table_print(&table, to);
}

void pare_advice_print(const pare_advice *a, const pare_unstructured_options *how, pare_tool *tool,
                       FILE *to)
{
    static const char instead[] =
        "For time remove channels (--latency, --macs) or quantize to int8 (pare quantize).";
    if (a->run <= 0) {
        fprintf(to,
                "%s has no kernel for %d:%d: zeros gain no time there, the model's ceiling is "
                "1.00x, in none of the %d layers that %d:%d fits does it pay. %s\n",
                a->device, how->n, how->m, a->fit, how->n, how->m, instead);
        return;
    }
    print_layers(a, tool, to);
    fprintf(to,
            "%s, f16: 2:4 pays in %d of the %d layers it fits, for %.2fx of the whole model's "
            "speed. The model's ceiling, all of them as much faster as the best (%.2fx), is "
            "%.2fx.\n",
            a->device, a->paying, a->fit, a->gain, a->best, a->ceiling);
    if (!a->paying) fprintf(to, "%s\n", instead);
}

json_t *pare_advice_json(const pare_advice *a)
{
    json_t *list = json_array();
    for (int i = 0; i < a->count; i++) {
        const pare_advice_layer *l = &a->layer[i];
        json_t *row = json_pack("{s:o, s:o, s:b}", "node", pare_json_text(l->node), "weight",
                                pare_json_text(l->weight), "pays", l->pays);
        if (l->note) json_object_set_new(row, "note", pare_json_text(l->note));
        if (l->dense >= 0) json_object_set_new(row, "dense_us", json_real(1e6 * l->dense));
        if (l->sparse >= 0) json_object_set_new(row, "sparse_us", json_real(1e6 * l->sparse));
        json_array_append_new(list, row);
    }
    return json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:o}", "device", a->device, "fit", a->fit,
                     "paying", a->paying, "run_us", 1e6 * a->run, "best_ratio", a->best, "gain",
                     a->gain, "ceiling", a->ceiling, "layers", list);
}
