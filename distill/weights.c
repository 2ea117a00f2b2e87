/* SPDX-License-Identifier: Apache-2.0 */
/* Which constants can be weights is asked of the operator table on a copy in the newest opset: an
   input that a row reads as a setting, or of an operator without a gradient rule, is none. */
#include "distill/weights.h"
#include "runtime/base/size.h"
#include "runtime/ops/grad.h"
#include "runtime/ops/ops.h"
#include "runtime/device/training.h"
#include "runtime/passes/passes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OPSET = 21, NAMED = 3 }; /* NAMED: of a list in a message */

/* --- finding --- */

/* The vector that an Identity hands on, or NULL. */
static const pare_tensor *copied_vector(const pare_node *node)
{
    const pare_value *from = node ? pare_node_copied(node) : NULL;
    if (!from || !from->is_init || !from->data || node->out[0]->is_output) return NULL;
    return from->data->dtype == PARE_f32 && from->data->rank == 1 ? from->data : NULL;
}

/* The Identity's result becomes an initializer with this content. Where the list of initializers
   has room for one more, nothing fails. */
static pare_status hand_over(pare_value *v, const pare_tensor *own)
{
    pare_value *from = v->producer->in[0];
    pare_node_remove(v->producer);
    pare_status st = pare_value_set_init(v, own);
    if (!from->user_count && !from->is_output) pare_init_remove(from);
    return st;
}

static pare_status separate(pare_value *v)
{
    pare_model *model = v->graph->model;
    pare_tensor *own = pare_arena_memdup(&model->arena, v->producer->in[0]->data, sizeof *own);
    if (!own) return PARE_MEMORY;
    own->name = v->name;
    return hand_over(v, own);
}

pare_status pare_weights_separate(pare_model *model)
{
    for (int i = model->graph->node_count - 1; i >= 0; i--)
        if (copied_vector(model->graph->node[i])) PARE_TRY(separate(model->graph->node[i]->out[0]));
    return PARE_OK;
}

/* The constant of this name: an initializer's tensor, that of a Constant node, or a vector that an
   Identity hands on; or NULL. */
static const pare_tensor *weight_tensor(const pare_model *model, const char *name)
{
    const pare_value *v = pare_graph_find_own(model->graph, name);
    if (!v || v->data) return v ? v->data : NULL;
    if (copied_vector(v->producer)) return copied_vector(v->producer);
    return v->producer ? pare_node_constant(v->producer) : NULL;
}

/* Does this input of a node take part in what the node computes? */
static bool is_operand(const pare_node *node, int input)
{
    const pare_op *op = pare_op_of(node);
    if (!op || op->grad == pare_grad_none) return false;
    if (op->quant.f32_inputs >> input & 1) return false;
    return !pare_node_reads_statistic(node, input);
}

/* Of floats of any type. */
static bool is_weight(const pare_value *v, const pare_tensor *t)
{
    if (!t || !pare_type_is_float(t->dtype) || t->rank < 1 || t->count < 1 || v->is_output)
        return false;
    if (v->producer && t->count < 2) return false;
    for (int u = 0; u < v->user_count; u++)
        for (int i = 0; i < v->user[u]->in_count; i++)
            if (v->user[u]->in[i] == v && !is_operand(v->user[u], i)) return false;
    return v->user_count > 0;
}

/* Matrices and kernels of other types than f32, which are not trained. */
typedef struct others {
    int count;
    pare_dtype dtype; /* of the first */
    const char *name[NAMED];
} others;

static void note_other(others *o, const pare_value *v, const pare_tensor *t)
{
    if (t->rank < 2) return;
    if (!o->count) o->dtype = t->dtype;
    if (o->count < NAMED) o->name[o->count] = v->name;
    o->count++;
}

static void warn_others(pare_ctx *ctx, const others *o, const char *path)
{
    char names[NAMED * 128] = "";
    for (int i = 0, at = 0; i < o->count && i < NAMED; i++)
        at += snprintf(names + at, sizeof names - (size_t)at, "%s'%.120s'", i ? ", " : "",
                       o->name[i]);
    pare_log(ctx, PARE_LOG_WARNING,
             "%s: %d weight%s of another type than f32 (%s) stay%s as %s: %s%s; only f32 is "
             "trained",
             path, o->count, o->count == 1 ? "" : "s", pare_type(o->dtype)->name,
             o->count == 1 ? "s" : "", o->count == 1 ? "it is" : "they are", names,
             o->count > NAMED ? " ..." : "");
}

static pare_status add(pare_weights *w, const pare_model *student, const pare_value *v, others *o)
{
    const pare_tensor *t = weight_tensor(student, v->name);
    if (!is_weight(v, t)) return PARE_OK;
    if (t->dtype != PARE_f32) {
        note_other(o, v, t);
        return PARE_OK;
    }
    if (!pare_grow(w->ctx, &w->item, &w->capacity, (size_t)w->count, sizeof *w->item))
        return PARE_MEMORY;
    const pare_value *own = pare_graph_find_own(student->graph, v->name);
    w->item[w->count++] = (pare_weight){.name = own->name,
                                        .tensor = t,
                                        .decays = t->rank >= 2,
                                        .copied = copied_vector(own->producer) != NULL};
    w->trained = w->count;
    return PARE_OK;
}

static pare_status find(pare_weights *w, const pare_model *student, pare_model *upgraded)
{
    const pare_graph *g = upgraded->graph;
    others o = {0};
    PARE_TRY(pare_graph_sort(upgraded->graph));
    PARE_TRY(pare_pass_version_convert(upgraded, OPSET));
    PARE_TRY(pare_weights_separate(upgraded));
    for (int i = 0; i < g->init.count; i++) PARE_TRY(add(w, student, g->init.item[i], &o));
    for (int i = 0; i < g->node_count; i++)
        if (pare_node_constant(g->node[i]) && g->node[i]->out[0])
            PARE_TRY(add(w, student, g->node[i]->out[0], &o));
    if (o.count) warn_others(w->ctx, &o, student->path);
    return PARE_OK;
}

pare_status pare_weights_find(pare_ctx *ctx, pare_weights *out, const pare_model *student)
{
    pare_model *upgraded;
    *out = (pare_weights){.ctx = ctx};
    PARE_TRY(pare_model_clone(ctx, &upgraded, student));
    pare_status st = find(out, student, upgraded);
    pare_model_free(upgraded);
    return st;
}

pare_status pare_weights_add_statistic(pare_weights *w, const pare_model *student, const char *name,
                                       int *out)
{
    const pare_value *v = pare_graph_find_own(student->graph, name);
    const pare_tensor *t = weight_tensor(student, name);
    *out = pare_weights_place(w, name);
    if (*out >= 0 || !t || t->dtype != PARE_f32) return PARE_OK;
    if (!pare_grow(w->ctx, &w->item, &w->capacity, (size_t)w->count, sizeof *w->item))
        return PARE_MEMORY;
    w->item[w->count] =
        (pare_weight){.name = v->name, .tensor = t, .copied = copied_vector(v->producer) != NULL};
    *out = w->count++;
    return PARE_OK;
}

/* --- scales --- */

static pare_status add_scale(pare_weights *w, const pare_model *student,
                             const pare_distill_scale *scale)
{
    const pare_value *v = pare_graph_find_own(student->graph, scale->name);
    const pare_tensor *t = v && v->is_init ? v->data : NULL;
    if (!t || t->dtype != PARE_f32 || !t->count)
        return PARE_FAIL(w->ctx, INPUT, "%s: there is no f32 constant '%s' to learn as a scale",
                         student->path, scale->name);
    if (pare_weights_place(w, v->name) >= 0) return PARE_OK;
    if (!pare_grow(w->ctx, &w->item, &w->capacity, (size_t)w->count, sizeof *w->item))
        return PARE_MEMORY;
    w->item[w->count++] =
        (pare_weight){.name = v->name, .tensor = t, .gradient_scale = scale->gradient_scale};
    return PARE_OK;
}

pare_status pare_weights_add_scales(pare_weights *w, const pare_model *student,
                                    const pare_distill_options *options)
{
    for (int i = 0; i < options->scale_count; i++)
        PARE_TRY(add_scale(w, student, &options->scale[i]));
    w->trained = w->count;
    return PARE_OK;
}

void pare_weights_hold(const pare_weight *weight, float *value)
{
    const float *start = weight->tensor->data;
    for (int64_t i = 0; i < weight->tensor->count; i++)
        value[i] = pare_train_hold(value[i], start[i]);
}

static void free_block(float **block)
{
    pare_free(*block);
    *block = NULL;
}

void pare_weights_keep_best(pare_weights *w)
{
    pare_device_weights_free(w->on_device);
    w->on_device = NULL;
    free_block(&w->value);
    free_block(&w->gradient);
    free_block(&w->waiting);
    free_block(&w->exp_avg);
    free_block(&w->exp_avg_sq);
    free_block(&w->ema);
}

void pare_weights_free(pare_weights *w)
{
    pare_weights_keep_best(w);
    for (int i = 0; i < w->count; i++) pare_free(w->item[i].zero);
    pare_free(w->item);
    pare_free(w->best);
    *w = (pare_weights){0};
}

int pare_weights_place(const pare_weights *weights, const char *name)
{
    for (int i = 0; i < weights->count; i++)
        if (!strcmp(weights->item[i].name, name)) return i;
    return -1;
}

void pare_weights_choose(pare_weights *w, const bool *keep)
{
    int kept = 0;
    for (int i = 0; i < w->count; i++)
        if (keep[i]) w->item[kept++] = w->item[i];
    w->trained = w->count = kept;
}

/* --- zeros that stay: the pattern of a tensor with many zeros is what pruning left --- */

static float number_at(const pare_tensor *t, int64_t i)
{
    float v;
    memcpy(&v, (const char *)t->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

static int64_t count_zeros(const pare_tensor *t)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < t->count; i++) zeros += number_at(t, i) == 0;
    pare_tensor_give_back(t);
    return zeros;
}

static bool is_sparse(const pare_tensor *t, int64_t zeros, double from)
{
    return t->rank >= 2 && zeros && (double)zeros >= from * (double)t->count;
}

bool pare_weight_is_sparse(const pare_weight *weight, double from)
{
    return is_sparse(weight->tensor, count_zeros(weight->tensor), from);
}

static pare_status mark(pare_weights *w, pare_weight *item, double from)
{
    const pare_tensor *t = item->tensor;
    if (!pare_weight_is_sparse(item, from)) return PARE_OK;
    item->zero = pare_alloc(w->ctx, (size_t)t->count, 1);
    if (!item->zero) return PARE_MEMORY;
    for (int64_t i = 0; i < t->count; i++) item->zero[i] = number_at(t, i) == 0;
    return PARE_OK;
}

pare_status pare_weights_keep_sparsity(pare_weights *weights, double from)
{
    for (int i = 0; i < weights->trained; i++) PARE_TRY(mark(weights, &weights->item[i], from));
    return PARE_OK;
}

void pare_weights_log_sparsity(const pare_weights *weights, double from, const char *path)
{
    for (int i = 0; i < weights->trained; i++) {
        const pare_tensor *t = weights->item[i].tensor;
        const int64_t zeros = count_zeros(t);
        if (is_sparse(t, zeros, from))
            pare_log(weights->ctx, PARE_LOG_INFO,
                     "%s: the %" PRId64 " zeros of weight '%s' (%.0f %%) stay zero", path, zeros,
                     weights->item[i].name, 100 * (double)zeros / (double)t->count);
    }
}

/* --- blocks --- */

static pare_status block(const pare_weights *w, float **out)
{
    *out = pare_alloc(w->ctx, w->floats, sizeof **out);
    return *out ? PARE_OK : PARE_MEMORY;
}

void pare_weights_lay_out(pare_weights *w)
{
    w->floats = 0;
    for (int i = 0; i < w->count; i++) {
        w->item[i].at = w->floats;
        w->floats += pare_align_up((size_t)w->item[i].tensor->count, PARE_WEIGHT_ALIGN);
    }
}

pare_status pare_weights_open(pare_weights *w, const pare_distill_options *options)
{
    pare_weights_lay_out(w);
    w->levels = pare_tree_levels(w->microbatches) + pare_tree_levels(w->batches);
    PARE_TRY(block(w, &w->value));
    PARE_TRY(block(w, &w->gradient));
    PARE_TRY(block(w, &w->exp_avg));
    PARE_TRY(block(w, &w->best));
    if (options->optimizer == PARE_OPTIMIZER_ADAMW) PARE_TRY(block(w, &w->exp_avg_sq));
    if (options->ema_decay > 0) PARE_TRY(block(w, &w->ema));
    if (w->levels && !options->device) {
        w->waiting = pare_alloc(w->ctx, (size_t)w->levels * w->floats, sizeof *w->waiting);
        if (!w->waiting) return PARE_MEMORY;
    }
    for (int i = 0; i < w->count; i++) {
        const pare_weight *item = &w->item[i];
        memcpy(w->value + item->at, item->tensor->data, item->tensor->bytes);
        pare_tensor_give_back(item->tensor);
    }
    if (w->ema) memcpy(w->ema, w->value, w->floats * sizeof *w->value);
    return options->device ? pare_device_weights_open(w->ctx, &w->on_device, options->device, w)
                           : PARE_OK;
}

size_t pare_weights_trained_floats(const pare_weights *w)
{
    return w->trained < w->count ? w->item[w->trained].at : w->floats;
}

/* Statistics have no moments: their place in that block is free for the note. */
static void copy_statistics(const pare_weights *w, float *to, const float *from)
{
    if (w->trained == w->count) return;
    const size_t at = w->item[w->trained].at;
    memcpy(to + at, from + at, (w->floats - at) * sizeof *to);
}

void pare_weights_note_statistics(pare_weights *w) { copy_statistics(w, w->exp_avg, w->value); }

void pare_weights_restore_statistics(pare_weights *w) { copy_statistics(w, w->value, w->exp_avg); }

/* --- back into the student --- */

/* Room for the vectors that become initializers. */
static pare_status make_room(const pare_weights *w, pare_model *student)
{
    pare_values *init = &student->graph->init;
    const int count = init->count;
    pare_status st = PARE_OK;
    for (int i = 0; i < w->count && st == PARE_OK; i++)
        if (w->item[i].copied)
            st = pare_values_add(student->graph, init,
                                 pare_graph_find_own(student->graph, w->item[i].name));
    init->count = count;
    return st;
}

pare_status pare_weights_pack_list(const pare_weights *w, pare_model *student, pare_tensor ***out)
{
    PARE_TRY(make_room(w, student));
    *out = pare_arena_alloc(&student->arena, (size_t)w->count + 1, sizeof **out);
    return *out ? PARE_OK : PARE_MEMORY;
}

pare_status pare_weights_pack_one(const pare_weight *item, pare_model *student, const float *x,
                                  pare_tensor **out)
{
    pare_tensor *t = pare_arena_memdup(&student->arena, item->tensor, sizeof *t);
    if (!t) return PARE_MEMORY;
    if (item->copied) t->name = item->name;
    t->data = pare_arena_memdup(&student->arena, x, item->tensor->bytes);
    *out = t;
    return t->data ? PARE_OK : PARE_MEMORY;
}

pare_status pare_weights_pack(const pare_weights *w, pare_model *student, const float *from,
                              pare_tensor ***out)
{
    PARE_TRY(pare_weights_pack_list(w, student, out));
    for (int i = 0; i < w->count; i++)
        PARE_TRY(pare_weights_pack_one(&w->item[i], student, from + w->item[i].at, &(*out)[i]));
    return PARE_OK;
}

void pare_weights_store(const pare_weights *w, pare_model *student, pare_tensor **tensors)
{
    for (int i = 0; i < w->count; i++) {
        pare_value *v = pare_graph_find_own(student->graph, w->item[i].name);
        if (v->data)
            v->data = tensors[i];
        else if (w->item[i].copied && hand_over(v, tensors[i]) != PARE_OK)
            return; /* pack made room: it does not come to this */
        else if (v->producer)
            for (int k = 0; k < v->producer->attr_count; k++)
                if (!strcmp(v->producer->attr[k].name, "value"))
                    v->producer->attr[k].tensor = tensors[i];
    }
}
