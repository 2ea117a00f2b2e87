#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a runtime takes: refusals of quantize, findings and repairs of check, warnings that are few.
name=targets
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
few="--data $data/train.h5 --samples 512 --mixed-precision 0"
mlp="$zoo/mlp.onnx"

# --- what quantize refuses, and its defaults ---
# shellcheck disable=SC2086 # words
{
    refuses w4a8_tensorrt 2 "w4a8: TensorRT takes INT4|--target onnxruntime|w4a16" "$pare" quantize "$mlp" -o no.onnx --precision w4a8 --target tensorrt $few
    refuses u8_tensorrt 2 "TensorRT takes no u8|--activations s8|openvino" "$pare" quantize "$mlp" -o no.onnx --activations u8 --target tensorrt $few
    refuses qat_u8_tensorrt 2 "TensorRT takes no u8" "$pare" distill --teacher "$mlp" --student "$mlp" -o no.onnx --data "$data/train.h5" --qat int8 --activations u8 --target tensorrt
    refuses unknown_target 2 "--target" "$pare" check "$mlp" --target tpu
    works w4a8 "$pare" quantize "$mlp" -o w4a8.onnx --precision w4a8 --rounding nearest $few
    works s8 "$pare" quantize "$mlp" -o s8.onnx --target onnxruntime $few
    works u8 "$pare" quantize "$mlp" -o u8.onnx --activations u8 $few
    works openvino "$pare" quantize "$mlp" -o openvino.onnx --target openvino --json openvino.json $few
    refuses fp8_openvino 2 "fp8: OpenVINO gives other numbers|--target tensorrt" "$pare" quantize "$mlp" -o no.onnx --precision fp8 --target openvino $few
    refuses fp8_method 2 "--method entropy|minmax or percentile" "$pare" quantize "$mlp" -o no.onnx --precision fp8 --method entropy $few
    refuses fp8_activations 2 "--activations|in fp8" "$pare" quantize "$mlp" -o no.onnx --precision fp8 --activations u8 $few
    refuses fp8_rounding 2 "--rounding|in fp8" "$pare" quantize "$mlp" -o no.onnx --precision fp8 --rounding gptq $few
    refuses fp8_nearest 2 "--rounding|in fp8" "$pare" quantize "$mlp" -o no.onnx --precision fp8 --rounding nearest $few
    refuses fp8_mse 2 "--method mse|minmax or percentile" "$pare" quantize "$mlp" -o no.onnx --precision fp8 --method mse $few
    works fp8_auto "$pare" quantize "$mlp" -o fp8.auto.onnx --precision fp8 --method auto $few
    refuses fp8_prefer 2 "--prefer|in fp8" "$pare" quantize "$mlp" -o no.onnx --precision fp8 --prefer latency $few
    works fp8_fp16 "$pare" quantize "$mlp" -o fp8.fp16.onnx --precision fp8 --float-precision fp16 $few
    works fp8_mixed "$pare" quantize "$mlp" -o fp8.mixed.onnx --precision fp8 --mixed-precision 2 --data "$data/train.h5" --samples 512
    works fp8_max_drop "$pare" quantize "$mlp" -o fp8.drop.onnx --precision fp8 --max-drop 5 --validation "$data/test.h5" $few
    refuses fp8_onnxruntime 2 "fp8: ONNX Runtime gives other numbers|--target tensorrt" "$pare" quantize "$mlp" -o no.onnx --precision fp8 --target onnxruntime $few
    works fp8 "$pare" quantize "$mlp" -o fp8.onnx --precision fp8 $few
    works fp8_tensorrt "$pare" check fp8.onnx --target tensorrt
}
if [ ! -s .test.err ] || ! has warning .test.err; then pass no_warnings; else fail no_warnings "$(cat .test.err)"; fi
for made in "w4a8 w4a8 activations=s8 target=onnxruntime" "fp8 fp8 activations=e4m3 target=tensorrt" "openvino int8 activations=u8 target=openvino"; do
    file=${made%% *}
    if grep -aqF "${made#* }" "$file.onnx"; then pass "recipe_$file"; else fail "recipe_$file" "no '${made#* }' in it"; fi
done
works diagnose_fp8 "$pare" diagnose "$mlp" fp8.onnx --data "$data/test.h5" --samples 32
if has "not looked at: FP8" .test.err; then pass diagnose_names_fp8; else fail diagnose_names_fp8 "$(cat .test.err)"; fi

works fp8_ranges "$pare" inspect fp8.onnx --ranges
says fp8_ranges_named "float8e4m3fn"
works fp8_again "$pare" quantize "$mlp" -o fp8.again.onnx --precision fp8 --ranges fp8.onnx
refuses relu_onnxruntime 1 "fp8.onnx: |things that ONNX Runtime does not take" "$pare" check fp8.onnx --target onnxruntime
says relu_named "fp8.onnx: relu: node '"
works relu_fix "$pare" check fp8.onnx --target onnxruntime --fix fp8.fixed.onnx

# --- what check finds ---
refuses needs_target 2 "--fix needs --target" "$pare" check s8.onnx --fix fixed.onnx
works own_target "$pare" check u8.onnx --target onnxruntime
says own_note "note: u8.onnx: saturation: node '"
says own_good "u8.onnx: no problems"
works s8_openvino "$pare" check s8.onnx --target openvino
refuses u8_found 1 "u8.onnx: |things that TensorRT does not take" "$pare" check u8.onnx --target tensorrt
says u8_type "u8.onnx: activation-type: node '/0/Flatten_output_0_QuantizeLinear'"
says u8_bias "u8.onnx: s32-bias: node '"
"$pare" check w4a8.onnx --target tensorrt --json w4a8.json >.test.out 2>.test.err
[ $? = 1 ] && has '"rule": "int4"' w4a8.json && has '"verdict": "refused"' w4a8.json && pass facts_of_findings || fail facts_of_findings "$(cat .test.err)"

# --- what --fix changes ---
works fix "$pare" check s8.onnx --target tensorrt --fix fixed.onnx
says fix_says "fixed.onnx: 3 tensors changed, 0 problems remain"
works fixed "$pare" check fixed.onnx --target tensorrt
works compare "$pare" validate -q s8.onnx fixed.onnx --data "$data/test.h5" --samples 256 --any-accuracy --json v.json
db=$(sed -n 's/.*"sqnr_db": \([0-9]*\).*/\1/p' v.json | tail -1)
if [ "${db:-0}" -gt 120 ]; then pass fix_keeps_outputs; else fail fix_keeps_outputs "SQNR $db dB"; fi
"$pare" check u8.onnx --target tensorrt --fix rest.onnx >.test.out 2>.test.err
[ $? = 1 ] && has "rest.onnx: zero-point: node '" .test.out && ! has "rest.onnx: s32-bias" .test.out && pass remains || fail remains "$(tail -2 .test.out)"

# --- warnings: a handful, the rest counted ---
if command -v protoc >/dev/null 2>&1; then
    nodes=
    for i in 1 2 3 4 5 6 7; do
        nodes="$nodes node { op_type: \"Add\" name: \"add$i\" input: \"x$i\" input: \"tiny\" output: \"x$((i + 1))\" }"
    done
    tensor='type { tensor_type { elem_type: 1 shape { dim { dim_value: 4 } } } }'
    printf '%s\n' "ir_version: 8 opset_import { domain: \"\" version: 17 } graph { name: \"g\" $nodes
        initializer { name: \"tiny\" data_type: 1 float_data: 1e-9 }
        input { name: \"x1\" $tensor } output { name: \"x8\" $tensor } }" | onnx_of tiny
    works tiny "$pare" quantize tiny.onnx -o tiny.fp16.onnx --precision fp16 --json tiny.json
    [ "$(grep -c "^warning: f16-underflow: node 'add" .test.err)" = 5 ] && has "2 more such warnings" .test.err &&
        pass handful || fail handful "$(cat .test.err)"
    [ "$(grep -c f16-underflow tiny.json)" = 7 ] && pass all_in_facts || fail all_in_facts "$(grep -c f16-underflow tiny.json) of 7"
else
    skip warnings "protoc is not installed"
fi
finish
