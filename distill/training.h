/* SPDX-License-Identifier: Apache-2.0 */
/* Distillation: a student net learns, from inputs alone, to give what its teacher gives. Training
   is a run of a gradient graph in deterministic execution: the student's nodes, the loss after them
   and their gradients, on equal microbatches of every batch whose gradients are added in one tree
   (runtime/base/tree_sum.h), so that the same seed gives the same bytes whatever the threads and
   processes. */
#ifndef PARE_DISTILL_TRAINING_H
#define PARE_DISTILL_TRAINING_H

#include "formats/data.h"
#include "runtime/comm/scaling.h"
#include "runtime/base/arena.h"
#include "runtime/comm/comm.h"
#include "runtime/graph/graph.h"
#include "runtime/device/device.h"
#include "runtime/eval/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- the loss: a weighted sum of terms --- */

typedef enum pare_term_kind {
    PARE_TERM_KL,      /* T^2 KL(teacher || student) of softmax(logits / T), mean over rows (Hinton,
                          Vinyals, Dean 2015) */
    PARE_TERM_MSE,     /* mean squared difference of the outputs */
    PARE_TERM_COSINE,  /* 1 - cosine of the outputs, mean over rows */
    PARE_TERM_FEATURE, /* mean squared difference of a named tensor of both nets */
    PARE_TERM_CE       /* softmax cross-entropy of the first output against the labels */
} pare_term_kind;

typedef struct pare_distill_term {
    pare_term_kind kind;
    double weight, temperature;    /* temperature: of KL */
    const char *student, *teacher; /* FEATURE: the tensor's name in either net */
} pare_distill_term;

typedef struct pare_distill_loss {
    pare_distill_term *term;
    int count;
} pare_distill_loss;

/* "kl:2,feature:NAME,mse,cosine,ce": terms; feature:NAME=OTHER matches the student's NAME with the
   teacher's OTHER; "*W" after a term weighs it. Lives in the arena. PARE_USAGE: anything else. */
PARE_NODISCARD pare_status pare_distill_parse_loss(pare_arena *arena, const char *text,
                                                   pare_distill_loss *out);

/* --- augmentation of the training images --- */

typedef struct pare_augment {
    bool flip; /* left to right, every other time */
    int shift; /* up to so many pixels along either axis, evenly; the edge's pixels repeat, which
                  needs no word about what a black pixel is after normalisation. 0: none */
    double
        mixup; /* x = share * x_i + (1 - share) * x_j, share ~ Beta(mixup, mixup) (Zhang et al.
                  2018, "mixup: Beyond Empirical Risk Minimization", arXiv 1710.09412). 0: none */
} pare_augment;

/* "flip,shift:PIXELS,mixup:ALPHA", each at most once. PARE_USAGE: anything else. */
PARE_NODISCARD pare_status pare_augment_parse(pare_ctx *ctx, pare_augment *out, const char *text);

/* --- how to train --- */

typedef enum pare_optimizer_kind { PARE_OPTIMIZER_ADAMW, PARE_OPTIMIZER_SGD } pare_optimizer_kind;

typedef enum pare_schedule_kind {
    PARE_SCHEDULE_COSINE,  /* down to 0 along half a cosine */
    PARE_SCHEDULE_STEP,    /* a tenth after half and again after three quarters of the steps */
    PARE_SCHEDULE_CONSTANT /* stays */
} pare_schedule_kind;

/* How well a net does on the held-out samples. */
typedef struct pare_distill_score {
    double loss;
    double agreement; /* share of samples whose top-1 is the teacher's; -1: no classifier */
    double top1;      /* share whose top-1 is the label; -1: no labels, or no classifier */
} pare_distill_score;

/* A tensor that is trained, as it was validated: the weights, or where there is a running mean of
   them, that. Alive as long as the call that shows it. */
typedef struct pare_distill_tensor {
    const char *name;
    const float *value, *gradient; /* (count) */
    int64_t count;
} pare_distill_tensor;

typedef struct pare_distill_event {
    int64_t step, steps;             /* done, and to be done; 0: before the first */
    int64_t samples;                 /* seen so far */
    double epoch;                    /* passes over the training samples so far */
    double learning_rate, loss;      /* of this step */
    double norm;                     /* of the gradients before clipping */
    double loss_scale;               /* FP16, for the next step; else 0 */
    int64_t skipped;                 /* FP16: steps so far that changed no weight */
    const pare_distill_score *score; /* NULL: nothing was validated after this step */
    bool best;                       /* the score is the best so far */
    const char *const *zeros; /* weights whose zeros stay, by name: the same in every event */
    int zero_count;
    const pare_distill_tensor *tensor; /* with a score, where options ask for them; else NULL */
    int tensor_count;
    double gradient_factor; /* of gradients: times this they are the step's, before clipping; 0: no
                               step was made in this process, or the last one changed nothing */
} pare_distill_event;

/* Called after every step, and before the first with the score of the student as it came; of a
   training that is resumed, from the first step on that is not in the checkpoint. A failure ends
   the training with it. */
typedef pare_status (*pare_distill_event_fn)(void *user, const pare_distill_event *event);

typedef enum pare_batchnorm_mode {
    PARE_BATCHNORM_TRAIN,  /* statistics of the batch; the running ones follow them (ONNX
                              BatchNormalization 15, training_mode) */
    PARE_BATCHNORM_FROZEN, /* statistics stay what they are in the file */
    PARE_BATCHNORM_HALF    /* trains for half of the steps, then what its statistics have become
                              stays and the other weights settle on it */
} pare_batchnorm_mode;

/* What the tensors between the operators of training are stored in. Weights, their gradients and
   what the optimizer keeps are f32, as are the loss and all sums; validation is of the f32 weights.
 */
typedef enum pare_train_precision {
    PARE_TRAIN_F32,
    PARE_TRAIN_BF16, /* rounded to bf16; on the CPU operators compute in f32 between */
    PARE_TRAIN_FP16 /* rounded to f16, on a device; PARE_UNSUPPORTED on the CPU. The loss is scaled:
                       by 65536 at first, by half of that after a step whose gradients are not
                       finite, which changes no weight, by twice that after 2000 good ones
                       (Micikevicius and others 2018) */
} pare_train_precision;

/* A scale of FakeQuantize (runtime/passes/train/fake_quantize.h lists them) that is learned beside
   the weights: learned step size quantization (Esser et al. 2020). Its gradient is multiplied by
   gradient_scale; its learning rate is the weights' times its own size at the start, so that steps
   are relative to it, and it stays within a factor of 16 of that size, thus positive. */
typedef struct pare_distill_scale {
    const char *name; /* an f32 constant of the student */
    double gradient_scale;
} pare_distill_scale;

/* Where a training is kept while it runs, so that another process can continue with it: one file,
   replaced whole. A run that continues gives the same weights, events and hashes as one that was
   never cut off, whatever its threads. A disk that is full is a warning; the old checkpoint stays.
 */
typedef struct pare_distill_checkpoint {
    const char *path; /* of the file, its folder is there; NULL: none */
    int64_t every;    /* steps between two; 0: after each validation. The end, and a stop that
                         was asked for, make one, too. */
    bool resume;      /* continue from it; where there is no file, from the beginning */
} pare_distill_checkpoint;

/* Sets the path: the file `name` of the folder, in the arena. PARE_INPUT: one of the outputs (NULL:
   not asked for) is the same file. */
PARE_NODISCARD pare_status pare_distill_checkpoint_file(pare_arena *arena, const char *folder,
                                                        const char *name,
                                                        const char *const *outputs,
                                                        int output_count,
                                                        pare_distill_checkpoint *out);

/* An option that reaches a weight is a fact of checkpoints (fingerprint.c). */
typedef struct pare_distill_options {
    pare_distill_loss loss; /* count 0: kl:2 */
    double epochs;
    int64_t steps;  /* 0: as many as the epochs make */
    int64_t batch;  /* samples whose gradients are computed together */
    int accumulate; /* batches that make one step */
    pare_optimizer_kind optimizer;
    double learning_rate;         /* the highest */
    double beta1, beta2, epsilon; /* AdamW */
    double momentum;              /* SGD */
    double weight_decay;          /* decoupled, of weights of rank 2 and more */
    pare_schedule_kind schedule;
    int64_t warmup;        /* steps of linear warm-up; -1: 2 % of the steps */
    double grad_clip_norm; /* largest norm of all gradients together; 0: no limit */
    double ema_decay; /* EMA of the weights: the share that stays at each step; 0: none. Where there
                         is one it is validated and is the result. */
    bool train_zeros; /* else weights of rank 2 and more keep their zeros, */
    double zeros_from; /* those of which at least this part is 0 */
    pare_batchnorm_mode batchnorm;
    int64_t
        bn_recalib_samples; /* TRAIN: from so many samples the running statistics are estimated
                         again before the first step, and used where the held-out loss is lower with
                         them: pruning changes what a layer reads. 0: they are as they came */
    pare_train_precision precision;
    pare_augment augment;            /* of the training images */
    const pare_distill_scale *scale; /* scales to learn; others stay */
    int scale_count;
    uint64_t seed;
    int threads;         /* 0: all cores; changes no result */
    pare_device *device; /* where it trains; NULL: the CPU. The same bytes in every run, but not
                            those of the CPU. */
    pare_comm *comm;     /* processes that train together, each with the same options; NULL: one.
                            The result is that of one process. Their number divides the number of
                            microbatches of a batch (8 where that divides the batch) into powers of
                            two, */
    bool pipeline;       /* or each has a stage of both models, of any number. Then rank 0 alone
                            has the result. Without batch statistics and event_tensors. */

    const int64_t *samples; /* indices into the data; NULL: all */
    int64_t sample_count;
    int64_t start; /* of the first step: samples of the stream of epochs that an earlier training
                      has seen */
    pare_data *held_out;        /* NULL: 2 % of the samples, evenly spread, are not trained on, */
    const int64_t *held_sample; /* or these of the data; NULL: none are named */
    int64_t held_count;
    int64_t validate_every; /* steps; 0: four times an epoch; the end is always validated */
    int patience;           /* validations without a better one that end the training; 0: no end */
    pare_distill_checkpoint checkpoint;

    /* Told before the first step how much memory the training takes at most, the host's and the
       device's; or NULL. */
    void (*planned)(void *user, size_t bytes, size_t device_bytes);
    /* By pipeline: before that, in rank 0; or NULL. */
    pare_status (*stages)(void *user, const pare_pipeline_plan *plan);
    void *planned_user;          /* of both */
    pare_distill_event_fn event; /* or NULL */
    void *event_user;
    bool event_tensors; /* events with a score show what is trained */
} pare_distill_options;

/* AdamW 1e-3 (pare_distill_learning_rate), betas 0.9 and 0.999, epsilon 1e-8, weight decay 1e-2,
   cosine, batch 128, one epoch, seed 1, zeros kept from 20 % on, statistics of BatchNormalization
   estimated from 512 samples. */
void pare_distill_options_init(pare_distill_options *out);
/* The learning rate for a float student: 3e-4 where it has attention, a Softmax that other nodes
   read, else 1e-3. Transformers take lower rates than convolutions (DeiT, Touvron and others 2021:
   5e-4 for 512 samples, that is 1.25e-4 for 128). The nearer a student is, the less it takes: a
   vision transformer's held-out loss fell in one epoch after half its operations to 0.92, 0.55
   and 0.54 of what it was with 1e-3, 3e-4 and 1e-4; after 2:4, which loses least, to 0.60 with
   1e-4 and not at all with the others. A MobileNet's, after half its operations, fell to 0.48
   with 1e-3, to 0.55 with 3e-4. */
double pare_distill_learning_rate(const pare_model *student);
/* The same, but what serves a net with FakeQuantize nodes, which starts from weights that are
   nearly right: rate 3e-5, BatchNormalization (where quantization did not fold it)
   PARE_BATCHNORM_HALF. The loss for it holds the logits themselves, too, of which KL sees
   differences alone. */
void pare_distill_options_init_qat(pare_distill_options *out);
#define PARE_DISTILL_QAT_LOSS "kl:2,mse"

typedef enum pare_distill_end {
    PARE_DISTILL_COMPLETE,
    PARE_DISTILL_PATIENCE,   /* nothing better came for so long */
    PARE_DISTILL_INTERRUPTED /* a stop was asked for (ctx.h) */
} pare_distill_end;

typedef struct pare_distill_result {
    pare_distill_end end;
    int64_t steps, best_step;        /* done; 0: the student as it came was best */
    int64_t batch;                   /* as used: the student's own fixed batch may change it */
    int64_t train_samples, held_out; /* different ones */
    int64_t skipped;                 /* FP16: steps that changed no weight */
    int weights;                     /* tensors that were trained */
    pare_scaling_job scaling; /* what a step took here, the first left out; steps 0: nothing */
    int estimated; /* BatchNormalization nodes that began with statistics estimated again */
    const char *const *zeros; /* weights whose zeros stayed, by name; the student's */
    int zero_count;
    pare_distill_score before, after; /* of the student before the first step, of the result */
    char data_hash[33];               /* of the samples trained on, with the times each was read */
    char transport[32]; /* how gradients of several processes travelled: "nccl 2.27.3", "mpi"; else
                           "" */
    int64_t resumed;    /* the step it continued from; -1: it began at the beginning */
    int64_t checkpoint; /* step of the checkpoint that is there now; -1: none */
} pare_distill_result;

/* Trains the student, in place: the weights with the lowest held-out loss replace its own, nothing
   else changes. Weights are f32 constants of rank 1 and more that a gradient reaches; others stay,
   and a warning names operators and weights after which there is none. data (and held_out) were
   opened for the student's inputs; the teacher's are found by name (one input: by position).
   Asked to stop, it ends with the best so far; before the first step there is none:
   PARE_INTERRUPTED, and of *out the checkpoint alone is set. Resumed at its end, it makes no step.
   PARE_INPUT: outputs or features of the two nets do not match, a tensor that does not exist,
   labels that are missing or out of range, too few samples, nothing to train, a loss that is not
   finite, in FP16 by no scale from 1 on (with the step, and the first node whose result is not), a
   checkpoint that is in the way, cut, damaged or of another run (with the fact that differs);
   PARE_UNSUPPORTED: as of plans; PARE_USAGE: processes that cannot share the microbatches.
   After a failure the student is as it was. Of several processes each is to call it; all have the
   result, or the failure of the first that failed. Rank 0 alone writes checkpoints. */
PARE_NODISCARD pare_status pare_distill(pare_ctx *ctx, pare_distill_result *out,
                                        const pare_model *teacher, pare_model *student,
                                        pare_data *data, const pare_distill_options *options);

/* Fails where pare_distill would because these processes cannot share the microbatches of a batch.
   It reads no samples. */
PARE_NODISCARD pare_status pare_distill_check_ranks(pare_ctx *ctx, const pare_model *teacher,
                                                    const pare_model *student, pare_data *data,
                                                    const pare_distill_options *options);

#ifdef __cplusplus
}
#endif
#endif
