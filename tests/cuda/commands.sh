#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands on the emulated GPU, against themselves on the CPU. usage: commands.sh PARE NET-TOOL
pare=${1:?PARE}
tool=${2:?NET-TOOL}
. "$(dirname "$0")/_lib.sh"
data_sets commands

refused() { ! "$pare" bench "$zoo/mlp.onnx" --device "$1" && grep -q "$2" out; }

# A net's outputs on both devices: NAME MODEL
both() {
    for device in cpu cuda; do
        check "$1_run_$device" "$pare" run "$2" --input input=x.npy -o "$1.$device" --device $device
    done
    out=$(ls "$1.cpu")
}

# All commands over one net: NAME MODEL, then whether all between Q and DQ is integer
net() {
    for device in cpu cuda; do
        check "$1_calibrate_$device" "$pare" calibrate "$2" --data train.h5 --samples 4 \
            -o "$1.$device.json" --device $device
        check "$1_quantize_$device" "$pare" quantize "$2" -o "$1.$device.onnx" \
            --ranges "$1.cpu.json" --device $device
    done
    check "$1_same_model" cmp "$1.cpu.onnx" "$1.cuda.onnx"
    both "$1.f32" "$2"
    check "$1_f32" "$tool" near "$1.f32.cpu/$out" "$1.f32.cuda/$out" 1e-5
    both "$1.int8" "$1.cpu.onnx"
    if [ "$3" = integer ]; then
        check "$1_int8" cmp "$1.int8.cpu/$out" "$1.int8.cuda/$out"
    else
        check "$1_int8" "$tool" codes "$1.cpu.onnx" x.npy
    fi
    # every node rounds its output, and what differs in its last bits before may be rounded to either
    # side: one step of the type at the greatest value (2^-10, 2^-7)
    for type in fp16:9.8e-4 bf16:7.9e-3; do
        compute=
        [ "${type%:*}" = bf16 ] && compute=--bf16-compute
        check "$1_${type%:*}_quantize" "$pare" quantize "$2" -o "$1.half.onnx" --data train.h5 \
            --samples 2 --precision "${type%:*}" $compute --device cuda
        both "$1.${type%:*}" "$1.half.onnx"
        check "$1_${type%:*}" "$tool" near "$1.${type%:*}.cpu/$out" "$1.${type%:*}.cuda/$out" \
            "${type#*:}"
    done
    check "$1_validate" "$pare" validate "$2" "$1.cuda.onnx" --data test.h5 --samples 4 \
        --device cuda --any-accuracy
    check "$1_bench" "$pare" bench "$1.cuda.onnx" --iterations 2 --duration 0 --warmup 0 \
        --device cuda --no-tune
}

"$tool" input 1 x.npy 1 1 28 28
"$tool" cut "$zoo/vit.onnx" /blocks/blocks.0/Add_1_output_0 vit.onnx /Add_output_0 16 || status=1
"$tool" cut "$zoo/resnet.onnx" /2/Relu_1_output_0 resnet.onnx || status=1
net mlp "$zoo/mlp.onnx" integer
net cnn "$zoo/cnn.onnx" integer
net vit_cut vit.onnx
net resnet_cut resnet.onnx

# INT8 with the rest in FP16: the same file on both devices, near outputs; placed by times, it is such a file
for device in cpu cuda; do
    check "mixed_quantize_$device" "$pare" quantize vit.onnx -o "mixed.$device.onnx" --ranges vit_cut.cpu.json \
        --float-precision fp16 --device $device
done
check mixed_same_model cmp mixed.cpu.onnx mixed.cuda.onnx
both mixed mixed.cpu.onnx
check mixed_near "$tool" near "mixed.cpu/$out" "mixed.cuda/$out" 2e-2
# times of an emulation mean nothing: the status is 0 or 3, and a small net takes few of them
"$tool" mlp small.onnx 32 48 40 10 && "$tool" input 1 small.npy 8 32 || status=1
check small_data "$pare" data import -o small.h5 --npy small.npy
placed() {
    "$pare" quantize small.onnx -o placed.onnx --data small.h5 --samples 4 --prefer latency --device cuda
    case $? in 0 | 3) ;; *) return 1 ;; esac
}
check prefer_latency placed
check prefer_latency_fp16 grep -qa float-precision=fp16 placed.onnx
check prefer_latency_runs "$pare" validate small.onnx placed.onnx --data small.h5 --samples 4 --device cuda --any-accuracy

# sparse kernels are timed beside dense ones; the emulation's clock stands still for both
check advise "$pare" prune "$zoo/mlp.onnx" -o never.onnx --nm 2:4 --advise --device cuda \
    --json advice.json
check advise_times_both grep -q sparse_us advice.json
check advise_writes_nothing test ! -e never.onnx

# 2:4, then int8: where the timing cache names the sparse kernels they run, and the bytes are the CPU's
for net in mlp cnn; do
    mkdir "cache.$net"
    check "sparse_${net}_prune" "$pare" prune "$zoo/$net.onnx" -o "$net.24.onnx" --nm 2:4
    check "sparse_${net}_quantize" "$pare" quantize "$net.24.onnx" -o "$net.24.int8.onnx" --mixed-precision 0 \
        --data train.h5 --samples 4
    bench="bench $net.24.int8.onnx --iterations 1 --duration 0 --warmup 0 --device cuda --cache cache.$net"
    # shellcheck disable=SC2086 # words
    check "sparse_${net}_tune" "$pare" $bench
    sed -i 's/cuda_\(matmul\|conv\)_[0-9x]*"/cuda_\1_sparse_64x64"/' "cache.$net/timing.json"
    # shellcheck disable=SC2086
    check "sparse_${net}_bench" "$pare" $bench --no-tune --profile steps.json
    check "sparse_${net}_kernel" grep -q 'cuda_matmul_sparse_64x64' steps.json
    [ $net = mlp ] || check "sparse_${net}_window" grep -q 'cuda_conv_sparse_64x64' steps.json
    check "sparse_${net}_cpu" "$pare" run "$net.24.int8.onnx" --input input=x.npy -o "$net.24.cpu" \
        --device cpu
    check "sparse_${net}_cuda" "$pare" run "$net.24.int8.onnx" --input input=x.npy \
        -o "$net.24.cuda" --device cuda --cache "cache.$net" --no-tune
    check "sparse_${net}_same" diff -r "$net.24.cpu" "$net.24.cuda"
done

# weights of 4 and 8 bits stay so on the device: NAME MODEL
weights() {
    for precision in w4a16 w8a16; do
        for type in int float; do
            check "$1_${precision}_${type}_quantize" "$pare" quantize "$2" -o "$1.weights.onnx" \
                --precision $precision --weight-type $type
            both "$1.weights" "$1.weights.onnx"
            check "$1_${precision}_${type}_run" "$tool" near "$1.weights.cpu/$out" \
                "$1.weights.cuda/$out" 1e-5
            check "$1_${precision}_${type}_bench" "$pare" bench "$1.weights.onnx" --iterations 1 \
                --duration 0 --warmup 0 --device cuda --no-tune --profile steps.json
            check "$1_${precision}_${type}_kernel" grep -q cuda_matmul_weights_few steps.json
        done
    done
}
weights mlp "$zoo/mlp.onnx"
weights vit_cut vit.onnx

# channels by every score, the same ones on both devices; taylor's host steps among them
for score in l1 l2 bn fpgm activation taylor; do
    given= net=resnet
    [ $score = activation ] && net=cnn # runs a model for each group
    case $score in activation | taylor) given="--data train.h5 --samples 2 --no-refit" ;; esac
    for device in cpu cuda; do
        # shellcheck disable=SC2086 # none or several words
        check "prune_${score}_$device" "$pare" prune "$zoo/$net.onnx" -o "pruned.$device.onnx" \
            --macs 0.7 --score $score $given --device $device
    done
    check "prune_${score}_same" cmp pruned.cpu.onnx pruned.cuda.onnx
done

# ranges do not depend on batch, threads and order; the file says where they come from
check calibrate_turned "$pare" calibrate "$zoo/mlp.onnx" --data train.h5 --samples 4 --batch 3 \
    --threads 2 --shuffle 1 -o turned.json --device cuda
check same_ranges cmp mlp.cuda.json turned.json
check calibrate_tf32 "$pare" calibrate "$zoo/mlp.onnx" --data train.h5 --samples 4 --tf32 \
    -o rounded.json --json rounded.facts --device cuda
check tf32_facts grep -q '"tf32": *true' rounded.facts
check tf32_ranges sh -c '! cmp -s rounded.json mlp.cuda.json'
check quantize_data "$pare" quantize "$zoo/mlp.onnx" -o data.onnx --data train.h5 --samples 4 \
    --trace trace.json --device cuda
for lane in "stream 0: copy in" "stream 0: observe" "stream 0: compute" "stream 0: copy out"; do
    check trace_lane grep -q "\"$lane\"" trace.json
done
check names_device grep -qa pare.device data.onnx

# a diagnosis names the same tensors in the same order
for device in cpu cuda; do
    check "diagnose_$device" "$pare" diagnose "$zoo/mlp.onnx" data.onnx --data test.h5 --samples 4 --device $device --quiet
    cut -d' ' -f1 out >"diagnosed.$device"
done
check diagnose_same cmp diagnosed.cpu diagnosed.cuda
check diagnose_tensors grep -q '_output_0$' diagnosed.cuda

check report "$pare" validate "$zoo/mlp.onnx" mlp.cuda.onnx --data test.h5 --samples 2 \
    --device cuda --any-accuracy --report report.html
check report_names_device grep -q "on emulated device (sm_90), CUDA 13.0" report.html

# kernels are timed once; the times are read from then on
tuned() { # CALLS: what it calls is listed there
    SIMT_CALLS=$1 "$pare" bench mlp.cuda.onnx --iterations 1 --duration 0 --warmup 0 --device cuda \
        --cache cache
}
launches() { grep -c launch "$1"; }
fewer() { [ "$(launches second.calls)" -lt $(($(launches first.calls) / 2)) ]; }
check tuned tuned first.calls
check tuned_file cp cache/timing.json first.json
check tuned_again tuned second.calls
check tuned_same cmp cache/timing.json first.json
check tuned_once fewer

# a data set through a net
for device in cpu cuda; do
    check "data_run_$device" "$pare" run mlp.cpu.onnx --data test.h5 --range 0:8 \
        -o "data.$device.h5" --device $device
done
check data_same_outputs cmp data.cpu.h5 data.cuda.h5
check no_such_gpu refused cuda:9 "GPU 9 does not exist"
exit $status
