"""A packaged model written in another format, opened there, compared, and only then put in its place."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import ArtifactError, ParityError
from ...scratch import ScratchFolder
from ...specs import FP32, Precision
from .. import backends, formats
from ..artifact.manifest import ONNX_FILE
from ..artifact.package import CLASSIFY, DECODE, place_package
from ..artifact.plan import Choice
from ..base.atomic import library_writes, old_model_stays, replacing, replacing_file
from ..base.config import GraphConfig
from ..base.session import Session, Target
from ..formats import Format
from ..tuning.candidate import Candidate
from .opened import Opened, changed, opened

_BATCHES = (1, 4)  # at which it must be right; 4 also ragged


@dataclass(frozen=True, kw_only=True)
class Export:
    """What was written: `path`, its bytes, how far its answers are from the package's in the outputs' units, the tolerance of a
    lossless one, what they were compared on, and the remarks."""

    model: str
    format: str
    precision: str
    path: str
    bytes: int
    compared: str
    max_abs: float | None
    tolerance: float | None
    top1_agreement: float | None
    remarks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@old_model_stays
def export(
    folder: Path,
    to: str,
    out: Path,
    *,
    precision: Precision,
    images: Path | None = None,
    overwrite: bool = False,
    trusted: bool = False,
) -> Export:
    """Write the model in `folder` as the format `to` at `out`, a file, a folder, or a repository of models.

    Real `images` set the ranges of int8 where the package holds no int8 form, and judge a lossy precision; without them its
    scores are held to a root mean square on noise. What stands at `out` stays unless `overwrite`, and in any case until the new
    one is right. Raises ArtifactError, InputError, BackendError, and ParityError where its answers are not the package's.
    """
    wanted = formats.get(to)
    wanted.check(precision)
    out = Path(os.path.abspath(out))
    _check_place(wanted, out, overwrite)
    if any(place.resolve() == folder.resolve() for place in (out, *out.parents, out / folder.resolve().name)):
        raise ArtifactError(f"{out} is where the package itself lies; name another place with --out")
    with opened(folder, images=images, trusted=trusted, int8=precision.is_int8) as model:
        if wanted.repository:
            with ScratchFolder() as made:
                candidate = _made(wanted, model, precision, made)
                _check_models(out, model.package.artifact.name, overwrite)
                place_package(made, out, model.package.artifact.name)
        elif wanted.suffix:
            with replacing_file(out) as written:
                candidate = _made(wanted, model, precision, written)
                _check_place(wanted, out, overwrite)
        else:
            with replacing(out.parent, [out.name]) as (place,):
                candidate = _made(wanted, model, precision, place)
                _check_place(wanted, out, overwrite)
        return _described(wanted, model, precision, out, candidate)


def _made(wanted: Format, model: Opened, precision: Precision, path: Path) -> Candidate:
    """Write it there, open it by its own runtime, and hold it against the package. Raises ParityError."""
    package, reference = model.package, model.reference
    source = sum((package.artifact.path / name).stat().st_size for name in package.artifact.files if name.startswith(ONNX_FILE))
    least = source // (4 if precision.is_int8 else 1 if precision == FP32 else 2)
    with library_writes(path if path.is_dir() else path.parent, least):
        wanted.write(package, precision, path)
    session: Session = wanted.open(path, package)
    try:
        # Any backend but eager, which would be taken for the reference.
        backend, target = backends.get("onnxruntime"), Target(precision=precision)
        candidate = Candidate(backend, target, Choice(backend=wanted.name, precision=precision), session=session)
        config = GraphConfig()
        right = candidate.passes(reference, config) and all(candidate.right_at(rows, reference, config) for rows in _BATCHES)
        why = candidate.why or next((lost for _, lost in candidate.lost.values()), "")
        why = why or ("" if precision.lossy else changed(package.artifact, session) or "")
    finally:
        session.close()
    if not right or why:
        raise ParityError(f"{package.artifact.name} as {wanted.name} {precision} does not answer as the package does: {why}")
    return candidate


def _described(wanted: Format, model: Opened, precision: Precision, out: Path, candidate: Candidate) -> Export:
    package, parity = model.package, candidate.parity
    assert parity is not None, "it was compared"
    images = model.reference.images
    on = f"{len(images.images[0])} images" if images is not None else f"{parity.rows} rows of noise"
    name = package.artifact.name
    places = [out / f"{name}{end}" for end in ("", DECODE, CLASSIFY)] if wanted.repository else [out]
    remarks = [*wanted.remarks(package, precision), *([model.remark] if model.remark else [])]
    if precision.lossy and images is None:
        remarks.append("no images judged it: give --images DIR to have its classes compared, not its scores on noise alone")
    return Export(
        model=name,
        format=wanted.name,
        precision=str(precision),
        path=str(out),
        bytes=sum(size(place) for place in places),
        compared=on,
        max_abs=parity.max_abs,
        tolerance=parity.tolerance,
        top1_agreement=parity.top1_agreement,
        remarks=tuple(remarks),
    )


def size(path: Path) -> int:
    """The bytes of a file, or of all below a folder."""
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())


def _check_place(wanted: Format, out: Path, overwrite: bool) -> None:
    """Raise ArtifactError unless it may be written there: nothing but an earlier export is ever replaced, and only if told."""
    if wanted.suffix and out.suffix != wanted.suffix:
        raise ArtifactError(f"--out must end with {wanted.suffix} for {wanted.name}, got {out}")
    if not os.path.lexists(out):
        return
    if wanted.repository:
        if not out.is_dir():
            raise ArtifactError(f"{out} is no folder; --to {wanted.name} writes a folder of models")
        return
    if wanted.suffix:
        if out.is_symlink() or not out.is_file():
            raise ArtifactError(f"{out} is no file of its own; it is left as it is")
    elif out.is_symlink() or not out.is_dir() or any(entry.suffix not in (".xml", ".bin") for entry in out.iterdir()):
        raise ArtifactError(f"{out} holds something else than an export; it is left as it is: name a new folder")
    if not overwrite:
        raise ArtifactError(f"{out} exists; --overwrite replaces it, once the new one is right")


def _check_models(out: Path, name: str, overwrite: bool) -> None:
    if (out / name).exists() and not overwrite:
        raise ArtifactError(f"{out / name} exists; --overwrite replaces it")
