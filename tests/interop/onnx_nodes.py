# SPDX-License-Identifier: Apache-2.0
"""The operator tests of the ONNX package (1.20.1): PASS, FAIL or SKIP (refused) for each, then how many
pass. Ends with 1 where one fails or fewer than LEAST pass. One of them: onnx_nodes.py --only
reduce_sum_keepdims. onnx_nodes_cuda.py runs them on a GPU."""
import sys

from _lib import onnx_nodes

LEAST = '1704'
onnx_nodes('tests/onnx_nodes', '--least', LEAST, *sys.argv[1:])
