# SPDX-License-Identifier: Apache-2.0
"""The node tests of the ONNX package (1.16.1): PASS, FAIL or SKIP (refused) for each, then the shares
that pass. Ends with 1 where one fails or fewer than 95 % of those in f32, integers and bool pass."""
import os
import pathlib
import subprocess
import sys

import onnx
from _lib import PARE

nodes = pathlib.Path(onnx.__file__).parent / 'backend' / 'test' / 'data' / 'node'
program = pathlib.Path(PARE).parent / 'tests' / 'onnx_nodes'
if onnx.__version__ != '1.16.1' or not nodes.is_dir() or not os.access(program, os.X_OK):
    print(f'SKIP onnx_nodes: needs onnx 1.16.1 with its test data and {program}')
    sys.exit(0)
sys.exit(subprocess.run([str(program), str(nodes), *sys.argv[1:]]).returncode)
