# SPDX-License-Identifier: Apache-2.0
# A server for the tests that ask one; sourced after _lib.sh.

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
