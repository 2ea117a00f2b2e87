#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training on the emulated GPU by the command: near the CPU's, the same bytes again and after a
# checkpoint.
#
#   sh tests/cuda/distill.sh PARE      pare_emulated
set -u
pare=${1:?PARE}
. "$(dirname "$0")/_lib.sh"
data_sets distill
distill="$pare distill --teacher $zoo/mlp.onnx --student pruned.onnx --data train.h5 --samples 200
    --batch 8 --steps 4 --lr 0.003"

held_out() { # FACTS: the held-out loss that a training ended with
    tr -d '\n ' <"$1" | sed 's/.*"after":{[^}]*"loss":\([^,}]*\).*/\1/'
}

near() { # A B PART: the losses differ by no more than this part
    awk -v a="$(held_out "$1")" -v b="$(held_out "$2")" -v part="$3" 'BEGIN {
        print "losses " a ", " b
        exit !(a > 0 && b > 0 && (a - b) ^ 2 <= (part * b) ^ 2)
    }'
}

check prune "$pare" prune "$zoo/mlp.onnx" -o pruned.onnx --macs 0.5
check cpu $distill -o cpu.onnx --json cpu.json --device cpu
check cuda $distill -o cuda.onnx --json cuda.json --device cuda --log cuda.jsonl
cp out said
check says_memory grep -q 'of the memory of' said
check notes_memory grep -q '"planned_device_memory_bytes"' cuda.json
check notes_device grep -q '"device"' cuda.json
check not_on_the_cpu sh -c '! grep -q "on the CPU" said'
# sums of up to 784 numbers in another order, four steps of Adam: about 1e-6 of a loss was seen
check near_the_cpu near cuda.json cpu.json 1e-4

# convolutions of computed weights, both ways
cnn="$pare distill --teacher $zoo/cnn.onnx --student half.onnx --data train.h5 --samples 30 --batch 4 --steps 2"
check prune_cnn "$pare" prune "$zoo/cnn.onnx" -o half.onnx --macs 0.5
check cnn_cpu $cnn -o half.cpu.onnx --json cpu.json --device cpu
check cnn_cuda $cnn -o half.cuda.onnx --json cnn.json --device cuda
check cnn_near_the_cpu near cnn.json cpu.json 1e-4
check cnn_bf16_cpu $cnn -o bf16.onnx --json cpu.json --device cpu --precision bf16
check cnn_bf16 $cnn -o bf16.onnx --json bf16.json --device cuda --precision bf16
check cnn_bf16_near near bf16.json cpu.json 1e-3 # a rounding that turns is 2^-9 of one number
check tf32 $cnn -o half.tf32.onnx --json tf32.json --device cuda --tf32
check tf32_said grep -q '"tf32": *true' tf32.json
check tf32_again $cnn -o again.onnx --device cuda --tf32
check tf32_bytes cmp half.tf32.onnx again.onnx
check tf32_rounds sh -c '! cmp -s half.tf32.onnx half.cuda.onnx'
check tf32_near near tf32.json cnn.json 0.01

# what our own kernels are slow at on cuDNN: where that is asked for, and there
check cudnn_is_absent sh -c '! "$@"' sh $cnn -o half.dnn.onnx --device cuda --cudnn
cp out said
check cudnn_absent_says grep -q -e '--cudnn: libcudnn.so.9 was not found' said
check cudnn env SIMT_DNN=present $cnn -o half.dnn.onnx --json dnn.json --device cuda --cudnn
check cudnn_said grep -q '"cudnn": *"9.19.0' dnn.json
check cudnn_recipe grep -q 'cudnn=9.19.0' half.dnn.onnx
check cudnn_again env SIMT_DNN=present $cnn -o again.onnx --device cuda --cudnn
check cudnn_bytes cmp half.dnn.onnx again.onnx
check cudnn_near near dnn.json cnn.json 1e-4
check not_unasked env SIMT_DNN=present $cnn -o again.onnx --device cuda
check not_unasked_bytes cmp half.cuda.onnx again.onnx

# killed after a step, then on to the end
resumed="$distill -o part.onnx --device cuda --checkpoint ck --checkpoint-every 1 --log part.jsonl"
$resumed >said 2>&1 &
while [ "$(cat part.jsonl 2>/dev/null | wc -l)" -lt 3 ] && kill -0 $! 2>/dev/null; do sleep 0.02; done
kill -KILL $! 2>/dev/null
wait $! 2>/dev/null
check was_killed test $? = 137
check with_tf32 sh -c '! "$@"' sh $resumed --resume --tf32
cp out said
check is_not_the_same grep -q "its TF32 is off, this run's is on" said
check resumed $resumed --resume
cp out said
check continues grep -q 'training continues after step' said
check resumed_bytes cmp cuda.onnx part.onnx
check resumed_log cmp cuda.jsonl part.jsonl

# several processes: gradients, and statistics of BatchNormalization, go by way of the CPUs
if command -v mpirun >/dev/null 2>&1; then
    ranks="sh $zoo/../../tests/comm/ranks.sh"
    norms="$pare distill --teacher $zoo/resnet.onnx --student norms.onnx --data train.h5 --samples 24 --batch 4 --steps 2
        --accumulate 2 --bn-estimate 0 --device cuda"
    check ranks $ranks 4 $distill -o ranks.onnx --device cuda --log ranks.jsonl
    check ranks_bytes cmp cuda.onnx ranks.onnx
    check ranks_log cmp cuda.jsonl ranks.jsonl
    check prune_norms "$pare" prune "$zoo/resnet.onnx" -o norms.onnx --macs 0.5
    check norms $norms -o one.onnx
    check norms_ranks $ranks 2 $norms -o two.onnx
    check norms_bytes cmp one.onnx two.onnx
else
    echo "SKIP ranks: no mpirun (openmpi-bin)"
fi

check bf16 $distill -o bf16.onnx --json bf16.json --device cuda --precision bf16
check bf16_near near bf16.json cuda.json 0.05 # three digits, and the optimizer's first steps are wide
# a step of these overflows at the first scale
check fp16 $distill --steps 8 -o fp16.onnx --device cuda --precision fp16 --log fp16.jsonl
check fp16_scale grep -q '"loss_scale":32768.0,"skipped":1' fp16.jsonl
check fp16_learns sh -c 'sed -n "s/.*held_out\":{\"loss\":\([^,]*\).*/\1/p" fp16.jsonl |
    awk "NR == 1 { before = \$1 } END { exit !(\$1 > 0 && \$1 < before / 2) }"'
# integers trained: the held-out loss of the last step, which the calibrated start need not lose to
qat="$distill --student $zoo/mlp.onnx --qat int8 --qat-samples 8 --lr 0.0003"
last() { sed -n 's/.*held_out":{"loss":\([^,]*\).*/"after":{"loss":\1}/p' "$1" | tail -1 >"$1.last"; }
check qat_cpu $qat -o qat.cpu.onnx --log qat.cpu.jsonl --device cpu
check qat_cuda $qat -o qat.cuda.onnx --log qat.cuda.jsonl --device cuda
cp out said
check qat_not_on_the_cpu sh -c '! grep -q "on the CPU" said'
last qat.cpu.jsonl
last qat.cuda.jsonl
check qat_near_the_cpu near qat.cuda.jsonl.last qat.cpu.jsonl.last 1e-4
check prune_distill "$pare" prune "$zoo/mlp.onnx" -o tuned.onnx --macs 0.5 --data train.h5 \
    --range 0:200 --distill epochs=0.1,batch=8 --device cuda

# Ctrl-C in the last training: the best so far, and the words that it is that
"$pare" prune "$zoo/mlp.onnx" -o stopped.onnx --macs 0.5 --data train.h5 --range 0:200 \
    --distill epochs=100000,batch=8 --device cuda --json stopped.json >said 2>&1 &
while ! grep -aq '[0-9] steps' said && kill -0 $! 2>/dev/null; do sleep 0.05; done
kill -INT $! 2>/dev/null
wait $! 2>/dev/null
check interrupted_exit test $? = 3
check interrupted_says grep -aq 'stopped.onnx: interrupted: it holds the best of' said
check interrupted_facts grep -q '"device"' stopped.json
exit $status
