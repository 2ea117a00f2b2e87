/* SPDX-License-Identifier: Apache-2.0 */
/* Several models on the same samples: accuracy with labels, error against the first model always,
   and what the difference means. */
#ifndef PARE_TOOLS_VALIDATE_H
#define PARE_TOOLS_VALIDATE_H

#include "tools/model_facts.h"
#include "runtime/eval/eval.h"
#include "tools/times.h"
#include "tools/reference.h"
#include "tools/source.h"
#include "runtime/eval/stats.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_CONTEST_PARTS = 256 }; /* sample i is in part i % 256; what intervals draw from */

/* One model in the comparison; the first is what the others are compared with. */
typedef struct pare_contender {
    pare_model *model;
    pare_model_facts facts;
    pare_predictor *predictor;
    pare_error_sums *error;     /* (outputs) against the first */
    pare_error_sums *part;      /* (PARE_CONTEST_PARTS) the same of the first output, by sample */
    int64_t top1, top5, agreed; /* hits; same first class as the first model */
    pare_paired paired;         /* top-1 hits: the first model, this one */
    json_t *steps;              /* of pare_profile_steps, where contest.profile asks, or NULL */
    json_t *latency;            /* of pare_times_json at batch 1 (or the model's own), or NULL */
    pare_interval speed_up;     /* against the first, where latency is; NaN: too few runs */
    char hash[33];              /* of the file, or "" */
} pare_contender;

typedef struct pare_contest {
    pare_tool *tool;
    pare_contender *contender;
    int count;
    int64_t samples, classes; /* seen so far; 0 classes: no labels, or no output of classes */
    bool any_accuracy;        /* do not stop near chance */
    bool profile;             /* pare_contest_time notes each step's time, too */
    const char *data;         /* file, for messages */
    const char *cache;        /* folder where the first model's outputs are kept, or NULL */
    pare_reference *reference;
    const pare_rows *kept; /* of this batch: the first model's outputs, or NULL: it was run */
} pare_contest;

/* Reads contest->count models; the others must have as many outputs as the first. */
PARE_NODISCARD pare_status pare_contest_open(pare_contest *contest, const char *const *path);
void pare_contest_close(pare_contest *contest);

/* Plans all models and runs the source's samples through them; says before how much memory that
   needs. */
PARE_NODISCARD pare_status pare_contest_run(pare_contest *contest, const pare_source *source,
                                            const pare_source_options *options,
                                            const pare_common *common);

/* Runs one batch through every model; seen: the reader's hash up to its end. PARE_INPUT: a label
   out of range; the first model's accuracy is near chance (asked once enough samples were seen). */
PARE_NODISCARD pare_status pare_contest_batch(pare_contest *contest, const pare_batch *batch,
                                              pare_hash seen);

/* After the last batch: asks once more whether accuracy is near chance. */
PARE_NODISCARD pare_status pare_contest_finish(pare_contest *contest);

/* Latency of every model at batch 1, measured in turns so that all meet the same machine: at least
   8 rounds of a tenth of a second each, until the last three rounds of each model agree, at most
   16. threads 0: one, which other work on the machine disturbs least. source NULL: models are run
   at the shapes they have, batch 1; PARE_INPUT where another dim is unknown. */
PARE_NODISCARD pare_status pare_contest_time(pare_contest *contest, const pare_source *source,
                                             int threads);

/* [{file, precision, bytes, top1, ...}], see facts.schema.json; NULL: out of memory. */
json_t *pare_contest_json(const pare_contest *contest);

#ifdef __cplusplus
}
#endif
#endif
