#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare load against pare serve: counts, facts and messages, never times.
name=load
. "$(dirname "$0")/_lib.sh"

# --- refused before anything is sent ---
refuses no_url 2 "usage: pare load URL" "$pare" load
refuses no_model 2 "--model NAME is needed" "$pare" load http://localhost:1 --data none.h5 --rate 1
refuses no_data 2 "--data F.h5 is needed" "$pare" load http://localhost:1 --model mlp --rate 1
refuses no_rate 2 "--rate poisson:A,B,... is needed" "$pare" load http://localhost:1 --model mlp --data none.h5
for rate in poisson:0 constant:0 0 poisson: -1 ten poisson:1,; do
    refuses "rate_$rate" 2 "--rate $rate: expected poisson:A,B" "$pare" load http://localhost:1 --model mlp --data none.h5 --rate "$rate"
done
refuses percentile 2 "--percentile 101" "$pare" load http://localhost:1 --model mlp --data none.h5 --rate 1 --percentile 101
refuses duration 2 "--duration 0: expected" "$pare" load http://localhost:1 --model mlp --data none.h5 --rate 1 --duration 0
"$pare" load localhost:1 --model mlp --data none.h5 --rate 1 >.test.out 2>.test.err
if has 'no HTTP client' .test.err; then
    skip all "$(cat .test.err)"
    finish
    exit
fi
refuses no_scheme 2 "localhost:1: expected http://HOST:PORT" "$pare" load localhost:1 --model mlp --data none.h5 --rate 1
refuses no_server 1 "http://localhost:1: no answer|connect" "$pare" load http://localhost:1 --model mlp --data none.h5 --rate 1

# --- a server ---
loading=
. "$top/tests/cli/_server.sh"
trap 'kill $server $loading 2>/dev/null' EXIT
starts "$zoo/mlp.onnx" "$zoo/cnn.onnx"
if [ -z "$url" ] && has 'no HTTP library' .test.served; then
    skip server "$(cat .test.served)"
    finish
    exit
fi
if ! command -v python3 >/dev/null 2>&1; then
    skip server "python3 is not installed; it makes the samples"
    finish
    exit
fi
# 24 samples of gray, one brighter than the other, and labels
python3 -c 'import struct, sys
for i in range(24): sys.stdout.buffer.write(struct.pack("<784f", *[i / 24] * 784))' | npy_of x.npy '<f4' '(24, 1, 28, 28)'
python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<24q", *[i % 10 for i in range(24)]))' | npy_of y.npy '<i8' '(24,)'
python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<24q", *[10] * 24))' | npy_of ten.npy '<i8' '(24,)'
python3 -c 'import sys; sys.stdout.buffer.write(bytes(33 * 3136))' | npy_of large.npy '<f4' '(33, 1, 28, 28)'
python3 -c 'import sys; sys.stdout.buffer.write(bytes(24 * 4))' | npy_of flat.npy '<f4' '(24, 1)'
works data "$pare" data import -q -o d.h5 --npy x.npy y.npy
works data_no_labels "$pare" data import -q -o bare.h5 --npy x.npy
works data_ten "$pare" data import -q -o ten.h5 --npy x.npy ten.npy
works data_flat "$pare" data import -q -o flat.h5 --npy flat.npy

# load MODEL DATA WORD...: a load without a warm-up
load() {
    model_=$1 data_=$2
    shift 2
    "$pare" load -q "$url" --model "$model_" --data "$data_" --warmup 0 --timeout 60 "$@"
}
# fact NAME TEXT: facts.json has such a line
fact() {
    if grep -qE -e "$2" facts.json; then pass "$1"; else fail "$1" "'$2' is not in: $(head -c 600 facts.json)"; fi
}
refuses only_warm_up 2 "at 0.5 per second no request is due in the 0.5 s after the warm-up" load mlp d.h5 --rate constant:0.5 --duration 0.5 --warmup 1000
refuses wrong_model 1 "$url: model 'resnet': HTTP 404: |'resnet'" load resnet d.h5 --rate 1
refuses wrong_version 1 "$url: model 'mlp': HTTP 404: " load mlp d.h5 --rate 1 --model-version 9
refuses wrong_map 1 "--map pixels=/input|'input'" load mlp d.h5 --rate 1 --map pixels=/input
refuses wrong_shape 1 "flat.h5|has shape [24,1]|input 'input'" load mlp flat.h5 --rate 1
refuses no_file 1 "none.h5" load mlp none.h5 --rate 1
refuses no_samples 1 "d.h5: 0 samples" load mlp d.h5 --rate 1 --range 3:3
refuses zero_samples 1 "d.h5: 0 samples were asked for (--samples); at least one is needed, 1000 are advised" load mlp d.h5 --rate 1 --samples 0
refuses few_samples 1 "d.h5: 24 samples, --batch 25" load mlp d.h5 --rate 1 --batch 25
works data_large "$pare" data import -q -o large.h5 --npy large.npy
refuses large_batch 1 "$url: model 'mlp': the first request failed: HTTP 400|33 samples" load mlp large.h5 --rate 1 --batch 33
refuses wrong_label 1 "ten.h5: /labels: |label 10, expected 0 to 9|'mlp'" load mlp ten.h5 --rate 1
refuses too_many 2 "more than 100000000 requests" load mlp d.h5 --rate 1e6 --duration 1000
refuses none_due 2 "no request is due" load mlp d.h5 --rate poisson:0.001 --duration 0.001

works constant load mlp d.h5 --rate constant:40,80 --duration 1 --plan 1000 --json facts.json
says constant_knee "knee  not known: p99 needs 1000 answers"
if has 'note  ' .test.out; then fail quiet_has_no_notes "$(grep note .test.out)"; else pass quiet_has_no_notes; fi
fact constant_note 'p99 is not given: it needs 1000 answers, there are'
says constant_head "offered/s  sent  answered  shed  failed"
[ "$(grep -c '"offered_per_s"' facts.json)" = 2 ] && pass rows || fail rows "$(cat facts.json)"
for n in 40 80; do fact "sent_$n" "\"sent\": $n,"; fact "answered_$n" "\"answered\": $n,"; done
fact none_shed '"shed": 0'
fact none_failed '"failed": 0'
fact samples '"top1_samples": 24'
fact same_answers '"top1_changed": 0'
fact mean_batch '"mean_batch": [1-9]'
fact batches '"most": 1,'
fact plan '"text": "not known for 1000 per second'
if grep -q '"first_error"' facts.json; then fail no_error "$(cat facts.json)"; else pass no_error; fi
works report_reads "$pare" report facts.json -o r.html
says report_table "offered/s  sent  answered  shed  failed"
says report_notes "note  40/s: p99 is not given"
works report_quiet "$pare" report -q facts.json
if has 'note  ' .test.out; then fail report_quiet_notes "$(grep note .test.out)"; else pass report_quiet_notes; fi
[ "$(grep -c '<title>median at ' r.html)" = 2 ] && has '<h2>Under load</h2>' r.html && pass report_picture || fail report_picture "$(grep -c title r.html)"

has '>runs by their samples<' r.html && [ "$(grep -c 'of each model against' r.html)" = 0 ] && pass report_batches || fail report_batches "$(grep -c svg r.html)"
sed 's/"model": "mlp"/"model": "other <net>"/' facts.json >other.json
works report_reads_both "$pare" report facts.json other.json -o r.html
has 'aria-label="Latency of each model' r.html && has 'other &lt;net&gt; at 80 per second' r.html && pass report_joint || fail report_joint "$(grep -c svg r.html)"
grep -q '^<p class="soft">2 loads</p>$' r.html && ! has 'SQNR' r.html && has 'Knee: the highest offered rate' r.html && pass report_head ||
    fail report_head "$(grep -m3 'class="soft"' r.html)"
sed 's|"url": "http:|"url": "http://other:|' facts.json >there.json
cp facts.json again.json
works report_names "$pare" report facts.json again.json there.json -o r.html
has ">mlp at $url, facts.json</text>" r.html && has ">mlp at $url, again.json</text>" r.html && grep -q '>mlp at http://other:[^,]*</text>' r.html &&
    pass report_legend || fail report_legend "$(grep -o '>mlp[^<]*</text>' r.html)"
refuses plan_zero 2 "--plan 0" load mlp d.h5 --rate 1 --plan 0

# --- the same accuracy as pare validate ---
top1=$(grep -m1 '"top1":' facts.json)
works validate "$pare" validate -q "$zoo/mlp.onnx" --data d.h5 --any-accuracy --json v.json
[ -n "$top1" ] && [ "$(echo $top1)" = "$(echo $(grep -m1 '"top1":' v.json))" ] && pass same_accuracy ||
    fail same_accuracy "$top1, validate: $(grep -m1 '"top1":' v.json)"

# --- arrivals are a function of the seed ---
dues() { grep -o '"due": [0-9]*' facts.json | tr '\n' ' '; }
works seed load mlp d.h5 --rate poisson:60,90 --duration 1 --seed 5 --json facts.json
first=$(dues)
works seed_again load mlp d.h5 --rate poisson:60,90 --duration 1 --seed 5 --json facts.json
[ "$first" = "$(dues)" ] && pass same_seed || fail same_seed "$first, then $(dues)"
works bare load mlp bare.h5 --rate constant:20 --duration 1 --batch 4 --json facts.json
fact bare_sent '"sent": 20,'
fact bare_batch '"batch": 4,'
fact bare_labels '"labels": false'
if grep -q '"top1"' facts.json; then fail bare_top1 "$(cat facts.json)"; else pass bare_top1; fi
works version load cnn d.h5 --rate constant:10 --duration 1 --model-version 1 --connections 1 --json facts.json
fact version_answered '"answered": 10,'

# --- cut short: by a signal, by the end of the server ---
# computed: samples that the server's mlp has computed
computed() {
    python3 -c 'import json, sys, urllib.request
print(json.load(urllib.request.urlopen(sys.argv[1]))["model_stats"][0]["inference_count"])' "$url/v2/models/mlp/stats"
}
# begins RATES: a long load behind this script, in $loading, which has been answered to
begins() {
    before=$(computed)
    "$pare" load -q "$url" --model mlp --data d.h5 --warmup 0 --rate "$1" --duration 600 --json facts.json >.test.out 2>.test.err &
    loading=$!
    for i in $(seq 1 300); do
        [ "$(computed)" -gt $((before + 10)) ] && break
        sleep 0.1
    done
}
begins constant:50
kill -INT $loading
wait $loading
got=$?
[ $got = 1 ] && has 'pare: interrupted' .test.err && [ "$(grep -c . .test.err)" = 1 ] && pass interrupted ||
    fail interrupted "exit $got: $(cat .test.err)"
fact interrupted_row "cut short after"
fact interrupted_facts '"answered": [1-9]'
begins constant:50,60
ends && pass end || fail end "$(cat .test.served)"
wait $loading
got=$?
[ $got = 1 ] && has "$url: model 'mlp': the server has ended" .test.err && [ "$(grep -c . .test.err)" = 1 ] && pass ended ||
    fail ended "exit $got: $(cat .test.err)"
fact ended_row "cut short after"
fact ended_facts '"answered": [1-9]'

# --- no answer in time: the server holds requests longer than the timeout, but for the first one ---
starts "$zoo/mlp.onnx" --max-delay 3000000
works late "$pare" load "$url" --model mlp --data bare.h5 --warmup 0 --rate constant:20 --duration 0.5 --timeout 1 --json facts.json
fact late_failed '"failed": [1-9]'
fact late_first '"first_error": "no answer within 1 s of when it was due"'
ends || fail late_end "$(cat .test.served)"

# --- a queue that is full, a token ---
echo 'secret-word' >token
echo 'two words' >words
starts "$zoo/mlp.onnx" --max-queue 1 --max-delay 300000 --token token
refuses token_none 1 "$url: model 'mlp': HTTP 401" load mlp d.h5 --rate 1
refuses token_words 1 "words: expected one word" load mlp d.h5 --rate 1 --token words
works shed load mlp d.h5 --rate constant:50 --duration 2 --token token --json facts.json
fact shed_sent '"sent": 100,'
fact shed_counted '"shed": [1-9]'
fact shed_none_failed '"failed": 0,'
ends || fail token_end "$(cat .test.served)"

# --- TLS ---
if command -v openssl >/dev/null 2>&1; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=IP:127.0.0.1 -keyout own.key -out own.pem 2>.test.openssl || cat .test.openssl
    starts "$zoo/mlp.onnx" --tls-cert own.pem --tls-key own.key
    refuses tls_unknown 1 "$url: no answer: |certificate" load mlp d.h5 --rate 1
    works tls load mlp d.h5 --rate constant:20 --duration 1 --tls-ca own.pem --json facts.json
    fact tls_answered '"answered": 20,'
    ends || fail tls_end "$(cat .test.served)"
else
    skip tls "openssl is not installed"
fi
finish
