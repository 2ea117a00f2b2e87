/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that models are served on: each is opened once, by the first model that asks for it, and
   shared by all. Any thread may call. */
#ifndef PARE_TOOLS_SERVE_GPUS_H
#define PARE_TOOLS_SERVE_GPUS_H

#include "runtime/device/device.h"
#include "tools/serve/bodies.h"

#include <pthread.h>

typedef struct pare_gpu {
    pare_device *device;
    /* Of who makes or frees plans on it, what they share of a device is not to be used by two
       threads, and of runs that record, which a free on the same GPU would end. Other runs do not
       wait for it. */
    pthread_mutex_t making;
    pare_bodies pinned; /* memory of requests' bodies */
} pare_gpu;

typedef struct pare_gpus pare_gpus;

/* first: the GPU of models that do not choose one, the caller's; NULL: these are computed on the
   CPU. memory_limit: bytes to use of each of the others at most; 0: all. */
PARE_NODISCARD pare_status pare_gpus_new(pare_ctx *ctx, pare_gpus **out, pare_device *first,
                                         size_t memory_limit);
void pare_gpus_free(pare_gpus *gpus); /* nothing runs on any; or NULL */

/* NULL: models that do not choose are computed on the CPU. */
pare_gpu *pare_gpus_first(pare_gpus *gpus);
/* The GPU of this index; -1: the first, or where there is none that of index 0. PARE_DEVICE: it
   cannot be used. */
PARE_NODISCARD pare_status pare_gpus_get(pare_gpus *gpus, pare_ctx *ctx, pare_gpu **out, int index);
/* The same where it is open already; NULL: it is not. */
pare_gpu *pare_gpus_find(pare_gpus *gpus, int64_t index);
#endif
