#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A zoo on the emulated GPU: steps and judgements on it, its name in keys, tables and report; a GPU that
# is absent, lost or too small. The emulation ends a process that forks once it has used CUDA: the
# zoo's own must not use it. usage: zoo.sh PARE
pare=${1:?PARE}
. "$(dirname "$0")/_lib.sh"
data_sets zoo
cat >zoo.yaml <<END
models: [{files: ['$zoo/mlp.onnx']}]
data: train.h5
test: test.h5
samples: 8
latency: false
variants:
  - name: int8
    steps: [quantize --samples 4]
  - name: half-int8
    steps: [prune --macs 0.5 --samples 4, distill --steps 2 --batch 4 --samples 100, quantize --samples 4]
END
sed '/half-int8/,$d; s/^latency: false/latency: true/' zoo.yaml >timed.yaml
sed '/half-int8/,$d' zoo.yaml >one.yaml
on="--device cuda --threads 1 --quiet"

# holds NAME WORDS FILE
holds() { check "$1" grep -qF -e "$2" "$3"; }
# fails NAME WORDS COMMAND...: exit status 1, with these words in what it says
fails() {
    name=$1 words=$2
    shift 2
    "$@" >out 2>&1
    got=$?
    if [ $got = 1 ] && grep -qF -e "$words" out; then echo "PASS $name"; else
        echo "FAIL $name: exit $got: $(tail -1 out)"
        status=1
    fi
}
# begun FOLDER COUNT: so many steps were begun
begun() { [ "$(cat "$1"/journal/*.jsonl | grep -c '"started"')" = "$2" ]; }

check run "$pare" zoo zoo.yaml -o all $on
cp out printed
holds ranking "2 of 2 tasks are done" printed
holds device_printed "on emulated device (sm_90)" printed
holds device_in_page "emulated device (sm_90)" all/report.html
check device_in_rows test "$(grep -c ',emulated device (sm_90),' all/results.csv)" = 2
check same_model_as_alone sh -c "'$pare' quantize '$zoo/mlp.onnx' -o alone.onnx --data train.h5 --samples 4 --device cuda -q &&
    cmp alone.onnx all/models/mlp.int8.onnx"
check resume "$pare" zoo zoo.yaml -o all $on --resume
check resume_runs_nothing begun all 6
check other_device "$pare" zoo zoo.yaml -o all --device cpu --threads 1 -q --resume
check other_device_is_other_work begun all 12
check merge "$pare" zoo zoo.yaml -o all $on --merge
check merged_is_of_the_device test "$(grep -c ',emulated device (sm_90),' all/results.csv)" = 2
check task "$pare" zoo one.yaml -o task $on --task 0
check dry_run "$pare" zoo one.yaml -o none $on --dry-run
cp out printed
holds forecast "of 2 steps, 0 of them done" printed
check timed "$pare" zoo timed.yaml -o timed $on
check timed_rows grep -qE '^timed,mlp,int8,.*,emulated device \(sm_90\),[0-9.]+,' timed/results.csv

fails no_driver "--device cuda: cudaGetDeviceCount: there is no NVIDIA driver" \
    env SIMT_DRIVER=0 "$pare" zoo one.yaml -o none $on
check nothing_made test ! -e none
fails too_small "0 of 1 tasks are done; out of memory: 1" env SIMT_MEMORY=4096 "$pare" zoo one.yaml -o small $on
fails lost "0 of 1 tasks are done; failed: 1" env SIMT_FAIL=60:700:sticky "$pare" zoo one.yaml -o lost $on
check lost_continues "$pare" zoo one.yaml -o lost $on --resume
check lost_is_equal cmp lost/models/mlp.int8.onnx all/models/mlp.int8.onnx
exit $status
