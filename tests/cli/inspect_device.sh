#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare inspect --device: what nets would take on a GPU that is not there, and what it refuses.
name=inspect_device
. "$(dirname "$0")/_lib.sh"
inspect="$pare inspect"

# has_steps NAME FILE: every step has a time, and the sum is theirs, less what is saved
has_steps() {
    if python3 - "$2" <<'END' 2>.test.err; then pass "$1"; else fail "$1" "$(tail -1 .test.err)"; fi
import json, sys
p = json.load(open(sys.argv[1]))["prediction"]
assert p["steps"] and all(s["time_ms"] > 0 and s["bytes"] > 0 for s in p["steps"]), "a step without time"
assert abs(sum(s["time_ms"] for s in p["steps"]) - p["saved_ms"] - p["time_ms"]) < 1e-9 * p["time_ms"], "the sum"
assert abs(p["samples"] / p["time_ms"] * 1e3 - p["throughput_per_s"]) < 1e-6 * p["throughput_per_s"], "the rate"
END
}

works fp16 "$pare" quantize -q "$zoo/resnet.onnx" -o h.onnx --precision fp16
works predict $inspect h.onnx --device h200 --batch 128 --json h.json
says names_device "NVIDIA H200 SXM: predicted, not measured"
says says_bound "ms for 128 samples"
for word in conv_128x64 cublaslt global_average_pool; do
    if has "$word" .test.out; then pass "kernel_$word"; else fail "kernel_$word" "$(cat .test.out)"; fi
done
has_steps steps_have_times h.json
cp .test.out first
$inspect h.onnx --device h200 --batch 128 --threads 1 >.test.out 2>.test.err
if cmp -s first .test.out; then pass same_again; else fail same_again "the tables differ"; fi
works other_device $inspect h.onnx --device h100 --shapes input:128x1x28x28
says other_name "NVIDIA H100 SXM"
works f32 $inspect "$zoo/resnet.onnx" --device h200 --batch 128 --json f32.json
works tf32 $inspect "$zoo/resnet.onnx" --device h200 --batch 128 --tf32 --json tf32.json
for net in mlp cnn resnet mobilenet vit; do
    works "zoo_$net" $inspect "$zoo/$net.onnx" --device h200 --batch 8 --json "$net.json"
    has_steps "zoo_steps_$net" "$net.json"
done

refuses unknown_device 2 "no figures of a device 'b200'; known are: h200, h100" $inspect h.onnx --device b200
if python3 -c 'import json
plain, tf32, half = (json.load(open(f))["prediction"]["steps"] for f in ("f32.json", "tf32.json", "h.json"))
ms = lambda steps: sum(s["time_ms"] for s in steps if "conv_" in s["kernel"])
assert ms(plain) > ms(tf32) > ms(half), (ms(plain), ms(tf32), ms(half))' 2>.test.err; then
    pass tf32_is_between
else
    fail tf32_is_between "$(tail -1 .test.err)"
fi
refuses tf32_alone 2 "--tf32 only says something with --device" $inspect h.onnx --tf32
refuses batch_alone 2 "--batch only says something with --device" $inspect h.onnx --batch 2
refuses shapes_alone 2 "--shapes only says something with --groups or --device" $inspect h.onnx --shapes input:2x1x28x28
refuses batch_twice 2 "--batch 4" $inspect h.onnx --device h200 --batch 4 --shapes input:2x1x28x28
refuses wrong_shape 1 "h.onnx|input" $inspect h.onnx --device h200 --shapes input:2x3x28x28

if data_sets; then
    works int8 "$pare" quantize -q "$zoo/resnet.onnx" -o q.onnx --data "$data/train.h5" --samples 64
    works int8_predict $inspect q.onnx --device h200 --batch 128 --json q.json
    says beside_fp16 "FP16 ms"
    has_steps int8_steps q.json
    if has '"slower_than_fp16"' q.json; then pass int8_compares; else fail int8_compares "no comparison"; fi
fi

# the plan of the emulated GPU has the same steps
emulated=$top/build/tests/simt/pare_emulated
if [ -x "$emulated" ]; then
    for net in mlp resnet vit; do
        works "half_$net" "$pare" quantize -q "$zoo/$net.onnx" -o half.onnx --precision fp16
        works "plan_$net" "$emulated" bench -q half.onnx --device cuda --no-tune --warmup 0 --duration 0 --iterations 1 \
            --profile plan.json
        works "outline_$net" $inspect half.onnx --device h200 --json outline.json
        if python3 - <<'END' 2>.test.err; then pass "same_steps_$net"; else fail "same_steps_$net" "$(tail -1 .test.err)"; fi
import json
names = lambda steps: [(s["node"], s["op_type"], s["output"]) for s in steps]
plan, outline = json.load(open("plan.json"))["steps"], json.load(open("outline.json"))["prediction"]["steps"]
assert names(plan) == names(outline), f"{len(plan)} steps planned, {len(outline)} predicted"
END
    done
else
    skip same_steps "$emulated is not built"
fi

# what was measured beside it: a plan of the CPU stands in for a device's, with times that are known
works predict_8 $inspect h.onnx --device h200 --batch 8 --json h8.json
works measure "$pare" bench -q h.onnx --shapes input:8x1x28x28 --no-tune --warmup 0 --duration 0 --iterations 1 --profile cpu.json
if python3 - <<'END' 2>.test.err; then pass times; else fail times "$(tail -1 .test.err)"; fi
import json
profile, predicted = json.load(open("cpu.json")), json.load(open("h8.json"))["prediction"]["steps"]
ms = {s["node"] or s["output"]: s["time_ms"] for s in predicted}
common = 0
for s in profile["steps"]:
    name = s["node"] or s["output"]
    s["time_ms"] = 4 * ms[name] if name in ms else 1 # a step that only this plan has
    common += name in ms
profile["device"], profile["time_ms"] = "stand-in", sum(s["time_ms"] for s in profile["steps"])
assert common > 9 and len(ms) == len(predicted), f"{common} of {len(predicted)} steps in common"
profile["steps"] = [s for s in profile["steps"] if s["op_type"] != "Gemm"] # one that only the prediction has
json.dump(profile, open("p.json", "w"))
for s in profile["steps"]: s["node"] = s["output"] = "another's"
json.dump(profile, open("named.json", "w"))
END
works measured $inspect h.onnx --device h200 --batch 8 --measured p.json --json m.json
if grep -Eq '^step .* ms +measured +ratio +FP16 ms' .test.out && grep -Eq ' 0\.25( |$)' .test.out; then pass columns; else fail columns "$(grep -A3 '^step' .test.out)"; fi
says in_common "ms measured, ratio 0.25"
says of_the_file "on stand-in (p.json)"
if python3 - <<'END' 2>.test.err; then pass measured_facts; else fail measured_facts "$(tail -1 .test.err)"; fi
import json
p, profile = json.load(open("m.json"))["prediction"], json.load(open("p.json"))
m, have = p["measured"], [s for s in p["steps"] if "measured_ms" in s]
near = lambda a, b: abs(a - b) <= 1e-9 * abs(b)
assert all(near(s["measured_ms"], 4 * s["time_ms"]) and near(s["ratio"], 0.25) for s in have), "a step's time"
assert 0 < len(have) == m["common"] < len(p["steps"]), f"{len(have)} steps of {m['common']}"
assert not any("measured_ms" in s for s in p["steps"] if s["op_type"] == "Gemm"), "what was not measured"
assert near(m["common_ms"], sum(s["measured_ms"] for s in have)) and near(m["predicted_ms"], m["common_ms"] / 4) and near(m["ratio"], 0.25), "sums"
assert near(m["time_ms"], profile["time_ms"]) and m["steps"] == len(profile["steps"]), "the profile's"
END
if has measured h8.json; then fail only_where_asked "$(grep -m1 measured h8.json)"; else pass only_where_asked; fi
cp h.onnx no.profile
echo '{"a": 1}' >other.json
echo '{"schema": 1, "command": "profile", "version": "1", "model": "x.onnx", "device": "cpu", "time_ms": 0, "steps": []}' >empty.json
with="$inspect h.onnx --device h200 --batch 8 --measured"
refuses measured_alone 2 "--measured only says something with --device" $inspect h.onnx --measured p.json
refuses measured_no_file 1 "nowhere.json" $with nowhere.json
refuses measured_no_json 1 "no.profile" $with no.profile
refuses measured_no_facts 1 "other.json" $with other.json
refuses measured_other_facts 1 "h.json|facts of pare inspect|bench --profile" $with h.json
refuses measured_nothing 1 "empty.json|0 steps of x.onnx none is one of h.onnx" $with empty.json
refuses measured_other_model 1 "named.json|none is one of h.onnx" $with named.json
refuses measured_other_shape 1 "p.json|[8,|--batch" $inspect h.onnx --device h200 --batch 2 --measured p.json

# kernels that the model of time lacks, the host's, and an operator that nobody knows
if command -v protoc >/dev/null 2>&1; then
    tensor='type { tensor_type { elem_type: 1 shape { dim { dim_value: 4 } dim { dim_value: 4 } } } }'
    ends="input { name: \"x\" $tensor } output { name: \"y\" $tensor } output { name: \"z\" type { tensor_type { elem_type: 1 shape { } } } }"
    model() { # NAME OPERATOR
        printf '%s\n' "ir_version: 8 opset_import { domain: \"\" version: 17 } graph { name: \"g\"
            node { op_type: \"$2\" name: \"odd\" input: \"x\" input: \"axis\" output: \"y\" }
            node { op_type: \"Det\" name: \"det\" input: \"x\" output: \"z\" }
            initializer { name: \"axis\" data_type: 7 int64_data: 0 } $ends }" | onnx_of "$1"
    }
    model odd CumSum
    works unknown_kernel $inspect odd.onnx --device h200 --json odd.json
    if grep -q '^odd *CumSum *unknown ' .test.out; then pass unknown_is_printed; else fail unknown_is_printed "$(cat .test.out)"; fi
    says unknown_is_counted "1 steps, 0.0012 ms of the sum: counted by their bytes alone"
    says host_is_counted "1 steps are the host's"
    has_steps unknown_steps odd.json
    model nobodys Frobnicate
    refuses unknown_operator 1 "nobodys.onnx|node 'odd' (Frobnicate)" $inspect nobodys.onnx --device h200
else
    skip unknown_kernel "no protoc"
fi
finish
