#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare serve as a user has it: the address on standard output, curl, what is refused before it listens, SIGTERM.
name=serve
. "$(dirname "$0")/_lib.sh"
if ! command -v curl >/dev/null 2>&1; then
    skip all "curl is not installed"
    exit 0
fi

# --- refused before it listens ---
mkdir empty
mkdir -p hollow/net/1 repository/net/one repository/other/1
cp "$zoo/mlp.onnx" repository/other/1/model.onnx
head -c 1000 "$zoo/mlp.onnx" >cut.onnx
"$pare" serve "$zoo/mlp.onnx" --port 0 >.test.out 2>.test.err &
server=$!
for i in $(seq 1 100); do
    url=$(cat .test.out)
    [ -n "$url" ] && break
    kill -0 $server 2>/dev/null || break
    sleep 0.1
done
if [ -z "$url" ] && has 'no HTTP library' .test.err; then
    wait $server
    [ $? = 1 ] && pass no_library || fail no_library "exit status"
    finish
    exit
fi
trap 'kill $server 2>/dev/null' EXIT
port=${url##*:}
case $url in http://127.0.0.1:[0-9]*) pass address ;; *) fail address "'$url' $(cat .test.err)" ;; esac
refuses no_argument 2 "usage: pare serve" "$pare" serve
refuses bad_port 2 "--port 65536: expected a whole number from 0 to 65535" "$pare" serve "$zoo/mlp.onnx" --port 65536
refuses device 1 "--device cuda: serve computes on the CPU" "$pare" serve "$zoo/mlp.onnx" --device cuda --port 0
refuses twice 2 "is given twice" "$pare" serve "$zoo/mlp.onnx" "$zoo/mlp.onnx" --port 0
refuses no_folder 1 "none: No such file" "$pare" serve none --port 0
refuses no_model 1 "empty: holds no model" "$pare" serve empty --port 0
refuses no_version 1 "repository/net: holds no version|a folder 1" "$pare" serve repository --port 0
refuses no_file 1 "hollow/net/1/model.onnx: No such file" "$pare" serve hollow --port 0
refuses cut_model 1 "cut.onnx" "$pare" serve cut.onnx --port 0
refuses same_name 1 "model 'other' is in" "$pare" serve repository other.onnx --port 0
refuses port_taken 1 "port $port: Address already in use" "$pare" serve "$zoo/mlp.onnx" --port "$port"
refuses bad_host 1 "--host no.such.host.invalid" "$pare" serve "$zoo/mlp.onnx" --host no.such.host.invalid --port 0

# --- asked ---
# asks NAME STATUS WORD CURL-ARGUMENT...
asks() {
    case_=$1 status_=$2 word_=$3
    shift 3
    rm -f .test.body
    got_=$(curl -s -o .test.body -w '%{http_code}' --max-time 60 "$@")
    if [ "$got_" = "$status_" ] && { [ -z "$word_" ] || has "$word_" .test.body; }; then
        pass "$case_"
    else
        fail "$case_" "$got_, expected $status_ with '$word_': $(head -c 300 .test.body)"
    fi
}
asks metadata 200 '"name":"mlp"' "$url/v2/models/mlp"
asks ready 200 '' "$url/v2/health/ready"
asks metrics 200 '# EOF' "$url/metrics"
{
    printf '{"inputs": [{"name": "input", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": ['
    seq -s , 1 784 | tr -d '\n'
    printf ']}]}'
} >body.json
asks infer 200 '"shape":[1,10]' "$url/v2/models/mlp/infer" -d @body.json
asks chunked 200 '"shape":[1,10]' "$url/v2/models/mlp/infer" -X POST -T - -H 'Expect:' <body.json
connects=$(curl -s -w '%{num_connects} ' -o .test.body -o .test.again -d @body.json "$url/v2/models/mlp/infer" "$url/v2/models/mlp/infer")
[ "$connects" = "1 0 " ] && cmp -s .test.body .test.again && pass keep_alive || fail keep_alive "connections: $connects"
asks no_json 400 '{"error":' "$url/v2/models/mlp/infer" -d 'x'
asks nothing 404 '{"error":' "$url/v2/models/none/infer" -d @body.json
asks method 405 '{"error":' "$url/v2/models/mlp/infer"
asks traversal 404 '{"error":' --path-as-is "$url/v2/models/../../../etc/passwd"
asks encoded 404 '{"error":' "$url/v2/models/..%2f..%2fetc/config"

# --- the same numbers as pare run ---
python_=$(command -v python3)
if [ -n "$python_" ]; then
    "$python_" -c 'import struct, sys
sys.stdout.buffer.write(struct.pack("<784f", *range(1, 785)))' | npy_of input.npy '<f4' '(1, 1, 28, 28)'
    works run "$pare" run "$zoo/mlp.onnx" --input input=input.npy -o out -q
    curl -s "$url/v2/models/mlp/infer" -d @body.json >.test.body
    "$python_" -c 'import json, struct, sys
raw = open("out/logits.npy", "rb").read()[-40:]
want = struct.unpack("<10f", raw)
got = json.load(open(".test.body"))["outputs"][0]["data"]
sys.exit(max(abs(a - b) for a, b in zip(got, want)) > 1e-3 * max(map(abs, want)))' &&
        pass same_as_run || fail same_as_run "$(cat .test.body)"
fi

# --- the end ---
kill -TERM $server
wait $server
got=$?
trap - EXIT
[ $got = 0 ] && [ ! -s .test.err ] && pass sigterm || fail sigterm "exit $got: $(cat .test.err)"
asks gone 000 '' "$url/v2/health/live"
"$pare" serve "$zoo/mlp.onnx" --port 0 --json facts.json >.test.out 2>.test.err &
server=$!
for i in $(seq 1 100); do
    [ -s .test.out ] && break
    sleep 0.1
done
curl -s "$(cat .test.out)/v2/models/mlp/infer" -d @body.json >.test.body
kill -INT $server
wait $server
[ $? = 0 ] && has '"answered": 1' facts.json && pass facts || fail facts "$(cat .test.err facts.json)"
finish
