#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare prune on models and data of every wrong kind: one message, nothing lost.
name=prune_bad
. "$(dirname "$0")/_lib.sh"
command -v protoc >/dev/null 2>&1 || {
    skip all "protoc is not installed"
    exit 0
}
prune="$pare prune --quiet"

# --- files ---
refuses missing_file 1 "none.onnx" $prune none.onnx -o x.onnx --macs 0.5
head -c 5000 "$zoo/mlp.onnx" >cut.onnx
refuses cut_file 1 "cut.onnx|cut" $prune cut.onnx -o x.onnx --macs 0.5
printf 'no model\n' >text.onnx
refuses text_file 1 "text.onnx" $prune text.onnx -o x.onnx --sparsity 0.5
refuses missing_data 1 "none.h5" $prune "$zoo/mlp.onnx" -o x.onnx --macs 0.5 --data none.h5
refuses model_as_data 1 "text.onnx|HDF5" $prune "$zoo/mlp.onnx" -o x.onnx --macs 0.5 --data text.onnx
cp "$zoo/mlp.onnx" own.onnx
refuses over_input 1 "own.onnx|same file" $prune own.onnx -o own.onnx --macs 0.5
refuses folder 1 "nowhere" $prune own.onnx -o nowhere/x.onnx --macs 0.5

# --- the disk is full: the old file stays ---
printf 'old content' >old.onnx
limited() { (ulimit -f 8 && exec "$@"); }
refuses full_disk 1 "old.onnx" limited $prune own.onnx -o old.onnx --macs 0.5
refuses full_disk_weights 1 "old.onnx" limited $prune own.onnx -o old.onnx --sparsity 0.5
rm -f old.onnx

# --- numbers ---
refuses no_number 2 "--macs half" $prune own.onnx -o x.onnx --macs half
refuses nothing_left 2 "--macs 0:" $prune own.onnx -o x.onnx --macs 0
refuses size_without_unit 2 "--size 100|from 1 B" $prune own.onnx -o x.onnx --size 100
refuses no_steps 2 "--steps 0" $prune own.onnx -o x.onnx --macs 0.5 --steps 0
refuses score_word 2 "--score best|l1" $prune own.onnx -o x.onnx --macs 0.5 --score best

# --- graphs ---
float_of() { # NAME DIM...: a float tensor of these dims, the first one unknown
    printf 'name: "%s" type { tensor_type { elem_type: 1 shape { dim { dim_param: "n" } ' "$1"
    shift
    for dim; do case $dim in [0-9]*) printf 'dim { dim_value: %s } ' "$dim" ;; *) printf 'dim { dim_param: "%s" } ' "$dim" ;; esac; done
    printf '} } }'
}
weight_of() { # NAME DIM...: floats that differ
    printf 'initializer { name: "%s" data_type: 1 ' "$1"
    shift
    count_=1
    for dim; do
        printf 'dims: %s ' "$dim"
        count_=$((count_ * dim))
    done
    awk -v n=$count_ 'BEGIN { for (i = 0; i < n; i++) printf "float_data: %g ", ((i * 7919) % 1009) / 1009 - 0.5 }'
    printf '}\n'
}
graph() { # NAME TEXT
    printf '%s\n' "ir_version: 8 opset_import { version: 17 } graph { name: \"g\" $2 }" | onnx_of "$1"
}
conv() { printf 'node { op_type: "Conv" name: "%s" input: "%s" input: "%s" output: "%s" } ' "$1" "$2" "$3" "$4"; }
relu() { printf 'node { op_type: "Relu" name: "%s" input: "%s" output: "%s" } ' "$1" "$2" "$3"; }

graph single "node { op_type: \"Gemm\" name: \"only\" input: \"x\" input: \"w\" output: \"y\" } $(weight_of w 4 6)
    input { $(float_of x 4) } output { $(float_of y 6) }"
refuses output_channels 1 "single.onnx|'y' is an output|--outputs" $prune single.onnx -o x.onnx --macs 0.5
works outputs_may_go $prune single.onnx -o fewer.onnx --macs 0.5 --outputs
works outputs_are_fewer "$pare" inspect fewer.onnx
says outputs_by_name "n,3"

graph along "node { op_type: \"Gemm\" name: \"g1\" input: \"x\" input: \"w\" output: \"a\" }
    node { op_type: \"Softmax\" name: \"sm\" input: \"a\" output: \"s\" attribute { name: \"axis\" type: 2 i: -1 } }
    node { op_type: \"Gemm\" name: \"g2\" input: \"s\" input: \"v\" output: \"y\" } $(weight_of w 4 8) $(weight_of v 8 6)
    input { $(float_of x 4) } output { $(float_of y 6) }"
refuses nothing_to_prune 1 "along.onnx|'sm' computes along this axis|'x' is an input" $prune along.onnx -o x.onnx --macs 0.5
[ "$(grep -o "'sm'" .test.err | wc -l)" = 1 ] && pass said_once || fail said_once "$(cat .test.err)"

graph shared "$(conv ca x w a)$(relu ra a ar)$(conv cb x2 w b)$(relu rb b br)$(conv cc ar v c)$(conv cd br u d)
    node { op_type: \"Add\" name: \"sum\" input: \"c\" input: \"d\" output: \"y\" }
    $(weight_of w 16 3 1 1) $(weight_of v 4 16 1 1) $(weight_of u 4 16 1 1)
    input { $(float_of x 3 8 8) } input { $(float_of x2 3 8 8) } output { $(float_of y 4 8 8) }"
works shared_weight $prune shared.onnx -o shared.half.onnx --macs 0.5
works shared_is_valid "$pare" check shared.half.onnx
works shared_runs "$pare" bench -q --no-tune --warmUp 0 --duration 0 --iterations 1 shared.half.onnx

graph sizes "$(conv c1 x w a)$(relu r1 a ar)$(conv c2 ar v b)
    node { op_type: \"GlobalAveragePool\" name: \"gap\" input: \"b\" output: \"p\" }
    node { op_type: \"Flatten\" name: \"fl\" input: \"p\" output: \"y\" }
    $(weight_of w 16 3 1 1) $(weight_of v 5 16 1 1) input { $(float_of x 3 h w) } output { $(float_of y 5) }"
works dynamic_shapes $prune sizes.onnx -o sizes.half.onnx --macs 0.5
works dynamic_report "$pare" prune sizes.onnx -o sizes.half.onnx --macs 0.5 --report sizes.html
if has "input 'x' has sizes that only --data could tell" .test.err && [ -s sizes.html ]; then pass dynamic_says; else fail dynamic_says "$(cat .test.err)"; fi

# --- data: 64 samples, all alike; NaN in one; of another shape ---
graph maps "$(conv c1 x w a)$(relu r1 a ar)$(conv c2 ar v y) $(weight_of w 16 3 1 1) $(weight_of v 5 16 1 1)
    input { $(float_of x 3 4 4) } output { $(float_of y 5 4 4) }"
ones() { for _ in $(seq "$1"); do printf '\000\000\200\077'; done; }
ones 3072 | npy_of ones.npy '<f4' '(64, 3, 4, 4)'
{ ones 100 && printf '\000\000\300\177' && ones 2971; } | npy_of nan.npy '<f4' '(64, 3, 4, 4)'
ones 3072 | npy_of flat.npy '<f4' '(64, 48)'
for set in ones nan flat; do "$pare" data import -q -o $set.h5 --npy $set.npy >/dev/null || fail "import_$set" "not made"; done
works singular_refit $prune maps.onnx -o maps.half.onnx --macs 0.5 --data ones.h5
works singular_second_order $prune maps.onnx -o maps.zeros.onnx --sparsity 0.5 --data ones.h5
works singular_is_finite "$pare" validate -q maps.onnx maps.half.onnx --data ones.h5 --json singular.json
if grep -q '"not_finite": 0' singular.json; then pass singular_numbers; else fail singular_numbers "$(head -c 300 singular.json)"; fi
refuses nan_in_data 1 "nan.h5|sample 2|NaN" $prune maps.onnx -o x.onnx --macs 0.5 --data nan.h5
refuses other_shape 1 "flat.h5|64,48|'x'" $prune maps.onnx -o x.onnx --macs 0.5 --data flat.h5
refuses taylor_of_maps 1 "maps.onnx|'y'|classifier" $prune maps.onnx -o x.onnx --macs 0.5 --score taylor --data ones.h5

# --- killed at any moment: the old file or the new one ---
$prune "$zoo/cnn.onnx" -o whole.onnx --macs 0.5 >/dev/null
wrong=
seen=0
for i in $(seq 1 20); do
    printf 'old content' >target.onnx
    $prune "$zoo/cnn.onnx" -o target.onnx --macs 0.5 >/dev/null 2>&1 &
    sleep "0.0$(printf '%02d' $((i * 4)))"
    kill -KILL $! 2>/dev/null
    wait $! 2>/dev/null
    if cmp -s target.onnx whole.onnx; then :; elif [ "$(cat target.onnx)" = "old content" ]; then seen=1; else wrong="$wrong $i"; fi
done
if [ -z "$wrong" ]; then pass sigkill_leaves_old_or_new; else fail sigkill_leaves_old_or_new "kills$wrong"; fi
[ $seen = 1 ] && pass sigkill_came_before_the_end || fail sigkill_came_before_the_end "every run had ended"
finish
