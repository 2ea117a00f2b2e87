/* SPDX-License-Identifier: Apache-2.0 */
/* Equalization before depthwise convolutions. A tensor has one scale, so a channel that is much
   smaller than the largest keeps few levels; a depthwise convolution may then multiply just that
   channel by a large weight. Dividing channel c by e_c where it is made (the maker's weights and
   bias) and multiplying the depthwise weights of c by e_c changes no output, for Relu and Clip from
   0 commute with positive factors (Nagel et al. 2019, arXiv 1906.04721, section 4.1), and costs no
   accuracy of the weights: both have a scale per channel. With e_c = (largest of channel c) /
   (largest of all) every channel uses the whole range. Clip's upper bound then cuts channel c at
   e_c times the bound, never below the largest value that was seen: where its int8 range ends
   anyway. */
#include "calib/channels.h"
#include "calib/histogram.h"
#include "quant/internal.h"

#include <math.h>
#include <string.h>

static const float LEAST = 1.0f / 64; /* of e_c: a dead channel stays small */

static float number_of(const pare_value *v, float missing)
{
    if (!v) return missing;
    bool known = v->data && v->data->dtype == PARE_f32 && v->data->count == 1;
    return known ? *(const float *)v->data->data : NAN;
}

/* The convolution that makes a value, with a Relu or a Clip from 0 between, no one else reading on
   the way; or NULL. */
static pare_quant_job *maker_of(pare_quant_scheme *s, const pare_value *value)
{
    const pare_node *clamp = value->producer;
    if (!clamp || value->is_output || clamp->in[0]->graph != value->graph ||
        pare_quant_kind_of(clamp) != PARE_QUANT_CLAMP)
        return NULL;
    bool has_bounds = clamp->in_count > 1;
    if (has_bounds && (number_of(pare_node_in(clamp, 1), -INFINITY) != 0 ||
                       !(number_of(pare_node_in(clamp, 2), INFINITY) > 0)))
        return NULL;
    if (pare_value_only_user(clamp->in[0]) != clamp) return NULL;
    pare_quant_job *job = pare_quant_job_of(s, clamp->in[0]->producer);
    if (!job || job->node->out[0] != clamp->in[0] || !job->part.constant || job->part.axis != 0)
        return NULL;
    const pare_value *bias = job->part.bias >= 0 ? pare_node_in(job->node, job->part.bias) : NULL;
    bool plain = job->part.w > job->part.x && job->node->in[job->part.w]->data->rank == 4 &&
                 (!bias || (bias->data && bias->data->dtype == PARE_f32));
    return plain ? job : NULL;
}

/* Is a reader of the value a depthwise convolution to be quantized? */
static pare_quant_job *depthwise(pare_quant_scheme *s, const pare_value *value, int64_t channels,
                                 const pare_node *reader)
{
    pare_quant_job *job = pare_quant_job_of(s, reader);
    if (!job || !job->part.constant || job->part.axis != 0 || reader->in[job->part.x] != value)
        return NULL;
    const pare_tensor *w = reader->in[job->part.w]->data;
    bool fits = w->rank == 4 && w->dims[1] == 1 && w->dims[0] % channels == 0 && channels > 1;
    return fits && pare_node_int(reader, "group", 1) == channels ? job : NULL;
}

static bool reads_fit(pare_quant_scheme *s, const pare_value *v, int64_t channels)
{
    for (int i = 0; i < v->user_count; i++)
        if (!depthwise(s, v, channels, v->user[i])) return false;
    return v->user_count > 0;
}

static bool shares_scale(const pare_quant_scheme *s, int at)
{
    for (int i = 0; i < s->point_count; i++)
        if (i != at && s->point[i].group == s->point[at].group) return true;
    return false;
}

/* Multiplies rows of an operand, `each` of them by one factor (divides where asked). */
static pare_status scale_rows(pare_quant_scheme *s, pare_node *node, int i, const float *factor,
                              int64_t each, bool divide)
{
    const pare_tensor *t = node->in[i]->data;
    int64_t rows = t->dims[0], inner = t->count / rows;
    float *data = pare_arena_alloc(s->arena, (size_t)t->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    memcpy(data, t->data, (size_t)t->count * sizeof *data);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = r * inner; k < (r + 1) * inner; k++) {
            const float v = data[k], f = factor[r / each];
            data[k] = divide ? v / f : v * f;
        }
    return pare_quant_put(s, node, i, t, data);
}

static pare_status apply(pare_quant_scheme *s, pare_quant_point *p, pare_quant_job *maker,
                         const float *e, int64_t channels)
{
    int bias = maker->part.bias;
    PARE_TRY(scale_rows(s, maker->node, maker->part.w, e, 1, true));
    if (bias >= 0 && pare_node_in(maker->node, bias))
        PARE_TRY(scale_rows(s, maker->node, bias, e, 1, true));
    for (int i = 0; i < p->value->user_count; i++) {
        pare_quant_job *job = depthwise(s, p->value, channels, p->value->user[i]);
        int64_t rows = job->node->in[job->part.w]->data->dims[0];
        PARE_TRY(scale_rows(s, job->node, job->part.w, e, rows / channels, false));
    }
    p->divided = e;
    s->equalized++;
    return PARE_OK;
}

static pare_status equalize(pare_quant_scheme *s, int at)
{
    pare_quant_point *p = &s->point[at];
    const pare_stats *stats = s->ranges ? pare_ranges_find(s->ranges, p->value->name) : NULL;
    if (!stats || !pare_channels_known(stats->channels) || stats->histogram->min < 0)
        return PARE_OK;
    const pare_channels *c = stats->channels;
    pare_quant_job *maker = maker_of(s, p->value);
    if (!maker || maker->node->in[maker->part.w]->data->dims[0] != c->count ||
        !reads_fit(s, p->value, c->count) || shares_scale(s, at))
        return PARE_OK;
    float largest = stats->histogram->max;
    float *e = pare_arena_alloc(s->arena, (size_t)c->count, sizeof *e);
    if (!e) return PARE_MEMORY;
    if (!(largest > 0)) return PARE_OK;
    for (int64_t i = 0; i < c->count; i++) e[i] = fmaxf(c->largest[i] / largest, LEAST);
    PARE_TRY(apply(s, p, maker, e, c->count));
    p->low = 0;
    p->high = largest;
    return PARE_OK;
}

pare_status pare_quant_equalize(pare_quant_scheme *s)
{
    if (s->options->rule.method != PARE_METHOD_AUTO || !s->options->equalize) return PARE_OK;
    for (int i = 0; i < s->point_count; i++) PARE_TRY(equalize(s, i));
    return PARE_OK;
}
