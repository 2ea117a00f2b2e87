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
. "$top/tests/cli/_server.sh"
trap 'kill $server 2>/dev/null' EXIT
starts "$zoo/mlp.onnx"
if [ -z "$url" ] && has 'no HTTP library' .test.served; then
    wait "$server"
    [ $? = 1 ] && pass no_library || fail no_library "exit status"
    finish
    exit
fi
port=${url##*:}
case $url in http://127.0.0.1:[0-9]*) pass address ;; *) fail address "'$url' $(cat .test.served)" ;; esac
refuses no_argument 2 "usage: pare serve" "$pare" serve
refuses bad_port 2 "--port 65536: expected a whole number from 0 to 65535" "$pare" serve "$zoo/mlp.onnx" --port 65536
refuses device 1 "--device cuda:999" env CUDA_VISIBLE_DEVICES= "$pare" serve "$zoo/mlp.onnx" --device cuda:999 --port 0
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
asks encoded_name 200 '"name":"mlp"' "$url/v2/models/%6dlp"
asks encoded_zero 404 'mlp%00a' "$url/v2/models/mlp%00a"

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
ends
got=$?
[ $got = 0 ] && [ ! -s .test.served ] && pass sigterm || fail sigterm "exit $got: $(cat .test.served)"
asks gone 000 '' "$url/v2/health/live"
starts "$zoo/mlp.onnx" --json facts.json
curl -s "$url/v2/models/mlp/infer" -d @body.json >.test.body
kill -INT "$server"
wait "$server"
[ $? = 0 ] && has '"answered": 1' facts.json && pass facts || fail facts "$(cat .test.served facts.json)"

if [ -w /dev/full ]; then
    "$pare" serve "$zoo/mlp.onnx" --port 0 >/dev/full 2>.test.err
    [ $? = 1 ] && has 'standard output' .test.err && pass nobody_listens || fail nobody_listens "$(cat .test.err)"
fi

# --- gRPC ---
refuses grpc_bad_port 2 "--grpc-port 65536: expected a whole number from 0 to 65535" "$pare" serve "$zoo/mlp.onnx" --grpc-port 65536
starts "$zoo/mlp.onnx" --grpc-port 0
if [ -z "$url" ] && has 'install libgrpc' .test.served; then
    wait "$server"
    [ $? = 1 ] && pass grpc_no_library || fail grpc_no_library "exit status"
else
    port=${url##*:}
    case $url in http://127.0.0.1:[0-9]*grpc://127.0.0.1:[0-9]*) pass grpc_address ;; *) fail grpc_address "'$url' $(cat .test.served)" ;; esac
    refuses grpc_port_taken 1 "port $port: Address already in use" "$pare" serve "$zoo/mlp.onnx" --port 0 --grpc-port "$port"
    asks grpc_beside 200 '"shape":[1,10]' "${url%%
*}/v2/models/mlp/infer" -d @body.json
    ends
    got=$?
    [ $got = 0 ] && [ ! -s .test.served ] && pass grpc_end || fail grpc_end "exit $got: $(cat .test.served)"
fi

# --- a queue that is full, and the end while a request waits for others ---
starts "$zoo/mlp.onnx" --max-queue 1 --max-delay 60000000
curl -s -o .test.waiting -w '%{http_code}' --max-time 60 "$url/v2/models/mlp/infer" -d @body.json >.test.code &
waiting=$!
for i in $(seq 1 100); do
    curl -s "$url/metrics" | grep -q 'pare_waiting_requests{.*} 1$' && break
    sleep 0.1
done
asks queue_full 503 '{"error":' -D .test.headers "$url/v2/models/mlp/infer" -d @body.json
has 'Retry-After: 1' .test.headers && pass queue_full_after || fail queue_full_after "$(cat .test.headers)"
ends && pass queue_end || fail queue_end "$(cat .test.served)"
wait $waiting
[ "$(cat .test.code)" = 200 ] && has '"shape":[1,10]' .test.waiting && pass queue_answered || fail queue_answered "$(cat .test.code)"

# --- a token ---
echo 'secret-word' >token
echo 'two words' >words
: >nothing
printf 'abc\000def' >zero
refuses pending 2 "max-pending is less than twice" "$pare" serve "$zoo/mlp.onnx" --max-pending 300MiB --port 0
refuses token_zero 1 "zero: expected one word" "$pare" serve "$zoo/mlp.onnx" --token zero --port 0
refuses token_words 1 "words: expected one word" "$pare" serve "$zoo/mlp.onnx" --token words --port 0
refuses token_empty 1 "nothing" "$pare" serve "$zoo/mlp.onnx" --token nothing --port 0
refuses token_missing 1 "none: cannot be opened" "$pare" serve "$zoo/mlp.onnx" --token none --port 0
starts "$zoo/mlp.onnx" --token token
asks token_not_for_health 200 '' "$url/v2/health/ready"
asks token_none 401 "expected the header 'Authorization: Bearer TOKEN'" -D .test.headers "$url/v2/models/mlp"
has 'WWW-Authenticate: Bearer' .test.headers && pass token_challenge || fail token_challenge "$(cat .test.headers)"
for word in secret-wor secret-word2 Secret-word ''; do
    asks "token_wrong_$word" 401 "is not the server's" -H "Authorization: Bearer $word" "$url/v2/models/mlp"
done
asks token_scheme 401 "expected the header 'Authorization: Bearer TOKEN'" -H "Authorization: Basic secret-word" "$url/v2/models/mlp"
asks token_right 200 '"name":"mlp"' -H 'Authorization: Bearer secret-word' "$url/v2/models/mlp"
asks token_any_case 200 '"name":"mlp"' -H 'Authorization: bEARER secret-word' "$url/v2/models/mlp"
asks token_infer 200 '"shape":[1,10]' -H 'Authorization: Bearer secret-word' "$url/v2/models/mlp/infer" -d @body.json
head -c 3000000 /dev/zero >large
asks token_large 401 '{"error":' "$url/v2/models/mlp/infer" --data-binary @large
asks token_large_at_once 401 '{"error":' -H 'Expect:' "$url/v2/models/mlp/infer" --data-binary @large
ends && pass token_end || fail token_end "$(cat .test.served)"

# --- a GPU that config.pbtxt asks for and that is not there ---
mkdir -p chosen/net/1
cp "$zoo/mlp.onnx" chosen/net/1/model.onnx
echo 'instance_group { kind: KIND_GPU gpus: 999 }' >chosen/net/config.pbtxt
refuses no_gpu 1 "net/1/model.onnx: instance_group: |, or set kind: KIND_CPU in config.pbtxt" env CUDA_VISIBLE_DEVICES= "$pare" serve chosen --port 0
echo 'instance_group { kind: KIND_CPU }' >chosen/net/config.pbtxt
starts chosen
echo 'instance_group { kind: KIND_GPU gpus: 999 }' >chosen/net/config.pbtxt
asks no_gpu_load 400 ', or set kind: KIND_CPU in config.pbtxt' -X POST "$url/v2/repository/models/net/load"
asks no_gpu_goes_on 200 '"kind":"KIND_CPU"' "$url/v2/models/net/config"
ends && pass no_gpu_end || fail no_gpu_end "$(cat .test.served)"

# --- a body that is far too large, sent without asking ---
starts "$zoo/mlp.onnx" --max-request 1kB
asks far_too_large 413 '{"error":' -H 'Expect:' "$url/v2/models/mlp/infer" --data-binary @large
ends && pass far_too_large_end || fail far_too_large_end "$(cat .test.served)"

# --- TLS ---
if ! command -v openssl >/dev/null 2>&1; then
    skip tls "openssl is not installed"
    finish
    exit
fi
for name_ in own other; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=IP:127.0.0.1 -keyout $name_.key -out $name_.pem 2>.test.openssl || cat .test.openssl
done
refuses tls_half 2 "--tls-cert and --tls-key come together" "$pare" serve "$zoo/mlp.onnx" --tls-cert own.pem --port 0
refuses tls_wrong_key 1 "own.pem, other.key: |cannot be used" "$pare" serve "$zoo/mlp.onnx" --tls-cert own.pem --tls-key other.key --port 0
refuses tls_no_pem 1 "token, own.key: |cannot be used" "$pare" serve "$zoo/mlp.onnx" --tls-cert token --tls-key own.key --port 0
starts "$zoo/mlp.onnx" --tls-cert own.pem --tls-key own.key --token token
case $url in https://127.0.0.1:[0-9]*) pass tls_address ;; *) fail tls_address "'$url' $(cat .test.served)" ;; esac
asks tls_health 200 '' --cacert own.pem "$url/v2/health/ready"
asks tls_infer 200 '"shape":[1,10]' --cacert own.pem -H 'Authorization: Bearer secret-word' "$url/v2/models/mlp/infer" -d @body.json
asks tls_large 404 '{"error":' --cacert own.pem -H 'Authorization: Bearer secret-word' "$url/v2/models/none/infer" --data-binary @large
asks tls_unknown 000 '' --cacert other.pem "$url/v2/health/ready"
asks tls_plain 000 '' "http${url#https}/v2/health/ready"
ends && pass tls_end || fail tls_end "$(cat .test.served)"
finish
