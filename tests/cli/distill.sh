#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A student learns from its teacher: what is written, and what is refused in one message.
name=distill
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
train="--data $data/train.h5"
distill="$pare distill --quiet --teacher $zoo/mlp.onnx"
"$pare" prune -q "$zoo/mlp.onnx" -o half.onnx --macs 0.5 >/dev/null || exit 1
"$pare" prune -q "$zoo/mlp.onnx" -o sparse.onnx --sparsity 0.8 >/dev/null || exit 1

# --- what works ---
works plain $distill --student half.onnx $train -o tuned.onnx --steps 30 --log log.jsonl --json facts.json
says plain_name tuned.onnx
works again $distill --student half.onnx $train -o again.onnx --steps 30 --threads 1 --log log1.jsonl
if cmp -s tuned.onnx again.onnx; then pass same_bytes; else fail same_bytes "one and two threads differ"; fi
if cmp -s log.jsonl log1.jsonl; then pass same_log; else fail same_log "the logs differ"; fi
if [ "$(wc -l <log.jsonl)" = 31 ] && [ "$(tail -1 log.jsonl | cut -c1-10)" = '{"step":30' ]; then
    pass log_lines
else
    fail log_lines "$(wc -l <log.jsonl) lines: $(tail -1 log.jsonl)"
fi
if cmp -s half.onnx tuned.onnx; then fail trained "the weights are as they were"; else pass trained; fi
works valid "$pare" check tuned.onnx
if grep -aq 'distill loss=kl:2 optimizer=adamw' tuned.onnx; then pass manifest; else fail manifest "no recipe in tuned.onnx"; fi
# held-out loss, before and after, as the facts say
if awk -F'[:,}]' '/"before"|"after"/ { part = $1 } /"loss"/ { loss[part] = $2 } END { n = 0; for (p in loss) { n++; if (p ~ /before/) b = loss[p]; else a = loss[p] } exit !(n == 2 && a < b) }' facts.json; then
    pass better
else
    fail better "$(grep -A4 -E '"(before|after)"' facts.json | tr '\n' ' ')"
fi
works val_is_data "$pare" distill --teacher "$zoo/mlp.onnx" --student half.onnx $train --val "$data/../data/train.h5" -o val.onnx --steps 1 --range 0:200 --batch 32
if has '--val and --data name the same file' .test.err; then pass val_is_data_said; else fail val_is_data_said "$(cat .test.err)"; fi
works nothing_to_learn "$pare" distill --teacher "$zoo/mlp.onnx" --student "$zoo/mlp.onnx" $train -o same.onnx --steps 3 --batch 32 --samples 400
if has 'best after 0' .test.err && has 'a lower --lr may help' .test.err; then pass nothing_is_better; else fail nothing_is_better "$(tail -1 .test.err)"; fi
works losses $distill --student half.onnx $train -o losses.onnx --steps 4 --loss 'kl:2*0.5,mse,cosine*0.1,ce' --optimizer sgd --lr 0.01 --schedule constant
works augmented "$pare" distill -q --teacher "$zoo/cnn.onnx" --student "$zoo/cnn.onnx" $train -o moved.onnx --steps 2 --batch 16 --augment flip,shift:2,mixup:0.2 --samples 400
"$pare" prune -q "$zoo/resnet.onnx" -o norms.onnx --macs 0.5 >/dev/null || exit 1
works estimate "$pare" distill --verbose --teacher "$zoo/resnet.onnx" --student norms.onnx $train --samples 600 -o estimated.onnx --steps 1 --batch 16 --bn-estimate 64 --threads 1 --json estimated.json
if has '15 BatchNormalization nodes estimated again' .test.err && has '"estimated_norms": 15' estimated.json; then pass estimate_said; else fail estimate_said "$(tail -3 .test.err)"; fi
works sparse $distill --student sparse.onnx $train -o kept.onnx --steps 10 --log kept.jsonl --json kept.json
kept='"zeros_kept":["1.weight","3.weight","5.weight"]'
if head -1 kept.jsonl | grep -qF "$kept" && [ "$(grep -c zeros_kept kept.jsonl)" = 1 ] && tr -d ' \n' <kept.json | grep -qF "$kept"; then pass zeros_named; else fail zeros_named "$(head -1 kept.jsonl)"; fi
works sparse_again "$pare" inspect kept.onnx

# --- what is refused ---
refuses no_teacher 2 "--teacher" "$pare" distill --student half.onnx $train -o x.onnx
refuses no_student 2 "--student" $distill $train -o x.onnx
refuses no_data 2 "--data" $distill --student half.onnx -o x.onnx
refuses no_output 2 "-o OUT" $distill --student half.onnx $train
refuses both_lengths 2 "--epochs|--steps" $distill --student half.onnx $train -o x.onnx --steps 3 --epochs 1
refuses loss_words 2 "kl2" $distill --student half.onnx $train -o x.onnx --loss kl2
refuses momentum_of_adamw 2 "--momentum" $distill --student half.onnx $train -o x.onnx --momentum 0.5
refuses estimate_of_frozen 2 "--bn-estimate|frozen" $distill --student half.onnx $train -o x.onnx --bn frozen --bn-estimate 64
works bf16 $distill --student half.onnx $train -o short.onnx --steps 5 --precision bf16
refuses fp16 1 "fp16|GPU|bf16" $distill --student half.onnx $train -o x.onnx --precision fp16
refuses augment_words 2 "turn|flip" $distill --student half.onnx $train -o x.onnx --augment turn
refuses feature 1 "nowhere" $distill --student half.onnx $train -o x.onnx --loss feature:nowhere
refuses over_student 1 "half.onnx" $distill --student half.onnx $train -o half.onnx
refuses missing_teacher 1 "none.onnx" "$pare" distill -q --teacher none.onnx --student half.onnx $train -o x.onnx
head -c 3000 "$zoo/mlp.onnx" >cut.onnx
refuses cut_student 1 "cut.onnx" $distill --student cut.onnx $train -o x.onnx
head -c 10800 /dev/zero | npy_of dims.npy '<f4' '(4, 3, 15, 15)'
"$pare" data import --quiet -o dims.h5 --npy dims.npy >/dev/null
refuses other_shape 1 "dims.h5|/input" $distill --student half.onnx --data dims.h5 -o x.onnx
refuses log_nowhere 1 "nowhere" $distill --student half.onnx $train -o x.onnx --log nowhere/l.jsonl
refuses tensorboard_is_a_file 1 "half.onnx|no folder" $distill --student half.onnx $train -o x.onnx --tensorboard half.onnx
refuses tensorboard_nowhere 1 "no/events|cannot be made" $distill --student half.onnx $train -o x.onnx --tensorboard no/events
refuses not_finite 1 "half.onnx: step|node '|is the first to hold" $distill --student half.onnx $train -o x.onnx --steps 50 --optimizer sgd --lr 1000 --loss mse --warmup 0
refuses no_samples 1 "train.h5|0 samples" $distill --student half.onnx $train --samples 0 -o x.onnx
refuses few_samples 1 "train.h5|20 samples|--batch" $distill --student half.onnx $train --samples 20 -o x.onnx

# Students of other outputs, and without a weight.
pixels='input { name: "input" type { tensor_type { elem_type: 1 shape { dim { dim_param: "n" } dim { dim_value: 1 } dim { dim_value: 28 } dim { dim_value: 28 } } } } }'
flat='node { op_type: "Flatten" name: "flat" input: "input" output: "f" }'
student() { # NAME NODES CLASSES
    printf '%s\n' "ir_version: 8 opset_import { domain: \"\" version: 17 } graph { name: \"g\" $flat $2 $pixels
        output { name: \"y\" type { tensor_type { elem_type: 1 shape { dim { dim_param: \"n\" } dim { dim_value: $3 } } } } } }" | onnx_of "$1"
}
number() { echo "initializer { name: \"$1\" data_type: 7 dims: 1 int64_data: $2 }"; }
student wide 'node { op_type: "Relu" name: "r" input: "f" output: "y" }' 784
refuses outputs 1 "wide.onnx|'y' f32|784|mlp.onnx" $distill --student wide.onnx $train -o x.onnx
student bare "node { op_type: \"Slice\" name: \"first\" input: \"f\" input: \"from\" input: \"to\" input: \"axis\" output: \"y\" } $(number from 0) $(number to 10) $(number axis 1)" 10
refuses nothing_to_train 1 "bare.onnx|nothing to train" $distill --student bare.onnx $train -o x.onnx

# Labels, where the loss asks for them.
head -c 12544 /dev/zero | npy_of four.npy '<f4' '(4, 1, 28, 28)'
printf '\003\0\0\0\0\0\0\0\001\0\0\0\0\0\0\0\014\0\0\0\0\0\0\0\011\0\0\0\0\0\0\0' | npy_of labels.npy '<i8' '(4,)'
"$pare" data import --quiet -o bare.h5 --npy four.npy >/dev/null
"$pare" data import --quiet -o wrong.h5 --npy four.npy labels.npy >/dev/null
refuses no_labels 1 "bare.h5|/labels|ce" $distill --student half.onnx --data bare.h5 --batch 2 --loss kl:2,ce -o x.onnx
refuses held_out_labels 1 "bare.h5|/labels|ce" $distill --student half.onnx $train --val bare.h5 --batch 2 --loss ce -o x.onnx
refuses wrong_labels 1 "wrong.h5|/labels|sample 2 has label 12|10 classes" $distill --student half.onnx --data wrong.h5 --batch 2 --loss ce -o x.onnx
refuses wrong_labels_compared 1 "wrong.h5|/labels|sample 2 has label 12|10 classes" "$pare" validate -q half.onnx "$zoo/mlp.onnx" --data wrong.h5 --range 1:4 --any-accuracy
works batch_above_data "$pare" distill --teacher "$zoo/mlp.onnx" --student half.onnx --data "$data/train.h5" --samples 100 --batch 128 --val "$data/test.h5" --steps 1 -o above.onnx
if has 'warning: ' .test.err && has 'a batch has 128 samples, but there are 100 to train on' .test.err; then pass batch_above_data_said; else fail batch_above_data_said "$(cat .test.err)"; fi

# --- Ctrl-C before the first step: nothing is trained, nothing is written ---
early() { # NAME OPTIONS...: while statistics are estimated, or the student is calibrated
    case_=$1
    shift
    before_=$(listing)
    "$pare" distill --teacher "$zoo/resnet.onnx" $train -o early.onnx "$@" >.test.out 2>.test.err &
    sleep 1
    kill -INT $!
    wait $!
    got=$?
    if [ $got = 1 ] && has 'early.onnx: is not written, for nothing is trained yet: interrupted' .test.err &&
        [ "$(grep -c '^pare: ' .test.err)" = 1 ] && [ "$before_" = "$(listing)" ]; then
        pass "$case_"
    else
        fail "$case_" "exit $got: $(tail -1 .test.err)"
    fi
}
early interrupted_estimate --student norms.onnx --bn-estimate 60000
early interrupted_calibration --student "$zoo/resnet.onnx" --qat int8 --qat-samples 60000

# --- Ctrl-C: the best so far is the result ---
"$pare" distill --teacher "$zoo/mlp.onnx" --student half.onnx $train -o stopped.onnx --epochs 100000 --validate-every 5 >.test.out 2>.test.err &
steps_of $!
kill -INT $!
wait $!
got=$?
if [ $got = 3 ] && has 'pare: stopped.onnx: interrupted: it holds the best of' .test.err && "$pare" check stopped.onnx >/dev/null 2>&1; then
    pass interrupted
else
    fail interrupted "exit $got: $(tail -1 .test.err)"
fi
finish
