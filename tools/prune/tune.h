/* SPDX-License-Identifier: Apache-2.0 */
/* Training after every step of pruning (--distill): what is left learns to give what the
   dense model gives. */
#ifndef PARE_TOOLS_PRUNE_TUNE_H
#define PARE_TOOLS_PRUNE_TUNE_H

#include "distill/training.h"
#include "formats/file.h"
#include "runtime/base/hash.h"
#include "tools/distill/training.h"
#include "tools/prune/prune.h"

typedef struct pare_tuning {
    pare_tool *tool;
    const pare_prune_options *o;
    bool wanted; /* else nothing is trained */
    pare_data *data;
    int64_t *sample, sample_count, *held, held_count; /* trained on; held out. Ascending */
    pare_training_spec spec;
    const char *loss;
    pare_distill_options options; /* of the step in work */
    double rate;                  /* of the last step */
    /* of the model in work */
    char of_sweep[40]; /* begins the names of its checkpoints */
    pare_output *room; /* for its file, until it has trained */
    json_t *steps;
    pare_hash read;
    double seconds;
    int64_t trained;          /* samples in these seconds */
    pare_distill_result last; /* of its latest step */
} pare_tuning;

/* Opens --data for pruning: its samples, 512 where no number is given, ascending. Where there will
   be training, 2 % of those in the range are held out from all of it and from pruning. */
PARE_NODISCARD pare_status pare_tuning_open(pare_tuning *tuning, pare_tool *tool,
                                            const pare_prune_options *o, const pare_model *model,
                                            pare_source *source);
void pare_tuning_close(pare_tuning *tuning);

/* Forgets the last model of a sweep. value: this one's number of the sweep; bytes:
   about the least that its file will have, room that is taken for it until it has trained. */
PARE_NODISCARD pare_status pare_tuning_begin(pare_tuning *tuning, double value, uint64_t bytes);

/* Trains the student of step 1 .. o->steps, in place. kept: part of the cost or of the weights that
   is left; of: what of. Asked to stop, the last step ends with its best so far where one model
   alone is written; else PARE_INTERRUPTED, for there is no model of the size that was asked for.
   With --checkpoint every step keeps a file of its own, step-1.pare, ...: resumed, pruning begins
   again, which is exact, and each training continues from its file, an ended one at its end. */
PARE_NODISCARD pare_status pare_tuning_run(pare_tuning *tuning, const pare_model *teacher,
                                           pare_model *student, int64_t step, double kept,
                                           const char *of);

/* After all is written: PARE_MISSED where the last training was interrupted. */
PARE_NODISCARD pare_status pare_tuning_end(const pare_tuning *tuning);

/* Puts "distilled" into a model's facts. */
void pare_tuning_put(const pare_tuning *tuning, json_t *row);
/* The recipe with what decides the training; NULL: out of memory. */
const char *pare_tuning_recipe(const pare_tuning *tuning, const char *recipe);
/* Hash of what pruning (its text) and training read, to text. */
void pare_tuning_hash(const pare_tuning *tuning, const char *pruning, char text[33]);
/* The samples that weights depend on. */
pare_source pare_tuning_seen(const pare_tuning *tuning, const pare_source *source);
#endif
