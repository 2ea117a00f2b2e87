/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the processes (ranks) of a job of what is in their devices' memory, from device to
   device. All ranks call the same functions in the same order; who they are, and that none has
   failed, they agree on by other means before. */
#ifndef PARE_RUNTIME_DEVICE_RANKS_H
#define PARE_RUNTIME_DEVICE_RANKS_H

#include "runtime/base/types.h"
#include "runtime/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_device_ranks pare_device_ranks;

enum { PARE_RANKS_ID = 128 }; /* bytes of what ranks find each other by */

typedef struct pare_ranks_options {
    int rank, size;
    size_t room;    /* bytes of the device that a sum may take beside the data, at least 8 */
    double seconds; /* the others join, or leave, within so many */
} pare_ranks_options;

/* Messages name no rank: who hands them on does. */
struct pare_ranks_table {
    /* Names the library and its version: "nccl 2.27.3". PARE_UNSUPPORTED where there is none, or an
       older one than is needed. */
    pare_status (*find)(pare_ctx *ctx, char *library, size_t bytes);
    /* In one rank, which gives it to the others: what they join by. PARE_IO: the library failed. */
    pare_status (*make_id)(pare_ctx *ctx, void *id);
    /* In all. PARE_IO: the library failed, a rank did not come; the ranks that joined then close.
     */
    pare_status (*open)(pare_ctx *ctx, pare_device_ranks **out, pare_device *device, const void *id,
                        const pare_ranks_options *options);
    /* After all work on them is done, or one of the next two failed; NULL is fine. */
    void (*close)(pare_device_ranks *ranks);
    /* Puts into the stream: data, (count) f32 or f64, become their sum over all ranks, in each, in
       the order of runtime/base/rank_sum.h. */
    pare_status (*sum)(pare_ctx *ctx, pare_device_ranks *ranks, pare_stream *stream,
                       pare_dtype dtype, void *data, size_t count);
    /* Waits for the stream, but not for a rank that is gone. PARE_IO: one is, or the library
       failed. */
    pare_status (*wait)(pare_ctx *ctx, pare_device_ranks *ranks, pare_stream *stream);
};

#ifdef __cplusplus
}
#endif
#endif
