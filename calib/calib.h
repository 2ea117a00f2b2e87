/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration: one run with observers gives an exact, mergeable histogram per tensor, and
   exact means of its channels; every method's range is computed from it afterwards. */
#ifndef PARE_CALIB_CALIB_H
#define PARE_CALIB_CALIB_H

#include "formats/data.h"
#include "runtime/comm/comm.h"
#include "runtime/exec/exec.h"
#include "runtime/graph/graph.h"
#include "runtime/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_histogram pare_histogram; /* histogram.h */
typedef struct pare_channels pare_channels;   /* channels.h */

typedef enum pare_method {
#define PARE_METHOD(id, name, function) PARE_METHOD_##id,
#include "calib/methods.inc"
#undef PARE_METHOD
    PARE_METHOD_COUNT
} pare_method;

/* "minmax", "percentile", ... */
const char *pare_method_name(pare_method method);

/* A way to choose a range. */
typedef struct pare_range_rule {
    pare_method method;
    double percentile; /* of PERCENTILE: 99.99 */
    bool symmetric;    /* s8 in [-127, 127], zero point 0; else u8 in [0, 255] with a zero point */
} pare_range_rule;

/* "minmax", "percentile:99.99", "entropy", "mse", "auto"; PARE_USAGE otherwise. */
PARE_NODISCARD pare_status pare_method_parse(pare_ctx *ctx, const char *text, pare_range_rule *out);

typedef struct pare_range {
    float low, high;
    pare_method chosen; /* what auto took */
} pare_range;

/* The statistics of one tensor. */
typedef struct pare_stats {
    const char *name;
    pare_histogram *histogram;
    pare_channels *channels;
} pare_stats;

/* The table of all tensors, with what it was made from. */
typedef struct pare_ranges pare_ranges;

int pare_ranges_count(const pare_ranges *ranges);
const pare_stats *pare_ranges_at(const pare_ranges *ranges, int i);
/* By tensor name, or NULL. */
const pare_stats *pare_ranges_find(const pare_ranges *ranges, const char *name);
void pare_ranges_free(pare_ranges *ranges);

/* ranges.json: histograms, channel sums, every method's range, counts, hashes of model and data;
   nothing of batch, threads, device or clock. A calibration cache of TensorRT is read, too: its
   tensors hold the two ends of their ranges, and its model's hash is all zeros, for it names none.
 */
PARE_NODISCARD pare_status pare_ranges_write(pare_ctx *ctx, const pare_ranges *ranges,
                                             const char *path);
PARE_NODISCARD pare_status pare_ranges_read(pare_ctx *ctx, pare_ranges **out, const char *path);
/* The whole table as bytes and back, minmax_only included: for a cache, which vouches for its
   bytes, not for strangers' files. *out is the caller's (pare_free). Unpacking fails with
   PARE_INPUT where the bytes are not a table. */
PARE_NODISCARD pare_status pare_ranges_pack(pare_ctx *ctx, const pare_ranges *ranges, void **out,
                                            size_t *bytes);
PARE_NODISCARD pare_status pare_ranges_unpack(pare_ctx *ctx, pare_ranges **out, const void *data,
                                              size_t bytes);
/* A tensor that a model quantizes, whatever tool wrote it. low, high: what its levels reach. */
typedef struct pare_quantized_tensor {
    const char *name;
    pare_dtype type; /* s8, u8, s16, u16, f8e4m3 or f8e5m2 */
    float scale, low, high;
    int zero, least, most; /* zero point, levels; of FP8 the largest numbers */
} pare_quantized_tensor;
/* False: no QuantizeLinear with one constant scale of a tensor that is no constant. */
bool pare_quantized_tensor_of(const pare_node *q, pare_quantized_tensor *out);
/* Of all QuantizeLinear nodes, those of bodies and of QLinear operators among them, in the order of
   the graph. The model is rewritten on the way; *out is in the arena, names are the model's. */
PARE_NODISCARD pare_status pare_quantized_tensors(pare_model *model, pare_arena *arena,
                                                  pare_quantized_tensor **out, int *count);
/* The same as a table, each tensor with the two ends of its range, without a model's hash. The
   model is rewritten. PARE_INPUT: there are none. */
PARE_NODISCARD pare_status pare_ranges_of_model(pare_ctx *ctx, pare_ranges **out,
                                                pare_model *model);
/* Writes a calibration cache of TensorRT: the scales of the ranges that a symmetric rule chooses.
   version: of TensorRT, as its caches begin with it, 8601 for 8.6.1. */
PARE_NODISCARD pare_status pare_ranges_write_cache(pare_ctx *ctx, const pare_ranges *ranges,
                                                   const pare_range_rule *rule, int64_t version,
                                                   const char *path);
/* Warns of tensors with NaN and infinite values, as a calibration does at its end. */
void pare_ranges_warn(pare_ctx *ctx, const pare_ranges *ranges);
/* Adds b into a: same model, disjoint or not, counts add up. PARE_INPUT for different models. */
PARE_NODISCARD pare_status pare_ranges_merge(pare_ctx *ctx, pare_ranges *a, const pare_ranges *b);
const char *pare_ranges_model_hash(const pare_ranges *ranges);
int64_t pare_ranges_samples(const pare_ranges *ranges);
/* Of all bins: what ranks add up. */
size_t pare_ranges_bins_bytes(const pare_ranges *ranges);
/* Made with pare_calib_options.minmax_only: what it lacks did not depend on the data. */
bool pare_ranges_see_all(const pare_ranges *ranges);

/* Where ranges are searched from now on (NULL: on the CPU; pare_calibrate's table: where it ran).
   What is chosen does not depend on it. The device must outlive the table. */
void pare_ranges_use_device(pare_ranges *ranges, pare_device *device);

/* The ranges that rules choose for all tensors at once, out: (pare_ranges_count, rule_count). A
   tensor without a finite value gets [0, 0]. */
PARE_NODISCARD pare_status pare_ranges_choose(pare_ctx *ctx, const pare_ranges *ranges,
                                              const pare_range_rule *rules, int rule_count,
                                              pare_range *out);

/* The range a rule chooses for a tensor. */
PARE_NODISCARD pare_status pare_range_choose(pare_ctx *ctx, const pare_histogram *histogram,
                                             const pare_range_rule *rule, pare_range *out);

/* What quantizing with a range costs: *error, the mean squared error, clipped values weighted as
   AUTO weighs them; *square, the mean square of the values themselves. */
PARE_NODISCARD pare_status pare_range_error(pare_ctx *ctx, const pare_histogram *histogram,
                                            const pare_range *range, bool symmetric, double *error,
                                            double *square);

/* Scale and zero point of a range: s8 in [-127, 127] with zero point 0 (scale = end / 127), or u8
   in [0, 255], widened to hold 0, with the zero point that makes 0.0 exact. All zero: scale 1. */
void pare_range_scale(const pare_range *range, bool symmetric, float *scale, int *zero_point);

typedef struct pare_calib_options {
    const int64_t *samples; /* indices to read, in this order */
    int64_t sample_count;
    int batch,
        threads; /* how many are read and run side by side; the result does not depend on them */
    pare_comm *comm; /* ranks that each run a share of the samples and have all of the table; the
                        result does not depend on it; NULL: this process alone */
    pare_device *device;    /* where the model runs and tensors are counted; NULL: the CPU */
    const char *model_hash; /* written into the table */
    bool minmax_only; /* every f32 tensor of the main graph, but its smallest and largest value
                      only: what forecasts overflow in a shorter type. A table of a few dozen bytes
                      a tensor that is not to be written: it has no bins */
    void (*progress)(void *user, int64_t done, int64_t all);
    void *progress_user;
    /* once before the first sample: bytes that the run will touch beyond what is resident by then;
       or NULL */
    void (*planned)(void *user, size_t bytes);
    void *planned_user;
    /* once, after all samples: the first 16 runs as spans, of a device in a stream for each of its
       two runners, of the CPU those of one thread; the plan is the one they ran; or NULL */
    pare_status (*traced)(void *user, const pare_timeline *timeline, const pare_plan *plan);
    void *traced_user;
} pare_calib_options;

/* The CPU; samples, batch and threads are still to be set. */
void pare_calib_options_init(pare_calib_options *out);

/* Runs the model (float, prepared as quantization will write it) over the samples. */
PARE_NODISCARD pare_status pare_calibrate(pare_ctx *ctx, pare_ranges **out, const pare_model *model,
                                          pare_data *data, const pare_calib_options *options);

/* Names of the float tensors any placement could quantize: what calibration observes. The list is
   allocated with pare_alloc; names are borrowed from the model. */
PARE_NODISCARD pare_status pare_calib_observed(pare_ctx *ctx, const pare_model *model,
                                               const char ***names, int *count);

/* The same for pare_calib_options.minmax_only: every f32 tensor that is no constant. */
PARE_NODISCARD pare_status pare_calib_tensors(pare_ctx *ctx, const pare_model *model,
                                              const char ***names, int *count);

#ifdef __cplusplus
}
#endif
#endif
