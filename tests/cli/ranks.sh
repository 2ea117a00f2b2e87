#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs of several processes, started by mpirun: the same bytes for any number of them, one message
# where they do not fit together, nothing left behind.
name=ranks
. "$(dirname "$0")/_lib.sh"
mlp=$zoo/mlp.onnx
cnn=$zoo/cnn.onnx
mpirun() { sh "$top/tests/comm/ranks.sh" "$@"; }

if ! ranks_can; then
    has 'this build has no MPI' .test.err && refuses no_mpi 1 "3 processes were started|libopenmpi-dev" env OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=0 "$pare" version
    finish
    exit
fi
# without MPI's own start: the launcher's words alone
refuses alone 1 "1 process where 3 were started" env HWLOC_HIDE_ERRORS=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=0 "$pare" version
data_sets || exit 0

# --- the same bytes ---
calibrate="$pare calibrate $cnn --data $data/train.h5 --samples 50"
works one $calibrate -o one.json --json one.facts
cp one.facts calibration.facts
for size in 2 3 4; do
    works "size_$size" mpirun $size $calibrate -o many.json --json many.facts
    if cmp -s one.json many.json; then pass "bytes_$size"; else fail "bytes_$size" "$(cmp one.json many.json)"; fi
    if grep -q "\"ranks\": $size" many.facts; then pass "facts_$size"; else fail "facts_$size" "$(grep ranks many.facts)"; fi
done
if [ "$(wc -l <.test.out)" = 1 ]; then pass one_rank_prints; else fail one_rank_prints "$(cat .test.out)"; fi
works samples_of_few_ranks mpirun 4 "$pare" calibrate "$mlp" --data "$data/train.h5" --samples 5 -o few.json
works cache_made mpirun 2 $calibrate --cache cache -o many.json
if cmp -s one.json many.json; then pass cache_made_bytes; else fail cache_made_bytes "$(cmp one.json many.json)"; fi
works cache_read mpirun 3 $calibrate --cache cache -o many.json
if cmp -s one.json many.json; then pass cache_read_bytes; else fail cache_read_bytes "$(cmp one.json many.json)"; fi
if [ "$(find cache -type f | wc -l)" = 1 ]; then pass cache_is_one; else fail cache_is_one "$(find cache)"; fi

# --- GPUs ---
emulated=$top/build/tests/simt/pare_emulated
for word in 0- -1 1-0 0,0 0,1-2,2 0x 0,,1 0-2000; do
    refuses "gpus_$word" 2 "--gpus $word|each once" "$pare" calibrate "$mlp" --data mine.h5 --gpus "$word" -o no.json
done
refuses gpus_and_device 2 "exclude each other" "$pare" calibrate "$mlp" --data mine.h5 --gpus 0,1 --device cpu -o no.json
if [ -x "$emulated" ]; then
    gpu="$emulated calibrate $mlp --data $data/train.h5 --samples 80"
    works gpu_one env SIMT_DEVICES=3 $gpu --gpus 1 -o one.gpu.json
    works gpus env SIMT_DEVICES=3 $gpu --gpus 0,2 -o gpus.json --json gpus.facts
    if cmp -s one.gpu.json gpus.json && grep -q '"ranks": 2' gpus.facts; then pass gpus_bytes; else fail gpus_bytes "$(cmp one.gpu.json gpus.json)"; fi
    works gpus_in_turn mpirun 2 env SIMT_DEVICES=2 $gpu --device cuda -o gpus.json
    if cmp -s one.gpu.json gpus.json; then pass gpus_in_turn_bytes; else fail gpus_in_turn_bytes "$(cmp one.gpu.json gpus.json)"; fi
    works gpus_are_said mpirun 2 env SIMT_DEVICES=2 $gpu --device cuda -v -o gpus.json
    if grep -q '^rank 0 (.*): on cuda:0, ' .test.err && grep -q '^rank 1 (.*): on cuda:1, ' .test.err; then pass gpus_said; else fail gpus_said "$(grep 'on cuda' .test.err)"; fi
    works gpus_recipe env SIMT_DEVICES=3 $gpu --gpus 0,2 -o gpus.json --recipe gpus.yaml
    works gpus_replay env SIMT_DEVICES=3 "$emulated" replay gpus.yaml
    says gpus_replay_same "gpus.json: the same"
    # the launcher's own lines follow ours
    env SIMT_DEVICES=2 $gpu --gpus 0,2 -o no.json >.test.out 2>.test.err
    if [ $? = 1 ] && [ "$(grep -c '^pare: ' .test.err)" = 1 ] && has "rank 1 (" .test.err && has "GPU 2 does not exist" .test.err; then pass gpus_gone; else fail gpus_gone "$(head -3 .test.err)"; fi
else
    skip gpus "$emulated is not built"
fi

# --- a comparison: what it prints, and its facts but for the machine ---
validate="$pare validate $cnn $mlp --data $data/test.h5 --samples 500 --batch 64"
plain() { python3 -c 'import json, sys
facts = json.load(open(sys.argv[1]))
for key in "device", "ranks", "run", "planned_memory_bytes": facts.pop(key, None)
print(json.dumps(facts, sort_keys=True))' "$1"; }
works validate_1 $validate --json one.facts
cp .test.out one.out
plain one.facts >one.plain
for size in 2 3 8; do
    works "validate_$size" mpirun $size $validate --json many.facts
    if cmp -s one.out .test.out; then pass "validate_prints_$size"; else fail "validate_prints_$size" "$(diff one.out .test.out | head -3)"; fi
    plain many.facts >many.plain
    if [ -s one.plain ] && cmp -s one.plain many.plain; then pass "validate_facts_$size"; else fail "validate_facts_$size" "$(cmp one.plain many.plain)"; fi
done
refuses validate_latency 2 "--latency|several processes" mpirun 2 $validate --latency
mkdir -p one two && cp "$cnn" one/net.onnx && cp "$mlp" two/net.onnx
other="$pare validate net.onnx --data $data/test.h5 --samples 500"
refuses validate_models 1 "rank 1 (|another model" mpirun 1 --wdir one $other : -n 1 --wdir two $other
refuses validate_batches 1 "test.h5|3 ranks, but only 2 batches of 250" mpirun 3 "$pare" validate "$cnn" "$mlp" --data "$data/test.h5" --samples 500 --batch 250

works recipe_of_one $calibrate -o r.json --recipe one.yaml
works recipe_of_ranks mpirun 3 $calibrate -o r.json --recipe many.yaml
if cmp -s one.yaml many.yaml && ! has threads many.yaml; then pass recipe_bytes; else fail recipe_bytes "$(diff one.yaml many.yaml | head -4)"; fi

# --- pruning: the same model, and facts but for the machine ---
prunes() { # NAME SIZES OPTION...
    case=$1 sizes=$2
    shift 2
    works "prune_$case" "$pare" prune "$@" --data "$data/train.h5" -o one.onnx --json one.facts
    for size in $sizes; do
        works "prune_${case}_$size" mpirun "$size" "$pare" prune "$@" --data "$data/train.h5" -o many.onnx --json many.facts
        if [ -s one.onnx ] && cmp -s one.onnx many.onnx; then pass "prune_${case}_bytes_$size"; else fail "prune_${case}_bytes_$size" "$(cmp one.onnx many.onnx)"; fi
        plain one.facts | sed 's/one\.onnx/many.onnx/g' >one.plain
        plain many.facts >many.plain
        if [ -s one.plain ] && cmp -s one.plain many.plain; then pass "prune_${case}_facts_$size"; else fail "prune_${case}_facts_$size" "$(cmp one.plain many.plain)"; fi
    done
}
prunes channels "2 3 4" "$zoo/resnet.onnx" --macs 0.5 --samples 60
prunes depthwise 3 "$zoo/mobilenet.onnx" --params 0.7 --samples 20
prunes weights "2 4" "$mlp" --sparsity 0.7 --samples 40
prunes nm 3 "$zoo/resnet.onnx" --nm 2:4 --samples 24
prunes taylor "2 3" "$zoo/resnet.onnx" --macs 0.5 --samples 40 --score taylor --no-refit
prunes taylor_weights 4 "$mlp" --sparsity 0.6 --samples 40 --score taylor
prunes few_samples 4 "$mlp" --macs 0.6 --samples 3
refuses prune_gpus_without_data 2 "--gpus|without --data" "$pare" prune "$mlp" --macs 0.6 --gpus 0 -o no.onnx
works prune_without_data mpirun 2 "$pare" prune "$mlp" --macs 0.6 -o many.onnx
for word in "--latency 0.5" "--macs 0.5 --report r.html" "--nm 2:4 --advise"; do
    refuses "prune_alone_$(echo "$word" | tr -dc a-z)" 2 "with several processes" mpirun 2 "$pare" prune "$mlp" $word --data "$data/train.h5" -o no.onnx
done
works prune_sweep mpirun 2 "$pare" prune "$mlp" --macs 0.5 --sweep 0.7,0.5 --samples 40 --data "$data/train.h5" -o sweep.onnx
works prune_sweep_alone "$pare" prune "$mlp" --macs 0.5 --samples 40 --data "$data/train.h5" -o one.onnx
if [ -e sweep-0.70.onnx ] && cmp -s one.onnx sweep-0.50.onnx; then pass prune_sweep_bytes; else fail prune_sweep_bytes "$(ls sweep*)"; fi
other="$pare prune net.onnx --data $data/train.h5 --macs 0.5 --samples 40 -o $work/no.onnx"
refuses prune_models 1 "rank 1 (|another model" mpirun 1 --wdir one $other : -n 1 --wdir two $other

# --- a zoo whose steps have several ranks: the models of one rank; a step that fails says why ---
models="models: [{files: [$mlp]}]"
zoo_of one.yaml "$models" 'variants: [{name: v, steps: [prune --macs 0.6 --samples 16, distill --steps 4]}]'
zoo_of two.yaml "$models" 'variants: [{name: v, ranks: 2, steps: [prune --macs 0.6 --samples 16, distill --steps 4]}]'
works zoo_one "$pare" zoo one.yaml -o one.zoo --device cpu --jobs 1
works zoo_two "$pare" zoo two.yaml -o two.zoo --device cpu --jobs 1
if cmp -s one.zoo/models/mlp.v.onnx two.zoo/models/mlp.v.onnx; then pass zoo_bytes; else fail zoo_bytes "$(ls -l ./*.zoo/models | tail -3)"; fi
sed -i s/64/256/ two.yaml && rm -r two.zoo # enough for a validation of two ranks
works zoo_more_samples "$pare" zoo two.yaml -o two.zoo --device cpu --jobs 1
if [ "$(grep -l '"ranks": 2' two.zoo/steps/*/facts.json | wc -l)" = 3 ]; then pass zoo_ranks; else fail zoo_ranks "$(grep -c ranks two.zoo/steps/*/facts.json | tr '\n' ' ')"; fi
zoo_of bad.yaml "models: [{files: [$mlp], data: $data/none.h5}]" 'variants: [{name: v, ranks: 2, steps: [prune --macs 0.6]}]'
refuses zoo_no_data 1 "bad.yaml|none.h5" "$pare" zoo bad.yaml -o bad.zoo --device cpu
cp "$data/train.h5" mine.h5
printf 'damage damage damage damage' | dd of=mine.h5 bs=1 seek=9200000 conv=notrunc 2>/dev/null
zoo_of bad.yaml "models: [{files: [$mlp], data: mine.h5}]" 'variants: [{name: v, ranks: 2, steps: [prune --macs 0.6 --samples 60000]}]'
"$pare" zoo bad.yaml -o bad.zoo --device cpu --jobs 1 >.test.out 2>.test.err
if [ $? = 1 ] && grep -q '"message": "mine.h5: dataset' bad.zoo/tasks.json; then pass zoo_says_why; else fail zoo_says_why "$(grep -e message bad.zoo/tasks.json | head -2)"; fi
rm mine.h5

zoo_of gradual.yaml "$models" 'variants: [{name: v, ranks: 2, steps: [prune --macs 0.6 --range 0:600 --samples 16 --distill epochs=1]}]'
works zoo_prune_distill "$pare" zoo gradual.yaml -o gradual.zoo --device cpu --jobs 1
if [ "$(grep -l '"ranks": 2' gradual.zoo/steps/*/facts.json | xargs grep -l '"distilled"' | wc -l)" = 1 ]; then pass zoo_prune_distill_ranks; else fail zoo_prune_distill_ranks "$(grep ranks gradual.zoo/steps/*/facts.json | tr '\n' ' ')"; fi

# 3 processes cannot share 8 microbatches: these trainings run in one
zoo_of three.yaml "$models" 'variants: [{name: v, ranks: 3, steps: [prune --macs 0.6 --samples 16, distill --steps 4]}, {name: w, ranks: 3, steps: [prune --macs 0.6 --range 0:600 --samples 16 --distill epochs=1]}]'
works zoo_three "$pare" zoo three.yaml -o three.zoo --device cpu --jobs 1
if cmp -s one.zoo/models/mlp.v.onnx three.zoo/models/mlp.v.onnx && cmp -s gradual.zoo/models/mlp.v.onnx three.zoo/models/mlp.w.onnx; then pass zoo_three_bytes; else fail zoo_three_bytes "$(ls -l three.zoo/models | tail -3)"; fi
if [ "$(cat three.zoo/steps/*/log.txt | grep -c '3 processes cannot share the 8 microbatches.*; the step runs in one process')" = 2 ]; then pass zoo_three_says; else fail zoo_three_says "$(cat three.zoo/steps/*/log.txt | grep -c share)"; fi

# a step ends as in one process: what is wrong with a model is not tried again, an interruption is
head -c 5000 "$mlp" >cut.onnx
sed s/Relu/Rexu/g "$mlp" >unknown.onnx
for size in 1 2; do
    zoo_of ends.yaml "models: [{files: [cut.onnx, unknown.onnx]}]" "variants: [{name: v, ranks: $size, steps: [distill --steps 1]}]"
    "$pare" zoo ends.yaml -o ends.zoo --device cpu --jobs 1 >.test.out 2>.test.err
    "$pare" zoo ends.yaml -o ends.zoo --device cpu --jobs 1 --resume >.test.out 2>>.test.err
    cut -d, -f2-4 ends.zoo/results.csv >ends.$size
    cat ends.zoo/journal/*.jsonl | grep -c '"started"' >>ends.$size
    rm -r ends.zoo
done
if cmp -s ends.1 ends.2 && grep -q ',bad model' ends.2 && grep -q ',unsupported operator' ends.2 && [ "$(tail -n 1 ends.2)" = 2 ]; then pass zoo_ends; else fail zoo_ends "$(tr '\n' ' ' <ends.2)"; fi
zoo_of long.yaml "$models" 'variants: [{name: v, ranks: 2, steps: [distill --epochs 500]}]'
# ended NAME SIGNAL OUTCOME: a rank of the training gets the signal
ended() {
    rm -rf long.zoo
    "$pare" zoo long.yaml -o long.zoo --device cpu --jobs 1 >.test.out 2>.test.err &
    zoo_=$!
    for i_ in $(seq 1 600); do [ -n "$(find long.zoo/steps -name '*.pare' 2>/dev/null)" ] && break; sleep 0.05; done
    process_of 1
    kill "-$2" "$process"
    wait $zoo_
    if grep -q ",v,$3," long.zoo/results.csv; then pass "$1"; else fail "$1" "$(sed 1d long.zoo/results.csv) $(tail -2 .test.err)"; fi
}
ended zoo_interrupted INT stopped
ended zoo_illegal ILL crash
ended zoo_killed KILL crash
if has 'was ended by signal 9' .test.err; then pass zoo_killed_says; else fail zoo_killed_says "$(tail -2 .test.err)"; fi
mkdir none
PATH=$PWD/none "$pare" zoo two.yaml -o nobody.zoo --device cpu --jobs 1 >.test.out 2>.test.err
if grep -q ',v,failed,' nobody.zoo/results.csv && has 'mpirun: cannot be started, for 2 ranks' .test.err; then pass zoo_without_mpirun; else fail zoo_without_mpirun "$(tail -2 .test.err)"; fi

# a command of one process shows its help, once, and does nothing else with several
works help_of_one_process mpirun 2 "$pare" quantize --help
if [ "$(grep -c 'usage: pare quantize' .test.out)" = 1 ]; then pass help_once; else fail help_once "$(grep -c usage .test.out)"; fi
refuses one_process 2 "quantize: runs in one process; 2 were started" mpirun 2 "$pare" quantize "$cnn" -o no.onnx

# --- slow ranks, ranks that are gone ---
works tcp env OMPI_MCA_btl=tcp,self sh "$top/tests/comm/ranks.sh" 3 $calibrate -o many.json
if cmp -s one.json many.json; then pass tcp_bytes; else fail tcp_bytes "$(cmp one.json many.json)"; fi
long="$pare calibrate $cnn --data $data/train.h5 --samples 10000"
sh "$top/tests/comm/ranks.sh" 3 $long -o slow.json 2>.test.err >.test.out &
ranks_of 3
for rank in $ranks; do
    kill -STOP "$rank" && sleep 0.3
    kill -CONT "$rank"
done
if wait $! && $long -q -o fast.json >.test.out && cmp -s slow.json fast.json; then
    pass slow_ranks
else
    fail slow_ranks "$(cat .test.err)"
fi
for number in 1 3; do
    sh "$top/tests/comm/ranks.sh" 3 $long -o gone.json 2>.test.err >.test.out &
    ranks_of 3
    process=$(echo "$ranks" | sed -n ${number}p)
    killed=no
    [ -n "$process" ] && kill -KILL "$process" && killed=yes
    if wait $! || [ $killed = no ]; then fail "killed_$number" "killed $killed: $(head -3 .test.err)"; else pass "killed_$number"; fi
    for i_ in $(seq 1 100); do
        left=$(for rank in $ranks; do kill -0 "$rank" 2>/dev/null && echo "$rank"; done)
        [ -z "$left" ] && break
        sleep 0.1
    done
    if [ -z "$left" ] && [ ! -e gone.json ]; then pass "killed_$number.ends"; else fail "killed_$number.ends" "left: $left $(ls gone.json 2>/dev/null)"; fi
done

# --- a failure is heard at work: rank 1 meets a damaged sample, rank 0 stops early in its share ---
cp "$data/train.h5" damaged.h5
printf 'damage damage damage damage' | dd of=damaged.h5 bs=1 seek=9200000 conv=notrunc 2>/dev/null
for command in "calibrate $zoo/resnet.onnx -o no.json" "validate $zoo/resnet.onnx $cnn" "prune $cnn --macs 0.5 -o no.json"; do
    word=${command%% *}
    mpirun 3 "$pare" $command --data damaged.h5 --samples 60000 -v >.test.out 2>.test.err
    got=$?
    done=$(sed -n 's/^stopped after \([0-9]*\) of 200[0-9]* samples: another rank has failed$/\1/p' .test.err)
    if [ $got = 1 ] && [ "$(grep -c '^pare: ' .test.err)" = 1 ] && has "pare: rank 1 (" .test.err && has "damaged.h5" .test.err; then
        pass "heard_$word"
    else
        fail "heard_$word" "exit $got: $(grep '^pare: ' .test.err)"
    fi
    [ "$word" = prune ] || if [ -n "$done" ] && [ "$done" -lt 15000 ] && [ ! -e no.json ]; then pass "stopped_$word"; else fail "stopped_$word" "rank 0 did '$done' samples"; fi
done
rm damaged.h5

# --- the disk of one rank is full: the first's is said, another's is not needed ---
full="$pare prune $cnn --macs 0.5 --samples 16 --data $data/train.h5 -q"
few='ulimit -f 200; trap "" XFSZ; exec "$@"' # blocks of 512 bytes of a file; shared memory would be one
refuses full_disk 1 "full.onnx" env OMPI_MCA_btl=tcp,self sh "$top/tests/comm/ranks.sh" 1 sh -c "$few" sh $full -o full.onnx : -n 2 $full -o full.onnx
works full_disk_of_another env OMPI_MCA_btl=tcp,self sh "$top/tests/comm/ranks.sh" 1 $full -o full.onnx : -n 1 sh -c "$few" sh $full -o full.onnx

# --- what more ranks would take ---
works scale "$pare" scale calibration.facts --network 2us,10GB/s --ranks 64 --json scale.facts
says scale_ends "scaling ends at"
if [ "$(grep -c '"speed_up": ' scale.facts)" = 6 ]; then pass scale_rows; else fail scale_rows "$(cat scale.facts)"; fi
works scale_measured mpirun 2 "$pare" scale calibration.facts --json scale.facts
if python3 -c 'import json; n = json.load(open("scale.facts"))["network"]; exit(not (0 < n["alpha_s"] < 1 and 0 < n["beta_s"] < 1e-3))'; then
    pass scale_network
else
    fail scale_network "$(cat scale.facts)"
fi
for word in 2us 2us,10GB us,10GB/s 2,10GB/s -1us,10GB/s 2us,0GB/s 2us,10/s; do
    refuses "network_$word" 2 "--network $word" "$pare" scale calibration.facts --network "$word"
done
refuses scale_alone 2 "--network 2us,10GB/s is needed" "$pare" scale calibration.facts
refuses scale_other 1 'one.plain: has no "scaling"' "$pare" scale one.plain --network 2us,10GB/s

# --- what does not fit together ---
refuses more_than_samples 1 "cnn.onnx|4 ranks|3 runs" mpirun 4 "$pare" calibrate "$cnn" --data "$data/train.h5" --samples 3 -o no.json
refuses other_word 1 "rank 1 (|another command line|: '51' where rank 0 has '50'" mpirun 1 $calibrate -o no.json : -n 1 ${calibrate%50}51 -o no.json
refuses other_options 1 "rank 1 (|another command line|: '--range' where rank 0 has '-o'" mpirun 1 $calibrate -o no.json : -n 1 $calibrate --range 0:40 -o no.json
cp "$data/test.h5" mine.h5
mkdir there && cp "$data/train.h5" there/mine.h5
other="$pare calibrate $cnn --data mine.h5 --samples 50 -o $work/no.json"
refuses other_data 1 "rank 1 (|another data file" mpirun 1 $other : -n 1 --wdir there $other
cp "$mlp" there/net.onnx && cp "$cnn" net.onnx && cp "$data/test.h5" there/mine.h5
other="$pare calibrate net.onnx --data mine.h5 --samples 50 -o $work/no.json"
refuses other_model 1 "rank 1 (|another model" mpirun 1 $other : -n 1 --wdir there $other
rm there/net.onnx
refuses no_model_in_one 1 "rank 1 (|net.onnx" mpirun 1 $other : -n 1 --wdir there $other
refuses no_model_in_all 1 "pare: gone.onnx" mpirun 3 "$pare" calibrate gone.onnx --data mine.h5 -o no.json
refuses other_isa 1 "rank 1 (|instruction set" mpirun 1 $calibrate -o no.json : -n 1 env DNNL_MAX_CPU_ISA=SSE41 $calibrate -o no.json
refuses other_command 2 "simplify|one process; 2 were started" mpirun 2 "$pare" simplify "$mlp" -o no.onnx
refuses merge 2 "one process" mpirun 2 "$pare" calibrate --merge one.json many.json -o no.json
refuses bad_words 2 "--sample" mpirun 3 "$pare" calibrate "$mlp" --sample 3
refuses no_folder 1 "no/such" mpirun 2 $calibrate -o no/such/r.json
finish
