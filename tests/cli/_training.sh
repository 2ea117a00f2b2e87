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
