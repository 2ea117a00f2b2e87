/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution as a graph of cuDNN's, and the plans that compute it:
     Y = act(conv(X, W) + residual + bias), dX of (dY, W), or dW of (dY, X)
   Sums, and what is between the operations, are f32, of s8 s32. Which engines serve is asked of the
   library once for a convolution and a device; their plans are kept for as long as it is open. */
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

/* Names of tensors in the graph, and places in the addresses of pare_dnn_run. */
enum { PARE_DNN_X, PARE_DNN_W, PARE_DNN_Y, PARE_DNN_BIAS, PARE_DNN_RESIDUAL, PARE_DNN_TENSORS };

/* A plan that was chosen. */
typedef struct pare_dnn_chosen {
    const pare_dnn_api *api;
    void *plan;
    bool has[PARE_DNN_TENSORS]; /* the tensors it reads or writes */
    size_t workspace, scratch;  /* bytes, and where they are in scratch */
} pare_dnn_chosen;

/* How many plans there are, at most PARE_DNN_MOST; 0 where the library is absent, failed or
 * refuses.
 */
int pare_dnn_count(const pare_prep *prep, const pare_dnn_conv *conv);
/* Takes plan `rank` of the library's order; adds its workspace to the node's scratch.
   PARE_UNSUPPORTED: there are fewer. */
PARE_NODISCARD pare_status pare_dnn_choose(pare_prep *prep, const pare_dnn_conv *conv, int rank,
                                           pare_dnn_chosen *out);
/* data: by PARE_DNN_X and so on; handle: the stream's (pare_cuda_dnn_handle). */
PARE_NODISCARD pare_status pare_dnn_run(const pare_call *call, const pare_dnn_chosen *s,
                                        void *handle, void *const data[PARE_DNN_TENSORS]);

/* Where plans are made: handle is of the GPU, or NULL and properties is a descriptor of one that
   need not be there (9.8 or later). */
typedef struct pare_dnn_target {
    const pare_dnn_api *api;
    void *handle, *properties;
} pare_dnn_target;

/* Asks for plans; *out is freed with pare_dnn_answers_free. A convolution that no engine takes has
   none. */
PARE_NODISCARD pare_status pare_dnn_ask(pare_ctx *ctx, const pare_dnn_target *at,
                                        const pare_dnn_conv *conv, pare_dnn_answers **out);
int pare_dnn_answers_count(const pare_dnn_answers *answers);
/* Frees it and those behind it. */
void pare_dnn_answers_free(const pare_dnn_api *api, pare_dnn_answers *first);

#ifdef __cplusplus
}
#endif
#endif
