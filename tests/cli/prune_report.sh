#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare prune --report, --sweep: table, page, picture, and what is refused before the work.
name=prune_report
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
prune="$pare prune $zoo/mlp.onnx"
few="--data $data/train.h5 --samples 40"

works page $prune -o swept.onnx --macs 1 --sweep 0.8,0.5 $few --report page.html
if has 'swept-0.50 ' .test.err && has 'drop [95 %]' .test.err && has 'that pruning did not see' .test.err; then pass table; else fail table "$(tail -5 .test.err)"; fi
if [ "$(cat .test.out)" = "swept-0.80.onnx
swept-0.50.onnx" ]; then pass names_only; else fail names_only "$(cat .test.out)"; fi
if [ "$(grep -c '<svg ' page.html)" = 4 ] && has '&times;784</td>' page.html && has 'ridge' page.html; then pass page_parts; else fail page_parts "$(wc page.html)"; fi
works many "$pare" prune -q "$zoo/mlp.onnx" -o many.onnx --params 1 --sweep 0.95,0.9,0.85,0.8,0.75,0.7,0.65,0.6,0.55,0.5 --no-refit --score l2 $few --report many.svg
if [ "$(grep -c '<circle ' many.svg)" = 44 ]; then pass points; else fail points "$(grep -c '<circle ' many.svg) of 44"; fi
works weights "$pare" prune -q "$zoo/mlp.onnx" -o few.onnx --sparsity 0.5 $few --report few.html
if has 'Dense kernels take as long' few.html && has 'sparse rows' few.html && ! has '<svg' few.html; then pass honest; else fail honest "$(wc few.html)"; fi
works no_data "$pare" prune -q "$zoo/mlp.onnx" -o bare.onnx --macs 0.5 --report bare.html
if has 'latency' bare.html && ! has 'top-1' bare.html; then pass no_accuracy; else fail no_accuracy "$(wc bare.html)"; fi
works all_seen "$pare" prune "$zoo/mlp.onnx" -o seen.onnx --macs 0.5 --data "$data/train.h5" --range 0:40 --report seen.html
if has 'pruning saw, too' seen.html; then pass all_seen_said; else fail all_seen_said "$(tail -3 .test.err)"; fi

"$pare" prune -q "$zoo/mlp.onnx" -o few.onnx --sparsity 0.5 --json few.json >/dev/null
works report_of_no_comparison "$pare" report few.json -o again.html
if has 'its accuracy was not measured' again.html && has 'Pruned or tuned' again.html; then pass not_measured_said; else fail not_measured_said "$(wc again.html)"; fi
printf '{"schema": 1, "command": "prune", "model": {"file": "m"}, "smaller": [{"file": "a", "layers": [{"node": 1}]}], "compared": {"models": [{"file": "m"}, {"file": "a"}]}}' >odd.json
refuses report_of_odd_facts 1 "odd.json" "$pare" report odd.json -o again.html
for _ in $(seq 3000); do printf '%0784d' 0; done | npy_of dark.npy '|u1' '(3000, 1, 28, 28)'
for i in $(seq 3000); do printf "\\000\\000\\000\\000\\000\\000\\000\\000"; done | npy_of zeros.npy '<i8' '(3000,)'
"$pare" data import -q -o dark.h5 --npy dark.npy zeros.npy >/dev/null 2>.test.err || fail dark "$(cat .test.err)"
works wrong_data "$pare" prune "$zoo/mlp.onnx" -o dark.onnx --macs 0.5 --data dark.h5 --samples 20 --report dark.html
if has 'near chance' .test.err && has 'dark.h5' .test.err; then pass wrong_data_said; else fail wrong_data_said "$(tail -3 .test.err)"; fi
refuses picture_of_one 2 "--report p.svg|--sweep" $prune -q -o x.onnx --macs 0.5 $few --report p.svg
refuses picture_without_data 2 "--report p.svg|--data" $prune -q -o x.onnx --macs 1 --sweep 0.5,0.7 --report p.svg
refuses report_is_model 2 "x-0.50.onnx|--report" $prune -q -o x.onnx --macs 1 --sweep 0.7,0.5 --report x-0.50.onnx
refuses facts_are_model 2 "x-0.50.onnx|--json" $prune -q -o x.onnx --macs 1 --sweep 0.7,0.5 --json x-0.50.onnx
refuses report_is_input 1 "mlp.onnx" $prune -q -o x.onnx --macs 0.5 --report "$zoo/mlp.onnx"
refuses report_is_output 1 "x.onnx" $prune -q -o x.onnx --macs 0.5 --report x.onnx
refuses report_folder 1 "nowhere" $prune -q -o x.onnx --macs 0.5 --report nowhere/page.html
refuses sweep_of_nothing 2 "--sweep 0.5,0|above 0" $prune -q -o x.onnx --macs 1 --sweep 0.5,0
refuses sweep_twice 2 "--sweep 0.5,0.50|twice" $prune -q -o x.onnx --macs 1 --sweep 0.5,0.50
refuses sweep_end 2 "--sweep 0.5,|expected" $prune -q -o x.onnx --macs 1 --sweep 0.5,
refuses sweep_of_names 2 "--sweep 0.5;0.7|expected" $prune -q -o x.onnx --macs 1 --sweep '0.5;0.7'
refuses sweep_above 2 "--sweep 0.5,1.5|expected" $prune -q -o x.onnx --macs 1 --sweep 0.5,1.5
finish
