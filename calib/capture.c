/* SPDX-License-Identifier: Apache-2.0 */
/* A pass compiles a cut of the model: kept tensors become inputs, the tensors to show become
   outputs, and the rest is swept away. Its plan is deterministic and serves one sample (or the
   model's own batch); a replica pool runs what the reader has ready. */
#include "calib/capture.h"
#include "calib/calibrate.h"
#include "runtime/exec/batch.h"

#include <string.h>

enum { BATCH_RUNS = 32 };              /* side by side, at most */
static const double BATCH_BYTES = 5e8; /* of all tensors of the model, in these runs */

/* A kept tensor: of all runs, one after the other. */
typedef struct kept {
    char *name;
    float *data;
    pare_shape shape;
    int64_t size;
    bool borrowed; /* of another flow: its data, and no part of the room */
} kept;

/* Where an input of the plan, or a shown tensor, comes from. */
typedef struct source {
    int kept, input, output; /* places in flow->kept, of the data's inputs, of the plan; -1: no */
} source;

typedef struct shown {
    source from;
    pare_shape shape;
    int64_t size;
    float *data; /* of the batch, or of all runs where it will be kept; NULL: not ours */
    bool keep;
    const char *name;
} shown;

struct pare_capture {
    pare_ctx *ctx;
    const pare_model *model;
    pare_data *data;
    pare_capture_options options;
    int64_t unit, runs; /* samples of a run */
    int batch_runs;     /* runs of a batch, at most */
    const char **input; /* names of the model's inputs as the data count them */
    int input_count;
    kept *kept;
    int kept_count;
    size_t kept_capacity, kept_bytes;
    pare_hash hash;
    bool hashed;
    /* the pass */
    pare_model *cut;
    pare_plan *plan;
    pare_replicas *pool;
    pare_reader *reader;
    pare_batch batch; /* that is run */
    source *source;   /* (plan inputs) */
    shown *shown;
    const float **value;
    int64_t *size;
    int count;
    int64_t next;
};

/* --- a flow --- */

static pare_status find_inputs(pare_capture *f)
{
    const pare_graph *g = f->model->graph;
    f->input = pare_alloc(f->ctx, (size_t)g->in.count, sizeof *f->input);
    if (!f->input) return PARE_MEMORY;
    for (int i = 0; i < g->in.count; i++)
        if (!g->in.item[i]->is_init) f->input[f->input_count++] = g->in.item[i]->name;
    return pare_calib_runs(f->ctx, f->model, f->data, f->options.sample_count, &f->unit, &f->runs);
}

/* Bytes of a node's outputs in a run; a size that is not known counts as one. */
static double output_bytes(const pare_node *node)
{
    double sum = 0;
    for (int o = 0; o < node->out_count; o++) {
        const pare_value *v = node->out[o];
        double n = v ? sizeof(float) : 0;
        for (int i = 0; v && i < v->shape.rank; i++)
            n *= v->shape.dim[i] > 0 ? (double)v->shape.dim[i] : 1;
        sum += n;
    }
    return sum;
}

pare_capture_sizes pare_capture_sizes_of(const pare_model *model, int threads)
{
    const pare_graph *g = model->graph;
    pare_capture_sizes out = {.runs = BATCH_RUNS};
    if (threads < 1) threads = pare_cpu_cores();
    for (int n = 0; n < g->node_count; n++) {
        double bytes = output_bytes(g->node[n]);
        out.all += bytes;
        out.largest = bytes > out.largest ? bytes : out.largest;
    }
    if (out.all * BATCH_RUNS > BATCH_BYTES) out.runs = (int)(BATCH_BYTES / out.all);
    out.runs = out.runs > threads ? out.runs : threads;
    return out;
}

/* --- what another flow keeps --- */

/* Of two equal nodes. */
static bool same_input(const pare_value *a, const pare_value *b)
{
    if (!a || !b) return a == b;
    if (a->producer || b->producer) return a->producer && b->producer && a->producer->mark;
    return a->data && b->data ? pare_tensor_equal(a->data, b->data) : a->data == b->data;
}

/* Bodies are not looked into. */
static bool same_node(const pare_node *node, const pare_graph *other)
{
    const pare_value *v =
        node->out_count && node->out[0] ? pare_graph_find_own(other, node->out[0]->name) : NULL;
    const pare_node *n = v ? v->producer : NULL;
    bool same = n && !pare_node_has_graphs(node) && pare_node_equal(node, n);
    for (int i = 0; same && i < node->in_count; i++) same = same_input(node->in[i], n->in[i]);
    return same;
}

/* Marks the nodes that compute the same in the other graph: in one turn where the nodes are in
   topological order, and one that finds no more. */
static void mark_same(const pare_graph *g, const pare_graph *other)
{
    for (int n = 0; n < g->node_count; n++) g->node[n]->mark = 0;
    for (bool more = true; more;) {
        more = false;
        for (int n = 0; n < g->node_count; n++) {
            if (g->node[n]->mark || !same_node(g->node[n], other)) continue;
            g->node[n]->mark = 1;
            more = true;
        }
    }
}

static pare_status add_kept(pare_capture *f, const char *name, const kept *from)
{
    if (!pare_grow(f->ctx, &f->kept, &f->kept_capacity, (size_t)f->kept_count, sizeof *f->kept))
        return PARE_MEMORY;
    kept k = *from;
    k.name = pare_strdup(f->ctx, name);
    if (!k.name) return PARE_MEMORY;
    f->kept[f->kept_count++] = k;
    return PARE_OK;
}

static pare_status borrow_kept(pare_capture *f, const pare_capture *from)
{
    if (!from || from->runs != f->runs || from->unit != f->unit) return PARE_OK;
    mark_same(f->model->graph, from->model->graph);
    for (int i = 0; i < from->kept_count; i++) {
        kept k = from->kept[i];
        const pare_value *v = pare_graph_find_own(f->model->graph, k.name);
        if (!v || !v->producer || !v->producer->mark) continue;
        k.borrowed = true;
        PARE_TRY(add_kept(f, k.name, &k));
    }
    return PARE_OK;
}

pare_status pare_capture_new(pare_ctx *ctx, pare_capture **out, const pare_model *model,
                             pare_data *data, const pare_capture_options *options)
{
    pare_capture *f = pare_alloc(ctx, 1, sizeof *f);
    if (!f) return PARE_MEMORY;
    *f = (pare_capture){.ctx = ctx, .model = model, .data = data, .options = *options};
    if (f->options.threads < 1) f->options.threads = pare_cpu_cores();
    if (f->options.device) f->options.threads = 1;
    f->batch_runs = options->batch_runs > 0 ? options->batch_runs
                                            : pare_capture_sizes_of(model, f->options.threads).runs;
    pare_status st = find_inputs(f);
    if (st == PARE_OK) st = borrow_kept(f, options->begin_at);
    if (st == PARE_OK)
        *out = f;
    else
        pare_capture_free(f);
    return st;
}

bool pare_capture_hash(const pare_capture *flow, pare_hash *out)
{
    *out = flow->hash;
    return flow->hashed;
}

int64_t pare_capture_runs(const pare_capture *flow) { return flow->runs; }

static int find_kept(const pare_capture *f, const char *name)
{
    for (int i = 0; i < f->kept_count; i++)
        if (!strcmp(f->kept[i].name, name)) return i;
    return -1;
}

static void kept_free(kept *k)
{
    pare_free(k->name);
    if (!k->borrowed) pare_free(k->data);
}

/* --- ending a pass --- */

void pare_capture_end(pare_capture *f)
{
    pare_replicas_free(f->pool);
    pare_plan_free(f->plan);
    pare_model_free(f->cut);
    if (f->reader) pare_reader_close(f->reader);
    for (int k = 0; f->shown && k < f->count; k++) {
        const shown *s = &f->shown[k];
        if (s->keep && s->data) /* a pass that was given up keeps nothing */
            f->kept_bytes -= (size_t)s->size * sizeof(float) * (size_t)f->runs;
        pare_free(s->data);
    }
    pare_free(f->shown);
    pare_free(f->source);
    pare_free(f->value);
    pare_free(f->size);
    f->pool = NULL;
    f->plan = NULL;
    f->cut = NULL;
    f->reader = NULL;
    f->shown = NULL;
    f->source = NULL;
    f->value = NULL;
    f->size = NULL;
    f->count = 0;
}

void pare_capture_free(pare_capture *flow)
{
    if (!flow) return;
    pare_capture_end(flow);
    for (int i = 0; i < flow->kept_count; i++) kept_free(&flow->kept[i]);
    pare_free(flow->kept);
    pare_free(flow->input);
    pare_free(flow);
}

/* --- beginning one --- */

static int data_input(const pare_capture *f, const char *name)
{
    for (int i = 0; i < f->input_count; i++)
        if (!strcmp(f->input[i], name)) return i;
    return -1;
}

/* Kept tensors become inputs of the cut: their readers read a new value. names[i]: that of kept i.
 */
static pare_status open_kept(pare_capture *f, const char **names)
{
    pare_graph *g = f->cut->graph;
    for (int i = 0; i < f->kept_count; i++) {
        pare_value *v = pare_graph_find_own(g, f->kept[i].name), *fresh;
        names[i] = v ? pare_graph_fresh_name(g, v->name) : "";
        if (!names[i]) return PARE_MEMORY;
        if (!v) continue;
        PARE_TRY(pare_value_new(g, &fresh, names[i]));
        pare_value_set_type(fresh, PARE_f32, &f->kept[i].shape);
        PARE_TRY(pare_value_replace(v, fresh, false));
        fresh->is_input = true;
        PARE_TRY(pare_values_add(g, &g->in, fresh));
    }
    return PARE_OK;
}

static void drop_outputs(pare_graph *g)
{
    while (g->out.count) {
        pare_value *v = g->out.item[g->out.count - 1];
        v->is_output = false;
        pare_values_remove(&g->out, v);
    }
}

/* Inputs that the cut does not read. */
static void drop_inputs(pare_graph *g)
{
    for (int i = g->in.count - 1; i >= 0; i--) {
        pare_value *v = g->in.item[i];
        if (v->user_count) continue;
        v->is_input = false;
        pare_values_remove(&g->in, v);
    }
}

static pare_status show(pare_capture *f, shown *s, int *outputs)
{
    pare_graph *g = f->cut->graph;
    s->from = (source){find_kept(f, s->name), data_input(f, s->name), -1};
    if (s->from.kept >= 0 || s->from.input >= 0) return PARE_OK;
    pare_value *v = pare_graph_find_own(g, s->name);
    if (!v)
        return PARE_FAIL(f->ctx, INPUT, "%s: there is no tensor '%s' to observe", f->model->path,
                         s->name);
    for (int i = 0; i < g->out.count; i++)
        if (g->out.item[i] == v) s->from.output = i;
    if (s->from.output >= 0) return PARE_OK;
    s->from.output = (*outputs)++;
    v->is_output = true;
    return pare_values_add(g, &g->out, v);
}

static pare_status cut_model(pare_capture *f, const char **kept_names)
{
    int outputs = 0;
    PARE_TRY(pare_model_clone(f->ctx, &f->cut, f->model));
    PARE_TRY(open_kept(f, kept_names));
    drop_outputs(f->cut->graph);
    for (int k = 0; k < f->count; k++) PARE_TRY(show(f, &f->shown[k], &outputs));
    pare_graph_sweep(f->cut->graph);
    drop_inputs(f->cut->graph);
    return PARE_OK;
}

static pare_shape run_shape(const pare_capture *f, int input)
{
    return pare_data_run_shape(f->data, input, f->unit);
}

static pare_status make_plan(pare_capture *f, const char *const *kept_names)
{
    const pare_graph *g = f->cut->graph;
    pare_plan_options options = {.threads = 1, .deterministic = true, .device = f->options.device};
    if (!g->out.count) return PARE_OK;
    pare_input_shape *shape = pare_alloc(f->ctx, (size_t)g->in.count, sizeof *shape);
    f->source = pare_alloc(f->ctx, (size_t)g->in.count, sizeof *f->source);
    if (!shape || !f->source) {
        pare_free(shape);
        return PARE_MEMORY;
    }
    for (int i = 0; i < g->in.count; i++) {
        source s = {-1, data_input(f, g->in.item[i]->name), -1};
        for (int k = 0; k < f->kept_count; k++)
            if (!strcmp(kept_names[k], g->in.item[i]->name)) s.kept = k;
        f->source[i] = s;
        shape[i].name = g->in.item[i]->name;
        shape[i].shape = s.kept >= 0 ? f->kept[s.kept].shape : run_shape(f, s.input);
    }
    pare_status st = pare_plan_new(f->ctx, &f->plan, f->cut, shape, g->in.count, &options);
    pare_free(shape);
    return st;
}

static pare_status make_pool(pare_capture *f)
{
    const pare_replicas_options options = {.threads = f->options.threads};
    return f->plan ? pare_replicas_new(f->ctx, &f->pool, f->plan, &options) : PARE_OK;
}

/* Shapes of what is shown, and memory for what the pass computes. */
static pare_status make_room(pare_capture *f, const bool *keep)
{
    for (int k = 0; k < f->count; k++) {
        shown *s = &f->shown[k];
        s->shape = s->from.kept >= 0    ? f->kept[s->from.kept].shape
                   : s->from.input >= 0 ? run_shape(f, s->from.input)
                                        : pare_plan_output(f->plan, s->from.output)->shape;
        s->size = pare_shape_count(&s->shape);
        if (s->size < 0)
            return PARE_FAIL(f->ctx, UNSUPPORTED,
                             "%s: only a run knows the shape of tensor '%s'; expected one that all "
                             "samples share",
                             f->model->path, s->name);
        f->size[k] = s->size;
        if (s->from.output < 0) continue;
        const pare_dtype type = pare_plan_output(f->plan, s->from.output)->dtype;
        if (type != PARE_f32 && type != PARE_f16 && type != PARE_bf16)
            return PARE_FAIL(f->ctx, UNSUPPORTED,
                             "%s: tensor '%s' is %s, expected f32, f16 or bf16", f->model->path,
                             s->name, pare_type(type)->name);
        size_t all = (size_t)s->size * sizeof(float) * (size_t)f->runs;
        s->keep = keep && keep[k] && type == PARE_f32 && all <= f->options.room - f->kept_bytes;
        if (s->keep) f->kept_bytes += all;
        s->data = pare_alloc(f->ctx, (size_t)(s->keep ? f->runs : f->batch_runs) * (size_t)s->size,
                             sizeof(float));
        if (!s->data) return PARE_MEMORY;
    }
    return PARE_OK;
}

static bool reads_data(const pare_capture *f)
{
    for (int i = 0; f->plan && i < pare_plan_input_count(f->plan); i++)
        if (f->source[i].kept < 0) return true;
    for (int k = 0; k < f->count; k++)
        if (f->shown[k].from.kept < 0 && f->shown[k].from.input >= 0) return true;
    return false;
}

static pare_status begin(pare_capture *f, const char *const *names, const bool *keep, int count,
                         const char **kept_names)
{
    f->count = count;
    f->next = 0;
    f->shown = pare_alloc(f->ctx, (size_t)count, sizeof *f->shown);
    f->value = pare_alloc(f->ctx, (size_t)count, sizeof *f->value);
    f->size = pare_alloc(f->ctx, (size_t)count, sizeof *f->size);
    if (!f->shown || !f->value || !f->size) return PARE_MEMORY;
    for (int k = 0; k < count; k++) f->shown[k].name = names[k];
    PARE_TRY(cut_model(f, kept_names));
    PARE_TRY(make_plan(f, kept_names));
    PARE_TRY(make_pool(f));
    PARE_TRY(make_room(f, keep));
    if (!reads_data(f)) return PARE_OK;
    pare_data_take_floats(f->data); /* a calibration on a device may have asked for pixels */
    return pare_reader_open(f->ctx, &f->reader, f->data, f->options.samples, f->runs * f->unit,
                            (int)(f->batch_runs * f->unit), f->options.threads);
}

pare_status pare_capture_begin(pare_capture *flow, const char *const *names, const bool *keep,
                               int count)
{
    pare_capture_end(flow);
    const char **kept_names = pare_alloc(flow->ctx, (size_t)flow->kept_count, sizeof *kept_names);
    if (!kept_names) return PARE_MEMORY;
    pare_status st = begin(flow, names, keep, count, kept_names);
    pare_free(kept_names);
    return st;
}

const pare_shape *pare_capture_shape(const pare_capture *flow, int k)
{
    return &flow->shown[k].shape;
}

/* --- running --- */

/* Runs are counted over the pass; the batch begins with run f->next. */
static const void *of_run(const pare_capture *f, const source *s, int64_t run)
{
    if (s->kept >= 0) return f->kept[s->kept].data + run * f->kept[s->kept].size;
    return pare_data_run_input(f->data, f->batch.input, s->input, (run - f->next) * f->unit);
}

/* Inputs need not be f32: what is passed on is an address of the right run. */
static const void *input_of(const pare_capture *f, int i, int64_t run)
{
    return of_run(f, &f->source[i], run);
}

static float *place_of(const pare_capture *f, const shown *s, int64_t run)
{
    return s->data + (s->keep ? run : run - f->next) * s->size;
}

static pare_status load(void *user, int64_t run, pare_replica *replica)
{
    const pare_capture *f = user;
    if (!replica->index) PARE_TRY(pare_comm_listen(f->options.comm, &replica->ctx));
    for (int i = 0; i < pare_plan_input_count(f->plan); i++)
        pare_runner_set_input(replica->runner, i, input_of(f, i, run));
    return PARE_OK;
}

static void take_output(const pare_view *y, int64_t size, float *to)
{
    const uint16_t *half = y->data;
    if (y->dtype == PARE_f32)
        memcpy(to, y->data, (size_t)size * sizeof *to);
    else
        for (int64_t i = 0; i < size; i++) to[i] = pare_type(y->dtype)->to_f32(&half[i]);
}

static pare_status take(void *user, int64_t run, pare_replica *replica)
{
    const pare_capture *f = user;
    for (int k = 0; k < f->count; k++) {
        const shown *s = &f->shown[k];
        if (s->from.output < 0) continue;
        const pare_view y = pare_runner_output(replica->runner, s->from.output);
        take_output(&y, s->size, place_of(f, s, run));
    }
    return PARE_OK;
}

/* Where the batch's runs of each shown tensor are. */
static void point_out(pare_capture *f)
{
    for (int k = 0; k < f->count; k++) {
        const shown *s = &f->shown[k];
        f->value[k] = s->from.output >= 0 ? place_of(f, s, f->next) : of_run(f, &s->from, f->next);
    }
}

/* What the pass kept is there for the next one. */
static pare_status keep_shown(pare_capture *f)
{
    for (int k = 0; k < f->count; k++) {
        shown *s = &f->shown[k];
        if (!s->keep || !s->data) continue;
        const kept made = {.data = s->data, .shape = s->shape, .size = s->size};
        PARE_TRY(add_kept(f, s->name, &made));
        s->data = NULL;
    }
    return PARE_OK;
}

pare_status pare_capture_next(pare_capture *flow, pare_capture_batch *out)
{
    int64_t left = flow->runs - flow->next;
    const pare_batch_work work = {.load = load, .take = take, .any_order = true, .user = flow};
    *out =
        (pare_capture_batch){flow->next, (int)(left < flow->batch_runs ? left : flow->batch_runs),
                             flow->value, flow->size};
    PARE_TRY(pare_ctx_poll(flow->ctx));
    PARE_TRY(pare_comm_listen(flow->options.comm, flow->ctx));
    if (!left) {
        if (flow->reader) {
            flow->hash = pare_reader_hash(flow->reader);
            flow->hashed = true;
        }
        return keep_shown(flow);
    }
    if (flow->reader) PARE_TRY(pare_reader_next(flow->reader, &flow->batch));
    if (flow->pool) PARE_TRY(pare_replicas_run(flow->pool, flow->next, out->count, &work));
    point_out(flow);
    flow->next += out->count;
    return PARE_OK;
}

/* --- forgetting --- */

/* Marks nodes that computing a value needs, up to kept tensors, and these. */
static pare_status reach(pare_capture *f, pare_value *value, bool *needed)
{
    pare_value **stack = NULL;
    size_t capacity = 0, count = 0;
    if (!pare_grow(f->ctx, &stack, &capacity, count, sizeof *stack)) return PARE_MEMORY;
    stack[count++] = value;
    while (count) {
        pare_value *v = stack[--count];
        int k = find_kept(f, v->name);
        if (k >= 0) needed[k] = true;
        if (k >= 0 || !v->producer || v->producer->mark) continue;
        v->producer->mark = 1;
        for (int i = 0; i < v->producer->in_count; i++) {
            if (!v->producer->in[i]) continue;
            if (!pare_grow(f->ctx, &stack, &capacity, count, sizeof *stack)) {
                pare_free(stack);
                return PARE_MEMORY;
            }
            stack[count++] = v->producer->in[i];
        }
    }
    pare_free(stack);
    return PARE_OK;
}

static void drop_kept(pare_capture *f, const bool *needed)
{
    int left = 0;
    for (int i = 0; i < f->kept_count; i++) {
        if (needed[i]) {
            f->kept[left++] = f->kept[i];
            continue;
        }
        if (!f->kept[i].borrowed)
            f->kept_bytes -= (size_t)f->kept[i].size * sizeof(float) * (size_t)f->runs;
        kept_free(&f->kept[i]);
    }
    f->kept_count = left;
}

pare_status pare_capture_forget(pare_capture *flow, const char *const *names, int count)
{
    const pare_graph *g = flow->model->graph;
    bool *needed = pare_alloc(flow->ctx, (size_t)flow->kept_count, sizeof *needed);
    if (!needed) return PARE_MEMORY;
    pare_status st = PARE_OK;
    pare_capture_end(flow);
    for (int n = 0; n < g->node_count; n++) g->node[n]->mark = 0;
    for (int i = 0; i < count && st == PARE_OK; i++) {
        pare_value *v = pare_graph_find_own(g, names[i]);
        if (v) st = reach(flow, v, needed);
    }
    if (st == PARE_OK) drop_kept(flow, needed);
    pare_free(needed);
    return st;
}
