#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare prune --distill: pruning in steps with training between them, and what is refused.
name=prune_distill
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
prune="$pare prune --quiet $zoo/mlp.onnx"
few="--data $data/train.h5 --range 0:1200 --samples 40"
train="$few --distill epochs=1,batch=32"
plain="$train --no-refit"

# what the facts say of a model: sparsity FILE; kept STEP FILE
sparsity() { facts_of "$1" | awk -F'[:,]' '/"sparsity"/ { printf "%.4f", $2 }'; }
kept() { awk -F'[:,]' -v step="$1" '/"kept"/ && ++n == step { printf "%.4f", $2 }' "$2"; }
# the sum of the losses after a key is smaller after training than before it
learnt() { awk -F'[:,]' '/"before"|"after"/ { part = $1 } /"loss": [0-9]/ { loss[part] += $2 } END { b = a = 0; for (p in loss) if (p ~ /before/) b += loss[p]; else a += loss[p]; exit !(a > 0 && a < b) }' "$1"; }

works sparse $prune -o sparse.onnx --sparsity 0.8 --steps 2 $plain --threads 2 --json sparse.json
if [ "$(sparsity sparse.json)" = 0.8000 ]; then pass sparsity_is_met; else fail sparsity_is_met "$(sparsity sparse.json)"; fi
# 1 - 0.8 (1 - (1/2)^3), 1 - 0.8
if [ "$(kept 1 sparse.json) $(kept 2 sparse.json)" = "0.3000 0.2000" ]; then pass cubic; else fail cubic "$(kept 1 sparse.json) $(kept 2 sparse.json)"; fi
# a quarter and three quarters of the epoch's 36.5
trained=$(facts_of sparse.json | awk -F'[:,]' '/"steps": [0-9]/ { printf "%d ", $2 }')
if [ "$trained" = "10 28 " ]; then pass shares; else fail shares "$trained"; fi
if learnt sparse.json; then pass sparse_learns; else fail sparse_learns "$(grep loss sparse.json | tr '\n' ' ')"; fi
works sparse_one_thread $prune -o again.onnx --sparsity 0.8 --steps 2 $plain --threads 1
if cmp -s sparse.onnx again.onnx; then pass sparse_same_bytes; else fail sparse_same_bytes "one and two threads differ"; fi
works sparse_check "$pare" check sparse.onnx
if grep -aq 'prune sparsity=0.8 .* distill epochs=1 in=2 loss=kl:2 optimizer=adamw lr=0.001 .* batch=32' sparse.onnx; then pass manifest; else fail manifest "no recipe"; fi
works seed $prune -o seed.onnx --sparsity 0.8 --steps 2 $plain --seed 7
if cmp -s sparse.onnx seed.onnx; then fail seed_counts "seeds 1 and 7 give the same bytes"; else pass seed_counts; fi

works channels "$pare" prune "$zoo/mlp.onnx" -o half.onnx --macs 0.5 --steps 2 $train --threads 2 --json half.json --report half.html
if has 'step 1 of 2, 7' .test.err && has 'step 2 of 2, ' .test.err && has 'before training' .test.err; then pass words; else fail words "$(cat .test.err)"; fi
if has '<h2>Training</h2>' half.html && has 'not trained on, but decided' half.html; then pass page; else fail page "$(wc half.html)"; fi
if learnt half.json; then pass channels_learn; else fail channels_learn "$(grep loss half.json | tr '\n' ' ')"; fi
works channels_one_thread $prune -o again.onnx --macs 0.5 --steps 2 $train --threads 1
if cmp -s half.onnx again.onnx; then pass channels_same_bytes; else fail channels_same_bytes "one and two threads differ"; fi
works sweep "$pare" prune -q "$zoo/cnn.onnx" -o swept.onnx --macs 1 --sweep 0.7,0.5 --no-refit --steps 2 --data "$data/train.h5" --range 0:120 --distill epochs=1,batch=8
works alone "$pare" prune -q "$zoo/cnn.onnx" -o alone.onnx --macs 0.5 --no-refit --steps 2 --data "$data/train.h5" --range 0:120 --distill epochs=1,batch=8
if cmp -s swept-0.50.onnx alone.onnx; then pass sweep_starts_over; else fail sweep_starts_over "the second of a sweep is not what it is alone"; fi
works options $prune -o other.onnx --sparsity 0.5 $few --distill mse,epochs=1,batch=32,optimizer=sgd,lr=0.01,ema=0.9,accumulate=2
if grep -aq 'loss=mse optimizer=sgd lr=0.01 .* accumulate=2 momentum=0.9 ema=0.9' other.onnx; then pass options_count; else fail options_count "no such recipe"; fi
works nm "$pare" prune -q "$zoo/mlp.onnx" -o nm.onnx --nm 2:4 $plain --json nm.json
if [ "$(sparsity nm.json)" = 0.5000 ]; then pass nm_zeros_stay; else fail nm_zeros_stay "$(sparsity nm.json)"; fi

refuses tensorboard_alone 2 "--tensorboard|without --distill" $prune -o x.onnx --macs 0.5 $few --tensorboard events
refuses no_data 2 "--data" $prune -o x.onnx --macs 0.5 --distill epochs=1
refuses negative 2 "--distill epochs=-1|from" $prune -o x.onnx --macs 0.5 $few --distill epochs=-1
refuses latency 2 "--latency|pare distill" $prune -o x.onnx --latency 0.5 $train
refuses outputs 2 "--outputs" $prune -o x.onnx --macs 0.5 --outputs $train
refuses unknown_key 2 "--distill rate=1|no key 'rate'|epochs, loss, lr, schedule" $prune -o x.onnx --macs 0.5 $few --distill rate=1
refuses nearest_key 2 "did you mean 'epochs'" $prune -o x.onnx --macs 0.5 $few --distill epoch=1
refuses no_value 2 "--distill lr=|expected lr=F" $prune -o x.onnx --macs 0.5 $few --distill lr=
refuses key_twice 2 "--distill lr=2|given twice" $prune -o x.onnx --macs 0.5 $few --distill lr=1,lr=2
refuses loss_twice 2 "the loss is given twice" $prune -o x.onnx --macs 0.5 $few --distill kl:2,loss=mse
refuses empty_part 2 "--distill kl:2,,lr=1|is empty" $prune -o x.onnx --macs 0.5 $few --distill kl:2,,lr=1
refuses not_a_choice 2 "--distill optimizer=adam|adamw|sgd" $prune -o x.onnx --macs 0.5 $few --distill optimizer=adam
refuses not_a_number 2 "--distill lr=fast|a number from" $prune -o x.onnx --macs 0.5 $few --distill lr=fast
refuses momentum_of_adamw 2 "--distill momentum|optimizer=sgd" $prune -o x.onnx --macs 0.5 $few --distill momentum=0.5
refuses key_alone 2 "--distill lr|expected lr=F" $prune -o x.onnx --macs 0.5 $few --distill lr,epochs=1
refuses augment_words 2 "augmentation 'turn'" $prune -o x.onnx --macs 0.5 --data none.h5 --distill augment=turn
refuses loss_words 2 "loss 'kl2'|kl:T" $prune -o x.onnx --macs 0.5 --data none.h5 --distill kl2
refuses steps_of_nm 2 "--steps|--nm" $prune -o x.onnx --nm 2:4 --steps 2 $train
refuses steps_of_sparsity 2 "--steps|--distill" $prune -o x.onnx --sparsity 0.5 --steps 2 $few
refuses no_samples 1 "0 samples" $prune -o x.onnx --macs 0.5 --data "$data/train.h5" --samples 0 --distill epochs=1
refuses few_samples 1 "train.h5|held-out|--batch" $prune -o x.onnx --macs 0.5 --data "$data/train.h5" --range 0:20 --distill epochs=1
limited() { (ulimit -f 64 && exec "$@"); }
refuses no_room 1 "x.onnx: cannot be written" limited timeout 30 $prune -o x.onnx --params 0.5 $few --distill epochs=100000,batch=32
refuses no_room_of_zeros 1 "x.onnx: cannot be written" limited timeout 30 $prune -o x.onnx --sparsity 0.5 $few --no-refit --distill epochs=100000,batch=32
refuses rate_too_high 1 "mlp.onnx|step" $prune -o x.onnx --macs 0.5 $few --distill epochs=1,batch=32,lr=1000

# --- Ctrl-C: nothing before the last step, the best so far in it ---
stop() { "$pare" prune "$zoo/mlp.onnx" -o "$1" --params 0.5 --score l2 --no-refit --data "$data/train.h5" --distill epochs=100000 --steps "$2" >.test.out 2>.test.err & steps_of $!; kill -INT $!; wait $!; }
stop early.onnx 2
got=$?
if [ $got = 1 ] && [ ! -e early.onnx ] && has 'mlp.onnx: nothing is written in step 1 of 2' .test.err; then pass interrupted_early; else fail interrupted_early "exit $got: $(tail -1 .test.err)"; fi
stop last.onnx 1
got=$?
if [ $got = 3 ] && has "last.onnx: interrupted" .test.err && "$pare" check last.onnx >/dev/null 2>&1; then pass interrupted_last; else fail interrupted_last "exit $got: $(tail -1 .test.err)"; fi

# --- killed or stopped in a step, it continues to the same bytes ---
gradual="$prune --params 0.5 $few --distill epochs=20,batch=32 --steps 3"
works whole $gradual -o whole.onnx --json whole.json
kept_of() { cat "$1/$2.pare" 2>/dev/null | wc -c; }
for at in step-1 step-2 step-3; do
    $gradual -o killed.onnx --checkpoint "ck-$at" --checkpoint-every 2 --threads 1 >.test.out 2>.test.err &
    while [ "$(kept_of "ck-$at" $at)" = 0 ] && kill -0 $! 2>/dev/null; do sleep 0.01; done
    kill -KILL $! 2>/dev/null
    wait $! 2>/dev/null
    got=$?
    [ $got = 137 ] && [ ! -e killed.onnx ] && pass "killed_in_$at" || fail "killed_in_$at" "exit $got"
    works "continues_in_$at" $gradual -o killed.onnx --checkpoint "ck-$at" --checkpoint-every 2 --resume --json killed.json
    if cmp -s whole.onnx killed.onnx; then pass "same_bytes_$at"; else fail "same_bytes_$at" "an undisturbed run gives others"; fi
    resumed=$(grep -c '"resumed"' killed.json)
    [ "$resumed" = "${at#step-}" ] && pass "resumed_$at" || fail "resumed_$at" "$resumed steps were resumed"
    rm killed.onnx
done
[ "$(ls ck-step-3 | tr '\n' ' ')" = "step-1.pare step-2.pare step-3.pare " ] && pass files || fail files "$(ls ck-step-3 | tr '\n' ' ')"
works pattern $prune -o zeros.onnx --sparsity 0.8 --steps 2 $plain --checkpoint ck-zeros
works pattern_ended $prune -o ended.onnx --sparsity 0.8 --steps 2 $plain --checkpoint ck-zeros --resume
if cmp -s sparse.onnx zeros.onnx && cmp -s sparse.onnx ended.onnx; then pass pattern_same_bytes; else fail pattern_same_bytes "checkpoints change the result"; fi
swept="$pare prune -q $zoo/cnn.onnx -o swept.onnx --macs 1 --sweep 0.7,0.5 --no-refit --steps 2 --data $data/train.h5 --range 0:120 --distill epochs=1,batch=8 --checkpoint ck-swept"
works sweep_kept $swept
[ "$(ls ck-swept | tr '\n' ' ')" = "0.5-step-1.pare 0.5-step-2.pare 0.7-step-1.pare 0.7-step-2.pare " ] && pass sweep_files || fail sweep_files "$(ls ck-swept | tr '\n' ' ')"
if cmp -s swept-0.50.onnx alone.onnx; then pass sweep_kept_bytes; else fail sweep_kept_bytes "checkpoints change the result"; fi
refuses in_the_way 1 "ck-step-3/step-1.pare|--resume|another place" $gradual -o x.onnx --checkpoint ck-step-3
refuses other_target 1 "ck-step-3/step-1.pare|its student is" $prune --params 0.3 $few --distill epochs=20,batch=32 --steps 3 -o x.onnx --checkpoint ck-step-3 --resume
refuses checkpoint_alone 2 "--checkpoint|--distill" $prune -o x.onnx --macs 0.5 $few --checkpoint x
refuses resume_alone 2 "--resume|--checkpoint" $prune -o x.onnx --macs 0.5 $train --resume
refuses checkpoint_nowhere 1 "a/b|cannot be made" $prune -o x.onnx --macs 0.5 $train --checkpoint a/b
refuses checkpoint_is_output 1 "ck-step-3/step-1.pare|another name" $gradual -o ck-step-3/step-1.pare --checkpoint ck-step-3 --resume
"$pare" prune "$zoo/mlp.onnx" -o stopped.onnx --params 0.5 $few --distill epochs=100000,batch=32 --steps 2 --checkpoint ck-stopped >.test.out 2>.test.err & steps_of $!; kill -INT $!; wait $!
got=$?
if [ $got = 1 ] && has 'ck-stopped/step-1.pare: holds step' .test.err && has 'same command with --resume' .test.err; then pass says_how_to_continue; else fail says_how_to_continue "exit $got: $(cat .test.err)"; fi

# --- several processes train together: model and checkpoints have the bytes of one ---
ranks_can || { finish; exit; }
mpirun() { sh "$top/tests/comm/ranks.sh" "$@"; }
together() { # NAME SIZES MODEL OPTION...
    name_=$1 sizes_=$2 net_=$3
    shift 3
    rm -rf one.onnx one
    works "$name_" "$pare" prune -q "$net_" -o one.onnx --checkpoint one "$@"
    for size_ in $sizes_; do
        rm -rf many.onnx many
        works "${name_}_$size_" mpirun "$size_" "$pare" prune -q "$net_" -o many.onnx --checkpoint many --json many.json "$@"
        same_=yes
        for file_ in one/*.pare; do cmp -s "$file_" "many/${file_#one/}" || same_=no; done
        if cmp -s one.onnx many.onnx && [ $same_ = yes ]; then pass "${name_}_bytes_$size_"; else fail "${name_}_bytes_$size_" "$(cmp one.onnx many.onnx 2>&1) checkpoints: $same_"; fi
    done
    if learnt many.json; then pass "${name_}_learns"; else fail "${name_}_learns" "$(grep loss many.json | tr '\n' ' ')"; fi
}
together ranks "1 2 4" "$zoo/mlp.onnx" --params 0.5 --steps 2 $few --distill epochs=4,batch=32
together ranks_sparse "2 4" "$zoo/mlp.onnx" --sparsity 0.8 --steps 2 $train --threads 2
together ranks_norms "2" "$zoo/resnet.onnx" --macs 0.4 --no-refit --data "$data/train.h5" --range 0:400 --samples 40 --distill epochs=2,batch=16
works ranks_sweep mpirun 2 "$pare" prune -q "$zoo/cnn.onnx" -o swept.onnx --macs 1 --sweep 0.7,0.5 --no-refit --steps 2 --data "$data/train.h5" --range 0:120 --distill epochs=1,batch=8 --tensorboard events
if cmp -s swept-0.50.onnx alone.onnx && [ "$(find events -type f | wc -l)" = 4 ]; then pass ranks_sweep_bytes; else fail ranks_sweep_bytes "$(cmp swept-0.50.onnx alone.onnx 2>&1) $(find events -type f)"; fi
refuses ranks_of_batch 2 "mlp.onnx|3 processes" mpirun 3 $gradual -o x.onnx
stop_one() { # OUT STEPS: the second of two processes is asked to stop
    mpirun 2 "$pare" prune "$zoo/mlp.onnx" -o "$1" --params 0.5 --score l2 --no-refit --data "$data/train.h5" --distill epochs=100000 --steps "$2" --checkpoint "ck-$1" >.test.out 2>.test.err &
    steps_of $!
    process_of 1
    kill -INT "$process"
    wait $!
}
stop_one early.onnx 2
got=$?
if [ $got = 1 ] && [ ! -e early.onnx ] && has 'mlp.onnx: nothing is written in step 1 of 2' .test.err && has 'ck-early.onnx/step-1.pare: holds step' .test.err; then pass ranks_interrupted_early; else fail ranks_interrupted_early "exit $got: $(tail -2 .test.err)"; fi
stop_one end.onnx 1
got=$?
if [ $got = 3 ] && has "end.onnx: interrupted" .test.err && "$pare" check end.onnx >/dev/null 2>&1; then pass ranks_interrupted_last; else fail ranks_interrupted_last "exit $got: $(tail -1 .test.err)"; fi
finish
