#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# README's commands run, and its table of options is the program's.
name=readme
. "$(dirname "$0")/_lib.sh"
data_sets || exit 0
ln -s "$top/datasets" datasets
mkdir build && ln -s "$pare" build/pare && ln -s "$data" data
sed -n '/^```sh$/,/^```$/p' "$top/README.md" | grep '^build/pare ' >.test.commands
sed -n '/^```yaml$/,/^```$/p' "$top/README.md" | grep -v '^```' >zoo.yaml
number=0
while read -r line; do
    number=$((number + 1))
    sh -c "$line" >.test.out 2>.test.err </dev/null && pass "command_$number" || fail "command_$number" "$line: $(tail -1 .test.err)"
done <.test.commands
[ $number -ge 4 ] && pass commands_found || fail commands_found "$number in README.md"

for command in "data fashion-mnist" "data import" inspect check calibrate quantize prune distill run validate bench report zoo ops doctor; do
    row=$(grep "^| .pare $command" "$top/README.md")
    # shellcheck disable=SC2086 # two words
    "$pare" $command --help >.test.out
    missing=
    for option in $(grep -oE '^ .{2,5}--[A-Za-z0-9-]+' .test.out | grep -oE -e '--[A-Za-z0-9-]+'); do
        has "$option" "$top/README.md" || missing="$missing $option"
    done
    for option in $(printf '%s' "$row" | grep -oE -e '--[A-Za-z0-9-]+'); do
        has "$option" .test.out || missing="$missing $option(unknown)"
    done
    if [ -n "$row" ] && [ -z "$missing" ]; then
        pass "table_$(echo "$command" | tr ' ' _)"
    else
        fail "table_$(echo "$command" | tr ' ' _)" "$missing"
    fi
done
finish
