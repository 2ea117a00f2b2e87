/* SPDX-License-Identifier: Apache-2.0 */
/* Einsum (12) by its definition: each output the sum, over all indices of the labels it does not
   have, of the product of the inputs; floats in double and rounded once, integers wrap around.
   Matrix products among the equations are rewritten before (passes/import/expand_einsum.c). */
#include "runtime/ops/einsum.h"
#include "runtime/cpu/ref.h"

#include <string.h>

typedef struct einsum {
    int inputs, outputs, sums;       /* labels of the output; labels that are summed over */
    int64_t dim[PARE_EINSUM_LABELS]; /* outputs first, then the others */
    int64_t stride[PARE_EINSUM_INPUTS][PARE_EINSUM_LABELS];
} einsum;

/* How far an input's element moves with a label: repeated letters walk a diagonal, axes of length 1
   stay. */
static int64_t stride_of(const pare_einsum_term *t, const pare_view *v, int label)
{
    int64_t stride = 0;
    for (int i = 0; i < t->rank; i++)
        if (t->label[i] == label && v->dim[i] != 1) stride += v->stride[i];
    return stride;
}

static pare_status einsum_prepare(pare_prep *p)
{
    einsum *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    pare_einsum e;
    bool known;
    if (!s) return PARE_MEMORY;
    memset(s, 0, sizeof *s);
    PARE_TRY(pare_einsum_of(p->node, &e, &known));
    s->inputs = e.inputs;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < (pass ? e.labels : e.out.rank); k++) {
            const int label = pass ? k : e.out.label[k], at = s->outputs + s->sums;
            if (pass && pare_einsum_find(&e.out, label) >= 0) continue;
            s->dim[at] = e.dim[label];
            for (int i = 0; i < e.inputs; i++)
                s->stride[i][at] = stride_of(&e.in[i], &p->in[i], label);
            pass ? s->sums++ : s->outputs++;
        }
    p->state = s;
    return PARE_OK;
}

/* Moves the index of labels [first, last) and the inputs' offsets on; false after the last. */
static bool next(const einsum *s, int first, int last, int64_t *index, int64_t *at)
{
    for (int k = last - 1; k >= first; k--) {
        const bool more = ++index[k] < s->dim[k];
        for (int i = 0; i < s->inputs; i++)
            at[i] += more ? s->stride[i][k] : -(s->dim[k] - 1) * s->stride[i][k];
        if (more) return true;
        index[k] = 0;
    }
    return false;
}

static double sum_floats(const pare_call *c, int64_t *index, int64_t *at)
{
    const einsum *s = c->state;
    double sum = 0;
    do {
        double product = pare_ref_get(&c->in[0], at[0]);
        for (int i = 1; i < s->inputs; i++) product *= pare_ref_get(&c->in[i], at[i]);
        sum += product;
    } while (next(s, s->outputs, s->outputs + s->sums, index, at));
    return sum;
}

static int64_t sum_ints(const pare_call *c, int64_t *index, int64_t *at)
{
    const einsum *s = c->state;
    uint64_t sum = 0;
    do {
        uint64_t product = (uint64_t)pare_ref_get_int(&c->in[0], at[0]);
        for (int i = 1; i < s->inputs; i++) product *= (uint64_t)pare_ref_get_int(&c->in[i], at[i]);
        sum += product;
    } while (next(s, s->outputs, s->outputs + s->sums, index, at));
    return (int64_t)sum;
}

/* Outputs first..last in row-major order. */
static void einsum_range(const pare_call *c, int64_t first, int64_t last, bool empty)
{
    const einsum *s = c->state;
    const pare_view *y = &c->out[0];
    int64_t index[PARE_EINSUM_LABELS] = {0}, at[PARE_EINSUM_INPUTS] = {0}, left = first;
    for (int k = s->outputs - 1; k >= 0; k--) {
        index[k] = left % s->dim[k];
        left /= s->dim[k];
        for (int i = 0; i < s->inputs; i++) at[i] += index[k] * s->stride[i][k];
    }
    for (int64_t i = first; i < last; i++) {
        const int64_t to = pare_ref_offset(y, index);
        if (pare_type_is_float(y->dtype))
            pare_ref_set(y, to, empty ? 0 : sum_floats(c, index, at));
        else
            pare_ref_set_int(y, to, empty ? 0 : sum_ints(c, index, at));
        (void)next(s, 0, s->outputs, index, at);
    }
}

static pare_status einsum_run(const pare_call *c)
{
    enum { WORTH = 32768 }; /* products for which another thread is started */
    const einsum *s = c->state;
    const int64_t count = pare_view_count(&c->out[0]);
    double work = (double)count;
    bool empty = false;
    for (int k = s->outputs; k < s->outputs + s->sums; k++) {
        work *= (double)s->dim[k];
        empty = empty || !s->dim[k];
    }
    const double most = work / WORTH;
    const int threads = most < 2 || count < c->threads ? 1 : c->threads;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++)
        if (count) einsum_range(c, count * t / threads, count * (t + 1) / threads, empty);
    return PARE_OK;
}

static const pare_kernel ref_einsum = {.name = "ref_einsum",
                                       .can = pare_ref_can_numbers,
                                       .prepare = einsum_prepare,
                                       .run = einsum_run,
                                       .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_einsum[] = {&ref_einsum, NULL};
