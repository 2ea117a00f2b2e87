#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory that runs out anywhere, inside a library too: each command under falling limits either gives
# the answer that it gives without a limit, or ends with exit status 1, one message and no part of a file.
name=memory
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
(ulimit -v 2000000) 2>/dev/null || {
    skip all "this shell cannot limit memory"
    exit 0
}
limited() { (ulimit -c 0 && ulimit -v "$1" && shift && exec timeout 60 "$@") >.test.out 2>.test.err; }

# the least at which the program and its libraries start (KiB)
least=40000
while ! limited $least "$pare" version && [ $least -lt 1000000 ]; do least=$((least + 2000)); done
most=$((least + 600000))

# whole: out is what the command writes without a limit. HDF5 files are not compared: libhdf5 places
# the same data elsewhere in its file where it gets less memory.
whole() {
    case $case_ in run | data) return 0 ;; esac
    [ ! -e "$want" ] || diff -r "$want" out >/dev/null
}

# below SIZE COMMAND...: runs it; adds to $wrong what it should not have done; false where it failed.
# What it writes is named out; $want is what it writes without a limit.
below() {
    size=$1
    shift
    rm -rf out
    limited $size "$@"
    got_=$?
    runs=$((runs + 1))
    if [ $got_ = 0 ]; then
        whole || wrong="$wrong $size: another answer;"
        return 0
    fi
    lines_=$(grep -vc '^warning: ' .test.err)
    [ $got_ = 1 ] && [ "$lines_" = 1 ] && grep -q '^pare: ' .test.err ||
        wrong="$wrong $size: exit $got_, $lines_ lines: $(tail -1 .test.err);"
    grep -q 'damaged' .test.err && wrong="$wrong $size: $(cat .test.err);"
    grep -Eq 'emory|No thread|no thread|Thread creation|not granted|start' .test.err ||
        wrong="$wrong $size: no word of memory: $(cat .test.err);"
    # a file that is there is whole: memory ran out after it, where facts are gathered
    [ ! -e out ] || whole || wrong="$wrong $size: left a part;"
    left_=$(find . -type f ! -path './out*' ! -path './.test.*' | tr '\n' ' ')
    [ -z "$left_" ] || wrong="$wrong $size: left $left_;"
    return 1
}

# falls NAME COMMAND...: bisects for the least memory with which it works, then takes steps from there
# down to where the program starts
falls() {
    case_=$1
    shift
    rm -rf out
    wrong=
    runs=0
    want=
    limited 8000000 "$@" || {
        fail "$case_" "without a limit: $(tail -1 .test.err)"
        return
    }
    [ ! -e out ] || mv out ".test.$case_"
    want=.test.$case_
    low=$least high=$most
    while [ $((high - low)) -gt 1000 ]; do
        middle=$(((low + high) / 2))
        if below $middle "$@"; then high=$middle; else low=$middle; fi
    done
    for part in 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1; do below $((least + (high - least) * part / 16)) "$@"; done
    if [ -z "$wrong" ]; then pass "$case_"; else fail "$case_" "of $runs runs (KiB):$wrong"; fi
}

some="--data $data/test.h5 --samples 16"
"$pare" bench -q "$zoo/mlp.onnx" --no-tune --warmup 0 --duration 0 --iterations 1 --json .test.b.json >.test.out || exit 1
falls check "$pare" check "$zoo/resnet.onnx"
falls inspect "$pare" inspect "$zoo/resnet.onnx" --json out
falls inspect_device "$pare" inspect "$zoo/resnet.onnx" --device h200 --json out
falls calibrate "$pare" calibrate -q "$zoo/resnet.onnx" $some --threads 2 -o out
falls quantize "$pare" quantize -q "$zoo/resnet.onnx" $some --threads 4 -o out
falls quantize_rounded "$pare" quantize -q "$zoo/resnet.onnx" $some --precision w4a8 --rounding adaround --iterations 2 \
    --threads 2 -o out
falls quantize_fp16 "$pare" quantize -q "$zoo/resnet.onnx" --precision fp16 -o out
falls prune_channels "$pare" prune -q "$zoo/cnn.onnx" $some --macs 0.5 --threads 2 -o out
falls prune_weights "$pare" prune -q "$zoo/cnn.onnx" --sparsity 0.5 -o out
falls distill "$pare" distill -q --teacher "$zoo/mlp.onnx" --student "$zoo/mlp.onnx" --data "$data/train.h5" \
    --samples 64 --batch 16 --steps 2 --threads 2 -o out
head -c 12544 /dev/zero | npy_of .test.x.npy '<f4' '(4, 1, 28, 28)'
falls run_tensors "$pare" run -q "$zoo/resnet.onnx" --input input=.test.x.npy --threads 2 -o out
falls run "$pare" run -q "$zoo/resnet.onnx" $some --threads 2 -o out
falls validate "$pare" validate -q "$zoo/resnet.onnx" "$zoo/cnn.onnx" $some --threads 2
"$pare" quantize -q "$zoo/cnn.onnx" $some -o .test.int8.onnx >.test.out
falls diagnose "$pare" diagnose -q "$zoo/cnn.onnx" .test.int8.onnx $some --threads 2 --report out
falls check_target "$pare" check .test.int8.onnx --target tensorrt --fix out
falls bench "$pare" bench -q "$zoo/vit.onnx" --no-tune --warmup 0 --duration 0 --iterations 1 --threads 4
falls report "$pare" report .test.b.json -o out
falls data "$pare" data fashion-mnist -q -o out
finish
