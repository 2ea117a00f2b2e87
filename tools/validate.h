/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison of models from the command line: files, cached outputs, progress, facts. */
#ifndef PARE_TOOLS_VALIDATE_H
#define PARE_TOOLS_VALIDATE_H

#include "runtime/eval/eval.h"
#include "tools/model_facts.h"
#include "tools/progress.h"
#include "tools/reference.h"
#include "tools/source.h"

/* One model in it; the first is what the others are compared with. */
typedef struct pare_validated {
    pare_model *model;
    pare_model_facts facts;
    json_t *steps; /* of pare_profile_steps, where validation.profile asks, or NULL */
    char hash[33]; /* of the file, or "" */
} pare_validated;

typedef struct pare_validation {
    pare_tool *tool;
    pare_validated *model;
    int count;
    bool any_accuracy; /* do not stop near chance */
    bool shared;       /* ranks share each model, as this says, in place of the samples: */
    pare_parallel parallel;
    bool profile;      /* pare_validation_time notes each step's time, too */
    const char *data;  /* file, for messages */
    const char *cache; /* folder where the first model's outputs are kept, or NULL */
    pare_comparison *comparison;
    pare_progress bar;
    bool complete; /* all samples were run */
    int timed_threads;
} pare_validation;

/* Reads validation->count models; the others must have as many outputs as the first. */
PARE_NODISCARD pare_status pare_validation_open(pare_validation *validation,
                                                const char *const *path);
void pare_validation_close(pare_validation *validation);

/* Runs the source's samples through all models; says before how much memory that needs. */
PARE_NODISCARD pare_status pare_validation_run(pare_validation *validation,
                                               const pare_source *source,
                                               const pare_source_options *options);

/* pare_comparison_time; source may be NULL. */
PARE_NODISCARD pare_status pare_validation_time(pare_validation *validation,
                                                const pare_source *source, int threads);

/* [{file, precision, bytes, top1, ...}], see facts.schema.json; NULL: out of memory. */
json_t *pare_validation_json(const pare_validation *validation);
#endif
