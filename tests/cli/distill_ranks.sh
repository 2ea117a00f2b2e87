#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several processes train together: model, log and checkpoint have the bytes of one process.
name=distill_ranks
. "$(dirname "$0")/_lib.sh"
. "$top/tests/cli/_training.sh"
how=""
ranks_can || exit 0
data_sets || exit 0
"$pare" prune -q "$zoo/mlp.onnx" -o half.onnx --macs 0.5 >/dev/null || exit 1
"$pare" prune -q "$zoo/resnet.onnx" -o norms.onnx --macs 0.5 >/dev/null || exit 1

# --- the same bytes ---

train="--data $data/train.h5"
mlp="--teacher $zoo/mlp.onnx --student half.onnx $train"
cnn="--teacher $zoo/cnn.onnx --student $zoo/cnn.onnx $train --samples 600 --batch 16"
norms="--teacher $zoo/resnet.onnx --student norms.onnx $train --samples 600 --batch 16"
trains_alike adamw "2 4 8" $mlp --samples 1500 --batch 32 --steps 20 --validate-every 7 --ema 0.95
trains_alike sgd "4" $mlp --samples 1500 --batch 32 --steps 9 --accumulate 3 --optimizer sgd --lr 0.1 --clip 1 --loss kl:2,ce
trains_alike batchnorm "2 8" $norms --steps 4 --accumulate 2 --bn-estimate 64 --validate-every 2
trains_alike batchnorm_half "4" $norms --steps 4 --bn half --bn-estimate 0
trains_alike moved "4" $cnn --steps 3 --augment flip,shift:2
trains_alike mixed "4" $cnn --steps 3 --augment flip,mixup:0.4
trains_alike overlap "2 4" $cnn --steps 4 --validate-every 2 --threads 2 --accumulate 2
if mpirun 2 "$pare" distill -v $cnn --steps 1 --threads 2 -o out.onnx 2>&1 | grep -q "while microbatches still run backward: 2 buckets"; then pass overlaps; else fail overlaps "no word of it"; fi
trains_alike overlap_attention "2" --teacher "$zoo/vit.onnx" --student "$zoo/vit.onnx" $train --samples 600 --batch 16 --steps 3 --threads 3
rm -rf out out.onnx out.jsonl whole whole.onnx whole.jsonl
uneven="$pare distill -q $cnn --steps 2 -o out.onnx --log out.jsonl --checkpoint out"
works uneven_threads "$pare" distill -q $cnn --steps 2 -o whole.onnx --log whole.jsonl --checkpoint whole
if taskset -c 0,1 true 2>/dev/null; then # the ranks of a machine with more cores beside one with fewer
    works uneven_threads_2 mpirun 1 taskset -c 0 $uneven : -n 1 taskset -c 0,1 $uneven
    same uneven_threads_bytes
else
    skip uneven_threads_2 "one core"
fi
trains_alike qat "1 2 4" $cnn --steps 5 --qat int8 --validate-every 2
trains_alike few_held_out "8" $mlp --range 0:40 --batch 8 --steps 3

# --- said and written once ---
works one_speaks mpirun 4 "$pare" distill $mlp --samples 1500 --batch 32 --steps 3 -o out.onnx --json facts.json
if [ "$(wc -l <.test.out)" = 1 ] && [ "$(grep -c ' steps' .test.err)" = 1 ] && has '"ranks": 4' facts.json; then
    pass one_spoke
else
    fail one_spoke "$(cat .test.out .test.err)"
fi

# --- a training goes on in another number of processes ---
distill="$pare distill $mlp --samples 1500 --batch 32 --steps 100 --validate-every 7 --ema 0.95"
rm -rf whole
works whole $distill -q -o whole.onnx --log whole.jsonl --checkpoint whole
rm -rf out out.onnx out.jsonl
killed_on_its_way killed_1 1 20
killed_on_its_way killed_2 2 40
killed_on_its_way killed_4 4 60
works continues mpirun 2 $distill -q -o out.onnx --log out.jsonl --checkpoint out --checkpoint-every 3 --resume --json facts.json
same continues_bytes
if has '"resumed": ' facts.json; then pass resumed; else fail resumed "$(cat facts.json)"; fi

# --- one rank is asked to stop ---
stopped stopped 2
works goes_on mpirun 4 $distill -q -o out.onnx --log out.jsonl --checkpoint out --resume
same goes_on_bytes

# --- a loss that is not finite: the rank that has the sample says so, in the words of one process ---
{
    head -c $((37 * 3136)) /dev/zero
    for i in $(seq 1 784); do printf '\377\377\177\177'; done
    head -c $((62 * 3136)) /dev/zero
} | npy_of large.npy '<f4' '(100, 1, 28, 28)'
"$pare" data import -q --npy large.npy -o large.h5 >/dev/null || exit 1
large="$pare distill -q --teacher $zoo/mlp.onnx --student half.onnx --data large.h5 --batch 32 --steps 3 --seed 2 -o no.onnx"
refuses not_finite_in_one 1 "half.onnx: step|infinity" $large
sed 's/^pare: //' .test.err >.test.words
refuses not_finite 1 "pare: rank 2 (|$(cat .test.words)" mpirun 4 $large

look="$pare distill -q --teacher $zoo/cnn.onnx --student $zoo/cnn.onnx --data large.h5 --batch 32 --steps 3 --seed 2 --threads 2 -o no.onnx"
refuses not_finite_in_overlap 1 "cnn.onnx: step|infinity" mpirun 2 $look

# --- what does not fit together: one message, nothing is written ---
refuses three 2 "half.onnx: 3 processes cannot share the 8 microbatches" mpirun 3 $distill -o no.onnx
refuses five 2 "2 processes cannot share the 5 microbatches|--batch" mpirun 2 $distill --batch 20 -o no.onnx
refuses before_calibration 2 "3 processes cannot share" mpirun 3 $distill --qat int8 -o no.onnx
refuses other_rate 1 "rank 1 (|another command line" mpirun 1 $distill -o no.onnx : -n 1 $distill --lr 0.1 -o no.onnx
mkdir there
cp half.onnx mine.onnx && cp "$data/train.h5" mine.h5
cp half.onnx there/mine.onnx && cp "$data/train.h5" there/val.h5 && cp "$data/test.h5" there/mine.h5
own="$pare distill --teacher $zoo/mlp.onnx --student mine.onnx --data mine.h5 --samples 600 --batch 32 --steps 2 -o $work/no.onnx --checkpoint $work/no"
refuses other_data 1 "rank 1 (|another data file" mpirun 1 $own : -n 1 --wdir there $own
cp "$data/train.h5" there/mine.h5 && cp "$data/test.h5" val.h5
refuses other_val 1 "rank 1 (|another data file" mpirun 1 $own --val val.h5 : -n 1 --wdir there $own --val val.h5
"$pare" prune -q "$zoo/mlp.onnx" -o there/mine.onnx --macs 0.7 >/dev/null
refuses other_student 1 "rank 1 (|another student" mpirun 1 $own : -n 1 --wdir there $own
rm there/mine.onnx
refuses no_student_in_one 1 "rank 1 (|mine.onnx" mpirun 1 $own : -n 1 --wdir there $own
refuses in_the_way 1 "out/checkpoint.pare|--resume" mpirun 2 $distill -o no.onnx --checkpoint out
refuses no_place 1 "no/such" mpirun 2 $distill -o no/such/out.onnx
finish
