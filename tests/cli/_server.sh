# SPDX-License-Identifier: Apache-2.0
# A server for the tests that ask one; sourced after _lib.sh.

# emulated: the program with the emulated GPU; where it or a tool is not there, the test ends with its reason
emulated() {
    pare=$top/build/tests/simt/pare_emulated
    if [ ! -x "$pare" ]; then
        skip all "$pare is not built"
        exit 0
    fi
    for tool in curl python3; do
        command -v $tool >/dev/null 2>&1 && continue
        skip all "$tool is not installed"
        exit 0
    done
}
# starts WORD...: a server with these words; sets server and url, which is empty where it does not listen
starts() {
    : >.test.url
    "$pare" serve --port 0 "$@" >.test.url 2>.test.served &
    server=$!
    for i in $(seq 1 600); do
        url=$(cat .test.url)
        [ -n "$url" ] && break
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
}
# ends: its exit status
ends() {
    kill -TERM "$server"
    wait "$server"
}
# asks NAME STATUS WORD CURL-ARGUMENT...
asks() {
    case_=$1 status_=$2 word_=$3
    shift 3
    rm -f .test.body
    got_=$(curl -s -o .test.body -w '%{http_code}' --max-time 60 "$@")
    if [ "$got_" = "$status_" ] && { [ -z "$word_" ] || has "$word_" .test.body; }; then
        pass "$case_"
    else
        fail "$case_" "$got_, expected $status_ with '$word_': $(head -c 300 .test.body)"
    fi
}
