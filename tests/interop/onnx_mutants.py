# SPDX-License-Identifier: Apache-2.0
"""20,000 mutants of the operator tests of the ONNX package: each is run or refused, without a crash. By
the sanitizers' build where there is one. What seeds there are besides: onnx_mutants.py --seed 2."""
import os
import pathlib
import sys

from _lib import PARE, onnx_nodes

checked = 'sanitize/tests/onnx_mutants'
# allocations above 512 MiB are refused, as by a machine that lacks the memory
os.environ.setdefault('ASAN_OPTIONS', 'allocator_may_return_null=1:max_allocation_size_mb=512:detect_leaks=0')
os.environ.setdefault('UBSAN_OPTIONS', 'print_stacktrace=1')
built = os.access(pathlib.Path(PARE).parent / checked, os.X_OK)
onnx_nodes(checked if built else 'tests/onnx_mutants', '--count', '20000', *sys.argv[1:])
