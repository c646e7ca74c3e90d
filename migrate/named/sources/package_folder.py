"""One packaged model: a folder of a model repository."""

from __future__ import annotations

from pathlib import Path

from ..folders import MANIFEST, PackageFolder
from ..source import Options, Source


def takes(what: str) -> bool:
    path = Path(what)
    return (path / "config.pbtxt").is_file() and any(path.glob(f"*/{MANIFEST}"))


def read(what: str, options: Options) -> PackageFolder:
    return PackageFolder(Path(what).resolve())


SOURCE = Source(form="a package's folder", order=5, takes=takes, read=read)
