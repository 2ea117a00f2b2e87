#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model shared by several processes, a stage each: the bytes of one process, what is planned, and
# one message where it cannot be cut or a rank fails.
name=pipeline
. "$(dirname "$0")/_lib.sh"
. "$top/tests/cli/_parallel.sh"
data_sets || exit 0
how=pipeline
run="--data $data/test.h5 --parallel $how"

# --- one process ---
works alone "$pare" run "$cnn" --data "$data/test.h5" --samples 100 -o one.h5
works one_stage "$pare" run "$cnn" $run --samples 100 -o stages.h5
if has "warning: one process was started" .test.err; then pass one_stage_says; else fail one_stage_says "$(cat .test.err)"; fi
if cmp -s one.h5 stages.h5; then pass one_stage_bytes; else fail one_stage_bytes "$(cmp one.h5 stages.h5)"; fi
refuses of_tensors 2 "--parallel|--data" "$pare" run "$cnn" --input input=x.npy --parallel pipeline -o out
refuses with_cache 2 "--cache|--parallel" "$pare" run "$cnn" $run --cache times -o no.h5
refuses weights_alone 2 "--stage-weights|--parallel" "$pare" run "$cnn" --data "$data/test.h5" --stage-weights 1MB -o no.h5
refuses other_word 2 "--parallel data|pipeline|tensor" "$pare" run "$cnn" --data "$data/test.h5" --parallel data -o no.h5
works judged_alone "$pare" validate "$cnn" "$mlp" --data "$data/test.h5" --samples 64 --parallel $how
if has "warning: one process was started" .test.err; then pass judged_alone_says; else fail judged_alone_says "$(cat .test.err)"; fi
refuses judged_latency 2 "--latency|--parallel" "$pare" validate "$cnn" "$mlp" --data "$data/test.h5" --latency --parallel $how
if ! ranks_can; then
    finish
    exit
fi

# --- the same bytes ---
works int8 "$pare" quantize "$cnn" --data "$data/train.h5" --samples 64 -o cnn.int8.onnx
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

# --- what is compared ---
judged 2
judged 3

# --- what is measured ---
measured
for rank in 1 2 3; do
    measured_ends $rank
done

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
    works gpus_measured env SIMT_DEVICES=2 $emulated bench cnn.int8.onnx --parallel pipeline --gpus 0,1 --duration 0 --warmup 0 --iterations 2
    says gpus_measured_words "on the GPU"
else
    skip gpus "$emulated is not built"
fi

# --- what cannot be cut ---
rm -f one.h5 stages.h5 facts.json
refuses not_said 2 "2 processes|--parallel pipeline" mpirun 2 "$pare" run "$cnn" --data "$data/test.h5" -o no.h5
refuses too_many 1 "mlp.onnx|4 stages|only 3 nodes" mpirun 4 "$pare" run "$mlp" $run -o no.h5
refuses too_heavy 1 "cnn.onnx|2 stages|1000000 bytes" mpirun 2 "$pare" run "$cnn" $run --stage-weights 1MB -o no.h5
refuses_models stages

# --- ranks that fail while microbatches are under way ---
nan_data
refuses first_fails 1 "nan.h5|550" mpirun 3 "$pare" run "$cnn" --data nan.h5 --parallel pipeline -q -o no.h5
cannot_write
ends_all
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
