/* SPDX-License-Identifier: Apache-2.0 */
/* With stride 1 two taps of a convolution see the same plane, shifted: the sum over all places o of
   x[c, o + k] x[e, o + l] depends on l - k alone, but for the places where a tap is outside the
   tensor, and for those just outside the output where both are inside. So in place of products of
   all K (K + 1) / 2 pairs of K taps, one product for each difference that occurs (of 3 x 3 taps 13
   of 45, one of each pair of opposite ones), and for each pair the border's share is taken off: the
   places o outside the output with both taps inside the tensor. Sums are those of the definition,
   but for the order of additions.

   Planes are turned, channels side by side; products take rows by their addresses. Every product is
   done by one thread. */
#include "calib/moments.h"

#include <string.h>

enum { LEAST_CHANNELS = 16, LEAST_PLACES = 1024, ROWS = 512 };
static const double MOST_BYTES = 64e6;

/* Taps first and second, `by` apart; of all pairs with the same difference the first one carries
   the sum. */
typedef struct pairing {
    int first, second;
    int sum;     /* the number of the difference */
    bool border; /* are there places to take off? */
} pairing;

struct pare_conv_gram {
    pare_ctx *ctx;
    pare_columns columns;
    int threads, taps;
    int64_t outputs, places, out_places; /* outputs 0: no targets; places of one image */
    int64_t (*offset)[3];                /* (taps): of the place a tap sees from the output's */
    pairing *pair;
    int pairs, sums;
    int64_t (*by)[3]; /* (sums) */
    double *sum;      /* (sums, channels, channels) */
    double *x, *t;    /* (images, places, channels), (images, out_places, outputs) */
    int images, capacity;
};

/* --- geometry --- */

static int64_t volume(const int64_t n[3]) { return n[0] * n[1] * n[2]; }

static int64_t images_of(const pare_columns *c)
{
    const int64_t places = volume(c->window.in);
    return places < LEAST_PLACES ? (LEAST_PLACES + places - 1) / places : 1;
}

static size_t planes_bytes(const pare_columns *c, int64_t outputs)
{
    return (size_t)images_of(c) * sizeof(double) *
           (size_t)(volume(c->window.in) * c->channels + volume(c->window.out) * outputs);
}

/* Differences of an axis: 2 kernel - 1; of those of all axes one of each opposite pair. */
static int64_t differences(const pare_window *w)
{
    int64_t n = 1;
    for (int i = 0; i < 3; i++) n *= 2 * w->kernel[i] - 1;
    return (n + 1) / 2;
}

bool pare_conv_gram_can(const pare_columns *c)
{
    const pare_window *w = &c->window;
    if (!c->convolution || c->channels < LEAST_CHANNELS || volume(w->kernel) < 2) return false;
    for (int i = 0; i < 3; i++)
        if (w->stride[i] != 1 || w->in[i] < w->kernel[i] || w->out[i] < 1) return false;
    return volume(w->kernel) < 128 && (double)planes_bytes(c, c->outputs) < MOST_BYTES;
}

size_t pare_conv_gram_bytes(const pare_columns *c, bool targets)
{
    return planes_bytes(c, targets ? c->outputs : 0) +
           (size_t)(differences(&c->window) * c->channels * c->channels) * sizeof(double);
}

/* A box of output places: where taps k and l are both inside the tensor. */
static bool both_inside(const pare_conv_gram *s, int k, int l, int64_t from[3], int64_t to[3])
{
    for (int i = 0; i < 3; i++) {
        const int64_t a = s->offset[k][i], b = s->offset[l][i];
        from[i] = -(a < b ? a : b);
        to[i] = s->columns.window.in[i] - (a < b ? b : a);
        if (from[i] >= to[i]) return false;
    }
    return true;
}

static bool is_output(const pare_conv_gram *s, const int64_t o[3])
{
    for (int i = 0; i < 3; i++)
        if (o[i] < 0 || o[i] >= s->columns.window.out[i]) return false;
    return true;
}

static bool has_border(const pare_conv_gram *s, int k, int l)
{
    int64_t from[3], to[3];
    if (!both_inside(s, k, l, from, to)) return false;
    for (int i = 0; i < 3; i++)
        if (from[i] < 0 || to[i] > s->columns.window.out[i]) return true;
    return false;
}

/* The number of the difference of two taps. */
static int find_sum(pare_conv_gram *s, int k, int l)
{
    int64_t by[3];
    for (int i = 0; i < 3; i++) by[i] = s->offset[l][i] - s->offset[k][i];
    for (int n = 0; n < s->sums; n++)
        if (!memcmp(s->by[n], by, sizeof by)) return n;
    memcpy(s->by[s->sums], by, sizeof by);
    return s->sums++;
}

static void find_taps(pare_conv_gram *s)
{
    const pare_window *w = &s->columns.window;
    for (int tap = 0; tap < s->taps; tap++) {
        int64_t left = tap;
        for (int i = 2; i >= 0; i--) {
            s->offset[tap][i] = left % w->kernel[i] * w->dilation[i] - w->begin[i];
            left /= w->kernel[i];
        }
    }
    for (int k = 0; k < s->taps; k++)
        for (int l = k; l < s->taps; l++)
            s->pair[s->pairs++] = (pairing){k, l, find_sum(s, k, l), has_border(s, k, l)};
}

/* --- opening --- */

static pare_status fill(pare_conv_gram *s)
{
    const pare_columns *c = &s->columns;
    const size_t taps = (size_t)s->taps, sums = (size_t)differences(&c->window);
    s->offset = pare_alloc(s->ctx, taps, sizeof *s->offset);
    s->pair = pare_alloc(s->ctx, taps * (taps + 1) / 2, sizeof *s->pair);
    s->by = pare_alloc(s->ctx, sums, sizeof *s->by);
    s->sum = pare_alloc(s->ctx, sums, (size_t)(c->channels * c->channels) * sizeof *s->sum);
    s->x = pare_alloc(s->ctx, (size_t)(s->capacity * s->places * c->channels), sizeof *s->x);
    s->t = pare_alloc(s->ctx, (size_t)(s->capacity * s->out_places * s->outputs), sizeof *s->t);
    if (!s->offset || !s->pair || !s->by || !s->sum || !s->x || !s->t) return PARE_MEMORY;
    find_taps(s);
    return PARE_OK;
}

pare_status pare_conv_gram_new(pare_ctx *ctx, pare_conv_gram **out, const pare_columns *columns,
                               bool targets, int threads)
{
    pare_conv_gram *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    *s = (pare_conv_gram){.ctx = ctx,
                          .columns = *columns,
                          .threads = threads,
                          .taps = (int)volume(columns->window.kernel),
                          .outputs = targets ? columns->outputs : 0,
                          .places = volume(columns->window.in),
                          .out_places = volume(columns->window.out),
                          .capacity = (int)images_of(columns)};
    pare_status st = fill(s);
    if (st == PARE_OK)
        *out = s;
    else
        pare_conv_gram_free(s);
    return st;
}

void pare_conv_gram_free(pare_conv_gram *s)
{
    if (!s) return;
    pare_free(s->offset);
    pare_free(s->pair);
    pare_free(s->by);
    pare_free(s->sum);
    pare_free(s->x);
    pare_free(s->t);
    pare_free(s);
}

/* --- products --- */

/* Rows on their way into one product. */
typedef struct gathering {
    const pare_conv_gram *s;
    pare_mat_view to;
    int64_t width; /* of b */
    double sign;
    bool upper;
    const double *a[ROWS], *b[ROWS];
    int64_t rows;
    pare_status status;
} gathering;

static void push(gathering *g)
{
    if (g->status != PARE_OK) return;
    g->status = pare_linear_gathered(g->s->ctx, g->to, g->a, g->b, g->rows, g->s->columns.channels,
                                     g->width, g->sign, g->upper);
    g->rows = 0;
}

static void take(gathering *g, const double *a, const double *b)
{
    g->a[g->rows] = a;
    g->b[g->rows++] = b;
    if (g->rows == ROWS) push(g);
}

/* What tap k sees of an image from output place o. */
static const double *seen(const pare_conv_gram *s, int image, int k, const int64_t o[3])
{
    const int64_t *in = s->columns.window.in, *by = s->offset[k];
    const int64_t place = ((o[0] + by[0]) * in[1] + o[1] + by[1]) * in[2] + o[2] + by[2];
    return s->x + (image * s->places + place) * s->columns.channels;
}

static const double *wanted(const pare_conv_gram *s, int image, const int64_t o[3])
{
    const int64_t *out = s->columns.window.out;
    return s->t + (image * s->out_places + (o[0] * out[1] + o[1]) * out[2] + o[2]) * s->outputs;
}

enum { EVERYWHERE, OUTSIDE, TARGETS };

/* All places where taps k and l are inside the tensor; OUTSIDE: that are no outputs; TARGETS: that
   are, with the targets in place of what l sees. */
static void gather(gathering *g, int k, int l, int what)
{
    const pare_conv_gram *s = g->s;
    int64_t from[3], to[3], o[3];
    if (!both_inside(s, k, l, from, to)) return;
    for (int image = 0; image < s->images; image++)
        for (o[0] = from[0]; o[0] < to[0]; o[0]++)
            for (o[1] = from[1]; o[1] < to[1]; o[1]++)
                for (o[2] = from[2]; o[2] < to[2]; o[2]++) {
                    if (what != EVERYWHERE && is_output(s, o) == (what == OUTSIDE)) continue;
                    take(g, seen(s, image, k, o),
                         what == TARGETS ? wanted(s, image, o) : seen(s, image, l, o));
                }
    push(g);
}

/* Is it the first pair of its difference? */
static bool carries(const pare_conv_gram *s, int p)
{
    for (int q = 0; q < p; q++)
        if (s->pair[q].sum == s->pair[p].sum) return false;
    return true;
}

static pare_status add_pair(const pare_conv_gram *s, int p, pare_moments *sum)
{
    const pairing *pair = &s->pair[p];
    const int64_t c = s->columns.channels;
    gathering g = {.s = s, .width = c, .upper = pair->first == pair->second, .sign = 1};
    if (carries(s, p)) {
        g.to = (pare_mat_view){s->sum + pair->sum * c * c, c};
        gather(&g, pair->first, pair->second, EVERYWHERE);
    }
    g.to =
        (pare_mat_view){sum->xx + pair->first * c * sum->columns + pair->second * c, sum->columns};
    g.sign = -1;
    if (pair->border) gather(&g, pair->first, pair->second, OUTSIDE);
    return g.status;
}

/* Sums of what tap k sees, and its products with the targets. */
static pare_status add_tap(const pare_conv_gram *s, int k, pare_moments *sum)
{
    const int64_t c = s->columns.channels;
    int64_t from[3], to[3], o[3];
    gathering g = {.s = s, .width = s->outputs, .sign = 1};
    double *x = sum->x + k * c;
    g.to = (pare_mat_view){sum->xt + k * c * s->outputs, s->outputs};
    if (s->outputs) gather(&g, k, k, TARGETS);
    if (!both_inside(s, k, k, from, to)) return g.status;
    for (int image = 0; image < s->images; image++)
        for (o[0] = from[0]; o[0] < to[0]; o[0]++)
            for (o[1] = from[1]; o[1] < to[1]; o[1]++)
                for (o[2] = from[2]; o[2] < to[2]; o[2]++) {
                    if (!is_output(s, o)) continue;
                    const double *v = seen(s, image, k, o);
                    for (int64_t i = 0; i < c; i++) x[i] += v[i];
                }
    return g.status;
}

static void add_targets(const pare_conv_gram *s, pare_moments *sum)
{
    const int64_t rows = s->images * s->out_places;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < s->outputs; i++) {
            const double t = s->t[r * s->outputs + i];
            sum->t[i] += t;
            sum->tt[i] += t * t;
        }
    sum->rows += (double)rows;
}

static pare_status flush(pare_conv_gram *s, pare_moments *sum)
{
    pare_status status = PARE_OK;
    if (!s->images) return PARE_OK;
#pragma omp parallel for schedule(dynamic, 1) num_threads(s->threads)
    for (int i = 0; i < s->pairs + s->taps; i++) {
        const pare_status st = i < s->pairs ? add_pair(s, i, sum) : add_tap(s, i - s->pairs, sum);
        if (st == PARE_OK) continue;
#pragma omp critical(pare_conv_gram_failure)
        status = st;
    }
    add_targets(s, sum);
    s->images = 0;
    return status == PARE_OK ? PARE_OK : PARE_FAIL(s->ctx, MEMORY, "out of memory");
}

/* --- adding --- */

/* to (places, channels) = from (channels, places), less `less` where there is one. */
static void turn(double *to, const float *from, const float *less, int64_t channels, int64_t places)
{
    enum { SIDE = 16 };
    for (int64_t p0 = 0; p0 < places; p0 += SIDE)
        for (int64_t c = 0; c < channels; c++) {
            const int64_t end = p0 + SIDE < places ? p0 + SIDE : places, row = c * places;
            for (int64_t p = p0; p < end; p++)
                to[p * channels + c] = (double)from[row + p] - (less ? (double)less[row + p] : 0);
        }
}

pare_status pare_conv_gram_add(pare_conv_gram *s, int64_t group, const float *x, const float *t,
                               const float *less, pare_moments *sum)
{
    const pare_columns *c = &s->columns;
    for (int64_t n = 0; n < c->batch; n++) {
        const int64_t part = n * c->groups + group, out = part * c->outputs * s->out_places;
        turn(s->x + s->images * s->places * c->channels, x + part * c->channels * s->places, NULL,
             c->channels, s->places);
        if (s->outputs)
            turn(s->t + s->images * s->out_places * s->outputs, t + out, less ? less + out : NULL,
                 s->outputs, s->out_places);
        if (++s->images == s->capacity) PARE_TRY(flush(s, sum));
    }
    return PARE_OK;
}

pare_status pare_conv_gram_finish(pare_conv_gram *s, pare_moments *sum)
{
    const int64_t c = s->columns.channels, d = sum->columns;
    PARE_TRY(flush(s, sum));
    for (int p = 0; p < s->pairs; p++) {
        const double *from = s->sum + s->pair[p].sum * c * c;
        double *to = sum->xx + s->pair[p].first * c * d + s->pair[p].second * c;
        for (int64_t i = 0; i < c; i++)
            for (int64_t j = s->pair[p].first == s->pair[p].second ? i : 0; j < c; j++)
                to[i * d + j] += from[i * c + j];
    }
    memset(s->sum, 0, (size_t)(s->sums * c * c) * sizeof *s->sum);
    return PARE_OK;
}
