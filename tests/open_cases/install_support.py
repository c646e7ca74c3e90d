"""Make torchvision from the package index importable beside CPU torch in this environment, also for processes of others.

    python tests/open_cases/install_support.py

Writes a hook into this environment's site-packages: when torchvision is imported, the operators that it misses are declared
(see tests/zoo/torchvision_support.py). For environments that are there to measure or test, never for a user's.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

NAME = "_torchvision_beside_cpu_torch"
HOOK = '''"""Declares what torchvision misses beside CPU torch, when it is imported. Written by Headrace's tests/open_cases."""

import sys

KEPT = []


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision" and not KEPT:
            import torch

            if torch.version.cuda is None:
                KEPT.append(torch.library.Library("torchvision", "FRAGMENT"))
                KEPT[0].define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                KEPT[0].define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return None


sys.meta_path.insert(0, Finder())
'''


def main() -> None:
    packages = Path(sysconfig.get_paths()["purelib"])
    (packages / f"{NAME}.py").write_text(HOOK, encoding="utf-8")
    (packages / f"{NAME}.pth").write_text(f"import {NAME}\n", encoding="utf-8")
    print(f"torchvision is importable beside CPU torch in {packages.parents[2]}")


if __name__ == "__main__":
    main()
