#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What commands say of GPUs that are absent, old, new, small or shared: on the emulated device, which
# plays each. usage: devices.sh PARE
pare=${1:?PARE}
. "$(dirname "$0")/_lib.sh"
data_sets devices
mlp=$zoo/mlp.onnx
wrong() { echo "FAIL $1: $2: $(head -2 err | tr '\n' ' ')"; status=1; }

# says NAME EXIT WORDS SETTING... -- ARGUMENT...: exit status, and each of WORDS ('|' between) in the
# messages; a failure is one line
says() {
    name=$1 expected=$2 words=$3
    shift 3
    env "$@" >out 2>err
    got=$?
    [ "$got" = "$expected" ] || { wrong "$name" "exit $got, expected $expected"; return; }
    [ "$got" = 0 ] || [ "$(grep -c '^pare: ' err)" = 1 ] || { wrong "$name" "not one line"; return; }
    old_ifs=$IFS
    IFS='|'
    for word in $words; do
        grep -qF -e "$word" err || { IFS=$old_ifs && wrong "$name" "'$word' is missing"; return; }
    done
    IFS=$old_ifs
    echo "PASS $name"
}
bench="$pare bench $mlp --iterations 1 --duration 0 --warmup 0"
on="$pare run $mlp --data test.h5 --samples 20 --batch 8 --device cuda"

says no_driver 1 "--device cuda: |there is no NVIDIA driver|--device cpu" SIMT_DRIVER=0 $bench --device cuda
says no_driver_auto 0 "on the CPU: there is no NVIDIA driver" SIMT_DRIVER=0 $bench -v
says old_driver 1 "older than CUDA 13|580" SIMT_DRIVER=12080 $bench --device cuda
says old_driver_auto 0 "warning: on the CPU: |older than CUDA 13" SIMT_DRIVER=12080 $bench
says no_gpu 1 "no CUDA-capable device|CUDA_VISIBLE_DEVICES" SIMT_DEVICES=0 $bench --device cuda
says no_gpu_auto 0 "on the CPU: no CUDA-capable device" SIMT_DEVICES=0 $bench -v
says absent_index 1 "--device cuda:9: |GPU 9 does not exist|has 1" $bench --device cuda:9
says second_gpu 0 "" SIMT_DEVICES=2 $bench --device cuda:1
says new_architecture 0 "(sm_120)|sm_80, sm_90, PTX of compute_80|compiles" SIMT_ARCHITECTURE=120 $bench --device cuda
[ "$(grep -c compiles err)" = 1 ] || wrong new_architecture "not said once"
says minor_architecture 0 "" SIMT_ARCHITECTURE=89 $bench --device cuda
! grep -q compiles err || wrong minor_architecture "sm_89 runs sm_80's code"
says old_architecture 1 "(sm_75)|older than what this build has code for|--device cpu" SIMT_ARCHITECTURE=75 $bench --device cuda
says old_architecture_auto 0 "warning: on the CPU: |(sm_75)" SIMT_ARCHITECTURE=75 $bench
says exclusive 1 "--device cuda: |another process" SIMT_FAIL=2:46 $bench --device cuda

# lost in the midst of a run: at its launches, at what waits for them
SIMT_CALLS=calls $on -o whole.h5 >out 2>err || wrong lost "without a fault"
launch=$(awk '$2 == "launch" { print $1; exit }' calls)
wait=$(awk '$2 == "launch" { run = 1 } run && $2 == "cudaStreamSynchronize" { print $1; exit }' calls)
for call in launch wait; do
    eval "number=\$$call"
    says "lost_at_$call" 1 "mlp.onnx: node '|(FusedMatMul)|tensor '|the GPU is lost" \
        SIMT_FAIL="$number:700:sticky" $on -o lost.h5
    [ ! -e lost.h5 ] || wrong "lost_at_$call" "an output"
done

# memory: the least that one sample at a time needs, to 256 bytes
low=4096 high=4000000
while [ $((high - low)) -gt 256 ]; do
    middle=$(((low + high) / 2))
    if SIMT_MEMORY=$middle $on -o small.h5 >out 2>err; then high=$middle; else low=$middle; fi
done
says memory_least 0 "does not hold 8 samples at once; 1 are run" SIMT_MEMORY=$high $on -o small.h5
cmp -s whole.h5 small.h5 || wrong memory_least "another output"
says memory_enough 0 "" SIMT_MEMORY=$((high + 100000)) $on -o small.h5
cmp -s whole.h5 small.h5 || wrong memory_enough "another output"
! grep -q 'at once' err || wrong memory_enough "8 samples fit"
says limit_halves 0 "does not hold 200 samples at once" $pare run "$mlp" --data test.h5 --samples 200 \
    --batch 200 --device cuda -o small.h5 --memory-limit $((high / 1000 + 100))kB
# where it does not do: how much, for what
says samples_do_not_fit 1 "mlp.onnx: |bytes for |of $low are in use|a smaller --batch" \
    SIMT_MEMORY=$low $on -o none.h5
says activations_do_not_fit 1 "bytes for activations|tensor '|node '|out of GPU memory|a smaller batch in --shapes" \
    SIMT_MEMORY=3000000 $pare bench "$mlp" --shapes input:1000x1x28x28 --device cuda
says weights_do_not_fit 1 "mlp.onnx: node '|(FusedMatMul)|did not grant |of 4096 are in use|--device cpu" \
    SIMT_MEMORY=4096 $on -o none.h5
says calibration_does_not_fit 1 "mlp.onnx: node '|out of GPU memory" SIMT_MEMORY=4096 $pare quantize "$mlp" \
    --data train.h5 --samples 4 --device cuda -o none.onnx
says limit_does_not_fit 1 "of --memory-limit 1000000|raise --memory-limit" $pare bench "$mlp" \
    --shapes input:640x1x28x28 --device cuda --memory-limit 1MB
[ -z "$(ls none.* 2>/dev/null)" ] || wrong memory "left an output"

# two processes on one device
$on -o first.h5 >/dev/null 2>&1 &
says two_processes 0 "" $on -o second.h5
wait $! && cmp -s first.h5 second.h5 && cmp -s first.h5 whole.h5 || wrong two_processes "they differ"
exit $status
