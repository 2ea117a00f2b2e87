/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax cross-entropy with its gradient, and SoftmaxKL (ops/loss.c): the plain kernel in double,
   f32 with float exponentials and sums in double. With s = student / T less its largest, t
   likewise, and sums S, U of e^s, e^t: KL = sum e^t (t - s) / U - ln U + ln S */
#include "runtime/cpu/ref.h"
#include "runtime/cpu/vmath.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static double temperature_of(const pare_node *node)
{
    return (double)pare_node_float(node, "temperature", 1);
}

static bool has_gradient(const pare_call *c) { return c->out_count > 1 && c->out[1].dtype; }

static bool kl_can(const pare_prep *p)
{
    return (p->in[0].dtype == PARE_f32 || p->in[0].dtype == PARE_f64) && p->in[0].rank > 0 &&
           pare_view_rowmajor(&p->in[0]) && pare_view_rowmajor(&p->in[1]);
}

static int64_t classes_of(const pare_view *x) { return x->dim[x->rank - 1]; }

static int64_t rows_of(const pare_view *x)
{
    return classes_of(x) ? pare_view_count(x) / classes_of(x) : 0;
}

/* --- in double --- */

/* The largest, and the sum of e^((x - largest) / temperature). */
static double exponents(const pare_view *x, int64_t at, int64_t n, double temperature, double *sum)
{
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = fmax(top, pare_ref_get(x, at + i));
    *sum = 0;
    for (int64_t i = 0; i < n; i++) *sum += exp((pare_ref_get(x, at + i) - top) / temperature);
    return top;
}

static double ref_row(const pare_call *c, int64_t at, int64_t n, double temperature, double factor)
{
    double ss, us, kl = 0;
    const double top_s = exponents(&c->in[0], at, n, temperature, &ss);
    const double top_t = exponents(&c->in[1], at, n, temperature, &us);
    for (int64_t i = 0; i < n; i++) {
        const double s = (pare_ref_get(&c->in[0], at + i) - top_s) / temperature;
        const double t = (pare_ref_get(&c->in[1], at + i) - top_t) / temperature;
        const double p = exp(t) / us;
        if (p > 0) kl += p * (t - s);
        if (has_gradient(c)) pare_ref_set(&c->out[1], at + i, (exp(s) / ss - p) * factor);
    }
    return kl - log(us) + log(ss);
}

static pare_status ref_run(const pare_call *c)
{
    const int64_t rows = rows_of(&c->in[0]), n = classes_of(&c->in[0]);
    const double temperature = temperature_of(c->node);
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        sum += ref_row(c, r * n, n, temperature, temperature / (double)rows);
    pare_ref_set(&c->out[0], 0, temperature * temperature * sum / (double)rows);
    return PARE_OK;
}

/* --- f32 --- */

PARE_CLONES static float largest(const float *x, int64_t n)
{
    float top = -INFINITY;
    _Pragma("omp simd reduction(max : top)") for (int64_t i = 0; i < n; i++) top =
        x[i] > top ? x[i] : top;
    return top;
}

/* s, t: become e^s, e^t. */
PARE_CLONES static double f32_row(const float *student, const float *teacher, int64_t n,
                                  float inverse, float *restrict s, float *restrict t, double *ss,
                                  double *us)
{
    const float top_s = largest(student, n), top_t = largest(teacher, n);
    double sum = 0, sum_t = 0, dot = 0;
    _Pragma("omp simd reduction(+ : sum, sum_t, dot)") for (int64_t i = 0; i < n; i++)
    {
        const float a = (student[i] - top_s) * inverse, b = (teacher[i] - top_t) * inverse;
        const float q = pare_vexp(a), p = pare_vexp(b);
        s[i] = q;
        t[i] = p;
        sum += (double)q;
        sum_t += (double)p;
        dot += p > 0 ? (double)p * (double)(b - a) : 0;
    }
    *ss = sum;
    *us = sum_t;
    return dot / sum_t - log(sum_t) + log(sum);
}

PARE_CLONES static void f32_gradient(float *to, const float *s, const float *t, int64_t n, float a,
                                     float b)
{
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) to[i] = s[i] * a - t[i] * b;
}

static bool f32_can(const pare_prep *p)
{
    return kl_can(p) && p->in[0].dtype == PARE_f32 && p->in[1].dtype == PARE_f32;
}

static pare_status f32_prepare(pare_prep *p)
{
    p->scratch = 2 * sizeof(float) * (size_t)classes_of(&p->in[0]);
    return PARE_OK;
}

static pare_status f32_run(const pare_call *c)
{
    const int64_t rows = rows_of(&c->in[0]), n = classes_of(&c->in[0]);
    const double temperature = temperature_of(c->node), factor = temperature / (double)rows;
    float *s = c->scratch, *t = s + n;
    double sum = 0, ss, us;
    for (int64_t r = 0; r < rows; r++) {
        sum += f32_row((const float *)c->in[0].data + r * n, (const float *)c->in[1].data + r * n,
                       n, (float)(1 / temperature), s, t, &ss, &us);
        if (has_gradient(c))
            f32_gradient((float *)c->out[1].data + r * n, s, t, n, (float)(factor / ss),
                         (float)(factor / us));
    }
    *(float *)c->out[0].data = (float)(temperature * temperature * sum / (double)rows);
    return PARE_OK;
}

static const pare_kernel softmax_kl_f32 = {
    .name = "softmax_kl_f32", .can = f32_can, .prepare = f32_prepare, .run = f32_run};
static const pare_kernel ref_softmax_kl = {
    .name = "ref_softmax_kl", .can = kl_can, .run = ref_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_softmax_kl[] = {&softmax_kl_f32, &ref_softmax_kl, NULL};

/* --- cross-entropy --- */

/* The label of a row: given, or the first largest logit. */
static pare_status label_of(const pare_call *c, int64_t row, int64_t *out)
{
    const pare_view *x = &c->in[0];
    int64_t classes = x->dim[1];
    if (c->in_count > 1 && c->in[1].dtype) {
        *out = pare_ref_get_int(&c->in[1], row * c->in[1].stride[0]);
        if (*out >= 0 && *out < classes) return PARE_OK;
        return PARE_FAIL_CALL(c, INPUT,
                              "label %" PRId64 " of sample %" PRId64 " is outside the %" PRId64
                              " classes of '%s'",
                              *out, row, classes, c->node->in[0]->name);
    }
    double best = -INFINITY;
    *out = 0;
    for (int64_t i = 0; i < classes; i++) {
        double v = pare_ref_get(x, row * x->stride[0] + i * x->stride[1]);
        if (v > best) best = v, *out = i;
    }
    return PARE_OK;
}

/* loss = mean over rows of ln sum e^x - x[label]; dx = (softmax x - 1[label]) / rows */
static pare_status cross_entropy_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *dx = &c->out[1];
    const int64_t rows = x->dim[0], classes = x->dim[1];
    double loss = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t label, at = r * x->stride[0];
        double top = -INFINITY, sum = 0;
        PARE_TRY(label_of(c, r, &label));
        for (int64_t i = 0; i < classes; i++)
            top = fmax(top, pare_ref_get(x, at + i * x->stride[1]));
        for (int64_t i = 0; i < classes; i++)
            sum += exp(pare_ref_get(x, at + i * x->stride[1]) - top);
        loss += top + log(sum) - pare_ref_get(x, at + label * x->stride[1]);
        for (int64_t i = 0; dx->dtype && i < classes; i++) {
            double p = exp(pare_ref_get(x, at + i * x->stride[1]) - top) / sum;
            pare_ref_set(dx, r * dx->stride[0] + i * dx->stride[1],
                         (p - (i == label)) / (double)rows);
        }
    }
    pare_ref_set(&c->out[0], 0, loss / (double)rows);
    return PARE_OK;
}

static const pare_kernel ref_cross_entropy = {.name = "ref_cross_entropy",
                                              .can = pare_ref_can_f32_f64,
                                              .run = cross_entropy_run,
                                              .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_cross_entropy[] = {&ref_cross_entropy, NULL};

/* --- NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss: -w[label] x[label] of each position, x
   the logarithm of the probability; mean divides by the sum of the weights. A label that is
       ignore_index counts for nothing. --- */

typedef struct nll {
    bool softmax, each, mean;
    bool ignores;
    int64_t ignored;
} nll;

static pare_status nll_prepare(pare_prep *p)
{
    nll *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    const char *reduction = pare_node_string(p->node, "reduction", "mean");
    s->softmax = pare_node_is(p->node, "SoftmaxCrossEntropyLoss");
    s->each = !strcmp(reduction, "none");
    s->mean = !strcmp(reduction, "mean");
    s->ignores = pare_node_attr(p->node, "ignore_index") != NULL;
    s->ignored = pare_node_int(p->node, "ignore_index", 0);
    p->state = s;
    return PARE_OK;
}

/* ln sum e^x of the classes at an offset. */
static double log_sum(const pare_view *x, int64_t at)
{
    double top = -INFINITY, sum = 0;
    for (int64_t k = 0; k < x->dim[1]; k++) top = fmax(top, pare_ref_get(x, at + k * x->stride[1]));
    for (int64_t k = 0; k < x->dim[1]; k++)
        sum += exp(pare_ref_get(x, at + k * x->stride[1]) - top);
    return top + log(sum);
}

/* The weight of a label, 0 where it is ignored. */
static pare_status nll_weight(const pare_call *c, int64_t label, double *out)
{
    const nll *s = c->state;
    *out = 0;
    if (s->ignores && label == s->ignored) return PARE_OK;
    if (label < 0 || label >= c->in[0].dim[1])
        return PARE_FAIL_NODE(
            c->node, INPUT, "label %" PRId64 " in '%s' is outside the %" PRId64 " classes of '%s'",
            label, c->node->in[1]->name, c->in[0].dim[1], c->node->in[0]->name);
    *out =
        c->in_count > 2 && c->in[2].dtype ? pare_ref_get(&c->in[2], label * c->in[2].stride[0]) : 1;
    return PARE_OK;
}

static pare_status nll_run(const pare_call *c)
{
    const nll *s = c->state;
    const pare_view *x = &c->in[0], *labels = &c->in[1];
    const pare_view *logs = c->out_count > 1 && c->out[1].dtype ? &c->out[1] : NULL;
    int64_t index[PARE_MAX_RANK] = {0};
    double sum = 0, weights = 0;
    if (pare_view_count(labels)) do {
            int64_t at = index[0] * x->stride[0], to = logs ? index[0] * logs->stride[0] : 0;
            for (int i = 1; i < labels->rank; i++) {
                at += index[i] * x->stride[i + 1];
                if (logs) to += index[i] * logs->stride[i + 1];
            }
            const double base = s->softmax ? log_sum(x, at) : 0;
            const int64_t label = pare_ref_get_int(labels, pare_ref_offset(labels, index));
            double weight;
            PARE_TRY(nll_weight(c, label, &weight));
            const double loss =
                weight == 0 ? 0 : weight * (base - pare_ref_get(x, at + label * x->stride[1]));
            for (int64_t k = 0; logs && k < x->dim[1]; k++)
                pare_ref_set(logs, to + k * logs->stride[1],
                             pare_ref_get(x, at + k * x->stride[1]) - base);
            if (s->each) pare_ref_set(&c->out[0], pare_ref_offset(&c->out[0], index), loss);
            sum += loss;
            weights += weight;
        } while (pare_ref_next(labels, index));
    if (!s->each) pare_ref_set(&c->out[0], 0, s->mean ? sum / weights : sum);
    return PARE_OK;
}

static const pare_kernel ref_nll_loss = {.name = "ref_nll_loss",
                                         .can = pare_ref_can_floats,
                                         .prepare = nll_prepare,
                                         .run = nll_run,
                                         .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_nll_loss[] = {&ref_nll_loss, NULL};
static const pare_kernel ref_softmax_cross_entropy_loss = {.name = "ref_softmax_cross_entropy_loss",
                                                           .can = pare_ref_can_floats,
                                                           .prepare = nll_prepare,
                                                           .run = nll_run,
                                                           .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_softmax_cross_entropy_loss[] = {&ref_softmax_cross_entropy_loss,
                                                                  NULL};
