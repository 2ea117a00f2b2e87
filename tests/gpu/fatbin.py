# SPDX-License-Identifier: Apache-2.0
"""Prints for which architectures each file holds GPU code: sm_80 (machine code), compute_80 (PTX).

    python3 fatbin.py FILE...

nvcc puts a "fat binary" a kernel file into the program: a header (magic number, version, its own
size, size of what follows), then entries (kind: 1 PTX, 2 machine code; own size, size of the code;
architecture at byte 28). cuobjdump tells the same, but is not part of every toolkit.
"""

import struct
import sys
from pathlib import Path

MAGIC = struct.pack("<I", 0xBA55ED50)
KINDS = {1: "compute", 2: "sm"}


def architectures(data):
    """(kind, number) pairs, each once, in order: ("compute", 80), ("sm", 80), ("sm", 90), ..."""
    found, at = set(), data.find(MAGIC)
    while at >= 0:
        _, header, size = struct.unpack_from("<HHQ", data, at + 4)
        entry, end = at + header, at + header + size
        while entry + 32 <= end:
            kind, _, own, code = struct.unpack_from("<HHIQ", data, entry)
            found.add((KINDS.get(kind, str(kind)), struct.unpack_from("<I", data, entry + 28)[0]))
            entry += max(own + code, 1)
        at = data.find(MAGIC, at + header + size)
    return sorted(found)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, *(f"{kind}_{number}" for kind, number in architectures(Path(name).read_bytes())))
