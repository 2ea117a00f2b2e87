# SPDX-License-Identifier: Apache-2.0
# ctest -V output to one line per test: PASS|FAIL|SKIP prefix/program/case: reason.
# A program that reports no cases gives one line for itself: PASS where it said or asserted something
# on its own (not cmocka), FAIL where it ran nothing and printed nothing.
# must_fail: the one program whose cases fail on purpose, so that a harness that sees no failure is seen.
function emit(word, name, reason) {
    line = word " " prefix name
    print reason == "" ? line : line ": " reason
}
function text_of(line) { sub(/^[0-9]+: ?/, "", line); return line }

/^ *Start +[0-9]+: / { id = $2; sub(":", "", id); title[id] = $3; next }

/^[0-9]+: \[==========\] Running / { id = $1; sub(":", "", id); cmocka[id] = 1; next }
/^[0-9]+: \[ RUN      \]/ { id = $1; sub(":", "", id); said[id] = ""; next }
/^[0-9]+: \[       OK \]/ { id = $1; sub(":", "", id); cases[id] = cases[id] "PASS " $NF "\n"; next }
/^[0-9]+: \[  SKIPPED \]/ {
    id = $1; sub(":", "", id)
    if (!index(cases[id], " " $NF)) cases[id] = cases[id] "SKIP " $NF " " said[id] "\n"
    next
}
/^[0-9]+: \[  FAILED  \]/ {
    id = $1; sub(":", "", id)
    # the list at the end repeats the failed ones
    if (!(id in over)) { cases[id] = cases[id] "FAIL " $NF " " said[id] "\n"; failed[id] = 1 }
    next
}
/^[0-9]+: \[==========\].*run/ { id = $1; sub(":", "", id); over[id] = 1; next }
/^[0-9]+: \[  PASSED  \]/ { id = $1; sub(":", "", id); over[id] = 1; next }
/^[0-9]+: (PASS|FAIL|SKIP) / { # programs that speak the same lines
    id = $1; sub(":", "", id); line = text_of($0)
    cases[id] = cases[id] line "\n"
    if (line ~ /^FAIL/) failed[id] = 1
    next
}
/^[0-9]+: / {
    id = $1; sub(":", "", id); line = text_of($0)
    if (line ~ /[^ ]/ && line !~ /^(Test command|Working Dir|Test timeout|Environment)/) {
        last[id] = line
        if (said[id] == "") said[id] = line
    }
    next
}
/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
    id = $0; sub(/^[^#]*#/, "", id); sub(/:.*/, "", id)
    name = title[id]
    if ($0 ~ /Passed/) good = 1; else good = 0
    if ($0 ~ /\*\*\*Skipped/ || $0 ~ /Not Run \(Disabled\)/) { emit("SKIP", name, last[id]); next }
    if (name == must_fail) {
        if (good && failed[id]) emit("PASS", name, "fails, as it must")
        else emit("FAIL", name, "no failure was seen: the harness is broken")
        next
    }
    if (good && failed[id]) { emit("FAIL", name, "a case failed, but the program ended well"); good = 0 }
    n = split(cases[id], line_of, "\n")
    for (i = 1; i < n; i++) {
        word = substr(line_of[i], 1, 4); rest = substr(line_of[i], 6)
        at = index(rest, " ")
        if (at && at < length(rest)) { reason = substr(rest, at + 1); rest = substr(rest, 1, at - 1) }
        else { reason = ""; sub(/ $/, "", rest) }
        sub(/:$/, "", rest)
        emit(word, name "/" rest, reason)
    }
    if (!good && !failed[id]) {
        why = $0; sub(/.*\*\*\*/, "", why); sub(/ +[0-9.]+ sec.*/, "", why)
        emit("FAIL", name, why "; " last[id])
    }
    if (good && n <= 1) {
        if ((id in last) && !(id in cmocka)) emit("PASS", name, "")
        else emit("FAIL", name, "it ran no case")
    }
}
