# SPDX-License-Identifier: Apache-2.0
# device.txt, run.txt and benches.csv to results.json.
function quoted(text) {
    gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); gsub(/[\001-\037]/, " ", text)
    return "\"" text "\""
}
function number(text) { return text == "" ? "null" : text }
FNR == 1 { file = FILENAME == ARGV[1] ? 1 : FILENAME == ARGV[2] ? 2 : 3 }
file == 1 { # name=value; other lines are notes
    at = index($0, "=")
    if (at && substr($0, 1, at - 1) ~ /^[a-z_]+$/)
        facts = facts (facts == "" ? "" : ",\n    ") quoted(substr($0, 1, at - 1)) ": " quoted(substr($0, at + 1))
    next
}
file == 2 && /^(PASS|FAIL|SKIP) / {
    name = substr($0, 6); reason = ""
    if (at = index(name, ": ")) { reason = substr(name, at + 2); name = substr(name, 1, at - 1) }
    tests = tests (tests == "" ? "" : ",\n    ") "{\"result\": " quoted(substr($0, 1, 4)) ", \"name\": " quoted(name) ", \"reason\": " quoted(reason) "}"
    next
}
file == 3 && FNR > 1 {
    split($0, f, ",")
    benches = benches (benches == "" ? "" : ",\n    ") "{\"suite\": " quoted(f[1]) ", \"case\": " quoted(f[2]) ", \"batch\": " number(f[3]) ", \"type\": " quoted(f[4]) ", \"who\": " quoted(f[5]) ", \"median_us\": " number(f[6]) ", \"min_us\": " number(f[7]) ", \"spread_percent\": " number(f[8]) ", \"rate\": " number(f[9]) ", \"unit\": " quoted(f[10]) ", \"note\": " quoted(f[11]) "}"
}
END {
    printf "{\n  \"schema\": 1,\n  \"device\": {\n    %s\n  },\n  \"tests\": [\n    %s\n  ],\n  \"benches\": [\n    %s\n  ]\n}\n", facts, tests, benches
}
