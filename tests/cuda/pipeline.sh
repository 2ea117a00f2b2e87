#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processes with an emulated GPU each share a teacher and a student by layers, and train as one process with one GPU
# does: model, log and checkpoint have its bytes.
#
#   sh tests/cuda/pipeline.sh PARE      pare_emulated
PARE=${1:?PARE}
export PARE
name=cuda_pipeline
. "$(dirname "$0")/../cli/_lib.sh"
. "$top/tests/cli/_training.sh"
how="--parallel pipeline"
ranks_can || exit 77
data_sets || exit 77
export SIMT_DEVICES=4
"$pare" prune -q "$zoo/mlp.onnx" -o half.onnx --macs 0.5 >/dev/null || exit 1

# --- the same bytes ---
train="--data $data/train.h5 --device cuda"
mlp="--teacher $zoo/mlp.onnx --student half.onnx $train"
of() { echo "--teacher $zoo/$1.onnx --student $zoo/$1.onnx $train --samples 32 --batch 4"; }
trains_alike adamw "2 3" $mlp --samples 200 --batch 16 --steps 4 --validate-every 2 --ema 0.95
trains_alike sgd "3" $mlp --samples 200 --batch 12 --steps 3 --accumulate 3 --optimizer sgd --lr 0.1 --clip 1 --loss kl:2,ce # a stage without weights
trains_alike fp16 "4" $(of cnn) --steps 3 --precision fp16 --augment flip,mixup:0.4
trains_alike bf16 "3" $(of resnet) --steps 2 --precision bf16 --bn frozen
trains_alike attention "4" $(of vit) --steps 1
trains_alike qat "2" $(of cnn) --steps 2 --qat int8 --qat-samples 16
export SIMT_STREAMS=shuffled
trains_alike shuffled "3" $(of cnn) --steps 2
unset SIMT_STREAMS
works one_gpu env SIMT_DEVICES=1 sh "$top/tests/comm/ranks.sh" 3 "$pare" distill -q $(of cnn) --steps 2 $how -o out.onnx
if cmp -s whole.onnx out.onnx; then pass one_gpu_bytes; else fail one_gpu_bytes "$(cmp whole.onnx out.onnx 2>&1)"; fi
works gpus env OMPI_MCA_rmaps_base_oversubscribe=1 HWLOC_HIDE_ERRORS=2 "$pare" distill $(of cnn | sed 's/--device cuda//') --gpus 1-2 --steps 2 $how -o out.onnx --json facts.json
if cmp -s whole.onnx out.onnx && has "needs about" .test.err && has '"planned_device_memory_bytes"' facts.json; then pass gpus_bytes; else fail gpus_bytes "$(cat .test.err)"; fi

# --- a view of a trained weight crosses to the last stage ---
# floats SEED COUNT: values of an initializer
floats() { python3 -c "import random; random.seed($1); print(*('float_data: %.4f' % random.uniform(-.5, .5) for _ in range($2)))"; }
# values NAME SHAPE: an input or an output of a graph, of n rows of 8
values() { echo "$1 { name: \"$2\" type { tensor_type { elem_type: 1 shape { dim { dim_param: \"n\" } dim { dim_value: 8 } } } } }"; }
# node OP OUTPUT INPUT...: its line
node() {
    op_=$1 out_=$2
    shift 2
    echo "node { op_type: \"$op_\" output: \"$out_\" $(printf 'input: "%s" ' "$@")}"
}
# net NAME SEED: relu(relu(x R) v) R, where R is a view of w
net() {
    {
        echo 'ir_version: 8 opset_import { domain: "" version: 17 } graph { name: "g"'
        values input x
        echo 'initializer { name: "s" data_type: 7 dims: 2 int64_data: 8 int64_data: 8 }'
        echo "initializer { name: \"w\" data_type: 1 dims: 64 $(floats "$2" 64) }"
        echo "initializer { name: \"v\" data_type: 1 dims: 8 dims: 8 $(floats "1$2" 64) }"
        node Reshape R w s && node MatMul a x R && node Relu b a
        node MatMul c b v && node Relu d c && node MatMul y d R
        echo "$(values output y) }"
    } | onnx_of "$1"
}
net student 3
net teacher 4
python3 -c "import random, struct, sys
random.seed(9)
sys.stdout.buffer.write(struct.pack('<1600f', *(random.uniform(-1, 1) for _ in range(1600))))" | npy_of x.npy '<f4' '(200, 8)'
"$pare" data import -q --npy x.npy -o x.h5 || exit 1
rows="--data x.h5 --device cuda --loss mse --batch 16"
trains_alike tied "3" --teacher teacher.onnx --student student.onnx $rows --steps 6 --lr 0.05 --validate-every 3

# --- planned memory has the constants of every graph, and messages those of the teacher ---
# half NAME ROWS COLUMNS: a constant of another type than what is trained
half() {
    printf 'initializer { name: "%s" data_type: 10 dims: %s dims: %s raw_data: "%s" }\n' "$1" "$2" "$3" \
        "$(python3 -c "print(r'\000\044' * ($2 * $3))")"
}
{
    echo 'ir_version: 8 opset_import { domain: "" version: 17 } graph { name: "g"'
    values input x
    half up 4096 8 && half down 8 4096
    echo "initializer { name: \"v\" data_type: 1 dims: 8 dims: 8 $(floats 5 64) }"
    echo "initializer { name: \"w\" data_type: 1 dims: 8 dims: 8 $(floats 6 64) }"
    node Cast Up up | sed 's/}$/attribute { name: "to" type: 2 i: 1 } }/'
    node Cast Down down | sed 's/}$/attribute { name: "to" type: 2 i: 1 } }/'
    node MatMul a x v && node Transpose b a
    node MatMul c Up b && node MatMul d Down c
    node Transpose e d && node MatMul y e w
    echo "$(values output y) }"
} | onnx_of constants
works constants mpirun 2 "$pare" distill --teacher teacher.onnx --student constants.onnx $rows --steps 1 $how -o out.onnx --json facts.json
works constants_planned python3 -c 'import json
facts = json.load(open("facts.json"))
activations = facts["pipeline"]["stages"][0]["activation_bytes"]
assert facts["planned_device_memory_bytes"] > activations + 3 * 8 * 4096 * 4, facts'

# --- a training goes on in another way ---
distill="$pare distill $mlp --samples 200 --batch 8 --steps 60 --validate-every 7 --ema 0.95"
rm -rf whole
works whole $distill -q -o whole.onnx --log whole.jsonl --checkpoint whole
rm -rf out out.onnx out.jsonl
killed_on_its_way killed_one 1 10
killed_on_its_way killed_stages 3 25 $how
works continues $distill -q -o out.onnx --log out.jsonl --checkpoint out --checkpoint-every 3 --resume --json facts.json
same continues_bytes
if has '"resumed": ' facts.json; then pass resumed; else fail resumed "$(cat facts.json)"; fi

# --- one rank is asked to stop ---
stopped stopped 3
works goes_on $distill -q -o out.onnx --log out.jsonl --checkpoint out --resume
same goes_on_bytes

# --- a GPU that fails: one message, nobody waits, nothing is written ---
short="$pare distill -q $(of cnn) --steps 3 $how -o no.onnx"
works calls mpirun 1 -x SIMT_CALLS=calls.0 $short : -n 1 -x SIMT_CALLS=calls.1 $short : -n 1 $short
rm no.onnx
# in_rank RANK FAULT: three processes, of which this one has the fault
in_rank() { mpirun 1 $(fault_of 0 "$@") $short : -n 1 $(fault_of 1 "$@") $short : -n 1 $(fault_of 2 "$@") $short; }
fault_of() { [ "$1" != "$2" ] || echo "-x $3"; }
launches=$(grep -c ' launch$' calls.1)
refuses kernel_fails 1 "rank 1 (|unspecified launch failure" in_rank 1 "SIMT_FAIL=launch/$((launches / 2)):719"
refuses kernel_fails_at_the_end 1 "rank 2 (|unspecified launch failure" in_rank 2 "SIMT_FAIL=launch/$((launches * 2 / 3)):719"
refuses copy_fails 1 "cudaMemcpyAsync: unspecified launch failure" in_rank 0 "SIMT_FAIL=cudaMemcpyAsync/$(($(grep -c ' cudaMemcpyAsync$' calls.0) / 2)):719"
refuses gpu_lost 1 "rank 1 (" in_rank 1 "SIMT_FAIL=$(($(wc -l <calls.1) * 3 / 4)):700:sticky"
refuses no_memory 1 "rank 1 (|out of GPU memory" in_rank 1 SIMT_MEMORY=300000
short="$short --checkpoint kept --checkpoint-every 3"
works calls_with_checkpoint mpirun 1 $short : -n 1 -x SIMT_CALLS=calls.1 $short : -n 1 $short
mv no.onnx whole.onnx
rm -r kept
in_rank 1 "SIMT_FAIL=cudaMemcpyAsync/$(grep -c ' cudaMemcpyAsync$' calls.1):719" >.test.out 2>.test.err # within the last checkpoint
got=$?
if [ $got = 1 ] && has "rank 1 (" .test.err && [ ! -e no.onnx ]; then pass checkpoint_fails; else fail checkpoint_fails "exit $got: $(cat .test.err)"; fi
works checkpoint_stays mpirun 3 $short --resume --json facts.json
if has '"resumed": 0' facts.json && cmp -s whole.onnx no.onnx; then pass resumed_bytes; else fail resumed_bytes "$(cmp whole.onnx no.onnx 2>&1) $(grep resumed facts.json)"; fi
rm no.onnx
rm -f calls.0 calls.1

# --- what does not go ---
refuses statistics 1 "resnet.onnx: 15 BatchNormalization nodes|--bn frozen" mpirun 2 "$pare" distill $(of resnet) --steps 1 $how -o no.onnx
refuses not_finite 1 "half.onnx: step|a lower learning rate may help" mpirun 3 $distill -q --lr 999 --optimizer sgd $how -o no.onnx
finish
