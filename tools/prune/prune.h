/* SPDX-License-Identifier: Apache-2.0 */
/* pare prune: its options, and the ways of pruning after it. */
#ifndef PARE_TOOLS_PRUNE_PRUNE_H
#define PARE_TOOLS_PRUNE_PRUNE_H

#include "prune/score.h"
#include "tools/options.h"
#include "tools/source.h"
#include "tools/distill/training.h"

typedef struct pare_prune_options {
    pare_common common;
    pare_source_options source;
    const char *output;
    const char *report;  /* page (.html) or picture (.svg), or NULL */
    double macs, params; /* fractions that are kept; 0: no such target */
    int64_t size;        /* bytes; 0: none */
    const char *latency; /* "0.6", "3.2ms", or NULL */
    const char *cache;   /* folder of times, or NULL */
    int score, scope;    /* place in pare_score_names, or -1; 1: layer */
    double sparsity;     /* part of the weights that become 0; negative: none */
    const char *nm;      /* "2:4", or NULL */
    const char *sweep;   /* "0.9,0.7", or NULL */
    int64_t steps, min_channels, round, seed;
    const char *distill; /* "kl:2,lr=1e-3,epochs=1" (pare_training_parse), or NULL: no training */
    pare_checkpoint_options checkpoint;
    const char *tensorboard; /* folder, or NULL */
    pare_list keep;
    bool outputs, no_refit, no_permutation, external_data, advise;
} pare_prune_options;

/* --score; BEST where it is not given. */
static inline pare_score pare_prune_score(const pare_prune_options *o)
{
    return (pare_score)(o->score + 1);
}

/* Whole channels to a target: structured.c. */
PARE_NODISCARD pare_status pare_prune_structured(pare_tool *tool, const pare_prune_options *o);

/* Calls each for every number of --sweep with the path of its file; all are read before. */
PARE_NODISCARD pare_status pare_prune_sweep(pare_tool *tool, const pare_prune_options *o,
                                            pare_status (*each)(void *user, double value,
                                                                const char *path),
                                            void *user);

/* Single weights: unstructured.c. */
PARE_NODISCARD pare_status pare_prune_weights(pare_tool *tool, const pare_prune_options *o);
/* "2:4": of m weights n stay, 1 <= n < m. */
PARE_NODISCARD pare_status pare_prune_parse_nm(pare_ctx *ctx, const char *text, int *n, int *m);
#endif
