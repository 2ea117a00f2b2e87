/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a node's kernels is quicker by how much. Each is timed alone first. A machine that
   others share changes its pace, by up to a half and for tenths of a second (seen on two cores of a
   virtual machine), and which of two kernels loses more by it differs; so those that are close run
   in turn, a short while each, and the median of the rounds' ratios counts. */
#include "runtime/base/size.h"
#include "runtime/exec/kernel_benchmark.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = PARE_MOST_KERNELS, ROUNDS = 25, LEAST_ROUNDS = 3, MOST_RUNS = 32 };
static const double ROUND_SECONDS = 1e-4, ENOUGH_SECONDS = 1e-2; /* of each kernel */
static const double MOST_BYTES = 64e6;                           /* of all that stay open */

typedef struct autotune {
    pare_kernel_benchmark trial[MOST]; /* open: may still win */
    int runs[MOST];                    /* in a round */
    double ratio[MOST][ROUNDS];
    int first, left, rounds; /* first: the one all are compared with */
} autotune;

static double bytes_of(const pare_prep *p)
{
    double sum = 0;
    for (int i = 0; i < p->in_count; i++)
        if (p->in[i].dtype != PARE_NOTYPE) sum += (double)pare_view_bytes(&p->in[i]);
    for (int i = 0; i < p->out_count; i++)
        if (p->out[i].dtype != PARE_NOTYPE) sum += (double)pare_view_bytes(&p->out[i]);
    return sum;
}

/* A device that is too full for a trial is no reason to fail: that kernel is left out. */
static pare_status time_alone(pare_kernel_benchmark *t, const pare_kernel *kernel,
                              const pare_prep *prep, double rival, double *seconds)
{
    pare_status st = pare_kernel_benchmark_open(t, kernel, prep);
    if (st == PARE_OK) st = pare_kernel_benchmark_time(t, rival, seconds);
    if (st != PARE_MEMORY || !prep->device) return st;
    pare_ctx_clear(prep->ctx);
    pare_kernel_benchmark_close(t);
    *seconds = INFINITY;
    return PARE_OK;
}

/* Closes all that are out. */
static void close_slow(autotune *c, int count, const double *seconds, double best)
{
    c->left = 0;
    for (int i = count - 1; i >= 0; i--) {
        if (seconds[i] > PARE_TRIAL_BEHIND * best) pare_kernel_benchmark_close(&c->trial[i]);
        if (!c->trial[i].kernel) continue;
        c->first = i;
        c->left++;
    }
}

static pare_status time_each(autotune *c, const pare_kernel *const *kernel, int count,
                             const pare_prep *prep, double *seconds)
{
    const bool keep = !prep->device && count * bytes_of(prep) <= MOST_BYTES;
    double best = 1e30;
    for (int i = 0; i < count; i++) {
        PARE_TRY(time_alone(&c->trial[i], kernel[i], prep, best, &seconds[i]));
        if (!keep) pare_kernel_benchmark_close(&c->trial[i]);
        best = fmin(best, seconds[i]);
        close_slow(c, i + 1, seconds, best);
    }
    return PARE_OK;
}

static pare_status run_round(autotune *c, int count, double *spent)
{
    double took[MOST];
    for (int k = 0; k < count; k++) {
        const int i = c->rounds % 2 ? count - 1 - k : k;
        if (!c->trial[i].kernel) continue;
        PARE_TRY(pare_kernel_benchmark_run(&c->trial[i], c->runs[i], &took[i]));
        *spent += took[i] * c->runs[i];
    }
    for (int i = 0; i < count; i++)
        if (c->trial[i].kernel) c->ratio[i][c->rounds] = took[i] / fmax(took[c->first], 1e-12);
    c->rounds++;
    return PARE_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static pare_status run_rounds(autotune *c, int count, double *seconds)
{
    double spent = 0;
    for (int i = 0; i < count; i++)
        c->runs[i] = (int)fmin(MOST_RUNS, ceil(ROUND_SECONDS / fmax(seconds[i], 1e-9)));
    while (c->rounds < ROUNDS && (c->rounds < LEAST_ROUNDS || spent < c->left * ENOUGH_SECONDS))
        PARE_TRY(run_round(c, count, &spent));
    for (int i = 0; i < count; i++) {
        if (!c->trial[i].kernel) continue;
        qsort(c->ratio[i], (size_t)c->rounds, sizeof *c->ratio[i], by_value);
        seconds[i] = seconds[c->first] * c->ratio[i][c->rounds / 2];
    }
    return PARE_OK;
}

pare_status pare_autotune(const pare_kernel *const *kernel, int count, const pare_prep *prep,
                          double *seconds)
{
    autotune *c = pare_alloc(prep->ctx, 1, sizeof *c);
    if (!c) return PARE_MEMORY;
    pare_status st = time_each(c, kernel, count, prep, seconds);
    if (st == PARE_OK && c->left > 1) st = run_rounds(c, count, seconds);
    for (int i = 0; i < count; i++) pare_kernel_benchmark_close(&c->trial[i]);
    pare_free(c);
    return st;
}
