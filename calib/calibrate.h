/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a calibration run (internal to calib/): what its replicas, its device and the
   adding up of its counts share. */
#ifndef PARE_CALIB_CALIBRATE_H
#define PARE_CALIB_CALIBRATE_H

#include "calib/ranges.h"
#include "runtime/base/ptr_map.h"
#include "runtime/device/samples.h"
#include "runtime/ops/kernel.h"
#include "runtime/exec/batch.h"

/* --- on a device: the same integers as the host's; only they come down, at the end (device.c) ---
 */

typedef struct pare_device_stats pare_device_stats;

/* Empty statistics of `count` tensors; minmax_only: without bins and channels. */
PARE_NODISCARD pare_status pare_device_stats_open(pare_ctx *ctx, pare_device_stats **out,
                                                  pare_device *device, int count, bool minmax_only);
void pare_device_stats_close(pare_device_stats *stats); /* NULL is fine */

/* Puts the addition of a tensor of the device, of `samples` samples, into the stream. Allocates at
   a tensor's first call. */
PARE_NODISCARD pare_status pare_device_stats_add(pare_device_stats *stats, int tensor,
                                                 const pare_view *view, int64_t samples,
                                                 pare_stream *stream);

/* Adds all of it to a table of that many tensors; the streams it was put into must be empty. */
PARE_NODISCARD pare_status pare_device_stats_fetch(const pare_device_stats *stats, pare_ranges *to);

/* --- how many samples one run of a model takes --- */

/* Samples of a run, 1 where the model takes any number (pare_data_run_samples), and the runs that
   so many samples make; fails where there are none. */
PARE_NODISCARD pare_status pare_calib_runs(pare_ctx *ctx, const pare_model *model,
                                           const pare_data *data, int64_t samples, int64_t *unit,
                                           int64_t *runs);

/* The model with the shapes that a run of `unit` samples has, as far as they are known. *out is
   the caller's, also where this fails. */
PARE_NODISCARD pare_status pare_calib_run_shapes(pare_ctx *ctx, const pare_model *model,
                                                 const pare_data *data, int64_t unit,
                                                 pare_model **out);

/* --- one calibration --- */

typedef struct pare_calib_job pare_calib_job;

/* What a replica counts. */
typedef struct pare_calib_runner {
    pare_calib_job *job;
    pare_replica *replica;
    pare_ranges *ranges;      /* its counts */
    pare_device_stats *stats; /* those on the device; NULL: none there */
    int64_t filled;           /* samples of the run in progress; on a device alone */
    int traced;               /* runs that the timeline has or passed over */
    pare_ptr_map place;       /* tensor of the plan -> its place in the table + 1, 0: none */
    pare_arena arena;         /* the map's */
} pare_calib_runner;

struct pare_calib_job {
    pare_ctx *ctx;
    const pare_model *model;
    pare_data *data;
    const pare_calib_options *options;
    const char **names;
    int name_count;
    pare_plan *plan;
    pare_input_shape *shape;
    int input_count;
    int64_t unit;          /* samples of one run */
    const int64_t *sample; /* (samples): those of this rank */
    int64_t samples, runs;
    bool fixed;      /* the unit is the model's batch */
    bool one_by_one; /* on a device, too */
    bool *filled;    /* becomes true where a run of the device has many samples */
    pare_status (*add)(pare_ctx *ctx, pare_histogram *h, pare_dtype dtype, const void *data,
                       int64_t count);
    pare_replicas *pool;
    pare_calib_runner *runner; /* (count), one for each replica */
    int count;
    pare_timeline *timeline; /* NULL: nothing is traced */
    pare_batch batch;        /* whose runs are next */
};

/* Which of the data set's inputs feeds the plan's input i. */
int pare_calib_source(const pare_calib_job *job, int i);

/* Where a run's data of the plan's input i are in the batch. */
const void *pare_calib_input(const pare_calib_job *job, int i, int64_t run);

/* --- on a device that can count --- */

/* Does the device count? */
bool pare_calib_on_device(const pare_calib_job *job);

/* A runner's counts and pixels there; closing is for when nothing runs (without a device: nothing).
 */
PARE_NODISCARD pare_status pare_calib_open_device(pare_calib_runner *runner);
void pare_calib_close_device(pare_calib_runner *runner);

/* Gives the runner a run's inputs, zeros behind the last sample. */
void pare_calib_load_device(pare_calib_runner *runner, int64_t run);

/* Waits for all and brings their counts down. */
PARE_NODISCARD pare_status pare_calib_gather_device(const pare_calib_job *job);

/* Memory of the device, for who watches it: the runners' and the counts'. */
void pare_calib_log_device(const pare_calib_job *job);

#endif
