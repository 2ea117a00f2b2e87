/* SPDX-License-Identifier: Apache-2.0 */
/* A model made of served models: each step is a request to one of them, begun as soon as its inputs
   are there, through that model's own queue. Tensors go from step to step as they are. */
#ifndef PARE_TOOLS_SERVE_ENSEMBLE_ENSEMBLE_H
#define PARE_TOOLS_SERVE_ENSEMBLE_ENSEMBLE_H

#include "runtime/graph/graph.h"

#include <jansson.h>

struct pare_served;
struct pare_infer_job;

enum { PARE_MOST_STEPS = 256 };

/* An entry of a step's input_map or output_map. */
typedef struct pare_config_link {
    const char *port, *tensor; /* the model's name, the ensemble's name */
} pare_config_link;

/* A step as config.pbtxt has it. */
typedef struct pare_config_step {
    const char *model;
    int64_t version; /* below 1: the highest that is ready */
    pare_config_link *input, *output;
    int input_count, output_count;
} pare_config_step;

/* A tensor of the ensemble: of a request, or made by a step. */
typedef struct pare_ensemble_tensor {
    const char *name;
    int maker; /* the step; -1: it comes with the request */
    /* while it is checked; rank -1: unknown */
    bool known;
    pare_dtype dtype;
    pare_shape shape;
} pare_ensemble_tensor;

typedef struct pare_ensemble_step {
    const char *model;
    int64_t version;
    const char **input_name, **output_name; /* the model's names */
    int *input, *output;                    /* the tensors they are */
    int input_count, output_count;
} pare_ensemble_step;

typedef struct pare_ensemble {
    pare_ensemble_tensor *tensor; /* those of the request first, as s->input */
    int tensor_count;
    pare_ensemble_step *step;
    int step_count;
    int *output; /* (s->output_count) the tensors they are */
} pare_ensemble;

/* Makes the model an ensemble of its configuration, whose texts it copies. PARE_INPUT with path,
   step and tensor: a model is not there, names, types or shapes do not fit, steps wait for each
   other. */
PARE_NODISCARD pare_status pare_ensemble_fill(struct pare_served *s);

/* check.c: do steps and models fit? */
PARE_NODISCARD pare_status pare_ensemble_check(struct pare_served *s);

/* run.c: answers the job, now or later, and releases the model's reference. */
void pare_ensemble_run(struct pare_infer_job *job);

/* The member "ensemble_scheduling" of its ModelConfig. */
json_t *pare_ensemble_json(const pare_ensemble *ensemble);
#endif
