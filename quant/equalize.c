/* SPDX-License-Identifier: Apache-2.0 */
/* Equalization across layers. A tensor has one scale, so a channel that is much smaller than the
   largest keeps few levels. Dividing channel c by e_c where it is made (weight and bias of a
   convolution or matrix product, scale and bias of a LayerNormalization) and multiplying the
   weights that read c by e_c changes no output, for what may be between, Relu, Clip from 0,
   pooling, commutes with positive factors (Nagel et al. 2019, arXiv 1906.04721, section 4.1; for
   LayerNormalization: Xiao et al. 2023, "SmoothQuant", arXiv 2211.10438; pairs.c finds both).

   e_c = (largest of channel c / largest of all)^alpha, and of few samples, the largest to expect: a
   channel that was nearly silent may not be so on other data. The makers pay nothing, for they have
   a scale per output channel. The readers may: a row's scale follows its largest weight. Alpha is
   the one of 0 (as it was), 1/4 ... 1 with the least noise in the readers' outputs: what rounding
   the tensor adds, step^2 / 12 for what is not zero, at most E[x_c^2] / e_c^2, times the sum of (W
   e)^2; and what rounding the weights adds, s_o^2 / 12 times the sum of E[x_c^2] / e_c^2.

   Clip's upper bound then cuts channel c at e_c times the bound, never below the largest value that
   was seen: where its int8 range ends anyway. */
#include "calib/channels.h"
#include "calib/histogram.h"
#include "quant/pairs.h"
#include "runtime/base/clones.h"

#include <math.h>
#include <string.h>

static const float LEAST = 0x1p-12f; /* of e_c: a dead channel stays small */
static const double WORTH = 0.9;     /* of the noise, for a change */
static const double USUAL = 512;     /* samples, whose largest values are taken as they are */
static const double GROWTH = 2;      /* of what is to be expected: chosen on the sample nets */
static const double GAMMA = 0.5772;  /* Euler's constant */
enum { ALPHAS = 4 };

/* The layer that makes channels, and the ones that read them. */
typedef struct layer_pair {
    pare_quant_scheme *s;
    int at; /* the point that is read */
    const pare_stats *stats;
    pare_quant_pair pair;
    int point[PARE_PAIR_STEPS], points; /* on the way, the one that is read first */
    bool depthwise;                     /* all readers are */
} layer_pair;

/* --- the maker --- */

/* A weighted node whose weights may be divided: it becomes int8, or only its own rounding keeps it
   float. */
static bool is_maker(void *user, pare_node *node, pare_weighted *part)
{
    pare_quant_scheme *s = user;
    const pare_quant_job *job = pare_quant_job_of(s, node);
    if (job) *part = job->part;
    if (job || !node || pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED ||
        !pare_quant_chosen(&s->nodes, node) || !pare_quant_kept(&s->nodes, node))
        return job != NULL;
    if (pare_op_of(node)->quant.weighted(node, part) != PARE_OK) return false;
    const pare_value *w = pare_node_in(node, part->w);
    part->constant = w && w->data;
    return true;
}

static const pare_channels *channels_of(const pare_quant_scheme *s, const pare_value *v)
{
    const pare_stats *stats = s->ranges ? pare_ranges_find(s->ranges, v->name) : NULL;
    return stats && pare_channels_known(stats->channels) ? stats->channels : NULL;
}

/* The maker of the point's channels; what is known of all points on the way. */
static bool find_maker(layer_pair *t)
{
    const pare_quant_makers makers = {.find = is_maker, .user = t->s, .bounds = true};
    pare_quant_pair *p = &t->pair;
    if (!pare_quant_pair_find(t->s->point[t->at].value, &makers, p)) return false;
    if (p->product && pare_quant_point_find(t->s, p->product) >= 0) return false;
    for (int i = 0; i < p->ways; i++) {
        const int at = pare_quant_point_find(t->s, p->way[i]);
        if (at < 0) continue;
        if (!channels_of(t->s, p->way[i])) return false;
        t->point[t->points++] = at;
    }
    return true;
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
            note_most(w, l->outputs, f[a][i / t->pair.block], sums->most[a]);
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
                sums->most[a][o] = fmaxf(sums->most[a][o], most * f[a][i / t->pair.block]);
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
            const double f = (double)e[i / t->pair.block], own = energy[i] / (f * f);
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

/* How many values of a channel are not 0: of an exponential distribution, whose sum over its
   largest is in the mean k / (ln k + gamma); all of them where it has two signs. 1 at least. */
static double times_seen(const layer_pair *t, int64_t i)
{
    enum { STEPS = 10 };
    const pare_channels *c = t->stats->channels;
    if (t->stats->histogram->min < 0) return (double)c->each;
    const double ratio =
        c->largest[i] > 0 ? (double)c->each * fabs(pare_channels_mean(c, i)) / (double)c->largest[i]
                          : 0;
    double k = fmax(1, ratio);
    for (int j = 0; j < STEPS; j++) k = fmax(1, ratio * (log(k) + GAMMA));
    return k;
}

/* The largest magnitude of a channel that is to be expected, all: the largest of all channels. Of
   fewer samples than USUAL it is more than what was seen: the largest of k values with an
   exponential tail grows as ln k + gamma in the mean, and what was seen may be short of that. With
   the chance 1 / (k + 1) (Laplace's rule of succession) the channel does what it was not seen to
   do: it is as large as any. */
static float to_expect(const layer_pair *t, int64_t i, float all)
{
    const pare_channels *c = t->stats->channels;
    const int64_t samples = pare_ranges_samples(t->s->ranges);
    const double most = (double)c->largest[i],
                 seen = samples > 0 ? (double)samples : (double)c->each;
    if (seen >= USUAL) return c->largest[i];
    if (!(most > 0)) return all;
    const double k = times_seen(t, i),
                 grown = most * (1 + GROWTH * log(USUAL / seen) / (log(k) + GAMMA));
    return fminf(all, (float)(grown + ((double)all - most) / (k + 1)));
}

/* (largest to expect / largest of all)^alpha of each of the maker's channels. */
static void factors(const layer_pair *t, float alpha, float *e)
{
    const pare_channels *c = t->stats->channels;
    const float all = largest_of(c);
    for (int64_t k = 0; k < t->pair.channels; k++) {
        float most = 0;
        for (int64_t i = k * t->pair.block; i < (k + 1) * t->pair.block; i++)
            most = fmaxf(most, to_expect(t, i, all));
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
        f[a] = pare_arena_alloc(t->s->arena, (size_t)t->pair.channels, sizeof *f[a]);
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
static pare_status divide(const layer_pair *t, const pare_quant_operand *o, const float *e)
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
    float *data;
    PARE_TRY(pare_quant_operand_divide(s->ctx, o, e, &data));
    const pare_status st = pare_quant_put(o->node, o->input, data);
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
    const int64_t block = c->count / t->pair.channels;
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
    for (int i = 0; i < t->pair.operands; i++) PARE_TRY(divide(t, &t->pair.operand[i], e));
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
        if (count != t->pair.channels && count != t->pair.channels * t->pair.block) return false;
    }
    return t->stats->channels->count == t->pair.channels * t->pair.block && t->pair.channels > 1;
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
