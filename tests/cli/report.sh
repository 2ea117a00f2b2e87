#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare report: one page, CSV and Markdown from facts of any commands; odd names, bad files, many models.
name=report
. "$(dirname "$0")/_lib.sh"

# model NAME HASH MORE: one of validate's models
model() { printf '{"file": "%s", "hash": "%s", "precision": "int8", "bytes": 1000%s}' "$1" "$2" "$3"; }
# validate MODELS: validate's facts
validate() {
    printf '{"schema": 1, "command": "validate", "version": "1", "data": {"file": "t.h5", "samples": 9}, "device": {"name": "cpu"}, "models": [%s]}' "$1"
}
timed=', "top1": 90.5, "top1_interval": [89.5, 91.5], "latency_ms": {"median": 2, "mean": 2, "min": 1, "max": 3}'
kept=', "recipe": "int8 a", "kept": 99.9, "kept_interval": [99.2, 100.5], "top1": 90.4, "drop": 0.1, "drop_interval": [-0.4, 0.6], "latency_ms": {"median": 1, "mean": 1, "min": 1, "max": 1}, "speed_up": 2'
lost=', "recipe": "prune b; int8 a", "kept": 95, "kept_interval": [93, 97], "top1": 86, "drop": 4.5, "drop_interval": [3, 6], "latency_ms": {"median": 1.5, "mean": 1, "min": 1, "max": 1}, "speed_up": 1.33'
step='{"node": "<script>alert(1)</script>", "op_type": "Conv", "kernel": "k", "precision": "f32", "output": "y", "shape": [1, 2], "bytes_in": 1, "bytes_out": 1, "macs": 1, "time_ms": 1, "share": 1}'

# --- verdicts, what bench adds, escaping ---
validate "$(model 'a.onnx' aa "$timed, \"steps\": [$step]"), $(model 'b&<b>|\"*.int8.onnx' bb "$kept"), $(model c.onnx cc "$lost")" >v.json
printf '{"schema": 1, "command": "bench", "version": "1", "model": {"file": "other/c.onnx", "hash": "cc"}, "device": {"name": "cpu"}, "shapes": {}, "latency_ms": {"median": 9, "mean": 9, "min": 9, "max": 9}, "throughput_per_s": 1, "peak_memory_bytes": 4321, "stable": true, "runs": 5}' >b.json
printf '{"schema": 1, "command": "doctor", "version": "1", "cores": 2, "isa": "ISA-1", "libraries": {}}' >d.json
works page "$pare" report b.json v.json d.json -o r.html --csv r.csv --md r.md
says table_too 'c         int8'
for words in 'the floor of 99 % is met' 'the floor of 99 % is missed' '<h3>Calibrated only</h3>' '<h3>Pruned or tuned</h3>' ISA-1 \
    '&lt;script&gt;alert(1)' 'b&amp;&lt;b&gt;|&quot;*.int8' "default-src 'none'" 'class="front"' 'id="facts"' 'What was not measured' \
    'prefers-color-scheme:dark' '@media print' 'aria-label="Every model"'; do
    has "$words" r.html || fail page_words "'$words' is missing"
done
has '<script>alert' r.html && fail escaped "a script came in" || pass escaped
sed -n 's/.*id="facts">\(.*\)<\/script>/\1/p' r.html >island.json
has '\u003cb' island.json && ! has '<' island.json && pass island_escaped || fail island_escaped "$(cat island.json)"
[ "$(cut -d , -f 1 r.csv | sort -u | tr '\n' ' ')" = "pare_results_1 validate " ] && has ',4321,' r.csv && has '"b&<b>|""*.int8.onnx"' r.csv &&
    pass csv || fail csv "$(cat r.csv)"
has '(calibrated only)' r.md && has '|---|---|--:' r.md && has '| b&\<b\>/"\* |' r.md && pass markdown || fail markdown "$(cat r.md)"
has '- **b&\<b\>\|"\*.int8** keeps 99.90 % [99.20, 100.50] of the top-1 of a: the floor of 99 % is met; 1.0x smaller; 2.00x as fast. (calibrated only)' r.md &&
    ! grep -q '^- .*&[a-z]*;' r.md && pass markdown_verdict || fail markdown_verdict "$(grep '^- ' r.md)"
validate "$(model 'a\u009b.onnx' aa "$timed"), $(model 'b\u202e\u007f.onnx' bb "$kept")" >odd_names.json
works odd_names "$pare" report odd_names.json -o odd_names.html --md odd_names.md --csv odd_names.csv
odd=$(printf '\302\233|\342\200\256|\177')
sed -n 's/.*id="facts">\(.*\)<\/script>/\1/p' odd_names.html >odd_island.json
cat .test.out odd_names.md odd_names.csv odd_island.json >odd_views
grep -v '^<script>' odd_names.html >>odd_views
has 'b\\xE2\\x80\\xAE\\x7F' odd_island.json && ! grep -qE "$odd" odd_views && pass odd_names_escaped || fail odd_names_escaped "$(grep -E "$odd" odd_views)"
works no_table "$pare" report d.json
grep -q '^warning: d.json: nothing here has a table' .test.err && [ ! -s .test.out ] && pass no_table_said || fail no_table_said "$(cat .test.out .test.err)"
marks=', "stable": false, "emulated": true, "latency_ms"'
validate "$(model a.onnx aa "$timed"), $(model b.onnx bb "$(echo "$kept" | sed "s/, \"latency_ms\"/$marks/")")" >marks.json
works marks "$pare" report marks.json -o marks.html
has 'whose 16-bit arithmetic the CPU emulates' marks.html && has '* marks one that was unstable' marks.html && has 'The dashed line' marks.html &&
    ! has 'whose 16-bit' r.html && ! has 'was unstable' r.html && has 'The dashed line' r.html && pass notes_of_what_is_there || fail notes_of_what_is_there "$(grep -A9 'How to read' r.html marks.html)"
works another_floor "$pare" report v.json -o f.html --floor 90
has 'the floor of 90 % is met' f.html && ! has 'is missed' f.html && pass floor_said || fail floor_said "$(grep -c floor f.html)"
works picture "$pare" report v.json -o r.svg
has '>c.onnx</text>' r.svg && pass picture_names || fail picture_names "$(head -c 300 r.svg)"
refuses no_picture 1 "x.svg|no picture" "$pare" report d.json -o x.svg
cp r.html first.html && "$pare" report b.json v.json d.json -o r.html >/dev/null
cmp -s first.html r.html && pass same_bytes || fail same_bytes "two pages of the same facts differ"

# --- one model's own pages: tensors, memory, lanes ---
lit=', "steps": [{"node": "n", "op_type": "Conv", "kernel": "k", "precision": "f32", "output": "y_quantized", "shape": [1], "bytes_in": 1, "bytes_out": 1, "live_bytes": 7000, "macs": 1, "time_ms": 1, "share": 1}]'
validate "$(model a.onnx aa "$timed"), $(model b.int8.onnx bb "$kept$lit")" >one.json
printf '{"schema": 1, "command": "quantize", "version": "1", "model": {"file": "a.onnx", "hash": "aa"}, "output": {"file": "b.int8.onnx", "hash": "bb"}, "precision": "int8", "converted_nodes": 1, "float_nodes": 0, "notes": [],
    "ranges": [{"name": "y", "low": -1, "high": 1, "method": "mse", "sqnr_db": 31.5}],
    "histograms": [{"name": "<y>", "low": -1, "high": 1, "method": "mse", "sqnr_db": 31.5, "min": 0, "max": 2, "bins": [9, 4, 0, 1]}]}' >q.json
printf '{"schema": 1, "command": "profile", "version": "1", "model": "b.int8.onnx", "device": "cpu", "time_ms": 1, "steps": [],
    "lanes": [{"stream": 0, "lane": "compute", "name": "n<1>", "start_ms": 1, "time_ms": 2}, {"stream": 1, "lane": "copy in", "name": "x", "start_ms": 0, "time_ms": 1}]}' >p.json
works one_model "$pare" report one.json q.json p.json -o one.html
for words in '&lt;y&gt;' '>31.5 dB</td>' '31.5 dB, range -1 to 1 (mse)' 'at most 7.0 kB' 'stream 0: compute' 'n&lt;1&gt;: 2 ms' 'one run of 3 ms'; do
    has "$words" one.html || fail one_model_words "'$words' is missing"
done
[ "$(grep -o 'fill="var(--c0)"/>' one.html | wc -l)" -ge 3 ] && pass histogram_bins || fail histogram_bins "$(grep -c figure one.html)"

# --- a short axis of latencies has numbers enough to be read; the processor is named with its clock ---
near() { printf '"device": {"name": "cpu", "processor": "Some CPU", "cores": 4, "isa": "AVX2", "mhz": 2999.6}'; }
sed "s/\"device\": {\"name\": \"cpu\"}/$(near)/; s/\"median\": [0-9.]*/\"median\": 0.55/" v.json | sed 's/"median": 0.55/"median": 0.31/' >near.json
works near "$pare" report near.json -o near.svg
[ "$(grep -c 'text-anchor="middle">0\.[0-9]*</text>' near.svg)" -ge 3 ] && pass near_is_read || fail near_is_read "$(grep -o 'middle">[^<]*' near.svg | tr '\n' ' ')"
works processor "$pare" report near.json -o near.html
has '<td>Some CPU, 4 cores, AVX2, 3000 MHz</td>' near.html && pass processor_said || fail processor_said "$(grep -o '<td>[^<]*CPU[^<]*' near.html)"

# --- channels of a pruned model's layers, beside the first model's ---
step() { printf '[{"node": "n%s", "op_type": "Conv", "kernel": "k", "precision": "f32", "output": "%s", "shape": [1, %s, 7, 7], "bytes_in": 1, "bytes_out": 1, "macs": 1, "time_ms": 1, "share": 1}]' "$2" "$1" "$2"; }
validate "$(model a.onnx aa "$timed, \"steps\": $(step y 16)"), $(model b.onnx bb "$kept, \"steps\": $(step y_quantized 13)"), $(model c.onnx cc "$lost, \"steps\": $(step other 12)")" >cut.json
works channels "$pare" report cut.json -o cut.html
has '<th scope="col">channels</th>' cut.html && has '<td data-v="13">13 of 16</td>' cut.html && has '<td>16</td><td' cut.html && has '<td>12</td><td' cut.html &&
    pass channels_said || fail channels_said "$(grep -o '.\{30\}of 16' cut.html)"

# --- files that are none ---
printf '{"schema": 1,\n "command": }' >cut.json
refuses bad_json 1 "cut.json: line 2" "$pare" report v.json cut.json -o x.html
printf '{"traceEvents": []}' >trace.json
refuses no_facts 1 "trace.json: schema is missing; it holds no facts of pare" "$pare" report trace.json -o x.html
printf '[]' >list.json
refuses no_object 1 "list.json|no JSON object" "$pare" report list.json -o x.html
validate "$(model a.onnx aa ', "steps": [{"node": 1}]')" >odd.json
refuses odd_part 1 'odd.json: models[0].steps[0]' "$pare" report odd.json -o x.html
sed 's/"bytes": 1000/"bytes": "1000"/' v.json >text.json
refuses odd_type 1 'text.json: models[0].bytes is of type string, expected integer' "$pare" report text.json -o x.html
sed 's/"command": "validate"/"command": "voldate"/' v.json >other.json
refuses odd_command 1 'other.json: command is "voldate", which this version does not know' "$pare" report other.json -o x.html
refuses same_output 1 "r.csv|--csv|--md" "$pare" report v.json --csv r.csv --md r.csv

# --- many models: 500 networks, each with one that was made of it ---
awk -v q="$kept" -v t="$timed" 'BEGIN {
    for (i = 0; i < 500; i++) {
        a = t; b = q
        sub(/"median": 2/, "\"median\": " 1 + i / 100, a); sub(/"median": 1/, "\"median\": " 0.5 + i / 90, b)
        printf "{\"schema\": 1, \"command\": \"validate\", \"version\": \"1\", \"data\": {\"file\": \"t.h5\", \"samples\": 9}, \"models\": [" >"m" i ".json"
        printf "{\"file\": \"zoo/network-%d.onnx\", \"hash\": \"%032d\", \"precision\": \"fp32\", \"bytes\": %d%s}, ", i, i, 1e6 + i, a >"m" i ".json"
        printf "{\"file\": \"out/network-%d.int8.onnx\", \"hash\": \"%032d\", \"precision\": \"int8\", \"bytes\": %d%s}]}", i, 1000 + i, 3e5 + i, b >"m" i ".json"
        close("m" i ".json")
    }
}'
# shellcheck disable=SC2046 # words
works thousand "$pare" report $(ls | grep '^m[0-9]*.json$') -o many.html
size=$(wc -c <many.html)
[ "$size" -lt 5000000 ] && [ "$(grep -c '^<tr' many.html)" -gt 1000 ] && pass thousand_fit || fail thousand_fit "$size bytes"

# --- in a browser ---
browser=
for word in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v $word)
done
if [ -z "$browser" ]; then
    skip browser "chromium is not installed; PARE_TEST_BROWSER=1 installs it"
    finish
    exit
fi
timeout 60 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr --virtual-time-budget=3000 --dump-dom \
    "file://$PWD/r.html" >dom.html 2>browser.log
if ! has '</html>' dom.html; then
    skip browser "chromium does not run here: $(tail -1 browser.log)"
else
    has 'CONSOLE' browser.log && fail console "$(grep -m1 CONSOLE browser.log)" || pass console
    [ "$(grep -o '<button type="button"' dom.html | wc -l)" -gt 10 ] && pass tables_sort || fail tables_sort "no buttons"
    if ! grep -q 'Chart.js v' r.html; then
        skip chart "built without libjs-chart.js"
    elif grep -q 'id="plot"><canvas' dom.html; then
        pass chart
    else
        fail chart "$(grep -o 'id="plot".\{80\}' dom.html)"
    fi
fi
finish
