/* SPDX-License-Identifier: Apache-2.0 */
/* An accelerator: a backend is a table of functions, a device one opened instance of it, a stream
   an ordered list of work on a device (a stream). Calls that take a stream return before the work
   is done; sync waits for all of it. Memory of a device is not readable by the host. Every call can
   fail with PARE_DEVICE (message: the call and the driver's words) or PARE_MEMORY.
 */
#ifndef PARE_RUNTIME_DEVICE_DEVICE_H
#define PARE_RUNTIME_DEVICE_DEVICE_H

#include "runtime/base/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_device pare_device;
typedef struct pare_stream pare_stream;
typedef struct pare_captured_graph
    pare_captured_graph;              /* work captured from a stream, to be played again */
typedef struct pare_event pare_event; /* a point in a stream's work, with its time */
typedef struct pare_sample_table pare_sample_table;     /* samples.h */
typedef struct pare_training_table pare_training_table; /* training.h */
typedef struct pare_ranks_table pare_ranks_table;       /* ranks.h */

typedef struct pare_backend {
    const char *name; /* "cuda" */
    pare_status (*open)(pare_ctx *ctx, pare_device **out, int index);
    void (*close)(pare_device *device);
    pare_status (*alloc)(pare_ctx *ctx, pare_device *device, void **out, size_t bytes);
    void (*free)(pare_device *device, void *memory); /* NULL is fine */
    pare_status (*upload)(pare_ctx *ctx, pare_stream *stream, void *dst, const void *src,
                          size_t bytes);
    pare_status (*download)(pare_ctx *ctx, pare_stream *stream, void *dst, const void *src,
                            size_t bytes);
    pare_status (*fill)(pare_ctx *ctx, pare_stream *stream, void *dst, int byte, size_t bytes);
    pare_status (*sync)(pare_ctx *ctx, pare_stream *stream);
} pare_backend;

typedef struct pare_stream_table {
    pare_status (*open)(pare_ctx *ctx, pare_device *device, pare_stream **out);
    void (*close)(pare_stream *stream);
    /* From here on what the calling thread makes and computes is of the device: called before work
       that computes is put into one of its streams. Copies need it not. */
    pare_status (*enter)(pare_ctx *ctx, pare_device *device);
    /* Host memory that copies read and write without staging. */
    pare_status (*pin)(pare_ctx *ctx, pare_device *device, void **out, size_t bytes);
    void (*unpin)(pare_device *device, void *memory);
    /* Between the two, work put into the stream is recorded instead of run. */
    pare_status (*capture_begin)(pare_ctx *ctx, pare_stream *stream);
    pare_status (*capture_end)(pare_ctx *ctx, pare_stream *stream, pare_captured_graph **out);
    pare_status (*graph_launch)(pare_ctx *ctx, pare_stream *stream, pare_captured_graph *captured);
    void (*drop)(pare_captured_graph *captured);
    pare_status (*event_open)(pare_ctx *ctx, pare_device *device, pare_event **out);
    void (*event_close)(pare_event *event);
    pare_status (*event_mark)(pare_ctx *ctx, pare_stream *stream, pare_event *event);
    pare_status (*event_wait)(pare_ctx *ctx, pare_stream *stream, pare_event *event);
    /* The host waits until a marked event is reached. */
    pare_status (*event_sync)(pare_ctx *ctx, pare_event *event);
    /* Seconds from one marked event to a later one; both must have been reached. */
    pare_status (*event_seconds)(pare_ctx *ctx, pare_event *from, pare_event *to, double *out);
    /* Names what the calling thread puts into streams from here on, for tools that watch a program;
       ranges nest. NULL: no one can watch. */
    void (*range_begin)(const char *name);
    void (*range_end)(void);
} pare_stream_table;

enum { PARE_SHARING_HANDLE = 64 }; /* bytes */
/* Memory of the device that belongs to another process, which has told its handle. */
typedef struct pare_sharing_table {
    /* *bytes: of all of it. PARE_INPUT: the handle is of no memory of the device, or of memory that
       cannot be had. */
    pare_status (*open)(pare_ctx *ctx, pare_device *device, void **out, size_t *bytes,
                        const void *handle);
    void (*close)(pare_device *device, void *memory); /* no work uses it; NULL is fine */
    /* From memory of the device, opened or its own, to such memory. */
    pare_status (*copy)(pare_ctx *ctx, pare_stream *stream, void *dst, const void *src,
                        size_t bytes);
} pare_sharing_table;

/* Copies from the memory of one device of a backend to that of another. */
typedef struct pare_peer_table {
    /* Lets copies go straight to the memory of `to`. Where the machine has no such way an info line
       says so, and they go by the host. Both may be the same GPU. */
    pare_status (*open)(pare_ctx *ctx, pare_device *to, const pare_device *from);
    /* src: memory of the stream's device; dst: of `to`. */
    pare_status (*copy)(pare_ctx *ctx, pare_stream *stream, const pare_device *to, void *dst,
                        const void *src, size_t bytes);
} pare_peer_table;

struct pare_device {
    const pare_backend *backend;
    const pare_stream_table *streams;
    pare_stream *setup;                  /* for copies while plans are made */
    const pare_sample_table *samples;    /* what it does with samples; NULL: the host does it */
    const pare_training_table *training; /* NULL: it does not train */
    const pare_sharing_table *sharing;   /* NULL: it shares no memory */
    const pare_peer_table *peers;        /* NULL: it copies to no other device */
    const pare_ranks_table *ranks;       /* NULL: the host adds up what several processes have */
    int index;
    char name[256];
    char driver[32];     /* the newest CUDA version it serves: "13.0" */
    char bus[32];        /* where it sits, as its driver's tools name it: "00000000:65:00.0" */
    size_t memory_bytes; /* of the device, or the limit that was set */
    size_t cache;        /* bytes of the L2 that all its work shares */
    bool tf32;           /* f32 products may round their factors to TF32 */
    char versions[128];  /* of the driver and of the libraries that compute; "": not asked yet */
};

struct pare_stream {
    pare_device *device;
};

/* A device copy of host bytes, complete on return. Freed with backend->free. */
PARE_NODISCARD pare_status pare_device_copy(pare_ctx *ctx, pare_device *device, void **out,
                                            const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
