#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare prune to a target: files, words and refusals.
name=prune_channels
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
prune="$pare prune --quiet $zoo/resnet.onnx"
few="--data $data/train.h5 --samples 40"

for score in l1 l2 bn fpgm random; do works "score_$score" $prune -o "$score.onnx" --macs 0.5 --score $score; done
works score_taylor $prune -o taylor.onnx --macs 0.5 --score taylor $few --no-refit
works score_bn_refit $prune -o norm.onnx --macs 0.7 --score bn $few
works data $prune -o data.onnx --macs 0.5 $few --json data.json
grep -q '"planned_memory_bytes"' data.json && pass data_memory || fail data_memory "$(head -c 300 data.json)"
if grep -aq 'prune macs=0.5 scope=global score=activation steps=1' data.onnx; then pass manifest; else fail manifest "no recipe in data.onnx"; fi
works params $prune -o params.onnx --params 0.5
works size $prune -o size.onnx --size 400kB
if [ "$(wc -c <size.onnx)" -le 400000 ]; then pass size_is_met; else fail size_is_met "$(wc -c <size.onnx)"; fi
works layer $prune -o layer.onnx --macs 0.5 --scope layer --round 4 --min-channels 4
works steps $prune -o steps.onnx --macs 0.5 --steps 2 $few
works keep $prune -o kept.onnx --macs 0.8 --keep '/3/conv1*' --json kept.json
group='"name": "/3/conv1/conv1.0/Conv"'
if has "$group" data.json && ! has "$group" kept.json; then pass keep_keeps; else fail keep_keeps "its group is in both or in none"; fi
works sweep $prune -o swept.onnx --macs 1 --sweep 0.8,0.6
if [ -s swept-0.80.onnx ] && [ -s swept-0.60.onnx ] && [ ! -e swept.onnx ]; then pass sweep_files; else fail sweep_files "$(ls)"; fi
works quantize_after "$pare" quantize -q data.onnx -o data.int8.onnx $few
"$pare" prune "$zoo/resnet.onnx" -o least.onnx --macs 0.01 --min-channels 8 >.test.out 2>.test.err
has "cannot come down to" .test.err && [ -s least.onnx ] && pass nearest_is_written || fail nearest_is_written "$(cat .test.err)"
# what a run takes is not judged here: only what is written, kept and said
works latency $prune -o latency.onnx --latency 0.7 --threads 1 --cache times --json latency.json
if grep -q '"measured"' latency.json && grep -q '"time_ms"' latency.json && grep -q '"pare_steps": 1' times/steps.json; then pass latency_facts; else fail latency_facts "$(ls times)"; fi
works latency_sweep $prune -o timed.onnx --latency 1 --sweep 0.8,0.6 --threads 1 --cache times --min-channels 4
if [ -s timed-0.80.onnx ] && [ -s timed-0.60.onnx ]; then pass latency_sweep_files; else fail latency_sweep_files "$(ls)"; fi
works latency_data $prune -o fitted.onnx --latency 0.7 --threads 1 --cache times --steps 2 $few
printf '{"pare_steps": 1, "machi' >times/steps.json
"$pare" prune "$zoo/cnn.onnx" -o cut.onnx --latency 0.6 --threads 1 --cache times >.test.out 2>.test.err
has "steps.json is not" .test.err && [ -s cut.onnx ] && grep -q '"machines"' times/steps.json && pass latency_cut_cache || fail latency_cut_cache "$(cat .test.err)"
"$pare" prune "$zoo/cnn.onnx" -o least.onnx --latency 1us --threads 1 --min-channels 16 >.test.out 2>.test.err
has "latency cannot come down to" .test.err && [ -s least.onnx ] && pass latency_nearest || fail latency_nearest "$(cat .test.err)"

refuses latency_zero 2 "--latency 0|3.2ms" $prune -o x.onnx --latency 0
refuses latency_above_one 2 "--latency 1.5" $prune -o x.onnx --latency 1.5
refuses latency_unit 2 "--latency 3min" $prune -o x.onnx --latency 3min
refuses latency_nan 2 "--latency nan" $prune -o x.onnx --latency nan
refuses latency_met 1 "resnet.onnx|50 s are allowed|already" $prune -o x.onnx --latency 50s --threads 1
refuses latency_sweep_of_time 2 "--sweep" $prune -o x.onnx --latency 3ms --sweep 0.5
refuses latency_and_macs 2 "exclude each other" $prune -o x.onnx --latency 0.5 --macs 0.5
refuses cache_of_macs 2 "--cache|--latency" $prune -o x.onnx --macs 0.5 --cache times
refuses above_one 2 "--macs|1.5" $prune -o x.onnx --macs 1.5
refuses two_targets 2 "exclude each other" $prune -o x.onnx --macs 0.5 --size 1MB
refuses bn_without 1 "mlp.onnx|has no BatchNormalization|l2" "$pare" prune "$zoo/mlp.onnx" -o x.onnx --macs 0.5 --score bn
refuses activation_without_data 2 "activation|--data" $prune -o x.onnx --macs 0.5 --score activation
refuses taylor_without_data 2 "taylor|--data" $prune -o x.onnx --macs 0.5 --score taylor
refuses seed_of_l2 2 "--seed" $prune -o x.onnx --macs 0.5 --seed 3
refuses sweep_of_size 2 "--sweep" $prune -o x.onnx --size 1MB --sweep 0.5
refuses pattern 2 "--keep|'con_v*'|near it" $prune -o x.onnx --macs 0.5 --keep 'con_v*'
refuses all_kept 1 "resnet.onnx|no channel|kept" $prune -o x.onnx --macs 0.5 --keep 'op:*'
refuses quantized 1 "prune the float model first" "$pare" prune data.int8.onnx -o x.onnx --macs 0.5
finish
