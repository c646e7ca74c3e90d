"""Compiles every kernel for A100, H100 and H200, and B200, without any of them, by Triton and the assembler that comes with it.

    python -m tests.benchmarks.compile_kernels --out docs/kernels

writes docs/kernels.json and docs/kernels.md. It needs Triton, and ends with status 1 when a program cannot be compiled.

What is recorded is what ptxas says with `-v`: registers of a thread, and bytes of registers spilled to memory, which cost time
where they are not zero. Shared memory is what Triton asks for per program. Instructions are counted in the machine code, all
and those of the innermost loop around tensor cores' products, 0 where it is unrolled. None of it is a measure of speed, but
what a kernel does for each element without need shows here first.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.errors import KernelError
from headrace.kernels._launch import INTERPRETED, triton
from tests.benchmarks.kernel_variants import VARIANTS, Variant

ARCHITECTURES = (80, 90, 100)
"""Compute capabilities times ten: A100, H100 and H200, B200."""

_USED = re.compile(r"Used (\d+) registers")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?);")
_BRANCH = re.compile(r"\bBRA\b.*?0x([0-9a-f]+)")
_PRODUCT = re.compile(r"\b(HMMA|IMMA|HGMMA|IGMMA|QGMMA|UTC\w*MMA)\b")
_TOO_WIDE = re.compile(r"mov\.u32\s+%\w+,\s*(0x[0-9a-fA-F]{9,})")
_SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """One program for one architecture. Registers are those of a thread, the rest are bytes; shared memory of one program."""

    kernel: str
    variant: str
    architecture: str
    warps: int
    ptx_bytes: int
    registers: int
    spill_stores: int
    spill_loads: int
    shared_memory: int
    instructions: int
    in_loop: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def versions() -> dict[str, str]:
    """Triton's version, and that of the assembler for the newest architecture. Raises KernelError where Triton cannot."""
    _check_triton()
    text = subprocess.run([_ptxas(ARCHITECTURES[-1]), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d[\d.]*)", text)
    return {"triton": triton.__version__, "ptxas": found[1] if found else text.strip()}


def compile_variant(kernel: str, variant: Variant, capability: int) -> Compiled:
    """One program compiled and assembled; Triton keeps the result in its own cache. Raises KernelError where that fails."""
    _check_triton()
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = variant.program.arg_names
    unknown = sorted({*variant.types, *variant.constants} ^ {*names})
    if unknown:
        raise KernelError(f"the variant {variant.name!r} of {kernel} and its program differ in {', '.join(unknown)}")
    source = ASTSource(
        fn=variant.program,
        signature={name: variant.types.get(name, "constexpr") for name in names},
        constexprs=dict(variant.constants),
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in sorted(variant.aligned)},
    )
    options = {"num_warps": variant.warps, "num_stages": variant.stages}
    try:
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as error:
        raise KernelError(f"{kernel} ({variant.name}) cannot be compiled for sm_{capability}: {error}") from error
    ptx: str = compiled.asm["ptx"]
    if fill := wrong_fill(ptx):
        raise KernelError(
            f"{kernel} ({variant.name}): what a mask leaves out of a load is filled with {fill} for sm_{capability}, of "
            "which only the first value is what was asked for; load 0 there and choose afterwards (tl.where)"
        )
    target = re.search(r"^\s*\.target\s+(\w+)", ptx, re.MULTILINE)
    if target is None:
        raise KernelError(f"{kernel} ({variant.name}): Triton's PTX for sm_{capability} names no target")
    registers, stores, loads, code = _assembled(ptx, target[1], capability)
    return Compiled(
        kernel=kernel,
        variant=variant.name,
        architecture=target[1],
        warps=variant.warps,
        ptx_bytes=len(ptx.encode()),
        registers=registers,
        spill_stores=stores,
        spill_loads=loads,
        shared_memory=compiled.metadata.shared,
        instructions=len(code),
        in_loop=_in_loop(code),
    )


def wrong_fill(ptx: str) -> str | None:
    """A number wider than the register that a masked load fills with it: Triton 3.6 repeats a negative one of 8 bits with its
    sign, so that -128 stands beside three times -1. Neither the interpreter nor the assembler sees anything wrong."""
    found = _TOO_WIDE.search(ptx)
    return found[1] if found else None


def _assembled(ptx: str, architecture: str, capability: int) -> tuple[int, int, int, list[tuple[int, str]]]:
    """Registers, bytes spilled and read back, and the instructions with their addresses."""
    with tempfile.TemporaryDirectory(prefix="headrace-ptxas-") as place:
        file = Path(place) / "program.ptx"
        file.write_text(ptx)
        command = [_ptxas(capability), "-v", f"--gpu-name={architecture}", str(file), "-o", str(file.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        listing = [str(Path(_ptxas(90)).with_name("cuobjdump")), "-sass", str(file.with_suffix(".cubin"))]
        sass = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
    used, spilled = _USED.search(done.stderr), _SPILLED.search(done.stderr)
    if done.returncode or used is None or spilled is None:
        raise KernelError(f"ptxas does not assemble what Triton wrote for {architecture}: {done.stderr.strip()}")
    code = [(int(found[1], 16), found[2]) for found in _INSTRUCTION.finditer(sass)]
    return int(used[1]), int(spilled[1]), int(spilled[2]), code


def _in_loop(code: Sequence[tuple[int, str]]) -> int:
    """Instructions of the shortest loop, from the target of a branch backward to the branch, that has a product in it."""
    products = [address for address, text in code if _PRODUCT.search(text)]
    loops = [(int(found[1], 16), address) for address, text in code if (found := _BRANCH.search(text))]
    around = [(first, last) for first, last in loops if any(first <= one <= last for one in products)]
    return min((sum(first <= address <= last for address, _ in code) for first, last in around if first < last), default=0)


def _ptxas(capability: int) -> str:
    from triton.backends.nvidia.compiler import get_ptxas

    path: str = get_ptxas(capability).path
    return path


def _check_triton() -> None:
    if triton is None:
        raise KernelError("compiling kernels needs Triton, which runs on Linux: pip install triton")
    if INTERPRETED:
        raise KernelError("Triton interprets instead of compiling while TRITON_INTERPRET is set; unset it")


def markdown(compiled: Iterable[Compiled], used: dict[str, str], command: str) -> str:
    """A page with one table per kernel."""
    lines = [
        "# Kernels",
        "",
        f"Written by `{command}` with Triton {used['triton']} and ptxas {used['ptxas']}; no GPU took part, and nothing here",
        "is a measure of speed. Registers are those of a thread; spills are bytes that a thread stores and loads because its",
        "registers do not suffice; instructions are all of the program's, and those of a step of its main loop where that is",
        "not unrolled. What each kernel computes, and how its memory traffic is counted, stands at the top of its file in",
        "`kernels/`.",
    ]
    kernels: dict[str, list[Compiled]] = {}
    for item in compiled:
        kernels.setdefault(item.kernel, []).append(item)
    for name, items in kernels.items():
        lines += ["", f"## {name}", "", *_table(items)]
    return "\n".join([*lines, ""])


def _table(items: Sequence[Compiled]) -> list[str]:
    head = ("program", "architecture", "warps", "registers", "spills", "shared memory", "instructions", "in the loop")
    rows = [
        (
            item.variant,
            item.architecture,
            str(item.warps),
            str(item.registers),
            f"{item.spill_stores} + {item.spill_loads} B" if item.spill_stores or item.spill_loads else "none",
            f"{item.shared_memory:,} B",
            f"{item.instructions:,}",
            str(item.in_loop or ""),
        )
        for item in items
    ]
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="writes OUT.json and OUT.md")
    parser.add_argument("--only", nargs="*", metavar="KERNEL", help="these kernels alone")
    options = parser.parse_args()
    try:
        unknown = sorted({*(options.only or ())} - {*VARIANTS})
        if unknown:
            raise KernelError(f"there is no kernel {', '.join(unknown)}; the kernels are {', '.join(VARIANTS)}")
        used = versions()
        compiled = [
            compile_variant(name, variant, capability)
            for name in options.only or VARIANTS
            for variant in VARIANTS[name]
            for capability in ARCHITECTURES
        ]
    except KernelError as error:
        print(f"kernels: {error}", file=sys.stderr)
        return 1
    only = ["--only", *options.only] if options.only else []
    said = " ".join(["python -m tests.benchmarks.compile_kernels", *only, "--out", str(options.out)])
    content = {"format": 1, "command": said, **used, "programs": [item.to_json() for item in compiled]}
    options.out.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(markdown(compiled, used, said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
