/* SPDX-License-Identifier: Apache-2.0 */
/* What the two sources of the emulation's cuDNN share: a convolution with what follows it. */
#ifndef PARE_SIMT_DNN_STUB_H
#define PARE_SIMT_DNN_STUB_H

#include "blas_stub.h"
#include "runtime/cuda/conv/dnn_api.h"
#include <map>

namespace simt
{

struct dnn_tensor {
    int type; /* cudnnDataType_t */
    int64_t id, aligned;
    bool is_virtual;
    std::vector<int64_t> dim, stride;
};

/* Windows of 1 to 3 axes: begin, end, stride, dilation of each. */
struct dnn_window {
    int compute;
    std::vector<int64_t> begin, end, stride, dilation;
};

struct dnn_pointwise {
    int mode;
    bool keeps_nan, low_set, high_set;
    double low, high;
};

/* Adds b (where it is an addition), or bounds. */
struct dnn_step {
    dnn_pointwise of;
    dnn_tensor b;
};

struct dnn_work {
    int kind;                /* PARE_DNN_OP_FORWARD and so on */
    dnn_tensor x, w, y, out; /* out: behind the steps; y of a forward one where there are none */
    dnn_window window;
    std::vector<dnn_step> steps;
    bool tf32, wrong; /* f32 is rounded to it; the engine's sums differ from run to run */
};

size_t dnn_type_bytes(int type); /* 0: not modelled */
size_t dnn_tensor_bytes(const dnn_tensor &t);
/* What is wrong with the shapes; NULL: nothing. */
const char *dnn_shape_fault(const dnn_work &g);
/* address: by the tensors' names. */
void dnn_run(const dnn_work &g, const std::map<int64_t, void *> &address);

} // namespace simt

#endif
