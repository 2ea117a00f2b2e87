#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --cache of validate, quantize and calibrate: the same results with and without it, whatever is in
# the folder and however many write there.
name=cache
. "$(dirname "$0")/_lib.sh"
data_sets || { finish; exit; }
test=$data/test.h5
train=$data/train.h5
cnn=$zoo/cnn.onnx

# facts of a command without its options and what depends on time and memory
plain() { facts_of "$1" | grep -v '"seconds"\|memory_bytes"'; }
same_facts() {
    if [ "$(plain "$2")" = "$(plain "$3")" ]; then pass "$1"; else fail "$1" "$(diff "$2" "$3" | head -5 | tr '\n' ' ')"; fi
}
same_file() { if cmp -s "$2" "$3"; then pass "$1"; else fail "$1" "$2 and $3 differ"; fi; }
entries() { find "cache/$1" -type f 2>/dev/null | wc -l; }
count_is() { if [ "$(entries "$2")" = "$3" ]; then pass "$1"; else fail "$1" "$(entries "$2") entries, expected $3"; fi; }
quiet() { if [ -s .test.err ]; then fail "$1" "$(head -2 .test.err | tr '\n' ' ')"; else pass "$1"; fi; }
warns() { if has "$2" .test.err; then pass "$1"; else fail "$1" "'$2' is missing in: $(head -2 .test.err | tr '\n' ' ')"; fi; }

# quantize: one calibration for all methods and activations
quantize() { "$pare" quantize "$cnn" -o out.onnx --data "$train" --samples 128 "$@" >.test.out 2>.test.err; }
quantize -q --json a.json && mv out.onnx a.onnx
quantize -q --json b.json --cache cache && mv out.onnx b.onnx
quantize -q --json c.json --cache cache --threads 1 --shuffle 3 && mv out.onnx c.onnx
same_file quantize-first a.onnx b.onnx
same_file quantize-again a.onnx c.onnx
same_facts quantize-facts-first a.json b.json
same_facts quantize-facts-again a.json c.json
count_is quantize-once statistics 1
quantize -q --method entropy --activations u8 && mv out.onnx a.onnx
quantize -q --method entropy --activations u8 --cache cache && mv out.onnx b.onnx
same_file quantize-other-method a.onnx b.onnx
count_is quantize-shared statistics 1
works calibrate "$pare" calibrate "$cnn" --data "$train" --samples 128 -o a.json -q
works calibrate-cached "$pare" calibrate "$cnn" --data "$train" --samples 128 -o b.json -q --cache cache
same_file calibrate-table a.json b.json
count_is calibrate-shared statistics 1
quantize -q --samples 100 --cache cache
count_is other-samples statistics 2
quantize -q --precision fp16 --json a.json && mv out.onnx a.onnx
quantize -q --precision fp16 --cache cache && quantize -q --precision fp16 --cache cache --json b.json
same_file fp16 a.onnx out.onnx
count_is fp16-own statistics 3

# a damaged entry is made again, and said
for entry in cache/statistics/*; do
    truncate -s -1 "$entry"
done
quantize --cache cache && mv out.onnx b.onnx
warns damaged-said 'is cut or was changed; it is made again'
quantize --cache cache
if has 'of the cache' .test.err; then fail mended "$(head -1 .test.err)"; else pass mended; fi
same_file damaged-result b.onnx out.onnx

# validate: the first model's outputs
quantize -q && mv out.onnx int8.onnx
quantize -q --method minmax && mv out.onnx other.onnx
compare() { "$pare" validate "$cnn" --data "$test" --samples 700 "$@" >.test.out 2>.test.err; }
compare int8.onnx -q --json a.json && cp .test.out a.txt
compare int8.onnx -q --json b.json --cache cache && cp .test.out b.txt
compare int8.onnx -q --json c.json --cache cache --threads 3 && cp .test.out c.txt # outputs are the same with any number
same_facts validate-facts-first a.json b.json
same_facts validate-facts-again a.json c.json
same_file validate-table a.txt c.txt
count_is validate-once outputs 1
compare other.onnx int8.onnx -q --json a.json
compare other.onnx int8.onnx -q --json b.json --cache cache
same_facts validate-others a.json b.json
count_is validate-shared outputs 1
compare int8.onnx -q --samples 600 --cache cache
count_is validate-other-samples outputs 2
for entry in cache/outputs/*; do
    printf x | dd of="$entry" bs=1 seek=200 conv=notrunc 2>/dev/null
done
compare int8.onnx --json c.json --cache cache
warns validate-damaged-said 'is cut or was changed; it is made again'
compare int8.onnx -q --json a.json
same_facts validate-damaged a.json c.json

# a folder that cannot be made: said, and the work is done
: >file
compare int8.onnx --json b.json --cache file
warns no-folder 'the cache keeps no outputs'
same_facts no-folder-facts a.json b.json
refuses missing-value 2 '--cache' "$pare" validate "$cnn" int8.onnx --data "$test" --cache

# eight writers on empty folders and one table
rm -rf cache
for i in 1 2 3 4 5 6 7 8; do
    (
        mkdir -p "w$i"
        "$pare" quantize "$cnn" -o "w$i/q.onnx" --data "$train" --samples 128 -q --threads 1 --cache cache &&
            "$pare" validate "$cnn" "w$i/q.onnx" --data "$test" --samples 700 -q --cache cache \
                --threads 1 --append rows.csv &&
            "$pare" bench "w$i/q.onnx" --duration 0 --iterations 2 --warmup 0 --threads 1 -q --cache cache
    ) >"w$i.out" 2>"w$i.err" &
done
wait
bad_words=$(cat w?.err | head -3)
if [ -z "$bad_words" ]; then pass writers-quiet; else fail writers-quiet "$bad_words"; fi
for i in 1 2 3 4 5 6 7 8; do cmp -s int8.onnx "w$i/q.onnx" || fail "writer-$i" "another model"; done
count_is writers-statistics statistics 1
count_is writers-outputs outputs 1
lines=$(wc -l <rows.csv)
fields=$(awk -F, '{ print NF }' rows.csv | sort -u | wc -l)
[ "$lines" = 17 ] && [ "$fields" = 1 ] && pass writers-rows || fail writers-rows "$lines lines, $fields lengths"
left=$(find cache -type f ! -name timing.json ! -path '*/statistics/*' ! -path '*/outputs/*' | head -3)
[ -z "$left" ] && pass writers-leave-nothing || fail writers-leave-nothing "$left"
compare w8/q.onnx -q --json b.json --cache cache --threads 1
compare w8/q.onnx -q --json a.json --threads 1
same_facts writers-facts a.json b.json
finish
