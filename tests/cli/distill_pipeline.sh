#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several processes share a teacher and a student by layers, and train as one process does: model, log and checkpoint
# have its bytes.
name=distill_pipeline
. "$(dirname "$0")/_lib.sh"
. "$top/tests/cli/_training.sh"
how="--parallel pipeline"
ranks_can || exit 0
data_sets || exit 0
"$pare" prune -q "$zoo/mlp.onnx" -o half.onnx --macs 0.5 >/dev/null || exit 1

# --- the same bytes ---

train="--data $data/train.h5"
mlp="--teacher $zoo/mlp.onnx --student half.onnx $train"
of() { echo "--teacher $zoo/$1.onnx --student $zoo/$1.onnx $train --samples 600 --batch 16"; }
works one_process "$pare" distill $mlp --samples 600 --batch 16 --steps 1 --parallel pipeline -o out.onnx
if has "warning: one process was started" .test.err; then pass one_process_says; else fail one_process_says "$(cat .test.err)"; fi
trains_alike adamw "2 3" $mlp --samples 1500 --batch 32 --steps 20 --validate-every 7 --ema 0.95
trains_alike sgd "3" $mlp --samples 1500 --batch 20 --steps 9 --accumulate 3 --optimizer sgd --lr 0.1 --clip 1 --loss kl:2,ce
trains_alike labels "2" $mlp --samples 600 --batch 16 --steps 4 --loss ce
trains_alike attention "2 4" $(of vit) --steps 2 --ema 0.9
trains_alike frozen "3" $(of resnet) --steps 2 --bn frozen --precision bf16
trains_alike mixed "3" $(of cnn) --steps 3 --augment flip,mixup:0.4
trains_alike qat "3" $(of cnn) --steps 4 --qat int8 --validate-every 2
"$pare" prune -q "$zoo/mlp.onnx" -o sparse.onnx --sparsity 0.5 >/dev/null || exit 1
trains_alike sparse "2" --teacher "$zoo/mlp.onnx" --student sparse.onnx $train --samples 600 --batch 16 --steps 3
sparse="distill --verbose --teacher $zoo/mlp.onnx --student sparse.onnx $train --samples 600 --batch 16 --steps 1 -o out.onnx"
# zeros NAME COMMAND...: the lines on weights that keep their zeros are in NAME
zeros() {
    zeros_=$1
    shift
    works "$zeros_" "$@"
    grep ' stay zero$' .test.err >"$zeros_"
}
zeros zeros_of_one "$pare" $sparse
zeros zeros_of_stages mpirun 2 "$pare" $sparse $how
if [ "$(lines zeros_of_one)" -gt 1 ] && cmp -s zeros_of_one zeros_of_stages; then pass zeros_named; else fail zeros_named "$(diff zeros_of_one zeros_of_stages)"; fi

# --- what is planned ---
works planned mpirun 4 "$pare" distill $(of vit) --steps 1 --parallel pipeline -o out.onnx --json facts.json
if has "stage  nodes  weights" .test.err && has "8 microbatches of 2 samples" .test.err && has "equal ones would for 27.3 %" .test.err &&
    [ "$(grep -c '^stage ' .test.err)" = 1 ]; then pass planned_words; else fail planned_words "$(cat .test.err)"; fi
works facts python3 -c 'import json
facts = json.load(open("facts.json"))
stages = facts["pipeline"]["stages"]
assert facts["ranks"] == len(stages) == 4
assert facts["pipeline"]["microbatches"] == 8
weights = [stage["weight_bytes"] for stage in stages]
assert all(weights) and max(weights) < sum(weights) / 2
activations = [stage["activation_bytes"] for stage in stages]
assert activations == sorted(activations, reverse=True)'

# --- a training goes on in another way ---
distill="$pare distill $mlp --samples 1500 --batch 32 --steps 100 --validate-every 7 --ema 0.95"
rm -rf whole
works whole $distill -q -o whole.onnx --log whole.jsonl --checkpoint whole
rm -rf out out.onnx out.jsonl
killed_on_its_way killed_stages 3 20 $how
killed_on_its_way killed_ranks 2 40
killed_on_its_way killed_fewer_stages 2 60 $how
works continues mpirun 3 $distill --parallel pipeline -q -o out.onnx --log out.jsonl --checkpoint out --checkpoint-every 3 --resume --json facts.json
same continues_bytes
if has '"resumed": ' facts.json; then pass resumed; else fail resumed "$(cat facts.json)"; fi

# --- one rank is asked to stop ---
stopped stopped 3
works goes_on $distill -q -o out.onnx --log out.jsonl --checkpoint out --resume
same goes_on_bytes

# --- the disk of the process that writes is full: a warning, and the same result ---
short="--samples 1500 --batch 32 --steps 9 --validate-every 3 --ema 0.95"
works short "$pare" distill $mlp $short -q -o short.onnx
blocks=$(($(wc -c <half.onnx) / 512 * 2)) # the result fits, a checkpoint does not; over tcp, whose transport makes no large file of its own
works full_disk env OMPI_MCA_btl=tcp,self sh "$top/tests/comm/ranks.sh" 3 sh -c "ulimit -f $blocks && exec \"\$@\"" - "$pare" distill $mlp $short $how -o out.onnx --checkpoint full
if [ "$(grep -c '^warning: .*training continues without a checkpoint' .test.err)" = 1 ] && [ ! -e full/checkpoint.pare ] && cmp -s short.onnx out.onnx; then
    pass full_disk_warns
else
    fail full_disk_warns "$(cat .test.err)"
fi

# --- a stage that fails in the middle of a batch: the others hear of it, forward and backward ---
# look NAME BATCH FRACTION: table[ids] -> MatMul -> Relu -> MatMul, with weights of 0.FRACTION...
look() {
    floats() { seq 1 "$1" | sed "s/^/float_data: 0.$2/" | tr '\n' ' '; }
    printf '%s\n' "ir_version: 8 opset_import { domain: \"\" version: 17 } graph { name: \"g\"
        input { name: \"ids\" type { tensor_type { elem_type: 7 shape { dim { $2 } dim { dim_value: 4 } } } } }
        node { op_type: \"Gather\" name: \"look\" input: \"table\" input: \"ids\" output: \"rows\" }
        initializer { name: \"table\" data_type: 1 dims: 9 dims: 2 $(floats 18 "$3") }
        node { op_type: \"Flatten\" name: \"flat\" input: \"rows\" output: \"f\" }
        node { op_type: \"MatMul\" name: \"first\" input: \"f\" input: \"w\" output: \"a\" } initializer { name: \"w\" data_type: 1 dims: 8 dims: 6 $(floats 48 "$3") }
        node { op_type: \"Relu\" name: \"relu\" input: \"a\" output: \"b\" }
        node { op_type: \"MatMul\" name: \"last\" input: \"b\" input: \"v\" output: \"y\" } initializer { name: \"v\" data_type: 1 dims: 6 dims: 3 $(floats 18 "$3") }
        output { name: \"y\" type { tensor_type { elem_type: 1 shape { dim { $2 } dim { dim_value: 3 } } } } } }" | onnx_of "$1"
}
look look 'dim_param: "n"' 0
look pairs 'dim_value: 2' 1
mkdir good && head -c $((100 * 32)) /dev/zero | npy_of good/ids.npy '<i8' '(100, 4)'
"$pare" data import -q --npy good/ids.npy -o good.h5 >/dev/null || exit 1
trains_alike fixed_batches "2 3" --teacher pairs.onnx --student look.onnx --data good.h5 --batch 32 --steps 4 --loss mse
trains_alike odd_batches 3 --teacher pairs.onnx --student look.onnx --data good.h5 --batch 6 --steps 4 --loss mse --accumulate 3
{
    head -c $((57 * 32)) /dev/zero
    printf '\011\0\0\0\0\0\0\0'
    head -c $((43 * 32 - 8)) /dev/zero
} | npy_of ids.npy '<i8' '(100, 4)'
"$pare" data import -q --npy ids.npy -o ids.h5 >/dev/null || exit 1
fails="$pare distill -q --teacher look.onnx --student look.onnx --data ids.h5 --batch 16 --steps 12 --seed 3 -o no.onnx"
refuses index_in_one 1 "look.onnx: node 'look' (Gather): index 9" $fails
refuses index 1 "look.onnx: node 'look' (Gather): index 9" mpirun 3 $fails --parallel pipeline

# --- what does not go: one message, nothing is written ---
pipe="--parallel pipeline -o no.onnx"
refuses not_finite 1 "half.onnx: step|a lower learning rate may help" mpirun 3 $distill -q --lr 999 --optimizer sgd $pipe
refuses statistics 1 "resnet.onnx: 15 BatchNormalization nodes|--bn frozen" mpirun 2 "$pare" distill $(of resnet) --steps 1 $pipe
refuses many 1 "half.onnx: 8 stages were asked for, but" mpirun 8 $distill $pipe
refuses histograms 2 "--tensorboard|--parallel pipeline" mpirun 2 $distill $pipe --tensorboard board
refuses other_word 2 "--parallel tensor|data|pipeline" "$pare" distill $mlp --parallel tensor -o no.onnx
refuses other_rate 1 "rank 1 (|another command line" mpirun 1 $distill $pipe : -n 1 $distill --lr 0.1 $pipe
finish
