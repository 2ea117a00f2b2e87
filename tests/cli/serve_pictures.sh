#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pare serve with pictures as inputs: a JPEG as it is in a body, one as a string, what is wrong with it.
name=serve_pictures
. "$(dirname "$0")/_lib.sh"
. "$top/tests/cli/_server.sh"
if ! command -v curl >/dev/null 2>&1; then
    skip all "curl is not installed"
    exit 0
fi
# 2 x 2 pixels of one colour, about (200, 100, 50)
base64 -d >small.jpg <<'END'
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCAsICQoKCgoKBggLDAsKDAkKCgr/
2wBDAQICAgICAgUDAwUKBwYHCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgr/wAARCAACAAIDASIAAhEBAxEB/8QAFQAB
AQAAAAAAAAAAAAAAAAAAAAX/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QAFAEBAAAAAAAAAAAAAAAAAAAACP/EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAMAwEAAhED
EQA/AJ4Armw//9k=
END
onnx_of pass <<'END'
ir_version: 7
opset_import { version: 13 }
graph {
  node { op_type: "Identity" input: "x" output: "y" }
  input { name: "x" type { tensor_type { elem_type: 2 shape { dim { dim_param: "n" } dim { dim_value: 3 }
          dim { dim_value: 2 } dim { dim_value: 2 } } } } }
  output { name: "y" type { tensor_type { elem_type: 2 shape { dim { dim_param: "n" } dim { dim_value: 3 }
           dim { dim_value: 2 } dim { dim_value: 2 } } } } }
}
END
[ -s pass.onnx ] || { skip all "protoc is not installed"; exit 0; }
refuses bad_word 2 "--preprocess: 'flip 1': 'flip 1': expected resize, crop" "$pare" serve pass.onnx --preprocess 'flip 1' --port 0
refuses bad_side 1 "pass.onnx: preprocess: no input takes pictures of 3 x 224 x 224" "$pare" serve pass.onnx --preprocess 'resize 256' --port 0
refuses no_channels 1 "mlp.onnx: preprocess: no input takes pictures" "$pare" serve "$zoo/mlp.onnx" --preprocess 'crop 28' --port 0
starts pass.onnx --preprocess 'resize 2, crop 2'
if [ -z "$url" ] && has 'no HTTP library' .test.served; then
    skip all "no HTTP library"
    exit 0
fi
trap 'kill $server 2>/dev/null' EXIT
asks metadata 200 '"datatype":"BYTES","shape":[-1,1]' "$url/v2/models/pass"
infer=$url/v2/models/pass/infer
asks body 200 '"shape":[1,3,2,2]' "$infer" -H 'Inference-Header-Content-Length: 0' --data-binary @small.jpg
has '"data":[200,200,200,200,100,100,100,100,50,50,50,50]' .test.body && pass pixels || fail pixels "$(cat .test.body)"
# as a string behind JSON
bytes=$(wc -c <small.jpg)
json='{"inputs":[{"name":"x","shape":[1,1],"datatype":"BYTES","parameters":{"binary_data_size":'$((bytes + 4))'}}]}'
{
    printf '%s' "$json"
    printf "\\$(printf %o $((bytes % 256)))\\$(printf %o $((bytes / 256)))\\000\\000"
    cat small.jpg
} >string
cp .test.body first
asks string 200 '"shape":[1,3,2,2]' "$infer" -H "Inference-Header-Content-Length: ${#json}" --data-binary @string
cmp -s first .test.body && pass same || fail same "$(cat first .test.body)"
head -c 280 small.jpg >cut.jpg
asks cut 400 'picture 0: broken JPEG image: ' "$infer" -H 'Inference-Header-Content-Length: 0' --data-binary @cut.jpg
asks no_picture 400 'picture 0: is neither PNG nor JPEG' "$infer" -H 'Inference-Header-Content-Length: 0' --data-binary @string
asks empty 400 'picture 0: is neither PNG nor JPEG' "$infer" -H 'Inference-Header-Content-Length: 0' -d ''
asks no_header 400 "comes with the header 'Inference-Header-Content-Length: 0'" "$infer" --data-binary @small.jpg
asks wrong_json 400 "the request's JSON, line 1" "$infer" -d '{"inputs":'
asks no_header_wrong_encoding 400 'gzip' -H 'Content-Encoding: gzip' "$infer" --data-binary @small.jpg
ends && pass end || fail end "$(cat .test.served)"
finish
