#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare serve with models in stages on several emulated GPUs: what is planned, the bytes of one GPU, models that do not fit
# one, GPUs without a link, a GPU that is lost, and what is refused.
name=serve_stages
. "$(dirname "$0")/_lib.sh"
. "$top/tests/cli/_server.sh"
emulated
mlp=$zoo/mlp.onnx
trap 'kill $server 2>/dev/null' EXIT
limit="timeout 120" # of a server that is to be refused
export SIMT_DEVICES=4
starts "$mlp" --max-batch 4
if [ -z "$url" ] && has 'no HTTP library' .test.served; then
    skip all "this build has no HTTP library"
    exit 0
fi
python3 -c 'import json
pixels = [i * 37 % 101 / 50 - 1 for i in range(2 * 784)]
print(json.dumps({"inputs": [{"name": "input", "shape": [2, 1, 28, 28], "datatype": "FP32", "data": pixels}]}))' >body.json
# same NAME MODEL URL: the logits that a server on one GPU gave, to the last digit
same() {
    asks "$1" 200 '"shape":[2,10]' "$3/v2/models/$2/infer" -d @body.json
    python3 -c 'import json, sys
one, other = [json.load(open(path))["outputs"][0]["data"] for path in sys.argv[1:]]
sys.exit(one != other)' "$2.json" .test.body && pass "$1_bytes" || fail "$1_bytes" "$(cat .test.body)"
}

# --- one GPU ---
asks one 200 '"shape":[2,10]' "$url/v2/models/mlp/infer" -d @body.json
cp .test.body mlp.json
ends || fail one_end "$(cat .test.served)"
works data python3 -c 'import struct, sys
sys.stdout.buffer.write(struct.pack("<12544f", *[i * 73 % 203 / 100 - 1 for i in range(16 * 784)]))'
npy_of samples.npy '<f4' '(16, 1, 28, 28)' <.test.out
works imported "$pare" data import --npy samples.npy --name input -o samples.h5
works int8 "$pare" quantize "$zoo/cnn.onnx" --data samples.h5 --device cpu -q -o cnn.onnx
starts cnn.onnx --max-batch 4
asks one_int8 200 '"shape":[2,10]' "$url/v2/models/cnn/infer" -d @body.json
cp .test.body cnn.json
ends || fail one_int8_end "$(cat .test.served)"

# --- in stages, by the command line ---
starts "$mlp" cnn.onnx --max-batch 4 --parallel pipeline --gpus 2,0,1 --json facts.json
asks config 200 '"kind":"KIND_GPU","count":3,"gpus":[2,0,1]}' "$url/v2/models/mlp/config"
asks parameter 200 '"parameters":{"parallel":{"string_value":"pipeline"}}' "$url/v2/models/mlp/config"
same stages mlp "$url"
same int8_stages cnn "$url"
ends || fail stages_end "$(cat .test.served)"
if has "stage  nodes  weights" .test.served &&
    has "model 'mlp' on GPUs 2, 0, 1: batches of 4 samples, 3 at a time; stages wait for" .test.served; then
    pass planned
else
    fail planned "$(cat .test.served)"
fi
works facts python3 -c 'import json
for model in json.load(open("facts.json"))["models"]:
    (pipeline,) = model["pipelines"]
    assert pipeline["gpus"] == [2, 0, 1] and pipeline["batch"] == 4 and pipeline["side_by_side"] == 3
    assert pipeline["bubble_equal"] == 0 <= pipeline["bubble"] < 1 and len(pipeline["stages"]) == 3
    assert all(stage["weight_bytes"] and stage["activation_bytes"] for stage in pipeline["stages"])'
starts "$mlp" --max-batch 4 --parallel pipeline --gpus 0-1 --instances 1 -q
same one_at_a_time mlp "$url"
asks one_instance 200 '"count":1,"gpus":[0,1]}' "$url/v2/models/mlp/config"
ends && [ ! -s .test.served ] && pass quiet || fail quiet "$(cat .test.served)"
SIMT_PEERS=0 starts "$mlp" --max-batch 4 --parallel pipeline --gpus 0-1 --verbose
same no_link mlp "$url"
ends && has "GPU 0 does not reach the memory of GPU 1: copies go by the host" .test.served && pass no_link_said ||
    fail no_link_said "$(cat .test.served)"

# --- by config.pbtxt, and a model that is in no GPU as a whole ---
mkdir -p models/vit/1
cp "$zoo/vit.onnx" models/vit/1/model.onnx
stages='parameters { key: "parallel" value { string_value: "pipeline" } }'
echo "max_batch_size: 1 $stages instance_group { kind: KIND_GPU gpus: [0, 1, 2, 3] count: 1 }" >models/vit/config.pbtxt
refuses whole 1 "vit.onnx|out of GPU memory" env SIMT_MEMORY=1300000 $limit "$pare" serve "$zoo/vit.onnx" --max-batch 1 --instances 1 --port 0
SIMT_MEMORY=1300000 starts models
asks spread 200 '"count":1,"gpus":[0,1,2,3]}' "$url/v2/models/vit/config"
asks spread_infer 200 '"shape":[1,10]' "$url/v2/models/vit/infer" -d "$(python3 -c 'import json
print(json.dumps({"inputs": [{"name": "input", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0.5] * 784}]}))')"
ends && has "model 'vit' on GPUs 0, 1, 2, 3: batches of 1 sample, 1 at a time" .test.served && pass spread_end ||
    fail spread_end "$(cat .test.served)"
refuses limit 1 "stage 0 on GPU 0|out of GPU memory|--memory-limit" $limit "$pare" serve "$zoo/vit.onnx" --port 0 \
    --parallel pipeline --gpus 0,1 --memory-limit 1MB

# --- a limit of stages for models that are put into them later ---
mkdir -p later/net/1
cp "$mlp" later/net/1/model.onnx
starts later --max-batch 4 --stage-weights 900kB
asks later_whole 200 '"kind":"KIND_' "$url/v2/models/net/config"
echo "max_batch_size: 4 $stages instance_group { kind: KIND_GPU gpus: [0, 1] }" >later/net/config.pbtxt
asks later_load 200 '' -X POST "$url/v2/repository/models/net/load"
asks later_stages 200 '"gpus":[0,1]}' "$url/v2/models/net/config"
ends || fail later_end "$(cat .test.served)"
rm later/net/config.pbtxt
starts later --max-batch 4 --stage-weights 100kB
echo "max_batch_size: 4 $stages instance_group { kind: KIND_GPU gpus: [0, 1] }" >later/net/config.pbtxt
asks later_too_heavy 501 'cannot be cut into 2 stages of at most 100000 bytes' -X POST "$url/v2/repository/models/net/load"
ends || fail later_too_heavy_end "$(cat .test.served)"

# --- a GPU that is lost at a request's first call ---
mkdir -p lost/net/1
cp "$mlp" lost/net/1/model.onnx
echo "max_batch_size: 2 $stages instance_group { gpus: [0, 1] count: 1 }" >lost/net/config.pbtxt
SIMT_CALLS=asked starts lost
curl -s -o .test.body "$url/v2/models/net/infer" -d @body.json
ends || fail asked_end "$(cat .test.served)"
SIMT_CALLS=idle starts lost
ends || fail idle_end "$(cat .test.served)"
first=$(awk 'NR == FNR { call[$1] = $2; next } call[$1] != $2 { print $1; exit }' idle asked)
SIMT_FAIL=$first:700:sticky SIMT_LEAKS=1 starts lost
asks lost 500 "model 'net': " "$url/v2/models/net/infer" -d @body.json
asks lost_ready 503 "model 'net' is not ready: " "$url/v2/models/net/ready"
ends
got=$?
[ $got = 0 ] && [ "$(grep -c '^warning: ' .test.served)" = 1 ] &&
    has "model 'net' is no more computed on GPUs 0, 1: stage 0 on GPU 0: " .test.served && pass lost_end || fail lost_end "exit $got: $(cat .test.served)"

# --- what is refused ---
serve="$limit $pare serve $mlp --port 0"
refuses no_gpus 2 "--parallel pipeline and --gpus come together" $serve --parallel pipeline
refuses no_parallel 2 "--parallel pipeline and --gpus come together" $serve --gpus 0,1
refuses tensor 2 "--parallel tensor|pipeline" $serve --parallel tensor --gpus 0,1
refuses one_gpu 2 "--gpus 1: names one GPU" $serve --parallel pipeline --gpus 1
refuses no_numbers 2 "--gpus 0;1: expected numbers of GPUs" $serve --parallel pipeline --gpus '0;1'
refuses with_device 2 "--gpus and --device exclude each other" $serve --parallel pipeline --gpus 0,1 --device cuda
refuses no_such_gpu 1 "mlp.onnx: --gpus: GPU 7 does not exist" $serve --parallel pipeline --gpus 0,7
refuses too_many 1 "mlp.onnx: 4 stages were asked for, but the graph has only 3 nodes" $serve --parallel pipeline --gpus 0-3
refuses too_heavy 1 "mlp.onnx: cannot be cut into 2 stages of at most 100000 bytes" $serve --parallel pipeline --gpus 0,1 --stage-weights 100kB
refuses no_stages 2 "--stage-weights: no model is in stages, nor can one be loaded later" $serve --stage-weights 100kB
refuses two_kinds 1 "mlp.onnx: --gpus: GPU 0 is emulated device (sm_90) and GPU 1 is emulated device B" \
    env SIMT_MIXED=1 $serve --parallel pipeline --gpus 0,1
refuses no_gpu 1 "mlp.onnx: --gpus: |no CUDA-capable device" env SIMT_DEVICES=0 $serve --parallel pipeline --gpus 0,1
if [ -x "$top/build/pare" ]; then
    refuses no_code 1 "mlp.onnx: --gpus: " $limit "$top/build/pare" serve "$mlp" --port 0 --parallel pipeline --gpus 90,91
else
    skip no_code "$top/build/pare is not built"
fi
echo "$stages" >lost/net/config.pbtxt
refuses nowhere 1 "'parallel' is 'pipeline', whose stages lie on GPUs, expected instance_group" $limit "$pare" serve lost --port 0
finish
