/* SPDX-License-Identifier: Apache-2.0 */
/* What a device does with samples beside running a model on them: stored pixels become numbers,
   tensors are counted where they are, ranges are searched in the counts. Everything is put into a
   stream and exact: results depend on neither order nor pieces. Memory named here is the device's.
 */
#ifndef PARE_RUNTIME_DEVICE_SAMPLES_H
#define PARE_RUNTIME_DEVICE_SAMPLES_H

#include "runtime/base/pixels.h"
#include "runtime/base/types.h"
#include "runtime/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A histogram's bin is the top 19 bits of a float (sign, exponent, 10 bits of mantissa), kept for
   the 12 highest octaves seen; what is smaller is counted in one `below` per sign. */
enum {
    PARE_OCTAVES = 12,
    PARE_OCTAVE_BINS = 1024,
    PARE_HISTOGRAM_BINS = PARE_OCTAVES * PARE_OCTAVE_BINS,
    PARE_BIN_SHIFT = 13, /* bits of a float that a bin does not tell apart */
    PARE_OCTAVE_SHIFT = 23
};

/* Counts of one tensor. */
typedef struct pare_histogram_dev {
    unsigned long long count, zero, nan, inf;
    int low, high;  /* of finite values; a negative number's bits below the sign are inverted, so
                       integers order as numbers do; low > high: none */
    int largest;    /* bits of the largest finite magnitude */
    int first, top; /* octave of bin 0, highest octave seen (-1: none) */
    int negative;   /* set for searches: the negative half is there */
    int counted;    /* octaves below it were counted before the last addition moved the window */
} pare_histogram_dev;

/* The same with bins. */
typedef struct pare_histogram_dev_bins {
    pare_histogram_dev histogram;                        /* first */
    unsigned long long slot[2][1 + PARE_HISTOGRAM_BINS]; /* a sign (positive first): below, bins */
} pare_histogram_dev_bins;

/* Of the values of a channel in a sample, whose sums become whole numbers (calib/channels.h). */
enum { PARE_CHANNELS_SEGMENT = 512, PARE_CHANNELS_LANES = 16 };

/* Sums of a tensor's channels as calib/channels.h defines them. */
typedef struct pare_channel_sums {
    unsigned long long
        *sum;       /* (count, 2): low and high half of a number in two's complement, 2^-40 */
    float *largest; /* (count) */
    unsigned long long *lost;
    int64_t count;
} pare_channel_sums;

/* What is searched in a tensor's counts, with a zero point and symmetric. */
enum {
    PARE_SEARCH_PERCENT, /* and the next ones; the first two are those that AUTO tries */
    PARE_SEARCH_PERCENTS = 4,
    PARE_SEARCH_ENTROPY = PARE_SEARCH_PERCENT + PARE_SEARCH_PERCENTS,
    PARE_SEARCH_ERROR,   /* least squared error */
    PARE_SEARCH_WEIGHED, /* least squared error, clipping weighed */
    PARE_SEARCH_AUTO,    /* of PARE_CANDIDATE the one of least error, clipping weighed */
    PARE_SEARCH_COUNT
};

enum {
    PARE_CANDIDATE_WHOLE,
    PARE_CANDIDATE_PERCENT,
    PARE_CANDIDATE_ENTROPY = 3,
    PARE_CANDIDATE_WEIGHED,
    PARE_CANDIDATE
};

typedef struct pare_search_result {
    float low, high;
    int candidate; /* of AUTO: PARE_CANDIDATE_... */
} pare_search_result;

typedef struct pare_search {
    const pare_histogram_dev_bins *histogram; /* (tensors), each with a number other than 0 */
    int tensors;
    unsigned wanted; /* bit i: PARE_SEARCH_i of each; AUTO needs its candidates */
    unsigned rules;  /* bit 0: with a zero point, bit 1: symmetric */
    double percent[PARE_SEARCH_PERCENTS];
    double clip_weight;         /* of WEIGHED and AUTO */
    const double *decay;        /* (PARE_RANGE_DECAY), see range.h */
    void *work;                 /* (tensors) times work_bytes */
    pare_search_result *result; /* (tensors, 2, PARE_SEARCH_COUNT): with a zero point, symmetric */
} pare_search;

struct pare_sample_table {
    /* out (samples, count) from raw (samples, count), bytes in the file's order; the table is the
       device's. */
    pare_status (*pixels)(pare_ctx *ctx, pare_stream *stream, float *out, const uint8_t *raw,
                          const pare_pixels *pixels, int64_t samples);
    /* Makes `count` histograms, `step` bytes apart, empty. */
    pare_status (*histogram_clear)(pare_ctx *ctx, pare_stream *stream, void *histograms,
                                   size_t step, int count);
    /* Adds n values of type f32, f16, bf16 or f64 (rounded to f32). bins: the histogram is a
       pare_histogram_dev_bins; else neither bins nor octaves are kept. PARE_UNSUPPORTED: other
       types. */
    pare_status (*histogram_add)(pare_ctx *ctx, pare_stream *stream, pare_histogram_dev *histogram,
                                 bool bins, pare_dtype dtype, const void *values, int64_t n);
    /* Adds an f32 tensor whose axis `axis` holds the channels; its first axis holds `samples`
       samples of equal size, whose segments are their own. */
    pare_status (*channels_add)(pare_ctx *ctx, pare_stream *stream, const pare_channel_sums *sums,
                                const pare_view *view, int axis, int64_t samples);
    pare_status (*search)(pare_ctx *ctx, pare_stream *stream, const pare_search *search);
    size_t work_bytes; /* of one tensor's search */
};

#ifdef __cplusplus
}
#endif
#endif
