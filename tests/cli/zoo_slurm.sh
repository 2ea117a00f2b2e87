#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A zoo's tasks as job arrays on a real Slurm of one machine, whose daemons run from a folder of this
# test: tables as with --jobs, its controller killed in the middle, only what failed submitted again.
name=zoo_slurm
. "$(dirname "$0")/_lib.sh"

# without Slurm: one message that says what works
variants='variants:
  - name: int8
    steps: [quantize --samples 16]
  - name: u8
    steps: [quantize --samples 16 --activations u8]
  - name: half
    steps: [prune --macs 0.6 --samples 16]
  - name: half-int8
    steps: [prune --macs 0.6 --samples 16, quantize --samples 16]'
data_sets || exit 0
zoo_of zoo.yaml "models: [{files: [$zoo/mlp.onnx]}]" "$variants"
mkdir empty
if PATH=$PWD/empty "$pare" zoo zoo.yaml -o none --slurm >.test.out 2>.test.err; then
    fail not_installed "exit 0"
elif has 'Slurm is not installed here; --jobs N does the same' .test.err; then
    pass not_installed
else
    fail not_installed "$(cat .test.err)"
fi
rm -rf none
refuses jobs_are_not_slurms 2 "--jobs does nothing with --slurm" "$pare" zoo zoo.yaml -o none --slurm --jobs 2
refuses words_are_slurms 2 "--sbatch does nothing without --slurm" "$pare" zoo zoo.yaml -o none --sbatch=--x

# variants that ask for the same are in one array; the stub writes down what it is asked, an argument a line
mkdir stub
printf '#!/bin/sh\necho "MaxArraySize = 100"\n' >stub/scontrol
printf '#!/bin/sh\nprintf "%%s\\n" "$@" >"$STUB/$$.sbatch"\necho $$\n' >stub/sbatch
chmod +x stub/scontrol stub/sbatch
zoo_of ranks.yaml "models: [{files: [$zoo/mlp.onnx]}]" 'launcher: srun --mpi=pmix' 'variants:
  - name: alone
    steps: [quantize --samples 16]
  - name: four
    ranks: 4
    gpus: 4
    steps: [prune --macs 0.6 --samples 16]
  - name: wide
    nodes: 2
    gpus: 4
    steps: [distill --steps 5]
  - {name: again, steps: [prune --macs 0.5 --samples 16], ranks: 4, gpus: 4}'
asked() { # NAME ARRAY ASK: the job of these tasks asks for this, the words joined by blanks
    for job in jobs/*.sbatch; do
        grep -qx -- "--array=$2" "$job" || continue
        got=$(grep -e '^--n' -e '^--gpus' "$job" | tr '\n' ' ')
        if [ "$got" = "$3" ]; then pass "$1"; else fail "$1" "asks for '$got'"; fi
        return
    done
    fail "$1" "no job of $2: $(cat jobs/*.sbatch | grep array | tr '\n' ' ')"
}
mkdir jobs
works stub env STUB="$PWD/jobs" PATH="$PWD/stub:$PATH" "$pare" zoo ranks.yaml -o ranks --slurm --device cpu
asked asks_ranks 0,2 "--nodes=1 --ntasks=4 --gpus-per-node=4 "
if grep -qx -e '--ntasks-per-node=4' jobs/*.sbatch && grep -qx -e '--nodes=2' jobs/*.sbatch && grep -qx -e '--ntasks=8' jobs/*.sbatch; then pass asks_for_nodes; else fail asks_for_nodes "$(cat jobs/*.sbatch | grep -e --n | tr '\n' ' ')"; fi
if [ "$(grep -Lx -e '--ntasks=[0-9]*' jobs/*.sbatch | wc -l)" = 2 ]; then pass others_ask_nothing; else fail others_ask_nothing "$(grep -c ntasks jobs/*.sbatch)"; fi
if [ "$(ls jobs | wc -l)" = 4 ]; then pass jobs_are_four; else fail jobs_are_four "$(ls jobs | wc -l)"; fi
rm -rf stub jobs ranks

[ "${PARE_TEST_SLURM:-}" = 1 ] || { skip daemons "PARE_TEST_SLURM=1 runs them"; finish; exit; }
slurm() { sh "$top/tests/cli/_slurm.sh" "$@"; }
if why=$(slurm lacks); then
    skip daemons "$why"
    finish
    exit
fi
SLURM_CONF=$(slurm make 3) || exit
export SLURM_CONF
trap 'slurm down' EXIT
trap 'exit 1' INT TERM HUP
slurm start munged

if "$pare" zoo zoo.yaml -o slurm --slurm >.test.out 2>.test.err; then
    fail controller_down "exit 0"
elif has "Slurm's controller does not answer" .test.err && has '--jobs N does the same' .test.err; then
    pass controller_down
else
    fail controller_down "$(cat .test.err)"
fi
slurm start slurmctld
slurm start slurmd
if ! why=$(slurm ready); then
    skip daemons "this machine runs no Slurm node: $why"
    finish
    exit
fi

# tables FOLDER: what must be the same however the run went
tables() {
    awk -F, -v OFS=, '{ NF -= 3; print }' "$1/results.csv"
    cksum "$1"/models/* | sed "s|$1/||"
}
runs_of() { cat "$1"/journal/*.jsonl | grep -c '"started"'; }
done_twice() { cat "$1"/journal/*.jsonl | grep '"class":"done"' | sed 's/.*"key":"\([0-9a-f]*\)".*/\1/' | sort | uniq -d; }
same() { # NAME FOLDER
    if [ -f "$2/results.csv" ] && tables "$2" | cmp -s - .test.tables; then
        pass "$1"
    else
        fail "$1" "$(tables "$2" | diff - .test.tables | head -4 | tr '\n' ' ')$(tail -2 "$2"/slurm/merge_*.log | tr '\n' ' ')"
    fi
}

mkdir plain
cp zoo.yaml plain && cd plain || exit 1
works jobs "$pare" zoo zoo.yaml -o out --jobs 2 --threads 1
tables out >../.test.tables
mv .test.* .. 2>/dev/null
cd ..

# 4 tasks in arrays of 3, on a GPU that is one by name only
works submit "$pare" zoo zoo.yaml -o out --slurm --device cpu --sbatch "--gres=gpu:1 --cpus-per-task=1"
says submit_tells "4 tasks submitted: array"
array=$(sed -n 's/.*submitted: array \([0-9]*\), array.*/\1/p' .test.out)
if squeue -h -o %b -j "${array:-0}" 2>/dev/null | grep -q gpu; then pass gres_is_asked_for; else fail gres_is_asked_for "$(squeue -h -o '%i %b' 2>&1 | head -2 | tr '\n' ' ')"; fi
if left=$(slurm ended 120); then pass jobs_end; else fail jobs_end "$left"; fi
same tables_are_equal out
if [ -z "$(done_twice out)" ]; then pass nothing_done_twice; else fail nothing_done_twice "$(done_twice out | tr '\n' ' ')"; fi
before=$(runs_of out)
commands_of() { grep '"command"' "$1/tasks.json"; }
commands_of out >.test.commands
works nothing_left "$pare" zoo zoo.yaml -o out --slurm --resume --device cpu
if commands_of out | cmp -s - .test.commands; then pass commands_are_equal; else fail commands_are_equal "$(commands_of out | diff - .test.commands | head -2 | tr '\n' ' ')"; fi
if [ "$(runs_of out)" = "$before" ] && [ -z "$(squeue -h)" ]; then pass nothing_is_submitted; else fail nothing_is_submitted "$(squeue -h | head -2)"; fi

# its controller is killed while tasks run and wait, and comes back
mkdir killed
cp zoo.yaml killed && cd killed || exit 1
works submit_again "$pare" zoo zoo.yaml -o out --slurm --device cpu --sbatch=--cpus-per-task=1
mv .test.* .. 2>/dev/null
for i in $(seq 100); do [ -n "$(cat out/journal/*.jsonl 2>/dev/null)" ] && break; sleep 0.1; done
slurm kill
sleep 1
slurm back
cd ..
slurm ended 30 >/dev/null || scancel --user=root
slurm ready
cd killed || exit 1
works submit_the_rest "$pare" zoo zoo.yaml -o out --slurm --resume --device cpu
mv .test.out .test.err ..
slurm ended 60
cp ../.test.tables .
same tables_after_kill out
cd ..
if [ -z "$(done_twice killed/out)" ]; then pass kill_repeats_nothing; else fail kill_repeats_nothing "$(done_twice killed/out | tr '\n' ' ')"; fi

# only what failed is submitted again
works submit_limited "$pare" zoo zoo.yaml -o limited --slurm --device cpu --time-limit 0.001 --sbatch=--cpus-per-task=1
slurm ended 120
if grep -q ',time,' limited/results.csv; then pass failures_are_merged; else fail failures_are_merged "$(tail -2 limited/slurm/merge_*.log | tr '\n' ' ')"; fi
"$pare" zoo zoo.yaml -o limited --task 1 --resume --device cpu --threads 1 >.test.out 2>.test.err
works submit_failed "$pare" zoo zoo.yaml -o limited --slurm --resume --device cpu --sbatch=--cpus-per-task=1
says only_failed "3 tasks submitted"
slurm ended 120
same tables_of_failed limited

# a step that ranks of a job share ends as in one process
head -c 5000 "$zoo/mlp.onnx" >cut.onnx
sed s/Relu/Rexu/g "$zoo/mlp.onnx" >unknown.onnx
cp "$zoo/mlp.onnx" good.onnx
ends() { # NAME LINE...: with these lines in the file
    zoo_of ends.yaml "models: [{files: [cut.onnx, good.onnx, unknown.onnx]}]" 'variants: [{name: v, ranks: 2, steps: [distill --steps 1]}]'
    case_=$1
    shift
    printf '%s\n' "$@" >>ends.yaml
    rm -rf ends
    works "$case_" "$pare" zoo ends.yaml -o ends --slurm --device cpu --threads 1 --sbatch=--overcommit
    slurm ended 120
    got=$(cut -d, -f2,4 ends/results.csv | sed 1d | tr '\n' ' ')
    if [ "$got" = "cut,bad model good,done unknown,unsupported operator " ]; then pass "$case_.ends"; else fail "$case_.ends" "$got$(tail -qn 2 ends/slurm/*.log | tr '\n' ' ')"; fi
}
if sh -c 'command -v mpirun' >/dev/null 2>&1; then
    ends mpirun_of_job
else
    skip mpirun_of_job "no mpirun (openmpi-bin)"
fi
if srun --mpi=list 2>&1 | grep -q pmix; then
    ends srun_of_job 'launcher: srun --mpi=pmix'
else
    skip srun_of_job "Slurm has no plugin for PMIx (slurm-wlm-mpi-plugins)"
fi
finish
