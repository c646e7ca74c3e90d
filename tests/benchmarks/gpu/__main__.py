"""`make bench-gpu`: what Headrace computes and gains on one CUDA GPU, built, checked and timed in one run, in one JSON.

    python tests/benchmarks/gpu --out FILE [--packages DIR] [--seconds 440]

It needs a checkout, torch with CUDA, numpy and psutil; headrace itself need not be installed. Serving over HTTP needs the
server's packages, which --packages brings where nothing can be installed. The sections come by importance and share the
time: what none is left for is skipped, and the JSON, written after every section, says so, as it says what failed.
`--device cpu --quick` runs the same code on small sizes without a GPU; its times mean nothing. The exit status is 0 when all
that ran was right, 1 when something failed, 2 when nothing could begin.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MODELS = ("resnet50", "vit_small_patch16_224", "resnet101")
SECTIONS = (
    *("roofline", "probe", "kernels", "resnet50", "served", "decoding"),
    *("vit_small_patch16_224", "correctness", "resnet101", "tiles", "sanitizer"),
)  # by importance, so in this order
CONTENDERS = (
    *("eager fp32", "eager bf16", "torch.compile bf16", "plan", "plan int8", "plan fp8"),
    *("torch.compile bf16, CUDA graphs", "inductor bf16", "kernels bf16", "kernels int8"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="small models, shapes and batches")
    parser.add_argument("--sections", nargs="*", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--only", nargs="*", choices=MODELS, default=MODELS, help="of the models, these alone")
    parser.add_argument("--contenders", nargs="*", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--backends", nargs="*", help="those to hold to float64; all by default")
    parser.add_argument("--operators", nargs="*", help="the kernels' operators to measure; all by default")
    parser.add_argument("--batches", default=None, help="default 1,8,32,128,256,512")
    parser.add_argument("--packages", type=Path, help="a folder of packages, or of wheels, to import from as well")
    parser.add_argument("--seconds", type=float, default=440.0, help="shared by the sections; none begins beyond them")
    parser.add_argument("--continued", type=Path, help=argparse.SUPPRESS)  # by a process that lost the GPU
    parser.add_argument("--compiled", type=Path, help="a folder in which compiled kernels are kept from one run to the next")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "bench-gpu.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-gpu-", ignore_cleanup_errors=True) as place:
        link = Path(place) / "import"
        link.mkdir()
        (link / "headrace").symlink_to(ROOT)  # the repository root is the package, whatever the checkout is called
        find_modules([link, HERE.parent], own=HERE)
        from gpu.packages import unpacked

        if arguments.packages is not None:
            if not arguments.packages.is_dir():
                print(f"--packages {arguments.packages} is not a folder")
                return 2
            find_modules([unpacked(arguments.packages.resolve(), Path(place) / "packages")])
        lacking = [name for name in ("torch", "numpy", "psutil") if importlib.util.find_spec(name) is None]
        if lacking:
            print(f"this benchmark needs {', '.join(lacking)}: pip install {' '.join(lacking)}")
            return 2
        import torch

        if arguments.device == "cuda" and not torch.cuda.is_available():
            print("no CUDA device: torch finds none on this machine; `--device cpu --quick` tries the script without one")
            return 2
        os.environ["HEADRACE_CACHE"] = "off"
        if arguments.compiled is not None:
            keep_compiled(arguments.compiled.resolve())
        from gpu.bench import Bench

        return Bench(arguments, Path(place), chosen(arguments)).run()


def chosen(arguments: argparse.Namespace) -> list[str]:
    return [name for name in SECTIONS if name in arguments.sections and (name not in MODELS or name in arguments.only)]


def keep_compiled(folder: Path) -> None:
    for variable, name in (("TRITON_CACHE_DIR", "triton"), ("TORCHINDUCTOR_CACHE_DIR", "inductor")):
        os.environ[variable] = str(folder / name)


def find_modules(places: list[Path], *, own: Path | None = None) -> None:
    """Import from these folders before all others, here and in every process that is started. `own` is the folder of this
    script, whose modules are not top-level ones."""
    sys.path[:] = [*map(str, places), *(item for item in sys.path if own is None or Path(item or ".").resolve() != own)]
    kept = [item for item in os.environ.get("PYTHONPATH", "").split(os.pathsep) if item]
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, places), *kept])


if __name__ == "__main__":
    sys.exit(main())
