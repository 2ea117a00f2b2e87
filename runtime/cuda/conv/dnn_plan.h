/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution as a graph of cuDNN's, and the plans that compute it:
     Y = act(conv(X, W) + residual + bias), dX of (dY, W), or dW of (dY, X)
   Sums, and what is between the operations, are f32, of s8 s32. What the library answers is kept
   for each device (dnn_kept.h). */
#ifndef PARE_RUNTIME_CUDA_CONV_DNN_PLAN_H
#define PARE_RUNTIME_CUDA_CONV_DNN_PLAN_H

#include "runtime/cuda/conv/conv.h"
#include "runtime/cuda/conv/dnn_device.h"
#include "runtime/ops/fused.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PARE_DNN_AXES = 5,              /* N, C and three of a window, at most */
    PARE_DNN_ALIGNED = 16,          /* bytes that tensors lie at multiples of */
    PARE_DNN_WORKSPACE = 256 << 20, /* bytes, at most, that a plan may ask for */
    PARE_DNN_MOST = 4               /* plans of a convolution */
};

/* Dimensions N, C, window (of W: filters, channels of a group, window), strides in elements. */
typedef struct pare_dnn_tensor {
    int64_t type; /* cudnnDataType_t */
    int64_t dim[PARE_DNN_AXES], stride[PARE_DNN_AXES];
} pare_dnn_tensor;

/* Fields are of one size: convolutions compare as bytes. */
typedef struct pare_dnn_conv {
    int64_t makes;                           /* pare_cuda_conv_makes */
    int64_t rank;                            /* of the tensors, 4 or 5 */
    pare_dnn_tensor x, w, y, bias, residual; /* y: or dY, as all are named in the forward one */
    int64_t begin[3], end[3], stride[3], dilation[3];
    int64_t biased, added; /* are there bias and residual? */
    int64_t act;           /* PARE_ACT_NONE, RELU or CLIP */
    double low, high;      /* of CLIP */
    int64_t tf32;          /* may f32 be rounded to it? */
    int64_t compiles;      /* may an engine be compiled, which takes a second? */
} pare_dnn_conv;

/* The graph of a Conv, FusedConv, ConvGradInput or ConvGradWeight; false of those that are not
   given to the library. */
bool pare_dnn_conv_read(const pare_prep *prep, pare_dnn_conv *out);

/* Names of tensors in the graph. */
enum { PARE_DNN_X, PARE_DNN_W, PARE_DNN_Y, PARE_DNN_BIAS, PARE_DNN_RESIDUAL, PARE_DNN_TENSORS };

/* Where plans are made: handle is of the GPU, or NULL and properties is a descriptor of one that
   need not be there (9.8 or later). */
typedef struct pare_dnn_target {
    const pare_dnn_api *api;
    void *handle, *properties;
} pare_dnn_target;

/* A plan of the library's, for one thread at a time: each stream has its own. */
typedef struct pare_dnn_plan {
    struct pare_dnn_plan *next; /* of the same config */
    void *plan, *handle;        /* handle: of the stream that has it; NULL: none */
    int users;                  /* nodes of the stream's runners */
} pare_dnn_plan;

/* An engine as the heuristics set it. */
typedef struct pare_dnn_engine {
    void *config;
    size_t workspace;
    bool tensor_cores;
    bool failed;         /* a call did where it was bound or run: other plans leave it out */
    pare_dnn_plan first; /* and those behind it */
} pare_dnn_engine;

enum { PARE_DNN_MADE = 64 };

/* What the library's heuristics answered for a convolution. */
struct pare_dnn_answers {
    pare_dnn_answers *next;
    pare_dnn_conv of;
    int users; /* prepared nodes */
    int count;
    pare_dnn_engine engine[PARE_DNN_MOST]; /* best first */
    int made_count;
    void *made[PARE_DNN_MADE]; /* descriptors, plans among them, which need the others */
};

/* Asks for plans; *out is freed with pare_dnn_answers_free. A convolution that no engine takes has
   none. */
PARE_NODISCARD pare_status pare_dnn_ask(pare_ctx *ctx, const pare_dnn_target *at,
                                        const pare_dnn_conv *conv, pare_dnn_answers **out);
/* Frees it and those behind it. */
void pare_dnn_answers_free(const pare_dnn_api *api, pare_dnn_answers *first);
/* One more plan of an engine. */
PARE_NODISCARD pare_status pare_dnn_plan_add(pare_ctx *ctx, const pare_dnn_target *at,
                                             pare_dnn_engine *engine, pare_dnn_plan **out);

#ifdef __cplusplus
}
#endif
#endif
