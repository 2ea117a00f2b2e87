#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a compiler and keeps what it says in a file; shows it where it fails. usage: FILE COMMAND...
file=$1
shift
"$@" >"$file" 2>&1 && exit 0
status=$?
cat "$file" >&2
rm -f "$file"
exit $status
