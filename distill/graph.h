/* SPDX-License-Identifier: Apache-2.0 */
/* What a training runs, for the rows of a microbatch: the teacher, the student with its loss and
   gradients, and the student with its loss alone, for held-out samples. Weights are inputs of the
   latter two (internal to distill/). */
#ifndef PARE_DISTILL_GRAPH_H
#define PARE_DISTILL_GRAPH_H

#include "distill/weights.h"
#include "runtime/exec/batch.h"
#include "runtime/passes/train/gradient.h"
#include "runtime/passes/train/train_batchnorm.h"

/* --- a net's inputs and the data --- */

/* The inputs that must be given, in order: the i-th of them; NULL after the last. */
pare_value *pare_inputs_at(const pare_model *model, int i);
int pare_inputs_count(const pare_model *model);
/* Place among them of the input of this name, or -1. */
int pare_inputs_place(const pare_model *model, const char *name);

/* Gives every input of the model, which takes what the data's input source[i] holds (NULL: in
   order), the data's shape with so many rows. PARE_INPUT: they contradict each other. */
PARE_NODISCARD pare_status pare_inputs_set_rows(pare_ctx *ctx, pare_model *model,
                                                const pare_data *data, const int *source,
                                                int64_t rows);

/* --- the teacher --- */

/* An ordinary inference plan for the rows of a microbatch, deterministic and of one thread, run by
   the thread that loads a microbatch. Order: open, want ..., ready, run ... */
typedef struct pare_teacher {
    pare_ctx *ctx;
    const pare_model *file; /* as it was given */
    pare_model *model;      /* shapes known for `part` rows */
    pare_plan *plan;
    int *source;        /* (its inputs): which of the student's */
    int64_t rows, part; /* of a slice; of one run, which divides them */
    pare_value **wanted;
    int wanted_count;
    size_t wanted_capacity;
    int *input;          /* (plan's inputs): which of its inputs */
    int *output;         /* (wanted): the plan's output */
    pare_replicas *pool; /* a replica for each thread that loads microbatches */
} pare_teacher;

/* The teacher for microbatches of so many rows, a multiple of its own fixed batch. */
PARE_NODISCARD pare_status pare_teacher_open(pare_ctx *ctx, pare_teacher *out,
                                             const pare_model *teacher, const pare_model *student,
                                             const pare_data *data, int64_t rows);
void pare_teacher_free(pare_teacher *teacher);

/* The place of a tensor of its model among those it gives; asked twice, the same. */
PARE_NODISCARD pare_status pare_teacher_want(pare_teacher *teacher, pare_value *value, int *out);
/* Shape of a wanted tensor for the rows of a slice. */
void pare_teacher_shape(const pare_teacher *teacher, int wanted, pare_shape *out);

/* Makes the plan, and runners for so many threads; device: NULL is the CPU. */
PARE_NODISCARD pare_status pare_teacher_ready(pare_teacher *teacher, int threads,
                                              pare_device *device);
/* Makes the plan of one stage of several, and no runner; input[i] is -1 where the stage before
   sends it. Nothing where no tensor is wanted. */
PARE_NODISCARD pare_status pare_teacher_ready_stage(pare_teacher *teacher, int stage, int stages,
                                                    pare_device *device);

/* Runs a slice on the calling thread, which is this worker of those that load microbatches.
   input[i]: rows of the student's input i; output[k] gets wanted tensor k, dense. A failure is
   reported in ctx.
 */
PARE_NODISCARD pare_status pare_teacher_run(pare_teacher *teacher, int worker, pare_ctx *ctx,
                                            const void *const *input, void *const *output);

/* --- the loss as nodes after the student --- */

typedef struct pare_loss_nodes {
    const char *loss;   /* one f32: the mean over the rows of a slice */
    const char *labels; /* the s64 input (rows), or NULL */
    const char *logits; /* (samples, classes, 1 ...), what top-1 is taken of; NULL: the first output
                           is no classifier's */
    int teacher_logits; /* the teacher's, among the tensors wanted of it; -1 */
    int64_t classes;
    pare_value **input; /* (input_count): the graph's input for each tensor of the teacher; NULL:
                           the loss does not read it */
    size_t input_capacity;
    int input_count;
} pare_loss_nodes;

/* Puts the loss after a student whose shapes are inferred for the rows of a slice; what it wants
   of the teacher is asked of it. PARE_INPUT: what the terms compare is
   missing in a net or does not match. */
PARE_NODISCARD pare_status pare_loss_append(pare_model *student, pare_teacher *teacher,
                                            const pare_distill_loss *loss, pare_loss_nodes *out);

/* --- tensors between operators in bf16 and fp16 --- */

/* Tensors of rank 2 and more that a node of the finished training graph makes and another one reads
   are stored as `type` (bf16, f16), weights and inputs of the data are read through it: a Cast
   after what makes them, and one back in front of each reader, which computes in f32. What stays
   f32: what the operator table says does, outputs of the graph and the sums that make them, and
   what the nodes of the loss make, which read what is stored. */
PARE_NODISCARD pare_status pare_precision_store(pare_model *model, pare_dtype type,
                                                pare_node *const *loss, int loss_count);

/* --- the graphs --- */

/* A node that normalizes by its batch, and the running statistics that follow. */
typedef struct pare_batchnorm {
    int sums;           /* the plan's output that holds its sums */
    int mean, variance; /* places among the weights; -1: it is not f32 and stays */
    int64_t channels;
    const pare_tensor *mean0; /* what the sums are made against */
    double momentum;
} pare_batchnorm;

/* Moves running statistics of the block towards those of the batch that was run:
     running = running * momentum + batch * (1 - momentum)     (ONNX BatchNormalization 15) */
void pare_batchnorm_follow(const pare_batchnorm *norm, const pare_weights *weights,
                           const pare_runner *runner);

/* What a plan's input reads. */
typedef enum pare_feed_kind {
    PARE_FEED_DATA,    /* the student's input of this index */
    PARE_FEED_TEACHER, /* a tensor the teacher gives */
    PARE_FEED_LABELS,
    PARE_FEED_LOSS_SCALE,
    PARE_FEED_WEIGHT,
    PARE_FEED_PASSED /* nothing of these: another part of the graph makes it */
} pare_feed_kind;

typedef struct pare_feed {
    pare_feed_kind kind;
    int index;
} pare_feed;

/* Where they are, for one microbatch. */
typedef struct pare_feeds {
    const void *const *input; /* (student's inputs) */
    void *const *given;       /* (wanted of the teacher) */
    const int64_t *label;
    const float *loss_scale, *values; /* values: the weights' block */
    const pare_weights *weights;
} pare_feeds;

/* NULL: PARE_FEED_PASSED. */
const void *pare_feed_find(const pare_feeds *from, const pare_feed *feed);

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
    pare_plan *before;      /* of a stage that has two parts, the first: `plan` is the second; else
                               NULL */
    pare_feed *feed_before; /* (its inputs) */
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
   and PARE_INPUT where none is left; with norms, running statistics enter it. It has no plan yet.
 */
PARE_NODISCARD pare_status pare_train_graph_new(pare_ctx *ctx, pare_train_graph *out,
                                                const pare_model *student, pare_teacher *teacher,
                                                pare_weights *weights, const pare_data *data,
                                                const pare_graph_options *options);
/* Its plan, once the blocks of the weights are open, on the device where they are; values: of this
   block there. */
PARE_NODISCARD pare_status pare_train_graph_plan(pare_train_graph *graph,
                                                 const pare_weights *weights, float *values);
/* One stage of it: which of how many, and how they are cut, as pare_train_graph_split leaves it. */
typedef struct pare_graph_stage {
    int stage, stages;
    const pare_stage_split *split;
} pare_graph_stage;
/* Its plans where it is cut into stages; weights and values: as of pare_train_graph_plan, of this
   stage's weights. */
PARE_NODISCARD pare_status pare_train_graph_plan_stage(pare_train_graph *graph,
                                                       const pare_weights *weights, float *values,
                                                       const pare_graph_stage *of);
/* Cuts a graph that learns, for a GPU or for CPUs: the stage of each weight becomes split->stage,
   whose weights and gradients are those of the graph. PARE_UNSUPPORTED, PARE_INPUT: as of
   pare_plan_options.split. */
PARE_NODISCARD pare_status pare_train_graph_split(pare_train_graph *graph,
                                                  const pare_stage_split *split, int stages,
                                                  bool device);
void pare_train_graph_free(pare_train_graph *graph);

#endif
