#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a zoo leaves behind: tables as one validate would print them, ranking, failures, a page; the same
# bytes from another run; --diff.
name=zoo_report
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
mkdir zoo one two
cp "$top/datasets/zoo/mlp.onnx" "$top/datasets/zoo/cnn.onnx" zoo/
head -c 3000 zoo/mlp.onnx >zoo/torn.onnx
cat >demo.yaml <<END
models:
  - files: [zoo/*.onnx]
data: $data/train.h5
test: $data/test.h5
samples: 300
latency: false
variants:
  - name: int8
    steps: [quantize --samples 100]
  - name: half
    steps: [quantize --precision fp16]
goals: {size: 600kB}
END
(cd one && "$pare" zoo ../demo.yaml -o out -q --threads 1 >../one.txt 2>../one.err)
status=$?
"$pare" zoo --help >help.txt
grep -q 'ZOO.yaml' help.txt || fail help "$(head -3 help.txt)"
[ $status = 1 ] && [ -s one/out/summary.json ] && pass run || fail run "exit $status: $(tail -2 one.err)"

# --- the tables are those of one validate over all ---
for net in mlp cnn; do
    "$pare" validate zoo/$net.onnx one/out/models/$net.int8.onnx one/out/models/$net.half.onnx --data "$data/test.h5" \
        --samples 300 -q >$net.txt 2>/dev/null
    sed 's/  */ /g; s/ $//' one.txt >.test.all
    sed '1d; s/  */ /g; s/ $//' $net.txt | grep "^$net " >.test.rows
    missing=
    while read -r row; do grep -qxF -e "$row" .test.all || missing="$missing|$row"; done <.test.rows
    [ "$(wc -l <.test.rows)" = 3 ] && [ -z "$missing" ] && pass "table_$net" || fail "table_$net" "$missing not in: $(head -9 one.txt)"
done
grep -q '^variant  *done  *reach goals' one.txt && grep -q '^int8  *2/3  *2 ' one.txt && grep -q '^half  *2/3  *1 ' one.txt &&
    pass ranking || fail ranking "$(grep -A3 '^variant' one.txt)"
has '3 of 6 tasks reach the goals; bad model: 2; goal missed: 1' one.txt && has 'torn.int8: bad model: ../zoo/torn.onnx' one.txt &&
    has '    pare quantize ../zoo/torn.onnx ' one.txt && pass failures || fail failures "$(tail -9 one.txt)"
has 'cnn.half: goal missed: size 845 kB, at most 600 kB wanted (245 kB over)' one.txt && pass goals || fail goals "$(grep missed one.txt)"
command_=$(sed -n '/^torn.int8/{n;s/^ *//p;}' one.txt)
(cd one && sh -c "$(echo "$command_" | sed "s,^pare,$pare,")" >/dev/null 2>../again.err)
[ $? = 1 ] && has 'torn.onnx' again.err && pass reproduced || fail reproduced "$command_: $(cat again.err)"

# --- all views say it ---
[ "$(wc -l <one/out/results.csv)" = 7 ] && grep -q '^pare_zoo_1,model,variant,class,.*,device,latency_ms,.*,seconds,cpu_seconds,peak_bytes$' one/out/results.csv &&
    grep -q '^demo,mlp,int8,done,,models/mlp.int8.onnx,' one/out/results.csv && pass csv || fail csv "$(head -2 one/out/results.csv)"
for words in '<h1>Zoo demo</h1>' '<h2>Ranking</h2>' '<h2>Best of each model</h2>' '<h2>What failed</h2>' 'aria-label="Every model"' \
    '<td>bad model</td>' '<code>pare quantize ../zoo/torn.onnx' 'What was not measured'; do
    has "$words" one/out/report.html || fail page "'$words' is missing"
done
order=$(grep -o '<h2>[^<]*' one/out/report.html | head -5 | tr '\n' ' ')
[ "$order" = '<h2>Ranking <h2>Best of each model <h2>Verdicts <h2>What failed <h2>Every model ' ] && pass page_order || fail page_order "$order"
has '## Ranking' one/out/report.md && has '| mlp | int8 |' one/out/report.md && pass markdown || fail markdown "$(head -20 one/out/report.md)"
"$pare" report one/out/steps/*/facts.json -q >.test.out 2>.test.err && pass facts_make_reports || fail facts_make_reports "$(head -1 .test.err)"

# --- another run in another order, with other numbers of threads ---
(cd two && "$pare" zoo ../demo.yaml -o out -q --threads 3 --jobs 2 --append ../grown.csv >../two.txt 2>/dev/null)
[ "$(wc -l <grown.csv)" = 9 ] && [ "$(grep -c ',mlp.half,\|,cnn.int8,\|mlp.half.onnx\|cnn.int8.onnx' grown.csv)" = 2 ] &&
    pass append || fail append "$(cat grown.csv)"
columns='import csv, sys
for row in csv.reader(open(sys.argv[1])): print(row[:25])'
same=1
if command -v python3 >/dev/null; then
    python3 -c "$columns" one/out/results.csv >one.csv && python3 -c "$columns" two/out/results.csv >two.csv
    cmp -s one.csv two.csv && [ -s one.csv ] || same=0
fi
sed '/^variant/,$d' one.txt >one.top && sed '/^variant/,$d' two.txt >two.top
cmp -s one.top two.top && [ -s one.top ] && [ $same = 1 ] && pass same_tables || fail same_tables "$(diff one.top two.top | head -3)"
cp -r one/out/report.md first.md && cp one/out/report.html first.html
(cd one && "$pare" zoo ../demo.yaml -o out -q --threads 1 --merge >../merged.txt 2>/dev/null)
cmp -s one.txt merged.txt && cmp -s first.md one/out/report.md && cmp -s first.html one/out/report.html && pass same_bytes ||
    fail same_bytes "merging again changes the tables"

# --- what changed between two runs ---
works diff_equal "$pare" zoo --diff one/out two/out --json equal.json
says diff_count '6 tasks are equal (2 of them fail in both)'
cp -r two/out worse
sed -i '0,/"bytes": [0-9]*/s//"bytes": 99999999/; s/"drop": [-0-9.e]*,/"drop": 9.5,/' worse/summary.json
"$pare" zoo --diff one/out worse --json worse.json >.test.out 2>.test.err
[ $? = 1 ] && has 'regression' .test.err && sed -n 1p .test.out | grep -q '^[0-9]* regressions:$' && sed -n 2p .test.out | grep -q 'drop .* -> +9.50 points, outside' &&
    pass diff_worse || fail diff_worse "$(cat .test.err .test.out)"
has '"what": "drop"' worse.json && pass diff_json || fail diff_json "$(head -3 worse.json)"
"$pare" zoo --diff worse one/out >.test.out 2>.test.err && sed -n 1p .test.out | grep -q '^[0-9]* improvements*:$' && pass diff_better || fail diff_better "$(head -3 .test.out)"
sed '0,/"model": "cnn"/s//"model": "other"/' two/out/summary.json >.test.summary && mkdir -p renamed && mv .test.summary renamed/summary.json
works diff_only "$pare" zoo --diff one/out renamed
says diff_only_named 'only in renamed: other.int8'

refuses diff_no_zoo 1 "zoo|holds no summary.json; expected the folder of a zoo that ran" "$pare" zoo --diff one/out zoo
refuses diff_nowhere 1 "nowhere" "$pare" zoo --diff one/out nowhere
mkdir cut other && head -c 500 one/out/summary.json >cut/summary.json && sed 's/"schema": 1/"schema": 2/' one/out/summary.json >other/summary.json
refuses diff_cut 1 "cut/summary.json: line" "$pare" zoo --diff one/out cut
refuses diff_schema 1 "other/summary.json: schema is 2, which this version does not know" "$pare" zoo --diff other one/out
finish
