/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a model for a list of samples, pass by pass, in deterministic execution: what a pass
   shows depends on model and sample alone. A pass can keep what it computed; later passes then
   begin at the kept tensors in place of the model's inputs, so that a walk through the layers of a
   model computes each node about once. */
#ifndef PARE_CALIB_CAPTURE_H
#define PARE_CALIB_CAPTURE_H

#include "formats/data.h"
#include "runtime/comm/comm.h"
#include "runtime/graph/graph.h"
#include "runtime/device/device.h"

typedef struct pare_capture pare_capture;

typedef struct pare_capture_options {
    const int64_t *samples; /* indices to read, in this order */
    int64_t sample_count;
    int threads;         /* runs side by side; 0: all cores */
    pare_device *device; /* NULL: the CPU */
    size_t room;         /* bytes that kept tensors may take */
    int batch_runs;      /* of a batch, at most; 0: as many as have room */
    /* A flow of the same samples through another model. What it keeps now serves this flow, too,
       where both models compute it by equal nodes from equal constants. Borrowed; or NULL. */
    const pare_capture *begin_at;
    pare_comm *comm; /* whose failures end a pass (pare_comm_listen); NULL: one process */
} pare_capture_options;

/* A flow through a model, whose weights may change between passes; both are borrowed. */
PARE_NODISCARD pare_status pare_capture_new(pare_ctx *ctx, pare_capture **out,
                                            const pare_model *model, pare_data *data,
                                            const pare_capture_options *options);
void pare_capture_free(pare_capture *flow);
/* Hash of the samples read, once a whole pass began at the data. */
bool pare_capture_hash(const pare_capture *flow, pare_hash *out);

/* What flows through a model weigh, by its inferred shapes (a size that is not known counts as 1).
 */
typedef struct pare_capture_sizes {
    double all, largest; /* bytes in one run: of all tensors that nodes make, of the largest */
    int runs;            /* side by side: as many as have room, one a thread at least */
} pare_capture_sizes;
pare_capture_sizes pare_capture_sizes_of(const pare_model *model, int threads);

/* Runs of all samples: one a sample, or one per batch of a model whose batch is fixed. */
int64_t pare_capture_runs(const pare_capture *flow);

/* Runs `first` to `first + count - 1` of the pass: tensor k of run r is at value[k] + r * size[k],
   r < count, dense row-major f32. */
typedef struct pare_capture_batch {
    int64_t first;
    int count; /* 0 after the last */
    const float *const *value;
    const int64_t *size;
} pare_capture_batch;

/* Begins a pass that shows these tensors (f32, f16 or bf16, not constant); keep[k] (keep NULL:
   none) asks to keep tensor k for later passes. What is not f32, or the room does not hold, is not
   kept and computed again. */
PARE_NODISCARD pare_status pare_capture_begin(pare_capture *flow, const char *const *names,
                                              const bool *keep, int count);
/* Shapes in a run of the tensors of the pass. */
const pare_shape *pare_capture_shape(const pare_capture *flow, int k);
/* The next runs, valid until the following call. Flows of the same samples through models of the
   same shapes, with as many threads or an equal batch_runs, show the same runs. */
PARE_NODISCARD pare_status pare_capture_next(pare_capture *flow, pare_capture_batch *out);

/* Ends the pass: what it ran with goes, kept tensors stay. */
void pare_capture_end(pare_capture *flow);
/* Forgets kept tensors that computing these names does not begin at. */
PARE_NODISCARD pare_status pare_capture_forget(pare_capture *flow, const char *const *names,
                                               int count);
#endif
