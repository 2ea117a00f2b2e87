# SPDX-License-Identifier: Apache-2.0
# The Debian packages that pare is built, demonstrated and tested with; sourced by tools/demo.sh and
# tests/run.sh. packages_install says what is missing before it installs it.

packages_build="build-essential cmake ninja-build pkg-config libdnnl-dev libhdf5-dev
libprotobuf-c-dev protobuf-c-compiler libjansson-dev libxxhash-dev zlib1g-dev libpng-dev
libjpeg62-turbo-dev|libjpeg-dev libjs-chart.js libyaml-dev libllhttp-dev|libhttp-parser-dev libgnutls28-dev
libcurl4-openssl-dev libgrpc-dev"
packages_demo="dataset-fashion-mnist"
packages_test="libcmocka-dev protobuf-compiler python3 python3-venv iproute2 clang lld libclang-rt-dev libomp-dev curl
libopenmpi-dev openmpi-bin"
packages_slurm="slurm-wlm munge"
packages_browser="chromium"

# packages_first TEST NAME|NAME...: prints the first of the names of which the test is true
packages_first() {
    test_=$1
    for name_ in $(echo "$2" | tr '|' ' '); do
        if $test_ "$name_"; then
            echo "$name_"
            return
        fi
    done
}
packages_is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
packages_is_known() { apt-cache show "$1" >/dev/null 2>&1; }

# packages_install NAME|NAME...: installs the missing ones with apt, with sudo when not root; of names with
# a | between them the first that there is. Where that cannot be done it says so and returns: CMake then says
# what it will do without.
packages_install() {
    packages_missing=
    command -v dpkg-query >/dev/null 2>&1 || {
        echo "not a Debian system: install the counterparts of: $*" >&2
        return 0
    }
    for package in "$@"; do
        [ -n "$(packages_first packages_is_installed "$package")" ] || packages_missing="$packages_missing $package"
    done
    [ -n "$packages_missing" ] || return 0
    echo "will install with apt:$packages_missing" >&2
    if [ "$(id -u)" = 0 ]; then
        packages_root=env
    elif command -v sudo >/dev/null 2>&1; then
        packages_root=sudo
    else
        echo "neither root nor sudo: install them yourself; continuing without" >&2
        return 0
    fi
    packages_log=${TMPDIR:-/tmp}/pare-packages.$$
    $packages_root apt-get update -qq >"$packages_log" 2>&1 || true # the lists that are there may do
    packages_chosen=
    for package in $packages_missing; do
        name_=$(packages_first packages_is_known "$package")
        packages_chosen="$packages_chosen ${name_:-$package}"
    done
    # shellcheck disable=SC2086 # a list of words
    if $packages_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends $packages_chosen >>"$packages_log" 2>&1; then
        rm -f "$packages_log"
    else
        tail -5 "$packages_log" >&2
        rm -f "$packages_log"
        echo "apt could not install all of them; continuing with what is there" >&2
    fi
}
