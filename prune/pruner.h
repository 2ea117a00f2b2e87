/* SPDX-License-Identifier: Apache-2.0 */
/* Pruning of channels to a size or a latency as one object: scores, the search for what goes, the
   refit of what stays, steps with training between them, and the smaller model.

   pare_pruner_options options;
   pare_pruner_options_init(&options);
   options.by = PARE_PRUNE_BY_LATENCY;
   pare_prune_prepare(ctx, model);
   pare_pruner_new(ctx, &pruner, model, &options);
   pare_pruner_run(pruner, 0.5, &smaller);    again with other goals: a sweep
   pare_pruner_time(pruner, smaller);         what the smaller model takes */
#ifndef PARE_PRUNE_PRUNER_H
#define PARE_PRUNE_PRUNER_H

#include "prune/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_pruner pare_pruner;

/* What is made small. */
typedef enum pare_prune_by {
    PARE_PRUNE_BY_MACS,   /* the goal is the part of the dense model's multiply-adds that is kept */
    PARE_PRUNE_BY_PARAMS, /* ... of its parameters */
    PARE_PRUNE_BY_LATENCY, /* ... of its time */
    PARE_PRUNE_BY_SIZE,    /* the goal is a number of bytes */
    PARE_PRUNE_BY_SECONDS  /* the goal is the time of a run */
} pare_prune_by;

typedef struct pare_pruner_options {
    pare_prune_by by;
    pare_score score; /* BEST: see pare_score */
    bool per_layer;   /* equal fractions of every layer; else all layers compete */
    bool outputs;     /* channels of the model's outputs may go */
    int64_t steps;    /* to the goal by equal factors, scored and refitted again each time */
    int64_t min_channels, round; /* a layer keeps so many channels, and a multiple of this */
    uint64_t seed;               /* of score RANDOM */
    const char *const *keep;     /* patterns of nodes whose channels stay (pare_pattern_mark) */
    int keep_count;
    uint64_t file_bytes; /* BY_SIZE: of the dense model's file; 0: only payloads count */

    pare_data *data; /* samples to score and refit on; NULL: by the weights alone */
    const int64_t *samples;
    int64_t sample_count;
    bool refit; /* with data: what stays is fitted to what the dense model computes */

    int threads;           /* 0: all cores */
    pare_device *device;   /* NULL: the CPU */
    pare_comm *comm;       /* see pare_score_data; not with latency or training */
    const char *cache_dir; /* of times, by latency; NULL: nothing on disk */

    /* Trains the smaller model of step 1 .. steps, in place; kept: part of the cost that is left.
       Not with latency. NULL: nothing is trained. */
    pare_status (*train)(void *user, const pare_model *dense, pare_model *smaller, int64_t step,
                         double kept);
    void *train_user;

    /* Long work begins (what: "refit", of unit "layers"), moves on, and ends (NULL, NULL). */
    void (*phase)(void *user, const char *what, const char *unit);
    void (*progress)(void *user, int64_t done, int64_t all);
    void *progress_user;
} pare_pruner_options;

/* By multiply-adds in one step, BEST score, refit where there are data, at least one channel. */
void pare_pruner_options_init(pare_pruner_options *options);

/* By latency: parts of the dense model's time, of the last run. */
typedef struct pare_pruner_latency {
    double goal, forecast, measured;
    double before_ms, after_ms; /* of a run */
    double fixed;               /* in steps that no removal makes shorter */
    bool met;                   /* measured is near the goal */
    bool stable;                /* medians say the same as the quickest runs */
    bool at_limit;              /* nothing more could go */
    int rounds;                 /* searches */
    int64_t shapes_measured;    /* by all runs */
} pare_pruner_latency;

/* What a run came to. */
typedef struct pare_pruner_facts {
    const pare_groups *groups;
    const pare_prune_plan *plan; /* of the last run; plan->cost: what is left */
    pare_score score;            /* that ranked, never BEST */
    bool refits;
    pare_prune_cost before;            /* of the dense model */
    double cost_before, goal, reached; /* of what is made small */
    pare_unstructured_facts refitted;  /* of layers that a refit changed */
    char data_hash[33];                /* of the samples that were read; "": none */
    pare_pruner_latency latency;
} pare_pruner_facts;

/* model: prepared (pare_prune_prepare). Its weights change in a run; it must outlive the pruner and
   the smaller models. With refit its BatchNormalization is folded. By latency the dense model is
   compiled and timed here. options and what they point to are borrowed. PARE_INPUT: there is
   nothing to remove; the message says why. */
PARE_NODISCARD pare_status pare_pruner_new(pare_ctx *ctx, pare_pruner **out, pare_model *model,
                                           const pare_pruner_options *options);
void pare_pruner_free(pare_pruner *pruner); /* NULL is fine */

/* Makes a smaller model, which the caller frees before the pruner. The nearest that can be had
   where the goal is out of reach, with a warning. Afterwards the pruner's own model has the
   weights that it began with. */
PARE_NODISCARD pare_status pare_pruner_run(pare_pruner *pruner, double goal, pare_model **smaller);
/* Of the last run; in the pruner. */
const pare_pruner_facts *pare_pruner_result(const pare_pruner *pruner);

/* By latency: times the smaller model against the dense one, and each step of both. */
PARE_NODISCARD pare_status pare_pruner_time(pare_pruner *pruner, const pare_model *smaller);
/* Seconds that a node of the dense model takes before and after; false where they are not known. */
bool pare_pruner_step_seconds(const pare_pruner *pruner, const pare_node *node, double *before,
                              double *after);

#ifdef __cplusplus
}
#endif
#endif
