/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of the loss by a model's weights, run by run, in deterministic execution: what a run
   gives depends on model and sample alone, not on how many runs go side by side. The loss is
   softmax cross-entropy against the data's labels or, without them, against the net's own top-1. */
#ifndef PARE_CALIB_GRADIENTS_H
#define PARE_CALIB_GRADIENTS_H

#include "formats/data.h"
#include "runtime/comm/comm.h"
#include "runtime/graph/graph.h"
#include "runtime/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_gradients pare_gradients;

typedef struct pare_gradients_options {
    const char *const *by; /* f32 constants of the model to differentiate by */
    int by_count;
    const int64_t *samples; /* indices to read, in this order */
    int64_t sample_count;
    int threads;         /* runs side by side; 0: all cores */
    pare_device *device; /* where runs are, one after the other; NULL: the CPU. Operators without
                            kernels there run on the CPU between copies. */
    bool top1;           /* against the net's own top-1 even where the data have labels */
    pare_comm *comm;     /* whose failures end the runs (pare_comm_listen); NULL: one process */
} pare_gradients_options;

/* The CPU, all cores. */
void pare_gradients_options_init(pare_gradients_options *out);

/* The model is borrowed and not changed; a run is one sample, or the model's own fixed batch (its
   loss is the mean). PARE_INPUT: the output is no classifier's ([samples, classes] of floats), or
   fewer samples than a fixed batch; PARE_UNSUPPORTED: weights that are not f32. A warning names
   operators through which no gradient flows. */
PARE_NODISCARD pare_status pare_gradients_new(pare_ctx *ctx, pare_gradients **out,
                                              const pare_model *model, pare_data *data,
                                              const pare_gradients_options *options);
void pare_gradients_free(pare_gradients *gradients);

int64_t pare_gradients_runs(const pare_gradients *gradients);

/* Runs first .. first + count - 1; of[r][k] is run r's gradient by tensor k, dense, in its order;
   NULL where none reaches it. */
typedef struct pare_gradients_batch {
    int64_t first;
    int count; /* 0 after the last */
    const float *loss;
    const float *const *const *of;
} pare_gradients_batch;

/* The next runs, valid until the following call. Label out of range: PARE_INPUT. */
PARE_NODISCARD pare_status pare_gradients_next(pare_gradients *gradients,
                                               pare_gradients_batch *out);

#ifdef __cplusplus
}
#endif
#endif
