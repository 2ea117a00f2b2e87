/* SPDX-License-Identifier: Apache-2.0 */
/* Weights become constants of s8 (of W4A8 s4, of FP8 E4M3) with a DequantizeLinear after them, each
   once however many nodes read it; biases become s32 where the target wants that.

   Bias correction: a rounded weight W' errs by W' - W, and where the input's mean is not zero that
   shifts the mean of output o: E[y'_o] - E[y_o] = sum over inputs c of (W' - W)[o, c] E[x_c], taps
   of one channel added up (Nagel et al. 2019, "Data-Free Quantization through Weight Equalization
   and Bias Correction", arXiv 1906.04721, section 4.2; here the means are measured). The shift is
   taken from the bias. Taps in the padding count as if inside. */
#include "calib/channels.h"
#include "quant/internal.h"
#include "runtime/base/f8.h"

#include <math.h>
#include <string.h>

/* --- bias correction --- */

/* What a weight's level is in steps of its scale. */
static double level_of(const int8_t *q, int64_t at, bool fp8)
{
    return fp8 ? (double)pare_f8e4m3_value((uint8_t)q[at]) : (double)q[at];
}

/* Mean of output o's error. */
static double shift_of(const pare_quant_layout *l, int64_t o, const void *w, const int8_t *q,
                       bool fp8, float scale, const pare_channels *x, const float *divided)
{
    int64_t first =
        o / (l->outputs / l->groups) * l->inputs; /* channel of its group's first input */
    double shift = 0;
    for (int64_t c = 0; c < l->inputs; c++) {
        const int64_t at = pare_quant_element(l, o, c);
        double error = 0;
        for (int64_t t = at; t < at + l->taps; t++)
            error += level_of(q, t, fp8) * (double)scale - (double)pare_quant_number(w, t);
        double mean = pare_channels_mean(x, first + c);
        shift += error * (divided ? mean / (double)divided[first + c] : mean);
    }
    return shift;
}

/* By how much the mean of each output of a weighted node is off once its weight is rounded
   to q (as scaled by alpha; scales: one, or one an output). out (count), in the scheme's arena;
   NULL where the input's channel means are not known or the layout is none that this serves. */
static pare_status bias_shift(pare_quant_scheme *s, const pare_quant_job *job, const pare_tensor *w,
                              const int8_t *q, const float *scale, int64_t scales,
                              const double **out, int64_t *count)
{
    const pare_value *x = job->node->in[job->part.x];
    const pare_stats *stats = s->ranges ? pare_ranges_find(s->ranges, x->name) : NULL;
    pare_quant_layout l;
    *out = NULL;
    *count = 0;
    if (!s->options->bias_correction || !stats || !pare_channels_known(stats->channels) ||
        !pare_quant_lay_out(job, w, stats->channels->count, &l) ||
        (scales != 1 && scales != l.outputs))
        return PARE_OK;
    double *shift = pare_arena_alloc(s->arena, (size_t)l.outputs, sizeof *shift);
    if (!shift) return PARE_MEMORY;
    for (int64_t o = 0; o < l.outputs; o++)
        shift[o] = shift_of(&l, o, w->data, q, s->options->fp8, scale[scales == 1 ? 0 : o],
                            stats->channels, s->point[job->x].divided);
    *out = shift;
    *count = l.outputs;
    return PARE_OK;
}

/* --- weights --- */

/* A weight as it will be written. Nodes that read it along another axis, or with another alpha, get
   a weight of their own. */
typedef struct weight {
    pare_value *value;
    pare_value *in[3];      /* written: levels, scale, zero point, in the value's graph */
    pare_quant_views views; /* what readers see */
    int axis;               /* -1: one scale for all */
    int bits;               /* 8 or 4 */
    float alpha;
    const pare_tensor *data; /* alpha multiplied in */
    float *scale;            /* (channels) */
    int64_t channels;
    int job;                 /* that reads it; -1: several do */
    const pare_node *reader; /* the first one */
    bool raised;             /* scales were, for a bias, and that was said */
    const int8_t *level;     /* once it is rounded */
    const double *shift;     /* (outputs) that its rounding brings, where samples say it; or NULL */
    int next;                /* another weight made of the same value, or -1 */
} weight;

typedef struct weights {
    pare_quant_scheme *scheme;
    pare_ptr_map at;
    weight *item;
    int count;
    size_t capacity;
    int *of_job; /* (job_count) */
} weights;

/* A constant times a number, as a tensor in the model's arena. */
static pare_status scaled(pare_quant_scheme *s, const pare_tensor *t, float by,
                          const pare_tensor **out)
{
    *out = t;
    if (by == 1) return PARE_OK;
    float *data = pare_arena_alloc(s->arena, (size_t)t->count, sizeof *data);
    pare_tensor *copy;
    if (!data) return PARE_MEMORY;
    memcpy(data, t->data, (size_t)t->count * sizeof *data);
    for (int64_t i = 0; i < t->count; i++) data[i] *= by;
    PARE_TRY(
        pare_tensor_new(s->model, &copy, t->name ? t->name : "", PARE_f32, t->rank, t->dims, data));
    *out = copy;
    return PARE_OK;
}

static pare_status make(weights *all, pare_value *value, int axis, int bits, float alpha, int next,
                        const pare_node *reader)
{
    pare_quant_scheme *s = all->scheme;
    if (!pare_arena_grow(s->arena, &all->item, &all->capacity, (size_t)all->count,
                         sizeof *all->item))
        return PARE_MEMORY;
    weight *w = &all->item[all->count];
    *w = (weight){.value = value,
                  .axis = axis,
                  .bits = bits,
                  .alpha = alpha,
                  .next = next,
                  .job = -1,
                  .reader = reader};
    PARE_TRY(scaled(s, value->data, alpha, &w->data));
    PARE_TRY(pare_quant_check_finite(s->model, value, w->data));
    w->channels = pare_quant_weight_look(w->data, axis).channels;
    w->scale = pare_arena_alloc(s->arena, (size_t)w->channels, sizeof *w->scale);
    if (!w->scale) return PARE_MEMORY;
    pare_tensor now;
    float *own;
    PARE_TRY(pare_quant_weight_read(s, value, w->data, &now, &own));
    const pare_quant_weight_view view = pare_quant_weight_look(&now, axis);
    const pare_status st =
        pare_quant_weight_scales(s->ctx, &view, s->options->fp8 ? PARE_QUANT_FP8 : bits, w->scale);
    pare_free(own);
    PARE_TRY(st);
    pare_tensor_give_back(w->data);
    return pare_ptr_map_put(&all->at, value, all->count++);
}

/* One scale per output channel; one for all where asked, and where the weight is the left factor
   (its rows are no channels of a kernel). */
static int axis_of(const pare_quant_scheme *s, const pare_quant_job *job)
{
    bool whole = s->options->per_tensor_weights || job->part.w < job->part.x;
    return whole ? -1 : job->part.axis;
}

/* *at: the weight made of this value along this axis, times alpha; a new one where there is none.
 */
static pare_status find(weights *all, pare_value *value, int axis, int bits, float alpha,
                        const pare_node *reader, int *at)
{
    const int first = pare_ptr_map_find(&all->at, value);
    for (*at = first; *at >= 0; *at = all->item[*at].next)
        if (all->item[*at].axis == axis && all->item[*at].bits == bits &&
            all->item[*at].alpha == alpha)
            return PARE_OK;
    *at = all->count;
    if (first >= 0)
        PARE_TRY(pare_quant_warn(all->scheme->model, all->scheme->facts, PARE_FAULT_SHARED_WEIGHT,
                                 reader, value->name,
                                 "node '%s' reads it along another axis or scaled: it is written "
                                 "once more; --skip one of them",
                                 pare_quant_node_name(all->item[first].reader)));
    return make(all, value, axis, bits, alpha, first, reader);
}

static pare_status find_job(weights *all, int j)
{
    const pare_quant_job *job = &all->scheme->job[j];
    const int before = all->count;
    PARE_TRY(find(all, job->node->in[job->part.w], axis_of(all->scheme, job),
                  pare_quant_weight_bits(all->scheme->options), job->part.alpha, job->node,
                  &all->of_job[j]));
    all->item[all->of_job[j]].job = all->count > before ? j : -1;
    return PARE_OK;
}

/* --- biases --- */

/* The constant added to a weighted node's output, its own or the one of the addition after it; one
   value for all channels, or one each; else NULL. */
static const pare_tensor *bias_of(const pare_quant_job *job, int64_t channels)
{
    const pare_value *bias = job->part.bias >= 0 ? pare_node_in(job->node, job->part.bias) : NULL;
    const pare_node *sum = bias ? NULL : pare_quant_bias_node(job->node);
    if (sum) bias = sum->in[sum->in[0]->data == NULL];
    const pare_tensor *t = bias ? bias->data : NULL;
    return t && t->dtype == PARE_f32 && (t->count == channels || t->count == 1) ? t : NULL;
}

/* A bias becomes rint(b / (s_x * s_w)) in s32: s_w is raised where that would pass 2^30. */
static pare_status raise_scales(weights *all, int j)
{
    const float MUCH = 2; /* a bit of the weights */
    const pare_quant_job *job = &all->scheme->job[j];
    weight *w = &all->item[all->of_job[j]];
    int64_t channels = w->channels;
    const pare_value *x = job->node->in[job->part.x];
    const pare_shape *y = &job->node->out[0]->shape;
    int last = y->rank - 1;
    if (w->axis < 0 && last >= 0) channels = y->dim[job->part.bias >= 0 && y->rank > 2 ? 1 : last];
    const pare_tensor *bias = bias_of(job, channels);
    int at = pare_quant_point_find(all->scheme, x);
    if (!bias || at < 0) return PARE_OK;
    float beta = pare_node_in(job->node, job->part.bias) ? job->part.beta : 1;
    float raised = 1;
    int64_t output = 0;
    for (int64_t c = 0; c < bias->count; c++) {
        float b = fabsf(beta * pare_quant_number(bias->data, c));
        float least = b / (all->scheme->point[at].scale * 0x1p30f);
        int64_t from = bias->count == w->channels ? c : 0, to = from + 1;
        if (bias->count == 1 || w->channels == 1) from = 0, to = w->channels;
        for (int64_t k = from; k < to; k++) {
            if (least > raised * w->scale[k]) raised = least / w->scale[k], output = k;
            w->scale[k] = fmaxf(w->scale[k], least);
        }
    }
    if (raised < MUCH) return PARE_OK;
    w->raised = true;
    return pare_quant_warn(all->scheme->model, all->scheme->facts, PARE_FAULT_BIAS_OVERFLOW,
                           job->node, w->value->name,
                           "the bias is beyond int32 at the scale of output %lld, whose weights "
                           "get steps %.3g times as wide; --skip keeps the node float",
                           (long long)output, (double)raised);
}

/* Scales that f16 can hold, before anything is rounded by them; one that it cannot keeps all of the
   weight's in f32. */
static void shorten_scales(const weights *all)
{
    for (int i = 0; i < all->count; i++) {
        const weight *w = &all->item[i];
        bool takes = true;
        for (int64_t c = 0; c < w->channels; c++)
            takes = takes && pare_quant_f16_takes(w->scale[c]);
        for (int64_t c = 0; takes && c < w->channels; c++)
            w->scale[c] = pare_quant_f16_scale(w->scale[c]);
    }
}

/* --- writing --- */

static pare_status dequantize(pare_quant_scheme *s, const pare_node *reader, const char *name,
                              pare_value *const *in, int in_count, int axis, pare_value **out)
{
    pare_node *node;
    pare_graph *graph = reader->graph;
    PARE_TRY(pare_quant_value(graph, out, name, "dequantized"));
    pare_value_set_type(*out, PARE_f32, &in[0]->shape);
    PARE_TRY(pare_quant_insert(graph, pare_node_index(reader), &node, "DequantizeLinear", name, in,
                               in_count, *out));
    s->facts->dq_nodes++;
    return axis >= 0 ? pare_node_set_int(node, "axis", axis) : PARE_OK;
}

/* Is there a constant of each output that may be corrected for the job's rounding? */
static bool takes_bias(const pare_quant_scheme *s, const pare_quant_job *job, int64_t outputs)
{
    const pare_tensor *t = s->options->bias_correction ? bias_of(job, outputs) : NULL;
    return t && t->count == outputs;
}

/* By what the one job that reads it sees, where samples say that; else to the nearest. */
static pare_status round_weight(pare_quant_scheme *s, weight *w, const pare_tensor *now,
                                const pare_quant_weight_view *view, int8_t *q)
{
    bool done = false;
    if (s->inputs && w->job >= 0) {
        const pare_quant_job *job = &s->job[w->job];
        const int64_t outputs = now->dims[job->part.axis];
        double *shift = NULL;
        if (takes_bias(s, job, outputs)) {
            shift = pare_arena_alloc(s->arena, (size_t)outputs, sizeof *shift);
            if (!shift) return PARE_MEMORY;
        }
        PARE_TRY(pare_quant_round_by_inputs(s, w->job, now, w->bits, w->scale, w->channels, q,
                                            shift, &done));
        w->shift = done ? shift : NULL;
    }
    if (!done)
        pare_quant_weight_round(view, w->scale, s->options->fp8 ? PARE_QUANT_FP8 : w->bits, q);
    return PARE_OK;
}

/* An output whose weights all became 0: where one scale serves all. */
static pare_status warn_dead(pare_quant_scheme *s, const weight *w, const pare_tensor *now,
                             const int8_t *q)
{
    const int axis = w->job >= 0 ? s->job[w->job].part.axis : w->axis;
    const pare_tensor made = {.dtype = PARE_s8, .rank = now->rank, .dims = now->dims, .data = q};
    const int64_t c =
        w->raised || axis < 0 || axis >= now->rank ? -1 : pare_quant_dead_channel(now, axis, &made);
    if (c < 0) return PARE_OK;
    return pare_quant_warn(s->model, s->facts, PARE_FAULT_DEAD_CHANNEL, w->reader, w->value->name,
                           "all weights of output %lld become 0; %s", (long long)c,
                           w->axis < 0 ? "--weights channel gives each output a scale"
                                       : "--skip keeps the node float");
}

/* A copy of levels that bias correction reads; they are packed in place. */
static pare_status keep_levels(pare_quant_scheme *s, weight *w, int8_t *q)
{
    int8_t *level = pare_arena_alloc(s->arena, (size_t)w->data->count, 1);
    if (!level) return PARE_MEMORY;
    memcpy(level, q, (size_t)w->data->count);
    pare_quant_pack_levels(level, w->data->count, (uint8_t *)q);
    w->level = level;
    return PARE_OK;
}

/* Once, where the weight is: a body may share it with the graph around it. */
static pare_status write_weight(pare_quant_scheme *s, weight *w)
{
    const char *name = w->value->name;
    pare_graph *graph = w->value->graph;
    int64_t dims[1] = {w->channels};
    int rank = w->axis >= 0;
    pare_tensor now;
    float *own;
    PARE_TRY(pare_quant_weight_read(s, w->value, w->data, &now, &own));
    const pare_quant_weight_view view = pare_quant_weight_look(&now, w->axis);
    const int bits = w->bits;
    const pare_dtype type = s->options->fp8 ? PARE_f8e4m3 : bits == 4 ? PARE_s4 : PARE_s8;
    const int64_t count = w->data->count;
    int8_t *q = pare_alloc(s->ctx, (size_t)count, 1);
    int8_t *zeros = pare_alloc(s->ctx, (size_t)w->channels, 1);
    pare_value **in = w->in;
    pare_status st = PARE_MEMORY;
    if (!q || !zeros) goto done;
    if ((st = round_weight(s, w, &now, &view, q))) goto done;
    if ((st = warn_dead(s, w, &now, q))) goto done;
    pare_free(own);
    own = NULL;
    pare_tensor_give_back(w->data);
    if (bits == 4 && (st = keep_levels(s, w, q))) goto done;
    if ((st = pare_quant_constant(graph, &in[0], name, "quantized", type, w->data->rank,
                                  w->data->dims, q)))
        goto done;
    if ((st = pare_quant_constant(graph, &in[1], name, "scale", PARE_f32, rank, dims, w->scale)))
        goto done;
    st = pare_quant_constant(graph, &in[2], name, "zero_point", type, rank, dims, zeros);
    if (st == PARE_OK && bits == 8) w->level = in[0]->data->data;
done:
    pare_free(own);
    pare_free(q);
    pare_free(zeros);
    return st;
}

/* What the reader's graph sees of the weight. */
static pare_status weight_view(pare_quant_scheme *s, weight *w, const pare_node *reader,
                               pare_value **out)
{
    *out = pare_quant_view_in(&w->views, reader->graph);
    if (*out) return PARE_OK;
    PARE_TRY(dequantize(s, reader, w->value->name, w->in, 3, w->axis, out));
    return pare_quant_view_add(s, &w->views, *out);
}

static bool writes_s32(const pare_quant_scheme *s)
{
    return pare_target_of(s->options->target)->s32_bias && !s->options->fp8;
}

/* A bias (outputs) of s32 with the scale s_x * s_w[c], as ONNX Runtime's kernels take it. */
static pare_status write_s32(pare_quant_scheme *s, const pare_quant_job *job, const char *name,
                             const pare_tensor *bias, const float *w_scale)
{
    pare_graph *graph = job->node->graph;
    pare_value *in[2], *out;
    float x_scale = s->point[job->x].scale;
    int32_t *q = pare_arena_alloc(s->arena, (size_t)bias->count, sizeof *q);
    float *scale = pare_arena_alloc(s->arena, (size_t)bias->count, sizeof *scale);
    if (!q || !scale) return PARE_MEMORY;
    for (int64_t c = 0; c < bias->count; c++) {
        scale[c] = x_scale * pare_quant_number(w_scale, c);
        q[c] = (int32_t)rint((double)pare_quant_number(bias->data, c) / (double)scale[c]);
    }
    PARE_TRY(pare_quant_constant(graph, &in[0], name, "quantized", PARE_s32, 1, bias->dims, q));
    PARE_TRY(pare_quant_constant(graph, &in[1], name, "scale", PARE_f32, 1, bias->dims, scale));
    PARE_TRY(dequantize(s, job->node, name, in, 2, 0, &out));
    return pare_node_set_in(job->node, job->part.takes, out);
}

pare_status pare_quant_add_bias(pare_quant_scheme *s, const pare_quant_job *job,
                                const pare_tensor *bias, const pare_tensor *w_scale)
{
    pare_node *node = job->node;
    pare_value *value;
    if (job->part.beta != 1) PARE_TRY(pare_node_set_float(node, "beta", 1));
    if (writes_s32(s) && w_scale->rank == 1)
        return write_s32(s, job, bias->name, bias, w_scale->data);
    PARE_TRY(pare_quant_constant(node->graph, &value, node->out[0]->name, "bias", PARE_f32,
                                 bias->rank, bias->dims, bias->data));
    return pare_node_set_in(node, job->part.takes, value);
}

pare_status pare_quant_put(pare_node *node, int i, const float *data)
{
    pare_value *v = node->in[i], *fresh;
    const pare_tensor *like = v->data;
    pare_tensor *t;
    if (v->user_count == 1 && v->is_init && !v->is_output) {
        PARE_TRY(pare_tensor_new(node->graph->model, &t, v->name, PARE_f32, like->rank, like->dims,
                                 data));
        return pare_value_set_init(v, t);
    }
    PARE_TRY(pare_quant_constant(node->graph, &fresh, v->name, "rounded", PARE_f32, like->rank,
                                 like->dims, data));
    return pare_node_set_in(node, i, fresh);
}

/* A float bias on the grid of s_x * s_w[c], where the integer sum adds it: every runtime, whether
   it adds the bias as a float or as an integer, then computes the same. t: what input i becomes. */
static pare_status round_float(pare_quant_scheme *s, const pare_quant_job *job, const weight *w,
                               pare_node *node, int i, const pare_tensor *t)
{
    bool one_scale = w->channels == 1, one_bias = t->count == 1;
    if (s->options->fp8) /* sums are floats: any number is on their grid */
        return t == node->in[i]->data ? PARE_OK : pare_quant_put(node, i, t->data);
    if (!one_scale && !one_bias && t->count != w->channels) return PARE_OK;
    if (one_bias && !one_scale && t == node->in[i]->data)
        return PARE_OK; /* one number, many grids */
    float *data = pare_arena_alloc(s->arena, (size_t)t->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    for (int64_t c = 0; c < t->count; c++) {
        double step = (double)(s->point[job->x].scale * w->scale[one_scale ? 0 : c]);
        double b = (double)pare_quant_number(t->data, c);
        data[c] = (float)(one_bias && !one_scale ? b : rint(b / step) * step);
    }
    return pare_quant_put(node, i, data);
}

/* A bias less the shift that the rounded weight brings; itself where none is known for each of its
   numbers. */
static pare_status corrected(pare_quant_scheme *s, const pare_quant_job *job, const weight *w,
                             const pare_tensor *t, const pare_tensor **out)
{
    const double *shift = w->shift;
    int64_t count = t->count;
    *out = t;
    if (!shift) {
        pare_tensor now;
        float *own;
        PARE_TRY(pare_quant_weight_read(s, w->value, w->data, &now, &own));
        const pare_status st =
            bias_shift(s, job, &now, w->level, w->scale, w->channels, &shift, &count);
        pare_free(own);
        PARE_TRY(st);
    }
    if (!shift || t->count != count) return PARE_OK;
    float *data = pare_arena_alloc(s->arena, (size_t)count, sizeof *data);
    pare_tensor *made;
    if (!data) return PARE_MEMORY;
    for (int64_t c = 0; c < count; c++)
        data[c] = (float)((double)pare_quant_number(t->data, c) - shift[c]);
    PARE_TRY(
        pare_tensor_new(s->model, &made, t->name ? t->name : "", PARE_f32, t->rank, t->dims, data));
    s->shifts = pare_hash_sum(s->shifts, pare_hash_bytes(data, (size_t)count * sizeof *data));
    s->corrected++;
    *out = made;
    return PARE_OK;
}

/* The addition's constant that is a weighted node's bias. */
static pare_status write_sum(pare_quant_scheme *s, const pare_quant_job *job, const weight *w)
{
    pare_node *sum = pare_quant_bias_node(job->node);
    const pare_tensor *bias;
    if (!sum) return PARE_OK;
    int i = sum->in[0]->data == NULL;
    if (sum->in[i]->dtype != PARE_f32) return PARE_OK;
    PARE_TRY(corrected(s, job, w, sum->in[i]->data, &bias));
    return round_float(s, job, w, sum, i, bias);
}

/* Folds beta in and corrects; then s32 where the target wants that, else float. */
static pare_status write_bias(pare_quant_scheme *s, const pare_quant_job *job, const weight *w)
{
    int at = job->part.bias;
    pare_value *own = at >= 0 ? pare_node_in(job->node, at) : NULL;
    const pare_tensor *bias;
    if (!own) return write_sum(s, job, w);
    if (!own->data || own->data->dtype != PARE_f32) return PARE_OK;
    bool s32 =
        writes_s32(s) && w->axis >= 0 && own->data->rank == 1 && own->data->count == w->channels;
    PARE_TRY(scaled(s, own->data, job->part.beta, &bias));
    PARE_TRY(corrected(s, job, w, bias, &bias));
    if (s32)
        PARE_TRY(write_s32(s, job, own->name, bias, w->scale));
    else
        PARE_TRY(round_float(s, job, w, job->node, at, bias));
    return job->part.beta != 1 ? pare_node_set_float(job->node, "beta", 1) : PARE_OK;
}

/* A node's input becomes the dequantized weight. */
static pare_status write_operand(pare_quant_scheme *s, weight *w, pare_node *node, int input)
{
    pare_value *seen;
    if (!w->in[0]) PARE_TRY(write_weight(s, w));
    PARE_TRY(weight_view(s, w, node, &seen));
    return pare_node_set_in(node, input, seen);
}

static pare_status write_job(weights *all, int j)
{
    pare_quant_scheme *s = all->scheme;
    pare_quant_job *job = &s->job[j];
    weight *w = &all->item[all->of_job[j]];
    PARE_TRY(write_operand(s, w, job->node, job->part.w));
    PARE_TRY(write_bias(s, job, w));
    return job->part.alpha != 1 ? pare_node_set_float(job->node, "alpha", 1) : PARE_OK;
}

static pare_status write_weight_only(weights *all, pare_node *node)
{
    for (int i = PARE_QUANT_WEIGHT_FIRST; i <= PARE_QUANT_WEIGHT_LAST; i++) {
        const bool whole = all->scheme->options->per_tensor_weights;
        int at;
        PARE_TRY(find(all, node->in[i], whole ? -1 : PARE_QUANT_WEIGHT_AXIS, 8, 1, node, &at));
        PARE_TRY(write_operand(all->scheme, &all->item[at], node, i));
    }
    return PARE_OK;
}

/* A weight that float nodes read, too, is in the file twice. */
static pare_status warn_shared(pare_quant_scheme *s, const weight *w)
{
    if (!w->in[0] || !w->value->user_count) return PARE_OK;
    return pare_quant_warn(s->model, s->facts, PARE_FAULT_SHARED_WEIGHT, w->reader, w->value->name,
                           "node '%s' reads it in float: it is in the file twice; --skip keeps one",
                           pare_quant_node_name(w->value->user[0]));
}

pare_status pare_quant_emit_weights(pare_quant_scheme *s)
{
    weights all = {.scheme = s};
    pare_ptr_map_init(&all.at, s->arena);
    all.of_job = pare_arena_alloc(s->arena, (size_t)s->job_count + 1, sizeof *all.of_job);
    if (!all.of_job) return PARE_MEMORY;
    for (int j = 0; j < s->job_count; j++)
        if (s->job[j].part.constant) PARE_TRY(find_job(&all, j));
    for (int j = 0; j < s->job_count && !s->options->fp8; j++)
        if (s->job[j].part.constant) PARE_TRY(raise_scales(&all, j));
    if (pare_quant_f16_scales(s->options)) shorten_scales(&all);
    for (int j = 0; j < s->job_count; j++) {
        if (s->job[j].part.constant) PARE_TRY(write_job(&all, j));
        if (s->inputs && s->options->inputs->progress)
            s->options->inputs->progress(s->options->inputs->progress_user, j + 1, s->job_count);
    }
    for (int n = 0; n < s->weight_only_count; n++)
        PARE_TRY(write_weight_only(&all, s->weight_only[n]));
    for (int i = 0; i < all.count; i++) PARE_TRY(warn_shared(s, &all.item[i]));
    return PARE_OK;
}
