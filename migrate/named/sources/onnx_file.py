"""`FILE.onnx`: a graph, with what its metadata says of images and labels."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....errors import MigrateError
from ...proving.sandbox import Sandbox
from ...proving.worker_pool import WorkerPool
from ...proving.worker_protocol import Failed, ModelPackaged, PackageOnnx
from ...reading.recipe import Recipe
from ...reporting.progress import Stages
from ...stages.worker_client import model_name, package_onnx
from ..source import Options, Packageable, Source, file_digest, versions


@dataclass(frozen=True, kw_only=True)
class OnnxFile(Packageable):
    what: str
    title: str
    readable: tuple[Path, ...]
    path: Path
    strange: bool = False

    def key(self) -> Mapping[str, Any]:
        """With the files beside it, which may hold its weights."""
        beside = {path.name: file_digest(path) for path in self.readable}
        return {**versions("onnx"), "files": beside}

    def package(self, sandbox: Sandbox, options: Options, stages: Stages, *, planned: bool) -> ModelPackaged | Failed:
        request = PackageOnnx(
            recipe=Recipe(root=str(sandbox.readable_folder()), script="onnx_file.py"),
            path=str(self.path),
            name=options.name or self.title,
            out="",
            input=options.input_size,
            task=options.task,
            precision=options.precision,
            budget=options.budget,
            device=options.device,
            max_tuning_seconds=options.max_tuning_seconds,
            provenance={"reference": self.what, "file": file_digest(self.path)},
            image_folder=None if options.images is None or not planned else str(options.images.resolve()),
            planned=planned,
        )
        with WorkerPool(sandbox) as pool:
            return package_onnx(request, pool.sandbox, stages.start("Tuning the graph" if planned else "Reading the graph"))


def takes(what: str) -> bool:
    return what.endswith(".onnx") and Path(what).is_file()


def read(what: str, options: Options) -> OnnxFile:
    """Raises MigrateError for options that mean nothing here."""
    if options.checkpoint is not None or options.random_weights:
        raise MigrateError(f"{what} holds its weights; --checkpoint and --random-weights do not go with it")
    if options.images is not None and options.images.is_file():
        raise MigrateError(f"--images {options.images}: a graph is judged by a folder of images")
    path = Path(what).resolve()
    beside = sorted(
        file for file in path.parent.glob(f"{glob.escape(path.stem)}*") if file.suffix in (".data", ".bin") and file.is_file()
    )
    return OnnxFile(what=what, title=model_name(path.stem), readable=(path, *beside), path=path)


SOURCE = Source(form="FILE.onnx", order=10, takes=takes, read=read)
