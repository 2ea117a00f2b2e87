#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A training that is killed, stopped or out of disk continues to the bytes of an undisturbed one.
name=distill_resume
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
"$pare" prune -q "$zoo/mlp.onnx" -o half.onnx --macs 0.5 >/dev/null || exit 1
steps=100
distill="$pare distill --teacher $zoo/mlp.onnx --student half.onnx --data $data/train.h5 --samples 1500
    --batch 32 --steps $steps --validate-every 7 --ema 0.95"
works whole $distill -q -o whole.onnx --log whole.jsonl

# same NAME: out.onnx and out.jsonl are those of the undisturbed run
same() {
    if cmp -s whole.onnx out.onnx && cmp -s whole.jsonl out.jsonl; then
        pass "$1"
    else
        fail "$1" "$(cmp whole.onnx out.onnx 2>&1) $(cmp whole.jsonl out.jsonl 2>&1)"
    fi
}

lines() { cat "$1" 2>/dev/null | wc -l; }

# --- SIGKILL at 20 moments of four trainings ---
seed=1
draw() { # LIMIT: sets drawn to a pseudo-random number below it
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}
kills=0
early=0
for training in 1 2 3 4; do
    rm -rf ck out.onnx out.jsonl
    for part in 1 2 3 4 5; do
        draw $((steps / 5))
        wanted=$(((part - 1) * steps / 5 + drawn))
        # two checkpoints in three are not of a validation
        $distill -q -o out.onnx --log out.jsonl --checkpoint ck --checkpoint-every 3 --resume \
            --threads $((1 + part % 2)) >.test.out 2>.test.err &
        while [ "$(lines out.jsonl)" -le $wanted ] && kill -0 $! 2>/dev/null; do
            sleep 0.01
        done
        draw 20
        sleep "0.0$(printf '%02d' "$drawn")"
        kill -KILL $! 2>/dev/null
        wait $! 2>/dev/null
        [ $? = 137 ] && kills=$((kills + 1))
        [ -e out.onnx ] || early=$((early + 1))
    done
    works "continues_$training" $distill -q -o out.onnx --log out.jsonl --checkpoint ck --checkpoint-every 3 --resume
    same "same_bytes_$training"
done
[ $kills -ge 16 ] && [ $early -ge 16 ] && pass kills_came_before_the_end ||
    fail kills_came_before_the_end "$kills kills, $early before the end"
[ "$(ls ck)" = checkpoint.pare ] && pass one_file || fail one_file "$(ls ck | tr '\n' ' ')"

# --- an ended training ---
rm out.onnx
works ended $distill -o out.onnx --log out.jsonl --checkpoint ck --checkpoint-every 9 --resume --json facts.json
has "training had ended before" .test.err && pass says_ended || fail says_ended "$(cat .test.err)"
has '"resumed": 100' facts.json && has '"step": 100' facts.json && pass facts || fail facts "$(cat facts.json)"
same ended_same_bytes

# --- what is refused; no file changes ---
ck="--checkpoint ck"
refuses in_the_way 1 "ck/checkpoint.pare|--resume|another place" $distill -o out.onnx --log out.jsonl $ck
refuses other_teacher 1 "ck/checkpoint.pare|its teacher is" $distill --teacher half.onnx -o out.onnx $ck --resume
refuses other_student 1 "ck/checkpoint.pare|its student is" $distill --student "$zoo/mlp.onnx" -o out.onnx $ck --resume
refuses other_option 1 "its learning rate is 0.001, this run's is 0.01" $distill --lr 0.01 -o out.onnx --log out.jsonl $ck --resume
refuses other_data 1 "its training data is 1468 samples" $distill --data "$data/test.h5" -o out.onnx $ck --resume
refuses other_instructions 1 "its instruction set is" env DNNL_MAX_CPU_ISA=SSE41 $distill -o out.onnx $ck --resume
mkdir cut new && head -c 5000 ck/checkpoint.pare >cut/checkpoint.pare
refuses cut 1 "cut/checkpoint.pare|is cut: 5000 bytes" $distill -o out.onnx --checkpoint cut --resume
{ head -c 8 ck/checkpoint.pare && printf '\011' && tail -c +10 ck/checkpoint.pare; } >new/checkpoint.pare
refuses other_version 1 "new/checkpoint.pare|has version 9" $distill -o out.onnx --checkpoint new --resume
refuses without_checkpoint 2 "--resume|without --checkpoint" $distill -o out.onnx --resume
refuses every_without_checkpoint 2 "--checkpoint-every" $distill -o out.onnx --checkpoint-every 3
refuses folder_is_a_file 1 "half.onnx|no folder" $distill -o out.onnx --checkpoint half.onnx
refuses folder_nowhere 1 "a/b|cannot be made" $distill -o out.onnx --checkpoint a/b
refuses output_is_the_checkpoint 1 "ck/checkpoint.pare|another name" $distill -o ck/checkpoint.pare $ck --resume
echo "no log" >words.txt

# --- Ctrl-C: the best so far, and how to continue ---
rm -rf ck out.onnx out.jsonl
works nothing_yet $distill -o first.onnx --checkpoint first --resume
has "there is no checkpoint yet" .test.err && pass says_nothing_yet || fail says_nothing_yet "$(cat .test.err)"
$distill -o out.onnx --log out.jsonl $ck --checkpoint-every 1000 >.test.out 2>.test.err &
while [ "$(lines out.jsonl)" -le 20 ]; do sleep 0.01; done
kill -INT $!
wait $!
got=$?
if [ $got = 3 ] && has "same command with --resume" .test.err && "$pare" check out.onnx >/dev/null 2>&1; then
    pass interrupted
else
    fail interrupted "exit $got: $(cat .test.err)"
fi
cp -r ck stopped && cp out.jsonl stopped.jsonl
works resumed $distill -o out.onnx --log out.jsonl $ck --checkpoint-every 1000 --resume --json facts.json
has "training continues after step" .test.err && pass says_resumed || fail says_resumed "$(cat .test.err)"
same stopped_same_bytes
refuses no_log 1 "words.txt|no log" $distill -q -o out.onnx --log words.txt --checkpoint stopped --resume

# --- a student that is quantized first ---
qat="$distill -q --qat int8 --qat-scales learned --steps 16"
rm -f out.onnx out.jsonl
works qat $qat -o qat.onnx --log qat.jsonl
$qat -o out.onnx --log out.jsonl --checkpoint of_qat --threads 1 >.test.out 2>.test.err &
while [ "$(lines out.jsonl)" -le 9 ] && kill -0 $! 2>/dev/null; do sleep 0.01; done
kill -KILL $! 2>/dev/null
wait $! 2>/dev/null
works qat_continues $qat -o out.onnx --log out.jsonl --checkpoint of_qat --resume --json facts.json
if cmp -s qat.onnx out.onnx && cmp -s qat.jsonl out.jsonl && has '"resumed": ' facts.json; then
    pass qat_same_bytes
else
    fail qat_same_bytes "$(cmp qat.onnx out.onnx 2>&1) $(cmp qat.jsonl out.jsonl 2>&1)"
fi
refuses other_quantization 1 "its student is" $qat --activations u8 -o out.onnx --checkpoint of_qat --resume

# --- the disk is full, or the folder is gone: a warning, and the same result ---
blocks=$(($(wc -c <half.onnx) / 512 * 2)) # the result fits twice, a checkpoint does not
limited() { (ulimit -f $blocks && exec "$@"); }
rm -rf ck out.onnx out.jsonl
cp -r stopped ck && cp stopped.jsonl out.jsonl
held=$(cksum <ck/checkpoint.pare)
works full_disk_ends limited $distill -o out.onnx --log out.jsonl $ck --checkpoint-every 5 --resume
same full_disk_result
if [ "$(grep -c '^warning: .*training continues without a checkpoint' .test.err)" = 1 ] &&
    [ "$held" = "$(cksum <ck/checkpoint.pare)" ]; then
    pass full_disk
else
    fail full_disk "$(cat .test.err)"
fi
rm out.onnx out.jsonl && cp stopped.jsonl out.jsonl
works full_disk_resumes $distill -q -o out.onnx --log out.jsonl $ck --resume
same full_disk_same_bytes
rm -rf ck out.onnx out.jsonl
$distill -o out.onnx --log out.jsonl $ck --checkpoint-every 5 >.test.out 2>.test.err &
while [ "$(lines out.jsonl)" -le 20 ]; do sleep 0.01; done
mv ck gone
wait $!
if [ $? = 0 ] && has "training continues without a checkpoint" .test.err; then pass folder_gone; else fail folder_gone "$(cat .test.err)"; fi
same folder_gone_same_bytes
blocks=64 # not even the result
rm out.onnx out.jsonl
refuses no_room 1 "out.onnx: cannot be written" limited $distill -o out.onnx --log out.jsonl
finish
