/* SPDX-License-Identifier: Apache-2.0 */
/* Is a sample's result the same whatever is beside it? A deterministic plan promises that of every
   operator that works on each sample alone. Whether the model does, as its first axis suggests, is
   seen when it runs: a model may take means over that axis, or reshape it away. */
#include "tools/serve/served.h"

#include "runtime/eval/eval.h"

#include <string.h>

/* What a free axis other than the first is taken for, one after the other until a plan is made. */
static const int64_t lengths[] = {1, 32, 224};

typedef struct probe {
    pare_served *served;
    pare_ctx ctx; /* of what may fail */
    int64_t rows;
    pare_planned *one, *many;
} probe;

/* --- plans --- */

static pare_status plan(probe *p, pare_planned **out, int64_t rows, int64_t length)
{
    const pare_served *s = p->served;
    pare_input_shape *shapes = pare_alloc(&p->ctx, (size_t)s->input_count + 1, sizeof *shapes);
    if (!shapes) return PARE_MEMORY;
    for (int i = 0; i < s->input_count; i++) {
        shapes[i] = (pare_input_shape){s->input[i].name, s->input[i].shape};
        for (int d = 0; d < shapes[i].shape.rank; d++)
            if (shapes[i].shape.dim[d] < 0) shapes[i].shape.dim[d] = length;
        if (s->options.config.max_batch) shapes[i].shape.dim[0] = rows;
    }
    pare_status st = pare_plans_get(s->plans, &p->ctx, out, shapes, s->input_count);
    pare_free(shapes);
    return st;
}

static void put(probe *p)
{
    if (p->one) pare_plans_put(p->served->plans, p->one);
    if (p->many) pare_plans_put(p->served->plans, p->many);
    p->one = p->many = NULL;
}

/* Plans for one sample and for many, of the first length that has them. */
static pare_status make_plans(probe *p)
{
    pare_status st = PARE_OK;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pare_ctx_clear(&p->ctx);
        st = plan(p, &p->one, 1, lengths[i]);
        if (st == PARE_OK && p->rows > 1) st = plan(p, &p->many, p->rows, lengths[i]);
        if (st == PARE_OK || st == PARE_MEMORY || st == PARE_UNSUPPORTED) return st;
        put(p);
    }
    return st;
}

/* Types and ranks that the file does not give. */
static void complete_outputs(const probe *p)
{
    const pare_served *s = p->served;
    for (int i = 0; i < s->output_count; i++) {
        const pare_value *y = pare_plan_output(p->one->plan, i);
        pare_port *port = &s->output[i];
        if (port->dtype == PARE_NOTYPE) port->dtype = y->dtype;
        if (port->shape.rank >= 0 || y->shape.rank < 0) continue;
        port->shape = y->shape;
        for (int d = 0; d < port->shape.rank; d++) port->shape.dim[d] = -1;
    }
}

/* --- runs --- */

static pare_runner *runner_of(const pare_planned *planned)
{
    return pare_replicas_at(planned->replicas, 0)->runner;
}

static pare_status run(probe *p, pare_planned *planned)
{
    const pare_batch_work work = {0};
    pare_replica *replica = pare_replicas_at(planned->replicas, 0);
    pare_ctx_clear(&replica->ctx);
    const pare_status st = pare_replica_run(replica, 0, 1, &work);
    if (st != PARE_OK) (void)pare_fail(&p->ctx, st, "%s", replica->ctx.message);
    return st;
}

/* Made-up samples, no two of which need be alike. Integers may be places or counts, for which only
   0 may be right. */
static pare_status run_many(probe *p)
{
    pare_measure_fill(runner_of(p->many));
    pare_measure_fill_integers(runner_of(p->many));
    if (run(p, p->many) == PARE_OK) return PARE_OK;
    pare_ctx_clear(&p->ctx);
    pare_measure_fill(runner_of(p->many));
    return run(p, p->many);
}

static const char *row_at(const pare_view *many, int64_t rows, int64_t row)
{
    return (const char *)many->data + pare_view_bytes(many) / (size_t)rows * (size_t)row;
}

static bool is_same_row(const pare_view *one, const pare_view *many, int64_t rows, int64_t row)
{
    const char *there = row_at(many, rows, row);
    if (one->dtype == PARE_string) {
        const pare_bytes *a = one->data, *b = (const pare_bytes *)(const void *)there;
        for (int64_t i = 0; i < pare_view_count(one); i++)
            if (!pare_bytes_equal(a[i], b[i])) return false;
        return true;
    }
    return !pare_view_bytes(one) || !memcmp(one->data, there, pare_view_bytes(one));
}

/* Has the output a row for each sample? */
static bool has_rows(const pare_view *one, const pare_view *many, int64_t rows)
{
    return one->dtype == many->dtype && one->rank == many->rank && one->rank >= 1 &&
           one->dim[0] == 1 && many->dim[0] == rows &&
           pare_view_count(many) == pare_view_count(one) * rows;
}

/* Runs one of the many samples alone. */
static pare_status run_row(probe *p, int64_t row)
{
    for (int i = 0; i < pare_plan_input_count(p->one->plan); i++) {
        const pare_view all = pare_runner_input(runner_of(p->many), i);
        pare_view one = pare_runner_input(runner_of(p->one), i);
        if (pare_view_bytes(&one))
            memcpy(one.data, row_at(&all, p->rows, row), pare_view_bytes(&one));
    }
    return run(p, p->one);
}

/* The first output whose row differs from that of the sample alone; NULL: none. */
static const char *find_difference(const probe *p, int64_t row)
{
    for (int i = 0; i < p->served->output_count; i++) {
        const pare_view one = pare_runner_output(runner_of(p->one), i);
        const pare_view many = pare_runner_output(runner_of(p->many), i);
        if (!has_rows(&one, &many, p->rows) || !is_same_row(&one, &many, p->rows, row))
            return p->served->output[i].name;
    }
    return NULL;
}

/* Do made-up samples differ? Of equal ones nothing is seen. */
static bool rows_differ(const probe *p)
{
    for (int i = 0; i < pare_plan_input_count(p->many->plan); i++) {
        const pare_view all = pare_runner_input(runner_of(p->many), i);
        const size_t bytes = pare_view_bytes(&all) / (size_t)p->rows;
        if (all.dtype != PARE_string && bytes && memcmp(all.data, row_at(&all, p->rows, 1), bytes))
            return true;
    }
    return false;
}

static pare_status compare(probe *p, bool *same, char *why, size_t size)
{
    const int64_t rows[] = {0, 1, p->rows - 1};
    PARE_TRY(run_many(p));
    if (!rows_differ(p)) {
        snprintf(why, size, "made-up samples of its inputs' types are all alike");
        return PARE_OK;
    }
    for (int i = 0; i < 3; i++) {
        PARE_TRY(run_row(p, rows[i]));
        const char *output = find_difference(p, rows[i]);
        if (!output) continue;
        snprintf(why, size, "output '%s' of a sample depends on the samples beside it", output);
        return PARE_OK;
    }
    *same = true;
    return PARE_OK;
}

/* Not every model runs on made-up inputs: only memory that is out, and what has no kernel, is a
   failure. */
pare_status pare_served_probe(pare_served *served, bool *same, char *why, size_t size)
{
    const int64_t most = served->options.config.max_batch;
    probe p = {.served = served, .rows = most > 1 ? most : 1};
    *same = false;
    pare_ctx_child(&p.ctx, &served->ctx);
    pare_status st = make_plans(&p);
    if (st == PARE_OK) {
        complete_outputs(&p);
        if (p.many)
            st = compare(&p, same, why, size);
        else
            *same = most == 1;
    }
    put(&p);
    if (st == PARE_MEMORY || st == PARE_UNSUPPORTED)
        return pare_fail(&served->ctx, st, "%s", p.ctx.message);
    if (st != PARE_OK) snprintf(why, size, "made-up samples cannot be run: %s", p.ctx.message);
    return PARE_OK;
}
