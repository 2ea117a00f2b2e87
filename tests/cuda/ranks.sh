#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processes with an emulated GPU each train together: through NCCL and through MPI they write the bytes of one.
#
#   sh tests/cuda/ranks.sh PARE      pare_emulated
PARE=${1:?PARE}
export PARE
name=cuda_ranks
. "$(dirname "$0")/../cli/_lib.sh"
mpirun() { sh "$top/tests/comm/ranks.sh" "$@"; }
ranks_can || exit 77
data_sets || exit 77
export SIMT_DEVICES=4 SIMT_NCCL_LIMIT=60
"$pare" prune -q "$zoo/mlp.onnx" -o half.onnx --macs 0.5 >/dev/null || exit 1
"$pare" prune -q "$zoo/resnet.onnx" -o norms.onnx --macs 0.5 >/dev/null || exit 1
train="--data $data/train.h5 --device cuda --log out.jsonl --json facts.json -o out.onnx"
mlp="$pare distill --teacher $zoo/mlp.onnx --student half.onnx $train --samples 200 --batch 8 --steps 4 --accumulate 2
    --ema 0.9 --validate-every 2 --checkpoint out"
norms="$pare distill --teacher $zoo/resnet.onnx --student norms.onnx $train --samples 32 --batch 4 --steps 2 --bn-estimate 0"
clear_out() { rm -rf out out.onnx out.jsonl facts.json; }

# one NAME COMMAND...: what one process writes, as whole.*
one() {
    clear_out
    works "$@"
    rm -rf whole
    mv out.onnx whole.onnx && mv out.jsonl whole.jsonl && mv out whole 2>/dev/null
    if has transport facts.json; then fail "$1_alone" "$(grep transport facts.json)"; else pass "$1_alone"; fi
}

# same NAME TRANSPORT: model, log and checkpoint are those of one process; how gradients travelled
same() {
    if ! cmp -s whole.onnx out.onnx || ! cmp -s whole.jsonl out.jsonl; then
        fail "$1_bytes" "$(cmp whole.onnx out.onnx 2>&1) $(cmp whole.jsonl out.jsonl 2>&1)"
    elif [ -e whole/checkpoint.pare ] && ! cmp -s whole/checkpoint.pare out/checkpoint.pare; then
        fail "$1_bytes" "another checkpoint"
    elif ! has "\"transport\": \"$2\"" facts.json; then
        fail "$1_bytes" "expected $2: $(grep transport facts.json)"
    else
        pass "$1_bytes"
    fi
}

# says_once NAME TEXT: the last command said it, once
says_once() {
    if [ "$(grep -cF -e "$2" .test.err)" = 1 ]; then pass "$1_says"; else fail "$1_says" "$(grep -i gradients .test.err)"; fi
}

# together NAME SIZE TRANSPORT TEXT COMMAND...: so many processes do as one
together() {
    case_name=$1 size_=$2 transport_=$3 text_=$4
    shift 4
    clear_out
    works "$case_name" mpirun "$size_" "$@" -v
    says_once "$case_name" "$text_"
    same "$case_name" "$transport_"
}

# --- the same bytes ---
nccl="nccl 2.27.3" by_nccl="gradients go from GPU to GPU: nccl 2.27.3" by_mpi="gradients go through the hosts, by MPI: "
one mlp $mlp
if has '"reductions": 2' facts.json; then pass mlp_sums; else fail mlp_sums "$(grep reductions facts.json)"; fi
together nccl_2 2 "$nccl" "$by_nccl" $mlp
together nccl_4 4 "$nccl" "$by_nccl" $mlp
SIMT_NCCL=absent together absent 2 mpi "${by_mpi}libnccl.so.2 was not found" $mlp
SIMT_NCCL_VERSION=21304 together old 4 mpi "${by_mpi}the installed NCCL is older than 2.14: its version is 21304" $mlp
SIMT_DEVICES=1 together one_gpu 2 mpi "${by_mpi}ranks 0 and 1 share a GPU, which NCCL refuses" $mlp
clear_out
works versions mpirun 1 $mlp -v : -n 1 -x SIMT_NCCL_VERSION=22800 $mlp -v
says_once versions "${by_mpi}rank 0 has nccl 2.27.3, rank 1 nccl 2.28.0"
same versions mpi
clear_out
works gpus env OMPI_MCA_rmaps_base_oversubscribe=1 HWLOC_HIDE_ERRORS=2 ${mlp%--device cuda*} --gpus 1-2 ${mlp#*--device cuda}
same gpus "$nccl"
SIMT_STREAMS=shuffled together shuffled 2 "$nccl" "$by_nccl" $mlp
# a sum of gradients that did not wait for them would come before them
for size in 2 4; do
    SIMT_STREAMS=others together overlap_$size $size "$nccl" "while the last microbatch still runs backward: 2 buckets" $mlp
done
one norms $norms
together norms_2 2 "$nccl" "$by_nccl" $norms
SIMT_NCCL=absent together norms_mpi 2 mpi "$by_mpi" $norms
one norms_bf16 $norms --precision bf16
together norms_bf16_2 2 "$nccl" "$by_nccl" $norms --precision bf16

# --- pruning with training between its steps ---
clear_out
prune="$pare prune $zoo/mlp.onnx --params 0.6 --steps 2 --data $data/train.h5 --range 0:300 --samples 16
    --distill epochs=1,batch=16 --device cuda"
works prune $prune -q -o whole.onnx
works prune_2 mpirun 2 $prune -v -o out.onnx
cp out.onnx two.onnx
works prune_gpus env OMPI_MCA_rmaps_base_oversubscribe=1 HWLOC_HIDE_ERRORS=2 ${prune% --device cuda} --gpus 1-2 -v -o out.onnx
if cmp -s two.onnx out.onnx && has "rank 1 ($(hostname)): on cuda:2" .test.err; then pass prune_gpus_bytes; else fail prune_gpus_bytes "$(cmp two.onnx out.onnx 2>&1) $(grep rank .test.err)"; fi
cp two.onnx out.onnx
if cmp -s whole.onnx out.onnx && has "$by_nccl" .test.err; then pass prune_2_bytes; else fail prune_2_bytes "$(cmp whole.onnx out.onnx 2>&1) $(grep gradients .test.err)"; fi

# --- begun through MPI by two, continued through NCCL by four ---
one longer env SIMT_CALLS=calls $mlp
clear_out
SIMT_NCCL=absent mpirun 2 $mlp --checkpoint-every 1 >.test.out 2>.test.err &
while [ "$(cat out.jsonl 2>/dev/null | wc -l)" -lt 3 ] && kill -0 $! 2>/dev/null; do sleep 0.02; done
process_of 0
[ -z "$process" ] || kill -INT "$process"
wait $!
works continues mpirun 4 $mlp --resume
same continues "$nccl"

# --- what the doctor says ---
works doctor "$pare" doctor
says doctor_version "NCCL      2.27.3"
works doctor_absent env SIMT_NCCL=absent "$pare" doctor
says doctor_absent_says "NCCL      GPUs of several processes go through MPI: libnccl.so.2 was not found"

# --- what fails ---
# in_one RANK NAME/N: two processes, in one of which the N-th call of this name fails
in_one() {
    if [ "$1" = 0 ]; then
        mpirun 1 -x "SIMT_FAIL=$2:719" $mlp -v : -n 1 $mlp -v
    else
        mpirun 1 $mlp -v : -n 1 -x "SIMT_FAIL=$2:719" $mlp -v
    fi
}
# ends NAME TEXT RANK CALL: the job ends with one message, which has the text, and writes nothing
ends() {
    clear_out
    in_one "$3" "$4" >.test.out 2>.test.err
    got=$?
    if [ $got = 0 ] || [ -e out.onnx ] || [ -e facts.json ]; then
        fail "$1" "exit $got"
    elif [ "$(grep -c '^pare: ' .test.err)" != 1 ] || ! grep '^pare: ' .test.err | grep -qF -e "$2"; then
        fail "$1" "$(grep '^pare: ' .test.err)"
    else
        pass "$1"
    fi
}
ends send_fails "pare: rank 1 ($(hostname)): ncclSend failed: unhandled cuda error" 1 ncclSend/5
ends receive_fails "pare: ncclRecv failed: unhandled cuda error" 0 ncclRecv/7
ends group_fails "pare: rank 1 ($(hostname)): ncclGroupEnd failed: unhandled cuda error" 1 ncclGroupEnd/5
ends wait_fails "rank 1 ($(hostname)): cudaStreamWaitEvent: unspecified launch failure" 1 cudaStreamWaitEvent/3
ends event_fails "rank 1 (" 1 cudaEventCreate/2
launches=$(grep -c ' launch$' calls)
ends kernel_fails "unspecified launch failure" 1 launch/$((launches / 2))
clear_out
works no_id in_one 0 ncclGetUniqueId/1
says_once no_id "${by_mpi}rank 0: ncclGetUniqueId failed: unhandled cuda error"
same no_id mpi
join=ncclCommInitRankConfig
SIMT_FAIL=$join/1:719 together none_joins 2 mpi "${by_mpi}rank 0: $join failed: unhandled cuda error" $mlp
clear_out
works one_does_not_join in_one 1 $join/1 # the other waits 30 seconds for it
says_once one_does_not_join "${by_mpi}rank 1: $join failed: unhandled cuda error"
same one_does_not_join mpi

# --- a process that is killed: the job ends within seconds, and nothing is written ---
clear_out
mpirun 2 $mlp --steps 400 >.test.out 2>.test.err &
job=$!
process_of 1
while [ "$(cat out.jsonl 2>/dev/null | wc -l)" -lt 3 ] && kill -0 $job 2>/dev/null; do sleep 0.02; done
[ -z "$process" ] || kill -KILL "$process"
for i in $(seq 1 100); do
    kill -0 $job 2>/dev/null || break
    sleep 0.1
done
if kill -0 $job 2>/dev/null; then
    fail killed "the job goes on"
    kill $job
fi
wait $job
got=$?
if [ $got != 0 ] && [ ! -e out.onnx ] && [ "$(grep -c '^pare: ' .test.err)" -le 1 ]; then
    pass killed_ends
else
    fail killed_ends "exit $got: $(cat .test.err)"
fi
finish
