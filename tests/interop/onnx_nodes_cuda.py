# SPDX-License-Identifier: Apache-2.0
"""onnx_nodes.py on the emulated GPU, and after each row what its kernels computed and what the host
did for it. One test: SIMT_SCHEDULE=random onnx_nodes_cuda.py --only reduce_sum_keepdims."""
import os
import sys

from _lib import onnx_nodes

os.environ.setdefault('SIMT_SCHEDULE', 'random')
onnx_nodes('tests/simt/onnx_nodes_emulated_plain', '--device', 'cuda', *sys.argv[1:])
