# SPDX-License-Identifier: Apache-2.0
# CUDA: kernels with their host halves; CUDA_HOPPER: those for compute capability 9.0 alone;
# CUDA_HOST: plain C. The product takes all, and so does the emulation. CUDA_NO_HOPPER: in place of
# CUDA_HOPPER where the product has no code for 9.0. CUDA_BLACKWELL, CUDA_NO_BLACKWELL: the same of
# 10.0. CUDA_DEPENDENT: of CUDA, those with kernels that may begin early (device/dependent.cuh), whose
# code for 9.0 and later is made of PTX of 9.0.
set(CUDA
  attention.cu
  attention_flash.cu
  attention_int8.cu
  batchnorm_train.cu
  binary.cu
  binary_mixed.cu
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
  pool_grad.cu
  quantize.cu
  quantize_f8.cu
  quantize_fake.cu
  quantize_nhwc.cu
  recurrent.cu
  reduce.cu
  resize.cu
  shape.cu
  softmax.cu
  sort.cu
  unary.cu
  calib/channels.cu
  calib/histogram.cu
  calib/pixels.cu
  calib/search.cu
  comm/rank_sum.cu
  conv/conv_direct.cu
  conv/conv_float.cu
  conv/conv_grad_weight.cu
  conv/conv_stem.cu
  conv/conv_stem_pool.cu
  conv/conv_tile.cu
  conv/depthwise_half.cu
  conv/depthwise_int8.cu
  conv/dnn_pass.cu
  gemm/blas_epilogue.cu
  gemm/gemm.cu
  gemm/gemm_f32.cu
  gemm/gemm_f32_tiles.cu
  gemm/gemm_f8.cu
  gemm/gemm_half.cu
  gemm/gemm_int8.cu
  gemm/gemm_pieces.cu
  gemm/gemv.cu
  gemm/pack.cu
  gemm/sparse.cu
  train/optimizer.cu
)
set(CUDA_DEPENDENT
  attention.cu
  attention_flash.cu
  attention_int8.cu
  binary.cu
  binary_mixed.cu
  cast.cu
  compare.cu
  pool.cu
  norm_layer.cu
  quantize.cu
  quantize_f8.cu
  quantize_nhwc.cu
  shape.cu
  softmax.cu
  unary.cu
  conv/conv_direct.cu
  conv/conv_stem.cu
  conv/conv_stem_pool.cu
  conv/depthwise_half.cu
  conv/depthwise_int8.cu
  gemm/gemm.cu
  gemm/gemm_f32_tiles.cu
  gemm/gemm_f8.cu
  gemm/gemm_half.cu
  gemm/gemm_int8.cu
  gemm/gemm_pieces.cu
  gemm/gemv.cu
)
set(CUDA_HOST
  kernel.c
  matmul.c
  matmul_blas.c
  matmul_dynamic.c
  matmul_weights.c
  pad.c
  calib/samples.c
  comm/nccl.c
  comm/ranks.c
  conv/conv.c
  conv/conv_blas.c
  conv/conv_dnn.c
  conv/conv_pool.c
  conv/dnn.c
  conv/dnn_device.c
  conv/dnn_kept.c
  conv/dnn_plan.c
  conv/depthwise_pointwise.c
  device/dcgm.c
  device/dependent.c
  device/device.c
  device/error.c
  device/library.c
  device/monitor.c
  device/nvml.c
  device/nvtx.c
  device/peers.c
  device/sharing.c
  device/stream.c
  gemm/blas.c
  gemm/blas_device.c
  gemm/blas_node.c
  gemm/blas_product.c
  gemm/prepack.c
  gemm/tcgen_proof.c
)
set(CUDA_HOPPER
  gemm/wgmma.cu
  gemm/wgmma_f8.cu
  gemm/wgmma_f8e5m2.cu
  gemm/wgmma_half.cu
  gemm/wgmma_real.cu
  gemm/wgmma_sparse.cu
  gemm/wgmma_sparse_half.cu
  gemm/wgmma_sparse_real.cu
  gemm/wgmma_swap.cu
  gemm/wgmma_swap_half.cu
)
set(CUDA_NO_HOPPER gemm/wgmma_none.c)
set(CUDA_BLACKWELL
  gemm/tcgen.cu
  gemm/tcgen_f8.cu
  gemm/tcgen_half.cu
  gemm/tcgen_real.cu
)
set(CUDA_NO_BLACKWELL gemm/tcgen_none.c)
list(TRANSFORM CUDA PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM CUDA_DEPENDENT PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM CUDA_HOST PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM CUDA_HOPPER PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM CUDA_NO_HOPPER PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM CUDA_BLACKWELL PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM CUDA_NO_BLACKWELL PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
