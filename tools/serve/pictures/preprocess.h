/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures as a model's input: a client sends PNG or JPEG as strings, the model gets the pixels
   that `pare data import --images` would write, scaled as a data set's reader scales them. */
#ifndef PARE_TOOLS_SERVE_PICTURES_PREPROCESS_H
#define PARE_TOOLS_SERVE_PICTURES_PREPROCESS_H

#include "formats/picture.h"
#include "runtime/graph/graph.h"

struct pare_served;
struct pare_infer_job;

/* What is said of it: "resize 256, crop 224, mean 0.485 0.456 0.406, std 0.229 0.224 0.225". */
typedef struct pare_preprocess_config {
    const char *text;   /* as it was given; NULL: the model takes no pictures */
    const char *input;  /* NULL: the only one that has a picture's form */
    const char *layout; /* "nchw", "nhwc"; NULL: as the input's shape says */
    pare_picture_options picture;
    float mean[3], std[3];
    bool is_scaled; /* mean or std was given */
} pare_preprocess_config;

/* Reads such a text; what is not in it is as `pare data import` has it. Texts live in the arena.
   what: begins a message. PARE_INPUT: a word that is not known, a number that cannot be. */
PARE_NODISCARD pare_status pare_preprocess_parse(pare_arena *arena, pare_preprocess_config *out,
                                                 const char *what, const char *text);

/* How pictures become elements of one of a model's inputs. */
typedef struct pare_preprocess {
    const char *text; /* of the configuration */
    int input;        /* of the model */
    pare_dtype dtype;
    int rank; /* of the model's input: 3 where it takes one picture without an axis of samples */
    pare_picture_options picture;
    size_t size;                /* of an element */
    uint8_t element[3][256][4]; /* what a channel's value becomes */
} pare_preprocess;

/* Makes the model's s->preprocess of its configuration, and its input one of strings: (samples, 1)
   where the model has an axis of samples, else (pictures). PARE_INPUT: no input is like that. */
PARE_NODISCARD pare_status pare_preprocess_bind(struct pare_served *s);

/* Replaces a job's pictures by their pixels, which last until pare_infer_job_release; done once.
   PARE_INPUT: a picture is wrong. PARE_MEMORY: too much is waiting. */
PARE_NODISCARD pare_status pare_preprocess_run(struct pare_infer_job *job);
#endif
