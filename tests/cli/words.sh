#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands on real models and data: words, files and exit statuses that scripts rely on.
name=words
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
mlp=$zoo/mlp.onnx

# --- help, versions, mistakes ---
works overview "$pare" --help
for command in data inspect check calibrate quantize prune run validate bench report serve load ops doctor version; do
    says "overview_$command" "  $command"
done
wrong=
for command in "data fashion-mnist" "data import" inspect check simplify calibrate quantize prune distill run validate diagnose bench report zoo serve load scale replay ops doctor version completion; do
    # shellcheck disable=SC2086 # two words
    "$pare" $command --help >.test.out 2>.test.err && has "example:" .test.out && has "usage: pare $command" .test.out &&
        has "--json" .test.out && has "--device" .test.out && [ ! -s .test.err ] || wrong="$wrong $command"
done
if [ -z "$wrong" ]; then pass every_help; else fail every_help "$wrong"; fi
works group_help "$pare" data --help
says group_help_lists "data import"
for command in load serve "data import"; do
    # shellcheck disable=SC2086 # two words
    "$pare" help $command >.test.help 2>.test.err && "$pare" $command --help >.test.out && cmp -s .test.help .test.out && has "usage: pare $command" .test.help &&
        pass "help_of_${command% *}" || fail "help_of_${command% *}" "$(head -2 .test.help .test.err)"
done
works help_of_group "$pare" help data
says help_of_group_lists "data import"
refuses help_of_none 2 "no command 'valdate'|validate" "$pare" help valdate
{ "$pare" --help && "$pare" data --help && "$pare" quantize --help && "$pare" ops --help; } >.test.out 2>&1
if grep -q ' $' .test.out; then fail help_ends_lines "$(grep -m1 ' $' .test.out)"; else pass help_ends_lines; fi
refuses no_command 2 "no command 'valdate'|validate" "$pare" valdate
refuses no_option 2 "did you mean --samples" "$pare" calibrate "$mlp" --sampels 3
refuses bad_choice 2 "int8|fp16|bf16" "$pare" quantize "$mlp" -o q.onnx --precision int3
refuses no_argument 2 "usage: pare inspect MODEL" "$pare" inspect
refuses cuda 1 "--device cuda:999|cpu" "$pare" bench "$mlp" --device cuda:999
works device_cpu "$pare" version --device cpu
"$pare" completion bash >completion.bash
if ! command -v bash >/dev/null 2>&1; then
    skip completion "bash is not installed"
elif bash -c 'source completion.bash; COMP_WORDS=(pare quantize --precision b); COMP_CWORD=3; _pare
    [ "${COMPREPLY[*]}" = bf16 ] || exit 1
    COMP_WORDS=(pare cal); COMP_CWORD=1; _pare; [ "${COMPREPLY[*]}" = calibrate ] || exit 2
    COMP_WORDS=(pare data import --lay); COMP_CWORD=3; _pare; [ "${COMPREPLY[*]}" = --layout ]'; then
    pass completion
else
    fail completion "exit $?"
fi

# --- memory is said before the work, and is about what the work takes ---
"$pare" calibrate "$zoo/resnet.onnx" --data "$data/train.h5" -o said.json --json said.facts >.test.out 2>.test.err
has "needs about " .test.err && pass memory_is_said || fail memory_is_said "$(cat .test.err)"
said=$(sed -n 's/.*"planned_memory_bytes": \([0-9]*\).*/\1/p' said.facts)
peak=$(sed -n 's/.*"peak_memory_bytes": \([0-9]*\).*/\1/p' said.facts)
[ "${said:-0}" -lt $((peak * 13 / 10)) ] && [ $((${said:-0} * 13 / 10)) -gt "$peak" ] && pass memory_said_is_near ||
    fail memory_said_is_near "said $said, took $peak"

# --- values that are none ---
mkfifo pipe
refuses empty_argument 2 "argument 1 is empty" "$pare" inspect ""
refuses empty_value 2 "--shapes was given nothing" "$pare" bench "$mlp" --shapes ""
refuses shape_ends_in_x 2 "--shapes input:1x1x28x28x" "$pare" bench "$mlp" --shapes input:1x1x28x28x
refuses shape_too_large 2 "--shapes input:99999999999999999999x1" "$pare" bench "$mlp" --shapes input:99999999999999999999x1
refuses shape_twice 2 "given twice" "$pare" bench "$mlp" --shapes input:1x1x28x28,input:2x1x28x28
refuses range_of_three 2 "--range 1:2:3: expected A:B" "$pare" run "$mlp" --data "$data/test.h5" --range 1:2:3 -o r.h5
for command in "inspect pipe" "quantize pipe --precision fp16 -o q.onnx" "run $mlp --data pipe -o r.h5" \
    "run $mlp input=pipe -o out" "data import --npy pipe -o r.h5" "data import --idx pipe pipe -o r.h5" \
    "calibrate --merge pipe pipe -o c.json" "quantize $mlp --ranges pipe -o q.onnx" "report pipe"; do
    # shellcheck disable=SC2086 # words
    refuses "pipe_$(echo "$command" | tr -c 'a-z\n' _ | cut -c1-24)" 1 "pipe: is not" timeout 20 "$pare" $command
done

# --- the flow ---
works calibrate "$pare" calibrate -q "$mlp" --data "$data/train.h5" -o ranges.json
[ "$(cat .test.out)" = ranges.json ] && pass data_on_standard_output || fail data_on_standard_output "$(cat .test.out)"
[ ! -s .test.err ] && pass quiet || fail quiet "$(cat .test.err)"
works quantize_ranges "$pare" quantize -q "$mlp" -o a.onnx --ranges ranges.json
works quantize_data "$pare" quantize -q "$mlp" -o b.onnx --data "$data/train.h5" --mixed-precision 0 --bias-correction fast
cmp -s a.onnx b.onnx && pass same_file_either_way || fail same_file_either_way "ranges and data give different files"
works fp16 "$pare" quantize -q "$mlp" -o h.onnx --precision fp16
refuses unused_method 2 "--method does nothing in fp16" "$pare" quantize "$mlp" -o h2.onnx --precision fp16 --method mse
refuses unused_io 2 "--io does nothing in bf16 without --bf16-compute" "$pare" quantize "$mlp" -o h2.onnx \
    --precision bf16 --io same
refuses unused_io_int8 2 "--io does nothing in int8" "$pare" quantize "$mlp" -o h2.onnx --ranges ranges.json --io same
refuses unused_samples 2 "--samples does nothing without --data" "$pare" quantize "$mlp" -o h2.onnx \
    --ranges ranges.json --samples 9
refuses unused_in_merge 2 "--data does nothing with --merge" "$pare" calibrate --merge ranges.json ranges.json \
    --data "$data/test.h5" -o h2.json
refuses unused_batch_in_run 2 "--batch does nothing without --data" "$pare" run "$mlp" input=x.npy -o h2 --batch 2
refuses unused_reference 2 "--reference does nothing with --data" "$pare" run "$mlp" --data "$data/test.h5" -o h2.h5 --reference
works bf16 "$pare" quantize -q "$mlp" -o g.onnx --precision bf16
works u8 "$pare" quantize -q "$mlp" -o u.onnx --ranges ranges.json --activations u8
works check_result "$pare" check a.onnx
refuses outputs_alone 2 "--outputs only says something with --groups" "$pare" inspect "$mlp" --outputs
refuses groups_of_int8 1 "a.onnx|prune the float model first" "$pare" inspect a.onnx --groups
works groups "$pare" inspect "$mlp" --groups
says groups_named "from /1/Gemm"
says groups_why "is an output of the model"
works inspect_result "$pare" inspect a.onnx
says inspect_says_int8 "int8"
works validate "$pare" validate -q "$mlp" a.onnx --data "$data/test.h5" --samples 2000 --report report.html
says validate_table "McNemar p"
for part in '<!DOCTYPE html>' '</html>' '<svg' 'prefers-color-scheme:dark' 'width=device-width'; do
    has "$part" report.html || fail report_html "'$part' is missing"
done
works validate_picture "$pare" validate -q "$mlp" a.onnx --data "$data/test.h5" --samples 100 --report picture.svg
if grep -q '^<svg ' picture.svg && has '</svg>' picture.svg && has '>a.onnx</text>' picture.svg; then
    pass picture_alone
else
    fail picture_alone "$(head -c 300 picture.svg)"
fi
grep -vE '^ \* |^!function' report.html | grep -qE '(src|href)=|@import|url\(' && fail report_alone "it fetches something" || pass report_alone
works bench "$pare" bench -q a.onnx --duration 0.1 --shapes input:4x1x28x28 --percentile 50,99.9 --json bench.json \
    --profile profile.json --trace trace.json --no-tune
says bench_percentile "p99.9"
has '"traceEvents"' trace.json && pass trace || fail trace "no events"
has '"kernel"' profile.json && pass profile || fail profile "no kernels"
works append_bench "$pare" bench -q a.onnx --duration 0.05 --append results.csv
works append_validate "$pare" validate -q "$mlp" a.onnx --data "$data/test.h5" --samples 40 --any-accuracy --append results.csv
[ "$(cut -d , -f 1 results.csv | tr '\n' ' ')" = "pare_results_1 bench validate validate " ] && pass append_rows || fail append_rows "$(cat results.csv)"
echo 'net,top1' >other.csv
refuses append_other_columns 1 "other.csv|line 1|pare_results_1" "$pare" bench a.onnx --duration 9 --append other.csv
refuses append_to_input 1 "a.onnx|same file" "$pare" bench a.onnx --append a.onnx
works bench_cache "$pare" bench -q a.onnx --duration 0.1 --cache timings
[ -f timings/timing.json ] && pass cache_is_kept || fail cache_is_kept "no timings/timing.json"
refuses bench_unknown_input 1 "has no input 'in'|'input'" "$pare" bench a.onnx --shapes in:1x1x28x28
refuses bench_bad_shape 2 "--shapes" "$pare" bench a.onnx --shapes input:1xx28
refuses bench_shape_contradicts 1 "a.onnx|input" "$pare" bench a.onnx --shapes input:1x3x28x28

# --- ranges: order and batch do not show; halves add up; another model's are refused ---
calibrate="$pare calibrate -q $mlp --data $data/train.h5 --range 0:600 --samples 600"
$calibrate -o all.json >/dev/null
works shuffled $calibrate --shuffle 7 --batch 7 --threads 1 --trace runs.json -o shuffled.json
[ "$(grep -o '"observe"' runs.json | wc -l)" = 80 ] && pass trace_of_runs || fail trace_of_runs "$(head -c 200 runs.json)"
refuses trace_of_nothing 2 "--trace|without --data" "$pare" quantize "$mlp" -o x.onnx --precision fp16 --trace runs.json
cmp -s all.json shuffled.json && pass shuffled_is_equal || fail shuffled_is_equal "the tables differ"
"$pare" calibrate -q "$mlp" --data "$data/train.h5" --range 0:300 --samples 600 -o first.json >/dev/null
"$pare" calibrate -q "$mlp" --data "$data/train.h5" --range 300:600 --samples 600 -o second.json >/dev/null
works merge "$pare" calibrate -q --merge first.json second.json -o merged.json
cmp -s all.json merged.json && pass merged_halves_are_equal || fail merged_halves_are_equal "the tables differ"
refuses merge_one 2 "at least two tables" "$pare" calibrate --merge first.json -o x.json
refuses ranges_of_another_model 1 "ranges.json|another model" "$pare" quantize "$zoo/cnn.onnx" -o x.onnx --ranges ranges.json
head -c 500 ranges.json >cut.json
refuses ranges_cut 1 "cut.json" "$pare" quantize "$mlp" -o x.onnx --ranges cut.json
refuses ranges_no_table 1 "bench.json" "$pare" quantize "$mlp" -o x.onnx --ranges bench.json
refuses no_samples 1 "0 samples" "$pare" calibrate "$mlp" --data "$data/train.h5" -o x.json --samples 0
refuses bad_method 2 "method|minmax" "$pare" quantize "$mlp" -o x.onnx --ranges ranges.json --method maxmin
refuses pattern_matches_nothing 2 "nomatch*" "$pare" quantize "$mlp" -o x.onnx --ranges ranges.json --skip 'nomatch*'
works skip_by_type "$pare" quantize -q "$mlp" -o skipped.onnx --ranges ranges.json --skip op:Gemm --precision fp16
refuses report_of_no_facts 1 "ranges.json: schema is missing" "$pare" report ranges.json -o r.html

# --- run: tensors in and out ---
head -c 6272 /dev/zero | npy_of x.npy '<f4' '(2, 1, 28, 28)'
works run "$pare" run -q "$mlp" --input input=x.npy -o out
[ -f out/logits.npy ] && pass run_names_outputs || fail run_names_outputs "$(ls out)"
works run_positional "$pare" run -q "$mlp" input=x.npy -o out2
cmp -s out/logits.npy out2/logits.npy && pass run_is_repeatable || fail run_is_repeatable "outputs differ"
: | npy_of x0.npy '<f4' '(0, 1, 28, 28)'
works run_zero_samples "$pare" run -q --threads 1 a.onnx --input input=x0.npy -o out0
has "'shape': (0, 10)" out0/logits.npy && pass zero_samples_out || fail zero_samples_out "$(head -c 80 out0/logits.npy)"
works run_expected "$pare" run -q "$mlp" --data "$data/test.h5" --samples 500 -o expected.h5
"$pare" run -v "$mlp" --data "$data/test.h5" --samples 500 -o closed.h5 <&- >&- 2>&-
cmp -s expected.h5 closed.h5 && pass closed_descriptors || fail closed_descriptors "words went into the file"
refuses run_missing_input 1 "mlp.onnx|'input' is missing|--input input=" "$pare" run "$mlp" -o out3
refuses run_wrong_name 1 "has no input 'data'" "$pare" run "$mlp" --input data=x.npy -o out3
refuses run_twice 2 "twice" "$pare" run "$mlp" input=x.npy input=x.npy -o out3
head -c 8 /dev/zero | npy_of i.npy '<i8' '(1,)'
refuses run_wrong_type 1 "i.npy|int64|float" "$pare" run "$mlp" input=i.npy -o out3
head -c 12 /dev/zero | npy_of s.npy '<f4' '(1, 3)'
refuses run_wrong_shape 1 "mlp.onnx|'input'" "$pare" run "$mlp" input=s.npy -o out3
[ ! -e out3 ] && pass no_folder_left || fail no_folder_left "out3 was made"

# --- output names that are no file names ---
if command -v protoc >/dev/null 2>&1; then
    tensor='type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } dim { dim_value: 1 } dim { dim_value: 28 } dim { dim_value: 28 } } } }'
    printf '%s\n' "ir_version: 8 opset_import { domain: \"\" version: 17 } graph { name: \"g\"
        node { op_type: \"Relu\" input: \"x\" output: \"a/b\" } node { op_type: \"Sigmoid\" input: \"x\" output: \"a:b\" }
        input { name: \"x\" $tensor } output { name: \"a/b\" $tensor } output { name: \"a:b\" $tensor } }" | onnx_of names
    works odd_names "$pare" run -q names.onnx x=x.npy -o odd
    [ "$(ls odd | tr '\n' ' ')" = "a_b.npy a_b_1.npy " ] && pass odd_names_are_numbered ||
        fail odd_names_are_numbered "$(ls odd | tr '\n' ' ')"

    # a model with a fixed batch runs ten samples in pieces of four, the last one filled up
    relu() { # NAME BATCH-DIM
        tensor="type { tensor_type { elem_type: 1 shape { dim { $2 } dim { dim_value: 1 } dim { dim_value: 28 } dim { dim_value: 28 } } } }"
        printf '%s\n' "ir_version: 8 opset_import { domain: \"\" version: 17 } graph { name: \"g\"
            node { op_type: \"Relu\" input: \"x\" output: \"y\" }
            input { name: \"x\" $tensor } output { name: \"y\" $tensor } }" | onnx_of "$1"
    }
    relu fixed 'dim_value: 4'
    relu free 'dim_param: "n"'
    works fixed_batch "$pare" validate -q fixed.onnx free.onnx --data "$data/test.h5" --samples 10 --json fixed.json
    has '"max_abs_error": 0.0' fixed.json && has '"sqnr_db": null' fixed.json && pass fixed_batch_is_equal ||
        fail fixed_batch_is_equal "$(tr -d '\n ' <fixed.json)"
    works no_labels "$pare" validate -q free.onnx fixed.onnx --data "$data/test.h5" --samples 10
    says no_labels_table "cosine"
else
    skip odd_names "protoc is not installed"
fi
finish
