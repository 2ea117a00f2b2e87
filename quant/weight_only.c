/* SPDX-License-Identifier: Apache-2.0 */
/* Weights alone quantized, of matrix products: 4 bits with a scale a block of rows (W4A16), or 8
   bits (W8A16). The file has a DequantizeLinear (ONNX 21: INT4 and blocks) before each product;
   activations stay float.

   Matrices are rounded and replaced one after the other in the order of the graph. With samples
   each aims at what it gave in the float model, on its inputs in the model whose earlier layers are
   integers already (rounding/layer.c), and its input's channels may be scaled (awq.c). Memory is
   that of one layer, and of activations that are kept from layer to layer. */
#include "formats/onnx.h"
#include "quant/weight_only.h"
#include "runtime/base/minifloat.h"
#include "runtime/exec/exec.h"

static const int64_t MOST_WEIGHTS = 1 << 22; /* that are f64 at once */

typedef struct weight_only {
    pare_ctx *ctx;
    pare_model *model;
    pare_arena *arena;
    const pare_quant_options *options;
    pare_quant_facts *facts;
    pare_quant_grid grid;
    pare_quant_nodes nodes;
    pare_quant_matrix *item;
    int count;
    size_t capacity;
    pare_ptr_map at; /* value -> its place */
} weight_only;

static pare_quant_grid grid_of(const pare_quant_options *o)
{
    const bool four = o->precision == PARE_PRECISION_W4A16;
    const int bits = four ? 4 : 8;
    pare_quant_grid grid = {.low = pare_quant_weight_low(bits),
                            .high = pare_quant_weight_high(bits),
                            .group = o->block_size};
    if (o->float_weights) {
        grid.format = four ? PARE_f4e2m1 : PARE_f8e4m3;
        grid.high = four ? 7 : 126; /* codes of 6 and of 448 */
        grid.low = -grid.high;
        grid.powers = four;
    }
    return grid;
}

static int bits_of(const weight_only *w)
{
    return w->options->precision == PARE_PRECISION_W4A16 ? 4 : 8;
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
    if (pare_node_int(node, "transA", 0)) return "its input is transposed";
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
    w->item[w->count] = (pare_quant_matrix){.node = node,
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

static int64_t rows_at_once(const pare_quant_matrix *m)
{
    const int64_t rows = MOST_WEIGHTS / m->columns;
    return rows < 1 ? 1 : rows < m->rows ? rows : m->rows;
}

void pare_quant_matrix_read(const pare_quant_matrix *m, int64_t from, int64_t count, double *to)
{
    const void *data = m->value->data->data;
    const pare_quant_scaling *s = m->scaling && m->scaling->divided ? m->scaling : NULL;
    for (int64_t k = 0; k < m->columns; k++) {
        const double by = s ? (double)s->factor[k / s->pair.block] : 1;
        for (int64_t r = 0; r < count; r++)
            to[r * m->columns + k] =
                by * (double)pare_quant_number(data, pare_quant_matrix_place(m, from + r, k));
    }
}

/* rounder NULL: to the nearest. level (rows, columns), scale (rows, groups). */
static pare_status round_matrix(pare_ctx *ctx, const pare_quant_matrix *m,
                                const pare_quant_grid *grid, const pare_quant_rounder *rounder,
                                int threads, int8_t *level, float *scale)
{
    const int64_t most = rows_at_once(m), groups = pare_quant_groups(grid, m->columns);
    double *w = pare_alloc(ctx, (size_t)(most * m->columns), sizeof *w);
    pare_status st = w ? PARE_OK : PARE_MEMORY;
    for (int64_t r = 0; st == PARE_OK && r < m->rows; r += most) {
        const int64_t count = m->rows - r < most ? m->rows - r : most;
        int8_t *to = level + r * m->columns;
        pare_quant_matrix_read(m, r, count, w);
        if (rounder)
            st = pare_quant_round_layer(rounder, w, count, grid, to, scale + r * groups);
        else
            pare_quant_round_nearest(w, count, m->columns, grid, to, scale + r * groups, threads);
        if (st == PARE_OK) st = pare_ctx_poll(ctx);
    }
    pare_free(w);
    return st;
}

/* --- writing --- */

/* A float format's code: the sign is its highest bit. */
static int8_t code_of(int8_t level, int bits)
{
    return (int8_t)(level < 0 ? -level | 1 << (bits - 1) : level);
}

/* Levels in the tensor's order. */
static void pack_levels(const weight_only *w, const pare_quant_matrix *m, const int8_t *level,
                        int8_t *turned, uint8_t *to)
{
    const int bits = bits_of(w);
    int8_t *bytes = bits == 8 ? (int8_t *)to : turned;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->columns; c++) {
            const int8_t q = level[r * m->columns + c];
            bytes[pare_quant_matrix_place(m, r, c)] =
                w->options->float_weights ? code_of(q, bits) : q;
        }
    if (bits == 4) pare_quant_pack_levels(bytes, m->rows * m->columns, to);
}

/* Scales that are powers of two, as exponents; else as they are. */
static pare_status write_scales(const weight_only *w, const pare_quant_matrix *m,
                                const float *scale, int64_t count, int rank, const int64_t *dims,
                                pare_value **out)
{
    pare_graph *graph = m->value->graph;
    const char *name = m->value->name;
    if (!w->grid.powers)
        return pare_quant_constant(graph, out, name, "scale", PARE_f32, rank, dims, scale);
    uint8_t *code = pare_alloc(w->ctx, (size_t)count, 1);
    if (!code) return PARE_MEMORY;
    for (int64_t i = 0; i < count; i++)
        code[i] = pare_minifloat_from_f32(PARE_f8e8m0, scale[i], true, PARE_ROUND_NEAREST);
    const pare_status st =
        pare_quant_constant(graph, out, name, "scale", PARE_f8e8m0, rank, dims, code);
    pare_free(code);
    return st;
}

static pare_dtype type_of(const weight_only *w)
{
    if (w->options->float_weights) return w->grid.format;
    return bits_of(w) == 8 ? PARE_s8 : PARE_s4;
}

/* Constants of a matrix: levels and scales. */
static pare_status write_constants(weight_only *w, const pare_quant_matrix *m, const int8_t *level,
                                   const float *scale, pare_value *in[2])
{
    const int bits = bits_of(w);
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
        pack_levels(w, m, level, bytes, packed);
        for (int64_t r = 0; r < m->rows; r++)
            for (int64_t g = 0; g < groups; g++)
                turned[m->outputs_first ? r * groups + g : g * m->rows + r] = scale[r * groups + g];
        st = pare_quant_constant(graph, &in[0], m->value->name, "quantized", type_of(w), t->rank,
                                 t->dims, packed);
    }
    if (st == PARE_OK)
        st = write_scales(w, m, turned, m->rows * groups, blocked ? 2 : 1,
                          blocked ? wide : &m->rows, &in[1]);
    pare_free(packed);
    pare_free(bytes);
    pare_free(turned);
    return st;
}

static pare_status write_matrix(weight_only *w, const pare_quant_matrix *m,
                                const pare_quant_rounder *rounder, int threads, pare_value *in[2])
{
    const size_t groups = (size_t)pare_quant_groups(&w->grid, m->columns);
    int8_t *level = pare_alloc(w->ctx, (size_t)(m->rows * m->columns), 1);
    float *scale = pare_alloc(w->ctx, (size_t)m->rows * groups, sizeof *scale);
    pare_status st = level && scale ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK) st = round_matrix(w->ctx, m, &w->grid, rounder, threads, level, scale);
    if (st == PARE_OK) st = write_constants(w, m, level, scale, in);
    pare_free(level);
    pare_free(scale);
    pare_tensor_give_back(m->value->data);
    return st;
}

static pare_status dequantize(weight_only *w, const pare_quant_matrix *m, pare_node *reader,
                              pare_value *const *in, pare_value **out)
{
    pare_node *node;
    PARE_TRY(pare_quant_value(reader->graph, out, m->value->name, "dequantized"));
    pare_value_set_type(*out, PARE_f32, &m->value->shape);
    PARE_TRY(pare_quant_insert(reader->graph, pare_node_index(reader), &node, "DequantizeLinear",
                               m->value->name, in, 2, *out));
    const int output_axis = m->outputs_first ? 0 : 1;
    w->facts->dq_nodes++;
    if (w->grid.powers) PARE_TRY(pare_node_set_int(node, "output_dtype", PARE_f32));
    if (!w->grid.group) return pare_node_set_int(node, "axis", output_axis);
    PARE_TRY(pare_node_set_int(node, "axis", 1 - output_axis));
    return pare_node_set_int(node, "block_size", w->grid.group);
}

/* Is it a chosen node that reads the matrix as its weight? */
static pare_status reads(const weight_only *w, const pare_quant_matrix *m, const pare_node *node,
                         pare_weighted *part, bool *out)
{
    *out = false;
    if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED) return PARE_OK;
    PARE_TRY(pare_op_of(node)->quant.weighted(node, part));
    *out = pare_node_in(node, part->w) == m->value && !obstacle(w, node, part) &&
           m->outputs_first == (part->axis == 0);
    return PARE_OK;
}

/* Rounds a matrix; every chosen node that reads it reads the integers, through a DequantizeLinear
   of its graph. */
static pare_status replace(weight_only *w, const pare_quant_matrix *m,
                           const pare_quant_rounder *rounder, int threads)
{
    const int count = m->value->user_count;
    pare_node **user = pare_arena_alloc(w->arena, (size_t)count + 1, sizeof *user);
    pare_value *in[2], **seen = pare_arena_alloc(w->arena, (size_t)count + 1, sizeof *seen);
    int views = 0;
    if (!user || !seen) return PARE_MEMORY;
    for (int i = 0; i < count; i++) user[i] = m->value->user[i];
    PARE_TRY(write_matrix(w, m, rounder, threads, in));
    for (int i = 0; i < count; i++) {
        pare_weighted part;
        bool reader;
        int k = 0;
        PARE_TRY(reads(w, m, user[i], &part, &reader));
        if (!reader) continue;
        while (k < views && seen[k]->graph != user[i]->graph) k++;
        if (k == views) PARE_TRY(dequantize(w, m, user[i], in, &seen[views++]));
        PARE_TRY(pare_node_set_in(user[i], part.w, seen[k]));
        w->facts->quantized_nodes++;
    }
    return PARE_OK;
}

/* --- the walk through the layers --- */

typedef struct walk {
    weight_only *w;
    const pare_quant_search *asked; /* NULL: all to the nearest */
    bool rounds;                    /* by what the samples show; else they choose scaling alone */
    pare_quant_flows flows;
} walk;

static bool is_inner(const pare_quant_matrix *m) { return m->node->graph->parent != NULL; }

/* Can samples show what it sums over? */
static bool is_seen(const walk *k, const pare_quant_matrix *m)
{
    return k->asked && !m->shared && !is_inner(m);
}

/* Are they to? */
static bool is_asked(const walk *k, const pare_quant_matrix *m)
{
    return is_seen(k, m) && (k->rounds || m->scaling);
}

/* Matrices first .. last - 1, which read one input. */
static pare_status round_group(walk *k, int first, int last)
{
    const pare_quant_matrix *m = &k->w->item[first];
    pare_observer *observer = NULL;
    pare_quant_rounder *rounder = NULL;
    pare_columns columns;
    bool ok = false;
    pare_status st = PARE_OK;
    if (is_asked(k, m))
        st = pare_quant_observe(k->w->ctx, &k->flows, m->node, m->x->name, m->x->name, &columns,
                                &observer, &ok);
    if (st == PARE_OK && ok)
        st = pare_quant_scaling_choose(k->w->ctx, k->w->arena, m, last - first, &k->w->grid,
                                       k->rounds, k->flows.threads,
                                       pare_observer_moments(observer, 0, 0));
    if (st == PARE_OK && ok && k->rounds) {
        const pare_quant_layer layer = {.moments = pare_observer_moments(observer, 0, 0),
                                        .targets_are_inputs = true,
                                        .iterations = pare_quant_iterations(k->w->options),
                                        .threads = k->flows.threads};
        st = pare_quant_rounder_new(k->w->ctx, &rounder, &layer);
    }
    for (; st == PARE_OK && first < last; first++) {
        m = &k->w->item[first];
        const bool fits = rounder && m->columns == columns.columns;
        st = replace(k->w, m, fits ? rounder : NULL, k->flows.threads);
    }
    pare_quant_rounder_free(rounder);
    pare_observer_free(observer);
    return st == PARE_OK ? st
                         : pare_fail_prefix(k->w->ctx, st, "%s: weight '%s'", k->w->model->path,
                                            m->value->name);
}

/* What the layers from `first` on will ask for. */
static pare_status forget(walk *k, int first)
{
    const weight_only *w = k->w;
    const char **names = pare_alloc(w->ctx, (size_t)w->count + 1, sizeof *names);
    int count = 0;
    if (!names) return PARE_MEMORY;
    for (int i = first; i < w->count; i++)
        if (is_asked(k, &w->item[i])) names[count++] = w->item[i].x->name;
    pare_status st = pare_capture_forget(k->flows.now, names, count);
    if (st == PARE_OK) st = pare_capture_forget(k->flows.before, names, count);
    pare_free(names);
    return st;
}

static pare_status walk_all(walk *k)
{
    const pare_quant_matrix *item = k->w->item;
    const int count = k->w->count;
    for (int first = 0, last; first < count; first = last) {
        for (last = first + 1; last < count && item[last].x == item[first].x &&
                               is_seen(k, &item[last]) == is_seen(k, &item[first]);)
            last++;
        PARE_TRY(round_group(k, first, last));
        if (!k->asked) continue;
        PARE_TRY(forget(k, last));
        if (k->asked->progress) k->asked->progress(k->asked->progress_user, last, count);
        PARE_TRY(pare_ctx_poll(k->w->ctx));
    }
    return PARE_OK;
}

/* The file's manifest says which samples the weights were rounded by. */
static pare_status note_samples(weight_only *w, const pare_capture *flow)
{
    pare_hash hash;
    char text[33];
    if (!pare_capture_hash(flow, &hash)) return PARE_OK; /* nothing was read */
    pare_hash_text(hash, text);
    return pare_onnx_manifest(w->ctx, w->model, NULL, text);
}

static pare_status round_all(weight_only *w)
{
    const pare_quant_search *asked = w->options->inputs;
    walk k = {.w = w,
              .asked = asked,
              .rounds = pare_quant_rounds_by_samples(w->options),
              .flows.threads = w->options->threads};
    pare_status st = PARE_OK;
    if (k.flows.threads < 1) k.flows.threads = pare_cpu_cores();
    if (asked && w->options->equalize)
        st = pare_quant_scalings_find(w->ctx, w->arena, &w->nodes, w->item, w->count);
    if (st == PARE_OK && asked) st = pare_quant_flows_open(w->ctx, &k.flows, w->model, asked);
    if (st == PARE_OK) st = walk_all(&k);
    if (st == PARE_OK && asked) st = note_samples(w, k.flows.now);
    pare_quant_flows_close(&k.flows);
    if (st == PARE_OK) st = pare_quant_scalings_finish(w->ctx, w->item, w->count);
    return st;
}

pare_status pare_quant_to_weight_only(pare_ctx *ctx, pare_model *model,
                                      const pare_quant_options *options, pare_quant_facts *facts)
{
    pare_arena arena;
    if (options->float_weights && options->rounding == PARE_ROUNDING_ADAROUND)
        return PARE_FAIL(ctx, USAGE, "%s: AdaRound learns integers, the weights are to be floats",
                         model->path);
    pare_arena_init(&arena, ctx);
    weight_only w = {.ctx = ctx,
                     .model = model,
                     .arena = &arena,
                     .options = options,
                     .facts = facts,
                     .grid = grid_of(options)};
    pare_status st = find_matrices(&w);
    if (st == PARE_OK) st = round_all(&w);
    if (st == PARE_OK) st = pare_graph_sweep_all(model->graph);
    if (st == PARE_OK) st = pare_graph_sort(model->graph); /* readers may come in any order */
    pare_arena_free(&arena);
    return st == PARE_OK ? pare_quant_manifest(model, options, NULL) : st;
}
