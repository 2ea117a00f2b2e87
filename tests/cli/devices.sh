#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --device and --memory-limit of the built program, whatever GPU the machine has or lacks.
name=devices
. "$(dirname "$0")/_lib.sh"
mlp=$zoo/mlp.onnx
bench="$pare bench $mlp --duration 0 --iterations 1 --warmup 0"

for word in gpu cuda: cuda:x cuda:-1 cuda:1000 cuda:0x cuda0 CPU; do
    refuses "word_$word" 2 "--device $word|auto, cpu, cuda or cuda:N" $bench --device $word
done
refuses no_such_gpu 1 "--device cuda:999|--device cpu" env CUDA_VISIBLE_DEVICES= $bench --device cuda:999
refuses words_first 2 "--device gpu" "$pare" version --device gpu
works on_cpu $bench --device cpu
CUDA_VISIBLE_DEVICES= $bench --verbose >.test.out 2>.test.err
if has "on the CPU: " .test.err; then pass auto_says_so; else fail auto_says_so "$(head -1 .test.err)"; fi

for size in 2 2G 0.5MB -1GB 2000TB GB 1e99GB nanGB; do
    refuses "limit_$size" 2 "--memory-limit $size|with its unit" $bench --memory-limit $size
done
for size in 1MB 1.5gb 2GiB 512mib; do works "limit_$size" $bench --device cpu --memory-limit $size; done

works version "$pare" version
if grep -qE '^(GPU code: sm_[0-9]+.*PTX of compute_[0-9]+|no GPU code)$' .test.out; then
    pass version_says_gpu
else
    fail version_says_gpu "$(cat .test.out)"
fi
# the name of a kernel is in the program where its code is
if grep -q '^GPU code' .test.out; then linked=1; else linked=0; fi
if [ "$(grep -acm1 cuda_trilu "$pare")" = $linked ]; then pass gpu_kernels_are_linked; else fail gpu_kernels_are_linked "$(cat .test.out)"; fi
works doctor "$pare" doctor --json doctor.json
for word in CUDA; do says "doctor_$word" "$word"; done
if "$pare" version | grep -q '^GPU code'; then
    says doctor_driver driver
    says doctor_cublas cuBLAS
    says doctor_cudnn cuDNN
    says doctor_nccl NCCL
    refuses limit_too_small_for_nothing 1 "--device cuda" env CUDA_VISIBLE_DEVICES= $bench --device cuda
fi
finish
