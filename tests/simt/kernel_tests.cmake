# SPDX-License-Identifier: Apache-2.0
# The CPU's kernel tests, each plain kernel against those of the device: all cases under one
# schedule; a part of them in reverse and under one more, which change only the order of threads,
# and in the slower builds
set(others fifo newest warp)
set(few PARE_EXACT=quick PARE_APART=13)
foreach(test
        cpu/binary
        cpu/cast
        cpu/conv
        cpu/copy
        cpu/fast_float
        cpu/gather
        cpu/int8_elementwise
        cpu/int8_exact
        cpu/matmul
        cpu/norm
        cpu/pool
        cpu/quantize
        cpu/reduce
        cpu/reduce_axes
        cpu/resize
        cpu/softmax
        cpu/sort
        cpu/unary
        cuda/attention
        cuda/attention_int8
        cuda/conv_grad
        cuda/conv_transpose
        cuda/depthwise_pointwise
        cuda/element
        cuda/f8
        cuda/lookup
        cuda/number
        cuda/product
        cuda/sparse
        cuda/stem
        cuda/stem_pool
        cuda/tcgen
        cuda/train
        cuda/weights
        cuda/wgmma
        cuda/wgmma_swap
        cuda/wgmma_sparse
        cuda/wgmma_f8
        ops/rows
        passes/fold_casts
        passes/fuse_attention
        passes/fuse_q_attention
        passes/gradient
        passes/gradient_losses
        passes/train_batchnorm)
  string(REPLACE "/" "/test_" source ${test})
  get_filename_component(test ${test} NAME)
  pare_emulated_program(cuda_${test} CASES SOURCES ${CMAKE_SOURCE_DIR}/tests/${source}.c)
  set(device)
  if(test MATCHES "^(wgmma(_sparse|_f8)?|stem_pool)$") # their sizes follow the device's
    set(device SIMT_PROCESSORS=12)
  elseif(test STREQUAL "tcgen")
    set(device SIMT_PROCESSORS=12 SIMT_ARCHITECTURE=100 SIMT_DEVICES=2)
  endif()
  pare_simt_run(cuda_${test}_random cuda_${test}_plain SIMT_SCHEDULE=random ${device})
  # kernels that may begin early are told to, whatever is ahead
  pare_simt_run(cuda_${test}_reversed cuda_${test}_plain SIMT_SCHEDULE=reversed ${few}
                SIMT_DEPENDENT=1 ${device})
  list(POP_FRONT others schedule)
  list(APPEND others ${schedule})
  pare_simt_run(cuda_${test}_${schedule} cuda_${test}_plain SIMT_SCHEDULE=${schedule}
                ${few} ${device})
  set_property(GLOBAL APPEND PROPERTY SIMT_PLAIN_RUNS cuda_${test}_random cuda_${test}_reversed
               cuda_${test}_${schedule})
  pare_simt_run(cuda_${test}_asan cuda_${test}_asan SIMT_SCHEDULE=random ${few} ${device})
  pare_simt_run(cuda_${test}_check cuda_${test}_check SIMT_SCHEDULE=random PARE_EXACT=quick
                SIMT_DEPENDENT=1 ${device})
  # barriers between warps, with threads that switch in the midst of their code
  if(test MATCHES "^(wgmma(_swap|_sparse)?|tcgen)$")
    pare_simt_run(cuda_${test}_preempt cuda_${test}_check SIMT_SCHEDULE=random SIMT_PREEMPT=7
                  SIMT_SEED=3 PARE_EXACT=quick ${device})
  endif()
endforeach()

# Products without the libraries: our own kernels serve
foreach(test product weights)
  pare_simt_run(cuda_${test}_alone cuda_${test}_plain SIMT_SCHEDULE=warp SIMT_BLAS=absent
                PARE_EXACT=quick)
  set_property(GLOBAL APPEND PROPERTY SIMT_PLAIN_RUNS cuda_${test}_alone)
endforeach()

# A device of few multiprocessors, with the least shared memory that any from sm_80 on has
foreach(test product attention attention_int8 conv conv_grad depthwise_pointwise sparse stem stem_pool)
  pare_simt_run(cuda_${test}_small cuda_${test}_plain SIMT_SCHEDULE=fifo SIMT_PROCESSORS=20
                SIMT_SHARED=101376 SIMT_ARCHITECTURE=86 PARE_EXACT=quick)
  set_property(GLOBAL APPEND PROPERTY SIMT_PLAIN_RUNS cuda_${test}_small)
endforeach()

# Integer products whose sums do not fit in the device's cache, so that they are made in parts
pare_simt_run(cuda_product_parts cuda_product_plain SIMT_SCHEDULE=random SIMT_CACHE=250000
              PARE_EXACT=quick)
set_property(GLOBAL APPEND PROPERTY SIMT_PLAIN_RUNS cuda_product_parts)
