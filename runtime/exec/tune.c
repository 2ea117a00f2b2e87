/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel choice by the stopwatch, remembered for each machine (machine_table.h): the value is the
   kernel's name, the key a hash of the operator, its types, shapes, strides and attributes, and of
   the names of the kernels to choose from. */
#include "runtime/exec/machine_table.h"
#include "runtime/exec/kernel_benchmark.h"

#include <math.h>
#include <string.h>

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
    pare_key_add_attrs(&sum, n);
    for (int i = 0; i < p->in_count; i++) add_view(&sum, 100 + 3 * i, &p->in[i]);
    for (int i = 0; i < p->out_count; i++) add_view(&sum, 10000 + 3 * i, &p->out[i]);
    pare_hash_text(sum, key);
}

/* The plain reference defines what is correct; a user gets it only where nothing else serves. */
static bool worth_a_trial(const pare_kernel *k, const pare_prep *prep, int before)
{
    return !(k->flags & PARE_KERNEL_REF && before) && (!k->can || k->can(prep));
}

static const pare_kernel *find(const pare_kernel *const *able, int count, const char *name)
{
    for (int i = 0; name && i < count; i++)
        if (!strcmp(able[i]->name, name)) return able[i];
    return NULL;
}

static pare_status fastest(const pare_tuner *t, const pare_prep *prep,
                           const pare_kernel *const *able, int count, const pare_kernel **out)
{
    double seconds[PARE_MOST_KERNELS], best = INFINITY;
    PARE_TRY(pare_autotune(able, count, prep, seconds));
    for (int i = 0; i < count; i++) {
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
    PARE_TRY(fastest(tuner, prep, able, count, out));
    return pare_machine_table_put(tuner->table, key, json_string((*out)->name));
}
