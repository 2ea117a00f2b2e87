/* SPDX-License-Identifier: Apache-2.0 */
/* MaxPool (s8, u8, floats), AveragePool and GlobalAveragePool (floats) where channels are together:
   all taps of one output position are folded channel by channel in vectors, straight into the
   output. f16 and bf16 are widened into scratch, and their results, where they are not f32, rounded
   from there. Sums run in f32 over taps in row-major order, whatever the batch and the threads. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/float16.h"
#include "runtime/cpu/gemm/int8_rows.h"
#include "runtime/ops/window.h"

#include <string.h>

enum { MOST_TAPS = 256 };

/* y[i] = fold of tap[t][i], i < n. */
typedef void (*fold_fn)(void *y, int64_t n, const void *const *tap, int taps);

typedef struct pool {
    pare_window win;
    fold_fn fold;
    int64_t n, channels;
    int size, threads; /* bytes of an element */
    bool average;
    size_t output_at; /* of f16 and bf16, in scratch */
} pool;

/* The larger of two; NaN wins (ONNX MaxPool-12 with IEEE numbers). */
#define FOLD_MAX(type, ctype, nan)                                                                 \
    PARE_CLONES_FMA static void max_##type(void *out, int64_t n, const void *const *tap, int taps) \
    {                                                                                              \
        ctype *y = out;                                                                            \
        memcpy(y, tap[0], (size_t)n * sizeof *y);                                                  \
        for (int t = 1; t < taps; t++) {                                                           \
            const ctype *x = tap[t];                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = x[i] > y[i] || nan ? x[i] : y[i];               \
        }                                                                                          \
    }
FOLD_MAX(f32, float, x[i] != x[i])
FOLD_MAX(s8, int8_t, 0)
FOLD_MAX(u8, uint8_t, 0)

PARE_CLONES_FMA static void sum_f32(void *out, int64_t n, const void *const *tap, int taps)
{
    float *y = out;
    memcpy(y, tap[0], (size_t)n * sizeof *y);
    for (int t = 1; t < taps; t++) {
        const float *x = tap[t];
        for (int64_t i = 0; i < n; i++) y[i] += x[i];
    }
}

PARE_CLONES_FMA static void divide_row(float *y, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++) y[i] /= by;
}

static void row_run(const pare_call *c, int64_t row)
{
    const pool *s = c->state;
    const pare_window *w = &s->win;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int64_t n = row / w->out[1], oh = row % w->out[1];
    const char *image = (const char *)x->data + n * x->stride[0] * s->size;
    char *to = (char *)y->data + (n * y->stride[0] + oh * y->stride[2]) * s->size;
    const void *tap[MOST_TAPS];
    const pare_taps high = pare_window_taps(w, 1, oh);
    for (int64_t ow = 0; ow < w->out[2]; ow++, to += s->channels * s->size) {
        int taps = 0;
        const pare_taps wide = pare_window_taps(w, 2, ow);
        for (int64_t a = 0; a < high.count; a++)
            for (int64_t b = 0; b < wide.count; b++) {
                int64_t ph = high.first + a * w->dilation[1];
                int64_t pw = wide.first + b * w->dilation[2];
                tap[taps++] = image + (ph * x->stride[2] + pw * x->stride[3]) * s->size;
            }
        s->fold(to, s->channels, tap, taps);
        int64_t count = w->include_pad ? high.padded * wide.padded : taps;
        if (s->average) divide_row((float *)(void *)to, s->channels, (float)count);
    }
}

static bool is_float(pare_dtype t) { return t == PARE_f32 || t == PARE_f16 || t == PARE_bf16; }

/* Scratch of f16 and bf16: the input as f32, then the output. */
static size_t half_room(const pare_prep *p, size_t *output_at)
{
    *output_at = 0;
    if (p->in[0].dtype != PARE_f16 && p->in[0].dtype != PARE_bf16) return 0;
    *output_at = ((size_t)pare_view_count(&p->in[0]) * sizeof(float) + 63) / 64 * 64;
    return *output_at + (size_t)pare_view_count(&p->out[0]) * sizeof(float);
}

/* Runs an f32 kernel on widened operands; the output may be f32 itself. */
static pare_status half_run(const pare_call *c, size_t output_at,
                            pare_status (*run32)(const pare_call *c))
{
    pare_view x = c->in[0], y = c->out[0];
    x.data = c->scratch, x.dtype = PARE_f32;
    if (y.dtype != PARE_f32) y.data = (char *)c->scratch + output_at, y.dtype = PARE_f32;
    pare_widen(x.data, c->in[0].data, c->in[0].dtype, pare_view_count(&x), c->threads);
    pare_call call = *c;
    call.in = &x, call.out = &y;
    PARE_TRY(run32(&call));
    if (c->out[0].dtype != PARE_f32)
        pare_narrow(c->out[0].data, y.data, c->out[0].dtype, pare_view_count(&y), c->threads);
    return PARE_OK;
}

static pare_status run(const pare_call *c)
{
    const pool *s = c->state;
    if (s->output_at && c->in[0].dtype != PARE_f32) return half_run(c, s->output_at, run);
    int64_t rows = s->n * s->win.out[1];
    if (s->threads <= 1) {
        for (int64_t i = 0; i < rows; i++) row_run(c, i);
        return PARE_OK;
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) row_run(c, i);
    return PARE_OK;
}

static pare_status read_window(const pare_prep *p, pare_window *out)
{
    pare_shape x = {.rank = p->in[0].rank};
    for (int i = 0; i < x.rank; i++) x.dim[i] = p->in[0].dim[i];
    return pare_window_read(p->node, &x, NULL, out);
}

static bool order_fits(const pare_prep *p)
{
    const pare_view *x = &p->in[0];
    return x->rank == 4 && pare_view_nhwc(x) && pare_view_nhwc(&p->out[0]) &&
           pare_view_count(x) > 0 && p->out_count == 1;
}

/* Windows without a tap inside the tensor are left to the plain kernel. */
static bool window_fits(const pare_prep *p)
{
    pare_window w;
    if (read_window(p, &w) != PARE_OK) {
        pare_ctx_clear(p->ctx);
        return false;
    }
    bool fits = w.kernel[1] * w.kernel[2] <= MOST_TAPS;
    for (int i = 1; i < 3; i++)
        for (int64_t at = 0; fits && at < w.out[i]; at++)
            fits = pare_window_taps(&w, i, at).count > 0;
    return fits;
}

static bool max_can(const pare_prep *p)
{
    pare_dtype t = p->in[0].dtype;
    return (is_float(t) || pare_type_is_int8(t)) && order_fits(p) && window_fits(p);
}

static bool average_can(const pare_prep *p)
{
    return is_float(p->in[0].dtype) && order_fits(p) && window_fits(p);
}

static pare_status prepare(pare_prep *p, bool average)
{
    pool *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_dtype type = p->in[0].dtype;
    PARE_TRY(read_window(p, &s->win));
    if (!average) s->win.include_pad = false;
    s->average = average;
    s->fold = average ? sum_f32 : is_float(type) ? max_f32 : type == PARE_s8 ? max_s8 : max_u8;
    s->n = p->in[0].dim[0], s->channels = p->in[0].dim[1];
    s->size = is_float(type) ? 4 : 1;
    p->scratch = half_room(p, &s->output_at);
    int64_t work = pare_view_count(&p->out[0]) * s->win.kernel[1] * s->win.kernel[2] * s->size;
    s->threads = work < 131072 ? 1 : p->threads;
    p->state = s;
    return PARE_OK;
}

static pare_status max_prepare(pare_prep *p) { return prepare(p, false); }
static pare_status average_prepare(pare_prep *p) { return prepare(p, true); }

const pare_kernel pare_nhwc_max_pool = {
    .name = "nhwc_max_pool", .can = max_can, .prepare = max_prepare, .run = run};
const pare_kernel pare_nhwc_average_pool = {
    .name = "nhwc_average_pool", .can = average_can, .prepare = average_prepare, .run = run};

/* --- the whole plane is one window --- */

/* y (channels) = mean of `rows` rows, in partial sums of 32 that keep long sums accurate. */
PARE_CLONES_FMA static void plane_mean(float *y, int64_t channels, const float *x, int64_t rows)
{
    enum { PART = 64 };
    float part[PART];
    for (int64_t c = 0; c < channels; c += PART) {
        int64_t n = channels - c < PART ? channels - c : PART;
        for (int64_t i = 0; i < n; i++) y[c + i] = 0;
        for (int64_t r = 0; r < rows; r += 32) {
            int64_t stop = r + 32 < rows ? r + 32 : rows;
            for (int64_t i = 0; i < n; i++) part[i] = 0;
            for (int64_t k = r; k < stop; k++)
                for (int64_t i = 0; i < n; i++) part[i] += x[k * channels + c + i];
            for (int64_t i = 0; i < n; i++) y[c + i] += part[i];
        }
        for (int64_t i = 0; i < n; i++) y[c + i] /= (float)rows;
    }
}

static bool global_can(const pare_prep *p) { return is_float(p->in[0].dtype) && order_fits(p); }

static pare_status global_prepare(pare_prep *p)
{
    size_t *output_at = pare_arena_alloc(p->arena, 1, sizeof *output_at);
    if (!output_at) return PARE_MEMORY;
    p->scratch = half_room(p, output_at);
    p->state = output_at;
    return PARE_OK;
}

static pare_status global_run(const pare_call *c)
{
    const pare_view *x = &c->in[0];
    if (x->dtype != PARE_f32) return half_run(c, *(const size_t *)c->state, global_run);
    int64_t channels = x->dim[1], rows = x->dim[2] * x->dim[3], n = x->dim[0];
    const float *from = x->data;
    float *to = c->out[0].data;
    if (c->threads <= 1 || n < 2 || n * rows * channels < 65536) {
        for (int64_t i = 0; i < n; i++)
            plane_mean(to + i * channels, channels, from + i * rows * channels, rows);
        return PARE_OK;
    }
#pragma omp parallel for num_threads(c->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        plane_mean(to + i * channels, channels, from + i * rows * channels, rows);
    return PARE_OK;
}

const pare_kernel pare_nhwc_global_average_pool = {.name = "nhwc_global_average_pool",
                                                   .can = global_can,
                                                   .prepare = global_prepare,
                                                   .run = global_run};
