/* SPDX-License-Identifier: Apache-2.0 */
/* Rows are collected in a panel of some hundred, [x | t] in double; a full panel is multiplied into
   the sums. How many that are, the width of a row decides alone. A panel is filled column by
   column, so that threads share the columns. */
#include "calib/moments.h"
#include "runtime/ops/ops.h"

#include <string.h>

enum { PANEL_BYTES = 2 << 20, LEAST_ROWS = 128, MOST_ROWS = 1024 };
enum { WORTH = 200000 }; /* numbers to fill for which a second thread is woken */

/* --- geometry --- */

static pare_status read_convolution(const pare_node *node, const pare_shape *x, const pare_shape *w,
                                    pare_columns *out)
{
    PARE_TRY(pare_window_read(node, x, w->dim + 2, &out->window));
    const pare_window *win = &out->window;
    int64_t taps = win->kernel[0] * win->kernel[1] * win->kernel[2];
    out->convolution = true;
    out->groups = win->group;
    out->channels = w->dim[1];
    out->columns = taps * out->channels;
    out->outputs = w->dim[0] / out->groups;
    out->batch = x->dim[0];
    out->rows = x->dim[0] * win->out[0] * win->out[1] * win->out[2];
    return PARE_OK;
}

pare_status pare_columns_read(const pare_node *node, const pare_shape *x, pare_columns *out,
                              bool *ok)
{
    pare_weighted part;
    const pare_op *op = pare_op_of(node);
    *out = (pare_columns){0};
    *ok = false;
    if (!op || op->quant.kind != PARE_QUANT_WEIGHTED) return PARE_OK;
    PARE_TRY(op->quant.weighted(node, &part));
    const pare_value *value = pare_node_in(node, part.w);
    if (!part.constant || part.x != 0 || part.w != 1 || !value || !value->data) return PARE_OK;
    pare_shape w = {.rank = value->data->rank};
    if (w.rank > PARE_MAX_RANK || value->data->dtype != PARE_f32) return PARE_OK;
    for (int i = 0; i < w.rank; i++) w.dim[i] = value->data->dims[i];
    if (w.rank >= 3 && part.axis == 0 && x->rank == w.rank) {
        *ok = true;
        return read_convolution(node, x, &w, out);
    }
    if (w.rank != 2 || x->rank < 2 || pare_node_int(node, "transA", 0)) return PARE_OK;
    out->groups = 1;
    out->columns = out->channels = w.dim[1 - part.axis];
    out->outputs = w.dim[part.axis];
    out->rows = out->columns ? pare_shape_count(x) / out->columns : 0;
    out->batch = 1;
    *ok = true;
    return PARE_OK;
}

int64_t pare_columns_weight(const pare_columns *c, bool outputs_first, int64_t group,
                            int64_t output, int64_t column)
{
    int64_t o = group * c->outputs + output;
    if (!outputs_first) return column * c->outputs + o;
    int64_t taps = c->channels ? c->columns / c->channels : 1;
    return (o * c->channels + column % c->channels) * taps + column / c->channels;
}

/* --- sums --- */

/* Numbers of moments in one array. */
static size_t numbers_of(int64_t columns, int64_t outputs)
{
    const size_t d = (size_t)columns, n = (size_t)outputs;
    return d * d + d * n + d + 2 * n + 1;
}

static void lay_out(pare_moments *m, double *all)
{
    m->all = m->xx = all;
    m->xt = m->xx + m->columns * m->columns;
    m->tt = m->xt + m->columns * m->outputs;
    m->x = m->tt + m->outputs;
    m->t = m->x + m->columns;
}

static double *rows_at(const pare_moments *m) { return m->t + m->outputs; }

pare_status pare_moments_new(pare_ctx *ctx, pare_moments **out, int64_t columns, int64_t outputs)
{
    pare_moments *m = pare_alloc(ctx, 1, sizeof *m);
    double *all = pare_alloc(ctx, numbers_of(columns, outputs), sizeof *all);
    if (!m || !all) {
        pare_free(m);
        pare_free(all);
        return PARE_MEMORY;
    }
    *m = (pare_moments){.columns = columns, .outputs = outputs};
    lay_out(m, all);
    *out = m;
    return PARE_OK;
}

void pare_moments_free(pare_moments *m)
{
    if (!m) return;
    pare_free(m->all);
    pare_free(m);
}

static void add(double *to, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

void pare_moments_add(pare_moments *to, const pare_moments *from)
{
    to->rows += from->rows;
    add(to->xx, from->xx, to->columns * to->columns);
    add(to->xt, from->xt, to->columns * to->outputs);
    add(to->tt, from->tt, to->outputs);
    add(to->x, from->x, to->columns);
    add(to->t, from->t, to->outputs);
}

/* --- observing --- */

typedef struct panel {
    double *row; /* (capacity, columns + outputs) */
    int64_t count;
    pare_conv_gram *shifts; /* in place of rows; or NULL */
    pare_moments sum;       /* of the block in work, after finish of all runs */
} panel;

struct pare_observer {
    pare_ctx *ctx;
    pare_columns columns;
    int sets, threads;
    int64_t outputs, width; /* outputs 0: no targets; width of a panel's row */
    int64_t capacity;       /* rows of a panel */
    panel *panel;           /* (sets, groups) */
    pare_block_sum *blocks; /* the numbers of all panels, one after the other */
};

void pare_observer_free(pare_observer *o)
{
    if (!o) return;
    for (int64_t i = 0; o->panel && i < o->sets * o->columns.groups; i++) {
        pare_free(o->panel[i].row);
        pare_conv_gram_free(o->panel[i].shifts);
    }
    pare_block_sum_free(o->blocks);
    pare_free(o->panel);
    pare_free(o);
}

/* Rows of a panel, `width` numbers each. */
static int64_t panel_rows(int64_t width)
{
    int64_t rows = PANEL_BYTES / ((int64_t)sizeof(double) * (width + 1));
    if (rows < LEAST_ROWS) rows = LEAST_ROWS;
    return rows > MOST_ROWS ? MOST_ROWS : rows;
}

size_t pare_observer_panel_bytes(const pare_columns *columns, bool targets)
{
    int64_t width = columns->columns + (targets ? columns->outputs : 0);
    if (pare_conv_gram_can(columns)) return pare_conv_gram_bytes(columns, targets);
    return (size_t)(panel_rows(width) * width) * sizeof(double);
}

static pare_status open_panel(pare_observer *o, panel *p)
{
    p->sum = (pare_moments){.columns = o->columns.columns, .outputs = o->outputs};
    if (pare_conv_gram_can(&o->columns))
        return pare_conv_gram_new(o->ctx, &p->shifts, &o->columns, o->outputs > 0, o->threads);
    p->row = pare_alloc(o->ctx, (size_t)(o->capacity * o->width), sizeof(double));
    return p->row ? PARE_OK : PARE_MEMORY;
}

pare_status pare_observer_new(pare_ctx *ctx, pare_observer **out, const pare_columns *columns,
                              int sets, bool targets, const pare_run_share *share, int threads)
{
    pare_observer *o = pare_alloc(ctx, 1, sizeof *o);
    if (!o) return PARE_MEMORY;
    *o = (pare_observer){.ctx = ctx, .columns = *columns, .sets = sets, .threads = threads};
    o->outputs = targets ? columns->outputs : 0;
    o->width = columns->columns + o->outputs;
    o->capacity = panel_rows(o->width);
    int64_t panels = sets * columns->groups;
    o->panel = pare_alloc(ctx, (size_t)panels, sizeof *o->panel);
    bool ok = o->panel && pare_block_sum_new(
                              ctx, &o->blocks, share,
                              (size_t)panels * numbers_of(columns->columns, o->outputs)) == PARE_OK;
    for (int64_t i = 0; ok && i < panels; i++) ok = open_panel(o, &o->panel[i]) == PARE_OK;
    if (ok)
        *out = o;
    else
        pare_observer_free(o);
    return ok ? PARE_OK : PARE_MEMORY;
}

bool pare_is_held_out(int64_t run)
{
    enum { HELD = 5 };
    return run % HELD == HELD - 1;
}

pare_moments *pare_observer_moments(const pare_observer *o, int set, int64_t group)
{
    return &o->panel[set * o->columns.groups + group].sum;
}

/* A panel into its sums. */
static pare_status flush(pare_observer *o, panel *p)
{
    pare_moments *m = &p->sum;
    pare_mat_view x = {p->row, o->width}, t = {p->row + m->columns, o->width};
    int64_t n = p->count;
    PARE_TRY(pare_linear_product(o->ctx, (pare_mat_view){m->xx, m->columns}, x, x, n, m->columns,
                                 m->columns, 1, true, o->threads));
    PARE_TRY(pare_linear_product(o->ctx, (pare_mat_view){m->xt, m->outputs}, x, t, n, m->columns,
                                 m->outputs, 1, false, o->threads));
    for (int64_t r = 0; r < n; r++) {
        const double *row = p->row + r * o->width;
        add(m->x, row, m->columns);
        add(m->t, row + m->columns, m->outputs);
        for (int64_t i = 0; i < m->outputs; i++)
            m->tt[i] += row[m->columns + i] * row[m->columns + i];
    }
    m->rows += (double)n;
    p->count = 0;
    return PARE_OK;
}

/* The panels' sums in an array of blocks. */
static void point_at(pare_observer *o, double *all)
{
    for (int64_t i = 0; i < o->sets * o->columns.groups; i++) {
        pare_moments *m = &o->panel[i].sum;
        lay_out(m, all + (size_t)i * numbers_of(m->columns, m->outputs));
        m->rows = *rows_at(m);
    }
}

/* What waits goes into the block's sums. */
static pare_status end_block(pare_observer *o)
{
    for (int64_t i = 0; i < o->sets * o->columns.groups; i++) {
        panel *p = &o->panel[i];
        if (!p->sum.all) return PARE_OK; /* there is no block yet */
        PARE_TRY(p->shifts ? pare_conv_gram_finish(p->shifts, &p->sum) : flush(o, p));
        *rows_at(&p->sum) = p->sum.rows;
    }
    return PARE_OK;
}

static pare_status begin_block(pare_observer *o, int64_t run)
{
    double *all;
    if (!pare_block_sum_turns(o->blocks, run)) return PARE_OK;
    PARE_TRY(end_block(o));
    PARE_TRY(pare_block_sum_at(o->blocks, run, &all));
    point_at(o, all);
    return PARE_OK;
}

pare_status pare_observer_finish(pare_observer *o)
{
    double *all;
    PARE_TRY(end_block(o));
    PARE_TRY(pare_block_sum_end(o->blocks, &all));
    point_at(o, all);
    return PARE_OK;
}

/* One row of a convolution's columns, tap by tap, channels side by side; zeros where the window
   leaves the tensor. x (batch, channels of all groups, in...). */
static void fill_window(const pare_columns *c, int64_t group, int64_t row, const float *x,
                        double *to)
{
    const pare_window *w = &c->window;
    int64_t plane = w->in[0] * w->in[1] * w->in[2],
            taps = w->kernel[0] * w->kernel[1] * w->kernel[2];
    int64_t place[3], rest = row;
    for (int i = 2; i >= 0; i--) {
        place[i] = rest % w->out[i] * w->stride[i] - w->begin[i];
        rest /= w->out[i];
    }
    const float *from = x + (rest * c->groups + group) * c->channels * plane;
    for (int64_t tap = 0; tap < taps; tap++, to += c->channels) {
        int64_t left = tap, at[3];
        bool inside = true;
        for (int i = 2; i >= 0; i--) {
            at[i] = place[i] + left % w->kernel[i] * w->dilation[i];
            left /= w->kernel[i];
            inside = inside && at[i] >= 0 && at[i] < w->in[i];
        }
        const float *channel = from + (inside ? (at[0] * w->in[1] + at[1]) * w->in[2] + at[2] : 0);
        for (int64_t k = 0; k < c->channels; k++) to[k] = inside ? (double)channel[k * plane] : 0;
    }
}

/* One row of a group's outputs. */
static void fill_target(const pare_columns *c, int64_t group, int64_t row, const float *t,
                        const float *s, double *to)
{
    int64_t plane = c->convolution ? c->rows / c->batch : 1;
    int64_t at = (row / plane * c->groups + group) * c->outputs * plane + row % plane;
    for (int64_t k = 0; k < c->outputs; k++, at += plane)
        to[k] = (double)t[at] - (s ? (double)s[at] : 0);
}

static void fill(pare_observer *o, int64_t group, panel *p, const float *x, const float *t,
                 const float *s, int64_t first, int64_t n)
{
    const pare_columns *c = &o->columns;
    double *rows = p->row + p->count * o->width;
    bool worth = n * o->width > WORTH;
#pragma omp parallel for schedule(static) num_threads(worth ? o->threads : 1)
    for (int64_t r = 0; r < n; r++) {
        double *to = rows + r * o->width;
        if (c->convolution)
            fill_window(c, group, first + r, x, to);
        else
            for (int64_t k = 0; k < c->columns; k++)
                to[k] = (double)x[(first + r) * c->columns + k];
        if (o->outputs) fill_target(c, group, first + r, t, s, to + c->columns);
    }
    p->count += n;
}

pare_status pare_observer_add(pare_observer *o, int64_t index, const float *x, const float *t,
                              const float *s)
{
    const pare_columns *c = &o->columns;
    int set = o->sets > 1 && pare_is_held_out(index);
    PARE_TRY(begin_block(o, index));
    for (int64_t g = 0; g < c->groups; g++) {
        panel *p = &o->panel[set * c->groups + g];
        if (p->shifts) PARE_TRY(pare_conv_gram_add(p->shifts, g, x, t, s, &p->sum));
        for (int64_t first = 0; first < c->rows && !p->shifts;) {
            int64_t n = c->rows - first, room = o->capacity - p->count;
            if (n > room) n = room;
            fill(o, g, p, x, t, s, first, n);
            first += n;
            if (p->count == o->capacity) PARE_TRY(flush(o, p));
        }
    }
    return PARE_OK;
}

/* --- normal equations --- */

static const double LEAST_PIVOT = 1e-30;

void pare_moments_right(const pare_moments *m, bool centred, double add, const double *dense,
                        double *b)
{
    const int64_t d = m->columns, n = m->outputs;
    const double rows = m->rows > 0 ? m->rows : 1;
    for (int64_t i = 0; i < d; i++) {
        const double mean = centred ? m->x[i] / rows : 0;
        for (int64_t o = 0; o < n; o++) {
            b[i * n + o] = m->xt[i * n + o] - mean * m->t[o];
            b[i * n + o] += add * dense[o * d + i];
        }
    }
}

double pare_moments_normal(const pare_moments *m, bool centred, double ridge, const double *dense,
                           double *a, double *b)
{
    int64_t d = m->columns;
    double rows = m->rows > 0 ? m->rows : 1, sum = 0;
    for (int64_t i = 0; i < d; i++) {
        double mean = centred ? m->x[i] / rows : 0;
        for (int64_t j = i; j < d; j++) a[i * d + j] = m->xx[i * d + j] - mean * m->x[j];
        sum += a[i * d + i];
    }
    pare_linear_fill_lower(a, d);
    double add = ridge * (sum > 0 ? sum / (double)d : 1) + LEAST_PIVOT;
    for (int64_t i = 0; i < d; i++) a[i * d + i] += add;
    if (b) pare_moments_right(m, centred, add, dense, b);
    return add;
}

pare_status pare_moments_inverse(pare_ctx *ctx, const pare_moments *m, bool centred, double *ridge,
                                 int threads, double *inverse)
{
    int64_t d = m->columns;
    bool ok = false;
    double *a = pare_alloc(ctx, (size_t)(d * d), sizeof *a);
    pare_status st = a ? PARE_OK : PARE_MEMORY;
    for (int attempt = 0; attempt < 6 && st == PARE_OK && !ok; attempt++) {
        if (attempt) *ridge *= 10;
        (void)pare_moments_normal(m, centred, *ridge, NULL, a, NULL);
        st = pare_linear_cholesky(ctx, (pare_mat_view){a, d}, d, threads, &ok);
    }
    if (st == PARE_OK && !ok)
        st = PARE_FAIL(ctx, INPUT,
                       "the second moments of its inputs are singular even with a ridge of %g: the "
                       "data hold values that are not finite",
                       *ridge);
    if (st == PARE_OK) st = pare_linear_inverse(ctx, inverse, (pare_mat_view){a, d}, d, threads);
    pare_free(a);
    return st;
}
