# SPDX-License-Identifier: Apache-2.0
"""Counts of what kernels are made of, read from nvdisasm's text of a cubin.

    python3 sass.py DISASSEMBLY PTXAS     a line a kernel: name, then key=value
    python3 sass.py --compare BUDGET NOW  two such lists: status 1 where a kernel takes more, or one of HOT more than it may

all: instructions of the kernel; loop: of its hot loop; mma, per_mma: tensor-core instructions in it, others
for each; behind: instructions after it; per_sum: those that a warp which leaves the loop comes to before the next tile,
for each sum that a thread keeps; divide: conversions and reciprocals that a division is made of;
indirect, call: branches by a register, calls, in the loop and behind; local: accesses of local memory;
bytes_a_load: of a lane, in the mean; blocks: that an SM can hold by registers, threads and static shared memory.

The hot loop of a kernel is the innermost loop that holds its tensor-core instructions; of a kernel without
them, the innermost loops that load or store global memory, taken together. Counts are static: each instruction
of a loop once, whether or not it is executed in each turn."""

import re
import sys

WARP_REGISTERS, SM_REGISTERS, SM_THREADS, SM_SHARED, SM_BLOCKS = 256, 65536, 2048, 233472, 32  # of sm_90
BLOCK_SHARED = 1024  # what the system takes of each block
MMA = ("HMMA", "IMMA", "BMMA", "DMMA", "HGMMA", "IGMMA", "QGMMA")
INDIRECT = ("BRX", "JMX")
LOAD, STORE = ("LDG", "LDGSTS", "LD"), ("STG", "ST")


def bare(line):
    """Without what it depends on."""
    return re.sub(r"^@!?\S+\s+", "", line)


def opcode(line):
    return bare(line).split()[0]


def base(line):
    return opcode(line).split(".")[0]


def width(line):
    """Bytes a lane."""
    found = re.search(r"\.(U8|S8|U16|S16|64|128)\b", opcode(line))
    return {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}.get(found.group(1) if found else "", 4)


def sums_of(line):
    """That a thread keeps of a tensor-core instruction: of 64 x N in 128 threads, or of 16 x 8 in 32."""
    found = re.search(r"GMMA\S*\.64x(\d+)x", line)
    return int(found.group(1)) // 2 if found else 4


def target(line):
    """The label of a branch."""
    found = re.search(r"\bBRA\b.*`\((\.L_\S+)\)", line)
    return found.group(1) if found else None


def goes_on(line):
    """May the next instruction be executed behind this one?"""
    return not re.match(r"EXIT\b|RET\b|BRA +`", line)


class Kernel:
    def __init__(self, name):
        self.name, self.lines, self.labels, self.threads = name, [], {}, None

    def loops(self):
        """(first, last) of each backward branch; a branch to itself is the padding behind a kernel's end."""
        made = set()
        for i, line in enumerate(self.lines):
            to = self.labels.get(target(line), i)
            if to < i:
                made.add((to, i))
        return sorted(made)

    def innermost(self, wanted):
        """Loops with an instruction that is wanted which have no smaller loop with one in them."""
        holding = [(a, b) for a, b in self.loops() if any(wanted(line) for line in self.lines[a:b + 1])]
        return [(a, b) for a, b in holding
                if not any((c, d) != (a, b) and a <= c and d <= b for c, d in holding)]

    def comes_to(self, first, last):
        """How many instructions behind these may follow, up to the end of the loop around them; of a warp that
        fills the stages of others none. All of them where a branch goes to a table."""
        around = [b for a, b in self.loops() if a < first and b > last]
        end, seen, starts = min(around) if around else len(self.lines) - 1, set(), [last + 1]
        while starts:
            i = starts.pop()
            while last < i <= end and i not in seen:
                seen.add(i)
                if base(self.lines[i]) in INDIRECT:
                    return end - last
                starts.append(self.labels.get(target(self.lines[i]), -1))
                i = i + 1 if goes_on(self.lines[i]) else -1
        return len(seen)


def read(path):
    """The kernels of a disassembly. Functions that kernels call have sections of their own kernels."""
    kernels, kernel, notes = {}, None, None
    for line in open(path):
        section = re.match(r"\s+\.section\s+\.(text|nv\.info)\.(\w+)", line)
        if section or line.startswith("//-----"):
            kernel = notes = None
            if section:
                found = kernels.setdefault(section.group(2), Kernel(section.group(2)))
                kernel, notes = (found, None) if section.group(1) == "text" else (None, found)
            continue
        if notes:
            read_note(notes, line)
        if not kernel:
            continue
        label = re.match(r"(\.L_\S+):", line)
        instruction = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", line)
        if label:
            kernel.labels[label.group(1)] = len(kernel.lines)
        elif instruction:
            kernel.lines.append(instruction.group(1).strip())
    return [k for k in kernels.values() if k.lines]


def read_note(kernel, line):
    """__launch_bounds__: the first word behind EIATTR_MAX_THREADS."""
    if "EIATTR_" in line:
        kernel.awaits = "EIATTR_MAX_THREADS" in line
    word = re.search(r"\.word\s+0x([0-9a-f]+)", line)
    if word and getattr(kernel, "awaits", False):
        kernel.threads, kernel.awaits = int(word.group(1), 16), False


def resources(path):
    """Kernel -> (registers, shared bytes), as ptxas said for sm_90."""
    found, arch, name = {}, None, None
    for line in open(path):
        entry = re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line)
        if entry:
            name, arch = entry.groups()
        used = re.search(r"Used (\d+) registers", line)
        if used and arch in ("sm_90", "sm_90a"):
            shared = re.search(r"(\d+) bytes smem", line)
            found[name] = int(used.group(1)), int(shared.group(1)) if shared else 0
    return found


def blocks(threads, registers, shared):
    """Resident blocks of an SM of sm_90 (CUDA C++ programming guide, compute capability 9.0)."""
    warps = (threads + 31) // 32
    of_registers = SM_REGISTERS // (-(-registers * 32 // WARP_REGISTERS) * WARP_REGISTERS * warps)
    return min(of_registers, SM_THREADS // (warps * 32), SM_SHARED // (shared + BLOCK_SHARED), SM_BLOCKS)


def counts(kernel, used):
    is_mma, is_global = (lambda line: base(line) in MMA), (lambda line: base(line) in LOAD + STORE)
    has_mma = any(map(is_mma, kernel.lines))
    hot = kernel.innermost(is_mma if has_mma else is_global)
    body = [line for a, b in hot for line in kernel.lines[a:b + 1]]
    mma, loads = sum(map(is_mma, body)), [width(line) for line in body if base(line) in LOAD]
    behind = kernel.lines[hot[-1][1] + 1:] if has_mma and hot else []
    made = {"all": len(kernel.lines), "loop": len(body), "mma": mma}
    made["per_mma"] = round((len(body) - mma) / mma, 1) if mma else 0
    made["behind"] = len(behind)
    sums = sum({bare(line).split()[1]: sums_of(line) for line in body if is_mma(line)}.values())
    made["per_sum"] = round(kernel.comes_to(hot[0][0], hot[-1][1]) / sums, 1) if sums else 0
    made["divide"] = sum(bool(re.match(r"I2F\S*\.RP|MUFU\.RCP", opcode(line))) for line in body)
    made["indirect"] = sum(base(line) in INDIRECT for line in body + behind)
    made["call"] = sum(base(line) == "CALL" for line in body + behind)
    made["local"] = sum(base(line) in ("LDL", "STL") for line in kernel.lines)
    made["bytes_a_load"] = round(sum(loads) / len(loads), 1) if loads else 0
    registers, shared = used.get(kernel.name, (0, 0))
    made["registers"], made["threads"] = registers, kernel.threads or 0
    made["blocks"] = blocks(kernel.threads, registers, shared) if kernel.threads and registers else 0
    return made


MOST = ("loop", "per_mma", "behind", "per_sum", "divide", "indirect", "call", "local")
LEAST = ("bytes_a_load", "blocks", "mma")


AIM, AIM_SUM = 2.5, 26  # other instructions for each of a tensor core by mma.sync; behind the loop for each sum

# Kernels that take a net's time: how their names begin; may they have more than AIM? Their loops have no division,
# indirect branch, call or local memory, and no such branch or call is behind them. Not so:
# - tiles that end in ANY (2): they switch between activations by a table behind the loop; f8 has no other end;
# - quantize_tiles<1> and quantize_pixel_*: the operator divides by the scale, and a division calls for tiny numbers;
# - attention: rows are divided by their sums behind the loop, of 8 bits in it;
# - pieces_iterator, gemm_gather, sparse_tile and tiles of 64 columns: more than AIM, for fewer products share an address.
HOT = (
    (r"_Z9gemm_tileILi(2|3|10|16)E7tile_ofILi2ELi2ELi4ELi8EE15(matrix|im2col)_iteratorLi[01345]E", False),
    (r"_Z9gemm_tileILi(2|3|10|16)E7tile_ofILi2ELi2ELi[24]ELi4EE15(matrix|im2col)_iteratorLi[01345]E", True),
    (r"_Z11wgmma_tilesI", True),
    (r"_Z18wgmma_sparse_tilesI", True),
    (r"_Z10wgmma_swapI", True),
    (r"_Z9stem_tileI", True),
    (r"_Z9stem_poolI", True),
    (r"_Z14quantize_tilesILi4E", True),
    (r"_Z9separableI", True),
    (r"_Z7max_vecI", True),
    (r"_Z12average_vec4I", True),
    (r"_Z17softmax_registersI", True),
    (r"_Z20layer_norm_registersI", True),
    (r"_Z5countI", True),
)
NEVER = ("divide", "indirect", "call", "local")


def hot(now):
    """Lines of what kernels of HOT have that they must not have."""
    for begin, may in HOT:
        found = [(name, has) for name, has in now.items() if re.match(begin, name)]
        if not found:
            yield f"FAIL: no kernel's name begins with {begin}"
        for name, has in found:
            yield from (f"FAIL: {name}: {key} is {has[key]:g}, expected 0" for key in NEVER if has[key])
            if not may and has["per_mma"] > AIM:
                yield f"FAIL: {name}: {has['per_mma']:g} other instructions for each of a tensor core, expected at most {AIM}"


def table(path):
    rows = (line.split() for line in open(path))
    return {name: {k: float(v) for k, v in (word.split("=") for word in words)} for name, *words in rows}


def compare(budget, now):
    """Lines of what is over budget."""
    for name, has in now.items():
        may = budget.get(name)
        if may is None:
            yield f"not in the budget: {name}"
            continue
        for key in MOST + LEAST:
            if has[key] > may[key] if key in MOST else has[key] < may[key]:
                yield f"{name}: {key} is {has[key]:g}, the budget {may[key]:g}"


def main():
    if sys.argv[1] == "--compare":
        now = table(sys.argv[3])
        lines = list(compare(table(sys.argv[2]), now)) + list(hot(now))
        tensor = [(name, has) for name, has in now.items() if has["mma"]]
        sync = [has for name, has in tensor if "wgmma" not in name]
        print(*lines, f"{len(now)} kernels, {len(tensor)} with tensor cores: "
              f"{sum(has['per_mma'] <= AIM for has in sync)} of {len(sync)} by mma.sync have {AIM} or fewer other instructions for "
              f"each of these, {sum(has['per_sum'] <= AIM_SUM for _, has in tensor)} have {AIM_SUM} or fewer behind for each sum", sep="\n")
        return 1 if lines else 0
    used = resources(sys.argv[2])
    for kernel in sorted(read(sys.argv[1]), key=lambda k: k.name):
        print(kernel.name, *(f"{key}={value:g}" for key, value in counts(kernel, used).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
