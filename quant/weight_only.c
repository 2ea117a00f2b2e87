/* SPDX-License-Identifier: Apache-2.0 */
/* Weights alone quantized, of matrix products: 4 bits with a scale a block of rows (W4A16), or 8
   bits (W8A16). The file has a DequantizeLinear (ONNX 21: INT4 and blocks) before each product;
   activations stay float.

   With samples, weights are rounded by GPTQ (round.h) in the order of the graph: each layer's
   second moments are those of its inputs in the model whose earlier layers are rounded already, so
   that one layer's moments are in memory at a time. */
#include "calib/capture.h"
#include "quant/internal.h"
#include "quant/round.h"
#include "runtime/exec/exec.h"

#include <math.h>
#include <string.h>

static const int64_t MOST_WEIGHTS = 1 << 24; /* that are f64 at once */

/* A constant matrix that products read: rows are outputs. */
typedef struct matrix {
    pare_node *node; /* the first that reads it */
    pare_value *value, *x;
    bool outputs_first; /* the tensor is (rows, columns), else (columns, rows) */
    bool shared;        /* several read it */
    int64_t rows, columns;
    int8_t *level; /* (rows, columns); NULL: not rounded by samples */
    float *scale;  /* (rows, groups) */
} matrix;

typedef struct weight_only {
    pare_ctx *ctx;
    pare_model *model;
    pare_arena *arena;
    const pare_quant_options *options;
    pare_quant_facts *facts;
    pare_quant_grid grid;
    pare_quant_nodes nodes;
    matrix *item;
    int count;
    size_t capacity;
    pare_ptr_map at; /* value -> its place */
} weight_only;

static pare_quant_grid grid_of(const pare_quant_options *o)
{
    const bool four = o->precision == PARE_PRECISION_W4A16;
    const int bits = four ? 4 : 8;
    return (pare_quant_grid){pare_quant_weight_low(bits), pare_quant_weight_high(bits),
                             o->block_size, false};
}

/* --- which weights --- */

/* Why a weighted node keeps its float weight, or NULL. */
static const char *obstacle(const weight_only *w, const pare_node *node, const pare_weighted *part)
{
    const pare_value *x = pare_node_in(node, part->x), *v = pare_node_in(node, part->w);
    if (!pare_quant_chosen(&w->nodes, node)) return "skipped by a pattern";
    if (!x || !v) return "an input is missing";
    if (!v->data) return "its weight is computed";
    if (part->w < part->x) return "its weight is on the left";
    if (v->dtype != PARE_f32 || x->dtype != PARE_f32) return "its inputs are not f32";
    if (v->data->rank != 2) return "its weight is no matrix";
    if (v->data->count == 0) return "its weight is empty";
    return NULL;
}

static pare_status add_matrix(weight_only *w, pare_node *node, const pare_weighted *part)
{
    pare_value *v = node->in[part->w];
    const bool outputs_first = part->axis == 0;
    const int at = pare_ptr_map_find(&w->at, v);
    if (at >= 0) {
        w->item[at].shared = true;
        return PARE_OK;
    }
    if (!pare_arena_grow(w->arena, &w->item, &w->capacity, (size_t)w->count, sizeof *w->item))
        return PARE_MEMORY;
    w->item[w->count] = (matrix){.node = node,
                                 .value = v,
                                 .x = node->in[part->x],
                                 .outputs_first = outputs_first,
                                 .rows = v->data->dims[outputs_first ? 0 : 1],
                                 .columns = v->data->dims[outputs_first ? 1 : 0]};
    PARE_TRY(pare_quant_check_finite(w->model, v, v->data));
    return pare_ptr_map_put(&w->at, v, w->count++);
}

/* A matrix that another node reads along its other axis cannot serve both. */
static bool turned_elsewhere(const weight_only *w, const pare_value *v, bool outputs_first)
{
    const int at = pare_ptr_map_find(&w->at, v);
    return at >= 0 && w->item[at].outputs_first != outputs_first;
}

/* Is it a node whose weight becomes integers? Notes why not. */
static pare_status take(weight_only *w, pare_node *node, pare_weighted *part, bool *taken)
{
    *taken = false;
    if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED) return PARE_OK;
    PARE_TRY(pare_op_of(node)->quant.weighted(node, part));
    const char *why = obstacle(w, node, part);
    if (!why && turned_elsewhere(w, node->in[part->w], part->axis == 0))
        why = "another node reads its weight transposed";
    *taken = !why;
    if (!why) return PARE_OK;
    w->facts->float_nodes++;
    return pare_quant_note(w->model, w->facts, "%s (%s) stays float: %s",
                           pare_quant_node_name(node), node->op_type, why);
}

static pare_status find_matrices(weight_only *w)
{
    pare_ptr_map_init(&w->at, w->arena);
    PARE_TRY(pare_quant_select(w->model, w->arena, w->options, &w->nodes));
    for (int n = 0; n < w->nodes.count; n++) {
        pare_weighted part;
        bool taken;
        PARE_TRY(take(w, w->nodes.item[n], &part, &taken));
        if (taken) PARE_TRY(add_matrix(w, w->nodes.item[n], &part));
    }
    if (w->count) return PARE_OK;
    return PARE_FAIL(w->ctx, INPUT,
                     "%s: no weight can become integers; expected a MatMul or Gemm with a constant "
                     "f32 matrix that --skip and --only leave to quantize",
                     w->model->path);
}

/* --- rounding --- */

static int64_t place_of(const matrix *m, int64_t row, int64_t column)
{
    return m->outputs_first ? row * m->columns + column : column * m->rows + row;
}

static int64_t rows_at_once(const matrix *m)
{
    const int64_t rows = MOST_WEIGHTS / m->columns;
    return rows < 1 ? 1 : rows < m->rows ? rows : m->rows;
}

static void read_rows(const matrix *m, int64_t from, int64_t count, double *to)
{
    const void *data = m->value->data->data;
    for (int64_t k = 0; k < m->columns; k++)
        for (int64_t r = 0; r < count; r++)
            to[r * m->columns + k] = (double)pare_quant_number(data, place_of(m, from + r, k));
}

/* factor: what GPTQ needs of the inputs; NULL: to the nearest. level (rows, columns), scale (rows,
   groups). */
static pare_status round_matrix(pare_ctx *ctx, const matrix *m, const pare_quant_grid *grid,
                                const double *factor, int threads, int8_t *level, float *scale)
{
    const int64_t most = rows_at_once(m), groups = pare_quant_groups(grid, m->columns);
    double *w = pare_alloc(ctx, (size_t)(most * m->columns), sizeof *w);
    pare_status st = w ? PARE_OK : PARE_MEMORY;
    for (int64_t r = 0; st == PARE_OK && r < m->rows; r += most) {
        const int64_t count = m->rows - r < most ? m->rows - r : most;
        int8_t *to = level + r * m->columns;
        read_rows(m, r, count, w);
        if (factor)
            st = pare_quant_round_gptq(ctx, factor, w, count, m->columns, grid, to,
                                       scale + r * groups, threads);
        else
            pare_quant_round_nearest(w, count, m->columns, grid, to, scale + r * groups, threads);
        if (st == PARE_OK) st = pare_ctx_poll(ctx);
    }
    pare_free(w);
    return st;
}

/* --- the walk through the layers --- */

typedef struct walk {
    weight_only *w;
    const pare_quant_search *asked;
    pare_model *rounded; /* a copy whose weights change */
    pare_capture *flow;
    int threads;
} walk;

/* Moments of the input that matrices first .. last - 1 read. */
static pare_status observe(walk *k, const matrix *first, pare_observer **out, bool *ok)
{
    const char *name[] = {first->x->name};
    const bool keep[] = {true};
    pare_columns columns;
    const pare_value *y = pare_graph_find_own(k->rounded->graph, first->node->out[0]->name);
    PARE_TRY(pare_capture_begin(k->flow, name, keep, 1));
    PARE_TRY(pare_columns_read(y->producer, pare_capture_shape(k->flow, 0), &columns, ok));
    if (!*ok) return PARE_OK;
    PARE_TRY(pare_observer_new(k->w->ctx, out, &columns, 1, false, k->threads));
    for (;;) {
        pare_capture_batch x;
        PARE_TRY(pare_capture_next(k->flow, &x));
        for (int r = 0; r < x.count; r++)
            PARE_TRY(pare_observer_add(*out, x.first + r, x.value[0] + r * x.size[0], NULL, NULL));
        if (!x.count) return pare_observer_finish(*out);
    }
}

/* The rounded weight takes its place in the copy. */
static pare_status put(walk *k, const matrix *m)
{
    const pare_quant_grid *grid = &k->w->grid;
    const int64_t groups = pare_quant_groups(grid, m->columns);
    const int64_t group = groups > 1 ? grid->group : m->columns;
    pare_value *v = pare_graph_find_own(k->rounded->graph, m->value->name);
    const pare_tensor *old = v->data;
    float *data = pare_alloc(k->w->ctx, (size_t)old->count, sizeof *data);
    pare_tensor *t;
    if (!data) return PARE_MEMORY;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->columns; c++)
            data[place_of(m, r, c)] =
                (float)m->level[r * m->columns + c] * m->scale[r * groups + c / group];
    pare_status st = pare_tensor_new(k->rounded, &t, v->name, PARE_f32, old->rank, old->dims, data);
    pare_free(data);
    return st == PARE_OK ? pare_value_set_init(v, t) : st;
}

static pare_status round_by(walk *k, matrix *m, const double *factor)
{
    weight_only *w = k->w;
    const size_t groups = (size_t)pare_quant_groups(&w->grid, m->columns);
    m->level = pare_arena_alloc(w->arena, (size_t)(m->rows * m->columns), 1);
    m->scale = pare_arena_alloc(w->arena, (size_t)m->rows * groups, sizeof *m->scale);
    if (!m->level || !m->scale) return PARE_MEMORY;
    PARE_TRY(round_matrix(w->ctx, m, &w->grid, factor, k->threads, m->level, m->scale));
    return put(k, m);
}

static bool is_inner(const matrix *m) { return m->node->graph->parent != NULL; }

/* Matrices first .. last - 1, which read one input. */
static pare_status round_group(walk *k, int first, int last)
{
    matrix *m = &k->w->item[first];
    pare_observer *observer = NULL;
    bool ok = false;
    double *factor = NULL;
    pare_status st = m->shared || is_inner(m) ? PARE_OK : observe(k, m, &observer, &ok);
    if (st == PARE_OK && ok) {
        factor = pare_alloc(k->w->ctx, (size_t)(m->columns * m->columns), sizeof *factor);
        st = factor ? pare_quant_gptq_factor(k->w->ctx, pare_observer_moments(observer, 0, 0),
                                             k->threads, factor)
                    : PARE_MEMORY;
    }
    pare_observer_free(observer);
    for (; st == PARE_OK && first < last; first++) {
        m = &k->w->item[first];
        if (!is_inner(m)) st = round_by(k, m, factor);
    }
    pare_free(factor);
    return st == PARE_OK
               ? st
               : pare_fail_prefix(k->w->ctx, st, "%s: weight '%s'", k->w->model->path,
                                  k->w->item[first < last ? first : last - 1].value->name);
}

/* What the layers from `first` on will ask for. */
static pare_status forget(walk *k, int first)
{
    const weight_only *w = k->w;
    const char **names = pare_alloc(w->ctx, (size_t)w->count + 1, sizeof *names);
    int count = 0;
    if (!names) return PARE_MEMORY;
    for (int i = first; i < w->count; i++)
        if (!is_inner(&w->item[i])) names[count++] = w->item[i].x->name;
    const pare_status st = pare_capture_forget(k->flow, names, count);
    pare_free(names);
    return st;
}

static pare_status walk_all(walk *k)
{
    const matrix *item = k->w->item;
    const int count = k->w->count;
    for (int first = 0, last; first < count; first = last) {
        for (last = first + 1; last < count && item[last].x == item[first].x &&
                               item[last].shared == item[first].shared;)
            last++;
        PARE_TRY(round_group(k, first, last));
        PARE_TRY(forget(k, last));
        if (k->asked->progress) k->asked->progress(k->asked->progress_user, last, count);
        PARE_TRY(pare_ctx_poll(k->w->ctx));
    }
    return PARE_OK;
}

/* Rounds by what the samples say. */
static pare_status round_all(weight_only *w, const pare_quant_search *asked)
{
    walk k = {.w = w, .asked = asked, .threads = asked->threads};
    if (k.threads < 1) k.threads = pare_cpu_cores();
    const pare_capture_options capture = {.samples = asked->samples,
                                          .sample_count = asked->sample_count,
                                          .threads = k.threads,
                                          .device = asked->device,
                                          .room = PARE_QUANT_KEEP_ROOM};
    pare_status st = pare_model_clone(w->ctx, &k.rounded, w->model);
    if (st == PARE_OK) st = pare_capture_new(w->ctx, &k.flow, k.rounded, asked->data, &capture);
    if (st == PARE_OK) st = walk_all(&k);
    pare_capture_free(k.flow);
    pare_model_free(k.rounded);
    return st;
}

/* --- writing --- */

/* Levels in the tensor's order. */
static void pack_levels(const matrix *m, const int8_t *level, int bits, int8_t *turned, uint8_t *to)
{
    int8_t *bytes = bits == 8 ? (int8_t *)to : turned;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->columns; c++)
            bytes[place_of(m, r, c)] = level[r * m->columns + c];
    if (bits == 4) pare_quant_pack_levels(bytes, m->rows * m->columns, to);
}

/* Constants of a matrix: levels and scales. */
static pare_status write_constants(weight_only *w, const matrix *m, const int8_t *level,
                                   const float *scale, pare_value *in[2])
{
    const int bits = w->grid.high > 7 ? 8 : 4;
    const int64_t groups = pare_quant_groups(&w->grid, m->columns);
    const bool blocked = w->grid.group > 0;
    const int64_t wide[] = {m->outputs_first ? m->rows : groups,
                            m->outputs_first ? groups : m->rows};
    pare_graph *graph = m->value->graph;
    const pare_tensor *t = m->value->data;
    uint8_t *packed = pare_alloc(w->ctx, (size_t)(t->count * bits + 7) / 8, 1);
    int8_t *bytes = pare_alloc(w->ctx, bits == 4 ? (size_t)t->count : 1, 1);
    float *turned = pare_alloc(w->ctx, (size_t)(m->rows * groups), sizeof *turned);
    pare_status st = packed && bytes && turned ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) {
        pack_levels(m, level, bits, bytes, packed);
        for (int64_t r = 0; r < m->rows; r++)
            for (int64_t g = 0; g < groups; g++)
                turned[m->outputs_first ? r * groups + g : g * m->rows + r] = scale[r * groups + g];
        st = pare_quant_constant(graph, &in[0], m->value->name, "quantized",
                                 bits == 8 ? PARE_s8 : PARE_s4, t->rank, t->dims, packed);
    }
    if (st == PARE_OK)
        st = pare_quant_constant(graph, &in[1], m->value->name, "scale", PARE_f32, blocked ? 2 : 1,
                                 blocked ? wide : &m->rows, turned);
    pare_free(packed);
    pare_free(bytes);
    pare_free(turned);
    return st;
}

/* As samples rounded it, else to the nearest. */
static pare_status write_matrix(weight_only *w, const matrix *m, pare_value *in[2])
{
    if (m->level) return write_constants(w, m, m->level, m->scale, in);
    const size_t groups = (size_t)pare_quant_groups(&w->grid, m->columns);
    int8_t *level = pare_alloc(w->ctx, (size_t)(m->rows * m->columns), 1);
    float *scale = pare_alloc(w->ctx, (size_t)m->rows * groups, sizeof *scale);
    pare_status st = level && scale ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) st = round_matrix(w->ctx, m, &w->grid, NULL, pare_cpu_cores(), level, scale);
    if (st == PARE_OK) st = write_constants(w, m, level, scale, in);
    pare_free(level);
    pare_free(scale);
    return st;
}

static pare_status dequantize(weight_only *w, const matrix *m, pare_node *reader,
                              pare_value *const *in, pare_value **out)
{
    pare_node *node;
    PARE_TRY(pare_quant_value(reader->graph, out, m->value->name, "dequantized"));
    pare_value_set_type(*out, PARE_f32, &m->value->shape);
    PARE_TRY(pare_quant_insert(reader->graph, pare_node_index(reader), &node, "DequantizeLinear",
                               m->value->name, in, 2, *out));
    const int output_axis = m->outputs_first ? 0 : 1;
    w->facts->dq_nodes++;
    if (!w->grid.group) return pare_node_set_int(node, "axis", output_axis);
    PARE_TRY(pare_node_set_int(node, "axis", 1 - output_axis));
    return pare_node_set_int(node, "block_size", w->grid.group);
}

/* Every chosen node reads the integers, through a DequantizeLinear of its graph. */
static pare_status write_all(weight_only *w)
{
    struct written {
        pare_value *in[2], *seen;
    } *written = pare_arena_alloc(w->arena, (size_t)w->count, sizeof *written);
    if (!written) return PARE_MEMORY;
    for (int n = 0; n < w->nodes.count; n++) {
        pare_node *node = w->nodes.item[n];
        pare_weighted part;
        if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED) continue;
        PARE_TRY(pare_op_of(node)->quant.weighted(node, &part));
        const int at =
            obstacle(w, node, &part) ? -1 : pare_ptr_map_find(&w->at, pare_node_in(node, part.w));
        if (at < 0 || w->item[at].outputs_first != (part.axis == 0)) continue;
        const matrix *m = &w->item[at];
        if (!written[at].in[0]) PARE_TRY(write_matrix(w, m, written[at].in));
        pare_value *seen = written[at].seen;
        if (!seen || seen->graph != node->graph)
            PARE_TRY(dequantize(w, m, node, written[at].in, &seen));
        written[at].seen = seen;
        PARE_TRY(pare_node_set_in(node, part.w, seen));
        w->facts->quantized_nodes++;
    }
    return PARE_OK;
}

pare_status pare_quant_to_weight_only(pare_ctx *ctx, pare_model *model,
                                      const pare_quant_options *options, pare_quant_facts *facts)
{
    pare_arena arena;
    pare_arena_init(&arena, ctx);
    weight_only w = {.ctx = ctx,
                     .model = model,
                     .arena = &arena,
                     .options = options,
                     .facts = facts,
                     .grid = grid_of(options)};
    pare_status st = find_matrices(&w);
    if (st == PARE_OK && options->inputs) st = round_all(&w, options->inputs);
    if (st == PARE_OK) st = write_all(&w);
    if (st == PARE_OK) st = pare_graph_sweep_all(model->graph);
    pare_arena_free(&arena);
    return st == PARE_OK ? pare_quant_manifest(model, options, NULL) : st;
}
