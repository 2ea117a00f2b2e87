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
held=$(ls pair/h.onnx.????????.data)
refuses equal_to_external_data 1 "$held|same file" "$pare" quantize -q pair/h.onnx --precision bf16 -o "$held"
refuses json_equal_to_external_data 1 "$held|same file" "$pare" inspect pair/h.onnx --json "$held"
refuses report_equal_to_external_data 1 "$held|same file" "$pare" validate -q m.onnx pair/h.onnx \
    --data "$data/test.h5" --report "$held"
ln -s pair/h.onnx linked.onnx
refuses external_data_of_a_link 1 "linked.onnx|link" "$pare" quantize -q m.onnx --precision fp16 --external-data -o linked.onnx
works new_data "$pare" quantize -q "$zoo/cnn.onnx" --precision fp16 --external-data -o pair/h.onnx
[ "$(ls pair | wc -l)" = 2 ] && [ ! -e "$held" ] && "$pare" check pair/h.onnx >/dev/null &&
    pass old_data_are_removed || fail old_data_are_removed "$(ls pair | tr '\n' ' ')"
refuses json_equal_to_input 1 "m.onnx|same file" "$pare" inspect m.onnx --json m.onnx
ln -s "$data/test.h5" test.h5
refuses json_equal_to_data 1 "--json|--data|same file" "$pare" validate -q m.onnx --data test.h5 --samples 9 \
    --any-accuracy --json test.h5
refuses report_equal_to_json 1 "--report|--json|same file" "$pare" validate -q m.onnx --data test.h5 \
    --report both --json both
refuses trace_equal_to_profile 1 "same file" "$pare" bench -q m.onnx --profile one.json --trace one.json
head -c 3136 /dev/zero | npy_of x.npy '<f4' '(1, 1, 28, 28)'
mkdir outs && cp x.npy outs/logits.npy
refuses run_over_its_input 1 "outs/logits.npy|same file" "$pare" run -q m.onnx input=outs/logits.npy -o outs
works run_over_old_outputs "$pare" run -q m.onnx input=x.npy -o outs
"$pare" calibrate -q m.onnx --data "$data/train.h5" --samples 100 -o ranges.json >/dev/null
refuses ranges_are_an_input 1 "ranges.json" "$pare" quantize -q m.onnx --ranges ranges.json -o ranges.json
refuses merge_over_an_input 1 "ranges.json|same file" "$pare" calibrate -q --merge ranges.json ranges.json -o ranges.json
mkdir -p photos/a && printf 'no picture' >photos/a/1.png
refuses import_over_a_picture 1 "photos/a/1.png" "$pare" data import -q --images photos -o photos/a/1.png
refuses is_a_folder 1 "folder|is a folder" $quantize -o folder
refuses no_such_folder 1 "nowhere/out.onnx|'nowhere' does not exist" $quantize -o nowhere/out.onnx
refuses not_writable 1 "/proc/out.onnx" $quantize -o /proc/out.onnx
refuses run_into_file 1 "m.onnx|expected a folder" "$pare" run m.onnx --input input=x.npy -o m.onnx
refuses validate_report_on_model 1 "same file" "$pare" validate m.onnx --data "$data/test.h5" --report m.onnx
refuses bench_profile_folder 1 "folder" "$pare" bench m.onnx --profile folder
refuses needs_output 2 "-o OUT" "$pare" quantize m.onnx --precision fp16
refuses needs_data 2 "--data|--ranges" "$pare" quantize m.onnx -o q.onnx
refuses data_and_ranges 2 "exclude" "$pare" quantize m.onnx -o q.onnx --data a.h5 --ranges b.json

# --- links, devices, names ---
ln -s later.onnx dangling.onnx
works link_to_nothing $quantize -o dangling.onnx
[ -L dangling.onnx ] && [ -s later.onnx ] && pass link_stays || fail link_stays "$(ls -l dangling.onnx)"
refuses link_loop 1 "loop" sh -c 'ln -s loop loop; "$@"' sh $quantize -o loop
refuses device 1 "/dev/null|a device or pipe" $quantize -o /dev/null
refuses device_with_data 1 "/dev/null|a device or pipe" $quantize --external-data -o /dev/null
newline=$(printf 'two\nlines.onnx')
refuses newline_in_name 1 "two\\nlines.onnx" "$pare" inspect "$newline"

# --- two processes write the same model ---
mkdir race
wrong=
for i in 1 2 3 4 5 6 7 8; do
    for net in mlp cnn mlp; do
        "$pare" quantize -q "$zoo/$net.onnx" --precision fp16 --external-data -o race/m.onnx >/dev/null 2>&1 &
    done
    wait
    "$pare" check race/m.onnx >/dev/null 2>&1 || wrong="$wrong $i"
    [ "$(ls race | wc -l)" = 2 ] || wrong="$wrong $i:$(ls race | tr '\n' ,)"
done
if [ -z "$wrong" ]; then pass one_of_two_writers_wins; else fail one_of_two_writers_wins "$wrong"; fi
rm -rf race

# --- the disk is full ---
printf 'old content' >old.onnx
limited() { (ulimit -f 8 && exec "$@"); }
refuses full_disk 1 "old.onnx" limited $quantize -o old.onnx
refuses full_disk_data 1 "out.h5" limited "$pare" run -q m.onnx --data "$data/test.h5" -o out.h5
if [ -w /dev/full ]; then
    to_full() { "$@" >/dev/full; }
    "$pare" quantize -q m.onnx --precision fp16 -o made.onnx --json /dev/full >.test.out 2>.test.err
    got=$?
    if [ $got = 1 ] && grep -q '^pare: /dev/full: .*; made.onnx is written$' .test.err && [ -f made.onnx ]; then pass facts_on_full_disk; else fail facts_on_full_disk "exit $got: $(cat .test.err)"; fi
    rm -f made.onnx
    refuses help_to_full_disk 1 "standard output" to_full "$pare" --help
    refuses command_help_to_full_disk 1 "standard output" to_full "$pare" quantize --help
    refuses full_standard_output 1 "standard output" to_full "$pare" ops
fi
[ "$(cat old.onnx)" = "old content" ] && pass old_file_stays || fail old_file_stays "$(wc -c <old.onnx) bytes"
finish
