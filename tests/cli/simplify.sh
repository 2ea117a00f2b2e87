#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare simplify as people use it, and what it refuses: nothing is written then.
name=simplify
. "$(dirname "$0")/_lib.sh"
simplify="$pare simplify"

works vit $simplify "$zoo/vit.onnx" -o vit.onnx --json vit.json
says prints_the_file vit.onnx
if has "outputs equal" .test.err && has "nodes (were " .test.err; then pass summary; else fail summary "$(cat .test.err)"; fi
if [ "$("$pare" inspect vit.onnx --json - | grep -c '"Shape"')" = 0 ]; then pass no_shape_left; else fail no_shape_left "Shape is in the file"; fi
works quiet $simplify "$zoo/vit.onnx" -o quiet.onnx --quiet
if [ ! -s .test.err ] && cmp -s vit.onnx quiet.onnx; then pass same_bytes; else fail same_bytes "$(cat .test.err)"; fi
works twice $simplify vit.onnx -o twice.onnx
if cmp -s vit.onnx twice.onnx; then pass nothing_left; else fail nothing_left "a second run changes the file"; fi
works in_place $simplify twice.onnx -o other.onnx --no-check
if has "not compared" .test.err; then pass not_compared; else fail not_compared "$(cat .test.err)"; fi

works static $simplify "$zoo/resnet.onnx" -o static.onnx --static input=2x1x28x28
"$pare" inspect static.onnx >.test.out 2>&1
says static_input "[2,1,28,28]"
says static_output "[2,10]"
works colon $simplify "$zoo/resnet.onnx" -o colon.onnx --static input:2x1x28x28
if cmp -s static.onnx colon.onnx; then pass both_signs; else fail both_signs "the files differ"; fi
works check_shapes $simplify "$zoo/resnet.onnx" -o shapes.onnx --shapes input=3x1x28x28

refuses no_output 2 "-o OUT" $simplify "$zoo/vit.onnx"
refuses static_of_nothing 2 "axis 0 is 0 long" $simplify "$zoo/vit.onnx" -o out.onnx --static input=0x1x28x28
refuses no_file 1 "none.onnx" $simplify none.onnx -o out.onnx
head -c 3000 "$zoo/vit.onnx" >cut.onnx
refuses cut_file 1 "cut.onnx" $simplify cut.onnx -o out.onnx
refuses over_the_input 1 "vit.onnx" $simplify vit.onnx -o vit.onnx
refuses no_folder 1 "nowhere" $simplify vit.onnx -o nowhere/out.onnx
refuses wrong_input 1 "resnet.onnx|'nobody'|--static" $simplify "$zoo/resnet.onnx" -o out.onnx --static nobody=1x2
refuses wrong_size 1 "resnet.onnx|'input'|[batch,1,28,28]|[2,3,28,28]" \
    $simplify "$zoo/resnet.onnx" -o out.onnx --static input=2x3x28x28
refuses wrong_rank 1 "resnet.onnx|'input'|[2,28]" $simplify "$zoo/resnet.onnx" -o out.onnx --static input=2x28
refuses malformed 2 "--static" $simplify "$zoo/resnet.onnx" -o out.onnx --static input
refuses static_twice 2 "--static|'input'" $simplify "$zoo/resnet.onnx" -o out.onnx \
    --static input=1x1x28x28,input=2x1x28x28
refuses shapes_of_nothing 2 "--shapes|--no-check" $simplify "$zoo/resnet.onnx" -o out.onnx --no-check --shapes input=1x1x28x28
refuses fixed_and_asked 1 "'input'" $simplify static.onnx -o out.onnx --shapes input=3x1x28x28
printf '%s\n' 'ir_version: 8 opset_import { domain: "" version: 17 } opset_import { domain: "mine" version: 1 }
graph { name: "g"
  node { op_type: "Identity" input: "x" output: "a" }
  node { op_type: "Twist" domain: "mine" name: "twist" input: "a" output: "y" }
  input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
  output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } } }' | onnx_of custom
refuses operator_that_cannot_run 1 "custom.onnx|Twist|--no-check" $simplify custom.onnx -o out.onnx
works custom_unchecked $simplify custom.onnx -o custom_out.onnx --no-check
finish
