# SPDX-License-Identifier: Apache-2.0
# Sourced. fetch_wheels FOLDER REQUIREMENT...: unpacks NVIDIA's wheels from PyPI into FOLDER/cuda, programs
# into FOLDER/cuda/nvidia/cu13/bin. Status 1 and the reason in $why where they cannot be had.

fetch_wheels() {
    wheels_of=$1/cuda
    shift
    [ "$(uname -sm)" = "Linux x86_64" ] || { why="wheels are for Linux x86-64" && return 1; }
    command -v python3 >/dev/null || { why="python3 to fetch them is not there" && return 1; }
    mkdir -p "$wheels_of" || { why="$wheels_of cannot be made" && return 1; }
    pip="python3 -m pip"
    if ! $pip --version >/dev/null 2>&1; then
        [ -x "$wheels_of/venv/bin/python" ] || python3 -m venv "$wheels_of/venv" >"$wheels_of/log" 2>&1 ||
            { why="there is neither pip nor venv" && return 1; }
        pip="$wheels_of/venv/bin/python -m pip"
    fi
    fetched=$wheels_of/wheels.$$
    $pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$fetched" "$@" \
        >"$wheels_of/log" 2>&1 ||
        { why="pip: $(grep -v '^$' "$wheels_of/log" | tail -1 | cut -c1-200)" && rm -rf "$fetched" && return 1; }
    for wheel in "$fetched"/*.whl; do
        python3 -m zipfile -e "$wheel" "$wheels_of" || { why="$wheel cannot be unpacked" && return 1; }
    done
    rm -rf "$fetched"
    chmod -R u+x "$wheels_of/nvidia/cu13/bin" # wheels' mode bits are lost in unpacking
}
