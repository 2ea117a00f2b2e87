#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A zoo from its file to its tables: resumed after kills, repaired, refused, interrupted; models that
# fail in the middle stop no one else.
name=zoo
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0

variants='variants:
  - name: int8
    steps: [quantize --samples 16]
  - name: u8
    steps: [quantize --samples 16 --activations u8]'
slow='variants:
  - name: tuned
    steps: [distill --epochs 50 --samples 2000, quantize --samples 16]'
models="models: [{files: [$zoo/mlp.onnx, $zoo/cnn.onnx]}]"
zoo_of zoo.yaml "$models" "$variants"

# tables FOLDER: what must be the same however the run went
tables() {
    awk -F, -v OFS=, '{ NF -= 3; print }' "$1/results.csv"
    cksum "$1"/models/* | sed "s|$1/||"
}
# quick ARGUMENT...: a run with two jobs of a thread each
quick() { "$pare" zoo "$@" --jobs 2 --threads 1; }
# done_twice FOLDER: keys that journals call done more than once
done_twice() { cat "$1"/journal/*.jsonl | grep '"class":"done"' | sed 's/.*"key":"\([0-9a-f]*\)".*/\1/' | sort | uniq -d; }
# runs_of FOLDER: how many steps were begun
runs_of() { cat "$1"/journal/*.jsonl | grep -c '"started"'; }
# began FOLDER COUNT: waits until so many steps were begun
began() {
    for i_ in $(seq 1 300); do
        [ "$(cat "$1"/journal/*.jsonl 2>/dev/null | grep -c '"started"')" -ge "$2" ] && return 0
        sleep 0.05
    done
    return 1
}

works run quick zoo.yaml -o whole
says run_ranks "4 of 4 tasks are done"
tables whole >.test.tables
refuses work_is_not_mixed 1 "whole: holds the work of an earlier run|--resume" quick zoo.yaml -o whole
before=$(runs_of whole)
works resume_of_all quick zoo.yaml -o whole --resume
if [ "$(runs_of whole)" = "$before" ]; then pass resume_runs_nothing; else fail resume_runs_nothing "$before steps became $(runs_of whole)"; fi

# kills: the parent, then a worker, then on to the end
zoo_of zoo.yaml "$models" "$variants"
mkdir killed && cd killed || exit 1
"$pare" zoo ../zoo.yaml -o whole --jobs 1 --threads 1 >../.test.out 2>../.test.err &
parent=$!
began whole 2
children=$(cat /proc/$parent/task/$parent/children)
kill -9 $parent
wait $parent 2>/dev/null
sleep 0.2
left=
for child in $children; do grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$child/status" && left="$left $child"; done
if [ -z "$left" ]; then pass workers_die_with_their_parent; else fail workers_die_with_their_parent "alive:$left"; fi
"$pare" zoo ../zoo.yaml -o whole --jobs 1 --threads 1 --resume >../.test.out 2>../.test.err &
parent=$!
began whole 4
for child in $(cat /proc/$parent/task/$parent/children); do kill -9 "$child"; done
wait $parent
got=$?
if [ $got = 1 ] && has 'crash: was ended by signal 9' ../.test.err; then pass killed_worker_is_a_crash; else fail killed_worker_is_a_crash "exit $got: $(tail -2 ../.test.err | tr '\n' ' ')"; fi
works resume_after_kills quick ../zoo.yaml -o whole --resume
mv .test.* ..
cd ..
if tables killed/whole | cmp -s - .test.tables; then pass tables_are_equal; else fail tables_are_equal "$(tables killed/whole | diff - .test.tables | head -4 | tr '\n' ' ')"; fi
if [ -z "$(done_twice killed/whole)" ]; then pass nothing_done_twice; else fail nothing_done_twice "$(done_twice killed/whole)"; fi

# files that were changed, cut or taken away are made again
step=$(ls -d killed/whole/steps/*/ | while read -r d; do [ -f "$d/model.onnx" ] && echo "$d"; done)
set -- $step
printf x | dd of="$1/model.onnx" bs=1 seek=500 conv=notrunc 2>/dev/null
dd if=/dev/null of="$2/facts.json" bs=1 seek=100 2>/dev/null
rm "$3/model.onnx"
rm killed/whole/models/mlp.int8.onnx
printf '{"finished":1,"key' >>"$(ls killed/whole/journal/*.jsonl | head -1)"
cd killed && works damage_is_repaired quick ../zoo.yaml -o whole --resume
mv .test.* .. && cd ..
said=$(grep -c 'it is made again' .test.err)
if [ "$said" = 3 ] && has 'is missing; it is made' .test.err && has 'cut or changed; it is made' .test.err; then pass damage_is_told; else fail damage_is_told "$said times: $(head -3 .test.err | tr '\n' ' ')"; fi
if has '1 line is cut or changed' .test.err; then pass cut_journal_is_told; else fail cut_journal_is_told "$(head -3 .test.err | tr '\n' ' ')"; fi
if tables killed/whole | cmp -s - .test.tables; then pass repaired_is_equal; else fail repaired_is_equal "$(tables killed/whole | diff - .test.tables | head -4 | tr '\n' ' ')"; fi

# entries of a cache that are cut or changed are made again, which the zoo says, not its steps' logs alone
set -- $(ls whole/cache/statistics/*)
head -c 100 "$1" >.test.cut && cp .test.cut "$1"
set -- $(ls whole/cache/outputs/*)
printf x | dd of="$1" bs=1 seek=200 conv=notrunc 2>/dev/null
mkdir cached && cd cached && works cut_cache quick ../zoo.yaml -o whole --cache ../whole/cache
mv .test.* .. && cd ..
said=$(grep -c '^warning: .*: this entry of the cache is cut or was changed; it is made again' .test.err)
if [ "$said" -ge 2 ] && has cache/statistics .test.err && has cache/outputs .test.err; then pass cut_cache_is_told; else fail cut_cache_is_told "$said times: $(head -3 .test.err | tr '\n' ' ')"; fi
if tables cached/whole | cmp -s - .test.tables; then pass cut_cache_is_equal; else fail cut_cache_is_equal "$(tables cached/whole | diff - .test.tables | head -4 | tr '\n' ' ')"; fi

# models that fail in the middle
cp "$zoo/mlp.onnx" a.onnx
head -c 5000 "$zoo/mlp.onnx" >b.onnx
sed s/Relu/Rexu/g "$zoo/mlp.onnx" >c.onnx
cp "$zoo/mlp.onnx" d.onnx
zoo_of bad.yaml "models: [{files: ['[a-d].onnx']}]" "$variants"
quick bad.yaml -o bad >.test.out 2>.test.err
got=$?
outcomes=$(cut -d, -f2-4 bad/results.csv | sed 1d | tr '\n' ' ')
if [ $got = 1 ] && [ "$outcomes" = "a,int8,done a,u8,done b,int8,bad model b,u8,bad model c,int8,unsupported operator c,u8,unsupported operator d,int8,done d,u8,done " ]; then
    pass failures_stop_nobody
else
    fail failures_stop_nobody "exit $got: $outcomes"
fi
if grep -q '^pare: bad.yaml: 4 of 8 tasks are not done' .test.err; then pass failures_are_summed_up; else fail failures_are_summed_up "$(tail -1 .test.err)"; fi
command_=$(sed -n '/"variant": "int8"/,/"command"/s/.*"command": "\(pare quantize [^"]*b.onnx [^"]*\)".*/\1/p' bad/tasks.json | head -1)
PATH=$(dirname "$pare"):$PATH sh -c "$command_" >.test.out 2>.test.err
if [ $? = 1 ] && has 'b.onnx' .test.err; then pass failure_is_repeated_by_its_command; else fail failure_is_repeated_by_its_command "$command_: $(head -1 .test.err)"; fi
before=$(runs_of bad)
quick bad.yaml -o bad --resume >.test.out 2>.test.err
if [ "$(runs_of bad)" = "$before" ]; then pass bad_models_are_final; else fail bad_models_are_final "$before steps became $(runs_of bad)"; fi

# limits
zoo_of slow.yaml "models: [{files: [$zoo/mlp.onnx]}]" "$slow" 'limits: {time: 0.7}'
quick slow.yaml -o limited >.test.out 2>.test.err
if [ $? = 1 ] && has 'mlp tuned: distill: time: took longer than its limit of 0.7 s' .test.err; then pass time_limit; else fail time_limit "$(tail -2 .test.err | tr '\n' ' ')"; fi
quick slow.yaml -o limited --resume --time-limit 100 --memory-limit 12MB >.test.out 2>.test.err
if [ $? = 1 ] && has 'out of memory: needed more memory than its limit of 12.0 MB' .test.err; then pass memory_limit; else fail memory_limit "$(tail -2 .test.err | tr '\n' ' ')"; fi

# a second parent, and Ctrl-C
zoo_of slow.yaml "models: [{files: [$zoo/mlp.onnx]}]" "$slow"
"$pare" zoo slow.yaml -o slow --threads 1 >.test.out2 2>.test.err2 &
parent=$!
began slow 1
for i_ in $(seq 1 300); do [ "$(find slow/steps -name '*.pare' | wc -l)" -gt 0 ] && break; sleep 0.05; done
"$pare" zoo slow.yaml -o slow --resume >.test.out 2>.test.err
if [ $? = 1 ] && has 'slow: another pare works in this folder: process' .test.err; then pass second_parent_is_refused; else fail second_parent_is_refused "$(tail -1 .test.err)"; fi
kill -INT $parent
wait $parent
got=$?
if [ $got = 1 ] && has 'interrupted: 0 of 1 tasks are done; the same command with --resume continues' .test.err2; then pass interrupt; else fail interrupt "exit $got: $(tail -1 .test.err2)"; fi
if grep -q ',stopped,' slow/results.csv; then pass interrupt_leaves_tables; else fail interrupt_leaves_tables "$(sed 1d slow/results.csv)"; fi

# trainings continue where they were stopped or killed, and keep nothing after their end
resumed() { grep -l '"resumed"' "$1"/steps/*/facts.json 2>/dev/null | wc -l; }
kept() { find "$1/steps" -name '*.pare' | wc -l; }
works interrupt_continues quick slow.yaml -o slow --resume
if [ "$(resumed slow) $(kept slow)" = "1 0" ]; then pass interrupt_repeats_no_step; else fail interrupt_repeats_no_step "$(resumed slow) resumed, $(kept slow) checkpoints left"; fi
zoo_of gradual.yaml "models: [{files: [$zoo/mlp.onnx]}]" 'variants:
  - name: half
    steps: [prune --params 0.5 --steps 2 --distill epochs=40 --range 0:2000 --samples 40]'
works gradual quick gradual.yaml -o gradual
"$pare" zoo gradual.yaml -o killed-gradual --threads 1 >.test.out2 2>.test.err2 &
parent=$!
for i_ in $(seq 1 300); do [ "$(kept killed-gradual 2>/dev/null)" -gt 1 ] && break; sleep 0.05; done
kill -9 $parent
wait $parent 2>/dev/null
cp -r killed-gradual damaged
for file in damaged/steps/*/*.pare; do echo "no checkpoint" >"$file"; done
works damaged_starts_over quick gradual.yaml -o damaged --resume
if [ "$(resumed damaged) $(kept damaged)" = "0 0" ] && cmp -s gradual/models/mlp.half.onnx damaged/models/mlp.half.onnx; then pass damaged_same_bytes; else fail damaged_same_bytes "$(resumed damaged) resumed, $(kept damaged) checkpoints left"; fi
works gradual_continues quick gradual.yaml -o killed-gradual --resume
if [ "$(resumed killed-gradual) $(kept killed-gradual)" = "1 0" ] && cmp -s gradual/models/mlp.half.onnx killed-gradual/models/mlp.half.onnx; then pass gradual_same_bytes; else fail gradual_same_bytes "$(resumed killed-gradual) resumed, $(kept killed-gradual) checkpoints left"; fi

# tasks of a batch that begin at once: the step they share is made by one of them
zoo_of beside.yaml "models: [{files: [$zoo/mlp.onnx]}]" 'variants:
  - name: half
    steps: [prune --macs 0.6 --samples 2]' "$(for i in 4 5 6; do printf '  - name: half%s\n    steps: [prune --macs 0.6 --samples 2, quantize --samples %s]\n' $i $i; done)"
: >.test.twice
for round in 1 2 3 4 5 6; do
    rm -rf beside
    pids=
    for task in 0 1 2 3; do
        "$pare" zoo beside.yaml -o beside --task $task -q --threads 1 >>.test.out 2>>.test.twice &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || echo "exit $?" >>.test.twice; done
    done_twice beside >>.test.twice
    [ "$(runs_of beside)" = 8 ] || echo "$(runs_of beside) steps of 8" >>.test.twice
done
if [ -s .test.twice ]; then fail tasks_side_by_side "$(head -3 .test.twice | tr '\n' ' ')"; else pass tasks_side_by_side; fi

# folders that are not ours to use
zoo_of other.yaml "$models" "$variants"
sed -i 's/^name: demo/name: other/' other.yaml
refuses folder_of_another_zoo 1 "whole: holds the results of the zoo 'demo', expected 'other'" quick other.yaml -o whole --resume
cp -r whole old
sed -i 's/"version": "[^"]*"/"version": "0.0.1"/' old/zoo.json
refuses folder_of_another_version 1 "old: holds results of pare 0.0.1, and this is pare" quick zoo.yaml -o old --resume
mkdir mine && echo precious >mine/thesis.txt
"$pare" zoo zoo.yaml -o mine >.test.out 2>.test.err
if [ $? = 1 ] && has "mine: holds files that are no zoo's" .test.err && [ "$(cat mine/thesis.txt)" = precious ]; then pass folder_of_somebody; else fail folder_of_somebody "$(tail -1 .test.err)"; fi
refuses folder_below_none 1 "no/where: the folder cannot be made" "$pare" zoo zoo.yaml -o no/where
refuses folder_is_needed 2 "-o DIR is needed" "$pare" zoo zoo.yaml
refuses no_such_task 2 "--task 4|has 4 tasks" "$pare" zoo zoo.yaml -o none --task 4

# a full disk: files may not grow, then may again
zoo_of full.yaml "models: [{files: [$zoo/mlp.onnx]}]" "$variants"
(ulimit -f 200 && exec "$pare" zoo full.yaml -o full --threads 1 >.test.out2 2>.test.err2)
got=$?
if [ $got = 1 ] && has 'failed: full/steps' .test.err2 && has 'File too large' .test.err2; then pass full_disk_is_told; else fail full_disk_is_told "exit $got: $(tail -2 .test.err2 | tr '\n' ' ')"; fi
works full_disk_is_gone_on_from quick full.yaml -o full --resume

# two folders compared
works diff_of_equal "$pare" zoo --diff whole killed/whole
says diff_says_so "4 tasks are equal"
finish
