#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Outputs that cannot be written: refused before the work; nothing is overwritten or left behind.
name=bad_outputs
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
cp "$zoo/mlp.onnx" m.onnx
mkdir folder
quantize="$pare quantize --quiet m.onnx --precision fp16"

refuses equal_to_input 1 "m.onnx|same file" $quantize -o m.onnx
ln -s m.onnx alias.onnx
refuses equal_by_link 1 "alias.onnx|same file" $quantize -o alias.onnx
refuses equal_to_data 1 "same file" "$pare" quantize -q m.onnx --data "$data/test.h5" -o "$data/test.h5"
mkdir pair && "$pare" quantize -q m.onnx --precision fp16 --external-data -o pair/h.onnx >/dev/null
refuses equal_to_external_data 1 "pair/h.onnx.data|same file" "$pare" quantize -q pair/h.onnx \
    --precision bf16 -o pair/h.onnx.data
cp m.onnx pair/k.onnx.data
refuses external_data_equal_to_input 1 "pair/k.onnx.data|same file" "$pare" quantize -q pair/k.onnx.data \
    --precision fp16 --external-data -o pair/k.onnx
refuses json_equal_to_input 1 "m.onnx|same file" "$pare" inspect m.onnx --json m.onnx
ln -s "$data/test.h5" test.h5
refuses json_equal_to_data 1 "--json|--data|same file" "$pare" validate -q m.onnx --data test.h5 --samples 9 \
    --any-accuracy --json test.h5
refuses report_equal_to_json 1 "--report|--json|same file" "$pare" validate -q m.onnx --data test.h5 \
    --report both --json both
refuses trace_equal_to_profile 1 "same file" "$pare" bench -q m.onnx --profile one.json --trace one.json
refuses is_a_folder 1 "folder|is a folder" $quantize -o folder
refuses no_such_folder 1 "nowhere/out.onnx|'nowhere' does not exist" $quantize -o nowhere/out.onnx
refuses not_writable 1 "/proc/out.onnx" $quantize -o /proc/out.onnx
refuses run_into_file 1 "m.onnx|expected a folder" "$pare" run m.onnx --input input=x.npy -o m.onnx
refuses validate_report_on_model 1 "same file" "$pare" validate m.onnx --data "$data/test.h5" --report m.onnx
refuses bench_profile_folder 1 "folder" "$pare" bench m.onnx --profile folder
refuses needs_output 2 "-o OUT" "$pare" quantize m.onnx --precision fp16
refuses needs_data 2 "--data|--ranges" "$pare" quantize m.onnx -o q.onnx
refuses data_and_ranges 2 "exclude" "$pare" quantize m.onnx -o q.onnx --data a.h5 --ranges b.json

# --- the disk is full ---
printf 'old content' >old.onnx
limited() { (ulimit -f 8 && exec "$@"); }
refuses full_disk 1 "old.onnx" limited $quantize -o old.onnx
refuses full_disk_data 1 "out.h5" limited "$pare" run -q m.onnx --data "$data/test.h5" -o out.h5
if [ -w /dev/full ]; then
    to_full() { "$@" >/dev/full; }
    refuses full_standard_output 1 "standard output" to_full "$pare" ops
fi
[ "$(cat old.onnx)" = "old content" ] && pass old_file_stays || fail old_file_stays "$(wc -c <old.onnx) bytes"
finish
