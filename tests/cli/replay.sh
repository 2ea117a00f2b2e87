#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Recipes: what --recipe and --json wrote runs again to the same bytes; another recipe, or one that is none, is said.
name=replay
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
cp "$zoo/cnn.onnx" net.onnx
mkdir again
train="--data $data/train.h5 --samples 64"

# again NAME PRODUCT COMMAND...: the command, its recipe and its facts give the same bytes
again() {
    case_=$1 product_=$2
    shift 2
    "$@" -q --recipe r.yaml --json r.json >.test.out 2>.test.err || {
        fail "$case_" "$(tail -1 .test.err)"
        return
    }
    for from_ in r.yaml r.json; do
        rm -rf again && mkdir again
        "$pare" replay $from_ --to again -q >.test.out 2>.test.err || {
            fail "$case_" "$from_: $(tail -1 .test.err)"
            return
        }
        cmp -s "$product_" "again/$product_" && has "again/$product_: the same" .test.out || {
            fail "$case_" "$from_: other bytes"
            return
        }
    done
    pass "$case_"
}

again quantize net.int8.onnx "$pare" quantize net.onnx $train -o net.int8.onnx --activations u8 --skip op:Gemm --skip '/0/*'
again quantize_w4a16 net.w4.onnx "$pare" quantize net.onnx $train -o net.w4.onnx --precision w4a16
again calibrate ranges.json "$pare" calibrate net.onnx $train -o ranges.json
again calibrate_cache calib.cache "$pare" calibrate net.onnx $train -o calib.cache --method minmax
again quantize_ranges q.onnx "$pare" quantize net.onnx --ranges ranges.json -o q.onnx --method entropy
again prune half.onnx "$pare" prune net.onnx $train --macs 0.5 -o half.onnx
again distill tuned.onnx "$pare" distill --teacher net.onnx --student half.onnx $train --batch 16 --steps 2 -o tuned.onnx
again simplify simple.onnx "$pare" simplify net.onnx -o simple.onnx

"$pare" quantize -q net.onnx $train -o net.int8.onnx --recipe r.yaml >.test.out
has '"method": "auto"' r.yaml && pass defaults_are_said || fail defaults_are_said "$(tr '\n' ' ' <r.yaml)"
"$pare" replay -q r.yaml >.test.out 2>.test.err && has 'net.int8.onnx: the same' .test.out && pass in_place ||
    fail in_place "$(tail -1 .test.err)"
printf 'command: quantize\narguments: [net.onnx]\noptions: {precision: fp16, output: own.onnx}\n' >own.yaml
works written_by_hand "$pare" replay -q own.yaml

# an older default is kept
sed 's/"method": "auto"/"method": "minmax"/' r.yaml >old.yaml
"$pare" replay -q old.yaml --to again >.test.out 2>.test.err
"$pare" quantize -q net.onnx $train -o minmax.onnx --method minmax >/dev/null
cmp -s minmax.onnx again/net.int8.onnx && pass older_default || fail older_default "other bytes"
refuses other_bytes 1 "old.yaml|1 of 1 files|same model" "$pare" replay -q old.yaml --to again
sed 's/^pare: .*/pare: "0.0.1"/' old.yaml >version.yaml
refuses other_version 1 "version.yaml|written by pare 0.0.1" "$pare" replay -q version.yaml --to again

# --- what is none ---
bad() {
    case_=$1 want_=$2 text_=$3
    printf "$text_" >bad.yaml
    refuses "$case_" 1 "$want_" "$pare" replay -q bad.yaml
}
bad unknown_key "bad.yaml:2|what|no key of a recipe" 'command: quantize\nwhat: 1\n'
bad unknown_option "bad.yaml:3|metod|no option of pare quantize" 'command: quantize\noptions:\n  metod: auto\n'
bad unknown_command "bad.yaml:1|quantise" 'command: quantise\n'
bad no_command "bad.yaml:1|command|missing" 'arguments: []\n'
bad no_map "bad.yaml:1|expected keys and values" '[1, 2]\n'
bad no_value "bad.yaml:3|precision|expected a value" 'command: quantize\noptions:\n  precision: [int8]\n'
bad no_switch "bad.yaml:3|external-data|true or false" 'command: quantize\noptions:\n  external-data: perhaps\n'
bad itself "bad.yaml:1|another command than replay" 'command: replay\narguments: [bad.yaml]\n'
bad no_yaml "bad.yaml:2|no YAML" '{a: [\n'
bad wrong_value "bad.yaml|quantize|--precision" 'command: quantize\narguments: [net.onnx]\noptions:\n  precision: int9\n  output: x.onnx\n'
refuses no_file 1 "nowhere.yaml" "$pare" replay -q nowhere.yaml
printf '{"schema": 1}' >none.json
refuses facts_without_run 1 "none.json|holds no run" "$pare" replay -q none.json
works makes_the_folder "$pare" replay -q r.yaml --to elsewhere
[ -s elsewhere/net.int8.onnx ] && pass in_that_folder || fail in_that_folder "elsewhere is empty"
refuses folder_is_a_file 1 "none.json" "$pare" replay -q r.yaml --to none.json
refuses recipe_is_an_input 1 "net.onnx|same file" "$pare" quantize -q net.onnx $train -o q.onnx --recipe net.onnx
finish
