/* SPDX-License-Identifier: Apache-2.0 */
/* What devices and streams hold for cuBLAS and cuDNN; the rest of them is their own file's. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_DEVICE_PARTS_H
#define PARE_RUNTIME_CUDA_DEVICE_DEVICE_PARTS_H

#include "runtime/cuda/conv/dnn_device.h"
#include "runtime/cuda/gemm/blas_device.h"
#include "runtime/cuda/device/stream.h"

typedef struct pare_cuda_blas_slot {
    pare_cuda_blas *blas;
    bool looked; /* blas is NULL because there is none */
} pare_cuda_blas_slot;

typedef struct pare_cuda_dnn_slot {
    pare_cuda_dnn *dnn;
    bool looked;  /* dnn is NULL because there is none */
    bool allowed; /* in deterministic execution, for convolutions of a training */
} pare_cuda_dnn_slot;

typedef struct pare_cuda_stream_dnn {
    void *handle;
    int (*destroy)(void *handle);
} pare_cuda_stream_dnn;

typedef struct pare_cuda_stream_blas {
    void *handle, *workspace;
    int (*destroy)(void *handle);
} pare_cuda_stream_blas;

pare_cuda_blas_slot *pare_cuda_device_blas(pare_device *device);
pare_cuda_stream_blas *pare_cuda_stream_blas_of(pare_stream *stream);
cudaMemPool_t pare_cuda_device_pool(const pare_device *device); /* its memory is of this pool */
/* A bit for each of the first 64 GPUs: whether it reaches this memory was found out (peers.c). */
uint64_t *pare_cuda_device_peers(pare_device *device);
void pare_cuda_stream_blas_close(pare_device *device, pare_cuda_stream_blas *blas);
pare_cuda_dnn_slot *pare_cuda_device_dnn(pare_device *device);
pare_cuda_stream_dnn *pare_cuda_stream_dnn_of(pare_stream *stream);
void pare_cuda_stream_dnn_close(pare_cuda_stream_dnn *dnn);

/* What the device does for calibration and training, alone and with other processes (calib/,
   train/, comm/). */
#ifdef __cplusplus
extern "C" {
#endif
extern const pare_sample_table pare_cuda_samples;
extern const pare_training_table pare_cuda_training;
extern const pare_ranks_table pare_cuda_ranks;
#ifdef __cplusplus
}
#endif

#endif
