#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Interrupted and killed commands leave the old file or the new one, never a part, and nothing beside it.
name=signals
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0

# stopped NAME SIGNAL COMMAND...: the signal ends it with exit status 1 and its message; no file changes.
# again=1: it comes twice at once, as from timeout(1)
stopped() {
    case_=$1 signal_=$2
    shift 2
    before_=$(listing)
    "$@" >.test.out 2>.test.err &
    sleep 0.4
    kill "-$signal_" $! ${again:+$!} 2>/dev/null
    wait $!
    got_=$?
    if [ $got_ = 1 ] && has interrupted .test.err && [ "$(grep -c '^pare: ' .test.err)" = 1 ] &&
        [ "$before_" = "$(listing)" ]; then
        pass "$case_"
    else
        fail "$case_" "exit $got_: $(tail -1 .test.err); files: $(find . -type f ! -name '.test.*' | tr '\n' ' ')"
    fi
}

printf 'old content' >old.json
printf 'old content' >old.onnx
long="--samples 60000 --data $data/train.h5"
stopped sigint_calibrate INT "$pare" calibrate "$zoo/resnet.onnx" $long -o old.json
stopped sigterm_calibrate TERM "$pare" calibrate "$zoo/resnet.onnx" $long -o new.json
case $(awk '/^SigIgn:/ { print $2 }' /proc/self/status) in
*[13579bdf]) skip sighup_calibrate "SIGHUP is ignored here (nohup), and then the program ignores it" ;;
*) stopped sighup_calibrate HUP "$pare" calibrate "$zoo/resnet.onnx" $long -o new.json ;;
esac
again=1
for i in 1 2 3; do stopped "sigterm_twice_$i" TERM "$pare" calibrate "$zoo/resnet.onnx" $long -o new.json; done
again=
stopped sigint_quantize INT "$pare" quantize "$zoo/resnet.onnx" $long -o old.onnx
stopped sigint_prune INT "$pare" prune "$zoo/resnet.onnx" $long --macs 0.5 -o old.onnx
stopped sigint_prune_weights INT "$pare" prune "$zoo/resnet.onnx" $long --sparsity 0.5 -o old.onnx --report r.html
stopped sigint_validate INT "$pare" validate "$zoo/resnet.onnx" --data "$data/train.h5" --report r.html --json r.json
stopped sigint_run INT "$pare" run "$zoo/resnet.onnx" --data "$data/train.h5" -o out.h5
"$pare" quantize -q "$zoo/vit.onnx" --data "$data/test.h5" --samples 16 --mixed-precision 0 -o .test.int8.onnx >.test.out
stopped sigint_diagnose INT "$pare" diagnose "$zoo/vit.onnx" .test.int8.onnx --data "$data/test.h5" --fix old.onnx --report r.html
stopped sigint_bench INT "$pare" bench "$zoo/mlp.onnx" --duration 60 --json b.json

# --- SIGKILL at many moments of a quantization ---
"$pare" quantize -q "$zoo/cnn.onnx" --precision fp16 -o whole.onnx >/dev/null
wrong=
seen_old=0
for i in $(seq 1 25); do
    printf 'old content' >target.onnx
    "$pare" quantize -q "$zoo/cnn.onnx" --precision fp16 -o target.onnx >/dev/null 2>&1 &
    sleep "0.0$(printf '%02d' $((i * 2)))"
    kill -KILL $! 2>/dev/null
    wait $! 2>/dev/null
    if cmp -s target.onnx whole.onnx; then :; elif [ "$(cat target.onnx)" = "old content" ]; then
        seen_old=1
    else
        wrong="$wrong $i"
    fi
done
if [ -z "$wrong" ]; then pass sigkill_leaves_old_or_new; else fail sigkill_leaves_old_or_new "kills$wrong"; fi
# a kill in the moment of renaming leaves a whole file beside the target; the next write takes it away
"$pare" quantize -q "$zoo/cnn.onnx" --precision fp16 -o target.onnx >/dev/null
[ $seen_old = 1 ] && pass sigkill_came_before_the_end || fail sigkill_came_before_the_end "every run had ended"

# --- SIGKILL while model and data are written: the model always finds its own data ---
mkdir old new two
pair() { "$pare" quantize -q "$zoo/$1.onnx" --precision fp16 --external-data -o "$2/m.onnx" >/dev/null 2>&1; }
pair mlp old
pair cnn new
whole() { # FOLDER: its model is in two/, with its data
    for file in "$1"/*; do cmp -s "$file" "two/${file#*/}" || return 1; done
}
wrong=
seen=
for i in $(seq 1 25); do
    rm -f two/*
    cp old/* two/
    "$pare" quantize -q "$zoo/cnn.onnx" --precision fp16 --external-data -o two/m.onnx >/dev/null 2>&1 &
    sleep "0.0$(printf '%02d' $((i * 2)))"
    kill -KILL $! 2>/dev/null
    wait $! 2>/dev/null
    if whole old; then seen="$seen old"; elif whole new; then seen="$seen new"; else wrong="$wrong $i"; fi
done
if [ -z "$wrong" ]; then pass sigkill_leaves_a_pair; else fail sigkill_leaves_a_pair "kills$wrong"; fi
case $seen in *old*) pass sigkill_came_before_the_pair ;; *) fail sigkill_came_before_the_pair "every run had ended" ;; esac
rm -f two/*
cp old/* two/
pair cnn two
[ "$(ls two)" = "$(ls new)" ] && whole new && pass pair_is_replaced || fail pair_is_replaced "$(ls two | tr '\n' ' ')"
rm -rf old new two
rest=$(find . -type f ! -name '.test.*' | sort | tr '\n' ' ')
if [ "$rest" = "./old.json ./old.onnx ./target.onnx ./whole.onnx " ]; then
    pass nothing_left_behind
else
    fail nothing_left_behind "$rest"
fi
finish
