/* SPDX-License-Identifier: Apache-2.0 */
/* How a model is served: what the command line says, and over it what the model's config.pbtxt
   says, a ModelConfig in protobuf's text form. */
#ifndef PARE_TOOLS_SERVE_CONFIG_H
#define PARE_TOOLS_SERVE_CONFIG_H

#include "runtime/graph/graph.h"
#include "tools/serve/batcher.h"
#include "tools/serve/ensemble/ensemble.h"
#include "tools/serve/pictures/preprocess.h"
#include "tools/serve/traffic/sequence_config.h"
#include "tools/serve/traffic/shares.h"

/* An input or output that config.pbtxt names. */
typedef struct pare_config_tensor {
    const char *name;
    pare_dtype dtype;
    pare_shape shape;                 /* without the axis of samples where max_batch is not 0 */
    const char *labels, *labels_path; /* the file with its classes' names, and where it lies; NULL:
                                         there is none */
} pare_config_tensor;

/* Where a model is computed. */
typedef enum pare_instance_kind {
    PARE_KIND_AUTO, /* where the server computes models that do not choose */
    PARE_KIND_CPU,
    PARE_KIND_GPU
} pare_instance_kind;

/* Runs side by side on a GPU. */
typedef struct pare_gpu_group {
    int index;         /* -1: the server's GPU, or the machine's first */
    int64_t instances; /* 0: not said */
    int group;         /* GPUs of one have a stage each of a model that is in stages */
} pare_gpu_group;

enum { PARE_MOST_VERSIONS = 64, PARE_MOST_GPUS = 64 };
typedef struct pare_serve_config {
    int64_t max_batch; /* samples of a request or a batch; 0: inputs have no axis of samples */
    bool is_auto;      /* max_batch is of the command line: for models that have such an axis */
    bool merge;        /* requests become batches */
    bool asks_batches; /* dynamic_batching is given */
    int64_t delay;     /* microseconds that a request waits for others */
    int64_t preferred[PARE_MOST_PREFERRED];
    int preferred_count;
    int64_t instances; /* runs side by side */
    int64_t queue;     /* requests that may wait */
    int64_t wait;      /* microseconds that a request may be expected to wait; 0: any */
    int64_t levels;    /* of priority; 0: priorities are not read */
    int64_t level;     /* of requests that give none */
    int64_t timeout;   /* microseconds a request may wait; 0: for ever */
    bool own_timeout;  /* a request may give another one */
    int64_t latest;    /* versions that are served, the highest; 0: all; -1: those in `specific` */
    int64_t specific[PARE_MOST_VERSIONS];
    int specific_count;
    bool has_policy;    /* version_policy is given; else versions with a weight are served */
    pare_shares shares; /* of requests that name no version; none: the highest has all */
    const char *file;   /* of a version's folder */
    pare_sequence_config sequences;
    pare_preprocess_config preprocess;
    pare_config_step *step; /* (step_count) of an ensemble; 0: it is a model of its own */
    int step_count;
    pare_config_tensor *input, *output;
    int input_count, output_count;
    pare_instance_kind kind;
    int64_t gpu_instances; /* in place of `instances` on the GPU of a model that does not choose */
    pare_gpu_group gpu[PARE_MOST_GPUS]; /* (gpu_count) of KIND_GPU */
    int gpu_count;
    bool is_placed;       /* instance_group says where, not the command line */
    bool is_pipeline;     /* the model is in stages, which lie on a group's GPUs */
    size_t stage_weights; /* bytes of a stage's weights at most; 0: no limit */
} pare_serve_config;

/* The largest version, merging, one batch at a time. */
void pare_serve_config_init(pare_serve_config *out);

/* Changes what the file says. name: of the model's folder, which the file must not contradict.
   PARE_INPUT, PARE_UNSUPPORTED with file and field; PARE_IO. A field that is not read is a warning.
   Texts live in the arena. */
PARE_NODISCARD pare_status pare_serve_config_read(pare_arena *arena, pare_serve_config *config,
                                                  const char *path, const char *name);
/* The same of text in memory. */
PARE_NODISCARD pare_status pare_serve_config_parse(pare_arena *arena, pare_serve_config *config,
                                                   const char *text, size_t bytes, const char *path,
                                                   const char *name);
/* "TYPE_FP32"; text: at least 16 characters. */
const char *pare_config_type_name(pare_dtype dtype, char *text, size_t size);
/* The other way; PARE_NOTYPE: there is no such word. */
pare_dtype pare_config_type_find(const char *name);
#endif
