#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What pare serve does with traffic besides answering it: shadows, shares of versions,
# sequences.
name=serve_traffic
. "$(dirname "$0")/_lib.sh"
if ! command -v curl >/dev/null 2>&1; then
    skip all "curl is not installed"
    exit 0
fi
. "$top/tests/cli/_server.sh"
trap 'kill $server 2>/dev/null' EXIT
starts "$zoo/mlp.onnx" "$zoo/cnn.onnx" --shadow mlp=cnn --shadow-share 0.5 --json facts.json
if [ -z "$url" ]; then
    has 'no HTTP library' .test.served && skip all "no HTTP library" && exit 0
    fail start "$(cat .test.served)"
fi
{
    printf '{"inputs": [{"name": "input", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": ['
    seq -s , 1 784 | tr -d '\n'
    printf ']}]}'
} >body.json
# holds NAME WORD PATH: the reply has the word in it
holds() {
    curl -s --max-time 60 "$url/$3" >.test.body
    has "$2" .test.body && pass "$1" || fail "$1" "'$2' is missing in: $(head -c 400 .test.body)"
}

# --- shadows ---
refuses shadow_rule 2 "--shadow mlp: expected MODEL=OTHER" "$pare" serve "$zoo/mlp.onnx" --shadow mlp --port 0
refuses shadow_itself 2 "does not shadow itself" "$pare" serve "$zoo/mlp.onnx" --shadow mlp=mlp --port 0
refuses shadow_none 1 "there is no model 'none'" "$pare" serve "$zoo/mlp.onnx" --shadow mlp=none --port 0
refuses shadow_version 1 "version 2 is not ready" "$pare" serve "$zoo/mlp.onnx" --shadow mlp=mlp/2 --port 0
for i in 1 2 3 4 5 6 7 8; do
    curl -s "$url/v2/models/mlp/infer" -d @body.json >.test.body
    has '"shape":[1,10]' .test.body || fail shadow_answer "$(cat .test.body)"
done
holds shadow_answered '"answered":8,' v2/models/mlp/shadow
holds shadow_metrics 'pare_shadow_requests_total{model="mlp",shadow="cnn",outcome="dropped"} 0' metrics
ends && pass shadow_end || fail shadow_end "$(cat .test.served)"
has '"compared": 4,' facts.json && has '"agreement_interval"' facts.json && pass shadow_facts || fail shadow_facts "$(cat facts.json)"
works shadow_report "$pare" report facts.json -o report.html
grep -q '^<p class="soft">1 shadow</p>$' report.html && ! has 'How to read it' report.html && pass shadow_head || fail shadow_head "$(grep -m2 'class="soft"' report.html)"
says shadow_table "model  shadow  answered  compared  dropped  failed"
says shadow_row "mlp    cnn            8         4"
has '<h2>Shadows</h2>' report.html && pass shadow_page || fail shadow_page "no part of shadows"

# --- shares ---
refuses share_rule 2 "--traffic net: expected MODEL=VERSION:WEIGHT" "$pare" serve "$zoo/mlp.onnx" --traffic net --port 0
refuses share_weight 2 "--traffic: '1': expected VERSION:WEIGHT" "$pare" serve "$zoo/mlp.onnx" --traffic mlp=1 --port 0
refuses share_none 1 "--traffic net=1:1: there is no such model" "$pare" serve "$zoo/mlp.onnx" --traffic net=1:1 --port 0
refuses share_version 1 "version 2 has a weight and is not served" "$pare" serve "$zoo/mlp.onnx" --traffic mlp=1:1,2:1 --port 0
mkdir -p models/net/1 models/net/2
cp "$zoo/mlp.onnx" models/net/1/model.onnx
cp "$zoo/cnn.onnx" models/net/2/model.onnx
starts models --traffic net=1:3,2:1
for i in 1 2 3 4 5 6 7 8; do
    curl -s "$url/v2/models/net/infer" -d @body.json | grep -o '"model_version":"[0-9]"'
done | sort | uniq -c | tr -s ' \n' ' ' >.test.body
[ "$(cat .test.body)" = ' 6 "model_version":"1" 2 "model_version":"2" ' ] && pass share_counts || fail share_counts "$(cat .test.body)"
sed 's/^{/{"id": "user 7", /' body.json >id.json
for i in 1 2 3 4 5 6; do
    curl -s "$url/v2/models/net/infer" -d @id.json | grep -o '"model_version":"[0-9]"'
done | sort -u >.test.body
[ "$(wc -l <.test.body)" = 1 ] && pass share_sticks || fail share_sticks "$(cat .test.body)"
ends && pass share_end || fail share_end "$(cat .test.served)"

# --- sequences ---
if ! command -v protoc >/dev/null 2>&1; then
    skip sequences "protoc is not installed"
    finish
    exit
fi
row='type { tensor_type { elem_type: 1 shape { dim { dim_param: "n" } dim { dim_value: 1 } } } }'
onnx_of sum <<END
ir_version: 8 opset_import { domain: "" version: 17 } graph { name: "sum"
node { op_type: "Add" input: "x" input: "before" output: "after" }
node { op_type: "Neg" input: "after" output: "y" }
input { name: "x" $row } input { name: "before" $row } output { name: "y" $row } output { name: "after" $row } }
END
mkdir -p stateful/sum/1
mv sum.onnx stateful/sum/1/model.onnx
cat >stateful/sum/config.pbtxt <<END
max_batch_size: 4
sequence_batching { state { input_name: "before" output_name: "after" data_type: TYPE_FP32 dims: 1 } }
END
starts stateful
# adds NAME WORD ID START END: a sequence's request of 1 is answered with the word
adds() {
    curl -s --max-time 60 "$url/v2/models/sum/infer" -d "{\"parameters\": {\"sequence_id\": $3, \"sequence_start\": $4,
        \"sequence_end\": $5}, \"inputs\": [{\"name\": \"x\", \"shape\": [1, 1], \"datatype\": \"FP32\", \"data\": [1]}]}" >.test.body
    has "$2" .test.body && pass "$1" || fail "$1" "'$2' is missing in: $(head -c 400 .test.body)"
}
adds sequence_first '"data":[-1.0]' 7 true false
adds sequence_other '"data":[-1.0]' '"seven"' true false
adds sequence_second '"data":[-2.0]' 7 false false
adds sequence_last '"data":[-3.0]' 7 false true
adds sequence_over "the sequence '7' has not begun or has ended" 7 false false
adds sequence_none 'expected a sequence_id' 0 true false
holds sequence_metrics 'pare_open_sequences{model="sum",version="1"} ' metrics
ends && pass sequence_end || fail sequence_end "$(cat .test.served)"
finish
