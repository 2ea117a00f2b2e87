#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# quantize --prefer latency: what it says, what it keeps and reads again, what it refuses. Times are not judged.
name=prefer
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
cp "$zoo/mlp.onnx" net.onnx
train="--data $data/train.h5 --samples 64"

# places NAME OPTION...: exit status 0 or 3, as the facts have it; the model runs
places() {
    case_=$1
    shift
    "$pare" quantize net.onnx -o "$case_.onnx" --prefer latency --threads 1 --json "$case_.json" "$@" >.test.out 2>.test.err
    rc=$?
    facts_of "$case_.json" >.test.facts
    cp .test.err .test.said
    met=3
    grep -q '"met": true' .test.facts && met=0
    if [ $rc = $met ] && has "model's time" .test.err && "$pare" validate net.onnx "$case_.onnx" --data "$data/test.h5" --samples 32 -q >.test.out 2>&1; then
        pass "$case_"
    else
        fail "$case_" "status $rc, $(tail -2 .test.err | tr '\n' ' ')"
    fi
}

# times that other work disturbed are not kept, and then another choice may be made
places data $train --cache kept
cp data.onnx first.onnx
stable=$(grep -c '"stable": true' data.json)
places data $train --cache kept
if [ "$stable" = 1 ] && grep -q '"stable": true' data.json; then
    cmp -s first.onnx data.onnx && pass the_same_again || fail the_same_again "other bytes with the same table"
else
    skip the_same_again "other work disturbed the times"
fi
[ -s kept/placement.json ] && pass table || fail table "no placement.json"
head -c 50 kept/placement.json >cut && mv cut kept/placement.json
places cut_table $train --cache kept
has 'placement.json' .test.err || "$pare" quantize net.onnx -q -o x.onnx $train --prefer latency --cache kept >/dev/null 2>&1
grep -q '"machines"' kept/placement.json && pass table_again || fail table_again "$(head -c 80 kept/placement.json)"
sed 's/"processor [^"]*"/"another machine"/' kept/placement.json >other && mv other kept/placement.json
places other_machine $train --cache kept
grep -q '"another machine"' kept/placement.json && grep -q '"processor ' kept/placement.json && pass both_machines ||
    fail both_machines "$(head -c 80 kept/placement.json)"
"$pare" calibrate -q net.onnx $train -o ranges.json >/dev/null
places from_ranges --ranges ranges.json --shapes input:4x1x28x28
places with_max_drop $train --max-drop 5
has 'points' .test.err || grep -q '"max_drop"' with_max_drop.json && pass both_aims || fail both_aims "no drop"
places w4a8 $train --precision w4a8 --target onnxruntime
"$pare" quantize -q net.onnx $train -o size.onnx >/dev/null
"$pare" quantize -q net.onnx $train -o size2.onnx --prefer size >/dev/null
cmp -s size.onnx size2.onnx && pass size_is_the_default || fail size_is_the_default "other bytes"

# --- of a GPU that is not there: the same on every machine, and at each call ---
for again in "" _again; do
    places "predicted$again" $train --predict h200 --shapes input:1024x1x28x28
    has 'predicted for h200: ' .test.said && pass "predicted_said$again" || fail "predicted_said$again" "$(cat .test.said)"
done
cmp -s predicted.onnx predicted_again.onnx && pass predicted_same || fail predicted_same "other bytes"
grep -q '"predicted_for": "h200"' predicted.json && pass predicted_facts || fail predicted_facts "no predicted_for"
cp "$zoo/vit.onnx" vit.onnx # attention is one step in FP16, and both products of it leave INT8 for that
"$pare" quantize vit.onnx $train -q -o vit.int8.onnx --mixed-precision 0 --prefer latency --predict h200 \
    --shapes input:1024x1x28x28 --json vit.json >.test.out 2>.test.err
"$pare" inspect vit.int8.onnx --device h200 --batch 1024 >.test.out 2>&1
[ "$(grep -c 'FusedAttention .*attention_flash' .test.out)" = 5 ] && pass predicted_attention ||
    fail predicted_attention "$(grep -c FusedAttention .test.out) of 5 are one step"

# slower_rows NAME MODEL COUNT: so many products of it are predicted to be slower in INT8 than in FP16, and it has others
slower_rows() {
    "$pare" inspect "$2" --device h200 --batch 1024 --json rows.json >.test.out 2>&1
    rows=$(grep -c '"slower_than_fp16": true' rows.json)
    [ "$rows" = "$3" ] && has '"slower_than_fp16": false' rows.json && pass "$1" ||
        fail "$1" "$rows products are slower in INT8, expected $3: $(grep '<$' .test.out | head -3)"
}
"$pare" quantize vit.onnx -q $train -o vit.all.onnx 2>.test.err
slower_rows vit_all_int8 vit.all.onnx 32
slower_rows vit_predicted vit.int8.onnx 0
"$pare" quantize "$zoo/resnet.onnx" -q $train -o resnet.onnx --prefer latency --predict h200 --shapes input:1024x1x28x28 2>.test.err
slower_rows resnet_predicted resnet.onnx 0

# --- what it refuses ---
refuses predict_alone 2 "--predict|--prefer latency" "$pare" quantize net.onnx $train -o x.onnx --predict h200
refuses predict_unknown 2 "'h300'|h200, h100" "$pare" quantize -q net.onnx $train -o x.onnx --prefer latency --predict h300
refuses fp16 2 "--prefer|fp16" "$pare" quantize net.onnx $train -o x.onnx --precision fp16 --prefer latency
refuses shapes_alone 2 "--shapes|--prefer latency" "$pare" quantize net.onnx $train -o x.onnx --shapes input:4x1x28x28
refuses word 2 "--prefer|size|latency|speed" "$pare" quantize net.onnx $train -o x.onnx --prefer speed
refuses no_input 1 "image|input" "$pare" quantize -q net.onnx $train -o x.onnx --prefer latency --shapes image:4x1x28x28
refuses wrong_shape 1 "--shapes|net.onnx|[4,3,28,28]" "$pare" quantize -q net.onnx $train -o x.onnx --prefer latency --shapes input:4x3x28x28
echo "no data" >bad.h5
refuses wrong_shape_first 1 "--shapes|net.onnx|[4,3,28,28]" "$pare" quantize -q net.onnx --data bad.h5 -o x.onnx --prefer latency --shapes input:4x3x28x28
finish
