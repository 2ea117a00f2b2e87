#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model shared by several processes, a stage each: the bytes of one process, what is planned, and
# one message where it cannot be cut or a rank fails.
name=pipeline
. "$(dirname "$0")/_lib.sh"
mlp=$zoo/mlp.onnx
cnn=$zoo/cnn.onnx
mpirun() { sh "$top/tests/comm/ranks.sh" "$@"; }
data_sets || exit 0
run="--data $data/test.h5 --parallel pipeline"

# --- one process ---
works alone "$pare" run "$cnn" --data "$data/test.h5" --samples 100 -o one.h5
works one_stage "$pare" run "$cnn" $run --samples 100 -o stages.h5
if has "warning: one process was started" .test.err; then pass one_stage_says; else fail one_stage_says "$(cat .test.err)"; fi
if cmp -s one.h5 stages.h5; then pass one_stage_bytes; else fail one_stage_bytes "$(cmp one.h5 stages.h5)"; fi
refuses of_tensors 2 "--parallel|--data" "$pare" run "$cnn" --input input=x.npy --parallel pipeline -o out
refuses with_cache 2 "--cache|--parallel" "$pare" run "$cnn" $run --cache times -o no.h5
refuses weights_alone 2 "--stage-weights|--parallel" "$pare" run "$cnn" --data "$data/test.h5" --stage-weights 1MB -o no.h5
refuses other_word 2 "--parallel data|pipeline" "$pare" run "$cnn" --data "$data/test.h5" --parallel data -o no.h5
if ! ranks_can; then
    finish
    exit
fi

# --- the same bytes ---
works int8 "$pare" quantize "$cnn" --data "$data/train.h5" --samples 64 -o cnn.int8.onnx
# same NAME SIZE MODEL OPTION...: so many processes write what one does
same() {
    case_=$1_$2 size_=$2 model_=$3
    shift 3
    rm -f one.h5 stages.h5
    "$pare" run "$model_" $run "$@" -q -o one.h5 >.test.out 2>.test.err &&
        mpirun "$size_" "$pare" run "$model_" $run "$@" -q -o stages.h5 --json facts.json >.test.out 2>.test.err &&
        cmp -s one.h5 stages.h5 && [ "$(cat .test.out)" = stages.h5 ] && pass "$case_" ||
        fail "$case_" "$(head -2 .test.err | tr '\n' ' ') $(cmp one.h5 stages.h5 2>&1)"
}
for size in 2 3 4; do
    same cnn "$size" "$cnn" --samples 500
    same vit "$size" "$zoo/vit.onnx" --samples 30
    same int8 "$size" cnn.int8.onnx --samples 500 --batch 48
done
same mlp 3 "$mlp" --shuffle 3
same resnet 4 "$zoo/resnet.onnx" --samples 10 --batch 7
same weights 2 "$mlp" --samples 20 --stage-weights 900kB
same one_sample 4 "$cnn" --samples 1
same reference 2 "$mlp" --samples 5 --batch 2
same threads 2 "$cnn" --samples 500 --threads 3

# --- what is planned ---
works planned mpirun 4 "$pare" run "$zoo/vit.onnx" $run --samples 256 -o stages.h5 --json facts.json
if has "stage  nodes" .test.err && has "64 microbatches of 4 samples" .test.err && has "equal ones would for 4.5 %" .test.err; then
    pass planned_words
else
    fail planned_words "$(cat .test.err)"
fi
if command -v python3 >/dev/null 2>&1; then
    works facts python3 -c 'import json
facts = json.load(open("facts.json"))
pipeline = facts["pipeline"]
stages = pipeline["stages"]
assert facts["ranks"] == len(stages) == 4
assert (pipeline["microbatches"], pipeline["microbatch"]) == (64, 4)
assert abs(pipeline["bubble_equal"] - 3 / 67) < 1e-9
assert pipeline["bubble_equal"] <= pipeline["bubble"] < 0.5
assert abs(sum(stage["share"] for stage in stages) - 1) < 1e-9
assert all(stage["nodes"] and stage["weight_bytes"] and stage["activation_bytes"] for stage in stages)
weights = sum(stage["weight_bytes"] for stage in stages)
assert max(stage["weight_bytes"] for stage in stages) < weights / 2
assert stages[3]["sent_bytes"] == 4 * 10 * 4'
else
    skip facts "no python3"
fi
emulated=$top/build/tests/simt/pare_emulated
if [ -x "$emulated" ]; then
    gpu="$emulated run $cnn --data $data/test.h5 --samples 12 --batch 4"
    works gpu_one env SIMT_DEVICES=3 $gpu --device cuda -o one.h5
    works gpus env SIMT_DEVICES=3 $gpu --parallel pipeline --gpus 0,2 -o stages.h5 --json facts.json
    if cmp -s one.h5 stages.h5 && has '"ranks": 2' facts.json; then pass gpus_bytes; else fail gpus_bytes "$(cmp one.h5 stages.h5)"; fi
    # ranks whose memory holds fewer samples than another's agree on the fewest
    works gpus_small env SIMT_DEVICES=2 $emulated run "$cnn" --data "$data/test.h5" --samples 12 --batch 12 --memory-limit 3MB --parallel pipeline --gpus 0,1 -o small.h5
    if has "run at a time" .test.err && cmp -s one.h5 small.h5; then pass gpus_small_bytes; else fail gpus_small_bytes "$(cat .test.err)"; fi
else
    skip gpus "$emulated is not built"
fi

# --- what cannot be cut ---
rm -f one.h5 stages.h5 facts.json
refuses not_said 2 "2 processes|--parallel pipeline" mpirun 2 "$pare" run "$cnn" --data "$data/test.h5" -o no.h5
refuses too_many 1 "mlp.onnx|4 stages|only 3 nodes" mpirun 4 "$pare" run "$mlp" $run -o no.h5
refuses too_heavy 1 "cnn.onnx|2 stages|1000000 bytes" mpirun 2 "$pare" run "$cnn" $run --stage-weights 1MB -o no.h5
refuses no_folder 1 "no/such" mpirun 2 "$pare" run "$cnn" $run --samples 9 -o no/such/y.h5
cp "$cnn" net.onnx && mkdir there && cp "$zoo/mobilenet.onnx" there/net.onnx
other="$pare run net.onnx $run --samples 9 -o $work/no.h5"
refuses other_model 1 "rank 1 (|another model" mpirun 1 $other : -n 1 --wdir there $other
if command -v protoc >/dev/null 2>&1; then
    onnx_of nonzero <<MODEL
ir_version: 8 opset_import { version: 17 }
graph { name: "g"
  node { op_type: "Relu" input: "input" output: "a" }
  node { op_type: "NonZero" input: "a" output: "b" name: "find" }
  node { op_type: "Cast" input: "b" output: "y" attribute { name: "to" type: 2 i: 1 } }
  input { name: "input" type { tensor_type { elem_type: 1 shape { dim { dim_param: "n" } dim { dim_value: 1 } dim { dim_value: 28 } dim { dim_value: 28 } } } } }
  output { name: "y" type { tensor_type { elem_type: 1 } } }
}
MODEL
    refuses computed_shape 1 "nonzero.onnx|node 'find' (NonZero)|stages" mpirun 2 "$pare" run nonzero.onnx $run --samples 9 -o no.h5
else
    skip computed_shape "protoc is not installed"
fi

# --- ranks that fail while microbatches are under way ---
head -c $((600 * 784 * 4)) /dev/zero >zeros
printf '\000\000\300\177' | dd of=zeros bs=1 seek=$((550 * 784 * 4)) conv=notrunc 2>/dev/null # a NaN
npy_of nan.npy '<f4' '(600, 1, 28, 28)' <zeros
works nan_data "$pare" data import --npy nan.npy --name input -o nan.h5 -q
rm -f zeros nan.npy
refuses first_fails 1 "nan.h5|550" mpirun 3 "$pare" run "$cnn" --data nan.h5 --parallel pipeline -q -o no.h5
# over tcp, whose transport makes no large file of its own
refuses first_cannot_write 1 "no.h5|too large" env OMPI_MCA_btl=tcp,self sh "$top/tests/comm/ranks.sh" 3 sh -c 'ulimit -f 40 && exec "$@"' - "$pare" run "$cnn" $run -q -o no.h5
# ends SIGNAL RANK: a rank that gets this signal ends all of them, and nothing is written
ends() {
    case_=$1_$2
    sh "$top/tests/comm/ranks.sh" 3 "$pare" run "$zoo/vit.onnx" $run -o gone.h5 2>.test.err >.test.out &
    ranks_of 3
    kill "-$1" "$(echo "$ranks" | sed -n "$2p")"
    if wait $!; then fail "$case_" "exit 0"; else pass "$case_"; fi
    for i_ in $(seq 1 100); do
        left=$(for rank in $ranks; do kill -0 "$rank" 2>/dev/null && echo "$rank"; done)
        [ -z "$left" ] && break
        sleep 0.1
    done
    if [ -z "$left" ] && [ ! -e gone.h5 ] && [ -z "$(find . -name 'gone.h5*')" ]; then
        pass "$case_.ends"
    else
        fail "$case_.ends" "left: $left $(find . -name 'gone.h5*')"
    fi
}
for rank in 1 2 3; do
    ends INT $rank
    if [ "$(grep -c '^pare: ' .test.err)" = 1 ] && { [ $rank = 1 ] || has "pare: rank $((rank - 1)) (" .test.err; }; then
        pass "INT_$rank.message"
    else
        fail "INT_$rank.message" "$(cat .test.err)"
    fi
done
ends KILL 2
ends KILL 3
# a rank that is slow changes nothing
sh "$top/tests/comm/ranks.sh" 3 "$pare" run "$cnn" $run --samples 3000 -o slow.h5 2>.test.err >.test.out &
ranks_of 3
for rank in $ranks; do
    kill -STOP "$rank" && sleep 0.3
    kill -CONT "$rank"
done
if wait $! && "$pare" run "$cnn" --data "$data/test.h5" --samples 3000 -q -o fast.h5 >.test.out && cmp -s slow.h5 fast.h5; then
    pass slow_ranks
else
    fail slow_ranks "$(cat .test.err)"
fi
works tcp env OMPI_MCA_btl=tcp,self sh "$top/tests/comm/ranks.sh" 3 "$pare" run "$cnn" $run --samples 3000 -q -o tcp.h5
if cmp -s tcp.h5 fast.h5; then pass tcp_bytes; else fail tcp_bytes "$(cmp tcp.h5 fast.h5)"; fi
finish
