"""Compiles every kernel for A100, H100 and H200, and B200, without any of them, and writes what they take.

    python -m headrace.kernels compile --out docs/kernels

writes docs/kernels.json and docs/kernels.md. It needs Triton, and ends with status 1 when a program cannot be compiled.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ..errors import KernelError
from . import discover
from ._compile import ARCHITECTURES, compile_variant, markdown, versions


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m headrace.kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command = parser.add_subparsers(dest="command", required=True).add_parser("compile", help="compile every kernel")
    command.add_argument("--out", type=Path, required=True, help="writes OUT.json and OUT.md")
    command.add_argument("--only", nargs="*", metavar="KERNEL", help="these kernels alone")
    options = parser.parse_args()
    try:
        kernels = discover()
        unknown = sorted({*(options.only or ())} - {*kernels})
        if unknown:
            raise KernelError(f"there is no kernel {', '.join(unknown)}; the kernels are {', '.join(kernels)}")
        used = versions()
        chosen = [kernels[name] for name in options.only or kernels]
        compiled = [
            compile_variant(kernel.name, variant, capability)
            for kernel in chosen
            for variant in kernel.variants
            for capability in ARCHITECTURES
        ]
    except KernelError as error:
        print(f"kernels: {error}", file=sys.stderr)  # noqa: T201
        return 1
    said = " ".join(
        ["python -m headrace.kernels compile", *(["--only", *options.only] if options.only else []), "--out", str(options.out)]
    )
    content = {"format": 1, "command": said, **used, "programs": [item.to_json() for item in compiled]}
    options.out.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(markdown(compiled, used, said))
    return 0


sys.exit(main())
