# SPDX-License-Identifier: Apache-2.0
# CUDA: kernels with their host halves; CUDA_HOST: plain C. The product takes both, and so does the
# emulation.
set(CUDA
  attention.cu
  batchnorm_train.cu
  binary.cu
  cast.cu
  channel_sums.cu
  compare.cu
  constant.cu
  gather.cu
  index_copy.cu
  loss.cu
  norm.cu
  norm_layer.cu
  pool.cu
  quantize.cu
  quantize_fake.cu
  recurrent.cu
  reduce.cu
  resize.cu
  shape.cu
  softmax.cu
  sort.cu
  unary.cu
  calib/channels.cu
  calib/histogram.cu
  calib/search.cu
  conv/conv_direct.cu
  conv/conv_float.cu
  gemm/gemm.cu
  gemm/gemv.cu
  gemm/pack.cu
  gemm/sparse.cu
  train/optimizer.cu
)
set(CUDA_HOST
  kernel.c
  matmul.c
  matmul_blas.c
  matmul_dynamic.c
  matmul_weights.c
  pad.c
  calib/samples.c
  conv/conv.c
  device/device.c
  device/error.c
  device/nvml.c
  device/nvtx.c
  device/stream.c
  gemm/blas.c
  gemm/blas_device.c
  gemm/prepack.c
)
list(TRANSFORM CUDA PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM CUDA_HOST PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
