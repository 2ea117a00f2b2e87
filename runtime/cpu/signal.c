/* SPDX-License-Identifier: Apache-2.0 */
/* DFT (17, 20) and STFT (17), lane by lane in double and rounded once; HannWindow, HammingWindow,
   BlackmanWindow (17) and MelWeightMatrix (17). */
#include "runtime/ops/signal.h"
#include "runtime/cpu/fft.h"
#include "runtime/cpu/ref.h"

#include <inttypes.h>
#include <math.h>

/* --- DFT, STFT --- */

typedef struct spectrum {
    pare_dft dft;
    pare_stft stft;
    pare_fft *fft;
    int threads;
    size_t room; /* numbers of scratch of a thread: input, output, spare */
} spectrum;

static pare_status spectrum_prepare(pare_prep *p, int64_t n, bool inverse, spectrum **out)
{
    spectrum *s = *out = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_fft_new(p->arena, &s->fft, n, inverse));
    s->threads = p->threads;
    s->room = 2 * (size_t)n + (size_t)s->fft->spare;
    p->scratch = (size_t)p->threads * s->room * sizeof(pare_complex);
    p->state = s;
    return PARE_OK;
}

static pare_status dft_prepare(pare_prep *p)
{
    pare_dft d;
    spectrum *s;
    PARE_TRY(pare_dft_of(p->node, &d));
    PARE_TRY(spectrum_prepare(p, d.length, d.inverse, &s));
    s->dft = d;
    return PARE_OK;
}

static pare_status stft_prepare(pare_prep *p)
{
    pare_stft t;
    spectrum *s;
    PARE_TRY(pare_stft_of(p->node, &t));
    PARE_TRY(spectrum_prepare(p, t.length, false, &s));
    s->stft = t;
    return PARE_OK;
}

/* Number i of a signal at an offset: real, or real and imaginary part. */
static pare_complex load(const pare_view *x, int64_t at, bool complex)
{
    return (pare_complex){pare_ref_get(x, at),
                          complex ? pare_ref_get(x, at + x->stride[x->rank - 1]) : 0};
}

/* The n numbers to be transformed: cut off or filled with zeros; of an inverse onesided transform
   the upper half mirrors the lower one. */
static void dft_load(const spectrum *s, const pare_view *x, int64_t at, pare_complex *to)
{
    const int64_t n = s->fft->n, size = x->dim[s->dft.axis], step = x->stride[s->dft.axis];
    const bool complex = x->dim[x->rank - 1] == 2, mirrored = s->dft.inverse && s->dft.onesided;
    for (int64_t i = 0; i < n; i++) {
        const bool upper = mirrored && i > n / 2;
        const int64_t from = upper ? n - i : i;
        to[i] = from < size ? load(x, at + from * step, complex) : (pare_complex){0, 0};
        if (upper) to[i].im = -to[i].im;
    }
}

static void dft_store(const spectrum *s, const pare_view *y, int64_t at, const pare_complex *from)
{
    const double scale = s->dft.inverse ? 1 / (double)s->fft->n : 1;
    for (int64_t i = 0; i < y->dim[s->dft.axis]; i++) {
        const int64_t to = at + i * y->stride[s->dft.axis];
        pare_ref_set(y, to, from[i].re * scale);
        if (y->dim[y->rank - 1] == 2)
            pare_ref_set(y, to + y->stride[y->rank - 1], from[i].im * scale);
    }
}

/* Offset of lane number `lane` of a view, over all axes but the last and `axis`. */
static int64_t lane_offset(const pare_view *v, int axis, int64_t lane)
{
    int64_t at = 0;
    for (int i = v->rank - 2; i >= 0; i--) {
        if (i == axis) continue;
        at += lane % v->dim[i] * v->stride[i];
        lane /= v->dim[i];
    }
    return at;
}

static pare_status dft_with(const pare_call *c, pare_fft_fn transform)
{
    const spectrum *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    const int threads = c->threads < s->threads ? c->threads : s->threads;
    int64_t lanes = 1;
    for (int i = 0; i < x->rank - 1; i++) lanes *= i == s->dft.axis ? 1 : x->dim[i];
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        pare_complex *in = (pare_complex *)c->scratch + (size_t)t * s->room;
        pare_complex *out = in + s->fft->n;
        for (int64_t i = lanes * t / threads; i < lanes * (t + 1) / threads; i++) {
            dft_load(s, x, lane_offset(x, s->dft.axis, i), in);
            transform(s->fft, in, out, out + s->fft->n);
            dft_store(s, y, lane_offset(y, s->dft.axis, i), out);
        }
    }
    return PARE_OK;
}

/* A frame from an offset on, times the window. */
static void stft_load(const pare_call *c, int64_t at, pare_complex *to)
{
    const spectrum *s = c->state;
    const pare_view *x = &c->in[0];
    const pare_view *window = c->in_count > 2 && c->in[2].dtype ? &c->in[2] : NULL;
    const bool complex = x->rank == 3 && x->dim[2] == 2;
    for (int64_t i = 0; i < s->stft.length; i++) {
        const double w = window ? pare_ref_get(window, i * window->stride[0]) : 1;
        to[i] = load(x, at + i * x->stride[1], complex);
        to[i].re *= w;
        to[i].im *= w;
    }
}

static pare_status stft_with(const pare_call *c, pare_fft_fn transform)
{
    const spectrum *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    const int threads = c->threads < s->threads ? c->threads : s->threads;
    const int64_t frames = s->stft.frames, lanes = x->dim[0] * frames;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        pare_complex *in = (pare_complex *)c->scratch + (size_t)t * s->room;
        pare_complex *out = in + s->fft->n;
        for (int64_t i = lanes * t / threads; i < lanes * (t + 1) / threads; i++) {
            const int64_t b = i / frames, f = i % frames;
            stft_load(c, b * x->stride[0] + f * s->stft.step * x->stride[1], in);
            transform(s->fft, in, out, out + s->fft->n);
            for (int64_t k = 0; k < y->dim[2]; k++) {
                const int64_t to = b * y->stride[0] + f * y->stride[1] + k * y->stride[2];
                pare_ref_set(y, to, out[k].re);
                pare_ref_set(y, to + y->stride[3], out[k].im);
            }
        }
    }
    return PARE_OK;
}

static pare_status dft_fft_run(const pare_call *c) { return dft_with(c, pare_fft_fast); }
static pare_status dft_ref_run(const pare_call *c) { return dft_with(c, pare_fft_plain); }
static pare_status stft_fft_run(const pare_call *c) { return stft_with(c, pare_fft_fast); }
static pare_status stft_ref_run(const pare_call *c) { return stft_with(c, pare_fft_plain); }

#define SPECTRUM_KERNELS(stem)                                                                     \
    static const pare_kernel fft_##stem = {.name = "fft_" #stem,                                   \
                                           .can = pare_ref_can_floats,                             \
                                           .prepare = stem##_prepare,                              \
                                           .run = stem##_fft_run};                                 \
    static const pare_kernel ref_##stem = {.name = "ref_" #stem,                                   \
                                           .can = pare_ref_can_floats,                             \
                                           .prepare = stem##_prepare,                              \
                                           .run = stem##_ref_run,                                  \
                                           .flags = PARE_KERNEL_REF};
SPECTRUM_KERNELS(dft)
SPECTRUM_KERNELS(stft)

const pare_kernel *const pare_cpu_dft[] = {&fft_dft, &ref_dft, NULL};
const pare_kernel *const pare_cpu_stft[] = {&fft_stft, &ref_stft, NULL};

/* --- windows: a - b cos(2 pi i / N) + c cos(4 pi i / N), N the size where periodic, else one less;
   as ONNX has it a symmetric window of size 1 is 0 / 0 --- */

static pare_status window_run(const pare_call *c, double a, double b, double c2)
{
    const pare_view *y = &c->out[0];
    const int64_t n = y->dim[0];
    const double turn = 2 * 3.14159265358979323846;
    const double last = (double)(pare_node_int(c->node, "periodic", 1) ? n : n - 1);
    for (int64_t i = 0; i < n; i++) {
        const double angle = turn * (double)i / last;
        pare_ref_set(y, i * y->stride[0], a - b * cos(angle) + c2 * cos(2 * angle));
    }
    return PARE_OK;
}

static pare_status hann_run(const pare_call *c) { return window_run(c, 0.5, 0.5, 0); }
static pare_status hamming_run(const pare_call *c) { return window_run(c, 25. / 46, 21. / 46, 0); }
static pare_status blackman_run(const pare_call *c) { return window_run(c, 0.42, 0.5, 0.08); }

/* --- MelWeightMatrix: triangles between neighbours of bands + 2 points at equal distances on the
   mel scale, 2595 log10(1 + f / 700) --- */

/* The DFT bin at point i. */
static int64_t mel_bin(const pare_call *c, int64_t i)
{
    const double bands = (double)pare_ref_get_int(&c->in[0], 0);
    const double length = (double)pare_ref_get_int(&c->in[1], 0);
    const double rate = (double)pare_ref_get_int(&c->in[2], 0);
    const double low = 2595 * log10(1 + pare_ref_get(&c->in[3], 0) / 700);
    const double high = 2595 * log10(1 + pare_ref_get(&c->in[4], 0) / 700);
    const double mel = low + (double)i * (high - low) / (bands + 2);
    const double bin = floor((length + 1) * 700 * (pow(10, mel / 2595) - 1) / rate);
    return bin >= 0 && bin < 0x1p31 ? (int64_t)bin : -1;
}

static pare_status mel_weight_matrix_run(const pare_call *c)
{
    const pare_view *y = &c->out[0];
    for (int64_t band = 0; band < y->dim[1]; band++) {
        const int64_t left = mel_bin(c, band), top = mel_bin(c, band + 1);
        const int64_t right = mel_bin(c, band + 2), at = band * y->stride[1];
        if (left < 0 || top < left || right < top || top >= y->dim[0] || right > y->dim[0])
            return PARE_FAIL_CALL(c, INPUT,
                                  "band %" PRId64 " from %g to %g Hz lies outside the %" PRId64
                                  " bins of the spectrum",
                                  band, pare_ref_get(&c->in[3], 0), pare_ref_get(&c->in[4], 0),
                                  y->dim[0]);
        for (int64_t i = 0; i < y->dim[0]; i++) {
            double w = 0;
            if (i >= left && i < top) w = (double)(i - left) / (double)(top - left);
            if (i == top) w = 1;
            if (i > top && i < right) w = (double)(right - i) / (double)(right - top);
            pare_ref_set(y, at + i * y->stride[0], w);
        }
    }
    return PARE_OK;
}

#define PLAIN_KERNEL(stem, row)                                                                    \
    static const pare_kernel ref_##row = {                                                         \
        .name = "ref_" #row, .run = stem##_run, .flags = PARE_KERNEL_REF};
PLAIN_KERNEL(hann, hann_window)
PLAIN_KERNEL(hamming, hamming_window)
PLAIN_KERNEL(blackman, blackman_window)
PLAIN_KERNEL(mel_weight_matrix, mel_weight_matrix)

const pare_kernel *const pare_cpu_hann_window[] = {&ref_hann_window, NULL};
const pare_kernel *const pare_cpu_hamming_window[] = {&ref_hamming_window, NULL};
const pare_kernel *const pare_cpu_blackman_window[] = {&ref_blackman_window, NULL};
const pare_kernel *const pare_cpu_mel_weight_matrix[] = {&ref_mel_weight_matrix, NULL};
