/* SPDX-License-Identifier: Apache-2.0 */
/* Is a sample's result the same whatever is beside it? A deterministic plan promises that of every
   operator that works on each sample alone. Whether the model does, as its first axis suggests, is
   seen when it runs: a model may take means over that axis, or reshape it away. On a GPU kernels
   are chosen by shape, and plans of every size that batches are filled up to are compared. */
#include "tools/serve/served.h"

#include "runtime/eval/eval.h"

#include <string.h>

/* What a free axis other than the first is taken for, one after the other until a plan is made. */
static const int64_t lengths[] = {1, 32, 224};

typedef struct probe {
    pare_served *served;
    pare_site *site;
    pare_ctx ctx; /* of what may fail */
    int64_t rows, few_rows;
    int64_t length;           /* of free axes */
    pare_planned *few, *many; /* for few_rows samples, at first one, and for `rows` */
} probe;

/* --- plans --- */

static pare_status plan(probe *p, pare_planned **out, int64_t rows)
{
    const pare_served *s = p->served;
    pare_input_shape *shapes = pare_alloc(&p->ctx, (size_t)s->input_count + 1, sizeof *shapes);
    if (!shapes) return PARE_MEMORY;
    for (int i = 0; i < s->input_count; i++) {
        shapes[i] = (pare_input_shape){s->input[i].name, s->input[i].shape};
        for (int d = 0; d < shapes[i].shape.rank; d++)
            if (shapes[i].shape.dim[d] < 0) shapes[i].shape.dim[d] = p->length;
        if (s->options.config.max_batch) shapes[i].shape.dim[0] = rows;
    }
    pare_status st = pare_plans_get(p->site->plans, &p->ctx, out, shapes, s->input_count);
    pare_free(shapes);
    return st;
}

static void put_few(probe *p)
{
    if (p->few) pare_plans_put(p->site->plans, p->few);
    p->few = NULL;
}

static void put(probe *p)
{
    put_few(p);
    if (p->many) pare_plans_put(p->site->plans, p->many);
    p->many = NULL;
}

/* Is this no fault of the made-up inputs? */
static bool is_final(pare_status st)
{
    return st == PARE_MEMORY || st == PARE_UNSUPPORTED || st == PARE_DEVICE;
}

/* Plans for one sample and for many, of the first length that has them. */
static pare_status make_plans(probe *p)
{
    pare_status st = PARE_OK;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pare_ctx_clear(&p->ctx);
        p->length = lengths[i];
        st = plan(p, &p->few, 1);
        if (st == PARE_OK && p->rows > 1) st = plan(p, &p->many, p->rows);
        if (st == PARE_OK || is_final(st)) return st;
        put(p);
    }
    return st;
}

/* Types and ranks that the file does not give. */
static void complete_outputs(const probe *p)
{
    const pare_served *s = p->served;
    for (int i = 0; i < s->output_count; i++) {
        const pare_value *y = pare_plan_output(p->few->last, i);
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

static pare_view output_of(const pare_planned *planned, int i)
{
    return pare_runner_output(pare_replicas_at(planned->replicas, 0)->last, i);
}

static pare_status run(probe *p, pare_planned *planned)
{
    const pare_batch_work work = {0};
    pare_replica *replica = pare_replicas_at(planned->replicas, 0);
    const pare_status st = pare_plans_run(p->site->plans, replica, &work);
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

/* Are the few samples' bytes those of the many from this row on? */
static bool is_same(const pare_view *few, const pare_view *many, int64_t rows, int64_t row)
{
    const char *there = row_at(many, rows, row);
    if (few->dtype == PARE_string) {
        const pare_bytes *a = few->data, *b = (const pare_bytes *)(const void *)there;
        for (int64_t i = 0; i < pare_view_count(few); i++)
            if (!pare_bytes_equal(a[i], b[i])) return false;
        return true;
    }
    return !pare_view_bytes(few) || !memcmp(few->data, there, pare_view_bytes(few));
}

/* Has the output a row for each sample? */
static bool has_rows(const probe *p, const pare_view *few, const pare_view *many)
{
    return few->dtype == many->dtype && few->rank == many->rank && few->rank >= 1 &&
           few->dim[0] == p->few_rows && many->dim[0] == p->rows &&
           pare_view_count(many) / p->rows == pare_view_count(few) / p->few_rows;
}

/* Runs some of the many samples, from this row on, in the plan for few. */
static pare_status run_few(probe *p, int64_t row)
{
    for (int i = 0; i < pare_plan_input_count(p->few->first); i++) {
        const pare_view all = pare_runner_input(runner_of(p->many), i);
        pare_view few = pare_runner_input(runner_of(p->few), i);
        if (pare_view_bytes(&few))
            memcpy(few.data, row_at(&all, p->rows, row), pare_view_bytes(&few));
    }
    return run(p, p->few);
}

/* The first output whose rows differ from those beside others; NULL: none. */
static const char *find_difference(const probe *p, int64_t row)
{
    for (int i = 0; i < p->served->output_count; i++) {
        const pare_view few = output_of(p->few, i), many = output_of(p->many, i);
        if (!has_rows(p, &few, &many) || !is_same(&few, &many, p->rows, row))
            return p->served->output[i].name;
    }
    return NULL;
}

/* Do made-up samples differ? Of equal ones nothing is seen. */
static bool rows_differ(const probe *p)
{
    for (int i = 0; i < pare_plan_input_count(p->many->first); i++) {
        const pare_view all = pare_runner_input(runner_of(p->many), i);
        const size_t bytes = pare_view_bytes(&all) / (size_t)p->rows;
        if (all.dtype != PARE_string && bytes && memcmp(all.data, row_at(&all, p->rows, 1), bytes))
            return true;
    }
    return false;
}

/* The first, the second and the last that fit. */
static pare_status compare_few(probe *p, bool *same, char *why, size_t size)
{
    const int64_t last = p->rows - p->few_rows, rows[] = {0, last > 1 ? 1 : last, last};
    for (int i = 0; i < 3; i++) {
        PARE_TRY(run_few(p, rows[i]));
        const char *output = find_difference(p, rows[i]);
        if (!output) continue;
        snprintf(why, size, "output '%s' of a sample depends on the samples beside it", output);
        return PARE_OK;
    }
    *same = true;
    return PARE_OK;
}

static pare_status compare_size(probe *p, int64_t rows, bool *same, char *why, size_t size)
{
    put_few(p);
    *same = false;
    p->few_rows = rows;
    PARE_TRY(plan(p, &p->few, rows));
    return compare_few(p, same, why, size);
}

/* Plans of the sizes between. */
static pare_status compare_sizes(probe *p, bool *same, char *why, size_t size)
{
    const pare_serve_config *c = &p->served->options.config;
    for (int64_t rows = 2; *same && rows < p->rows; rows *= 2)
        PARE_TRY(compare_size(p, rows, same, why, size));
    for (int i = 0; *same && i < c->preferred_count; i++)
        if (c->preferred[i] < p->rows) PARE_TRY(compare_size(p, c->preferred[i], same, why, size));
    return PARE_OK;
}

static pare_status compare(probe *p, bool *same, char *why, size_t size)
{
    PARE_TRY(run_many(p));
    if (!rows_differ(p)) {
        snprintf(why, size, "made-up samples of its inputs' types are all alike");
        return PARE_OK;
    }
    PARE_TRY(compare_few(p, same, why, size));
    return p->site->gpu && *same ? compare_sizes(p, same, why, size) : PARE_OK;
}

/* Not every model runs on made-up inputs: only memory that is out, what has no kernel and a GPU
   that fails are failures. */
pare_status pare_served_probe(pare_served *served, pare_site *site, bool *same, char *why,
                              size_t size)
{
    const int64_t most = served->options.config.max_batch;
    probe p = {.served = served, .site = site, .rows = most > 1 ? most : 1, .few_rows = 1};
    *same = false;
    pare_ctx_child(&p.ctx, &served->ctx);
    pare_status st = make_plans(&p);
    if (st == PARE_OK) {
        complete_outputs(&p);
        st = pare_site_note_stages(served, site, p.many ? p.many : p.few, p.rows);
    }
    if (st == PARE_OK) {
        if (p.many)
            st = compare(&p, same, why, size);
        else
            *same = most == 1;
    }
    put(&p);
    if (is_final(st)) return pare_fail(&served->ctx, st, "%s", p.ctx.message);
    if (st != PARE_OK) snprintf(why, size, "made-up samples cannot be run: %s", p.ctx.message);
    return PARE_OK;
}
