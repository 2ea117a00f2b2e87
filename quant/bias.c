/* SPDX-License-Identifier: Apache-2.0 */
/* Bias correction. A rounded weight W' errs by W' - W, and where the input's mean is not zero that
   shifts the mean of output o: E[y'_o] - E[y_o] = sum over inputs c of (W' - W)[o, c] E[x_c], taps
   of one channel added up (Nagel et al. 2019, "Data-Free Quantization through Weight Equalization
   and Bias Correction", arXiv 1906.04721, section 4.2; here the means are measured). The shift is
   taken from the bias. Taps in the padding count as if inside. */
#include "calib/channels.h"
#include "quant/internal.h"

/* How the elements of a weight meet outputs and the input's channels: (outputs, inputs, taps), the
   first two in either order. */
typedef struct layout {
    int64_t outputs, inputs, taps, groups;
    bool inputs_first;
} layout;

/* A convolution's weight is (M, C / group, taps...), a matrix's (K, N) or (N, K). Others
   (transposed convolutions, where a tap serves some positions only; weights on the left) are left
   alone. */
static bool lay_out(const pare_quant_job *job, const pare_tensor *w, int64_t channels, layout *out)
{
    const pare_shape *x = &job->node->in[job->part.x]->shape;
    int axis = job->part.axis;
    if (job->part.w < job->part.x || w->rank < 2 || axis < 0 || axis > 1) return false;
    *out = (layout){w->dims[axis], w->dims[1 - axis], 1, 1, axis == 1};
    if (w->rank == 2)
        return x->rank < 4 && out->inputs == channels &&
               pare_channels_axis(x->rank) == x->rank - 1 && !pare_node_int(job->node, "transA", 0);
    for (int i = 2; i < w->rank; i++) out->taps *= w->dims[i];
    if (axis != 0 || w->rank < 4 || x->rank != w->rank || channels % out->inputs) return false;
    out->groups = channels / out->inputs;
    return out->outputs % out->groups == 0;
}

/* Mean of output o's error. */
static double shift_of(const layout *l, int64_t o, const void *w, const int8_t *q, float scale,
                       const pare_channels *x, const float *divided)
{
    int64_t first =
        o / (l->outputs / l->groups) * l->inputs; /* channel of its group's first input */
    double shift = 0;
    for (int64_t c = 0; c < l->inputs; c++) {
        int64_t at = (l->inputs_first ? c * l->outputs + o : o * l->inputs + c) * l->taps;
        double error = 0;
        for (int64_t t = at; t < at + l->taps; t++)
            error += (double)q[t] * (double)scale - (double)pare_quant_number(w, t);
        double mean = pare_channels_mean(x, first + c);
        shift += error * (divided ? mean / (double)divided[first + c] : mean);
    }
    return shift;
}

pare_status pare_quant_bias_shift(pare_quant_scheme *s, const pare_quant_job *job,
                                  const pare_tensor *w, const int8_t *q, const float *scale,
                                  int64_t scales, const double **out, int64_t *count)
{
    const pare_value *x = job->node->in[job->part.x];
    const pare_stats *stats = s->ranges ? pare_ranges_find(s->ranges, x->name) : NULL;
    layout l;
    *out = NULL;
    *count = 0;
    if (!s->options->bias_correction || !stats || !pare_channels_known(stats->channels) ||
        !lay_out(job, w, stats->channels->count, &l) || (scales != 1 && scales != l.outputs))
        return PARE_OK;
    double *shift = pare_arena_alloc(s->arena, (size_t)l.outputs, sizeof *shift);
    if (!shift) return PARE_MEMORY;
    for (int64_t o = 0; o < l.outputs; o++)
        shift[o] = shift_of(&l, o, w->data, q, scale[scales == 1 ? 0 : o], stats->channels,
                            s->point[job->x].divided);
    *out = shift;
    *count = l.outputs;
    return PARE_OK;
}
