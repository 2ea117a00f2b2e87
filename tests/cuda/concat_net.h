/* SPDX-License-Identifier: Apache-2.0 */
/* Small nets whose Concats can be made in place, in FP16, f32 and INT8. */
#ifndef PARE_TESTS_CUDA_CONCAT_NET_H
#define PARE_TESTS_CUDA_CONCAT_NET_H

#include "tests/passes/graph_case.h"

typedef enum concat_form { CONCAT_F32, CONCAT_F16, CONCAT_INT8, CONCAT_FORMS } concat_form;

typedef struct concat_net {
    graph_case g;
    concat_form form;
    int channels, side; /* of the input */
} concat_net;

/* The input x, (N, channels, side, side) of an unknown N, f32 or f16. Of INT8 every tensor is
   quantized by one scale. */
typedef void (*concat_make)(concat_net *net);
void concat_open(concat_net *net, concat_form form, concat_make make, int channels, int side);

void concat_inception(concat_net *n); /* convolutions of three sizes, a pool: one Concat of 96 */
void concat_fire(concat_net *n);      /* SqueezeNet's: a Concat of 64 */
void concat_dense(concat_net *n);     /* DenseNet's: three Concats, each of all before it */
void concat_nested(concat_net *n);    /* each Concat of the last one and one more */
void concat_odd(concat_net *n);       /* of 64 channels: parts of 8, 24 and 32 */
void concat_twice(concat_net *n);     /* one tensor at both ends */
void concat_ends(concat_net *n);      /* of x, a constant, what is an output, and one more */
void concat_two(concat_net *n);       /* one tensor in two of them, at different places */
void concat_split(concat_net *n);     /* YOLO's C2f: a Split, both halves in a Concat */
void concat_halves(concat_net *n);    /* a Split alone */
void concat_slices(concat_net *n);    /* Slices that overlap, and one of a Concat */
void concat_shuffle(concat_net *n);   /* ShuffleNet's: of two Slices one in a Concat */
void concat_scales(concat_net *n);    /* INT8: one of two inputs is requantized */
void concat_chain(concat_net *n);     /* a sum of a part is a part; a Concat inside another one */
void concat_rows(concat_net *n);      /* of ranks 3: sequences, under another shape, over axis 1 */

void concat_operators(concat_net *n); /* no Concat: what may be beside one; channels of 64 */
void concat_tiles(concat_net *n); /* products and a window, of 64 channels, for large pictures */
void concat_stem(concat_net *n);  /* the same of a first convolution of 3 channels, and of another
                                     one with its pool */

#endif
