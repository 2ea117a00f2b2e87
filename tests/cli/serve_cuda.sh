#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare serve on the emulated GPU as a user has it: where models are computed, the numbers of pare run, a GPU that is lost.
name=serve_cuda
. "$(dirname "$0")/_lib.sh"
. "$top/tests/cli/_server.sh"
emulated
mlp=$zoo/mlp.onnx
trap 'kill $server 2>/dev/null' EXIT
starts "$mlp" --max-batch 4
if [ -z "$url" ] && has 'no HTTP library' .test.served; then
    skip all "this build has no HTTP library"
    exit 0
fi

{
    printf '{"inputs": [{"name": "input", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": ['
    seq -s , 1 784 | tr -d '\n'
    printf ']}]}'
} >body.json
python3 -c 'import struct, sys
sys.stdout.buffer.write(struct.pack("<784f", *range(1, 785)))' | npy_of input.npy '<f4' '(1, 1, 28, 28)'

# --- the GPU, by itself ---
asks auto 200 '"kind":"KIND_GPU","count":2,"gpus":[0]}' "$url/v2/models/mlp/config"
asks infer 200 '"shape":[1,10]' "$url/v2/models/mlp/infer" -d @body.json
works run "$pare" run "$mlp" --input input=input.npy --device cuda -o out -q
python3 -c 'import json, struct, sys
want = struct.unpack("<10f", open("out/logits.npy", "rb").read()[-40:])
got = json.load(open(".test.body"))["outputs"][0]["data"]
sys.exit(max(abs(a - b) for a, b in zip(got, want)) > 1e-4 * max(map(abs, want)))' &&
    pass same_as_run || fail same_as_run "$(cat .test.body)"
ends && [ ! -s .test.served ] && pass sigterm || fail sigterm "$(cat .test.served)"

# --- what --device says ---
starts "$mlp" --max-batch 1 --device cuda --cuda-shared-memory
asks extension 200 '"statistics","cuda_shared_memory"]' "$url/v2"
asks regions 200 '[]' "$url/v2/cudasharedmemory/status"
asks wrong_handle 400 'expected 64 bytes as base64' "$url/v2/cudasharedmemory/region/r/register" \
    -d '{"raw_handle": {"b64": ""}, "device_id": 0, "byte_size": 1}'
asks other_regions 501 'pare serve --shared-memory allows it' "$url/v2/systemsharedmemory/status"
ends || fail regions_end "$(cat .test.served)"
starts "$mlp" --max-batch 1 --device cpu
asks cpu 200 '"kind":"KIND_CPU"' "$url/v2/models/mlp/config"
ends || fail cpu_end "$(cat .test.served)"
export SIMT_DEVICES=2
starts "$mlp" --max-batch 1 --device cuda:1 --instances 3
asks no_regions 501 'pare serve --cuda-shared-memory allows it' "$url/v2/cudasharedmemory/status"
asks second 200 '"kind":"KIND_GPU","count":3,"gpus":[1]}' "$url/v2/models/mlp/config"
ends || fail second_end "$(cat .test.served)"
unset SIMT_DEVICES
refuses no_such_gpu 1 "--device cuda:5: |GPU 5 does not exist" "$pare" serve "$mlp" --device cuda:5 --port 0
refuses no_driver 1 "--device cuda: |no NVIDIA driver" env SIMT_DRIVER=0 "$pare" serve "$mlp" --device cuda --port 0
refuses no_memory 1 "mlp.onnx: |out of GPU memory" env SIMT_MEMORY=100000 "$pare" serve "$mlp" --port 0
refuses memory_limit 1 "mlp.onnx: |out of GPU memory" "$pare" serve "$mlp" --memory-limit 1MB --port 0
mkdir -p models/net/1 models/other/1
cp "$mlp" models/net/1/model.onnx
cp "$mlp" models/other/1/model.onnx
echo 'instance_group { kind: KIND_CPU }' >models/other/config.pbtxt
echo 'instance_group { kind: KIND_GPU gpus: 3 }' >models/net/config.pbtxt
refuses no_gpu_for_a_model 1 "net/1/model.onnx: instance_group: |GPU 3 does not exist" "$pare" serve models --port 0
refuses no_gpus_at_all 1 "net/1/model.onnx: instance_group: |, or set kind: KIND_CPU in config.pbtxt" env SIMT_DEVICES=0 "$pare" serve models --port 0

# --- a GPU that is lost at a request's first call: the first call that differs from those of a server that is not asked ---
echo 'max_batch_size: 2 instance_group { gpus: 0 }' >models/net/config.pbtxt
SIMT_CALLS=asked starts models
curl -s -o .test.body "$url/v2/models/net/infer" -d @body.json
ends || fail asked_end "$(cat .test.served)"
SIMT_CALLS=idle starts models
ends || fail idle_end "$(cat .test.served)"
first=$(awk 'NR == FNR { call[$1] = $2; next } call[$1] != $2 { print $1; exit }' idle asked)
SIMT_FAIL=$first:700:sticky SIMT_LEAKS=1 starts models
asks lost 500 "model 'net': " "$url/v2/models/net/infer" -d @body.json
asks lost_infer 503 "model 'net' is not ready: " "$url/v2/models/net/infer" -d @body.json
asks lost_ready 503 "model 'net' is not ready: " "$url/v2/models/net/ready"
asks lost_server 503 "model 'net' is not ready: " "$url/v2/health/ready"
asks lost_index 200 '"version":"1","state":"UNAVAILABLE","reason":"' "$url/v2/repository/index" -d '{}'
asks lost_other 200 '"shape":[1,10]' "$url/v2/models/other/infer" -d @body.json
asks lost_live 200 '' "$url/v2/health/live"
ends
got=$?
[ $got = 0 ] && [ "$(grep -c '^warning: ' .test.served)" = 1 ] && has "model 'net' is no more computed on" .test.served &&
    pass lost_end || fail lost_end "exit $got: $(cat .test.served)"

# --- one call that fails, and the next request ---
SIMT_FAIL=$((first + 1)):719 starts models
asks failed 500 "model 'net': " "$url/v2/models/net/infer" -d @body.json
asks failed_next 200 '"shape":[1,10]' "$url/v2/models/net/infer" -d @body.json
ends && has "model 'net': a run failed, its plan was made anew" .test.served && pass failed_end || fail failed_end "$(cat .test.served)"
finish
