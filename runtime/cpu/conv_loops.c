/* SPDX-License-Identifier: Apache-2.0 */
/* Plan: one output channel is one task. For each tap the valid output rows and columns are found
   once; the inner loop runs along a row of y. Leading axes of length 1 make 1-D and 2-D the same.
 */
#include "runtime/cpu/conv.h"
#include "runtime/base/size.h"

#include <string.h>

pare_status pare_conv_read(const pare_node *node, const pare_view *x, const pare_view *w,
                           pare_conv *out)
{
    pare_shape shape = {.rank = x->rank};
    memcpy(shape.dim, x->dim, sizeof shape.dim);
    out->n = x->dim[0];
    out->c = x->dim[1];
    out->m = w->dim[0];
    out->group = pare_node_int(node, "group", 1);
    return pare_window_read(node, &shape, w->dim + 2, &out->window);
}

static int64_t volume(const int64_t d[3]) { return d[0] * d[1] * d[2]; }

pare_status pare_conv_room_of(pare_ctx *ctx, const pare_conv *conv, pare_conv_room *out)
{
    const pare_window *w = &conv->window;
    int64_t larger = conv->m > conv->c ? conv->m : conv->c, smaller = conv->m + conv->c - larger;
    int64_t weight[] = {larger, smaller, w->kernel[0], w->kernel[1], w->kernel[2]};
    int64_t x[] = {conv->c, w->in[0], w->in[1], w->in[2]};
    int64_t y[] = {conv->m, w->out[0], w->out[1], w->out[2]};
    int64_t nw, nx, ny;
    if (!pare_count_dims(weight, 5, &nw) || !pare_count_dims(x, 4, &nx) ||
        !pare_count_dims(y, 4, &ny) || nw / conv->group + nx + ny > INT64_MAX / 64)
        return PARE_FAIL(ctx, INPUT, "a convolution's dimensions overflow");
    out->w = 0;
    out->x = out->w + (size_t)(nw / conv->group);
    out->y = out->x + (size_t)nx;
    out->bytes = (out->y + (size_t)ny) * sizeof(double);
    return PARE_OK;
}

/* Output positions o of tap k with 0 <= o * stride + shift < size: [*from, *to). */
static int64_t valid(const pare_window *w, int i, int64_t tap, int64_t *from, int64_t *to)
{
    int64_t shift = tap * w->dilation[i] - w->begin[i], s = w->stride[i];
    *from = shift < 0 ? (-shift + s - 1) / s : 0;
    *to = w->in[i] > shift ? (w->in[i] - shift + s - 1) / s : 0;
    if (*to > w->out[i]) *to = w->out[i];
    return shift;
}

/* One (input channel, output channel) pair of planes: y += x * kernel. */
static void plane_forward(const pare_window *w, double *y, const double *x, const double *kernel)
{
    int64_t lo[3], hi[3], shift[3];
    for (int64_t kd = 0; kd < w->kernel[0]; kd++)
        for (int64_t kh = 0; kh < w->kernel[1]; kh++)
            for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
                double tap = *kernel++;
                shift[0] = valid(w, 0, kd, &lo[0], &hi[0]);
                shift[1] = valid(w, 1, kh, &lo[1], &hi[1]);
                shift[2] = valid(w, 2, kw, &lo[2], &hi[2]);
                for (int64_t d = lo[0]; d < hi[0]; d++)
                    for (int64_t h = lo[1]; h < hi[1]; h++) {
                        int64_t id = d * w->stride[0] + shift[0], ih = h * w->stride[1] + shift[1];
                        double *row = y + (d * w->out[1] + h) * w->out[2];
                        const double *from = x + (id * w->in[1] + ih) * w->in[2] + shift[2];
                        if (w->stride[2] == 1)
                            for (int64_t o = lo[2]; o < hi[2]; o++) row[o] += tap * from[o];
                        else
                            for (int64_t o = lo[2]; o < hi[2]; o++)
                                row[o] += tap * from[o * w->stride[2]];
                    }
            }
}

void pare_conv_image(const pare_conv *conv, double *y, const double *x, const double *w,
                     int threads)
{
    int64_t in = volume(conv->window.in), out = volume(conv->window.out);
    int64_t taps = volume(conv->window.kernel), c = conv->c / conv->group,
            m = conv->m / conv->group;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t o = 0; o < conv->m; o++) {
        double *plane = y + o * out;
        memset(plane, 0, (size_t)out * sizeof *plane);
        for (int64_t i = 0; i < c; i++)
            plane_forward(&conv->window, plane, x + (o / m * c + i) * in, w + (o * c + i) * taps);
    }
}

/* ConvTranspose 11: x at i adds w[k] to y at i * stride + k * dilation - pad. */
static void plane_transposed(const pare_window *w, double *y, const double *x, const double *kernel)
{
    for (int64_t kd = 0; kd < w->kernel[0]; kd++)
        for (int64_t kh = 0; kh < w->kernel[1]; kh++)
            for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
                double tap = *kernel++;
                const double *from = x;
                for (int64_t d = 0; d < w->in[0]; d++)
                    for (int64_t h = 0; h < w->in[1]; h++, from += w->in[2]) {
                        int64_t od = d * w->stride[0] + kd * w->dilation[0] - w->begin[0];
                        int64_t oh = h * w->stride[1] + kh * w->dilation[1] - w->begin[1];
                        if (od < 0 || od >= w->out[0] || oh < 0 || oh >= w->out[1]) continue;
                        double *row = y + (od * w->out[1] + oh) * w->out[2];
                        for (int64_t i = 0; i < w->in[2]; i++) {
                            int64_t o = i * w->stride[2] + kw * w->dilation[2] - w->begin[2];
                            if (o >= 0 && o < w->out[2]) row[o] += tap * from[i];
                        }
                    }
            }
}

void pare_conv_image_transposed(const pare_conv *conv, double *y, const double *x, const double *w,
                                int threads)
{
    int64_t in = volume(conv->window.in), out = volume(conv->window.out);
    int64_t taps = volume(conv->window.kernel), c = conv->c / conv->group,
            m = conv->m / conv->group;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t o = 0; o < conv->m; o++) {
        double *plane = y + o * out;
        memset(plane, 0, (size_t)out * sizeof *plane);
        for (int64_t i = o / m * c; i < (o / m + 1) * c; i++)
            plane_transposed(&conv->window, plane, x + i * in, w + (i * m + o % m) * taps);
    }
}

/* One tap of one pair of planes: the sum of x * dy over the output positions it reaches. */
static double tap_gradient(const pare_window *w, const double *dy, const double *x,
                           const int64_t tap[3])
{
    int64_t lo[3], hi[3], shift[3];
    double sum = 0;
    for (int i = 0; i < 3; i++) shift[i] = valid(w, i, tap[i], &lo[i], &hi[i]);
    for (int64_t d = lo[0]; d < hi[0]; d++)
        for (int64_t h = lo[1]; h < hi[1]; h++) {
            int64_t id = d * w->stride[0] + shift[0], ih = h * w->stride[1] + shift[1];
            const double *row = dy + (d * w->out[1] + h) * w->out[2];
            const double *from = x + (id * w->in[1] + ih) * w->in[2] + shift[2];
            for (int64_t o = lo[2]; o < hi[2]; o++) sum += row[o] * from[o * w->stride[2]];
        }
    return sum;
}

void pare_conv_image_weight(const pare_conv *conv, double *dw, const double *dy, const double *x,
                            int threads)
{
    const pare_window *w = &conv->window;
    int64_t in = volume(w->in), out = volume(w->out), taps = volume(w->kernel);
    int64_t c = conv->c / conv->group, m = conv->m / conv->group;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t o = 0; o < conv->m; o++)
        for (int64_t i = 0; i < c; i++)
            for (int64_t t = 0; t < taps; t++) {
                const int64_t tap[3] = {t / (w->kernel[1] * w->kernel[2]),
                                        t / w->kernel[2] % w->kernel[1], t % w->kernel[2]};
                dw[(o * c + i) * taps + t] +=
                    tap_gradient(w, dy + o * out, x + (o / m * c + i) * in, tap);
            }
}
