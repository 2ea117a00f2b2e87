#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where an operator's parts are: file and line of its shape rule, version conversion, gradient, pruning rule
# and lists of kernels. Exit status 1 where a part is not found.
#
#   sh runtime/ops/where.sh [OPERATOR...]      default: every row of ops.inc and unary.inc
cd "$(dirname "$0")/../.." || exit 1
# shellcheck disable=SC2046 # paths of the tree have no blanks
awk -v only=" $* " '
FILENAME ~ /unary\.inc$/ { # rows of three lines; ops.inc includes them
    if (!match($0, /^PARE_UNARY(_INTS|_VECTOR)?\([A-Z]/)) next
    row = $0
    sub(/.*\(/, "", row)
    gsub(/ /, "", row)
    split(row, c, ",")
    listed[c[2]]
    if (only ~ /[^ ]/ && index(only, " " c[1] " ") == 0) next
    n++
    name[n] = c[1]
    wanted[n, 1] = "infer pare_infer_same"
    wanted[n, 3] = "gradient pare_grad_" ($0 ~ /, zero,/ ? "zero" : "unary")
    wanted[n, 5] = "cpu pare_cpu_" c[2]
    wanted[n, 6] = "cuda pare_cuda_" c[2]
    next
}
FILENAME ~ /ops\.inc$/ {
    if (!/^PARE_OP\(/) next
    row = $0
    while (row !~ /\)\)?$/ && (getline line) > 0) row = row " " line
    sub(/^PARE_OP\(/, "", row)
    gsub(/[ "]/, "", row)
    split(row, c, ",")
    if (only ~ /[^ ]/ && index(only, " " c[1] " ") == 0) next
    n++
    name[n] = c[1]
    wanted[n, 1] = "infer pare_infer_" c[7]
    wanted[n, 2] = c[6] == "none" ? "" : "convert pare_upgrade_" c[6]
    wanted[n, 3] = c[10] == "none" ? "" : "gradient pare_grad_" c[10]
    bind = row
    rule = ""
    if (match(bind, /(MAKES|JOINS|MAPS|WORKS)\([a-z_0-9]+/)) {
        rule = substr(bind, RSTART, RLENGTH)
        sub(/.*\(/, "", rule)
    }
    wanted[n, 4] = rule == "" ? "" : "prune pare_prune_bind_" rule
    wanted[n, 5] = "cpu pare_cpu_" c[8]
    wanted[n, 6] = c[9] == "none" ? "" : "cuda pare_cuda_" c[9]
    next
}
# functions and lists by name; lists that a macro makes by its first argument
match($0, /^pare_status pare_(infer|upgrade|grad|prune_bind)_[a-z0-9_]+/) {
    word = substr($0, 13, RLENGTH - 12)
    if ($0 !~ /;$/ && !(word in at)) at[word] = FILENAME ":" FNR
}
match($0, /pare_(cpu|cuda)_[a-z0-9_]+\[\]/) {
    word = substr($0, RSTART, RLENGTH - 2)
    if ($0 !~ /;$/ || $0 ~ /=/) { if (!(word in at)) at[word] = FILENAME ":" FNR }
}
FILENAME !~ /ops\/(table.c|ops.h)$/ && /##/ && match($0, /pare_(infer|grad|cpu|cuda|upgrade|prune_bind)_##/) {
    kind = substr($0, RSTART + 5, RLENGTH - 7)
    makes[kind] = makes[kind] " " FILENAME
    macro[FILENAME, kind] = FNR
}
/^PARE_[A-Z]+\([A-Z]+\)$/ || /^#include "runtime.ops.unary.inc"/ { expands[FILENAME] }
match($0, /^ *[A-Z_]+\([a-z0-9_]+[,)]/) {
    word = substr($0, RSTART, RLENGTH - 1)
    sub(/.*\(/, "", word)
    line_of[FILENAME, word] = FNR
    if (FILENAME ~ /\.h$/) listed[word] # in an X-macro
}
function find(symbol, kind, rest, i, k, file) {
    if (symbol in at) return at[symbol]
    kind = symbol
    sub(/^pare_/, "", kind)
    for (i in makes) {
        if (index(kind, i) != 1) continue
        rest = substr(kind, length(i) + 1)
        k = split(makes[i], file, " ")
        for (; k > 0; k--) {
            if ((file[k], rest) in line_of) return file[k] ":" line_of[file[k], rest]
            if (rest in listed && file[k] in expands) return file[k] ":" macro[file[k], i]
        }
    }
    return ""
}
END {
    for (i = 1; i <= n; i++) {
        out = name[i]
        for (j = 1; j <= 6; j++) {
            if (wanted[i, j] == "") continue
            split(wanted[i, j], w, " ")
            place = find(w[2])
            if (place == "") { place = "?" ; missing++ }
            out = out "  " w[1] " " place
        }
        print out
    }
    if (!n) print "no such operator" > "/dev/stderr"
    exit missing > 0 || !n
}' runtime/ops/unary.inc runtime/ops/ops.inc $(find runtime/ops runtime/cpu runtime/cuda -name '*.c' -o -name '*.cu' -o -name '*.h' -path '*runtime*' | sort)
