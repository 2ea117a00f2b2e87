/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a calibration run (internal to calib/): what its threads, its device and the adding
   up of its counts share. */
#ifndef PARE_CALIB_CALIBRATE_H
#define PARE_CALIB_CALIBRATE_H

#include "calib/device.h"
#include "runtime/exec/exec.h"

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_calib_job pare_calib_job;

/* A runner with its counts, and the thread that drives it where there is no device. */
typedef struct pare_calib_runner {
    pare_calib_job *job;
    pthread_t thread;
    pare_ctx ctx;
    pare_runner *runner;
    pare_ranges *ranges;      /* this thread's counts */
    pare_device_stats *stats; /* those on the device; NULL: none there */
    bool busy;                /* a run was started and not waited for */
    int traced;               /* runs that the timeline has or passed over */
    int *order; /* tensor observed k-th in a run -> its place in the table, -1: none */
    size_t order_count, order_capacity, seen;
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
    int64_t unit; /* samples of one run */
    pare_status (*add)(pare_ctx *ctx, pare_histogram *h, pare_dtype dtype, const void *data,
                       int64_t count);
    pare_calib_runner *runner;
    int threads, started;
    pare_timeline *timeline; /* NULL: nothing is traced */
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    pare_batch batch;
    int64_t next, running; /* next run of the batch to be taken, runs under way */
    bool stop;
    int64_t failed; /* sample at which a run failed first in order; -1: none */
    pare_status status;
    char *message;
};

/* Which of the data set's inputs feeds the plan's input i. */
int pare_calib_source(const pare_calib_job *job, int i);

/* Before each run: the first ones are spans, on the CPU those of one thread. */
void pare_calib_trace(pare_calib_runner *runner);

/* Adds the runners' counts up in a table; tensors that no run computed leave it. */
PARE_NODISCARD pare_status pare_calib_add_up(const pare_calib_job *job, pare_ranges *out);

/* --- on a device that can count: one thread feeds two runners in turn --- */

/* Does the device count? */
bool pare_calib_is_there(const pare_calib_job *job);

/* A runner's counts and pixels there; closing waits for what it runs (without a device: nothing).
 */
PARE_NODISCARD pare_status pare_calib_open_there(pare_calib_runner *runner);
void pare_calib_close_there(pare_calib_runner *runner);

/* Runs a batch; its last runs may still be under way. */
PARE_NODISCARD pare_status pare_calib_batch_there(pare_calib_job *job, const pare_batch *batch);

/* Waits for all and brings their counts down. */
PARE_NODISCARD pare_status pare_calib_gather_there(const pare_calib_job *job);

/* Memory of the device, for who watches it: the runners' and the counts'. */
void pare_calib_say_there(const pare_calib_job *job);

#ifdef __cplusplus
}
#endif
#endif
