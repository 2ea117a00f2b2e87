#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Single weights: what is written, and what is refused in one message.
name=prune_weights
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
prune="$pare prune --quiet $zoo/mlp.onnx"

# --- what works ---
works plain $prune -o plain.onnx --sparsity 0.5 --json plain.json
says plain_name plain.onnx
if has '"sparsity": 0.5' plain.json; then pass plain_sparsity; else fail plain_sparsity "$(head -c 300 plain.json)"; fi
works valid "$pare" check plain.onnx
works refit $prune -o refit.onnx --nm 2:4 --data "$data/train.h5" --samples 64
works same_again $prune -o again.onnx --nm 2:4 --data "$data/train.h5" --samples 64
if cmp -s refit.onnx again.onnx; then pass same_bytes; else fail same_bytes "two runs differ"; fi
works sweep $prune -o swept.onnx --sparsity 0 --sweep 0.9,0.5
if [ -f swept-0.90.onnx ] && [ -f swept-0.50.onnx ] && [ ! -f swept.onnx ]; then pass sweep_files; else fail sweep_files "$(ls)"; fi
works taylor $prune -o taylor.onnx --sparsity 0.5 --score taylor --data "$data/train.h5" --samples 40 --no-refit
if grep -aq 'score=taylor samples=40 refit=no' taylor.onnx && ! cmp -s taylor.onnx plain.onnx; then pass taylor_recipe; else fail taylor_recipe "no recipe, or the zeros of magnitude"; fi
works recipe "$pare" inspect plain.onnx
if grep -aq 'prune sparsity=0.5 scope=global score=best' plain.onnx; then pass manifest; else fail manifest "no recipe in plain.onnx"; fi
"$pare" prune "$zoo/mlp.onnx" -o plain.onnx --sparsity 0.5 >.test.out 2>.test.err
if has 'Dense kernels take as long as before' .test.err && has 'through zlib' .test.err; then pass honest; else fail honest "$(tail -2 .test.err)"; fi

# --- advice: no kernel for 2:4 on a processor ---
works advise $prune -o advised.onnx --nm 2:4 --advise --device cpu --json advice.json
if [ ! -e advised.onnx ]; then pass advise_writes_nothing; else fail advise_writes_nothing "$(ls)"; fi
if has '"ceiling": 1.0' advice.json && has '"paying": 0' advice.json && has '"outputs": []' advice.json; then pass advice_facts; else fail advice_facts "$(head -c 600 advice.json)"; fi
"$pare" prune "$zoo/mlp.onnx" --nm 2:4 --advise --device cpu >.test.out 2>.test.err
if has 'no kernel for 2:4' .test.err && has 'ceiling is 1.00x' .test.err && has '--macs' .test.err; then pass advice_is_honest; else fail advice_is_honest "$(tail -2 .test.err)"; fi

# --- what is refused ---
refuses advise_without_nm 2 "--advise|with --sparsity" $prune -o x.onnx --sparsity 0.5 --advise
refuses advise_of_channels 2 "--advise|without --nm" $prune -o x.onnx --macs 0.5 --advise
refuses no_target 2 "--sparsity|needed" $prune -o x.onnx
refuses two_targets 2 "exclude each other" $prune -o x.onnx --sparsity 0.5 --nm 2:4
refuses no_output 2 "-o OUT" $prune --sparsity 0.5
refuses above_one 2 "--sparsity|1.5" $prune -o x.onnx --sparsity 1.5
refuses below_zero 2 "--sparsity" $prune -o x.onnx --sparsity -0.5
refuses nm_words 2 "--nm 4|N:M" $prune -o x.onnx --nm 4
refuses nm_upside_down 2 "--nm 4:2|N < M" $prune -o x.onnx --nm 4:2
refuses nm_fits_nothing 1 "mlp.onnx|13|nothing can be pruned" $prune -o x.onnx --nm 1:13
refuses sweep_words 2 "--sweep|0.9,x" $prune -o x.onnx --sparsity 0.5 --sweep 0.9,x
refuses sweep_of_nm 2 "--sweep|--nm" $prune -o x.onnx --nm 2:4 --sweep 0.9,0.5
refuses pattern 2 "--keep|'conv*'|near it" $prune -o x.onnx --sparsity 0.5 --keep 'conv*'
refuses cannot_be_met 1 "mlp.onnx|0.9|only|at most" $prune -o x.onnx --sparsity 0.9 --keep /1/Gemm
refuses channel_score 2 "--score|channels" $prune -o x.onnx --sparsity 0.5 --score bn
refuses activation_without_data 2 "activation|--data" $prune -o x.onnx --sparsity 0.5 --score activation
refuses taylor_without_data 2 "taylor|--data" $prune -o x.onnx --sparsity 0.5 --score taylor
refuses samples_without_data 2 "--samples" $prune -o x.onnx --sparsity 0.5 --samples 5
refuses permutation_of_zeros 2 "--no-permutation" $prune -o x.onnx --sparsity 0.5 --no-permutation
refuses channels_only 2 "--min-channels" $prune -o x.onnx --sparsity 0.5 --min-channels 5
refuses over_input 1 "mlp.onnx" $prune -o "$zoo/mlp.onnx" --sparsity 0.5
refuses folder 1 "nowhere" $prune -o nowhere/x.onnx --sparsity 0.5
head -c 10800 /dev/zero | npy_of dims.npy '<f4' '(4, 3, 15, 15)'
"$pare" data import --quiet -o dims.h5 --npy dims.npy >/dev/null
refuses other_shape 1 "dims.h5|/input" $prune -o x.onnx --sparsity 0.5 --data dims.h5
"$pare" quantize --quiet "$zoo/mlp.onnx" -o int8.onnx --data "$data/train.h5" --samples 32 >/dev/null 2>&1
refuses quantized 1 "int8.onnx|quantized already|prune the float model first" "$pare" prune -q int8.onnx -o x.onnx --sparsity 0.5
finish
