#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory that runs out: one message that names file, node, tensor, bytes and cure.
name=bad_memory
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
(ulimit -v 2000000) 2>/dev/null || {
    skip all "this shell cannot limit memory"
    exit 0
}
limited() { (ulimit -v "$1" && shift && exec "$@"); }
bench="$pare bench --quiet --no-tune --warmup 0 --duration 0 --iterations 1 --threads 1"

refuses activations 1 "resnet.onnx|bytes for activations|tensor '|[100000,16,28,28] of node '|(FusedConv)|--shapes|--threads" \
    limited 1500000 $bench "$zoo/resnet.onnx" --shapes input:100000x1x28x28
batch="$pare validate -q $zoo/vit.onnx $zoo/vit.onnx --data $data/test.h5 --batch 10000 --threads 1"
# with more and more memory, until what it lacks is room for activations
for size in $(seq 140000 15000 500000); do
    limited $size $batch >.test.out 2>.test.err && break
    has 'bytes for activations' .test.err && break
done
refuses activations_of_a_batch 1 "vit.onnx|bytes for activations|tensor '|of node '|smaller --batch" limited $size $batch
refuses beyond_all_memory 1 "resnet.onnx|bytes for activations|[1000000000000,16,28,28]" $bench "$zoo/resnet.onnx" \
    --shapes input:1000000000000x1x28x28
refuses overflow 1 "resnet.onnx|'input'|overflows" $bench "$zoo/resnet.onnx" --shapes input:1000000000000000000x1x28x28
# at sizes from the least on at which the program and its libraries start: works, or one message that names the model
least=60000
until limited $least "$pare" version >.test.out 2>.test.err || [ $least -ge 1000000 ]; do least=$((least + 2000)); done
wrong=
for more in 0 5000 10000 20000 30000 40000 60000; do
    size=$((least + more))
    limited $size "$pare" calibrate -q "$zoo/cnn.onnx" --data "$data/test.h5" --samples 100 --threads 1 -o r.json \
        >.test.out 2>.test.err
    status=$?
    case $status in
    0) ;;
    1) [ "$(grep -c '^pare: .*cnn.onnx' .test.err)" = 1 ] || wrong="$wrong $size:$(tail -1 .test.err)" ;;
    *) wrong="$wrong $size:exit $status" ;;
    esac
    rm -f r.json
done
if [ -z "$wrong" ] && [ $least -lt 1000000 ]; then pass at_every_size; else fail at_every_size "from $least on:$wrong"; fi
finish
