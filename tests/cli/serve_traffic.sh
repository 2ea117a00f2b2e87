#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What pare serve does with traffic besides answering it: shadows.
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
has '<h2>Shadows</h2>' report.html && pass shadow_page || fail shadow_page "no part of shadows"
finish
