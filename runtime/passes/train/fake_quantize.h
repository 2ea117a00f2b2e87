/* SPDX-License-Identifier: Apache-2.0 */
/* A QDQ file into a graph whose weights can be trained, and trained numbers back into the file.

   Pairs of QuantizeLinear and DequantizeLinear become FakeQuantize nodes (ops/fake_quantize.h) with
   the same numbers; a weight that the file holds as integers becomes FakeQuantize of floats, the
   master weight. Training moves masters, biases and, where wanted, scales; writing rounds them as
   quantization does. So what is trained is what runs. */
#ifndef PARE_RUNTIME_PASSES_TRAIN_FAKE_QUANTIZE_H
#define PARE_RUNTIME_PASSES_TRAIN_FAKE_QUANTIZE_H

#include "runtime/graph/graph.h"

typedef enum pare_fake_kind {
    PARE_FAKE_ACTIVATION, /* a pair after a tensor */
    PARE_FAKE_WEIGHT,     /* a constant after a pair, or integers after a DequantizeLinear */
    PARE_FAKE_BIAS        /* a constant bias of an operator whose input and weight are such */
} pare_fake_kind;

/* One tensor of the training graph that the file holds, or passes on, as integers. Names are of the
   training graph but for those that begin with file. */
typedef struct pare_fake {
    pare_fake_kind kind;
    const char *tensor;    /* the activation; the f32 constant to train (master weight, bias) */
    const char *output;    /* what FakeQuantize makes; biases: tensor */
    const char *scale;     /* f32 constant, scalar or (scales); biases: NULL. Activations of one
                              scale between which data only move or are joined read one constant */
    const char *zero;      /* the zero point's constant; NULL: absent, 0 */
    const char *quantizer; /* the file's nodes that it stands for; NULL: none, or nameless */
    const char *dequantizer;
    const char *file_tensor; /* where the constant is written: integers, or floats as they are where
                                the pair was after floats or a bias is float; activations: NULL */
    const char *file_scale;  /* biases: NULL where they are float */
    pare_dtype type;         /* of the levels; biases: s32, or f32 where the file's are float */
    int low, high, axis;     /* axis -1: one scale; biases: 0 */
    int64_t scales;
    double gradient_scale; /* 1 / sqrt(N high), N elements (of one sample) a scale: what Esser et
                              al. 2020, section 2.2, multiply the scale's gradient by. The trainer
                              does, where it wants to; FakeQuantizeGrad does not. Biases: 0 */
    /* biases of sums in steps of x_scale * w_scale[c], where they are rounded to these when written
       (always so in files of pare quantize); NULL: float and written as it is, or rounded to the
       file's own scale */
    const char *x_scale, *w_scale;
    int64_t from_f32; /* weights: elements whose master is the f32 model's, not the integer's */
} pare_fake;

/* In the model's arena. */
typedef struct pare_fakes {
    pare_fake *item;
    int count;
} pare_fakes;

/* In place. f32: the float model that the file was made of, with BatchNormalization folded; NULL:
   none. A master weight is then the f32 model's constant of that name (the name that a file of pare
   quantize tells: "NAME_quantized"), channel by channel times the factor that equalization or alpha
   brought in, wherever that rounds to the file's integer; else the dequantized integer. So the
   graph computes what the file computes. Pairs that are no such pair stay (blocks, computed scales,
   other types than s8 and u8, an integer tensor with other readers). */
PARE_NODISCARD pare_status pare_pass_fake_quantize(pare_model *model, pare_fakes *out,
                                                   const pare_model *f32);

/* Moves master weights that came of integers alone to points evenly spread over what rounds to
   these: the graph computes the same. In the midst of their steps all of them would be as far from
   the next integer, so that short trainings would move none and longer ones whole tensors at once.
   Zeros stay zeros. A function of the seed and the list. */
PARE_NODISCARD pare_status pare_pass_qat_init(pare_model *trained, const pare_fakes *fakes,
                                              uint64_t seed);

/* Writes trained numbers into the file's model, the one that the pass was given as it was before;
   trained: the pass' model with other numbers in its constants. Weights are rounded with their
   scales to [low, high], scales go to every place that held them, biases are rounded to the steps
   of their sums (a scale of a weight rises where a bias would pass 2^30 of them), and every other
   f32 initializer is as in trained. What stays the same keeps its bytes. PARE_INPUT: NaN or Inf
   among the numbers, a scale that is not positive, another file. */
PARE_NODISCARD pare_status pare_pass_qat_export(pare_model *file, const pare_model *trained,
                                                const pare_fakes *fakes);
#endif
