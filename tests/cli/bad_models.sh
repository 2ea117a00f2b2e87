#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models that cannot be read or run: one message each that names what is wrong and where.
name=bad_models
. "$(dirname "$0")/_lib.sh"
command -v protoc >/dev/null 2>&1 || {
    skip all "protoc is not installed"
    exit 0
}
bench="$pare bench --quiet --no-tune --warmup 0 --duration 0 --iterations 1"

# --- not ONNX ---
refuses missing_file 1 "none.onnx" "$pare" inspect none.onnx
: >empty.onnx
refuses empty_file 1 "empty.onnx" "$pare" inspect empty.onnx
printf 'hello, this is no model at all\n' >text.onnx
refuses text_file 1 "text.onnx" "$pare" inspect text.onnx
head -c 65536 "$pare" >program.onnx
refuses program_file 1 "program.onnx" "$pare" inspect program.onnx
awk 'BEGIN { x = 12345; for (i = 0; i < 4096; i++) { x = (x * 1103515245 + 12345) % 2147483648; printf "%c", int(x / 65536) % 256 } }' >random.onnx
refuses random_bytes 1 "random.onnx" "$pare" inspect random.onnx
mkdir folder.onnx
refuses folder 1 "folder.onnx" "$pare" inspect folder.onnx
rmdir folder.onnx

# --- cut at 50 places ---
size=$(wc -c <"$zoo/mlp.onnx")
wrong=
for i in $(seq 0 49); do
    at=$((size * i / 50))
    head -c $at "$zoo/mlp.onnx" >cut.onnx
    "$pare" inspect cut.onnx >.test.out 2>.test.err
    [ $? = 1 ] && [ "$(wc -l <.test.err)" = 1 ] && has cut.onnx .test.err || wrong="$wrong $at"
done
if [ -z "$wrong" ]; then pass cut_at_50_places; else fail cut_at_50_places "cut at$wrong bytes"; fi
rm -f cut.onnx

# --- models with one fault each ---
tensor='type { tensor_type { elem_type: 1 shape { dim { dim_param: "n" } dim { dim_value: 4 } } } }'
ends="input { name: \"x\" $tensor } output { name: \"y\" $tensor }"
model() { # NAME OPSET GRAPH
    printf '%s\n' "ir_version: 8 opset_import { domain: \"\" version: $2 } graph { name: \"g\" $3 }" | onnx_of "$1"
}

model operator 17 "node { op_type: \"Frobnicate\" name: \"odd\" input: \"x\" output: \"y\" } $ends"
refuses unknown_operator 1 "operator.onnx|node 'odd' (Frobnicate)" $bench operator.onnx

model domain 17 "node { op_type: \"Relu\" domain: \"com.other\" name: \"far\" input: \"x\" output: \"y\" } $ends"
refuses unknown_domain 1 "domain.onnx|node 'far'|com.other" $bench domain.onnx

model opset 999 "node { op_type: \"Mod\" name: \"r\" input: \"x\" input: \"x\" output: \"y\" } $ends"
refuses unknown_opset 1 "opset.onnx|999" $bench opset.onnx

model type 17 "node { op_type: \"Relu\" name: \"r\" input: \"x\" output: \"y\" }
    input { name: \"x\" type { tensor_type { elem_type: 77 shape { dim { dim_value: 4 } } } } } output { name: \"y\" }"
refuses unknown_type 1 "type.onnx|'x'" $bench type.onnx

model undefined 17 "node { op_type: \"Relu\" name: \"r\" input: \"nowhere\" output: \"y\" } $ends"
refuses missing_name 1 "undefined.onnx|node 'r' (Relu)|nowhere" $bench undefined.onnx

model twice 17 "node { op_type: \"Relu\" name: \"a\" input: \"x\" output: \"y\" }
    node { op_type: \"Sigmoid\" name: \"b\" input: \"x\" output: \"y\" } $ends"
refuses duplicate_name 1 "twice.onnx|'y'" "$pare" inspect twice.onnx

model cycle 17 "node { op_type: \"Add\" name: \"a\" input: \"x\" input: \"q\" output: \"p\" }
    node { op_type: \"Relu\" name: \"b\" input: \"p\" output: \"q\" }
    node { op_type: \"Relu\" name: \"c\" input: \"p\" output: \"y\" } $ends"
refuses cycle 1 "cycle.onnx|node '" $bench cycle.onnx

model size 17 "node { op_type: \"Add\" name: \"a\" input: \"x\" input: \"w\" output: \"y\" }
    initializer { name: \"w\" data_type: 1 dims: 4 raw_data: \"\\000\\000\\000\\000\" } $ends"
refuses initializer_size 1 "size.onnx|'w'" "$pare" inspect size.onnx

model overflow 17 "node { op_type: \"Add\" name: \"a\" input: \"x\" input: \"w\" output: \"y\" }
    initializer { name: \"w\" data_type: 1 dims: 4611686018427387904 dims: 8 raw_data: \"\\000\\000\\000\\000\" } $ends"
refuses dims_overflow 1 "overflow.onnx|'w'" "$pare" inspect overflow.onnx

model negative 17 "node { op_type: \"Add\" name: \"a\" input: \"x\" input: \"w\" output: \"y\" }
    initializer { name: \"w\" data_type: 1 dims: -4 raw_data: \"\" } $ends"
refuses dims_negative 1 "negative.onnx|'w'" "$pare" inspect negative.onnx

model shapes 17 "node { op_type: \"Gemm\" name: \"fc\" input: \"x\" input: \"w\" output: \"y\" }
    initializer { name: \"w\" data_type: 1 dims: 3 dims: 2 float_data: 1 float_data: 2 float_data: 3
    float_data: 4 float_data: 5 float_data: 6 } $ends"
refuses shapes_disagree 1 "shapes.onnx|node 'fc' (Gemm)" $bench shapes.onnx

model silent 17 "node { op_type: \"Relu\" name: \"r\" input: \"x\" output: \"q\" } input { name: \"x\" $tensor }"
refuses no_outputs 1 "silent.onnx|no outputs" $bench silent.onnx
refuses no_outputs_checked 1 "silent.onnx: 1 problem" "$pare" check silent.onnx

model nan 17 "node { op_type: \"MatMul\" name: \"fc\" input: \"x\" input: \"w\" output: \"y\" }
    initializer { name: \"w\" data_type: 1 dims: 4 dims: 4 float_data: 1 float_data: nan float_data: 3
    float_data: 4 float_data: 1 float_data: 2 float_data: 3 float_data: 4 float_data: 1 float_data: 2
    float_data: 3 float_data: 4 float_data: 1 float_data: 2 float_data: 3 float_data: 4 } $ends"
head -c 64 /dev/zero | npy_of zeros.npy '<f4' '(4, 4)'
"$pare" data import -q --npy zeros.npy --name x -o zeros.h5 >/dev/null
works check_nan "$pare" check nan.onnx
says check_names_nan "warning: nan.onnx: tensor 'w' holds 1 NaN and 0 infinite values, the first at element 1"
refuses nan_weight 1 "nan.onnx|tensor 'w'|nan" "$pare" quantize -q nan.onnx --data zeros.h5 -o nan.q.onnx

model allnan 17 "node { op_type: \"Mul\" name: \"m\" input: \"x\" input: \"s\" output: \"h\" }
    node { op_type: \"MatMul\" name: \"fc\" input: \"h\" input: \"w\" output: \"y\" }
    initializer { name: \"s\" data_type: 1 float_data: nan }
    initializer { name: \"w\" data_type: 1 dims: 4 dims: 4 float_data: 1 float_data: 2 float_data: 3
    float_data: 4 float_data: 1 float_data: 2 float_data: 3 float_data: 4 float_data: 1 float_data: 2
    float_data: 3 float_data: 4 float_data: 1 float_data: 2 float_data: 3 float_data: 4 } $ends"
refuses nan_everywhere 1 "allnan.onnx: tensor 'h'|NaN|pare check" "$pare" quantize -q allnan.onnx --data zeros.h5 -o nan.q.onnx

# --- external data ---
external() { # NAME LOCATION
    model "$1" 17 "node { op_type: \"Add\" name: \"a\" input: \"x\" input: \"w\" output: \"y\" }
    initializer { name: \"w\" data_type: 1 dims: 4 data_location: 1 external_data { key: \"location\" value: \"$2\" } } $ends"
}
mkdir -p inside && head -c 16 /dev/zero >outside.bin && head -c 4 /dev/zero >short.bin
external outside ../outside.bin && mv outside.onnx inside/
refuses external_outside 1 "inside/outside.onnx|'w'|../outside.bin" "$pare" inspect inside/outside.onnx
external absolute "$work/outside.bin"
refuses external_absolute 1 "absolute.onnx|'w'" "$pare" inspect absolute.onnx
ln -s ../outside.bin inside/link.bin
external link link.bin && mv link.onnx inside/
refuses external_symlink 1 "inside/link.onnx|'w'|link.bin" "$pare" inspect inside/link.onnx
external gone gone.bin
refuses external_missing 1 "gone.onnx|'w'|gone.bin" "$pare" inspect gone.onnx
external short short.bin
refuses external_short 1 "short.onnx|'w'|short.bin" "$pare" inspect short.onnx

# --- 3 GB of external data, sparse: looked at without being read ---
model big 17 "node { op_type: \"Add\" name: \"a\" input: \"x\" input: \"w\" output: \"y\" }
    initializer { name: \"w\" data_type: 1 dims: 201326592 dims: 4 data_location: 1
    external_data { key: \"location\" value: \"big.bin\" } } $ends"
if truncate -s 3221225472 big.bin 2>.test.err; then
    works inspect_3gb "$pare" inspect big.onnx
    says inspect_3gb_size "3.2 GB"
    rm -f big.bin
else
    skip inspect_3gb "$(cat .test.err)"
fi

# --- names with escape sequences, an invalid byte, a line end and a mark that turns text around ---
evil='e\033[31m\377\n\342\200\256'
model escapes 17 "node { op_type: \"Relu\" name: \"$evil\" input: \"x\" output: \"$evil\" }
    node { op_type: \"Frob$evil\" name: \"$evil\" input: \"$evil\" output: \"y\" } $ends"
shown='e\x1B[31m\xFF\n\xE2\x80\xAE'
wrong=
for command in "inspect --nodes" check "inspect --groups" quantize; do
    "$pare" $command escapes.onnx --json escapes.json >.test.out 2>&1
    tr -d '\012\040-\176' <.test.out | wc -c | grep -qx ' *0' || wrong="$wrong '$command' prints control characters;"
    [ "$command" = quantize ] || has "$shown" .test.out || wrong="$wrong '$command' does not show the name;"
done
if [ -z "$wrong" ]; then pass names_are_escaped; else fail names_are_escaped "$wrong"; fi
rm -f escapes.json

# --- a file whose name is not UTF-8: results name it escaped, and lose nothing ---
odd=$(printf 'odd\377.onnx')
cp "$zoo/mlp.onnx" "$odd"
wrong=
for command in "quantize --precision fp16 -o $odd.fp16" "inspect" "check" "bench --duration 0.01 --warmup 0"; do
    # shellcheck disable=SC2086 # words of a command
    "$pare" $command "$odd" --json odd.json >.test.out 2>&1 || wrong="$wrong '$command' fails;"
    grep -q '"model"' odd.json && grep -qF 'odd\\xFF.onnx' odd.json || wrong="$wrong '$command' leaves the name out;"
done
if [ -z "$wrong" ]; then pass file_name_of_any_bytes; else fail file_name_of_any_bytes "$wrong"; fi
rm -f "$odd" "$odd.fp16" odd.json

# --- check lists all problems at once ---
model many 17 "node { op_type: \"Frobnicate\" name: \"odd\" input: \"x\" output: \"p\" }
    node { op_type: \"Relu\" domain: \"com.other\" name: \"far\" input: \"p\" output: \"q\" }
    node { op_type: \"Gemm\" name: \"fc\" input: \"x\" input: \"w\" output: \"r\" }
    node { op_type: \"Relu\" name: \"last\" input: \"q\" output: \"y\" }
    initializer { name: \"w\" data_type: 1 dims: 3 dims: 2 float_data: 1 float_data: 2 float_data: 3
    float_data: 4 float_data: 5 float_data: 6 } $ends"
refuses check_counts 1 "many.onnx: 4 problems" "$pare" check many.onnx
says check_names_first "node 'odd' (Frobnicate)"
says check_names_second "node 'far' (Relu)"
says check_names_third "node 'fc' (Gemm)"
works check_good "$pare" check "$zoo/mlp.onnx"
finish
