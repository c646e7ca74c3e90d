"""TorchScript, for whoever still loads it: the portable graph traced; labels, preprocessing and task as extra files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...specs import Precision
from ..backends import loading
from ..base.session import Session, Target
from . import Format

if TYPE_CHECKING:
    from .shared.packaged import Packaged


@dataclass(frozen=True, kw_only=True)
class TorchScript(Format):
    name: str = "torchscript"
    suffix: str = ".pt"
    libraries: tuple[str, ...] = ("onnx", "torch")

    def write(self, package: Packaged, precision: Precision, path: Path) -> None:
        import torch

        from .shared.portable_module import PortableModule

        buffer = io.BytesIO()
        with torch.no_grad(), _quietly(), loading(path, "torch.jit"):
            traced = torch.jit.trace(PortableModule(package.onnx()).eval(), package.example(), check_trace=False)
            extra = {name: text.encode() for name, text in package.metadata(precision).items()}
            torch.jit.save(torch.jit.freeze(traced), buffer, _extra_files=extra)
        path.write_bytes(buffer.getbuffer())

    def open(self, path: Path, package: Packaged) -> Session:
        import torch

        from ..backends.shared.torch_session import open_session

        with _quietly(), loading(path, f"torch {torch.__version__}"):
            module = torch.jit.load(str(path))
        return open_session(module, Target(), recorded=False)

    def remarks(self, package: Packaged, precision: Precision) -> list[str]:
        old = "PyTorch no longer develops TorchScript; pt2 takes its place"
        return [*super().remarks(package, precision), old]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings that it is deprecated, and that sizes are traced: other batch sizes are compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


FORMAT = TorchScript()
