/* SPDX-License-Identifier: Apache-2.0 */
/* Equalization across layers. A tensor has one scale, so a channel that is much smaller than the
   largest keeps few levels. Dividing channel c by e_c where it is made (weight and bias of a
   convolution or matrix product, scale and bias of a LayerNormalization) and multiplying the
   weights that read c by e_c changes no output, for what may be between, Relu, Clip from 0,
   pooling, commutes with positive factors (Nagel et al. 2019, arXiv 1906.04721, section 4.1; for
   LayerNormalization: Xiao et al. 2023, "SmoothQuant", arXiv 2211.10438).

   e_c = (largest of channel c / largest of all)^alpha. The makers pay nothing, for they have a
   scale per output channel. The readers may: a row's scale follows its largest weight. Alpha is the
   one of 0 (as it was), 1/4 ... 1 with the least noise in the readers' outputs: what rounding the
   tensor adds, step^2 / 12 for what is not zero, at most E[x_c^2] / e_c^2, times the sum of (W
   e)^2; and what rounding the weights adds, s_o^2 / 12 times the sum of E[x_c^2] / e_c^2.

   Clip's upper bound then cuts channel c at e_c times the bound, never below the largest value that
   was seen: where its int8 range ends anyway. */
#include "calib/channels.h"
#include "calib/histogram.h"
#include "quant/internal.h"
#include "runtime/base/clones.h"

#include <math.h>
#include <string.h>

static const float LEAST = 0x1p-12f; /* of e_c: a dead channel stays small */
static const double WORTH = 0.9;     /* of the noise, for a change */
enum { ALPHAS = 4, MOST_OPERANDS = 6, MOST_LIMITS = 2, MOST_STEPS = 8 };

/* A constant that has the maker's channels along an axis. */
typedef struct operand {
    pare_node *node;
    int input, axis;
} operand;

/* The layer that makes channels, the ones that read them, and what is between. */
typedef struct layer_pair {
    pare_quant_scheme *s;
    int at; /* the point */
    const pare_stats *stats;
    operand operand[MOST_OPERANDS], limit[MOST_LIMITS];
    int operands, limit_count;
    int point[MOST_STEPS + 1], points; /* on the way, the last among them */
    int64_t channels, block; /* of the maker; of the point's channels, one after the other,
                                one of these became */
    pare_quant_job kept;     /* of a maker that stays float */
    bool depthwise;          /* all readers are */
} layer_pair;

/* --- where channels are made --- */

static bool operand_add(layer_pair *t, pare_node *node, int input, int axis)
{
    const pare_value *v = pare_node_in(node, input);
    if (!v || !v->data || v->dtype != PARE_f32 || axis < 0 || axis >= v->data->rank ||
        v->data->dims[axis] != t->channels || t->operands == MOST_OPERANDS)
        return false;
    t->operand[t->operands++] = (operand){node, input, axis};
    return true;
}

/* A vector, one number a channel, whose other axes are 1. */
static bool vector_add(layer_pair *t, pare_node *node, int input)
{
    const pare_value *v = pare_node_in(node, input);
    int axis = v && v->data ? v->data->rank - 1 : -1;
    if (axis < 0 || v->data->count != t->channels) return false;
    while (axis > 0 && v->data->dims[axis] == 1) axis--;
    return operand_add(t, node, input, axis);
}

/* The same where it is broadcast along the channels of the node's output. */
static bool aligned_add(layer_pair *t, pare_node *node, int input)
{
    const pare_value *v = pare_node_in(node, input);
    const int rank = node->out[0]->shape.rank, from_end = rank - pare_channels_axis(rank);
    return v && v->data && v->data->rank >= from_end &&
           v->data->dims[v->data->rank - from_end] == t->channels && vector_add(t, node, input);
}

/* Limits a channel each, on the way. */
static bool limits_add(layer_pair *t)
{
    for (int i = 0; i < t->limit_count; i++)
        if (!aligned_add(t, t->limit[i].node, t->limit[i].input)) return false;
    return true;
}

static bool made_by_job(layer_pair *t, const pare_quant_job *job, pare_node *sum)
{
    const int64_t *dims = job->part.constant ? job->node->in[job->part.w]->data->dims : NULL;
    const int rank = dims ? job->node->in[job->part.w]->data->rank : 0;
    const bool is_plain = dims && job->part.w > job->part.x && job->part.axis >= 0 &&
                          job->part.axis < rank && (rank == 2 || (rank >= 4 && !job->part.axis));
    if (!is_plain || job->part.beta != 1) return false;
    t->channels = dims[job->part.axis];
    if (!operand_add(t, job->node, job->part.w, job->part.axis)) return false;
    if (job->part.bias >= 0 && pare_node_in(job->node, job->part.bias) &&
        !vector_add(t, job->node, job->part.bias))
        return false;
    return !sum || aligned_add(t, sum, sum->in[0]->data == NULL);
}

static bool made_by_norm(layer_pair *t, pare_node *node)
{
    const bool is_norm =
        !strcmp(node->op_type, "LayerNormalization") || !strcmp(node->op_type, "RMSNormalization");
    const pare_value *scale = is_norm ? pare_node_in(node, 1) : NULL;
    if (!scale || !scale->data || scale->data->rank != 1) return false;
    t->channels = scale->data->dims[0];
    if (node->out[0]->shape.rank < 2 || node->out[0]->shape.rank > 3) return false;
    return vector_add(t, node, 1) && (!pare_node_in(node, 2) || vector_add(t, node, 2));
}

/* --- what may be between --- */

static float number_of(const pare_value *v, float missing)
{
    if (!v) return missing;
    bool known = v->data && v->data->dtype == PARE_f32 && v->data->count == 1;
    return known ? pare_quant_number(v->data->data, 0) : NAN;
}

/* Commutes with a positive factor. */
static bool is_homogeneous(const pare_node *node)
{
    static const char *const types[] = {"Relu",        "LeakyRelu",     "MaxPool",
                                        "AveragePool", "GlobalMaxPool", "GlobalAveragePool",
                                        "Identity",    "Dropout"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(node->op_type, types[i])) return true;
    if (pare_quant_kind_of(node) != PARE_QUANT_CLAMP) return false;
    return number_of(pare_node_in(node, 1), -INFINITY) == 0 &&
           number_of(pare_node_in(node, 2), INFINITY) > 0;
}

/* Min or Max with a constant: 0, or numbers that go along with their channels. */
static bool is_limit(layer_pair *t, pare_node *node)
{
    const bool is_min = !strcmp(node->op_type, "Min"), is_max = !strcmp(node->op_type, "Max");
    const pare_value *v = pare_node_in(node, 1);
    if ((!is_min && !is_max) || node->in_count != 2 || !v || !v->data || v->dtype != PARE_f32)
        return false;
    if (v->data->count == 1) return number_of(v, NAN) == 0;
    if (t->limit_count == MOST_LIMITS) return false;
    t->limit[t->limit_count++] = (operand){node, 1, 0};
    return true;
}

/* (N, C, H, W) to (N, C H W): *block = H W. */
static bool flattens(const pare_node *node, int64_t *block)
{
    const pare_value *x = pare_node_in(node, 0);
    const pare_shape *y = &node->out[0]->shape;
    const bool moves = !strcmp(node->op_type, "Flatten") || !strcmp(node->op_type, "Reshape") ||
                       !strcmp(node->op_type, "Squeeze");
    if (!moves || !x || x->shape.rank < 4 || y->rank != 2 || y->dim[1] < 1) return false;
    int64_t count = 1;
    for (int i = 1; i < x->shape.rank; i++) {
        if (x->shape.dim[i] < 1) return false;
        count *= x->shape.dim[i];
    }
    *block = count / x->shape.dim[1];
    return count == y->dim[1];
}

static bool add_point(layer_pair *t, const pare_value *v)
{
    const int at = pare_quant_point_find(t->s, v);
    if (at < 0) return true;
    const pare_quant_point *p = &t->s->point[at];
    const pare_stats *stats = t->s->ranges ? pare_ranges_find(t->s->ranges, p->value->name) : NULL;
    if (!stats || !pare_channels_known(stats->channels)) return false;
    t->point[t->points++] = at;
    return true;
}

/* A weighted node whose weights may be divided: it becomes int8, or only its own rounding keeps it
   float. */
static const pare_quant_job *maker_job(layer_pair *t, pare_node *node)
{
    const pare_quant_job *job = pare_quant_job_of(t->s, node);
    if (job || !node || pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED ||
        !pare_quant_chosen(&t->s->nodes, node) || !pare_quant_kept(&t->s->nodes, node))
        return job;
    t->kept = (pare_quant_job){.node = node};
    if (pare_op_of(node)->quant.weighted(node, &t->kept.part) != PARE_OK) return NULL;
    const pare_value *w = pare_node_in(node, t->kept.part.w);
    t->kept.part.constant = w && w->data;
    return &t->kept;
}

/* The maker of the point's channels; nobody else reads on the way. */
static bool find_maker(layer_pair *t)
{
    const pare_value *v = t->s->point[t->at].value;
    t->block = 1;
    for (int step = 0; step < MOST_STEPS; step++) {
        pare_node *node = v->producer;
        if (v->is_output || !node || node->out[0] != v || !add_point(t, v)) return false;
        if (step && pare_value_only_user(v) == NULL) return false;
        const pare_quant_job *job = maker_job(t, node);
        if (job) return made_by_job(t, job, NULL) && limits_add(t);
        if (made_by_norm(t, node)) return limits_add(t);
        const pare_value *x = pare_node_in(node, 0);
        for (int i = 0; i < node->in_count && i < 2; i++) { /* a product's bias */
            const pare_value *in = node->in[i];
            job = in ? maker_job(t, in->producer) : NULL;
            if (job && pare_quant_bias_node(job->node) == node && !in->is_output)
                return pare_quant_point_find(t->s, in) < 0 && made_by_job(t, job, node) &&
                       limits_add(t);
        }
        if (!x || x->graph != v->graph ||
            (!is_homogeneous(node) && !is_limit(t, node) && !flattens(node, &t->block)))
            return false;
        v = x;
    }
    return false;
}

/* Points that share a scale with one of these are all among these. */
static bool owns_scales(const layer_pair *t)
{
    for (int i = 0; i < t->s->point_count; i++) {
        bool shares = false, among = false;
        for (int k = 0; k < t->points; k++) {
            among |= t->point[k] == i;
            shares |= t->s->point[t->point[k]].group == t->s->point[i].group;
        }
        if (shares && !among) return false;
    }
    return true;
}

/* --- readers --- */

static bool reader(const layer_pair *t, const pare_node *node, const pare_quant_job **job,
                   pare_quant_layout *l)
{
    const pare_value *v = t->s->point[t->at].value;
    *job = pare_quant_job_of(t->s, node);
    return *job && (*job)->part.constant && node->in[(*job)->part.x] == v &&
           node->in[(*job)->part.w] != v && node->graph == v->graph &&
           pare_quant_lay_out(*job, node->in[(*job)->part.w]->data, t->stats->channels->count, l);
}

static bool readers_fit(layer_pair *t)
{
    const pare_value *v = t->s->point[t->at].value;
    const pare_quant_job *job;
    pare_quant_layout l;
    int readers = 0;
    t->depthwise = true;
    for (int i = 0; i < v->user_count; i++) {
        if (!strcmp(v->user[i]->op_type, "Shape")) continue;
        if (!reader(t, v->user[i], &job, &l)) return false;
        t->depthwise = t->depthwise && l.inputs == 1 && l.groups > 1;
        readers++;
    }
    return readers > 0;
}

/* E[x_c^2] of each channel, from its mean and largest magnitude, in the end made to agree with the
   tensor's own; *step_noise: the squared error of rounding the tensor as it is. */
static pare_status energies(const layer_pair *t, double *energy, double *step_noise)
{
    const pare_channels *c = t->stats->channels;
    const pare_histogram *h = t->stats->histogram;
    const pare_quant_point *p = &t->s->point[t->at];
    const bool symmetric = !t->s->options->unsigned_activations;
    const pare_range range = {.low = p->low, .high = p->high};
    double sum = 0, all;
    PARE_TRY(pare_range_error(t->s->ctx, h, &range, symmetric, step_noise, &all));
    for (int64_t i = 0; i < c->count; i++) {
        const double mean = fabs(pare_channels_mean(c, i)), most = (double)c->largest[i];
        energy[i] = h->min < 0 ? mean * mean + most * most / 16 : pow(mean, 1.5) * sqrt(most);
        sum += energy[i];
    }
    for (int64_t i = 0; i < c->count; i++)
        energy[i] = sum > 0 ? energy[i] * all * (double)c->count / sum : all;
    return PARE_OK;
}

/* What a reader's weight says of all alphas: the squares of what it takes of each input channel,
   and the largest magnitude of each output with the factors of each alpha. */
typedef struct reader_sums {
    double *squares;         /* (channels) */
    float *most[ALPHAS + 1]; /* (outputs) each */
} reader_sums;

/* A row of weights, all of one input channel, of one output each: most[o] = max(most[o], |w| f). */
PARE_CLONES static void note_most(const char *w, int64_t n, float f, float *restrict most)
{
    for (int64_t o = 0; o < n; o++) {
        const float v = fabsf(pare_quant_number(w, o)) * f;
        most[o] = v > most[o] ? v : most[o];
    }
}

/* Sum of squares in LANES sums of fixed order, and the largest magnitude. */
PARE_CLONES static double squares_of(const char *w, int64_t n, float *most)
{
    enum { LANES = 8 };
    double sum[LANES] = {0}, all = 0;
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float v = fabsf(pare_quant_number(w, i + k));
            sum[k] += (double)v * (double)v;
            lane[k] = v > lane[k] ? v : lane[k];
        }
    for (int k = 0; i < n; i++, k++) {
        const float v = fabsf(pare_quant_number(w, i));
        sum[k] += (double)v * (double)v;
        lane[k] = v > lane[k] ? v : lane[k];
    }
    *most = 0;
    for (int k = 0; k < LANES; k++) {
        all += sum[k];
        *most = fmaxf(*most, lane[k]);
    }
    return all;
}

/* (inputs, outputs), as a matrix product has it; f[a]: (maker's channels) factors of alpha a. */
static void sum_by_inputs(const layer_pair *t, const char *w, const pare_quant_layout *l,
                          float *const *f, reader_sums *sums)
{
    float most;
    for (int64_t i = 0; i < l->inputs; i++, w += (size_t)l->outputs * sizeof(float)) {
        sums->squares[i] += squares_of(w, l->outputs, &most);
        for (int a = 0; a <= ALPHAS; a++)
            note_most(w, l->outputs, f[a][i / t->block], sums->most[a]);
    }
}

/* (outputs, inputs of the group, taps), as a convolution has it. */
static void sum_by_outputs(const layer_pair *t, const char *w, const pare_quant_layout *l,
                           float *const *f, reader_sums *sums)
{
    float most;
    for (int64_t o = 0; o < l->outputs; o++) {
        const int64_t first = o / (l->outputs / l->groups) * l->inputs;
        for (int64_t i = first; i < first + l->inputs; i++) {
            sums->squares[i] += squares_of(w, l->taps, &most);
            w += (size_t)l->taps * sizeof(float);
            for (int a = 0; a <= ALPHAS; a++)
                sums->most[a][o] = fmaxf(sums->most[a][o], most * f[a][i / t->block]);
        }
    }
}

/* Noise in a reader's outputs with the factors e of alpha a: of its input, whose squared error is
   `x_noise`, and of its weights. */
static double noise_of(const layer_pair *t, const pare_quant_layout *l, const reader_sums *sums,
                       int a, const float *e, const double *energy, double x_noise)
{
    double noise = 0;
    const int64_t each = l->outputs / l->groups;
    for (int64_t g = 0; g < l->groups; g++) {
        double reads = 0;
        for (int64_t i = g * l->inputs; i < (g + 1) * l->inputs; i++) {
            const double f = (double)e[i / t->block], own = energy[i] / (f * f);
            noise += fmin(x_noise, own) * f * f * sums->squares[i];
            reads += own * (double)l->taps;
        }
        for (int64_t o = g * each; o < (g + 1) * each; o++) {
            const double step = (double)sums->most[a][o] / 127;
            noise += step * step / 12 * reads;
        }
    }
    return noise;
}

/* Adds a reader's noise with each alpha. x_noise: of alpha 0 and of the others. */
static pare_status add_noise(const layer_pair *t, const pare_quant_job *job,
                             const pare_quant_layout *l, float *const *f, const double *energy,
                             const double *x_noise, double *noise)
{
    reader_sums sums;
    const int64_t channels = l->inputs * l->groups;
    double *squares = pare_alloc(t->s->ctx, (size_t)channels, sizeof *squares);
    float *most = pare_alloc(t->s->ctx, (size_t)l->outputs * (ALPHAS + 1), sizeof *most);
    if (squares && most) {
        sums.squares = squares;
        for (int a = 0; a <= ALPHAS; a++) sums.most[a] = most + a * l->outputs;
        (l->inputs_first ? sum_by_inputs
                         : sum_by_outputs)(t, job->node->in[job->part.w]->data->data, l, f, &sums);
        for (int a = 0; a <= ALPHAS; a++)
            noise[a] += noise_of(t, l, &sums, a, f[a], energy, x_noise[a > 0]);
    }
    const bool ok = squares && most;
    pare_free(squares);
    pare_free(most);
    pare_tensor_give_back(job->node->in[job->part.w]->data);
    return ok ? PARE_OK : PARE_MEMORY;
}

/* --- choosing the factors --- */

static float largest_of(const pare_channels *c)
{
    float most = 0;
    for (int64_t i = 0; i < c->count; i++) most = fmaxf(most, c->largest[i]);
    return most;
}

/* (largest / largest of all)^alpha of each of the maker's channels. */
static void factors(const layer_pair *t, float alpha, float *e)
{
    const pare_channels *c = t->stats->channels;
    const float all = largest_of(c);
    for (int64_t k = 0; k < t->channels; k++) {
        float most = 0;
        for (int64_t i = k * t->block; i < (k + 1) * t->block; i++)
            most = fmaxf(most, c->largest[i]);
        e[k] = fmaxf(powf(most / all, alpha), LEAST);
    }
}

/* *out: the factors of least noise; NULL where these are all 1. */
static pare_status choose(layer_pair *t, const float **out)
{
    const pare_channels *c = t->stats->channels;
    const pare_histogram *h = t->stats->histogram;
    const pare_value *v = t->s->point[t->at].value;
    const bool symmetric = !t->s->options->unsigned_activations;
    const double levels = symmetric ? 127 : h->min < 0 ? 127.5 : 255;
    const double step = (double)largest_of(c) / levels;
    double noise[ALPHAS + 1] = {0}, x_noise[2];
    float *f[ALPHAS + 1];
    double *energy = pare_arena_alloc(t->s->arena, (size_t)c->count, sizeof *energy);
    if (!energy) return PARE_MEMORY;
    for (int a = 0; a <= ALPHAS; a++) {
        f[a] = pare_arena_alloc(t->s->arena, (size_t)t->channels, sizeof *f[a]);
        if (!f[a]) return PARE_MEMORY;
        factors(t, (float)a / ALPHAS, f[a]);
    }
    PARE_TRY(energies(t, energy, &x_noise[0]));
    x_noise[1] = step * step / 12 * (double)(h->count - h->zero) / (double)h->count;
    for (int i = 0; i < v->user_count; i++) {
        const pare_quant_job *job;
        pare_quant_layout l;
        if (reader(t, v->user[i], &job, &l))
            PARE_TRY(add_noise(t, job, &l, f, energy, x_noise, noise));
    }
    double least = WORTH * noise[0];
    *out = NULL;
    for (int a = 1; a <= ALPHAS; a++) {
        if (!(noise[a] < least)) continue;
        least = noise[a];
        *out = f[a];
    }
    return PARE_OK;
}

/* --- applying them --- */

/* Divides a constant along an axis: a weight that becomes int8 where it is read, for no other node
   reads it. */
static pare_status divide(const layer_pair *t, const operand *o, const float *e)
{
    pare_quant_scheme *s = t->s;
    const pare_value *v = o->node->in[o->input];
    pare_quant_job *job = pare_quant_job_of(s, o->node);
    if (job && job->part.w == o->input) job->divided = e;
    if (job && job->part.w == o->input && v->user_count == 1) {
        pare_quant_rescale *r;
        PARE_TRY(pare_quant_rescale_note(s, v, &r));
        r->axis = o->axis;
        r->divide = e;
        return PARE_OK;
    }
    const pare_quant_weight_view w = pare_quant_weight_look(v->data, o->axis);
    float *data = pare_alloc(s->ctx, (size_t)v->data->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    for (int64_t i = 0; i < v->data->count; i++)
        data[i] = pare_quant_number(v->data->data, i) / e[i / w.inner % w.channels];
    const pare_status st = pare_quant_put(s, o->node, o->input, v->data, data);
    pare_free(data);
    return st;
}

/* Multiplies what a reader takes of each channel; a weight that others read, too, gets a copy. */
static pare_status multiply(const layer_pair *t, const pare_quant_job *job,
                            const pare_quant_layout *l, const float *by)
{
    pare_quant_rescale *r;
    pare_value *w = job->node->in[job->part.w], *fresh;
    if (w->user_count > 1) {
        PARE_TRY(pare_quant_constant(job->node->graph, &fresh, w->name, "equalized", PARE_f32,
                                     w->data->rank, w->data->dims, w->data->data));
        PARE_TRY(pare_node_set_in(job->node, job->part.w, fresh));
        w = fresh;
    }
    PARE_TRY(pare_quant_rescale_note(t->s, w, &r));
    r->multiply = by;
    r->layout = *l;
    return PARE_OK;
}

/* The range that a point on the way has now, and what its channels were divided by. */
static pare_status point_set(const layer_pair *t, int at, const float *e)
{
    pare_quant_point *p = &t->s->point[at];
    const pare_stats *stats = pare_ranges_find(t->s->ranges, p->value->name);
    const pare_channels *c = stats->channels;
    const int64_t block = c->count / t->channels;
    float *all = pare_arena_alloc(t->s->arena, (size_t)c->count, sizeof *all), most = 0;
    if (!all) return PARE_MEMORY;
    for (int64_t i = 0; i < c->count; i++) {
        all[i] = e[i / block];
        most = fmaxf(most, c->largest[i] / all[i]);
    }
    p->divided = all;
    p->high = most;
    p->low = stats->histogram->min < 0 ? -most : 0;
    return PARE_OK;
}

static pare_status apply(const layer_pair *t, const float *e)
{
    const pare_value *v = t->s->point[t->at].value;
    for (int i = 0; i < t->operands; i++) PARE_TRY(divide(t, &t->operand[i], e));
    for (int i = 0; i < t->points; i++) PARE_TRY(point_set(t, t->point[i], e));
    for (int i = 0; i < v->user_count; i++) {
        const pare_quant_job *job;
        pare_quant_layout l;
        if (reader(t, v->user[i], &job, &l))
            PARE_TRY(multiply(t, job, &l, t->s->point[t->at].divided));
    }
    t->s->equalized++;
    return PARE_OK;
}

static bool counts_fit(const layer_pair *t)
{
    for (int i = 0; i < t->points; i++) {
        const pare_value *v = t->s->point[t->point[i]].value;
        const int64_t count = pare_ranges_find(t->s->ranges, v->name)->channels->count;
        if (count != t->channels && count != t->channels * t->block) return false;
    }
    return t->stats->channels->count == t->channels * t->block && t->channels > 1;
}

static pare_status equalize(pare_quant_scheme *s, int at)
{
    layer_pair t = {.s = s, .at = at};
    const float *e;
    t.stats = s->ranges ? pare_ranges_find(s->ranges, s->point[at].value->name) : NULL;
    if (!t.stats || !pare_channels_known(t.stats->channels)) return PARE_OK;
    if (!readers_fit(&t) || !find_maker(&t) || !counts_fit(&t) || !owns_scales(&t)) return PARE_OK;
    if (!(largest_of(t.stats->channels) > 0)) return PARE_OK;
    if (s->options->per_tensor_weights && !t.depthwise) return PARE_OK;
    PARE_TRY(choose(&t, &e));
    return e ? apply(&t, e) : PARE_OK;
}

pare_status pare_quant_equalize(pare_quant_scheme *s)
{
    if (s->options->rule.method != PARE_METHOD_AUTO || !s->options->equalize) return PARE_OK;
    for (int i = 0; i < s->point_count; i++) PARE_TRY(equalize(s, i));
    return PARE_OK;
}
