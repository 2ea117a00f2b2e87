# SPDX-License-Identifier: Apache-2.0
"""The node tests of the ONNX package (1.16.1): PASS, FAIL or SKIP (refused) for each, then the shares
that pass. Ends with 1 where one fails or fewer than 95 % of those in f32, integers and bool pass.
One of them: onnx_nodes.py --only reduce_sum_keepdims. onnx_nodes_cuda.py runs them on a GPU."""
import sys

from _lib import onnx_nodes

onnx_nodes('tests/onnx_nodes', *sys.argv[1:])
