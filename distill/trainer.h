/* SPDX-License-Identifier: Apache-2.0 */
/* A training while it runs (internal to distill/). */
#ifndef PARE_DISTILL_TRAINER_H
#define PARE_DISTILL_TRAINER_H

#include "distill/augment.h"
#include "distill/checkpoint.h"
#include "distill/graph.h"
#include "distill/optimizer.h"
#include "runtime/device/ranks.h"

/* --- several processes, ranks, that train together (ranks.c) --- */

/* Gradients that ranks add at a time: what a rank needs beside them is no more. */
enum { PARE_GRADIENT_BUCKET = 1 << 18 };

/* What each number is in one rank, and 0 in the others, it becomes in all. */
PARE_NODISCARD pare_status pare_ranks_join(pare_comm *comm, double *x, int64_t count);

/* How sums travel between ranks. */
typedef struct pare_rank_sums {
    pare_ctx *ctx;
    pare_comm *comm; /* NULL: one rank */
    pare_device *device;
    pare_device_ranks *there; /* from device to device; NULL: the hosts add up, by MPI */
    size_t room;              /* bytes of the device for that */
    char transport[32];       /* "nccl 2.27.3", "mpi"; "": one rank */
} pare_rank_sums;

/* From device to device where every rank can, each on a GPU of its own, by one version of NCCL;
   else an info line says why not. floats: of the gradients. */
PARE_NODISCARD pare_status pare_rank_sums_open(pare_ctx *ctx, pare_rank_sums *out, pare_comm *comm,
                                               pare_device *device, size_t floats);
void pare_rank_sums_close(pare_rank_sums *sums);
/* The sum over ranks in the tree of tree_sum.h, in all of them: of (count) f32 or f64 of the host.
   user: pare_rank_sums; the function is that of pare_replicas_options. */
PARE_NODISCARD pare_status pare_ranks_sum(void *user, pare_dtype dtype, void *x, int64_t count);
/* The sum over ranks of y, (count) f32 or f64 of the device, after what is in the stream; complete
   on return. user: pare_rank_sums, with `there`; the function is that of pare_replicas_options. */
PARE_NODISCARD pare_status pare_rank_sums_make(void *user, pare_stream *stream, pare_dtype dtype,
                                               void *y, int64_t count);

/* --- a graph on the microbatches of a batch --- */

/* Called in order of microbatches, one at a time. teacher[k]: what the teacher gave for the slice.
 */
typedef pare_status (*pare_microbatch_fn)(void *user, int slice, const pare_runner *runner,
                                          void *const *teacher);

/* overlap.c, device_overlap.c */
typedef struct pare_overlap pare_overlap;
typedef struct pare_device_overlap pare_device_overlap;

typedef struct pare_microbatches {
    pare_ctx *ctx;
    pare_ctx run; /* of the pool: while it runs, sums over ranks may fail in ctx */
    const pare_train_graph *graph;
    pare_teacher *teacher;
    const pare_weights *weights;
    pare_comm *comm; /* of the ranks; NULL: one */
    pare_rank_sums *sums;
    pare_overlap *overlap;               /* NULL: sums over ranks are made when a batch has run, */
    pare_device_overlap *device_overlap; /* unless this is not NULL */
    pare_replicas *pool;
    int count;                     /* microbatches of a batch that this rank runs */
    void **given;                  /* (count, wanted of the teacher) */
    size_t *sample;                /* (student's inputs): bytes of one sample */
    int input_count;               /* of the student */
    const void **input;            /* (count, inputs): where a slice's samples begin */
    float loss_scale;              /* of FP16; else 1 */
    pare_batch learnt;             /* what was learnt from last */
    struct pare_source *source_of; /* (source_count): where runners leave gradients on a device */
    int source_count;
    /* of the run in progress */
    const pare_batch *batch;
    const pare_augmented *augmented; /* with the batch they are made of; NULL: as read */
    const pare_loader_batch *source;
    const float *values;
    bool learns; /* the batch's gradients are wanted */
    int full;    /* microbatches that the batch has data for */
    pare_microbatch_fn take;
    void *user;
} pare_microbatches;

typedef struct pare_trainer pare_trainer;

/* graph: one of the trainer's, with a plan. */
PARE_NODISCARD pare_status pare_microbatches_open(pare_trainer *trainer, pare_microbatches *out,
                                                  const pare_train_graph *graph);
void pare_microbatches_free(pare_microbatches *microbatches);

/* Gradients and loss of batch 0, 1, ... of a step, its images augmented; *loss: its sum over all
   ranks' microbatches. After the last batch the weights' block has the gradients of the step. */
PARE_NODISCARD pare_status pare_microbatches_learn(pare_microbatches *microbatches,
                                                   pare_weights *weights,
                                                   const pare_loader_batch *batch,
                                                   const pare_augmented *augmented, int index,
                                                   double *loss);

/* gradients.c: the sum of gradients that a step is made of. Microbatches in their order, and after
   the last of a batch its end. */
PARE_NODISCARD pare_status pare_gradients_open(pare_microbatches *microbatches);
void pare_gradients_close(pare_microbatches *microbatches);
PARE_NODISCARD pare_status pare_gradients_add(pare_microbatches *microbatches,
                                              const pare_weights *weights, int slice,
                                              const pare_runner *runner);
PARE_NODISCARD pare_status pare_gradients_end_batch(pare_microbatches *microbatches,
                                                    const pare_weights *weights, int batch);

/* Where a runner leaves the gradients on its device, for the device's training table. */
PARE_NODISCARD pare_status pare_gradients_find(pare_microbatches *microbatches,
                                               const pare_weights *weights,
                                               const pare_runner *runner, void **out);

/* The gradient of one weight, on the host. */
void pare_gradients_add_weight(const pare_microbatches *microbatches, const pare_weights *weights,
                               int weight, int slice, const pare_runner *runner);

/* overlap.c: sums over ranks that begin before a batch has run. Nothing on a device, in one rank,
   with batch statistics, where there is one bucket or one thread. */
PARE_NODISCARD pare_status pare_overlap_open(pare_microbatches *microbatches, pare_weights *weights,
                                             int threads);
void pare_overlap_close(pare_overlap *overlap);
/* A batch begins, or ends with this status of its run: its own failure, or that of a sum. NULL is
   fine. */
void pare_overlap_begin(pare_overlap *overlap);
PARE_NODISCARD pare_status pare_overlap_end(pare_overlap *overlap, pare_status status);
/* A replica is to run a microbatch; NULL is fine. */
void pare_overlap_load(pare_overlap *overlap, int replica, int slice);
/* In place of pare_gradients_add: adds what was not added yet. */
void pare_overlap_take(pare_overlap *overlap, int slice, const pare_runner *runner);

/* device_overlap.c: the same from GPU to GPU. Nothing in one rank, by way of the hosts, with batch
   statistics, where there is one bucket. */
PARE_NODISCARD pare_status pare_device_overlap_open(pare_microbatches *microbatches,
                                                    const pare_weights *weights);
void pare_device_overlap_close(pare_device_overlap *overlap); /* NULL is fine */
/* How many sums over ranks a batch has from GPU to GPU, in a job of one rank, too. */
int pare_device_overlap_sums(const pare_microbatches *microbatches, const pare_weights *weights);
/* In place of pare_runner_run and pare_gradients_add for the last microbatch of a batch, whose
   gradients are then those of all ranks. */
PARE_NODISCARD pare_status pare_device_overlap_run(pare_device_overlap *overlap,
                                                   pare_runner *runner, int slice);

/* Fails with the first node whose result is not finite when the batch last learnt from is run
   again, in the first rank that has one; what: the reason for the search ("step 3: the loss is
   NaN"); hint: what to do. */
PARE_NODISCARD pare_status pare_microbatches_find_nonfinite(pare_microbatches *microbatches,
                                                            const char *what, const char *hint);

/* --- a training by pipeline (options.pipeline) --- */

/* stage_weights.c: which weights a rank has. Its trainer's list holds them alone. */
typedef struct pare_stage_weights {
    pare_weights all;      /* the list that one process has, laid out, without blocks */
    int *own;              /* (all.count) its place in this rank's list; -1 */
    int count;             /* of what the cut places: weights, then what the last stage is given */
    int *stage;            /* (count) */
    const char **name;     /* (count) */
    const char **gradient; /* (count) names in the graph that learns */
    float *passing;        /* the largest of them */
} pare_stage_weights;

/* Cuts the graph that learns and leaves this rank's weights in the trainer's list. Errors are those
   of pare_train_graph_split. */
PARE_NODISCARD pare_status pare_stage_weights_open(pare_trainer *trainer);
void pare_stage_weights_free(pare_stage_weights *weights);
pare_stage_split pare_stage_weights_split(const pare_stage_weights *weights);
/* All weights, whoever has them. */
const pare_weights *pare_trainer_all_weights(const pare_trainer *trainer);
/* Every rank's part of a block of all weights comes to rank 0: x, all of one weight, valid during
   the call, in the order of all. A failure of `take` is told once all ranks have sent all. */
typedef pare_status (*pare_weight_fn)(void *user, int weight, const float *x);
PARE_NODISCARD pare_status pare_stage_weights_gather(const pare_trainer *trainer, const float *own,
                                                     pare_weight_fn take, void *user);
/* And back: all, in rank 0 alone, is the bytes of such a block in a map of a file, whose pages are
   given back. All ranks call both. */
PARE_NODISCARD pare_status pare_stage_weights_scatter(const pare_trainer *trainer, const void *all,
                                                      float *own);
/* The sum over all weights of a number for each of this rank's, in the order of all. */
PARE_NODISCARD pare_status pare_stage_weights_sum(const pare_trainer *trainer, const double *own,
                                                  double *out);
/* The same of a number for each chunk of this rank's weights, as a device adds them up. */
PARE_NODISCARD pare_status pare_stage_weights_sum_chunks(const pare_trainer *trainer,
                                                         const double *own, double *out);

/* pipeline.c: batches. All ranks call each of these, and read the same samples. */
typedef struct pare_train_pipeline pare_train_pipeline;

/* Once the trainer has its plans and weights. */
PARE_NODISCARD pare_status pare_train_pipeline_open(pare_trainer *trainer);
/* All ranks call it, once they have settled: it waits for its neighbours. */
void pare_train_pipeline_free(pare_train_pipeline *pipeline);
const pare_pipeline_plan *pare_train_pipeline_planned(const pare_train_pipeline *pipeline);
/* Of this rank: activations and what plans hold, where it computes; messages and what the teacher
   gave, the host's, are added to *messages. */
size_t pare_train_pipeline_bytes(const pare_train_pipeline *pipeline, size_t *messages);
/* As pare_microbatches_learn. */
PARE_NODISCARD pare_status pare_train_pipeline_learn(pare_train_pipeline *pipeline,
                                                     const pare_loader_batch *batch,
                                                     const pare_augmented *augmented, int index,
                                                     double *loss);
/* Runs held-out samples with this rank's values; the last rank takes the microbatches. */
PARE_NODISCARD pare_status pare_train_pipeline_check(pare_train_pipeline *pipeline,
                                                     const pare_batch *batch, const float *values,
                                                     pare_microbatch_fn take, void *user);

/* --- all that a training holds --- */

struct pare_trainer {
    pare_ctx *ctx;
    pare_distill_options options; /* threads, warmup and validate_every settled */
    const pare_model *teacher_file, *student;
    pare_data *data;
    int64_t rows, batch;              /* of a slice, of a batch */
    int microbatch_count;             /* of a batch */
    int own_count, own_first;         /* of this rank, and before them */
    int64_t *sample, sample_count;    /* that are trained on */
    pare_data *held_out;              /* the data that held-out samples are of */
    int64_t *held_sample, held_count; /* whole microbatches */
    bool held_labels; /* they have labels, and all of these are classes of the output */
    int64_t steps;
    pare_rank_sums sums;
    pare_teacher teacher;
    pare_weights weights;
    pare_train_graph learn, check; /* with gradients; the loss alone */
    pare_train_graph late; /* with gradients and frozen statistics, of PARE_BATCHNORM_HALF; without
                              a plan where there is nothing to freeze */
    pare_microbatches learning, checking; /* by pipeline: a pool of the runner that makes this
                                             rank's gradients, for their sums; and none */
    pare_stage_weights *stage;            /* by pipeline; else NULL */
    pare_train_pipeline *pipeline;
    pare_optimizer optimizer;
    pare_schedule schedule;
    pare_loader *stream;
    pare_augmented augmented;
    int estimated; /* BatchNormalization nodes whose statistics are no longer the student's */
};

/* Makes everything ready but the stream of samples: batch and microbatches, which samples are held
   out, graphs, plans, runners. */
PARE_NODISCARD pare_status pare_trainer_open(pare_trainer *trainer);
/* Does every rank read whole batches, not its own samples of them alone? */
bool pare_trainer_reads_all(const pare_trainer *trainer);
/* Do the ranks share the model? */
bool pare_trainer_is_pipeline(const pare_trainer *trainer);
/* Opens the stream after so many steps, and tells how much memory the training takes. */
PARE_NODISCARD pare_status pare_trainer_start(pare_trainer *trainer, int64_t step);
/* To be called before every step, whose number is the steps done so far: after half of them the
   statistics of PARE_BATCHNORM_HALF freeze. On failure the trainer can only be freed. */
PARE_NODISCARD pare_status pare_trainer_begin_step(pare_trainer *trainer, int64_t step);
/* Frees what only steps need: all but the samples' numbers and the best weights. By pipeline all
   ranks call it, once they have settled. */
void pare_trainer_end_steps(pare_trainer *trainer);
void pare_trainer_free(pare_trainer *trainer);

/* How well these weights do on the held-out samples. */
PARE_NODISCARD pare_status pare_trainer_score(pare_trainer *trainer, const float *values,
                                              pare_distill_score *out);

/* Mean and variance of what every BatchNormalization that trains reads, over
   options.bn_recalib_samples of the samples trained on, one layer after the other in the order of
   the graph: each reads what those before it give with their new statistics. They become the
   weights' where the held-out loss is lower with them. */
PARE_NODISCARD pare_status pare_trainer_estimate(pare_trainer *trainer);

/* Norm of all gradients together, times scale. Gradients of weights that stay zero count for
   nothing. */
PARE_NODISCARD pare_status pare_update_norm(pare_trainer *trainer, double scale, double *out);

typedef struct pare_update_facts {
    int64_t step; /* 0, 1, ... */
    double learning_rate;
    double scale; /* of gradients */
    double norm;  /* of pare_update_norm */
} pare_update_facts;

/* Clips by the norm of all gradients together (Pascanu, Mikolov, Bengio 2013), takes the
   optimizer's step, and the averages after it. */
PARE_NODISCARD pare_status pare_update_weights(pare_trainer *trainer,
                                               const pare_update_facts *facts);

/* --- checkpoints of it --- */

/* All that decides what an opened trainer computes, for checkpoints: versions, models, samples
   (which ones, and what is stored of up to 512 of them), every option that reaches the result,
   instruction set, kernels. What changes no result (threads) is not among them. Lives in the arena.
   PARE_INPUT, PARE_IO: data that cannot be read. */
PARE_NODISCARD pare_status pare_fingerprint_make(pare_arena *arena, const pare_trainer *trainer,
                                                 pare_checkpoint *out);

/* With the blocks of weights, moments and averages all that decides the following steps. As in the
   file: members of 8 bytes, no gaps. */
typedef struct pare_train_state {
    int64_t step;       /* done */
    int64_t reported;   /* the last whose event was sent: step, or step - 1 where a stop came
                       between the two; -1: none */
    int64_t since_best; /* validations */
    int64_t best_step;  /* 0: the student as it came */
    int64_t estimated;  /* BatchNormalization nodes that began with statistics made again */
    double loss, norm, learning_rate; /* of the last step */
    double loss_scale;                /* FP16: for the next step; else 1 */
    int64_t good, skipped; /* FP16: steps since it was halved or doubled; that changed no weight */
    pare_distill_score before, best;
    pare_hash data; /* sum over the samples trained on, with the times each was read */
} pare_train_state;

typedef struct pare_checkpointer {
    const pare_trainer *trainer;
    pare_train_state *state;
    pare_arena arena;
    pare_checkpoint checkpoint; /* facts, and where the state is */
    pare_checkpoint_blob blob[6];
    float *own[6];   /* by pipeline: of a blob of weights, this rank's block; else NULL */
    int64_t resumed; /* the step it continued from; -1: from the beginning */
    int64_t kept;    /* step of the checkpoint in the file; -1: none */
    pare_checkpoint_writer *writer; /* by pipeline, in rank 0, while it writes */
    bool failing;                   /* the last write failed */
} pare_checkpointer;

/* For a trainer that is open, and its state. Asked to resume, it reads the checkpoint, if there is
   one; rank 0 does, and the others get what it has read. A trainer whose options name no checkpoint
   gets a keeper that does nothing. Fails as pare_checkpoint_read, pare_fingerprint_make, and where
   ranks were given different trainings. */
PARE_NODISCARD pare_status pare_checkpointer_open(pare_checkpointer *keeper,
                                                  const pare_trainer *trainer,
                                                  pare_train_state *state);
void pare_checkpointer_free(pare_checkpointer *keeper);

/* Fails where a checkpoint is in the way of a training that does not resume. */
PARE_NODISCARD pare_status pare_checkpointer_check(pare_ctx *ctx,
                                                   const pare_distill_checkpoint *checkpoint);

/* Rank 0 writes a checkpoint, unless the file holds this step. A disk that is full, or no place to
   write to any more, is a warning, one until it is over. */
PARE_NODISCARD pare_status pare_checkpointer_save(pare_checkpointer *keeper);

#endif
