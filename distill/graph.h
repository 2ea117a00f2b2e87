/* SPDX-License-Identifier: Apache-2.0 */
/* The graphs that training runs, for the rows of a slice: the student with its loss and gradients,
   and the student with its loss alone, for held-out samples. Weights are inputs of both (internal
   to distill/). */
#ifndef PARE_DISTILL_GRAPH_H
#define PARE_DISTILL_GRAPH_H

#include "distill/batchnorm.h"
#include "distill/loss.h"
#include "distill/teacher.h"
#include "distill/weights.h"
#include "runtime/passes/train/gradient.h"
#include "runtime/passes/train/train_batchnorm.h"

/* What a plan's input reads. */
typedef enum pare_feed_kind {
    PARE_FEED_DATA,    /* the student's input of this index */
    PARE_FEED_TEACHER, /* a tensor the teacher gives */
    PARE_FEED_LABELS,
    PARE_FEED_LOSS_SCALE,
    PARE_FEED_WEIGHT
} pare_feed_kind;

typedef struct pare_feed {
    pare_feed_kind kind;
    int index;
    size_t bytes; /* of it */
} pare_feed;

typedef struct pare_train_graph {
    pare_ctx *ctx;
    const pare_model *student; /* as it was given */
    pare_model *model;
    pare_loss_nodes nodes;
    pare_node **loss_node; /* (loss_nodes): what was appended after the student */
    int loss_nodes;
    pare_gradient gradient; /* names by weight */
    pare_plan *plan;
    pare_feed *feed;        /* (plan's inputs) */
    const char *loss_scale; /* the input by which the loss is multiplied; NULL: none */
    int *gradient_at;       /* (weights): the plan's output; -1: the loss does not reach it */
    int loss, logits;       /* the plan's outputs; logits -1: none */
    pare_trained_norms norms;
    pare_batchnorm *norm; /* (norm_count): those that use their batch's statistics */
    int norm_count;
    int64_t rows;
    bool learns;
} pare_train_graph;

typedef struct pare_graph_options {
    const pare_distill_loss *loss;
    bool learn; /* with gradients */
    bool norms; /* BatchNormalization uses its batch's statistics; with learn */
    bool later; /* a graph that learns was made of these weights: they stay the same list */
    pare_train_precision precision;
    int64_t rows;
} pare_graph_options;

/* The student with its loss. Learning, weights that no gradient reaches leave the list: warned of,
   and PARE_INPUT where none is left; with norms, running statistics enter it. */
/* No plan yet. */
PARE_NODISCARD pare_status pare_train_graph_new(pare_ctx *ctx, pare_train_graph *out,
                                                const pare_model *student, pare_teacher *teacher,
                                                pare_weights *weights, const pare_data *data,
                                                const pare_graph_options *options);
/* Its plan, once the blocks of the weights are open, on the device where they are; values: of this
   block there. */
PARE_NODISCARD pare_status pare_train_graph_plan(pare_train_graph *graph,
                                                 const pare_weights *weights, float *values);
void pare_train_graph_free(pare_train_graph *graph);

#endif
