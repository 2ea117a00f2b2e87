# SPDX-License-Identifier: Apache-2.0
# What the tests of --parallel share, behind _lib.sh: $how is the option's word, $run holds the
# options of every run.
mlp=$zoo/mlp.onnx
cnn=$zoo/cnn.onnx
mpirun() { sh "$top/tests/comm/ranks.sh" "$@"; }

# same NAME SIZE MODEL OPTION...: so many processes write what one does
same() {
    case_=$1_$2 size_=$2 model_=$3
    shift 3
    rm -f one.h5 many.h5
    "$pare" run "$model_" $run "$@" -q -o one.h5 >.test.out 2>.test.err &&
        mpirun "$size_" "$pare" run "$model_" $run "$@" -q -o many.h5 --json facts.json >.test.out 2>.test.err &&
        cmp -s one.h5 many.h5 && [ "$(cat .test.out)" = many.h5 ] && pass "$case_" ||
        fail "$case_" "$(head -2 .test.err | tr '\n' ' ') $(cmp one.h5 many.h5 2>&1)"
}

# judged SIZE: so many processes that share models print and append what one does
judged() {
    case_=validate_$1
    set -- "$1" validate "$cnn" cnn.int8.onnx --data "$data/test.h5" --samples 700 --batch 96
    size_=$1
    shift
    rm -f one.csv many.csv
    if "$pare" "$@" -q --append one.csv >one.txt 2>.test.err &&
        mpirun "$size_" "$pare" "$@" -q --append many.csv --json facts.json --parallel "$how" >many.txt 2>.test.err &&
        cmp -s one.txt many.txt && [ -s many.csv ]; then
        pass "$case_"
    else
        fail "$case_" "$(head -2 .test.err | tr '\n' ' ') $(cmp one.txt many.txt 2>&1)"
    fi
    if command -v python3 >/dev/null 2>&1; then
        works "$case_.facts" python3 -c 'import json, sys
facts = json.load(open("facts.json"))
assert facts["ranks"] == int(sys.argv[2]) and len(facts["models"]) == 2
for model in facts["models"]:
    parts = model[sys.argv[1]]["shards" if sys.argv[1] == "tensor" else "stages"]
    assert len(parts) == facts["ranks"] and all(part["weight_bytes"] for part in parts)' "$how" "$size_"
    else
        skip "$case_.facts" "no python3"
    fi
}

# nan_data: nan.h5 with 600 samples, of which number 550 holds a NaN
nan_data() {
    head -c $((600 * 784 * 4)) /dev/zero >zeros
    printf '\000\000\300\177' | dd of=zeros bs=1 seek=$((550 * 784 * 4)) conv=notrunc 2>/dev/null
    npy_of nan.npy '<f4' '(600, 1, 28, 28)' <zeros
    works nan_data "$pare" data import --npy nan.npy --name input -o nan.h5 -q
    rm -f zeros nan.npy
}

# no_shapes: nonzero.onnx, whose shapes only a run knows; not where protoc is missing
no_shapes() {
    command -v protoc >/dev/null 2>&1 || return 1
    onnx_of nonzero <<MODEL
ir_version: 8 opset_import { version: 17 }
graph { name: "g"
  node { op_type: "Relu" input: "input" output: "a" }
  node { op_type: "NonZero" input: "a" output: "b" name: "find" }
  node { op_type: "Cast" input: "b" output: "y" attribute { name: "to" type: 2 i: 1 } }
  input { name: "input" type { tensor_type { elem_type: 1 shape { dim { dim_param: "n" } dim { dim_value: 1 } dim { dim_value: 28 } dim { dim_value: 28 } } } } }
  output { name: "y" type { tensor_type { elem_type: 1 } } }
}
MODEL
}

# ends SIGNAL RANK: a rank of three that gets this signal ends all of them, and nothing is written
ends() {
    case_=$1_$2
    sh "$top/tests/comm/ranks.sh" 3 "$pare" run "$zoo/vit.onnx" $run -o gone.h5 2>.test.err >.test.out &
    ranks_of 3
    kill "-$1" "$(echo "$ranks" | sed -n "$2p")"
    if wait $!; then fail "$case_" "exit 0"; else pass "$case_"; fi
    for i_ in $(seq 1 100); do
        left=$(for rank in $ranks; do kill -0 "$rank" 2>/dev/null && echo "$rank"; done)
        [ -z "$left" ] && break
        sleep 0.1
    done
    if [ -z "$left" ] && [ ! -e gone.h5 ] && [ -z "$(find . -name 'gone.h5*')" ]; then
        pass "$case_.ends"
    else
        fail "$case_.ends" "left: $left $(find . -name 'gone.h5*')"
    fi
}

# ends_all: each rank interrupted, and two killed
ends_all() {
    for rank in 1 2 3; do
        ends INT $rank
        if [ "$(grep -c '^pare: ' .test.err)" = 1 ] && { [ $rank = 1 ] || has "pare: rank $((rank - 1)) (" .test.err; }; then
            pass "INT_$rank.message"
        else
            fail "INT_$rank.message" "$(cat .test.err)"
        fi
    done
    ends KILL 2
    ends KILL 3
}

# measured: bench of a model that ranks share
measured() {
    bench="bench $zoo/vit.onnx --parallel $how --duration 0.05 --warmup 0 --iterations 4"
    works measured_alone "$pare" $bench
    if has "warning: one process was started" .test.err; then pass measured_alone_says; else fail measured_alone_says "$(cat .test.err)"; fi
    refuses measured_streams 2 "--streams|--parallel" "$pare" $bench --streams 2
    refuses measured_cache 2 "--cache|--parallel" "$pare" $bench --cache times
    refuses measured_how 2 "2 processes|--parallel tensor" mpirun 2 "$pare" bench "$cnn" --duration 0
    for size_ in 2 3; do
        works "measured_$size_" mpirun "$size_" "$pare" $bench --profile p.json --trace t.json --append "b$size_.csv" --json facts.json
        says "measured_$size_.words" throughput
        if [ -s p.json ] && [ -s t.json ] && [ "$(wc -l <"b$size_.csv")" = 2 ]; then pass "measured_$size_.files"; else fail "measured_$size_.files" "$(ls)"; fi
    done
    if command -v python3 >/dev/null 2>&1; then
        works measured_facts python3 -c 'import json, sys
facts = json.load(open("facts.json"))
shared = facts[sys.argv[1]]
parts = shared["shards" if sys.argv[1] == "tensor" else "stages"]
assert facts["ranks"] == len(parts) == 3 and all(part["weight_bytes"] for part in parts)
assert facts["throughput_per_s"] > 0 and facts["latency_ms"]["median"] > 0
assert sys.argv[1] == "tensor" or shared["under_way"] == 5' "$how"
    else
        skip measured_facts "no python3"
    fi
}

# measured_ends RANK: bench where this rank of three is interrupted
measured_ends() {
    case_=measured_INT_$1
    mpirun 3 "$pare" bench "$zoo/vit.onnx" --parallel "$how" --duration 100 --json gone.json >.test.out 2>.test.err &
    ranks_of 3
    sleep 1
    kill -INT "$(echo "$ranks" | sed -n "$1p")"
    if wait $!; then fail "$case_" "exit 0"; else pass "$case_"; fi
    if [ "$(grep -c '^pare: ' .test.err)" = 1 ] && has interrupted .test.err && [ ! -e gone.json ]; then
        pass "$case_.message"
    else
        fail "$case_.message" "$(cat .test.err)"
    fi
}

# refuses_models WORD: what no way to share a model can do; WORD is what it would be cut into
refuses_models() {
    refuses no_folder 1 "no/such" mpirun 2 "$pare" run "$cnn" $run --samples 9 -o no/such/y.h5
    cp "$cnn" net.onnx && mkdir there && cp "$zoo/mobilenet.onnx" there/net.onnx
    other="$pare run net.onnx $run --samples 9 -o $work/no.h5"
    refuses other_model 1 "rank 1 (|another model" mpirun 1 $other : -n 1 --wdir there $other
    if no_shapes; then
        refuses computed_shape 1 "nonzero.onnx|node 'find' (NonZero)|$1" mpirun 2 "$pare" run nonzero.onnx $run --samples 9 -o no.h5
    else
        skip computed_shape "protoc is not installed"
    fi
}

# cannot_write: the disk of the first rank is full; over tcp, whose transport makes no large file of its own
cannot_write() {
    refuses first_cannot_write 1 "no.h5|too large" env OMPI_MCA_btl=tcp,self sh "$top/tests/comm/ranks.sh" 3 sh -c 'ulimit -f 40 && exec "$@"' - "$pare" run "$cnn" $run -q -o no.h5
}
