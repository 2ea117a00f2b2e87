# SPDX-License-Identifier: Apache-2.0
# What the tests of trainings by several processes share. $how: options that several processes get and one does not.

mpirun() { sh "$top/tests/comm/ranks.sh" "$@"; }
lines() { cat "$1" 2>/dev/null | wc -l; }

# same NAME: model, log and checkpoint out.* are those of whole.*
same() {
    if cmp -s whole.onnx out.onnx && cmp -s whole.jsonl out.jsonl && cmp -s whole/checkpoint.pare out/checkpoint.pare; then
        pass "$1"
    else
        fail "$1" "$(cmp whole.onnx out.onnx 2>&1) $(cmp whole.jsonl out.jsonl 2>&1) $(cmp whole/checkpoint.pare out/checkpoint.pare 2>&1)"
    fi
}

# trains_alike NAME SIZES OPTION...: so many processes train as one does
trains_alike() {
    training_=$1 sizes_=$2
    shift 2
    rm -rf whole whole.onnx whole.jsonl
    works "$training_" "$pare" distill -q "$@" -o whole.onnx --log whole.jsonl --checkpoint whole
    for size_ in $sizes_; do
        rm -rf out out.onnx out.jsonl
        # shellcheck disable=SC2086 # a list of words
        works "${training_}_$size_" mpirun "$size_" "$pare" distill -q "$@" $how -o out.onnx --log out.jsonl --checkpoint out
        same "${training_}_bytes_$size_"
    done
}

# killed_on_its_way NAME SIZE LINES OPTION...: the last of so many processes is killed once the log has more lines; a
# checkpoint stays
killed_on_its_way() {
    killed_=$1 size_=$2 lines_=$3 dead_=no
    shift 3
    # shellcheck disable=SC2086 # a list of words
    mpirun "$size_" $distill "$@" -q -o out.onnx --log out.jsonl --checkpoint out --checkpoint-every 3 --resume >.test.out 2>.test.err &
    process_of $((size_ - 1))
    while [ "$(lines out.jsonl)" -le "$lines_" ] && kill -0 $! 2>/dev/null; do sleep 0.01; done
    [ -n "$process" ] && kill -KILL "$process" && dead_=yes
    wait $!
    got_=$?
    if [ $got_ != 0 ] && [ $dead_ = yes ] && [ ! -e out.onnx ] && [ -e out/checkpoint.pare ]; then
        pass "$killed_"
    else
        fail "$killed_" "exit $got_, $(lines out.jsonl) lines, $(ls)"
    fi
}

# stopped NAME SIZE: the second of so many processes is asked to stop: all stop, and the best so far is written
stopped() {
    for try_ in 1 2 3 4 5; do # it may end before it is asked
        rm -rf out out.onnx out.jsonl
        # shellcheck disable=SC2086 # a list of words
        mpirun "$2" $distill $how -o out.onnx --log out.jsonl --checkpoint out >.test.out 2>.test.err &
        process_of 1
        while [ "$(lines out.jsonl)" -le 20 ] && kill -0 $! 2>/dev/null; do sleep 0.01; done
        kill -INT "$process" 2>/dev/null
        wait $!
        got_=$?
        has "same command with --resume" .test.err && break
    done
    if [ $got_ = 3 ] && has "same command with --resume" .test.err && "$pare" check out.onnx >/dev/null 2>&1; then
        pass "$1"
    else
        fail "$1" "exit $got_: $(cat .test.err)"
    fi
}
