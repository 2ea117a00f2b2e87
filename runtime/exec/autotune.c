/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a node's kernel by the stopwatch. The choice is kept for each machine
   (machine_table.h): the value is the kernel's name, the key a hash of the operator, its types,
   shapes, strides and attributes, and of the names of the kernels to choose from.

   Each kernel is timed alone first. A machine that others share changes its pace, by up to a half
   and for tenths of a second (seen on two cores of a virtual machine), and which of two kernels
   loses more by it differs; so those that are close run in turn, a short while each, and the median
   of the rounds' ratios counts. */
#include "runtime/base/size.h"
#include "runtime/exec/kernel_benchmark.h"
#include "runtime/exec/machine_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- timing --- */

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

/* May others be timed without it? A device is too full for its trial; or a library's call failed,
   whose kernel does not serve any more. */
static bool is_left_out(const pare_kernel *kernel, const pare_prep *prep, pare_status st)
{
    if (!prep->device || st == PARE_OK) return false;
    if (st == PARE_MEMORY) return true;
    if (pare_kernel_serves(kernel, prep)) return false;
    pare_log(prep->ctx, PARE_LOG_WARNING, "%s is left out: %s", kernel->name, prep->ctx->message);
    return true;
}

static pare_status time_alone(pare_kernel_benchmark *t, const pare_kernel *kernel,
                              const pare_prep *prep, const pare_benchmark_memory *memory,
                              double rival, double *seconds)
{
    pare_status st = pare_kernel_benchmark_open(t, kernel, prep, memory);
    if (st == PARE_OK) st = pare_kernel_benchmark_time(t, rival, seconds);
    if (!is_left_out(kernel, prep, st)) return st;
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

/* On a device (memory), of which one trial is open at a time, and on the CPU. */
static pare_status time_each(autotune *c, const pare_kernel *const *kernel, int count,
                             const pare_prep *prep, const pare_benchmark_memory *memory,
                             double *seconds)
{
    const bool keep = !prep->device && count * bytes_of(prep) <= MOST_BYTES;
    double best = 1e30;
    for (int i = 0; i < count; i++) {
        PARE_TRY(time_alone(&c->trial[i], kernel[i], prep, memory, best, &seconds[i]));
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

/* A device that has no room for the tensors themselves times nothing: the first kernel serves. */
static pare_status time_on_device(autotune *c, const pare_kernel *const *kernel, int count,
                                  const pare_prep *prep, double *seconds)
{
    pare_benchmark_memory memory;
    pare_status st = pare_benchmark_memory_open(&memory, prep);
    for (int i = 0; i < count; i++) seconds[i] = INFINITY;
    if (st == PARE_MEMORY) return pare_ctx_clear(prep->ctx), PARE_OK;
    if (st == PARE_OK) st = time_each(c, kernel, count, prep, &memory, seconds);
    for (int i = 0; i < count; i++) pare_kernel_benchmark_close(&c->trial[i]);
    pare_benchmark_memory_close(&memory);
    return st;
}

/* Seconds (count) of a run of each kernel, INFINITY where a device has no memory left for it, or
   its library failed. Those that are close were run in turn, so that what disturbs one disturbs
   all. */
static pare_status time_kernels(const pare_kernel *const *kernel, int count, const pare_prep *prep,
                                double *seconds)
{
    autotune *c = pare_alloc(prep->ctx, 1, sizeof *c);
    if (!c) return PARE_MEMORY;
    pare_status st = prep->device ? time_on_device(c, kernel, count, prep, seconds)
                                  : time_each(c, kernel, count, prep, NULL, seconds);
    if (st == PARE_OK && c->left > 1) st = run_rounds(c, count, seconds);
    for (int i = 0; i < count; i++) pare_kernel_benchmark_close(&c->trial[i]);
    pare_free(c);
    return st;
}

/* --- the choice --- */

/* Kernels nearer than that are equal, and the first in the list serves: what is left to chance
   would differ from one process to the next. */
static const double TIE = 0.97;

struct pare_tuner {
    pare_machine_table *table;
    bool timing; /* may use the stopwatch; else the table alone is asked */
    void (*timed)(void *user, const pare_node *node, const pare_kernel *kernel, double seconds);
    void *timed_user;
};

pare_status pare_tuner_open(pare_ctx *ctx, pare_tuner **out, const pare_plan_options *options)
{
    static const pare_machine_table_kind timed = {"timing.json", "pare_timing", "a timing cache",
                                                  "kernels are timed again"},
                                         asked = {"timing.json", "pare_timing", "a timing cache",
                                                  "the first kernel that can is taken"};
    pare_tuner *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    t->timing = options->tune;
    t->timed = options->timed, t->timed_user = options->timed_user;
    pare_status st = pare_machine_table_open(ctx, &t->table, options->cache_dir, options->device,
                                             t->timing ? &timed : &asked);
    if (st == PARE_OK)
        *out = t;
    else
        pare_tuner_discard(t);
    return st;
}

void pare_tuner_discard(pare_tuner *tuner)
{
    if (!tuner) return;
    pare_machine_table_free(tuner->table);
    pare_free(tuner);
}

pare_status pare_tuner_close(pare_tuner *tuner)
{
    pare_machine_table_store(tuner->table);
    pare_tuner_discard(tuner);
    return PARE_OK;
}

/* --- the key: everything the choice may depend on --- */

static void add_view(pare_hash *sum, int place, const pare_view *v)
{
    size_t n = (size_t)v->rank * sizeof *v->dim;
    int facts[3] = {(int)v->dtype, v->rank, v->data != NULL};
    pare_key_add(sum, place, facts, sizeof facts);
    pare_key_add(sum, place + 1, v->dim, n);
    pare_key_add(sum, place + 2, v->stride, n);
}

/* Of the kernels those that take the node, too: weights may be ones that only some take. */
static void key_of(const pare_prep *p, const pare_kernel *const *able, int count, char key[33])
{
    pare_hash sum = {0};
    const pare_node *n = p->node;
    for (int i = 0; i < count; i++)
        pare_key_add(&sum, 20000 + i, able[i]->name, strlen(able[i]->name));
    pare_key_add(&sum, 1, n->op_type, strlen(n->op_type));
    pare_key_add(&sum, 2, &p->threads, sizeof p->threads);
    pare_key_add(&sum, 3, &p->dying, sizeof p->dying);
    pare_key_add(&sum, 4, &p->deterministic, sizeof p->deterministic);
    if (p->device) pare_key_add(&sum, 5, &p->device->tf32, sizeof p->device->tf32);
    pare_key_add_attrs(&sum, n);
    for (int i = 0; i < p->in_count; i++) add_view(&sum, 100 + 3 * i, &p->in[i]);
    for (int i = 0; i < p->out_count; i++) add_view(&sum, 10000 + 3 * i, &p->out[i]);
    pare_hash_text(sum, key);
}

/* The plain reference defines what is correct; a user gets it only where nothing else serves. */
static bool worth_a_trial(const pare_kernel *k, const pare_prep *prep, int before)
{
    return !(k->flags & PARE_KERNEL_REF && before) && pare_kernel_serves(k, prep);
}

static const pare_kernel *find(const pare_kernel *const *able, int count, const char *name)
{
    for (int i = 0; name && i < count; i++)
        if (!strcmp(able[i]->name, name)) return able[i];
    return NULL;
}

/* *whole: every kernel was timed. */
static pare_status fastest(const pare_tuner *t, const pare_prep *prep,
                           const pare_kernel *const *able, int count, const pare_kernel **out,
                           bool *whole)
{
    double seconds[PARE_MOST_KERNELS], best = INFINITY;
    *whole = true;
    PARE_TRY(time_kernels(able, count, prep, seconds));
    for (int i = 0; i < count; i++) {
        *whole &= isfinite(seconds[i]) != 0;
        if (t->timed && isfinite(seconds[i]))
            t->timed(t->timed_user, prep->node, able[i], seconds[i]);
        if (seconds[i] >= TIE * best) continue;
        best = seconds[i];
        *out = able[i];
    }
    return PARE_OK;
}

pare_status pare_tuner_choose(pare_tuner *tuner, const pare_prep *prep,
                              const pare_kernel *const *list, const pare_kernel **out)
{
    const pare_kernel *able[PARE_MOST_KERNELS];
    int count = 0;
    for (int i = 0; list[i] && count < PARE_MOST_KERNELS; i++)
        if (worth_a_trial(list[i], prep, count)) able[count++] = list[i];
    if (!count) return PARE_FAIL_NODE(prep->node, UNSUPPORTED, "no kernel takes its types");
    *out = able[0];
    if (count == 1) return PARE_OK;
    char key[33];
    key_of(prep, able, count, key);
    const char *name = json_string_value(pare_machine_table_find(tuner->table, key));
    const pare_kernel *known = tuner->timed ? NULL : find(able, count, name);
    if (known) *out = known;
    if (known || !tuner->timing) return PARE_OK;
    bool whole;
    PARE_TRY(fastest(tuner, prep, able, count, out, &whole));
    if (!whole) return PARE_OK; /* another time another may be the fastest */
    return pare_machine_table_put(tuner->table, key, json_string((*out)->name));
}
