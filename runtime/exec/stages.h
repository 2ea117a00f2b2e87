/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline parallelism (Huang et al. 2019, "GPipe", NeurIPS): the nodes of a compiled graph, in the
   order in which they run, are cut into consecutive stages, and each process runs one of them on
   one microbatch while the others run theirs on other microbatches.

   A gradient graph has a forward half, which the loss needs, and a backward half. The forward half
   is cut, and a node of the backward half belongs to the stage of the weights that it reads or
   whose gradient it makes. Of S stages the parts are, in the order in which a microbatch passes:
   forward 0, 1, .., S - 2, both halves of S - 1, backward S - 2, .., 0. So part p belongs to stage
   p or, from S on, 2 S - 2 - p. */
#ifndef PARE_RUNTIME_EXEC_STAGES_H
#define PARE_RUNTIME_EXEC_STAGES_H

#include "runtime/exec/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_MOST_STAGES = 1024 };

typedef struct pare_plan_stage {
    int first, count; /* positions of its nodes in the graph */
    int steps;        /* of them that run: those that give a tensor another shape do not */
    double macs;
    size_t weights; /* bytes of the constants that its nodes read; two stages may have the same */
    size_t sent;    /* bytes of the tensors that cross to the next stage, or that are the outputs */
    double cost;    /* of a run and of sending: relative, as bytes of memory moved (stages.c) */
} pare_plan_stage;

typedef struct pare_cut_options {
    int stages;
    bool device;                   /* costs are a GPU's */
    size_t weights;                /* bytes of a stage's weights at most; 0: no limit */
    int nodes;                     /* the first so many nodes of the graph are cut; 0: all */
    const pare_stage_split *split; /* (exec.h) or NULL */
} pare_cut_options;

/* One stage, a CPU's costs, no limit. */
void pare_cut_options_init(pare_cut_options *out);

/* Cuts a sorted graph whose shapes are known such that the costliest stage costs least; where
   several cuts do, few bytes cross. A tensor that a later stage reads crosses every cut on its way.
   out: (stages). PARE_INPUT: the graph has fewer places to be cut at than stages; weights are too
   many. */
PARE_NODISCARD pare_status pare_graph_cut(const pare_graph *graph, const pare_cut_options *options,
                                          pare_plan_stage *out);

/* The tensors that cross before node `at`, in the order in which they are made, graph inputs first;
   before 0 all graph inputs, behind the last node the graph outputs in their own order. The list
   lives in the arena. */
PARE_NODISCARD pare_status pare_graph_crossing(const pare_graph *graph, int at, pare_arena *arena,
                                               pare_value ***out, int *count);

/* The share of time, in [0, 1), that the stages wait while so many microbatches pass: of the
   schedule in which each stage works on them in order, as soon as it can, and the first begins one
   when at most `window` of them are under way (0: no limit). For equal stages without a limit it is
   (stages - 1) / (microbatches + stages - 1). finish: scratch (window or microbatches, the smaller
   that is not 0) numbers. */
PARE_NODISCARD pare_status pare_stages_bubble(pare_ctx *ctx, double *out, const double *cost,
                                              int stages, int64_t microbatches, int window);

/* Of a plan that is one stage (pare_plan_options.stages): all stages of its model; else NULL. */
const pare_plan_stage *pare_plan_stages(const pare_plan *plan, int *count);
/* Of one that is a part of a split graph: its first inputs are what the part before sends, its
   first outputs what the next part is sent. */
void pare_plan_part_ends(const pare_plan *plan, int *received, int *sent);

#ifdef __cplusplus
}
#endif
#endif
