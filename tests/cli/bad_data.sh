#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Data that cannot be used: one message each that names the file, the dataset and the cure.
name=bad_data
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
run="$pare validate --quiet $zoo/mlp.onnx --data"
import="$pare data import --quiet"

# zeros BYTES, images of 4 samples for the sample nets: f32 (4, 1, 28, 28)
zeros() { head -c "$1" /dev/zero; }
zeros 12544 | npy_of ok.npy '<f4' '(4, 1, 28, 28)'
zeros 32 | npy_of labels.npy '<i8' '(4,)'
$import -o ok.h5 --npy ok.npy labels.npy >/dev/null
works good_file "$pare" run --quiet "$zoo/mlp.onnx" --data ok.h5 -o ok_out.h5

# --- files ---
refuses missing_file 1 "none.h5" $run none.h5
: >empty.h5
refuses empty_file 1 "empty.h5" $run empty.h5
head -c 3000 ok.h5 >cut.h5
refuses cut_file 1 "cut.h5" $run cut.h5
head -c 4000000 "$data/test.h5" >cut2.h5
refuses cut_chunks 1 "cut2.h5" $run cut2.h5
refuses model_as_data 1 "mlp.onnx" $run "$zoo/mlp.onnx"
refuses data_as_model 1 "ok.h5" "$pare" inspect ok.h5

cp "$top/tests/cli/hostile.h5" hostile.h5
$run hostile.h5 >.test.out 2>.test.err # libhdf5 1.10.8 dies of it, other releases may not
if [ $? -gt 1 ] || { [ -s .test.err ] && ! has hostile.h5 .test.err; }; then
    fail hostile_metadata "$(tail -1 .test.err)"
else
    pass hostile_metadata
fi

# --- names ---
$import -o other.h5 --npy ok.npy --name other >/dev/null
works the_only_dataset_serves "$pare" run --quiet "$zoo/mlp.onnx" --data other.h5 -o other_out.h5
works import_into_group $import -o group.h5 --npy ok.npy --name gpu_0/data_0
works map_into_group "$pare" run --quiet "$zoo/mlp.onnx" --data group.h5 --map input=/gpu_0/data_0 -o group_out.h5
refuses only_in_a_group 1 "group.h5|none outside of groups|--map" $run group.h5
refuses map_wrong_dataset 1 "ok.h5|/nowhere" $run ok.h5 --map input=/nowhere
refuses map_wrong_input 1 "mlp.onnx|nobody|'input'" $run ok.h5 --map nobody=/input
refuses map_malformed 2 "--map" $run ok.h5 --map input

# --- rank, dims, type, count ---
zeros 12544 | npy_of rank.npy '<f4' '(4, 784)'
$import -o rank.h5 --npy rank.npy >/dev/null
refuses wrong_rank 1 "rank.h5|/input" $run rank.h5
zeros 10800 | npy_of dims.npy '<f4' '(4, 3, 15, 15)'
$import -o dims.h5 --npy dims.npy >/dev/null
refuses wrong_dims 1 "dims.h5|/input" $run dims.h5
zeros 16 | npy_of float_labels.npy '<f4' '(4,)'
refuses wrong_label_type 1 "float_labels.npy" $import -o type.h5 --npy ok.npy float_labels.npy
zeros 50176 | npy_of complex.npy '<c8' '(4, 1, 28, 28)'
refuses wrong_type 1 "complex.npy" $import -o type.h5 --npy complex.npy
zeros 25088 | npy_of int64.npy '<i8' '(4, 1, 28, 28)'
$import -o int64.h5 --npy int64.npy >/dev/null
refuses integers_for_floats 1 "int64.h5|/input|has type s64|takes f32|float32" $run int64.h5
refuses no_rows_in_tensor 1 "vit.onnx|'input'|0 samples" "$pare" bench -q "$zoo/vit.onnx" --shapes input:0x1x28x28
zeros 12544 | npy_of turned.npy '<f4' '(4, 28, 28, 1)'
refuses wrong_dims_of_tensor 1 "turned.npy|[4,28,28,1]|'input'|mlp.onnx|[batch,1,28,28]" \
    "$pare" run -q "$zoo/mlp.onnx" input=turned.npy -o outs
: | npy_of rows.npy '<f4' '(0, 1, 28, 28)'
refuses no_rows_in_run 1 "vit.onnx|'input'|[0,1,28,28]: 0 samples" "$pare" run -q "$zoo/vit.onnx" input=rows.npy -o outs
zeros 24 | npy_of three.npy '<i8' '(3,)'
refuses label_count_import 1 "three.npy" $import -o three.h5 --npy ok.npy three.npy
refuses range_outside 1 "ok.h5|--range 2:9" $run ok.h5 --range 2:9
refuses range_malformed 2 "--range" $run ok.h5 --range 2-3

# --- values ---
{ zeros 24; printf '\143\000\000\000\000\000\000\000'; } | npy_of wrong_labels.npy '<i8' '(4,)'
$import -o wrong_labels.h5 --npy ok.npy wrong_labels.npy >/dev/null
refuses label_out_of_range 1 "wrong_labels.h5|/labels|99|0 to 9" $run wrong_labels.h5
{ zeros 7000; printf '\000\000\300\177'; zeros 5540; } | npy_of nan.npy '<f4' '(4, 1, 28, 28)'
$import -o nan.h5 --npy nan.npy >/dev/null
refuses nan_inside 1 "nan.h5|/input" $run nan.h5
{ zeros 7000; printf '\000\000\200\177'; zeros 5540; } | npy_of inf.npy '<f4' '(4, 1, 28, 28)'
$import -o inf.h5 --npy inf.npy >/dev/null
refuses inf_inside 1 "inf.h5|/input" $run inf.h5
cp "$data/test.h5" damaged.h5
printf 'damage damage damage damage' | dd of=damaged.h5 bs=1 seek=2000000 conv=notrunc 2>/dev/null
refuses damaged_chunk 1 "damaged.h5|/input" $run damaged.h5
rm -f damaged.h5 cut2.h5

# --- 0 samples ---
: | npy_of none.npy '<f4' '(0, 1, 28, 28)'
if $import -o none.h5 --npy none.npy >/dev/null 2>.test.err; then
    refuses no_samples_in_file 1 "none.h5|0 samples" $run none.h5
elif has none.npy .test.err; then
    pass no_samples_in_file
else
    fail no_samples_in_file "$(cat .test.err)"
fi
refuses no_samples_asked_for 1 "0 samples" $run ok.h5 --samples 0
refuses no_samples_in_range 1 "0 samples" $run ok.h5 --range 2:2

# --- accuracy near chance: a model fed what it was not trained on ---
zeros 784000 | npy_of many.npy '|u1' '(1000, 1, 28, 28)'
awk 'BEGIN { for (i = 0; i < 1000; i++) printf "%c%c%c%c%c%c%c%c", i % 10, 0, 0, 0, 0, 0, 0, 0 }' |
    npy_of many_labels.npy '<i8' '(1000,)'
$import -o many.h5 --npy many.npy many_labels.npy >/dev/null
refuses near_chance 1 "mlp.onnx|top-1 is|preprocessing|many.h5" $run many.h5
works near_chance_on_purpose $run many.h5 --any-accuracy

# --- importers ---
printf 'no numpy' >text.npy
refuses import_not_npy 1 "text.npy" $import -o x.h5 --npy text.npy
zeros 100 | npy_of cut.npy '<f4' '(4, 1, 28, 28)'
refuses import_cut_npy 1 "cut.npy" $import -o x.h5 --npy cut.npy
refuses import_not_idx 1 "text.npy" $import -o x.h5 --idx text.npy text.npy
mkdir -p photos/cats && printf 'no picture' >photos/cats/a.png
refuses import_broken_image 1 "photos/cats/a.png" $import -o x.h5 --images photos
mkdir -p nothing
refuses import_empty_folder 1 "nothing" $import -o x.h5 --images nothing
refuses import_two_ways 2 "--images" $import -o x.h5 --images photos --npy ok.npy
refuses import_resize_of_npy 2 "--resize does nothing with --npy" $import -o x.h5 --npy ok.npy --resize 14
refuses import_crop_of_idx 2 "--crop does nothing with --idx" $import -o x.h5 --idx text.npy text.npy --crop 14
refuses import_mean_of_floats 2 "ok.npy|--mean and --std apply to uint8" $import -o x.h5 --npy ok.npy --mean 0.5
refuses import_layout_of_rows 2 "rank.npy|--layout nhwc" $import -o x.h5 --npy rank.npy --layout nhwc
refuses import_as_labels 2 "--name 'labels'" $import -o x.h5 --npy ok.npy --name labels
refuses import_bad_mean 2 "--mean" $import -o x.h5 --npy ok.npy --mean 1,zwei
finish
