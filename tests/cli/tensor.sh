#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model whose products several processes share: the bytes of one process, what is planned, and one
# message where nothing can be cut or a rank fails.
name=tensor
. "$(dirname "$0")/_lib.sh"
. "$top/tests/cli/_parallel.sh"
data_sets || exit 0
how=tensor
run="--data $data/test.h5 --parallel $how"

# --- one process ---
works alone "$pare" run "$cnn" --data "$data/test.h5" --samples 100 -o one.h5
works one_rank "$pare" run "$cnn" $run --samples 100 -o many.h5
if has "warning: one process was started" .test.err; then pass one_rank_says; else fail one_rank_says "$(cat .test.err)"; fi
if cmp -s one.h5 many.h5; then pass one_rank_bytes; else fail one_rank_bytes "$(cmp one.h5 many.h5)"; fi
refuses with_cache 2 "--cache|--parallel" "$pare" run "$cnn" $run --cache times -o no.h5
refuses with_stages 2 "--stage-weights|--parallel pipeline" "$pare" run "$cnn" $run --stage-weights 1MB -o no.h5
works judged_alone "$pare" validate "$cnn" "$mlp" --data "$data/test.h5" --samples 64 --parallel $how
if has "warning: one process was started" .test.err; then pass judged_alone_says; else fail judged_alone_says "$(cat .test.err)"; fi
refuses judged_latency 2 "--latency|--parallel" "$pare" validate "$cnn" "$mlp" --data "$data/test.h5" --latency --parallel $how
if ! ranks_can; then
    finish
    exit
fi

# --- the same bytes ---
works int8 "$pare" quantize "$cnn" --data "$data/train.h5" --samples 64 -o cnn.int8.onnx
works int8_vit "$pare" quantize "$zoo/vit.onnx" --data "$data/train.h5" --samples 16 -o vit.int8.onnx
works four_bits "$pare" quantize "$mlp" --data "$data/train.h5" --samples 64 --precision w4a16 -o mlp.w4.onnx
for size in 2 3 4; do
    same mlp "$size" "$mlp" --samples 500
    same cnn "$size" "$cnn" --samples 200
    same resnet "$size" "$zoo/resnet.onnx" --samples 10 --batch 7
    same vit "$size" "$zoo/vit.onnx" --samples 30
    same int8 "$size" cnn.int8.onnx --samples 500 --batch 48
    same int8_vit "$size" vit.int8.onnx --samples 20
done
same mobilenet 2 "$zoo/mobilenet.onnx" --samples 20
same four_bits 2 mlp.w4.onnx --samples 50
same threads 2 "$cnn" --samples 500 --threads 3
same shuffled 3 "$mlp" --shuffle 3
same one_sample 4 "$cnn" --samples 1

# --- what is compared ---
judged 2
judged 3

# --- what is measured ---
measured
for rank in 1 2 3; do
    measured_ends $rank
done

# --- what is planned ---
works planned mpirun 4 "$pare" run "$mlp" $run --samples 256 -o many.h5 --json facts.json
if has "rank  weights  activations" .test.err && has "2 of 3 products with constant weights are cut" .test.err; then
    pass planned_words
else
    fail planned_words "$(cat .test.err)"
fi
if command -v python3 >/dev/null 2>&1; then
    works facts python3 -c 'import json
facts = json.load(open("facts.json"))
tensor = facts["tensor"]
shards = tensor["shards"]
assert facts["ranks"] == len(shards) == 4
assert (tensor["products"], tensor["cut"]) == (3, 2)
whole = tensor["weight_bytes"] - tensor["cut_weight_bytes"]
assert 0 < whole < tensor["weight_bytes"] / 50
assert sum(shard["weight_bytes"] - whole for shard in shards) == tensor["cut_weight_bytes"]
assert max(shard["weight_bytes"] for shard in shards) < 0.3 * tensor["weight_bytes"]
assert all(shard["activation_bytes"] and shard["sent_bytes"] for shard in shards)'
else
    skip facts "no python3"
fi
emulated=$top/build/tests/simt/pare_emulated
if [ -x "$emulated" ]; then
    for net in cnn.int8.onnx "$cnn" "$zoo/resnet.onnx"; do
        which=gpus_$(basename "$net" .onnx)
        gpu="$emulated run $net --data $data/test.h5 --samples 6 --batch 3"
        works "$which.one" env SIMT_DEVICES=3 $gpu --device cuda -o one.h5
        works "$which.two" env SIMT_DEVICES=3 $gpu --parallel tensor --gpus 0,2 -o many.h5 --json facts.json
        if cmp -s one.h5 many.h5 && has '"ranks": 2' facts.json; then pass "$which"; else fail "$which" "$(cmp one.h5 many.h5)"; fi
    done
    # ranks whose memory holds fewer samples than a batch agree on how many
    small="$emulated run $cnn --data $data/test.h5 --samples 12 --batch 12"
    works gpus_whole env SIMT_DEVICES=2 $small --device cuda -o one.h5
    works gpus_small env SIMT_DEVICES=2 $small --memory-limit 3MB --parallel tensor --gpus 0,1 -o many.h5
    if has "run at a time" .test.err && cmp -s one.h5 many.h5; then pass gpus_small_bytes; else fail gpus_small_bytes "$(cat .test.err)"; fi
    gpu="$emulated validate cnn.int8.onnx cnn.int8.onnx --data $data/test.h5 --samples 6 --batch 3 --any-accuracy -q"
    SIMT_DEVICES=3 $gpu --device cuda >one.txt 2>.test.err
    works gpus_judged env SIMT_DEVICES=3 $gpu --parallel tensor --gpus 0-2
    if [ -s one.txt ] && cmp -s one.txt .test.out; then pass gpus_judged_words; else fail gpus_judged_words "$(cat .test.err)"; fi
    works gpus_measured env SIMT_DEVICES=2 $emulated bench cnn.int8.onnx --parallel tensor --gpus 0,1 --duration 0 --warmup 0 --iterations 2
    says gpus_measured_words "on the GPU"
else
    skip gpus "$emulated is not built"
fi

# --- what cannot be cut ---
rm -f one.h5 many.h5 facts.json
refuses not_said 2 "2 processes|--parallel tensor" mpirun 2 "$pare" run "$cnn" --data "$data/test.h5" -o no.h5
refuses nothing_to_cut 1 "mlp.onnx|none of its 3 products|30 parts" mpirun 30 "$pare" run "$mlp" $run --samples 9 -o no.h5
refuses_models shards

# --- ranks that fail while others wait for their parts ---
nan_data
refuses all_fail 1 "nan.h5|550" mpirun 3 "$pare" run "$cnn" --data nan.h5 --parallel tensor -q -o no.h5
cannot_write
ends_all
finish
