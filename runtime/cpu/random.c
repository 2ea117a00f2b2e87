/* SPDX-License-Identifier: Apache-2.0 */
/* RandomUniform, RandomNormal, RandomUniformLike, RandomNormalLike, Bernoulli, Multinomial (22) on
   Philox 4x32-10 (random.h); element i of a tensor, in row-major order, is made from block i.

   The key is the seed attribute's bits, the stream 0: nodes of equal seed draw equal numbers.
   Without the attribute the key is a constant and the stream the hash of the output's name, so that
   each node of a model draws numbers of its own and every run draws the same ones. Numbers are made
   in double and rounded once. */
#include "runtime/cpu/random.h"
#include "runtime/base/hash.h"
#include "runtime/cpu/ref.h"

#include <math.h>
#include <string.h>

enum { WORTH = 4096 }; /* WORTH: elements for which threads are started */

typedef struct draw {
    pare_philox_stream random;
    double a, b; /* low and high, or mean and scale */
} draw;

static pare_status draw_prepare(pare_prep *p)
{
    draw *d = pare_arena_alloc(p->arena, 1, sizeof *d);
    const bool normal = strstr(p->node->op_type, "Normal") != NULL;
    if (!d) return PARE_MEMORY;
    *d = (draw){.random.key = PARE_PHILOX_UNSEEDED};
    if (pare_node_attr(p->node, "seed")) {
        const float seed = pare_node_float(p->node, "seed", 0);
        uint32_t bits;
        memcpy(&bits, &seed, sizeof bits);
        d->random.key = bits;
    } else {
        const char *name = p->node->out[0]->name;
        d->random.stream = pare_hash_bytes(name, strlen(name)).low;
    }
    d->a = (double)pare_node_float(p->node, normal ? "mean" : "low", 0);
    d->b = (double)pare_node_float(p->node, normal ? "scale" : "high", 1);
    p->state = d;
    return PARE_OK;
}

static int threads_for(const pare_call *c, int64_t count) { return count > WORTH ? c->threads : 1; }

static pare_status random_uniform_run(const pare_call *c)
{
    const draw *d = c->state;
    const int64_t n = pare_view_count(&c->out[0]);
#pragma omp parallel for num_threads(threads_for(c, n)) schedule(static)
    for (int64_t i = 0; i < n; i++)
        pare_ref_set(&c->out[0], i, d->a + (d->b - d->a) * pare_philox_unit(&d->random, i));
    return PARE_OK;
}

/* Box, Muller 1958, "A note on the generation of random normal deviates". */
static double normal_at(const draw *d, int64_t i)
{
    double u[2];
    pare_philox_pair(&d->random, i, u);
    return d->a + d->b * sqrt(-2 * log(1 - u[0])) * cos(2 * 3.14159265358979323846 * u[1]);
}

static pare_status random_normal_run(const pare_call *c)
{
    const draw *d = c->state;
    const int64_t n = pare_view_count(&c->out[0]);
#pragma omp parallel for num_threads(threads_for(c, n)) schedule(static)
    for (int64_t i = 0; i < n; i++) pare_ref_set(&c->out[0], i, normal_at(d, i));
    return PARE_OK;
}

/* 1 with the probability that the input says. */
static pare_status bernoulli_run(const pare_call *c)
{
    const draw *d = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    const int64_t n = pare_view_count(y);
    for (int64_t i = 0; i < n; i++) {
        const double p = pare_ref_get(x, i);
        if (!(p >= 0 && p <= 1))
            return PARE_FAIL_CALL(c, INPUT, "'%s' holds %g, which is no probability",
                                  c->node->in[0]->name, p);
    }
#pragma omp parallel for num_threads(threads_for(c, n)) schedule(static)
    for (int64_t i = 0; i < n; i++)
        pare_ref_set(y, i, pare_philox_unit(&d->random, i) < pare_ref_get(x, i));
    return PARE_OK;
}

/* The class in which a share u of the sum of e^x falls; top is the largest x. */
static int64_t class_at(const pare_view *x, int64_t row, double top, double share)
{
    int64_t last = 0;
    double sum = 0;
    for (int64_t k = 0; k < x->dim[1]; k++) {
        const double p = exp(pare_ref_get(x, row + k * x->stride[1]) - top);
        sum += p;
        if (p > 0) last = k;
        if (sum > share) return k;
    }
    return last;
}

static pare_status multinomial_run(const pare_call *c)
{
    const draw *d = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    for (int64_t r = 0; r < x->dim[0]; r++) {
        const int64_t row = r * x->stride[0], samples = y->dim[1];
        double top = -INFINITY, sum = 0;
        for (int64_t k = 0; k < x->dim[1]; k++)
            top = fmax(top, pare_ref_get(x, row + k * x->stride[1]));
        for (int64_t k = 0; k < x->dim[1]; k++)
            sum += exp(pare_ref_get(x, row + k * x->stride[1]) - top);
        if (!isfinite(sum))
            return PARE_FAIL_CALL(c, INPUT, "'%s' holds no logarithms of probabilities",
                                  c->node->in[0]->name);
#pragma omp parallel for num_threads(threads_for(c, samples)) schedule(static)
        for (int64_t s = 0; s < samples; s++)
            pare_ref_set_int(
                y, r * samples + s,
                class_at(x, row, top, sum * pare_philox_unit(&d->random, r * samples + s)));
    }
    return PARE_OK;
}

#define RANDOM_KERNEL(stem, can_fn)                                                                \
    static const pare_kernel ref_##stem = {.name = "ref_" #stem,                                   \
                                           .can = can_fn,                                          \
                                           .prepare = draw_prepare,                                \
                                           .run = stem##_run,                                      \
                                           .flags = PARE_KERNEL_REF | PARE_KERNEL_DRAWS};
RANDOM_KERNEL(random_uniform, NULL)
RANDOM_KERNEL(random_normal, NULL)
RANDOM_KERNEL(bernoulli, pare_ref_can_floats)
RANDOM_KERNEL(multinomial, pare_ref_can_floats)

const pare_kernel *const pare_cpu_random_uniform[] = {&ref_random_uniform, NULL};
const pare_kernel *const pare_cpu_random_normal[] = {&ref_random_normal, NULL};
const pare_kernel *const pare_cpu_bernoulli[] = {&ref_bernoulli, NULL};
const pare_kernel *const pare_cpu_multinomial[] = {&ref_multinomial, NULL};
