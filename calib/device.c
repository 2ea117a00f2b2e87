/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of a calibration on a device that can count. While a run computes and counts, the
   inputs of the next one are copied. The counts are the host's integers; only they come down, at
   the end. */
#include "calib/calibrate.h"

#include <string.h>

/* What a tensor's channels have on the device: lost, sums, largest in one block. */
typedef struct channel_block {
    void *memory; /* NULL: none yet */
    pare_channel_sums sums;
} channel_block;

struct pare_device_stats {
    pare_ctx *ctx;
    pare_device *device;
    bool minmax_only;
    int count;
    char *histogram; /* (count) of the device, `step` bytes each */
    size_t step;
    channel_block *channels; /* (count) */
};

static size_t histogram_bytes(bool minmax_only)
{
    return minmax_only ? sizeof(pare_histogram_dev) : sizeof(pare_histogram_dev_bins);
}

/* Memory of the device that the statistics of so many tensors take, channels apart. */
static size_t stats_bytes(int count, bool minmax_only)
{
    return (size_t)count * histogram_bytes(minmax_only);
}

static pare_status open_tallies(pare_device_stats *s)
{
    pare_device *d = s->device;
    void *memory;
    pare_status st = d->backend->alloc(s->ctx, d, &memory, s->step * (size_t)s->count);
    if (st != PARE_OK) return pare_fail_prefix(s->ctx, st, "statistics of %d tensors", s->count);
    s->histogram = memory;
    PARE_TRY(d->samples->histogram_clear(s->ctx, d->setup, s->histogram, s->step, s->count));
    return d->backend->sync(s->ctx, d->setup);
}

pare_status pare_device_stats_open(pare_ctx *ctx, pare_device_stats **out, pare_device *device,
                                   int count, bool minmax_only)
{
    pare_device_stats *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    *s = (pare_device_stats){.ctx = ctx,
                             .device = device,
                             .minmax_only = minmax_only,
                             .count = count,
                             .step = histogram_bytes(minmax_only)};
    s->channels = pare_alloc(ctx, (size_t)count, sizeof *s->channels);
    pare_status st = s->channels ? open_tallies(s) : PARE_MEMORY;
    if (st != PARE_OK) {
        pare_device_stats_close(s);
        return st;
    }
    *out = s;
    return PARE_OK;
}

void pare_device_stats_close(pare_device_stats *s)
{
    if (!s) return;
    for (int i = 0; s->channels && i < s->count; i++)
        s->device->backend->free(s->device, s->channels[i].memory);
    s->device->backend->free(s->device, s->histogram);
    pare_free(s->channels);
    pare_free(s);
}

/* --- adding --- */

static size_t channel_bytes(int64_t count)
{
    return sizeof(uint64_t) + (size_t)count * (sizeof(pare_wide) + sizeof(float));
}

static pare_status open_channels(pare_device_stats *s, channel_block *c, int64_t count,
                                 pare_stream *stream)
{
    const pare_backend *b = s->device->backend;
    if (c->memory && c->sums.count != count)
        return PARE_FAIL(s->ctx, INPUT, "it has channels of two numbers, expected one shape");
    if (c->memory) return PARE_OK;
    void *memory;
    PARE_TRY(b->alloc(s->ctx, s->device, &memory, channel_bytes(count)));
    unsigned long long *at = c->memory = memory;
    c->sums = (pare_channel_sums){
        .lost = at, .sum = at + 1, .largest = (float *)(at + 1 + 2 * count), .count = count};
    return b->fill(s->ctx, stream, c->memory, 0, channel_bytes(count));
}

static pare_status add_channels(pare_device_stats *s, int tensor, const pare_view *view,
                                int64_t samples, pare_stream *stream)
{
    int axis = pare_channels_axis(view->rank);
    channel_block *c = &s->channels[tensor];
    if (view->dtype != PARE_f32 || axis < 0 || s->minmax_only) return PARE_OK;
    PARE_TRY(open_channels(s, c, view->dim[axis], stream));
    return s->device->samples->channels_add(s->ctx, stream, &c->sums, view, axis, samples);
}

/* Does a view cover all of the memory between its first and last element? */
static bool is_packed(const pare_view *v)
{
    int64_t last = 0;
    for (int k = 0; k < v->rank; k++) last += (v->dim[k] - 1) * v->stride[k];
    return last + 1 == pare_view_count(v);
}

pare_status pare_device_stats_add(pare_device_stats *s, int tensor, const pare_view *view,
                                  int64_t samples, pare_stream *stream)
{
    int64_t n = pare_view_count(view);
    pare_histogram_dev *histogram = (void *)(s->histogram + (size_t)tensor * s->step);
    if (n == 0) return PARE_OK;
    if (!is_packed(view))
        return PARE_FAIL(s->ctx, UNSUPPORTED, "it has gaps in memory, expected a whole tensor");
    PARE_TRY(add_channels(s, tensor, view, samples, stream));
    return s->device->samples->histogram_add(s->ctx, stream, histogram, !s->minmax_only,
                                             view->dtype, view->data, n);
}

/* --- bringing it down --- */

static float extreme(int ordered)
{
    int32_t bits = ordered ^ ((ordered >> 31) & 0x7fffffff);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value + 0.0f; /* -0 becomes 0 */
}

/* A histogram of the device, added to another one. */
static pare_status add_histogram(pare_ctx *ctx, pare_histogram *to,
                                 const pare_histogram_dev_bins *from, bool minmax_only)
{
    const pare_histogram_dev *t = &from->histogram;
    pare_histogram *h;
    PARE_TRY(pare_histogram_new(ctx, &h));
    bool finite = t->low <= t->high, negative = finite && t->low < -1; /* -1 is -0 */
    pare_status st = PARE_OK;
    if (!minmax_only && t->top >= 0) st = pare_histogram_open(ctx, h, t->top, negative);
    for (int sign = 0; st == PARE_OK && sign < 2; sign++) {
        uint64_t *bins = pare_histogram_bins(h, sign);
        if (bins) memcpy(bins - 1, from->slot[sign], sizeof from->slot[sign]);
    }
    h->count = t->count;
    h->zero = minmax_only ? 0 : t->zero;
    h->nan = t->nan;
    h->inf = t->inf;
    h->min = finite ? extreme(t->low) : 0;
    h->max = finite ? extreme(t->high) : 0;
    if (st == PARE_OK) st = pare_histogram_merge(ctx, to, h);
    pare_histogram_free(h);
    return st;
}

static pare_status fetch_channels(const pare_device_stats *s, const channel_block *c,
                                  const pare_histogram_dev *histogram, pare_channels *to)
{
    const pare_backend *b = s->device->backend;
    size_t bytes = channel_bytes(c->sums.count), count = (size_t)c->sums.count;
    char *here = pare_alloc(s->ctx, bytes, 1);
    pare_channels *sums = NULL;
    pare_status st = here ? pare_channels_new(s->ctx, &sums) : PARE_MEMORY;
    if (st == PARE_OK) st = pare_channels_open(s->ctx, sums, c->sums.count);
    if (st == PARE_OK) st = b->download(s->ctx, s->device->setup, here, c->memory, bytes);
    if (st == PARE_OK) st = b->sync(s->ctx, s->device->setup);
    if (st == PARE_OK) {
        memcpy(&sums->lost, here, sizeof sums->lost);
        memcpy(sums->sum, here + sizeof sums->lost, count * sizeof *sums->sum);
        memcpy(sums->largest, here + bytes - count * sizeof(float), count * sizeof(float));
        sums->each = histogram->count / count;
        st = pare_channels_merge(s->ctx, to, sums);
    }
    if (st != PARE_OK)
        (void)b->sync(s->ctx, s->device->setup); /* a copy may still be in progress */
    pare_channels_free(sums);
    pare_free(here);
    return st;
}

static pare_status fetch_tensor(const pare_device_stats *s, int i, pare_histogram_dev_bins *here,
                                pare_stats *to)
{
    const pare_backend *b = s->device->backend;
    PARE_TRY(
        b->download(s->ctx, s->device->setup, here, s->histogram + (size_t)i * s->step, s->step));
    PARE_TRY(b->sync(s->ctx, s->device->setup));
    PARE_TRY(add_histogram(s->ctx, to->histogram, here, s->minmax_only));
    if (!s->channels[i].memory) return PARE_OK;
    return fetch_channels(s, &s->channels[i], &here->histogram, to->channels);
}

pare_status pare_device_stats_fetch(const pare_device_stats *s, pare_ranges *to)
{
    pare_histogram_dev_bins *here = pare_alloc(s->ctx, 1, sizeof *here);
    pare_status st = here ? PARE_OK : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < s->count; i++)
        st = fetch_tensor(s, i, here, &to->stats[i]);
    if (st != PARE_OK) (void)s->device->backend->sync(s->ctx, s->device->setup);
    pare_free(here);
    return st;
}

/* --- a calibration's replicas on the device --- */

bool pare_calib_on_device(const pare_calib_job *j)
{
    return j->options->device && j->options->device->samples;
}

static pare_status observe_device(void *user, const pare_value *value, const pare_view *view,
                                  pare_stream *stream)
{
    pare_calib_runner *t = user;
    int at = pare_ranges_place(t->ranges, value->name);
    if (at < 0 || !pare_type_is_float(view->dtype)) return PARE_OK;
    pare_view filled = *view;
    if (t->filled < t->job->unit) filled.dim[0] = view->dim[0] / t->job->unit * t->filled;
    return pare_device_stats_add(t->stats, at, &filled, t->filled, stream);
}

/* Inputs that are stored as pixels become floats on the device. */
static pare_status take_pixels(pare_calib_runner *t)
{
    const pare_calib_job *j = t->job;
    for (int i = 0; i < pare_plan_input_count(j->plan); i++) {
        pare_pixels pixels;
        if (pare_data_take_pixels(j->data, pare_calib_source(j, i), &pixels))
            PARE_TRY(pare_runner_take_pixels(t->replica->runner, i, &pixels));
    }
    return PARE_OK;
}

pare_status pare_calib_open_device(pare_calib_runner *t)
{
    const pare_calib_job *j = t->job;
    PARE_TRY(pare_device_stats_open(&t->replica->ctx, &t->stats, j->options->device, j->name_count,
                                    j->options->minmax_only));
    PARE_TRY(take_pixels(t));
    pare_runner_observe_device(t->replica->runner, observe_device, t);
    return PARE_OK;
}

void pare_calib_close_device(pare_calib_runner *t) { pare_device_stats_close(t->stats); }

/* Inputs go through the runner's own, pinned memory: the batch's is the reader's again afterwards.
   What is recorded counts whole runs. */
void pare_calib_load_device(pare_calib_runner *t, int64_t run)
{
    const pare_calib_job *j = t->job;
    const int64_t left = j->samples - run * j->unit;
    t->filled = left < j->unit ? left : j->unit;
    if (t->filled < j->unit) pare_runner_observe_device(t->replica->runner, observe_device, t);
    for (int i = 0; i < pare_plan_input_count(j->plan); i++) {
        const pare_view to = pare_runner_input(t->replica->runner, i); /* u8 of pixels */
        const size_t all = pare_view_bytes(&to),
                     bytes = left < j->unit ? all / (size_t)j->unit * (size_t)left : all;
        memcpy(to.data, pare_calib_input(j, i, run), bytes);
        memset((char *)to.data + bytes, 0, all - bytes);
    }
}

pare_status pare_calib_gather_device(const pare_calib_job *j)
{
    PARE_TRY(pare_replicas_finish(j->pool, INT64_MAX));
    for (int i = 0; i < j->count; i++) {
        pare_calib_runner *t = &j->runner[i];
        pare_status st = pare_device_stats_fetch(t->stats, t->ranges);
        if (st != PARE_OK) return pare_fail(j->ctx, st, "%s", t->replica->ctx.message);
    }
    return PARE_OK;
}

void pare_calib_log_device(const pare_calib_job *j)
{
    const double mib = 1024 * 1024;
    size_t each = stats_bytes(j->name_count, j->options->minmax_only);
    pare_log(
        j->ctx, PARE_LOG_INFO,
        "%s: %.1f MiB for the weights, %.1f MiB for activations, %.1f MiB for the counts of %d "
        "tensors",
        j->options->device->name, (double)pare_plan_weight_bytes(j->plan) / mib,
        (double)pare_plan_activation_bytes(j->plan) / mib, (double)each / mib, j->name_count);
}
