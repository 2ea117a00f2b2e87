#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An INT8 model is trained: from a float student and from a quantized one, and what is refused.
name=distill_qat
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
train="--data $data/train.h5 --samples 3000 --batch 32"
mlp="$pare distill --quiet --teacher $zoo/mlp.onnx"
cnn="$pare distill --quiet --teacher $zoo/cnn.onnx --student $zoo/cnn.onnx"
"$pare" prune -q "$zoo/mlp.onnx" -o half.onnx --macs 0.5 >/dev/null || exit 1
same() { if cmp -s "$2" "$3"; then pass "$1"; else fail "$1" "$2 and $3 differ"; fi; }

# the held-out loss of a command's facts, before ($1 = before) or after
loss() { awk -v part="\"$1\"" '$0 ~ part { inside = 1 } inside && /"loss"/ { gsub(/[",]/, ""); print $2; exit }' "$2"; }
# not_worse NAME FACTS: the loss after is the loss before at most
not_worse() {
    if awk -v b="$(loss before "$2")" -v a="$(loss after "$2")" 'BEGIN { exit !(b != "" && a + 0 <= b + 0) }'; then
        pass "$1"
    else
        fail "$1" "held-out loss $(loss before "$2") before, $(loss after "$2") after"
    fi
}

# --- from a float student ---
works s8 $mlp --student half.onnx $train --qat int8 -o s8.onnx --steps 24 --lr 3e-4 --json s8.json --log s8.jsonl
says s8_name s8.onnx
not_worse s8_not_worse s8.json
works s8_one_thread $mlp --student half.onnx $train --qat int8 -o one.onnx --steps 24 --lr 3e-4 --threads 1 --log one.jsonl
same same_bytes s8.onnx one.onnx
same same_log s8.jsonl one.jsonl
works s8_valid "$pare" check s8.onnx
if [ "$(loss after s8.json)" != "$(loss before s8.json)" ]; then pass s8_trained; else fail s8_trained "24 steps changed nothing"; fi
works inspect "$pare" inspect s8.onnx
says inspect_int8 int8
works runs "$pare" validate -q "$zoo/mlp.onnx" s8.onnx --data "$data/test.h5" --samples 200
works bench "$pare" bench -q s8.onnx --iterations 3 --duration 0 --warmup 0
for part in 'int8 activations=s8' 'distill loss=' 'qat=int8' pare.ranges_hash pare.data_hash pare.source_hash; do
    if grep -aqF -e "$part" s8.onnx; then pass "manifest_$(echo "$part" | tr -c 'a-z0-9\n' _)"; else fail manifest "'$part' is missing"; fi
done
works cnn_u8 $cnn $train --qat int8 --activations u8 --method minmax --qat-samples 64 -o u8.onnx --steps 4 --json u8.json
not_worse cnn_u8_not_worse u8.json
if grep -q '"scales": "learned"' u8.json && grep -q '"samples": 64' u8.json; then pass u8_facts; else fail u8_facts "$(grep -A12 '"qat"' u8.json | tr '\n' ' ')"; fi
if grep -aqF 'int8 activations=u8 target=onnxruntime weights=channel method=minmax' u8.onnx; then pass u8_recipe; else fail u8_recipe "no such recipe in u8.onnx"; fi
# No gradient of a pair is left to the plain kernels, whatever is in memory how.
"$pare" distill --verbose --teacher "$zoo/cnn.onnx" --student "$zoo/cnn.onnx" $train --qat int8 --range 0:200 --steps 1 -o x.onnx >.test.out 2>.test.err
if has dense_fake_quantize_grad_f32 .test.err && ! has ref_fake_quantize .test.err; then pass kernels; else fail kernels "$(grep -m1 ref_fake_quantize .test.err)"; fi
rm -f x.onnx
works part $mlp --student "$zoo/mlp.onnx" $train --qat int8 --skip /1/Gemm --weights tensor --bias-correction none -o part.onnx --steps 2
works sparse "$pare" prune -q "$zoo/mlp.onnx" -o sparse.onnx --sparsity 0.5
works sparse_trains $mlp --student sparse.onnx $train --qat int8 -o sparse8.onnx --steps 4
if [ -s sparse8.onnx ]; then pass sparse_file; else fail sparse_file "no file"; fi

# Nothing learnt, nothing changed: the file of pare quantize but for its manifest.
works untrained $mlp --student "$zoo/mlp.onnx" $train --qat int8 --range 0:3000 -o still.onnx --steps 1 --lr 0
works quantized "$pare" quantize -q "$zoo/mlp.onnx" -o q.onnx --data "$data/train.h5" --range 0:3000
if [ "$("$pare" validate -q q.onnx still.onnx --data "$data/test.h5" --samples 100 --any-accuracy --json v.json >/dev/null; grep -c '"max_abs_error": 0.0' v.json)" = 1 ]; then
    pass untrained_same
else
    fail untrained_same "the outputs differ: $(grep max_abs_error v.json)"
fi

# A training that continued is the one that nothing stopped: the student is quantized again, the same.
works kept $mlp --student half.onnx $train --qat int8 -o first.onnx --steps 24 --lr 3e-4 --log s8.jsonl --checkpoint kept --patience 1 --validate-every 2
works resumed $mlp --student half.onnx $train --qat int8 -o resumed.onnx --steps 24 --lr 3e-4 --log s8.jsonl --checkpoint kept --patience 1 --validate-every 2 --resume
same resumed_same first.onnx resumed.onnx
refuses resumed_other 1 'kept' $mlp --student half.onnx $train --qat int8 --activations u8 -o x.onnx --steps 24 --lr 3e-4 --log s8.jsonl --checkpoint kept --patience 1 --validate-every 2 --resume

# --- from a quantized one ---
works from_s8 $mlp --student q.onnx $train --qat int8 -o again.onnx --steps 8 --json again.json
not_worse from_s8_not_worse again.json
if grep -q '"student": "int8"' again.json; then pass from_s8_facts; else fail from_s8_facts "$(grep '"student"' again.json)"; fi
works from_trained $mlp --student s8.onnx $train --qat int8 --qat-scales fixed -o more.onnx --steps 2
works sparse8 "$pare" quantize -q sparse.onnx -o sparse.q.onnx --data "$data/train.h5" --samples 200
"$pare" distill --teacher "$zoo/mlp.onnx" --student sparse.q.onnx $train --qat int8 -o zeros.onnx --steps 2 >.test.out 2>.test.err
if has 'zeros keep' .test.err; then pass zeros_warned; else fail zeros_warned "$(cat .test.err)"; fi
works zeros_kept $mlp --student sparse.q.onnx $train --qat int8 --zeros keep -o kept.onnx --steps 2

# --- what is refused ---
refuses no_qat 1 'q.onnx|--qat int8' $mlp --student q.onnx $train -o x.onnx
refuses no_qat_scales 2 '--qat-scales|without --qat' $mlp --student "$zoo/mlp.onnx" $train -o x.onnx --qat-scales learned
refuses no_qat_activations 2 '--activations|without --qat' $mlp --student "$zoo/mlp.onnx" $train -o x.onnx --activations u8
refuses calibrated_again 2 '--activations|quantized' $mlp --student q.onnx $train --qat int8 --activations u8 -o x.onnx
refuses method 2 'method' $mlp --student "$zoo/mlp.onnx" $train --qat int8 --method best -o x.onnx
refuses pattern 2 '/9/Gemm' $mlp --student "$zoo/mlp.onnx" $train --qat int8 --skip /9/Gemm -o x.onnx
refuses bf16 2 '--qat|--precision' $mlp --student "$zoo/mlp.onnx" $train --qat int8 --precision bf16 -o x.onnx
refuses fp16 2 '--qat|--precision' $mlp --student "$zoo/mlp.onnx" $train --qat int8 --precision fp16 -o x.onnx
refuses words 2 'int4' $mlp --student "$zoo/mlp.onnx" $train --qat int4 -o x.onnx
refuses nothing_left 1 'mlp.onnx' $mlp --student "$zoo/mlp.onnx" $train --qat int8 --skip 'op:Gemm' -o x.onnx
"$pare" quantize -q "$zoo/mlp.onnx" -o fp16.onnx --precision fp16 >/dev/null
refuses halves 1 'fp16.onnx' $mlp --student fp16.onnx $train --qat int8 -o x.onnx
finish
